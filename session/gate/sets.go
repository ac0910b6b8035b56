package gate

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// tagged reads the rows of sessions that a query and a status select, and their annotations by their ids.
func tagged(ctx context.Context, r document.Reader, q store.SessionQuery, status string) (rows []session.Session,
	tags map[string][]document.Annotation, err error) {
	if rows, err = r.Select(ctx, q, status); err != nil {
		return nil, nil, err
	}
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	stored, err := r.Annotations(ctx, ids...)
	tags = map[string][]document.Annotation{}
	for i := range stored {
		if n := &stored[i]; n.DeletedAt == nil {
			tags[n.SessionID] = append(tags[n.SessionID], document.AnnotationOf(n))
		}
	}
	return rows, tags, err
}

// setsOf are the names of the sets that tags with a prefix make the target a member of, each once.
func setsOf(tags []document.Annotation, prefix string) (names []string) {
	for i := range tags {
		name, ok := strings.CutPrefix(tags[i].Name, prefix)
		if ok && tags[i].Kind == store.AnnotationTag && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// experimentsOf are the experiments that a session is in.
func experimentsOf(row *session.Session, tags []document.Annotation) []string {
	names := setsOf(tags, TagExperiment)
	if name, _ := ExperimentOf(row, nil); name != "" && !slices.Contains(names, name) {
		names = append(names, name)
	}
	return names
}

// Datasets returns the ids of the sessions in each data set of a store, newest first.
func Datasets(ctx context.Context, r document.Reader) (map[string][]string, error) {
	rows, tags, err := tagged(ctx, r, store.SessionQuery{Limit: -1, Children: true, Archived: true}, "")
	in := map[string][]string{}
	for i := range rows {
		for _, name := range setsOf(tags[rows[i].ID], TagDataset) {
			in[name] = append(in[name], rows[i].ID)
		}
	}
	return in, err
}

// Experiments returns the names of the experiments of a store, in the order in which their sessions began.
func Experiments(ctx context.Context, r document.Reader) ([]string, error) {
	rows, tags, err := tagged(ctx, r, store.SessionQuery{Limit: -1, Children: true}, "")
	if err != nil {
		return nil, err
	}
	began := map[string]int64{}
	for i := range rows {
		for _, name := range experimentsOf(&rows[i], tags[rows[i].ID]) {
			if before, known := began[name]; !known || rows[i].CreatedAt < before {
				began[name] = rows[i].CreatedAt
			}
		}
	}
	return slices.SortedFunc(maps.Keys(began), func(a, b string) int {
		return cmp.Or(cmp.Compare(began[a], began[b]), strings.Compare(a, b))
	}), nil
}

// Case is a case of a data set, and a line of its file. Its JSON is a stable format.
type Case struct {
	Case     string `json:"case"`
	Input    string `json:"input"`
	Expected string `json:"expected,omitempty"`
	// SessionID and Turn are what the case was made of; the turn is 0 where it is the whole session.
	SessionID string `json:"session_id,omitempty"`
	Turn      int    `json:"turn,omitempty"`
}

// Cases returns the cases of a data set, of which the sessions are given as [Datasets] does: the oldest first.
func Cases(ctx context.Context, r document.Reader, set string, sessions []string) (all []Case, err error) {
	for _, id := range slices.Backward(sessions) {
		doc, err := r.LoadAll(ctx, id)
		if err != nil {
			return nil, err
		}
		stored, err := r.Annotations(ctx, id)
		if err != nil {
			return nil, err
		}
		for _, n := range document.AnnotationsOf(stored) {
			if n.Name != TagDataset+set || n.Kind != store.AnnotationTag {
				continue
			}
			c := Case{Case: n.Label, Expected: n.Comment, SessionID: id}
			for _, t := range doc.Turns {
				question := t.Question()
				if n.MessageID != "" && (question == nil || question.ID != n.MessageID) {
					continue
				}
				if c.Input = t.UserText(); n.MessageID != "" {
					c.Turn = t.Number
				}
				if c.Input != "" {
					break
				}
			}
			c.Case = cmp.Or(c.Case, CaseOf(c.Input))
			all = append(all, c)
		}
	}
	return all, nil
}

// Runs returns the runs of the sessions that a query and a status select. If experiments are named, they are the runs
// of these: of a session that is in several of them, a run for each. A sub-agent's session is in an experiment if it
// was made a part of it.
//
// With sums, documents have the sums alone: see [document.Reader.Each].
func (g *Gate) Runs(ctx context.Context, r document.Reader, q store.SessionQuery, status string,
	expected map[string]string, sums bool, experiments ...string) (runs []*Run, err error) {
	finder, err := redact.New(redact.Config{})
	if err != nil {
		return nil, err
	}
	q.Limit, q.Children = -1, q.Children || len(experiments) > 0
	rows, tags, err := tagged(ctx, r, q, status)
	if err != nil {
		return nil, err
	}
	var ids []string
	chosen := map[string]*session.Session{}
	in := map[string][]string{} // the experiments of each, among those that are named
	for i := range rows {
		row := &rows[i]
		member := experimentsOf(row, tags[row.ID])
		of := slices.DeleteFunc(slices.Clone(experiments), func(name string) bool { return !slices.Contains(member, name) })
		if len(experiments) == 0 || len(of) > 0 {
			ids, chosen[row.ID], in[row.ID] = append(ids, row.ID), row, of
		}
	}
	for doc, err := range r.Each(ctx, ids, sums) {
		if err != nil {
			return nil, err
		}
		id := doc.Session.ID
		run := g.Look(chosen[id], doc, tags[id], expected, finder)
		if len(experiments) == 0 {
			runs = append(runs, run)
		}
		for _, name := range in[id] {
			of := *run
			of.Experiment = name
			runs = append(runs, &of)
		}
	}
	return runs, nil
}
