package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// Stats counts over all sessions. It reads the metadata of every message, session by
// session, and every tool call once: nothing is kept for it when sessions are written. Another program's store has the same figures.
func (r *Reader) Stats(ctx context.Context, q store.StatsQuery) (store.Stats, error) {
	c := &counter{StatsQuery: q, sessions: map[string]*countedSession{}, groups: map[string]*countedGroup{},
		total:  newGroup(""),
		models: map[string]string{}, names: map[string]string{}, unpriced: map[string]bool{}}
	if q.Location == nil {
		c.Location = time.UTC
	}
	if !q.Since.IsZero() {
		c.since = q.Since.UnixMilli()
	}
	err := r.read(ctx, func(conn *sqlite.Conn) error {
		if err := c.readSessions(conn); err != nil {
			return err
		}
		if q.By != store.StatsByTool {
			if err := c.readMessages(conn); err != nil {
				return err
			}
		}
		return c.readCalls(conn)
	})
	if err != nil {
		return store.Stats{}, fmt.Errorf("count in %s: %w", r.path, err)
	}
	return c.stats(), nil
}

// Spent returns what each of the sessions used, by id, and asks price, which may be nil,
// for the cost of the messages that state usage and no cost. It reads the metadata of every
// message of the sessions, in one transaction.
//
// Edge cases: unknown ids are not in the result; metadata that cannot be read states
// nothing.
func (r *Reader) Spent(ctx context.Context, ids []string, price store.Price) (map[string]store.Spent, error) {
	all := make(map[string]store.Spent, len(ids))
	err := r.read(ctx, func(conn *sqlite.Conn) error {
		for _, id := range ids {
			found := conn.Prep(`SELECT parent_id, created_at FROM chat_sessions WHERE id = :session`)
			found.SetText(":session", id)
			s := session.Session{ID: id}
			known := false
			if err := each(found, func() error {
				known, s.ParentID, s.CreatedAt = true, sqlstore.TextPtr(found, 0), found.ColumnInt64(1)
				return nil
			}); err != nil {
				return err
			}
			if !known {
				continue
			}
			spent, err := spentBy(conn, &s, price)
			if err != nil {
				return err
			}
			all[id] = spent
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count tokens in %s: %w", r.path, err)
	}
	return all, nil
}

func spentBy(conn *sqlite.Conn, s *session.Session, price store.Price) (store.Spent, error) {
	var spent store.Spent
	unpriced := map[string]bool{}
	stmt := conn.Prep(`SELECT m.created_at, m.role, m.metadata_json, ` + isMarker + ` FROM chat_messages m
 WHERE m.session_id = :session AND m.role <> 'user'`)
	stmt.SetText(":session", s.ID)
	var text []byte
	err := each(stmt, func() error {
		text = sqlstore.Bytes(stmt, 2, text)
		metadata := session.ParseMessageMetadata(text)
		marker, at := stmt.ColumnBool(3), stmt.ColumnInt64(0)
		tokens := metadata.Tokens(stmt.ColumnText(1), marker)
		if copied := spent.Add(s, at, tokens); !copied && !marker && !metadata.Compaction {
			estimate(price, &metadata, tokens, &spent.EstimatedUSD, unpriced)
		}
		return nil
	})
	if len(unpriced) > 0 {
		spent.Unpriced = slices.Sorted(maps.Keys(unpriced))
	}
	return spent, err
}

// isMarker says in SQL what session.MessageAndParts.IsMarker reports of the message m.
const isMarker = `(EXISTS (SELECT 1 FROM chat_parts p WHERE p.message_id = m.id AND p.type = 'data-compaction')
 AND NOT EXISTS (SELECT 1 FROM chat_parts p WHERE p.message_id = m.id AND p.type <> 'data-compaction'))`

// counter adds up.
type counter struct {
	store.StatsQuery
	since    int64
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
	// day is the name of the day that lasts from dayFrom to before dayTo.
	day            string
	dayFrom, dayTo int64
}

type countedSession struct {
	row  session.Session // its agent, parent and time
	last *countedGroup   // that counted the session last
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

func (c *counter) readSessions(conn *sqlite.Conn) error {
	agents := map[string]string{}
	stmt := conn.Prep(`SELECT id, agent, created_at, updated_at, parent_id FROM chat_sessions`)
	return each(stmt, func() error {
		s := &countedSession{row: session.Session{Agent: stmt.ColumnText(1), CreatedAt: stmt.ColumnInt64(2),
			ParentID: sqlstore.TextPtr(stmt, 4)}}
		if one, known := agents[s.row.Agent]; known {
			s.row.Agent = one
		} else {
			agents[s.row.Agent] = s.row.Agent
		}
		c.sessions[stmt.ColumnText(0)] = s
		if stmt.ColumnInt64(3) >= c.since {
			c.lastSeen++
		}
		return nil
	})
}

// counts reports whether what began at a time in a session is counted.
func (c *counter) counts(s *countedSession, at int64) bool {
	return s != nil && at >= c.since && !s.row.Copied(at)
}

// group returns the group of what a session did at a time, having counted the
// session in it.
func (c *counter) group(s *countedSession, at int64, model, tool string) *countedGroup {
	key := ""
	switch c.By {
	case store.StatsByAll:
		return c.total
	case store.StatsByDay:
		if !session.Credible(at) {
			break // a source without times
		}
		if at < c.dayFrom || at >= c.dayTo || c.day == "" {
			y, m, d := time.UnixMilli(at).In(c.Location).Date()
			from := time.Date(y, m, d, 0, 0, 0, 0, c.Location)
			c.day, c.dayFrom, c.dayTo = from.Format(time.DateOnly), from.UnixMilli(), from.AddDate(0, 0, 1).UnixMilli()
		}
		key = c.day
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

// estimate adds what a message took by price, where it states usage and no cost.
func estimate(price store.Price, m *session.MessageMetadata, tokens session.MessageTokens, sum **float64,
	unpriced map[string]bool) {
	if price == nil || tokens.Used == nil || tokens.Used.Total() == 0 || tokens.CostUSD != nil {
		return
	}
	var model session.Model
	if m.Model != nil {
		model = *m.Model
	}
	usd, ok := price(model, *tokens.Used, m.Trace.ModelCalls)
	if !ok {
		unpriced[modelKey(m.Model)] = true
		return
	}
	addCost(sum, &usd)
}

// addCost adds what is known.
func addCost(sum **float64, usd *float64) {
	if usd == nil {
		return
	}
	total := *usd
	if *sum != nil {
		total += **sum
	}
	*sum = &total
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

func (c *counter) readMessages(conn *sqlite.Conn) error {
	markers, err := markerMessages(conn)
	if err != nil {
		return err
	}
	stmt := conn.Prep(`SELECT session_id, created_at, metadata_json, id, role, hidden_at IS NOT NULL FROM chat_messages
 ORDER BY session_id, created_at, id`)
	var text []byte
	var last *countedSession
	err = each(stmt, func() error {
		s := c.sessions[stmt.ColumnText(0)]
		if s == nil {
			return nil
		}
		if s != last {
			c.unanswered(last)
			last = s
		}
		at, role := stmt.ColumnInt64(1), stmt.ColumnText(4)
		text = sqlstore.Bytes(stmt, 2, text)
		m := session.ParseMessageMetadata(text)
		marker := m.Compaction
		if len(markers) > 0 && !marker {
			marker = markers[stmt.ColumnText(3)]
		}
		model := modelKey(m.Model)
		if c.By == store.StatsByModel && model != "" && role != session.RoleUser {
			if _, known := c.names[model]; !known {
				c.names[model] = model
			}
			c.models[stmt.ColumnText(3)] = c.names[model]
		}
		queued := role == session.RoleUser && bytes.Contains(text, []byte(`"queued_at"`))
		begins, _ := s.turns.Next(session.TurnMessage{
			Role: role, Compaction: marker, Hidden: stmt.ColumnBool(5), Queued: queued, Trace: &m.Trace,
		})
		if role == session.RoleUser && begins {
			c.unanswered(s)
			s.waiting, s.asked, s.ofWhom = true, at, model
		}
		if role != session.RoleAssistant || !c.counts(s, at) {
			return nil
		}
		g := c.group(s, at, model, "")
		if begins || s.waiting && !marker {
			g.Turns++
			s.waiting = false
		}
		tokens := m.Tokens(role, marker)
		if tokens.Used != nil {
			g.Usage = g.Usage.Add(*tokens.Used)
		}
		if tokens.CostUSD != nil {
			g.CostUSD += *tokens.CostUSD
		}
		if marker {
			return nil
		}
		if m.Trace.EndReason == "error" {
			g.Errors++
		}
		estimate(c.Price, &m, tokens, &g.EstimatedCostUSD, c.unpriced)
		if m.Trace.DurationMS != nil {
			g.durations = append(g.durations, *m.Trace.DurationMS)
		}
		return nil
	})
	c.unanswered(last)
	return err
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

// markerMessages are the messages that are a compaction's and do not report so in their
// metadata: other programs mark them by their parts alone.
func markerMessages(conn *sqlite.Conn) (map[string]bool, error) {
	markers := map[string]bool{}
	stmt := conn.Prep(`SELECT p.message_id FROM chat_parts p WHERE p.type = 'data-compaction'
 AND NOT EXISTS (SELECT 1 FROM chat_parts q WHERE q.message_id = p.message_id AND q.type <> 'data-compaction')`)
	err := each(stmt, func() error {
		markers[stmt.ColumnText(0)] = true
		return nil
	})
	return markers, err
}

// readCalls counts tool calls. The content of a part is looked at only where it
// reports what the columns do not.
func (c *counter) readCalls(conn *sqlite.Conn) error {
	columns := `NULL, NULL`
	if c.By == store.StatsByTool {
		columns = `CASE p.type WHEN 'dynamic-tool' THEN json_extract(p.data_json, '$.toolName') END,
 json_extract(p.data_json, '$.toolMetadata.agenttrace.duration_ms')`
	}
	stmt := conn.Prep(`SELECT p.session_id, p.created_at, p.type, p.tool_state,
 CASE p.tool_state WHEN 'output-error' THEN json_extract(p.data_json, '$.toolMetadata.agenttrace.denied') END, ` + columns + `, p.message_id
 FROM chat_parts p NOT INDEXED WHERE (p.type = 'dynamic-tool' OR p.type >= 'tool-' AND p.type < 'tool.')`)
	return each(stmt, func() error {
		at := stmt.ColumnInt64(1)
		s := c.sessions[stmt.ColumnText(0)]
		if !c.counts(s, at) {
			return nil
		}
		model, tool := "", ""
		switch c.By {
		case store.StatsByModel:
			model = c.models[stmt.ColumnText(7)]
		case store.StatsByTool:
			tool = session.ToolName(stmt.ColumnText(2), stmt.ColumnText(5))
		}
		g := c.group(s, at, model, tool)
		g.ToolCalls++
		state := stmt.ColumnText(3)
		switch {
		case state == session.StateOutputDenied || stmt.ColumnBool(4):
			g.DeniedCalls++
		case state == session.StateOutputError:
			g.FailedCalls++
		}
		if !stmt.ColumnIsNull(6) {
			g.durations = append(g.durations, stmt.ColumnInt64(6))
		}
		return nil
	})
}

// stats sums up.
func (c *counter) stats() store.Stats {
	var all store.Stats
	for _, g := range c.groups {
		t := c.total
		t.Turns, t.Errors, t.CostUSD, t.Usage = t.Turns+g.Turns, t.Errors+g.Errors, t.CostUSD+g.CostUSD, t.Usage.Add(g.Usage)
		addCost(&t.EstimatedCostUSD, g.EstimatedCostUSD)
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
		if c.By == store.StatsByDay {
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
