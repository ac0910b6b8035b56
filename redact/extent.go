package redact

import "github.com/agenttrace/agenttrace/internal/jsonscan"

import "strings"

// This file finds where values end.

// value returns the bounds of the value at i, without quotes.
func (a *assignment) value(i int) (start, end int) {
	s := a.s
	if i = a.skipMarkup(stringPrefix(s, i)); i >= len(s) {
		return 0, 0
	}
	if q := i + slashesAt(s, i); q < len(s) && strings.IndexByte("\"'`", s[q]) >= 0 {
		return a.quotedValue(i, q)
	}
	// The form decides where a value without quotes ends: a cell at the next column, a header with its line, a word at
	// a space. Read in another form, a value would take the text after it along, or leave a part of the secret.
	a.quoted = false
	switch {
	case a.form == pair || a.form == sure && !a.tag:
		return 0, 0
	case a.form <= spaced && (s[i] == '[' || s[i] == '{' && a.readsObject()):
		return a.bracketed(i)
	case a.form == sure:
		return a.element(i)
	case a.form == cell:
		return a.cellAt(i)
	case a.class == credential && a.form != flag && a.form != setting:
		return a.headerValue(i)
	case a.form == colon && (s[i] == '|' || s[i] == '>'):
		return a.block(i)
	case s[i] == '\n' || s[i] == '\r':
		return a.below(i)
	}
	return i, a.wordEnd(i)
}

// stringPrefix skips the letter before a string, such as b"…" of Python.
func stringPrefix(s string, i int) int {
	if i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\'') && strings.IndexByte("bBrRfFuUNE@$", s[i]) >= 0 {
		return i + 1
	}
	return i
}

func (a *assignment) readsObject() bool { return a.keyQuoted && a.form == colon && a.class > weak }

// bracketed returns the array or object of JSON at i, or notes the secrets of a list.
func (a *assignment) bracketed(i int) (start, end int) {
	if a.readsObject() {
		return a.container(i)
	}
	a.list(i + 1)
	return 0, 0
}

// skipMarkup skips what states of which kind the value at i is: a tag of YAML, elements of
// HTML around a word of prose.
func (a *assignment) skipMarkup(i int) int {
	s := a.s
	for _, tag := range [...]string{"!!str ", "!!binary "} {
		i += len(s[i:]) - len(strings.TrimPrefix(s[i:], tag))
	}
	for n := 0; a.form == prose && n < 3 && i < len(s) && s[i] == '<'; n++ {
		end := strings.IndexByte(s[i:min(len(s), i+40)], '>')
		if end < 0 || i+end+1 == len(s) {
			break
		}
		i += end + 1
	}
	return i
}

// element returns the text of an element of XML that the key names.
func (a *assignment) element(i int) (start, end int) {
	s, key := a.s, a.s[a.lo:a.hi]
	last := byte('<')
	if rest, ok := strings.CutPrefix(s[i:], "<![CDATA["); ok {
		i, last = len(s)-len(rest), ']'
	}
	end = strings.IndexByte(s[i:], last)
	if end < 0 {
		return 0, 0
	}
	end += i
	closing := strings.TrimPrefix(s[end:min(len(s), end+maxKey)], "]]>")
	name, ok := strings.CutPrefix(closing, "</")
	if space, rest, found := strings.Cut(name, ":"); found && run(space, 0, slug) == len(space) {
		name = rest
	}
	return unless(!ok || !strings.HasPrefix(name, key), i, end)
}

// list notes the secrets of the list at i: strings in brackets, or lines of YAML that
// begin with a dash.
func (a *assignment) list(i int) {
	c, s := a.c, a.s
	for n := 0; n < maxWords && c.afford(8); n++ {
		i = jsonscan.Space(s, i)
		if i < len(s) && (s[i] == ',' || s[i] == '-') {
			i = jsonscan.Space(s, i+1)
		}
		lo, hi, _ := c.operand(i)
		v := s[lo:hi]
		if v == "" || strings.IndexByte("])}", v[len(v)-1]) >= 0 {
			return
		}
		if !blank(v) && (tokenLike(v) || a.class == secret && (strong(v) || chancy(v))) {
			c.addLater(finding{lo, hi, Marker})
		}
		i = skip(s, hi, len(s), `\"'`)
		if next := jsonscan.Space(s, i); next == len(s) || s[next] != ',' && s[next] != '-' {
			return
		}
	}
}

