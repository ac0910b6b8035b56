package ingest

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
)

// A program's transcript and its telemetry report one run: the transcript has all the content, telemetry the times, the
// costs and what the transcript leaves out. To make one session of them, the rows that a transcript was read into
// become facts like those of any log record. Ids that both sources have tie them: of the turn, the request, the
// response and the tool call; where there are none, times and texts do.

// Transcript stores a session that was read from the transcript of its program, and
// merges it with what telemetry reports of the session. Storing the same transcript
// again, or one that has grown, adds what is new. It does not change in.
func (i *Ingester) Transcript(ctx context.Context, in *store.Imported) (Report, error) {
	b := i.builder()
	facts := transcriptFacts(in.Transcript)
	for k := range facts {
		if b.redaction.Redactor != nil {
			b.redaction.fact(&facts[k])
		}
		b.batch.Observations = append(b.batch.Observations, transcriptObservation(&facts[k]))
	}
	b.batch.Blobs = append(b.batch.Blobs, in.Blobs...)
	return i.apply(ctx, b, Report{Records: len(facts), Accepted: len(facts)})
}

// adoptTranscript implements [store.Batch]'s Adopt. The rows were redacted when they were stored.
func adoptTranscript(in *store.Imported) []store.Observation {
	facts := transcriptFacts(in.Transcript)
	all := make([]store.Observation, len(facts))
	for i := range facts {
		all[i] = transcriptObservation(&facts[i])
	}
	return all
}

// Seen adds to the session of the id what a proxy saw of its model calls, as the session that this came to has it: when
// each was made, of which model, what it used, which response it was, and the instructions and tools it was made with.
// The contents are those of the other sources. With beside, the calls are none of the conversation. The sub-agent is the
// one within that session that made them, "" if none did.
func (i *Ingester) Seen(ctx context.Context, id, subagent string, in *store.Imported, beside bool) (Report, error) {
	b := i.builder()
	about := make(map[string]session.MessageMetadata)
	for k := range in.Messages {
		m := &in.Messages[k].Message
		about[m.ID] = session.ParseMessageMetadata([]byte(m.MetadataJSON))
	}
	for k := range in.SpanRefs {
		l := &in.SpanRefs[k]
		if l.TurnStats == nil || !l.TurnStats.Step {
			continue
		}
		trace, message := &l.TurnStats.Trace, about[l.MessageID]
		if len(trace.ModelErrors) > 0 || l.Error && trace.ResponseID == "" {
			continue // a proxy does not know when an attempt that failed was over: the client reports it
		}
		f := fact.Fact{
			Kind: fact.ModelCall, Dialect: "proxy", FromServer: true, Name: l.Kind, Service: "proxy",
			TraceID: l.TraceID, SpanID: l.SpanID, Source: l.SpanID, Start: l.StartNano, End: l.EndNano,
			Session: id, SubagentID: subagent, SessionKey: "proxy", Model: l.TurnStats.Model, ResponseID: trace.ResponseID,
			ResponseModel: trace.ResponseModel, Finish: trace.StopReason, Failed: l.Error, Error: trace.Error,
			SystemPromptDigest: cmp.Or(l.TurnStats.SystemPromptDigest, message.SystemPromptDigest),
			ToolCatalogDigest:  message.Trace.ToolCatalogDigest,
		}
		if l.TurnStats.Usage != nil {
			f.Usage = &fact.Usage{Tokens: *l.TurnStats.Usage, Basis: trace.UsageBasis, Raw: trace.UsageRaw}
		}
		if beside {
			f.Purpose = "side"
		}
		b.batch.Observations = append(b.batch.Observations, observation(&f, nil))
	}
	if len(b.batch.Observations) == 0 {
		return Report{}, nil
	}
	b.batch.Blobs = append(b.batch.Blobs, in.Blobs...)
	n := len(b.batch.Observations)
	return i.apply(ctx, b, Report{Spans: n, Accepted: n})
}

// StartedBy reports that what another session did started a session, which began at a time in Unix milliseconds.
func (i *Ingester) StartedBy(ctx context.Context, id, parent string, began int64) (Report, error) {
	about := &fact.SessionAttrs{ParentSession: parent}
	return i.ofRun(ctx, fact.Fact{Name: "run.session", Session: id, SessionAttrs: about}, parent, began)
}

