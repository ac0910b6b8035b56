package redact

import "strings"

// label reports whether v names the secret: "Password", "user_password", "Enter
// your API key".
func label(r *Redactor, v string) bool {
	if len(v) > 200 {
		return false
	}
	for i := 0; i < len(v); i++ {
		start := i
		for i < len(v) && (class[v[i]]&slug != 0 || v[i] >= 0x80) {
			i++
		}
		if w := v[start:i]; len(w) >= 3 && len(w) <= 40 && !digits(w) && r.classify(w) != notSecret {
			return true
		}
	}
	return false
}

// kind is what a value looks like. Of the kinds that a value is, the first counts.
type kind uint8

const (
	aStop       kind = iota // a word that follows the name of a secret in prose, code and schemas
	aNumber                 // digits only
	aUUID                   // a UUID
	aDate                   // a date
	aURL                    // a URL
	aPath                   // the path of a file
	anAlgorithm             // the name of a hash, a cipher or an encoding
	aCode                   // a call, a type, an expression
	aLabel                  // names a secret itself: user_password, "Enter your API key"
	aToken                  // long and mixed, as machines make keys
	aStrong                 // a password as people make them where one is asked for
	aChancy                 // made by chance
	aMixed                  // letters and digits that change often
	aGibberish              // letters that follow each other as they do by chance
	aText                   // several words
	aDotted                 // names joined by dots or underscores
	aWord                   // a word or a name
	aNameDigit              // a name with a digit
	anOther
	kindCount
)

// kindOf returns the kind of the value v of the label.
func (m *mention) kindOf(v string) kind {
	if m.class == credential && strings.IndexByte(strings.TrimRight(v, "="), '=') > 0 {
		if pairsHold(v) {
			return aToken
		}
		return aStop
	}
	switch k := known(v); {
	case k != anOther:
		return k
	case call(v) || constant(v) || !m.quoted && v[len(v)-1] == ')' && strings.IndexByte(v, '(') > 0 ||
		strings.Contains(v, "::") || !m.quoted && strings.IndexByte("([{<*&:!", v[0]) >= 0:
		return aCode
	case label(m.c.r, v):
		return aLabel
	case tokenLike(v):
		return aToken
	case strong(v):
		return aStrong
	case chancy(v):
		return aChancy
	case mixture(v):
		return aMixed
	case strings.IndexByte(v, ' ') >= 0:
		return aText
	case gibberish(v):
		return aGibberish
	}
	return nameKind(v)
}

// known returns the kind of what is no secret in most places, anOther for the rest.
func known(v string) kind {
	switch {
	case has("stopWords", strings.TrimRight(v, ".,:;!")) || has("stateWords", v):
		return aStop
	case number(v) || number(strings.TrimRight(strings.TrimLeft(v, "^~<>=v"), `\x0`)): // a version, a string of C
		return aNumber
	case uuid(v):
		return aUUID
	case date(v):
		return aDate
	case strings.Contains(v, "://"):
		return aURL
	case filePath(v) || strings.HasPrefix(v, "env:") || strings.HasPrefix(v, "file:"):
		return aPath
	case algorithm(v):
		return anAlgorithm
	}
	return anOther
}

// nameKind returns the kind of what may be a word or a name.
func nameKind(v string) kind {
	switch named := identifierPath(v); {
	case named && !digits(v) && strings.ContainsAny(v, "._"):
		return aDotted
	case run(v, 0, letter|dash) == len(v) || v[0] >= 0x80 && !digits(v):
		return aWord
	case named && digits(v):
		return aNameDigit
	}
	return anOther
}

// gibberish reports whether the letters of v, a dozen or more, follow each other as they
// do by chance and not as they do in words: what distinguishes a random password in lower case
// from a name.
func gibberish(v string) bool {
	sum, n := 0, 0
	for i := 1; i < len(v); i++ {
		a, b := class[v[i-1]], class[v[i]]
		if a&letter != 0 && b&letter != 0 && !(a&lower != 0 && b&upper != 0) {
			sum += int(pairs[v[i-1]|0x20-'a'][v[i]|0x20-'a'] - '0')
			n++
		}
	}
	return n >= 11 && (10*sum < 50*n || n >= 14 && 10*sum < 53*n) || n >= 8 && len(v) >= 12 && 10*sum < 45*n
}

// strong reports whether v is a password as people make them where one is asked for:
// letters, a digit, and capitals or a mark that names do not have.
func strong(v string) bool {
	if len(v) < 7 || len(v) > 64 || algorithm(v) || filePath(v) || strings.ContainsAny(v, " \t\n(){}[]<>|\"'`\\/") ||
		strings.Contains(v, "::") || call(v) || number(v) {
		return false
	}
	seen, _ := kinds(v)
	mark := strings.ContainsAny(v, "!@#$%^&*?~+")
	return seen&digit != 0 && seen&letter != 0 && (mark || seen&upper != 0 && seen&lower != 0)
}

