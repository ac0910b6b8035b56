package collector

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	zombie "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// client sends requests and notes what was acknowledged.
type client struct {
	ptraceotlp.GRPCClient
	mu           sync.Mutex
	acknowledged map[string]bool
	refused      int
}

func dial(t *testing.T, endpoint string) *client {
	t.Helper()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30)))
	testscale.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	return &client{GRPCClient: ptraceotlp.NewGRPCClient(conn), acknowledged: make(map[string]bool)}
}

// send delivers the run of a session with ballast and returns whether it was acknowledged.
func (c *client) send(ctx context.Context, id string, ballast int) error {
	td := oneRun(id)
	if ballast > 0 {
		td = large(id, ballast)
	}
	_, err := c.Export(ctx, ptraceotlp.NewExportRequestFromTraces(td))
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.refused++
		return err
	}
	c.acknowledged[id] = true
	return nil
}

// load sends from four senders at once until ctx ends, and calls each after every acknowledgement.
func (c *client) load(ctx context.Context, round string, each func(n int64)) (wait func()) {
	var senders sync.WaitGroup
	var sent atomic.Int64
	for sender := range 4 {
		senders.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if c.send(ctx, fmt.Sprintf("ses_%s_%d_%d", round, sender, n), 0) != nil {
					return
				}
				each(sent.Add(1))
			}
		})
	}
	return senders.Wait
}

// until polls. What it waits for happens in another process.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(time.Minute)
	for !done() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("gave up waiting: %s", what)
		}
	}
}

// configured writes a configuration whose exporter has the options, and returns its name.
func configured(t *testing.T, endpoint, path, options string) string {
	t.Helper()
	queue := filepath.Join(filepath.Dir(path), "queue")
	testscale.Must(t, os.MkdirAll(queue, 0o700))
	name := filepath.Join(t.TempDir(), "collector.yaml")
	text := fmt.Sprintf(`
extensions: {file_storage: {directory: %q}}
receivers: {otlp: {protocols: {grpc: {endpoint: %q, max_recv_msg_size_mib: 64}}}}
exporters:
  session:
    path: %q
    retry_on_failure: {initial_interval: 50ms, max_interval: 100ms}
%s
service:
  extensions: [file_storage]
  pipelines: {traces: {receivers: [otlp], exporters: [session]}}
  telemetry: {logs: {level: info}, metrics: {level: none}}
`, queue, endpoint, path, options)
	testscale.WriteFile(t, name, text)
	return name
}

// stored returns how many of the sessions are in the store.
func stored(t *testing.T, path string, ids map[string]bool) (n int) {
	t.Helper()
	reader, err := sqlite.OpenReader(t.Context(), path)
	if err != nil {
		return 0 // not there yet
	}
	defer reader.Close()
	for id := range ids {
		if _, err := reader.Session(t.Context(), id); err == nil {
			n++
		} else if !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
	}
	return n
}

// A collector that is killed while it is written to has every request that it acknowledged, once: in the store, or in
// a queue on disk, of which what it delivers twice is stored once.
func TestKilled(t *testing.T) {
	clean(t)
	for _, queue := range []string{"", "    sending_queue: {storage: file_storage}"} {
		endpoint, path := testscale.MustAddress(), filepath.Join(t.TempDir(), "sessions.db")
		config := configured(t, endpoint, path, queue)
		all := make(map[string]bool)
		for round := range 2 {
			p := startProcess(t, "--config", config)
			c := dial(t, endpoint)
			ctx, cancel := context.WithCancel(t.Context())
			enough := make(chan struct{})
			wait := c.load(ctx, fmt.Sprint(round), func(n int64) {
				if n == 200 {
					close(enough)
				}
			})
			<-enough
			p.kill(t)
			cancel()
			wait()
			for id := range c.acknowledged {
				all[id] = true
			}
			if queue == "" {
				checkStored(t, path, all)
			}
		}
		p := startProcess(t, "--config", config)
		c := dial(t, endpoint)
		for id := range all { // all of them are sent again
			testscale.Must(t, c.send(t.Context(), id, 0))
		}
		until(t, "the queue is delivered", func() bool { return stored(t, path, all) == len(all) })
		p.stop(t)
		checkStored(t, path, all)
	}
}

