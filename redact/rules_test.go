package redact

import (
	b64 "encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

func mustNew(t testing.TB, cfg Config) *Redactor {
	t.Helper()
	r, err := New(cfg)
	testscale.Must(t, err)
	return r
}

// survives returns an 8-byte piece of the secret that is still in out, or "".
func survives(out, secret string) string {
	for i := 0; i+8 <= len(secret); i++ {
		if strings.Contains(out, secret[i:i+8]) {
			return secret[i : i+8]
		}
	}
	return ""
}

// rule returns the rule of the example's name, nil where it is of labels.
func (x *ruleExample) rule() *rule {
	for _, r := range rules {
		if r.name == x.name {
			return r
		}
	}
	return nil
}

// secretOf is the random part of an example.
func secretOf(x *ruleExample) string {
	parts := strings.Split(x.example, "|")
	switch x.name {
	case "mailchimp-key":
		return parts[0]
	case "private-key":
		return strings.ReplaceAll(strings.SplitN(parts[2], "-----END", 2)[0], "\n", "")
	}
	return parts[1]
}

func (x ruleExample) whole() string { return strings.ReplaceAll(x.example, "|", "") }

func TestRulesFindTheirExamples(t *testing.T) {
	r := mustNew(t, Config{DisableKeys: true})
	for i := range ruleExamples {
		x := &ruleExamples[i]
		rule := x.rule()
		if rule == nil {
			continue
		}
		in := x.whole()
		out := r.Text(in)
		if !strings.Contains(out, rule.marker) {
			t.Errorf("%s: Text(%q) = %q, want %s in it", x.name, in, out, rule.marker)
		}
		only := []string{}
		for _, y := range rules {
			if y != rule {
				only = append(only, y.name)
			}
		}
		if out := mustNew(t, Config{DisableKeys: true, DisableRules: []string{x.name}}).Text(in); strings.Contains(out,
			rule.marker) {
			t.Errorf("%s is off, yet Text(%q) = %q", x.name, in, out)
		}
		if x.name == "encoded-secret" {
			continue // they ask the others
		}
		if out := mustNew(t, Config{DisableKeys: true, DisableRules: only}).Text(in); !strings.Contains(out,
			rule.marker) {
			t.Errorf("%s alone: Text(%q) = %q", x.name, in, out)
		}
	}
}

func TestRulesLeaveWhatLooksAlike(t *testing.T) {
	r := mustNew(t, Config{})
	for i := range ruleExamples {
		x := &ruleExamples[i]
		for _, in := range x.not {
			if out := r.Text(in); out != in {
				t.Errorf("%s: Text(%q) = %q, want it unchanged", x.name, in, out)
			}
		}
	}
}

// places are the texts in which secrets turn up.
var places = map[string]func(secret string) string{
	"alone":           func(s string) string { return s },
	"prose":           func(s string) string { return "I tried it with " + s + ", and it failed. See the log" },
	"end of sentence": func(s string) string { return "The key is " + s + "." },
	"log line": func(s string) string {
		return "2026-01-02T03:04:05Z ERROR request failed auth=" + s + " status=401\n"
	},
	"quoted":          func(s string) string { return `client = Client("` + s + `")` },
	"env":             func(s string) string { return "export LINES=3\nexport VENDOR=" + s + "\necho done\n" },
	"yaml":            func(s string) string { return "vendor:\n  value: " + s + "\n  other: 1\n" },
	"ini":             func(s string) string { return "[vendor]\nvalue = " + s + "\nretries = 3\n" },
	"query":           func(s string) string { return "https://api.example.com/v1?page=2&v=" + s + "&x=1" },
	"escaped newline": func(s string) string { return `first line\n` + s + `\nlast line` },
	"markdown":        func(s string) string { return "Use `" + s + "` here" },
	"xml":             func(s string) string { return "<v>" + s + "</v>" },
	"header":          func(s string) string { return "GET / HTTP/1.1\r\nHost: x\r\nX-Vendor: " + s + "\r\n\r\n" },
	"curl header":     func(s string) string { return `curl -H "X-Vendor: ` + s + `" https://example.com` },
	"go panic": func(s string) string {
		return "panic: dial: bad key \"" + s + "\"\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:12 +0x1d\n"
	},
	"python traceback": func(s string) string {
		return "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    raise AuthError('" + s +
			"')\nAuthError: " + s + "\n"
	},
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestEveryRuleInEveryPlace(t *testing.T) {
	r := mustNew(t, Config{})
	for i := range ruleExamples {
		x := &ruleExamples[i]
		secret, whole := secretOf(x), x.whole()
		for place, wrap := range places {
			if (x.name == "command-password") && place != "prose" {
				continue // a command is not a value
			}
			text := wrap(whole)
			check := func(how, in, out string) {
				t.Helper()
				if piece := survives(out, secret); piece != "" {
					t.Errorf("%s in %s, %s: %q is left of it\nin:  %q\nout: %q", x.name, place, how, piece, in, out)
				}
				if again := r.Text(out); again != out {
					t.Errorf("%s in %s, %s: redacting again changes it\nonce:  %q\ntwice: %q", x.name, place, how, out,
						again)
				}
			}
			check("text", text, r.Text(text))
			once := asJSON(map[string]any{"n": 1, "note": text, "list": []string{"a", text}})
			twice := asJSON(map[string]string{"arguments": once})
			thrice := asJSON([]any{map[string]string{"body": twice}})
			for depth, in := range []string{once, twice, thrice} {
				out := r.JSON([]byte(in))
				check(fmt.Sprintf("JSON %d deep", depth), in, string(out))
				if !json.Valid(out) {
					t.Errorf("%s in %s: not JSON any more: %s", x.name, place, out)
				}
				check(fmt.Sprintf("text with JSON %d deep", depth), in, r.Text("got "+in+" back"))
			}
		}
	}
}

func TestPrivateKeysInAllTheirForms(t *testing.T) {
	lines := []string{"MIIEowIBAAKCAQEA" + mix40, mix40 + mix20, "Zx9+/" + mix40, "Qw8ertyU="}
	begin, end := "-----BEGIN RSA PRIV"+"ATE KEY-----", "-----END RSA PRIV"+"ATE KEY-----"
	body := strings.Join(lines, "\n")
	random := strings.Join(lines, "")
	for name, in := range map[string]string{
		"whole":           "a\n" + begin + "\n" + body + "\n" + end + "\nb",
		"escaped":         `{"k": "` + strings.ReplaceAll(begin+"\n"+body+"\n"+end, "\n", `\n`) + `\n"}`,
		"twice escaped":   `"{\"k\": \"` + strings.ReplaceAll(begin+"\n"+body+"\n"+end, "\n", `\\n`) + `\"}"`,
		"one line":        begin + " " + strings.Join(lines, " ") + " " + end,
		"indented":        "key: |\n    " + strings.ReplaceAll(begin+"\n"+body+"\n"+end, "\n", "\n    ") + "\nnext: 1",
		"no end":          begin + "\n" + body,
		"cut in a line":   begin + "\n" + lines[0] + "\n" + lines[1][:13],
		"cut, escaped":    begin + `\n` + strings.Join(lines[:2], `\n`) + `\n` + lines[2][:9],
		"cut, marked":     begin + "\n" + lines[0] + "\n" + lines[1][:23] + TruncatedMarker + "[1704 bytes]",
		"encrypted, cut":  begin + "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0F3A9C4E7B1D8265\n\n" + body,
		"in source code":  "const key = \"" + begin + "\\n\" +\n\t\"" + strings.Join(lines, "\\n\" +\n\t\"") + "\\n\"",
		"cut in the head": "-----BEGIN RSA PRIV" + "ATE KEY--",
	} {
		r := mustNew(t, Config{})
		out := r.Text(in)
		if piece := survives(out, random); piece != "" || !strings.Contains(out, Marker) &&
			!strings.Contains(out, "[redacted:private-key]") {
			t.Errorf("%s: %q is left\nin:  %q\nout: %q", name, piece, in, out)
		}
		if again := r.Text(out); again != out {
			t.Errorf("%s: not idempotent: %q, then %q", name, out, again)
		}
	}
	r := mustNew(t, Config{})
	in := begin + "\n" + body + "\nThe text goes on. And on."
	if out := r.Text(in); !strings.Contains(out, "goes on. And on.") {
		t.Errorf("text after a key without its end is gone: %q", out)
	}
}

func TestNothingIsLeftOfAVeryLongToken(t *testing.T) {
	secret := strings.Repeat("9fQ2x7Lk", 400)
	for _, text := range []string{"https://storage.googleapis.com/b/o?X-Goog-Signature=%s&x=1", "sk-ant-%s",
		"https://hooks.slack.com/services/%s end", "Cookie: session=%s; a=b", "X-Amz-Security-Token=%s", "Bearer %s"} {
		got := mustNew(t, Config{}).Text(strings.Replace(text, "%s", secret, 1))
		if strings.Contains(got, "9fQ2x7Lk") {
			t.Errorf("%s: %d bytes are left", text, len(got))
		}
	}
}

func TestTokensCutShort(t *testing.T) {
	r := mustNew(t, Config{})
	for _, prefix := range []string{"gh" + "p_", "sk-" + "proj-", "AI" + "za", "glp" + "at-"} {
		for n := 12; n < 30; n++ {
			for _, tail := range []string{"", "...", "…", TruncatedMarker + "[999 bytes]"} {
				out := r.Text("key " + prefix + mix40[:n] + tail)
				if piece := survives(out, mix40); piece != "" {
					t.Errorf("%s with %d bytes and %q: %q is left in %q", prefix, n, tail, piece, out)
				}
			}
		}
	}
}

func TestRuleTable(t *testing.T) {
	seen := map[string]bool{}
	for _, x := range rules {
		if seen[x.name] {
			t.Errorf("two rules are named %s", x.name)
		}
		seen[x.name] = true
		if x.about == "" || x.find == nil || !slices.ContainsFunc(ruleExamples, func(e ruleExample) bool {
			return e.name == x.name
		}) {
			t.Errorf("%s: description, example or matcher is missing", x.name)
		}
		for _, l := range x.literals {
			if len(l) < 3 {
				t.Errorf("%s: literal %q is shorter than three bytes", x.name, l)
			}
		}
	}
}

func TestEncodedTextIsRead(t *testing.T) {
	r := mustNew(t, Config{})
	for _, plain := range []string{"PASSWORD=" + password, "export DB_PASSWORD='" + password + "'\n",
		`{"api_key":"` + mix40 + `"}`, "user=a\nsecret=" + mix20 + "\n", "TOKEN=" + mix40} {
		for _, before := range []string{"", "x", "xy"} {
			text := b64.StdEncoding.EncodeToString([]byte(before + "\n" + plain))
			if out := r.Text("echo " + text + " | base64 -d > .env"); strings.Contains(out, text[len(text)/2:]) {
				t.Errorf("%q: %s", before+plain, out)
			}
		}
	}
	for _, label := range []string{`\u5bc6\u7801\uff1a`, "=E5=AF=86=E7=A0=81=EF=BC=9A", "%D0%BF%D0%B0%D1%80%D0%BE%D0%BB%D1%8C%3D"} {
		if out := r.Text(label + password); out != label+Marker { // the text begins with an escape
			t.Errorf("%s: %s", label, out)
		}
	}
	for _, plain := range []string{"the password is required", "max_tokens=4096 and more text",
		"password: ${PASSWORD}"} {
		text := "data " + b64.StdEncoding.EncodeToString([]byte(plain))
		if out := r.Text(text); out != text {
			t.Errorf("%s: %s", text, out)
		}
	}
}

const (
	hex32 = "0f3a9c4e7b1d8265" + "e4a70b9d3c5f1826"
	hex64 = hex32 + "9b2e6d0c81f7a354" + "7c1e93d05ab8f246"
	mix20 = "aZ3kQ9xW7mB2" + "vN5tL8rD"
	mix40 = mix20 + "hF4jY6cP1sG0uE9oK3iX"
	caps  = "Q7ZL3MXK5RVN" + "2TWB"
)

type ruleExample struct {
	name, example string
	not           []string
}

// ruleExamples are those of testdata/rules.txt.
var ruleExamples = func() (all []ruleExample) {
	b, err := os.ReadFile("testdata/rules.txt")
	if err != nil {
		panic(err)
	}
	pairs := []string{"␤", "\n"}
	for kind, sample := range map[string]string{"m": mix40, "h": hex64, "c": caps} {
		for n := range len(sample) + 1 {
			pairs = append(pairs, fmt.Sprintf("«%s%d»", kind, n), sample[:n])
		}
	}
	text := strings.NewReplacer(pairs...).Replace(strings.ReplaceAll(strings.TrimSpace(string(b)), "\n", "\x00"))
	for line := range strings.SplitSeq(text, "\x00") {
		if column := strings.Split(line, "\t"); line[0] != '#' {
			all = append(all, ruleExample{column[0], column[1], column[2:]})
		}
	}
	return all
}()

// TestLoginCutBeforeItsHost: the password of a URL that was cut before its host is redacted.
func TestLoginCutBeforeItsHost(t *testing.T) {
	r := mustNew(t, Config{})
	for _, cut := range []string{"", "[truncated]", "..."} {
		if got := r.Text("connecting to postgres://app:quartzhazel29" + cut); strings.Contains(got, "quartz") {
			t.Errorf("%q is left", got)
		}
	}
}
