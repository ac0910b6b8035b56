//go:build long

package deploy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// haproxy returns the path of the program. It is skipped only where it is not installed.
func haproxy(t *testing.T) string {
	t.Helper()
	binary, err := exec.LookPath("haproxy")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("haproxy is not installed")
	}
	return binary
}

// The load balancer of docker-compose.postgres.yml, as it is, in front of two collectors, each with a database of its
// own: requests of one connection reach both, and when one is killed in the middle of requests, senders lose nothing
// and the killed one gets requests again when it is back.
func TestLoadBalancer(t *testing.T) {
	binary, database := haproxy(t), storetest.StartPostgres(t)
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			ports := freePorts(t)
			var dsns []string
			var collectors []*exec.Cmd
			for i, host := range hosts {
				dsns = append(dsns, database.Create(t))
				collectors = append(collectors, startCollector(t, host, dsns[i], ports))
			}
			startHAProxy(t, binary, ports)
			kill := func(i int) {
				collectors[i].Process.Kill()
				collectors[i].Wait()
			}
			send := senders(t, ports)[protocol]
			// deliver sends and returns how many sessions each collector has stored.
			deliver := func(batch string, halfway func()) (stored [2]int) {
				t.Helper()
				sent, all := sendAll(t, send, batch, halfway), make(map[string]bool)
				for i, dsn := range dsns {
					ids := storedIn(t, dsn)
					stored[i] = len(ids)
					maps.Copy(all, ids)
				}
				checkStored(t, sent, all)
				return stored
			}
			// waitFor sends until the collector gets requests that it did not have before.
			waitFor := func(i int) {
				t.Helper()
				before := len(storedIn(t, dsns[i]))
				for n, deadline := 0, time.Now().Add(time.Minute); deliver(fmt.Sprint("more", before, n),
					func() {})[i] == before; n++ {
					if time.Now().After(deadline) {
						t.Fatalf("%s is ready and gets no requests", hosts[i])
					}
				}
			}
			waitFor(0)
			waitFor(1)

			before := deliver("before", func() {})
			for i, n := range deliver("both", func() {}) {
				if n -= before[i]; n < 20 { // by connections, not by load
					t.Errorf("%s got %d of 200 requests", hosts[i], n)
				}
			}

			deliver("killed", func() { kill(0) })

			collectors[0] = startCollector(t, hosts[0], dsns[0], ports)
			waitFor(0)

			kill(0)
			kill(1)
			waitHealth(t, "127.0.0.1", ports, http.StatusServiceUnavailable)
		})
	}
}

// Two collectors with the configuration of docker-compose.postgres.yml write one database. One is killed while requests
// arrive and started again, and then stopped as an update does: every session that a sender sent is in the database.
func TestCollectorsBehindLoadBalancer(t *testing.T) {
	binary := haproxy(t)
	dsn := storetest.StartPostgres(t).Create(t)
	ports := freePorts(t)
	first := startCollector(t, hosts[0], dsn, ports)
	startCollector(t, hosts[1], dsn, ports)
	startHAProxy(t, binary, ports)
	var sent []string
	for protocol, send := range senders(t, ports) {
		sent = append(sent, sendAll(t, send, protocol+"-killed", func() {
			first.Process.Kill()
			first.Wait()
		})...)
		first = startCollector(t, hosts[0], dsn, ports)
		sent = append(sent, sendAll(t, send, protocol+"-stopped", func() {
			first.Process.Signal(syscall.SIGTERM)
			if err := first.Wait(); err != nil {
				t.Errorf("a collector that is stopped: %v", err)
			}
		})...)
		first = startCollector(t, hosts[0], dsn, ports)
	}

	checkStored(t, sent, storedIn(t, dsn))
}

