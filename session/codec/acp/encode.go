package acp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Encode writes the session to w as a trace of its own, a message per line as
// over stdio, from initialize on.
//
// Encode refuses rows without an id or under a row that they do not name (see
// [session.Transcript.CheckTree]), and then writes nothing.
func Encode(w io.Writer, s *codec.Session) error {
	if err := s.CheckTree(); err != nil {
		return fmt.Errorf("encode session %s: %w", s.Session.ID, err)
	}
	if _, err := w.Write(encode(s)); err != nil {
		return fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return nil
}

// encode returns the trace.
func encode(s *codec.Session) []byte {
	t := s.Sorted()
	e := &encoder{s: s, t: t, acp: metaOfSession(s), ids: make(map[string]string)}
	e.foreign = e.acp == nil
	e.version2 = string(e.acp.Object("initialize").Object("result").Get("protocolVersion")) == "2"
	if e.foreign {
		e.nameCalls()
	}
	e.session()
	for i := range t.Messages {
		e.message(&t.Messages[i])
	}
	return e.out
}

type encoder struct {
	s        *codec.Session
	t        *session.Transcript
	acp      rows.Object // metadata_json.acp
	version2 bool
	foreign  bool // the session never was a trace
	out      []byte
	// ids are the ids of the calls whose own id another one has, by part.
	ids map[string]string

	clientID, agentID int
	prompt            string // the id of the prompt that has no response yet
}

// nameCalls gives calls that have the id of another one ids of their own, by which the
// protocol tells them apart.
func (e *encoder) nameCalls() {
	seen := make(map[string]int)
	for i := range e.t.Messages {
		for j := range e.t.Messages[i].Parts {
			p := &e.t.Messages[i].Parts[j]
			if p.ToolCallID == nil {
				continue
			}
			if seen[*p.ToolCallID]++; seen[*p.ToolCallID] > 1 {
				e.ids[p.ID] = fmt.Sprintf("%s#%d", *p.ToolCallID, seen[*p.ToolCallID])
			}
		}
	}
}

// callID returns the id that a call has in the trace.
func (e *encoder) callID(p *session.Part) string { return cmp.Or(e.ids[p.ID], *p.ToolCallID) }

func (e *encoder) line(o rows.Object) { e.out = append(append(e.out, o.JSON()...), '\n') }

func envelope() rows.Object {
	return rows.Object{{Key: "jsonrpc", Value: json.RawMessage(`"2.0"`)}}
}

func (e *encoder) notify(method string, params rows.Object) {
	o := envelope()
	o.Set("method", method)
	o.Set("params", params)
	e.line(o)
}

// request writes a request and returns its id. The ids of the two sides differ,
// so that a response can be told to whom it goes.
func (e *encoder) request(from side, method string, params any) string {
	var id string
	if from == agent {
		id = strconv.Quote("a" + strconv.Itoa(e.agentID))
		e.agentID++
	} else {
		id = strconv.Itoa(e.clientID)
		e.clientID++
	}
	o := envelope()
	o.Set("id", json.RawMessage(id))
	o.Set("method", method)
	if raw, ok := params.(json.RawMessage); !ok || raw != nil {
		o.Set("params", params)
	}
	e.line(o)
	return id
}

func (e *encoder) respond(id, key string, value json.RawMessage) {
	o := envelope()
	o.Set("id", json.RawMessage(id))
	o.Set(key, value)
	e.line(o)
}

// exchange writes {method, params, result or error} as it was kept.
func (e *encoder) exchange(from side, o rows.Object, request bool) {
	if request {
		e.answer(e.begin(from, o.Text("method"), o), o)
		return
	}
	params := o.Object("params")
	if params == nil {
		n := envelope()
		n.Set("method", o.Text("method"))
		if raw := o.Get("params"); raw != nil {
			n.Set("params", raw)
		}
		e.line(n)
		return
	}
	e.notify(o.Text("method"), params)
}

// begin writes the request of an exchange with the params that it had.
func (e *encoder) begin(from side, method string, o rows.Object) string {
	if params := o.Object("params"); params != nil {
		return e.request(from, method, params)
	}
	return e.request(from, method, o.Get("params"))
}

func (e *encoder) answer(id string, o rows.Object) {
	for _, key := range [...]string{"result", "error"} {
		if value := o.Get(key); value != nil {
			e.respond(id, key, value)
			return
		}
	}
}

func (e *encoder) session() {
	row := &e.t.Session
	start := e.acp.Object("initialize")
	if e.foreign {
		start = e.initialize()
	}
	if start != nil {
		e.answer(e.begin(client, methodInitialize, start), start)
	}
	for _, raw := range rows.Elements(e.acp.Get("connection")) {
		if o, err := rows.Parse(raw); err == nil && o.Text("method") != "" {
			from := client
			if o.Text("from") == "agent" {
				from = agent
			}
			e.exchange(from, o, string(o.Get("notification")) != "true")
		}
	}
	begin, load := e.acp.Object("new"), e.acp.Object("load")
	if e.foreign {
		cwd := "/"
		if row.WorkspaceRoot != nil {
			cwd = *row.WorkspaceRoot
		}
		params := rows.Object{}
		params.Set("cwd", cwd)
		params.Set("mcpServers", json.RawMessage("[]"))
		begin.Set("params", params)
	}
	if begin != nil {
		id := e.begin(client, methodNew, begin)
		result := begin.Object("result")
		result.Set("sessionId", row.ID)
		e.respond(id, "result", result.JSON())
	}
	if load != nil {
		method := load.Text("method")
		if method != methodResume {
			method = methodLoad
		}
		params := load.Object("params")
		params.Set("sessionId", row.ID)
		e.answer(e.request(client, method, params), load)
	}
	if e.foreign && row.Title != session.Untitled {
		update := rows.Object{}
		update.Set("sessionUpdate", "session_info_update")
		update.Set("title", row.Title)
		e.update(update, nil)
	}
}

// initialize makes up the beginning of a trace for a session that had none. The
// client can do what the trace goes on to send it.
func (e *encoder) initialize() rows.Object {
	logs, notices, compactions := false, false, false
	for i := range e.t.Messages {
		for j := range e.t.Messages[i].Parts {
			switch e.t.Messages[i].Parts[j].Type {
			case typeLog:
				logs = true
			case "data-notice":
				notices = true
			case session.TypeCompaction:
				compactions = true
			}
		}
	}
	var can, inSession rows.Object
	can = rows.Object{}
	none := json.RawMessage("{}")
	if notices {
		inSession.Set("notices", none)
	}
	if compactions {
		inSession.Set("compaction", none)
	}
	if inSession != nil {
		can.Set("session", inSession)
	}
	if logs {
		can.Set("logging", none)
	}
	var params, info, result, o rows.Object
	params.Set("protocolVersion", 1)
	params.Set("clientCapabilities", can)
	info.Set("name", e.t.Session.Agent)
	info.Set("version", "0")
	result.Set("protocolVersion", 1)
	result.Set("agentCapabilities", none)
	result.Set("authMethods", json.RawMessage("[]"))
	result.Set("agentInfo", info)
	o.Set("params", params)
	o.Set("result", result)
	return o
}

func (e *encoder) update(update, extra rows.Object) {
	params := rows.Object{}
	params.Set("sessionId", e.t.Session.ID)
	params.Set("update", update)
	for _, f := range extra {
		if f.Key != "sessionId" && f.Key != "update" {
			params.Set(f.Key, f.Value)
		}
	}
	e.notify(methodUpdate, params)
}

func (e *encoder) message(m *session.MessageAndParts) {
	meta, _ := rows.Parse([]byte(m.Message.MetadataJSON)) // not an object: nothing is known
	own := meta.Object("acp")
	parts := make([]rows.Object, len(m.Parts))
	for j := range m.Parts {
		parts[j], _ = rows.Parse([]byte(m.Parts[j].DataJSON)) // of what is unreadable nothing is known
	}
	switch {
	case m.Message.Role == session.RoleUser && string(own.Get("replayed")) == "true":
		for j := range m.Parts {
			if kind := m.Parts[j].Type; kind == "text" || kind == "file" || kind == typeContent || kind == session.TypeWithheld {
				e.chunk(userChunk, &m.Parts[j], parts[j])
			} else {
				e.other(&m.Parts[j], parts[j])
			}
		}
	case m.Message.Role == session.RoleUser:
		e.user(m, parts, own)
	case m.Message.Role == session.RoleAssistant:
		e.assistant(m, parts)
	}
	if m.Message.Role == session.RoleAssistant {
		e.promptEnd(meta.Object("agenttrace"), own)
	}
}

func quoted(s string) json.RawMessage {
	raw, _ := rows.Marshal(s) // a string always has JSON
	return raw
}

// block returns the content block of a part, nil when the protocol has none for it.
// What a session that was no trace calls content is not known to be one.
func (e *encoder) block(p *session.Part, data rows.Object) rows.Object {
	if e.foreign && p.Type == typeContent {
		return nil
	}
	return contentBlock(data)
}

// user writes a prompt. What of the message has no content block follows it.
func (e *encoder) user(m *session.MessageAndParts, parts []rows.Object, own rows.Object) {
	blocks := []rows.Object{}
	for j := range m.Parts {
		block := e.block(&m.Parts[j], parts[j])
		if block == nil || m.Parts[j].Type == "reasoning" {
			continue
		}
		blocks = append(blocks, block)
	}
	params := rows.Object{}
	params.Set("sessionId", e.t.Session.ID)
	params.Set("prompt", blocks)
	for _, f := range own.Object("params").Without("sessionId", "prompt") {
		params.Set(f.Key, f.Value)
	}
	e.prompt = e.request(client, methodPrompt, params)
	if result := own.Get("result"); result != nil {
		// Version 2 of the protocol: the prompt was accepted.
		e.respond(e.prompt, "result", result)
		e.prompt = ""
	}
	for j := range m.Parts {
		if m.Parts[j].Type == "reasoning" || e.block(&m.Parts[j], parts[j]) == nil {
			e.other(&m.Parts[j], parts[j])
		}
	}
}

// stopReasons are those of the protocol.
var stopReasons = []string{"end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"}

func (e *encoder) promptEnd(trace, own rows.Object) {
	if e.prompt == "" {
		return
	}
	if raw := own.Get("error"); raw != nil {
		e.respond(e.prompt, "error", raw)
		e.prompt = ""
		return
	}
	stop := trace.Text("stop_reason")
	end := trace.Text("end_reason")
	if stop == "" && end == "" {
		return
	}
	if own == nil && (string(trace.Get("pending_approval")) == "true" || end == "") {
		// The turn waits for a human, or was not seen to end: what its last call of a model
		// stopped for did not end it. A prompt that has no response says so.
		return
	}
	if e.foreign && own == nil && end == semconv.EndAbort {
		stop = "cancelled" // whatever the model had stopped for before
	}
	if !slices.Contains(stopReasons, stop) {
		if end == "error" {
			o := rows.Object{}
			o.Set("code", -32603)
			o.Set("message", trace.Text("error"))
			e.respond(e.prompt, "error", o.JSON())
			e.prompt = ""
			return
		}
		stop = stopReason(stop, end)
	}
	o := rows.Object{}
	o.Set("stopReason", stop)
	for _, f := range own.Object("result").Without("stopReason") {
		o.Set(f.Key, f.Value)
	}
	e.respond(e.prompt, "result", o.JSON())
	e.prompt = ""
}

// stopReason translates the words of models and providers.
func stopReason(stop, end string) string {
	if end == semconv.EndAbort {
		return "cancelled"
	}
	switch strings.ReplaceAll(strings.ToLower(stop), "-", "_") {
	case "length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded":
		return "max_tokens"
	case "content_filter", "refusal", "safety", "prohibited_content", "blocklist", "recitation", "guardrail_intervened", "sensitive":
		return "refusal"
	case "max_steps", "max_turns", "max_turn_requests", "limit":
		return "max_turn_requests"
	}
	return "end_turn"
}

func (e *encoder) assistant(m *session.MessageAndParts, parts []rows.Object) {
	// A call is not over before the last question about it.
	lastAsked := make(map[string]int)
	for j := range parts {
		if m.Parts[j].Type == typePermission {
			lastAsked[askedAbout(parts[j].Object("data"))] = j
		}
	}
	type ending struct {
		at     int64
		update rows.Object
	}
	ends := make(map[int][]ending)
	for j := range m.Parts {
		p, data := &m.Parts[j], parts[j]
		switch {
		case p.Type == "text" || p.Type == "reasoning" || p.Type == "file" || p.Type == session.TypeWithheld || p.Type == typeContent && e.block(p, data) != nil:
			kind := agentChunk
			if p.Type == "reasoning" {
				kind = thoughtChunk
			}
			if k := metaOf(data).Text("kind"); k != "" {
				kind = k
			}
			e.chunk(kind, p, data)
		case p.ToolCallID != nil && session.IsToolType(p.Type) && *p.ToolCallID != "":
			if end := e.tool(p, data, lastAsked[*p.ToolCallID] > j); end != nil {
				after := max(lastDuring(m, j), lastAsked[*p.ToolCallID])
				ends[after] = append(ends[after], ending{p.UpdatedAt, end})
			}
		case p.Type == typePermission && isQuestion(data.Object("data"), e.foreign):
			e.permission(p, data)
		default:
			e.other(p, data)
		}
		slices.SortStableFunc(ends[j], func(a, b ending) int { return cmp.Compare(a.at, b.at) })
		for _, end := range ends[j] {
			e.toolUpdate(end.update)
		}
	}
}

// lastDuring returns the last of the parts that came while the call at j was
// open: those that began before it ended and before the model spoke again, which
// it does with the result. Files and terminals that come with a call are the work
// of it, also where nobody knows the time.
func lastDuring(m *session.MessageAndParts, j int) int {
	end := m.Parts[j].UpdatedAt
	for k := j + 1; k < len(m.Parts); k++ {
		p := &m.Parts[k]
		isCall := p.ToolCallID != nil
		if p.CreatedAt > end || p.CreatedAt == end && p.Type != typeFS && p.Type != typeTerminal || !isCall && !strings.HasPrefix(p.Type, "data-") {
			return k - 1
		}
	}
	return len(m.Parts) - 1
}

func (e *encoder) chunk(kind string, p *session.Part, data rows.Object) {
	meta := metaOf(data)
	extra := meta.Object("chunk")
	block := contentBlock(data)
	update := rows.Object{}
	update.Set("sessionUpdate", kind)
	update.Set("content", block)
	for _, f := range extra.Without("sessionUpdate", "content", "params") {
		update.Set(f.Key, f.Value)
	}
	e.update(update, extra.Object("params"))
	// What later chunks had beside their content goes with empty ones.
	for _, raw := range rows.Elements(meta.Get("chunks")) {
		extra, err := rows.Parse(raw)
		if err != nil || p.Type != "text" && p.Type != "reasoning" {
			continue
		}
		update := rows.Object{}
		update.Set("sessionUpdate", kind)
		update.Set("content", json.RawMessage(`{"type":"text","text":""}`))
		for _, f := range extra.Without("sessionUpdate", "content", "params") {
			update.Set(f.Key, f.Value)
		}
		e.update(update, extra.Object("params"))
	}
}

// other writes a part that is no text, file or call, if the protocol has a message for it.
func (e *encoder) other(p *session.Part, data rows.Object) {
	inner := data.Object("data")
	meta := metaOf(data)
	kind, isUpdate := updateKind(p, data, e.foreign)
	switch {
	case inner == nil:
	case p.Type == typeLog && isLog(inner, e.foreign):
		params := inner.Without()
		if string(meta.Get("connection")) != "true" || e.foreign {
			params = append(rows.Object{{Key: "sessionId", Value: quoted(e.t.Session.ID)}}, inner.Without("sessionId")...)
		}
		e.notify(methodLog, params)
	case p.Type == typeUpdate && inner.Text("sessionUpdate") != "" && !e.foreign:
		e.update(inner, meta)
	case p.Type == typeUpdate && inner.Has("update") && !e.foreign: // which was no object
		params := rows.Object{{Key: "sessionId", Value: quoted(e.t.Session.ID)}, {Key: "update", Value: inner.Get("update")}}
		e.notify(methodUpdate, append(params, meta.Without("sessionId", "update")...))
	case p.Type == session.TypeCompaction:
		e.compaction(p, data)
	case isUpdate:
		update := rows.Object{}
		update.Set("sessionUpdate", kind)
		update = append(update, inner.Without("sessionUpdate")...)
		e.update(update, meta)
	case !e.foreign && slices.Contains([]string{typeFS, typeTerminal, typeRequest, typeNotification}, p.Type) && inner.Text("method") != "" &&
		inner.Object("params") != nil:
		from := agent
		if inner.Text("from") == "client" {
			from = client
		}
		e.exchange(from, inner, p.Type != typeNotification)
	}
}

func (e *encoder) compaction(p *session.Part, data rows.Object) {
	update := rows.Object{}
	update.Set("sessionUpdate", "compaction_update")
	if own := data.Object("data").Object("acp"); own.Text("status") == "completed" {
		e.update(append(update, own.Without("sessionUpdate")...), nil)
		return
	}
	c, err := session.ParseCompaction(p.DataJSON)
	if err != nil {
		return
	}
	update.Set("compactionId", p.ID)
	update.Set("status", "completed")
	if c.Summary != "" {
		update.Set("summary", []rows.Object{{{Key: "type", Value: quoted("text")}, {Key: "text", Value: quoted(c.Summary)}}})
	}
	e.update(update, nil)
}
