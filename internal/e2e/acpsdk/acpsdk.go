// Package acpsdk asks the SDK of the Agent Client Protocol whether exported
// traces are what clients and agents of the protocol take.
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

// Check reads a trace, a message per line, until EOF. Every message must be valid
// by the version of the protocol that initialize names, every response answer a
// request, and the SDK must keep all of it but _meta. Messages that fail are no
// error; a line that is not JSON is one.
//
// Not checked are notifications of the method log, which is a proposal, and
// methods that begin with an underscore, which are free.
func (c *Checker) Check(ctx context.Context, trace io.Reader) (*npm.Report, error) {
	return c.project.Check(ctx, "check.mjs", trace)
}
