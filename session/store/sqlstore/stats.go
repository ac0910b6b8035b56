package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Stats implements [store.Reader]. It sums the figures that are kept of sessions, and reads the messages and calls of
// those of which none are.
func (r *Reader) Stats(ctx context.Context, q store.StatsQuery) (store.Stats, error) {
	var among []string
	var err error
	if q.Sessions.Text != "" {
		among, err = r.withText(ctx, q.Sessions.Text)
	}
	var c *counter
	if err == nil {
		err = r.withFigures(ctx, func(conn Conn, missing []string) error {
			c = newCounter(q)
			return c.read(conn, among, missing)
		})
	}
	if err != nil {
		return store.Stats{}, fmt.Errorf("count in %s: %w", r.Name(), err)
	}
	return c.stats(), nil
}

// Spent implements [store.Reader]. It reads the metadata of every message of the sessions.
func (r *Reader) Spent(ctx context.Context, ids []string, price store.Price) (map[string]store.Spent, error) {
	all, err := ofEach(ctx, r, ids, func(conn Conn, id string) (store.Spent, bool, error) {
		row, err := sessionOf(conn, id)
		if errors.Is(err, store.ErrNotFound) {
			return store.Spent{}, false, nil
		} else if err != nil {
			return store.Spent{}, false, err
		}
		spent, err := spentBy(conn, &row, price)
		return spent, true, err
	})
	if err != nil {
		return nil, fmt.Errorf("count tokens in %s: %w", r.Name(), err)
	}
	return all, nil
}

// spentBy returns what a session used. Of its calls it reads those that did not succeed.
func spentBy(conn Conn, s *session.Session, price store.Price) (store.Spent, error) {
	var f figures
	if _, err := readMessages(conn, map[string]*figures{s.ID: &f}); err != nil {
		return store.Spent{}, err
	}
	state, marked := callEnd(conn.Dialect())
	err := conn.Query(`SELECT `+state+`, `+marked+` FROM chat_parts p
 WHERE p.session_id = ? AND p.tool_state <> 'output-available'`, func(row store.Row) error {
		state, marked := row.ColumnText(0), row.ColumnBool(1)
		f.calls = append(f.calls, countedCall{failed: session.CallFailed(state, marked),
			denied: session.CallDenied(state, marked)})
		return nil
	}, s.ID)
	return f.spent(s, price), err
}

// spent is what a session used.
func (f *figures) spent(s *session.Session, price store.Price) (spent store.Spent) {
	unpriced := map[string]bool{}
	for i := range f.messages {
		m := &f.messages[i]
		if m.begins {
			spent.Turns++
		}
		spent.Errors += m.failures
		if m.durationMS != nil && !m.marker {
			spent.DurationMS = session.Sum(spent.DurationMS, m.durationMS, func(a, b int64) int64 { return a + b })
		}
		copied := spent.Add(s, m.at, session.MessageTokens{Used: m.used, CostUSD: m.costUSD})
		if !copied && !m.marker {
			f.estimate(m, price, &spent.EstimatedUSD, unpriced)
		}
	}
	if len(unpriced) > 0 {
		spent.Unpriced = slices.Sorted(maps.Keys(unpriced))
	}
	for i := range f.calls {
		if f.calls[i].denied {
			spent.Denied++
		} else if f.calls[i].failed {
			spent.Errors++
		}
	}
	return spent
}

// callEnd is the state of the call p, which is the one in its metadata while its span is missing, and whether it is
// marked as denied.
func callEnd(d *store.Dialect) (state, marked string) {
	return `CASE p.tool_state WHEN 'input-streaming' THEN coalesce(` +
			d.JSON("p.data_json", "toolMetadata", "agenttrace", "state") + `, p.tool_state) ELSE p.tool_state END`,
		`CASE p.tool_state WHEN 'output-available' THEN NULL ELSE ` +
			d.JSONInt("p.data_json", "toolMetadata", "agenttrace", "denied") + ` END`
}

// estimate adds what a message took by price, where it states usage and no cost, and reports whether that has no price.
func (f *figures) estimate(m *countedMessage, price store.Price, sum **float64, unpriced map[string]bool) (lacks bool) {
	if price == nil || m.used == nil || m.used.Total() == 0 || m.costUSD != nil {
		return false
	}
	steps := make([]session.Step, 0, 8)
	for i := range m.steps {
		steps = append(steps, session.Step{Usage: &m.steps[i].used, Model: f.modelAt(m.steps[i].model)})
	}
	usd, lacking, ok := price.Message(f.modelAt(m.model), *m.used, steps, m.modelCalls)
	if !ok {
		unpriced[modelKey(&lacking)] = true
		return true
	}
	*sum = session.Sum(*sum, &usd, store.AddCost)
	return false
}

