package redact

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// This file has matchers of rules whose secrets have no prefix of their own: what stands
// around reports that they are secrets.

// thenUUID matches a UUID after the literal.
func thenUUID(c *scan, at, n int) (int, int) {
	end := run(c.s, at+n, slug)
	if !uuid(c.s[at+n : end]) {
		return 0, 0
	}
	return at, end
}

// restOfKey matches words of letters and digits with dollars between them.
func restOfKey(c *scan, at, n int) (int, int) {
	end := at + n
	for parts := 0; parts < 3; parts++ {
		if end = run(c.s, end, alnum); end == len(c.s) || c.s[end] != '$' {
			break
		}
		end++
	}
	if end-at-n < 30 || !random(c.s[at+n:end], mixed) {
		return 0, 0
	}
	return at, end
}

// twitter matches a long token with an escaped sign in it; zeros in Base64 have none.
func twitter(c *scan, at, n int) (int, int) {
	end := at + n
	for end < len(c.s) && end-at < 200 && (class[c.s[end]]&alnum != 0 || c.s[end] == '%') {
		end++
	}
	if v := c.s[at+n : end]; len(v) < 50 || strings.IndexByte(v, '%') < 0 {
		return 0, 0
	}
	return at, end
}

// secondArgument matches the string that is the second argument of a call.
func secondArgument(c *scan, at, n int) (int, int) {
	comma := strings.IndexByte(c.s[at+n:min(len(c.s), at+n+80)], ',')
	if comma < 0 {
		return 0, 0
	}
	lo, hi := c.quotedAfter(skipSpace(c.s, at+n+comma+1))
	if hi-lo < 8 || !made(c.s[lo:hi]) || label(c.r, c.s[lo:hi]) {
		return 0, 0
	}
	return lo, hi
}

// restOfString matches a string in quotes, the first of which ends the literal.
func restOfString(c *scan, at, n int) (int, int) { return c.quotedAfter(at + n - 1) }

// unsealKey matches what follows the number of a key and a colon.
func unsealKey(c *scan, at, n int) (int, int) {
	i := run(c.s, at+n, digit)
	if i == at+n || !strings.HasPrefix(c.s[i:], ": ") {
		return 0, 0
	}
	start := i + 2
	end := run(c.s, start, base64)
	if end-start < 32 || !random(c.s[start:end], mixed) {
		return 0, 0
	}
	return start, end
}

// fromLiteral matches the value of name=value, where it may be a password.
func fromLiteral(c *scan, at, n int) (int, int) {
	i := run(c.s, at+n, slug|dot)
	if i == at+n || i == len(c.s) || c.s[i] != '=' {
		return 0, 0
	}
	lo, hi := c.quotedAfter(i + 1)
	if hi == 0 {
		lo, hi = i+1, c.bareWord(i+1)
	}
	if v := c.s[lo:hi]; len(v) < 4 || v[0] == '$' || placeholder(v) || marked(v) || !digits(v) && !gibberish(v) {
		return 0, 0
	}
	return lo, hi
}

// restOfPassword matches a word that people would take for a password.
func restOfPassword(c *scan, at, n int) (int, int) {
	end := c.bareWord(at + n)
	if v := c.s[at+n : end]; !made(v) {
		return 0, 0
	}
	return at + n, end
}

// urlCode matches a long word of letters of both cases and digits.
func urlCode(c *scan, at, n int) (int, int) {
	end := run(c.s, at+n, slug)
	v := c.s[at+n : end]
	if len(v) < 20 || len(v) > 512 || wordy(v) || uuid(v) || countDigits(v) < 2 || !random(v, dense) ||
		strings.ToLower(v) == v || end < len(c.s) && strings.IndexByte("./", c.s[end]) >= 0 && c.s[at+n-1] == '/' {
		return 0, 0
	}
	return at + n, end
}

// sent matches a string that ends with a carriage return: it is typed at a prompt.
func sent(c *scan, at, n int) (int, int) {
	i := at + n - 1
	for i > at && c.s[i-1] == '\\' {
		i--
	}
	lo, hi := c.quotedAfter(i)
	for hi > lo && strings.IndexByte("\\rn", c.s[hi-1]) >= 0 {
		if hi--; c.s[hi] == '\\' {
			break
		}
	}
	for hi > lo && c.s[hi-1] == '\\' {
		hi--
	}
	if hi <= lo || c.s[hi] != '\\' {
		return 0, 0
	}
	v := c.s[lo:hi]
	asked := c.s[max(c.floor, at-120):at]
	if len(v) < 4 || v[0] == '$' || placeholder(v) || marked(v) || strings.ContainsAny(v, " \t") || !strong(v) &&
		strings.LastIndex(asked, "assword") < 0 && strings.LastIndex(asked, "assphrase") < 0 {
		return 0, 0
	}
	return lo, hi
}

