package storetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// script is the data of the suite's observations: it states what assemble makes of
// them.
type script struct {
	Text string `json:"text,omitempty"`
	// In is the session that the observation is built in, where that is not its owner.
	In string `json:"in,omitempty"`
	// Message is the id of the message that an opener begins, where the session has
	// no part in it.
	Message string `json:"message,omitempty"`
	User    bool   `json:"user,omitempty"`
	Input   int64  `json:"input,omitempty"`
	// Silent observations come to nothing.
	Silent bool `json:"silent,omitempty"`

	Title  string `json:"title,omitempty"`
	Agent  string `json:"agent,omitempty"`
	Model  string `json:"model,omitempty"`
	Parent string `json:"parent,omitempty"`
	UserID string `json:"user_id,omitempty"`
	// Outcome makes a decision.
	Outcome string `json:"outcome,omitempty"`
	// Tail makes the message a compaction.
	Tail *string `json:"tail,omitempty"`
}

// assemble makes a message of every opener and what begins after it in the same
// session, a text of each. Every message lists the whole window that it was
// assembled from, so that one that was reported from less than all of it differs.
func assemble(w *store.Window) (store.Assembly, error) {
	owner, observations := w.Owner, w.Observations
	out := store.Assembly{Attribution: make([]store.Attribution, len(observations))}
	order := make([]int, len(observations))
	for i := range order {
		order[i] = i
	}
	name := func(i int) string { return observations[i].TraceID + "/" + observations[i].Source }
	slices.SortFunc(order, func(i, j int) int {
		x, y := &observations[i], &observations[j]
		return cmp.Or(cmp.Compare(x.Start, y.Start), strings.Compare(name(i), name(j)))
	})
	var timeRange []string
	for _, i := range order {
		timeRange = append(timeRange, name(i))
	}
	messages := make(map[string]*store.AssembledMessage) // the last of each session
	var all []*store.AssembledMessage
	for _, i := range order {
		n := &observations[i]
		var s script
		if err := json.Unmarshal(n.Data, &s); err != nil {
			return out, err
		}
		if s.Silent {
			continue
		}
		sessionID := cmp.Or(s.In, owner)
		m := messages[sessionID]
		if m == nil || n.Opens {
			m = &store.AssembledMessage{Message: session.Message{
				ID: cmp.Or(s.Message, "m-"+name(i)), SessionID: sessionID, Role: session.RoleAssistant,
				CreatedAt: n.Start / 1e6,
			}}
			if s.User {
				m.Role = session.RoleUser
			}
			metadata := map[string]any{"stretch": timeRange}
			if s.Input > 0 {
				metadata["usage"] = session.Usage{Input: s.Input}
			}
			if s.Tail != nil {
				metadata["compaction"] = true
			}
			raw, _ := json.Marshal(metadata)
			m.MetadataJSON = string(raw)
			messages[sessionID] = m
			all = append(all, m)
		}
		m.UpdatedAt = max(m.UpdatedAt, n.End/1e6)
		p := session.Part{
			ID: m.ID + "+" + name(i), MessageID: m.ID, SessionID: sessionID, Index: int64(len(m.Parts)), Type: "text",
			DataJSON: string(object("type", "text", "text", cmp.Or(s.Text, name(i)))), CreatedAt: n.Start / 1e6,
			UpdatedAt: n.End / 1e6,
		}
		if s.Tail != nil {
			p.Type = session.TypeCompaction
			p.DataJSON = string(object("type", p.Type, "data",
				map[string]any{"summary": "so far", "tail_start_id": *s.Tail, "auto": true, "summary_tokens": 1}))
		}
		m.Parts = append(m.Parts, p)
		attribution := &out.Attribution[i]
		*attribution = store.Attribution{SessionID: sessionID, MessageID: m.ID, PartID: p.ID, Kind: "step"}
		if s.Outcome != "" {
			attribution.DecisionID = "d-" + name(i)
			out.Decisions = append(out.Decisions, store.Decision{
				ID: attribution.DecisionID, SessionID: sessionID, MessageID: m.ID, ToolID: "bash", Action: "ask",
				Outcome: s.Outcome, DecidedAt: n.End / 1e6,
				Reason: fmt.Sprint("one of ", len(observations)),
			})
		}
		value := func(text string, at int64) *store.Value {
			if text == "" {
				return nil
			}
			return &store.Value{Text: text, At: at, Rank: store.RankLive}
		}
		about := store.SessionChange{
			ID: sessionID, Title: value(s.Title, n.End), Agent: value(s.Agent, n.Start),
			ParentID: value(s.Parent, n.Start),
		}
		if s.Model != "" {
			about.Model = value(string(object("model_id", s.Model)), n.End)
		}
		if s.UserID != "" {
			about.Metadata = map[string]store.Value{"user_id": value(`"`+s.UserID+`"`, n.Start).First()}
		}
		if s.Title+s.Agent+s.Parent+s.Model+s.UserID != "" {
			attribution.SessionAttrs = &about
		}
	}
	for _, m := range all {
		out.Messages = append(out.Messages, *m)
	}
	return out, nil
}

