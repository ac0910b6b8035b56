package redact

import (
	"bytes"
	b64 "encoding/base64"
	"strings"
)

// matcher verifies a rule at a literal, c.s[at:at+n], and returns the secret's bounds;
// an end that is not after the start means that there is none. It may look back as far as
// c.floor: what is before is redacted already. What it looks at beyond a fixed number
// of bytes it must look at once only in a text, or count by afford.
type matcher func(c *scan, at, n int) (start, end int)

// rule is one pattern: literals that it is found by and a matcher that verifies it.
type rule struct {
	name, about string
	literals    []string // one of them is in the text; three bytes or more
	where       placing
	find        matcher
	// example is a secret in pieces, so that no scanner takes this file for a leak;
	// the last piece is the random part.
	example []string
	// not are texts that look alike and stay.
	not    []string
	marker string
	hides  encoding // the literal is of no secret but of text that hides some
	// maybe reports whether the literal at this place of raw JSON could be a secret
	// once escapes are gone; nil means yes.
	maybe func(raw string, at, n int) bool
}

// placing is where a literal counts; 0 is on its own, in the case that it has.
type placing uint8

const (
	fold  placing = 1 << iota // whatever the literals' case
	open                      // a letter or digit may come before the literal
	alone                     // nor may the literal be glued to a word by an underscore
)

// on is a row of the table of rules. Its literals and the pieces of its example are
// separated by |.
func on(name, about, literals string, where placing, find matcher, example string, not ...string) *rule {
	return &rule{name: name, about: about, literals: strings.Split(literals, "|"), where: where, find: find,
		example: strings.Split(example, "|"), not: not, marker: "[redacted:" + name + "]", maybe: maybes[name]}
}

// maybes are for literals that JSON often has.
var maybes = map[string]func(raw string, at, n int) bool{
	"url-password":   maybeURL,
	"airtable-token": func(raw string, at, n int) bool { return at+n+14 >= len(raw) || raw[at+n+14] == '.' },
}

// wanting is what the random part of a token must hold to be taken for one.
type wanting uint8

const (
	mixed wanting = iota // a digit, or letters of both cases
	dense                // a long run without separators, or digits and both cases
)

// prefixed matches the literal and at least low bytes of set after it. A token cut
// short by the end of the text is one from its eighth byte.
func prefixed(set charset, low int) matcher { return token(set, low, mixed) }

func prefixedDense(set charset, low int) matcher { return token(set, low, dense) }

func token(set charset, low int, want wanting) matcher {
	return func(c *scan, at, n int) (int, int) {
		s := c.s
		body := at + n
		end := run(s, body, set)
		for end > body && class[s[end-1]]&(dot|dash) != 0 {
			end-- // ends a sentence
		}
		if got := end - body; got < low {
			if got < 8 || !cutOff(s, at, body, end) || !random(s[body:end], dense) &&
				(set&^hexSet != 0 || !digits(s[body:end])) {
				return 0, 0
			}
		}
		if !random(s[body:end], want) {
			return 0, 0
		}
		return at, end
	}
}

// exactly matches the literal and n bytes of set after it, on their own.
func exactly(set charset, n int) matcher {
	return func(c *scan, at, lit int) (int, int) {
		s := c.s
		body := at + lit
		end := run(s, body, set)
		cut := cutOff(s, at, body, end)
		if end-body != n && (end-body < 8 || end-body > n || !cut) || end < len(s) && class[s[end]]&word != 0 && !cut ||
			!random(s[body:end], mixed) {
			return 0, 0
		}
		return at, end
	}
}

// sized matches the literal and from low to high bytes of set after it.
func sized(set charset, low, high int) matcher {
	return whole(chars(set, ""), func(v string) bool {
		return len(v) >= low && len(v) <= high && random(v, dense)
	})
}

// extent returns the end of a value that begins at i.
type extent func(c *scan, i int) int

