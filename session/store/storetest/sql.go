package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
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
	runCases(t, open, slices.Concat(casesOf("sql"), []testCase{
		{"pages", "However many parts have the text, each is found once, the last first.", with(readPages)},
		{"amend", "A title and the archive that a user sets are kept when telemetry is delivered again, " +
			"and give way to what is reported later.", with(amend)},
		{"delete", "Of a session nothing is left, and telemetry that is delivered again makes it as it was.",
			with(remove)},
		{"collect", "A blob that a message or a span names is kept, and all of them while something goes on.",
			with(collect)},
		{"origin", "A session that is exported and imported again merges with its telemetry as before.", with(restore)},
	}))
}

func (h *harness) script(s Store, statements string) {
	h.Helper()
	h.check(s.(SQL).Script(statements))
}

// turnAt is a session s with one turn.
func turnAt(at int64) store.Batch {
	return join(ofSession("s", at, store.SessionChange{}), user("s", "u", at), assistant("s", "a", at+1, 1))
}

func amend(h *harness, s Store) {
	b := turnAt(0)
	b.Sessions[0].Title, b.Sessions[0].Archived = reported(0, "agent's"), reported(0, "0")
	h.apply(s, b)
	before := h.session(s, "s")
	moment := func(at int64) time.Time { return time.UnixMilli(epoch + at) }
	h.check(s.SetTitle(h.Context(), "s", "mine", moment(5)))
	h.check(s.Archive(h.Context(), "s", true, moment(6)))
	h.apply(s, b)
	row := h.session(s, "s")
	if row.Title != "mine" || row.ArchivedAt == nil || *row.ArchivedAt != epoch+6 || row.UpdatedAt != before.UpdatedAt {
		h.Errorf("after a redelivery: %q, archived %v, updated %d", row.Title, row.ArchivedAt, row.UpdatedAt)
	}
	h.check(s.Archive(h.Context(), "s", false, moment(7)))
	b.Sessions[0].Title = reported(10, "later")
	h.apply(s, b)
	if row := h.session(s, "s"); row.ArchivedAt != nil || row.Title != "later" {
		h.Errorf("then: %q, archived %v", row.Title, row.ArchivedAt)
	}
	for _, err := range []error{s.SetTitle(h.Context(), "none", "x", moment(0)),
		s.Archive(h.Context(), "none", true, moment(0)), s.Delete(h.Context(), "none")} {
		if !errors.Is(err, store.ErrNotFound) {
			h.Errorf("of a session that is not there: %v", err)
		}
	}
	h.equal("sessions", ids(h.sessions(s, everything)), []string{"s"})
}

func (h *harness) session(s Store, id string) session.Session {
	h.Helper()
	row, err := s.Session(h.Context(), id)
	h.check(err)
	return row
}

func remove(h *harness, s Store) {
	b, other := turnAt(0), ofSession("t", 0, store.SessionChange{ParentID: reported(0, "s")})
	b.Decisions = []store.Decision{{ID: "d", SessionID: "s", ToolID: "bash", Action: "allow", DecidedAt: epoch}}
	h.apply(s, other)
	without := h.dump(s)
	h.apply(s, b)
	with := h.dump(s)
	h.check(s.Delete(h.Context(), "s"))
	h.equal("what is left", h.dump(s), without)
	h.apply(s, b)
	h.equal("delivered again", h.dump(s), with)
}

func collect(h *harness, s Store) {
	b := turnAt(0)
	b.SpanRefs[0].TurnStats.SystemPromptDigest = "named"
	b.SpanRefs[0].TurnStats.Trace.ToolCatalogDigest = "offered"
	all := map[string]store.BlobKind{"named": store.BlobSystemPrompt, "unnamed": store.BlobSystemPrompt,
		"offered": store.BlobToolCatalog, "unoffered": store.BlobToolCatalog}
	for _, digest := range slices.Sorted(maps.Keys(all)) {
		b.Blobs = append(b.Blobs, store.Blob{Kind: all[digest], Digest: digest, Body: "[]"})
	}
	h.apply(s, b)
	updated := h.session(s, "s").UpdatedAt
	for _, test := range []struct {
		recent int64
		dryRun bool
		want   store.Garbage
		left   string
	}{
		{updated, false, store.Garbage{Kept: true}, "named offered unnamed unoffered"},
		{updated + 1, true, store.Garbage{SystemPrompts: 1, ToolCatalogs: 1}, "named offered unnamed unoffered"},
		{updated + 1, false, store.Garbage{SystemPrompts: 1, ToolCatalogs: 1}, "named offered"},
		{updated + 1, false, store.Garbage{}, "named offered"},
	} {
		what := fmt.Sprintf("recent %d, dry run %v: ", test.recent-updated, test.dryRun)
		g, err := s.Collect(h.Context(), time.UnixMilli(test.recent), test.dryRun)
		h.check(err)
		h.equal(what+"garbage", g, test.want)
		var left []string
		for _, digest := range slices.Sorted(maps.Keys(all)) {
			if _, err := s.Blob(h.Context(), all[digest], digest); err == nil {
				left = append(left, digest)
			} else if !errors.Is(err, store.ErrNotFound) {
				h.Error(err)
			}
		}
		h.equal(what+"left", strings.Join(left, " "), test.left)
	}
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
	h.equal("parts", h.hits(s, h.args(`{"Text":"Needle"}`), func(hit *store.Hit) string { return hit.PartID }),
		strings.Join(want, ", "))
}

// restore imports what a store remembers of a session into an empty one.
func restore(h *harness, s Store) {
	b := turnAt(0)
	b.Parts = append(b.Parts, textPart("s", "a", "same", 0, 1, "at the index of another"))
	h.apply(s, b)
	in := &store.Imported{Transcript: h.transcript(s, "s")}
	h.check(s.Origin(h.Context(), in))
	h.equal("spans", len(in.SpanRefs), 1)
	h.equal("traces", in.Traces, []string{"trace-s"})
	h.equal("requested indexes", len(in.RequestedIndexes), 1)
	before := h.dump(s)
	h.check(s.Delete(h.Context(), "s"))
	if _, err := s.Import(h.Context(), in); err != nil {
		h.Fatal(err)
	}
	h.apply(s, b)
	h.equal("after its telemetry was delivered again", h.dump(s), before)
}
