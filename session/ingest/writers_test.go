//go:build long

package ingest_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/postgres"
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
		server := storetest.StartPostgres(t, "fsync = off", "synchronous_commit = off", "full_page_writes = off")
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
							if _, err := r.to(t.Context(), in); err != nil {
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
	s := newScenario()
	for n := range 4 {
		s.run(id(spans.PrefixSession, n, 0), 10*n, 4, int64(1000*n))
	}
	rest := shuffled(r, s.spans)
	for len(rest) > 0 {
		n := min(1+r.IntN(12), len(rest))
		all = append(all, request{traces: traces(rest[:n]...)})
		rest = rest[n:]
	}
	return all
}

// canonical are the sessions of a store by id: their lines, spans and decisions.
func canonical(t testing.TB, r store.Reader) map[string]string {
	t.Helper()
	all := storetest.Lines(t, r)
	for id := range all {
		spans, err := r.SpanRefs(t.Context(), id)
		testscale.Must(t, err)
		decisions, err := r.Decisions(t.Context(), id)
		testscale.Must(t, err)
		rest, err := json.Marshal([]any{spans, decisions})
		testscale.Must(t, err)
		all[id] += string(rest)
	}
	return all
}