// checkStored wants every session with the one span that it was made from.
func checkStored(t *testing.T, path string, ids map[string]bool) {
	t.Helper()
	reader := testscale.Open(t, sqlite.OpenReader, path)
	for id := range ids {
		if _, err := reader.Session(t.Context(), id); err != nil {
			t.Fatalf("session %s was acknowledged: %v", id, err)
		}
		links, err := reader.SpanRefs(t.Context(), id)
		if err != nil || len(links) != 1 {
			t.Fatalf("session %s has %d spans, %v; want 1", id, len(links), err)
		}
	}
}

// A collector that is asked to stop stores what it acknowledged and has not stored.
func TestStopDrains(t *testing.T) {
	clean(t)
	for _, options := range []string{"", "    sending_queue: {wait_for_result: false}",
		"    sending_queue: {enabled: false}"} {
		endpoint, path := testscale.MustAddress(), filepath.Join(t.TempDir(), "sessions.db")
		p := startProcess(t, "--config", configured(t, endpoint, path, options))
		c := dial(t, endpoint)
		ctx, cancel := context.WithCancel(t.Context())
		enough := make(chan struct{})
		wait := c.load(ctx, "0", func(n int64) {
			if n == 300 {
				close(enough)
			}
		})
		<-enough
		p.stop(t) // under load
		cancel()
		wait()
		checkStored(t, path, c.acknowledged)
	}
}

// deadline is how long the tests let a sender wait for a store that is away.
const deadline = 500 * time.Millisecond

// refusedFor wants a request not to be acknowledged while the store is away.
func refusedFor(t *testing.T, c *client, id string, ballast int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := c.send(ctx, id, ballast); err == nil {
		t.Errorf("%s was acknowledged while the store was away", id)
	} else if s, _ := status.FromError(err); s.Code() != codes.DeadlineExceeded && s.Code() != codes.Unavailable {
		t.Errorf("%s was refused with %v, after which its sender does not try again", id, err)
	}
}

// A sender gets the error within seconds when the store is away, over gRPC and HTTP, in a way
// that has it send again, and the store takes what it sends when it is back.
func TestSenderIsToldSoonThatTheStoreIsAway(t *testing.T) {
	clean(t)
	var other *zombie.Conn // of a program that was stopped while it wrote
	for name, tt := range map[string]struct {
		options  string
		away     func(t *testing.T, path string)
		back     func(t *testing.T, path string)
		ballast  int
		contains string
		within   time.Duration // 0 means 10 s
	}{
		"moved": {
			away:     func(t *testing.T, path string) { must(t, os.Rename(path, path+".away")) },
			back:     func(t *testing.T, path string) { must(t, os.Rename(path+".away", path)) },
			contains: "moved or replaced",
		},
		"replaced": {
			away: func(t *testing.T, path string) {
				must(t, os.Rename(path, path+".away"))
				must(t, os.WriteFile(path, nil, 0o600))
			},
			back:     func(t *testing.T, path string) { must(t, os.Rename(path+".away", path)) },
			contains: "moved or replaced",
		},
		"full": {
			options: ", max_size_mib: 1", ballast: 2 << 20,
			away: func(*testing.T, string) {}, back: func(*testing.T, string) {},
			contains: "raise the limit or delete sessions",
		},
		"locked": {
			away: func(t *testing.T, path string) {
				var err error
				other, err = zombie.OpenConn(path, zombie.OpenReadWrite|zombie.OpenWAL)
				must(t, err)
				must(t, sqlitex.ExecuteTransient(other, "BEGIN IMMEDIATE", nil))
			},
			back:     func(t *testing.T, _ string) { must(t, other.Close()) },
			contains: "locked", within: 30 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "sessions.db")
			grpcEndpoint, httpEndpoint := testscale.MustAddress(), testscale.MustAddress()
			config := fmt.Sprintf(`yaml:
receivers: {otlp: {protocols: {grpc: {endpoint: %q}, http: {endpoint: %q}}}}
exporters: {session: {path: %q, truncation: {max_bytes: 0}%s}}
service:
  pipelines: {traces: {receivers: [otlp], exporters: [session]}}
  telemetry: {logs: {level: error}, metrics: {level: none}}
`, grpcEndpoint, httpEndpoint, path, tt.options)
			r := started(t, Options{Config: []string{config}})
			c := dial(t, grpcEndpoint)
			testscale.Must(t, c.send(t.Context(), "ses_before", 0))
			tt.away(t, path)
			begin := time.Now()
			err := c.send(t.Context(), "ses_away", tt.ballast)
			if s, _ := status.FromError(err); s.Code() != codes.Unavailable ||
				!strings.Contains(s.Message(), tt.contains) {
				t.Errorf("refused with %v, want UNAVAILABLE and the cause", err)
			}
			if d := time.Since(begin); d > cmp.Or(tt.within, 10*time.Second) {
				t.Errorf("answered after %v", d)
			}
			body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(large("ses_http", tt.ballast))
			testscale.Must(t, err)
			resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Post(
				"http://"+httpEndpoint+"/v1/traces", "application/x-protobuf", bytes.NewReader(body))
			testscale.Must(t, err)
			resp.Body.Close()
			if resp.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("answered %s, want 503", resp.Status)
			}
			tt.back(t, path)
			if err := c.send(t.Context(), "ses_back", 0); err != nil {
				t.Errorf("after it was back: %v", err)
			}
			stop(t, r)
			checkStored(t, path, c.acknowledged)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	testscale.Must(t, err)
}

