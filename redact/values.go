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

// looksRandom reports whether v is long and mixed enough for a token.
func looksRandom(v string) bool {
	if len(v) < 8 || strings.ContainsAny(v, " \t\n()") {
		return false
	}
	var seen charset
	other := false
	for i := range len(v) {
		c := class[v[i]]
		seen |= c
		other = other || c == 0
	}
	letters := seen&(lower|upper) != 0
	return letters && seen&digit != 0 || letters && other || len(v) >= 20 && seen&lower != 0 && seen&upper != 0 ||
		gibberish(v)
}

// pairs are how likely, from 0 to 9, each letter follows another in English and in the
// identifiers of programs: the natural logarithm of how much likelier than by chance.
var pairs = [26]string{
	"36762350504867061768432330", // a
	"75647430751832632664711041", // b
	"83547337507642842657531120", // c
	"74469421820534632663644240", // d
	"63675541201657253886243620", // e
	"64567830800643740664601130", // f
	"63638355701536840774522111", // g
	"82359310703443741656502030", // h
	"54665560001669750567050305", // i
	"84558433605254752383722110", // j
	"63459462810445443375422230", // k
	"73368421802723730355520060", // l
	"85448112702462780264500030", // m
	"72677582604434631378442010", // n
	"45663550403668560866655200", // o
	"82538234604731760867511130", // p
	"51456336503433045554913051", // q
	"72559441704454740566432040", // r
	"62638236703443562468613051", // s
	"72438426800532640765412250", // t
	"56646540600768360777000302", // u
	"83549633700342543344122100", // v
	"93357336800446740774313210", // w
	"65757623700443582458332540", // x
	"43545312602487490386123034", // y
	"73339111700322520241323346", // z
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

// made reports whether v was made to be a secret, by chance or by people.
func made(v string) bool { return strong(v) || chancy(v) || tokenLike(v) }

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

// stopWords are what is after the name of a secret in prose, code and schemas and
// is no secret.
var stopWords = wordSet("to the a an is are was be and or not for from in on of with by as at if when then this " +
	"that it its must may can should will flag option argument arg parameter param value values field string str " +
	"bytes byte number int integer bool boolean any object array list dict map text none null nil undefined true " +
	"false yes no required optional missing invalid expired empty unset hidden enabled disabled default auto " +
	"inherit ok error options flags arguments instead via using has have protected prompts void never unknown " +
	"uint64 int64 uuid self type const let var char file path name stdin env prompt removed redacted masked include " +
	"omit same-origin todo tbd")

// algorithm reports whether v names a hash, cipher or encoding.
func algorithm(v string) bool {
	for _, p := range [...]string{"sha", "md5", "base64", "base32", "bcrypt", "argon2", "pbkdf2", "utf", "rs256",
		"hs256", "es256", "aes", "ed25519", "rsa", "oauth2", "x509", "blake"} {
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

// marked reports whether v is a marker of this package, or of others who were here
// before.
func marked(v string) bool {
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
	if has(standIns, v) {
		return true
	}
	if k := indexFold(v, "your"); k >= 0 && (k == 0 || class[v[k-1]]&letter == 0) && k+4 < len(v) &&
		strings.IndexByte("-_ ", v[k+4]) >= 0 {
		return true
	}
	rest := strings.TrimRight(v, "xX.…*")
	return len(v)-len(rest) >= 3 && (rest == "" || len(rest) <= 12 && class[rest[len(rest)-1]]&(dash|under) != 0)
}

var standIns = wordSet("changeme change-me change_me changeit placeholder filtered hidden todo fixme tbd dummy " +
	"same-origin include")

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
	if len(v) < 4 || number(v) || filePath(v) || has(stopWords, v) || has(stateWords, v) ||
		strings.ContainsAny(v, " \t\n(){}[]<>|") || strings.Contains(v, "://") || date(v) {
		return false
	}
	return !(strings.IndexByte(v, '_') > 0 && identifierPath(v) && wordy(v)) // a test that passes
}

// stateWords are what tests, checks and passes of a compiler end with.
var stateWords = wordSet("passed fail failed failure failing success succeeded warn warning skip skipped pending " +
	"first second third final last initial both all nil some later early late post pre done complete partial " +
	"unknown always")

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
