package deploy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"golang.org/x/net/dns/dnsmessage"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The load balancer of docker-compose.postgres.yml, as it is, in front of two servers:
// requests of one connection reach both, and when one is killed in the middle of
// requests, senders lose nothing and the killed one gets requests again when it is back.
func TestLoadBalancer(t *testing.T) {
	binary, err := exec.LookPath("haproxy")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("haproxy is not installed")
	}
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			ports := freePorts(t)
			servers := []*server{{host: hosts[0]}, {host: hosts[1]}}
			for _, s := range servers {
				s.start(t, ports)
				t.Cleanup(s.kill)
			}
			startHAProxy(t, binary, ports)
			send := grpcSender(t, ports.grpc)
			if protocol == "http" {
				send = httpSender(ports.http)
			}
			sendAll := func(batch string, during func()) {
				t.Helper()
				var senders sync.WaitGroup
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for i := range 8 {
					senders.Go(func() {
						for j := range 25 {
							name := fmt.Sprintf("%s %d %d", batch, i, j)
							size := 10
							if j%5 == 0 {
								size = 64 << 10 // more than HAProxy can send again by itself
							}
							if err := send(ctx, name, size); err != nil {
								t.Errorf("%s: %v", name, err)
								cancel() // the others would fail in the same way
								return
							}
						}
					})
				}
				during()
				senders.Wait()
				if t.Failed() {
					t.FailNow()
				}
				stored := make(map[string]bool)
				for _, s := range servers {
					for _, name := range s.names() {
						stored[name] = true
					}
				}
				for i := range 8 {
					for j := range 25 {
						if name := fmt.Sprintf("%s %d %d", batch, i, j); !stored[name] {
							t.Errorf("%s: %s was acknowledged and is not stored", protocol, name)
						}
					}
				}
			}

			// waitFor sends until the server gets requests that it did not have before.
			waitFor := func(s *server) {
				t.Helper()
				before := len(s.names())
				for deadline := time.Now().Add(20 * time.Second); len(s.names()) == before; {
					if time.Now().After(deadline) {
						t.Fatalf("%s is ready and gets no requests", s.host)
					}
					sendAll("more", func() {})
				}
			}
			waitFor(servers[0])
			waitFor(servers[1])

			before := [...]int{len(servers[0].names()), len(servers[1].names())}
			sendAll("both", func() {})
			for i, s := range servers {
				if n := len(s.names()) - before[i]; n < 50 {
					t.Errorf("%s got %d of 200 requests", s.host, n)
				}
			}

			sendAll("killed", func() {
				time.Sleep(30 * time.Millisecond)
				servers[0].kill()
			})

			servers[0].start(t, ports)
			waitFor(servers[0])
		})
	}
}

// hosts are addresses that every Linux machine has, for servers with the same ports.
var hosts = []string{"127.0.0.2", "127.0.0.3"}

type ports struct{ grpc, http, health, names int }

// freePorts returns ports that were free on all addresses a moment ago.
func freePorts(t *testing.T) ports {
	t.Helper()
	var free []int
	for attempt := 0; len(free) < 4 && attempt < 100; attempt++ {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := l.Addr().(*net.TCPAddr).Port
		taken := false
		for _, host := range hosts {
			other, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
			if taken = taken || err != nil; err == nil {
				defer other.Close()
			}
		}
		if !taken {
			free = append(free, port)
		}
	}
	if len(free) < 4 {
		t.Fatal("no ports are free on all addresses")
	}
	return ports{free[0], free[1], free[2], free[3]}
}

// server receives OTLP as a collector does. What it acknowledged stays stored when it is
// killed, and nothing else.
type server struct {
	ptraceotlp.UnimplementedGRPCServer
	host string

	mu     sync.Mutex
	stored []string
	killed bool
	grpc   *grpc.Server
	http   *http.Server
	health *http.Server
}

