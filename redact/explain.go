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
const nearness = 40

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
	// stages are the edits of the passes so far. They lead from a place in what a pass read back to the text.
	stages [][]finding
}

// origin returns where the byte i of what the current pass reads is in the text, or where the one before it ends.
func (t *trace) origin(i int, end bool) int {
	for _, edits := range slices.Backward(t.stages) {
		shift := 0
		for _, e := range edits {
			from := e.start + shift
			if i <= from {
				break
			}
			if i < from+len(e.marker) { // within a marker
				if i = from; end {
					i += e.end - e.start
				}
				break
			}
			shift += len(e.marker) - (e.end - e.start)
		}
		i -= shift
	}
	return i
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
	if t == nil || len(edits) == 0 {
		return
	}
	known := map[[2]int]bool{}
	for _, x := range t.found {
		known[[2]int{x.Start, x.End}] = x.Secret
	}
	for _, e := range edits {
		rule, _ := strings.CutPrefix(strings.TrimSuffix(e.marker, "]"), "[redacted:")
		if rule == Marker {
			rule = ""
		}
		if !known[[2]int{t.origin(e.start, false), t.origin(e.end, true)}] {
			t.note(Candidate{Start: e.start, End: e.end, Rule: rule, Secret: true})
		}
	}
	t.stages = append(t.stages, slices.Clone(edits))
}

// mark returns how far the trace is, and within moves what came after it to a string of JSON: its places are those of
// the string's bytes.
func (t *trace) mark() (found, stages int) {
	if t == nil {
		return 0, 0
	}
	return len(t.found), len(t.stages)
}

// reset forgets what came after mark.
func (t *trace) reset(found, stages int) {
	if t != nil {
		t.found, t.stages = t.found[:found], t.stages[:stages]
	}
}

func (t *trace) within(found, stages, start, end int) {
	if t == nil {
		return
	}
	t.stages = t.stages[:stages]
	for i := range t.found[found:] {
		x := &t.found[found+i]
		x.Start, x.End = t.origin(start, false), t.origin(end, true)
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
