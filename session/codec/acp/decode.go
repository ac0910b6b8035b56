package acp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// Decode yields the sessions in the trace, in the order in which they begin. The
// whole trace is read first. The sequence can be ranged over once; the caller
// owns what it yields. report may be nil.
//
// Edge cases:
//   - an empty input yields nothing;
//   - what is not a message is reported and left out;
//   - a session that the trace does not see begin, as when it is cut, is there
//     with what is known of it;
//   - history that session/load replays into a session which the trace already
//     has is left out;
//   - an input without any message, or one that cannot be read, is an error.
func Decode(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return rows.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		t, err := readMessages(r, report)
		for _, s := range decode(t, report) {
			yield(s)
		}
		return err
	})
}

// decode builds the sessions. Messages are dropped as they become rows, for a trace may
// be large.
func decode(messages []message, report func(codec.Problem)) (all []*codec.Session) {
	d := &decoder{report: report, sessions: make(map[string]*conversation), conn: newConnection()}
	for i := range messages {
		d.message(&messages[i])
		messages[i] = message{}
	}
	if len(d.early) > 0 {
		d.line = d.early[0].line
		d.problem("%d logs of a connection without a session: left out", len(d.early))
	}
	for _, c := range d.order {
		all = append(all, d.finish(c))
	}
	return all
}

// connection is what the two sides know before there is a session.
type connection struct {
	version int                     // of the protocol
	agent   string                  // its name
	pending [3]map[string]*exchange // requests by sender and id
}

func newConnection() *connection {
	c := &connection{version: 1}
	for i := range c.pending {
		c.pending[i] = make(map[string]*exchange)
	}
	return c
}

// exchange is a request that waits for its response.
type exchange struct {
	method string
	params rows.Object
	at     int64
	line   int
	c      *conversation // whose it is, if any
	part   *rows.Part    // that shows it, if any
	ask    *question
}

// question is a request for permission. One that was canceled has no answer.
type question struct {
	decision                     store.Decision
	toolID                       string // the call's id in the protocol
	options                      []rows.Object
	answered, approved, canceled bool
}

// tool is a tool call.
type tool struct {
	id    string
	part  *rows.Part
	call  rows.Object
	asked *question
}

// conversation is a session being read.
type conversation struct {
	b    *rows.Session
	conn *connection

	turns       int64
	user        *rows.Message // of the turn
	assistant   *rows.Message // of the turn, nil until something is said
	promptAt    int64         // its time, if promptTimed
	prompt      string        // its text, until the agent reports something else
	echo        string        // what of it came back
	promptTimed bool
	replaying   bool // history comes that is already there
	replayed    int

	open      *rows.Part // the text that the next chunk may belong to
	openKind  string
	openID    string // its messageId
	text      []byte
	arrived   map[string]bool // ids of messages
	history   *rows.Message   // the last user message that was replayed
	historyID string          // its messageId
	tools     map[string]*tool
	order     []*tool
	asked     []*question
	summaries map[string]string // of compactions, by id
}

type decoder struct {
	report func(codec.Problem)
	line   int

	conn     *connection
	sessions map[string]*conversation
	order    []*conversation
	current  *conversation // the last that anything was reported of
	early    []message     // logs from before there was a session
}

func (d *decoder) problem(format string, args ...any) {
	d.report(codec.Problem{Line: d.line, Reason: fmt.Sprintf(format, args...)})
}

func (d *decoder) message(m *message) {
	d.line = m.line
	if m.response() {
		d.response(m)
		return
	}
	if m.odd != nil {
		d.problem("params of %s is not an object", m.method)
	}
	x := &exchange{method: m.method, params: m.params, at: m.at, line: m.line}
	if m.method == methodInitialize {
		d.conn = newConnection()
	}
	if m.id != "" {
		d.conn.pending[m.from][m.id] = x
	}
	if id := m.params.Text("sessionId"); id != "" {
		d.current = d.session(id, m.at)
		x.c = d.current
		x.c.b.See(m.at)
	}
	switch m.method {
	case methodInitialize, methodNew:
	case methodLoad, methodResume:
		if x.c != nil {
			x.c.replaying = m.method == methodLoad && x.c.turns > 0
		}
	case methodPrompt, methodUpdate, methodPermission:
		switch {
		case x.c == nil:
			d.problem("%s names no session", m.method)
		case m.method == methodPrompt:
			d.userPrompt(x.c, m)
		case m.method == methodUpdate:
			d.update(x.c, m)
		default:
			d.permission(x, m)
		}
	default:
		d.other(x, m)
	}
}

