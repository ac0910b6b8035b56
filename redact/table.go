package redact

import "github.com/agenttrace/agenttrace/internal/jsonscan"

import "strings"

// This file finds values that are below or beside their key's name: in the columns
// of tables, in pairs of name and value.

// rules between the columns of a table.
var columnSigns = [...]string{"|", "│", "║", "┃", "\t", ";", ","}

// inRow reports whether the key may be a cell of a table's header.
func (a *assignment) inRow() bool {
	s, hi := a.s, skip(a.s, a.hi, a.hi+40, " *\"`'")
	lo := skipBack(s, a.lo, max(a.floor, a.lo-40), " *\"`'")
	if !(lo == 0 || strings.IndexByte("|\t;,\n", s[lo-1]) >= 0 || s[lo-1] >= 0x80) {
		// "API Key": the key may be the second word of the name.
		if a.lo-lo > 1 || lo == a.lo {
			return false
		}
		w, from := a.wordBefore(a.lo)
		if w == "" || !(from == 0 || strings.IndexByte("|\t;,\n ", s[from-1]) >= 0) {
			return false
		}
	}
	return hi < len(s) && (strings.IndexByte("|\t;,\n\r", s[hi]) >= 0 || s[hi] == 0xe2)
}

// table notes the secrets in the columns below a header that the key at lo is a cell
// of. The rows are read once, whatever keys their header has.
func (c *scan) table(lo int) {
	from, to := c.line(lo)
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
		columns := c.header(line, sign)
		if len(columns) == 0 || !strings.ContainsAny(sign, "|│║┃") && !plainNames(line, sign) {
			return
		}
		c.rows(to+1, sign, strings.Count(line, sign), columns)
		return
	}
}

// column is one of a table whose name promises a secret.
type column struct {
	at    int
	class keyClass
}

// header returns the columns of a table that promise secrets.
func (c *scan) header(line, sign string) []column {
	columns := c.columns[:0]
	for n := 0; ; n++ {
		name, rest, more := strings.Cut(line, sign)
		if name = strings.Trim(name, " *\"`'_"); len(name) >= 2 && len(name) < 40 &&
			!strings.ContainsAny(name, "=(){}:") {
			if class := c.r.classify(name); class != notSecret {
				columns = append(columns, column{n, class})
			}
		}
		if line = rest; !more {
			c.columns = columns
			return columns
		}
	}
}

// plainNames reports whether a line is the header of a CSV file rather than a list in
// code or prose: names only, none longer than three words.
func plainNames(line, sign string) bool {
	for more := true; more; {
		var name string
		name, line, more = strings.Cut(line, sign)
		spaced := strings.HasPrefix(name, " ")
		name = strings.Trim(name, " \"'")
		if name == "" || len(name) > 40 || spaced && sign == "," || strings.Count(name, " ") > 2 {
			return false
		}
		for i := range len(name) {
			if class[name[i]]&(slug|dot|space) == 0 && name[i] < 0x80 && name[i] != '#' {
				return false
			}
		}
	}
	return true
}

// rows notes the secrets of the rows from at on.
func (c *scan) rows(at int, sign string, count int, columns []column) {
	for at < len(c.s) {
		eol := c.eol(at)
		line := strings.TrimRight(c.s[at:eol], "\r")
		if n := strings.Count(line, sign); n != count {
			if !(n == 0 && drawnLine(line)) && !(sign == "," && n > count && strings.Contains(line, `"`)) {
				return
			}
		}
		if !drawnLine(line) {
			c.row(at, line, sign, columns)
		}
		c.looked += eol - at
		c.tables = eol + 1
		at = eol + 1
	}
}

// drawnLine reports whether a line of a table holds no cells.
func drawnLine(line string) bool {
	return line != "" && strings.Trim(line, "-+=|: ─┼├┤╞╪╡┬┴│═╬╠╣") == ""
}

func (c *scan) row(at int, line, sign string, columns []column) {
	n, next, quoted := 0, 0, false
	start := 0
	for i := 0; i <= len(line) && next < len(columns); i++ {
		if i < len(line) && line[i] == '"' {
			quoted = !quoted
		}
		if i < len(line) && (quoted && sign == "," || !strings.HasPrefix(line[i:], sign)) {
			continue
		}
		if n == columns[next].at {
			value := strings.Trim(line[start:i], " *\"`'")
			lo := at + start + strings.Index(line[start:i], value)
			if cellSecret(c.r, columns[next].class, value) {
				c.addLater(finding{lo, lo + len(value), Marker})
			}
			next++
		}
		n++
		start = i + len(sign)
	}
}

