// Package storetest is the conformance suite for engines that keep sessions.
//
// An engine passes when [Run] passes with it:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Store { return open(t) })
//	}
//
// Every case states, in prose, the rule that it examines. Most rules are examined by telling the same story in many
// ways: its changes one by one in every order, all of them in one batch, and with some delivered again. All of them
// must leave the same rows.
package storetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/store"
)

// Store is what the suite examines.
type Store = store.Store

// Dumper is a [Store] that can write down all that it keeps, what readers cannot
// see included, in the same words for the same rows. The suite compares that too.
type Dumper interface {
	Dump() (string, error)
}

// Run examines an engine. open returns an empty store, which the suite closes; it is called many times.
func Run(t *testing.T, open func(t *testing.T) Store) {
	run(t, harness{open: open})
}

// RunClient examines what reads and writes a store for which [Run] passes. The order in which changes come is that
// store's own matter, so each story is built in three ways alone. open is as in [Run].
func RunClient(t *testing.T, open func(t *testing.T) Store) {
	run(t, harness{open: open, client: true})
}

func run(t *testing.T, pattern harness) {
	for _, group := range [][]testCase{casesOf("rows"), casesOf("observations"), casesOf("reads"), otherCases, readCases} {
		runCases(t, pattern, group)
	}
	if !pattern.client {
		runCases(t, pattern, failureCases)
	}
}

// testCase is one rule, in prose, which is printed when it is broken.
type testCase struct {
	name, rule string
	run        func(h *harness)
}

func runCases(t *testing.T, pattern harness, cases []testCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := pattern
			h.T = t
			c.run(&h)
			if t.Failed() {
				t.Log("the rule: " + c.rule)
			}
		})
	}
}

// with is a case that looks at one store, which is empty.
func with(run func(h *harness, s Store)) func(h *harness) {
	return func(h *harness) { h.with(func(s Store) { run(h, s) }) }
}

// harness is what cases work with.
type harness struct {
	*testing.T
	open   func(t *testing.T) Store
	client bool         // see RunClient
	result store.Result // of the last batch of a story in order
	// imports is the result of its last import, failed the error of what a user did last.
	imports store.ImportResult
	failed  error
	// kept are all rows as they were once, first are the lines of a session, exported is a session as it was.
	kept     string
	first    string
	exported *store.Imported
	// forked is the session that a user forked last, rewound what its rewind changed.
	forked  string
	rewound store.Rewound
}

// check ends the test if there is an error.
func (h *harness) check(err error) {
	h.Helper()
	testscale.Must(h, err)
}

// with runs f on an empty store.
func (h *harness) with(f func(s Store)) {
	h.Helper()
	s := h.open(h.T)
	f(s)
	if err := s.Close(); err != nil {
		h.Errorf("close: %v", err)
	}
}

// apply applies changes as one batch, which must succeed.
func (h *harness) apply(s Store, changes ...store.Batch) store.Result {
	h.Helper()
	b := join(changes...)
	r, err := s.Apply(context.Background(), &b)
	if err != nil {
		h.Fatalf("apply: %v", err)
	}
	return r
}

