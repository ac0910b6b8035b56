package agenttrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
)

func rule(permission, pattern string, action agenttrace.Action, source agenttrace.Source) agenttrace.Rule {
	return agenttrace.Rule{Permission: permission, Pattern: pattern, Action: action, Source: source}
}

const (
	allow    = agenttrace.ActionAllow
	ask      = agenttrace.ActionAsk
	deny     = agenttrace.ActionDeny
	manifest = agenttrace.SourceManifest
	project  = agenttrace.SourceProject
	session  = agenttrace.SourceSession
)

// TestRules decides each case with and without tracing, and both must agree.
func TestRules(t *testing.T) {
	for _, test := range []struct {
		name    string
		rules   []agenttrace.Rule
		session []agenttrace.Rule
		subject string
		want    agenttrace.Action
		pattern string
		source  agenttrace.Source
	}{
		{"no rule asks", nil, nil, "ls", ask, "", ""},
		{"other tools' rules do not matter", []agenttrace.Rule{rule("read", "*", allow, manifest)}, nil, "ls", ask, "",
			""},
		{"any tool", []agenttrace.Rule{rule("*", "*", allow, project)}, nil, "ls", allow, "*", project},
		{"the tool precedes its kind", []agenttrace.Rule{rule("bash", "*", allow, project),
			rule("execute", "*", ask, project)},
			nil, "ls", allow, "*", project},
		{"its kind precedes any tool", []agenttrace.Rule{rule("execute", "*", allow, project),
			rule("*", "*", ask, project)},
			nil, "ls", allow, "*", project},
		{"a longer pattern precedes a shorter one", []agenttrace.Rule{rule("bash", "git *", allow, project),
			rule("bash", "git push *", ask, project)}, nil, "git push origin", ask, "git push *", project},
		{"an exact pattern precedes a longer one", []agenttrace.Rule{rule("bash", "git st*", ask, project),
			rule("bash", "git status", allow, project)}, nil, "git status", allow, "git status", project},
		{"project precedes manifest", []agenttrace.Rule{rule("bash", "ls", ask, manifest),
			rule("bash", "ls", allow, project)},
			nil, "ls", allow, "ls", project},
		{"session precedes project", []agenttrace.Rule{rule("bash", "ls", allow, project)},
			[]agenttrace.Rule{rule("bash", "ls", deny, session)}, "ls", deny, "ls", session},
		{"the later of equals", []agenttrace.Rule{rule("bash", "ls", allow, project),
			rule("bash", "ls", deny, project)}, nil,
			"ls", deny, "ls", project},
		{"the manifest's deny stays", []agenttrace.Rule{rule("bash", "rm *", deny, manifest)},
			[]agenttrace.Rule{rule("bash", "rm a", allow, session)}, "rm a", deny, "rm *", manifest},
		{"the manifest may make exceptions", []agenttrace.Rule{rule("bash", "rm *", deny, manifest),
			rule("bash", "rm tmp*", allow, manifest)}, nil, "rm tmp1", allow, "rm tmp*", manifest},
		{"a rule without a source is the manifest's", []agenttrace.Rule{rule("bash", "rm *", deny, "")},
			[]agenttrace.Rule{rule("bash", "*", allow, "")}, "rm a", deny, "rm *", manifest},
		{"an unknown action denies", []agenttrace.Rule{rule("bash", "*", "alow", project)}, nil, "ls", deny, "*",
			project},
		{"an empty pattern is any", nil, []agenttrace.Rule{rule("bash", "", allow, session)}, "ls", allow, "*",
			session},
		{"question mark is one character", []agenttrace.Rule{rule("bash", "l?", allow, project)}, nil, "lé", allow,
			"l?",
			project},
		{"a backslash takes the next as it is", []agenttrace.Rule{rule("bash", `ls \*`, allow, project)}, nil, "ls *",
			allow,
			`ls \*`, project},
		{"and nothing else", []agenttrace.Rule{rule("bash", `ls \*`, allow, project)}, nil, "ls a", ask, "", ""},
		{"stars do not explode", []agenttrace.Rule{rule("bash", strings.Repeat("*a", 60)+"b", allow, project)}, nil,
			strings.Repeat("a", 2000), ask, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHarness(t, agenttrace.Options{Rules: test.rules}, agenttrace.SessionOptions{Rules: test.session})
			ctx, turn := h.turn("go")
			ctx, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "c", Name: "bash", Kind: agenttrace.ToolExecute,
				Input: 1})
			d := tool.Authorize(ctx, test.subject)
			if d.Action != test.want || d.Pattern != test.pattern || d.Source != test.source {
				t.Errorf("decision = %s by %q of %s, want %s by %q of %s", d.Action, d.Pattern, d.Source, test.want,
					test.pattern,
					test.source)
			}
			// Nobody is there to ask: only allow allows.
			if d.Allowed() != (test.want == allow) || (d.Err() == nil) != d.Allowed() {
				t.Errorf("allowed = %v, err = %v", d.Allowed(), d.Err())
			}
			turn.End(agenttrace.TurnResult{})
			h.run.End(nil)
			h.check()
			p := one(t, h.rec.All().Permissions())
			if p.ID != d.ID || p.Action != string(d.Action) || p.Pattern != d.Pattern || p.Source != string(d.Source) ||
				p.CallID != "c" || p.ToolID != "bash" || p.WaitedMS != nil {
				t.Errorf("permission = %+v, decision %+v", p, d)
			}
			call, span := one(t, h.rec.All().ToolCalls()), h.rec.All().Named("permission.evaluate")[0]
			if span.Parent.SpanID() != h.rec.All().Named("tool.call")[0].SpanContext.SpanID() {
				t.Error("the decision is not a child of the call")
			}
			if !d.Allowed() && (!call.Denied || call.State != "output-error" || call.Error != d.Err().Error() ||
				call.ErrorType != "permission_denied") {
				t.Errorf("denied call = %+v", call)
			}

			off := agenttrace.New(agenttrace.Options{TracerProvider: off(), Rules: test.rules})
			ctx, run := off.NewSession(context.Background(),
				agenttrace.SessionOptions{Agent: "a", Rules: test.session}).StartRun(context.Background(),
				agenttrace.RunOptions{})
			ctx, turn = run.StartTurn(ctx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
			ctx, tool = agenttrace.StartTool(ctx,
				agenttrace.ToolOptions{ID: "c", Name: "bash", Kind: agenttrace.ToolExecute,
					Input: 1})
			if got := tool.Authorize(ctx, test.subject); got.Allowed() != d.Allowed() {
				t.Errorf("with tracing off allowed = %v, with tracing on %v", got.Allowed(), d.Allowed())
			}
			turn.End(agenttrace.TurnResult{})
			run.End(nil)
		})
	}
}

