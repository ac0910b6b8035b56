package agenttrace

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// part is a part of an assistant message in the making: a [TextStream], a [ToolCall], or one that is complete.
// The turn's mu is held when its methods are called.
type part interface {
	// freeze ends the part, if it is open, and returns it as its turn lists it. Until then the result of a tool call
	// is accepted.
	freeze(now, until time.Time) spans.Part
	// content returns the part as it is now as AI SDK JSON.
	content() []byte
}

// complete is a part that never changes.
type complete spans.Part

func (p *complete) freeze(time.Time, time.Time) spans.Part { return spans.Part(*p) }
func (p *complete) content() []byte                        { return p.Data }

// slot is the place of a part in its turn's answer. It never changes.
type slot struct {
	turn     *Turn
	partID   string
	index    int64
	created  int64
	answerID string
	answerAt int64 // when the answer began
}

func (s *slot) tracer() *Tracer { return s.turn.run.sess.tracer }
func (s *slot) filter() *filter { return &s.turn.run.sess.tracer.filter }

// part describes the part.
func (s *slot) part(kind string, updated int64, data []byte) spans.Part {
	return spans.Part{
		ID: s.partID, Index: s.index, Type: kind, CreatedAt: s.created, UpdatedAt: max(s.created, updated), Data: data,
	}
}

// emit queues the part as it is now.
func (s *slot) emit(now time.Time, p spans.Part) {
	if s.turn.events == nil {
		return
	}
	s.turn.run.sess.emitEvent(s.turn.events, now, spans.Event{
		Name: semconv.EventPart, MessageID: s.answerID, Role: roleAssistant, MessageCreatedAt: s.answerAt,
		Parts: []spans.Part{p},
	})
}

// place adds a part to the answer. The caller holds mu.
func (t *Turn) place(p part, now time.Time) slot {
	t.answer(now)
	s := slot{
		t, spans.NewID(spans.PrefixPart, now), t.nextPart, max(now.UnixMilli(), t.assistant.CreatedAt),
		t.assistant.ID, t.assistant.CreatedAt,
	}
	t.nextPart++
	t.parts = append(t.parts, p)
	t.goesOn(now, false)
	return s
}

// placeData is place for a part that is complete. The caller holds mu.
func (t *Turn) placeData(kind string, now time.Time, data func(partID string) []byte) (id string) {
	p := new(complete)
	s := t.place(p, now)
	*p = complete(s.part(kind, 0, data(s.partID)))
	s.emit(now, spans.Part(*p))
	return s.partID
}

// addData adds a part that is complete, and returns its id.
func (t *Turn) addData(what, kind string, data func(partID string) []byte) (id string) {
	if t == nil || t.off || !t.recording {
		return ""
	}
	now := t.run.now()
	t.set(what, func() { id = t.placeData(kind, now, data) })
	return id
}

// add is addData for data that need no id and take a while: they are made without a lock.
func (t *Turn) add(what, kind string, make func(f *filter) []byte) (id string) {
	if t == nil || !t.recording {
		return ""
	}
	data := make(&t.run.sess.tracer.filter)
	return t.addData(what, kind, func(string) []byte { return data })
}

// Text adds a part of text to the answer. Model output belongs to
// [ModelCall.Text]; this is for what the agent reports of itself.
func (t *Turn) Text(text string) {
	t.add("text", "text", func(f *filter) []byte { return textData("text", f.content(redact.Other, text)) })
}

// Reasoning adds a part of reasoning to the answer.
func (t *Turn) Reasoning(text string) {
	t.add("reasoning", "reasoning", func(f *filter) []byte {
		return textData("reasoning", f.content(redact.Reasoning, text))
	})
}

// File adds a file to the answer.
func (t *Turn) File(file File) {
	t.add("a file", "file", func(f *filter) []byte { return FilePart(file).data(f, redact.Other) })
}

// SourceURL adds a page that the answer rests on.
func (t *Turn) SourceURL(s SourceURL) {
	t.source("source-url", s.ID, [2]string{"url", s.URL}, [2]string{"title?", s.Title})
}

// SourceDocument adds a document that the answer rests on.
func (t *Turn) SourceDocument(s SourceDocument) {
	t.source("source-document", s.ID, [2]string{"mediaType", s.MediaType}, [2]string{"title", s.Title},
		[2]string{"filename?", s.Filename})
}

// source adds a source with members, of which those with a question mark are left out if they are empty.
func (t *Turn) source(kind, sourceID string, members ...[2]string) {
	t.addData("a source", kind, func(id string) []byte {
		b := spans.AppendJSONMember([]byte{'{'}, "type", kind)
		b = spans.AppendJSONMember(b, "sourceId", cmp.Or(sourceID, id))
		for _, m := range members {
			if name, optional := strings.CutSuffix(m[0], "?"); !optional || m[1] != "" {
				b = spans.AppendJSONMember(b, name, t.run.sess.tracer.filter.text(redact.Other, "", m[1]))
			}
		}
		return append(b, '}')
	})
}

