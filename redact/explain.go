package redact

import (
	"slices"
	"strings"
)

// Candidate is a value that was considered a secret, and why. It has where the value is, never the value.
type Candidate struct {
	Start, End int    // of the bytes of the text; of the string, for what is in JSON within a string of JSON
	Label      string // the name or the words before it; empty for what has a shape
	Rule       string // the rule of Rules whose shape it has; empty for what a label names
	Kind       string // what it looks like, as in data/weights.txt
	Features   []Feature
	Score      int  // the sum of the weights of the features: above zero it is a secret
	Secret     bool // it is redacted
}

// Feature is one that a value is judged by.
type Feature struct {
	Name   string
	Weight int
}

// nearness is how far below zero the score of a candidate is that Explain still reports.
const nearness = 80

// Explain redacts s as Text does, and reports what was considered a secret on the way, in the order of s. What a
// Config.Func replaces is no candidate.
func (r *Redactor) Explain(s string) (string, []Candidate) {
	if r == nil {
		return s, nil
	}
	traced := *r
	traced.trace = &trace{}
	out := traced.clean("", s)
	found := traced.trace.found
	slices.SortStableFunc(found, func(a, b Candidate) int { return a.Start - b.Start })
	return out, slices.CompactFunc(found, func(a, b Candidate) bool {
		return a.Start == b.Start && a.End == b.End && a.Label == b.Label && a.Secret == b.Secret && a.Score == b.Score
	})
}

// trace notes what the passes over a text consider.
type trace struct {
	// judge, where it is set, decides in the place of the score: the program that makes the weights learns so.
	judge func(f features, v string) bool
	found []Candidate
	edits []finding // of the passes so far, at places of the text
}

// origin returns where the byte i of what the current pass reads is in the text, or where the one before it ends.
func (t *trace) origin(i int, end bool) int {
	longer := 0
	for _, e := range t.edits {
		from := e.start + longer
		if i <= from {
			break
		}
		if i < from+len(e.marker) { // within a marker
			if end {
				return e.end
			}
			return e.start
		}
		longer += len(e.marker) - (e.end - e.start)
	}
	return i - longer
}

// note adds a candidate at a place in what the current pass reads.
func (t *trace) note(x Candidate) {
	if t != nil && (x.Secret || x.Score >= -nearness) {
		x.Start, x.End = t.origin(x.Start, false), t.origin(x.End, true)
		t.found = append(t.found, x)
	}
}

// pass ends a pass over a text that made edits: what no label named had a shape.
func (t *trace) pass(edits []finding) {
	if t == nil {
		return
	}
	all := slices.Clone(t.edits)
	for _, e := range edits {
		rule, _ := strings.CutPrefix(strings.TrimSuffix(e.marker, "]"), "[redacted:")
		if strings.Contains(rule, Marker) {
			rule = ""
		}
		start, end := t.origin(e.start, false), t.origin(e.end, true)
		if !slices.ContainsFunc(t.found, func(x Candidate) bool { return x.Start == start && x.End == end }) {
			t.note(Candidate{Start: e.start, End: e.end, Rule: rule, Secret: true})
		}
		all = slices.DeleteFunc(all, func(e finding) bool { return e.start < end && start < e.end })
		all = append(all, finding{start, end, e.marker})
	}
	slices.SortFunc(all, func(a, b finding) int { return a.start - b.start })
	t.edits = all
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

// names of the rows and of the columns of the weights.
var rowNames, columnNames = func() (rows, columns []string) {
	for _, row := range tableRows(weightsFile) {
		name, _, _ := strings.Cut(row, " ")
		rows = append(rows, name)
	}
	lines := strings.Split(weightsFile, "\n")
	return rows, strings.Fields(lines[2])[1:]
}()

// explained returns the names and weights of the features.
func (f features) explained() (out []Feature) {
	for row := range f.rows {
		out = append(out, Feature{rowNames[row], int(weights[row][f.kind]) + int(weights[row][int(kindCount)+int(f.join)])})
	}
	return out
}
