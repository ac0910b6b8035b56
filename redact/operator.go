package redact

import "github.com/agenttrace/agenttrace/internal/jsonscan"

import "strings"

// This file reads what joins a key to its value.

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
	i := skip(s, gap, gap+40, " \t")
	if i == len(s) || a.path && s[i] != '=' {
		return 0, false // /etc/passwd: …
	}
	i, ok := a.operator(i, i > gap)
	if !ok {
		return 0, false
	}
	i = skip(s, i, len(s), " \t")
	return i, i < len(s)
}

// as notes the form that the text has, and returns where the value may begin.
func (a *assignment) as(f form, i int) (int, bool) {
	a.form = f
	return i, true
}

// inNamespace reports whether the key is the name of an element of XML behind a prefix.
func (a *assignment) inNamespace() bool {
	i := runBack(a.s, a.lo-1, max(a.floor, a.lo-24), slug)
	return i > a.floor && a.s[i-1] == '<'
}

// closeKey returns where the key ends with its quotes, brackets and emphasis.
func (a *assignment) closeKey() int {
	s, i := a.s, a.hi+slashesAt(a.s, a.hi)
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
func emphasis(s string, i int) int { return skip(s, i, i+3, "*") }

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
			return a.as(sure, i+1)
		}
		if a.keyQuoted && !blank { // <property name="password">…
			return a.as(cell, i+1)
		}
	case '<':
		if blank && strings.HasPrefix(rest, "<- ") {
			return a.as(spaced, i+3)
		}
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
			return a.as(spaced, i+3)
		}
		a.form = cell
		return i + 1, i+1 < len(s) && s[i+1] != '|'
	case '-', '.', 0xe2, 0xe3:
		return a.drawn(i, blank)
	case '(':
		return a.parenthesis(i, blank)
	case '?', '+':
		if strings.HasPrefix(rest[1:], "=") {
			return a.as(spaced, i+2)
		}
	default:
		if j, ok := a.attribute(i, blank); ok {
			return a.as(sure, j)
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
	if k := strings.Index(rest[:max(end, 0)], `value="`); k >= 0 {
		return i + k + len("value="), true
	}
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
	if op := strings.TrimLeft(rest[:min(len(rest), 4)], ":"); len(op) < min(len(rest), 4) &&
		strings.HasPrefix(op, "=") {
		a.form = spaced // ::= and its like
		return i + len(rest[:min(len(rest), 4)]) - len(op) + 1, true
	}
	if strings.HasPrefix(rest, ":=") {
		return a.as(spaced, i+2)
	}
	if len(rest) > 1 && a.noAssignment(rest[1], blank) {
		return 0, false
	}
	a.form = colon
	i = emphasis(s, i+1)
	if i+1 < len(s) && s[i] == '_' && (s[i+1] == ' ' || s[i+1] == '_') && !strings.HasPrefix(s[i:], Marker) &&
		!strings.HasPrefix(s[i:], TruncatedMarker) {
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
		i = jsonscan.Space(s, i+end+1)
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
		return a.as(colon, i+1)
	}
	for n := 0; n < 4 && i < len(s) && s[i] == '<'; n++ {
		end := strings.IndexByte(s[i:min(len(s), i+80)], '>')
		if end < 0 {
			return 0, false
		}
		if i = jsonscan.Space(s, i+end+1); i < len(s) && s[i] == ':' {
			i++
		}
	}
	a.form = cell
	return i, i < len(s)
}

// drawnSigns are the arrows, dashes, dots and lines between key and value, with how many of
// their bytes are. Some need a space before them.
var drawnSigns = [...]struct {
	sign  string
	size  int
	form  form
	blank bool
}{{"->", 2, prose, true}, {"→", 3, prose, true}, {"⇒", 3, prose, true}, {"➜", 3, prose, true}, {"–", 3, prose, true},
	{"—", 3, prose, true}, {"│", 3, cell, false}, {"║", 3, cell, false}, {"┃", 3, cell, false},
	{".=", 2, spaced, false}, {`. "`, 2, spaced, false}} // the last is of a pair in Lisp

