// Package session defines the canonical session: the rows of its three tables, their JSON
// form, and the arithmetic and invariants that connect them.
//
// A session is a conversation with an agent. It consists of a [Session] row, the [Message] rows of that session in
// order of (created_at, id), and the [Part] rows of each message in order of index. The columns are those of the agent
// guide's three tables and its reference implementation. A value here equals the row byte for byte: JSON columns stay
// text.
//
// Files that all who keep sessions write, so that a reader finds them whole, are put in their places here, too: see
// [ReplaceFiles].
//
// The package imports the standard library only. It does not depend on telemetry, stores,
// or file formats other than the canonical JSON.
package session

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Session is one row of chat_sessions.
//
// Times are Unix milliseconds. An optional text column is nil if the source did not
// report a value, which is different from the empty string.
type Session struct {
	// ID identifies the session. The SDK creates ids of the form "ses_…".
	ID string `json:"id"`

	// Title is [Untitled] until a source reports a title.
	Title string `json:"title"`

	// Agent is the agent that the session was started with. It never changes.
	Agent string `json:"agent"`

	WorkspaceID   *string `json:"workspace_id"`
	WorkspaceRoot *string `json:"workspace_root"`

	// ModelJSON is the most recently active [Model] as a JSON object.
	ModelJSON *string `json:"model_json"`

	// Mode is the host's permission or planning mode, as the host names it.
	Mode *string `json:"mode"`

	// ParentID and ParentMessageID are the session and message from which a fork or a sub-agent started.
	ParentID        *string `json:"parent_id"`
	ParentMessageID *string `json:"parent_message_id"`

	// PermissionsJSON is a JSON array of [Rule], with session rules only.
	PermissionsJSON string `json:"permissions_json"`

	// MetadataJSON is a JSON object; our own keys are below "agenttrace".
	MetadataJSON string `json:"metadata_json"`

	// Five disjoint buckets, summed over the assistant messages that are now in the model's context, and their sum.
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	ReasoningTokens  int64 `json:"reasoning_tokens"`
	CacheRead        int64 `json:"cache_read"`
	CacheWrite       int64 `json:"cache_write"`
	TotalTokens      int64 `json:"total_tokens"`

	// CostUSD is the sum of the reported costs, including hidden and compacted messages.
	// It is a cache, and never computed from prices.
	CostUSD float64 `json:"cost_usd"`

	CreatedAt  int64  `json:"created_at"`
	UpdatedAt  int64  `json:"updated_at"`
	ArchivedAt *int64 `json:"archived_at"`
}

// Untitled is the title of a session until a source reports one.
const Untitled = "New Chat"

// Roles of a [Message].
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleSystem    = "system"
)

// Message is one row of chat_messages.
type Message struct {
	ID           string `json:"id"`
	SessionID    string `json:"session_id"`
	Role         string `json:"role"`
	MetadataJSON string `json:"metadata_json"`

	// HiddenAt is set if a rewind hid the message; the row is kept.
	HiddenAt *int64 `json:"hidden_at"`

	CreatedAt int64 `json:"created_at"`
	UpdatedAt int64 `json:"updated_at"`
}

// Compare orders messages of one session by (created_at, id). Ids alone have no order,
// because their 12-digit stamp wraps every 795 days.
func (m *Message) Compare(o *Message) int {
	return cmp.Or(cmp.Compare(m.CreatedAt, o.CreatedAt), cmp.Compare(m.ID, o.ID))
}

// Tool states of a [Part], in the order in which a call goes through them.
const (
	StateInputStreaming    = "input-streaming"
	StateInputAvailable    = "input-available"
	StateApprovalRequested = "approval-requested"
	StateApprovalResponded = "approval-responded"
	StateOutputAvailable   = "output-available"
	StateOutputError       = "output-error"
	StateOutputDenied      = "output-denied"
)

// StateRank orders tool states: a later state takes precedence over an earlier one. The three output states are final.
// Among them an error ranks above a result, so a failure that one of two sources reports is not hidden. Unknown states
// and the empty one have rank 0.
func StateRank(state string) int { return slices.Index(stateOrder, state) + 1 }

var stateOrder = []string{StateInputStreaming, StateInputAvailable, StateApprovalRequested, StateApprovalResponded,
	StateOutputAvailable, StateOutputDenied, StateOutputError}

