//go:build e2e

// Tests build and run programs on real agent SDKs, to compare what
// each saw with what a collector made of the telemetry that it exported.
//
// The npm project in npm pins versions of the AI SDK and of what exports its spans, the one in clients other client
// packages and what instruments them, the one in programs those that need other versions, and coding agents. They need
// npm and node 20 or newer in PATH: version 7 asks for node 22, and runs on 20. The modules in genkit and adk pin
// Genkit and ADK for Go.
package agents_test

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/agenttrace/agenttrace/internal/e2e"
	"github.com/agenttrace/agenttrace/session"
)

//go:embed npm/package.json npm/package-lock.json npm/*.mjs
//go:embed clients/.npmrc clients/package.json clients/package-lock.json clients/*.mjs clients/clients/*.mjs
//go:embed programs/.npmrc programs/package.json programs/package-lock.json programs/*.mjs programs/clients/*.mjs
var projects embed.FS

// Turn is what a program saw of one request.
type Turn struct {
	// Run names what the program did; equal runs of two programs are alike. Session
	// is the id that it gave the SDK, if it gave one.
	Run     string `json:"run"`
	Session string `json:"session"`
	// Traces are the ids of the traces that began meanwhile.
	Traces []string `json:"traces"`

	User   string   `json:"user"`
	System string   `json:"system"`
	Tools  []string `json:"tools"`
	Steps  []Step   `json:"steps"`
	// Calls counts the requests to the model, Failures those that came to nothing.
	Calls    int `json:"calls"`
	Failures int `json:"failures"`
	// Usage is in disjoint buckets, nil when the SDK gave none back.
	Usage  *session.Usage `json:"usage"`
	Finish string         `json:"finish"`
	// Aborted and Error report that the request did not finish. Partial is what had
	// arrived of the answer that was aborted.
	Aborted bool   `json:"aborted"`
	Partial string `json:"partial"`
	Error   string `json:"error"`
	// Exit is the exit code of a program that was started for the request.
	Exit int `json:"exit"`
}

// Step is one answer of the model and what became of the calls in it.
type Step struct {
	Reasoning string `json:"reasoning"`
	Text      string `json:"text"`
	Calls     []Call `json:"calls"`
}

// Call is a call of a tool. It has an output or an error.
type Call struct {
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Input  json.RawMessage `json:"input"`
	Output json.RawMessage `json:"output"`
	Error  string          `json:"error"`
}

// Program is a program that was built or installed. It is safe for concurrent use.
type Program struct {
	command []string
	dir     string
}

// Suite is an npm project, installed: a program in variants.
type Suite struct{ project *e2e.Project }

// InstallSuite installs the npm project of the name in dir, which must exist, with files of others: see
// [e2e.InstallProject].
func InstallSuite(ctx context.Context, name, dir string, shared ...string) (*Suite, error) {
	files, err := fs.Sub(projects, name)
	if err != nil {
		return nil, fmt.Errorf("read npm project: %w", err)
	}
	for _, file := range shared {
		text, err := projects.ReadFile(file)
		if err = errors.Join(err, os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600)); err != nil {
			return nil, fmt.Errorf("share file of npm project: %w", err)
		}
	}
	p, err := e2e.InstallProject(ctx, files, dir)
	if err != nil {
		return nil, err
	}
	return &Suite{p}, nil
}

// Variant returns the program on a version of the AI SDK, which telemetry.mjs names,
// or with a client package, each of which has a file in clients/clients.
func (s *Suite) Variant(name string) *Program {
	return &Program{command: []string{"node", "program.mjs", name}, dir: s.project.Dir}
}

// Build builds the program of the module in source and writes it to dir.
func Build(ctx context.Context, source, dir string) (*Program, error) {
	binary := filepath.Join(dir, source)
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-o", binary, ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the program on %s: %w: %s", source, err, bytes.TrimSpace(out))
	}
	return &Program{command: []string{binary}, dir: dir}, nil
}

// Run runs the program, which exports by OTLP to the URL, and returns what it saw when it has exported everything. A
// program on Genkit takes the path of a session store instead, and writes it itself.
func (p *Program) Run(ctx context.Context, to string) ([]Turn, error) {
	var stdout, stderr bytes.Buffer
	args := append(p.command[1:len(p.command):len(p.command)], to)
	cmd := exec.CommandContext(ctx, p.command[0], args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run %q: %w: %s", p.command, err, bytes.TrimSpace(stderr.Bytes()))
	}
	var turns []Turn
	for lines := json.NewDecoder(&stdout); ; {
		var t Turn
		switch err := lines.Decode(&t); {
		case errors.Is(err, io.EOF):
			return turns, nil
		case err != nil:
			return nil, fmt.Errorf("read output of %q: line %d: %w", p.command, len(turns)+1, err)
		}
		turns = append(turns, t)
	}
}
