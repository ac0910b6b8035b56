package sqlstore

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Stats implements [store.Reader]. It reads the metadata of every message, session by session, and every tool call
// once: nothing is kept for it when sessions are written.
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
	if !q.Until.IsZero() {
		c.until = q.Until.UnixMilli()
	}
	var among []string
	if q.Sessions.Text != "" {
		var err error
		if among, err = r.withText(ctx, q.Sessions.Text); err != nil {
			return store.Stats{}, fmt.Errorf("count in %s: %w", r.Name(), err)
		}
	}
	err := r.source.Read(ctx, func(conn Conn) error {
		if err := c.readSessions(conn); err != nil {
			return err
		}
		if err := c.exclude(conn, among); err != nil {
			return err
		}
		if !slices.Equal(q.By, []store.StatsBy{store.StatsByTool}) {
			if err := c.readMessages(conn); err != nil {
				return err
			}
		}
		return c.readCalls(conn)
	})
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
			spent, found, err := spentBy(conn, id, price)
			if err != nil {
				return err
			}
			if found {
				all[id] = spent
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count tokens in %s: %w", r.Name(), err)
	}
	return all, nil
}

// spentBy returns what a session used, and whether there is one with the id.
func spentBy(conn Conn, id string, price store.Price) (spent store.Spent, found bool, err error) {
	unpriced := map[string]bool{}
	var text []byte
	var turns session.Turns
	err = conn.Query(`SELECT s.parent_id, s.created_at, m.created_at, m.role, m.metadata_json, m.hidden_at IS NOT NULL,
 m.role <> 'user' AND `+isMarker(conn.Dialect())+`
 FROM chat_sessions s LEFT JOIN chat_messages m ON m.session_id = s.id WHERE s.id = ? ORDER BY m.created_at, m.id`,
		func(row store.Row) error {
			found = true
			if row.ColumnIsNull(3) {
				return nil // it has no message
			}
			s := session.Session{ID: id, ParentID: store.TextPtr(row, 0), CreatedAt: row.ColumnInt64(1)}
			text = store.Bytes(row, 4, text)
			metadata, role, marker := session.ParseMessageMetadata(text), row.ColumnText(3), row.ColumnBool(6)
			if begins, _ := turns.Next(session.TurnMessage{Role: role, Compaction: marker || metadata.Compaction,
				Hidden: row.ColumnBool(5), Queued: queued(role, text), Trace: &metadata.Trace}); begins {
				spent.Turns++
			}
			if role == session.RoleUser {
				return nil
			}
			if role == session.RoleAssistant {
				spent.Errors += int64(session.Failures(metadata.Trace.EndReason, metadata.Trace.ModelErrors))
			}
			tokens := metadata.Tokens(role, marker)
			if copied := spent.Add(&s, row.ColumnInt64(2), tokens); !copied && !marker && !metadata.Compaction {
				estimate(price, &metadata, tokens, &spent.EstimatedUSD, unpriced)
			}
			return nil
		}, id)
	if len(unpriced) > 0 {
		spent.Unpriced = slices.Sorted(maps.Keys(unpriced))
	}
	if err != nil || !found {
		return spent, found, err
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
	}, id)
	return spent, found, err
}

// callEnd is the state of the call p, which is the one in its metadata while its span is missing, and whether it is
// marked as denied.
func callEnd(d *store.Dialect) (state, marked string) {
	return `CASE p.tool_state WHEN 'input-streaming' THEN coalesce(` +
			d.JSON("p.data_json", "toolMetadata", "agenttrace", "state") + `, p.tool_state) ELSE p.tool_state END`,
		`CASE p.tool_state WHEN 'output-available' THEN NULL ELSE ` +
			d.JSONInt("p.data_json", "toolMetadata", "agenttrace", "denied") + ` END`
}

// queued reports whether a message is a user's that still waits.
func queued(role string, metadata []byte) bool {
	return role == session.RoleUser && bytes.Contains(metadata, []byte(`"queued_at"`))
}

// isMarker is in SQL what session.MessageAndParts.IsMarker reports of the message m.
func isMarker(d *store.Dialect) string {
	of := `(SELECT 1 FROM chat_parts p WHERE p.message_id = m.id` + d.SameSession("p", "m") + ` AND p.type `
	return `(EXISTS ` + of + `= 'data-compaction') AND NOT EXISTS ` + of + `<> 'data-compaction'))`
}

