package store

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/price"
)

// SessionFilter selects sessions. Each field that is set must match; the zero value selects all.
type SessionFilter struct {
	// Project is the workspace of the session, its root or its id, or that of its parent if it has none.
	Project string
	// Agent is the agent that the session was started with.
	Agent string
	// Model is the model of the session or of one of its messages: the id, or provider/id. Provider likewise.
	Model, Provider string
	// User is the user_id in the session's metadata.
	User string
	// Tags are tags that the session, its turns or its parts have: all of them.
	Tags []string
	// Scores are comparisons of which each must hold for a score of the session, its turns or its parts.
	Scores []ScoreFilter
	// Tool is a tool that was called.
	Tool string
	// Text is in the title or in a message, upper and lower case alike, as [Reader].Search finds it.
	Text string
	// Errors selects sessions with a failed run, turn or tool call, Loops those with a warning about a loop, and
	// Denials those in which a call was not allowed.
	Errors, Loops, Denials bool
	// IDs, if not nil, are the sessions that are selected from.
	IDs []string
	// Since and Until select sessions that were active in that time, which includes Since; zero is unlimited.
	Since, Until time.Time
}

// ScoreFilter compares scores of a name. Op is one of =, !=, <, <=, > and >=; with "" there need only be a score.
type ScoreFilter struct {
	Name, Op string
	Value    float64
}

// scoreOps are the comparisons, those that begin with another before it.
var scoreOps = []string{">=", "<=", "!=", "=", ">", "<"}

// scoreFilter matches any text: a name, and a comparison with the rest.
var scoreFilter = lazy.Regexp(`(?s)^\s*("(?:[^"\\]|\\.)*"|.*?)\s*(?:(` + strings.Join(scoreOps, "|") + `)(.*))?$`)

// ParseScoreFilter reads a comparison such as quality>=0.8, or a name alone. A name with a comparison in it is in
// double quotes, as in Go.
func ParseScoreFilter(text string) (f ScoreFilter, _ error) {
	found := scoreFilter().FindStringSubmatch(text)
	f.Name, f.Op = found[1], found[2]
	if name, err := strconv.Unquote(f.Name); err == nil && strings.HasPrefix(f.Name, `"`) {
		f.Name = name
	}
	if f.Name == "" {
		return f, fmt.Errorf("%q has no name of a score; write one such as quality>=0.8", text)
	}
	if f.Op == "" {
		return f, nil
	}
	var err error
	f.Value, err = strconv.ParseFloat(strings.TrimSpace(found[3]), 64)
	if err != nil || math.IsNaN(f.Value) || math.IsInf(f.Value, 0) {
		return f, fmt.Errorf("%q compares with no number; write one such as quality>=0.8, "+
			"and a name with %s in double quotes", text, strings.Join(scoreOps, " "))
	}
	return f, nil
}

func (f ScoreFilter) String() string {
	if found := scoreFilter().FindStringSubmatch(f.Name); found[1] != f.Name || strings.HasPrefix(f.Name, `"`) {
		f.Name = strconv.Quote(f.Name)
	}
	if f.Op == "" {
		return f.Name
	}
	return f.Name + f.Op + strconv.FormatFloat(f.Value, 'g', -1, 64)
}

// Valid reports whether the operator is one.
func (f ScoreFilter) Valid() bool { return f.Op == "" || slices.Contains(scoreOps, f.Op) }

// SetFilter is a field of a filter that is set: its name and value as front ends write them, and the filter without it.
type SetFilter struct {
	Name, Value string
	Without     SessionFilter
}

