package redact

import (
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

const (
	// maxNested is how many levels of JSON in strings of JSON are read as JSON; what is deeper is searched as text.
	maxNested = 8
	// maxLevels is how deep arrays and objects may nest to be read at all.
	maxLevels = 1000
)

const quotedMarker = `"` + Marker + `"`

// document redacts what is under the keys of s, if it is JSON, as it is: only what is replaced changes. Strings are
// redacted by text, where it is set.
func (r *Redactor) document(s string, nested int, text func(key, s string, nested int) string) (string, bool) {
	w := walker{r: r, s: s, nested: nested, text: text}
	return w.redacted(notSecret)
}

// whole redacts a value in JSON that is under a key of class.
func (r *Redactor) whole(class keyClass, raw []byte) []byte {
	w := walker{r: r, s: string(raw)}
	if out, ok := w.redacted(class); ok {
		return []byte(out)
	}
	return []byte(quotedMarker)
}

// walker goes over JSON once, checks it, and writes what it replaces.
type walker struct {
	r      *Redactor
	s      string
	nested int
	at     span // of a nested text in the outermost
	text   func(key, s string, nested int) string
	edits  []finding
}

// redacted returns the text, which is under a key of class, and whether it is JSON.
func (w *walker) redacted(class keyClass) (string, bool) {
	if w.nested >= maxNested || class == notSecret && !holdsJSON(w.s) {
		return w.s, false
	}
	end := w.any(jsonscan.Space(w.s, 0), "", class, 0)
	if end < 0 || jsonscan.Space(w.s, end) != len(w.s) {
		return w.s, false
	}
	if w.nested == 0 {
		w.r.trace.pass(w.edits)
	}
	return written(w.s, w.edits), true
}

// any reads the value at i that is under key, which is of class, and returns its end, below 0 where there is none.
func (w *walker) any(i int, key string, class keyClass, level int) int {
	if i == len(w.s) || level > maxLevels {
		return -1
	}
	ofSchema := false
	if class != notSecret {
		end := skipJSON(w.s, i)
		if end < 0 {
			return -1
		}
		goes, schema := verdict(class, w.s[i:end])
		note := Candidate{Start: i, End: end, Label: key, Kind: "value under a key", Secret: goes}
		if w.nested > 0 {
			note.Start, note.End = w.at.lo, w.at.hi
		}
		w.r.trace.note(note)
		if goes {
			w.edits = append(w.edits, finding{i, end, quotedMarker})
			return end
		}
		ofSchema = schema
	}
	switch w.s[i] {
	case '{', '[':
		return jsonscan.Container(w.s, i, func(k jsonscan.Key, at int) int {
			if w.s[i] == '{' {
				return w.member(w.s[k.From+1:k.To-1], at, ofSchema, level)
			} else if w.s[at] != '"' {
				return w.any(at, key, notSecret, level+1)
			}
			return w.any(at, key, class, level+1)
		})
	case '"':
		end := jsonscan.String(w.s, i)
		if end >= 0 {
			w.str(key, i+1, end-1)
		}
		return end
	}
	return skipJSON(w.s, i)
}

// member reads the value at i of a key; of a schema under the name of a secret, what may be a value of it goes.
func (w *walker) member(key string, i int, ofSchema bool, level int) int {
	if strings.IndexByte(key, '\\') >= 0 {
		key = unescape(key)
	}
	class := w.r.classify(key)
	if ofSchema && lists["schemaValues"][key] {
		class = secret
	}
	return w.any(i, key, class, level+1)
}

// str redacts the string w.s[start:end] without its quotes: what is under keys of JSON in it, and what the walker's
// text finds.
func (w *walker) str(key string, start, end int) {
	plain := w.s[start:end]
	if w.text == nil && (!holdsJSON(plain) || !w.r.suspect(plain)) {
		return
	}
	if strings.IndexByte(plain, '\\') >= 0 {
		plain = unescape(plain)
	}
	var out string
	if w.text != nil {
		out = w.text(key, plain, w.nested+1)
	} else {
		inner := walker{r: w.r, s: plain, nested: w.nested + 1, at: w.at}
		if w.nested == 0 {
			inner.at = span{start, end}
		}
		out, _ = inner.redacted(notSecret)
	}
	if out != plain {
		w.edits = append(w.edits, finding{start, end, escape(out)})
	}
}

// verdict reports whether a value goes that is under a key which names a secret, and whether it is a JSON Schema, of
// which only what may be a value of it goes.
func verdict(class keyClass, raw string) (goes, schema bool) {
	switch raw[0] {
	case 'n', 't', 'f': // null, true and false, as in "password": true of a form
		return false, false
	case '"':
		return !spared(class, raw[1:len(raw)-1]), false
	case '{', '[':
		if class <= weak || jsonscan.Space(raw, 1) == len(raw)-1 || class == countable && !holdsString(raw) {
			return false, false // is empty, or has numbers only
		}
		schema = raw[0] == '{' && isSchema(raw)
		return !schema, schema
	}
	return class > countable, false
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
		case key == "type" || key == "$ref" || strings.HasSuffix(key, "Of"):
			typed = true
		}
		return end
	})
	return typed && end >= 0
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
