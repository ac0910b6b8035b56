package assemble

import (
	"cmp"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// tellCompactions writes a message for every compaction. Spans and records that
// overlap tell of one.
func (a *assembly) tellCompactions(s *stream) {
	var group, summaries []*node
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
	calls := made.findCalls()
	slices.SortStableFunc(summaries, func(x, y *node) int { return cmp.Compare(x.Start, y.Start) })
	flush := func() {
		if len(group) > 0 {
			calls = a.tellCompaction(s, group, summaries, calls)
		}
		group = nil
	}
	reach := int64(0)
	for _, n := range s.nodes {
		if n.Kind != fact.Compaction {
			continue
		}
		if len(group) > 0 && n.Start > reach+near || slices.ContainsFunc(group, func(o *node) bool { return o.Name == n.Name && o.record && n.record }) {
			flush()
		}
		group = append(group, n)
		reach = max(reach, n.End)
	}
	flush()
}

// tellCompaction writes the message of one compaction. summaries are what the session's
// compactions asked a model for, calls those of its calls, in order of time, that no earlier
// compaction made; it returns those that this one did not make either. A client that reports
// a compaction when it is over has called the model before: what ended by then is its own.
func (a *assembly) tellCompaction(s *stream, group, summaries []*node, calls []*call) []*call {
	first := group[0]
	end := max(first.Start, first.End)
	var c fact.Compacted
	var failed string
	var model *session.Model
	for _, n := range group {
		end = max(end, n.End)
		if n.Failed {
			failed = cmp.Or(failed, n.Error, n.ErrorType, "error")
		}
		if model == nil {
			model = n.Model
		}
		o := n.Compacted
		if o == nil {
			continue
		}
		c.Summary, c.Trigger, c.Auto = cmp.Or(c.Summary, o.Summary), cmp.Or(c.Trigger, o.Trigger), cmp.Or(c.Auto, o.Auto)
		c.TokensBefore, c.TokensAfter = max(c.TokensBefore, o.TokensBefore), max(c.TokensAfter, o.TokensAfter)
		c.SummarizedMessages = max(c.SummarizedMessages, o.SummarizedMessages)
	}
	i, _ := slices.BinarySearchFunc(summaries, first.Start, func(n *node, at int64) int { return cmp.Compare(n.Start, at) })
	for ; i < len(summaries) && summaries[i].Start <= end && c.Summary == ""; i++ {
		// What the model was asked to summarize it answered with the summary.
		if n := summaries[i]; n.End <= end {
			c.Summary = textOf(n.Output)
			model = cmp.Or(model, n.Model)
		}
	}
	if failed != "" && c.Summary == "" && c.TokensAfter == 0 {
		for _, n := range group {
			n.place(s.id, "", "")
		}
		return calls // it left the session as it was
	}
	var used *session.Usage
	for len(calls) > 0 && calls[0].start <= end {
		if u := calls[0].usage(); u != nil {
			sum := u.Tokens
			if used != nil {
				sum = sum.Add(*used)
			}
			used = &sum
		}
		calls = calls[1:]
	}
	for _, n := range group {
		if used == nil && n.Usage != nil {
			used = &n.Usage.Tokens // as the program's transcript states it
		}
	}
	var m store.AssembledMessage
	m.ID = spans.DeriveIDNano(spans.PrefixMessage, end, s.id, first.TraceID, first.Source, "compaction")
	m.SessionID, m.Role, m.CreatedAt, m.UpdatedAt = s.id, session.RoleAssistant, end/1e6, end/1e6
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
	metadata.Trace.ContextBefore, metadata.Trace.ContextAfter, metadata.Trace.Usage = c.TokensBefore, c.TokensAfter, used
	metadata.Trace.DurationMS = (end - first.Start) / 1e6
	raw, _ := marshal(metadata)
	m.MetadataJSON = string(raw)
	w := writer{AssembledMessage: m, seen: make(map[string]int)}
	w.add(session.TypeCompaction, "compaction", end, end, dataPart{session.TypeCompaction, session.CompactionData{
		Summary: c.Summary, Auto: c.Auto != nil && *c.Auto, SummaryTokens: c.TokensAfter,
	}})
	a.messages = append(a.messages, w.AssembledMessage)
	for _, n := range group {
		n.place(s.id, w.ID, w.Parts[0].ID)
	}
	return calls
}
