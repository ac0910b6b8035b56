// Package rows builds the canonical rows of a session from the records of a
// foreign format, in the order in which they come.
package rows

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// Session is a session being built. It is not safe for concurrent use.
type Session struct {
	Row       session.Session
	Decisions []store.Decision
	Blobs     []store.Blob

	Meta
	Messages  []*Message // in the order of their making
	Answers   []*Answer
	open      *Answer // that goes on, nil after another message
	seen      bool    // low and high hold something
	low, high int64   // of everything seen, in Unix milliseconds
}

// Message is a message being built.
type Message struct {
	Row     session.Message
	s       *Session
	ordinal int    // among the messages of the session, in the order of their making
	place   uint64 // among those of the same time
	parts   []*Part
	Meta
}

// Meta becomes the metadata_json of a row.
type Meta struct{ meta Object }

// SetMeta sets a key.
func (m *Meta) SetMeta(key string, v any) { m.meta.Set(key, v) }

// AddMeta sets the keys of o.
func (m *Meta) AddMeta(o Object) { m.meta.Add(o) }

// MetaOf returns a key as an object.
func (m *Meta) MetaOf(key string) Object { return m.meta.Object(key) }

// Part is a part being built. Its row has no data_json before the session is finished.
type Part struct {
	Row session.Part
	In  *Message

	data Object
}

// New starts a session. Its ids are derived from the session's, so the same records give the same rows.
func New(id, agent string) *Session {
	return &Session{
		Row: session.Session{ID: id, Title: session.Untitled, Agent: agent, PermissionsJSON: "[]"},
	}
}

// LastAt returns the time of the last message, 0 without messages.
func (s *Session) LastAt() int64 {
	if n := len(s.Messages); n > 0 {
		return s.Messages[n-1].Row.CreatedAt
	}
	return 0
}

// See reports that something happened in the session at a time.
func (s *Session) See(at int64) {
	if !s.seen {
		s.seen, s.low, s.high = true, at, at
	}
	s.low, s.high = min(s.low, at), max(s.high, at)
}

// Blob adds a text of which messages have the digest, and returns that.
func (s *Session) Blob(kind store.BlobKind, body string, exact bool) (digest string) {
	b := store.Blob{Kind: kind, Digest: session.Digest(body), Body: body, Exact: exact}
	if !slices.Contains(s.Blobs, b) {
		s.Blobs = append(s.Blobs, b)
	}
	return b.Digest
}

// SetText sets a column that may be null, unless the text is empty.
func SetText(column **string, text string) {
	if text != "" {
		*column = &text
	}
}

// Message adds a message. Messages are in order of time; where the clock of
// the source stepped back, the message has the time of the one before it.
func (s *Session) Message(role string, at int64) *Message {
	ordinal, place := len(s.Messages), uint64(0)
	if ordinal > 0 {
		last := s.Messages[ordinal-1]
		if at = max(at, last.Row.CreatedAt); at == last.Row.CreatedAt {
			place = last.place + 1
		}
	}
	m := &Message{s: s, ordinal: ordinal, place: place}
	m.Row = session.Message{
		ID:        stamped(spans.PrefixMessage, uint64(at)<<12+place, s.Row.ID, "message", strconv.Itoa(ordinal)),
		SessionID: s.Row.ID, Role: role, CreatedAt: at, UpdatedAt: at,
	}
	s.Messages = append(s.Messages, m)
	s.open = nil
	return m
}

// Answer returns the message of the assistant that goes on, or begins one, where it ends with the next message.
func (s *Session) Answer(at int64) (a *Answer, begun bool) {
	if s.open != nil {
		return s.open, false
	}
	a = &Answer{Message: s.Message(session.RoleAssistant, at)}
	s.open, s.Answers = a, append(s.Answers, a)
	return a, true
}

// Break has what the assistant goes on with be another message.
func (s *Session) Break() { s.open = nil }

// stamped is [spans.DeriveID] with a stamp of its own, whose low 12 bits order what has one time.
func stamped(prefix string, stamp uint64, parts ...string) string {
	id := spans.DeriveID(prefix, 0, parts...)
	n := len(prefix)
	return fmt.Sprintf("%s%012x%s", prefix, stamp&(1<<48-1), id[n+12:])
}

// traceKey is the key of what agenttrace adds to the metadata of a message.
const traceKey = "agenttrace"

// SetTrace sets a key of the "agenttrace" object of the message's metadata_json.
func (m *Message) SetTrace(key string, v any) { m.AddTrace(Of(key, v)) }

// AddTrace sets keys of the "agenttrace" object of the message's metadata_json.
func (m *Message) AddTrace(o Object) {
	if trace := m.MetaOf(traceKey); len(o) > 0 {
		trace.Add(o)
		m.meta.Set(traceKey, trace)
	}
}

