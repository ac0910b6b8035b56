package agenttrace

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// Action is what a rule or a watchdog reports of a tool call.
type Action string

// Actions, from the widest to the narrowest.
const (
	ActionAllow Action = semconv.ActionAllow
	ActionAsk   Action = semconv.ActionAsk
	ActionDeny  Action = semconv.ActionDeny
)

// narrowness orders actions. What is not an action is the narrowest.
func (a Action) narrowness() int {
	switch a {
	case ActionAllow:
		return 0
	case ActionAsk:
		return 1
	}
	return 2
}

// Source states where a rule comes from.
type Source string

// Sources of rules, from the lowest precedence to the highest.
const (
	SourceManifest Source = semconv.SourceManifest
	SourceProject  Source = semconv.SourceProject
	SourceSession  Source = semconv.SourceSession
)

// Rule states what may be done without asking.
//
// Of the rules that match a call the most specific one decides: one that names the tool before one that names its
// kind before "*"; then a pattern without wildcards before one with; then the pattern with more literal characters.
// Among equals session goes before project before manifest, then the later before the earlier. What the manifest
// denies by itself stays denied. When no rule matches, the action is ask.
type Rule struct {
	// Permission is a tool's name, a [ToolKind], or "*".
	Permission string `json:"permission"`
	// Pattern is matched against the call's subject, such as a command or a cleaned path: "*" matches any characters,
	// also none, "/" included; "?" for one; a backslash takes the next character as it is. Empty means "*".
	Pattern string `json:"pattern"`
	Action  Action `json:"action"`
	Source  Source `json:"source,omitempty"`
	// AddedAt is in Unix milliseconds.
	AddedAt int64 `json:"added_at,omitempty"`
}

func (r Rule) sessionScope(now time.Time) Rule {
	r.Permission, r.Pattern = validUTF8(r.Permission), cmp.Or(validUTF8(r.Pattern), "*")
	r.Source = SourceSession
	r.AddedAt = cmp.Or(r.AddedAt, now.UnixMilli())
	return r
}

// ToolRequest is a tool call that asks to go ahead.
type ToolRequest struct {
	SessionID, Agent, Mode string
	ToolID, CallID         string
	Kind                   ToolKind
	// Input is JSON.
	Input string
	// Subject is what patterns are matched against.
	Subject string
}

// Verdict is the result of a [Watchdog]. The zero Verdict denies.
type Verdict struct {
	Action Action
	Reason string
}

// Allow returns the verdict that leaves the decision to the rules.
func Allow() Verdict { return Verdict{Action: ActionAllow} }

// Ask returns the verdict that a human must be asked.
func Ask(reason string) Verdict { return Verdict{ActionAsk, reason} }

// Deny returns the verdict that the call must not run.
func Deny(reason string) Verdict { return Verdict{ActionDeny, reason} }

// Watchdog is the guide's tool.before hook: it sees every call that no rule denies, before it runs, and can only
// narrow what the rules allow. It may be called by many goroutines at once. A Watchdog that panics denies.
type Watchdog func(ctx context.Context, call ToolRequest) Verdict

// Reply is a human's answer.
type Reply string

// Replies.
const (
	// ReplyOnce allows this call.
	ReplyOnce Reply = semconv.ReplyOnce
	// ReplyAlways allows this call and adds a rule to the session.
	ReplyAlways Reply = semconv.ReplyAlways
	// ReplyReject denies the call.
	ReplyReject Reply = semconv.ReplyReject
	// ReplyLater reports that the answer will outlast the process: the call waits,
	// see [ToolCall.AwaitApproval]. [ToolCall.Done] and [ToolCall.Abort] then do nothing, and
	// neither does [ToolCall.Fail] with the error of the decision; the turn ends as pending.
	ReplyLater Reply = "later"
)

// Question is what an [Approver] is asked.
type Question struct {
	ToolRequest
	// ID names the question; it is the id of the permission decision.
	ID string
	// Rule is the rule that asked, nil when none matched or the watchdog did.
	Rule *Rule
	// Reason is the watchdog's.
	Reason string
}

