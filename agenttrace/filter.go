package agenttrace

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// Redactor takes secrets out of content before it leaves the process. [*redact.Redactor] is one.
//
// Both methods get the kind of content and the key that it is under, "" where there is none. They must be safe for
// concurrent use and must not call back. A Redactor that panics takes the whole value out.
type Redactor interface {
	// Apply returns the text as it may be sent, in valid UTF-8.
	Apply(kind redact.Content, key, text string) (string, redact.Result)
	// ApplyJSON returns the JSON value as it may be sent, and it is JSON then too.
	// It must neither change nor keep raw, which may be returned.
	ApplyJSON(kind redact.Content, key string, raw []byte) ([]byte, redact.Result)
}

var _ Redactor = (*redact.Redactor)(nil)

// withheld replaces what a redactor that failed may have left in.
const withheld = redact.Marker

// filter is what everything passes that goes to a span or an event: secrets go out, then what is too long is cut.
type filter struct {
	redactor Redactor         // nil changes nothing
	cutter   *redact.Redactor // cuts and redacts nothing; nil is no limit
	limit    int
	panics   *atomic.Int64 // of the redactor
}

// defaultMaxPartBytes is far beyond what a person reads, and keeps a batch of spans below what receivers take.
const defaultMaxPartBytes = 1 << 20

func newFilter(o Options) filter {
	f := filter{panics: new(atomic.Int64)}
	switch {
	case o.DisableRedaction:
	case o.Redact != nil:
		f.redactor = o.Redact
	default:
		f.redactor = builtin()
	}
	if limit := cmp.Or(o.MaxPartBytes, defaultMaxPartBytes); limit > 0 {
		f.limit = max(limit, redact.MinLimit)
		// The limit is in range and nothing else is configured that may be wrong.
		f.cutter, _ = redact.New(redact.Config{DisableKeys: true, DisablePatterns: true, MaxBytes: f.limit})
	}
	return f
}

// text returns s as it may be sent.
func (f *filter) text(kind redact.Content, key, s string) string {
	s, _ = f.apply(kind, key, s, false)
	return s
}

// pattern is text for the pattern of a permission rule, which repeats the input of a tool unless it is all wildcards.
func (f *filter) pattern(s string) string {
	if strings.Trim(s, "*") == "" {
		return f.text(redact.Other, "", s)
	}
	return f.text(redact.ToolInput, "", s)
}

// json returns JSON text as it may be sent.
func (f *filter) json(kind redact.Content, key, s string) string {
	s, _ = f.apply(kind, key, s, true)
	return s
}

// apply takes the secrets out of a text or a JSON value.
func (f *filter) apply(kind redact.Content, key, s string, isJSON bool) (out string, res redact.Result) {
	if f.redactor == nil || s == "" {
		return s, res
	}
	defer func() {
		if p := recover(); p != nil {
			f.failed(p)
			if out, res = withheld, (redact.Result{Redacted: true}); isJSON {
				out = emptied(s)
			}
		}
	}()
	if !isJSON {
		return f.redactor.Apply(kind, key, s)
	}
	b, res := f.redactor.ApplyJSON(kind, key, []byte(s))
	if out = string(b); out != s && !jsonscan.Valid(out) {
		out = quote(out)
	}
	return out, res
}

// failed reports that the redactor panicked: the first time, the second, the fourth and so on.
func (f *filter) failed(p any) {
	if n := f.panics.Add(1); bits.OnesCount64(uint64(n)) == 1 {
		otel.Handle(fmt.Errorf("redact: panic: %s", spans.Printed(p)))
	}
}

// emptied returns what replaces a JSON value that must not be sent: an object for an object, an array for an array.
func emptied(s string) string {
	switch s = strings.TrimLeft(s, " \t\r\n"); {
	case strings.HasPrefix(s, "{"):
		return `{"` + withheld + `":true}`
	case strings.HasPrefix(s, "["):
		return "[]"
	}
	return `"` + withheld + `"`
}

// raw is json for an object or an array that may be absent, and stays one.
func (f *filter) raw(kind redact.Content, key string, v json.RawMessage) json.RawMessage {
	if len(v) == 0 || f.redactor == nil {
		return v
	}
	out := f.json(kind, key, string(v))
	if out[:1] != string(v[:1]) {
		out = emptied(string(v))
	}
	return json.RawMessage(out)
}

// content is text for the text of a part, which has a limit.
func (f *filter) content(kind redact.Content, s string) string {
	s, _ = f.bounded(kind, s, false)
	return s
}