// oldPassword matches a string in quotes after a new password.
func oldPassword(c *scan, at, n int) (int, int) {
	if from, _ := c.line(at); indexFold(c.s[max(c.floor, from, at-maxKey):at], "identified") < 0 &&
		!strings.Contains(c.s[max(from, at-80):at], "[redacted:") {
		return 0, 0
	}
	return c.quotedAfter(at + n - 1)
}

// inserts reports whether the key is a column of an INSERT in SQL.
func (a *assignment) inserts() bool {
	i := a.hi
	for i < len(a.s) && i-a.hi < 8 && strings.IndexByte("`\"]\\ ", a.s[i]) >= 0 {
		i++
	}
	if i == len(a.s) || a.s[i] != ',' && a.s[i] != ')' {
		return false
	}
	before := a.s[max(a.floor, a.lo-200):a.lo]
	open := strings.LastIndexByte(before, '(')
	return open > 0 && indexFold(before[:open], "insert into ") >= 0
}

// inserted notes the values of an INSERT whose columns have the names of secrets, of which
// the key at i is one. Its rows are read once.
func (c *scan) inserted(i int) {
	open := strings.LastIndexByte(c.s[:i], '(')
	end := strings.IndexByte(c.s[i:min(len(c.s), i+512)], ')')
	if end < 0 || i < c.tables {
		return
	}
	columns := c.columns[:0]
	for k, name := range strings.Split(c.s[open+1:i+end], ",") {
		if class := c.r.classify(strings.Trim(name, " \t\r\n\"`[]\\")); class > keyed {
			columns = append(columns, column{k, class})
		}
	}
	c.columns = columns
	i = skipSpace(c.s, i+end+1)
	c.tables = i
	if len(c.s)-i < len("values") || !strings.EqualFold(c.s[i:i+len("values")], "values") {
		return
	}
	i += len("values")
	for i > 0 {
		if i = skipSpace(c.s, i); i == len(c.s) || c.s[i] != '(' {
			break
		}
		i = c.insertedRow(i+1, columns)
		c.tables = max(c.tables, i)
		if i == len(c.s) || c.s[i] != ',' {
			break
		}
		i++
	}
}

// insertedRow notes the secrets of the row of values at i, and returns its end.
func (c *scan) insertedRow(i int, columns []column) int {
	for n := 0; i < len(c.s); n++ {
		i = skipSpace(c.s, i)
		if i+1 < len(c.s) && c.s[i]|0x20 == 'n' && c.s[i+1] == '\'' {
			i++
		}
		if lo, hi := c.quotedAfter(i); hi > 0 {
			for _, column := range columns {
				if v := c.s[lo:hi]; column.at == n && !spared(column.class, v) && !has(stopWords, v) {
					c.addLater(finding{lo, hi, Marker})
				}
			}
			i = hi + 1
		}
		stop := strings.IndexAny(c.s[i:min(len(c.s), i+maxJudged)], ",)\n")
		if stop < 0 {
			return 0
		}
		if i += stop; c.s[i] != ',' {
			return i + 1
		}
		i++
	}
	return 0
}

// labels name passwords and keys in other languages than that of programs, as they begin
// a line, are in it and are shouted.
var labels = func() (out []string) {
	for _, name := range append(strings.Fields("passwort kennwort wachtwoord contraseña contrasena senha hasło heslo "+
		"lösenord adgangskode passord salasana jelszó parola "+
		"parolă şifre lozinka пароль 密码 密碼 口令 パスワード 비밀번호 암호 令牌 密钥 токен schlüssel clave llave"),
		"mot de passe", "clé API", "clé d'API", "clave API", "chave API", "chiave API", "mật khẩu", "kata sandi",
		"كلمة المرور", "סיסמה", "รหัสผ่าน", "पासवर्ड", "this key", "my key", "shown again", "recovery code", "backup code",
		"mdp") {
		first, size := utf8.DecodeRuneInString(name)
		out = append(out, name)
		if title := string(unicode.ToUpper(first)) + name[size:]; title != name {
			out = append(out, title, strings.ToUpper(name))
		}
	}
	return out
}()

