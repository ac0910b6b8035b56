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

// script is the data of the suite's observations: it states what assemble makes of them.
type script struct {
	Text string `json:"text,omitempty"`
	// In is the session that the observation is built in, where that is not its owner.
	In string `json:"in,omitempty"`
	// Message is the id of the message that an opener begins, where the session has no part in it.
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
	// Score is that of an evaluation.
	Score float64 `json:"score,omitempty"`
	// Tail makes the message a compaction.
	Tail *string `json:"tail,omitempty"`
}

// assemble makes a message of every opener and what begins after it in the same session, a text of each. Every message
// lists the whole window that it was assembled from, so that one that was reported from less than all of it differs.
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
		if s.Score != 0 {
			out.Annotations = append(out.Annotations, store.Annotation{ID: "score", Kind: store.AnnotationScore,
				Name: n.Dialect, Value: &s.Score, CreatedAt: n.Start / 1e6, UpdatedAt: n.Start / 1e6})
		}
		if s.Silent || s.Score != 0 {
			continue
		}
		sessionID := cmp.Or(s.In, owner)
		m := messages[sessionID]
		if m == nil || n.Opens == store.Opens {
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

// windows lists what each window of a session was assembled from, in order of time.
func (h *harness) windows(s Store, id string) (all []string) {
	h.Helper()
	for _, m := range Transcript(h, s, id).Messages {
		var about struct{ Stretch []string }
		h.check(json.Unmarshal([]byte(m.Message.MetadataJSON), &about))
		if w := fmt.Sprint(about.Stretch); !slices.Contains(all, w) {
			all = append(all, w)
		}
	}
	return all
}

// ids lists the sessions of a store, by id.
func (h *harness) ids(s Store) []string {
	h.Helper()
	return ids(Sessions(h, s))
}

// conversation is a session of turns, each of an opener and a step: TRACE SESSION TURNS.
func (h *harness) conversation(a *args) (all []store.Batch) {
	trace, id := a.word(), a.word()
	for i := range int(a.int()) {
		at := i * 100
		all = append(all, h.changes(fmt.Sprintf("obs %s t%d %d..%d opens of=%s `"+
			`{"input":%d,"title":"title %[2]d","model":"model-%[2]d"}`+"`", trace, i, at, at+50, id, 1<<i))...)
		all = append(all, h.changes(fmt.Sprintf("obs %s s%d %d..%d", trace, i, at+10, at+20))...)
	}
	return all
}

// scattered are observations of some owners at random times, of which some open a turn: of each owner as many, each in
// as many versions. Those of an owner are records, or spans of a trace below each other: SEED OWNERS EACH VERSIONS
// traced.
func (h *harness) scattered(a *args) (all []store.Batch) {
	r := rand.New(rand.NewPCG(uint64(a.int()), 9))
	owners, each, versions, traced := a.int(), a.int(), a.int(), len(a.left) > 0
	for owner := range owners {
		for i := range each {
			for version := range versions {
				from, opens, trace := r.IntN(30), "", "-"
				to := from + r.IntN(4)*r.IntN(6)
				if r.IntN(2) == 0 {
					opens = "opens"
				}
				if traced {
					trace, opens = fmt.Sprint(owner), fmt.Sprintf("%s below=%d-%d", opens, owner, r.IntN(9))
				}
				all = append(all, h.changes(fmt.Sprintf("obs %s %d-%d %d..%d of=s%d %s `"+`{"text":"version %d"}`+"`",
					trace, owner, i, from, to, owner, opens, version))...)
			}
		}
	}
	return all
}

// anything is a few batches of a world of its own, whose ids begin with its name. All versions of an observation name
// one session, or none: it stays with the first that does.
func (h *harness) anything(r *rand.Rand, world string) []store.Batch {
	some := func(odds int, prefix string) string {
		if r.IntN(odds) > 0 {
			return ""
		}
		return fmt.Sprint(world, prefix, r.IntN(3))
	}
	var all []store.Batch
	named := make(map[string]string)
	for range 4 + r.IntN(8) {
		if r.IntN(8) == 0 {
			all = append(all, h.changes(fmt.Sprintf(`span %s - %s %d {"TraceID":%q,"Kind":"session.run"}`,
				some(1, "s"), some(1, "span"), r.IntN(40), some(1, "t")))...)
			continue
		}
		from := 1 + r.IntN(40)
		data, err := json.Marshal(script{
			Silent: r.IntN(8) == 0, In: some(8, "child"), Input: int64(r.IntN(2) << r.IntN(10)),
			Title: some(3, "title"), Agent: some(4, "agent"),
			Model: some(4, "model"), UserID: some(4, "user"), Outcome: []string{"allowed", ""}[min(r.IntN(8), 1)],
		})
		h.check(err)
		trace, source := some(1, "t"), fmt.Sprint("o", r.IntN(6))
		to := from + r.IntN(4)*r.IntN(8)
		if r.IntN(10) == 0 {
			trace, source = "-", world+source
		}
		key := trace + source
		if _, again := named[key]; !again {
			named[key] = some(4, "s")
		}
		line := fmt.Sprintf("obs %s %s %d..%d of=%s/%d orphan=%s", trace, source, from, to, named[key], r.IntN(2),
			some(5, "call"))
		if r.IntN(3) == 0 {
			line += " opens"
		}
		var calls []string
		for range r.IntN(3) {
			if call := some(2, "call"); call != "" && !slices.Contains(calls, call) {
				calls = append(calls, call)
			}
		}
		if calls != nil {
			line += " asks=" + strings.Join(calls, ",")
		}
		all = append(all, h.changes(line+" "+string(data))...)
	}
	return all
}
