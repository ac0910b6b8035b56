package redact

import "strings"

// form is how a text gives a key its value; it decides how far a value must look like
// a secret.
type form uint8

const (
	tight  form = iota // KEY=value, ?key=value
	colon              // key: value
	spaced             // key = value
	flag               // --key value
	told               // set key value
	pair               // "key", "value"
	prose              // the key is value
	bare               // key value
	cell               // | key | value |
	sure               // the text around leaves no doubt
)

// What is looked at around a key is bounded, so that no text makes the work grow with
// the square of its length.
const (
	maxHeader = 8 << 10 // of a header's value
	maxJudged = 256     // of a value, to tell what it is
)

// keyBytes may be part of a key in text.
const keyBytes = slug | dot

// keySpan returns the bounds of the key around s[at:at+n]; none when the word goes on
// and is another: tokens, tokenizer, secretary. Only a plural may.
func keySpan(s string, floor, at, n int) (lo, hi int) {
	lo, hi = at, at+n
	if goesOn(s, at, hi) {
		return 0, 0
	}
	for lo > floor && class[s[lo-1]]&keyBytes != 0 {
		if lo--; at-lo > maxKey {
			return 0, 0
		}
	}
	for hi < len(s) && class[s[hi]]&keyBytes != 0 {
		if hi++; hi-at > maxKey {
			return 0, 0
		}
	}
	return trimKey(s, lo, hi, at, n)
}

// goesOn reports whether the word s[at:hi] goes on as another, or counts: "tokens": 12.
func goesOn(s string, at, hi int) bool {
	return continues(s, hi) && (s[hi]|0x20 != 's' || continues(s, hi+1) || counted(s, hi+1))
}

// counted reports whether a number is assigned to the name that ends at i.
func counted(s string, i int) bool {
	for i < len(s) && (s[i] == '"' || s[i] == '\\') {
		i++
	}
	if i == len(s) || s[i] != ':' && s[i] != '=' {
		return false
	}
	for i++; i < len(s) && s[i] == ' '; i++ {
	}
	return i < len(s) && class[s[i]]&digit != 0
}

func trimKey(s string, lo, hi, at, n int) (int, int) {
	for hi > at+n && class[s[hi-1]]&(dash|dot) != 0 {
		hi--
	}
	for lo < at && class[s[lo]]&(dash|dot) != 0 {
		lo++
	}
	return lo, hi
}

// keyAround is keySpan, which walks over a long run of letters once.
func (c *scan) keyAround(at, n int) (lo, hi int) {
	if goesOn(c.s, at, at+n) {
		return 0, 0
	}
	if at < c.keyLo || at+n > c.keyHi || c.keyLo < c.floor {
		lo, hi = at, at+n
		for lo > c.floor && class[c.s[lo-1]]&keyBytes != 0 {
			lo--
		}
		for hi < len(c.s) && class[c.s[hi]]&keyBytes != 0 {
			hi++
		}
		c.looked += hi - lo
		c.keyLo, c.keyHi = lo, hi
	}
	if lo, hi = c.keyLo, c.keyHi; at-lo > maxKey || hi-at > maxKey {
		return 0, 0
	}
	return trimKey(c.s, lo, hi, at, n)
}

// continues reports whether a word runs over i, in letters of one case.
func continues(s string, i int) bool {
	return i < len(s) && class[s[i]]&letter != 0 && class[s[i]]&letter == class[s[i-1]]&letter
}

