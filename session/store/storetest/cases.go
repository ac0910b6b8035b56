package storetest

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// texts lists the texts of the visible messages of a session.
func texts(t *session.Transcript) []string {
	all := []string{}
	for _, m := range t.Messages {
		for _, p := range m.Parts {
			if _, text, ok := strings.Cut(p.DataJSON, `"text":"`); ok && m.Message.HiddenAt == nil {
				all = append(all, strings.TrimSuffix(text, `"}`))
			}
		}
	}
	return all
}

// partsOf makes a batch of parts.
func partsOf(all ...store.PartChange) store.Batch { return store.Batch{Parts: all} }

// annotation is one of a session that was made, changed or undone at a time, without an id.
func annotation(kind, name string, at int64) store.Annotation {
	return store.Annotation{SessionID: "s1", Kind: kind, Name: name, Author: "ann", CreatedAt: epoch + at,
		UpdatedAt: epoch + at}
}

// otherCases are those that no story is.
var otherCases = []testCase{
	{"retention/size", "Of a store that is too large the sessions that were updated least recently go first.",
		with(retainSize)},
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
			r := h.apply(s, partsOf(all...))
			h.equal("refused", r.Refused, int64(0))
			m := Transcript(h, s, "s1").Messages[0]
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
}

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

// retainSize deletes from a store that is too large.
func retainSize(h *harness, s Store) {
	sizer, ok := s.(store.Sizer)
	if !ok {
		return // a client of a store in another process
	}
	random := rand.New(rand.NewPCG(1, 2)) // what repeats itself is compressed
	for i, id := range []string{"old", "tagged", "parent", "new"} {
		for k := range 10 {
			m := user(id, fmt.Sprintf("%s-%d", id, k), int64(i))
			noise := make([]byte, 20_000)
			for j := range noise {
				noise[j] = byte(random.Uint32())
			}
			m.Parts[0].Data = object("type", "text", "text", hex.EncodeToString(noise))
			h.apply(s, m)
		}
	}
	h.apply(s, h.lines("session child 9 parent=parent@1", "session new 9",
		`annotation tag good 1 {"session_id":"tagged"}`))
	size, err := sizer.Size(h.Context())
	if err != nil || size < 700_000 {
		h.Fatalf("1,600 KB in hex are %d bytes, %v", size, err)
	}
	h.equal("deleted with room", h.retain(s, store.Retention{MaxSize: 2 * size}), []string(nil))
	h.equal("deleted for the size", h.retain(s, store.Retention{MaxSize: size / 10, KeepTagged: true}),
		[]string{"old", "parent", "child", "new"})
	after, err := sizer.Size(h.Context())
	if err != nil || after > size*2/3 {
		h.Errorf("of %d bytes are %d left, %v", size, after, err)
	}
}

// retain applies a retention 31 days after epoch, and returns the sessions that were deleted.
func (h *harness) retain(s Store, p store.Retention) (deleted []string) {
	h.Helper()
	now := time.UnixMilli(epoch).Add(31 * 24 * time.Hour)
	h.check(p.Apply(h.Context(), s, now, func(s session.Session) { deleted = append(deleted, s.ID) }))
	return deleted
}

// failureCases are those of an engine that fails, or refuses a row, and of turns that it builds later.
var failureCases = []testCase{
	{"failures", "When the engine fails at any of the calls that a batch takes, merging ends and returns that error.",
		with(failAtEachCall)},
	{"long-turn", "A long turn, of which only the first observations are built when they are stored, is the same when it " +
		"is rebuilt.", longTurn},
	{"refusals", "Of a batch of which the engine cannot hold a row, the rest is stored, and is what it is without the row.",
		refusedMessage},
}

func failAtEachCall(h *harness, s Store) {
	const other = "obs b root 0..500 opens of=foreign"
	h.apply(s, h.lines("base", "fork s2 s1 a2 50", other+` {"title":"a"}`, `obs b model 10..20 {"input":3}`))
	h.check(s.Transact(h.Context(), func(tx store.Tx) error {
		for calls := 0; ; calls++ {
			b := h.lines("assistant s1 a2 21 11", "user s1 u4 40", "compaction s1 c1 45 u2 9", "rewind u1 60",
				"annotation tag good 20", other+` {"title":"a"}`, `obs b model 10..20 {"input":3}`,
				"obs c root 1000..1500 opens of=foreign", "obs request root 5..6 asks=call of=foreign",
				"obs orphan tool 7..8 orphan=call")
			_, err := store.Apply(&failing{tx, calls}, &b)
			switch {
			case err == nil && calls < 3:
				return fmt.Errorf("the batch took %d calls", calls)
			case err == nil:
				return nil
			case !errors.Is(err, errFails):
				return fmt.Errorf("after %d calls: %w", calls, err)
			}
			if err := tx.Undo(); err != nil {
				return err
			}
		}
	}))
}

