// Package acpsdk asks the SDK of the Agent Client Protocol whether exported
// traces are what clients and agents of the protocol take.
//
// The npm project beside this file pins the SDK. It needs node 20 or newer and
// npm in PATH.
package acpsdk

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

//go:embed package.json package-lock.json check.mjs
var project embed.FS

// Checker validates traces. It is safe for concurrent use.
type Checker struct {
	dir string
}

// Install writes the npm project into dir, which must exist, and installs the
// packages that it pins: from npm's cache where they are there, else from the
// registry that npm is configured for. No package's scripts are run. Everything
// stays in dir, which the caller removes.
func Install(ctx context.Context, dir string) (*Checker, error) {
	if err := os.CopyFS(dir, project); err != nil {
		return nil, fmt.Errorf("write npm project: %w", err)
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("install the protocol's SDK with npm in %s: %w: %s", dir, err, bytes.TrimSpace(out))
	}
	return &Checker{dir}, nil
}

// Report is what the SDK found.
type Report struct {
	// Passed and Failed count messages.
	Passed, Failed int
	// Failures names each message that failed by its line, and why.
	Failures []string
}

// Check reads a trace, a message per line, until EOF. Every message must be valid
// by the version of the protocol that initialize names, every response answer a
// request, and the SDK must keep all of it but _meta. Messages that fail are no
// error; a line that is not JSON is one.
//
// Not checked are notifications of the method log, which is a proposal, and
// methods that begin with an underscore, which are free.
func (c *Checker) Check(ctx context.Context, trace io.Reader) (*Report, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "node", "check.mjs")
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.dir, trace, &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) && exit.ExitCode() == 1 {
		// Messages failed, or the program did: then there is no report.
		if r, parseErr := parseReport(stdout.String()); parseErr == nil {
			return r, nil
		}
	}
	return nil, fmt.Errorf("run check.mjs with node: %w: %s", errors.Join(err, errNoReport), bytes.TrimSpace(stderr.Bytes()))
}

var errNoReport = errors.New("it gave no report")

// parseReport reads what check.mjs prints: failures, then the counts.
func parseReport(out string) (*Report, error) {
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	passed, rest, ok := strings.Cut(lines[len(lines)-1], " passed, ")
	failed, ok2 := strings.CutSuffix(rest, " failed")
	r := Report{Failures: lines[:len(lines)-1]}
	var err1, err2 error
	r.Passed, err1 = strconv.Atoi(passed)
	r.Failed, err2 = strconv.Atoi(failed)
	if !ok || !ok2 || err1 != nil || err2 != nil || r.Failed != len(r.Failures) {
		return nil, errNoReport
	}
	return &r, nil
}
