package formats

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// TurnSpans returns the session as spans, in order of the rows, the run last. Its scores are events of the spans that
// they are of. With a wanted there are only the spans for which it returns true, without those that stand for a span or
// a record of another program; the message of a run is "", and each span has a duration, if only of a nanosecond. It
// does not change s. The error is that of a session without an id, or whose rows make no tree.
func TurnSpans(s *codec.Session,
	wanted func(name, messageID, spanID string) bool) (td ptrace.Traces, err error) {
	defer wrapWriting(s, &err)
	td = ptrace.NewTraces()
	if err := s.CheckTree(); err != nil {
		return td, err
	}
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", cmp.Or(s.Session.Agent, "agenttrace"))
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName(semconv.ScopeName)
	e := otlpEncoder{s: s, t: s.Sorted(), wanted: wanted, out: ss.Spans(), ids: otlpNewIDs(s),
		blobs: slices.Clone(s.Blobs), facts: make(map[string]bool), of: make(map[string]ptrace.Span)}
	e.messages()
	e.others()
	e.scores(e.run())
	return td, e.err
}

type otlpEncoder struct {
	s   *codec.Session
	t   *session.Transcript
	out ptrace.SpanSlice

	wanted func(name, messageID, spanID string) bool // nil for all spans

	ids   *otlpIds
	blobs []store.Blob           // those that no turn has sent yet
	facts map[string]bool        // messages whose metadata is what their spans measured
	of    map[string]ptrace.Span // the spans of messages, the last call of a model or else the turn, and of tool calls
	err   error
}

// write writes the span of a record of ours, or where record is nil one that a store takes for a span of the kind that
// ref has. failed is the text of an error. A span that is known has the status that it had.
func (e *otlpEncoder) write(at otlpPlace, record spans.SpanData, rows ingest.EmbeddedRows,
	failed *string) ptrace.Span {
	var described ingest.EmbeddedSpan // by the attributes
	if record != nil {
		_, described = ingest.Described(record)
	}
	of := described.MessageID
	if rows.Span != nil {
		of = rows.Span.MessageID
	}
	out := e.out
	if e.wanted != nil && (record == nil || !e.wanted(record.Kind(), of, at.span.String())) {
		out = ptrace.NewSpanSlice()
	}
	sp := out.AppendEmpty()
	sp.SetKind(ptrace.SpanKindInternal)
	if record == nil {
		sp.SetName(at.ref.Kind)
		sp.Attributes().PutStr(string(semconv.SessionIDKey), e.s.Session.ID)
		sp.Attributes().PutStr(string(semconv.GenAIConversationIDKey), e.s.Session.ID)
	} else {
		sp.SetName(record.Kind())
		otlpfile.PutAttributes(sp.Attributes(), spans.Append(nil, record))
	}
	if m, ok := record.(*spans.ModelCall); ok {
		sp.SetName(record.Kind() + " " + m.Model.ModelID)
		sp.SetKind(ptrace.SpanKindClient)
	}
	rows.From, rows.To = e.s.Session.CreatedAt, e.s.Session.UpdatedAt
	if r := at.ref; r != nil {
		rows.Span = &ingest.EmbeddedSpan{Kind: r.Kind, Dialect: r.Dialect, MessageID: r.MessageID, PartID: r.PartID}
		if e.facts[r.MessageID] || r.MessageID == "" {
			rows.TurnStats = r.TurnStats
		}
		if !r.Error {
			failed = nil
		} else if failed == nil {
			failed = new("")
		}
	}
	if rows.Span != nil && *rows.Span == described {
		rows.Span = nil
	}
	carried, err := rows.Encode()
	e.err = errors.Join(e.err, err)
	sp.Attributes().PutStr(ingest.RowsKey, carried)
	sp.SetTraceID(at.trace)
	sp.SetSpanID(at.span)
	sp.SetParentSpanID(at.parent)
	start, end := otlpCredibleNano(at.start), otlpCredibleNano(at.end)
	if start = cmp.Or(start, end); e.wanted != nil && end <= start {
		end = start + 1 // Jaeger marks a span without a duration, and then shows a second copy of it
	}
	sp.SetStartTimestamp(pcommon.Timestamp(start))
	sp.SetEndTimestamp(pcommon.Timestamp(max(start, end)))
	if failed != nil {
		sp.Status().SetCode(ptrace.StatusCodeError)
		sp.Status().SetMessage(*failed)
	}
	return sp
}

