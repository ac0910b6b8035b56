package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/price"
	"github.com/agenttrace/agenttrace/session/store"
)

// SQL is a [Store] whose tables other programs can change.
type SQL interface {
	Store
	// Script executes statements, which are such as every engine understands.
	Script(statements string) error
}

// RunSQL examines what an engine that speaks SQL reads, also of rows that another program wrote. open is as in [Run],
// and what it returns is [SQL].
func RunSQL(t *testing.T, open func(t *testing.T) Store) {
	runCases(t, open, []testCase{
		{"search", "A text is found in titles and in the values of parts, not in keys, in any case.", with(readSearch)},
		{"search notes", "A note is found until it is taken back, and one session can be searched alone.",
			with(readNotes)},
		{"pages", "However many parts have the text, each is found once, the last first.", with(readPages)},
		{"stats", "What a fork copied counts once, what a rewind hid or a compaction replaced counts.", with(readStats)},
		{"estimates", "What is stated takes precedence; what is not is estimated with the model and the usage of the " +
			"message, and what has no price is named.", with(readEstimates)},
		{"estimates of steps", "A message of several models costs what each of its calls costs, " +
			"and has no estimate where one of them has no price.", with(readEstimatesOfSteps)},
		{"weeks and projects",
			"A week begins on Monday; forks and sub-agents are of the project of the session above them.",
			with(readWeeksAndProjects)},
		{"tail", "The end of a session is what comes from a user message on.", with(readTail)},
		{"excerpts", "Of a session, the messages that are asked for are read, and what is about them.",
			with(readExcerpts)},
		{"last-turn", "Of the last turn, the parts that may be going on are read.", with(readLastTurn)},
		{"notices", "A session that may have a notice is found, and others are not.", with(readNotices)},
		{"stale", "A family goes as one, or not at all.", with(readStale)},
		{"amend", "A title and the archive that a user sets are kept when telemetry is delivered again, " +
			"and give way to what is reported later.", with(amend)},
		{"delete", "Of a session nothing is left, and telemetry that is delivered again makes it as it was.",
			with(remove)},
		{"collect", "A blob that a message or a span names is kept, and all of them while something goes on.",
			with(collect)},
		{"origin", "A session that is exported and imported again merges with its telemetry as before.", with(restore)},
	})
}

func (h *harness) script(s Store, statements string) {
	h.Helper()
	h.check(s.(SQL).Script(statements))
}

// searched is a store of two sessions, the second a fork of the first.
const searched = `
INSERT INTO chat_sessions(id, title, agent, created_at, updated_at) VALUES ('s', 'One', 'coder', 1, 9),
 ('f', 'Two', 'other', 5, 9);
INSERT INTO session_state(session_id, state_json, forked_from) VALUES ('f', '{}', 's');
INSERT INTO chat_messages(id, session_id, role, hidden_at, created_at, updated_at) VALUES
 ('s0', 's', 'user', NULL, 1, 1), ('s1', 's', 'assistant', 7, 2, 2), ('f0', 'f', 'user', NULL, 1, 1),
 ('f1', 'f', 'user', NULL, 6, 6);
INSERT INTO chat_parts(id, message_id, session_id, "index", type, data_json, created_at, updated_at) VALUES
 ('p0', 's0', 's', 0, 'text', '{"type":"text","text":"Say \"NAÏVE\" or naïve,\nCafé in K"}', 1, 1),
 ('p1', 's1', 's', 0, 'tool-bash', '{"toolCallId":"c","input":{"args":["x",{"deep":"needle"}],"n":42},` +
	`"output":"a needle, a \u004eeedle","toolMetadata":"needle"}', 2, 2),
 ('p2', 's1', 's', 1, 'dynamic-tool',
  '{"toolName":"mcp","toolCallId":"d","errorText":"no such \u00e9l\u00e8ve"}', 2, 2),
 ('p3', 's1', 's', 2, 'step-start', '{"type":"step-start"}', 2, 2),
 ('q0', 'f0', 'f', 0, 'text', '{"type":"text","text":"Say \"NAÏVE\""}', 1, 1),
 ('q1', 'f1', 'f', 0, 'text', '{"type":"text","text":"not json needle', 6, 6),
 ('q2', 'f1', 'f', 1, 'text', '{"type":"text","text":"the Needle at the end: needle"}', 6, 6)`

func (h *harness) find(s Store, q store.SearchQuery) (found []string) {
	h.Helper()
	for hit, err := range s.Search(h.Context(), q) {
		h.check(err)
		found = append(found, fmt.Sprintf("%s %s %d", hit.PartID, hit.Field, hit.Matches))
		for _, m := range hit.Marks {
			if got := hit.Context[m[0]:m[1]]; !q.Regexp && len([]rune(got)) != len([]rune(q.Text)) {
				h.Errorf("%q: a mark is %q", q.Text, got)
			}
		}
	}
	return found
}

