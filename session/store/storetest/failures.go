package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session/store"
)

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
	h.apply(s, append(base(), fork("s2", "s1", "a2", 50), foreignTurn(0, 0))...)
	h.check(s.Transact(h.Context(), func(tx store.Tx) error {
		for calls := 0; ; calls++ {
			b := join(assistant("s1", "a2", 21, 11), user("s1", "u4", 40), compaction("s1", "c1", 45, "u2", 9),
				rewind("u1", 60, false), annotated(annotation("tag", "good", 20, nil)), foreignTurn(0, 0), foreignTurn(0, 1),
				observed("request", "root", 5, 6, script{}, asks("call"), of("foreign-0", 0)),
				observed("orphan", "tool", 7, 8, script{}, orphan("call")))
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
	turn := []store.Batch{observed("a", "root", 0, 9000, script{}, opens, of("s1", 0))}
	for i := range n {
		turn = append(turn, observed("a", fmt.Sprintf("x%04d", i), int64(10+i), int64(11+i), script{}))
	}
	batches := []store.Batch{join(turn[:9]...), join(turn[9:]...), observed("a", "late", 1000, 1100, script{})}
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
	batches := []store.Batch{sdkTurn(0, 0), sdkTurn(0, 1), sdkTurn(1, 0)}
	const refused = "sdk-0-turn-000001" // an answer, with one part and one span
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

// sdkTurn is a turn of a session that the SDK reports.
func sdkTurn(s, n int) store.Batch {
	id, at := fmt.Sprintf("sdk-%d", s), int64(n)*1000
	name := func(what string) string { return fmt.Sprintf("%s-%s-%06d", id, what, n) }
	return join(user(id, name("user"), at), assistant(id, name("turn"), at+10, 7))
}

// foreignTurn is a turn of a session of another agent, in a trace of its own.
func foreignTurn(s, n int) store.Batch {
	id, trace, at := fmt.Sprintf("foreign-%d", s), fmt.Sprintf("trace-%d-%06d", s, n), int64(n)*1000
	return join(observed(trace, "root", at, at+500, script{Title: "a title"}, opens, of(id, 0)),
		observed(trace, "model", at+10, at+20, script{Input: 3}))
}
