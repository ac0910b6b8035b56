package sqlstore

import (
	"bytes"
	"cmp"
	"context"
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

// Stats implements [store.Reader]. It reads the metadata of every message, session by session, and every tool call
// once: nothing is kept for it when sessions are written.
func (r *Reader) Stats(ctx context.Context, q store.StatsQuery) (store.Stats, error) {
	c := &counter{StatsQuery: q, sessions: map[string]*countedSession{}, groups: map[string]*countedGroup{},
		models: map[string]string{}, unpriced: map[string]bool{}, since: math.MinInt64, until: math.MaxInt64}
	if q.Location == nil {
		c.Location = time.UTC
	}
	if !q.Since.IsZero() {
		c.since = q.Since.UnixMilli()
	}
	if !q.Until.IsZero() {
		c.until = q.Until.UnixMilli()
	}
	var among []string
	var err error
	if q.Sessions.Text != "" {
		among, err = r.withText(ctx, q.Sessions.Text)
	}
	if err == nil {
		err = r.source.Read(ctx, func(conn Conn) error {
			if err := c.readSessions(conn, among); err != nil {
				return err
			}
			if !slices.Equal(q.By, []store.StatsBy{store.StatsByTool}) {
				if err := c.readMessages(conn); err != nil {
					return err
				}
			}
			return c.readCalls(conn)
		})
	}
	if err != nil {
		return store.Stats{}, fmt.Errorf("count in %s: %w", r.Name(), err)
	}
	return c.stats(), nil
}

// Spent implements [store.Reader]. It reads the metadata of every message of the sessions.
func (r *Reader) Spent(ctx context.Context, ids []string, price store.Price) (map[string]store.Spent, error) {
	all := make(map[string]store.Spent, len(ids))
	err := r.source.Read(ctx, func(conn Conn) error {
		for _, id := range ids {
			row, err := sessionOf(conn, id)
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if err == nil {
				all[id], err = spentBy(conn, &row, price)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count tokens in %s: %w", r.Name(), err)
	}
	return all, nil
}

// spentBy returns what a session used.
func spentBy(conn Conn, s *session.Session, price store.Price) (spent store.Spent, err error) {
	unpriced := map[string]bool{}
	err = eachMessage(conn, s.ID, func(m *countedMessage) {
		if m.begins {
			spent.Turns++
		}
		if m.role == session.RoleUser {
			return
		}
		spent.Errors += m.failures()
		if d := m.metadata.Trace.DurationMS; d != nil && !m.marker {
			spent.DurationMS = session.Sum(spent.DurationMS, d, func(a, b int64) int64 { return a + b })
		}
		if copied := spent.Add(s, m.at, m.tokens); !copied && !m.marker {
			m.estimate(price, &spent.EstimatedUSD, unpriced)
		}
	})
	if len(unpriced) > 0 {
		spent.Unpriced = slices.Sorted(maps.Keys(unpriced))
	}
	if err != nil {
		return spent, err
	}
	state, marked := callEnd(conn.Dialect())
	err = conn.Query(`SELECT `+state+`, `+marked+` FROM chat_parts p
 WHERE p.session_id = ? AND p.tool_state <> 'output-available'`, func(row store.Row) error {
		state, marked := row.ColumnText(0), row.ColumnBool(1)
		if session.CallDenied(state, marked) {
			spent.Denied++
		} else if session.CallFailed(state, marked) {
			spent.Errors++
		}
		return nil
	}, s.ID)
	return spent, err
}

// callEnd is the state of the call p, which is the one in its metadata while its span is missing, and whether it is
// marked as denied.
func callEnd(d *store.Dialect) (state, marked string) {
	return `CASE p.tool_state WHEN 'input-streaming' THEN coalesce(` +
			d.JSON("p.data_json", "toolMetadata", "agenttrace", "state") + `, p.tool_state) ELSE p.tool_state END`,
		`CASE p.tool_state WHEN 'output-available' THEN NULL ELSE ` +
			d.JSONInt("p.data_json", "toolMetadata", "agenttrace", "denied") + ` END`
}

// countedMessage is a message as it is counted.
type countedMessage struct {
	sessionID, id, role string
	at                  int64
	// begins reports that a turn begins with it, marker that it is a compaction's.
	begins, marker bool
	metadata       session.MessageMetadata
	tokens         session.MessageTokens
}

// eachMessage calls fn for the messages of a session, or of all sessions if it has no id, session by session and in
// their order.
func eachMessage(conn Conn, sessionID string, fn func(m *countedMessage)) error {
	where, of, args := "", "", []any(nil)
	if sessionID != "" {
		where, of, args = " WHERE session_id = ?", " AND p.session_id = ?", []any{sessionID}
	}
	// Other programs mark compactions by their parts alone.
	markers := map[string]bool{}
	err := conn.Query(`SELECT p.message_id FROM chat_parts p WHERE p.type = 'data-compaction'`+of+`
 AND NOT EXISTS (SELECT 1 FROM chat_parts q WHERE q.message_id = p.message_id`+
		conn.Dialect().SameSession("q", "p")+` AND q.type <> 'data-compaction')`,
		func(row store.Row) error {
			markers[row.ColumnText(0)] = true
			return nil
		}, args...)
	if err != nil {
		return err
	}
	var text []byte
	var turns session.Turns
	last := ""
	return conn.Query(`SELECT session_id, id, role, created_at, metadata_json, hidden_at IS NOT NULL FROM chat_messages`+
		where+` ORDER BY session_id, created_at, id`, func(row store.Row) error {
		m := countedMessage{sessionID: row.ColumnText(0), id: row.ColumnText(1), role: row.ColumnText(2),
			at: row.ColumnInt64(3)}
		if m.sessionID != last {
			last, turns = m.sessionID, session.Turns{}
		}
		text = store.Bytes(row, 4, text)
		m.metadata = session.ParseMessageMetadata(text)
		m.marker = m.metadata.Compaction || markers[m.id]
		m.tokens = m.metadata.Tokens(m.role, m.marker)
		m.begins, _ = turns.Next(session.TurnMessage{Role: m.role, Compaction: m.marker, Hidden: row.ColumnBool(5),
			Queued: m.role == session.RoleUser && bytes.Contains(text, []byte(`"queued_at"`)), Trace: &m.metadata.Trace})
		fn(&m)
		return nil
	}, args...)
}

// failures are those of an answer besides those of its calls.
func (m *countedMessage) failures() int64 {
	if m.role != session.RoleAssistant {
		return 0
	}
	return int64(session.Failures(m.metadata.Trace.EndReason, m.metadata.Trace.ModelErrors))
}

// estimate adds what a message took by price, where it states usage and no cost, and reports whether that has no price.
func (m *countedMessage) estimate(price store.Price, sum **float64, unpriced map[string]bool) (lacks bool) {
	used := m.tokens.Used
	if price == nil || used == nil || used.Total() == 0 || m.tokens.CostUSD != nil {
		return false
	}
	usd, lacking, ok := price.Message(m.metadata.Model, *used, m.metadata.Trace.Steps, m.metadata.Trace.ModelCalls)
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

// counter adds up.
type counter struct {
	store.StatsQuery
	// since and until bound what is counted, Unix milliseconds.
	since, until int64
	sessions     map[string]*countedSession
	groups       map[string]*countedGroup
	total        countedGroup
	// models are those of messages where calls are grouped by them: to look each message up again takes as long as all
	// the rest.
	models map[string]string
	// unpriced are models without a price.
	unpriced map[string]bool
}

type countedSession struct {
	row  session.Session // its agent, parent, workspace and time
	last *countedGroup   // that counted the session last
	// excluded reports that it is not selected. waiting is the user's message that is not answered yet.
	excluded bool
	waiting  *countedMessage
}

type countedGroup struct {
	store.StatsGroup
	values    []string // of the keys, in their order
	seen      map[*countedSession]bool
	durations []int64
}

// readSessions reads all sessions, because a session may take its project from one that is not selected.
func (c *counter) readSessions(conn Conn, among []string) error {
	f := &c.Sessions
	selected := map[string]bool(nil)
	if len(f.Set()) > 0 || f.IDs != nil {
		where := conditions{d: conn.Dialect()}
		if f.Text != "" {
			where.among(among)
		}
		if err := where.filter(f); err != nil {
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
	return conn.Query(`SELECT id, agent, created_at, updated_at, parent_id, workspace_root FROM chat_sessions`,
		func(row store.Row) error {
			s := &countedSession{row: session.Session{ID: row.ColumnText(0), Agent: row.ColumnText(1),
				CreatedAt: row.ColumnInt64(2), ParentID: store.TextPtr(row, 4), WorkspaceRoot: store.TextPtr(row, 5)}}
			c.sessions[s.row.ID] = s
			s.excluded = selected != nil && !selected[s.row.ID]
			if !s.excluded && row.ColumnInt64(3) >= c.since {
				c.total.Sessions++
			}
			return nil
		})
}

func (c *counter) readMessages(conn Conn) error {
	byModel, byTool := slices.Contains(c.By, store.StatsByModel), slices.Contains(c.By, store.StatsByTool)
	var last *countedSession
	err := eachMessage(conn, "", func(m *countedMessage) {
		s := c.sessions[m.sessionID]
		if s != last {
			c.unanswered(last)
			last = s
		}
		model := modelKey(m.metadata.Model)
		if byModel && model != "" && m.role != session.RoleUser {
			c.models[m.id] = model
		}
		if byTool || s == nil {
			return // the figures are of calls alone
		}
		if m.role == session.RoleUser && m.begins {
			c.unanswered(s)
			s.waiting = m
		}
		if m.role != session.RoleAssistant || !c.counts(s, m.at) {
			return
		}
		g := c.group(s, m.at, model, "")
		if m.begins || s.waiting != nil && !m.marker {
			g.Turns++
			s.waiting = nil
		}
		if m.tokens.Used != nil {
			g.Usage = g.Usage.Add(*m.tokens.Used)
		}
		g.CostUSD += session.Deref(m.tokens.CostUSD)
		g.Errors += m.failures()
		if m.marker {
			return
		}
		g.Unpriced = m.estimate(c.Price, &g.EstimatedCostUSD, c.unpriced) || g.Unpriced
		if d := m.metadata.Trace.DurationMS; d != nil {
			g.durations = append(g.durations, *d)
		}
	})
	c.unanswered(last)
	return err
}

// unanswered counts the turn of a session that waits for an answer, which does not come.
func (c *counter) unanswered(s *countedSession) {
	if s == nil || s.waiting == nil {
		return
	}
	if m := s.waiting; c.counts(s, m.at) {
		c.group(s, m.at, modelKey(m.metadata.Model), "").Turns++
	}
	s.waiting = nil
}

// readCalls counts tool calls. The content of a part is looked at only where it reports what the columns do not.
func (c *counter) readCalls(conn Conn) error {
	d := conn.Dialect()
	columns := `NULL, NULL`
	byModel, byTool := slices.Contains(c.By, store.StatsByModel), slices.Contains(c.By, store.StatsByTool)
	if byTool {
		columns = `CASE p.type WHEN 'dynamic-tool' THEN ` + d.JSON("p.data_json", "toolName") + ` END, ` +
			d.JSONInt("p.data_json", "toolMetadata", "agenttrace", "duration_ms")
	}
	state, marked := callEnd(d)
	return conn.Query(`SELECT p.session_id, p.created_at, p.type, `+state+`, `+marked+`, `+columns+`, p.message_id
 FROM chat_parts p`+d.NoIndex+` WHERE p.type = 'dynamic-tool' OR p.type >= 'tool-' AND p.type < 'tool.'`,
		func(row store.Row) error {
			at := row.ColumnInt64(1)
			s := c.sessions[row.ColumnText(0)]
			if !c.counts(s, at) {
				return nil
			}
			model, tool := "", ""
			if byModel {
				model = c.models[row.ColumnText(7)]
			}
			if byTool {
				tool = session.ToolName(row.ColumnText(2), row.ColumnText(5))
			}
			g := c.group(s, at, model, tool)
			g.ToolCalls++
			state, marked := row.ColumnText(3), row.ColumnBool(4)
			switch {
			case session.CallDenied(state, marked):
				g.DeniedCalls++
			case session.CallFailed(state, marked):
				g.FailedCalls++
				g.Errors++
			}
			if !row.ColumnIsNull(6) {
				g.durations = append(g.durations, row.ColumnInt64(6))
			}
			return nil
		})
}

// counts reports whether what began at a time in a session is counted.
func (c *counter) counts(s *countedSession, at int64) bool {
	return s != nil && !s.excluded && at >= c.since && at < c.until && !s.row.Copied(at)
}

// group returns the group of what a session did at a time, having counted the session in it.
func (c *counter) group(s *countedSession, at int64, model, tool string) *countedGroup {
	if len(c.By) == 0 {
		return &c.total
	}
	values := make([]string, len(c.By))
	for i, by := range c.By {
		switch by {
		case store.StatsByDay, store.StatsByWeek:
			values[i] = period(by, at, c.Location)
		case store.StatsByProject:
			values[i] = c.project(s)
		case store.StatsByModel:
			values[i] = model
		case store.StatsByAgent:
			values[i] = s.row.Agent
		default:
			values[i] = tool
		}
	}
	id := strings.Join(values, "\x00")
	g := c.groups[id]
	if g == nil {
		g = &countedGroup{values: values, seen: map[*countedSession]bool{}}
		g.Key, g.Keys = strings.Join(values, ", "), make(map[store.StatsBy]string)
		for i, by := range c.By {
			g.Keys[by] = values[i]
		}
		c.groups[id] = g
	}
	if s.last != g {
		g.seen[s], s.last = true, g
	}
	return g
}

// period is the name of the day or week that a time is in. A source without times has none.
func period(by store.StatsBy, at int64, zone *time.Location) string {
	t := time.UnixMilli(at).In(zone)
	switch {
	case !session.Credible(at):
		return ""
	case by == store.StatsByDay:
		return t.Format(time.DateOnly)
	}
	year, week := t.ISOWeek()
	return fmt.Sprintf("%04d-W%02d", year, week)
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
	all.Total = t.finished()
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
