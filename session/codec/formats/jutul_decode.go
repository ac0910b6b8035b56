package formats

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// jutulDecode builds the session of the events. Payloads are dropped as they become parts, for a trace may be large.
func jutulDecode(events []jutulEvent, report func(codec.Problem)) *codec.Session {
	d := &jutulDecoder{Reporter: rows.Reporter{Report: report}, b: rows.New(jutulSessionID(events), jutulAgentName),
		calls: make(map[string]*rows.Part), requests: make(map[string]*jutulRequest)}
	for i := range events {
		d.event(d.parse(&events[i]))
	}
	d.finish()
	return d.b.Finish()
}

// jutulSessionID returns the id that the events declare, or one derived from the first of them.
func jutulSessionID(events []jutulEvent) string {
	for i := range events {
		if jutulIsLifecycle(events[i].kind) {
			o, _, _ := rows.ParsePython([]byte(events[i].payload), strconv.Quote) // of another payload there is none
			if id := o.Text("session_id"); id != "" {
				return id
			}
		}
	}
	if len(events) == 0 {
		return spans.DeriveID(spans.PrefixSession, 0, jutulAgentName)
	}
	first := &events[0]
	at, _ := isoTime(first.timestamp) // otherwise the beginning of time
	return spans.DeriveID(spans.PrefixSession, at, jutulAgentName, first.timestamp, first.kind, first.payload)
}

// jutulDecoder holds what an event may refer to.
type jutulDecoder struct {
	rows.Reporter
	b    *rows.Session
	last int64 // the time of the event before

	users     int64                 // messages
	calls     map[string]*rows.Part // those without a result, by id
	placed    []*rows.Part          // all
	requests  map[string]*jutulRequest
	asked     []*jutulRequest
	simulator json.RawMessage
	lifecycle []rows.Object
}

// jutulParsedEvent is an event with its payload read. value is all of the payload, or its text as a JSON string, and
// payload is nil when it is no object.
type jutulParsedEvent struct {
	at      int64
	kind    string
	payload rows.Object
	value   json.RawMessage
}

// jutulRequest is a question to the user, with the decisions that it asks for.
type jutulRequest struct {
	id        string
	at        int64
	message   *rows.Message
	args      []json.RawMessage // of the calls that it asks about
	decisions []store.Decision
}

// parse reads the time and the payload of an event.
func (d *jutulDecoder) parse(e *jutulEvent) *jutulParsedEvent {
	d.Place.Record = fmt.Sprintf("event %d", e.id)
	if at, ok := isoTime(e.timestamp); ok {
		d.last = at
	} else {
		d.Problem("timestamp %.60q is no ISO 8601 time: taken as that of the event before", e.timestamp)
	}
	parsed := &jutulParsedEvent{at: d.last, kind: strings.ToValidUTF8(e.kind, "\uFFFD")}
	text := strings.ToValidUTF8(e.payload, "\uFFFD")
	// Python writes numbers that JSON does not have. They become strings, which its float reads as the same numbers.
	o, odd, err := rows.ParsePython([]byte(text), strconv.Quote)
	if odd {
		d.Problem("payload has NaN or Infinity, which JSON has not: kept as strings")
	}
	if err == nil {
		parsed.payload, parsed.value = o, o.JSON()
	} else if parsed.value, err = rows.Value([]byte(text)); err != nil {
		d.Problem("payload is not JSON: kept as text")
		parsed.value = rows.Raw(text)
	}
	return parsed
}

// event reads an event. Those of other kinds, and those whose payload is not an object, are kept as they are.
func (d *jutulDecoder) event(e *jutulParsedEvent) {
	d.b.See(e.at)
	kind := e.kind
	if e.payload == nil {
		kind = jutulKindNone
	}
	switch kind {
	case jutulKindStart, jutulKindResume, jutulKindTitle, jutulKindEnd:
		if e.kind == jutulKindTitle {
			d.b.Row.Title = cmp.Or(e.payload.Text("title"), d.b.Row.Title)
		}
		if d.simulator == nil {
			d.simulator = e.payload.Get("simulator")
		}
		d.lifecycle = append(d.lifecycle, rows.Of("kind", e.kind, "at", e.at, "payload", e.payload))
	case jutulKindUser:
		d.users++
		d.b.Message(session.RoleUser, e.at).Part(d.textData(e, "text"), e.at)
	case jutulKindAssistant:
		d.answer(e.at).Part(d.textData(e, "text"), e.at)
	case jutulKindReasoning:
		d.answer(e.at).Part(d.textData(e, "reasoning"), e.at)
	case jutulKindUsage:
		d.modelUsage(e)
	case jutulKindCall:
		d.call(e)
	case jutulKindResult:
		d.result(e)
	case jutulKindRequest:
		d.request(e)
	case jutulKindResponse:
		d.response(e)
	case jutulKindCompaction:
		// It is an assistant message of its own, as the agent guide wants it; what follows in the turn is in another. A
		// trace of jutul's own does not have the summary.
		part := rows.CompactionPart(e.payload.Text("summary"), !e.payload.True("manual"))
		d.b.Message(session.RoleAssistant, e.at).Part(part, e.at).SetInner("jutul", e.payload)
	default:
		d.verbatim(e)
	}
}

