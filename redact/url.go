package redact

import (
	"iter"
	"strings"
)

// loginRule is the rule of logins that no scheme shows.
const (
	loginRule   = "login-password"
	loginMarker = "[redacted:" + loginRule + "]"
)

// maxURL bounds the part of a URL before its host.
const maxURL = 512

// urlPassword matches the password of a URL's user, or a user that is a token.
func urlPassword(c *scan, at, n int) (int, int) { return c.login(at+n, c.v.level(at) == 0) }

// logins yields the bounds of what may be passwords of users before hosts that no scheme shows: user:password@host.
func (r *Redactor) logins(s string) iter.Seq2[int, int] {
	return func(yield func(lo, hi int) bool) {
		for at := 0; r.bareLogins && at < len(s); at++ {
			next := strings.IndexByte(s[at:], '@')
			if next < 0 {
				return
			}
			at += next
			if lo, hi := loginBefore(s, at); hi > lo && !yield(lo, hi) {
				return
			}
		}
	}
}

// loginBefore returns the bounds of what may be a password, which may be in quotes, before the @ at at.
func loginBefore(s string, at int) (lo, hi int) {
	// ssh bob:SECRET@db.example.com, bob:"SECRET"@db.example.com. What is before the @ is taken apart from its end, as
	// the password may have any sign in it, and the user hardly any.
	floor, hi := max(0, at-maxKey), at
	end := at // of what begins with the user
	if at > floor && oneByteOf(quotes, s[at-1]) {
		hi--
		end = since(s, hi, floor, s[hi:at]) - 1
	}
	from := since(s, max(floor, end), floor, wordStops+"=(,;<>\\")
	host := run(s[:min(len(s), at+maxKey)], at+1, alnum|dash|dot)
	colon := from + strings.IndexByte(s[from:max(from, end)], ':')
	if lo = colon + 1; end < at {
		lo = end + 1
	}
	elsewhere := host < len(s) && s[host] == '@' || has("mailWords", s[from:max(from, colon)])
	return unless(elsewhere || colon <= from || hi-lo < 4 || s[lo] == '/' || end < at && colon != end-1 ||
		run(s[:colon], from, word|dash|dot|plusSlash|colonAt) < colon || class[s[from]]&alnum == 0 ||
		!hosts(s, at, host, s[lo:max(lo, hi)]), lo, hi)
}

// hosts reports whether s[at+1:host] may be a host that a password is for: one with a dot, or a name after what is no
// word.
func hosts(s string, at, host int, password string) bool {
	// bob:SECRET@db.example.com, bob:SECRET@tcp(10.0.0.5:3306)/shop, as Go's driver of MySQL has it, bob:SECRET@db
	return strings.IndexByte(s[at:host], '.') >= 2 || host < len(s) && s[host] == '(' ||
		host > at+1 && len(password) >= 8 && digits(password) && !digits(s[at:host])
}

// beforeHost matches the password of a user before a host as Oracle has it, user/password@….
func beforeHost(c *scan, at, n int) (int, int) {
	user := until(c.s, at+n, maxKey, wordStops+"@/")
	end := until(c.s, user, maxKey, wordStops+"@")
	return unless(user == at+n || end == len(c.s) || c.s[end] != '@' || noPassword(c.s[min(user+1, end):end]), user+1, end)
}

// login returns the bounds of the password in user:password@host at begin; of all of it where the user is a token. A
// password may hold slashes, question marks and hashes that should have been escaped; what is a port and a path holds
// an @ too.
func (c *scan) login(begin int, plain bool) (int, int) {
	s := c.s
	// What a URL encodes ends no part of it, unless the URL itself is encoded: me%40example.com.
	part := func(i, limit int, stops string) int {
		for i < limit && (!oneByteOf(stops, s[i]) || plain && c.v.encodes(i, '%')) {
			i++
		}
		return i
	}
	limit := begin
	for limit < min(len(s), begin+maxURL) && (class[s[limit]]&inURL != 0 || plain && c.v.encodes(limit, '%')) {
		limit++
	}
	colon := part(begin, limit, ":@/?#")
	end := part(colon, limit, "/?#")
	if k := part(colon, end, ":"); part(k, end, "@") < end {
		colon = k // https://bob@example.com:SECRET@host: an address of mail is the user
	}
	user := s[begin:colon]
	if colon == limit || s[colon] != ':' {
		return unless(colon == limit || s[colon] != '@' || len(user) < 20 || !random(user, true), begin, colon)
	}
	lo := colon + 1
	// Up to stop the URL is as it should be: the last @ ends the password. Beyond it there may be a path with an @ in it,
	// or a password with a slash, so hostAfter is stricter there.
	stop := part(lo, limit, "/?#")
	host := c.hostAfter(lo, stop, limit, plain)
	if host < 0 {
		// It may be cut before the host.
		part := s[lo:stop]
		return unless(user == "" || len(part) < 8 || strings.IndexByte(part, ';') > 0 || !cutShort(s, stop) ||
			number(part), lo, stop)
	}
	password := s[lo:host]
	if len(password) < 2 || noPassword(password) || strings.HasPrefix(s[host+1:], "sha256") {
		return 0, 0 // an image, with its version and digest
	}
	// A token may be in the place of the user, with a word in that of the password.
	if len(user) >= 20 && tokenLike(user) {
		return begin, host // https://TOKEN:x-oauth-basic@…
	}
	return lo, host
}

// urlTail matches the last part of the path of a URL, where that is what only who knows it may use.
func urlTail(c *scan, at, n int) (int, int) {
	hi := run(c.s[:min(len(c.s), at+maxURL)], at+n, slug|dot|plusSlash|colonAt)
	lo := since(c.s, hi, at+n, "/")
	v := c.s[lo:hi]
	return unless(v == "" || blank(v) || known(v) != anOther || !tokenLike(v) && !strong(v) && !chancy(v), lo, hi)
}

// hostAfter returns where the @ is between the password from lo on and the host; below 0 where there is none. The
// password has a slash, a question mark or a hash at stop.
func (c *scan) hostAfter(lo, stop, limit int, plain bool) int {
	s := c.s
	for at := stop - 1; at >= lo; at-- {
		if s[at] == '@' && !(plain && c.v.encodes(at, '%')) {
			return at
		}
	}
	at := strings.IndexByte(s[stop:limit], '@')
	// A number before the slash is a port, and the @ is in a path.
	if at < 0 || stop > lo && number(s[lo:stop]) || oneByteOf("${<[", s[lo]) || !c.afford(at) {
		return -1
	}
	// postgres://bob:pa/ss@db.example.com/main: what follows the @ has to look like a host.
	at += stop
	if end := run(s[:limit], at+1, alnum|dash|dot); end < at+3 || end < limit && !oneByteOf("/?:#", s[end]) {
		return -1
	}
	return at
}
