package ingest_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// choices turns bytes into choices. At the end of the bytes it chooses zero.
type choices []byte

func (c *choices) byte() byte {
	if len(*c) == 0 {
		return 0
	}
	b := (*c)[0]
	*c = (*c)[1:]
	return b
}

func (c *choices) of(n int) int { return int(c.byte()) % n }

func (c *choices) word() string {
	return []string{"a", "b", "", "x\xff", "ses_1", "msg_1", "prt_1", "fork", "rewind", "unrewind", "archive", "finish",
		"output-available",
		"approval-requested", "allow", `{}`, `[]`, `{"a":1}`, `{"type":"text","text":"t"}`,
		strings.Repeat("9f", 32)}[c.of(20)]
}

// part is a part as a turn carries it, or nearly.
func (c *choices) part(session string) string {
	id, index := session+string('a'+c.byte()%6), string('0'+c.byte()%5)
	whole := `{"id":"` + id + `","index":` + index + []string{
		`,"type":"text","created_at":1795219200001,"updated_at":1795219200002,"data":{"type":"text","text":"hi"}}`,
		`,"type":"tool-bash","tool_call_id":"c","tool_state":"output-available","created_at":1795219200001,` +
			`"updated_at":1795219200002}`,
		`,"type":"tool-bash","created_at":0,"updated_at":0,"data":{"type":"tool-bash","toolCallId":"c",` +
			`"state":"input-available","input":{}}}`,
		`,"type":"data-compaction","created_at":1795219200001,"updated_at":1795219200001,` +
			`"data":{"type":"data-compaction","data":{"summary":"s","tail_start_id":null,"auto":false,` +
			`"summary_tokens":1}}}`,
		`,"type":"file","created_at":1,"updated_at":2,"data":{"type":"file","mediaType":"a/b","url":"u"}}`,
		`,"type":"reasoning","created_at":1795219200003,"updated_at":1795219200002,"data":{"type":"reasoning",` +
			`"text":"a\"b"}}`,
	}[c.of(6)]
	if c.of(4) == 0 {
		return whole[:c.of(len(whole))]
	}
	return whole
}

func (c *choices) value(key, session string, v pcommon.Value) {
	switch c.of(8) {
	case 0:
		v.SetInt(int64(c.byte()) - 2)
	case 1:
		v.SetInt([]int64{math.MaxInt64, math.MinInt64, 1795219200000 + int64(c.byte()), 1 << 40}[c.of(4)])
	case 2:
		v.SetDouble([]float64{0.5, -1, math.NaN(), math.Inf(1), 1e300, 3}[c.of(6)])
	case 3:
		v.SetBool(c.byte()&1 == 1)
	case 4, 5:
		v.SetStr(c.word())
	case 6:
		s := v.SetEmptySlice()
		for range c.of(4) {
			s.AppendEmpty().SetStr(c.part(session))
		}
	case 7:
		v.SetEmptyMap().PutStr(c.word(), c.word())
	}
	// Things are named within their session: an id that two sessions claim is
	// the one case where the first to come has it.
	switch key {
	case string(semconv.SessionIDKey), string(semconv.SessionIDFloorKey), string(semconv.GenAIConversationIDKey):
		v.SetStr(session)
	case string(semconv.SessionParentIDKey):
		v.SetStr(string('A' + c.byte()%3))
	default:
		if strings.HasSuffix(key, ".id") && v.Type() == pcommon.ValueTypeStr && v.Str() != "" {
			v.SetStr(session + v.Str())
		}
	}
}

// spans makes a few spans of a few sessions.
func (c *choices) spans() []ptrace.Span {
	var all []ptrace.Span
	kinds := []string{semconv.SpanSessionRun, semconv.SpanSessionTurn, semconv.SpanToolCall, semconv.SpanCompactionRun,
		semconv.SpanPermissionEvaluate, "chat m", "GET /"}
	attributes := testscale.Attributes()
	for len(*c) > 0 && len(all) < 12 {
		s := ptrace.NewSpan()
		name := kinds[c.of(len(kinds))]
		session := string('A' + c.byte()%3)
		s.SetName(name)
		s.SetTraceID(pcommon.TraceID{session[0]})
		var spanID pcommon.SpanID
		binary.BigEndian.PutUint64(spanID[:], uint64(c.of(16)))
		s.SetSpanID(spanID)
		at := uint64(1795219200000+int64(c.byte())) * 1e6
		s.SetStartTimestamp(pcommon.Timestamp(at))
		s.SetEndTimestamp(pcommon.Timestamp(at + uint64(c.byte())*1e6))
		if c.of(8) == 0 {
			s.SetStartTimestamp(0)
		}
		if c.of(8) == 0 {
			s.SetEndTimestamp(0)
		}
		s.Attributes().PutStr(string(semconv.SessionIDKey), session)
		for range c.of(12) {
			a := attributes[c.of(len(attributes))]
			c.value(string(a.Key), session, s.Attributes().PutEmpty(string(a.Key)))
		}
		all = append(all, s)
	}
	return all
}

// addRandom adds random bytes to the corpus.
func addRandom(f *testing.F, seed uint64) {
	r := rand.New(rand.NewPCG(seed, seed))
	for range testscale.Rounds(12, 60) {
		b := make([]byte, 40+r.IntN(400))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
}

// FuzzSpans: whatever spans come, they make valid sessions, and the same ones in any order.
func FuzzSpans(f *testing.F) {
	addRandom(f, 1)
	f.Fuzz(func(t *testing.T, data []byte) {
		c := choices(data)
		all := c.spans()
		if len(all) == 0 {
			return
		}
		once, refused := storeOf(t, traces(all...))
		r := rand.New(rand.NewPCG(uint64(len(data)), 9))
		var requests []ptrace.Traces
		for _, s := range shuffled(r, all) {
			requests = append(requests, traces(s))
		}
		again, refusedAgain := storeOf(t, append(requests, requests[0])...)
		if refused == 0 && refusedAgain == 0 && once != again {
			t.Fatalf("tables differ (-in one request +one by one in another order):\n%s",
				differ(once, again))
		}
	})
}

// storeOf delivers requests to a new store, checks it, and returns its rows.
func storeOf(t *testing.T, requests ...ptrace.Traces) (rows string, refused int64) {
	t.Helper()
	s := openStore(t)
	in := ingest.New(s, ingest.Options{})
	for _, td := range requests {
		report, err := in.Traces(t.Context(), td)
		testscale.Must(t, err)
		refused += report.Refused
	}
	storetest.CheckSessions(t, s)
	return dump(t, s.Path()), refused
}
