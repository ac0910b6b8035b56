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

	. "github.com/agenttrace/agenttrace/agenttrace"
)

func rule(permission, pattern string, action Action, source Source) Rule {
	return Rule{Permission: permission, Pattern: pattern, Action: action, Source: source}
}

// rules reads rules of permission, pattern, action and source, with _ for a space in a pattern.
func rules(text string) (all []Rule) {
	for _, word := range strings.Fields(text) {
		r := strings.Split(word, ":")
		all = append(all, rule(r[0], strings.ReplaceAll(r[1], "_", " "), Action(r[2]), Source(r[3])))
	}
	return all
}

const (
	allow    = ActionAllow
	ask      = ActionAsk
	deny     = ActionDeny
	manifest = SourceManifest
	session  = SourceSession
)

// TestRules decides each case with and without tracing, and both must agree.
func TestRules(t *testing.T) {
	many := strings.Repeat("*a", 60) + "b"
	for _, test := range []struct{ name, rules, session, subject, want string }{
		{"no rule asks", "", "", "ls", "ask::"},
		{"other tools' rules do not matter", "read:*:allow:manifest", "", "ls", "ask::"},
		{"any tool", "*:*:allow:project", "", "ls", "allow:*:project"},
		{"the tool precedes its kind", "bash:*:allow:project execute:*:ask:project", "", "ls", "allow:*:project"},
		{"its kind precedes any tool", "execute:*:allow:project *:*:ask:project", "", "ls", "allow:*:project"},
		{"a longer pattern precedes a shorter one", "bash:git_*:allow:project bash:git_push_*:ask:project", "",
			"git push origin", "ask:git push *:project"},
		{"an exact pattern precedes a longer one", "bash:git_st*:ask:project bash:git_status:allow:project", "",
			"git status", "allow:git status:project"},
		{"project precedes manifest", "bash:ls:ask:manifest bash:ls:allow:project", "", "ls", "allow:ls:project"},
		{"session precedes project", "bash:ls:allow:project", "bash:ls:deny:session", "ls", "deny:ls:session"},
		{"the later of equals", "bash:ls:allow:project bash:ls:deny:project", "", "ls", "deny:ls:project"},
		{"the manifest's deny stays", "bash:rm_*:deny:manifest", "bash:rm_a:allow:session", "rm a", "deny:rm *:manifest"},
		{"the manifest may make exceptions", "bash:rm_*:deny:manifest bash:rm_tmp*:allow:manifest", "", "rm tmp1",
			"allow:rm tmp*:manifest"},
		{"a rule without a source is the manifest's", "bash:rm_*:deny:", "bash:*:allow:", "rm a", "deny:rm *:manifest"},
		{"an unknown action denies", "bash:*:alow:project", "", "ls", "deny:*:project"},
		{"an empty pattern is any", "", "bash::allow:session", "ls", "allow:*:session"},
		{"question mark is one character", "bash:l?:allow:project", "", "lé", "allow:l?:project"},
		{"a backslash takes the next as it is", `bash:ls_\*:allow:project`, "", "ls *", `allow:ls \*:project`},
		{"and nothing else", `bash:ls_\*:allow:project`, "", "ls a", "ask::"},
		{"stars do not explode", "bash:" + many + ":allow:project", "", strings.Repeat("a", 2000), "ask::"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, so := Options{Rules: rules(test.rules)}, SessionOptions{Rules: rules(test.session)}
			h := newHarness(t, o, so)
			ctx, turn := h.turn("go")
			ctx, tool := turn.StartTool(ctx, ToolOptions{ID: "c", Name: "bash", Kind: ToolExecute, Input: 1})
			d := tool.Authorize(ctx, test.subject)
			if got := fmt.Sprintf("%s:%s:%s", d.Action, d.Pattern, d.Source); got != test.want {
				t.Errorf("decision = %s, want %s", got, test.want)
			}
			// Nobody is there to ask: only allow allows.
			if d.Allowed() != strings.HasPrefix(test.want, "allow") || (d.Err() == nil) != d.Allowed() {
				t.Errorf("allowed = %v, err = %v", d.Allowed(), d.Err())
			}
			h.end(turn)
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

			o.TracerProvider = off()
			h = newHarness(t, o, so)
			ctx, turn = h.turn("go")
			_, tool = StartTool(ctx, ToolOptions{ID: "c", Name: "bash", Kind: ToolExecute, Input: 1})
			if got := tool.Authorize(ctx, test.subject); got.Allowed() != d.Allowed() {
				t.Errorf("with tracing off allowed = %v, with tracing on %v", got.Allowed(), d.Allowed())
			}
			h.end(turn)
		})
	}
}

