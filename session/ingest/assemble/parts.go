package assemble

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// This file writes parts as the AI SDK has them, and settles what became of a call of a tool. Its sources may
// contradict each other, each of them for a reason: the span of the agent's library ends well though the tool failed,
// a rule denies what a person then allows, a record has the size of an output alone. The first of these that holds is
// the call's state:
//
//	denied and not executed → output-error, "denied"
//	failed by any source    → output-error
//	waits for an approval   → approval-requested, or approval-responded when it was given
//	output, or success      → output-available
//	nothing of this         → input-available: it was requested, and may still run

// dataPart is a data part as the AI SDK has it. [session.UIPart] has the others.
type dataPart struct {
	Type string `json:"type"`
	Data any    `json:"data"`
}

// reportPart writes a part that is no tool's.
func (w *writer) reportPart(p *fact.Part, key string, from, to int64) {
	switch p.Kind {
	case fact.PartText, fact.PartReasoning:
		if p.Text == "" {
			return
		}
		if w.add(p.Kind, key, from, to, session.UIPart{Type: p.Kind, Text: &p.Text}); p.Kind == fact.PartText {
			w.texts = append(w.texts, p.Text)
		}
	case fact.PartFile:
		file := session.UIPart{
			Type: "file", MediaType: cmp.Or(p.MediaType, "application/octet-stream"), URL: &p.URL, Filename: p.Name,
		}
		if p.Omitted > 0 {
			file.ProviderMetadata = map[string]json.RawMessage{
				"agenttrace": fmt.Appendf(nil, `{"truncated":true,"size":%d}`, p.Omitted)}
		}
		w.add("file", key, from, to, file)
	case fact.PartContext:
		w.add(session.TypeContext, key, from, to, dataPart{session.TypeContext, map[string]string{"text": p.Text}})
	case fact.PartSource:
		w.add("source-url", key, from, to, session.UIPart{Type: "source-url", SourceID: new(cmp.Or(p.CallID, p.URL)),
			URL: &p.URL, Title: p.Name})
	case fact.PartCall, fact.PartResult:
		// In what the user asked they are the history of a client that repeats it: the turn that made the call has them.
		if w.Role != session.RoleAssistant {
			return
		}
		w.reportTool(&tool{start: from, end: to}, p)
	default:
		name := "data-part"
		var typed struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(p.Data, &typed) == nil && typed.Type != "" &&
			strings.Trim(strings.ToLower(typed.Type), "abcdefghijklmnopqrstuvwxyz0123456789_-") == "" {
			name = "data-" + typed.Type
		}
		if name == session.TypeCompaction { // one that this store did not make must not move where the context begins
			name = "data-compacted"
		}
		var data any = json.RawMessage(p.Data)
		if len(p.Data) == 0 {
			data = p.Text
		}
		w.add(name, key, from, to, dataPart{name, data})
	}
}

// reportTool writes the part of a tool call: as the model requested it, where asked is set, and as it was executed.
func (w *writer) reportTool(x *tool, asked *fact.Part) {
	if x.used {
		return
	}
	x.used = true
	p, id, name := w.requested(x, asked)
	meta := &p.ToolMetadata.Trace
	var o outcome
	for _, n := range x.nodes {
		o.addExecution(n, &p)
		meta.ChildSessionID = cmp.Or(n.child, meta.ChildSessionID)
	}
	x.disagreements(meta)
	for _, n := range x.decisions {
		o.addDecision(n)
	}
	if r := w.result(id, name); r != nil {
		o.addResult(r, &p)
	}
	w.seen["result "+resultKey(id, name)]++
	if i := slices.IndexFunc(x.nodes, func(n *node) bool { return !n.record }); meta.DurationMS == nil && i >= 0 {
		d := max(0, x.nodes[i].End-x.nodes[i].Start) / 1e6
		meta.DurationMS = &d
	}
	o.setState(&p)
	meta.InputWithheld = p.Input == nil
	if p.Input == nil {
		p.Input = json.RawMessage("null")
	}
	row := w.add(p.Type, "tool"+p.ToolCallID, x.start, x.end, p)
	row.ToolCallID, row.ToolState = &p.ToolCallID, &p.State
	x.id = p.ToolCallID
	for _, n := range slices.Concat(x.nodes, x.decisions) {
		n.place(w.SessionID, w.ID, row.ID)
	}
}

// requested begins the part with what the model requested, or else with what the execution was given. id is the
// call's own, "" where no source reports one. The AI SDK has the tool's name in the type of the part, and another
// type for a call whose tool is not known.
func (w *writer) requested(x *tool, asked *fact.Part) (p session.UIPart, id, name string) {
	p.ToolCallID, name = x.id, x.name
	if asked != nil {
		p.ToolCallID, name = cmp.Or(asked.CallID, x.id), cmp.Or(asked.Name, name)
		p.Input, p.ProviderExecuted = asked.Input, asked.Provider
	}
	if id = p.ToolCallID; id == "" {
		p.ToolCallID = w.nameless(x, name)
	}
	if p.Type = "tool-" + name; name == "" {
		p.Type, p.ToolName = "dynamic-tool", "unknown"
	}
	if p.Input == nil {
		p.Input = x.input()
	}
	return p, id, name
}

