// Package sqlstore has what engines share beside the merge: reading, searching, counting and managing. The tables are
// those of package store, which FORMAT.md of package sqlite describes.
package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Reader has the methods of [store.Reader] for any engine that speaks SQL, except for Close. Each reads one state of
// the store. It is safe for concurrent use.
type Reader struct{ source Source }

// NewReader returns a Reader of a store.
func NewReader(source Source) Reader { return Reader{source} }

// Name returns the path or the address of the store.
func (r *Reader) Name() string { return r.source.Name() }

// get returns what fn reads.
func get[T any](ctx context.Context, r *Reader, fn func(Conn) (T, error)) (v T, err error) {
	err = r.source.Read(ctx, func(conn Conn) (err error) {
		v, err = fn(conn)
		return err
	})
	return v, err
}

// ofEach returns what fn reads of each of some sessions, by their ids, of those that have it.
func ofEach[T any](ctx context.Context, r *Reader, ids []string,
	fn func(conn Conn, id string) (v T, has bool, _ error)) (map[string]T, error) {
	return get(ctx, r, func(conn Conn) (map[string]T, error) {
		all := make(map[string]T, len(ids))
		for _, id := range ids {
			v, has, err := fn(conn, id)
			if err != nil {
				return nil, err
			}
			if has {
				all[id] = v
			}
		}
		return all, nil
	})
}

// own returns what fn reads from tables that another program's store does not have: there it is the zero value.
func own[T any](ctx context.Context, r *Reader, fn func(Conn) (T, error)) (T, error) {
	return get(ctx, r, func(conn Conn) (v T, err error) {
		if conn.Dialect().Foreign {
			return v, nil
		}
		return fn(conn)
	})
}

// Sessions implements [store.Reader].
func (r *Reader) Sessions(ctx context.Context, q store.SessionQuery) iter.Seq2[session.Session, error] {
	return sequence("list sessions of "+r.Name(), func(emit func(session.Session) error) (err error) {
		var among []string
		if q.Text != "" {
			if among, err = r.withText(ctx, q.Text); err != nil {
				return err
			}
		}
		if slices.Contains(figureSorts, q.Sort) {
			return r.byFigure(ctx, &q, among, emit)
		}
		return r.source.Read(ctx, func(conn Conn) error {
			query, args, err := sessionsQuery(conn, &q, among)
			if err != nil {
				return err
			}
			return eachSession(conn, query, args, func(s session.Session, _ store.Row) error { return emit(s) })
		})
	})
}

// eachSession calls fn for the rows of a query that begin with the columns of sessions.
func eachSession(conn Conn, query string, args []any, fn func(session.Session, store.Row) error) error {
	return conn.Query(query, func(found store.Row) error {
		var row session.Session
		if err := store.SessionTable().Scan(found, &row); err != nil {
			return err
		}
		return fn(row, found)
	}, args...)
}

// sequence yields what read emits, and then its error, with what was done, if it has one.
func sequence[T any](what string, read func(emit func(T) error) error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		left := false // a consumer that has left may have canceled the context, which is the error then
		err := read(func(v T) error {
			if left = !yield(v, nil); left {
				return errors.New("the consumer has left")
			}
			return nil
		})
		if err != nil && !left {
			yield(*new(T), fmt.Errorf("%s: %w", what, err))
		}
	}
}

// conditionsOf are those of the sessions that a query selects, without its cursor. It reports whether these are few,
// which an index of a condition finds.
func conditionsOf(conn Conn, q *store.SessionQuery, among []string) (where conditions, few bool, err error) {
	where.d = conn.Dialect()
	if q.Text != "" {
		where.among(among)
	}
	if err := where.filter(&q.SessionFilter); err != nil {
		return where, false, err
	}
	if few = q.ParentID != "" || q.Text != "" || q.IDs != nil; !few {
		if few, err = where.narrow(conn); err != nil {
			return where, false, err
		}
	}
	switch {
	case q.ParentID != "":
		where.add("s.parent_id = ?", q.ParentID)
	case !q.Children:
		where.add(leading(where.d))
	}
	if !q.Archived {
		where.add("+s.archived_at IS NULL") // most are not archived: an index on it is of no use
	}
	return where, few, nil
}

// limitOf is the LIMIT of a query, "" without one.
func limitOf(q *store.SessionQuery) string {
	if q.Limit < 0 {
		return ""
	}
	return " LIMIT " + strconv.Itoa(q.Most())
}

