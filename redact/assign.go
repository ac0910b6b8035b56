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
	pair               // "key", "value"
	prose              // the key is value
	sure               // the text around leaves no doubt
)

// What is looked at around a key is bounded, so that no text makes the work grow with
// the square of its length.
const (
	maxLine   = 4 << 10 // back to the begin of a line
	maxHeader = 8 << 10 // of a header's value
)

// keyBytes may be part of a key in text.
const keyBytes = slug | dot

// keyAround returns the key that s[at:at+n] is part of, without leading hyphens, and
// what it promises.
func (r *Redactor) keyAround(s string, floor, at, n int) (lo, hi int, found keyClass) {
	lo, hi = keySpan(s, floor, at, n)
	if hi > lo {
		lo, found = r.classifyAt(s, lo, hi, at)
	}
	return lo, hi, found
}

// keySpan returns the bounds of the key around s[at:at+n]; none when the word goes on
// and is another: tokens, tokenizer, secretary. Only a plural may.
func keySpan(s string, floor, at, n int) (lo, hi int) {
	lo, hi = at, at+n
	if continues(s, hi) && (s[hi]|0x20 != 's' || continues(s, hi+1) || equalFold(s[at:hi], "token")) {
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
	for hi > at+n && class[s[hi-1]]&(dash|dot) != 0 {
		hi--
	}
	for lo < at && class[s[lo]]&(dash|dot) != 0 {
		lo++
	}
	return lo, hi
}

// continues reports whether a word runs over i, in letters of one case.
func continues(s string, i int) bool {
	const letters = lower | upper
	return i < len(s) && class[s[i]]&letters != 0 && class[s[i]]&letters == class[s[i-1]]&letters
}

// classifyAt classifies the key s[lo:hi], whose telling part is at at, and returns where
// it begins: an escape before it may have run into it.
func (r *Redactor) classifyAt(s string, lo, hi, at int) (int, keyClass) {
	if found := r.classify(s[lo:hi]); found != notSecret || lo == 0 || lo >= at {
		return lo, found
	}
	switch {
	case s[lo-1] == '\\' && s[lo] == 'u' && at-lo >= 5: // "\u0026token=…"
		lo += 5
	case s[lo-1] == '\\': // "\ntoken=…"
		lo++
	case s[lo-1] == '%' && lo+2 <= at: // "%26token=…"
		lo += 2
	default:
		return lo, notSecret
	}
	return lo, r.classify(s[lo:hi])
}

// assign finds the value that a text gives to the key around s[at:at+n], where it is
// one to redact.
func (r *Redactor) assign(s string, floor, at, n int) (found finding) {
	lo, hi := keySpan(s, floor, at, n)
	if hi <= lo {
		return found
	}
	a := assignment{s: s, floor: floor, lo: lo, hi: hi, marker: Marker}
	i, ok := a.separator()
	if !ok {
		return found // most mentions end here, before the key is looked at
	}
	a.lo, a.class = r.classifyAt(s, lo, hi, at)
	if a.class == notSecret {
		return found
	}
	for tries := 0; ok && tries < 2; tries++ {
		start, end := a.value(i)
		if start < floor || end <= start {
			return found
		}
		if a.secret(r, s[start:end], end) {
			return finding{start, end, a.marker}
		}
		// password: str = "…" gives a type first.
		i = end
		for i < len(s) && (s[i] == ' ' || s[i] == ']') {
			i++
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

// assignment is the place of a key in a text, and what is learned on the way to its
// value.
type assignment struct {
	s         string
	floor     int
	lo, hi    int // the key
	class     keyClass
	form      form
	keyQuoted bool
	quoted    bool // the value
	query     bool // the key is a parameter of a URL
	marker    string
	scheme    bool // Bearer or its like stands before the value
}

// separator returns where the value begins, or false where the text assigns nothing.
func (a *assignment) separator() (int, bool) {
	s, i := a.s, a.hi
	path := a.lo > 0 && s[a.lo-1] == '/'
	a.query = a.lo > 0 && (s[a.lo-1] == '?' || s[a.lo-1] == '&')
	dashes := a.lo > a.floor && s[a.lo-1] == '-' && (a.lo < 2 || class[s[a.lo-2]]&word == 0)
	for i < len(s) && s[i] == '\\' {
		i++
	}
	if i < len(s) && (s[i] == '"' || s[i] == '\'' || s[i] == '`') {
		a.keyQuoted = true
		i++
	} else {
		i = a.hi
	}
	if a.keyQuoted && i < len(s) && s[i] == ']' {
		i++ // environ["API_KEY"] = …
	}
	gap := i
	for i < len(s) && (s[i] == ' ' || s[i] == '\t') && i-gap < 40 {
		i++
	}
	blank := i > gap
	if i == len(s) {
		return 0, false
	}
	rest := s[i:]
	if path && s[i] != '=' {
		return 0, false // /etc/passwd: …
	}
	switch c := s[i]; {
	case strings.HasPrefix(rest, "=="), strings.HasPrefix(rest, "=>"), strings.HasPrefix(rest, ":="):
		a.form = spaced
		i += 2
		if i < len(s) && s[i] == '=' {
			i++
		}
	case c == '=':
		a.form = tight
		i++
		if blank || i < len(s) && (s[i] == ' ' || s[i] == '\t') {
			a.form = spaced
		}
	case c == ':':
		if strings.HasPrefix(rest, "::") || strings.HasPrefix(rest, "://") {
			return 0, false
		}
		a.form = colon
		i++
	case strings.HasPrefix(rest, "%3D"), strings.HasPrefix(rest, "%3d"):
		a.form, a.query = tight, true
		i += 3
	case strings.HasPrefix(rest, `\u003d`):
		a.form = tight
		i += 6
	case c == '>' && a.lo > a.floor && s[a.lo-1] == '<':
		a.form = sure
		i++
		return i, true
	case a.keyQuoted && c == ',':
		a.form = pair
		i++
		if dashes {
			a.form = sure
		}
	case a.keyQuoted && strings.HasPrefix(rest, "value="):
		a.form = sure
		i += len("value=")
	case dashes && blank:
		a.form = flag
	case blank && a.netrc():
		a.form = flag
	case blank && (strings.HasPrefix(rest, "is ") || strings.HasPrefix(rest, "was ")):
		a.form = prose
		i += strings.IndexByte(rest, ' ')
	default:
		return 0, false
	}
	for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
		i++
	}
	return i, i < len(s)
}

// netrc reports whether the key is that of a .netrc entry: "login x password y".
func (a *assignment) netrc() bool {
	if a.s[a.lo:a.hi] != "password" {
		return false
	}
	before := strings.TrimRight(a.s[max(a.floor, a.lo-200):a.lo], " \t\r\n")
	before = strings.TrimRight(before[:strings.LastIndexAny(before, " \t\r\n")+1], " \t\r\n")
	return strings.HasSuffix(before, "login") || strings.HasSuffix(before, "user")
}

// value returns the bounds of the value at i, without quotes.
func (a *assignment) value(i int) (start, end int) {
	s := a.s
	if i >= len(s) {
		return 0, 0
	}
	if i+1 < len(s) && strings.IndexByte("bBrRfFuU", s[i]) >= 0 && (s[i+1] == '"' || s[i+1] == '\'') {
		i++ // b"…" in Python
	}
	slashes := i
	for slashes < len(s) && s[slashes] == '\\' {
		slashes++
	}
	if slashes < len(s) && strings.IndexByte("\"'`", s[slashes]) >= 0 {
		if closesString(s, a.lo, slashes) {
			return 0, 0
		}
		a.quoted = true
		q := s[slashes : slashes+1]
		start = slashes + 1
		if strings.HasPrefix(s[slashes:], q+q+q) {
			start += 2
			if n := strings.Index(s[start:], q+q+q); n >= 0 {
				return start, start + n
			}
			return start, len(s)
		}
		end = closing(s, start, q[0], slashes-i)
		if a.class == credential {
			bare := start
			start = afterScheme(s, start, end)
			a.scheme = start > bare
		}
		return start, end
	}
	a.quoted = false
	switch {
	case a.form == pair || a.form == sure && s[a.lo-1] != '<':
		return 0, 0
	case (s[i] == '{' || s[i] == '[') && a.keyQuoted && a.form == colon:
		return a.container(i)
	case a.form == sure && a.lo > 0 && s[a.lo-1] == '<': // XML
		end = strings.IndexByte(s[i:], '<')
		if end < 0 || !strings.HasPrefix(s[i+end+1:], "/"+s[a.lo:a.hi]) {
			return 0, 0
		}
		return i, i + end
	case a.class == credential && a.form != flag:
		return a.header(i)
	case a.form == colon && (s[i] == '|' || s[i] == '>'):
		return a.block(i)
	case s[i] == '\n' || s[i] == '\r':
		return 0, 0
	}
	return i, a.wordEnd(i)
}

// container returns the bounds of an array or object of JSON within other text, or in
// JSON that breaks off, where it holds a secret.
func (a *assignment) container(i int) (start, end int) {
	s := a.s
	end = skipJSON(s[:min(len(s), i+16<<10)], i)
	switch {
	case end >= 0:
		if judge(a.class, s[i:end]) != goes {
			return 0, 0
		}
		a.marker = quotedMarker
	case truncatedJSON(s, i):
		end = len(s)
	default:
		return 0, 0
	}
	a.form, a.quoted = sure, true
	return i, end
}

// closesString reports whether the quote at i ends a string that began before lo in
// the same line, as in "password=" + password, rather than beginning one.
func closesString(s string, lo, i int) bool {
	if i+1 < len(s) && strings.IndexByte(" ,)+;]}.&|%\n\r\\", s[i+1]) < 0 {
		return false
	}
	return strings.Count(s[lineStart(s, lo):lo], s[i:i+1])%2 == 1
}

// closing returns the end of a string that q closes, opened with n backslashes before
// its quote, as in JSON within JSON. A string that nothing closes ends with its line.
func closing(s string, i int, q byte, n int) int {
	start := i
	for i < len(s) {
		k := strings.IndexByte(s[i:], q)
		if k < 0 {
			break
		}
		i += k
		back := i
		for back > start && s[back-1] == '\\' {
			back--
		}
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
	for _, scheme := range [...]string{"Bearer", "Basic", "Token", "Digest", "Negotiate", "ApiKey", "Api-Key", "Key", "GoogleLogin", "AWS4-HMAC-SHA256"} {
		if n := len(scheme); end-start > n+1 && strings.EqualFold(s[start:start+n], scheme) && s[start+n] == ' ' {
			start += n
			for start < end && s[start] == ' ' {
				start++
			}
			break
		}
	}
	return start
}

// header returns the value of a header: the rest of its line, or of the string the
// header stands in.
func (a *assignment) header(i int) (start, end int) {
	s := a.s
	end = i
	quote := byte(0)
	if a.lo > 0 && strings.IndexByte("\"'`", s[a.lo-1]) >= 0 {
		quote = s[a.lo-1]
	}
	for end < len(s) && end-i < maxHeader {
		c := s[end]
		if c == '\n' || c == '\r' || c == quote && quote != 0 || quote == 0 && (c == '"' || c == '\'' || c == '`') {
			break
		}
		if c == '\\' && end+1 < len(s) && strings.IndexByte(`nr"'`, s[end+1]) >= 0 {
			break
		}
		if c == '_' && strings.HasPrefix(s[end:], TruncatedMarker) {
			break
		}
		end++
	}
	for end > i && (class[s[end-1]]&space != 0 || strings.IndexByte(",;)}]\\", s[end-1]) >= 0) {
		end--
	}
	start = afterScheme(s, i, end)
	a.scheme = start > i
	return start, end
}

// block returns the value of a YAML block: the lines indented deeper than the key.
func (a *assignment) block(i int) (start, end int) {
	s := a.s
	eol := strings.IndexByte(s[i:], '\n')
	if eol < 0 || strings.Trim(s[i:i+eol], "|>+-0123456789 \t\r") != "" {
		return 0, 0
	}
	line := lineStart(s, a.lo)
	depth := indent(s[line:])
	i += eol + 1
	start, end = i+indent(s[i:]), i
	for i < len(s) {
		stop := len(s)
		if n := strings.IndexByte(s[i:], '\n'); n >= 0 {
			stop = i + n
		}
		if strings.TrimSpace(s[i:stop]) != "" {
			if indent(s[i:]) <= depth {
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

// wordEnd returns the end of a value without quotes.
func (a *assignment) wordEnd(i int) int {
	s, end := a.s, i
scan:
	for end < len(s) {
		switch c := s[end]; c {
		case ' ', '\t', '\n', '\r', '"', '\'', '`':
			break scan
		case '<':
			if strings.HasPrefix(s[end:], "</") {
				break scan
			}
		case '\\':
			if end+1 < len(s) && strings.IndexByte(`nrt"'\u`, s[end+1]) >= 0 {
				break scan
			}
		case '&', ',', ';', '|':
			if end+1 == len(s) || class[s[end+1]]&space != 0 || nameFollows(s, end+1) || c == '&' && a.query {
				break scan
			}
		case '#':
			if a.query {
				break scan
			}
		}
		if strings.HasPrefix(s[end:], TruncatedMarker) {
			break
		}
		end++
	}
	if end > i+1 && s[end-1] == '.' && class[s[end-2]]&lower != 0 {
		end-- // ends a sentence
	}
	for end > i && strings.IndexByte(",;:)}]", s[end-1]) >= 0 && !bracketMarker(s[i:end]) {
		end--
	}
	return end
}

// bracketMarker reports whether v ends with the bracket of a marker.
func bracketMarker(v string) bool {
	open := strings.LastIndexByte(v, '[')
	return strings.HasSuffix(v, "]") && open >= 0 && (strings.HasPrefix(v[open:], "[redacted:") || strings.HasPrefix(v[open:], "[omitted:"))
}

// nameFollows reports whether s[i:] begins with a name and an equals sign or a colon.
func nameFollows(s string, i int) bool {
	end := run(s, i, slug|dot)
	return end > i && end < len(s) && (s[end] == '=' || s[end] == ':')
}

// secret decides whether v, which ends at end, is to be redacted.
func (a *assignment) secret(r *Redactor, v string, end int) bool {
	if len(v) < 2 || placeholder(v) || marked(v) || a.class == countable && number(v) {
		return false
	}
	last := end == len(a.s) || a.s[end] == '\n' || a.s[end] == '\r'
	switch {
	case a.form == sure:
		return true
	case a.form == pair:
		return len(v) >= 8 && random(v, mixed) && digits(v) && !strings.Contains(v, " ") && (a.class != credential || len(v) >= 20 || a.scheme)
	case a.class == credential && a.form != flag:
		if !a.quoted && (a.form == spaced || identifierPath(v) && strings.IndexByte(v, '.') > 0 && !digits(v) || call(v)) {
			return false
		}
		return a.headerSecret(v)
	case a.quoted:
		if label(r, v) {
			return false
		}
		return a.class != countable || a.qualified() && len(v) >= 8 || looksRandom(v)
	case a.form == flag:
		return v[0] != '-' && !has(stopWords, v) && !(label(r, v) && len(v) < 40 && !digits(v))
	case a.form == prose:
		return a.class == secret && len(v) >= 6 && digits(v) && (last || strings.IndexByte(".,;)!", a.s[end]) >= 0) && random(v, mixed) && !algorithm(v)
	}
	// Without quotes it may be code: a call, a path of names, a type, a variable.
	if strings.IndexByte("([{<*&:", v[0]) >= 0 && !(a.form == tight && a.shouts() && digits(v)) || call(v) || constant(v) || end < len(a.s) && a.s[end] == '(' {
		return false
	}
	if has(stopWords, v) || label(r, v) || strings.Contains(v, "://") {
		return false
	}
	if identifierPath(v) && !digits(v) {
		if strings.IndexByte(v, '.') > 0 {
			return false
		}
		switch {
		case a.form == tight && (a.query || a.shouts()):
			return true
		case a.class == countable:
			return looksRandom(v)
		case a.form == tight:
			return end == len(a.s) || strings.IndexByte("),", a.s[end]) < 0
		case a.form == colon:
			return last && !strings.ContainsAny(v, "_") && a.startsLine()
		default:
			return last && a.lo == lineStart(a.s, a.lo) && !strings.Contains(v, "_")
		}
	}
	if identifierPath(v) && strings.IndexByte(v, '.') > 0 && !looksRandom(v) {
		return false
	}
	if a.class == countable && !(a.form == tight && (a.query || a.shouts())) {
		return looksRandom(v)
	}
	if number(v) {
		return len(v) >= 4
	}
	return true
}

// headerSecret reports whether v is a header's credential rather than talk of one.
func (a *assignment) headerSecret(v string) bool {
	if eq := strings.IndexByte(v, '='); eq > 0 && !strings.ContainsAny(v[:eq], " (") {
		return true // pairs
	}
	if strings.ContainsRune(v, ' ') {
		return a.quoted && looksRandom(v[:strings.IndexByte(v, ' ')])
	}
	return looksRandom(v) || a.form != spaced && len(v) >= 8 && digits(v) || a.scheme && len(v) >= 6
}

// qualified reports whether more words stand before the one that makes the key a
// token: access_token rather than token.
func (a *assignment) qualified() bool {
	var w words
	w.split(a.s[a.lo:a.hi])
	return w.n > 1 || a.shouts()
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
	return strings.Trim(a.s[lineStart(a.s, a.lo):a.lo], " \t-\"'") == ""
}

// lineStart returns where the line of i begins, or how far back is looked for that.
func lineStart(s string, i int) int {
	from := max(0, i-maxLine)
	return from + strings.LastIndexByte(s[from:i], '\n') + 1
}
