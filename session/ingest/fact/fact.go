// Package fact has what telemetry reports of a session, in terms that no one agent defines: a [Fact] is what one span
// or one log record reports. Package dialect makes facts, package assemble makes sessions of them.
//
// A fact is stored as it is, because its session is rebuilt whenever more of
// it arrives. It must therefore depend on its span or record alone.
package fact

import (
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
)

// Kind is what a span or record reports.
type Kind string

const (
	// Turn is an agent's work on one request, over any number of model calls.
	Turn Kind = "turn"
	// Step only ties what is below it to what is above it.
	Step Kind = "step"
	// ModelCall is one request to a model, or a part of what is known of it.
	ModelCall Kind = "model_call"
	// ToolCall is one call of a tool, or a part of what is known of it.
	ToolCall Kind = "tool_call"
	// Permission is a decision on a tool call.
	Permission Kind = "permission"
	// Compaction replaced the head of a conversation by a summary.
	Compaction Kind = "compaction"
	// Prompt is a user's message that is reported by itself.
	Prompt Kind = "prompt"
	// Answer is a model's answer that is reported by itself.
	Answer Kind = "answer"
	// Session reports the session as a whole.
	Session Kind = "session"
	// Evaluation is a score of something else: of what ResponseID, the span or the session name.
	Evaluation Kind = "evaluation"
	// Note is a message that is not part of a turn, such as what a program adds for the model. Input holds it.
	Note Kind = "note"
)

