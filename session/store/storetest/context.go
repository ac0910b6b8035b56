package storetest

import (
	"fmt"
	"strings"

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

// holds compares the sessions of a store, in order of their ids: each with its tokens and what its visible messages say.
func (h *harness) holds(s Store, want ...string) {
	h.Helper()
	var got []string
	for _, id := range h.ids(s) {
		t := h.transcript(s, id)
		got = append(got, fmt.Sprintf("%s %d: %s", id, t.Session.TotalTokens, strings.Join(texts(t), ", ")))
	}
	h.equal("sessions", got, want)
}

// sessions sees what [harness.holds] compares.
func sessions(want ...string) func(h *harness, s Store) {
	return func(h *harness, s Store) {
		h.Helper()
		h.holds(s, want...)
	}
}

// counts sees how many tokens the session s1 has, and which of its messages are visible.
func counts(tokens int64, messages ...string) func(h *harness, s Store) {
	return func(h *harness, s Store) {
		h.Helper()
		h.rollup(s, tokens)
		h.equal("visible", visible(h.transcript(s, "s1")), messages)
	}
}

// undated are a compaction of which the time is not known, and its time.
func undated(sessionID, id string, at int64, tail string, tokens int64) []store.Batch {
	b := compaction(sessionID, id, -epoch, tail, tokens)
	return []store.Batch{b, {Messages: []store.MessageChange{
		{ID: id, SessionID: sessionID, CreatedAt: epoch + at, UpdatedAt: epoch + at}}}}
}

var contextCases = []testCase{
	{"context/all", "Without a compaction every visible assistant message counts towards the session's tokens.",
		story(base(), counts(111, "u1", "a1", "u2", "a2", "u3", "a3"))},
	{"context/compaction-with-tail", "After a compaction the messages count from the one that it names, the " +
		"summary's included, whichever arrives first.", story(append(base(), compaction("s1", "c1", 25, "u2", 1000)),
		counts(1110, "u1", "a1", "u2", "a2", "c1", "u3", "a3"))},
	{"context/compaction-without-tail", "A compaction that names no message counts from its own on.",
		story(append(base(), compaction("s1", "c1", 25, "", 1000)),
			counts(1100, "u1", "a1", "u2", "a2", "c1", "u3", "a3"))},
	{"context/compaction-with-unknown-tail", "A compaction that names a message nobody knows counts from its own on, " +
		"until the message arrives.", story(append(base(), compaction("s1", "c1", 25, "u9", 1000)),
		counts(1100, "u1", "a1", "u2", "a2", "c1", "u3", "a3"))},
	{"context/two-compactions", "The latest compaction is the one in force.",
		story(append(base(), compaction("s1", "c1", 15, "u1", 1000), compaction("s1", "c2", 25, "a2", 2000)),
			counts(2110, "u1", "a1", "c1", "u2", "a2", "c2", "u3", "a3"))},
	{"context/undated-compaction", "A compaction of which the time becomes known late takes its place then.",
		story(append(append(base(), compaction("s1", "c1", 15, "u1", 1000)), undated("s1", "c2", 25, "u3", 2000)...),
			counts(100, "u1", "a1", "c1", "u2", "a2", "c2", "u3", "a3"))},
	{"context/hidden-compaction", "A compaction that a rewind hid is not in force: the messages before it count again.",
		story(append(base(), compaction("s1", "c1", 25, "", 1000), rewind("u2", 40, false)),
			counts(1, "u1", "a1", "u2"))},
}

func rewind(to string, at int64, undone bool) store.Batch {
	return ofSession("s1", 1, store.SessionChange{Rewinds: []store.Rewind{{To: to, At: epoch + at, Undone: undone}}})
}

var rewindCases = []testCase{
	{"rewind/hides", "A rewind hides what comes after the message it goes back to, and keeps the rows. Their tokens " +
		"count no more.", story(append(base(), rewind("u2", 40, false)), func(h *harness, s Store) {
		counts(1, "u1", "a1", "u2")(h, s)
		t := h.transcript(s, "s1")
		h.equal("kept", len(t.Messages), 6)
		h.equal("hidden_at", *h.message(t, "a2").Message.HiddenAt, int64(epoch+40))
	})},
	{"rewind/resend", "What was made after the rewind is not hidden by it, whenever it arrives.",
		story(append(base(), rewind("u2", 40, false), user("s1", "u4", 50), assistant("s1", "a4", 51, 1000)),
			counts(1001, "u1", "a1", "u2", "u4", "a4"))},
	{"rewind/undone", "A rewind that is undone hides nothing; another one still does.",
		story(append(base(), rewind("u1", 40, false), rewind("u1", 40, true), rewind("u3", 45, false)),
			counts(11, "u1", "a1", "u2", "a2", "u3"))},
	{"rewind/twice", "A message that two rewinds hide was hidden by the first.",
		story(append(base(), rewind("u2", 45, false), rewind("u1", 40, false)), func(h *harness, s Store) {
			h.equal("hidden_at", *h.message(h.transcript(s, "s1"), "a3").Message.HiddenAt, int64(epoch+40))
			counts(0, "u1")(h, s)
		})},
	{"rewind/moved-message", "When it becomes known that the message a rewind goes back to is older, more is hidden.",
		story([]store.Batch{
			user("s1", "u1", 10), assistant("s1", "a1", 11, 1), user("s1", "u2", 20), rewind("u2", 40, false),
			{Messages: []store.MessageChange{{ID: "u2", SessionID: "s1", CreatedAt: epoch + 5, UpdatedAt: epoch + 5}}},
		}, counts(0, "u2"))},
	{"rewind/unknown-message", "A rewind to a message that nobody knows hides nothing.",
		story(append(base(), rewind("u9", 40, false)), counts(111, "u1", "a1", "u2", "a2", "u3", "a3"))},
}
