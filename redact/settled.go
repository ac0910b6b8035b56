package redact

import (
	"strings"
	"unicode/utf8"
)

const (
	// maxSecret is how long a word of a text that grows may be before it counts as
	// whole: longer than the keys and tokens whose shape is known.
	maxSecret = 2048
	// maxHeld is how far back a text that grows is held for what may come.
	maxHeld = 256
)

// Settled returns the length of the head of a text that grows which may be redacted and
// shown now. What follows it may be the beginning of a secret, or a secret whose name
// comes after it: the last word, words that look made by chance, the rest of a line that
// is about secrets, the row of a table, lines of Base64. All of it counts as settled
// when enough has come after it, or when the text is whole.
//
// Of a secret that is in s, redacting s[:Settled(s)] leaves nothing, wherever s is
// cut.
func Settled(s string) int {
	end := lastWord(s)
	from := max(0, end-maxHeld)
	line := lineBegin(s, end)
	settled := end
	hold := func(i int) {
		if i >= from && i < settled {
			settled = i
		}
	}
	// A line of a table states what it holds when it is whole.
	if inTable(s, line, end) {
		hold(max(line, from))
	}
	for _, name := range held {
		i := max(line, from)
		k := indexFold(s[i:max(i, end)], name.word)
		if k >= 0 && (name.always || strings.ContainsAny(s[i+k:end], "\"'`:=")) {
			hold(wordStart(s, i+k, i))
		}
	}
	// The value of a name that comes after it, within an item.
	if k := strings.LastIndex(s[from:end], "alue"); k >= 0 && from+k+4 < len(s) &&
		strings.IndexByte(":=\"' ", s[from+k+4]) >= 0 {
		hold(wordStart(s, from+k, max(0, from+k-20)))
	}
	for i := from; i < settled; {
		next := until(s[:settled], i, settled, blanks)
		if word := strings.Trim(s[i:next], "\"'`,;:()[]{}*|<>"); len(word) >= 6 && digits(word) && unlikely(word) {
			hold(i)
		}
		i = next + 1
	}
	settled = min(settled, base64Lines(s, settled))
	for settled > 0 && settled < len(s) && !utf8.RuneStart(s[settled]) {
		settled--
	}
	return settled
}

// held are the words that the rest of their line is held for: always, or where it has
// a sign that a value of more than one word may follow.
var held = []struct {
	word   string
	always bool
}{
	{"echo ", true}, {"printf ", true}, {"phrase", true}, {"nemonic", true}, {"ass", false}, {"pwd", false},
	{"pw", false}, {"ecret", false}, {"oken", false}, {"key", false},
	{"redential", false}, {"uth", false}, {"ookie", false}, {"dentified", false},
}

// lastWord returns where the last word of s begins, if no more than maxSecret back.
func lastWord(s string) int {
	from := max(0, len(s)-maxSecret)
	if i := strings.LastIndexAny(s[from:], " \t\r\n"); i >= 0 {
		return from + i + 1
	}
	return from
}

func lineBegin(s string, i int) int {
	from := max(0, i-maxSecret)
	return from + strings.LastIndexByte(s[from:i], '\n') + 1
}

func wordStart(s string, i, floor int) int { return since(s, i, min(floor, i), blanks) }

// unlikely reports whether a word has what words lack: chance, or a digit in a name that
// may be a password.
func unlikely(word string) bool {
	return chancy(word) || !wordy(word) && !number(word) && len(word) >= 10 || strings.IndexByte(word, ':') > 0 &&
		!number(word)
}

// inTable reports whether the line that begins at line is a row.
func inTable(s string, line, end int) bool {
	row := s[line:end]
	if strings.ContainsAny(row, "|\t") || strings.Contains(row, "│") || strings.Contains(row, "║") ||
		strings.Contains(row, "<t") {
		return true
	}
	if line == 0 || !strings.ContainsAny(row, ",;") {
		return false
	}
	before := s[lineBegin(s, line-1) : line-1]
	return strings.ContainsAny(before, ",;") && !strings.Contains(before, ", ")
}

// base64Lines returns where the lines of Base64 that end at end begin; end when there
// are none.
func base64Lines(s string, end int) int {
	begin := end
	for i := end; i > 0 && end-i < maxPEM; {
		from := lineBegin(s, i-1)
		line := strings.TrimSpace(s[from:i])
		if line != "" && (len(line) < 16 || run(line, 0, base64) < len(line) || strings.IndexByte(line, ' ') >= 0) {
			break
		}
		if line != "" {
			begin = from
		}
		i = from
	}
	return begin
}

// indexFold is strings.Index without regard to the case of s.
func indexFold(s, lowerCase string) int {
	for i := 0; i+len(lowerCase) <= len(s); i++ {
		if s[i]|0x20 == lowerCase[0] && equalFold(s[i:i+len(lowerCase)], lowerCase) {
			return i
		}
	}
	return -1
}
