package sqlite

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// conversation is a session of n turns, a second apart: messages u1, a1, u2, …
func conversation(id string, n int) store.Batch {
	b := store.Batch{Sessions: []store.SessionChange{{ID: id, Start: at, End: at}}}
	for i := range n {
		for k, role := range []string{session.RoleUser, session.RoleAssistant} {
			message := fmt.Sprintf("%c%d", role[0], i+1)
			when := at + int64(2*i+k)*1000
			b.Messages = append(b.Messages, store.MessageChange{ID: message, SessionID: id, Role: role, CreatedAt: when,
				UpdatedAt: when, Rank: store.RankFinal})
			b.Parts = append(b.Parts, store.PartChange{ID: "part-" + message, MessageID: message, SessionID: id,
				Type: "text",
				Data: fmt.Appendf(nil, `{"type":"text","text":"%s"}`, message), CreatedAt: when, UpdatedAt: when,
				Rank: store.RankFinal})
			if role == session.RoleAssistant {
				cost := 0.5
				b.SpanRefs = append(b.SpanRefs, store.SpanRef{TraceID: "trace", SpanID: message, SessionID: id,
					MessageID: message,
					Kind:      "session.turn", Dialect: "test",
					StartNano: when * 1e6, EndNano: when * 1e6,
					TurnStats: &store.TurnStats{Usage: &session.Usage{Input: 10},
						Trace: session.MessageTrace{CostUSD: &cost}}})
			}
		}
	}
	return b
}

// seen lists what the messages of a session say that are not hidden.
func seen(t *testing.T, path, id string) []string {
	t.Helper()
	return query(t, path, `SELECT json_extract(p.data_json, '$.text') FROM chat_messages m JOIN chat_parts p ON p.message_id = m.id
 WHERE m.session_id = '`+id+`' AND m.hidden_at IS NULL ORDER BY m.created_at, m.id`)
}

// TestFork: the head of a session under new ids, with what the session was said to
// be and without what is the parent's own.
func TestFork(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	told := conversation("s", 3)
	declared := func(text string) *store.Value { return &store.Value{Text: text, At: at * 1e6, Rank: store.RankFinal} }
	c := &told.Sessions[0]
	c.Title, c.Agent, c.Model, c.WorkspaceRoot, c.Permissions = declared("Fix it"), declared("coder"),
		declared(`{"model_id":"m"}`), declared("/w"),
		declared(`[{"permission":"bash","pattern":"*","action":"allow","source":"session"}]`)
	c.Metadata = map[string]store.Value{"team": *declared(`"a"`), "kept": *declared(`1`),
		"status": *declared(`{"state":"idle"}`), "agenttrace": *declared(`{"outcome":"finish"}`)}
	apply(t, s, told)

	id, err := s.Fork(t.Context(), store.ForkOptions{From: "s", Message: "u2", Metadata: map[string]any{"team": "b"},
		Now: moment(at + 60_000)})
	if err != nil {
		t.Fatal(err)
	}
	row, err := s.Session(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	want := session.Session{
		ID: id, Title: "Fix it (copy)", Agent: "coder", ModelJSON: new(`{"model_id":"m"}`), WorkspaceRoot: new("/w"),
		ParentID: new("s"), ParentMessageID: new("u2"),
		PermissionsJSON: "[]", MetadataJSON: `{"kept":1,"team":"b"}`, PromptTokens: 10, TotalTokens: 10, CostUSD: 0.5,
		CreatedAt: at + 60_000, UpdatedAt: at + 60_000,
	}
	if diff := cmp.Diff(want, row); diff != "" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"u1", "a1", "u2"}, seen(t, path, id)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}

	// What is hidden is not copied, whoever hid it; without a message it is all.
	if _, err := s.Rewind(t.Context(), "s", "u3", moment(at+70_000)); err != nil {
		t.Fatal(err)
	}
	script(t, path,
		`UPDATE chat_messages SET hidden_at = 7 WHERE id = 'a1'; UPDATE chat_sessions SET prompt_tokens = 10, `+
			`total_tokens = 10 WHERE id = 's'`)
	if id, err = s.Fork(t.Context(), store.ForkOptions{From: "s", Title: "mine", Now: moment(5)}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"u1", "u2", "a2", "u3"}, seen(t, path, id)); diff != "" {
		t.Errorf("of what is seen (-want +got):\n%s", diff)
	}
	if row, err = s.Session(t.Context(), id); err != nil || row.Title != "mine" || row.CreatedAt != at+5000 {
		t.Errorf("title %q, created at %d, %v", row.Title, row.CreatedAt, err)
	}
	for _, test := range []struct {
		o    store.ForkOptions
		want error
	}{
		{store.ForkOptions{From: "none"}, store.ErrNotFound},
		{store.ForkOptions{From: "s", Message: "none"}, store.ErrNotFound},
		{store.ForkOptions{From: "s", Message: "a3"}, store.ErrHidden},
		{store.ForkOptions{From: id, Message: "u1"}, store.ErrNotFound},
	} {
		if id, err := s.Fork(t.Context(), test.o); !errors.Is(err, test.want) || id != "" {
			t.Errorf("fork %+v: %q, %v", test.o, id, err)
		}
	}
	if id, err := s.Fork(t.Context(),
		store.ForkOptions{From: "s", Metadata: map[string]any{"f": func() {}}}); err == nil ||
		id != "" {
		t.Errorf("metadata that is no JSON: %q, %v", id, err)
	}
	sound(t, path)
}

