package store

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/agenttrace/agenttrace/session"
)

// Annotation is what somebody noted about a session, a turn or a part after the fact: a row of annotations.
// [Batch.Annotations] adds, changes and undoes them.
type Annotation struct {
	// ID is unique within the session; see [Annotation.Identify].
	ID        string `json:"id"`
	SessionID string `json:"session_id"`
	// MessageID and PartID are the target. Both are empty if it is the session. A turn is named by its user message, a
	// part by its message and its id. The rows need not be there: telemetry that arrives late may rebuild them under
	// other ids, and the annotation stays.
	MessageID string `json:"message_id,omitempty"`
	PartID    string `json:"part_id,omitempty"`
	// Kind is a tag, a note or a score. Name is that of a tag or a score, empty for a note. Value is that of a score, 0
	// for others. Label is a score in a word, such as "pass": with it a score may have no Value. Of a tag it is the case
	// of a data set or an experiment. Comment is the text of a note, and an optional remark on others.
	Kind    AnnotationKind `json:"kind"`
	Name    string         `json:"name,omitempty"`
	Value   *float64       `json:"value"`
	Label   string         `json:"label,omitempty"`
	Comment string         `json:"comment,omitempty"`
	// Author is the person or program that made it, empty if unknown.
	Author string `json:"author,omitempty"`
	// CreatedAt, UpdatedAt and DeletedAt are in Unix milliseconds. DeletedAt is set while the annotation is undone: the
	// row stays, so that an older copy of it does not bring it back.
	CreatedAt int64  `json:"created_at"`
	UpdatedAt int64  `json:"updated_at"`
	DeletedAt *int64 `json:"deleted_at"`
}

// AnnotationKind is the kind of an [Annotation].
type AnnotationKind = string

// Kinds of annotations.
const (
	AnnotationTag   AnnotationKind = "tag"
	AnnotationNote  AnnotationKind = "note"
	AnnotationScore AnnotationKind = "score"
)

// MaxAnnotation is the length in bytes up to which the name, label, comment and author of an annotation are accepted.
const MaxAnnotation = 64 << 10

// AnnotationKey is the key of an [Annotation].
type AnnotationKey struct{ SessionID, ID string }

func keyOfAnnotation(n *Annotation) AnnotationKey { return AnnotationKey{n.SessionID, n.ID} }

// Identify sets the id to one that depends on what the annotation is about, so that stores which make it
// independently of each other have one row. A target has a tag once, whoever sets it, a score of each name once per
// author, and a note for each text, author and time.
func (n *Annotation) Identify() {
	key := []string{n.SessionID, n.MessageID, n.PartID, n.Kind, n.Name}
	switch n.Kind {
	case AnnotationScore:
		key = append(key, n.Author)
	case AnnotationNote:
		key = append(key, n.Author, n.Comment, fmt.Sprint(n.CreatedAt))
	}
	sum := sha256.Sum256([]byte(strings.Join(key, "\x00")))
	n.ID = "ann_" + hex.EncodeToString(sum[:12])
}

// SameScore reports whether both are the score of one name and author for one target.
func (n *Annotation) SameScore(o *Annotation) bool {
	return n.Kind == AnnotationScore && o.Kind == n.Kind && o.Name == n.Name && o.Author == n.Author &&
		o.SessionID == n.SessionID && o.MessageID == n.MessageID && o.PartID == n.PartID
}

// Check returns an error that names what is wrong with the annotation.
func (n *Annotation) Check() error {
	switch {
	case n.ID == "" || n.SessionID == "":
		return errors.New("an annotation needs an id and a session")
	case n.PartID != "" && n.MessageID == "":
		return errors.New("an annotation of a part needs the message of the part")
	case n.Kind == AnnotationTag || n.Kind == AnnotationScore:
		if n.Name == "" {
			return errors.New("a " + n.Kind + " needs a name")
		}
	case n.Kind != AnnotationNote:
		return fmt.Errorf("an annotation is a tag, a note or a score, not %q", n.Kind)
	case n.Comment == "":
		return errors.New("a note needs a text")
	}
	switch v := n.Value; {
	case n.Kind == AnnotationScore && v == nil && n.Label == "":
		return fmt.Errorf("score %s needs a value or a label", n.Name)
	case v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)):
		return fmt.Errorf("the value of score %s is not a number", n.Name)
	}
	for _, text := range []string{n.ID, n.SessionID, n.MessageID, n.PartID, n.Name, n.Label, n.Comment, n.Author} {
		if len(text) > MaxAnnotation {
			return fmt.Errorf("a text of %d bytes is longer than an annotation may have: %d", len(text), MaxAnnotation)
		}
		if strings.ContainsRune(text, 0) {
			return errors.New("a text of an annotation contains NUL")
		}
	}
	return nil
}

// AnnotationColumns are the columns of annotations.
var AnnotationColumns = session.ColumnsOf[Annotation]()

// AppendJSON appends the row of annotations as a JSON object.
func (n *Annotation) AppendJSON(dst []byte) []byte { return AnnotationColumns.AppendJSON(dst, n) }

// DecodeJSON sets n to the row in data, which needs an id, a session_id and a kind.
func (n *Annotation) DecodeJSON(data []byte) error {
	*n = Annotation{}
	return AnnotationColumns.DecodeJSON(data, n, "id", "session_id", "kind")
}

// CompareAnnotations orders annotations by (created_at, id), as they are shown and written.
func CompareAnnotations(a, b Annotation) int {
	return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), strings.Compare(a.SessionID, b.SessionID),
		strings.Compare(a.ID, b.ID))
}

// mergeAnnotation stores an annotation, and reports whether that changed anything: the later version takes
// precedence, and of two of the same time one that is undone, then the greater. The time of creation is the least, so
// an annotation that was undone and set again keeps its place.
func (a *applier) mergeAnnotation(n *Annotation) (changed bool, _ error) {
	if err := n.Check(); err != nil {
		return false, refuse("%v; it is left out", err)
	}
	old := find(a.rows, &a.rows.annotations, keyOfAnnotation(n))
	merged := *n
	if n.Kind != AnnotationScore {
		merged.Value = new(0.0)
	}
	if old != nil {
		if compareAnnotations(&merged, old) < 0 {
			merged = *old
		}
		merged.CreatedAt = min(n.CreatedAt, old.CreatedAt)
		if equalAnnotations(&merged, old) {
			return false, nil
		}
	}
	return true, a.rows.annotations.set(&merged)
}

func compareAnnotations(n, o *Annotation) int {
	encode := func(n Annotation) []byte {
		n.CreatedAt = 0
		return n.AppendJSON(nil)
	}
	return cmp.Or(cmp.Compare(n.UpdatedAt, o.UpdatedAt), compareBools(n.DeletedAt != nil, o.DeletedAt != nil),
		bytes.Compare(encode(*n), encode(*o)))
}

func equalAnnotations(n, o *Annotation) bool {
	return bytes.Equal(n.AppendJSON(nil), o.AppendJSON(nil))
}

// Annotate applies annotations of sessions that are there: each of them is stored, or none is. The error for a session
// that is not there wraps ErrNotFound.
func Annotate(tx Tx, annotations []Annotation) error {
	for i := range annotations {
		if err := annotations[i].Check(); err != nil {
			return err
		}
		if _, err := existing(tx, annotations[i].SessionID); err != nil {
			return err
		}
	}
	result, err := Apply(tx, &Batch{Annotations: annotations})
	if err == nil && result.Refused > 0 {
		err = fmt.Errorf("annotations: %w", ErrRefused)
	}
	return err
}
