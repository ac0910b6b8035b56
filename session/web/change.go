package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/store"
)

// sessionChange is what can be changed of a session. What is left out stays.
type sessionChange struct {
	Title    *string `json:"title,omitempty"`
	Archived *bool   `json:"archived,omitempty"`
}

func (a *Backend) update(ctx context.Context, s store.Service, p sessionPath, c sessionChange) (
	item document.Item, err error) {
	title := ""
	if c.Title != nil {
		if title = clean(*c.Title); title == "" {
			return item, Invalidf("title", "give a title", "the title is empty")
		}
		err = checkTitle(title)
	}
	if c.Title == nil && c.Archived == nil {
		return item, Invalidf("", "give title or archived", "there is nothing to change")
	}
	now := time.Now()
	if c.Title != nil && err == nil {
		err = s.SetTitle(ctx, p.ID, title, now)
	}
	if err == nil && c.Archived != nil {
		err = s.Archive(ctx, p.ID, *c.Archived, now)
	}
	if err != nil {
		return item, err
	}
	row, err := s.Session(ctx, p.ID)
	if err != nil {
		return item, err
	}
	items, _, err := a.Sessions.On(s).Items(ctx, []session.Session{row})
	if err != nil {
		return item, err
	}
	return items[0], nil
}

// checkTitle returns what is wrong with a title that a person gives: those of sources are stored as they are.
func checkTitle(title string) error {
	if len(title) > store.MaxAnnotation {
		return Invalidf("title", fmt.Sprintf("give at most %d bytes", store.MaxAnnotation), "title is too long")
	}
	return nil
}

// clean is a text as it is stored: without space around it, in UTF-8, and without NUL.
func clean(text string) string {
	return strings.ToValidUTF8(strings.TrimSpace(strings.ReplaceAll(text, "\x00", "\uFFFD")), "\uFFFD")
}

var annotationKinds = []string{store.AnnotationTag, store.AnnotationNote, store.AnnotationScore}

// newAnnotation is an annotation to be added.
type newAnnotation struct {
	Kind string `json:"kind"`
	// Name is that of a tag or a score, Value and Label are those of a score, of which one may be missing, and Comment
	// the text of a note or a remark.
	Name    string   `json:"name,omitempty"`
	Value   *float64 `json:"value,omitempty"`
	Label   string   `json:"label,omitempty"`
	Comment string   `json:"comment,omitempty"`
	// Turn or PartID is the target; without them it is the session.
	Turn   *int   `json:"turn,omitempty"`
	PartID string `json:"part_id,omitempty"`
	Author string `json:"author,omitempty"`
}

// check returns what is wrong with an annotation of which row has the texts.
func (b *newAnnotation) check(row *store.Annotation) error {
	const score = store.AnnotationScore
	for _, text := range []struct{ name, text string }{{"name", row.Name}, {"label", row.Label},
		{"comment", row.Comment}, {"author", row.Author}} {
		if len(text.text) > store.MaxAnnotation {
			return Invalidf(text.name, fmt.Sprintf("give at most %d bytes", store.MaxAnnotation), "%s is too long",
				text.name)
		}
	}
	switch {
	case !slices.Contains(annotationKinds, row.Kind):
		return Invalidf("kind", "use "+strings.Join(annotationKinds, ", "), "kind is %q", row.Kind)
	case row.Kind != store.AnnotationNote && row.Name == "":
		return Invalidf("name", "give one", "a %s needs a name", row.Kind)
	case row.Kind == store.AnnotationNote && row.Name != "":
		return Invalidf("name", "leave it out", "a note has no name")
	case row.Kind == store.AnnotationNote && row.Comment == "":
		return Invalidf("comment", "give one", "a note needs a text")
	case row.Kind == score && b.Value == nil && row.Label == "":
		return Invalidf("value", "give a number", "a score needs a value or a label")
	case row.Kind != score && (b.Value != nil || row.Label != ""):
		return Invalidf("value", "leave it out", "a value and a label are for scores")
	case b.Turn != nil && b.PartID != "":
		return Invalidf("turn", "give one of them", "turn and part_id exclude each other")
	}
	return nil
}

