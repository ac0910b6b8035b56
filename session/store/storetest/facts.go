package storetest

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// link makes a batch of one link, with what it needs around it.
func link(l store.SpanRef) store.Batch { return store.Batch{SpanRefs: []store.SpanRef{l}} }

func metadata(h *harness, s Store, sessionID, messageID string) session.MessageMetadata {
	h.Helper()
	var m session.MessageMetadata
	if err := json.Unmarshal([]byte(h.message(h.transcript(s, sessionID), messageID).Message.MetadataJSON),
		&m); err != nil {
		h.Fatal(err)
	}
	return m
}

var factCases = []testCase{
	{"facts/once", "What a span counted is counted once, however often the span is delivered.",
		story([]store.Batch{assistant("s1", "m1", 1, 7), assistant("s1", "m2", 10, 5)}, func(h *harness, s Store) {
			row := h.transcript(s, "s1").Session
			h.equal("rollup", []int64{row.PromptTokens, row.TotalTokens}, []int64{12, 12})
		})},
	{"facts/continued-turn", "Two spans of one message, such as those of a turn that waited for a human, add up: " +
		"counts and durations are summed, anything else is as the later one reports it.", func(h *harness) {
		one, two := int64(100), int64(50)
		h.story([]store.Batch{
			link(turn("s1", "m1", "b", 50, store.TurnStats{Usage: &session.Usage{Input: 3, Output: 1},
				Trace: session.MessageTrace{
					EndReason: "finish", DurationMS: &two, ModelCalls: 1}, Model: &session.Model{ModelID: "second"}})),
			link(turn("s1", "m1", "a", 1, store.TurnStats{Usage: &session.Usage{Input: 4, CacheRead: 2}, Agent: "coder",
				Trace: session.MessageTrace{
					EndReason: "finish", DurationMS: &one, ModelCalls: 2, PendingApproval: true},
				Model: &session.Model{ModelID: "first"}})),
		}, func(s Store) {
			sum := int64(150)
			h.equal("metadata", metadata(h, s, "s1", "m1"), session.MessageMetadata{
				Model: &session.Model{ModelID: "second"}, Agent: "coder",
				Usage: &session.Usage{Input: 7, Output: 1, CacheRead: 2},
				Trace: session.MessageTrace{EndReason: "finish", ModelCalls: 3, DurationMS: &sum},
			})
			h.equal("rollup", h.transcript(s, "s1").Session.TotalTokens, int64(10))
		})
	}},
	{"facts/steps", "Model calls describe the message only until a span that describes all of it is known; until " +
		"then it is marked incomplete.", func(h *harness) {
		step := func(span string, at, input int64) store.Batch {
			return link(turn("s1", "m1", span, at, store.TurnStats{Step: true, Usage: &session.Usage{Input: input},
				Trace: session.MessageTrace{ModelCalls: 1}}))
		}
		h.story([]store.Batch{step("a", 1, 5), step("b", 2, 6)}, func(s Store) {
			m := metadata(h, s, "s1", "m1")
			h.equal("steps", []any{m.Usage.Input, m.Trace.ModelCalls, m.Trace.Incomplete},
				[]any{int64(11), int64(2), true})
		})
		h.story([]store.Batch{step("a", 1, 5), step("b", 2, 6),
			link(turn("s1", "m1", "t", 1, store.TurnStats{Usage: &session.Usage{Input: 10}}))}, func(s Store) {
			m := metadata(h, s, "s1", "m1")
			h.equal("whole", []any{m.Usage.Input, m.Trace.Incomplete}, []any{int64(10), false})
			h.equal("rollup", h.transcript(s, "s1").Session.TotalTokens, int64(10))
		})
	}},
	{"facts/two-versions", "Of two versions of one span only the one that ended later counts, in one batch too; it " +
		"is not added to the other.", func(h *harness) {
		version := func(start, end, input int64) store.Batch {
			l := turn("s1", "m1", "a", start, store.TurnStats{Usage: &session.Usage{Input: input}})
			l.EndNano = nano(end)
			return link(l)
		}
		h.story([]store.Batch{version(1, 10, 5), version(9, 20, 7),
			link(turn("s1", "m1", "b", 5, store.TurnStats{Usage: &session.Usage{Input: 100}}))}, func(s Store) {
			h.equal("input", metadata(h, s, "s1", "m1").Usage.Input, int64(107))
			h.equal("rollup", h.transcript(s, "s1").Session.TotalTokens, int64(107))
		})
	}},
	{"facts/moved", "When the version of a span that counts names another message than one before it, the first " +
		"message keeps nothing of what the span counted.", func(h *harness) {
		version := func(message string, end, input int64) store.Batch {
			l := turn("s1", message, "a", 1, store.TurnStats{Usage: &session.Usage{Input: input}})
			l.EndNano = nano(end)
			b := link(l)
			b.Messages = []store.MessageChange{{ID: message, SessionID: "s1", Role: "assistant", CreatedAt: epoch + 1,
				UpdatedAt: epoch + 1, Rank: store.RankFinal}}
			return b
		}
		h.story([]store.Batch{version("m1", 10, 5), version("m2", 20, 7)}, func(s Store) {
			h.equal("rollup", h.transcript(s, "s1").Session.TotalTokens, int64(7))
			h.equal("the first", metadata(h, s, "s1", "m1").Usage, (*session.Usage)(nil))
		})
	}},
	{"facts/cost", "Stated costs add up to the same sum in any order, and hidden messages cost too.", func(h *harness) {
		var all []store.Batch
		for i := range 10 {
			cost := 0.1 * float64(i%3+1)
			id := fmt.Sprintf("m%d", i)
			b := assistant("s1", id, int64(i), 1)
			b.SpanRefs[0].TurnStats.Trace.CostUSD = &cost
			all = append(all, b)
		}
		all = append(all, user("s1", "m3u", 2), rewind("m3u", 100, false))
		h.story(all, func(s Store) {
			h.equal("cost", h.transcript(s, "s1").Session.CostUSD, 1.9)
		})
	}},
	{"facts/extra", "Annotations of an assistant message are merged, and never stand above what was measured.",
		func(h *harness) {
			extra := func(span string, at int64, key, value string) store.Batch {
				return link(turn("s1", "m1", span, at, store.TurnStats{Usage: &session.Usage{Input: 1},
					Extra: map[string]json.RawMessage{
						key: json.RawMessage(value), "usage": json.RawMessage(`"mine"`)}}))
			}
			h.story([]store.Batch{extra("a", 1, "k", `"<1>"`), extra("b", 2, "k", `2`), extra("c", 3, "l", `{"x":1}`)},
				func(s Store) {
					h.equal("metadata", h.transcript(s, "s1").Messages[0].Message.MetadataJSON,
						`{"usage":{"input":3,"output":0,"reasoning":0,"cache_read":0,"cache_write":0},`+
							`"k":2,"l":{"x":1}}`)
				})
		}},
	{"facts/decisions", "A decision that was settled takes precedence over one that was pending, then the later one " +
		"does. Decisions are in order of time.", func(h *harness) {
		decision := func(id string, at int64, outcome string) store.Batch {
			return store.Batch{Decisions: []store.Decision{{ID: id, SessionID: "s1", ToolID: "bash", Action: "ask",
				Outcome: outcome, DecidedAt: epoch + at}}}
		}
		h.story([]store.Batch{decision("d2", 1, "denied"), decision("d1", 9, "pending"), decision("d1", 5, "allowed"),
			ofSession("s1", 1, store.SessionChange{})}, func(s Store) {
			got, err := s.Decisions(context.Background(), "s1")
			h.check(err)
			h.equal("decisions", got, []store.Decision{
				{ID: "d2", SessionID: "s1", ToolID: "bash", Action: "ask", Outcome: "denied", DecidedAt: epoch + 1},
				{ID: "d1", SessionID: "s1", ToolID: "bash", Action: "ask", Outcome: "allowed", DecidedAt: epoch + 5},
			})
		})
	}},
	{"facts/blobs", "A text is kept by its digest. One that is whole replaces one that arrived damaged, and never " +
		"the other way round.", func(h *harness) {
		blob := func(body string, exact bool) store.Batch {
			return store.Batch{Blobs: []store.Blob{{Kind: store.BlobSystemPrompt, Digest: "d", Body: body,
				Exact: exact}}}
		}
		h.story([]store.Batch{blob("zz cut", false), blob("whole", true), blob("zzz cut too", false)}, func(s Store) {
			got, err := s.Blob(context.Background(), store.BlobSystemPrompt, "d")
			h.equal("blob", []any{got, err},
				[]any{store.Blob{Kind: store.BlobSystemPrompt, Digest: "d", Body: "whole", Exact: true}, nil})
		})
	}},
}
