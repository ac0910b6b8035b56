package otlp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/ingest/replay"
	"github.com/agenttrace/agenttrace/session/sdkdata"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// Encode returns the session as spans, in order of the rows. It does not change s.
// The error is that of a session without an id, or whose rows make no tree.
func Encode(s *codec.Session) (ptrace.Traces, error) {
	td := ptrace.NewTraces()
	if err := s.CheckTree(); err != nil {
		return td, fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", cmp.Or(s.Session.Agent, "agenttrace"))
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName(semconv.ScopeName)
	e := encoder{s: s, t: s.Sorted(), out: ss.Spans(), ids: newIDs(s),
		blobs: make(map[blobKey]store.Blob, len(s.Blobs))}
	for _, b := range s.Blobs {
		e.blobs[blobKey{b.Kind, b.Digest}] = b
	}
	if err := e.run(); err != nil {
		return td, err
	}
	return td, e.messages()
}

type blobKey struct {
	kind   store.BlobKind
	digest string
}

type encoder struct {
	s     *codec.Session
	t     *session.Transcript
	out   ptrace.SpanSlice
	ids   *ids
	blobs map[blobKey]store.Blob // those that no turn has sent yet
}

// span writes one span. between are its times where no link knows them, in Unix
// nanoseconds; failed is the text of an error, or nil.
func (e *encoder) span(at place, record spans.SpanData, rows *replay.Rows, failed *string) error {
	carried, err := rows.Encode()
	if err != nil {
		return fmt.Errorf("write session %s: %w", e.s.Session.ID, err)
	}
	sp := e.out.AppendEmpty()
	sp.SetName(record.Kind())
	if m, ok := record.(*spans.ModelCall); ok {
		sp.SetName(record.Kind() + " " + m.Model.ModelID)
		sp.SetKind(ptrace.SpanKindClient)
	} else {
		sp.SetKind(ptrace.SpanKindInternal)
	}
	sp.SetTraceID(at.trace)
	sp.SetSpanID(at.span)
	sp.SetParentSpanID(at.parent)
	sp.SetStartTimestamp(stamp(at.start))
	sp.SetEndTimestamp(stamp(at.end))
	if failed != nil {
		sp.Status().SetCode(ptrace.StatusCodeError)
		sp.Status().SetMessage(*failed)
	}
	sdkdata.PutAttributes(sp.Attributes(), record.Append(nil))
	sp.Attributes().PutStr(replay.Key, carried)
	return nil
}

// stamp is a time as OTLP has it, which has none before 1970.
func stamp(nano int64) pcommon.Timestamp { return pcommon.Timestamp(max(0, nano)) }

// run writes the session's row.
func (e *encoder) run() error {
	s := &e.s.Session
	at := nano(s.UpdatedAt)
	value := func(text string) *store.Value { return &store.Value{Text: text, At: at, Rank: store.RankFinal} }
	optional := func(text *string) *store.Value {
		if text == nil {
			return nil
		}
		return value(*text)
	}
	c := store.SessionChange{
		ID: s.ID, Start: s.CreatedAt, End: s.UpdatedAt, Title: value(s.Title), Agent: value(s.Agent),
		Mode:        optional(s.Mode),
		WorkspaceID: optional(s.WorkspaceID), WorkspaceRoot: optional(s.WorkspaceRoot), Model: optional(s.ModelJSON),
		ParentID: optional(s.ParentID), ParentMessageID: optional(s.ParentMessageID),
		Permissions: value(s.PermissionsJSON), Rewinds: rewinds(asStored(e.t.Messages)),
	}
	if s.ArchivedAt != nil {
		c.Archived = &store.Value{Text: "1", At: nano(*s.ArchivedAt), Rank: store.RankFinal}
	}
	record := spans.Run{
		SessionID: s.ID, Agent: s.Agent, Title: s.Title, WorkspaceID: session.Deref(s.WorkspaceID),
		WorkspaceRoot: session.Deref(s.WorkspaceRoot),
		Mode:          session.Deref(s.Mode), CreatedAt: s.CreatedAt, ParentID: session.Deref(s.ParentID),
		ParentMessageID: session.Deref(s.ParentMessageID),
	}
	var model session.Model
	if s.ModelJSON != nil && json.Unmarshal([]byte(*s.ModelJSON), &model) == nil {
		record.Model = spans.Model(model)
	}
	if s.PermissionsJSON != "[]" {
		record.Permissions = json.RawMessage(s.PermissionsJSON)
	}
	metadata := object(s.MetadataJSON)
	for key, raw := range metadata {
		if c.Metadata == nil {
			c.Metadata = make(map[string]store.Value, len(metadata))
		}
		c.Metadata[key] = *value(string(raw))
	}
	var ended struct {
		Outcome string `json:"outcome"`
		Error   string `json:"error"`
	}
	_ = json.Unmarshal(metadata["agenttrace"], &ended) // anything else is not an outcome
	record.Outcome, record.Error = ended.Outcome, ended.Error
	delete(metadata, "agenttrace")
	if len(metadata) > 0 {
		record.Metadata, _ = json.Marshal(metadata) // of raw values that were read as JSON
	}
	var failed *string
	if ended.Outcome == semconv.EndError {
		failed = &record.Error
	}
	return e.span(e.ids.run, &record, &replay.Rows{Session: &c, Annotations: jsonl.SortedAnnotations(e.s.Annotations)},
		failed)
}

// messages writes every message, and what belongs to it.
func (e *encoder) messages() error {
	decisions := make(map[string][]*store.Decision)
	for i := range e.s.Decisions {
		d := &e.s.Decisions[i]
		decisions[d.MessageID] = append(decisions[d.MessageID], d)
	}
	all := e.t.Messages
	for i := 0; i < len(all); i++ {
		var user *session.MessageAndParts
		m := &all[i]
		if pairs(all, i) {
			user, m = m, &all[i+1]
			i++
		}
		turn, err := e.message(user, m)
		for j := range m.Parts {
			if err == nil && isTool(&m.Parts[j]) {
				err = e.tool(turn, &m.Parts[j])
			}
		}
		for _, d := range decisions[m.Message.ID] {
			if err == nil {
				err = e.decision(turn, d)
			}
		}
		delete(decisions, m.Message.ID)
		if err != nil {
			return err
		}
	}
	// Those that name no message of the session, in their order.
	for i := range e.s.Decisions {
		d := &e.s.Decisions[i]
		if _, left := decisions[d.MessageID]; left {
			if err := e.decision(e.ids.run, d); err != nil {
				return err
			}
		}
	}
	return nil
}

// pairs reports whether the message at i is a user's that the one after it answers, and
// that has no need of a span of its own.
func pairs(all []session.MessageAndParts, i int) bool {
	if i+1 >= len(all) || all[i].Message.Role != session.RoleUser || all[i+1].Message.Role != session.RoleAssistant {
		return false
	}
	if annotate(&all[i].Message) == "" || (all[i].Message.HiddenAt == nil) != (all[i+1].Message.HiddenAt == nil) {
		return false
	}
	meta := session.ParseMessageMetadata([]byte(all[i].Message.MetadataJSON))
	if meta.SystemPromptDigest != "" || meta.Trace.ToolCatalogDigest != "" {
		return false // the turn says those of the answer
	}
	return !slices.ContainsFunc(all[i].Parts, isToolOf) && compaction(&all[i+1]) == nil
}

// message writes the span of m, and of the user's message that it answers.
func (e *encoder) message(user, m *session.MessageAndParts) (place, error) {
	rows := new(replay.Rows)
	start := m.Message.CreatedAt
	if user != nil {
		start = min(start, user.Message.CreatedAt)
		rows.Messages = append(rows.Messages, messageRow(&user.Message, annotate(&user.Message)))
	}
	meta := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON))
	row := messageRow(&m.Message, annotate(&m.Message))
	if row.Metadata == "" {
		rows.TurnStats, rows.FactsOf = measured(&m.Message), m.Message.ID
		if len(meta.Trace.ModelErrors) > 0 {
			rows.TurnStats.Trace.ModelErrors = nil // the spans of the calls report them
		}
	}
	rows.Messages = append(rows.Messages, row)
	kind := semconv.SpanSessionTurn
	marker := compaction(m)
	if marker != nil {
		kind = semconv.SpanCompactionRun
	}
	at := e.ids.message(kind, m, start)
	if rows.TurnStats != nil && rows.TurnStats.Step {
		// A step among those that failed, and after them.
		at.start = at.start/1e6*1e6 + int64(len(meta.Trace.ModelErrors))
		at.end = max(at.start, at.end)
	}
	var failed *string
	if meta.Trace.EndReason == semconv.EndError || meta.Trace.Error != "" {
		failed = &meta.Trace.Error
	}
	if marker != nil {
		if err := e.span(at, e.compaction(m, marker, &meta, rows), rows, failed); err != nil {
			return at, err
		}
	} else if err := e.span(at, e.turn(user, m, &meta, rows), rows, failed); err != nil {
		return at, err
	}
	if row.Metadata == "" {
		return at, e.modelErrors(at, m, &meta, rows.TurnStats)
	}
	return at, nil
}

