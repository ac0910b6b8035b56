package sqlite

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session/store"
)

// searched is a store of two sessions, the second a fork of the first.
const searched = `
INSERT INTO chat_sessions(id, title, agent, created_at, updated_at) VALUES ('s', 'One', 'coder', 1, 9), ('f', 'Two', 'other', 5, 9);
INSERT INTO session_state(session_id, state_json, forked_from) VALUES ('f', '{}', 's');
INSERT INTO chat_messages(id, session_id, role, hidden_at, created_at, updated_at) VALUES
 ('s0', 's', 'user', NULL, 1, 1), ('s1', 's', 'assistant', 7, 2, 2), ('f0', 'f', 'user', NULL, 1, 1), ('f1', 'f', 'user', NULL, 6, 6);
INSERT INTO chat_parts(id, message_id, session_id, "index", type, data_json, created_at, updated_at) VALUES
 ('p0', 's0', 's', 0, 'text', '{"type":"text","text":"Say \"NAÏVE\" or naïve,\nCafé in K"}', 1, 1),
 ('p1', 's1', 's', 0, 'tool-bash', '{"toolCallId":"c","input":{"args":["x",{"deep":"needle"}],"n":42},"output":"a needle, a \u004eeedle","toolMetadata":"needle"}', 2, 2),
 ('p2', 's1', 's', 1, 'dynamic-tool', '{"toolName":"mcp","toolCallId":"d","errorText":"no such \u00e9l\u00e8ve"}', 2, 2),
 ('p3', 's1', 's', 2, 'step-start', '{"type":"step-start"}', 2, 2),
 ('q0', 'f0', 'f', 0, 'text', '{"type":"text","text":"Say \"NAÏVE\""}', 1, 1),
 ('q1', 'f1', 'f', 0, 'text', '{"type":"text","text":"not json needle', 6, 6),
 ('q2', 'f1', 'f', 1, 'text', '{"type":"text","text":"the Needle at the end: needle"}', 6, 6)`

func find(t *testing.T, r *Reader, q store.SearchQuery) (found []string) {
	t.Helper()
	for h, err := range r.Search(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, fmt.Sprintf("%s %s %d", h.PartID, h.Field, h.Matches))
		for _, m := range h.Marks {
			if got := h.Context[m[0]:m[1]]; len([]rune(got)) != len([]rune(q.Text)) {
				t.Errorf("%q: a mark is %q", q.Text, got)
			}
		}
	}
	return found
}

func TestSearch(t *testing.T) {
	path := newPath(t)
	if err := open(t, path, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	script(t, path, searched)
	r, err := OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
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
	} {
		if diff := cmp.Diff(test.want, find(t, r, test.query)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test.query, diff)
		}
	}
	for h, err := range r.Search(t.Context(), store.SearchQuery{Text: "deep"}) {
		t.Errorf("a key is found: %+v, %v", h, err)
	}
	for h, err := range r.Search(t.Context(), store.SearchQuery{Text: "naïve"}) {
		want := store.Hit{SessionID: "s", Title: "One", Agent: "coder", MessageID: "s0", Role: "user", PartID: "p0",
			Type: "text", Field: "text",
			Matches: 2, Context: "Say \"NAÏVE\" or naïve,\nCafé in K", Marks: [][2]int{{5, 11}, {16, 22}}, CreatedAt: 1}
		if diff := cmp.Diff(want, h); diff != "" || err != nil {
			t.Errorf("hit (-want +got):\n%s, %v", diff, err)
		}
		break // early
	}
}

// BenchmarkSearch looks for what is nowhere, so reads all of it: 120,000 parts of
// 8 KiB, together 1 GB.
func BenchmarkSearch(b *testing.B) {
	path := b.TempDir() + "/s.db"
	generated(b, path, 20_000, 8<<10)
	r, err := OpenReader(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	for _, text := range []string{"no such text", "abab cdcd", "日本"} {
		b.Run(text, func(b *testing.B) {
			b.SetBytes(120_000 * 8 << 10)
			for b.Loop() {
				for h, err := range r.Search(b.Context(), store.SearchQuery{Text: text}) {
					b.Fatal(h, err)
				}
			}
		})
	}
}