// Part is one row of chat_parts.
type Part struct {
	ID        string `json:"id"`
	MessageID string `json:"message_id"`
	SessionID string `json:"session_id"`

	// Index orders the parts of a message. It may have gaps where a part never arrived.
	Index int64 `json:"index"`

	// Type is the AI SDK part type: text, reasoning, tool-<name>, dynamic-tool,
	// file, source-url, source-document, step-start or data-<name>.
	Type string `json:"type"`

	// DataJSON is the full AI SDK UIMessagePart.
	DataJSON string `json:"data_json"`

	// ToolCallID and ToolState repeat values of DataJSON, for tool parts.
	ToolCallID *string `json:"tool_call_id"`
	ToolState  *string `json:"tool_state"`

	ContinuationRunID *string `json:"continuation_run_id"`

	CreatedAt int64 `json:"created_at"`
	UpdatedAt int64 `json:"updated_at"`
}

// Transcript is a session with its messages and parts, in canonical form.
type Transcript struct {
	Session  Session           `json:"session"`
	Messages []MessageAndParts `json:"messages"`
}

// MessageAndParts is a message with its parts in order of index.
type MessageAndParts struct {
	Message Message `json:"message"`
	Parts   []Part  `json:"parts"`
}

// Model is the model that generated a message, or the last one of a session.
type Model struct {
	ProviderID string `json:"provider_id,omitempty"`
	ModelID    string `json:"model_id,omitempty"`
	Variant    string `json:"variant,omitempty"`
}

// Rule is a permission rule. The most specific match decides; without a match, the action is ask.
type Rule struct {
	// Permission is a tool id, a capability, or "*".
	Permission string `json:"permission"`
	// Pattern is a glob over the call's subject, such as a command or a path.
	Pattern string `json:"pattern"`
	// Action is allow, deny or ask.
	Action string `json:"action"`
	// Source is manifest, session or project.
	Source string `json:"source,omitempty"`
	// AddedAt is in Unix milliseconds.
	AddedAt int64 `json:"added_at,omitempty"`
}

// MessageMetadata has the keys of a message's metadata_json that this project uses. It is
// for reading: code that rewrites the column must keep unknown keys.
type MessageMetadata struct {
	Model              *Model `json:"model,omitempty"`
	Agent              string `json:"agent,omitempty"`
	Usage              *Usage `json:"usage,omitempty"`
	SystemPromptDigest string `json:"system_prompt_digest,omitempty"`

	// Compaction reports that the message is that of a compaction, and that Usage is the
	// size of its summary. See [MessageMetadata.Tokens].
	Compaction bool `json:"compaction,omitempty"`

	// Trace has the values for which the guide has no key.
	Trace MessageTrace `json:"agenttrace,omitzero"`
}