// drawn reads one of the drawn signs.
func (a *assignment) drawn(i int, blank bool) (int, bool) {
	rest := a.s[i:]
	for _, d := range drawnSigns {
		if (blank || !d.blank) && strings.HasPrefix(rest, d.sign) {
			return a.as(d.form, i+d.size)
		}
	}
	switch {
	case blank && strings.HasPrefix(rest, "- ") && a.hi-a.lo >= 4:
		return a.as(prose, i+2)
	case blank && strings.HasPrefix(rest, "..."):
		return a.as(prose, skip(a.s, i, len(a.s), "."))
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
	return a.as(prose, i+end+2)
}

// spoken reads key and value that words or nothing but a space join.
func (a *assignment) spoken(i int, blank bool) (int, bool) {
	s := a.s
	switch {
	case !blank:
		return 0, false
	case a.dashes || a.netrc():
		return a.as(flag, i)
	case a.verb() && !strings.HasPrefix(s[i:], "to "):
		return a.as(setting, i)
	}
	for _, option := range [...]string{"/t REG_SZ /d ", "/t REG_EXPAND_SZ /d ", "-Value "} {
		if strings.HasPrefix(s[i:], option) {
			return a.as(flag, i+len(option))
		}
	}
	if j, ok := typed(s, i); ok {
		return a.as(spaced, j)
	}
	if j, ok := a.sentence(i); ok {
		return a.as(prose, j)
	}
	a.form = bare
	return i, s[i] != '\n' && s[i] != '\r'
}

// typed skips a type before the equals sign and the quote of a declaration.
func typed(s string, i int) (int, bool) {
	end := i
	for end < len(s) && end-i < 24 &&
		(class[s[end]]&(word|dot) != 0 || s[end] == '[' || s[end] == ']' || s[end] == '*') {
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

var isVerb = wordSet("is was are")

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
var linking = wordSet("for of has set reset changed on in now generated created environment variable env")

// states are what a sentence reports of a secret before it names it: "is set to".
var states = wordSet("set reset changed generated created now updated")

// changed reports whether the key is what somebody changed: "changed the password to".
func (a *assignment) changed() bool {
	return a.follows(changes, determiners)
}

var (
	changes     = wordSet("changed change set reset rotated updated Changed Set Reset")
	determiners = wordSet("the my your his her their root admin")
)

// follows reports whether one of words is before the key, with two of between between them.
func (a *assignment) follows(words, between map[string]bool) bool {
	w, at := a.wordBefore(a.lo)
	for n := 0; n < 2 && !words[w] && between[w]; n++ {
		w, at = a.wordBefore(at)
	}
	return words[w]
}

// wordBefore returns the word before i in the same line, and where it begins.
func (a *assignment) wordBefore(i int) (string, int) {
	s := a.s
	end := skipBack(s, i, max(a.floor, i-4), " \t\"'")
	i = runBack(s, end, max(a.floor, end-24), slug)
	return s[i:end], i
}

// verbs are the words after which a name and its value are in commands and
// directives.
var verbs = wordSet("ENV setenv SetEnv setx fastcgi_param uwsgi_param proxy_set_header -x -gx -Ux -xU add_header " +
	"set SET --secret login user-secrets putenv config --global setpass")

// verb reports whether the key is the name in a directive: ENV NAME value.
func (a *assignment) verb() bool {
	if a.lo == a.floor || strings.IndexByte(" \"':.", a.s[a.lo-1]) < 0 {
		return false
	}
	w, _ := a.wordBefore(a.lo)
	if !verbs[w] && a.s[a.lo-1] != ' ' {
		// config set //registry.example/:_authToken …
		w, _ = a.wordBefore(since(a.s, a.lo, max(a.floor, a.lo-80), blanks))
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