func readSearch(h *harness, s Store) {
	h.script(s, searched)
	for _, test := range []struct {
		query store.SearchQuery
		want  []string
	}{
		{store.SearchQuery{Text: "needle"}, []string{"q2 text 2", "p1 input.args[1].deep 1", "p1 output 2"}},
		{store.SearchQuery{Text: "eedle"}, []string{"q2 text 2", "p1 input.args[1].deep 1", "p1 output 2"}},
		{store.SearchQuery{Text: `"naïve"`}, []string{"p0 text 1"}},
		{store.SearchQuery{Text: "Ïve,\ncafÉ"}, []string{"p0 text 1"}},
		{store.SearchQuery{Text: "Él"}, []string{"p2 error 1"}},
		{store.SearchQuery{Text: "É"}, []string{"p2 error 1", "p0 text 1"}},
		{store.SearchQuery{Text: "42"}, []string{"p1 input.n 1"}},
		{store.SearchQuery{Text: "k"}, []string{"p0 text 1"}},
		{store.SearchQuery{Text: "needle", Agent: "coder"}, []string{"p1 input.args[1].deep 1", "p1 output 2"}},
		{store.SearchQuery{Text: "needle", Since: time.UnixMilli(6)}, []string{"q2 text 2"}},
		{store.SearchQuery{Text: "o"}, []string{" title 1", " title 1", "p2 error 1", "p0 text 1"}},
		{store.SearchQuery{Text: "tWO"}, []string{" title 1"}},
		{store.SearchQuery{Text: "one", Agent: "other"}, nil},
		{store.SearchQuery{Text: "one", Since: time.UnixMilli(2)}, nil},
		{store.SearchQuery{Text: "new chat"}, nil},
		{store.SearchQuery{Text: "nothing of it"}, nil},
		{store.SearchQuery{}, nil},
		{store.SearchQuery{Text: `ne+d.e\b`, Regexp: true},
			[]string{"q2 text 2", "p1 input.args[1].deep 1", "p1 output 2"}},
		{store.SearchQuery{Text: `(?-i)Ne+dle`, Regexp: true}, []string{"q2 text 1", "p1 output 1"}},
		{store.SearchQuery{Text: `^Café`, Regexp: true}, []string{"p0 text 1"}},
		{store.SearchQuery{Text: `(?-m)^Café`, Regexp: true}, nil},
		{store.SearchQuery{Text: `"NAÏVE"|élève$`, Regexp: true}, []string{"p2 error 1", "p0 text 1"}},
		{store.SearchQuery{Text: `^\d+$`, Regexp: true, Agent: "coder"}, []string{"p1 input.n 1"}},
		{store.SearchQuery{Text: `in k$`, Regexp: true}, []string{"p0 text 1"}}, // the Kelvin sign
		{store.SearchQuery{Text: `^o.e$`, Regexp: true}, []string{" title 1"}},
		{store.SearchQuery{Text: `x*`, Regexp: true}, []string{"p1 input.args[0] 1"}},
	} {
		h.equal(fmt.Sprintf("%+v", test.query), h.find(s, test.query), test.want)
	}
	for _, err := range s.Search(h.Context(), store.SearchQuery{Text: "a(b", Regexp: true}) {
		if err == nil || !strings.Contains(err.Error(), "character 2: missing closing )") {
			h.Errorf("a regular expression that is wrong: %v", err)
		}
	}
	for hit, err := range s.Search(h.Context(), store.SearchQuery{Text: "deep"}) {
		h.Errorf("a key is found: %+v, %v", hit, err)
	}
	for hit, err := range s.Search(h.Context(), store.SearchQuery{Text: "naïve"}) {
		want := store.Hit{SessionID: "s", Title: "One", Agent: "coder", MessageID: "s0", Role: "user", PartID: "p0",
			Type: "text", Field: "text",
			Matches: 2, Context: "Say \"NAÏVE\" or naïve,\nCafé in K", Marks: [][2]int{{5, 11}, {16, 22}},
			CreatedAt: 1}
		if diff := cmp.Diff(want, hit); diff != "" || err != nil {
			h.Errorf("hit (-want +got):\n%s, %v", diff, err)
		}
		break // early
	}
}

