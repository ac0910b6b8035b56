package redact

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"unsafe"
)

// keyClass is what a key promises of its value.
type keyClass uint8

const (
	notSecret keyClass = iota
	// keyed is a key of something, or "auth": a secret where its value looks like
	// a token and no words before it state what else it is.
	keyed
	// weak is a short name that means other things too, such as pass and pwd: a
	// secret unless its value is a number, a path or a state.
	weak
	// countable is a token: a secret unless it is a number, and in text only where
	// its value looks like one, because models and parsers speak of tokens too.
	countable
	// credential is a secret header whose value has a scheme or pairs.
	credential
	// secret is a secret, whatever its value.
	secret
	// spokenOf is the class of phrases, ofTool that of commands.
	spokenOf
	ofTool
	// hint is the class of words that a secret is near more often than elsewhere, and that name none.
	hint
	classes
)

// keyName is one configured key, split into words.
type keyName struct {
	words  []string // lower case
	joined string   // the words without separators
	class  keyClass
}

var separators = strings.NewReplacer("_", "", "-", "", ".", "", " ", "")

func newKeyName(name string) (keyName, error) {
	if len(name) < 3 {
		return keyName{}, fmt.Errorf("read key %q: shorter than 3 bytes, it would match by accident", name)
	}
	var k keyName
	for i := range len(name) {
		if name[i] >= 0x80 || name[i] <= ' ' {
			return keyName{}, fmt.Errorf("read key %q: use printable ASCII without spaces", name)
		}
	}
	for w := range splitWords(name) {
		k.words = append(k.words, strings.ToLower(w))
	}
	k.joined = strings.Join(k.words, "")
	if len(k.joined) < 3 {
		return keyName{}, fmt.Errorf("read key %q: fewer than 3 letters or digits, it would match by accident", name)
	}
	if k.class = ambiguous[k.joined]; k.class == notSecret {
		k.class = secret
	}
	return k, nil
}

// ambiguous are the names that do not always promise a secret.
var ambiguous = map[string]keyClass{"token": countable, "authorization": credential, "cookie": credential, "pass": weak,
	"pwd": weak, "psk": weak, "key": keyed, "pat": keyed, "auth": keyed, "salt": keyed}

// vendorKeys are the names of services whose keys have no shape of their own: where what
// is assigned to one looks like a token, it is one.
var vendorKeys = func() (out []keyName) {
	for _, name := range words["vendors"] {
		out = append(out, keyName{words: []string{name}, joined: name, class: keyed})
	}
	return out
}()

// entries are the spellings that a text must hold for the key to be in it; of a short name those that data/words.txt
// lists, in which a capital shows that the case counts.
func (k *keyName) entries() (out []entry) {
	add := func(text, name string) {
		out = append(out, entry{rule: nameRule, literal: text, fold: strings.ToLower(text) == text, key: k,
			from: indexFold(text, name), n: len(name)})
	}
	for _, text := range words["spellings of "+k.joined] {
		name := k.joined
		if indexFold(text, name) < 0 {
			name = name[:2] // pw
		}
		add(strings.ReplaceAll(text, "·", " "), name)
	}
	if len(out) > 0 {
		return out
	}
	name := k.joined
	if len(k.words) == 1 && len(name) > 3 && !strings.HasSuffix(name, "ss") {
		name = strings.TrimSuffix(name, "s")
	}
	add(name, name)
	for _, sep := range [...]string{"_", "-", ".", " "} {
		if name = strings.Join(k.words, sep); len(k.words) > 1 {
			add(name, name)
		}
	}
	return out
}

// splitWords yields the words of a key: what separators part, and accessToken and APIKey where their case changes.
func splitWords(key string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := 0; i < len(key); {
			end := wordFrom(key, i, len(key))
			if end == i {
				i++
				continue
			}
			if !yield(key[i:end]) {
				return
			}
			i = end
		}
	}
}

