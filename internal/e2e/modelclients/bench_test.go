//go:build unix

package modelclients

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/internal/e2e/modelserver"
)

// BenchmarkClients has conversations with streamed answers through each client, with a bare
// transport and with ours. The server is another process, behind TLS and HTTP/2 on loopback, and
// flushes each chunk, as providers do. At full speed a conversation asks four questions, so that
// requests have a history that grows; of 50 conversations at a time, each asks one, without and
// with 64 MB that the agent has in its heap.
//
// An iteration is a pair: both transports at the same time, each in a process of its own, so that what
// changes while the benchmark runs concerns both alike. CPU time is that of these processes, user
// and system. Every few pairs the processes are others, whose memory lies elsewhere.
//
//	bare-µs     median CPU time for an answer with the bare transport
//	added-µs    median of the differences in the pairs
//	added-%     median of the ratios in the pairs
//	q1-%, q3-%  the quartiles of the ratios: the noise of the machine
//
// Run it with -benchtime 20x or more. With -cpuprofile, the last processes add bare and recorded to the
// name of the file.
func BenchmarkClients(b *testing.B) {
	for _, p := range programs {
		for _, chunks := range []int{300, 1000, 2000} {
			b.Run(fmt.Sprintf("%s, %d chunks at full speed", p.name, chunks), func(b *testing.B) {
				benchmarkPairs(b, startServer(b, p.api, chunks, 0), clientConfig{Program: p.name, Turns: 4, Streams: 1})
			})
		}
		for _, heap := range []int{0, 64} {
			b.Run(fmt.Sprintf("%s, 50 streams of 100 chunks a second, %d MB", p.name, heap), func(b *testing.B) {
				url := startServer(b, p.api, 300, 10*time.Millisecond)
				benchmarkPairs(b, url, clientConfig{Program: p.name, Turns: 1, Streams: 50, HeapMB: heap})
			})
		}
	}
}

// pairsPerProcess is how many pairs a process has, after one that does not count.
const pairsPerProcess = 5

// benchmarkPairs compares the CPU time of the configuration without and with a recorder.
func benchmarkPairs(b *testing.B, url string, c clientConfig) {
	c.URL = url
	var clients [2]*process
	var bare, added, ratios []float64
	for b.Loop() {
		if len(bare)%pairsPerProcess == 0 {
			for with := range clients {
				clients[with].stop()
				c.With = with
				clients[with] = startClient(b, c)
			}
			converse(b, clients)
		}
		took := converse(b, clients)
		bare, added = append(bare, took[0]), append(added, took[1]-took[0])
		ratios = append(ratios, 100*(took[1]/took[0]-1))
	}
	for _, client := range clients {
		client.stop()
	}
	b.ReportMetric(quantile(bare, 0.5), "bare-µs")
	b.ReportMetric(quantile(added, 0.5), "added-µs")
	b.ReportMetric(quantile(ratios, 0.5), "added-%")
	b.ReportMetric(quantile(ratios, 0.25), "q1-%")
	b.ReportMetric(quantile(ratios, 0.75), "q3-%")
}

// converse has both clients converse at the same time, and returns what an answer took each.
func converse(b *testing.B, clients [2]*process) (took [2]float64) {
	for _, c := range clients {
		if _, err := fmt.Fprintln(c.in); err != nil {
			b.Fatal(err)
		}
	}
	for with, c := range clients {
		for took[with] == 0 && c.out.Scan() {
			// Other lines are what package testing prints.
			_, _ = fmt.Sscanf(c.out.Text(), tookFormat, &took[with])
		}
		if took[with] == 0 {
			b.Fatalf("the client with the transport %s has ended: %v", transports[with], c.out.Err())
		}
	}
	return took
}

// BenchmarkChunks measures how much longer the reads of a client take than those of the body
// below the transport, at 100 chunks a second, with five streams through the bare transport and
// five through ours at the same time. Both are measured alike, so what the bare transport shows
// is the clock and the machine.
func BenchmarkChunks(b *testing.B) {
	for _, p := range programs {
		b.Run(p.name, func(b *testing.B) {
			url := startServer(b, p.api, 300, 10*time.Millisecond)
			var clocks [2]clock
			pair := newPair(b, &clocks)
			for b.Loop() {
				var all sync.WaitGroup
				for with := range 2 {
					all.Go(func() { pair.converse(b, &p, url, 1, 5, with) })
				}
				all.Wait()
			}
			for with, name := range transports {
				b.ReportMetric(quantile(clocks[with].took, 0.5), name+"-p50-µs")
				b.ReportMetric(quantile(clocks[with].took, 0.99), name+"-p99-µs")
			}
		})
	}
}

// transports are the names of those of a pair.
var transports = [...]string{"bare", "recorded"}

