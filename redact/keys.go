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
)

// String is the name of the class in clues.
func (k keyClass) String() string {
	return [...]string{"none", "keyed", "weak", "countable", "credential", "secret"}[k]
}

// keyName is one configured key, split into words.
type keyName struct {
	words  []string // lower case
	joined string   // the words without separators, in the singular
	class  keyClass
}

var separators = strings.NewReplacer("_", "", "-", "", ".", "", " ", "")

func newKeyName(name string) (keyName, error) {
	if strings.ContainsFunc(name, func(c rune) bool { return c >= 0x80 || c <= ' ' }) {
		return keyName{}, fmt.Errorf("read key %q: use printable ASCII without spaces", name)
	}
	var k keyName
	for w := range splitWords(name) {
		k.words = append(k.words, strings.ToLower(w))
	}
	if k.joined = strings.Join(k.words, ""); len(k.joined) < 3 {
		return keyName{}, fmt.Errorf("read key %q: fewer than 3 letters or digits, it would match by accident", name)
	}
	if k.class = ambiguous[k.joined]; k.class == notSecret {
		k.class = secret
	}
	if last := &k.words[len(k.words)-1]; len(*last) > 3 && !strings.HasSuffix(*last, "ss") {
		*last = strings.TrimSuffix(*last, "s")
		k.joined = strings.Join(k.words, "")
	}
	return k, nil
}

// ambiguous are the names that do not always promise a secret.
var ambiguous = map[string]keyClass{"token": countable, "authorization": credential, "cookie": credential, "pass": weak,
	"pwd": weak, "psw": weak, "otp": weak, "psk": weak, "pin": weak,
	"unseal": weak, "key": keyed, "pat": keyed, "auth": keyed, "salt": keyed}

// shortened are names that others stand for, too.
var shortened = map[string]string{"pwd": "pw"}

// vendorKeys are the names of services whose keys have no shape of their own: where what
// is assigned to one looks like a token, it is one.
var vendorKeys []keyName

func readVendors() (out []keyName) {
	for _, name := range words["vendors"] {
		out = append(out, keyName{words: []string{name}, joined: name, class: keyed})
	}
	return out
}

