// Package aisdk asks the AI SDK itself whether exported sessions consist of its
// UI messages. [session.Check] knows the same rules in Go; this is what keeps it
// honest.
//
// The npm project beside this file pins the SDK. It needs node 20 or newer and
// npm in PATH.
package aisdk

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed package.json package-lock.json check.mjs
var project embed.FS

// Checker runs the SDK's validator. It is safe for concurrent use.
type Checker struct {
	dir string
}

// Install writes the npm project into dir, which must exist, and installs the
// packages that it pins: from npm's cache where they are there, else from the
// registry that npm is configured for. No package's scripts are run. Everything
// stays in dir, which the caller removes.
func Install(ctx context.Context, dir string) (*Checker, error) {
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
	return &Checker{dir}, nil
}

// Report is what the SDK found.
type Report struct {
	// Passed and Failed count messages.
	Passed, Failed int
	// Failures names each message that failed, and why.
	Failures []string
}

// Check reads sessions as canonical JSONL until EOF and validates every message,
// hidden ones too: the SDK must accept it, give back its parts as they are
// stored, and be able to make model messages of it. Messages that fail are no
// error; input that is no canonical JSONL is one.
//
// Edge cases: an empty input passes with no messages. A user or system message
// without parts fails, an assistant's does not: so the SDK has it.
func (c *Checker) Check(ctx context.Context, jsonl io.Reader) (*Report, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "node", "check.mjs")
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.dir, jsonl, &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		// Messages failed, or the program did: then there is no report.
		if r, parseErr := parseReport(stdout.String()); parseErr == nil {
			return r, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("run check.mjs with node: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return parseReport(stdout.String())
}

// parseReport reads what check.mjs prints: failures, then the counts.
func parseReport(out string) (*Report, error) {
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	last := lines[len(lines)-1]
	passed, rest, ok := strings.Cut(last, " passed, ")
	failed, ok2 := strings.CutSuffix(rest, " failed")
	r := Report{Failures: lines[:len(lines)-1]}
	var err1, err2 error
	r.Passed, err1 = strconv.Atoi(passed)
	r.Failed, err2 = strconv.Atoi(failed)
	if !ok || !ok2 || err1 != nil || err2 != nil || r.Failed != len(r.Failures) {
		return nil, fmt.Errorf("read report of check.mjs: last of %d lines is %q", len(lines), last)
	}
	return &r, nil
}
