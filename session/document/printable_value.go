package document

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
)

// Object splits a JSON object into its keys and values, in the order in which they stand.
func Object(raw []byte) (keys []string, values []json.RawMessage, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, false
	}
	for d.More() {
		t, err := d.Token()
		key, isKey := t.(string)
		if err != nil || !isKey {
			return nil, nil, false
		}
		var v json.RawMessage
		if d.Decode(&v) != nil {
			return nil, nil, false
		}
		keys, values = append(keys, key), append(values, v)
	}
	return keys, values, true
}

// assemble makes an object of what [Object] has split or, without keys, an array.
func assemble(keys []string, values []json.RawMessage) json.RawMessage {
	ends := "[]"
	if keys != nil {
		ends = "{}"
	}
	b := []byte{ends[0]}
	for i, value := range values {
		if i > 0 {
			b = append(b, ',')
		}
		if keys != nil {
			b = append(append(b, quoted(keys[i])...), ':')
		}
		b = append(b, value...)
	}
	return append(b, ends[1])
}

// Value is the text of a JSON value for a reader: a string is its text, an object a line per key with longer texts
// indented below it, anything else compact JSON. In the place of a file is its type and size.
func Value(raw json.RawMessage) string {
	raw, _ = TakeMedia(raw)
	return valueAt(raw, 0)
}

// deepest is how deep values are laid out: what is nested deeper is compact
// JSON, which also keeps the work in proportion to the value.
const deepest = 8

func valueAt(raw json.RawMessage, depth int) string {
	raw = bytes.TrimSpace(raw)
	var text string
	switch {
	case len(raw) == 0:
		return ""
	case raw[0] == '"' && json.Unmarshal(raw, &text) == nil:
		return text
	case raw[0] == '{' && depth < deepest:
		if keys, values, ok := Object(raw); ok && len(keys) > 0 {
			return objectText(keys, values, depth)
		}
	case raw[0] == '[' && depth < deepest:
		return arrayText(raw, depth)
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

func objectText(keys []string, values []json.RawMessage, depth int) string {
	lines := make([]string, len(keys))
	for i, value := range values {
		between, text := " ", cmp.Or(strings.TrimRight(valueAt(value, depth+1), "\n"), `""`)
		if strings.Contains(text, "\n") || value[0] == '{' && len(text) != 2 {
			between, text = "\n  ", strings.ReplaceAll(text, "\n", "\n  ")
		}
		lines[i] = keys[i] + ":" + between + text
	}
	return strings.Join(lines, "\n")
}

// arrayText is compact where the array is short and flat, and otherwise a list.
func arrayText(raw json.RawMessage, depth int) string {
	var items []json.RawMessage
	var compact bytes.Buffer
	if json.Unmarshal(raw, &items) != nil || json.Compact(&compact, raw) != nil {
		return string(raw)
	}
	if compact.Len() <= 60 {
		return compact.String()
	}
	lines := make([]string, len(items))
	for i, item := range items {
		lines[i] = "- " + strings.ReplaceAll(strings.TrimRight(valueAt(item, depth+1), "\n"), "\n", "\n  ")
	}
	return strings.Join(lines, "\n")
}
