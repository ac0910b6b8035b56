// This file reads and writes the trace database of jutul-agent: one session
// in a SQLite file, trace.sqlite, whose table events holds what happened as
// rows of a time, a kind and a JSON payload, in order of id.
//
// # From a trace
//
// A user's message opens a turn; what follows is the turn's assistant message,
// in which events become parts:
//
//	message_user        user message, text part
//	message_assistant   text part
//	message_reasoning   reasoning part
//	tool_call           part tool-<name>, input-available
//	tool_result         the same part, output-available or output-error
//	model_usage         part data-model_usage, summed up in the message's usage
//	hitl_request        part data-hitl_request, a decision for each action
//	hitl_response       part data-hitl_response, the decisions' outcomes
//	context_compaction  assistant message of its own with a data-compaction part
//	session_…           the session's row and metadata_json.jutul.session_events
//	any other kind      part data-<kind>, the payload word for word
//
// Fields of a payload that are not mapped are in the part's providerMetadata
// or callProviderMetadata, under "jutul".
//
// # To a trace
//
// A session that came from a trace goes back into the same events. What differs
// afterwards: times are in milliseconds, event ids count from 1, a result that
// came in the millisecond of a later event is before it and has a name and a
// status, payloads that were not JSON objects are wrapped as {"data": …}, and an
// event without a kind is a jutul_event.
//
// Any other session is written as far as events have words for it; [jutulLosses] lists what
// they do not hold. A part that only has the name of one of jutul's kinds is an event
// data-<kind>, arguments that are not an object are in one, under "input", and where a step
// begins is not an event.

package formats

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Kinds of events that are more than a part with their name.
const (
	jutulKindStart      = "session_start"
	jutulKindResume     = "session_resume"
	jutulKindTitle      = "session_title"
	jutulKindEnd        = "session_end"
	jutulKindUser       = "message_user"
	jutulKindAssistant  = "message_assistant"
	jutulKindReasoning  = "message_reasoning"
	jutulKindUsage      = "model_usage"
	jutulKindCall       = "tool_call"
	jutulKindResult     = "tool_result"
	jutulKindRequest    = "hitl_request"
	jutulKindResponse   = "hitl_response"
	jutulKindCompaction = "context_compaction"
)

// jutulKindNone is the kind of an event that has none.
const jutulKindNone = "jutul_event"

// jutulAgentName is what a session is said to be the work of.
const jutulAgentName = "jutul-agent"

// jutulEvent is a row of the table.
type jutulEvent struct {
	id        int64
	timestamp string
	kind      string
	payload   string
}

// jutulTimeLayout is that of Python's datetime.isoformat in UTC, which leaves the
// fraction out when it is zero.
const jutulTimeLayout = "2006-01-02T15:04:05.000000-07:00"

func jutulFormatTime(milli int64) string {
	s := time.UnixMilli(min(max(milli, 0), rows.MaxTime)).UTC().Format(jutulTimeLayout)
	return strings.Replace(s, ".000000", "", 1)
}

// jutulParseTime returns Unix milliseconds. A time without a zone is in UTC.
func jutulParseTime(s string) (int64, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		if t, err = time.Parse("2006-01-02T15:04:05.999999999", strings.Replace(s, " ", "T", 1)); err != nil {
			return 0, fmt.Errorf("timestamp %.60q is no ISO 8601 time", s)
		}
	}
	if y := t.Year(); y < 1970 || y > 9999 {
		return 0, fmt.Errorf("timestamp %.60q is out of range", s)
	}
	return t.UnixMilli(), nil
}

// jutulParsePayload reads a payload. Python writes numbers that JSON does not have; they
// become strings, which Python's float reads as the same numbers. odd reports whether
// there were some.
func jutulParsePayload(text string) (o rows.Object, odd bool, err error) {
	if o, err = rows.Parse([]byte(text)); err == nil {
		return o, false, nil
	}
	quoted, odd := rows.ReplaceNaN([]byte(text), strconv.Quote)
	if !odd {
		return nil, false, err
	}
	o, err = rows.Parse(quoted)
	return o, err == nil, err
}

// jutulLosses are what a trace does not hold of a session. The conformance suite checks the list.
var jutulLosses = codec.ForeignLosses(codec.Losses{
	{What: "ids and times", Note: "those of messages; a call with the id of another gets its own"},
	{What: "title", Note: "an empty one"},
	{What: "borders of messages, steps and texts", Note: "a user's message ends the answer, which has no steps"},
	{What: "rewinds", Note: "the messages are written like the others"},
	{What: "texts", Note: "those of system messages"},
	{What: "reasoning", Note: "that of system messages"},
	{What: "compactions", Note: "their tails and sizes"},
	{What: "tokens", Note: "a count that is too large"},
	{What: "tokens and costs of messages", Note: "the tokens are those of the whole answer"},
	{What: "data parts", Note: "data that is not an object is wrapped in one"},
	{What: "tool calls", Note: "those of system messages, those without a name, and states without a result"},
	{What: "tool inputs and outputs", Note: "outputs are texts; an input that is not an object is wrapped in one"},
	{What: "permissions", Note: "questions that no decision has, and details"},
}, "agents and models", "ends of turns", "files and sources", "system prompts and tool catalogs")