func readNotes(h *harness, s Store) {
	h.script(s, searched)
	note := func(id, session, message, part, text string, at int64) store.Annotation {
		return store.Annotation{ID: id, SessionID: session, MessageID: message, PartID: part,
			Kind: store.AnnotationNote, Comment: text, CreatedAt: at, UpdatedAt: at}
	}
	tag := note("ann_3", "f", "", "", "because of the needle", 12)
	tag.Kind, tag.Name = store.AnnotationTag, "odd"
	gone := note("ann_4", "s", "", "", "no needle", 13)
	gone.DeletedAt = &gone.CreatedAt
	if err := s.Annotate(h.Context(), []store.Annotation{note("ann_1", "s", "", "", "A NEEDLE, a needle", 10),
		note("ann_2", "s", "s1", "p1", "Which needle?", 11), tag, gone}); err != nil {
		h.Fatal(err)
	}
	for _, test := range []struct {
		query store.SearchQuery
		want  []string
	}{
		{store.SearchQuery{Text: "needle"}, []string{" note 1", "p1 note 1", " note 2", "q2 text 2",
			"p1 input.args[1].deep 1", "p1 output 2"}},
		{store.SearchQuery{Text: "^which", Regexp: true}, []string{"p1 note 1"}},
		{store.SearchQuery{Text: "needle", Agent: "other"}, []string{" note 1", "q2 text 2"}},
		{store.SearchQuery{Text: "needle", Since: time.UnixMilli(12)}, []string{" note 1"}},
		{store.SearchQuery{Text: "needle", Session: "f"}, []string{" note 1", "q2 text 2"}},
		{store.SearchQuery{Text: "naïve", Session: "f"}, []string{"q0 text 1"}}, // which it copied
		{store.SearchQuery{Text: "naïve", Session: "s"}, []string{"p0 text 2"}},
		{store.SearchQuery{Text: "t", Session: "nothing"}, nil},
		{store.SearchQuery{Text: "two", Session: "f"}, []string{" title 1"}},
	} {
		h.equal(fmt.Sprintf("%+v", test.query), h.find(s, test.query), test.want)
	}
	for hit := range s.Search(h.Context(), store.SearchQuery{Text: "which"}) {
		want := store.Hit{SessionID: "s", Title: "One", Agent: "coder", MessageID: "s1", PartID: "p1", Type: "note",
			Field: "note", Matches: 1, Context: "Which needle?", Marks: [][2]int{{0, 5}}, CreatedAt: 11}
		h.equal("hit", hit, want)
	}
}

// counted is a store of three sessions: one of two days, a fork that copied its
// first turn, and one of another agent that failed.
const counted = `
INSERT INTO chat_sessions(id, title, agent, created_at, updated_at) VALUES
 ('s', 's', 'coder', 1000, 86400500), ('f', 'f', 'coder', 86400100, 86400200), ('x', 'x', 'other', 1000, 2000),
 ('e', 'e', 'idle', 1000, 1000);
INSERT INTO session_state(session_id, state_json, forked_from) VALUES ('f', '{}', 's');
UPDATE chat_sessions SET parent_id = 's' WHERE id = 'f';
INSERT INTO chat_messages(id, session_id, role, metadata_json, hidden_at, created_at, updated_at) VALUES
 ('s0', 's', 'user', '{}', NULL, 1000, 1000),
 ('s1', 's', 'assistant', '{"model":{"provider_id":"p","model_id":"big"},
  "usage":{"input":10,"output":2,"reasoning":1,"cache_read":30,"cache_write":0},
  "agenttrace":{"duration_ms":100,"cost_usd":0.5,"end_reason":"finish"}}', NULL, 1001, 1001),
 ('s1u', 's', 'user', '{}', 9, 86400399, 86400399),
 ('s2', 's', 'assistant',
  '{"model":{"model_id":"small"},"usage":{"input":5,"output":1},"agenttrace":{"duration_ms":300}}',
  9, 86400400, 86400400),
 ('s3', 's', 'assistant',
  '{"compaction":true,"usage":{"input":999},"agenttrace":{"input_tokens":7,"output_tokens":3}}',
  NULL, 86400500, 86400500),
 ('f1', 'f', 'assistant', '{"usage":{"input":10},"agenttrace":{"duration_ms":100}}', NULL, 1001, 1001),
 ('f1u', 'f', 'user', '{}', NULL, 86400149, 86400149),
 ('f2', 'f', 'assistant', '{"model":"no object","usage":{"input":4}}', NULL, 86400150, 86400150),
 ('x1', 'x', 'assistant', '{"agenttrace":{"end_reason":"error"}}', NULL, 1500, 1500);
INSERT INTO chat_parts(id, message_id, session_id, "index", type, data_json, tool_call_id, tool_state,
 created_at, updated_at) VALUES
 ('p0', 's1', 's', 0, 'tool-bash', '{"toolMetadata":{"agenttrace":{"duration_ms":5}}}',
  'c0', 'output-available', 1001, 1001),
 ('p1', 's1', 's', 1, 'dynamic-tool', '{"toolName":"mcp","output":"\u0000"}', 'c1', 'output-error', 1001, 1001),
 ('p2', 's2', 's', 0, 'tool-bash', '{"toolMetadata":{"agenttrace":{"denied":true}}}',
  'c2', 'output-error', 86400400, 86400400),
 ('p3', 's2', 's', 1, 'text', '{"text":"tool-"}', NULL, NULL, 86400400, 86400400),
 ('q0', 'f1', 'f', 0, 'tool-bash', '{}', 'c0', 'output-available', 1001, 1001);
UPDATE chat_sessions SET created_at = created_at + 1767225600000, updated_at = updated_at + 1767225600000;
UPDATE chat_messages SET created_at = created_at + 1767225600000, updated_at = updated_at + 1767225600000;
UPDATE chat_parts SET created_at = created_at + 1767225600000, updated_at = updated_at + 1767225600000`

