package redact

import (
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// sign reads what joins the label to a value, and returns where the value begins, or false where the text joins
// nothing.
func (m *mention) sign() (int, bool) {
	s := m.s
	if m.substituted() {
		return m.by(tight, m.hi+1)
	}
	// What is before the label shows what it is part of: a path, the query of a URL, an element, a flag.
	if m.lo > m.c.floor {
		switch before := s[m.lo-1]; before {
		case '/':
			m.path = m.lo > 1 && class[s[m.lo-2]]&space == 0 && !oneByteOf(quotes, s[m.lo-2])
		case '?', '&':
			m.query = true
		case '<', ':': // <password>, <ns:password>
			i := runBack(s, m.lo-1, max(m.c.floor, m.lo-24), slug)
			m.tag = before == '<' || i > m.c.floor && s[i-1] == '<'
		case '-', '+': // --password SECRET, +rcon_password SECRET
			m.dashes = m.lo < 2 || class[s[m.lo-2]]&word == 0
		}
	}
	// The label ends with its quotes, brackets and emphasis: environ["API_KEY"] = …, user[password]=…, key[] = …
	gap := skip(s, m.hi, m.hi+1, "[")
	gap = skip(s, gap, gap+8, "0123456789]")
	end := skip(s, gap, gap+1, quotes)
	if m.keyed = end > gap; m.keyed || gap == m.hi+1 {
		gap = skip(s, end, end+1, "])")
	}
	gap = skip(s, gap, gap+3, "*") // **password**: SECRET
	if i := formField(s, m.lo, gap); i > 0 {
		return m.by(setting, i)
	}
	// 3) "password"␤4) "SECRET", as redis-cli prints a hash
	if next := skip(s, gap, gap+6, "\r\n 0123456789"); m.keyed && next > gap+1 && strings.HasPrefix(s[next:], `) "`) {
		return m.by(pair, next+2)
	}
	if gap < len(s) && strings.HasPrefix(s[gap:], " { get;") { // string Password { get; set; } = "SECRET" of C#
		gap = min(len(s), until(s, gap, maxKey, "}\n")+1)
	}
	// Spaces may be before the sign and after it; some signs count only with a space before them.
	i := skip(s, gap, gap+40, " \t")
	// What a path ends with names a file, unless something is assigned to it: consul kv put app/password=x.
	if i == len(s) || m.path && s[i] != '=' {
		return 0, false // /etc/passwd: …
	}
	// From here on it is what joins label and value: =, :, "is", a tag, or nothing but a space.
	i, ok := m.operator(i, i > gap)
	if !ok {
		return 0, false
	}
	i = skip(s, i, len(s), " \t")
	return i, i < len(s)
}

// formField returns where the value of a field of a form begins whose name is s[lo:hi], 0 where there is none: below
// the header Content-Disposition: form-data; name="password" and an empty line.
func formField(s string, lo, hi int) int {
	name := max(0, lo-1)
	if s[name] == '[' { // name="user[password]"
		name = max(0, runBack(s, name, max(0, lo-maxKey), slug)-1)
	}
	if s[name] != '"' && s[name] != '[' {
		name = lo
	}
	if !strings.HasSuffix(s[:name], "name=") || !strings.Contains(s[max(0, name-64):name], "form-data") {
		return 0
	}
	for i := until(s, hi, maxKey, "\n"); i+1 < len(s) && i < hi+maxStatement; i = until(s, i+1, maxKey, "\n") {
		if next := skip(s, i+1, i+2, "\r"); next < len(s) && s[next] == '\n' {
			if strings.HasPrefix(s[next+1:], "\n\n") { // each \r\n of JSON is two in the view
				return next + 3
			}
			return next + 1
		}
	}
	return 0
}

// substituted reports whether the label is what a command of sed replaces: s/PASSWORD/SECRET/.
func (m *mention) substituted() bool {
	return m.lo-2 >= m.c.floor && m.hi < len(m.s) && m.s[m.lo-2] == 's' && bounded(m.s, m.lo-2) &&
		m.s[m.lo-1] == m.s[m.hi] && oneByteOf("/|#", m.s[m.hi])
}

// by notes how the text joins label and value, and returns where the value may begin.
func (m *mention) by(j join, i int) (int, bool) {
	m.join = j
	return i, true
}

// signs are what joins label and value by drawing: how, what the label must be or have (blank: a space before the sign,
// none: no space, keyed: in quotes, flag, tag: of XML), and the signs; · is a space. What comes first wins.
var signs []sign

func readSigns() (rows []sign) {
	for _, row := range []struct {
		join        join
		needs, list string
	}{
		{spaced, "", "=== == !== != <> => :::= ::= := ||= ||: ??= ?= += .= ＝"}, {colon, "", "："},
		{spaced, "blank", `<-· <<<· .·" (was·"`}, {spaced, "none", "::·"}, {cell, "", "│ ║ ┃ |"},
		{sure, "tag", ">"}, {cell, "keyed none", ">"},
		{prose, "", ",·it's·now· ,·it·is·now· ,·it's· ,·it·is· ,·now·"},
		{sure, "keyed flag", ","}, {pair, "keyed", ", with:· , with·"}, {spaced, "blank", `{·"`}, {bare, "", ","},
		{sure, "keyed", "value= content="},
		{prose, "blank", "-> → ⇒ ➜ – — ... -·"},
		{prose, "", "は「 是「 為「 「 を に「 として 已改为 改为 改成 设为 是 为 は 는· 은·"},
		{flag, "blank", "/t·REG_SZ·/d· /t·REG_EXPAND_SZ·/d· -Value·"}, {argument, "none", "("},
	} {
		for text := range strings.FieldsSeq(row.list) {
			rows = append(rows, sign{strings.ReplaceAll(text, "·", " "), row.join, strings.Fields(row.needs)})
		}
	}
	return rows
}

type sign struct {
	text  string
	join  join
	needs []string
}

// drawn reads one of the signs at i.
func (m *mention) drawn(i int, blank bool) (int, bool) {
next:
	for k := range signs {
		x := &signs[k]
		if x.text[0] != m.s[i] || !strings.HasPrefix(m.s[i:], x.text) {
			continue
		}
		for _, need := range x.needs {
			if need == "blank" && !blank || need == "none" && blank || need == "keyed" && !m.keyed ||
				need == "flag" && !m.dashes || need == "tag" && !m.tag ||
				x.join == pair && m.s[m.hi] == '`' { // columns of SQL
				continue next
			}
		}
		by := x.join
		if by == cell && m.keyed && m.pairLabel() >= 0 { // <entry key="password">SECRET
			by = setting
		}
		return m.by(by, skip(m.s, i+len(strings.TrimSuffix(x.text, `"`)), len(m.s), "."))
	}
	return 0, false
}

// operator reads the sign or the words at i, with a space before them or not, and returns where they end. The signs of
// the table come first, as the longer ones begin with an equals sign, a colon or a tag.
func (m *mention) operator(i int, blank bool) (int, bool) {
	s := m.s
	if m.lo > 1 && s[m.lo-2:m.lo] == "${" && (strings.HasPrefix(s[i:], ":-") || strings.HasPrefix(s[i:], ":=")) {
		return m.by(fallback, i+2) // ${NAME:-default}
	}
	if j, ok := m.drawn(i, blank); ok {
		return j, true
	}
	switch s[i] {
	case '=':
		if blank || i+1 < len(s) && oneByteOf(" \t", s[i+1]) {
			return m.by(spaced, i+1)
		}
		return m.by(tight, i+1)
	case ':':
		return m.colon(i, blank)
	case '<':
		return m.nextElement(i)
	case '(', '[': // a remark: password (admin): …, textbox "Password" [ref=e5]: …
		if end := pastRemark(s, i); strings.HasPrefix(s[end:], ":") {
			return m.by(prose, end+1)
		} else if end > i && blank && !m.keyed && strings.IndexByte(s[i:end], ' ') < 0 { // the password (SECRET)
			return m.by(bare, i+1)
		}
		return 0, false
	}
	// <password type="…">…, <setting name="password" type="…">␤<value>…
	inTag := m.keyed && strings.Contains(s[max(m.c.floor, m.lo-40):m.lo], "<")
	if (m.tag || inTag) && blank {
		rest := s[i:min(len(s), i+200)]
		end := max(0, strings.IndexByte(rest, '>'))
		if m.join = sure; inTag {
			m.join = cell
			_, value := valueElement(s, jsonscan.Space(s, i+end+1))
			return value, end > 0 && rest[end-1] != '/'
		}
		return i + end + 1, end > 0 && rest[end-1] != '/'
	}
	return m.spoken(i, blank)
}

// colon reads a colon, and what of Markdown and HTML closes after it.
func (m *mention) colon(i int, blank bool) (int, bool) {
	s := m.s
	if strings.HasSuffix(s[:m.lo], "name=") && strings.HasPrefix(s[i:], "::") { // ::set-output name=password::SECRET
		return m.by(tight, i+2)
	}
	if i+1 < len(s) {
		switch next := s[i+1]; {
		case next == ':' || next == '?', strings.HasPrefix(s[i:], "://"), // a::b, the message of ${NAME:?message}
			oneByteOf(quotes, next) && blank && !m.keyed,                               // a variable of psql
			next == ' ' && m.lo > 0 && s[m.lo-1] == '/',                                // a route, not an option
			m.lo > 1 && s[m.lo-1] == ':' && class[s[m.lo-2]]&alnum != 0 && next != ' ': // arn:…:secret:name
			return 0, false
		}
	}
	// password: str = "SECRET", as many languages have a type before the value
	if end := until(s, i, maxKind, "=\n,;(){}\"`"); end < len(s) && s[end] == '=' {
		kind := strings.TrimPrefix(strings.TrimSpace(s[i+1:end]), "&'static ")
		value := skip(s, end+1, end+2, " ")
		if kind != "" && strings.IndexByte(kind, ' ') < 0 && value < len(s) && oneByteOf(quotes, s[value]) {
			return m.by(spaced, end+1)
		}
	}
	i = skip(s, i+1, i+4, "*")  // **password:** SECRET
	i, _ = elements(s, i, "</") // <b>password:</b> SECRET
	return m.by(colon, i)
}

// maxKind bounds the type of a variable between its name and its value.
const maxKind = 40

// elements skips tags of HTML that begin with open, and what spaces and colons are behind them.
func elements(s string, i int, open string) (end int, some bool) {
	for n := 0; n < 4 && strings.HasPrefix(s[i:], open); n++ {
		end := strings.IndexByte(s[i:min(len(s), i+80)], '>')
		if end < 0 {
			return i, false
		}
		i, some = jsonscan.Space(s, i+end+1), true
	}
	return i, some
}

// nextElement reads the value in the cell of an HTML table after that of the label.
func (m *mention) nextElement(i int) (int, bool) {
	// <th>password</th><td>SECRET</td>, <dt>password</dt><dd>SECRET</dd>
	i, ok := elements(m.s, i, "</")
	if !ok {
		return 0, false
	}
	if i < len(m.s) && m.s[i] == ':' { // <td>password</td>: SECRET
		return m.by(colon, i+1)
	}
	i, _ = elements(m.s, i, "<") // <td>password</td><td>SECRET</td>
	m.join = cell
	return i, i < len(m.s) && m.s[i] != '<'
}

// spoken reads label and value that words or nothing but a space join. A flag and the name in a directive have their
// value next; after other labels the words of a sentence may lead to it. Where they do not, the next word is joined by
// nothing but the space, which says least: the score needs a value that looks like a secret then.
func (m *mention) spoken(i int, blank bool) (int, bool) {
	switch {
	case !blank && (!m.sentence || m.s[i] == '.'): // "пароль.неверный" is a name
		return 0, false
	case m.dashes && !m.keyed: // --password SECRET
		return m.by(flag, i)
	// ENV DB_PASSWORD SECRET has its value next. "set password to x" is a sentence, whose value is behind its
	// preposition.
	case m.verb() && !strings.HasPrefix(m.s[i:], "to "):
		return m.by(setting, i)
	}
	if j, ok := m.statement(i); ok {
		return m.by(prose, j)
	}
	m.join = bare
	return i, !oneByteOf("\n\r", m.s[i])
}

// statement reads "is", "has been reset to", "for the database is": the words up to the value. It goes on, word by
// word, until a verb or a colon leads to the value, and gives up at the end of the clause or after ten words. After the
// name of a key, which is in code as often as in prose, words that no sentence goes on with may lead to a colon only.
func (m *mention) statement(i int) (int, bool) {
	s, loose, last := m.s, false, ""
	for n := 0; n < 10 && i < len(s); n++ {
		i = skip(s, pastRemark(s, i), i+maxKey, " ") // for the database (prod) is
		w, end := spokenWord(s, i, last)
		after := s[end:]
		if w == "" {
			return i + 1, n > 0 && strings.IndexAny(after, "=:") == 0
		}
		// A key that no verb follows is part of another clause: "the token parser reads the file".
		loose = loose || n == 0 && !m.sentence && !lists["linking"][w] && !lists["isVerb"][w]
		switch {
		case lists["isVerb"][w] && stateFollows(after):
		case loose && (has("describing", w) || strings.HasPrefix(after, ":\n")):
			return 0, false
		case strings.HasPrefix(after, ":") && (m.sentence || n > 0 || lists["states"][w]) && !number(w): // no time
			return end + 1, true
		case loose: // words of another clause may lead to a colon only
		case lists["isVerb"][w]: // is: …, will be …, is = …
			return skip(s, end, end+3, ": ="), strings.HasPrefix(strings.TrimPrefix(after, ":"), " ") ||
				strings.HasPrefix(after, ":\n")
		case m.sentence && m.spokenVerb(w, n):
			return end, true
		}
		if !strings.HasPrefix(after, " ") {
			break
		}
		i, last = end+1, w
	}
	return 0, false
}

// spokenWord returns the word at i after the last one, and its end. It may be a user at a host, root@localhost, or in
// quotes, for user 'bob' is.
func spokenWord(s string, i int, last string) (w string, end int) {
	lo := i
	if has("ofNames", last) {
		lo = skip(s, i, i+1, quotes)
	}
	if end = run(s, lo, slug|foreign); strings.HasPrefix(s[end:], "@") {
		end = run(s, end+1, slug|dot)
	}
	if quote := s[i:lo]; strings.HasPrefix(s[end:], quote) {
		return s[lo:end], end + len(quote)
	}
	return "", i
}

// stateFollows reports whether the word after a verb leads on to a secret: is set to SECRET, but not: is now SECRET.
func stateFollows(after string) bool {
	w, ok := strings.CutPrefix(after, " ")
	w = w[:run(w, 0, lower)]
	return ok && lists["states"][w] && !lists["fillers"][w]
}

// pastRemark returns the end of the remark in brackets at i; i where there is none.
func pastRemark(s string, i int) int {
	if oneByteOf("([", s[i]) {
		return i + strings.IndexAny(s[i:min(len(s), i+maxKey)], ")]") + 1
	}
	return i
}

// spokenVerb reports whether the n-th word after a name in another language is its verb, or a dash in its place.
func (m *mention) spokenVerb(w string, n int) bool {
	foreign := strings.IndexFunc(m.s[m.lo:m.hi], func(c rune) bool { return c >= 0x80 }) >= 0
	return lists["spokenVerbs"][w] && (n > 0 || foreign || w != "to") || n > 0 && strings.Trim(w, "—–-") == ""
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
	return lists["verbs"][w]
}
