package assemble

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
)

// Windows assembles the facts of a session from one cut on to where a turn opens
// and nothing reaches across.
//
// A turn of thousands of steps is not one window: then every step would cost as
// much as all before it. It is cut inside too, where a step begins. What a window
// must know of those before it is in a carry of bounded size, so that a fact that
// is added at the end of a turn costs a window, however long the turn is. The
// message is what its windows write, one after another.
//
// Where the cuts are depends on the facts alone, as all else does. A window ends
// at the first place after Size facts where a step begins and which separates
// nothing that belongs together:
//
//   - two reports of one model call: facts that overlap or contain it in time, that
//     are below it, or that have its request id; by its response id what follows
//     within [near] of its end, unless one instrumentation reports two calls by two
//     spans; and those of two instrumentations whose clocks differ by a [tick];
//   - a tool call from the model call that requested it, from its decision, and from
//     what reports its result, by its id; or two reports of its run without the id;
//   - a sub-agent's first fact from the tool call that started it;
//   - a prompt from what it began, or the reports of one compaction.
//
// Spans of kind Turn, Step, Session and ToolCall, and model calls that wrap others,
// may reach across, and so may all below which something begins after their end: they
// are of the window in which they begin, and the later ones know them as context. Ids
// are looked for among the next [Lookahead] facts.
//
// A window ends after maxFacts facts whatever that separates, and up to maxAround are known
// as context. Of more than maxFacts that begin in the same nanosecond the rest is left out.
// No agent works like that, and otherwise each request of a sender could cost as much as all
// before it.
type Windows struct {
	Owner string
	// Carried is what was carried to the cut where the facts begin, nil where a turn
	// opens. Around are the facts that begin before it and last until after it.
	Carried []byte
	Around  []fact.Fact
	// Proofs are what all facts of the session prove of how tokens were counted.
	Proofs []store.UsageProof
	// Facts may be in any order.
	Facts []fact.Fact
	// Size is the least number of facts of a window, [DefaultSize] where it is 0.
	Size int
}

const (
	// DefaultSize is the least number of facts of a window.
	DefaultSize = 24
	// Lookahead is how many facts after a cut decide whether it is one.
	Lookahead = store.CutLookahead

	// maxFacts is about how many facts are of a window, maxAround how many reach into it.
	maxFacts, maxAround = 1024, store.MaxAround
)

// Assemble returns what the facts come to, with the cuts inside. The attributions
// are in the order of the facts.
func (w Windows) Assemble() (store.Assembly, error) {
	carried, err := decodeCarry(w.Carried)
	if err != nil {
		return store.Assembly{}, err
	}
	order := make([]int, len(w.Facts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		x, y := &w.Facts[i], &w.Facts[j]
		return cmp.Or(cmp.Compare(x.Start, y.Start), strings.Compare(x.TraceID, y.TraceID),
			strings.Compare(x.Source, y.Source))
	})
	at, n := int64(0), 0
	order = slices.DeleteFunc(order, func(i int) bool {
		if n++; w.Facts[i].Start != at {
			at, n = w.Facts[i].Start, 1
		}
		return n > maxFacts
	})
	facts := make([]fact.Fact, len(order))
	for i, j := range order {
		facts[i] = w.Facts[j]
	}
	c := newCutter(facts, w.Around, carried, cmp.Or(w.Size, DefaultSize))
	out := store.Assembly{Attribution: make([]store.Attribution, len(w.Facts))}
	messages := make(map[string]int)
	around := w.Around
	for from := 0; from < len(facts); {
		a, to := w.window(c, carried, around, from)
		for _, n := range a.nodes {
			if n.context == nil {
				n.attribution.UsageProof = n.usageProof()
				out.Attribution[order[from+n.at]] = n.attribution
			}
		}
		for _, m := range a.messages {
			i, known := messages[m.ID]
			if !known {
				messages[m.ID] = len(out.Messages)
				out.Messages = append(out.Messages, m)
				continue
			}
			m.Parts, m.From = joinParts(out.Messages[i].Parts, m.Parts, m.From), out.Messages[i].From
			out.Messages[i] = m
		}
		out.Decisions = append(out.Decisions, a.decisions...)
		if to < len(facts) {
			carried, around = a.carry()
			out.Cuts = append(out.Cuts, store.Cut{At: facts[to].Start, Carry: carried.encode()})
			c.begin(carried, around)
		}
		from = to
	}
	return out, nil
}

