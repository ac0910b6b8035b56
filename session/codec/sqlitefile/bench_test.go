package sqlitefile_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	zombie "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/sqlitefile"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

const benchSessions = 1000

// benchStore is a store of 1,000 sessions of ten turns, each a question and an answer
// of three parts of 1 KB: 20,000 messages and 40,000 parts. They have a system prompt
// of 20 KB in common.
func benchStore(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "sessions.db")
	s := openStore(b, path)
	words := strings.Repeat("some words and then some more. ", 32)
	for n := range benchSessions {
		id := fmt.Sprintf("ses_%06d", n)
		now := int64(epoch + n*1000)
		batch := store.Batch{
			Sessions: []store.SessionChange{{ID: id, Start: now, End: now}},
			Blobs: []store.Blob{{Kind: store.BlobSystemPrompt, Digest: "p", Body: strings.Repeat("be brief. ", 2000),
				Exact: true}},
		}
		for i := range 10 {
			for k, role := range []string{session.RoleUser, session.RoleAssistant} {
				now++
				m := fmt.Sprintf("msg_%06d_%d_%d", n, i, k)
				batch.Messages = append(batch.Messages, store.MessageChange{ID: m, SessionID: id, Role: role,
					CreatedAt: now,
					UpdatedAt: now, Rank: store.RankFinal})
				for index := range int64(1 + 2*k) {
					p := text(id, m, index, now)
					p.Data = []byte(`{"type":"text","text":"` + words + `"}`)
					batch.Parts = append(batch.Parts, p)
				}
				if role == session.RoleAssistant {
					batch.SpanRefs = append(batch.SpanRefs, store.SpanRef{
						TraceID: fmt.Sprintf("%032x", n), SpanID: fmt.Sprintf("%016x", i), SessionID: id, MessageID: m,
						Kind: "session.turn", Dialect: "agenttrace",
						StartNano: now * 1e6, EndNano: now * 1e6,
						TurnStats: &store.TurnStats{Usage: &session.Usage{Input: 1},
							SystemPromptDigest: "p"},
					})
				}
			}
		}
		apply(b, s, batch)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	return path
}

func each(b *testing.B, path string, fn func(*codec.Session) bool) {
	for s, err := range sqlitefile.DecodeFile(context.Background(), path, nil) {
		if err != nil {
			b.Fatal(err)
		}
		if !fn(s) {
			return
		}
	}
}

// vacuum copies the database page by page, knowing nothing of what it holds.
func vacuum(b *testing.B, from, to string) {
	conn, err := zombie.OpenConn(from, zombie.OpenReadWrite)
	if err != nil {
		b.Fatal(err)
	}
	err = sqlitex.ExecuteTransient(conn, "VACUUM INTO '"+to+"'", nil)
	if err = errors.Join(err, conn.Close()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkExport writes 1,000 sessions to a new store; beside it what reading them
// costs, and SQLite's own copy of the file: the floor of any.
func BenchmarkExport(b *testing.B) {
	path := benchStore(b)
	run(b, path, "export", func(to string) {
		err := sqlitefile.EncodeFile(context.Background(), to, func(yield func(*codec.Session, error) bool) {
			each(b, path, func(s *codec.Session) bool { return yield(s, nil) })
		}, nil)
		if err != nil {
			b.Fatal(err)
		}
	})
	run(b, path, "floor-read", func(string) { each(b, path, func(*codec.Session) bool { return true }) })
	run(b, path, "floor-vacuum", func(to string) { vacuum(b, path, to) })
}

// BenchmarkImport merges a store of 1,000 sessions into an empty one, and into one
// that has them.
func BenchmarkImport(b *testing.B) {
	path := benchStore(b)
	into := func(to string) {
		s, err := sqlite.Open(context.Background(), to, sqlite.Options{})
		if err != nil {
			b.Fatal(err)
		}
		each(b, path, func(one *codec.Session) bool {
			if _, err := s.Import(context.Background(), one); err != nil {
				b.Fatal(err)
			}
			return true
		})
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	run(b, path, "import", into)
	full := filepath.Join(b.TempDir(), "full.db")
	into(full)
	run(b, path, "again", func(string) { into(full) })
	run(b, path, "floor-read", func(string) { each(b, path, func(*codec.Session) bool { return true }) })
	run(b, path, "floor-vacuum", func(to string) { vacuum(b, path, to) })
}

// run measures fn with a path where nothing is, and says sessions and MB a second.
func run(b *testing.B, path, name string, fn func(to string)) {
	b.Run(name, func(b *testing.B) {
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(info.Size())
		b.ReportAllocs()
		dir := b.TempDir()
		for i := 0; b.Loop(); i++ {
			fn(filepath.Join(dir, fmt.Sprintf("%d.db", i)))
		}
		b.ReportMetric(float64(benchSessions*b.N)/b.Elapsed().Seconds(), "sessions/s")
	})
}
