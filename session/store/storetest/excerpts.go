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

// findTurns finds the turns of a session that has more than questions and answers.
func findTurns(h *harness, s Store) {
	h.script(s, `
INSERT INTO chat_sessions(id, title, agent, created_at, updated_at) VALUES
 ('t', '', 'coder', 1, 9), ('w', '', 'coder', 1, 1);
INSERT INTO chat_messages(id, session_id, role, metadata_json, hidden_at, created_at, updated_at) VALUES
 ('system', 't', 'system', '{}', NULL, 1, 1),
 ('answer0', 't', 'assistant', '{}', NULL, 2, 2),
 ('user1', 't', 'user', '{}', NULL, 3, 3),
 ('answer1', 't', 'assistant', '{"agenttrace":{"turn_index":5,"end_reason":"finish"}}', NULL, 4, 4),
 ('answer2', 't', 'assistant', '{"agenttrace":{"turn_index":6}}', NULL, 5, 5),
 ('waits', 't', 'user', '{"queued_at":6}', NULL, 6, 6),
 ('user3', 't', 'user', '{}', 9, 7, 7),
 ('compacted', 't', 'assistant', '{"compaction":true}', NULL, 8, 8),
 ('answer3', 't', 'assistant', '{}', 9, 8, 8),
 ('user4', 't', 'user', '{"note":{"queued_at":1}}', NULL, 9, 9),
 ('only', 'w', 'user', '{"queued_at":1}', NULL, 1, 1)`)
	type found = store.FoundTurns
	queued := []string{"waits"}
	for _, c := range []struct {
		id    string
		turns store.TurnRange
		want  string
		found found
	}{
		{"t", store.TurnRange{First: 1, Last: 1}, "system answer0", found{First: 1, Last: 1, Begin: 1}},
		{"t", store.TurnRange{First: 2, Last: 2}, "user1 answer1", found{First: 2, Last: 2, Begin: 2}},
		{"t", store.TurnRange{First: 3, Last: 3}, "answer2", found{First: 3, Last: 3, Begin: 3, Lost: true}},
		{"t", store.TurnRange{First: 4, Last: 9}, "user3 answer3 compacted user4", found{First: 4, Last: 5, Begin: 4}},
		{"t", store.TurnRange{First: 4, Last: 4, Before: 1}, "answer2 user3 answer3 compacted",
			found{First: 4, Last: 4, Begin: 3, Lost: true}},
		{"t", store.TurnRange{First: 1, Last: 2, Before: 3}, "system answer0 user1 answer1",
			found{First: 1, Last: 2, Begin: 1}},
		{"t", store.TurnRange{Of: "system"}, "system answer0", found{First: 1, Last: 1, Begin: 1}},
		{"t", store.TurnRange{Of: "compacted", Before: 2}, "user1 answer1 answer2 user3 answer3 compacted",
			found{First: 4, Last: 4, Begin: 2}},
		{"t", store.TurnRange{Of: "waits"}, "", found{}},
		{"t", store.TurnRange{Of: "none"}, "", found{}},
		{"t", store.TurnRange{First: 6, Last: 6}, "", found{}},
		{"w", store.TurnRange{First: 1, Last: 1}, "", found{}},
	} {
		e, err := s.Excerpt(h.Context(), c.id, store.ExcerptQuery{Turns: c.turns, Spans: true})
		h.check(err)
		var messages []string
		for i := range e.Messages {
			messages = append(messages, e.Messages[i].Message.ID)
		}
		name := fmt.Sprintf("turns %+v of %s", c.turns, c.id)
		h.equal(name, strings.Join(messages, " "), c.want)
		if c.found.Began, c.found.Queued = 1, queued; c.id == "t" {
			c.found.Total = 5
		} else {
			c.found.Queued = []string{"only"}
		}
		h.equal(name, fmt.Sprintf("%+v", e.Found), fmt.Sprintf("%+v", c.found))
	}
}