// Fact is what one span or log record reports. Every field but those of its
// identity may be empty, which means that the source did not report it.
type Fact struct {
	Kind    Kind   `json:"kind"`
	Dialect string `json:"dialect"`

	// TraceID and SpanID are lower-case hex. Those of a record are the ones it was
	// emitted in, or empty. ParentID is a span's parent.
	TraceID  string `json:"trace,omitempty"`
	SpanID   string `json:"span,omitempty"`
	ParentID string `json:"parent,omitempty"`
	// Source identifies a fact among those of its trace: the span id, or "log-" and a hash of a
	// record; a span that gives several facts numbers them. The driver sets it.
	Source string `json:"source,omitempty"`
	// Start and End are Unix nanoseconds. Those of a record are equal.
	Start int64 `json:"start,omitempty"`
	End   int64 `json:"end,omitempty"`
	// Seq orders records of one time as their source does: clocks count milliseconds, and a request's messages are
	// records of one instant. Received is when the store was first given the record, other than any before: it orders
	// those of one span and time where nothing else does.
	Seq      int64 `json:"seq,omitempty"`
	Received int64 `json:"-"`
	// Event is which event of something a span reports that does not last as long as it: "start", "success", "error",
	// "finish", or another. EventOf is what all its events share: the name without that of the event.
	Event   string `json:"event,omitempty"`
	EventOf string `json:"event_of,omitempty"`
	// Name is the span's name or the record's event name, for provenance.
	Name string `json:"name,omitempty"`
	// Scope names the instrumentation that a model call is reported by, where many share the dialect.
	Scope string `json:"scope,omitempty"`

	// Session is the id that the source gives the session, and SessionKey the key under which it did. SessionRank is
	// the key's place in the order of keys: the least counts.
	Session     string `json:"session,omitempty"`
	SessionKey  string `json:"session_key,omitempty"`
	SessionRank int    `json:"session_rank,omitempty"`
	// TraceRank is the least SessionRank of the facts of its trace that name a session,
	// whether or not they are built together.
	TraceRank int `json:"-"`

	// Transcript reports that the fact was read from what the program itself keeps of the
	// session, which is complete where telemetry may withhold or lose. HiddenAt is when
	// the user took the message back, in Unix milliseconds, nil for never.
	Transcript bool `json:"transcript,omitempty"`
	// FromServer reports that the fact is what the model's server sent, and no account of the client's.
	FromServer bool   `json:"from_server,omitempty"`
	HiddenAt   *int64 `json:"hidden_at,omitempty"`

	// TurnID is an id that everything of one turn shares, unique in its session: a prompt id, a turn id.
	TurnID string `json:"turn,omitempty"`
	// RequestID is an id that everything of one model call shares.
	RequestID string `json:"request,omitempty"`
	// CallID is the model's id of a tool call.
	CallID string `json:"call,omitempty"`

	// RequiresTurn reports that a span like this always is below one of kind Turn, so
	// that one is missing where there is none.
	RequiresTurn bool `json:"requires_turn,omitempty"`
	// Purpose states what a turn or model call is for that is none of the conversation's
	// own: "title", "summary", "routing" and such.
	Purpose string `json:"purpose,omitempty"`

	// Aside is what Purpose may be by the system prompt of a request, if others of the conversation have another one.
	Aside string `json:"aside,omitempty"`

	// Subagent identifies the run of a sub-agent that the fact is of, within the session that the source names for it,
	// where no span above does: a client may run one beside the conversation, in traces of its own.
	Subagent string `json:"subagent,omitempty"`
	// SubagentID is the id that the program itself gives the run of a sub-agent, unique in Session, which is the
	// session that the user talks to. The program's telemetry and its transcript both report it. ParentSubagentID is
	// that of the sub-agent that started this one, "" where the session itself did.
	SubagentID       string `json:"subagent_id,omitempty"`
	ParentSubagentID string `json:"parent_subagent_id,omitempty"`
	// ChildSession is the session of the sub-agent that the tool call CallID started, as the program reports it, and
	// StartedBy the id of the tool call that started the sub-agent whose session the fact is of.
	ChildSession string `json:"child_session,omitempty"`
	StartedBy    string `json:"started_by,omitempty"`

	// Agent names the agent at work, Service the program that emits.
	Agent   string         `json:"agent,omitempty"`
	Service string         `json:"service,omitempty"`
	Model   *session.Model `json:"model,omitempty"`

	// Input is the new part of the request: the messages from the last ones of the user on, because
	// those before were reported before. History counts the ones left out.
	Input   []Message `json:"input,omitempty"`
	History int       `json:"history,omitempty"`
	// Before counts the messages that come before the last ones of the user, those of the system left out, BeforeTurns
	// the user's among them, messages in a row once.
	Before      int `json:"before,omitempty"`
	BeforeTurns int `json:"before_turns,omitempty"`
	// OnePrompt reports that each turn of the source has one message of the user.
	OnePrompt bool `json:"one_prompt,omitempty"`
	// Unanswered are messages of the user that come before Input and that nothing answered: those of turns that failed.
	Unanswered []Message `json:"unanswered,omitempty"`
	// Output is what was answered, in order.
	Output []Part `json:"output,omitempty"`

	// SystemPrompt and ToolCatalog are texts that are kept once, by their digest.
	// The catalog is a JSON array of tools as the source wrote them.
	SystemPrompt       string `json:"-"`
	ToolCatalog        string `json:"-"`
	SystemPromptDigest string `json:"system_prompt_digest,omitempty"`
	ToolCatalogDigest  string `json:"tool_catalog_digest,omitempty"`

	// Usage is that of a model call, or of all model calls of a turn.
	Usage *Usage `json:"usage,omitempty"`
	// CostUSD is set where the source states it.
	CostUSD *float64 `json:"cost_usd,omitempty"`

	Temperature   *float64 `json:"temperature,omitempty"`
	ResponseID    string   `json:"response_id,omitempty"`
	ResponseModel string   `json:"response_model,omitempty"`
	// Finish is why the model stopped, in the source's own word.
	Finish string `json:"finish,omitempty"`
	// Aborted reports that the source reports that somebody stopped it.
	Aborted bool `json:"aborted,omitempty"`
	// Unfinished reports that a model call was not seen to end: its span lacks what spans
	// of its kind always have. Its stream may have been aborted.
	Unfinished bool `json:"unfinished,omitempty"`
	// Failed reports that the source reported an error, Error what, ErrorType of which
	// kind. A fact with an Error is Failed.
	Failed    bool   `json:"failed,omitempty"`
	Error     string `json:"error,omitempty"`
	ErrorType string `json:"error_type,omitempty"`

	Tool         *Tool           `json:"tool,omitempty"`
	Decision     *Decision       `json:"decision,omitempty"`
	Compacted    *Compacted      `json:"compacted,omitempty"`
	Evaluation   *Evaluated      `json:"evaluation,omitempty"`
	SessionAttrs *SessionAttrs   `json:"session_attrs,omitempty"`
	Extra        json.RawMessage `json:"extra,omitempty"` // an object: what no field holds and a person may want
	Problems     []string        `json:"problems,omitempty"`
}

