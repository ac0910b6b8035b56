package redact

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// tool is a row of the table of commands: how one is given passwords other than by flags
// that report so.
type tool struct {
	names    string // of the commands
	near     string // what follows a name that is a word of prose too, alternatives separated by |; a space by default
	sub      string // only with this subcommand, or one of these, separated by |
	flags    string // short flags, by their letters
	attached bool   // -pSECRET, without a space
	apart    bool   // -p SECRET
	user     byte   // the value is user and password around this byte
	long     string // long flags, separated by |, which the names of keys do not cover
	cookie   string // flags whose value is a cookie
	at       int    // the secret is this word, flags not counted
	last     int    // the secret is the last of so many words or more, flags not counted
	must     string // and only with one of these flags
	pipe     bool   // what is printed into it is a secret, with one of the flags in must
}

// tools is the table of commands.
var tools = []*tool{
	{names: "curl", near: " -| http| \"", flags: "uUE", apart: true, attached: true, user: ':',
		long: "--user|--proxy-user|--oauth2-bearer|--pass|--cookie", cookie: "b"},
	{names: "mysql mariadb", near: " -", flags: "p", attached: true},
	{names: "mysqldump mysqladmin mysqlimport mariadb-dump", flags: "p", attached: true},
	{names: "mysqladmin", sub: "password", last: 2},
	{names: "docker podman nerdctl buildah skopeo oc az fly flyctl", sub: "login", near: " login| auth login",
		flags: "p", apart: true, pipe: true, must: "--password-stdin"},
	{names: "helm", sub: "login", near: " registry login", flags: "p", apart: true, pipe: true,
		must: "--password-stdin"},
	{names: "az", sub: "keyvault", near: " keyvault", long: "--value"},
	{names: "az", sub: "sql|mysql|postgres|vm", near: " sql| mysql| postgres| vm", flags: "p", apart: true},
	{names: "mongo", near: " -| \"", flags: "p", apart: true},
	{names: "mongosh mongodump mongorestore mongoexport cqlsh twine useradd usermod rdesktop rabbitmqadmin psexec " +
		"psexec64 bcp", flags: "pP", apart: true},
	{names: "poetry", sub: "publish", flags: "p", apart: true},
	{names: "poetry composer bundle", sub: "config", last: 4, must: "http-basic"},
	{names: "bundle", sub: "config", last: 3, user: ':'},
	{names: "composer poetry", sub: "config", last: 3, must: "oauth|token"},
	{names: "nuget", sub: "source|sources", flags: "p", apart: true},
	{names: "ldapsearch ldapmodify ldapadd ldapdelete ldapwhoami", flags: "w", apart: true, attached: true},
	{names: "ldappasswd", flags: "wsa", apart: true, attached: true},
	{names: "zip unzip", near: " -", flags: "P", apart: true, attached: true},
	{names: "sqlcmd ipmitool mosquitto_pub mosquitto_sub", flags: "P", apart: true, attached: true},
	{names: "7z 7za 7zr", near: " x| a| e| l| t", flags: "p", attached: true},
	{names: "rar unrar", near: " a | x | e ", flags: "p", attached: true, long: "-hp"},
	{names: "sshpass", flags: "p", apart: true, attached: true},
	{names: "redis-cli", flags: "a", apart: true, long: "--pass"},
	{names: "http https", near: " -", flags: "a", apart: true, user: ':', long: "--auth"},
	{names: "httpie xh xhs", near: " -", flags: "a", apart: true, user: ':', long: "--auth"},
	{names: "etcdctl", user: ':', long: "--user"},
	{names: "smbclient rpcclient", flags: "U", apart: true, user: '%'},
	{names: "lftp", flags: "u", apart: true, user: ','},
	{names: "keytool jarsigner", long: "-storepass|-keypass|-srcstorepass|-deststorepass"},
	{names: "snmpwalk snmpget snmpset", flags: "AX", apart: true},
	{names: "secretsmanager", long: "--secret-string|--secret-binary"},
	{names: "ssm", near: " put-parameter", long: "--value", sub: "SecureString"},
	{names: "gh", near: " secret", long: "--body", flags: "b", apart: true, sub: "secret", pipe: true},
	{names: "gh glab", sub: "auth", near: " auth", pipe: true, must: "--with-token|--stdin"},
	{names: "htpasswd", near: " -", last: 2, must: "-b"},
	{names: "net", near: " use", at: 3, sub: "use"},
	{names: "net", near: " user", at: 3, sub: "user"},
	{names: "sqlplus", last: 1, user: '/'},
	{names: "vault cargo wandb", sub: "login", near: " login", last: 2},
	{names: "vault", sub: "unseal", near: " operator", last: 3},
	{names: "ngrok snyk", sub: "authtoken|auth", last: 2},
	{names: "bw", sub: "unlock", last: 2},
	{names: "bw", sub: "login", last: 3},
	{names: "nmcli", sub: "password", last: 6},
	{names: "wpa_passphrase", last: 2},
	{names: "rclone", sub: "obscure", near: " obscure", last: 2},
	{names: "ansible-vault", sub: "encrypt_string", at: 2},
	{names: "rabbitmqctl", sub: "add_user|change_password", last: 3},
	{names: "ssh-keygen", flags: "NP", apart: true},
	{names: "security", near: " -| add-| unlock-| create-| set-", flags: "wp", apart: true},
	{names: "openssl", sub: "enc", near: " enc", flags: "kK", apart: true},
	{names: "openssl", sub: "passwd", near: " passwd", last: 2},
	{names: "cmdkey", long: "/pass:"},
	{names: "xfreerdp xfreerdp3", long: "/p:"},
	{names: "sudo", near: " -", pipe: true, must: "-S"},
	{names: "chpasswd", near: "|", pipe: true, user: ':'},
	{names: "passwd kinit smbpasswd cryptsetup", pipe: true, near: "<"},
	{names: "gcloud", sub: "secrets", near: "<", pipe: true, must: "--data-file=-"},
	{names: "vercel", sub: "env", near: "<", pipe: true},
	{names: "wrangler", sub: "secret", near: " secret", pipe: true},
}

