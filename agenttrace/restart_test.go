package agenttrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/spans"
)

// stored returns the state as another process reads it.
func stored(t *testing.T, st State) State {
	t.Helper()
	text, err := json.Marshal(st)
	testscale.Must(t, err)
	var back State
	testscale.Must(t, json.Unmarshal(text, &back))
	return back
}

// resume takes a session up in a process of its own.
func resume(t *testing.T, st State, clock *clock) (*agenttracetest.Recorder, *Session) {
	t.Helper()
	rec := agenttracetest.NewRecorder()
	tracer := New(Options{TracerProvider: rec, LoggerProvider: rec, Now: clock.Now})
	sess, err := tracer.ResumeSession(context.Background(), stored(t, st))
	testscale.Must(t, err)
	return rec, sess
}

func TestTurnOfAKilledProcessIsEndedByTheNext(t *testing.T) {
	h := newHarness(t, Options{}, SessionOptions{Title: "Fix"})
	ctx, turn := h.turn("go")
	_, call := turn.StartModelCall(ctx, ModelCallOptions{})
	call.StreamText().WriteString("Let me")
	_, done := turn.StartTool(ctx, ToolOptions{ID: "done", Name: "ls", Input: 1})
	done.End("x")
	_, running := turn.StartTool(ctx,
		ToolOptions{ID: "running", Name: "bash", Input: map[string]string{"cmd": "make"}, Kind: ToolExecute})
	_, streaming := turn.StartTool(ctx, ToolOptions{ID: "streaming", Name: "gh_pr", Dynamic: true})
	streaming.InputDelta(`{"title":"Fi`)
	_, broken := turn.StartTool(ctx, ToolOptions{ID: "broken", Name: "bash", RawInput: json.RawMessage(`{"cmd":`)})
	st := h.sess.State()
	index, user, answer := turn.Index(), turn.UserMessageID(), turn.AssistantMessageID()
	// Here the process is killed: nothing below happens in it.

	rec, sess := resume(t, st, h.clock)
	if err := rec.Err(); err != nil {
		t.Error(err)
	}
	agree(t, rec)
	got := one(t, rec.All().Turns())
	if *got.Index != index || got.Assistant.ID != answer || got.User.ID != "" || got.EndReason != "abort" ||
		got.PendingApproval || got.DurationMS != nil ||
		got.Error != "aborted by host restart" || got.ErrorType != "aborted" || got.Model.ModelID != "gpt-5-mini" ||
		got.Title != "Fix" {
		t.Errorf("turn = %+v", got)
	}
	type ended struct{ id, part, state, input, err, class string }
	var calls []ended
	for _, c := range rec.All().ToolCalls() {
		calls = append(calls, ended{c.CallID, c.PartID, c.State, c.Input, c.Error, c.ErrorType})
		if c.DurationMS != nil || c.MessageID != answer {
			t.Errorf("call = %+v", c)
		}
	}
	why := "aborted by host restart"
	if diff := cmp.Diff([]ended{
		{"running", running.PartID(), "output-error", `{"cmd":"make"}`, why, "aborted"},
		{"streaming", streaming.PartID(), "output-error", `"{\"title\":\"Fi"`, why, "aborted"},
		{"broken", broken.PartID(), "output-error", `"{\"cmd\":"`, why, "aborted"},
	}, calls, cmp.AllowUnexported(ended{})); diff != "" {
		t.Errorf("tool calls (-want +got):\n%s", diff)
	}
	span := rec.All().Named("session.turn")[0]
	if span.Parent.SpanID() != h.run.SpanContext().SpanID() ||
		span.SpanContext.TraceID() != h.run.SpanContext().TraceID() {
		t.Error("the turn ends in another trace than it began in")
	}
	if st := rec.Events().Statuses(); len(st) != 1 || st[0].Status != "idle" || st[0].SessionID != h.sess.ID() {
		t.Errorf("statuses = %+v", st)
	}
	if len(sess.State().Open) != 0 || sess.State().Pending != nil || sess.Busy() || sess.State().LastRun != st.LastRun {
		t.Errorf("state = %+v", sess.State())
	}

	// The session goes on, and its run links to the one that was killed.
	next, run := sess.StartRun(context.Background(), RunOptions{})
	_, turn = run.StartTurn(next, UserMessage{Text: "again"}, TurnOptions{})
	turn.End(TurnResult{})
	run.End(nil)
	if links := rec.All().Named("session.run")[0].Links; len(links) != 1 ||
		links[0].SpanContext.SpanID() != h.run.SpanContext().SpanID() {
		t.Errorf("links = %v", links)
	}
	if turn.Index() != index+1 || turn.UserMessageID() <= user {
		t.Errorf("the next turn has index %d and message %s", turn.Index(), turn.UserMessageID())
	}
}

