package render

import "strings"

// What is beyond is no text that somebody wrote, and takes the parser more than time in
// proportion to the text.
const (
	// maxDepth is how deep nodes are in each other.
	maxDepth = 100
	// maxMarkers is how many quotations and items a line opens.
	maxMarkers = 40
	// maxCells bounds the cells of tables, of which a row of one cell gets as many as
	// the titles have.
	maxCells = 1 << 18
	// maxWork bounds the sum, over the stretches of a text, of their delimiters times
	// their bytes: for a delimiter the parser may look at all that follows or precedes.
	maxWork = 400_000_000
)

// simple reports whether the parser has little to do with a text. It looks at lines and
// errs on the side of more work.
func simple(body string) bool {
	var work, cells int
	var bytes, delimiters, lines, columns int // of a stretch
	// A fence that is at the margin opens code whatever is before, and up to where it
	// is closed nothing is looked at. One that stands elsewhere may end with what it stands
	// in: from there on none is believed.
	fence, believe := "", true
	for line := range strings.SplitSeq(body, "\n") {
		if fence != "" {
			if run := fenceRun(strings.TrimLeft(line, " ")); len(run) >= len(fence) && run[0] == fence[0] &&
				indent(line) < 4 && strings.TrimSpace(line) == run {
				fence = ""
			}
			continue
		}
		if believe && (strings.Contains(line, "```") || strings.Contains(line, "~~~")) {
			if run := fenceRun(line); run != "" && (run[0] == '~' || !strings.Contains(line[len(run):], "`")) {
				fence = run
				continue
			}
			believe = false
		}
		if n := markers(line); n > maxMarkers || n > 0 && indent(line) > 2*maxDepth {
			return false
		}
		if begins(line) {
			work += bytes * delimiters
			cells += lines * columns
			bytes, delimiters, lines, columns = 0, 0, 0, 0
		}
		lines++
		columns = max(columns, columnsOf(line))
		bytes += len(line) + 1
		for i := range len(line) {
			switch line[i] {
			case '*', '_', '~', '[', ']', '(', ')', '<', '`', '!':
				delimiters++
			}
		}
		if work+bytes*delimiters > maxWork || cells+lines*columns > maxCells {
			return false
		}
	}
	return true
}

// begins is true of lines that cannot go on with a paragraph: those that are empty, or
// begin an item.
func begins(line string) bool {
	body := strings.TrimLeft(line, " ")
	if body == "" {
		return true
	}
	return len(line)-len(body) < 4 && len(body) > 2 && strings.IndexByte("-*+", body[0]) >= 0 && body[1] == ' ' &&
		strings.Trim(body, "-*+ ") != ""
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// FenceOf is the run of three or more backticks or tildes that s begins with, or "".
func fenceRun(s string) string {
	if s == "" || s[0] != '`' && s[0] != '~' {
		return ""
	}
	if run := s[:len(s)-len(strings.TrimLeft(s, s[:1]))]; len(run) >= 3 {
		return run
	}
	return ""
}

// markers is how many quotations and items a line may open.
func markers(line string) int {
	n := 0
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '>':
			n++
		case c == '-', c == '+', c == '*', c == '.', c == ')':
			if i+1 < len(line) && line[i+1] != ' ' {
				return n
			}
			n++
		case c == ' ', c >= '0' && c <= '9':
		default:
			return n
		}
	}
	return n
}

// columnsOf is how many columns a table has of which the line tells the alignment, or 0.
func columnsOf(line string) int {
	n := 0
	for i := range len(line) {
		switch c := line[i]; {
		case c == '|':
			n++
		case c == '-' || c == ':' || c == ' ' || c == '>' || c == '*' || c == '+' || c == '.' || c == ')' ||
			c >= '0' && c <= '9':
		default:
			return 0
		}
	}
	return n
}