func messageRow(m *session.Message, metadata string) replay.Message {
	return replay.Message{ID: m.ID, Role: m.Role, CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt, Metadata: metadata}
}

// turn is the record of a message, or of two.
func (e *encoder) turn(user, m *session.MessageAndParts, meta *session.MessageMetadata, rows *replay.Rows) *spans.Turn {
	t := &spans.Turn{
		SessionID: e.s.Session.ID, Agent: cmp.Or(meta.Agent, e.s.Session.Agent), Index: meta.Trace.TurnIndex,
		Temperature:        meta.Trace.Temperature,
		SystemPromptDigest: meta.SystemPromptDigest, ToolCatalogDigest: meta.Trace.ToolCatalogDigest,
		ModelCalls: meta.Trace.ModelCalls,
		StopReason: meta.Trace.StopReason, EndReason: meta.Trace.EndReason, PendingApproval: meta.Trace.PendingApproval,
		Error:      meta.Trace.Error,
		DurationMS: meta.Trace.DurationMS, Usage: usage(meta),
	}
	if meta.Model != nil {
		t.Model = spans.Model(*meta.Model)
	}
	t.SystemPrompt = e.once(store.BlobSystemPrompt, t.SystemPromptDigest)
	t.ToolCatalog = e.once(store.BlobToolCatalog, t.ToolCatalogDigest)
	if user != nil {
		t.User = said(user, rows)
	}
	switch m.Message.Role {
	case session.RoleUser:
		t.User = said(m, rows)
	case session.RoleAssistant:
		t.Assistant = said(m, rows)
	default:
		for i := range m.Parts {
			rows.Parts = append(rows.Parts, partRow(&m.Parts[i]))
		}
	}
	return t
}