// OfTrace reports that a trace in which nothing names a session is of the session with the id. The trace's first span
// began at a time in Unix milliseconds.
func (i *Ingester) OfTrace(ctx context.Context, id, trace string, began int64) (Report, error) {
	return i.ofRun(ctx, fact.Fact{Name: "run.trace", Session: id, TraceID: trace}, trace, began)
}

// ofRun adds a fact that agenttrace run has of a session and no source reports. What it is about identifies it.
func (i *Ingester) ofRun(ctx context.Context, f fact.Fact, about string, began int64) (Report, error) {
	f.Kind, f.Dialect, f.Transcript, f.SessionKey = fact.Session, "run", true, "run"
	f.Source = fact.RecordPrefix + "run-" + digest(f.Session, about)[:32]
	f.Start, f.End = began*1e6, began*1e6
	b := i.builder()
	b.batch.Observations = append(b.batch.Observations, transcriptObservation(&f))
	return i.apply(ctx, b, Report{Records: 1, Accepted: 1})
}

// transcriptObservation is the fact as the store keeps it. Windows begin where telemetry has a turn open, and its
// record of a prompt may come a moment before the transcript's or after it. For both to be in one window, a transcript
// opens none, and its prompts have the time at which they were answered there.
func transcriptObservation(f *fact.Fact) store.Observation {
	o := observation(f, nil)
	o.Opens = store.Continues
	if f.Kind == fact.Prompt {
		o.Start = o.End
	}
	return o
}

// transcriptFacts are what the rows of a transcript report. Times of rows are in milliseconds.
func transcriptFacts(t *session.Transcript) []fact.Fact {
	about := session.TranscriptTraceOf(t.Session.MetadataJSON)
	x := transcriptReader{row: t.Session.ID, session: t.Session.ID, agent: cmp.Or(about.Transcript, t.Session.Agent)}
	if about.SubagentOf != "" && fact.SubagentSession(about.SubagentOf, about.SubagentID) == x.row {
		x.session, x.subagent = about.SubagentOf, about
	}
	x.about(&t.Session)
	for i := range t.Messages {
		m := &t.Messages[i]
		var metadata session.MessageMetadata
		x.copied = about.Forked && t.Session.Copied(m.Message.CreatedAt)
		_ = json.Unmarshal([]byte(m.Message.MetadataJSON), &metadata) // what is not of the right type is not used
		switch {
		case m.Message.Role == session.RoleUser:
			x.message(fact.Prompt, m, &metadata, answeredAt(t.Messages[i+1:]))
		case m.Message.Role != session.RoleAssistant:
			x.message(fact.Note, m, &metadata, answeredAt(t.Messages[i+1:]))
		case len(m.Parts) == 1 && m.Parts[0].Type == session.TypeCompaction:
			x.compaction(m, &metadata)
		default:
			x.answer(m, &metadata)
		}
	}
	return x.facts
}

// answeredAt is when the first of the messages was begun, if the assistant wrote it, in
// Unix milliseconds, and otherwise 0.
func answeredAt(after []session.MessageAndParts) int64 {
	for i := range after {
		switch m := &after[i].Message; m.Role {
		case session.RoleAssistant:
			return m.CreatedAt
		case session.RoleUser:
			return 0
		}
	}
	return 0
}

type transcriptReader struct {
	row string // the id of the session's row
	// session is the session that the user talks to, subagent what is known of its sub-agent whose session the row is.
	session, agent string
	subagent       session.TranscriptTrace
	facts          []fact.Fact
	// copied reports that the message is one that a fork copied: what it used counts in the parent only.
	copied bool
}

// add adds a fact of the row with the id.
func (x *transcriptReader) add(kind fact.Kind, id string, from, to int64) *fact.Fact {
	x.facts = append(x.facts, fact.Fact{
		Kind: kind, Dialect: x.agent, Transcript: true, Name: "transcript." + string(kind), Service: x.agent,
		Source: fact.RecordPrefix + "transcript-" + digest(x.row, id)[:32], Session: x.session,
		SessionKey: "transcript", SubagentID: x.subagent.SubagentID, ParentSubagentID: x.subagent.ParentSubagentID,
		Start: from * 1e6, End: max(from, to) * 1e6,
	})
	return &x.facts[len(x.facts)-1]
}

