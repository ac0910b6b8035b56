package collector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/extension/sessionview"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
	"github.com/agenttrace/agenttrace/session/web"
)

// keyOf is the header that has the key of a collector's user.
func keyOf(t *testing.T, r *Running) string {
	t.Helper()
	key, err := sessionview.Key(r.Store())
	testscale.Must(t, err)
	return "Bearer " + key
}

// ask sends a request for the name of the store.
func ask(t *testing.T, endpoint string, header map[string]string) (status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+endpoint+web.Prefix+"store/Name",
		strings.NewReader("[]"))
	testscale.Must(t, err)
	req.Header.Set("Content-Type", "application/json")
	for key, value := range header {
		if req.Header.Set(key, value); key == "Host" {
			req.Host = value
		}
	}
	resp, err := http.DefaultClient.Do(req)
	testscale.Must(t, err)
	resp.Body.Close()
	return resp.StatusCode
}

// A page in a browser on this machine can neither read sessions nor change them.
func TestPagesOfOtherOriginsCannotReachSessions(t *testing.T) {
	clean(t)
	r := started(t, Options{Store: filepath.Join(t.TempDir(), "s.db")})
	defer func() { _ = r.Shutdown(t.Context()) }()
	for _, test := range []struct {
		header map[string]string
		want   int
	}{
		{nil, 200},
		{map[string]string{"Host": "localhost:4320"}, 200},
		{map[string]string{"Host": "evil.example:4320"}, 403},
		{map[string]string{"Host": "evil.example", "Origin": "http://evil.example"}, 403},
		{map[string]string{"Origin": "http://evil.example"}, 403},
		{map[string]string{"Origin": "http://localhost:3000"}, 403},
		{map[string]string{"Origin": "null"}, 403},
		{map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{map[string]string{"Origin": "http://" + r.ViewEndpoint()}, 200},
	} {
		if test.header == nil {
			test.header = make(map[string]string)
		}
		test.header["Authorization"] = keyOf(t, r)
		if got := ask(t, r.ViewEndpoint(), test.header); got != test.want {
			t.Errorf("a request with %v is answered with %d, want %d", test.header, got, test.want)
		}
	}
}

// Only the user reaches the socket beside the store, which a collector that was killed leaves behind.
func TestSocketBesideTheStore(t *testing.T) {
	clean(t)
	path := filepath.Join(t.TempDir(), "s.db")
	if l, err := net.Listen("unix", path+".sock"); err != nil { // of a collector that was killed
		t.Fatal(err)
	} else {
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		l.Close()
	}
	r := started(t, Options{Store: path})
	socket := stores.Socket(path)
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 || info.Mode().Type() != os.ModeSocket {
		t.Errorf("the socket %s is %v, %v, want one of mode 0600", socket, info, err)
	}
	c, err := web.Dial(t.Context(), "unix://"+socket, "")
	testscale.Must(t, err)
	if c.Name() != path {
		t.Errorf("the store is %s", c.Name())
	}
	testscale.Must(t, r.Shutdown(context.WithoutCancel(t.Context())))
	if _, err := c.Session(t.Context(), "ses_1"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("after the collector has stopped: %v", err)
	}
	if _, err := os.Lstat(socket); err == nil {
		t.Error("the collector has left its socket")
	}
}

// A store in a deep directory has a socket too.
func TestSocketOfLongPath(t *testing.T) {
	clean(t)
	t.Setenv("TMPDIR", "/tmp")
	path := filepath.Join(t.TempDir(), strings.Repeat("d", 120), "s.db")
	r := started(t, Options{Store: path})
	defer func() { _ = r.Shutdown(t.Context()) }()
	c, err := web.Dial(t.Context(), "unix://"+stores.Socket(path), "")
	testscale.Must(t, err)
	c.Close()
}

// A configuration that lets other machines read every session is refused, with the lines to add.
func TestViewOfOtherMachinesNeedsAuthenticator(t *testing.T) {
	clean(t)
	for _, endpoint := range []string{"0.0.0.0:4320", ":4320", "collector.example:4320", "[::]:4320"} {
		err := Validate(t.Context(), viewing(endpoint, "no_socket: true", filepath.Join(t.TempDir(), "s.db")))
		if err == nil || !strings.Contains(err.Error(), "auth: {authenticator: bearertokenauth}") ||
			!strings.Contains(err.Error(), endpoint) {
			t.Errorf("%s: error %v, want one with the lines to add", endpoint, err)
		}
	}
	endpoint := testscale.MustAddress()
	viewed(t, strings.Replace(endpoint, "127.0.0.1", "0.0.0.0", 1),
		"no_socket: true, auth: {authenticator: bearertokenauth}")
	for token, want := range map[string]int{"": 401, "Bearer wrong": 401, "Bearer secret": 200} {
		header := map[string]string{}
		if token != "" {
			header["Authorization"] = token
		}
		if got := ask(t, endpoint, header); got != want {
			t.Errorf("a request with the token %q is answered with %d, want %d", token, got, want)
		}
	}
	c, err := web.Dial(t.Context(), "http://"+endpoint, "secret")
	testscale.Must(t, err)
	c.Close()
	if _, err := web.Dial(t.Context(), "http://"+endpoint, ""); err == nil ||
		!strings.Contains(err.Error(), "AGENTTRACE_TOKEN") {
		t.Errorf("without a token: error %v, want one that names AGENTTRACE_TOKEN", err)
	}
}

// viewing is a collector that has session_view with settings.
func viewing(endpoint, settings, store string) Options {
	return Options{Config: []string{fmt.Sprintf(`yaml:
extensions:
  bearertokenauth: {token: secret}
  session_view: {endpoint: %q, %s}
receivers: {otlp: {protocols: {grpc: {endpoint: "localhost:0"}}}}
exporters: {session: {path: %q}}
service:
  telemetry: {metrics: {level: none}}
  extensions: [bearertokenauth, session_view]
  pipelines: {traces: {receivers: [otlp], exporters: [session]}}
`, endpoint, settings, store)}}
}

// viewed starts such a collector, and returns the path of its store.
func viewed(t *testing.T, endpoint, settings string) (store string) {
	t.Helper()
	store = filepath.Join(t.TempDir(), "s.db")
	r := started(t, viewing(endpoint, settings, store))
	t.Cleanup(func() { _ = r.Shutdown(context.WithoutCancel(t.Context())) })
	return store
}

// A page of an origin that either setting allows asks whether it may read, reads with a token, and changes nothing.
func TestPagesOfAllowedOriginsRead(t *testing.T) {
	clean(t)
	const origin, origins = "https://my.app.example", `allowed_origins: ["https://*.app.example"]`
	for _, settings := range []string{origins, "cors: {" + origins + "}"} {
		for _, auth := range []string{"", ", auth: {authenticator: bearertokenauth}"} {
			endpoint, token := testscale.MustAddress(), "Bearer secret"
			if store := viewed(t, endpoint, settings+auth); auth == "" {
				key, err := sessionview.Key(store)
				testscale.Must(t, err)
				token = "bearer " + key
			}
			for _, c := range []struct {
				method, origin, token string
				want                  int
			}{
				{"OPTIONS", origin, "", 204}, {"GET", origin, token, 200}, {"GET", origin, "", 401},
				{"GET", origin, "Bearer wrong", 401}, {"DELETE", origin, token, 403},
				{"POST", origin, token, 403}, {"OPTIONS", "https://evil.example", "", 403},
				{"GET", "https://evil.example", token, 403},
			} {
				answer, body := request(t, c.method, "http://"+endpoint+web.Prefix+"sessions", "Origin", c.origin, "Authorization", c.token,
					"Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "authorization")
				h := answer.Header
				if shared := h.Get("Access-Control-Allow-Origin"); answer.StatusCode != c.want ||
					(shared == origin) != (c.want != 403) || c.method == "OPTIONS" && c.want == 204 &&
					h.Get("Access-Control-Allow-Headers") != "authorization" || c.want == 401 &&
					(h.Get("WWW-Authenticate") != "Bearer" || !strings.Contains(body, `"code":"unauthorized"`) ||
						h.Get("Content-Type") != "application/problem+json") {
					t.Errorf("%s%s: %+v: %d %v %s", settings, auth, c, answer.StatusCode, h, body)
				}
			}
		}
	}
}

// Where an authenticator wants a token, a browser asks its user for it once, and comes to the page that was asked for.
func TestBrowserSignsInWithToken(t *testing.T) {
	clean(t)
	endpoint := testscale.MustAddress()
	base := "http://" + endpoint
	viewed(t, endpoint, "no_socket: true, auth: {authenticator: bearertokenauth}")
	jar, err := cookiejar.New(nil)
	testscale.Must(t, err)
	browser := &http.Client{Jar: jar}
	do := func(method, path, origin string, form url.Values) (status int, at, body string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(form.Encode()))
		testscale.Must(t, err)
		req.Header.Set("Accept", "text/html,application/xhtml+xml")
		if method == http.MethodPost {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			req.Header.Set("Origin", origin)
		}
		resp, err := browser.Do(req)
		testscale.Must(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		testscale.Must(t, err)
		return resp.StatusCode, resp.Request.URL.RequestURI(), string(b)
	}
	const asked = "/sign-in?to=%2Fsessions%3Fq%3Dx"
	status, at, body := do("GET", "/sessions?q=x", "", nil)
	if status != 200 || at != asked || !strings.Contains(body, "Token") {
		t.Fatalf("without a token: %d at %s", status, at)
	}
	for _, test := range []struct {
		name, token, to, origin string
		status                  int
		at                      string
	}{
		{"a wrong token", "wrong", "/sessions?q=x", base, 401, "/sign-in"},
		{"no token", " ", "/", base, 400, "/sign-in"},
		{"two lines", "a\nb", "/", base, 400, "/sign-in"},
		{"a form of another site", "secret", "/", "http://evil.example", 403, "/sign-in"},
	} {
		if status, at, _ := do("POST", "/sign-in", test.origin,
			url.Values{"token": {test.token}, "to": {test.to}}); status !=
			test.status || at != test.at {
			t.Errorf("%s: %d at %s, want %d at %s", test.name, status, at, test.status, test.at)
		}
	}
	if status, at, _ := do("GET", "/sessions?q=x", "", nil); status != 200 || at != asked {
		t.Fatalf("after that: %d at %s, want the form again", status, at)
	}
	form := url.Values{"token": {"secret"}, "to": {"/sessions?q=x"}}
	status, at, body = do("POST", "/sign-in", base, form)
	if status != 200 || at != "/sessions?q=x" || !strings.Contains(body, "Sign out") {
		t.Fatalf("with the token: %d at %s", status, at)
	}
	for _, to := range []string{"http://evil.example/", "//evil.example/", "/\\evil.example", "evil"} {
		if _, at, _ := do("POST", "/sign-in", base, url.Values{"token": {"secret"}, "to": {to}}); at != "/sessions" {
			t.Errorf("signing in on the way to %q leads to %s", to, at)
		}
	}
	for _, c := range jar.Cookies(&url.URL{Scheme: "http", Host: "127.0.0.1"}) {
		if strings.Contains(c.Value, "secret") {
			t.Errorf("the cookie %s shows the token", c.Name)
		}
	}
	// A program gets the status, not a page.
	if got := ask(t, endpoint, nil); got != 401 {
		t.Errorf("a program without a token is answered with %d", got)
	}
	if status, at, _ := do("POST", "/sign-out", base, nil); status != 200 || at != "/sign-in" {
		t.Errorf("signing out: %d at %s", status, at)
	}
	if _, at, _ := do("GET", "/sessions?q=x", "", nil); at != asked {
		t.Errorf("after signing out the page is at %s", at)
	}
}

// A second collector of a user stores sessions although the first has the port for readers.
func TestSecondCollectorWithoutThePortOfReaders(t *testing.T) {
	clean(t)
	dir := t.TempDir()
	for _, name := range []string{"a.db", "b.db"} {
		r := started(t, Options{Store: filepath.Join(dir, name), ViewEndpoint: "localhost:4320"})
		defer func() { _ = r.Shutdown(t.Context()) }()
		c, err := web.Dial(t.Context(), "unix://"+stores.Socket(filepath.Join(dir, name)), "")
		testscale.Must(t, err)
		c.Close()
	}
}