// classifyAt classifies the key s[lo:hi] by its part at at that e found, and returns
// where it begins: an escape before it may have run into it.
func (r *Redactor) classifyAt(s string, lo, hi, at int, e *entry) (int, keyClass) {
	found := e.key.promise(s, lo, hi, at, e.n)
	if found == notSecret && lo > 0 && lo < at {
		switch {
		case s[lo-1] == '\\' && s[lo] == 'u' && at-lo >= 5: // "\u0026token=…"
			lo += 5
		case s[lo-1] == '\\': // "\ntoken=…"
			lo++
		case s[lo-1] == '%' && lo+2 <= at: // "%26token=…"
			lo += 2
		case s[lo-1] == '-' && (s[lo] == 'D' || s[lo] == 'P'): // java -Dname=…
			lo++
		default:
			return lo, notSecret
		}
		found = e.key.promise(s, lo, hi, at, e.n)
	}
	if found != notSecret && r.allowed(s[lo:hi]) {
		found = notSecret
	}
	return lo, found
}

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
		if lo, hi := a.argument(start, end); hi > lo {
			return finding{lo, hi, a.marker}
		}
		// password: str = "…" gives a type first.
		i = end
		for i < len(s) && i < end+8 && (s[i] == ' ' || s[i] == ']') {
			i++
		}
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
	for _, verb := range [...]string{"env", "get", "read", "load", "find", "look", "open", "quer", "select", "prompt", "input", "test", "assert", "expect"} {
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
		a.c.table(a.lo, a.hi)
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
	scheme    bool // Bearer or its like stands before the value
}

// separator returns where the value begins, or false where the text assigns nothing.
func (a *assignment) separator() (int, bool) {
	s := a.s
	if a.lo > 0 {
		before := s[a.lo-1]
		a.path = before == '/' && a.lo > 1 && class[s[a.lo-2]]&space == 0
		a.query = before == '?' || before == '&'
		a.tag = before == '<' && a.lo > a.floor || before == ':' && a.inNamespace()
		a.dashes = before == '-' && a.lo > a.floor && (a.lo < 2 || class[s[a.lo-2]]&word == 0)
	}
	gap := a.closeKey()
	i := gap
	for i < len(s) && (s[i] == ' ' || s[i] == '\t') && i-gap < 40 {
		i++
	}
	if i == len(s) || a.path && s[i] != '=' {
		return 0, false // /etc/passwd: …
	}
	i, ok := a.operator(i, i > gap)
	if !ok {
		return 0, false
	}
	for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
		i++
	}
	return i, i < len(s)
}

// inNamespace reports whether the key is the name of an element of XML behind a prefix.
func (a *assignment) inNamespace() bool {
	i := a.lo - 1
	for i > a.floor && a.lo-i < 24 && class[a.s[i-1]]&slug != 0 {
		i--
	}
	return i > a.floor && a.s[i-1] == '<'
}

// closeKey returns where the key ends with its quotes, brackets and emphasis.
func (a *assignment) closeKey() int {
	s, i := a.s, a.hi
	for i < len(s) && s[i] == '\\' {
		i++
	}
	if i < len(s) && (s[i] == '"' || s[i] == '\'' || s[i] == '`') {
		a.keyQuoted = true
		i++
	} else {
		i = a.hi
	}
	if i < len(s) && (s[i] == ']' && (a.keyQuoted || a.lo > 0 && s[a.lo-1] == '[') || a.keyQuoted && s[i] == ')') {
		i++ // environ["API_KEY"] = …, user[password]=…
	}
	return emphasis(s, i)
}

// emphasis skips the asterisks of Markdown.
func emphasis(s string, i int) int {
	for n := 0; n < 3 && i < len(s) && s[i] == '*'; n++ {
		i++
	}
	return i
}

// operator reads what joins key and value, and returns where it ends.
func (a *assignment) operator(i int, blank bool) (int, bool) {
	s := a.s
	rest := s[i:]
	switch c := s[i]; c {
	case '=':
		return a.equalSign(i, blank)
	case ':':
		return a.colonSign(i, blank)
	case '%', '\\':
		for _, sign := range [...]string{"%3D", "%3d", `\u003d`} {
			if strings.HasPrefix(rest, sign) {
				a.form, a.query = tight, c == '%'
				return i + len(sign), true
			}
		}
	case '>':
		if a.tag {
			a.form = sure
			return i + 1, true
		}
		if a.keyQuoted && !blank { // <property name="password">…
			a.form = cell
			return i + 1, true
		}
	case '<':
		return a.nextElement(i)
	case ',':
		a.form = bare
		if a.keyQuoted {
			if a.form = pair; a.dashes {
				a.form = sure
			}
		}
		return i + 1, true
	case '|':
		if strings.HasPrefix(rest, "||=") || strings.HasPrefix(rest, "||:") {
			a.form = spaced
			return i + 3, true
		}
		a.form = cell
		return i + 1, i+1 < len(s) && s[i+1] != '|'
	case '-', '.', 0xe2, 0xe3:
		return a.drawn(i, blank)
	case '(':
		return a.parenthesis(i, blank)
	case '?', '+':
		if strings.HasPrefix(rest[1:], "=") {
			a.form = spaced
			return i + 2, true
		}
	default:
		if j, ok := a.attribute(i, blank); ok {
			a.form = sure
			return j, true
		}
	}
	return a.spoken(i, blank)
}

