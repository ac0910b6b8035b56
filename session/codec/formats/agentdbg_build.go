package formats

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
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
	open     *agentdbgTurn // the assistant's message, nil before its first event
	known    []string      // what users said, as JSON
	prompted bool          // a user said something since the last turn
	before   int64         // the time of the event before
}

// agentdbgTurn is an assistant message being built.
type agentdbgTurn struct {
	m        *rows.Message
	trace    session.MessageTrace
	model    *session.Model
	steps    []session.Step
	usage    rows.Object // of the last call, as the run has it
	system   string      // its system prompt
	prompted bool        // it answers a user
	failed   string      // the type of the error that the events end with, if they do
}

func agentdbgBuild(r *agentdbgRun, report func(codec.Problem)) *codec.Session {
	slices.SortStableFunc(r.events, func(a, b agentdbgEvent) int { return cmp.Compare(a.order, b.order) })
	status, agent, n := cmp.Or(r.meta.Text("status"), agentdbgStatusRunning), "agentdbg", len(r.events)
	if r.meta.Has("trace_id") || n > 0 && r.events[0].span {
		agent = "maida"
	}
	ended := n > 0 && r.events[n-1].EventType == agentdbgRunEnd
	if ended && r.meta.Text("status") == "" {
		status = cmp.Or(r.events[n-1].Payload.Text("status"), agentdbgStatusOK)
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
		b.before = r.events[0].from()
	}
	var endedAt int64
	if at, ok := rows.ParseTime(r.meta.Text("ended_at")); ok {
		endedAt = at
	}
	for i := range r.events {
		e := r.events[i]
		r.events[i] = agentdbgEvent{} // a run may be large
		if ended && i == n-1 {
			endedAt = max(endedAt, e.at)
			break
		}
		b.event(&e, i == 0)
		if e.EventType != agentdbgErrorEvent || e.Payload.Text("error_type") != agentdbgUnfinished {
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
	case e.EventType == agentdbgRunStart && first:
		if b.s.Row.Title == session.Untitled {
			b.s.Row.Title = cmp.Or(e.Payload.Text("run_name"), session.Untitled)
		}
		rows.SetText(&b.s.Row.WorkspaceRoot, e.Payload.Text("cwd"))
	case e.EventType == agentdbgLlmCall:
		b.llmCall(e)
	case e.EventType == agentdbgToolCall:
		b.toolCall(e)
	default:
		b.data(e)
	}
}

// assistant returns the assistant's message to which the event belongs.
func (b *agentdbgBuilder) assistant(e *agentdbgEvent) *agentdbgTurn {
	if b.open == nil {
		b.open = &agentdbgTurn{m: b.s.Message(session.RoleAssistant, e.at), prompted: b.prompted}
		b.open.trace.TurnIndex = new(int64(max(len(b.known)-1, 0)))
		b.prompted = false
		b.turns = append(b.turns, b.open)
	}
	b.open.failed = "" // it goes on
	return b.open
}

func (b *agentdbgBuilder) llmCall(e *agentdbgEvent) {
	system := b.prompt(agentdbgReadPrompt(e.Payload.Get("prompt")))
	t := b.assistant(e)
	t.system = cmp.Or(system, t.system)
	response := e.Payload.Get("response")
	parts := agentdbgResponseParts(response, 0)
	if parts == nil && e.Payload.Has("response") {
		parts = []rows.Object{rows.DataPart(agentdbgDataResponse, response)}
	}
	for _, data := range append([]rows.Object{rows.Of("type", "step-start")}, parts...) {
		t.m.Part(data, e.at).Row.CreatedAt = e.from()
	}
	b.account(t, e)
}

// prompt adds the messages that no prompt had before, and returns the system prompt. The longest beginning of the
// prompt's user messages that is an end of the known ones is known: so neither a prompt that repeats the whole history
// nor one that lost its start repeats a message.
func (b *agentdbgBuilder) prompt(all []agentdbgSaid) (system string) {
	var asked, systems []string
	last := -1 // the last user message; what follows is no history
	for i, said := range all {
		switch said.role {
		case session.RoleUser:
			asked, last = append(asked, string(rows.Raw(said.parts))), i
		case session.RoleSystem:
			var texts []string
			for _, p := range said.parts {
				if p.Text("type") == "text" {
					texts = append(texts, p.Text("text"))
				}
			}
			if text := strings.Join(texts, "\n"); text != "" {
				systems = append(systems, text)
			}
		}
	}
	old := min(len(b.known), len(asked))
	for !slices.Equal(b.known[len(b.known)-old:], asked[:old]) {
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
			b.known = append(b.known, asked[n-1])
		}
	}
	return strings.Join(systems, "\n\n")
}

// account takes a call's model, its usage, and how it ended.
func (b *agentdbgBuilder) account(t *agentdbgTurn, e *agentdbgEvent) {
	t.trace.ModelCalls++
	step := session.Step{StopReason: e.Payload.Text("stop_reason")}
	model := session.Model{ModelID: e.Payload.Text("model")}
	if provider := e.Payload.Text("provider"); provider != agentdbgUnknown {
		model.ProviderID = provider
	}
	if model != (session.Model{}) && model != (session.Model{ModelID: agentdbgUnknown}) {
		t.model, step.Model = &model, &model
	}
	if temperature, err := strconv.ParseFloat(string(e.Payload.Get("temperature")), 64); err == nil {
		t.trace.Temperature = &temperature
	}
	t.trace.StopReason = cmp.Or(step.StopReason, t.trace.StopReason)
	if e.Payload.Text("status") == agentdbgStatusError {
		const maximum = 5
		text := cmp.Or(agentdbgErrorText(e.Payload.Get("error")), "the model call failed")
		t.trace.ModelErrors = append(t.trace.ModelErrors, text)
		t.trace.ModelErrors = t.trace.ModelErrors[max(0, len(t.trace.ModelErrors)-maximum):]
	}
	if usage := e.Payload.Object("usage"); usage != nil {
		t.usage = usage
		step.Usage = b.usage(t, e, usage)
	}
	t.steps = append(t.steps, step)
}

