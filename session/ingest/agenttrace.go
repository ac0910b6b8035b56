package ingest

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/dialect"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// dialectAgenttrace is what the SDK emits: the five kinds of package spans.
const dialectAgenttrace = store.DialectSDK

func recognizeAgenttrace(s ptrace.Span, scope pcommon.InstrumentationScope) bool {
	return spans.New(s.Name()) != nil || scope.Name() == semconv.ScopeName &&
		(strings.HasPrefix(s.Name(), semconv.OperationChat) || carriesRows(s)) // one without a model is "chat"
}

// own is a span of ours on its way into a batch.
type own struct {
	*builder
	span               ptrace.Span
	sessionID          string
	traceID, spanID    string
	startNano, endNano int64
}

// attributeAgenttrace reads a span of the SDK into a record, notes what is wrong with the span
// itself, and places the rows that it carries or what the record describes.
func attributeAgenttrace(b *builder, s ptrace.Span) bool {
	record := readRecord(b, s)
	o := b.own(s, carriesRows(s))
	if done, accepted := o.replayed(record); done {
		return accepted
	}
	if sessionID, _ := Described(record); !o.identify(sessionID) {
		return false
	}
	switch r := record.(type) {
	case *spans.Run:
		return o.run(r)
	case *spans.Turn:
		return o.turn(r)
	case *spans.ToolCall:
		return o.tool(r)
	case *spans.Compaction:
		return o.compaction(r)
	case *spans.Permission:
		return o.permission(r)
	case *spans.ModelCall:
		return o.modelCall(r)
	}
	return false
}

// readRecord reads the attributes of a span. What they are not is noted; a span that
// repeats rows may lack what they report, as the times of a session that has none.
func readRecord(b *builder, s ptrace.Span) spans.SpanData {
	record := spans.New(s.Name())
	if record == nil {
		record = new(spans.ModelCall)
	}
	b.read(record, s.Attributes(), s.DroppedAttributesCount(), !carriesRows(s))
	return record
}

