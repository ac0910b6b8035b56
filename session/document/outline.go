package document

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Outline is a session of which the content of some turns is loaded:
//
//	rows of all messages, few parts ─ LoadOutline ─► Outline ─ Document ─► totals, what each turn came to
//	content of some turns ─────────── Load ────────────┘                   and these turns, whole
//
// So a page of a session costs what it shows, and little for each message that it does not. An Outline is used by one
// goroutine.
type Outline struct {
	// Turns are the turns as the outline has them, without texts and without calls that succeeded.
	Turns []*Turn

	r         Reader
	in        Input // what is not loaded is missing
	toolCalls int
	at        map[string]int // of messages in the transcript, by id
	numbers   map[string]int
	loaded    map[string]bool
	// messages are those of the transcript as they were built last, nil if their rows or what is about them changed.
	messages []*Message
}

// LoadOutline reads the outline of the session with the id. The error for a session that is not there wraps
// [store.ErrNotFound].
func (r Reader) LoadOutline(ctx context.Context, id string) (*Outline, error) {
	e, err := r.Excerpt(ctx, id, store.ExcerptQuery{Outline: true})
	if err != nil {
		return nil, err
	}
	t := e.Sorted()
	o := &Outline{r: r, in: Input{Transcript: t}, toolCalls: e.ToolCalls, messages: make([]*Message, len(t.Messages)),
		at: make(map[string]int, len(t.Messages)), numbers: make(map[string]int, len(t.Messages)),
		loaded: make(map[string]bool)}
	if err := r.complete(ctx, &o.in); err != nil {
		return nil, err
	}
	if err := o.in.around(ctx, r); err != nil {
		return nil, err
	}
	var queued []string // whether they wait depends on their spans
	for i := range t.Messages {
		m := &t.Messages[i].Message
		o.at[m.ID] = i
		if m.Role == session.RoleUser && strings.Contains(m.MetadataJSON, `"queued_at"`) {
			queued = append(queued, m.ID)
		}
	}
	if err := o.load(ctx, queued); err != nil {
		return nil, err
	}
	doc := o.build()
	o.Turns = doc.Turns
	for turn, m := range doc.Messages() {
		o.numbers[m.ID] = turn.Number
	}
	return o, nil
}

// loadSums reads what [Reader.Each] has of a session with sums: its outline, what began its turns, and its last turn.
func (r Reader) loadSums(ctx context.Context, id string) (*Document, error) {
	o, err := r.LoadOutline(ctx, id)
	if err != nil {
		return nil, err
	}
	numbers := make([]int, len(o.Turns))
	for i := range numbers {
		numbers[i] = i + 1
	}
	if n := len(numbers); n > 0 {
		err = o.Load(ctx, n, n)
	}
	if err == nil {
		err = o.LoadQuestions(ctx, numbers)
	}
	if err != nil {
		return nil, err
	}
	return o.Document(), nil
}

// TurnOf returns the number of the turn of a message, 0 if it has none.
func (o *Outline) TurnOf(message string) int { return o.numbers[message] }

// Load reads the content of the turns from first to last, and of the last visible one, on which the status of the
// session depends. The error for turns that the session does not have is a [NoTurnError].
func (o *Outline) Load(ctx context.Context, first, last int) error {
	for _, n := range []int{first, last} {
		if n < 1 || n > len(o.Turns) {
			return &NoTurnError{o.in.Transcript.Session.ID, n, len(o.Turns)}
		}
	}
	wanted := o.Turns[first-1 : last]
	if end := (&Document{Turns: o.Turns}).LastTurn(); end != nil {
		wanted = append(slices.Clone(wanted), end)
	}
	var ids []string
	for _, t := range wanted {
		for _, m := range t.Messages {
			ids = append(ids, m.ID)
		}
	}
	return o.load(ctx, ids)
}

// LoadContext reads the content of a turn, and of the last one before it that reports what its model was given, so that
// [Document.ContextChanges] has what changed in between.
func (o *Outline) LoadContext(ctx context.Context, number int) error {
	if err := o.Load(ctx, number, number); err != nil {
		return err
	}
	for before := number - 1; before > 0; before-- {
		if o.Turns[before-1].SystemPromptDigest != "" || o.Turns[before-1].Tools.CatalogDigest != "" {
			return o.Load(ctx, before, before)
		}
	}
	return nil
}

