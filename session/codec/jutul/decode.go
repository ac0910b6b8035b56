package jutul

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// decode builds the session of the events that were added. Payloads are dropped as they
// become parts, for a trace may be large.
func (p *parser) decode(report func(codec.Problem)) *codec.Session {
	for _, problem := range p.problems {
		report(problem)
	}
	d := &decoder{report: report, calls: make(map[string]*call), requests: make(map[string]*request)}
	d.b = rows.New(p.sessionID(), agentName)
	for i := range p.parsed {
		d.record = fmt.Sprintf("event %d", p.parsed[i].id)
		d.event(&p.parsed[i])
		p.parsed[i] = parsedEvent{}
	}
	d.finish()
	return d.b.Finish()
}

// decoder holds what an event may refer to.
type decoder struct {
	b      *rows.Session
	report func(codec.Problem)
	record string // what is being read

	turns     int64
	assistant *rows.Message // the turn's, nil until something is said
	usage     map[*rows.Message]*usage
	calls     map[string]*call // those without a result, by id
	placed    []*call          // all
	requests  map[string]*request
	asked     []*request
	lifecycle []json.RawMessage
}

// parsedEvent is an event with its payload read. payload is nil when it is no
// object: then value is it, or its text as a JSON string.
type parsedEvent struct {
	id      int64
	at      int64
	kind    string
	payload rows.Object
	value   json.RawMessage
}

type usage struct {
	session.Usage
	calls int64
}

// call is a tool call and what it came from.
type call struct {
	part *rows.Part
	id   string
	name string
	args json.RawMessage
	meta rows.Object // callProviderMetadata.jutul
}

// request is a question to the user, with the decisions that it asks for.
type request struct {
	id        string
	at        int64
	message   *rows.Message
	actions   []rows.Object
	decisions []store.Decision
}

func (d *decoder) problem(format string, args ...any) {
	d.report(codec.Problem{Record: d.record, Reason: fmt.Sprintf(format, args...)})
}

// parser reads the payloads of events.
type parser struct {
	parsed   []parsedEvent
	first    event
	problems []codec.Problem
}

// add takes the next event.
func (p *parser) add(e event) {
	problem := func(format string, args ...any) {
		p.problems = append(p.problems, codec.Problem{Record: fmt.Sprintf("event %d", e.id),
			Reason: fmt.Sprintf(format, args...)})
	}
	last := int64(0)
	if n := len(p.parsed); n > 0 {
		last = p.parsed[n-1].at
	} else {
		p.first = e
	}
	parsed := parsedEvent{id: e.id, kind: strings.ToValidUTF8(e.kind, "\uFFFD")}
	var err error
	if parsed.at, err = parseTime(e.timestamp); err != nil {
		problem("%v: taken as that of the event before", err)
		parsed.at = last
	}
	text := strings.ToValidUTF8(e.payload, "\uFFFD")
	o, odd, err := parsePayload(text)
	if odd {
		problem("payload has NaN or Infinity, which JSON has not: kept as strings")
	}
	if err != nil {
		if parsed.value, err = rows.Value([]byte(text)); err != nil {
			problem("payload is not JSON: kept as text")
			parsed.value = rows.Raw(text)
		}
	} else {
		parsed.payload = o
	}
	p.parsed = append(p.parsed, parsed)
}

// sessionID returns the id that the events say, or one derived from the first of
// them.
func (p *parser) sessionID() string {
	for i := range p.parsed {
		switch p.parsed[i].kind {
		case kindStart, kindResume, kindTitle, kindEnd:
			if id := p.parsed[i].payload.Text("session_id"); id != "" {
				return id
			}
		}
	}
	if len(p.parsed) == 0 {
		return spans.DeriveID(spans.PrefixSession, 0, agentName)
	}
	return spans.DeriveID(spans.PrefixSession, p.parsed[0].at, agentName, p.first.timestamp, p.first.kind,
		p.first.payload)
}