var errFails = errors.New("the engine fails")

// failing is a transaction that fails after some calls.
type failing struct {
	store.Tx
	calls int
}

func (f *failing) Do(add func(store.Statements)) error {
	if f.calls--; f.calls < 0 {
		return errFails
	}
	return f.Tx.Do(add)
}

func longTurn(h *harness) {
	const n = 400
	turn := []string{"obs a root 0..9000 opens of=s1"}
	for i := range n {
		turn = append(turn, fmt.Sprintf("obs a x%04d %d..%d", i, 10+i, 11+i))
	}
	batches := []store.Batch{h.lines(turn[:9]...), h.lines(turn[9:]...), h.lines("obs a late 1000..1100")}
	built := func(deferring bool) (rows string) {
		h.with(func(s Store) {
			rebuild := s.(interface{ Rebuild(context.Context) error }).Rebuild
			for i, b := range batches {
				unbuilt := h.apply(s, b).Unbuilt
				if !deferring {
					h.check(rebuild(h.Context()))
				} else if h.equal("unbuilt", unbuilt, i > 0); i > 0 {
					h.equal("parts", len(texts(Transcript(h, s, "s1"))), 9)
				}
			}
			h.check(rebuild(h.Context()))
			h.equal("parts", len(texts(Transcript(h, s, "s1"))), n+2)
			rows = h.transcripts(s)
		})
		return rows
	}
	h.equal("built later", built(true), built(false))
}

func refusedMessage(h *harness) {
	batches := []store.Batch{h.lines("user s1 u1 0", "assistant s1 a1 10 7"),
		h.lines("user s1 u2 1000", "assistant s1 a2 1010 7"), h.lines("user s2 u3 0", "assistant s2 a3 10 7")}
	const refused = "a2" // an answer, with one part and one span
	want := ""
	h.with(func(s Store) {
		b := join(batches...)
		left := func(id string) bool { return id == refused }
		b.Messages = slices.DeleteFunc(b.Messages, func(c store.MessageChange) bool { return left(c.ID) })
		b.Parts = slices.DeleteFunc(b.Parts, func(c store.PartChange) bool { return left(c.MessageID) })
		for i := range b.SpanRefs {
			if left(b.SpanRefs[i].MessageID) {
				b.SpanRefs[i].TurnStats = nil // the span is stored, and describes nothing
			}
		}
		h.apply(s, b)
		want = h.transcripts(s)
	})
	for name, order := range map[string][][]int{"one batch": {{0, 1, 2}}, "one by one": {{0}, {1}, {2}},
		"twice": {{0, 1, 2}, {2, 1, 0}}} {
		h.with(func(s Store) {
			n := int64(0)
			for _, some := range order {
				b := join(ordered(batches, some)...)
				h.check(s.Transact(context.Background(), func(tx store.Tx) error {
					result, err := store.Apply(&refuser{tx, refused}, &b)
					n += result.Refused
					return err
				}))
			}
			if name != "twice" {
				h.equal("refused "+name, n, int64(2))
			}
			h.equal("the rest "+name+", and what it is without the row", h.transcripts(s), want)
		})
	}
}

// transcripts are all sessions of a store as canonical lines.
func (h *harness) transcripts(s Store) string {
	h.Helper()
	return fmt.Sprint(Lines(h, s))
}

// Lines are all sessions of a store by id, each in the canonical format.
func Lines(t testing.TB, r store.Reader) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, row := range Sessions(t, r) {
		all[row.ID] = encoded(t, Transcript(t, r, row.ID))
	}
	return all
}

// refuser refuses to hold a message.
type refuser struct {
	store.Tx
	message string
}

func (r *refuser) Do(add func(store.Statements)) error {
	return r.Tx.Do(func(s store.Statements) { add(Refusing(s, "chat_messages", r.message)) })
}

// Refusing are statements of an engine that cannot hold new rows of a table of which one of the first two columns
// begins with a text.
func Refusing(s store.Statements, table, begins string) store.Statements {
	return refusing{s, table, begins}
}

type refusing struct {
	store.Statements
	table, begins string
}

func (r refusing) Put(refused *error, query string, args ...any) {
	begins := func(v any) bool { text, ok := v.(string); return ok && strings.HasPrefix(text, r.begins) }
	if strings.HasPrefix(query, "INSERT INTO "+r.table+"(") && (begins(args[0]) || begins(args[1])) {
		*refused = store.ErrRefused
		return
	}
	r.Statements.Put(refused, query, args...)
}
