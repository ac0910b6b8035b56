package agenttrace

import (
	"cmp"
	"strings"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/spans"
)

// part is a part of an assistant message in the making. Exactly one of data,
// text, tool and ended is set; a tool, ended or not, knows its kind itself.
type part struct {
	id      string
	index   int64
	kind    string
	created int64
	data    []byte
	text    *TextStream
	tool    *ToolCall
	ended   *frozen
}

// place gives a part its id and index. The caller holds mu.
func (t *Turn) place(p *part, now time.Time) {
	t.answer(now)
	p.id = spans.NewID(spans.PrefixPart, now)
	p.created = max(now.UnixMilli(), t.assistant.CreatedAt)
	p.index = t.nextPart
	t.nextPart++
	t.parts = append(t.parts, *p)
	t.goesOn(now, false)
}

// placeData is place for a part that is complete. The caller holds mu.
func (t *Turn) placeData(kind string, now time.Time, data func(partID string) []byte) (id string) {
	p := part{kind: kind}
	t.place(&p, now)
	p.data = data(p.id)
	t.parts[len(t.parts)-1].data = p.data
	if t.events != nil {
		t.emitPart(&t.assistant, now, p.freeze(now, now))
	}
	return p.id
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

// content returns a text as it may be sent.
func (t *Turn) content(kind redact.Content, text string) string {
	return t.run.sess.tracer.filter.content(kind, text)
}

// brief returns a text of little length as it may be sent.
func (t *Turn) brief(text string) string {
	return t.run.sess.tracer.filter.text(redact.Other, "", text)
}

// Text adds a part of text to the answer. Model output belongs to
// [ModelCall.Text]; this is for what the agent reports of itself.
func (t *Turn) Text(text string) {
	if t != nil && t.recording {
		text = t.content(redact.Other, text)
		t.addData("text", "text", func(string) []byte { return textData("text", text) })
	}
}

// Reasoning adds a part of reasoning to the answer.
func (t *Turn) Reasoning(text string) {
	if t != nil && t.recording {
		text = t.content(redact.Reasoning, text)
		t.addData("reasoning", "reasoning", func(string) []byte { return textData("reasoning", text) })
	}
}

// File adds a file to the answer.
func (t *Turn) File(f File) {
	if t != nil && t.recording {
		data := FilePart(f).data(&t.run.sess.tracer.filter, redact.Other)
		t.addData("a file", "file", func(string) []byte { return data })
	}
}

// SourceURL adds a page that the answer rests on.
func (t *Turn) SourceURL(s SourceURL) {
	t.addData("a source", "source-url", func(id string) []byte {
		s.ID = cmp.Or(s.ID, id)
		b := append([]byte(nil), `{"type":"source-url"`...)
		b = spans.AppendJSONMember(b, "sourceId", s.ID)
		b = spans.AppendJSONMember(b, "url", t.brief(s.URL))
		return append(spans.AppendJSONOptional(b, "title", t.brief(s.Title)), '}')
	})
}

// SourceDocument adds a document that the answer rests on.
func (t *Turn) SourceDocument(s SourceDocument) {
	t.addData("a source", "source-document", func(id string) []byte {
		s.ID = cmp.Or(s.ID, id)
		b := append([]byte(nil), `{"type":"source-document"`...)
		b = spans.AppendJSONMember(b, "sourceId", s.ID)
		b = spans.AppendJSONMember(b, "mediaType", s.MediaType)
		b = spans.AppendJSONMember(b, "title", t.brief(s.Title))
		return append(spans.AppendJSONOptional(b, "filename", t.brief(s.Filename)), '}')
	})
}

// Data adds a part of the host's own kind; its type is "data-" and name. id may
// be empty; a later part of the same id is the host's to relate to the earlier
// one. Use it for artifacts with the code that made them, for steps of an
// investigation with their parent, and the like.
func (t *Turn) Data(name, id string, value any) {
	if t == nil || t.off || !t.recording && t.run.guard == nil {
		return
	}
	var partID string
	if t.recording {
		p := DataPart(name, id, value)
		data := p.data(&t.run.sess.tracer.filter, redact.Other)
		partID = t.addData("data", t.run.sess.tracer.filter.id(p.kind), func(string) []byte { return data })
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

// TextStream is a part that grows: text or reasoning as the model sends it. It
// is an [io.Writer] and [io.StringWriter] that never fails. Close it when the
// part is whole; what is still open when the turn ends is marked as cut.
type TextStream struct {
	turn *Turn
	call *ModelCall // that writes it, if known
	kind string

	mu       sync.Mutex // guards the fields down to throttle
	buf      strings.Builder
	grown    int64 // when it did last, by the tracer's clock
	closed   bool
	provider string // JSON
	throttle throttle

	// id, index, created and answer are set when the stream enters its turn.
	id      string
	index   int64
	created int64
	answer  spans.Message
}

// StreamText begins a part of text that grows.
func (t *Turn) StreamText() *TextStream { return t.stream("text", nil) }

// StreamReasoning begins a part of reasoning that grows.
func (t *Turn) StreamReasoning() *TextStream { return t.stream("reasoning", nil) }

func (t *Turn) stream(kind string, call *ModelCall) *TextStream {
	if t == nil || t.off || !t.recording {
		return nil
	}
	now := t.run.now()
	var begun *TextStream
	t.set(kind, func() {
		s := &TextStream{turn: t, kind: kind, call: call}
		p := part{kind: kind, text: s}
		t.place(&p, now)
		s.id, s.index, s.created = p.id, p.index, p.created
		s.answer = spans.Message{ID: t.assistant.ID, CreatedAt: t.assistant.CreatedAt}
		if t.events != nil {
			s.emitEvent(now)
		}
		begun = s
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
	emitted, first := false, false
	var wait time.Duration
	s.mu.Lock()
	late := s.closed
	if !late {
		s.buf.WriteString(text)
		now := s.tracer().now()
		first = s.grown == 0
		s.grown = max(s.grown, now.UnixMilli())
		if s.turn.events != nil {
			now = now.Add(s.turn.run.sess.shift())
			if wait = s.throttle.wait(s.tracer().live, now, s.buf.Len()); wait == 0 {
				s.emitEvent(now)
				emitted = true
			}
		}
	}
	s.mu.Unlock()
	if first && s.call != nil {
		s.call.chunk(s.turn.run.now())
	}
	switch {
	case late:
		s.turn.drop(s.kind)
	case emitted:
		s.turn.run.sess.flush()
	case wait > 0:
		s.turn.run.sess.hold(s, wait)
	}
	return len(text), nil
}

func (s *TextStream) tracer() *Tracer { return s.turn.run.sess.tracer }

// updated is when the text grew last, in the session's time, or 0. The caller holds mu.
func (s *TextStream) updated() int64 {
	if s.grown == 0 {
		return 0
	}
	return s.grown + s.turn.run.sess.shift().Milliseconds()
}

// SetProviderMetadata stores what the provider reports of the part, such as the
// signature of a thought, by provider name.
func (s *TextStream) SetProviderMetadata(values map[string]any) {
	if s == nil {
		return
	}
	encoded := s.tracer().filter.json(redact.Other, "", encodeJSON(values))
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.provider = encoded
	}
}

// Close reports that the part is whole. It always returns nil.
func (s *TextStream) Close() error {
	if s != nil {
		s.mu.Lock()
		emitted := !s.closed && s.turn.events != nil
		s.closed = true
		if emitted {
			s.emitEvent(s.turn.run.now())
		}
		s.mu.Unlock()
		if emitted {
			s.turn.run.sess.flush()
		}
	}
	return nil
}

// data returns text of the part as AI SDK JSON. The caller holds mu.
func (s *TextStream) data(text string) []byte {
	kind := redact.Other
	if s.kind == "reasoning" {
		kind = redact.Reasoning
	}
	data := textData(s.kind, s.turn.content(kind, text))
	data = data[:len(data)-1]
	if !s.closed {
		data = append(data, `,"state":"streaming"`...)
	}
	if s.provider != "" {
		data = append(data, `,"providerMetadata":`...)
		data = append(data, s.provider...)
	}
	return append(data, '}')
}

// emitEvent queues the part as it is now; of a text that grows, as much as cannot
// change. The caller holds mu, or is the only one to know the stream.
func (s *TextStream) emitEvent(now time.Time) {
	s.throttle.at = now
	text := s.buf.String()
	if !s.closed {
		text = s.tracer().filter.settled(text)
	}
	s.throttle.sent = len(text)
	s.emitData(now, s.data(text))
}

// sendHeld sends what no event has had, if it is settled.
func (s *TextStream) sendHeld(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.throttle.held = false
	if !s.closed && len(s.tracer().filter.settled(s.buf.String())) > s.throttle.sent {
		s.emitEvent(now)
	}
}

func (s *TextStream) emitData(now time.Time, data []byte) {
	s.turn.emitPart(&s.answer, now, spans.Part{
		ID: s.id, Index: s.index, Type: s.kind, CreatedAt: s.created,
		UpdatedAt: max(s.created, s.updated()), Data: data,
	})
}

// freeze ends the part and returns it as AI SDK JSON.
func (s *TextStream) freeze(now time.Time) (data []byte, updated int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data = s.data(s.buf.String())
	if !s.closed && s.turn.events != nil {
		s.emitData(now, data)
	}
	s.closed = true
	return data, s.updated()
}

// freeze returns the part as its turn carries it, and ends what is still open
// in it. until is as long as the result of a tool call is accepted.
func (p *part) freeze(now, until time.Time) spans.Part {
	out := spans.Part{ID: p.id, Index: p.index, Type: p.kind, CreatedAt: p.created, UpdatedAt: p.created, Data: p.data}
	switch {
	case p.text != nil:
		var updated int64
		out.Data, updated = p.text.freeze(now)
		out.UpdatedAt = max(out.UpdatedAt, updated)
	case p.tool != nil || p.ended != nil:
		f := p.ended
		if f == nil {
			now := p.tool.freeze(now, until)
			f = &now
		}
		out.Type, out.ToolCallID, out.ToolName, out.ToolState, out.Data = f.kind, f.callID, f.name, f.state, f.data
		if out.Data != nil {
			out.ToolName = "" // the data has it
		}
		out.UpdatedAt = max(out.UpdatedAt, f.updated)
	}
	return out
}
