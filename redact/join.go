package redact

import (
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// sign reads what joins the label to a value, and returns where the value begins, or false where the text joins
// nothing.
func (m *mention) sign() (int, bool) {
	s := m.s
	m.before()
	// The label ends with its quotes, brackets and emphasis.
	gap := m.hi
	if strings.HasPrefix(s[gap:], "'s ") && !m.path { // the password's …
		return m.by(prose, gap+len("'s "))
	}
	if k := skip(s, gap+1, gap+8, "0123456789"); gap+1 < len(s) && s[gap] == '[' && k < len(s) && s[k] == ']' {
		gap = k + 1 // an array of C
	}
	if gap < len(s) && oneByteOf("\"'`", s[gap]) {
		m.keyed = true
		gap++
	}
	if gap < len(s) && (s[gap] == ']' && (m.keyed || m.lo > 0 && s[m.lo-1] == '[') || m.keyed && s[gap] == ')') {
		gap++ // environ["API_KEY"] = …, user[password]=…
	}
	gap = skip(s, gap, gap+3, "*")
	i := skip(s, gap, gap+40, " \t")
	if i == len(s) || m.path && s[i] != '=' {
		return 0, false // /etc/passwd: …
	}
	i, ok := m.operator(i, i > gap)
	if !ok {
		return 0, false
	}
	i = skip(s, i, len(s), " \t")
	return i, i < len(s)
}

// before notes what is before the label: it may be a parameter, an element, a flag or the end of a path.
func (m *mention) before() {
	s := m.s
	if m.lo > m.c.floor {
		switch before := s[m.lo-1]; before {
		case '/':
			m.path = m.lo > 1 && class[s[m.lo-2]]&space == 0 && !oneByteOf("\"'`", s[m.lo-2])
		case '?', '&':
			m.query = true
		case '<':
			m.tag = true
		case ':':
			i := runBack(s, m.lo-1, max(m.c.floor, m.lo-24), slug)
			m.tag = i > m.c.floor && s[i-1] == '<' // in a namespace
		case '-':
			m.dashes = m.lo < 2 || class[s[m.lo-2]]&word == 0
		}
	}
}

// by notes how the text joins label and value, and returns where the value may begin.
func (m *mention) by(j join, i int) (int, bool) {
	m.join = j
	return i, true
}

// signs are what joins label and value by drawing: how, and whether a space is before it. The longer come first.
var signs = []struct {
	join  join
	blank bool
	signs []string
}{
	{spaced, false, strings.Fields("=== == => :::= ::= := ||= ||: ?= += .= ＝")}, {colon, false, []string{"："}},
	{cell, false, strings.Fields("│ ║ ┃")}, {spaced, true, []string{"<- ", `. "`}},
	{prose, true, append(strings.Fields("-> → ⇒ ➜ – — ..."), "- ")}, {spaced, true, []string{"<<< "}},
	{prose, false, []string{"是", "为", "は", "는 ", "은 "}},
}

// drawn reads one of the signs at i.
func (m *mention) drawn(i int, blank bool) (int, bool) {
	rest := m.s[i:]
	for k := range signs {
		for _, sign := range signs[k].signs {
			if (blank || !signs[k].blank) && strings.HasPrefix(rest, sign) && (sign != "- " || m.hi-m.lo >= 4) {
				return m.by(signs[k].join, skip(m.s, i+len(strings.TrimSuffix(sign, `"`)), len(m.s), "."))
			}
		}
	}
	return 0, false
}

// operator reads the sign or the words at i, with a space before them or not, and returns where they end.
func (m *mention) operator(i int, blank bool) (int, bool) {
	s := m.s
	if j, ok := m.drawn(i, blank); ok {
		return j, true
	}
	switch s[i] {
	case '=':
		if i++; blank || i < len(s) && (s[i] == ' ' || s[i] == '\t') {
			return m.by(spaced, i)
		}
		return m.by(tight, i)
	case ':':
		return m.colon(i, blank)
	case '>':
		if m.tag {
			return m.by(sure, i+1)
		}
		if m.keyed && !blank { // <property name="password">…
			return m.by(cell, i+1)
		}
	case '<':
		return m.nextElement(i)
	case ',':
		switch {
		case m.keyed && m.dashes:
			return m.by(sure, i+1)
		case m.keyed:
			return m.by(pair, i+1)
		}
		return m.by(bare, i+1)
	case '|':
		return m.by(cell, i+1)
	case '{', '.':
		if j, ok := m.construction(i, blank); ok {
			return m.by(argument, j)
		}
	case '(': // the arguments of a call, or a remark: password (admin): …
		if !blank {
			return m.by(argument, i+1)
		}
		end := strings.Index(s[i:min(len(s), i+42)], "):")
		m.join = prose
		return i + end + 2, end >= 0
	}
	if j, ok := m.attribute(i, blank); ok {
		return m.by(sure, j)
	}
	return m.spoken(i, blank)
}

// construction reads what a value in quotes follows: password{"…"}, getByLabel("Password").fill("…").
func (m *mention) construction(i int, blank bool) (int, bool) {
	end := i
	if m.s[i] == '.' {
		end = run(m.s, i+1, word)
	}
	ok := end+1 < len(m.s) && oneByteOf("\"'`", m.s[end+1])
	if m.s[i] == '.' {
		return end + 1, ok && m.keyed && m.s[end] == '('
	}
	return end + 1, ok && !blank
}

// attribute reads an attribute that has the value of the name before it, and skips those of an element whose name is
// the label.
func (m *mention) attribute(i int, blank bool) (int, bool) {
	rest := m.s[i:]
	for _, name := range [...]string{"value=", "content="} {
		if m.keyed && strings.HasPrefix(rest, name) {
			return i + len(name), true
		}
	}
	if !m.tag || !blank {
		return 0, false
	}
	end := strings.IndexByte(rest[:min(len(rest), 200)], '>')
	if k := strings.Index(rest[:max(end, 0)], `value="`); k >= 0 {
		return i + k + len("value="), true
	}
	return i + end + 1, end > 0 && strings.IndexByte(rest[:end], '<') < 0 && rest[end-1] != '/'
}

// colon reads a colon, and what of Markdown and HTML closes after it.
func (m *mention) colon(i int, blank bool) (int, bool) {
	s := m.s
	if i+1 < len(s) {
		switch next := s[i+1]; {
		case next == ':' || next == '?', strings.HasPrefix(s[i:], "://"), // a::b, the message of ${NAME:?message}
			(next == '\'' || next == '"') && blank && !m.keyed,                         // a variable of psql
			next == ' ' && m.lo > 0 && s[m.lo-1] == '/',                                // a route, not an option
			m.lo > 1 && s[m.lo-1] == ':' && class[s[m.lo-2]]&alnum != 0 && next != ' ': // arn:…:secret:name
			return 0, false
		}
	}
	i = skip(s, i+1, i+4, "*")
	if strings.HasPrefix(s[i:], "_ ") || strings.HasPrefix(s[i:], "__ ") {
		i = skip(s, i, i+2, "_")
	}
	i, _ = elements(s, i, "</")
	return m.by(colon, i)
}

// elements skips tags of HTML that begin with open, and what spaces and colons are behind them.
func elements(s string, i int, open string) (end int, some bool) {
	for n := 0; n < 4 && strings.HasPrefix(s[i:], open); n++ {
		end := strings.IndexByte(s[i:min(len(s), i+80)], '>')
		if end < 0 {
			return i, false
		}
		i, some = jsonscan.Space(s, i+end+1), true
		if open == "<" {
			i = skip(s, i, i+1, ":")
		}
	}
	return i, some
}

// nextElement reads the value in the cell of an HTML table after that of the label.
func (m *mention) nextElement(i int) (int, bool) {
	i, ok := elements(m.s, i, "</")
	if !ok {
		return 0, false
	}
	if i < len(m.s) && m.s[i] == ':' {
		return m.by(colon, i+1)
	}
	m.join = cell
	i, _ = elements(m.s, i, "<")
	return i, i < len(m.s) && m.s[i] != '<'
}

// spoken reads label and value that words or nothing but a space join.
func (m *mention) spoken(i int, blank bool) (int, bool) {
	s := m.s
	switch {
	case !blank && !m.sentence:
		return 0, false
	case m.dashes:
		return m.by(flag, i)
	case m.verb() && !strings.HasPrefix(s[i:], "to "):
		return m.by(setting, i)
	}
	for _, option := range [...]string{"/t REG_SZ /d ", "/t REG_EXPAND_SZ /d ", "-Value "} {
		if strings.HasPrefix(s[i:], option) {
			return m.by(flag, i+len(option))
		}
	}
	if j, ok := m.statement(i); ok {
		return m.by(prose, j)
	}
	if m.join = bare; m.dashes && s[i] == '\n' { // an argument in each line
		m.join = flag
	}
	return i, m.join == flag || s[i] != '\n' && s[i] != '\r'
}

// statement reads "is", "has been reset to", "for the database is".
func (m *mention) statement(i int) (int, bool) {
	s, prior, loose := m.s, "", false
	for n := 0; n < 10; n++ {
		if s[i] == '=' && n > 0 {
			return i + 1, true
		}
		end := wordOfSentence(s, i, n)
		if end == i {
			break
		}
		w := s[i:end]
		loose = loose || n == 0 && !m.sentence && !lists["linking"][w] && !lists["isVerb"][w]
		if next, ok, done := m.verbOrColon(w, prior, n, end, loose); done {
			return next, ok
		}
		if i, prior = end, w; i+1 >= len(s) || s[i] != ' ' {
			break
		}
		i++
	}
	return 0, false
}

// verbOrColon reports whether the n-th word w after the label, which ends at end, is the last before the value, or
// shows that there is none, and where the value begins.
func (m *mention) verbOrColon(w, prior string, n, end int, loose bool) (next int, ok, done bool) {
	s := m.s
	switch {
	case lists["isVerb"][w] && end < len(s) && s[end] == ' ' && lists["states"][s[end+1:run(s, end+1, lower)]]:
	case m.changes(w, prior): // changed the password to
		return end, true, true
	case loose && (has("describing", w) || strings.HasPrefix(s[end:], ":\n")):
		return 0, false, true
	case end < len(s) && s[end] == ':' && (n > 0 || m.sentence || lists["states"][w]):
		return end + 1, true, true
	case loose: // words of another clause may lead to a colon only
	case lists["isVerb"][w]: // is: …, will be …, is = …
		if strings.HasPrefix(s[end:], " be ") {
			end += len(" be")
		}
		end = skip(s, end, end+1, ":")
		return skip(s, end, end+2, " ="), end < len(s) && s[end] == ' ', true
	case m.sentence && (lists["spokenVerbs"][w] && (n > 0 || w != "to") || n > 0 && strings.Trim(w, "—–-") == ""):
		return end, true, true
	}
	return 0, false, false
}

// changes reports whether w leads to the new value of what the label names, or to its former one.
func (m *mention) changes(w, prior string) bool {
	return w == "to" && lists["states"][prior] || (w == "to" || w == "from") && m.follows("changes", "determiners")
}

// wordOfSentence returns the end of the n-th word after a label, at i: of a name, an address of mail too, and a string
// in quotes.
func wordOfSentence(s string, i, n int) int {
	end := i
	for end < len(s) && (class[s[end]]&(word|dash) != 0 || s[end] >= 0x80) {
		end++
	}
	if n == 0 {
		return end
	}
	if end < len(s) && (s[end] == '@' || s[end] == '.' && end > i) {
		stop := run(s, end+1, slug|dot) // for root@localhost
		end = max(end, skipBack(s, stop, end+1, "."))
	}
	if s[i] == '\'' {
		if k := strings.IndexByte(s[i+1:min(len(s), i+maxKey)], '\''); k > 0 {
			end = i + k + 2 // for 'https://github.com'
		}
	}
	return end
}

// follows reports whether a word of a list is before the label, with two of another between them.
func (m *mention) follows(list, between string) bool {
	w, at := m.wordBefore(m.lo)
	for n := 0; n < 2 && !lists[list][w] && lists[between][w]; n++ {
		w, at = m.wordBefore(at)
	}
	return lists[list][w]
}

// wordBefore returns the word before i in the same line, and where it begins.
func (m *mention) wordBefore(i int) (string, int) {
	end := skipBack(m.s, i, max(m.c.floor, i-4), " \t\"'")
	i = runBack(m.s, end, max(m.c.floor, end-24), slug)
	return m.s[i:end], i
}

// verb reports whether the label is the name in a directive: ENV NAME value.
func (m *mention) verb() bool {
	if m.lo == m.c.floor || !oneByteOf(" \"':.", m.s[m.lo-1]) {
		return false
	}
	w, _ := m.wordBefore(m.lo)
	if !lists["verbs"][w] && m.s[m.lo-1] != ' ' {
		// config set //registry.example/:_authToken …
		w, _ = m.wordBefore(since(m.s, m.lo, max(m.c.floor, m.lo-80), blanks))
	}
	return lists["verbs"][w]
}