func sessionsQuery(conn Conn, q *store.SessionQuery, among []string) (query string, args []any, _ error) {
	var index string
	d := conn.Dialect()
	column, isOrder := sortColumns[q.Sort]
	if !isOrder {
		return "", nil, fmt.Errorf("unknown order %q", q.Sort)
	}
	direction, before := "DESC", "<"
	if q.Sort == store.SortTitle {
		direction, before = "ASC", ">"
	}
	where, few, err := conditionsOf(conn, q, among)
	if err != nil {
		return "", nil, err
	}
	// The order is that of the index on (updated_at, id). Where another condition selects few rows, its own
	// index is the better one.
	if !few && q.Agent == "" && q.Sort == store.SortUpdated && !d.Foreign {
		index = " INDEXED BY idx_chat_sessions_updated"
	}
	switch {
	case q.Before == nil:
	case q.Sort == store.SortUpdated:
		where.add("(s.updated_at, s.id) < (?, ?)", q.Before.UpdatedAt, q.Before.ID)
	default:
		where.add("(s."+column+", s.id) "+before+" ((SELECT c."+column+" FROM chat_sessions c WHERE c.id = ?), ?)",
			q.Before.ID, q.Before.ID)
	}
	return "SELECT " + d.SessionColumns + " FROM chat_sessions s" + index + where.String() +
		" ORDER BY s." + column + " " + direction + ", s.id " + direction + limitOf(q), where.args, nil
}

// leading is the condition on a session s that no other one leads to: it has no parent, or has lost it, or is a
// fork, with which somebody goes on.
func leading(d *store.Dialect) string {
	fork := ""
	if !d.Foreign {
		fork = `
 OR EXISTS (SELECT 1 FROM session_state f WHERE f.session_id = s.id AND f.forked_from IS NOT NULL)
 OR ` + d.Contains("s.metadata_json", `"forked":true`)
	}
	// The forks of other programs are known by their copies, which are older than they are.
	return `(s.parent_id IS NULL OR ` + d.NoSession("s.parent_id") + fork + `
 OR EXISTS (SELECT 1 FROM chat_messages m WHERE m.session_id = s.id AND m.created_at < s.created_at))`
}

// Session implements [store.Reader].
func (r *Reader) Session(ctx context.Context, id string) (session.Session, error) {
	return get(ctx, r, func(conn Conn) (session.Session, error) { return sessionOf(conn, id) })
}

func sessionOf(conn Conn, id string) (session.Session, error) {
	return only(conn, store.SessionTable(), "session",
		`SELECT `+conn.Dialect().SessionColumns+` FROM chat_sessions s WHERE s.id = ?`, id)
}

// Decisions implements [store.Reader].
func (r *Reader) Decisions(ctx context.Context, sessionID string) ([]store.Decision, error) {
	return own(ctx, r, func(conn Conn) ([]store.Decision, error) {
		return rowsOf(conn, store.DecisionTable(), `SELECT `+store.DecisionTable().List+` FROM permission_decisions
 WHERE session_id = ? ORDER BY decided_at, id`, sessionID)
	})
}

