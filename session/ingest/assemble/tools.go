package assemble

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// This file finds the executions of tools in a turn, and which of the calls that the model requested each of them is.
// A call may be known from four places: the model's answer (its input), the span of its execution (when it ran), a
// record of the client (its output, the decision on it) and the next request (what the model was given as its
// result). Most share the id of the call. Where they do not, name, input, time and result decide, in findTools for
// what reports the execution and in writer.take for what the model requested.
//
// An execution that no call requested is kept: the call that requested it was lost.

// tool is one call of a tool: what is known of its execution.
type tool struct {
	id, name   string
	nodes      []*node
	decisions  []*node
	start, end int64
	// round counts the times that the model had used the id before.
	round int
	used  bool
	// folded is the name as [foldName] writes it, once all is known of the execution.
	folded string
	// canonical is the input with its keys in order, once it was needed: a step may have hundreds of calls of one tool,
	// each of which is compared with all.
	canonical []byte
}

func (x *tool) add(n *node) {
	if n.Kind == fact.Permission {
		x.decisions = append(x.decisions, n)
		if d := n.Decision; d != nil && x.name == "" {
			x.name = d.ToolName
		}
	} else {
		x.nodes = append(x.nodes, n)
		if n.Tool != nil {
			x.name = cmp.Or(x.name, n.Tool.Name)
		}
	}
	x.id = cmp.Or(x.id, n.CallID)
	if len(x.nodes)+len(x.decisions) == 1 || n.Start < x.start {
		x.start = n.Start
	}
	x.end, x.canonical = max(x.end, n.End), nil
}

// findTools gathers what is known of the executions of tools. Facts that name no call are of the one in whose span
// they are. A call's id that the model calls used more than once has several rounds: some providers count the calls
// of each answer from one.
//
//	chat → call_1 ls    ls call_1    round 0
//	chat → call_1 cat   cat call_1   round 1
//
// Without rounds both would be one call, with the input of the first and the output of the second.
func (t *turn) findTools(calls []*call) []*tool {
	asked := askedAt(calls)
	type key struct {
		id    string
		round int
	}
	var all []*tool
	byID, found := make(map[key]*tool), make(map[*node]*tool)
	var unnamed []*node
	for _, n := range of(t.nodes, fact.ToolCall, fact.Permission) {
		id := n.CallID
		// A tool's span within a tool's span is the same execution, or its error: unless both have ids, which differ.
		if p := n.above(fact.ToolCall); p != nil && p.session == n.session &&
			(id == "" || p.CallID == "" || p.CallID == id) && found[p] != nil {
			found[p].add(n)
			found[n] = found[p]
			continue
		}
		if id == "" {
			unnamed = append(unnamed, n)
			continue
		}
		k := key{id, roundAt(asked[id], n.Start)}
		x := byID[k]
		if x == nil {
			x = &tool{id: id, round: k.round}
			byID[k] = x
			all = append(all, x)
		}
		x.add(n)
		found[n] = x
	}
	// A span comes before the records that may report it, also where a record of the start was written before it began.
	slices.SortStableFunc(unnamed, func(x, y *node) int { return cmp.Compare(truth(x.record), truth(y.record)) })
	reported := make(map[string]*tool) // by the record of it
	for _, n := range unnamed {
		record, _, _ := strings.Cut(n.Source, "#")
		// A record of an end may have the decision, too. It has no id, and the next execution may be nearer to it.
		x := reported[record]
		if n.Kind == fact.ToolCall || x == nil {
			x = cmp.Or(n.reported(all), n.twin(all))
		}
		if p := n.above(fact.ToolCall); x == nil && p != nil {
			x = found[p]
		}
		if x == nil {
			if n.Kind == fact.Permission {
				continue // a decision on nothing: a part for it would be a call that nobody made
			}
			x = new(tool)
			all = append(all, x)
		}
		x.add(n)
		found[n], reported[record] = x, x
	}
	for _, n := range of(t.nodes, fact.Step) {
		if p := n.above(fact.ToolCall); n.Failed && p != nil && found[p] != nil {
			found[p].nodes = append(found[p].nodes, n) // what went wrong within a call: its own span may have no error
		}
	}
	slices.SortStableFunc(all, func(x, y *tool) int { return cmp.Compare(x.start, y.start) })
	t.nameTools(all, asked)
	for _, x := range all {
		x.folded = foldName(x.name)
	}
	return all
}

// nameTools finds the calls of executions without an id and a name, such as one of LangChain by OpenLLMetry that
// failed: what the state of the graph has, with the same input, and nothing else reports.
func (t *turn) nameTools(all []*tool, asked map[string][]int64) {
	for _, r := range t.roots {
		for i := range r.Output {
			p := &r.Output[i]
			if p.Kind != fact.PartCall || p.CallID == "" || asked[p.CallID] != nil ||
				slices.ContainsFunc(all, func(x *tool) bool { return x.id == p.CallID }) {
				continue
			}
			at := slices.IndexFunc(all, func(x *tool) bool {
				return x.id+x.name == "" && x.shape() != nil && sameInput(x.shape(), canonical(p.Input))
			})
			if at >= 0 {
				all[at].id, all[at].name = p.CallID, p.Name
			}
		}
	}
}

