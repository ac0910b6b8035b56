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
// Fields of a payload that are not mapped stand in the part's providerMetadata
// or callProviderMetadata, under "jutul".
//
// # To a trace
//
// A session that came from a trace goes back into the same events. What differs
// afterwards: times are in milliseconds, event ids count from 1, a result that
// came in the millisecond of a later event stands before it and has a name and a
// status, payloads that were not JSON objects are wrapped as {"data": …}, and an
// event without a kind is a jutul_event.
//
// Any other session is written as far as events have words for it; [Explain] lists what
// they do not hold. A part that only has the name of one of jutul's kinds is an event
// data-<kind>, arguments that are no object stand in one, under "input", and where a step
// begins is no event.
package jutul

import (
	"bytes"
	"encoding/json"
	"fmt"
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
	s := time.UnixMilli(min(max(milli, 0), maxTime)).UTC().Format(timeLayout)
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

// parsePayload reads a payload. Python writes numbers that JSON does not have;
// they become strings, which Python's float reads as the same numbers. odd says
// that there were some.
func parsePayload(text string) (o rows.Object, odd bool, err error) {
	if o, err = rows.Parse([]byte(text)); err == nil {
		return o, false, nil
	}
	quoted := quoteNumbers(text)
	if quoted == text {
		return nil, false, err
	}
	if o, err = rows.Parse([]byte(quoted)); err != nil {
		return nil, false, err
	}
	return o, true, nil
}

// quoteNumbers puts NaN, Infinity and -Infinity in quotes where they stand
// outside of strings.
func quoteNumbers(text string) string {
	var b strings.Builder
	last, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == 'N' || c == 'I' || c == '-':
			for _, word := range [...]string{"NaN", "Infinity", "-Infinity"} {
				if strings.HasPrefix(text[i:], word) {
					b.WriteString(text[last:i])
					b.WriteString(`"` + word + `"`)
					i += len(word) - 1
					last = i + 1
					break
				}
			}
		}
	}
	b.WriteString(text[last:])
	return b.String()
}

// appendPython appends a JSON value as Python's json.dumps writes it: a space
// after commas and colons, and nothing but ASCII.
func appendPython(dst []byte, value json.RawMessage) []byte {
	for i := 0; i < len(value); i++ {
		switch c := value[i]; c {
		case ',', ':':
			dst = append(dst, c, ' ')
		case ' ', '\t', '\r', '\n':
		case '"':
			end := i + 1
			for end < len(value) && value[end] != '"' {
				if value[end] == '\\' {
					end++
				}
				end++
			}
			if end >= len(value) {
				return append(dst, value[i:]...)
			}
			dst = appendPythonString(dst, value[i:end+1])
			i = end
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// appendPythonString takes a JSON string with its quotes. Halves of surrogate
// pairs, which have no place in a Go string, stay escaped as they are.
func appendPythonString(dst []byte, quoted []byte) []byte {
	dst = append(dst, '"')
	inner := quoted[1 : len(quoted)-1]
	for len(inner) > 0 {
		if inner[0] != '\\' {
			n := bytes.IndexByte(inner, '\\')
			if n < 0 {
				n = len(inner)
			}
			for _, r := range string(inner[:n]) {
				dst = appendPythonRune(dst, r)
			}
			inner = inner[n:]
			continue
		}
		if inner[1] != 'u' {
			dst = appendPythonRune(dst, unescape[inner[1]])
			inner = inner[2:]
			continue
		}
		var unit rune
		for _, c := range inner[2:6] {
			unit = unit<<4 | rune(strings.IndexByte("0123456789abcdef", c|0x20))
		}
		if unit >= 0xD800 && unit < 0xE000 {
			dst = fmt.Appendf(dst, `\u%04x`, unit)
		} else {
			dst = appendPythonRune(dst, unit)
		}
		inner = inner[6:]
	}
	return append(dst, '"')
}

var unescape = map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func appendPythonRune(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	case '\f':
		return append(dst, `\f`...)
	case '\b':
		return append(dst, `\b`...)
	}
	switch {
	case r >= ' ' && r <= '~':
		return append(dst, byte(r))
	case r < 0x10000:
		return fmt.Appendf(dst, `\u%04x`, r)
	}
	r -= 0x10000
	return fmt.Appendf(dst, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
}
