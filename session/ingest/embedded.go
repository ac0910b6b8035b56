package ingest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// RowsKey is the attribute with [EmbeddedRows] as JSON, which a span has that was written from a stored session and
// not by an agent: the rows as they are, beside the attributes that report the same for any back end of traces.
//
// An agent reports of a message what it knows, and rows are made of it. Of a row that another agent's telemetry, an
// import or another program came to, the SDK's attributes cannot report all: a message of the system, an answer
// without a turn_index, a time that no clock gave.
const RowsKey = string(semconv.ReplayKey)

// EmbeddedRows are those that a span was made of. What its record reports as well need not be repeated: the parts of a
// session.turn that have data, and prompts and catalogs, are taken from the record.
type EmbeddedRows struct {
	// Span is how the store has the span itself, nil if it is as [Described].
	Span *EmbeddedSpan `json:"span,omitempty"`
	// From and To are created_at and updated_at of the session, in Unix milliseconds.
	From int64 `json:"from,omitempty"`
	To   int64 `json:"to,omitempty"`
	// Session is the session's row. Its id is the span's; a fork in it is ignored.
	Session *store.SessionChange `json:"session,omitempty"`
	// Messages are rows of messages, whose metadata is empty where it follows from the facts of spans.
	Messages []session.Message `json:"messages,omitempty"`
	// TurnStats are what the span measured of its message.
	TurnStats *store.TurnStats `json:"facts,omitempty"`
	// Parts are rows of parts. The values of "input" and "output" in their data may be cut out and are in the span's
	// gen_ai.tool.call.arguments and result alone: what is big is not sent twice. See [CutPart].
	Parts []session.Part `json:"parts,omitempty"`
	// Blobs are prompts and catalogs that no other span of the session has.
	Blobs []store.Blob `json:"blobs,omitempty"`
	// Decision is a row of permission_decisions.
	Decision *store.Decision `json:"decision,omitempty"`
	// Annotations are rows of annotations.
	Annotations []store.Annotation `json:"annotations,omitempty"`
}

// EmbeddedSpan is a row of span_refs, without what the span itself has.
type EmbeddedSpan struct {
	Kind      string `json:"kind"`
	Dialect   string `json:"dialect"`
	MessageID string `json:"message_id,omitempty"`
	PartID    string `json:"part_id,omitempty"`
}

// Described is what a span's own attributes report of it: its session, and the row of span_refs of a span of the SDK.
func Described(record spans.SpanData) (sessionID string, s EmbeddedSpan) {
	s = EmbeddedSpan{Kind: record.Kind(), Dialect: store.DialectSDK}
	switch r := record.(type) {
	case *spans.Run:
		sessionID = r.SessionID
	case *spans.Turn:
		sessionID, s.MessageID = r.SessionID, r.Assistant.ID
	case *spans.ToolCall:
		sessionID, s.MessageID, s.PartID = r.SessionID, r.MessageID, r.PartID
	case *spans.Compaction:
		sessionID, s.MessageID, s.PartID = r.SessionID, r.MessageID, r.PartID
	case *spans.Permission:
		sessionID, s.MessageID, s.PartID = r.SessionID, r.MessageID, r.PartID
	case *spans.ModelCall:
		sessionID, s.MessageID = r.SessionID, r.MessageID
	}
	return sessionID, s
}

// Encode returns the attribute.
func (r *EmbeddedRows) Encode() (string, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("write rows: %w", err)
	}
	return string(b), nil
}

// The bytes in the data of a part in the place of values that were cut out: no JSON has them.
const inputMark, outputMark = "\x01", "\x02"

// CutPart takes the raw JSON values of input and output, each of which may be empty, out of the data of a part. Where
// another member has the same text, that is cut out instead, which comes to the same when it is put back.
func CutPart(p *session.Part, input, output string) {
	for _, v := range [][3]string{{`"input":`, input, inputMark}, {`"output":`, output, outputMark}} {
		if v[1] != "" {
			p.DataJSON = strings.Replace(p.DataJSON, v[0]+v[1], v[0]+v[2], 1)
		}
	}
}

// wholePart returns the data of a part with the values that were cut out, and whether any were.
func wholePart(p *session.Part, input, output string) (data string, cut bool) {
	if !strings.ContainsAny(p.DataJSON, inputMark+outputMark) {
		return p.DataJSON, false
	}
	return strings.NewReplacer(inputMark, input, outputMark, output).Replace(p.DataJSON), true
}

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
	case strings.Contains(carried, `\u0000`) && nul().MatchString(carried): // a text may be long
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
	o.texts(t)
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
var nul = lazy.Regexp(`(?:^|[^\\])(?:\\\\)*\\u0000`)
