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
	// meta is run.json, nil when there is none.
	meta   rows.Object
	events []event
}

// status is how the run stands: what run.json says, or how the events end.
func (r *run) status() string {
	if s := r.meta.Text("status"); s != "" {
		return s
	}
	if e := r.end(); e != nil {
		if s := e.payload.Text("status"); s != "" {
			return s
		}
		return statusOK
	}
	return statusRunning
}

// end returns the RUN_END that the events end with, or nil.
func (r *run) end() *event {
	if n := len(r.events); n > 0 && r.events[n-1].typ == runEnd {
		return &r.events[n-1]
	}
	return nil
}

// builder makes a session of the events of a run that AgentDbg recorded.
type builder struct {
	run    *run
	s      *rows.Session
	report func(codec.Problem)

	turns  []*turn
	open   *turn          // the assistant's message, nil before its first event
	known  []said         // what was said as the user
	asked  *rows.Message  // the last user message
	before int64          // the time of the event before
	count  int64          // of turns begun
	own    rows.Object    // metadata_json's agentdbg
	system map[string]int // digests to places in blobs
}

// turn is an assistant message being built.
type turn struct {
	m      *rows.Message
	events []rows.Object
	trace  session.MessageTrace
	model  *session.Model
	usage  session.Usage
	usages []json.RawMessage // as stated
	counts bool              // usage holds something
	digest string
	// failed is the type of the error that the events end with, if they do.
	failed string
}

func build(r *run, report func(codec.Problem)) *codec.Session {
	b := &builder{run: r, s: rows.New(r.id, agentName), report: report, system: make(map[string]int)}
	b.head()
	for i := range r.events {
		e := &r.events[i]
		if i == 0 {
			b.before = e.at
		}
		b.s.See(e.at)
		b.event(i, e)
		b.before = e.at
	}
	b.finish()
	return b.s.Finish()
}

// head takes what run.json says.
func (b *builder) head() {
	if b.run.meta == nil {
		return
	}
	b.own.Set("run", b.run.meta)
	for _, key := range []string{"started_at", "ended_at"} {
		if at, ok := parseTime(b.run.meta.Text(key)); ok {
			b.s.See(at)
		}
	}
	if name := b.run.meta.Text("run_name"); name != "" {
		b.s.Row.Title = name
	}
}

func (b *builder) event(i int, e *event) {
	switch {
	case e.typ == runStart && i == 0:
		b.own.Set("start", b.shelf(nil).shorten(e, nil))
		if name := e.payload.Text("run_name"); name != "" && b.s.Row.Title == session.Untitled {
			b.s.Row.Title = name
		}
		if cwd := e.payload.Text("cwd"); cwd != "" {
			b.s.Row.WorkspaceRoot = &cwd
		}
	case e == b.run.end():
		b.own.Set("end", b.shelf(nil).shorten(e, nil))
	case e.typ == llmCall:
		b.llmCall(e)
	case e.typ == toolCall:
		b.toolCall(e)
	default:
		b.data(e)
	}
}

// assistant returns the assistant's message, which the event belongs to.
func (b *builder) assistant(e *event) *turn {
	if b.open == nil {
		index := max(b.count-1, 0)
		b.open = &turn{m: b.s.Message(session.RoleAssistant, e.at), trace: session.MessageTrace{TurnIndex: &index}}
		b.turns = append(b.turns, b.open)
	}
	b.open.failed = "" // it goes on
	return b.open
}

func (b *builder) shelf(m *rows.Message) shelf {
	return shelf{
		runID: b.run.id,
		part: func(index int64) rows.Object {
			if parts := m.Parts(); index >= 0 && index < int64(len(parts)) {
				return parts[index].Data()
			}
			return nil
		},
		prompt: func(id string) json.RawMessage {
			if b.asked == nil || b.asked.Row.ID != id {
				return nil
			}
			return promptOf(b.asked.Last().Data())
		},
	}
}

// promptOf returns the prompt that said only what the part of a user message
// says.
func promptOf(data rows.Object) json.RawMessage {
	if data.Text("type") == "data-prompt" {
		return data.Get("data")
	}
	return data.Get("text")
}

