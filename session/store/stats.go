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
	// Price is asked for the cost of messages that state none; nil estimates nothing.
	Price Price
}

// Price estimates what a number of requests to a model took in USD that used u together;
// 0 requests are an unknown number. It is not ok where it has no price for the model.
type Price func(m session.Model, u session.Usage, requests int64) (usd float64, ok bool)

// Spent is what a session used in all, and what that cost.
type Spent struct {
	session.Tokens
	// EstimatedUSD is the cost by price of the messages that state none, and no part of
	// CostUSD; nil where none of them has a price.
	EstimatedUSD *float64
	// Unpriced are the models without a price, as provider/model, in order; "" is one
	// that is not named.
	Unpriced []string
}

// Stats are figures over many sessions. What a fork copied from its parent counts
// in the parent alone; what a rewind hid or a compaction replaced counts, for it
// took place. Tokens are those of [session.Tokens].
type Stats struct {
	// Total is over all groups. Its sessions are those that were seen, also
	// without a turn.
	Total StatsGroup `json:"total"`
	// Groups are nil when nothing is grouped: days in order of time, others by
	// tokens, then calls.
	Groups []StatsGroup `json:"groups,omitempty"`
	// UnpricedModels are those that StatsQuery.Price has no price for, as
	// provider/model, in order; "" is one that is not named. Nothing is estimated of
	// what they took.
	UnpricedModels []string `json:"unpriced_models,omitempty"`
}

// StatsGroup are the figures of one group.
type StatsGroup struct {
	// Key is the day, the model as provider/model, the agent or the tool; "" where
	// the source did not say.
	Key string `json:"key"`
	// Sessions are those with a turn or call in the group.
	Sessions int64 `json:"sessions"`
	// Turns are those of [session.Turns], each in the group of its answer; Errors are
	// answers that ended in one.
	Turns  int64 `json:"turns"`
	Errors int64 `json:"errors"`
	// Usage is what turns and compactions took.
	Usage       session.Usage `json:"usage"`
	TotalTokens int64         `json:"total_tokens"`
	// CostUSD sums what sources stated.
	CostUSD float64 `json:"cost_usd"`
	// EstimatedCostUSD sums what StatsQuery.Price reports of the turns that state no cost,
	// and is no part of CostUSD; nil where it reports nothing. Compactions, which do not
	// say their model, are not in it.
	EstimatedCostUSD *float64 `json:"estimated_cost_usd,omitempty"`
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
