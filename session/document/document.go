// Package document is a session as its readers see it: turns, their messages, the parts
// and tool calls of these, what they used, what a rewind hid and what is missing.
//
// [Build] makes a [Document] of the rows of a session, and [Load] reads those rows from a store. Everything that shows
// a session reads the same document: package render for a terminal, HTML and Markdown, and "agenttrace show --json",
// which prints it as it is. [Compare] compares two of them.
//
// A document has texts as they are stored. [Sanitize], [Line] and their like make them fit to be shown, without
// characters that a terminal or a browser obeys; others write numbers with units, and JSON as a person reads it.
//
// Nothing is assumed of the rows except that they are rows: sessions of the reference
// program, sessions that are still running and sessions of which half was lost are read
// as what they are. What a source did not report is nil or empty, never zero.
package document

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Document is one session, turn by turn. Its JSON is a stable format: keys are added, never renamed.
type Document struct {
	Session Session `json:"session"`

	// Status is what the session is doing: see [StatusOf].
	Status Status `json:"status"`

	// Turns are in order of time. A turn begins with a user message. Without one are what comes before the first, and a
	// turn of which the question was lost: see Turn.QuestionMissing.
	Turns []*Turn `json:"turns"`

	// Queued are user messages that no turn has begun with yet.
	Queued []*Message `json:"queued,omitempty"`

	Totals Totals `json:"totals"`

	// UnpricedModels are those that [Document.Estimate] found no price for, as
	// provider/model, in order; "" is one that is not named.
	UnpricedModels []string `json:"unpriced_models,omitempty"`

	// Children are sessions that were forked from this one or started by it.
	Children []Child `json:"children,omitempty"`

	// SystemPrompts and ToolCatalogs are what the turns refer to by digest, in order of first use.
	SystemPrompts []*SystemPrompt `json:"system_prompts,omitempty"`
	ToolCatalogs  []*ToolCatalog  `json:"tool_catalogs,omitempty"`

	// Spans are where the rows come from, in order of start.
	Spans []Span `json:"spans,omitempty"`

	// Traces are the trace ids of Spans, in order of first use.
	Traces []string `json:"traces,omitempty"`

	// Decisions are all permission decisions, those that belong to no call in the timeline included.
	Decisions []Decision `json:"decisions,omitempty"`

	// Notices are what is doubtful in the session; nil until [Document.FindNotices].
	Notices []session.Notice `json:"notices,omitempty"`
	// Quality states how much of the session is reported; nil until [Document.FindNotices], and where it is not known.
	Quality *session.Quality `json:"quality,omitempty"`

	// costOfWhole reports that the cost in Totals is stated of the session as a whole.
	costOfWhole bool
}

// Session is the head of a timeline.
type Session struct {
	ID            string         `json:"id"`
	Title         string         `json:"title"`
	Opening       string         `json:"opening,omitempty"` // how the first text of a user begins, if there is no title
	Agent         string         `json:"agent"`
	Model         *session.Model `json:"model,omitempty"`
	Mode          string         `json:"mode,omitempty"`
	WorkspaceID   string         `json:"workspace_id,omitempty"`
	WorkspaceRoot string         `json:"workspace_root,omitempty"`

	// State is what is known of the session's state; see [State].
	State State `json:"state"`
	// Error is what ended the last run when State is [StateError].
	Error string `json:"error,omitempty"`

	// Origin is the session that this one left, if any.
	Origin *Origin `json:"origin,omitempty"`

	// Rules are the permission rules of session scope as they are at the end.
	Rules []session.Rule `json:"rules,omitempty"`

	// Metadata is the row's metadata_json without what other fields have.
	Metadata map[string]json.RawMessage `json:"metadata,omitempty"`

	// Reading is ReadingGeneric of a session whose client no dialect knows.
	Reading string `json:"reading,omitempty"`

	// Annotations are those of the session, and those whose target is gone.
	Annotations []Annotation `json:"annotations,omitempty"`

	// Times are in Unix milliseconds.
	CreatedAt  int64  `json:"created_at"`
	UpdatedAt  int64  `json:"updated_at"`
	ArchivedAt *int64 `json:"archived_at,omitempty"`
}

// Origin reports where a session left its parent.
type Origin struct {
	SessionID string `json:"session_id"`
	MessageID string `json:"message_id,omitempty"`
	// Title is the parent's, when the parent is in the store.
	Title string `json:"title,omitempty"`
	// Fork reports that the session begins with copies of its parent's messages:
	// they are older than the session. A sub-agent's session has none.
	Fork bool `json:"fork,omitempty"`
}

