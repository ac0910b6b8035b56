package agenttrace

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// omitFiles returns a tool's output with a note in the place of each file in it: its media type, its size and the
// SHA-256 of its content. The output is JSON, or text that may be JSON. Files are data URLs, also within a text, and
// base64 beside a media type or a format, as the APIs of Anthropic, OpenAI, Google, AWS and MCP have them.
func omitFiles(text string) string {
	if strings.Contains(text, ";base64,") {
		text = dataURL.ReplaceAllStringFunc(text, func(u string) string {
			header, content, _ := strings.Cut(strings.ReplaceAll(u, `\/`, "/"), ",")
			media, _, _ := strings.Cut(strings.TrimPrefix(header, "data:"), ";")
			return cmp.Or(note(cmp.Or(media, "text/plain"), content), u)
		})
	}
	if !slices.ContainsFunc(contentKeys, func(key string) bool { return strings.Contains(text, key+`"`) }) {
		return text
	}
	var out strings.Builder
	copied := 0
	for _, v := range encodedStrings(text) {
		if n := v.note(); n != "" {
			out.WriteString(text[copied:strings.LastIndexByte(text[:v.end-1], '"')]) // it has no quotes in it
			out.WriteString(quote(n))
			copied = v.end
		}
	}
	return out.String() + text[copied:]
}

// dataURL matches the data URLs in a text or in JSON, which may escape slashes.
var dataURL = regexp.MustCompile(
	`data:(?:[\w.+-]+\\?/[\w.+-]+)?(?:;[\w.+-]+=[\w.+-]+)*;base64,(?:[A-Za-z0-9+/_-]|\\/)+={0,2}`)

// contentKeys are how keys end whose values are content, isContentKey compares whole ones.
var contentKeys = []string{"data", "Data", "bytes", "Bytes", "blob", "Blob", "base64", "Base64", "b64_json"}

// frame is an object or a list that has been begun, and what it states about the files in it.
type frame struct {
	up                   *frame
	key                  string // in the object that has it
	media, format, kind  string
	isObject, wantsValue bool
	member               string // the key whose value comes next
}

// encodedString is a text that may be a file.
type encodedString struct {
	end       int
	key, text string
	in        *frame
}

// encodedStrings returns the texts of a JSON value that may be files, in their order.
func encodedStrings(text string) (found []encodedString) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var in *frame
	for {
		token, err := d.Token()
		if err != nil {
			return found // at the end; of what is no JSON, what was found until there
		}
		member := ""
		if in != nil && in.isObject {
			if key, isKey := token.(string); isKey && !in.wantsValue {
				in.member, in.wantsValue = key, true
				continue
			}
			member, in.wantsValue = in.member, false
		}
		switch t := token.(type) {
		case json.Delim:
			if t == '{' || t == '[' {
				in = &frame{up: in, key: member, isObject: t == '{'}
			} else if in = in.up; in == nil {
				return found
			}
		case string:
			key := strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(member))
			if in != nil {
				in.describe(key, t)
			}
			if isContentKey(key) {
				found = append(found, encodedString{int(d.InputOffset()), key, t, in})
			}
		}
	}
}

func isContentKey(key string) bool {
	switch key {
	case "data", "bytes", "blob", "filedata", "base64", "b64json":
		return true
	}
	return false
}

func (f *frame) describe(key, value string) {
	switch key {
	case "mimetype", "mediatype", "contenttype":
		f.media = value
	case "format":
		f.format = value
	case "type":
		f.kind = value
	}
}

// mediaType returns what the objects around a text state about it, or "".
func (f *frame) mediaType() string {
	for n := 0; f != nil && n < 3; f, n = f.up, n+1 {
		family := ""
		for _, name := range [...]string{"image", "audio", "video"} {
			if strings.Contains(f.kind, name) || strings.Contains(f.key, name) {
				family = name
			}
		}
		switch {
		case f.media != "":
			return f.media
		case family != "" && f.format != "":
			return family + "/" + f.format
		case f.format != "" && (f.key == "document" || f.kind == "document"):
			return "application/" + f.format
		case family != "":
			return family + "/*"
		}
	}
	return ""
}

// note describes the file that a text is, or is "".
func (v *encodedString) note() string {
	media := v.in.mediaType()
	if media == "" {
		media = map[string]string{
			"blob": "application/octet-stream", "filedata": "application/octet-stream", "b64json": "image/*",
		}[v.key]
	}
	return note(media, v.text)
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
