package collector_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/extension/sessionview"
	"github.com/agenttrace/agenttrace/internal/freeport"
)

// BenchmarkIngestBesideReaders stores telemetry at full speed, alone and while sessions of the same store are read:
// 200 readers, each of which asks for the next page as soon as it has one, and 50 that follow a session; and by clients
// that take their answers a byte at a time, send half of a request, or send what is none. Readers run in this process,
// so their own work counts against the collector.
func BenchmarkIngestBesideReaders(b *testing.B) {
	bodies, spanCount, _ := agentRequests(2000)
	seed, _, _ := agentRequests(40)
	for _, peer := range []struct {
		name string
		read func(ctx context.Context, r *readers)
	}{
		{"alone", func(context.Context, *readers) {}},
		{"200 readers and 50 followers", func(ctx context.Context, r *readers) {
			for i := range 200 {
				r.Go(func() { r.pages(ctx, i) })
			}
			for i := range 50 {
				r.Go(func() { r.follow(ctx, i) })
			}
		}},
		{"200 slow, half and malformed requests", func(ctx context.Context, r *readers) {
			for i := range 200 {
				r.Go(func() { r.misbehave(ctx, i) })
			}
		}},
	} {
		b.Run(peer.name, func(b *testing.B) {
			var answers float64
			for range b.N {
				b.StopTimer()
				otlp, view := freeport.MustAddress(), freeport.MustAddress()
				path := filepath.Join(b.TempDir(), "s.db")
				c, err := collector.Start(b.Context(), collector.Options{Config: []string{"yaml:" + fmt.Sprintf(`
extensions: {session_view: {endpoint: %q}}
receivers: {otlp: {protocols: {grpc: {endpoint: %q, max_recv_msg_size_mib: 64}}}}
exporters: {session: {path: %q}}
service:
  extensions: [session_view]
  pipelines: {traces: {receivers: [otlp], exporters: [session]}}
  telemetry: {logs: {level: error}, metrics: {level: none}}
`, view, otlp, path)}})
				if err != nil {
					b.Fatal(err)
				}
				send(b, otlp, seed, 4)
				r := newReaders(b, view, path)
				ctx, cancel := context.WithCancel(b.Context())
				peer.read(ctx, r)
				time.Sleep(200 * time.Millisecond) // the readers have begun
				before := r.answers.Load()
				b.StartTimer()
				send(b, otlp, bodies, 4)
				b.StopTimer()
				answers += float64(r.answers.Load() - before)
				cancel()
				r.Wait()
				r.client.CloseIdleConnections()
				if err := c.Shutdown(context.Background()); err != nil {
					b.Error(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(spanCount)*float64(b.N)/b.Elapsed().Seconds(), "spans/s")
			b.ReportMetric(answers/b.Elapsed().Seconds(), "answers/s")
		})
	}
}

// readers read the sessions of a collector.
type readers struct {
	sync.WaitGroup
	address  string
	key      string // the header Authorization, with the key of the store
	client   *http.Client
	sessions []string
	answers  atomic.Int64
}

func newReaders(b *testing.B, address, store string) *readers {
	b.Helper()
	key, err := sessionview.Key(store)
	if err != nil {
		b.Fatal(err)
	}
	r := &readers{address: address, key: "Bearer " + key,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 300}}}
	resp, err := r.ask(b.Context(), "/sessions")
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`href="/s/(ses_[0-9A-Za-z]+)"`).FindAllSubmatch(page, -1) {
		r.sessions = append(r.sessions, string(match[1]))
	}
	if len(r.sessions) == 0 {
		b.Fatal("the list has no sessions")
	}
	return r
}

func (r *readers) ask(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.address+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", r.key)
	return r.client.Do(req)
}

// get reads an answer to its end. Answers that are errors count for nothing.
func (r *readers) get(ctx context.Context, path string) {
	resp, err := r.ask(ctx, path)
	if err != nil {
		return // the end
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode == http.StatusOK {
		r.answers.Add(1)
	}
}

func (r *readers) pages(ctx context.Context, i int) {
	for ; ctx.Err() == nil; i++ {
		id := r.sessions[i%len(r.sessions)]
		session := "/s/" + id
		r.get(ctx, []string{session, "/sessions", session + "/t/3", "/stats", "/sessions?q=func",
			session + "/tree"}[i%6])
	}
}

func (r *readers) follow(ctx context.Context, i int) {
	r.get(ctx, "/s/"+r.sessions[i%len(r.sessions)]+"/events?turn=1")
}

func (r *readers) misbehave(ctx context.Context, i int) {
	id := r.sessions[i%len(r.sessions)]
	for ctx.Err() == nil {
		conn, err := net.Dial("tcp", r.address)
		if err != nil {
			return
		}
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		request := []string{
			"GET /s/" + id + "/share/session.html HTTP/1.1\r\n",
			"POST /api/v1/import HTTP/1.1\r\nContent-Length: 1000\r\n",
			"GET /sessions?since=x&sort=y&limit=-1 HTTP/1.1\r\n",
			"POST /api/v1/import HTTP/1.1\r\nContent-Length: 5\r\n",
		}[i%4] + "Host: localhost\r\nAuthorization: " + r.key + "\r\n\r\n" + []string{"", "{", "", "[[[[["}[i%4]
		if _, err := io.WriteString(conn, request); err == nil && i%4 < 2 {
			for in := bufio.NewReaderSize(conn, 16); err == nil; _, err = in.ReadByte() {
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		} else if err == nil {
			_, _ = io.CopyN(io.Discard, conn, 100)
			r.answers.Add(1)
		}
		stop()
		conn.Close()
	}
}