func TestWatchdogCanOnlyNarrow(t *testing.T) {
	for _, test := range []struct {
		name     string
		rule     agenttrace.Action
		watchdog func() agenttrace.Verdict
		approve  bool
		allowed  bool
		action   agenttrace.Action
		reason   string
	}{
		{"allow of allow", allow, agenttrace.Allow, false, true, allow, ""},
		{"allow does not widen deny", deny, agenttrace.Allow, true, false, deny, "the manifest denies bash *"},
		{"allow does not widen ask", ask, agenttrace.Allow, false, false, ask, "nobody is there to approve it"},
		{"ask narrows allow", allow, func() agenttrace.Verdict {
			return agenttrace.Ask("looks odd")
		}, false, false, ask,
			"looks odd"},
		{"ask, and a human allows", allow, func() agenttrace.Verdict {
			return agenttrace.Ask("looks odd")
		}, true, true, ask,
			""},
		{"deny narrows allow", allow, func() agenttrace.Verdict {
			return agenttrace.Deny("outside the workspace")
		}, true,
			false, deny, "outside the workspace"},
		{"deny narrows ask", ask, func() agenttrace.Verdict { return agenttrace.Deny("no") }, true, false, deny, "no"},
		{"the zero verdict denies", allow, func() agenttrace.Verdict { return agenttrace.Verdict{} }, true, false, deny,
			"the watchdog forbids it"},
		{"a panic denies", allow, func() agenttrace.Verdict { panic("bug") }, true, false, deny, "the watchdog failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var saw []agenttrace.ToolRequest
			o := agenttrace.Options{
				Rules: []agenttrace.Rule{rule("bash", "*", test.rule, manifest)},
				Watchdog: func(_ context.Context, r agenttrace.ToolRequest) agenttrace.Verdict {
					saw = append(saw, r)
					return test.watchdog()
				},
			}
			if test.approve {
				o.Approver = func(context.Context, agenttrace.Question) (agenttrace.Answer, error) {
					return agenttrace.Answer{Reply: agenttrace.ReplyOnce}, nil
				}
			}
			h := newHarness(t, o, agenttrace.SessionOptions{Mode: "plan"})
			ctx, turn := h.turn("go")
			ctx, tool := turn.StartTool(ctx,
				agenttrace.ToolOptions{ID: "c", Name: "bash", Kind: agenttrace.ToolExecute})
			tool.InputDelta(`{"cmd":"ls"}`)
			var d agenttrace.Decision
			errorsOf(func() { d = tool.Authorize(ctx, "ls") })
			if d.Allowed() != test.allowed || d.Action != test.action || d.Reason != test.reason {
				t.Errorf("decision = %+v, want allowed %v, %s because %q", d, test.allowed, test.action, test.reason)
			}
			if test.rule != deny {
				want := agenttrace.ToolRequest{SessionID: h.sess.ID(), Agent: "coder", Mode: "plan", ToolID: "bash",
					CallID: "c",
					Kind:   "execute", Input: `{"cmd":"ls"}`, Subject: "ls"}
				if diff := cmp.Diff([]agenttrace.ToolRequest{want}, saw); diff != "" {
					t.Errorf("the watchdog saw (-want +got):\n%s", diff)
				}
			}
			tool.End("x")
			turn.End(agenttrace.TurnResult{})
			h.run.End(nil)
			h.check()
			p := one(t, h.rec.All().Permissions())
			if (p.Outcome == "allowed") != test.allowed || p.Reason != test.reason {
				t.Errorf("permission = %+v", p)
			}
			if test.action != test.rule && (p.Pattern != "" || p.Source != "") {
				t.Errorf("the watchdog's decision is ascribed to the rule %q of %s", p.Pattern, p.Source)
			}
		})
	}
}