func (s *server) start(t *testing.T, p ports) {
	t.Helper()
	listen := func(port int) net.Listener {
		l, err := net.Listen("tcp", net.JoinHostPort(s.host, strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed = false
	s.grpc = grpc.NewServer()
	ptraceotlp.RegisterGRPCServer(s.grpc, s)
	s.http = &http.Server{Handler: http.HandlerFunc(s.serveHTTP)}
	s.health = &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go s.grpc.Serve(listen(p.grpc))
	go s.http.Serve(listen(p.http))
	go s.health.Serve(listen(p.health))
}

// kill closes all connections at once.
func (s *server) kill() {
	s.mu.Lock()
	s.killed = true
	s.mu.Unlock()
	s.health.Close()
	s.http.Close()
	s.grpc.Stop()
}

func (s *server) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.stored...)
}

func (s *server) Export(_ context.Context, r ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	time.Sleep(5 * time.Millisecond) // the commit
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.killed {
		return ptraceotlp.NewExportResponse(), status.Error(codes.Unavailable, "killed")
	}
	s.stored = append(s.stored, r.Traces().ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Name())
	return ptraceotlp.NewExportResponse(), nil
}

func (s *server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	request := ptraceotlp.NewExportRequest()
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = request.UnmarshalProto(body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if _, err := s.Export(r.Context(), request); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// grpcSender sends spans over one connection with the exporter of the SDK.
func grpcSender(t *testing.T, port int) func(ctx context.Context, name string, size int) error {
	t.Helper()
	exporter, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithInsecure(),
		otlptracegrpc.WithEndpoint(net.JoinHostPort("127.0.0.1", strconv.Itoa(port))),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{
			Enabled: true, InitialInterval: 20 * time.Millisecond, MaxInterval: time.Second, MaxElapsedTime: 20 * time.Second,
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { exporter.Shutdown(context.Background()) })
	return func(ctx context.Context, name string, size int) error {
		return exporter.ExportSpans(ctx, tracetest.SpanStubs{{
			Name: name, Attributes: []attribute.KeyValue{attribute.String("text", strings.Repeat("x", size))},
		}}.Snapshots())
	}
}

// httpSender sends spans over HTTP, and again when OTLP demands it of a sender.
func httpSender(port int) func(ctx context.Context, name string, size int) error {
	return func(ctx context.Context, name string, size int) error {
		traces := ptrace.NewTraces()
		span := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		span.SetName(name)
		span.Attributes().PutStr("text", strings.Repeat("x", size))
		body, err := ptraceotlp.NewExportRequestFromTraces(traces).MarshalProto()
		if err != nil {
			return err
		}
		url := fmt.Sprintf("http://127.0.0.1:%d/v1/traces", port)
		var last error
		for range 100 {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
			if err != nil {
				return err
			}
			request.Header.Set("Content-Type", "application/x-protobuf")
			response, err := http.DefaultClient.Do(request)
			if err == nil {
				response.Body.Close()
				switch response.StatusCode {
				case http.StatusOK:
					return nil
				case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
					http.StatusGatewayTimeout:
					err = fmt.Errorf("status %s", response.Status)
				default:
					return fmt.Errorf("status %s", response.Status)
				}
			}
			last = err
			time.Sleep(20 * time.Millisecond)
		}
		return last
	}
}

// startHAProxy starts HAProxy with the configuration in this directory and returns when
// a server is ready.
func startHAProxy(t *testing.T, binary string, p ports) {
	t.Helper()
	serveNames(t, p.names)
	logName := filepath.Join(t.TempDir(), "haproxy.log")
	logFile, err := os.Create(logName)
	if err != nil {
		t.Fatal(err)
	}
	defer logFile.Close()
	cmd := exec.Command(binary, "-db", "-f", "haproxy.cfg")
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.Env = append(os.Environ(), "BIND=127.0.0.1", "COLLECTOR=collector",
		fmt.Sprintf("GRPC_PORT=%d", p.grpc), fmt.Sprintf("HTTP_PORT=%d", p.http),
		fmt.Sprintf("HEALTH_PORT=%d", p.health), fmt.Sprintf("NAME_SERVER=127.0.0.1:%d", p.names))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if b, _ := os.ReadFile(logName); t.Failed() {
			t.Logf("haproxy:\n%s", b)
		}
	})
	url := fmt.Sprintf("http://127.0.0.1:%d/", p.health)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if response, err := http.Get(url); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("haproxy is not ready")
		}
	}
}

// serveNames answers that the name of a collector has all hosts, as the name server of
// Docker does for a service with replicas.
func serveNames(t *testing.T, port int) {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
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
