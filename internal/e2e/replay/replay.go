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
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed package.json package-lock.json ask.mjs route.mjs
var project embed.FS

// SDK is the AI SDK, installed. It is safe for concurrent use.
type SDK struct {
	dir string
}

// Install writes the npm project into dir, which must exist, and installs the
// packages that it pins: from npm's cache where they are there, else from the
// registry that npm is configured for. No package's scripts are run. Everything
// stays in dir, which the caller removes.
func Install(ctx context.Context, dir string) (*SDK, error) {
	files, err := project.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("read embedded npm project: %w", err)
	}
	for _, f := range files {
		content, err := project.ReadFile(f.Name())
		if err != nil {
			return nil, fmt.Errorf("read embedded npm project: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, f.Name()), content, 0o600); err != nil {
			return nil, fmt.Errorf("write npm project: %w", err)
		}
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("install the AI SDK with npm in %s: %w: %s", dir, err, bytes.TrimSpace(out))
	}
	return &SDK{dir}, nil
}

// Requests returns what the SDK sends for each bundle, the JSON of one, by the name of
// the format. What the SDK refuses to send is an object with the key "error".
func (s *SDK) Requests(ctx context.Context, bundles ...[]byte) ([]map[string]json.RawMessage, error) {
	var stdin, stdout, stderr bytes.Buffer
	for _, b := range bundles {
		if err := json.Compact(&stdin, b); err != nil {
			return nil, fmt.Errorf("read bundle: %w", err)
		}
		stdin.WriteByte('\n')
	}
	cmd := exec.CommandContext(ctx, "node", "ask.mjs")
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = s.dir, &stdin, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run ask.mjs with node: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	all := make([]map[string]json.RawMessage, len(bundles))
	d := json.NewDecoder(&stdout)
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
	cmd.Dir = s.dir
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