// MessageTrace is the "agenttrace" object of a message's metadata_json.
type MessageTrace struct {
	// Incomplete reports that the span that describes the whole message has not arrived:
	// the content is correct, but more may arrive.
	Incomplete bool `json:"incomplete,omitempty"`

	// TurnIndex counts the session's turns from 0.
	TurnIndex *int64 `json:"turn_index,omitempty"`

	// EndReason is finish, abort or error. StopReason is the one that the model reported.
	EndReason  string `json:"end_reason,omitempty"`
	StopReason string `json:"stop_reason,omitempty"`
	// StopReasonRaw is the source's own value if StopReason is a normalized one.
	StopReasonRaw string `json:"stop_reason_raw,omitempty"`

	// PendingApproval reports that the turn ended to wait for a person.
	PendingApproval bool `json:"pending_approval,omitempty"`

	// ModelCalls is the number of model calls of the message.
	ModelCalls int64 `json:"model_calls,omitempty"`

	// DurationMS is the turn's, in milliseconds.
	DurationMS *int64 `json:"duration_ms,omitempty"`

	Temperature *float64 `json:"temperature,omitempty"`

	// ToolCatalogDigest refers to a row of tool_catalogs.
	ToolCatalogDigest string `json:"tool_catalog_digest,omitempty"`

	// CostUSD is the cost of the turn that the source reported.
	CostUSD *float64 `json:"cost_usd,omitempty"`

	// UsageBasis is how the source counted: inclusive, exclusive, or mixed, where the input excludes the cache and the
	// output includes the reasoning. UsageRaw is the source's own counts.
	UsageBasis string          `json:"usage_basis,omitempty"`
	UsageRaw   json.RawMessage `json:"usage_raw,omitempty"`

	// Usage is the usage of the call that made the summary of a compaction. InputTokens
	// and OutputTokens are set instead if the source counts only these.
	Usage        *Usage `json:"usage,omitempty"`
	InputTokens  *int64 `json:"input_tokens,omitempty"`
	OutputTokens *int64 `json:"output_tokens,omitempty"`

	// Error is the error that ended the turn if EndReason is error.
	Error string `json:"error,omitempty"`

	// ModelErrors are the last few errors of the message's model calls, in order. The
	// agent may have recovered from them.
	ModelErrors []string `json:"model_errors,omitempty"`

	// ResponseID and ResponseModel are the provider's, if one model call represents the message.
	ResponseID    string `json:"response_id,omitempty"`
	ResponseModel string `json:"response_model,omitempty"`

	// SourceID is the source's id of the message, if it differs from ours. TurnID is the source's id of the turn,
	// which all messages of a turn share. TraceID is the trace that the source names for the turn.
	SourceID string `json:"source_id,omitempty"`
	TurnID   string `json:"turn_id,omitempty"`
	TraceID  string `json:"trace_id,omitempty"`

	// History is what the first request of the turn repeats of the conversation before it,
	// if the source reports whole requests.
	History *History `json:"history,omitempty"`

	// Sources are the instrumentations that report the message, and "<agent> transcript"
	// for the program's own transcript, if both report it.
	Sources []string `json:"sources,omitempty"`

	// Steps are the message's model calls in order, if the source reports each. The parts
	// of a step begin with a part of type step-start.
	Steps []Step `json:"steps,omitempty"`

	// Problems are problems of the telemetry, such as a value of the wrong type or truncated JSON.
	Problems []string `json:"problems,omitempty"`
}

// History counts the messages that a request repeats, without system messages. Both
// counts are 0 if it is only known that there are some.
type History struct {
	Messages int64 `json:"messages"`
	// Turns counts the user messages among them; consecutive ones count once.
	Turns int64 `json:"turns"`
}

// Step is one model call of an assistant message. Fields that the source does not report are empty.
type Step struct {
	// ResponseID and RequestID are the provider's.
	ResponseID string `json:"response_id,omitempty"`
	RequestID  string `json:"request_id,omitempty"`
	// Model is set if it differs from the message's.
	Model *Model `json:"model,omitempty"`
	Usage *Usage `json:"usage,omitempty"`
	// StopReason is the one that the model reported.
	StopReason string `json:"stop_reason,omitempty"`
	// StartedAt is in Unix milliseconds.
	StartedAt int64 `json:"started_at,omitempty"`
}

// StepsOfModels returns the steps of a message, nil unless they are of several models and come to what it used. A model
// that is the message's is left out. It changes steps.
func StepsOfModels(of *Model, used *Usage, steps []Step) []Step {
	var sum Usage
	models := make(map[string]bool)
	for i := range steps {
		m := steps[i].Model
		if sum = sum.Add(Deref(steps[i].Usage)); m != nil && m.ModelID != "" {
			models[m.ModelID] = true
		}
		if m != nil && of != nil && m.ModelID == of.ModelID {
			steps[i].Model = nil
		}
	}
	if len(models) < 2 || sum != Deref(used) {
		return nil
	}
	return steps
}

