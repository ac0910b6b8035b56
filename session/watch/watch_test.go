package watch_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/watch"
)

// call is a call of a tool in a session that is made up.
type call struct{ tool, input, state string }

// conversation is a session of a question and an answer with calls, which was last updated that long ago.
func conversation(id string, ago time.Duration, text string, calls ...call) *store.Imported {
	at := time.Now().Add(-ago).UnixMilli()
	root := "/work/" + id
	t := &session.Transcript{Session: session.Session{ID: id, Title: "T", Agent: "tester", WorkspaceRoot: &root,
		PermissionsJSON: "[]", MetadataJSON: `{"user_id":"ann"}`, CreatedAt: at, UpdatedAt: time.Now().UnixMilli()}}
	row := func(name, role, metadata string) session.MessageAndParts {
		return session.MessageAndParts{Message: session.Message{ID: id + name, SessionID: id, Role: role,
			MetadataJSON: metadata, CreatedAt: at, UpdatedAt: at}}
	}
	user, answer := row("1", session.RoleUser, "{}"),
		row("2", session.RoleAssistant, `{"usage":{"input":900,"output":100},"agenttrace":{"cost_usd":2}}`)
	part := func(to *session.MessageAndParts, kind, data string) *session.Part {
		i := len(to.Parts)
		to.Parts = append(to.Parts, session.Part{ID: fmt.Sprintf("%s%d", to.Message.ID, i), MessageID: to.Message.ID,
			SessionID: id, Index: int64(i), Type: kind, DataJSON: data, CreatedAt: at, UpdatedAt: at})
		return &to.Parts[i]
	}
	part(&user, "text", fmt.Sprintf(`{"type":"text","text":%q}`, text))
	for i, c := range calls {
		end := `,"output":"x"`
		switch c.state {
		case session.StateOutputError:
			end = `,"errorText":"it broke"`
		case session.StateInputAvailable:
			end = ""
		}
		callID := fmt.Sprintf("%s_%d", id, i)
		p := part(&answer, "tool-"+c.tool, fmt.Sprintf(`{"type":"tool-%s","toolCallId":%q,"state":%q,"input":%s%s}`, c.tool,
			callID, c.state, c.input, end))
		p.ToolCallID, p.ToolState = &callID, &c.state
	}
	t.Messages = []session.MessageAndParts{user, answer}
	return &store.Imported{Transcript: t}
}

// Each kind of rule finds the session that is so, and no other.
func TestRulesFindWhatTheyState(t *testing.T) {
	const ok, failed, open = session.StateOutputAvailable, session.StateOutputError, session.StateInputAvailable
	list := call{"list", `{"dir":"."}`, ok}
	var failing []call
	for i := range 10 {
		state := ok
		if i%3 > 0 {
			state = failed
		}
		failing = append(failing, call{"make", fmt.Sprintf(`{"target":%d}`, i), state})
	}
	sessions := map[string]*store.Imported{
		"calm":    conversation("calm", 0, "hello", list),
		"looping": conversation("looping", 0, "hello", list, list, list),
		"failing": conversation("failing", 0, "hello", failing...),
		"stuck":   conversation("stuck", 12*time.Minute, "hello", call{"ask", `{}`, open}),
		"leaking": conversation("leaking", 0, "password=__REDACTED__"),
		"banned":  conversation("banned", 0, "hello", call{"deploy_all", `{"to":"production"}`, ok}),
	}
	dir := t.TempDir()
	path, file := filepath.Join(dir, "s.db"), filepath.Join(dir, "rules.yaml")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range sessions {
		if _, err := s.Import(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ran := filepath.Join(dir, "ran")
	err = os.WriteFile(file, fmt.Appendf(nil, `version: 1
rules:
  - {name: looping, loops: none}
  - {name: failing, error_rate: {above: 0.5, calls: 10}}
  - {name: stuck, waits: 10m}
  - {name: leaking, secrets: none}
  - {name: banned, not_called: {tool: deploy*, input: {to: production}}}
  - {name: calls, max: {tool_calls: 9}}
  - {name: user, budget: {per: user, tokens: 5000}}
  - {name: rich, budget: {per: day, tokens: 1000000}}
command: [sh, -c, "cat >> %s"]
`, ran), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := watch.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"looping": "looping", "failing": "failing", "stuck": "stuck", "leaking": "leaking",
		"banned": "banned", "calls": "failing", "user": "*"}
	ctx, cancel := context.WithCancel(t.Context())
	w := watch.Watcher{Rules: rules, Store: sqlite.Follow(path), State: path + watch.StateSuffix,
		Problem: func(err error) { t.Log(err) },
		Found: func(f watch.Fact) {
			of, known := want[f.Rule]
			if !known || of != "*" && of != f.SessionID {
				t.Errorf("%s found %s", f.Rule, f.SessionID)
			}
			if delete(want, f.Rule); len(want) == 0 {
				cancel()
			}
		}}
	deadline := time.AfterFunc(time.Minute, cancel)
	defer deadline.Stop()
	if err := w.Run(ctx); err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	if err := w.Store.Close(); err != nil {
		t.Error(err)
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
}
