package store

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
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

// MaxAnnotation is the length in bytes up to which the name, label, comment and author of an annotation are accepted,
// and a title that a person gives.
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

// AppendJSON appends the row of annotations as a JSON object.
func (n *Annotation) AppendJSON(dst []byte) []byte {
	return AnnotationTable().Columns.AppendJSON(dst, n)
}

// DecodeJSON sets n to the row in data, which needs an id, a session_id and a kind.
func (n *Annotation) DecodeJSON(data []byte) error {
	*n = Annotation{}
	return AnnotationTable().Columns.DecodeJSON(data, n, "id", "session_id", "kind")
}

// CompareAnnotations orders annotations by (created_at, id), as they are shown and written.
func CompareAnnotations(a, b *Annotation) int {
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

// An evaluation is a score that telemetry reports of something else: of the answer with a response id, of the span that
// it was emitted in, or of a session. It comes before that or long after it, in a trace of its own or in none, so it is
// no part of any turn: windows leave it out. It is an [Observation] that is looked at again whenever what it may be
// about changes, and its annotation goes where that is then:
//
//	span of a model call ──attributed──► message m ◄──────────── annotation {message_id: m}
//	evaluation {parent: that span} ──attributed─┘ KindEvaluation      ▲ what a user changed of it stays
//
// What it is about are calls that it requests, as far as the store is concerned, with the prefix EvaluationPrefix. The
// answer with a response id is found by the "call" that has ResponsePrefix.

// Prefixes of what is used as the ids of calls in [Observation], besides [ModelCallPrefix].
const (
	// ResponsePrefix begins what the model call with a response id requests.
	ResponsePrefix = "response:"
	// EvaluationPrefix begins what an evaluation is about: a response, with ResponsePrefix, a trace or a session. The
	// span is its ParentSpanID.
	EvaluationPrefix = "evaluates:"
	evaluatedTrace   = EvaluationPrefix + "trace:"
	evaluatedSession = EvaluationPrefix + "session:"
)

// KindEvaluation is the Kind of the attribution of an evaluation.
const KindEvaluation = "evaluation"

// Evaluates sets what an evaluation is about, each of which may be "". It reports false where nothing is known of that.
func (o *Observation) Evaluates(responseID, traceID, spanID, sessionID string) bool {
	o.SpanID, o.ParentSpanID, o.Calls = "", spanID, nil
	for _, key := range [][2]string{{EvaluationPrefix + ResponsePrefix, responseID}, {evaluatedTrace, traceID},
		{evaluatedSession, sessionID}} {
		if key[1] != "" {
			o.Calls = append(o.Calls, key[0]+key[1])
		}
	}
	return len(o.Calls) > 0
}

// isEvaluation reports whether the observation is an evaluation.
func (o *Observation) isEvaluation() bool {
	return len(o.Calls) > 0 && strings.HasPrefix(o.Calls[0], EvaluationPrefix)
}

// evaluated is what an evaluation is about by a prefix, or "".
func (o *Observation) evaluated(prefix string) string {
	for _, call := range o.Calls {
		if id, ok := strings.CutPrefix(call, prefix); ok {
			return id
		}
	}
	return ""
}

// target is what an annotation is about.
type target struct{ session, message, part string }

// scored notes that what evaluations may be about has changed: what a trace or a response is attributed to.
func (o *observer) scored(traceID string, calls ...string) {
	if traceID != "" {
		set(&o.scores, evaluatedTrace+traceID, true)
	}
	for _, call := range calls {
		if strings.HasPrefix(call, ResponsePrefix) {
			set(&o.scores, EvaluationPrefix+call, true)
		}
	}
}

// applyScores gives the scores of evaluations to what they are about, as far as that or they have changed.
func (a *applier) applyScores() {
	o := a.observer
	if o == nil || a.rows.err != nil {
		return
	}
	for _, w := range a.order {
		if w.isNew && !w.gone {
			set(&o.scores, evaluatedSession+w.id, true)
		}
	}
	evaluations := a.rows.evaluations(o.scores)
	if len(evaluations) == 0 {
		return
	}
	assembled, err := o.batch.Assemble(&Window{Observations: evaluations})
	if err == nil && len(assembled.Annotations) != len(evaluations) {
		err = ErrRefused
	}
	if err != nil {
		a.rows.fail(err)
		return
	}
	for i := range evaluations {
		e := &evaluations[i]
		to := a.evaluationTarget(e, &assembled.Annotations[i])
		if to.session == "" && o.fresh[keyOf(e)] {
			a.result.Pending++
		}
		a.score(e, &assembled.Annotations[i], to)
	}
}

// score gives the annotation of an evaluation to a target.
func (a *applier) score(e *Observation, n *Annotation, to target) {
	n.SessionID, n.MessageID, n.PartID = to.session, to.message, to.part
	old := find(a.rows, &a.rows.annotations, keyOfAnnotation(n))
	if was := e.Attribution.SessionID; was != "" && was != to.session {
		// What a user has changed of it moves along.
		key := AnnotationKey{was, n.ID}
		if moved := find(a.rows, &a.rows.annotations, key); moved != nil {
			if old == nil || compareScores(moved, old) > 0 {
				old = moved
			}
			a.rows.annotations.delete(key)
			a.changedScore(was)
		}
	}
	now := Attribution{SessionID: to.session, MessageID: to.message, PartID: to.part}
	if to.session != "" {
		now.Kind = KindEvaluation
	}
	if encode(now) != encode(e.Attribution) {
		a.rows.attribute(e, &now)
	}
	if to.session == "" {
		return
	}
	merged := *n
	if old != nil {
		if compareScores(n, old) < 0 {
			merged = *old
			merged.SessionID, merged.MessageID, merged.PartID = to.session, to.message, to.part
		}
		merged.CreatedAt = min(n.CreatedAt, old.CreatedAt)
		if equalAnnotations(&merged, old) {
			return
		}
	}
	if err := merged.Check(); err != nil {
		a.wrote(false, err)
		return
	}
	a.wrote(true, a.rows.annotations.set(&merged))
	a.changedScore(to.session)
}

func (a *applier) changedScore(sessionID string) {
	a.rows.touch(sessionID)
	if !slices.Contains(a.result.Sessions, sessionID) {
		a.result.Sessions = append(a.result.Sessions, sessionID)
	}
}

// compareScores orders versions of a score, wherever they are.
func compareScores(n, o *Annotation) int {
	x, y := *n, *o
	x.SessionID, x.MessageID, x.PartID = y.SessionID, y.MessageID, y.PartID
	return compareAnnotations(&x, &y)
}

// evaluationTarget is what an evaluation is about: the answer with the response id, unless several have it; else what
// the span came to that it was emitted in, or the nearest above; else the session. A session that it names is not
// another's: an evaluator that names the session which it looks at works in spans of its own. A score that was exported
// from a store names its target.
func (a *applier) evaluationTarget(e *Observation, n *Annotation) (to target) {
	named := e.evaluated(evaluatedSession)
	if named != "" && a.rows.session(named) == nil {
		named = ""
	}
	if n.MessageID != "" && named != "" {
		return target{named, n.MessageID, n.PartID}
	} else if n.MessageID != "" {
		return to // its session is yet to come
	}
	if id := e.evaluated(EvaluationPrefix + ResponsePrefix); id != "" {
		if to = a.responseTarget(id, named); to.message != "" {
			return to
		}
	}
	if to = a.spanTarget(e.TraceID, e.ParentSpanID); named != "" && !a.isWithin(to.session, named) {
		return target{session: named}
	}
	if to.session == "" {
		to.session = a.rows.sessionOfTrace(e)
	}
	return to
}

// responseTarget is the answer with a response id: of the session, where there is one. Some servers give each answer
// the same id; then it is none of them.
func (a *applier) responseTarget(id, sessionID string) (only target) {
	for _, span := range a.rows.responses(id) {
		switch to := a.spanTarget(span.TraceID, span.Source); {
		case to.message == "" || to.message == only.message || sessionID != "" && !a.isWithin(to.session, sessionID):
		case only.message != "":
			return target{}
		default:
			only = to
		}
	}
	return only
}

// isWithin reports whether a session is another, or that of a sub-agent of it.
func (a *applier) isWithin(id, other string) bool {
	for depth := 0; id != "" && id != other && depth < 100; depth++ {
		row := a.rows.session(id)
		if row == nil {
			return false
		}
		id = session.Deref(row.ParentID)
	}
	return id == other
}

// spanTarget is what a span came to, or the nearest one above it that came to a message. A turn is named by the
// message of its user, where the span came to that, too.
func (a *applier) spanTarget(traceID, spanID string) (to target) {
	for depth := 0; spanID != "" && depth < 100; depth++ {
		found := selectRows(a.rows, attributedTable(), attributedQuery(), NameTrace, traceID, spanID)
		if len(found) == 0 {
			return to
		}
		at := &found[0]
		to.session = cmp.Or(to.session, at.SessionID)
		if at.MessageID != "" {
			if at.Kind == semconv.SpanSessionTurn && len(at.Others) > 0 {
				return target{at.SessionID, at.Others[0], ""}
			}
			return target{at.SessionID, at.MessageID, at.PartID}
		}
		spanID = at.ParentSpanID
	}
	return to
}