// ToolTrace is the object "agenttrace" in a part's metadata: it has the values for which the
// AI SDK's part has no field. Most of them are of tool calls.
type ToolTrace struct {
	// DurationMS is the duration of the execution. StartedAt is when it began, in Unix milliseconds, if that is not
	// when the call was announced, which the part's created_at is.
	DurationMS *int64 `json:"duration_ms,omitempty"`
	StartedAt  int64  `json:"started_at,omitempty"`
	// Kind is the kind of tool, with the values of the Agent Client Protocol.
	Kind string `json:"kind,omitempty"`
	// Denied reports that the call was refused and not executed.
	Denied bool `json:"denied,omitempty"`
	// Inferred reports that the duration goes from the end of the answer that requested the
	// call to the request with its result.
	Inferred bool `json:"inferred,omitempty"`
	// Truncated reports that the output was truncated. OutputPath is where the whole
	// output is, OutputSize its size in bytes, OutputSHA256 its digest.
	Truncated    bool   `json:"truncated,omitempty"`
	OutputPath   string `json:"output_path,omitempty"`
	OutputSize   int64  `json:"output_size,omitempty"`
	OutputSHA256 string `json:"output_sha256,omitempty"`
	// Size is the size in bytes of a text or a file that was truncated.
	Size int64 `json:"size,omitempty"`
	// ChildSessionID is the session that the call started.
	ChildSessionID string `json:"child_session_id,omitempty"`
	ErrorType      string `json:"error_type,omitempty"`
	// PartialOutput is the output of a failed call before its error.
	PartialOutput string `json:"partial_output,omitempty"`
	// Withheld reports that the call succeeded and no source reports its output, InputWithheld that none reports its
	// input; the value is then null. A null without these marks is the actual input or output.
	Withheld      bool     `json:"withheld,omitempty"`
	InputWithheld bool     `json:"input_withheld,omitempty"`
	Problems      []string `json:"problems,omitempty"`

	// Stub reports that the span of the call has not arrived; State is then the last state
	// that its turn reports. Live reports that a later report will replace the part.
	Stub  bool   `json:"stub,omitempty"`
	State string `json:"state,omitempty"`
	Live  bool   `json:"live,omitempty"`
}

// Usage is a count of tokens in five disjoint buckets.
type Usage struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	Reasoning  int64 `json:"reasoning"`
	CacheRead  int64 `json:"cache_read"`
	CacheWrite int64 `json:"cache_write"`
}

// Total is the sum of the five buckets.
func (u Usage) Total() int64 {
	return u.Input + u.Output + u.Reasoning + u.CacheRead + u.CacheWrite
}

func (u Usage) buckets() [5]int64 {
	return [5]int64{u.Input, u.Output, u.Reasoning, u.CacheRead, u.CacheWrite}
}

// Buckets counts the buckets that are not zero.
func (u Usage) Buckets() (n int) {
	for _, b := range u.buckets() {
		if b != 0 {
			n++
		}
	}
	return n
}

// Add returns the bucket-wise sum.
func (u Usage) Add(o Usage) Usage {
	return Usage{u.Input + o.Input, u.Output + o.Output, u.Reasoning + o.Reasoning, u.CacheRead + o.CacheRead,
		u.CacheWrite + o.CacheWrite}
}

// Sub returns the bucket-wise difference.
func (u Usage) Sub(o Usage) Usage {
	return Usage{u.Input - o.Input, u.Output - o.Output, u.Reasoning - o.Reasoning, u.CacheRead - o.CacheRead,
		u.CacheWrite - o.CacheWrite}
}

// Usage returns the session's rollup: the usage of the messages that are now in the model's context.
// [Transcript.Tokens] returns what the session used.
func (s *Session) Usage() Usage {
	return Usage{s.PromptTokens, s.CompletionTokens, s.ReasoningTokens, s.CacheRead, s.CacheWrite}
}

// SetUsage stores the rollup and its total.
func (s *Session) SetUsage(u Usage) {
	s.PromptTokens, s.CompletionTokens, s.ReasoningTokens = u.Input, u.Output, u.Reasoning
	s.CacheRead, s.CacheWrite, s.TotalTokens = u.CacheRead, u.CacheWrite, u.Total()
}

// Deref returns what p points to, or the zero value if p is nil: the value of an optional column.
func Deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Digest is that of a text which rows have once, in hexadecimal digits.
func Digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Object reads a JSON object; what is none is an empty one.
func Object[T ~string | ~[]byte](text T) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &m) != nil || m == nil {
		return make(map[string]json.RawMessage)
	}
	return m
}

// IDs are the ids of sessions, in their order.
func IDs(rows []Session) []string {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	return ids
}

// Sum adds two amounts, of which nil is unknown and counts as nothing.
func Sum[T any](a, b *T, add func(a, b T) T) *T {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	sum := add(*a, *b)
	return &sum
}

// AppendJSON appends the row as a JSON object: see [Columns.AppendJSON].
func (s *Session) AppendJSON(dst []byte) []byte { return SessionColumns().AppendJSON(dst, s) }

// AppendJSON appends the row as a JSON object: see [Columns.AppendJSON].
func (m *Message) AppendJSON(dst []byte) []byte { return MessageColumns().AppendJSON(dst, m) }