// once returns the text with the digest, the first time that it is asked for.
func (e *encoder) once(kind store.BlobKind, digest string) string {
	b, ok := e.blobs[blobKey{kind, digest}]
	if !ok {
		return ""
	}
	delete(e.blobs, blobKey{kind, digest})
	return b.Body
}

func usage(meta *session.MessageMetadata) spans.Usage {
	u := spans.Usage{Basis: meta.Trace.UsageBasis, CostUSD: meta.Trace.CostUSD}
	if raw := meta.Trace.UsageRaw; len(raw) > 0 && raw[0] == '{' {
		u.Raw = raw // the attribute is of one call's object; the rows have those of several
	}
	if n := meta.Usage; n != nil {
		u.Tokens = new(spans.Tokens(*n))
	}
	return u
}

// said is a message as a turn carries it. What of its parts a turn cannot say exactly
// goes to rows.
func said(m *session.MessageAndParts, rows *replay.Rows) spans.Message {
	out := spans.Message{ID: m.Message.ID, CreatedAt: m.Message.CreatedAt}
	if m.Message.Role == session.RoleUser {
		out.Metadata = json.RawMessage(m.Message.MetadataJSON)
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		part := spans.Part{
			ID: p.ID, Index: p.Index, Type: p.Type, ToolCallID: session.Deref(p.ToolCallID),
			ToolState: session.Deref(p.ToolState),
			CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt,
		}
		switch {
		case isTool(p):
			data, _ := session.ParseUIPart(p.DataJSON) // without a name it has none
			part.ToolName = session.ToolName(p.Type, data.ToolName)
		case isPlain(p):
			part.Data = json.RawMessage(p.DataJSON)
		default:
			rows.Parts = append(rows.Parts, partRow(p))
			continue
		}
		out.Parts = append(out.Parts, part)
	}
	return out
}

// isPlain reports that ingest makes the very row of the part in a turn.
func isPlain(p *session.Part) bool {
	const noIndex = 1 << 30
	head, err := json.Marshal(p.Type)
	return err == nil && p.ID != "" && p.ToolCallID == nil && p.ToolState == nil && p.Index >= 0 && p.Index < noIndex &&
		session.Credible(p.CreatedAt) && session.Credible(p.UpdatedAt) &&
		strings.HasPrefix(p.DataJSON, `{"type":`+string(head)) && strings.HasSuffix(p.DataJSON, "}")
}

func partRow(p *session.Part) replay.Part {
	return replay.Part{
		ID: p.ID, MessageID: p.MessageID, Index: p.Index, Type: p.Type, Data: p.DataJSON,
		ToolCallID: session.Deref(p.ToolCallID),
		ToolState:  session.Deref(p.ToolState), CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt,
	}
}

// compaction returns the part that marks one, or nil.
func compaction(m *session.MessageAndParts) *session.Part {
	for i := range m.Parts {
		if m.Parts[i].Type == session.TypeCompaction {
			return &m.Parts[i]
		}
	}
	return nil
}

