package redact

import (
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

const (
	maxHeader = 8 << 10 // of a header's value
	maxJudged = 256     // of a value, to report what it is
)

// value returns the bounds of the value at i, without quotes. Bounds with nothing between them are those of an
// expression, 0, 0 of no value; the secrets of a list it notes for later.
//
// A string is a value whatever joins it. What has no quotes ends where the drawing around it does: an element with its
// tag, a cell with its border, a header with its line, a block with its indentation; all else is a word. Where only
// strings are values, as among arguments of a call, a word is an expression.
func (m *mention) value(i int) (lo, hi int) {
	s := m.s
	if i < len(s) {
		i = m.skipMarkup(i)
	}
	if i >= len(s) {
		return 0, 0
	}
	if oneByteOf(quotes, s[i]) {
		return m.stringAt(i)
	}
	m.quoted = false
	if lo, hi := m.bytesAt(i); hi > 0 {
		return lo, hi
	}
	if lo, hi := m.wrapped(i); hi > 0 {
		return lo, hi
	}
	switch {
	case m.join == argument, m.join <= spaced && strings.HasPrefix(s[i:], "[]"):
		return i, i
	case m.noString(i):
		return 0, 0
	case s[i] == '[' && m.join <= spaced,
		s[i] == '{' && m.class > weak && (m.join == spaced || m.join == colon && m.keyed):
		m.items(m.group(i))
		return 0, 0
	case m.join == sure:
		return m.element(i)
	case m.join == cell:
		return m.cellAt(i)
	case m.class == credential && m.join != flag && m.join != setting: // Cookie: a=SECRET; b=SECRET
		return m.headerAt(i)
	case m.join == colon && oneByteOf("|>", s[i]): // password: |␤  SECRET
		return m.block(i)
	case oneByteOf("\n\r", s[i]): // password:␤  SECRET
		return m.nextLine(i)
	}
	if hi = m.phraseEnd(i); hi > i {
		return i, hi
	}
	return i, m.wordEnd(i)
}

// cellAt returns the bounds of the value in the cell of a table, or the element, at i.
func (m *mention) cellAt(i int) (lo, hi int) {
	const ends = "|\n\r`<\xe2"
	s := m.s
	lo, _ = elements(s, skip(s, i, len(s), " `*"), "<") // <code>SECRET</code>
	for hi = until(s, lo, maxJudged, ends); hi < len(s) && s[hi] == '<' && m.c.v.hides(hi, lo, '&'); {
		hi = until(s, hi+1, maxJudged, ends)
	}
	return lo, skipBack(s, hi, lo, " *")
}

// phraseEnd returns the end of the pass phrase without quotes at i, which is the rest of its line or of its pair, 0
// where there is none: seed_phrase: twelve words, Password=two words;Database=main.
func (m *mention) phraseEnd(i int) int {
	starts := m.startsLine()
	if m.class < secret || m.join > spaced && !(m.join == bare && starts) {
		return 0
	}
	hi := until(m.s, i, maxJudged, ";\n\"(")
	if hi < len(m.s) && m.s[hi] == '(' || m.join == tight && !starts && (hi == len(m.s) || m.s[hi] != ';') {
		return 0
	}
	hi = skipBack(m.s, hi, i, blanks)
	if strings.IndexByte(m.s[i:hi], ' ') < 0 || strings.IndexByte(m.s[i:hi], ',') > 0 || !spaceJoined(m.s[i:hi]) {
		return 0
	}
	if m.join <= spaced && strings.Count(m.s[i:hi], " ") > 2 && holdsFold(m.s[m.lo:m.hi], "phrase", "mnemonic") {
		m.join = sure
	}
	return hi
}

// bytesAt returns the bounds of the list of bytes at i: {0x1c, 0x10, …}, [91, 7, …], {'a', 'b', …}.
func (m *mention) bytesAt(i int) (lo, hi int) {
	if m.join > spaced {
		return 0, 0
	}
	if k := run(m.s, i, word|dot); k > i && strings.HasPrefix(m.s[k:], "([") { // bytes([1, 2, …])
		i = k + 1
	}
	if !oneByteOf("[{", m.s[i]) {
		return 0, 0
	}
	if k := until(m.s, i, 16, "{"); k < len(m.s) && m.s[k] == '{' { // [_]u8{0x9b, …} has its type before it
		i = k
	}
	lo = skip(m.s, i+1, i+40, blanks)
	hi = until(m.s, lo, maxPair, "]}")
	list := m.s[lo:hi]
	if strings.Count(list, ",") < 7 ||
		strings.Trim(list, "0123456789abcdefxABCDEF, \n\r\t'") != "" && strings.Count(list, "'") < 16 {
		return 0, 0
	}
	m.join = sure
	return lo, skipBack(m.s, hi, lo, blanks+",")
}

// noString reports whether only a string may be the value, or what is at i is the next name: key, name=value.
func (m *mention) noString(i int) bool {
	return m.join == pair || m.join == sure && !m.tag || m.join == bare && m.class != credential && nameFollows(m.s, i) &&
		!severalSigns(m.s[i:until(m.s, i, maxKey, wordStops)])
}

// severalSigns reports whether v is no pair, but made by chance, with equals signs in it.
func severalSigns(v string) bool {
	name, rest, _ := strings.Cut(v, "=")
	return strings.IndexByte(rest, '=') >= 0 && digits(name) && chancy(v)
}

// wrapped returns the bounds of a value without what the writer put around it: Str(…) of the debug exporter of
// OpenTelemetry, {…} of ODBC.
func (m *mention) wrapped(i int) (lo, hi int) {
	s := m.s
	switch {
	case i == m.hi+1 && m.substituted():
		return i, until(s, i, maxJudged, s[m.hi:m.hi+1]+"\n")
	case m.join == colon && strings.HasPrefix(s[i:], "Str("):
		return i + len("Str("), until(s, i, maxJudged, ")\n")
	case (m.join == colon || m.join == prose) && s[i] == '*': // Passphrase: *three words of it*
		lo = skip(s, i, i+2, "*")
		hi = until(s, lo, maxKey, "*\n")
		m.quoted = hi < len(s) && s[hi] == '*' && hi > lo && s[hi-1] != ' '
		return unless(!m.quoted, lo, hi)
	case strings.HasPrefix(s[i:], "<![CDATA["): // <password><![CDATA[SECRET]]></password>
		lo = i + len("<![CDATA[")
		return lo, lo + strings.Index(s[lo:min(len(s), lo+maxHeader)]+"]]>", "]]>")
	case m.join == tight && s[i] == '{' && !strings.HasPrefix(s[i:], "{{"): // {{ a }} is of a template
		hi = until(s, i, maxKey, "}\n")
		ends := hi < len(s) && s[hi] == '}' && (hi+1 == len(s) || oneByteOf(";\n\"' ", s[hi+1]))
		return unless(!ends, i+1, hi) // {a}b is a password that begins with a brace
	}
	for _, b := range [...][2]string{{"q(", ")"}, {"%q(", ")"}, {"q{", "}"}, {"[[", "]]"}} { // strings of Perl, Ruby and Lua
		if lo = i + len(b[0]); m.join <= spaced && strings.HasPrefix(s[i:], b[0]) && lo < len(s) {
			hi = lo + strings.Index(s[lo:until(s, lo, maxJudged, "\n")]+b[1], b[1])
			if m.quoted = b[0] != "[[" || strings.IndexByte(s[lo:hi], ',') < 0; m.quoted { // [[0, 1], [2]] is a list
				return lo, hi
			}
		}
	}
	return 0, 0
}

// skipMarkup skips what states of which kind the value at i is: a tag or an anchor of YAML, elements of HTML around a
// word of prose, the letter before a string, such as b"…" of Python.
func (m *mention) skipMarkup(i int) int {
	s := m.s
	// password: !!str SECRET, password: &anchor SECRET. A password may itself begin with one of these signs, so a space
	// and a value must follow the word.
	if m.join == colon && i < len(s) && oneByteOf("!&", s[i]) {
		if end := run(s, skip(s, i+1, i+2, "!"), slug|dot); end+1 < len(s) && s[end] == ' ' &&
			(s[i] == '&' || s[i+1] == '!' || s[end+1] == '"') {
			i = end + 1
		}
	}
	if strings.HasPrefix(s[i:], "[") && strings.HasPrefix(s[run(s, i+1, digit):], "m'") { // a colour
		i = run(s, i+1, digit) + 1
	}
	if m.join <= spaced && s[i] == '(' {
		i = typed(s, i)
	}
	switch m.join {
	case prose:
		i, _ = elements(s, i, "<")
		if end := run(s, i, lower); end < len(s) && s[end] == ' ' && has("fillers", s[i:end]) { // is now SECRET
			i = end + 1
		}
	case pair:
		i = jsonscan.Space(s, i)
	}
	if strings.HasPrefix(s[i:], `<<"`) { // of Erlang
		return i + 2
	}
	if next := m.behindNumber(i); next > i {
		return next
	}
	if i+1 < len(s) && oneByteOf("\"'", s[i+1]) && oneByteOf("bBrRfFuUNE@$L", s[i]) {
		i++
	}
	return i
}

// typed returns where the string behind the brackets at i is, i where there is none: KEY = (␤"SECRET"), KEY: (string)
// (len=6) "SECRET".
func typed(s string, i int) int {
	behind := skip(s, pastRemark(s, i), i+maxKey, " ")
	if behind < len(s) && s[behind] == '(' {
		behind = skip(s, pastRemark(s, behind), i+maxKey, " ")
	}
	for _, next := range [...]int{jsonscan.Space(s, i+1), behind} {
		if next < len(s) && oneByteOf(quotes, s[next]) {
			return next
		}
	}
	return i
}

// behindNumber returns where the value begins behind a number that is none, i where there is no such number: the
// address of a string, as debuggers have it, the kind of a password, enable secret 0 SECRET.
func (m *mention) behindNumber(i int) int {
	s := m.s
	end := run(s, i, alnum)
	word := until(s, min(len(s), end+1), maxKey, wordStops)
	switch {
	case m.join <= spaced && strings.HasPrefix(s[i:], "0x") && strings.HasPrefix(s[end:], ` "`):
		return end + 1
	case m.join == bare && m.class >= secret && end == i+1 && class[s[i]]&digit != 0 && strings.HasPrefix(s[end:], " ") &&
		(word == len(s) || s[word] != ' '):
		m.join = setting // the password 5 attempts later is a sentence
		return end + 1
	}
	return i
}

// stringAt returns the bounds of the string whose quote is at i, without it.
func (m *mention) stringAt(i int) (lo, hi int) {
	if s := m.s; m.c.closesString(i) && !(s[i-1] == ' ' && i+2 < len(s) && oneByteOf("+.&|%:", s[i+1]) && s[i+2] != ' ') {
		return 0, 0
	}
	m.quoted = true
	lo, hi = i+1, m.c.closing(i)
	if m.class == credential {
		lo = afterScheme(m.s, lo, hi)
	}
	return lo, hi
}

// closesString reports whether the quote at i ends a string, as in "password=" + password, rather than beginning one:
// what follows it is a sign that goes on after a string, which few secrets begin with.
func (c *scan) closesString(i int) bool {
	return i+1 == len(c.s) || oneByteOf(" ,)+;]}.&|%\n\r:", c.s[i+1])
}

// closing returns the end of the string whose quote is at i. The quote that closes it has no more backslashes before
// it, as in JSON within JSON. A string that nothing closes ends with its line. What was asked for last is not looked
// for again.
func (c *scan) closing(i int) int {
	q, n, k := c.s[i], c.v.level(i), &c.closed
	i++
	if k.q == q && k.n == n && k.from <= i && i <= k.end && k.end <= len(c.s) {
		return k.end
	}
	end := i
	for {
		next := strings.IndexByte(c.s[end:], q)
		if next < 0 {
			end = c.eol(i)
			break
		}
		end += next
		// Quotes that are hidden deeper are of strings within this one; those that are hidden less deep end what this
		// string is in, and so it, too.
		level := c.v.level(end)
		// A quote that is doubled is part of the string: 'it''s' of SQL and YAML.
		if q == '\'' && level == n && end > i && end+2 < len(c.s) && c.s[end+1] == q && class[c.s[end+2]]&alnum != 0 &&
			class[c.s[end-1]]&alnum != 0 {
			end += 2
			continue
		}
		if n == 0 && level%2 == 0 || n > 0 && level <= n {
			break
		}
		end++
	}
	*k = closedQuote{i, end, n, q}
	c.looked += (end - i) / 4
	return end
}

func afterScheme(s string, lo, hi int) int {
	for _, scheme := range words["schemes"] {
		if n := len(scheme); hi-lo > n+1 && s[lo+n] == ' ' && strings.EqualFold(s[lo:lo+n], scheme) {
			return skip(s, lo+n, hi, " ")
		}
	}
	return lo
}

// headerAt returns the value of a header: the rest of its line, or of the string the header is in. What its first word
// rules out is not looked at further.
func (m *mention) headerAt(i int) (lo, hi int) {
	s := m.s
	// Authorization: Bearer SECRET; Cookie: theme=dark; sid=SECRET. The scheme stays.
	lo = afterScheme(s, i, min(len(s), i+40))
	// Another header's name, or a word of a sentence about this header?
	first := until(s, lo, 64, wordStops)
	if w := s[lo:first]; w == "" || w[len(w)-1] == ':' || has("stopWords", w) ||
		!strings.ContainsAny(w, "0123456789=") && first < len(s) && s[first] == ' ' {
		return 0, 0
	}
	// It ends with its line, with the string that it is in, or with any quote, unless it has quotes itself.
	stops := "\n\r" + quotes
	// A command in quotes has its header in them: curl -H "Cookie: a=b; c=d".
	if q := m.lo - 1; q >= 0 && oneByteOf(quotes, s[q]) {
		stops = "\n\r" + s[q:q+1]
	} else if lo > i && oneByteOf("DHO", s[i]) {
		stops = "\n\r" // Digest, Hawk and OAuth have quotes in their pairs
	}
	hi = until(s, i, maxHeader, stops)
	if k := strings.Index(s[i:hi], TruncatedMarker); k >= 0 {
		hi = i + k
	}
	m.c.looked += hi - i
	end := skipBack(s, hi, lo, blanks+",;)}]")
	return lo, end
}

// block returns the value of a YAML block: the lines indented deeper than the label.
func (m *mention) block(i int) (lo, hi int) {
	s, eol := m.s, m.c.eol(i)
	if !m.startsLine() || eol == len(s) || strings.Trim(s[i:eol], "|>+-0123456789 \t\r") != "" {
		return 0, 0
	}
	m.join = sure
	from := m.c.head(m.lo)
	hi = m.c.deeper(eol, indent(s[from:min(len(s), from+maxHead)]))
	lo = eol + 1 + indent(s[eol+1:min(len(s), eol+200)])
	return unless(hi < lo, lo, hi)
}

// deeper returns the end of the last of the lines after the one that ends at end which are indented deeper than depth.
func (c *scan) deeper(end, depth int) int {
	for i := end; i < len(c.s); {
		next := c.eol(i + 1)
		line := c.s[i+1 : next]
		c.looked += len(line)
		empty, from := strings.TrimSpace(line) == "", skip(line, 0, len(line), " \t-")
		if empty && depth < 0 || !empty && from <= depth || !c.afford(1) {
			break
		} else if !empty {
			end = next
		}
		i = next
	}
	return end
}

func indent(s string) int { return len(s) - len(strings.TrimLeft(s, " \t")) }

// nextLine returns the one word of the line after the label's, past an empty one.
func (m *mention) nextLine(i int) (lo, hi int) {
	s := m.s
	if i = skip(s, i, i+40, blanks); strings.HasPrefix(s[i:], "```") { // the value is within a block of Markdown
		i = skip(s, m.c.eol(i), i+40, blanks)
	}
	switch {
	case i == len(s) || m.keyed:
		return 0, 0
	case oneByteOf(quotes, s[i]) && m.join == spaced: // password =␤  "SECRET"
		return m.stringAt(i)
	case m.join != colon && m.join != prose && m.join != flag || oneByteOf(quotes, s[i]):
		return 0, 0
	case m.class >= keyed && s[m.hi-1]|0x20 == 's' || strings.HasPrefix(s[i:], "- "): // secrets:␤  db: …
		m.items(m.group(m.hi))
	}
	m.join = below
	if end := run(s, i, slug); strings.HasPrefix(s[end:], ": ") || strings.HasPrefix(s[end:], ":\n") { // the next name
		return 0, 0
	}
	return i, m.wordEnd(i)
}

// element returns the text of an element of XML that the label names.
func (m *mention) element(i int) (lo, hi int) {
	s, name := m.s, m.s[m.lo:m.hi]
	if inner, value := valueElement(s, i); inner != "" { // <password><value>…
		name, i = inner, value
	}
	for hi = i; ; hi++ { // what XML encodes ends no element
		k := strings.IndexByte(s[hi:min(len(s), i+maxHeader)], '<')
		if k < 0 || !m.c.afford(k/8) {
			return 0, 0
		}
		if hi += k; !m.c.v.hides(hi, m.lo, '&') {
			break
		}
	}
	end, ok := strings.CutPrefix(s[hi:min(len(s), hi+maxKey)], "</")
	end, _, _ = strings.Cut(end, ">")
	return unless(!ok || !strings.HasPrefix(end[strings.LastIndexByte(end, ':')+1:], name), i, hi) // </ns:password>
}

// valueElement returns the name of the element at i that has the value of a pair, and where that begins; "" and i where
// there is none.
func valueElement(s string, i int) (name string, value int) {
	inner, ok := strings.CutPrefix(s[jsonscan.Space(s, i):], "<")
	k := max(0, strings.IndexByte(inner[:min(len(inner), 16)], '>'))
	if !ok || !ofValue(inner[:k]) {
		return "", i
	}
	return inner[:k], len(s) - len(inner) + k + 1
}

// group returns the bounds of the group at i: what is in brackets, the lines indented deeper than that of the label, or
// those up to an empty one. What is in brackets is bounded only by how long it may be: items stops at the last bracket.
func (m *mention) group(i int) (lo, hi int) {
	_, to := m.c.line(m.lo)
	if strings.Trim(m.s[i:to], ": \r") != "" {
		return i, min(len(m.s), i+maxHeader)
	}
	if hi = m.c.deeper(to, indent(m.s[m.c.head(m.lo):m.hi])); hi == to {
		hi = m.c.deeper(to, -1)
	}
	return to, hi
}

// items notes the secrets among the values in s[lo:hi], which the label names as a group: the words and strings, up to
// the bracket that ends a list, that are no names of members.
func (m *mention) items(lo, hi int) {
	c, s := m.c, m.s
	m.join = item
	// passwords: [SECRET, "SECRET"]; users: {bob: SECRET}; lines of YAML below "credentials:".
	//
	// The group may never end, so each item is paid for.
	for depth := 0; lo < hi && c.afford(8); {
		switch b := s[lo]; {
		// passwords: [SECRET, SECRET] ends with its last bracket.
		case oneByteOf("[{(", b):
			depth++
		case oneByteOf("]})", b):
			if depth--; depth <= 0 {
				return
			}
		case !oneByteOf(blanks+",:=-", b):
			end := groupsEnd(s, lo, c.bareWord(lo))
			if m.quoted = oneByteOf(quotes, b); m.quoted {
				lo, end = lo+1, c.closing(lo)
				if m.class == credential {
					lo = afterScheme(s, lo, end)
				}
			} else if k := strings.IndexAny(s[lo:end], "=:]})"); k >= 0 && run(s, lo, slug|dot) == lo+k {
				end = lo + k
			}
			// What words follow is a sentence, and what a colon or an equals sign follows is the name of a member: neither
			// is an item.
			next := skip(s, end, hi, " "+quotes)
			if !m.quoted && next < hi && !oneByteOf("\n\r,;:=#)]}", s[next]) { // words
				end = until(s, next, hi-next, "\n")
			} else if has("ofObjects", c.ownerOf(lo)) {
				m.tried = span{lo, end} // describes a secret
			} else if next == len(s) || !oneByteOf(":=", s[next]) {
				m.found(lo, end)
			}
			lo = end
		}
		lo++
	}
}

// wordEnd returns the end of a value without quotes.
func (m *mention) wordEnd(i int) int {
	c, s := m.c, m.s
	// A word is walked over once, though it be made of labels.
	if i < c.wordFrom || i >= c.wordTo || m.query != c.wordQuery {
		c.wordFrom, c.wordTo, c.wordQuery = i, wordStop(s, i, m.query), m.query
		// password=Sun%26Flower&user=bob: what a URL encodes ends nothing, unless all of it is encoded.
		// So does a quote in XML: password=it&apos;s
		for end := c.wordTo; end < len(s) && (c.v.hides(end, i, '%') ||
			oneByteOf(quotes, s[end]) && c.v.hides(end, i, '&')); {
			end = wordStop(s, end+1, m.query)
			c.wordTo = end
		}
		c.looked += c.wordTo - i
	}
	end := c.wordTo
	if rest, ok := strings.CutPrefix(s[i:end], Marker); ok && strings.Trim(rest[:min(len(rest), 8)], ".,;:!?)]}") == "" {
		return i + len(Marker) // redacted already, at the end of a sentence
	}
	end = groupsEnd(s, i, end)
	if end > i+1 && (s[end-1] == '.' && (class[s[end-2]]&alnum != 0 || s[end-2] == ')') ||
		s[end-1] == '!' && m.join == prose && class[s[end-2]]&lower != 0) {
		end-- // ends a sentence
	}
	if hi := templateEnd(s, i, end); hi > 0 {
		return hi
	}
	for end > i && oneByteOf(",;:)}]", s[end-1]) {
		end--
	}
	return end
}

// templateEnd returns the end of what a program fills in at i, 0 where there is none: ${{ a.b }} and {{ a }} have
// spaces.
func templateEnd(s string, i, end int) int {
	for _, t := range [...][2]string{{"${{", "}}"}, {"{{", "}}"}, {"${", "}"}, {"$(", ")"}, {"<%", "%>"}} {
		if end-i < maxJudged && strings.HasPrefix(s[i:end], t[0]) {
			k := i + strings.Index(s[i:min(len(s), i+200)], t[1]) + len(t[1])
			if t[0] == "${" && k > i && k < end && oneByteOf(")]}", s[k]) {
				return k // [-Dpassword=${PASSWORD}][-Xmx2g]
			}
			return max(end, k)
		}
	}
	return 0
}

// groupsEnd returns the end of the groups of digits, the first of which is s[i:end], or end: the code is 381 954. Four
// groups of four letters are a password that Google makes for a program.
func groupsEnd(s string, i, end int) int {
	if hi := i + 19; end == i+4 && hi <= len(s) && run(s[:hi], i, lower|digit|space) == hi &&
		s[i+9] == ' ' && s[i+14] == ' ' && strings.Count(s[i:hi], " ") == 3 &&
		(byChance(strings.ReplaceAll(s[i:hi], " ", ""), 48) || look(s[i:hi]).turns > 3) {
		return hi
	}
	for end >= i+3 && end < min(i+10, len(s)) && s[end] == ' ' && strings.Trim(s[i:end], "0123456789 ") == "" {
		next := run(s, end+1, digit)
		if next < end+4 || next > end+7 {
			break
		}
		end = next
	}
	return end
}

func wordStop(s string, i int, query bool) int {
	// In password=Sun&fl0wer;42, d the comma ends the value, as a space follows it, and & and ; are part of it.
	//
	// Marks are parts of passwords, so few of them end a value: those that lead to the next pair, and what another
	// language begins, such as a tag.
	for end := i; end < len(s); end++ {
		c, rest := s[end], s[end:]
		switch {
		// Most bytes of a word are these, and are asked first.
		case class[c]&(alnum|dash|dot) != 0:
		case class[c]&space != 0 || oneByteOf(quotes, c),
			// password: SECRET</p>
			strings.HasPrefix(rest, "</") || strings.HasPrefix(rest, "<br"),
			strings.HasPrefix(rest, `\u`), strings.HasPrefix(rest, TruncatedMarker),
			// password: SECRET, user: bob; password=SECRET&user=bob
			oneByteOf("&,;|", c) && (len(rest) == 1 || class[rest[1]]&space != 0 ||
				nameFollows(s, end+1) && (c != '&' || s[run(s, end+1, slug|dot)] != ':')),
			// In the query of a URL: ?password=SECRET&page=2, ?password=SECRET#top. Elsewhere a password may hold
			// both: password=sunflower&42.
			query && (c == '&' || c == '#'),
			// パスワードはSECRETです
			c >= 0xe3 && class[s[i]]&foreign == 0 && c < 0xf0,
			strings.HasPrefix(rest, "，") || strings.HasPrefix(rest, "。") || strings.HasPrefix(rest, "」"):
			return end
		}
	}
	return len(s)
}

// nameFollows reports whether s[i:] begins with a name and an equals sign or a colon.
func nameFollows(s string, i int) bool {
	end := run(s[:min(len(s), i+64)], i, slug|dot)
	return end > i && end < len(s) && (s[end] == '=' || s[end] == ':' || strings.HasPrefix(s[end:], " = "))
}

// bareWord returns the end of the word at i, without quotes.
func (c *scan) bareWord(i int) int {
	end := until(c.s, i, 1024, blanks+"\"'`<,;)|")
	if end > i && c.s[end-1] == '.' {
		end--
	}
	return end
}
