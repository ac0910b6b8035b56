package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Transcript implements [store.Reader].
func (r *Reader) Transcript(ctx context.Context, id string) (*session.Transcript, error) {
	return get(ctx, r, func(conn Conn) (*session.Transcript, error) {
		e, err := excerptOf(conn, id, store.ExcerptQuery{})
		if err != nil {
			return nil, err
		}
		return e.Transcript, nil
	})
}

// Excerpt implements [store.Reader].
func (r *Reader) Excerpt(ctx context.Context, id string, q store.ExcerptQuery) (*store.Excerpt, error) {
	return get(ctx, r, func(conn Conn) (*store.Excerpt, error) {
		if q.LastTurns > 0 {
			var err error
			if q.From, err = turnStart(conn, id, q.LastTurns); err != nil {
				return nil, err
			}
		}
		e, err := excerptOf(conn, id, q)
		if err != nil {
			return nil, err
		}
		switch {
		case q.Outline:
			if q.From == (store.Position{}) && q.Messages == nil {
				var n int64
				n, err = number(conn, toolCallsQuery, id)
				e.ToolCalls = int(n)
			}
		case conn.Dialect().Foreign:
		case q.Messages != nil:
			err = e.ofMessages(conn, q)
		default:
			e.Decisions, err = rowsOf(conn, store.DecisionTable(), `SELECT `+store.DecisionTable().List+`
 FROM permission_decisions WHERE session_id = ? AND decided_at >= ? ORDER BY decided_at, id`, id, q.From.At)
		}
		if err != nil {
			return nil, err
		}
		return &e.Excerpt, nil
	})
}

// excerpt is an excerpt that is being read.
type excerpt struct {
	store.Excerpt
	at map[string]int // of messages, by id
}

// compactionsQuery selects the messages of a session ?1 that have a compaction.
const compactionsQuery = `SELECT message_id FROM chat_parts WHERE session_id = ?1 AND type = 'data-compaction'`

// toolCallsQuery counts the tool calls of a session.
const toolCallsQuery = `SELECT count(*) FROM chat_parts WHERE session_id = ?
 AND (type = 'dynamic-tool' OR type >= 'tool-' AND type < 'tool.')`

// excerptOf returns the messages that are selected, and their parts.
func excerptOf(conn Conn, id string, q store.ExcerptQuery) (*excerpt, error) {
	row, err := sessionOf(conn, id)
	if err != nil {
		return nil, err
	}
	d := conn.Dialect()
	var messages []session.Message
	// The messages come first, so that an excerpt costs what it has and not what its session has: CROSS JOIN keeps
	// SQLite from another order.
	args := []any{id, q.From.At, q.From.ID}
	from := `chat_messages m CROSS JOIN chat_parts p WHERE m.session_id = ?1 AND m.created_at >= ?2
 AND (m.created_at > ?2 OR m.id >= ?3) AND p.message_id = m.id`
	if q.Messages == nil {
		messages, err = rowsOf(conn, store.MessageTable(), store.MessagesQuery(), args...)
	} else {
		of := d.Elements("?2", "x") + ` CROSS JOIN chat_messages m`
		args = []any{id, listOf(q.Messages)}
		from = of + ` CROSS JOIN chat_parts p WHERE m.id = x.value AND m.session_id = ?1 AND p.message_id = m.id`
		messages, err = rowsOf(conn, store.MessageTable(), `SELECT `+store.MessageTable().Prefixed("m.")+` FROM `+of+`
 WHERE m.id = x.value AND m.session_id = ?1 ORDER BY m.created_at, m.id`, args...)
	}
	if err != nil {
		return nil, err
	}
	e := &excerpt{at: make(map[string]int, len(messages))}
	e.From = q.From
	e.Transcript = &session.Transcript{Session: row, Messages: make([]session.MessageAndParts, len(messages))}
	for i, m := range messages {
		e.Messages[i].Message = m
		e.at[m.ID] = i
	}
	from += d.SameSession("p", "m")
	switch {
	case q.Outline && q.Messages == nil && q.From == (store.Position{}) && !d.Foreign:
		return e, e.landmarks(conn, id)
	case q.Outline:
		from += ` AND (p.type = 'data-compaction' OR coalesce(p.tool_state, '') NOT IN ('output-available', '')
 OR m.id IN (` + compactionsQuery + `)`
		if q.LastTurns > 0 {
			from += ` OR p.tool_state IS NULL AND ` + d.Contains("p.data_json", `"streaming"`)
		}
		from += `)`
	}
	return e, e.parts(conn, from+` ORDER BY m.created_at, m.id, p."index"`, args...)
}

