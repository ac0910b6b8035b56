package storetest

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// filterStore fills a store with sessions that differ in what filters look at.
func (h *harness) filterStore(s Store) {
	h.Helper()
	h.apply(s, ofSession("a", 10, store.SessionChange{
		Agent: reported(10, "coder"), Title: reported(10, "Fix é"), WorkspaceRoot: reported(10, "/src/one"),
		Model: reported(10, `{"provider_id":"openai","model_id":"gpt-5"}`), WorkspaceID: reported(10, "ws-1"),
		Metadata: map[string]store.Value{"user_id": *reported(10, `"ann"`)}}))
	h.apply(s, ofSession("b", 20, store.SessionChange{
		Agent: reported(20, "coder"), Title: reported(20, "Ask"), WorkspaceRoot: reported(20, "/src/two"),
		Model:    reported(20, `{"provider_id":"openrouter","model_id":"anthropic/claude"}`),
		Metadata: map[string]store.Value{"agenttrace": *reported(20, `{"outcome":"error"}`)}}))
	h.apply(s, ofSession("c", 30, store.SessionChange{Agent: reported(30, "writer"), Title: reported(30, "Zebra")}))
	h.apply(s, ofSession("kid", 15, store.SessionChange{
		Agent: reported(15, "helper"), Title: reported(15, "Sub"), ParentID: reported(15, "a")}))
	usedModel := assistant("c", "c1", 31, 7)
	usedModel.SpanRefs[0].TurnStats.Model = &session.Model{ProviderID: "google", ModelID: "gemini"}
	h.apply(s, usedModel)
	h.apply(s, user("b", "b1", 21))
	calls := assistant("a", "a1", 11, 3)
	calls.Parts = append(calls.Parts,
		toolPart("a", "a1", "p1", 1, 12, store.RankFinal, session.StateOutputError, "errorText", "broken"))
	h.apply(s, calls)
	denied := assistant("c", "c2", 33, 2)
	denied.Parts = append(denied.Parts,
		toolPart("c", "c2", "p2", 1, 34, store.RankFinal, session.StateOutputError, "errorText", "no", "toolMetadata",
			map[string]any{"agenttrace": map[string]any{"denied": true}}),
		store.PartChange{ID: "p3", MessageID: "c2", SessionID: "c", Index: 2, Type: "data-loop-warning",
			Data:      object("type", "data-loop-warning", "data", map[string]any{"pattern": "x"}),
			CreatedAt: epoch + 34, UpdatedAt: epoch + 34, Rank: store.RankFinal})
	h.apply(s, denied)
	note := func(id, kind, name string, value float64, message string) store.Annotation {
		n := store.Annotation{SessionID: id, Kind: kind, Name: name, Value: value, MessageID: message, CreatedAt: 1,
			UpdatedAt: 1}
		n.Identify()
		return n
	}
	undone := note("b", "tag", "good", 0, "")
	undone.DeletedAt = new(int64(1))
	h.apply(s, annotated(note("a", "tag", "good", 0, ""), note("c", "tag", "good", 0, "c1"),
		note("c", "tag", "é?'%_", 0, ""),
		undone, note("a", "score", "quality", 0.5, ""), note("c", "score", "quality", 0.9, "c2"),
		note("c", "score", "cost", -1, "")))
}

