package assemble

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// This file finds a turn's calls of a model. One call may be reported five times: by the agent library's span, by the
// provider's library below it or in a trace of its own, by records of the request and of the answer, by the client's
// transcript, and by the proxy that stands before the model's server. Each has something that the others have not,
// and tokens that must be counted once:
//
//	ai.generateText.doGenerate   text, calls of tools   ┐
//	chat gpt-5 (openai library)  usage, response id     ├─ one call
//	api_request (record)         cost                   ┘
//
// What is known of a call is put together here. What sources contradict each other in becomes a notice.

// call is one request to a model: the span that describes it, and what records and spans below it add.
type call struct {
	nodes      []*node
	span       *node // the outermost span, nil when only records report it
	start, end int64
	output     []fact.Part
	// guessed reports that no fact reports the call itself: it was lost, and what it answered is known from the next
	// one's input.
	guessed bool
	// appended reports that no model gave it either: the program wrote it.
	appended bool
}

// callFinder gathers the model calls of a turn, in stages: the spans make calls, or join
// one that another instrumentation reports; then what ids tie joins them; then what was
// reported while a call went on, or near it; what is left are calls that only records report.
type callFinder struct {
	calls []*call
	of    map[*node]*call
	// requests and responses are the calls by their ids, none of which is "". A response id that two calls have
	// is nil: some servers give every answer the same.
	requests, responses map[string]*call
	// loose are the records that are of no call yet, orphans the spans of providers' libraries from other traces.
	loose, orphans []*node
}

// findCalls gathers the turn's model calls, in order of time.
func (t *turn) findCalls() []*call {
	c := callFinder{of: make(map[*node]*call), requests: make(map[string]*call), responses: make(map[string]*call)}
	c.addSpans(t.nodes)
	c.joinOrphans()
	t.nodes = slices.DeleteFunc(t.nodes, func(n *node) bool { return n.refused })
	began := func(x, y *call) int { return cmp.Compare(x.start, y.start) }
	spans := slices.SortedStableFunc(slices.Values(c.calls), began)
	c.joinEach(c.tied)
	// What no id ties is of the call that was going on, before one is looked for nearby: a call has one record of a
	// name, and the one that was written in it counts before one that is only near it.
	for _, maximum := range []int64{0, near} {
		c.joinEach(func(n *node) *call { return nearest(spans, n, maximum) })
	}
	c.addRecords()
	for _, found := range c.calls {
		found.read()
		found.prove()
	}
	slices.SortStableFunc(c.calls, compareCalls)
	return c.calls
}

func (c *callFinder) begin(n *node) *call {
	began := &call{start: n.Start, end: n.End}
	c.calls = append(c.calls, began)
	return began
}

// join adds what a node reports to a call.
func (c *callFinder) join(to *call, n *node) {
	to.nodes = append(to.nodes, n)
	if c.of[n] = to; n.RequestID != "" && c.requests[n.RequestID] == nil {
		c.requests[n.RequestID] = to
	}
	if other, known := c.responses[n.ResponseID]; known && other != to {
		c.responses[n.ResponseID] = nil
	} else if n.ResponseID != "" {
		c.responses[n.ResponseID] = to
	}
	if !n.record || to.span == nil { // a record is written after the end, or by another clock
		to.start, to.end = min(to.start, n.Start), max(to.end, n.End)
	}
}

// addSpans makes calls of the spans, and keeps the records for the stages that follow.
func (c *callFinder) addSpans(nodes []*node) {
	for _, n := range nodes {
		switch {
		case n.Kind != fact.ModelCall && n.Kind != fact.Answer:
		case n.orphan:
			c.orphans = append(c.orphans, n)
		case n.record || n.Kind == fact.Answer:
			c.loose = append(c.loose, n)
		case isWrapper(n):
			// It is no call of its own: below it are, for instance, one that failed and its retry, and each counts.
		default:
			to := c.sameCall(n)
			if to == nil {
				to = c.begin(n)
				to.span = n
			}
			c.join(to, n)
		}
	}
}

// sameCall finds the call that a span reports once more: as one within it, by the id of the request, or as another
// instrumentation. Codex has two spans of a request, of which one knows when it began and the other what it used.
func (c *callFinder) sameCall(n *node) *call {
	if p := n.above(fact.ModelCall, fact.ToolCall); p != nil && p.Kind == fact.ModelCall && c.of[p] != nil {
		return c.of[p]
	}
	if same := c.requests[n.RequestID]; same != nil {
		return same
	}
	return c.twinOf(n)
}

