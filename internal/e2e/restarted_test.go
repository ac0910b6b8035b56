//go:build long

package e2e

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/recorder"
)

// host is a store, and processes that work on one session in it one after the other. Each
// process was killed before the next one starts.
type host struct {
	recorder *recorder.Recorder
	tracer   *agenttrace.Tracer
	session  *agenttrace.Session
	run      *agenttrace.Run
	ctx      context.Context
}

func newHost(t *testing.T) *host {
	t.Helper()
	rec, err := recorder.Open(t.Context(), filepath.Join(t.TempDir(), "sessions.db"), recorder.Options{})
	testscale.Must(t, err)
	t.Cleanup(func() {
		if err := rec.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	h := &host{recorder: rec}
	h.boot(t, true)
	h.session = h.tracer.NewSession(t.Context(), agenttrace.SessionOptions{Agent: "coder"})
	h.start(t)
	return h
}

// boot starts another process of the host. Without spans its spans never arrive.
func (h *host) boot(t *testing.T, spans bool) {
	t.Helper()
	tp := sdktrace.NewTracerProvider()
	if spans {
		tp.RegisterSpanProcessor(sdktrace.NewSimpleSpanProcessor(h.recorder.SpanExporter()))
	}
	lp := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewSimpleProcessor(h.recorder.LogExporter())))
	h.tracer = agenttrace.New(agenttrace.Options{TracerProvider: tp, LoggerProvider: lp,
		Live: agenttrace.LiveOptions{MinInterval: -1}})
}

func (h *host) start(t *testing.T) {
	t.Helper()
	h.ctx, h.run = h.session.StartRun(t.Context(), agenttrace.RunOptions{})
}

// resume continues from a state in another process.
func (h *host) resume(t *testing.T, state agenttrace.State, spans bool) {
	t.Helper()
	h.boot(t, spans)
	var err error
	if h.session, err = h.tracer.ResumeSession(t.Context(), state); err != nil {
		t.Fatal(err)
	}
}

// stored returns the turn metadata of the last message, its parts, of which there is at
// least one, and the status of the session.
func (h *host) stored(t *testing.T) (session.MessageTrace, []content, document.Status) {
	t.Helper()
	tr := transcript(t, h.recorder.Reader(), h.session.ID())
	if tr == nil {
		t.Fatalf("of the session %s nothing is stored, of %q is", h.session.ID(), h.recorder.Sessions())
	}
	last := tr.Messages[len(tr.Messages)-1]
	var parts []content
	for _, p := range last.Parts {
		parts = append(parts, contentOf([]byte(p.DataJSON)))
	}
	if len(parts) == 0 {
		t.Fatalf("the last message has no parts: %+v", last)
	}
	return traceOf(t, &last.Message), parts, document.StatusOf(&tr.Session, tr, nil, time.Time{}, 0)
}

// TestOutcomeStandsAboveRestart: the result of a call was reported, and the host resumes from an earlier state.
func TestOutcomeStandsAboveRestart(t *testing.T) {
	h := newHost(t)
	h.resume(t, h.session.State(), false)
	h.start(t)
	ctx, turn := h.run.StartTurn(h.ctx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
	_, call := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "c", Name: "bash", Input: 1})
	state := h.session.State()
	call.EndText("done")
	h.resume(t, state, true)
	trace, parts, status := h.stored(t)
	if trace.EndReason != "abort" || parts[0].State != session.StateOutputAvailable || parts[0].Output != `"done"` ||
		status.State != document.ActivityIdle {
		t.Errorf("%+v, %+v, %s; want an aborted turn with the output", trace, parts, status.State)
	}
}

// TestAnswerStandsAboveWait: a turn ended to wait for its user, and another process got the answer and was killed.
func TestAnswerStandsAboveWait(t *testing.T) {
	for _, test := range []struct {
		name, state, output string
		end                 func(*agenttrace.ToolCall)
	}{
		{"while the call runs", session.StateOutputError, "", func(*agenttrace.ToolCall) {}},
		{"when it has ended", session.StateOutputAvailable, `"this"`, func(c *agenttrace.ToolCall) {
			c.EndText("this")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHost(t)
			ctx, turn := h.run.StartTurn(h.ctx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
			_, call := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "c", Name: "ask", Input: 1})
			call.AwaitInput("Which?")
			turn.End(agenttrace.TurnResult{})
			if trace, parts, status := h.stored(t); !trace.PendingApproval ||
				parts[0].State != session.StateInputAvailable ||
				status.State != document.ActivityWaitingUserInput {
				t.Fatalf("%+v, %+v, %s; want a turn that waits", trace, parts, status.State)
			}
			h.resume(t, h.session.State(), false)
			h.start(t)
			ctx, turn, err := h.run.ContinueTurn(h.ctx, agenttrace.TurnOptions{})
			testscale.Must(t, err)
			_, call, _, err = turn.ResumeTool(ctx, "c", agenttrace.Answer{})
			testscale.Must(t, err)
			test.end(call)
			h.resume(t, h.session.State(), true)
			trace, parts, status := h.stored(t)
			if trace.EndReason != "abort" || trace.PendingApproval || parts[0].State != test.state ||
				parts[0].Output != test.output || status.State != document.ActivityIdle {
				t.Errorf("%+v, %+v, %s; want an aborted turn and a call at %s", trace, parts, status.State, test.state)
			}
		})
	}
}

// TestAbortedTurnWaitsForNobody: the user stops a turn while a call of it waits.
func TestAbortedTurnWaitsForNobody(t *testing.T) {
	h := newHost(t)
	ctx, turn := h.run.StartTurn(h.ctx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
	_, call := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "c", Name: "bash", Input: 1})
	call.AwaitApproval("")
	turn.Abort()
	trace, parts, status := h.stored(t)
	if trace.EndReason != "abort" || parts[0].State != session.StateApprovalRequested ||
		status.State != document.ActivityIdle || h.session.Status().State != agenttrace.StatusIdle {
		t.Errorf("%+v, %+v, %s; want an aborted turn, a call left as it was, an idle session", trace, parts,
			status.State)
	}
}

// TestOneAnswer: a state is saved when a turn begins, as a host should do, and the
// process is killed while the answer streams.
func TestOneAnswer(t *testing.T) {
	h := newHost(t)
	_, turn := h.run.StartTurn(h.ctx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
	state := h.session.State()
	_, _ = turn.StreamText().WriteString("Let me see. ")
	h.resume(t, state, true)
	tr := transcript(t, h.recorder.Reader(), h.session.ID())
	trace, parts, status := h.stored(t)
	if len(tr.Messages) != 2 || trace.EndReason != "abort" || parts[0].Text == "" ||
		status.State != document.ActivityIdle {
		t.Errorf("%d messages, %+v, %+v, %s; want one answer, aborted where it stopped", len(tr.Messages), trace, parts,
			status.State)
	}
}
