package render

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// width is the number of cells that s, which is sanitized, takes.
func width(s string) int { return ansi.StringWidth(s) }

// pad extends s with spaces to n cells, and padLeft puts them before it.
func pad(s string, n int) string     { return s + strings.Repeat(" ", max(n-width(s), 0)) }
func padLeft(s string, n int) string { return strings.Repeat(" ", max(n-width(s), 0)) + s }

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

// cut splits s after at most n cells, between characters as a reader counts them.
func cut(s string, n int) (head, tail string) {
	at := 0
	for at < len(s) {
		cluster, cells := ansi.FirstGraphemeCluster(s[at:], ansi.GraphemeWidth)
		if n -= cells; n < 0 {
			break
		}
		at += len(cluster)
	}
	return s[:at], s[at:]
}

// Options and paths are not broken at their hyphens, as the library does.
var (
	joinHyphens  = strings.NewReplacer("-", "\u2011")
	splitHyphens = strings.NewReplacer("\u2011", "-")
)

// wrap breaks sanitized text into lines of at most n cells: between words where
// there are any, with the indentation of the line kept on what follows it.
func wrap(s string, n int) []string {
	var lines []string
	for line := range strings.SplitSeq(strings.TrimRight(s, "\n"), "\n") {
		text := strings.Trim(line, " ")
		indent := line[:min(len(line)-len(strings.TrimLeft(line, " ")), n/2)]
		if width(text) <= n-len(indent) {
			lines = append(lines, strings.TrimRight(indent+text, " "))
			continue
		}
		for part := range strings.SplitSeq(ansi.Wrap(joinHyphens.Replace(text), max(n-len(indent), 1), ""), "\n") {
			lines = append(lines, indent+strings.Trim(splitHyphens.Replace(part), " "))
		}
	}
	return lines
}

// fold breaks a line of spans into lines of at most n cells, between words where that leaves no line half empty. A
// space at which it breaks is at the end of a line, where none is seen.
func fold(line []span, n int) [][]span {
	var text strings.Builder
	for _, s := range line {
		text.WriteString(s.text)
	}
	line = slices.Clone(line)
	take := func(bytes int) (taken []span) {
		for bytes > 0 {
			s := &line[0]
			k := min(bytes, len(s.text))
			if k > 0 {
				taken = append(taken, span{s.text[:k], s.paint})
			}
			if s.text = s.text[k:]; s.text == "" {
				line = line[1:]
			}
			bytes -= k
		}
		return taken
	}
	var lines [][]span
	for rest := text.String(); rest != "" || lines == nil; {
		head, tail := breakLine(rest, n)
		lines = append(lines, take(len(head)))
		take(len(rest) - len(head) - len(tail))
		rest = tail
	}
	return lines
}

// breakLine splits text after at most n cells: see [fold]. The space at which it breaks may be in neither half.
func breakLine(text string, n int) (head, tail string) {
	head, tail = cut(text, n)
	switch {
	case tail == "":
		return head, tail
	case head == "": // a character wider than the line
		_, size := utf8.DecodeRuneInString(text)
		return text[:size], text[size:]
	case tail[0] == ' ' && !strings.HasSuffix(head, " "):
		return head, tail[1:]
	}
	if at := strings.LastIndexByte(head, ' ') + 1; width(head[at:]) <= n/2 && strings.Trim(head[:at], " ") != "" {
		return text[:at], text[at:]
	}
	return head, tail
}