// large is the run of a session with ballast.
func large(id string, ballast int) ptrace.Traces {
	td := oneRun(id)
	span := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	span.Attributes().PutStr(string(semconv.SessionTitleKey), strings.Repeat("ballast ", ballast/8))
	return td
}

// A disk that is full, be it by a limit or in fact, takes nothing until there is room, and loses nothing that it took.
func TestStoreFull(t *testing.T) {
	clean(t)
	small := t.TempDir()
	places := map[string]struct{ dir, options string }{"limit": {t.TempDir(), "    max_size_mib: 2"}}
	// Only root may make a small disk, and on Linux alone.
	if err := exec.Command("mount", "-t", "tmpfs", "-o", "size=6m", "agenttrace", small).Run(); err == nil {
		t.Cleanup(func() { testscale.Must(t, exec.Command("umount", small).Run()) })
		places["disk"] = struct{ dir, options string }{small, ""}
	}
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			endpoint, path := testscale.MustAddress(), filepath.Join(place.dir, "sessions.db")
			p := startProcess(t, "--config", configured(t, endpoint, path, place.options))
			c := dial(t, endpoint)
			n := 0
			for full := false; !full; n++ {
				if n > 1000 {
					t.Fatal("the disk does not fill up")
				}
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				full = c.send(ctx, fmt.Sprint("ses_", n), 40_000) != nil
				cancel()
			}
			if n < 5 { // an empty store takes a part of the limit
				t.Fatalf("full after %d requests", n)
			}
			refusedFor(t, c, "ses_full", 40_000)
			checkStored(t, path, c.acknowledged)
			waits := make(chan error, 1)
			go func() { waits <- c.send(t.Context(), "ses_patient", 40_000) }()

			// A person makes room: what is deleted in a full file is used again.
			if name == "disk" {
				testscale.Must(t, exec.Command("mount", "-o", "remount,size=16m", small).Run())
			} else {
				other, err := zombie.OpenConn(path, zombie.OpenReadWrite|zombie.OpenWAL)
				testscale.Must(t, err)
				other.SetInterrupt(t.Context().Done())
				for i := range n / 2 {
					id := fmt.Sprint("ses_", i)
					for _, table := range []string{"span_refs", "session_state"} {
						testscale.Must(t, sqlitex.Execute(other, "DELETE FROM "+table+" WHERE session_id = ?",
							&sqlitex.ExecOptions{Args: []any{id}}))
					}
					testscale.Must(t, sqlitex.Execute(other, "DELETE FROM chat_sessions WHERE id = ?",
						&sqlitex.ExecOptions{Args: []any{id}}))
					c.mu.Lock()
					delete(c.acknowledged, id)
					c.mu.Unlock()
				}
				testscale.Must(t, other.Close())
			}
			if err := <-waits; err != nil {
				t.Errorf("a sender that waited for room got %v", err)
			}
			if err := c.send(t.Context(), "ses_full", 40_000); err != nil {
				t.Error(err)
			}
			p.stop(t)
			checkStored(t, path, c.acknowledged)
		})
	}
}

// A request beyond the receiver's limit is refused for good, with an error that has the reason.
func TestRequestTooLarge(t *testing.T) {
	clean(t)
	path := filepath.Join(t.TempDir(), "sessions.db")
	r := started(t, Options{Store: path})
	c := dial(t, r.Endpoint())
	err := c.send(t.Context(), "ses_large", 65<<20)
	s, _ := status.FromError(err)
	if s.Code() != codes.ResourceExhausted || !strings.Contains(s.Message(), "larger than max") ||
		!strings.Contains(s.Message(), "67108864") {
		t.Errorf("refused with %v, want words that name the limit", err)
	}
	if err := c.send(t.Context(), "ses_after", 0); err != nil {
		t.Error(err)
	}
	checkStored(t, path, c.acknowledged)
}

