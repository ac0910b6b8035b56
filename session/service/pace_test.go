package service_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agenttrace/agenttrace/session/service"
)

// While writers are at work all of the time, readers work for a fifteenth of it; while they rest, for all of it.
func TestReadersLeaveTheProcessorToWriters(t *testing.T) {
	for _, test := range []struct {
		name     string
		writing  float64 // the share of the time
		min, max float64 // of the time in which readers work, for each turn
	}{
		{"nobody writes", 0, 0.95, 1},
		{"writers work half of the time", 0.5, 0.09, 0.25},
		{"writers work all of the time", 1, 0.04, 0.09},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var load service.Load
				var all sync.WaitGroup
				all.Go(func() {
					for ctx.Err() == nil {
						end := load.Begin()
						time.Sleep(time.Duration(test.writing * float64(20*time.Millisecond)))
						end()
						time.Sleep(time.Duration((1 - test.writing) * float64(20*time.Millisecond)))
					}
				})
				var worked, atOnce, most atomic.Int64
				handler := service.NewPacer(&load).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					n := atOnce.Add(1)
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
					time.Sleep(3 * time.Millisecond)
					worked.Add(int64(3 * time.Millisecond))
					atOnce.Add(-1)
				}))
				for range 50 {
					all.Go(func() {
						for ctx.Err() == nil {
							handler.ServeHTTP(httptest.NewRecorder(),
								httptest.NewRequestWithContext(ctx, "GET", "/", nil))
						}
					})
				}
				const period = 20 * time.Second
				time.Sleep(period)
				share := float64(worked.Load()) / float64(period) / float64(most.Load())
				cancel()
				all.Wait()
				if share < test.min || share > test.max {
					t.Errorf("readers worked for %.3f of the time, want %.2f to %.2f", share, test.min, test.max)
				}
			})
		})
	}
}

// A reader that takes its answer slowly, one that sends its request slowly, and one that waits for changes keep nobody
// else waiting.
func TestSlowReadersKeepNobodyWaiting(t *testing.T) {
	waiting := make(chan struct{})
	defer close(waiting)
	serve := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		case "/body":
			_, _ = io.ReadAll(r.Body)
		case "/follow":
			_ = service.Idle(r.Context(), func() {
				select {
				case <-waiting:
				case <-r.Context().Done():
				}
			})
		}
		_, _ = io.WriteString(w, "done")
	}
	server := httptest.NewServer(service.NewPacer(nil).Handler(http.HandlerFunc(serve)))
	defer server.Close()
	var all []net.Conn
	for range 40 {
		for _, request := range []string{"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n",
			"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx", "GET /follow HTTP/1.1\r\nHost: x\r\n" +
				"\r\n"} {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, conn)
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
		}
	}
	resp, err := http.Get(server.URL + "/quick")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || string(body) != "done" {
		t.Errorf("the answer is %q, %v", body, err)
	}
	for _, conn := range all {
		conn.Close()
	}
}

// Of more requests than memory is there for, some are refused, with a remedy.
func TestTooManyReadersAreRefused(t *testing.T) {
	release := make(chan struct{})
	handler := service.NewPacer(nil).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_ = service.Idle(r.Context(), func() { <-release })
	}))
	var requests sync.WaitGroup
	var refused atomic.Int64
	enough := make(chan struct{})
	for i := range 2100 {
		requests.Go(func() {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest("GET", fmt.Sprintf("/%d", i), nil))
			if w.Code == http.StatusServiceUnavailable && strings.Contains(w.Body.String(), "try again") &&
				w.Header().Get("Retry-After") != "" && refused.Add(1) == 100 {
				close(enough)
			}
		})
	}
	<-enough
	close(release)
	requests.Wait()
	if n := refused.Load(); n != 100 {
		t.Errorf("%d of 2100 requests were refused, want 100", n)
	}
}
