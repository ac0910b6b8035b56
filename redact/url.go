package redact

import "strings"

// This file finds passwords in URLs and in the data source names of drivers.

// maxURL bounds the part of a URL before its host.
const maxURL = 512

// urlEnd returns where the URL that goes on at i ends at the latest: at a space, a quote or a bracket.
func (c *scan) urlEnd(i int) int { return until(c.s, i, maxURL, wordStops+"<>\\") }

// userEnd returns where the name of a URL's user ends that begins at begin, and the colon after it; -1 where there is
// none.
func (c *scan) userEnd(begin, limit int, plain bool) (end, colon int) {
	s := c.s
	end = begin
	if marker := s[begin:min(len(s), begin+40)]; strings.HasPrefix(marker, "[redacted:") {
		end += max(0, strings.IndexByte(marker, ']')) // the colon within is the marker's own
	}
	for ; end < limit; end++ {
		switch s[end] {
		case ':':
			return end, end
		case '@':
			if plain && c.v.level(end) > 0 {
				continue // me%40example.com
			}
			return end, -1
		case '/', '?', '#':
			return end, -1
		}
	}
	return end, -1
}

// urlPassword matches the password of a URL's user, or a user that is a token.
func urlPassword(c *scan, at, n int) (int, int) {
	s, begin := c.s, at+n
	limit := c.urlEnd(begin)
	end, colon := c.userEnd(begin, limit, c.v.level(at) == 0)
	if colon < 0 {
		if end < limit && s[end] == '@' && end-begin >= 20 && random(s[begin:end], true) {
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
		strings.HasSuffix(password, "]") || has("passwordWords", password) {
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
