package ingest_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	sqlitestore "github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// The tests of this file change rows of sessions of foreign agents as another program does, by SQL on the same file,
// and as the commands of the store do. Then telemetry comes again, or late.

// otherProgram executes SQL as a program does that knows the canonical tables alone, and sums what is visible.
func otherProgram(t *testing.T, s *sqlitestore.Store, sql string) {
	t.Helper()
	conn, err := sqlite.OpenConn(s.Path(), sqlite.OpenReadWrite)
	testscale.Must(t, err)
	defer conn.Close()
	testscale.Must(t, errors.Join(sqlitex.ExecuteTransient(conn, "PRAGMA foreign_keys = ON", nil),
		sqlitex.ExecuteScript(conn, sql+resum, nil)))
}

const resum = `;
WITH sums AS (SELECT session_id, sum(metadata_json ->> '$.usage.input') AS i, sum(metadata_json ->> '$.usage.output') AS o,
 sum(metadata_json ->> '$.usage.reasoning') AS r, sum(metadata_json ->> '$.usage.cache_read') AS cr, sum(metadata_json ->> '$.usage.cache_write') AS cw
 FROM chat_messages WHERE role = 'assistant' AND hidden_at IS NULL GROUP BY session_id)
UPDATE chat_sessions AS s SET (prompt_tokens, completion_tokens, reasoning_tokens, cache_read, cache_write, total_tokens) =
 (SELECT coalesce(max(i), 0), coalesce(max(o), 0), coalesce(max(r), 0), coalesce(max(cr), 0), coalesce(max(cw), 0), coalesce(max(i + o + r + cr + cw), 0)
  FROM sums WHERE session_id = s.id)`

// eachCapture runs a test on every eighth capture, or on all of them, which it gets as requests of one span or record.
func eachCapture(t *testing.T, test func(t *testing.T, single []request)) {
	for i, dir := range captures(t) {
		if i%testscale.Rounds(8, 1) != 0 {
			continue
		}
		t.Run(filepath.Base(filepath.Dir(dir))+"/"+filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			test(t, split(readCapture(t, dir)))
		})
	}
}

// again are requests in another order, some of them twice.
func again(single []request, seed uint64) []request {
	r := rand.New(rand.NewPCG(seed, 11))
	order := slices.Clone(single)
	r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return append(order, order[:len(order)/3]...)
}

const (
	hiddenRows = `SELECT id || '@' || session_id || ' ' || coalesce(hidden_at, '') FROM chat_messages ORDER BY id`
	dating     = 1_900_000_000_000 // later than any capture
)

// TestWhatAnotherProgramChangesOfAForeignSessionStays: messages that it hides or shows again
// and sessions that it archives or names stay so when all of their telemetry comes again.
func TestWhatAnotherProgramChangesOfAForeignSessionStays(t *testing.T) {
	eachCapture(t, func(t *testing.T, single []request) {
		s := openStore(t)
		deliver(t, s, single)
		for _, row := range storetest.Sessions(t, s) {
			id := row.ID
			if to := firstUserMessage(t, s, id); to != "" {
				if _, err := s.Rewind(t.Context(), id, to, time.UnixMilli(dating)); err != nil {
					t.Fatal(err)
				}
			}
		}
		otherProgram(t, s, `
UPDATE chat_messages SET hidden_at = NULL WHERE id IN (SELECT max(id) FROM chat_messages WHERE hidden_at IS NOT NULL GROUP BY session_id);
UPDATE chat_messages SET hidden_at = 77 WHERE id IN (SELECT min(id) FROM chat_messages WHERE hidden_at IS NULL GROUP BY session_id);
UPDATE chat_sessions SET archived_at = 88, title = 'mine';`)
		want := dump(t, s.Path())
		for seed := range uint64(4) {
			deliver(t, s, again(single, seed))
			if got := dump(t, s.Path()); got != want {
				t.Fatalf("seed %d (-want +got):\n%s", seed,
					differ(want, got))
			}
		}
	})
}

// firstUserMessage is the first message of a session that it may be rewound to, or "".
func firstUserMessage(t *testing.T, s *sqlitestore.Store, id string) string {
	t.Helper()
	tr := storetest.Transcript(t, s, id)
	for i := range tr.Messages {
		if m := &tr.Messages[i].Message; m.Role == session.RoleUser && m.HiddenAt == nil && i < len(tr.Messages)-1 {
			return m.ID
		}
	}
	return ""
}