// algorithm reports whether v names a hash, cipher or encoding.
func algorithm(v string) bool {
	for _, p := range words["algorithms"] {
		if len(v) >= len(p) && equalFold(v[:len(p)], p) {
			return true
		}
	}
	return false
}

// call reports whether v calls or indexes something: getenv("X", f(x), a[0].
func call(v string) bool {
	end := run(v, 0, word|dot)
	return end > 0 && end < len(v) && class[v[0]]&(lower|upper|under) != 0 &&
		(v[end] == '(' || v[end] == '[' || v[end] == '<' && strings.IndexByte(v[:end], '.') > 0)
}

// constant reports whether v is a small number in hexadecimal, as headers of C have.
func constant(v string) bool { return len(v) <= 18 && strings.HasPrefix(v, "0x") }

// identifierPath reports whether v is a name or names joined by dots.
func identifierPath(v string) bool {
	if v == "" || class[v[0]]&(lower|upper|under) == 0 || v[len(v)-1] == '.' {
		return false
	}
	return run(v, 0, word|dot) == len(v)
}

// number reports whether v is a number, as counts of tokens are.
func number(v string) bool {
	some := false
	for i := range len(v) {
		switch c := v[i]; {
		case class[c]&digit != 0:
			some = true
		case c != '.' && c != ',' && c != '_' && c != '-' && c != '+' && c != '%' &&
			(i != len(v)-1 || c|0x20 != 'k' && c|0x20 != 'm'):
			return false
		}
	}
	return some
}

// marked reports whether v is a marker of this package, also with the tag of an identifier, or of others who were here
// before.
func marked(v string) bool {
	v = untagged(v)
	switch {
	case strings.HasPrefix(v, Marker) && len(v) < len(Marker)+8, strings.HasPrefix(v, TruncatedMarker):
		return true
	case strings.HasPrefix(v, "[redacted:") || strings.HasPrefix(v, "[omitted:"):
		return strings.IndexByte(v, ']') == len(v)-1 ||
			strings.HasPrefix(v, "[omitted:") && strings.IndexByte(v, ' ') < 0
	}
	return strings.EqualFold(strings.Trim(v, "[]<>()*_ "), "redacted")
}