// annotate adds an annotation, or replaces a tag or a score of the same author.
func (a *Backend) annotate(ctx context.Context, s store.Service, p sessionPath, b newAnnotation) (
	n document.Annotation, err error) {
	row := store.Annotation{
		Kind: b.Kind, Name: clean(b.Name), Value: b.Value, Label: clean(b.Label), Comment: clean(b.Comment),
		Author: clean(b.Author),
	}
	if err := b.check(&row); err != nil {
		return n, err
	}
	row.Author = cmp.Or(row.Author, a.Author)
	if row.MessageID, row.PartID, err = AnnotationTarget(ctx, s, p.ID, b.Turn, b.PartID); err != nil {
		return n, err
	}
	set, err := AddAnnotation(ctx, s, p.ID, row)
	if err != nil {
		return n, err
	}
	return document.AnnotationOf(set), nil
}

// AddAnnotation adds an annotation to a session, as [Annotator.Set] does, and returns it as it is stored.
func AddAnnotation(ctx context.Context, s store.Service, id string, n store.Annotation) (*store.Annotation, error) {
	to, err := NewAnnotator(ctx, s, id, time.Now())
	if err != nil {
		return nil, err
	}
	set, err := to.Set(n)
	if err != nil {
		return nil, err
	}
	return set, s.Annotate(ctx, to.Changes())
}

// annotationPath names an annotation.
type annotationPath struct {
	sessionPath
	Annotation string
}

func (a *Backend) removeAnnotation(ctx context.Context, s store.Service, p annotationPath, _ none) (none, error) {
	from, err := NewAnnotator(ctx, s, p.ID, time.Now())
	if err != nil {
		return none{}, err
	}
	if err := from.Remove(p.Annotation); err != nil {
		return none{}, err
	}
	return none{}, s.Annotate(ctx, from.Changes())
}

// newFork is where a session is to be copied up to, and the title of the copy.
type newFork struct {
	Place
	Title string `json:"title,omitempty"`
}

func (a *Backend) fork(ctx context.Context, s store.Service, p sessionPath, b newFork) (*Forked, error) {
	return atRest(ctx, a, s, p, b.Place, func(c *Conversation) (*Forked, error) {
		return c.Fork(ctx, s, b.Place, clean(b.Title), time.Now())
	})
}

func (a *Backend) rewind(ctx context.Context, s store.Service, p sessionPath, to Place) (*Rewound, error) {
	return atRest(ctx, a, s, p, to, func(c *Conversation) (*Rewound, error) { return c.Rewind(ctx, s, to, time.Now()) })
}

func (a *Backend) unrewind(ctx context.Context, s store.Service, p sessionPath, _ none) (*Rewound, error) {
	return atRest(ctx, a, s, p, Place{}, func(c *Conversation) (*Rewound, error) { return c.Unrewind(ctx, s) })
}

// atRest changes a session, which is at rest, at a place.
func atRest[R any](ctx context.Context, a *Backend, s store.Service, p sessionPath, at Place,
	do func(*Conversation) (R, error)) (r R, err error) {
	if at.Message != nil && at.Turn != nil {
		return r, Invalidf("turn", "give one of them", "turn and message exclude each other")
	}
	c, err := AtRest(ctx, a.Sessions.On(s), p.ID)
	if err != nil {
		return r, err
	}
	return do(c)
}

type deleteParams struct {
	sessionPath
	Children bool
}

// removed are the sessions that were deleted.
type removed struct {
	Deleted []string `json:"deleted"`
}

func (a *Backend) remove(ctx context.Context, s store.Service, p deleteParams, _ none) (done removed, err error) {
	ids := []string{p.ID}
	if p.Children {
		if ids, err = document.Descendants(ctx, s, ids); err != nil {
			return done, err
		}
	}
	done.Deleted = []string{}
	for _, id := range ids {
		switch err := s.Delete(ctx, id); {
		case err == nil:
			done.Deleted = append(done.Deleted, id)
		case !errors.Is(err, store.ErrNotFound): // somebody else did
			return done, err
		}
	}
	return done, nil
}

type importParams struct {
	Format  string
	Invalid bool
}

const (
	// maxImport is the size in bytes up to which a file is imported. A server may set a lower limit.
	maxImport = 1 << 30
	// maxImportMemory is how much of it an import unpacks and decodes, and maxImports how many do so at a time.
	maxImportMemory = 128 << 20
	maxImports      = 2
)

// lent is a service that an importer does not close.
type lent struct{ store.Service }

func (lent) Close() error { return nil }

