//go:build unix

package modelclients

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/internal/e2e/modelserver"
)

// BenchmarkClients streams an answer to each client, in turns with a bare transport and with
// ours: from memory at full speed, so that the client's own work is all that ours is compared
// with, and from a server in another process that sends 100 chunks in a second.
//
//	bare-µs    CPU time of the process for an answer, with the bare transport
//	added-µs   what recording adds to it
//	added-%    the same as a share of bare-µs
//	core-%     the same as a share of a core, if 100 chunks arrive in a second
//	floor-p99-µs, chunk-p99-µs
//	           99th percentile of what a Read takes beyond that of the body below it, with the
//	           bare transport and with ours
func BenchmarkClients(b *testing.B) {
	for _, p := range programs {
		b.Run(p.name+", in memory", func(b *testing.B) {
			kind, chunks := answer(p.api, 400)
			benchmarkClient(b, &p, "http://localhost", len(chunks), &canned{kind: kind, chunks: chunks})
		})
		b.Run(p.name+", 100 chunks a second", func(b *testing.B) {
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			benchmarkClient(b, &p, startServer(b, p.api), 200, base)
		})
	}
}

// answer returns an answer of as many chunks.
func answer(api string, n int) (kind string, chunks [][]byte) {
	step := &modelserver.Step{Text: strings.Repeat("fine weather ", 4), Input: 100, Output: 400}
	kind, chunks = modelserver.Named(api).Chunks(step, "resp_1", true)
	for at := (len(chunks) - 1) / 2; len(chunks) < n; {
		chunks = slices.Insert(chunks, at, chunks[at])
	}
	return kind, chunks
}

func benchmarkClient(b *testing.B, p *program, url string, chunks int, base http.RoundTripper) {
	script := &modelserver.Script{System: "s", Tools: modelserver.Weather.Tools, Turns: []modelserver.Turn{{User: "hi"}}}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()))
	defer func() { _ = provider.Shutdown(context.Background()) }()
	recorded := modelhttp.New(agenttrace.New(agenttrace.Options{TracerProvider: provider}), modelhttp.Options{
		Agent: "weather", Base: inner{base},
	})
	transports := [2]http.RoundTripper{inner{base}, recorded}
	var clocks [2]clock
	var cpu [2]time.Duration
	answers := 0
	for b.Loop() {
		for i := range 2 {
			with := (i + answers) % 2
			outer := &timed{transports[with], &clocks[with]}
			c := newConsole(b, script, url, true, &http.Client{Transport: outer})
			before := cpuTime(b)
			p.run(c)
			cpu[with] += cpuTime(b) - before
			if c.err != nil {
				b.Fatal(c.err)
			}
		}
		answers++
	}
	bare := float64(cpu[0].Nanoseconds()) / 1000 / float64(answers)
	added := float64((cpu[1] - cpu[0]).Nanoseconds()) / 1000 / float64(answers)
	b.ReportMetric(bare, "bare-µs")
	b.ReportMetric(added, "added-µs")
	b.ReportMetric(100*added/bare, "added-%")
	b.ReportMetric(100*added/(float64(chunks)/100*1e6), "core-%")
	b.ReportMetric(clocks[0].p99(), "floor-p99-µs")
	b.ReportMetric(clocks[1].p99(), "chunk-p99-µs")
}

// serverEnv has the API of the server that this program is then.
const serverEnv = "AGENTTRACE_MODEL_SERVER"

func TestMain(m *testing.M) {
	if api := os.Getenv(serverEnv); api != "" {
		serve(api)
		return
	}
	os.Exit(m.Run())
}

// serve prints its URL and answers until its input ends.
func serve(api string) {
	kind, chunks := answer(api, 200)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", kind)
		for _, c := range chunks {
			_, _ = w.Write(c)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	}))
	fmt.Println(server.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
	server.CloseClientConnections()
	server.Close()
}

// startServer starts a server in another process, whose CPU time does not count.
func startServer(b *testing.B, api string) (url string) {
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), program)
	cmd.Env = append(os.Environ(), serverEnv+"="+api)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	if _, err := fmt.Fscanln(out, &url); err != nil {
		b.Fatal(err)
	}
	return url
}

// cpuTime returns what the process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// clock has what the reads of a client took beyond those of the body below.
type clock struct {
	below time.Duration // of the current read
	took  []time.Duration
}

func (c *clock) p99() float64 {
	slices.Sort(c.took)
	return float64(c.took[len(c.took)*99/100].Nanoseconds()) / 1000
}

type clockKey struct{}

// timed measures the reads of a client, inner those of the body below, on the same clock.
type (
	timed struct {
		below http.RoundTripper
		clock *clock
	}
	inner struct{ http.RoundTripper }
)

func (t *timed) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.below.RoundTrip(r.WithContext(context.WithValue(r.Context(), clockKey{}, t.clock)))
	if err == nil {
		resp.Body = &timedBody{resp.Body, t.clock, false}
	}
	return resp, err
}

func (t inner) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if clock, ok := r.Context().Value(clockKey{}).(*clock); ok && err == nil {
		resp.Body = &timedBody{resp.Body, clock, true}
	}
	return resp, err
}

type timedBody struct {
	io.ReadCloser
	clock *clock
	inner bool
}

func (b *timedBody) Read(p []byte) (int, error) {
	start := time.Now()
	n, err := b.ReadCloser.Read(p)
	if took := time.Since(start); b.inner {
		b.clock.below = took
	} else {
		b.clock.took = append(b.clock.took, took-b.clock.below)
	}
	return n, err
}

// canned answers each request with the chunks, one for each read.
type canned struct {
	kind   string
	chunks [][]byte
}

func (c *canned) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {c.kind}}, ContentLength: -1,
		Body: &cannedBody{chunks: c.chunks}, Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, r.Body.Close()
}

type cannedBody struct {
	chunks [][]byte
	rest   []byte
}

func (b *cannedBody) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		if len(b.chunks) == 0 {
			return 0, io.EOF
		}
		b.rest, b.chunks = b.chunks[0], b.chunks[1:]
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *cannedBody) Close() error { return nil }