// Annotations implements [store.Reader].
func (r *Reader) Annotations(ctx context.Context, sessionIDs ...string) ([]store.Annotation, error) {
	return own(ctx, r, func(conn Conn) (all []store.Annotation, _ error) {
		if conn.Dialect().Unannotated {
			return nil, nil
		}
		for _, id := range sessionIDs {
			found, err := rowsOf(conn, store.AnnotationTable(), `SELECT `+conn.Dialect().AnnotationColumns+` FROM annotations
 WHERE session_id = ? ORDER BY created_at, id`, id)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
		return all, nil
	})
}

// SpanRefs implements [store.Reader].
func (r *Reader) SpanRefs(ctx context.Context, sessionID string) ([]store.SpanRef, error) {
	return own(ctx, r, func(conn Conn) ([]store.SpanRef, error) {
		return rowsOf(conn, store.SpanTable(), `SELECT `+store.SpanTable().List+` FROM span_refs WHERE session_id = ?1
 UNION ALL SELECT `+store.SpanTable().Prefixed("", "facts_json")+` FROM observations WHERE session_id = ?1
  AND kind <> '`+store.KindEvaluation+`' ORDER BY start_nano, trace_id, span_id, kind, message_id, part_id`, sessionID)
	})
}

// MayHaveNotices implements [store.Reader].
func (r *Reader) MayHaveNotices(ctx context.Context, ids []string) (map[string]bool, error) {
	return ofEach(ctx, r, ids, func(conn Conn, id string) (may, has bool, _ error) {
		found, err := first(conn, noticesQuery(conn.Dialect()), func(store.Row) {}, id, "\t\n\r ")
		if err == nil && !found && !conn.Dialect().Foreign {
			found, err = first(conn, misplacedSpan, func(store.Row) {}, id)
		}
		return true, found, err
	})
}

// noticesQuery has a row if the session ?1 may have a notice. ?2 is white space.
func noticesQuery(d *store.Dialect) string {
	metadata := func(key string) string { return d.Contains("m.metadata_json", `"`+key+`"`) }
	return `SELECT 1 WHERE EXISTS (SELECT 1 FROM chat_messages m
 WHERE m.session_id = ?1 AND m.role = 'assistant' AND m.hidden_at IS NULL
 AND (` + metadata("problems") + ` OR ` + metadata("incomplete") + `
 OR NOT EXISTS (SELECT 1 FROM chat_parts p WHERE p.message_id = m.id` + d.SameSession("p", "m") + `)))
 OR EXISTS (SELECT 1 FROM chat_messages m WHERE m.session_id = ?1 AND ` + metadata("history") + `
 AND 1 + ` + d.Greatest + `(1, coalesce(` + d.JSONInt("m.metadata_json", "agenttrace", "history", "turns") + `, 1))
 > (SELECT count(*) FROM chat_messages u WHERE u.session_id = ?1 AND u.role = 'user' AND u.created_at <= m.created_at))
 OR EXISTS (SELECT 1 FROM chat_messages m WHERE m.session_id = ?1 AND ` + metadata("response_id") + `
 GROUP BY ` + d.JSON("m.metadata_json", "agenttrace", "response_id") + ` HAVING count(*) > 1)
 OR EXISTS (SELECT 1 FROM chat_parts WHERE session_id = ?1 AND tool_state = 'input-available'
 AND tool_state <> 'output-available')
 OR EXISTS (SELECT 1 FROM chat_parts WHERE session_id = ?1 AND tool_call_id IS NOT NULL
 GROUP BY tool_call_id HAVING count(*) > 1)
 OR EXISTS (SELECT 1 FROM chat_messages m WHERE m.session_id = ?1 AND ` + metadata("usage_raw") + `
 AND coalesce(` + d.JSONInt("m.metadata_json", "usage", "input") + `, 0)
 + coalesce(` + d.JSONInt("m.metadata_json", "usage", "output") + `, 0) = 0)
 OR EXISTS (SELECT 1 FROM chat_messages WHERE session_id = ?1 AND hidden_at IS NULL
 GROUP BY role, created_at HAVING count(*) > 1)
 OR EXISTS (SELECT 1 FROM chat_parts p WHERE p.session_id = ?1 AND p.type = 'text' AND p.message_id IN (
 SELECT id FROM chat_messages WHERE session_id = ?1 AND role = 'user') GROUP BY p.message_id HAVING count(*) > 1)
 OR EXISTS (SELECT 1 FROM chat_sessions WHERE parent_id = ?1 AND total_tokens > 0
 GROUP BY total_tokens HAVING count(*) > 1)
 OR EXISTS (SELECT 1 FROM chat_parts WHERE session_id = ?1 AND type = 'text'
 GROUP BY message_id, trim(` + d.JSON("data_json", "text") + `, ?2) HAVING count(*) > 1)`
}

// misplacedSpan has a row if the session ?1 was built from telemetry and a span has no message, or one that is not
// there; if a message has two outermost spans, or if a turn may have no prompt.
const misplacedSpan = `SELECT 1 FROM observations o WHERE session_id = ?1
 AND kind IN ('session.turn', 'chat', 'tool.call') AND NOT EXISTS (
  SELECT 1 FROM chat_messages m WHERE m.id = o.message_id AND m.session_id = o.session_id)
 UNION ALL SELECT 1 FROM observations WHERE session_id = ?1 AND kind = 'session.turn' GROUP BY message_id
 HAVING count(DISTINCT trace_id) > 1
 UNION ALL SELECT 1 WHERE EXISTS (SELECT 1 FROM observations WHERE session_id = ?1 AND kind <> '` +
	store.KindEvaluation + `') AND
 (SELECT count(*) FROM chat_messages WHERE session_id = ?1 AND role = 'assistant')
 > (SELECT count(*) FROM chat_messages WHERE session_id = ?1 AND role = 'user') LIMIT 1`

// Missing implements [store.Reader].
func (r *Reader) Missing(ctx context.Context, ids []string) (map[string]map[string]int64, error) {
	return ofEach(ctx, r, ids, func(conn Conn, id string) (map[string]int64, bool, error) {
		found := make(map[string]int64)
		for _, m := range missing(conn.Dialect()) {
			if _, err := first(conn, m.query, func(row store.Row) {
				for i, name := range m.names {
					if n := row.ColumnInt64(i); n > 0 {
						found[name] += n
					}
				}
			}, id); err != nil {
				return nil, false, err
			}
		}
		return found, true, nil
	})
}

// missing are queries that count what is missing in the session ?1, with the names of their columns.
func missing(d *store.Dialect) []missingQuery {
	flag := func(column string, path ...string) string {
		last := path[len(path)-1] // most rows are not read as JSON
		return d.Contains(column, `"`+last+`"`) + ` AND ` + d.JSONInt(column, path...) + ` = 1`
	}
	sums := func(conditions ...string) string {
		for i, c := range conditions {
			conditions[i] = `sum(CASE WHEN ` + c + ` THEN 1 ELSE 0 END)`
		}
		return `SELECT ` + strings.Join(conditions, ",\n ")
	}
	called := d.Contains("m.metadata_json", `"model_calls"`)
	const visible = ` WHERE m.session_id = ?1 AND m.hidden_at IS NULL AND `
	return []missingQuery{
		{[]string{"prompts", "answers", "tool_inputs", "tool_outputs", "results"}, sums(
			`p.type = 'data-withheld' AND m.role = 'user'`, `p.type = 'data-withheld' AND m.role = 'assistant'`,
			flag("p.data_json", "toolMetadata", "agenttrace", "input_withheld"),
			flag("p.data_json", "toolMetadata", "agenttrace", "withheld"), `p.tool_state = 'input-available'`,
		) + ` FROM chat_messages m JOIN chat_parts p ON p.message_id = m.id` + d.SameSession("p", "m") + visible +
			`(p.type = 'data-withheld' OR p.tool_state IS NOT NULL)`},
		{[]string{"ends", "tokens", "prompts"}, sums(flag("m.metadata_json", "agenttrace", "incomplete"),
			called+` AND NOT `+d.Contains("m.metadata_json", `"usage"`)+
				` AND NOT EXISTS (SELECT 1 FROM chat_parts p WHERE p.message_id = m.id`+d.SameSession("p", "m")+
				` AND p.type IN ('data-error', 'data-unfinished'))`,
			called+` AND NOT EXISTS (SELECT 1 FROM chat_messages WHERE session_id = ?1 AND role = 'user')`+
				` AND NOT EXISTS (SELECT 1 FROM chat_sessions WHERE id = ?1 AND parent_id IS NOT NULL)`,
		) + ` FROM chat_messages m` + visible + `m.role = 'assistant'`},
	}
}

type missingQuery struct {
	names []string
	query string
}

// Openings implements [store.Reader].
func (r *Reader) Openings(ctx context.Context, ids []string) (map[string]string, error) {
	return ofEach(ctx, r, ids, func(conn Conn, id string) (text string, has bool, _ error) {
		d := conn.Dialect()
		_, err := first(conn, `SELECT substr(`+d.JSON("p.data_json", "text")+`, 1, 200)
 FROM chat_messages m CROSS JOIN chat_parts p
 WHERE m.session_id = ?1 AND m.role = 'user' AND p.message_id = m.id`+d.SameSession("p", "m")+` AND p.type = 'text'
 ORDER BY m.created_at, m.id, p."index" LIMIT 1`, func(row store.Row) { text = row.ColumnText(0) }, id)
		return text, text != "", err
	})
}

// Observed implements [store.Reader].
func (r *Reader) Observed(ctx context.Context, sessionID string) (int, error) {
	n, err := r.observations(ctx, `session_id = ?`, sessionID)
	return int(n), err
}

// Pending implements [store.Reader].
func (r *Reader) Pending(ctx context.Context) (int64, error) {
	return r.observations(ctx, `session_id IS NULL AND length(data) > 0`)
}

// observations counts those that match a condition.
func (r *Reader) observations(ctx context.Context, where string, args ...any) (int64, error) {
	return own(ctx, r, func(conn Conn) (int64, error) {
		return number(conn, `SELECT count(*) FROM observations WHERE `+where, args...)
	})
}

// Blob implements [store.Reader].
func (r *Reader) Blob(ctx context.Context, kind store.BlobKind, digest string) (store.Blob, error) {
	b, err := own(ctx, r, func(conn Conn) (store.Blob, error) {
		return only(conn, store.BlobTables[kind](), string(kind), store.BlobTables[kind]().ByKey, digest)
	})
	if err == nil && b.Digest == "" { // another program's store has none
		err = fmt.Errorf("%s %s: %w", kind, digest, store.ErrNotFound)
	}
	b.Kind = kind
	return b, err
}

// Resolve implements [store.Reader].
func (r *Reader) Resolve(ctx context.Context, name string) (string, error) {
	found, err := get(ctx, r, func(conn Conn) ([]string, error) { return resolve(conn, name) })
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", fmt.Errorf("session %q: %w in %s", name, store.ErrNotFound, r.Name())
	case len(found) > 1:
		return "", fmt.Errorf("session %q: %w: %s", name, store.ErrAmbiguous, strings.Join(found, ", "))
	}
	return found[0], nil
}

