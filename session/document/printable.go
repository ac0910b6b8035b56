package document

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

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
	if u == nil {
		u = new(session.Usage)
	}
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
	return strconv.Itoa(n) + " " + one
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
