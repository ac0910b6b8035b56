package redact

import (
	"cmp"
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

// whole redacts a value in JSON that stands under a key of class.
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

// any reads a value that stands under key, which is of class.
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
		switch judge(class, w.s[start:end]) {
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
		return w.array(key, level)
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

// judge says what becomes of a value under a key that names a secret.
func judge(class keyClass, raw string) verdict {
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
	"type": true, "description": true, "title": true, "default": true, "enum": true, "const": true, "examples": true, "example": true, "format": true,
	"minLength": true, "maxLength": true, "pattern": true, "minimum": true, "maximum": true, "nullable": true, "items": true, "properties": true,
	"required": true, "additionalProperties": true, "anyOf": true, "oneOf": true, "allOf": true, "$ref": true, "deprecated": true, "readOnly": true,
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
		if end-start > 2 && w.s[start] == '"' {
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
			p.close(w)
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
}

// see notes the string at start under key.
func (p *namedValue) see(w *walker, key string, start, end int) {
	if len(w.r.keys) == 0 {
		return
	}
	if prefix, ok := nameWords[key]; ok && p.class == notSecret && end-start < maxKey {
		p.class, p.prefix = w.r.classify(w.s[start+1:end-1]), prefix
	} else if len(key) >= 5 && key[len(key)-4:] == "alue" {
		p.value, p.label = span{start, end}, key
	}
}

// close redacts the value where the name promises a secret.
func (p *namedValue) close(w *walker) {
	if p.class == notSecret || p.label == "" || !strings.EqualFold(p.label, p.prefix+"value") {
		return
	}
	v := w.s[p.value.lo+1 : p.value.hi-1]
	if strings.IndexByte(v, '\\') >= 0 {
		v = unescape(v)
	}
	a := assignment{class: p.class}
	if spared(p.class, v) || placeholder(v) || has(stopWords, v) || a.refused(v) || p.class == countable && !looksRandom(v) || label(w.r, v) {
		return
	}
	w.replace(p.value.lo, p.value.hi, quotedMarker)
}

// key returns a key without its escapes, and redacts a secret that stands in it.
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

func (w *walker) array(key string, level int) (int, bool) {
	w.i++
	if w.i = skipSpace(w.s, w.i); w.i < len(w.s) && w.s[w.i] == ']' {
		w.i++
		return w.i, true
	}
	var command argv
	for n := 0; ; n++ {
		w.i = skipSpace(w.s, w.i)
		start := w.i
		if start < len(w.s) && w.s[start] == '"' && len(w.r.keys) > 0 {
			end := skipString(w.s, start)
			if end < 0 {
				return 0, false
			}
			element := w.s[start+1 : end-1]
			if strings.IndexByte(element, '\\') >= 0 {
				element = unescape(element)
			}
			if lo, hi := command.next(w.r, element, n == 0); hi > lo {
				w.replace(start+1, end-1, escape(element[:lo]+Marker+element[hi:]))
			} else {
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
			return w.i, true
		default:
			return 0, false
		}
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

// skipJSON returns the end of the value at i, or -1 when there is none.
func skipJSON(s string, i int) int { return skipLevel(s, i, 0) }

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

func skipLevel(s string, i, level int) int {
	if i >= len(s) || level > maxLevels {
		return -1
	}
	switch c := s[i]; {
	case c == '"':
		return skipString(s, i)
	case c == '{' || c == '[':
		i = skipSpace(s, i+1)
		if i < len(s) && s[i] == c+2 {
			return i + 1
		}
		for {
			i = skipSpace(s, i)
			if c == '{' {
				if i = skipString(s, i); i < 0 {
					return -1
				}
				if i = skipSpace(s, i); i == len(s) || s[i] != ':' {
					return -1
				}
				i = skipSpace(s, i+1)
			}
			if i = skipLevel(s, i, level+1); i < 0 {
				return -1
			}
			if i = skipSpace(s, i); i == len(s) {
				return -1
			}
			switch s[i] {
			case ',':
				i++
			case c + 2:
				return i + 1
			default:
				return -1
			}
		}
	case c == '-' || class[c]&digit != 0:
		return skipNumber(s, i)
	}
	for _, name := range [...]string{"true", "false", "null"} {
		if strings.HasPrefix(s[i:], name) {
			return i + len(name)
		}
	}
	return -1
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