// resolve returns the ids of the sessions that a name means by the first rule that finds any.
func resolve(conn Conn, name string) (found []string, err error) {
	if name == "last" {
		return texts(conn, `SELECT s.id FROM chat_sessions s WHERE `+leading(conn.Dialect())+
			` AND s.archived_at IS NULL ORDER BY s.updated_at DESC, s.id DESC LIMIT 1`)
	}
	if !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return nil, nil // a server refuses it
	}
	found, err = texts(conn, `SELECT id FROM chat_sessions WHERE id = ?`, name)
	if name == "" || err != nil || len(found) > 0 {
		return found, err
	}
	for _, prefix := range []string{name, "ses_" + name} {
		// Of a session and its sub-agents, whose ids may begin with its own, the session is meant.
		found, err = texts(conn, `SELECT s.id FROM chat_sessions s WHERE s.id >= ?1 AND s.id < ?2 AND (`+
			leading(conn.Dialect())+` OR NOT EXISTS (
 SELECT 1 FROM chat_sessions p WHERE p.id = s.parent_id AND p.id >= ?1 AND p.id < ?2)) LIMIT 3`,
			prefix, prefix+"\U0010FFFF") // after every id with the prefix
		if err != nil || len(found) > 0 {
			return found, err
		}
	}
	trace := strings.ToLower(name)
	if conn.Dialect().Foreign || len(name) < 8 || strings.Trim(trace, "0123456789abcdef") != "" {
		return nil, nil
	}
	// A trace may hold several sessions, those of sub-agents: the one that is nobody's child is meant. Several
	// traces may be of one session.
	last := ""
	err = conn.Query(`SELECT t.trace_id, t.session_id FROM session_traces t JOIN chat_sessions s ON s.id = t.session_id
 WHERE t.trace_id >= ?1 AND t.trace_id < ?2
 ORDER BY t.trace_id, s.parent_id IS NOT NULL, s.created_at, s.id LIMIT 1000`, func(row store.Row) error {
		if t := row.ColumnText(0); t != last {
			last = t
			if id := row.ColumnText(1); !slices.Contains(found, id) {
				found = append(found, id)
			}
		}
		return nil
	}, trace, trace+"g")
	return found, err
}

