package ingest_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
)

// counted is a span of a program, from and to in milliseconds. A parent of 0 is none.
type counted struct {
	service, scope, name string
	trace, span, parent  byte
	from, to             int
	attrs                map[string]any
}

// request is the span as a request of its own.
func (c counted) request(t testing.TB) request {
	t.Helper()
	const begin = 1_790_000_000_000
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", c.service)
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName(c.scope)
	s := ss.Spans().AppendEmpty()
	s.SetName(c.name)
	s.SetTraceID(pcommon.TraceID{0: c.trace})
	s.SetSpanID(pcommon.SpanID{0: c.trace, 1: c.span})
	if c.parent != 0 {
		s.SetParentSpanID(pcommon.SpanID{0: c.trace, 1: c.parent})
	}
	s.SetStartTimestamp(pcommon.Timestamp((begin + c.from) * 1e6))
	s.SetEndTimestamp(pcommon.Timestamp((begin + c.to) * 1e6))
	if err := s.Attributes().FromRaw(c.attrs); err != nil {
		t.Fatal(err)
	}
	return request{traces: td}
}

// usages is a line for every answer: its session, its usage and how its source counted.
func usages(t testing.TB, r store.Reader) (lines []string) {
	t.Helper()
	for s, err := range r.Sessions(t.Context(), store.SessionQuery{Limit: -1, Children: true, Archived: true}) {
		if err != nil {
			t.Fatal(err)
		}
		transcript, err := r.Transcript(t.Context(), s.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range transcript.Messages {
			var meta session.MessageMetadata
			if err := json.Unmarshal([]byte(m.Message.MetadataJSON), &meta); err != nil {
				t.Fatal(err)
			}
			if u := meta.Usage; u != nil {
				lines = append(lines, fmt.Sprintf("%s: %d+%d+%d in, %d+%d out, %s, %d calls", s.ID, u.Input, u.CacheRead, u.CacheWrite, u.Output, u.Reasoning,
					meta.Trace.UsageBasis, meta.Trace.ModelCalls))
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// countedInAnyOrder delivers spans one by one in many orders, some of them twice, and at once,
// and compares the usage of the answers, and all tables with each other.
func countedInAnyOrder(t *testing.T, all []counted, want []string) {
	t.Helper()
	var single []request
	for _, c := range all {
		single = append(single, c.request(t))
	}
	var tables [2]string // of windows of the usual size, and of a step each
	for seed := range 24 {
		r := rand.New(rand.NewPCG(uint64(seed), 11))
		order := slices.Clone(single)
		switch seed {
		case 0:
			order = join(single)
		case 1:
		case 2:
			slices.Reverse(order)
		default:
			r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			order = append(order, order[r.IntN(len(order))])
		}
		s := openStore(t)
		in := ingest.New(s, ingest.Options{})
		if seed%2 == 1 {
			in.SetWindowSize(1)
		}
		deliverTo(t, in, order)
		if d := cmp.Diff(want, usages(t, s)); d != "" {
			t.Fatalf("order %d: usage (-want +got):\n%s", seed, d)
		}
		if seed == 0 {
			check(t, s)
		}
		got := dump(t, s.Path())
		if want := tables[seed%2]; want == "" {
			tables[seed%2] = got
		} else if got != want {
			t.Fatalf("order %d: tables differ (-want +got):\n%s", seed, cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
		}
	}
}

// agentCall is a turn of one model call, in a trace of its own, of an agent framework that
// is not known to this program.
func agentCall(service, session, model string, trace byte, from, to int, usage map[string]any) []counted {
	attrs := map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.request.model": model, "gen_ai.provider.name": "framework",
		"gen_ai.input.messages":  fmt.Sprintf(`[{"role":"user","parts":[{"type":"text","content":"Question %d"}]}]`, trace),
		"gen_ai.output.messages": fmt.Sprintf(`[{"role":"assistant","parts":[{"type":"text","content":"Answer %d"}],"finish_reason":"stop"}]`, trace),
		"gen_ai.conversation.id": session,
	}
	for key, value := range usage {
		attrs["gen_ai.usage."+key] = value
	}
	turn := map[string]any{"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "Ferris", "gen_ai.conversation.id": session}
	return []counted{
		{service, "framework", "invoke_agent Ferris", trace, 1, 0, from, to, turn},
		{service, "framework", "chat " + model, trace, 2, 1, from + 1, to - 1, attrs},
	}
}

// libraryCall is what the library of a provider reports of a call, in a trace of its own.
func libraryCall(service, model string, trace byte, from, to int, usage map[string]any) counted {
	attrs := map[string]any{"gen_ai.operation.name": "chat", "gen_ai.request.model": model, "gen_ai.provider.name": "anthropic"}
	for key, value := range usage {
		attrs["gen_ai.usage."+key] = value
	}
	return counted{service, "com.anthropic.sdk.messages", "anthropic.messages.create", trace, 1, 0, from, to, attrs}
}

// TestCallsOfProgramsThatUseOneModelAtOnce: the library's span of a call is joined to the
// call of its own program, though another program calls the same model meanwhile.
func TestCallsOfProgramsThatUseOneModelAtOnce(t *testing.T) {
	counts := func(input, output, read int) map[string]any {
		return map[string]any{"input_tokens": input, "output_tokens": output, "cache_read.input_tokens": read}
	}
	all := slices.Concat(
		agentCall("ferry", "ferry-1", "pilot", 1, 0, 500, map[string]any{"input_tokens": 120, "output_tokens": 10}),
		agentCall("tug", "tug-1", "pilot", 2, 40, 460, map[string]any{"input_tokens": 120, "output_tokens": 10}),
		[]counted{libraryCall("ferry", "pilot", 3, 100, 400, counts(120, 10, 20))},
	)
	countedInAnyOrder(t, all, []string{"ferry-1: 100+20+0 in, 10+0 out, inclusive, 1 calls", "tug-1: 120+0+0 in, 10+0 out, inclusive, 1 calls"})
}
