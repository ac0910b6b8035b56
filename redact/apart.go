package redact

import (
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// elsewhere finds the secret that belongs to the label though no sign joins them: the value of a name, what was to be
// used as it, what is below it in a table.
func (m *mention) elsewhere() bool {
	if m.heads() {
		to := m.c.eol(m.hi)
		// [passwords]␤db = SECRET␤web = SECRET␤[next section]
		m.items(to, to+strings.Index(m.s[to:]+"\n[", "\n["))
	} else if m.inRow() {
		m.c.table(m)
	}
	m.tuples()
	return !m.settled && m.hasTokens() && (m.valueOfPair() || m.defaulted()) || m.returned()
}

// tuples notes the secrets in the tuples whose members the label names with others: INSERT INTO users (name, password)
// VALUES ('bob', 'SECRET'), struct{ user, pass string }{{"bob", "SECRET"}}.
func (m *mention) tuples() {
	const brackets = "(){}\"'"
	s, end := m.s, until(m.s, m.hi, maxPair, brackets)
	if end == len(s) || !oneByteOf(")}\"'", s[end]) {
		return
	}
	open := since(s, m.lo, max(m.c.floor, m.lo-maxPair), brackets)
	if open == 0 || !oneByteOf("({\"'", s[open-1]) {
		return
	}
	names, column, at := 0, -1, open
	for name := range strings.FieldsFuncSeq(s[open:end], func(c rune) bool { return c == ',' || c == ';' }) {
		if run(name, 0, keyBytes|space) < len(strings.TrimRight(name, "`[]")) {
			return
		}
		if at += len(name) + 1; at > m.lo && column < 0 {
			column = names
		}
		names++
	}
	next := skip(s, end+1, end+40, blanks+",:")
	if word := run(s, next, letter); equalFold(s[next:word], "values") {
		next = skip(s, word, word+40, blanks)
	}
	if names < 2 || next == len(s) || !oneByteOf("([{", s[next]) {
		return
	}
	for limit := min(len(s), next+maxHeader); next < limit && m.c.afford(8); next++ {
		switch b := s[next]; {
		case oneByteOf("([{", b):
			next = m.tuple(next+1, -1, names, column)
		case !oneByteOf(blanks+",&", b):
			return
		}
	}
}

// parallel notes the string that is assigned to the label where several are to several names: user, password = "bob",
// "SECRET". It reports whether there are such names.
func (m *mention) parallel() bool {
	from, to := m.c.line(m.lo)
	before := skipBack(m.s, m.lo, from, " $*")
	if (before == from || m.s[before-1] != ',') && !strings.HasPrefix(m.s[m.hi:], ",") {
		return false // most labels
	}
	sign := until(m.s[:to], m.hi, maxKey, "=\"'")
	if sign >= to-1 || m.s[sign] != '=' || !oneByteOf(" :", m.s[sign-1]) {
		return false
	}
	names := m.s[from:sign]
	if run(names, 0, keyBytes|space|comma|colonAt|dollar) < len(names) {
		return false
	}
	m.tuple(sign+1, to, strings.Count(names, ",")+1, strings.Count(m.s[from:m.lo], ","))
	return true
}

// tuple notes the secret in a column of the tuple at i, if that has as many members as names, and returns where it
// ends, at to or with a bracket, or where the first of the tuples in it begins.
func (m *mention) tuple(i, to, names, column int) int {
	var found span
	n := 0
	for end := min(len(m.s), i+maxPair); i < end || i == to; i++ {
		switch {
		case i == to || oneByteOf(")}]", m.s[i]):
			if n+1 == names || n == names && oneByteOf(blanks+",", m.s[i-1]) {
				m.join, m.quoted = headed, true
				m.found(found.lo, found.hi)
				return i
			}
		case oneByteOf(quotes, m.s[i]):
			stop := m.c.closing(i)
			if n == column && found.hi == 0 {
				found = span{i + 1, stop}
			}
			i = stop
		case m.s[i] == ',':
			n++
		case m.s[i] == '{' || m.s[i] == '[':
			return i - 1
		}
	}
	return i
}

// returned finds the string that a function returns where the variable that it looks up is not set:
// if v := os.Getenv("PASSWORD"); v != "" {␤return v␤}␤return "SECRET".
func (m *mention) returned() bool {
	const sign = `return "`
	k := strings.Index(m.s[m.hi:min(len(m.s), m.hi+maxStatement)], sign)
	if k < 0 || !m.keyed || m.class <= keyed || !m.looksUp(&token{lo: m.lo, hi: m.lo}) {
		return false
	}
	lo := m.hi + k + len(sign)
	m.join, m.quoted = fallback, true
	return m.found(lo, m.c.closing(lo-1))
}

// heads reports whether the label ends the name of a section of an INI file: [passwords].
func (m *mention) heads() bool {
	_, to := m.c.line(m.lo)
	from := m.c.head(m.lo) // [passwords] may begin a string of JSON
	return m.s[from] == '[' && run(m.s, from+1, keyBytes|space) >= m.hi && strings.TrimRight(m.s[m.hi:to], blanks) == "]"
}

// token is a piece of a text that may be a value: a string in quotes, or a word that no language has.
type token struct {
	lo, hi int
	f      features // those that it has whatever its label is
}

// maxStatement bounds how far apart a label and a value in its statement are.
const maxStatement = 160

// defaulted finds the string in the label's statement that stands in for a value: getenv("PASSWORD") or "SECRET".
func (m *mention) defaulted() bool {
	stop := m.reach()
	for n := range m.c.tokens {
		t := &m.c.tokens[n]
		if t.lo >= m.hi && t.lo < min(stop, m.hi+maxStatement) && t.f.is(isQuoted) && m.defaults(t.lo-1) &&
			m.near(t, fallback) {
			return true
		}
	}
	return false
}

// reach returns the end of what the default of the label may be in.
func (m *mention) reach() int {
	from, to := m.c.line(m.lo)
	// Lines that begin with an operator go on with the statement: ?? "SECRET". Its first byte is asked first, as every
	// label asks.
	for to < m.hi+maxStatement {
		next := jsonscan.Space(m.s, to)
		if next == len(m.s) || !oneByteOf("|?o", m.s[next]) {
			break
		}
		line := m.s[next:m.c.eol(next)]
		if !strings.ContainsAny(line, quotes) || !slices.ContainsFunc(words["orElse"], func(w string) bool {
			return strings.HasPrefix(line, strings.TrimSpace(w)+" ")
		}) {
			break
		}
		to = next + len(line)
	}
	// A member of an object of JSON owns nothing in the next object of the same line, nor in the one before.
	if lo := skip(m.s, m.hi, m.hi+1, quotes); lo > m.hi && lo < to && oneByteOf(":,", m.s[lo]) {
		// .option('password', { default: 'SECRET' }) has the object as the next argument.
		lo = skip(m.s, lo, lo+3, ", {")
		return until(m.s, lo, to-lo, "{}[];")
	}
	// Nor does a word in a string of JSON own what is behind that string, unless it asks for it.
	if head := m.c.head(m.lo); head > from && !m.keyed {
		if end := m.c.closing(head - 1); end > m.hi && m.s[end-1] != '?' {
			to = min(to, end)
		}
	}
	return to
}

// defaults reports whether the string at i is what stands in for the value of the label: getenv("PASSWORD") or "SECRET".
func (m *mention) defaults(i int) bool {
	between := m.s[m.hi:skipBack(m.s, i, max(m.hi, i-4), " ")]
	ends := func(w string) bool { return strings.HasSuffix(between, w) }
	if slices.ContainsFunc(words["orElse"], ends) {
		// An operator has one operand before it: in (password=f(), user=g() or "bob") that is another's.
		comma := strings.LastIndexByte(between, ',')
		return comma < 0 || !nameFollows(m.s, skip(m.s, m.hi+comma+1, i, " "))
	}
	return slices.ContainsFunc(words["fallbacks"], ends)
}

// valueOfPair finds the value in a pair of name and value of which the label is the name.
func (m *mention) valueOfPair() bool {
	for n := range m.c.tokens {
		t := &m.c.tokens[n]
		if t.f.is(isValue) && m.pairs() && t.lo >= m.pairIn.lo && t.hi <= m.pairIn.hi && m.near(t, apart) {
			return true
		}
	}
	return false
}

// hasTokens reads the tokens of the label's statement, and reports whether there are any.
func (m *mention) hasTokens() bool {
	from, to := m.c.line(m.lo)
	from, to = max(from, m.lo-maxStatement), min(m.below(to), m.hi+2*maxStatement)
	if m.pairs() {
		from, to = min(from, m.pairIn.lo), max(to, m.pairIn.hi)
	}
	m.c.readTokens(from, to)
	return len(m.c.tokens) > 0
}

// below returns the end of the first line after the one that ends at to which is not empty, nor drawn below the head
// of a table.
func (m *mention) below(to int) int {
	i := skip(m.s, to, to+8, blanks)
	// user | password␤-----+-----
	if end := skip(m.s, i, i+maxKey, "-="); end > i+2 && end < len(m.s) && m.s[end] == '\n' {
		i = end + 1
	}
	return min(m.c.eol(i), i+maxStatement)
}

// near finds the token where it is the secret of the label.
func (m *mention) near(t *token, by join) bool {
	if t.lo == m.tried.lo && t.hi == m.tried.hi || t.lo < m.c.floor || t.lo < m.hi && t.hi > m.lo ||
		m.farFrom(t, by) || m.c.ownedApart(t.lo) {
		return false
	}
	f := t.f
	f.join, f.class = by, m.class
	f.marks |= m.labelMarks()
	return m.judged(f, t.lo, t.hi) && m.c.note(t.lo, t.hi, Marker)
}

// farFrom reports whether the token is of a kind that needs a nearer label to be its secret.
func (m *mention) farFrom(t *token, by join) bool {
	switch k := t.f.kind; {
	case k == aPin || k == aUUID:
		return t.f.is(isOwned) || m.class <= countable && k == aPin
	case by == argument || by == fallback:
		return false
	default:
		return k < aHash || k == aWords || by != apart && m.ordinary(t.f)
	}
}

// ordinary reports whether a token is of words, or a name as programs have it.
func (m *mention) ordinary(f features) bool {
	k := f.kind
	return k == aText || k == aWord || k.named() && k != aPhrase && k != aNumbered &&
		(f.is(isFamiliar) || m.class < secret)
}

// ownedApart reports whether what is at i is the value of a name that has no secrets: host=…, wifi_ssid = …,
// credentialsId: …, secretName: …, for user "…", but not name: ….
func (c *scan) ownedApart(i int) bool {
	last, owner := "", c.ownerOf(i)
	if owner == "" {
		end := skipBack(c.s, i, max(c.floor, i-3), " \"'")
		if word := runBack(c.s, end, max(c.floor, end-12), lower); end < i && has("ofNames", c.s[word:end]) {
			return true
		}
	}
	for w := range splitWords(owner) {
		last = w
	}
	return has("ofLinks", last) || len(last) < len(owner) && equalFold(last, "name")
}

// readTokens has c.tokens be those between from and to. What was read for the label before is not read again.
func (c *scan) readTokens(from, to int) {
	if from < c.tokensFrom {
		c.tokens, c.tokensTo = c.tokens[:0], from
	}
	c.tokensFrom = from
	drop := 0
	for drop < len(c.tokens) && c.tokens[drop].lo < from {
		drop++
	}
	c.tokens = c.tokens[:copy(c.tokens, c.tokens[drop:])]
	for i := max(from, c.tokensTo); i < to; c.tokensTo = i {
		i = c.readToken(i, to)
	}
}

// readToken notes the token at i, if one is there, and returns where the next may be.
func (c *scan) readToken(i, to int) int {
	s := c.s
	switch b := s[i]; {
	case oneByteOf(quotes, b):
		return c.readString(i)
	case class[b]&apartBy != 0:
		return i + 1
	}
	end, seen := i, charset(0)
	for ; end < len(s) && class[s[end]]&apartBy == 0 && !border(s, i, end); end++ {
		seen |= class[s[end]]
	}
	v := s[i:end]
	if k := strings.IndexByte(v, '&'); k > 0 && nameFollows(s, i+k+1) { // a=1&b=2
		end, v = i+k, v[:k]
	}
	// Most words have no digit and are words of a language: they are tokens only as the values of pairs.
	if seen&(digit|dash|equals|colonAt) == 0 && c.ownerOf(i) == "" && !byChance(v, 40) && !has("popular", v) &&
		!composed(v) ||
		strings.Count(v, ":") > 2 || strings.HasPrefix(v, "h1:") || // the name of a resource, a checksum of Go
		indexFold(v, "sha256:") == 0 || strings.HasPrefix(s[end-1:], `="`) { // autocomplete="off"
		return end
	}
	// Of name=value the value is the token; signs at the end of Base64 are part of it.
	k := valueIn(v)
	lo, hi := skip(s, i+k, end, "*_"), skipBack(s, end, i+k, ".:?!*_")
	if v = s[lo:max(lo, hi)]; v != "" && !oneByteOf("-/$.~%@\\", v[0]) &&
		(len(v) >= 6 && (digits(v) || strings.Count(v, "-") >= 2 || byChance(v, 40) || composed(v)) ||
			ofValue(c.ownerOf(lo))) {
		c.addToken(lo, hi, false)
	}
	return end
}

// valueIn returns where the value of v begins if that is name=value, 0 if it is none.
func valueIn(v string) int {
	if severalSigns(v) || strings.ContainsAny(v[:max(0, strings.IndexAny(v, "=:"))], passwordMarks) {
		return 0
	}
	return strings.LastIndexAny(strings.TrimRight(v, "="), "=:") + 1
}

// readString notes the string that begins at i, as readToken does. It is one token, however many words it has. Where it
// has some, its words are tokens, too: a password may be said in a message that is itself a string.
func (c *scan) readString(i int) int {
	s := c.s
	if i > 1 && s[i-1] == '[' && class[s[i-2]]&word != 0 { // environ["PASSWORD"]
		return min(len(s), c.closing(i)+1)
	}
	if c.closesString(i) || i > 0 && class[s[i-1]]&alnum != 0 && (i < 2 || class[s[i-2]]&alnum != 0) {
		return i + 1 // or an apostrophe
	}
	end := c.closing(i)
	if end == len(s) || s[end] != s[i] || end-i > maxJudged {
		return i + 1
	}
	next := strings.TrimLeft(s[end+1:min(len(s), end+4)], " ")
	before := skipBack(s, i, max(c.floor, i-maxKey), blanks)
	named := end+1 < len(s) && s[end+1] == ':' && (before == 0 || oneByteOf("{,", s[before-1]))
	if !named && !strings.HasPrefix(next, "=>") { // no name of JSON
		c.addToken(i+1, end, true)
	}
	if strings.ContainsAny(s[i+1:end], wordStops+",") { // it has words
		return i + 1
	}
	return end + 1
}

// border reports whether what begins at i ends at end since another script begins there, of languages without spaces
// between words: 用SECRET作为令牌.
func border(s string, i, end int) bool {
	return (class[s[i]]^class[s[end]])&foreign != 0 && max(s[i], s[end]) >= 0xe3
}

// addToken notes the token s[lo:hi] with the features that do not depend on its label.
func (c *scan) addToken(lo, hi int, quoted bool) {
	v := c.s[lo:hi]
	if !c.unusual(lo, hi) {
		return
	}
	after := strings.TrimLeft(c.s[hi:min(len(c.s), hi+4)], "`")
	end := run(v, 0, word)
	if len(v) < 4 || blank(v) || strings.HasPrefix(c.s[hi:], "...") ||
		!quoted && strings.HasPrefix(c.s[hi:], "(") || strings.HasPrefix(after, "](") ||
		quoted && end > 1 && strings.HasPrefix(strings.TrimRight(v[end:], "="), "=") && !strong(v[:end]) {
		return // what is called, what a link says and "NAME=value" are no secrets
	}
	m := &c.cell
	*m = mention{c: c, s: c.s, quoted: quoted}
	f := m.valueFeatures(v, hi)
	// Who owns the token is the strongest sign against it: in id=x1 token the x1 is an id.
	before := skipBack(c.s, lo, max(c.floor, lo-4), " "+quotes)
	owner := c.ownerOf(lo)
	f.set(isValue, ofValue(owner))
	f.set(isOwned, before > 0 && oneByteOf("=:", c.s[before-1]) && !ofValue(owner) && !lists["defaults"][owner])
	if !quoted && lo > 0 && (oneByteOf("([{.&*<+!", c.s[lo-1]) || hi < len(c.s) && oneByteOf(",)", c.s[hi]) &&
		before > 0 && oneByteOf(",(", c.s[before-1])) {
		f.set(isExpression, true)
	}
	from, to := since(c.s, lo, max(0, lo-maxKey), "\n"), until(c.s, hi, maxKey, "\n")
	if !quoted { // the string of JSON that it is in may end
		to = until(c.s[:to], hi, maxKey, `"`)
	}
	head := strings.TrimSuffix(strings.TrimRight(c.s[from:lo], wordStops), "=>")
	f.set(isAlone, len(head) <= 24 && !strings.ContainsAny(head, "={") && strings.Trim(c.s[hi:to], wordStops+",") == "")
	c.tokens = append(c.tokens, token{lo, hi, f})
}

// ownerOf returns the name that what is at i is assigned to.
func (c *scan) ownerOf(i int) string {
	sign := skipBack(c.s, i, max(c.floor, i-4), " "+quotes)
	if sign == 0 || !oneByteOf("=:", c.s[sign-1]) {
		return ""
	}
	end := skipBack(c.s, sign-1, max(c.floor, sign-12), " "+quotes)
	return c.s[runBack(c.s, end, max(c.floor, end-16), slug):end]
}

// ofValue reports whether owner is the name of the value in a pair of name and value. Most words have no owner.
func ofValue(owner string) bool {
	return owner != "" && (lists["valueWords"][owner] || strings.HasSuffix(owner, "Value"))
}

// columnSigns are between the columns of tables, in the header and in the rows: lines, which no code has, and others.
var columnSigns = [...]struct{ header, rows string }{{"!!", "||"}, {"||", "|"}, {"|", "|"}, {"│", "│"}, {"║", "║"},
	{"┃", "┃"}, {"\t", "\t"}, {";", ";"}, {",", ","}, {aligned, aligned}}

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
	return lo <= m.c.head(m.lo) || oneByteOf(borders+" !", s[lo-1]) || s[lo-1] >= 0x80 || class[s[lo-1]]&slug != 0
}

