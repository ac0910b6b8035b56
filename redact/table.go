package redact

import "strings"

// columnSigns are between the columns of tables, in the header and in the rows: lines, which no code has, and others.
var columnSigns = [...]struct{ header, rows string }{{"!!", "||"}, {"||", "|"}, {"|", "|"}, {"│", "│"}, {"║", "║"},
	{"┃", "┃"}, {"\t", "\t"}, {";", ";"}, {",", ","}, {aligned, aligned}}

// aligned is between the columns of a table that only spaces align.
const aligned = "  "

// inRow reports whether the label s[lo:hi] may be a cell of a table's header.
func (c *scan) inRow(lo, hi int) bool {
	const borders = "|\t;,\n\r\xe2"
	s := c.s
	if strings.HasPrefix(s[hi:], aligned) || strings.HasSuffix(s[c.floor:lo], aligned) {
		return true
	}
	if hi = skip(s, hi, hi+40, " *\"`'"); hi == len(s) || !oneByteOf(borders, s[hi]) {
		return false
	}
	head := c.head(lo)
	lo = skipBack(s, lo, max(c.floor, lo-40), " *\"`'")
	return lo <= head || oneByteOf(borders+" !", s[lo-1]) || s[lo-1] >= 0x80 || class[s[lo-1]]&slug != 0
}

// table notes what is in the columns below a header that the label at at is a cell of. The rows are read once, whatever
// labels their header has.
func (c *scan) table(at int) {
	from, to := c.line(at)
	// All labels of a header lead here, and its first one has read the table.
	if from < c.tables || to-from > 2<<10 {
		return
	}
	c.tables = to + 1
	c.looked += to - from
	end := len(c.s)
	// In a string of JSON the table ends with the string.
	if head := c.head(at); head > from {
		from, end = head, c.closing(head-1)
	}
	line := strings.TrimRight(strings.TrimPrefix(c.s[from:to], "# "), "\r")
	head, _, copied := strings.Cut(line, ") FROM stdin") // of PostgreSQL
	if copied {
		line = head[strings.IndexByte(head, '(')+1:]
	}
	// | User | Password |␤|------|----------|␤| bob | SECRET |
	//
	// The first sign that the header has parts all rows. Lines are drawn for tables only; the others are in code and
	// prose, too, where a header that is not all names shows that there is no table.
	for n, sign := range columnSigns {
		if !strings.Contains(line, sign.header) {
			continue
		}
		before := c.lineBefore(from)
		if before != "" && strings.Trim(before, drawing) == "" { // a line that is drawn
			before = c.lineBefore(from - len(before) - 1)
		}
		if n < 6 && strings.Contains(before, sign.header) ||
			n > 6 && n < 9 && strings.Count(before, sign.header) == strings.Count(line, sign.header) {
			return // a row within a table
		}
		if names := c.header(line, sign.header); !names && n > 5 {
			return // a list in code or prose
		}
		if copied {
			sign.rows = "\t"
		}
		for c.tables < end && c.row(c.tables, end, sign.rows) {
			c.tables = c.eol(c.tables) + 1
		}
		return
	}
}

// drawing is what lines between the rows of a table are made of.
const drawing = "-+=|: ─┼├┤╞╪╡┬┴│═╬╠╣\r"

// lineBefore returns the line before the one that begins at from, "" where there is none.
func (c *scan) lineBefore(from int) string {
	end := max(0, from-1)
	return c.s[since(c.s, end, max(0, end-maxStatement), "\n"):end]
}

// header reads the names of the columns of a table, and reports whether they are those of a CSV file: names only, none
// longer than three words, and one of a secret.
func (c *scan) header(line, sign string) (names bool) {
	c.columns = c.columns[:0]
	secrets := 0
	names = true
	for _, at := range c.cells(line, sign) {
		name, promise := strings.Trim(line[at.lo:at.hi], "_[]"), notSecret
		if len(name) >= 2 && len(name) < 40 && !strings.ContainsAny(name, "=(){}:") {
			if promise = c.r.classify(name); promise == notSecret && has("spoken", name) {
				promise = secret
			}
		}
		if promise == weak {
			promise = secret
		}
		if name == "Value" && strings.Contains(line, "KeyName") { // of Azure
			promise = secret
		}
		if promise != notSecret {
			secrets++
		}
		c.columns = append(c.columns, promise)
		names = names && name != "" && !(sign == aligned && digits(name[:1])) && len(name) <= 40 &&
			strings.Count(name, " ") <= 2 &&
			!strings.ContainsAny(name, "!$%&()*+,:;<=>?@[]^{}~\\|\"'`") && !(sign == aligned && name[0] == '#')
	}
	return names && secrets > 0
}

// cells returns the bounds of the cells of a row without what is around them, until the next row is asked for. A sign
// in quotes is part of a cell of CSV.
func (c *scan) cells(line, sign string) []span {
	const around = " *\"`'\t\r\n"
	c.cellsOf = c.cellsOf[:0]
	quote, start := byte(0), 0
	for i := 0; i <= len(line); i++ {
		if i < len(line) {
			if b := line[i]; b == quote {
				quote = 0
			} else if quote == 0 && oneByteOf(",;", sign[0]) && oneByteOf("\"'", b) && skip(line, start, i, " ") == i {
				quote = b
			}
			if quote != 0 || !strings.HasPrefix(line[i:], sign) {
				continue
			}
		}
		lo := skip(line, start, i, around)
		hi := skipBack(line, i, lo, around)
		if lo > start && oneByteOf(quotes, line[lo-1]) { // "SECRET*"
			hi = max(hi, lo+strings.LastIndexByte(line[lo:i], line[lo-1]))
		}
		c.cellsOf = append(c.cellsOf, span{lo, hi})
		if start = i + len(sign); sign == aligned {
			start = skip(line, start, len(line), " ")
		}
		i = start - 1
	}
	return c.cellsOf
}

// row notes the values under labels of the row at at, of a table that ends at end, and reports whether it is one.
func (c *scan) row(at, end int, sign string) bool {
	line := c.s[at:min(c.eol(at), end)]
	c.looked += len(line)
	// A row that has not as many cells as the header ends the table, unless it is a line that is drawn between rows.
	cells := c.cells(line, sign)
	if line != "" && strings.Trim(line, drawing) == "" {
		return true // a line that is drawn
	}
	if len(cells) != len(c.columns) {
		return false
	}
	for n, v := range cells {
		if promise := c.columns[n]; promise != notSecret && (sign != aligned || strings.IndexByte(line[v.lo:v.hi], ' ') < 0) {
			lo := skipTags(c.s, at+v.lo) // <code>SECRET</code>
			c.give(lo, until(c.s, lo, at+v.hi-lo, "<"), promise.String())
		}
	}
	return true
}

// skipTags skips tags of HTML at i.
func skipTags(s string, i int) int {
	for strings.HasPrefix(s[i:], "<") {
		end := strings.IndexByte(s[i:min(len(s), i+80)], '>')
		if end < 0 {
			break
		}
		i += end + 1
	}
	return i
}
