package redact

import (
	"fmt"
	"strings"
)

// keyClass says what a key promises of its value.
type keyClass uint8

const (
	notSecret keyClass = iota
	// countable is a token: a secret unless it is a number, and in text only where
	// its value looks like one, because models and parsers speak of tokens too.
	countable
	// credential is a secret header whose value has a scheme or pairs.
	credential
	// secret is a secret, whatever its value.
	secret
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
	var w words
	w.split(name)
	for i := range w.n {
		k.words = append(k.words, strings.ToLower(w.at(i)))
	}
	k.joined = strings.Join(k.words, "")
	if len(k.joined) < 3 {
		return keyName{}, fmt.Errorf("read key %q: fewer than 3 letters or digits, it would match by accident", name)
	}
	switch k.joined {
	case "token":
		k.class = countable
	case "authorization", "cookie":
		k.class = credential
	default:
		k.class = secret
	}
	return k, nil
}

// literals are the spellings that a text must hold for the key to be in it.
func (k keyName) literals() []string {
	if len(k.words) == 1 {
		return []string{singular(k.joined)}
	}
	out := []string{k.joined}
	for _, sep := range []string{"_", "-", ".", " "} {
		out = append(out, strings.Join(k.words, sep))
	}
	return out
}

// words are the words of a key, without copying it.
type words struct {
	key    string
	n      int
	bounds [16][2]int
}

func (w *words) at(i int) string { return w.key[w.bounds[i][0]:w.bounds[i][1]] }

// split cuts key at separators and where a lower-case letter or digit is followed by
// an upper-case one (accessToken), and before the last capital of a run that a
// lower-case letter follows (APIKey). Words after the sixteenth are not seen.
func (w *words) split(key string) {
	w.key, w.n = key, 0
	start := -1
	for i := 0; i < len(key) && w.n < len(w.bounds); i++ {
		c := class[key[i]]
		if c&(digit|lower|upper) == 0 && key[i] < 0x80 {
			if start >= 0 {
				w.bounds[w.n] = [2]int{start, i}
				w.n++
				start = -1
			}
			continue
		}
		if start >= 0 && c&upper != 0 {
			before := class[key[i-1]]
			if before&upper == 0 || i+1 < len(key) && class[key[i+1]]&lower != 0 && !pluralCapitals(key[i:]) {
				w.bounds[w.n] = [2]int{start, i}
				w.n++
				start = i
			}
		}
		if start < 0 {
			start = i
		}
	}
	if start >= 0 && w.n < len(w.bounds) {
		w.bounds[w.n] = [2]int{start, len(key)}
		w.n++
	}
}

// pluralCapitals reports whether rest is the end of a plural such as APIs.
func pluralCapitals(rest string) bool {
	return len(rest) == 2 && rest[1] == 's'
}

// describing are words that, after the name of a secret, say something of it that is
// no secret: password_length, token_count, secret_name.
var describing = wordSet("count counts limit limits usage budget type types length len size name names url uri endpoint expiry " +
	"expires expiration ttl policy price cost costs rate per index position offset ratio probability probabilities logprob logprobs format " +
	"required enabled disabled present exists version field header env file path arn manager rotation strength rules placeholder label " +
	"window stats details estimate total sum lifetime expired valid invalid error errors provider providers store regex pattern")

// valued are words that, after "token", still speak of its value.
var valued = wordSet("value secret string str text key raw plain encoded data hash b64 base64 hex cookie auth authorization parameter param local dev prod staging test")

// countingTokens are words that, before "token", make it a token of a model, a
// parser or a page: eos_token, next_page_token.
var countingTokens = wordSet("page next prev previous continuation eos bos pad unk mask cls sep special stop start end first last " +
	"image audio input output prompt completion cached reasoning max min total num per cancel cancellation sync resume continue " +
	"pagination cursor current cost single multi lookahead")

// tokenOwners are words that "token" is written together with: authtoken.
var tokenOwners = wordSet("auth access refresh session bearer api id user bot csrf xsrf jwt oauth app my the x github gitlab npm device")