func TestWatchdogCanOnlyNarrow(t *testing.T) {
	for _, test := range []struct {
		name     string
		rule     Action
		watchdog func() Verdict
		approve  bool
		allowed  bool
		action   Action
		reason   string
	}{
		{"allow of allow", allow, Allow, false, true, allow, ""},
		{"allow does not widen deny", deny, Allow, true, false, deny, "the manifest denies bash *"},
		{"an action that is none denies", "alow", Allow, true, false, deny,
			`the action "alow" of a rule is none of allow, deny and ask`},
		{"allow does not widen ask", ask, Allow, false, false, ask, "nobody is there to approve it"},
		{"ask narrows allow", allow, func() Verdict { return Ask("looks odd") }, false, false, ask, "looks odd"},
		{"ask, and a human allows", allow, func() Verdict { return Ask("looks odd") }, true, true, ask, ""},
		{"deny narrows allow", allow, func() Verdict {
			return Deny("outside the workspace")
		}, true, false, deny, "outside the workspace"},
		{"deny narrows ask", ask, func() Verdict { return Deny("no") }, true, false, deny, "no"},
		{"the zero verdict denies", allow, func() Verdict { return Verdict{} }, true, false, deny,
			"the watchdog forbids it"},
		{"a panic denies", allow, func() Verdict { panic("bug") }, true, false, deny, "the watchdog failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var saw []ToolRequest
			o := Options{
				Rules: []Rule{rule("bash", "*", test.rule, manifest)},
				Watchdog: func(_ context.Context, r ToolRequest) Verdict {
					saw = append(saw, r)
					return test.watchdog()
				},
			}
			if test.approve {
				o.Approver = answering(Answer{Reply: ReplyOnce})
			}
			h := newHarness(t, o, SessionOptions{Mode: "plan"})
			ctx, turn := h.turn("go")
			ctx, tool := turn.StartTool(ctx, ToolOptions{ID: "c", Name: "bash", Kind: ToolExecute})
			tool.InputDelta(`{"cmd":"ls"}`)
			var d Decision
			errorsOf(func() { d = tool.Authorize(ctx, "ls") })
			if d.Allowed() != test.allowed || d.Action != test.action || d.Reason != test.reason {
				t.Errorf("decision = %+v, want allowed %v, %s because %q", d, test.allowed, test.action, test.reason)
			}
			isAsked := test.rule == allow || test.rule == ask
			if isAsked {
				want := ToolRequest{SessionID: h.sess.ID(), Agent: "coder", Mode: "plan", ToolID: "bash",
					CallID: "c", Kind: "execute", Input: `{"cmd":"ls"}`, Subject: "ls"}
				if diff := cmp.Diff([]ToolRequest{want}, saw); diff != "" {
					t.Errorf("the watchdog saw (-want +got):\n%s", diff)
				}
			}
			tool.End("x")
			h.end(turn)
			p := one(t, h.rec.All().Permissions())
			if (p.Outcome == "allowed") != test.allowed || p.Reason != test.reason {
				t.Errorf("permission = %+v", p)
			}
			if isAsked && test.action != test.rule && (p.Pattern != "" || p.Source != "") {
				t.Errorf("the watchdog's decision is ascribed to the rule %q of %s", p.Pattern, p.Source)
			}
		})
	}
}

