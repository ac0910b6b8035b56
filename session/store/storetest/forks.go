package storetest

import (
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// fork makes a session a copy of another up to a message.
func fork(id, from, message string, at int64) store.Batch {
	return ofSession(id, at, store.SessionChange{ParentID: reported(at, from), ParentMessageID: reported(at, message),
		Fork: &store.Fork{From: from, Message: message, At: epoch + at}})
}

// texts lists what the visible messages of a session say.
func texts(t *session.Transcript) []string {
	all := []string{}
	for _, m := range t.Messages {
		for _, p := range m.Parts {
			if _, text, ok := strings.Cut(p.DataJSON, `"text":"`); ok && m.Message.HiddenAt == nil {
				all = append(all, strings.TrimSuffix(text, `"}`))
			}
		}
	}
	return all
}

var forkCases = []testCase{
	{"fork/copies", "A fork holds copies, with new ids, of its parent's messages up to the one it left at, in their " +
		"order; its tokens are those of the copies. The parent may arrive later, whole or piece by piece.",
		story(append(base(), fork("s2", "s1", "u2", 50)), func(h *harness, s Store) {
			parent, child := h.transcript(s, "s1"), h.transcript(s, "s2")
			h.equal("texts", texts(child), []string{"question u1", "answer a1", "question u2"})
			h.equal("rollup", child.Session.TotalTokens, int64(1))
			for i, m := range child.Messages {
				if m.Message.ID == parent.Messages[i].Message.ID {
					t := m.Message.ID
					h.Errorf("message %s has the id of its original", t)
				}
			}
		})},
	{"fork/own-messages", "A fork goes on with messages of its own, and neither it nor its parent sees those of the " +
		"other.", story(append(base(), fork("s2", "s1", "a2", 25), user("s2", "v1", 60), assistant("s2", "b1", 61, 5)),
		sessions("s1 111: question u1, answer a1, question u2, answer a2, question u3, answer a3",
			"s2 16: question u1, answer a1, question u2, answer a2, question v1, answer b1"))},
	{"fork/hidden", "What was hidden when the fork was made is not copied; what was hidden afterwards is.",
		story(append(base(), rewind("u2", 40, false), user("s1", "u4", 50), fork("s2", "s1", "u4", 60),
			rewind("u1", 70, false)), func(h *harness, s Store) {
			h.equal("child", texts(h.transcript(s, "s2")),
				[]string{"question u1", "answer a1", "question u2", "question u4"})
			h.equal("parent", visible(h.transcript(s, "s1")), []string{"u1"})
		})},
	{"fork/of-a-fork", "A fork of a fork holds copies of copies, whichever of the three sessions is known first.",
		func(h *harness) {
			var copied string
			h.with(func(s Store) {
				h.apply(s, append(base(), fork("s2", "s1", "a2", 50))...)
				messages := h.transcript(s, "s2").Messages
				copied = messages[len(messages)-1].Message.ID
			})
			story := append(base(), fork("s2", "s1", "a2", 50), fork("s3", "s2", copied, 60), user("s3", "w1", 70))
			h.story(story, func(s Store) {
				h.holds(s, "s1 111: question u1, answer a1, question u2, answer a2, question u3, answer a3",
					"s2 11: question u1, answer a1, question u2, answer a2",
					"s3 11: question u1, answer a1, question u2, answer a2, question w1")
			})
		}},
	{"fork/compaction", "A copied compaction names the copy of the message that its original names, so that the " +
		"fork's context is that of its parent.",
		story(append(base(), compaction("s1", "c1", 25, "u2", 1000), fork("s2", "s1", "a3", 50)),
			sessions("s1 1110: question u1, answer a1, question u2, answer a2, question u3, answer a3",
				"s2 1110: question u1, answer a1, question u2, answer a2, question u3, answer a3"))},
	{"fork/without-parent-column", "That a session is a fork is enough to find it when its parent arrives, also when " +
		"another parent is reported.", func(h *harness) {
		bare := ofSession("s2", 50, store.SessionChange{Fork: &store.Fork{From: "s1", Message: "u2", At: epoch + 50}})
		other := ofSession("s2", 50, store.SessionChange{ParentID: reported(1, "s7")})
		h.story(append(base(), bare, other), func(s Store) {
			h.holds(s, "s1 111: question u1, answer a1, question u2, answer a2, question u3, answer a3",
				"s2 1: question u1, answer a1, question u2")
		})
	}},
	{"fork/twice", "Of two reports of where a session was forked from the earlier counts, and nothing of the other " +
		"is left.", func(h *harness) {
		other := []store.Batch{user("s9", "x1", 1), user("s9", "x2", 2)}
		h.story(slices.Concat(base()[:2], other, []store.Batch{fork("s2", "s9", "x2", 60), fork("s2", "s1", "a1", 50)}),
			func(s Store) {
				h.holds(s, "s1 1: question u1, answer a1", "s2 1: question u1, answer a1",
					"s9 0: question x1, question x2")
			})
	}},
	{"fork/late-parts", "A part of the parent's that was made after the fork is not copied; one made before it is, " +
		"however late it arrives, in its last state.", func(h *harness) {
		h.story(append(base()[:2], fork("s2", "s1", "a1", 50), parts(textPart("s1", "a1", "early", 1, 40, "early")),
			parts(textPart("s1", "a1", "late", 2, 60, "late")), parts(textPart("s1", "a1", "early", 1, 70, "changed")),
		), func(s Store) {
			h.holds(s, "s1 1: question u1, answer a1, changed, late", "s2 1: question u1, answer a1, changed")
		})
	}},
}
