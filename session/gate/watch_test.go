package gate_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	zombiezen "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/gate"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// call is a call of a tool in a session that is made up.
type call struct{ tool, input, state string }

// conversation is a session of a question and an answer with calls, which was last updated that long ago.
func conversation(id string, ago time.Duration, text string, calls ...call) *store.Imported {
	at := time.Now().Add(-ago).UnixMilli()
	root := "/work/" + id
	t := &session.Transcript{Session: session.Session{ID: id, Title: "T", Agent: "tester", WorkspaceRoot: &root,
		PermissionsJSON: "[]", MetadataJSON: `{"user_id":"ann"}`, CreatedAt: at,
		UpdatedAt: time.Now().Add(-min(ago, 2*time.Minute)).UnixMilli()}}
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

// Each kind of rule finds the session that is so, and no other, while others change all the time.
func TestRulesFindWhatTheyState(t *testing.T) {
	const ok, failed, open = session.StateOutputAvailable, session.StateOutputError, session.StateInputAvailable
	secret := "ghp_" + strings.Repeat("aB3dE6", 6)
	list, hidden := call{"list", `{"dir":"."}`, ok}, call{"list", `"[omitted: 9 bytes]"`, ok}
	var failing []call
	for i := range 10 {
		state := ok
		if i%3 > 0 {
			state = failed
		}
		failing = append(failing, call{"make", fmt.Sprintf(`{"target":%d}`, i), state})
	}
	sessions := map[string]*store.Imported{
		"calm":    conversation("calm", 0, "hello", hidden, hidden, hidden),
		"looping": conversation("looping", 0, "hello", list, list, list),
		"failing": conversation("failing", 0, "hello", failing...),
		"stuck":   conversation("stuck", 10*time.Minute-time.Second, "hello", call{"ask", `{}`, open}),
		"leaking": conversation("leaking", 0, "password=__REDACTED__ swordfish"),
		"banned":  conversation("banned", 0, "hello", call{"deploy_" + secret, `{"to":"production"}`, ok}),
	}
	dir := t.TempDir()
	path, file := filepath.Join(dir, "s.db"), filepath.Join(dir, "rules.yaml")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	testscale.Must(t, err)
	for _, in := range sessions {
		if _, err := s.Import(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	testscale.Must(t, s.Close())
	ran := filepath.Join(dir, "ran")
	err = os.WriteFile(file, fmt.Appendf(nil, `version: 1
rules:
  - {name: looping, loops: none, actions: [log]}
  - {name: failing, error_rate: {above: 0.5, calls: 10}}
  - {name: stuck, waits: 10m}
  - {name: leaking, secrets: none}
  - {name: banned, not_called: {tool: deploy*, input: {to: production}}}
  - {name: calls, max: {tool_calls: 9}}
  - {name: user, budget: {per: user, tokens: 5000}}
  - {name: rich, budget: {per: day, tokens: 1000000}}
command: [sh, -c, "cat >> %s"]
`, ran), 0o600)
	testscale.Must(t, err)
	rules, err := gate.ReadRules(file)
	testscale.Must(t, err)
	known := map[string]string{"looping": "looping", "failing": "failing", "stuck": "stuck", "leaking": "leaking",
		"banned": "banned", "calls": "failing", "user": "*"}
	want := maps.Clone(known)
	ctx, cancel := context.WithCancel(t.Context())
	w := gate.Watcher{Rules: rules, Store: busy{sqlite.Follow(path)}, State: filepath.Join(dir, "new", "state"),
		Ending: time.Minute, Problem: func(err error) { t.Log(err) },
		Found: func(_ *gate.Rule, f gate.Fact) {
			of, wanted := known[f.Rule]
			if !wanted || of != "*" && of != f.SessionID || f.Detail == "" {
				t.Errorf("%s found %s: %q", f.Rule, f.SessionID, f.Detail)
			}
			if delete(want, f.Rule); len(want) == 0 {
				cancel()
			}
		}}
	deadline := time.AfterFunc(time.Minute, cancel)
	defer deadline.Stop()
	testscale.Must(t, w.Run(ctx))
	if err := w.Store.Close(); err != nil {
		t.Error(err)
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
	got, err := os.ReadFile(ran)
	if text := string(got); err != nil || strings.Count(text, "\n") != len(known)-1 || strings.Contains(text, "looping") ||
		strings.Contains(text, secret) || strings.Contains(text, "swordfish") {
		t.Errorf("the command got %s %v, want what all rules but looping found, and no secret", text, err)
	}
}

// busy is a store that others change all the time.
type busy struct{ store.Follower }

func (b busy) Poll(ctx context.Context) (store.Reader, store.Change, error) {
	r, change, err := b.Follower.Poll(ctx)
	if change == store.Unchanged {
		change = store.Changed
	}
	return r, change, err
}

// The file of a watch is of one watch at a time. What is too old to be found again is left out of it when it is opened;
// what was not delivered stays.
func TestTheStateOfAWatchStaysSmall(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	w := gate.Watcher{Rules: &gate.Rules{Command: []string{"sh", "-c", "read -r fact"}}, State: state,
		Store: followed(func() {}), Ending: time.Minute}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testscale.Must(t, w.Run(ctx)) // makes the file
	facts := func(query string, args ...any) (all []string) {
		conn, err := zombiezen.OpenConn(state, zombiezen.OpenReadWrite)
		testscale.Must(t, err)
		defer conn.Close()
		testscale.Must(t, sqlitex.Execute(conn, query, &sqlitex.ExecOptions{Args: args,
			ResultFunc: func(stmt *zombiezen.Stmt) error {
				all = append(all, stmt.ColumnText(0))
				return nil
			}}))
		return all
	}
	for id, of := range map[string]struct {
		days int64
		done string
	}{"old": {31, "command "}, "undelivered": {31, ""}, "again": {1, "command "}} {
		seen := time.Now().UnixMilli() - of.days*24*time.Hour.Milliseconds()
		facts(`INSERT INTO facts VALUES (?1, 'a', 0, ?2, '{"id":"' || ?1 || '"}', ?3)`, id, seen, of.done)
	}
	ctx, cancel = context.WithCancel(t.Context())
	other := make(chan error, 1)
	w.Store = followed(func() { // while it runs
		second := gate.Watcher{Rules: w.Rules, State: state}
		select {
		case other <- second.Run(ctx):
		default: // it is looked for again at the end
		}
		cancel()
	})
	testscale.Must(t, w.Run(ctx))
	if err := <-other; err == nil || !strings.Contains(err.Error(), state) || !strings.Contains(err.Error(), "--state") {
		t.Errorf("another watch: %v", err)
	}
	left := facts("SELECT id || done FROM facts ORDER BY id")
	if fmt.Sprint(left) != "[againcommand  undeliveredcommand ]" {
		t.Errorf("the file has %q", left)
	}
	if info, err := os.Stat(state); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v %v", info.Mode(), err)
	}
}

// followed is a store that is not there, and a function that is called when it is looked for.
type followed func()

func (f followed) Poll(context.Context) (store.Reader, store.Change, error) {
	f()
	return nil, store.Gone, nil
}

func (f followed) Close() error { return nil }
