package ingest_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// TestToolCallsThatBeganAfterTheLastSavedStateEndWithTheirTurn: the process that resumes the session does not know of
// them, and nobody else would end them. It holds in whatever order the events and spans of both processes come.
func TestToolCallsThatBeganAfterTheLastSavedStateEndWithTheirTurn(t *testing.T) {
	aborted := session.StateOutputError
	abandoned(t, false, map[string]string{"known": aborted, "over": session.StateOutputAvailable, "late": aborted,
		"streaming": aborted, "asked": aborted})
}

// TestWhatAProcessSawThatWasTakenForDeadTakesPrecedence: it was not, and ended its calls.
func TestWhatAProcessSawThatWasTakenForDeadTakesPrecedence(t *testing.T) {
	abandoned(t, true, map[string]string{
		"known": session.StateOutputError, "over": session.StateOutputAvailable, "late": session.StateOutputAvailable,
		"streaming": session.StateInputStreaming, "asked": session.StateApprovalRequested,
	})
}

// TestATurnThatBeganAfterTheLastSavedStateEndsWhenAnotherGoesOn: the process that resumes
// the session knows nothing of it. What the first process saw takes precedence after all.
func TestATurnThatBeganAfterTheLastSavedStateEndsWhenAnotherGoesOn(t *testing.T) {
	for _, alive := range []bool{false, true} {
		first, options, sess := coderSession(t)
		runCtx, run := sess.StartRun(t.Context(), agenttrace.RunOptions{})
		_, turn := run.StartTurn(runCtx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
		turn.Text("Gone.")
		turn.End(agenttrace.TurnResult{})
		state := sess.State()
		ctx, turn := run.StartTurn(runCtx, agenttrace.UserMessage{Text: "on"}, agenttrace.TurnOptions{})
		_, before := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "before", Name: "bash",
			Input: map[string]any{"command": "make"}})
		before.End("made")
		turn.End(agenttrace.TurnResult{})
		ctx, lost := run.StartTurn(runCtx, agenttrace.UserMessage{Text: "and on"}, agenttrace.TurnOptions{})
		_, running := lost.StartTool(ctx, agenttrace.ToolOptions{ID: "running", Name: "bash",
			Input: map[string]any{"command": "sleep 60"}})
		lost.StreamText().WriteString("I am about ")
		lostRun := run
		// Here the process is killed.

		second := agenttracetest.NewRecorder()
		options.TracerProvider, options.LoggerProvider = second, second
		resumed, err := agenttrace.New(options).ResumeSession(t.Context(), state)
		testscale.Must(t, err)
		runCtx, run = resumed.StartRun(t.Context(), agenttrace.RunOptions{})
		for _, text := range []string{"go on", "and on"} {
			ctx, turn = run.StartTurn(runCtx, agenttrace.UserMessage{Text: text}, agenttrace.TurnOptions{})
			_, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "of " + text, Name: "bash",
				Input: map[string]any{}})
			if text == "go on" {
				tool.End("done")
				turn.End(agenttrace.TurnResult{})
			}
		}
		if alive {
			running.End("slept")
			lost.Abort()
			lostRun.End(nil)
		}
		rows := deliveredInAnyOrder(t, first, second)
		states, ends := map[string]string{}, map[string]int{}
		for _, m := range rows[0].Messages {
			if strings.Contains(m.Message.MetadataJSON, `"end_reason":"abort"`) {
				ends["abort"]++
			}
			for _, p := range m.Parts {
				if p.ToolCallID != nil {
					states[*p.ToolCallID] = *p.ToolState
				}
			}
		}
		want := map[string]string{
			"before": session.StateOutputAvailable, "running": session.StateOutputError,
			"of go on": session.StateOutputAvailable, "of and on": session.StateInputAvailable,
		}
		if alive {
			want["running"] = session.StateOutputAvailable
		}
		if d := cmp.Diff(want, states); d != "" {
			t.Errorf("alive %t: states (-want +got):\n%s", alive, d)
		}
		if ends["abort"] != 1 {
			t.Errorf("alive %t: %d turns were aborted, want 1", alive, ends["abort"])
		}
	}
}

// coderSession starts a session whose spans and events are kept at once. Every look at the clock
// is three milliseconds later.
func coderSession(t *testing.T) (*agenttracetest.Recorder, agenttrace.Options, *agenttrace.Session) {
	now := time.UnixMilli(start)
	clock := func() time.Time { now = now.Add(3 * time.Millisecond); return now }
	r := agenttracetest.NewRecorder()
	options := agenttrace.Options{
		TracerProvider: r, LoggerProvider: r, Now: clock, Live: agenttrace.LiveOptions{MinInterval: -1},
	}
	return r, options, agenttrace.New(options).NewSession(t.Context(), agenttrace.SessionOptions{Agent: "coder"})
}

