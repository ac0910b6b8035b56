package redact

import (
	"encoding/json"
	"strings"
	"testing"
)

const password = "tr0ub4dor" + "-Zx81-kestrel"

func TestAssignmentsInText(t *testing.T) {
	r := mustNew(t, Config{})
	for _, in := range []string{
		"password=" + password, "PASSWORD=" + password, "export DB_PASSWORD=" + password + "\nls",
		"DATABASE_PASSWORD='" + password + "'",
		"password: " + password, "password:    \"" + password + "\"", "  passwd: '" + password + "' # mine",
		"db.password = " + password, "password := \"" + password + "\"",
		"--password " + password, "--password=" + password, "tool --api-key " + password + " run",
		"tool --api-key=" + password + " run", "tool -password " + password,
		"--token '" + password + "'", "deploy --client-secret \"" + password + "\" --yes", "TOKEN=" + password,
		"export TOKEN=" + password + "; run", "GITHUB_TOKEN=" + password + " gh pr list",
		"PGPASSWORD=" + password + " psql", "{'password': '" + password + "'}", "password=\"" + password + "\"",
		`{"password":"` + password + `"`, `x {\"password\":\"` + password + `\"} y`,
		`y {\\\"password\\\": \\\"` + password + `\\\"}`,
		"Authorization: Bearer " + password, "authorization: token " + password, "curl -H \"Authorization: Bearer " +
			password + "\" https://x.example", "curl -H 'X-Api-Key: " + password + "' https://x.example",
		"Cookie: sid=" + password + "; theme=dark", "Set-Cookie: sid=" + password + "; Path=/",
		"X-Api-Key: " + password + "\r\nHost: x",
		"Proxy-Authorization: Basic " + "dXNlcjp0cjB1YjRkb3ItWng4MS1rZXN0cmVs",
		"curl -u admin:" + password + " https://x.example", "curl --user admin:" + password + " https://x.example",
		"curl -sSLu admin:" + password + " https://x.example", "mysql -u root -p" + password + " db",
		"sshpass -p " + password + " ssh h", "sshpass -p '" + password + "' ssh h",
		"docker login -u me -p " + password + " reg.example", "redis-cli -h h -a " + password + " ping",
		"mongosh -u a -p " + password, "ldapsearch -D cn=a -w " + password + " x",
		"https://x.example/cb?access_token=" + password + "&state=1", "https://x.example/?api_key=" + password,
		"https://x.example/#access_token=" + password, "redirect=https%3A%2F%2Fx.example%2F%3Ftoken%3D" + password,
		`https://x.example/?a=1\u0026token=` + password, "postgres://app:" + password + "@db:5432/main",
		"redis://:" + password + "@cache:6379", "mongodb+srv://u:" + password + "@c.example/x?y=z",
		"amqp://guest:" + password + "@h/", `https:\/\/u:` + password + `@h.example\/x`,
		"machine h login me password " + password, "machine h\n  login me\n  password " + password + "\n",
		"Server=h;User Id=sa;Password=" + password + ";Encrypt=yes", "Server=h;Uid=sa;Pwd=" + password + ";",
		"<password>" + password + "</password>", `<add key="Password" value="` + password + `" />`,
		`os.environ["API_KEY"] = "` + password + `"`, `headers['Authorization'] = 'Bearer ` + password + `'`,
		`.header("X-Api-Key", "` + password + `")`, `["--password", "` + password + `"`,
		"password: |\n  " + password + "\n  " + password + "\nuser: me", "the password is " + password + ".",
		"password: str = \"" + password + "\"", "secret = b'" + password + "'", "'password' => '" + password + "',",
		"apiKey: '" + password + "',", "clientSecret: \"" + password + "\"",
		"aws_secret_access_key = wJalrXUtnFEMI" + "tr0ub4dor-Zx81", "//registry.npmjs.org/:_authToken=" + password,
		"_password=" + password, "spring.datasource.password=" + password,
		"error: login failed (password=" + password + ")", "RuntimeError: bad api key: " + password,
		"password=p@ss," + password + ";x", "credentials: " + password,
		"passphrase: \"correct horse " + password + "\"",
	} {
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
	for in, want := range map[string]string{
		"export TOKEN=" + password + "; run":    "export TOKEN=__REDACTED__; run",
		"--password " + password + " --verbose": "--password __REDACTED__ --verbose",
		"curl -u admin:" + password +
			" https://x.example": "curl -u admin:[redacted:command-password] https://x.example",
		"postgres://app:" + password + "@db:5432/main": "postgres://app:[redacted:url-password]@db:5432/main",
		"https://x.example/cb?access_token=" + password +
			"&state=1": "https://x.example/cb?access_token=__REDACTED__&state=1",
		"curl -H \"Authorization: Bearer " + password +
			"\" https://x": "curl -H \"Authorization: Bearer __REDACTED__\" https://x",
		"Host: a\r\nX-Api-Key: " + password +
			"\r\nAccept: */*\r\n": "Host: a\r\nX-Api-Key: __REDACTED__\r\nAccept: */*\r\n",
		"use gh" + "p_" + mix40[:36] + ", please":          "use [redacted:github-token], please",
		"login(user=me, password='" + password + "', n=1)": "login(user=me, password='__REDACTED__', n=1)",
		`{"a":"x","password":"` + password + `","b":2}`:    `{"a":"x","password":"__REDACTED__","b":2}`,
		`{"cmd": ["psql", "--password", "` + password +
			`", "-l"]}`: `{"cmd": ["psql", "--password", "__REDACTED__", "-l"]}`,
		`["curl","-s","-u","me:` + password + `","https://x"]`: `["curl","-s","-u","me:__REDACTED__",` +
			`"https://x"]`,
		`event: {"cookies": {"sid": "` + password + `"}, "n": 1} end`: `event: {"cookies": "__REDACTED__", "n": 1} end`,
	} {
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

// A name that ends in "value", as that of a setting does, once ended the process.
func TestNameOfASettingThatContainsValue(t *testing.T) {
	r := mustNew(t, Config{})
	for _, in := range []string{"name: password_value, and so on", "- name: secretValue\n  other: 1\n",
		"name: tokenValue",
		"key: api_key_value_2 and", `{"a":"name: clientSecretValue"}`} {
		if out := r.Text(in); out != in {
			t.Errorf("Text(%q) = %q, want it unchanged", in, out)
		}
	}
	in := "- name: DB_PASSWORD_VALUE\n  value: " + password + "\n- name: secretValue\n  value: " + password + "\n"
	if out := r.Text(in); survives(out, password) != "" {
		t.Errorf("Text(%q) = %q", in, out)
	}
}
