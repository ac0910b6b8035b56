//go:build e2e

package npm_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/agenttrace/agenttrace/internal/e2e"
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
func project(t *testing.T, name string) *e2e.Project {
	t.Helper()
	p, err := installed[name]()
	if err != nil {
		t.Fatal(err)
	}
	return p
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
