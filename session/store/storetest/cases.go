package storetest

import (
	"fmt"
	"math"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// link makes a batch of one link, with what it needs around it.
func link(l store.SpanRef) store.Batch { return store.Batch{SpanRefs: []store.SpanRef{l}} }

// base is a session with three turns that count 1, 10 and 100 tokens.
func base() []store.Batch {
	return []store.Batch{
		user("s1", "u1", 10), assistant("s1", "a1", 11, 1),
		user("s1", "u2", 20), assistant("s1", "a2", 21, 10),
		user("s1", "u3", 30), assistant("s1", "a3", 31, 100),
	}
}

func rewind(to string, at int64, undone bool) store.Batch {
	return ofSession("s1", 1, store.SessionChange{Rewinds: []store.Rewind{{To: to, At: epoch + at, Undone: undone}}})
}

// fork makes a session a copy of another up to a message.
func fork(id, from, message string, at int64) store.Batch {
	return ofSession(id, at, store.SessionChange{ParentID: reported(at, from), ParentMessageID: reported(at, message),
		Fork: &store.Fork{From: from, Message: message, At: epoch + at}})
}

// texts lists the texts of the visible messages of a session.
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

// parts makes a batch of parts.
func parts(all ...store.PartChange) store.Batch { return store.Batch{Parts: all} }

// annotation is one of a session that was made, changed or undone at a time.
func annotation(kind, name string, at int64, more func(*store.Annotation)) store.Annotation {
	n := store.Annotation{SessionID: "s1", Kind: kind, Name: name, Author: "ann", CreatedAt: epoch + at,
		UpdatedAt: epoch + at}
	if more != nil {
		more(&n)
	}
	n.Identify()
	return n
}

func annotated(all ...store.Annotation) store.Batch { return store.Batch{Annotations: all} }

// otherCases are those that no story is.
var otherCases = []testCase{
	{"part/many-in-one-place", "However many parts request one index, the cost of moving them stays in proportion to " +
		"them, and no index overflows.", func(h *harness) {
		const n = 3000
		all := make([]store.PartChange, n)
		for i := range all {
			all[i] = textPart("s1", "m1", fmt.Sprintf("p%05d", n-i), 0, 1, "x")
		}
		all = append(all, textPart("s1", "m1", "q", math.MaxInt64, 1, "x"),
			textPart("s1", "m1", "r", math.MaxInt64, 1, "x"), textPart("s1", "m1", "n", -5, 1, "x"))
		h.with(func(s Store) {
			r := h.apply(s, parts(all...))
			h.equal("refused", r.Refused, int64(0))
			m := Transcript(h, s, "s1").Messages[0]
			h.equal("parts", len(m.Parts), n+3)
			for i, p := range m.Parts[:n] {
				if want := int64(i); p.Index != want {
					h.Fatalf("part %d has index %d", i, p.Index)
				}
			}
			for i := range m.Parts[1:] {
				if m.Parts[i].Index >= m.Parts[i+1].Index {
					h.Fatalf("index %d is before %d", m.Parts[i].Index, m.Parts[i+1].Index)
				}
			}
		})
	}},
}