// read reads attributes into a record, and notes those that do not fit or were dropped and, with validate, what else
// is wrong with the record.
func (b *builder) read(record spans.SpanData, attrs pcommon.Map, dropped uint32, validate bool) {
	for key, v := range attrs.All() {
		val, ok, clean := value(v)
		if !ok {
			continue
		}
		if !clean {
			b.problem(key + ": invalid text")
		}
		if _, err := spans.Set(record, key, val); err != nil {
			b.problem(key + ": " + err.Error())
		}
	}
	if err := record.Validate(); err != nil && validate {
		b.problem(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if dropped > 0 {
		b.problem(strconv.FormatUint(uint64(dropped), 10) + " attributes were dropped before export")
	}
}

// own prepares a span of the SDK for attribution: its times and ids, and what is wrong with them.
func (b *builder) own(s ptrace.Span, embedded bool) own {
	o := own{builder: b, span: s, traceID: s.TraceID().String(), spanID: s.SpanID().String(),
		startNano: dialect.Nanos(s.StartTimestamp()), endNano: dialect.Nanos(s.EndTimestamp())}
	if o.startNano == 0 {
		o.startNano = o.endNano
		if !embedded {
			b.problem("start time is missing or absurd")
		}
	}
	if o.endNano < o.startNano {
		o.endNano = o.startNano
		b.problem("end time is missing or before the start")
	}
	if o.spanID == "" {
		b.problem("span id is empty")
	}
	return o
}

// identify finds the session: the one that the span names, else one for its
// trace. Without either the span cannot be attributed.
func (o *own) identify(sessionID string) bool {
	switch {
	case sessionID != "":
		o.sessionID = o.redaction.identifier(sessionID) // before another id is derived from it
	case o.traceID != "":
		o.sessionID = spans.TraceSession(o.traceID)
	default:
		o.problem("neither a session nor a trace id")
		return false
	}
	if o.spanID == "" && o.span != (ptrace.Span{}) { // else it is a record
		o.spanID = spans.DeriveID("", 0, o.span.Name(), o.sessionID, strconv.FormatInt(o.startNano, 10),
			strconv.FormatInt(o.endNano, 10))[10:]
	}
	return true
}

// link ties the span to the rows that it describes.
func (o *own) link(kind, messageID, partID string, facts *store.TurnStats) {
	o.batch.SpanRefs = append(o.batch.SpanRefs, store.SpanRef{
		TraceID: o.traceID, SpanID: o.spanID, ParentSpanID: o.span.ParentSpanID().String(), SessionID: o.sessionID,
		MessageID: messageID, PartID: partID, Kind: kind, Dialect: dialectAgenttrace,
		StartNano: o.startNano, EndNano: o.endNano, Error: o.failed(), TurnStats: facts,
	})
}

// failed reports whether the span's status is an error.
func (o *own) failed() bool { return o.span.Status().Code() == ptrace.StatusCodeError }

// derive makes the id of a thing that the span should have named.
func (o *own) derive(prefix, given, what string) string {
	if given != "" {
		return given
	}
	return spans.DeriveID(prefix, o.startNano/1e6, o.sessionID, o.traceID, o.spanID, what)
}

// milli returns a time that a record gives, in Unix milliseconds, or the span's own where it gives none.
func milli(given, otherwiseNano int64) int64 {
	if session.Credible(given) {
		return given
	}
	return otherwiseNano / 1e6
}

func (o *own) run(r *spans.Run) bool {
	start := o.startNano
	if session.Credible(r.CreatedAt) {
		start = min(start, r.CreatedAt*1e6)
	}
	c := o.session(o.sessionID, start, o.endNano)
	early := func(text string) *store.Value { return reported(text, o.startNano, store.RankFinal) }
	late := func(text string) *store.Value { return reported(text, o.endNano, store.RankFinal) }
	o.metadata(c, r, o.attributes(c, r, early, late))
	o.endStatus(c, r)
	switch r.Operation {
	case semconv.RunOperationFork:
		if r.ParentID != "" && r.TargetMessageID != "" {
			c.Fork = &store.Fork{From: r.ParentID, Message: r.TargetMessageID, At: milli(r.TargetAt, o.startNano)}
		}
	case semconv.RunOperationRewind, semconv.RunOperationUnrewind:
		if r.TargetMessageID != "" {
			c.Rewinds = append(c.Rewinds, store.Rewind{
				To: r.TargetMessageID, At: milli(r.TargetAt, o.startNano),
				Undone: r.Operation == semconv.RunOperationUnrewind,
			})
		}
	case semconv.RunOperationArchive:
		c.Archived = late("1")
	case semconv.RunOperationUnarchive:
		c.Archived = late("0")
	}
	o.link(semconv.SpanSessionRun, "", "", nil)
	return true
}

// attributes reports the session's own. early makes a value of what is known when the run begins, late of what may
// change until it ends. It returns the permission rules if some are invalid.
func (o *own) attributes(
	c *store.SessionChange, r *spans.Run, early, late func(string) *store.Value) (notRules json.RawMessage) {
	c.Agent, c.Model = early(r.Agent), early(modelJSON(r.Model))
	o.parent(c, r.ParentID, r.ParentMessageID, early)
	c.Title = cmp.Or(late(r.Title), reported(r.FirstPrompt, o.startNano, store.RankStub))
	c.Mode, c.WorkspaceID, c.WorkspaceRoot = late(r.Mode), late(r.WorkspaceID), late(r.WorkspaceRoot)
	rules, others := o.validateRules(r.Permissions)
	c.Permissions = late(string(rules))
	return others
}

// parent states where the session left another.
func (o *own) parent(c *store.SessionChange, id, messageID string, value func(string) *store.Value) {
	switch id = o.redaction.identifier(id); id {
	case "": // a message without a session reports nothing
	case o.sessionID:
		o.problem("agenttrace.session.parent_id: the session's own")
	default:
		c.ParentID, c.ParentMessageID = value(id), value(messageID)
	}
}

// metadata merges the keys that a run gives, and how it ended.
func (o *own) metadata(c *store.SessionChange, r *spans.Run, notRules json.RawMessage) {
	reported, _ := o.sessionMetadata(r)
	if notRules != nil {
		reported["invalid_permissions"] = notRules
	}
	if problems := o.takeProblems(); r.Outcome != "" || len(problems) > 0 {
		ended := struct {
			Outcome  string   `json:"outcome,omitempty"`
			Error    string   `json:"error,omitempty"`
			Problems []string `json:"problems,omitempty"`
		}{r.Outcome, r.Error, problems}
		reported["agenttrace"], _ = json.Marshal(ended)
	}
	setKeys(c, reported, o.endNano, store.RankFinal)
}

// sessionMetadata are the keys that a run gives its session. valid is false if it gives something else, which is kept
// as text under the key "given".
func (b *builder) sessionMetadata(r *spans.Run) (keys map[string]json.RawMessage, valid bool) {
	keys, valid = b.object("agenttrace.session.metadata", r.Metadata)
	if keys == nil {
		keys = make(map[string]json.RawMessage)
	}
	if r.UserID != "" {
		keys["user_id"] = jsonscan.AppendString(nil, r.UserID)
	}
	if given, ok := keys[statusKey]; ok { // that key has what live events report
		keys["given_"+statusKey] = given
		delete(keys, statusKey)
	}
	return keys, valid
}

// object reads a JSON object that the host gave, nil if there is none.
func (b *builder) object(attribute string, raw json.RawMessage) (members map[string]json.RawMessage, valid bool) {
	if len(raw) > 0 && (TooDeep(raw) || json.Unmarshal(raw, &members) != nil) {
		b.problem(attribute + ": not an object, or nested too deep")
		return map[string]json.RawMessage{"given": quoted(raw)}, false
	}
	return members, true
}

func modelJSON(m spans.Model) string {
	if m == (spans.Model{}) {
		return ""
	}
	b, _ := json.Marshal(session.Model(m))
	return string(b)
}

func (o *own) turn(t *spans.Turn) bool {
	c := o.session(o.sessionID, o.startNano, o.endNano)
	early := func(text string) *store.Value { return reported(text, o.startNano, store.RankFinal) }
	c.Agent, c.Model = early(t.Agent), early(modelJSON(t.Model))
	// The run and whatever renamed the session have the last word.
	c.Title = reported(t.Title, o.endNano, store.RankLive)
	o.parent(c, t.ParentID, t.ParentMessageID, early)
	var model *session.Model
	if t.Model != (spans.Model{}) {
		model = new(session.Model(t.Model))
	}
	if t.User.ID != "" || len(t.User.Parts) > 0 {
		id := o.derive(spans.PrefixMessage, t.User.ID, "user")
		created := milli(t.User.CreatedAt, o.startNano)
		o.batch.Messages = append(o.batch.Messages, store.MessageChange{
			ID: id, SessionID: o.sessionID, Role: session.RoleUser, CreatedAt: created, UpdatedAt: created,
			Rank: store.RankFinal, Metadata: o.userMetadata(model, t.User.Metadata),
		})
		o.closeRanks(t.User.Parts)
		o.parts(id, session.RoleUser, t.User.Parts)
		if len(t.User.Parts) == 0 {
			// The AI SDK rejects a message without parts. What is not sent is empty, if nothing was lost on the way.
			part := store.PartChange{
				ID: o.derive(spans.PrefixPart, "", "user"), MessageID: id, SessionID: o.sessionID, Rank: store.RankStub,
				Type: "text", Data: json.RawMessage(`{"type":"text","text":""}`), CreatedAt: created, UpdatedAt: created,
			}
			if o.span.DroppedAttributesCount() > 0 {
				part.Type, part.Data = store.TypeDamaged, placeholder("text", "no content arrived")
			}
			o.batch.Parts = append(o.batch.Parts, part)
		}
	}
	id := o.derive(spans.PrefixMessage, t.Assistant.ID, "assistant")
	o.batch.Messages = append(o.batch.Messages, store.MessageChange{
		ID: id, SessionID: o.sessionID, Role: session.RoleAssistant,
		CreatedAt: milli(t.Assistant.CreatedAt, o.startNano), UpdatedAt: o.endNano / 1e6, Rank: store.RankFinal,
	})
	o.parts(id, session.RoleAssistant, t.Assistant.Parts)
	if len(t.Assistant.Parts) == 0 && t.User.ID != "" { // the turn that it continues has parts
		o.absent(id, t)
	}
	prompt, catalog := o.texts(t)
	if t.Index != nil && *t.Index < 0 {
		o.problem("turn_index is negative")
	}
	counted, cost := o.usage(t.Usage.Tokens), o.cost(t.Usage.CostUSD)
	extra, _ := o.object("agenttrace.assistant_message.metadata", t.Assistant.Metadata)
	var seen struct{ History *session.History }   // from outside
	_ = json.Unmarshal(extra["modelhttp"], &seen) // what is no such object is the agent's own
	facts := &store.TurnStats{
		GivenUp: t.EndReason == semconv.EndAbort && t.ErrorType == semconv.ErrorTypeAborted,
		Model:   model, Usage: counted, SystemPromptDigest: prompt, Extra: extra,
		Trace: session.MessageTrace{
			TurnIndex: t.Index, EndReason: t.EndReason, StopReason: t.StopReason, PendingApproval: t.PendingApproval,
			ModelCalls: t.ModelCalls, DurationMS: t.DurationMS, Temperature: t.Temperature, ToolCatalogDigest: catalog,
			CostUSD: cost, UsageBasis: t.Usage.Basis, UsageRaw: o.usageRaw(t.Usage.Raw), Error: t.Error,
			History: seen.History,
		},
	}
	facts.Trace.Problems = o.takeProblems() // those of the values above are among them
	if facts.Trace.Error == "" && o.failed() {
		facts.Trace.Error, _ = text(o.span.Status().Message())
	}
	o.link(semconv.SpanSessionTurn, id, "", facts)
	return true
}

// texts stores what a turn has that is kept once, and returns the digests.
func (o *own) texts(t *spans.Turn) (prompt, catalog string) {
	return o.blob(store.BlobSystemPrompt, o.digest("agenttrace.system_prompt.digest", t.SystemPromptDigest), t.SystemPrompt),
		o.blob(store.BlobToolCatalog, o.digest("agenttrace.tool_catalog.digest", t.ToolCatalogDigest), t.ToolCatalog)
}

func (o *own) usage(t *spans.Tokens) *session.Usage {
	if t == nil {
		return nil
	}
	return &session.Usage{
		Input: o.count(t.Input), Output: o.count(t.Output), Reasoning: o.count(t.Reasoning),
		CacheRead: o.count(t.CacheRead), CacheWrite: o.count(t.CacheWrite),
	}
}

// usageRaw is the usage as the source wrote it.
func (o *own) usageRaw(raw json.RawMessage) json.RawMessage {
	if TooDeep(raw) {
		o.problem("agenttrace.usage.raw: nested too deep")
		return quoted(raw)
	}
	return raw
}

// userMetadata is what the guide wants of a user message: the model that was
// asked, and whatever the host adds, such as a trigger.
func (o *own) userMetadata(model *session.Model, given json.RawMessage) json.RawMessage {
	m := make(map[string]json.RawMessage)
	if len(given) > 0 {
		given = o.validateMetadata(session.RoleUser, given)
		if json.Unmarshal(given, &m) != nil {
			return nil
		}
	}
	if _, reported := m["model"]; !reported && model != nil {
		m["model"], _ = json.Marshal(model)
	}
	b, _ := json.Marshal(m)
	return b
}

func (o *own) parts(messageID, role string, parts []spans.Part) {
	for i := range parts {
		p := &parts[i]
		c, whole := o.partOf(messageID, p, i, o.startNano, store.RankFinal)
		if whole {
			o.validatePart(&c, role)
		}
		o.batch.Parts = append(o.batch.Parts, c)
	}
}

// partOf makes a change of a part that the SDK reports, at place among others and at
// the time where it has none. whole reports that its data is JSON that can be validated.
func (o *own) partOf(messageID string, p *spans.Part, place int, atNano int64, rank store.Rank) (c store.PartChange,
	whole bool) {
	c = store.PartChange{
		ID: p.ID, MessageID: messageID, SessionID: o.sessionID, Index: p.Index, Type: p.Type, Data: p.Data,
		ToolCallID: p.ToolCallID, ToolState: p.ToolState,
		CreatedAt: milli(p.CreatedAt, atNano), UpdatedAt: milli(p.UpdatedAt, atNano), Rank: rank,
	}
	if p.Index < 0 || p.Index >= noIndex {
		o.problem("part " + p.ID + ": the index is not credible")
		c.Index = noIndex + int64(place)
	}
	switch {
	case p.Damaged != "":
		damagedPart(&c, p.Damaged)
	case len(p.Data) == 0:
		stubPart(&c, p.ToolName)
	case !validJSON(p.Data):
		o.problem("part " + p.ID + ": invalid JSON")
		damagedPart(&c, string(p.Data))
	default:
		hoist(&c)
		return c, true
	}
	return c, false
}

// closeRanks numbers the parts of a user message from 0, in their order: they all
// come in one span, so that one which is missing has left nothing behind.
func (o *own) closeRanks(parts []spans.Part) {
	copy(parts, session.SortedRows(parts, func(p, q *spans.Part) int { return cmp.Compare(p.Index, q.Index) }))
	for i := range parts {
		if parts[i].Index != int64(i) {
			o.problem("the parts of the user message are not numbered from 0")
			parts[i].Index = int64(i)
		}
	}
}

// noIndex is the first index of parts whose source did not state their index: after all that have one, in order of
// time. The message is marked incomplete then, for what is between is not known.
const noIndex = 1 << 30

// anywhere is a place for such a part. It is one that no other has, as far as
// can be, because parts in one place are moved apart at a cost.
func (o *own) anywhere(partID string) int64 {
	if o.startNano > 0 {
		return max(noIndex, o.startNano/1e3)
	}
	return noIndex + int64(crc32.ChecksumIEEE([]byte(partID)))
}

func (o *own) tool(t *spans.ToolCall) bool {
	o.session(o.sessionID, o.startNano, o.endNano)
	messageID := t.MessageID
	if messageID == "" {
		// Calls of one turn share a parent, so they share the message too.
		parent := o.span.ParentSpanID()
		messageID = spans.DeriveID(spans.PrefixMessage, 0,
			o.sessionID, o.traceID, hex.EncodeToString(parent[:]), "assistant")
	}
	o.stub(o.sessionID, messageID, o.startNano, o.endNano)
	c := store.PartChange{
		ID: o.derive(spans.PrefixPart, t.PartID, "tool"), MessageID: messageID, SessionID: o.sessionID,
		ToolCallID: cmp.Or(t.CallID, o.spanID), CreatedAt: o.startNano / 1e6, UpdatedAt: o.endNano / 1e6,
		Rank: store.RankFinal,
	}
	if c.Index = o.anywhere(c.ID); t.PartIndex != nil && *t.PartIndex >= 0 {
		if *t.PartIndex < noIndex {
			c.Index = *t.PartIndex
		} else {
			o.problem("agenttrace.part.index is not credible")
		}
	}
	if t.State == "" && o.failed() {
		t.State = session.StateOutputError
		message, _ := text(o.span.Status().Message())
		t.Error = cmp.Or(t.Error, message)
	}
	o.toolPart(&c, t)
	if c.ToolState == session.StateOutputError && t.ErrorType == semconv.ErrorTypeAborted {
		c.Rank = store.RankLive // who reports so did not see the call end
	}
	o.batch.Parts = append(o.batch.Parts, c)
	o.link(semconv.SpanToolCall, messageID, c.ID, nil)
	return true
}

func (o *own) compaction(r *spans.Compaction) bool {
	o.session(o.sessionID, o.startNano, o.endNano)
	if r.MessageID == "" && r.Error != "" {
		// It failed and left the session as it was: there is no message to report.
		o.link(semconv.SpanCompactionRun, "", "", &store.TurnStats{Step: true,
			Trace: session.MessageTrace{Error: r.Error, Problems: o.takeProblems()}})
		return true
	}
	messageID := o.derive(spans.PrefixMessage, r.MessageID, "compaction")
	partID := o.derive(spans.PrefixPart, r.PartID, "compaction")
	created := milli(r.MessageCreatedAt, o.endNano)
	metadata := struct {
		Compaction bool          `json:"compaction"`
		Usage      session.Usage `json:"usage"`
		Trace      struct {
			SummarizedMessages int64    `json:"summarized_message_count"`
			InputTokens        int64    `json:"input_tokens"`
			OutputTokens       int64    `json:"output_tokens"`
			DurationMS         int64    `json:"duration_ms"`
			Problems           []string `json:"problems,omitempty"`
		} `json:"agenttrace"`
	}{Compaction: true, Usage: session.Usage{Input: o.count(r.SummaryTokens)}}
	metadata.Trace.SummarizedMessages = o.count(r.SummarizedMessages)
	metadata.Trace.InputTokens, metadata.Trace.OutputTokens = o.count(r.InputTokens), o.count(r.OutputTokens)
	metadata.Trace.DurationMS = (o.endNano - o.startNano) / 1e6
	metadata.Trace.Problems = o.takeProblems()
	raw, _ := json.Marshal(metadata)
	o.batch.Messages = append(o.batch.Messages, store.MessageChange{
		ID: messageID, SessionID: o.sessionID, Role: session.RoleAssistant, CreatedAt: created,
		UpdatedAt: max(created, o.endNano/1e6), Rank: store.RankFinal, Metadata: raw,
	})
	o.batch.Parts = append(o.batch.Parts, store.PartChange{
		ID: partID, MessageID: messageID, SessionID: o.sessionID, Type: session.TypeCompaction,
		Data: o.compactionData(r), CreatedAt: created, UpdatedAt: created, Rank: store.RankFinal,
	})
	o.link(semconv.SpanCompactionRun, messageID, partID, nil)
	return true
}

func (o *own) permission(p *spans.Permission) bool {
	o.session(o.sessionID, o.startNano, o.endNano)
	o.batch.Decisions = append(o.batch.Decisions, store.Decision{
		ID: o.derive(spans.PrefixPermission, p.ID, "permission"), SessionID: o.sessionID, MessageID: p.MessageID,
		PartID: p.PartID, ToolCallID: p.CallID, ToolID: p.ToolID, Pattern: p.Pattern, Action: p.Action,
		Source: p.Source, Outcome: p.Outcome, Reply: p.Reply, Reason: p.Reason, WaitedMS: p.WaitedMS,
		DecidedAt: o.endNano / 1e6, TraceID: o.traceID, SpanID: o.spanID,
	})
	o.link(semconv.SpanPermissionEvaluate, p.MessageID, p.PartID, nil)
	return true
}

func (o *own) modelCall(m *spans.ModelCall) bool {
	o.session(o.sessionID, o.startNano, o.endNano)
	var facts *store.TurnStats
	if m.MessageID != "" {
		o.stub(o.sessionID, m.MessageID, o.startNano, o.endNano)
		duration := (o.endNano - o.startNano) / 1e6
		facts = &store.TurnStats{
			Step: true, Late: m.Late, Usage: o.usage(m.Usage.Tokens),
			Model: new(session.Model(m.Model)),
			Trace: session.MessageTrace{
				StopReason: m.StopReason, ModelCalls: 1, DurationMS: &duration, Temperature: m.Temperature,
				CostUSD: o.cost(m.Usage.CostUSD), UsageBasis: m.Usage.Basis, UsageRaw: o.usageRaw(m.Usage.Raw),
				Error: m.Error, ResponseID: m.ResponseID, ResponseModel: m.ResponseModel,
			},
		}
		if facts.Trace.Error == "" && o.failed() {
			message, _ := text(o.span.Status().Message())
			facts.Trace.Error = cmp.Or(message, m.ErrorType)
		}
		if facts.Trace.ModelErrors = m.Retries; len(m.Retries) > 0 && facts.Trace.Error != "" {
			facts.Trace.ModelErrors = append(slices.Clone(m.Retries), facts.Trace.Error)
		}
		facts.Trace.Problems = o.takeProblems()
	}
	o.link(spans.KindModelCall, m.MessageID, "", facts)
	return true
}

// absent writes why a turn's answer has no part.
func (o *own) absent(messageID string, t *spans.Turn) {
	partType, why := session.TypeUnfinished, "the turn ended before anything was answered"
	switch {
	case t.EndReason == semconv.EndAbort && t.ErrorType == semconv.ErrorTypeAborted:
		// A later process gave the turn up. Another span of it may report how it ended.
	case t.Error != "":
		partType, why = session.TypeError, t.Error
	case t.EndReason == semconv.EndError:
		partType, why = session.TypeError, "the turn ended in an error"
	case fact.FinishReason(t.StopReason) == "content-filter":
		partType, why = session.TypeError, session.BlockedText
	case t.EndReason == semconv.EndFinish:
		partType, why = session.TypeWithheld, "the answer was not reported"
	}
	o.batch.Parts = append(o.batch.Parts, store.PartChange{
		ID: o.derive(spans.PrefixPart, "", "absent"), MessageID: messageID, SessionID: o.sessionID, Type: partType,
		Data:      dataPart(partType, append(spans.AppendJSONMember([]byte("{"), "text", why), '}')),
		CreatedAt: o.endNano / 1e6, UpdatedAt: o.endNano / 1e6, Rank: store.RankStub,
	})
}

// value converts an attribute. ok is false for one that is empty, which is the
// same as absent. clean is false when text had to be repaired.
func value(v pcommon.Value) (_ spans.Value, ok, clean bool) {
	switch v.Type() {
	case pcommon.ValueTypeEmpty:
		return spans.Value{}, false, true
	case pcommon.ValueTypeInt:
		return spans.Value{Value: attribute.Int64Value(v.Int())}, true, true
	case pcommon.ValueTypeDouble:
		return spans.Value{Value: attribute.Float64Value(v.Double())}, true, true
	case pcommon.ValueTypeBool:
		return spans.Value{Value: attribute.BoolValue(v.Bool())}, true, true
	case pcommon.ValueTypeStr, pcommon.ValueTypeBytes:
		s, clean := text(v.AsString())
		return spans.Value{Value: attribute.StringValue(s)}, true, clean
	case pcommon.ValueTypeSlice:
		all, clean := make([]string, 0, v.Slice().Len()), true
		for _, e := range v.Slice().All() {
			if e.Type() == pcommon.ValueTypeStr {
				s, ok := text(e.Str())
				all, clean = append(all, s), clean && ok
			}
		}
		if len(all) == v.Slice().Len() {
			return spans.Value{Value: attribute.StringSliceValue(all)}, true, clean
		}
	}
	s, clean := text(v.AsString())
	return spans.JSONValue(s), true, clean
}

// text repairs what no column can hold: invalid UTF-8 and NUL become U+FFFD.
func text(s string) (_ string, clean bool) {
	repaired := dialect.Text(s)
	return repaired, repaired == s
}
