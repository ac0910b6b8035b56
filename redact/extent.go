package redact

import (
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

const (
	maxHeader = 8 << 10  // of a header's value
	maxJudged = 256      // of a value, to report what it is
	maxList   = 96       // of a list's items
	maxObject = 16 << 10 // of an object of JSON in other text
)

// value returns the bounds of the value at i, without quotes.
func (m *mention) value(i int) (lo, hi int) {
	s := m.s
	if i = m.skipMarkup(i); i >= len(s) {
		return 0, 0
	}
	if oneByteOf("\"'`", s[i]) {
		return m.stringAt(i)
	}
	m.quoted = false
	switch {
	case m.typeOrCall(i):
		return i, i
	case m.join == pair || m.join == argument || m.join == sure && !m.tag:
		return 0, 0
	case m.keyed && m.join == colon && (s[i] == '{' || s[i] == '[' && m.class > weak):
		return m.container(i)
	case m.join <= spaced && s[i] == '[':
		m.list(i + 1)
		return 0, 0
	case m.join == sure:
		return m.element(i)
	case m.join == cell:
		lo = skip(s, i, len(s), " `*")
		hi = until(s, lo, maxJudged, "|\n\r`<\xe2")
		return lo, skipBack(s, hi, lo, " *")
	case m.class == credential && m.join != flag && m.join != setting:
		return m.headerAt(i)
	case m.join == colon && (s[i] == '|' || s[i] == '>'):
		return m.block(i)
	case s[i] == '\n' || s[i] == '\r':
		return m.nextLine(i)
	}
	return i, m.wordEnd(i)
}

// typeOrCall reports whether a call within the label's call begins at i, or the type of a list: the value is behind it.
func (m *mention) typeOrCall(i int) bool {
	if m.join == argument {
		return strings.HasSuffix(m.s[i:until(m.s, i, maxKey, wordStops)], "(")
	}
	return m.join <= spaced && strings.HasPrefix(m.s[i:], "[]")
}

// skipMarkup skips what states of which kind the value at i is: a tag or an anchor of YAML, elements of HTML around a
// word of prose, the letter before a string, such as b"…" of Python.
func (m *mention) skipMarkup(i int) int {
	s := m.s
	if m.join == colon && i < len(s) && (s[i] == '!' || s[i] == '&') {
		if end := run(s, i+1, word|dash|dot); end < len(s) && s[end] == ' ' && s[i] == '&' {
			i = end + 1
		}
		if end := run(s, i+1, lower|dash|under); end+1 < len(s) && s[i] == '!' && s[end] == ' ' && s[end+1] == '"' {
			i = end + 1
		}
		i += len(s[i:]) - len(strings.TrimPrefix(strings.TrimPrefix(s[i:], "!!str "), "!!binary "))
	}
	for n := 0; m.join == prose && n < 3 && i < len(s) && s[i] == '<'; n++ {
		end := strings.IndexByte(s[i:min(len(s), i+40)], '>')
		if end < 0 || i+end+1 == len(s) {
			break
		}
		i += end + 1
	}
	if i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\'') && oneByteOf("bBrRfFuUNE@$L", s[i]) {
		i++
	}
	return i
}

// stringAt returns the bounds of the string whose quote is at i, without it.
func (m *mention) stringAt(i int) (lo, hi int) {
	s := m.s
	if m.c.closesString(m.lo, i) {
		return 0, 0
	}
	m.quoted = true
	lo = i + 1
	if three := s[i:min(len(s), i+3)]; len(three) == 3 && three[1] == three[0] && three[2] == three[0] {
		lo += 2
		if k := strings.Index(s[lo:min(len(s), lo+maxHeader)], three); k >= 0 && m.c.afford(k/8) {
			return lo, lo + k
		}
		return lo, until(s, lo, maxHeader, "\n")
	}
	hi = m.c.closing(i)
	if m.class == credential {
		plain := lo
		lo = afterScheme(s, lo, hi)
		m.scheme = lo > plain
	}
	return lo, hi
}