// Child is a session that has this one as its parent.
type Child struct {
	SessionID string `json:"session_id"`
	MessageID string `json:"message_id,omitempty"`
	Title     string `json:"title"`
	Agent     string `json:"agent"`
	// State is how the child's last run ended: see [Item].
	State State `json:"state"`
	// ToolCallID is the call that started the child, when one reports it.
	ToolCallID string `json:"tool_call_id,omitempty"`
	// TotalTokens is what the child used in all: see [session.Tokens].
	TotalTokens int64 `json:"total_tokens"`
	CreatedAt   int64 `json:"created_at"`
	UpdatedAt   int64 `json:"updated_at"`
	Archived    bool  `json:"archived,omitempty"`
}

// Turn is one user message through to a finished answer.
type Turn struct {
	// Number counts the turns of the timeline from 1, rewound ones included, so that it stays what it is when a turn is
	// folded away. It is what commands take.
	Number int `json:"number"`
	// Index is the source's own count, from 0.
	Index *int64 `json:"turn_index,omitempty"`

	// Messages are the user message, what answers it, and compaction markers, in order.
	Messages []*Message `json:"messages"`

	// QuestionMissing reports that the answer belongs to another turn than the one
	// before it and that no user message came with it: its span was lost.
	QuestionMissing bool `json:"question_missing,omitempty"`
	// MissingBefore is set where the source counted turns between the turn before and this one that never arrived.
	MissingBefore *MissingTurns `json:"missing_before,omitempty"`
	// Unrecorded is set where the turn's first request repeats messages that the session
	// does not have: the client resumed a conversation that was not recorded.
	Unrecorded *Unrecorded `json:"unrecorded,omitempty"`

	// FailedCompactions are the errors of compactions that failed in the turn or after it, and no failures of a turn.
	FailedCompactions []string `json:"failed_compactions,omitempty"`

	// Hidden reports that a rewind hid every message of the turn.
	Hidden bool `json:"hidden,omitempty"`

	// The rest is that of the last assistant message that is not hidden (of a hidden turn, of the last one), except for
	// Usage and the costs, which are sums over those messages, hidden ones included.
	State       State          `json:"state,omitempty"`
	Model       *session.Model `json:"model,omitempty"`
	Temperature *float64       `json:"temperature,omitempty"`
	Usage       *session.Usage `json:"usage,omitempty"`
	CostUSD     *float64       `json:"cost_usd,omitempty"`
	// EstimatedCostUSD is of what states no cost, and no part of CostUSD: see [Document.Estimate].
	EstimatedCostUSD *float64 `json:"estimated_cost_usd,omitempty"`
	// Unpriced reports that a message has no price: the costs are not all.
	Unpriced   bool   `json:"unpriced,omitempty"`
	DurationMS *int64 `json:"duration_ms,omitempty"`
	ModelCalls int64  `json:"model_calls,omitempty"`
	StopReason string `json:"stop_reason,omitempty"`
	EndReason  string `json:"end_reason,omitempty"`
	Error      string `json:"error,omitempty"`

	// SystemPromptDigest names one of Document.SystemPrompts. PromptChanged reports
	// that the turn before had another one.
	SystemPromptDigest string `json:"system_prompt_digest,omitempty"`
	PromptChanged      bool   `json:"system_prompt_changed,omitempty"`

	Tools Tools `json:"tools"`

	// Annotations are those of the turn's messages; those of parts are at the parts.
	Annotations []Annotation `json:"annotations,omitempty"`
}

// Copied reports that the session is a fork and has the usage of the turn from its parent, where it counts.
func (t *Turn) Copied() bool {
	if t.Usage == nil {
		return false
	}
	for _, m := range t.Messages {
		if !m.Copied && !m.Marker && m.Usage != nil {
			return false
		}
	}
	return true
}

// MissingTurns are turns that the source counted and that never arrived.
type MissingTurns struct {
	Count int64 `json:"count"`
	// First and Last are the turn_index of the first and the last that can be missing. There are more than Count
	// between them where turns arrived that do not state which they are.
	First int64 `json:"first_turn_index"`
	Last  int64 `json:"last_turn_index"`
}

// Unrecorded is what a request repeats and the session does not have.
type Unrecorded struct {
	// Messages counts all messages that the request repeats, where the session has
	// nothing before the turn, and is 0 where it has some of them.
	Messages int64 `json:"messages,omitempty"`
	// Turns counts what the user reported that the session does not have.
	Turns int64 `json:"turns"`
}