// observed is one observation. Times are in milliseconds after epoch.
func observed(trace, source string, from, to int64, s script, more ...func(*store.Observation)) store.Batch {
	data, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	o := store.Observation{TraceID: trace, Source: source, Dialect: "storetest", SpanID: source, Start: nano(from),
		End: nano(to), Data: data}
	if trace != "" {
		o.Own = "own-" + trace
	}
	for _, f := range more {
		f(&o)
	}
	return store.Batch{Observations: []store.Observation{o}, Assemble: assemble}
}

// beside is a batch of the SDK's where there are observations as well.
func beside(b store.Batch) store.Batch {
	b.Assemble = assemble
	return b
}

func opens(o *store.Observation) { o.Opens = true }

// of states which session an observation names, by a key of some rank.
func of(sessionID string, rank int) func(*store.Observation) {
	return func(o *store.Observation) { o.Session, o.Rank = sessionID, rank }
}

// below states which span an observation is below.
func below(span string) func(*store.Observation) {
	return func(o *store.Observation) { o.ParentSpanID = span }
}

// windows lists what each window of a session was assembled from, in order of time.
func (h *harness) windows(s Store, id string) (all []string) {
	h.Helper()
	for _, m := range h.transcript(s, id).Messages {
		var about struct{ Stretch []string }
		h.check(json.Unmarshal([]byte(m.Message.MetadataJSON), &about))
		if w := fmt.Sprint(about.Stretch); !slices.Contains(all, w) {
			all = append(all, w)
		}
	}
	return all
}

func asks(calls ...string) func(*store.Observation) {
	return func(o *store.Observation) { o.Calls = calls }
}

func orphan(call string) func(*store.Observation) {
	return func(o *store.Observation) { o.Call = call }
}

// ids lists the sessions of a store, by id.
func (h *harness) ids(s Store) []string {
	h.Helper()
	ids := []string{}
	for _, row := range h.sessions(s, everything) {
		ids = append(ids, row.ID)
	}
	slices.Sort(ids)
	return ids
}

// textsOf lists the texts of a session's messages, in order.
func (h *harness) textsOf(s Store, id string) []string {
	h.Helper()
	return texts(h.transcript(s, id))
}

// conversation is a session of turns, each of an opener and a step.
func conversation(trace, sessionID string, turns int) []store.Batch {
	var all []store.Batch
	for i := range turns {
		at := int64(i * 100)
		all = append(all, observed(trace, fmt.Sprint("t", i), at, at+50,
			script{Input: 1 << i, Title: fmt.Sprint("title ", i), Model: fmt.Sprint("model-", i)}, opens,
			of(sessionID, 0)), observed(trace, fmt.Sprint("s", i), at+10, at+20, script{}))
	}
	return all
}

