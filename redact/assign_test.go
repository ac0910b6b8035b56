package redact

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

const password = "tr0ub4dor" + "-Zx81-kestrel"

// passwords returns the texts of a file that have the password.
func passwords(t testing.TB, name string) (texts []string) {
	b, err := os.ReadFile("testdata/corpus/" + name)
	testscale.Must(t, err)
	text := strings.NewReplacer("␤", "\n", "␍", "\r", "‹password›", password, "‹mix›", mix40[:36], "\n", "\x00").
		Replace(string(b))
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\x00"), "\x00") {
		if line[0] != '#' {
			texts = append(texts, line)
		}
	}
	return texts
}

func TestAssignmentsInText(t *testing.T) {
	r := mustNew(t, Config{})
	for _, in := range passwords(t, "assignments.txt") {
		out := r.Text(in)
		secret := password
		if strings.Contains(in, "dXNlcjp") {
			secret = in[strings.Index(in, "dXNlcjp"):]
		}
		if piece := survives(out, secret); piece != "" {
			t.Errorf("%q is left\nin:  %q\nout: %q", piece, in, out)
		}
		if again := r.Text(out); again != out {
			t.Errorf("redacting again changes it\nin:    %q\nonce:  %q\ntwice: %q", in, out, again)
		}
		// The same where tools put it: a command line in the arguments of a call.
		for _, doc := range []string{asJSON(map[string]string{"command": in}),
			asJSON(map[string]string{"arguments": asJSON(map[string]string{"command": in})})} {
			got := r.JSON([]byte(doc))
			if piece := survives(string(got), secret); piece != "" || !json.Valid(got) {
				t.Errorf("JSON: %q is left\nin:  %s\nout: %s", piece, doc, got)
			}
			if again := r.JSON(got); string(again) != string(got) {
				t.Errorf("JSON: redacting again changes it: %s, then %s", got, again)
			}
		}
	}
}

func TestWhatStandsAroundStaysReadable(t *testing.T) {
	r := mustNew(t, Config{})
	texts := passwords(t, "around.txt")
	for i := 0; i < len(texts); i += 2 {
		in, want := texts[i], texts[i+1]
		if got := r.Text(in); got != want {
			t.Errorf("Text(%q)\n got %q\nwant %q", in, got, want)
		}
	}
}

func TestKeys(t *testing.T) {
	r := mustNew(t, Config{AllowKeys: []string{"public_token"}})
	for _, key := range []string{
		"token", "Token", "TOKEN", "access_token", "accessToken", "x-auth-token", "X-Auth-Token", "authToken",
		"authtoken", "GITHUB_TOKEN", "refresh.token", "idToken", "session_token",
		"password", "user_password", "userPassword", "DBPassword", "PGPASSWORD", "passwords", "password2", "api_key",
		"apiKey", "APIKey", "apikey", "X-API-Key", "OPENAI_API_KEY", "api-key", "apiKeys", "api.key", "DD_API_KEY",
		"authorization", "Proxy-Authorization", "cookie", "Set-Cookie", "cookies", "secret", "client_secret",
		"clientSecret", "SecretAccessKey", "aws_secret_access_key", "secrets", "private_key", "privateKey",
		"AccountKey", "credential", "credentials", "passphrase",
	} {
		if got := r.Value(key, "hunter2value"); got != Marker {
			t.Errorf("Value(%q) = %q, want it redacted", key, got)
		}
	}
	for _, key := range []string{
		"tokens", "tokenizer", "max_tokens", "maxTokens", "prompt_tokens", "input_tokens", "total_tokens",
		"token_count", "tokenCount", "token_type", "next_page_token", "nextPageToken", "eos_token", "tokenize",
		"detoken", "password_length", "secret_name", "api_key_id", "access_key_id", "cookie_name", "authorization_url",
		"authorization_endpoint", "passwordless", "secretary", "keyboard", "author", "public_token", "publicToken", "",
	} {
		if got := r.Value(key, "hunter2value"); got != "hunter2value" {
			t.Errorf("Value(%q) = %q, want it unchanged", key, got)
		}
	}
	if got := r.Value("token", "4096"); got != "4096" {
		t.Errorf("a number of tokens became %q", got)
	}
	if got := r.Value("password", "4096"); got != Marker {
		t.Errorf("a password of digits stayed: %q", got)
	}
	own := mustNew(t, Config{Keys: []string{"ssn", "national-id"}})
	for key, want := range map[string]string{"ssn": Marker, "user_ssn": Marker, "nationalId": Marker, "password": "x1",
		"session": "x1"} {
		if got := own.Value(key, "x1"); got != want {
			t.Errorf("with keys of one's own, Value(%q) = %q, want %q", key, got, want)
		}
	}
	if got := own.Text("SSN: 078-05-1120 and ssn=078051120"); strings.Contains(got, "1120") {
		t.Errorf("keys of one's own in text: %q", got)
	}
}

func TestConfigErrors(t *testing.T) {
	for _, cfg := range []Config{{Keys: []string{"pw"}}, {Keys: []string{"pass word"}}, {Keys: []string{"---"}},
		{Keys: []string{"ключ"}}, {MaxBytes: 5}, {MaxBytes: -1}, {MaxDepth: -1}, {DisableRules: []string{"nope"}}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("New(%+v) succeeded", cfg)
		}
	}
}
