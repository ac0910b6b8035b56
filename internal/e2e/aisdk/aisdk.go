// Package aisdk validates exported sessions with the AI SDK's own validator of UI
// messages. [session.Check] implements the same rules in Go, and these tests compare the
// two.
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
// including hidden ones: the SDK must accept it, return its parts as they are stored, and
// be able to convert it to model messages. An invalid message is not an error; input that
// is not canonical JSONL is one.
//
// Edge cases: an empty input passes without messages. A user or system message without
// parts fails and an assistant message does not, as in the SDK.
func (c *Checker) Check(ctx context.Context, jsonl io.Reader) (*npm.Report, error) {
	return c.project.Check(ctx, "check.mjs", jsonl)
}