func (d *decoder) session(id string, at int64) *conversation {
	c := d.sessions[id]
	if c == nil {
		c = &conversation{
			b: rows.New(id, agentName), conn: d.conn, arrived: make(map[string]bool),
			tools: make(map[string]*tool), summaries: make(map[string]string),
		}
		c.b.See(at)
		d.sessions[id] = c
		d.order = append(d.order, c)
		for i := range d.early {
			c.b.See(d.early[i].at)
			c.log(d.early[i].params, d.early[i].at)
		}
		d.early = nil
	}
	return c
}

// answer finds the request that a response is to. Where nobody knows who sent
// the response, and both sides wait for one of that id, its shape decides.
func (d *decoder) answer(m *message) *exchange {
	var from, to = agent, client
	if m.from == client {
		from, to = client, agent
	}
	lists := []side{to, unknown}
	if m.from == unknown {
		lists = []side{to, from, unknown}
		if a, b := d.conn.pending[client][m.id], d.conn.pending[agent][m.id]; a != nil && b != nil {
			// An error has no shape: it is for the later of the two.
			if m.err != nil && b.line > a.line || m.err == nil && fits(b.method, m.result) {
				lists[0], lists[1] = from, to
			}
		}
	}
	for _, s := range lists {
		if x := d.conn.pending[s][m.id]; x != nil {
			delete(d.conn.pending[s], m.id)
			return x
		}
	}
	return nil
}

// fits reports whether a result has the shape that the method of an agent's request
// wants.
func fits(method string, result json.RawMessage) bool {
	o, err := rows.Parse(result)
	if err != nil {
		return false
	}
	if field := resultFields[method]; field != "" {
		return o.Has(field)
	}
	return !o.Has("stopReason") && !o.Has("sessionId") && !o.Has("protocolVersion")
}

// resultFields are fields of the results of an agent's requests.
var resultFields = map[string]string{
	methodPermission: "outcome", "fs/read_text_file": "content",
	"terminal/create": "terminalId", "terminal/output": "output",
}

func (d *decoder) response(m *message) {
	x := d.answer(m)
	if x == nil {
		d.problem("response to no request that is there (id %s): left out", m.id)
		return
	}
	key, value := "result", m.result
	if m.err != nil {
		key, value = "error", m.err
	}
	result := rows.Read(string(value))
	if id := result.Text("sessionId"); x.c == nil && x.method == methodNew && id != "" {
		x.c = d.session(id, x.at)
	}
	if x.method == methodInitialize && m.err == nil {
		d.conn.opened(result)
	}
	if x.c == nil {
		return
	}
	d.current = x.c
	x.c.b.See(m.at)
	switch x.method {
	case methodNew:
		x.c.opened(x.params, result)
	case methodLoad, methodResume:
		if x.c.replayed > 0 {
			d.problem("session/load replayed %d updates of what is already there: left out", x.c.replayed)
		}
		x.c.replaying, x.c.replayed = false, 0
		x.c.opened(x.params, result)
	case methodPrompt:
		d.promptEnd(x, m, result)
	case methodPermission:
		d.outcome(x, m, result)
		if outcome := result.Get("outcome"); outcome != nil && m.err == nil {
			key, value = "outcome", outcome
		}
	}
	if x.part != nil {
		x.part.SetInner(key, value)
		x.part.Touch(m.at)
	}
}

func (c *connection) opened(result rows.Object) {
	// Version 2 of the protocol has the name under info.
	c.agent = cmp.Or(result.Object("agentInfo").Text("name"), result.Object("info").Text("name"))
	if string(result.Get("protocolVersion")) == "2" {
		c.version = 2
	}
}

func (c *conversation) opened(params, result rows.Object) {
	rows.SetText(&c.b.Row.WorkspaceRoot, params.Text("cwd"))
	rows.SetText(&c.b.Row.Mode, result.Object("modes").Text("currentModeId"))
}

// reply returns the turn's assistant message.
func (c *conversation) reply(at int64) *rows.Message {
	if c.assistant == nil {
		c.assistant = c.b.Message(session.RoleAssistant, at)
		if c.turns > 0 {
			c.assistant.SetTrace("turn_index", c.turns-1)
		}
	}
	return c.assistant
}

