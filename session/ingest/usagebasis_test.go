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

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
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
				lines = append(lines, fmt.Sprintf("%s: %d+%d+%d in, %d+%d out, %s, %d calls", s.ID, u.Input,
					u.CacheRead,
					u.CacheWrite, u.Output, u.Reasoning,
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
	var tables string
	rounds := testscale.Rounds(5, 8)
	for seed := range rounds {
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
		deliver(t, s, order)
		if d := cmp.Diff(want, usages(t, s)); d != "" {
			t.Fatalf("order %d: usage (-want +got):\n%s", seed, d)
		}
		if seed == 0 {
			check(t, s)
		}
		got := dump(t, s.Path())
		if tables == "" {
			tables = got
		} else if got != tables {
			t.Fatalf("order %d: tables differ (-want +got):\n%s", seed,
				cmp.Diff(strings.Split(tables, "\n"), strings.Split(got, "\n")))
		}
	}
}

// agentCall is a turn of one model call, in a trace of its own, of an agent framework that
// is not known to this program.
func agentCall(service, session, model string, trace byte, from, to int, usage map[string]any) []counted {
	attrs := map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.request.model": model, "gen_ai.provider.name": "framework",
		"gen_ai.input.messages": fmt.Sprintf(`[{"role":"user","parts":[{"type":"text","content":"Question %d"}]}]`,
			trace),
		"gen_ai.output.messages": fmt.Sprintf(
			`[{"role":"assistant","parts":[{"type":"text","content":"Answer %d"}],"finish_reason":"stop"}]`, trace),
		"gen_ai.conversation.id": session,
	}
	for key, value := range usage {
		attrs["gen_ai.usage."+key] = value
	}
	turn := map[string]any{"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "Ferris",
		"gen_ai.conversation.id": session}
	return []counted{
		{service, "framework", "invoke_agent Ferris", trace, 1, 0, from, to, turn},
		{service, "framework", "chat " + model, trace, 2, 1, from + 1, to - 1, attrs},
	}
}

// libraryCall is what the library of a provider reports of a call, in a trace of its own.
func libraryCall(service, model string, trace byte, from, to int, usage map[string]any) counted {
	attrs := map[string]any{"gen_ai.operation.name": "chat", "gen_ai.request.model": model,
		"gen_ai.provider.name": "anthropic"}
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
	countedInAnyOrder(t, all, []string{"ferry-1: 100+20+0 in, 10+0 out, inclusive, 1 calls",
		"tug-1: 120+0+0 in, 10+0 out, inclusive, 1 calls"})
}

// usageOf are counts of a model call, 0 of what is not stated.
func usageOf(input, output, read, reasoning, total int) map[string]any {
	all := map[string]any{"input_tokens": input, "output_tokens": output}
	for key, n := range map[string]int{"cache_read.input_tokens": read, "reasoning_tokens": reasoning,
		"total_tokens": total} {
		if n != 0 {
			all[key] = n
		}
	}
	return all
}

// turns are turns of one call each, of an unknown framework, one after another.
func turns(session string, usages ...map[string]any) (all []counted) {
	for i, usage := range usages {
		all = append(all, agentCall("ferry", session, "pilot", byte(i+1), i*1000, i*1000+500, usage)...)
	}
	return all
}