func wordSet(list string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		set[w] = true
	}
	return set
}

func has(set map[string]bool, word string) bool {
	if len(word) > 16 {
		return false
	}
	var buf [16]byte
	for i := range len(word) {
		buf[i] = toLower(word[i])
	}
	return set[string(buf[:len(word)])]
}

// classify says whether key names a secret.
func (r *Redactor) classify(key string) keyClass {
	// The name of a rule in a marker is no word of the key.
	for {
		at := strings.Index(key, "[redacted:")
		if at < 0 {
			break
		}
		end := strings.IndexByte(key[at:], ']')
		if end < 0 {
			break
		}
		key = key[:at] + key[at+end+1:]
	}
	if len(key) < 3 || len(key) > maxKey || len(r.keys) == 0 {
		return notSecret
	}
	var w words
	w.split(key)
	found := notSecret
	for i := range r.keys {
		if class := r.keys[i].in(&w); class > found {
			found = class
		}
	}
	if found != notSecret && len(r.allow) > 0 {
		plain := strings.ToLower(separators.Replace(key))
		for _, a := range r.allow {
			if a == plain {
				return notSecret
			}
		}
	}
	return found
}

// maxKey bounds what is looked at as a key; no name of a secret is longer.
const maxKey = 128

// in reports what k makes of the key whose words are w.
func (k *keyName) in(w *words) keyClass {
	for i := range w.n {
		n := k.matchAt(w, i)
		if n == 0 {
			continue
		}
		if next := i + n; next < w.n {
			after := w.at(next)
			if has(describing, after) {
				continue
			}
			if k.class == countable && !has(valued, after) {
				continue // a token's table, stream or kind
			}
			if equalFold(after, "id") && k.words[len(k.words)-1] == "key" {
				continue // access_key_id, api_key_id: the public half
			}
		}
		if k.class == countable && i > 0 && has(countingTokens, w.at(i-1)) {
			continue
		}
		return k.class
	}
	return notSecret
}

// matchAt returns how many words of w, from i, are the words of k.
func (k *keyName) matchAt(w *words, i int) int {
	word := w.at(i)
	for len(word) > 3 && class[word[len(word)-1]]&digit != 0 {
		word = word[:len(word)-1] // password2
	}
	if sameWord(word, k.joined, k.class) {
		return 1
	}
	if len(k.words) == 1 || i+len(k.words) > w.n {
		return 0
	}
	for j, want := range k.words {
		got := w.at(i + j)
		if j == len(k.words)-1 {
			if !equalFold(got, want) && !plural(got, want) {
				return 0
			}
		} else if !equalFold(got, want) {
			return 0
		}
	}
	return len(k.words)
}

// sameWord reports whether word is name, its plural, or ends with it as PGPASSWORD
// and authtoken do.
func sameWord(word, name string, class keyClass) bool {
	if equalFold(word, name) {
		return true
	}
	if class == countable { // "tokens" are counted, not kept secret
		n := len(word) - len(name)
		return n > 0 && equalFold(word[n:], name) && has(tokenOwners, word[:n])
	}
	if plural(word, name) {
		return true
	}
	n := len(word) - len(name)
	return n > 0 && len(name) >= 6 && equalFold(word[n:], name)
}

func plural(word, name string) bool {
	if len(word) == len(name)+1 && word[len(name)]|0x20 == 's' {
		return equalFold(word[:len(name)], name)
	}
	return len(word)+1 == len(name) && name[len(word)] == 's' && equalFold(name[:len(word)], word)
}

func singular(name string) string {
	if len(name) > 3 {
		return strings.TrimSuffix(name, "s")
	}
	return name
}

func toLower(c byte) byte {
	if class[c]&upper != 0 {
		return c | 0x20
	}
	return c
}

// equalFold is strings.EqualFold for ASCII; b is in lower case.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if toLower(a[i]) != b[i] {
			return false
		}
	}
	return true
}