func abandoned(t *testing.T, alive bool, wantStates map[string]string) {
	first, options, sess := coderSession(t)
	ctx, run := sess.StartRun(t.Context(), agenttrace.RunOptions{})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
	_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{}) // of no model, as far as is known
	call.End(agenttrace.ModelResult{Usage: agenttrace.ExclusiveUsage{Input: 30, Output: 5}}, nil)
	_, known := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "known", Name: "bash",
		Input: map[string]any{"command": "make"}})
	state := sess.State()
	_ = known
	_, over := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "over", Name: "bash",
		Input: map[string]any{"command": "ls"}})
	over.End("a.go")
	_, late := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "late", Name: "bash"})
	late.InputDelta(`{"command": "sleep `)
	late.SetInput(map[string]any{"command": "sleep 60"})
	_, streaming := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "streaming", Name: "gh", Dynamic: true})
	streaming.InputDelta(`{"title": "Fix `)
	_, asked := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "asked", Name: "deploy", Input: map[string]any{}})
	asked.AwaitApproval("")
	turn.StreamText().WriteString("I am about ")
	stopped, stoppedRun := turn, run
	// Here the process is killed: the spans of what is open are lost.

	second := agenttracetest.NewRecorder()
	options.TracerProvider, options.LoggerProvider = second, second
	resumed, err := agenttrace.New(options).ResumeSession(t.Context(), state)
	testscale.Must(t, err)
	ctx, run = resumed.StartRun(t.Context(), agenttrace.RunOptions{})
	_, turn = run.StartTurn(ctx, agenttrace.UserMessage{Text: "go on"}, agenttrace.TurnOptions{})
	turn.Text("Done.")
	turn.End(agenttrace.TurnResult{})
	run.End(nil)

	if alive {
		late.End("slept")
		stopped.Abort()
		stoppedRun.End(nil)
	}

	want := deliveredInAnyOrder(t, first, second)
	if got := want[0].Session; got.PromptTokens != 30 || got.CompletionTokens != 5 {
		t.Errorf("%d and %d tokens, want 30 and 5", got.PromptTokens, got.CompletionTokens)
	}
	states := map[string]string{}
	for _, m := range want[0].Messages {
		for _, p := range m.Parts {
			if p.ToolCallID == nil {
				continue
			}
			states[*p.ToolCallID] = *p.ToolState
			if *p.ToolState == session.StateOutputError &&
				!strings.Contains(p.DataJSON, `"errorText":"`+semconv.AbortedByRestart+`"`) {
				t.Errorf("call %s: %s", *p.ToolCallID, p.DataJSON)
			}
			if *p.ToolCallID == "late" && !strings.Contains(p.DataJSON, `"input":{"command":"sleep 60"}`) {
				t.Errorf("the input of the late call is lost: %s", p.DataJSON)
			}
		}
	}
	if d := cmp.Diff(wantStates, states); d != "" {
		t.Errorf("states (-want +got):\n%s", d)
	}
}

// deliveredInAnyOrder delivers what processes sent one by one, in order and in others, and returns
// the rows, which are the same each time.
func deliveredInAnyOrder(t *testing.T, recorders ...*agenttracetest.Recorder) []*session.Transcript {
	t.Helper()
	var all []request
	for _, rec := range recorders {
		for _, e := range emitted(rec.Events()) {
			all = append(all, request{logs: logs(e), isLogs: true})
		}
		for _, s := range recorded(rec.All()) {
			all = append(all, request{traces: traces(s)})
		}
	}
	var want []*session.Transcript
	for seed := range testscale.Rounds(6, 16) {
		r := rand.New(rand.NewPCG(uint64(seed), 9))
		order := append([]request(nil), all...)
		if seed > 0 {
			r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			order = append(order, order[:r.IntN(len(order))]...) // some comes twice
		}
		s := openStore(t)
		if report := deliver(t, s, order); report.Malformed != 0 || report.Refused != 0 {
			t.Fatalf("seed %d: %+v", seed, report)
		}
		storetest.CheckSessions(t, s)
		got := rowsOf(t, s)
		if seed == 0 {
			want = got
			continue
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("seed %d (-in order +shuffled):\n%s", seed, d)
		}
	}
	return want
}