// afford notes n steps of work that no other place pays for, and reports whether a text of this length may have so
// many.
func (c *scan) afford(n int) bool {
	c.spent += n
	c.looked += n
	return c.spent <= len(c.s)/2+4096
}

// container returns the bounds of an array or object of JSON within other text, or in JSON that breaks off, where it
// holds a secret. Each key of a text may be followed by a bracket that nothing closes, so a window of it is read.
func (m *mention) container(i int) (lo, hi int) {
	if m.class <= weak {
		return 0, 0
	}
	window := m.s[:min(len(m.s), i+maxObject)]
	hi = skipJSON(window, i)
	switch {
	case hi >= 0 && m.c.afford(hi-i):
		if goes, _ := verdict(m.class, m.s[i:hi]); !goes {
			return 0, 0
		}
		quote := m.c.v.source(skip(m.s, m.hi, len(m.s), " "), `"`)
		m.replace = quote + Marker + quote
	case hi < 0 && m.c.afford(len(window)-i):
		if !breaksOff(window, i) {
			return 0, 0
		}
		hi = len(m.s)
	case strings.TrimSpace(m.s[i+1:m.c.eol(i)]) == "":
		return 0, 0 // its members have names
	default:
		hi = m.c.eol(i) // too much of it to be sure
	}
	m.join, m.quoted = sure, true
	return i, hi
}

// breaksOff reports whether the value at i is JSON up to the end of s.
func breaksOff(s string, i int) bool {
	for depth := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			end := jsonscan.String(s, i)
			if end < 0 {
				return !strings.ContainsAny(s[i:], "\n\r")
			}
			i = end - 1
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return false
			}
		case class[c]&(alnum|space|dot|dash|comma|colonAt) == 0 && c != '+':
			return false
		}
	}
	return true
}

// closesString reports whether the quote at i ends a string that began before lo in the same line, as in "password=" +
// password, rather than beginning one.
func (c *scan) closesString(lo, i int) bool {
	return (i+1 == len(c.s) || oneByteOf(" ,)+;]}.&|%\n\r:", c.s[i+1])) && c.openQuotes(lo, c.s[i], c.v.level(i))%2 == 1
}

