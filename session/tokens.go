package session

import "encoding/json"

// This file is the one place that says what a session's tokens are. Commands, statistics
// and exports count with it, so that no two of them differ.
//
// Two figures are legitimate, and everything that shows one names it:
//
//   - Used: what the calls of models behind the session's messages used, those that a
//     rewind hid or a compaction replaced included, for they took place; and the call that
//     made a compaction's summary, where its source states it. Messages that a fork copied
//     from its parent count in the parent alone, also where the parent is not stored.
//   - Context: what takes room in the model's context now. It is the rollup of the guide,
//     on the row of the session: see [Session.Usage].
//
// The size of a context, such as that of the summary that a compaction leaves, is never
// usage.

// MessageTokens are the tokens of one message.
type MessageTokens struct {
	// Used is what the calls of models behind the message used; nil when no source states
	// it.
	Used *Usage
	// Context is what the message adds to the session's context while it counts there: the
	// size of a summary, and otherwise what was used.
	Context Usage
	// CostUSD is what the source states that it cost; nil when it does not.
	CostUSD *float64
}

// Tokens returns the tokens that the metadata of a message states. Only an assistant's
// message has any. marker says that the message consists of data-compaction parts and
// nothing else: see [MessageAndParts.IsMarker].
//
// The message of a compaction states in usage what its summary takes of the context, as
// the agent guide's reference program writes it: a number of input tokens. What making the
// summary used stands under agenttrace, as usage or, where the source counts only these, as
// input_tokens and output_tokens. A usage that has more than input is no size of a context
// but a call's, whoever wrote it.
func (m *MessageMetadata) Tokens(role string, marker bool) MessageTokens {
	if role != RoleAssistant {
		return MessageTokens{}
	}
	t := MessageTokens{CostUSD: m.Trace.CostUSD}
	if m.Usage != nil {
		t.Context = m.Usage.counted()
	}
	switch trace := &m.Trace; {
	case !m.Compaction && !marker, t.Context.Total() > t.Context.Input:
		if m.Usage != nil {
			t.Used = new(t.Context)
		}
	case trace.Usage != nil:
		t.Used = new(trace.Usage.counted())
	case trace.InputTokens != nil || trace.OutputTokens != nil:
		var u Usage
		if trace.InputTokens != nil {
			u.Input = *trace.InputTokens
		}
		if trace.OutputTokens != nil {
			u.Output = *trace.OutputTokens
		}
		t.Used = new(u.counted())
	}
	return t
}

// counted returns u with 0 for counts below it, which no source can mean.
func (u Usage) counted() Usage {
	return Usage{max(u.Input, 0), max(u.Output, 0), max(u.Reasoning, 0), max(u.CacheRead, 0), max(u.CacheWrite, 0)}
}

// ParseMessageMetadata reads a message's metadata_json. What is absent, or of the wrong
// kind, stays unset and takes nothing else with it.
func ParseMessageMetadata(metadataJSON []byte) MessageMetadata {
	var m MessageMetadata
	if len(metadataJSON) > len("{}") {
		_ = json.Unmarshal(metadataJSON, &m) // a value of the wrong kind is passed over, the rest is read
	}
	return m
}

// IsMarker says whether the message consists of data-compaction parts and nothing else.
func (m *MessageAndParts) IsMarker() bool {
	for i := range m.Parts {
		if m.Parts[i].Type != TypeCompaction {
			return false
		}
	}
	return len(m.Parts) > 0
}

// Copied says whether a message that began at a time (Unix milliseconds) is a copy that the
// session, being a fork, has from its parent: copies keep their times, and so are older than
// the fork. The session of a sub-agent has none.
func (s *Session) Copied(createdAt int64) bool {
	return s.ParentID != nil && *s.ParentID != "" && createdAt < s.CreatedAt
}

// Tokens are the tokens of a session.
type Tokens struct {
	// Used is what the session used; nil when no source states any.
	Used *Usage
	// Copied is what its parent used for the messages that the session, being a fork,
	// copied. It is no part of Used; nil when there is none.
	Copied *Usage
	// CostUSD is what the session's messages state that they cost, copies left out as of
	// Used; nil when they do not. Some sources state the cost of a session as a whole: see
	// [Tokens.Cost].
	CostUSD *float64
	// CopiedUSD is what the messages that a fork copied state that they cost.
	CopiedUSD float64
}

// Cost returns what the session, of which t are the tokens, cost as its source states it;
// nil when it does not. whole says that it is stated of the session and not of its messages.
// What a fork copied is no part of it, unlike of [Session.CostUSD].
func (t *Tokens) Cost(s *Session) (usd *float64, whole bool) {
	const least = 1e-9 // sums of fractions differ by less
	messages := t.CopiedUSD
	if t.CostUSD != nil {
		messages += *t.CostUSD
	}
	if s.CostUSD-messages > least {
		return new(s.CostUSD - t.CopiedUSD), true
	}
	return t.CostUSD, false
}

// Add counts a message of the session s that began at a time (Unix milliseconds). It says
// whether the message counts as a copy.
func (t *Tokens) Add(s *Session, createdAt int64, m MessageTokens) (copied bool) {
	if s.Copied(createdAt) {
		addUsage(&t.Copied, m.Used)
		if m.CostUSD != nil {
			t.CopiedUSD += *m.CostUSD
		}
		return true
	}
	addUsage(&t.Used, m.Used)
	if m.CostUSD != nil {
		sum := *m.CostUSD
		if t.CostUSD != nil {
			sum += *t.CostUSD
		}
		t.CostUSD = &sum
	}
	return false
}

func addUsage(sum **Usage, u *Usage) {
	if u == nil {
		return
	}
	total := *u
	if *sum != nil {
		total = total.Add(**sum)
	}
	*sum = &total
}

// Tokens counts the session's tokens. It does not change t.
func (t *Transcript) Tokens() Tokens {
	var sum Tokens
	for i := range t.Messages {
		m := &t.Messages[i]
		metadata := ParseMessageMetadata([]byte(m.Message.MetadataJSON))
		sum.Add(&t.Session, m.Message.CreatedAt, metadata.Tokens(m.Message.Role, m.IsMarker()))
	}
	return sum
}