var filterCases = []testCase{
	{"filters/sessions", "Each filter selects the sessions that match, all of several must, in every order and with " +
		"a cursor.", with(func(h *harness, s Store) {
		h.filterStore(s)
		at := func(ms int64) time.Time { return time.UnixMilli(epoch + ms) }
		score := func(text string) store.SessionFilter {
			f, err := store.ParseScoreFilter(text)
			h.check(err)
			return store.SessionFilter{Scores: []store.ScoreFilter{f}}
		}
		for name, c := range map[string]struct {
			f    store.SessionFilter
			want []string
		}{
			"none":                      {store.SessionFilter{}, []string{"c", "b", "a", "kid"}},
			"project, and of a parent":  {store.SessionFilter{Project: "/src/one"}, []string{"a", "kid"}},
			"project by its id":         {store.SessionFilter{Project: "ws-1"}, []string{"a", "kid"}},
			"unknown project":           {store.SessionFilter{Project: "/src"}, []string{}},
			"agent":                     {store.SessionFilter{Agent: "coder"}, []string{"b", "a"}},
			"model of the session":      {store.SessionFilter{Model: "gpt-5"}, []string{"a"}},
			"model with its provider":   {store.SessionFilter{Model: "openai/gpt-5"}, []string{"a"}},
			"model of a message":        {store.SessionFilter{Model: "gemini"}, []string{"c"}},
			"provider and model of one": {store.SessionFilter{Model: "google/gemini"}, []string{"c"}},
			"model with a slash":        {store.SessionFilter{Model: "anthropic/claude"}, []string{"b"}},
			"another's provider":        {store.SessionFilter{Model: "google/gpt-5"}, []string{}},
			"provider":                  {store.SessionFilter{Provider: "google"}, []string{"c"}},
			"provider of the session":   {store.SessionFilter{Provider: "openrouter"}, []string{"b"}},
			"user":                      {store.SessionFilter{User: "ann"}, []string{"a"}},
			"tag":                       {store.SessionFilter{Tags: []string{"good"}}, []string{"c", "a"}},
			"two tags":                  {store.SessionFilter{Tags: []string{"good", "é?'%_"}}, []string{"c"}},
			"unknown tag":               {store.SessionFilter{Tags: []string{"goo"}}, []string{}},
			"score":                     {score("quality"), []string{"c", "a"}},
			"score at least":            {score("quality>=0.5"), []string{"c", "a"}},
			"score above":               {score("quality > 0.5"), []string{"c"}},
			"score below":               {score("cost<0"), []string{"c"}},
			"score other than":          {score("quality!=0.9"), []string{"a"}},
			"score that is":             {score("quality=0.9"), []string{"c"}},
			"tool":                      {store.SessionFilter{Tool: "bash"}, []string{"c", "a"}},
			"unknown tool":              {store.SessionFilter{Tool: "bas"}, []string{}},
			"errors":                    {store.SessionFilter{Errors: true}, []string{"b", "a"}},
			"denials":                   {store.SessionFilter{Denials: true}, []string{"c"}},
			"loops":                     {store.SessionFilter{Loops: true}, []string{"c"}},
			"text of a title":           {store.SessionFilter{Text: "fix É"}, []string{"a"}},
			"text of a message":         {store.SessionFilter{Text: "QUESTION b1"}, []string{"b"}},
			"no text":                   {store.SessionFilter{Text: "nowhere"}, []string{}},
			"since":                     {store.SessionFilter{Since: at(21)}, []string{"c", "b"}},
			"until":                     {store.SessionFilter{Until: at(20)}, []string{"a", "kid"}},
			"since and until":           {store.SessionFilter{Since: at(16), Until: at(30)}, []string{"b", "a"}},
			"ids":                       {store.SessionFilter{IDs: []string{"b", "kid", "x"}}, []string{"b", "kid"}},
			"no ids":                    {store.SessionFilter{IDs: []string{}}, []string{}},
			"several": {store.SessionFilter{Agent: "coder", Tool: "bash",
				Tags: []string{"good"}}, []string{"a"}},
		} {
			q := everything
			q.SessionFilter = c.f
			h.equal(name, ids(h.sessions(s, q)), c.want)
			stats, err := s.Stats(h.Context(), store.StatsQuery{Sessions: c.f})
			h.check(err)
			h.equal("sessions counted: "+name, stats.Total.Sessions, int64(len(c.want)))
		}
		for order, want := range map[store.SessionSort][]string{
			store.SortUpdated: {"c", "b", "a", "kid"}, store.SortCreated: {"c", "b", "kid", "a"},
			store.SortTitle: {"b", "a", "kid", "c"}, store.SortContext: {"c", "a", "kid", "b"},
		} {
			q := everything
			q.Sort = order
			all := h.sessions(s, q)
			h.equal(fmt.Sprintf("by %q", order), ids(all), want)
			for i := range all {
				q.Before = &store.Cursor{UpdatedAt: all[i].UpdatedAt, ID: all[i].ID}
				h.equal(fmt.Sprintf("by %q after %s", order, all[i].ID), ids(h.sessions(s, q)),
					slices.Clone(want[i+1:]))
			}
		}
		for _, err := range s.Sessions(h.Context(), store.SessionQuery{Sort: "size"}) {
			if err == nil {
				h.Error("an unknown order is accepted")
			}
		}
	})},
	{"filters/stats", "Stats count the selected sessions, those before a time, and take the project from a session " +
		"that is not selected.", with(func(h *harness, s Store) {
		h.filterStore(s)
		h.apply(s, assistant("kid", "k1", 16, 5))
		stats, err := s.Stats(h.Context(), store.StatsQuery{By: []store.StatsBy{store.StatsByProject},
			Sessions: store.SessionFilter{Agent: "helper"}})
		h.check(err)
		if len(stats.Groups) != 1 || stats.Groups[0].Key != "/src/one" || stats.Total.TotalTokens != 5 {
			h.Errorf("of the helper: %+v", stats)
		}
		stats, err = s.Stats(h.Context(), store.StatsQuery{Until: time.UnixMilli(epoch + 16)})
		h.check(err)
		h.equal("tokens before", stats.Total.TotalTokens, int64(3))
	})},
}

