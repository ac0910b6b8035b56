package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/go-cmp/cmp"

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
	{"read/sessions", "Sessions come newest first, by (updated_at, id); sub-agents' and archived ones only when " +
		"asked for, forks and those whose parent is not there always; a cursor continues where it points.",
		with(func(h *harness, s Store) {
			for i, id := range []string{"a", "b", "c", "d", "e"} {
				h.apply(s, ofSession(id, int64(10*(i/2)), store.SessionChange{
					Agent: reported(1, "agent-"+string(id[0]%2+'0'))}))
			}
			h.apply(s, ofSession("child", 90, store.SessionChange{ParentID: reported(1, "a")}))
			h.apply(s, ofSession("orphan", -30, store.SessionChange{ParentID: reported(1, "gone")}))
			h.apply(s, fork("fork", "a", "m", -20))
			h.apply(s, ofSession("old", 95, store.SessionChange{Archived: reported(96, "1")}))
			for _, c := range []struct {
				name string
				q    store.SessionQuery
				want []string
			}{
				{"zero value", store.SessionQuery{}, []string{"e", "d", "c", "b", "a", "fork", "orphan"}},
				{"limit", store.SessionQuery{Limit: 2}, []string{"e", "d"}},
				{"cursor", store.SessionQuery{Before: &store.Cursor{UpdatedAt: epoch + 10, ID: "d"}},
					[]string{"c", "b", "a", "fork", "orphan"}},
				{"used up", store.SessionQuery{Before: &store.Cursor{UpdatedAt: epoch, ID: "a"}},
					[]string{"fork", "orphan"}},
				{"of no session", store.SessionQuery{Before: &store.Cursor{UpdatedAt: 1, ID: "zzz"}}, []string{}},
				{"children too", store.SessionQuery{Children: true, Limit: 2}, []string{"child", "e"}},
				{"children of", store.SessionQuery{ParentID: "a"}, []string{"child", "fork"}},
				{"archived too", store.SessionQuery{Archived: true, Limit: 2}, []string{"old", "e"}},
				{"all", everything, []string{"old", "child", "e", "d", "c", "b", "a", "fork", "orphan"}},
				{"agent", store.SessionQuery{SessionFilter: store.SessionFilter{Agent: "agent-0"}}, []string{"d", "b"}},
				{"agent and cursor", store.SessionQuery{SessionFilter: store.SessionFilter{Agent: "agent-1"},
					Before: &store.Cursor{UpdatedAt: epoch + 20, ID: "e"}}, []string{"c", "a"}},
				{"unknown agent", store.SessionQuery{SessionFilter: store.SessionFilter{Agent: "x"}}, []string{}},
			} {
				h.equal(c.name, ids(h.sessions(s, c.q)), c.want)
			}
			var paged []string
			var before *store.Cursor
			for {
				page := h.sessions(s, store.SessionQuery{Limit: 2, Before: before})
				if len(page) == 0 {
					break
				}
				paged = append(paged, ids(page)...)
				last := page[len(page)-1]
				before = &store.Cursor{UpdatedAt: last.UpdatedAt, ID: last.ID}
			}
			h.equal("paged", paged, []string{"e", "d", "c", "b", "a", "fork", "orphan"})
			for range s.Sessions(context.Background(), everything) {
				break // leaving early is no error
			}
		})},
	{"read/default-limit", "Without a limit a listing ends after 50 sessions.", with(func(h *harness, s Store) {
		var b store.Batch
		for i := range 60 {
			one := ofSession(fmt.Sprintf("s%02d", i), int64(i), store.SessionChange{})
			b.Sessions = append(b.Sessions, one.Sessions...)
		}
		h.apply(s, b)
		h.equal("sessions", len(h.sessions(s, store.SessionQuery{})), 50)
		h.equal("all", len(h.sessions(s, store.SessionQuery{Limit: -1})), 60)
	})},
	{"read/resolve", "A name is a session's id, a prefix that only one has, with or without ses_, the id of a trace " +
		"or a prefix of 8 digits that only one has, or \"last\". An id comes before a prefix of another, and a session " +
		"before its sub-agents.",
		func(h *harness) {
			h.with(func(s Store) {
				session := func(id, trace string, at int64, c store.SessionChange) {
					b := ofSession(id, at, c)
					b.SpanRefs = []store.SpanRef{{TraceID: trace, SpanID: "1", SessionID: id, Kind: "session.run",
						Dialect: "storetest", StartNano: nano(at), EndNano: nano(at)}}
					h.apply(s, b)
				}
				const trace1, trace2, trace3 = "abcdef0123456789abcdef0123456789", "abcdef0199999999abcdef0123456789",
					"12345678aaaaaaaaaaaaaaaaaaaaaaaa"
				session("ses_a1", trace1, 1, store.SessionChange{})
				session("ses_a12", trace2, 2, store.SessionChange{})
				session("ses_b", trace3, 3, store.SessionChange{})
				session("ses_child", trace3, 4, store.SessionChange{ParentID: reported(1, "ses_b")})
				session("ses_b", "12345678bbbbbbbbbbbbbbbbbbbbbbbb", 5, store.SessionChange{})
				session("11-22", "77777777aaaaaaaaaaaaaaaaaaaaaaaa", 1, store.SessionChange{})
				session("11-22-a", "77777777bbbbbbbbbbbbbbbbbbbbbbbb", 1,
					store.SessionChange{ParentID: reported(1, "11-22")})
				session("11-22-b", "77777777cccccccccccccccccccccccc", 1,
					store.SessionChange{ParentID: reported(1, "11-22-a")})
				session("11-33", "77777777dddddddddddddddddddddddd", 1, store.SessionChange{})
				session("ses_old", "99999999aaaaaaaaaaaaaaaaaaaaaaaa", 9,
					store.SessionChange{Archived: reported(9, "1")})
				for _, c := range []struct {
					name, want string
					err        error
				}{
					{"ses_a1", "ses_a1", nil},
					{"ses_a12", "ses_a12", nil},
					{"ses_b", "ses_b", nil},
					{"b", "ses_b", nil},
					{"11-2", "11-22", nil}, // the others are its sub-agents
					{"11-22-", "11-22-a", nil},
					{"11-22-b", "11-22-b", nil},
					{"11", "", store.ErrAmbiguous},
					{"ses_c", "ses_child", nil},
					{"a", "", store.ErrAmbiguous},
					{"ses_a", "", store.ErrAmbiguous},
					{"a12", "ses_a12", nil},
					{trace1, "ses_a1", nil},
					{"ABCDEF0123", "ses_a1", nil},
					{"abcdef01", "", store.ErrAmbiguous},
					{"12345678aaaa", "ses_b", nil},
					{"12345678", "ses_b", nil}, // two traces of one session
					{"1234567", "", store.ErrNotFound},
					{"99999999", "ses_old", nil},
					{"last", "ses_b", nil},
					{"zzz", "", store.ErrNotFound},
					{"", "", store.ErrNotFound},
					{"%", "", store.ErrNotFound},
					{"ses\xff", "", store.ErrNotFound},
					{"ses\x00", "", store.ErrNotFound},
				} {
					got, err := s.Resolve(context.Background(), c.name)
					if got != c.want || !errors.Is(err, c.err) {
						h.Errorf("Resolve(%q) = %q, %v; want %q, %v", c.name, got, err, c.want, c.err)
					}
				}
			})
			h.with(func(s Store) {
				if _, err := s.Resolve(context.Background(), "last"); !errors.Is(err, store.ErrNotFound) {
					h.Errorf("last of an empty store: %v", err)
				}
			})
		}},
	{"read/unknown", "What is not there is ErrNotFound where one thing is asked for, and nothing where many are.",
		with(func(h *harness, s Store) {
			ctx := context.Background()
			if _, err := s.Session(ctx, "x"); !errors.Is(err, store.ErrNotFound) {
				h.Errorf("Session: %v", err)
			}
			if _, err := s.Transcript(ctx, "x"); !errors.Is(err, store.ErrNotFound) {
				h.Errorf("Transcript: %v", err)
			}
			if _, err := s.Blob(ctx, store.BlobToolCatalog, "x"); !errors.Is(err, store.ErrNotFound) {
				h.Errorf("Blob: %v", err)
			}
			if d, err := s.Decisions(ctx, "x"); err != nil || len(d) != 0 {
				h.Errorf("Decisions: %v, %v", d, err)
			}
			if l, err := s.SpanRefs(ctx, "x"); err != nil || len(l) != 0 {
				h.Errorf("Links: %v, %v", l, err)
			}
		})},
	{"read/links", "The spans of a session come in order of their start, as they were reported.", func(h *harness) {
		duration := int64(5)
		a := store.SpanRef{TraceID: "t2", SpanID: "2", ParentSpanID: "1", SessionID: "s1", MessageID: "m1",
			Kind: "session.turn", Dialect: "d", StartNano: nano(5), EndNano: nano(9), Error: true,
			TurnStats: &store.TurnStats{Trace: session.MessageTrace{DurationMS: &duration}}}
		b := store.SpanRef{TraceID: "t1", SpanID: "1", SessionID: "s1", Kind: "session.run", Dialect: "d",
			StartNano: nano(1), EndNano: nano(9)}
		h.story([]store.Batch{link(a), link(b)}, func(s Store) {
			got, err := s.SpanRefs(context.Background(), "s1")
			if d := cmp.Diff([]store.SpanRef{b, a}, got); d != "" || err != nil {
				h.Errorf("%v (-want +got):\n%s", err, d)
			}
		})
	}},
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
		h.rollup(s, writers*each)
	})},
	{"write/canceled", "A caller whose context has ended gets its error; what is stored is all of a batch or none of " +
		"it.", with(func(h *harness, s Store) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		b := assistant("s1", "m1", 1, 1)
		if _, err := s.Apply(ctx, &b); err != nil && !errors.Is(err, context.Canceled) {
			h.Errorf("apply: %v", err)
		} else if err != nil {
			h.equal("sessions", len(h.sessions(s, everything)), 0)
		}
	})},
}
