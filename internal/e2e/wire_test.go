//go:build long

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/spans"
)

// Kinds of lines.
const (
	// lineReported precedes an export, lineAcknowledged follows the export of the same number that returned nil.
	lineReported     = "reported"
	lineAcknowledged = "acknowledged"
	// lineRecorded precedes the recording of generated text: Size is the length of the text with that tag.
	lineRecorded = "recorded"
	// lineState has a state that the host saved.
	lineState = "state"
	// lineResumed has the status of a resumed session, linePaused means that the agent
	// waits for input, lineDone that it succeeded.
	lineResumed = "resumed"
	linePaused  = "paused"
	lineDone    = "done"
	lineTrouble = "trouble"
)

// line is a line of an agent's output.
type line struct {
	Kind    string            `json:"kind"`
	N       int64             `json:"n,omitempty"`
	Reports []reported        `json:"reports,omitempty"`
	Tag     string            `json:"tag,omitempty"`
	Size    int               `json:"size,omitempty"`
	State   *agenttrace.State `json:"state,omitempty"`
	Session string            `json:"session,omitempty"`
	Text    string            `json:"text,omitempty"`
}

// reported is what telemetry reports about one thing.
type reported struct {
	// Span is the name of the span, or empty for a live event.
	Span    string `json:"span,omitempty"`
	Session string `json:"session"`
	Message string `json:"message,omitempty"`
	Role    string `json:"role,omitempty"`
	Part    string `json:"part,omitempty"`
	Type    string `json:"type,omitempty"`
	content
	// EndReason is that of a turn's span, Status the status of the session.
	EndReason string `json:"end_reason,omitempty"`
	Status    string `json:"status,omitempty"`
}

// content is the content of a part.
type content struct {
	Call   string `json:"call,omitempty"`
	State  string `json:"state,omitempty"`
	Text   string `json:"text,omitempty"`
	Output string `json:"output,omitempty"`
	Error  string `json:"error,omitempty"`
}

// contentOf decodes an AI SDK part.
func contentOf(data []byte) content {
	var p struct {
		ToolCallID string          `json:"toolCallId"`
		State      string          `json:"state"`
		Text       string          `json:"text"`
		Output     json.RawMessage `json:"output"`
		ErrorText  string          `json:"errorText"`
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return content{Error: err.Error()}
	}
	c := content{Call: p.ToolCallID, Text: p.Text, Output: string(p.Output), Error: p.ErrorText}
	if c.Call != "" {
		c.State = p.State
	}
	return c
}

// wire is the pipe to the watching test.
type wire struct {
	mu sync.Mutex // guards n and the output
	n  int64
}

// send writes a whole line.
func (w *wire) send(l line) {
	text, err := json.Marshal(l)
	if err != nil {
		text = fmt.Appendf(nil, `{"kind":%q,"text":%q}`, lineTrouble, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = os.Stdout.Write(append(text, '\n')) // no one to report to if the watching test is gone
}

// export prints what is sent, sends it, and prints the acknowledgement.
func (w *wire) export(things []reported, send func() error) error {
	w.mu.Lock()
	w.n++
	n := w.n
	w.mu.Unlock()
	w.send(line{Kind: lineReported, N: n, Reports: things})
	err := send()
	if err == nil {
		w.send(line{Kind: lineAcknowledged, N: n})
	}
	return err
}

// watchedLogs and watchedSpans print what goes through an exporter.
type watchedLogs struct {
	sdklog.Exporter
	wire *wire
}

type watchedSpans struct {
	sdktrace.SpanExporter
	wire *wire
}

func (e watchedLogs) Export(ctx context.Context, records []sdklog.Record) error {
	var all []reported
	for i := range records {
		event := spans.Event{Name: records[i].EventName()}
		records[i].WalkAttributes(func(kv attribute.KeyValue) bool {
			_, err := spans.Set(&event, string(kv.Key), spans.AttributeValue(kv.Value))
			if err != nil {
				e.wire.send(line{Kind: lineTrouble, Text: err.Error()})
			}
			return err == nil
		})
		all = append(all, reportedBy(&event)...)
	}
	return e.wire.export(all, func() error { return e.Exporter.Export(ctx, records) })
}

func reportedBy(e *spans.Event) []reported {
	t := reported{Session: e.SessionID, Message: e.MessageID, Role: e.Role, Status: e.Status}
	return append([]reported{t}, parts(t, "", e.Parts)...)
}

// parts returns what is reported of the parts with data.
func parts(of reported, span string, all []spans.Part) []reported {
	var out []reported
	for i := range all {
		if p := &all[i]; len(p.Data) > 0 {
			out = append(out, reported{
				Span: span, Session: of.Session, Message: of.Message, Role: of.Role, Part: p.ID, Type: p.Type,
				content: contentOf(p.Data),
			})
		}
	}
	return out
}

func (e watchedSpans) ExportSpans(ctx context.Context, batch []sdktrace.ReadOnlySpan) error {
	var all []reported
	for _, s := range batch {
		record := spans.New(s.Name())
		if record == nil {
			continue // a model call
		}
		for _, kv := range s.Attributes() {
			if _, err := spans.Set(record, string(kv.Key), spans.AttributeValue(kv.Value)); err != nil {
				e.wire.send(line{Kind: lineTrouble, Text: err.Error()})
			}
		}
		switch r := record.(type) {
		case *spans.Run:
			all = append(all, reported{Span: s.Name(), Session: r.SessionID})
		case *spans.Turn:
			user := reported{Span: s.Name(), Session: r.SessionID, Message: r.User.ID, Role: "user"}
			answer := reported{Span: s.Name(), Session: r.SessionID, Message: r.Assistant.ID, Role: "assistant",
				EndReason: r.EndReason}
			if r.User.ID != "" {
				all = append(append(all, user), parts(user, s.Name(), r.User.Parts)...)
			}
			all = append(append(all, answer), parts(answer, s.Name(), r.Assistant.Parts)...)
		case *spans.ToolCall:
			t := reported{Span: s.Name(), Session: r.SessionID, Message: r.MessageID, Role: "assistant", Part: r.PartID,
				Type: "tool-" + r.ToolID}
			t.content = content{Call: r.CallID, State: r.State, Output: r.Output}
			if r.State == session.StateOutputError {
				t.Error = r.Error
			}
			all = append(all, t)
		}
	}
	return e.wire.export(all, func() error { return e.SpanExporter.ExportSpans(ctx, batch) })
}
