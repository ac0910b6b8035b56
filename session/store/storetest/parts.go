package storetest

import (
	"fmt"
	"math"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// parts makes a batch of parts.
func parts(all ...store.PartChange) store.Batch { return store.Batch{Parts: all} }

// call is a description of the call p1, the first part of the message m1.
func call(at int64, rank store.Rank, state string, data ...any) store.Batch {
	return parts(toolPart("s1", "m1", "p1", 0, at, rank, state, data...))
}

// layout lists the parts of a message as index:id.
func layout(m session.MessageAndParts) []string {
	var all []string
	for _, p := range m.Parts {
		all = append(all, fmt.Sprintf("%d:%s", p.Index, p.ID))
	}
	return all
}

var partCases = []testCase{
	{"part/ranks", "Of two descriptions of a part the one that knew more takes precedence, whatever states and times " +
		"they give: listed, then seen live, then final. Its data shows which it was.", story([]store.Batch{
		call(50, store.RankStub, session.StateInputStreaming),
		call(30, store.RankLive, session.StateOutputError, "errorText", "x"),
		call(10, store.RankFinal, session.StateOutputAvailable, "input", 1, "output", 2),
	}, func(h *harness, s Store) {
		p := h.transcript(s, "s1").Messages[0].Parts[0]
		h.equal("state", *p.ToolState, session.StateOutputAvailable)
		h.equal("call", *p.ToolCallID, "call-p1")
		h.equal("times", []int64{p.CreatedAt, p.UpdatedAt}, []int64{epoch + 10, epoch + 10})
	})},
	{"part/absence", "What was answered comes before a part that represents its absence, whichever arrives first and " +
		"whatever their ids.", func(h *harness) {
		absence := textPart("s1", "m1", "p1", 0, 20, "")
		absence.Type, absence.Data = session.TypeUnfinished, object("type", session.TypeUnfinished, "data",
			map[string]any{"text": "the turn ended before anything was answered"})
		h.story([]store.Batch{parts(absence), parts(textPart("s1", "m1", "p2", 0, 10, "The sea"))}, func(s Store) {
			h.equal("parts", layout(h.transcript(s, "s1").Messages[0]), []string{"0:p2", "1:p1"})
		})
	}},
	{"part/live", "Of two descriptions of a live part in one millisecond the one that was seen later takes " +
		"precedence, also where it is shorter: the last has no state.", func(h *harness) {
		seen := func(at, text string, state ...any) store.Batch {
			c := textPart("s1", "m1", "p1", 0, 10, text)
			live := map[string]any{"agenttrace": map[string]any{"seen": "2026-11-22T14:13:55.1" + at + "Z",
				"live": true}}
			c.Rank, c.Data = store.RankLive,
				object(append(append([]any{"type", "text", "providerMetadata", live}, state...), "text", text)...)
			return parts(c)
		}
		h.story([]store.Batch{
			seen("11100001", "The sea", "state", "streaming"),
			seen("11100002", "The sea is ", "state", "streaming"),
			seen("11100003", "The sea is calm"),
		}, func(s Store) {
			if p := h.transcript(s, "s1").Messages[0].Parts[0]; !strings.Contains(p.DataJSON, "calm") {
				h.Errorf("the part is %s", p.DataJSON)
			}
		})
	}},
	{"part/states", "Of two descriptions of one rank the one with the later state of the call takes precedence; a " +
		"failure outranks a result.", story([]store.Batch{
		call(9, store.RankFinal, session.StateInputAvailable, "input", 1),
		call(8, store.RankFinal, session.StateApprovalRequested, "input", 1, "approval", map[string]any{"id": "a"}),
		call(7, store.RankFinal, session.StateOutputAvailable, "input", 1, "output", 1),
		call(6, store.RankFinal, session.StateOutputError, "input", 1, "errorText", "no"),
	}, func(h *harness, s Store) {
		p := h.transcript(s, "s1").Messages[0].Parts[0]
		h.equal("state", *p.ToolState, session.StateOutputError)
		h.equal("times", []int64{p.CreatedAt, p.UpdatedAt}, []int64{epoch + 6, epoch + 6})
	})},
	{"part/approval", "A final description of a call that waits for an approval yields to a live one of a later " +
		"state, and to no earlier or equal one: the call may go on. Its next final description stands.",
		func(h *harness) {
			waits := call(20, store.RankFinal, session.StateApprovalRequested, "input",
				1, "approval", map[string]any{"id": "a"})
			before := call(90, store.RankLive, session.StateApprovalRequested, "input",
				1, "approval", map[string]any{"id": "a"})
			goesOn := call(50, store.RankLive, session.StateApprovalResponded, "input",
				1, "approval", map[string]any{"id": "a", "approved": true})
			h.story([]store.Batch{waits, before}, func(s Store) {
				h.equal("rank", store.PartRank(h.transcript(s, "s1").Messages[0].Parts[0].DataJSON), store.RankFinal)
			})
			h.story([]store.Batch{waits, before, goesOn}, func(s Store) {
				h.equal("state", *h.transcript(s, "s1").Messages[0].Parts[0].ToolState, session.StateApprovalResponded)
			})
			done := call(70, store.RankFinal, session.StateOutputAvailable, "input", 1, "output", 1)
			h.story([]store.Batch{waits, before, goesOn, done}, func(s Store) {
				h.equal("state", *h.transcript(s, "s1").Messages[0].Parts[0].ToolState, session.StateOutputAvailable)
			})
		}},
	{"part/later", "Of two descriptions of one rank and state the later takes precedence, then the greater text. It " +
		"was created at the least time that any gives.", func(h *harness) {
		stub := call(100, store.RankStub, session.StateInputStreaming)
		say := func(at int64, output string) store.Batch {
			return call(at, store.RankFinal, session.StateOutputAvailable, "input", 1, "output", output)
		}
		h.story([]store.Batch{say(10, "z"), say(50, "a"), stub, say(50, "b")}, func(s Store) {
			p := h.transcript(s, "s1").Messages[0].Parts[0]
			h.equal("data", p.DataJSON,
				`{"type":"tool-bash","toolCallId":"call-p1","state":"output-available","input":1,"output":"b"}`)
			h.equal("times", []int64{p.CreatedAt, p.UpdatedAt}, []int64{epoch + 10, epoch + 50})
		})
	}},
	{"part/damaged", "A placeholder for content that could not be read gives way to the content.", func(h *harness) {
		damaged := textPart("s1", "m1", "p1", 0, 9, "")
		damaged.Type, damaged.Rank = store.TypeDamaged, store.RankStub
		damaged.Data = object("type", store.TypeDamaged, "data", map[string]any{"type": "text", "text": `{"type":"te`})
		h.story([]store.Batch{parts(damaged), parts(textPart("s1", "m1", "p1", 0, 1, "whole"))}, func(s Store) {
			h.equal("data", h.transcript(s, "s1").Messages[0].Parts[0].DataJSON, `{"type":"text","text":"whole"}`)
		})
	}},
	{"part/one-place", "When two parts request one index, the lesser id has it and the other has the next.",
		story([]store.Batch{
			parts(textPart("s1", "m1", "a", 0, 1, "a")), parts(textPart("s1", "m1", "b", 0, 1, "b")),
			parts(textPart("s1", "m1", "c", 1, 1, "c")),
		}, func(h *harness, s Store) {
			h.equal("parts", layout(h.transcript(s, "s1").Messages[0]), []string{"0:a", "1:b", "2:c"})
		})},
	{"part/requests", "Every part has the index it requests or the next free one, in order of request and then of " +
		"id. Of several requests of a part the least counts.", func(h *harness) {
		at := func(id string, index int64) store.Batch { return parts(textPart("s1", "m1", id, index, 1, id)) }
		h.story([]store.Batch{at("a", 3), at("b", 0), at("c", 0), at("d", 1), at("e", 1), at("a", 0), at("f", 9),
			at("g", 9)}, func(s Store) {
			h.equal("parts", layout(h.transcript(s, "s1").Messages[0]),
				[]string{"0:a", "1:b", "2:c", "3:d", "4:e", "9:f", "10:g"})
		})
	}},
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
			m := h.transcript(s, "s1").Messages[0]
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
	{"part/gaps", "A message of which a part before another is missing is marked incomplete until the part arrives, " +
		"whoever described it.", func(h *harness) {
		at := func(message string, index int64) store.Batch {
			return parts(textPart("s1", message, fmt.Sprintf("%s-%d", message, index), index, 1, "x"))
		}
		annotated := user("s1", "u1", 1)
		annotated.Messages[0].Metadata = []byte(`{"z":1,"agenttrace":{"b":2,"a":1}}`)
		story := []store.Batch{assistant("s1", "m1", 2, 7), at("m1", 2), annotated, at("u1", 2)}
		h.story(story, func(s Store) {
			for _, m := range h.transcript(s, "s1").Messages {
				if !strings.Contains(m.Message.MetadataJSON, `"incomplete":true`) {
					h.Errorf("%s: %s", m.Message.ID, m.Message.MetadataJSON)
				}
			}
			h.rollup(s, 7)
		})
		h.story(append(story, at("m1", 1), at("u1", 1)), func(s Store) {
			t := h.transcript(s, "s1")
			h.equal("of a span", metadata(h, s, "s1", "m1").Trace.Incomplete, false)
			h.equal("annotated", h.message(t, "u1").Message.MetadataJSON, `{"agenttrace":{"a":1,"b":2},"z":1}`)
		})
	}},
	{"part/of-another-message", "A part whose id belongs to another message is refused and counted; the rest of its " +
		"batch is stored.", with(func(h *harness, s Store) {
		h.apply(s, parts(textPart("s1", "m1", "p1", 0, 1, "mine")))
		r := h.apply(s, parts(textPart("s1", "m2", "p1", 0, 1, "not mine"), textPart("s1", "m2", "p2", 1, 1, "also")))
		h.equal("refused", r.Refused, int64(1))
		t := h.transcript(s, "s1")
		h.equal("the first", layout(h.message(t, "m1")), []string{"0:p1"})
		h.equal("the second", layout(h.message(t, "m2")), []string{"1:p2"})
	})},
}