// pair has the same connection to a server with and without a recorder: index 1 and 0.
type pair struct {
	transports [2]http.RoundTripper
	asked      atomic.Int64
}

func newPair(b *testing.B, clocks *[2]clock) *pair {
	// The certificate of these servers is always the same: this one is only asked for it.
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	base := &http.Transport{
		TLSClientConfig: server.Client().Transport.(*http.Transport).TLSClientConfig.Clone(), ForceAttemptHTTP2: true,
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()))
	b.Cleanup(func() {
		base.CloseIdleConnections()
		_ = provider.Shutdown(context.Background())
	})
	below := http.RoundTripper(base)
	if clocks != nil {
		below = inner{base}
	}
	recorded := modelhttp.New(agenttrace.New(agenttrace.Options{TracerProvider: provider}), modelhttp.Options{
		Agent: "weather", Base: below,
	})
	pair := &pair{transports: [2]http.RoundTripper{below, recorded}}
	for with := range pair.transports {
		if clocks != nil {
			pair.transports[with] = &timed{pair.transports[with], &clocks[with]}
		}
	}
	return pair
}

// spread is between the beginnings of streams that go on at a time. Their chunks come at 50 times within the 10 ms
// between two of one, as those of independent users do: how many come together decides what they cost.
const spread = 2200 * time.Microsecond

// converse has as many conversations at a time. No two of all have the same text.
func (p *pair) converse(b *testing.B, program *program, url string, turns, streams, with int) {
	var all sync.WaitGroup
	for i := range streams {
		all.Go(func() {
			time.Sleep(time.Duration(i) * spread)
			script := &modelserver.Script{System: strings.Repeat(prose, 4), Tools: modelserver.Weather.Tools}
			for range turns {
				script.Turns = append(script.Turns,
					modelserver.Turn{User: fmt.Sprintf("%d. %s", p.asked.Add(1), prose)})
			}
			c := newConsole(b, script, url, true, &http.Client{Transport: p.transports[with]})
			program.run(c)
			if c.err != nil {
				b.Error(c.err)
			}
		})
	}
	all.Wait()
}

func quantile(all []float64, q float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[int(q*float64(len(all)-1))]
}

// prose is a text of an agent, in whole pieces of an answer.
const prose = "I looked at session/store/sqlite first: the writer holds its lock from the first row to the commit, " +
	"so a reader that begins meanwhile sees the rows of before. Three tests depend on that.\n\n```go\n" +
	"func (w *writer) commit(ctx context.Context) error {\n\treturn w.conn.Exec(ctx, \"COMMIT\")\n}\n```\n\n" +
	"With a second connection the order is another one, and \"busy\" is what callers get; they should try again " +
	"after 50 ms. Shall I change the writer, or only those tests, and keep the rest for later?  \n"

const pieceSize = 40

// answer returns an answer whose text comes in as many pieces.
func answer(api *modelserver.API, id string, n int) (kind string, chunks [][]byte) {
	piece := func(i int) string {
		at := i % (len(prose) / pieceSize) * pieceSize
		return prose[at : at+pieceSize]
	}
	var text strings.Builder
	for i := range n {
		text.WriteString(piece(i))
	}
	step := modelserver.Step{Text: text.String(), Input: 100, Output: 400}
	kind, whole := api.Chunks(&step, id, true)
	step.Text = prose
	_, other := api.Chunks(&step, id, true)
	at := 0 // there and next are the halves of the text
	for bytes.Equal(whole[at], other[at]) {
		at++
	}
	chunks = whole[:at:at]
	for i := range n {
		step.Text = piece(i) + piece(i)
		_, small := api.Chunks(&step, id, true)
		if i < n-1 {
			chunks = append(chunks, small[at])
		} else {
			chunks = append(chunks, small[at+1])
		}
	}
	return kind, append(chunks, whole[at+2:]...)
}

// process is this program as a server or a client, which ends when its input does.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startProcess(b *testing.B, env string, args ...string) *process {
	p := &process{cmd: exec.CommandContext(b.Context(), os.Args[0], args...)}
	p.cmd.Env = append(os.Environ(), env)
	p.cmd.Stderr = os.Stderr
	in, inErr := p.cmd.StdinPipe()
	out, outErr := p.cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		b.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	p.in, p.out = in, bufio.NewScanner(out)
	return p
}

// stop ends the process, if there is one.
func (p *process) stop() {
	if p != nil {
		_ = p.in.Close()
		for p.out.Scan() {
			continue // what package testing prints
		}
		_ = p.cmd.Wait()
	}
}

// clientConfig is what a client does: as many concurrent conversations of as many turns.
type clientConfig struct {
	Program, URL   string
	Turns, Streams int
	With           int // the index in transports
	// HeapMB is the heap of the agent itself. Without one, what a recorder keeps is much of the heap: so the garbage
	// collector runs less often with it than without.
	HeapMB int
}