// attribute reads an attribute that has the value of the name before it, and skips those of
// an element whose name is the key.
func (a *assignment) attribute(i int, blank bool) (int, bool) {
	rest := a.s[i:]
	for _, name := range [...]string{"value=", "content="} {
		if a.keyQuoted && strings.HasPrefix(rest, name) {
			return i + len(name), true
		}
	}
	if !a.tag || !blank {
		return 0, false
	}
	end := strings.IndexByte(rest[:min(len(rest), 200)], '>')
	return i + end + 1, end > 0 && strings.IndexByte(rest[:end], '<') < 0 && rest[end-1] != '/'
}

func (a *assignment) equalSign(i int, blank bool) (int, bool) {
	s := a.s
	if i+1 < len(s) && (s[i+1] == '=' || s[i+1] == '>') {
		a.form = spaced
		i += 2
		if i < len(s) && s[i] == '=' {
			i++
		}
		return i, true
	}
	a.form = tight
	i++
	if blank || i < len(s) && (s[i] == ' ' || s[i] == '\t') {
		a.form = spaced
	}
	return i, true
}

func (a *assignment) colonSign(i int, blank bool) (int, bool) {
	s := a.s
	rest := s[i:]
	if op := strings.TrimLeft(rest[:min(len(rest), 4)], ":"); len(op) < min(len(rest), 4) && strings.HasPrefix(op, "=") {
		a.form = spaced // ::= and its like
		return i + len(rest[:min(len(rest), 4)]) - len(op) + 1, true
	}
	if strings.HasPrefix(rest, ":=") {
		a.form = spaced
		return i + 2, true
	}
	if len(rest) > 1 && a.noAssignment(rest[1], blank) {
		return 0, false
	}
	a.form = colon
	i = emphasis(s, i+1)
	if i+1 < len(s) && s[i] == '_' && (s[i+1] == ' ' || s[i+1] == '_') && !strings.HasPrefix(s[i:], Marker) && !strings.HasPrefix(s[i:], TruncatedMarker) {
		i += 1 + len(s[i+1:min(len(s), i+2)]) - len(strings.TrimLeft(s[i+1:min(len(s), i+2)], "_"))
	}
	if i < len(s) && s[i] == '<' {
		if j, ok := closeTags(s, i); ok {
			i = j
		}
	}
	return i, true
}

// noAssignment reports whether a colon before next assigns nothing to the key.
func (a *assignment) noAssignment(next byte, blank bool) bool {
	switch next {
	case ':', '?': // a::b, the message of ${NAME:?message}
		return true
	case '/':
		return strings.HasPrefix(a.s[a.hi:], "://")
	case '\'', '"':
		return blank && !a.keyQuoted // a variable of psql
	case ' ':
		return a.lo > 0 && a.s[a.lo-1] == '/' // a route, not an option
	}
	return a.lo > 1 && a.s[a.lo-1] == ':' && class[a.s[a.lo-2]]&alnum != 0 // arn:…:secret:name
}

// closeTags skips the ends of elements of HTML.
func closeTags(s string, i int) (int, bool) {
	some := false
	for n := 0; n < 4 && strings.HasPrefix(s[i:], "</"); n++ {
		end := strings.IndexByte(s[i:min(len(s), i+16)], '>')
		if end < 0 {
			return i, false
		}
		i = skipSpace(s, i+end+1)
		some = true
	}
	return i, some
}