// Tools reports what a turn's model could call, and what it called.
type Tools struct {
	// CatalogDigest names one of Document.ToolCatalogs; empty when the source did not state what was available.
	CatalogDigest string `json:"catalog_digest,omitempty"`
	// Available is nil when the catalog is not known.
	Available []string `json:"available,omitempty"`
	// Called are the tools called, in order of first call.
	Called []*Called `json:"called,omitempty"`
}

// Called counts the calls of one tool.
type Called struct {
	Name   string `json:"name"`
	Calls  int    `json:"calls"`
	Failed int    `json:"failed,omitempty"`
	// Unlisted reports that the catalog is known and does not have the tool, which the provider did not execute: a
	// catalog may have a provider's tools by other names.
	Unlisted bool `json:"unlisted,omitempty"`

	provided bool // the provider executed a call
}

// Message is one message with its parts.
type Message struct {
	ID   string `json:"id"`
	Role string `json:"role"`

	// HiddenAt is when a rewind hid the message, in Unix milliseconds.
	HiddenAt *int64 `json:"hidden_at,omitempty"`
	// QueuedAt and CanceledAt belong to a user message that waits, or waited, for its turn.
	QueuedAt   *int64 `json:"queued_at,omitempty"`
	CanceledAt *int64 `json:"queue_canceled_at,omitempty"`
	// Trigger is what began the turn in place of a human at a keyboard.
	Trigger *Trigger `json:"trigger,omitempty"`

	// TurnIndex is the source's count of turns, from 0.
	TurnIndex *int64 `json:"turn_index,omitempty"`

	State       State          `json:"state,omitempty"`
	Model       *session.Model `json:"model,omitempty"`
	Agent       string         `json:"agent,omitempty"`
	Temperature *float64       `json:"temperature,omitempty"`
	// Usage is what the calls of models behind the message used, for the message of a compaction the call that made the
	// summary; nil when the message states none. See [session.MessageTokens].
	Usage      *session.Usage `json:"usage,omitempty"`
	UsageBasis string         `json:"usage_basis,omitempty"`
	CostUSD    *float64       `json:"cost_usd,omitempty"`
	// EstimatedCostUSD is of what states no cost, and no part of CostUSD: see [Document.Estimate].
	EstimatedCostUSD *float64 `json:"estimated_cost_usd,omitempty"`
	DurationMS       *int64   `json:"duration_ms,omitempty"`
	ModelCalls       int64    `json:"model_calls,omitempty"`
	StopReason       string   `json:"stop_reason,omitempty"`
	EndReason        string   `json:"end_reason,omitempty"`
	steps            []session.Step
	Error            string `json:"error,omitempty"`
	// ModelErrors are those of the model calls, in their order, the last few: the message may have got over them.
	ModelErrors []string `json:"model_errors,omitempty"`

	SystemPromptDigest string `json:"system_prompt_digest,omitempty"`
	ToolCatalogDigest  string `json:"tool_catalog_digest,omitempty"`

	// Compaction is set on the message that marks one.
	Compaction *Compaction `json:"compaction,omitempty"`

	// Copied reports that the session is a fork and has the message from its parent, where
	// its tokens and its cost count.
	Copied bool `json:"copied,omitempty"`

	Parts []*Part `json:"parts"`

	// Calls are the model calls that made the message, when spans of them are known.
	Calls []ModelCall `json:"calls,omitempty"`

	// Problems are those of the telemetry, and of the rows themselves.
	Problems []string `json:"problems,omitempty"`

	CreatedAt int64 `json:"created_at"`
	UpdatedAt int64 `json:"updated_at"`

	incomplete bool
	history    *session.History
	// Marker reports that the message is a compaction's and no answer besides.
	Marker  bool `json:"-"`
	counted session.MessageTokens
}

// Trigger is the envelope of a message that no human typed.
type Trigger struct {
	Source     string `json:"source"`
	ScheduleID string `json:"schedule_id,omitempty"`
	DeliveryID string `json:"delivery_id,omitempty"`
}

// Compaction is a summary that replaces everything before it.
type Compaction struct {
	Summary string `json:"summary"`
	// TailStartID is the first message still in context word for word.
	TailStartID string `json:"tail_start_id,omitempty"`
	Auto        bool   `json:"auto"`
	// BeforeStep is the step with which the answer before it went on, 0 if it did not.
	BeforeStep int `json:"before_step,omitempty"`
	// SummaryTokens is what the summary takes of the model's context.
	SummaryTokens int64 `json:"summary_tokens"`
	CompactionCounts
}

