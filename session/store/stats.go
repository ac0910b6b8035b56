package store

import (
	"time"

	"github.com/agenttrace/agenttrace/session"
)

// StatsBy is what figures are grouped by.
type StatsBy string

// What figures can be grouped by.
const (
	StatsByAll   StatsBy = ""
	StatsByDay   StatsBy = "day" // on which a turn or call began
	StatsByModel StatsBy = "model"
	StatsByAgent StatsBy = "agent"
	StatsByTool  StatsBy = "tool" // the figures of calls alone
)

// StatsQuery selects what is counted. The zero value is everything.
type StatsQuery struct {
	By StatsBy
	// Since leaves out what began before; zero leaves out nothing.
	Since time.Time
	// Location is where days begin; nil means UTC.
	Location *time.Location
}

// Stats are figures over many sessions. What a fork copied from its parent counts
// once, in the parent while that is stored; what a rewind hid or a compaction replaced counts, for it
// took place.
type Stats struct {
	// Total is over all groups. Its sessions are those that were heard of, also
	// without a turn.
	Total StatsGroup `json:"total"`
	// Groups are nil when nothing is grouped: days in order of time, others by
	// tokens, then calls.
	Groups []StatsGroup `json:"groups,omitempty"`
}

// StatsGroup are the figures of one group.
type StatsGroup struct {
	// Key is the day, the model as provider/model, the agent or the tool; "" where
	// the source did not say.
	Key string `json:"key"`
	// Sessions are those with a turn or call in the group.
	Sessions int64 `json:"sessions"`
	// Turns are answers; Errors are those that ended in one.
	Turns  int64 `json:"turns"`
	Errors int64 `json:"errors"`
	// Usage is what turns and compactions took.
	Usage       session.Usage `json:"usage"`
	TotalTokens int64         `json:"total_tokens"`
	// CostUSD sums what sources stated.
	CostUSD float64 `json:"cost_usd"`
	// CacheHitRate is the share of the input that was read from a cache: nil
	// without input.
	CacheHitRate *float64 `json:"cache_hit_rate,omitempty"`
	ToolCalls    int64    `json:"tool_calls"`
	// FailedCalls and DeniedCalls are among ToolCalls, and exclude each other.
	FailedCalls int64 `json:"failed_tool_calls"`
	DeniedCalls int64 `json:"denied_tool_calls"`
	// MedianMS and P95MS are of the durations of turns, by tool of calls; nil where
	// none is stated.
	MedianMS *int64 `json:"median_ms,omitempty"`
	P95MS    *int64 `json:"p95_ms,omitempty"`
}
