package web

import (
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
	}
	if c.Title == nil && c.Archived == nil {
		return item, Invalidf("", "give title or archived", "there is nothing to change")
	}
	now := time.Now()
	if c.Title != nil {
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
	Turn   int    `json:"turn,omitempty"`
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
	case b.Turn < 0:
		return Invalidf("turn", "count turns from 1", "turn is %d", b.Turn)
	case b.Turn > 0 && b.PartID != "":
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
	if row.Author == "" {
		row.Author = a.Author
	}
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