// CompactionCounts are what the metadata of a compaction's message has below agenttrace.
type CompactionCounts struct {
	// InputTokens and OutputTokens are what making it used, nil when the source does not
	// count just these; the message's Usage has them in any case.
	InputTokens  *int64 `json:"input_tokens,omitempty"`
	OutputTokens *int64 `json:"output_tokens,omitempty"`
	// ContextBefore and ContextAfter are the sizes, in tokens, of the model's context
	// before and after; 0 when the source does not state them. They are no usage.
	ContextBefore      int64  `json:"context_tokens_before,omitempty"`
	ContextAfter       int64  `json:"context_tokens_after,omitempty"`
	SummarizedMessages int64  `json:"summarized_message_count,omitempty"`
	DurationMS         *int64 `json:"duration_ms,omitempty"`
}

// ModelCall is one request to a model.
type ModelCall struct {
	Model      *session.Model `json:"model,omitempty"`
	Usage      *session.Usage `json:"usage,omitempty"`
	StopReason string         `json:"stop_reason,omitempty"`
	Failed     bool           `json:"failed,omitempty"`
	DurationMS int64          `json:"duration_ms"`
	StartedAt  int64          `json:"started_at"`
	TraceID    string         `json:"trace_id"`
	SpanID     string         `json:"span_id"`
	// Error is that of a call that failed.
	Error string `json:"-"`
}

// Decision is one evaluation of a permission.
type Decision = store.Decision

// SystemPrompt is an assembled system prompt.
type SystemPrompt struct {
	Digest string `json:"digest"`
	// Resolved reports that the body is known.
	Resolved bool `json:"resolved"`
	// Damaged reports that the body arrived cut or altered: its digest is another.
	Damaged bool   `json:"damaged,omitempty"`
	Body    string `json:"body,omitempty"`
	// Turns are the numbers of the turns that had it.
	Turns []int `json:"turns"`
}

// ToolCatalog is the set of tools offered to a model.
type ToolCatalog struct {
	Digest   string `json:"digest"`
	Resolved bool   `json:"resolved"`
	Damaged  bool   `json:"damaged,omitempty"`
	// Tools is what could be read of the body.
	Tools []Tool `json:"tools,omitempty"`
	// Body is the catalog as it was sent.
	Body  string `json:"body,omitempty"`
	Turns []int  `json:"turns"`
}

// Tool is an entry of a catalog.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// InputSchema is the JSON Schema of the input, nil where the catalog has none.
	// The JSON of a timeline has it in the catalog's body.
	InputSchema json.RawMessage `json:"-"`
}

// Span ties a span to the rows that it made.
type Span struct {
	TraceID      string `json:"trace_id"`
	SpanID       string `json:"span_id"`
	ParentSpanID string `json:"parent_span_id,omitempty"`
	Kind         string `json:"kind"`
	Dialect      string `json:"dialect"`
	MessageID    string `json:"message_id,omitempty"`
	PartID       string `json:"part_id,omitempty"`
	StartNano    int64  `json:"start_nano"`
	EndNano      int64  `json:"end_nano"`
	Error        bool   `json:"error,omitempty"`
}

// Totals are sums over the timeline.
type Totals struct {
	Turns     int `json:"turns"`
	Hidden    int `json:"hidden_turns,omitempty"`
	ToolCalls int `json:"tool_calls"`
	// Errors counts the failures of turns, model calls and tool calls, without denied calls: see [session.Failures].
	Errors int `json:"errors,omitempty"`
	// Failed and Denied are among ToolCalls, and exclude each other.
	Failed      int `json:"failed_tool_calls,omitempty"`
	Denied      int `json:"denied_tool_calls,omitempty"`
	Compactions int `json:"compactions,omitempty"`

	// Usage is what the session used in all: see [session.Tokens].
	Usage *session.Usage `json:"usage,omitempty"`
	// CopiedUsage is what its parent used for the messages that a fork copied, and no part of Usage.
	CopiedUsage *session.Usage `json:"copied_usage,omitempty"`
	// Context is the session's rollup: the usage of the messages that are now in the model's context.
	Context session.Usage `json:"context"`
	// CostUSD is what the session's source states that it cost: see [session.Tokens.Cost].
	CostUSD *float64 `json:"cost_usd,omitempty"`
	// EstimatedCostUSD is of what states no cost, and no part of CostUSD: see [Document.Estimate].
	EstimatedCostUSD *float64 `json:"estimated_cost_usd,omitempty"`
	// Unpriced reports that a message has no price: the costs are not all.
	Unpriced bool `json:"unpriced,omitempty"`
	// DurationMS sums the turns that state a duration.
	DurationMS *int64 `json:"duration_ms,omitempty"`
}

