package document

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/session"
)

// Line sanitizes s and makes one line of it, with single spaces.
func Line(s string) string { return strings.Join(strings.Fields(Sanitize(s)), " ") }

// Capital begins s with a capital.
func Capital(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return s
	}
	return string(unicode.ToUpper(first)) + s[size:]
}

// Join joins the facts that are not empty, with dots between them.
func Join(facts ...string) string { return strings.Join(Present(facts...), " · ") }

// Joined is the line that pieces make up.
func Joined(pieces []Piece) string {
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(p.Text)
	}
	return b.String()
}

// Present returns the texts that are not empty.
func Present(all ...string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == "" })
}

// Cost writes what something cost: as stated, or with a mark where any of it is an estimate; "" where nobody knows.
func Cost(stated, estimated *float64) string {
	switch {
	case estimated != nil:
		return "~" + Dollars(session.Deref(stated)+*estimated)
	case stated != nil:
		return Dollars(*stated)
	}
	return ""
}

// Spent is [Cost] of a sum, in which stated is 0 where nobody stated a cost.
func Spent(stated float64, estimated *float64) string {
	if stated == 0 {
		return Cost(nil, estimated)
	}
	return Cost(&stated, estimated)
}

// OptionalDuration is [Duration], or "" where nobody measured it.
func OptionalDuration(ms *int64) string {
	if ms == nil {
		return ""
	}
	return Duration(*ms)
}

// Tokens is the sum of a usage, or "" where nobody counted.
func Tokens(u *session.Usage) string {
	if u == nil {
		return ""
	}
	return Count(u.Total()) + " tokens"
}

// Buckets are the counts of a usage in the order in which tables have them, and their sum; zeros where nobody counted.
func Buckets(u *session.Usage) []int64 {
	u = cmp.Or(u, new(session.Usage))
	return []int64{u.Input, u.Output, u.Reasoning, u.CacheRead, u.CacheWrite, u.Total()}
}

// Tail is the last element of a path, which names a project.
func Tail(path string) string {
	path = strings.TrimRight(path, "/")
	return Line(path[strings.LastIndexByte(path, '/')+1:])
}

// Short is the head of a digest or id, long enough to distinguish it from others by eye.
func Short(digest string) string { return Head(digest, 12) }

// Head returns at most n bytes of s, whole characters.
func Head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Plural returns n with the word for one or for many.
func Plural(n int, one, many string) string {
	if n != 1 {
		one = many
	}
	return Count(int64(n)) + " " + one
}

// Turns writes numbers with runs joined: turns 1–3, 5.
func Turns(turns []int) string {
	var all []string
	for _, run := range runsOf(turns, func(a, b int) bool { return b == a+1 }) {
		text := strconv.Itoa(run[0])
		if n := len(run); n > 1 {
			text += "–" + strconv.Itoa(run[n-1])
		}
		all = append(all, text)
	}
	if len(turns) == 1 {
		return "turn " + all[0]
	}
	return "turns " + strings.Join(all, ", ")
}

// runsOf cuts a sequence into runs, in which each element goes on from the one before. They share its memory.
func runsOf[T any](all []T, goesOn func(before, next T) bool) (runs [][]T) {
	start := 0
	for i := range all {
		if i+1 == len(all) || !goesOn(all[i], all[i+1]) {
			runs, start = append(runs, all[start:i+1:i+1]), i+1
		}
	}
	return runs
}

// Unnamed stands for a tool whose name nobody sent.
const Unnamed = "(no name)"

// ModelName is short: the provider is in the head of the page.
func ModelName(m *session.Model) string {
	if m == nil {
		return ""
	}
	name := cmp.Or(m.ModelID, m.ProviderID)
	if m.Variant != "" {
		name += " " + m.Variant
	}
	return Sanitize(name)
}

// FullModelName is provider/model (variant).
func FullModelName(m *session.Model) string {
	if m == nil {
		return ""
	}
	name := strings.Join(Present(m.ProviderID, m.ModelID), "/")
	if m.Variant != "" {
		name += " (" + m.Variant + ")"
	}
	return Sanitize(name)
}

// tabWidth is how many cells a tab becomes. Content is indented, so real tab
// stops would not be where its author saw them.
const tabWidth = 4