// nameWords are the labels that are before the name in a pair, with what the label
// of the value begins with.
var nameWords = map[string]string{
	"name": "", "label": "", "Name": "", "key": "", "Key": "", "variable": "", "field": "", "header": "", "param": "",
	"parameter": "", "setting": "", "id": "", "Variable": "", "env": "", "NAME": "", "KEY": "", "property": "",
	"option": "", "ParameterKey": "Parameter", "OutputKey": "Output", "parameterKey": "parameter", "OptionName": "",
	"parameter_key": "parameter_",
}

// declared reports whether the key is the name of a variable in Terraform.
func (a *assignment) declared() bool {
	return a.lo-a.floor >= len(`output "`) && a.s[a.lo-1] == '"' &&
		(strings.HasSuffix(a.s[:a.lo], `variable "`) || strings.HasSuffix(a.s[:a.lo], `output "`))
}

// byDefault returns the default of a variable in Terraform, or the value of an output.
func (a *assignment) byDefault() (found finding) {
	body := a.s[a.hi:min(len(a.s), a.hi+300)]
	if end := strings.IndexByte(body, '}'); end >= 0 {
		body = body[:end]
	}
	name := "default"
	if strings.HasSuffix(a.s[:a.lo], `output "`) {
		name = "value"
	}
	k := strings.Index(body, name)
	if k < 0 {
		return found
	}
	i := jsonscan.Space(a.s, a.hi+k+len(name))
	if i >= len(a.s) || a.s[i] != '=' {
		return found
	}
	lo, hi := a.c.quotedAfter(jsonscan.Space(a.s, i+1))
	return finding{lo, hi, Marker}
}

// inPair reports whether the key is the name in a pair of name and value.
func (a *assignment) inPair() bool {
	_, ok := a.pairLabel()
	return ok || a.declared()
}

// pairLabel returns where the label of the name begins.
func (a *assignment) pairLabel() (int, bool) {
	s, i := a.s, skipBack(a.s, a.lo, max(a.floor, a.lo-24), " \t\"'\\")
	if i == a.floor || s[i-1] != ':' && s[i-1] != '=' {
		return 0, false
	}
	end := skipBack(s, i-1, max(a.floor, a.lo-40), " \t\"'\\")
	i = runBack(s, end, max(a.floor, end-16), word)
	_, ok := nameWords[s[i:end]]
	return i, ok
}

// maxPair is how far apart name and value may be.
const maxPair = 200

// paired returns the value of the pair whose name is the key.
func (a *assignment) paired() (found finding) {
	label, ok := a.pairLabel()
	if !ok {
		return found
	}
	before, after := a.c.valueLabels(a.lo, a.hi)
	if after >= 0 && after-a.hi < maxPair && sameItem(a.s[a.hi:after]) {
		if found = a.valueAt(after); found.end > 0 {
			return found
		}
	}
	if before >= a.floor && label-before < maxPair && before < label && sameItem(a.s[before:label]) {
		return a.valueAt(before)
	}
	return found
}

// valueLabels returns where the last label of a value before the key s[lo:hi] is, and
// the next one after it; -1 where there is none. The text is searched once.
func (c *scan) valueLabels(lo, hi int) (before, after int) {
	if len(c.begins) > 0 && c.begins[0] > lo {
		c.begins = c.begins[:0]
	}
	if len(c.begins) == 0 {
		c.begins = append(c.begins, -1, c.nextLabel(0))
	}
	for c.begins[1] >= 0 && c.begins[1] < lo {
		c.begins[0] = c.begins[1]
		c.begins[1] = c.nextLabel(c.begins[1] + 4)
	}
	for after = c.begins[1]; after >= 0 && after < hi; {
		after = c.nextLabel(after + 4) // the key's own name has one: passwordValue
	}
	return c.begins[0], after
}

func (c *scan) nextLabel(i int) int {
	if k := strings.Index(c.s[i:], "alue"); k >= 0 {
		return i + k
	}
	return -1
}

// sameItem reports whether no other item begins between the two halves of a pair.
func sameItem(between string) bool {
	return !strings.ContainsAny(between, "{}<>") && !strings.Contains(between, "- ") &&
		strings.Count(between, "\n") <= 4 && !strings.Contains(between, "name")
}

// valueAt returns the value after the label at i if it may be the key's.
func (a *assignment) valueAt(i int) (found finding) {
	s := a.s
	b := *a
	b.keyQuoted, b.lo, b.hi = false, i, i+len("alue")
	from, ok := b.separator()
	if !ok || b.form > spaced {
		return found
	}
	b.lo = i
	start, end := b.value(from)
	if end <= start || start < a.floor {
		return found
	}
	v := s[start:end]
	if blank(v) || has(stopWords, v) || a.class == countable && (number(v) || !looksRandom(v)) ||
		b.refused(v[:min(len(v), maxJudged)]) || label(a.c.r, v) || !b.quoted && call(v) {
		return found
	}
	return finding{start, end, Marker}
}
