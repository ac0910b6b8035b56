package redact

import (
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// phrase is a row of the table of labels that are not names of keys: words of people, directives of configuration,
// calls.
type phrase struct {
	literals string // separated by |
	join     join   // how the value after it is joined; joins where signs and words show it
	where    placing
	behind   string // what is between it and its value: one of these, in this order, separated by |; · is a space
	find     func(c *scan, m *mention) finding
}

// phrases is the table of them.
var phrases = []phrase{
	{literals: strings.Join(spoken(), "|"), join: joins, where: open},
	{literals: "requirepass |masterauth |bindpw |rootpw |rootpw --plaintext |snmp-server community |key-string |" +
		"wpa-psk ascii 0 | on >|PSK |EAP |XAUTH |rocommunity |rwcommunity |\nAUTH ", join: setting, where: open},
	{literals: "::add-mask::", join: tight, where: open},
	{literals: "identified by |identified by password |identified by values |\" replace |' replace |_ replace ",
		join: setting, where: fold | open},
	{literals: "identified with |set password for |--from-literal=|unseal key |recovery key ", where: fold | open,
		join: setting, behind: "·by·|·as·|=·password(|=|:·"},
	{literals: strings.ReplaceAll(strings.Join(words["logins"], "|"), "·", " "), where: fold | open, join: prose,
		behind: "·/·|/"},
	{literals: " login=", where: open, join: setting, behind: ":"},
	{literals: "convertto-securestring |convertto-securestring -string ", join: argument, where: fold | open},
	{literals: strings.Join(words["callees"], "|"), where: fold | open, find: given},
	{literals: `send "|send -- "`, join: argument, where: open, find: sent},
	{literals: ":5432:|:5433:|:6432:|:*:*:|*:*:*:", where: open, find: pgpass},
	{literals: `"kty"|"Secret"|kind: Secret|stringData:`, join: item, where: open, find: ofSecret},
}

// phrased finds the value of the phrase that e found at begin, where it is a secret.
func (c *scan) phrased(e *entry, begin int) finding {
	p, hi := e.phrase, begin+len(e.literal)
	m := &c.m
	*m = mention{c: c, s: c.s, lo: begin, hi: hi, class: spokenOf, join: p.join, sentence: true}
	switch {
	case p.find != nil:
		return p.find(c, m)
	case p.behind != "":
		if hi = m.behind(p.behind); hi == 0 {
			return finding{}
		}
		fallthrough
	case p.join != joins:
		if e.literal[0] == '\n' {
			m.lo++
		}
		return m.joined(jsonscan.Space(c.s, hi))
	}
	if m.hi = inflected(c.s, begin, hi); partOfWord(c.s, begin, m.hi) {
		return finding{}
	}
	return m.secretAt(m.sign())
}

// behind returns the end of the first of signs after the label in its line, 0 where there is none.
func (m *mention) behind(signs string) int {
	for i := m.hi; i < len(m.s) && i < m.hi+200 && !oneByteOf("\n)", m.s[i]); i++ {
		for sign := range strings.SplitSeq(signs, "|") {
			sign = strings.ReplaceAll(sign, "·", " ")
			if end := i + len(sign); end <= len(m.s) && equalFold(m.s[i:end], sign) {
				return end
			}
		}
	}
	return 0
}

// inflected returns the end of the name s[lo:hi] with up to three more letters: Lösenordet, пароля.
func inflected(s string, lo, hi int) int {
	end := hi
	for n := 0; n < 3 && end < len(s) && hi-lo >= 5; n++ {
		switch c := s[end]; {
		case class[c]&lower != 0 && class[s[hi-1]]&lower != 0:
			end++
		case c >= 0xd0 && c <= 0xd3 && end+2 <= len(s): // Cyrillic
			end += 2
		}
	}
	return end
}

// partOfWord reports whether letters go on before or after s[lo:hi].
func partOfWord(s string, lo, hi int) bool {
	return lo > 0 && hi-lo < 7 && class[s[lo-1]]&alnum != 0 && s[lo] < 0x80 || hi < len(s) && class[s[hi]]&word != 0 &&
		s[hi-1] < 0x80
}

// given finds a string among the arguments of the call that the label begins.
func given(c *scan, m *mention) finding {
	_, to := c.line(m.lo)
	c.readTokens(m.lo, min(m.hi+maxStatement, to))
	for k := range c.tokens {
		if t := &c.tokens[k]; t.f.marks>>isQuoted&1 != 0 && t.lo > m.hi && t.lo < to {
			if f := m.near(t, argument); f.end > 0 {
				return f
			}
		}
	}
	return finding{}
}

// sent finds a string that ends with a carriage return: it is typed at a prompt.
func sent(c *scan, m *mention) finding {
	hi := until(c.s, m.hi, maxJudged, "\n\r\\\"")
	if hi == len(c.s) || c.s[hi] == '"' {
		return finding{}
	}
	m.quoted = true
	if indexFold(c.s[max(c.floor, m.lo-120):m.lo], "pass") >= 0 {
		m.join = setting
	}
	return m.found(m.hi, hi)
}

// pgpass finds the last field of a line of .pgpass: host:port:database:user:password.
func pgpass(c *scan, m *mention) finding {
	lo, hi := since(c.s, m.lo, max(c.floor, m.lo-80), wordStops+"=<>/"), c.bareWord(m.hi)
	fields := strings.SplitN(c.s[lo:hi], ":", 5)
	if len(fields) < 5 || noPassword(fields[4]) || run(c.s, lo, slug|dot|colonAt|star) < hi-len(fields[4]) {
		return finding{}
	}
	return finding{hi - len(fields[4]), hi, Marker}
}

// ofSecret notes the members of an object that one member shows to be secrets, in JSON or YAML: the private ones of a
// JSON Web Key, since the others identify it, and the data of a Secret of Kubernetes.
func ofSecret(c *scan, m *mention) finding {
	const maxAround = 8 << 10
	lo, hi := max(c.floor, m.lo-maxAround), min(len(c.s), m.hi+maxAround)
	around := c.s[lo:hi]
	if c.s[m.lo:m.hi] == `"kty"` {
		lo = since(c.s, m.lo, lo, "{")
		c.members(lo, until(c.s, m.hi, maxAround, "}"), func(lo, _ int) bool {
			end := skipBack(c.s, lo, lo-8, "\": ")
			return strings.Contains(" d p q dp dq qi k ", c.s[end-1:end]) || strings.Contains(" dp dq qi ", c.s[end-2:end])
		})
		return finding{}
	}
	if end := m.c.eol(m.hi); c.s[m.hi-1] != '"' && strings.TrimSpace(c.s[m.hi:end]) != "" || !c.afford(len(around)/8) {
		return finding{} // a SecretStore
	}
	if k := strings.LastIndex(around[:m.lo-lo], "\n---"); k >= 0 {
		lo += k
	}
	if k := strings.Index(c.s[m.hi:hi], "\n---"); k >= 0 {
		hi = m.hi + k
	}
	for lo < hi {
		k := strings.Index(c.s[lo:hi], "ata")
		if k < 0 {
			break
		}
		at := lo + k
		lo = skip(c.s, at+len("ata"), hi, `"`)
		name := c.s[runBack(c.s, at, max(0, at-8), letter):at]
		if name != "d" && name != "stringD" || lo == hi || c.s[lo] != ':' {
			continue
		}
		from, end := c.line(at)
		if strings.HasPrefix(strings.TrimLeft(c.s[lo+1:hi], " \n"), "{") {
			end = until(c.s, lo, hi-lo, "}")
		} else {
			end = c.deeper(end, indent(c.s[from:at]))
		}
		c.members(lo+1, end, func(lo, hi int) bool { return hi-lo >= 4 })
	}
	return finding{}
}

// members notes the values of the members in c.s[lo:hi], of JSON or YAML, for which secret holds.
func (c *scan) members(lo, hi int, secret func(lo, hi int) bool) {
	for lo < hi && c.afford(8) {
		colon := lo + strings.IndexByte(c.s[lo:hi], ':')
		if colon < lo {
			return
		}
		from := skip(c.s, colon+1, hi, " ")
		if lo = until(c.s, from, hi-from, "\n\r,}"); from < hi && c.s[from] == '"' {
			lo = min(hi, c.closing(from))
			from++
		}
		if from < lo && !blank(c.s[from:lo]) && secret(from, lo) {
			c.addLater(finding{from, lo, Marker})
		}
	}
}