// outcome is what the sources of a tool call report of its end, each of them one of many.
type outcome struct {
	failed, aborted, succeeded, denied bool   // by any source
	executed                           bool   // a source reports that it ran, and did not fail
	pending, answered                  bool   // waits for an approval, or has one
	text                               string // of the error, or of the reason to deny it
}

// addExecution adds what a span or a record of the execution reports.
func (o *outcome) addExecution(n *node, p *session.UIPart) {
	t, meta := cmp.Or(n.Tool, new(fact.Tool)), &p.ToolMetadata.Trace
	if p.Output == nil {
		p.Output = t.Output
	}
	if n.Failed || n.Error != "" {
		o.failed, o.text = true, cmp.Or(o.text, n.Error)
		meta.ErrorType = cmp.Or(meta.ErrorType, n.ErrorType)
	}
	if n.Aborted {
		o.failed, o.aborted = true, true
	}
	o.denied = o.denied || t.Denied
	o.executed = o.executed || (t.Output != nil || t.Succeeded) && !n.Failed && !t.Denied
	// A span that has ended without an error reports that the tool went well, also where it withholds the output. A
	// record does not: it may be that of the start.
	o.succeeded = o.succeeded || t.Succeeded || t.Output != nil || !n.record && !n.Failed && !n.Unfinished
	meta.Truncated = meta.Truncated || t.Truncated
	meta.OutputSize = max(meta.OutputSize, t.OutputSize)
	meta.OutputSHA256 = cmp.Or(meta.OutputSHA256, t.OutputSHA256)
	meta.DurationMS = cmp.Or(meta.DurationMS, t.DurationMS)
	for _, problem := range n.Problems {
		meta.Problems = addNew(meta.Problems, problem, maxProblems)
	}
}

// disagreements notes two sources of which one reports that the call failed and the other one that it did not. The
// part has the error, and the notice names both.
func (x *tool) disagreements(meta *session.ToolTrace) {
	failed := func(n *node) bool { return n.Failed || n.Aborted || n.Tool != nil && n.Tool.Denied }
	for i, a := range x.nodes {
		for _, b := range x.nodes[i+1:] {
			if failed(b) {
				a, b = b, a
			}
			if !areSources(a, b) || !failed(a) || failed(b) || b.Tool == nil || !b.Tool.Succeeded {
				continue
			}
			meta.Problems = append(meta.Problems, fmt.Sprintf("%s reports that the call failed, %s that it succeeded",
				a.source(), b.source()))
			return
		}
	}
}

// addDecision adds a decision. A call that ran was not denied, whatever was decided before:
// a rule may have denied it and a person allowed it.
func (o *outcome) addDecision(n *node) {
	d := n.Decision
	if d == nil {
		return
	}
	if d.Outcome == "denied" && !o.executed {
		o.denied, o.text = true, cmp.Or(o.text, d.Reason)
	}
	// The decisions are in order of time: a question, then its answer. What a rule allowed nobody was asked about.
	o.answered = d.Outcome == "allowed" && (o.answered || o.pending || d.Reply != "")
	o.pending = d.Outcome == "pending"
}

// addResult adds what a later request gave the model as the call's result. The output of the execution counts before
// it: a client may shorten for the model what the tool wrote.
func (o *outcome) addResult(r *fact.Part, p *session.UIPart) {
	if p.Output == nil && r.Error == "" {
		p.Output = r.Output
	}
	o.succeeded = o.succeeded || r.Output != nil && r.Error == ""
	if r.Error != "" {
		o.failed, o.text = true, cmp.Or(o.text, r.Error)
	}
	// What the model was given instead of an output: of a span that has the status of an error alone it is the only
	// text.
	if o.failed && o.text == "" && len(r.Output) > 0 && r.Output[0] == '"' {
		o.text = plainText(r.Output)
	}
	o.denied = o.denied || r.Denied && !o.executed
}

// setState sets the part's state, and its output or error. An error takes precedence
// wherever it is reported: often only one of several sources reports it.
func (o *outcome) setState(p *session.UIPart) {
	meta, text := &p.ToolMetadata.Trace, o.text
	switch {
	case o.denied:
		p.State, meta.Denied = session.StateOutputError, true
		text = cmp.Or(text, "denied")
	case o.failed:
		p.State = session.StateOutputError
		if text = cmp.Or(text, meta.ErrorType); text == "" && o.aborted {
			text = "aborted"
		}
		text = cmp.Or(text, "the tool failed")
	case o.pending && !o.executed && p.Output == nil:
		p.State = session.StateApprovalRequested
		p.Approval = &session.Approval{ID: p.ToolCallID}
	case o.answered && !o.executed && p.Output == nil && !o.succeeded:
		p.State = session.StateApprovalResponded
		p.Approval = &session.Approval{ID: p.ToolCallID, Approved: new(true)}
	case p.Output != nil || o.succeeded:
		// The AI SDK reads no part in this state without an output. Withheld distinguishes one that was null from one that
		// no source reports.
		p.State = session.StateOutputAvailable
		if meta.Withheld = p.Output == nil; meta.Withheld {
			p.Output = json.RawMessage("null")
		}
	default:
		p.State = session.StateInputAvailable
	}
	// In this state a part has an error and no output. What the tool wrote before it failed is kept beside.
	if p.State == session.StateOutputError {
		if p.Output != nil && string(p.Output) != "null" && !repeats(p.Output, text) {
			meta.PartialOutput = plainText(p.Output)
		}
		p.Output, p.ErrorText = nil, &text
	}
}

