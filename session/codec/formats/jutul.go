// Jutul: these files read and write the trace database of jutul-agent: one session in a SQLite file, trace.sqlite,
// whose table events holds what happened as rows of a time, a kind and a JSON payload, in order of id.
// docs/formats.md lists what becomes what.

package formats

import (
	"cmp"
	_ "embed" // of the schema
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// Kinds of events that are more than a part with their name. An event without a kind has the last one.
const (
	jutulKindStart, jutulKindResume                       = "session_start", "session_resume"
	jutulKindTitle, jutulKindEnd                          = "session_title", "session_end"
	jutulKindUser, jutulKindAssistant, jutulKindReasoning = "message_user", "message_assistant", "message_reasoning"
	jutulKindUsage, jutulKindCall, jutulKindResult        = "model_usage", "tool_call", "tool_result"
	jutulKindRequest, jutulKindResponse                   = "hitl_request", "hitl_response"
	jutulKindCompaction, jutulKindNone                    = "context_compaction", "jutul_event"
)

// jutulIsLifecycle reports whether events of a kind are those of the session's life.
func jutulIsLifecycle(kind string) bool {
	return slices.Contains([]string{jutulKindStart, jutulKindResume, jutulKindTitle, jutulKindEnd}, kind)
}

// jutulAgentName is the agent of a session.
const jutulAgentName = "jutul-agent"

// jutulEvent is a row of the table.
type jutulEvent struct {
	id        int64
	timestamp string
	kind      string
	payload   string
}

// jutulTimeLayout is that of Python's datetime.isoformat in UTC, which leaves the fraction out when it is zero.
const jutulTimeLayout = "2006-01-02T15:04:05.000000-07:00"

func jutulFormatTime(milli int64) string {
	s := time.UnixMilli(min(max(milli, 0), rows.MaxTime)).UTC().Format(jutulTimeLayout)
	return strings.Replace(s, ".000000", "", 1)
}

// jutulFileName is what jutul-agent calls the trace in a session's directory.
const jutulFileName = "trace.sqlite"

//go:embed jutul.sql
var jutulSchema string

// jutulDecodeFile reads the trace at path, which may be a session's directory with a [jutulFileName] in it. It yields
// one session, as a trace holds one, and does not write to the file, which jutul-agent may be writing meanwhile.
// Where the file is damaged, the events before the damage are read and the rest is reported.
func jutulDecodeFile(path string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return codec.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("open trace: %w", err)
		}
		file := path
		if info.IsDir() {
			file = filepath.Join(path, jutulFileName)
		}
		events, err := jutulReadEvents(file)
		switch {
		case err != nil && len(events) == 0:
			return fmt.Errorf("read trace %s: %w", file, err)
		case err != nil:
			report(codec.Problem{Record: fmt.Sprintf("event %d", events[len(events)-1].id),
				Reason: fmt.Sprintf("the last that could be read: %v", err)})
		}
		yield(jutulDecode(events, report))
		return nil
	})
}

// jutulReadEvents returns the events up to the error, if there is one.
func jutulReadEvents(file string) (events []jutulEvent, err error) {
	err = rows.QueryDatabase(file, "SELECT id, timestamp, kind, payload_json FROM events ORDER BY id",
		func(row *sqlite.Stmt) {
			e := jutulEvent{row.ColumnInt64(0), row.ColumnText(1), row.ColumnText(2), row.ColumnText(3)}
			events = append(events, e)
		})
	return events, err
}

// jutulEncodeFile writes the session as a trace to path, which must not exist. The file is there whole or not at all.
// Like jutul-agent's own it is in WAL mode, so a reader must be able to write in its directory.
func jutulEncodeFile(path string, s *codec.Session) error {
	err := s.CheckTree()
	if err == nil {
		err = rows.CreateDatabase(path, func(temporary string) error { return jutulWriteEvents(temporary, jutulEncode(s)) })
	}
	if err != nil {
		return fmt.Errorf("write session %s to %s: %w", s.Session.ID, path, err)
	}
	return nil
}

func jutulWriteEvents(path string, events []jutulEvent) (err error) {
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate, sqlite.OpenWAL)
	if err != nil {
		return err
	}
	// Closing the last connection moves the WAL into the file.
	defer func() { err = errors.Join(err, conn.Close()) }()
	defer sqlitex.Save(conn)(&err)
	if err := sqlitex.ExecuteScript(conn, jutulSchema, nil); err != nil {
		return err
	}
	const insert = "INSERT INTO events (id, timestamp, kind, payload_json) VALUES (?, ?, ?, ?)"
	for _, e := range events {
		if err == nil {
			options := sqlitex.ExecOptions{Args: []any{e.id, e.timestamp, e.kind, e.payload}}
			err = sqlitex.Execute(conn, insert, &options)
		}
	}
	return err
}

