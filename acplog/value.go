package acplog

import (
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"time"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/spans"
)

// A value that is logged is the program's own, and most are logged where something has
// gone wrong already. So none may end the program, whatever its methods do and whatever
// it points to. A panic can be recovered from, but a stack that overflows cannot: values
// are measured before they are encoded.

// Limits of a value. What encoding/json encodes recurses once or more for each level.
const (
	// maxDepth is how deep a value, and how deep groups, may nest.
	maxDepth = 100
	// maxNodes is how many values a value may hold.
	maxNodes = 1 << 20
	// maxAttrs is how many attributes a group may hold, with those in groups below it:
	// the method of a value may return groups without end.
	maxAttrs = 1 << 14
)

// object is a JSON object under construction, its members in order. Of two members of
// a name the later one takes precedence, except for two groups, which are one.
type object struct {
	members []*member
	byName  map[string]*member
}

type member struct {
	name  string
	value json.RawMessage
	group *object // instead of value
}

// put stores an attribute below its groups. A group without a name is laid open, an
// empty one is left out, as slog has it. left is how many more attributes
// it may have.
func (o *object) put(groups []string, a slog.Attr, depth int, left *int) {
	switch *left--; {
	case *left == 0:
		a.Value = slog.AnyValue(tooMany)
	case *left < 0:
		return
	}
	v := a.Value.Resolve()
	if a.Key == "" && v.Kind() == slog.KindAny && v.Any() == nil {
		return
	}
	if v.Kind() == slog.KindGroup && len(v.Group()) == 0 {
		return
	}
	for _, g := range groups {
		o = o.below(g)
	}
	switch {
	case v.Kind() != slog.KindGroup:
		o.set(a.Key, value(v))
		return
	case depth >= maxDepth:
		o.set(a.Key, tooDeep)
		return
	case a.Key != "":
		o = o.below(a.Key)
	}
	for _, inner := range v.Group() {
		o.put(nil, inner, depth+1, left)
	}
}

// member returns the member of that name, and adds it if there is none.
func (o *object) member(name string) *member {
	m := o.byName[name]
	if m == nil {
		if o.byName == nil {
			o.byName = make(map[string]*member)
		}
		m = &member{name: name}
		o.byName[name], o.members = m, append(o.members, m)
	}
	return m
}

func (o *object) set(name string, value json.RawMessage) {
	m := o.member(name)
	m.value, m.group = value, nil
}

// below returns the object under a name.
func (o *object) below(name string) *object {
	m := o.member(name)
	if m.group == nil {
		m.value, m.group = nil, new(object)
	}
	return m.group
}

func (o *object) appendTo(b []byte) []byte {
	b = append(b, '{')
	for i, m := range o.members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(jsonscan.AppendString(b, m.name), ':')
		if m.group != nil {
			b = m.group.appendTo(b)
		} else {
			b = append(b, m.value...)
		}
	}
	return append(b, '}')
}

var (
	tooDeep = json.RawMessage(fmt.Sprintf(`"!ERROR: nested deeper than %d"`, maxDepth))
	tooMany = json.RawMessage(fmt.Sprintf(`"!ERROR: more than %d attributes"`, maxAttrs))
)

// value is a value in JSON, as slog's own handler for JSON has it, but that a duration
// is a text, and so is what has a String method and none for an encoding. Integers are
// exact.
func value(v slog.Value) (out json.RawMessage) {
	defer func() {
		// As in slog: a nil pointer whose method does not expect one is "<nil>".
		if r := recover(); r != nil {
			if p := reflect.ValueOf(v.Any()); p.Kind() == reflect.Pointer && p.IsNil() {
				out = text("<nil>")
			} else {
				out = text("!PANIC: " + spans.Printed(r))
			}
		}
	}()
	switch v.Kind() {
	case slog.KindString:
		return text(v.String())
	case slog.KindDuration:
		return text(v.Duration().String())
	case slog.KindTime:
		return text(v.Time().Format(time.RFC3339Nano))
	case slog.KindFloat64:
		f := v.Float64()
		if f-f != 0 { // infinite, or no number
			return text(fmt.Sprint(f))
		}
	case slog.KindAny:
		x := v.Any()
		switch x := x.(type) {
		case json.Marshaler, encoding.TextMarshaler, json.Number:
		case error:
			return text(x.Error())
		case fmt.Stringer:
			return text(x.String())
		}
		if e := (spans.Extent{MaxLevels: 2 * maxDepth, MaxValues: maxNodes}); !e.Fits(x) {
			if e.Values > maxNodes {
				return text(fmt.Sprintf("!ERROR: more than %d values", maxNodes))
			}
			return tooDeep
		}
	}
	raw, err := json.Marshal(v.Any())
	switch {
	case err != nil:
		return text("!ERROR:" + err.Error())
	case jsonscan.NestsDeeper(raw, maxDepth): // a method may write what it likes
		return tooDeep
	}
	return raw
}

func text(s string) json.RawMessage {
	if !utf8.ValidString(s) {
		s = string([]rune(s)) // each byte that is not UTF-8 becomes U+FFFD
	}
	return jsonscan.AppendString(nil, s)
}
