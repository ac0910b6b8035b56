package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Stats counts over all sessions. It reads every message that is not a user's and
// every tool call once, in the order in which they lie in the file: nothing is kept
// for it when sessions are written. Another program's store has the same figures.
func (r *Reader) Stats(ctx context.Context, q store.StatsQuery) (store.Stats, error) {
	c := &counter{StatsQuery: q, sessions: map[string]*countedSession{}, groups: map[string]*countedGroup{}, total: newGroup(""),
		models: map[string]string{}, names: map[string]string{}, unpriced: map[string]bool{}}
	if q.Location == nil {
		c.Location = time.UTC
	}
	if !q.Since.IsZero() {
		c.since = q.Since.UnixMilli()
	}
	err := r.read(ctx, func(conn *sqlite.Conn) error {
		if err := c.readSessions(conn, r.ours); err != nil {
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

// EstimateCosts asks price for the cost of the sessions' messages that state none, what a
// rewind hid and what a fork copied included, as a session's own cost has them. Sessions
// that nothing is known of are not in the result. It reads the metadata of every message of
// the sessions.
//
// Edge cases: unknown ids are passed over; metadata that cannot be read states nothing.
func (r *Reader) EstimateCosts(ctx context.Context, ids []string, price store.Price) (map[string]store.Estimate, error) {
	estimates := map[string]store.Estimate{}
	err := r.read(ctx, func(conn *sqlite.Conn) error {
		for _, id := range ids {
			stmt := conn.Prep(`SELECT metadata_json FROM chat_messages WHERE session_id = :session AND role <> 'user'`)
			stmt.SetText(":session", id)
			var sum *float64
			stated := 0.0
			unpriced := map[string]bool{}
			var text []byte
			if err := each(stmt, func() error {
				var m countedMetadata
				text = columnBytes(stmt, 0, text)
				_ = json.Unmarshal(text, &m)
				if m.Trace.CostUSD != nil {
					stated += *m.Trace.CostUSD
				}
				m.estimate(price, &sum, unpriced)
				return nil
			}); err != nil {
				return err
			}
			if sum != nil || stated != 0 || len(unpriced) > 0 {
				estimates[id] = store.Estimate{USD: sum, StatedUSD: stated, Unpriced: slices.Sorted(maps.Keys(unpriced))}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("estimate costs in %s: %w", r.path, err)
	}
	return estimates, nil
}

// columnBytes reads a column into a buffer that is large enough, which may be buf.
func columnBytes(stmt *sqlite.Stmt, column int, buf []byte) []byte {
	if n := stmt.ColumnLen(column); n > cap(buf) {
		buf = make([]byte, n)
	} else {
		buf = buf[:n]
	}
	stmt.ColumnBytes(column, buf)
	return buf
}

// counter adds up.
type counter struct {
	store.StatsQuery
	since    int64
	sessions map[string]*countedSession
	groups   map[string]*countedGroup
	total    *countedGroup
	heard    int64
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
	agent string
	// from is when a fork of a session that is there began: what is older was
	// copied. 0 for others.
	from int64
	last *countedGroup // that counted the session last
}

type countedGroup struct {
	store.StatsGroup
	seen      map[*countedSession]struct{}
	durations []int64
}

func newGroup(key string) *countedGroup {
	return &countedGroup{StatsGroup: store.StatsGroup{Key: key}, seen: map[*countedSession]struct{}{}}
}

func (c *counter) readSessions(conn *sqlite.Conn, ours bool) error {
	query := `SELECT id, agent, created_at, updated_at, 0 FROM chat_sessions`
	if ours {
		query = `SELECT s.id, s.agent, s.created_at, s.updated_at, st.forked_from IN (SELECT id FROM chat_sessions)
 FROM chat_sessions s LEFT JOIN session_state st ON st.session_id = s.id`
	}
	agents := map[string]string{}
	stmt := conn.Prep(query)
	return each(stmt, func() error {
		s := &countedSession{agent: stmt.ColumnText(1)}
		if one, known := agents[s.agent]; known {
			s.agent = one
		} else {
			agents[s.agent] = s.agent
		}
		if stmt.ColumnBool(4) {
			s.from = stmt.ColumnInt64(2)
		}
		c.sessions[stmt.ColumnText(0)] = s
		if stmt.ColumnInt64(3) >= c.since {
			c.heard++
		}
		return nil
	})
}

// counts says whether what began at a time in a session is counted.
func (c *counter) counts(sessionID string, at int64) *countedSession {
	s := c.sessions[sessionID]
	if s == nil || at < c.since || at < s.from {
		return nil
	}
	return s
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
		key = s.agent
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

// countedMetadata is what is counted of a message's metadata_json.
type countedMetadata struct {
	Model      *session.Model  `json:"model"`
	Usage      *session.Usage  `json:"usage"`
	Compaction json.RawMessage `json:"compaction"`
	Trace      struct {
		EndReason  string   `json:"end_reason"`
		DurationMS *int64   `json:"duration_ms"`
		CostUSD    *float64 `json:"cost_usd"`
		ModelCalls int64    `json:"model_calls"`
		Input      int64    `json:"input_tokens"`
		Output     int64    `json:"output_tokens"`
	} `json:"agenttrace"`
}

func (m *countedMetadata) model() string { return modelKey(m.Model) }

// estimate adds what the message took by price, where it states usage and no cost.
func (m *countedMetadata) estimate(price store.Price, sum **float64, unpriced map[string]bool) {
	if price == nil || m.Usage == nil || m.Usage.Total() == 0 || m.Trace.CostUSD != nil || string(m.Compaction) == "true" {
		return
	}
	var model session.Model
	if m.Model != nil {
		model = *m.Model
	}
	usd, ok := price(model, *m.Usage, m.Trace.ModelCalls)
	if !ok {
		unpriced[m.model()] = true
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
	stmt := conn.Prep(`SELECT session_id, created_at, metadata_json, id FROM chat_messages NOT INDEXED WHERE role <> 'user'`)
	var text []byte
	return each(stmt, func() error {
		at := stmt.ColumnInt64(1)
		s := c.counts(stmt.ColumnText(0), at)
		if s == nil {
			return nil
		}
		text = columnBytes(stmt, 2, text)
		var m countedMetadata
		_ = json.Unmarshal(text, &m) // what is of the wrong kind is not counted, the rest is
		model := m.model()
		if c.By == store.StatsByModel && model != "" {
			if _, known := c.names[model]; !known {
				c.names[model] = model
			}
			c.models[stmt.ColumnText(3)] = c.names[model]
		}
		g := c.group(s, at, model, "")
		if string(m.Compaction) == "true" {
			g.Usage = g.Usage.Add(session.Usage{Input: m.Trace.Input, Output: m.Trace.Output})
			return nil
		}
		g.Turns++
		if m.Trace.EndReason == "error" {
			g.Errors++
		}
		if m.Usage != nil {
			g.Usage = g.Usage.Add(*m.Usage)
		}
		if m.Trace.CostUSD != nil {
			g.CostUSD += *m.Trace.CostUSD
		}
		m.estimate(c.Price, &g.EstimatedCostUSD, c.unpriced)
		if m.Trace.DurationMS != nil {
			g.durations = append(g.durations, *m.Trace.DurationMS)
		}
		return nil
	})
}

// readCalls counts tool calls. The content of a part is looked at only where it
// tells what the columns do not.
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
		s := c.counts(stmt.ColumnText(0), at)
		if s == nil {
			return nil
		}
		model, tool := "", ""
		switch c.By {
		case store.StatsByModel:
			model = c.models[stmt.ColumnText(7)]
		case store.StatsByTool:
			tool = stmt.ColumnText(5)
			if name, static := strings.CutPrefix(stmt.ColumnText(2), "tool-"); static {
				tool = name
			}
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
		t.ToolCalls, t.FailedCalls, t.DeniedCalls = t.ToolCalls+g.ToolCalls, t.FailedCalls+g.FailedCalls, t.DeniedCalls+g.DeniedCalls
		t.durations = append(t.durations, g.durations...)
		g.Sessions = int64(len(g.seen))
		all.Groups = append(all.Groups, g.finished())
	}
	if len(c.unpriced) > 0 {
		all.UnpricedModels = slices.Sorted(maps.Keys(c.unpriced))
	}
	c.total.Sessions = c.heard
	all.Total = c.total.finished()
	slices.SortFunc(all.Groups, func(a, b store.StatsGroup) int {
		if c.By == store.StatsByDay {
			return cmp.Compare(a.Key, b.Key)
		}
		return cmp.Or(cmp.Compare(b.TotalTokens, a.TotalTokens), cmp.Compare(b.ToolCalls, a.ToolCalls), cmp.Compare(a.Key, b.Key))
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
