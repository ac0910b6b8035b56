package collector

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/extension/sessionview"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store/stores"
	"github.com/agenttrace/agenttrace/session/web"
)

// request sends a request, and returns the answer to it and what that has.
func request(t *testing.T, method, address string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	testscale.Must(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultTransport.RoundTrip(req) // which follows no redirect
	testscale.Must(t, err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	testscale.Must(t, err)
	return answer, string(b)
}

// Whoever reaches the port of a collector on this machine reads and changes nothing without the key of its user, which
// no log has.
func TestSessionsAreForWhoeverHasTheKey(t *testing.T) {
	clean(t)
	dir, endpoint := t.TempDir(), testscale.MustAddress()
	store, log := filepath.Join(dir, "s.db"), filepath.Join(dir, "log")
	r := started(t, Options{Config: []string{"yaml:" + fmt.Sprintf(`
extensions: {session_view: {endpoint: %q}}
receivers: {otlp: {protocols: {grpc: {endpoint: "localhost:0"}}}}
exporters: {session: {path: %q}}
service:
  telemetry: {metrics: {level: none}, logs: {level: debug, output_paths: [%q]}}
  extensions: [session_view]
  pipelines: {traces: {receivers: [otlp], exporters: [session]}}
`, endpoint, store, log)}})
	base := "http://" + endpoint
	if info, err := os.Stat(store + ".key"); err != nil || info.Mode() != 0o600 {
		t.Fatalf("the file of the key is %v, %v", info, err)
	}
	key, err := sessionview.Key(store)
	testscale.Must(t, err)
	browser := []string{"Accept", "text/html"}
	for _, try := range [][]string{nil, {"Authorization", "Bearer wrong"}, {"Authorization", "Bearer "},
		{"Authorization", key}, {"Cookie", "agenttrace_token=" + key}, {"X-Forwarded-For", "127.0.0.1"}} {
		for _, path := range []string{"api/v1/sessions", "api/v1/sessions/y1", "", "s/y1", "sessions/events", "address",
			"api/v1/store/Name", "%61pi/v1/sessions", "sign-in/../api/v1/sessions"} {
			for _, method := range []string{"GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS"} {
				answer, body := request(t, method, base+"/"+path, try...)
				var p web.Problem
				if answer.StatusCode != 401 || method != "HEAD" && (json.Unmarshal([]byte(body), &p) != nil ||
					p.Code != "unauthorized" || !strings.Contains(p.Detail, ".key")) {
					t.Errorf("%s /%s with %q: %d %s", method, path, try, answer.StatusCode, body)
				}
			}
			answer, body := request(t, "GET", base+"/"+path, append(try, browser...)...)
			if answer.StatusCode != 401 || !strings.Contains(body, "agenttrace view") {
				t.Errorf("a browser at /%s with %q: %d %s", path, try, answer.StatusCode, body)
			}
		}
	}
	if answer, body := request(t, "GET", base+web.Prefix+"status", "Authorization", "Bearer "+key); answer.StatusCode !=
		200 {
		t.Errorf("with the key: %d %s", answer.StatusCode, body)
	}

	// A wrong key of an address leads to the page that explains it, and a right one into a cookie.
	for given, cookies := range map[string]int{"wrong": 0, "": 0, key: 1} {
		answer, _ := request(t, "GET", base+"/s/y1?turns=2&key="+given+"&q=a+b", browser...)
		if answer.StatusCode != 303 || answer.Header.Get("Location") != "/s/y1?q=a+b&turns=2" ||
			len(answer.Cookies()) != cookies {
			t.Errorf("with the key %q in the address: %d %v", given, answer.StatusCode, answer.Header)
		}
		for _, c := range answer.Cookies() {
			if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || strings.Contains(c.Value, key) {
				t.Errorf("the cookie is %v", c)
			}
			if answer, body := request(t, "GET", base+"/sessions", "Cookie", c.Name+"="+c.Value); answer.StatusCode !=
				200 || strings.Contains(body, key) {
				t.Errorf("with the cookie: %d %s", answer.StatusCode, body)
			}
			if answer, _ := request(t, "DELETE", base+web.Prefix+"sessions/y1", "Cookie", c.Name+"="+c.Value,
				"Origin", "http://localhost:1"); answer.StatusCode != 403 {
				t.Errorf("with the cookie from a page of another port: %d", answer.StatusCode)
			}
		}
	}

	// A browser that came from another site did not send its cookie, and asks once more by itself.
	cross := append(browser, "Sec-Fetch-Site", "cross-site")
	for path, again := range map[string]string{"/s/y1": "/s/y1?", "/sessions?q=x": "/sessions?q=x&amp;", "/s/y1?": "",
		"/sessions?q=x&": ""} {
		_, body := request(t, "GET", base+path, cross...)
		if strings.Contains(body, "http-equiv") != (again != "") || !strings.Contains(body, "0;url="+again+`"`) &&
			again != "" {
			t.Errorf("from another site to %s: %s", path, body)
		}
	}

	// Who reaches the socket needs no key, and gets it.
	socket := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		return new(net.Dialer).DialContext(ctx, "unix", stores.Socket(store))
	}}}
	answer, err := socket.Get("http://localhost" + sessionview.AddressPath)
	testscale.Must(t, err)
	address, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	u, parseErr := url.Parse(string(address))
	if err != nil || parseErr != nil || u.Host != endpoint || u.Query().Get("key") != key {
		t.Errorf("the address of the pages is %s, %v", address, err)
	}
	socket.CloseIdleConnections()

	testscale.Must(t, r.Shutdown(context.WithoutCancel(t.Context())))
	logged, err := os.ReadFile(log)
	if err != nil || len(logged) == 0 || strings.Contains(string(logged), key) {
		t.Errorf("the log has the key, or is not there: %v\n%s", err, logged)
	}
	again, err := sessionview.Key(store)
	if err != nil || again != key {
		t.Errorf("after that the key is %s, %v", again, err)
	}
}

// Many connections that send a part of a header keep nobody out.
func TestSlowConnectionsKeepNobodyOut(t *testing.T) {
	clean(t)
	r := started(t, Options{Store: filepath.Join(t.TempDir(), "s.db")})
	defer func() { _ = r.Shutdown(context.WithoutCancel(t.Context())) }()
	var slow []net.Conn
	defer func() {
		for _, c := range slow {
			c.Close()
		}
	}()
	for range 1200 {
		c, err := net.Dial("tcp", r.ViewEndpoint())
		testscale.Must(t, err)
		slow = append(slow, c)
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: local")
	}
	if got := ask(t, r.ViewEndpoint(), map[string]string{"Authorization": keyOf(t, r)}); got != 200 {
		t.Errorf("a request beside them is answered with %d", got)
	}
	// The first of them was closed for one of the last.
	if _, err := bufio.NewReader(slow[0]).ReadByte(); err == nil {
		t.Error("the server answers half of a header")
	}
}
