package formats

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// agentdbgBuilder makes a session of the events of a run.
type agentdbgBuilder struct {
	s      *rows.Session
	report func(codec.Problem)

	turns    []*agentdbgTurn
	open     *agentdbgTurn  // the assistant's message, nil before its first event
	known    []agentdbgSaid // what users said
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
	status, agent, n := cmp.Or(r.meta.Text("status"), agentdbgStatusRunning), agentdbgAgentName, len(r.events)
	if r.meta.Has("trace_id") || n > 0 && r.events[0].span {
		agent = agentdbgMaidaName
	}
	ended := n > 0 && r.events[n-1].typ == agentdbgRunEnd
	if ended && r.meta.Text("status") == "" {
		status = cmp.Or(r.events[n-1].payload.Text("status"), agentdbgStatusOK)
	}
	if n == 0 && status != agentdbgStatusRunning {
		report(codec.Problem{Reason: "the run has no events"})
	}
	b := &agentdbgBuilder{s: rows.New(r.id, agent), report: report}
	b.s.Row.Title = cmp.Or(r.meta.Text("run_name"), session.Untitled)
	if at, ok := rows.ParseTime(r.meta.Text("started_at")); ok {
		b.s.See(at)
		b.before = at
	} else if n > 0 {
		b.before = r.events[0].at - r.events[0].tookMS
	}
	endedAt, ok := rows.ParseTime(r.meta.Text("ended_at"))
	if !ok {
		endedAt = 0
	}
	for i := range r.events {
		e := r.events[i]
		r.events[i] = agentdbgEvent{} // a run may be large
		if ended && i == n-1 {
			endedAt = max(endedAt, e.at)
			break
		}
		b.event(&e, i == 0)
		if e.typ != agentdbgErrorEvent || e.payload.Text("error_type") != agentdbgUnfinished {
			// One that did not end has no time of its own.
			b.s.See(e.at)
			b.before = e.at
		}
	}
	b.finish(status, endedAt)
	return b.s.Finish()
}