func readStats(h *harness, s Store) {
	h.script(s, counted)
	total := store.StatsGroup{
		Sessions: 4, Turns: 4, Errors: 2, Usage: session.Usage{Input: 26, Output: 6, Reasoning: 1, CacheRead: 30},
		TotalTokens: 63, CostUSD: 0.5,
		CacheHitRate: new(30.0 / 56), ToolCalls: 3, FailedCalls: 1, DeniedCalls: 1, MedianMS: new(int64(100)),
		P95MS: new(int64(300)),
	}
	big := store.StatsGroup{Key: "p/big", Sessions: 1, Turns: 1,
		Usage: session.Usage{Input: 10, Output: 2, Reasoning: 1, CacheRead: 30}, TotalTokens: 43, CostUSD: 0.5,
		CacheHitRate: new(0.75), ToolCalls: 2, Errors: 1, FailedCalls: 1, MedianMS: new(int64(100)), P95MS: new(int64(100))}
	firstDay := big
	firstDay.Key, firstDay.Sessions, firstDay.Turns, firstDay.Errors = "2026-01-01", 2, 2, 2
	for _, test := range []struct {
		name   string
		query  store.StatsQuery
		groups []store.StatsGroup
	}{
		{"all", store.StatsQuery{}, nil},
		{"day", store.StatsQuery{By: []store.StatsBy{store.StatsByDay}}, []store.StatsGroup{firstDay,
			{Key: "2026-01-02", Sessions: 2, Turns: 2, Usage: session.Usage{Input: 16, Output: 4}, TotalTokens: 20,
				CacheHitRate: new(0.0),
				ToolCalls:    1, DeniedCalls: 1, MedianMS: new(int64(300)), P95MS: new(int64(300))}}},
		{"model", store.StatsQuery{By: []store.StatsBy{store.StatsByModel}}, []store.StatsGroup{big,
			{Key: "", Sessions: 3, Turns: 2, Errors: 1, Usage: session.Usage{Input: 11, Output: 3}, TotalTokens: 14,
				CacheHitRate: new(0.0)},
			{Key: "small", Sessions: 1, Turns: 1, Usage: session.Usage{Input: 5, Output: 1}, TotalTokens: 6,
				CacheHitRate: new(0.0),
				ToolCalls:    1, DeniedCalls: 1, MedianMS: new(int64(300)), P95MS: new(int64(300))}}},
		{"agent", store.StatsQuery{By: []store.StatsBy{store.StatsByAgent}}, []store.StatsGroup{
			{Key: "coder", Sessions: 2, Turns: 3, Usage: total.Usage, TotalTokens: 63, CostUSD: 0.5,
				CacheHitRate: total.CacheHitRate,
				ToolCalls:    3, Errors: 1, FailedCalls: 1, DeniedCalls: 1, MedianMS: total.MedianMS, P95MS: total.P95MS},
			{Key: "other", Sessions: 1, Turns: 1, Errors: 1}}},
	} {
		got, err := s.Stats(h.Context(), test.query)
		h.check(err)
		for i, g := range got.Groups {
			h.equal("the value of the key "+test.name, g.Keys, map[store.StatsBy]string{store.StatsBy(test.name): g.Key})
			got.Groups[i].Keys = nil
		}
		h.equal("by "+test.name, got, store.Stats{Total: total, Groups: test.groups})
	}
	h.script(s, `INSERT INTO chat_parts(id, message_id, session_id, "index", type, data_json, tool_state,
 created_at, updated_at) VALUES ('z', 's2', 's', 9, 'dynamic-tool', '{"toolName":', 'output-error', 1767225601001, 1)`)
	got, err := s.Stats(h.Context(), store.StatsQuery{By: []store.StatsBy{store.StatsByTool}})
	h.check(err)
	want := []store.StatsGroup{
		{Key: "bash", Sessions: 1, ToolCalls: 2, DeniedCalls: 1, MedianMS: new(int64(5)), P95MS: new(int64(5))},
		{Key: "", Sessions: 1, ToolCalls: 1, Errors: 1, FailedCalls: 1}, // its JSON ends too early
		{Key: "mcp", Sessions: 1, ToolCalls: 1, Errors: 1, FailedCalls: 1},
	}
	for i := range got.Groups {
		got.Groups[i].Keys = nil
	}
	h.equal("by tool", got.Groups, want)
	since, err := s.Stats(h.Context(), store.StatsQuery{Since: time.UnixMilli(1767225600000 + 86400200)})
	h.check(err)
	if since.Total.Turns != 1 || since.Total.ToolCalls != 1 || since.Total.Sessions != 2 {
		h.Errorf("since the second day: %+v", since.Total)
	}
}