// entries are the spellings that a text must hold for the key to be in it; of a short name those that data/words.txt
// lists, in which a capital shows that the case counts.
func (k *keyName) entries() (out []entry) {
	add := func(text, name string) {
		out = append(out, entry{rule: nameRule, literal: text, fold: strings.ToLower(text) == text, key: k,
			from: indexFold(text, name), n: len(name)})
	}
	if len(k.words) == 1 && slices.Contains(spokenNames, k.joined) {
		return nil // phrases find it
	}
	for _, text := range words["spellings of "+k.joined] {
		name := k.joined
		if indexFold(text, name) < 0 {
			name = name[:2] // pw
		}
		add(text, name)
	}
	if len(out) > 0 {
		return out
	}
	name := k.joined
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
		if c&(alnum|foreign) == 0 {
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

// maxKey bounds what is looked at as a key; no name of a secret is longer.
const maxKey = 128

// classify returns what key promises. A name of Redactor.keys must be the end of a word of it, or of some words
// together: access_token, accessToken, authtoken. Of several names the one that promises most counts.
func (r *Redactor) classify(key string) (found keyClass) {
	if len(key) > maxKey || len(r.keys) == 0 {
		return notSecret
	}
	var buf [maxKey]byte   // the words in lower case, without what parts them
	var ends [maxKey]uint8 // of the words in it
	n, size := 0, 0
	for w := range splitWords(key) {
		for i := range len(w) {
			buf[size] = toLower(w[i])
			size++
		}
		ends[n] = uint8(size)
		n++
	}
	x := wordsOfKey{unsafe.String(&buf[0], size), ends[:n]}
	// Names are looked up by the last two letters of each word, so that most words of a key meet none. They are compared
	// with the end of all words up to there, as a name may be of several: apikey is in APIKey, API_KEY and my-api-key.
	for i, from := 0, 0; i < n; i++ {
		end := runBack(x.lower, int(ends[i]), from, digit) // password2
		for plural := 0; plural < 2 && end >= from+2; plural++ {
			for _, k := range r.byEnd[x.lower[end-2:end]] {
				if k.class > found && strings.HasSuffix(x.lower[:end], k.joined) {
					found = max(found, k.promise(&x, key, i, end-len(k.joined), plural > 0))
				}
			}
			if end = end - 1; x.lower[end] != 's' {
				break
			}
		}
		from = int(ends[i])
	}
	if found != notSecret && len(r.allow) > 0 && slices.Contains(r.allow, strings.ToLower(separators.Replace(key))) {
		return notSecret
	}
	return found
}

// wordsOfKey are the words of a key: in lower case, without what parts them, and where each of them ends.
type wordsOfKey struct {
	lower string
	ends  []uint8
}

// promise returns what key promises by the name k, which begins at at in its words and ends with the word i. The word
// before it may make it another thing (primary_key), as may those after it (password_length).
func (k *keyName) promise(x *wordsOfKey, key string, i, at int, plural bool) keyClass {
	if plural && k.class < countable && k.joined != "pwd" || i+1 < len(x.ends) && k.described(x, i) {
		return notSecret
	}
	// A name may be written as one with the word before it, which then has to be one that owns such secrets: authtoken and
	// dbpass are names of secrets, compass and monkey end like names and are none.
	from, to := 0, 0 // the word that the name begins in, or the one before it where it is its beginning
	for _, end := range x.ends {
		if from, to = to, min(int(end), at); int(end) >= at {
			break
		}
	}
	// Whose name it is decides more than the name: cache_key and page_token are no secrets, db_pass and DB_PASS are.
	owner := x.lower[from:to]
	if at > 0 && class[x.lower[at-1]]&letter != 0 && !slices.Contains(x.ends, uint8(at)) { // of one word
		list := glueing[k.class]
		if k.joined == "pass" || k.joined == "pwd" {
			if has("otherPasses", owner) {
				return notSecret
			}
		} else if list != "" && !has(list, owner) || list == "" && (k.class == keyed || len(k.joined) < 6) {
			return notSecret
		}
	}
	found := k.behind(owner, key)
	if found == countable && plural {
		return keyed // tokens are counted more often than listed
	}
	return found
}

// described reports whether words after the word i make a key one of something that is no secret.
func (k *keyName) described(x *wordsOfKey, i int) bool {
	next, last := x.lower[x.ends[i]:x.ends[i+1]], x.lower[x.ends[len(x.ends)-2]:]
	return has("describing", next) || has("describing", last) || k.class <= countable && !has("valued", next) ||
		// access_key_id: the public half; UserSecretsId of .NET
		next == "id" && (k.joined == "secret" && x.lower[x.ends[i]-1] == 's' ||
			strings.HasSuffix(k.joined, "key") || strings.HasSuffix(k.joined, "credential"))
}

// behind returns the class of the name after the word owner, in key.
func (k *keyName) behind(owner, key string) keyClass {
	switch {
	case (k.class <= weak || len(k.joined) <= 4) && anID(key[strings.LastIndexAny(key, "_-. ")+1:]):
		return notSecret // prt_224720135fa0VrTUnlmGxcGKPw ends like the name of a password by chance
	case k.joined == "pw":
		return secret
	case k.class == weak && (has("passOwners", owner) || owner != "" && !holds(key, lower) && !has("otherPasses", owner)):
		return secret
	case k.class == countable && (has("countingTokens", owner) || len(key) > 6 && equalFold(key[:6], "public")),
		k.class == weak && has("otherPasses", owner),
		k.joined == "key" && (len(owner) < 2 || has("otherKeys", owner)),        // e.key === "Enter"
		k.joined == "secret" && has("ofReferences", owner), key == "signingkey": // of Git, an id
		return notSecret
	}
	return k.class
}

// glueing are the lists of words that names of a class are written together with.
var glueing = map[keyClass]string{countable: "tokenOwners", weak: "passOwners"}

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
	if !continues(s, hi) || s[hi]|0x20 != 's' || continues(s, hi+1) {
		return continues(s, hi)
	}
	// Counts of tokens are in every answer of a model, so they are set apart before anything else is asked.
	sign := skip(s, hi+1, hi+3, `"\`)
	i := skip(s, sign, sign+3, ":=> ")
	end := run(s, i, digit)
	return i < len(s) && oneByteOf(":=>", s[sign]) && end > i && (end == len(s) || class[s[end]]&alnum == 0)
}

// continues reports whether a word runs over i, in letters of one case.
func continues(s string, i int) bool {
	return i < len(s) && class[s[i]]&letter != 0 && class[s[i]]&letter == class[s[i-1]]&letter
}
