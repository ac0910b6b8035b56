package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Sessions returns all sessions of a store in the order of their ids, those of sub-agents and archived ones included.
func Sessions(t testing.TB, r store.Reader) (all []session.Session) {
	t.Helper()
	all = List(t, r, everything)
	slices.SortFunc(all, func(x, y session.Session) int { return cmp.Compare(x.ID, y.ID) })
	return all
}

// everything selects the sessions of a store.
var everything = store.SessionQuery{Limit: -1, Children: true, Archived: true}

// List returns the sessions that a query selects.
func List(t testing.TB, r store.Reader, q store.SessionQuery) (all []session.Session) {
	t.Helper()
	for row, err := range r.Sessions(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	return all
}

// Transcript returns a session of a store.
func Transcript(t testing.TB, r store.Reader, id string) *session.Transcript {
	t.Helper()
	transcript, err := r.Transcript(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return transcript
}

// CheckSessions runs the validator over every session of a store.
func CheckSessions(t testing.TB, r store.Reader) {
	t.Helper()
	for _, row := range Sessions(t, r) {
		for _, v := range session.Check(Transcript(t, r, row.ID)) {
			t.Errorf("session %s: %s", row.ID, v)
		}
	}
}

// SQL is a [Store] whose tables other programs can change.
type SQL interface {
	Store
	// Script executes statements, which are such as every engine understands.
	Script(statements string) error
}

// RunSQL examines what an engine that speaks SQL reads, also of rows that another program wrote. open is as in [Run],
// and what it returns is [SQL].
func RunSQL(t *testing.T, open func(t *testing.T) Store) {
	runCases(t, harness{open: open}, slices.Concat(casesOf("sql"), []testCase{
		{"pages", "However many parts have the text, each is found once, the last first.", with(readPages)},
	}))
}

func (h *harness) script(s Store, statements string) {
	h.Helper()
	h.check(s.(SQL).Script(statements))
}

// readPages finds what is in more parts than are looked through at a time, each once and the last first.
func readPages(h *harness, s Store) {
	h.script(s, `INSERT INTO chat_sessions(id, agent, created_at, updated_at) VALUES ('s', 'a', 1, 9);
INSERT INTO chat_messages(id, session_id, role, created_at, updated_at) VALUES ('m', 's', 'user', 1, 1)`)
	const count = 700
	var rows, want []string
	for i := range count {
		id := fmt.Sprintf("p%03d", i)
		rows = append(rows,
			fmt.Sprintf(`('%s', 'm', 's', %d, 'text', '{"type":"text","text":"needle"}', %d, 1)`, id, i, i/7))
		want = append(want, id)
	}
	h.script(s, `INSERT INTO chat_parts(id, message_id, session_id, "index", type, data_json, created_at, updated_at)
 VALUES `+strings.Join(rows, ","))
	slices.Reverse(want)
	found, err := h.hits(s, h.args(`{"Text":"Needle"}`))
	h.check(err)
	for i := range found {
		rows[i] = found[i].PartID
	}
	h.equal("parts", rows, want)
}
