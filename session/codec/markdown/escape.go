package markdown

import (
	"net/url"
	"strings"
)

// escape makes text of one line that Markdown and HTML leave as it is.
func escape(s string) string {
	var b strings.Builder
	b.Grow(len(s) + len(s)/8)
	for i := range len(s) {
		switch c := s[i]; c {
		case '\\', '`', '*', '_', '[', ']', '<', '>', '|', '~', '$', '#', '!':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '&':
			b.WriteString("&amp;")
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func escaped(all []string) []string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = escape(s)
	}
	return out
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

// start escapes a line of which the beginning could be that of a list, a heading, a
// table, a quotation or indented code.
func start(l string) string {
	body := strings.TrimLeft(l, " ")
	if body == "" {
		return ""
	}
	indent := strings.Repeat("\u00a0", len(l)-len(body))
	out := escape(body)
	switch digits := strings.TrimLeft(body, "0123456789"); {
	case strings.HasPrefix(body, "-"), strings.HasPrefix(body, "+"), strings.HasPrefix(body, "="), strings.HasPrefix(body, ":"):
		out = "\\" + out
	case len(digits) < len(body) && (strings.HasPrefix(digits, ".") || strings.HasPrefix(digits, ")")):
		n := len(body) - len(digits)
		out = body[:n] + "\\" + escape(digits)
	}
	return indent + strings.TrimRight(out, " ")
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
