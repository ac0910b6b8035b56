package document

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
)

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