// quotedValue returns the bounds of a string whose quote is at q, after backslashes
// from i on.
func (a *assignment) quotedValue(i, q int) (start, end int) {
	s := a.s
	if a.c.closesString(a.lo, q) {
		return 0, 0
	}
	a.quoted = true
	quote := s[q : q+1]
	start = q + 1
	if strings.HasPrefix(s[q:], quote+quote+quote) {
		start += 2
		end = start
		for k := a.c.closing(end, quote[0], 0); k < len(s) && s[k] == quote[0]; k = a.c.closing(k+1, quote[0], 0) {
			if end = k; strings.HasPrefix(s[k:], quote+quote+quote) {
				return start, k
			}
			if !a.c.afford(8) {
				break
			}
		}
		return start, max(end, a.c.eol(start))
	}
	end = a.c.closing(start, quote[0], q-i)
	if a.class == credential {
		bare := start
		start = afterScheme(s, start, end)
		a.scheme = start > bare
	}
	return start, end
}

// afford notes n steps of work that no other place pays for, and reports whether a
// text of this length may have so many.
func (c *scan) afford(n int) bool {
	c.spent += n
	c.looked += n
	return c.spent <= len(c.s)/2+4096
}

// container returns the bounds of an array or object of JSON within other text, or in
// JSON that breaks off, where it holds a secret.
func (a *assignment) container(i int) (start, end int) {
	if a.class <= weak {
		return 0, 0
	}
	// Each key of a text may be followed by a bracket that nothing closes. Without a window each would be looked for up
	// to the end of the text.
	s := a.s
	window := s[:min(len(s), i+16<<10)]
	end = skipJSON(window, i)
	if end >= 0 && a.c.afford(end-i) {
		if verdictOf(a.class, s[i:end]) != goes {
			return 0, 0
		}
		a.marker = quotedMarker
	} else if end < 0 && a.c.afford(len(window)-i) {
		if !truncatedJSON(s, i) {
			return 0, 0
		}
		end = len(s)
	} else {
		end = a.c.eol(i) // too much of it to be sure
	}
	a.form, a.quoted = sure, true
	return i, end
}

// closesString reports whether the quote at i ends a string that began before lo in
// the same line, as in "password=" + password, rather than beginning one.
func (c *scan) closesString(lo, i int) bool {
	if i+1 < len(c.s) && strings.IndexByte(" ,)+;]}.&|%\n\r\\", c.s[i+1]) < 0 {
		return false
	}
	return c.openQuotes(lo, c.s[i])%2 == 1
}

// closedQuote is where the string around from ends.
type closedQuote struct {
	from, end, n int
	q            byte
}

// closing returns the end of a string that q closes, opened with n backslashes before
// its quote, as in JSON within JSON. A string that nothing closes ends with its line.
func (c *scan) closing(i int, q byte, n int) int {
	m := &c.closed
	if m.q != q || m.n != n || i < m.from || i > m.end || m.end > len(c.s) || slashesBefore(c.s, i) > 0 {
		end := closing(c.s, i, q, n)
		*m = closedQuote{i, end, n, q}
		c.looked += (end - i) / 4
	}
	return m.end
}

