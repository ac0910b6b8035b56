package redact

import (
	"path"
	"slices"
	"strings"
)

// tool is a command that is given passwords other than by flags that say so.
type tool struct {
	flags    string // short flags, by their letters
	attached bool   // -pSECRET, without a space
	apart    bool   // -p SECRET
	user     byte   // the value is user and password around this byte
	sub      string // only with this subcommand
	long     string // long flags, which the names of keys do not cover
	cookie   string // flags whose value is a cookie
	last     int    // the secret is the last of so many words or more, flags not counted
	must     string // and only with one of these flags
	pipe     bool   // what is printed into it is a secret, with one of the flags in must
}

var (
	mysqlTool  = &tool{flags: "p", attached: true}
	mysqlAdmin = &tool{flags: "p", attached: true, last: 2, sub: "password"}
	loginTool  = &tool{flags: "p", apart: true, sub: "login", pipe: true, must: "--password-stdin"}
	mongoTool  = &tool{flags: "p", apart: true}
	ldapTool   = &tool{flags: "w", apart: true, attached: true}
	archive    = &tool{flags: "P", apart: true, attached: true}
	sevenZip   = &tool{flags: "p", attached: true}
	curlTool   = &tool{flags: "uUE", apart: true, attached: true, user: ':', long: "--user --proxy-user --oauth2-bearer --pass --cookie", cookie: "b"}
	sshpass    = &tool{flags: "p", apart: true, attached: true}
	redisTool  = &tool{flags: "a", apart: true, long: "--pass"}
	httpieTool = &tool{flags: "a", apart: true, user: ':'}
	sambaTool  = &tool{flags: "U", apart: true, user: '%'}
	uploadTool = &tool{flags: "p", apart: true}
	userTool   = &tool{flags: "p", apart: true}
	javaTool   = &tool{long: "-storepass -keypass -srcstorepass -deststorepass"}
	snmpTool   = &tool{flags: "AX", apart: true}
	secretsCLI = &tool{long: "--secret-string --secret-binary"}
	ssmTool    = &tool{long: "--value", sub: "SecureString"}
	ghTool     = &tool{long: "--body", flags: "b", apart: true, sub: "secret", pipe: true, must: "--with-token"}
)

var tools = map[string]*tool{
	"curl": curlTool, "mysql": mysqlTool, "mysqldump": mysqlTool, "mysqladmin": mysqlAdmin, "mysqlimport": mysqlTool, "mariadb": mysqlTool, "mariadb-dump": mysqlTool,
	"sshpass": sshpass, "docker": loginTool, "podman": loginTool, "nerdctl": loginTool, "buildah": loginTool, "skopeo": loginTool, "helm": loginTool, "oc": loginTool, "az": loginTool,
	"redis-cli": redisTool, "mongo": mongoTool, "mongosh": mongoTool, "mongodump": mongoTool, "mongorestore": mongoTool, "mongoexport": mongoTool,
	"ldapsearch": ldapTool, "ldapmodify": ldapTool, "ldapadd": ldapTool, "ldapdelete": ldapTool, "ldapwhoami": ldapTool, "ldappasswd": ldapTool,
	"zip": archive, "unzip": archive, "sqlcmd": archive, "7z": sevenZip, "7za": sevenZip, "http": httpieTool, "https": httpieTool, "smbclient": sambaTool, "rpcclient": sambaTool,
	"twine": uploadTool, "useradd": userTool, "usermod": userTool, "keytool": javaTool, "jarsigner": javaTool,
	"snmpwalk": snmpTool, "snmpget": snmpTool, "snmpset": snmpTool, "secretsmanager": secretsCLI, "ssm": ssmTool, "gh": ghTool,
	"htpasswd": {last: 3, must: "-b"}, "net": {last: 3, sub: "us"},
	"sqlplus": {last: 1, user: '/'}, "vault": {last: 2, sub: "login"}, "cargo": {last: 2, sub: "login"}, "ngrok": {last: 2, sub: "authtoken"},
	"sudo": {pipe: true, must: "-S"}, "chpasswd": {pipe: true, user: ':'}, "passwd": {pipe: true}, "kinit": {pipe: true}, "smbpasswd": {pipe: true}, "cryptsetup": {pipe: true},
	"cmdkey": {long: "/pass:"}, "xfreerdp": {long: "/p:"}, "openssl": {flags: "k", apart: true, sub: "enc"},
}