func TestAskingAHuman(t *testing.T) {
	for _, test := range []struct {
		name    string
		answer  Answer
		err     error
		allowed bool
		reply   string
		reason  string
		again   bool // allowed without asking the next time
		rule    string
	}{
		{"once", Answer{Reply: ReplyOnce, Reason: "fine"}, nil, true, "once", "fine", false, ""},
		{"always", Answer{Reply: ReplyAlways}, nil, true, "always", "", true, `ls \*`},
		{"always a pattern", Answer{Reply: ReplyAlways, Pattern: "ls *"}, nil, true, "always", "", true, "ls *"},
		{"reject", Answer{Reply: ReplyReject, Reason: "not now"}, nil, false, "reject", "not now", false, ""},
		{"zero answer", Answer{}, nil, false, "reject", "the user rejected it", false, ""},
		{"error", Answer{Reply: ReplyOnce}, errors.New("window closed"), false, "",
			"approval failed: window closed", false, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked := 0
			var h *harness
			h = newHarness(t, Options{Approver: func(_ context.Context, q Question) (Answer, error) {
				asked++
				h.clock.Advance(2 * time.Second)
				if q.ID == "" || q.CallID == "" || q.Rule != nil {
					t.Errorf("question = %+v", q)
				}
				return test.answer, test.err
			}}, SessionOptions{})
			ctx, turn := h.turn("go")
			ctx, tool := turn.StartTool(ctx, ToolOptions{ID: "c", Name: "bash", Input: 1})
			d := tool.Authorize(ctx, "ls *")
			if d.Allowed() != test.allowed || string(d.Reply) != test.reply || d.Reason != test.reason ||
				d.Waited < 2*time.Second {
				t.Errorf("decision = %+v", d)
			}
			if err := d.Err(); !test.allowed && err.Error() != "permission denied: "+test.reason {
				t.Errorf("text for the model = %q", err)
			}
			tool.End("ok")
			_, next := turn.StartTool(ctx, ToolOptions{ID: "c2", Name: "bash", Input: 1})
			next.Authorize(ctx, "ls *")
			if got := asked == 1; got != test.again {
				t.Errorf("asked %d times", asked)
			}
			h.end(turn)
			p := h.rec.All().Permissions()[0]
			if p.Reply != test.reply || p.Action != "ask" || (p.WaitedMS != nil) != (test.reply != "") ||
				p.WaitedMS != nil && *p.WaitedMS < 2000 {
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
	h := newHarness(t, Options{Approver: answering(Answer{Reply: ReplyAlways})}, SessionOptions{})
	ctx, turn := h.turn("go")
	ctx, tool := turn.StartTool(ctx, ToolOptions{ID: "c", Name: "bash", Input: 1})
	if !tool.Authorize(ctx, "").Allowed() || len(h.sess.Rules()) != 0 {
		t.Errorf("rules = %+v", h.sess.Rules())
	}
}

func TestTurnThatEndsWhileAHumanThinksAllowsNothing(t *testing.T) {
	var turn *Turn
	h := newHarness(t, Options{Approver: func(context.Context, Question) (Answer, error) {
		turn.Abort()
		return Answer{Reply: ReplyOnce}, nil
	}}, SessionOptions{})
	var ctx context.Context
	ctx, turn = h.turn("go")
	ctx, tool := turn.StartTool(ctx, ToolOptions{ID: "c", Name: "bash", Input: 1})
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
		answer Answer
		state  string
	}{
		{Answer{Reply: ReplyOnce}, "output-available"},
		{Answer{Reply: ReplyReject, Reason: "too risky"}, "output-error"},
	} {
		t.Run(test.state, func(t *testing.T) {
			h := newHarness(t, Options{Approver: answering(Answer{Reply: ReplyLater})},
				SessionOptions{Metadata: map[string]any{"k": 1}})
			ctx, turn := h.turn("deploy")
			ctx, call := turn.StartModelCall(ctx, ModelCallOptions{})
			call.Text("Deploying.")
			call.End(ModelResult{StopReason: "tool_use", Usage: ExclusiveUsage{Input: 10}}, nil)
			ctx, tool := turn.StartTool(ctx, ToolOptions{ID: "c", Name: "deploy", Input: json.RawMessage(`{"env":"prod"}`)})
			d := tool.Authorize(ctx, "prod")
			var denied *DeniedError
			if d.Allowed() || !d.Pending() || !errors.As(d.Err(), &denied) || !denied.Pending {
				t.Fatalf("decision = %+v", d)
			}
			h.end(turn)

			h.clock.Advance(time.Hour)
			ctx, turn = h.resume()
			waiting := one(t, turn.PendingTools())
			if waiting.Name != "deploy" || string(waiting.Input) != `{"env":"prod"}` || waiting.Subject != "prod" {
				t.Errorf("pending = %+v", waiting)
			}
			if _, _, _, err := turn.ResumeTool(ctx, "other", test.answer); !errors.Is(err, ErrNothingPending) {
				t.Errorf("resume of an unknown call: %v", err)
			}
			ctx, tool, d, err := turn.ResumeTool(ctx, waiting.CallID, test.answer)
			if err != nil || d.Allowed() != (test.state == "output-available") {
				t.Fatalf("decision = %+v, %v", d, err)
			}
			if d.Allowed() {
				tool.End("deployed")
			}
			_, call = turn.StartModelCall(ctx, ModelCallOptions{})
			call.Text("Done.")
			call.End(ModelResult{StopReason: "end_turn", Usage: ExclusiveUsage{Input: 20}}, nil)
			turn.End(TurnResult{})
			if _, _, err := h.run.ContinueTurn(ctx, TurnOptions{}); !errors.Is(err, ErrNothingPending) {
				t.Errorf("continue with nothing pending: %v", err)
			}
			h.end(turn)

			all := h.rec.All()
			calls, perms, runs := all.ToolCalls(), all.Permissions(), all.Named("session.run")
			first, second := all.Turns()[0], all.Turns()[1]
			if !first.PendingApproval || first.EndReason != "finish" || second.PendingApproval {
				t.Errorf("pending: %v, %v", first.PendingApproval, second.PendingApproval)
			}
			if *first.Index != *second.Index || first.Assistant.ID != second.Assistant.ID ||
				first.Assistant.CreatedAt != second.Assistant.CreatedAt || second.User.ID != "" {
				t.Errorf("the turn does not go on: %+v\n%+v", first, second)
			}
			if diff := cmp.Diff([]shape{
				{0, "text", "", `{"type":"text","text":"Deploying."}`},
				{1, "tool-deploy", "approval-requested", `{"type":"tool-deploy","toolCallId":"c",` +
					`"state":"approval-requested","input":{"env":"prod"},"approval":{"id":"` + perms[0].ID + `"}}`},
				{1, "tool-deploy", test.state, ""},
				{2, "step-start", "", `{"type":"step-start"}`},
				{3, "text", "", `{"type":"text","text":"Done."}`},
			}, shapes(append(first.Assistant.Parts, second.Assistant.Parts...))); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
			if second.Usage.Tokens.Input != 20 || second.ModelCalls != 1 || *all.ModelCalls()[1].Index != 1 {
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
			if len(runs[1].Links) != 1 || runs[1].Links[0].SpanContext.TraceID() != runs[0].SpanContext.TraceID() ||
				string(all.Runs()[1].Metadata) != `{"k":1}` {
				t.Errorf("the second run: links %v", runs[1].Links)
			}
		})
	}
}

// TestAWaitSurvivesTheSafeNets ends a session as its program returns, kept by deferred calls, after an approver has
// answered "later", and takes it up in what represents another process.
func TestAWaitSurvivesTheSafeNets(t *testing.T) {
	pending := fmt.Errorf("deploy: %w", &DeniedError{Tool: "deploy", Pending: true})
	for name, net := range map[string]func(*Turn, *ToolCall, *error){
		"turn.End":   func(turn *Turn, _ *ToolCall, _ *error) { turn.End(TurnResult{}) },
		"tool.Done":  func(turn *Turn, tool *ToolCall, err *error) { tool.Done(err); turn.Done(err) },
		"tool.Abort": func(turn *Turn, tool *ToolCall, err *error) { tool.Abort(); turn.Done(err) },
		"tool.Fail": func(turn *Turn, tool *ToolCall, err *error) {
			if *err != nil && !errors.Is(*err, context.Canceled) {
				tool.Fail(*err)
			}
			turn.Done(err)
		},
		"run.Done only": func(*Turn, *ToolCall, *error) {},
	} {
		for i := range 12 {
			err := []error{nil, pending, context.Canceled}[i%3]
			asks, recording := i/3%2 == 1 && name != "run.Done only", i/6 == 0
			t.Run(fmt.Sprintf("%s, %v, asks %t, recording %t", name, err, asks, recording), func(t *testing.T) {
				o := Options{Approver: answering(Answer{Reply: ReplyLater})}
				if !recording {
					o.TracerProvider = off()
				}
				h, ctx, turn := begin(t, o)
				ctx, tool := turn.StartTool(ctx, ToolOptions{ID: "c", Name: "deploy", Input: 1})
				want := "approval-requested"
				if asks {
					want = "input-available"
					tool.AwaitInput("Where to?")
				} else if d := tool.Authorize(ctx, "prod"); !d.Pending() {
					t.Fatalf("decision = %+v", d)
				}
				for range 2 { // the second time in another process, with the answer still to come
					err := err
					net(turn, tool, &err)
					h.run.Done(&err)
					ctx, turn = h.resume()
					tool = nil
				}
				_, tool, d, err := turn.ResumeTool(ctx, "c", Answer{Reply: ReplyOnce})
				if err != nil || !d.Allowed() {
					t.Fatal(d, err)
				}
				tool.Done(nil)
				h.end(turn)
				if st := h.sess.State(); st.Pending != nil {
					t.Errorf("still pending: %+v", st.Pending)
				}
				if !recording {
					return
				}
				if calls := h.rec.All().ToolCalls(); calls[0].State != want || calls[0].Error != "" ||
					calls[1].State != "output-available" {
					t.Errorf("calls = %+v", calls)
				}
				for i, turn := range h.rec.All().Turns() {
					if turn.EndReason != "finish" || turn.PendingApproval != (i < 2) {
						t.Errorf("turn %d ended with %s, pending %t", i, turn.EndReason, turn.PendingApproval)
					}
				}
			})
		}
	}
}