// importFile imports the body of a request, a file of any format. A sender that is slow holds nothing up, as its body
// is received before the import begins.
func (a *api) importFile(w http.ResponseWriter, r *http.Request, p importParams) error {
	f, err := os.CreateTemp("", "agenttrace-import-")
	if err == nil {
		defer os.Remove(f.Name())
		defer f.Close()
		if _, err = io.Copy(f, http.MaxBytesReader(w, r.Body, maxImport)); err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLargeProblem(tooLarge.Limit)
	}
	if err != nil {
		return fmt.Errorf("receive the body: %w", err)
	}
	select {
	case a.importing <- struct{}{}:
		defer func() { <-a.importing }()
	case <-r.Context().Done():
		return r.Context().Err()
	}
	summary, err := a.importBody(r.Context(), f, p)
	if err != nil {
		return err
	}
	return answer(w, r, http.StatusOK, summary)
}

func (a *api) importBody(ctx context.Context, body io.Reader, p importParams) (*importer.Summary, error) {
	var summary *importer.Summary
	err := a.change(ctx, func(ctx context.Context, s store.Service) (err error) {
		o := importer.Options{Invalid: p.Invalid, Budget: &otlpfile.Budget{Left: maxImportMemory},
			Open: func(context.Context) (store.Service, error) { return lent{s}, nil }}
		if p.Format != "" {
			o.Format = formats.Named(p.Format, (*formats.Format).Reads)
		}
		im, err := importer.New(s.Name(), o)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, im.Close()) }()
		inputs := importer.Inputs([]string{"-"}, body, o.Format)
		inputs[0].Name = "body"
		failed, err := im.Run(ctx, inputs)
		switch {
		case err != nil:
			return err
		case o.Budget.Spent():
			return NewProblem("too-large", http.StatusRequestEntityTooLarge, "",
				"import it with agenttrace import, or in pieces",
				fmt.Sprintf("the body takes more than %d MiB when it is unpacked and decoded", maxImportMemory>>20))
		case failed != nil:
			p := NewProblem("not-imported", http.StatusUnprocessableEntity, "", "", failed.Error())
			p.Remedy = "send a file of a format that is imported"
			return p
		}
		summary = &im.Summary
		return nil
	})
	return summary, err
}

// Conversation is a session at rest, in which a user names the message to fork at or to rewind to.
type Conversation struct {
	ID         string
	Transcript *session.Transcript
	Timeline   *document.Document
	// Turns are the numbers of the turns by the ids of their messages; a message that waits in the queue is of none.
	Turns map[string]int
}

// Place is a message of a session. At most one of the two is set; nil is the place that a method has by default.
type Place struct {
	// Message is the id of a message.
	Message *string `json:"message,omitempty"`
	// Turn is the number of a turn, from 1.
	Turn *int `json:"turn,omitempty"`
}

// Forked describes a fork.
type Forked struct {
	SessionID       string `json:"session_id"`
	Title           string `json:"title"`
	ParentID        string `json:"parent_id"`
	ParentMessageID string `json:"parent_message_id"`
	// Turn is the last that was copied, Messages the number of copies.
	Turn     int `json:"turn"`
	Messages int `json:"messages"`
}

// Rewound describes a rewind, or the undoing of one.
type Rewound struct {
	SessionID string `json:"session_id"`
	Undone    bool   `json:"undone"`
	// To is the question that stays visible, Turn its turn.
	To   string `json:"to_message_id"`
	Turn int    `json:"turn"`
	// Messages are those that were hidden or shown, Turns the numbers of their turns in order.
	Messages []string `json:"messages"`
	Turns    []int    `json:"turns"`
}

// AtRest reads a session that is to be changed. A session that is at work is an error with the code [CodeBusy].
func AtRest(ctx context.Context, r document.Reader, id string) (*Conversation, error) {
	in, err := r.Collect(ctx, id)
	if err != nil {
		return nil, err
	}
	c := &Conversation{ID: id, Transcript: in.Transcript, Timeline: document.Build(in), Turns: make(map[string]int)}
	if st := c.Timeline.Status.State; st == document.ActivityBusy || st == document.ActivityRetrying {
		return nil, conflictf(CodeBusy, "", "wait until it is idle", "session %s is %s", id, st)
	}
	for turn, m := range c.Timeline.Messages() {
		c.Turns[m.ID] = turn.Number
	}
	return c, nil
}