// listOf is a list of texts as a parameter for [store.Dialect.Elements].
func listOf(texts []string) string {
	list, _ := json.Marshal(append([]string{}, texts...)) // texts always have JSON
	return string(list)
}

// parts adds the parts p that a query selects to their messages.
func (e *excerpt) parts(conn Conn, from string, args ...any) error {
	return conn.Query(`SELECT `+conn.Dialect().PartColumns+` FROM `+from, func(row store.Row) error {
		var p session.Part
		err := store.PartTable().Scan(row, &p)
		if at, ok := e.at[p.MessageID]; ok {
			m := &e.Messages[at]
			m.Parts = append(m.Parts, p)
		}
		return err
	}, args...)
}

// landmarks adds what an outline of the whole session has, by the indexes of the few parts that it is.
func (e *excerpt) landmarks(conn Conn, id string) error {
	err := e.parts(conn, `chat_parts p WHERE p.session_id = ?1 AND p.tool_state <> 'output-available'
 ORDER BY p.message_id, p."index"`, id)
	if err != nil {
		return err
	}
	compactions, err := texts(conn, compactionsQuery, id)
	if err != nil || len(compactions) == 0 {
		return err
	}
	for _, message := range compactions {
		if at, ok := e.at[message]; ok {
			e.Messages[at].Parts = nil // those without a result are among the next
		}
	}
	slices.Sort(compactions)
	return e.parts(conn, conn.Dialect().Elements("?1", "x")+` CROSS JOIN chat_parts p
 WHERE p.message_id = x.value AND p.session_id = ?2 ORDER BY p.message_id, p."index"`,
		listOf(slices.Compact(compactions)), id)
}

// ofMessages adds the decisions about the messages, and their spans if these are wanted.
func (e *excerpt) ofMessages(conn Conn, q store.ExcerptQuery) (err error) {
	var parts, calls []string
	for i := range e.Messages {
		for k := range e.Messages[i].Parts {
			p := &e.Messages[i].Parts[k]
			parts = append(parts, p.ID)
			if p.ToolCallID != nil {
				calls = append(calls, *p.ToolCallID)
			}
		}
	}
	d := conn.Dialect()
	id, messages := e.Session.ID, listOf(q.Messages)
	in := func(column, param string) string {
		return column + ` IN (SELECT value FROM ` + d.Elements(param, "x") + `)`
	}
	// An index has the decisions that name a message, and another those that name none. They are ordered here, as
	// SQLite would rather read all decisions of the session in their order.
	e.Decisions, err = rowsOf(conn, store.DecisionTable(), `SELECT `+store.DecisionTable().Prefixed("r.")+` FROM `+
		ofMessages(d, "permission_decisions")+`
 UNION ALL SELECT `+store.DecisionTable().List+` FROM permission_decisions WHERE session_id = ?1 AND message_id IS NULL
 AND (`+in("part_id", "?3")+` OR `+in("tool_call_id", "?4")+`)`, id, messages, listOf(parts), listOf(calls))
	e.Decisions = session.SortedRows(e.Decisions, func(a, b *store.Decision) int {
		return cmp.Or(cmp.Compare(a.DecidedAt, b.DecidedAt), strings.Compare(a.ID, b.ID))
	})
	if err != nil || !q.Spans {
		return err
	}
	e.Spans, err = spansOfMessages(conn, id, messages)
	e.Spans = slices.DeleteFunc(e.Spans, func(s store.SpanRef) bool {
		_, ok := e.at[s.MessageID]
		return !ok && s.MessageID != ""
	})
	return err
}

// ofMessages follows FROM for the rows r of a table that belong to messages of the session ?1 whose ids the list ?2
// has. It begins with the messages, so that each is looked up in an index of the table.
func ofMessages(d *store.Dialect, table string) string {
	return d.Elements("?2", "x") + ` CROSS JOIN chat_messages m CROSS JOIN ` + table + ` r
 WHERE m.id = x.value AND m.session_id = ?1 AND r.message_id = m.id` + d.SameSession("r", "m")
}

// turnStart is the position of a session's nth last user message that is neither hidden nor queued, n from 1. It is the
// zero position where there are not so many.
func turnStart(conn Conn, id string, n int) (p store.Position, err error) {
	contains := conn.Dialect().Contains
	_, err = first(conn, `SELECT created_at, id FROM chat_messages
 WHERE session_id = ? AND role = 'user' AND hidden_at IS NULL
 AND NOT `+contains("metadata_json", `"hidden_at"`)+` AND NOT `+contains("metadata_json", `"queued_at"`)+`
 ORDER BY created_at DESC, id DESC LIMIT 1 OFFSET ?`, func(row store.Row) {
		p = store.Position{At: row.ColumnInt64(0), ID: row.ColumnText(1)}
	}, id, int64(n-1))
	return p, err
}
