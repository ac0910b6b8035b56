package spans

import (
	"encoding/json"
	"slices"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
)

// A coder goes over the attributes of a span in the order in which they are sent, and either
// appends those that are set or decodes the one with its key. So each type describes its
// attributes once, in its visit method. The methods take the key of an attribute and its field.
// They are small enough to be inlined, because decoding calls all of them for each attribute.
type coder struct {
	dst []attribute.KeyValue

	decoding bool
	key      attribute.Key // empty when encoding
	v        Value
	known    bool // the key is one of those
	err      error
}

// Append appends the attributes of r to dst and returns it. Unset fields append nothing.
func Append(dst []attribute.KeyValue, r SpanData) []attribute.KeyValue {
	c := coder{dst: dst}
	r.visit(&c)
	return c.dst
}

// Set decodes one attribute. known is false if r does not use the key. An error reports a value
// that does not fit; the field stays unset.
func Set(r SpanData, key string, v Value) (known bool, err error) {
	c := coder{decoding: true, key: attribute.Key(key), v: v}
	r.visit(&c)
	return c.known, c.err
}

func (c *coder) add(kv attribute.KeyValue) { c.dst = append(c.dst, kv) }

// read stores the value, if it is of the right type.
func read[T any](c *coder, dst *T, get func(Value) (T, error)) {
	v, err := get(c.v)
	if c.known, c.err = true, err; err == nil {
		*dst = v
	}
}

func readPointer[T any](c *coder, dst **T, get func(Value) (T, error)) {
	v, err := get(c.v)
	if c.known, c.err = true, err; err == nil {
		*dst = &v
	}
}

// text is a string that is sent unless it is empty, required one that is always sent.
func (c *coder) text(key attribute.Key, s *string) {
	if c.key == key || !c.decoding && *s != "" {
		c.required(key, s)
	}
}

func (c *coder) required(key attribute.Key, s *string) {
	if c.key == key {
		read(c, s, Value.text)
	} else if !c.decoding {
		c.add(key.String(*s))
	}
}

// fallback is another key of a string, which is not sent, and read where the string is empty.
func (c *coder) fallback(key attribute.Key, s *string) {
	if c.key != key {
		return
	}
	if c.known = true; *s == "" {
		read(c, s, Value.text)
	}
}

// copied is a fallback that is sent too.
func (c *coder) copied(key attribute.Key, s *string) {
	if c.fallback(key, s); !c.decoding && *s != "" {
		c.add(key.String(*s))
	}
}

// constant is an attribute that is always the same.
func (c *coder) constant(key attribute.Key, value attribute.Value) {
	if c.key == key {
		c.known = true
	} else if !c.decoding {
		c.add(attribute.KeyValue{Key: key, Value: value})
	}
}

// ignored are keys whose values are in other attributes.
func (c *coder) ignored(keys ...attribute.Key) { c.known = c.known || slices.Contains(keys, c.key) }

// total is a number that is always sent, count one that is sent unless it is 0, and number one that is
// sent unless it is nil.
func (c *coder) total(key attribute.Key, n *int64) {
	if c.key == key {
		read(c, n, Value.integer)
	} else if !c.decoding {
		c.add(key.Int64(*n))
	}
}

func (c *coder) count(key attribute.Key, n *int64) {
	if c.key == key || !c.decoding && *n != 0 {
		c.total(key, n)
	}
}

func (c *coder) number(key attribute.Key, n **int64) {
	if c.key == key {
		readPointer(c, n, Value.integer)
	} else if !c.decoding && *n != nil {
		c.add(key.Int64(**n))
	}
}

func (c *coder) double(key attribute.Key, f **float64) {
	if c.key == key {
		readPointer(c, f, Value.double)
	} else if !c.decoding && *f != nil {
		c.add(key.Float64(**f))
	}
}

// flag is always sent, mark if it is true.
func (c *coder) flag(key attribute.Key, b *bool) {
	if c.key == key {
		read(c, b, Value.boolean)
	} else if !c.decoding {
		c.add(key.Bool(*b))
	}
}

func (c *coder) mark(key attribute.Key, b *bool) {
	if c.key == key || !c.decoding && *b {
		c.flag(key, b)
	}
}

// json is JSON text that begins with open.
func (c *coder) json(key attribute.Key, raw *json.RawMessage, open byte) {
	if c.key == key {
		c.known, c.err = true, setJSON(raw, c.v, open)
	} else if !c.decoding && len(*raw) > 0 {
		c.add(key.String(string(*raw)))
	}
}

// strings is a list that is sent unless it is empty.
func (c *coder) strings(key attribute.Key, list *[]string) {
	if c.key == key {
		read(c, list, Value.strings)
	} else if !c.decoding && len(*list) > 0 {
		c.add(key.StringSlice(*list))
	}
}

// parts are parts of a message, each a JSON text. It returns how many are damaged.
func (c *coder) parts(key attribute.Key, parts *[]Part) (damaged int) {
	if c.key == key {
		c.known = true
		damaged, c.err = setParts(parts, c.v)
	} else if !c.decoding && len(*parts) > 0 {
		all := make([]string, len(*parts))
		for i := range *parts {
			p := &(*parts)[i]
			all[i] = string(p.AppendJSON(make([]byte, 0, len(p.Data)+384)))
		}
		c.add(key.StringSlice(all))
	}
	return damaged
}

// finishReasons is the stop reason as the GenAI conventions have it: the last of a list. One that is
// known is not replaced if keep is set.
func (c *coder) finishReasons(reason *string, keep bool) {
	var list []string
	if *reason != "" && !c.decoding {
		list = []string{*reason}
	}
	c.strings(semconv.GenAIResponseFinishReasonsKey, &list)
	if c.decoding && len(list) > 0 && (*reason == "" || !keep) {
		*reason = list[len(list)-1]
	}
}