// Fork copies the session up to and including a place, by default its last message.
func (c *Conversation) Fork(ctx context.Context, s store.Service, at Place, title string, now time.Time) (*Forked,
	error) {
	last := c.last(0, "")
	if last == nil {
		return nil, Invalidf("", "there is nothing to copy", "session %s has no message that is seen", c.ID)
	}
	point, err := c.at(at, "")
	switch err = cmp.Or(err, checkTitle(title)); {
	case err != nil:
		return nil, err
	case point == nil:
		point = last
	case point.HiddenAt != nil:
		return nil, conflictf(CodeHidden, "message", "choose another, or take the rewind back",
			"message %s is hidden by a rewind", point.ID)
	}
	if c.Timeline.Status.State.Waiting() && c.Turns[point.ID] >= c.Turns[last.ID] && point.Role != session.RoleUser {
		return nil, Invalidf("turn", "copy less of it, or answer first", "session %s waits for a human in turn %d", c.ID,
			c.Turns[last.ID])
	}
	id, err := s.Fork(ctx, store.ForkOptions{From: c.ID, Message: point.ID, Title: title, Now: now})
	if err != nil {
		return nil, err
	}
	child, err := s.Transcript(ctx, id)
	if err != nil {
		return nil, err
	}
	return &Forked{id, child.Session.Title, c.ID, point.ID, c.Turns[point.ID], len(child.Messages)}, nil
}

// Rewind hides what comes after a place, which is a question: of a turn, or the user's message.
func (c *Conversation) Rewind(ctx context.Context, s store.Service, to Place, now time.Time) (*Rewound, error) {
	point, err := c.at(to, session.RoleUser)
	switch {
	case err != nil:
		return nil, err
	case point == nil:
		return nil, Invalidf("turn", "name a turn, or a message of the user's", "a rewind needs a place")
	case point.Role != session.RoleUser:
		return nil, conflictf(CodeNotUsers, "message", fmt.Sprintf("name one of the user's, or turn %d", c.Turns[point.ID]),
			"message %s is the %s's", point.ID, point.Role)
	case point.HiddenAt != nil:
		return nil, conflictf(CodeHidden, "message", "choose an earlier one, or undo the rewind first",
			"message %s is hidden already", point.ID)
	}
	done, err := s.Rewind(ctx, c.ID, point.ID, now)
	done.To = point.ID // also where nothing came after it
	return c.rewound(done, false), err
}

// Unrewind undoes the last rewind of the session.
func (c *Conversation) Unrewind(ctx context.Context, s store.Service) (*Rewound, error) {
	done, err := s.Unrewind(ctx, c.ID)
	if errors.Is(err, store.ErrNoRewind) {
		return nil, conflictf(CodeNoRewind, "", "all of it is shown", "session %s has no rewind to undo", c.ID)
	}
	return c.rewound(done, true), err
}

func (c *Conversation) rewound(done store.Rewound, undone bool) *Rewound {
	turns := []int{}
	for _, id := range done.Messages {
		if n := c.Turns[id]; n > 0 && !slices.Contains(turns, n) {
			turns = append(turns, n)
		}
	}
	slices.Sort(turns)
	return &Rewound{c.ID, undone, done.To, c.Turns[done.To], append([]string{}, done.Messages...), turns}
}

// at is the message of a place, nil for the default. Of a turn it is the last that is not hidden, of a role where one
// is given.
func (c *Conversation) at(p Place, role string) (*document.Message, error) {
	if p.Message != nil {
		for _, m := range c.Timeline.Messages() {
			if m.ID == *p.Message {
				return m, nil
			}
		}
		return nil, Invalidf("message", "its JSON has their ids", "session %s has no message %q", c.ID, *p.Message)
	}
	if p.Turn == nil {
		return nil, nil
	}
	number := *p.Turn
	if number < 1 || number > len(c.Timeline.Turns) {
		return nil, c.Timeline.NoTurn(number)
	}
	m := c.last(number, role)
	if m == nil {
		what := "turn %d of session %s is hidden by a rewind"
		if role != "" {
			what = "turn %d of session %s has no question that is seen"
		}
		return nil, conflictf(CodeHidden, "turn", "choose another turn", what, number, c.ID)
	}
	return m, nil
}

