package redact

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/spans"
)

func TestARedactedIdentifierIsNoSecretInAText(t *testing.T) {
	r := mustNew(t, Config{})
	for _, s := range []string{"extra-index-url=https://__token__:pypi-AgEIcHlwaS5vcmcCJ" + mix40,
		"x password=hunter2swordfish", "password: hunter2swordfish", "the password is hunter2swordfish",
		"Authorization: Basic dXNlcjpodW50ZXIyc3dvcmRmaXNo", "api_key=ghp_" + mix40[:36]} {
		id := r.Identifier(s)
		for _, text := range []string{id, `{"error":"` + id + `"}`, "see " + id} {
			if out := r.Text(text); id == "" || id == s || out != text {
				t.Errorf("%q becomes %q", text, out)
			}
		}
	}
}

// Identifiers stay apart, stay the same, and do not confirm a guess.
func TestIdentifier(t *testing.T) {
	r, err := New(Config{})
	testscale.Must(t, err)
	token := "ghp_" + mix40[:36]
	seen := make(map[string]string)
	for _, s := range []string{
		"ses_1", "coder", "", "call-" + token, "call-" + token[:39] + "9", token, "x password=hunter2swordfish",
		"x password=hunter3swordfish",
		"postgres://app:hunter2@db/main", "postgres://app:hunter3@db/main", `{"password":"hunter2"}`,
		`{"password":"hunter3"}`,
	} {
		out := r.Identifier(s)
		if other, taken := seen[out]; taken {
			t.Errorf("%q and %q both become %q", s, other, out)
		}
		seen[out] = s
		if again := r.Identifier(out); again != out {
			t.Errorf("%q becomes %q, and that %q", s, out, again)
		}
		if r.Identifier(s) != out {
			t.Errorf("%q does not always become %q", s, out)
		}
		if strings.Contains(out, "hunter") || strings.Contains(out, mix40[:12]) {
			t.Errorf("%q becomes %q", s, out)
		}
		if r.words(s) == s && out != s {
			t.Errorf("%q is clean, and becomes %q", s, out)
		}
	}
	if got, want := r.Identifier("call-"+token), "call-[redacted:github-token]~"; !strings.HasPrefix(got, want) ||
		len(got) != len(want)+16 {
		t.Errorf("got %q", got)
	}
	// The tag of a token is the same on any machine, that of a password is not.
	if !unguessable(token, r.words(token)) || unguessable("pw postgres://app:hunter2@db/main",
		r.Text("pw postgres://app:hunter2@db/main")) ||
		unguessable("password=hunter2swordfish", r.Text("password=hunter2swordfish")) {
		t.Error("what can be guessed is taken for what cannot, or the reverse")
	}
	// Who guesses a password cannot compute its tag.
	guess := hmac.New(sha256.New, nil)
	guess.Write([]byte("agenttrace identifier\x00postgres://app:hunter2@db/main"))
	if out := r.Identifier("postgres://app:hunter2@db/main"); strings.HasSuffix(out,
		hex.EncodeToString(guess.Sum(nil))[:tagLength]) {
		t.Errorf("%s has a digest without a key", out)
	}
	// Nobody hides a secret by a tag of their own.
	if out := r.Identifier(token + "~0123456789abcdef"); strings.Contains(out, mix40[:12]) {
		t.Errorf("got %q", out)
	}
	if got := (*Redactor)(nil).Identifier(token); got != token {
		t.Errorf("without a redactor: %q", got)
	}
}

// beginsLonger reports whether a literal of more than n bytes is at the beginning of s.
func beginsLonger(s string, n int) bool {
	return slices.ContainsFunc(rules, func(x *rule) bool {
		return slices.ContainsFunc(x.literals, func(l string) bool { return len(l) > n && strings.HasPrefix(s, l) })
	})
}

// A random id begins like a token now and then, and is none.
func TestIDsThatBeginLikeATokenStay(t *testing.T) {
	const (
		decimal = "0123456789"
		lower   = "abcdefghijklmnopqrstuvwxyz"
		upper   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	)
	r := mustNew(t, Config{})
	random := rand.New(rand.NewPCG(1, 2))
	for name, id := range map[string]struct {
		alphabet string
		length   int
	}{
		"span":         {decimal + "abcdef", 16},
		"trace or MD5": {decimal + "abcdef", 32},
		"SHA-1":        {decimal + "abcdef", 40},
		"SHA-256":      {decimal + "abcdef", 64},
		"cuid2":        {decimal + lower, 24},
		"rand.Text":    {"234567" + upper, 26},
		"ULID":         {decimal + "ABCDEFGHJKMNPQRSTVWXYZ", 26},
		"KSUID":        {decimal + upper + lower, 27},
		"our own":      {decimal + upper + lower, 26},
		"Anthropic":    {decimal + upper + lower, 22},
	} {
		for _, x := range rules {
			for _, literal := range x.literals {
				chance := math.Pow(float64(len(id.alphabet)), -float64(len(literal)))
				if chance < 1e-6 || strings.Trim(literal, id.alphabet) != "" {
					continue
				}
				for range 100 {
					s := []byte(literal)
					for len(s) < id.length {
						s = append(s, id.alphabet[random.IntN(len(id.alphabet))])
					}
					in := string(s)
					if beginsLonger(in, len(literal)) {
						continue
					}
					if out := r.Identifier("ses_" + in); out != "ses_"+in {
						t.Errorf("the id ses_%s of the kind %q becomes %s", in, name, out)
						break
					}
					if out := r.Text("id " + in); out != "id "+in {
						t.Errorf("the id %s of the kind %q becomes %s in a text", in, name, out)
						break
					}
				}
			}
		}
	}
}

// A random id ends like the name of a password now and then, and is none.
func TestIDsThatEndLikeANameStay(t *testing.T) {
	r := mustNew(t, Config{})
	for i := range 20_000 {
		id := spans.NewID(spans.PrefixSession, time.Now())
		name := [...]string{"Mdp", "MDP", "PUK", "TAN", "PIN", "Pw", "Pwd", "Psk"}[i%8]
		id = id[:len(id)-len(name)-i%3] + name + id[len(id)-i%3:]
		text := `{"toolCallId":"` + id + `","toolName":"bash"}`
		if out := r.Identifier(id); out != id || r.Text(text) != text {
			t.Errorf("Identifier(%q) = %q, Text(%q) = %q", id, out, text, r.Text(text))
		}
	}
}