// Failed adds the error of a model call that was tried again. The last few are kept.
func (m *Message) Failed(text string) {
	const maximum = 5
	all := append(Elements(m.MetaOf("agenttrace").Get("model_errors")), Raw(text))
	m.SetTrace("model_errors", all[max(0, len(all)-maximum):])
}

// Touch reports that the message changed at a time.
func (m *Message) Touch(at int64) { m.Row.UpdatedAt = max(m.Row.UpdatedAt, at) }

// Parts returns the parts in order.
func (m *Message) Parts() []*Part { return m.parts }

// Cut removes the parts from the one at place n on. The session's last message goes
// with its parts when n is 0; others keep at least the row.
func (m *Message) Cut(n int) {
	m.parts = m.parts[:n]
	if last := len(m.s.Messages) - 1; n == 0 && m.s.Messages[last] == m {
		m.s.Messages = m.s.Messages[:last]
	}
}

// Last returns the last part, nil when there is none.
func (m *Message) Last() *Part {
	if len(m.parts) == 0 {
		return nil
	}
	return m.parts[len(m.parts)-1]
}

// Part adds a part. The type is the data's.
func (m *Message) Part(data Object, at int64) *Part {
	index := int64(0)
	if last := m.Last(); last != nil {
		index = last.Row.Index + 1
	}
	p := &Part{In: m}
	p.Row = session.Part{
		ID: spans.DeriveID(spans.PrefixPart, at, m.s.Row.ID, strconv.Itoa(m.ordinal),
			strconv.FormatInt(index, 10)),
		MessageID: m.Row.ID, SessionID: m.s.Row.ID, Index: index, CreatedAt: at, UpdatedAt: at,
	}
	p.Set(data)
	m.parts = append(m.parts, p)
	m.Touch(at)
	return p
}

// Set gives the part its data, and the columns that repeat it. The text that an export
// writes for a value that is withheld is not the value.
func (p *Part) Set(data Object) {
	if isWithheld(data.Get("text")) && data.Text("type") == "text" {
		data = DataPart(session.TypeWithheld, session.Absence{Text: "the text was not reported"})
	}
	p.Row.Type = data.Text("type")
	p.Row.ToolCallID, p.Row.ToolState = nil, nil
	p.data = slices.Clone(data)
	if session.IsToolType(p.Row.Type) {
		p.Row.ToolCallID, p.Row.ToolState = new(data.Text("toolCallId")), new(data.Text("state"))
		if isWithheld(data.Get("input")) {
			p.data.Set("input", nil)
		}
		if isWithheld(data.Get("output")) {
			p.data.Set("output", nil)
			p.data.SetToolTrace("withheld", true)
		}
	}
}

// SetToolTrace sets a key of what the AI SDK's tool part has no field for; see [session.ToolTrace].
func (o *Object) SetToolTrace(key string, v any) {
	meta := o.Object("toolMetadata")
	trace := meta.Object(traceKey)
	trace.Set(key, v)
	meta.Set(traceKey, trace)
	o.Set("toolMetadata", meta)
}

// SetToolTrace sets a key of what the AI SDK's tool part has no field for.
func (p *Part) SetToolTrace(key string, v any) {
	data := p.Data()
	data.SetToolTrace(key, v)
	p.Set(data)
}

// Data returns the part's data, which the caller may change.
func (p *Part) Data() Object { return slices.Clone(p.data) }

// SetKey sets a key of the part's data.
func (p *Part) SetKey(key string, v any) {
	data := p.Data()
	data.Set(key, v)
	p.Set(data)
}

// SetInner sets a key of the object that a data part has.
func (p *Part) SetInner(key string, v any) {
	inner := p.data.Object("data")
	inner.Set(key, v)
	p.SetKey("data", inner)
}

// textOf returns the object as text, which is not copied.
func textOf(o Object) string {
	b := o.JSON()
	return unsafe.String(unsafe.SliceData(b), len(b)) // nothing else has it
}

// Touch reports that the part changed at a time.
func (p *Part) Touch(at int64) {
	p.Row.UpdatedAt = max(p.Row.UpdatedAt, at)
	p.In.Touch(at)
}

// Input is the input of a tool call as the data of its part has it, or a text that reports that the source withheld it.
func Input(p *session.Part, data Object) json.RawMessage {
	withheld, _ := codec.Withheld(p)
	return orWithheld(withheld, data.Get("input"))
}

// Output is the output of a tool call as the data of its part has it, or a text that says that the source withheld it.
func Output(data Object) json.RawMessage {
	withheld := string(data.Object("toolMetadata").Object("agenttrace").Get("withheld")) == "true"
	return orWithheld(withheld && data.Text("state") == session.StateOutputAvailable, data.Get("output"))
}