// Origin implements [store.Reader].
func (r *Reader) Origin(ctx context.Context, in *store.Imported) error {
	_, err := own(ctx, r, func(conn Conn) (_ struct{}, err error) {
		id := in.Session.ID
		if in.SpanRefs, err = spansOf(conn, id); err != nil {
			return
		}
		if in.Traces, err = texts(conn,
			`SELECT trace_id FROM session_traces WHERE session_id = ? ORDER BY trace_id`, id); err != nil {
			return
		}
		var state *store.State
		if err = conn.Query(`SELECT state_json FROM session_state WHERE session_id = ?`, func(row store.Row) error {
			state = new(store.State)
			return store.ReadState(id, row.ColumnText(0), state)
		}, id); err != nil {
			return
		}
		in.State = state.Portable()
		in.RequestedIndexes, err = rowsOf(conn, store.IndexTable(), `SELECT `+store.IndexTable().Prefixed("c.")+`
 FROM chat_messages m CROSS JOIN requested_indexes c WHERE c.message_id = m.id`+conn.Dialect().SameSession("c", "m")+`
 AND m.session_id = ? ORDER BY c.message_id, c.part_id`, id)
		return
	})
	return err
}

// Outbox implements [store.Store].
func (r *Reader) Outbox(ctx context.Context) (map[string]int64, error) {
	return get(ctx, r, func(conn Conn) (map[string]int64, error) {
		touched := make(map[string]int64)
		return touched, conn.Query(`SELECT session_id, touched_at FROM export_outbox`, func(row store.Row) error {
			touched[row.ColumnText(0)] = row.ColumnInt64(1)
			return nil
		})
	})
}

