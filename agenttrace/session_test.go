package agenttrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/agenttrace/agenttrace/agenttrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

func TestSessionOperations(t *testing.T) {
	h := newHarness(t, Options{}, SessionOptions{
		Title: "Fix it", WorkspaceID: "ws", WorkspaceRoot: "/w", Mode: "plan", UserID: "u",
		Metadata: map[string]any{"a": 1, "b": []int{2}},
		Rules:    []Rule{rule("bash", "ls", allow, "")},
	})
	ctx := h.ctx
	var users []string
	for i := range 3 {
		_, turn := h.turn(fmt.Sprint(i))
		turn.Text("answer")
		users = append(users, turn.UserMessageID())
		turn.End(TurnResult{})
	}
	h.sess.SetTitle(ctx, "Fix the test") // a run is open: its end reports the change
	h.run.End(nil)
	run := one(t, h.rec.All().Runs())
	if run.Title != "Fix the test" || run.WorkspaceID != "ws" || run.WorkspaceRoot != "/w" || run.Mode != "plan" ||
		run.UserID != "u" || string(run.Metadata) != `{"a":1,"b":[2]}` || run.Model.ModelID != "gpt-5-mini" ||
		run.CreatedAt == 0 || run.Operation != "" {
		t.Errorf("run = %+v", run)
	}
	h.rec.Reset()

	h.sess.SetTitle(ctx, "Again")
	h.sess.SetMode(ctx, "build")
	h.sess.SetMetadata(ctx, map[string]any{"b": nil, "c": "x"})
	h.sess.AddRule(ctx, rule("read", "", allow, manifest))
	h.sess.Archive(ctx)
	h.sess.Unarchive(ctx)
	testscale.Must(t, h.sess.Rewind(ctx, users[1]))
	testscale.Must(t, h.sess.Rewind(ctx, users[0]))
	for range 2 {
		testscale.Must(t, h.sess.Unrewind(ctx))
	}
	var operations []string
	runs := h.rec.All().Runs()
	for _, r := range runs {
		operations = append(operations,
			strings.TrimSpace(r.Operation+" "+map[string]string{users[0]: "0", users[1]: "1"}[r.TargetMessageID]))
		if r.Outcome != "" || r.Agent != "coder" {
			t.Errorf("moment = %+v", r)
		}
	}
	if got, want := strings.Join(operations, ", "),
		"update, update, update, update, archive, unarchive, rewind 1, rewind 0, unrewind 0, unrewind 1"; got != want {
		t.Errorf("operations = %s, want %s", got, want)
	}
	if runs[6].TargetAt != runs[9].TargetAt || runs[7].TargetAt != runs[8].TargetAt || runs[6].TargetAt == 0 {
		t.Error("an unrewind does not name the rewind that it undoes")
	}
	last := runs[3]
	if last.Title != "Again" || last.Mode != "build" || string(last.Metadata) != `{"a":1,"b":null,"c":"x"}` ||
		!strings.Contains(string(last.Permissions), `"permission":"read","pattern":"*","action":"allow",`+
			`"source":"session"`) {
		t.Errorf("last update = %+v", last)
	}
	for _, s := range h.rec.All() {
		if !s.Start.Equal(s.End) {
			t.Errorf("%s lasts %v", s.Name, s.End.Sub(s.Start))
		}
	}
	h.check()

	for _, test := range []struct {
		name string
		err  error
		want error
	}{
		{"unrewind with none", h.sess.Unrewind(ctx), ErrNothingPending},
	} {
		if !errors.Is(test.err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, test.err, test.want)
		}
	}
}

func TestFork(t *testing.T) {
	h := newHarness(t, Options{},
		SessionOptions{Title: "Fix it", Metadata: map[string]any{"a": 1},
			Rules: []Rule{rule("bash", "ls", allow, "")}})
	_, turn := h.turn("0")
	first := turn.AssistantMessageID()
	for name, err := range map[string]error{
		"fork":   func() error { _, err := h.sess.Fork(h.ctx, first, ForkOptions{}); return err }(),
		"rewind": h.sess.Rewind(h.ctx, turn.UserMessageID()), "unrewind": h.sess.Unrewind(h.ctx),
	} {
		if !errors.Is(err, ErrBusy) {
			t.Errorf("%s in a turn: %v, want ErrBusy", name, err)
		}
	}
	turn.End(TurnResult{})
	_, turn = h.turn("1")
	turn.End(TurnResult{})
	if none, err := h.sess.Fork(h.ctx, "", ForkOptions{}); err == nil || h.sess.Rewind(h.ctx, "") == nil || none != nil {
		t.Error("forked at, or rewound to, a message without an id")
	}
	// The run may stay open: no turn is.
	child, err := h.sess.Fork(h.ctx, first, ForkOptions{Metadata: map[string]any{"ephemeral": true}})
	testscale.Must(t, err)
	ctx, run := child.StartRun(context.Background(), RunOptions{})
	_, turn = run.StartTurn(ctx, UserMessage{Text: "other"}, TurnOptions{})
	turn.End(TurnResult{})
	run.End(nil)
	h.run.End(nil)
	h.check()
	fork := one(t, h.rec.Session(child.ID()).Operations("fork"))
	if fork.ParentID != h.sess.ID() || fork.ParentMessageID != first || fork.TargetMessageID != first ||
		fork.TargetAt == 0 || fork.Title != "Fix it (copy)" || string(fork.Metadata) != `{"a":1,"ephemeral":true}` ||
		fork.Permissions != nil || fork.Agent != "coder" {
		t.Errorf("fork = %+v", fork)
	}
	if got := one(t, h.rec.Session(child.ID()).Turns()); *got.Index != 2 || got.Model.ModelID != "gpt-5-mini" {
		t.Errorf("the child's first turn: index %d, model %q", *got.Index, got.Model.ModelID)
	}

	untitled := h.tracer.NewSession(h.ctx, SessionOptions{Agent: "a", Title: "New Chat"})
	_, run = untitled.StartRun(h.ctx, RunOptions{})
	_, turn = run.StartTurn(h.ctx, UserMessage{Text: "x"}, TurnOptions{})
	turn.End(TurnResult{})
	run.End(nil)
	if copied, err := untitled.Fork(h.ctx, turn.UserMessageID(), ForkOptions{}); err != nil || copied.Title() != "" {
		t.Errorf("copy of an untitled session: %q, %v", copied.Title(), err)
	}
}

