// AgentDbg: these files read and write the runs of AgentDbg, and of Maida, which is its later name: trace formats 0.1
// and 0.2. Maida from 0.4 on has 0.2, of spans. A run is a directory of two files, or the one JSON file that "agentdbg
// export" makes of it, and a session is one run. docs/formats.md lists what becomes what.

package formats

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// agentdbgFiles are those of a run of AgentDbg, and of one of Maida.
var agentdbgFiles = []string{"run.json", "events.jsonl", "meta.json", "spans.jsonl"}

// agentdbgUnknown is the model and the provider of a call without one.
const agentdbgUnknown = "unknown"

// Types of events. A span of no known type is read as the last one.
const (
	agentdbgRunStart, agentdbgRunEnd                             = "RUN_START", "RUN_END"
	agentdbgLlmCall, agentdbgToolCall                            = "LLM_CALL", "TOOL_CALL"
	agentdbgStateUpdate, agentdbgErrorEvent, agentdbgLoopWarning = "STATE_UPDATE", "ERROR", "LOOP_WARNING"
	agentdbgOtherSpan                                            = "SPAN"
)

// Statuses of a run.
const agentdbgStatusRunning, agentdbgStatusOK, agentdbgStatusError = "running", "ok", "error"

// Types of errors that are no exceptions of the agent's: an error of which no more is known, a turn that a person
// stopped, a turn or a call whose end is not known, and a call that was not allowed.
const (
	agentdbgPlainError, agentdbgInterrupted      = "Error", "Interrupted"
	agentdbgUnfinished, agentdbgPermissionDenied = "Unfinished", "PermissionDenied"
)

// Types of the parts for a message of a prompt, and for a response, in no known form.
const agentdbgDataPrompt, agentdbgDataResponse = "data-prompt", "data-response"

// agentdbgDataTypes are the parts that hold the whole payload of an event.
var agentdbgDataTypes = map[string]string{
	agentdbgStateUpdate: "data-state", agentdbgErrorEvent: session.TypeError, agentdbgLoopWarning: "data-loop-warning",
}

// agentdbgEvent is an event of a run, as a line of events.jsonl has it.
type agentdbgEvent struct {
	SpecVersion string      `json:"spec_version"`
	EventID     string      `json:"event_id"`
	RunID       string      `json:"run_id"`
	ParentID    *string     `json:"parent_id"`
	EventType   string      `json:"event_type"`
	TS          string      `json:"ts"`
	DurationMS  *int64      `json:"duration_ms"`
	Name        string      `json:"name"`
	Payload     rows.Object `json:"payload"`
	Meta        struct{}    `json:"meta"`

	at    int64 // TS in Unix milliseconds: when it was over
	line  int   // from 1, 0 if it is unknown
	order int64 // among the spans of a run; 0 for an event of events.jsonl
	span  bool  // it is one of Maida's
}

// from is when what the event is about began.
func (e *agentdbgEvent) from() int64 { return e.at - session.Deref(e.DurationMS) }

