package redact

import (
	"bytes"
	_ "embed" // of the rules
	b64 "encoding/base64"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// matcher verifies a rule at a literal, c.s[at:at+n], and returns the secret's bounds; an end that is not after the
// start means that there is none. It may look back as far as c.floor: what is before is redacted already. What it looks
// at beyond a fixed number of bytes it must look at once only in a text, or count by afford.
type matcher func(c *scan, at, n int) (start, end int)

// rule is a row of data/rules.txt.
type rule struct {
	name, about string
	literals    []string // one of them is in the text; three bytes or more
	where       placing
	find        matcher
	shape       *pattern // of find, where a row has one
	marker      string
}

// placing is where a literal counts; 0 is on its own, in the case that it has.
type placing uint8

const (
	fold  placing = 1 << iota // whatever the literals' case
	open                      // a letter or digit may come before the literal
	alone                     // nor may the literal be glued to a word by an underscore
	after                     // the literal is no part of the secret
	said                      // people speak and inflect it
)

var placings = map[string]placing{"fold": fold, "open": open, "alone": alone, "after": after, "said": said}

// placingOf reads the names of placings.
func placingOf(names string) (where placing) {
	for name := range strings.SplitSeq(names, ",") { // a dash is the name of none
		where |= placings[name]
	}
	return where
}

//go:embed data/rules.txt
var rulesFile string

// functions are the matchers of what no row describes.
var functions = map[string]matcher{"@keyTail": keyTail, "@urlTail": urlTail, "@urlPassword": urlPassword,
	"@beforeHost": beforeHost}

var rules []*rule

func readRules() (rules []*rule) {
	functions["@encodedText"] = encodedText // it asks the rules
	for _, line := range tableRows(rulesFile) {
		column := strings.Split(line, "\t")
		r := &rule{name: column[0], about: column[4], literals: strings.Split(column[3], "|"),
			where: placingOf(column[1]), find: functions[column[2]], marker: "[redacted:" + column[0] + "]"}
		if column[3] == "@encodedNames" {
			r.literals = encodedNames()
		}
		if column[2][0] == '^' {
			r.find = expression(regexp.MustCompile("(?s)" + column[2]))
		} else if r.find == nil {
			r.shape = newPattern(column[2], r.where)
			r.find = r.shape.find
		}
		rules = append(rules, r)
	}
	return rules
}

// maxPEM is as long as a private key in PEM gets.
const maxPEM = 32 << 10

// expression returns the matcher of what x describes after a literal: of its group, or of all with the literal.
func expression(x *regexp.Regexp) matcher {
	return func(c *scan, at, n int) (int, int) {
		body := at + n
		// Each of a thousand begins without an end would be looked at up to the same end: the next one ends it.
		window, _, _ := strings.Cut(c.s[body:min(len(c.s), body+maxPEM)], c.s[at:body])
		if !c.afford(len(window) / 16) {
			return at, c.eol(at)
		}
		switch m := x.FindStringSubmatchIndex(window); {
		case m == nil:
			return 0, 0
		case len(m) > 2:
			return body + m[2], body + m[3]
		default:
			return at, body + m[1]
		}
	}
}

// keyTail matches the lines of a private key whose begin is not there, at its end, as tail -5 id_rsa prints it.
func keyTail(c *scan, at, n int) (int, int) {
	s := c.s
	label, _, ok := strings.Cut(s[at+n:min(len(s), at+n+60)], "PRIVATE KEY")
	if !ok || strings.ContainsAny(label, "\n-\\") {
		return 0, 0
	}
	start := at
	for start > c.floor && at-start < maxPEM &&
		(class[s[start-1]]&(base64|space) != 0 || oneByteOf("\\\"'>|", s[start-1])) {
		start--
	}
	// Words before the key are no part of it: it begins where a line is long enough.
	for start < at {
		end := run(s[:at], start, base64)
		if end-start >= 24 && !wordy(s[start:end]) {
			return start, at + n + len(label) + len("PRIVATE KEY")
		}
		start = max(end, start+1)
	}
	return 0, 0
}

// pattern is the shape of a token around a literal.
type pattern struct {
	before piece   // in front of the literal
	pieces []piece // after it
	check  func(body string) bool
	after  bool // the literal is no part of it
	most   int  // how many bytes after the literal are looked at, 0 for all
}

// piece is from low to high bytes of a set, and then a separator.
type piece struct {
	set       charset
	low, high int
	then      string
}

// many is the high of a piece that ends with its set only.
const many = 1 << 30

// checks are what the random part of a token must hold to be taken for one.
var checks = map[string]func(body string) bool{
	"any":      func(string) bool { return true },
	"mixed":    func(v string) bool { return random(v, false) },
	"dense":    func(v string) bool { return random(v, true) },
	"digits":   func(v string) bool { return countDigits(v) >= 3 },
	"capitals": func(v string) bool { return strings.ToLower(v) != v && random(v, true) },
	"dashes":   func(v string) bool { return strings.Count(v, "-") >= 4 && digits(v) },
	"percents": func(v string) bool { return strings.ContainsAny(v[:len(v)-1], "%=") },
	"uuid":     uuid,
	"openai": func(v string) bool { // style sheets have the prefix too, and other providers
		return random(v, true) && !strings.HasPrefix(v, "ant-") && !strings.HasPrefix(v, "or-") &&
			!strings.HasPrefix(v, "lf-") && !strings.HasPrefix(v, "helicone-")
	},
	"hf": func(v string) bool { return random(v, false) || len(v) == 34 && !wordy(v) && !is("blank", v) },
	"hook": func(v string) bool {
		return random(v, false) && strings.Trim(v[strings.LastIndexByte(v, '/')+1:], "Xx0") != ""
	},
	"cookie": func(v string) bool {
		return countDigits(v) >= 3 && !strings.HasPrefix(v, "ses_") && !uuid(v) && !number(v)
	},
	"publishable": func(v string) bool { return random(v, true) && (!wordy(v) || countDigits(v) >= 4) },
	"bearer": func(v string) bool {
		return random(v, false) && (!identifierPath(v) || digits(v) || len(v) >= 20)
	},
	"basic": func(v string) bool {
		plain, ok := "", random(v, false)
		if ok {
			plain, ok = decoded(v[:len(v)/4*4])
		}
		return ok && strings.IndexByte(plain, ':') >= 0
	},
	"password": func(v string) bool { return chancy(v) || strong(v) },
	// The hash is behind a salt, and what the algorithm was given.
	"crypt": func(v string) bool { v = v[strings.LastIndexByte(v, '$')+1:]; return len(v) >= 22 && random(v, false) },
	"code": func(v string) bool {
		return !wordy(v) && !uuid(v) && countDigits(v) >= 2 && (random(v, true) && strings.ToLower(v) != v ||
			uuid(v[:min(len(v), 36)])) // several of them, by Keycloak
	},
}

// newPattern reads a shape: sets with how many bytes of them, separators between them, the name of a check.
func newPattern(shape string, where placing) *pattern {
	p := &pattern{check: checks["mixed"], after: where&after != 0}
	fields := strings.Fields(shape)
	for i := 0; i < len(fields); i++ {
		if check := checks[fields[i]]; check != nil {
			p.check = check
			continue
		}
		var x piece
		for name := range strings.SplitSeq(fields[i], ",") {
			x.set |= sets[name]
		}
		i++
		low, high, ranged := strings.Cut(strings.TrimSuffix(fields[i], "+"), "-")
		x.low, _ = strconv.Atoi(low)
		switch x.high = x.low; {
		case ranged:
			x.high, _ = strconv.Atoi(high)
		case strings.HasSuffix(fields[i], "+"):
			x.high = many
		}
		if i+1 < len(fields) && len(fields[i+1]) == 1 {
			if i++; fields[i] == "*" {
				p.before = x
				continue
			}
			x.then = fields[i]
		}
		p.pieces = append(p.pieces, x)
		p.most += min(x.high, many/8) + 8 // what follows shows whether it ends there
	}
	if p.most >= many/8 {
		p.most = 0
	}
	if p.after && p.most == 0 {
		p.most = maxURL // what may be within a word must not walk over all of it each time
	}
	return p
}

// maybe reports whether the shape may follow a literal that ends at i, once escapes are gone.
func (p *pattern) maybe(raw string, i int) bool {
	end := run(raw[:min(len(raw), i+8)], i, p.pieces[0].set)
	return end-i >= min(8, p.pieces[0].low) || end == len(raw) || strings.HasPrefix(raw[end:], `\/`)
}

// find is the matcher of a pattern: for "ghp_" and "alnum 36" it finds the 36 letters and digits after the literal.
func (p *pattern) find(c *scan, at, n int) (int, int) {
	s, body, end := c.s, at+n, at+n
	start := at
	if p.most > 0 && len(s) > end+p.most {
		s = s[:end+p.most]
	}
	if low := p.before.low; low > 0 {
		if start = runBack(s, at, max(c.floor, at-low-5), p.before.set); at-start > low+4 && bounded(s, at-low) {
			start = at - low // an escape runs into it
		}
		if body = start; at-start < low || at-start > low+4 {
			return 0, 0
		}
	}
	for i, x := range p.pieces {
		var ok bool
		if end, ok = x.end(s, at, end, i == len(p.pieces)-1); !ok {
			return 0, 0
		}
	}
	c.looked += end - start
	if p.after {
		start = at + n
		if strings.HasSuffix(s[c.floor:at], "pk") { // publishable
			return 0, 0
		}
	}
	if !p.check(s[body:end]) {
		return 0, 0
	}
	if end == len(s) { // the window's end; what is found is looked at once
		end = run(c.s, end, p.pieces[len(p.pieces)-1].set)
	}
	return start, end
}

// end returns where the piece ends that begins at from, of a token that begins at at. A piece of fixed length that goes
// on is no such token: forty hexadecimal digits are none of thirty-two.
func (x *piece) end(s string, at, from int, last bool) (end int, ok bool) {
	end = run(s, from, x.set)
	for last && end > from && class[s[end-1]]&(dot|dash) != 0 {
		end-- // ends a sentence
	}
	size := end - from
	// A token cut short by the end of the text is one from its eighth byte.
	cut := last && size < x.low && size >= 8 && cutOff(s, at, from, end) &&
		(random(s[from:end], true) || x.set&^hexSet == 0 && digits(s[from:end]))
	if size < x.low && !cut || size > x.high || !strings.HasPrefix(s[end:], x.then) {
		return 0, false
	}
	ok = !last || x.low != x.high || cut || end == len(s) || class[s[end]]&word == 0
	return end + len(x.then), ok
}

// cutShort reports whether the text ends at i because it was cut there.
func cutShort(s string, i int) bool {
	rest := s[i:]
	for _, sign := range [...]string{TruncatedMarker, "...", "…", "[truncated", "<truncated"} {
		if strings.HasPrefix(rest, sign) {
			return true
		}
	}
	return rest == ""
}

// cutOff is cutShort for a token with the literal s[at:body]. The end of the text shows a cut only where the literal is
// none by chance: now and then an id begins with any four letters and digits that its alphabet has, and most have
// letters of one case.
func cutOff(s string, at, body, end int) bool {
	const byChance = 4
	if end == len(s) && body-at <= byChance && (run(s, at, digit|lower) >= body || run(s, at, digit|upper) >= body) {
		return false
	}
	return cutShort(s, end)
}

// unless returns the bounds of a secret; none where not holds.
func unless(not bool, start, end int) (int, int) {
	if not {
		return 0, 0
	}
	return start, end
}

// decoded returns what v encodes in Base64, if that is text.
func decoded(v string) (string, bool) {
	encoding := b64.RawStdEncoding
	if strings.ContainsAny(v, "-_") {
		encoding = b64.RawURLEncoding
	}
	plain, err := encoding.DecodeString(strings.TrimRight(v, "="))
	if len(v)%2 == 0 && run(v, 0, hexSet) == len(v) {
		plain, err = hex.DecodeString(v)
	}
	if 2*bytes.Count(plain, []byte{0}) == len(plain) { // PowerShell encodes commands in UTF-16
		plain = bytes.ReplaceAll(plain, []byte{0}, nil)
	}
	unprintable := func(r rune) bool {
		return r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0x7f || r == utf8.RuneError
	}
	return string(plain), err == nil && !bytes.ContainsFunc(plain, unprintable)
}

// encodedNames are pieces of the Base64 of a text that has the name of a secret in it, wherever in the text.
func encodedNames() (out []string) {
	for _, name := range words["encoded"] {
		for shift, from := range [...]int{0, 2, 3} {
			text := b64.RawStdEncoding.EncodeToString([]byte("\n\n\n"[:shift] + name))
			out = append(out, text[from:(shift+len(name))*8/6])
		}
		digits := hex.EncodeToString([]byte(name))
		out = append(out, digits, strings.ToUpper(digits))
	}
	return out
}

// encodedText matches Base64, or the digits, of a text that holds a secret. The names of secrets have three encodings
// each, one for every place modulo three that they may begin at; where one is found, the whole run of Base64 is
// decoded, and searched as any text.
func encodedText(c *scan, at, n int) (int, int) {
	const maxAround = 8 << 10
	lo := runBack(c.s, at, max(c.floor, at-maxAround), alnum|plusSlash)
	argument := oneByteOf(quotes, c.s[at+n-1]) // atob("SECRET")
	if argument || c.s[at+n-1] == ' ' {
		lo = at + n
	}
	hi := run(c.s[:min(len(c.s), at+maxAround)], at+n, base64)
	if !c.afford(hi - lo) {
		return 0, 0
	}
	if head, _ := decoded(c.s[lo : lo+min(hi-lo, 48)/4*4]); strings.Contains(head, "PRIVATE") { // it may be cut
		return lo, hi
	}
	plain, ok := decoded(c.s[lo:hi])
	k := strings.IndexByte(plain, ':')
	login := argument && k > 0 && run(plain, 0, slug|dot|colonAt) >= k && len(plain) > k+5 && !holds(plain[k:], space)
	return unless(!ok || !login && c.r.without().text(plain, false, false) == plain, lo, hi)
}