// part adds a part to the turn's assistant message.
func (c *conversation) part(data rows.Object, at int64) *rows.Part {
	c.close()
	return c.reply(at).Part(data, at)
}

// log adds a log. Before the first prompt it is part of no turn. A log of the whole connection has null as its session.
func (c *conversation) log(params rows.Object, at int64) *rows.Part {
	data := params.Without("sessionId")
	if !params.Has("sessionId") {
		data.Set("sessionId", nil)
	}
	part := rows.DataPart(typeLog, data)
	if c.user != nil || c.assistant != nil {
		return c.part(part, at)
	}
	if all := c.b.Messages(); len(all) > 0 && all[len(all)-1].Row.Role == session.RoleSystem {
		return all[len(all)-1].Part(part, at)
	}
	return c.b.Message(session.RoleSystem, at).Part(part, at)
}

func (d *decoder) userPrompt(c *conversation, m *message) {
	c.close()
	c.turns++
	c.user, c.assistant = c.b.Message(session.RoleUser, m.at), nil
	c.prompt, c.echo = "", ""
	c.promptAt, c.promptTimed = m.at, m.timed
	for _, raw := range rows.Elements(m.params.Get("prompt")) {
		data := contentData("text", raw)
		c.user.Part(data, m.at)
		if data.Text("type") == "text" {
			c.prompt += data.Text("text")
		}
	}
}

// promptEnd ends a turn. In version 2 of the protocol the response only reports that
// the prompt was accepted.
func (d *decoder) promptEnd(x *exchange, m *message, result rows.Object) {
	c := x.c
	c.close()
	stop := result.Text("stopReason")
	if m.err == nil && stop == "" {
		return
	}
	reply := c.reply(m.at)
	reply.Touch(m.at)
	if m.timed && m.at >= x.at {
		reply.SetTrace("duration_ms", m.at-x.at)
	}
	if m.err != nil {
		failTurn(reply, m.err)
		return
	}
	endTurn(reply, stop)
	if usage := result.Get("usage"); usage != nil && result.Has("usage") {
		// Whether it counts the turn or the session the protocol does not say.
		reply.SetTrace("usage_raw", usage)
	}
}

func endTurn(m *rows.Message, stop string) {
	m.SetTrace("stop_reason", stop)
	reason := "finish"
	if stop == "cancelled" {
		reason = "abort"
	}
	m.SetTrace("end_reason", reason)
}

// failTurn ends a turn with a JSON-RPC error. One that is not an object is shown as it
// is.
func failTurn(m *rows.Message, raw json.RawMessage) {
	m.SetTrace("end_reason", "error")
	text := string(raw)
	if text == "null" {
		text = "the agent gave up without a reason"
	}
	m.SetTrace("error", cmp.Or(rows.Read(string(raw)).Text("message"), text))
}

// other keeps a message of a session that has no meaning of its own here. Logs may come without
// a session: they are of the current one, or else of the first that begins.
func (d *decoder) other(x *exchange, m *message) {
	isLog := m.method == methodLog && m.odd == nil
	c := x.c
	if c == nil && (isLog || m.method[0] == '$') {
		c = d.current
	}
	switch {
	case c == nil && isLog:
		d.early = append(d.early, *m)
	case c == nil:
	case isLog:
		c.b.See(m.at)
		x.part = c.log(m.params, m.at)
	default:
		c.b.See(m.at)
		data := rows.Of("method", m.method)
		typ := methodType(m.method, m.id != "")
		if typ == typeRequest || typ == typeNotification {
			data = rows.Of("from", m.from.String(), "method", m.method)
		}
		if m.params != nil {
			data.Set("params", m.params)
		} else if m.odd != nil {
			data.Set("params", m.odd)
		}
		x.c, x.part = c, c.part(rows.DataPart(typ, data), m.at)
	}
}

func (d *decoder) finish(c *conversation) *codec.Session {
	c.close()
	for _, q := range c.asked {
		if t := c.tools[q.toolID]; t != nil {
			q.decision.PartID, q.decision.ToolID = t.part.Row.ID, toolName(t.call)
			t.asked = q
		}
		c.b.Decisions = append(c.b.Decisions, q.decision)
	}
	for _, t := range c.order {
		t.part.Set(toolData(t.id, t.call, t.asked))
		t.call = nil
	}
	c.b.Row.Agent = cmp.Or(c.conn.agent, agentName)
	c.b.SetMeta("acp", rows.Of("protocolVersion", c.conn.version))
	return c.b.Finish()
}
