// Package acpsdk validates exported traces with the schemas of the Agent Client
// Protocol's own SDK.
//
// The npm project beside this file pins the SDK. It needs node 20 or newer and
// npm in PATH.
package acpsdk

import (
	"context"
	"embed"
	"io"

	"github.com/agenttrace/agenttrace/internal/e2e/npm"
)

//go:embed package.json package-lock.json check.mjs
var project embed.FS

// Checker validates traces. It is safe for concurrent use.
type Checker struct{ project *npm.Project }

// Install installs the SDK in dir: see [npm.Install].
func Install(ctx context.Context, dir string) (*Checker, error) {
	p, err := npm.Install(ctx, project, dir)
	if err != nil {
		return nil, err
	}
	return &Checker{p}, nil
}

// Check reads a trace, one message per line, until EOF. Every message must be valid for
// the version of the protocol that initialize names, every response must answer a
// request, and the SDK must keep all of a message except _meta. An invalid message is not
// an error; a line that is not JSON is one.
//
// Not checked are notifications of the method log, which is a proposal, and methods that
// begin with an underscore, which are extensions.
func (c *Checker) Check(ctx context.Context, trace io.Reader) (*npm.Report, error) {
	return c.project.Check(ctx, "check.mjs", trace)
}
