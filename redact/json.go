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

// walker goes over JSON once, checks it, and writes what it replaces. It looks at keys alone: strings are searched as
// texts afterwards, when the walker is done with the document that they are in. So {"password": 12345} is found here,
// where a text would have no string to replace, and {"cmd": "curl -u bob:SECRET"} is found there.
type walker struct {
	r      *Redactor
	s      string
	nested int
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
	return written(w.s, w.edits), true
}

// any reads the value at i that is under key, which is of class, and returns its end, below 0 where there is none.
func (w *walker) any(i int, key string, class keyClass, level int) int {
	if i == len(w.s) || level > maxLevels {
		return -1
	}
	// A tool's parameters are described by a JSON Schema: {"password": {"type": "string", "default": "SECRET"}}. What
	// the description says of the parameter stays, so that a reader sees which tools an agent had.
	ofSchema := false
	if class != notSecret {
		end := skipJSON(w.s, i)
		if end < 0 {
			return -1
		}
		ofSchema = w.s[i] == '{' && class > weak && isSchema(w.s[i:end])
		// What objects describe is looked for in them: {"SecretList": [{"Name": …}]}.
		described := strings.HasSuffix(key, "List") && w.s[i] == '[' && w.s[jsonscan.Space(w.s, i+1)] == '{'
		goes := !ofSchema && !described && !spares(class, w.s[i:end])
		if w.nested == 0 {
			w.r.trace.note(Candidate{Start: i, End: end, Label: key, Kind: "value under a key", Secret: goes})
		}
		if goes {
			w.edits = append(w.edits, finding{start: i, end: end, marker: quotedMarker})
			return end
		}
	}
	switch w.s[i] {
	case '{', '[':
		return jsonscan.Container(w.s, i, func(k jsonscan.Key, at int) int {
			// The strings of a list are under its key: {"passwords": ["SECRET", "SECRET"]}. The members of an object have
			// keys of their own.
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
	key = unescape(key)
	class := w.r.classify(key)
	if class == countable {
		if end := skipJSON(w.s, i); end > 0 && ofModel(w.s[end:]) {
			class = notSecret
		}
	}
	if ofSchema && lists["schemaValues"][key] {
		class = secret
	}
	return w.any(i, key, class, level+1)
}

// ofModel reports whether what follows a token says how likely a model took it to be:
// {"token": " Berlin", "logprob": -0.1}.
func ofModel(after string) bool {
	next := strings.TrimLeft(after[:min(len(after), 40)], "\", \r\n\t")
	return strings.HasPrefix(next, "logprob") || strings.HasPrefix(next, "logProb") || strings.HasPrefix(next, "tokenId")
}

// str redacts the string w.s[start:end] without its quotes: what is under keys of JSON in it, and what the walker's
// text finds.
func (w *walker) str(key string, start, end int) {
	plain := w.s[start:end]
	// Arguments of tools are JSON in a string of JSON: "{\"token\":\"SECRET\"}". Most strings are none, or hold nothing
	// that could be a label, and to know that is cheaper than to take their escapes off.
	if w.text == nil && (!holdsJSON(plain) || !w.r.suspect(plain)) {
		return
	}
	plain = unescape(plain)
	var out string
	if w.text != nil {
		out = w.text(key, plain, w.nested+1)
	} else {
		out, _ = w.r.document(plain, w.nested+1, nil)
	}
	if out != plain {
		w.edits = append(w.edits, finding{start: start, end: end, marker: escape(out)})
	}
}

// spares reports whether a value under a key of class has nothing secret: true and false, as in "password": true of a
// form, what is empty, numbers under a key of tokens, messages, and arrays and objects of these.
func spares(class keyClass, raw string) bool {
	switch raw[0] {
	case 'n', 't', 'f':
		return true
	case '"':
		return spared(class, unescape(raw[1:len(raw)-1]))
	case '{', '[':
		return class <= weak || jsonscan.Container(raw, 0, func(k jsonscan.Key, i int) int {
			if end := skipJSON(raw, i); end >= 0 &&
				(spares(class, raw[i:end]) || raw[0] == '{' && has("ofObjects", raw[k.From+1:k.To-1])) {
				return end
			}
			return -1
		}) >= 0
	}
	return class <= countable
}

// isSchema reports whether an object is a JSON Schema.
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
	if strings.IndexByte(s, '\\') < 0 {
		return s // most strings
	}
	out, _ := jsonscan.AppendUnescaped(make([]byte, 0, len(s)), s)
	return string(out)
}

// escape returns s as the body of a JSON string.
func escape(s string) string {
	quoted := jsonscan.AppendString(nil, s)
	return string(quoted[1 : len(quoted)-1])
}