// Set returns the fields that are set, one for each tag and score.
func (f SessionFilter) Set() (all []SetFilter) {
	add := func(set bool, name, value string, unset func(*SessionFilter)) {
		if set {
			without := f
			unset(&without)
			all = append(all, SetFilter{name, value, without})
		}
	}
	text := func(name, value string, field func(*SessionFilter) *string) {
		add(value != "", name, value, func(f *SessionFilter) { *field(f) = "" })
	}
	text("project", f.Project, func(f *SessionFilter) *string { return &f.Project })
	text("agent", f.Agent, func(f *SessionFilter) *string { return &f.Agent })
	text("model", f.Model, func(f *SessionFilter) *string { return &f.Model })
	text("provider", f.Provider, func(f *SessionFilter) *string { return &f.Provider })
	text("user", f.User, func(f *SessionFilter) *string { return &f.User })
	for i, tag := range f.Tags {
		add(true, "tag", tag, func(f *SessionFilter) { f.Tags = slices.Delete(slices.Clone(f.Tags), i, i+1) })
	}
	for i, score := range f.Scores {
		add(true, "score", score.String(), func(f *SessionFilter) {
			f.Scores = slices.Delete(slices.Clone(f.Scores), i, i+1)
		})
	}
	text("tool", f.Tool, func(f *SessionFilter) *string { return &f.Tool })
	text("text", f.Text, func(f *SessionFilter) *string { return &f.Text })
	add(f.Errors, "errors", "", func(f *SessionFilter) { f.Errors = false })
	add(f.Loops, "loops", "", func(f *SessionFilter) { f.Loops = false })
	add(f.Denials, "denials", "", func(f *SessionFilter) { f.Denials = false })
	add(!f.Since.IsZero(), "since", f.Since.Format(time.RFC3339), func(f *SessionFilter) { f.Since = time.Time{} })
	add(!f.Until.IsZero(), "until", f.Until.Format(time.RFC3339), func(f *SessionFilter) { f.Until = time.Time{} })
	return all
}

// SessionSort is an order of sessions. Sessions that are equal in it are ordered by their ids, likewise.
type SessionSort string

// Orders of sessions: all descending, except for that by title.
const (
	SortUpdated SessionSort = ""        // by updated_at
	SortCreated SessionSort = "created" // by created_at
	SortTitle   SessionSort = "title"
	SortContext SessionSort = "context" // by the tokens in context
	SortCost    SessionSort = "cost"    // by the cost that sources report; document.Reader adds estimates

	// Those that follow are by figures of [Spent]. What the messages and calls of a session give is not in its row: what
	// is not kept of it is read first.
	SortTurns    SessionSort = "turns"
	SortErrors   SessionSort = "errors"
	SortTokens   SessionSort = "tokens"   // by the tokens used
	SortDuration SessionSort = "duration" // by the time that answers took; those that state none come last
)

// SessionSorts are all orders by the names that front ends have for them.
func SessionSorts() []string {
	all := []string{"updated"}
	for _, s := range []SessionSort{SortCreated, SortTitle, SortContext, SortCost, SortTurns, SortErrors, SortTokens,
		SortDuration} {
		all = append(all, string(s))
	}
	return all
}

// ParseSessionSort returns the order of a name.
func ParseSessionSort(name string) (SessionSort, bool) {
	if !slices.Contains(SessionSorts(), cmp.Or(name, "updated")) {
		return "", false
	}
	if name == "updated" {
		name = ""
	}
	return SessionSort(name), true
}

// SearchQuery selects what is looked through.
type SearchQuery struct {
	// Text is what is looked for, upper and lower case alike. Empty finds nothing.
	Text string
	// Regexp reports that Text is a regular expression: see [SearchQuery.Compile].
	Regexp bool
	// Agent, if set, selects sessions of that agent.
	Agent string
	// Session, if set, is the id of the one session that is looked through. What it copied is found in it, too.
	Session string
	// Since leaves out parts that are older; zero leaves out nothing.
	Since time.Time
}

// Compile returns the regular expression that Text is, in the syntax of package regexp. It ignores case, and ^ and $
// match at the beginning and end of each line; (?-i) and (?-m) change that.
func (q SearchQuery) Compile() (*regexp.Regexp, error) {
	if _, err := syntax.Parse(q.Text, syntax.Perl); err != nil {
		return nil, err // as it was typed
	}
	return regexp.Compile("(?im)" + q.Text)
}