// last is the last message that is not hidden, of a turn and of a role where these are given; nil if there is none.
func (c *Conversation) last(turn int, role string) (last *document.Message) {
	for t, m := range c.Timeline.Messages() {
		if m.HiddenAt == nil && (turn == 0 || t.Number == turn) && (role == "" || m.Role == role) {
			last = m
		}
	}
	return last
}

// Annotator makes changes of the annotations of a session. They are stored together, with Annotate of a store.
type Annotator struct {
	id      string
	at      int64
	stored  []store.Annotation
	changes []store.Annotation
}

// NewAnnotator reads the annotations of a session.
func NewAnnotator(ctx context.Context, r store.Reader, id string, now time.Time) (*Annotator, error) {
	stored, err := r.Annotations(ctx, id)
	return &Annotator{id: id, at: now.UnixMilli(), stored: stored}, err
}

// Changes are those that were made.
func (a *Annotator) Changes() []store.Annotation { return a.changes }

// Set adds an annotation, of which the target, kind, name, value, comment and author are given. A tag that is there,
// and a score of the same author, is replaced. It returns the annotation as it is to be stored.
func (a *Annotator) Set(n store.Annotation) (*store.Annotation, error) {
	for _, text := range []*string{&n.Name, &n.Label, &n.Comment, &n.Author} {
		*text = strings.ToValidUTF8(strings.TrimSpace(*text), "\uFFFD")
	}
	n.SessionID, n.CreatedAt = a.id, a.at
	n.Identify()
	for i := range a.stored {
		// The score that telemetry reported has another id.
		if o := &a.stored[i]; n.Kind == store.AnnotationScore && o.DeletedAt == nil && n.SameScore(o) {
			n.ID = o.ID
		}
	}
	return a.put(n)
}

// Untag takes back a tag of a target.
func (a *Annotator) Untag(message, part, tag string) error {
	n := store.Annotation{SessionID: a.id, MessageID: message, PartID: part, Kind: store.AnnotationTag,
		Name: strings.TrimSpace(tag)}
	n.Identify()
	if old := a.known(n.ID); old == nil || old.DeletedAt != nil {
		return Invalidf("tag", "its annotations list the tags", "session %s has no tag %q to take back", a.id, tag)
	}
	return a.Remove(n.ID)
}

// Remove takes back the annotation with an id.
func (a *Annotator) Remove(id string) error {
	old := a.known(id)
	if old == nil || old.DeletedAt != nil {
		return NotFoundf("annotation", "its annotations list their ids", "session %s has no annotation %q to take back",
			a.id, id)
	}
	n := *old
	n.DeletedAt = &a.at
	_, err := a.put(n)
	return err
}

func (a *Annotator) known(id string) *store.Annotation {
	if i := slices.IndexFunc(a.stored, func(n store.Annotation) bool { return n.ID == id }); i >= 0 {
		return &a.stored[i]
	}
	return nil
}

// put adds a change. The last change of an annotation counts, also if the clock was ahead before.
func (a *Annotator) put(n store.Annotation) (*store.Annotation, error) {
	n.UpdatedAt = a.at
	if old := a.known(n.ID); old != nil {
		n.CreatedAt = old.CreatedAt
		n.UpdatedAt = max(a.at, old.UpdatedAt+1)
	}
	if n.DeletedAt != nil {
		n.DeletedAt = &n.UpdatedAt
	}
	if err := n.Check(); err != nil {
		return nil, Invalidf("", "", "%v", err)
	}
	a.changes = append(a.changes, n)
	return &n, nil
}

// AnnotationTarget returns the message and the part to annotate: a part by its id, or a turn by its number, which is
// annotated at its user message. With neither it is the session, and both are empty.
func AnnotationTarget(ctx context.Context, r store.Reader, id string, turn *int, part string) (message, partID string,
	_ error) {
	if turn == nil && part == "" {
		return "", "", nil
	}
	t, err := r.Transcript(ctx, id)
	if err != nil {
		return "", "", err
	}
	if part != "" {
		if p := document.PartRow(t.Messages, part); p != nil {
			return p.MessageID, p.ID, nil
		}
		return "", "", Invalidf("part_id", "its JSON has their ids", "session %s has no part %q", id, part)
	}
	doc := document.Build(document.Input{Transcript: t})
	of := doc.Turn(*turn)
	if of == nil {
		return "", "", doc.NoTurn(*turn)
	}
	return cmp.Or(of.Question(), of.Messages[0]).ID, "", nil
}