// Input is what a timeline is built from. All but Transcript may be empty.
type Input struct {
	Transcript *session.Transcript
	Decisions  []store.Decision
	// Annotations are those of the session; those that are undone are not shown.
	Annotations []store.Annotation
	SpanRefs    []store.SpanRef
	// Blobs are the system prompts and tool catalogs that could be found.
	Blobs    []store.Blob
	Children []session.Session
	// ChildTokens are the tokens of Children by id.
	ChildTokens map[string]store.Spent
	// Parent is the session that Transcript's names as its parent.
	Parent *session.Session
	// Missing counts what no source reports, see [session.Quality]; nil where that is not known.
	Missing map[string]int64
	// Opening is how the first text of a user begins, of a session without a title.
	Opening string
	// Now and IdleTimeout decide which sessions are interrupted: see [StatusOf].
	Now         time.Time
	IdleTimeout time.Duration
}

// Turn returns the turn with the number, or nil.
func (doc *Document) Turn(number int) *Turn {
	return find(doc.Turns, func(t *Turn) bool { return t.Number == number })
}

// NoTurnError is the error for a turn that a session does not have.
type NoTurnError struct {
	SessionID string
	// Number is the turn, Turns the number of turns there are.
	Number, Turns int
}

func (e *NoTurnError) Error() string {
	if e.Turns == 0 {
		return fmt.Sprintf("session %s has no turns", e.SessionID)
	}
	return fmt.Sprintf("session %s has no turn %d; its turns are 1 to %d", e.SessionID, e.Number, e.Turns)
}

// NoTurn returns the error for a turn that the document does not have.
func (doc *Document) NoTurn(number int) error {
	return &NoTurnError{doc.Session.ID, number, len(doc.Turns)}
}

// LastTurn returns the last turn that no rewind hid, or nil.
func (doc *Document) LastTurn() *Turn {
	return lastOf(doc.Turns, func(t *Turn) bool { return !t.Hidden })
}

// Prompt returns the system prompt with the digest, or nil.
func (doc *Document) Prompt(digest string) *SystemPrompt {
	return find(doc.SystemPrompts, func(p *SystemPrompt) bool { return p.Digest == digest })
}

// Catalog returns the tool catalog with the digest, or nil.
func (doc *Document) Catalog(digest string) *ToolCatalog {
	return find(doc.ToolCatalogs, func(c *ToolCatalog) bool { return c.Digest == digest })
}

func find[T any](all []*T, wanted func(*T) bool) *T {
	if i := slices.IndexFunc(all, wanted); i >= 0 {
		return all[i]
	}
	return nil
}

func lastOf[T any](all []*T, wanted func(*T) bool) *T {
	for _, v := range slices.Backward(all) {
		if wanted(v) {
			return v
		}
	}
	return nil
}

func only[T any](all []T, wanted func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(v T) bool { return !wanted(v) })
}

// Between returns a document with the turns from first to last, and what they refer to. Messages that wait in the queue
// come after the last turn of the session. The head of the session and its totals stay what they are. The two documents
// share their rows.
func (doc *Document) Between(first, last int) *Document {
	one := *doc
	one.Turns = only(doc.Turns, func(t *Turn) bool { return first <= t.Number && t.Number <= last })
	if last < len(doc.Turns) {
		one.Queued = nil
	}
	prompts, catalogs := map[string]bool{}, map[string]bool{}
	for _, t := range one.Turns {
		prompts[t.SystemPromptDigest], catalogs[t.Tools.CatalogDigest] = true, true
	}
	one.SystemPrompts = only(doc.SystemPrompts, func(p *SystemPrompt) bool { return prompts[p.Digest] })
	one.ToolCatalogs = only(doc.ToolCatalogs, func(c *ToolCatalog) bool { return catalogs[c.Digest] })
	one.Notices = only(doc.Notices, func(n session.Notice) bool { return first <= n.Turn && n.Turn <= last })
	messages, calls, children := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, m := range one.Messages() {
		messages[m.ID] = true
		for _, c := range m.ToolCalls() {
			calls[c.CallID], children[c.ChildSessionID] = true, true
		}
	}
	one.Decisions = only(doc.Decisions, func(d Decision) bool {
		return messages[d.MessageID] || d.MessageID == "" && d.ToolCallID != "" && calls[d.ToolCallID]
	})
	one.Spans = only(doc.Spans, func(s Span) bool { return messages[s.MessageID] })
	traces := map[string]bool{}
	for i := range one.Spans {
		traces[one.Spans[i].TraceID] = true
	}
	one.Traces = only(doc.Traces, func(trace string) bool { return traces[trace] })
	one.Children = only(doc.Children, func(c Child) bool { return messages[c.MessageID] || children[c.SessionID] })
	return &one
}