// readers are the functions that read the events of a kind. Events of other kinds, and
// those whose payload is not an object, are kept as they are.
var readers = map[string]func(*decoder, *parsedEvent){
	kindStart: (*decoder).session, kindResume: (*decoder).session, kindTitle: (*decoder).session,
	kindEnd:        (*decoder).session,
	kindUser:       (*decoder).user,
	kindAssistant:  func(d *decoder, e *parsedEvent) { d.text(e, "text") },
	kindReasoning:  func(d *decoder, e *parsedEvent) { d.text(e, "reasoning") },
	kindUsage:      (*decoder).modelUsage,
	kindCall:       (*decoder).call,
	kindResult:     (*decoder).result,
	kindRequest:    (*decoder).request,
	kindResponse:   (*decoder).response,
	kindCompaction: (*decoder).compaction,
}

func (d *decoder) event(e *parsedEvent) {
	d.b.See(e.at)
	if read := readers[e.kind]; read != nil && e.payload != nil {
		read(d, e)
		return
	}
	d.verbatim(e)
}

// current returns the turn's assistant message.
func (d *decoder) current(at int64) *rows.Message {
	if d.assistant == nil {
		d.assistant = d.message(session.RoleAssistant, at)
		if d.turns > 0 {
			d.assistant.SetTrace("turn_index", d.turns-1)
		}
	}
	return d.assistant
}

func (d *decoder) message(role string, at int64) *rows.Message {
	m := d.b.Message(role, at)
	if m.Row.CreatedAt != at {
		d.problem("the clock stepped back: the message has the time of the one before")
	}
	return m
}

func (d *decoder) part(data rows.Object, at int64) *rows.Part { return d.current(at).Part(data, at) }

// verbatim keeps an event as a part of its kind.
func (d *decoder) verbatim(e *parsedEvent) *rows.Part { return d.part(e.data(), e.at) }

// data is the part of the event's kind.
func (e *parsedEvent) data() rows.Object {
	if e.payload != nil {
		e.value = e.payload.JSON()
	}
	return rows.DataPart("data-"+cmp.Or(e.kind, kindNone), e.value)
}

func (d *decoder) session(e *parsedEvent) {
	if e.kind == kindTitle {
		d.b.Row.Title = cmp.Or(e.payload.Text("title"), d.b.Row.Title)
	}
	if simulator := e.payload.Get("simulator"); simulator != nil && d.b.Meta("jutul").Get("simulator") == nil {
		o := d.b.Meta("jutul")
		o.Set("simulator", simulator)
		d.b.SetMeta("jutul", o)
	}
	d.lifecycle = append(d.lifecycle, rows.Of("kind", e.kind, "at", e.at, "payload", e.payload).JSON())
}

// textData is the part of a message event.
func (d *decoder) textData(e *parsedEvent, typ string) rows.Object {
	content, ok := rows.Text(e.payload.Get("content"))
	if !ok {
		d.problem("content is not text: kept as data")
		return e.data()
	}
	data := rows.TextPart(typ, content)
	data.Add(rows.NonEmpty("providerMetadata", rows.NonEmpty("jutul", e.payload.Without("content"))))
	return data
}

func (d *decoder) user(e *parsedEvent) {
	d.turns, d.assistant = d.turns+1, nil
	d.message(session.RoleUser, e.at).Part(d.textData(e, "text"), e.at)
}

func (d *decoder) text(e *parsedEvent, typ string) { d.part(d.textData(e, typ), e.at) }

// maxTokens bounds a count, so that no sum of counts overflows.
const maxTokens = 1 << 40

// count is a number of tokens, 0 if there is none. known reports that it can be one.
func count(o rows.Object, key string) (n int64, known bool) {
	v := o.Get(key)
	if v == nil || string(v) == "null" {
		return 0, true
	}
	var f float64
	if json.Unmarshal(v, &f) != nil || f < 0 || f > maxTokens {
		return 0, false
	}
	return int64(f), true
}