// otlpCredibleNano is a time, or 0 if it is none that a span could have.
func otlpCredibleNano(nano int64) int64 {
	if !session.Credible(nano / 1e6) {
		return 0
	}
	return nano
}

// run writes the session's row, on the first run's span, and its annotations, except those that are events of spans.
func (e *otlpEncoder) run() ptrace.Span {
	s := &e.s.Session
	at := otlpNano(s.UpdatedAt)
	value := func(text string) *store.Value { return &store.Value{Text: text, At: at, Rank: store.RankFinal} }
	optional := func(text *string) *store.Value {
		if text == nil {
			return nil
		}
		return value(*text)
	}
	c := store.SessionChange{
		ID: s.ID, Title: value(s.Title), Agent: value(s.Agent), Mode: optional(s.Mode),
		WorkspaceID: optional(s.WorkspaceID), WorkspaceRoot: optional(s.WorkspaceRoot), Model: optional(s.ModelJSON),
		ParentID: optional(s.ParentID), ParentMessageID: optional(s.ParentMessageID),
		Permissions: value(s.PermissionsJSON), MetadataJSON: s.MetadataJSON,
	}
	if s.ArchivedAt != nil {
		c.Archived = &store.Value{Text: "1", At: otlpNano(*s.ArchivedAt), Rank: store.RankFinal}
	}
	if cost := otlpOtherCost(e.t); cost != 0 {
		c.OtherCost = value(strconv.FormatFloat(cost, 'g', -1, 64))
	}
	record := e.runRecord()
	record.Title, record.CreatedAt = s.Title, s.CreatedAt
	record.WorkspaceID, record.WorkspaceRoot = session.Deref(s.WorkspaceID), session.Deref(s.WorkspaceRoot)
	record.Mode = session.Deref(s.Mode)
	record.ParentID, record.ParentMessageID = session.Deref(s.ParentID), session.Deref(s.ParentMessageID)
	if s.PermissionsJSON != "[]" {
		record.Permissions = json.RawMessage(s.PermissionsJSON)
	}
	metadata := session.Object(s.MetadataJSON)
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
	rows := ingest.EmbeddedRows{Session: &c, Blobs: e.blobs,
		Annotations: slices.DeleteFunc(jsonl.SortedAnnotations(e.s.Annotations), otlpIsScore)}
	return e.write(e.ids.run, record, rows, failed)
}

// otlpIsScore reports whether an annotation is written as the result of an evaluation. One that was undone is none.
func otlpIsScore(n store.Annotation) bool {
	return n.Kind == store.AnnotationScore && n.DeletedAt == nil
}

// scores writes the scores as results of evaluations: events of what they are of, or of the run.
func (e *otlpEncoder) scores(run ptrace.Span) {
	for _, n := range jsonl.SortedAnnotations(e.s.Annotations) {
		if !otlpIsScore(n) {
			continue
		}
		sp, ok := e.of[n.PartID]
		if n.PartID == "" || !ok {
			sp, ok = e.of[n.MessageID]
		}
		if !ok {
			sp = run
		}
		event := sp.Events().AppendEmpty()
		event.SetName(semconv.EventEvaluation)
		event.SetTimestamp(pcommon.Timestamp(otlpCredibleNano(otlpNano(n.UpdatedAt))))
		to := event.Attributes()
		to.PutStr(string(semconv.GenAIConversationIDKey), e.s.Session.ID)
		otlpfile.PutAttributes(to, spans.Append(nil, &spans.Evaluation{
			SessionID: e.s.Session.ID, Name: n.Name, Value: n.Value, Label: n.Label, Explanation: n.Comment,
			Author: n.Author, MessageID: n.MessageID, PartID: n.PartID,
		}))
		n.Name, n.Value, n.Label, n.Comment = "", nil, "", "" // the row has what the attributes do not have
		rows := ingest.EmbeddedRows{Annotations: []store.Annotation{n}}
		row, err := rows.Encode()
		e.err = errors.Join(e.err, err)
		to.PutStr(ingest.RowsKey, row)
		if id, known := sp.Attributes().Get(string(semconv.GenAIResponseIDKey)); known && ok {
			to.PutStr(string(semconv.GenAIResponseIDKey), id.Str())
		}
	}
}

