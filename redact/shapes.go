package redact

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// This file has matchers of rules whose secrets have no prefix of their own: the text
// around them shows that they are secrets.

// openaiKey takes what follows a known prefix for a key, and after a bare "sk-", which
// style sheets have too, only what is dense.
func openaiKey(c *scan, at, n int) (int, int) {
	if n > len("sk-") {
		return prefixed(slug, 20)(c, at, n)
	}
	for _, other := range [...]string{"ant-", "or-", "lf-", "helicone-"} {
		if strings.HasPrefix(c.s[at+n:], other) {
			return 0, 0
		}
	}
	return prefixedDense(slug, 20)(c, at, n)
}

// restOfURL matches what follows of a URL, where it is long and made by chance.
func restOfURL(c *scan, at, n int) (int, int) {
	start := at + n
	end := c.urlEnd(start)
	for end > start && class[c.s[end-1]]&(alnum|slug) == 0 {
		end--
	}
	v := c.s[start:end]
	return unless(len(v) < 14 || !random(v, mixed) || strings.ContainsAny(v, "{}*") ||
		strings.Trim(v[strings.LastIndexByte(v, '/')+1:], "Xx0") == "", start, end)
}

// liveKey matches a word of capitals, letters and digits with more words before it.
func liveKey(c *scan, at, n int) (int, int) {
	end := run(c.s, at+n, alnum)
	if end-at-n < 24 || !random(c.s[at+n:end], dense) || wordy(c.s[at+n:end]) && countDigits(c.s[at+n:end]) < 4 ||
		at == c.floor || class[c.s[at-1]]&alnum == 0 || at-c.floor >= 2 && c.s[at-2:at] == "pk" { // publishable
		return 0, 0
	}
	return at + n, end
}

// connectionPassword matches what follows, to the semicolon.
func connectionPassword(c *scan, at, n int) (int, int) {
	s := c.s
	from, _ := c.line(at)
	if strings.IndexByte(s[max(c.floor, from, at-80):at], '=') < 0 {
		return 0, 0 // a command after another
	}
	start := at + n
	if start < len(s) && s[start] == '{' { // braces are quotes here
		if end := until(s, start, maxKey, "}"); end < len(s) && s[end] == '}' && digits(s[start:end]) {
			return start + 1, end
		}
	}
	end := until(s, start, maxJudged, wordStops+";<\\")
	return unless(noPassword(s[start:end]), start, end)
}

// mailchimp matches a digest with a data center after it.
func mailchimp(c *scan, at, n int) (int, int) {
	s, floor := c.s, c.floor
	start := at - 32
	none := start < floor || run(s[:at], start, digit|hexLower) != at || !bounded(s, start)
	return unless(none, start, run(s, at+n, digit))
}

// huggingFace matches tokens, which may have no digit where they are as long as tokens
// are.
func huggingFace(c *scan, at, n int) (int, int) {
	end := run(c.s, at+n, alnum)
	if v := c.s[at+n : end]; len(v) == 34 && !wordy(v) && !repeated(v) {
		return at, end
	}
	return prefixed(alnum, 30)(c, at, n)
}

// cryptHash matches the salt and the hash that follow the sign of an algorithm.
func cryptHash(c *scan, at, n int) (int, int) {
	i, parts := at+n, 0
	for parts < 4 {
		end := run(c.s, i, base64|dot)
		for end < len(c.s) && c.s[end] == ',' {
			end = run(c.s, end+1, base64|dot)
		}
		if end-i >= 22 && random(c.s[i:end], mixed) && (end == len(c.s) || c.s[end] != '$') {
			return at, end
		}
		if end == i || end == len(c.s) || c.s[end] != '$' || end-i > 64 {
			return 0, 0
		}
		i, parts = end+1, parts+1
	}
	return 0, 0
}

// sessionCookie matches the value of a cookie that is long and made by chance.
func sessionCookie(c *scan, at, n int) (int, int) {
	start := at + n
	end := start
	for end < len(c.s) && end-start < 4*maxJudged && (class[c.s[end]]&(slug|dot|plusSlash|tilde|equals) != 0 ||
		c.s[end] == '%' || c.s[end] == ':') {
		end++
	}
	v := c.s[start:end]
	return unless(len(v) < 20 || strings.HasPrefix(v, "ses_") || uuid(v) || countDigits(v) < 3 || date(v) ||
		run(v, 0, digit) == len(v), start, end)
}

// quotedAfter returns the bounds of the string in quotes that begins at i.
func (c *scan) quotedAfter(i int) (int, int) {
	if q := i + slashesAt(c.s, i); q < len(c.s) && (c.s[q] == '"' || c.s[q] == '\'') {
		if end := c.closing(q+1, c.s[q], q-i); end < len(c.s) && end > q && end-q < maxJudged {
			if v := c.s[q+1 : end]; !blank(v) && strings.IndexByte(v, '\n') < 0 {
				return q + 1, end
			}
		}
	}
	return 0, 0
}