// toolLiterals announce commands. Names that words are made of come with what follows
// them in commands.
var toolLiterals = []string{
	"curl -", "curl http", "curl \"", "mysql -", "mysqldump ", "mysqladmin ", "mysqlimport ", "mariadb -", "mariadb-dump ", "sshpass ", "docker login", "podman login", "nerdctl login", "buildah login", "skopeo login",
	"helm registry login", "oc login", "az login", "redis-cli ", "mongo -", "mongo \"", "mongo --", "mongosh ", "mongodump ", "mongorestore ", "mongoexport ", "ldapsearch ", "ldapmodify ", "ldapadd ", "ldapdelete ", "ldapwhoami ",
	"ldappasswd ", "unzip -", "zip -", "sqlcmd ", "7z ", "7za ", "http -", "https -", "http --", "smbclient ", "rpcclient ", "twine ", "useradd ", "usermod ", "keytool ", "jarsigner ", "snmpwalk ", "snmpget ", "snmpset ",
	"secretsmanager ", "ssm put-parameter", "gh secret", "htpasswd -", "net use ", "net user ", "sqlplus ", "vault login", "vault token", "cargo login", "ngrok ", "sudo -", "chpasswd", "cmdkey ", "xfreerdp ", "openssl enc", "echo ", "printf ",
}

// listed are the names of tools as the first element of a list of words.
func listed() (out []string) {
	for name := range tools {
		out = append(out, `"`+name+`"`)
	}
	slices.Sort(out)
	return out
}

// command matches the first secret of the command whose name is at at. A command is
// read once, however many names of tools are in it.
func command(c *scan, at, _ int) (start, end int) {
	if at < c.commands {
		return 0, 0
	}
	if !bounded(c.s, at) || at > 0 && strings.IndexByte("-.=", c.s[at-1]) >= 0 {
		return 0, 0
	}
	var words []span
	var stop int
	if c.s[at] == '"' {
		words, stop = c.listWords(at)
	} else {
		words, stop = c.commandWords(at)
	}
	c.commands = stop
	c.looked += stop - at
	if len(words) == 0 {
		return 0, 0
	}
	name := path.Base(c.s[words[0].lo:words[0].hi])
	if name == "echo" || name == "printf" {
		c.printed(words, stop)
	} else if t := tools[name]; t != nil {
		c.given(t, words)
	}
	return 0, 0 // what was found comes later in the text than its command's name
}

const maxWords = 96

// commandWords returns the words of the command at i, without their quotes, and where
// it ends.
func (c *scan) commandWords(i int) (words []span, stop int) {
	s := c.s
	words = c.words[:0]
	for i < len(s) {
		switch b := s[i]; {
		case b == ' ' || b == '\t':
			i++
			continue
		case b == '\n' || b == ';' || b == '|' || b == '&' && i+1 < len(s) && s[i+1] == '&' || b == ')' || b == '`':
			c.words = words
			return words, i
		case b == '\\':
			k := i
			for k < len(s) && s[k] == '\\' {
				k++
			}
			if k < len(s) && s[k] == '\n' {
				i = k + 1
				continue
			}
			if k < len(s) && (s[k] == 'n' || s[k] == 'r') && k-i <= 2 {
				c.words = words
				return words, i
			}
			if k-i >= 3 && k < len(s) && s[k] == 'n' {
				i = k + 1 // a line that goes on, in JSON
				continue
			}
		}
		lo, hi, next := c.commandWord(i)
		if len(words) < maxWords {
			words = append(words, span{lo, hi})
		}
		i = max(next, i+1)
	}
	c.words = words
	return words, len(s)
}