const (
	// clientEnv has the configuration of the client that this program is then.
	clientEnv = "AGENTTRACE_MODEL_CLIENT"
	// tookFormat has the CPU time of an answer, in µs.
	tookFormat = "took %f"
)

func startClient(b *testing.B, config clientConfig) *process {
	encoded, err := json.Marshal(config)
	if err != nil {
		b.Fatal(err)
	}
	args := []string{"-test.run", "^$", "-test.bench", "^BenchmarkOneClient$", "-test.benchtime", "1x"}
	if f := flag.Lookup("test.cpuprofile"); f != nil && f.Value.String() != "" {
		args = append(args, "-test.cpuprofile", f.Value.String()+"."+transports[config.With])
	}
	return startProcess(b, clientEnv+"="+string(encoded), args...)
}

// BenchmarkOneClient is a client of [BenchmarkClients]: it converses for each line that it reads.
func BenchmarkOneClient(b *testing.B) {
	config := os.Getenv(clientEnv)
	if config == "" {
		b.Skip("BenchmarkClients runs it")
	}
	var c clientConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		b.Fatal(err)
	}
	p := programs[slices.IndexFunc(programs, func(p program) bool { return p.name == c.Program })]
	var heap [][]byte
	for range 3 { // after which the process has all the memory that it needs
		heap = nil
		for range c.HeapMB << 8 {
			heap = append(heap, bytes.Repeat([]byte{1}, 4<<10))
		}
	}
	defer runtime.KeepAlive(heap)
	pair := newPair(b, nil)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		before := cpuTime(b)
		pair.converse(b, &p, c.URL, c.Turns, c.Streams, c.With)
		fmt.Printf("\n"+tookFormat+"\n", float64((cpuTime(b)-before).Microseconds())/float64(c.Turns*c.Streams))
	}
}

// serverEnv has what the server answers that this program is then.
const serverEnv = "AGENTTRACE_MODEL_SERVER"

func TestMain(m *testing.M) {
	if config := os.Getenv(serverEnv); config != "" {
		serve(config)
		return
	}
	os.Exit(m.Run())
}

// serve prints its URL and answers until its input ends.
func serve(config string) {
	var n int
	var pause time.Duration
	var name string
	if _, err := fmt.Sscanf(config, "%d %d %q", &n, &pause, &name); err != nil {
		panic(err) // startServer wrote it
	}
	var answers atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		kind, chunks := answer(modelserver.Named(name), fmt.Sprintf("resp_%012d", answers.Add(1)), n)
		w.Header().Set("Content-Type", kind)
		for _, c := range chunks {
			_, _ = w.Write(c)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(pause)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	fmt.Println(server.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
	server.CloseClientConnections()
	server.Close()
}

// startServer starts a server in another process, whose CPU time does not count. Its answers have
// as many chunks.
func startServer(b *testing.B, api string, chunks int, pause time.Duration) (url string) {
	p := startProcess(b, fmt.Sprintf("%s=%d %d %q", serverEnv, chunks, pause, api))
	b.Cleanup(p.stop)
	if !p.out.Scan() {
		b.Fatalf("the server has ended: %v", p.out.Err())
	}
	return p.out.Text()
}

// cpuTime returns what the process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// clock has what the reads of clients took beyond those of the body below, in µs.
type clock struct {
	mu   sync.Mutex
	took []float64
}

type belowKey struct{}

// timed measures the reads of a client, inner those of the body below, by the same clock.
type (
	timed struct {
		below http.RoundTripper
		clock *clock
	}
	inner struct{ http.RoundTripper }
)

func (t *timed) RoundTrip(r *http.Request) (*http.Response, error) {
	below := new(time.Duration) // what the current read took there
	resp, err := t.below.RoundTrip(r.WithContext(context.WithValue(r.Context(), belowKey{}, below)))
	if err == nil {
		resp.Body = &timedBody{resp.Body, below, t.clock}
	}
	return resp, err
}

func (t inner) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if below, ok := r.Context().Value(belowKey{}).(*time.Duration); ok && err == nil {
		resp.Body = &timedBody{resp.Body, below, nil}
	}
	return resp, err
}

type timedBody struct {
	io.ReadCloser
	below *time.Duration
	clock *clock // nil of the body below
}

func (b *timedBody) Read(p []byte) (int, error) {
	start := time.Now()
	n, err := b.ReadCloser.Read(p)
	took := time.Since(start)
	if b.clock == nil {
		*b.below = took
		return n, err
	}
	b.clock.mu.Lock()
	defer b.clock.mu.Unlock()
	b.clock.took = append(b.clock.took, float64((took-*b.below).Nanoseconds())/1000)
	return n, err
}
