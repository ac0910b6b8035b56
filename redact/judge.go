package redact

import (
	_ "embed" // of the weights
	"slices"
	"strconv"
	"strings"
)

// A secret without a shape of its own is known by what labels it. Each label in a text, the name of a secret, is taken
// through three steps:
//
//   - join.go reads what joins the label to values: a sign, a verb, the border of a cell, a flag of a command.
//   - extent.go finds where a value begins and ends. It is a whole token: a string, a word, a cell, a block.
//   - this file judges each value by a score, the sum of the weights of a few features: what the label promises, how
//     label and value are joined, what the value is, and some marks of each. The weights are in data/weights.txt; a
//     program makes them from a corpus (see weights_test.go).
//
// apart.go leads from labels to values that are elsewhere: in the columns of tables, in pairs of name and value.

// join is how a text joins a label and a value.
type join uint8

const (
	tight    join = iota // KEY=value, ?key=value
	colon                // key: value
	spaced               // key = value
	flag                 // --key value
	setting              // set key value
	pair                 // "key", "value"
	prose                // the key is value
	bare                 // key value
	cell                 // | key | value |
	sure                 // the text around leaves no doubt
	argument             // key("value")
	fallback             // key = f("name") or "value"
	below                // key:␤ value
	item                 // keys: [value, value]
	apart                // name: key, value: value
	headed               // the label heads the column of a table, or names a member of tuples
	joins
)

// mark is something about a label, a value or what is around them that a text either has or not.
type mark uint8

const (
	isQuoted     mark = iota // the value is a string in quotes
	shouts                   // the label is in capitals, as environment variables are
	startsLine               // only indentation, a dash or a quote is before the label in its line
	ends                     // the value ends its line, its sentence or the text
	qualified                // the label has more than one word
	isLong                   // the value has 16 bytes or more
	isShort                  // the value has fewer than six
	hasDigit                 // the value has a digit
	isExpression             // the value goes on as an expression: a call, a sum
	labelQuoted              // the label is in quotes
	isFlag                   // the label is a flag of a command
	isSpoken                 // the label is before a word such as to, of or for
	isOwned                  // the value is assigned to a name that may be another
	isValue                  // the value is assigned to a name such as value
	isAlone                  // the value has a line of its own
	isFollowed               // words follow the value
	hasCapitals              // the value has letters of both cases
	isFamiliar               // the value is made of words that names in programs have
	isListed                 // label and value are a line, and so are two words in the next line or in the one before
	isLater                  // before the value are other arguments, as users and hosts are
	marks
)

// features are what a value is judged by.
type features struct {
	class keyClass
	join  join
	kind  kind
	marks uint32
}

func (f *features) set(k mark, on bool) {
	f.marks &^= 1 << k
	if on {
		f.marks |= 1 << k
	}
}

func (f *features) is(k mark) bool { return f.marks>>k&1 != 0 }

// rows are those of the weights that count for the features.
func (f features) rows(yield func(row int) bool) {
	if !yield(int(f.join)) || !yield(int(joins)+int(f.class)) {
		return
	}
	for k := range marks {
		if f.is(k) && !yield(int(joins)+int(classes)+int(k)) {
			return
		}
	}
}

//go:embed data/weights.txt
var weightsFile string

// weightTable has a row for each join, class and mark, and in it a weight for each kind of a value and for each join.
type weightTable [int(joins) + int(classes) + int(marks)][int(kindCount) + int(joins)]int8

var weights weightTable

func readWeights() (w weightTable) {
	for row, line := range tableRows(weightsFile) {
		for i, field := range strings.Fields(line)[1:] {
			n, _ := strconv.Atoi(field)
			w[row][i] = int8(n)
		}
	}
	return w
}

// score sums the weights of the features: above zero, the value is a secret.
func (f features) score() (sum int) {
	for row := range f.rows {
		sum += int(weights[row][f.kind]) + int(weights[row][int(kindCount)+int(f.join)])
	}
	return sum
}

// mention is a label in a text, and what is learned on the way to its value.
type mention struct {
	c        *scan
	s        string
	lo, hi   int // the label
	class    keyClass
	join     join
	keyed    bool   // the label is in quotes
	quoted   bool   // the value is
	query    bool   // the label is a parameter of a URL
	dashes   bool   // the label is a flag
	path     bool   // the label ends a path
	tag      bool   // the label is an element of XML
	sentence bool   // the label is a phrase of prose
	settled  bool   // what a sign joins is redacted already
	tried    span   // what a sign joins, once it is judged
	pairIn   span   // where the value of a pair may be, whose name the label is
	marks    uint32 // of the label, once asked for
}

