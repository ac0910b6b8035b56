package redact

import "strings"

// columnSigns are between the columns of tables, in the header and in the rows. The first ones are of lines that are
// drawn, which no code has; the last is of columns that only spaces align.
var columnSigns = [...]struct{ header, rows string }{{"!!", "||"}, {"||", "|"}, {"|", "|"}, {"│", "│"},
	{"║", "║"}, {"┃", "┃"}, {"\t", "\t"}, {";", ";"}, {",", ","}, {aligned, aligned}}

const (
	aligned = "  "
	drawn   = 6                               // so many of them are of lines
	drawing = "-+=|: ─┼├┤╞╪╡┬┴│═╬╠╣\r"        // what lines between rows are made of
	around  = " *\"`'\t\r\n"                  // what is around the text of a cell
	noNames = "!$%&()*+,:;<=>?@[]^{}~\\|\"'`" // what no name of a column has where nothing is drawn
)

// tables notes what is in the columns that labels are the heads of:
//
//	| User | Password |
//	|------|----------|
//	| bob  | SECRET   |
func (c *scan) tables() {
	done := 0
	for i, l := range c.labels {
		if l.class == hint {
			continue
		}
		c.inserted(l)
		// All labels of a line are read at once, and the rows below it once.
		if l.lo >= done {
			from, to := c.line(l.lo)
			if done = to + 1; to-from <= 2<<10 {
				done = max(done, c.table(i, from, to))
			}
		}
	}
}

// inserted notes the values of the column l of SQL: INSERT INTO users (name, password) VALUES ('bob', 'SECRET'), (…).
func (c *scan) inserted(l label) {
	s := c.s
	from, to := since(s, l.lo, max(0, l.lo-maxStatement), "(;"), until(s, min(l.hi, len(s)), maxStatement, ");")
	at := skip(s, to, len(s), ")"+blanks)
	if from == 0 || s[from-1] != '(' || at+6 > len(s) || !equalFold(s[at:at+6], "values") {
		return
	}
	n := strings.Count(s[from:l.lo], ",") // columns before it
	for at = skip(s, at+6, len(s), blanks); at < len(s) && s[at] == '(' && c.afford(1); {
		for k := 0; k == 0 || at < len(s) && s[at] == ','; k++ {
			lo := skip(s, at+1, len(s), blanks)
			if at = lo; lo < len(s) && s[lo] == '\'' {
				at = c.closing(lo)
			}
			at = until(s, at, maxJudged, ",()")
			if k == n {
				c.give(lo, at, l.class)
			}
		}
		at = skip(s, skip(s, at, at+1, ")"), len(s), blanks+",")
	}
}

// table notes what is below the header c.s[from:to], which has the label i and those after it, and returns the end of
// the rows; 0 where it is no header.
func (c *scan) table(i, from, to int) int {
	end := len(c.s)
	if head := c.head(c.labels[i].lo); head > from { // in a string of JSON, the table ends with the string
		from, end = head, c.closing(head-1)
	}
	from, to = skip(c.s, from, to, "# "), min(to, end)
	copied := strings.Index(c.s[from:max(from, to)], ") FROM stdin") // of PostgreSQL
	if copied > 0 {
		from, to = from+1+strings.IndexByte(c.s[from:to], '('), from+copied
	}
	line := c.s[from:max(from, to)]
	for n, sign := range columnSigns {
		if !strings.Contains(line, sign.header) {
			continue
		}
		above := c.lineBefore(from)
		if above != "" && strings.Trim(above, drawing) == "" {
			above = c.lineBefore(from - len(above) - 1)
		}
		if copied > 0 {
			sign.rows = "\t"
		} else if strings.Contains(above, sign.header) && (n < drawn || n > drawn && sign.header != aligned &&
			strings.Count(above, sign.header) == strings.Count(line, sign.header)) {
			return 0 // a row
		}
		if !c.header(i, n, from, line) {
			return 0
		}
		at := c.eol(to) + 1
		for at < end && c.row(at, end, sign.rows) {
			at = c.eol(at) + 1
		}
		return min(at, len(c.s))
	}
	return 0
}

// header notes which columns are of secrets in the header line, which begins at from, has the label i and those after
// it and is parted by the sign n. It reports whether one is, and where nothing is drawn, whether all have names.
func (c *scan) header(i, n, from int, line string) (secrets bool) {
	c.columns = c.columns[:0]
	for _, cell := range c.cells(line, columnSigns[n].header) {
		name := line[cell.lo:cell.hi]
		if n >= drawn && (name == "" || len(name) > 40 || strings.Count(name, " ") > 2 ||
			strings.ContainsAny(name, noNames) || digits(name[:1])) {
			return false // a list in code or prose
		}
		class := ""
		if k := c.r.classify(name); k != notSecret {
			class = k.String()
		} else if name == "Value" && strings.HasPrefix(line, "KeyName") { // of Azure
			class = secret.String()
		}
		for _, l := range c.labels[i:] {
			if l.lo >= from+cell.hi {
				break
			}
			if class == "" && l.lo >= from+cell.lo && l.hi == from+cell.hi && l.class != hint {
				class = l.class
			}
		}
		c.columns = append(c.columns, class)
		secrets = secrets || class != ""
	}
	return secrets
}

// lineBefore returns the line before the one that begins at from, "" where there is none.
func (c *scan) lineBefore(from int) string {
	end := max(0, from-1)
	return c.s[since(c.s, end, max(0, end-maxStatement), "\n"):end]
}

// cells returns the bounds of the cells of a row without what is around them, until the next row is asked for. A sign
// in quotes is part of a cell of CSV.
func (c *scan) cells(line, sign string) []span {
	c.cellsOf = c.cellsOf[:0]
	for i, start := 0, 0; i <= len(line); i++ {
		if first := skip(line, start, len(line), " "); i == first && i < len(line) && oneByteOf("\"'", line[i]) &&
			oneByteOf(",;", sign[0]) {
			if k := strings.IndexByte(line[i+1:], line[i]); k >= 0 {
				i += k + 1
			}
		}
		if i < len(line) && !strings.HasPrefix(line[i:], sign) {
			continue
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

// row notes the values under labels of the row at at, of a table that ends at end, and reports whether it is one: a
// line of as many cells as the header has, or one that is drawn between rows.
func (c *scan) row(at, end int, sign string) bool {
	line := c.s[at:min(c.eol(at), end)]
	if line != "" && strings.Trim(line, drawing) == "" {
		return true
	}
	c.looked += len(line)
	cells := c.cells(line, sign)
	if len(cells) != len(c.columns) {
		return false
	}
	for n, v := range cells {
		if c.columns[n] != "" && (sign != aligned || strings.IndexByte(line[v.lo:v.hi], ' ') < 0) {
			lo := at + v.lo
			for strings.HasPrefix(c.s[lo:at+v.hi], "<") && lo < at+v.hi { // <code>SECRET</code>
				lo = until(c.s, lo, at+v.hi-lo, ">") + 1
			}
			c.give(lo, until(c.s, lo, at+v.hi-lo, "<"), c.columns[n])
		}
	}
	return true
}