// about adds what the session's row reports. Keys of the metadata that are the program's own become the session's.
func (x *transcriptReader) about(row *session.Session) {
	f := x.add(fact.Session, "session", row.CreatedAt, row.UpdatedAt)
	if x.subagent.SubagentID == "" {
		f.End = f.Start // only what is reported of a sub-agent reaches across the turns above it
	}
	f.SessionAttrs = &fact.SessionAttrs{
		WorkspaceRoot: session.Deref(row.WorkspaceRoot), WorkspaceID: session.Deref(row.WorkspaceID),
		Mode: session.Deref(row.Mode),
	}
	if f.StartedBy = x.subagent.CallID; x.subagent.SubagentID == "" { // else its id identifies it
		f.SessionAttrs.ParentSession = session.Deref(row.ParentID)
	}
	if row.Agent != x.agent {
		f.Agent = row.Agent
	}
	if row.Title != session.Untitled {
		f.SessionAttrs.Title = row.Title
	}
	var model session.Model
	if row.ModelJSON != nil && json.Unmarshal([]byte(*row.ModelJSON), &model) == nil && model.ModelID != "" {
		f.Model = &model
	}
	var own map[string]json.RawMessage
	if json.Unmarshal([]byte(row.MetadataJSON), &own) == nil {
		delete(own, "agenttrace")
		if len(own) > 0 {
			f.Extra, _ = json.Marshal(own)
		}
	}
}

// message adds what somebody but the model wrote. A prompt ends when it is answered.
func (x *transcriptReader) message(kind fact.Kind, m *session.MessageAndParts, about *session.MessageMetadata,
	answered int64) {
	f := x.add(kind, m.Message.ID, m.Message.CreatedAt, answered)
	f.TurnID = about.Trace.TurnID
	f.HiddenAt = m.Message.HiddenAt
	f.Input = []fact.Message{{Role: m.Message.Role, ID: about.Trace.SourceID, Parts: spokenParts(m.Parts)}}
}

func (x *transcriptReader) compaction(m *session.MessageAndParts, about *session.MessageMetadata) {
	var sizes struct {
		Trace struct {
			Before  int64  `json:"context_tokens_before"`
			After   int64  `json:"context_tokens_after"`
			Trigger string `json:"trigger"`
		} `json:"agenttrace"`
	}
	_ = json.Unmarshal([]byte(m.Message.MetadataJSON), &sizes)
	data, err := session.ParseCompaction(m.Parts[0].DataJSON)
	if err != nil {
		return
	}
	f := x.add(fact.Compaction, m.Message.ID, m.Message.CreatedAt, 0)
	f.TurnID = about.Trace.TurnID
	f.Compacted = &fact.Compacted{
		Summary: data.Summary, Auto: &data.Auto, Trigger: sizes.Trace.Trigger, TokensBefore: sizes.Trace.Before,
		TokensAfter: sizes.Trace.After,
	}
	if used := about.Tokens(session.RoleAssistant, true).Used; used != nil && !x.copied {
		f.Usage = &fact.Usage{Tokens: *used}
	}
}

// answer adds the model calls and tool calls of a turn's answer. The last call states how the turn ended.
func (x *transcriptReader) answer(m *session.MessageAndParts, about *session.MessageMetadata) {
	steps := splitSteps(m.Parts)
	if n := len(about.Trace.Steps); n > 0 && len(steps) == n+1 && areTools(steps[0]) { // of no call: the client made them
		for k := range steps[0] {
			if p, tool := modelPart(&steps[0][k]); tool != nil {
				x.tool(&steps[0][k], p, tool, about.Trace.TurnID)
			}
		}
		steps = steps[1:]
	}
	for i, parts := range steps {
		var step session.Step
		if i < len(about.Trace.Steps) {
			step = about.Trace.Steps[i]
		}
		at := cmp.Or(step.StartedAt, parts[0].CreatedAt)
		f := x.add(fact.ModelCall, parts[0].ID, at, 0)
		f.TurnID, f.RequestID, f.ResponseID = about.Trace.TurnID, step.RequestID, step.ResponseID
		f.Finish, f.HiddenAt = step.StopReason, m.Message.HiddenAt
		f.SystemPromptDigest, f.ToolCatalogDigest = about.SystemPromptDigest, about.Trace.ToolCatalogDigest
		if f.Model = step.Model; f.Model == nil {
			f.Model = about.Model
		}
		if step.Usage != nil {
			f.Usage = &fact.Usage{Tokens: *step.Usage, Basis: about.Trace.UsageBasis}
		} else if len(about.Trace.Steps) == 0 && i == 0 && about.Usage != nil {
			f.Usage = &fact.Usage{Tokens: *about.Usage, Basis: about.Trace.UsageBasis}
		}
		if i == 0 {
			f.CostUSD = about.Trace.CostUSD
		}
		if x.copied {
			f.Usage, f.CostUSD = nil, nil
		}
		if i == len(steps)-1 {
			f.Finish = cmp.Or(f.Finish, about.Trace.StopReason)
			if f.Finish == "" && about.Trace.EndReason == "finish" {
				f.Finish = "stop"
			}
			f.Aborted = about.Trace.EndReason == "abort"
			f.Failed = about.Trace.EndReason == "error"
			f.Error = about.Trace.Error
		}
		call := len(x.facts) - 1
		for k := range parts {
			p, tool := modelPart(&parts[k])
			if p != nil {
				x.facts[call].Output = append(x.facts[call].Output, *p)
			}
			if tool != nil {
				x.tool(&parts[k], p, tool, about.Trace.TurnID)
			}
		}
	}
}

