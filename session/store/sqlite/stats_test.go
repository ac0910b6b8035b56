package sqlite

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// counted is a store of three sessions: one of two days, a fork that copied its
// first turn, and one of another agent that failed.
const counted = `
INSERT INTO chat_sessions(id, title, agent, created_at, updated_at) VALUES
 ('s', 's', 'coder', 1000, 86400500), ('f', 'f', 'coder', 86400100, 86400200), ('x', 'x', 'other', 1000, 2000), ('e', 'e', 'idle', 1000, 1000);
INSERT INTO session_state(session_id, state_json, forked_from) VALUES ('f', '{}', 's');
UPDATE chat_sessions SET parent_id = 's' WHERE id = 'f';
INSERT INTO chat_messages(id, session_id, role, metadata_json, hidden_at, created_at, updated_at) VALUES
 ('s0', 's', 'user', '{}', NULL, 1000, 1000),
 ('s1', 's', 'assistant', '{"model":{"provider_id":"p","model_id":"big"},"usage":{"input":10,"output":2,"reasoning":1,"cache_read":30,"cache_write":0},
  "agenttrace":{"duration_ms":100,"cost_usd":0.5,"end_reason":"finish"}}', NULL, 1001, 1001),
 ('s1u', 's', 'user', '{}', 9, 86400399, 86400399),
 ('s2', 's', 'assistant', '{"model":{"model_id":"small"},"usage":{"input":5,"output":1},"agenttrace":{"duration_ms":300}}', 9, 86400400, 86400400),
 ('s3', 's', 'assistant', '{"compaction":true,"usage":{"input":999},"agenttrace":{"input_tokens":7,"output_tokens":3}}', NULL, 86400500, 86400500),
 ('f1', 'f', 'assistant', '{"usage":{"input":10},"agenttrace":{"duration_ms":100}}', NULL, 1001, 1001),
 ('f1u', 'f', 'user', '{}', NULL, 86400149, 86400149),
 ('f2', 'f', 'assistant', '{"model":"no object","usage":{"input":4}}', NULL, 86400150, 86400150),
 ('x1', 'x', 'assistant', '{"agenttrace":{"end_reason":"error"}}', NULL, 1500, 1500);
INSERT INTO chat_parts(id, message_id, session_id, "index", type, data_json, tool_call_id, tool_state, created_at, updated_at) VALUES
 ('p0', 's1', 's', 0, 'tool-bash', '{"toolMetadata":{"agenttrace":{"duration_ms":5}}}', 'c0', 'output-available', 1001, 1001),
 ('p1', 's1', 's', 1, 'dynamic-tool', '{"toolName":"mcp"}', 'c1', 'output-error', 1001, 1001),
 ('p2', 's2', 's', 0, 'tool-bash', '{"toolMetadata":{"agenttrace":{"denied":true}}}', 'c2', 'output-error', 86400400, 86400400),
 ('p3', 's2', 's', 1, 'text', '{"text":"tool-"}', NULL, NULL, 86400400, 86400400),
 ('q0', 'f1', 'f', 0, 'tool-bash', '{}', 'c0', 'output-available', 1001, 1001);
UPDATE chat_sessions SET created_at = created_at + 1767225600000, updated_at = updated_at + 1767225600000;
UPDATE chat_messages SET created_at = created_at + 1767225600000, updated_at = updated_at + 1767225600000;
UPDATE chat_parts SET created_at = created_at + 1767225600000, updated_at = updated_at + 1767225600000`

func ptr[T any](v T) *T { return &v }