// secret decides whether the value s[lo:hi] is to be redacted.
func (m *mention) secret(lo, hi int) bool {
	if hi-lo < 2 || lo < m.c.floor {
		return false
	}
	// A placeholder is no secret under any label, so it is no feature; the rest is left to the weights.
	v := m.s[lo:min(hi, lo+maxJudged)]
	m.tried = span{lo, hi}
	if blank(v) || m.quoted && m.isNext(hi) {
		return false
	}
	f := m.valueFeatures(v, hi)
	if f.kind == aLabel && m.join == bare && m.inRow() { // the next column of a table
		return false
	}
	f.class, f.join = m.class, m.join
	if m.never(f.kind, v, hi) {
		return false
	}
	f.marks |= m.labelMarks()
	if f.score() > 0 && m.captions(f, lo, hi) { // few get here: to look for captions takes longer than the score
		return false
	}
	return m.judged(f, lo, hi)
}

// captions reports whether the value s[lo:hi] is of words for people that name a secret: forgot.password=Passwort
// vergessen?, <string name="error">Falsches Passwort</string>.
func (m *mention) captions(f features, lo, hi int) bool {
	// A command has other words, too: PGPASSWORD=SECRET pg_dump password_db.
	if f.is(hasDigit) || m.join == prose && !m.quoted || m.join == flag || m.join == setting ||
		shouted(m.s[m.lo:m.hi]) {
		return false
	}
	words := m.s[lo:hi]
	if f.is(isFollowed) && !m.quoted {
		words = m.s[hi:until(m.s, hi, 60, ".,:;<>|=\"\n")]
		hi += len(words)
	}
	return says(m.s[lo:hi]) ||
		strings.IndexByte(words, ' ') >= 0 && holdsFold(words, "password", "passphrase", "passcode")
}

// never reports whether the value v of the kind, which ends at hi, is none whatever else speaks for it: a path, an
// algorithm, a typed value; of a header its attributes; after nothing but a space a number, the next name of an object,
// the name of a secret: secret "db-login" not found.
func (m *mention) never(k kind, v string, hi int) bool {
	label := m.s[m.lo:m.hi]
	switch {
	case m.neverLooks(k, v), m.join == cell && m.lo > 0 && oneByteOf("${", m.s[m.lo-1]), // echo $TOKEN | cut -c1-4
		m.join == colon && !m.quoted && k.named() && strings.HasPrefix(m.s[hi:], ",\n") &&
			(k == aCamel || familiar(v)): // Token: actual,
		return true
	case (m.join == item || m.join == headed) &&
		(k == aText || k < aHash && k != aPin && k != aUUID || k.named() && m.c.ownerOf(hi-len(v)) != ""):
		return true // credentials: {region: eu-west-1, version: 2.1}
	case m.join == bare:
		label = strings.TrimRight(label, "sS")
		return k == aNumber || k == aHash && len(v) < 12 && m.class <= countable || // travis [5c249dc]
			m.quoted && strings.HasPrefix(m.s[hi:], `":`) || k.named() && equalFold(label, "secret")
	}
	return m.neverNames(k, label)
}

// isNext reports whether the string that ends at hi is the next name of a hash, 'key' => env('KEY'), 'name' => …, or a
// token of a model.
func (m *mention) isNext(hi int) bool {
	return m.class == countable && ofModel(m.s[hi:]) ||
		strings.HasPrefix(strings.TrimLeft(m.s[min(len(m.s), hi+1):min(len(m.s), hi+4)], " "), "=>")
}

// neverLooks is never for what the value is: also unexpected token `('`, and pass `-Dname`.
func (m *mention) neverLooks(k kind, v string) bool {
	return k == aPath || k.named() && oneByteOf("?&", m.s[m.lo]) ||
		k == aWord && len(v) < 4 && !(m.quoted && m.join <= spaced) ||
		k == aCode && !m.quoted || k == anAlgorithm && len(v) < 24 || strings.HasPrefix(v, "(*") ||
		k == aText && (m.class == weak || m.join != sure && message(v) &&
			!(m.join == tight && m.quoted && holdsFold(m.s[m.lo:m.hi], "phrase"))) ||
		m.class <= countable && !holds(v, alnum|foreign) || m.class == weak && v[0] == '-' && !digits(v)
}

// neverNames reports whether a value of the kind is none that the label names: the secret of a good dough is patience,
// pass to cc1plus2, pin: GPIO17, root / group2, first pass: tokenize.
func (m *mention) neverNames(k kind, label string) bool {
	switch k {
	case aWord:
		if m.join == prose && equalFold(label, "secret") {
			return true
		}
	case aNameDigit:
		if m.class == weak && (m.join > flag || holdsFold(label, "pin")) || strings.HasSuffix(label, "/ ") {
			return true
		}
	case aStop:
		if m.class == credential || m.class == countable || m.class == weak {
			return true
		}
	}
	// credentials('deploy-key') of Jenkins, GetSecret("smtp")
	if m.join == argument && k.named() && (equalFold(label, "credentials") || indexFold(label, "get") == 0) {
		return true
	}
	before, _ := m.wordBefore(m.lo)
	return m.class == weak && has("otherPasses", before)
}

