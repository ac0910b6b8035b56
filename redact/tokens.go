package redact

import (
	"slices"
	"strings"
)

// token is a piece of a text that may be a secret: a string in quotes, a word, what is assigned to a name.
type token struct {
	lo, hi int
	quoted bool
	kind   kind
	given  string // what shows where it begins and ends: a column of a table, a command
}

const (
	maxHeader    = 8 << 10 // of what is looked at behind the beginning of a block
	maxJudged    = 256     // of a value, to report what it is
	maxStatement = 160     // how far apart a label and its value are
	maxWhole     = 40      // of a string that is a secret as a whole if a word of it is one
)

// give notes a token that a table or a command shows.
func (c *scan) give(lo, hi int, by string) {
	if lo < hi && oneByteOf(quotes, c.s[lo]) {
		lo, hi = lo+1, min(hi, c.closing(lo))
	}
	if lo < hi {
		c.given = append(c.given, token{lo: lo, hi: hi, quoted: lo > 0 && oneByteOf(quotes, c.s[lo-1]), given: by})
	}
}

// readToken judges the token at i, if one is there, and returns where the next may be.
func (c *scan) readToken(i int) int {
	s := c.s
	switch {
	case class[s[i]]&space != 0:
		return i + 1
	case oneByteOf(quotes, s[i]):
		return c.readString(i)
	case strings.HasPrefix(s[i:], "[redacted:"), strings.HasPrefix(s[i:], Marker):
		return pastMarker(s, i)
	}
	if lo, hi := c.bytesAt(i); hi > 0 {
		c.judge(token{lo: lo, hi: hi, given: "bytes"})
		return hi
	}
	// password=Sun&fl0wer;42 is one value, and so is that of password: Sun&fl0wer;42. Elsewhere such signs part words.
	sign := skipBack(s, i, max(c.floor, i-4), " ")
	if sign > 0 && oneByteOf("=:", s[sign-1]) && (!oneByteOf("([{", s[i]) || strings.HasPrefix(s[i:], "[[")) &&
		!isURL(s, i) {
		return c.readAssigned(i)
	}
	switch b := s[i]; {
	case class[b]&apartBy != 0, b == '=', b == ':', oneByteOf("?&", b) && assignsAt(s, i+1):
		return i + 1
	}
	return c.readWord(i)
}

// bytesAt returns the bounds of a key as a list of bytes at i, soon after a label: [12, 201, …], c7 0e 91 …; 0, 0 where
// none is.
func (c *scan) bytesAt(i int) (lo, hi int) {
	s := c.s
	switch {
	case oneByteOf("[{(", s[i]) && c.closeTo(i, 40):
		hi = until(s, i+1, 4*maxJudged, "]};")
		return unless(!is("bytes", s[i+1:hi]), skip(s, i+1, hi, blanks), skipBack(s, hi, i+1, blanks+","))
	case i+2 < len(s) && oneByteOf(" :", s[i+2]) && run(s[:i+2], i, hexSet) == i+2 && c.closeTo(i, 64):
		for hi = i + 2; hi+3 <= len(s) && s[hi] == s[i+2] && run(s[:hi+3], hi+1, hexSet) == hi+3; {
			hi += 3
		}
		return unless(hi < i+8*3-1, i, hi)
	}
	return 0, 0
}

// readAssigned judges what is assigned to a name, which may have any sign in it.
func (c *scan) readAssigned(i int) int {
	for _, b := range [...][2]string{{"q(", ")"}, {"q{", "}"}, {"[[", "]]"}} { // strings of Perl, Ruby and Lua
		if !strings.HasPrefix(c.s[i:], b[0]) {
			continue
		}
		line := c.s[i:until(c.s, i, maxJudged, "\n,")]
		if n := strings.Index(line, b[1]); n > 2 && line[2] != '"' {
			c.token(i+2, i+n, true)
			return i + n
		}
	}
	end := run(c.s, i, word|dot)
	if end > i && end < len(c.s) && c.s[end] == '(' { // getenv(…)
		return end + 1
	}
	end = c.wordEnd(i)
	if at, labelled := c.value(i, end); at > i && (labelled || run(c.s, i, letter|under|dash|dot) >= at-1 &&
		!(c.closeTo(i, 8) && (c.s[at-1] == '=' || c.v.encodes(at-1, '\\') || c.afterNames(i, "ofPasswords")))) {
		return at // -var=password=SECRET, CREDENTIALS=bob:SECRET; not password=Sun=flower
	}
	if hi := c.phrase(i, end); hi > 0 {
		return hi
	}
	c.token(i, end, false)
	return max(end, i+1)
}