var retentionCases = []testCase{
	{"retention", "Sessions of an age are deleted with their family, those with a tag are kept if that is asked for, " +
		"and of a store that is too large the oldest go first.", func(h *harness) {
		fill := func(s Store) {
			random := rand.New(rand.NewPCG(1, 2)) // what repeats itself is compressed
			for i, id := range []string{"old", "tagged", "parent", "new"} {
				h.apply(s, ofSession(id, int64(i), store.SessionChange{}))
				for k := range 6 {
					m := user(id, fmt.Sprintf("%s-%d", id, k), int64(i))
					noise := make([]byte, 20_000)
					for j := range noise {
						noise[j] = byte(random.Uint32())
					}
					m.Parts[0].Data = object("type", "text", "text", hex.EncodeToString(noise))
					h.apply(s, m)
				}
			}
			day := int64(24 * time.Hour / time.Millisecond)
			h.apply(s, ofSession("new", 30*day, store.SessionChange{}))
			h.apply(s, ofSession("child", 30*day, store.SessionChange{ParentID: reported(1, "parent")}))
			h.apply(s, annotated(store.Annotation{ID: "t", SessionID: "tagged", Kind: store.AnnotationTag,
				Name: "good"},
				store.Annotation{ID: "n", SessionID: "old", Kind: store.AnnotationNote, Comment: "a note is no tag"}))
		}
		now := time.UnixMilli(epoch).Add(31 * 24 * time.Hour)
		apply := func(s Store, p store.Retention) (deleted []string) {
			h.check(p.Apply(h.Context(), s, now, func(s session.Session) { deleted = append(deleted, s.ID) }))
			return deleted
		}
		h.with(func(s Store) {
			fill(s)
			h.equal("deleted without rules", apply(s, store.Retention{}), []string(nil))
			h.equal("deleted", apply(s, store.Retention{MaxAge: 7 * 24 * time.Hour, KeepTagged: true}), []string{"old"})
			h.equal("deleted then", apply(s, store.Retention{MaxAge: 7 * 24 * time.Hour}), []string{"tagged"})
			h.equal("left", ids(h.sessions(s, everything)), []string{"new", "child", "parent"})
		})
		h.with(func(s Store) {
			fill(s)
			source := &store.ImportSource{Path: "/old.jsonl", Reading: "1", State: []byte("state"), Report: "{}",
				Sessions: []string{"old"}}
			h.check(s.RecordSources(h.Context(), source))
			h.equal("deleted with a file", apply(s, store.Retention{MaxAge: 7 * 24 * time.Hour, KeepTagged: true}),
				[]string{"old"})
			kept, err := s.ImportSource(h.Context(), source.Path)
			source.Deleted = source.Sessions
			h.equal("the file, which is not imported again", []any{kept, err}, []any{*source, nil})
		})
		h.with(func(s Store) {
			sizer, ok := s.(store.Sizer)
			if !ok {
				return // a client of a store in another process
			}
			fill(s)
			size, err := sizer.Size(h.Context())
			if err != nil || size < 400_000 {
				h.Fatalf("960 KB in hex are %d bytes, %v", size, err)
			}
			h.equal("deleted with room", apply(s, store.Retention{MaxSize: 2 * size}), []string(nil))
			h.equal("deleted for the size", apply(s, store.Retention{MaxSize: size / 10, KeepTagged: true}),
				[]string{"old", "parent", "child", "new"})
			after, err := sizer.Size(h.Context())
			if err != nil || after > size*2/3 {
				h.Errorf("of %d bytes are %d left, %v", size, after, err)
			}
		})
	}},
}