// wordFrom returns the end of the word of a key that begins at i: where a separator
// follows, where a lower-case letter or digit is followed by a capital (accessToken),
// and before the last capital of a run that a lower-case letter follows (APIKey).
func wordFrom(s string, i, hi int) int {
	start := i
	for ; i < hi; i++ {
		c := class[s[i]]
		if c&alnum == 0 && s[i] < 0x80 {
			break
		}
		if i > start && c&upper != 0 {
			if class[s[i-1]]&upper == 0 || i+1 < hi && class[s[i+1]]&lower != 0 && !(s[i+1] == 's' && i+2 == hi) {
				break
			}
		}
	}
	return i
}

// wordBefore returns the bounds of the word of a key that ends before i.
func wordBefore(s string, lo, i int) (from, to int) {
	for i > lo && class[s[i-1]]&alnum == 0 && s[i-1] < 0x80 {
		i--
	}
	to = i
	for i > lo && (class[s[i-1]]&alnum != 0 || s[i-1] >= 0x80) {
		i--
		if class[s[i]]&upper != 0 && (i == lo || class[s[i-1]]&upper == 0) {
			break // camelCase
		}
	}
	return i, to
}

// classify returns what key promises.
func (r *Redactor) classify(key string) keyClass {
	if len(key) > maxKey || len(r.keys) == 0 {
		return notSecret
	}
	// Spellings of short names have a separator before or after them, so a byte that is no letter is put behind the key.
	// The key may have several names, of which the one that promises most counts.
	var buf [maxKey + 1]byte
	n := copy(buf[:], key)
	found := notSecret
	padded := unsafe.String(&buf[0], n+1)
	for at, entries := r.index.next(padded, 0, 0); at >= 0; at, entries = r.index.next(padded, at+1, 0) {
		for k := range entries {
			e := &entries[k]
			if begin := at - e.offset; e.key != nil && e.key.class > found && e.at(key, 0, begin) {
				found = max(found, e.key.promise(key, 0, len(key), begin+e.from, e.n))
			}
		}
	}
	switch { // as the whole of a key: the literals of these have something around them
	case found != notSecret:
	case equalFold(key, "pat") && r.names["pat"]:
		found = keyed
	case equalFold(key, "pw") && r.names["pwd"]:
		found = weak
	}
	if found != notSecret && r.allowed(key) {
		return notSecret
	}
	return found
}

func (r *Redactor) allowed(key string) bool {
	return len(r.allow) > 0 && slices.Contains(r.allow, strings.ToLower(separators.Replace(key)))
}

// maxKey bounds what is looked at as a key; no name of a secret is longer.
const maxKey = 128

// promise returns what the key s[lo:hi] promises by its part s[at:at+n], which spells k. The part must be whole words
// of the key; the words before it may make it another thing (primary_key), as may those after it (password_length).
func (k *keyName) promise(s string, lo, hi, at, n int) keyClass {
	end, ok := k.ends(s, at+n, hi)
	if !ok {
		return notSecret
	}
	owner, ok := k.begins(s, lo, at)
	if !ok {
		return notSecret
	}
	for end < hi && class[s[end]]&alnum == 0 {
		end++
	}
	last := strings.TrimSuffix(k.words[len(k.words)-1], "s")
	from, to := wordBefore(s, end, hi)
	if next := s[end:wordFrom(s, end, hi)]; next != "" && (has("describing", next) || has("describing", s[from:to]) ||
		k.class <= countable && !has("valued", next) ||
		equalFold(next, "id") && (last == "key" || last == "credential")) { // access_key_id: the public half
		return notSecret
	}
	found := k.behind(owner, s[lo:hi])
	if found == countable && at+n < hi && s[at+n]|0x20 == 's' {
		return keyed // tokens are counted more often than listed
	}
	return found
}

// ends reports whether the name may end at end, and returns where its plural or number does.
func (k *keyName) ends(s string, end, hi int) (int, bool) {
	if end < hi && class[s[end]]&letter != 0 && !(class[s[end]]&upper != 0 && class[s[end-1]]&upper == 0) {
		if s[end]|0x20 != 's' || k.class < countable && k.joined != "pwd" || continues(s[:hi], end+1) {
			return 0, false
		}
		end++
	}
	return run(s[:hi], end, digit), true // password2
}

