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
	find     func(c *scan, m *mention) finding
	fold     bool
}

// phrases is the table of them.
var phrases = []phrase{
	{literals: strings.Join(spoken(), "|"), join: joins},
	{literals: "requirepass |masterauth |bindpw |rootpw |rootpw --plaintext |snmp-server community |key-string |" +
		"wpa-psk ascii 0 | on >|PSK |XAUTH |\nAUTH ", join: setting},
	{literals: "::add-mask::", join: tight},
	{literals: "identified by |identified by password |identified by values |replace \"|replace '", join: setting,
		fold: true, find: identified},
	{literals: "identified with |set password for |--from-literal=|unseal key |recovery key ", fold: true,
		join: setting, find: afterName},
	{literals: "convertto-securestring |convertto-securestring -string ", fold: true, join: argument},
	{literals: "auth=(|basicauth(|basic_auth(|.auth(|networkcredential(|credentials(|passwordauthentication(|.login(|" +
		"new pdo(|credentials.basic(|jwt.encode(|jwt.sign(|createhmac(|getconnection(|connect(|authenticate(|" +
		"setcredentials(", fold: true,
		join: argument, find: laterArgument},
	{literals: `send "|send -- "`, join: argument, find: sent},
	{literals: "jdbc:oracle:thin:|jdbc:oracle:oci:", join: tight, find: oracle},
	{literals: "@tcp(|@unix(|@udp(|@cloudsql(", join: tight, find: dataSource},
	{literals: ":5432:|:5433:|:6432:|:*:*:|*:*:*:", join: tight, find: pgpass},
	{literals: `"kty"|"Secret"`, join: item, find: ofObject},
	{literals: "kind: Secret|stringData:|\ndata:", join: item, find: kubernetes},
}

// phrased finds the value of the phrase that e found at begin, where it is a secret.
func (c *scan) phrased(e *entry, begin int) finding {
	p, hi := e.phrase, begin+len(e.literal)
	m := &c.m
	*m = mention{c: c, s: c.s, lo: begin, hi: hi, class: spokenOf, join: p.join, replace: Marker, sentence: true}
	switch {
	case p.find != nil:
		return p.find(c, m)
	case p.join != joins:
		if e.literal[0] == '\n' {
			m.lo++
		}
		return m.joined(jsonscan.Space(c.s, hi))
	}
	if m.hi = inflected(c.s, begin, hi); partOfWord(c.s, begin, m.hi) {
		return finding{}
	}
	if i, ok := m.sign(); ok {
		if f := m.joined(i); f.end > 0 {
			return f
		}
	}
	if m.inRow() {
		c.table(m)
	}
	return finding{}
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
	return lo > 0 && class[s[lo-1]]&alnum != 0 && s[lo] < 0x80 || hi < len(s) && class[s[hi]]&word != 0 &&
		s[hi-1] < 0x80
}

// identified finds the password of a user in SQL, and the one it replaces.
func identified(c *scan, m *mention) finding {
	i := m.hi
	if q := c.s[i-1]; q == '"' || q == '\'' {
		from, _ := c.line(m.lo)
		if before := c.s[max(c.floor, from, m.lo-maxKey):m.lo]; indexFold(before, "identified") < 0 &&
			!strings.Contains(c.s[max(from, m.lo-80):m.lo], Marker) {
			return finding{}
		}
		i--
	}
	return m.joined(i)
}

// afterName finds a value behind a name: SET PASSWORD FOR user = …, IDENTIFIED WITH plugin BY …, --from-literal=name=….
func afterName(c *scan, m *mention) finding {
	rest := c.s[m.hi:min(c.eol(m.hi), m.hi+80)]
	at, size := len(rest), 0
	for _, sign := range [...]string{" BY ", " by ", " AS ", "=", ": "} {
		if k := strings.Index(rest, sign); k >= 0 && k < at {
			at, size = k, len(sign)
		}
	}
	if size == 0 {
		return finding{}
	}
	i := jsonscan.Space(c.s, m.hi+at+size)
	for _, before := range [...]string{"PASSWORD(", "VALUES "} {
		if len(c.s)-i > len(before) && strings.EqualFold(c.s[i:i+len(before)], before) {
			i += len(before)
		}
	}
	return m.joined(i)
}

