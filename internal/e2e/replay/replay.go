// Package replay compares with the AI SDK: whether requests that are built from a bundle
// equal those that the SDK's providers send for the same messages, and whether our client
// reads the streams that the SDK writes.
//
// The npm project beside this file pins the SDK and its providers. It needs node 20
// or newer and npm in PATH.
package replay

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/agenttrace/agenttrace/internal/e2e/npm"
)

//go:embed package.json package-lock.json ask.mjs route.mjs
var project embed.FS

// SDK is the AI SDK, installed. It is safe for concurrent use.
type SDK struct{ project *npm.Project }

// Install installs the SDK in dir: see [npm.Install].
func Install(ctx context.Context, dir string) (*SDK, error) {
	p, err := npm.Install(ctx, project, dir)
	if err != nil {
		return nil, err
	}
	return &SDK{p}, nil
}

// Requests returns the requests that the SDK sends for each bundle, by the name of the
// format. For one that it refuses to send, the value is an object with the key "error".
func (s *SDK) Requests(ctx context.Context, bundles ...[]byte) ([]map[string]json.RawMessage, error) {
	var stdin bytes.Buffer
	for _, b := range bundles {
		if err := json.Compact(&stdin, b); err != nil {
			return nil, fmt.Errorf("read bundle: %w", err)
		}
		stdin.WriteByte('\n')
	}
	stdout, err := s.project.Run(ctx, "ask.mjs", &stdin)
	if err != nil {
		return nil, err
	}
	all := make([]map[string]json.RawMessage, len(bundles))
	d := json.NewDecoder(bytes.NewReader(stdout))
	for i := range all {
		if err := d.Decode(&all[i]); err != nil {
			return nil, fmt.Errorf("read what ask.mjs prints for bundle %d of %d: %w", i+1, len(all), err)
		}
	}
	return all, nil
}

// Serve starts the routes of route.mjs and returns their URL. stop ends them and waits
// for that.
func (s *SDK) Serve(ctx context.Context) (url string, stop func() error, err error) {
	cmd := exec.CommandContext(ctx, "node", "route.mjs")
	cmd.Dir = s.project.Dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, fmt.Errorf("run route.mjs with node: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, fmt.Errorf("run route.mjs with node: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("run route.mjs with node: %w", err)
	}
	stop = func() error {
		closeErr := stdin.Close()
		_, _ = io.Copy(io.Discard, stdout) // discard the rest of its output
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("run route.mjs with node: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
		}
		return closeErr
	}
	port, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		if stopErr := stop(); stopErr != nil {
			err = stopErr
		}
		return "", nil, fmt.Errorf("read the port of route.mjs: %w", err)
	}
	return "http://127.0.0.1:" + strings.TrimSpace(port), stop, nil
}
