package collector

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session/service"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

// ask sends a request for the name of the store.
func ask(t *testing.T, endpoint string, header map[string]string) (status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+endpoint+service.Prefix+"Name", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range header {
		if req.Header.Set(key, value); key == "Host" {
			req.Host = value
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// A page in a browser on this machine can neither read sessions nor change them.
func TestPagesOfOtherOriginsCannotReachSessions(t *testing.T) {
	clean(t)
	r, err := Start(t.Context(), Options{Store: filepath.Join(t.TempDir(), "s.db")})
	if err != nil {
		t.Fatal(err)
	}
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
	r, err := Start(t.Context(), Options{Store: path})
	if err != nil {
		t.Fatal(err)
	}
	socket := stores.Socket(path)
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 || info.Mode().Type() != os.ModeSocket {
		t.Errorf("the socket %s is %v, %v, want one of mode 0600", socket, info, err)
	}
	c, err := service.Dial(t.Context(), "unix://"+socket, "")
	if err != nil {
		t.Fatal(err)
	}
	if c.Name() != path {
		t.Errorf("the store is %s", c.Name())
	}
	if err := r.Shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
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
	r, err := Start(t.Context(), Options{Store: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Shutdown(t.Context()) }()
	c, err := service.Dial(t.Context(), "unix://"+stores.Socket(path), "")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// Whoever would let other machines read every session is told what to configure.
func TestViewOfOtherMachinesNeedsAuthenticator(t *testing.T) {
	clean(t)
	dir := t.TempDir()
	config := func(view map[string]any, extensions map[string]any) Options {
		all := map[string]any{"session_view": view}
		names := []string{"session_view"}
		for name, e := range extensions {
			all[name] = e
			names = append(names, name)
		}
		b, err := json.Marshal(map[string]any{
			"extensions": all,
			"receivers":  map[string]any{"otlp": map[string]any{"protocols": map[string]any{"grpc": map[string]any{"endpoint": "localhost:0"}}}},
			"exporters":  map[string]any{"session": map[string]any{"path": filepath.Join(dir, "s.db")}},
			"service": map[string]any{"extensions": names, "pipelines": map[string]any{"traces": map[string]any{
				"receivers": []string{"otlp"}, "exporters": []string{"session"}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return Options{Config: []string{"yaml:" + string(b)}}
	}
	for _, endpoint := range []string{"0.0.0.0:4320", ":4320", "collector.example:4320", "[::]:4320"} {
		err := Validate(t.Context(), config(map[string]any{"endpoint": endpoint}, nil))
		if err == nil || !strings.Contains(err.Error(), "auth: {authenticator: bearertokenauth}") ||
			!strings.Contains(err.Error(), endpoint) {
			t.Errorf("%s: error %v, want one with the lines to add", endpoint, err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := l.Addr().String()
	l.Close()
	r, err := Start(t.Context(), config(map[string]any{"endpoint": strings.Replace(endpoint, "127.0.0.1", "0.0.0.0", 1),
		"auth": map[string]any{"authenticator": "bearertokenauth"}, "no_socket": true},
		map[string]any{"bearertokenauth": map[string]any{"token": "secret"}}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Shutdown(t.Context()) }()
	for token, want := range map[string]int{"": 401, "Bearer wrong": 401, "Bearer secret": 200} {
		header := map[string]string{}
		if token != "" {
			header["Authorization"] = token
		}
		if got := ask(t, endpoint, header); got != want {
			t.Errorf("a request with the token %q is answered with %d, want %d", token, got, want)
		}
	}
	c, err := service.Dial(t.Context(), "http://"+endpoint, "secret")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := service.Dial(t.Context(), "http://"+endpoint, ""); err == nil || !strings.Contains(err.Error(), "AGENTTRACE_TOKEN") {
		t.Errorf("without a token: error %v, want one that names AGENTTRACE_TOKEN", err)
	}
}

// A second collector of a user stores sessions although the first has the port for readers.
func TestSecondCollectorWithoutThePortOfReaders(t *testing.T) {
	clean(t)
	dir := t.TempDir()
	for _, name := range []string{"a.db", "b.db"} {
		r, err := Start(t.Context(), Options{Store: filepath.Join(dir, name), ViewEndpoint: "localhost:4320"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Shutdown(t.Context()) }()
		c, err := service.Dial(t.Context(), "unix://"+stores.Socket(filepath.Join(dir, name)), "")
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
}