// table notes the secrets in the columns below a header that the label is a cell of. The rows are read once, whatever
// labels their header has.
func (c *scan) table(m *mention) {
	from, to := c.line(m.lo)
	// All labels of a header lead here, and its first one has read the table.
	if from < c.tables || to-from > 2<<10 {
		return
	}
	c.tables = to + 1
	c.looked += to - from
	end := len(c.s)
	// In a string of JSON the table ends with the string.
	if head := c.head(m.lo); head > from {
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
				promise = spokenOf
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

// row notes the secrets of the row at at, of a table that ends at end, and reports whether it is one.
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
		if c.columns[n] != notSecret && (sign != aligned || strings.IndexByte(c.s[at+v.lo:at+v.hi], ' ') < 0) {
			c.cell = mention{c: c, s: c.s, lo: at, hi: at, class: c.columns[n], join: headed}
			lo, _ := elements(c.s, at+v.lo, "<") // <code>SECRET</code>
			c.cell.quoted = oneByteOf(quotes, c.s[max(0, lo-1)])
			c.cell.found(lo, until(c.s, lo, at+v.hi-lo, "<"))
		}
	}
	return true
}

// pairLabel returns where the label of the name begins in a pair of name and value, or -1: where "name" is, of
// {"name": "password", "value": "SECRET"}. Environments of containers, parameters of CloudFormation, cookies of
// browsers and forms in HAR files are lists of such pairs, in JSON, YAML and XML.
func (m *mention) pairLabel() int {
	s, i := m.s, since(m.s, m.lo, max(m.c.floor, m.lo-maxKey), "\"\n")
	if owner := m.c.ownerOf(i); owner != "" && s[i-1] == '"' && lists["nameWords"][owner] && m.class >= secret &&
		(oneByteOf("\"?:", s[min(m.hi, len(s)-1)]) || strings.HasPrefix(s[m.hi:], " for ")) {
		return i // "name": "Root password"
	}
	i = runBack(s, m.lo, max(m.c.floor, m.lo-maxKey), slug|dot|plusSlash) // /spec/password
	i = skipBack(s, i, max(m.c.floor, i-24), " \t\"'#")
	end := skipBack(s, skipBack(s, i, max(m.c.floor, i-1), ":="), max(m.c.floor, i-16), " \t\"'")
	if i = runBack(s, end, max(m.c.floor, end-16), word); !lists["nameWords"][s[i:end]] {
		return -1
	}
	return i
}