func (b *agentdbgBuilder) event(e *agentdbgEvent, first bool) {
	switch {
	case e.typ == agentdbgRunStart && first:
		if b.s.Row.Title == session.Untitled {
			b.s.Row.Title = cmp.Or(e.payload.Text("run_name"), session.Untitled)
		}
		rows.SetText(&b.s.Row.WorkspaceRoot, e.payload.Text("cwd"))
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

// part adds a part for the event of a call.
func (t *agentdbgTurn) part(data rows.Object, e *agentdbgEvent) {
	t.m.Part(data, e.at).Row.CreatedAt = e.at - e.tookMS
}

func (b *agentdbgBuilder) llmCall(e *agentdbgEvent) {
	system := b.prompt(agentdbgReadPrompt(e.payload.Get("prompt")))
	t := b.assistant(e)
	t.system = cmp.Or(system, t.system)
	t.part(rows.Of("type", "step-start"), e)
	response := e.payload.Get("response")
	parts := agentdbgResponseParts(response, 0)
	if parts == nil && e.payload.Has("response") {
		parts = []rows.Object{rows.DataPart(agentdbgDataResponse, response)}
	}
	for _, data := range parts {
		t.part(data, e)
	}
	b.account(t, e)
}

// prompt adds the messages that no prompt had before, and returns the system prompt. The longest beginning of the
// prompt's user messages that is an end of the known ones is known: so neither a prompt that repeats the whole history
// nor one that lost its start repeats a message.
func (b *agentdbgBuilder) prompt(all []agentdbgSaid) (system string) {
	var asked []agentdbgSaid
	var systems []string
	last := -1 // the last user message; what follows is no history
	for i, said := range all {
		switch said.role {
		case session.RoleUser:
			asked, last = append(asked, said), i
		case session.RoleSystem:
			if text := said.text(); text != "" {
				systems = append(systems, text)
			}
		}
	}
	old := min(len(b.known), len(asked))
	for !slices.EqualFunc(b.known[len(b.known)-old:], asked[:old], agentdbgSaid.equal) {
		old--
	}
	n := 0
	for _, said := range all[:last+1] {
		if said.role == session.RoleUser {
			n++
		}
		if n <= old || said.role == session.RoleSystem {
			continue
		}
		m := b.s.Message(said.role, b.before)
		for _, data := range said.parts {
			m.Part(data, m.Row.CreatedAt)
		}
		if said.role == session.RoleUser {
			b.open, b.prompted = nil, true
			b.known = append(b.known, said)
		}
	}
	return strings.Join(systems, "\n\n")
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
	if temperature, err := strconv.ParseFloat(string(e.payload.Get("temperature")), 64); err == nil {
		t.trace.Temperature = &temperature
	}
	t.trace.StopReason = cmp.Or(step.StopReason, t.trace.StopReason)
	if e.payload.Text("status") == agentdbgStatusError {
		const maximum = 5
		text := cmp.Or(agentdbgErrorText(e.payload.Get("error")), "the model call failed")
		t.trace.ModelErrors = append(t.trace.ModelErrors, text)
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
		if !stated.Has(key) {
			continue
		}
		v := string(stated.Get(key))
		n, err := strconv.ParseInt(v, 10, 64)
		if f, failed := strconv.ParseFloat(v, 64); err != nil && failed == nil && f <= agentdbgMaxTokens {
			n, err = int64(f), nil // it may be written as a float
		}
		if err == nil && n >= 0 && n <= agentdbgMaxTokens {
			*bucket, usage = n, &counts
			continue
		}
		problem := fmt.Sprintf("usage.%s of event %s is %.40s: the count is unknown", key, e.id, v)
		t.trace.Problems = append(t.trace.Problems, problem)
		if v != agentdbgRedactedCount {
			b.report(codec.Problem{Line: e.line, Reason: problem})
		}
	}
	return usage
}

// agentdbgRedactedCount is a count of tokens as AgentDbg writes it by default, because it takes
// "prompt_tokens" for a secret. So it is no damage.
const agentdbgRedactedCount = `"__REDACTED__"`

// agentdbgMaxTokens bounds a count, and agentdbgMaxSum a sum of them, so that none overflows.
const (
	agentdbgMaxTokens = 1 << 54
	agentdbgMaxSum    = 1 << 60
)

func (b *agentdbgBuilder) toolCall(e *agentdbgEvent) {
	t := b.assistant(e)
	id := e.id
	if id == "" {
		id = agentdbgUUID(b.s.Row.ID, "call", strconv.Itoa(len(b.turns)), strconv.Itoa(len(t.m.Parts())))
	}
	p := t.m.Call(id, cmp.Or(e.payload.Text("tool_name"), e.name), e.payload.Get("args"), e.at)
	p.Row.CreatedAt = e.at - e.tookMS
	kind := e.payload.Object("error").Text("error_type")
	switch failed := e.payload.Text("status") == agentdbgStatusError; {
	case !failed:
		p.Result(e.payload.Get("result"), false)
	case kind != agentdbgUnfinished:
		p.Result(rows.Raw(cmp.Or(agentdbgErrorText(e.payload.Get("error")), "the call failed")), true)
		if data := p.Data(); kind == agentdbgPermissionDenied {
			data.SetToolTrace("denied", true)
			p.Set(data)
		}
	}
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
	typ, known := agentdbgDataTypes[e.typ]
	if !known { // a name of its own, so that it is never taken for a part with another meaning
		typ = "data-event-" + agentdbgNotWord.ReplaceAllString(strings.ToLower(e.typ), "-")
	}
	data := rows.DataPart(typ, e.payload.JSON())
	if part := agentdbgStatePart(e.payload); part != nil && e.typ == agentdbgStateUpdate {
		data = part
	}
	t.m.Part(data, e.at)
}

var agentdbgNotWord = regexp.MustCompile("[^a-z0-9]")

// agentdbgStatePart returns the data part that a STATE_UPDATE has as its state, or nil. A part
// with a meaning of its own, such as a compaction, is not read from a state.
func agentdbgStatePart(payload rows.Object) rows.Object {
	part := payload.Object("state")
	typ := part.Text("type")
	_, named := rows.Text(part.Get("id"))
	own := []string{session.TypeCompaction, session.TypeWithheld, session.TypeUnfinished, "data-"}
	if !strings.HasPrefix(typ, "data-") || slices.Contains(own, typ) || part.Get("data") == nil ||
		part.Get("id") != nil && !named || len(part.Without("type", "id", "data")) > 0 || payload.Has("diff") {
		return nil
	}
	return part
}

// finish sets the ends of the turns and of the run, which has a status.
func (b *agentdbgBuilder) finish(status string, endedAt int64) {
	outcome := semconv.EndFinish
	switch status {
	case agentdbgStatusError:
		outcome = semconv.EndError
	case agentdbgStatusRunning:
		outcome = ""
	}
	unfinished := false // the last turn
	for i, t := range b.turns {
		failed := t.trace.Error
		t.trace.Error = ""
		last := i == len(b.turns)-1
		switch {
		case t.failed == agentdbgUnfinished, last && status == agentdbgStatusRunning:
			t.trace.Incomplete = true
		case last && status != agentdbgStatusError:
			t.trace.EndReason = semconv.EndFinish
		case t.failed == agentdbgInterrupted:
			t.trace.EndReason, t.trace.Error = semconv.EndAbort, failed
		case last || t.failed != "":
			t.trace.EndReason, t.trace.Error = semconv.EndError, failed
		case t.prompted:
			t.trace.EndReason = semconv.EndFinish
		}
		unfinished = t.failed == agentdbgUnfinished
		if last && (unfinished || outcome == semconv.EndError) {
			outcome = t.trace.EndReason
		}
		b.finishTurn(t)
	}
	if !unfinished && endedAt != 0 {
		b.s.See(endedAt)
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
		step := &t.steps[i]
		if step.Usage != nil && sum.Total() < agentdbgMaxSum {
			sum, counted = sum.Add(*step.Usage), true
		}
		if step.Model != nil && *step.Model == *t.model {
			step.Model = nil
		}
		differ = differ || *step != session.Step{}
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
		blob := store.Blob{Kind: store.BlobSystemPrompt, Digest: hex.EncodeToString(sum[:]), Body: t.system,
			Exact: !strings.Contains(t.system, agentdbgCutMark)}
		t.m.SetMeta("system_prompt_digest", blob.Digest)
		if !slices.Contains(b.s.Blobs, blob) {
			b.s.Blobs = append(b.s.Blobs, blob)
		}
	}
	t.m.SetMeta("agenttrace", t.trace)
}
