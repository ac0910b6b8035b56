// Package e2e has what end-to-end tests share. A server answers requests to models as the providers do, from a script:
// [Program] has one conversation with agents that are built in different ways, and checks that each of them has the
// same session. Npm projects are installed and run. The tests with a real Jaeger have the build tag e2e. Those with the
// tag long kill agents and collectors, and compare what is stored with what they had reported. One without a tag holds
// the imports of all packages against the drawing in docs/design.md.
package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
)

// Project is an installed npm project that pins the software of others, to test ours with it. It needs node 20 or
// newer and npm in PATH. It is safe for concurrent use.
type Project struct {
	// Dir is its directory.
	Dir string
}

// InstallProject writes the files of a project into dir, which must exist, and installs the
// packages that it pins, from npm's cache or from the configured registry. It runs no
// scripts of packages. Everything is in dir, which the caller removes.
func InstallProject(ctx context.Context, files fs.FS, dir string) (*Project, error) {
	if err := os.CopyFS(dir, files); err != nil {
		return nil, fmt.Errorf("write npm project: %w", err)
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline",
		"--engine-strict=false", "--loglevel=error")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("install what package.json pins with npm in %s: %w: %s", dir, err, bytes.TrimSpace(out))
	}
	return &Project{dir}, nil
}

// Run runs a script of the project with node and returns its output, even after an error.
func (p *Project) Run(ctx context.Context, script string, stdin io.Reader) (stdout []byte, err error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, "node", script)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.Dir, stdin, &out, &said
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("run %s with node: %w: %s", script, err, bytes.TrimSpace(said.Bytes()))
	}
	return out.Bytes(), err
}
