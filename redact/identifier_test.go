package redact

import (
	"strings"
	"testing"
)

// Identifiers stay apart, stay the same, and do not confirm a guess.
func TestIdentifier(t *testing.T) {
	r, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
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
	// Nobody hides a secret by a tag of their own.
	if out := r.Identifier(token + "~0123456789abcdef"); strings.Contains(out, mix40[:12]) {
		t.Errorf("got %q", out)
	}
	if got := (*Redactor)(nil).Identifier(token); got != token {
		t.Errorf("without a redactor: %q", got)
	}
}