// runRecord is what any run of the session reports.
func (e *otlpEncoder) runRecord() *spans.Run {
	s := &e.s.Session
	r := &spans.Run{SessionID: s.ID, Agent: s.Agent}
	var model session.Model
	if s.ModelJSON != nil && json.Unmarshal([]byte(*s.ModelJSON), &model) == nil {
		r.Model = spans.Model(model)
	}
	return r
}

// otlpOtherCost is what the session cost beside its messages.
func otlpOtherCost(t *session.Transcript) float64 {
	sum := t.Session.CostUSD
	for i := range t.Messages {
		if m := &t.Messages[i].Message; m.Role == session.RoleAssistant {
			_, cost := session.UsageOf(m.MetadataJSON)
			sum = store.AddCost(sum, -cost)
		}
	}
	return sum
}

// messages writes every message, and what belongs to it.
func (e *otlpEncoder) messages() {
	decisions := make(map[string][]*store.Decision)
	for i := range e.s.Decisions {
		d := &e.s.Decisions[i]
		decisions[d.MessageID] = append(decisions[d.MessageID], d)
	}
	all := e.t.Messages
	for i := range all {
		e.facts[all[i].Message.ID] = e.measured(&all[i])
	}
	for i := 0; i < len(all); i++ {
		var user *session.MessageAndParts
		m := &all[i]
		if e.pairs(all, i) {
			user, m = m, &all[i+1]
			i++
		}
		turn := e.message(user, m)
		for j := range m.Parts {
			if otlpIsTool(&m.Parts[j]) {
				e.tool(turn, &m.Parts[j])
			}
		}
		for _, d := range decisions[m.Message.ID] {
			e.decision(turn, d)
		}
		delete(decisions, m.Message.ID)
		e.calls(turn, m)
	}
	// Those that name no message of the session, in their order.
	for i := range e.s.Decisions {
		if _, left := decisions[e.s.Decisions[i].MessageID]; left {
			e.decision(e.ids.run, &e.s.Decisions[i])
		}
	}
}

// measured reports whether a store makes the very metadata of the message of what its spans report.
func (e *otlpEncoder) measured(m *session.MessageAndParts) bool {
	reports := e.ids.reports[m.Message.ID]
	if len(reports) == 0 || strings.Contains(m.Message.MetadataJSON, `\u0000`) {
		return false // facts hold values, and no column the NUL in one
	}
	gap := false
	for i := range m.Parts {
		gap = gap || m.Parts[i].Index != int64(i)
	}
	read := make([]*store.SpanRef, len(reports))
	for i, r := range reports {
		read[i] = &store.SpanRef{StartNano: r.StartNano, TraceID: r.TraceID, SpanID: r.SpanID}
		// Facts are kept as JSON, which rewrites raw values.
		b, err := json.Marshal(r.TurnStats)
		if err != nil || json.Unmarshal(b, &read[i].TurnStats) != nil || !session.Credible(r.StartNano/1e6) {
			return false
		}
	}
	return store.FoldedMetadata(read, gap) == m.Message.MetadataJSON
}

