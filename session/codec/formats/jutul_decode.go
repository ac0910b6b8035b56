package formats

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// decode builds the session of the events that were added. Payloads are dropped as they
// become parts, for a trace may be large.
func (p *jutulParser) decode(report func(codec.Problem)) *codec.Session {
	for _, problem := range p.problems {
		report(problem)
	}
	d := &jutulDecoder{report: report, calls: make(map[string]*jutulCall), requests: make(map[string]*jutulRequest)}
	d.b = rows.New(p.sessionID(), jutulAgentName)
	for i := range p.parsed {
		d.record = fmt.Sprintf("event %d", p.parsed[i].id)
		d.event(&p.parsed[i])
		p.parsed[i] = jutulParsedEvent{}
	}
	d.finish()
	return d.b.Finish()
}

// jutulDecoder holds what an event may refer to.
type jutulDecoder struct {
	b      *rows.Session
	report func(codec.Problem)
	record string // what is being read

	turns     int64
	assistant *rows.Message // the turn's, nil until something is said
	usage     map[*rows.Message]*jutulUsage
	calls     map[string]*jutulCall // those without a result, by id
	placed    []*jutulCall          // all
	requests  map[string]*jutulRequest
	asked     []*jutulRequest
	lifecycle []json.RawMessage
}

// jutulParsedEvent is an event with its payload read. payload is nil when it is no
// object: then value is it, or its text as a JSON string.
type jutulParsedEvent struct {
	id      int64
	at      int64
	kind    string
	payload rows.Object
	value   json.RawMessage
}

type jutulUsage struct {
	session.Usage
	calls int64
}

// jutulCall is a tool call and what it came from.
type jutulCall struct {
	part *rows.Part
	id   string
	name string
	args json.RawMessage
	meta rows.Object // callProviderMetadata.jutul
}

// jutulRequest is a question to the user, with the decisions that it asks for.
type jutulRequest struct {
	id        string
	at        int64
	message   *rows.Message
	actions   []rows.Object
	decisions []store.Decision
}

func (d *jutulDecoder) problem(format string, args ...any) {
	d.report(codec.Problem{Record: d.record, Reason: fmt.Sprintf(format, args...)})
}

// jutulParser reads the payloads of events.
type jutulParser struct {
	parsed   []jutulParsedEvent
	first    jutulEvent
	problems []codec.Problem
}