// roundAt is the index of the last of the times that is not after at, or 0, where a clock is behind.
func roundAt(times []int64, at int64) int {
	i, _ := slices.BinarySearch(times, at+1)
	return max(0, i-1)
}

// askedAt is when the model requested each call: it may use an id again. What is known of an execution belongs to the
// last request before it.
func askedAt(calls []*call) map[string][]int64 {
	times := make(map[string][]int64)
	for _, c := range calls {
		for i := range c.output {
			if p := &c.output[i]; p.Kind == fact.PartCall && p.CallID != "" {
				times[p.CallID] = append(times[p.CallID], c.start)
			}
		}
	}
	return times
}

// reported finds the execution that a record without a call's id reports: of the same tool with the same input, the
// nearest that no such record reports yet.
func (n *node) reported(all []*tool) *tool {
	if !n.record {
		return nil
	}
	var input []byte
	if n.Tool != nil {
		input = canonical(n.Tool.Input)
	}
	name := toolName(n.Fact)
	var best *tool
	for _, x := range all {
		if name != "" && x.name != name || best != nil && n.away(x) >= n.away(best) {
			continue
		}
		mine := x.shape()
		if (input == nil || mine == nil || bytes.Equal(input, mine)) && !seen(x.nodes, n) && !seen(x.decisions, n) {
			best = x
		}
	}
	return best
}

// twin finds the execution that another instrumentation reports by a span as well: of the same tool with the same
// input, one within the other, and of several the one that took the least longer. Two spans of one instrumentation
// are two calls, and so are two whose outputs differ.
func (n *node) twin(all []*tool) *tool {
	if n.record || n.Kind != fact.ToolCall || n.Tool == nil || n.Tool.Name == "" {
		return nil
	}
	input := canonical(n.Tool.Input)
	var best *tool
	var least int64
	for _, x := range all {
		if x.name != n.Tool.Name {
			continue
		}
		if slack, same := x.reportedWith(n); same && (best == nil || slack < least) && sameInput(x.shape(), input) {
			best, least = x, slack
		}
	}
	return best
}

// reportedWith reports whether each span of the execution is another instrumentation's than
// n, and of the same time, and by how much their times differ.
func (x *tool) reportedWith(n *node) (least int64, same bool) {
	for _, o := range x.nodes {
		if o.record || o.Kind != fact.ToolCall {
			continue
		}
		if !within(o, n, tick) || !byTwo(o.Fact, n.Fact) ||
			o.Tool != nil && o.Tool.Output != nil && n.Tool.Output != nil &&
				!bytes.Equal(canonical(o.Tool.Output), canonical(n.Tool.Output)) {
			return 0, false
		}
		least, same = slack(o, n), true
	}
	return least, same
}

// away is how long before or after the execution a record was written: a decision comes before it, a result after.
func (n *node) away(x *tool) int64 {
	at := x.end
	if n.Kind == fact.Permission {
		at = x.start
	}
	return max(at-n.Start, n.Start-at)
}

// input is what the tool was called with. Of several accounts the longest is the whole one: some sources shorten it.
func (x *tool) input() json.RawMessage {
	var input json.RawMessage
	for _, n := range x.nodes {
		if n.Tool != nil && len(n.Tool.Input) > len(input) {
			input = n.Tool.Input
		}
	}
	return input
}

// shape is the input in a form that can be compared.
func (x *tool) shape() []byte {
	if x.canonical == nil {
		x.canonical = canonical(x.input())
	}
	return x.canonical
}

// canonical writes a JSON value with the keys of its objects in order, nil for none: two libraries of one program
// write one input with its keys in two orders.
func canonical(raw json.RawMessage) []byte {
	var v any
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil {
		return raw
	}
	sorted, _ := json.Marshal(v)
	return sorted
}

// foldName writes the name of a tool as all do that a program may give it: what the model calls read_file may be run
// by a span of readFile.
func foldName(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
}

