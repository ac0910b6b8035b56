package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
)

const day = 24 * 60 * 60 * 1000 // in milliseconds

var ownerCases = []testCase{
	{"owner/later", "A trace whose session becomes known later moves there with all its rows, and the session that " +
		"it was in the meantime disappears; so does the way from the trace to it.", func(h *harness) {
		const trace = "0123456789abcdef0123456789abcdef"
		h.story([]store.Batch{
			observed(trace, "t0", 0, 50, script{Input: 3}, opens),
			observed(trace, "s0", 10, 20, script{Outcome: "allowed"}),
			observed(trace, "key", 60, 60, script{Silent: true}, of("s1", 0)),
		}, func(s Store) {
			h.holds(s, "s1 3: 0123456789abcdef0123456789abcdef/t0, 0123456789abcdef0123456789abcdef/s0")
			h.equal("of the trace", h.resolve(s, trace), "s1")
			if _, err := s.Session(h.Context(), "own-"+trace); !errors.Is(err, store.ErrNotFound) {
				h.Errorf("the trace's own session: %v, want ErrNotFound", err)
			}
		})
	}},
	{"owner/without-key", "A trace in which nothing names a session is one of its own.",
		story([]store.Batch{observed("a", "t0", 0, 50, script{}, opens), observed("b", "t0", 60, 70, script{}, opens)},
			sessions("own-a 0: a/t0", "own-b 0: b/t0"))},
	{"owner/better-key", "The best key of a trace's observations names the session of all of them; of equals the one " +
		"that begins first, then the lesser name. Nothing is left of where it was before.", func(h *harness) {
		const trace = "0123456789abcdef0123456789abcdef"
		h.story([]store.Batch{
			observed(trace, "t0", 5, 50, script{Title: "the title"}, opens, of("thread", 7)),
			observed(trace, "s0", 10, 20, script{}, of("later", 2)),
			observed(trace, "s1", 8, 20, script{}, of("s2", 2)),
			observed(trace, "s2", 8, 21, script{}, of("s1", 2)),
			observed("b", "t0", 100, 150, script{}, opens, of("thread", 7)),
		}, func(s Store) {
			h.equal("sessions", h.ids(s), []string{"s1", "thread"})
			h.equal("of the trace", h.resolve(s, trace), "s1")
			h.equal("titles", []string{h.transcript(s, "s1").Session.Title, h.transcript(s, "thread").Session.Title},
				[]string{"the title", "New Chat"})
		})
	}},
	{"owner/same-message", "A message whose id does not depend on its session moves with its trace.",
		story([]store.Batch{
			observed("a", "t0", 0, 50, script{Message: "m1", Input: 3}, opens),
			observed("a", "key", 60, 60, script{Silent: true}, of("s1", 0)),
		}, func(h *harness, s Store) {
			h.equal("messages", visible(h.transcript(s, "s1")), []string{"m1"})
			h.equal("tokens", h.transcript(s, "s1").Session.TotalTokens, int64(3))
		})},
	{"owner/orphan", "A trace with a tool call that has no parent is built where the model requested the call last " +
		"before: by then, within a day. A key of its own counts more.", story([]store.Batch{
		observed("a", "t0", 0, 50, script{}, opens, asks("call_1"), of("s1", 0)),
		observed("b", "t0", 100, 150, script{}, opens, asks("call_1"), of("s2", 0)),
		observed("x1", "c", 60, 70, script{}, orphan("call_1")),
		observed("x2", "c", 100, 170, script{}, orphan("call_1")),
		observed("x3", "c", 160, 171, script{}, orphan("call_1"), of("s3", 9)),
		observed("x4", "c", 100+day, 110+day, script{}, orphan("call_1")),
	}, sessions("own-x4 0: x4/c", "s1 0: a/t0, x1/c", "s2 0: b/t0, x2/c", "s3 0: x3/c"))},
	{"owner/orphan-before", "What the model asked for only after the call had begun is another call.",
		story([]store.Batch{
			observed("a", "t0", 10, 50, script{}, opens, asks("call_1"), of("s1", 0)),
			observed("x", "c", 9, 70, script{}, orphan("call_1")),
		}, sessions("own-x 0: x/c", "s1 0: a/t0"))},
	{"owner/orphan-is-requester", "A trace is not its own requester: one that requests the call itself, in the " +
		"meantime or before, is built where another requested it.", story([]store.Batch{
		observed("a", "t0", 0, 50, script{}, opens, asks("call_1"), of("s1", 0)),
		observed("x", "m", 55, 56, script{}, asks("call_1")),
		observed("x", "c", 60, 70, script{}, orphan("call_1")),
	}, sessions("s1 0: a/t0, x/m, x/c"))},
	{"owner/orphan-chain", "What an orphaned tool call requests in turn follows it, over any number of traces, " +
		"whichever is known first.", func(h *harness) {
		var all []store.Batch
		for i := range 6 {
			b := observed(fmt.Sprint("x", i), "c", int64(10*i), int64(10*i+100), script{},
				orphan(fmt.Sprint("call_", i)), asks(fmt.Sprint("call_", i+1)))
			all = append(all, b)
		}
		all = append(all, observed("a", "t0", 0, 5, script{}, opens, asks("call_0")),
			observed("a", "key", 7, 7, script{Silent: true}, of("s1", 0)))
		h.story(all, func(s Store) { h.holds(s, "s1 0: a/t0, x0/c, x1/c, x2/c, x3/c, x4/c, x5/c") })
	}},
	{"owner/orphan-circle", "Traces each of which requested a call of the next are built in one session, that of the " +
		"least of them.", story([]store.Batch{
		observed("x1", "c", 10, 20, script{}, orphan("call_1"), asks("call_2")),
		observed("x1", "m", 1, 2, script{}, asks("call_2")),
		observed("x2", "c", 10, 20, script{}, orphan("call_2")),
		observed("x2", "m", 1, 2, script{}, asks("call_1")),
		observed("x3", "c", 30, 40, script{}, orphan("call_2")),
	}, sessions("own-x1 0: x1/m, x2/m, x1/c, x2/c, x3/c"))},
	{"owner/orphan-of-a-record", "A record outside of any trace can request a call, too: the call is built where the " +
		"record is.", story([]store.Batch{
		observed("", "r1", 0, 0, script{}, opens, of("s1", 0)),
		observed("", "r2", 1, 1, script{}, asks("call_1"), of("s2", 0)),
		observed("", "r3", 2, 2, script{}, asks("call_1")),
		observed("x", "c", 10, 20, script{}, orphan("call_1")),
	}, sessions("s1 0: /r1", "s2 0: /r2, x/c"))},
	{"owner/record", "A record outside of any trace is built in the session that it names.", story([]store.Batch{
		observed("", "r1", 0, 0, script{}, opens, of("s1", 0)), observed("", "r2", 1, 1, script{}, of("s1", 0)),
		observed("", "r3", 1, 2, script{}, of("s2", 0)),
	}, sessions("s1 0: /r1, /r2", "s2 0: /r3"))},
	{"owner/sdk", "What spans of the SDK report of a trace is not built again, whichever comes first: its " +
		"observations are built only where they name another session. What asked for a stray tool call there is told " +
		"by the SDK as well.", func(h *harness) {
		const trace = "trace-s1"
		h.story([]store.Batch{
			beside(assistant("s1", "m1", 100, 7)),
			observed(trace, "t0", 0, 500, script{Title: "again", Input: 9}, opens, asks("call_1"), of("s1", 0)),
			observed(trace, "s0", 10, 20, script{}),
			observed("x", "c", 30, 40, script{}, orphan("call_1")),
		}, func(s Store) {
			h.equal("sessions", h.ids(s), []string{"s1"})
			row := h.transcript(s, "s1").Session
			h.equal("row", []any{row.Title, row.TotalTokens, row.CreatedAt, row.UpdatedAt},
				[]any{"New Chat", int64(7), int64(epoch + 100), int64(epoch + 105)})
		})
	}},
	{"owner/imported", "A span of another agent that was imported with its session reports nothing: the trace's " +
		"observations are built.", func(h *harness) {
		l := turn("s1", "", "t0", 100, store.TurnStats{})
		l.TurnStats, l.TraceID, l.Dialect = nil, "a", "storetest"
		h.story([]store.Batch{
			beside(link(l)), observed("a", "t0", 100, 150, script{Title: "observed"}, opens, of("s1", 0)),
		}, func(s Store) {
			h.equal("messages", h.textsOf(s, "s1"), []string{"a/t0"})
			h.equal("title", h.transcript(s, "s1").Session.Title, "observed")
		})
	}},
	{"owner/sdk-names-another", "A trace of the SDK's whose observations name another session is built there.",
		story([]store.Batch{
			beside(assistant("s1", "m1", 100, 7)),
			observed("trace-s1", "t0", 0, 50, script{Input: 9}, opens, of("s2", 0)),
			observed("b", "t0", 200, 250, script{Input: 2}, opens, of("s1", 0)),
		}, sessions("s1 9: answer m1, b/t0", "s2 9: trace-s1/t0"))},
	{"owner/sdk-row-only", "A session that the SDK speaks of in passing stays when all its observations leave.",
		func(h *harness) {
			l := turn("s1", "", "run", 10, store.TurnStats{})
			l.TurnStats, l.TraceID, l.Kind = nil, "a", "session.run"
			h.story([]store.Batch{
				observed("a", "t0", 0, 50, script{Title: "observed"}, opens, of("s1", 0)), beside(link(l)),
				ofSession("s1", 12, store.SessionChange{Agent: reported(12, "coder")}),
			}, func(s Store) {
				row := h.transcript(s, "s1").Session
				h.equal("row", []any{row.Title, row.Agent, row.CreatedAt, row.UpdatedAt},
					[]any{"New Chat", "coder", int64(epoch + 10), int64(epoch + 15)})
			})
		}},
	{"owner/anything", "Whatever observations report of sessions, calls and each other, in whatever versions, beside " +
		"whatever spans of the SDK: the rows depend on nothing but what was reported.", func(h *harness) {
		worlds := testscale.Rounds(6, 25)
		var all []store.Batch
		for world := range worlds {
			all = append(all, anything(rand.New(rand.NewPCG(uint64(world), 5)), fmt.Sprint("w", world, "-"))...)
		}
		h.story(all, func(Store) {})
	}},
}

