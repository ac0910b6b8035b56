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

	zombie "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// remote is a store that is read and managed through a client. What a client cannot do, the store does.
type remote struct {
	*Client
	local *sqlite.Store
}

func served(t *testing.T) *remote {
	local, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "sessions.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &remote{clientOf(t, local, NewCounter(sqlite.Follow(local.Path()))), local}
}

// clientOf returns a client of a server of a store.
func clientOf(t testing.TB, s store.Service, changes *Counter) *Client {
	t.Helper()
	server := httptest.NewServer(New(Backend{Sessions: document.Reader{Reader: s}, Changes: changes,
		Change: func(ctx context.Context, fn func(context.Context, store.Service) error) error {
			return fn(ctx, s)
		}}, Options{}))
	t.Cleanup(server.Close)
	client, err := Dial(t.Context(), server.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func (r *remote) Apply(ctx context.Context, b *store.Batch) (store.Result, error) {
	if b.Assemble != nil || b.Adopt != nil || b.Threads != nil { // functions of the suite's own
		return r.local.Apply(ctx, b)
	}
	return r.Client.Apply(ctx, b)
}

func (r *remote) Transact(ctx context.Context, do func(store.Tx) error) error {
	return r.local.Transact(ctx, do)
}

func (r *remote) Outbox(ctx context.Context, fn func(string, int64)) error {
	return r.local.Outbox(ctx, fn)
}

func (r *remote) Exported(ctx context.Context, id string, at int64) error {
	return r.local.Exported(ctx, id, at)
}

func (r *remote) Close() error { return errors.Join(r.Client.Close(), r.local.Close()) }

// Script implements [storetest.SQL].
func (r *remote) Script(statements string) error {
	conn, err := zombie.OpenConn(r.local.Path(), zombie.OpenReadWrite)
	if err != nil {
		return err
	}
	return errors.Join(sqlitex.ExecuteScript(conn, statements, nil), conn.Close())
}

// A server that is not there, or is none of sessions, is named with what to do.
func TestServersThatDoNotAnswer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	other := httptest.NewServer(nil)
	defer other.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	for address, want := range map[string]error{
		other.URL: store.ErrUnavailable,
		gone.URL:  store.ErrUnavailable,
		"unix://" + filepath.Join(t.TempDir(), "none.sock"): store.ErrUnavailable,
	} {
		if _, err := Dial(ctx, address, ""); !errors.Is(err, want) {
			t.Errorf("%s: error %v, want one that is %v", address, err, want)
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
		{"Session", `["lf-1"]`, 200}, {"ImportAll", "[[null]]", 200},
	} {
		answer, body := s.ask(http.MethodPost, Prefix+"store/"+call.method, call.body, "Content-Type", "application/json")
		if answer.StatusCode != call.status || call.method == "ImportAll" && !strings.Contains(string(body), "no rows") {
			t.Errorf("%s with %s: status %d, want %d\n%s", call.method, call.body, answer.StatusCode, call.status, body)
		}
	}
}
