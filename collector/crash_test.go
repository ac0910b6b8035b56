package collector

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/agenttrace/agenttrace/internal/freeport"
)

// envCollect makes the test binary the collector; see TestMain.
const envCollect = "AGENTTRACE_TEST_COLLECT"

// collect runs a collector as a process of its own, and returns when it accepts
// telemetry.
func collect(t *testing.T, path, endpoint string) *exec.Cmd {
	t.Helper()
	httpAt := freeport.MustAddress()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "--store", path, "--grpc-endpoint", endpoint, "--http-endpoint", httpAt)
	cmd.Env = append(os.Environ(), envCollect+"=1")
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // for tests that fail before they do
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the collector did not start: %q, %v, %v", line, err, cmd.Wait())
	}
	return cmd
}

// A collector that is killed while it is written to has every request that it
// acknowledged, once, also when all of them are sent again.
func TestKilled(t *testing.T) {
	clean(t)
	path := filepath.Join(t.TempDir(), "sessions.db")
	acknowledged := make(map[string]bool)
	for round := range 3 {
		endpoint := freeport.MustAddress()
		cmd := collect(t, path, endpoint)
		conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		client := ptraceotlp.NewGRPCClient(conn)
		ctx, cancel := context.WithCancel(t.Context())
		acks := make(chan string)
		var senders sync.WaitGroup
		for sender := range 4 {
			senders.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					id := fmt.Sprintf("ses_%d_%d_%d", round, sender, n)
					// Without WaitForReady a request fails that is sent before the connection is there.
					if _, err := client.Export(ctx, ptraceotlp.NewExportRequestFromTraces(oneRun(id)),
						grpc.WaitForReady(true)); err != nil {
						continue
					}
					select {
					case acks <- id:
					case <-ctx.Done():
						return
					}
				}
			})
		}
		for range 100 {
			acknowledged[<-acks] = true
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the error is that it was killed
		cancel()
		senders.Wait()
		conn.Close()
		checkStored(t, path, acknowledged)
	}

	r := started(t, Options{Store: path})
	for id := range acknowledged {
		if err := send(t, r.Endpoint(), oneRun(id)); err != nil {
			t.Fatal(err)
		}
	}
	stop(t, r)
	checkStored(t, path, acknowledged)
}

// checkStored wants every session with the one span that it was made from.
func checkStored(t *testing.T, path string, ids map[string]bool) {
	t.Helper()
	reader := opened(t, path)
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
