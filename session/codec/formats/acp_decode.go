package formats

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// acpSessions returns the sessions in a trace, in the order in which they begin. One that the trace does not see begin,
// as when it is cut, is there with what is known of it. A text without any message is an error, unless it is empty.
func acpSessions(_ string, text []byte, report func(codec.Problem)) (all []*codec.Session, err error) {
	messages, err := acpMessages(text, report)
	d := &acpDecoder{Reporter: rows.Reporter{Report: report}, conn: acpNewConnection()}
	for i, m := range messages {
		d.message(m)
		messages[i] = nil // what waits for it holds it
	}
	if len(d.early) > 0 {
		d.Place = d.early[0].place
		d.Problem("%d logs of a connection without a session: left out", len(d.early))
	}
	for _, c := range d.order {
		all = append(all, c.finish())
	}
	return all, err
}

// acpConnection is what the two sides know before there is a session.
type acpConnection struct {
	version int                        // of the protocol
	agent   string                     // its name
	pending map[[2]string]*acpExchange // by who sent the request, and its id: each side numbers its own
}

func acpNewConnection() *acpConnection {
	return &acpConnection{version: 1, pending: make(map[[2]string]*acpExchange)}
}

// acpExchange is a request that waits for its response.
type acpExchange struct {
	*acpMessage
	c    *acpConversation // whose it is, if any
	part *rows.Part       // that shows it, if any
	ask  *acpQuestion
}

// acpQuestion is a request for permission. One that was canceled has no answer.
type acpQuestion struct {
	decision store.Decision
	canceled bool
}

// acpTool is a tool call.
type acpTool struct {
	id    string
	part  *rows.Part
	call  rows.Object
	asked *acpQuestion
	// began is when it was called, allowed, or in progress, whichever came last; ended when it first was over. Both are
	// 0 if that is not known.
	began, ended int64
}

// acpConversation is a session being read.
type acpConversation struct {
	b    *rows.Session
	conn *acpConnection

	turns     int64
	user      *rows.Message // of the turn
	assistant *rows.Message // of the turn, nil until something is said
	begun     *acpMessage   // the prompt of the turn, until it is known how long that took
	prompt    string        // its text, until the agent reports something else
	echo      string        // what of it came back
	replaying bool          // history comes that is already there
	replayed  int
	loading   bool     // history comes
	timed     bool     // the message being read has the time at which that happened
	resumed   bool     // there were turns that the trace does not have
	continued bool     // there were turns before the trace
	prompted  bool     // the trace has a prompt
	gone      bool     // the agent exited
	asking    int      // questions that are not answered
	trace     string   // of the turn
	traces    []string // of all turns

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
	rows.Reporter
	conn    *acpConnection
	order   []*acpConversation
	current *acpConversation // the last that anything was reported of
	early   []*acpMessage    // logs from before there was a session
}

func (d *acpDecoder) message(m *acpMessage) {
	d.Place = m.place
	if m.method == "" {
		d.response(m)
		return
	}
	if m.raw != nil && m.params == nil && string(m.raw) != "null" {
		d.Problem("params of %s is not an object", m.method)
	}
	x := &acpExchange{acpMessage: m}
	if m.method == acpMethodInitialize {
		d.conn = acpNewConnection()
	}
	if m.id != "" {
		d.conn.pending[[2]string{m.from, m.id}] = x
	}
	if id := m.params.Text("sessionId"); id != "" {
		d.current = d.session(id, m.at)
		x.c = d.current
		x.c.b.See(m.at)
		x.c.timed = m.timed && !x.c.loading
	}
	switch m.method {
	case acpMethodInitialize, acpMethodNew:
	case acpMethodLoad, acpMethodResume:
		if x.c != nil {
			x.c.loading = m.method == acpMethodLoad
			x.c.replaying = x.c.loading && x.c.turns > 0
		}
	case acpMethodLost:
		if c := d.current; c != nil {
			c.part(rows.DataPart("data-notice", rows.Of("severity", "warning",
				"title", "messages were not recorded", "messages", m.params.Get("messages"))), m.at)
		}
	case acpMethodEnded:
		for _, c := range d.order {
			c.gone = true
		}
	case acpMethodPrompt, acpMethodUpdate, acpMethodPermission:
		switch {
		case x.c == nil:
			d.Problem("%s names no session", m.method)
		case m.method == acpMethodPrompt:
			x.c.userPrompt(m)
		case m.method == acpMethodUpdate:
			d.update(x.c, m)
		default:
			x.c.permission(x)
		}
	default:
		d.other(x)
	}
}

