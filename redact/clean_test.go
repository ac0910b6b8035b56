package redact

import (
	"runtime/debug"
	"strings"
	"testing"
)

// cleanTexts hold no secret, though many speak of some.
var cleanTexts = map[string]string{
	"prose": `The password is required. Enter your password, then the token to use; the secret of good tests is patience.
A tokenizer splits text into tokens: max_tokens: 4096, prompt_tokens=120, "total_tokens": 350, token_count: 12, tokens per second: 88.
Use --token to pass one, or --password if it must be. Basic authentication and bearer tokens are supported. The API key must be set.
Passwords must have 12 characters. Token: invalid. Authorization: required. Password: required. The cookie banner is back.
See https://example.com/docs/authorization?page=2 and https://user@example.com/x. Cost per token: 0.000003. password: string`,
	"go": `package auth

type Config struct {
	Password string ` + "`json:\"password\"`" + `
	Token    string
	Secret   []byte
}

func (c *Config) Valid(token string) bool {
	password := c.Password
	secret := os.Getenv("APP_SECRET")
	if token == "" || c.Token != token {
		return errors.New("invalid token: " + token)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	log.Printf("password=%s token=%q", mask(password), token)
	tokens := strings.Fields(s)
	apiKey := flag.String("api-key", "", "the API key")
	url := fmt.Sprintf("postgres://%s:%s@%s/%s", user, password, host, name)
	return subtle.ConstantTimeCompare(secret, c.Secret) == 1
}
`,
	"python": `def login(user: str, password: str = None, *, token: Optional[str] = None) -> Session:
    api_key = os.environ["OPENAI_API_KEY"]
    client = OpenAI(api_key=api_key, organization=settings.ORG)
    session = connect(user=user, password=password, token=token, secret=config.secret)
    eos_token = "<|endoftext|>"
    tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
    if token == self.eof:
        raise AuthError(f"bad token: {token}")
    headers = {"Authorization": f"Bearer {token}", "Cookie": cookie_header}
`,
	"typescript": `interface Credentials { username: string; password: string; token?: string }
const apiKey = process.env.OPENAI_API_KEY ?? "";
const secret: string = config.get<string>("secret");
export const login = async ({ password, token }: Credentials) => api.post("/login", { password, token });
const headers = { Authorization: ` + "`Bearer ${token}`" + `, "X-Api-Key": apiKey };
`,
	"shell": `export GITHUB_TOKEN=${GITHUB_TOKEN}
export PASSWORD="$DB_PASSWORD" SECRET=$(cat /run/secrets/db)
curl -H "Authorization: Bearer $TOKEN" -u "$USER:$PASSWORD" https://example.com
mkdir -p /srv/data && ls -a && docker run -p 8080:80 -u 1000 nginx && mysql -u root -p db
git log --author=me -p -w; grep -rn "password" src/ | wc -l
`,
	"yaml": `env:
  - name: DB_PASSWORD
    valueFrom:
      secretKeyRef: {name: db, key: password}
  token: ${{ secrets.GITHUB_TOKEN }}
  secret: <your-secret>
  api_key: YOUR_API_KEY
  password: ""
  authorization: null
`,
	"git": `commit 5d41402abc4b2a76b9719d911017c592ae2f1c3d
Author: A B <a@example.com>
Date:   Mon Jan 1 00:00:00 2026 +0000

    Fix the token refresh (#42)

diff --git a/x.go b/x.go
index 83db48f..bf2a1c3 100644
--- a/x.go
+++ b/x.go
@@ -1,3 +1,3 @@ func token() {
`,
	"digests": `e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  empty.txt
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
github.com/google/go-cmp v0.7.0 h1:wk8382ETsv4JYUZwIsn6YpYiWiBsYLSJiTsyBGuHeJ8=
"integrity": "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg=="
550e8400-e29b-41d4-a716-446655440000 01ARZ3NDEKTSV4RRFFQ69G5FAV call_9b2e6d0c81f7a354 msg_01XFDUDYJgAACzvnptvVoYEL
traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
pip/_vendor/platformdirs/version.py,sha256=qaN-fw_htIgKUVXoAuAEVgKxQu3tZ9qE2eiKkWIS7LA,160
`,
	"image": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==" + strings.Repeat("QUJDREVGR0hJSktMTU5PUA", 40),
	"usage": `{"model":"gpt-5","usage":{"prompt_tokens":120,"completion_tokens":40,"total_tokens":160,` +
		`"prompt_tokens_details":{"cached_tokens":64},"token":160},"max_tokens":4096,"tokenizer":"o200k",` +
		`"next_page_token":"abcDEF123456789xyz","logprobs":{"tokens":["a","b"],"token":{"count":2}}}`,
	"schema": `{"name":"login","input_schema":{"type":"object","properties":{"password":{"type":"string",` +
		`"description":"The user's password"},"token":{"type":["string","null"]},"api_key":{"$ref":"#/defs/key"}},` +
		`"required":["password","token"]}}`,
	"empty": `{"password":"","token":null,"secret":false,"cookies":[],"authorization":{},"api_key":"__REDACTED__"}`,
	"trace": "Traceback (most recent call last):\n  File \"/app/auth.py\", line 12, in check_password\n    raise " +
		"InvalidToken(token)\nauth.InvalidToken: token expired\n\tat " +
		"com.example.TokenFilter.doFilter(TokenFilter.java:42)\n",
	"html": `<a href="#x" accesskey="n">next</a> <input type="password" name="password" id="password"> <label ` +
		`for="token">Token</label>`,
	"paths": "/etc/passwd: 12 lines\n/run/secrets/token\nC:\\tokens\\secret.txt\nsrc/token/password_test.go:12: ok\n",
	"css":   ".sk-estimator-doc-link { color: red } #sk-container-id-1 div.sk-toggleable__content {}",
	"redone": "password=__REDACTED__ key [redacted:github-token] postgres://u:[redacted:url-password]@h " +
		"Authorization: Bearer __REDACTED__ token: [redacted:jwt]",
}

func TestCleanTextStays(t *testing.T) {
	r := mustNew(t, Config{})
	for name, in := range cleanTexts {
		for i, line := range append(strings.SplitAfter(in, "\n"), in) {
			if got := r.Text(line); got != line {
				t.Errorf("%s, line %d:\n got %q\nfrom %q", name, i+1, got, line)
			}
			doc := asJSON(map[string]string{"output": line})
			if got := r.JSON([]byte(doc)); string(got) != doc {
				t.Errorf("%s, line %d in JSON:\n got %s\nfrom %s", name, i+1, got, doc)
			}
		}
	}
}

func TestCleanTextCostsNoAllocation(t *testing.T) {
	if raceEnabled {
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it empties the pool of scans
	r := mustNew(t, Config{MaxBytes: 1 << 20})
	doc := []byte(cleanTexts["usage"])
	for name, text := range cleanTexts {
		text = strings.Repeat(text+"\n", 8)
		if n := testing.AllocsPerRun(20, func() {
			r.Text(text)
			r.Value("output", text)
			r.JSON(doc)
			r.Truncate(text)
			r.Apply(ToolOutput, "output", text)
		}); n != 0 {
			t.Errorf("%s costs %v allocations", name, n)
		}
	}
}