// agentdbgUUID derives a UUIDv4 from what it identifies.
func agentdbgUUID(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	u := h.Sum(nil)
	u[6] = u[6]&0x0F | 0x40
	u[8] = u[8]&0x3F | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// agentdbgUUID4 matches a UUIDv4 in the one spelling that AgentDbg accepts.
var agentdbgUUID4 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// agentdbgRunID returns the id of the run that a session is written as.
func agentdbgRunID(sessionID string) string {
	if agentdbgUUID4.MatchString(sessionID) {
		return sessionID
	}
	return agentdbgUUID("run", sessionID)
}

// agentdbgFailure is an error object.
func agentdbgFailure(typ, message string) rows.Object {
	return rows.Of("error_type", typ, "message", message, "details", nil, "stack", nil)
}

// agentdbgErrorText returns an error object as text: its type and its message, of one of the types above only the
// message.
func agentdbgErrorText(v json.RawMessage) string {
	text, _ := rows.Text(v)
	o := rows.Read(string(v))
	typ, message := cmp.Or(o.Text("error_type"), o.Text("type")), cmp.Or(text, o.Text("message"))
	plain := []string{"", agentdbgPlainError, agentdbgInterrupted, agentdbgUnfinished, agentdbgPermissionDenied}
	switch {
	case slices.Contains(plain, typ):
		return message
	case message == "":
		return typ
	}
	return typ + ": " + message
}

// agentdbgEncode writes the session as "agentdbg export" does: run.json and the events in one JSON object, without a
// newline at its end.
func agentdbgEncode(s *codec.Session) []byte {
	d := agentdbgDraft(s, false)
	all := rows.Of("spec_version", "0.1", "run", d.run, "events", d.events)
	return rows.Python{Indent: true}.Append(nil, all.JSON())
}

// agentdbgEncodeMaida writes the session as the spans.jsonl of a run of Maida: the root span has what its meta.json
// has.
func agentdbgEncodeMaida(s *codec.Session) []byte { return agentdbgDraft(s, true).lines() }

// agentdbgWriteRun writes the session as a run in a data directory: the two files in runs/<run_id>/ of dir, which are
// made when they are not there. It returns the run's directory. A run that is there already gives an error that is
// [os.ErrExist], unless replace is set: then both files are replaced, or with an error none, and what else is in the
// directory stays.
func agentdbgWriteRun(dir string, s *codec.Session, replace, maida bool) (path string, err error) {
	defer wrapWriting(s, &err)
	if err := s.CheckTree(); err != nil {
		return "", err
	}
	d := agentdbgDraft(s, maida)
	path = filepath.Join(dir, "runs", d.id)
	_, absent := os.Lstat(path)
	if absent == nil && !replace {
		err = &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	} else if err = os.MkdirAll(path, 0o700); err == nil {
		files, run := agentdbgFiles[:2], d.run
		if maida {
			files, run = agentdbgFiles[2:], d.maidaMeta()
		}
		err = rows.ReplaceFiles(rows.File{Path: filepath.Join(path, files[1]), Text: d.lines()},
			rows.File{Path: filepath.Join(path, files[0]), Text: rows.Python{Indent: true}.Append(nil, run.JSON())})
		if err != nil && absent != nil {
			_ = os.RemoveAll(path) // a run without one of its files
		}
	}
	return path, err
}

// lines are those of events.jsonl, or of spans.jsonl.
func (d *agentdbgDrafter) lines() (text []byte) {
	var all any = d.events
	if d.maida {
		all = d.spans()
	}
	for _, line := range rows.Elements(rows.Raw(all)) {
		text = append(rows.Python{}.Append(text, line), '\n')
	}
	return text
}

// agentdbgDrafter makes the run of a session.
type agentdbgDrafter struct {
	s      *codec.Session
	maida  bool // it is written as Maida has it
	id     string
	run    rows.Object // run.json
	events []agentdbgEvent

	status            string
	lastVisible, last int                        // places of answers
	latest            int64                      // the time of the last event
	ids               map[string]string          // ids of events, by those of parts and calls
	asked             []*session.MessageAndParts // what was said since the last call

	// Of the message being drafted:
	m     *session.MessageAndParts
	meta  session.MessageMetadata
	calls []int  // places of its LLM_CALLs in events
	ended string // the type of the error with which the turn ended
}

func agentdbgDraft(s *codec.Session, maida bool) *agentdbgDrafter {
	t := s.Sorted()
	d := &agentdbgDrafter{s: s, maida: maida, id: agentdbgRunID(t.Session.ID), ids: make(map[string]string)}
	if maida {
		d.id = agentdbgTraceOf(t.Session.ID)
	}
	outcome := rows.Read(t.Session.MetadataJSON).Object("agenttrace").Text("outcome")
	d.setStatus(t, outcome)
	d.event(agentdbgRunStart, "", t.Session.CreatedAt, rows.Of("run_name", t.Session.Title, "python_version", "",
		"platform", "", "cwd", session.Deref(t.Session.WorkspaceRoot), "argv", []string{}))
	for i := range t.Messages {
		if m := &t.Messages[i]; m.Message.Role == session.RoleAssistant {
			d.assistant(m, i)
		} else {
			d.asked = append(d.asked, m)
		}
	}
	if len(d.asked) > 0 { // no call has answered it
		last := d.asked[len(d.asked)-1].Message
		d.event(agentdbgStateUpdate, last.ID, last.UpdatedAt, rows.Of("state", d.prompt(""), "diff", nil))
		d.failure(last.UpdatedAt, agentdbgUnfinished, "nothing was answered")
	}
	switch {
	case outcome == semconv.EndAbort && d.ended != agentdbgInterrupted:
		d.failure(d.latest, agentdbgInterrupted, "the run was interrupted")
	case outcome == semconv.EndError && d.ended == "" && d.last >= 0:
		d.failure(d.latest, agentdbgPlainError, "the run failed")
	}
	d.finish(&t.Session)
	return d
}

// setStatus finds the status: how the session's run ended, if it failed, and otherwise how the last visible message of
// the assistant did. AgentDbg has runs that go on, that an exception ended, including an interrupt, and others.
func (d *agentdbgDrafter) setStatus(t *session.Transcript, outcome string) {
	d.status, d.lastVisible, d.last = agentdbgStatusOK, -1, -1
	for i := range t.Messages {
		m := &t.Messages[i]
		if m.Message.Role != session.RoleAssistant {
			continue
		}
		if d.last = i; m.Message.HiddenAt != nil {
			continue
		}
		d.status, d.lastVisible = agentdbgStatusOK, i
		if rows.GoesOn(m) {
			d.status = agentdbgStatusRunning
		} else if agentdbgFailed(session.ParseMessageMetadata([]byte(m.Message.MetadataJSON)).Trace.EndReason) {
			d.status = agentdbgStatusError
		}
	}
	if agentdbgFailed(outcome) {
		d.status = agentdbgStatusError
	}
}

func agentdbgFailed(end string) bool { return end == semconv.EndError || end == semconv.EndAbort }

// event adds an event for what has an id. What analyses runs sorts events by time, so none is earlier than what it
// follows from: the call of a tool not before the model call that requested it, any other not before the events above.
// Calls that a model requests at once come back in any order, and keep their times.
func (d *agentdbgDrafter) event(typ, of string, at int64, payload rows.Object) *agentdbgEvent {
	e := agentdbgEvent{SpecVersion: "0.1", EventID: agentdbgUUID(d.id, typ, of), RunID: d.id, EventType: typ,
		Payload: payload}
	after := d.latest
	if len(d.events) > 0 {
		cause := &d.events[0]
		if typ == agentdbgToolCall {
			if n := len(d.calls); n > 0 {
				cause = &d.events[d.calls[n-1]]
			}
			after = cause.at
		}
		e.ParentID = new(cause.EventID)
	}
	e.at = max(at, after)
	e.TS, d.latest = rows.FormatTime(e.at), max(d.latest, e.at)
	for i := range payload {
		payload[i].Value = agentdbgBounded(payload[i].Value)
	}
	const maximum = 80
	e.Name = cmp.Or(agentdbgNames[typ], payload.Text(agentdbgNameKeys[typ]))
	if all := []rune(e.Name); typ == agentdbgLoopWarning && len(all) > maximum {
		e.Name = string(all[:maximum-1]) + "..."
	}
	d.events = append(d.events, e)
	return &d.events[len(d.events)-1]
}

const (
	// agentdbgMaxField is the most bytes of a text in an event by default, and agentdbgCutMark ends one that was cut.
	agentdbgMaxField = 20_000
	agentdbgCutMark  = "__TRUNCATED__"
)

var agentdbgQuoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// agentdbgBounded cuts the texts in a value that AgentDbg would cut.
func agentdbgBounded(v json.RawMessage) json.RawMessage {
	if len(v) <= agentdbgMaxField {
		return v
	}
	return agentdbgQuoted.ReplaceAllFunc(v, func(quoted []byte) []byte {
		text, _ := rows.Text(quoted)
		if len(text) <= agentdbgMaxField {
			return quoted
		}
		return rows.Raw(strings.ToValidUTF8(text[:agentdbgMaxField-len(agentdbgCutMark)], "") + agentdbgCutMark)
	})
}

// agentdbgNames are those that AgentDbg gives events, or agentdbgNameKeys where in their payloads they are.
var (
	agentdbgNames    = map[string]string{agentdbgRunEnd: "run_end", agentdbgStateUpdate: "state"}
	agentdbgNameKeys = map[string]string{agentdbgRunStart: "run_name", agentdbgLlmCall: "model",
		agentdbgToolCall: "tool_name", agentdbgErrorEvent: "error_type", agentdbgLoopWarning: "pattern"}
)

// finish adds the end of the run, unless it goes on, and makes its run.json. AgentDbg counts when the run ends.
func (d *agentdbgDrafter) finish(row *session.Session) {
	n := make(map[string]int64)
	var at, took any
	if d.status != agentdbgStatusRunning {
		for i := range d.events {
			n[d.events[i].EventType]++
		}
		ended := max(row.UpdatedAt, d.latest)
		at, took = rows.FormatTime(ended), max(0, ended-row.CreatedAt)
		d.event(agentdbgRunEnd, "", ended, rows.Of("status", d.status, "summary", rows.Of(
			"llm_calls", n[agentdbgLlmCall], "tool_calls", n[agentdbgToolCall], "errors", n[agentdbgErrorEvent],
			"duration_ms", took)))
	}
	d.run = rows.Of("spec_version", "0.1", "run_id", d.id, "run_name", row.Title,
		"started_at", rows.FormatTime(row.CreatedAt), "ended_at", at, "duration_ms", took, "status", d.status,
		"counts", rows.Of("llm_calls", n[agentdbgLlmCall], "tool_calls", n[agentdbgToolCall],
			"errors", n[agentdbgErrorEvent], "loop_warnings", n[agentdbgLoopWarning]), "last_event_ts", at)
}

// assistant drafts the answer at a place of the session.
func (d *agentdbgDrafter) assistant(m *session.MessageAndParts, place int) {
	d.m, d.meta, d.calls = m, session.ParseMessageMetadata([]byte(m.Message.MetadataJSON)), nil
	end, text := d.end(place)
	d.ended = end
	explained := false
	steps := rows.Steps(d.s, m)
	for i := range steps {
		explained = d.step(steps, i, end != "") || explained
	}
	if end != "" && (end != agentdbgPlainError || !explained) {
		d.failure(m.Message.UpdatedAt, end, text)
	}
}

// end returns the type and the text of the error with which the turn at a place ended, or "" for another end. The end
// of the last turn is also that of the run. So one that a rewind hid has no end if it did not end as the run did.
func (d *agentdbgDrafter) end(place int) (typ, text string) {
	switch trace, goesOn := d.meta.Trace, rows.GoesOn(d.m); {
	case place > d.lastVisible && (d.status == agentdbgStatusError || agentdbgFailed(trace.EndReason)),
		goesOn && (place < d.last || d.status != agentdbgStatusRunning):
		return agentdbgUnfinished, "the end of the turn is not known"
	case trace.EndReason == semconv.EndError && !goesOn:
		return agentdbgPlainError, cmp.Or(trace.Error, "the turn failed")
	case trace.EndReason == semconv.EndAbort && !goesOn:
		return agentdbgInterrupted, cmp.Or(trace.Error, "the turn was interrupted")
	}
	return "", ""
}

// step adds the events of a step: a model call, and what followed from it. It reports whether one of them is the error
// with which the turn ended. ends reports that it did end with one.
func (d *agentdbgDrafter) step(steps []rows.Step, i int, ends bool) (explained bool) {
	st, last := &steps[i], i == len(steps)-1
	var said []*session.Part
	called := false
	call := func() {
		d.call(steps, i, said, !called)
		called, said = true, nil
	}
	if st.Usage != nil && (d.meta.Compaction || d.m.IsMarker()) {
		// The call that made the summary answers no prompt, and what it said is in the event of the compaction.
		asked := d.asked
		d.asked = nil
		call()
		d.asked = asked
	}
	asks := d.asks(steps, st)
	for k, p := range st.Parts {
		data := rows.Data(p)
		if agentdbgSays(p, data) {
			said = append(said, p) // after calls it was asked again
			continue
		}
		tool := session.IsToolType(p.Type)
		if len(said) > 0 || len(d.asked) > 0 || !called && (st.Start != nil || tool && asks) {
			call()
		}
		if tool {
			d.tool(p, data)
		} else {
			explained = d.data(p, data, ends || !last || k < len(st.Parts)-1) || explained
		}
	}
	if len(said) > 0 || !called && (len(st.Parts) == 0 || st.Start != nil || st.Usage != nil) {
		call()
	}
	return explained
}

// asks reports whether a model requested what a step calls. A run of AgentDbg may have calls that none requested:
// nothing reports a model call, or all of the message are known to be of other steps.
func (d *agentdbgDrafter) asks(steps []rows.Step, st *rows.Step) bool {
	n := d.meta.Trace.ModelCalls
	for i := range steps {
		if steps[i].Start != nil {
			n--
		}
	}
	return st.Start != nil || st.Usage != nil || n > 0 || d.meta.Model != nil && d.meta.Trace.ModelCalls == 0
}

// agentdbgSays reports whether a model said a part.
func agentdbgSays(p *session.Part, data rows.Object) bool {
	switch p.Type {
	case "text", "reasoning", "file", session.TypeWithheld:
		return true
	case agentdbgDataResponse:
		return agentdbgResponseParts(data.Get("data"), 0) == nil
	}
	return strings.HasPrefix(p.Type, "source-")
}

// call adds an LLM_CALL for what the model said in a step: nothing, if it only called tools. The first one of a step
// has what is known of it.
func (d *agentdbgDrafter) call(steps []rows.Step, i int, said []*session.Part, first bool) {
	st, trace := &steps[i], &d.meta.Trace
	p := rows.Of("model", cmp.Or(st.Model.ModelID, agentdbgUnknown), "prompt", d.prompt(d.meta.SystemPromptDigest),
		"response", agentdbgResponse(said), "usage", nil, "provider", cmp.Or(st.Model.ProviderID, agentdbgUnknown),
		"temperature", trace.Temperature, "stop_reason", nil, "status", agentdbgStatusOK, "error", nil)
	if first {
		reason := st.StopReason
		if i == len(steps)-1 && !slices.ContainsFunc(steps, func(s rows.Step) bool { return s.StopReason != "" }) {
			reason = trace.StopReason // of the whole message
		}
		p.Add(rows.NonEmpty("usage", agentdbgUsage(st.Usage), "stop_reason", reason))
		if n := len(trace.ModelErrors) - len(steps) + i; n >= 0 {
			failure := agentdbgFailure(agentdbgPlainError, trace.ModelErrors[n])
			p.Add(rows.Of("status", agentdbgStatusError, "error", failure))
		}
		if st.Start != nil {
			said = append([]*session.Part{st.Start}, said...)
		}
	}
	from, at := d.m.Message.CreatedAt, d.m.Message.CreatedAt
	for i, part := range said {
		if at = max(at, part.UpdatedAt); i == 0 {
			from = part.CreatedAt
		}
	}
	e := d.event(agentdbgLlmCall, fmt.Sprint(d.m.Message.ID, len(d.calls)), at, p)
	if took := at - from; took > 0 {
		e.DurationMS = &took
	}
	d.calls = append(d.calls, len(d.events)-1)
}

// agentdbgUsage is a usage as AgentDbg counts, nil where it is not known.
func agentdbgUsage(u *session.Usage) rows.Object {
	if u == nil {
		return nil
	}
	prompt, completion := u.Input+u.CacheRead+u.CacheWrite, u.Output+u.Reasoning
	return rows.Of("prompt_tokens", prompt, "completion_tokens", completion, "total_tokens", prompt+completion)
}

// agentdbgResponse is what a model said: a text as it is, anything else as the parts.
func agentdbgResponse(parts []*session.Part) json.RawMessage {
	said := make([]rows.Object, len(parts))
	for i, p := range parts {
		said[i] = rows.Data(p)
	}
	switch {
	case len(said) == 0:
		return rows.OrNull(nil)
	case len(said) == 1 && agentdbgIsPlainText(said[0]):
		return said[0].Get("text")
	case len(said) == 1 && said[0].Text("type") == agentdbgDataResponse:
		return rows.OrNull(said[0].Get("data"))
	}
	return rows.Raw(rows.Of("content", said))
}

func agentdbgIsPlainText(data rows.Object) bool {
	return data.Text("type") == "text" && data.Get("text") != nil && len(data) == 2
}

// prompt takes what was said since the last call, and for a message's first call its system prompt, which has a digest.
func (d *agentdbgDrafter) prompt(digest string) json.RawMessage {
	var messages, parts []rows.Object
	if b := rows.Blob(d.s, store.BlobSystemPrompt, digest); b != nil && b.Body != "" && len(d.calls) == 0 {
		messages = []rows.Object{rows.Of("role", session.RoleSystem, "content", b.Body)}
	}
	for _, m := range d.asked {
		parts = dataOf(m)
		messages = append(messages, rows.Of("role", m.Message.Role, "content", parts))
	}
	plain := len(messages) == 1 && len(parts) == 1 && d.asked[0].Message.Role == session.RoleUser
	d.asked = nil
	switch {
	case messages == nil:
		return rows.OrNull(nil)
	case plain && agentdbgIsPlainText(parts[0]):
		return parts[0].Get("text")
	}
	return rows.Raw(rows.Of("messages", messages))
}

func (d *agentdbgDrafter) tool(p *session.Part, data rows.Object) {
	plain := func(v json.RawMessage) json.RawMessage { // an object, a text or null; another is the value of an object
		if v = rows.OrNull(v); v[0] != '{' && v[0] != '"' && v[0] != 'n' {
			return rows.Of("value", v).JSON()
		}
		return v
	}
	payload := rows.Of("tool_name", rows.ToolName(data), "args", plain(rows.Input(p, data)),
		"result", plain(rows.Output(data)), "status", agentdbgStatusError, "error", nil)
	failed := func(typ, message string) { payload.Set("error", agentdbgFailure(typ, message)) }
	switch own := data.Object("toolMetadata").Object("agenttrace"); data.Text("state") {
	case session.StateOutputAvailable:
		payload.Set("status", agentdbgStatusOK)
	case session.StateOutputError:
		typ := cmp.Or(own.Text("error_type"), agentdbgPlainError)
		if own.True("denied") {
			typ = agentdbgPermissionDenied
		}
		failed(typ, data.Text("errorText"))
	case session.StateOutputDenied:
		failed(agentdbgPermissionDenied, cmp.Or(data.Object("approval").Text("reason"), "the call was denied"))
	default: // AgentDbg records calls that have returned, and one that has not is no success
		failed(agentdbgUnfinished, "the call has no result; its state is "+data.Text("state"))
	}
	e := d.event(agentdbgToolCall, p.ID, p.UpdatedAt, payload)
	e.DurationMS = new(max(0, p.UpdatedAt-p.CreatedAt))
	call := data.Text("toolCallId")
	if (agentdbgUUID4.MatchString(call) || d.maida && agentdbgSpanID.MatchString(call)) && d.ids[call] == "" {
		e.EventID, d.ids[call] = call, call // it is of an event
	}
	d.ids[p.ID] = e.EventID
}

// data adds an event for a part that is neither said nor called, and reports whether it is an error: one ends the turn
// unless something follows.
func (d *agentdbgDrafter) data(p *session.Part, data rows.Object, follows bool) (failed bool) {
	inner := data.Object("data")
	if text := inner.Text("text"); p.Type == session.TypeError && text != "" && inner.Text("error_type") == "" {
		inner = agentdbgFailure(agentdbgPlainError, text)
	}
	typ, payload := agentdbgStateUpdate, rows.Of("state", data, "diff", nil)
	switch {
	case p.Type == session.TypeError && follows && inner.Text("error_type") != "" && inner.Get("message") != nil:
		typ, payload = agentdbgErrorEvent, inner
	case p.Type == agentdbgDataTypes[agentdbgLoopWarning] && inner.Text("pattern") != "" && inner.Has("window_size"):
		typ, payload = agentdbgLoopWarning, inner
		if !inner.Has("evidence_event_ids") { // it is of this program's SDK, which lists parts
			ids := []string{}
			for _, of := range rows.Elements(inner.Get("evidence")) {
				if part, _ := rows.Text(of); d.ids[part] != "" {
					ids = append(ids, d.ids[part])
				}
			}
			payload.Set("evidence_event_ids", ids)
		}
	case p.Type == agentdbgDataTypes[agentdbgStateUpdate] && len(inner) == 2 && inner.Get("state") != nil &&
		inner.Get("diff") != nil && agentdbgStatePart(inner) == nil:
		payload = inner
	}
	d.event(typ, p.ID, p.UpdatedAt, payload)
	return typ == agentdbgErrorEvent
}

// failure adds an error that is the end of a turn or of the run.
func (d *agentdbgDrafter) failure(at int64, typ, text string) {
	d.event(agentdbgErrorEvent, fmt.Sprint(len(d.events)), at, agentdbgFailure(typ, text).Without("details"))
}