func (d *acpDecoder) session(id string, at int64) *acpConversation {
	for _, c := range d.order {
		if c.b.Row.ID == id {
			return c
		}
	}
	c := &acpConversation{b: rows.New(id, "acp"), conn: d.conn, arrived: make(map[string]bool),
		tools: make(map[string]*acpTool), summaries: make(map[string]string)}
	c.b.See(at)
	d.order = append(d.order, c)
	for _, m := range d.early {
		c.b.See(m.at)
		c.log(m.params, m.at)
	}
	d.early = nil
	return c
}

// answer finds the request that a response is to: of those of both sides that wait for one of that id, the last.
func (d *acpDecoder) answer(m *acpMessage) (found *acpExchange) {
	for of, x := range d.conn.pending {
		asked := of[1] == m.id && (of[0] != m.from || m.from == acpUnknown)
		if asked && (found == nil || x.n > found.n) {
			found = x
		}
	}
	if found != nil {
		delete(d.conn.pending, [2]string{found.from, found.id})
	}
	return found
}

func (d *acpDecoder) response(m *acpMessage) {
	x := d.answer(m)
	if x == nil {
		d.Problem("response to no request that is there (id %s): left out", m.id)
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
		// Version 2 of the protocol has the name under info.
		d.conn.agent = cmp.Or(result.Object("agentInfo").Text("name"), result.Object("info").Text("name"))
		if string(result.Get("protocolVersion")) == "2" {
			d.conn.version = 2
		}
	}
	if x.c == nil {
		return
	}
	d.current = x.c
	x.c.b.See(m.at)
	switch x.method {
	case acpMethodNew, acpMethodLoad, acpMethodResume:
		if x.c.replayed > 0 {
			d.Problem("session/load replayed %d updates of what is already there: left out", x.c.replayed)
		}
		x.c.replaying, x.c.replayed, x.c.loading = false, 0, false
		continued := x.method != acpMethodNew && m.err == nil && !x.c.prompted
		x.c.continued, x.c.resumed = x.c.continued || continued, x.c.resumed || continued && x.c.turns == 0
		rows.SetText(&x.c.b.Row.WorkspaceRoot, x.params.Text("cwd"))
		rows.SetText(&x.c.b.Row.Mode, result.Object("modes").Text("currentModeId"))
	case acpMethodPrompt:
		x.c.promptEnd(x.acpMessage, m, result)
	case acpMethodPermission:
		d.outcome(x, m, result.Object("outcome"))
		if outcome := result.Get("outcome"); outcome != nil && m.err == nil {
			key, value = "outcome", outcome
		}
	}
	if x.part != nil {
		x.part.SetInner(key, value)
		x.part.Touch(m.at)
	}
}

// message adds a message. One that was said before the session was loaded has the time at which it was.
func (c *acpConversation) message(role string, at int64) *rows.Message {
	m := c.b.Message(role, at)
	if c.loading {
		m.SetTrace("replayed", true)
	}
	return m
}