// chars is the extent of bytes of a set, and of those in more.
func chars(set charset, more string) extent {
	return func(c *scan, i int) int {
		if more == "" {
			return run(c.s, i, set)
		}
		for i < len(c.s) && (class[c.s[i]]&set != 0 || oneByteOf(more, c.s[i])) {
			i++
		}
		return i
	}
}

// shellWord is the extent of a word up to a space or a quote.
func shellWord(c *scan, i int) int { return until(c.s, i, len(c.s), wordStops) }

// value matches what follows the literal where ok accepts it; the literal stays readable.
func value(of extent, ok func(v string) bool) matcher {
	return func(c *scan, at, n int) (int, int) {
		if end := of(c, at+n); ok(c.s[at+n : end]) {
			return at + n, end
		}
		return 0, 0
	}
}

// whole matches the literal and what follows it where ok accepts that.
func whole(of extent, ok func(v string) bool) matcher {
	find := value(of, ok)
	return func(c *scan, at, n int) (int, int) {
		start, end := find(c, at, n)
		return start - min(n, start), end
	}
}

// but matches what inner does where ok accepts what follows the literal.
func but(inner matcher, ok func(v string) bool) matcher {
	return func(c *scan, at, n int) (int, int) {
		if start, end := inner(c, at, n); end > 0 && ok(c.s[at+n:end]) {
			return start, end
		}
		return 0, 0
	}
}

// after matches what inner does and leaves the literal itself readable.
func after(inner matcher) matcher {
	return func(c *scan, at, n int) (int, int) {
		_, end := inner(c, at, n)
		return min(at+n, end), end
	}
}

// long accepts a value of n bytes or more that chance made.
func long(n int) func(v string) bool {
	return func(v string) bool { return len(v) >= n && random(v, mixed) }
}

// literal accepts a value that is neither a placeholder nor a variable.
func literal(v string) bool { return !placeholder(v) && v[0] != '$' }

// part is a piece of a token: from low to high bytes of set, and then a separator.
type part struct {
	set       charset
	low, high int
	then      string
}

// many is the high of a part that ends with its set only.
const many = 1 << 30

// shape matches the literal and the parts after it.
func shape(parts ...part) matcher {
	return func(c *scan, at, n int) (int, int) {
		end := at + n
		for _, p := range parts {
			from := end
			end = run(c.s, from, p.set)
			if end-from < p.low || end-from > p.high || !strings.HasPrefix(c.s[end:], p.then) {
				return 0, 0
			}
			end += len(p.then)
		}
		return at, end
	}
}

// cutShort reports whether the text ends at i because it was cut there.
func cutShort(s string, i int) bool {
	rest := s[i:]
	return rest == "" || strings.HasPrefix(rest, TruncatedMarker) || strings.HasPrefix(rest, "...") ||
		strings.HasPrefix(rest, "…") ||
		strings.HasPrefix(rest, "[truncated") || strings.HasPrefix(rest, "<truncated")
}

// cutOff is cutShort for a token with the literal s[at:body]. The end of the text shows a cut only
// where the literal is none by chance: now and then an id begins with any four letters and digits
// that its alphabet has, and most have letters of one case.
func cutOff(s string, at, body, end int) bool {
	const byChance = 4
	if end == len(s) && body-at <= byChance &&
		(run(s, at, digit|lower) >= body || run(s, at, digit|upper) >= body) {
		return false
	}
	return cutShort(s, end)
}

// kinds returns the kinds of bytes that v has, and the most letters and digits in a row.
func kinds(v string) (seen charset, longest int) {
	length := 0
	for i := range len(v) {
		c := class[v[i]]
		seen |= c
		if length++; c&alnum == 0 {
			length = 0
		}
		longest = max(longest, length)
	}
	return seen, longest
}

// random reports whether body has what chance gives a token and words lack.
func random(body string, want wanting) bool {
	seen, longest := kinds(body)
	if len(body) >= 8 && strings.Count(body, body[:1]) == len(body) {
		return false // xxxxxxxx
	}
	if want == dense {
		return seen&digit != 0 && (longest >= 16 || seen&upper != 0 && seen&lower != 0)
	}
	return seen&digit != 0 || seen&upper != 0 && seen&lower != 0 || gibberish(body)
}