// pairs reports whether the message at i is a user's that the one after it answers, and
// that has no need of a span of its own.
func (e *otlpEncoder) pairs(all []session.MessageAndParts, i int) bool {
	if i+1 >= len(all) || all[i].Message.Role != session.RoleUser || all[i+1].Message.Role != session.RoleAssistant {
		return false
	}
	if e.facts[all[i].Message.ID] || (all[i].Message.HiddenAt == nil) != (all[i+1].Message.HiddenAt == nil) {
		return false
	}
	meta := session.ParseMessageMetadata([]byte(all[i].Message.MetadataJSON))
	if meta.SystemPromptDigest != "" || meta.Trace.ToolCatalogDigest != "" {
		return false // the turn says those of the answer
	}
	return otlpCompaction(&all[i+1]) == nil &&
		!slices.ContainsFunc(all[i].Parts, func(p session.Part) bool { return otlpIsTool(&p) })
}

// message writes the span of m, and of the user's message that it answers.
func (e *otlpEncoder) message(user, m *session.MessageAndParts) otlpPlace {
	var rows ingest.EmbeddedRows
	start := m.Message.CreatedAt
	if user != nil {
		start = min(start, user.Message.CreatedAt)
		rows.Messages = append(rows.Messages, e.messageRow(&user.Message))
	}
	rows.Messages = append(rows.Messages, e.messageRow(&m.Message))
	meta := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON))
	kind := semconv.SpanSessionTurn
	marker := otlpCompaction(m)
	if marker != nil {
		kind = semconv.SpanCompactionRun
	}
	at := e.ids.message(kind, m, start)
	rows.Span = &ingest.EmbeddedSpan{Kind: kind, Dialect: store.DialectSDK, MessageID: m.Message.ID}
	var failed *string
	if meta.Trace.EndReason == semconv.EndError || meta.Trace.Error != "" {
		failed = &meta.Trace.Error
	}
	if marker != nil {
		record := e.compaction(m, marker, &meta, &rows)
		e.of[m.Message.ID] = e.write(at, record, rows, failed)
		return at
	}
	lacking := e.callsLackUsage(m.Message.ID, &meta)
	// A turn that was continued has a span for each time, with its own measurements.
	if at.ref != nil && at.ref.TurnStats != nil && e.facts[m.Message.ID] {
		meta = session.ParseMessageMetadata([]byte(at.ref.TurnStats.Metadata()))
	}
	record := e.turn(&meta)
	record.CallsLackUsage = lacking
	if user != nil {
		record.User = otlpSaid(user, &rows)
	}
	switch m.Message.Role {
	case session.RoleUser:
		record.User = otlpSaid(m, &rows)
	case session.RoleAssistant:
		record.Assistant = otlpSaid(m, &rows)
	default:
		rows.Parts = append(rows.Parts, m.Parts...)
	}
	sp := e.write(at, record, rows, failed)
	if e.of[m.Message.ID] = sp; user != nil {
		e.of[user.Message.ID] = sp
	}
	return at
}

func (e *otlpEncoder) messageRow(m *session.Message) session.Message {
	row := *m
	if e.facts[m.ID] {
		row.MetadataJSON = ""
	}
	return row
}

// turn is the record of what was measured of a turn.
func (e *otlpEncoder) turn(meta *session.MessageMetadata) *spans.Turn {
	t := &spans.Turn{
		SessionID: e.s.Session.ID, Agent: cmp.Or(meta.Agent, e.s.Session.Agent), Index: meta.Trace.TurnIndex,
		Temperature:        meta.Trace.Temperature,
		SystemPromptDigest: meta.SystemPromptDigest, ToolCatalogDigest: meta.Trace.ToolCatalogDigest,
		ModelCalls: meta.Trace.ModelCalls,
		StopReason: meta.Trace.StopReason, EndReason: meta.Trace.EndReason, PendingApproval: meta.Trace.PendingApproval,
		Error:      meta.Trace.Error,
		DurationMS: meta.Trace.DurationMS, Usage: otlpUsage(meta),
	}
	if meta.Model != nil {
		t.Model = spans.Model(*meta.Model)
	}
	t.SystemPrompt = e.once(store.BlobSystemPrompt, t.SystemPromptDigest)
	t.ToolCatalog = e.once(store.BlobToolCatalog, t.ToolCatalogDigest)
	return t
}

