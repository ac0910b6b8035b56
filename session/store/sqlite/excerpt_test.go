package sqlite

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// TestReadingATurnDoesNotGrow counts the rows that are read for a turn and for a status: they are the same in a session
// of 10 turns and in one of 5,000. An outline reads the messages, and no content of turns in which all went well.
func TestReadingATurnDoesNotGrow(t *testing.T) {
	path := newPath(t)
	testscale.Must(t, open(t, path, Options{}).Close())
	opened := openReader(t, path)
	for _, turns := range []int{10, 500, 5000} {
		fillTurns(t, path, turns)
		for _, c := range []struct {
			name  string
			query store.ExcerptQuery
			want  int
		}{
			// the session, two messages, a part, a decision and a span
			{"a turn", store.ExcerptQuery{Messages: []string{fmt.Sprintf("u%d-5", turns), fmt.Sprintf("a%d-5", turns)},
				Spans: true}, 6},
			// the beginning of the turn, and no span
			{"the last turn", store.ExcerptQuery{LastTurns: 1}, 6},
			{"a status in a list", store.ExcerptQuery{LastTurns: 1, Outline: true}, 4},
			// the session and the number of calls besides
			{"an outline", store.ExcerptQuery{Outline: true}, 2*turns + 2},
		} {
			rows := 0
			r := sqlstore.NewReader(counted{opened, &rows})
			if _, err := r.Excerpt(t.Context(), fmt.Sprintf("s%d", turns), c.query); err != nil {
				t.Fatal(err)
			}
			if rows != c.want {
				t.Errorf("%s of %d turns reads %d rows, want %d", c.name, turns, rows, c.want)
			}
		}
	}
}

// fillTurns adds a session s with turns of a question u and an answer a, which has a call, a decision and a span.
func fillTurns(t *testing.T, path string, turns int) {
	t.Helper()
	const script = `INSERT INTO chat_sessions(id, agent, created_at, updated_at) VALUES ('s#', 'a', 0, 0);
INSERT INTO chat_messages(id, session_id, role, created_at, updated_at) EACH 'u#-' || n, 's#', 'user', n * 2, 0 FROM n;
INSERT INTO chat_messages(id, session_id, role, created_at, updated_at)
 EACH 'a#-' || n, 's#', 'assistant', n * 2 + 1, 0 FROM n;
INSERT INTO chat_parts(id, message_id, session_id, "index", type, data_json, tool_state, created_at, updated_at)
 EACH 'p#-' || n, 'a#-' || n, 's#', 0, 'tool-bash', '{}', 'output-available', 0, 0 FROM n;
INSERT INTO span_refs(session_id, trace_id, span_id, message_id, kind, dialect, start_nano, end_nano)
 EACH 's#', 't', '#-' || n, 'a#-' || n, 'session.turn', 'agenttrace', 0, 0 FROM n;
INSERT INTO permission_decisions(id, session_id, message_id, tool_id, action, decided_at)
 EACH 'd#-' || n, 's#', 'a#-' || n, 'bash', 'allow', n * 2 FROM n;`
	number := fmt.Sprint(turns)
	testscale.Script(t, path, strings.NewReplacer("#", number, "EACH", `WITH RECURSIVE n(n) AS (
 SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT `+number+`) SELECT`).Replace(script))
}

// counted is a source that counts the rows that are read.
type counted struct {
	*Reader
	rows *int
}

func (c counted) Read(ctx context.Context, fn func(sqlstore.Conn) error) error {
	return c.Reader.Read(ctx, func(conn sqlstore.Conn) error { return fn(countedConn{conn, c.rows}) })
}

type countedConn struct {
	sqlstore.Conn
	rows *int
}

func (c countedConn) Query(query string, fn func(store.Row) error, args ...any) error {
	return c.Conn.Query(query, func(row store.Row) error {
		*c.rows++
		return fn(row)
	}, args...)
}

// TestIndexesOfAnEarlierVersionAreReplaced opens a store that has the indexes of parts that an earlier version made.
// The one that the reference program makes too stays.
func TestIndexesOfAnEarlierVersionAreReplaced(t *testing.T) {
	path := newPath(t)
	testscale.Must(t, open(t, path, Options{}).Close())
	testscale.Script(t, path, `DROP INDEX idx_chat_parts_session_type; DROP INDEX idx_chat_parts_unsuccessful;
CREATE INDEX idx_chat_parts_session ON chat_parts(session_id);
CREATE INDEX idx_chat_parts_approval ON chat_parts(session_id) WHERE tool_state = 'approval-requested'`)
	testscale.Must(t, open(t, path, Options{}).Close())
	got := testscale.Query(t, path, `SELECT name FROM sqlite_schema WHERE type = 'index' AND name IN ('idx_chat_parts_session',
 'idx_chat_parts_session_type', 'idx_chat_parts_unsuccessful', 'idx_chat_parts_approval') ORDER BY name`)
	if want := "[idx_chat_parts_session idx_chat_parts_session_type idx_chat_parts_unsuccessful]"; fmt.Sprint(got) != want {
		t.Errorf("indexes %v, want %s", got, want)
	}
}