// Data adds a part of the host's own kind; its type is "data-" and name. id may be empty; a later part of the same
// id is the host's to relate to the earlier one. Use it for artifacts with the code that made them, for steps of an
// investigation with their parent, and the like.
func (t *Turn) Data(name, id string, value any) {
	if t == nil || t.off || !t.recording && t.run.guard == nil {
		return
	}
	var partID string
	if t.recording {
		p, f := DataPart(name, id, value), &t.run.sess.tracer.filter
		partID = t.add("data", f.id(p.kind), func(f *filter) []byte { return p.data(f, redact.Other) })
	}
	if t.run.guard != nil {
		kind := guardData
		switch name {
		case "state":
			kind = guardState
		case "steering": // what the user writes while the turn goes on
			t.run.guard.reset()
		}
		t.note(kind, kind, partID, t.run.now())
	}
}

// TextStream is a part that grows: text or reasoning as the model sends it. It is an [io.Writer] and [io.StringWriter]
// that never fails. Close it when the part is whole; what is still open when the turn ends is marked as cut.
type TextStream struct {
	slot
	call    *ModelCall // that writes it, if known
	kind    string
	attempt int // of the call, which has written it last

	// The turn's mu guards what follows.
	buf      strings.Builder
	grown    int64 // when it did last
	closed   bool
	provider string // JSON
	throttle throttle
}

// StreamText begins a part of text that grows.
func (t *Turn) StreamText() *TextStream { return t.stream("text", nil) }

// StreamReasoning begins a part of reasoning that grows.
func (t *Turn) StreamReasoning() *TextStream { return t.stream("reasoning", nil) }

func (t *Turn) stream(kind string, call *ModelCall) (begun *TextStream) {
	if t == nil || t.off || !t.recording {
		return nil
	}
	now := t.run.now()
	t.set(kind, func() {
		attempt := 0
		if call != nil {
			attempt = len(call.retries)
		}
		for _, p := range t.parts {
			if s, ok := p.(*TextStream); ok && s.call == call && s.kind == kind && s.attempt < attempt {
				begun, s.closed, s.provider, s.attempt = s, false, "", attempt
				s.buf.Reset()
				return
			}
		}
		begun = &TextStream{kind: kind, call: call, attempt: attempt}
		begun.slot = t.place(begun, now)
		begun.emitEvent(now)
	})
	return begun
}

// Write appends to the part. It always returns len(p) and nil.
func (s *TextStream) Write(p []byte) (int, error) { return s.WriteString(string(p)) }

// WriteString appends to the part. It always returns len(text) and nil.
func (s *TextStream) WriteString(text string) (int, error) {
	if s == nil {
		return len(text), nil
	}
	t := s.turn
	now := t.run.now()
	late, first := false, false
	t.do(func() {
		if late, first = s.closed, s.grown == 0; late {
			return
		}
		s.buf.WriteString(text)
		s.grown = max(s.grown, now.UnixMilli())
		t.grow(&s.throttle, now, s.buf.Len(), s.emitGrown)
	})
	switch {
	case late:
		t.drop(s.kind)
	case first && s.call != nil:
		s.call.chunk(now)
	}
	return len(text), nil
}

// SetProviderMetadata stores what the provider reports of the part, such as the
// signature of a thought, by provider name.
func (s *TextStream) SetProviderMetadata(values map[string]any) {
	if s == nil {
		return
	}
	encoded := s.filter().json(redact.Other, "", encodeJSON(values))
	s.turn.do(func() {
		if !s.closed {
			s.provider = encoded
		}
	})
}

// Close reports that the part is whole. It always returns nil.
func (s *TextStream) Close() error {
	if s == nil {
		return nil
	}
	now := s.turn.run.now()
	s.turn.do(func() {
		if !s.closed {
			s.closed = true
			s.emitEvent(now)
		}
	})
	return nil
}

// data returns text of the part as AI SDK JSON. The caller holds the turn's mu, as do those below.
func (s *TextStream) data(text string) []byte {
	kind := redact.Other
	if s.kind == "reasoning" {
		kind = redact.Reasoning
	}
	data := textData(s.kind, s.filter().content(kind, text))
	data = data[:len(data)-1]
	if !s.closed {
		data = append(data, `,"state":"streaming"`...)
	}
	if s.provider != "" {
		data = append(append(data, `,"providerMetadata":`...), s.provider...)
	}
	return append(data, '}')
}

func (s *TextStream) content() []byte { return s.data(s.buf.String()) }

// emitEvent queues the part as it is now; of a text that grows, as much as cannot change.
func (s *TextStream) emitEvent(now time.Time) {
	if s.turn.events == nil {
		return
	}
	text := s.buf.String()
	if !s.closed {
		text = s.filter().settled(text)
	}
	s.throttle.at, s.throttle.sent = now, len(text)
	s.emit(now, s.part(s.kind, s.grown, s.data(text)))
}