func TestAskingAHuman(t *testing.T) {
	for _, test := range []struct {
		name    string
		answer  agenttrace.Answer
		err     error
		allowed bool
		reply   string
		reason  string
		again   bool // allowed without asking the next time
		rule    string
	}{
		{"once", agenttrace.Answer{Reply: agenttrace.ReplyOnce, Reason: "fine"}, nil, true, "once", "fine", false, ""},
		{"always", agenttrace.Answer{Reply: agenttrace.ReplyAlways}, nil, true, "always", "", true, `ls \*`},
		{"always a pattern", agenttrace.Answer{Reply: agenttrace.ReplyAlways, Pattern: "ls *"}, nil, true, "always", "",
			true,
			"ls *"},
		{"reject", agenttrace.Answer{Reply: agenttrace.ReplyReject, Reason: "not now"}, nil, false, "reject", "not now",
			false, ""},
		{"zero answer", agenttrace.Answer{}, nil, false, "reject", "the user rejected it", false, ""},
		{"error", agenttrace.Answer{Reply: agenttrace.ReplyOnce}, errors.New("window closed"), false, "",
			"approval failed: window closed", false, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked := 0
			var h *harness
			h = newHarness(t,
				agenttrace.Options{Approver: func(_ context.Context, q agenttrace.Question) (agenttrace.Answer,
					error) {
					asked++
					h.clock.Advance(2 * time.Second)
					if q.ID == "" || q.CallID == "" || q.Rule != nil {
						t.Errorf("question = %+v", q)
					}
					return test.answer, test.err
				}}, agenttrace.SessionOptions{})
			ctx, turn := h.turn("go")
			ctx, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "c", Name: "bash", Input: 1})
			d := tool.Authorize(ctx, "ls *")
			if d.Allowed() != test.allowed || string(d.Reply) != test.reply || d.Reason != test.reason ||
				d.Waited < 2*time.Second {
				t.Errorf("decision = %+v", d)
			}
			if err := d.Err(); !test.allowed && err.Error() != "permission denied: "+test.reason {
				t.Errorf("text for the model = %q", err)
			}
			tool.End("ok")
			_, next := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "c2", Name: "bash", Input: 1})
			next.Authorize(ctx, "ls *")
			if got := asked == 1; got != test.again {
				t.Errorf("asked %d times", asked)
			}
			turn.End(agenttrace.TurnResult{})
			h.run.End(nil)
			h.check()
			p := h.rec.All().Permissions()[0]
			if p.Reply != test.reply || p.Action != "ask" || (p.WaitedMS != nil) != (test.reply != "") ||
				p.WaitedMS != nil &&
					*p.WaitedMS < 2000 {
				t.Errorf("permission = %+v", p)
			}
			run := one(t, h.rec.All().Runs())
			if got := string(run.Permissions); strings.Contains(got, "session") != (test.rule != "") {
				t.Errorf("rules on the run = %s", got)
			}
			for _, r := range h.sess.Rules() {
				if r.Pattern != test.rule || r.Source != session || r.AddedAt == 0 {
					t.Errorf("rule = %+v", r)
				}
			}
		})
	}
}