// answer returns the turn's assistant message.
func (d *jutulDecoder) answer(at int64) *rows.Answer {
	a, begun := d.b.Answer(at)
	if begun && d.users > 0 {
		a.SetTrace("turn_index", d.users-1)
	}
	return a
}

// verbatim keeps an event as a part of its kind.
func (d *jutulDecoder) verbatim(e *jutulParsedEvent) *rows.Part {
	return d.answer(e.at).Part(e.data(), e.at)
}

// odd keeps an event that is not what its kind promises.
func (d *jutulDecoder) odd(e *jutulParsedEvent, what string, args ...any) {
	d.Problem(what+": kept as data", args...)
	d.verbatim(e)
}

// data is the part of the event's kind.
func (e *jutulParsedEvent) data() rows.Object {
	return rows.DataPart("data-"+cmp.Or(e.kind, jutulKindNone), e.value)
}

// textData is the part of a message event.
func (d *jutulDecoder) textData(e *jutulParsedEvent, typ string) rows.Object {
	content, ok := rows.Text(e.payload.Get("content"))
	if !ok {
		d.Problem("content is not text: kept as data")
		return e.data()
	}
	return rows.TextPart(typ, content)
}

// modelUsage adds up what LangChain counts: input_tokens includes what was read from and written to the cache,
// output_tokens includes reasoning. Where one of them cannot be read, what the call used is unknown.
func (d *jutulDecoder) modelUsage(e *jutulParsedEvent) {
	d.verbatim(e)
	known := e.payload.Has("input_tokens") || e.payload.Has("output_tokens")
	count := func(o rows.Object, key string) int64 {
		n, ok := rows.Count(o.Get(key))
		known = known && (ok || !o.Has(key))
		return n
	}
	input, output := e.payload.Object("input_token_details"), e.payload.Object("output_token_details")
	u := session.Usage{Input: count(e.payload, "input_tokens"), Output: count(e.payload, "output_tokens"),
		Reasoning: count(output, "reasoning"), CacheRead: count(input, "cache_read"),
		CacheWrite: count(input, "cache_creation")}
	if !known {
		return
	}
	u.Input, u.Output = max(0, u.Input-u.CacheRead-u.CacheWrite), max(0, u.Output-u.Reasoning)
	a := d.answer(e.at)
	a.Usage, a.Calls, a.Basis = new(session.Deref(a.Usage).Add(u)), a.Calls+1, semconv.BasisInclusive
}

func (d *jutulDecoder) call(e *jutulParsedEvent) {
	id, isText := rows.Text(e.payload.Get("id"))
	name, args := e.payload.Text("name"), e.payload.Get("args")
	switch open := d.calls[id]; {
	case open != nil && jutulCalls(open, name, args):
		open.Touch(e.at) // a call that waited for approval is written again when it goes on
	case open != nil:
		d.odd(e, "call %q is open and differs", id)
	case !isText || name == "" || args == nil:
		d.odd(e, "call lacks an id, a name or arguments")
	default:
		if string(args) == string(rows.Of("input", codec.WithheldText).JSON()) {
			args = rows.Raw(codec.WithheldText)
		}
		d.calls[id] = d.answer(e.at).Call(id, name, args, e.at)
		d.placed = append(d.placed, d.calls[id])
	}
}

// jutulCalls reports whether a part is a call of a tool with arguments.
func jutulCalls(p *rows.Part, name string, args json.RawMessage) bool {
	return rows.ToolName(p.Data()) == name && string(p.Data().Get("input")) == string(args)
}

