package redact

import "strings"

// This file finds passwords in URLs and in the data source names of drivers.

// maxURL bounds the part of a URL before its host.
const maxURL = 512

// urlEnd returns where the URL that goes on at i ends at the latest: at a space, a
// quote or a bracket. A text without these is walked over once.
func (c *scan) urlEnd(i int) int {
	if i < c.urlFrom || i >= c.urlTo || c.urlFrom < 0 {
		end := until(c.s, i, len(c.s), wordStops+"<>\\")
		c.urlFrom, c.urlTo = i, end
		c.looked += end - i
	}
	return min(c.urlTo, i+maxURL)
}

// urlPassword matches the password of a URL's user, or a user that is a token.
func urlPassword(c *scan, at, n int) (int, int) {
	s, begin := c.s, at+n
	end, colon := begin, -1
	if marker := s[begin:min(len(s), begin+40)]; strings.HasPrefix(marker, "[redacted:") {
		end += max(0, strings.IndexByte(marker, ']')) // the colon within is the marker's own
	}
	limit := c.urlEnd(begin)
	for ; end < limit; end++ {
		if b := s[end]; b == ':' {
			colon = end
			break
		} else if b == '@' || b == '/' || b == '?' || b == '#' {
			break
		}
	}
	if colon < 0 {
		if end < limit && s[end] == '@' && end-begin >= 20 && random(s[begin:end], dense) {
			return begin, end
		}
		return 0, 0
	}
	last := c.host(colon+1, limit)
	if last < 0 {
		if stop := authorityEnd(s, colon+1, limit); colon > begin && cutShort(s, stop) && stop-colon > 8 &&
			!number(s[colon+1:stop]) {
			return colon + 1, stop // cut before the host
		}
		return 0, 0
	}
	password := s[colon+1 : last]
	if len(password) < 2 || placeholder(password) || strings.HasPrefix(password, "[redacted:") &&
		strings.HasSuffix(password, "]") || has(passwordWords, password) {
		return 0, 0
	}
	if user := s[begin:colon]; len(user) >= 20 && tokenLike(user) {
		return begin, last // https://TOKEN:x-oauth-basic@…
	}
	return colon + 1, last
}

func authorityEnd(s string, i, limit int) int { return until(s[:max(i, limit)], i, limit, "/?#") }

// host returns where the @ is between the password from i on and the host, or -1.
// A password may hold slashes, question marks and hashes that should have been escaped;
// what is a port and a path holds an @ too.
func (c *scan) host(i, limit int) int {
	s := c.s
	stop := authorityEnd(s, i, limit)
	if last := strings.LastIndexByte(s[i:stop], '@'); last >= 0 {
		if strings.HasPrefix(s[i+last+1:], "sha256:") {
			return -1 // an image, with its version and digest
		}
		return i + last
	}
	if stop == limit || stop > i && number(s[i:stop]) || strings.IndexByte("${<[", s[i]) >= 0 {
		return -1
	}
	k := strings.IndexByte(s[stop:limit], '@')
	if k < 0 || !c.afford(k/8) {
		return -1
	}
	at := stop + k
	end := run(s[:limit], at+1, alnum|dash|dot)
	if end < at+3 || end < limit && strings.IndexByte("/?:#", s[end]) < 0 || strings.HasPrefix(s[at+1:], "sha256") {
		return -1
	}
	return at
}

// passwordWords are used instead of a password in documentation.
var passwordWords = wordSet("password passwd pass pwd secret token pw mypassword your_password yourpassword")

// maybeURL reports whether an @ follows before the URL can have ended.
func maybeURL(raw string, at, n int) bool {
	for i := at + n; i < len(raw) && i < at+n+maxURL; i++ {
		switch raw[i] {
		case ' ', '"', '<', '>':
			return false
		case '@':
			return true
		}
	}
	return at+n+maxURL > len(raw)
}

// dsn matches the password before @tcp( and its like, and before an Oracle host.
func dsn(c *scan, at, _ int) (int, int) {
	start := since(c.s, at, max(c.floor, at-128), wordStops+"=(,;")
	if !c.afford((at - start) / 4) {
		return start, at
	}
	colon := strings.IndexAny(c.s[start:at], ":/")
	if colon <= 0 {
		return 0, 0
	}
	start += colon + 1
	v := c.s[start:at]
	return unless(len(v) < 3 || noPassword(v) || v[0] == '/', start, at)
}

// oracle matches the password of name/password after a literal.
func oracle(c *scan, at, n int) (int, int) {
	i := run(c.s, at+n, word)
	if i == at+n || i >= len(c.s) || c.s[i] != '/' {
		return 0, 0
	}
	end := until(c.s, i+1, 127, wordStops+"@")
	v := c.s[i+1 : end]
	return unless(end == len(c.s) || c.s[end] != '@' || noPassword(v), i+1, end)
}

// pgpass matches the last field of a line of .pgpass: host:port:database:user:password.
func pgpass(c *scan, at, n int) (int, int) {
	s, fields := c.s, 2
	if s[at] == '*' || s[at+1] == '*' {
		fields = 1
	}
	host := runBack(s, at, max(c.floor, at-80), slug|dot)
	if host == at && s[at] != '*' || host > 0 && (s[host-1] == ':' || s[host-1] == '/') {
		return 0, 0
	}
	i := at + n
	for range fields {
		end := run(s[:min(len(s), i+64)], i, slug|dot)
		if end == i && i < len(s) && s[i] == '*' {
			end++
		}
		if end == i || end >= len(s) || s[end] != ':' {
			return 0, 0
		}
		i = end + 1
	}
	end := c.bareWord(i)
	v := s[i:end]
	return unless(noPassword(v), i, end)
}
