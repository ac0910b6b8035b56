package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

func ids(sessions []session.Session) []string {
	all := []string{}
	for _, s := range sessions {
		all = append(all, s.ID)
	}
	return all
}

var readCases = []testCase{
	{"read/left", "Who leaves a list or a search, and cancels it at the same time, is not called again.",
		with(func(h *harness, s Store) {
			for _, id := range []string{"a", "b", "c"} {
				h.apply(s, ofSession(id, 1, store.SessionChange{Title: reported(1, "titled")}))
			}
			ctx, cancel := context.WithCancel(h.Context())
			for range s.Sessions(ctx, store.SessionQuery{}) {
				cancel()
				break
			}
			ctx, cancel = context.WithCancel(h.Context())
			for range s.Search(ctx, store.SearchQuery{Text: "titled"}) {
				cancel()
				break
			}
			cancel()
		})},
	{"read/default-limit", "Without a limit a listing ends after 50 sessions.", with(func(h *harness, s Store) {
		var b store.Batch
		for i := range 60 {
			one := ofSession(fmt.Sprintf("s%02d", i), int64(i), store.SessionChange{})
			b.Sessions = append(b.Sessions, one.Sessions...)
		}
		h.apply(s, b)
		h.equal("sessions", len(List(h, s, store.SessionQuery{})), 50)
		h.equal("all", len(List(h, s, store.SessionQuery{Limit: -1})), 60)
	})},
	{"write/concurrent", "Concurrent writers and readers share a store: every change that was acknowledged is there, " +
		"and a transcript is one state of its session.", with(func(h *harness, s Store) {
		const writers, each = 8, 12
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					b := assistant("s1", fmt.Sprintf("m%d-%d", w, i), int64(w*1000+i), 1)
					if _, err := s.Apply(context.Background(), &b); err != nil {
						h.Errorf("apply: %v", err)
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		for running := true; running; {
			select {
			case <-done:
				running = false
			default:
			}
			t, err := s.Transcript(context.Background(), "s1")
			if errors.Is(err, store.ErrNotFound) && running {
				continue
			}
			h.check(err)
			if t.Session.TotalTokens != int64(len(t.Messages)) {
				h.Fatalf("%d messages with %d tokens", len(t.Messages), t.Session.TotalTokens)
			}
		}
		h.equal("rollup", Transcript(h, s, "s1").Session.TotalTokens, int64(writers*each))
	})},
	{"write/canceled", "A caller whose context has ended gets its error; what is stored is all of a batch or none of " +
		"it.", with(func(h *harness, s Store) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		b := assistant("s1", "m1", 1, 1)
		if _, err := s.Apply(ctx, &b); err != nil && !errors.Is(err, context.Canceled) {
			h.Errorf("apply: %v", err)
		} else if err != nil {
			h.equal("sessions", len(List(h, s, everything)), 0)
		}
	})},
}
