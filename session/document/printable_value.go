package document

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Object splits a JSON object into its keys and values, in the order in which
// they stand.
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

// Value is the text of a JSON value for a reader: a string is its text, an object a line per
// key with longer texts indented below it, anything else compact JSON. In the place of a file is
// its type and size.
func Value(raw json.RawMessage) string {
	raw, _ = TakeMedia(raw)
	return valueAt(raw, 0)
}

// deepest is how deep values are laid out: what is nested deeper is compact
// JSON, which also keeps the work in proportion to the value.
const deepest = 8

func valueAt(raw json.RawMessage, depth int) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return ""
	}
	switch raw[0] {
	case '"':
		var s string
		if json.Unmarshal(raw, &s) == nil {
			return s
		}
	case '{':
		if depth == deepest {
			break
		}
		keys, values, ok := Object(raw)
		if !ok || len(keys) == 0 {
			break
		}
		var b strings.Builder
		for i, key := range keys {
			if i > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(key)
			b.WriteByte(':')
			text := strings.TrimRight(valueAt(values[i], depth+1), "\n")
			if text == "" {
				text = `""`
			}
			if !strings.Contains(text, "\n") && (values[i][0] != '{' || len(text) == 2) {
				b.WriteByte(' ')
				b.WriteString(text)
				continue
			}
			b.WriteString("\n  ")
			b.WriteString(strings.ReplaceAll(text, "\n", "\n  "))
		}
		return b.String()
	case '[':
		if depth < deepest {
			return arrayText(raw, depth)
		}
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
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
	var b strings.Builder
	for i, item := range items {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString("- ")
		b.WriteString(strings.ReplaceAll(strings.TrimRight(valueAt(item, depth+1), "\n"), "\n", "\n  "))
	}
	return b.String()
}