func TestCallsThatWaitForAHumanSurviveARestart(t *testing.T) {
	h, ctx, turn := begin(t, Options{})
	_, waits := turn.StartTool(ctx, ToolOptions{ID: "waits", Name: "bash", Input: map[string]string{"cmd": "rm"}})
	question := waits.AwaitApproval("per_mine")
	if question != "per_mine" {
		t.Errorf("id = %s", question)
	}
	_, asks := turn.StartTool(ctx, ToolOptions{ID: "asks", Name: "question", Input: 1})
	asks.AwaitInput("Which one?")
	_, running := turn.StartTool(ctx, ToolOptions{ID: "running", Name: "bash", Input: 1})
	_ = running
	rec, sess := resume(t, h.sess.State(), h.clock)
	got := one(t, rec.All().Turns())
	if got.EndReason != "finish" || !got.PendingApproval || got.Error != "" {
		t.Errorf("turn = %+v", got)
	}
	agree(t, rec)
	states := map[string]string{}
	for _, c := range rec.All().ToolCalls() {
		states[c.CallID] = c.State
	}
	if diff := cmp.Diff(map[string]string{"waits": "approval-requested", "asks": "input-available",
		"running": "output-error"}, states); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	if st := sess.Status(); st.State != StatusWaitingApproval || st.CallID != "waits" {
		t.Errorf("status = %+v", st)
	}

	// Another restart, while nothing is open, changes nothing.
	rec, sess = resume(t, sess.State(), h.clock)
	if n := len(rec.All()); n != 0 || sess.Status().State != StatusWaitingApproval {
		t.Errorf("%d spans, status %+v", n, sess.Status())
	}
	next, run := sess.StartRun(context.Background(), RunOptions{})
	next, turn, err := run.ContinueTurn(next, TurnOptions{})
	testscale.Must(t, err)
	// And one in the midst of the continued turn forgets none.
	if open := sess.State().Open; len(open) != 1 || len(open[0].Tools) != 2 {
		t.Errorf("open = %+v", open)
	}
	var ids []string
	for _, p := range turn.PendingTools() {
		ids = append(ids, p.CallID)
		_, c, d, err := turn.ResumeTool(next, p.CallID, Answer{Reply: ReplyOnce})
		if err != nil || !d.Allowed() || (d.ID == question) != (p.CallID == "waits") {
			t.Errorf("%s: %+v, %v", p.CallID, d, err)
		}
		c.End("answer")
	}
	if diff := cmp.Diff([]string{"waits", "asks"}, ids); diff != "" {
		t.Errorf("pending (-want +got):\n%s", diff)
	}
	turn.End(TurnResult{})
	run.End(nil)
	if err := rec.Err(); err != nil {
		t.Error(err)
	}
	if n := len(rec.All().Permissions()); n != 1 || sess.Status().State != StatusIdle {
		t.Errorf("%d decisions, status %+v", n, sess.Status())
	}
}