// jutulEncode returns the events of the session.
func jutulEncode(s *codec.Session) []jutulEvent {
	t := s.Sorted()
	row := &t.Session
	own := rows.Read(row.MetadataJSON).Object("jutul")
	e := &jutulEncoder{s: s, foreign: own == nil, calls: make(map[string]int)}
	named := false
	for o := range rows.Objects(own.Get("session_events")) {
		kind, payload := o.Text("kind"), o.Object("payload")
		if at, ok := rows.Milli(o.Get("at")); ok && jutulIsLifecycle(kind) && payload != nil {
			named = named || payload.Text("session_id") == row.ID
			e.later(at, kind, payload)
		}
	}
	if !named {
		e.emit(row.CreatedAt, jutulKindStart, rows.Of("session_id", row.ID, "simulator", nil))
	}
	if e.foreign {
		if row.Title != session.Untitled {
			e.emit(row.CreatedAt, jutulKindTitle, rows.Of("session_id", row.ID, "title", row.Title))
		}
		e.decisions()
	}
	for i := range t.Messages {
		e.message(t, i)
	}
	e.flush(math.MaxInt64)
	return e.events
}

// jutulEncoder writes events in the order of the rows. What has a time but no row of
// its own waits until its time has come.
type jutulEncoder struct {
	s       *codec.Session
	foreign bool // the session never was a trace
	events  []jutulEvent
	last    int64
	waiting []jutulWaiting // in order of at
	// calls counts the calls by their ids, which must be different in a trace.
	calls map[string]int
}

type jutulWaiting struct {
	at      int64
	kind    string
	payload rows.Object
}

// emit adds an event. Readers take events in order, so none is earlier than the one before.
func (e *jutulEncoder) emit(at int64, kind string, payload rows.Object) {
	e.last = max(at, e.last)
	e.events = append(e.events, jutulEvent{id: int64(len(e.events) + 1), timestamp: jutulFormatTime(e.last), kind: kind,
		payload: string(payload.JSON())})
}

// row emits an event that stands for a row.
func (e *jutulEncoder) row(at int64, kind string, payload rows.Object) {
	e.flush(at)
	e.emit(at, kind, payload)
}

// later keeps an event until its time, after those of the same time.
func (e *jutulEncoder) later(at int64, kind string, payload rows.Object) {
	e.waiting = append(e.waiting, jutulWaiting{at, kind, payload})
	slices.SortStableFunc(e.waiting, func(a, b jutulWaiting) int { return cmp.Compare(a.at, b.at) })
}

// flush emits what waited for a time up to at.
func (e *jutulEncoder) flush(at int64) {
	for len(e.waiting) > 0 && e.waiting[0].at <= at {
		e.emit(e.waiting[0].at, e.waiting[0].kind, e.waiting[0].payload)
		e.waiting = e.waiting[1:]
	}
}

// decisions writes those of a person as requests and responses.
func (e *jutulEncoder) decisions() {
	for i := range e.s.Decisions {
		o := &e.s.Decisions[i]
		if o.Action != "ask" {
			continue // nobody was asked
		}
		asked := o.DecidedAt
		if o.WaitedMS != nil {
			asked -= *o.WaitedMS
		}
		request := rows.Of("name", o.ToolID, "args", rows.Object{})
		for j := range e.s.Messages {
			for _, p := range e.s.Messages[j].Parts {
				if o.PartID != p.ID && (o.ToolCallID == "" || p.ToolCallID == nil || *p.ToolCallID != o.ToolCallID) {
					continue
				}
				data := rows.Read(p.DataJSON)
				request.Add(rows.NonEmpty("name", rows.ToolName(data), "args", data.Get("input")))
			}
		}
		// A reader knows by the prefix that a request is ours.
		id := spans.PrefixPermission + strings.TrimPrefix(o.ID, spans.PrefixPermission)
		e.later(asked, jutulKindRequest, rows.Of("interrupt_id", id, "value",
			rows.Of("action_requests", []rows.Object{request})))
		if typ := map[string]string{"allowed": "approve", "denied": "reject"}[o.Outcome]; typ != "" {
			answer := append(rows.Of("type", typ), rows.NonEmpty("message", o.Reason)...)
			e.later(o.DecidedAt, jutulKindResponse, rows.Of("interrupt_id", id, "payload",
				rows.Of("decisions", []rows.Object{answer})))
		}
	}
}

