package storetest

import (
	"fmt"
	"math/rand/v2"

	"github.com/agenttrace/agenttrace/session/store"
)

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
