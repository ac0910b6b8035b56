package codeagent

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// scratch is a small Go project with a failing test. Its go.mod and Go files
// end in .txt, or they would be part of this module.
//
//go:embed testdata/project
var scratch embed.FS

// outputLimit is how many bytes of a tool's output the model gets to read.
const outputLimit = 2048

// agentDir holds what the agent keeps for itself.
const agentDir = ".agent"

// workspace is the directory that the tools work in. Its paths are slash
// separated and relative; none leads out of it, not by "..", not by a link.
type workspace struct {
	dir  string
	root *os.Root
	// env is what commands find in their environment, beside the agent's own.
	env []string
	// editing keeps edits of one step, which run at the same time, from undoing
	// one another. It guards patches, what was changed so far.
	editing sync.Mutex
	patches []string
}

// openWorkspace opens dir, or a new copy of the scratch project when dir is "".
func openWorkspace(dir string) (_ *workspace, err error) {
	var env []string
	if dir == "" {
		// The scratch project needs no network, and is in nobody's go.work.
		env = []string{"GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off"}
		if dir, err = os.MkdirTemp("", "codeagent-"); err != nil {
			return nil, fmt.Errorf("make workspace: %w", err)
		}
		if err := copyScratch(dir); err != nil {
			return nil, errors.Join(fmt.Errorf("copy scratch project: %w", err), os.RemoveAll(dir))
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	return &workspace{dir: dir, root: root, env: env}, nil
}

func copyScratch(dir string) error {
	project, err := fs.Sub(scratch, "testdata/project")
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, project); err != nil {
		return err
	}
	for _, name := range []string{"go.mod", "wrap.go", "wrap_test.go"} {
		name = dir + string(os.PathSeparator) + name
		if err := os.Rename(name+".txt", name); err != nil {
			return err
		}
	}
	return nil
}

// walk calls fn for every file but hidden ones, in lexical order.
func (w *workspace) walk(fn func(name string, d fs.DirEntry) error) error {
	return fs.WalkDir(w.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != "." && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.Type().IsRegular():
			return fn(name, d)
		}
		return nil
	})
}

// save writes a file of the agent's own and returns its path. id may be
// anything, a model thought of it.
func (w *workspace) save(dir, id, ext, content string) (string, error) {
	name := path.Join(agentDir, dir, url.PathEscape(id)+ext)
	if err := w.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return "", err
	}
	return name, w.root.WriteFile(name, []byte(content), 0o644)
}

// run executes a command line in the workspace and returns what it printed.
// There is no shell: a rule that allows "go test*" allows nothing else.
func (w *workspace) run(ctx context.Context, command string) (string, error) {
	args := strings.Fields(command)
	if len(args) == 0 {
		return "", errors.New("command is empty")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = w.dir
	cmd.WaitDelay = time.Second
	// The agent's key is none of the command's business.
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "OPENAI_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, w.env...)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return string(out), err
}

// output is what became of a tool's output on its way to the model.
type output struct {
	text      string // at most outputLimit bytes of it, and a line that says so
	truncated bool
	path      string // where all of it is, when truncated
	size      int64
	sha256    string
}

// changes returns what was changed so far, as a patch.
func (w *workspace) changes() string {
	w.editing.Lock()
	defer w.editing.Unlock()
	return strings.Join(w.patches, "")
}

// clip shortens a long output of a tool call, and keeps the whole of it in a
// file.
func (w *workspace) clip(callID, text string) (output, error) {
	if len(text) <= outputLimit {
		return output{text: text}, nil
	}
	p, err := w.save("output", callID, ".txt", text)
	if err != nil {
		return output{}, fmt.Errorf("save output: %w", err)
	}
	head := text[:outputLimit]
	for !utf8.ValidString(head) && len(head) > outputLimit-utf8.UTFMax {
		head = head[:len(head)-1]
	}
	sum := sha256.Sum256([]byte(text))
	return output{
		text:      fmt.Sprintf("%s\n[%d of %d bytes; read %s for all of it]", head, len(head), len(text), p),
		truncated: true, path: p, size: int64(len(text)), sha256: hex.EncodeToString(sum[:]),
	}, nil
}

func (w *workspace) close() error { return w.root.Close() }