// AppendJSON appends the row as a JSON object: see [Columns.AppendJSON].
func (p *Part) AppendJSON(dst []byte) []byte { return PartColumns().AppendJSON(dst, p) }

// DecodeJSON sets s to a row in canonical JSON, from AppendJSON or another writer. It does not retain data.
//
// Edge cases: a column that is absent, or null although it must not be, gets the default of the table, so output of a
// writer that knows only the guide's columns is accepted. Unknown keys are ignored. A row without an id, a value of
// the wrong type, or anything other than one JSON object is an error, and leaves s undefined.
func (s *Session) DecodeJSON(data []byte) error {
	*s = Session{Title: Untitled, PermissionsJSON: "[]", MetadataJSON: "{}"}
	return SessionColumns().DecodeJSON(data, s, "id")
}

// DecodeJSON sets m to the row in data, like [Session.DecodeJSON]. The row needs an id and a session_id.
func (m *Message) DecodeJSON(data []byte) error {
	*m = Message{MetadataJSON: "{}"}
	return MessageColumns().DecodeJSON(data, m, "id", "session_id")
}

// DecodeJSON sets p to the row in data, like [Session.DecodeJSON]. The row needs an id, a message_id and a session_id.
func (p *Part) DecodeJSON(data []byte) error {
	*p = Part{}
	return PartColumns().DecodeJSON(data, p, "id", "message_id", "session_id")
}

// Sorted returns a copy of t with its messages in order of (created_at, id) and the parts of each in order of (index,
// id): the order in which every canonical format writes them. The copy shares the strings of the rows.
func (t *Transcript) Sorted() *Transcript {
	byPlace := func(a, b *MessageAndParts) int { return a.Message.Compare(&b.Message) }
	c := &Transcript{Session: t.Session, Messages: SortedRows(t.Messages, byPlace)}
	for i := range c.Messages {
		m := &c.Messages[i]
		m.Parts = SortedRows(m.Parts, comparePart)
	}
	return c
}

// SortedRows returns a sorted copy of rows, of which those that are equal keep their order. Rows are large:
// [slices.SortStableFunc] of each type of them is 20 KB of code, and copies two for each comparison.
func SortedRows[Row any](rows []Row, compare func(a, b *Row) int) []Row {
	sorted, order := slices.Clone(rows), make([]*Row, len(rows))
	for i := range rows {
		order[i] = &rows[i]
	}
	slices.SortStableFunc(order, compare)
	for i, row := range order {
		sorted[i] = *row
	}
	return sorted
}

// CheckTree reports the first row that has no id, that is below a row other than the one it names, or that has the id
// of another message. No canonical format can represent these. The error names the place, such as
// messages[3].parts[0]. [Check] reports everything else.
func (t *Transcript) CheckTree() error {
	if t.Session.ID == "" {
		return errors.New("session has no id")
	}
	seen := make(map[string]struct{}, len(t.Messages))
	for i := range t.Messages {
		m := &t.Messages[i].Message
		switch _, twice := seen[m.ID]; {
		case m.ID == "":
			return fmt.Errorf("messages[%d] has no id", i)
		case m.SessionID != t.Session.ID:
			return fmt.Errorf("messages[%d]: message %s belongs to session %q and is below %s", i, m.ID, m.SessionID,
				t.Session.ID)
		case twice:
			return fmt.Errorf("messages[%d]: message %s is there twice", i, m.ID)
		}
		seen[m.ID] = struct{}{}
		for j := range t.Messages[i].Parts {
			p := &t.Messages[i].Parts[j]
			switch {
			case p.ID == "":
				return fmt.Errorf("messages[%d].parts[%d] has no id", i, j)
			case p.MessageID != m.ID:
				return fmt.Errorf("messages[%d].parts[%d]: part %s belongs to message %q and is below %s",
					i, j, p.ID, p.MessageID, m.ID)
			case p.SessionID == "":
				return fmt.Errorf("messages[%d].parts[%d]: part %s has no session_id", i, j, p.ID)
			}
		}
	}
	return nil
}

func comparePart(a, b *Part) int {
	return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID))
}

// appendFloat writes f as ECMAScript's Number.toString does, as encoding/json too.
func appendFloat(dst []byte, f float64) []byte {
	text, err := json.Marshal(f)
	if err != nil || f == 0 { // not a number that JSON has, or -0
		return append(dst, '0')
	}
	return append(dst, text...)
}