// joinParts adds the parts that a window has of a message to those of the windows
// before. Those before its first index replace theirs.
func joinParts(parts, more []session.Part, from int64) []session.Part {
	for i := range more {
		if more[i].Index >= from {
			return append(parts, more[i:]...)
		}
		byIndex := func(p session.Part, at int64) int { return cmp.Compare(p.Index, at) }
		if k, known := slices.BinarySearchFunc(parts, more[i].Index, byIndex); known {
			parts[k] = more[i]
		} else {
			parts = slices.Insert(parts, k, more[i])
		}
	}
	return parts
}

// window assembles the window that begins with a fact, and returns the index of
// the one after it.
func (w Windows) window(c *cutter, carried *carry, around []fact.Fact, from int) (*assembly, int) {
	begin, apart := int64(math.MinInt64), apartOf(w.Proofs)
	if carried != nil {
		begin = c.facts[from].Start
	}
	for to := from; ; {
		to = c.next(from, to)
		a := &assembly{forced: to-from >= maxFacts, owner: w.Owner, apart: apart, carried: carried, from: begin, until: math.MaxInt64}
		if to < len(c.facts) {
			a.until = c.facts[to].Start
			for i := to; i < len(c.facts) && c.facts[i].Start == a.until; i++ {
				a.ahead = append(a.ahead, c.facts[i])
			}
		}
		if a.run(around, c.facts[from:to:to]) {
			return a, to
		}
	}
}

// cutter finds where windows end.
type cutter struct {
	facts []fact.Fact
	size  int
	// spans are the facts of spans, attached the tool calls that have started a sub-agent
	// before the window.
	spans    map[[2]string]*fact.Fact
	attached map[[2]string]bool
	lineages map[*fact.Fact]lineage
}

func newCutter(facts, around []fact.Fact, carried *carry, size int) *cutter {
	c := &cutter{facts: facts, size: size, spans: make(map[[2]string]*fact.Fact, len(facts)),
		lineages: make(map[*fact.Fact]lineage)}
	for _, some := range [][]fact.Fact{around, facts} {
		for i := range some {
			if f := &some[i]; isSpan(f) {
				c.spans[spanKey(f)] = f
			}
		}
	}
	c.begin(carried, around)
	return c
}

// begin notes what reaches into the next window.
func (c *cutter) begin(carried *carry, around []fact.Fact) {
	c.attached = make(map[[2]string]bool)
	for i := range around {
		f := &around[i]
		c.attached[spanKey(f)] = carried.spineOf(f).attached()
	}
}

func spanKey(f *fact.Fact) [2]string { return [2]string{f.TraceID, f.SpanID} }

// isSpan reports whether the fact is what its span is known by.
func isSpan(f *fact.Fact) bool { return f.Source == f.SpanID && f.SpanID != "" }

// parent is the fact that a fact is below, or nil.
func (c *cutter) parent(f *fact.Fact) *fact.Fact {
	above := f.ParentID
	if !isSpan(f) {
		above = f.SpanID
	}
	if above == "" {
		return nil
	}
	if p := c.spans[[2]string{f.TraceID, above}]; p != f {
		return p
	}
	return nil
}

// lineage is the nearest tool call above a fact, and the nearest model call below that.
type lineage struct{ parentRef, wrapper *fact.Fact }