// Sanitize makes text from outside fit for a terminal: no byte of the result can move the cursor, change a color or a
// title, or reorder what is beside it.
//
// Control characters become their visible picture (ESC is ␛), bidirectional controls and characters that cannot be
// seen, which hide instructions from a reader, become their code point (<U+202E>), a byte that is not UTF-8 becomes
// U+FFFD. Newlines stay, CR LF is a newline, a tab becomes spaces.
func Sanitize(s string) string {
	if isPlain(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\n':
			b.WriteByte('\n')
		case r == '\r' && i+1 < len(s) && s[i+1] == '\n':
		case r == '\t':
			b.WriteString("    "[:tabWidth])
		case r < ' ':
			b.WriteRune(0x2400 + r)
		case r == 0x7f:
			b.WriteRune('␡')
		case r == 0x2028 || r == 0x2029:
			b.WriteByte('\n')
		case r >= 0x80 && r < 0xa0, invisible(r):
			fmt.Fprintf(&b, "<U+%04X>", r)
		case r == utf8.RuneError && size == 1:
			b.WriteRune(utf8.RuneError)
		default:
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

func isPlain(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' && c != '\n' || c >= 0x7f {
			return false
		}
	}
	return true
}

// invisible is true of characters that reorder text or that no reader sees. The
// joiners that emoji and scripts need are not among them.
func invisible(r rune) bool {
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || // bidirectional, as are three of the single ones
		r >= 0x2060 && r <= 0x2064 || r >= 0xe0000 && r <= 0xe0fff || // tags, which spell text that nobody sees
		strings.ContainsRune("\u200e\u200f\u061c\u200b\ufeff\u180e\u115f\u1160\u3164", r)
}

// OneLine sanitizes s and takes its first line that is not blank, for places that have room for one.
func OneLine(s string) string {
	line := strings.TrimSpace(s)
	line, rest, more := strings.Cut(line, "\n")
	if more && strings.TrimSpace(rest) != "" {
		line = strings.TrimRight(line, " \r") + " …"
	}
	return Flat(line)
}

// Flat sanitizes s, with a space for each end of a line.
func Flat(s string) string { return strings.ReplaceAll(Sanitize(s), "\n", " ") }

// Count writes n with commas.
func Count(n int64) string { return humanize.Comma(n) }

// Brief writes n in at most five characters: 999, 1.2k, 34k, 5.6M.
func Brief(n int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if n < unit.size {
			continue
		}
		if v := float64(n) / float64(unit.size); v < 9.95 {
			return strconv.FormatFloat(v, 'f', 1, 64) + unit.name
		}
		return strconv.FormatInt((n+unit.size/2)/unit.size, 10) + unit.name
	}
	return strconv.FormatInt(n, 10)
}

// Bytes writes a number of bytes.
func Bytes(n int64) string {
	switch {
	case n < 1000:
		return strconv.FormatInt(n, 10) + " B"
	case n < 1e6:
		return strconv.FormatFloat(float64(n)/1e3, 'f', 1, 64) + " kB"
	}
	return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + " MB"
}

