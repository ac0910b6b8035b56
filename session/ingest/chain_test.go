package ingest_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
)

// manySpans is a request of n spans of one session. Each is the child of the one before it and within it, or alone in
// its trace and open to the end, or all begin in the same nanosecond. Of the shape "messages" it is one, asked by n.
func manySpans(shape, operation string, n int) ptrace.Traces {
	const begin = pcommon.Timestamp(1_760_000_000_000_000_000)
	td := ptrace.NewTraces()
	all := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for i := range n {
		s := all.AppendEmpty()
		s.SetName(operation + " x")
		for key, value := range map[string]string{"gen_ai.operation.name": operation, "gen_ai.conversation.id": "many",
			"gen_ai.request.model": "m", "gen_ai.response.id": fmt.Sprint("r", i), "gen_ai.tool.name": "t",
			"gen_ai.tool.call.id": fmt.Sprint("c", i)} {
			s.Attributes().PutStr(key, value)
		}
		id := pcommon.SpanID(binary.BigEndian.AppendUint64(nil, uint64(i+1)))
		s.SetSpanID(id)
		s.SetTraceID(pcommon.TraceID{0: 1})
		s.SetStartTimestamp(begin + pcommon.Timestamp(i)*1e6)
		s.SetEndTimestamp(begin + pcommon.Timestamp(2*n-i)*1e6)
		switch {
		case shape == "messages": // of the user, in a row
			const text = `,{"role":"user","parts":[{"type":"text","content":"x"}]}`
			s.Attributes().PutStr("gen_ai.input.messages", "["+strings.Repeat(text, n)[1:]+"]")
			return td
		case shape == "at once":
			s.SetStartTimestamp(begin)
		case shape == "traces":
			s.SetTraceID(pcommon.TraceID(append(id[:], id[:]...)))
		case i > 0:
			s.SetParentSpanID(pcommon.SpanID(binary.BigEndian.AppendUint64(nil, uint64(i))))
		}
	}
	return td
}

// TestCostOfManySpansInOneRequest: what a request costs grows with its size, whatever its spans are.
func TestCostOfManySpansInOneRequest(t *testing.T) {
	for shape, operation := range map[string]string{"chain": "chat", "messages": "chat", "traces": "execute_tool"} {
		t.Run(shape, func(t *testing.T) {
			testscale.Linear(t, map[bool]int{true: 500, false: 125}[shape == "messages"], func(n int) {
				td := manySpans(shape, operation, n)
				if _, err := ingest.New(openStore(t), ingest.Options{}).Traces(t.Context(), td); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestAQuestionIsBeforeItsAnswer also where a clock that was not set, or is centuries ahead, states no time.
func TestAQuestionIsBeforeItsAnswer(t *testing.T) {
	for _, at := range []pcommon.Timestamp{0, 9e18} {
		td, s := manySpans("messages", "chat", 1), openStore(t)
		span := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
		span.Attributes().PutStr("gen_ai.output.messages", `[{"role":"assistant","parts":[{"type":"text","content":"y"}]}]`)
		span.SetStartTimestamp(at)
		span.SetEndTimestamp(at)
		deliver(t, s, []request{{traces: td}})
		const roles = `SELECT group_concat(role) FROM (SELECT role FROM chat_messages ORDER BY created_at, id)`
		if got := testscale.Query(t, s.Path(), roles)[0]; got != "user,assistant" {
			t.Errorf("at %d: %s", at, got)
		}
	}
}

// batchSizes notes how many observations each transaction has.
type batchSizes struct {
	store.Writer
	sizes []int
}

func (b *batchSizes) Apply(ctx context.Context, batch *store.Batch) (store.Result, error) {
	b.sizes = append(b.sizes, len(batch.Observations))
	return b.Writer.Apply(ctx, batch)
}

// TestLargeRequestLetsOthersIn: a large request is stored in several transactions, in any order that its spans have, so
// that other senders do not wait for all of it; and all of it is there.
func TestLargeRequestLetsOthersIn(t *testing.T) {
	const n = 2500
	td := manySpans("chain", "execute_tool", n)
	td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().Sort(func(x, y ptrace.Span) bool {
		return x.StartTimestamp() > y.StartTimestamp()
	})
	s := openStore(t)
	sizes := &batchSizes{Writer: s}
	r, err := ingest.New(sizes, ingest.Options{}).Traces(t.Context(), td)
	if err == nil {
		err = s.Rebuild(t.Context())
	}
	if err != nil || r.Spans != n || r.Accepted != n {
		t.Fatalf("%+v, %v", r, err)
	}
	sum := 0
	for _, size := range sizes.sizes {
		if sum += size; size > 1024 {
			t.Errorf("a transaction of %d spans", size)
		}
	}
	if sum != n {
		t.Errorf("%d spans stored", sum)
	}
	whole := openStore(t)
	deliver(t, whole, []request{{traces: manySpans("chain", "execute_tool", n)}})
	if dump(t, s.Path()) != dump(t, whole.Path()) {
		t.Error("the tables depend on the order of the spans")
	}
}