func closing(s string, i int, q byte, n int) int {
	start := i
	for i < len(s) {
		k := strings.IndexByte(s[i:], q)
		if k < 0 {
			break
		}
		i += k
		back := skipBack(s, i, start, `\`)
		switch escapes := i - back; {
		case n == 0 && escapes%2 == 0:
			return i
		case n > 0 && escapes <= n:
			return back
		}
		i++
	}
	if eol := strings.IndexAny(s[start:], "\r\n"); eol >= 0 {
		return start + eol
	}
	return len(s)
}

// afterScheme leaves the scheme of an authorization readable.
func afterScheme(s string, start, end int) int {
	if end-start < 4 || class[s[start]]&letter == 0 {
		return start
	}
	for _, scheme := range [...]string{"Bearer", "Basic", "Token", "Digest", "Negotiate", "ApiKey", "Api-Key",
		"Api-Token", "PRIVATE-TOKEN", "Key", "GoogleLogin", "AWS4-HMAC-SHA256", "NTLM", "SSWS", "Hawk", "OAuth",
		"Splunk", "JWT", "GenieKey", "Bot"} {
		if n := len(scheme); end-start > n+1 && s[start+n] == ' ' && strings.EqualFold(s[start:start+n], scheme) {
			return skip(s, start+n, end, " ")
		}
	}
	return start
}

// headerValue returns the value of a header: the rest of its line, or of the string
// the header is in. What its first word rules out is not looked at further.
func (a *assignment) headerValue(i int) (start, end int) {
	s := a.s
	start = afterScheme(s, i, min(len(s), i+40))
	a.scheme = start > i
	if isTalk(s, start) {
		return 0, 0
	}
	quote := byte(0)
	if a.lo > 0 && strings.IndexByte("\"'`", s[a.lo-1]) >= 0 {
		quote = s[a.lo-1]
	}
	if quote == 0 && a.scheme && strings.IndexByte("DHO", s[i]) >= 0 {
		quote = '\n' // Digest, Hawk and OAuth have quotes in their pairs
	}
	end = i
	for end < len(s) && end-i < maxHeader && !a.headerEnds(end, quote) {
		end++
	}
	a.c.looked += end - i
	if !a.c.afford((end - i) / 8) {
		return start, max(start, end)
	}
	for end > start && (class[s[end-1]]&space != 0 || strings.IndexByte(",;)}]\\", s[end-1]) >= 0) {
		end--
	}
	// The brace that was cut off belongs to a reference. Without it ${TOKEN} would be taken for a secret.
	if v := s[start:end]; len(v) > 1 && (strings.HasPrefix(v, "${") || v[0] == '{') && end < len(s) && s[end] == '}' {
		end++
	}
	return start, max(start, end)
}

// isTalk reports whether the word at i is another header's name, or one of a sentence
// about this header.
func isTalk(s string, i int) bool {
	end := until(s, i, 64, wordStops)
	if end == i || s[end-1] == ':' {
		return true
	}
	return end-i < 64 && !strings.ContainsAny(s[i:end], "0123456789=") && end < len(s) && s[end] == ' '
}

// headerEnds reports whether a header's value ends at i.
func (a *assignment) headerEnds(i int, quote byte) bool {
	s := a.s
	switch c := s[i]; c {
	case '\n', '\r':
		return true
	case '"', '\'', '`':
		return c == quote || quote == 0
	case '\\':
		return i+1 < len(s) && strings.IndexByte(`nr"'`, s[i+1]) >= 0
	case '_':
		return strings.HasPrefix(s[i:], TruncatedMarker)
	}
	return false
}

// block returns the value of a YAML block: the lines indented deeper than the key.
func (a *assignment) block(i int) (start, end int) {
	s := a.s
	eol := a.c.eol(i)
	if eol == len(s) || eol-i > 20 || strings.Trim(s[i:eol], "|>+-0123456789 \t\r") != "" {
		return 0, 0
	}
	line, _ := a.c.line(a.lo)
	depth := indent(s[line:min(len(s), line+200)])
	i = eol + 1
	start, end = i+indent(s[i:min(len(s), i+200)]), i
	for i < len(s) {
		stop := a.c.eol(i)
		a.c.looked += stop - i
		if strings.TrimSpace(s[i:stop]) != "" {
			if indent(s[i:stop]) <= depth {
				break
			}
			end = stop
		}
		i = stop + 1
	}
	if end < start {
		return 0, 0
	}
	a.form = sure
	return start, end
}

func indent(s string) int { return len(s) - len(strings.TrimLeft(s, " \t")) }

// below returns the one word of the line after the key's, past an empty one.
func (a *assignment) below(i int) (start, end int) {
	s := a.s
	if a.form != colon && a.form != prose || a.keyQuoted {
		return 0, 0
	}
	i = skip(s, i, i+40, blanks)
	if i == len(s) {
		return 0, 0
	}
	if strings.IndexByte("\"'`", s[i]) >= 0 {
		return 0, 0
	}
	if strings.HasPrefix(s[i:], "- ") {
		a.list(i)
		return 0, 0
	}
	if a.class == secret && s[a.hi-1]|0x20 == 's' && a.startsLine() { // secrets:␤  db: …
		a.c.members(a.lo, made, Marker)
	}
	return i, a.wordEnd(i)
}

// cellAt returns the cell of a table that begins at i, without its quotes.
func (a *assignment) cellAt(i int) (start, end int) {
	s := a.s
	i = skip(s, emphasis(s, i), len(s), " `")
	end = i
	for end < len(s) && end-i < maxJudged && strings.IndexByte("|\n\r`<", s[end]) < 0 && s[end] != 0xe2 {
		end++
	}
	return i, skipBack(s, end, i, " *")
}

// wordEnd returns the end of a value without quotes.
func (a *assignment) wordEnd(i int) int {
	s, end := a.s, a.rawEnd(i)
	if rest, ok := strings.CutPrefix(s[i:end], Marker); ok &&
		strings.Trim(rest[:min(len(rest), 8)], ".,;:!?)]}") == "" {
		return i + len(Marker) // redacted already, at the end of a sentence
	}
	if end > i+1 && (s[end-1] == '.' || s[end-1] == '!' && a.form == prose) && class[s[end-2]]&lower != 0 {
		end-- // ends a sentence
	}
	if v := s[i:end]; len(v) < maxJudged && (v[:min(1, len(v))] == "$" || strings.HasPrefix(v, "{{") ||
		strings.HasPrefix(v, "<%")) {
		return a.template(i, end)
	}
	for end > i && strings.IndexByte(",;:)}]", s[end-1]) >= 0 && !bracketMarker(s[i:end]) {
		end--
	}
	return end
}

// template returns the end of ${{ a.b }} and {{ a }}, which have spaces.
func (a *assignment) template(i, end int) int {
	window := a.s[i:min(len(a.s), i+120)]
	for _, t := range [...][2]string{{"${{", "}}"}, {"{{", "}}"}, {"${", "}"}, {"$(", ")"}, {"<%", "%>"}} {
		if strings.HasPrefix(window, t[0]) {
			if k := strings.Index(window, t[1]); k >= 0 {
				return max(end, i+k+len(t[1]))
			}
			break
		}
	}
	return end
}

// rawEnd returns the first byte at or after i that ends a word; a word is walked over
// once, though it be made of keys.
func (a *assignment) rawEnd(i int) int {
	c := a.c
	if i < c.wordFrom || i >= c.wordTo || a.query != c.wordQuery {
		c.wordFrom, c.wordTo, c.wordQuery = i, wordStop(a.s, i, a.query), a.query
		c.looked += c.wordTo - i
	}
	return c.wordTo
}

func wordStop(s string, i int, query bool) int {
	for end := i; end < len(s); end++ {
		switch c := s[end]; c {
		case ' ', '\t', '\n', '\r', '"', '\'', '`':
			return end
		case '<':
			if strings.HasPrefix(s[end:], "</") || strings.HasPrefix(s[end:], "<br") {
				return end
			}
		case '\\':
			if end+1 < len(s) && strings.IndexByte(`nrt"'\u`, s[end+1]) >= 0 {
				return end
			}
		case '&', ',', ';', '|':
			if end+1 == len(s) || class[s[end+1]]&space != 0 || nameFollows(s, end+1) || c == '&' && query {
				return end
			}
		case '#':
			if query {
				return end
			}
		case '_':
			if strings.HasPrefix(s[end:], TruncatedMarker) {
				return end
			}
		}
	}
	return len(s)
}

// bracketMarker reports whether v ends with the bracket of a marker.
func bracketMarker(v string) bool {
	if v[len(v)-1] != ']' {
		return false
	}
	v = v[max(0, len(v)-60):]
	open := strings.LastIndexByte(v, '[')
	return open >= 0 && (strings.HasPrefix(v[open:], "[redacted:") || strings.HasPrefix(v[open:], "[omitted:"))
}

// nameFollows reports whether s[i:] begins with a name and an equals sign or a colon.
func nameFollows(s string, i int) bool {
	end := run(s[:min(len(s), i+64)], i, slug|dot)
	return end > i && end < len(s) && (s[end] == '=' || s[end] == ':')
}
