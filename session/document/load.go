package document

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Reader is a store as readers of sessions see it.
type Reader struct {
	store.Reader
	// IdleTimeout decides which sessions are interrupted: see [StatusOf]. 0 is [DefaultIdleTimeout]; below 0 none is.
	IdleTimeout time.Duration
	// Price estimates what is not stated, see [Document.Estimate]; nil estimates nothing.
	Price store.Price
	// Now is the clock; nil is [time.Now].
	Now func() time.Time
}

// limits are the last arguments of [StatusOf].
func (r Reader) limits() (now time.Time, idleTimeout time.Duration) {
	now = time.Now()
	if r.Now != nil {
		now = r.Now()
	}
	return now, cmp.Or(r.IdleTimeout, DefaultIdleTimeout)
}

// On is the same for another store.
func (r Reader) On(s store.Reader) Reader {
	r.Reader = s
	return r
}

// Collect is [Collect] with what decides whether the session is interrupted.
func (r Reader) Collect(ctx context.Context, id string) (Input, error) {
	in, err := Collect(ctx, r, id)
	if err == nil {
		err = r.complete(ctx, &in)
	}
	return in, err
}

// complete adds what a reader knows.
func (r Reader) complete(ctx context.Context, in *Input) error {
	s := &in.Transcript.Session
	openings, err := r.openings(ctx, *s)
	in.Opening = openings[s.ID]
	in.Now, in.IdleTimeout = r.limits()
	return err
}

// Load builds the timeline of the session with the id. The error for a session that is not there wraps
// [store.ErrNotFound]; prompts, catalogs and a parent that are not there are no error.
func Load(ctx context.Context, r store.Reader, id string) (*Document, error) {
	in, err := Collect(ctx, r, id)
	if err != nil {
		return nil, err
	}
	return Build(in), nil
}

// LoadAll is [Load] with notices, see [Document.FindNotices], and estimates.
func (r Reader) LoadAll(ctx context.Context, id string) (*Document, error) {
	in, err := r.Collect(ctx, id)
	if err != nil {
		return nil, err
	}
	doc := Build(in)
	doc.FindNotices(in)
	doc.Estimate(r.Price)
	return doc, nil
}

// Each returns documents of sessions in the order of their ids, as [Reader.LoadAll] does; sessions that are not there
// are left out. With sums, documents have only what their totals, their status and what users said in them need, at a
// small part of the cost.
func (r Reader) Each(ctx context.Context, ids []string, sums bool) iter.Seq2[*Document, error] {
	load := r.LoadAll
	if sums {
		load = r.loadSums
	}
	return func(yield func(*Document, error) bool) {
		for _, id := range ids {
			doc, err := load(ctx, id)
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if !yield(doc, err) || err != nil {
				return
			}
		}
	}
}

