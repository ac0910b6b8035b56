package setup_test

import (
	"context"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/setup"
	"github.com/agenttrace/agenttrace/semconv"
)

// process is a process with a sampler of its own.
type process struct {
	exporter *tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
	tracer   *agenttrace.Tracer
}

func newProcess(sampler sdktrace.Sampler) *process {
	p := &process{exporter: tracetest.NewInMemoryExporter()}
	p.provider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(p.exporter), sdktrace.WithSampler(sampler))
	p.tracer = agenttrace.New(agenttrace.Options{TracerProvider: p.provider})
	return p
}

// count adds the spans of each session.
func (p *process) count(to map[string]int) {
	for _, span := range p.exporter.GetSpans() {
		for _, kv := range span.Attributes {
			if kv.Key == semconv.SessionIDKey {
				to[kv.Value.AsString()]++
				break
			}
		}
	}
}

// converse is a session in two processes, some of whose runs are below requests that are
// sampled by themselves, with sub-agents in both and a fork.
func converse(n int, here, there *process) {
	id := func(kind string) string { return fmt.Sprintf("ses_%s_%d", kind, n) }
	from := "" // the last message of a user, none of what is not recorded
	work := func(ctx context.Context, sess *agenttrace.Session, inner func(context.Context)) {
		runCtx, run := sess.StartRun(ctx, agenttrace.RunOptions{Model: agenttrace.Model{Provider: "p", ID: "m"}})
		// A turn that begins in a context that does not know the run.
		turnCtx, turn := run.StartTurn([]context.Context{runCtx, ctx, context.Background()}[n%3],
			agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
		from = turn.UserMessageID()
		_, call := turn.StartModelCall(turnCtx, agenttrace.ModelCallOptions{})
		call.End(agenttrace.ModelResult{}, nil)
		toolCtx, tool := turn.StartTool(context.Background(), agenttrace.ToolOptions{ID: "c", Name: "task", Input: n})
		if inner != nil {
			inner(toolCtx)
		}
		tool.End(nil)
		turn.End(agenttrace.TurnResult{})
		run.End(nil)
	}
	request := func(p *process, f func(context.Context)) {
		ctx, span := p.provider.Tracer("http").Start(context.Background(), "POST /chat")
		f(ctx)
		span.End()
	}
	sess := here.tracer.NewSession(context.Background(), agenttrace.SessionOptions{ID: id("main"), Agent: "coder"})
	request(here, func(ctx context.Context) {
		work(ctx, sess, func(ctx context.Context) {
			child := here.tracer.NewSession(ctx, agenttrace.SessionOptions{ID: id("sub"), Agent: "sub"})
			work(ctx, child, func(ctx context.Context) {
				wire := propagation.MapCarrier{}
				agenttrace.Inject(ctx, wire)
				remote := agenttrace.Extract(context.Background(), wire)
				far := there.tracer.NewSession(remote, agenttrace.SessionOptions{ID: id("far"), Agent: "far"})
				work(remote, far, nil)
				// It goes on later, below a request of its own.
				again, _ := there.tracer.ResumeSession(context.Background(), far.State())
				request(there, func(ctx context.Context) { work(ctx, again, nil) })
			})
		})
	})
	sess.SetTitle(context.Background(), "A title")
	resumed, _ := there.tracer.ResumeSession(context.Background(), sess.State())
	work(context.Background(), resumed, nil)
	fork, err := resumed.Fork(context.Background(), from, agenttrace.ForkOptions{ID: id("fork")})
	if err != nil {
		panic(err)
	}
	work(context.Background(), fork, nil)
}

// TestASampledSessionIsWholeAndOthersLeaveNothing compares the spans of each session with
// those that it has without sampling.
func TestASampledSessionIsWholeAndOthersLeaveNothing(t *testing.T) {
	const sessions = 120
	all := func(sampler func() sdktrace.Sampler) map[string]int {
		here, there := newProcess(sampler()), newProcess(sampler())
		for n := range sessions {
			converse(n, here, there)
		}
		got := map[string]int{}
		here.count(got)
		there.count(got)
		return got
	}
	want := all(sdktrace.AlwaysSample)
	if len(want) != 4*sessions {
		t.Fatalf("%d sessions, want %d", len(want), 4*sessions)
	}
	for _, fraction := range []float64{0, 0.3, 1} {
		got, kept := all(func() sdktrace.Sampler { return setup.SessionSampler(fraction) }), 0
		for n := range sessions {
			whole := got[fmt.Sprintf("ses_main_%d", n)] > 0
			if whole {
				kept++
			}
			for _, kind := range []string{"main", "sub", "far", "fork"} {
				id := fmt.Sprintf("ses_%s_%d", kind, n)
				if have := got[id]; whole && have != want[id] || !whole && have != 0 {
					t.Errorf("at %g session %s has %d of %d spans, of main %v", fraction, id, have, want[id], whole)
				}
			}
		}
		if share := float64(kept) / sessions; share < fraction-0.15 || share > fraction+0.15 {
			t.Errorf("at %g %d of %d sessions are kept", fraction, kept, sessions)
		}
	}
}

func TestOtherSpansGoByTheirParent(t *testing.T) {
	p := newProcess(setup.SessionSampler(0.5))
	for range 200 {
		ctx, span := p.provider.Tracer("http").Start(t.Context(), "GET /")
		_, child := p.provider.Tracer("http").Start(ctx, "SELECT")
		if span.SpanContext().IsSampled() != child.SpanContext().IsSampled() {
			t.Fatal("a child is not sampled as its parent is")
		}
		child.End()
		span.End()
	}
	if n := len(p.exporter.GetSpans()) / 2; n < 60 || n > 140 {
		t.Errorf("%d of 200 traces are kept at 0.5", n)
	}
	if d := setup.SessionSampler(2).Description(); d != "SessionSampler{1}" {
		t.Error(d)
	}
}