// TestRewind: what comes after a message is hidden, comes back in the order in which
// it went, and telemetry that is delivered again changes nothing.
func TestRewind(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	told := conversation("s", 3)
	apply(t, s, told)
	rewind := func(to string, want ...string) {
		t.Helper()
		r, err := s.Rewind(t.Context(), "s", to, moment(at))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, r.Messages); diff != "" {
			t.Errorf("rewind to %s hid (-want +got):\n%s", to, diff)
		}
	}
	undo := func(to string, want ...string) {
		t.Helper()
		r, err := s.Unrewind(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, r.Messages); diff != "" || r.To != to {
			t.Errorf("undone the rewind to %s, which brought back (-want +got):\n%s", r.To, diff)
		}
	}
	rewind("u3", "a3")
	rewind("u3") // nothing is left to hide, so there is nothing to undo either
	rewind("u1", "a1", "u2", "a2", "u3")
	apply(t, s, told)
	if diff := cmp.Diff([]string{"u1"}, seen(t, path, "s")); diff != "" {
		t.Errorf("seen (-want +got):\n%s", diff)
	}
	for to, want := range map[string]error{"a1": store.ErrNotUsers, "u2": store.ErrHidden, "none": store.ErrNotFound} {
		if _, err := s.Rewind(t.Context(), "s", to, moment(at)); !errors.Is(err, want) {
			t.Errorf("rewind to %s: %v", to, err)
		}
	}
	undo("u1", "a1", "u2", "a2", "u3")
	rewind("u1", "a1", "u2", "a2", "u3")
	undo("u1", "a1", "u2", "a2", "u3")
	undo("u3", "a3")
	if _, err := s.Unrewind(t.Context(), "s"); !errors.Is(err, store.ErrNoRewind) {
		t.Errorf("nothing to undo: %v", err)
	}
	if _, err := s.Unrewind(t.Context(), "none"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("no session: %v", err)
	}
	apply(t, s, told)
	if row, err := s.Session(t.Context(), "s"); err != nil || row.TotalTokens != 30 {
		t.Errorf("%d tokens, %v", row.TotalTokens, err)
	}
	sound(t, path)
}

// TestUnrewindForeign: what another program hid, or what was hidden in a file that was imported, comes back too.
func TestUnrewindForeign(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	apply(t, s, conversation("s", 3))
	script(t, path,
		`UPDATE chat_messages SET hidden_at = 50 WHERE id IN ('a3'); UPDATE chat_messages SET hidden_at = 60 WHERE `+
			`id IN ('a2', 'u3')`)
	for _, want := range []store.Rewound{{To: "u2", At: 60, Messages: []string{"a2", "u3"}},
		{To: "u3", At: 50, Messages: []string{"a3"}}} {
		got, err := s.Unrewind(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("undone (-want +got):\n%s", diff)
		}
	}
	sound(t, path)
}