// nextElement reads the value in the cell of an HTML table after that of the key.
func (a *assignment) nextElement(i int) (int, bool) {
	s := a.s
	i, ok := closeTags(s, i)
	if !ok {
		return 0, false
	}
	if i < len(s) && s[i] == ':' {
		a.form = colon
		return i + 1, true
	}
	for n := 0; n < 4 && i < len(s) && s[i] == '<'; n++ {
		end := strings.IndexByte(s[i:min(len(s), i+80)], '>')
		if end < 0 {
			return 0, false
		}
		if i = skipSpace(s, i+end+1); i < len(s) && s[i] == ':' {
			i++
		}
	}
	a.form = cell
	return i, i < len(s)
}

// drawn reads arrows, dashes, dots and lines between key and value.
func (a *assignment) drawn(i int, blank bool) (int, bool) {
	s := a.s
	for _, sign := range [...]string{"->", "→", "⇒", "➜", "–", "—"} {
		if blank && strings.HasPrefix(s[i:], sign) {
			a.form = prose
			return i + len(sign), true
		}
	}
	for _, sign := range [...]string{"│", "║", "┃"} {
		if strings.HasPrefix(s[i:], sign) {
			a.form = cell
			return i + len(sign), true
		}
	}
	for _, sign := range [...]string{".=", `. "`} { // the second is of a pair in Lisp
		if strings.HasPrefix(s[i:], sign) {
			a.form = spaced
			return i + 2, true
		}
	}
	if blank && strings.HasPrefix(s[i:], "- ") && a.hi-a.lo >= 4 {
		a.form = prose
		return i + 2, true
	}
	if blank && strings.HasPrefix(s[i:], "...") {
		for i < len(s) && s[i] == '.' {
			i++
		}
		a.form = prose
		return i, true
	}
	return a.spoken(i, blank)
}

// parenthesis skips a remark: password (admin): …
func (a *assignment) parenthesis(i int, blank bool) (int, bool) {
	s := a.s
	end := strings.IndexByte(s[i:min(len(s), i+40)], ')')
	if !blank || end < 0 || !strings.HasPrefix(s[i+end+1:], ":") {
		return 0, false
	}
	a.form = prose
	return i + end + 2, true
}

// spoken reads key and value that words or nothing but a space join.
func (a *assignment) spoken(i int, blank bool) (int, bool) {
	s := a.s
	switch {
	case !blank:
		return 0, false
	case a.dashes:
		a.form = flag
		return i, true
	case a.netrc():
		a.form = flag
		return i, true
	case a.verb() && !strings.HasPrefix(s[i:], "to "):
		a.form = told
		return i, true
	}
	for _, option := range [...]string{"/t REG_SZ /d ", "/t REG_EXPAND_SZ /d ", "-Value "} {
		if strings.HasPrefix(s[i:], option) {
			a.form = flag
			return i + len(option), true
		}
	}
	if j, ok := typed(s, i); ok {
		a.form = spaced
		return j, true
	}
	if j, ok := a.sentence(i); ok {
		a.form = prose
		return j, true
	}
	a.form = bare
	return i, s[i] != '\n' && s[i] != '\r'
}

// typed skips a type before the equals sign and the quote of a declaration.
func typed(s string, i int) (int, bool) {
	end := i
	for end < len(s) && end-i < 24 && (class[s[end]]&(word|dot) != 0 || s[end] == '[' || s[end] == ']' || s[end] == '*') {
		end++
	}
	if end == i || !strings.HasPrefix(s[end:], " = ") && !strings.HasPrefix(s[end:], " := ") {
		return 0, false
	}
	end += strings.IndexByte(s[end:], '=') + 2
	return end, end < len(s) && strings.IndexByte("\"'`", s[end]) >= 0
}

// sentence reads "is", "has been reset to", "for the database is".
func (a *assignment) sentence(i int) (int, bool) {
	s := a.s
	for n := 0; n < 8; n++ {
		if s[i] == '=' && n > 0 {
			return i + 1, true
		}
		end := wordOfSentence(s, i, n)
		if end == i {
			return 0, false
		}
		w := s[i:end]
		switch {
		case isVerb[w] && end < len(s) && s[end] == ' ' && states[s[end+1:run(s, end+1, lower)]]:
		case isVerb[w]:
			return afterVerb(s, end)
		case w == "to" && (n > 0 || a.changed()):
			return end, true
		case n == 0 && !linking[w]:
			return 0, false
		case end < len(s) && s[end] == ':' && (n > 0 || states[w]):
			return end + 1, true
		}
		if i = end; i+1 >= len(s) || s[i] != ' ' {
			return 0, false
		}
		i++
	}
	return 0, false
}

