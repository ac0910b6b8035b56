package agentdbg

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

// run is a run as it was read.
type run struct {
	id string
	// meta is run.json, nil if there is none.
	meta   rows.Object
	events []event
}

// status is that of run.json, or otherwise the one with which the events end.
func (r *run) status() string {
	if s := r.meta.Text("status"); s != "" {
		return s
	}
	if n := len(r.events); n > 0 && r.events[n-1].typ == runEnd {
		return cmp.Or(r.events[n-1].payload.Text("status"), statusOK)
	}
	return statusRunning
}

// builder makes a session of the events of a run.
type builder struct {
	run    *run
	status string
	s      *rows.Session
	report func(codec.Problem)

	turns    []*turn
	open     *turn  // the assistant's message, nil before its first event
	known    []said // what users said
	ended    int64  // when the run did, 0 if it did not
	prompted bool   // a user said something since the last turn
	before   int64  // the time of the event before
}

// turn is an assistant message being built.
type turn struct {
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

func build(r *run, report func(codec.Problem)) *codec.Session {
	slices.SortStableFunc(r.events, func(a, b event) int { return cmp.Compare(a.order, b.order) })
	agent := agentName
	if r.meta.Has("trace_id") || len(r.events) > 0 && r.events[0].span {
		agent = maidaName
	}
	b := &builder{run: r, status: r.status(), s: rows.New(r.id, agent), report: report}
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
		if e.typ == runEnd && last {
			b.ended = e.at
		} else if e.typ != errorEvent || e.payload.Text("error_type") != unfinished { // which has no time of its own
			b.s.See(e.at)
			b.before = e.at
		}
		*e = event{} // a run may be large
	}
	b.finish()
	return b.s.Finish()
}

func (b *builder) event(e *event, first, last bool) {
	switch {
	case e.typ == runStart && first:
		if b.s.Row.Title == session.Untitled {
			b.s.Row.Title = cmp.Or(e.payload.Text("run_name"), session.Untitled)
		}
		rows.SetText(&b.s.Row.WorkspaceRoot, e.payload.Text("cwd"))
	case e.typ == runEnd && last:
	case e.typ == llmCall:
		b.llmCall(e)
	case e.typ == toolCall:
		b.toolCall(e)
	default:
		b.data(e)
	}
}

// assistant returns the assistant's message to which the event belongs.
func (b *builder) assistant(e *event) *turn {
	if b.open == nil {
		index := int64(max(len(b.known)-1, 0))
		b.open = &turn{m: b.s.Message(session.RoleAssistant, e.at), prompted: b.prompted}
		b.open.trace.TurnIndex = &index
		b.prompted = false
		b.turns = append(b.turns, b.open)
	}
	b.open.failed = "" // it goes on
	return b.open
}

func (b *builder) llmCall(e *event) {
	all := readPrompt(e.payload.Get("prompt"))
	b.prompt(all)
	t := b.assistant(e)
	t.system = cmp.Or(systemPrompt(all), t.system)
	parts := slices.Concat([]rows.Object{rows.Of("type", "step-start")}, responseParts(e.payload.Get("response")))
	for _, data := range parts {
		t.m.Part(data, e.at).Row.CreatedAt = e.at - e.tookMS
	}
	b.account(t, e)
}