// take finds the execution of a call that the model requested at from, or later where the call has no id. result is
// what a later request reports that the call came to, nil where none does: among executions with the same input it
// decides which one was the call's.
func (w *writer) take(p, result *fact.Part, from int64) *tool {
	if p.CallID != "" {
		// The second time that the model uses an id, its second round is meant, whichever of the two ran first.
		round := w.seen["asked "+p.CallID]
		w.seen["asked "+p.CallID]++
		for _, x := range w.tools {
			if !x.used && x.id == p.CallID && x.round == round {
				return x
			}
		}
	}
	// Some clients do not write the call's id where it is executed, OpenInference's LangChain among them. Of executions
	// with the same input the result decides: the first one would be given the other's output where calls run side by
	// side, as two calls of date() may.
	input := canonical(p.Input)
	for _, name := range []string{foldName(p.Name), ""} {
		var best *tool
		likeness := 0
		for _, x := range w.tools {
			if x.used || x.folded != name || x.id != "" && p.CallID != "" || x.start < from || !sameInput(x.shape(), input) {
				continue
			}
			if n := x.cameTo(result); best == nil || n > likeness {
				best, likeness = x, n
			}
		}
		if best != nil || p.Name == "" {
			return best
		}
	}
	return nil
}

// sameInput reports whether two accounts of a call's input, in canonical form, may be of one call. A tool with one
// argument may be given its value alone: LangChain's span of a tool that the model called with {"city":"Oslo"} has
// the input "Oslo".
func sameInput(x, y []byte) bool {
	return x == nil || y == nil || bytes.Equal(x, y) || onlyValue(x, y) || onlyValue(y, x)
}

// onlyValue reports whether value is that of the only member of an object.
func onlyValue(of, value []byte) bool {
	var o map[string]json.RawMessage
	if of[0] != '{' || value[0] == '{' || json.Unmarshal(of, &o) != nil || len(o) != 1 {
		return false
	}
	for _, v := range o {
		return bytes.Equal(canonical(v), value)
	}
	return false
}

// cameTo weighs whether the execution came to the result: more than 0 if it did, less if it has another one, 0 where
// that is not known. A span that has an error has its words in what the model was given.
func (x *tool) cameTo(result *fact.Part) int {
	if result == nil {
		return 0
	}
	for _, n := range x.nodes {
		switch {
		case n.Failed && n.Error != "" && (strings.Contains(result.Error, n.Error) ||
			bytes.Contains(result.Output, []byte(n.Error))):
			return 1
		case n.Failed != (result.Error != "") && (n.Failed || n.Tool != nil && n.Tool.Output != nil):
			return -1
		case n.Tool == nil || n.Tool.Output == nil || result.Output == nil:
		case bytes.Equal(canonical(n.Tool.Output), canonical(result.Output)):
			return 1
		default:
			return -1
		}
	}
	return 0
}

// between returns the executions that began from one time until before another, also those that a call has taken.
func (w *writer) between(from, until int64) (all []*tool) {
	for _, x := range w.tools {
		if from <= x.start && x.start < until {
			all = append(all, x)
		}
	}
	return all
}

// ran returns the executions that began after a call did and before the next one at until. Clocks that count
// milliseconds have an execution and the next call begin together: it is the call's if its span is below that of the
// call.
func (w *writer) ran(c *call, until int64) []*tool {
	all := w.between(c.start, until)
	if c.span == nil || until == math.MaxInt64 { // the last call has none after it
		return all
	}
	for _, x := range w.between(until, until+1) {
		if slices.ContainsFunc(x.nodes, func(n *node) bool { return n.above(fact.ModelCall) == c.span }) {
			all = append(all, x)
		}
	}
	return all
}

// results collects what requests report as the results of calls that were made before, by [resultKey]. Of some clients,
// such as those that only their provider's library instruments, nothing else reports that a tool ran. Each request
// repeats what those before it reported; the one that reports most of a call takes precedence.
func (t *turn) results() map[string][]*fact.Part {
	results := make(map[string][]*fact.Part)
	for _, n := range t.nodes {
		for key, parts := range resultsIn(fact.PartsOf(n.Input)) {
			if len(parts) >= len(results[key]) {
				results[key] = parts
			}
		}
	}
	// The tools that a provider executes itself, such as its search of the web, have their results in the answer.
	for _, n := range t.nodes {
		for key, parts := range resultsIn(n.Output) {
			if parts[0].CallID != "" && results[key] == nil {
				results[key] = parts
			}
		}
	}
	return results
}

// resultsIn returns the results among the parts.
func resultsIn(parts []fact.Part) map[string][]*fact.Part {
	results := make(map[string][]*fact.Part)
	for i := range parts {
		if p := &parts[i]; p.Kind == fact.PartResult && (p.CallID != "" || p.Name != "") {
			key := resultKey(p.CallID, p.Name)
			results[key] = append(results[key], p)
		}
	}
	return results
}

// resultKey is what the results of a call are known by: its id, or the name of the tool where it has none.
func resultKey(id, name string) string { return cmp.Or(id, "name "+name) }

// result returns the result of the next call with the id, or of the name where it has none, and nil when no request
// reports it. The results of one name are in the order of the calls.
func (w *writer) result(id, name string) *fact.Part {
	key := resultKey(id, name)
	if i := w.seen["result "+key]; i < len(w.results[key]) {
		return w.results[key][i]
	}
	return nil
}