// wordOfSentence returns the end of the n-th word after a key, at i: of a name, an address
// of mail too, and a string in quotes.
func wordOfSentence(s string, i, n int) int {
	end := run(s, i, word|dash)
	if n == 0 {
		return end
	}
	if end < len(s) && s[end] == '@' {
		end = run(s, end+1, slug|dot) // for root@localhost
		for s[end-1] == '.' {
			end--
		}
	}
	if s[i] == '\'' {
		if k := strings.IndexByte(s[i+1:min(len(s), i+maxKey)], '\''); k > 0 {
			end = i + k + 2 // for 'https://github.com'
		}
	}
	return end
}

var isVerb = map[string]bool{"is": true, "was": true, "are": true}

// afterVerb returns where the value may begin after "is" and its like.
func afterVerb(s string, end int) (int, bool) {
	if end < len(s) && s[end] == ':' {
		end++
	}
	ok := end < len(s) && s[end] == ' '
	if ok && strings.HasPrefix(s[end:], " = ") {
		end += 2
	}
	return end, ok
}

// linking are the words that a sentence goes on with from a key to its value.
var linking = map[string]bool{"for": true, "of": true, "has": true, "set": true, "reset": true, "changed": true, "on": true, "in": true, "now": true, "generated": true, "created": true, "environment": true, "variable": true, "env": true}

// states are what a sentence says of a secret before it names it: "is set to".
var states = map[string]bool{"set": true, "reset": true, "changed": true, "generated": true, "created": true, "now": true, "updated": true}

// changed reports whether the key is what somebody changed: "changed the password to".
func (a *assignment) changed() bool {
	w, at := a.wordBefore(a.lo)
	for range 3 {
		switch w {
		case "changed", "change", "set", "reset", "rotated", "updated", "Changed", "Set", "Reset":
			return true
		case "the", "my", "your", "his", "her", "their", "root", "admin":
			w, at = a.wordBefore(at)
		default:
			return false
		}
	}
	return false
}

// wordBefore returns the word before i in the same line, and where it begins.
func (a *assignment) wordBefore(i int) (string, int) {
	s := a.s
	for n := 0; n < 4 && i > a.floor && (s[i-1] == ' ' || s[i-1] == '\t' || s[i-1] == '"' || s[i-1] == '\''); n++ {
		i--
	}
	end := i
	for i > a.floor && end-i < 24 && class[s[i-1]]&slug != 0 {
		i--
	}
	return s[i:end], i
}

// verbs are the words after which a name and its value stand in commands and
// directives.
var verbs = map[string]bool{
	"ENV": true, "setenv": true, "SetEnv": true, "setx": true, "fastcgi_param": true, "uwsgi_param": true, "proxy_set_header": true, "-x": true, "-gx": true, "-Ux": true, "-xU": true,
	"add_header": true, "set": true, "SET": true, "--secret": true, "login": true, "user-secrets": true, "putenv": true, "config": true, "--global": true, "setpass": true,
}

// verb reports whether the key is the name in a directive: ENV NAME value.
func (a *assignment) verb() bool {
	if a.lo == a.floor {
		return false
	}
	switch a.s[a.lo-1] {
	case ' ', '"', '\'', ':', '.':
	default:
		return false
	}
	w, _ := a.wordBefore(a.lo)
	if !verbs[w] && a.s[a.lo-1] != ' ' {
		// config set //registry.example/:_authToken …
		at := a.lo
		for ; at > a.floor && a.lo-at < 80 && class[a.s[at-1]]&space == 0; at-- {
		}
		w, _ = a.wordBefore(at)
	}
	return verbs[w]
}

