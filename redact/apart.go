package redact

import "strings"

// elsewhere returns the secret that belongs to the label though no sign joins them: the value of a name, what was to be
// used as it. What is below it in a table it notes for later.
func (m *mention) elsewhere() finding {
	if m.inserts() {
		m.c.inserted(m)
	} else if m.inRow() {
		m.c.table(m)
	}
	if f := m.paired(); f.end > 0 {
		return f
	}
	if from := m.printed(); from > 0 {
		m.join, m.quoted = below, false
		if f := m.found(from, skipBack(m.s, m.c.eol(from), from, wordStops)); f.end > 0 {
			return f
		}
	}
	if m.hasStrings() {
		if f := m.around(); f.end > 0 {
			return f
		}
	}
	if m.class < weak || !m.called() {
		return finding{}
	}
	// What is before the label is to be used as it: "use … as the token", "… is the password".
	w, at := m.wordBefore(m.lo)
	for n := 0; n < 3 && !lists["uses"][w]; n++ {
		w, at = m.wordBefore(at)
	}
	hi := skipBack(m.s, at, max(m.c.floor, at-3), " `\"'*")
	lo := since(m.s, hi, max(m.c.floor, hi-maxJudged), wordStops)
	lo += strings.LastIndexByte(m.s[lo:hi], ':') + 1 // admin:… are the credentials
	m.join, m.quoted = before, false
	return m.found(lo, hi)
}

// hasStrings reports whether the line of the label has a string beside it.
func (m *mention) hasStrings() bool {
	from, to := m.c.line(m.lo)
	from, to = max(from, m.lo-maxStatement, m.c.floor), min(to, m.hi+maxStatement)
	return strings.ContainsAny(m.s[m.hi:to], quotes) || strings.ContainsAny(m.s[from:m.lo], quotes)
}

// around returns a string that is in one statement with the label: after it, up to where another begins or ends, or
// before it in its line.
func (m *mention) around() finding {
	from, to := m.c.line(m.lo)
	lo, stops := skip(m.s, m.hi, m.hi+1, quotes), "\n"
	if lo > m.hi && lo < to && oneByteOf(":,", m.s[lo]) { // of JSON
		stops = "{}[];"
	}
	hi := until(m.s, lo, min(to-lo, maxStatement), stops)
	if f := m.strings(lo, hi, near); f.end > 0 || m.lo-from > maxStatement || from < m.c.floor {
		return f
	}
	return m.strings(from, skipBack(m.s, m.lo, from, quotes), ahead)
}

// printed returns where the line after the label's begins that is one word, which what was typed at a prompt has
// printed, or of which the label is the title; 0 where there is none.
func (m *mention) printed() int {
	from, to := m.c.line(m.lo)
	if to >= len(m.s)-1 || m.lo-from > maxKey {
		return 0
	}
	prompted := m.hi-m.lo == to-from
	for _, sign := range [...]string{"$ ", "# ", "% ", "> ", "In [", "##["} {
		prompted = prompted || strings.Contains(m.s[from:m.lo], sign)
	}
	end := m.c.eol(to + 1)
	line := strings.TrimSpace(m.s[to+1 : min(end, to+1+maxJudged)])
	if k := strings.LastIndexByte(line, ' ') + 1; strings.HasSuffix(line[:k], "=> ") || strings.HasPrefix(line, "Out[") {
		line = line[k:]
	}
	if line = strings.Trim(line, quotes); !prompted || line == "" || strings.ContainsAny(line, wordStops) {
		return 0
	}
	return to + 1 + strings.Index(m.s[to+1:end], line)
}

// called reports whether the words before the label may join it to what is before them.
func (m *mention) called() bool {
	return m.lo >= 4 && m.s[m.lo-1] == ' ' && m.follows("uses", "owners")
}

// columnSigns are between the columns of tables: lines, which no code has, and others.
var columnSigns = [...]string{"|", "│", "║", "┃", "\t", ";", ",", aligned}

// aligned is between the columns of a table that only spaces align.
const aligned = "  "