// begins reports whether the name may begin at at, and returns the word before it.
func (k *keyName) begins(s string, lo, at int) (owner string, ok bool) {
	if at == lo {
		return "", true
	}
	c := class[s[at-1]]
	from, to := wordBefore(s, lo, at)
	if c&letter == 0 || class[s[at]]&upper != 0 && (c&upper == 0 || at+1 < len(s) && class[s[at+1]]&lower != 0) {
		return s[from:to], true
	}
	owner = s[from:at]
	switch k.class {
	case countable: // "tokens" are counted, not kept secret
		return owner, has("tokenOwners", owner)
	case weak:
		return owner, has("passOwners", owner)
	}
	return owner, k.class != keyed && len(k.joined) >= 6
}

// behind returns the class of the name after the word owner, in key.
func (k *keyName) behind(owner, key string) keyClass {
	switch {
	case k.class == weak && (has("passOwners", owner) || owner != "" && shouted(key) && !has("otherPasses", owner)):
		return secret
	case k.class == countable && (has("countingTokens", owner) || len(key) > 6 && equalFold(key[:6], "public")),
		k.class == weak && has("otherPasses", owner),
		k.joined == "key" && (owner == "" || has("otherKeys", owner)),
		k.joined == "secret" && equalFold(owner, "existing"):
		return notSecret
	}
	return k.class
}

func toLower(c byte) byte {
	if class[c]&upper != 0 {
		return c | 0x20
	}
	return c
}

// equalFold is strings.EqualFold for ASCII; b is in lower case.
func equalFold(a, b string) bool {
	for i := 0; len(a) == len(b) && i < len(a); i++ {
		if toLower(a[i]) != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// keyBytes may be part of a key in text.
const keyBytes = slug | dot

// keySpan returns the bounds of the key around s[at:at+n], no longer than maxKey; none when the word goes on and is
// another: tokens, tokenizer, secretary. Only a plural may.
func keySpan(s string, floor, at, n int) (lo, hi int) {
	if goesOn(s, at+n) {
		return 0, 0
	}
	hi = at + n
	for hi < len(s) && hi-at <= maxKey && class[s[hi]]&keyBytes != 0 {
		hi++
	}
	lo = runBack(s, at, max(floor, at-maxKey-1), keyBytes)
	return unless(at-lo > maxKey || hi-at > maxKey, skip(s, lo, at, "-."), skipBack(s, hi, at+n, "-."))
}

// goesOn reports whether the word that ends at hi goes on as another, or counts: "tokens": 12.
func goesOn(s string, hi int) bool {
	return continues(s, hi) && (s[hi]|0x20 != 's' || continues(s, hi+1) || counted(s, hi+1))
}

// counted reports whether a number is assigned to the name that ends at i.
func counted(s string, i int) bool {
	i = skip(s, i, len(s), `"\`)
	if i < len(s) && s[i] == '>' { // an element: <tokens>12</tokens>
		end := run(s, i+1, digit)
		return end > i+1 && end < len(s) && s[end] == '<'
	}
	if i == len(s) || s[i] != ':' && s[i] != '=' {
		return false
	}
	i = skip(s, i+1, len(s), " ")
	return i < len(s) && class[s[i]]&digit != 0
}

// continues reports whether a word runs over i, in letters of one case.
func continues(s string, i int) bool {
	return i < len(s) && class[s[i]]&letter != 0 && class[s[i]]&letter == class[s[i-1]]&letter
}

// classifyAt classifies the key s[lo:hi] by its part at at that e found, and returns
// where it begins: an escape before it may have run into it.
func (r *Redactor) classifyAt(s string, lo, hi, at int, e *entry) (int, keyClass) {
	found := e.key.promise(s, lo, hi, at, e.n)
	if steps := 0; lo > 0 && found == notSecret { // an escape runs into it: "\ntoken=…", "%26token=…"
		if oneByteOf("\\%", s[lo-1]) {
			steps = 5
		} else if s[lo-1] == '-' && (s[lo] == 'D' || s[lo] == 'P') { // java -Dname=…
			steps = 1
		}
		for ; steps > 0 && found == notSecret && lo < at; steps-- {
			lo++
			found = e.key.promise(s, lo, hi, at, e.n)
		}
	}
	if found != notSecret && r.allowed(s[lo:hi]) {
		found = notSecret
	}
	return lo, found
}
