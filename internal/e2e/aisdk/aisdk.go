// Package aisdk asks the AI SDK itself whether exported sessions consist of its
// UI messages. [session.Check] knows the same rules in Go; this is what keeps it
// honest.
//
// The npm project beside this file pins the SDK. It needs node 20 or newer and
// npm in PATH.
package aisdk

import (
	"context"
	"embed"
	"io"

	"github.com/agenttrace/agenttrace/internal/e2e/npm"
)

//go:embed package.json package-lock.json check.mjs
var project embed.FS

// Checker runs the SDK's validator. It is safe for concurrent use.
type Checker struct{ project *npm.Project }

// Install installs the SDK in dir: see [npm.Install].
func Install(ctx context.Context, dir string) (*Checker, error) {
	p, err := npm.Install(ctx, project, dir)
	if err != nil {
		return nil, err
	}
	return &Checker{p}, nil
}

// Check reads sessions as canonical JSONL until EOF and validates every message,
// hidden ones too: the SDK must accept it, give back its parts as they are
// stored, and be able to make model messages of it. Messages that fail are no
// error; input that is no canonical JSONL is one.
//
// Edge cases: an empty input passes with no messages. A user or system message
// without parts fails, an assistant's does not: so the SDK has it.
func (c *Checker) Check(ctx context.Context, jsonl io.Reader) (*npm.Report, error) {
	return c.project.Check(ctx, "check.mjs", jsonl)
}
