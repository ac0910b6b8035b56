package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
)

// longTurn makes a turn of any number of steps: what is below the root of a turn is one step, which is repeated.
type longTurn struct {
	step, root ptrace.Traces
	length     time.Duration
}

func newLongTurn(t testing.TB) *longTurn {
	td := newAgent(t).pattern
	l := &longTurn{step: part(td, false), root: part(td, true)}
	testscale.EachSpan(l.root, func(s ptrace.Span, _ pcommon.InstrumentationScope, _ pcommon.Resource) {
		l.length = time.Duration(s.EndTimestamp() - s.StartTimestamp())
	})
	return l
}

// named are ids of calls in what the agent sent.
var named = regexp.MustCompile(`\b(call|chatcmpl|msg|fc)([_-]?)(oslo|lima|del|[0-9][0-9A-Za-z]*)\b`)

// at is the nth step.
func (l *longTurn) at(t testing.TB, n int) ptrace.Traces {
	t.Helper()
	raw, err := new(ptrace.JSONMarshaler).MarshalTraces(l.step)
	testscale.Must(t, err)
	var ids []string
	testscale.EachSpan(l.step, func(s ptrace.Span, _ pcommon.InstrumentationScope, _ pcommon.Resource) {
		id := s.SpanID().String()
		ids = append(ids, id, fmt.Sprintf("%08x%s", n+1, id[8:]))
	})
	text := strings.NewReplacer(ids...).Replace(named.ReplaceAllString(string(raw), fmt.Sprintf("${1}${2}${3}n%d", n)))
	td, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces([]byte(text))
	testscale.Must(t, err)
	after := pcommon.Timestamp(time.Duration(n) * l.length)
	testscale.EachSpan(td, func(s ptrace.Span, _ pcommon.InstrumentationScope, _ pcommon.Resource) {
		s.SetStartTimestamp(s.StartTimestamp() + after)
		s.SetEndTimestamp(s.EndTimestamp() + after)
	})
	return td
}

// deliver sends the steps from one number to below another in one request.
func (l *longTurn) deliver(t testing.TB, in *ingest.Ingester, from, to int) {
	t.Helper()
	all := ptrace.NewTraces()
	for n := from; n < to; n++ {
		l.at(t, n).ResourceSpans().MoveAndAppendTo(all.ResourceSpans())
	}
	send(t, in, all)
}

func send(t testing.TB, in *ingest.Ingester, td ptrace.Traces) {
	t.Helper()
	if _, err := in.Traces(t.Context(), td); err != nil {
		t.Fatal(err)
	}
}

// rootOf is the root of a turn of n steps.
func (l *longTurn) rootOf(n int) ptrace.Traces {
	td := ptrace.NewTraces()
	l.root.CopyTo(td)
	testscale.EachSpan(td, func(s ptrace.Span, _ pcommon.InstrumentationScope, _ pcommon.Resource) {
		s.SetEndTimestamp(s.EndTimestamp() + pcommon.Timestamp(time.Duration(n)*l.length))
	})
	return td
}

// deferring stores batches as its store does, and rebuilds nothing afterwards.
type deferring struct{ *Store }

func (d deferring) Apply(ctx context.Context, b *store.Batch) (result store.Result, err error) {
	some := *b
	some.Defer = true
	err = d.Transact(ctx, func(tx store.Tx) (err error) {
		result, err = store.Apply(tx, &some)
		return err
	})
	return result, err
}

// TestALongTurnIsRebuiltLater: what is added to a long turn is stored and marked at first, and its answer is incomplete;
// when it is rebuilt, all of it is there, also by a process that opens the store after the one that stored it has died.
func TestALongTurnIsRebuiltLater(t *testing.T) {
	l := newLongTurn(t)
	const n = 100
	path := newPath(t)
	s := open(t, path, Options{})
	in := ingest.New(deferring{s}, ingest.Options{})
	send(t, in, l.rootOf(2*n))
	l.deliver(t, in, 0, n)
	counts := func(s *Store) (parts, marks, incomplete int64) {
		for query, to := range map[string]*int64{
			`SELECT count(*) FROM chat_parts WHERE tool_call_id IS NOT NULL`:                    &parts,
			`SELECT count(*) FROM unbuilt_turns`:                                                &marks,
			`SELECT count(*) FROM chat_messages WHERE metadata_json LIKE '%"incomplete":true%'`: &incomplete,
		} {
			testscale.Must(t, run(t.Context(), s, func(tx *tx) (err error) {
				*to, err = sqlitex.ResultInt64(tx.prep(query))
				return err
			}))
		}
		return parts, marks, incomplete
	}
	rebuild := func(s *Store) {
		testscale.Must(t, ingest.New(s, ingest.Options{}).Resume(t.Context()))
		testscale.Must(t, s.Rebuild(t.Context()))
	}
	rebuild(s)
	before, _, _ := counts(s)
	send(t, in, l.at(t, n))
	if parts, marks, incomplete := counts(s); parts != before || marks != 1 || incomplete != 1 {
		t.Errorf("after a step: %d parts of %d, %d marks, %d incomplete answers", parts, before, marks, incomplete)
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	testscale.Must(t, s.Backup(t.Context(), copied))
	later := open(t, copied, Options{})
	rebuild(later)
	if parts, marks, _ := counts(later); parts != before+2 || marks != 0 {
		t.Errorf("rebuilt: %d parts of %d, %d marks", parts, before+2, marks)
	}
}