// readEstimates: what is stated counts, what is not is asked for with the model and the
// usage of the message, and what has no price is named.
func readEstimates(h *harness, s Store) {
	h.script(s, counted)
	rate := func(m session.Model) *price.Rate {
		if m.ModelID != "small" {
			return nil
		}
		// Only an unknown number of requests is charged as short ones.
		return &price.Rate{Base: [5]float64{1, 1, 1, 1, 1},
			Tiers: []price.Tier{{Above: -1, Rates: [5]float64{9, 9, 9, 9, 9}}}}
	}
	for _, test := range []struct {
		query  store.StatsQuery
		key    string
		stated float64
		want   *float64
	}{
		{store.StatsQuery{}, "", 0.5, new(6.0)},
		{store.StatsQuery{By: []store.StatsBy{store.StatsByDay}}, "2026-01-02", 0, new(6.0)},
		{store.StatsQuery{By: []store.StatsBy{store.StatsByDay}}, "2026-01-01", 0.5, nil},
		{store.StatsQuery{By: []store.StatsBy{store.StatsByModel}}, "small", 0, new(6.0)},
		{store.StatsQuery{By: []store.StatsBy{store.StatsByModel}}, "p/big", 0.5, nil},
		{store.StatsQuery{By: []store.StatsBy{store.StatsByModel}}, "", 0, nil},
	} {
		test.query.Price = rate
		got, err := s.Stats(h.Context(), test.query)
		h.check(err)
		g := got.Total
		for _, group := range got.Groups {
			if group.Key == test.key {
				g = group
			}
		}
		if d := cmp.Diff(test.want, g.EstimatedCostUSD); d != "" || g.CostUSD != test.stated {
			h.Errorf("by %q, %q: stated %v, estimated (-want +got):\n%s", test.query.By, test.key, g.CostUSD, d)
		}
		if !got.Total.Unpriced || g.Unpriced != (test.key == "" || test.key == "2026-01-02") {
			h.Errorf("by %q, %q: unpriced %t, total %t", test.query.By, test.key, g.Unpriced, got.Total.Unpriced)
		}
		h.equal(fmt.Sprintf("by %q: total", test.query.By), got.Total.EstimatedCostUSD, new(6.0))
		h.equal(fmt.Sprintf("by %q: without a price", test.query.By), got.UnpricedModels, []string{""})
	}
	got, err := s.Spent(h.Context(), []string{"s", "f", "e", "none"}, rate)
	h.check(err)
	want := map[string]store.Spent{
		"s": {Tokens: session.Tokens{Used: &session.Usage{Input: 22, Output: 6, Reasoning: 1, CacheRead: 30},
			CostUSD: new(0.5)}, EstimatedUSD: new(6.0), Turns: 2, Errors: 1, Denied: 1},
		"f": {Tokens: session.Tokens{Used: &session.Usage{Input: 4}, Copied: &session.Usage{Input: 10}},
			Unpriced: []string{""}, Turns: 2},
		"e": {},
	}
	h.equal("of sessions", got, want)
}

// TestTail reads the end of a session, and finds by an index where it is.
func readEstimatesOfSteps(h *harness, s Store) {
	h.script(s, `INSERT INTO chat_sessions(id, title, agent, created_at, updated_at) VALUES
 ('s', '', 'a', 1, 9), ('t', '', 'a', 1, 9);
INSERT INTO chat_messages(id, session_id, role, metadata_json, created_at, updated_at) VALUES
 ('s1', 's', 'assistant', '{"model":{"model_id":"big"},"usage":{"input":30},"agenttrace":{"model_calls":2,"steps":[`+
		`{"usage":{"input":10}},{"usage":{"input":20},"model":{"model_id":"small"}}]}}', 2, 2),
 ('t1', 't', 'assistant', '{"model":{"model_id":"big"},"usage":{"input":30},"agenttrace":{"model_calls":2,"steps":[`+
		`{"usage":{"input":10}},{"usage":{"input":20},"model":{"model_id":"other"}}]}}', 2, 2)`)
	spent, err := s.Spent(h.Context(), []string{"s", "t"}, func(m session.Model) *price.Rate {
		return map[string]*price.Rate{"big": {Base: [5]float64{10}}, "small": {Base: [5]float64{1}}}[m.ModelID]
	})
	h.check(err)
	h.equal("both models have a price", spent["s"].EstimatedUSD, new(120.0))
	if d := cmp.Diff([]string{"other"}, spent["t"].Unpriced); d != "" || spent["t"].EstimatedUSD != nil {
		h.Errorf("one has no price: estimated %v (-want +got):\n%s", spent["t"].EstimatedUSD, d)
	}
}

