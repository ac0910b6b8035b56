package web

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// clientOf returns a client of a server of a store.
func clientOf(t testing.TB, s store.Service, changes *Counter) *client {
	t.Helper()
	server := httptest.NewServer(New(Backend{Sessions: document.Reader{Reader: s}, Changes: changes,
		Change: func(ctx context.Context, fn func(context.Context, store.Service) error) error {
			return fn(ctx, s)
		}}, Options{}))
	t.Cleanup(server.Close)
	c, err := Dial(t.Context(), server.URL, "")
	testscale.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return c.(*client)
}

// A server that is not there, or is none of sessions, is named with what to do.
func TestServersThatDoNotAnswer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	other := httptest.NewServer(nil)
	defer other.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	secure := httptest.NewTLSServer(nil)
	defer secure.Close()
	for address, want := range map[string]string{
		other.URL:  "name the address of a collector's session_view",
		gone.URL:   "is it running",
		secure.URL: "SSL_CERT_FILE",
		"unix://" + filepath.Join(t.TempDir(), "none.sock"): "is it running",
	} {
		_, err := Dial(ctx, address, "")
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", address, err, want)
		}
	}
	for _, address := range []string{"", "collector:4320", "ftp://collector", "http://"} {
		if _, err := Dial(ctx, address, ""); ProblemOf(err).Code != CodeInvalid {
			t.Errorf("%q: error %v, want one that names the forms of addresses", address, err)
		}
	}
	if _, err := Dial(ctx, "http://collector.example:4320", "secret"); ProblemOf(
		err).Code != CodeInvalid {
		t.Errorf("a token for a server on the network without TLS: error %v", err)
	}
}

// A zone is named as the database of time zones does, also that of the system.
func TestZoneName(t *testing.T) {
	for set, want := range map[string]string{"Europe/Berlin": "Europe/Berlin", ":Asia/Kolkata": "Asia/Kolkata", "": "UTC",
		"/usr/share/zoneinfo/America/St_Johns": "America/St_Johns"} {
		t.Setenv("TZ", set)
		if got := zoneName(time.Local); got != want {
			t.Errorf("TZ=%s: the zone is %s, want %s", set, got, want)
		}
	}
	t.Setenv("TZ", "none")
	if name := zoneName(time.Local); !strings.HasPrefix(name, "Etc/GMT") {
		t.Errorf("a zone without a name is %s", name)
	}
	if got := zoneName(nil); got != "UTC" {
		t.Errorf("without a zone it is %s", got)
	}
}

// A call of what is no method for clients, or without the arguments of one, is refused.
func TestCallsThatAreRefused(t *testing.T) {
	s := newSite(t, false)
	for _, call := range []struct {
		method, body string
		status       int
	}{
		{"Close", "[]", 404}, {"Import", "[null]", 404}, {"Nothing", "[]", 404}, {"Transact", "[null]", 404},
		{"Session", "[]", 400}, {"Session", "[", 400}, {"Session", "", 400}, {"Session", `["lf-1","lf-1"]`, 400},
		{"Session", `{"lf-1":"lf-1"}`, 400}, {"Session", "[1]", 400}, {"Apply", "[null]", 400},
		{"Session", `["lf-1"]`, 200}, {"ImportAll", "[[null]]", 400},
	} {
		answer, body := s.ask(http.MethodPost, Prefix+"store/"+call.method, call.body, "Content-Type", "application/json")
		if answer.StatusCode != call.status || call.method == "ImportAll" && !strings.Contains(string(body), "no rows") {
			t.Errorf("%s with %s: status %d, want %d\n%s", call.method, call.body, answer.StatusCode, call.status, body)
		}
	}
}