// maxPair is how far apart name and value may be.
const maxPair = 400

// pairs reports whether the label is the name in a pair of name and value, or is declared by a block, and notes where
// the value may be: no other item begins between them.
func (m *mention) pairs() bool {
	if s, x := m.s, &m.pairIn; x.hi == 0 { // it is asked more than once
		x.hi = -1
		if label := m.pairLabel(); label >= 0 || m.startsLine() && (strings.HasPrefix(s[m.hi:], ":\n") ||
			strings.Contains(s[m.hi:min(len(s), m.hi+maxStatement)], ", input_value=")) { // in an error of Pydantic
			*x = span{m.lo, until(s, skip(s, m.hi, m.hi+4, "\" {"), maxPair, "{}<>")}
			// "value":{"arrayValue":{"values":[{"stringValue": … of an attribute of OpenTelemetry
			for range 3 {
				v := strings.TrimRight(s[m.hi:x.hi], `":[ `)
				if !strings.HasSuffix(v, `"value`) && !strings.HasSuffix(v, `"values`) &&
					!strings.HasSuffix(v, `"arrayValue`) {
					break
				}
				x.hi = until(s, min(len(s), x.hi+1), maxPair, "{}<>")
			}
			if next := strings.Index(s[m.hi:x.hi], "- "); next >= 0 {
				x.hi = m.hi + next
			}
			if label >= 0 {
				x.lo = since(s, label, max(m.c.floor, label-maxPair), "{}<>")
				x.lo += strings.LastIndex(s[x.lo:label], "- ") + 1
			}
		}
	}
	return m.pairIn.hi > 0
}