// nameless makes the id of a call to which no source gave one, of what reports it first, so that another call of the
// turn that arrives later does not change it.
func (w *writer) nameless(x *tool, name string) string {
	key := name
	if len(x.nodes) > 0 {
		key = x.nodes[0].TraceID + x.nodes[0].Source
	}
	parts := []string{w.ID, key}
	if w.seen["call "+key]++; w.seen["call "+key] > 1 {
		parts = append(parts, strconv.Itoa(w.seen["call "+key]))
	}
	return spans.DeriveIDNano("call_", x.start, parts...)
}

// plainText is the text of a JSON string, or other JSON as it is: an error is a text, whatever its source makes of
// it.
func plainText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// repeats reports whether the output is the error's text, repeated for the model: as a text,
// or as an object with the error's name and stack, as VoltAgent writes it.
func repeats(output json.RawMessage, text string) bool {
	var s string
	var o struct {
		Error   bool   `json:"error"`
		Message string `json:"message"`
	}
	if json.Unmarshal(output, &o) == nil && o.Error && o.Message == text {
		return true
	}
	return json.Unmarshal(output, &s) == nil && (strings.Contains(s, text) || strings.Contains(text, s))
}

// marshal writes JSON as it is meant to be read: without escapes for HTML. Raw values in it are valid, for they have
// come out of the JSON of a fact.
func marshal(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n")
}

// decide writes what was decided on the turn's tool calls. A span and a record may report one decision: the one that
// reports more takes precedence, completed by the other. A question that a person answered is one decision, not two.
func (a *assembly) decide(w *writer) {
	// The best has the outcome and the time; what it leaves out is taken from the others.
	for _, x := range w.tools {
		var best *node
		for _, n := range x.decisions {
			if n.Decision != nil && (best == nil || weight(n.Decision) > weight(best.Decision)) {
				best = n
			}
		}
		if best == nil {
			a.refuse(w, x)
			continue
		}
		d := *best.Decision
		for _, n := range x.decisions {
			if o := n.Decision; o != nil {
				d.Pattern, d.Reason = cmp.Or(d.Pattern, o.Pattern), cmp.Or(d.Reason, o.Reason)
				d.Source, d.Reply = cmp.Or(d.Source, o.Source), cmp.Or(d.Reply, o.Reply)
				d.WaitedMS = cmp.Or(d.WaitedMS, o.WaitedMS)
			}
		}
		id := a.reportDecision(w, x, best, d)
		for _, n := range x.decisions {
			n.attribution.DecisionID = id
		}
	}
}

// refuse writes the decision on a call of which only the tool's own facts report that it was refused, so that all
// refused calls are found among the decisions.
func (a *assembly) refuse(w *writer, x *tool) {
	i := slices.IndexFunc(x.nodes, func(n *node) bool { return n.Tool != nil && n.Tool.Denied })
	if i >= 0 {
		n := x.nodes[i]
		n.attribution.DecisionID = a.reportDecision(w, x, n,
			fact.Decision{Action: "deny", Outcome: "denied", Reason: n.Error})
	}
}

// reportDecision writes a decision on a call that a fact reports, and returns its id. It is written when the parts
// are, for it refers to one.
func (a *assembly) reportDecision(w *writer, x *tool, n *node, d fact.Decision) (id string) {
	row := store.Decision{
		SessionID: w.SessionID, MessageID: w.ID, PartID: n.attribution.PartID,
		ToolCallID: x.id, ToolID: cmp.Or(d.ToolName, x.name),
		Pattern: d.Pattern, Action: d.Action, Source: d.Source, Outcome: d.Outcome, Reply: d.Reply, Reason: d.Reason,
		WaitedMS: d.WaitedMS, DecidedAt: n.End / 1e6, TraceID: n.TraceID, SpanID: n.SpanID,
	}
	row.ID = spans.DeriveIDNano(spans.PrefixPermission, n.End, w.ID, row.PartID, row.ToolCallID)
	a.decisions = append(a.decisions, row)
	return row.ID
}

// weight orders what is reported of one decision: an answer before the question, a person's before a rule's, and one
// whose source is named before one whose is not.
func weight(d *fact.Decision) int {
	n := 0
	if d.Outcome == "allowed" || d.Outcome == "denied" {
		n += 4
	}
	if d.Reply != "" {
		n += 2
	}
	if d.Source != "" {
		n++
	}
	return n
}
