package sqlite

import (
	"cmp"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
)

// agentSessions makes 1,000 sessions of ten turns with four tool calls each, 14.8 KB a turn.
const agentSessions = `
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
INSERT INTO chat_sessions(id, agent, workspace_root, created_at, updated_at)
 SELECT printf('ses_%x_%d', abs(random()) >> 32, i), 'agent' || i % 3, '/src/' || i % 8, 1790000000000 + i * 5000000,
 1790000000000 + i * 5000000 FROM n;
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 19)
INSERT INTO chat_messages(id, session_id, role, metadata_json, created_at, updated_at)
 SELECT s.id || '_' || i, s.id, iif(i % 2, 'assistant', 'user'), iif(i % 2, '{"model":{"provider_id":"p","model_id":"m' ||
 s.rowid % 4 || '"},"usage":{"input":900,"output":80,"cache_read":9000},"agenttrace":{"duration_ms":' ||
 abs(random() % 40000) || ',"end_reason":"finish","model_calls":5}}', '{}'), s.created_at + i * 60000, 1
 FROM chat_sessions s, n ORDER BY s.rowid, i;
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 5)
INSERT INTO chat_parts(id, message_id, session_id, "index", type, data_json, tool_state, created_at, updated_at)
 SELECT m.id || '_' || i, m.id, m.session_id, i, iif(i < 4, 'tool-t' || abs(random() % 6), 'text'), iif(i < 4,
 '{"output":"' || hex(zeroblob(1500)) || '","toolMetadata":{"agenttrace":{"duration_ms":' || abs(random() % 4000) || '}}}',
 '{"text":"' || hex(zeroblob(500)) || '"}'), iif(i < 4, 'output-available', NULL), m.created_at + i, 1
 FROM chat_messages m, n WHERE m.role = 'assistant' OR i = 5 ORDER BY m.rowid, i;`

// BenchmarkStats counts 1,000 sessions by day, model and tool with figures that are kept, and all of them afresh. The
// floor reads the figures and does nothing with them. Goal: 20,000 sessions in 0.5 s, so 25 ms for these.
func BenchmarkStats(b *testing.B) {
	path := newPath(b)
	s := open(b, path, Options{})
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	testscale.Must(b, err)
	defer conn.Close()
	execute := func(statements string, fn func(*sqlite.Stmt) error) {
		testscale.Must(b, sqlitex.ExecuteTransient(conn, statements, &sqlitex.ExecOptions{ResultFunc: fn}))
	}
	testscale.Must(b, sqlitex.ExecuteScript(conn, agentSessions, nil))
	measure := func(name string, do func(b *testing.B)) {
		b.Run(name, func(b *testing.B) {
			from := testscale.CPUSeconds()
			for b.Loop() {
				do(b)
			}
			b.ReportMetric((testscale.CPUSeconds()-from)/float64(b.N)*1000, "cpu-ms/op")
		})
	}
	if _, err := s.Stats(b.Context(), store.StatsQuery{}); err != nil { // which keeps the figures
		b.Fatal(err)
	}
	measure("floor", func(*testing.B) {
		var data []byte
		execute(`SELECT data FROM session_stats`, func(row *sqlite.Stmt) error {
			data = store.Bytes(row, 0, data)
			return nil
		})
	})
	for _, by := range []store.StatsBy{store.StatsByDay, store.StatsByModel, store.StatsByTool} {
		count := func(b *testing.B) {
			if _, err := s.Stats(b.Context(), store.StatsQuery{By: []store.StatsBy{by}}); err != nil {
				b.Fatal(err)
			}
		}
		count(b)
		measure(string(by), count)
	}
	measure("afresh", func(b *testing.B) {
		execute(`DELETE FROM session_stats`, nil)
		if _, err := s.Stats(b.Context(), store.StatsQuery{}); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkList reads the first page of 100,000 sessions in some orders. Goal: 100 ms.
func BenchmarkList(b *testing.B) {
	path := newPath(b)
	s := open(b, path, Options{})
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	testscale.Must(b, err)
	defer conn.Close()
	if err := sqlitex.ExecuteScript(conn, `
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999)
INSERT INTO chat_sessions(id, title, agent, total_tokens, created_at, updated_at)
 SELECT printf('ses_%x_%d', abs(random()) >> 32, i), 'title' || random(), 'agent' || i % 3, abs(random() % 9000),
 1790000000000 + i * 50000, 1790000000000 + i * 50000 FROM n;
INSERT INTO chat_messages(id, session_id, role, metadata_json, created_at, updated_at) SELECT id || '_m', id, 'assistant',
 '{"usage":{"input":' || abs(random() % 9000) || '},"agenttrace":{"duration_ms":' || abs(random() % 40000) || '}}',
 created_at, 1 FROM chat_sessions;`, nil); err != nil {
		b.Fatal(err)
	}
	first := func(sort store.SessionSort) {
		for _, err := range s.Sessions(b.Context(), store.SessionQuery{Sort: sort}) {
			testscale.Must(b, err)
		}
	}
	first(store.SortTurns) // which keeps the figures
	for _, sort := range []store.SessionSort{store.SortTokens, store.SortDuration, store.SortCost, store.SortUpdated} {
		b.Run(cmp.Or(string(sort), "updated"), func(b *testing.B) {
			for b.Loop() {
				first(sort)
			}
		})
	}
}
