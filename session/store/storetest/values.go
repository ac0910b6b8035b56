package storetest

import (
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

var valueCases = []testCase{
	{"session/last", "Title, mode, workspace, model and permissions of a session are what the source of the highest " +
		"rank reported last; of two reported at once, one counts whichever came first.", func(h *harness) {
		live := func(at int64, text string) *store.Value {
			return &store.Value{Text: text, At: nano(at), Rank: store.RankLive}
		}
		h.story([]store.Batch{
			ofSession("s1", 1, store.SessionChange{Title: reported(10, "early"), Mode: live(50, "live")}),
			ofSession("s1", 2, store.SessionChange{Title: reported(20, "late a"), Mode: reported(5, "final")}),
			ofSession("s1", 3, store.SessionChange{Title: reported(20, "late b"), Permissions: reported(1, "[]")}),
			ofSession("s1", 4, store.SessionChange{WorkspaceRoot: reported(1, "/w"), WorkspaceID: reported(1, "w1"),
				Model: reported(1, `{"model_id":"m"}`)}),
		}, func(s Store) {
			row := h.transcript(s, "s1").Session
			if row.Title != "late a" && row.Title != "late b" {
				h.Errorf("title is %q, which was not reported last", row.Title)
			}
			h.equal("mode", *row.Mode, "final")
			h.equal("workspace", []string{*row.WorkspaceRoot, *row.WorkspaceID}, []string{"/w", "w1"})
			h.equal("model", *row.ModelJSON, `{"model_id":"m"}`)
		})
	}},
	{"session/first", "Agent and parent of a session are what was reported first, whenever it arrives.",
		story([]store.Batch{
			ofSession("s1", 1, store.SessionChange{Agent: reported(20, "second"), ParentID: reported(20, "s9"),
				ParentMessageID: reported(20, "m9")}),
			ofSession("s1", 2, store.SessionChange{Agent: reported(10, "first"), ParentID: reported(10, "s8"),
				ParentMessageID: reported(10, "m8")}),
			ofSession("s1", 3, store.SessionChange{Agent: reported(30, "third")}),
		}, func(h *harness, s Store) {
			row := h.transcript(s, "s1").Session
			h.equal("agent", row.Agent, "first")
			h.equal("parent", []string{*row.ParentID, *row.ParentMessageID}, []string{"s8", "m8"})
		})},
	{"session/defaults", "A session of which nothing is reported has the table's defaults, and null where no source " +
		"reported a value.", story([]store.Batch{ofSession("s1", 1, store.SessionChange{})}, func(h *harness, s Store) {
		h.equal("row", h.transcript(s, "s1").Session, session.Session{
			ID: "s1", Title: "New Chat", Agent: "unknown", PermissionsJSON: "[]", MetadataJSON: "{}",
			CreatedAt: epoch + 1, UpdatedAt: epoch + 1,
		})
	})},
	{"session/bounds", "A session was created at the least time that anything reports of it and updated at the " +
		"greatest. A time of zero is one that nobody knows.", story([]store.Batch{
		{Sessions: []store.SessionChange{{ID: "s1", Start: epoch + 5, End: epoch + 9}}},
		{Sessions: []store.SessionChange{{ID: "s1", Start: epoch + 3, End: epoch + 7}}},
		{Sessions: []store.SessionChange{{ID: "s1"}}},
		user("s1", "m1", 2),
	}, func(h *harness, s Store) {
		row := h.transcript(s, "s1").Session
		h.equal("times", []int64{row.CreatedAt, row.UpdatedAt}, []int64{epoch + 2, epoch + 9})
	})},
	{"session/metadata", "Metadata merges key by key: each key as last reported, whatever the order and the spelling " +
		"of its value.", func(h *harness) {
		key := func(at int64, key, text string) store.Batch {
			return ofSession("s1", 1, store.SessionChange{Metadata: map[string]store.Value{key: *reported(at, text)}})
		}
		h.story([]store.Batch{
			key(1, "a", `{"n":1}`), key(2, "a", `{"n":2}`), key(1, "b", `"<tag> &"`),
			key(1, "c", `{ "spaced" : [ 1 , 2 ] }`), key(1, "d", `{"cut":`),
		}, func(s Store) {
			h.equal("metadata", h.transcript(s, "s1").Session.MetadataJSON,
				`{"a":{"n":2},"b":"<tag> &","c":{"spaced":[1,2]}}`)
		})
		h.story([]store.Batch{key(1, "b", `"<&>"`), key(1, "b", `"A"`)}, func(Store) {})
	}},
	{"session/archive", "A session is archived when that was reported last, at the time that the report has.",
		func(h *harness) {
			archived := func(at int64, text string) store.Batch {
				return ofSession("s1", 1, store.SessionChange{Archived: reported(at, text)})
			}
			h.story([]store.Batch{archived(10, "1"), archived(20, "0"), archived(30, "1")}, func(s Store) {
				h.equal("archived_at", *h.transcript(s, "s1").Session.ArchivedAt, int64(epoch+30))
			})
			h.story([]store.Batch{archived(10, "1"), archived(20, "0")}, func(s Store) {
				h.equal("archived_at", h.transcript(s, "s1").Session.ArchivedAt, (*int64)(nil))
			})
		}},
}

var messageCases = []testCase{
	{"message/ranks", "What described a message when it was over takes precedence over what described it while it " +
		"went on, and that over knowing that it exists. A message of which no more is known is marked incomplete.",
		func(h *harness) {
			change := func(rank store.Rank, role, metadata string) store.Batch {
				return store.Batch{Messages: []store.MessageChange{{
					ID: "m1", SessionID: "s1", Role: role, Metadata: []byte(metadata), CreatedAt: epoch + 1,
					UpdatedAt: epoch + 1, Rank: rank,
				}}}
			}
			base := ofSession("s1", 1, store.SessionChange{})
			stub, live, final := change(store.RankStub, "", ""), change(store.RankLive, "user", `{"z":"live"}`),
				change(store.RankFinal, "user", `{"a":"final"}`)
			h.story([]store.Batch{base, stub}, func(s Store) {
				m := h.transcript(s, "s1").Messages[0].Message
				h.equal("stub", []string{m.Role, m.MetadataJSON},
					[]string{"assistant", `{"agenttrace":{"incomplete":true}}`})
			})
			h.story([]store.Batch{base, stub, live}, func(s Store) {
				m := h.transcript(s, "s1").Messages[0].Message
				h.equal("live", []string{m.Role, m.MetadataJSON},
					[]string{"user", `{"agenttrace":{"incomplete":true},"z":"live"}`})
			})
			h.story([]store.Batch{base, stub, live, final}, func(s Store) {
				m := h.transcript(s, "s1").Messages[0].Message
				h.equal("final", []string{m.Role, m.MetadataJSON}, []string{"user", `{"a":"final"}`})
			})
		}},
	{"message/times", "A message was created at the least time that a source gives for it or for a part of it and " +
		"updated at the greatest. A time of zero is unknown.", func(h *harness) {
		change := func(created, updated int64) store.Batch {
			return store.Batch{Messages: []store.MessageChange{
				{ID: "m1", SessionID: "s1", Role: "user", CreatedAt: created, UpdatedAt: updated,
					Rank: store.RankFinal}}}
		}
		h.story([]store.Batch{
			change(epoch+5, epoch+6), change(epoch+4, epoch+4), change(0, 0),
			{Parts: []store.PartChange{textPart("s1", "m1", "p1", 0, 9, "x")}},
		}, func(s Store) {
			m := h.transcript(s, "s1").Messages[0].Message
			h.equal("times", []int64{m.CreatedAt, m.UpdatedAt}, []int64{epoch + 4, epoch + 9})
		})
	}},
	{"message/order", "Messages are in order of (created_at, id), never of id alone.",
		story([]store.Batch{user("s1", "a", 30), user("s1", "b", 20), user("s1", "c", 20), user("s1", "d", 10)},
			func(h *harness, s Store) {
				h.equal("order", visible(h.transcript(s, "s1")), []string{"d", "b", "c", "a"})
			})},
	{"message/of-another-session", "A message whose id belongs to another session is refused and counted; the rest " +
		"of its batch is stored.", with(func(h *harness, s Store) {
		h.apply(s, user("s1", "m1", 1))
		r := h.apply(s, user("s2", "m1", 2), user("s2", "m2", 3))
		h.equal("refused", r.Refused, int64(2))
		h.equal("the first", visible(h.transcript(s, "s1")), []string{"m1"})
		h.equal("the second", visible(h.transcript(s, "s2")), []string{"m2"})
	})},
	{"message/unknown-session", "A report of a message makes its session known, with the times of the report.",
		story([]store.Batch{assistant("s1", "m1", 3, 7), user("s1", "m0", 1)}, func(h *harness, s Store) {
			row := h.transcript(s, "s1").Session
			h.equal("row", []any{row.Agent, row.CreatedAt, row.UpdatedAt, row.PromptTokens},
				[]any{"unknown", int64(epoch + 1), int64(epoch + 8), int64(7)})
		})},
}