// story is built in many ways; then see looks at one of the stores, which are all the same.
func (h *harness) story(changes []store.Batch, see func(s Store)) {
	h.Helper()
	want, wantHow := "", ""
	for how, batches := range h.tellings(changes) {
		h.with(func(s Store) {
			for i, b := range batches {
				h.apply(s, b)
				if how == "twice" {
					h.countsAfresh(s, i, len(batches))
				}
			}
			got := h.dump(s)
			if want == "" {
				want, wantHow = got, how
				see(s)
				return
			}
			if got != want {
				h.Fatalf("delivered %s the rows differ from those delivered %s (-want +got):\n%s", how, wantHow,
					gocmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
			}
		})
		if h.Failed() {
			return
		}
	}
}

// countsAfresh checks that statistics are the same with the figures that were kept before the last step and without,
// and that sessions are in the order of what each used:
// after each step of a short story, or after every nth and the last of a long one. Counting costs more than a step.
func (h *harness) countsAfresh(s Store, step, steps int) {
	h.Helper()
	other, ok := s.(SQL)
	if !ok || step%(1+steps/testscale.Rounds(4, 16)) != 0 && step != steps-1 {
		return
	}
	count := func() store.Stats {
		by := []store.StatsBy{store.StatsByDay, store.StatsByHour, store.StatsByModel, store.StatsByAgent}
		stats, err := s.Stats(h.Context(), store.StatsQuery{By: by, Price: priceOf})
		h.check(err)
		tools, err := s.Stats(h.Context(), store.StatsQuery{By: []store.StatsBy{store.StatsByTool}})
		h.check(err)
		stats.Groups = append(stats.Groups, tools.Groups...)
		h.ordered(s)
		return stats
	}
	kept := count()
	h.check(other.Script(`DELETE FROM session_stats`))
	h.equal("stats by figures that were kept", kept, count())
}

// ordered checks the orders of sessions by figures.
func (h *harness) ordered(s Store) {
	h.Helper()
	all := h.ids(s)
	spent, err := s.Spent(h.Context(), all, nil)
	h.check(err)
	for sort, figure := range map[store.SessionSort]func(store.Spent) int64{
		store.SortTurns:  func(u store.Spent) int64 { return u.Turns },
		store.SortErrors: func(u store.Spent) int64 { return u.Errors },
		store.SortTokens: func(u store.Spent) int64 { return session.Deref(u.Used).Total() },
		store.SortDuration: func(u store.Spent) int64 {
			if u.DurationMS == nil {
				return -1
			}
			return *u.DurationMS
		},
	} {
		slices.SortFunc(all, func(x, y string) int {
			if a, b := figure(spent[x]), figure(spent[y]); a != b {
				return int(b - a)
			}
			return strings.Compare(y, x)
		})
		q := everything
		q.Sort = sort
		h.equal("sessions by "+string(sort), strings.Join(ids(List(h, s, q)), " "), strings.Join(all, " "))
	}
}

// tellings are the ways in which a story is built.
func (h *harness) tellings(changes []store.Batch) func(yield func(string, []store.Batch) bool) {
	// Up to so many changes every order is built, else so many orders.
	all, rounds := testscale.Rounds(2, 4), testscale.Rounds(1, 4)
	return func(yield func(string, []store.Batch) bool) {
		deliver := func(how string, order []int) bool { return yield(how, ordered(changes, order)) }
		together := func(how string, order []int) bool {
			return yield(how, []store.Batch{join(ordered(changes, order)...)})
		}
		inOrder := make([]int, len(changes))
		for i := range inOrder {
			inOrder[i] = i
		}
		backwards := slices.Clone(inOrder)
		slices.Reverse(backwards)
		if !deliver("in order", inOrder) || !deliver("twice", slices.Concat(inOrder, inOrder)) ||
			!together("in one batch twice over", slices.Concat(inOrder, backwards)) || h.client || len(changes) < 2 ||
			!together("in one batch", inOrder) || !together("in one batch backwards", backwards) {
			return
		}
		if len(changes) <= all {
			for order := range permutations(inOrder) {
				if !slices.Equal(order, inOrder) && !deliver(fmt.Sprintf("in order %v", order), order) {
					return
				}
			}
			return
		}
		if !deliver("backwards", backwards) {
			return
		}
		for seed := range rounds {
			r := rand.New(rand.NewPCG(uint64(seed), 7))
			order := slices.Clone(inOrder)
			r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			var batches []store.Batch
			for rest := order; len(rest) > 0; {
				n := 1 + r.IntN(min(3, len(rest)))
				b := join(ordered(changes, rest[:n])...)
				batches = append(batches, b)
				if r.IntN(4) == 0 {
					batches = append(batches, b)
				}
				rest = rest[n:]
			}
			if !yield(fmt.Sprintf("in order %v with redelivery", order), batches) {
				return
			}
		}
	}
}

// permutations yields every order of in. The slice is valid until the next.
func permutations(in []int) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		p := slices.Clone(in)
		var visit func(int) bool
		visit = func(k int) bool {
			if k == len(p) {
				return yield(p)
			}
			for i := k; i < len(p); i++ {
				p[k], p[i] = p[i], p[k]
				if !visit(k + 1) {
					return false
				}
				p[k], p[i] = p[i], p[k]
			}
			return true
		}
		visit(0)
	}
}

// ordered are changes in an order, in which a change may come again.
func ordered(changes []store.Batch, order []int) []store.Batch {
	batches := make([]store.Batch, len(order))
	for i, n := range order {
		batches[i] = changes[n]
	}
	return batches
}

// join makes one batch of several. It copies the data of parts, which Apply may keep.
func join(changes ...store.Batch) store.Batch {
	var all store.Batch
	for _, b := range changes {
		all.Sessions = append(all.Sessions, b.Sessions...)
		all.Messages = append(all.Messages, b.Messages...)
		for _, p := range b.Parts {
			p.Data = slices.Clone(p.Data)
			all.Parts = append(all.Parts, p)
		}
		all.Decisions = append(all.Decisions, b.Decisions...)
		all.Blobs = append(all.Blobs, b.Blobs...)
		all.SpanRefs = append(all.SpanRefs, b.SpanRefs...)
		all.Observations = append(all.Observations, b.Observations...)
		all.Annotations = append(all.Annotations, b.Annotations...)
		if b.Assemble != nil {
			all.Assemble = b.Assemble
		}
	}
	return all
}

