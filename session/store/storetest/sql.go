package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

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
