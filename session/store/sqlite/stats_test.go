package sqlite

import (
	"testing"

	"github.com/agenttrace/agenttrace/session/store"
)

// generated fills a store with n sessions of two turns each, and text of so many
// bytes in each part: four texts and two calls to a session.
func generated(tb testing.TB, path string, n, bytes int) {
	tb.Helper()
	s, err := Open(tb.Context(), path, Options{})
	if err != nil {
		tb.Fatal(err)
	}
	defer s.Close()
	statements := []string{
		`INSERT INTO chat_sessions(id, title, agent, created_at, updated_at)
 WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM c WHERE i+1 < ?1)
 SELECT printf('ses_%08d', i), 'Session '||i, 'agent'||(i%5), i*60000, i*60000+5000 FROM c WHERE ?2`,
		`INSERT INTO chat_messages(id, session_id, role, metadata_json, created_at, updated_at)
 SELECT printf('msg_%s_%d', s.id, k.i), s.id, CASE k.i%2 WHEN 0 THEN 'user' ELSE 'assistant' END,
 CASE k.i%2 WHEN 0 THEN '{}' ELSE '{"model":{"provider_id":"p","model_id":"m'||(s.rowid%3)||'"},"agent":"coder","usage":{"input":1200,"output":300,"reasoning":20,"cache_read":8000,"cache_write":100},"system_prompt_digest":"d23b261428d2d23b261428d2d23b261428d2d23b261428d2d23b261428d2d23b","agenttrace":{"turn_index":0,"end_reason":"finish","stop_reason":"end_turn","model_calls":2,"duration_ms":'||(s.rowid%5000)||',"cost_usd":0.01,"usage_basis":"inclusive"}}' END,
 s.created_at+k.i, s.created_at+k.i FROM chat_sessions s, (SELECT 0 i UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) k WHERE ?1 AND ?2`,
		`INSERT INTO chat_parts(id, message_id, session_id, "index", type, data_json, tool_call_id, tool_state, created_at, updated_at)
 SELECT 'prt_'||m.id||k.i, m.id, m.session_id, k.i, CASE k.i WHEN 0 THEN 'text' ELSE 'tool-bash' END,
 CASE k.i WHEN 0 THEN '{"type":"text","text":"'||replace(hex(zeroblob(?2/2)),'00','ab')||'"}' ELSE
 '{"type":"tool-bash","toolCallId":"c","state":"output-available","input":{"command":"go test"},"output":"'||replace(hex(zeroblob(?2/2)),'00','cd')||'","toolMetadata":{"agenttrace":{"duration_ms":'||(m.rowid%900)||'}}}' END,
 CASE k.i WHEN 1 THEN 'call_'||m.id END, CASE k.i WHEN 1 THEN 'output-available' END, m.created_at, m.created_at
 FROM chat_messages m, (SELECT 0 i UNION ALL SELECT 1) k WHERE ?1 AND (k.i = 0 OR m.role = 'assistant')`,
	}
	for _, statement := range statements {
		err := s.run(tb.Context(), func(t *tx) error {
			stmt := t.conn.Prep(statement)
			stmt.BindInt64(1, int64(n))
			stmt.BindInt64(2, int64(bytes))
			return exec(stmt)
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// BenchmarkStats counts over 100,000 sessions: 400,000 messages, 600,000 parts.
func BenchmarkStats(b *testing.B) {
	path := b.TempDir() + "/s.db"
	generated(b, path, 100_000, 400)
	r, err := OpenReader(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	for _, key := range []string{"", "day", "model", "agent", "tool", "project,week"} {
		by, err := store.ParseStatsBy(key)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("by="+key, func(b *testing.B) {
			for b.Loop() {
				s, err := r.Stats(b.Context(), store.StatsQuery{By: by})
				if err != nil {
					b.Fatal(err)
				}
				if s.Total.ToolCalls != 200_000 {
					b.Fatalf("%d calls", s.Total.ToolCalls)
				}
			}
		})
	}
}
