//go:build long

package ingest_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/postgres"
	"github.com/agenttrace/agenttrace/session/store/postgres/postgrestest"
	"github.com/agenttrace/agenttrace/session/store/storetest"
	"github.com/agenttrace/agenttrace/spans"
)

// TestManyCollectors: collectors on one database receive the telemetry of the same sessions at the same time, in any
// order and again, and store what one stores in a file, byte for byte.
func TestManyCollectors(t *testing.T) {
	all := sharedTelemetry(t)
	reference := openStore(t)
	deliver(t, reference, all)
	want := canonical(t, reference)
	// A cluster is empty before the test; each round's deliveries come to the same there.
	create := func() string { return os.Getenv("AGENTTRACE_CITUS_DSN") }
	if create() == "" {
		server := postgrestest.Start(t, "fsync = off", "synchronous_commit = off", "full_page_writes = off")
		create = func() string { return server.Create(t) }
	}
	for round, collectors := range []int{2, 4, 8} {
		t.Run(fmt.Sprint(collectors), func(t *testing.T) {
			dsn := create()
			queue := make(chan request)
			var wg sync.WaitGroup
			stores := make([]*postgres.Store, collectors)
			for i := range stores {
				// All create the tables at the same time, too.
				wg.Go(func() {
					s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
					if err != nil {
						t.Error(err)
						return
					}
					stores[i] = s
				})
			}
			wg.Wait()
			if t.Failed() {
				t.FailNow()
			}
			for _, s := range stores {
				in := ingest.New(s, ingest.Options{})
				for range 2 { // a collector receives several requests at a time
					wg.Go(func() {
						for r := range queue {
							var err error
							if r.isLogs {
								_, err = in.Logs(t.Context(), r.logs)
							} else {
								_, err = in.Traces(t.Context(), r.traces)
							}
							if err != nil {
								t.Error(err)
							}
						}
					})
				}
			}
			r := rand.New(rand.NewPCG(uint64(round), 3))
			order := append(r.Perm(len(all)), r.Perm(len(all))...)
			for _, i := range order {
				queue <- all[i]
			}
			close(queue)
			wg.Wait()
			if diff := cmp.Diff(want, canonical(t, stores[0])); diff != "" {
				t.Errorf("the sessions differ from those of one collector and a file (-want +got):\n%.4000s", diff)
			}
			for _, s := range stores {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// sharedTelemetry are requests of the SDK and of other agents: a few spans each, so that those of one session are in
// many.
func sharedTelemetry(t *testing.T) (all []request) {
	for _, dir := range []string{"claude-code-2.1.329/print-bash", "gemini-cli-0.61.0/prompt-shell",
		"vercel-ai-sdk-v7/session", "openinference-vercel-2.8.1-on-ai-v6/multistep"} {
		all = append(all, readCapture(t, "testdata/captures/"+dir)...)
	}
	r := rand.New(rand.NewPCG(5, 6))
	var spans []ptrace.Span
	for n := range 4 {
		spans = append(spans, agentSession(r, n, 4)...)
	}
	r.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
	for len(spans) > 0 {
		n := min(1+r.IntN(12), len(spans))
		all = append(all, request{traces: traces(spans[:n]...)})
		spans = spans[n:]
	}
	return all
}

// canonical are the sessions of a store by id: their lines, spans and decisions.
func canonical(t testing.TB, r store.Reader) map[string]string {
	t.Helper()
	all := storetest.Lines(t, r)
	for id := range all {
		spans, err := r.SpanRefs(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		decisions, err := r.Decisions(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		rest, err := json.Marshal([]any{spans, decisions})
		if err != nil {
			t.Fatal(err)
		}
		all[id] += string(rest)
	}
	return all
}

// filler makes n bytes that look like program output.
func filler(r *rand.Rand, n int) string {
	const words = "the quick func returns error nil while reading file main.go line value string expected got test passed "
	var b strings.Builder
	for b.Len() < n {
		i := r.IntN(len(words) - 12)
		b.WriteString(words[i : i+12])
	}
	return b.String()[:n]
}

// agentSession is the work that the targets are set for: ten turns of a 500 byte question, 1 KB of reasoning, four 3 KB
// tool calls and a 1 KB answer, with a few decisions and a compaction, as 54 spans of all five kinds.
func agentSession(r *rand.Rand, n, turns int) []ptrace.Span {
	s := newScenario()
	s.trace = uint64(n)*1_000_000 + 1
	s.next = uint64(n) * 1_000_000
	at := int64(n) * 1000 % 1_000_000_000
	begin := at
	sessionID := id(spans.PrefixSession, n, at)
	model := spans.Model{ProviderID: "openai", ModelID: "gpt-5-mini"}
	for turn := range turns {
		k := n*100_000_000 + turn*100
		user := spans.Message{ID: id(spans.PrefixMessage, k, at), CreatedAt: start + at,
			Parts: []spans.Part{textPart(k, 0, at, "text", filler(r, 500))}}
		assistant := spans.Message{ID: id(spans.PrefixMessage, k+1, at+1), CreatedAt: start + at + 1}
		assistant.Parts = append(assistant.Parts, textPart(k+1, 0, at+1, "reasoning", filler(r, 1000)))
		for call := range 4 {
			from := at + 10 + int64(call)*10
			tool := &spans.ToolCall{SessionID: sessionID, ToolID: "bash", CallID: fmt.Sprintf("call_%x", r.Uint64()),
				MessageID: assistant.ID,
				PartID:    id(spans.PrefixPart, k+10+call, from), PartIndex: ptr(int64(call + 1)),
				State: "output-available",
				Input: `{"cmd":"` + filler(r, 200) + `"}`, Output: `{"stdout":"` + filler(r, 2700) + `"}`,
				DurationMS: ptr(int64(8))}
			if turn%5 == 0 && call == 0 {
				s.add(&spans.Permission{SessionID: sessionID, ID: id(spans.PrefixPermission, k, from), ToolID: "bash",
					CallID: tool.CallID, MessageID: assistant.ID,
					PartID: tool.PartID, Pattern: "*", Action: semconv.ActionAllow, Source: semconv.SourceSession,
					Outcome: semconv.OutcomeAllowed}, from, from)
			}
			s.add(tool, from, from+8)
			assistant.Parts = append(assistant.Parts, spans.Part{ID: tool.PartID, Index: *tool.PartIndex, Type: "tool-bash",
				ToolCallID: tool.CallID, ToolState: tool.State, CreatedAt: start + from, UpdatedAt: start + from + 8})
		}
		assistant.Parts = append(assistant.Parts, textPart(k+2, 5, at+60, "text", filler(r, 1000)))
		s.add(&spans.Turn{SessionID: sessionID, Agent: "coder", Index: ptr(int64(turn)), Model: model,
			Usage: spans.Usage{Tokens: &spans.Tokens{Input: 1000, Output: 20, Reasoning: 5, CacheRead: 40},
				Basis: semconv.BasisInclusive}, ModelCalls: 2, StopReason: "stop",
			EndReason: semconv.EndFinish, DurationMS: ptr(int64(80)), SystemPromptDigest: digest("p"),
			ToolCatalogDigest: digest("c"), User: user, Assistant: assistant}, at, at+80)
		if turn%10 == 7 {
			s.add(&spans.Compaction{SessionID: sessionID, SummarizedMessages: 10,
				MessageID: id(spans.PrefixMessage, k+50, at+90), MessageCreatedAt: start + at + 90,
				PartID: id(spans.PrefixPart, k+50, at+90), Summary: filler(r, 800), SummaryTokens: 200, Auto: true,
				TailStartID: user.ID}, at+85, at+90)
		}
		at += 100
	}
	s.add(&spans.Run{SessionID: sessionID, Agent: "coder", Title: "a title", Model: model, Outcome: semconv.EndFinish,
		CreatedAt: start + begin}, begin, at)
	return s.spans
}