// inRow reports whether the label may be a cell of a table's header.
func (m *mention) inRow() bool {
	const borders = "|\t;,\n\r\xe2"
	s, hi := m.s, skip(m.s, m.hi, m.hi+40, " *\"`'")
	if strings.HasPrefix(s[m.hi:], aligned) || strings.HasSuffix(s[m.c.floor:m.lo], aligned) {
		return true
	}
	if hi == len(s) || !oneByteOf(borders, s[hi]) {
		return false
	}
	lo := skipBack(s, m.lo, max(m.c.floor, m.lo-40), " *\"`'")
	if lo == 0 || oneByteOf(borders, s[lo-1]) || s[lo-1] >= 0x80 {
		return true
	}
	// "API Key": the label may be the second word of the name.
	w, from := m.wordBefore(m.lo)
	return w != "" && (from == 0 || oneByteOf("|\t;,\n ", s[from-1]))
}

// table notes the secrets in the columns below a header that the label is a cell of. The rows are read once, whatever
// labels their header has.
func (c *scan) table(m *mention) {
	from, to := c.line(m.lo)
	if from < c.tables || to-from > 2<<10 {
		return
	}
	c.tables = to + 1
	c.looked += to - from
	line := strings.TrimRight(c.s[from:to], "\r")
	for n, sign := range columnSigns {
		if !strings.Contains(line, sign) {
			continue
		}
		if names := c.header(line, sign); !names && n > 3 {
			return // a list in code or prose
		}
		for c.tables < len(c.s) && c.row(c.tables, sign) {
			c.tables = c.eol(c.tables) + 1
		}
		return
	}
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
				promise = spokenOf
			}
		}
		if promise != notSecret {
			secrets++
		}
		c.columns = append(c.columns, promise)
		names = names && name != "" && len(name) <= 40 && strings.Count(name, " ") <= 2 &&
			!strings.ContainsAny(name, "!$%&()*+,/:;<=>?@[]^{}~\\|\"'`") &&
			!(sign == "," && at.lo > 0 && line[at.lo-1] == ' ' || sign == aligned && name[0] == '#')
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
			} else if quote == 0 && sign == "," && oneByteOf("\"'", b) && skip(line, start, i, " ") == i {
				quote = b
			}
			if quote != 0 || !strings.HasPrefix(line[i:], sign) {
				continue
			}
		}
		lo := skip(line, start, i, around)
		c.cellsOf = append(c.cellsOf, span{lo, skipBack(line, i, lo, around)})
		if start = i + len(sign); sign == aligned {
			start = skip(line, start, len(line), " ")
			i = start - 1
		}
	}
	return c.cellsOf
}

// row notes the secrets of the row at at, and reports whether it is one.
func (c *scan) row(at int, sign string) bool {
	line := c.s[at:c.eol(at)]
	c.looked += len(line)
	cells := c.cells(line, sign)
	if line != "" && strings.Trim(line, "-+=|: ─┼├┤╞╪╡┬┴│═╬╠╣\r") == "" {
		return len(cells) == 1 || len(cells) == len(c.columns) // a line that is drawn
	}
	return len(cells) == len(c.columns) && c.noteCells(at, cells, sign)
}

// noteCells notes the secrets among the cells of the row at at, of a table or of the values that SQL inserts.
func (c *scan) noteCells(at int, cells []span, sign string) bool {
	for n, v := range cells[:min(len(cells), len(c.columns))] {
		if c.columns[n] != notSecret && (sign != aligned || strings.IndexByte(c.s[at+v.lo:at+v.hi], ' ') < 0) {
			c.cell = mention{c: c, s: c.s, lo: at, hi: at, class: c.columns[n], join: cell}
			c.addLater(c.cell.found(at+v.lo, at+v.hi))
		}
	}
	return true
}

// inserts reports whether the label is a column of an INSERT in SQL.
func (m *mention) inserts() bool {
	i := skip(m.s, m.hi, m.hi+8, "`\"] ")
	if i == len(m.s) || !oneByteOf(",)", m.s[i]) {
		return false
	}
	before := m.s[max(m.c.floor, m.lo-200):m.lo]
	before = strings.TrimRight(before[:max(0, strings.LastIndexByte(before, '('))], " ")
	table := runBack(before, len(before), max(0, len(before)-64), word|dot)
	return indexFold(before[max(0, table-14):], "into ") >= 0
}