// modelUsage adds up what LangChain counts: input_tokens includes what was read
// from and written to the cache, output_tokens includes reasoning. Where one of the two
// cannot be read, what the call used is unknown.
func (d *decoder) modelUsage(e *parsedEvent) {
	p := d.verbatim(e)
	input, output := e.payload.Object("input_token_details"), e.payload.Object("output_token_details")
	in, known := count(e.payload, "input_tokens")
	out, knownOut := count(e.payload, "output_tokens")
	if !known || !knownOut || !e.payload.Has("input_tokens") && !e.payload.Has("output_tokens") {
		return
	}
	var u session.Usage
	u.Reasoning, _ = count(output, "reasoning")
	u.CacheRead, _ = count(input, "cache_read")
	u.CacheWrite, _ = count(input, "cache_creation")
	u.Input, u.Output = max(0, in-u.CacheRead-u.CacheWrite), max(0, out-u.Reasoning)
	if d.usage == nil {
		d.usage = make(map[*rows.Message]*usage)
	}
	sum := d.usage[p.Message()]
	if sum == nil {
		sum = new(usage)
		d.usage[p.Message()] = sum
	}
	sum.Usage = sum.Add(u)
	sum.calls++
}

func withMeta(data, meta rows.Object) rows.Object {
	data = data.Without("callProviderMetadata")
	data.Add(rows.NonEmpty("callProviderMetadata", rows.NonEmpty("jutul", meta)))
	return data
}

func (d *decoder) call(e *parsedEvent) {
	id, isText := rows.Text(e.payload.Get("id"))
	c := &call{id: id, name: e.payload.Text("name"), args: e.payload.Get("args")}
	c.meta.Add(rows.NonEmpty("call", e.payload.Without("id", "name", "args")))
	switch open := d.calls[id]; {
	case open != nil && open.repeats(c):
		// A call that waited for approval is written again when it goes on.
		var again []int64
		_ = json.Unmarshal(open.meta.Get("repeated_at"), &again) // written below
		open.meta.Set("repeated_at", append(again, e.at))
		open.part.Set(withMeta(open.part.Data(), open.meta))
		open.part.Touch(e.at)
	case open != nil:
		d.problem("call %q is open and differs: kept as data", id)
		d.verbatim(e)
	case !isText || c.name == "" || c.args == nil:
		d.problem("call lacks an id, a name or arguments: kept as data")
		d.verbatim(e)
	default:
		input := c.args
		if o := e.payload.Object("args"); len(o) == 1 && o.Text("input") == codec.WithheldText {
			input = o.Get("input")
		}
		data := rows.ToolPart(c.name, id, session.StateInputAvailable)
		data.Set("input", input)
		c.part = d.part(withMeta(data, c.meta), e.at)
		d.calls[id] = c
		d.placed = append(d.placed, c)
	}
}

// repeats reports whether another event is that of the same call.
func (c *call) repeats(again *call) bool {
	return c.name == again.name && string(c.args) == string(again.args) &&
		string(c.meta.Object("call").JSON()) == string(again.meta.Object("call").JSON())
}

func (d *decoder) result(e *parsedEvent) {
	id, hasID := rows.Text(e.payload.Get("tool_call_id"))
	c := d.calls[id]
	content, isText := rows.Text(e.payload.Get("content"))
	if c == nil || !hasID || !isText {
		d.problem("result of no open call, or not text: kept as data")
		d.verbatim(e)
		return
	}
	delete(d.calls, id)
	status := e.payload.Text("status")
	rest := e.payload.Without("tool_call_id", "content")
	if e.payload.Text("name") == c.name {
		rest = rest.Without("name")
	}
	if status == "success" || status == "error" {
		rest = rest.Without("status")
	}
	c.meta.Add(rows.NonEmpty("result", rest))
	data := c.part.Data().Without("callProviderMetadata")
	if status == "error" {
		data.Set("state", session.StateOutputError)
		data.Set("errorText", content)
	} else {
		data.Set("state", session.StateOutputAvailable)
		data.Set("output", content)
	}
	c.part.Set(withMeta(data, c.meta))
	c.part.Touch(e.at)
}

func (d *decoder) request(e *parsedEvent) {
	p := d.verbatim(e)
	r := &request{id: e.payload.Text("interrupt_id"), at: e.at, message: p.Message()}
	for i, raw := range rows.Elements(e.payload.Object("value").Get("action_requests")) {
		action, err := rows.Parse(raw)
		if err != nil {
			d.problem("action_requests[%d] is not an object: no decision made of it", i)
			continue
		}
		r.actions = append(r.actions, action)
		r.decisions = append(r.decisions, store.Decision{
			ID:        spans.DeriveID(spans.PrefixPermission, e.at, p.Row.ID, fmt.Sprint(i)),
			SessionID: d.b.Row.ID, MessageID: p.Row.MessageID,
			ToolID: action.Text("name"), Action: "ask", Outcome: "pending", DecidedAt: e.at,
		})
	}
	d.asked = append(d.asked, r)
	d.requests[r.id] = r
}

