// Package e2e starts the programs that the end-to-end tests use. The tests with a real Jaeger have the build tag e2e.
// Those with the tag long kill agents and collectors, and compare what is stored with what they had reported.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// JaegerVersion is the version that tools/jaeger builds. Its binary is Jaeger v2.
const JaegerVersion = "v1.76.0"

// JaegerBinary returns the path of a Jaeger binary: that of AGENTTRACE_JAEGER, or one in
// the user's cache, which it builds if it is missing. root is the root of the repository.
// A build takes minutes.
func JaegerBinary(ctx context.Context, root string) (string, error) {
	if path := os.Getenv("AGENTTRACE_JAEGER"); path != "" {
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for jaeger: %w; set AGENTTRACE_JAEGER to a binary", err)
	}
	path := filepath.Join(cache, "agenttrace", "jaeger-"+JaegerVersion)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	// An interrupted build must not leave a partial binary.
	partial := fmt.Sprintf("%s.%d", path, os.Getpid())
	build := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-trimpath", "-o", partial,
		"github.com/jaegertracing/jaeger/cmd/jaeger")
	build.Dir = filepath.Join(root, "tools", "jaeger")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build jaeger: %w\n%s", err, out)
	}
	return path, os.Rename(partial, path)
}

// Jaeger is a running Jaeger that stores traces in memory.
type Jaeger struct {
	// OTLP is its address for spans over gRPC, Query the base URL of its API.
	OTLP, Query string

	cmd  *exec.Cmd
	done chan struct{}
	err  error
	log  string
}

const jaegerConfig = `
receivers: {otlp: {protocols: {grpc: {endpoint: %[1]q}}}}
exporters: {jaeger_storage_exporter: {trace_storage: memory}}
extensions:
  jaeger_storage: {backends: {memory: {memory: {max_traces: 1000}}}}
  jaeger_query:
    storage: {traces: memory}
    http: {endpoint: %[2]q}
    grpc: {endpoint: %[3]q}
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines: {traces: {receivers: [otlp], exporters: [jaeger_storage_exporter]}}
  telemetry: {metrics: {level: none}}
`

// StartJaeger starts the binary on free ports of the loopback interface and returns when
// it responds. dir gets its configuration and its log.
func StartJaeger(ctx context.Context, binary, dir string) (*Jaeger, error) {
	var ports [3]string
	for i := range ports {
		var err error
		if ports[i], err = testscale.Address(); err != nil {
			return nil, err
		}
	}
	config := filepath.Join(dir, "jaeger.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, jaegerConfig, ports[0], ports[1], ports[2]), 0o600); err != nil {
		return nil, err
	}
	j := &Jaeger{OTLP: ports[0], Query: "http://" + ports[1], done: make(chan struct{}),
		log: filepath.Join(dir, "jaeger.log")}
	out, err := os.Create(j.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	j.cmd = exec.Command(binary, "--config", config)
	j.cmd.Stdout, j.cmd.Stderr = out, out
	if err := j.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start jaeger: %w", err)
	}
	go func() {
		j.err = j.cmd.Wait()
		close(j.done)
	}()
	err = Poll(ctx, func() error {
		select {
		case <-j.done:
			return fmt.Errorf("%w: %w", errGone, j.err)
		default:
		}
		_, err := Get(ctx, j.Query+"/api/services")
		return err
	})
	if err != nil {
		log, _ := os.ReadFile(j.log)
		return nil, errors.Join(fmt.Errorf("wait for jaeger: %w\n%s", err, log), j.Stop())
	}
	return j, nil
}

// Stop stops the process and waits for it.
func (j *Jaeger) Stop() error {
	select {
	case <-j.done:
		return nil
	default:
	}
	if err := j.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop jaeger: %w", err)
	}
	<-j.done
	return nil
}

// errGone ends a poll whose condition can no longer become true.
var errGone = errors.New("it ended")

// Poll calls try until it succeeds, it returns errGone, or ctx ends.
func Poll(ctx context.Context, try func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil || errors.Is(err, errGone) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-tick.C:
		}
	}
}

// Get returns the body of a page.
func Get(ctx context.Context, url string) ([]byte, error) {
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
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s: %.200s", url, resp.Status, body)
	}
	return body, nil
}