// Compare reads two sessions, and what they differ in: see [Compare].
func (r Reader) Compare(ctx context.Context, idA, idB string, o CompareOptions) (d *Diff, a, b *Document, err error) {
	if a, err = r.LoadAll(ctx, idA); err == nil {
		b, err = r.LoadAll(ctx, idB)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	return Compare(a, b, o), a, b, nil
}

// Collect reads from a store what a timeline is built from.
func Collect(ctx context.Context, r store.Reader, id string) (in Input, err error) {
	if in.Transcript, err = r.Transcript(ctx, id); err != nil {
		return in, err
	}
	if in.Decisions, err = r.Decisions(ctx, id); err != nil {
		return in, err
	}
	if in.SpanRefs, err = r.Spans(ctx, id); err != nil {
		return in, err
	}
	if err = in.around(ctx, r); err != nil {
		return in, err
	}
	return in, in.refer(ctx, r, in.Transcript, nil)
}

// refer reads what the messages of t refer to: prompts, catalogs and children. If
// loaded is not nil, the children are those of the messages in it, and those that t names.
func (in *Input) refer(ctx context.Context, r store.Reader, t *session.Transcript, loaded map[string]bool) (err error) {
	if in.Blobs, err = Blobs(ctx, r, t); err != nil {
		return err
	}
	children := store.SessionQuery{ParentID: t.Session.ID, Children: true, Archived: true, Limit: -1}
	if in.Children, err = (Reader{Reader: r}).Select(ctx, children, ""); err != nil {
		return err
	}
	if loaded != nil {
		in.Children = slices.DeleteFunc(in.Children, func(c session.Session) bool {
			return !loaded[session.Deref(c.ParentMessageID)] && !mentions(t, c.ID)
		})
	}
	if err = Entitle(ctx, r, in.Children); err != nil || len(in.Children) == 0 {
		return err
	}
	in.ChildTokens, err = r.Spent(ctx, session.IDs(in.Children), nil)
	return err
}

// Entitle gives sessions the titles that they are called by: see [Name].
func Entitle(ctx context.Context, r store.Reader, rows []session.Session) error {
	openings, err := (Reader{Reader: r}).openings(ctx, rows...)
	for i := range rows {
		rows[i].Title = Name(rows[i].Title, openings[rows[i].ID])
	}
	return err
}

// around reads what is about the session as a whole. A parent that is not in the store is none.
func (in *Input) around(ctx context.Context, r store.Reader) (err error) {
	s := &in.Transcript.Session
	if in.Annotations, err = r.Annotations(ctx, s.ID); err != nil {
		return err
	}
	missing, err := r.Missing(ctx, []string{s.ID})
	in.Missing = missing[s.ID]
	if parent := session.Deref(s.ParentID); err == nil && parent != "" {
		row := make([]session.Session, 1)
		if row[0], err = r.Session(ctx, parent); err == nil {
			in.Parent, err = &row[0], Entitle(ctx, r, row)
		}
	}
	return ignoreNotFound(err)
}

// lastTurn returns of a session what [StatusOf] reads of it: its row and its last visible turn, of which the texts and
// the calls are left out that are over.
func (r Reader) lastTurn(ctx context.Context, id string) (*session.Transcript, error) {
	e, err := r.Excerpt(ctx, id, store.ExcerptQuery{LastTurns: 1, Outline: true})
	if err != nil {
		return nil, err
	}
	return e.Transcript, nil
}

// StatusOf returns what the session of a row is doing, without the texts that [Reader.LoadStatus] has. Its cost does
// not depend on the length of the session.
func (r Reader) StatusOf(ctx context.Context, row *session.Session) (Status, error) {
	t, err := r.lastTurn(ctx, row.ID)
	if err != nil {
		return Status{}, err
	}
	now, idleTimeout := r.limits()
	return StatusOf(row, t, nil, now, idleTimeout), nil
}

// LoadStatus returns what a session is doing: see [StatusOf]. Its cost does not depend on the length of the session.
func (r Reader) LoadStatus(ctx context.Context, id string) (Status, error) {
	doc, err := r.LoadLast(ctx, id)
	if err != nil {
		return Status{}, err
	}
	doc.Status.Title = Name(doc.Session.Title, doc.Session.Opening)
	return doc.Status, nil
}

// LoadLast is a document of the last visible turn of a session, with its status and estimates. Its cost does not depend
// on the length of the session.
func (r Reader) LoadLast(ctx context.Context, id string) (*Document, error) {
	e, err := r.Excerpt(ctx, id, store.ExcerptQuery{LastTurns: 1})
	if err != nil {
		return nil, err
	}
	in := Input{Transcript: e.Transcript, Decisions: e.Decisions}
	if err := r.complete(ctx, &in); err != nil {
		return nil, err
	}
	doc := Build(in)
	doc.Estimate(r.Price)
	return doc, nil
}

// NamedBlobs yields the system prompts and tool catalogs that messages and spans name, each once and without its text.
func NamedBlobs(t *session.Transcript, refs []store.SpanRef) iter.Seq[store.Blob] {
	return func(yield func(store.Blob) bool) {
		seen := make(map[store.Blob]bool)
		ended := false
		named := func(kind store.BlobKind, digest string) {
			b := store.Blob{Kind: kind, Digest: digest}
			if digest != "" && !seen[b] && !ended {
				seen[b], ended = true, !yield(b)
			}
		}
		for i := range t.Messages {
			// What cannot be read names none.
			m := session.ParseMessageMetadata([]byte(t.Messages[i].Message.MetadataJSON))
			named(store.BlobSystemPrompt, m.SystemPromptDigest)
			named(store.BlobToolCatalog, m.Trace.ToolCatalogDigest)
		}
		for i := range refs {
			if f := refs[i].TurnStats; f != nil { // of a step, perhaps, or of a message that never came
				named(store.BlobSystemPrompt, f.SystemPromptDigest)
				named(store.BlobToolCatalog, f.Trace.ToolCatalogDigest)
			}
		}
	}
}

// Blobs reads the system prompts and tool catalogs that the messages of a session name.
// Those that are not there are left out.
func Blobs(ctx context.Context, r store.Reader, t *session.Transcript) (all []store.Blob, err error) {
	for named := range NamedBlobs(t, nil) {
		b, err := r.Blob(ctx, named.Kind, named.Digest)
		if err == nil {
			all = append(all, b)
		} else if err = ignoreNotFound(err); err != nil {
			return all, err
		}
	}
	return all, nil
}

func ignoreNotFound(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// Find returns the first places where a text is found, with the numbers of their turns, and whether there may be more.
// A within that is not nil has the ids of the sessions that are looked at. A timeout above 0 is how long to look.
func (r Reader) Find(ctx context.Context, q store.SearchQuery, within []string, limit int,
	timeout time.Duration) (hits []store.Hit, more bool, _ error) {
	limited := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	hits = []store.Hit{}
	wanted := make(map[string]bool, len(within))
	for _, id := range within {
		wanted[id] = true
	}
	for h, err := range r.Search(limited, q) {
		if err != nil && limited.Err() != nil && ctx.Err() == nil {
			more = true
			break
		}
		if err != nil {
			return nil, false, err
		}
		if within != nil && !wanted[h.SessionID] {
			continue
		}
		if more = len(hits) == limit; more {
			break
		}
		hits = append(hits, h)
	}
	return hits, more, r.place(ctx, hits)
}

// place sets the Opening of each hit, and the Turn of each hit to the number that the session's timeline gives the turn. It reads the outline
// of each session of a hit once. A session that is gone meanwhile has no numbers.
func (r Reader) place(ctx context.Context, hits []store.Hit) error {
	outlines := map[string]*Outline{}
	for i := range hits {
		h := &hits[i]
		o, known := outlines[h.SessionID]
		if !known {
			var err error
			if o, err = r.LoadOutline(ctx, h.SessionID); ignoreNotFound(err) != nil {
				return err
			}
			outlines[h.SessionID] = o
		}
		if o != nil {
			h.Turn, h.Opening = o.TurnOf(h.MessageID), o.in.Opening
		}
	}
	return nil
}

// PartRow is the row of a part of one of the messages, nil if they have none with the id.
func PartRow(messages []session.MessageAndParts, id string) *session.Part {
	for i := range messages {
		for j := range messages[i].Parts {
			if p := &messages[i].Parts[j]; p.ID == id {
				return p
			}
		}
	}
	return nil
}

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
