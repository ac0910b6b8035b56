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
	// day and week are the last ones that something was in.
	day, week period
}

// period is the name of a day or week, from a time to before another one.
type period struct {
	name     string
	from, to int64
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
	values    []string // of the keys, in their order
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
	if len(c.By) == 0 {
		return c.total
	}
	id := c.value(c.By[0], s, at, model, tool)
	for _, by := range c.By[1:] {
		id += "\x00" + c.value(by, s, at, model, tool)
	}
	g := c.groups[id]
	if g == nil {
		id = strings.Clone(id)
		values := strings.Split(id, "\x00")
		g = newGroup(strings.Join(values, ", "))
		g.values, g.Keys = values, make(map[store.StatsBy]string)
		for i, by := range c.By {
			g.Keys[by] = values[i]
		}
		c.groups[id] = g
	}
	if s.last != g {
		g.seen[s], s.last = struct{}{}, g
	}
	return g
}

// value is that of a key for what a session did at a time.
func (c *counter) value(by store.StatsBy, s *countedSession, at int64, model, tool string) string {
	switch by {
	case store.StatsByDay:
		return c.day.at(at, 1, c.Location)
	case store.StatsByWeek:
		return c.week.at(at, 7, c.Location)
	case store.StatsByProject:
		return c.project(s)
	case store.StatsByModel:
		return model
	case store.StatsByAgent:
		return s.row.Agent
	}
	return tool
}

// at returns the name of the day, or of the week of 7 days, that a time is in, and remembers it: the next time is often
// in it too. A source without times has none.
func (p *period) at(at int64, days int, zone *time.Location) string {
	if !session.Credible(at) {
		return ""
	}
	if at >= p.from && at < p.to {
		return p.name
	}
	t := time.UnixMilli(at).In(zone)
	y, m, d := t.Date()
	if days == 7 {
		d -= int(t.Weekday()+6) % 7 // a week begins on Monday
	}
	from := time.Date(y, m, d, 0, 0, 0, 0, zone)
	*p = period{from.Format(time.DateOnly), from.UnixMilli(), from.AddDate(0, 0, days).UnixMilli()}
	if days == 7 {
		year, week := from.ISOWeek()
		p.name = fmt.Sprintf("%04d-W%02d", year, week)
	}
	return p.name
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
	t := c.total
	for _, g := range c.groups {
		t.Turns, t.Errors, t.CostUSD, t.Usage = t.Turns+g.Turns, t.Errors+g.Errors, t.CostUSD+g.CostUSD,
			t.Usage.Add(g.Usage)
		t.EstimatedCostUSD = sumCosts(t.EstimatedCostUSD, g.EstimatedCostUSD)
		t.Unpriced = t.Unpriced || g.Unpriced
		t.ToolCalls, t.FailedCalls, t.DeniedCalls = t.ToolCalls+g.ToolCalls, t.FailedCalls+g.FailedCalls,
			t.DeniedCalls+g.DeniedCalls
		t.durations = append(t.durations, g.durations...)
		g.Sessions = int64(len(g.seen))
	}
	if len(c.unpriced) > 0 {
		all.UnpricedModels = slices.Sorted(maps.Keys(c.unpriced))
	}
	c.total.Sessions = c.lastSeen
	all.Total = c.total.finished()
	for _, g := range c.inOrder() {
		all.Groups = append(all.Groups, g.finished())
	}
	return all
}

// inOrder are the groups in the order of [store.Stats].
func (c *counter) inOrder() []*countedGroup {
	type sum struct{ tokens, calls int64 }
	sums := make(map[string]sum) // of the groups that share the values of the first keys
	of := func(g *countedGroup, keys int) string { return strings.Join(g.values[:keys], "\x00") }
	for _, g := range c.groups {
		for i := range g.values {
			s := sums[of(g, i+1)]
			sums[of(g, i+1)] = sum{s.tokens + g.Usage.Total(), s.calls + g.ToolCalls}
		}
	}
	return slices.SortedFunc(maps.Values(c.groups), func(a, b *countedGroup) int {
		for i, by := range c.By {
			if a.values[i] == b.values[i] {
				continue
			}
			x, y := sums[of(a, i+1)], sums[of(b, i+1)]
			if by == store.StatsByDay || by == store.StatsByWeek {
				x, y = sum{}, sum{}
			}
			return cmp.Or(cmp.Compare(y.tokens, x.tokens), cmp.Compare(y.calls, x.calls),
				cmp.Compare(a.values[i], b.values[i]))
		}
		return 0
	})
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
