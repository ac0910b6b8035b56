package ingest_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	sqlitestore "github.com/agenttrace/agenttrace/session/store/sqlite"
)

// BenchmarkTurn commits one turn of a session, its five spans in a request of
// their own, where the session is young and where it has 10,000 turns. The cost
// of a turn must not depend on how many there were.
func BenchmarkTurn(b *testing.B) {
	all := agentSession(rand.New(rand.NewPCG(1, 2)), 1, 11_000)
	perTurn := (len(all) - 1) / 11_000
	for _, at := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("at-%d", at), func(b *testing.B) {
			s, err := sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "sessions.db"), sqlitestore.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			in := ingest.New(s, ingest.Options{})
			next := 0
			turn := func(spans int) {
				end := min(next+spans, len(all)-1)
				if _, err := in.Traces(b.Context(), traces(all[next:end]...)); err != nil {
					b.Fatal(err)
				}
				next = end
			}
			for next < at*perTurn {
				turn(min(500, at*perTurn-next))
			}
			begin := cpuSeconds()
			b.ResetTimer()
			for range b.N {
				if next >= len(all)-1-perTurn {
					next = at * perTurn // the session is used up: the same turns again cost no less
				}
				turn(perTurn)
			}
			b.ReportMetric((cpuSeconds()-begin)/float64(b.N)*1e6, "CPU-µs/op")
		})
	}
}

// BenchmarkExport reads one session of 91 rows and writes it as canonical
// JSONL; the floor is stepping over the same rows in SQLite.
func BenchmarkExport(b *testing.B) {
	s, id := filled(b, 200)
	b.Run("floor", func(b *testing.B) {
		conn, err := sqlite.OpenConn(s.Path(), sqlite.OpenReadOnly)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		begin := cpuSeconds()
		for range b.N {
			for _, query := range []string{
				`SELECT * FROM chat_sessions WHERE id = ?`,
				`SELECT * FROM chat_messages WHERE session_id = ? ORDER BY created_at, id`,
				`SELECT p.* FROM chat_messages m JOIN chat_parts p ON p.message_id = m.id WHERE m.session_id = ? ` +
					`ORDER BY m.created_at, m.id, p."index"`,
			} {
				stmt := conn.Prep(query)
				stmt.BindText(1, id)
				for {
					row, err := stmt.Step()
					if err != nil {
						b.Fatal(err)
					}
					if !row {
						break
					}
				}
				if err := stmt.Reset(); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric((cpuSeconds()-begin)/float64(b.N)*1e6, "CPU-µs/op")
	})
	b.Run("jsonl", func(b *testing.B) {
		begin := cpuSeconds()
		for range b.N {
			t, err := s.Transcript(b.Context(), id)
			if err != nil {
				b.Fatal(err)
			}
			if err := jsonl.Encode(io.Discard, t); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric((cpuSeconds()-begin)/float64(b.N)*1e6, "CPU-µs/op")
	})
}

// BenchmarkList lists the newest 50 of 100,000 sessions.
func BenchmarkList(b *testing.B) {
	s, _ := filled(b, 0)
	const sessions = 100_000
	for first := 0; first < sessions; first += 5000 {
		var batch store.Batch
		for i := first; i < first+5000; i++ {
			at := start + int64(i)*1000
			batch.Sessions = append(batch.Sessions, store.SessionChange{ID: fmt.Sprintf("ses_%024d", i), Start: at,
				End:   at + 500,
				Title: &store.Value{Text: "a title", At: at}, Agent: &store.Value{Text: "coder", At: at}})
		}
		if _, err := s.Apply(b.Context(), &batch); err != nil {
			b.Fatal(err)
		}
	}
	if n, err := count(s.Path(), "chat_sessions"); err != nil || n != sessions {
		b.Fatal(n, err)
	}
	b.ResetTimer()
	begin := time.Now()
	for range b.N {
		n := 0
		for _, err := range s.Sessions(b.Context(), store.SessionQuery{}) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != 50 {
			b.Fatalf("listed %d", n)
		}
	}
	b.ReportMetric(float64(time.Since(begin).Microseconds())/float64(b.N)/1000, "ms/op")
}

func count(path, table string) (n int64, err error) {
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return sqlitex.ResultInt64(conn.Prep("SELECT count(*) FROM " + table))
}

// filled returns a store with some sessions, and the id of one in the middle.
func filled(b *testing.B, sessions int) (*sqlitestore.Store, string) {
	b.Helper()
	s, err := sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "sessions.db"), sqlitestore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	in := ingest.New(s, ingest.Options{})
	r := rand.New(rand.NewPCG(1, 2))
	for n := range sessions {
		if _, err := in.Traces(b.Context(), traces(agentSession(r, n, 10)...)); err != nil {
			b.Fatal(err)
		}
	}
	id := ""
	n := 0
	for row, err := range s.Sessions(b.Context(), store.SessionQuery{Limit: -1}) {
		if err != nil {
			b.Fatal(err)
		}
		if n++; n == sessions/2 {
			id = row.ID
		}
	}
	return s, id
}
