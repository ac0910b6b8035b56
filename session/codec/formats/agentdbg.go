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
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
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
var agentdbgUUID4 = lazy.Regexp(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// agentdbgRunID returns the id of the run that a session is written as.
func agentdbgRunID(sessionID string) string {
	if agentdbgUUID4().MatchString(sessionID) {
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
	return rows.Of("spec_version", "0.1", "run", d.run, "events", d.events).Indented()
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
		err = session.ReplaceFiles(session.NewFile{Path: filepath.Join(path, files[1]), Text: d.lines()},
			session.NewFile{Path: filepath.Join(path, files[0]), Text: run.Indented()})
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
		text = append(append(text, line...), '\n')
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

	status, outcome string
	last            int                        // the place of the last answer
	lastVisible     int                        // and of the last that no rewind hid
	latest          int64                      // the time of the last event
	ids             map[string]string          // ids of events, by those of parts
	asked           []*session.MessageAndParts // what was said since the last call

	// Of the message being drafted:
	m    *session.MessageAndParts
	meta session.MessageMetadata
	call int    // the place of its last LLM_CALL in events, 0 before there is one
	end  string // the type of the error with which the turn ended
}

func agentdbgDraft(s *codec.Session, maida bool) *agentdbgDrafter {
	t := s.Sorted()
	d := &agentdbgDrafter{s: s, maida: maida, id: agentdbgRunID(t.Session.ID), ids: make(map[string]string)}
	if maida {
		d.id = agentdbgTraceOf(t.Session.ID)
	}
	d.setStatus(t)
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
	d.finish(&t.Session)
	return d
}

// setStatus finds the status: how the session's run ended, if it failed, and otherwise how the last visible message of
// the assistant did. AgentDbg has runs that go on, that an exception ended, including an interrupt, and others.
func (d *agentdbgDrafter) setStatus(t *session.Transcript) {
	d.outcome = rows.Read(t.Session.MetadataJSON).Object("agenttrace").Text("outcome")
	d.status, d.lastVisible, d.last = agentdbgStatusOK, -1, -1
	for i := range t.Messages {
		if m := &t.Messages[i]; m.Message.Role == session.RoleAssistant {
			if d.last = i; m.Message.HiddenAt == nil {
				d.lastVisible = i
			}
		}
	}
	switch {
	case agentdbgFailed(d.outcome):
		d.status = agentdbgStatusError
	case d.lastVisible < 0:
	case rows.GoesOn(&t.Messages[d.lastVisible]):
		d.status = agentdbgStatusRunning
	case agentdbgFailed(session.ParseMessageMetadata(
		[]byte(t.Messages[d.lastVisible].Message.MetadataJSON)).Trace.EndReason):
		d.status = agentdbgStatusError
	}
}

func agentdbgFailed(end string) bool { return end == semconv.EndError || end == semconv.EndAbort }

// event adds an event for what has an id. What analyses runs sorts events by time, so none is earlier than what it
// follows from: the call of a tool not before the model call that requested it, any other not before the events above.
// Calls that a model requests at once come back in any order, and keep their times.
func (d *agentdbgDrafter) event(typ, of string, at int64, payload rows.Object) *agentdbgEvent {
	e := agentdbgEvent{SpecVersion: "0.1", EventID: agentdbgUUID(d.id, typ, of), RunID: d.id, EventType: typ,
		Name: cmp.Or(agentdbgNames[typ], payload.Text(agentdbgNameKeys[typ])), Payload: payload, at: max(at, d.latest)}
	if len(d.events) > 0 {
		cause := &d.events[0]
		if typ == agentdbgToolCall && d.call > 0 {
			cause = &d.events[d.call]
			e.at = max(at, cause.at)
		}
		e.ParentID = new(cause.EventID)
	}
	e.TS, d.latest = rows.FormatTime(e.at), max(d.latest, e.at)
	for i := range payload {
		payload[i].Value = agentdbgBounded(payload[i].Value)
	}
	d.events = append(d.events, e)
	return &d.events[len(d.events)-1]
}

const (
	// agentdbgMaxField is the most bytes of a text in an event by default, and agentdbgCutMark ends one that was cut.
	agentdbgMaxField = 20_000
	agentdbgCutMark  = "__TRUNCATED__"
)

var agentdbgQuoted = lazy.Regexp(`"(?:[^"\\]|\\.)*"`)

// agentdbgBounded cuts the texts in a value that AgentDbg would cut.
func agentdbgBounded(v json.RawMessage) json.RawMessage {
	if len(v) <= agentdbgMaxField {
		return v
	}
	return agentdbgQuoted().ReplaceAllFunc(v, func(quoted []byte) []byte {
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
	d.m, d.meta, d.call = m, session.ParseMessageMetadata([]byte(m.Message.MetadataJSON)), 0
	if asked := d.asked; d.meta.Compaction || m.IsMarker() {
		d.asked = nil // the call that made the summary answers no prompt
		defer func() { d.asked = asked }()
	}
	var text string
	d.end, text = d.endOf(place)
	steps := rows.Steps(d.s, m)
	for i := range steps {
		d.step(steps, i)
	}
	explained := d.end == agentdbgPlainError && d.events[len(d.events)-1].EventType == agentdbgErrorEvent
	if d.end != "" && !explained {
		d.failure(m.Message.UpdatedAt, d.end, text)
	}
}

// endOf returns the type and the text of the error with which the turn at a place ended, or "" for another end. The end
// of the last turn is also that of the run. So one that a rewind hid has no end if it did not end as the run did.
func (d *agentdbgDrafter) endOf(place int) (typ, text string) {
	end, failure, goesOn := d.meta.Trace.EndReason, d.meta.Trace.Error, rows.GoesOn(d.m)
	if place == d.lastVisible && agentdbgFailed(d.outcome) {
		end, goesOn = d.outcome, false
	}
	switch {
	case place > d.lastVisible && (d.status == agentdbgStatusError || agentdbgFailed(end)),
		goesOn && (place < d.last || d.status != agentdbgStatusRunning):
		return agentdbgUnfinished, "the end of the turn is not known"
	case end == semconv.EndError && !goesOn:
		return agentdbgPlainError, cmp.Or(failure, "the turn failed")
	case end == semconv.EndAbort && !goesOn:
		return agentdbgInterrupted, cmp.Or(failure, "the turn was interrupted")
	}
	return "", ""
}

// step adds the events of a step: a model call, and what followed from it. What is said after tool calls is of another
// model call.
func (d *agentdbgDrafter) step(steps []rows.Step, i int) {
	st := &steps[i]
	called := st.Start == nil && st.Usage == nil && len(st.Parts) > 0 // or no call is known
	first := true
	var said []*session.Part
	call := func() {
		d.modelCall(steps, i, said, first)
		called, first, said = true, false, nil
	}
	for _, p := range st.Parts {
		data := rows.Data(p)
		if agentdbgSays(p.Type) {
			said = append(said, p)
			continue
		}
		if len(said) > 0 || len(d.asked) > 0 || !called {
			call()
		}
		if session.IsToolType(p.Type) {
			d.tool(p, data)
		} else {
			d.data(p, data)
		}
	}
	if len(said) > 0 || !called {
		call()
	}
}

// agentdbgSays reports whether a model said a part of a type.
func agentdbgSays(typ string) bool {
	said := []string{"text", "reasoning", "file", session.TypeWithheld, agentdbgDataResponse}
	return slices.Contains(said, typ) || strings.HasPrefix(typ, "source-")
}

// modelCall adds an LLM_CALL for what the model said in a step: nothing, if it only called tools. The first one of a
// step has what is known of it.
func (d *agentdbgDrafter) modelCall(steps []rows.Step, i int, said []*session.Part, first bool) {
	st, trace := &steps[i], &d.meta.Trace
	parts := make([]rows.Object, len(said))
	from := cmp.Or(st.At, d.m.Message.CreatedAt)
	if !first {
		from = said[0].CreatedAt
	}
	at := from
	for k, p := range said {
		parts[k], at = rows.Data(p), max(at, p.UpdatedAt)
	}
	p := rows.Of("model", cmp.Or(st.Model.ModelID, agentdbgUnknown), "prompt", d.prompt(d.meta.SystemPromptDigest),
		"response", agentdbgContent(parts), "usage", nil, "provider", cmp.Or(st.Model.ProviderID, agentdbgUnknown),
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
	}
	e := d.event(agentdbgLlmCall, fmt.Sprint(d.m.Message.ID, len(d.events)), at, p)
	if at > from {
		e.DurationMS = new(at - from)
	}
	d.call = len(d.events) - 1
}

// agentdbgUsage is a usage as AgentDbg counts, nil where it is not known.
func agentdbgUsage(u *session.Usage) rows.Object {
	if u == nil {
		return nil
	}
	prompt, completion := u.Input+u.CacheRead+u.CacheWrite, u.Output+u.Reasoning
	return rows.Of("prompt_tokens", prompt, "completion_tokens", completion, "total_tokens", prompt+completion)
}

// agentdbgContent is what somebody said: a text as it is, anything else as the parts.
func agentdbgContent(parts []rows.Object) json.RawMessage {
	switch {
	case len(parts) == 0:
		return rows.OrNull(nil)
	case len(parts) == 1 && len(parts[0]) == 2 && parts[0].Text("type") == "text" && parts[0].Get("text") != nil:
		return parts[0].Get("text")
	}
	return rows.Raw(parts)
}

// prompt takes what was said since the last call, and for a message's first call its system prompt, which has a digest.
func (d *agentdbgDrafter) prompt(digest string) json.RawMessage {
	var messages []rows.Object
	if b := rows.Blob(d.s, store.BlobSystemPrompt, digest); b != nil && b.Body != "" && d.call == 0 {
		messages = []rows.Object{rows.Of("role", session.RoleSystem, "content", b.Body)}
	}
	for _, m := range d.asked {
		messages = append(messages, rows.Of("role", m.Message.Role, "content", agentdbgContent(dataOf(m))))
	}
	d.asked = nil
	if messages == nil {
		return rows.OrNull(nil)
	}
	content := messages[0].Get("content")
	if len(messages) == 1 && content[0] == '"' && messages[0].Text("role") == session.RoleUser {
		return content
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
	typ, message := "", ""
	switch own := data.Object("toolMetadata").Object("agenttrace"); data.Text("state") {
	case session.StateOutputAvailable:
	case session.StateOutputError:
		if typ, message = cmp.Or(own.Text("error_type"), agentdbgPlainError), data.Text("errorText"); own.True("denied") {
			typ = agentdbgPermissionDenied
		}
	case session.StateOutputDenied:
		typ, message = agentdbgPermissionDenied, cmp.Or(data.Object("approval").Text("reason"), "the call was denied")
	default: // AgentDbg records calls that have returned, and one that has not is no success
		typ, message = agentdbgUnfinished, "the call has no result; its state is "+data.Text("state")
	}
	payload := rows.Of("tool_name", rows.ToolName(data), "args", plain(rows.Input(p, data)),
		"result", plain(rows.Output(data)), "status", agentdbgStatusOK, "error", nil)
	if typ != "" {
		payload.Add(rows.Of("status", agentdbgStatusError, "error", agentdbgFailure(typ, message)))
	}
	e := d.event(agentdbgToolCall, p.ID, p.UpdatedAt, payload)
	e.DurationMS = new(max(0, p.UpdatedAt-p.CreatedAt))
	call := data.Text("toolCallId")
	if (agentdbgUUID4().MatchString(call) || d.maida && agentdbgSpanID().MatchString(call)) && d.ids[call] == "" {
		e.EventID, d.ids[call] = call, call // it is of an event
	}
	d.ids[p.ID] = e.EventID
}

// data adds an event for a part that is neither said nor called. An error ends the turn unless something follows.
func (d *agentdbgDrafter) data(p *session.Part, data rows.Object) {
	inner := data.Object("data")
	typ, payload := agentdbgStateUpdate, rows.Of("state", data, "diff", nil)
	switch {
	case p.Type == session.TypeError && (d.end != "" || p != &d.m.Parts[len(d.m.Parts)-1]):
		if text := inner.Text("text"); text != "" && inner.Text("error_type") == "" {
			inner = agentdbgFailure(agentdbgPlainError, text)
		}
		if inner.Text("error_type") != "" && inner.Get("message") != nil {
			typ, payload = agentdbgErrorEvent, inner
		}
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
}

// failure adds an error that is the end of a turn or of the run.
func (d *agentdbgDrafter) failure(at int64, typ, text string) {
	d.event(agentdbgErrorEvent, fmt.Sprint(len(d.events)), at, agentdbgFailure(typ, text).Without("details"))
}