// netrc reports whether the key is that of a .netrc entry: "login x password y".
func (a *assignment) netrc() bool {
	if a.s[a.lo:a.hi] != "password" {
		return false
	}
	before := strings.TrimRight(a.s[max(a.floor, a.lo-80):a.lo], " \t\r\n")
	before = strings.TrimRight(before[:strings.LastIndexAny(before, " \t\r\n")+1], " \t\r\n")
	return strings.HasSuffix(before, "login") || strings.HasSuffix(before, "user")
}

// usedAs returns what stands before the key and is to be used as it: "use … as the
// token", "… is the password".
func (a *assignment) usedAs() (found finding) {
	if a.class < weak || !a.called() {
		return found
	}
	w, at := a.wordBefore(a.lo)
	for n := 0; n < 3 && !joins[w]; n++ {
		w, at = a.wordBefore(at)
	}
	s, end := a.s, at
	for end > a.floor && at-end < 3 && strings.IndexByte(" `\"'*", s[end-1]) >= 0 {
		end--
	}
	start := end
	for start > a.floor && end-start < maxJudged && class[s[start-1]]&space == 0 && strings.IndexByte("`\"'", s[start-1]) < 0 {
		start--
	}
	if start == end {
		return found
	}
	if k := strings.LastIndexByte(s[start:end], ':'); k > 0 {
		start += k + 1 // admin:… are the credentials
	}
	v := s[start:end]
	if a.class == countable && len(v) < 16 || !chancy(v) {
		return found
	}
	return finding{start, end, Marker}
}

// joins are the words between a secret and the key it is for.
var joins = map[string]bool{"as": true, "is": true, "are": true}

// called reports whether the words before the key may join it to what is before them.
func (a *assignment) called() bool {
	if a.lo < 4 || a.s[a.lo-1] != ' ' {
		return false
	}
	at := a.lo
	for range 3 {
		w, from := a.wordBefore(at)
		switch {
		case joins[w]:
			return true
		case w == "the" || w == "a" || w == "my" || w == "your" || w == "our" || w == "its" || w == "bearer" || w == "access" || w == "root" || w == "admin":
			at = from
		default:
			return false
		}
	}
	return false
}

// secret decides whether v, which ends at end, is to be redacted.
func (a *assignment) secret(v string, end int) bool {
	if len(v) < 2 || placeholder(v) || marked(v) || strings.HasPrefix(v, "pk_live_") || strings.HasPrefix(v, "pk_test_") || a.class == countable && number(v) {
		return false
	}
	if a.form == sure {
		return true
	}
	whole := v
	if v = v[:min(len(v), maxJudged)]; a.refused(v) {
		return false
	}
	switch a.form {
	case pair:
		return a.inList(v)
	case cell:
		return a.inCell(v, end)
	case bare:
		return a.bare(v, end)
	case told:
		return a.told(v)
	case prose:
		return a.prose(v, end)
	case flag:
		return a.ofFlag(v)
	}
	switch {
	case a.class == credential:
		return a.header(v)
	case a.quoted:
		return !label(a.c.r, whole) && (a.class != countable || a.qualified() && len(v) >= 8 || looksRandom(v))
	}
	return a.plain(v, end)
}

// inList decides of the string after the key's in a list or in the arguments of a call.
func (a *assignment) inList(v string) bool {
	return len(v) >= 8 && random(v, mixed) && digits(v) && !strings.Contains(v, " ") && (a.class != credential || len(v) >= 20 || a.scheme)
}

// ofFlag decides of the word after a flag.
func (a *assignment) ofFlag(v string) bool {
	if strings.HasPrefix(v, "env:") || strings.HasPrefix(v, "file:") || a.hi-a.lo > 3 && equalFold(a.s[a.hi-3:a.hi], "-id") && !chancy(v) && !uuid(v) {
		return false
	}
	return v[0] != '-' && !has(stopWords, v) && !constant(v) && (digits(v) || len(v) >= 40 || !label(a.c.r, v))
}

// refused reports whether v cannot be what a key of this class promises.
func (a *assignment) refused(v string) bool {
	switch a.class {
	case weak:
		return !passLike(v)
	case keyed:
		return !tokenLike(v)
	case secret:
		return filePath(v)
	}
	return false
}

// ends reports whether v ends its line or its part of a sentence.
func (a *assignment) ends(end int) bool {
	return end == len(a.s) || strings.IndexByte("\n\r.,;)!`\"'", a.s[end]) >= 0
}

