package acp

import (
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
//   - what is no message is reported and left out;
//   - a session that the trace does not see begin, as when it is cut, is there
//     with what is known of it;
//   - history that session/load replays into a session which the trace already
//     has is left out;
//   - an input without any message, or one that cannot be read, is an error.
func Decode(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return func(yield func(*codec.Session, error) bool) {
		if report == nil {
			report = func(codec.Problem) {}
		}
		t, err := readMessages(r, report)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, s := range decode(t, report) {
			if !yield(s, nil) {
				return
			}
		}
	}
}

// decode builds the sessions. Messages are dropped as they become rows, for a trace may
// be large.
func decode(t trace, report func(codec.Problem)) (all []*codec.Session) {
	d := &decoder{report: report, sessions: make(map[string]*conversation), conn: newConnection()}
	for i := range t.messages {
		d.message(&t.messages[i])
		t.messages[i] = message{}
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

// connection is what is said of no session in particular.
type connection struct {
	initialize rows.Object
	others     []*exchange
	pending    [3]map[string]*exchange // requests by sender and id
}

func newConnection() *connection {
	c := new(connection)
	for i := range c.pending {
		c.pending[i] = make(map[string]*exchange)
	}
	return c
}

// exchange is a request or notification, and what came of it.
type exchange struct {
	method string
	data   rows.Object // {method, params, result or error}
	at     int64
	line   int
	c      *conversation // whose it is, if any
	part   *rows.Part    // that shows it, if any
	ask    *question
}

// question is a request for permission.
type question struct {
	decision store.Decision
	toolID   string // the call's id in the protocol
	approval approval
	options  []rows.Object
}

// tool is a tool call.
type tool struct {
	id    string
	part  *rows.Part
	call  rows.Object
	asked *approval
}

// conversation is a session being read.
type conversation struct {
	b    *rows.Session
	conn *connection
	acp  rows.Object // metadata_json.acp

	turns       int64
	user        *rows.Message // of the turn
	assistant   *rows.Message // of the turn, nil until something is said
	prompting   bool          // the prompt has no response yet
	promptAt    int64         // its time, if promptTimed
	prompt      string        // its text, until the agent says something else
	echo        string        // what of it came back
	promptTimed bool
	replaying   bool // history comes that is already there
	replayed    int

	open      *openText
	tools     map[string]*tool
	order     []*tool
	asked     []*question
	summaries map[string]string // of compactions, by id
}

// openText is the part that the next chunk may belong to.
type openText struct {
	part    *rows.Part
	kind    string
	id      string // messageId
	block   string
	first   string // what the first chunk had beside its content
	text    []byte
	chunks  []json.RawMessage
	changed bool
}

type decoder struct {
	report func(codec.Problem)
	line   int

	conn     *connection
	sessions map[string]*conversation
	order    []*conversation
	current  *conversation // the last that anything was said of
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
		d.problem("params of %s is no object", m.method)
	}
	x := &exchange{method: m.method, at: m.at, line: m.line}
	x.data.Set("method", m.method)
	switch {
	case m.method == methodUpdate && m.params.Text("sessionId") != "": // it is a part, and nothing asks for more
	case m.params != nil:
		x.data.Set("params", m.params)
	case m.odd != nil:
		x.data.Set("params", m.odd)
	}
	if m.method == methodInitialize {
		d.conn = newConnection()
	}
	if m.id != "" {
		d.conn.pending[m.from][m.id] = x
	}
	if id := m.params.Text("sessionId"); id != "" {
		d.current = d.session(id, m.at)
		x.c = d.current
	}
	switch m.method {
	case methodInitialize, methodNew:
	case methodLoad, methodResume:
		if x.c == nil {
			d.other(x, m)
			return
		}
		x.c.replaying = m.method == methodLoad && x.c.turns > 0
	case methodPrompt, methodUpdate, methodPermission:
		if x.c == nil {
			d.problem("%s names no session", m.method)
			d.other(x, m)
			return
		}
		x.c.b.See(m.at)
		switch m.method {
		case methodPrompt:
			d.userPrompt(x.c, m)
		case methodUpdate:
			d.update(x, m)
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
		c = &conversation{b: rows.New(id, agentName), conn: d.conn, tools: make(map[string]*tool), summaries: make(map[string]string)}
		c.b.See(at)
		d.sessions[id] = c
		d.order = append(d.order, c)
		for i := range d.early {
			c.b.See(d.early[i].at)
			c.part(logData(&d.early[i], true), d.early[i].at)
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

// fits says whether a result has the shape that the method of an agent's request
// wants.
func fits(method string, result json.RawMessage) bool {
	o, err := rows.Parse(result)
	if err != nil {
		return false
	}
	switch method {
	case methodPermission:
		return o.Has("outcome")
	case "fs/read_text_file":
		return o.Has("content")
	case "terminal/create":
		return o.Has("terminalId")
	case "terminal/output":
		return o.Has("output")
	}
	return !o.Has("stopReason") && !o.Has("sessionId") && !o.Has("protocolVersion")
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
	result, _ := rows.Parse(value) // nil when it is no object
	if x.method == methodNew && m.err == nil {
		if id := result.Text("sessionId"); id != "" {
			d.created(x, result, m.at)
			return
		}
	}
	if result != nil {
		value = result.JSON()
	}
	x.data.Set(key, value)
	if x.c != nil {
		d.current = x.c
		x.c.b.See(m.at)
	}
	switch x.method {
	case methodInitialize:
		if m.err == nil {
			d.conn.initialize = x.data.Without("method")
		} else {
			d.conn.others = append(d.conn.others, x)
		}
	case methodNew:
		d.conn.others = append(d.conn.others, x)
	case methodLoad, methodResume:
		if x.c == nil {
			break
		}
		if x.c.replayed > 0 {
			d.problem("session/load replayed %d updates of what is already there: left out", x.c.replayed)
		}
		x.c.replaying, x.c.replayed = false, 0
		x.c.acp.Set("load", x.data)
		d.opened(x.c, x.data.Object("params"), result)
	case methodPrompt:
		if x.c != nil {
			d.promptEnd(x, m, result)
		}
	case methodPermission:
		if x.ask != nil {
			d.outcome(x, m, result)
		}
	}
	if x.part != nil {
		data := x.part.Data()
		inner := data.Object("data")
		if x.method == methodPermission && key == "result" {
			if outcome := result.Get("outcome"); outcome != nil {
				inner.Set("outcome", outcome)
			}
			if rest := result.Without("outcome"); len(rest) > 0 {
				inner.Set("response", rest)
			}
		} else {
			inner.Set(key, value)
		}
		data.Set("data", inner)
		x.part.Set(data)
		x.part.Touch(m.at)
	}
}

// created begins the session that session/new made.
func (d *decoder) created(x *exchange, result rows.Object, at int64) {
	c := d.session(result.Text("sessionId"), x.at)
	d.current = c
	c.b.See(at)
	x.data.Set("result", result)
	c.acp.Set("new", x.data.Without("method"))
	d.opened(c, x.data.Object("params"), result)
}

func (d *decoder) opened(c *conversation, params, result rows.Object) {
	if cwd := params.Text("cwd"); cwd != "" {
		c.b.Row.WorkspaceRoot = &cwd
	}
	if mode := result.Object("modes").Text("currentModeId"); mode != "" {
		c.b.Row.Mode = &mode
	}
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

func (d *decoder) userPrompt(c *conversation, m *message) {
	c.close()
	c.turns++
	c.user, c.assistant, c.prompting = c.b.Message(session.RoleUser, m.at), nil, true
	c.prompt, c.echo = "", ""
	c.promptAt, c.promptTimed = m.at, m.timed
	for _, raw := range rows.Elements(m.params.Get("prompt")) {
		data := contentData("text", userChunk, raw, nil)
		c.user.Part(data, m.at)
		if data.Text("type") == "text" {
			c.prompt += data.Text("text")
		}
	}
	if rest := m.params.Without("sessionId", "prompt"); len(rest) > 0 {
		c.user.SetMeta("acp", rows.Object{{Key: "params", Value: rest.JSON()}})
	}
}

// promptEnd ends a turn. In version 2 of the protocol the response only says that
// the prompt was accepted.
func (d *decoder) promptEnd(x *exchange, m *message, result rows.Object) {
	c := x.c
	c.close()
	stop := result.Text("stopReason")
	if m.err == nil && stop == "" {
		if c.user != nil && result != nil {
			o := c.user.Meta("acp")
			o.Set("result", result)
			c.user.SetMeta("acp", o)
		}
		return
	}
	c.prompting = false
	reply := c.reply(m.at)
	reply.Touch(m.at)
	if m.timed && m.at >= x.at {
		reply.SetTrace("duration_ms", m.at-x.at)
	}
	if m.err != nil {
		failTurn(reply, m.err)
		reply.SetMeta("acp", rows.Object{{Key: "error", Value: m.err}})
		return
	}
	endTurn(reply, stop)
	if usage := result.Get("usage"); usage != nil && result.Has("usage") {
		// Whether it counts the turn or the session the protocol does not say.
		reply.SetTrace("usage_raw", usage)
	}
	if rest := result.Without("stopReason"); len(rest) > 0 {
		reply.SetMeta("acp", rows.Object{{Key: "result", Value: rest.JSON()}})
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

// failTurn ends a turn with a JSON-RPC error. One that is no object is shown as it
// is.
func failTurn(m *rows.Message, raw json.RawMessage) {
	m.SetTrace("end_reason", "error")
	e, _ := rows.Parse(raw)
	text := e.Text("message")
	switch {
	case text != "":
	case string(raw) == "null":
		text = "the agent gave up and did not say why"
	default:
		text = string(raw)
	}
	m.SetTrace("error", text)
}

// other keeps a message that has no meaning of its own here.
func (d *decoder) other(x *exchange, m *message) {
	c := x.c
	if c == nil && m.method == methodLog || c == nil && m.method[0] == '$' {
		c = d.current
	}
	switch {
	case c == nil && m.method == methodLog && m.odd == nil:
		// It goes to the first session that begins.
		d.early = append(d.early, *m)
		return
	case c == nil:
		if m.from == agent {
			x.data.Set("from", "agent")
		}
		if m.id == "" {
			x.data.Set("notification", true)
		}
		d.conn.others = append(d.conn.others, x)
		return
	}
	c.b.See(m.at)
	if m.method == methodLog && m.odd == nil {
		x.part = c.part(logData(m, x.c == nil), m.at)
		return
	}
	typ := methodType(m.method, m.id != "")
	data := x.data
	if typ == typeRequest || typ == typeNotification {
		data = append(rows.Object{{Key: "from", Value: json.RawMessage(`"` + m.from.String() + `"`)}}, data...)
	}
	x.part = c.part(dataPart(typ, data), m.at)
}

// logData is the part of a log notification. One of no session stands with the
// session that was going on.
func logData(m *message, connection bool) rows.Object {
	data := dataPart(typeLog, m.params.Without("sessionId"))
	if connection {
		data.Set("acp", rows.Object{{Key: "connection", Value: json.RawMessage("true")}})
	}
	return data
}

func (d *decoder) finish(c *conversation) *codec.Session {
	c.close()
	for _, q := range c.asked {
		if t := c.tools[q.toolID]; t != nil {
			q.decision.PartID, q.decision.ToolID = t.part.Row.ID, toolName(t.call)
			t.asked = &q.approval
		}
		c.b.Decisions = append(c.b.Decisions, q.decision)
	}
	for _, t := range c.order {
		t.part.Set(toolData(t.id, t.call, t.asked))
		t.call = nil // told
	}
	result := c.conn.initialize.Object("result")
	if name := result.Object("agentInfo").Text("name"); name != "" {
		c.b.Row.Agent = name
	} else if name := result.Object("info").Text("name"); name != "" {
		c.b.Row.Agent = name // version 2 of the protocol
	}
	// A session has the key, whatever stands under it, when it came from a trace.
	o := rows.Object{}
	if c.conn.initialize != nil {
		o.Set("initialize", c.conn.initialize)
	}
	if c.conn.others != nil {
		var all []rows.Object
		for _, x := range c.conn.others {
			all = append(all, x.data)
		}
		o.Set("connection", all)
	}
	c.b.SetMeta("acp", append(o, c.acp...))
	return c.b.Finish()
}
