package store

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/price"
)

// StatsBy is what figures are grouped by.
type StatsBy string

// What figures can be grouped by.
const (
	StatsByDay     StatsBy = "day"  // on which a turn or call began
	StatsByWeek    StatsBy = "week" // of ISO 8601, in which a turn or call began
	StatsByModel   StatsBy = "model"
	StatsByAgent   StatsBy = "agent"
	StatsByProject StatsBy = "project" // the workspace of the session, or of its parent
	StatsByTool    StatsBy = "tool"    // the figures of calls alone
	StatsByWeekday StatsBy = "weekday" // on which a turn or call began: Monday to Sunday
	StatsByHour    StatsBy = "hour"    // of the day in which a turn or call began: 00:00 to 23:00
)

// IsPeriod reports whether groups are of a time, and in its order.
func (by StatsBy) IsPeriod() bool {
	return by == StatsByDay || by == StatsByWeek || by == StatsByWeekday || by == StatsByHour
}

// StatsKeys are all that figures can be grouped by.
func StatsKeys() []string {
	return []string{string(StatsByDay), string(StatsByWeek), string(StatsByWeekday), string(StatsByHour),
		string(StatsByModel), string(StatsByAgent), string(StatsByProject), string(StatsByTool)}
}

// ParseStatsBy reads what figures are grouped by. A text is a key, or several with commas between; empty ones and
// repetitions are left out.
func ParseStatsBy(texts ...string) (by []StatsBy, err error) {
	for _, key := range strings.Split(strings.Join(texts, ","), ",") {
		switch {
		case key == "" || slices.Contains(by, StatsBy(key)):
		case !slices.Contains(StatsKeys(), key):
			return nil, fmt.Errorf("%q is unknown; use %s", key, strings.Join(StatsKeys(), ", "))
		default:
			by = append(by, StatsBy(key))
		}
	}
	return by, nil
}

// StatsQuery selects what is counted. The zero value is everything.
type StatsQuery struct {
	// By are the keys of groups: each combination of their values is one. Nothing is grouped by none.
	By []StatsBy
	// Since leaves out what began before, Until what began then or later; zero leaves out nothing.
	Since, Until time.Time
	// Sessions selects the sessions that are counted.
	Sessions SessionFilter
	// Location is where days and weeks begin; nil means UTC.
	Location *time.Location `json:"-"`
	// Price is asked for the cost of messages that state none; nil estimates nothing.
	Price Price `json:"-"`
}

// Price returns what a model costs, nil where it has no price for it.
type Price func(m session.Model) *price.Rate

// estimate estimates what a number of requests to a model cost that used u together; 0 is
// an unknown number. It is not ok where there is no price for the model.
func (find Price) estimate(m session.Model, u session.Usage, requests int64) (usd float64, ok bool) {
	rate := find(m)
	if rate == nil {
		return 0, false
	}
	return rate.Cost(u, requests), true
}

// Message estimates what a message used: what each of its model calls did, if the source
// reports that of all, or else the sum. It is not ok if a model has no price: see lacking.
func (find Price) Message(model *session.Model, used session.Usage, steps []session.Step, calls int64) (
	usd float64, lacking session.Model, ok bool) {
	var own session.Model
	if model != nil {
		own = *model
	}
	var sum session.Usage
	for i := range steps {
		if steps[i].Usage == nil {
			steps = nil
			break
		}
		sum = sum.Add(*steps[i].Usage)
	}
	if len(steps) == 0 || sum != used {
		usd, ok = find.estimate(own, used, calls)
		return usd, own, ok
	}
	for i := range steps {
		of := own
		if steps[i].Model != nil {
			of = *steps[i].Model
		}
		one, ok := find.estimate(of, *steps[i].Usage, 1)
		if !ok && steps[i].Usage.Total() > 0 {
			return 0, of, false
		}
		usd += one
	}
	return usd, session.Model{}, true
}

// Spent is what a session used in all, and what that cost.
type Spent struct {
	session.Tokens
	// EstimatedUSD is the cost by price of the messages that state none, and no part of
	// CostUSD; nil where none of them has a price.
	EstimatedUSD *float64
	// Unpriced are the models without a price, as provider/model, in order; "" is one that is not named.
	Unpriced []string
	// Turns is the number of turns, hidden ones and those that a fork copied included: see [session.Turns]. Errors
	// counts failures, and Denied tool calls that were denied: see [session.Failures].
	Turns, Errors, Denied int64
	// DurationMS sums the answers that state how long they took; nil where none does.
	DurationMS *int64
}

// Stats are figures over many sessions. What a fork copied from its parent counts in the parent alone; what a rewind
// hid or a compaction replaced counts, for it took place. Tokens are those of [session.Tokens].
type Stats struct {
	// Total is over all groups. Its sessions are those that were seen, also without a turn.
	Total StatsGroup `json:"total"`
	// Groups are nil when nothing is grouped: days, weeks, weekdays and hours in order of time, others by tokens, then
	// calls. By several keys, the groups with the same value of the first follow each other, and so on.
	Groups []StatsGroup `json:"groups,omitempty"`
	// UnpricedModels are those that StatsQuery.Price has no price for, as provider/model, in order; "" is one that is
	// not named. Nothing is estimated of what they took.
	UnpricedModels []string `json:"unpriced_models,omitempty"`
}

// StatsGroup are the figures of one group.
type StatsGroup struct {
	// Key is the day, the week such as 2026-W47, the model as provider/model, the agent, the directory of the project
	// or the tool; "" where the source did not report one. By several keys, it is their values with ", " between.
	Key string `json:"key"`
	// Keys has the value of each key; it is nil in a total.
	Keys map[StatsBy]string `json:"keys,omitempty"`
	// Sessions are those with a turn or call in the group.
	Sessions int64 `json:"sessions"`
	// Turns are those of [session.Turns], each in the group of its answer. Errors counts failures: see
	// [session.Failures].
	Turns  int64 `json:"turns"`
	Errors int64 `json:"errors"`
	// Usage is what turns and compactions took.
	Usage       session.Usage `json:"usage"`
	TotalTokens int64         `json:"total_tokens"`
	// CostUSD sums what sources stated.
	CostUSD float64 `json:"cost_usd"`
	// EstimatedCostUSD sums what StatsQuery.Price reports of what states no cost, and is no part of CostUSD; nil where
	// it reports nothing. Compactions, which do not report their model, are not in it.
	EstimatedCostUSD *float64 `json:"estimated_cost_usd,omitempty"`
	// Unpriced reports that StatsQuery.Price has no price for something in the group: the
	// costs are not all that it cost.
	Unpriced bool `json:"unpriced,omitempty"`
	// CacheHitRate is the share of the input that was read from a cache: nil without input.
	CacheHitRate *float64 `json:"cache_hit_rate,omitempty"`
	ToolCalls    int64    `json:"tool_calls"`
	// FailedCalls and DeniedCalls are among ToolCalls, and exclude each other. FailedCalls are among Errors, too.
	FailedCalls int64 `json:"failed_tool_calls"`
	DeniedCalls int64 `json:"denied_tool_calls"`
	// MedianMS and P95MS are of the durations of turns, by tool of calls; nil where none is stated.
	MedianMS *int64 `json:"median_ms,omitempty"`
	P95MS    *int64 `json:"p95_ms,omitempty"`
	// CallMedianMS and CallP95MS are those of calls, whatever figures are grouped by.
	CallMedianMS *int64 `json:"call_median_ms,omitempty"`
	CallP95MS    *int64 `json:"call_p95_ms,omitempty"`
}