func (a *assignment) prose(v string, end int) bool {
	if a.quoted {
		return !label(a.c.r, v) && len(v) >= 6 && (digits(v) || strings.Count(v, " ") >= 2) && a.class != countable || tokenLike(v)
	}
	if a.class == countable || a.class == keyed {
		return len(v) >= 16 && tokenLike(v)
	}
	return len(v) >= 6 && (digits(v) || gibberish(v)) && (chancy(v) || a.ends(end) || strong(v)) && random(v, mixed) && !number(v) && !algorithm(v) && !strings.Contains(v, "://") && !call(v)
}

// inCell decides of the cell beside the key's in a table.
func (a *assignment) inCell(v string, _ int) bool {
	return cellSecret(a.c.r, a.class, v)
}

func cellSecret(r *Redactor, class keyClass, v string) bool {
	if len(v) < 6 || placeholder(v) || marked(v) || strings.ContainsAny(v, " \t(<>{}") || strings.Contains(v, "://") || label(r, v) || algorithm(v) || has(stopWords, v) || filePath(v) {
		return false
	}
	if class <= countable && class != weak || class == credential {
		return tokenLike(v)
	}
	return digits(v) && !number(v) && !date(v)
}

// standsAlone reports whether v is a word, with no sign of code in it or after it.
func (a *assignment) standsAlone(v string, end int) bool {
	return (end == len(a.s) || strings.IndexByte(" \t\r\n.,;)!", a.s[end]) >= 0) && !strings.ContainsAny(v, "=/\\(){}[]<>|")
}

// bare decides of the word after the key.
func (a *assignment) bare(v string, end int) bool {
	if a.class == keyed || a.class == credential || !a.quoted && !a.standsAlone(v, end) || v[0] == '-' {
		return false
	}
	if strings.Contains(v, "::") || call(v) || constant(v) || uuid(v) || label(a.c.r, v) {
		return false
	}
	if a.class == countable {
		return tokenLike(v) && chancy(v)
	}
	if a.quoted {
		return a.class == secret && len(v) >= 6 && digits(v) && !strings.Contains(v, " ")
	}
	if a.class != secret || chancy(v) || strong(v) {
		return a.class == secret
	}
	w, _ := a.wordBefore(a.lo)
	return len(v) >= 6 && digits(v) && !number(v) && !algorithm(v) && strings.Contains(" with using use ", " "+w+" ")
}

// told decides of the value of a name in a directive.
func (a *assignment) told(v string) bool {
	if v[0] == '-' || has(stopWords, v) || strings.IndexByte("?:(", v[0]) >= 0 || filePath(v) || call(v) {
		return false
	}
	if a.class == countable || a.class == credential {
		return looksRandom(v)
	}
	return digits(v) && !number(v) || a.shouts() && !label(a.c.r, v)
}

// plain decides of a value without quotes. It may be code: a call, a path of names, a
// type, a variable.
func (a *assignment) plain(v string, end int) bool {
	if a.code(v, end) || has(stopWords, v) || v[0] == '!' && a.form == colon || label(a.c.r, v) || strings.Contains(v, "://") {
		return false
	}
	if a.nextLine(v, end) || a.class == weak && a.wordOnly(v) {
		return false
	}
	if identifierPath(v) && !digits(v) {
		return a.named(v, end)
	}
	if identifierPath(v) && (strings.IndexByte(v, '.') > 0 && !looksRandom(v) || a.operand(end)) {
		return false
	}
	if a.class == countable && !(a.form == tight && (a.query || a.shouts())) {
		return looksRandom(v)
	}
	if number(v) {
		return len(v) >= 4 && a.class == secret
	}
	return true
}

// wordOnly reports whether v is a name or a word, such as a state.
func (a *assignment) wordOnly(v string) bool {
	return !a.shouts() && run(v, 0, letter|under|dash|dot) == len(v) && !(a.query && len(v) >= 10 && strings.ToLower(v) != v)
}

