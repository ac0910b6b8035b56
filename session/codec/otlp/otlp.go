// Package otlp writes sessions as spans, those that the SDK emits: session.run,
// session.turn, tool.call, compaction.run, permission.evaluate and "chat". Any store
// can so be replayed into Jaeger, Tempo or another collector, and a collector with our
// exporter, or "agenttrace import", makes the same rows of them: in an empty store,
// the same byte for byte, except for what [Explain] lists.
//
//	session row                   session.run, the last one that is known
//	assistant message             session.turn, with the user message before it
//	any other message             session.turn of its own
//	message with a compaction     compaction.run
//	tool part                     tool.call: input and output are there alone
//	permission decision           permission.evaluate
//	step of a message, error      chat, if no span of a model call is known
//	system prompt, tool catalog   on the first turn that names it
//	any other known span          a span of its kind, with what it measured
//
// The attributes are those that an agent would have set, as far as the rows have them. What
// they cannot say exactly, such as a message of the system, is in the attribute
// agenttrace.replay; see [ingest.EmbeddedRows]. Nothing reads spans back but ingest, which
// reads a replay as it does all telemetry.
//
// # Ids
//
// Rows keep their ids. Each of the session's SpanRefs is written once, with its ids, parent, times
// and status. What came from no span has one with ids derived from the session's, so that
// writing a session again gives the same spans. Those without a known trace are of the trace of
// session.run.
//
// A replay belongs into a store that does not have the session. Where it stands
// already, reported by other spans, its messages would be counted twice.
package otlp

import (
	"fmt"
	"io"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/codec"
)

// WriteJSON writes the session's spans as one line of OTLP JSON, as the collector's
// file exporter does. Sessions may follow one another.
func WriteJSON(w io.Writer, s *codec.Session) error {
	return write(w, s, func(td ptrace.Traces) ([]byte, error) {
		b, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
		return append(b, '\n'), err
	})
}

// WriteProto writes the session's spans as an ExportTraceServiceRequest in protobuf.
// What follows another is one request too, that of all their sessions.
func WriteProto(w io.Writer, s *codec.Session) error {
	return write(w, s, (&ptrace.ProtoMarshaler{}).MarshalTraces)
}

func write(w io.Writer, s *codec.Session, marshal func(ptrace.Traces) ([]byte, error)) error {
	td, err := Encode(s)
	if err != nil {
		return err
	}
	b, err := marshal(td)
	if err == nil {
		_, err = w.Write(b)
	}
	if err != nil {
		return fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return nil
}
