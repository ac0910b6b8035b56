package sqlstore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// counter adds up.
type counter struct {
	store.StatsQuery
	// since and until bound what is counted, Unix milliseconds.
	since    int64
	until    int64
	sessions map[string]*countedSession
	groups   map[string]*countedGroup
	total    *countedGroup
	lastSeen int64
	// models are those of messages, interned, where calls are grouped by them: to
	// look each message up again takes as long as all the rest.
	models map[string]string
	names  map[string]string
	// unpriced are models without a price.
	unpriced map[string]bool
	// day is the name of the day or week that lasts from dayFrom to before dayTo.
	day            string
	dayFrom, dayTo int64
}

type countedSession struct {
	row session.Session // its agent, parent, workspace and time
	// excluded reports that it is not selected. updated is when it was last updated, Unix milliseconds.
	excluded bool
	updated  int64
	last     *countedGroup // that counted the session last
	// turns are those of the messages read so far. asked is when the user began one that
	// is not answered yet, in Unix milliseconds, and of whom is its model.
	turns   session.Turns
	waiting bool
	asked   int64
	ofWhom  string
}

type countedGroup struct {
	store.StatsGroup
	seen      map[*countedSession]struct{}
	durations []int64
}

func newGroup(key string) *countedGroup {
	return &countedGroup{StatsGroup: store.StatsGroup{Key: key}, seen: map[*countedSession]struct{}{}}
}

// counts reports whether what began at a time in a session is counted.
func (c *counter) counts(s *countedSession, at int64) bool {
	return s != nil && !s.excluded && at >= c.since && (c.until == 0 || at < c.until) && !s.row.Copied(at)
}

// group returns the group of what a session did at a time, having counted the
// session in it.
func (c *counter) group(s *countedSession, at int64, model, tool string) *countedGroup {
	key := ""
	switch c.By {
	case store.StatsByAll:
		return c.total
	case store.StatsByDay, store.StatsByWeek:
		if !session.Credible(at) {
			break // a source without times
		}
		if at < c.dayFrom || at >= c.dayTo || c.day == "" {
			c.begin(at)
		}
		key = c.day
	case store.StatsByProject:
		key = c.project(s)
	case store.StatsByModel:
		key = model
	case store.StatsByAgent:
		key = s.row.Agent
	case store.StatsByTool:
		key = tool
	}
	g := c.groups[key]
	if g == nil {
		g = newGroup(strings.Clone(key))
		c.groups[key] = g
	}
	if s.last != g {
		g.seen[s], s.last = struct{}{}, g
	}
	return g
}

// begin begins the day, or the week, that a time is in.
func (c *counter) begin(at int64) {
	t := time.UnixMilli(at).In(c.Location)
	y, m, d := t.Date()
	length := 1
	if c.By == store.StatsByWeek {
		length = 7
		d -= int(t.Weekday()+6) % 7 // a week begins on Monday
	}
	from := time.Date(y, m, d, 0, 0, 0, 0, c.Location)
	c.day, c.dayFrom, c.dayTo = from.Format(time.DateOnly), from.UnixMilli(), from.AddDate(0, 0, length).UnixMilli()
	if c.By == store.StatsByWeek {
		year, week := from.ISOWeek()
		c.day = fmt.Sprintf("%04d-W%02d", year, week)
	}
}

// project returns the workspace of a session, or of the one above it that has one.
func (c *counter) project(s *countedSession) string {
	const maxDepth = 16 // of agents that start others
	for range maxDepth {
		if s.row.WorkspaceRoot != nil && *s.row.WorkspaceRoot != "" {
			return *s.row.WorkspaceRoot
		}
		if s.row.ParentID == nil || c.sessions[*s.row.ParentID] == nil {
			break
		}
		s = c.sessions[*s.row.ParentID]
	}
	return ""
}

// estimate adds what a message took by price, where it states usage and no cost, and
// reports whether that has no price.
func estimate(price store.Price, m *session.MessageMetadata, tokens session.MessageTokens, sum **float64,
	unpriced map[string]bool) (lacks bool) {
	if price == nil || tokens.Used == nil || tokens.Used.Total() == 0 || tokens.CostUSD != nil {
		return false
	}
	usd, lacking, ok := price.Message(m.Model, *tokens.Used, m.Trace.Steps, m.Trace.ModelCalls)
	if !ok {
		unpriced[modelKey(&lacking)] = true
		return true
	}
	*sum = sumCosts(*sum, &usd)
	return false
}

// sumCosts adds the costs that are known.
func sumCosts(a, b *float64) *float64 {
	return session.Sum(a, b, func(a, b float64) float64 { return a + b })
}

func modelKey(m *session.Model) string {
	switch {
	case m == nil:
		return ""
	case m.ProviderID == "" || m.ModelID == "":
		return cmp.Or(m.ModelID, m.ProviderID)
	}
	return m.ProviderID + "/" + m.ModelID
}

// unanswered counts the turn of a session that waits for an answer, which does not come.
func (c *counter) unanswered(s *countedSession) {
	if s != nil && s.waiting && c.counts(s, s.asked) {
		c.group(s, s.asked, s.ofWhom, "").Turns++
	}
	if s != nil {
		s.waiting = false
	}
}

// stats sums up.
func (c *counter) stats() store.Stats {
	var all store.Stats
	for _, g := range c.groups {
		t := c.total
		t.Turns, t.Errors, t.CostUSD, t.Usage = t.Turns+g.Turns, t.Errors+g.Errors, t.CostUSD+g.CostUSD,
			t.Usage.Add(g.Usage)
		t.EstimatedCostUSD = sumCosts(t.EstimatedCostUSD, g.EstimatedCostUSD)
		t.Unpriced = t.Unpriced || g.Unpriced
		t.ToolCalls, t.FailedCalls, t.DeniedCalls = t.ToolCalls+g.ToolCalls, t.FailedCalls+g.FailedCalls,
			t.DeniedCalls+g.DeniedCalls
		t.durations = append(t.durations, g.durations...)
		g.Sessions = int64(len(g.seen))
		all.Groups = append(all.Groups, g.finished())
	}
	if len(c.unpriced) > 0 {
		all.UnpricedModels = slices.Sorted(maps.Keys(c.unpriced))
	}
	c.total.Sessions = c.lastSeen
	all.Total = c.total.finished()
	slices.SortFunc(all.Groups, func(a, b store.StatsGroup) int {
		if c.By == store.StatsByDay || c.By == store.StatsByWeek {
			return cmp.Compare(a.Key, b.Key)
		}
		return cmp.Or(cmp.Compare(b.TotalTokens, a.TotalTokens), cmp.Compare(b.ToolCalls, a.ToolCalls),
			cmp.Compare(a.Key, b.Key))
	})
	return all
}

func (g *countedGroup) finished() store.StatsGroup {
	g.TotalTokens = g.Usage.Total()
	if input := g.Usage.Input + g.Usage.CacheRead + g.Usage.CacheWrite; input > 0 {
		rate := float64(g.Usage.CacheRead) / float64(input)
		g.CacheHitRate = &rate
	}
	slices.Sort(g.durations)
	g.MedianMS, g.P95MS = rank(g.durations, 50), rank(g.durations, 95)
	return g.StatsGroup
}

// rank is the least of the sorted values that percent of them do not exceed.
func rank(sorted []int64, percent int) *int64 {
	if len(sorted) == 0 {
		return nil
	}
	return &sorted[max((len(sorted)*percent+99)/100-1, 0)]
}