// TestARewindThatAnotherProgramHasUndoneStaysUndone: neither undoing another rewind, nor a
// message that comes late, hides again what somebody has shown.
func TestARewindThatAnotherProgramHasUndoneStaysUndone(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	message := func(id, role string, ms int64) store.MessageChange {
		return store.MessageChange{ID: id, SessionID: "s", Role: role, CreatedAt: at + ms, UpdatedAt: at + ms,
			Rank: store.RankFinal}
	}
	apply(t, s, store.Batch{Sessions: []store.SessionChange{{ID: "s", Start: at, End: at}},
		Messages: []store.MessageChange{
			message("u1", "user", 0), message("a1", "assistant", 10), message("u2", "user", 20),
			message("a2", "assistant", 30)}})
	rewind := func(to string, ms int64) {
		t.Helper()
		if _, err := s.Rewind(t.Context(), "s", to, moment(at+ms)); err != nil {
			t.Fatal(err)
		}
	}
	hidden := func(when, want string) {
		t.Helper()
		got := strings.Join(query(t, path, `SELECT id FROM chat_messages WHERE hidden_at IS NOT NULL ORDER BY `+
			`created_at`),
			" ")
		if got != want {
			t.Errorf("%s: hidden are %q, want %q", when, got, want)
		}
	}
	rewind("u1", 100)
	hidden("after a rewind", "a1 u2 a2")
	script(t, path, `UPDATE chat_messages SET hidden_at = NULL WHERE session_id = 's'`)
	apply(t, s, store.Batch{Messages: []store.MessageChange{message("late", "assistant", 25)}})
	hidden("after a late message", "")
	apply(t, s, store.Batch{Messages: []store.MessageChange{message("u3", "user", 200), message("a3", "assistant", 210),
		message("u4", "user", 220)}})
	rewind("u3", 300)
	hidden("after another rewind", "a3 u4")
	if _, err := s.Unrewind(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	hidden("after it was undone", "")
	if _, err := s.Unrewind(t.Context(), "s"); !errors.Is(err, store.ErrNoRewind) {
		t.Errorf("undoing once more: %v", err)
	}
	rewind("u3", 400)
	script(t, path, `UPDATE chat_messages SET hidden_at = NULL WHERE session_id = 's'`)
	if _, err := s.Unrewind(t.Context(), "s"); !errors.Is(err, store.ErrNoRewind) {
		t.Errorf("undoing what another program has undone: %v", err)
	}
	hidden("in the end", "")
	// Another program's own rewind is undone as it is.
	script(t, path, `UPDATE chat_messages SET hidden_at = 77 WHERE id IN ('a3', 'u4')`)
	apply(t, s, store.Batch{Messages: []store.MessageChange{message("later", "assistant", 230)}})
	hidden("after another program's", "a3 u4")
	if _, err := s.Unrewind(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	hidden("after undoing another program's", "")
}

// TestAMessageThatAnotherProgramShowsStaysSeen: where a rewind hid three and another program shows one of them, neither
// what comes late of it nor another rewind and its undoing hides it again, and undoing the first shows the others.
func TestAMessageThatAnotherProgramShowsStaysSeen(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	told := conversation("s", 3)
	apply(t, s, told)
	if _, err := s.Rewind(t.Context(), "s", "u2", moment(at+60_000)); err != nil {
		t.Fatal(err)
	}
	check := func(when string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, seen(t, path, "s")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	script(t, path, `UPDATE chat_messages SET hidden_at = NULL WHERE id = 'u3'`)
	apply(t, s, told)
	check("delivered again", "u1", "a1", "u2", "u3")
	late := told.Messages[4]
	late.UpdatedAt += 5000
	apply(t, s, store.Batch{Messages: []store.MessageChange{late}})
	check("what came late", "u1", "a1", "u2", "u3")
	if _, err := s.Rewind(t.Context(), "s", "u1", moment(at+70_000)); err != nil {
		t.Fatal(err)
	}
	check("another rewind", "u1")
	if _, err := s.Unrewind(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	check("that undone", "u1", "a1", "u2", "u3")
	if _, err := s.Unrewind(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	check("both undone", "u1", "a1", "u2", "a2", "u3", "a3")
}

// TestATitleThatAnotherProgramGaveStands: a source that repeats the old title, or speaks of a
// time before the session was heard of last, does not take it away; a newer title does.
func TestATitleThatAnotherProgramGaveStands(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	report := func(title string, ms int64, want string) {
		t.Helper()
		apply(t, s, store.Batch{Sessions: []store.SessionChange{{
			ID: "s", Start: at, End: at + ms, Title: &store.Value{Text: title, At: (at + ms) * 1e6,
				Rank: store.RankFinal},
		}}})
		row, err := s.Session(t.Context(), "s")
		if err != nil || row.Title != want {
			t.Errorf("after %q at %d the title is %q, %v; want %q", title, ms, row.Title, err, want)
		}
	}
	report("first", 10, "first")
	script(t, path, fmt.Sprintf(`UPDATE chat_sessions SET title = 'mine', updated_at = %d WHERE id = 's'`, at+100))
	report("first", 10, "mine")
	report("before", 50, "mine")
	report("first", 200, "mine")
	report("newer", 300, "newer")
}

// TestForksOfAnotherProgramAreListed: they have a parent, and copies that are older than they
// are; a sub-agent's session has none.
func TestForksOfAnotherProgramAreListed(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	script(t, path, `
INSERT INTO chat_sessions(id, agent, parent_id, parent_message_id, created_at, updated_at) VALUES ('p', 'a', NULL, NULL, 1000, 2000), ('fork', 'a', 'p', 'u', 1500, 1500), ('agent', 'a', 'p', 'u', 1500, 1600);
INSERT INTO chat_messages(id, session_id, role, created_at, updated_at) VALUES ('u', 'p', 'user', 1000, 1000), ('uc', 'fork', 'user', 1000, 1000), ('x', 'agent', 'user', 1500, 1500)`)
	var listed []string
	for row, err := range s.Sessions(t.Context(), store.SessionQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, row.ID)
	}
	if got := strings.Join(listed, " "); got != "p fork" {
		t.Errorf("listed are %q", got)
	}
}