// verbsOfLabels are between the name of a password and the password.
var verbsOfLabels = [...]string{"lautet", "ist", "est", "es", "é", "è", "is", "jest", "je", "är", "er", "on", "это",
	"是", "为", "は", "：", "＝", ":", "=", "->", "→", "*", "_", "`", "\"", "'", "«", "「", "“", "”", " ", "\t"}

// labelled matches the word after a label where it may be a password.
func labelled(c *scan, at, n int) (int, int) {
	s := c.s
	if partOfWord(s, at, at+n) {
		return 0, 0
	}
	i, joined := afterLabel(s, at+n)
	if i == at+n {
		return 0, 0
	}
	end := i
	for end < len(s) && end-i < maxJudged && class[s[end]]&space == 0 && strings.IndexByte("\"'`<|,;\\)", s[end]) < 0 &&
		s[end] < 0x80 {
		end++
	}
	v := strings.TrimRight(s[i:end], ".*")
	if placeholder(v) || marked(v) || strings.Contains(v, "://") || !made(v) &&
		!(joined && unlikely(v) && len(v) >= 6 && digits(v) && !algorithm(v) && !filePath(v)) {
		return 0, 0
	}
	return i, i + len(v)
}

// partOfWord reports whether letters go on before or after s[lo:hi].
func partOfWord(s string, lo, hi int) bool {
	return lo > 0 && class[s[lo-1]]&letter != 0 && s[lo] < 0x80 || hi < len(s) && class[s[hi]]&(letter|under) != 0 &&
		s[hi-1] < 0x80
}

// afterLabel skips what joins a label and its value, and reports whether that is more than
// a space.
func afterLabel(s string, from int) (i int, joined bool) {
	i = from
	for i-from < 24 {
		n := 0
		for _, v := range verbsOfLabels {
			if strings.HasPrefix(s[i:], v) && (class[v[0]]&letter == 0 || i+len(v) < len(s) && s[i+len(v)] == ' ') {
				n = len(v)
				joined = joined || v != " "
				break
			}
		}
		if n == 0 {
			break
		}
		i += n
	}
	return i, joined
}

// kubernetes notes the values of a Secret, which may be declared before or after them.
func kubernetes(c *scan, at, n int) (int, int) {
	eol := c.eol(at + 1)
	if strings.TrimRight(c.s[at+n:eol], " \r") != "" || !c.afford(64) {
		return 0, 0
	}
	switch c.s[at] {
	case 'k': // kind: Secret, and then its data
		_, data := c.document(eol)
		if data > eol {
			c.members(data, anyValue, kubernetesMarker)
		}
	case 's':
		c.members(at, anyValue, kubernetesMarker)
	default:
		if kind, _ := c.document(eol); kind > eol {
			c.members(at+1, anyValue, kubernetesMarker)
		}
	}
	return 0, 0 // what was found comes later in the text
}

// document returns where the lines "kind: Secret" and "data:" are in the rest of the
// document of YAML that goes on at i, or -1.
func (c *scan) document(i int) (kind, data int) {
	const maximum = 8 << 10
	rest := c.s[i:min(len(c.s), i+maximum)]
	if k := strings.Index(rest, "\n---"); k >= 0 {
		rest = rest[:k]
	}
	if !c.afford(len(rest) / 16) {
		return -1, -1
	}
	at := func(line string) int {
		for from := 0; ; {
			k := strings.Index(rest[from:], line)
			if k < 0 {
				return -1
			}
			if from += k + len(line); from == len(rest) || rest[from] == '\n' || rest[from] == '\r' {
				return i + from - len(line) + 1
			}
		}
	}
	return at("\nkind: Secret"), at("\ndata:")
}

const kubernetesMarker = "[redacted:kubernetes-secret]"

func anyValue(v string) bool { return len(v) >= 4 }

// members notes the values of the lines below the one at i that are indented deeper, where
// secret holds.
func (c *scan) members(i int, secret func(v string) bool, marker string) {
	from, _ := c.line(i)
	depth := i - from
	for at := c.eol(i) + 1; at < len(c.s) && c.afford(16); {
		eol := c.eol(at)
		line := strings.TrimRight(c.s[at:eol], " \r")
		if line != "" && indent(line) <= depth {
			return
		}
		if k := strings.Index(line, ": "); k > 0 {
			lo, hi := c.quotedAfter(at + k + 2)
			if hi == 0 {
				lo, hi = at+k+2, at+len(line)
			}
			if v := c.s[lo:hi]; secret(v) && !placeholder(v) && !marked(v) {
				c.addLater(finding{lo, hi, marker})
			}
		}
		at = eol + 1
	}
}