// phrase judges the words from i to the end of the line, or of the sentence, if they may be a phrase of several words,
// the first of which ends at end: passphrase: three words more. It returns the end of the phrase, 0 where none is.
func (c *scan) phrase(i, end int) int {
	hi := skipBack(c.s, until(c.s, i, maxJudged, ".,;\n\"()<"), i, blanks)
	if v := c.s[i:hi]; hi > end && c.s[end] == ' ' &&
		(spaceJoined(v) || run(v, 0, alnum|foreign|space) == len(v) && (c.ownLine(i) || c.afterNames(i, "ofPhrases") ||
			hi < len(c.s) && c.s[hi] == ';' && c.s[i-1] == '=')) && // Uid=bob;Pwd=three more words;
		c.judge(token{lo: i, hi: hi, given: "line"}) {
		return hi
	}
	return 0
}

// leadsToPhrase reports whether what is before i leads from a label to a phrase: the password for the server is …, or
// a line of its own below the label.
func (c *scan) leadsToPhrase(i int) bool {
	last := skipBack(c.s, i, 0, " ")
	if c.ownLine(i) || (i > 0 && oneByteOf("\n>(", c.s[i-1]) || strings.HasSuffix(c.s[:last], "—") ||
		strings.HasSuffix(c.s[:last], "–")) && c.afterNames(i, "ofPhrases") {
		return true
	}
	return has("verbs", c.s[since(c.s, last, max(0, last-8), blanks):last]) && c.closeTo(i, 48)
}

// ownLine reports whether a line begins with i, soon after a label that has no value in its own.
func (c *scan) ownLine(i int) bool {
	last := skipBack(c.s, i, max(0, i-8), " \t")
	return last > 0 && c.s[last-1] == '\n' && c.closeTo(i, 12)
}

// afterNames reports whether the name of the label before i has a word of a list of data/words.txt: of ofPhrases, for
// one, as mnemonic has.
func (c *scan) afterNames(i int, list string) bool {
	l, _ := c.beside(&token{lo: i, hi: i})
	return l != nil && i-l.hi < maxStatement/2 && slices.ContainsFunc(words[list], func(name string) bool {
		k := indexFold(c.s[l.lo:l.hi], name)
		return k >= 0 && (len(name) > 4 || l.lo+k == 0 || class[c.s[l.lo+k-1]]&letter == 0) // INFRASTRUCTURE has fras
	})
}

// readWord judges the word at i, or goes on to what is assigned in it.
func (c *scan) readWord(i int) int {
	s, end := c.s, i
	for end < len(s) && (class[s[end]]&apartBy == 0 || c.v.hides(end, i, '&')) && !border(s, i, end) &&
		!(oneByteOf("?&", s[end]) && assignsAt(s, end+1) && (end == i || strings.ContainsAny(s[i:end], "/.=:"))) {
		end++
	}
	if at, _ := c.value(i, end); at > i {
		return at
	}
	if k := strings.Index(s[i:end], TruncatedMarker); k > 0 {
		end = i + k
	}
	if c.leadsToPhrase(i) {
		if hi := c.phrase(i, end); hi > 0 {
			return hi
		}
	}
	end = groupsEnd(s, i, end)
	if lo := skip(s, i, end, "*_"); end-lo >= 4 &&
		(!oneByteOf("-/$.~%@\\", s[lo]) || s[lo] == '-' && byItself(s[lo:end])) {
		c.token(lo, skipBack(s, end, lo, ".:?!*_"), false)
	}
	return max(end, i+1)
}

