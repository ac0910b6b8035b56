package formats

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// agentdbgRun is a run as it was read.
type agentdbgRun struct {
	id string
	// meta is run.json, nil if there is none.
	meta   rows.Object
	events []agentdbgEvent
}

// status is that of run.json, or otherwise the one with which the events end.
func (r *agentdbgRun) status() string {
	if s := r.meta.Text("status"); s != "" {
		return s
	}
	if n := len(r.events); n > 0 && r.events[n-1].typ == agentdbgRunEnd {
		return cmp.Or(r.events[n-1].payload.Text("status"), agentdbgStatusOK)
	}
	return agentdbgStatusRunning
}

// agentdbgBuilder makes a session of the events of a run.
type agentdbgBuilder struct {
	run    *agentdbgRun
	status string
	s      *rows.Session
	report func(codec.Problem)

	turns    []*agentdbgTurn
	open     *agentdbgTurn  // the assistant's message, nil before its first event
	known    []agentdbgSaid // what users said
	ended    int64          // when the run did, 0 if it did not
	prompted bool           // a user said something since the last turn
	before   int64          // the time of the event before
}

// agentdbgTurn is an assistant message being built.
type agentdbgTurn struct {
	m      *rows.Message
	trace  session.MessageTrace
	model  *session.Model
	steps  []session.Step
	usage  json.RawMessage // of the last call, as the run has it
	system string          // its system prompt
	// prompted reports that it answers a user.
	prompted bool
	// failed is the type of the error that the events end with, if they do.
	failed string
}

func agentdbgBuild(r *agentdbgRun, report func(codec.Problem)) *codec.Session {
	slices.SortStableFunc(r.events, func(a, b agentdbgEvent) int { return cmp.Compare(a.order, b.order) })
	agent := agentdbgAgentName
	if r.meta.Has("trace_id") || len(r.events) > 0 && r.events[0].span {
		agent = agentdbgMaidaName
	}
	b := &agentdbgBuilder{run: r, status: r.status(), s: rows.New(r.id, agent), report: report}
	if at, ok := rows.ParseTime(r.meta.Text("started_at")); ok {
		b.s.See(at)
		b.before = at
	}
	b.s.Row.Title = cmp.Or(r.meta.Text("run_name"), b.s.Row.Title)
	for i := range r.events {
		e := &r.events[i]
		if i == 0 && b.before == 0 {
			b.before = e.at - e.tookMS
		}
		last := i == len(r.events)-1
		b.event(e, i == 0, last)
		if e.typ == agentdbgRunEnd && last {
			b.ended = e.at
		} else if e.typ != agentdbgErrorEvent || e.payload.Text("error_type") != agentdbgUnfinished {
			// One that did not end has no time of its own.
			b.s.See(e.at)
			b.before = e.at
		}
		*e = agentdbgEvent{} // a run may be large
	}
	b.finish()
	return b.s.Finish()
}

func (b *agentdbgBuilder) event(e *agentdbgEvent, first, last bool) {
	switch {
	case e.typ == agentdbgRunStart && first:
		if b.s.Row.Title == session.Untitled {
			b.s.Row.Title = cmp.Or(e.payload.Text("run_name"), session.Untitled)
		}
		rows.SetText(&b.s.Row.WorkspaceRoot, e.payload.Text("cwd"))
	case e.typ == agentdbgRunEnd && last:
	case e.typ == agentdbgLlmCall:
		b.llmCall(e)
	case e.typ == agentdbgToolCall:
		b.toolCall(e)
	default:
		b.data(e)
	}
}

// assistant returns the assistant's message to which the event belongs.
func (b *agentdbgBuilder) assistant(e *agentdbgEvent) *agentdbgTurn {
	if b.open == nil {
		index := int64(max(len(b.known)-1, 0))
		b.open = &agentdbgTurn{m: b.s.Message(session.RoleAssistant, e.at), prompted: b.prompted}
		b.open.trace.TurnIndex = &index
		b.prompted = false
		b.turns = append(b.turns, b.open)
	}
	b.open.failed = "" // it goes on
	return b.open
}

func (b *agentdbgBuilder) llmCall(e *agentdbgEvent) {
	all := agentdbgReadPrompt(e.payload.Get("prompt"))
	b.prompt(all)
	t := b.assistant(e)
	t.system = cmp.Or(agentdbgSystemPrompt(all), t.system)
	parts := slices.Concat([]rows.Object{rows.Of("type", "step-start")}, agentdbgResponseParts(e.payload.Get("response")))
	for _, data := range parts {
		t.m.Part(data, e.at).Row.CreatedAt = e.at - e.tookMS
	}
	b.account(t, e)
}