// operand returns the bounds of the string in quotes at i, or of the word there.
func (c *scan) operand(i int) (lo, hi int, quoted bool) {
	if lo, hi = c.quotedAfter(i); hi > 0 {
		return lo, hi, true
	}
	return i, c.bareWord(i), false
}

// bareWord returns the end of the word at i, without quotes.
func (c *scan) bareWord(i int) int {
	end := i
	for end < len(c.s) && end-i < 1024 && class[c.s[end]]&space == 0 && strings.IndexByte("\"'`<,;)|", c.s[end]) < 0 {
		if c.s[end] == '\\' && end+1 < len(c.s) && strings.IndexByte(`nrt"'\`, c.s[end+1]) >= 0 {
			break
		}
		end++
	}
	if end > i && c.s[end-1] == '.' {
		end--
	}
	return end
}

// identifiedBy matches the password of a user in SQL.
func identifiedBy(c *scan, at, n int) (int, int) {
	i := jsonscan.Space(c.s, at+n)
	if equalFold(c.s[at+n-4:at+n], "with") { // a plugin is between
		i = jsonscan.Space(c.s, run(c.s, i, word))
		if rest := c.s[i:min(len(c.s), i+3)]; !strings.EqualFold(rest, "by ") && !strings.EqualFold(rest, "as ") {
			return 0, 0
		}
		i = jsonscan.Space(c.s, i+3)
	}
	if c.s[at]|0x20 == 's' { // SET PASSWORD FOR user = …
		k := strings.IndexByte(c.s[i:min(len(c.s), i+maxKey)], '=')
		if k < 0 {
			return 0, 0
		}
		i = jsonscan.Space(c.s, i+k+1)
	}
	for _, before := range [...]string{"PASSWORD ", "PASSWORD(", "VALUES "} {
		if len(c.s)-i > len(before) && strings.EqualFold(c.s[i:i+len(before)], before) {
			i += len(before)
		}
	}
	lo, hi, quoted := c.operand(i)
	v := c.s[lo:hi]
	return unless(!quoted && (len(v) < 6 || !digits(v) && !gibberish(v) && !c.endsStatement(at, hi) ||
		noPassword(v) || label(c.r, v) || c.s[at]|0x20 != 'i'), lo, hi)
}

// endsStatement reports whether a statement of SQL that began at at, in capitals, ends at
// end or goes on with a clause: by its grammar what is before is the password.
func (c *scan) endsStatement(at, end int) bool {
	if c.s[at] != 'I' || c.s[at+1] != 'D' {
		return false
	}
	rest := strings.TrimLeft(c.s[end:min(len(c.s), end+20)], " ")
	for _, clause := range [...]string{";", "USING", "DEFAULT", "ACCOUNT", "QUOTA", "PROFILE", "REPLACE"} {
		if strings.HasPrefix(rest, clause) {
			return true
		}
	}
	return rest == ""
}

func secureString(c *scan, at, n int) (int, int) {
	i := jsonscan.Space(c.s, at+n)
	if strings.HasPrefix(c.s[i:], "-") && (i+1 < len(c.s) && c.s[i+1]|0x20 == 's') {
		i = jsonscan.Space(c.s, run(c.s, i, slug))
	}
	return c.quotedAfter(i)
}

// basicAuth matches the second of two strings in parentheses.
func basicAuth(c *scan, at, n int) (int, int) {
	_, end := c.quotedAfter(jsonscan.Space(c.s, at+n))
	if end == 0 {
		return 0, 0
	}
	i := jsonscan.Space(c.s, end+1)
	if i >= len(c.s) || c.s[i] != ',' {
		return 0, 0
	}
	lo, hi := c.quotedAfter(jsonscan.Space(c.s, i+1))
	return unless(hi <= lo || has(passwordWords, c.s[lo:hi]), lo, hi)
}

// directive matches the word after a directive, if no words come after it.
func directive(c *scan, at, n int) (int, int) {
	i := at + n
	if n == len("auth ") {
		if from, _ := c.line(at); from != at || c.s[at:i] != "AUTH " {
			return 0, 0
		}
	}
	if strings.HasPrefix(c.s[i:], "--plaintext ") {
		i += len("--plaintext ")
	}
	lo, hi, quoted := c.operand(i)
	v := c.s[lo:hi]
	return unless(!quoted && (len(v) < 4 || !digits(v) || blank(v) || !chancy(v) && hi < len(c.s) &&
		c.s[hi] == ' ' && strings.TrimSpace(c.s[hi:min(c.eol(hi), hi+20)]) != ""), lo, hi)
}

func loginPair(c *scan, at, n int) (int, int) {
	i := at + n
	if c.s[i-1] == '/' { // is a path, where nobody logs in
		from, _ := c.line(at)
		before := c.s[max(c.floor, from, at-24):at]
		if indexFold(before, "log") < 0 && indexFold(before, "redential") < 0 && indexFold(before, "with ") < 0 {
			return 0, 0
		}
	}
	end := c.bareWord(i)
	v := c.s[i:end]
	return unless(!chancy(v) && !strong(v), i, end)
}

// phrase matches twelve words or more, of lower-case letters, after a colon or "is".
func phrase(c *scan, at, n int) (int, int) {
	i := at + n
	for range 3 {
		i = skip(c.s, i, at+60, " \"'`:=*\n")
		if rest := c.s[i:]; strings.HasPrefix(rest, "is ") || strings.HasPrefix(rest, "is: ") {
			i += 2
		}
	}
	end, count := i, 0
	for j := i; j < len(c.s) && count < 24; count++ {
		stop := run(c.s[:min(len(c.s), j+10)], j, lower)
		if stop-j < 3 || stop-j > 8 {
			break
		}
		end = stop
		if j = stop; j < len(c.s) && class[c.s[j]]&space != 0 {
			j++
		}
	}
	return unless(count < 12, i, end)
}

// secondArgument matches the string that is the second argument of a call.
func secondArgument(c *scan, at, n int) (int, int) {
	comma := strings.IndexByte(c.s[at+n:min(len(c.s), at+n+80)], ',')
	if comma < 0 {
		return 0, 0
	}
	lo, hi := c.quotedAfter(jsonscan.Space(c.s, at+n+comma+1))
	return unless(hi-lo < 8 || !made(c.s[lo:hi]) || label(c.r, c.s[lo:hi]), lo, hi)
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
	return unless(end-start < 32 || !random(c.s[start:end], mixed), start, end)
}

// fromLiteral matches the value of name=value, where it may be a password.
func fromLiteral(c *scan, at, n int) (int, int) {
	i := run(c.s, at+n, slug|dot)
	if i == at+n || i == len(c.s) || c.s[i] != '=' {
		return 0, 0
	}
	lo, hi, _ := c.operand(i + 1)
	v := c.s[lo:hi]
	return unless(len(v) < 4 || v[0] == '$' || blank(v) || !digits(v) && !gibberish(v), lo, hi)
}

// urlCode matches a long word of letters of both cases and digits.
func urlCode(c *scan, at, n int) (int, int) {
	end := run(c.s, at+n, slug)
	v := c.s[at+n : end]
	return unless(len(v) < 20 || len(v) > 512 || wordy(v) || uuid(v) || countDigits(v) < 2 || !random(v, dense) ||
		strings.ToLower(v) == v || end < len(c.s) && strings.IndexByte("./", c.s[end]) >= 0 && c.s[at+n-1] == '/',
		at+n, end)
}

// sent matches a string that ends with a carriage return: it is typed at a prompt.
func sent(c *scan, at, n int) (int, int) {
	lo, hi := c.quotedAfter(skipBack(c.s, at+n-1, at, `\`))
	for hi > lo && strings.IndexByte("\\rn", c.s[hi-1]) >= 0 {
		if hi--; c.s[hi] == '\\' {
			break
		}
	}
	hi = skipBack(c.s, hi, lo, `\`)
	if hi <= lo || c.s[hi] != '\\' {
		return 0, 0
	}
	v := c.s[lo:hi]
	asked := c.s[max(c.floor, at-120):at]
	return unless(len(v) < 4 || v[0] == '$' || blank(v) || strings.ContainsAny(v, " \t") || !strong(v) &&
		strings.LastIndex(asked, "assword") < 0 && strings.LastIndex(asked, "assphrase") < 0, lo, hi)
}

// oldPassword matches a string in quotes after a new password.
func oldPassword(c *scan, at, n int) (int, int) {
	from, _ := c.line(at)
	lo, hi := c.quotedAfter(at + n - 1)
	return unless(indexFold(c.s[max(c.floor, from, at-maxKey):at], "identified") < 0 &&
		!strings.Contains(c.s[max(from, at-80):at], "[redacted:"), lo, hi)
}

// inserts reports whether the key is a column of an INSERT in SQL.
func (a *assignment) inserts() bool {
	i := skip(a.s, a.hi, a.hi+8, "`\"]\\ ")
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
	i = jsonscan.Space(c.s, i+end+1)
	c.tables = i
	if len(c.s)-i < len("values") || !strings.EqualFold(c.s[i:i+len("values")], "values") {
		return
	}
	i += len("values")
	for i > 0 {
		if i = jsonscan.Space(c.s, i); i == len(c.s) || c.s[i] != '(' {
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
		i = jsonscan.Space(c.s, i)
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
		"كلمة المرور", "סיסמה", "รหัสผ่าน", "पासवर्ड", "this key", "my key", "shown again", "recovery code",
		"backup code", "mdp") {
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
	if blank(v) || strings.Contains(v, "://") || !made(v) &&
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
			if v := c.s[lo:hi]; secret(v) && !blank(v) {
				c.addLater(finding{lo, hi, marker})
			}
		}
		at = eol + 1
	}
}

// blank reports whether v is no value: a placeholder, or redacted already.
func blank(v string) bool { return placeholder(v) || marked(v) }

// noPassword reports whether v stands where a password does and is none.
func noPassword(v string) bool { return blank(v) || has(passwordWords, v) }
