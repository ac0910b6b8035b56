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
	"regexp"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
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

// agentdbgMaxTokens bounds a count, so that no sum of them overflows.
const agentdbgMaxTokens = 1 << 54

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
