package redact

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"unsafe"

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

// document redacts s if it is JSON, as it is: only what is replaced changes.
func (r *Redactor) document(s string, nested int) (string, bool) {
	w := walker{r: r, s: s, nested: nested}
	if !w.all(notSecret) {
		return "", false
	}
	if len(w.edits) == 0 {
		return s, true
	}
	out := w.written()
	return unsafe.String(unsafe.SliceData(out), len(out)), true // it is not written to again
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
	return w.written()
}

// walker goes over JSON once, checks it, and writes what it replaces.
type walker struct {
	r      *Redactor
	s      string
	nested int
	edits  []edit
	mixed  bool // the edits are in no order, and some lie within others
}

// edit replaces a piece of JSON.
type edit struct {
	start, end int
	with       string
}

func (w *walker) replace(start, end int, with string) {
	if n := len(w.edits); n > 0 && start < w.edits[n-1].end {
		w.mixed = true
	}
	w.edits = append(w.edits, edit{start, end, with})
}

// written returns the JSON with its edits.
func (w *walker) written() []byte {
	if w.mixed {
		slices.SortFunc(w.edits, func(a, b edit) int { return cmp.Or(a.start-b.start, b.end-a.end) })
	}
	size := len(w.s)
	for _, e := range w.edits {
		size += max(0, len(e.with)-(e.end-e.start))
	}
	out, done := make([]byte, 0, size), 0
	for _, e := range w.edits {
		if e.start >= done {
			out = append(append(out, w.s[done:e.start]...), e.with...)
			done = e.end
		}
	}
	return append(out, w.s[done:]...)
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
		switch verdictOf(class, w.s[i:end]) {
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

// schemaWords are the keywords of a JSON Schema for a parameter. A value under a key
// that names a secret is one when it has only these and states a type.
var schemaWords = wordSet("type description title default enum const examples example format minLength maxLength " +
	"pattern minimum maximum nullable items properties required additionalProperties anyOf oneOf allOf $ref " +
	"deprecated readOnly writeOnly x-secret $comment minItems maxItems uniqueItems")

// schemaValues are the keywords whose values may be secrets.
var schemaValues = wordSet("default enum const examples example")

var schemaTypes = wordSet(`"string" "number" "integer" "boolean" "object" "array" "null"`)

func isSchema(raw string) bool {
	typed := false
	end := jsonscan.Container(raw, 0, func(k jsonscan.Key, i int) int {
		key, end := raw[k.From+1:k.To-1], skipJSON(raw, i)
		switch value := raw[i:end]; {
		case !schemaWords[key], key == "type" && value[0] != '[' && !schemaTypes[value]:
			return -1
		case key == "type", (key == "anyOf" || key == "oneOf" || key == "allOf") && value[0] == '[',
			key == "$ref" && value[0] == '"':
			typed = true
		}
		return end
	})
	return typed && end >= 0
}

// object reads the object at i; of a schema under the name of a secret, what may be a value
// of it goes.
func (w *walker) object(i, level int, ofSchema bool) int {
	var p namedValue
	end := jsonscan.Container(w.s, i, func(k jsonscan.Key, start int) int {
		key, class := w.key(k.From, k.To)
		if ofSchema && schemaValues[key] {
			class = secret
		}
		end := w.any(start, key, class, level+1)
		if end-start > 2 {
			p.see(w, key, start, end)
		}
		return end
	})
	if end >= 0 {
		p.close(w, i)
	}
	return end
}

// namedValue follows the members of an object that may be a name and its value.
type namedValue struct {
	class  keyClass
	prefix string
	value  span
	label  string
	data   []span // objects named data
	secret bool   // the object is a Secret of Kubernetes
	jwk    bool   // the object is a JSON Web Key
}

// see notes the string at start under key.
func (p *namedValue) see(w *walker, key string, start, end int) {
	if len(w.r.keys) == 0 {
		return
	}
	if w.s[start] != '"' {
		if w.s[start] == '{' && (key == "data" || key == "stringData") {
			p.data = append(p.data, span{start, end})
		}
		return
	}
	p.secret = p.secret || key == "kind" && w.s[start:end] == `"Secret"`
	p.jwk = p.jwk || key == "kty"
	if prefix, ok := nameWords[key]; ok && p.class == notSecret && end-start < maxKey {
		p.class, p.prefix = w.r.classify(w.s[start+1:end-1]), prefix
	} else if len(key) >= 5 && key[len(key)-4:] == "alue" || // value, or headerValue beside headerName
		p.label == "" && (key == "text" || key == "content") {
		p.value, p.label = span{start, end}, key
	}
}

// close redacts the value where the name promises a secret.
func (p *namedValue) close(w *walker, start int) {
	if p.secret {
		for _, d := range p.data {
			w.members(d.lo, func(string) bool { return true })
		}
	}
	if p.jwk { // its private members: the others are public, and identify the key
		w.members(start, func(key string) bool { return strings.Contains(" d p q dp dq qi k ", " "+key+" ") })
	}
	loose := p.label == "text" || p.label == "content"
	if p.class == notSecret || p.label == "" || !loose && !strings.EqualFold(p.label, p.prefix+"value") {
		return
	}
	v := w.s[p.value.lo+1 : p.value.hi-1]
	if strings.IndexByte(v, '\\') >= 0 {
		v = unescape(v)
	}
	a := assignment{class: p.class}
	if spared(p.class, v) || placeholder(v) || has(stopWords, v) || a.refused(v) || p.class == countable &&
		!looksRandom(v) || label(w.r, v) || loose && !made(v) {
		return
	}
	w.replace(p.value.lo, p.value.hi, quotedMarker)
}

// members redacts the strings of the object at i under the keys that of wants.
func (w *walker) members(i int, of func(key string) bool) {
	jsonscan.Container(w.s, i, func(k jsonscan.Key, i int) int {
		end := skipJSON(w.s, i)
		if end-i > 2 && w.s[i] == '"' && of(w.s[k.From+1:k.To-1]) && !marked(w.s[i+1:end-1]) {
			w.replace(i, end, quotedMarker)
		}
		return end
	})
}

// key returns a key without its escapes, and redacts a secret that is in it.
func (w *walker) key(start, end int) (string, keyClass) {
	body := w.s[start+1 : end-1]
	key := body
	if strings.IndexByte(body, '\\') >= 0 {
		key = unescape(body)
	}
	if len(key) >= 8 && w.r.suspect(key) {
		if clean := w.r.text(key); clean != key {
			w.replace(start+1, end-1, escape(clean))
		}
	}
	return key, w.r.classify(key)
}

func (w *walker) array(i int, key string, class keyClass, level int) int {
	var list argv
	end := jsonscan.Container(w.s, i, func(_ jsonscan.Key, start int) int {
		if w.s[start] != '"' || len(w.r.keys) == 0 {
			return w.any(start, key, notSecret, level+1)
		}
		end := jsonscan.String(w.s, start)
		switch {
		case end < 0 || list.see(w, start, end):
		case class != notSecret && verdictOf(class, w.s[start:end]) == goes:
			w.replace(start, end, quotedMarker)
		default:
			w.str(key, start, end)
		}
		return end
	})
	if end >= 0 {
		list.close(w)
	}
	return end
}

// argv follows the strings of an array that may be the words of a command.
type argv struct {
	first   [4]span
	seen    int
	spans   []span // all of them, of a command
	command bool   // one of the first is the name of a command with passwords
	secret  bool   // the flag before names a secret
}

// see notes the string at start, and redacts it where the flag before it reports so.
func (l *argv) see(w *walker, start, end int) bool {
	body := w.s[start+1 : end-1]
	switch {
	case l.command && l.seen < maxWords:
		l.spans = append(l.spans, span{start, end})
	case l.seen < len(l.first): // sudo, env or a shell may come before the name of the command
		l.first[l.seen] = span{start, end}
		if l.command = len(body) < 64 && toolsByName[path.Base(body)] != nil; l.command {
			l.spans = append(l.spans, l.first[:l.seen+1]...)
		}
	}
	l.seen++
	flagged := l.secret
	l.secret = false
	if flagged && body != "" && body[0] != '-' && !marked(body) && !placeholder(body) {
		w.replace(start, end, quotedMarker)
		return true
	}
	if name := strings.TrimLeft(body, "-"); len(name) < len(body) && len(name) >= 3 &&
		!strings.ContainsAny(name, "= :") {
		l.secret = w.r.classify(name) > keyed
	}
	return false
}

// close redacts what the command is given, now that all its words are known.
func (l *argv) close(w *walker) {
	if l.seen == 2 && !l.command { // ["x-api-key", "…"]
		name, value := l.first[0], l.first[1]
		v := w.s[value.lo+1 : value.hi-1]
		if w.r.classify(w.s[name.lo+1:name.hi-1]) > keyed && made(v) && !label(w.r, v) && !marked(v) {
			w.replace(value.lo, value.hi, quotedMarker)
		}
		return
	}
	if !l.command || len(l.spans) < 2 {
		return
	}
	plain := make([]string, len(l.spans))
	for i, e := range l.spans {
		if plain[i] = w.s[e.lo+1 : e.hi-1]; strings.IndexByte(plain[i], '\\') >= 0 {
			plain[i] = unescape(plain[i])
		}
	}
	found, in := w.r.inArray(plain)
	for i, f := range found {
		e, v := l.spans[in[i]], plain[in[i]]
		w.replace(e.lo+1, e.hi-1, escape(v[:f.start]+f.marker+v[f.end:]))
	}
}

// str redacts the string w.s[start:end], quotes included.
func (w *walker) str(key string, start, end int) {
	body := w.s[start+1 : end-1]
	escaped := strings.IndexByte(body, '\\') >= 0
	if w.r.fn == nil && !w.r.suspect(body) {
		return
	}
	plain := body
	if escaped {
		plain = unescape(body)
	}
	if out := w.r.value(key, plain, w.nested+1); out != plain {
		w.replace(start+1, end-1, escape(out))
	}
}
