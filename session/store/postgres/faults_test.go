//go:build long

package postgres_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/postgres"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// execute runs statements as the administrator of a database.
func execute(t *testing.T, dsn, statements string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	testscale.Must(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.PgConn().Exec(t.Context(), statements).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dsn string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	testscale.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// TestFaults: what goes wrong is named with its remedy, what may pass is said to, and no password is shown.
func TestFaults(t *testing.T) {
	server := storetest.StartPostgres(t, append(fast, "max_connections = 12", "superuser_reserved_connections = 3")...)
	const password = "pa55-Word"
	user := func(dsn string) string {
		return strings.Replace(dsn, "postgres://postgres@", "postgres://collector:"+password+"@", 1)
	}
	execute(t, server.DSN("postgres"), "CREATE ROLE collector LOGIN PASSWORD '"+password+"'")
	grant := func(dsn string) {
		execute(t, dsn, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO collector")
	}
	for _, test := range []struct {
		name string
		// prepare is done to a database with tables, and returns the DSN to use.
		prepare func(t *testing.T, dsn string) string
		passes  bool
		want    []string // in the error
	}{
		{"no such server", func(*testing.T, string) string {
			return "postgres://collector:" + password + "@127.0.0.1:1/agenttrace"
		}, true, []string{"127.0.0.1:1", "connection refused"}},
		{"no such database", func(_ *testing.T, dsn string) string { return user(server.DSN("absent")) }, false,
			[]string{"absent", "createdb"}},
		{"DSN that is none", func(*testing.T, string) string {
			return "postgres://collector:" + password + "@127.0.0.1:port/agenttrace"
		}, false, []string{"not valid", "postgres://user@host:port/database"}},
		{"unknown parameter's value", func(_ *testing.T, dsn string) string {
			return strings.Replace(user(dsn), "sslmode=disable", "sslmode=perhaps", 1)
		}, false, []string{"not valid"}},
		{"no privileges", func(_ *testing.T, dsn string) string { return user(dsn) }, false,
			[]string{"permission denied", "GRANT"}},
		{"privileges for rows alone", func(t *testing.T, dsn string) string {
			grant(dsn)
			return user(dsn)
		}, false, nil},
		{"newer tables", func(t *testing.T, dsn string) string {
			execute(t, dsn, "UPDATE agenttrace_schema SET version = 9999")
			return dsn
		}, false, []string{"9999", "newer", "update"}},
		{"statement timeout", func(t *testing.T, dsn string) string {
			execute(t, dsn, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(10); RETURN new; END $$;
 CREATE TRIGGER slow BEFORE INSERT ON chat_messages FOR EACH ROW EXECUTE FUNCTION slow()`)
			return dsn + "&statement_timeout=50"
		}, true, []string{"statement timeout", "raise statement_timeout"}},
		{"read-only server", func(t *testing.T, dsn string) string {
			return dsn + "&default_transaction_read_only=on"
		}, true, []string{"read-only", "connect to the primary"}},
		{"rows that nobody unlocks", func(t *testing.T, dsn string) string {
			if _, err := open(t, dsn).Apply(t.Context(), turnOf(0, 0)); err != nil {
				t.Fatal(err)
			}
			conn, err := pgx.Connect(t.Context(), dsn)
			testscale.Must(t, err)
			t.Cleanup(func() { conn.Close(context.Background()) })
			if _, err := conn.Exec(t.Context(), "BEGIN; SELECT 1 FROM writer_locks FOR UPDATE"); err != nil {
				t.Fatal(err)
			}
			return dsn + "&lock_timeout=10"
		}, true, []string{"lock timeout", "raise lock_timeout"}},
		{"too many connections", func(t *testing.T, dsn string) string {
			grant(dsn)
			for range 9 {
				conn, err := pgx.Connect(t.Context(), user(server.DSN("postgres")))
				if err != nil {
					break
				}
				t.Cleanup(func() { conn.Close(context.Background()) })
			}
			return user(dsn)
		}, true, []string{"connection slots", "max_connections"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dsn := server.Create(t)
			testscale.Must(t, postgres.Migrate(t.Context(), dsn, postgres.Options{}))
			s, err := postgres.Open(t.Context(), test.prepare(t, dsn), postgres.Options{})
			if err == nil {
				defer s.Close()
				_, err = s.Apply(t.Context(), turnOf(0, 0))
			}
			switch {
			case test.want == nil && err != nil:
				t.Fatal(err)
			case test.want == nil:
				return
			case err == nil:
				t.Fatal("no error")
			}
			if errors.Is(err, store.ErrUnavailable) != test.passes {
				t.Errorf("may pass: %v, want %v: %v", !test.passes, test.passes, err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %q", err, want)
				}
			}
			if strings.Contains(err.Error(), password) {
				t.Errorf("the password is shown: %v", err)
			}
		})
	}
}

// cutter is a proxy that cuts a connection when a client sends a text.
type cutter struct {
	net.Listener
	server string
	text   string
	// after has the text reach the server, and the answer not the client.
	after bool
	armed atomic.Bool
	cuts  atomic.Int32
	wg    sync.WaitGroup
}

func (c *cutter) serve() {
	for {
		client, err := c.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.server)
		if err != nil {
			client.Close()
			continue
		}
		var mute atomic.Bool
		c.wg.Go(func() {
			defer client.Close()
			b := make([]byte, 64<<10)
			for {
				n, err := server.Read(b)
				if err != nil || mute.Load() {
					return
				}
				if _, err := client.Write(b[:n]); err != nil {
					return
				}
			}
		})
		c.wg.Go(func() {
			defer server.Close()
			b := make([]byte, 64<<10)
			for {
				n, err := client.Read(b)
				if err != nil {
					return
				}
				if strings.Contains(string(b[:n]), c.text) && c.armed.CompareAndSwap(true, false) {
					c.cuts.Add(1)
					if !c.after {
						client.Close()
						return
					}
					mute.Store(true)
				}
				if _, err := server.Write(b[:n]); err != nil {
					return
				}
			}
		})
	}
}

// TestConnectionLostInCommit: nobody knows whether a commit succeeded whose answer did not come. The error says that
// it may be sent again, and that stores it once.
func TestConnectionLostInCommit(t *testing.T) {
	server := storetest.StartPostgres(t, fast...)
	for name, after := range map[string]bool{"before the server has it": false, "after the server has it": true} {
		t.Run(name, func(t *testing.T) {
			dsn := server.Create(t)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			testscale.Must(t, err)
			address := func(dsn string) string { return strings.Split(strings.Split(dsn, "@")[1], "/")[0] }
			c := &cutter{Listener: listener, server: address(dsn), text: "COMMIT", after: after}
			c.wg.Go(c.serve)
			s := open(t, strings.Replace(dsn, address(dsn), listener.Addr().String(), 1))
			if _, err := s.Apply(t.Context(), turnOf(0, 0)); err != nil {
				t.Fatal(err)
			}
			c.armed.Store(true)
			if _, err := s.Apply(t.Context(), turnOf(0, 1)); !errors.Is(err, store.ErrUnavailable) ||
				!strings.Contains(err.Error(), "unknown") {
				t.Errorf("%v; want that the outcome is unknown", err)
			}
			for i := range 3 {
				if _, err := s.Apply(t.Context(), turnOf(0, i)); err != nil {
					t.Error(err)
				}
			}
			all := storetest.Lines(t, s)
			one := open(t, server.Create(t))
			for i := range 3 {
				if _, err := one.Apply(t.Context(), turnOf(0, i)); err != nil {
					t.Fatal(err)
				}
			}
			want := storetest.Lines(t, one)
			for id := range want {
				if all[id] != want[id] {
					t.Errorf("session %s differs from what it is without the interruption", id)
				}
			}
			if c.cuts.Load() != 1 {
				t.Errorf("%d connections were cut", c.cuts.Load())
			}
			s.Close()
			listener.Close()
			c.wg.Wait()
		})
	}
}

// TestServerRestarts: a store that is open goes on after its server was restarted.
func TestServerRestarts(t *testing.T) {
	server := storetest.StartPostgres(t, fast...)
	s := open(t, server.Create(t))
	if _, err := s.Apply(t.Context(), turnOf(0, 0)); err != nil {
		t.Fatal(err)
	}
	testscale.Must(t, server.Signal(2))
	if _, err := s.Apply(t.Context(), turnOf(0, 1)); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%v; want that the store is unavailable", err)
	}
	testscale.Must(t, server.Run())
	for deadline := time.Now().Add(10 * time.Second); ; {
		_, err := s.Apply(t.Context(), turnOf(0, 1))
		if err == nil {
			break
		}
		if !errors.Is(err, store.ErrUnavailable) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestSearchIndex: a search finds the same with the index as without, signs that mean something in a pattern included.
func TestSearchIndex(t *testing.T) {
	dsn := storetest.StartPostgres(t, fast...).Create(t)
	s := open(t, dsn)
	b := turnOf(0, 0)
	b.Parts[0].Data = []byte(`{"type":"text","text":"A 100% sure_thing in C:\\temp, and more"}`)
	if _, err := s.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	find := func() (found []int) {
		for _, text := range []string{"100%", "0_ sure", "sure_thing", "SURE_Thing", "c:\\temp", "surexthing",
			"and more", "a",
			`/sure.thing.*more$`, `/(?-i)sure_Thing`} {
			expression, isRegexp := strings.CutPrefix(text, "/")
			n := 0
			for _, err := range s.Search(t.Context(), store.SearchQuery{Text: expression, Regexp: isRegexp}) {
				testscale.Must(t, err)
				n++
			}
			found = append(found, n)
		}
		return found
	}
	want := []int{1, 0, 1, 1, 1, 0, 1, 1, 1, 0}
	if got := find(); !slices.Equal(got, want) {
		t.Errorf("without the index %v are found, want %v", got, want)
	}
	for range 2 {
		testscale.Must(t, postgres.Migrate(t.Context(), dsn, postgres.Options{SearchIndex: true}))
	}
	execute(t, dsn, "SELECT 1 FROM pg_indexes WHERE indexname = 'idx_chat_parts_texts'")
	if got := find(); !slices.Equal(got, want) {
		t.Errorf("with the index %v are found, want %v", got, want)
	}
}
