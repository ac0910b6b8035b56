package agenttrace

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
)

// omitFiles returns a tool's output with a note in the place of each file in it: its media type, its size and the
// SHA-256 of its content. The output is JSON, or text that may be JSON. Files are data URLs, also within a text, and
// base64 beside a media type or a format, as the APIs of Anthropic, OpenAI, Google, AWS and MCP have them.
func omitFiles(text string) string {
	if strings.Contains(text, ";base64,") {
		text = dataURL().ReplaceAllStringFunc(text, func(u string) string {
			header, content, _ := strings.Cut(strings.ReplaceAll(u, `\/`, "/"), ",")
			media, _, _ := strings.Cut(strings.TrimPrefix(header, "data:"), ";")
			return cmp.Or(note(cmp.Or(media, "text/plain"), content), u)
		})
	}
	begin := strings.TrimLeft(text, " \t\r\n")
	if begin == "" || begin[0] != '{' && begin[0] != '[' ||
		!slices.ContainsFunc(contentEnds, func(key string) bool { return strings.Contains(text, key+`"`) }) {
		return text
	}
	var value any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&value); err != nil || strings.TrimSpace(text[d.InputOffset():]) != "" || !omitIn(value, "", nil) {
		return text
	}
	return encodeJSON(value)
}

// dataURL matches the data URLs in a text or in JSON, which may escape slashes.
var dataURL = lazy.Regexp(
	`data:(?:[\w.+-]+\\?/[\w.+-]+)?(?:;[\w.+-]+=[\w.+-]+)*;base64,(?:[A-Za-z0-9+/_-]|\\/)+={0,2}`)

// contentEnds are how keys end whose values are content, contentKeys are whole ones by plainKey.
var (
	contentEnds = []string{"data", "Data", "bytes", "Bytes", "blob", "Blob", "base64", "Base64", "b64_json"}
	contentKeys = []string{"data", "bytes", "blob", "filedata", "base64", "b64json"}
)

// place is an object or a list in a JSON value.
type place struct {
	up      *place
	key     string            // in the object that has it
	members map[string]string // the texts of an object, by their keys
}

// omitIn puts notes in the place of the files in a value, and reports whether it has any.
func omitIn(value any, key string, up *place) (changed bool) {
	switch v := value.(type) {
	case []any:
		for _, e := range v {
			changed = omitIn(e, "", &place{up: up, key: key}) || changed
		}
	case map[string]any:
		p := &place{up, key, make(map[string]string)}
		for k, m := range v {
			if text, ok := m.(string); ok {
				p.members[plainKey(k)] = text
			}
		}
		for k, m := range v {
			if text, ok := m.(string); !ok {
				changed = omitIn(m, plainKey(k), p) || changed
			} else if slices.Contains(contentKeys, plainKey(k)) {
				if n := note(p.mediaType(plainKey(k)), text); n != "" {
					v[k], changed = n, true
				}
			}
		}
	}
	return changed
}

var spelling = strings.NewReplacer("_", "", "-", "")

// plainKey returns a key without what its spellings differ in.
func plainKey(key string) string { return strings.ToLower(spelling.Replace(key)) }

// mediaType returns what the objects around a text, which is under a key, state about it, or "".
func (p *place) mediaType(key string) string {
	for n := 0; p != nil && n < 3; p, n = p.up, n+1 {
		format, kind, family := p.members["format"], p.members["type"], ""
		for _, name := range [...]string{"image", "audio", "video"} {
			if strings.Contains(kind, name) || strings.Contains(p.key, name) {
				family = name
			}
		}
		media := cmp.Or(p.members["mimetype"], p.members["mediatype"], p.members["contenttype"])
		switch {
		case media != "":
			return media
		case family != "" && format != "":
			return family + "/" + format
		case format != "" && (p.key == "document" || kind == "document"):
			return "application/" + format
		case family != "":
			return family + "/*"
		}
	}
	switch key {
	case "blob", "filedata":
		return "application/octet-stream"
	case "b64json":
		return "image/*"
	}
	return ""
}

// note describes a file by its content in base64. It is "" if that is not what the content is.
func note(media, content string) string {
	if media == "" || strings.HasPrefix(media, "text/") && len(content) < 256 {
		return "" // a word can look like base64
	}
	content = strings.TrimRight(content, "=")
	encoding := base64.RawStdEncoding
	if strings.ContainsAny(content, "-_") {
		encoding = base64.RawURLEncoding
	}
	decoded, err := encoding.DecodeString(content)
	if err != nil || len(decoded) == 0 {
		return ""
	}
	return fmt.Sprintf("[%s, %d bytes, sha256 %x; files are not stored]", media, len(decoded), sha256.Sum256(decoded))
}
