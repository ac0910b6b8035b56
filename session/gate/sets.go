package gate

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// Tagged returns the names of the sets that tags with a prefix, [TagDataset] or [TagExperiment], make, with the sessions in them, in order.
func Tagged(ctx context.Context, r document.Reader, prefix string) (names []string, in map[string][]string, _ error) {
	in = map[string][]string{}
	rows, err := r.Select(ctx, store.SessionQuery{Limit: -1, Children: true, Archived: true}, "")
	if err != nil {
		return nil, nil, err
	}
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	all, err := r.Annotations(ctx, ids...)
	for i := range all {
		n := &all[i]
		name, ok := strings.CutPrefix(n.Name, prefix)
		if !ok || n.Kind != store.AnnotationTag || n.DeletedAt != nil || slices.Contains(in[name], n.SessionID) {
			continue
		}
		if in[name] == nil {
			names = append(names, name)
		}
		in[name] = append(in[name], n.SessionID)
	}
	slices.Sort(names)
	return names, in, err
}

// Experiments returns the names of the experiments of a store, in the order in which their sessions began.
func Experiments(ctx context.Context, r document.Reader) (names []string, err error) {
	rows, err := r.Select(ctx, store.SessionQuery{Limit: -1, Children: true}, "")
	if err != nil {
		return nil, err
	}
	_, tagged, err := Tagged(ctx, r, TagExperiment)
	if err != nil {
		return nil, err
	}
	began, at := map[string]int64{}, map[string]int64{}
	begins := func(name string, at int64) {
		if before, known := began[name]; !known || at < before {
			began[name] = at
		}
	}
	for i := range rows {
		at[rows[i].ID] = rows[i].CreatedAt
		if name, _ := ExperimentOf(&rows[i], nil); name != "" {
			begins(name, rows[i].CreatedAt)
		}
	}
	for name, ids := range tagged {
		for _, id := range ids {
			if at, listed := at[id]; listed {
				begins(name, at)
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

// Cases returns the cases of a data set: what is Tagged so, in the order in which it was.
func Cases(ctx context.Context, r document.Reader, set string) (all []Case, err error) {
	_, in, err := Tagged(ctx, r, TagDataset)
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Backward(in[set]) { // lists have the newest first
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

// Runs returns the runs of the sessions that a query and a status select and that are in the experiment, if one is named.
func (g *Gate) Runs(ctx context.Context, r document.Reader, q store.SessionQuery, status, experiment string,
	expected map[string]string) (runs []*Run, err error) {
	finder, err := redact.New(redact.Config{})
	if err != nil {
		return nil, err
	}
	q.Children = q.Children || experiment != "" // a sub-agent's session counts if it was made part of the experiment
	rows, err := r.Select(ctx, q, status)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		row := &rows[i]
		stored, err := r.Annotations(ctx, row.ID)
		if err != nil {
			return nil, err
		}
		tags := document.AnnotationsOf(stored)
		if experiment != "" && !inExperiment(tags, experiment) {
			if name, _ := ExperimentOf(row, nil); name != experiment {
				continue
			}
		}
		doc, err := r.LoadAll(ctx, row.ID)
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted meanwhile
		} else if err != nil {
			return nil, err
		}
		run := g.Look(row, doc, tags, expected, finder)
		run.Experiment = cmp.Or(experiment, run.Experiment)
		runs = append(runs, run)
	}
	return runs, nil
}

func inExperiment(tags []document.Annotation, name string) bool {
	return slices.ContainsFunc(tags, func(n document.Annotation) bool {
		return n.Kind == store.AnnotationTag && n.Name == TagExperiment+name
	})
}