// code reports whether v, which ends at end, is an expression rather than a value.
func (a *assignment) code(v string, end int) bool {
	if strings.IndexByte("([{<*&:", v[0]) >= 0 && !(a.form == tight && a.shouts() && digits(v)) {
		return true
	}
	return call(v) || constant(v) || end < len(a.s) && a.s[end] == '('
}

// operand reports whether the name that ends at end goes on as an expression where the
// key is a short one.
func (a *assignment) operand(end int) bool {
	return a.class == weak && !a.sureName() && a.form == spaced && end < len(a.s) && a.s[end] != '\n' && a.s[end] != ' '
}

// nextLine reports whether v stands in the line after its key and may be anything.
func (a *assignment) nextLine(v string, end int) bool {
	start := end - len(v)
	if from, _ := a.c.line(end - 1); from <= a.hi {
		return false
	}
	return a.form != colon || !chancy(v) || end < len(a.s) && a.s[end] != '\n' && a.s[end] != '\r' || a.class == countable && !tokenLike(v) || start < a.hi
}

// sureName reports whether the key is in capitals or names whose it is.
func (a *assignment) sureName() bool { return a.class == secret || a.shouts() }

// named decides of a value that is a name or names joined by dots.
func (a *assignment) named(v string, end int) bool {
	if strings.IndexByte(v, '.') > 0 || a.class == weak && !a.sureName() {
		return false
	}
	last := end == len(a.s) || a.s[end] == '\n' || a.s[end] == '\r'
	switch {
	case gibberish(v):
		return true
	case a.form == tight && (a.query || a.shouts()):
		return true
	case a.class == countable:
		return looksRandom(v)
	case a.form == tight:
		return end == len(a.s) || strings.IndexByte("),", a.s[end]) < 0
	case a.form == colon:
		return last && !strings.ContainsAny(v, "_") && a.startsLine()
	}
	from, _ := a.c.line(a.lo)
	return last && a.lo == from && !strings.Contains(v, "_")
}

// header reports whether v is a header's credential rather than talk of one.
func (a *assignment) header(v string) bool {
	if !a.quoted && (a.form == spaced || identifierPath(v) && strings.IndexByte(v, '.') > 0 && !digits(v) || call(v)) {
		return false
	}
	if eq := strings.IndexByte(strings.TrimRight(v, "="), '='); eq > 0 && !strings.ContainsAny(v[:eq], " (") {
		return pairsHold(v)
	}
	if k := strings.IndexByte(v, ' '); k >= 0 {
		return a.quoted && looksRandom(v[:k])
	}
	return looksRandom(v) || a.form != spaced && len(v) >= 8 && digits(v) || a.scheme && len(v) >= 6
}

// pairsHold reports whether one of the pairs of a header, such as cookies, may be secret.
func pairsHold(v string) bool {
	for len(v) > 0 {
		end := strings.IndexAny(v, ";,&")
		pair, rest := v, ""
		if end >= 0 {
			pair, rest = v[:end], v[end+1:]
		}
		name, value, _ := strings.Cut(strings.TrimLeft(pair, " "), "=")
		if run(name, 0, slug|dot) < len(name) {
			return true // no pair at all
		}
		value = strings.Trim(value, "\"' ")
		if len(value) >= 6 && (digits(value) || len(value) >= 16 || gibberish(value)) && !strings.EqualFold(name, "expires") && !strings.EqualFold(name, "domain") && !marked(value) {
			return true
		}
		v = rest
	}
	return false
}

// qualified reports whether more words stand before the one that makes the key a
// token: access_token rather than token.
func (a *assignment) qualified() bool {
	key := a.s[a.lo:a.hi]
	return wordFrom(key, 0, len(key)) < len(key) || a.shouts()
}

// shouts reports whether the key is in capitals, as environment variables are.
func (a *assignment) shouts() bool {
	for i := a.lo; i < a.hi; i++ {
		if class[a.s[i]]&lower != 0 {
			return false
		}
	}
	return true
}

// startsLine reports whether only indentation, a list's dash or a quote precedes the
// key in its line.
func (a *assignment) startsLine() bool {
	from, _ := a.c.line(a.lo)
	return a.lo-from < 200 && strings.Trim(a.s[from:a.lo], " \t-\"'") == ""
}
