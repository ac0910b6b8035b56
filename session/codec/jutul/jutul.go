// Package jutul reads and writes the trace database of jutul-agent: one session
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
// Any other session is written as far as events have words for it; [Losses] lists what
// they do not hold. A part that only has the name of one of jutul's kinds is an event
// data-<kind>, arguments that are not an object are in one, under "input", and where a step
// begins is not an event.
package jutul

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Kinds of events that are more than a part with their name.
const (
	kindStart      = "session_start"
	kindResume     = "session_resume"
	kindTitle      = "session_title"
	kindEnd        = "session_end"
	kindUser       = "message_user"
	kindAssistant  = "message_assistant"
	kindReasoning  = "message_reasoning"
	kindUsage      = "model_usage"
	kindCall       = "tool_call"
	kindResult     = "tool_result"
	kindRequest    = "hitl_request"
	kindResponse   = "hitl_response"
	kindCompaction = "context_compaction"
)

// kindNone is the kind of an event that has none.
const kindNone = "jutul_event"

// agentName is what a session is said to be the work of.
const agentName = "jutul-agent"

// event is a row of the table.
type event struct {
	id        int64
	timestamp string
	kind      string
	payload   string
}

// timeLayout is that of Python's datetime.isoformat in UTC, which leaves the
// fraction out when it is zero.
const timeLayout = "2006-01-02T15:04:05.000000-07:00"

func formatTime(milli int64) string {
	s := time.UnixMilli(min(max(milli, 0), rows.MaxTime)).UTC().Format(timeLayout)
	return strings.Replace(s, ".000000", "", 1)
}

// parseTime returns Unix milliseconds. A time without a zone is in UTC.
func parseTime(s string) (int64, error) {
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

// parsePayload reads a payload. Python writes numbers that JSON does not have; they
// become strings, which Python's float reads as the same numbers. odd reports whether
// there were some.
func parsePayload(text string) (o rows.Object, odd bool, err error) {
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