// TestLateTelemetryOfAForeignSessionLeavesWhatAnotherProgramChanged: with a part of a session stored, another program
// hides what is there, or shows again what a rewind hid, and archives and names the session. When the rest comes, in
// the same windows, what it changed stays, and what is new is seen.
func TestLateTelemetryOfAForeignSessionLeavesWhatAnotherProgramChanged(t *testing.T) {
	changes := []struct {
		name, sql string
		rewind    bool
	}{
		{"does nothing", ``, true},
		{"hides all", `UPDATE chat_messages SET hidden_at = 77;`, false},
		{"hides the first", `UPDATE chat_messages SET hidden_at = 77
 WHERE id IN (SELECT min(id) FROM chat_messages GROUP BY session_id);`, false},
		{"shows all", `UPDATE chat_messages SET hidden_at = NULL;`, true},
		{"shows one", `UPDATE chat_messages SET hidden_at = NULL
 WHERE id IN (SELECT max(id) FROM chat_messages WHERE hidden_at IS NOT NULL GROUP BY session_id);`, true},
	}
	eachCapture(t, func(t *testing.T, single []request) {
		for i, change := range changes {
			seed := uint64(len(single) + i)
			order := single
			if seed%3 > 0 {
				order = again(single, seed)
			}
			half := len(order) * int(1+seed%4) / 5
			s := openStore(t)
			deliver(t, s, order[:half])
			for _, row := range storetest.Sessions(t, s) {
				id := row.ID
				if to := firstUserMessage(t, s, id); to != "" && change.rewind {
					if _, err := s.Rewind(t.Context(), id, to, time.UnixMilli(1)); err != nil {
						t.Fatal(err)
					}
				}
			}
			otherProgram(t, s, change.sql+`UPDATE chat_sessions SET archived_at = 88, title = 'mine';`)
			before := testscale.Query(t, s.Path(), hiddenRows)
			deliver(t, s, order[half:])
			after := testscale.Query(t, s.Path(), hiddenRows)
			at := fmt.Sprintf("seed %d, another program %s", seed, change.name)
			compareHidden(t, at, before, after, change.name == "does nothing" || change.name == "shows one")
			const archived = `SELECT id FROM chat_sessions WHERE archived_at IS NOT 88 AND id IN
 (SELECT session_id FROM chat_messages WHERE hidden_at = 77)`
			if ids := testscale.Query(t, s.Path(), archived); len(ids) > 0 && change.name == "hides all" {
				t.Errorf("%s: no longer archived: %q", at, ids)
			}
			storetest.CheckSessions(t, s)
		}
	})
}

// compareHidden compares which messages are hidden with which were. A message may have another id than before, and is
// hidden then as it was, unless it is in another session. holds reports that a rewind is in force, which may hide what
// is new.
func compareHidden(t *testing.T, at string, before, after []string, holds bool) {
	t.Helper()
	had := func(rows []string, id string) int {
		return slices.IndexFunc(rows, func(r string) bool { return strings.HasPrefix(r, id+" ") })
	}
	renamed := 0
	for _, row := range before {
		if id, hidden, _ := strings.Cut(row, " "); hidden == "77" && had(after, id) < 0 {
			renamed++
		}
	}
	for _, row := range after {
		id, hidden, _ := strings.Cut(row, " ")
		switch old := had(before, id); {
		case old >= 0 && before[old] != row:
			t.Errorf("%s: message %q, it was %q", at, row, before[old])
		case old >= 0 || hidden == "" || holds && hidden != "77":
		case hidden == "77" && renamed > 0:
			renamed--
		default:
			t.Errorf("%s: message %q is new and hidden", at, row)
		}
	}
}

