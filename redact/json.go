package redact

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
	"unsafe"
)

const (
	// maxNested is how many levels of JSON in strings of JSON are read as JSON; what
	// is deeper is searched as text.
	maxNested = 8
	// maxLevels is how deep arrays and objects may nest to be read at all.
	maxLevels = 1000
)

const quotedMarker = `"` + Marker + `"`

// document redacts s if it is JSON, as it stands: only what is replaced changes.
func (r *Redactor) document(s string, nested int) (string, bool) {
	w := walker{r: r, s: s, nested: nested}
	end, ok := w.any("", notSecret, 0)
	if !ok || skipSpace(s, end) != len(s) {
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
	s := string(raw)
	w := walker{r: r, s: s}
	end, ok := w.any("", class, 0)
	if !ok || skipSpace(s, end) != len(s) {
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
	i      int
	nested int
	edits  []edit
	mixed  bool // the edits are in no order, and some lie within others
}

// edit is what stands instead of a piece of JSON.
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

// any reads a value that is under key, which is of class.
func (w *walker) any(key string, class keyClass, level int) (end int, ok bool) {
	w.i = skipSpace(w.s, w.i)
	if w.i == len(w.s) || level > maxLevels {
		return 0, false
	}
	start := w.i
	if class != notSecret {
		end := skipJSON(w.s, start)
		if end < 0 {
			return 0, false
		}
		switch verdictOf(class, w.s[start:end]) {
		case goes:
			w.replace(start, end, quotedMarker)
			w.i = end
			return end, true
		case schema:
			return w.object("", level, true)
		}
	}
	switch w.s[start] {
	case '{':
		return w.object(key, level, false)
	case '[':
		return w.array(key, class, level)
	case '"':
		end := skipString(w.s, start)
		if end < 0 {
			return 0, false
		}
		w.str(key, start, end)
		w.i = end
		return end, true
	}
	end = skipJSON(w.s, start)
	w.i = end
	return end, end >= 0
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
	case 'n', 't', 'f':
		return stays
	case '"':
		if spared(class, raw[1:len(raw)-1]) {
			return stays
		}
	case '{', '[':
		if class <= weak {
			return stays
		}
		if body := strings.Trim(raw[1:len(raw)-1], " \t\r\n"); body == "" {
			return stays
		}
		if class == countable && !strings.Contains(withoutKeys(raw), `"`) {
			return stays // numbers only
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

// withoutKeys returns a text that has a quote only if raw has a string that is no key.
func withoutKeys(raw string) string {
	for i := 0; i < len(raw); i++ {
		if raw[i] == '"' {
			i = skipString(raw, i) - 1
			if next := skipSpace(raw, i+1); next == len(raw) || raw[next] != ':' {
				return `"`
			}
		}
	}
	return ""
}

// schemaWords are the keywords of a JSON Schema for a parameter. A value under a key
// that names a secret is one when it has only these and says a type.
var schemaWords = map[string]bool{
	"type": true, "description": true, "title": true, "default": true, "enum": true, "const": true, "examples": true,
	"example": true, "format": true,
	"minLength": true, "maxLength": true, "pattern": true, "minimum": true, "maximum": true, "nullable": true,
	"items": true, "properties": true,
	"required": true, "additionalProperties": true, "anyOf": true, "oneOf": true, "allOf": true, "$ref": true,
	"deprecated": true, "readOnly": true,
	"writeOnly": true, "x-secret": true, "$comment": true, "minItems": true, "maxItems": true, "uniqueItems": true,
}

// schemaValues are the keywords whose values may be secrets.
var schemaValues = map[string]bool{"default": true, "enum": true, "const": true, "examples": true, "example": true}

func isSchema(raw string) bool {
	typed := false
	i := skipSpace(raw, 1)
	for i < len(raw) && raw[i] == '"' {
		end := skipString(raw, i)
		key := raw[i+1 : end-1]
		if !schemaWords[key] {
			return false
		}
		i = skipSpace(raw, skipSpace(raw, end)+1)
		end = skipJSON(raw, i)
		switch value := raw[i:end]; key {
		case "type":
			if value[0] == '"' {
				switch value[1 : len(value)-1] {
				case "string", "number", "integer", "boolean", "object", "array", "null":
				default:
					return false
				}
			} else if value[0] != '[' {
				return false
			}
			typed = true
		case "anyOf", "oneOf", "allOf":
			typed = typed || value[0] == '['
		case "$ref":
			typed = typed || value[0] == '"'
		}
		i = skipSpace(raw, end)
		if i < len(raw) && raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
	return typed
}

// object reads an object; of a schema under the name of a secret, what may be a value
// of it goes.
func (w *walker) object(under string, level int, ofSchema bool) (int, bool) {
	begin := w.i
	w.i++
	if w.i = skipSpace(w.s, w.i); w.i < len(w.s) && w.s[w.i] == '}' {
		w.i++
		return w.i, true
	}
	var p namedValue
	for {
		w.i = skipSpace(w.s, w.i)
		start := w.i
		end := skipString(w.s, start)
		if end < 0 {
			return 0, false
		}
		key, class := w.key(start, end)
		w.i = skipSpace(w.s, end)
		if w.i == len(w.s) || w.s[w.i] != ':' {
			return 0, false
		}
		w.i++
		if ofSchema && schemaValues[key] {
			class = secret
		}
		w.i = skipSpace(w.s, w.i)
		start = w.i
		end, ok := w.any(key, class, level+1)
		if !ok {
			return 0, false
		}
		if end-start > 2 {
			p.see(w, key, start, end)
		}
		w.i = skipSpace(w.s, w.i)
		if w.i == len(w.s) {
			return 0, false
		}
		switch w.s[w.i] {
		case ',':
			w.i++
		case '}':
			w.i++
			p.close(w, begin)
			return w.i, true
		default:
			return 0, false
		}
	}
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
	} else if len(key) >= 5 && key[len(key)-4:] == "alue" || p.label == "" && (key == "text" || key == "content") {
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
	if p.jwk {
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
	for i = skipSpace(w.s, i+1); i < len(w.s) && w.s[i] == '"'; i = skipSpace(w.s, i) {
		end := skipString(w.s, i)
		key := w.s[i+1 : end-1]
		i = skipSpace(w.s, skipSpace(w.s, end)+1)
		end = skipJSON(w.s, i)
		if end < 0 {
			return
		}
		if w.s[i] == '"' && end-i > 2 && of(key) && !marked(w.s[i+1:end-1]) {
			w.replace(i, end, quotedMarker)
		}
		if i = skipSpace(w.s, end); i == len(w.s) || w.s[i] != ',' {
			return
		}
		i++
	}
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

func (w *walker) array(key string, class keyClass, level int) (int, bool) {
	w.i++
	if w.i = skipSpace(w.s, w.i); w.i < len(w.s) && w.s[w.i] == ']' {
		w.i++
		return w.i, true
	}
	var list argv
	for {
		w.i = skipSpace(w.s, w.i)
		start := w.i
		if start < len(w.s) && w.s[start] == '"' && len(w.r.keys) > 0 {
			end := skipString(w.s, start)
			if end < 0 {
				return 0, false
			}
			if !list.see(w, start, end) && (class == notSecret || !w.under(class, start, end)) {
				w.str(key, start, end)
			}
			w.i = end
		} else if _, ok := w.any(key, notSecret, level+1); !ok {
			return 0, false
		}
		w.i = skipSpace(w.s, w.i)
		if w.i == len(w.s) {
			return 0, false
		}
		switch w.s[w.i] {
		case ',':
			w.i++
		case ']':
			w.i++
			list.close(w)
			return w.i, true
		default:
			return 0, false
		}
	}
}

// under redacts a string that is an element of the array under a key of class.
func (w *walker) under(class keyClass, start, end int) bool {
	if verdictOf(class, w.s[start:end]) != goes {
		return false
	}
	w.replace(start, end, quotedMarker)
	return true
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
	case l.seen < len(l.first):
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
	if name := strings.TrimLeft(body, "-"); len(name) < len(body) && len(name) >= 3 && !strings.ContainsAny(name, "= :") {
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

func skipSpace(s string, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\n' || s[i] == '\t' || s[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the end of the string at i, or -1.
func skipString(s string, i int) int {
	if i >= len(s) || s[i] != '"' {
		return -1
	}
	for i++; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			i++
			if i == len(s) {
				return -1
			}
			switch s[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if i+4 >= len(s) || hex4(s[i+1:i+5]) < 0 {
					return -1
				}
				i += 4
			default:
				return -1
			}
		case c < ' ':
			return -1
		}
	}
	return -1
}

func hex4(s string) rune {
	var v rune
	for i := range 4 {
		c := s[i]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		v = v<<4 | rune(c)
	}
	return v
}

// skipJSON returns the end of the value at i, below 0 when there is none.
func skipJSON(s string, i int) int { return skipLevel(s, i, 0) }

// embedded redacts the arrays and objects of JSON within a text, as a line of a log or of
// JSON Lines has them.
func (r *Redactor) embedded(s string, nested int) string {
	var edits walker
	spent := 0 // on what turned out to be no JSON
	object, array := nextByte(s, 0, '{'), nextByte(s, 0, '[')
	for i := min(object, array); i < len(s) && spent <= len(s)/2+4096; i = min(object, array) {
		next := skipSpace(s, i+1)
		end := -1
		if next < len(s) && strings.IndexByte(`"{[`, s[next]) >= 0 {
			if end = skipJSON(s, i); end < 0 {
				spent += ^end - i
			}
		}
		after := max(end, i+1)
		if object < after {
			object = nextByte(s, after, '{')
		}
		if array < after {
			array = nextByte(s, after, '[')
		}
		if end < 0 {
			continue
		}
		if part := s[i:end]; r.suspect(part) {
			if out, ok := r.document(part, nested); ok && out != part {
				edits.replace(i, end, out)
			}
		}
	}
	if len(edits.edits) == 0 {
		return s
	}
	edits.s = s
	return string(edits.written())
}

// nextByte returns where c is next in s at or after i, or the length of s.
func nextByte(s string, i int, c byte) int {
	if k := strings.IndexByte(s[i:], c); k >= 0 {
		return i + k
	}
	return len(s)
}

// truncatedJSON reports whether the value at i is JSON up to the end of s, where it
// breaks off. What is long is taken for it unread.
func truncatedJSON(s string, i int) bool {
	s = s[:min(len(s), i+16<<10)]
	for depth := 0; i < len(s); {
		switch c := s[i]; c {
		case '"':
			end := skipString(s, i)
			if end < 0 {
				return !strings.ContainsAny(s[i:], "\n\r")
			}
			i = end
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return false
			}
		case ':', ',', ' ', '\t', '\n', '\r', '.', '-', '+':
		default:
			if class[c]&alnum == 0 {
				return false
			}
		}
		i++
	}
	return true
}

// skipLevel is skipJSON for a value nested level deep; where there is none, it returns
// the complement of where it broke off.
func skipLevel(s string, i, level int) int {
	if i >= len(s) || level > maxLevels {
		return ^i
	}
	end := -1
	switch c := s[i]; {
	case c == '"':
		end = skipString(s, i)
	case c == '{' || c == '[':
		return skipContainer(s, i, level)
	case c == '-' || class[c]&digit != 0:
		end = skipNumber(s, i)
	default:
		for _, name := range [...]string{"true", "false", "null"} {
			if strings.HasPrefix(s[i:], name) {
				end = i + len(name)
			}
		}
	}
	if end < 0 {
		return ^i
	}
	return end
}

func skipContainer(s string, i, level int) int {
	c := s[i]
	i = skipSpace(s, i+1)
	if i < len(s) && s[i] == c+2 {
		return i + 1
	}
	for {
		i = skipSpace(s, i)
		if c == '{' {
			end := skipString(s, i)
			if end < 0 {
				return ^i
			}
			if i = skipSpace(s, end); i == len(s) || s[i] != ':' {
				return ^i
			}
			i = skipSpace(s, i+1)
		}
		if i = skipLevel(s, i, level+1); i < 0 {
			return i
		}
		if i = skipSpace(s, i); i == len(s) {
			return ^i
		}
		switch s[i] {
		case ',':
			i++
		case c + 2:
			return i + 1
		default:
			return ^i
		}
	}
}

func skipNumber(s string, i int) int {
	if s[i] == '-' {
		i++
	}
	whole := i
	if i = run(s, i, digit); i == whole || i-whole > 1 && s[whole] == '0' {
		return -1
	}
	if i < len(s) && s[i] == '.' {
		end := run(s, i+1, digit)
		if end == i+1 {
			return -1
		}
		i = end
	}
	if i < len(s) && s[i]|0x20 == 'e' {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		end := run(s, i, digit)
		if end == i {
			return -1
		}
		i = end
	}
	return i
}

// unescape returns the bytes that the body of a JSON string means. Half a surrogate
// pair becomes the three bytes it would have in UTF-8, which escape turns back.
func unescape(s string) string {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c != '\\' {
			out = append(out, c)
			continue
		}
		i++
		switch s[i] {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			v := hex4(s[i+1 : i+5])
			i += 4
			if v >= 0xd800 && v < 0xdc00 && i+6 < len(s) && s[i+1] == '\\' && s[i+2] == 'u' {
				if low := hex4(s[i+3 : i+7]); low >= 0xdc00 && low < 0xe000 {
					v = 0x10000 + (v-0xd800)<<10 + low - 0xdc00
					i += 6
				}
			}
			if v >= 0xd800 && v < 0xe000 {
				out = append(out, 0xe0|byte(v>>12), 0x80|byte(v>>6)&0xbf, 0x80|byte(v)&0xbf)
			} else {
				out = utf8.AppendRune(out, v)
			}
		default:
			out = append(out, s[i])
		}
	}
	return string(out)
}

// escape returns s as the body of a JSON string.
func escape(s string) string {
	const hexDigits = "0123456789abcdef"
	out := make([]byte, 0, len(s)+16)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c == '\n':
			out = append(out, `\n`...)
		case c == '\r':
			out = append(out, `\r`...)
		case c == '\t':
			out = append(out, `\t`...)
		case c < ' ':
			out = append(out, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c == 0xed && i+2 < len(s) && s[i+1] >= 0xa0 && s[i+1] < 0xc0 && s[i+2] >= 0x80 && s[i+2] < 0xc0:
			v := rune(c&15)<<12 | rune(s[i+1]&0x3f)<<6 | rune(s[i+2]&0x3f)
			out = append(out, '\\', 'u', hexDigits[v>>12], hexDigits[v>>8&15], hexDigits[v>>4&15], hexDigits[v&15])
			i += 2
		default:
			out = append(out, c)
		}
	}
	return string(out)
}
