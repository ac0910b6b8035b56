package recorder_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/internal/e2e/modelserver"
	"github.com/agenttrace/agenttrace/session/recorder"
)

// compare goes two ways in turn, without a recording and with one, and reports by how much the median and the 99th of
// 100 durations of the second exceed those of the first. The target is 1,000 µs for the latter.
// In between, rest waits as an agent does, which runs a tool, until what passed is recorded.
func compare(b *testing.B, without, with func() []time.Duration, rest func()) {
	var direct, recorded []time.Duration
	for b.Loop() {
		direct = append(direct, without()...)
		recorded = append(recorded, with()...)
		rest()
	}
	slices.Sort(direct)
	slices.Sort(recorded)
	for _, p := range []int{50, 99} {
		at := func(all []time.Duration) float64 { return float64(all[len(all)*p/100].Nanoseconds()) / 1000 }
		b.ReportMetric(at(direct), fmt.Sprintf("direct-p%d-µs", p))
		b.ReportMetric(at(recorded)-at(direct), fmt.Sprintf("extra-p%d-µs", p))
	}
	b.ReportMetric(0, "ns/op") // of both ways
}

// BenchmarkProxy is what a request and its answer take longer through the proxy that agenttrace run starts, without the
// time for which the model thinks, and what an event of a streamed answer does.
func BenchmarkProxy(b *testing.B) {
	api := modelserver.Named("chat")
	step := modelserver.Step{Text: strings.Repeat("fine weather ", 4), Input: 100, Output: 400}
	got, wrote, read := make(chan time.Time, 1), make(chan time.Time, 1), make(chan bool)
	thought := make(chan bool, 1) // the model takes longer than the recording of the request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- time.Now()
		<-thought
		streamed := strings.Contains(string(body), `"stream":true`)
		kind, chunks := api.Chunks(&step, "resp_1", streamed)
		w.Header().Set("Content-Type", kind)
		if !streamed {
			wrote <- time.Now()
			_, _ = w.Write(chunks[0])
			return
		}
		for event := range bytes.SplitAfterSeq(bytes.Join(chunks, nil), []byte("\n\n")) {
			if len(event) > 0 {
				wrote <- time.Now()
				_, _ = w.Write(event)
				_ = http.NewResponseController(w).Flush()
				<-read
			}
		}
	}))
	defer server.Close()
	rec := open(b, recorder.Options{})
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(rec.SpanExporter(), sdktrace.WithBatchTimeout(100*time.Millisecond)))
	calls := &recorder.Calls{Base: recorder.NewTransport()}
	record := modelhttp.New(agenttrace.New(agenttrace.Options{TracerProvider: provider, Now: calls.Now}),
		modelhttp.Options{Now: calls.Now}).Middleware()
	calls.Record = func(r *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		return record(r, func(r *http.Request) (*http.Response, error) {
			thought <- true
			return next(r)
		})
	}
	u, _ := url.Parse(server.URL)
	proxy := httptest.NewServer(recorder.Proxy([]recorder.Upstream{{URL: u}}, calls))
	defer proxy.Close()
	rest := func() {
		calls.Close()
		if err := provider.ForceFlush(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	// A conversation has 20 turns and, at its end, 20 kB, or 200 kB.
	asked, history, weathers := 0, "", 0
	ask := func(base, form string) *http.Response {
		const turns = 20
		if n := asked / 2; asked%2 == 0 {
			if n%turns == 0 {
				history = fmt.Sprintf(`{"role":"system","content":"You are conversation %d."}`, n)
			} else {
				history += fmt.Sprintf(`,{"role":"assistant","content":%q}`, step.Text)
			}
			history += fmt.Sprintf(`,{"role":"user","content":"%d: %s"}`, n, strings.Repeat("how is the weather? ", weathers))
		}
		if asked++; base == server.URL {
			thought <- true
		}
		request := fmt.Sprintf(`{"model":"m"%s,"messages":[%s]}`, form, history)
		resp, err := http.Post(base+"/v1/chat/completions", "application/json", strings.NewReader(request))
		if err != nil {
			b.Fatal(err)
		}
		return resp
	}
	short := func(base string) func() []time.Duration {
		return func() []time.Duration {
			start := time.Now()
			resp := ask(base, "")
			_, _ = io.Copy(io.Discard, resp.Body)
			end := time.Now()
			_ = resp.Body.Close()
			return []time.Duration{(<-got).Sub(start) + end.Sub(<-wrote)}
		}
	}
	events := func(base string) func() []time.Duration {
		return func() (took []time.Duration) {
			resp := ask(base, `,"stream":true`)
			<-got
			defer resp.Body.Close()
			for lines := bufio.NewReader(resp.Body); ; {
				line, err := lines.ReadString('\n')
				if err != nil {
					return took
				}
				if line == "\n" {
					took = append(took, time.Since(<-wrote))
					read <- true
				}
			}
		}
	}
	for _, kB := range []int{20, 200} {
		asked, weathers = 0, kB*5/2
		b.Run(fmt.Sprintf("short-%d-kB", kB), func(b *testing.B) { compare(b, short(server.URL), short(proxy.URL), rest) })
		b.Run(fmt.Sprintf("streamed-%d-kB", kB), func(b *testing.B) { compare(b, events(server.URL), events(proxy.URL), rest) })
	}
	if err := provider.Shutdown(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := rec.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPipe is what a line there and back takes longer, with a program that echoes.
func BenchmarkPipe(b *testing.B) {
	file, err := os.Create(filepath.Join(b.TempDir(), "acp.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	in, to, _ := os.Pipe()
	from, out, _ := os.Pipe()
	p := recorder.Pipe{Cmd: exec.Command("cat"), In: in, Out: out, Queue: recorder.NewQueue(recorder.NewTrace(file).Record)}
	done := make(chan error)
	go func() { done <- p.Run() }()
	cmd := exec.Command("cat")
	plainTo, _ := cmd.StdinPipe()
	plainFrom, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	line := []byte(strings.Repeat("x", 200) + "\n")
	ask := func(to io.Writer, from io.Reader) func() []time.Duration {
		answers := bufio.NewReader(from)
		return func() []time.Duration {
			start := time.Now()
			if _, err := to.Write(line); err != nil {
				b.Fatal(err)
			}
			if _, err := answers.ReadSlice('\n'); err != nil {
				b.Fatal(err)
			}
			return []time.Duration{time.Since(start)}
		}
	}
	compare(b, ask(plainTo, plainFrom), ask(to, from), func() {})
	_, _ = plainTo.Close(), to.Close()
	_ = cmd.Wait()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	p.Queue.Close()
}