// judged decides by the features of the value s[lo:hi].
func (m *mention) judged(f features, lo, hi int) bool {
	t, score := m.c.r.trace, f.score()
	if t == nil {
		return score > 0
	}
	// Who learns weights knows the secrets: the scan goes on as it would with weights that judge right.
	secret := score > 0
	if t.judge != nil {
		secret = t.judge(f, m.s[lo:hi])
	}
	t.note(Candidate{Start: m.c.v.origin(lo, 0), End: m.c.v.origin(hi, 1), Label: m.s[m.lo:m.hi],
		Kind: columnNames[f.kind], Features: f.explained(), Score: score, Secret: secret})
	return secret
}

// valueFeatures returns those of the value v that ends at end.
func (m *mention) valueFeatures(v string, end int) features {
	s := m.s
	f := features{kind: m.kindOf(v)}
	rest := s[min(len(s), end):min(len(s), end+3)]
	f.set(isQuoted, m.quoted)
	const comment = " */" // its end
	next := rest
	if m.quoted {
		next = strings.TrimLeft(rest, quotes)
	}
	f.set(isFollowed, len(next) > 1 && next[0] == ' ' && class[next[1]]&(letter|foreign) != 0)
	f.set(ends, rest == "" || rest == comment || strings.IndexByte("\n\r", rest[0]) >= 0 || !m.quoted && rest[0] == '"' ||
		strings.IndexByte(".,;)!`*", rest[0]) >= 0 && (len(rest) == 1 || class[rest[1]]&space != 0) ||
		m.quoted && len(rest) > 1 && oneByteOf(");\n", rest[1]))
	f.set(isLong, len(v) >= 16)
	f.set(isShort, len(v) < 6)
	f.set(hasDigit, digits(v))
	f.set(hasCapitals, holds(v, upper) && holds(v, lower))
	f.set(isFamiliar, familiar(v))
	// A bracket, a dot and a letter, or a space and an operator go on with an expression, of which the value is the head.
	f.set(isExpression, !m.quoted && rest != "" && (strings.IndexByte("([{.", rest[0]) >= 0 &&
		(rest[0] != '.' || len(rest) > 1 && class[rest[1]]&letter != 0) ||
		rest[0] == ' ' && len(rest) > 1 && rest != comment && strings.IndexByte("-=(+?|&*<>{\"'", rest[1]) >= 0))
	return f
}

// labelMarks returns those of the label. They are the same for each of its values, and worked out for the first.
func (m *mention) labelMarks() uint32 {
	const known = 1 << 31
	if m.marks&known == 0 {
		label := m.s[m.lo:m.hi]
		f := features{marks: known}
		f.set(shouts, shouted(label))
		f.set(startsLine, m.startsLine())
		f.set(qualified, wordFrom(label, 0, len(label)) < len(label))
		f.set(labelQuoted, m.keyed)
		f.set(isFlag, m.dashes)
		f.set(isListed, m.join == bare && m.listed())
		next := skip(m.s, m.hi, m.hi+1, " ")
		f.set(isSpoken, next > m.hi && has("linking", m.s[next:run(m.s, next, lower)]))
		m.marks = f.marks
	}
	return m.marks &^ known
}

// listed reports whether the label and a word are a line, and two words are the line before or the next, as in the
// configuration of many programs.
func (m *mention) listed() bool {
	twoWords := func(line string) bool {
		line = strings.TrimSpace(line)
		end := run(line, 0, slug|dot)
		value := strings.TrimLeft(line[end:], " \t")
		return end > 0 && value != "" && len(value) < len(line)-end && strings.IndexByte(value, ' ') < 0 &&
			!oneByteOf(".,:;!?{", value[len(value)-1])
	}
	from, to := m.c.line(m.lo)
	if !twoWords(m.s[from:to]) {
		return false
	}
	next := min(len(m.s), to+1)
	return twoWords(m.c.lineBefore(from)) || twoWords(m.s[next:until(m.s, next, maxKey, "\n")])
}

// shouted reports whether s has no lower-case letter.
func shouted(s string) bool { return !holds(s, lower) }

// startsLine reports whether only indentation, a list's dash or a quote precedes the label in its line, or in the
// string of JSON that it is in.
func (m *mention) startsLine() bool {
	from := skipBack(m.s, m.lo, max(0, m.lo-maxHead), " \t-\"'")
	return from == 0 || m.s[from-1] == '\n' || m.s[from-1] == ':' && m.s[from] == '"'
}