func readWeeksAndProjects(h *harness, s Store) {
	h.script(s, counted+`;
UPDATE chat_sessions SET workspace_root = '/work/app' WHERE id = 's';
UPDATE chat_messages SET created_at = created_at + 3 * 86400000 WHERE created_at >= 1767225600000 + 86400000;
INSERT INTO chat_sessions(id, title, agent, parent_id, created_at, updated_at) VALUES
 ('child', '', 'helper', 's', 1767225601000, 1767225601000);
INSERT INTO chat_messages(id, session_id, role, metadata_json, hidden_at, created_at, updated_at) VALUES
 ('c1', 'child', 'assistant', '{"usage":{"input":3}}', NULL, 1767225602000, 1767225602000)`)
	for _, test := range []struct {
		by   string
		want map[string]int64 // tokens
	}{
		// 2026-01-01 is a Thursday of the first week, and what came a day later is on a Monday now.
		{"week", map[string]int64{"2026-W01": 46, "2026-W02": 20}},
		{"project", map[string]int64{"/work/app": 66, "": 0}},
		{"project,week", map[string]int64{"/work/app, 2026-W01": 46, "/work/app, 2026-W02": 20, ", 2026-W01": 0}},
	} {
		by, err := store.ParseStatsBy(test.by)
		h.check(err)
		got, err := s.Stats(h.Context(), store.StatsQuery{By: by})
		h.check(err)
		tokens := make(map[string]int64)
		for _, g := range got.Groups {
			tokens[g.Key] = g.TotalTokens
		}
		h.equal("by "+test.by, tokens, test.want)
	}
}

func readTail(h *harness, s Store) {
	message := func(id, role string, at int64) store.Batch {
		return store.Batch{
			Sessions: []store.SessionChange{{ID: "ses_1", Start: at, End: at}},
			Messages: []store.MessageChange{{ID: id, SessionID: "ses_1", Role: role, CreatedAt: at, UpdatedAt: at,
				Rank: store.RankFinal}},
			Parts: []store.PartChange{{ID: "prt_" + id, MessageID: id, SessionID: "ses_1", Type: "text",
				Data: []byte(`{"type":"text","text":"x"}`), CreatedAt: at, UpdatedAt: at, Rank: store.RankFinal}},
			Decisions: []store.Decision{{ID: "per_" + id, SessionID: "ses_1", ToolID: "bash", Action: "allow",
				DecidedAt: at}},
		}
	}
	for i, id := range []string{"u1", "a1", "u2", "a2", "u3", "a3"} {
		role := session.RoleUser
		if id[0] == 'a' {
			role = session.RoleAssistant
		}
		h.apply(s, message(id, role, int64(1000+i)))
	}
	for _, c := range []struct {
		turns int
		want  string
	}{{1, "u3 a3"}, {2, "u2 a2 u3 a3"}, {9, "u1 a1 u2 a2 u3 a3"}} {
		tail, err := s.Excerpt(h.Context(), "ses_1", store.ExcerptQuery{LastTurns: c.turns})
		h.check(err)
		var got []string
		for _, m := range tail.Messages {
			got = append(got, m.Message.ID)
			if len(m.Parts) != 1 {
				h.Errorf("message %s has %d parts", m.Message.ID, len(m.Parts))
			}
		}
		if strings.Join(got, " ") != c.want || len(tail.Decisions) != len(got) {
			h.Errorf("the last %d turns are %v with %d decisions, want %s", c.turns, got, len(tail.Decisions), c.want)
		}
	}
	if _, err := s.Excerpt(h.Context(), "ses_2", store.ExcerptQuery{LastTurns: 1}); !errors.Is(err, store.ErrNotFound) {
		h.Errorf("a session that is not there: %v", err)
	}
	since, err := s.SessionsSince(h.Context(), 1005)
	if err != nil || len(since) != 1 {
		h.Errorf("%d sessions since then, %v", len(since), err)
	}
	if since, err = s.SessionsSince(h.Context(), 1006); err != nil || len(since) != 0 {
		h.Errorf("%d sessions since later, %v", len(since), err)
	}
}

// turnAt is a session s with one turn.
func turnAt(at int64) store.Batch {
	return join(ofSession("s", at, store.SessionChange{}), user("s", "u", at), assistant("s", "a", at+1, 1))
}

func amend(h *harness, s Store) {
	b := turnAt(0)
	b.Sessions[0].Title, b.Sessions[0].Archived = reported(0, "agent's"), reported(0, "0")
	h.apply(s, b)
	before := h.session(s, "s")
	moment := func(at int64) time.Time { return time.UnixMilli(epoch + at) }
	h.check(s.SetTitle(h.Context(), "s", "mine", moment(5)))
	h.check(s.Archive(h.Context(), "s", true, moment(6)))
	h.apply(s, b)
	row := h.session(s, "s")
	if row.Title != "mine" || row.ArchivedAt == nil || *row.ArchivedAt != epoch+6 || row.UpdatedAt != before.UpdatedAt {
		h.Errorf("after a redelivery: %q, archived %v, updated %d", row.Title, row.ArchivedAt, row.UpdatedAt)
	}
	h.check(s.Archive(h.Context(), "s", false, moment(7)))
	b.Sessions[0].Title = reported(10, "later")
	h.apply(s, b)
	if row := h.session(s, "s"); row.ArchivedAt != nil || row.Title != "later" {
		h.Errorf("then: %q, archived %v", row.Title, row.ArchivedAt)
	}
	for _, err := range []error{s.SetTitle(h.Context(), "none", "x", moment(0)),
		s.Archive(h.Context(), "none", true, moment(0)), s.Delete(h.Context(), "none")} {
		if !errors.Is(err, store.ErrNotFound) {
			h.Errorf("of a session that is not there: %v", err)
		}
	}
	h.equal("sessions", ids(h.sessions(s, everything)), []string{"s"})
}