// dump is everything that a reader can see of a store. Every session must be sound.
func (h *harness) dump(s Store) string {
	h.Helper()
	var b bytes.Buffer
	for _, row := range List(h, s, everything) {
		t := Transcript(h, s, row.ID)
		h.check(jsonl.Encode(&b, t))
		for _, v := range session.Check(t) {
			h.Errorf("session %s: %s", row.ID, v)
		}
		decisions, err := s.Decisions(context.Background(), row.ID)
		h.check(err)
		links, err := s.SpanRefs(context.Background(), row.ID)
		h.check(err)
		annotations, err := s.Annotations(context.Background(), row.ID)
		h.check(err)
		e := json.NewEncoder(&b)
		for i := range annotations {
			_ = e.Encode(&annotations[i])
		}
		for _, d := range decisions {
			_ = e.Encode(d)
		}
		for _, l := range links {
			_ = e.Encode(l)
		}
	}
	if d, ok := s.(Dumper); ok {
		all, err := d.Dump()
		h.check(err)
		b.WriteString(all)
	}
	return b.String()
}

// equal reports a difference.
func (h *harness) equal(what string, got, want any) {
	h.Helper()
	if d := gocmp.Diff(want, got); d != "" {
		h.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// message finds a message of a transcript.
func (h *harness) message(t *session.Transcript, id string) session.MessageAndParts {
	h.Helper()
	for _, m := range t.Messages {
		if m.Message.ID == id {
			return m
		}
	}
	h.Fatalf("session %s has no message %s", t.Session.ID, id)
	return session.MessageAndParts{}
}

// visible lists the ids of messages that are not hidden, in order.
func visible(t *session.Transcript) []string {
	ids := []string{}
	for _, m := range t.Messages {
		if m.Message.HiddenAt == nil {
			ids = append(ids, m.Message.ID)
		}
	}
	return ids
}

// Stories take place in the milliseconds after epoch.
const epoch = 1_795_000_000_000

func nano(at int64) int64 { return (epoch + at) * 1e6 }

// reported is a value that a source gave when it had ended.
func reported(at int64, text string) *store.Value {
	return &store.Value{Text: text, At: nano(at), Rank: store.RankFinal}
}

// ofSession is a change of a session that lasted from at on.
func ofSession(id string, at int64, c store.SessionChange) store.Batch {
	c.ID, c.Start, c.End = id, epoch+at, epoch+at
	return store.Batch{Sessions: []store.SessionChange{c}}
}

// user is a user message with a text.
func user(sessionID, id string, at int64) store.Batch {
	return store.Batch{
		Messages: []store.MessageChange{{ID: id, SessionID: sessionID, Role: session.RoleUser, CreatedAt: epoch + at,
			UpdatedAt: epoch + at, Rank: store.RankFinal}},
		Parts: []store.PartChange{textPart(sessionID, id, id+"-text", 0, at, "question "+id)},
	}
}

// assistant is an assistant message with a text, reported by a span that counted input tokens.
func assistant(sessionID, id string, at, input int64) store.Batch {
	return store.Batch{
		Messages: []store.MessageChange{{ID: id, SessionID: sessionID, Role: session.RoleAssistant,
			CreatedAt: epoch + at, UpdatedAt: epoch + at + 5, Rank: store.RankFinal}},
		Parts: []store.PartChange{textPart(sessionID, id, id+"-text", 0, at, "answer "+id)},
		SpanRefs: []store.SpanRef{turn(sessionID, id, "span-"+id, at,
			store.TurnStats{Usage: &session.Usage{Input: input}})},
	}
}

// turn is the link of a span that reports a message.
func turn(sessionID, messageID, spanID string, at int64, f store.TurnStats) store.SpanRef {
	return store.SpanRef{
		TraceID: "trace-" + sessionID, SpanID: spanID, SessionID: sessionID, MessageID: messageID,
		Kind: "session.turn", Dialect: "agenttrace", StartNano: nano(at), EndNano: nano(at + 5), TurnStats: &f,
	}
}

func textPart(sessionID, messageID, id string, index, at int64, text string) store.PartChange {
	return store.PartChange{
		ID: id, MessageID: messageID, SessionID: sessionID, Index: index, Type: "text",
		Data:      object("type", "text", "text", text),
		CreatedAt: epoch + at, UpdatedAt: epoch + at, Rank: store.RankFinal,
	}
}

// object encodes keys and values in the order given.
func object(keysAndValues ...any) json.RawMessage {
	b := []byte("{")
	for i := 0; i < len(keysAndValues); i += 2 {
		if i > 0 {
			b = append(b, ',')
		}
		for k, v := range keysAndValues[i : i+2] {
			encoded, err := json.Marshal(v)
			if err != nil {
				panic(err)
			}
			if b = append(b, encoded...); k == 0 {
				b = append(b, ':')
			}
		}
	}
	return append(b, '}')
}

// compaction is a marker message. tail may be empty.
func compaction(sessionID, id string, at int64, tail string, tokens int64) store.Batch {
	data := map[string]any{"summary": "so far", "tail_start_id": nil, "auto": tail != "", "summary_tokens": tokens}
	if tail != "" {
		data["tail_start_id"] = tail
	}
	return store.Batch{
		Messages: []store.MessageChange{{
			ID: id, SessionID: sessionID, Role: session.RoleAssistant, CreatedAt: epoch + at, UpdatedAt: epoch + at,
			Rank: store.RankFinal, Metadata: object("compaction", true, "usage", session.Usage{Input: tokens}),
		}},
		Parts: []store.PartChange{{
			ID: id + "-marker", MessageID: id, SessionID: sessionID, Type: session.TypeCompaction,
			Data:      object("type", session.TypeCompaction, "data", data),
			CreatedAt: epoch + at, UpdatedAt: epoch + at, Rank: store.RankFinal,
		}},
	}
}

// Sessions returns all sessions of a store in the order of their ids, those of sub-agents and archived ones included.
func Sessions(t testing.TB, r store.Reader) (all []session.Session) {
	t.Helper()
	all = List(t, r, everything)
	slices.SortFunc(all, func(x, y session.Session) int { return cmp.Compare(x.ID, y.ID) })
	return all
}

// everything selects the sessions of a store.
var everything = store.SessionQuery{Limit: -1, Children: true, Archived: true}

// List returns the sessions that a query selects.
func List(t testing.TB, r store.Reader, q store.SessionQuery) (all []session.Session) {
	t.Helper()
	for row, err := range r.Sessions(t.Context(), q) {
		testscale.Must(t, err)
		all = append(all, row)
	}
	return all
}

// Transcript returns a session of a store.
func Transcript(t testing.TB, r store.Reader, id string) *session.Transcript {
	t.Helper()
	transcript, err := r.Transcript(t.Context(), id)
	testscale.Must(t, err)
	return transcript
}

// CheckSessions runs the validator over every session of a store.
func CheckSessions(t testing.TB, r store.Reader) {
	t.Helper()
	for _, row := range Sessions(t, r) {
		for _, v := range session.Check(Transcript(t, r, row.ID)) {
			t.Errorf("session %s: %s", row.ID, v)
		}
	}
}

// SQL is a [Store] whose tables other programs can change.
type SQL interface {
	Store
	// Script executes statements, which are such as every engine understands.
	Script(statements string) error
}

// RunSQL examines what an engine that speaks SQL reads, also of rows that another program wrote. open is as in [Run],
// and what it returns is [SQL].
func RunSQL(t *testing.T, open func(t *testing.T) Store) {
	runCases(t, harness{open: open}, slices.Concat(casesOf("sql"), []testCase{
		{"pages", "However many parts have the text, each is found once, the newest first.", with(readPages)},
	}))
}

func (h *harness) script(s Store, statements string) {
	h.Helper()
	h.check(s.(SQL).Script(statements))
}

// readPages finds what is in more parts than are looked through at a time, each once and the newest first, in
// whatever order they were stored.
func readPages(h *harness, s Store) {
	h.script(s, `INSERT INTO chat_sessions(id, agent, created_at, updated_at) VALUES ('s', 'a', 1, 9);
INSERT INTO chat_messages(id, session_id, role, created_at, updated_at) VALUES ('m', 's', 'user', 1, 1)`)
	const count = 700
	var rows, want []string
	for i := range count {
		id := fmt.Sprintf("p%03d", i)
		rows = append(rows,
			fmt.Sprintf(`('%s', 'm', 's', %d, 'text', '{"type":"text","text":"needle"}', %d, 1)`, id, i, i/7))
		want = append(want, id)
	}
	slices.Reverse(rows)
	h.script(s, `INSERT INTO chat_parts(id, message_id, session_id, "index", type, data_json, created_at, updated_at)
 VALUES `+strings.Join(rows, ","))
	slices.Reverse(want)
	found, err := h.hits(s, h.args(`{"Text":"Needle"}`))
	h.check(err)
	for i := range found {
		rows[i] = found[i].PartID
	}
	h.equal("parts", rows, want)
}