// message writes what a message says. A trace has no word for what the system says.
func (e *jutulEncoder) message(t *session.Transcript, i int) {
	m := &t.Messages[i]
	if m.Message.Role == session.RoleSystem {
		return
	}
	counted := false
	for j := range m.Parts {
		counted = counted || m.Parts[j].Type == "data-"+jutulKindUsage
		e.part(t, i, &m.Parts[j])
	}
	meta := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON))
	u := meta.Tokens(m.Message.Role, m.IsMarker()).Used
	if counted || u == nil || t.Session.Copied(m.Message.CreatedAt) {
		return
	}
	input, output := u.Input+u.CacheRead+u.CacheWrite, u.Output+u.Reasoning // as LangChain counts
	e.row(m.Message.UpdatedAt, jutulKindUsage, rows.Of(
		"input_tokens", input, "output_tokens", output, "total_tokens", input+output,
		"input_token_details", rows.Of("cache_read", u.CacheRead, "cache_creation", u.CacheWrite),
		"output_token_details", rows.Of("reasoning", u.Reasoning)))
}

func (e *jutulEncoder) part(t *session.Transcript, i int, p *session.Part) {
	if p.Type == "step-start" {
		return // it reports nothing that jutul could show
	}
	data := rows.Data(p)
	kind, payload := jutulPartEvent(t, i, p, data)
	// Readers of jutul read the payloads of their own kinds as if these could have nothing else, and index arguments.
	if own := slices.Contains(jutulOwnKinds, kind); own && e.foreign && strings.HasPrefix(p.Type, "data-") &&
		kind != jutulKindCompaction {
		kind = p.Type
	}
	c := rows.CallOf(p, data, make(map[string]bool))
	called := c != nil && c.Name != ""
	if called {
		if e.calls[c.ID]++; e.calls[c.ID] > 1 {
			c.ID = fmt.Sprintf("%s#%d", c.ID, e.calls[c.ID])
		}
		kind, payload = jutulKindCall, rows.Of("id", c.ID, "name", c.Name, "args", c.Arguments())
	}
	e.row(p.CreatedAt, kind, payload)
	if called && c.Result != nil {
		status := "success"
		if c.Failed {
			status = "error"
		}
		e.later(p.UpdatedAt, jutulKindResult,
			rows.Of("tool_call_id", c.ID, "name", c.Name, "content", *c.Result, "status", status))
	}
}

// jutulOwnKinds are the kinds of events that jutul itself writes.
var jutulOwnKinds = []string{
	jutulKindStart, jutulKindResume, jutulKindTitle, jutulKindEnd, jutulKindUser, jutulKindAssistant,
	jutulKindReasoning, jutulKindUsage, jutulKindCall, jutulKindResult,
	jutulKindRequest, jutulKindResponse, jutulKindCompaction, "artifact", "attempt", "upload", "ui", "ui_event",
	"eval_target", "eval_result",
}

// jutulPartEvent returns what stands for the part in the trace.
func jutulPartEvent(t *session.Transcript, i int, p *session.Part, data rows.Object) (kind string, payload rows.Object) {
	inner := data.Object("data")
	switch typ := data.Text("type"); {
	case typ == "text" || typ == "reasoning":
		if kind = jutulKindAssistant; p.Type == "reasoning" {
			kind = jutulKindReasoning
		} else if t.Messages[i].Message.Role == session.RoleUser {
			kind = jutulKindUser
		}
		return kind, rows.Of("content", data.Text("text"))
	case p.Type == session.TypeCompaction && inner.Object("jutul") != nil:
		return jutulKindCompaction, inner.Object("jutul")
	case p.Type == session.TypeCompaction:
		return jutulKindCompaction, jutulCompactionPayload(t, i, p)
	case strings.HasPrefix(p.Type, "data-"):
		if inner == nil {
			inner = append(rows.Object{}, rows.NonEmpty("data", data.Get("data"))...)
		}
		return strings.TrimPrefix(p.Type, "data-"), inner
	}
	return p.Type, data.Without("type") // such as a call without a name: no reader takes it for a call
}

// jutulCompactionPayload counts the messages that a compaction summed up, in the words of all versions of jutul-agent.
func jutulCompactionPayload(t *session.Transcript, i int, p *session.Part) rows.Object {
	c, _ := session.ParseCompaction(p.DataJSON) // unreadable: nothing is known of it
	before, kept := 0, 0
	for k := range i {
		m := &t.Messages[k].Message
		if m.HiddenAt != nil {
			continue
		}
		if before++; kept > 0 || c.TailStartID != nil && m.ID == *c.TailStartID {
			kept++
		}
	}
	return append(rows.Of("summarized", before-kept, "kept", kept, "offloaded", false, "manual", !c.Auto,
		"messages_before", before, "messages_after", kept+1), rows.NonEmpty("summary", c.Summary)...)
}

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
	at, _ := rows.ParseTime(first.timestamp) // otherwise the beginning of time
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
	if at, ok := rows.ParseTime(e.timestamp); ok {
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