// value returns where the value begins in the word s[i:end] if that is a name and what is assigned to it, 0 if it is
// not, and whether the name is a label: name=value, name:value, ?a=1&name=value, user[password]=value.
func (c *scan) value(i, end int) (at int, labelled bool) {
	// A label in the word shows best where its name ends; other names are of letters, digits and hyphens.
	s := c.s
	for _, l := range c.labels[c.firstLabel:] {
		if l.lo >= end {
			break
		}
		sign := skip(s, l.hi, l.hi+2, "])")
		at := skip(s, sign, sign+1, "=:")
		if at > sign && s[sign] == ':' { // ${NAME:-default}, ::set-output name=NAME::
			at = skip(s, at, at+1, ":-=?")
		}
		switch {
		case l.hi <= i || at >= end || strings.HasPrefix(s[sign:], "://"):
		case at > sign && oneByteOf("=:", s[sign]) && s[at] != '=', at == sign && l.hi == at && oneByteOf("=:&/", s[at-1]):
			return at, true
		}
	}
	name := run(s, i, slug|dot)
	if name == i || name+1 >= end || !oneByteOf("=:", s[name]) || strings.HasPrefix(s[name:], "://") || s[name+1] == '=' ||
		class[s[name-1]]&class[s[name+1]]&digit != 0 || // a time
		byItself(s[i:name]) || name-i >= 8 && run(s[:name], i, digit|hexLower) == name ||
		c.v.encodes(name, '%') || s[name] == '=' && severalSigns(s[i:end]) {
		return 0, false
	}
	return name + 1, false
}

// afterName returns what follows the name at i, "" where none is.
func afterName(s string, i int) string {
	end := run(s[:min(len(s), i+64)], i, slug|dot)
	if end == i {
		return ""
	}
	return s[end:]
}

// assignsAt reports whether a name and an equals sign are at i, as after the & of a URL.
func assignsAt(s string, i int) bool { return strings.HasPrefix(afterName(s, i), "=") }

// pastMarker returns the end of the marker at i, with the tag of an identifier.
func pastMarker(s string, i int) int {
	end := i + len(Marker)
	if s[i] == '[' {
		end = until(s, i, maxMarker, "]") + 1
	}
	end = min(end, len(s))
	if tag := run(s, skip(s, end, end+1, identifierMark), hexSet); tag == end+1+tagLength {
		return tag
	}
	return end
}

// severalSigns reports whether v is no pair, but made by chance, with equals signs in it.
func severalSigns(v string) bool {
	name, rest, _ := strings.Cut(v, "=")
	return strings.IndexByte(rest, '=') >= 0 && (digits(name) && chancy(v) || byItself(v) && len(v) > 40)
}

// isURL reports whether a URL begins at i.
func isURL(s string, i int) bool {
	return strings.HasPrefix(s[run(s, i, slug|dot|plusSlash):], "://")
}

// readString judges the string that begins at i, as readToken does. It is one token, however many words it has; its
// words are tokens, too: a password may be said in a message that is itself a string.
func (c *scan) readString(i int) int {
	s := c.s
	if i > 1 && s[i-1] == '[' && class[s[i-2]]&word != 0 { // environ["PASSWORD"]
		return min(len(s), c.closing(i)+1)
	}
	if c.closesString(i) || i > 0 && class[s[i-1]]&alnum != 0 && (i < 2 || class[s[i-2]]&alnum != 0) {
		return i + 1 // or an apostrophe
	}
	end := c.closing(i)
	if end == len(s) || s[end] != s[i] || end-i > maxJudged {
		return i + 1
	}
	next := strings.TrimLeft(s[end+1:min(len(s), end+4)], " ")
	before := skipBack(s, i, max(c.floor, i-maxKey), blanks)
	named := end+1 < len(s) && s[end+1] == ':' && (before == 0 || oneByteOf("{,", s[before-1]))
	labelled := c.labelIn(i, end)
	if !named && !labelled && !strings.HasPrefix(next, "=>") { // no name of JSON
		c.token(afterScheme(s, i+1, end), end, true)
	}
	if labelled || strings.ContainsAny(s[i+1:end], wordStops+",=:&;?()[]{}<>|") { // it has words
		if !labelled && !named {
			c.whole = span{i + 1, end}
		}
		return i + 1
	}
	return end + 1
}

// border reports whether what begins at i ends at end since another script begins there, of languages without spaces
// between words: 用SECRET作为令牌.
func border(s string, i, end int) bool {
	return (class[s[i]]^class[s[end]])&foreign != 0 && max(s[i], s[end]) >= 0xe3 &&
		(class[s[i]]&foreign == 0 || class[s[end]]&alnum != 0 && (run(s, end, visible) > end+4 || code(s, i, end)))
}