// toolsByName are the rows of each command.
var toolsByName = func() map[string][]*tool {
	byName := map[string][]*tool{}
	for _, t := range tools {
		for name := range strings.FieldsSeq(t.names) {
			byName[name] = append(byName[name], t)
		}
	}
	return byName
}()

// commandLiterals are what commands are found by: their names with what follows them, and as elements
// of a list of words, which may be escaped.
func commandLiterals() []string {
	out := []string{"echo ", "printf "}
	for _, t := range tools {
		near := cmp.Or(t.near, " ")
		for name := range strings.FieldsSeq(t.names) {
			if near != "<" { // is found by what prints into it
				for after := range strings.SplitSeq(near, "|") {
					out = append(out, name+after)
				}
			}
			out = append(out, `"`+name+`"`, `"`+name+`\`)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
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
	} else {
		for _, t := range toolsByName[name] {
			c.given(t, words)
		}
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
		switch s[i] {
		case ' ', '\t':
			i++
			continue
		case '\\':
			if next := continuedLine(s, i); next > i {
				i = next
				continue
			}
		}
		if commandEnds(s, i) {
			break
		}
		lo, hi, next := c.commandWord(i)
		if len(words) < maxWords {
			words = append(words, span{lo, hi})
		}
		i = max(next, i+1)
		if next == hi && hi > lo && hi < len(s) && (s[hi] == '"' || s[hi] == '\'') {
			break // the end of the string that the command is in
		}
	}
	c.words = words
	return words, min(i, len(s))
}

// commandEnds reports whether a command ends at i: with its line, which may be escaped, and
// before another.
func commandEnds(s string, i int) bool {
	switch s[i] {
	case '\n', ';', '|', ')', '`':
		return true
	case '&':
		return i+1 < len(s) && s[i+1] == '&'
	case '\\':
		k := i + slashesAt(s, i)
		return k < len(s) && (s[k] == 'n' || s[k] == 'r') && k-i <= 2
	}
	return false
}

// continuedLine returns where a command goes on after the backslash at i that ends its
// line, in JSON too; i where it ends none.
func continuedLine(s string, i int) int {
	n := slashesAt(s, i)
	if k := i + n; k < len(s) && (s[k] == '\n' || s[k] == 'n' && n >= 3) {
		return k + 1
	}
	return i
}

// slashesAt returns how many backslashes are at i.
func slashesAt(s string, i int) int { return skip(s, i, len(s), `\`) - i }

// listWords returns the strings of the list that the one at i is in.
func (c *scan) listWords(i int) (words []span, stop int) {
	s := c.s
	words = c.words[:0]
	for i < len(s) && s[i] == '"' {
		end := c.closing(i+1, '"', 0)
		if len(words) < maxWords {
			words = append(words, span{i + 1, end})
		}
		if i = jsonscan.Space(s, min(len(s), end+1)); i < len(s) && s[i] == ',' {
			i = jsonscan.Space(s, i+1)
		}
	}
	c.words = words
	return words, i
}

func slashesBefore(s string, i int) int { return i - skipBack(s, i, 0, `\`) }

// commandWord returns the bounds of the word of a command at i, without its quotes, and
// where the next may begin.
func (c *scan) commandWord(i int) (start, end, next int) {
	s := c.s
	if q := i + slashesAt(s, i); q < len(s) && (s[q] == '"' || s[q] == '\'') {
		end = c.closing(q+1, s[q], q-i)
		return q + 1, end, end + slashesAt(s, end) + 1
	}
	end = i
	quoted := false
	for end < len(s) && (quoted || class[s[end]]&space == 0 && strings.IndexByte("`;|)", s[end]) < 0) &&
		s[end] != '\n' {
		switch s[end] {
		case '"', '\'':
			if end == i+2 && s[i] == '-' { // -p"…"
				stop := c.closing(end+1, s[end], 0)
				return i, stop, stop + 1
			}
			opens := !quoted && strings.IndexByte(s[end+1:min(len(s), end+1+maxJudged)], s[end]) >= 0
			if !opens && c.inString(i, end, quoted) {
				return i, end, end
			}
			quoted = opens
		case '\\':
			if end+1 < len(s) && strings.IndexByte("n\"'\\", s[end+1]) >= 0 {
				return i, end, end
			}
		}
		end++
	}
	return i, end, end
}

// inString reports whether the quote at end is of a string that the command is in, rather
// than of one in the word at i: --name="…", system/"…".
func (c *scan) inString(i, end int, quoted bool) bool {
	w := c.s[i:end]
	return (w == "" || w[0] != '-') && strings.IndexByte(w, '=') < 0 && !(quoted && strings.IndexByte(w, '/') > 0)
}

// give notes a secret that a command is given.
func (c *scan) give(lo, hi int) {
	if lo < c.floor || hi <= lo {
		return
	}
	if v := c.s[lo:hi]; v[0] == '-' || blank(v) || len(v) < 2 || v[0] == '$' && len(v) > 1 &&
		class[v[1]]&word != 0 && identifierPath(v[1:]) {
		return
	}
	c.addLater(finding{lo, hi, commandMarker})
}

const commandMarker = "[redacted:command-password]"

// given notes the secrets among the words of a command.
func (c *scan) given(t *tool, words []span) {
	if !c.isFor(t, words) {
		return
	}
	if t.pipe {
		c.hereString(t, words)
	}
	var plain [4]int // the first words that are no flags
	last, n := 0, 0
	for i := 1; i < len(words); i++ {
		w := c.s[words[i].lo:words[i].hi]
		if w == "" {
			continue
		}
		if w[0] != '-' && (w[0] != '/' || t.long == "" && t.names != "net") {
			if n < len(plain) {
				plain[n] = i
			}
			last = i
			n++
			continue
		}
		i = c.flagged(t, words, i)
	}
	if t.at > 0 && n >= t.at {
		last = plain[t.at-1]
		if w := c.s[words[last].lo:words[last].hi]; w[0] == '\\' && n > t.at {
			last = plain[t.at] // net use Z: \\host password /user:name
		}
	}
	if t.at > 0 && n >= t.at || t.last > 0 && n >= t.last {
		k := words[last]
		c.give(t.password(c.s, k.lo, k.hi))
	}
}

// isFor reports whether the command has the words that the tool's secrets need.
func (c *scan) isFor(t *tool, words []span) bool {
	sub := t.sub == ""
	for _, w := range words[1:] {
		sub = sub || oneOf(t.sub, c.s[w.lo:w.hi])
	}
	return sub && (t.pipe || c.hasMust(t, words[1:]))
}

// hasMust reports whether one of the flags is among the words that the tool's secrets need.
func (c *scan) hasMust(t *tool, words []span) bool {
	return t.must == "" || slices.ContainsFunc(words, func(w span) bool { return hasFlag(c.s[w.lo:w.hi], t.must) })
}

// oneOf reports whether v is one of the words in list, which are separated by |.
func oneOf(list, v string) bool {
	for len(list) > 0 {
		var w string
		if w, list, _ = strings.Cut(list, "|"); w == v {
			return true
		}
	}
	return false
}

// hasFlag reports whether the word v is the flag want, or short flags with it in them.
func hasFlag(v, want string) bool {
	if len(want) == 2 {
		return len(v) >= 2 && v[0] == '-' && v[1] != '-' && strings.IndexByte(v, want[1]) > 0
	}
	for want != "" {
		var w string
		if w, want, _ = strings.Cut(want, "|"); v == w || w[0] != '-' && strings.Contains(v, w) {
			return true
		}
	}
	return false
}

// flagged notes the secret of the flag words[i], and returns the last word it took.
func (c *scan) flagged(t *tool, words []span, i int) int {
	w := c.s[words[i].lo:words[i].hi]
	// /pass:SECRET, -hpSECRET
	if rest, ok := strings.CutPrefix(w, t.long); ok && t.long != "" && rest != "" && (w[0] == '/' || len(t.long) == 3) {
		c.give(words[i].hi-len(rest), words[i].hi)
		return i
	}
	if w[0] == '/' {
		return i
	}
	if name, _, has := strings.Cut(w, "="); t.long != "" && len(name) > 2 && oneOf(t.long, name) {
		at := words[i]
		if at.lo += len(name) + 1; !has {
			if i++; i == len(words) {
				return i
			}
			at = words[i]
		}
		c.give(t.value(c.s, at.lo, at.hi, name))
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
	if k == 0 || k > 1 && !(t.cookie != "" && k == len(w)-1) {
		return i
	}
	cookie := strings.IndexByte(t.cookie, w[k]) >= 0
	lo, hi := words[i].lo+k+1, words[i].hi
	switch {
	case k == len(w)-1 && t.apart && i+1 < len(words):
		i++
		lo, hi = words[i].lo, words[i].hi
	case k == len(w)-1 || !t.attached && w[k+1] != '=':
		return i
	}
	if lo < hi && c.s[lo] == '=' {
		lo++ // -p=SECRET
	}
	v := unquoted(c.s, span{lo, hi})
	if !cookie {
		v.lo, v.hi = t.password(c.s, v.lo, v.hi)
	}
	if !cookie || strings.IndexByte(c.s[v.lo:v.hi], '=') > 0 {
		c.give(v.lo, v.hi)
	}
	return i
}

// value returns the part of a long flag's value that is secret.
func (t *tool) value(s string, start, end int, name string) (int, int) {
	if strings.Contains(name, "user") {
		return t.password(s, start, end)
	}
	return unless(name == "--cookie" && strings.IndexByte(s[start:end], '=') < 0, start, end)
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
		if t.user == '/' && start < end && s[start] == '"' {
			if k = strings.IndexByte(s[start+1:end], '"'); k >= 0 {
				return start + 1, start + 1 + k
			}
		}
		if k = strings.LastIndexByte(s[start:end], '@'); t.user == '/' && k >= 0 {
			end = start + k
		}
	}
	if end <= start {
		return 0, 0
	}
	v := s[start:end]
	return unless(v == "" || v[0] == '-' || noPassword(v) || strings.HasSuffix(v, "...]"), start, end)
}

// hereString notes the text after <<<, which a tool reads instead of a pipe.
func (c *scan) hereString(t *tool, words []span) {
	if !c.hasMust(t, words) {
		return
	}
	for i, w := range words {
		if rest, ok := strings.CutPrefix(c.s[w.lo:w.hi], "<<<"); ok {
			if rest != "" {
				w = unquoted(c.s, span{w.lo + 3, w.hi})
			} else if i+1 < len(words) {
				w = words[i+1]
			} else {
				return
			}
			c.give(t.password(c.s, w.lo, w.hi))
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
	i := jsonscan.Space(s, stop+1)
	next, end := c.commandWords(i)
	if len(next) == 0 {
		return
	}
	reader := c.reader(next)
	if reader == nil {
		return
	}
	c.commands = end
	for n, w := range words[1:] {
		v := s[w.lo:w.hi]
		if v == "" || v[0] == '-' || strings.HasPrefix(v, "%s") && n == 0 && len(words) > 2 {
			continue
		}
		c.give(reader.password(s, w.lo, w.hi))
	}
}

// reader returns the tool that reads a password from a pipe, if the words after it show
// that it does.
func (c *scan) reader(words []span) *tool {
	for i, w := range words[:min(len(words), 3)] {
		for _, t := range toolsByName[path.Base(c.s[w.lo:w.hi])] {
			if t.pipe && c.isFor(t, words[i:]) && c.hasMust(t, words[i:]) {
				return t
			}
		}
	}
	return nil
}

// inArray returns the bounds of the secrets in the strings of an array that may be the
// words of a command, each within its string.
func (r *Redactor) inArray(elements []string) (found []finding, in []int) {
	for first, name := range elements[:min(len(elements), 4)] {
		rows := toolsByName[path.Base(name)]
		if len(rows) == 0 {
			continue
		}
		c := scans.Get().(*scan)
		c.begin(r, strings.Join(elements[first:], "\n"))
		words, at := c.keep[:0], 0
		for _, e := range elements[first:] {
			words = append(words, span{at, at + len(e)})
			at += len(e) + 1
		}
		c.keep = words
		for _, t := range rows {
			c.given(t, words)
		}
		for _, f := range c.later {
			for i, w := range words {
				if f.start >= w.lo && f.end <= w.hi {
					found, in = append(found, finding{f.start - w.lo, f.end - w.lo, Marker}), append(in, first+i)
				}
			}
		}
		c.begin(nil, "")
		scans.Put(c)
		return found, in
	}
	return nil, nil
}