// add takes the next event.
func (p *jutulParser) add(e jutulEvent) {
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
	parsed := jutulParsedEvent{id: e.id, kind: strings.ToValidUTF8(e.kind, "\uFFFD")}
	var err error
	if parsed.at, err = jutulParseTime(e.timestamp); err != nil {
		problem("%v: taken as that of the event before", err)
		parsed.at = last
	}
	text := strings.ToValidUTF8(e.payload, "\uFFFD")
	o, odd, err := jutulParsePayload(text)
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
func (p *jutulParser) sessionID() string {
	for i := range p.parsed {
		switch p.parsed[i].kind {
		case jutulKindStart, jutulKindResume, jutulKindTitle, jutulKindEnd:
			if id := p.parsed[i].payload.Text("session_id"); id != "" {
				return id
			}
		}
	}
	if len(p.parsed) == 0 {
		return spans.DeriveID(spans.PrefixSession, 0, jutulAgentName)
	}
	return spans.DeriveID(spans.PrefixSession, p.parsed[0].at, jutulAgentName, p.first.timestamp, p.first.kind,
		p.first.payload)
}

// jutulReaders are the functions that read the events of a kind. Events of other kinds, and
// those whose payload is not an object, are kept as they are.
var jutulReaders = map[string]func(*jutulDecoder, *jutulParsedEvent){
	jutulKindStart: (*jutulDecoder).session, jutulKindResume: (*jutulDecoder).session, jutulKindTitle: (*jutulDecoder).session,
	jutulKindEnd:        (*jutulDecoder).session,
	jutulKindUser:       (*jutulDecoder).user,
	jutulKindAssistant:  func(d *jutulDecoder, e *jutulParsedEvent) { d.text(e, "text") },
	jutulKindReasoning:  func(d *jutulDecoder, e *jutulParsedEvent) { d.text(e, "reasoning") },
	jutulKindUsage:      (*jutulDecoder).modelUsage,
	jutulKindCall:       (*jutulDecoder).call,
	jutulKindResult:     (*jutulDecoder).result,
	jutulKindRequest:    (*jutulDecoder).request,
	jutulKindResponse:   (*jutulDecoder).response,
	jutulKindCompaction: (*jutulDecoder).compaction,
}

func (d *jutulDecoder) event(e *jutulParsedEvent) {
	d.b.See(e.at)
	if read := jutulReaders[e.kind]; read != nil && e.payload != nil {
		read(d, e)
		return
	}
	d.verbatim(e)
}

// current returns the turn's assistant message.
func (d *jutulDecoder) current(at int64) *rows.Message {
	if d.assistant == nil {
		d.assistant = d.message(session.RoleAssistant, at)
		if d.turns > 0 {
			d.assistant.SetTrace("turn_index", d.turns-1)
		}
	}
	return d.assistant
}

func (d *jutulDecoder) message(role string, at int64) *rows.Message {
	m := d.b.Message(role, at)
	if m.Row.CreatedAt != at {
		d.problem("the clock stepped back: the message has the time of the one before")
	}
	return m
}

func (d *jutulDecoder) part(data rows.Object, at int64) *rows.Part {
	return d.current(at).Part(data, at)
}

// verbatim keeps an event as a part of its kind.
func (d *jutulDecoder) verbatim(e *jutulParsedEvent) *rows.Part { return d.part(e.data(), e.at) }

// data is the part of the event's kind.
func (e *jutulParsedEvent) data() rows.Object {
	if e.payload != nil {
		e.value = e.payload.JSON()
	}
	return rows.DataPart("data-"+cmp.Or(e.kind, jutulKindNone), e.value)
}

func (d *jutulDecoder) session(e *jutulParsedEvent) {
	if e.kind == jutulKindTitle {
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
func (d *jutulDecoder) textData(e *jutulParsedEvent, typ string) rows.Object {
	content, ok := rows.Text(e.payload.Get("content"))
	if !ok {
		d.problem("content is not text: kept as data")
		return e.data()
	}
	data := rows.TextPart(typ, content)
	data.Add(rows.NonEmpty("providerMetadata", rows.NonEmpty("jutul", e.payload.Without("content"))))
	return data
}

func (d *jutulDecoder) user(e *jutulParsedEvent) {
	d.turns, d.assistant = d.turns+1, nil
	d.message(session.RoleUser, e.at).Part(d.textData(e, "text"), e.at)
}

func (d *jutulDecoder) text(e *jutulParsedEvent, typ string) { d.part(d.textData(e, typ), e.at) }

// jutulMaxTokens bounds a count, so that no sum of counts overflows.
const jutulMaxTokens = 1 << 40

// jutulCount is a number of tokens, 0 if there is none. known reports that it can be one.
func jutulCount(o rows.Object, key string) (n int64, known bool) {
	v := o.Get(key)
	if v == nil || string(v) == "null" {
		return 0, true
	}
	var f float64
	if json.Unmarshal(v, &f) != nil || f < 0 || f > jutulMaxTokens {
		return 0, false
	}
	return int64(f), true
}

// modelUsage adds up what LangChain counts: input_tokens includes what was read
// from and written to the cache, output_tokens includes reasoning. Where one of the two
// cannot be read, what the call used is unknown.
func (d *jutulDecoder) modelUsage(e *jutulParsedEvent) {
	p := d.verbatim(e)
	input, output := e.payload.Object("input_token_details"), e.payload.Object("output_token_details")
	in, known := jutulCount(e.payload, "input_tokens")
	out, knownOut := jutulCount(e.payload, "output_tokens")
	if !known || !knownOut || !e.payload.Has("input_tokens") && !e.payload.Has("output_tokens") {
		return
	}
	var u session.Usage
	u.Reasoning, _ = jutulCount(output, "reasoning")
	u.CacheRead, _ = jutulCount(input, "cache_read")
	u.CacheWrite, _ = jutulCount(input, "cache_creation")
	u.Input, u.Output = max(0, in-u.CacheRead-u.CacheWrite), max(0, out-u.Reasoning)
	if d.usage == nil {
		d.usage = make(map[*rows.Message]*jutulUsage)
	}
	sum := d.usage[p.Message()]
	if sum == nil {
		sum = new(jutulUsage)
		d.usage[p.Message()] = sum
	}
	sum.Usage = sum.Add(u)
	sum.calls++
}

func jutulWithMeta(data, meta rows.Object) rows.Object {
	data = data.Without("callProviderMetadata")
	data.Add(rows.NonEmpty("callProviderMetadata", rows.NonEmpty("jutul", meta)))
	return data
}

func (d *jutulDecoder) call(e *jutulParsedEvent) {
	id, isText := rows.Text(e.payload.Get("id"))
	c := &jutulCall{id: id, name: e.payload.Text("name"), args: e.payload.Get("args")}
	c.meta.Add(rows.NonEmpty("call", e.payload.Without("id", "name", "args")))
	switch open := d.calls[id]; {
	case open != nil && open.repeats(c):
		// A call that waited for approval is written again when it goes on.
		var again []int64
		_ = json.Unmarshal(open.meta.Get("repeated_at"), &again) // written below
		open.meta.Set("repeated_at", append(again, e.at))
		open.part.Set(jutulWithMeta(open.part.Data(), open.meta))
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
		c.part = d.part(jutulWithMeta(data, c.meta), e.at)
		d.calls[id] = c
		d.placed = append(d.placed, c)
	}
}

// repeats reports whether another event is that of the same call.
func (c *jutulCall) repeats(again *jutulCall) bool {
	return c.name == again.name && string(c.args) == string(again.args) &&
		string(c.meta.Object("call").JSON()) == string(again.meta.Object("call").JSON())
}

func (d *jutulDecoder) result(e *jutulParsedEvent) {
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
	c.part.Set(jutulWithMeta(data, c.meta))
	c.part.Touch(e.at)
}

func (d *jutulDecoder) request(e *jutulParsedEvent) {
	p := d.verbatim(e)
	r := &jutulRequest{id: e.payload.Text("interrupt_id"), at: e.at, message: p.Message()}
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

func (d *jutulDecoder) response(e *jutulParsedEvent) {
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
func (d *jutulDecoder) compaction(e *jutulParsedEvent) {
	d.message(session.RoleAssistant, e.at).Part(rows.DataPart(session.TypeCompaction, rows.Of(
		"summary", e.payload.Text("summary"), "tail_start_id", nil, "auto", string(e.payload.Get("manual")) != "true",
		"summary_tokens", 0, "jutul", e.payload)), e.at)
	d.assistant = nil
}

// finish writes what takes more than one event to know.
func (d *jutulDecoder) finish() {
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
func (d *jutulDecoder) link(o *store.Decision, r *jutulRequest, action rows.Object) *jutulCall {
	var found *jutulCall
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
func (c *jutulCall) reject(o *store.Decision) {
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

// jutulFileName is what jutul-agent calls the trace in a session's directory.
const jutulFileName = "trace.sqlite"

const jutulSchema = `
CREATE TABLE events (
	id           INTEGER PRIMARY KEY AUTOINCREMENT,
	timestamp    TEXT NOT NULL,
	kind         TEXT NOT NULL,
	payload_json TEXT NOT NULL
);
CREATE INDEX events_kind_idx ON events (kind);`

// jutulDecodeFile reads the trace at path, which may be a session's directory with a
// [jutulFileName] in it. It yields one session, as a trace holds one. It does not
// write to the file, which jutul-agent may be writing meanwhile.
//
// Edge cases:
//   - a session without an event that names it gets an id derived from its first
//     event; a trace without events gives a session without messages;
//   - what cannot be read of an event is kept as text and reported;
//   - where the file is damaged, the events before the damage are read and the
//     rest is reported; when none can be read, that is an error;
//   - a file that is not an SQLite database, or has no table events, is an error.
//
// The sequence can be ranged over once. The caller owns what it yields.
func jutulDecodeFile(path string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return rows.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		file := path
		if info, err := os.Stat(path); err != nil {
			return fmt.Errorf("open trace: %w", err)
		} else if info.IsDir() {
			file = filepath.Join(path, jutulFileName)
		}
		conn, err := rows.OpenDatabase(file)
		if err != nil {
			return fmt.Errorf("open trace %s: %w", file, err)
		}
		var p jutulParser
		if err = errors.Join(jutulReadEvents(conn, p.add), conn.Close()); err != nil {
			if len(p.parsed) == 0 {
				return fmt.Errorf("read trace %s: %w", file, err)
			}
			report(codec.Problem{Record: fmt.Sprintf("event %d", p.parsed[len(p.parsed)-1].id),
				Reason: fmt.Sprintf("the last that could be read: %v", err)})
		}
		yield(p.decode(report))
		return nil
	})
}

// jutulReadEvents calls fn with the events up to the error, if there is one.
func jutulReadEvents(conn *sqlite.Conn, fn func(jutulEvent)) error {
	return sqlitex.ExecuteTransient(conn, "SELECT id, timestamp, kind, payload_json FROM events ORDER BY id",
		&sqlitex.ExecOptions{
			ResultFunc: func(row *sqlite.Stmt) error {
				fn(jutulEvent{id: row.ColumnInt64(0), timestamp: row.ColumnText(1), kind: row.ColumnText(2),
					payload: row.ColumnText(3)})
				return nil
			},
		})
}

// jutulEncodeFile writes the session as a trace to path, which must not exist. The
// file is there whole or not at all. Like jutul-agent's own it is in WAL mode, so
// whoever reads it must be able to write in its directory.
//
// EncodeFile refuses rows without an id or under a row that they do not name
// (see [session.Transcript.CheckTree]).
func jutulEncodeFile(path string, s *codec.Session) error {
	if err := s.CheckTree(); err != nil {
		return fmt.Errorf("encode session %s: %w", s.Session.ID, err)
	}
	if err := rows.CreateDatabase(path, func(temporary string) error {
		return jutulWriteEvents(temporary, jutulEncode(s))
	}); err != nil {
		return fmt.Errorf("write trace %s: %w", path, err)
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
	for _, e := range events {
		err := sqlitex.Execute(conn, "INSERT INTO events (id, timestamp, kind, payload_json) VALUES (?, ?, ?, ?)",
			&sqlitex.ExecOptions{Args: []any{e.id, e.timestamp, e.kind, e.payload}})
		if err != nil {
			return err
		}
	}
	return nil
}