func (b *builder) llmCall(e *event) {
	prompt := e.payload.Get("prompt")
	all, whole := readPrompt(prompt)
	b.prompt(all)
	t := b.assistant(e)
	b.systemPrompt(t, all)

	var places rows.Object
	var kept []string
	if whole && b.asked != nil && string(promptOf(b.asked.Last().Data())) == string(prompt) {
		places.Set("prompt", b.asked.Row.ID)
		kept = append(kept, "prompt")
	}
	first := t.m.Part(rows.Object{{Key: "type", Value: raw("step-start")}}, e.at)
	places.Set("part", first.Row.Index)
	response := e.payload.Get("response")
	for _, data := range responseParts(response) {
		p := t.m.Part(data, e.at)
		if len(response) > 0 && response[0] == '"' {
			places.Set("response", p.Row.Index)
			kept = append(kept, "response")
		}
	}
	if ms, ok := e.duration(); ok {
		for _, p := range t.m.Parts()[first.Row.Index:] {
			p.Row.CreatedAt = e.at - ms
		}
	}
	b.account(t, e)
	t.events = append(t.events, b.shelf(t.m).shorten(e, places, kept...))
}

// prompt adds the messages that say what was not said before.
func (b *builder) prompt(all []said) {
	var asked []said
	last := -1 // the last thing said as the user; what follows is no history
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
		m.Part(all[i].part(), m.Row.CreatedAt)
		if all[i].role == session.RoleUser {
			b.asked, b.open = m, nil
			b.known = append(b.known, all[i])
			b.count++
		}
	}
}

// systemPrompt puts what a prompt says as the system beside the rows.
func (b *builder) systemPrompt(t *turn, all []said) {
	var texts []string
	for i := range all {
		if all[i].role == session.RoleSystem {
			texts = append(texts, all[i].text)
		}
	}
	if texts == nil {
		return
	}
	body := strings.Join(texts, "\n\n")
	sum := sha256.Sum256([]byte(body))
	t.digest = hex.EncodeToString(sum[:])
	if _, has := b.system[t.digest]; !has {
		b.system[t.digest] = len(b.s.Blobs)
		b.s.Blobs = append(b.s.Blobs, store.Blob{
			Kind: store.BlobSystemPrompt, Digest: t.digest, Body: body, Exact: !strings.Contains(body, "__TRUNCATED__"),
		})
	}
}

// account takes what a call says of its model and of what it took.
func (b *builder) account(t *turn, e *event) {
	t.trace.ModelCalls++
	model := session.Model{ModelID: e.payload.Text("model")}
	if provider := e.payload.Text("provider"); provider != "unknown" {
		model.ProviderID = provider
	}
	if model != (session.Model{}) && model != (session.Model{ModelID: "unknown"}) {
		t.model = &model
	}
	if v := e.payload.Get("temperature"); v != nil && string(v) != "null" {
		var f float64
		if json.Unmarshal(v, &f) == nil {
			t.trace.Temperature = &f
		}
	}
	if s := e.payload.Text("stop_reason"); s != "" {
		t.trace.StopReason = s
	}
	if e.payload.Text("status") == statusError {
		text := errorText(e.payload.Get("error"))
		if text == "" {
			text = "the model call failed"
		}
		const maximum = 5
		t.trace.ModelErrors = append(t.trace.ModelErrors, text)
		if over := len(t.trace.ModelErrors) - maximum; over > 0 {
			t.trace.ModelErrors = t.trace.ModelErrors[over:]
		}
	}
	b.usage(t, e)
}

func (b *builder) usage(t *turn, e *event) {
	usage := e.payload.Object("usage")
	if usage == nil {
		return
	}
	t.usages = append(t.usages, usage.JSON())
	for _, c := range []struct {
		key    string
		bucket *int64
	}{{"prompt_tokens", &t.usage.Input}, {"completion_tokens", &t.usage.Output}} {
		v := usage.Get(c.key)
		if v == nil || string(v) == "null" {
			continue
		}
		n, ok := tokens(v)
		if !ok {
			problem := fmt.Sprintf("usage.%s of event %s is %s: the count is unknown", c.key, e.id, cut(string(v)))
			t.trace.Problems = append(t.trace.Problems, problem)
			if string(v) != redactedCount {
				b.report(codec.Problem{Line: e.line, Record: e.id, Reason: problem})
			}
			continue
		}
		*c.bucket = min(*c.bucket+n, maxSum)
		t.counts = true
	}
}

