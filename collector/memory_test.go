package collector

import (
	"bytes"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// A dozen senders of requests that each take 250 MiB once they are decoded: they are
// stored or asked to retry, and together take about as much as one.
func TestLargeRequestsAtOnceDoNotTakeAllMemory(t *testing.T) {
	clean(t)
	c := started(t, Options{Store: filepath.Join(t.TempDir(), "sessions.db")})
	conn := sendRaw(t, c.Endpoint())
	wide := protoField(0x0a, protoField(0x12, protoField(0x12, bytes.Repeat([]byte{0x4a, 0}, 3_800_000)))) // attributes
	send := func() error {
		var answer []byte
		return conn.Invoke(t.Context(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export", wide, &answer)
	}

	var stored, refused int
	var mu sync.Mutex
	var senders sync.WaitGroup
	for range testscale.Rounds(5, 12) {
		senders.Go(func() {
			err := send()
			mu.Lock()
			defer mu.Unlock()
			switch status.Code(err) {
			case codes.OK:
				stored++
			case codes.Unavailable:
				refused++
			default:
				t.Error(err)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		senders.Wait()
	}()
	var maximum uint64
	for tick := time.Tick(20 * time.Millisecond); ; {
		select {
		case <-tick:
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			maximum = max(maximum, m.HeapAlloc)
			continue
		case <-done:
		}
		break
	}
	t.Logf("%d stored, %d asked to retry, at most %d MiB", stored, refused, maximum>>20)
	if maximum > 1<<30 {
		t.Errorf("they took %d MiB", maximum>>20)
	}
	// What they took is free again, and a sender that was refused is welcome.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Second) {
		err := send()
		if err == nil {
			break
		}
		if status.Code(err) != codes.Unavailable || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