// modelAt is the model with an index, nil for -1.
func (f *figures) modelAt(i int64) *session.Model {
	if i < 0 {
		return nil
	}
	return &f.models[i]
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

// counter adds up.
type counter struct {
	store.StatsQuery
	byTool bool
	// since and until bound what is counted, Unix milliseconds.
	since, until int64
	sessions     map[string]*countedSession
	groups       map[groupKey]*countedGroup
	total        countedGroup
	// periods are the names of those that quarters of an hour are in.
	periods map[quarter]string
	// unpriced are models without a price.
	unpriced map[string]bool
}

// groupKey are the values of the keys of a group, in their order.
type groupKey [8]string

// quarter is one of an hour, since 1970, of which a period is asked for: no zone changes within it.
type quarter struct {
	by     store.StatsBy
	number int64
}

type countedSession struct {
	row   session.Session // its agent, parent, workspace and times
	model *session.Model  // that of the row, if sessions with one are selected
	// excluded reports that it is not selected, counted that nothing is left to be read of it.
	excluded, counted bool
	project           string
}

type countedGroup struct {
	store.StatsGroup
	values []string // of the keys, in their order
	// seen is the session that was counted last.
	seen         *countedSession
	turns, calls []int64 // durations in milliseconds
}

func newCounter(q store.StatsQuery) *counter {
	c := &counter{StatsQuery: q, byTool: slices.Contains(q.By, store.StatsByTool), since: math.MinInt64,
		until: math.MaxInt64, sessions: map[string]*countedSession{}, groups: map[groupKey]*countedGroup{},
		periods: map[quarter]string{}, unpriced: map[string]bool{}}
	if q.Location == nil {
		c.Location = time.UTC
	}
	if !q.Since.IsZero() {
		c.since = q.Since.UnixMilli()
	}
	if !q.Until.IsZero() {
		c.until = q.Until.UnixMilli()
	}
	return c
}

// read counts all that is selected. missing are the sessions without figures that are kept.
func (c *counter) read(conn Conn, among, missing []string) error {
	if err := c.readSessions(conn, among); err != nil {
		return err
	}
	if err := c.readKept(conn, missing); err != nil {
		return err
	}
	var left []string
	for id, s := range c.sessions {
		if !s.counted && !s.excluded {
			left = append(left, id)
		}
	}
	slices.Sort(left)
	for some := range slices.Chunk(left, keptAtOnce) {
		all, err := readFigures(conn, some)
		if err != nil {
			return err
		}
		for _, id := range some {
			c.count(c.sessions[id], all[id])
		}
	}
	return nil
}

// readKept counts by the figures that are kept, and not missing.
func (c *counter) readKept(conn Conn, missing []string) error {
	if !conn.Dialect().Figures {
		return nil
	}
	var data []byte
	var f figures
	return conn.Query(`SELECT session_id, data FROM session_stats`, func(row store.Row) error {
		s := c.sessions[row.ColumnText(0)]
		if s == nil || s.excluded {
			return nil
		} else if _, is := slices.BinarySearch(missing, s.row.ID); is {
			return nil
		}
		data = store.Bytes(row, 1, data)
		if f.decode(data) {
			c.count(s, &f)
		}
		return nil
	})
}

// readSessions reads all sessions, because a session may take its project from one that is not selected. Which have a
// model is left to their figures, which have the models of messages.
func (c *counter) readSessions(conn Conn, among []string) error {
	f := c.Sessions
	f.Model, f.Provider = "", ""
	selected := map[string]bool(nil)
	if len(f.Set()) > 0 || f.IDs != nil {
		where := conditions{d: conn.Dialect()}
		if f.Text != "" {
			where.among(among)
		}
		if err := where.filter(&f); err != nil {
			return err
		}
		ids, err := texts(conn, `SELECT s.id FROM chat_sessions s`+where.String(), where.args...)
		if err != nil {
			return err
		}
		selected = make(map[string]bool)
		for _, id := range ids {
			selected[id] = true
		}
	}
	return conn.Query(`SELECT id, agent, created_at, updated_at, parent_id, workspace_root, model_json FROM chat_sessions`,
		func(row store.Row) error {
			s := &countedSession{row: session.Session{ID: row.ColumnText(0), Agent: row.ColumnText(1),
				CreatedAt: row.ColumnInt64(2), UpdatedAt: row.ColumnInt64(3), ParentID: store.TextPtr(row, 4),
				WorkspaceRoot: store.TextPtr(row, 5)}}
			if c.Sessions.Model != "" || c.Sessions.Provider != "" {
				_ = json.Unmarshal([]byte(row.ColumnText(6)), &s.model) // what cannot be read names none
			}
			c.sessions[s.row.ID] = s
			s.excluded = selected != nil && !selected[s.row.ID]
			return nil
		})
}

// hasModel reports whether the session, or a message of it, has the model and the provider that are selected.
func (c *counter) hasModel(s *countedSession, f *figures) bool {
	models := f.models
	if s.model != nil {
		models = append(slices.Clone(models), *s.model)
	}
	provider, rest, _ := strings.Cut(c.Sessions.Model, "/")
	return (c.Sessions.Model == "" || slices.ContainsFunc(models, func(m session.Model) bool {
		return m.ModelID == c.Sessions.Model || m.ModelID == rest && m.ProviderID == provider
	})) && (c.Sessions.Provider == "" || slices.ContainsFunc(models, func(m session.Model) bool {
		return m.ProviderID == c.Sessions.Provider
	}))
}

// count adds up the figures of a session.
func (c *counter) count(s *countedSession, f *figures) {
	s.counted = true
	if !c.hasModel(s, f) {
		return
	}
	if s.row.UpdatedAt >= c.since {
		c.total.Sessions++
	}
	s.project = c.project(s)
	models := make([]string, len(f.models)+1)
	for i := range models {
		models[i] = modelKey(f.modelAt(int64(i) - 1))
	}
	if !c.byTool { // otherwise, the figures are of calls alone
		c.countMessages(s, f, models)
	}
	for i := range f.calls {
		call := &f.calls[i]
		if !c.counts(s, call.at) {
			continue
		}
		g := c.group(s, call.at, models[call.model+1], f.tools[call.tool])
		g.ToolCalls++
		switch {
		case call.denied:
			g.DeniedCalls++
		case call.failed:
			g.FailedCalls++
			g.Errors++
		}
		if call.durationMS != nil {
			g.calls = append(g.calls, *call.durationMS)
		}
	}
}

func (c *counter) countMessages(s *countedSession, f *figures, models []string) {
	var waiting *countedMessage // is the user's message that is not answered yet
	unanswered := func() {
		if waiting != nil && c.counts(s, waiting.at) {
			c.group(s, waiting.at, models[waiting.model+1], "").Turns++
		}
	}
	for i := range f.messages {
		m := &f.messages[i]
		if m.question {
			unanswered()
			waiting = m
			continue
		}
		if !c.counts(s, m.at) {
			continue
		}
		g := c.group(s, m.at, models[m.model+1], "")
		if m.begins || waiting != nil && !m.marker {
			g.Turns++
			waiting = nil
		}
		calls := c.calls(m)
		for i := range calls {
			c.countUsed(c.group(s, m.at, models[calls[i].model+1], ""), f, &calls[i])
		}
		if calls == nil {
			c.countUsed(g, f, m)
		}
		g.CostUSD = store.AddCost(g.CostUSD, session.Deref(m.costUSD))
		g.Errors += m.failures
		if m.marker {
			continue
		}
		if m.durationMS != nil {
			g.turns = append(g.turns, *m.durationMS)
		}
	}
	unanswered()
}

// countUsed counts what a message, or a call of it, used.
func (c *counter) countUsed(g *countedGroup, f *figures, m *countedMessage) {
	if m.used != nil {
		g.Usage = g.Usage.Add(*m.used)
	}
	if !m.marker {
		g.Unpriced = f.estimate(m, c.Price, &g.EstimatedCostUSD, c.unpriced) || g.Unpriced
	}
}

// calls are those of a message where models are apart and it states the usage of each; else there are none.
func (c *counter) calls(m *countedMessage) (calls []countedMessage) {
	if m.used == nil || len(m.steps) == 0 || !slices.Contains(c.By, store.StatsByModel) {
		return nil
	}
	var sum session.Usage
	for i := range m.steps {
		step := &m.steps[i]
		call := countedMessage{
			marker: m.marker, model: step.model, used: &step.used, costUSD: m.costUSD, modelCalls: 1}
		if call.model < 0 { // the message's
			call.model = m.model
		}
		sum, calls = sum.Add(step.used), append(calls, call)
	}
	if sum != *m.used {
		return nil
	}
	return calls
}

// counts reports whether what began at a time in a session is counted.
func (c *counter) counts(s *countedSession, at int64) bool {
	return at >= c.since && at < c.until && !s.row.Copied(at)
}

// group returns the group of what a session did at a time, having counted the session in it.
func (c *counter) group(s *countedSession, at int64, model, tool string) *countedGroup {
	if len(c.By) == 0 {
		return &c.total
	}
	var key groupKey
	for i, by := range c.By {
		switch by {
		case store.StatsByProject:
			key[i] = s.project
		case store.StatsByModel:
			key[i] = model
		case store.StatsByAgent:
			key[i] = s.row.Agent
		case store.StatsByTool:
			key[i] = tool
		default:
			key[i] = c.period(by, at)
		}
	}
	g := c.groups[key]
	if g == nil {
		g = &countedGroup{values: slices.Clone(key[:len(c.By)])}
		g.Key, g.Keys = strings.Join(g.values, ", "), make(map[store.StatsBy]string)
		for i, by := range c.By {
			g.Keys[by] = key[i]
		}
		c.groups[key] = g
	}
	if g.seen != s {
		g.seen = s
		g.Sessions++
	}
	return g
}

// period is the name of the day, week, weekday or hour that a time is in, as [store.StatsBy] has it, "" if a source has
// no times.
func (c *counter) period(by store.StatsBy, at int64) string {
	if !session.Credible(at) {
		return ""
	}
	q := quarter{by, at / (15 * 60 * 1000)}
	name, known := c.periods[q]
	if !known {
		name = periodName(by, time.UnixMilli(at).In(c.Location))
		c.periods[q] = name
	}
	return name
}

func periodName(by store.StatsBy, at time.Time) string {
	switch by {
	case store.StatsByDay:
		return at.Format(time.DateOnly)
	case store.StatsByWeek:
		year, week := at.ISOWeek()
		return fmt.Sprintf("%04d-W%02d", year, week)
	case store.StatsByWeekday:
		return at.Weekday().String()
	}
	return at.Format("15:00")
}

// project returns the workspace of a session, or of the one above it that has one.
func (c *counter) project(s *countedSession) string {
	const maxDepth = 16 // of agents that start others
	for depth := 0; s != nil && depth < maxDepth; depth++ {
		if root := session.Deref(s.row.WorkspaceRoot); root != "" {
			return root
		}
		s = c.sessions[session.Deref(s.row.ParentID)]
	}
	return ""
}

// stats sums up.
func (c *counter) stats() store.Stats {
	var all store.Stats
	t := &c.total
	for _, g := range c.groups {
		t.Turns, t.Errors, t.Usage = t.Turns+g.Turns, t.Errors+g.Errors, t.Usage.Add(g.Usage)
		t.CostUSD = store.AddCost(t.CostUSD, g.CostUSD)
		t.EstimatedCostUSD = session.Sum(t.EstimatedCostUSD, g.EstimatedCostUSD, store.AddCost)
		t.Unpriced = t.Unpriced || g.Unpriced
		t.ToolCalls, t.FailedCalls, t.DeniedCalls = t.ToolCalls+g.ToolCalls, t.FailedCalls+g.FailedCalls,
			t.DeniedCalls+g.DeniedCalls
		t.turns, t.calls = append(t.turns, g.turns...), append(t.calls, g.calls...)
	}
	if len(c.unpriced) > 0 {
		all.UnpricedModels = slices.Sorted(maps.Keys(c.unpriced))
	}
	all.Total = t.finished(c.byTool)
	for _, g := range c.inOrder() {
		all.Groups = append(all.Groups, g.finished(c.byTool))
	}
	return all
}

// weekdays are their names in their order, after that of none.
const weekdays = " MondayTuesdayWednesdayThursdayFridaySaturdaySunday"

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
			if by == store.StatsByWeekday {
				return cmp.Compare(strings.Index(weekdays, a.values[i]), strings.Index(weekdays, b.values[i]))
			} else if by.IsPeriod() {
				return cmp.Compare(a.values[i], b.values[i])
			}
			return cmp.Or(cmp.Compare(y.tokens, x.tokens), cmp.Compare(y.calls, x.calls),
				cmp.Compare(a.values[i], b.values[i]))
		}
		return 0
	})
}

func (g *countedGroup) finished(byTool bool) store.StatsGroup {
	g.TotalTokens = g.Usage.Total()
	if input := g.Usage.Input + g.Usage.CacheRead + g.Usage.CacheWrite; input > 0 {
		rate := float64(g.Usage.CacheRead) / float64(input)
		g.CacheHitRate = &rate
	}
	g.CallMedianMS, g.CallP95MS = ranks(g.calls)
	if g.MedianMS, g.P95MS = ranks(g.turns); byTool {
		g.MedianMS, g.P95MS = g.CallMedianMS, g.CallP95MS
	}
	return g.StatsGroup
}

// ranks are the least of the values that 50 and 95 percent of them do not exceed. It changes the order of the values.
func ranks(values []int64) (median, p95 *int64) {
	if len(values) == 0 {
		return nil, nil
	}
	slices.Sort(values)
	at := func(percent int) *int64 { return &values[max((len(values)*percent+99)/100-1, 0)] }
	return at(50), at(95)
}
