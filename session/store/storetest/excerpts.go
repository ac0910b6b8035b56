package storetest

import (
	"fmt"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// readExcerpts reads parts of a session of six turns, each with a call, a decision about it and a span.
func readExcerpts(h *harness, s Store) {
	all := []store.Batch{compaction("s", "c", 25, "", 3)}
	for n := range 6 {
		id, at := fmt.Sprintf("a%d", n), int64(n*10)
		state := session.StateOutputAvailable
		if n == 2 {
			state = session.StateOutputError
		}
		b := join(user("s", fmt.Sprintf("u%d", n), at), assistant("s", id, at+1, 1))
		b.Parts = append(b.Parts, toolPart("s", id, id+"-call", 1, at+1, store.RankFinal, state))
		b.Decisions = []store.Decision{{
			ID: "d" + id, SessionID: "s", ToolCallID: "call-" + id + "-call", ToolID: "bash", Action: "allow",
			DecidedAt: epoch + at,
		}}
		all = append(all, b)
	}
	h.apply(s, append(all, user("other", "u", 0), assistant("other", "a", 1, 1))...)
	for _, c := range []struct {
		name      string
		query     store.ExcerptQuery
		want      string
		decisions string
		spans     string
		toolCalls int
	}{
		{"two messages", store.ExcerptQuery{Messages: []string{"u3", "a1", "a", "none"}, Spans: true},
			"a1[a1-text a1-call] u3[u3-text]", "da1", "span-a1", 0},
		{"no message", store.ExcerptQuery{Messages: []string{}}, "", "", "", 0},
		{"the end", store.ExcerptQuery{From: store.Position{At: epoch + 51, ID: "a5"}},
			"a5[a5-text a5-call]", "", "", 0},
		{"the last turn", store.ExcerptQuery{LastTurns: 1}, "u5[u5-text] a5[a5-text a5-call]", "da5", "", 0},
		{"an outline", store.ExcerptQuery{Outline: true},
			"u0[] a0[] u1[] a1[] u2[] a2[a2-call] c[c-marker] u3[] a3[] u4[] a4[] u5[] a5[]", "", "", 6},
	} {
		e, err := s.Excerpt(h.Context(), "s", c.query)
		h.check(err)
		var messages, decisions, spans []string
		for _, m := range e.Messages {
			var parts []string
			for _, p := range m.Parts {
				parts = append(parts, p.ID)
			}
			messages = append(messages, m.Message.ID+"["+strings.Join(parts, " ")+"]")
		}
		for _, d := range e.Decisions {
			decisions = append(decisions, d.ID)
		}
		for _, l := range e.Spans {
			spans = append(spans, l.SpanID)
		}
		h.equal(c.name, strings.Join(messages, " "), c.want)
		h.equal(c.name+": decisions", strings.Join(decisions, " "), c.decisions)
		h.equal(c.name+": spans", strings.Join(spans, " "), c.spans)
		h.equal(c.name+": tool calls", e.ToolCalls, c.toolCalls)
	}
}