// listWords returns the strings of the list that the one at i is in.
func (c *scan) listWords(i int) (words []span, stop int) {
	s := c.s
	words = c.words[:0]
	for i < len(s) && s[i] == '"' {
		end := c.closing(i+1, '"', 0)
		if len(words) < maxWords {
			words = append(words, span{i + 1, end})
		}
		if i = skipSpace(s, min(len(s), end+1)); i < len(s) && s[i] == ',' {
			i = skipSpace(s, i+1)
		}
	}
	c.words = words
	return words, i
}

func slashesBefore(s string, i int) int {
	n := 0
	for n < i && s[i-n-1] == '\\' {
		n++
	}
	return n
}

// commandWord returns the bounds of the word of a command at i, without its quotes, and
// where the next may begin.
func (c *scan) commandWord(i int) (start, end, next int) {
	s := c.s
	slashes := i
	for slashes < len(s) && s[slashes] == '\\' {
		slashes++
	}
	if slashes < len(s) && (s[slashes] == '"' || s[slashes] == '\'') {
		end = c.closing(slashes+1, s[slashes], slashes-i)
		next = end
		for next < len(s) && s[next] == '\\' {
			next++
		}
		return slashes + 1, end, next + 1
	}
	end = i
	quoted := false
	for end < len(s) && (quoted || class[s[end]]&space == 0 && strings.IndexByte("`;|)", s[end]) < 0) && s[end] != '\n' {
		if s[end] == '"' || s[end] == '\'' {
			if end == i+2 && s[i] == '-' { // -p"…"
				stop := c.closing(end+1, s[end], 0)
				return i, stop, stop + 1
			}
			quoted = !quoted && strings.IndexByte(s[end+1:min(len(s), end+1+maxJudged)], s[end]) >= 0
			if !quoted && s[i] != '-' && strings.IndexByte(s[i:end], '=') < 0 {
				break // the quote of a string that the command is in
			}
		}
		if s[end] == '\\' && end+1 < len(s) && strings.IndexByte("n\"'\\", s[end+1]) >= 0 {
			break
		}
		end++
	}
	return i, end, end
}

// give notes a secret that a command is given.
func (c *scan) give(lo, hi int) {
	if lo < c.floor || hi <= lo {
		return
	}
	if v := c.s[lo:hi]; v[0] == '-' || placeholder(v) || marked(v) || len(v) < 2 || v[0] == '$' && len(v) > 1 && class[v[1]]&word != 0 && identifierPath(v[1:]) {
		return
	}
	c.addLater(finding{lo, hi, commandMarker})
}

const commandMarker = "[redacted:command-password]"

// given notes the secrets among the words of a command.
func (c *scan) given(t *tool, words []span) {
	if t.pipe {
		c.hereString(t, words)
	}
	if !c.isFor(t, words) {
		return
	}
	plain := make([]int, 0, 8)
	for i := 1; i < len(words); i++ {
		w := c.s[words[i].lo:words[i].hi]
		if w == "" || w[0] != '-' && (w[0] != '/' || t.long == "" && t.sub != "us") {
			plain = append(plain, i)
			continue
		}
		i = c.flagged(t, words, i)
	}
	if t.last > 0 && len(plain) >= t.last {
		k := words[plain[len(plain)-1]]
		if t.sub == "us" { // net use \\host /user:name password
			k = words[plain[min(len(plain)-1, 2)]]
		}
		lo, hi := t.password(c.s, k.lo, k.hi)
		c.give(lo, hi)
	}
}

// isFor reports whether the command has the words that the tool's secrets need.
func (c *scan) isFor(t *tool, words []span) bool {
	sub, must := t.sub == "", t.must == "" || t.pipe
	for _, w := range words[1:] {
		v := c.s[w.lo:w.hi]
		sub = sub || strings.HasPrefix(v, t.sub) || strings.HasSuffix(v, t.sub)
		must = must || hasFlag(v, t.must)
	}
	return sub && must
}