func (h *harness) session(s Store, id string) session.Session {
	h.Helper()
	row, err := s.Session(h.Context(), id)
	h.check(err)
	return row
}

func remove(h *harness, s Store) {
	b, other := turnAt(0), ofSession("t", 0, store.SessionChange{ParentID: reported(0, "s")})
	b.Decisions = []store.Decision{{ID: "d", SessionID: "s", ToolID: "bash", Action: "allow", DecidedAt: epoch}}
	h.apply(s, other)
	without := h.dump(s)
	h.apply(s, b)
	with := h.dump(s)
	h.check(s.Delete(h.Context(), "s"))
	h.equal("what is left", h.dump(s), without)
	h.apply(s, b)
	h.equal("delivered again", h.dump(s), with)
}

func collect(h *harness, s Store) {
	b := turnAt(0)
	b.SpanRefs[0].TurnStats.SystemPromptDigest = "named"
	b.SpanRefs[0].TurnStats.Trace.ToolCatalogDigest = "offered"
	all := map[string]store.BlobKind{"named": store.BlobSystemPrompt, "unnamed": store.BlobSystemPrompt,
		"offered": store.BlobToolCatalog, "unoffered": store.BlobToolCatalog}
	for _, digest := range slices.Sorted(maps.Keys(all)) {
		b.Blobs = append(b.Blobs, store.Blob{Kind: all[digest], Digest: digest, Body: "[]"})
	}
	h.apply(s, b)
	updated := h.session(s, "s").UpdatedAt
	for _, test := range []struct {
		recent int64
		dryRun bool
		want   store.Garbage
		left   string
	}{
		{updated, false, store.Garbage{Kept: true}, "named offered unnamed unoffered"},
		{updated + 1, true, store.Garbage{SystemPrompts: 1, ToolCatalogs: 1}, "named offered unnamed unoffered"},
		{updated + 1, false, store.Garbage{SystemPrompts: 1, ToolCatalogs: 1}, "named offered"},
		{updated + 1, false, store.Garbage{}, "named offered"},
	} {
		what := fmt.Sprintf("recent %d, dry run %v: ", test.recent-updated, test.dryRun)
		g, err := s.Collect(h.Context(), time.UnixMilli(test.recent), test.dryRun)
		h.check(err)
		h.equal(what+"garbage", g, test.want)
		var left []string
		for _, digest := range slices.Sorted(maps.Keys(all)) {
			if _, err := s.Blob(h.Context(), all[digest], digest); err == nil {
				left = append(left, digest)
			} else if !errors.Is(err, store.ErrNotFound) {
				h.Error(err)
			}
		}
		h.equal(what+"left", strings.Join(left, " "), test.left)
	}
}

// readPages finds what is in more parts than are looked through at a time, each once and the last first.
func readPages(h *harness, s Store) {
	h.script(s, `INSERT INTO chat_sessions(id, agent, created_at, updated_at) VALUES ('s', 'a', 1, 9);
INSERT INTO chat_messages(id, session_id, role, created_at, updated_at) VALUES ('m', 's', 'user', 1, 1)`)
	const count = 700
	var rows, want []string
	for i := range count {
		id := fmt.Sprintf("p%03d", i)
		rows = append(rows,
			fmt.Sprintf(`('%s', 'm', 's', %d, 'text', '{"type":"text","text":"needle"}', %d, 1)`, id, i, i/7))
		want = append(want, id+" text 1")
	}
	h.script(s, `INSERT INTO chat_parts(id, message_id, session_id, "index", type, data_json, created_at, updated_at)
 VALUES `+strings.Join(rows, ","))
	slices.Reverse(want)
	h.equal("parts", h.find(s, store.SearchQuery{Text: "Needle"}), want)
}

