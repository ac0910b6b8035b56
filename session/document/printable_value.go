package document

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/session"
)

// Object splits a JSON object into its keys and values, in the order in which they stand.
func Object(raw []byte) (keys []string, values []json.RawMessage, ok bool) {
	const levels = 1000
	ok = jsonscan.Object(raw, levels, func(key string, value json.RawMessage) {
		keys, values = append(keys, key), append(values, value)
	})
	if !ok {
		return nil, nil, false
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

// Media is a file that a JSON value holds in base64, such as an image that a tool returned.
type Media struct{ Type, Data string }

// String is what is shown in its place: its media type and its size.
func (m Media) String() string {
	size := base64.StdEncoding.DecodedLen(len(m.Data)) - strings.Count(m.Data[max(0, len(m.Data)-2):], "=")
	return "[" + OneLine(m.Type) + ", " + Bytes(int64(size)) + "]"
}

// URL is its data: URL.
func (m Media) URL() string { return "data:" + m.Type + ";base64," + m.Data }

// imageTypes are those of pictures that any browser and model shows.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// IsImage reports whether it is a picture that can be shown.
func (m Media) IsImage() bool { return slices.Contains(imageTypes, m.Type) }

// MediaOf reads a data: URL with a file in base64.
func MediaOf(url string) (m Media, ok bool) {
	head, data, ok := strings.Cut(url, ",")
	head, isData := strings.CutPrefix(head, "data:")
	mediaType, isBase64 := strings.CutSuffix(head, ";base64")
	if !ok || !isData || !isBase64 || !isBase64Text(data) {
		return Media{}, false
	}
	mediaType, _, _ = strings.Cut(mediaType, ";")
	return Media{mediaType, data}, true
}

func isBase64Text(data string) bool {
	const least = 16 // what is shorter is read as fast as what would be shown in its place
	if len(data) < least {
		return false
	}
	_, err := base64.StdEncoding.DecodeString(data)
	return err == nil
}

// The keys under which the APIs of models, MCP and agents have a file's type and its content in base64.
var (
	mediaTypeKeys = []string{"mimeType", "mime_type", "mediaType", "media_type"}
	mediaDataKeys = []string{"data", "blob", "bytes", "base64"}
)

// TakeMedia returns a JSON value with a text in the place of each file in it, and the files in their order. Of a
// content block that is a file, such as {"type":"image","source":{…}}, the text is in the block's place.
func TakeMedia(raw json.RawMessage) (json.RawMessage, []Media) {
	if !bytes.Contains(raw, []byte(";base64,")) && !slices.ContainsFunc(mediaTypeKeys, func(key string) bool {
		return bytes.Contains(raw, []byte(`"`+key+`"`))
	}) {
		return raw, nil
	}
	var found []Media
	out, _ := takeMedia(bytes.TrimSpace(raw), 0, &found)
	if len(found) == 0 {
		return raw, nil
	}
	return out, found
}

// besides are keys that a content block with a file may have, as well as mediaTypeKeys.
var besides = append([]string{"type", "detail", "cache_control", "id", "filename"}, mediaTypeKeys...)

// takeMedia is TakeMedia of a value at a depth. whole reports that all of the value is a file.
func takeMedia(raw json.RawMessage, depth int, found *[]Media) (out json.RawMessage, whole bool) {
	if len(raw) == 0 || depth == deepest {
		return raw, false
	}
	// take adds a file to those found; in its place is a text.
	take := func(m Media) (json.RawMessage, bool) {
		*found = append(*found, m)
		return quoted(m.String()), true
	}
	var keys []string
	var values []json.RawMessage
	ok := false
	switch raw[0] {
	case '"':
		var s string
		if bytes.HasPrefix(raw, []byte(`"data:`)) && json.Unmarshal(raw, &s) == nil {
			if m, ok := MediaOf(s); ok {
				return take(m)
			}
		}
	case '[':
		ok = json.Unmarshal(raw, &values) == nil
	case '{':
		keys, values, ok = Object(raw)
		if m, is := mediaIn(keys, values); is && ok {
			return take(m)
		}
	}
	if !ok {
		return raw, false
	}
	before, files, others := len(*found), 0, 0
	var file json.RawMessage
	for i := range values {
		switch values[i], whole = takeMedia(values[i], depth+1, found); {
		case whole:
			files, file = files+1, values[i]
		case keys == nil || !slices.Contains(besides, keys[i]):
			others++
		}
	}
	switch {
	case keys != nil && files == 1 && others == 0:
		return file, true
	case len(*found) == before:
		return raw, false
	}
	return assemble(keys, values), false
}

// mediaIn is the file that an object has the type and the content of.
func mediaIn(keys []string, values []json.RawMessage) (m Media, ok bool) {
	text := func(names []string, accept func(string) bool) string {
		for i, key := range keys {
			var s string
			if slices.Contains(names, key) && json.Unmarshal(values[i], &s) == nil && accept(s) {
				return s
			}
		}
		return ""
	}
	m.Type = text(mediaTypeKeys, func(s string) bool { return strings.Contains(s, "/") })
	m.Data = text(mediaDataKeys, isBase64Text)
	return m, m.Type != "" && m.Data != ""
}

func quoted(s string) json.RawMessage {
	raw, _ := json.Marshal(s) // a string always encodes
	return raw
}

// subjects are the keys of an input that state what a call is about, in the order in which they are preferred.
var subjects = []string{
	"command", "cmd", "path", "file_path", "filePath", "filename", "pattern", "query", "url", "description", "prompt",
	"name", "title", "q",
}

// Subject finds what a call is about and what is left of the input besides.
func Subject(input json.RawMessage) (string, json.RawMessage) {
	if len(input) == 0 || string(input) == "null" {
		return "", nil
	}
	keys, values, ok := Object(input)
	if !ok {
		text := Value(input)
		if strings.Contains(strings.TrimSpace(text), "\n") {
			return text, input
		}
		return text, nil
	}
	for _, want := range subjects {
		at := slices.Index(keys, want)
		if at < 0 {
			continue
		}
		var text string
		if json.Unmarshal(values[at], &text) != nil || strings.TrimSpace(text) == "" {
			continue
		}
		switch {
		case strings.Contains(strings.TrimSpace(text), "\n"):
			return text, input
		case len(keys) == 1:
			return text, nil
		}
		return text, assemble(slices.Delete(keys, at, at+1), slices.Delete(values, at, at+1))
	}
	if len(keys) == 1 {
		if text := Value(values[0]); !strings.Contains(text, "\n") {
			return keys[0] + ": " + text, nil
		}
	}
	return "", input
}

// Outcome names for a viewer: what one word reports of a call.
const (
	OutcomeOK     = "ok"
	OutcomeFailed = "failed"
	OutcomeDenied = "denied"
	OutcomeLost   = "lost"
	OutcomeOpen   = "open"
)

// Outcome is what became of the call, in one word.
func (c *ToolCall) Outcome() string {
	switch {
	case c.Stub:
		return OutcomeLost
	case c.Denied:
		return OutcomeDenied
	case c.State == session.StateOutputAvailable:
		return OutcomeOK
	case c.State == session.StateOutputError:
		return OutcomeFailed
	}
	return OutcomeOpen
}

// Subject is what the call is about, such as its command or path, as far as its input shows it: "" where it does not.
func (c *ToolCall) Subject() string {
	what, _ := Subject(c.Input)
	return what
}

// EncodeJSON writes values as JSON, each on a line of its own, or indented. Of characters that HTML escapes none is.
func EncodeJSON[V any](w io.Writer, indent string, values ...V) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	for i := range values {
		if err := e.Encode(&values[i]); err != nil {
			return err
		}
	}
	return nil
}
