package modelhttp_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/internal/e2e"
	"github.com/agenttrace/agenttrace/internal/testscale"
)

// BenchmarkTransport reads an answer of 400 chunks from memory, with a bare transport and with ours, so that what it
// measures is ours: the CPU time of an answer, with its request and its spans, is to be at most 1,500 µs, and the 99th
// of 100 reads is to take at most 50 µs.
func BenchmarkTransport(b *testing.B) {
	step := e2e.Step{Text: strings.Repeat("fine weather ", 4), Input: 100, Output: 400}
	script := e2e.Script{System: "s", Tools: e2e.Weather.Tools, Turns: []e2e.Turn{{User: "hi"}}}
	for _, name := range []string{"anthropic", "chat", "responses", "gemini", "bedrock converse"} {
		api := e2e.Named(name)
		kind, chunks := api.Chunks(&step, "resp_1", true)
		for at := (len(chunks) - 1) / 2; len(chunks) < 400; { // the text again and again
			chunks = slices.Insert(chunks, at, chunks[at])
		}
		path, body := api.Request(&script, 0, 0, true)
		data, err := json.Marshal(body)
		if err != nil {
			b.Fatal(err)
		}
		base := roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}}, ContentLength: -1,
				Body: &memory{chunks: chunks},
			}, nil
		})
		rec := agenttracetest.NewRecorder()
		ours := modelhttp.New(agenttrace.New(agenttrace.Options{TracerProvider: rec}),
			modelhttp.Options{Base: base, MaxConversations: 10})
		for name, rt := range map[string]http.RoundTripper{name + ", bare": base, name + ", recorded": ours} {
			b.Run(name, func(b *testing.B) {
				read := make([]byte, 32<<10)
				var took []time.Duration
				var cpu float64
				for b.Loop() {
					rec.Reset()
					before := testscale.CPUSeconds()
					req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://localhost"+path,
						bytes.NewReader(data))
					if err != nil {
						b.Fatal(err)
					}
					resp, err := rt.RoundTrip(req)
					for err == nil {
						start := time.Now()
						_, err = resp.Body.Read(read)
						took = append(took, time.Since(start))
					}
					if err != io.EOF { //nolint:errorlint // Read returns it as it is
						b.Fatal(err)
					}
					_ = resp.Body.Close()
					cpu += testscale.CPUSeconds() - before
				}
				slices.Sort(took)
				b.ReportMetric(cpu*1e6/float64(b.N), "cpu-µs/answer")
				b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "chunk-p99-µs")
			})
		}
	}
}

// memory is a body that has a chunk for each read.
type memory struct{ chunks [][]byte }

func (m *memory) Read(p []byte) (int, error) {
	if len(m.chunks) == 0 {
		return 0, io.EOF
	}
	n := copy(p, m.chunks[0])
	m.chunks = m.chunks[1:]
	return n, nil
}

func (m *memory) Close() error { return nil }