// laterArgument finds a secret among the arguments of a call after the first.
func laterArgument(c *scan, m *mention) finding {
	end := until(c.s, m.hi, 200, "\n)")
	if m.hi-m.lo == len("connect(") && m.lo > 0 && class[c.s[m.lo-1]]&letter != 0 {
		return finding{} // of a network
	}
	if comma := strings.IndexByte(c.s[m.hi:end], ','); comma >= 0 {
		return m.stringIn(m.hi+comma, end)
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
	asked := c.s[max(c.floor, m.lo-120):m.lo]
	if strings.Contains(asked, "assword") || strings.Contains(asked, "assphrase") {
		m.join = setting
	}
	return m.found(m.hi, hi)
}

// oracle finds the password of name/password before an Oracle host.
func oracle(c *scan, m *mention) finding {
	end := until(c.s, m.hi, maxKey, wordStops+"@")
	user, password, ok := strings.Cut(c.s[m.hi:end], "/")
	if !ok || user == "" || end == len(c.s) || c.s[end] != '@' || noPassword(password) {
		return finding{}
	}
	return finding{end - len(password), end, Marker}
}

// dataSource finds the password before @tcp( and its like.
func dataSource(c *scan, m *mention) finding {
	lo := since(c.s, m.lo, max(c.floor, m.lo-maxKey), wordStops+"=(,;")
	colon := strings.IndexAny(c.s[lo:m.lo], ":/")
	v := c.s[lo+colon+1 : m.lo]
	if colon <= 0 || len(v) < 3 || noPassword(v) || v[0] == '/' {
		return finding{}
	}
	return finding{m.lo - len(v), m.lo, Marker}
}

// pgpass finds the last field of a line of .pgpass: host:port:database:user:password.
func pgpass(c *scan, m *mention) finding {
	lo, hi := since(c.s, m.lo, max(c.floor, m.lo-80), wordStops+"=<>/"), c.bareWord(m.hi)
	fields := strings.SplitN(c.s[lo:hi], ":", 5)
	if len(fields) < 5 || noPassword(fields[4]) {
		return finding{}
	}
	for _, field := range fields[:4] {
		if field != "*" && (field == "" || run(field, 0, slug|dot) < len(field)) {
			return finding{}
		}
	}
	return finding{hi - len(fields[4]), hi, Marker}
}

// ofObject notes the members of an object of JSON that one member shows to be secrets: the private ones of a JSON Web
// Key, since the others identify it, and the data of a Secret of Kubernetes.
func ofObject(c *scan, m *mention) finding {
	const maxAround = 8 << 10
	s, lo, hi := c.s, since(c.s, m.lo, max(c.floor, m.lo-maxAround), "{"), min(len(c.s), m.hi+maxAround)
	wanted := " d p q dp dq qi k "
	if s[m.lo:m.hi] == `"Secret"` {
		k := max(strings.Index(s[lo:hi], `"data":`), strings.Index(s[lo:hi], `"stringData":`))
		if k < 0 || !strings.Contains(s[max(lo, m.lo-8):m.lo], `"kind"`) {
			return finding{}
		}
		lo, wanted = lo+k+len(`"data":`), ""
		lo = until(s, lo, hi-lo, "{")
	}
	for c.afford(8) {
		if lo = skip(s, lo, hi, ", \n\t{"); lo >= hi || s[lo] != '"' {
			break
		}
		end := c.closing(lo)
		value, key := skip(s, min(len(s), end+1), hi, ": \n\t"), s[lo+1:end]
		if value >= hi || s[value] != '"' {
			lo = until(s, value, hi-value, ",}") + 1
			continue
		}
		lo = c.closing(value) + 1
		if v := s[value+1 : lo-1]; (wanted == "" || strings.Contains(wanted, " "+key+" ")) && v != "" && !marked(v) {
			c.addLater(finding{value + 1, lo - 1, Marker})
		}
	}
	return finding{}
}
