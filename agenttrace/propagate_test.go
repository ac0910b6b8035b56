package agenttrace_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	. "github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/spans"
)

// joined is what a sub-agent reports of where it comes from.
type joined struct {
	Run               spans.Run
	TraceID, ParentID string
	TurnParentID      string
	Baggage           string
}

// runSubAgent runs a sub-agent in ctx.
func runSubAgent(ctx context.Context) joined {
	rec := agenttracetest.NewRecorder()
	sess := New(Options{TracerProvider: rec}).NewSession(ctx, SessionOptions{ID: "ses_sub", Agent: "explore"})
	runCtx, run := sess.StartRun(ctx, RunOptions{})
	_, turn := run.StartTurn(runCtx, UserMessage{Text: "look"}, TurnOptions{})
	turn.End(TurnResult{})
	run.End(nil)
	parent := rec.All().Named("session.run")[0].Parent
	return joined{*rec.All().Runs()[0], parent.TraceID().String(), parent.SpanID().String(),
		rec.All().Turns()[0].ParentID, baggage.FromContext(ctx).Member("tenant").Value()}
}

// subAgentVariable makes the test binary a sub-agent.
const subAgentVariable = "AGENTTRACE_TEST_SUBAGENT"

// TestASubAgentInAnotherProcessOrServerJoinsItsParent starts sub-agents as processes, with
// the headers of HTTP and as MCP servers.
func TestASubAgentInAnotherProcessOrServerJoinsItsParent(t *testing.T) {
	if os.Getenv(subAgentVariable) != "" {
		env := Environment(os.Environ())
		testscale.Must(t, json.NewEncoder(os.Stdout).Encode(runSubAgent(Extract(t.Context(), &env))))
		os.Exit(0)
	}
	read := func(t *testing.T, b []byte) (got joined) {
		t.Helper()
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("the sub-agent printed %q: %v", b, err)
		}
		return got
	}
	for name, start := range map[string]func(t *testing.T, ctx context.Context) joined{
		"process": func(t *testing.T, ctx context.Context) joined {
			cmd := exec.Command(os.Args[0], "-test.run=^TestASubAgentInAnotherProcessOrServerJoinsItsParent$")
			env := Environment(append(os.Environ(), subAgentVariable+"=1", "TRACEPARENT=stale", "BAGGAGE=stale"))
			Inject(ctx, &env)
			cmd.Env = env
			out, err := cmd.Output()
			testscale.Must(t, err)
			return read(t, out)
		},
		"server": func(t *testing.T, ctx context.Context) joined {
			header := propagation.HeaderCarrier{}
			Inject(ctx, header)
			return runSubAgent(Extract(t.Context(), header))
		},
		"mcp": func(t *testing.T, ctx context.Context) joined {
			meta := Meta{"progressToken": 1}
			Inject(ctx, meta)
			request, err := json.Marshal(map[string]any{"_meta": meta})
			testscale.Must(t, err)
			if !strings.Contains(string(request), `"traceparent":"00-`) ||
				!strings.Contains(string(request), `"progressToken":1`) {
				t.Errorf("request = %s", request)
			}
			var params struct {
				Meta Meta `json:"_meta"`
			}
			testscale.Must(t, json.Unmarshal(request, &params))
			return runSubAgent(Extract(t.Context(), params.Meta))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, Options{}, SessionOptions{ID: "ses_parent \"1\" ü"})
			member, err := baggage.NewMember("tenant", "t1")
			testscale.Must(t, err)
			bag, err := baggage.New(member)
			testscale.Must(t, err)
			ctx, turn := h.run.StartTurn(baggage.ContextWithBaggage(h.ctx, bag), UserMessage{Text: "go"},
				TurnOptions{})
			ctx, tool := turn.StartTool(ctx, ToolOptions{ID: "c", Name: "task", Input: 1})
			got := start(t, ctx)
			tool.SetChildSession(got.Run.SessionID)
			tool.End(nil)
			h.end(turn)
			if got.Run.ParentID != h.sess.ID() || got.Run.ParentMessageID != turn.UserMessageID() ||
				got.Run.RootID != h.sess.ID() || got.TurnParentID != h.sess.ID() {
				t.Errorf("the sub-agent's session is %+v", got)
			}
			if sc := tool.SpanContext(); got.TraceID != sc.TraceID().String() || got.ParentID != sc.SpanID().String() {
				t.Errorf("the sub-agent's run is in trace %s below span %s, want %s and %s", got.TraceID, got.ParentID,
					sc.TraceID(), sc.SpanID())
			}
			if got.Baggage != "t1" {
				t.Errorf("the baggage of the application is %q", got.Baggage)
			}
			if c := one(t, h.rec.All().ToolCalls()); c.ChildSessionID != "ses_sub" {
				t.Errorf("the call started session %q", c.ChildSessionID)
			}
		})
	}
}