// lineage finds the lineage of a fact, and keeps it: a chain of spans may be long.
func (c *cutter) lineage(f *fact.Fact) (l lineage) {
	if l, known := c.lineages[f]; known {
		return l
	}
	c.lineages[f] = l // what is below itself has none
	if p := c.parent(f); p != nil && p.Kind == fact.ToolCall {
		l.parentRef = p
	} else if p != nil {
		if l = c.lineage(p); p.Kind == fact.ModelCall {
			l.wrapper = p
		}
	}
	c.lineages[f] = l
	return l
}

// known is what a window has had so far, as far as it decides where it may end.
type known struct {
	// open are model calls and others that nothing may separate from what happens
	// meanwhile.
	open []*fact.Fact
	last fact.Kind
	// compacted is when a compaction was last seen.
	compacted int64
	requests  map[string]bool
	answered  map[string][]*fact.Fact  // by response id
	called    instrumented             // the spans of model calls
	ran       map[string]*instrumented // those of tool calls, by name
	calls     map[string]bool          // tool calls, by id, with whether the model requested them
	inner     map[[2]string]int        // how many model calls a model call wraps
	request   map[[2]string]string     // the request id of the first of them
	waiting   map[string]bool          // calls that the model requested and of which nothing else is reported, by id
	pending   map[string]int           // calls that the model requested and no tool has run for, by name
	spans     map[[2]string]*fact.Fact // those that what is below them is a part of
	attached  map[[2]string]bool
}

// next returns the index of the first fact of the next window: the first place
// after the index where the one from a fact may end, or how many facts there are.
func (c *cutter) next(from, after int) int {
	k := known{
		compacted: math.MinInt64 + near, requests: make(map[string]bool), answered: make(map[string][]*fact.Fact),
		calls: make(map[string]bool),
		inner: make(map[[2]string]int), request: make(map[[2]string]string), spans: make(map[[2]string]*fact.Fact),
		attached: make(map[[2]string]bool),
		pending:  make(map[string]int), waiting: make(map[string]bool), ran: make(map[string]*instrumented),
	}
	for i := from; i < len(c.facts); i++ {
		f := &c.facts[i]
		waits := len(k.waiting) > maxWaiting && i-from < maxWait
		if i-from >= c.size && i > after && f.Start > c.facts[i-1].Start &&
			(i-from >= maxFacts || !waits && c.begins(&k, i) && !c.separates(&k, i)) {
			return i
		}
		c.note(&k, f)
	}
	return len(c.facts)
}

// begins reports whether a step begins at a fact.
func (c *cutter) begins(k *known, i int) bool {
	at := c.facts[i].Start
	for ; i < len(c.facts) && c.facts[i].Start == at; i++ {
		f := &c.facts[i]
		if f.Purpose != "" || f.Failed || purpose(f) != "" {
			continue
		}
		begins := false
		switch f.Kind {
		case fact.ModelCall:
			// Of records it is not known which is the first that reports a call, unless
			// tools ran before it.
			begins = k.last == fact.ToolCall || !isRecord(f) && k.last == fact.ModelCall
		case fact.ToolCall:
			begins = k.last == fact.ToolCall && (f.CallID != "" || !isRecord(f))
		}
		if parentRef := c.lineage(f).parentRef; begins && (parentRef == nil || parentRef.Start >= at ||
			k.attached[spanKey(parentRef)] || c.attached[spanKey(parentRef)]) {
			return true
		}
	}
	return false
}

// separates reports whether a cut before the fact separates what belongs together.
func (c *cutter) separates(k *known, i int) bool {
	at := c.facts[i].Start
	for n := len(k.open); n > 0; n-- {
		f := k.open[n-1]
		if f.End > at && (f.Kind != fact.ModelCall || k.inner[spanKey(f)] < 2) {
			return true
		}
		k.open = k.open[:n-1]
	}
	if k.compacted+near >= at {
		return true
	}
	asked, again := make(map[string]bool), make(map[string]bool)
	for j := i; j < min(i+Lookahead, len(c.facts)); j++ {
		f := &c.facts[j]
		if k.tiesModelCall(f, again) || k.tiesToolCall(f, asked) {
			return true
		}
		if p := c.parent(f); p != nil && k.spans[spanKey(p)] == p && (p.Kind != fact.ToolCall || partOf(f, p)) &&
			k.inner[spanKey(p)] < 2 {
			return true
		}
	}
	return false
}