// sendAll sends a session per request from eight goroutines, calls halfway when half of the
// requests are acknowledged, and returns the sessions' ids when all are.
func sendAll(t *testing.T, send sender, batch string, halfway func()) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const goroutines, requests = 8, 25
	ids := make([]string, goroutines*requests)
	var acknowledged atomic.Int64
	half := make(chan struct{})
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for j := range requests {
				id := fmt.Sprintf("ses_%s_%d_%d", batch, i, j)
				size := 10
				if j%5 == 0 {
					size = 64 << 10 // more than HAProxy can send again by itself
				}
				err := send(ctx, id, size)
				if err != nil && strings.Contains(err.Error(), "without sending trailers") {
					err = nil // it was killed while it answered, which it does when all is committed
				}
				if err != nil {
					t.Errorf("%s: %v", id, err)
					cancel() // the others would fail in the same way
					return
				}
				ids[i*requests+j] = id
				if acknowledged.Add(1) == goroutines*requests/2 {
					close(half)
				}
			}
		})
	}
	select {
	case <-half:
		halfway()
	case <-ctx.Done():
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return ids
}

func checkStored(t *testing.T, ids []string, stored map[string]bool) {
	t.Helper()
	for _, id := range ids {
		if !stored[id] {
			t.Errorf("%s was acknowledged and is not stored", id)
		}
	}
}

// hosts are addresses that every Linux machine has, for servers with the same ports.
var hosts = []string{"127.0.0.2", "127.0.0.3"}

type ports struct{ grpc, http, health, names int }

// freePorts returns ports on which nobody listens on any host.
func freePorts(t *testing.T) ports {
	t.Helper()
	var free [4]int
	for i := range free {
		var err error
		if free[i], err = testscale.Port(append(hosts, "127.0.0.1")...); err != nil {
			t.Fatal(err)
		}
	}
	return ports{free[0], free[1], free[2], free[3]}
}

// storedIn returns the ids of the sessions in a database.
func storedIn(t *testing.T, dsn string) map[string]bool {
	t.Helper()
	reader, err := stores.OpenReader(t.Context(), dsn)
	testscale.Must(t, err)
	defer reader.Close()
	stored := make(map[string]bool)
	for _, s := range storetest.List(t, reader, store.SessionQuery{Limit: -1}) {
		stored[s.ID] = true
	}
	return stored
}

// startCollector runs a collector as a process of its own. It is ready when the load balancer sees it.
func startCollector(t *testing.T, host, dsn string, p ports) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	testscale.Must(t, err)
	cmd := exec.Command(self, "--config", "collector-postgres.yaml")
	at := func(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
	cmd.Env = append(os.Environ(), envCollect+"=1", "AGENTTRACE_STORE="+dsn, "AGENTTRACE_GRPC_ENDPOINT="+at(p.grpc),
		"AGENTTRACE_HTTP_ENDPOINT="+at(p.http), "AGENTTRACE_HEALTH_ENDPOINT="+at(p.health))
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	testscale.Must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("collector on %s:\n%s", host, &log)
		}
	})
	waitHealth(t, host, p, http.StatusOK)
	return cmd
}

// envCollect makes the test binary a collector.
const envCollect = "AGENTTRACE_TEST_COLLECT"

func TestMain(m *testing.M) {
	if os.Getenv(envCollect) == "" {
		os.Exit(m.Run())
	}
	if err := collector.Command("test").Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// sender sends a session with a text of a size, until it is acknowledged.
type sender func(ctx context.Context, id string, size int) error

// senders send to the load balancer, by protocol.
func senders(t *testing.T, p ports) map[string]sender {
	t.Helper()
	return map[string]sender{"grpc": grpcSender(t, p.grpc), "http": httpSender(p.http)}
}

// run is the span of a run in a session.
func run(id string, size int) tracetest.SpanStub {
	hash := sha256.Sum256([]byte(id))
	begin := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	return tracetest.SpanStub{
		Name: semconv.SpanSessionRun,
		SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID(hash[:16]), SpanID: trace.SpanID(hash[16:24]),
		}),
		StartTime: begin, EndTime: begin.Add(time.Second),
		Attributes: []attribute.KeyValue{
			semconv.SessionIDKey.String(id), semconv.AgentKey.String("test"),
			attribute.String("text", strings.Repeat("x", size)),
		},
	}
}

