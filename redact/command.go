package redact

import (
	"path"
	"strings"
)

// tool is a command whose short flags carry passwords.
type tool struct {
	flags    string // the letters
	attached bool   // -pSECRET, without a space
	apart    bool   // -p SECRET
	user     byte   // the value is user and password around this byte
	sub      string // only with this subcommand
}

var (
	mysqlTool  = &tool{flags: "p", attached: true}
	loginTool  = &tool{flags: "p", apart: true, sub: "login"}
	mongoTool  = &tool{flags: "p", apart: true}
	ldapTool   = &tool{flags: "w", apart: true, attached: true}
	archive    = &tool{flags: "P", apart: true, attached: true}
	sevenZip   = &tool{flags: "p", attached: true}
	curlTool   = &tool{flags: "uU", apart: true, attached: true, user: ':'}
	sshpass    = &tool{flags: "p", apart: true, attached: true}
	redisTool  = &tool{flags: "a", apart: true}
	httpieTool = &tool{flags: "a", apart: true, user: ':'}
	sambaTool  = &tool{flags: "U", apart: true, user: '%'}
)

var tools = map[string]*tool{
	"curl": curlTool, "mysql": mysqlTool, "mysqldump": mysqlTool, "mysqladmin": mysqlTool, "mysqlimport": mysqlTool, "mariadb": mysqlTool, "mariadb-dump": mysqlTool,
	"sshpass": sshpass, "docker": loginTool, "podman": loginTool, "nerdctl": loginTool, "buildah": loginTool, "skopeo": loginTool, "helm": loginTool, "oc": loginTool, "az": loginTool,
	"redis-cli": redisTool, "mongo": mongoTool, "mongosh": mongoTool, "mongodump": mongoTool, "mongorestore": mongoTool, "mongoexport": mongoTool,
	"ldapsearch": ldapTool, "ldapmodify": ldapTool, "ldapadd": ldapTool, "ldapdelete": ldapTool, "ldapwhoami": ldapTool,
	"zip": archive, "unzip": archive, "sqlcmd": archive, "7z": sevenZip, "7za": sevenZip, "http": httpieTool, "https": httpieTool, "smbclient": sambaTool, "rpcclient": sambaTool,
}

// toolOf returns the tool of the command that s[at:] is part of: the first known name
// since the command began, if it is on the same line or the lines before are
// continued.
func toolOf(s string, floor, at int) *tool {
	begin := max(floor, at-1024)
	for i := at - 1; i >= begin; i-- {
		c := s[i]
		if c == ';' || c == '|' || c == '(' || c == '&' && i > begin && s[i-1] == '&' || c == '\n' && (i == begin || s[i-1] != '\\') {
			begin = i + 1
			break
		}
	}
	segment := s[begin:at]
	var found *tool
	for i := 0; i < len(segment); i++ {
		start := i
		for i < len(segment) && (class[segment[i]]&slug != 0 || segment[i] == '.') {
			i++
		}
		if i == start {
			continue
		}
		name := segment[start:i]
		if escapes := slashesBefore(segment, start); escapes > 0 && strings.IndexByte("nrt", name[0]) >= 0 {
			// The letter is of an escape in JSON, once or twice over: a line end, unless
			// there are more, which make the line go on.
			if name[0] == 'n' && escapes <= 2 {
				found = nil
			}
			if t := tools[name]; t == nil {
				name = name[1:]
			}
		}
		if t := tools[name]; t != nil && found == nil {
			found, segment = t, segment[start:]
			i -= start
		}
	}
	if found != nil && found.sub != "" && !strings.Contains(segment, found.sub) {
		return nil
	}
	return found
}

func maybeCommand(raw string, at, n int) bool {
	return raw[at] == 'c' || toolOf(raw, 0, at) != nil
}