// calls writes the model calls of a message: those of the spans that are known, or else those that the
// message itself lists.
func (e *otlpEncoder) calls(turn otlpPlace, m *session.MessageAndParts) {
	meta := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON))
	steps, failures := meta.Trace.Steps, meta.Trace.ModelErrors
	good, bad := e.callsOf(m.Message.ID)
	if len(good)+len(bad) == 0 {
		p := otlpPlace{trace: turn.trace, parent: turn.span, start: turn.start, end: turn.start}
		for n := range failures {
			bad = append(bad, e.ids.derive(spans.KindModelCall, m.Message.ID+"\x00error "+strconv.Itoa(n), p))
			p.start++
		}
		for n, end := range otlpEnds(m, len(steps)) {
			// Of two that began in one millisecond the first is the first in the order of spans, too.
			p.start, p.end = max(p.start+1, otlpNano(steps[n].StartedAt)), otlpNano(end)
			good = append(good, e.ids.derive(spans.KindModelCall, m.Message.ID+"\x00"+strconv.Itoa(n), p))
		}
	} else {
		for _, p := range slices.Concat(good, bad) {
			e.ids.claim(p.trace, p.span)
		}
	}
	for n, at := range good {
		record := e.call(at.ref, m.Message.ID, meta.Model)
		switch {
		case at.ref != nil && at.ref.TurnStats != nil:
		case len(steps) == len(good):
			step := &steps[n]
			record.Usage.Tokens = (*spans.Tokens)(step.Usage)
			record.ResponseID, record.StopReason = step.ResponseID, step.StopReason
			if step.Model != nil {
				record.Model = spans.Model(*step.Model)
			}
		case len(good) == 1:
			record.Usage, record.ResponseID, record.StopReason = otlpUsage(&meta), meta.Trace.ResponseID, meta.Trace.StopReason
		}
		e.of[m.Message.ID] = e.write(at, record, ingest.EmbeddedRows{}, nil)
	}
	for n, at := range bad {
		record := e.call(at.ref, m.Message.ID, meta.Model)
		if record.Error == "" && len(failures) == len(bad) {
			record.Error = failures[n]
		}
		e.write(at, record, ingest.EmbeddedRows{}, &record.Error)
	}
}

// callsOf are the spans that are known of the model calls of a message, those that answered and those that failed.
func (e *otlpEncoder) callsOf(messageID string) (good, bad []otlpPlace) {
	for _, r := range e.ids.rows[otlpRefKey{spans.KindModelCall, messageID}] {
		if r.ref.Error {
			bad = append(bad, *r)
		} else {
			good = append(good, *r)
		}
	}
	return good, bad
}

// callsLackUsage reports whether no model call of the message has the usage: it is known of all together.
func (e *otlpEncoder) callsLackUsage(messageID string, meta *session.MessageMetadata) bool {
	good, bad := e.callsOf(messageID)
	if steps := meta.Trace.Steps; len(steps) > 0 && (len(good)+len(bad) == 0 || len(steps) == len(good)) {
		return false
	}
	return len(good) != 1 && !slices.ContainsFunc(good, func(p otlpPlace) bool { return p.ref.TurnStats != nil })
}

// otlpEnds are when the steps of a message ended, in Unix milliseconds: when the last thing that the model answered
// in it was there.
func otlpEnds(m *session.MessageAndParts, steps int) []int64 {
	all, n := make([]int64, steps), -1
	for i := range m.Parts {
		p := &m.Parts[i]
		if p.Type == "step-start" || n < 0 {
			n++
		}
		if at := p.UpdatedAt; n < steps {
			if otlpIsTool(p) {
				at = p.CreatedAt
			}
			all[n] = max(all[n], at)
		}
	}
	return all
}