// tiesModelCall reports whether a later fact is about a model call of the window. again has
// the response ids that another call of a server has too.
func (k *known) tiesModelCall(f *fact.Fact, again map[string]bool) bool {
	if f.RequestID != "" && k.requests[f.RequestID] {
		return true
	}
	if f.ResponseID != "" && !again[f.ResponseID] {
		if sameAnswer(k.answered[f.ResponseID], f) {
			return true
		}
		again[f.ResponseID] = true
	}
	return f.Kind == fact.ModelCall && !isRecord(f) && k.called.overlaps(f)
}

// tiesToolCall reports whether a later fact is about a tool call of the window, or requests
// one that ran in it. asked has the ids and names that later facts have requested again.
func (k *known) tiesToolCall(f *fact.Fact, asked map[string]bool) bool {
	if f.Kind == fact.ToolCall || f.Kind == fact.Permission {
		if _, known := k.calls[f.CallID]; known && !asked[f.CallID] {
			return true
		}
		if k.reportsAgain(f) {
			return true
		}
		if name := toolName(f); f.CallID == "" && k.pending[name] > 0 && !asked["named "+name] {
			return true
		}
	}
	for p := range f.Output {
		part := &f.Output[p]
		if part.Kind != fact.PartCall {
			continue
		}
		asked["named "+part.Name] = true
		if requested, known := k.calls[part.CallID]; known && !requested {
			return true // the tool ran before its request is known
		}
		asked[part.CallID] = part.CallID != ""
	}
	return false
}

// sameAnswer reports whether a fact reports the same call of a model as some before it
// that have its response id. Some servers give every answer the same id: then it
// reports another, if it is like one of them.
func sameAnswer(before []*fact.Fact, f *fact.Fact) bool {
	if len(before) == 0 || slices.ContainsFunc(before, func(o *fact.Fact) bool {
		return isRecord(f) && isRecord(o) && o.Name == f.Name
	}) {
		return false
	}
	return slices.ContainsFunc(before, func(o *fact.Fact) bool {
		return f.Start <= max(o.Start, o.End)+near && (isRecord(f) || !isRecord(o) && byTwo(o, f))
	})
}

// byTwo reports whether two instrumentations may report one call by the two facts.
func byTwo(x, y *fact.Fact) bool {
	return x.Dialect != y.Dialect || instrument(x.Name) != instrument(y.Name)
}

// toolName is the name of the tool that a fact is about.
func toolName(f *fact.Fact) string {
	switch {
	case f.Tool != nil:
		return f.Tool.Name
	case f.Decision != nil:
		return f.Decision.ToolName
	}
	return ""
}

// partOf reports whether what is below a tool call is about that call.
func partOf(f, call *fact.Fact) bool {
	return (f.Kind == fact.ToolCall || f.Kind == fact.Permission) &&
		(f.CallID == "" || call.CallID == "" || f.CallID == call.CallID)
}

// note adds a fact to the window.
func (c *cutter) note(k *known, f *fact.Fact) {
	k.addIDs(f)
	k.addCalls(f)
	k.addKind(f)
	span := !isRecord(f)
	if parentRef := c.lineage(f).parentRef; span && parentRef != nil &&
		(f.Kind == fact.Turn || f.Kind == fact.ModelCall) {
		k.attached[spanKey(parentRef)] = true
	}
	switch f.Kind {
	case fact.Turn, fact.Step, fact.Session, fact.ToolCall:
		return // they may reach across a cut
	case fact.ModelCall:
		if span {
			c.addWrapped(k, f)
			k.called.add(f)
		}
	}
	k.open = append(k.open, f)
	if isSpan(f) {
		k.spans[spanKey(f)] = f
	}
}

