package cli_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/collector"
)

// TestCommandsThroughCollector: every command prints what it prints of a file when it asks a collector over HTTP, and
// when a collector holds the file, those that change something included.
func TestCommandsThroughCollector(t *testing.T) {
	t.Setenv("AGENTTRACE_PRICES", filepath.Join("..", "..", "session", "price", "testdata", "litellm.json"))
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name+".db") }
	for _, name := range []string{"file", "remote", "held"} {
		if err := makeStore(path(name), fixture()); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name, env string) place { return place{name, env, strings.NewReplacer(path(name), "STORE")} }
	address := "http://" + collecting(t, path("remote")).ViewEndpoint()
	places := []place{at("file", "AGENTTRACE_STORE="+path("file")),
		{"remote", "AGENTTRACE_REMOTE=" + address, strings.NewReplacer(path("remote"), "STORE", address, "STORE")},
		at("held", "AGENTTRACE_STORE="+path("held"))}
	collecting(t, path("held"))
	compareOutputs(t, slices.Concat(reading, []string{
		"stats --by week", "ls --since 99999999h", "stats --since 99999999h", "stats --json", "ls --json", "show last --json",
	}, changes, importing(t), rewinding), places...)
}

// collecting runs a collector that holds the store at a path.
func collecting(t *testing.T, path string) *collector.Running {
	t.Helper()
	c, err := collector.Start(t.Context(), collector.Options{Store: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := c.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path + ".sock"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket of %s is left: %v", path, err)
		}
	})
	return c
}