// call is the record of a model call, with what the span of ref measured; ref may be nil. model is that of the
// message, or nil.
func (e *otlpEncoder) call(ref *store.SpanRef, messageID string, model *session.Model) *spans.ModelCall {
	record := &spans.ModelCall{SessionID: e.s.Session.ID, MessageID: messageID}
	if ref != nil && ref.TurnStats != nil {
		f := ref.TurnStats
		meta := session.ParseMessageMetadata([]byte(f.Metadata()))
		model, record.Usage = cmp.Or(f.Model, model), otlpUsage(&meta)
		record.StopReason, record.Temperature, record.Error = f.Trace.StopReason, f.Trace.Temperature, f.Trace.Error
		record.ResponseID, record.ResponseModel = f.Trace.ResponseID, f.Trace.ResponseModel
	}
	if model != nil {
		record.Model = spans.Model(*model)
	}
	record.Model.ModelID = cmp.Or(record.Model.ModelID, "unknown")
	return record
}

// others writes the known spans that are of no row, or of one that another span has. What is known of them is
// what they measured.
func (e *otlpEncoder) others() {
	for i := range e.ids.refs {
		at := e.ids.refs[i]
		if at.span == e.ids.run.span && at.trace == e.ids.run.trace || !e.ids.claim(at.trace, at.span) {
			continue
		}
		r := at.ref
		var stats session.MessageMetadata
		if r.TurnStats != nil {
			stats = session.ParseMessageMetadata([]byte(r.TurnStats.Metadata()))
		}
		failed := stats.Trace.Error
		var record spans.SpanData
		switch r.Kind {
		case spans.KindModelCall:
			record = e.call(r, r.MessageID, nil)
		case semconv.SpanSessionRun:
			record = e.runRecord()
		case semconv.SpanSessionTurn:
			record = e.turn(&stats)
		case semconv.SpanCompactionRun:
			record = &spans.Compaction{SessionID: e.s.Session.ID, Error: failed}
		}
		e.write(at, record, ingest.EmbeddedRows{}, &failed)
	}
}

// once returns the text with the digest, the first time that it is asked for.
func (e *otlpEncoder) once(kind store.BlobKind, digest string) (body string) {
	e.blobs = slices.DeleteFunc(e.blobs, func(b store.Blob) bool {
		if b.Kind != kind || b.Digest != digest {
			return false
		}
		body = b.Body // the last one of two
		return true
	})
	return body
}

func otlpUsage(meta *session.MessageMetadata) spans.Usage {
	u := spans.Usage{Basis: meta.Trace.UsageBasis, CostUSD: meta.Trace.CostUSD}
	if raw := meta.Trace.UsageRaw; len(raw) > 0 && raw[0] == '{' {
		u.Raw = raw // the attribute is of one call's object; the rows have those of several
	}
	if n := meta.Usage; n != nil {
		u.Tokens = new(spans.Tokens(*n))
	}
	return u
}

// otlpSaid is a message as a turn carries it. What of its parts a turn cannot say exactly goes to rows.
func otlpSaid(m *session.MessageAndParts, rows *ingest.EmbeddedRows) spans.Message {
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
		case otlpIsTool(p):
			data, _ := session.ParseUIPart(p.DataJSON) // without a name it has none
			part.ToolName = session.ToolName(p.Type, data.ToolName)
		case otlpIsPlain(p):
			part.Data = json.RawMessage(p.DataJSON)
		default:
			rows.Parts = append(rows.Parts, *p)
			continue
		}
		out.Parts = append(out.Parts, part)
	}
	return out
}

// otlpIsPlain reports that ingest makes the very row of the part in a turn.
func otlpIsPlain(p *session.Part) bool {
	const noIndex = 1 << 30
	head, err := json.Marshal(p.Type)
	return err == nil && p.ID != "" && p.ToolCallID == nil && p.ToolState == nil && p.ContinuationRunID == nil &&
		p.Index >= 0 && p.Index < noIndex &&
		session.Credible(p.CreatedAt) && session.Credible(p.UpdatedAt) &&
		strings.HasPrefix(p.DataJSON, `{"type":`+string(head)) && strings.HasSuffix(p.DataJSON, "}")
}

// otlpCompaction returns the part that marks one, or nil.
func otlpCompaction(m *session.MessageAndParts) *session.Part {
	for i := range m.Parts {
		if m.Parts[i].Type == session.TypeCompaction {
			return &m.Parts[i]
		}
	}
	return nil
}

