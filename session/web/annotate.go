package web

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

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
	for _, text := range []*string{&n.Name, &n.Comment, &n.Author} {
		*text = strings.ToValidUTF8(strings.TrimSpace(*text), "\uFFFD")
	}
	n.SessionID, n.CreatedAt = a.id, a.at
	n.Identify()
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
func AnnotationTarget(ctx context.Context, r store.Reader, id string, turn int, part string) (message, partID string,
	_ error) {
	if turn == 0 && part == "" {
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
	of := doc.Turn(turn)
	if of == nil {
		return "", "", Invalidf("turn", fmt.Sprintf("its turns are 1 to %d", len(doc.Turns)),
			"session %s has no turn %d", id, turn)
	}
	return cmp.Or(of.Question(), of.Messages[0]).ID, "", nil
}