func TestSubAgent(t *testing.T) {
	h := newHarness(t, Options{}, SessionOptions{})
	ctx, turn := h.turn("research")
	ctx, tool := turn.StartTool(ctx, ToolOptions{ID: "c", Name: "task", Input: 1})
	child := h.tracer.NewSession(ctx, SessionOptions{Agent: "researcher"})
	childCtx, run := child.StartRun(ctx, RunOptions{})
	if TurnFromContext(childCtx) != nil || ToolFromContext(childCtx) != nil || SessionFromContext(childCtx) != child {
		t.Error("the child's run is in its parent's turn")
	}
	childCtx, childTurn := run.StartTurn(childCtx, UserMessage{Text: "find"}, TurnOptions{})
	TurnFromContext(childCtx).Text("found")
	childTurn.End(TurnResult{})
	run.End(nil)
	tool.End("found")
	h.end(turn)
	got := one(t, h.rec.Session(child.ID()).Runs())
	if got.ParentID != h.sess.ID() || got.ParentMessageID != turn.UserMessageID() {
		t.Errorf("child run = %+v", got)
	}
	if c := one(t, h.rec.All().ToolCalls("task")); c.ChildSessionID != child.ID() {
		t.Errorf("tool call names the child %q", c.ChildSessionID)
	}
	spans := h.rec.Session(child.ID()).Named("session.run")
	if spans[0].Parent.SpanID() != tool.SpanContext().SpanID() {
		t.Error("the child's run is not under the call that started it")
	}
	if ids := h.rec.Sessions(); len(ids) != 2 {
		t.Errorf("sessions = %q", ids)
	}
}

func TestStateIsBoundedAndPlain(t *testing.T) {
	h := newHarness(t, Options{}, SessionOptions{})
	var first string
	for i := range 1500 {
		_, turn := h.turn("x")
		if i == 0 {
			first = turn.UserMessageID()
		}
		turn.End(TurnResult{})
	}
	for range 100 {
		testscale.Must(t, h.sess.Rewind(h.ctx, first))
	}
	h.run.End(nil)
	st := h.sess.State()
	if len(st.Rewinds) > 64 || st.NextTurn != 1500 {
		t.Errorf("%d rewinds, next turn %d", len(st.Rewinds), st.NextTurn)
	}
	again, err := h.tracer.ResumeSession(context.Background(), stored(t, st))
	testscale.Must(t, err)
	if diff := cmp.Diff(st, again.State()); diff != "" {
		t.Errorf("the state changes by being stored: %s", diff)
	}
	for name, bad := range map[string]State{"empty": {}, "no agent": {ID: "ses_1"},
		"metadata": {ID: "s", Agent: "a", Metadata: json.RawMessage("[]")}} {
		if _, err := h.tracer.ResumeSession(context.Background(), bad); err == nil {
			t.Errorf("resume of a state that is wrong (%s) reports nothing", name)
		}
	}
}

func TestClockThatStepsBackDoesNotReorder(t *testing.T) {
	h := newHarness(t, Options{}, SessionOptions{})
	for range 3 {
		_, turn := h.turn("x")
		turn.Text("y")
		turn.End(TurnResult{})
		h.clock.Advance(-5e9)
	}
	h.run.End(nil)
	h.check()
	last, lastID := int64(0), ""
	for _, turn := range h.rec.All().Turns() {
		for _, m := range []struct {
			at int64
			id string
		}{{turn.User.CreatedAt, turn.User.ID}, {turn.Assistant.CreatedAt, turn.Assistant.ID}} {
			if m.at < last || m.id <= lastID {
				t.Errorf("message %s at %d comes after %s at %d", m.id, m.at, lastID, last)
			}
			last, lastID = m.at, m.id
		}
	}
}