// Duration writes milliseconds in two units at most.
func Duration(ms int64) string {
	s := ms / 1000
	switch {
	case ms < 1000:
		return strconv.FormatInt(ms, 10) + "ms"
	case ms < 60_000:
		return strconv.FormatFloat(float64(ms/100)/10, 'f', 1, 64) + "s"
	case s < 3600:
		return fmt.Sprintf("%dm %02ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh %02dm", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%dd %02dh", s/86400, s%86400/3600)
}

// Dollars writes a cost with as many digits as it needs to differ from zero.
func Dollars(usd float64) string {
	if usd != 0 && usd < 0.1 && usd > -0.1 {
		return "$" + strconv.FormatFloat(usd, 'f', 4, 64)
	}
	return "$" + strconv.FormatFloat(usd, 'f', 2, 64)
}

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
	if mediaType, _, _ = strings.Cut(mediaType, ";"); !ok || !isData || !isBase64 || strings.ContainsAny(mediaType, " \n\"") {
		return Media{}, false
	}
	return mediaOf(mediaType, data)
}

// mediaOf is a file by its content, and its type where that is known: a picture has its own in its first bytes.
func mediaOf(mediaType, data string) (m Media, ok bool) {
	least := 16 // what is shorter is read as fast as what would be shown in its place
	for _, is := range signatures {
		if m := (Media{is[1], data}); strings.HasPrefix(data, is[0]) &&
			(is[1] != "image/webp" || len(data) > 16 && data[12:16] == "RUJQ") {
			if mediaType == "" {
				least *= 2
			}
			if !(Media{Type: mediaType}).IsImage() {
				mediaType = m.Type
			}
			// Some encoders write the alphabet of URLs, or no padding.
			data = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/", "\n", "", "\r", "").Replace(data), "=")
			data += strings.Repeat("=", -len(data)&3)
		}
	}
	if mediaType == "" || len(data) < least {
		return m, false
	}
	_, err := base64.StdEncoding.DecodeString(data)
	return Media{mediaType, data}, err == nil
}

// signatures are how pictures begin in base64, with their types.
var signatures = [][2]string{{"iVBORw0KGgo", "image/png"}, {"/9j/", "image/jpeg"}, {"_9j_", "image/jpeg"},
	{"R0lGOD", "image/gif"}, {"UklGR", "image/webp"}}

// The keys under which the APIs of models, MCP and agents have a file's type and its content in base64.
var (
	mediaTypeKeys = []string{"mimeType", "mime_type", "mediaType", "media_type"}
	mediaDataKeys = []string{"data", "blob", "bytes", "base64"}
)

// mayHaveMedia reports whether a JSON value may have a file in it, which may be escaped in a text.
func mayHaveMedia(raw json.RawMessage) bool {
	has := func(text string) bool { return bytes.Contains(raw, []byte(text)) }
	return has(";base64,") || has(`9j\/`) || slices.ContainsFunc(mediaTypeKeys, has) ||
		slices.ContainsFunc(signatures, func(is [2]string) bool { return has(is[0]) })
}

// TakeMedia returns a JSON value with a text in the place of each file in it, and the files in their order. Of a
// content block that is a file, such as {"type":"image","source":{…}}, the text is in the block's place.
func TakeMedia(raw json.RawMessage) (json.RawMessage, []Media) {
	if !mayHaveMedia(raw) {
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
var besides = append([]string{"type", "detail", "cache_control", "id", "filename", "format", "kind",
	"source_type"}, mediaTypeKeys...)

// takeMedia is TakeMedia of a value at a depth. whole reports that all of the value is a file.
func takeMedia(raw json.RawMessage, depth int, found *[]Media) (out json.RawMessage, whole bool) {
	if len(raw) == 0 || depth == deepest {
		return raw, false
	}
	var keys []string
	var values []json.RawMessage
	ok := false
	switch raw[0] {
	case '"':
		return takeText(raw, depth, found)
	case '[':
		ok = json.Unmarshal(raw, &values) == nil
	case '{':
		keys, values, ok = Object(raw)
		if m, is := mediaIn(keys, values); is && ok {
			*found = append(*found, m)
			return quoted(m.String()), true
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

// takeText is takeMedia of a text, which may be a file, JSON, or have data: URLs in it.
func takeText(raw json.RawMessage, depth int, found *[]Media) (out json.RawMessage, whole bool) {
	var s string
	if !mayHaveMedia(raw) || json.Unmarshal(raw, &s) != nil {
		return raw, false
	}
	m, is := MediaOf(s)
	if !is {
		m, is = mediaOf("", s)
	}
	before := len(*found)
	if is {
		*found = append(*found, m)
		return quoted(m.String()), true
	}
	if strings.HasPrefix(s, "{") || strings.HasPrefix(s, "[") {
		if out, whole = takeMedia(json.RawMessage(s), depth+1, found); whole {
			return out, true
		}
		s = string(out)
	}
	if len(*found) == before {
		s = takeURLs(s, found)
	}
	if len(*found) == before {
		return raw, false
	}
	return quoted(s), false
}

// takeURLs is a text with another in the place of each data: URL.
func takeURLs(s string, found *[]Media) string {
	const mark = ";base64,"
	var b strings.Builder
	for {
		head, rest, more := strings.Cut(s, mark)
		if !more {
			return b.String() + s
		}
		length := len(rest) - len(strings.TrimLeft(rest, "+/=-_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"))
		at := max(0, strings.LastIndex(head, "data:"))
		if m, ok := MediaOf(s[at : len(head)+len(mark)+length]); ok {
			*found = append(*found, m)
			b.WriteString(head[:at] + m.String())
		} else {
			b.WriteString(head + mark + rest[:length])
		}
		s = rest[length:]
	}
}

// Pictures are those that a call returned.
func Pictures(d *session.UIPart) []Media { return pictures(d.Output, partialOutput(d)) }

func pictures(values ...json.RawMessage) (all []Media) {
	for _, raw := range values {
		_, files := TakeMedia(raw)
		all = append(all, slices.DeleteFunc(files, func(m Media) bool { return !m.IsImage() })...)
	}
	return all
}

// mediaIn is the file that an object has the type and the content of.
func mediaIn(keys []string, values []json.RawMessage) (m Media, ok bool) {
	var mediaType, data string
	for i, key := range keys {
		var s string
		switch isType := slices.Contains(mediaTypeKeys, key); {
		case !isType && !slices.Contains(mediaDataKeys, key) || json.Unmarshal(values[i], &s) != nil:
		case isType && strings.Contains(s, "/"):
			mediaType = cmp.Or(mediaType, s)
		case !isType:
			data = cmp.Or(data, s)
		}
	}
	if mediaType == "" {
		return m, false
	}
	return mediaOf(mediaType, data)
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