// TestForksOfAForeignSessionFollowIt: whatever comes late of a foreign session, its forks
// hold copies of its messages up to the one where they left.
func TestForksOfAForeignSessionFollowIt(t *testing.T) {
	eachCapture(t, func(t *testing.T, single []request) {
		for seed := range uint64(3) {
			order := single
			if seed > 0 {
				order = again(single, seed)
			}
			half := len(order) * int(1+seed) / 4
			s := openStore(t)
			deliver(t, s, order[:half])
			forks := map[string]string{}
			for _, row := range storetest.Sessions(t, s) {
				id := row.ID
				if firstUserMessage(t, s, id) == "" {
					continue
				}
				fork, err := s.Fork(t.Context(), store.ForkOptions{From: id, Now: time.UnixMilli(dating)})
				testscale.Must(t, err)
				forks[fork] = id
			}
			deliver(t, s, order[half:])
			for fork, id := range forks {
				if d := cmp.Diff(upTo(t, s, id, fork), textOf(t, s, fork)); d != "" {
					t.Errorf("seed %d: fork of %s (-the session, +its fork):\n%s", seed, id, d)
				}
			}
			storetest.CheckSessions(t, s)
		}
	})
}

// textOf are the messages of a session without ids.
func textOf(t *testing.T, s *sqlitestore.Store, id string) (messages []string) {
	t.Helper()
	tr := storetest.Transcript(t, s, id)
	for _, m := range tr.Messages {
		messages = append(messages, text(&m))
	}
	return messages
}

func text(m *session.MessageAndParts) string {
	all := fmt.Sprint(m.Message.Role, m.Message.CreatedAt, m.Message.MetadataJSON)
	for _, p := range m.Parts {
		all += "\n" + p.DataJSON
	}
	return all
}

// upTo are the messages of a session that its fork copies. A session that went away or is
// empty, because its telemetry turned out to be another's, has none.
func upTo(t *testing.T, s *sqlitestore.Store, id, fork string) (messages []string) {
	t.Helper()
	tr, err := s.Transcript(t.Context(), id)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	from := *storetest.Transcript(t, s, fork).Session.ParentMessageID
	last := slices.IndexFunc(tr.Messages, func(m session.MessageAndParts) bool {
		return m.Message.ID == from
	})
	for i := range last + 1 {
		messages = append(messages, text(&tr.Messages[i]))
	}
	if last < 0 && len(tr.Messages) > 0 {
		t.Errorf("fork %s left at message %s, which session %s does not have", fork, from, id)
	}
	return messages
}

// TestDeletedForeignSessionsAreMadeAnewOfWhatComesLater: nothing remembers a session that was
// deleted, by the store or by another program. What comes later makes it again of that
// alone, and all of its telemetry all of it, as it is with sessions of the SDK.
func TestDeletedForeignSessionsAreMadeAnewOfWhatComesLater(t *testing.T) {
	eachCapture(t, func(t *testing.T, single []request) {
		whole := openStore(t)
		deliver(t, whole, single)
		want := dump(t, whole.Path())
		for name, remove := range map[string]func(s *sqlitestore.Store){
			"rm": func(s *sqlitestore.Store) {
				for _, row := range storetest.Sessions(t, s) {
					id := row.ID
					testscale.Must(t, s.Delete(t.Context(), id))
				}
			},
			"another program": func(s *sqlitestore.Store) { otherProgram(t, s, `DELETE FROM chat_sessions;`) },
		} {
			half := len(single) / 2
			rest := openStore(t)
			deliver(t, rest, single[half:])
			s := openStore(t)
			deliver(t, s, single[:half])
			deliver(t, s, single[half:])
			remove(s)
			if left := testscale.Query(t, s.Path(), `SELECT source FROM observations WHERE session_id IS NOT NULL`); len(
				left) > 0 {
				t.Errorf("%s left the telemetry of what was deleted: %q", name, left)
			}
			deliver(t, s, single[half:])
			if got, want := sessionRows(t, s), sessionRows(t, rest); got != want {
				t.Errorf("%s, then the second half (-want +got):\n%s", name, cmp.Diff(want, got))
			}
			deliver(t, s, single)
			if got := dump(t, s.Path()); got != want {
				t.Errorf("%s, then all of it (-want +got):\n%s", name,
					differ(want, got))
			}
		}
	})
}

// sessionRows are the canonical rows.
func sessionRows(t *testing.T, s *sqlitestore.Store) string {
	t.Helper()
	canonical, _, _ := strings.Cut(dump(t, s.Path()), "== export_outbox")
	_, canonical, _ = strings.Cut(canonical, "== chat_messages")
	return canonical
}