// Answer is what an [Approver] returns. The zero Answer rejects.
type Answer struct {
	Reply  Reply
	Reason string
	// Pattern, with ReplyAlways, is that of the rule to add; empty means this very
	// subject and no other. A call without a subject then adds no rule.
	Pattern string
}

// Approver asks a human and waits for the answer. It should return when ctx is
// done; an error rejects the call. It may be called by many goroutines at once.
type Approver func(ctx context.Context, q Question) (Answer, error)

// Decision is whether a tool call may go ahead. The zero Decision denies.
type Decision struct {
	// ID is that of the permission decision, "" when nothing is recorded.
	ID string
	// Action is that of the rules and the watchdog, Pattern and Source those of the rule that decided.
	Action  Action
	Pattern string
	Source  Source
	// Reply is empty if no person was asked.
	Reply  Reply
	Reason string
	// Waited is how long the answer took.
	Waited time.Duration

	outcome string
	tool    string
}

// Allowed reports whether the call may run.
func (d Decision) Allowed() bool { return d.outcome == semconv.OutcomeAllowed }

// Pending reports whether the answer is yet to come: the tool must not run, and the turn should end.
func (d Decision) Pending() bool { return d.outcome == semconv.OutcomePending }

// Err returns nil when the call is allowed, and otherwise a [*DeniedError].
func (d Decision) Err() error {
	if d.Allowed() {
		return nil
	}
	return &DeniedError{Tool: d.tool, Reason: d.Reason, Pending: d.Pending()}
}

// DeniedError reports that a tool call may not run. Its text is fit for the model.
type DeniedError struct {
	Tool, Reason string
	// Pending reports that a human has yet to answer.
	Pending bool
}

func (e *DeniedError) Error() string {
	if e.Pending {
		return "permission pending: waiting for approval"
	}
	return "permission denied: " + e.Reason
}

// ErrorType names the class of the error for telemetry.
func (e *DeniedError) ErrorType() string { return "permission_denied" }

// Authorize decides whether the call may run. subject is what the patterns of
// rules are matched against, such as the command or the cleaned path.
//
// The rules come first, and a deny among them is final; then the watchdog, which can only narrow; then, if the
// action is ask, a human. Without an approver the call is denied. A denied call has ended: do not run the tool,
// give the model the text of [Decision.Err].
func (c *ToolCall) Authorize(ctx context.Context, subject string) Decision {
	if c == nil {
		return Decision{Action: ActionDeny, Reason: "no session to decide in", outcome: semconv.OutcomeDenied}
	}
	s := c.turn.run.sess
	now := s.now()
	subject = validUTF8(subject)
	req := c.request(subject, now)
	ctx, span := c.startDecision(ctx, now)

	m := s.evaluate(c.p.Name, c.p.Kind, subject)
	d := Decision{Action: m.action(), tool: c.p.Name}
	d.Pattern, d.Source = m.Pattern, m.Source
	var why string
	if d.Action != ActionDeny && s.tracer.watchdog != nil {
		v := s.tracer.watch(ctx, req)
		if v.Action.narrowness() > d.Action.narrowness() {
			d.Action, d.Pattern, d.Source, why = v.Action, "", "", v.Reason
			if v.Action != ActionAsk {
				d.Action = ActionDeny
			}
			m = match{}
		}
	}
	if !c.turn.off {
		d.ID = spans.NewID(spans.PrefixPermission, now)
	}
	switch {
	case d.Action == ActionAllow:
		d.outcome = semconv.OutcomeAllowed
	case d.Action == ActionDeny:
		d.outcome, d.Reason = semconv.OutcomeDenied, cmp.Or(why, m.because())
	case s.tracer.approver == nil:
		d.outcome, d.Reason = semconv.OutcomeDenied, cmp.Or(why, "nobody is there to approve it")
	default:
		q := Question{ToolRequest: req, ID: d.ID, Reason: why}
		if m.found {
			q.Rule = &m.Rule
		}
		c.ask(ctx, &d, q, m, now)
	}
	c.settle(&d, span)
	return d
}

