// OTLP: these files write sessions as the spans that the SDK emits, of which ingest makes the same rows, byte for byte,
// except for what [otlpExplain] lists. docs/formats.md lists what becomes what. What the attributes of a span cannot
// say exactly, such as a message of the system, is in the attribute agenttrace.replay; see [ingest.EmbeddedRows].
//
// Rows keep their ids. Each of the session's SpanRefs is written once, with its ids, parent, times and status. What
// came from no span has one with ids derived from the session's, so that writing a session again gives the same spans.
// Those without a known trace are of the trace of session.run.

package formats

import (
	"encoding/json"
	"io"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
)

// TurnSpans returns the spans that the formats of OTLP write of a session, without those that stand for a span or a
// record of another program, and without those of which wanted returns false. The message of a run is "". Each span has
// a duration, if only of a nanosecond.
func TurnSpans(s *codec.Session, wanted func(name, messageID, spanID string) bool) (ptrace.Traces, error) {
	return otlpEncode(s, nil, wanted)
}

// otlpWriteJSON writes the session's spans as one line of OTLP JSON, as the collector's
// file exporter does, and one of log records if it has scores. Sessions may follow one another.
func otlpWriteJSON(w io.Writer, s *codec.Session) error {
	logs := plog.NewLogs()
	return otlpWrite(w, s, &logs, func(td ptrace.Traces) ([]byte, error) {
		b, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
		if b = append(b, '\n'); logs.LogRecordCount() == 0 || err != nil {
			return b, err
		}
		records, err := (&plog.JSONMarshaler{}).MarshalLogs(logs)
		return append(append(b, records...), '\n'), err
	})
}

// otlpWriteProto writes the session's spans as an ExportTraceServiceRequest in protobuf. What follows another is one
// request too, that of all their sessions. It has no log records: scores are events of spans.
func otlpWriteProto(w io.Writer, s *codec.Session) error {
	return otlpWrite(w, s, nil, (&ptrace.ProtoMarshaler{}).MarshalTraces)
}

func otlpWrite(w io.Writer, s *codec.Session, logs *plog.Logs,
	marshal func(ptrace.Traces) ([]byte, error)) (err error) {
	td, err := otlpEncode(s, logs, nil)
	if err != nil {
		return err
	}
	defer wrapWriting(s, &err)
	b, err := marshal(td)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// otlpExplain lists what of the rows a store would have otherwise after it ingested what
// Encode wrote. Nothing is listed of a session that comes out as it went in.
//
// Nothing of the content is lost but what breaks the rules of [session.Check]; the rest is
// sums, which a store makes itself.
func otlpExplain(s *codec.Session) (losses []codec.Loss) {
	t := s.Sorted()
	add := func(what, kept string, n int) { losses = codec.AddLoss(losses, what, kept, n) }
	violations := session.Check(t)
	add("rows that break a rule of sessions", "as data-damaged parts, or left out", len(violations))
	deep := []string{t.Session.MetadataJSON, t.Session.PermissionsJSON, session.Deref(t.Session.ModelJSON)}
	for i := range t.Messages {
		deep = append(deep, t.Messages[i].Message.MetadataJSON)
		for j := range t.Messages[i].Parts {
			p := &t.Messages[i].Parts[j]
			if otlpIsTool(p) && session.Deref(p.ToolCallID) == "" {
				add("tool calls with an empty id", "as data-damaged parts", 1)
			} else if !otlpIsTool(p) && p.ToolCallID != nil {
				add("tool_call_id of parts that are no tool calls", "", 1)
			}
			deep = append(deep, p.DataJSON)
		}
	}
	for _, text := range deep {
		if ingest.TooDeep([]byte(text)) {
			add("JSON nested more than 500 deep", "as text", 1)
		}
	}
	for _, b := range s.Blobs {
		if b.Body == "" {
			add("system prompts and tool catalogs that are empty", "", 1)
		}
	}
	if archived := t.Session.ArchivedAt; archived != nil && *archived > otlpLastMilli {
		add("archived_at after the year 2262, which spans do not have", "the last time that they have", 1)
	}
	if kept := store.AddCost(t.Session.CostUSD, 0); kept != t.Session.CostUSD {
		add("cost_usd of the session in less than a billionth of a dollar", "rounded", 1)
	}
	for _, v := range violations {
		if v.Rule == "rollup" {
			add("tokens of the session, which are not the sum of its messages", "the sum", 1)
		}
	}
	return losses
}

// otlpObject reads a JSON object; what is none is an empty one.
func otlpObject(text string) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &m) != nil || m == nil {
		return make(map[string]json.RawMessage)
	}
	return m
}