func TestAlwaysWithoutASubjectAllowsNothingElse(t *testing.T) {
	h := newHarness(t,
		agenttrace.Options{Approver: func(context.Context, agenttrace.Question) (agenttrace.Answer, error) {
			return agenttrace.Answer{Reply: agenttrace.ReplyAlways}, nil
		}}, agenttrace.SessionOptions{})
	ctx, turn := h.turn("go")
	ctx, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "c", Name: "bash", Input: 1})
	if !tool.Authorize(ctx, "").Allowed() || len(h.sess.Rules()) != 0 {
		t.Errorf("rules = %+v", h.sess.Rules())
	}
}

func TestTurnThatEndsWhileAHumanThinksAllowsNothing(t *testing.T) {
	var turn *agenttrace.Turn
	h := newHarness(t,
		agenttrace.Options{Approver: func(context.Context, agenttrace.Question) (agenttrace.Answer, error) {
			turn.Abort()
			return agenttrace.Answer{Reply: agenttrace.ReplyOnce}, nil
		}}, agenttrace.SessionOptions{})
	var ctx context.Context
	ctx, turn = h.turn("go")
	ctx, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "c", Name: "bash", Input: 1})
	if d := tool.Authorize(ctx, "ls"); d.Allowed() || d.Reason != "the call has ended" {
		t.Errorf("decision = %+v", d)
	}
	h.run.End(nil)
	h.check()
	part := one(t, one(t, h.rec.All().Turns()).Assistant.Parts)
	if part.ToolState != "approval-requested" || h.sess.State().Pending != nil {
		t.Errorf("part = %+v, pending %+v", part, h.sess.State().Pending)
	}
}

