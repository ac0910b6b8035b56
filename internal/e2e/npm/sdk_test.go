//go:build e2e

package npm_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// requests returns the requests that the SDK sends for each bundle, by the name of the
// format. For one that it refuses to send, the value is an object with the key "error".
func requests(ctx context.Context, sdk checker, bundles ...[]byte) ([]map[string]json.RawMessage, error) {
	var stdin bytes.Buffer
	for _, b := range bundles {
		if err := json.Compact(&stdin, b); err != nil {
			return nil, fmt.Errorf("read bundle: %w", err)
		}
		stdin.WriteByte('\n')
	}
	stdout, err := sdk.Run(ctx, "ask.mjs", &stdin)
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

// serve starts the routes of route.mjs and returns their URL. stop ends them and waits for that.
func serve(ctx context.Context, sdk checker) (url string, stop func() error, err error) {
	cmd := exec.CommandContext(ctx, "node", "route.mjs")
	cmd.Dir = sdk.Dir
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
