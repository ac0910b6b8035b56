package replay

import (
	"bytes"
	"reflect"
)

// object is a JSON object of a request, with its members in their order. What is nil or an empty text is left out.
type object []member

type member struct {
	name  string
	value any
}

// MarshalJSON implements [json.Marshaler].
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for _, m := range o {
		if v := reflect.ValueOf(m.value); !v.IsValid() || v.IsZero() && v.Kind() != reflect.Bool {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + m.name + `":`)
		if err := encodeJSON(&b, m.value, ""); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// add adds members.
func (o *object) add(name string, value any) { *o = append(*o, member{name, value}) }

// textObject is a piece of content that is text.
func textObject(kind, text string) object { return object{{"type", kind}, {"text", &text}} }

// toolsOf makes a tool of each that the model could call.
func (b *Bundle) toolsOf(tool func(t *Tool) object) (all []object) {
	for i := range b.Tools {
		all = append(all, tool(&b.Tools[i]))
	}
	return all
}