// TestApprovalThatOutlastsTheProcess stops at a question and goes on in what
// represents another process.
func TestApprovalThatOutlastsTheProcess(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer agenttrace.Answer
		state  string
	}{
		{"allowed", agenttrace.Answer{Reply: agenttrace.ReplyOnce}, "output-available"},
		{"rejected", agenttrace.Answer{Reply: agenttrace.ReplyReject, Reason: "too risky"}, "output-error"},
	} {
		for _, recording := range []bool{true, false} {
			t.Run(test.name, func(t *testing.T) {
				rec, clock := agenttracetest.NewRecorder(), newClock()
				o := agenttrace.Options{TracerProvider: rec, Now: clock.Now,
					Approver: func(context.Context, agenttrace.Question) (agenttrace.Answer, error) {
						return agenttrace.Answer{Reply: agenttrace.ReplyLater}, nil
					}}
				if !recording {
					o.TracerProvider = off()
				}
				sess := agenttrace.New(o).NewSession(context.Background(),
					agenttrace.SessionOptions{Agent: "coder", Metadata: map[string]any{"k": 1}})
				ctx, run := sess.StartRun(context.Background(), agenttrace.RunOptions{Model: benchModel})
				ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "deploy"}, agenttrace.TurnOptions{})
				ctx, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
				call.Text("Deploying.")
				call.End(agenttrace.ModelResult{StopReason: "tool_use", Usage: agenttrace.ExclusiveUsage{Input: 10}},
					nil)
				ctx, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "c", Name: "deploy",
					Input: json.RawMessage(`{"env":"prod"}`)})
				d := tool.Authorize(ctx, "prod")
				if d.Allowed() || !d.Pending() {
					t.Fatalf("decision = %+v", d)
				}
				var denied *agenttrace.DeniedError
				if !errors.As(d.Err(), &denied) || !denied.Pending {
					t.Errorf("err = %v", d.Err())
				}
				turn.End(agenttrace.TurnResult{})
				run.End(nil)

				text, err := json.Marshal(sess.State())
				if err != nil {
					t.Fatal(err)
				}
				var state agenttrace.State
				if err := json.Unmarshal(text, &state); err != nil {
					t.Fatal(err)
				}
				clock.Advance(time.Hour)
				again, err := agenttrace.New(o).ResumeSession(context.Background(), state)
				if err != nil {
					t.Fatal(err)
				}
				ctx, run = again.StartRun(context.Background(), agenttrace.RunOptions{})
				ctx, turn, err = run.ContinueTurn(ctx, agenttrace.TurnOptions{})
				if err != nil {
					t.Fatal(err)
				}
				waiting := one(t, turn.PendingTools())
				if waiting.Name != "deploy" || string(waiting.Input) != `{"env":"prod"}` || waiting.Subject != "prod" {
					t.Errorf("pending = %+v", waiting)
				}
				if _, _, _, err := turn.ResumeTool(ctx, "other", test.answer); !errors.Is(err,
					agenttrace.ErrNothingPending) {
					t.Errorf("resume of an unknown call: %v", err)
				}
				ctx, tool, d, err = turn.ResumeTool(ctx, waiting.CallID, test.answer)
				if err != nil {
					t.Fatal(err)
				}
				if d.Allowed() != (test.state == "output-available") {
					t.Errorf("decision = %+v", d)
				}
				if d.Allowed() {
					tool.End("deployed")
				}
				_, call = turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
				call.Text("Done.")
				call.End(agenttrace.ModelResult{StopReason: "end_turn", Usage: agenttrace.ExclusiveUsage{Input: 20}},
					nil)
				turn.End(agenttrace.TurnResult{})
				if _, _, err := run.ContinueTurn(ctx, agenttrace.TurnOptions{}); !errors.Is(err,
					agenttrace.ErrNothingPending) {
					t.Errorf("continue with nothing pending: %v", err)
				}
				run.End(nil)
				if !recording {
					return
				}

				if err := rec.Err(); err != nil || len(rec.Open()) > 0 {
					t.Errorf("recorded: %v, open %q", err, rec.Open())
				}
				turns, calls, perms := rec.All().Turns(), rec.All().ToolCalls(), rec.All().Permissions()
				first, second := turns[0], turns[1]
				if !first.PendingApproval || first.EndReason != "finish" || second.PendingApproval {
					t.Errorf("pending: %v, %v", first.PendingApproval, second.PendingApproval)
				}
				if *first.Index != *second.Index || first.Assistant.ID != second.Assistant.ID ||
					first.Assistant.CreatedAt != second.Assistant.CreatedAt || second.User.ID != "" {
					t.Errorf("the turn does not go on: %+v\n%+v", first, second)
				}
				if diff := cmp.Diff([]shape{
					{0, "text", "", `{"type":"text","text":"Deploying."}`},
					{1, "tool-deploy", "approval-requested",
						`{"type":"tool-deploy","toolCallId":"c","state":"approval-requested","input":{"env":"prod"},` +
							`"approval":{"id":"` +
							perms[0].ID + `"}}`},
				}, shapes(first.Assistant.Parts)); diff != "" {
					t.Errorf("first parts (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]shape{
					{1, "tool-deploy", test.state, ""},
					{2, "step-start", "", `{"type":"step-start"}`},
					{3, "text", "", `{"type":"text","text":"Done."}`},
				}, shapes(second.Assistant.Parts)); diff != "" {
					t.Errorf("second parts (-want +got):\n%s", diff)
				}
				if second.Usage.Tokens.Input != 20 || second.ModelCalls != 1 || *rec.All().ModelCalls()[1].Index != 1 {
					t.Errorf("second turn counts %+v", second.Usage)
				}
				if calls[0].PartID != calls[1].PartID || calls[0].CallID != calls[1].CallID ||
					calls[0].State != "approval-requested" || calls[1].State != test.state ||
					calls[1].Input != `{"env":"prod"}` {
					t.Errorf("calls = %+v, %+v", calls[0], calls[1])
				}
				if perms[0].ID != perms[1].ID || perms[0].Outcome != "pending" || perms[1].Outcome == "pending" ||
					*perms[1].WaitedMS < time.Hour.Milliseconds() {
					t.Errorf("permissions = %+v, %+v", perms[0], perms[1])
				}
				runs := rec.All().Named("session.run")
				if len(runs[1].Links) != 1 || runs[1].Links[0].SpanContext.TraceID() != runs[0].SpanContext.TraceID() ||
					string(rec.All().Runs()[1].Metadata) != `{"k":1}` {
					t.Errorf("the second run: links %v", runs[1].Links)
				}
			})
		}
	}
}