func TestStats(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	script(t, path, counted)
	total := store.StatsGroup{
		Sessions: 4, Turns: 4, Errors: 1, Usage: session.Usage{Input: 26, Output: 6, Reasoning: 1, CacheRead: 30},
		TotalTokens: 63, CostUSD: 0.5,
		CacheHitRate: ptr(30.0 / 56), ToolCalls: 3, FailedCalls: 1, DeniedCalls: 1, MedianMS: ptr(int64(100)),
		P95MS: ptr(int64(300)),
	}
	big := store.StatsGroup{Key: "p/big", Sessions: 1, Turns: 1,
		Usage: session.Usage{Input: 10, Output: 2, Reasoning: 1, CacheRead: 30}, TotalTokens: 43, CostUSD: 0.5,
		CacheHitRate: ptr(0.75), ToolCalls: 2, FailedCalls: 1, MedianMS: ptr(int64(100)), P95MS: ptr(int64(100))}
	firstDay := big
	firstDay.Key, firstDay.Sessions, firstDay.Turns, firstDay.Errors = "2026-01-01", 2, 2, 1
	for _, test := range []struct {
		name   string
		query  store.StatsQuery
		groups []store.StatsGroup
	}{
		{"all", store.StatsQuery{}, nil},
		{"day", store.StatsQuery{By: store.StatsByDay}, []store.StatsGroup{firstDay,
			{Key: "2026-01-02", Sessions: 2, Turns: 2, Usage: session.Usage{Input: 16, Output: 4}, TotalTokens: 20,
				CacheHitRate: ptr(0.0),
				ToolCalls:    1, DeniedCalls: 1, MedianMS: ptr(int64(300)), P95MS: ptr(int64(300))}}},
		{"model", store.StatsQuery{By: store.StatsByModel}, []store.StatsGroup{big,
			{Key: "", Sessions: 3, Turns: 2, Errors: 1, Usage: session.Usage{Input: 11, Output: 3}, TotalTokens: 14,
				CacheHitRate: ptr(0.0)},
			{Key: "small", Sessions: 1, Turns: 1, Usage: session.Usage{Input: 5, Output: 1}, TotalTokens: 6,
				CacheHitRate: ptr(0.0),
				ToolCalls:    1, DeniedCalls: 1, MedianMS: ptr(int64(300)), P95MS: ptr(int64(300))}}},
		{"agent", store.StatsQuery{By: store.StatsByAgent}, []store.StatsGroup{
			{Key: "coder", Sessions: 2, Turns: 3, Usage: total.Usage, TotalTokens: 63, CostUSD: 0.5,
				CacheHitRate: total.CacheHitRate,
				ToolCalls:    3, FailedCalls: 1, DeniedCalls: 1, MedianMS: total.MedianMS, P95MS: total.P95MS},
			{Key: "other", Sessions: 1, Turns: 1, Errors: 1}}},
	} {
		got, err := s.Stats(t.Context(), test.query)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(store.Stats{Total: total, Groups: test.groups}, got); diff != "" {
			t.Errorf("by %s (-want +got):\n%s", test.name, diff)
		}
	}
	got, err := s.Stats(t.Context(), store.StatsQuery{By: store.StatsByTool})
	if err != nil {
		t.Fatal(err)
	}
	want := []store.StatsGroup{
		{Key: "bash", Sessions: 1, ToolCalls: 2, DeniedCalls: 1, MedianMS: ptr(int64(5)), P95MS: ptr(int64(5))},
		{Key: "mcp", Sessions: 1, ToolCalls: 1, FailedCalls: 1},
	}
	if diff := cmp.Diff(want, got.Groups); diff != "" {
		t.Errorf("by tool (-want +got):\n%s", diff)
	}
	since, err := s.Stats(t.Context(), store.StatsQuery{Since: time.UnixMilli(1767225600000 + 86400200)})
	if err != nil {
		t.Fatal(err)
	}
	if since.Total.Turns != 1 || since.Total.ToolCalls != 1 || since.Total.Sessions != 2 {
		t.Errorf("since the second day: %+v", since.Total)
	}
}

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
	for _, by := range []store.StatsBy{store.StatsByAll, store.StatsByDay, store.StatsByModel, store.StatsByAgent,
		store.StatsByTool} {
		b.Run("by="+string(by), func(b *testing.B) {
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

// TestStatsEstimate: what is stated stands, what is not is asked for with the model and the
// usage of the message, and what has no price is named.
func TestStatsEstimate(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	script(t, path, counted)
	price := func(m session.Model, u session.Usage, requests int64) (float64, bool) {
		return float64(u.Total()), m.ModelID == "small" && requests == 0
	}
	for _, test := range []struct {
		query  store.StatsQuery
		key    string
		stated float64
		want   *float64
	}{
		{store.StatsQuery{}, "", 0.5, ptr(6.0)},
		{store.StatsQuery{By: store.StatsByDay}, "2026-01-02", 0, ptr(6.0)},
		{store.StatsQuery{By: store.StatsByDay}, "2026-01-01", 0.5, nil},
		{store.StatsQuery{By: store.StatsByModel}, "small", 0, ptr(6.0)},
		{store.StatsQuery{By: store.StatsByModel}, "p/big", 0.5, nil},
		{store.StatsQuery{By: store.StatsByModel}, "", 0, nil},
	} {
		test.query.Price = price
		got, err := s.Stats(t.Context(), test.query)
		if err != nil {
			t.Fatal(err)
		}
		g := got.Total
		for _, group := range got.Groups {
			if group.Key == test.key {
				g = group
			}
		}
		if d := cmp.Diff(test.want, g.EstimatedCostUSD); d != "" || g.CostUSD != test.stated {
			t.Errorf("by %q, %q: stated %v, estimated (-want +got):\n%s", test.query.By, test.key, g.CostUSD, d)
		}
		if d := cmp.Diff(ptr(6.0), got.Total.EstimatedCostUSD); d != "" {
			t.Errorf("by %q: total (-want +got):\n%s", test.query.By, d)
		}
		if d := cmp.Diff([]string{""}, got.UnpricedModels); d != "" {
			t.Errorf("by %q: without a price (-want +got):\n%s", test.query.By, d)
		}
	}
	got, err := s.Spent(t.Context(), []string{"s", "f", "e", "none"}, price)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]store.Spent{
		"s": {Tokens: session.Tokens{Used: &session.Usage{Input: 22, Output: 6, Reasoning: 1, CacheRead: 30},
			CostUSD: ptr(0.5)}, EstimatedUSD: ptr(6.0)},
		"f": {Tokens: session.Tokens{Used: &session.Usage{Input: 4}, Copied: &session.Usage{Input: 10}},
			Unpriced: []string{""}},
		"e": {},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("of sessions (-want +got):\n%s", d)
	}
}