// TestUsageBasisOfASession: where nothing shows how a source counts, all of a session is
// read alike, by what any of its counts proves, in whatever turn and order it arrives.
func TestUsageBasisOfASession(t *testing.T) {
	for _, test := range []struct {
		name  string
		spans []counted
		want  []string
	}{
		{"nothing is proven", turns("s", usageOf(100, 30, 20, 7, 0), usageOf(100, 30, 0, 0, 0),
			usageOf(60, 30, 50, 0, 90)),
			[]string{
				"s: 10+50+0 in, 30+0 out, inclusive, 1 calls", "s: 100+0+0 in, 30+0 out, inclusive, 1 calls",
				"s: 80+20+0 in, 23+7 out, inclusive, 1 calls",
			}},
		{"more cache than input", turns("s", usageOf(100, 30, 20, 7, 0), usageOf(100, 31, 0, 0, 0),
			usageOf(60, 32, 70, 0, 0)), []string{
			"s: 100+0+0 in, 31+0 out, mixed, 1 calls", "s: 100+20+0 in, 23+7 out, mixed, 1 calls",
			"s: 60+70+0 in, 32+0 out, mixed, 1 calls",
		}},
		{"a total with the cache", turns("s", usageOf(100, 30, 20, 0, 0), usageOf(100, 31, 40, 0, 171),
			usageOf(60, 32, 50, 0, 0)), []string{
			"s: 100+20+0 in, 30+0 out, mixed, 1 calls", "s: 100+40+0 in, 31+0 out, mixed, 1 calls",
			"s: 60+50+0 in, 32+0 out, mixed, 1 calls",
		}},
		{"a total with cache and reasoning", turns("s", usageOf(100, 30, 20, 7, 157), usageOf(100, 31, 40, 7, 0)),
			[]string{
				"s: 100+20+0 in, 30+7 out, exclusive, 1 calls", "s: 100+40+0 in, 31+7 out, exclusive, 1 calls",
			}},
		{"cache by one call, reasoning by another", turns("s", usageOf(10, 30, 20, 7, 0), usageOf(100, 31, 40, 7, 0),
			usageOf(100, 5, 0, 7, 0)), []string{
			"s: 10+20+0 in, 30+7 out, exclusive, 1 calls", "s: 100+0+0 in, 5+7 out, exclusive, 1 calls",
			"s: 100+40+0 in, 31+7 out, exclusive, 1 calls",
		}},
		{"a library reports one of the calls",
			slices.Concat(turns("s", usageOf(100, 30, 20, 0, 130), usageOf(101, 31, 21, 0, 132),
				usageOf(102, 32, 22, 0, 134)),
				[]counted{libraryCall("ferry", "pilot", 9, 1100, 1400, usageOf(122, 31, 21, 0, 0))}), []string{
				"s: 100+20+0 in, 30+0 out, mixed, 1 calls", "s: 101+21+0 in, 31+0 out, mixed, 1 calls",
				"s: 102+22+0 in, 32+0 out, mixed, 1 calls",
			}},
		{"another session proves it", slices.Concat(turns("s", usageOf(100, 30, 20, 0, 0)),
			agentCall("ferry", "other", "pilot", 8, 3000, 3500, usageOf(10, 30, 20, 0, 0))), []string{
			"other: 10+20+0 in, 30+0 out, mixed, 1 calls", "s: 80+20+0 in, 30+0 out, inclusive, 1 calls",
		}},
	} {
		t.Run(test.name, func(t *testing.T) { countedInAnyOrder(t, test.spans, test.want) })
	}
}

// TestUsageBasisOfALongTurn: a call in the middle of a turn of many windows proves how those
// before and after it were counted, also where the turn's own span states their sum.
func TestUsageBasisOfALongTurn(t *testing.T) {
	const steps = 24
	var all []counted
	var input, output, read int
	for i := range steps {
		usage := usageOf(100+i, 10, 20, 0, 0)
		if i == steps/2 {
			usage = usageOf(15, 10, 20, 0, 0)
		}
		input, output, read = input+usage["input_tokens"].(int), output+10, read+20
		call := agentCall("ferry", "s", "pilot", 1, i*100, i*100+50, usage)[1]
		call.span = byte(2*i + 2)
		call.attrs["gen_ai.output.messages"] = fmt.Sprintf(
			`[{"role":"assistant","parts":[{"type":"tool_call","id":"c%d","name":"scan","arguments":{}}]}]`, i)
		ran := counted{"ferry", "framework", "execute_tool scan", 1, byte(2*i + 3), 1, i*100 + 60, i*100 + 90,
			map[string]any{
				"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "scan",
				"gen_ai.tool.call.id":     fmt.Sprint("c", i),
				"gen_ai.tool.call.result": "calm",
			}}
		all = append(all, call, ran)
	}
	root := agentCall("ferry", "s", "pilot", 1, 0, steps*100, nil)[0]
	for key, n := range usageOf(input, output, read, 0, 0) {
		root.attrs["gen_ai.usage."+key] = n
	}
	countedInAnyOrder(t, append(all, root),
		[]string{fmt.Sprintf("s: %d+%d+0 in, %d+0 out, mixed, %d calls", input, read, output, steps)})
}

// TestUsageBasisOfAnUnknownClient: the same for a client that no dialect knows.
func TestUsageBasisOfAnUnknownClient(t *testing.T) {
	call := func(trace byte, from int, usage map[string]any) []counted {
		attrs := map[string]any{"acme.session.id": "s", "llm.prompt": fmt.Sprint("Question ", trace),
			"llm.response": fmt.Sprint("Answer ", trace), "llm.model": "pilot"}
		for key, n := range usage {
			attrs["acme.usage."+key] = n
		}
		return []counted{
			{"acme", "acme", "acme.turn", trace, 1, 0, from, from + 500, map[string]any{"session.id": "s"}},
			{"acme", "acme", "acme.llm.call", trace, 2, 1, from + 10, from + 490, attrs},
		}
	}
	countedInAnyOrder(t, slices.Concat(
		call(1, 0, map[string]any{"prompt_tokens": 100, "completion_tokens": 30, "cached_tokens": 20}),
		call(2, 1000, map[string]any{"prompt_tokens": 100, "completion_tokens": 31, "cached_tokens": 40,
			"total_tokens": 171}),
		call(3, 2000, map[string]any{"prompt_tokens": 100, "completion_tokens": 32}),
	), []string{
		"s: 100+0+0 in, 32+0 out, mixed, 1 calls", "s: 100+20+0 in, 30+0 out, mixed, 1 calls",
		"s: 100+40+0 in, 31+0 out, mixed, 1 calls",
	})
}