// anything is a few batches of a world of its own, whose ids begin with its name. All versions of an observation name
// one session, or none: it stays with the first that does.
func anything(r *rand.Rand, world string) []store.Batch {
	some := func(odds int, prefix string) string {
		if r.IntN(odds) > 0 {
			return ""
		}
		return fmt.Sprint(world, prefix, r.IntN(3))
	}
	var all []store.Batch
	named := make(map[store.ObservationKey]string)
	for range 4 + r.IntN(8) {
		if r.IntN(8) == 0 {
			l := turn(some(1, "s"), "", some(1, "span"), int64(r.IntN(40)), store.TurnStats{})
			l.TurnStats, l.TraceID, l.Kind = nil, some(1, "t"), "session.run"
			all = append(all, beside(link(l)))
			continue
		}
		from := int64(1 + r.IntN(40))
		s := script{
			Silent: r.IntN(8) == 0, In: some(8, "child"), Input: int64(r.IntN(2) << r.IntN(10)),
			Title: some(3, "title"), Agent: some(4, "agent"),
			Model: some(4, "model"), UserID: some(4, "user"),
		}
		if r.IntN(8) == 0 {
			s.Outcome = "allowed"
		}
		b := observed(some(1, "t"), fmt.Sprint("o", r.IntN(6)), from, from+int64(r.IntN(4)*r.IntN(8)), s)
		o := &b.Observations[0]
		if r.IntN(10) == 0 {
			o.TraceID, o.Source, o.Own = "", world+o.Source, ""
		}
		key := store.ObservationKey{TraceID: o.TraceID, Source: o.Source}
		if _, again := named[key]; !again {
			named[key] = some(4, "s")
		}
		o.Session, o.Rank, o.Opens, o.Call = named[key], r.IntN(2), r.IntN(3) == 0, some(5, "call")
		for range r.IntN(3) {
			if call := some(2, "call"); call != "" && (len(o.Calls) == 0 || o.Calls[0] != call) {
				o.Calls = append(o.Calls, call)
			}
		}
		all = append(all, b)
	}
	return all
}