// ask puts the question to a human and fills d with the answer.
func (c *ToolCall) ask(ctx context.Context, d *Decision, q Question, m match, now time.Time) {
	s := c.turn.run.sess
	c.await(PendingTool{
		ApprovalID: q.ID, AskedAt: now.UnixMilli(), Subject: q.Subject, Pattern: m.Pattern, Source: m.Source,
	}, now)
	c.waitApproval(now)
	answer, err := s.tracer.approve(ctx, q)
	d.Waited = max(0, s.now().Sub(now))
	switch {
	case err != nil:
		d.outcome, d.Reason = semconv.OutcomeDenied, "approval failed: "+errorText(err)
	case answer.Reply == ReplyLater:
		d.outcome, d.Waited, d.Reason = semconv.OutcomePending, 0, validUTF8(answer.Reason)
		c.postpone()
	default:
		s.answered(ctx, d, q.Subject, answer)
	}
}

// answered fills d with a person's answer. Any other than once and always rejects.
func (s *Session) answered(ctx context.Context, d *Decision, subject string, answer Answer) {
	d.Reply, d.outcome, d.Reason = answer.Reply, semconv.OutcomeAllowed, validUTF8(answer.Reason)
	switch answer.Reply {
	case ReplyOnce:
	case ReplyAlways:
		// Without a subject nothing states what to allow, so that only an explicit pattern adds a rule: an empty one
		// would allow the tool everything.
		if pattern := cmp.Or(answer.Pattern, literal(subject)); pattern != "" {
			s.AddRule(ctx, Rule{Permission: d.tool, Pattern: pattern, Action: ActionAllow})
		}
	default:
		d.Reply, d.outcome = ReplyReject, semconv.OutcomeDenied
		d.Reason = cmp.Or(d.Reason, "the user rejected it")
	}
}

// settle records a decision and what it means for the call.
func (c *ToolCall) settle(d *Decision, span trace.Span) {
	s := c.turn.run.sess
	now := s.now()
	if d.outcome != semconv.OutcomeDenied && c.hasEnded() {
		d.outcome, d.Reason = semconv.OutcomeDenied, "the call has ended"
	}
	if !d.Pending() {
		c.respond(now, d.Allowed(), d.Reason)
	}
	if span != nil {
		if span.IsRecording() {
			record := spans.Permission{
				SessionID: s.id, ID: d.ID, ToolID: c.p.Name, CallID: c.p.CallID, MessageID: c.answerID, PartID: c.partID,
				Pattern: c.filter().pattern(d.Pattern), Action: string(d.Action), Source: string(d.Source),
				Outcome: d.outcome, Reply: string(d.Reply), Reason: c.filter().text(redact.Other, "", d.Reason),
			}
			if d.Reply != "" {
				waited := d.Waited.Milliseconds()
				record.WaitedMS = &waited
			}
			span.SetAttributes(c.filter().attributes(spans.Append(make([]attribute.KeyValue, 0, 16), &record))...)
		}
		s.tracer.finish(span, now)
	}
	if d.outcome == semconv.OutcomeDenied {
		s.tracer.metrics.denial(c, d)
		err := &DeniedError{Tool: c.p.Name, Reason: d.Reason}
		c.end(now, stateOutputError, outcome{
			errText: c.filter().content(redact.Other, err.Error()), errType: err.ErrorType(), denied: true,
		})
	}
}

func (c *ToolCall) recording() bool { return !c.turn.off && c.span.IsRecording() }

// startDecision begins the decision's span, nil when the call is not recorded.
func (c *ToolCall) startDecision(ctx context.Context, now time.Time) (context.Context, trace.Span) {
	if !c.recording() {
		return ctx, nil
	}
	ctx = withSpan(ctx, c.span)
	return c.turn.run.sess.tracer.start(ctx, semconv.SpanPermissionEvaluate, trace.SpanKindInternal, now)
}

