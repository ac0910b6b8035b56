package redact

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// hostile are pieces of text that, repeated, make a careless matcher look at everything
// again and again.
func hostile() map[string]string {
	units := map[string]string{
		"headers": "cookie: cookie ", "authorization": "Authorization: ", "authorization lines": "Authorization: \n",
		"bearer": "Authorization: Bearer ", "open objects": `"secret":{"`, "open arrays": `"secret":[`,
		"objects": `"secret":{"a":1},`, "key begins": "-----BEGIN PRIV" + "ATE KEY-----",
		"key begins with a body": "-----BEGIN PRIV" + "ATE KEY-----\nMIIEowIBAAKCAQEA",
		"key ends":               "-----END PRIV" + "ATE KEY-----", "dashes": "-----",
		"urls": "://a:", "urls of users": "://a:b@", "at signs": ":@", "urls in a line": "x://a:b/",
		"quotes":    `password="`,
		"one quote": `password='x `, "escaped quotes": `password=\"x `, "three quotes": `password="""x `,
		"flags": "curl -p -u -a -w ", "short p": " -p", "short u": " -u ", "long flags": " --password",
		"commands": "curl -u ", "echo": "echo x ", "echo pipe": "echo x | ", "sudo": "sudo -S ",
		"docker": "docker login ",
		"netrc":  "login password ", "tokens": "eyJeyJeyJ.", "token words": " eyJ",
		"prefixes":     "sk-sk-sk-gh" + "p_AIza",
		"prefix words": " sk-", "blocks": "password: |\n", "nested blocks": " password: |\n",
		"types": "password: str = ", "xml": "<password>", "html": "<td>password</td>", "basic": "bearer basic ",
		"arrays": "[[[[", "strings": `{"a":"`, "colours": "\x1b[31m", "escaped colours": `\x1b[31m`,
		"hexadecimal": `\x3d`,
		"printable":   "=3D", "percent": "%3D", "percent twice": "%253D", "entities": "&quot;", "ampersands": "&amp;",
		"unicode": `\u003d`, "backslashes": `\`, "double quotes": `"`, "single quotes": `'`, "brackets": "{}",
		"open brackets": "{",
		"is":            "password is ", "is for": "password for x is ", "table": "| password |",
		"table rows": "| password | x |\n",
		"csv":        "password,", "csv rows": "password,x\n", "dashed": "password-", "joined": "password_",
		"equal": "password=",
		"colon": "password:", "spaced": "password = ", "names": "name: password ", "pairs": `{"name":"password"},`,
		"values": "value: name: password ", "sql": "IDENTIFIED BY ", "dsn": "x:y@tcp(", "slashed dsn": "a@tcp(",
		"pgpass": "h:5432:", "webhook": "hooks.slack.com/services/",
		"as the": "x as the token ", "set to": "password set to ", "env": "ENV TOKEN x ", "hash": "$6$a", "spaces": " ",
		"line ends": "\n", "letters": "a", "digits": "7", "key": "_key=", "Key": "aKey: ", "pass": "pass ",
		"pwd": "pwd ",
		"pw":  " pw ", "auth": `auth":`,
		"seed": "seed phrase ", "finding": "password=hunter2 ", "findings": "password: Xk3qQ9xW7m\n",
		"github": "gh" + "p_" + mix40[:36] + " ", "coloured": "\x1b[31mpassword\x1b[0m=hunter2x ",
		"connection": ";pwd=",
		"signature":  "&sig=", "telegram": "1:AA", "mailchimp": "a-us1",
		"echo quotes": `echo "`, "here": "chpasswd <<<", "list": `"curl",`, "env arrows": "token -> ",
		"dots":        "token ...",
		"parentheses": "password (x): ", "assigned twice": "token: x = ",
	}
	for _, key := range DefaultKeys() {
		units["key "+key] = "my_" + key + " "
		units["key of "+key] = "my_" + key + ": "
	}
	for _, x := range rules {
		for i, l := range x.literals {
			if i < 4 {
				units[x.name+" "+l] = " " + l
			}
		}
	}
	return units
}

// ordinary is prose of n bytes, which does not repeat itself.
func ordinary(n int) string {
	rng := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields(benchProse[:len(benchProse)/12])
	var out strings.Builder
	for out.Len() < n {
		out.WriteString(words[rng.IntN(len(words))])
		out.WriteByte(" \n"[rng.IntN(16)/15])
	}
	return out.String()[:n]
}

// What makes a text costly is looking at it again. The bytes that are looked at besides
// the one pass over all of them are counted, so that the test does not depend on the
// machine: they grow with the text and not with its square, whatever it is.
func TestHostileTextIsLookedAtOnce(t *testing.T) {
	r := mustNew(t, Config{})
	work := func(text string) int {
		c := new(scan)
		c.begin(r, text)
		from := r.candidate(text)
		if from < 0 {
			return 0
		}
		c.all(from)
		return c.looked
	}
	for name, unit := range hostile() {
		text := func(size int) string { return strings.Repeat(unit, size/len(unit)) + "\x01" }
		small, large := work(text(64<<10)), work(text(256<<10))
		if large > 6*256<<10 || large > 5*small+64<<10 {
			t.Errorf("%s: %d bytes looked at again in 64 KiB, %d in 256 KiB", name, small, large)
		}
	}
}