// TestTheNearestSessionIsTheParentOfASubAgent hands a context on over several processes.
func TestTheNearestSessionIsTheParentOfASubAgent(t *testing.T) {
	h := newHarness(t, Options{}, SessionOptions{ID: "ses_top"})
	ctx, _ := h.turn("go")
	for depth, want := range []string{"ses_top", "ses_1", "ses_2"} {
		wire := propagation.MapCarrier{}
		Inject(ctx, wire)
		ctx = Extract(t.Context(), wire)
		sess := h.tracer.NewSession(ctx, SessionOptions{ID: "ses_" + string(rune('1'+depth)), Agent: "a"})
		if st := sess.State(); st.ParentID != want || st.RootID != "ses_top" {
			t.Errorf("session %s has parent %q and root %q, want %q and ses_top", sess.ID(), st.ParentID, st.RootID,
				want)
		}
		var run *Run
		ctx, run = sess.StartRun(ctx, RunOptions{})
		ctx, _ = run.StartTurn(ctx, UserMessage{Text: "go"}, TurnOptions{})
		defer run.End(nil)
	}
	h.run.End(nil)
}

// TestHostileContextOfAnotherProcessDoesNoHarm extracts what no Inject wrote.
func TestHostileContextOfAnotherProcessDoesNoHarm(t *testing.T) {
	tracer := New(Options{TracerProvider: agenttracetest.NewRecorder()})
	for _, carrier := range []propagation.TextMapCarrier{
		Meta(nil), Meta{"traceparent": 1, "baggage": []string{"x"}}, new(Environment),
		&Environment{"BAGGAGE", "=", "TRACEPARENT=00-0-0-0", "BAGGAGE=agenttrace.session.parent_message_id=m"},
		propagation.MapCarrier{"baggage": "agenttrace.session.parent_id=" + strings.Repeat("x", 4096)},
		propagation.MapCarrier{"baggage": "agenttrace.session.parent_id=ses_1"}, // its own id
	} {
		ctx := Extract(t.Context(), carrier)
		st := tracer.NewSession(ctx, SessionOptions{ID: "ses_1", Agent: "a"}).State()
		if st.ParentID != "" || st.ParentMessageID != "" || st.RootID != "" ||
			trace.SpanContextFromContext(ctx).IsValid() {
			t.Errorf("%v: state = %+v", carrier, st)
		}
	}
	wire := propagation.MapCarrier{}
	Inject(t.Context(), wire)
	var none context.Context
	Inject(none, wire)
	Inject(t.Context(), nil)
	if Extract(none, wire) != nil || tracer.NewSession(none, SessionOptions{Agent: "a"}) == nil {
		t.Error("a nil context does not stay as it is")
	}
	if len(wire) > 0 {
		t.Errorf("a context without a span or a session writes %v", wire)
	}
}

// TestTheParentIsSentThoughBaggageIsFull has an application that fills the baggage.
func TestTheParentIsSentThoughBaggageIsFull(t *testing.T) {
	h := newHarness(t, Options{}, SessionOptions{ID: "ses_parent"})
	ctx, turn := h.turn("go")
	var members []baggage.Member
	for i := range 64 {
		m, err := baggage.NewMember("key"+strings.Repeat("x", i), strings.Repeat("v", 80))
		testscale.Must(t, err)
		members = append(members, m)
	}
	bag, err := baggage.New(members...)
	testscale.Must(t, err)
	wire := propagation.MapCarrier{}
	Inject(baggage.ContextWithBaggage(ctx, bag), wire)
	turn.End(TurnResult{})
	h.run.End(nil)
	got := h.tracer.NewSession(Extract(t.Context(), wire), SessionOptions{Agent: "a"}).State()
	if got.ParentID != "ses_parent" {
		t.Errorf("parent = %q, baggage of %d bytes", got.ParentID, len(wire["baggage"]))
	}
}
