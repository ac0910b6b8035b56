package acplog

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"time"

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

var (
	tooDeep = encode(fmt.Sprintf("!ERROR: nested deeper than %d", maxDepth))
	tooMany = encode(fmt.Sprintf("!ERROR: more than %d attributes", maxAttrs))
)

// object is a JSON object under construction: of raw JSON, and of objects that groups are. Of two members of
// a name the later one takes precedence, except for two groups, which are one.
type object map[string]any

// below returns the object under a name.
func (o object) below(name string) object {
	group, ok := o[name].(object)
	if !ok {
		group = make(object)
		o[name] = group
	}
	return group
}

// put stores an attribute below its groups. A group without a name is laid open, an
// empty one is left out, as slog has it. left is how many more attributes
// it may have.
func (o object) put(groups []string, a slog.Attr, depth int, left *int) {
	switch *left--; {
	case *left == 0:
		a.Value = slog.AnyValue(tooMany)
	case *left < 0:
		return
	}
	v := a.Value.Resolve()
	isGroup := v.Kind() == slog.KindGroup
	if isGroup && len(v.Group()) == 0 || a.Key == "" && v.Kind() == slog.KindAny && v.Any() == nil {
		return
	}
	for _, g := range groups {
		o = o.below(g)
	}
	switch {
	case !isGroup:
		o[a.Key] = value(v)
		return
	case depth >= maxDepth:
		o[a.Key] = tooDeep
		return
	case a.Key != "":
		o = o.below(a.Key)
	}
	for _, inner := range v.Group() {
		o.put(nil, inner, depth+1, left)
	}
}

// value is a value in JSON, as slog's own handler for JSON has it, but that a duration
// is a text, and so is what has a String method and none for an encoding. Integers are
// exact.
func value(v slog.Value) (out json.RawMessage) {
	defer func() {
		// As in slog: a nil pointer whose method does not expect one is "<nil>".
		if r := recover(); r != nil {
			if p := reflect.ValueOf(v.Any()); p.Kind() == reflect.Pointer && p.IsNil() {
				out = encode("<nil>")
			} else {
				out = encode("!PANIC: " + spans.Printed(r))
			}
		}
	}()
	x := v.Any()
	switch x := x.(type) {
	case string:
		return encode(x)
	case time.Time:
		return encode(x.Format(time.RFC3339Nano))
	case float64:
		if x-x != 0 { // infinite, or no number
			return encode(fmt.Sprint(x))
		}
	case json.Marshaler, encoding.TextMarshaler, json.Number:
	case error:
		return encode(x.Error())
	case fmt.Stringer:
		return encode(x.String())
	}
	if fits, values := spans.Fits(x, 2*maxDepth, maxNodes); !fits {
		if values > maxNodes {
			return encode(fmt.Sprintf("!ERROR: more than %d values", maxNodes))
		}
		return tooDeep
	}
	raw, err := json.Marshal(x)
	switch {
	case err != nil:
		return encode("!ERROR:" + err.Error())
	case jsonscan.NestsDeeper(raw, maxDepth): // a method may write what it likes
		return tooDeep
	}
	return raw
}

// encode returns the JSON of what always has one.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return bytes.TrimSpace(b.Bytes())
}