// TestHostNamesWhatWasLeftOpen resumes from a state that was stored before the
// turn, completed from the host's own records.
func TestHostNamesWhatWasLeftOpen(t *testing.T) {
	h := newHarness(t, Options{}, SessionOptions{})
	st := h.sess.State()
	st.Open = []PendingTurn{{
		Index: 0, UserMessageID: "msg_u", AssistantMessageID: "msg_a", AssistantCreatedAt: 1795198540001, NextPart: 2,
		Tools: []PendingTool{
			{CallID: "c1", Name: "bash", State: "input-available", PartID: "prt_1", PartIndex: 0,
				CreatedAt: 1795198540002, Input: json.RawMessage(`{"cmd":"ls"}`)},
			{CallID: "c2", Name: "bash", State: "approval-responded", ApprovalID: "per_1", PartID: "prt_2",
				PartIndex: 1, CreatedAt: 1795198540003},
		},
	}}
	st.NextTurn = 1
	rec, _ := resume(t, st, h.clock)
	if err := rec.Err(); err != nil {
		t.Error(err)
	}
	agree(t, rec)
	turn := one(t, rec.All().Turns())
	if diff := cmp.Diff([]spans.Part{
		{ID: "prt_1", Index: 0, Type: "tool-bash", ToolCallID: "c1", ToolState: "output-error",
			CreatedAt: 1795198540002},
		{ID: "prt_2", Index: 1, Type: "tool-bash", ToolCallID: "c2", ToolState: "output-error",
			CreatedAt: 1795198540003},
	}, turn.Assistant.Parts, cmp.FilterPath(func(p cmp.Path) bool {
		return p.Last().String() == ".UpdatedAt"
	}, cmp.Ignore())); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	if turn.Assistant.ID != "msg_a" || turn.EndReason != "abort" {
		t.Errorf("turn = %+v", turn)
	}
}

func TestAbortTakesSubAgentsAlong(t *testing.T) {
	for _, test := range []struct {
		name            string
		end             func(*harness, *Turn)
		run, turn, tool string
	}{
		{"abort of the run", func(h *harness, _ *Turn) { h.run.Abort() }, "abort", "abort", "aborted by parent"},
		{"abort of the turn", func(_ *harness, turn *Turn) { turn.Abort() }, "abort", "abort", "aborted by parent"},
		{"failure of the turn", func(_ *harness, turn *Turn) {
			turn.Fail(errors.New("overloaded"))
		}, "abort", "abort", "aborted by parent"},
		{"end of the turn", func(_ *harness, turn *Turn) { turn.End(TurnResult{}) }, "finish", "finish", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, ctx, turn := begin(t, Options{})
			toolCtx, tool := turn.StartTool(ctx, ToolOptions{ID: "task", Name: "task", Input: 1})
			child := h.tracer.NewSession(toolCtx, SessionOptions{Agent: "helper"})
			childCtx, childRun := child.StartRun(toolCtx, RunOptions{})
			childCtx, childTurn := childRun.StartTurn(childCtx, UserMessage{Text: "help"}, TurnOptions{})
			grandCtx, grandTool := childTurn.StartTool(childCtx, ToolOptions{ID: "deeper", Name: "task", Input: 1})
			_, grandRun := h.tracer.NewSession(grandCtx, SessionOptions{Agent: "deep"}).StartRun(grandCtx,
				RunOptions{})
			// One that was not started in the turn's context is none of its children.
			_, other := h.tracer.NewSession(toolCtx, SessionOptions{Agent: "other"}).StartRun(
				context.Background(), RunOptions{})
			test.end(h, turn)
			for _, end := range []func(){func() { grandRun.End(nil) }, grandTool.Abort, func() {
				childTurn.End(TurnResult{})
			}, func() { childRun.End(nil) }, func() { other.End(nil) }, tool.Abort, func() { h.run.End(nil) }} {
				end() // what the hosts do when they notice
			}
			h.check()
			outcomes := map[string]string{}
			for _, r := range h.rec.All().Runs() {
				outcomes[r.Agent] = r.Outcome
			}
			if outcomes["helper"] != test.run || outcomes["deep"] != test.run || outcomes["other"] != "finish" {
				t.Errorf("outcomes = %v", outcomes)
			}
			if got := one(t, h.rec.Session(child.ID()).Turns()); got.EndReason != test.turn {
				t.Errorf("the child's turn ended by %s", got.EndReason)
			}
			for _, c := range h.rec.All().ToolCalls() {
				if c.Error != test.tool ||
					(test.tool != "") != (c.State == "output-error" && c.ErrorType == "aborted") {
					t.Errorf("call %s ended with %q in state %s", c.CallID, c.Error, c.State)
				}
			}
		})
	}
}
