//go:build e2e

package npm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/agenttrace/agenttrace/internal/e2e"
	"github.com/agenttrace/agenttrace/internal/testscale"
)

// root is where the projects below testdata are installed: the SDK of the Agent Client Protocol, and the AI SDK as a
// validator of messages and as a client of models.
var root string

var installed = map[string]func() (*e2e.Project, error){
	"acpsdk": install("acpsdk"), "aisdk": install("aisdk"), "replay": install("replay"),
}

func install(name string) func() (*e2e.Project, error) {
	return sync.OnceValues(func() (*e2e.Project, error) {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		return e2e.InstallProject(context.Background(), os.DirFS(filepath.Join("testdata", name)), dir)
	})
}

// project returns a project, which is installed once for all tests.
func project(t *testing.T, name string) checker {
	t.Helper()
	p, err := installed[name]()
	testscale.Must(t, err)
	return checker{p}
}

// checker is a project with a script that validates messages.
type checker struct{ *e2e.Project }

// report is the result of one: how many messages passed and failed, and each that failed, with the reason.
type report struct {
	Passed, Failed int
	Failures       []string
}

// Check runs a script that validates the messages on its standard input. The script prints a line for each invalid
// message and, last, "N passed, N failed", and exits with 1 if one fails. An invalid message is not an error of Check.
func (p checker) Check(ctx context.Context, script string, messages io.Reader) (*report, error) {
	out, err := p.Run(ctx, script, messages)
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return nil, err
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	last := lines[len(lines)-1]
	r := report{Failures: lines[:len(lines)-1]}
	if n, _ := fmt.Sscanf(last, "%d passed, %d failed", &r.Passed, &r.Failed); n != 2 || r.Failed != len(r.Failures) {
		return nil, errors.Join(err, fmt.Errorf("read report of %s: last of %d lines is %q", script, len(lines), last))
	}
	return &r, nil
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if root, err = os.MkdirTemp("", "npm"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(root)
	return m.Run()
}