// reply returns the turn's assistant message.
func (c *acpConversation) reply(at int64) *rows.Message {
	if c.assistant == nil {
		c.assistant = c.message(session.RoleAssistant, at)
		c.assistant.AddTrace(rows.NonEmpty("trace_id", c.trace))
		if c.turns > 0 && !c.resumed {
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

// close ends the part that chunks were added to.
func (c *acpConversation) close() {
	if c.open != nil {
		c.open.Set(rows.TextPart(c.open.Row.Type, string(c.text)))
	}
	c.open = nil
}

// log adds a log. One of the whole connection has null as its session.
func (c *acpConversation) log(params rows.Object, at int64) *rows.Part {
	data := params.Without("sessionId")
	if !params.Has("sessionId") {
		data.Set("sessionId", nil)
	}
	return c.notice(rows.DataPart(acpTypeLog, data), at)
}

// notice adds what an agent also sends outside of turns, such as its commands when the session begins: before the
// first prompt it is part of no turn.
func (c *acpConversation) notice(part rows.Object, at int64) *rows.Part {
	if c.user != nil || c.assistant != nil {
		return c.part(part, at)
	}
	if all := c.b.Messages; len(all) > 0 && all[len(all)-1].Row.Role == session.RoleSystem {
		return all[len(all)-1].Part(part, at)
	}
	return c.b.Message(session.RoleSystem, at).Part(part, at)
}

// turn begins a turn with a message of the user.
func (c *acpConversation) turn(at int64) {
	c.close()
	c.turns++
	c.user, c.assistant = c.message(session.RoleUser, at), nil
	c.prompt, c.echo, c.trace, c.begun = "", "", "", nil
}

func (c *acpConversation) userPrompt(m *acpMessage) {
	c.turn(m.at)
	c.begun, c.prompted = m, true
	parent := m.params.Object("_meta").Text("traceparent")
	if context := strings.Split(parent, "-"); len(context) == 4 && len(context[1]) == 32 {
		c.trace = context[1]
		c.traces = append(c.traces, c.trace)
		c.user.SetTrace("traceparent", parent)
	}
	for _, raw := range rows.Elements(m.params.Get("prompt")) {
		data := acpContentData("text", raw)
		c.user.Part(data, m.at)
		if data.Text("type") == "text" {
			c.prompt += data.Text("text")
		}
	}
}

// promptEnd ends a turn. In version 2 of the protocol the response only reports that the prompt was accepted.
func (c *acpConversation) promptEnd(prompt, m *acpMessage, result rows.Object) {
	c.close()
	stop := result.Text("stopReason")
	if m.err != nil {
		stop = ""
	} else if stop == "" {
		return
	}
	reply := c.reply(m.at)
	reply.Touch(m.at)
	acpTook(reply, prompt, m)
	acpEndTurn(reply, stop, m.err)
	if c.begun == prompt {
		c.begun = nil
	}
	if m.err == nil && result.Has("usage") {
		reply.SetTrace("usage_raw", result.Get("usage"))
		acpCount(reply, result.Get("usage"))
	}
}

// acpCount takes the usage of a turn. The protocol has the total as the sum of all counts; of an agent whose total is
// less, the input has what came from the cache, or the output has the reasoning.
func acpCount(m *rows.Message, raw json.RawMessage) {
	var u struct{ TotalTokens, InputTokens, OutputTokens, ThoughtTokens, CachedReadTokens, CachedWriteTokens int64 }
	if json.Unmarshal(raw, &u) != nil || u.InputTokens+u.OutputTokens == 0 {
		return
	}
	cached := u.CachedReadTokens + u.CachedWriteTokens
	usage := session.Usage{Input: u.InputTokens, Output: u.OutputTokens, Reasoning: u.ThoughtTokens,
		CacheRead: u.CachedReadTokens, CacheWrite: u.CachedWriteTokens}
	rest := u.TotalTokens - u.InputTokens - u.OutputTokens
	if rest == u.ThoughtTokens || rest == 0 {
		usage.Input -= cached
	}
	if rest == cached && rest != u.ThoughtTokens || rest == 0 {
		usage.Output -= u.ThoughtTokens
	}
	if usage.Input >= 0 && usage.Output >= 0 {
		m.AddMeta(rows.Of("usage", &usage))
	}
}

// acpTook notes how long after its prompt a turn ended.
func acpTook(m *rows.Message, prompt, end *acpMessage) {
	if prompt != nil && prompt.timed && end.timed && end.at >= prompt.at {
		m.SetTrace("duration_ms", end.at-prompt.at)
	}
}

// acpEndTurn ends a turn, maybe with a JSON-RPC error. One that is not an object is shown as it is.
func acpEndTurn(m *rows.Message, stop string, failure json.RawMessage) {
	m.AddTrace(rows.NonEmpty("stop_reason", stop))
	switch {
	case failure != nil:
		m.SetTrace("end_reason", semconv.EndError)
		text := string(failure)
		if text == "null" {
			text = "the agent gave up without a reason"
		}
		m.SetTrace("error", cmp.Or(rows.Read(string(failure)).Text("message"), text))
	case stop == "cancelled":
		m.SetTrace("end_reason", semconv.EndAbort)
	default:
		m.SetTrace("end_reason", semconv.EndFinish)
	}
}

// update takes a session/update.
func (d *acpDecoder) update(c *acpConversation, m *acpMessage) {
	if c.replaying {
		c.replayed++
		return
	}
	update := m.params.Object("update")
	kind := update.Text("sessionUpdate")
	switch {
	case update == nil:
		d.Problem("update is not an object: left out")
		return
	case c.content(kind, update, m.at):
		return
	case !slices.Contains(acpDataUpdates, kind):
		c.notice(rows.DataPart(acpTypeUpdate, update), m.at)
		return
	}
	// What the update reports of the session itself.
	switch kind {
	case "compaction_summary_chunk":
		c.summaries[update.Text("compactionId")] += update.Object("content").Text("text")
	case "session_info_update":
		c.b.Row.Title = cmp.Or(update.Text("title"), c.b.Row.Title)
	case "current_mode_update":
		rows.SetText(&c.b.Row.Mode, update.Text("currentModeId"))
	case "usage_update":
		cost := update.Object("cost")
		var amount float64
		if cost.Text("currency") == "USD" && json.Unmarshal(cost.Get("amount"), &amount) == nil && amount >= 0 {
			c.b.Row.CostUSD = amount
		}
	}
	turn := c.notice(rows.DataPart("data-"+kind, update.Without("sessionUpdate")), m.at).In
	if kind != "state_update" || update.Text("state") != "idle" {
		return
	}
	if stop := update.Text("stopReason"); stop != "" {
		var failure json.RawMessage
		if stop == "error" {
			failure = rows.OrNull(update.Get("error"))
		}
		acpEndTurn(turn, stop, failure)
		acpTook(turn, c.begun, m)
		acpCount(turn, update.Get("usage"))
	}
	c.begun = nil
}

// content takes an update of what is said or called, or a compaction that is completed, and reports whether it is one.
func (c *acpConversation) content(kind string, update rows.Object, at int64) bool {
	id, callID := update.Text("messageId"), update.Text("toolCallId")
	switch kind {
	case acpUserChunk, acpAgentChunk, acpThoughtChunk:
		if !update.Has("content") {
			return false
		}
		c.chunk(kind, id, update.Get("content"), at)
	case "user_message", "agent_message", "agent_thought":
		// Version 2 of the protocol: the chunks that it consists of, unless those are already there.
		blocks := rows.Elements(update.Get("content"))
		if id == "" || blocks == nil {
			return false
		}
		if !c.arrived[id] {
			for _, raw := range blocks {
				c.chunk(kind+"_chunk", id, raw, at)
			}
		}
	case "tool_call", "tool_call_update":
		if callID == "" {
			return false
		}
		c.tool(callID, update, at)
	case "tool_call_content_chunk":
		t := c.tools[callID]
		if t == nil || !update.Has("content") {
			return false
		}
		c.tool(t.id, rows.Of("content", append(rows.Elements(t.call.Get("content")), update.Get("content"))), at)
	case "compaction_update":
		if update.Text("status") != "completed" {
			return false
		}
		c.compaction(update, at)
	default:
		return false
	}
	return true
}

// chunk adds a chunk to the part that it continues, or begins one.
func (c *acpConversation) chunk(kind, id string, content json.RawMessage, at int64) {
	block := rows.Read(string(content))
	text, isText := block.Text("text"), acpIsText(block)
	if kind == acpUserChunk && isText && text != "" && c.prompt != "" && c.assistant == nil &&
		strings.HasPrefix(c.prompt, c.echo+text) {
		c.echo += text // the prompt that the agent was just given
		return
	}
	c.arrived[id] = true
	if c.open != nil && isText && c.openKind == kind && c.openID == id {
		c.text = append(c.text, text...)
		c.open.Touch(at)
		return
	}
	c.close()
	typ := "text"
	if kind == acpThoughtChunk {
		typ = "reasoning"
	}
	m := c.user
	switch {
	case kind != acpUserChunk:
		m, c.prompt = c.reply(at), ""
	case m == nil || c.assistant != nil || c.history != m || c.historyID != id: // another message that is replayed
		c.turn(at)
		m = c.user
		c.history, c.historyID = m, id
	}
	p := m.Part(acpContentData(typ, content), at)
	if isText && text != codec.WithheldText {
		c.open, c.openKind, c.openID, c.text = p, kind, id, []byte(text)
	}
}

// tool merges an update into the call that it is about.
func (c *acpConversation) tool(id string, update rows.Object, at int64) {
	c.close()
	c.prompt = ""
	t := c.tools[id]
	if t == nil {
		t = &acpTool{id: id, part: c.reply(at).Part(acpToolData(id, nil, nil), at)}
		c.tools[id] = t
		c.order = append(c.order, t)
	}
	if c.timed && t.ended == 0 {
		status := update.Text("status")
		if t.call == nil || status == "in_progress" && t.call.Text("status") != status {
			t.began = at
		} else if session.StateRank(acpStates[status]) >= session.StateRank(session.StateOutputAvailable) {
			t.ended = at
		}
	}
	t.call = acpMerge(t.call, update)
	t.part.Touch(at)
}

// took notes how long a call ran, unless it is not known whether it did.
func (t *acpTool) took() {
	refused := t.asked != nil && t.asked.decision.Outcome != "allowed"
	if t.began == 0 || t.ended < t.began || refused {
		return
	}
	t.part.SetToolTrace("duration_ms", t.ended-t.began)
	if t.began != t.part.Row.CreatedAt {
		t.part.SetToolTrace("started_at", t.began)
	}
}

// compaction gives a compaction an assistant message of its own, as the agent guide requires; the rest of the turn is
// in another.
func (c *acpConversation) compaction(update rows.Object, at int64) {
	c.close()
	summary := ""
	for block := range rows.Objects(update.Get("summary")) {
		summary += block.Text("text")
	}
	summary = cmp.Or(summary, c.summaries[update.Text("compactionId")])
	c.message(session.RoleAssistant, at).Part(rows.CompactionPart(summary, true), at)
	c.assistant = nil
}

// permission takes a question to the user.
func (c *acpConversation) permission(x *acpExchange) {
	id := acpAskedAbout(x.params)
	call := x.params.Object("toolCall")
	if call == nil {
		call = x.params.Object("subject").Object("toolCall") // version 2 of the protocol
	}
	if id != "" {
		c.tool(id, call, x.at)
	}
	x.part = c.part(rows.DataPart(acpTypePermission, x.params.Without("sessionId")), x.at)
	x.ask = &acpQuestion{decision: store.Decision{
		ID:        spans.DeriveID(spans.PrefixPermission, x.at, x.part.Row.ID),
		SessionID: c.b.Row.ID, MessageID: x.part.Row.MessageID, ToolCallID: id,
		ToolID: acpToolName(call), Action: "ask", Outcome: "pending", DecidedAt: x.at,
	}}
	c.asked = append(c.asked, x.ask)
	c.asking++
}

// acpAnswers are what the kinds of options mean, and that none was chosen.
var acpAnswers = map[string]struct{ outcome, reply, reason string }{
	"allow_once": {"allowed", "once", ""}, "allow_always": {"allowed", "always", ""},
	"reject_once": {"denied", "reject", ""}, "reject_always": {"denied", "reject", "reject_always"},
	"cancelled": {"denied", "", "cancelled"},
}

// outcome takes the answer to a question.
func (d *acpDecoder) outcome(x *acpExchange, m *acpMessage, outcome rows.Object) {
	q, o := x.ask, &x.ask.decision
	x.c.asking--
	kind, id := outcome.Text("outcome"), outcome.Text("optionId")
	if q.canceled = m.err != nil || kind == "cancelled"; m.err != nil {
		d.Problem("the question was answered with an error: its outcome is unknown")
		return
	}
	if kind == "selected" {
		kind = fmt.Sprintf("%q was not offered", id)
		for option := range rows.Objects(x.params.Get("options")) {
			if option.Text("optionId") == id {
				kind = option.Text("kind")
				break
			}
		}
	}
	a, known := acpAnswers[kind]
	if !known {
		d.Problem("option %s: the outcome is unknown", cmp.Or(kind, "of no kind"))
		return
	}
	o.Outcome, o.Reply, o.Reason, o.DecidedAt = a.outcome, a.reply, a.reason, m.at
	if m.timed && m.at >= x.at {
		o.WaitedMS = new(m.at - x.at)
	}
	if t := x.c.tools[o.ToolCallID]; t != nil && t.ended == 0 && t.began > 0 && m.timed && a.outcome == "allowed" {
		t.began = m.at
	}
}

// other keeps a message of a session that has no meaning of its own here. Logs may come without a session: they are of
// the current one, or else of the first that begins.
func (d *acpDecoder) other(x *acpExchange) {
	odd := x.params == nil && x.raw != nil && string(x.raw) != "null"
	isLog := x.method == acpMethodLog && !odd
	if x.c == nil && (isLog || x.method[0] == '$') {
		x.c = d.current
	}
	if x.c == nil {
		if isLog {
			d.early = append(d.early, x.acpMessage)
		}
		return
	}
	x.c.b.See(x.at)
	if isLog {
		x.part = x.c.log(x.params, x.at)
		return
	}
	typ, data := acpTypeRequest, rows.Of("from", x.from, "method", x.method)
	switch {
	case x.id == "":
		typ = acpTypeNotification
	case strings.HasPrefix(x.method, "fs/"):
		typ, data = acpTypeFS, data.Without("from")
	case strings.HasPrefix(x.method, "terminal/"):
		typ, data = acpTypeTerminal, data.Without("from")
	}
	if odd || x.params != nil {
		data.Set("params", x.raw)
	}
	x.part = x.c.part(rows.DataPart(typ, data), x.at)
}

// unfinished notes that the turn was under way where the trace ends: something with times shows when that was.
func (c *acpConversation) unfinished() {
	if c.begun == nil || !c.begun.timed {
		return
	}
	last := cmp.Or(c.assistant, c.user)
	last.SetTrace("incomplete", true)
	status := rows.Of("state", "busy", "at", last.Row.UpdatedAt)
	if c.asking > 0 {
		status.Set("state", "waiting_on_approval")
	}
	if c.gone {
		status.Set("heartbeat", 1) // which it misses from then on
	}
	c.b.SetMeta("status", status)
}

func (c *acpConversation) finish() *codec.Session {
	c.close()
	c.unfinished()
	for _, q := range c.asked {
		if t := c.tools[q.decision.ToolCallID]; t != nil {
			q.decision.PartID, q.decision.ToolID = t.part.Row.ID, acpToolName(t.call)
			t.asked = q
		}
		c.b.Decisions = append(c.b.Decisions, q.decision)
	}
	for _, t := range c.order {
		t.part.Set(acpToolData(t.id, t.call, t.asked))
		t.took()
	}
	c.b.Row.Agent = cmp.Or(c.conn.agent, "acp")
	c.b.SetMeta("acp", append(rows.Of("protocolVersion", c.conn.version), rows.NonEmpty("continued", c.continued)...))
	s := c.b.Finish()
	s.Traces = c.traces
	return s
}