// hasFlag reports whether the word v is the flag want, or short flags with it in them.
func hasFlag(v, want string) bool {
	if len(want) == 2 {
		return len(v) >= 2 && v[0] == '-' && v[1] != '-' && strings.IndexByte(v, want[1]) > 0
	}
	return v == want
}

// flagged notes the secret of the flag words[i], and returns the last word it took.
func (c *scan) flagged(t *tool, words []span, i int) int {
	w := c.s[words[i].lo:words[i].hi]
	if w[0] == '/' {
		if rest, ok := strings.CutPrefix(w, t.long); ok && t.long != "" {
			c.give(words[i].hi-len(rest), words[i].hi)
		}
		return i
	}
	if name, _, has := strings.Cut(w, "="); t.long != "" && len(name) > 2 && isWord(t.long, name) {
		at := words[i]
		if at.lo += len(name) + 1; !has {
			if i++; i == len(words) {
				return i
			}
			at = words[i]
		}
		lo, hi := t.value(c.s, at.lo, at.hi, name)
		c.give(lo, hi)
		return i
	}
	return c.shortFlag(t, words, i)
}

// shortFlag is flagged for flags of a letter, alone or at the end of several in one.
func (c *scan) shortFlag(t *tool, words []span, i int) int {
	w := c.s[words[i].lo:words[i].hi]
	if len(w) < 2 || w[1] == '-' || t.flags == "" {
		return i
	}
	k := strings.IndexAny(w[1:], t.flags+t.cookie) + 1
	if k == 0 || k > 1 && !(t == curlTool && k == len(w)-1) {
		return i
	}
	cookie := strings.IndexByte(t.cookie, w[k]) >= 0
	lo, hi := words[i].lo+k+1, words[i].hi
	switch {
	case k == len(w)-1 && t.apart && i+1 < len(words):
		i++
		lo, hi = words[i].lo, words[i].hi
	case k == len(w)-1 || !t.attached:
		return i
	}
	if lo < hi && (c.s[lo] == '"' || c.s[lo] == '\'') {
		lo++
		if hi > lo && (c.s[hi-1] == '"' || c.s[hi-1] == '\'') {
			hi--
		}
	}
	if cookie {
		if strings.IndexByte(c.s[lo:hi], '=') > 0 {
			c.give(lo, hi)
		}
		return i
	}
	lo, hi = t.password(c.s, lo, hi)
	c.give(lo, hi)
	return i
}

func isWord(list, w string) bool {
	k := strings.Index(list, w)
	return k >= 0 && (k+len(w) == len(list) || list[k+len(w)] == ' ') && (k == 0 || list[k-1] == ' ')
}

// value returns the part of a long flag's value that is secret.
func (t *tool) value(s string, start, end int, name string) (int, int) {
	if strings.Contains(name, "user") {
		return t.password(s, start, end)
	}
	if name == "--cookie" && strings.IndexByte(s[start:end], '=') < 0 {
		return 0, 0
	}
	return start, end
}

// password returns the part of a flag's value that is the password.
func (t *tool) password(s string, start, end int) (int, int) {
	if end <= start {
		return 0, 0
	}
	if t.user != 0 {
		k := strings.IndexByte(s[start:end], t.user)
		if k < 0 {
			return 0, 0
		}
		start += k + 1
		if k = strings.IndexByte(s[start:end], '@'); t.user == '/' && k >= 0 {
			end = start + k
		}
	}
	if end <= start {
		return 0, 0
	}
	if v := s[start:end]; v == "" || v[0] == '-' || placeholder(v) || marked(v) {
		return 0, 0
	}
	return start, end
}

// hereString notes the text after <<<, which a tool reads instead of a pipe.
func (c *scan) hereString(t *tool, words []span) {
	must := t.must == ""
	for _, w := range words {
		must = must || hasFlag(c.s[w.lo:w.hi], t.must)
	}
	for i, w := range words {
		if v := c.s[w.lo:w.hi]; must && strings.HasPrefix(v, "<<<") {
			if len(v) > 3 {
				w.lo += 3
				w = unquoted(c.s, w)
			} else if i+1 < len(words) {
				w = words[i+1]
			} else {
				return
			}
			lo, hi := t.password(c.s, w.lo, w.hi)
			c.give(lo, hi)
		}
	}
}