// scattered are observations of some owners at random times, of which some open a turn: of each owner as many, each in
// as many versions. Those of an owner are records, or spans of a trace below each other.
func scattered(seed uint64, owners, each, versions int, traced bool) []store.Batch {
	var all []store.Batch
	r := rand.New(rand.NewPCG(seed, 9))
	for owner := range owners {
		for i := range each {
			for version := range versions {
				from := int64(r.IntN(30))
				b := observed("", fmt.Sprint(owner, "-", i), from, from+int64(r.IntN(4)*r.IntN(6)),
					script{Text: fmt.Sprint("version ", version)}, of(fmt.Sprint("s", owner), 0))
				o := &b.Observations[0]
				if o.Opens = r.IntN(2) == 0; traced {
					o.TraceID, o.SpanID, o.ParentSpanID = fmt.Sprint(owner), o.Source, fmt.Sprint(owner, "-", r.IntN(9))
					o.Own = "own-" + o.TraceID
				}
				all = append(all, b)
			}
		}
	}
	return all
}

var observationCases = []testCase{
	{"observation/built", "Observations become what the batch's Assemble makes of them, in any order and batching, " +
		"once however often they are delivered. The session lasts as long as they do.",
		story(conversation("a", "s1", 3), func(h *harness, s Store) {
			h.holds(s, "s1 7: a/t0, a/s0, a/t1, a/s1, a/t2, a/s2")
			row := h.transcript(s, "s1").Session
			h.equal("row", []any{row.Title, row.TotalTokens, row.CreatedAt, row.UpdatedAt},
				[]any{"title 2", int64(7), int64(epoch), int64(epoch + 250)})
		})},
	{"observation/version", "Of two versions of an observation the one that ended later counts, and nothing is left " +
		"of the other: not its session's title, nor the calls it asked for, nor the time it lasted.", func(h *harness) {
		first := observed("a", "t0", 0, 60, script{Title: "first", Agent: "one", Outcome: "allowed", Input: 1}, opens,
			asks("c1"), of("s1", 0))
		second := observed("a", "t0", 20, 70, script{Title: "second", Outcome: "pending", Input: 2}, opens, asks("c2"),
			of("s1", 0))
		h.story([]store.Batch{
			first, second, observed("a", "s0", 30, 40, script{}),
			observed("b", "x1", 35, 36, script{Text: "orphan 1"}, orphan("c1")),
			observed("c", "x2", 37, 38, script{Text: "orphan 2"}, orphan("c2")),
		}, func(s Store) {
			h.equal("sessions", h.ids(s), []string{"own-b", "s1"})
			row := h.transcript(s, "s1").Session
			h.equal("row", []any{row.Title, row.Agent, row.CreatedAt, row.TotalTokens},
				[]any{"second", "unknown", int64(epoch + 20), int64(2)})
		})
	}},
	{"observation/window", "Storing observations one by one gives what storing them all at once does: with some that " +
		"reach across where others open a turn, openers that arrive late between others, that begin together, and " +
		"such that last no time.", story(scattered(3, 40, 10, 1, false), func(h *harness, s Store) {
		h.equal("sessions", len(h.ids(s)), 40)
	})},
	{"observation/window-of-versions", "So it does where observations are delivered in several versions, which move " +
		"and grow.", story(scattered(5, 20, 6, 2, false), func(h *harness, s Store) {
		h.equal("sessions", len(h.ids(s)), 20)
	})},
	{"observation/below", "What begins after the span that it is below has ended is assembled with it, whatever " +
		"opens a turn in between; what opens a turn itself is not.", func(h *harness) {
		h.story([]store.Batch{
			observed("a", "t0", 0, 10, script{}, opens, of("s1", 0)),
			observed("b", "t1", 20, 30, script{}, opens, of("s1", 0)),
			observed("a", "late", 20, 20, script{}, below("t0")),
			observed("b", "t2", 40, 50, script{}, opens, below("t1")),
		}, func(s Store) {
			h.equal("windows", h.windows(s, "s1"), []string{"[a/t0 a/late b/t1]", "[b/t2]"})
		})
		h.story(scattered(7, 30, 8, 2, true), func(s Store) { h.equal("sessions", len(h.ids(s)), 30) })
	}},
	{"observation/together", "What begins at the very time at which another ends or opens is built with it or after " +
		"it, never lost.", story([]store.Batch{
		observed("a", "t0", 0, 10, script{}, opens, of("s1", 0)), observed("a", "s0", 10, 10, script{}),
		observed("a", "t1", 10, 10, script{}, opens),
		observed("a", "t2", 20, 20, script{}, opens),
	}, sessions("s1 0: a/t0, a/s0, a/t1, a/t2"))},
	{"observation/retraction", "What an observation reports of its session's row is taken back when it moves to " +
		"another: title, agent, model, parent, metadata and times are what the others say.", func(h *harness) {
		h.story([]store.Batch{
			observed("a", "t0", 100, 200, script{Title: "mine", Agent: "coder", Model: "m1", UserID: "u1"}, opens,
				of("s1", 0)),
			observed("b", "t0", 0, 900, script{Title: "yours", Agent: "other", Model: "m2", Parent: "p9",
				UserID: "u2"}, opens, of("s1", 5)),
			observed("b", "k", 950, 950, script{Silent: true}, of("s2", 1)),
		}, func(s Store) {
			h.equal("sessions", h.ids(s), []string{"s1", "s2"})
			row := h.transcript(s, "s1").Session
			h.equal("row", []any{row.Title, row.Agent, *row.ModelJSON, row.ParentID, row.MetadataJSON, row.CreatedAt,
				row.UpdatedAt},
				[]any{"mine", "coder", `{"model_id":"m1"}`, (*string)(nil), `{"user_id":"u1"}`, int64(epoch + 100),
					int64(epoch + 200)})
		})
		h.story([]store.Batch{
			observed("c", "t0", 0, 1000, script{}, opens, of("s1", 0)),
			observed("a", "t0", 100, 200, script{Title: "mine", Agent: "coder", Model: "m1", UserID: "u1"},
				of("s1", 0)),
			observed("b", "t0", 50, 900, script{Title: "yours", Agent: "other", Model: "m2", UserID: "u2"},
				of("s1", 5)),
			observed("b", "k", 950, 950, script{Silent: true}, of("s2", 1)),
		}, func(s Store) {
			row := h.transcript(s, "s1").Session
			h.equal("row", []any{row.Title, row.Agent, *row.ModelJSON, row.MetadataJSON},
				[]any{"mine", "coder", `{"model_id":"m1"}`, `{"user_id":"u1"}`})
		})
	}},
	{"observation/retraction-beside-sdk", "What other sources reported stays, and counts again when what " +
		"observations report with a higher rank is taken back.", story([]store.Batch{
		ofSession("s1", 300, store.SessionChange{
			Title: &store.Value{Text: "early", At: nano(10), Rank: store.RankLive}, Agent: reported(300, "coder")}),
		observed("b", "t0", 0, 900, script{Title: "yours", Agent: "other", Model: "m2"}, opens, of("s1", 5)),
		observed("b", "k", 950, 950, script{Silent: true}, of("s2", 1)),
	}, func(h *harness, s Store) {
		row := h.transcript(s, "s1").Session
		h.equal("row", []any{row.Title, row.Agent, row.ModelJSON, row.CreatedAt, row.UpdatedAt},
			[]any{"early", "coder", (*string)(nil), int64(epoch + 300), int64(epoch + 300)})
	})},
	{"observation/decisions", "A decision is replaced by what it is built as now, and goes when it is not built any " +
		"more.", story([]store.Batch{
		observed("a", "t0", 0, 10, script{}, opens, of("s1", 0)),
		observed("a", "d0", 5, 6, script{Outcome: "allowed"}),
		observed("a", "d0", 5, 7, script{Outcome: "pending"}),
		observed("a", "d1", 6, 7, script{Outcome: "denied"}), observed("a", "d1", 6, 8, script{}),
	}, func(h *harness, s Store) {
		decisions, err := s.Decisions(h.Context(), "s1")
		h.check(err)
		h.equal("decisions", decisions, []store.Decision{{
			ID: "d-a/d0", SessionID: "s1", MessageID: "m-a/t0", ToolID: "bash", Action: "ask", Outcome: "pending",
			Reason: "one of 3", DecidedAt: epoch + 7,
		}})
	})},
	{"observation/rewind", "A message that observations come to is hidden by a rewind as any other, whether it is " +
		"built before or after, or once more; its tokens count no more.", func(h *harness) {
		back := ofSession("s1", 300, store.SessionChange{Rewinds: []store.Rewind{{To: "m-a/t1", At: epoch + 300}}})
		h.story(append(conversation("a", "s1", 3), back), func(s Store) {
			t := h.transcript(s, "s1")
			h.equal("visible", visible(t), []string{"m-a/t0", "m-a/t1"})
			h.equal("rollup", t.Session.TotalTokens, int64(3))
		})
	}},
	{"observation/compaction", "A compaction that observations come to moves where the context begins, and no longer " +
		"does when it is not reported any more.", func(h *harness) {
		tail := "m-a/t1"
		compact := observed("a", "c0", 160, 170, script{Tail: &tail}, opens)
		h.story(append(conversation("a", "s1", 3), compact),
			func(s Store) { h.holds(s, "s1 6: a/t0, a/s0, a/t1, a/s1, a/t2, a/s2") })
		h.story(append(conversation("a", "s1", 3), compact, observed("a", "c0", 160, 171, script{Silent: true}, opens)),
			func(s Store) { h.holds(s, "s1 7: a/t0, a/s0, a/t1, a/s1, a/t2, a/s2") })
	}},
	{"observation/fork", "A fork follows what its parent's observations come to.",
		story(append(conversation("a", "s1", 2), fork("s2", "s1", "m-a/t0", 500)),
			sessions("s1 3: a/t0, a/s0, a/t1, a/s1", "s2 1: a/t0, a/s0"))},
	{"observation/refused", "A message that belongs to another session is refused, and that session keeps its own.",
		with(func(h *harness, s Store) {
			h.apply(s, assistant("s1", "m1", 1, 7))
			r := h.apply(s, observed("a", "t0", 0, 10, script{Message: "m1", Input: 5}, opens, of("s2", 0)))
			h.equal("refused", r.Refused, int64(2))
			h.equal("texts", h.textsOf(s, "s1"), []string{"answer m1"})
			h.equal("messages of the other", len(h.transcript(s, "s2").Messages), 0)
			h.dump(s)
		})},
	{"observation/parked", "A batch reports how many of its observations nothing is built of.",
		with(func(h *harness, s Store) {
			silent, shown := observed("a", "x", 0, 10, script{Silent: true}),
				observed("a", "t0", 0, 10, script{}, opens)
			h.equal("of two", h.apply(s, silent, shown).Pending, int64(1))
			h.equal("again", h.apply(s, shown, silent).Pending, int64(1))
			record := observed("", "r", 0, 10, script{})
			h.equal("of nobody", h.apply(s, record).Pending, int64(1))
			h.equal("sessions", h.ids(s), []string{"own-a"})
		})},
	{"observation/children", "Observations of an owner may be built in sessions of their own below it; one of these " +
		"goes when none is built there any more.", story([]store.Batch{
		observed("a", "t0", 0, 100, script{}, opens, of("s1", 0)),
		observed("a", "c0", 10, 20, script{In: "child", Parent: "s1", Input: 4}),
		observed("a", "c1", 30, 40, script{In: "brief"}), observed("a", "c1", 30, 41, script{}),
	}, func(h *harness, s Store) {
		h.holds(s, "child 4: a/c0", "s1 0: a/t0, a/c1")
		h.equal("parent", *h.transcript(s, "child").Session.ParentID, "s1")
	})},
}

// resolve returns the session of a name.
func (h *harness) resolve(s Store, name string) string {
	h.Helper()
	id, err := s.Resolve(h.Context(), name)
	if err != nil {
		h.Errorf("resolve %s: %v", name, err)
	}
	return id
}
