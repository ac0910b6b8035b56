package web

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// A reader that takes its answer slowly, and one that sends its request slowly, keep nobody else waiting.
func TestSlowReadersKeepNobodyWaiting(t *testing.T) {
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
		}
		_, _ = io.WriteString(w, "done")
	}
	server := httptest.NewServer(Slots(http.HandlerFunc(serve)))
	defer server.Close()
	var all []net.Conn
	for range 40 {
		for _, request := range []string{"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n",
			"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx"} {
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

// At most half of the processors work for readers.
func TestReadersLeaveProcessorsToWriters(t *testing.T) {
	var atOnce, most atomic.Int64
	work := func(http.ResponseWriter, *http.Request) {
		n := atOnce.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		runtime.Gosched()
		atOnce.Add(-1)
	}
	handler := Slots(http.HandlerFunc(work))
	var readers sync.WaitGroup
	for i := range 100 {
		readers.Go(func() {
			if i%2 == 0 {
				handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			} else if err := inSlot(t.Context(), func() error { work(nil, nil); return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	readers.Wait()
	if n := most.Load(); n < 1 || int(n) > max(1, runtime.GOMAXPROCS(0)/2) {
		t.Errorf("%d readers worked at once", n)
	}
}