// openQuotes returns how many quotes q, with n bytes before each that hide it, are before i in its line.
func (c *scan) openQuotes(i int, q byte, n int) int {
	from, _ := c.line(i)
	k := &c.quotes
	if k.line != from || k.pos > i || k.pos < from || k.q != q || k.level != n {
		*k = quoteCount{line: from, pos: from, q: q, level: n}
	}
	for k.pos < i {
		next := strings.IndexByte(c.s[k.pos:i], q)
		if next < 0 {
			break
		}
		if k.pos += next + 1; c.v.level(k.pos-1) == n {
			k.n++
		}
	}
	c.looked += (i - k.pos) / 16 // as a vector instruction does
	k.pos = i
	return k.n
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
		if level := c.v.level(end); n == 0 && level%2 == 0 || n > 0 && level <= n {
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
	lo = afterScheme(s, i, min(len(s), i+40))
	m.scheme = lo > i
	// Another header's name, or a word of a sentence about this header?
	first := until(s, lo, 64, wordStops)
	if first == lo || s[first-1] == ':' || has("stopWords", s[lo:first]) ||
		first-lo < 64 && !strings.ContainsAny(s[lo:first], "0123456789=") && first < len(s) && s[first] == ' ' {
		return 0, 0
	}
	stops := "\n\r\"'`"
	if q := m.lo - 1; q >= 0 && oneByteOf("\"'`", s[q]) {
		stops = "\n\r" + s[q:q+1]
	} else if m.scheme && oneByteOf("DHO", s[i]) {
		stops = "\n\r" // Digest, Hawk and OAuth have quotes in their pairs
	}
	hi = until(s, i, maxHeader, stops)
	if k := strings.Index(s[i:hi], TruncatedMarker); k >= 0 {
		hi = i + k
	}
	m.c.looked += hi - i
	if m.c.afford((hi - i) / 8) {
		hi = skipBack(s, hi, lo, blanks+",;)}]")
		// The brace that was cut off belongs to a reference. Without it ${TOKEN} would be taken for a secret.
		v := s[lo:max(lo, hi)]
		if len(v) > 1 && (strings.HasPrefix(v, "${") || v[0] == '{') && hi < len(s) && s[hi] == '}' {
			hi++
		}
	}
	return lo, max(lo, hi)
}

// block returns the value of a YAML block: the lines indented deeper than the label.
func (m *mention) block(i int) (lo, hi int) {
	s, eol := m.s, m.c.eol(i)
	if !m.startsLine() || eol == len(s) || eol-i > 20 || strings.Trim(s[i:eol], "|>+-0123456789 \t\r") != "" {
		return 0, 0
	}
	line, _ := m.c.line(m.lo)
	depth := indent(s[line:min(len(s), line+200)])
	i = eol + 1
	lo, hi = i+indent(s[i:min(len(s), i+200)]), i
	for i < len(s) {
		stop := m.c.eol(i)
		m.c.looked += stop - i
		if strings.TrimSpace(s[i:stop]) != "" {
			if indent(s[i:stop]) <= depth {
				break
			}
			hi = stop
		}
		i = stop + 1
	}
	m.join = sure
	return unless(hi < lo, lo, hi)
}

func indent(s string) int { return len(s) - len(strings.TrimLeft(s, " \t")) }

// nextLine returns the one word of the line after the label's, past an empty one.
func (m *mention) nextLine(i int) (lo, hi int) {
	s := m.s
	i = skip(s, i, i+40, blanks)
	if m.join == spaced && i < len(s) && oneByteOf("\"'`", s[i]) {
		return m.stringAt(i)
	}
	if m.join != colon && m.join != prose && m.join != flag || m.keyed || i == len(s) || oneByteOf("\"'`", s[i]) {
		return 0, 0
	}
	if strings.HasPrefix(s[i:], "- ") {
		m.list(i)
		return 0, 0
	}
	if m.class == secret && s[m.hi-1]|0x20 == 's' && m.startsLine() { // secrets:␤  db: …
		m.join = item
		m.c.members(m.lo, m.secret)
	}
	m.join = below
	return i, m.wordEnd(i)
}

// element returns the text of an element of XML that the label names.
func (m *mention) element(i int) (lo, hi int) {
	s, last := m.s, byte('<')
	if rest, ok := strings.CutPrefix(s[i:], "<![CDATA["); ok {
		i, last = len(s)-len(rest), ']'
	}
	k := strings.IndexByte(s[i:min(len(s), i+maxHeader)], last)
	if k < 0 || !m.c.afford(k/8) {
		return 0, 0
	}
	hi = i + k
	name, ok := strings.CutPrefix(strings.TrimPrefix(s[hi:min(len(s), hi+maxKey)], "]]>"), "</")
	if space, rest, found := strings.Cut(name, ":"); found && run(space, 0, slug) == len(space) {
		name = rest
	}
	return unless(!ok || !strings.HasPrefix(name, s[m.lo:m.hi]), i, hi)
}

// list notes the secrets of the list at i: strings in brackets, or lines of YAML that begin with a dash.
func (m *mention) list(i int) {
	c, s := m.c, m.s
	m.join = item
	for n := 0; n < maxList && c.afford(8); n++ {
		if i = jsonscan.Space(s, i); i < len(s) && (s[i] == ',' || s[i] == '-') {
			i = jsonscan.Space(s, i+1)
		}
		lo, hi := c.quotedAfter(i)
		if m.quoted = hi > 0; !m.quoted {
			lo, hi = i, c.bareWord(i)
		}
		if v := s[lo:hi]; v == "" || oneByteOf("])}", v[len(v)-1]) {
			return
		}
		c.addLater(m.found(lo, hi))
		i = skip(s, hi, len(s), "\"'")
		if next := jsonscan.Space(s, i); next == len(s) || s[next] != ',' && s[next] != '-' {
			return
		}
	}
}

// wordEnd returns the end of a value without quotes.
func (m *mention) wordEnd(i int) int {
	c, s := m.c, m.s
	// A word is walked over once, though it be made of labels.
	if i < c.wordFrom || i >= c.wordTo || m.query != c.wordQuery {
		c.wordFrom, c.wordTo, c.wordQuery = i, wordStop(s, i, m.query), m.query
		c.looked += c.wordTo - i
	}
	end := c.wordTo
	if rest, ok := strings.CutPrefix(s[i:end], Marker); ok &&
		strings.Trim(rest[:min(len(rest), 8)], ".,;:!?)]}") == "" {
		return i + len(Marker) // redacted already, at the end of a sentence
	}
	if end > i+1 && (s[end-1] == '.' || s[end-1] == '!' && m.join == prose) && class[s[end-2]]&lower != 0 {
		end-- // ends a sentence
	}
	// ${{ a.b }} and {{ a }} have spaces.
	for _, t := range [...][2]string{{"${{", "}}"}, {"{{", "}}"}, {"${", "}"}, {"$(", ")"}, {"<%", "%>"}, {"$", ""}} {
		if end-i < maxJudged && strings.HasPrefix(s[i:end], t[0]) {
			k := strings.Index(s[i:min(len(s), i+120)], t[1])
			return max(end, i+k+len(t[1]))
		}
	}
	for end > i && oneByteOf(",;:)}]", s[end-1]) && !bracketMarker(s[i:end]) {
		end--
	}
	return end
}

func wordStop(s string, i int, query bool) int {
	for end := i; end < len(s); end++ {
		c, rest := s[end], s[end:]
		switch {
		case class[c]&(alnum|dash|dot) != 0:
		case class[c]&space != 0 || oneByteOf("\"'`", c),
			c == '<' && (strings.HasPrefix(rest, "</") || strings.HasPrefix(rest, "<br")),
			c == '\\' && strings.HasPrefix(rest, `\u`),
			oneByteOf("&,;|", c) && (len(rest) == 1 || class[rest[1]]&space != 0 || nameFollows(s, end+1)),
			query && (c == '&' || c == '#'),
			c == '_' && strings.HasPrefix(rest, TruncatedMarker),
			c >= 0x80 && (strings.HasPrefix(rest, "，") || strings.HasPrefix(rest, "。")):
			return end
		}
	}
	return len(s)
}

// bracketMarker reports whether v ends with the bracket of a marker.
func bracketMarker(v string) bool {
	v = v[max(0, len(v)-maxMarker):]
	open := max(0, strings.LastIndexByte(v, '['))
	return v[len(v)-1] == ']' && (strings.HasPrefix(v[open:], "[redacted:") || strings.HasPrefix(v[open:], "[omitted:"))
}

// nameFollows reports whether s[i:] begins with a name and an equals sign or a colon.
func nameFollows(s string, i int) bool {
	end := run(s[:min(len(s), i+64)], i, slug|dot)
	return end > i && end < len(s) && (s[end] == '=' || s[end] == ':')
}

// quotedAfter returns the bounds of the string in quotes that begins at i, in one line.
func (c *scan) quotedAfter(i int) (int, int) {
	if i >= len(c.s) || !oneByteOf("\"'`", c.s[i]) {
		return 0, 0
	}
	end := c.closing(i)
	return unless(end == len(c.s) || end <= i || end-i >= maxJudged || blank(c.s[i+1:end]) ||
		strings.IndexByte(c.s[i+1:end], '\n') >= 0, i+1, end)
}

// bareWord returns the end of the word at i, without quotes.
func (c *scan) bareWord(i int) int {
	end := until(c.s, i, 1024, blanks+"\"'`<,;)|")
	if end > i && c.s[end-1] == '.' {
		end--
	}
	return end
}