// LoadQuestions reads the texts that turns begin with: of each the user's message or, without one, all messages.
func (o *Outline) LoadQuestions(ctx context.Context, numbers []int) error {
	var ids []string
	for _, n := range numbers {
		t := o.Turns[n-1]
		question := t.Question()
		for _, m := range t.Messages {
			if (question == nil || m == question) && !o.loaded[m.ID] {
				ids = append(ids, m.ID)
			}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := o.read(ctx, store.ExcerptQuery{Messages: ids})
	return err
}

// load reads messages as a whole, and all that is about them.
func (o *Outline) load(ctx context.Context, ids []string) error {
	known := len(o.loaded)
	for _, id := range ids {
		o.loaded[id] = true
	}
	if len(o.loaded) == known {
		return nil
	}
	e, err := o.read(ctx, store.ExcerptQuery{Messages: slices.Sorted(maps.Keys(o.loaded)), Spans: true})
	if err != nil {
		return err
	}
	o.in.Decisions, o.in.SpanRefs = e.Decisions, e.Spans
	return o.in.refer(ctx, o.r, e.Transcript, o.loaded)
}

// read reads messages as a whole in place of what is known of them. One that is gone stays what it was.
func (o *Outline) read(ctx context.Context, q store.ExcerptQuery) (*store.Excerpt, error) {
	e, err := o.r.Excerpt(ctx, o.in.Transcript.Session.ID, q)
	if err != nil {
		return nil, err
	}
	for i := range e.Messages {
		if at, ok := o.at[e.Messages[i].Message.ID]; ok {
			o.in.Transcript.Messages[at], o.messages[at] = e.Messages[i], nil
		}
	}
	return e, nil
}

func mentions(t *session.Transcript, id string) bool {
	return slices.ContainsFunc(t.Messages, func(m session.MessageAndParts) bool {
		return slices.ContainsFunc(m.Parts, func(p session.Part) bool { return strings.Contains(p.DataJSON, id) })
	})
}

// build makes the document. Messages that were built before are not read again.
func (o *Outline) build() *Document {
	b := newBuilder(o.in, o.in.Transcript)
	for i := range o.messages {
		if o.messages[i] == nil {
			o.messages[i] = b.read(&o.in.Transcript.Messages[i])
		}
		b.add(o.messages[i])
	}
	doc := b.finish()
	doc.Totals.ToolCalls = o.toolCalls
	return doc
}

// Document returns the session with all turns. Those that are not loaded lack texts and successful calls, and what is
// about them: prompts, spans, decisions and children. The notices are those of the turns that are loaded, and those
// that the rows of the other messages report.
func (o *Outline) Document() *Document {
	o.in.Now, o.in.IdleTimeout = o.r.limits()
	doc, in := o.build(), o.in
	in.Transcript = &session.Transcript{Session: in.Transcript.Session}
	for i := range o.in.Transcript.Messages {
		m := &o.in.Transcript.Messages[i]
		meta := m.Message.MetadataJSON
		if o.loaded[m.Message.ID] || slices.ContainsFunc(m.Parts, unanswered) ||
			strings.Contains(meta, `"problems"`) || strings.Contains(meta, `"incomplete"`) ||
			strings.Contains(meta, `"response_id"`) {
			in.Transcript.Messages = append(in.Transcript.Messages, *m)
		}
	}
	doc.FindNotices(in)
	doc.Notices = slices.DeleteFunc(doc.Notices, func(n session.Notice) bool {
		return n.Rule == "content" && !o.loaded[n.MessageID] // its parts were not read
	})
	doc.Estimate(o.r.Price)
	return doc
}

func unanswered(p session.Part) bool {
	return session.Deref(p.ToolState) == session.StateInputAvailable
}

// LoadTurns returns the turns from first to last of the session with the id, and what they refer to, as
// [Document.Between] does of the whole document.
func (r Reader) LoadTurns(ctx context.Context, id string, first, last int) (*Document, error) {
	o, err := r.LoadOutline(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := o.Load(ctx, first, last); err != nil {
		return nil, err
	}
	return o.Document().Between(first, last), nil
}
