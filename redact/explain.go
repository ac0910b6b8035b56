package redact

import (
	"slices"
	"strings"
)

// Candidate is a value that was considered a secret, and why. It has where the value is, never the value.
type Candidate struct {
	Start, End int    // of the bytes of the text; of the string, for what is in JSON within a string of JSON
	Label      string // the name of a secret that is nearest before it, if one is; empty for what has a shape
	Rule       string // the rule of Rules whose shape it has; empty for the others
	Kind       string // what it looks like: a kind of values.go
	Features   []Feature
	Score      int  // the sum of the weights of the features: above zero it is a secret
	Secret     bool // it is redacted
}

// Feature is one that a value is judged by.
type Feature struct {
	Name   string // as in data/clues.txt: name=text
	Weight int
}

// nearness is how far below zero the score of a candidate is that Explain still reports.
const nearness = 240

// Explain reports what Text considers a secret in s, in the order of s: values under keys of JSON, and what is in s as
// a text. What only the removal of another secret lays bare is not among them, nor what a Config.Func replaces.
func (r *Redactor) Explain(s string) []Candidate {
	if r == nil {
		return nil
	}
	// One pass over the keys and one over the text, with a trace that all judgements are noted in.
	traced := *r
	traced.trace = &trace{}
	traced.document(s, 0, nil)
	traced.text(s, false, r.far)
	found := traced.trace.found
	slices.SortStableFunc(found, func(a, b Candidate) int { return a.Start - b.Start })
	return slices.CompactFunc(found, func(a, b Candidate) bool {
		return a.Start == b.Start && a.End == b.End && a.Label == b.Label && a.Secret == b.Secret && a.Score == b.Score
	})
}

// trace notes what is considered in a text.
type trace struct {
	found []Candidate
	// clued, where it is set, decides in the place of the weights of clues.
	clued func(c *scan, t *token) bool
}

func (t *trace) note(x Candidate) {
	if t != nil && (x.Secret || x.Score >= -nearness) {
		t.found = append(t.found, x)
	}
}

// edits notes those that no label named: they have a shape.
func (t *trace) edits(found []finding) {
	for _, e := range found {
		if t != nil && !slices.ContainsFunc(t.found, func(x Candidate) bool { return x.Start == e.start && x.Secret }) {
			rule, _ := strings.CutPrefix(strings.TrimSuffix(e.marker, "]"), "[redacted:")
			if rule == Marker {
				rule = ""
			}
			t.note(Candidate{Start: e.start, End: e.end, Rule: rule, Secret: true})
		}
	}
}

// without returns the Redactor for a text within the text, whose places mean nothing.
func (r *Redactor) without() *Redactor {
	if r.trace == nil {
		return r
	}
	silent := *r
	silent.trace = nil
	return &silent
}
