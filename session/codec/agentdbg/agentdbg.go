// Package agentdbg reads and writes the runs of AgentDbg, and of Maida, which is
// its later name: trace format 0.1. Maida from 0.4 on has a format of its own, of
// spans, and no more than lists such runs.
//
// A run is a directory, runs/<run_id>/, of run.json and events.jsonl, or the one
// JSON file that "agentdbg export" makes of it. A session is one run.
//
// # Reading
//
// A run says what a model was asked, what it and the tools answered, and knows
// nothing of users or turns:
//
//   - the session's id is the run's. Title, workspace_root and the outcome come
//     from run.json and RUN_START; the rest of them stands in metadata_json
//     under "agentdbg";
//   - a prompt gives a user message when it says something that the prompts before
//     it did not, for most repeat the whole history. It ends the assistant's message,
//     and so does nothing else. What a prompt says as the system is the system
//     prompt of the message that answers it;
//   - LLM_CALL is a step-start part and the response's text and reasoning; TOOL_CALL
//     a finished tool part with the event's id as its call id; STATE_UPDATE, ERROR
//     and LOOP_WARNING are data-state, data-error and data-loop-warning, and any
//     event of a type that 0.1 does not know is data-event-<type>;
//   - a count of tokens that is a string is unknown, and the message says so.
//     AgentDbg's own redaction makes it one, for it takes "prompt_tokens" for a
//     secret, which is no damage;
//   - a run that never ended is a session whose last message is incomplete.
//
// What an event says beyond its part stands in the message's metadata_json, under
// "agentdbg". So a run that nothing has changed since is written as it was.
//
// # Writing
//
// Every other session is put in AgentDbg's terms: a step of an assistant message
// is an LLM_CALL with what was said since the last as its prompt, and so on. [Explain]
// lists what the terms do not hold. Errors of the types Interrupted, Unfinished and
// PermissionDenied are what they say and no exceptions, and are read as that.
// The ids are lower-case UUIDv4s derived from the session's, as AgentDbg insists,
// and loop warnings are what AgentDbg's detector would have said.
package agentdbg

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

const (
	specVersion = "0.1"
	// metaKey is the key of metadata_json under which stands what a run says and
	// rows do not.
	metaKey   = "agentdbg"
	agentName = "agentdbg"

	runFile    = "run.json"
	eventsFile = "events.jsonl"
)

// Types of events.
const (
	runStart    = "RUN_START"
	runEnd      = "RUN_END"
	llmCall     = "LLM_CALL"
	toolCall    = "TOOL_CALL"
	stateUpdate = "STATE_UPDATE"
	errorEvent  = "ERROR"
	loopWarning = "LOOP_WARNING"
)

// Statuses of a run.
const (
	statusRunning = "running"
	statusOK      = "ok"
	statusError   = "error"
)

// payloadKeys are the keys of a payload in the order in which AgentDbg writes
// them, with the value that it writes when it has nothing to say. A key without
// one always says something.
var payloadKeys = map[string][]struct{ key, nothing string }{
	llmCall: {{"model", ""}, {"prompt", "null"}, {"response", "null"}, {"usage", "null"}, {"provider", `"unknown"`},
		{"temperature", "null"}, {"stop_reason", "null"}, {"status", `"ok"`}, {"error", "null"}},
	toolCall: {{"tool_name", ""}, {"args", "null"}, {"result", "null"}, {"status", `"ok"`}, {"error", "null"}},
}

// dataTypes are the parts that hold the whole payload of an event.
var dataTypes = map[string]string{stateUpdate: "data-state", errorEvent: "data-error", loopWarning: "data-loop-warning"}

const timeLayout = "2006-01-02T15:04:05.000Z"

func formatTime(milli int64) string { return time.UnixMilli(milli).UTC().Format(timeLayout) }

func parseTime(s string) (milli int64, ok bool) {
	t, err := time.Parse(time.RFC3339Nano, s)
	return t.UnixMilli(), err == nil
}

// uuid derives a UUIDv4 from what it identifies.
func uuid(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	u := h.Sum(nil)[:16]
	u[6] = u[6]&0x0F | 0x40
	u[8] = u[8]&0x3F | 0x80
	s := hex.EncodeToString(u)
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// isUUID4 says whether s is a UUIDv4 in the one spelling that AgentDbg accepts.
func isUUID4(s string) bool {
	if len(s) != 36 || s[14] != '4' || s[19] != '8' && s[19] != '9' && s[19] != 'a' && s[19] != 'b' {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return false
		}
	}
	return true
}

// runID returns the id of the run that a session is written as.
func runID(sessionID string) string {
	if isUUID4(sessionID) {
		return sessionID
	}
	return uuid("run", sessionID)
}

// defaultName is the name that AgentDbg gives an event.
func defaultName(typ string, payload rows.Object) string {
	switch typ {
	case runStart:
		return payload.Text("run_name")
	case runEnd:
		return "run_end"
	case llmCall:
		return payload.Text("model")
	case toolCall:
		return payload.Text("tool_name")
	case stateUpdate:
		return "state"
	case errorEvent:
		return payload.Text("error_type")
	case loopWarning:
		return loopName(payload.Text("pattern"))
	}
	return ""
}

func raw(v any) json.RawMessage {
	b, _ := rows.Marshal(v) // strings, numbers and what came from JSON always have JSON
	return b
}

var null = json.RawMessage("null")

// orNull is v, or null where there is none.
func orNull(v json.RawMessage) json.RawMessage {
	if v == nil {
		return null
	}
	return v
}