// tool adds the execution of a tool call.
func (x *transcriptReader) tool(row *session.Part, asked *fact.Part, data *session.UIPart, turn string) {
	f := x.add(fact.ToolCall, row.ID+" call", row.CreatedAt, row.UpdatedAt)
	// A tool runs after the model asked for it, which telemetry may time within the same millisecond.
	f.Start += 1e6 - 1
	f.End = max(f.Start, f.End)
	f.TurnID, f.CallID = turn, data.ToolCallID
	trace := &data.ToolMetadata.Trace
	f.Tool = &fact.Tool{Name: asked.Name, Input: data.Input, DurationMS: trace.DurationMS, Denied: trace.Denied}
	f.ErrorType, f.ChildSession = trace.ErrorType, trace.ChildSessionID
	switch data.State {
	case session.StateOutputAvailable:
		f.Tool.Output, f.Tool.Succeeded = data.Output, true
		f.Tool.Truncated, f.Tool.OutputSize, f.Tool.OutputSHA256 = trace.Truncated, trace.OutputSize, trace.OutputSHA256
	case session.StateOutputError:
		f.Failed, f.Error = true, session.Deref(data.ErrorText)
	case session.StateOutputDenied:
		f.Tool.Denied, f.Failed = true, true
		if data.Approval != nil {
			f.Error = data.Approval.Reason
		}
	}
}

// areTools reports whether all parts are tool calls.
func areTools(parts []session.Part) bool {
	return !slices.ContainsFunc(parts, func(p session.Part) bool { return !session.IsToolType(p.Type) })
}

// splitSteps cuts the parts of an answer where a model call begins.
func splitSteps(parts []session.Part) [][]session.Part {
	var steps [][]session.Part
	for i := range parts {
		if parts[i].Type == "step-start" || len(steps) == 0 {
			steps = append(steps, nil)
		}
		last := len(steps) - 1
		steps[last] = append(steps[last], parts[i])
	}
	return steps
}

// modelPart reads a part of an answer, and the tool call that it is. Both are nil for
// what bounds steps, and for the error of a turn, which is a fact of its own.
func modelPart(row *session.Part) (*fact.Part, *session.UIPart) {
	p, err := session.ParseUIPart(row.DataJSON)
	if err != nil {
		return nil, nil
	}
	switch {
	case p.Type == "text":
		return &fact.Part{Kind: fact.PartText, Text: session.Deref(p.Text)}, nil
	case p.Type == "reasoning":
		return &fact.Part{Kind: fact.PartReasoning, Text: session.Deref(p.Text)}, nil
	case p.Type == "file":
		return &fact.Part{Kind: fact.PartFile, MediaType: p.MediaType, URL: session.Deref(p.URL), Name: p.Filename,
			Omitted: p.Trace().Size}, nil
	case p.Type == session.TypeContext:
		var data struct {
			Text string `json:"text"`
		}
		_ = json.Unmarshal(p.Data, &data) // another value has no text
		return &fact.Part{Kind: fact.PartContext, Text: data.Text}, nil
	case p.Type == "step-start", p.Type == session.TypeError:
		return nil, nil
	case session.IsToolType(p.Type):
		return &fact.Part{Kind: fact.PartCall, CallID: p.ToolCallID, Name: session.ToolName(p.Type, p.ToolName),
			Input: p.Input}, &p
	}
	return &fact.Part{Kind: fact.PartOther, Data: p.Data}, nil
}

// spokenParts are the parts of a message that holds no calls.
func spokenParts(rows []session.Part) []fact.Part {
	var parts []fact.Part
	for i := range rows {
		if p, tool := modelPart(&rows[i]); p != nil && tool == nil {
			parts = append(parts, *p)
		}
	}
	return parts
}
