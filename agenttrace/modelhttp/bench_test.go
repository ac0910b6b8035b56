package modelhttp_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/internal/e2e/modelserver"
)

// BenchmarkTransport reads an answer of 400 chunks from a server, with a bare transport and
// with ours. chunk-p99-µs is how long the 99th of 100 reads takes when the bytes are there:
// the time in our parser.
func BenchmarkTransport(b *testing.B) {
	step := modelserver.Step{Text: strings.Repeat("fine weather ", 4), Input: 100, Output: 400}
	for _, name := range []string{"anthropic", "chat", "gemini", "bedrock converse"} {
		api := modelserver.Named(name)
		script := modelserver.Script{System: "s", Tools: modelserver.Weather.Tools, Turns: []modelserver.Turn{{User: "hi"}}}
		kind, chunks := api.Chunks(&step, "resp_1", true)
		for len(chunks) < 400 { // the text again and again
			at := (len(chunks) - 1) / 2
			chunks = slices.Insert(chunks, at, chunks[at])
		}
		path, body := api.Request(&script, 0, 0, true)
		data, err := json.Marshal(body)
		if err != nil {
			b.Fatal(err)
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", kind)
			for _, c := range chunks {
				flush(w, c)
			}
		}))
		for _, with := range []bool{false, true} {
			b.Run(name+map[bool]string{false: ", bare", true: ", recorded"}[with], func(b *testing.B) {
				base := &http.Transport{}
				defer base.CloseIdleConnections()
				var rt http.RoundTripper = base
				rec := agenttracetest.NewRecorder()
				if with {
					rt = modelhttp.New(agenttrace.New(agenttrace.Options{TracerProvider: rec}), modelhttp.Options{Base: base})
				}
				buf := make([]byte, 32<<10)
				for b.Loop() {
					rec.Reset()
					req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, server.URL+path, bytes.NewReader(data))
					if err != nil {
						b.Fatal(err)
					}
					resp, err := rt.RoundTrip(req)
					if err != nil {
						b.Fatal(err)
					}
					for err == nil {
						_, err = resp.Body.Read(buf)
					}
					resp.Body.Close()
				}
			})
		}
		server.Close()
		b.Run(name+", parser", func(b *testing.B) { benchmarkParser(b, api, kind, chunks, path, data) })
	}
}

// benchmarkParser reads the chunks from memory, so that nothing but the parser takes time.
func benchmarkParser(b *testing.B, api *modelserver.API, kind string, chunks [][]byte, path string, data []byte) {
	rec := agenttracetest.NewRecorder()
	rt := modelhttp.New(agenttrace.New(agenttrace.Options{TracerProvider: rec}), modelhttp.Options{
		Base: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}}, ContentLength: -1,
				Body: &memory{chunks: chunks},
			}, nil
		}),
	})
	var took []time.Duration
	buf := make([]byte, 32<<10)
	for b.Loop() {
		rec.Reset()
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://localhost"+path, bytes.NewReader(data))
		if err != nil {
			b.Fatal(err)
		}
		resp, err := rt.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		for err == nil {
			start := time.Now()
			_, err = resp.Body.Read(buf)
			if took = append(took, time.Since(start)); len(took) > 100_000 {
				took = took[:0]
			}
		}
		resp.Body.Close()
	}
	slices.Sort(took)
	if len(took) > 0 {
		b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "chunk-p99-µs")
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