// grpcSender sends spans over one connection with the exporter of the SDK.
func grpcSender(t *testing.T, port int) sender {
	t.Helper()
	exporter, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithInsecure(),
		otlptracegrpc.WithEndpoint(net.JoinHostPort("127.0.0.1", strconv.Itoa(port))),
		otlptracegrpc.WithTimeout(time.Minute), // a busy machine is not what is tested
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{
			Enabled: true, InitialInterval: 20 * time.Millisecond, MaxInterval: time.Second,
			MaxElapsedTime: time.Minute,
		}))
	testscale.Must(t, err)
	t.Cleanup(func() { exporter.Shutdown(context.Background()) })
	return func(ctx context.Context, id string, size int) error {
		return exporter.ExportSpans(ctx, tracetest.SpanStubs{run(id, size)}.Snapshots())
	}
}

// httpSender sends spans over HTTP, and again when OTLP demands it of a sender.
func httpSender(port int) sender {
	url := fmt.Sprintf("http://127.0.0.1:%d/v1/traces", port)
	return func(ctx context.Context, id string, size int) error {
		traces := otlpfile.Traces(tracetest.SpanStubs{run(id, size)}.Snapshots())
		body, err := ptraceotlp.NewExportRequestFromTraces(traces).MarshalProto()
		if err != nil {
			return err
		}
		var last error
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			response, err := http.Post(url, "application/x-protobuf", bytes.NewReader(body))
			if err != nil {
				last = err
				continue
			}
			response.Body.Close()
			last = fmt.Errorf("status %s", response.Status)
			switch response.StatusCode {
			case http.StatusOK:
				return nil
			case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
				http.StatusGatewayTimeout:
			default:
				return last
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		return last
	}
}

// startHAProxy starts HAProxy with the configuration in this directory and returns when it sees a server that is ready.
func startHAProxy(t *testing.T, binary string, p ports) {
	t.Helper()
	serveNames(t, p.names)
	logName := filepath.Join(t.TempDir(), "haproxy.log")
	logFile, err := os.Create(logName)
	testscale.Must(t, err)
	defer logFile.Close()
	cmd := exec.Command(binary, "-db", "-f", "haproxy.cfg")
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.Env = append(os.Environ(), "BIND=127.0.0.1", "COLLECTOR=collector",
		fmt.Sprintf("GRPC_PORT=%d", p.grpc), fmt.Sprintf("HTTP_PORT=%d", p.http),
		fmt.Sprintf("HEALTH_PORT=%d", p.health), fmt.Sprintf("NAME_SERVER=127.0.0.1:%d", p.names))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	testscale.Must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if b, _ := os.ReadFile(logName); t.Failed() {
			t.Logf("haproxy:\n%s", b)
		}
	})
	waitHealth(t, "127.0.0.1", p, http.StatusOK)
}

// waitHealth returns when the health check of a host answers with the status.
func waitHealth(t *testing.T, host string, p ports, status int) {
	t.Helper()
	url := "http://" + net.JoinHostPort(host, strconv.Itoa(p.health))
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if response, err := http.Get(url); err == nil {
			response.Body.Close()
			if response.StatusCode == status {
				return
			}
		}
	}
	t.Fatalf("%s does not answer with status %d", url, status)
}

// serveNames answers that the name of a collector has all hosts, as the name server of
// Docker does for a service with replicas.
func serveNames(t *testing.T, port int) {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	testscale.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	go func() {
		buffer := make([]byte, 8192)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			if answer, err := answerName(buffer[:n]); err == nil {
				conn.WriteToUDPAddrPort(answer, from)
			}
		}
	}()
}

func answerName(query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	for _, q := range m.Questions {
		if q.Type != dnsmessage.TypeA {
			continue
		}
		for _, host := range hosts {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1},
				Body:   &dnsmessage.AResource{A: netip.MustParseAddr(host).As4()},
			})
		}
	}
	return m.Pack()
}
