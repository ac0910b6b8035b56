package storetest

import (
	"github.com/agenttrace/agenttrace/session/store"
)

// base is a session with three turns that count 1, 10 and 100 tokens.
func base() []store.Batch {
	return []store.Batch{
		user("s1", "u1", 10), assistant("s1", "a1", 11, 1),
		user("s1", "u2", 20), assistant("s1", "a2", 21, 10),
		user("s1", "u3", 30), assistant("s1", "a3", 31, 100),
	}
}

func (h *harness) rollup(s Store, want int64) {
	h.Helper()
	h.equal("rollup", h.transcript(s, "s1").Session.TotalTokens, want)
}

var contextCases = []testCase{
	{"context/all", "Without a compaction every visible assistant message counts towards the session's tokens.",
		story(base(), func(h *harness, s Store) { h.rollup(s, 111) })},
	{"context/compaction-with-tail", "After a compaction the messages count from the one that it names, the " +
		"summary's included, whichever arrives first.",
		story(append(base(), compaction("s1", "c1", 25, "u2", 1000)), func(h *harness, s Store) { h.rollup(s, 1110) })},
	{"context/compaction-without-tail", "A compaction that names no message counts from its own on.",
		story(append(base(), compaction("s1", "c1", 25, "", 1000)), func(h *harness, s Store) { h.rollup(s, 1100) })},
	{"context/compaction-with-unknown-tail", "A compaction that names a message nobody knows counts from its own on, " +
		"until the message arrives.",
		story(append(base(), compaction("s1", "c1", 25, "u9", 1000)), func(h *harness, s Store) { h.rollup(s, 1100) })},
	{"context/two-compactions", "The latest compaction is the one in force.",
		story(append(base(), compaction("s1", "c1", 15, "u1", 1000), compaction("s1", "c2", 25, "a2", 2000)),
			func(h *harness, s Store) { h.rollup(s, 2110) })},
	{"context/undated-compaction", "A compaction of which the time becomes known late takes its place then.",
		func(h *harness) {
			undated := compaction("s1", "c2", 0, "u3", 2000)
			undated.Messages[0].CreatedAt, undated.Messages[0].UpdatedAt = 0, 0
			undated.Parts[0].CreatedAt, undated.Parts[0].UpdatedAt = 0, 0
			dated := store.Batch{Messages: []store.MessageChange{
				{ID: "c2", SessionID: "s1", CreatedAt: epoch + 25, UpdatedAt: epoch + 25}}}
			h.story(append(base(), compaction("s1", "c1", 15, "u1", 1000), undated, dated),
				func(s Store) { h.rollup(s, 100) })
		}},
	{"context/hidden-compaction", "A compaction that a rewind hid is not in force: the messages before it count again.",
		story(append(base(), compaction("s1", "c1", 25, "", 1000), ofSession("s1", 1, func(c *store.SessionChange) {
			c.Rewinds = []store.Rewind{{To: "u2", At: epoch + 40}}
		})), func(h *harness, s Store) { h.rollup(s, 1) })},
}

func rewind(to string, at int64, undone bool) store.Batch {
	return ofSession("s1", 1, func(c *store.SessionChange) {
		c.Rewinds = []store.Rewind{{To: to, At: epoch + at, Undone: undone}}
	})
}

var rewindCases = []testCase{
	{"rewind/hides", "A rewind hides what comes after the message it goes back to, and keeps the rows. Their tokens " +
		"count no more.", story(append(base(), rewind("u2", 40, false)), func(h *harness, s Store) {
		t := h.transcript(s, "s1")
		h.equal("visible", visible(t), []string{"u1", "a1", "u2"})
		h.equal("kept", len(t.Messages), 6)
		h.equal("hidden_at", *h.message(t, "a2").Message.HiddenAt, int64(epoch+40))
		h.rollup(s, 1)
	})},
	{"rewind/resend", "What was made after the rewind is not hidden by it, whenever it arrives.",
		story(append(base(), rewind("u2", 40, false), user("s1", "u4", 50), assistant("s1", "a4", 51, 1000)),
			func(h *harness, s Store) {
				h.equal("visible", visible(h.transcript(s, "s1")), []string{"u1", "a1", "u2", "u4", "a4"})
				h.rollup(s, 1001)
			})},
	{"rewind/undone", "A rewind that is undone hides nothing; another one still does.",
		story(append(base(), rewind("u1", 40, false), rewind("u1", 40, true), rewind("u3", 45, false)),
			func(h *harness, s Store) {
				h.equal("visible", visible(h.transcript(s, "s1")), []string{"u1", "a1", "u2", "a2", "u3"})
				h.rollup(s, 11)
			})},
	{"rewind/twice", "A message that two rewinds hide was hidden by the first.",
		story(append(base(), rewind("u2", 45, false), rewind("u1", 40, false)), func(h *harness, s Store) {
			h.equal("hidden_at", *h.message(h.transcript(s, "s1"), "a3").Message.HiddenAt, int64(epoch+40))
			h.rollup(s, 0)
		})},
	{"rewind/moved-message", "When it becomes known that the message a rewind goes back to is older, more is hidden.",
		story([]store.Batch{
			user("s1", "u1", 10), assistant("s1", "a1", 11, 1), user("s1", "u2", 20), rewind("u2", 40, false),
			{Messages: []store.MessageChange{{ID: "u2", SessionID: "s1", CreatedAt: epoch + 5, UpdatedAt: epoch + 5}}},
		}, func(h *harness, s Store) {
			h.equal("visible", visible(h.transcript(s, "s1")), []string{"u2"})
			h.rollup(s, 0)
		})},
	{"rewind/unknown-message", "A rewind to a message that nobody knows hides nothing.",
		story(append(base(), rewind("u9", 40, false)), func(h *harness, s Store) { h.rollup(s, 111) })},
}