// readNotices has a session for each reason why there may be a notice.
func readNotices(h *harness, s Store) {
	want := map[string]bool{}
	answer := func(response string) string {
		return `assistant {"agenttrace":{"response_id":"` + response + `"}} text {} `
	}
	message := 0
	for id, rows := range map[string]string{
		"none":       `assistant {} text {"type":"text","text":"a"}`,
		"problem":    `assistant {"agenttrace":{"problems":["x"]}} text {}`,
		"incomplete": `assistant {"agenttrace":{"incomplete":true}} text {}`,
		"history":    `assistant {"agenttrace":{"history":{"turns":3}}} text {}`,
		"begins":     `assistant {"agenttrace":{"history":true}} text {}`,
		"response":   answer("r") + answer("r"),
		"responses":  answer("r") + answer("q"),
		"open":       `assistant {} input-available {}`,
		"empty":      `assistant {}`,
		"twice":      "assistant {} text {\"text\":\"a\"} text {\"text\":\"\\na\\t\"}",
		"damaged":    `assistant {"response_id":{"history": text {"text": text {"text":`,
		"quoted":     `assistant {"text":"o'clock"} text {"text":"a"} text {"text":"b"}`,
	} {
		h.script(s, `INSERT INTO chat_sessions(id, agent, created_at, updated_at) VALUES ('`+id+`', 'a', 1, 9)`)
		fields := strings.Fields(rows)
		for i := 0; i < len(fields); i += 2 {
			value := strings.ReplaceAll(fields[i+1], "'", "''")
			if fields[i] == "assistant" {
				message++
				h.script(s, fmt.Sprintf(`INSERT INTO chat_messages(id, session_id, role, metadata_json,
 created_at, updated_at) VALUES ('m%d', '%s', 'assistant', '%s', %d, 1)`, message, id, value, i))
				continue
			}
			kind, state := "text", "NULL"
			if fields[i] != "text" {
				kind, state = "tool-bash", "'"+fields[i]+"'"
			}
			h.script(s, fmt.Sprintf(`INSERT INTO chat_parts(id, message_id, session_id, "index", type, data_json,
 tool_state, created_at, updated_at) VALUES ('%s%d', 'm%d', '%s', %d, '%s', '%s', %s, 1, 1)`,
				id, i, message, id, i, kind, value, state))
		}
		if !slices.Contains([]string{"none", "responses", "quoted"}, id) {
			want[id] = true
		}
	}
	all := append(slices.Collect(maps.Keys(want)), "none", "responses", "quoted", "unknown")
	got, err := s.MayHaveNotices(h.Context(), all)
	h.check(err)
	h.equal("sessions", got, want)
}

// readLastTurn reads of the last turn what may be going on.
func readLastTurn(h *harness, s Store) {
	b := turnAt(0)
	b.Parts = append(b.Parts, toolPart("s", "a", "done", 1, 1, store.RankFinal, session.StateOutputAvailable),
		toolPart("s", "a", "running", 2, 1, store.RankLive, "input-available"))
	h.apply(s, user("s", "before", -9), assistant("s", "earlier", -8, 1), b)
	last := store.ExcerptQuery{LastTurns: 1, Outline: true}
	t, err := s.Excerpt(h.Context(), "s", last)
	h.check(err)
	var got []string
	for _, m := range t.Messages {
		got = append(got, m.Message.ID)
		for _, p := range m.Parts {
			got = append(got, p.ID)
		}
	}
	h.equal("messages and parts", got, []string{"u", "a", "running"})
	if _, err := s.Excerpt(h.Context(), "none", last); !errors.Is(err, store.ErrNotFound) {
		h.Errorf("of a session that is not there: %v", err)
	}
}

// restore imports what a store remembers of a session into an empty one.
func restore(h *harness, s Store) {
	b := turnAt(0)
	b.Parts = append(b.Parts, textPart("s", "a", "same", 0, 1, "at the index of another"))
	h.apply(s, b)
	in := &store.Imported{Transcript: h.transcript(s, "s")}
	h.check(s.Origin(h.Context(), in))
	h.equal("spans", len(in.SpanRefs), 1)
	h.equal("traces", in.Traces, []string{"trace-s"})
	h.equal("requested indexes", len(in.RequestedIndexes), 1)
	before := h.dump(s)
	h.check(s.Delete(h.Context(), "s"))
	if _, err := s.Import(h.Context(), in); err != nil {
		h.Fatal(err)
	}
	h.apply(s, b)
	h.equal("after its telemetry was delivered again", h.dump(s), before)
}

// readStale: a family goes as one, or not at all.
func readStale(h *harness, s Store) {
	h.script(s, `INSERT INTO chat_sessions(id, agent, parent_id, created_at, updated_at, archived_at) VALUES
 ('old', 'a', NULL, 1, 10, NULL), ('child', 'a', 'old', 1, 20, NULL), ('grandchild', 'a', 'child', 1, 30, NULL),
 ('kept', 'a', NULL, 1, 10, 5), ('young', 'a', 'kept', 1, 200, NULL),
 ('away', 'a', NULL, 1, 40, 50), ('orphan', 'a', 'gone', 1, 15, NULL),
 ('x', 'a', 'y', 1, 5, NULL), ('y', 'a', 'x', 1, 6, NULL)`)
	for _, test := range []struct {
		before   int64
		archived bool
		want     []string
	}{
		{100, false, []string{"x", "y", "old", "orphan", "child", "grandchild", "away"}},
		{30, false, []string{"x", "y", "orphan"}},
		{100, true, []string{"away"}},
		{1, false, nil},
	} {
		stale, err := s.Stale(h.Context(), time.UnixMilli(test.before), test.archived)
		h.check(err)
		var got []string
		for _, s := range stale {
			got = append(got, s.ID)
		}
		h.equal(fmt.Sprintf("before %d, archived %v", test.before, test.archived), got, test.want)
	}
}
