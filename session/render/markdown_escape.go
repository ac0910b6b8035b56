package render

import (
	"net/url"
	"strings"
)

// escape makes text of one line that Markdown and HTML leave as it is, and of which GitHub
// notifies nobody: neither a name after an at sign nor the number of an issue.
func escape(s string) string {
	var b strings.Builder
	b.Grow(len(s) + len(s)/8)
	for i := range len(s) {
		switch c := s[i]; c {
		case '\\', '`', '*', '_', '[', ']', '<', '>', '|', '~', '$', '#', '!':
			b.WriteByte('\\')
			b.WriteByte(c)
			if c == '#' && i+1 < len(s) && s[i+1] >= '0' && s[i+1] <= '9' {
				b.WriteString(separator)
			}
		case '&':
			b.WriteString("&amp;")
		case '@':
			b.WriteByte(c)
			if (i == 0 || !wordly(s[i-1])) && i+1 < len(s) && wordly(s[i+1]) {
				b.WriteString(separator)
			}
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// separator is between two characters that would mean something together. It shows
// nothing, and who copies what is shown does not get it.
const separator = "<!-- -->"

func wordly(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

// prose is text of many lines, each of which stays one.
func prose(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = start(l)
		if i+1 < len(lines) && lines[i] != "" && strings.TrimSpace(lines[i+1]) != "" {
			lines[i] += "\\" // a break, which a newline is not
		}
	}
	return strings.Join(lines, "\n")
}

// start escapes a line, see begin, without the spaces at its end.
func start(l string) string { return strings.TrimRight(begin(l), " ") }

// begin escapes a text of which the beginning could be that of a list, a heading, a
// table, a quotation or indented code.
func begin(l string) string {
	body := strings.TrimLeft(l, " ")
	if body == "" {
		return ""
	}
	indent := strings.Repeat("\u00a0", len(l)-len(body))
	out := escape(body)
	switch digits := strings.TrimLeft(body, "0123456789"); {
	case strings.HasPrefix(body, "-"), strings.HasPrefix(body, "+"), strings.HasPrefix(body, "="),
		strings.HasPrefix(body, ":"):
		out = "\\" + out
	case len(digits) < len(body) && (strings.HasPrefix(digits, ".") || strings.HasPrefix(digits, ")")):
		n := len(body) - len(digits)
		out = body[:n] + "\\" + escape(digits)
	}
	return indent + out
}

// link is a link to an address, or only its text where there is none.
func link(text, to string) string {
	if to == "" {
		return escape(text)
	}
	if u, err := url.Parse(to); err == nil {
		to = u.String()
	}
	// Between angle brackets only these end the address.
	to = strings.NewReplacer("<", "%3C", ">", "%3E", "\\", "%5C", "\n", "", " ", "%20").Replace(to)
	return "[" + escape(text) + "](<" + to + ">)"
}
