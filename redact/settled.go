package redact

import "strings"

const (
	// maxSecret is how long a word of a text that grows may be before it counts as
	// whole: longer than the keys and tokens whose shape is known.
	maxSecret = 2048
	// maxHeld is how far back a text that grows is held for what may come.
	maxHeld = 256
)

// Settled returns the length of the head of a text that grows which may be redacted and shown now. What follows it may
// be the beginning of a secret, or a secret whose name comes after it: the last word, words that look made by chance,
// the rest of a line that is about secrets, the row of a table, lines of Base64. All of it counts as settled when
// enough has come after it, or when the text is whole.
//
// Of a secret that is in s, redacting s[:Settled(s)] leaves nothing, wherever s is cut.
func Settled(s string) int {
	// "password: sun" may go on as "sunflower": nothing from the label on is settled before the line is whole.
	load()
	const ends = " \r\n"
	settled := since(s, len(s), max(0, len(s)-maxSecret), blanks)
	from := max(0, settled-maxHeld)
	line := since(s, settled, from, "\n")
	for i := from; i < settled; {
		next := until(s[:settled], i, settled, ends)
		word := s[i:next]
		rest := s[i:settled]
		if i >= line && holdsLine(word, rest) || strings.Contains(word, "alue") || mayBeSecret(word) {
			settled = i
		}
		i = next + 1
	}
	return boundary(s, min(settled, base64Lines(s, settled)))
}

// stems are what the names of secrets have, and what leads to one on the same line.
var stems = strings.Fields("ass pwd pw ecret oken key redential uth ookie dentified phrase nemonic echo printf")

// holdsLine reports whether the rest of a line is held for its word, which rest begins with: in the row of a table, and
// after a name where a value of more than one word may follow.
func holdsLine(word, rest string) bool {
	if strings.ContainsAny(word, "|\t│║") || strings.Contains(word, "<t") ||
		word != "" && strings.ContainsAny(word[:len(word)-1], ",;") {
		return true
	}
	for _, stem := range stems {
		if indexFold(word, stem) >= 0 {
			return strings.ContainsAny(rest, "\"'`:=") || len(stem) > 5 || stem == "echo"
		}
	}
	return false
}

// mayBeSecret reports whether a word has what words lack: chance, or a digit in a name that may be a password.
func mayBeSecret(word string) bool {
	word = strings.Trim(word, "\"'`,;:()[]{}*|<>")
	return len(word) >= 6 && digits(word) && !number(word) &&
		(chancy(word) || !wordy(word) && len(word) >= 10 || strings.IndexByte(word, ':') > 0)
}

// base64Lines returns where the lines of Base64 that end at end begin; end when there are none.
func base64Lines(s string, end int) int {
	begin := end
	for i := end; i > 0 && end-i < maxPEM; {
		from := since(s, i-1, max(0, i-1-maxSecret), "\n")
		line := strings.TrimSpace(s[from:i])
		if line != "" {
			if len(line) < 16 || run(line, 0, base64) < len(line) {
				break
			}
			begin = from
		}
		i = from
	}
	return begin
}