func TestExplicitWaitForAHuman(t *testing.T) {
	h := newHarness(t, agenttrace.Options{}, agenttrace.SessionOptions{})
	ctx, turn := h.turn("which one?")
	_, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "c", Name: "question"})
	tool.InputDelta(`{"q":"A or B"}`)
	if id := tool.AwaitApproval("per_mine"); id != "per_mine" {
		t.Errorf("id = %s", id)
	}
	turn.End(agenttrace.TurnResult{})
	h.run.End(nil)
	h.check()
	p := h.sess.State().Pending
	if p == nil || one(t, p.Tools).ApprovalID != "per_mine" || string(p.Tools[0].Input) != `{"q":"A or B"}` {
		t.Errorf("pending = %+v", p)
	}
}

// TestAWaitSurvivesTheSafeNets ends a session as its program returns, kept by deferred calls, after an approver has
// answered "later", and takes it up in what represents another process.
func TestAWaitSurvivesTheSafeNets(t *testing.T) {
	nets := map[string]func(*agenttrace.Run, *agenttrace.Turn, *agenttrace.ToolCall, *error){
		"none": func(_ *agenttrace.Run, turn *agenttrace.Turn, _ *agenttrace.ToolCall, _ *error) {
			turn.End(agenttrace.TurnResult{})
		},
		"tool.Done": func(_ *agenttrace.Run, turn *agenttrace.Turn, tool *agenttrace.ToolCall, err *error) {
			tool.Done(err)
			turn.Done(err)
		},
		"tool.Abort": func(_ *agenttrace.Run, turn *agenttrace.Turn, tool *agenttrace.ToolCall, err *error) {
			tool.Abort()
			turn.Done(err)
		},
		"tool.Fail": func(_ *agenttrace.Run, turn *agenttrace.Turn, tool *agenttrace.ToolCall, err *error) {
			if *err != nil && !errors.Is(*err, context.Canceled) {
				tool.Fail(*err)
			}
			turn.Done(err)
		},
		"run.Done only": func(run *agenttrace.Run, _ *agenttrace.Turn, _ *agenttrace.ToolCall, err *error) { run.Done(err) },
	}
	pending := &agenttrace.DeniedError{Tool: "deploy", Pending: true}
	for name, net := range nets {
		for _, err := range []error{nil, fmt.Errorf("deploy: %w", pending), context.Canceled} {
			for _, asks := range []bool{false, name != "run.Done only"} {
				for _, recording := range []bool{true, false} {
					t.Run(fmt.Sprintf("%s, %v, asks %t, recording %t", name, err, asks, recording), func(t *testing.T) {
						o := agenttrace.Options{Approver: func(context.Context, agenttrace.Question) (agenttrace.Answer, error) {
							return agenttrace.Answer{Reply: agenttrace.ReplyLater}, nil
						}}
						h := newHarness(t, o, agenttrace.SessionOptions{})
						if !recording {
							o.TracerProvider, o.Now = off(), h.clock.Now
							h.sess = agenttrace.New(o).NewSession(t.Context(), agenttrace.SessionOptions{Agent: "coder"})
							h.ctx, h.run = h.sess.StartRun(t.Context(), agenttrace.RunOptions{})
						}
						for round := range 3 {
							var ctx context.Context
							var turn *agenttrace.Turn
							if round == 0 {
								ctx, turn = h.turn("deploy")
							} else { // in another process, with the answer still to come
								state := h.sess.State()
								if state.Pending == nil {
									t.Fatal("nothing is pending")
								}
								again, resumeErr := h.tracer.ResumeSession(t.Context(), state)
								if !recording {
									again, resumeErr = agenttrace.New(o).ResumeSession(t.Context(), state)
								}
								if resumeErr != nil {
									t.Fatal(resumeErr)
								}
								h.sess = again
								h.ctx, h.run = h.sess.StartRun(t.Context(), agenttrace.RunOptions{})
								ctx, turn, resumeErr = h.run.ContinueTurn(h.ctx, agenttrace.TurnOptions{})
								if resumeErr != nil {
									t.Fatal(resumeErr)
								}
							}
							if round == 2 {
								_, tool, d, err := turn.ResumeTool(ctx, "c", agenttrace.Answer{Reply: agenttrace.ReplyOnce})
								if err != nil || !d.Allowed() {
									t.Fatal(d, err)
								}
								tool.Done(nil)
								turn.End(agenttrace.TurnResult{})
								h.run.End(nil)
								break
							}
							err, tool := err, (*agenttrace.ToolCall)(nil)
							if round == 0 {
								ctx, tool = turn.StartTool(ctx, agenttrace.ToolOptions{ID: "c", Name: "deploy", Input: 1})
								if asks {
									tool.AwaitInput("Where to?")
								} else if d := tool.Authorize(ctx, "prod"); !d.Pending() {
									t.Fatalf("decision = %+v", d)
								}
							}
							net(h.run, turn, tool, &err)
							h.run.Done(&err)
						}
						if st := h.sess.State(); st.Pending != nil {
							t.Errorf("still pending: %+v", st.Pending)
						}
						if !recording {
							return
						}
						h.check()
						calls, turns := h.rec.All().ToolCalls(), h.rec.All().Turns()
						want := "approval-requested"
						if asks {
							want = "input-available"
						}
						if calls[0].State != want || calls[0].Error != "" || calls[1].State != "output-available" {
							t.Errorf("calls = %+v", calls)
						}
						for i, turn := range turns {
							if turn.EndReason != "finish" || turn.PendingApproval != (i < 2) {
								t.Errorf("turn %d ended with %s, pending %t", i, turn.EndReason, turn.PendingApproval)
							}
						}
					})
				}
			}
		}
	}
}