// Unsent implements [store.Store].
func (r *Reader) Unsent(ctx context.Context) ([]store.Unsent, error) {
	return get(ctx, r, func(conn Conn) (all []store.Unsent, err error) {
		err = conn.Query(`SELECT session_id, touched_at, request FROM span_outbox o WHERE request IS NOT NULL
 OR NOT EXISTS (SELECT 1 FROM unbuilt_turns u WHERE u.owner = o.session_id) ORDER BY touched_at, session_id`,
			func(row store.Row) error {
				u := store.Unsent{SessionID: row.ColumnText(0), TouchedAt: row.ColumnInt64(1)}
				if !row.ColumnIsNull(2) {
					u.Request = store.Bytes(row, 2, nil)
				}
				all = append(all, u)
				return nil
			})
		return all, err
	})
}

// SentSpans implements [store.Store].
func (r *Reader) SentSpans(ctx context.Context, sessionID string) (map[string]bool, error) {
	return get(ctx, r, func(conn Conn) (map[string]bool, error) {
		sent := make(map[string]bool)
		return sent, conn.Query(`SELECT span_id FROM sent_spans WHERE session_id = ?`, func(row store.Row) error {
			sent[row.ColumnText(0)] = true
			return nil
		}, sessionID)
	})
}

// Spans implements [store.Reader].
func (r *Reader) Spans(ctx context.Context, sessionID string) ([]store.SpanRef, error) {
	return own(ctx, r, func(conn Conn) ([]store.SpanRef, error) { return spansOf(conn, sessionID) })
}

// spansOf returns the rows of the view session_spans, with facts_json: the SDK's report of a span, or else the best
// observation of it, or else what was imported with the session. The view is not asked, because a distributed engine
// has the rows of a session and those of a trace on different nodes.
func spansOf(conn Conn, sessionID string) ([]store.SpanRef, error) {
	return mergedSpans(conn, "", "", sessionID)
}

// spansOfMessages returns those of spansOf that belong to messages, which are a JSON list of ids, and those of
// compactions that failed, which have no message.
func spansOfMessages(conn Conn, sessionID, messages string) ([]store.SpanRef, error) {
	d := conn.Dialect()
	// What an observation reports of a span may be of another message than what was imported of it: all reports of a
	// span are read of which one is of the messages.
	// The index of span_refs leaves out the spans of decisions: the decisions have them.
	of := `SELECT r.trace_id, r.span_id FROM ` + ofMessages(d, "span_refs") + ` AND r.kind <> 'permission.evaluate'
 UNION SELECT r.trace_id, r.span_id FROM ` + ofMessages(d, "permission_decisions") + ` AND r.span_id IS NOT NULL
 UNION SELECT r.trace_id, r.span_id FROM ` + ofMessages(d, "observations") + ` AND r.span_id IS NOT NULL
 UNION SELECT trace_id, span_id FROM span_refs
 WHERE session_id = ?1 AND message_id IS NULL AND kind = 'compaction.run'`
	return mergedSpans(conn, `(`+of+`) AS k CROSS JOIN `, ` AND s.trace_id = k.trace_id AND s.span_id = k.span_id`,
		sessionID, messages)
}