// An agent with a limit on parts stays below the receiver's, whatever its tools
// print, and the session notes what was cut.
func TestAgentStaysBelowLimit(t *testing.T) {
	clean(t)
	path := filepath.Join(t.TempDir(), "sessions.db")
	endpoint := testscale.MustAddress()
	p := startProcess(t, "--store", path, "--grpc-endpoint", endpoint)
	spanExporter, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithInsecure(),
		otlptracegrpc.WithEndpoint(endpoint))
	testscale.Must(t, err)
	failed := new(failures)
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(&reporting{spanExporter, failed}))
	tracer := agenttrace.New(agenttrace.Options{TracerProvider: tp, MaxPartBytes: 1 << 20})
	sess := tracer.NewSession(t.Context(), agenttrace.SessionOptions{Agent: "coder"})
	ctx, run := sess.StartRun(t.Context(), agenttrace.RunOptions{})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: strings.Repeat("question ", 1<<20)},
		agenttrace.TurnOptions{})
	_, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_1", Name: "bash",
		Input: map[string]any{"command": strings.Repeat("yes ", 4<<20)}})
	tool.End(strings.Repeat("all work and no play ", 4<<20))
	turn.End(agenttrace.TurnResult{})
	run.End(nil)
	stop(t, tp)
	p.stop(t)
	if len(failed.all) > 0 {
		t.Fatal(failed.all)
	}
	reader := testscale.Open(t, sqlite.OpenReader, path)
	transcript, err := reader.Transcript(t.Context(), sess.ID())
	if err != nil || len(transcript.Messages) != 2 {
		t.Fatalf("%d messages, %v", len(transcript.Messages), err)
	}
	for _, m := range transcript.Messages {
		for _, p := range m.Parts {
			if len(p.DataJSON) < 1<<19 || len(p.DataJSON) > 3<<20 || !strings.Contains(p.DataJSON, "__TRUNCATED__[") {
				t.Errorf("part of type %s has %d bytes and no mark", p.Type, len(p.DataJSON))
			}
			if p.ToolCallID != nil && !strings.Contains(p.DataJSON,
				fmt.Sprintf(`"truncated":true,"output_size":%d`, len("all work and no play ")<<22)) {
				t.Errorf("the tool does not note what was cut: …%s", p.DataJSON[len(p.DataJSON)-300:])
			}
		}
	}
}

type failures struct{ all []error }

// reporting is a span exporter that notes what failed.
type reporting struct {
	sdktrace.SpanExporter
	to *failures
}

func (r *reporting) ExportSpans(ctx context.Context, all []sdktrace.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, all)
	if err != nil {
		r.to.all = append(r.to.all, err)
	}
	return err
}

// What the forwarding of traces changes, the session store does not see: it gets what arrived.
func TestForwardedCopyIsItsOwn(t *testing.T) {
	clean(t)
	second := receiveAt(t)
	endpoint, path := testscale.MustAddress(), filepath.Join(t.TempDir(), "sessions.db")
	r := started(t, Options{Config: []string{fmt.Sprintf(`yaml:
receivers: {otlp: {protocols: {grpc: {endpoint: %q}}}}
processors: {agent_redaction: {}}
exporters:
  session: {path: %q, redaction: {enabled: false}}
  otlp_grpc: {endpoint: %q, tls: {insecure: true}}
service:
  pipelines:
    traces: {receivers: [otlp], exporters: [session]}
    traces/forward: {receivers: [otlp], processors: [agent_redaction], exporters: [otlp_grpc]}
  telemetry: {logs: {level: error}, metrics: {level: none}}
`, endpoint, path, second.endpoint)}})
	td := oneRun("ses_1")
	const title = "deploy with password=hunter2swordfish"
	td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Attributes().PutStr(string(semconv.SessionTitleKey),
		title)
	testscale.Must(t, send(t, endpoint, td))
	got, _ := (<-second.traces).ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Attributes().Get(
		string(semconv.SessionTitleKey))
	if want := "deploy with password=__REDACTED__"; got.Str() != want {
		t.Errorf("the second place got %q, want %q", got.Str(), want)
	}
	stop(t, r)
	reader := testscale.Open(t, sqlite.OpenReader, path)
	if s, err := reader.Session(t.Context(), "ses_1"); err != nil || s.Title != title {
		t.Errorf("the store has %q, %v", s.Title, err)
	}
}
