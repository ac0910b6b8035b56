package session

import "encoding/json"

// UsageOf returns the usage in a message's metadata_json that counts towards the rollup
// of its session, and the reported cost. A value that is absent or of the wrong type
// counts as zero. [MessageMetadata.Tokens] returns what the message used, which is a
// different figure.
func UsageOf(metadataJSON string) (Usage, float64) {
	var m struct {
		Usage Usage `json:"usage"`
		Trace struct {
			CostUSD float64 `json:"cost_usd"`
		} `json:"agenttrace"`
	}
	_ = json.Unmarshal([]byte(metadataJSON), &m) // reads what is of the right type
	return m.Usage.counted(), m.Trace.CostUSD
}

// TranscriptTrace is the object "agenttrace" in the metadata of a session that was
// imported from the transcript of its program.
type TranscriptTrace struct {
	// Transcript is the program.
	Transcript string `json:"transcript"`
	// SubagentID is the program's id of the sub-agent whose session it is, unique in
	// SubagentOf, the session that the user talks to. ParentSubagentID is that of the
	// sub-agent that started it, if one did, and CallID the tool call that started it.
	SubagentOf       string `json:"subagent_of,omitempty"`
	SubagentID       string `json:"subagent_id,omitempty"`
	ParentSubagentID string `json:"parent_subagent_id,omitempty"`
	CallID           string `json:"started_by,omitempty"`
	// Forked reports that the session goes on from its parent: its transcript begins with copies of that one's records,
	// or follows from one of them.
	Forked bool `json:"forked,omitempty"`
}

// TranscriptTraceOf returns what the metadata_json of a session reports of the transcript
// from which it was imported, the zero value for any other session.
func TranscriptTraceOf(metadataJSON string) TranscriptTrace {
	var m struct {
		Trace TranscriptTrace `json:"agenttrace"`
	}
	if json.Unmarshal([]byte(metadataJSON), &m) != nil || m.Trace.Transcript == "" {
		return TranscriptTrace{}
	}
	return m.Trace
}

// TranscriptOf returns the agent from whose transcript a session was imported, from the
// session's metadata_json, or "" for any other session.
func TranscriptOf(metadataJSON string) string { return TranscriptTraceOf(metadataJSON).Transcript }

// CompactionData is the data of a data-compaction part.
type CompactionData struct {
	Summary string `json:"summary"`
	// TailStartID is the first message that stays in the context verbatim; nil if there
	// is none.
	TailStartID   *string `json:"tail_start_id"`
	Auto          bool    `json:"auto"`
	SummaryTokens int64   `json:"summary_tokens"`
}

// TypeCompaction is the type of the part that marks a compaction.
const TypeCompaction = "data-compaction"

// Types of the only part of a message without reported content. A message must have a
// part, because the AI SDK rejects one without. The data of the part is an [Absence].
const (
	// TypeError means that the turn ended in an error before any answer.
	TypeError = "data-error"
	// TypeWithheld means that the source does not report the content.
	TypeWithheld = "data-withheld"
	// TypeUnfinished means that the end of the work was not reported: it was aborted, or
	// the telemetry of its end is missing.
	TypeUnfinished = "data-unfinished"
)

// IsAbsence reports whether a part of the type represents missing content.
func IsAbsence(partType string) bool {
	return partType == TypeError || partType == TypeWithheld || partType == TypeUnfinished
}

// Absence is the data of a part that represents missing content.
type Absence struct {
	// Text is the reason, for a person.
	Text string `json:"text"`
}

// ParseCompaction reads a data-compaction part, in the AI SDK's form {type, data:{…}} or
// in the flat form of the guide. With an error it returns what is of the right type.
func ParseCompaction(dataJSON string) (CompactionData, error) {
	var wrapped struct {
		Data *CompactionData `json:"data"`
		CompactionData
	}
	err := json.Unmarshal([]byte(dataJSON), &wrapped)
	if wrapped.Data != nil {
		return *wrapped.Data, err
	}
	return wrapped.CompactionData, err
}

// TailStartID returns the tail_start_id of a data-compaction part, or "".
func TailStartID(dataJSON string) string {
	c, _ := ParseCompaction(dataJSON) // the rest is of no use here
	return Deref(c.TailStartID)
}

// Credible reports whether a time in Unix milliseconds is in the years 2000 to 2099.
// Other times are treated as unset: the clock was never set, the unit is wrong, or the
// value is not a time.
func Credible(milli int64) bool {
	const earliest, latest = 946_684_800_000, 4_102_444_800_000
	return milli >= earliest && milli <= latest
}