// Message is a message of a conversation as a source reports it.
type Message struct {
	// Role is user, assistant, system or tool.
	Role  string `json:"role"`
	Parts []Part `json:"parts,omitempty"`
	// ID is the source's own.
	ID string `json:"id,omitempty"`
	// Literal is the JSON that the message was read from, where the user may have typed just that: a source that has
	// what was typed, as the request to the model does, decides. It is "" where there is no doubt.
	Literal string `json:"literal,omitempty"`
}

// Kinds of a [Part].
const (
	PartText       = "text"
	PartReasoning  = "reasoning"
	PartCall       = "call"       // the model asks for a tool: CallID, Name, Input
	PartResult     = "result"     // what a tool answered: CallID, Name, Output or Error
	PartFile       = "file"       // MediaType, and URL (a data: URL for bytes) or Name
	PartSource     = "source"     // URL, Name
	PartCompaction = "compaction" // Text
	PartContext    = "context"    // Text, which a client put around the user's words
	PartOther      = "other"      // Data
)

// Part is a part of a message.
type Part struct {
	Kind string `json:"kind"`
	Text string `json:"text,omitempty"`

	CallID string `json:"call,omitempty"`
	Name   string `json:"name,omitempty"`
	// Input and Output are JSON values. Text that is no JSON is a JSON string.
	Input  json.RawMessage `json:"input,omitempty"`
	Output json.RawMessage `json:"output,omitempty"`
	Error  string          `json:"error,omitempty"`
	// Denied reports that the result is a refusal, not a failure.
	Denied bool `json:"denied,omitempty"`
	// Provider reports that the model's provider executes the tool itself.
	Provider bool `json:"provider,omitempty"`

	MediaType string          `json:"media_type,omitempty"`
	URL       string          `json:"url,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	// Omitted is how many bytes a file has that are not kept.
	Omitted int64 `json:"omitted,omitempty"`
}

// Usage is a count of tokens. Tokens is disjoint, whatever the Basis was. See [Stated].
type Usage struct {
	Tokens session.Usage `json:"tokens"`
	Basis  string        `json:"basis,omitempty"`
	// Raw is an object of what the source reported, in its own keys.
	Raw json.RawMessage `json:"raw,omitempty"`
	// Capped reports that a part was stated to be more than the whole that the Basis includes it in.
	Capped bool `json:"capped,omitempty"`
	// Stated is set where nothing is known of how the source counts: Tokens and Basis are those of a source that counts
	// nothing apart. Counter is who counts: all counts of a session with one Counter have one basis, and Proof is what
	// these ones prove of it. See [Usage.Recount].
	Stated  *Stated `json:"stated,omitempty"`
	Counter string  `json:"counter,omitempty"`
	Proof   Apart   `json:"proof,omitempty"`
	// Lifetime reports that the count is of all that an agent has done since it was made, and not of the turn.
	Lifetime bool `json:"lifetime,omitempty"`
}

// Tool is what is known of a tool call.
type Tool struct {
	Name string `json:"name,omitempty"`
	// Input and Output are JSON values, nil when the source did not report them.
	Input  json.RawMessage `json:"input,omitempty"`
	Output json.RawMessage `json:"output,omitempty"`
	// Succeeded reports that the source reports success, also where Output is nil.
	Succeeded bool `json:"succeeded,omitempty"`
	// Denied reports that the call was refused, and not executed.
	Denied bool `json:"denied,omitempty"`
	// Truncated reports that Output is not all; OutputSize is the whole's, in bytes, and
	// OutputSHA256 its digest in lower-case hex.
	Truncated    bool   `json:"truncated,omitempty"`
	OutputSize   int64  `json:"output_size,omitempty"`
	OutputSHA256 string `json:"output_sha256,omitempty"`
	DurationMS   *int64 `json:"duration_ms,omitempty"`
}

// Decision is what was decided on a tool call. Action is allow, deny or ask; Outcome allowed, denied or pending; Reply,
// where a person answered, once, always or reject. Source is the source's own word for who decided.
type Decision struct {
	ToolName string `json:"tool,omitempty"`
	Pattern  string `json:"pattern,omitempty"`
	Action   string `json:"action"`
	Outcome  string `json:"outcome,omitempty"`
	Reply    string `json:"reply,omitempty"`
	Source   string `json:"source,omitempty"`
	Reason   string `json:"reason,omitempty"`
	WaitedMS *int64 `json:"waited_ms,omitempty"`
}

// Compacted is what is known of a compaction.
type Compacted struct {
	Summary            string `json:"summary,omitempty"`
	Auto               *bool  `json:"auto,omitempty"`
	Trigger            string `json:"trigger,omitempty"`
	TokensBefore       int64  `json:"tokens_before,omitempty"`
	TokensAfter        int64  `json:"tokens_after,omitempty"`
	SummarizedMessages int64  `json:"summarized_messages,omitempty"`
	// Since reports that what began then has a compacted view, as everything has since the compaction.
	Since bool `json:"since,omitempty"`
}

// Evaluated is the score that an evaluation gives, by a number or a label. Author is the program that gives it.
//
// One that was exported from a store has ID, what it is about and when it was made and changed, in Unix milliseconds,
// from Rows: its attribute with the row.
type Evaluated struct {
	ID        string `json:"id,omitempty"`
	MessageID string `json:"message_id,omitempty"`
	PartID    string `json:"part_id,omitempty"`
	CreatedAt int64  `json:"created_at,omitempty"`
	UpdatedAt int64  `json:"updated_at,omitempty"`
	Rows      string `json:"-"`

	Name        string   `json:"name"`
	Value       *float64 `json:"value,omitempty"`
	Label       string   `json:"label,omitempty"`
	Explanation string   `json:"explanation,omitempty"`
	Author      string   `json:"author,omitempty"`
}

// SessionAttrs is what is known of a session as a whole.
type SessionAttrs struct {
	Title         string `json:"title,omitempty"`
	WorkspaceRoot string `json:"workspace_root,omitempty"`
	WorkspaceID   string `json:"workspace_id,omitempty"`
	Mode          string `json:"mode,omitempty"`
	UserID        string `json:"user_id,omitempty"`
	// ParentSession is the session that started this one.
	ParentSession string `json:"parent_session,omitempty"`
	// Rules is a JSON array of [session.Rule].
	Rules json.RawMessage `json:"rules,omitempty"`
	// Client is the program that emits, such as "claude-code 2.1.329".
	Client string `json:"client,omitempty"`
}

// SubagentSession is the id of the session of a sub-agent to which its program gives an id
// of its own. Whichever source reports the sub-agent first, its session is the same.
func SubagentSession(session, subagentID string) string { return session + "-" + subagentID }

// Work returns the session that the fact is of, as its source names it, "" where it does not.
func (f *Fact) Work() string {
	if f.Session == "" || f.SubagentID == "" {
		return f.Session
	}
	return SubagentSession(f.Session, f.SubagentID)
}

// RecordPrefix begins the Source of every fact of a log record.
const RecordPrefix = "log-"

// CountBefore sets Before and BeforeTurns to what all, of which Input is the end, has
// before the last messages of the user.
func (f *Fact) CountBefore(all []Message) {
	f.Before, f.BeforeTurns = 0, 0
	messages, turns, said := 0, 0, false // up to here, and whether the user spoke last
	for i := range all {
		switch all[i].Role {
		case "system":
			continue
		case "user":
			if !said {
				f.Before, f.BeforeTurns = messages, turns
				turns++
			}
			said = true
		default:
			said = false
		}
		messages++
	}
}

// SplitWords makes parts of their own of what clients put around the words of the user, see [session.Words]. They come
// after the words of their message.
func (f *Fact) SplitWords() {
	for _, messages := range [][]Message{f.Input, f.Unanswered} {
		for i := range messages {
			if m := &messages[i]; m.Role == session.RoleUser {
				m.splitWords()
			}
		}
	}
}

func (m *Message) splitWords() {
	var own, around []Part
	ofAgents := false // Google's ADK writes "For context:", and what other agents did in further parts
	for _, p := range m.Parts {
		if p.Kind == PartText {
			words, context := session.Words(p.Text)
			if ofAgents && len(context) == 0 {
				words, context = "", []string{p.Text}
			}
			ofAgents = ofAgents || words == "" && strings.TrimSpace(p.Text) == agentContext
			for _, text := range context {
				around = append(around, Part{Kind: PartContext, Text: text})
			}
			if p.Text = words; words == "" && len(context) > 0 {
				continue
			}
		}
		own = append(own, p)
	}
	if len(around) > 0 || len(own) > 0 {
		m.Parts = append(own, around...)
	}
}

// UserRun returns where the last consecutive messages of the user are, an empty range at the start where there is none.
func UserRun(messages []Message) (start, end int) {
	for end = len(messages); end > 0 && !messages[end-1].ByUser(); end-- {
	}
	for start = end; start > 0 && messages[start-1].ByUser(); start-- {
	}
	return start, end
}

// agentContext begins what Google's ADK writes in the user's name: what other agents did.
const agentContext = "For context:"

// ByClient reports whether a client wrote all of a message in the user's name, such as that a sub-agent is done.
func ByClient(parts []Part) bool {
	return len(parts) > 0 && !slices.ContainsFunc(parts, func(p Part) bool { return p.Kind != PartContext })
}

// ByUser reports whether the user wrote the message, and not a framework in the user's name about other agents.
func (m *Message) ByUser() bool {
	return m.Role == "user" && !(len(m.Parts) > 0 && strings.HasPrefix(m.Parts[0].Text, agentContext) &&
		(m.Parts[0].Kind == PartContext || strings.TrimSpace(m.Parts[0].Text) == agentContext || isContext(m.Parts[0].Text)))
}

func isContext(text string) bool {
	words, _ := session.Words(text)
	return words == ""
}

// SplitPrompts takes the prompts of turns that failed from the Input of a request whose source has one message of the
// user for each turn.
func (f *Fact) SplitPrompts() {
	n := 0
	for n < len(f.Input) && f.Input[n].ByUser() {
		n++
	}
	if n > 1 {
		f.Unanswered, f.Input = f.Input[:n-1], f.Input[n-1:]
		f.History += n - 1
	}
}

// EachPart returns the parts of all messages in order, each with its message.
func EachPart(messages []Message) iter.Seq2[*Message, *Part] {
	return func(yield func(*Message, *Part) bool) {
		for i := range messages {
			for k := range messages[i].Parts {
				if !yield(&messages[i], &messages[i].Parts[k]) {
					return
				}
			}
		}
	}
}

// PartsOf returns the parts of all messages, in order.
func PartsOf(messages []Message) (parts []Part) {
	for _, m := range messages {
		parts = append(parts, m.Parts...)
	}
	return parts
}

// FinishReason returns the word that stands for why a model stopped: stop, tool-calls, length, content-filter, error or
// abort. Another word stays as it is.
func FinishReason(word string) string {
	w := strings.ToLower(strings.TrimSpace(word))
	w = strings.NewReplacer("_", "-", " ", "-").Replace(strings.TrimPrefix(w, "finishreason."))
	switch strings.TrimPrefix(w, "finish-reason-") {
	case "stop", "end-turn", "endturn", "completed", "complete", "stop-sequence", "eos", "end":
		return "stop"
	case "tool-calls", "tool-call", "tool-use", "tooluse", "function-call", "function-calls", "tool-calls-requested",
		"tool-execution":
		return "tool-calls"
	case "length", "max-tokens", "maxtokens", "max-output-tokens", "model-length", "model-context-window-exceeded",
		"incomplete":
		return "length"
	case "content-filter", "contentfilter", "content-filtered", "safety", "refusal", "blocked", "blocklist",
		"prohibited-content", "recitation", "spii", "guardrail-intervened":
		return "content-filter"
	case "error", "failed", "other-error":
		return "error"
	case "abort", "aborted", "cancelled", "canceled", "interrupted":
		return "abort"
	}
	return word
}

// Bases of a count of tokens.
const (
	Inclusive = "inclusive" // input includes the cache, output the reasoning
	Exclusive = "exclusive" // every bucket stands for itself
	Mixed     = "mixed"     // input excludes the cache, output includes the reasoning
)

// Apart is a set of tokens that a source counts separately, where others include them.
type Apart uint8

const (
	// CacheApart means that the input excludes the cache.
	CacheApart Apart = 1 << iota
	// ReasoningApart means that the output excludes the reasoning.
	ReasoningApart
)

// Stated are counts of tokens as a source states them. Input and Output are nil where it does not.
type Stated struct {
	Input      *int64 `json:"input,omitempty"`
	Output     *int64 `json:"output,omitempty"`
	CacheRead  int64  `json:"cache_read,omitempty"`
	CacheWrite int64  `json:"cache_write,omitempty"`
	Reasoning  int64  `json:"reasoning,omitempty"`
}

// Usage returns the disjoint counts of a source that counts these tokens apart. Of a part
// that is stated to be more than what includes it, as much is counted as there is.
func (s *Stated) Usage(apart Apart) Usage {
	u := Usage{Basis: Inclusive, Tokens: session.Usage{Reasoning: s.Reasoning, CacheRead: s.CacheRead,
		CacheWrite: s.CacheWrite}}
	n := &u.Tokens
	if s.Input != nil {
		n.Input = *s.Input
		if apart&CacheApart == 0 {
			u.Capped = n.CacheRead+n.CacheWrite > n.Input
			n.CacheRead = min(n.CacheRead, n.Input)
			n.CacheWrite = min(n.CacheWrite, n.Input-n.CacheRead)
			n.Input -= n.CacheRead + n.CacheWrite
		}
	}
	if s.Output != nil {
		n.Output = *s.Output
		if apart&ReasoningApart == 0 {
			u.Capped = u.Capped || n.Reasoning > n.Output
			n.Reasoning = min(n.Reasoning, n.Output)
			n.Output -= n.Reasoning
		}
	}
	switch {
	case apart == CacheApart|ReasoningApart:
		u.Basis = Exclusive
	case apart&CacheApart != 0:
		u.Basis = Mixed
	}
	return u
}

// Proof is what the counts, with the total that the source states for them, prove. A part that is more than the tokens
// that should include it is counted apart. So it is where the total can be the sum of nothing else: in a total of input
// and cache the input has no cache. A total of input and output proves nothing, because some sources leave the cache
// out of it that they count apart.
func (s *Stated) Proof(total *int64) Apart {
	proof, sums := CacheApart|ReasoningApart, 0
	cache := s.CacheRead + s.CacheWrite
	if total != nil && s.Input != nil && s.Output != nil {
		base := *s.Input + *s.Output
		for apart, sum := range []int64{base, base + cache, base + s.Reasoning, base + cache + s.Reasoning} {
			if sum == *total {
				proof &= Apart(apart)
				sums++
			}
		}
	}
	if sums == 0 {
		proof = 0
	}
	if s.Input != nil && cache > *s.Input {
		proof |= CacheApart
	}
	if s.Output != nil && s.Reasoning > *s.Output {
		proof |= ReasoningApart
	}
	return proof
}

// Recount returns the usage of a source that counts these tokens apart. It is the same
// where it is known how the source counts.
func (u *Usage) Recount(apart Apart) *Usage {
	if u.Stated == nil {
		return u
	}
	counted := u.Stated.Usage(apart)
	again := *u
	again.Tokens, again.Basis, again.Capped = counted.Tokens, counted.Basis, counted.Capped
	return &again
}