// prompt adds the messages that no prompt had before.
func (b *agentdbgBuilder) prompt(all []agentdbgSaid) {
	var asked []agentdbgSaid
	last := -1 // the last user message; what follows is no history
	for i := range all {
		if all[i].role == session.RoleUser {
			asked = append(asked, all[i])
			last = i
		}
	}
	old := agentdbgOverlap(b.known, asked)
	for i, n := 0, 0; i <= last; i++ {
		if all[i].role == session.RoleUser {
			n++
		}
		if n <= old || all[i].role == session.RoleSystem {
			continue
		}
		m := b.s.Message(all[i].role, b.before)
		for _, data := range all[i].parts {
			m.Part(data, m.Row.CreatedAt)
		}
		if all[i].role == session.RoleUser {
			b.open, b.prompted = nil, true
			b.known = append(b.known, all[i])
		}
	}
}

// agentdbgSystemPrompt joins the system messages of a prompt.
func agentdbgSystemPrompt(all []agentdbgSaid) string {
	var texts []string
	for i := range all {
		if text := all[i].text(); all[i].role == session.RoleSystem && text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n\n")
}

// account takes a call's model, its usage, and how it ended.
func (b *agentdbgBuilder) account(t *agentdbgTurn, e *agentdbgEvent) {
	t.trace.ModelCalls++
	step := session.Step{StopReason: e.payload.Text("stop_reason")}
	model := session.Model{ModelID: e.payload.Text("model")}
	if provider := e.payload.Text("provider"); provider != agentdbgUnknown {
		model.ProviderID = provider
	}
	if model != (session.Model{}) && model != (session.Model{ModelID: agentdbgUnknown}) {
		t.model, step.Model = &model, &model
	}
	var temperature *float64
	if json.Unmarshal(e.payload.Get("temperature"), &temperature) == nil && temperature != nil {
		t.trace.Temperature = temperature
	}
	t.trace.StopReason = cmp.Or(step.StopReason, t.trace.StopReason)
	if e.payload.Text("status") == agentdbgStatusError {
		const maximum = 5
		t.trace.ModelErrors = append(t.trace.ModelErrors,
			cmp.Or(agentdbgErrorText(e.payload.Get("error")), "the model call failed"))
		t.trace.ModelErrors = t.trace.ModelErrors[max(0, len(t.trace.ModelErrors)-maximum):]
	}
	if usage := e.payload.Object("usage"); usage != nil {
		t.usage = usage.JSON()
		step.Usage = b.usage(t, e, usage)
	}
	t.steps = append(t.steps, step)
}

// usage reads the counts of a call; nil if it has none.
func (b *agentdbgBuilder) usage(t *agentdbgTurn, e *agentdbgEvent, stated rows.Object) (usage *session.Usage) {
	var counts session.Usage
	for i, bucket := range []*int64{&counts.Input, &counts.Output} {
		key := []string{"prompt_tokens", "completion_tokens"}[i]
		v := stated.Get(key)
		if !stated.Has(key) {
			continue
		}
		if n, ok := agentdbgTokens(v); ok {
			*bucket, usage = n, &counts
			continue
		}
		problem := fmt.Sprintf("usage.%s of event %s is %s: the count is unknown", key, e.id, agentdbgCut(string(v)))
		t.trace.Problems = append(t.trace.Problems, problem)
		if string(v) != agentdbgRedactedCount {
			b.report(codec.Problem{Line: e.line, Record: e.id, Reason: problem})
		}
	}
	return usage
}

// agentdbgUnknown is the model and the provider of a call without one.
const agentdbgUnknown = "unknown"

// agentdbgRedactedCount is a count of tokens as AgentDbg writes it by default, because it takes
// "prompt_tokens" for a secret. So it is no damage.
const agentdbgRedactedCount = `"__REDACTED__"`

// agentdbgMaxTokens bounds a count, and maxSum a sum of them, so that none overflows.
const (
	agentdbgMaxTokens = 1 << 54
	agentdbgMaxSum    = 1 << 60
)

// agentdbgTokens reads a count, which may be written as a float.
func agentdbgTokens(v json.RawMessage) (int64, bool) {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n, n >= 0 && n <= agentdbgMaxTokens
	}
	f, err := strconv.ParseFloat(string(v), 64)
	return int64(f), err == nil && f >= 0 && f <= agentdbgMaxTokens
}

func agentdbgCut(s string) string {
	const maximum = 40
	if len(s) <= maximum {
		return s
	}
	return strings.ToValidUTF8(s[:maximum], "") + "…"
}