func orWithheld(withheld bool, value json.RawMessage) json.RawMessage {
	if withheld {
		value, _ = Marshal(codec.WithheldText) // a string always has JSON
	}
	return value
}

// Finish returns the session. The builder is not to be used again.
func (s *Session) Finish() *codec.Session {
	for _, a := range s.Answers {
		a.Finish()
	}
	s.Row.MetadataJSON = textOf(s.meta)
	s.Row.CreatedAt, s.Row.UpdatedAt = s.low, s.high
	t := &session.Transcript{Session: s.Row, Messages: make([]session.MessageAndParts, 0, len(s.Messages))}
	for _, m := range s.Messages {
		m.Row.MetadataJSON = textOf(m.meta)
		mp := session.MessageAndParts{Message: m.Row, Parts: make([]session.Part, 0, len(m.parts))}
		for _, p := range m.parts {
			p.Row.DataJSON = textOf(p.data)
			mp.Parts = append(mp.Parts, p.Row)
		}
		t.Messages = append(t.Messages, mp)
	}
	t = t.Sorted()
	if len(t.Messages) == 0 {
		t.Messages = nil
	}
	t.Session.SetUsage(t.ContextUsage())
	return &codec.Session{Transcript: t, Decisions: jsonl.SortedDecisions(s.Decisions), Blobs: s.Blobs}
}

// MaxTime is the end of the year 9999 in Unix milliseconds, the last that most programs can read.
const MaxTime = 253402300799999

// Milli reads a number of Unix milliseconds.
func Milli(raw json.RawMessage) (at int64, ok bool) {
	at, err := strconv.ParseInt(string(raw), 10, 64)
	return at, err == nil && at >= 0 && at <= MaxTime
}

// Count reads a number of tokens. It takes none of which a sum could overflow.
func Count(raw json.RawMessage) (n int64, ok bool) {
	const maximum = 1 << 54
	n, err := strconv.ParseInt(strings.TrimSuffix(string(raw), ".0"), 10, 64) // Python may write a float
	return n, err == nil && n >= 0 && n <= maximum
}

// USD reads an amount of money, nil if it is not one.
func USD(raw json.RawMessage) *float64 {
	usd, err := json.Number(raw).Float64()
	if err != nil || !(usd >= 0) || usd >= 1e9 {
		return nil
	}
	return &usd
}

// FormatTime writes a time in Unix milliseconds as JavaScript's toISOString does.
func FormatTime(milli int64) string {
	return time.UnixMilli(milli).UTC().Format("2006-01-02T15:04:05.000Z")
}

// ParseTime reads a time from 1970 to 9999, of one without a zone in UTC, in Unix milliseconds.
func ParseTime(s string) (milli int64, ok bool) { return ParseTimeIn(s, time.UTC) }

// ParseTimeIn is ParseTime with another zone for times without one.
func ParseTimeIn(s string, zone *time.Location) (milli int64, ok bool) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02T15:04:05",
		time.DateTime} {
		t, err := time.ParseInLocation(layout, s, zone)
		if milli = t.UnixMilli(); err == nil && milli >= 0 && milli <= MaxTime {
			return milli, true
		}
	}
	return 0, false
}

// OrNull returns the value, or null where there is none.
func OrNull(v json.RawMessage) json.RawMessage {
	if v == nil {
		return json.RawMessage("null")
	}
	return v
}

// Data is the data of a part, of a text that is withheld the text that reports it.
func Data(p *session.Part) Object {
	if p.Type == session.TypeWithheld {
		return TextPart("text", codec.WithheldText)
	}
	return Read(p.DataJSON)
}

// TextPart is the data of a text or reasoning part.
func TextPart(partType, text string) Object { return Of("type", partType, "text", text) }

// DataPart is the data of a data part.
func DataPart(partType string, data any) Object { return Of("type", partType, "data", data) }

// CompactionPart is the data of a part for a compaction of which the source reports the summary only.
func CompactionPart(summary string, auto bool) Object {
	return DataPart(session.TypeCompaction, Of("summary", summary, "tail_start_id", nil, "auto", auto,
		"summary_tokens", 0))
}

// FilePart is the data of a file part.
func FilePart(mediaType, filename, url string) Object {
	return slices.Concat(Of("type", "file", "mediaType", mediaType), NonEmpty("filename", filename), Of("url", url))
}

// ToolPart begins the data of a tool part. A tool without a name is dynamic.
func ToolPart(name, callID, state string) Object {
	if name == "" {
		return Of("type", "dynamic-tool", "toolName", name, "toolCallId", callID, "state", state)
	}
	return Of("type", "tool-"+name, "toolCallId", callID, "state", state)
}

// ToolName returns the name of the tool that a tool part calls.
func ToolName(data Object) string { return session.ToolName(data.Text("type"), data.Text("toolName")) }