func (d *decoder) response(e *parsedEvent) {
	d.verbatim(e)
	r := d.requests[e.payload.Text("interrupt_id")]
	if r == nil {
		d.problem("answers no request that is there")
		return
	}
	answers := rows.Elements(e.payload.Object("payload").Get("decisions"))
	for i := range r.decisions {
		if i >= len(answers) {
			break
		}
		answer, err := rows.Parse(answers[i])
		if err != nil {
			d.problem("decisions[%d] is not an object", i)
			continue
		}
		o := &r.decisions[i]
		switch typ := answer.Text("type"); typ {
		case "approve":
			o.Outcome, o.Reply = "allowed", "once"
		case "edit":
			o.Outcome, o.Reply, o.Reason = "allowed", "once", "edited"
		case "reject", "respond", "response":
			o.Outcome, o.Reply, o.Reason = "denied", "reject", answer.Text("message")
		default:
			d.problem("decisions[%d] has type %q: its outcome is unknown", i, typ)
			continue
		}
		o.WaitedMS, o.DecidedAt = new(max(0, e.at-r.at)), e.at
	}
}

// compaction gives a compaction an assistant message of its own, as the agent
// guide wants it; what follows in the turn is in another. A trace of jutul's own
// does not have the summary.
func (d *decoder) compaction(e *parsedEvent) {
	d.message(session.RoleAssistant, e.at).Part(rows.DataPart(session.TypeCompaction, rows.Of(
		"summary", e.payload.Text("summary"), "tail_start_id", nil, "auto", string(e.payload.Get("manual")) != "true",
		"summary_tokens", 0, "jutul", e.payload)), e.at)
	d.assistant = nil
}

// finish writes what takes more than one event to know.
func (d *decoder) finish() {
	for m, u := range d.usage {
		m.SetMeta("usage", u.Usage)
		m.SetTrace("model_calls", u.calls)
		m.SetTrace("usage_basis", "inclusive")
	}
	// A session has the key, whatever is under it, when it came from a trace.
	o := d.b.Meta("jutul")
	if o == nil {
		o = rows.Object{}
	}
	if d.lifecycle != nil {
		o.Set("session_events", slices.Concat(rows.Elements(o.Get("session_events")), d.lifecycle))
	}
	d.b.SetMeta("jutul", o)
	for _, r := range d.asked {
		for i := range r.decisions {
			c := d.link(&r.decisions[i], r, r.actions[i])
			if c != nil && !strings.HasPrefix(r.id, spans.PrefixPermission) { // ours has a result where there is one
				c.reject(&r.decisions[i])
			}
		}
		d.b.Decisions = append(d.b.Decisions, r.decisions...)
	}
}

// link ties a decision to the one call of the same name and arguments in its
// message, which it returns. The trace itself does not state which call was asked about.
func (d *decoder) link(o *store.Decision, r *request, action rows.Object) *call {
	var found *call
	for _, c := range d.placed {
		if c.part.Message() == r.message && c.name == o.ToolID && string(c.args) == string(action.Get("args")) {
			if found != nil {
				return nil
			}
			found = c
		}
	}
	if found != nil {
		o.ToolCallID, o.PartID = found.id, found.part.Row.ID
	}
	return found
}

// reject ends a call that a person rejected: it never runs, so the trace has no result of it.
func (c *call) reject(o *store.Decision) {
	data := c.part.Data()
	if o.Outcome != "denied" {
		return
	}
	if data.Text("state") == session.StateInputAvailable {
		data.Set("state", session.StateOutputError)
		data.Set("errorText", cmp.Or(o.Reason, "the call was rejected"))
	}
	if data.Text("state") == session.StateOutputError {
		data.SetToolTrace("denied", true)
	}
	c.part.Set(data)
	c.part.Touch(o.DecidedAt)
}
