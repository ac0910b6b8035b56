package redact

import (
	b64 "encoding/base64"
	"strings"
)

// matcher verifies a rule at a literal, c.s[at:at+n], and returns the secret's bounds;
// an end that is not after the start says there is none. It may look back as far as
// c.floor: what is before is redacted already. What it looks at beyond a fixed number
// of bytes it must look at once only in a text, or count by afford.
type matcher func(c *scan, at, n int) (start, end int)

// rule is one pattern: literals that announce it and a matcher that verifies it.
type rule struct {
	name     string
	about    string
	literals []string // one of them is in the text; three bytes or more
	fold     bool     // whatever the literals' case
	open     bool     // a letter or digit may come before the literal
	alone    bool     // nor may the literal be glued to a word by an underscore
	hides    encoding // the literal announces no secret but text that hides some
	find     matcher
	// maybe reports whether the literal at this place of raw JSON could be a secret
	// once escapes are gone; nil means yes.
	maybe  func(raw string, at, n int) bool
	marker string
	// example is a secret in pieces, so that no scanner takes this file for a leak;
	// the last piece is the random part.
	example []string
	// not are texts that look alike and stay.
	not []string
}

// wanting is what the random part of a token must hold to be taken for one.
type wanting uint8

const (
	mixed wanting = iota // a digit, or letters of both cases
	dense                // a long run without separators, or digits and both cases
)

// prefixed matches the literal and at least low bytes of set after it. A token cut
// short by the end of the text is one from its eighth byte.
func prefixed(set charset, low int, want wanting) matcher {
	return func(c *scan, at, n int) (int, int) {
		s := c.s
		body := at + n
		end := run(s, body, set)
		for end > body && class[s[end-1]]&(dot|dash) != 0 {
			end-- // ends a sentence
		}
		if got := end - body; got < low {
			if got < 8 || !cutShort(s, end) || !random(s[body:end], dense) && (set&^hexSet != 0 || !digits(s[body:end])) {
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
		if end-body != n && (end-body < 8 || end-body > n || !cutShort(s, end)) {
			return 0, 0
		}
		if end < len(s) && class[s[end]]&word != 0 && !cutShort(s, end) || !random(s[body:end], mixed) {
			return 0, 0
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

// random reports whether body has what chance gives a token and words lack.
func random(body string, want wanting) bool {
	var seen charset
	longest, length := 0, 0
	for i := range len(body) {
		c := class[body[i]]
		seen |= c
		if c&alnum != 0 {
			length++
			longest = max(longest, length)
		} else {
			length = 0
		}
	}
	if len(body) >= 8 && strings.Count(body, body[:1]) == len(body) {
		return false // xxxxxxxx
	}
	if want == dense {
		return seen&digit != 0 && (longest >= 16 || seen&upper != 0 && seen&lower != 0)
	}
	return seen&digit != 0 || seen&upper != 0 && seen&lower != 0 || gibberish(body)
}

// after matches what follows the literal and leaves the literal itself readable.
func after(set charset, low int) matcher {
	inner := prefixed(set, low, mixed)
	return func(c *scan, at, n int) (int, int) {
		_, end := inner(c, at, n)
		if end == 0 {
			return 0, 0
		}
		return at + n, end
	}
}

// around matches low bytes of before in front of the literal and at least that many
// of behind after it.
func around(before charset, low int, behind charset, least int) matcher {
	return func(c *scan, at, n int) (int, int) {
		s := c.s
		start := at
		for start > c.floor && at-start <= low+4 && class[s[start-1]]&before != 0 {
			start--
		}
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
		if end-at >= 20 && end == len(s) && digits(s[at:end]) {
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

// awsKey matches an access key id and, where it stands right beside it as in a file of
// credentials, its secret.
func awsKey(c *scan, at, n int) (int, int) {
	s := c.s
	start, end := awsID(c, at, n)
	if end == 0 {
		return 0, 0
	}
	i := end
	for i < len(s) && i < end+6 && strings.IndexByte("\"',:;| \t\r\n\\", s[i]) >= 0 {
		i++
	}
	if i > end {
		if stop := run(s, i, alnum|plusSlash); stop-i == 40 && random(s[i:stop], dense) {
			return start, stop
		}
	}
	return start, end
}

// authScheme matches what follows "Bearer " or "Basic ".
func authScheme(c *scan, at, n int) (int, int) {
	s := c.s
	start := at + n
	for start < len(s) && s[start] == ' ' {
		start++
	}
	end := run(s, start, base64|slug|dot|tilde)
	value := strings.TrimRight(s[start:end], ".-")
	end = start + len(value)
	if len(value) < 8 || !random(value, mixed) {
		return 0, 0
	}
	if s[at]|0x20 == 'b' && s[at+1]|0x20 == 'a' { // Basic
		plain, err := b64.RawStdEncoding.DecodeString(strings.TrimRight(value[:len(value)-len(value)%4], "="))
		if err != nil || strings.IndexByte(string(plain), ':') < 0 || !printable(plain) {
			return 0, 0
		}
		return start, end
	}
	if identifierPath(value) && !digits(value) && len(value) < 20 {
		return 0, 0
	}
	return start, end
}

func printable(b []byte) bool {
	for _, c := range b {
		if c < ' ' || c == 0x7f {
			return false
		}
	}
	return true
}
