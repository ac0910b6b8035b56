package agenttrace_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"

	. "github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/spans"
)

// clock is a clock that moves when set, and by a millisecond at each look.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.UnixMilli(1795198540000)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Millisecond)
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// harness is an agent's session with a recorder.
type harness struct {
	t      *testing.T
	rec    *agenttracetest.Recorder
	clock  *clock
	tracer *Tracer
	sess   *Session
	ctx    context.Context
	run    *Run
}

func newHarness(t *testing.T, o Options, so SessionOptions) *harness {
	t.Helper()
	h := &harness{t: t, rec: agenttracetest.NewRecorder(), clock: newClock()}
	if o.LoggerProvider, o.Now = h.rec, h.clock.Now; o.TracerProvider == nil {
		o.TracerProvider = h.rec
	}
	h.tracer = New(o)
	if so.Agent == "" {
		so.Agent = "coder"
	}
	h.sess = h.tracer.NewSession(context.Background(), so)
	h.ctx, h.run = h.sess.StartRun(context.Background(), RunOptions{Model: benchModel})
	return h
}

func (h *harness) turn(text string) (context.Context, *Turn) {
	return h.run.StartTurn(h.ctx, UserMessage{Text: text}, TurnOptions{})
}

// begin starts a turn of a new session.
func begin(t *testing.T, o Options) (*harness, context.Context, *Turn) {
	t.Helper()
	h := newHarness(t, o, SessionOptions{})
	ctx, turn := h.turn("go")
	return h, ctx, turn
}

// end ends the turn and its run, and checks what was recorded.
func (h *harness) end(turn *Turn) {
	h.t.Helper()
	turn.End(TurnResult{})
	h.run.End(nil)
	h.check()
}

// resume goes on with the session in what represents another process, where a turn waits for an answer.
func (h *harness) resume() (context.Context, *Turn) {
	h.t.Helper()
	var err error
	if h.sess, err = h.tracer.ResumeSession(context.Background(), stored(h.t, h.sess.State())); err != nil {
		h.t.Fatal(err)
	}
	h.ctx, h.run = h.sess.StartRun(context.Background(), RunOptions{})
	ctx, turn, err := h.run.ContinueTurn(h.ctx, TurnOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	return ctx, turn
}

// answering is an approver that always answers the same.
func answering(a Answer) func(context.Context, Question) (Answer, error) {
	return func(context.Context, Question) (Answer, error) { return a, nil }
}

// check fails the test when a recorded span does not hold together or one was
// left open.
func (h *harness) check() {
	h.t.Helper()
	if err := h.rec.Err(); err != nil {
		h.t.Errorf("recorded spans: %v", err)
	}
	if open := h.rec.Open(); len(open) > 0 {
		h.t.Errorf("spans left open: %q", open)
	}
	agree(h.t, h.rec)
	ids := map[string]bool{}
	for _, turn := range h.rec.All().Turns() {
		for _, m := range []spans.Message{turn.User, turn.Assistant} {
			for _, p := range m.Parts {
				if p.Data != nil && !json.Valid(p.Data) {
					h.t.Errorf("part %s is not JSON: %s", p.ID, p.Data)
				}
				// A part may come again when its turn is continued.
				if key := p.ID + turn.EndReason + m.ID; ids[key] && !turn.PendingApproval && turn.User.ID != "" {
					h.t.Errorf("part %s is sent twice", p.ID)
				} else {
					ids[key] = true
				}
			}
		}
	}
}

// one returns the only element.
func one[T any](t *testing.T, list []T) T {
	t.Helper()
	if len(list) != 1 {
		t.Fatalf("have %d, want 1: %+v", len(list), list)
	}
	return list[0]
}

// errorsOf collects what goes to otel.Handle while f runs.
func errorsOf(f func()) []error {
	var mu sync.Mutex
	var errs []error
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	}))
	defer otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	f()
	mu.Lock()
	defer mu.Unlock()
	return errs
}

// shape is what a part is, without ids and times.
type shape struct {
	Index             int64
	Type, State, Data string
}

func shapes(parts []spans.Part) []shape {
	var out []shape
	for _, p := range parts {
		out = append(out, shape{p.Index, p.Type, p.ToolState, string(p.Data)})
	}
	return out
}
