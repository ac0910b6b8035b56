//go:build long

package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/postgres"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// TestRowThatTheServerRefusesIsLeftOutAlone: of the rows that a batch has for a table, the server refuses one, with an
// error or without. The others are stored, as if each had come by itself.
func TestRowThatTheServerRefusesIsLeftOutAlone(t *testing.T) {
	server := storetest.StartPostgres(t, fast...)
	const turns = 12
	var batch store.Batch
	for i := range turns {
		turn := turnOf(0, i)
		id, message := turn.Sessions[0].ID, turn.Messages[1].ID
		turn.Parts[2].Data, _ = json.Marshal(map[string]string{
			"type": "text", "text": strings.Repeat(fmt.Sprintf("line %d of many\n", i), 4000)})
		batch.Sessions = append(batch.Sessions, turn.Sessions...)
		batch.Messages = append(batch.Messages, turn.Messages...)
		batch.Parts = append(batch.Parts, turn.Parts...)
		batch.SpanRefs = append(batch.SpanRefs, turn.SpanRefs...)
		batch.Decisions = append(batch.Decisions, store.Decision{ID: fmt.Sprintf("dec_%06d", i), SessionID: id,
			MessageID: message, ToolID: "bash", Action: "allow", DecidedAt: int64(i)})
	}
	const fails, skips = `RAISE check_violation`, `RETURN NULL`
	for _, test := range []struct {
		name, table, refused, action string
		rows                         int // how many of the table remain
	}{
		{"none", "chat_parts", `false`, fails, 3 * turns},
		{"a text", "chat_parts", `new.id = 'prt_0_000005_q'`, fails, 3*turns - 1},
		{"a text without an error", "chat_parts", `new.id = 'prt_0_000005_q'`, skips, 3*turns - 1},
		{"a large text", "chat_parts", `new.id = 'prt_0_000011_b'`, fails, 3*turns - 1},
		{"several texts", "chat_parts", `new.id >= 'prt_0_000007'`, skips, 3 * 7},
		{"a message", "chat_messages", `new.id = 'msg_0_000005_r'`, fails, 2*turns - 1},
		{"a decision", "permission_decisions", `new.id = 'dec_000003'`, skips, turns - 1},
		{"a span", "span_refs", `new.span_id = '0000000000000004'`, fails, turns - 1},
		{"a session", "chat_sessions", `new.id = 'ses_2'`, skips, sharedSessions - 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stored []map[string]string
			for _, batches := range [][]*store.Batch{{&batch}, single(&batch)} {
				dsn := server.Create(t)
				testscale.Must(t, postgres.Migrate(t.Context(), dsn, postgres.Options{}))
				execute(t, dsn, fmt.Sprintf(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
 IF %s THEN %s; END IF; RETURN new; END $$;
 CREATE TRIGGER refuse BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION refuse()`,
					test.refused, test.action, test.table))
				s := open(t, dsn)
				refused := int64(0)
				for _, b := range batches {
					r, err := s.Apply(t.Context(), b)
					testscale.Must(t, err)
					refused += r.Refused
				}
				if refused > 0 != (test.name != "none") {
					t.Errorf("%d changes of %d batches were refused", refused, len(batches))
				}
				if got := count(t, dsn, test.table); got != test.rows {
					t.Errorf("%s has %d rows, want %d", test.table, got, test.rows)
				}
				stored = append(stored, storetest.Lines(t, s))
			}
			if diff := cmp.Diff(stored[1], stored[0]); diff != "" {
				t.Errorf("rows of one batch (+) differ from those that came one by one (-):\n%s", diff)
			}
		})
	}
}

// single returns the changes of a batch one by one.
func single(b *store.Batch) (all []*store.Batch) {
	for _, c := range b.Sessions {
		all = append(all, &store.Batch{Sessions: []store.SessionChange{c}})
	}
	for _, c := range b.Messages {
		all = append(all, &store.Batch{Messages: []store.MessageChange{c}})
	}
	for _, c := range b.Parts {
		all = append(all, &store.Batch{Parts: []store.PartChange{c}})
	}
	for _, c := range b.SpanRefs {
		all = append(all, &store.Batch{SpanRefs: []store.SpanRef{c}})
	}
	for _, c := range b.Decisions {
		all = append(all, &store.Batch{Decisions: []store.Decision{c}})
	}
	return all
}

// count returns how many rows a table has.
func count(t *testing.T, dsn, table string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	testscale.Must(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	testscale.Must(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
	return n
}

// TestRowInPlaceOfAnotherIsReported: of several rows that are inserted together, the one whose key is taken has its
// Refused, and the others have none.
func TestRowInPlaceOfAnotherIsReported(t *testing.T) {
	s := open(t, storetest.StartPostgres(t, fast...).Create(t))
	if _, err := s.Apply(t.Context(), turnOf(0, 0)); err != nil {
		t.Fatal(err)
	}
	taken := turnOf(0, 0).SpanRefs[0]
	refused := make([]error, 3)
	err := s.Transact(t.Context(), func(tx store.Tx) error {
		return tx.Do(func(s store.Statements) {
			for i, id := range []string{"00000000000000aa", taken.SpanID, "00000000000000bb"} {
				row := taken
				row.SpanID = id
				s.Put(&refused[i], store.SpanTable().InsertNew, store.SpanTable().Values(&row)...)
			}
		})
	})
	testscale.Must(t, err)
	for i, err := range refused {
		if refused := err != nil; refused != (i == 1) {
			t.Errorf("span %d: refused %v (%v)", i, refused, err)
		}
	}
}
