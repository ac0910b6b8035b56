package agenttracetest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/log/embedded"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// Event is a log record of agenttrace's: what was known of something while work went on.
type Event struct {
	Name string
	// Time is when it was so. The events of a session have times of their own.
	Time time.Time
	// SpanContext is that of the run or turn that was going on.
	SpanContext trace.SpanContext
	Attributes  []attribute.KeyValue

	// Record is the decoded event.
	Record *spans.Event
	// Err states what is wrong with the event: attributes that do not decode, that
	// are not known or come twice, or what [spans.Event] Validate finds.
	Err error
}

// Events is a list of events.
type Events []Event

// Events returns every event, in the order of their times.
func (r *Recorder) Events() Events {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.events)
	slices.SortStableFunc(out, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return out
}

// Session returns the events of one session.
func (e Events) Session(id string) Events {
	return where(e, func(e *Event) bool { return e.Record.SessionID == id })
}

// Named returns the events of that name.
func (e Events) Named(name string) Events {
	return where(e, func(e *Event) bool { return e.Name == name })
}

// Statuses returns what the sessions did, in order: the status events.
func (e Events) Statuses() []*spans.Event {
	var out []*spans.Event
	for _, e := range e.Named(semconv.EventStatus) {
		out = append(out, e.Record)
	}
	return out
}

// Message is a message as events report it.
type Message struct {
	ID, Role  string
	CreatedAt int64
	// Metadata is a JSON object, "" when no event had any.
	Metadata string
	// Parts are in the order of their indexes.
	Parts []spans.Part
}

// Messages combines what the events report: the messages in the order in
// which they began, each part as the last event about it has it.
func (e Events) Messages() []Message {
	var out []Message
	for _, e := range e {
		r := e.Record
		if r.MessageID == "" {
			continue
		}
		i := slices.IndexFunc(out, func(m Message) bool { return m.ID == r.MessageID })
		if i < 0 {
			i = len(out)
			out = append(out, Message{ID: r.MessageID, Role: r.Role, CreatedAt: r.MessageCreatedAt})
		}
		m := &out[i]
		if e.Name == semconv.EventMessage {
			m.Metadata = string(r.MessageMetadata)
		}
		for _, p := range r.Parts {
			if j := slices.IndexFunc(m.Parts, func(have spans.Part) bool { return have.ID == p.ID }); j >= 0 {
				m.Parts[j] = p
			} else {
				m.Parts = append(m.Parts, p)
			}
		}
	}
	for _, m := range out {
		slices.SortStableFunc(m.Parts, func(a, b spans.Part) int { return cmp.Compare(a.Index, b.Index) })
	}
	return out
}

// Logger implements [log.LoggerProvider].
func (r *Recorder) Logger(string, ...log.LoggerOption) log.Logger {
	return &recordingLogger{recorder: r}
}

type recordingLogger struct {
	embedded.Logger
	recorder *Recorder
}

// Enabled implements [log.Logger].
func (l *recordingLogger) Enabled(_ context.Context, p log.EnabledParameters) bool {
	l.recorder.mu.Lock()
	defer l.recorder.mu.Unlock()
	return l.recorder.drop == nil || !l.recorder.drop(p.EventName)
}

// Emit implements [log.Logger]. Records without an event name are no events.
func (l *recordingLogger) Emit(ctx context.Context, record log.Record) {
	if record.EventName() == "" {
		return
	}
	name := record.EventName()
	e := Event{
		Name: name, Time: record.Timestamp(), SpanContext: trace.SpanContextFromContext(ctx),
		Record: &spans.Event{Name: name},
	}
	record.WalkAttributes(func(kv attribute.KeyValue) bool {
		e.Attributes = append(e.Attributes, kv)
		return true
	})
	e.Err = errors.Join(spans.Decode(e.Record, e.Attributes), e.Record.Validate())
	r := l.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}
