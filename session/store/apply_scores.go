package store

import (
	"cmp"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
)

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
		found := selectRows(a.rows, attributedTable, attributedQuery, NameTrace, traceID, spanID)
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