func (c *ToolCall) request(subject string, now time.Time) ToolRequest {
	s := c.turn.run.sess
	s.mu.Lock()
	agent, mode := s.st.Agent, s.st.Mode
	s.mu.Unlock()
	req := ToolRequest{SessionID: s.id, Agent: agent, Mode: mode, ToolID: c.p.Name, CallID: c.p.CallID, Subject: subject}
	c.turn.do(func() {
		if !c.ended {
			c.complete()
			c.emitState(now)
		}
		req.Kind, req.Input = c.p.Kind, c.input
	})
	c.noteOnce(now)
	return req
}

// watch asks the watchdog.
func (t *Tracer) watch(ctx context.Context, req ToolRequest) (v Verdict) {
	defer func() {
		if p := recover(); p != nil {
			otel.Handle(fmt.Errorf("watchdog of tool call %s: panic: %s", req.CallID, spans.Printed(p)))
			v = Deny("the watchdog failed")
		}
	}()
	v = t.watchdog(ctx, req)
	v.Reason = validUTF8(v.Reason)
	if v.Action.narrowness() > ActionAsk.narrowness() {
		v.Reason = cmp.Or(v.Reason, "the watchdog forbids it")
	}
	return v
}

// approve asks the approver.
func (t *Tracer) approve(ctx context.Context, q Question) (a Answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			a, err = Answer{}, fmt.Errorf("panic: %s", spans.Printed(p))
			otel.Handle(fmt.Errorf("approver of tool call %s: %w", q.CallID, err))
		}
	}()
	return t.approver(ctx, q)
}

