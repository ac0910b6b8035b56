package redact

import "strings"

// Secrets that no rule finds by their shape are found by their names. A literal of a key's
// name in a text is taken through these stages, each in a file of its own:
//
//   - keyspan.go finds the whole key around the literal, and of which class it is.
//   - operator.go reads what joins the key to a value: a sign, a verb, a cell's border.
//   - extent.go finds where the value begins and ends.
//   - accept.go decides by the class, the form and the value whether it is a secret.
//   - table.go finds values that are apart from their names: in columns, in pairs.
//
// This file leads through them.

// form is how a text gives a key its value; it decides how far a value must look like
// a secret.
type form uint8

const (
	tight   form = iota // KEY=value, ?key=value
	colon               // key: value
	spaced              // key = value
	flag                // --key value
	setting             // set key value
	pair                // "key", "value"
	prose               // the key is value
	bare                // key value
	cell                // | key | value |
	sure                // the text around leaves no doubt
)

// What is looked at around a key is bounded, so that no text makes the work grow with
// the square of its length.
const (
	maxHeader = 8 << 10 // of a header's value
	maxJudged = 256     // of a value, to report what it is
)

// assign finds the value that a text gives to the key that e found at begin, where it
// is one to redact.
func (c *scan) assign(e *entry, begin int) (found finding) {
	at := begin + e.from
	lo, hi := c.keyAround(at, e.n)
	if hi <= lo {
		return found
	}
	a := &c.a
	*a = assignment{c: c, s: c.s, floor: c.floor, lo: lo, hi: hi, marker: Marker}
	i, ok := a.separator()
	if !ok && !a.inRow() && !a.inPair() && !a.called() && !a.inserts() {
		return found // most mentions end here, before the key is looked at
	}
	a.lo, a.class = c.r.classifyAt(c.s, lo, hi, at, e)
	if a.class == notSecret {
		return found
	}
	if ok {
		if found = a.assigned(i); found.end > 0 {
			return found
		}
	}
	return a.beside()
}

// assigned returns the value at i if it is a secret.
func (a *assignment) assigned(i int) (found finding) {
	s := a.s
	for tries, ok := 0, true; ok && tries < 2; tries++ {
		start, end := a.value(i)
		if start < a.floor || end <= start {
			return found
		}
		if a.secret(s[start:end], end) {
			return finding{start, end, a.marker}
		}
		if marked(s[start:end]) {
			return found // no type of another value
		}
		if lo, hi := a.argument(start, end); hi > lo {
			return finding{lo, hi, a.marker}
		}
		// password: str = "…" gives a type first.
		i = skip(s, end, end+8, " ]")
		if a.form == colon && strings.HasPrefix(s[i:], "/ ") { // credentials: name / …
			a.form = bare
			i += 2
			continue
		}
		ok = a.form == colon && !a.quoted && i+1 < len(s) && s[i] == '=' && s[i+1] != '='
		if ok {
			a.form = spaced
			for i++; i < len(s) && s[i] == ' '; i++ {
			}
		}
	}
	return found
}

// argument returns the string that the value s[start:end] is made of: String::from("…").
func (a *assignment) argument(start, end int) (lo, hi int) {
	if call := a.s[start:end]; !strings.HasSuffix(call, "(") || reads(call) {
		return 0, 0
	}
	lo, hi = a.c.quotedAfter(end)
	if v := a.s[lo:hi]; len(v) < 8 || label(a.c.r, v) || !made(v) {
		return 0, 0
	}
	return lo, hi
}

// reads reports whether a call, by its name, gets a value rather than makes one of its
// argument.
func reads(call string) bool {
	for _, verb := range [...]string{"env", "get", "read", "load", "find", "look", "open", "quer", "select", "prompt",
		"input", "test", "assert", "expect"} {
		if indexFold(call, verb) >= 0 {
			return true
		}
	}
	return false
}

// beside returns the secret that belongs to the key though no sign joins them: what is
// below it in a table, the value of a name, what was to be used as it.
func (a *assignment) beside() finding {
	if a.inRow() {
		a.c.table(a.lo)
	}
	if a.inserts() {
		a.c.inserted(a.lo)
	}
	if a.declared() {
		return a.byDefault()
	}
	if f := a.paired(); f.end > 0 {
		return f
	}
	return a.usedAs()
}

// assignment is the place of a key in a text, and what is learned on the way to its
// value.
type assignment struct {
	c         *scan
	s         string
	floor     int
	lo, hi    int // the key
	class     keyClass
	form      form
	keyQuoted bool
	quoted    bool // the value
	query     bool // the key is a parameter of a URL
	dashes    bool // the key is a flag
	path      bool // the key ends a path
	tag       bool // the key is an element of XML
	marker    string
	scheme    bool // Bearer or its like is before the value
}

// usedAs returns what is before the key and is to be used as it: "use … as the
// token", "… is the password".
func (a *assignment) usedAs() (found finding) {
	if a.class < weak || !a.called() {
		return found
	}
	w, at := a.wordBefore(a.lo)
	for n := 0; n < 3 && !joins[w]; n++ {
		w, at = a.wordBefore(at)
	}
	s, end := a.s, skipBack(a.s, at, max(a.floor, at-3), " `\"'*")
	start := since(s, end, max(a.floor, end-maxJudged), wordStops)
	if start == end {
		return found
	}
	if k := strings.LastIndexByte(s[start:end], ':'); k > 0 {
		start += k + 1 // admin:… are the credentials
	}
	v := s[start:end]
	if a.class == countable && len(v) < 16 || !made(v) {
		return found
	}
	return finding{start, end, Marker}
}

// joins are the words between a secret and the key it is for.
var joins = wordSet("as is are")

// called reports whether the words before the key may join it to what is before them.
func (a *assignment) called() bool {
	return a.lo >= 4 && a.s[a.lo-1] == ' ' && a.follows(joins, owners)
}

// owners are the words between one of joins and the key.
var owners = wordSet("the a my your our its bearer access root admin")
