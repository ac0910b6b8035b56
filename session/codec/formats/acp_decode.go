package formats

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

// acpDecode yields the sessions in the trace, in the order in which they begin. The
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
func acpDecode(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return rows.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		t, err := acpReadMessages(r, report)
		for _, s := range acpSessions(t, report) {
			yield(s)
		}
		return err
	})
}

// acpDecode builds the sessions. Messages are dropped as they become rows, for a trace may
// be large.
func acpSessions(messages []acpMessage, report func(codec.Problem)) (all []*codec.Session) {
	d := &acpDecoder{report: report, sessions: make(map[string]*acpConversation), conn: acpNewConnection()}
	for i := range messages {
		d.message(&messages[i])
		messages[i] = acpMessage{}
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

// acpConnection is what the two sides know before there is a session.
type acpConnection struct {
	version int                        // of the protocol
	agent   string                     // its name
	pending [3]map[string]*acpExchange // requests by sender and id
}

func acpNewConnection() *acpConnection {
	c := &acpConnection{version: 1}
	for i := range c.pending {
		c.pending[i] = make(map[string]*acpExchange)
	}
	return c
}

// acpExchange is a request that waits for its response.
type acpExchange struct {
	method string
	params rows.Object
	at     int64
	line   int
	c      *acpConversation // whose it is, if any
	part   *rows.Part       // that shows it, if any
	ask    *acpQuestion
}

// acpQuestion is a request for permission. One that was canceled has no answer.
type acpQuestion struct {
	decision                     store.Decision
	toolID                       string // the call's id in the protocol
	options                      []rows.Object
	answered, approved, canceled bool
}

// acpTool is a tool call.
type acpTool struct {
	id    string
	part  *rows.Part
	call  rows.Object
	asked *acpQuestion
}

// acpConversation is a session being read.
type acpConversation struct {
	b    *rows.Session
	conn *acpConnection

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
	tools     map[string]*acpTool
	order     []*acpTool
	asked     []*acpQuestion
	summaries map[string]string // of compactions, by id
}

type acpDecoder struct {
	report func(codec.Problem)
	line   int

	conn     *acpConnection
	sessions map[string]*acpConversation
	order    []*acpConversation
	current  *acpConversation // the last that anything was reported of
	early    []acpMessage     // logs from before there was a session
}

func (d *acpDecoder) problem(format string, args ...any) {
	d.report(codec.Problem{Line: d.line, Reason: fmt.Sprintf(format, args...)})
}

func (d *acpDecoder) message(m *acpMessage) {
	d.line = m.line
	if m.response() {
		d.response(m)
		return
	}
	if m.odd != nil {
		d.problem("params of %s is not an object", m.method)
	}
	x := &acpExchange{method: m.method, params: m.params, at: m.at, line: m.line}
	if m.method == acpMethodInitialize {
		d.conn = acpNewConnection()
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
	case acpMethodInitialize, acpMethodNew:
	case acpMethodLoad, acpMethodResume:
		if x.c != nil {
			x.c.replaying = m.method == acpMethodLoad && x.c.turns > 0
		}
	case acpMethodPrompt, acpMethodUpdate, acpMethodPermission:
		switch {
		case x.c == nil:
			d.problem("%s names no session", m.method)
		case m.method == acpMethodPrompt:
			d.userPrompt(x.c, m)
		case m.method == acpMethodUpdate:
			d.update(x.c, m)
		default:
			d.permission(x, m)
		}
	default:
		d.other(x, m)
	}
}

func (d *acpDecoder) session(id string, at int64) *acpConversation {
	c := d.sessions[id]
	if c == nil {
		c = &acpConversation{
			b: rows.New(id, acpAgentName), conn: d.conn, arrived: make(map[string]bool),
			tools: make(map[string]*acpTool), summaries: make(map[string]string),
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
func (d *acpDecoder) answer(m *acpMessage) *acpExchange {
	var from, to = acpAgent, acpClient
	if m.from == acpClient {
		from, to = acpClient, acpAgent
	}
	lists := []acpSide{to, acpUnknown}
	if m.from == acpUnknown {
		lists = []acpSide{to, from, acpUnknown}
		if a, b := d.conn.pending[acpClient][m.id], d.conn.pending[acpAgent][m.id]; a != nil && b != nil {
			// An error has no shape: it is for the later of the two.
			if m.err != nil && b.line > a.line || m.err == nil && acpFits(b.method, m.result) {
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

// acpFits reports whether a result has the shape that the method of an agent's request
// wants.
func acpFits(method string, result json.RawMessage) bool {
	o, err := rows.Parse(result)
	if err != nil {
		return false
	}
	if field := acpResultFields[method]; field != "" {
		return o.Has(field)
	}
	return !o.Has("stopReason") && !o.Has("sessionId") && !o.Has("protocolVersion")
}

// acpResultFields are fields of the results of an agent's requests.
var acpResultFields = map[string]string{
	acpMethodPermission: "outcome", "fs/read_text_file": "content",
	"terminal/create": "terminalId", "terminal/output": "output",
}

func (d *acpDecoder) response(m *acpMessage) {
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
	if id := result.Text("sessionId"); x.c == nil && x.method == acpMethodNew && id != "" {
		x.c = d.session(id, x.at)
	}
	if x.method == acpMethodInitialize && m.err == nil {
		d.conn.opened(result)
	}
	if x.c == nil {
		return
	}
	d.current = x.c
	x.c.b.See(m.at)
	switch x.method {
	case acpMethodNew:
		x.c.opened(x.params, result)
	case acpMethodLoad, acpMethodResume:
		if x.c.replayed > 0 {
			d.problem("session/load replayed %d updates of what is already there: left out", x.c.replayed)
		}
		x.c.replaying, x.c.replayed = false, 0
		x.c.opened(x.params, result)
	case acpMethodPrompt:
		d.promptEnd(x, m, result)
	case acpMethodPermission:
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

func (c *acpConnection) opened(result rows.Object) {
	// Version 2 of the protocol has the name under info.
	c.agent = cmp.Or(result.Object("agentInfo").Text("name"), result.Object("info").Text("name"))
	if string(result.Get("protocolVersion")) == "2" {
		c.version = 2
	}
}

func (c *acpConversation) opened(params, result rows.Object) {
	rows.SetText(&c.b.Row.WorkspaceRoot, params.Text("cwd"))
	rows.SetText(&c.b.Row.Mode, result.Object("modes").Text("currentModeId"))
}

// reply returns the turn's assistant message.
func (c *acpConversation) reply(at int64) *rows.Message {
	if c.assistant == nil {
		c.assistant = c.b.Message(session.RoleAssistant, at)
		if c.turns > 0 {
			c.assistant.SetTrace("turn_index", c.turns-1)
		}
	}
	return c.assistant
}

// part adds a part to the turn's assistant message.
func (c *acpConversation) part(data rows.Object, at int64) *rows.Part {
	c.close()
	return c.reply(at).Part(data, at)
}

// log adds a log. Before the first prompt it is part of no turn. A log of the whole connection has null as its session.
func (c *acpConversation) log(params rows.Object, at int64) *rows.Part {
	data := params.Without("sessionId")
	if !params.Has("sessionId") {
		data.Set("sessionId", nil)
	}
	part := rows.DataPart(acpTypeLog, data)
	if c.user != nil || c.assistant != nil {
		return c.part(part, at)
	}
	if all := c.b.Messages(); len(all) > 0 && all[len(all)-1].Row.Role == session.RoleSystem {
		return all[len(all)-1].Part(part, at)
	}
	return c.b.Message(session.RoleSystem, at).Part(part, at)
}

func (d *acpDecoder) userPrompt(c *acpConversation, m *acpMessage) {
	c.close()
	c.turns++
	c.user, c.assistant = c.b.Message(session.RoleUser, m.at), nil
	c.prompt, c.echo = "", ""
	c.promptAt, c.promptTimed = m.at, m.timed
	for _, raw := range rows.Elements(m.params.Get("prompt")) {
		data := acpContentData("text", raw)
		c.user.Part(data, m.at)
		if data.Text("type") == "text" {
			c.prompt += data.Text("text")
		}
	}
}

// promptEnd ends a turn. In version 2 of the protocol the response only reports that
// the prompt was accepted.
func (d *acpDecoder) promptEnd(x *acpExchange, m *acpMessage, result rows.Object) {
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
		acpFailTurn(reply, m.err)
		return
	}
	acpEndTurn(reply, stop)
	if usage := result.Get("usage"); usage != nil && result.Has("usage") {
		// Whether it counts the turn or the session the protocol does not say.
		reply.SetTrace("usage_raw", usage)
	}
}

func acpEndTurn(m *rows.Message, stop string) {
	m.SetTrace("stop_reason", stop)
	reason := "finish"
	if stop == "cancelled" {
		reason = "abort"
	}
	m.SetTrace("end_reason", reason)
}

// acpFailTurn ends a turn with a JSON-RPC error. One that is not an object is shown as it
// is.
func acpFailTurn(m *rows.Message, raw json.RawMessage) {
	m.SetTrace("end_reason", "error")
	text := string(raw)
	if text == "null" {
		text = "the agent gave up without a reason"
	}
	m.SetTrace("error", cmp.Or(rows.Read(string(raw)).Text("message"), text))
}

// other keeps a message of a session that has no meaning of its own here. Logs may come without
// a session: they are of the current one, or else of the first that begins.
func (d *acpDecoder) other(x *acpExchange, m *acpMessage) {
	isLog := m.method == acpMethodLog && m.odd == nil
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
		typ := acpMethodType(m.method, m.id != "")
		if typ == acpTypeRequest || typ == acpTypeNotification {
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

func (d *acpDecoder) finish(c *acpConversation) *codec.Session {
	c.close()
	for _, q := range c.asked {
		if t := c.tools[q.toolID]; t != nil {
			q.decision.PartID, q.decision.ToolID = t.part.Row.ID, acpToolName(t.call)
			t.asked = q
		}
		c.b.Decisions = append(c.b.Decisions, q.decision)
	}
	for _, t := range c.order {
		t.part.Set(acpToolData(t.id, t.call, t.asked))
		t.call = nil
	}
	c.b.Row.Agent = cmp.Or(c.conn.agent, acpAgentName)
	c.b.SetMeta("acp", rows.Of("protocolVersion", c.conn.version))
	return c.b.Finish()
}
