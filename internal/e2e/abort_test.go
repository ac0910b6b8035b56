//go:build long

package e2e

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/examples/codeagent"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// pipeline is a collector with providers that send to it.
type pipeline struct {
	collector *collector.Running
	tp        *sdktrace.TracerProvider
	lp        *sdklog.LoggerProvider
}

func newPipeline(t *testing.T) *pipeline {
	t.Helper()
	c, err := collector.Start(t.Context(), collector.Options{Store: filepath.Join(t.TempDir(), "sessions.db")})
	testscale.Must(t, err)
	out, err := connect(t.Context(), c.Endpoint(), "")
	testscale.Must(t, err)
	return &pipeline{c, sdktrace.NewTracerProvider(sdktrace.WithBatcher(out.spans)),
		sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewBatchProcessor(out.logs)))}
}

// close delivers everything and opens the store.
func (p *pipeline) close(t *testing.T) *sqlite.Reader {
	t.Helper()
	ctx := context.Background()
	testscale.Must(t, errors.Join(p.tp.Shutdown(ctx), p.lp.Shutdown(ctx), p.collector.Shutdown(ctx)))
	r, err := sqlite.OpenReader(ctx, p.collector.Store())
	testscale.Must(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// answered is the last answer of a session: how it ended, and its parts by call id or type.
func answered(t *testing.T, r *sqlite.Reader, id string) (session.MessageTrace, map[string]content, document.Activity) {
	t.Helper()
	tr := transcript(t, r, id)
	if tr == nil || len(tr.Messages) < 2 {
		t.Fatalf("session %s is not in the store, or has no answer", id)
	}
	last := tr.Messages[len(tr.Messages)-1]
	parts := make(map[string]content)
	for _, p := range last.Parts {
		c := contentOf([]byte(p.DataJSON))
		if p.ToolCallID != nil {
			parts[*p.ToolCallID] = c
		} else {
			parts[p.Type] = c
		}
	}
	st := document.StatusOf(&tr.Session, tr, nil, time.Time{}, 0)
	return traceOf(t, &last.Message), parts, st.State
}

// TestAbort stops a turn in the middle of its work: its text keeps what was generated, calls keep their state, the
// sub-agent is aborted and its call failed. A client that disconnects stops nothing.
func TestAbort(t *testing.T) {
	for _, test := range []struct {
		name string
		stop func(run *agenttrace.Run, cancel context.CancelFunc) (whole bool)
		want string
	}{
		{"Run.Abort", func(run *agenttrace.Run, _ context.CancelFunc) bool { run.Abort(); return false }, "abort"},
		{"the context that the model streams in is cancelled",
			func(run *agenttrace.Run, cancel context.CancelFunc) bool {
				cancel()
				run.End(context.Canceled) // the error of the model's client
				return false
			}, "abort"},
		{"the client detaches", func(_ *agenttrace.Run, cancel context.CancelFunc) bool {
			cancel() // the context of the request, in which the agent continues
			return true
		}, "finish"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPipeline(t)
			tracer := agenttrace.New(agenttrace.Options{TracerProvider: p.tp, LoggerProvider: p.lp})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := tracer.NewSession(ctx, agenttrace.SessionOptions{Agent: "coder"})
			ctx, run := s.StartRun(ctx, agenttrace.RunOptions{Model: agenttrace.Model{ID: "m"}})
			ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
			_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
			text := call.StreamText()
			_, _ = text.WriteString("I will look at")
			_, streaming := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "streaming", Name: "bash"})
			streaming.InputDelta(`{"command":"l`)
			_, running := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "running", Name: "bash",
				Input: map[string]string{"command": "ls"}})
			_, ended := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "ended", Name: "bash", Input: 1})
			ended.EndText("a b")
			taskCtx, task := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "task", Name: "task", Input: 1})
			child := tracer.NewSession(taskCtx, agenttrace.SessionOptions{Agent: "reviewer"})
			childCtx, childRun := child.StartRun(taskCtx, agenttrace.RunOptions{})
			childCtx, childTurn := childRun.StartTurn(childCtx, agenttrace.UserMessage{Text: "review"},
				agenttrace.TurnOptions{})
			_, childCall := childTurn.StartTool(childCtx, agenttrace.ToolOptions{ID: "read", Name: "read", Input: 1})

			whole := test.stop(run, cancel)
			// Work that continues, as in goroutines that nothing waits for.
			_, _ = text.WriteString(" it.")
			_ = text.Close()
			streaming.SetInput(map[string]string{"command": "ls"})
			streaming.EndText("late")
			running.EndText("late")
			childCall.EndText("late")
			childTurn.End(agenttrace.TurnResult{})
			childRun.End(nil)
			task.EndText("late")
			call.End(agenttrace.ModelResult{}, nil)
			turn.End(agenttrace.TurnResult{})
			run.End(nil)

			r := p.close(t)
			trace, parts, status := answered(t, r, s.ID())
			want := map[string]content{
				"text":      {Text: "I will look at"},
				"streaming": {Call: "streaming", State: session.StateInputStreaming},
				"running":   {Call: "running", State: session.StateInputAvailable},
				"ended":     {Call: "ended", State: session.StateOutputAvailable, Output: `"a b"`},
				"task":      {Call: "task", State: session.StateOutputError, Error: "aborted by parent"},
			}
			childWant := content{Call: "read", State: session.StateInputAvailable}
			if whole {
				late := func(id string) content {
					return content{Call: id, State: session.StateOutputAvailable, Output: `"late"`}
				}
				want["text"] = content{Text: "I will look at it."}
				want["streaming"], want["running"], want["task"], childWant = late("streaming"), late("running"),
					late("task"),
					late("read")
			}
			if diff := cmp.Diff(want, parts); diff != "" || trace.EndReason != test.want ||
				status != document.ActivityIdle {
				t.Errorf("ended %q, %s; want %q, idle; parts (-want +got):\n%s", trace.EndReason, status, test.want,
					diff)
			}
			trace, parts, status = answered(t, r, child.ID())
			if trace.EndReason != test.want || parts["read"] != childWant || status != document.ActivityIdle {
				t.Errorf("the sub-agent ended %q, %s, with %+v; want %q, idle, %+v", trace.EndReason, status,
					parts["read"],
					test.want, childWant)
			}
		})
	}
}

// canceller cancels when it gets a certain text.
type canceller struct {
	at     string
	cancel context.CancelFunc
}

func (c canceller) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.at) {
		c.cancel()
	}
	return len(p), nil
}

// TestInterruptedAgent sends an interrupt while the example agent works.
func TestInterruptedAgent(t *testing.T) {
	p := newPipeline(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result, err := codeagent.Run(ctx, codeagent.Config{TracerProvider: p.tp, LoggerProvider: p.lp,
		Progress: canceller{"> Fix it.", cancel}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("the agent ended with %v, want %v", err, context.Canceled)
	}
	trace, _, status := answered(t, p.close(t), result.SessionID)
	if trace.EndReason != "abort" || status != document.ActivityIdle {
		t.Errorf("ended %q, %s; want abort, idle", trace.EndReason, status)
	}
}