// code reports whether digits that stand apart begin at end of the word at i: 番号は5927です, 密码是1357, not 김치찌개123!
func code(s string, i, end int) bool {
	hi := run(s, end, digit)
	return hi >= end+4 && (hi < len(s) && class[s[hi]]&foreign != 0 || slices.ContainsFunc(words["particles"],
		func(w string) bool { return strings.HasSuffix(s[i:end], w) }))
}

// wordEnd returns the end of a value without quotes.
func (c *scan) wordEnd(i int) int {
	s, query := c.s, i > 0 && c.inQuery(i)
	// A word is walked over once, though it be made of labels.
	if i < c.wordFrom || i >= c.wordTo || query != c.wordQuery {
		c.wordFrom, c.wordTo, c.wordQuery = i, wordStop(s, i, query), query
		// password=Sun%26Flower&user=bob: what a URL encodes ends nothing, unless all of it is encoded.
		// So does a quote in XML: password=it&apos;s
		for end := c.wordTo; end < len(s) && (c.v.hides(end, i, '%') ||
			oneByteOf(quotes, s[end]) && c.v.hides(end, i, '&')); {
			end = wordStop(s, end+1, query)
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
		s[end-1] == '!' && class[s[end-2]]&lower != 0 && !digits(s[i:end])) {
		end-- // ends a sentence
	}
	for end > i && oneByteOf(",;:)}]", s[end-1]) {
		end--
	}
	return end
}

// inQuery reports whether the value at i is that of a parameter of a URL.
func (c *scan) inQuery(i int) bool {
	name := runBack(c.s, i-1, max(c.floor, i-maxKey), slug|dot)
	return name > 0 && name < i && c.s[i-1] == '=' && oneByteOf("?&", c.s[name-1])
}

// groupsEnd returns the end of the groups of digits, the first of which is s[i:end], or end: the code is 381 954, or 70
// 31 84. Four groups of four letters are a password that Google makes for a program.
func groupsEnd(s string, i, end int) int {
	if hi := i + 19; end == i+4 && hi <= len(s) && run(s[:hi], i, lower|digit|space) == hi &&
		s[i+9] == ' ' && s[i+14] == ' ' && strings.Count(s[i:hi], " ") == 3 &&
		(byChance(strings.ReplaceAll(s[i:hi], " ", ""), 48) || look(s[i:hi]).turns > 3) {
		return hi
	}
	hi := end
	for hi >= i+2 && hi < min(i+10, len(s)) && s[hi] == ' ' && strings.Trim(s[i:hi], "0123456789 ") == "" {
		next := run(s, hi+1, digit)
		if next < hi+3 || next > hi+7 {
			break
		}
		hi = next
	}
	if countDigits(s[i:hi]) < 6 {
		return end
	}
	return hi
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
			// 验证码:384916,5分钟内有效
			c == ',' && end-i >= 4 && run(s[:end], i, digit) == end,
			// パスワードはSECRETです
			c >= 0xe3 && class[s[i]]&foreign == 0 && c < 0xf0,
			strings.HasPrefix(rest, "，") || strings.HasPrefix(rest, "。"):
			return end
		}
	}
	return len(s)
}

// nameFollows reports whether s[i:] begins with a name and an equals sign or a colon.
func nameFollows(s string, i int) bool {
	rest := afterName(s, i)
	return rest != "" && oneByteOf("=:", rest[0]) || strings.HasPrefix(rest, " = ")
}

// closesString reports whether the quote at i ends a string, as in "password=" + password, rather than beginning one:
// what follows it is a sign that goes on after a string, which few secrets begin with.
func (c *scan) closesString(i int) bool {
	if i > 1 && i+1 < len(c.s) && (oneByteOf("=(, ", c.s[i-1]) || c.s[i-1] == ':' && oneByteOf(quotes, c.s[i-2])) &&
		oneByteOf("+;]}.&|%:", c.s[i+1]) {
		return false // f("&SECRET"), "password":"}SECRET"
	}
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
		// A quote that is doubled is part of the string: 'it''s' of SQL and YAML, "a""b" of Basic.
		if q != '`' && level == n && end > i && end+2 < len(c.s) && c.s[end+1] == q && class[c.s[end+2]]&alnum != 0 &&
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
