package redact

import (
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// elsewhere returns the secret that belongs to the label though no sign joins them: the value of a name, what was to be
// used as it. What is below it in a table it notes for later.
func (m *mention) elsewhere() finding {
	if m.inRow() {
		m.c.table(m)
	}
	if m.inserts() {
		m.c.inserted(m)
	}
	if f := m.paired(); f.end > 0 {
		return f
	}
	return m.usedAs()
}

// usedAs returns what is before the label and is to be used as it: "use … as the token", "… is the password".
func (m *mention) usedAs() finding {
	if m.class < weak || !m.called() {
		return finding{}
	}
	w, at := m.wordBefore(m.lo)
	for n := 0; n < 3 && !lists["uses"][w]; n++ {
		w, at = m.wordBefore(at)
	}
	hi := skipBack(m.s, at, max(m.c.floor, at-3), " `\"'*")
	lo := since(m.s, hi, max(m.c.floor, hi-maxJudged), wordStops)
	if k := strings.LastIndexByte(m.s[lo:hi], ':'); k > 0 {
		lo += k + 1 // admin:… are the credentials
	}
	m.join, m.quoted = before, false
	return m.found(lo, hi)
}

// called reports whether the words before the label may join it to what is before them.
func (m *mention) called() bool {
	return m.lo >= 4 && m.s[m.lo-1] == ' ' && m.follows("uses", "owners")
}

// columnSigns are between the columns of tables.
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
	return lo == m.lo-1 && w != "" && (from == 0 || oneByteOf("|\t;,\n ", s[from-1]))
}

// table notes the secrets in the columns below a header that the label is a cell of. The rows are read once, whatever
// labels their header has.
func (c *scan) table(m *mention) {
	from, to := c.line(m.lo)
	if from < c.tables || to == len(c.s) || to-from > 2<<10 {
		return
	}
	c.tables = to + 1
	c.looked += to - from
	line := strings.TrimRight(c.s[from:to], "\r")
	for _, sign := range columnSigns {
		if !strings.Contains(line, sign) {
			continue
		}
		if c.header(line, sign); c.secretColumns > 0 && (strings.Contains("|│║┃", sign) || c.plainNames) {
			c.rows(to+1, sign)
		}
		return
	}
}

// header reads the names of the columns of a table, and whether they are those of a CSV file rather than a list in code
// or prose: names only, none longer than three words.
func (c *scan) header(line, sign string) {
	c.columns, c.secretColumns, c.plainNames, c.alignedOnly = c.columns[:0], 0, true, sign == aligned
	for _, at := range c.cells(line, sign) {
		name, promise := strings.Trim(line[at.lo:at.hi], "_[]"), notSecret
		if len(name) >= 2 && len(name) < 40 && !strings.ContainsAny(name, "=(){}:") {
			if promise = c.r.classify(name); promise == notSecret && has("spoken", name) {
				promise = spokenOf
			}
		}
		if promise != notSecret {
			c.secretColumns++
		}
		c.columns = append(c.columns, promise)
		spaced := sign == "," && at.lo > 0 && line[at.lo-1] == ' ' || sign == aligned && strings.HasPrefix(name, "#")
		c.plainNames = c.plainNames && !spaced && name != "" && len(name) <= 40 && strings.Count(name, " ") <= 2 &&
			!strings.ContainsAny(name, "!$%&()*+,/:;<=>?@[]^{}~\\|\"'`")
	}
}

// cells returns the bounds of the cells of a row without what is around them, until the next row is asked for. A sign
// in quotes is part of a cell of CSV.
func (c *scan) cells(line, sign string) []span {
	const around = " *\"`'\t\r\n"
	c.row = c.row[:0]
	quoted, start := byte(0), 0
	for i := 0; i <= len(line); i++ {
		if i < len(line) {
			if b := line[i]; b == quoted {
				quoted = 0
			} else if quoted == 0 && (b == '"' || b == '\'' && (i == start || sign == "," && line[i-1] == ' ')) {
				quoted = b
			}
			if quoted != 0 && sign == "," || !strings.HasPrefix(line[i:], sign) {
				continue
			}
		}
		lo := skip(line, start, i, around)
		c.row = append(c.row, span{lo, skipBack(line, i, lo, around)})
		if start = i + len(sign); sign == aligned {
			start = skip(line, start, len(line), " ")
			i = start - 1
		}
	}
	return c.row
}

// rows notes the secrets of the rows from at on.
func (c *scan) rows(at int, sign string) {
	for at < len(c.s) {
		eol := c.eol(at)
		line := c.s[at:eol]
		drawn := line != "" && strings.Trim(line, "-+=|: ─┼├┤╞╪╡┬┴│═╬╠╣\r") == ""
		if n := len(c.cells(line, sign)); n != len(c.columns) && !(n == 1 && drawn) {
			return
		}
		if !drawn {
			c.inRow(at, c.row)
		}
		c.looked += eol - at
		at = eol + 1
		c.tables = at
	}
}

// inRow notes the secrets among the cells of the row at at, of a table or of the values that SQL inserts.
func (c *scan) inRow(at int, cells []span) {
	for n, v := range cells[:min(len(cells), len(c.columns))] {
		if c.columns[n] != notSecret && (!c.alignedOnly || strings.IndexByte(c.s[at+v.lo:at+v.hi], ' ') < 0) {
			c.cell = mention{c: c, s: c.s, lo: at, hi: at, class: c.columns[n], join: cell, replace: Marker}
			c.addLater(c.cell.found(at+v.lo, at+v.hi))
		}
	}
}