// tied finds the call that a record names, or is in. An id counts before the span in which the record was written.
func (c *callFinder) tied(n *node) (to *call) {
	to = cmp.Or(c.requests[n.RequestID], c.responses[n.ResponseID])
	for p := n.parent; p != nil && to == nil; p = p.parent {
		to = c.of[p]
	}
	return to
}

// joinEach joins the records to the calls that are found for them.
func (c *callFinder) joinEach(find func(*node) *call) {
	c.loose = slices.DeleteFunc(c.loose, func(n *node) bool {
		to := find(n)
		if to != nil {
			c.join(to, n)
		}
		return to != nil
	})
}

// addRecords makes calls of the records that are left. What the last call has not been reported by yet is about it: a
// client without spans writes a record of each request and of each response, and a pair of them is a call.
func (c *callFinder) addRecords() {
	var last *call
	for _, n := range c.loose {
		to := c.requests[n.RequestID]
		if n.RequestID == "" {
			if to = last; to != nil && (seen(to.nodes, n) && !restates(n, to) || to.failed() != "" && len(n.Output) > 0) {
				to = nil // what is answered after a failure is another attempt's
			}
		}
		if to == nil {
			to = c.begin(n)
		}
		c.join(to, n)
		last = to
	}
}

// restates reports whether a record repeats the error of a call at the time of its end: Codex writes what the
// connection reports, and once more in the words "stream disconnected before completion".
func restates(n *node, c *call) bool {
	failure := c.failed()
	return n.Error != "" && failure != "" && n.Start == c.end &&
		(strings.Contains(n.Error, failure) || strings.Contains(failure, n.Error))
}

// joinOrphans gives calls the spans of the provider's own library that have come from traces of their own, the best
// fitting first. What fits none does not belong to the turn: another's call that was made at the same time, or a
// copy. Two programs that use one model at once have two such traces, and the usage of one would be the other's.
func (c *callFinder) joinOrphans() {
	type pair struct {
		slack int64
		n     *node
		call  *call
		at    int
	}
	var pairs []pair
	for _, n := range c.orphans {
		for at, call := range c.calls {
			if slack, same := call.twin(n); same {
				pairs = append(pairs, pair{slack, n, call, at})
			}
		}
	}
	// Agents that work side by side call one model at the same time. An orphan of another agent must not take the place
	// of the one that fits best, whichever arrived first.
	slices.SortFunc(pairs, func(x, y pair) int {
		return cmp.Or(cmp.Compare(x.slack, y.slack), strings.Compare(y.n.TraceID, x.n.TraceID), compareNodes(x.n, y.n),
			cmp.Compare(x.at, y.at))
	})
	for _, p := range pairs {
		// The call may have been joined by others since.
		if _, same := p.call.twin(p.n); same && c.of[p.n] == nil {
			c.join(p.call, p.n)
		}
	}
	for _, n := range c.orphans {
		n.refused = c.of[n] == nil
	}
}

// twinOf finds the call that another instrumentation reports as well as n does: an agent framework's span and that of
// the provider's own library, in one trace or in two. They have one response id; or one happened within the other,
// and what both report agrees. Of several, the one that takes least longer matches.
func (c *callFinder) twinOf(n *node) *call {
	var best *call
	var least int64
	for _, other := range slices.Backward(c.calls) {
		if slack, same := other.twin(n); same && (best == nil || slack < least) {
			best, least = other, slack
		}
	}
	return best
}

// tick is by how much the clocks of two instrumentations of one process may differ, in nanoseconds: some count
// milliseconds, and round them.
const tick = 2e6

// apartBy is by how much the times of two reports of one call may differ: a proxy has it from the first attempt on,
// and a client that is slow notes its end later.
func apartBy(x, y *node) int64 {
	if x.FromServer != y.FromServer {
		return near
	}
	return tick
}