// Types of hits that are in no part.
const (
	TypeSession      = "session"       // in the title of a session
	TypeSystemPrompt = "system-prompt" // in a system prompt, reported at the first message that has it
	TypeToolCatalog  = "tool-catalog"  // in a tool catalog, likewise
	TypeNote         = "note"          // in a note about a session, turn or part, or a remark on a tag or score
)

// Hit is a place where a text was found: one value of one part, or the title of a session.
type Hit struct {
	SessionID string `json:"session_id"`
	Title     string `json:"title"`
	// Opening is how the first text of a user begins, of a session without a title. An engine leaves it empty.
	Opening string `json:"opening,omitempty"`
	Agent   string `json:"agent"`
	// Turn is the number of the turn in the session's timeline; 0 where it is not known. An engine leaves it 0.
	Turn      int    `json:"turn,omitempty"`
	MessageID string `json:"message_id,omitempty"` // a title has neither message nor role nor part
	Role      string `json:"role,omitempty"`
	// Hidden reports that a rewind hid the message.
	Hidden bool   `json:"hidden,omitempty"`
	PartID string `json:"part_id,omitempty"`
	// Type is that of the part: text, reasoning, tool-<name> and so on; [TypeSession]
	// of a title, [TypeNote] of a note, of which the message and the part are what it is about.
	Type string `json:"type"`
	// Digest is that of the system prompt or tool catalog.
	Digest string `json:"digest,omitempty"`
	// Tool and CallID are those of a tool call.
	Tool   string `json:"tool,omitempty"`
	CallID string `json:"tool_call_id,omitempty"`
	// Field is where in the part: text, input.command, output[2].name; or title, system prompt, tool catalog, note.
	Field string `json:"field"`
	// Matches counts how often the text is in the value. Matches of a regular expression that are empty do not count,
	// nor do those after the first 100,000.
	Matches int `json:"matches"`
	// Context is the value around the first match, of which it has 4 KiB at most, and Marks are
	// the ranges of bytes of the matches in it.
	Context string   `json:"context"`
	Marks   [][2]int `json:"marks"`
	// CutBefore and CutAfter report that Context is not the value's beginning or end.
	CutBefore bool  `json:"cut_before,omitempty"`
	CutAfter  bool  `json:"cut_after,omitempty"`
	CreatedAt int64 `json:"created_at"`
}

// ExcerptQuery selects messages of a session, and what is read of them. The zero value selects all messages with all
// their parts.
type ExcerptQuery struct {
	// Messages, if not nil, are the ids of the messages.
	Messages []string `json:"messages"`
	// From is the first message. With LastTurns, the first is the nth last user message that is neither hidden nor
	// queued, or the first of the session if it has fewer.
	From      Position `json:"from,omitzero"`
	LastTurns int      `json:"last_turns,omitempty"`
	// Outline leaves out the parts that do not show where turns begin and end: it reads those of messages with a
	// compaction, and tool calls that have no result; with LastTurns also texts that are streaming.
	Outline bool `json:"outline,omitempty"`
	// Spans also reads the spans of the messages, and of compactions that failed. It needs Messages.
	Spans bool `json:"spans,omitempty"`
}

// Excerpt is a part of a session.
type Excerpt struct {
	// Transcript is the session's row, and the messages in order with their parts.
	*session.Transcript
	// From is the first message that was selected: of the last turns where they begin.
	From Position
	// Decisions are those about the messages, their parts and their calls. Without Messages in the query, they are
	// those made since From or since the first of the last turns, in order of time. An outline has none.
	Decisions []Decision
	// Spans are those of the messages, as [Reader].Spans returns them.
	Spans []SpanRef
	// ToolCalls counts the tool calls of the session, in an outline of all of it.
	ToolCalls int
}

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
