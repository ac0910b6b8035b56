package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// tabWidth is how many cells a tab becomes. Content is indented, so real tab
// stops would not be where its author saw them.
const tabWidth = 4

// Sanitize makes text from outside fit for a terminal: no byte of the result
// can move the cursor, change a color or a title, or reorder what stands beside
// it.
//
// Control characters become their visible picture (ESC is ␛), bidirectional
// controls and characters that cannot be seen, which hide instructions from a
// reader, become their code point (<U+202E>), a byte that is not UTF-8 becomes
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
		case r >= 0x80 && r < 0xa0:
			fmt.Fprintf(&b, "<U+%04X>", r)
		case r == 0x2028 || r == 0x2029:
			b.WriteByte('\n')
		case invisible(r):
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
	switch {
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f, r == 0x061c: // bidirectional
		return true
	case r == 0x200b, r == 0x2060, r == 0xfeff, r >= 0x2061 && r <= 0x2064, r == 0x180e, r == 0x115f, r == 0x1160, r == 0x3164:
		return true
	case r >= 0xe0000 && r <= 0xe0fff: // tags, which spell text that nobody sees
		return true
	}
	return false
}

// oneLine sanitizes s and takes its first line that is not blank, for places
// that have room for one.
func oneLine(s string) string {
	line := strings.TrimSpace(s)
	line, rest, more := strings.Cut(line, "\n")
	if more && strings.TrimSpace(rest) != "" {
		line = strings.TrimRight(line, " \r") + " …"
	}
	return strings.ReplaceAll(Sanitize(line), "\n", " ")
}

// width is the number of cells that s, which is sanitized, takes.
func width(s string) int {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return uniseg.StringWidth(s)
		}
	}
	return len(s)
}

// truncate shortens s to n cells, the last of which is "…" when anything was cut.
func truncate(s string, n int) string {
	if width(s) <= n {
		return s
	}
	if n <= 0 {
		return ""
	}
	head, _ := cut(s, n-1)
	return strings.TrimRight(head, " ") + "…"
}

// cut splits s after at most n cells, between characters as a reader counts
// them.
func cut(s string, n int) (head, tail string) {
	used, at, state := 0, 0, -1
	for rest := s; rest != ""; {
		cluster, next, cells, newState := uniseg.FirstGraphemeClusterInString(rest, state)
		if used+cells > n {
			break
		}
		used, at, rest, state = used+cells, at+len(cluster), next, newState
	}
	return s[:at], s[at:]
}

// pad extends s with spaces to n cells.
func pad(s string, n int) string {
	if w := width(s); w < n {
		return s + strings.Repeat(" ", n-w)
	}
	return s
}

// padLeft puts spaces before s.
func padLeft(s string, n int) string {
	if w := width(s); w < n {
		return strings.Repeat(" ", n-w) + s
	}
	return s
}

// wrap breaks sanitized text into lines of at most n cells: between words where
// there are any, with the indentation of the line kept on what follows it.
func wrap(s string, n int) []string {
	n = max(n, 1)
	var lines []string
	for line := range strings.SplitSeq(strings.TrimRight(s, "\n"), "\n") {
		lines = wrapLine(lines, strings.TrimRight(line, " "), n)
	}
	return lines
}

func wrapLine(lines []string, line string, n int) []string {
	if width(line) <= n {
		return append(lines, line)
	}
	text := strings.TrimLeft(line, " ")
	indent := line[:min(len(line)-len(text), n/2)]
	room := n - len(indent)
	var b strings.Builder
	used := 0
	flush := func() {
		lines = append(lines, indent+strings.TrimRight(b.String(), " "))
		b.Reset()
		used = 0
	}
	for text != "" {
		// A word comes with the spaces before it.
		spaces := len(text) - len(strings.TrimLeft(text, " "))
		end := strings.IndexByte(text[spaces:], ' ')
		if end < 0 {
			end = len(text) - spaces
		}
		word := text[spaces : spaces+end]
		text = text[spaces+end:]
		w := width(word)
		if used > 0 && used+spaces+w > room {
			flush()
		} else if used > 0 {
			b.WriteString(strings.Repeat(" ", spaces))
			used += spaces
		}
		for w > room {
			head, tail := cut(word, room)
			if head == "" { // a character wider than the line
				_, size := utf8.DecodeRuneInString(word)
				head, tail = word[:size], word[size:]
			}
			b.WriteString(head)
			flush()
			word, w = tail, w-width(head)
		}
		b.WriteString(word)
		used += w
	}
	if used > 0 {
		flush()
	}
	return lines
}

// object splits a JSON object into its keys and values, in the order in which
// they stand.
func object(raw []byte) (keys []string, values []json.RawMessage, ok bool) {
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

// text of a JSON value for a reader: a string is its text, an object a line per
// key with longer texts indented below it, anything else compact JSON.
func valueText(raw json.RawMessage) string { return valueTextAt(raw, 0) }

// deepest is how deep values are laid out: what is nested deeper is compact
// JSON, which also keeps the work in proportion to the value.
const deepest = 8

func valueTextAt(raw json.RawMessage, depth int) string {
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
		keys, values, ok := object(raw)
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
			text := strings.TrimRight(valueTextAt(values[i], depth+1), "\n")
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
		b.WriteString(strings.ReplaceAll(strings.TrimRight(valueTextAt(item, depth+1), "\n"), "\n", "\n  "))
	}
	return b.String()
}

// count writes n with commas.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	digits := strings.TrimPrefix(s, "-")
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if n < 0 {
		return "-" + digits
	}
	return digits
}

// brief writes n in at most five characters: 999, 1.2k, 34k, 5.6M.
func brief(n int64) string {
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

// byteSize writes a number of bytes.
func byteSize(n int64) string {
	switch {
	case n < 1000:
		return strconv.FormatInt(n, 10) + " B"
	case n < 1e6:
		return strconv.FormatFloat(float64(n)/1e3, 'f', 1, 64) + " kB"
	}
	return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + " MB"
}

// duration writes milliseconds in two units at most.
func duration(ms int64) string {
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

// dollars writes a cost with as many digits as it needs to be told from zero.
func dollars(usd float64) string {
	if usd != 0 && usd < 0.1 && usd > -0.1 {
		return "$" + strconv.FormatFloat(usd, 'f', 4, 64)
	}
	return "$" + strconv.FormatFloat(usd, 'f', 2, 64)
}
