// Package replay asks the AI SDK itself what it would have sent: whether requests that
// are made of a bundle say what the SDK's providers say of the same messages, and
// whether what its streams tell is understood.
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

// Requests returns what the SDK sends for each bundle, the JSON of one, by the name of
// the format. What the SDK refuses to send is an object with the key "error".
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

// Serve starts the routes of route.mjs and returns their URL. They end when stop is
// called, which waits for it.
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
		_, _ = io.Copy(io.Discard, stdout) // what it prints besides is for nobody
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