// twin reports whether n reports the call, and how much longer one of the two took. It is asked while calls have spans
// only: records join them later.
func (c *call) twin(n *node) (least int64, same bool) {
	for _, o := range c.nodes {
		switch {
		case !within(o, n, near): // most of a long turn's, so it is asked first
			return 0, false
		case isAttempt(o, n), isAttempt(n, o), !byTwo(o.Fact, n.Fact), o.RequestID != "" && n.RequestID != "":
			return 0, false // one instrumentation reports two calls by two spans; equal ids of requests have joined before
		case o.ResponseID != "" && n.ResponseID != "":
			if o.ResponseID != n.ResponseID {
				return 0, false
			}
		case !within(o, n, apartBy(o, n)) || !agree(o.Fact, n.Fact):
			return 0, false
		}
		least, same = slack(o, n), true
	}
	return least, same
}

// isAttempt reports whether x failed before the server gave the answer y: then a later attempt got that. The proxy
// has one report of all attempts, from the first on, which is of the attempt that the answer reached.
func isAttempt(x, y *node) bool {
	return x.Failed && !x.FromServer && !y.Failed && y.FromServer && y.Usage != nil && x.End+tick < y.End
}

// within reports whether one of two happened while the other did, give or take.
func within(x, y *node, give int64) bool {
	return x.Start <= y.Start+give && y.End <= x.End+give || y.Start <= x.Start+give && x.End <= y.End+give
}

// slack is by how much the times of two differ.
func slack(x, y *node) int64 {
	return max(x.Start-y.Start, y.Start-x.Start) + max(x.End-y.End, y.End-x.End)
}

// agree reports whether two accounts may be of one call: what both report of its tokens and of its answer does not
// differ. Time alone is not enough where calls go on side by side.
func agree(x, y *fact.Fact) bool {
	if x.Usage != nil && y.Usage != nil && !agreeOnOutput(x.Usage, y.Usage) {
		return false
	}
	if x.Failed != y.Failed && (x.Failed && len(y.Output) > 0 || y.Failed && len(x.Output) > 0) {
		return false
	}
	a, b := textOf(x.Output), textOf(y.Output)
	return strings.Contains(a, b) || strings.Contains(b, a) // also where one has no text, or cuts it
}

// compareCalls orders calls by time. Some clocks have milliseconds only, in which more than one may begin: of those,
// the one with the shorter input was the first, because a conversation grows.
func compareCalls(x, y *call) int {
	return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(x.asked(), y.asked()))
}

// asked is the number of messages of the input.
func (c *call) asked() int {
	most := 0
	for _, n := range c.nodes {
		most = max(most, n.History+len(n.Input))
	}
	return most
}

// isWrapper reports whether more than one call of a model was made within n, those of tools and sub-agents left out.
// Of a span above one call, what both report is that call's. Above two, its usage is their sum: as a call of its own,
// all tokens would be counted twice. ADK's transfer to another agent, within the span of a call, makes no wrapper of
// it.
func isWrapper(n *node) bool { return wrapsCallBelow(n, new(*node)) }

func wrapsCallBelow(n *node, first **node) bool {
	for _, k := range n.kids {
		switch {
		case k.session != n.session || k.Kind == fact.ToolCall || k.record || k.side != "":
		case k.Kind != fact.ModelCall:
			if wrapsCallBelow(k, first) {
				return true
			}
		case isWrapper(k):
			return true
		case *first == nil:
			*first = k
		case (*first).RequestID == "" || (*first).RequestID != k.RequestID:
			return true
		}
	}
	return false
}

// seen reports whether a record like n is among the nodes already. A client writes one record of a name for each
// call, so the next one is about another call: where the first call's span was lost, its record must not shift all
// others.
func seen(nodes []*node, n *node) bool {
	return slices.ContainsFunc(nodes, func(o *node) bool {
		return (o.record || o.Kind == fact.Answer) && o.Name == n.Name && o.Kind == n.Kind
	})
}

// nearest returns the call that was going on when a record was written, or ended or began nearest to it and at most
// so far from it, of those of which no such record reports yet. One whose request has another id does not match, nor
// does what the server answered after the attempt that the record reports had failed.
func nearest(calls []*call, n *node, maximum int64) (best *call) {
	least := maximum
	for _, c := range slices.Backward(calls) {
		away := max(c.start-n.Start, n.Start-c.end, 0)
		if away > least || seen(c.nodes, n) || slices.ContainsFunc(c.nodes, func(o *node) bool {
			return n.RequestID != "" && o.RequestID != "" || isAttempt(n, o)
		}) {
			continue
		}
		if best == nil || away < least || best.start > n.Start {
			best, least = c, away
		}
	}
	return best
}