func (d *jutulDecoder) result(e *jutulParsedEvent) {
	id, hasID := rows.Text(e.payload.Get("tool_call_id"))
	p := d.calls[id]
	content, isText := rows.Text(e.payload.Get("content"))
	if p == nil || !hasID || !isText {
		d.odd(e, "result of no open call, or not text")
		return
	}
	delete(d.calls, id)
	p.Result(rows.Raw(content), e.payload.Text("status") == "error")
	p.Touch(e.at)
}

func (d *jutulDecoder) request(e *jutulParsedEvent) {
	p := d.verbatim(e)
	r := &jutulRequest{id: e.payload.Text("interrupt_id"), at: e.at, message: p.In}
	for action := range rows.Objects(e.payload.Object("value").Get("action_requests")) {
		r.decisions = append(r.decisions, store.Decision{
			ID:        spans.DeriveID(spans.PrefixPermission, e.at, p.Row.ID, strconv.Itoa(len(r.args))),
			SessionID: d.b.Row.ID, MessageID: p.Row.MessageID,
			ToolID: action.Text("name"), Action: "ask", Outcome: "pending", DecidedAt: e.at,
		})
		r.args = append(r.args, action.Get("args"))
	}
	d.asked = append(d.asked, r)
	d.requests[r.id] = r
}

// jutulAnswers are what the types of decisions mean. The reason of one that is not approved is its message.
var jutulAnswers = map[string]struct{ outcome, reply, reason string }{
	"approve": {"allowed", "once", ""}, "edit": {"allowed", "once", "edited"},
	"reject": {"denied", "reject", ""}, "respond": {"denied", "reject", ""}, "response": {"denied", "reject", ""},
}

func (d *jutulDecoder) response(e *jutulParsedEvent) {
	d.verbatim(e)
	r := d.requests[e.payload.Text("interrupt_id")]
	if r == nil {
		d.Problem("answers no request that is there")
		return
	}
	for i, raw := range rows.Elements(e.payload.Object("payload").Get("decisions")) {
		answer := rows.Read(string(raw)) // what is not an object has no type
		a, known := jutulAnswers[answer.Text("type")]
		if i >= len(r.decisions) || !known {
			d.Problem("decisions[%d] has type %q: its outcome is unknown", i, answer.Text("type"))
			continue
		}
		if a.outcome == "denied" {
			a.reason = answer.Text("message")
		}
		o := &r.decisions[i]
		o.Outcome, o.Reply, o.Reason = a.outcome, a.reply, a.reason
		o.WaitedMS, o.DecidedAt = new(max(0, e.at-r.at)), e.at
	}
}

// finish writes what takes more than one event to know.
func (d *jutulDecoder) finish() {
	// A session has the key, whatever is under it, when it came from a trace.
	d.b.SetMeta("jutul", append(rows.Object{},
		rows.NonEmpty("simulator", d.simulator, "session_events", d.lifecycle)...))
	for _, r := range d.asked {
		for i := range r.decisions {
			o := &r.decisions[i]
			p := d.asks(r, i)
			if p == nil {
				continue
			}
			o.ToolCallID, o.PartID = *p.Row.ToolCallID, p.Row.ID
			if ours := strings.HasPrefix(r.id, spans.PrefixPermission); o.Outcome == "denied" && !ours {
				jutulReject(p, o) // a request of ours has a result where there is one
			}
		}
		d.b.Decisions = append(d.b.Decisions, r.decisions...)
	}
}

// asks returns the one call in the message of a request that has the name and the arguments of what it asks about, nil
// for several. The trace itself does not state which call was asked about.
func (d *jutulDecoder) asks(r *jutulRequest, i int) (found *rows.Part) {
	for _, p := range d.placed {
		if p.In == r.message && jutulCalls(p, r.decisions[i].ToolID, r.args[i]) {
			if found != nil {
				return nil
			}
			found = p
		}
	}
	return found
}

// jutulReject ends a call that a person rejected: it never runs, so the trace has no result of it.
func jutulReject(p *rows.Part, o *store.Decision) {
	if p.Data().Text("state") == session.StateInputAvailable {
		p.Result(rows.Raw(cmp.Or(o.Reason, "the call was rejected")), true)
	}
	if p.Data().Text("state") == session.StateOutputError {
		p.SetToolTrace("denied", true)
	}
	p.Touch(o.DecidedAt)
}