// mergedSpans returns a span for the rows s of spans of the session, the first argument. Before their table in FROM may
// be others to join, after the condition another that begins with AND.
func mergedSpans(conn Conn, others, condition string, args ...any) ([]store.SpanRef, error) {
	spans, err := rowsOf(conn, store.SpanTable(), `SELECT `+store.SpanTable().Prefixed("s.")+` FROM `+others+
		`span_refs s WHERE s.session_id = ?1`+condition, args...)
	if err != nil {
		return nil, err
	}
	at := make(map[[2]string]int, len(spans))
	for i := range spans {
		at[[2]string{spans[i].TraceID, spans[i].SpanID}] = i
	}
	observed := make(map[int]bool) // by an observation that is as good as the next ones, or better
	// A log record represents the span in which it was written if that reported nothing itself.
	err = conn.Query(`SELECT `+store.SpanTable().Prefixed("s.", "facts_json")+` FROM `+others+`observations s
 WHERE s.session_id = ?1 AND s.span_id IS NOT NULL AND s.trace_id <> '' AND s.kind IS NOT NULL`+condition+`
 ORDER BY CASE WHEN s.source LIKE 'log-%' THEN 1 ELSE 0 END,
  CASE WHEN s.message_id IS NULL THEN 1 ELSE 0 END, s.source`,
		func(row store.Row) error {
			var span store.SpanRef
			if err := store.SpanTable().Scan(row, &span); err != nil {
				return err
			}
			i, known := at[[2]string{span.TraceID, span.SpanID}]
			if !known {
				i, spans = len(spans), append(spans, span)
				at[[2]string{span.TraceID, span.SpanID}] = i
			} else if !observed[i] && spans[i].Dialect != store.DialectSDK {
				span.TurnStats = spans[i].TurnStats
				spans[i] = span
			}
			observed[i] = true
			return nil
		}, args...)
	spans = session.SortedRows(spans, store.CompareSpans)
	return spans, err
}

// Conn is a connection in a transaction. In SQL, parameters are written ? or ?1, one kind in a query, whatever the
// engine's own way is.
type Conn interface {
	// Query calls fn for each row of the result. fn must not use the connection, nor retain the row. Its error
	// ends the query and is returned.
	Query(query string, fn func(store.Row) error, args ...any) error
	// Dialect states in what the SQL of the engine, and the content of this store, differ.
	Dialect() *store.Dialect
}

// Tx is a transaction that writes.
type Tx interface {
	store.Tx
	Conn
	// Exec runs a statement without a result. It returns how many rows a DELETE, UPDATE or INSERT changed, without
	// those that foreign keys and triggers change with them.
	Exec(query string, args ...any) (changed int64, err error)
}

// PartFilter is a [Conn] that knows of many parts, without reading them, that they cannot have a text.
type PartFilter interface {
	// FilterParts calls fn with the rowids, a list in JSON of size at most, of all parts that were created since a time
	// and may have each of the texts, upper and lower case alike, the newest first. It ends with the error of fn.
	FilterParts(texts []string, since int64, size int, fn func(parts string) error) error
}

// Source is a store as a [Reader] sees it.
type Source interface {
	// Name is the path or the address of the store, without any password, for errors.
	Name() string
	// Read calls fn in a transaction that reads one state of the store. Where fn fails because ctx has ended, it
	// returns the error of ctx.
	Read(ctx context.Context, fn func(Conn) error) error
}

// rowsOf returns every row of a query that selects the columns of a table.
func rowsOf[R any](conn Conn, t *store.Table[R], query string, args ...any) ([]R, error) {
	var rows []R
	err := conn.Query(query, t.AppendTo(&rows), args...)
	return rows, err
}

// only returns the row of a table that a query selects. The error if there is none names what was looked for, by the
// first argument.
func only[R any](conn Conn, t *store.Table[R], what, query string, args ...any) (row R, _ error) {
	rows, err := rowsOf(conn, t, query, args...)
	if err == nil && len(rows) == 0 {
		err = fmt.Errorf("%s %v: %w", what, args[0], store.ErrNotFound)
	}
	if err != nil {
		return row, err
	}
	return rows[0], nil
}

// first calls scan with the row of a query that has one at most, and reports whether it has.
func first(conn Conn, query string, scan func(store.Row), args ...any) (found bool, err error) {
	err = conn.Query(query, func(row store.Row) error {
		scan(row)
		found = true
		return nil
	}, args...)
	return found, err
}

// texts returns the first column of a query's rows.
func texts(conn Conn, query string, args ...any) (all []string, err error) {
	err = conn.Query(query, func(row store.Row) error {
		all = append(all, row.ColumnText(0))
		return nil
	}, args...)
	return all, err
}

// number returns the first column of a query's one row.
func number(conn Conn, query string, args ...any) (n int64, err error) {
	_, err = first(conn, query, func(row store.Row) { n = row.ColumnInt64(0) }, args...)
	return n, err
}
