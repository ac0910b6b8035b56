package assemble

import (
	"cmp"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/spans"
)

// This file writes compactions: a client replaced the head of its conversation by a summary, which a model wrote. It
// is a message of its own, from which on what is before does not count as context. Several sources report it:
//
//	compaction (span)            12:00:00 … 12:00:09     one message: summary, trigger, sizes, usage
//	└─ chat → the summary
//	compact (record)             12:00:09
//
// The tokens of that call are the compaction's. The size of a context before and after is no usage.

// reportCompactions writes a message for every compaction.
func (a *assembly) reportCompactions(s *stream) {
	var summaries []*node
	var made turn // holds the model calls that compactions made
	for _, n := range s.nodes {
		if n.side != "compaction" {
			continue
		}
		if len(n.Output) > 0 {
			summaries = append(summaries, n)
		}
		if n.Kind == fact.ModelCall {
			made.nodes = append(made.nodes, n)
		}
	}
	// The calls of all compactions at once, since a record of one may be found by its request's id alone.
	calls := made.findCalls()
	slices.SortStableFunc(summaries, func(x, y *node) int { return cmp.Compare(x.Start, y.Start) })
	for _, group := range s.compactions() {
		end := reach(group)
		own := 0 // what is left belongs to the compactions that follow
		for own < len(summaries) && summaries[own].End <= end {
			own++
		}
		calls = a.reportCompaction(s, group, summaries[:own], calls)
		summaries = summaries[own:]
	}
}

// compactions gathers what reports one compaction: a span and the spans in it, and what another source reports at
// about the time. A source that reports twice reports of two: a busy agent compacts more than once in a second. The
// first report of each is of the first of them, and so on.
func (s *stream) compactions() [][]*node {
	var groups [][]*node
	for _, n := range of(s.nodes, fact.Compaction) {
		if n.Compacted != nil && n.Compacted.Since && known(groups, n.Compacted.Summary) {
			continue
		}
		at := slices.IndexFunc(groups, func(group []*node) bool {
			return slices.ContainsFunc(group, func(o *node) bool {
				return n.below(o) || n.TraceID == o.TraceID && n.Source == o.Source
			}) || n.Start <= reach(group)+near &&
				!slices.ContainsFunc(group, func(o *node) bool { return o.reporter() == n.reporter() })
		})
		if at < 0 {
			groups = append(groups, nil)
			at = len(groups) - 1
		}
		groups[at] = append(groups[at], n)
	}
	return groups
}

// known reports whether the last compaction has a summary, or one of the two has none. By the GenAI conventions all
// calls that have a compacted view of the conversation report its compaction: each would be one more.
func known(groups [][]*node, summary string) bool {
	if len(groups) == 0 {
		return false
	}
	last := ""
	for _, n := range groups[len(groups)-1] {
		if n.Compacted != nil {
			last = cmp.Or(last, n.Compacted.Summary)
		}
	}
	return last == summary || last == "" || summary == ""
}

// reach is when the last of the nodes ended. A record has no end but its start.
func reach(group []*node) int64 {
	var end int64
	for _, n := range group {
		end = max(end, n.Start, n.End)
	}
	return end
}

// reporter is what reports something by facts of its own: those of spans of a name, of records of a name, of a
// transcript. Two facts of one reporter are about two compactions.
func (n *node) reporter() string {
	name := n.Dialect + " " + n.Name
	if n.record {
		name = "record " + name
	}
	return name
}

// reportCompaction writes the message of one compaction. summaries are what it requested from a
// model for, calls those of the calls of the session's compactions, in order of time, that no earlier
// compaction made; it returns those that this one did not make either. A client that reports
// a compaction when it is over has called the model before: what ended by then is its own.
func (a *assembly) reportCompaction(s *stream, group, summaries []*node, calls []*call) []*call {
	first := group[0]
	end := reach(group)
	var c fact.Compacted
	failed := slices.ContainsFunc(group, func(n *node) bool { return n.Failed })
	var model *session.Model
	for _, n := range group {
		model = cmp.Or(model, n.Model)
		// One source has the summary, another the sizes of the context, a third who asked for it.
		if o := n.Compacted; o != nil {
			c.TokensBefore, c.TokensAfter = max(c.TokensBefore, o.TokensBefore), max(c.TokensAfter, o.TokensAfter)
			c.SummarizedMessages = max(c.SummarizedMessages, o.SummarizedMessages)
			fill(&c, o)
		}
	}
	for _, n := range summaries {
		// The answer to a request for a summary is the summary, where the client does not report it by itself.
		if c.Summary == "" {
			c.Summary = textOf(n.Output)
			model = cmp.Or(model, n.Model)
		}
	}
	if failed && c.Summary == "" && c.TokensAfter == 0 {
		for _, n := range group {
			n.place(s.id, "", "")
		}
		return calls // it left the session as it was: a message would cut the context where nothing was summarized
	}
	// Calls that failed before the one that gave the summary are the compaction's, too.
	var used *session.Usage
	for len(calls) > 0 && calls[0].start <= end {
		if u := calls[0].usage(); u != nil {
			used = session.Sum(used, &u.Tokens, session.Usage.Add)
		}
		calls = calls[1:]
	}
	for _, n := range group {
		if used == nil && n.Usage != nil {
			used = &n.Usage.Tokens // as the program's transcript states it
		}
	}
	metadata := struct {
		Compaction bool           `json:"compaction"`
		Model      *session.Model `json:"model,omitempty"`
		Usage      session.Usage  `json:"usage"`
		Trace      struct {
			SummarizedMessages int64          `json:"summarized_message_count,omitempty"`
			ContextBefore      int64          `json:"context_tokens_before,omitempty"`
			ContextAfter       int64          `json:"context_tokens_after,omitempty"`
			Usage              *session.Usage `json:"usage,omitempty"`
			DurationMS         int64          `json:"duration_ms"`
			Trigger            string         `json:"trigger,omitempty"`
		} `json:"agenttrace"`
	}{Compaction: true, Model: model, Usage: session.Usage{Input: c.TokensAfter}}
	metadata.Trace.SummarizedMessages, metadata.Trace.Trigger = c.SummarizedMessages, c.Trigger
	// The sizes of a context are no usage: that is what the calls of the model state.
	metadata.Trace.ContextBefore, metadata.Trace.ContextAfter = c.TokensBefore, c.TokensAfter
	metadata.Trace.Usage = used
	metadata.Trace.DurationMS = (end - first.Start) / 1e6
	id := spans.DeriveIDNano(spans.PrefixMessage, end, s.id, first.TraceID, first.Source, "compaction")
	w := newWriter(nil, s.id, id, session.RoleAssistant, end)
	w.MetadataJSON = marshal(metadata)
	w.add(session.TypeCompaction, "compaction", end, end, dataPart{session.TypeCompaction, session.CompactionData{
		Summary: c.Summary, Auto: c.Auto != nil && *c.Auto, SummaryTokens: c.TokensAfter,
	}})
	a.messages = append(a.messages, w.AssembledMessage)
	for _, n := range group {
		n.place(s.id, w.ID, w.Parts[0].ID)
	}
	return calls
}