// prompt adds the messages that no prompt had before.
func (b *builder) prompt(all []said) {
	var asked []said
	last := -1 // the last user message; what follows is no history
	for i := range all {
		if all[i].role == session.RoleUser {
			asked = append(asked, all[i])
			last = i
		}
	}
	old := overlap(b.known, asked)
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

// systemPrompt joins the system messages of a prompt.
func systemPrompt(all []said) string {
	var texts []string
	for i := range all {
		if text := all[i].text(); all[i].role == session.RoleSystem && text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n\n")
}

// account takes a call's model, its usage, and how it ended.
func (b *builder) account(t *turn, e *event) {
	t.trace.ModelCalls++
	step := session.Step{StopReason: e.payload.Text("stop_reason")}
	model := session.Model{ModelID: e.payload.Text("model")}
	if provider := e.payload.Text("provider"); provider != unknown {
		model.ProviderID = provider
	}
	if model != (session.Model{}) && model != (session.Model{ModelID: unknown}) {
		t.model, step.Model = &model, &model
	}
	var temperature *float64
	if json.Unmarshal(e.payload.Get("temperature"), &temperature) == nil && temperature != nil {
		t.trace.Temperature = temperature
	}
	t.trace.StopReason = cmp.Or(step.StopReason, t.trace.StopReason)
	if e.payload.Text("status") == statusError {
		const maximum = 5
		t.trace.ModelErrors = append(t.trace.ModelErrors,
			cmp.Or(errorText(e.payload.Get("error")), "the model call failed"))
		t.trace.ModelErrors = t.trace.ModelErrors[max(0, len(t.trace.ModelErrors)-maximum):]
	}
	if usage := e.payload.Object("usage"); usage != nil {
		t.usage = usage.JSON()
		step.Usage = b.usage(t, e, usage)
	}
	t.steps = append(t.steps, step)
}

// usage reads the counts of a call; nil if it has none.
func (b *builder) usage(t *turn, e *event, stated rows.Object) (usage *session.Usage) {
	var counts session.Usage
	for i, bucket := range []*int64{&counts.Input, &counts.Output} {
		key := []string{"prompt_tokens", "completion_tokens"}[i]
		v := stated.Get(key)
		if !stated.Has(key) {
			continue
		}
		if n, ok := tokens(v); ok {
			*bucket, usage = n, &counts
			continue
		}
		problem := fmt.Sprintf("usage.%s of event %s is %s: the count is unknown", key, e.id, cut(string(v)))
		t.trace.Problems = append(t.trace.Problems, problem)
		if string(v) != redactedCount {
			b.report(codec.Problem{Line: e.line, Record: e.id, Reason: problem})
		}
	}
	return usage
}

// unknown is the model and the provider of a call without one.
const unknown = "unknown"

// redactedCount is a count of tokens as AgentDbg writes it by default, because it takes
// "prompt_tokens" for a secret. So it is no damage.
const redactedCount = `"__REDACTED__"`

// maxTokens bounds a count, and maxSum a sum of them, so that none overflows.
const (
	maxTokens = 1 << 54
	maxSum    = 1 << 60
)

// tokens reads a count, which may be written as a float.
func tokens(v json.RawMessage) (int64, bool) {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n, n >= 0 && n <= maxTokens
	}
	f, err := strconv.ParseFloat(string(v), 64)
	return int64(f), err == nil && f >= 0 && f <= maxTokens
}

func cut(s string) string {
	const maximum = 40
	if len(s) <= maximum {
		return s
	}
	return strings.ToValidUTF8(s[:maximum], "") + "…"
}

func (b *builder) toolCall(e *event) {
	t := b.assistant(e)
	id := e.id
	if id == "" {
		id = uuid(b.run.id, "call", strconv.Itoa(len(b.turns)), strconv.Itoa(len(t.m.Parts())))
	}
	data := rows.ToolPart(cmp.Or(e.payload.Text("tool_name"), e.name), id, session.StateInputAvailable)
	data.Set("input", rows.OrNull(e.payload.Get("args")))
	kind := e.payload.Object("error").Text("error_type")
	switch failed := e.payload.Text("status") == statusError; {
	case !failed:
		data.Set("state", session.StateOutputAvailable)
		data.Set("output", rows.OrNull(e.payload.Get("result")))
	case kind != unfinished:
		data.Set("state", session.StateOutputError)
		data.Set("errorText", cmp.Or(errorText(e.payload.Get("error")), "the call failed"))
		if kind == permissionDenied {
			data.SetToolTrace("denied", true)
		}
	}
	t.m.Part(data, e.at).Row.CreatedAt = e.at - e.tookMS
}

// data takes an event that is a data part, or the end of a turn.
func (b *builder) data(e *event) {
	t := b.assistant(e)
	if e.typ == errorEvent {
		t.trace.Error = errorText(e.payload.JSON())
		t.failed = cmp.Or(e.payload.Text("error_type"), plainError)
		if t.failed == interrupted || t.failed == unfinished {
			if b.open = nil; t.failed == interrupted {
				t.m.Touch(e.at)
			}
			return
		}
	}
	data := rows.DataPart(dataType(e.typ), e.payload.JSON())
	if part := statePart(e.payload); part != nil && e.typ == stateUpdate {
		data = part
	}
	t.m.Part(data, e.at)
}

// finish sets the ends of the turns and of the run.
func (b *builder) finish() {
	outcome := semconv.EndFinish
	switch b.status {
	case statusError:
		outcome = semconv.EndError
	case statusRunning:
		outcome = ""
	}
	for i, t := range b.turns {
		failed := t.trace.Error
		t.trace.Error = ""
		last := i == len(b.turns)-1
		switch {
		case t.failed == unfinished, last && b.status == statusRunning:
			t.trace.Incomplete = true
		case last && b.status != statusError:
			t.trace.EndReason = semconv.EndFinish
		case t.failed == interrupted:
			t.trace.EndReason, t.trace.Error = semconv.EndAbort, failed
		case last || t.failed != "":
			t.trace.EndReason, t.trace.Error = semconv.EndError, failed
		case t.prompted:
			t.trace.EndReason = semconv.EndFinish
		}
		if last && t.failed == unfinished {
			outcome = ""
		} else if last && outcome == semconv.EndError {
			outcome = t.trace.EndReason
		}
		b.finishTurn(t)
	}
	if n := len(b.turns); n == 0 || b.turns[n-1].failed != unfinished {
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

func (b *builder) finishTurn(t *turn) {
	if t.model != nil {
		t.m.SetMeta("model", t.model)
		b.s.Row.ModelJSON = new(string(rows.Raw(t.model)))
	}
	var sum session.Usage
	counted, differ := false, false
	for i := range t.steps {
		if u := t.steps[i].Usage; u != nil && sum.Total() < maxSum {
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
