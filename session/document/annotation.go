package document

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Annotation is a tag, a note or a score. Its texts are as they are stored.
type Annotation struct {
	ID string `json:"id"`
	// Kind is tag, note or score; Name is that of a tag or a score, Value that of a score, and Label one's or that of a
	// tag which makes the target a case: see package gate.
	Kind  string   `json:"kind"`
	Name  string   `json:"name,omitempty"`
	Value *float64 `json:"value,omitempty"`
	Label string   `json:"label,omitempty"`
	// Comment is the text of a note, or a remark on a tag or a score.
	Comment string `json:"comment,omitempty"`
	Author  string `json:"author,omitempty"`
	// MessageID and PartID are what it was made of. An annotation that is shown at the session and has them has lost
	// its target.
	MessageID string `json:"message_id,omitempty"`
	PartID    string `json:"part_id,omitempty"`
	// CreatedAt and UpdatedAt are in Unix milliseconds.
	CreatedAt int64 `json:"created_at"`
	UpdatedAt int64 `json:"updated_at"`
}

// AnnotationOf is what readers see of a row of annotations.
func AnnotationOf(n *store.Annotation) Annotation {
	a := Annotation{
		ID: n.ID, Kind: n.Kind, Name: n.Name, Comment: n.Comment, Author: n.Author,
		MessageID: n.MessageID, PartID: n.PartID, CreatedAt: n.CreatedAt, UpdatedAt: n.UpdatedAt, Label: n.Label,
	}
	if n.Kind == store.AnnotationScore {
		a.Value = n.Value
	}
	return a
}

// AnnotationsOf are the annotations of rows that are not undone.
func AnnotationsOf(rows []store.Annotation) []Annotation {
	all := []Annotation{}
	for i := range rows {
		if rows[i].DeletedAt == nil {
			all = append(all, AnnotationOf(&rows[i]))
		}
	}
	return all
}

// Short is a tag's name, a score as name=value, name=label or name=value label, or the text of a note.
func (a *Annotation) Short() string {
	switch {
	case a.Kind == store.AnnotationNote:
		return a.Comment
	case a.Value != nil:
		return strings.TrimSpace(a.Name + "=" + strconv.FormatFloat(*a.Value, 'g', -1, 64) + " " + a.Label)
	case a.Label != "":
		return a.Name + "=" + a.Label
	}
	return a.Name
}

// Text is the annotation in a line: Short, the remark and the author.
func (a *Annotation) Text() string { return phrases.Text("annotation", a) }

// Annotated returns the texts of annotations in words: the tags together, then a line for each score and note. The
// texts are not sanitized.
func Annotated(all []Annotation) (lines []string) {
	var tags []string
	for i := range all {
		if a := &all[i]; a.Kind == store.AnnotationTag {
			tags = append(tags, a.Text())
		} else {
			lines = append(lines, a.Kind+": "+a.Text())
		}
	}
	if len(tags) > 0 {
		lines = slices.Insert(lines, 0, "tags: "+strings.Join(tags, ", "))
	}
	return lines
}

// AnnotationPlaces are annotations by what they are shown at.
type AnnotationPlaces struct {
	Session []Annotation
	// Messages are by id, and have those of the messages' parts that are gone. Parts are by id.
	Messages, Parts map[string][]Annotation
}

// PlaceAnnotations returns where the annotations are shown that are not undone: at their part, or else at their
// message, or else at the session, depending on what of it is there.
func PlaceAnnotations(t *session.Transcript, all []store.Annotation) AnnotationPlaces {
	places := AnnotationPlaces{Messages: make(map[string][]Annotation), Parts: make(map[string][]Annotation)}
	if len(all) == 0 {
		return places
	}
	messages, parts := make(map[string]bool), make(map[string]bool)
	for i := range t.Messages {
		messages[t.Messages[i].Message.ID] = true
		for j := range t.Messages[i].Parts {
			parts[t.Messages[i].Parts[j].ID] = true
		}
	}
	all = inOrder(all)
	for i := range all {
		n := &all[i]
		switch a := AnnotationOf(n); {
		case n.DeletedAt != nil:
		case n.PartID != "" && parts[n.PartID]:
			places.Parts[n.PartID] = append(places.Parts[n.PartID], a)
		case n.MessageID != "" && messages[n.MessageID]:
			places.Messages[n.MessageID] = append(places.Messages[n.MessageID], a)
		default:
			places.Session = append(places.Session, a)
		}
	}
	return places
}

// inOrder returns the annotations as readers see them: scores, tags and notes, each by name, then time. Ids depend on
// the id of the session, so they decide only between annotations that are alike in all of that.
func inOrder(all []store.Annotation) []store.Annotation {
	kinds := []store.AnnotationKind{store.AnnotationScore, store.AnnotationTag, store.AnnotationNote}
	return slices.SortedFunc(slices.Values(all), func(a, b store.Annotation) int {
		return cmp.Or(cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)),
			strings.Compare(a.Name, b.Name), store.CompareAnnotations(a, b))
	})
}

// annotate puts annotations at the session, the turns and the parts. Those of a queued message are the session's.
func (b *builder) annotate() {
	places := PlaceAnnotations(b.transcript, b.in.Annotations)
	b.doc.Session.Annotations = places.Session
	take := func(m *Message, of *[]Annotation) {
		*of = append(*of, places.Messages[m.ID]...)
		for _, p := range m.Parts {
			p.Annotations = places.Parts[p.ID]
		}
	}
	for t, m := range b.doc.Messages() {
		take(m, &t.Annotations)
	}
	for _, m := range b.doc.Queued {
		take(m, &b.doc.Session.Annotations)
	}
}