func (c *counter) readSessions(conn Conn) error {
	agents := map[string]string{}
	return conn.Query(`SELECT id, agent, created_at, updated_at, parent_id, workspace_root FROM chat_sessions`,
		func(row store.Row) error {
			s := &countedSession{row: session.Session{Agent: row.ColumnText(1), CreatedAt: row.ColumnInt64(2),
				ParentID: store.TextPtr(row, 4), WorkspaceRoot: store.TextPtr(row, 5)}}
			if one, known := agents[s.row.Agent]; known {
				s.row.Agent = one
			} else {
				agents[s.row.Agent] = s.row.Agent
			}
			c.sessions[row.ColumnText(0)] = s
			if s.updated = row.ColumnInt64(3); s.updated >= c.since {
				c.lastSeen++
			}
			return nil
		})
}

// exclude marks the sessions that are not selected. They stay known, because a session may take its project from one.
func (c *counter) exclude(conn Conn, among []string) error {
	f := &c.Sessions
	if len(f.Set()) == 0 && f.IDs == nil {
		return nil
	}
	where := conditions{d: conn.Dialect()}
	if f.Text != "" {
		where.among(among)
	}
	if err := where.filter(f); err != nil {
		return err
	}
	selected := make(map[string]bool)
	err := conn.Query(`SELECT s.id FROM chat_sessions s`+where.String(), func(row store.Row) error {
		selected[row.ColumnText(0)] = true
		return nil
	}, where.args...)
	c.lastSeen = 0
	for id, s := range c.sessions {
		if s.excluded = !selected[id]; !s.excluded && s.updated >= c.since {
			c.lastSeen++
		}
	}
	return err
}

func (c *counter) readMessages(conn Conn) error {
	markers, err := markerMessages(conn)
	if err != nil {
		return err
	}
	var text []byte
	var last *countedSession
	byModel, byTool := slices.Contains(c.By, store.StatsByModel), slices.Contains(c.By, store.StatsByTool)
	err = conn.Query(`SELECT session_id, created_at, metadata_json, id, role, hidden_at IS NOT NULL FROM chat_messages
 ORDER BY session_id, created_at, id`, func(row store.Row) error {
		s := c.sessions[row.ColumnText(0)]
		if s == nil {
			return nil
		}
		if s != last {
			c.unanswered(last)
			last = s
		}
		at, role := row.ColumnInt64(1), row.ColumnText(4)
		text = store.Bytes(row, 2, text)
		m := session.ParseMessageMetadata(text)
		marker := m.Compaction
		if len(markers) > 0 && !marker {
			marker = markers[row.ColumnText(3)]
		}
		model := modelKey(m.Model)
		if byModel && model != "" && role != session.RoleUser {
			if _, known := c.names[model]; !known {
				c.names[model] = model
			}
			c.models[row.ColumnText(3)] = c.names[model]
		}
		if byTool {
			return nil // the figures are of calls alone
		}
		begins, _ := s.turns.Next(session.TurnMessage{
			Role: role, Compaction: marker, Hidden: row.ColumnBool(5), Queued: queued(role, text), Trace: &m.Trace,
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
		g.Errors += int64(session.Failures(m.Trace.EndReason, m.Trace.ModelErrors))
		if marker {
			return nil
		}
		if estimate(c.Price, &m, tokens, &g.EstimatedCostUSD, c.unpriced) {
			g.Unpriced = true
		}
		if m.Trace.DurationMS != nil {
			g.durations = append(g.durations, *m.Trace.DurationMS)
		}
		return nil
	})
	c.unanswered(last)
	return err
}

// markerMessages are the messages that are a compaction's and do not report so in their
// metadata: other programs mark them by their parts alone.
func markerMessages(conn Conn) (map[string]bool, error) {
	markers := map[string]bool{}
	err := conn.Query(`SELECT p.message_id FROM chat_parts p WHERE p.type = 'data-compaction'
 AND NOT EXISTS (SELECT 1 FROM chat_parts q WHERE q.message_id = p.message_id`+
		conn.Dialect().SameSession("q", "p")+` AND q.type <> 'data-compaction')`,
		func(row store.Row) error {
			markers[row.ColumnText(0)] = true
			return nil
		})
	return markers, err
}

// readCalls counts tool calls. The content of a part is looked at only where it
// reports what the columns do not.
func (c *counter) readCalls(conn Conn) error {
	d := conn.Dialect()
	columns := `NULL, NULL`
	byModel, byTool := slices.Contains(c.By, store.StatsByModel), slices.Contains(c.By, store.StatsByTool)
	if byTool {
		columns = `CASE p.type WHEN 'dynamic-tool' THEN ` + d.JSON("p.data_json", "toolName") + ` END, ` +
			d.JSONInt("p.data_json", "toolMetadata", "agenttrace", "duration_ms")
	}
	state, marked := callEnd(d)
	return conn.Query(`SELECT p.session_id, p.created_at, p.type, `+state+`, `+marked+`, `+columns+`, p.message_id FROM chat_parts p`+d.NoIndex+`
 WHERE p.type = 'dynamic-tool' OR p.type >= 'tool-' AND p.type < 'tool.'`, func(row store.Row) error {
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