func (e *otlpEncoder) compaction(m *session.MessageAndParts, marker *session.Part, meta *session.MessageMetadata,
	rows *ingest.EmbeddedRows) *spans.Compaction {
	c := &spans.Compaction{SessionID: e.s.Session.ID, MessageID: m.Message.ID, MessageCreatedAt: m.Message.CreatedAt,
		PartID: marker.ID, Error: meta.Trace.Error}
	if data, err := session.ParseCompaction(marker.DataJSON); err == nil {
		c.Summary, c.SummaryTokens, c.Auto, c.TailStartID = data.Summary, data.SummaryTokens, data.Auto,
			session.Deref(data.TailStartID)
	}
	trace := session.Object(session.Object(m.Message.MetadataJSON)["agenttrace"])
	_ = json.Unmarshal(trace["summarized_message_count"], &c.SummarizedMessages) // what cannot be read was not said
	if u := meta.Tokens(session.RoleAssistant, true).Used; u != nil {
		c.InputTokens, c.OutputTokens = u.Input+u.CacheRead+u.CacheWrite, u.Output+u.Reasoning
	}
	for i := range m.Parts {
		if p := &m.Parts[i]; !otlpIsTool(p) {
			rows.Parts = append(rows.Parts, *p)
		}
	}
	return c
}

// tool writes a tool call.
func (e *otlpEncoder) tool(turn otlpPlace, p *session.Part) {
	data, _ := session.ParseUIPart(p.DataJSON) // what cannot be read was not said
	row, input, output := *p, string(data.Input), string(data.Output)
	// The span reports in words what is withheld, for null would be an answer; the row keeps
	// its own value, and is what an import reads.
	withheldInput, withheldOutput := codec.Withheld(p)
	said, _ := json.Marshal(codec.WithheldText) // a string always has JSON
	if withheldInput {
		input = string(said)
	}
	if withheldOutput {
		output = string(said)
	}
	ingest.CutPart(&row, input, output)
	ours, failure, approval := data.Trace(), session.Deref(data.ErrorText), session.Deref(data.Approval)
	record := spans.ToolCall{
		SessionID: e.s.Session.ID, ToolID: session.ToolName(p.Type, data.ToolName), CallID: session.Deref(p.ToolCallID),
		MessageID: p.MessageID, PartID: p.ID, PartIndex: new(p.Index), State: session.Deref(p.ToolState),
		Input: input, Output: output, Error: failure, ErrorType: ours.ErrorType, ACPKind: ours.Kind,
		Dynamic: p.Type == "dynamic-tool", ProviderExecuted: data.ProviderExecuted, Denied: ours.Denied,
		Truncated: ours.Truncated, OutputPath: ours.OutputPath, OutputSize: ours.OutputSize,
		OutputSHA256: ours.OutputSHA256, ApprovalID: approval.ID, ChildSessionID: ours.ChildSessionID,
		DurationMS: ours.DurationMS, StartedAt: ours.StartedAt,
	}
	var failed *string
	if record.State == session.StateOutputError {
		failed = &failure
	}
	e.of[p.ID] = e.write(e.ids.part(turn, p), &record, ingest.EmbeddedRows{Parts: []session.Part{row}}, failed)
}

func (e *otlpEncoder) decision(turn otlpPlace, d *store.Decision) {
	record := spans.Permission{
		SessionID: e.s.Session.ID, ID: d.ID, ToolID: d.ToolID, CallID: d.ToolCallID,
		MessageID: d.MessageID, PartID: d.PartID,
		Pattern: d.Pattern,
		Action:  d.Action, Source: d.Source, Outcome: d.Outcome, Reply: d.Reply, Reason: d.Reason, WaitedMS: d.WaitedMS,
	}
	e.write(e.ids.decision(turn, d), &record, ingest.EmbeddedRows{Decision: d}, nil)
}

func otlpIsTool(p *session.Part) bool {
	return p.Type == "dynamic-tool" || strings.HasPrefix(p.Type, "tool-") && p.Type != "tool-"
}