// value is content for a value: JSON, or text that becomes a JSON string. cut describes the whole of what
// was cut here or by the redactor, nil when nothing was.
func (f *filter) value(kind redact.Content, s string, isText bool) (out string, cut *Truncated) {
	if s, cut = f.bounded(kind, s, !isText); isText {
		s = quote(s)
	}
	return s, cut
}

// bounded takes out secrets, and cuts what is then too long.
func (f *filter) bounded(kind redact.Content, s string, isJSON bool) (out string, cut *Truncated) {
	if kind == redact.ToolOutput {
		s = omitFiles(s)
	}
	clean := func(s string) (string, redact.Result) { return f.apply(kind, "", s, isJSON) }
	if f.redactor == nil {
		clean = nil
	}
	out, res := f.cutter.Bound(s, isJSON, clean)
	if res.Truncated {
		cut = &Truncated{Size: int64(res.Size), SHA256: res.SHA256}
	}
	return out, cut
}

// settled returns the head of a text that grows which what comes next cannot change: what follows it may be the
// beginning of a secret, or a secret whose name comes after it, the last bytes that of a rune.
func (f *filter) settled(s string) string {
	if f.redactor == nil {
		for i := 1; i <= utf8.UTFMax && i <= len(s); i++ {
			if b := s[len(s)-i]; utf8.RuneStart(b) {
				if !utf8.FullRuneInString(s[len(s)-i:]) {
					return s[:len(s)-i]
				}
				break
			}
		}
		return s
	}
	return s[:redact.Settled(s)]
}

// Content passes the filter where its kind is known: a prompt, an output. What is left are texts that identify
// things: ids, names of agents, models and tools, finish reasons. An agent may have put a secret there too, so a
// span's attributes pass here last.

// contents are the attributes that passed the filter before and may be long.
var contents = map[attribute.Key]bool{
	semconv.CompactionSummaryKey: true, semconv.ErrorKey: true, semconv.GenAIToolCallArgumentsKey: true,
	semconv.GenAIToolCallResultKey: true, semconv.SystemPromptTextKey: true, semconv.ToolCatalogJSONKey: true,
	semconv.SessionMetadataKey: true, semconv.UserMessageMetadataKey: true, semconv.GenAIInputMessagesKey: true,
	semconv.GenAIOutputMessagesKey: true, semconv.GenAISystemInstructionsKey: true,
	semconv.GenAIToolDefinitionsKey: true, semconv.AssistantMessageMetadataKey: true,
	semconv.MessageMetadataKey: true, semconv.SessionPermissionsKey: true, semconv.UsageRawKey: true,
}

// attributes redacts in place what identifies, and makes every text valid UTF-8.
func (f *filter) attributes(kvs []attribute.KeyValue) []attribute.KeyValue {
	for i := range kvs {
		kv := &kvs[i]
		switch kv.Value.Type() {
		case attribute.STRING:
			s := kv.Value.AsString()
			out := validUTF8(s)
			if !contents[kv.Key] {
				out = f.id(out)
			}
			if out != s {
				kv.Value = attribute.StringValue(out)
			}
		case attribute.STRINGSLICE:
			// Parts are JSON, and were redacted when they were made.
			before := kv.Value.AsStringSlice()
			all := before
			if f.redactor != nil && len(all) > 0 && !strings.HasPrefix(all[0], "{") {
				all = f.builtin().List(all) // one may name what the next one is
			}
			all = slices.Clone(all)
			for k, s := range all {
				if all[k] = validUTF8(s); !strings.HasPrefix(s, "{") {
					all[k] = f.id(all[k])
				}
			}
			if !slices.Equal(all, before) {
				kv.Value = attribute.StringSliceValue(all)
			}
		}
	}
	return kvs
}

// id returns an identifier as it may be sent. The session store makes the same of it. An
// agent's own Redactor is for content: identifiers go by package redact then.
func (f *filter) id(s string) string {
	if f.redactor == nil || s == "" {
		return s
	}
	return f.builtin().Identifier(s)
}

// builtin is the Redactor of package redact: the agent's own, or the default one.
func (f *filter) builtin() *redact.Redactor {
	if r, ok := f.redactor.(*redact.Redactor); ok {
		return r
	}
	return builtin()
}

var builtin = sync.OnceValue(func() *redact.Redactor {
	r, err := redact.New(redact.Config{})
	if err != nil {
		panic("the default configuration of package redact is not valid: " + err.Error())
	}
	return r
})

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
