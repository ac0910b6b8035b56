package ingest_test

import (
	"sync"
	"testing"

	"github.com/agenttrace/agenttrace/session/ingest"
)

// TestConcurrent: deliveries at the same time, of spans and of records, of the
// same sessions and again, come to what they come to one after another.
func TestConcurrent(t *testing.T) {
	var all []request
	for _, dir := range []string{"claude-code-2.1.329/print-bash", "gemini-cli-0.61.0/prompt-shell",
		"vercel-ai-sdk-v7/session", "openinference-vercel-2.8.1-on-ai-v6/multistep"} {
		all = append(all, readCapture(t, "testdata/captures/"+dir)...)
	}
	reference := openStore(t)
	deliver(t, reference, all)

	s := openStore(t)
	in := ingest.New(s, ingest.Options{})
	var wg sync.WaitGroup
	for range 2 {
		for _, r := range all {
			wg.Go(func() {
				if _, err := r.to(t.Context(), in); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if want, got := dump(t, reference.Path()), dump(t, s.Path()); got != want {
		t.Error("the tables differ from those of deliveries one after another")
	}
}
