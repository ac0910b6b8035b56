package render

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// fold breaks a line of spans into lines of at most n cells, between words where
// that leaves no line half empty. A space at which it breaks is at the end of a
// line, where none is seen.
func fold(line []span, n int) [][]span {
	lines := [][]span{nil}
	used := 0
	for _, s := range line {
		for s.text != "" {
			head, tail := cut(s.text, n-used)
			if head != "" {
				lines[len(lines)-1] = append(lines[len(lines)-1], span{head, s.paint})
				used += width(head)
				s.text = tail
				continue
			}
			last := lines[len(lines)-1]
			switch {
			case used == 0: // a character wider than the line
				_, size := utf8.DecodeRuneInString(s.text)
				lines[len(lines)-1] = append(last, span{s.text[:size], s.paint})
				used, s.text = n, s.text[size:]
			case s.text[0] == ' ' && !endsInSpace(last):
				lines, used, s.text = append(lines, nil), 0, s.text[1:]
			default:
				kept, carried := lastWord(last, n/2)
				lines[len(lines)-1] = kept
				lines = append(lines, carried)
				used = 0
				for _, c := range carried {
					used += width(c.text)
				}
			}
		}
	}
	if len(lines) > 1 && len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	return lines
}

func endsInSpace(line []span) bool {
	return len(line) > 0 && strings.HasSuffix(line[len(line)-1].text, " ")
}

// lastWord takes from a line what follows its last space. It takes nothing where
// that is wider than most, or the line has no word before it.
func lastWord(line []span, maximum int) (kept, carried []span) {
	for i := len(line) - 1; i >= 0; i-- {
		text := line[i].text
		at := strings.LastIndexByte(text, ' ') + 1
		if at == 0 {
			maximum -= width(text)
			continue
		}
		if width(text[at:]) > maximum || !wordsIn(line[:i], text[:at]) {
			return line, nil
		}
		if at < len(text) {
			carried = append(carried, span{text[at:], line[i].paint})
		}
		carried = append(carried, line[i+1:]...)
		return append(slices.Clone(line[:i]), span{text[:at], line[i].paint}), carried
	}
	return line, nil
}

// wordsIn tells whether anything but spaces is in the spans and the text.
func wordsIn(spans []span, text string) bool {
	return strings.Trim(text, " ") != "" || slices.ContainsFunc(spans, func(s span) bool { return strings.Trim(s.text, " ") != "" })
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