// emitGrown queues the part if no event has had some of it that cannot change.
func (s *TextStream) emitGrown(now time.Time) {
	if !s.closed && len(s.filter().settled(s.buf.String())) > s.throttle.sent {
		s.emitEvent(now)
	}
}

// freeze ends the part. One that is open is marked as cut.
func (s *TextStream) freeze(now, _ time.Time) spans.Part {
	p := s.part(s.kind, s.grown, s.data(s.buf.String()))
	if !s.closed {
		s.emit(now, p)
	}
	s.closed = true
	return p
}

// UserMessage is what begins a turn.
type UserMessage struct {
	// ID is the message's identity if the host has one already; empty means a new "msg_…".
	ID string
	// Text is the first part, when it is not empty; Parts follow it.
	Text  string
	Parts []Part
	// Trigger states what sent the message when no human did.
	Trigger *Trigger
	// Metadata is stored with the message as JSON.
	Metadata map[string]any
}

// Trigger is the envelope of a message that no human typed. Its names are those of the agent guide.
type Trigger struct {
	// Source is schedule, webhook, api, self-schedule or mcp-event.
	Source string
	// FiredAt is stored in Unix milliseconds.
	FiredAt    time.Time
	ScheduleID string
	DeliveryID string
	// Headers are stored, except for what is redacted: see [Options].Redact.
	Headers     map[string]string
	AuthSubject string
}

// MarshalJSON encodes the trigger under the guide's names.
func (t Trigger) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Source      string            `json:"source"`
		FiredAt     int64             `json:"fired_at"`
		ScheduleID  string            `json:"schedule_id,omitempty"`
		DeliveryID  string            `json:"delivery_id,omitempty"`
		Headers     map[string]string `json:"headers,omitempty"`
		AuthSubject string            `json:"auth_subject,omitempty"`
	}{t.Source, t.FiredAt.UnixMilli(), t.ScheduleID, t.DeliveryID, t.Headers, t.AuthSubject})
}

// Part is a part of a user message: an AI SDK part. Make it with [TextPart], [FilePart] or [DataPart].
type Part struct {
	kind string
	// data encodes the part as it may be sent.
	data func(f *filter, kind redact.Content) []byte
}

// Type returns the AI SDK part type.
func (p Part) Type() string { return p.kind }

// TextPart returns a part of text.
func TextPart(text string) Part {
	return Part{"text", func(f *filter, kind redact.Content) []byte { return textData("text", f.content(kind, text)) }}
}

// File is a file that a message carries.
type File struct {
	// MediaType is an IANA media type, such as image/png.
	MediaType string
	// URL is where the file is; Bytes, when URL is empty, is the file itself and travels as a data URL.
	URL      string
	Bytes    []byte
	Filename string
}

// FilePart returns a part that is a file.
func FilePart(f File) Part {
	if f.URL == "" {
		f.URL = "data:" + f.MediaType + ";base64," + base64.StdEncoding.EncodeToString(f.Bytes)
	}
	f.Bytes = nil
	return Part{"file", f.data}
}

func (f File) data(clean *filter, kind redact.Content) []byte {
	f.URL = clean.text(kind, "", f.URL)
	b := []byte(`{"type":"file"`)
	b = spans.AppendJSONMember(b, "mediaType", clean.id(f.MediaType))
	b = spans.AppendJSONMember(b, "url", f.URL)
	b = spans.AppendJSONOptional(b, "filename", clean.text(kind, "", f.Filename))
	return append(b, '}')
}

// DataPart returns a part of the host's own kind: its type is "data-" and name.
// id may be empty. What JSON cannot hold becomes a text that states why: the value, or an element of maps and slices.
func DataPart(name, id string, value any) Part {
	kind, encoded := "data-"+validUTF8(name), encodeJSON(value)
	return Part{kind, func(f *filter, content redact.Content) []byte {
		b := spans.AppendJSONMember([]byte{'{'}, "type", f.id(kind))
		b = spans.AppendJSONOptional(b, "id", f.id(id))
		b = append(b, `,"data":`...)
		b = append(b, f.json(content, "", encoded)...)
		return append(b, '}')
	}}
}

// SourceURL is a page that an answer rests on.
type SourceURL struct {
	// ID names the source; empty means the part's own id.
	ID         string
	URL, Title string
}

// SourceDocument is a document that an answer rests on.
type SourceDocument struct {
	// ID names the source; empty means the part's own id.
	ID                         string
	MediaType, Title, Filename string
}

// textData returns a text or reasoning part.
func textData(kind, text string) []byte {
	b := append(make([]byte, 0, len(text)+len(text)/8+64), '{')
	b = spans.AppendJSONMember(spans.AppendJSONMember(b, "type", kind), "text", text)
	return append(b, '}')
}