// placeholder reports whether v represents a secret without being one: ${TOKEN},
// <password>, your-key, ****.
func placeholder(v string) bool {
	if v == "" {
		return true
	}
	if drawn(v) || repeated(v) {
		return true
	}
	switch v[0] {
	case '$':
		return variable(v)
	case '<':
		return v[len(v)-1] == '>' && (!digits(v) || strings.ContainsAny(v, " ("))
	case '{':
		return v[len(v)-1] == '}' && !strings.Contains(v, `"`)
	case '%':
		return len(v) <= 3 || v[len(v)-1] == '%' && identifierPath(v[1:len(v)-1]) || v[1] == '('
	}
	return len(v) <= 40 && !digits(v) && standsIn(v) || strings.HasPrefix(strings.TrimLeft(v, `\`), "u003c")
}

// standsIn reports whether v, which has no digit, asks for a value to be put in its place:
// your-api-key, changeme, sk-..., sk-ant-xxxxxxxx.
func standsIn(v string) bool {
	v = strings.Trim(v, "[]<>")
	if has("standIns", v) {
		return true
	}
	if k := indexFold(v, "your"); k >= 0 && (k == 0 || class[v[k-1]]&letter == 0) && k+4 < len(v) &&
		strings.IndexByte("-_ ", v[k+4]) >= 0 {
		return true
	}
	rest := strings.TrimRight(v, "xX.…*")
	return len(v)-len(rest) >= 3 && (rest == "" || len(rest) <= 12 && class[rest[len(rest)-1]]&(dash|under) != 0)
}

// wordy reports whether most of v is in runs of letters such as words have.
func wordy(v string) bool {
	letters := 0
	for i := 0; i < len(v); i++ {
		start := i
		for i < len(v) && class[v[i]]&lower != 0 {
			i++
		}
		if i-start >= 3 {
			letters += i - start
		}
	}
	return 2*letters > len(v) && !gibberish(v)
}

// chancy reports whether v looks made by chance: a password or token that no person
// made of words.
func chancy(v string) bool {
	if len(v) < 8 || len(v) > 200 || wordy(v) || number(v) || uuid(v) || date(v) {
		return false
	}
	var seen charset
	turns, marks := 0, 0
	for i := range len(v) {
		c := class[v[i]] & alnum
		seen |= c
		if c == 0 {
			marks++
		}
		if i > 0 && (c&digit != 0) != (class[v[i-1]]&digit != 0) {
			turns++
		}
	}
	return seen&digit != 0 && seen&letter != 0 && turns >= 2 && marks*3 <= len(v) &&
		(seen&lower != 0 && seen&upper != 0 || turns >= 4 || marks > 0 && seen&lower != 0)
}

// mixture reports whether v is long, of letters and digits, and changes from one to the other often.
func mixture(v string) bool {
	turns := 0
	for i := 1; i < len(v); i++ {
		if class[v[i]]&digit != class[v[i-1]]&digit {
			turns++
		}
	}
	return len(v) >= 14 && turns >= 3 && run(v, 0, alnum) == len(v)
}

// tokenLike reports whether v has the length and mixture of a key that a machine made.
func tokenLike(v string) bool {
	if len(v) < 16 || uuid(v) || filePath(v) || date(v) {
		return false
	}
	for i := range len(v) {
		if c := v[i]; class[c]&(base64|slug) == 0 && (c < '!' || c > '~' || strings.IndexByte("()[]{}<>|\"'", c) >= 0) {
			return false
		}
	}
	seen, longest := kinds(v)
	return (seen&digit != 0 && seen&letter != 0 || gibberish(v)) && !wordy(v) &&
		(longest >= 16 || seen&upper != 0 && seen&lower != 0)
}

// passLike reports whether v may be a password where its name means other things too.
func passLike(v string) bool {
	if len(v) < 4 || number(v) || filePath(v) || has("stopWords", v) || has("stateWords", v) ||
		strings.ContainsAny(v, " \t\n(){}[]<>|") || strings.Contains(v, "://") || date(v) {
		return false
	}
	return !(strings.IndexByte(v, '_') > 0 && identifierPath(v) && wordy(v)) // a test that passes
}

// filePath reports whether v is the path of a file.
func filePath(v string) bool {
	if len(v) < 2 {
		return false
	}
	switch {
	case v[0] == '/', v[0] == '~' && v[1] == '/', strings.HasPrefix(v, "./"), strings.HasPrefix(v, "../"),
		strings.HasPrefix(v, "file:"):
	case len(v) > 3 && v[1] == ':' && (v[2] == '\\' || v[2] == '/') && class[v[0]]&letter != 0:
	default:
		return false
	}
	for part := range strings.FieldsFuncSeq(v, func(c rune) bool { return c == '/' || c == '\\' }) {
		if len(part) >= 12 && chancy(part) {
			return false // a key in Base64 may begin with a slash
		}
	}
	return true
}

// uuid reports whether v is a UUID.
func uuid(v string) bool {
	return len(v) == 36 && v[8] == '-' && v[13] == '-' && v[18] == '-' && v[23] == '-' && run(v, 0, hexSet|dash) == 36
}

// date reports whether v begins like a date.
func date(v string) bool {
	return len(v) >= 10 && (v[4] == '-' || v[4] == '/') && run(v, 0, digit) == 4 && run(v, 5, digit) == 7
}

// drawnWith are the signs by their first byte of which what hides a password on a screen is
// made.
var drawnWith = map[byte]string{'*': "*", '.': ".…", 'x': "xX/", 'X': "xX/", '-': "-_", '_': "-_", 0xe2: "•●∙·…",
	0xc2: "•●∙·…"}

// drawn reports whether v is made of such signs.
func drawn(v string) bool {
	signs := drawnWith[v[0]]
	return signs != "" && strings.Trim(v, signs) == ""
}

// repeated reports whether a sign that represents any other fills a good part of v.
func repeated(v string) bool {
	for _, sign := range [...]string{"xxxxxxxxxx", "XXXXXXXXXX", "##########", "**********"} {
		if k := strings.Index(v, sign); k >= 0 {
			return 3*(skip(v, k, len(v), sign[:1])-k) > len(v)
		}
	}
	return false
}

// variable reports whether v is the name of a variable of a shell, or a command in its
// place.
func variable(v string) bool {
	if len(v) > 1 && (v[1] == '{' || v[1] == '(') {
		return v[len(v)-1] == '}' || v[len(v)-1] == ')' || strings.IndexByte(v, '}') < 0 && v[1] == '('
	}
	rest := strings.TrimSuffix(v[1:], "}")
	if k := strings.IndexByte(rest, '['); k > 0 && rest[len(rest)-1] == ']' {
		rest = rest[:k] // $argv[1]
	}
	if strings.HasPrefix(rest, "env:") {
		return true
	}
	seen, _ := kinds(rest)
	return rest != "" && number(rest) || identifierPath(rest) && (seen&lower == 0 || seen&(upper|digit) == 0)
}

// blank reports whether v is no value: a placeholder, or redacted already.
func blank(v string) bool { return placeholder(v) || marked(v) }

// noPassword reports whether v, in the place of a password, is not one.
func noPassword(v string) bool { return blank(v) || has("passwordWords", v) }

// pairsHold reports whether one of the pairs of a header, such as cookies, may be secret.
func pairsHold(v string) bool {
	for pair := range strings.FieldsFuncSeq(v, func(c rune) bool { return c == ';' || c == ',' || c == '&' }) {
		name, value, _ := strings.Cut(strings.TrimLeft(pair, " "), "=")
		if run(name, 0, slug|dot) < len(name) {
			return true // no pair at all
		}
		value = strings.Trim(value, "\"' ")
		if len(value) >= 6 && (digits(value) || len(value) >= 16 || gibberish(value)) &&
			!strings.EqualFold(name, "expires") && !strings.EqualFold(name, "domain") && !marked(value) {
			return true
		}
	}
	return false
}