// commandFlag matches the password after a flag of a known command: alone, at the end
// of flags in one (curl -sSu), spelt out, or as the next word of a list in quotes.
func commandFlag(s string, floor, at, n int) (int, int) {
	i := at + n
	if i >= len(s) {
		return 0, 0
	}
	if s[at] == 'c' {
		if bounded(s, at) {
			return curlCluster(s, at+n-1)
		}
		return 0, 0
	}
	t := toolOf(s, floor, at)
	if t == nil {
		return 0, 0
	}
	switch {
	case n > len(" -u"): // --user
		if t.user != ':' || s[i] != ' ' && s[i] != '=' {
			return 0, 0
		}
		i++
	case strings.IndexByte(t.flags, s[i-1]) < 0:
		return 0, 0
	case s[at] == '"':
		quote := i
		for quote < len(s) && s[quote] == '\\' {
			quote++
		}
		if quote == len(s) || s[quote] != '"' {
			if t.attached {
				return t.password(s, i, closing(s, i, '"', slashesBefore(s, at)))
			}
			return 0, 0
		}
		i = skipSpace(s, quote+1)
		if i == len(s) || s[i] != ',' || !t.apart {
			return 0, 0
		}
		i = skipSpace(s, i+1)
	case s[i] == ' ' && !t.apart, s[i] != ' ' && !t.attached:
		return 0, 0
	}
	for i < len(s) && s[i] == ' ' {
		i++
	}
	if i < len(s) && (s[i] == '"' || s[i] == '\'') && closesString(s, at, i) {
		return 0, 0
	}
	start, end := commandWord(s, i)
	return t.password(s, start, end)
}

func slashesBefore(s string, i int) int {
	n := 0
	for n < i && s[i-n-1] == '\\' {
		n++
	}
	return n
}

// commandWord returns the bounds of the word of a command at i, without its quotes.
func commandWord(s string, i int) (start, end int) {
	slashes := i
	for slashes < len(s) && s[slashes] == '\\' {
		slashes++
	}
	if slashes < len(s) && (s[slashes] == '"' || s[slashes] == '\'') {
		return slashes + 1, closing(s, slashes+1, s[slashes], slashes-i)
	}
	end = i
	for end < len(s) && class[s[end]]&space == 0 && strings.IndexByte("\"'`;|", s[end]) < 0 && !(s[end] == '\\' && end+1 < len(s) && strings.IndexByte("n\"'", s[end+1]) >= 0) {
		end++
	}
	return i, end
}

// curlCluster matches the password after flags of curl in one that end with u, in the
// command whose flags begin at i.
func curlCluster(s string, i int) (int, int) {
	line := s[i:min(len(s), i+2<<10)]
	if n := strings.IndexAny(line, "\n;|"); n >= 0 {
		line = line[:n]
	}
	for off := 0; off < len(line); {
		k := strings.IndexByte(line[off:], '-')
		if k < 0 {
			break
		}
		off += k
		end := run(line, off+1, lower|upper)
		if end-off > 2 && end < len(line) && line[end] == ' ' && line[end-1] == 'u' && (off == 0 || line[off-1] == ' ') {
			lo, hi := commandWord(s, i+end+1)
			if lo, hi := curlTool.password(s, lo, hi); hi > lo {
				return lo, hi
			}
		}
		off = end
	}
	return 0, 0
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
	}
	if end <= start {
		return 0, 0
	}
	if v := s[start:end]; v == "" || v[0] == '-' || placeholder(v) || marked(v) {
		return 0, 0
	}
	return start, end
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
	if flag := a.flag; flag != 0 {
		a.flag = 0
		return a.tool.password(element, 0, len(element))
	}
	if a.tool == nil && len(element) < 64 {
		if first || !strings.HasPrefix(element, "-") {
			a.tool = tools[path.Base(element)]
		}
	}
	if len(element) < 2 || element[0] != '-' {
		a.sub = a.sub || a.tool != nil && element == a.tool.sub
		return 0, 0
	}
	if name := strings.TrimLeft(element, "-"); len(name) >= 3 && !strings.ContainsAny(name, "= :") {
		a.long = r.classify(name) != notSecret
	}
	if a.tool != nil && element[1] != '-' && strings.IndexByte(a.tool.flags, element[1]) >= 0 && (a.tool.sub == "" || a.sub) {
		if len(element) == 2 {
			if a.tool.apart {
				a.flag = element[1]
			}
		} else if a.tool.attached {
			return a.tool.password(element, 2, len(element))
		}
	}
	return 0, 0
}