// usage reads the counts of a call; nil if it has none.
func (b *agentdbgBuilder) usage(t *agentdbgTurn, e *agentdbgEvent, stated rows.Object) (usage *session.Usage) {
	var counts session.Usage
	buckets := map[string]*int64{"prompt_tokens": &counts.Input, "completion_tokens": &counts.Output}
	for _, f := range stated.Only("prompt_tokens", "completion_tokens") {
		number := strings.TrimSuffix(string(f.Value), ".0") // it may be written as a float
		if n, err := strconv.ParseInt(number, 10, 64); err == nil && n >= 0 && n <= agentdbgMaxTokens {
			*buckets[f.Key], usage = n, &counts
			continue
		}
		problem := fmt.Sprintf("usage.%s of event %s is %.40s: the count is unknown", f.Key, e.EventID, f.Value)
		t.trace.Problems = append(t.trace.Problems, problem)
		// By default AgentDbg itself writes this, because it takes "prompt_tokens" for a secret: so it is no damage.
		if string(f.Value) != `"__REDACTED__"` {
			b.report(codec.Problem{Line: e.line, Reason: problem})
		}
	}
	return usage
}

func (b *agentdbgBuilder) toolCall(e *agentdbgEvent) {
	t := b.assistant(e)
	id := cmp.Or(e.EventID, agentdbgUUID(b.s.Row.ID, "call", fmt.Sprint(len(b.turns)), fmt.Sprint(len(t.m.Parts()))))
	p := t.m.Call(id, cmp.Or(e.Payload.Text("tool_name"), e.Name), e.Payload.Get("args"), e.at)
	p.Row.CreatedAt = e.from()
	kind := e.Payload.Object("error").Text("error_type")
	switch failed := e.Payload.Text("status") == agentdbgStatusError; {
	case !failed:
		p.Result(e.Payload.Get("result"), false)
	case kind != agentdbgUnfinished:
		p.Result(rows.Raw(cmp.Or(agentdbgErrorText(e.Payload.Get("error")), "the call failed")), true)
		if data := p.Data(); kind == agentdbgPermissionDenied {
			data.SetToolTrace("denied", true)
			p.Set(data)
		}
	}
}

// data takes an event that is a data part, or the end of a turn.
func (b *agentdbgBuilder) data(e *agentdbgEvent) {
	t := b.assistant(e)
	if e.EventType == agentdbgErrorEvent {
		t.trace.Error = agentdbgErrorText(e.Payload.JSON())
		t.failed = cmp.Or(e.Payload.Text("error_type"), agentdbgPlainError)
		if t.failed == agentdbgInterrupted || t.failed == agentdbgUnfinished {
			if b.open = nil; t.failed == agentdbgInterrupted {
				t.m.Touch(e.at)
			}
			return
		}
	}
	typ, known := agentdbgDataTypes[e.EventType]
	if !known { // a name of its own, so that it is never taken for a part with another meaning
		typ = "data-event-" + agentdbgNotWord.ReplaceAllString(strings.ToLower(e.EventType), "-")
	}
	data := rows.DataPart(typ, e.Payload.JSON())
	if part := agentdbgStatePart(e.Payload); part != nil && e.EventType == agentdbgStateUpdate {
		data = part
	}
	t.m.Part(data, e.at)
}

var agentdbgNotWord = regexp.MustCompile("[^a-z0-9]")

// agentdbgStatePart returns the data part that a STATE_UPDATE has as its state, or nil. A part with a meaning of its
// own, such as a compaction, is not read from a state.
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
	end, unfinished := semconv.EndFinish, false // of the last turn
	switch status {
	case agentdbgStatusError:
		end = semconv.EndError
	case agentdbgStatusRunning:
		end = ""
	}
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
		if last && (unfinished || end == semconv.EndError) {
			end = t.trace.EndReason
		}
		b.finishTurn(t)
	}
	if !unfinished && endedAt != 0 {
		b.s.See(endedAt)
	}
	if end != "" {
		b.s.SetMeta("agenttrace", rows.Of("outcome", end))
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
		if step.Usage != nil {
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
	case len(t.steps) == 1 && t.usage != nil:
		t.trace.UsageRaw = t.usage.JSON()
	case len(t.steps) > 1 && differ:
		t.trace.Steps = t.steps
	}
	if t.system != "" {
		sum := sha256.Sum256([]byte(t.system))
		blob := store.Blob{Kind: store.BlobSystemPrompt, Digest: hex.EncodeToString(sum[:]), Body: t.system,
			Exact: !strings.Contains(t.system, "__TRUNCATED__")} // which ends a text that AgentDbg cut
		t.m.SetMeta("system_prompt_digest", blob.Digest)
		if !slices.Contains(b.s.Blobs, blob) {
			b.s.Blobs = append(b.s.Blobs, blob)
		}
	}
	t.m.SetMeta("agenttrace", t.trace)
}
