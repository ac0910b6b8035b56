//go:build long

package postgres_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// TestDiskFull: a batch for which the server has no room is not stored, and is when there is room again.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=80m,mode=0700"); err != nil {
		t.Skipf("this test makes a small file system, which only root may: %v", err)
	}
	t.Cleanup(func() { // after the server
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	data := filepath.Join(dir, "data")
	testscale.Must(t, os.Mkdir(data, 0o700))
	testscale.Must(t, os.Chmod(dir, 0o755))
	ballast := filepath.Join(dir, "ballast")
	testscale.WriteFile(t, ballast, make([]byte, 20<<20))
	for parent := filepath.Dir(dir); parent != os.TempDir() && parent != "/"; parent = filepath.Dir(parent) {
		if err := os.Chmod(parent, 0o755); err != nil { // so that the server's account reaches it
			t.Fatal(err)
		}
	}
	server := storetest.StartPostgresIn(t, data, "shared_buffers = 1MB", "max_wal_size = 64MB")
	s := open(t, server.Create(t))
	r := rand.New(rand.NewPCG(1, 2))
	batch := func(i int) *store.Batch {
		text := make([]byte, 1<<20)
		for i := range text {
			text[i] = byte(' ' + r.IntN(90))
		}
		b := turnOf(0, i)
		b.Parts[0].Data, _ = json.Marshal(map[string]string{"type": "text", "text": string(text)})
		return b
	}
	var full *store.Batch
	i := 0
	for ; full == nil; i++ {
		b := batch(i)
		_, err := s.Apply(t.Context(), b)
		if err == nil {
			if i > 200 {
				t.Fatal("the disk does not get full")
			}
			continue
		}
		full = b
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "No space left") ||
			!strings.Contains(err.Error(), "make room") {
			t.Fatalf("%v; want that the store is unavailable until somebody makes room", err)
		}
	}
	stored := len(strings.Join(values(storetest.Lines(t, s)), ""))
	if stored < i<<19 {
		t.Errorf("%d bytes are there of %d batches", stored, i-1)
	}
	testscale.Must(t, os.Remove(ballast))
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		_, err := s.Apply(t.Context(), full)
		if err == nil {
			break
		}
		if !errors.Is(err, store.ErrUnavailable) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if !bytes.Contains([]byte(strings.Join(values(storetest.Lines(t, s)), "")),
		[]byte(fmt.Sprintf("msg_0_%06d_r", i-1))) {
		t.Error("the batch is not there that was refused at first")
	}
}

func values(m map[string]string) (all []string) {
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

// TestFailover: the primary is lost with what its replica has not received. A store whose address names both goes on
// with the replica, and what is delivered again repairs it.
func TestFailover(t *testing.T) {
	primary := storetest.StartPostgres(t, append([]string{"wal_level = replica", "max_wal_senders = 4"}, fast[:2]...)...)
	database := primary.Create(t)
	standby := primary.Standby(t)
	hosts := fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d", primary.Port, standby.Port)
	dsn := strings.Replace(database, fmt.Sprintf("127.0.0.1:%d", primary.Port), hosts, 1) +
		"&target_session_attrs=read-write"
	s := open(t, dsn)
	const early, late = 20, 40
	for i := range early {
		if _, err := s.Apply(t.Context(), turnOf(0, i)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(300 * time.Millisecond) // the replica catches up
	testscale.Must(t, standby.Kill())
	for i := range late {
		if _, err := s.Apply(t.Context(), turnOf(0, early+i)); err != nil {
			t.Fatal(err)
		}
	}
	testscale.Must(t, primary.Kill())
	if _, err := s.Apply(t.Context(), turnOf(0, early+late)); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%v; want that the store is unavailable", err)
	}
	testscale.Must(t, standby.Run())
	standby.Promote(t)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, err := s.Apply(t.Context(), turnOf(0, early+late))
		if err == nil {
			break
		}
		if !errors.Is(err, store.ErrUnavailable) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	for i := range early + late {
		if _, err := s.Apply(t.Context(), turnOf(0, i)); err != nil {
			t.Fatal(err)
		}
	}
	reference := open(t, standby.Create(t))
	for i := range early + late + 1 {
		if _, err := reference.Apply(t.Context(), turnOf(0, i)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(storetest.Lines(t, reference), storetest.Lines(t, s)); diff != "" {
		t.Errorf("the sessions differ from those without the failover (-want +got):\n%.2000s", diff)
	}
}