// inserts reports whether the label is a column of an INSERT in SQL.
func (m *mention) inserts() bool {
	i := skip(m.s, m.hi, m.hi+8, "`\"] ")
	if i == len(m.s) || m.s[i] != ',' && m.s[i] != ')' {
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
	end := strings.IndexByte(c.s[m.lo:min(len(c.s), m.lo+512)], ')')
	if end < 0 || m.lo < c.tables {
		return
	}
	c.header(c.s[strings.LastIndexByte(c.s[:m.lo], '(')+1:m.lo+end], ",")
	i := jsonscan.Space(c.s, m.lo+end+1)
	c.tables = i
	if len(c.s)-i < len("values") || !strings.EqualFold(c.s[i:i+len("values")], "values") {
		return
	}
	for i += len("values"); ; i++ {
		if i = jsonscan.Space(c.s, i); i >= len(c.s) || c.s[i] != '(' {
			return
		}
		end := until(c.s, i, 8<<10, ")")
		c.inRow(i+1, c.cells(c.s[i+1:end], ","))
		c.looked += end - i
		c.tables = end
		if i = jsonscan.Space(c.s, min(len(c.s), end+1)); i >= len(c.s) || c.s[i] != ',' {
			return
		}
	}
}

// declared reports whether the label is the name of a variable in Terraform.
func (m *mention) declared() bool {
	before := m.s[max(m.c.floor, m.lo-len(`variable "`)):m.lo]
	return before == `variable "` || strings.HasSuffix(before, `output "`) ||
		m.keyed && m.dashes && strings.HasPrefix(m.s[m.hi+1:], ",") // add_argument("--password", default="…")
}

// pairLabel returns where the label of the name begins in a pair of name and value, or -1.
func (m *mention) pairLabel() int {
	s, i := m.s, skipBack(m.s, m.lo, max(m.c.floor, m.lo-24), " \t\"'")
	if i == m.c.floor || s[i-1] != ':' && s[i-1] != '=' {
		return -1
	}
	end := skipBack(s, i-1, max(m.c.floor, m.lo-40), " \t\"'")
	if i = runBack(s, end, max(m.c.floor, end-16), word); !lists["nameWords"][s[i:end]] {
		return -1
	}
	return i
}

// maxPair is how far apart name and value may be.
const maxPair = 400

// paired returns the value of the pair whose name is the label, or of what it declares.
func (m *mention) paired() finding {
	label, rest := m.pairLabel(), m.s[m.hi:min(len(m.s), m.hi+maxPair)]
	if m.declared() {
		rest = rest[:until(rest, 0, len(rest), "})")]
		for _, name := range [...]string{"default", "value"} {
			if k := strings.Index(rest, name); k >= 0 {
				return m.valueAt(m.hi+k, len(name))
			}
		}
	}
	if label < 0 {
		return finding{}
	}
	if i := m.partOfForm(); i > 0 {
		m.join = apart
		return m.found(i, min(m.c.eol(i), m.wordEnd(i)))
	}
	for _, text := range [...]string{"text", "content"} { // {"label":"Password","text":"…"}
		if near := strings.TrimLeft(rest, "\"', "); len(rest)-len(near) < 24 && strings.HasPrefix(near, text) {
			return m.valueAt(m.hi+len(rest)-len(near), len(text))
		}
	}
	if k := strings.Index(rest, "alue"); k >= 0 && sameItem(rest[:k]) {
		if f := m.valueAt(m.hi+k, len("alue")); f.end > 0 {
			return f
		}
	}
	prior := m.s[max(m.c.floor, label-maxPair):label]
	if before, ok := strings.CutSuffix(prior, `", `); ok { // set("…", forKey: "password")
		m.join, m.quoted = apart, true
		q := label - len(`", `)
		lo := label - len(prior) + strings.LastIndexByte(before, '"')
		for lo > label-len(prior) && m.c.v.level(lo) > m.c.v.level(q) {
			lo = label - len(prior) + strings.LastIndexByte(m.s[label-len(prior):lo], '"')
		}
		return m.found(lo+1, q)
	}
	if k := strings.LastIndex(prior, "alue"); k >= 0 && sameItem(prior[k:]) {
		return m.valueAt(label-len(prior)+k, len("alue"))
	}
	return finding{}
}

// partOfForm returns where the content of the part of a multipart form begins whose name the label is, 0 where it is
// none: after the empty line that ends its headers.
func (m *mention) partOfForm() int {
	from, _ := m.c.line(m.lo)
	if m.lo-from > 100 || indexFold(m.s[from:m.lo], "form-data") < 0 {
		return 0
	}
	for to := m.c.eol(m.lo); to < len(m.s) && to-m.lo < maxPair; {
		next := m.c.eol(to + 1)
		if strings.TrimSpace(m.s[to+1:next]) == "" {
			return skip(m.s, min(len(m.s)-1, next+1), len(m.s), blanks)
		}
		to = next
	}
	return 0
}

// sameItem reports whether no other item begins between the two halves of a pair.
func sameItem(between string) bool {
	return !strings.ContainsAny(between, "{}<>") && !strings.Contains(between, "- ") &&
		strings.Count(between, "\n") <= 6 && !strings.Contains(between, "name")
}

// valueAt returns the value after the label of a value at i, of n bytes, if it may be the label's.
func (m *mention) valueAt(i, n int) finding {
	b := *m
	b.keyed, b.lo, b.hi = false, i, i+n
	from, ok := b.sign()
	if !ok || b.join > spaced {
		return finding{}
	}
	lo, hi := b.value(from)
	b.lo, b.hi, b.join, b.keyed = m.lo, m.hi, apart, m.keyed
	return b.found(lo, hi)
}