func unquoted(s string, w span) span {
	if w.hi > w.lo && (s[w.lo] == '"' || s[w.lo] == '\'') {
		w.lo++
		if w.hi > w.lo && (s[w.hi-1] == '"' || s[w.hi-1] == '\'') {
			w.hi--
		}
	}
	return w
}

// printed notes what echo or printf write into a tool that reads passwords.
func (c *scan) printed(words []span, stop int) {
	s := c.s
	if stop >= len(s) || s[stop] != '|' || len(words) < 2 {
		return
	}
	c.keep = append(c.keep[:0], words...)
	words = c.keep
	i := skipSpace(s, stop+1)
	next, end := c.commandWords(i)
	if len(next) == 0 {
		return
	}
	reader, flagged := c.reader(next)
	if reader == nil || !flagged {
		return
	}
	c.commands = end
	for n, w := range words[1:] {
		v := s[w.lo:w.hi]
		if v == "" || v[0] == '-' || strings.HasPrefix(v, "%s") && n == 0 && len(words) > 2 {
			continue
		}
		lo, hi := reader.password(s, w.lo, w.hi)
		c.give(lo, hi)
	}
}

// reader returns the tool that reads a password from a pipe, and whether its flags say
// that it does.
func (c *scan) reader(words []span) (*tool, bool) {
	var found *tool
	flagged := false
	for i, w := range words {
		v := c.s[w.lo:w.hi]
		if t := tools[path.Base(v)]; t != nil && t.pipe && (found == nil || i == 1) {
			found, flagged = t, t.must == ""
			continue
		}
		if found != nil {
			flagged = flagged || hasFlag(v, found.must)
		}
	}
	return found, flagged
}

// argv follows the elements of an array that may be the words of a command.
type argv struct {
	tool *tool
	sub  bool // the subcommand was seen
	flag byte // the short flag whose value comes next
	long bool // so does that of a long flag that names a secret
}

// next takes an element and returns the bounds of the secret in it.
func (a *argv) next(r *Redactor, element string, first bool) (start, end int) {
	if a.long {
		a.long = false
		if element != "" && element[0] != '-' && !marked(element) && !placeholder(element) {
			return 0, len(element)
		}
	}
	if a.flag != 0 {
		cookie := strings.IndexByte(a.tool.cookie, a.flag) >= 0
		a.flag = 0
		if cookie {
			if strings.IndexByte(element, '=') > 0 && !marked(element) {
				return 0, len(element)
			}
			return 0, 0
		}
		return a.tool.password(element, 0, len(element))
	}
	if a.tool == nil && len(element) < 64 && (first || !strings.HasPrefix(element, "-")) {
		a.tool = tools[path.Base(element)]
	}
	if len(element) < 2 || element[0] != '-' {
		a.sub = a.sub || a.tool != nil && element == a.tool.sub
		return 0, 0
	}
	return a.flagged(r, element)
}

// flagged takes an element that is a flag.
func (a *argv) flagged(r *Redactor, element string) (start, end int) {
	if name := strings.TrimLeft(element, "-"); len(name) >= 3 && !strings.ContainsAny(name, "= :") {
		a.long = r.classify(name) > keyed || a.tool != nil && isWord(a.tool.long, element) && a.tool.user == 0
	}
	if a.tool == nil || element[1] == '-' || a.tool.sub != "" && !a.sub || strings.IndexByte(a.tool.flags+a.tool.cookie, element[1]) < 0 {
		return 0, 0
	}
	if len(element) == 2 {
		if a.tool.apart {
			a.flag = element[1]
		}
	} else if a.tool.attached {
		return a.tool.password(element, 2, len(element))
	}
	return 0, 0
}