func (b *agentdbgBuilder) toolCall(e *agentdbgEvent) {
	t := b.assistant(e)
	id := e.id
	if id == "" {
		id = agentdbgUUID(b.run.id, "call", strconv.Itoa(len(b.turns)), strconv.Itoa(len(t.m.Parts())))
	}
	data := rows.ToolPart(cmp.Or(e.payload.Text("tool_name"), e.name), id, session.StateInputAvailable)
	data.Set("input", rows.OrNull(e.payload.Get("args")))
	kind := e.payload.Object("error").Text("error_type")
	switch failed := e.payload.Text("status") == agentdbgStatusError; {
	case !failed:
		data.Set("state", session.StateOutputAvailable)
		data.Set("output", rows.OrNull(e.payload.Get("result")))
	case kind != agentdbgUnfinished:
		data.Set("state", session.StateOutputError)
		data.Set("errorText", cmp.Or(agentdbgErrorText(e.payload.Get("error")), "the call failed"))
		if kind == agentdbgPermissionDenied {
			data.SetToolTrace("denied", true)
		}
	}
	t.m.Part(data, e.at).Row.CreatedAt = e.at - e.tookMS
}

// data takes an event that is a data part, or the end of a turn.
func (b *agentdbgBuilder) data(e *agentdbgEvent) {
	t := b.assistant(e)
	if e.typ == agentdbgErrorEvent {
		t.trace.Error = agentdbgErrorText(e.payload.JSON())
		t.failed = cmp.Or(e.payload.Text("error_type"), agentdbgPlainError)
		if t.failed == agentdbgInterrupted || t.failed == agentdbgUnfinished {
			if b.open = nil; t.failed == agentdbgInterrupted {
				t.m.Touch(e.at)
			}
			return
		}
	}
	data := rows.DataPart(agentdbgDataType(e.typ), e.payload.JSON())
	if part := agentdbgStatePart(e.payload); part != nil && e.typ == agentdbgStateUpdate {
		data = part
	}
	t.m.Part(data, e.at)
}

// finish sets the ends of the turns and of the run.
func (b *agentdbgBuilder) finish() {
	outcome := semconv.EndFinish
	switch b.status {
	case agentdbgStatusError:
		outcome = semconv.EndError
	case agentdbgStatusRunning:
		outcome = ""
	}
	for i, t := range b.turns {
		failed := t.trace.Error
		t.trace.Error = ""
		last := i == len(b.turns)-1
		switch {
		case t.failed == agentdbgUnfinished, last && b.status == agentdbgStatusRunning:
			t.trace.Incomplete = true
		case last && b.status != agentdbgStatusError:
			t.trace.EndReason = semconv.EndFinish
		case t.failed == agentdbgInterrupted:
			t.trace.EndReason, t.trace.Error = semconv.EndAbort, failed
		case last || t.failed != "":
			t.trace.EndReason, t.trace.Error = semconv.EndError, failed
		case t.prompted:
			t.trace.EndReason = semconv.EndFinish
		}
		if last && t.failed == agentdbgUnfinished {
			outcome = ""
		} else if last && outcome == semconv.EndError {
			outcome = t.trace.EndReason
		}
		b.finishTurn(t)
	}
	if n := len(b.turns); n == 0 || b.turns[n-1].failed != agentdbgUnfinished {
		if at, ok := rows.ParseTime(b.run.meta.Text("ended_at")); ok {
			b.s.See(at)
		}
		if b.ended != 0 {
			b.s.See(b.ended)
		}
	}
	if outcome != "" {
		b.s.SetMeta("agenttrace", rows.Of("outcome", outcome))
	}
}

func (b *agentdbgBuilder) finishTurn(t *agentdbgTurn) {
	if t.model != nil {
		t.m.SetMeta("model", t.model)
		b.s.Row.ModelJSON = new(string(rows.Raw(t.model)))
	}
	var sum session.Usage
	counted, differ := false, false
	for i := range t.steps {
		if u := t.steps[i].Usage; u != nil && sum.Total() < agentdbgMaxSum {
			sum, counted = sum.Add(*u), true
		}
		if m := t.steps[i].Model; m != nil && *m == *t.model {
			t.steps[i].Model = nil
		}
		differ = differ || t.steps[i] != session.Step{}
	}
	if counted {
		t.m.SetMeta("usage", sum)
		t.trace.UsageBasis = semconv.BasisInclusive
	}
	switch {
	case len(t.steps) == 1:
		t.trace.UsageRaw = t.usage
	case differ:
		t.trace.Steps = t.steps
	}
	if t.system != "" {
		sum := sha256.Sum256([]byte(t.system))
		digest := hex.EncodeToString(sum[:])
		t.m.SetMeta("system_prompt_digest", digest)
		blob := store.Blob{
			Kind: store.BlobSystemPrompt, Digest: digest, Body: t.system,
			Exact: !strings.Contains(t.system, "__TRUNCATED__"),
		}
		if !slices.Contains(b.s.Blobs, blob) {
			b.s.Blobs = append(b.s.Blobs, blob)
		}
	}
	t.m.SetMeta("agenttrace", t.trace)
}