// named finds the value of the key that e found at begin, where it is a secret.
func (c *scan) named(e *entry, begin int) bool {
	at := begin + e.from
	lo, hi := keySpan(c.s, c.floor, at, e.n)
	// Of markers only that of an id leads on: its key is beside it.
	if hi <= lo || strings.HasSuffix(c.s[:lo], "[redacted:") && c.s[lo:hi] != "aws-key" {
		return false
	}
	class := c.r.classify(c.s[lo:hi])
	if class == notSecret {
		return false
	}
	c.labels = append(c.labels, label{lo, hi, class.String()})
	m := &c.m
	*m = mention{c: c, s: c.s, lo: lo, hi: hi, class: class}
	i, ok := m.sign()
	if m.join == bare && strings.HasPrefix(c.s[hi:], "]") { // [redacted:aws-key] SECRET
		m.join = setting
	}
	if !ok && !m.inRow() && !m.hasTokens() {
		return false // most mentions end here
	}
	if ok && strings.HasPrefix(c.s[skip(c.s, i, i+1, quotes):], Marker) {
		return false // its secret is gone
	}
	return m.secretAt(i, ok)
}

// secretAt finds the value at i, where one is joined to the label, or the secret that belongs to it elsewhere.
func (m *mention) secretAt(i int, joined bool) bool {
	n := len(m.c.found)
	if joined && m.parallel() {
		return len(m.c.found) > n
	}
	if joined && m.joined(i) {
		return true
	}
	// The password to the server is SECRET: the first of the words that may lead to a value has led to none.
	if joined && m.join == prose && m.sentence {
		if next, ok := m.statement(skip(m.s, m.wordEnd(i), len(m.s), " ")); ok && next > i && next < len(m.s) &&
			m.joined(skip(m.s, next, len(m.s), " ")) {
			return true
		}
	}
	return m.elsewhere()
}

// joined finds the value at i where it is a secret, or what is the default of a variable there.
func (m *mention) joined(i int) bool {
	lo, hi := m.value(i)
	if lo < m.c.floor || hi == 0 {
		return false
	}
	v := m.s[lo:max(lo, hi)]
	// What is redacted already has had its secret, and tokens that are counted have none: nothing near it is looked at for
	// the same label.
	m.settled = v != "" && (marked(v) || m.class == countable && number(v)) || strings.HasPrefix(v, "ENC[") // of SOPS
	// Where nothing but a value can be, as in an element of XML, it goes whatever it looks like.
	if m.join == sure && !blank(v) && !(m.tag && filePath(v)) && !(m.class == countable && message(v)) ||
		m.secret(lo, hi) {
		m.c.note(lo, hi, Marker)
		m.others(hi)
		return true
	}
	if k := strings.Index(v, ":-"); k > 0 && v[0] == '$' { // ${NAME:-default}
		m.join = fallback
		return m.found(lo+k+2, skipBack(m.s, hi, lo+k+2, "}"))
	}
	return false
}

// others notes what a sentence names after the secret that ends at i and looks like one, too: from SECRET to SECRET.
func (m *mention) others(i int) {
	for m.join == prose || m.join == bare || m.join == colon || m.quoted {
		i = skip(m.s, i, i+1, quotes)
		if lo, hi := m.continued(i); hi > 0 {
			if !m.found(lo, hi) {
				return
			}
			i = hi
			continue
		}
		if m.quoted && m.join != prose && !strings.HasPrefix(m.s[i:], " -> ") { // a change that Terraform plans
			return
		}
		next := 0
		if k := slices.IndexFunc(words["others"], func(w string) bool { return strings.HasPrefix(m.s[i:], w) }); k >= 0 {
			next = len(words["others"][k])
		} else if strings.HasPrefix(m.s[i:], " ") && m.wordEnd(i+1)-i-1 == m.tried.hi-m.tried.lo {
			next = 1 // codes of one length: 9fkw2mbx1q 6vqj0b6qtq
		} else {
			return
		}
		lo := skip(m.s, i+next, len(m.s), quotes)
		if i = lo; lo < len(m.s) {
			i = max(lo, m.wordEnd(lo))
		}
		if i-lo < 8 || blank(m.s[lo:i]) {
			return
		}
		if k := m.kindOf(m.s[lo:i]); !k.made() || !m.found(lo, i) {
			return
		}
	}
}

// continued returns the bounds of the string that continues the one whose quote ends at i: "SEC" \␤ "RET". They are 0
// where there is none.
func (m *mention) continued(i int) (lo, hi int) {
	next := skip(m.s, i, len(m.s), " ")
	if !m.quoted || m.join > spaced || next == i || next == len(m.s) || !oneByteOf(quotes, m.s[next]) ||
		m.s[next] != m.s[i-1] {
		return 0, 0
	}
	return next + 1, m.c.closing(next)
}

// found finds s[lo:hi] where it is a secret.
func (m *mention) found(lo, hi int) bool { return m.secret(lo, hi) && m.c.note(lo, hi, Marker) }
