package ingest

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/spans"
)

// maxIdentifier is how long an identifier is at most, in bytes. It is stored in every row
// that refers to it.
const maxIdentifier = 16 << 10

// identifier returns an identifier without secrets. One that is too long keeps its
// beginning, and a digest that still distinguishes it.
func (x *redaction) identifier(s string) string {
	if minted(s) {
		return s
	}
	out := x.Identifier(s)
	if out != s {
		x.redacted++
	}
	if len(out) > maxIdentifier {
		x.truncated++
		// The digest is of what is redacted, so that it confirms no guess.
		out = strings.ToValidUTF8(out[:maxIdentifier/2], "") + "…sha256-" + sha256Hex(out)
	}
	return out
}

// The bytes of words, of ids as the SDK mints them, and of hexadecimal digests.
var (
	wordBytes = byteSet("abcdefghijklmnopqrstuvwxyz-_")
	idBytes   = byteSet("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
	hexBytes  = byteSet("0123456789abcdef")
)

func byteSet(chars string) (set [256]bool) {
	for i := range len(chars) {
		set[chars[i]] = true
	}
	return set
}

// minted reports whether s has a shape in which nothing is found: an id as the SDK mints
// them, a short word of lower-case letters, or the hex of a trace, a span or a digest.
func minted(s string) bool {
	var set *[256]bool
	switch n := len(s); {
	case n <= 12:
		set = &wordBytes
	case n == 16 || n == 32 || n == 64:
		set = &hexBytes
	case n == 30 && (s[:4] == spans.PrefixSession || s[:4] == spans.PrefixMessage || s[:4] == spans.PrefixPart ||
		s[:4] == spans.PrefixPermission):
		s, set = s[4:], &idBytes
	default:
		return false
	}
	for i := range len(s) {
		if !set[s[i]] {
			return false
		}
	}
	return true
}

// partType redacts the type of a part, which may end in the name of a tool.
func (x *redaction) partType(s *string) {
	if name, ok := strings.CutPrefix(*s, "tool-"); ok {
		if out := x.identifier(name); out != name {
			*s = "tool-" + out
		}
		return
	}
	x.id(s)
}

// ids redacts every string in a value in JSON as an identifier, and every name.
func (x *redaction) ids(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || raw[0] != '"' && !x.rows && x.clean(raw) {
		return raw
	}
	out, ok := x.eachString(raw, x.idString)
	if !ok || !jsonscan.IsValue(raw, maxScanned) && !json.Valid(raw) {
		x.json(redact.Other, "", &out)
	}
	return out
}

// idString redacts a string in JSON as an identifier.
func (x *redaction) idString(raw json.RawMessage) json.RawMessage {
	s, ok := unquoted(raw)
	if !ok {
		x.json(redact.Other, "", &raw)
		return raw
	}
	before := s
	if x.partType(&s); s == before {
		return raw
	}
	return jsonscan.AppendString(nil, s)
}

// words redacts every name and every string of one word in a value in JSON as an
// identifier: what a program's own metadata holds of ids repeats those of the rows.
func (x *redaction) words(raw json.RawMessage) json.RawMessage {
	const long = 256
	out, _ := x.eachString(raw, func(raw json.RawMessage) json.RawMessage {
		if len(raw) > long {
			return raw
		}
		if s, ok := unquoted(raw); !ok || strings.ContainsAny(s, " \t\r\n") {
			return raw
		}
		return x.idString(raw)
	})
	return out
}

// eachString writes a value in JSON again, each of its strings as f leaves it and each name
// redacted as an identifier. It is not ok for what is neither a string nor holds any.
func (x *redaction) eachString(raw json.RawMessage, f func(json.RawMessage) json.RawMessage) (json.RawMessage, bool) {
	if len(raw) == 0 || strings.IndexByte(`"{[`, raw[0]) < 0 {
		return raw, false
	}
	if raw[0] == '"' {
		return f(raw), true
	}
	return eachMember(raw, func(m *member) {
		x.id(&m.name)
		m.value, _ = x.eachString(m.value, f)
	}), true
}

// identifiers redacts every string in a struct as an identifier. What was redacted as
// something else does not change.
func (x *redaction) identifiers(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if out := x.identifier(v.String()); out != v.String() {
			v.SetString(out)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			x.identifiers(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			x.identifiers(v.Field(i))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				x.identifiers(v.Index(i))
			}
		}
	}
}

// model redacts the names of a model.
func (x *redaction) model(m *session.Model) {
	if m != nil {
		x.id(&m.ProviderID, &m.ModelID, &m.Variant)
	}
}
