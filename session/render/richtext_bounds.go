package render

import "strings"

// What is beyond is no text that somebody wrote, and takes the parser more than time in proportion to the text.
const (
	// maxDepth is how deep nodes are in each other.
	maxDepth = 100
	// maxMarkers is how many quotations and items a line opens.
	maxMarkers = 40
	// maxCells bounds the cells of tables, of which a row of one cell gets as many as the titles have.
	maxCells = 1 << 18
	// maxWork bounds the sum, over the stretches of a text, of their delimiters times
	// their bytes: for a delimiter the parser may look at all that follows or precedes.
	maxWork = 400_000_000
)

// simple reports whether the parser has little to do with a text. It looks at lines and errs on the side of more work:
// code in a fence counts as well.
func simple(body string) bool {
	var work, cells int
	var bytes, delimiters, lines, columns int // of a stretch
	for line := range strings.SplitSeq(body, "\n") {
		if n := markers(line); n > maxMarkers || n > 0 && len(line)-len(strings.TrimLeft(line, " ")) > 2*maxDepth {
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
			if strings.IndexByte("*_~[]()<`!", line[i]) >= 0 {
				delimiters++
			}
		}
		if work+bytes*delimiters > maxWork || cells+lines*columns > maxCells {
			return false
		}
	}
	return true
}

// begins is true of lines that cannot go on with a paragraph: those that are empty, or begin an item.
func begins(line string) bool {
	body := strings.TrimLeft(line, " ")
	if body == "" {
		return true
	}
	return len(line)-len(body) < 4 && len(body) > 2 && strings.IndexByte("-*+", body[0]) >= 0 && body[1] == ' ' &&
		strings.Trim(body, "-*+ ") != ""
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
