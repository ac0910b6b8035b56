package codeagent

import (
	"context"
	"crypto/sha256"
	_ "embed" // of the project
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

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/agenttrace/agenttrace/agenttrace"
)

// scratch is a small Go project with a failing test.
//
//go:embed project.txtar
var scratch []byte

// outputLimit is the maximum number of bytes of a tool's output that the model gets.
const outputLimit = 2048

// agentDir is the directory for the agent's own files.
const agentDir = ".agent"

// workspace is the directory in which the tools work. Its paths are relative and slash
// separated. None leads out of it, neither by ".." nor by a link.
type workspace struct {
	dir  string
	root *os.Root
	// env is added to the environment of commands.
	env []string
	// editing serializes the edits of one step, which run concurrently. It guards patches, the changes so far.
	editing sync.Mutex
	patches []string
}

// openWorkspace opens dir, or a new copy of the scratch project if dir is "".
func openWorkspace(dir string) (_ *workspace, err error) {
	var env []string
	if dir == "" {
		// The scratch project needs no network, and is in no go.work.
		env = []string{"GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off"}
		if dir, err = os.MkdirTemp("", "codeagent-"); err != nil {
			return nil, fmt.Errorf("make workspace: %w", err)
		}
		if err := txtar.Write(txtar.Parse(scratch), dir); err != nil {
			return nil, errors.Join(fmt.Errorf("copy scratch project: %w", err), os.RemoveAll(dir))
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	return &workspace{dir: dir, root: root, env: env}, nil
}

// walk calls fn for every file that is not hidden, in lexical order.
func (w *workspace) walk(fn func(name string, content []byte)) error {
	return fs.WalkDir(w.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		hidden := name != "." && strings.HasPrefix(d.Name(), ".")
		switch {
		case err == nil && hidden && d.IsDir():
			return fs.SkipDir
		case err != nil || hidden || !d.Type().IsRegular():
			return err
		}
		content, err := w.root.ReadFile(name)
		if err == nil {
			fn(name, content)
		}
		return err
	})
}

// save writes a file of the agent's own and returns its path. id may be any text, because the model chose it.
func (w *workspace) save(dir, id, ext, content string) (string, error) {
	name := path.Join(agentDir, dir, url.PathEscape(id)+ext)
	if err := w.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return "", err
	}
	return name, w.root.WriteFile(name, []byte(content), 0o644)
}

// commandLimit is how long a command may take: with an empty build cache and other programs at
// work, Go compiles its own library for minutes.
const commandLimit = 30 * time.Minute

// run executes a command line in the workspace and returns its output. There is no shell,
// so a rule that allows "go test*" allows nothing else.
func (w *workspace) run(ctx context.Context, command string) (string, error) {
	args := strings.Fields(command)
	if len(args) == 0 {
		return "", errors.New("command is empty")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, commandLimit,
		fmt.Errorf("it was stopped because it took more than %v", commandLimit))
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = w.dir
	cmd.WaitDelay = time.Second
	// Commands do not get the agent's API key.
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

// changes returns the changes so far as a patch.
func (w *workspace) changes() string {
	w.editing.Lock()
	defer w.editing.Unlock()
	return strings.Join(w.patches, "")
}

// clip truncates a long output of a tool call for the model, and stores the whole output in a file.
func (w *workspace) clip(callID, text string) (string, *agenttrace.Truncated, error) {
	if len(text) <= outputLimit {
		return text, nil, nil
	}
	file, err := w.save("output", callID, ".txt", text)
	if err != nil {
		return "", nil, fmt.Errorf("save output: %w", err)
	}
	head := strings.ToValidUTF8(text[:outputLimit], "")
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%s\n[%d of %d bytes; read %s for all of it]", head, len(head), len(text), file),
		&agenttrace.Truncated{Path: file, Size: int64(len(text)), SHA256: hex.EncodeToString(sum[:])}, nil
}
