package redact

import (
	_ "embed" // of the table
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// phrase is a row of data/phrases.txt.
type phrase struct {
	literals []string
	where    placing
	join     join     // joins where signs and words show it
	behind   []string // what is between it and its value
	find     func(c *scan, m *mention) bool
	hint     bool // it names no secret: one is near it more often than elsewhere
}

//go:embed data/phrases.txt
var phrasesFile string

var finders = map[string]func(c *scan, m *mention) bool{"@grouped": grouped, "@afterUser": afterUser,
	"@printed": printed, "@given": given, "@afterName": afterName, "@pgpass": pgpass, "@ofSecret": ofSecret,
	"@ofKey": ofKey}

// phrases are the rows of the table of labels that are not names of keys.
var phrases []phrase

func readPhrases() (rows []phrase) {
	spaces := strings.NewReplacer("·", " ", "␤", "\n")
	for _, line := range tableRows(phrasesFile) {
		column := strings.Split(spaces.Replace(line), "\t")
		p := phrase{literals: strings.Split(column[0], "|"), where: placingOf(column[1]), join: joins}
		if list, ok := strings.CutPrefix(column[0], "@"); ok {
			p.literals = phrasesOf(list)
		}
		if by := slices.Index(rowNames, column[2]); by >= 0 {
			p.join = join(by)
		}
		if len(column) > 3 {
			p.hint = column[3] == "@hinted"
			if p.find = finders[column[3]]; p.find == nil {
				p.behind = strings.Split(column[3], "|")
			}
		}
		rows = append(rows, p)
	}
	return rows
}

// phrased finds the value of the phrase that e found at begin, where it is a secret.
func (c *scan) phrased(e *entry, begin int) bool {
	p, hi := e.phrase, begin+len(e.literal)
	begin += strings.LastIndexByte(e.literal, '\n') + 1
	m := &c.m
	*m = mention{c: c, s: c.s, lo: begin, hi: hi, class: spokenOf, join: p.join, sentence: true}
	name := spokenOf.String()
	if p.hint {
		name = "hint"
	}
	c.labels = append(c.labels, label{begin, hi, name})
	switch {
	case p.hint:
		return false
	case p.find != nil:
		return p.find(c, m)
	case p.behind != nil: // CREATE USER bob … IDENTIFIED BY SECRET
		for n := 0; n < 3; n++ { // log in with bob and SECRET: one sign is before the user
			if m.hi = m.behind(p.behind); m.hi == 0 {
				break
			} else if m.joined(jsonscan.Space(c.s, m.hi)) {
				return true
			}
		}
		return false
	case p.join == below: // $ gh auth token␤SECRET
		i := jsonscan.Space(c.s, c.eol(hi))
		return strings.IndexByte(c.s[i:c.eol(i)], ' ') < 0 && m.joined(i)
	case p.join != joins: // requirepass SECRET
		return m.joined(jsonscan.Space(c.s, hi))
	}
	if m.inIdentifier() {
		return m.secretAt(m.sign())
	}
	// What people say is inflected and followed by words: "Das Passwort für den Server lautet SECRET".
	m.hi = inflected(c.s, begin, hi)
	if id := c.s[m.hi:min(len(c.s), m.hi+4)]; partOfWord(c.s, begin, m.hi) ||
		len(id) > 2 && oneByteOf("-_ ", id[0]) && equalFold(id[1:3], "id") && (len(id) < 4 || class[id[3]]&letter == 0) {
		return false // Schlüssel-ID
	}
	return m.secretAt(m.sign())
}

// inIdentifier has the label be the identifier that the name is a word of, senhaBanco, parola_utente, and reports
// whether there is one.
func (m *mention) inIdentifier() bool {
	s, lo, hi := m.s, m.lo, m.hi
	if hi < len(s) && (s[hi] == '_' || class[s[hi]]&upper != 0 && class[s[hi-1]]&lower != 0) {
		rest := strings.TrimLeft(s[hi:run(s, hi, word|foreign)], "_")
		if has("describing", rest[:wordFrom(rest, 0, len(rest))]) {
			return false
		}
		hi = run(s, hi, word|foreign)
	}
	if lo > m.c.floor && (s[lo-1] == '_' || class[s[lo-1]]&lower != 0 && class[s[lo]]&upper != 0) {
		lo = runBack(s, lo, max(m.c.floor, lo-maxKey), word|foreign)
	}
	if hi-lo == m.hi-m.lo || hi < len(s) && class[s[hi]]&word != 0 || m.lo > 0 && lo == m.lo && class[s[lo-1]]&alnum != 0 {
		return false
	}
	m.lo, m.hi, m.class, m.sentence = lo, hi, secret, false
	return true
}

// behind returns the end of the first of signs after the label in its line, 0 where there is none. After a string of
// JSON it may be in a line below.
func (m *mention) behind(signs []string) int {
	for i := m.hi; i < len(m.s) && i < m.hi+200 && (m.s[m.hi-1] == '"' || !oneByteOf("\n)", m.s[i])); i++ {
		if strings.HasPrefix(m.s[i:], "://") {
			break
		}
		for _, sign := range signs {
			if end := i + len(sign); end <= len(m.s) && equalFold(m.s[i:end], sign) {
				return end
			}
		}
	}
	return 0
}

// inflected returns the end of the name s[lo:hi] with up to three more letters: Lösenordet, пароля.
func inflected(s string, lo, hi int) int {
	end := hi
	if hi-lo < 5 || strings.HasPrefix(s[lo:hi], "the ") { // the pin, not the pinned
		return hi
	}
	for n := 0; n < 3 && end < len(s); n++ {
		switch c := s[end]; {
		case class[c]&lower != 0 && class[s[hi-1]]&lower != 0:
			end++
		case c >= 0xd0 && c <= 0xd3 && end+2 <= len(s): // Cyrillic
			end += 2
		}
	}
	return end
}

// partOfWord reports whether letters go on before or after s[lo:hi].
func partOfWord(s string, lo, hi int) bool {
	return lo > 0 && hi-lo < 7 && class[s[lo-1]]&alnum != 0 && s[lo] < 0x80 || hi < len(s) &&
		(class[s[hi]]&word != 0 || s[hi] == 0xc3) && s[hi-1] < 0x80 // Schlüsselübergabe
}

// given finds a string among the arguments of the call that the label begins.
func given(c *scan, m *mention) bool {
	_, to := c.line(m.lo)
	if oneByteOf("( ", c.s[m.hi-1]) {
		to = min(to, m.callEnd())
	}
	c.readTokens(m.lo, min(m.hi+maxStatement, to))
	arguments, of := 0, func(t *token) bool { return t.f.is(isQuoted) && t.lo >= m.hi && t.lo < to }
	for k := range c.tokens {
		if of(&c.tokens[k]) {
			arguments++
		}
	}
	n := 0
	for k := range c.tokens {
		// What another call within this one looks up is a name: setCredentials(config.get("user"), …).
		if t := &c.tokens[k]; of(t) && !m.looksUp(t) {
			n++
			if t.f.set(isLater, n == 3 || n == 2 && arguments == 2); n > 3 { // databases and options
				t.f.set(ends, false)
			}
			if m.near(t, m.join) {
				return true
			}
		}
	}
	return false
}

// callEnd returns the end of the call whose arguments begin behind the label.
func (m *mention) callEnd() int {
	end := min(len(m.s), m.hi+maxStatement)
	for i, depth := m.hi, 0; i < end; i++ {
		switch b := m.s[i]; {
		case oneByteOf(quotes, b) && !m.c.closesString(i):
			i = min(end, m.c.closing(i))
		case b == '(':
			depth++
		case b == ')':
			if depth--; depth < 0 {
				return i
			}
		}
	}
	return end
}

// looksUp reports whether the token is the argument of a call within the label's, or before the label, that looks
// something up.
func (m *mention) looksUp(t *token) bool {
	at, floor := max(0, t.lo-2), m.hi
	if t.hi <= m.lo {
		floor = m.c.floor
	}
	name := m.s[runBack(m.s, at, min(at, floor), word):at]
	return at > floor && (m.s[at] == '(' && has("lookups", name) || m.s[at] == '[' && name != "")
}

// afterUser finds the password of a command that a user is named to, whatever command it is: -u USER -p PASSWORD.
func afterUser(c *scan, m *mention) bool {
	from, _ := c.line(m.lo)
	// -p has many meanings (a port, a path, a project); only where a user was named before is it a password.
	before := c.s[max(from, m.lo-maxKey):m.lo]
	k := max(strings.LastIndex(before, "-u"), strings.LastIndex(before, "-U")) // of --user, too
	if k < 0 || !bounded(before, runBack(before, k, 0, dash)) || strings.ContainsAny(before[k:], "|;&\n") ||
		holdsFold(before, "mysql", "mariadb") {
		// TOOL -u bob | mkdir -p directory: the user is of another command. mysql -u bob -p shop: what follows is a database.
		return false
	}
	m.class, m.dashes = ofTool, true
	if m.quoted = oneByteOf(quotes, c.s[m.hi-1]); m.quoted {
		return m.found(m.hi, c.closing(m.hi-1))
	}
	return m.joined(m.hi)
}

// afterName finds the password in what is assigned to a user: user=NAME:PASSWORD.
func afterName(c *scan, m *mention) bool {
	name := skip(c.s, m.hi, m.hi+4, " ='\",:")
	end := run(c.s, name, slug|dot)
	if m.class = ofTool; !holds(c.s[name:end], letter) || end == len(c.s) || c.s[end] != ':' {
		return false
	}
	return m.joined(end + 1)
}

// printed notes what is written into a command that reads a password: echo … | COMMAND, COMMAND <<< …, or
// COMMAND <(echo …).
func printed(c *scan, m *mention) bool {
	from, _ := c.line(m.lo)
	if !c.afford(0) {
		return false
	}
	var end int
	c.words, end = c.commandWords(m.lo, c.words[:0])
	c.words = c.words[min(1, len(c.words)):]
	c.afford((end - m.hi) / 4) // one command may have many that print
	command, user := c.s[max(from, m.lo-maxKey):m.lo], ""
	if strings.HasPrefix(c.s[end:], "|") {
		command = c.s[end:until(c.s, end, maxKey, "\n")]
	}
	reads := func(word string) bool { return strings.Contains(command, word) }
	// echo … > .vault_pass
	if k := slices.IndexFunc(c.words, func(w span) bool { return strings.HasPrefix(c.text(w), ">") }); k > 0 {
		end, c.words = c.words[k].lo, c.words[:k]
	}
	file := c.s[end:until(c.s, end, maxKey, "\n;|&")]
	// echo … | base64 -d only decodes.
	kept := strings.HasPrefix(file, ">") && c.r.classify(file) != notSecret
	if !kept && !strings.HasSuffix(command, "<(") && !slices.ContainsFunc(words["readers"], reads) ||
		reads("base64 -d") || reads("sum -") {
		return false
	}
	if reads("chpasswd") { // echo bob:SECRET | chpasswd
		user = ":"
	}
	m.class, m.hi = ofTool, m.lo+len(strings.TrimRight(c.s[m.lo:m.hi], " "))
	for _, w := range c.words {
		for line := range strings.SplitSeq(c.text(w), "\n") {
			if !strings.HasPrefix(line, "%s") {
				c.give(user, span{w.lo, w.lo + len(line)}, flag)
			}
			w.lo += len(line) + 1
		}
	}
	return false
}

// grouped notes the secrets of the group that the label begins.
func grouped(c *scan, m *mention) bool {
	m.items(m.group(m.hi))
	return false
}

// pgpass finds the last field of a line of .pgpass: host:port:database:user:password.
func pgpass(c *scan, m *mention) bool {
	lo, hi := since(c.s, m.lo, max(c.floor, m.lo-80), wordStops+"=<>/"), c.bareWord(m.hi)
	fields := strings.SplitN(c.s[lo:hi], ":", 5)
	if len(fields) < 5 || noPassword(fields[4]) || run(c.s[:hi], lo, slug|dot|colonAt|star) < hi-len(fields[4]) {
		return false
	}
	return c.note(hi-len(fields[4]), hi, Marker)
}

// ofKey notes the private members of a JSON Web Key; the others identify it. Of other objects it is the value.
func ofKey(c *scan, m *mention) bool {
	lo, hi := since(c.s, m.lo, max(c.floor, m.lo-maxHeader), "{"), until(c.s, m.hi, maxHeader, "}")
	for _, name := range [...]string{`"d"`, `"p"`, `"q"`, `"dp"`, `"dq"`, `"qi"`, `"k"`, `"value"`} {
		if at := lo + strings.Index(c.s[lo:hi], name); at >= lo {
			m.joined(skip(c.s, at+len(name), hi, ": "))
		}
	}
	return false
}

// ofSecret notes the data of a Secret of Kubernetes, in JSON or YAML.
func ofSecret(c *scan, m *mention) bool {
	lo, hi := max(c.floor, m.lo-maxHeader), min(len(c.s), m.hi+maxHeader)
	if end := c.eol(m.hi); c.s[m.hi-1] != '"' && strings.TrimSpace(c.s[m.hi:end]) != "" || !c.afford((hi-lo)/8) {
		return false // a SecretStore
	}
	lo += strings.LastIndex(c.s[lo:m.lo], "\n---") + 1
	hi = m.hi + strings.Index(c.s[m.hi:hi]+"\n---", "\n---")
	for _, name := range [...]string{"\ndata:", `"data":`} {
		if at := lo + strings.Index(c.s[lo:hi], name); at >= lo {
			m.lo, m.hi = at+1, at+len(name)
			return grouped(c, m)
		}
	}
	return false
}
