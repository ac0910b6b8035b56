package session

import "encoding/json"

// UsageOf reads from a message's metadata_json the usage that counts towards the rollup of
// its session, and the stated cost. What is absent, or is not of the right type, counts as
// zero. What the message used is another question: see [MessageMetadata.Tokens].
func UsageOf(metadataJSON string) (Usage, float64) {
	if metadataJSON == "" || metadataJSON == "{}" {
		return Usage{}, 0
	}
	var m struct {
		Usage Usage `json:"usage"`
		Trace struct {
			CostUSD float64 `json:"cost_usd"`
		} `json:"agenttrace"`
	}
	_ = json.Unmarshal([]byte(metadataJSON), &m) // a value of the wrong kind is passed over, the rest is read
	return m.Usage.counted(), m.Trace.CostUSD
}

// TranscriptOf returns the agent whose own transcript a session was imported from, by
// the session's metadata_json, or "" for any other session.
func TranscriptOf(metadataJSON string) string {
	var m struct {
		Trace struct {
			Transcript string `json:"transcript"`
		} `json:"agenttrace"`
	}
	if json.Unmarshal([]byte(metadataJSON), &m) != nil {
		return ""
	}
	return m.Trace.Transcript
}

// CompactionData is what a data-compaction part says.
type CompactionData struct {
	Summary string `json:"summary"`
	// TailStartID is the first message still in context word for word; nil when
	// none is.
	TailStartID   *string `json:"tail_start_id"`
	Auto          bool    `json:"auto"`
	SummaryTokens int64   `json:"summary_tokens"`
}

// TypeCompaction is the type of the part that marks a compaction.
const TypeCompaction = "data-compaction"

// Types of the part that is a message's only one where no source reports any
// content of it: a message without parts is none to the AI SDK. The part's data is
// an [Absence].
const (
	// TypeError says that the turn ended in an error before anything was answered.
	TypeError = "data-error"
	// TypeWithheld says that there was content which the source does not report.
	TypeWithheld = "data-withheld"
	// TypeUnfinished says that the work was not seen to end: it was aborted, or the
	// telemetry of its end is missing.
	TypeUnfinished = "data-unfinished"
)

// Absence is the data of a part that stands for content which is not there.
type Absence struct {
	// Text says why, for a person.
	Text string `json:"text"`
}

// ParseCompaction reads a data-compaction part. Both shapes are read: the AI
// SDK's {type, data:{…}}, and the flat one that the guide prints.
func ParseCompaction(dataJSON string) (CompactionData, error) {
	var wrapped struct {
		Data *CompactionData `json:"data"`
		CompactionData
	}
	if err := json.Unmarshal([]byte(dataJSON), &wrapped); err != nil {
		return CompactionData{}, err
	}
	if wrapped.Data != nil {
		return *wrapped.Data, nil
	}
	return wrapped.CompactionData, nil
}

// TailStartID returns the tail_start_id of a data-compaction part, or "".
func TailStartID(dataJSON string) string {
	c, err := ParseCompaction(dataJSON)
	if err != nil || c.TailStartID == nil {
		return ""
	}
	return *c.TailStartID
}

// Credible says whether a time in Unix milliseconds can be one: whether it is of the
// years 2000 to 2099. Others are taken for unset: a clock that was never set, a wrong
// unit, or an order that stands where times should.
func Credible(milli int64) bool {
	const earliest, latest = 946_684_800_000, 4_102_444_800_000
	return milli >= earliest && milli <= latest
}