// addIDs notes the ids by which later facts may belong to this one, and which calls have a
// result now.
func (k *known) addIDs(f *fact.Fact) {
	if f.RequestID != "" {
		k.requests[f.RequestID] = true
	}
	if f.ResponseID != "" {
		k.answered[f.ResponseID] = append(k.answered[f.ResponseID], f)
	}
	for i := range f.Input {
		for j := range f.Input[i].Parts {
			if p := &f.Input[i].Parts[j]; p.Kind == fact.PartResult {
				delete(k.waiting, p.CallID)
			}
		}
	}
}

// addCalls notes the tool calls that the fact requests, and the one that it reports.
func (k *known) addCalls(f *fact.Fact) {
	for i := range f.Output {
		if p := &f.Output[i]; p.Kind == fact.PartCall {
			k.pending[p.Name]++
			if p.CallID != "" {
				k.calls[p.CallID], k.waiting[p.CallID] = true, true
			}
		}
	}
	name := toolName(f)
	if f.Kind == fact.ToolCall && k.pending[name] > 0 && !k.reportsAgain(f) {
		k.pending[name]--
	}
	if f.Kind == fact.ToolCall && !isRecord(f) {
		if k.ran[name] == nil {
			k.ran[name] = new(instrumented)
		}
		k.ran[name].add(f)
	}
	if (f.Kind == fact.ToolCall || f.Kind == fact.Permission) && f.CallID != "" {
		if _, known := k.calls[f.CallID]; !known {
			k.calls[f.CallID] = false // the model did not request it
		}
		delete(k.waiting, f.CallID)
	}
}

// reportsAgain reports whether a tool's span without the call's id may be of a run that
// another instrumentation's span in the window is of.
func (k *known) reportsAgain(f *fact.Fact) bool {
	ran := k.ran[toolName(f)]
	return f.Kind == fact.ToolCall && f.CallID == "" && !isRecord(f) && ran != nil && ran.overlaps(f)
}

// addKind notes what happened last, as far as a step may begin after it.
func (k *known) addKind(f *fact.Fact) {
	switch f.Kind {
	case fact.Turn, fact.Step, fact.Session, fact.Note:
	case fact.ToolCall:
		k.last, k.spans[spanKey(f)] = f.Kind, f
	case fact.Permission:
		k.last = fact.ToolCall
	case fact.Answer:
		k.last = fact.ModelCall
	case fact.Compaction:
		k.compacted = max(k.compacted, f.Start, f.End)
		k.last = f.Kind
	default:
		k.last = f.Kind
	}
}

// addWrapped counts a model call for each one above it, up to the tool that started a
// sub-agent. Attempts of one request count once. More than two need not be counted, and
// what is above one that wraps two wraps two as well.
func (c *cutter) addWrapped(k *known, f *fact.Fact) {
	for p := c.lineage(f).wrapper; p != nil; p = c.lineage(p).wrapper {
		key := spanKey(p)
		if k.inner[key] == 2 {
			return
		}
		if k.inner[key] == 0 || f.RequestID == "" || k.request[key] != f.RequestID {
			k.inner[key]++
			k.request[key] = f.RequestID
		}
	}
}

// instrumented knows when the last span of some ended, and the last of another instrumentation than that one.
type instrumented [2]struct {
	by  string
	end int64
}

func (x *instrumented) add(f *fact.Fact) {
	by := f.Dialect + " " + instrument(f.Name)
	switch {
	case x[0].by == by || x[0].by == "":
		x[0].by, x[0].end = by, max(x[0].end, f.End)
	case f.End > x[0].end:
		x[1] = x[0]
		x[0].by, x[0].end = by, f.End
	case x[1].by == "" || f.End > x[1].end:
		x[1].by, x[1].end = by, f.End
	}
}

// overlaps reports whether a span of another instrumentation than that of f ended a tick before f began, or later.
func (x *instrumented) overlaps(f *fact.Fact) bool {
	for _, o := range x {
		if o.by != "" && o.by != f.Dialect+" "+instrument(f.Name) && f.Start < o.end+tick {
			return true
		}
	}
	return false
}
