package ingest

import (
	"cmp"
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// Rows that are embedded in a span are validated like all content: a row that breaks a rule is quarantined as text or
// left out. Where a row cannot be made at all the span is read by its attributes, as if it came from an agent.

// carriesRows reports whether a span was written from a stored session.
func carriesRows(s ptrace.Span) bool {
	_, ok := s.Attributes().Get(RowsKey)
	return ok
}

// replayed places the rows of a span that was written from a stored session. It
// reports false, and has added nothing, when there are none that can be read.
func (o *own) replayed(record spans.SpanData) (done, accepted bool) {
	v, ok := o.span.Attributes().Get(RowsKey)
	if !ok {
		return false, false
	}
	carried, _ := text(v.AsString())
	rows := new(EmbeddedRows)
	switch err := json.Unmarshal([]byte(carried), rows); {
	case err != nil:
		o.problem(RowsKey + ": read rows: " + err.Error())
		return false, false
	case strings.Contains(carried, `\u0000`) && nul.MatchString(carried): // a text may be long
		o.problem(RowsKey + ": a value holds NUL, which no column can")
		return false, false
	}
	parts, ok := o.replayedParts(rows, record)
	if !ok {
		return false, false
	}
	sessionID, ref := Described(record)
	if !o.identify(sessionID) {
		return true, false
	}
	c := o.session(o.sessionID, 0, 0)
	if rows.Session != nil {
		*c = o.replayedSession(rows)
	}
	c.AsStored, c.Start, c.End = true, rows.From, rows.To
	for i := range rows.Messages {
		o.replayMessage(&rows.Messages[i])
	}
	if t, isTurn := record.(*spans.Turn); isTurn {
		o.replayTurn(t)
	}
	for i := range parts {
		parts[i].SessionID = o.sessionID
	}
	o.batch.Parts = append(o.batch.Parts, parts...)
	for _, b := range rows.Blobs {
		if b.Kind == store.BlobSystemPrompt || b.Kind == store.BlobToolCatalog {
			o.blob(b.Kind, o.digest(RowsKey+": "+string(b.Kind), b.Digest), b.Body)
		}
	}
	if d := rows.Decision; d != nil && d.ID != "" {
		d.SessionID = o.sessionID
		o.batch.Decisions = append(o.batch.Decisions, *d)
	}
	for i := range rows.Annotations {
		n := &rows.Annotations[i]
		n.SessionID = o.sessionID
		if err := n.Check(); err != nil {
			o.problem(RowsKey + ": " + err.Error())
			continue
		}
		o.batch.Annotations = append(o.batch.Annotations, *n)
	}
	var facts *store.TurnStats
	if rows.TurnStats != nil {
		facts = o.validateTurnStats(rows.TurnStats)
	}
	if rows.Span != nil && rows.Span.Kind != "" && rows.Span.Dialect != "" {
		ref = *rows.Span
	}
	o.link(ref.Kind, ref.MessageID, ref.PartID, facts)
	o.batch.SpanRefs[len(o.batch.SpanRefs)-1].Dialect = ref.Dialect
	return true, true
}

// replayTurn places what a turn's span has beside the rows: texts that are kept once, and parts that are whole.
func (o *own) replayTurn(t *spans.Turn) {
	o.blob(store.BlobSystemPrompt, o.digest("agenttrace.system_prompt.digest", t.SystemPromptDigest), t.SystemPrompt)
	o.blob(store.BlobToolCatalog, o.digest("agenttrace.tool_catalog.digest", t.ToolCatalogDigest), t.ToolCatalog)
	whole := func(m spans.Message, role string) {
		if m.ID != "" {
			o.parts(m.ID, role, slices.DeleteFunc(m.Parts, func(p spans.Part) bool {
				return len(p.Data) == 0 && p.Damaged == ""
			}))
		}
	}
	whole(t.User, session.RoleUser)
	whole(t.Assistant, session.RoleAssistant)
}

// replayedParts are the parts that rows hold. ok is false when one has lost what was
// cut out of it: then the span's attributes report more.
func (o *own) replayedParts(rows *EmbeddedRows, record spans.SpanData) (parts []store.PartChange, ok bool) {
	var input, output string
	if t, isTool := record.(*spans.ToolCall); isTool {
		input, output = t.Input, t.Output
	}
	roles := make(map[string]string, len(rows.Messages))
	for _, m := range rows.Messages {
		roles[m.ID] = m.Role
	}
	for i := range rows.Parts {
		p := &rows.Parts[i]
		data, cut := wholePart(p, input, output)
		if cut && !validJSON([]byte(data)) {
			o.problem(RowsKey + ": part " + p.ID + ": what was cut out of it is no JSON")
			return nil, false
		}
		if p.ID == "" || p.MessageID == "" {
			o.problem(RowsKey + ": a part is not whole")
			return nil, false
		}
		c := store.PartChange{
			ID: p.ID, MessageID: p.MessageID, Index: p.Index, Type: p.Type, Data: json.RawMessage(data),
			ToolCallID: session.Deref(p.ToolCallID), ToolState: session.Deref(p.ToolState),
			CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt,
			Rank: store.PartRank(data), ContinuationRunID: p.ContinuationRunID,
		}
		if c.Index < 0 || c.Index >= store.MaxIndex {
			o.problem("part " + p.ID + ": the index is not credible")
			c.Index = noIndex + int64(i)
		}
		if validJSON(c.Data) {
			hoist(&c)
			o.validatePart(&c, cmp.Or(roles[p.MessageID], session.RoleAssistant))
		} else {
			o.problem("part " + p.ID + ": invalid JSON")
			quarantine(&c, data)
		}
		parts = append(parts, c)
	}
	return parts, true
}

// replayedSession is what the row reports, except for what breaks a rule.
func (o *own) replayedSession(rows *EmbeddedRows) store.SessionChange {
	c := *rows.Session
	c.ID, c.Rewinds, c.Fork = o.sessionID, nil, nil
	row := session.Session{ID: o.sessionID, PermissionsJSON: "[]", MetadataJSON: "{}"}
	if v := c.Permissions; v != nil {
		row.PermissionsJSON = v.Text
	}
	if v := c.Model; v != nil {
		row.ModelJSON = &v.Text
	}
	c.Metadata = make(map[string]store.Value)
	keys, _ := o.object("session metadata", json.RawMessage(c.MetadataJSON))
	for key, raw := range keys {
		c.Metadata[key] = store.Value{Text: string(raw), At: nano(rows.To), Rank: store.RankFinal}
	}
	if len(session.Check(&session.Transcript{Session: row})) > 0 || TooDeep([]byte(row.PermissionsJSON)) ||
		row.ModelJSON != nil && TooDeep([]byte(*row.ModelJSON)) {
		c.Permissions, c.Model = nil, nil
		o.problem("session: its rules or its model are none")
	}
	if v := c.ParentID; v == nil || v.Text == "" || v.Text == o.sessionID {
		c.ParentID, c.ParentMessageID = nil, nil
	}
	if v := c.OtherCost; v != nil {
		if cost, err := strconv.ParseFloat(v.Text, 64); err != nil || math.IsNaN(cost) || math.Abs(cost) > maxCost {
			c.OtherCost = nil
		}
	}
	return c
}

func (o *own) replayMessage(m *session.Message) {
	if m.ID == "" {
		o.problem(RowsKey + ": a message has no id")
		return
	}
	c := store.MessageChange{
		ID: m.ID, SessionID: o.sessionID, Role: m.Role, CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt,
		Rank: store.RankFinal, HiddenAt: m.HiddenAt, AsStored: true,
	}
	switch m.Role {
	case session.RoleUser, session.RoleAssistant, session.RoleSystem:
	default:
		o.problem("message " + m.ID + ": the role is not one: " + m.Role)
		c.Role, c.Rank = "", store.RankStub
	}
	if m.MetadataJSON != "" {
		c.Metadata = o.validateMetadata(m.Role, json.RawMessage(m.MetadataJSON))
	}
	o.batch.Messages = append(o.batch.Messages, c)
}

// validateTurnStats keeps the valid ones of the measurements.
func (o *own) validateTurnStats(f *store.TurnStats) *store.TurnStats {
	f.SystemPromptDigest = o.digest("agenttrace.system_prompt.digest", f.SystemPromptDigest)
	f.Trace.ToolCatalogDigest = o.digest("agenttrace.tool_catalog.digest", f.Trace.ToolCatalogDigest)
	if u := f.Usage; u != nil {
		f.Usage = o.usage(new(spans.Tokens(*u)))
	}
	f.Trace.CostUSD = o.cost(f.Trace.CostUSD)
	if TooDeep(f.Trace.UsageRaw) {
		f.Trace.UsageRaw = quoted(f.Trace.UsageRaw)
	}
	for key, v := range f.Extra {
		if TooDeep(v) {
			f.Extra[key] = quoted(v)
		}
	}
	return f
}

// nano is a time in Unix milliseconds in nanoseconds, the last that there is where it is later.
func nano(milli int64) int64 { return min(max(milli, -maxMilli), maxMilli) * 1e6 }

// maxCost is the greatest cost of a session that is taken: beyond it sums would not be exact.
const maxCost = 1e9

const maxMilli = math.MaxInt64 / 1_000_000

// nul is NUL in a string of valid JSON. JSON in a string of JSON may have the escape: its backslash is escaped.
var nul = regexp.MustCompile(`(?:^|[^\\])(?:\\\\)*\\u0000`)
