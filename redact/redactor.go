package redact

import (
	"slices"
	"strings"
	"unsafe"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// Text returns s without secrets; s itself when it has none. Text that is JSON stays JSON, valid UTF-8 stays valid.
func (r *Redactor) Text(s string) string { return r.clean("", s) }

// Value is Text for a string that is under key: redacted whole when key names a
// secret, and left alone when it is empty, or a number under a key of tokens.
func (r *Redactor) Value(key, s string) string {
	if r == nil {
		return s
	}
	if class := r.classify(key); class != notSecret && !spared(class, s) {
		return Marker
	}
	return r.clean(key, s)
}

// maxPasses bounds how often a value is searched. Each pass but the last leaves fewer
// secrets, so the bound is for the reader's peace of mind.
const maxPasses = 10

// clean redacts s, which is under key.
func (r *Redactor) clean(key, s string) string {
	if r == nil {
		return s
	}
	s = r.byRules(s, true)
	if r.fn != nil {
		return r.custom(key, s, 0)
	}
	return s
}

// byRules redacts s without Config.Func; far, also what no label is near. An id has nothing around it.
func (r *Redactor) byRules(s string, far bool) string {
	far = far && r.far
	if !r.suspect(s) && (!far || !odd(s)) {
		return s
	}
	// Taking one secret out can lay another bare, beside it or in what encloses it.
	for range maxPasses {
		keyed, isJSON := r.document(s, 0, nil)
		out := r.text(keyed, isJSON, far)
		if out == s {
			break
		}
		s = out
	}
	return s
}

// custom passes what is left to Config.Func, strings of JSON one by one.
func (r *Redactor) custom(key, s string, nested int) string {
	if out, ok := r.document(s, nested, r.custom); ok {
		s = out
	}
	if s != Marker {
		if v, ok := r.fn(key, s); ok {
			return v
		}
	}
	return s
}

// spared reports whether a string under a key of class reports nothing secret.
func spared(class keyClass, s string) bool {
	switch class {
	case weak:
		return !passLike(s) || marked(s)
	case keyed:
		return !tokenLike(s)
	case countable:
		if strings.Count(s, " ") > 1 || strings.IndexByte(s, ' ') > 0 && strings.IndexByte(s, '/') > 0 {
			return true // "token": "node scripts/count.js"
		}
	}
	if class == credential {
		s = s[afterScheme(s, 0, len(s)):]
	}
	return strings.Trim(s, "*•") == "" || marked(s) || filePath(s) || is("reference", s) ||
		is("constant", s) || // REPLACE_ME
		class == countable && (number(s) || known(s) == aNumber) || s[0] == '<' && is("blank", s) ||
		message(s) || namesSecret(s) ||
		has("passwordWords", s) // {"password": "Passwort"} of a translation
}

// holdsJSON reports whether s begins like an array or object of JSON.
func holdsJSON(s string) bool {
	i := jsonscan.Space(s, 0)
	return i < len(s) && (s[i] == '{' || s[i] == '[')
}

// JSON returns raw without secrets: raw itself, not a copy, when it has none, otherwise a new slice. Values of any type
// under a key that names a secret are replaced whole, except null, true, false and what is empty, numbers under a key
// of tokens, and a JSON Schema, of which only defaults, constants and examples are replaced. Strings are searched as by
// Text. What is valid stays valid, with its whitespace, its numbers and the order of its keys; what is not JSON is
// treated as text.
func (r *Redactor) JSON(raw []byte) []byte {
	if r == nil || len(raw) == 0 {
		return raw
	}
	s := unsafe.String(unsafe.SliceData(raw), len(raw)) // raw is not written to, and s is not kept
	out := r.byRules(s, true)
	if r.fn != nil {
		if doc, ok := r.document(out, 0, r.custom); ok {
			out = doc
		} else {
			out = r.custom("", out, 0)
		}
	}
	if len(out) == len(s) && (unsafe.StringData(out) == unsafe.StringData(s) || out == s) {
		return raw
	}
	return []byte(out)
}

// List redacts a list of strings, such as the arguments of a process, of which one may name what the next one is. It
// returns words itself, or another list of as many.
func (r *Redactor) List(words []string) []string {
	raw := []byte{'['}
	for i, w := range words {
		if i > 0 {
			raw = append(raw, ',')
		}
		raw = jsonscan.AppendString(raw, w)
	}
	doc := r.JSON(append(raw, ']'))
	var clean []string
	jsonscan.Array(doc, maxLevels, func(quoted []byte) {
		w, _ := jsonscan.Unquote(quoted)
		clean = append(clean, w)
	})
	if len(clean) != len(words) || slices.Equal(clean, words) {
		return words
	}
	return clean
}

// maxOmitted is the longest value that is redacted before it is omitted, for the sake of its size alone.
const maxOmitted = 1 << 20

// Result states what was done to a value.
type Result struct {
	// Redacted reports that a secret was taken out.
	Redacted bool
	// Omitted reports that the value was not wanted at all, Truncated that it was cut.
	Omitted, Truncated bool
	// Size is the number of bytes before the value was omitted or cut, after it was
	// redacted: that of the value when neither happened. What is omitted of more than a MiB is not redacted before.
	Size int
	// SHA256 is the digest, in hexadecimal, of the bytes that Size counts, of a value that was cut; otherwise empty. It
	// is of the redacted value, so that it cannot confirm a guess of the secret.
	SHA256 string
}

// Apply redacts the string under key, then omits or cuts it, as the configuration wants of its kind of content.
func (r *Redactor) Apply(kind Content, key, s string) (string, Result) {
	if r == nil {
		return s, Result{Size: len(s)}
	}
	if r.Omits(kind) && len(s) > maxOmitted {
		return omit(s, false)
	}
	out := r.Value(key, s)
	redacted := out != s
	if r.Omits(kind) && out != "" {
		return omit(out, redacted)
	}
	out, res := r.Truncate(out)
	res.Redacted = redacted
	return out, res
}

// ApplyJSON is Apply for a value in JSON, which stays JSON: omitted, it is a string.
func (r *Redactor) ApplyJSON(kind Content, key string, raw []byte) ([]byte, Result) {
	if r == nil {
		return raw, Result{Size: len(raw)}
	}
	out := raw
	if !r.Omits(kind) || len(raw) <= maxOmitted {
		if class := r.classify(key); class != notSecret {
			out = r.whole(class, raw)
		}
		out = r.JSON(out)
	}
	redacted := string(out) != string(raw)
	if r.Omits(kind) && len(out) > 0 {
		s, res := omit(string(out), redacted)
		if s == string(out) {
			return out, res
		}
		return []byte(`"` + s + `"`), res
	}
	out, res := r.TruncateJSON(out)
	res.Redacted = redacted
	return out, res
}

// Omits reports whether content of kind is replaced whole. A caller that would have to
// take a value apart to know the kinds in it need not when none is.
func (r *Redactor) Omits(kind Content) bool {
	return r != nil && int(kind) < len(r.omit) && r.omit[kind]
}