// around matches low bytes of before in front of the literal and at least that many
// of behind after it.
func around(before charset, low int, behind charset, least int) matcher {
	return func(c *scan, at, n int) (int, int) {
		s := c.s
		start := runBack(s, at, max(c.floor, at-low-5), before)
		if at-start > low+4 && bounded(s, at-low) {
			start = at - low // an escape runs into it
		}
		if at-start < low || at-start > low+4 {
			return 0, 0
		}
		end := run(s, at+n, behind)
		if end-at-n < least || !random(s[start:end], mixed) {
			return 0, 0
		}
		return start, end
	}
}

// jwt matches a JSON Web Token or encrypted token, also without its signature.
func jwt(c *scan, at, _ int) (int, int) {
	s := c.s
	end := run(s, at, slug)
	if end-at < 12 || end == len(s) || s[end] != '.' {
		if end-at >= 20 && end == len(s) && objectBegins(s[at:end]) {
			return at, end // cut within the header
		}
		return 0, 0
	}
	second := end + 1
	end = run(s, second, slug)
	// An encrypted token may have an empty second part, where its key is agreed.
	if end-second < 8 && (end == len(s) || s[end] != '.') {
		return 0, 0
	}
	for end < len(s) && s[end] == '.' {
		next := run(s, end+1, slug|equals)
		if next == end+1 && !(next < len(s) && s[next] == '.') {
			break
		}
		end = next
	}
	return at, end
}

// objectBegins reports whether v is how a JSON object in base64 begins, as the header of a JWT.
func objectBegins(v string) bool {
	plain, err := b64.RawURLEncoding.DecodeString(v[:len(v)/4*4])
	return err == nil && bytes.HasPrefix(plain, []byte(`{"`)) &&
		!bytes.ContainsFunc(plain, func(r rune) bool { return r < ' ' || r > '~' })
}

func countDigits(s string) (n int) {
	for i := range len(s) {
		if class[s[i]]&digit != 0 {
			n++
		}
	}
	return n
}

func digits(s string) bool { return strings.ContainsAny(s, "0123456789") }

var awsID = exactly(digit|upper, 16)

// awsKey matches an access key id and, where it is right beside it as in a file of
// credentials, its secret.
func awsKey(c *scan, at, n int) (int, int) {
	s := c.s
	start, end := awsID(c, at, n)
	if end == 0 {
		return 0, 0
	}
	if i := skip(s, end, end+6, "\"',:;| \t\r\n\\"); i > end {
		if stop := run(s, i, alnum|plusSlash); stop-i == 40 && random(s[i:stop], dense) {
			return start, stop
		}
	}
	return start, end
}

// authScheme matches what follows "Bearer " or "Basic ".
func authScheme(c *scan, at, n int) (int, int) {
	s := c.s
	start := skip(s, at+n, len(s), " ")
	end := run(s, start, base64|slug|dot|tilde)
	value := strings.TrimRight(s[start:end], ".-")
	end = start + len(value)
	if len(value) < 8 || !random(value, mixed) {
		return 0, 0
	}
	if s[at]|0x20 == 'b' && s[at+1]|0x20 == 'a' { // Basic
		plain, err := b64.RawStdEncoding.DecodeString(strings.TrimRight(value[:len(value)-len(value)%4], "="))
		control := func(r rune) bool { return r < ' ' || r == 0x7f }
		if err != nil || bytes.IndexByte(plain, ':') < 0 || bytes.ContainsFunc(plain, control) {
			return 0, 0
		}
		return start, end
	}
	return unless(identifierPath(value) && !digits(value) && len(value) < 20, start, end)
}

// unless returns the bounds of a secret; none where not holds.
func unless(not bool, start, end int) (int, int) {
	if not {
		return 0, 0
	}
	return start, end
}