// literal returns the pattern that matches s only.
func literal(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`).Replace(s)
}

// match is the rule that decides a call, if any.
type match struct {
	Rule
	found bool
}

// action is the action of the match: ask when no rule matched, deny when the rule reports nothing that is an action.
func (m match) action() Action {
	switch {
	case !m.found:
		return ActionAsk
	case m.Action.narrowness() > ActionAsk.narrowness():
		return ActionDeny
	}
	return m.Action
}

// because explains a denial.
func (m match) because() string {
	if !m.found {
		return "no rule allows it"
	}
	if m.Action != ActionDeny {
		return fmt.Sprintf("the action %q of a rule is none of allow, deny and ask", m.Action)
	}
	return "the " + string(m.Source) + " denies " + strings.TrimSpace(m.Permission+" "+m.Pattern)
}

// evaluate finds the rule that decides a call.
func (s *Session) evaluate(tool string, kind ToolKind, subject string) match {
	var manifest, best match
	var manifestRank, bestRank specificity
	for _, r := range slices.Concat(s.tracer.rules, s.Rules()) {
		rank := r.rank(tool, kind, subject)
		if rank == nil {
			continue
		}
		if r.Source == SourceManifest && slices.Compare(rank, manifestRank) >= 0 {
			manifest, manifestRank = match{r, true}, rank
		}
		if slices.Compare(rank, bestRank) >= 0 {
			best, bestRank = match{r, true}, rank
		}
	}
	if manifest.found && manifest.action() == ActionDeny {
		return manifest
	}
	return best
}

// specificity orders the rules that match a call: by the permission (2 names the tool, 1 its kind, 0 is "*"), whether
// the pattern has no wildcards (1), its literal characters, and the source. It is nil of a rule that does not match.
type specificity []int

// rank returns how specifically the rule matches a call.
func (r Rule) rank(tool string, kind ToolKind, subject string) specificity {
	permission, exact, literals := 0, 1, 0
	switch {
	case r.Permission == tool:
		permission = 2
	case kind != "" && r.Permission == string(kind):
		permission = 1
	case r.Permission != "*":
		return nil
	}
	pattern := cmp.Or(r.Pattern, "*")
	var expression strings.Builder
	expression.WriteString(`(?s)\A`)
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '*':
			expression.WriteString(".*")
			exact = 0
			continue
		case '?':
			expression.WriteByte('.')
			exact = 0
			continue
		case '\\':
			if i+1 < len(pattern) {
				i++
			}
		}
		expression.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		literals++
	}
	matches, err := regexp.MatchString(expression.String()+`\z`, subject)
	if err != nil || !matches { // it is not UTF-8, which every subject is
		return nil
	}
	return specificity{permission, exact, literals, slices.Index([]Source{SourceProject, SourceSession}, r.Source)}
}

// AwaitApproval reports that the call waits for a human for longer than the process may live: end the turn next,
// store [Session.State], and answer with [Turn.ResumeTool] in a turn that [Run.ContinueTurn] took up. id names the
// question; empty means a new one. It returns the id.
func (c *ToolCall) AwaitApproval(id string) string {
	if c == nil {
		return id
	}
	now := c.turn.run.now()
	if id = validUTF8(id); id == "" {
		id = spans.NewID(spans.PrefixPermission, now)
	}
	c.await(PendingTool{ApprovalID: id, AskedAt: now.UnixMilli()}, now)
	c.postpone()
	c.waitApproval(now)
	return id
}

// AwaitInput reports that the tool has asked its user something and waits for the answer, perhaps for longer than
// the process may live. End the call with the answer, or end the turn: it is then pending like one that waits for
// an approval, and the turn that [Run.ContinueTurn] takes up gets the call back from [Turn.ResumeTool], to be ended
// with the answer.
func (c *ToolCall) AwaitInput(question string) {
	c.change("a question", func(now time.Time) {
		if c.p.State == stateApprovalRequested {
			return // it does not run yet
		}
		c.complete()
		c.p.AsksUser, c.p.Question = true, validUTF8(question)
		c.emitState(now)
		c.wait(now, Status{State: StatusWaitingUserInput, Detail: c.p.Question, CallID: c.p.CallID})
	})
}

// await puts the call into the state of waiting for an answer to a question, of which p has the id, what it is about,
// and the rule that asked.
func (c *ToolCall) await(p PendingTool, now time.Time) {
	c.change("an approval", func(time.Time) {
		c.complete()
		c.p.State, c.p.AsksUser, c.p.Question = stateApprovalRequested, false, ""
		c.p.ApprovalID, c.p.AskedAt = p.ApprovalID, p.AskedAt
		c.p.Subject, c.p.Pattern, c.p.Source = p.Subject, p.Pattern, p.Source
		if !c.resumed {
			c.emitEvent(now)
		}
		c.resumed = false
	})
	c.noteOnce(now)
}

// postpone notes that nothing in this process waits for the answer.
func (c *ToolCall) postpone() { c.turn.do(func() { c.later = true }) }

// isPending reports whether the call waits for a human who may answer another process. Safe nets, which run when a
// function returns, do not end such a call, but after a question to its user an error of the tool does. The caller
// holds the turn's mu.
func (c *ToolCall) isPending(err error) bool {
	return !c.ended && (c.later && c.p.State == stateApprovalRequested ||
		c.p.AsksUser && c.p.State == stateInputAvailable && endReason(err) != semconv.EndError)
}

// waitsAfter is isPending for callers without the lock.
func (c *ToolCall) waitsAfter(err error) bool {
	return with(&c.turn.mu, func() bool { return c.isPending(err) })
}

// waitApproval reports that the session waits for the answer.
func (c *ToolCall) waitApproval(now time.Time) {
	c.turn.do(func() {
		if c.p.State == stateApprovalRequested && !c.ended {
			c.wait(now, c.p.status())
		}
	})
}

// respond notes the answer of a human, if one was asked.
func (c *ToolCall) respond(now time.Time, approved bool, reason string) {
	c.turn.do(func() {
		if c.ended || c.p.State != stateApprovalRequested {
			return
		}
		c.p.State = stateApprovalResponded
		c.answered, c.approved = true, approved
		c.reason = c.filter().text(redact.Other, "", reason)
		c.updated = max(c.updated, now.UnixMilli())
		c.started = now
		c.unwait(now)
		c.emitEvent(now)
	})
}

// pending returns what the next process must know of a call that waits. It is
// for calls that have ended with their turn. The caller holds the turn's mu.
func (c *ToolCall) pending() (PendingTool, bool) {
	p := c.open()
	return p, c.rest == nil && p.waits()
}

// open describes the call to another process. The caller holds the turn's mu.
func (c *ToolCall) open() PendingTool {
	p := c.p
	p.PartID, p.PartIndex, p.CreatedAt = c.partID, c.index, c.created
	if input := c.wholeInput(); input != "" {
		p.Input = json.RawMessage(input)
	}
	return p
}

// waits reports whether the call waits for a human.
func (p *PendingTool) waits() bool {
	return p.State == stateApprovalRequested || p.AsksUser && p.State == stateInputAvailable
}

// options describes the call without its input.
func (p *PendingTool) options() ToolOptions {
	return ToolOptions{
		ID: p.CallID, Name: p.Name, Kind: p.Kind, Dynamic: p.Dynamic, ProviderExecuted: p.ProviderExecuted,
	}
}

// status is what the session does while the call waits.
func (p *PendingTool) status() Status {
	if p.AsksUser {
		return Status{State: StatusWaitingUserInput, CallID: p.CallID, Detail: p.Question}
	}
	return Status{
		State: StatusWaitingApproval, CallID: p.CallID, Detail: strings.TrimSpace(p.Name + " " + p.Subject),
	}
}

// PendingTools returns the tool calls of a continued turn that still wait for
// an answer: an approval or, where AsksUser is set, their user's input.
func (t *Turn) PendingTools() []PendingTool {
	if t == nil || t.off {
		return nil
	}
	return with(&t.mu, func() []PendingTool { return slices.Clone(t.waiting) })
}

// ResumeTool takes up a tool call that waited, with a human's answer. The call goes on under its old id, in its old
// place. When the decision denies it, it has ended. The error reports that no call of that id waits.
//
// The decision is recorded as one and the same as when the question was asked. A
// call that waits for its user's input has no decision to make: the answer given
// here is not used, the Decision allows, and the call is ended with the input.
func (t *Turn) ResumeTool(
	ctx context.Context, callID string, answer Answer) (context.Context, *ToolCall, Decision, error,
) {
	denied := Decision{Action: ActionAsk, Reason: "no such call waits", outcome: semconv.OutcomeDenied}
	if t == nil || t.off {
		return ctx, nil, denied, nil
	}
	t.mu.Lock()
	i := slices.IndexFunc(t.waiting, func(p PendingTool) bool { return p.CallID == callID })
	var p PendingTool
	if i >= 0 && !t.ended {
		p = t.waiting[i]
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
	t.mu.Unlock()
	if p.CallID == "" {
		return ctx, nil, denied, fmt.Errorf("resume tool call %q: %w", callID, ErrNothingPending)
	}
	options := p.options()
	if len(p.Input) > 0 {
		options.Input = p.Input
	}
	ctx, c := t.startTool(ctx, options, &p)
	c.begun()
	if p.AsksUser {
		t.do(func() {
			c.complete()
			c.changed, c.resumed = false, false
		})
		return ctx, c, Decision{Action: ActionAllow, outcome: semconv.OutcomeAllowed, tool: p.Name}, nil
	}
	now := t.run.now()
	_, span := c.startDecision(ctx, now)
	c.await(p, time.UnixMilli(p.AskedAt))
	d := Decision{
		ID: p.ApprovalID, Action: ActionAsk, Pattern: p.Pattern, Source: p.Source, tool: p.Name,
		Waited: max(0, now.Sub(time.UnixMilli(p.AskedAt))),
	}
	t.run.sess.answered(ctx, &d, p.Subject, answer)
	c.settle(&d, span)
	return ctx, c, d, nil
}