func (e *encoder) compaction(m *session.MessageAndParts, marker *session.Part, meta *session.MessageMetadata,
	rows *replay.Rows) *spans.Compaction {
	c := &spans.Compaction{SessionID: e.s.Session.ID, MessageID: m.Message.ID, MessageCreatedAt: m.Message.CreatedAt,
		PartID: marker.ID, Error: meta.Trace.Error}
	if data, err := session.ParseCompaction(marker.DataJSON); err == nil {
		c.Summary, c.SummaryTokens, c.Auto, c.TailStartID = data.Summary, data.SummaryTokens, data.Auto,
			session.Deref(data.TailStartID)
	}
	var took struct {
		Trace struct {
			Messages int64 `json:"summarized_message_count"`
		} `json:"agenttrace"`
	}
	_ = json.Unmarshal([]byte(m.Message.MetadataJSON), &took) // what cannot be read was not said
	c.SummarizedMessages = took.Trace.Messages
	if u := meta.Tokens(session.RoleAssistant, true).Used; u != nil {
		c.InputTokens, c.OutputTokens = u.Input+u.CacheRead+u.CacheWrite, u.Output+u.Reasoning
	}
	for i := range m.Parts {
		if p := &m.Parts[i]; !isTool(p) {
			rows.Parts = append(rows.Parts, partRow(p))
		}
	}
	return c
}

// modelErrors writes a span for each model call that failed. The last of them may be
// in the facts of the message itself.
func (e *encoder) modelErrors(turn place, m *session.MessageAndParts, meta *session.MessageMetadata,
	whole *store.TurnStats) error {
	failed := meta.Trace.ModelErrors
	if whole.Step && whole.Trace.Error != "" && len(failed) > 0 && failed[len(failed)-1] == whole.Trace.Error {
		failed = failed[:len(failed)-1]
	}
	for i, text := range failed {
		at := e.ids.modelCall(turn, m.Message.ID, i)
		record := spans.ModelCall{SessionID: e.s.Session.ID, MessageID: m.Message.ID, Error: text}
		if meta.Model != nil {
			record.Model = spans.Model(*meta.Model)
		}
		record.Model.ModelID = cmp.Or(record.Model.ModelID, "unknown")
		rows := &replay.Rows{FactsOf: m.Message.ID, TurnStats: &store.TurnStats{Step: true,
			Trace: session.MessageTrace{Error: text}}}
		if err := e.span(at, &record, rows, &text); err != nil {
			return err
		}
	}
	return nil
}

// tool writes a tool call.
func (e *encoder) tool(turn place, p *session.Part) error {
	data, _ := session.ParseUIPart(p.DataJSON) // what cannot be read was not said
	row := partRow(p)
	values := members(p.DataJSON)
	input, output := values["input"], values["output"]
	// The span reports in words what is withheld, for null would be an answer; the row keeps
	// its own value, and is what an import reads.
	withheldInput, withheldOutput := codec.Withheld(p)
	said, _ := json.Marshal(codec.WithheldText) // a string always has JSON
	cutInput, cutOutput := input.text, output.text
	if withheldInput {
		cutInput, input.text = "", string(said)
	}
	if withheldOutput {
		cutOutput, output.text = "", string(said)
	}
	row.Cut(cutInput, input.at, cutOutput, output.at)
	ours, failure, approval := data.Trace(), session.Deref(data.ErrorText), session.Deref(data.Approval)
	record := spans.ToolCall{
		SessionID: e.s.Session.ID, ToolID: session.ToolName(p.Type, data.ToolName), CallID: session.Deref(p.ToolCallID),
		MessageID: p.MessageID, PartID: p.ID, PartIndex: new(p.Index), State: session.Deref(p.ToolState),
		Input: input.text, Output: output.text, Error: failure, ErrorType: ours.ErrorType, ACPKind: ours.Kind,
		Dynamic: p.Type == "dynamic-tool", ProviderExecuted: data.ProviderExecuted, Denied: ours.Denied,
		Truncated: ours.Truncated, OutputPath: ours.OutputPath, OutputSize: ours.OutputSize,
		OutputSHA256: ours.OutputSHA256, ApprovalID: approval.ID, ChildSessionID: ours.ChildSessionID,
		DurationMS: ours.DurationMS, StartedAt: ours.StartedAt,
	}
	var failed *string
	if record.State == session.StateOutputError {
		failed = &failure
	}
	return e.span(e.ids.part(turn, p), &record, &replay.Rows{Parts: []replay.Part{row}}, failed)
}

func (e *encoder) decision(turn place, d *store.Decision) error {
	record := spans.Permission{
		SessionID: e.s.Session.ID, ID: d.ID, ToolID: d.ToolID, CallID: d.ToolCallID,
		MessageID: d.MessageID, PartID: d.PartID,
		Pattern: d.Pattern,
		Action:  d.Action, Source: d.Source, Outcome: d.Outcome, Reply: d.Reply, Reason: d.Reason, WaitedMS: d.WaitedMS,
	}
	return e.span(e.ids.decision(turn, d), &record, &replay.Rows{Decision: d}, nil)
}

func isTool(p *session.Part) bool {
	return p.Type == "dynamic-tool" || strings.HasPrefix(p.Type, "tool-") && p.Type != "tool-"
}

func isToolOf(p session.Part) bool { return isTool(&p) }