// redactedCount is a count of tokens as AgentDbg writes it unless it is configured
// otherwise, for it takes "prompt_tokens" for a secret. So it is no damage.
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
	name := e.payload.Text("tool_name")
	if name == "" {
		name = e.all.Text("name")
	}
	id := e.id
	if id == "" {
		id = uuid(b.run.id, "call", strconv.Itoa(len(t.m.Parts())), strconv.Itoa(len(t.events)))
	}
	kept := []string{"tool_name", "args"}
	var data rows.Object
	failure := e.payload.Object("error")
	switch kind := failure.Text("error_type"); {
	case e.payload.Text("status") == statusError && kind == unfinished:
		data = toolPart(toolType(name), name, id, session.StateInputAvailable)
		data.Set("input", orNull(e.payload.Get("args")))
	case e.payload.Text("status") == statusError:
		data = toolPart(toolType(name), name, id, session.StateOutputError)
		data.Set("input", orNull(e.payload.Get("args")))
		text := errorText(e.payload.Get("error"))
		if text == "" {
			text = "the call failed"
		}
		if kind == plainError || kind == permissionDenied {
			text = failure.Text("message")
		}
		data.Set("errorText", text)
		if kind == permissionDenied {
			data.Set("toolMetadata", json.RawMessage(`{"agenttrace":{"denied":true}}`))
		}
	default:
		data = toolPart(toolType(name), name, id, session.StateOutputAvailable)
		data.Set("input", orNull(e.payload.Get("args")))
		data.Set("output", orNull(e.payload.Get("result")))
		kept = append(kept, "result")
	}
	p := t.m.Part(data, e.at)
	if ms, ok := e.duration(); ok {
		p.Row.CreatedAt = e.at - ms
	}
	var places rows.Object
	places.Set("part", p.Row.Index)
	t.events = append(t.events, b.shelf(t.m).shorten(e, places, kept...))
}

// data takes an event that is a data part.
func (b *builder) data(e *event) {
	t := b.assistant(e)
	p := t.m.Part(dataPart(dataType(e.typ), e.payload.JSON()), e.at)
	var places rows.Object
	places.Set("part", p.Row.Index)
	places.Set("holds", "data")
	t.events = append(t.events, b.shelf(t.m).shorten(e, places))
	if e.typ == errorEvent {
		t.trace.Error = errorText(e.payload.JSON())
		t.failed = cmp.Or(e.payload.Text("error_type"), plainError)
		if t.failed == plainError || t.failed == interrupted {
			t.trace.Error = e.payload.Text("message")
		}
	}
}

// finish writes what is known of the messages and of the run's end.
func (b *builder) finish() {
	status := b.run.status()
	for i, t := range b.turns {
		failed := t.trace.Error
		t.trace.Error = ""
		last := i == len(b.turns)-1
		switch {
		case t.failed == unfinished:
			t.trace.Incomplete = true
		case t.failed == interrupted && (!last || status == statusError):
			t.trace.EndReason, t.trace.Error = semconv.EndAbort, failed
		case !last && t.failed != "":
			t.trace.EndReason, t.trace.Error = semconv.EndError, failed
		case !last && t.trace.ModelCalls == 0: // what came before a prompt: no model answered it
		case !last:
			t.trace.EndReason = semconv.EndFinish
		case status == statusRunning:
			t.trace.Incomplete = true
		case status == statusError:
			t.trace.EndReason, t.trace.Error = semconv.EndError, failed
		default:
			t.trace.EndReason = semconv.EndFinish
		}
		b.finishTurn(t)
	}
	ended := ""
	if len(b.turns) > 0 {
		ended = b.turns[len(b.turns)-1].failed
	}
	switch {
	case status == statusRunning, ended == unfinished:
	case status == statusError && ended == interrupted:
		b.s.SetMeta("agenttrace", rows.Object{{Key: "outcome", Value: raw(semconv.EndAbort)}})
	case status == statusError:
		b.s.SetMeta("agenttrace", rows.Object{{Key: "outcome", Value: raw(semconv.EndError)}})
	default:
		b.s.SetMeta("agenttrace", rows.Object{{Key: "outcome", Value: raw(semconv.EndFinish)}})
	}
	b.s.SetMeta(metaKey, b.own)
}

func (b *builder) finishTurn(t *turn) {
	if t.model != nil {
		t.m.SetMeta("model", t.model)
		b.s.Row.ModelJSON = new(string(raw(t.model)))
	}
	if t.counts {
		t.m.SetMeta("usage", t.usage)
		t.trace.UsageBasis = semconv.BasisInclusive
	}
	if len(t.usages) == 1 {
		t.trace.UsageRaw = t.usages[0]
	}
	if t.digest != "" {
		t.m.SetMeta("system_prompt_digest", t.digest)
	}
	t.m.SetMeta("agenttrace", t.trace)
	if len(t.events) > 0 {
		t.m.SetMeta(metaKey, rows.Object{{Key: "events", Value: raw(slices.Clip(t.events))}})
	}
}
