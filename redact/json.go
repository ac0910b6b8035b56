package redact

import (
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

const (
	// maxNested is how many levels of JSON in strings of JSON are read as JSON; what
	// is deeper is searched as text.
	maxNested = 8
	// maxLevels is how deep arrays and objects may nest to be read at all.
	maxLevels = 1000
)

const quotedMarker = `"` + Marker + `"`

// keyed redacts what is under the keys of JSON, and reports whether s is JSON.
func (r *Redactor) keyed(s string, nested int) (string, bool) {
	if nested < maxNested && len(r.keys) > 0 && holdsJSON(s) {
		if out, ok := r.document(s, nested, nil); ok {
			return out, true
		}
	}
	return s, false
}

// document redacts s if it is JSON, as it is: only what is replaced changes. Strings are redacted by text, where it is
// set.
func (r *Redactor) document(s string, nested int, text func(key, s string, nested int) string) (string, bool) {
	w := walker{r: r, s: s, nested: nested, text: text}
	if !w.all(notSecret) {
		return "", false
	}
	if len(w.edits) == 0 {
		return s, true
	}
	if nested == 0 {
		r.trace.pass(w.edits)
	}
	return written(s, w.edits), true
}

// whole redacts a value in JSON that is under a key of class.
func (r *Redactor) whole(class keyClass, raw []byte) []byte {
	w := walker{r: r, s: string(raw)}
	if !w.all(class) {
		return []byte(quotedMarker)
	}
	if len(w.edits) == 0 {
		return raw
	}
	return []byte(written(w.s, w.edits))
}

// walker goes over JSON once, checks it, and writes what it replaces.
type walker struct {
	r      *Redactor
	s      string
	nested int
	text   func(key, s string, nested int) string
	edits  []finding
}

func (w *walker) replace(start, end int, with string) {
	w.edits = append(w.edits, finding{start, end, with})
}

// all reads the text, which is under a key of class, and reports whether it is JSON.
func (w *walker) all(class keyClass) bool {
	end := w.any(jsonscan.Space(w.s, 0), "", class, 0)
	return end >= 0 && jsonscan.Space(w.s, end) == len(w.s)
}

// any reads the value at i that is under key, which is of class, and returns its end, below
// 0 where there is none.
func (w *walker) any(i int, key string, class keyClass, level int) int {
	if i == len(w.s) || level > maxLevels {
		return -1
	}
	if class != notSecret {
		end := skipJSON(w.s, i)
		if end < 0 {
			return -1
		}
		verdict := verdictOf(class, w.s[i:end])
		w.r.trace.note(Candidate{Start: i, End: end, Label: key, Kind: "value under a key", Secret: verdict == goes})
		switch verdict {
		case goes:
			w.replace(i, end, quotedMarker)
			return end
		case schema:
			return w.object(i, level, true)
		}
	}
	switch w.s[i] {
	case '{':
		return w.object(i, level, false)
	case '[':
		return w.array(i, key, class, level)
	case '"':
		end := jsonscan.String(w.s, i)
		if end >= 0 {
			w.str(key, i, end)
		}
		return end
	}
	return skipJSON(w.s, i)
}

type verdict uint8

const (
	stays verdict = iota
	goes
	schema
)

// verdictOf returns what becomes of a value under a key that names a secret.
func verdictOf(class keyClass, raw string) verdict {
	switch raw[0] {
	case 'n', 't', 'f': // null, true and false, as in "password": true of a form
		return stays
	case '"':
		if spared(class, raw[1:len(raw)-1]) {
			return stays
		}
	case '{', '[':
		if class <= weak {
			return stays
		}
		if jsonscan.Space(raw, 1) == len(raw)-1 || class == countable && !holdsString(raw) {
			return stays // is empty, or has numbers only
		}
		if raw[0] == '{' && isSchema(raw) {
			return schema
		}
	default:
		if class <= countable {
			return stays
		}
	}
	return goes
}

// holdsString reports whether raw has a string that is no key.
func holdsString(raw string) bool {
	for i := 0; i < len(raw); i++ {
		if raw[i] == '"' {
			i = jsonscan.String(raw, i) - 1
			if next := jsonscan.Space(raw, i+1); next == len(raw) || raw[next] != ':' {
				return true
			}
		}
	}
	return false
}

func isSchema(raw string) bool {
	typed := false
	end := jsonscan.Container(raw, 0, func(k jsonscan.Key, i int) int {
		key, end := raw[k.From+1:k.To-1], skipJSON(raw, i)
		switch value := raw[i:end]; {
		case !lists["schemaWords"][key], key == "type" && value[0] != '[' && !lists["schemaTypes"][strings.Trim(value, `"`)]:
			return -1
		case key == "type", (key == "anyOf" || key == "oneOf" || key == "allOf") && value[0] == '[',
			key == "$ref" && value[0] == '"':
			typed = true
		}
		return end
	})
	return typed && end >= 0
}

// object reads the object at i; of a schema under the name of a secret, what may be a value of it goes.
func (w *walker) object(i, level int, ofSchema bool) int {
	return jsonscan.Container(w.s, i, func(k jsonscan.Key, start int) int {
		key := w.s[k.From+1 : k.To-1]
		if strings.IndexByte(key, '\\') >= 0 {
			key = unescape(key)
		}
		class := w.r.classify(key)
		if ofSchema && lists["schemaValues"][key] {
			class = secret
		}
		return w.any(start, key, class, level+1)
	})
}

func (w *walker) array(i int, key string, class keyClass, level int) int {
	return jsonscan.Container(w.s, i, func(_ jsonscan.Key, start int) int {
		promise := notSecret
		if w.s[start] == '"' {
			promise = class
		}
		return w.any(start, key, promise, level+1)
	})
}

// str redacts the string w.s[start:end], quotes included: what is under keys of JSON in it, and what the walker's text
// finds.
func (w *walker) str(key string, start, end int) {
	body := w.s[start+1 : end-1]
	if w.text == nil && (!holdsJSON(body) || !w.r.suspect(body)) {
		return
	}
	plain := body
	if strings.IndexByte(body, '\\') >= 0 {
		plain = unescape(body)
	}
	var out string
	found, stages := w.r.trace.mark()
	if w.text != nil {
		out = w.text(key, plain, w.nested+1)
	} else {
		out, _ = w.r.keyed(plain, w.nested+1)
	}
	w.r.trace.within(found, stages, start+1, end-1)
	if out != plain {
		w.replace(start+1, end-1, escape(out))
	}
}

// skipJSON returns the end of the value at i, below 0 when there is none.
func skipJSON(s string, i int) int { return jsonscan.Value(s, i, maxLevels) }

// unescape returns the bytes that the body of a JSON string means.
func unescape(s string) string {
	out, _ := jsonscan.AppendUnescaped(make([]byte, 0, len(s)), s)
	return string(out)
}

// escape returns s as the body of a JSON string.
func escape(s string) string {
	quoted := jsonscan.AppendString(nil, s)
	return string(quoted[1 : len(quoted)-1])
}