// inserted notes the values of an INSERT whose columns have the names of secrets, of which the label is one. Its rows
// are read once.
func (c *scan) inserted(m *mention) {
	end := until(c.s, m.lo, 512, ")")
	if m.lo < c.tables {
		return
	}
	c.header(c.s[strings.LastIndexByte(c.s[:m.lo], '(')+1:end], ",")
	end += max(0, indexFold(c.s[end:min(len(c.s), end+16)], "values")) + len("values")
	for end < len(c.s) {
		i := skip(c.s, end, end+8, "), \n")
		if i == len(c.s) || c.s[i] != '(' {
			return
		}
		end = until(c.s, i, 8<<10, ")")
		c.noteCells(i+1, c.cells(c.s[i+1:end], ","), ",")
		c.looked += end - i
		c.tables = end
	}
}

// pairLabel returns where the label of the name begins in a pair of name and value, or -1.
func (m *mention) pairLabel() int {
	s, i := m.s, runBack(m.s, m.lo, max(m.c.floor, m.lo-maxKey), slug|dot|plusSlash) // /spec/password
	i = skipBack(s, i, max(m.c.floor, i-24), " \t\"'#")
	end := skipBack(s, skipBack(s, i, max(m.c.floor, i-1), ":="), max(m.c.floor, i-16), " \t\"'")
	if i = runBack(s, end, max(m.c.floor, end-16), word); !lists["nameWords"][s[i:end]] {
		return -1
	}
	return i
}

// maxPair is how far apart name and value may be.
const maxPair = 400

// paired returns the value of the pair whose name is the label, or of what it declares.
func (m *mention) paired() finding {
	label, limit := m.pairLabel(), min(len(m.s), m.hi+maxPair)
	if label < 0 {
		return finding{}
	}
	if i := m.partOfForm(); i > 0 {
		m.join = apart
		return m.found(i, min(m.c.eol(i), m.wordEnd(i)))
	}
	from := max(m.c.floor, label-maxPair)
	for _, x := range [...]struct {
		name   string
		lo, hi int
	}{{`text"`, m.hi, min(limit, m.hi+48)}, {"content", m.hi, min(limit, m.hi+15)}, {"alue", m.hi, limit},
		{"default", m.hi, limit},
		{"alue", since(m.s, label, from, "{}<>"), label}} {
		if f := m.valueOf(x.name, x.lo, x.hi); f.end > 0 { // {"label":"Password","text":"…"}
			return f
		}
	}
	return finding{}
}

// partOfForm returns where the content of the part of a multipart form begins whose name the label is, 0 where it is
// none: after the empty line that ends its headers.
func (m *mention) partOfForm() int {
	from, to := m.c.line(m.lo)
	if indexFold(m.s[max(from, m.lo-100):m.lo], "form-data") < 0 {
		return 0
	}
	for to < len(m.s) && to-m.lo < maxPair {
		next := m.c.eol(to + 1)
		if strings.TrimSpace(m.s[to+1:next]) == "" {
			return skip(m.s, min(len(m.s)-1, next+1), len(m.s), blanks)
		}
		to = next
	}
	return 0
}

// valueOf returns the value of the name in s[lo:hi], if it may be the label's: no other item begins between them.
func (m *mention) valueOf(name string, lo, hi int) finding {
	i := lo + strings.Index(m.s[lo:hi], name)
	if i < lo {
		return finding{}
	}
	between := strings.TrimLeft(m.s[lo:i], "\" {") // variable "password" {
	if lo < m.hi {
		between = m.s[i+len(name) : hi]
	}
	if strings.ContainsAny(between, "{}<>") || strings.Contains(between, "- ") || strings.Contains(between, "name") ||
		strings.Count(between, "\n") > 6 {
		return finding{}
	}
	b := *m
	b.keyed, b.path, b.lo, b.hi = false, false, i, i+len(name)
	from, ok := b.sign()
	if !ok || b.join > spaced {
		return finding{}
	}
	start, end := b.value(from)
	b.lo, b.hi, b.join, b.keyed = m.lo, m.hi, apart, m.keyed
	return b.found(start, end)
}