// TestUsageBasisOfAProviderOfTheAISDK: the AI SDK reports what a provider answers, whose name
// may report nothing. A call whose input has no cached tokens in it, though some were read,
// proves how the others of the provider are counted, and no other provider's.
func TestUsageBasisOfAProviderOfTheAISDK(t *testing.T) {
	call := func(trace byte, provider string, usage map[string]any) counted {
		attrs := map[string]any{
			"operation.name": "ai.generateText.doGenerate", "ai.operationId": "ai.generateText.doGenerate",
			"ai.model.provider": provider,
			"ai.model.id":       "pilot", "ai.telemetry.metadata.sessionId": "s",
			"ai.response.text":         fmt.Sprint("Answer ", trace),
			"ai.response.finishReason": "stop",
			"ai.prompt.messages": fmt.Sprintf(`[{"role":"user","content":[{"type":"text",`+
				`"text":"Question %d"}]}]`, trace),
		}
		for key, n := range usage {
			attrs["ai.usage."+key] = n
		}
		return counted{"web", "ai", "ai.generateText.doGenerate", trace, 1, 0, int(trace) * 1000, int(trace)*1000 + 500,
			attrs}
	}
	countedInAnyOrder(t, []counted{
		call(1, "harbour", map[string]any{"inputTokens": 100, "outputTokens": 30}),
		call(2, "harbour", map[string]any{
			"inputTokens": 100, "outputTokens": 31, "inputTokenDetails.noCacheTokens": 100,
			"inputTokenDetails.cacheReadTokens": 20,
		}),
		call(3, "harbour", map[string]any{"inputTokens": 100, "outputTokens": 32, "cachedInputTokens": 50}),
		call(4, "lighthouse", map[string]any{"inputTokens": 100, "outputTokens": 33, "cachedInputTokens": 50}),
	}, []string{
		"s: 100+0+0 in, 30+0 out, mixed, 1 calls", "s: 100+20+0 in, 31+0 out, mixed, 1 calls",
		"s: 100+50+0 in, 32+0 out, mixed, 1 calls",
		"s: 50+50+0 in, 33+0 out, inclusive, 1 calls",
	})
}

// TestUsageBasisOfASubagent: what a sub-agent's call proves counts for the agent above.
func TestUsageBasisOfASubagent(t *testing.T) {
	all := turns("s", usageOf(100, 30, 20, 0, 0))
	all = append(all, counted{"ferry", "framework", "execute_tool ask", 1, 3, 1, 200, 400, map[string]any{
		"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "ask", "gen_ai.tool.call.id": "c",
		"gen_ai.tool.call.result": "calm",
	}})
	for _, below := range agentCall("ferry", "", "pilot", 1, 210, 390, usageOf(10, 31, 40, 0, 0)) {
		delete(below.attrs, "gen_ai.conversation.id")
		below.span += 3
		below.parent += 3
		all = append(all, below)
	}
	got := []string{"s: 100+20+0 in, 30+0 out, mixed, 1 calls"}
	s := openStore(t)
	var requests []request
	for _, c := range all {
		requests = append(requests, c.request(t))
	}
	deliver(t, s, requests)
	lines := usages(t, s)
	if len(lines) != 2 || !slices.Contains(lines, got[0]) ||
		!strings.Contains(lines[0]+lines[1], ": 10+40+0 in, 31+0 out, mixed") {
		t.Fatalf("usage: %q", lines)
	}
	countedInAnyOrder(t, all, lines)
}

// TestUsageBasisOfTracesThatMove: a trace proves something for the session that it belongs
// to, and not for the one where it was before a better key named another.
func TestUsageBasisOfTracesThatMove(t *testing.T) {
	all := turns("s", usageOf(100, 30, 20, 0, 0), usageOf(10, 31, 40, 0, 0), usageOf(100, 32, 50, 0, 0))
	all = append(all, counted{"ferry", "framework", "execute_tool scan", 2, 9, 1, 1200, 1300, map[string]any{
		"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "scan", "session.id": "other",
	}})
	countedInAnyOrder(t, all, []string{
		"other: 10+40+0 in, 31+0 out, mixed, 1 calls", "s: 50+50+0 in, 32+0 out, inclusive, 1 calls",
		"s: 80+20+0 in, 30+0 out, inclusive, 1 calls",
	})
}
