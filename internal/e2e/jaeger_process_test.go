//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// jaegerVersion is the version that tools/jaeger builds. Its binary is Jaeger v2.
const jaegerVersion = "v1.76.0"

// jaegerBinary returns the path of a Jaeger binary: that of AGENTTRACE_JAEGER, or one in the user's cache, which it
// builds if it is missing. A build takes minutes.
func jaegerBinary(t *testing.T, ctx context.Context) string {
	t.Helper()
	if path := os.Getenv("AGENTTRACE_JAEGER"); path != "" {
		return path
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatalf("find a place for jaeger: %v; set AGENTTRACE_JAEGER to a binary", err)
	}
	path := filepath.Join(cache, "agenttrace", "jaeger-"+jaegerVersion)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	// An interrupted build must not leave a partial binary.
	testscale.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	partial := fmt.Sprintf("%s.%d", path, os.Getpid())
	build := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-o", partial,
		"github.com/jaegertracing/jaeger/cmd/jaeger")
	build.Dir = filepath.Join(root, "tools", "jaeger")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build jaeger: %v\n%s", err, out)
	}
	testscale.Must(t, os.Rename(partial, path))
	return path
}

// jaeger is a running Jaeger that stores traces in memory.
type jaeger struct {
	// otlp is its address for spans over gRPC, query the base URL of its API.
	otlp, query string
}

// ready returns nil when its API answers.
func (j jaeger) ready(ctx context.Context) error {
	_, err := get(ctx, j.query+"/api/services")
	return err
}

// get returns the body of a page.
func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("get %s: %s: %.200s", url, resp.Status, body)
	}
	return body, err
}