// read finds the model's answer: that of the outermost span, else of another span, else a record; text that is built
// apart comes first: some clients have the text in records alone, and the calls of tools in spans.
func (c *call) read() {
	slices.SortStableFunc(c.nodes, func(x, y *node) int {
		return cmp.Or(cmp.Compare(truth(x.record), truth(y.record)), compareNodes(x, y))
	})
	for _, n := range c.nodes {
		if n.Transcript && len(n.Output) > 0 {
			c.output = n.Output // nothing of it was withheld or cut
			return
		}
	}
	var answers []fact.Part
	for _, n := range c.nodes {
		if n.Kind == fact.Answer {
			answers = append(answers, n.Output...)
			continue
		}
		// An answer that the call's own span does not have may be reported while it grows, by
		// several: the longest is all of it.
		if len(c.output) == 0 ||
			c.span != nil && len(c.span.Output) == 0 && !n.record && len(n.Output) > len(c.output) {
			c.output = n.Output
		} else if textOf(c.output) == "" && textOf(n.Output) != "" {
			answers = append(answers, n.Output...)
		}
	}
	for _, n := range c.nodes {
		if n.Kind == fact.ModelCall && !n.record && len(c.output) > 0 {
			// Another span may report the calls or the reasoning alone. Mastra's inference has the text, and the step
			// around it the calls, in the order in which the model requested them.
			c.complete(&fact.Message{Parts: n.Output}, nil)
		}
	}
	// A record of an answer repeats the calls that the span has. Only its text is missing: with the calls, each would
	// be in the message twice.
	if len(answers) > 0 && !has(c.output, fact.PartText) {
		given := slices.DeleteFunc(slices.Clone(answers), func(p fact.Part) bool {
			return p.Kind == fact.PartCall || p.Kind == fact.PartResult
		})
		c.output = append(given, c.output...)
	}
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// failed returns the error of a call that came to nothing, or "".
//
// Of two instrumentations that report the call one may know the kind of the error alone,
// and repeat it as its text: the other's text reports more.
func (c *call) failed() string {
	kind := ""
	for _, n := range c.nodes {
		if !n.Failed {
			continue
		}
		if text := n.errorText(); text != "" {
			return text
		}
		kind = cmp.Or(kind, n.Error, n.ErrorType, "error")
	}
	return kind
}

// errorText is the error that a source reports, unless it has no word beyond those of its kind and of any error, such
// as "Model call failed" of a ModelCallError (Copilot CLI) or "http 400" of 400: then what is above, or another
// source, has the text. The reader of a session sees "the prompt is too long", and not that something failed.
func (n *node) errorText() string {
	kind := append(errorWords(n.ErrorType), "error", "exception", "failed", "failure", "a", "an", "the", "occurred",
		"http", "status", "code")
	for _, w := range errorWords(n.Error) {
		if !slices.Contains(kind, w) {
			return n.Error
		}
	}
	return ""
}

// errorWords are the words of a text or of a name such as RateLimitError, in lower case.
func errorWords(text string) []string {
	return strings.Fields(strings.ToLower(strings.Join(errorWord().FindAllString(text, -1), " ")))
}

var errorWord = lazy.Regexp(`\p{Lu}*[\p{Ll}\p{Lo}\p{N}]+|\p{Lu}+`)

// finished reports whether any source saw the call's end: its reason, what it used, or which response it was. A call
// that was aborted may have some of that, and did not end.
func (c *call) finished() bool {
	return slices.ContainsFunc(c.nodes, func(n *node) bool {
		return !n.Aborted && (n.Finish != "" || n.Usage != nil || n.ResponseID != "")
	})
}

// unfinished reports whether the call was not seen to end by any source: the AI SDK's span of a stream that was
// aborted ends without an error, and has neither an answer nor what it used.
func (c *call) unfinished() bool {
	return slices.ContainsFunc(c.nodes, func(n *node) bool { return n.Unfinished }) &&
		!c.finished() && c.failed() == "" &&
		len(c.output) == 0
}

// usage is what the call used: as the model's server counted it or, where nobody saw that, by the fact that knows
// most. It is never a sum: the sources of a call count the same tokens.
func (c *call) usage() *fact.Usage {
	var best *fact.Usage
	for _, n := range c.nodes {
		if n.FromServer && n.Usage != nil {
			return n.Usage
		}
		if u := n.Usage; u != nil && (best == nil || compareUsage(u, best) > 0) {
			best = u
		}
	}
	return best
}

// compareUsage orders two counts of one call: the one with more tokens is greater,
// else the one that reports more buckets apart. Of equal ones it is the same in every call:
// a session has one basis, whichever of two instrumentations reports a call first.
func compareUsage(x, y *fact.Usage) int {
	return cmp.Or(cmp.Compare(x.Tokens.Total(), y.Tokens.Total()), cmp.Compare(x.Tokens.Buckets(), y.Tokens.Buckets()),
		strings.Compare(x.Basis, y.Basis))
}

// disagreements reports what two sources of the call state differently: its model, what it used, and its answer. What
// one of them leaves out or cuts off is no difference, and neither is what two instrumentations of one process count
// apart. The row has the value of one source, the notice both: a reader of "claude-x, 900 tokens" should know that
// the proxy saw another model.
func (c *call) disagreements(report func(string)) {
	for i, x := range c.nodes {
		for _, y := range c.nodes[i+1:] {
			if !areSources(x, y) {
				continue
			}
			differ := func(what, mine, theirs string) {
				report(fmt.Sprintf("%s and %s disagree on %s of a call: %s, %s", x.source(), y.source(), what, mine, theirs))
			}
			if mine, theirs := x.modelNames(), y.modelNames(); !alike(mine, theirs) && !c.renamed(mine, theirs) {
				differ("the model", mine[0], theirs[0])
			}
			if x.Usage != nil && y.Usage != nil && !(agreeOnOutput(x.Usage, y.Usage) && agreeOnInput(x.Usage, y.Usage)) {
				differ("the tokens", counted(x.Usage), counted(y.Usage))
			}
			mine, theirs := textOf(x.Output), textOf(y.Output)
			if !alike([]string{squeeze(mine)}, []string{squeeze(theirs)}) {
				differ("the answer", fmt.Sprintf("%.40q", mine), fmt.Sprintf("%.40q", theirs))
			}
		}
	}
}

// renamed reports whether the server that was asked for one model answered with the other.
func (c *call) renamed(mine, theirs []string) bool {
	return slices.ContainsFunc(c.nodes, func(n *node) bool {
		names := n.modelNames()
		return n.FromServer && len(names) == 2 && alike(names, mine) && alike(names, theirs)
	})
}

// source names who reports a fact.
func (n *node) source() string {
	if n.Transcript {
		return n.Dialect + " transcript"
	}
	return n.Dialect
}

// areSources reports whether two facts are of different sources, one of which is no telemetry.
func areSources(x, y *node) bool {
	return x.source() != y.source() && (x.Transcript || x.FromServer || y.Transcript || y.FromServer)
}

// modelNames are the names that a fact has for the model that answered a call, and for the one that was asked. Of
// telemetry without the former there are none: a name that is asked for is often another one's, by which no source is
// contradicted. Claude Code's spans name the model of the request alone, and its server may answer with another name.
func (n *node) modelNames() (names []string) {
	if n.ResponseModel != "" {
		names = append(names, n.ResponseModel)
	} else if !n.Transcript && !n.FromServer {
		return nil
	}
	if n.Model != nil && n.Model.ModelID != "" {
		names = append(names, n.Model.ModelID)
	}
	return names
}

// alike reports whether a text of one list is within one of the other, as a name is within that with a date, or
// whether a list has none.
func alike(xs, ys []string) bool {
	return len(xs) == 0 || len(ys) == 0 || slices.ContainsFunc(xs, func(x string) bool {
		return slices.ContainsFunc(ys, func(y string) bool { return strings.Contains(x, y) || strings.Contains(y, x) })
	})
}

// counted is a count for a reader.
func counted(u *fact.Usage) string {
	return fmt.Sprintf("%d in and %d out", inputOf(u), u.Tokens.Output+u.Tokens.Reasoning)
}

// agreeOnInput is agreeOnOutput for the input, which some count without what came from a cache.
func agreeOnInput(x, y *fact.Usage) bool {
	inputs := func(u *fact.Usage) []int64 {
		return []int64{u.Tokens.Input, u.Tokens.Input + u.Tokens.CacheRead, inputOf(u)}
	}
	return slices.ContainsFunc(inputs(x), func(n int64) bool { return slices.Contains(inputs(y), n) })
}
