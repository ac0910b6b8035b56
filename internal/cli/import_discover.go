package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/inspect"
)

// place is where a program keeps its sessions, and what is there.
type place struct {
	program, path string
	files         []string
	whole         string // what the directory is, where it is the one file
	err           error  // why it cannot be read, or a directory in it
}

// places are the usual ones: below the directory that a variable of the environment
// names, or in the user's home, and patterns of what to import of it. A pattern of
// nothing is for the directory as a whole, which is what whole says.
var places = []struct {
	program, variable, below, home string
	patterns                       []string
	whole                          string
	file                           string // the variable that names a file that is elsewhere
}{
	{"Claude Code", "CLAUDE_CONFIG_DIR", "", ".claude", []string{"projects/*/*.jsonl", "projects/*/*/subagents/*.jsonl"}, "", ""},
	{"Codex", "CODEX_HOME", "", ".codex", []string{"sessions/*/*/*/rollout-*.jsonl", "archived_sessions/rollout-*.jsonl"}, "", ""},
	{"Gemini CLI", "GEMINI_CLI_HOME", ".gemini", ".gemini", []string{"tmp/*/chats/session-*.json", "tmp/*/chats/session-*.jsonl", "tmp/*/chats/*/*.jsonl"}, "", ""},
	{"opencode", "XDG_DATA_HOME", "opencode", ".local/share/opencode", []string{""}, "a directory of sessions", "OPENCODE_DB"},
	{"AgentDbg", "AGENTDBG_DATA_DIR", "", ".agentdbg", []string{""}, "a directory of runs", ""},
	{"Maida", "MAIDA_DATA_DIR", "", ".maida", []string{""}, "a directory of runs", ""},
}

// discovered looks for what programs keep in the usual places. All of them are
// returned; those where nothing is have no files.
func discovered(args []string) ([]place, error) {
	if len(args) > 0 {
		return nil, usagef("--discover looks in the usual places; leave %q out, or leave out --discover", args[0])
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("find the usual places: %w", err)
	}
	var all []place
	for _, p := range places {
		root := filepath.Join(home, filepath.FromSlash(p.home))
		if dir := os.Getenv(p.variable); dir != "" {
			root = filepath.Join(dir, p.below)
		}
		found := place{program: p.program, path: root, whole: p.whole}
		for _, pattern := range p.patterns {
			if pattern == "" {
				if formats.OfDirectory(root) != nil {
					found.files = append(found.files, root)
				}
				continue
			}
			files, _ := filepath.Glob(filepath.Join(formats.GlobEscape(root), filepath.FromSlash(pattern)))
			found.files = append(found.files, files...)
			// A pattern passes over what it may not look into.
			dir, _, _ := strings.Cut(pattern, "*")
			if found.err == nil {
				found.err = unreadable(filepath.Join(root, filepath.FromSlash(dir)), strings.Count(pattern, "/")-strings.Count(dir, "/"))
			}
		}
		if found.err == nil {
			found.err = unreadable(root, 0)
		}
		if name := os.Getenv(p.file); p.file != "" && name != "" {
			if !filepath.IsAbs(name) {
				name = filepath.Join(root, name)
			}
			if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
				found.files = append(found.files, name)
			}
		}
		all = append(all, found)
	}
	return all, nil
}

// unreadable says why a directory, or one as many levels below it, cannot be read; nil
// where it can, or is not there.
func unreadable(dir string, below int) error {
	entries, err := os.ReadDir(dir)
	if err != nil && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) {
		return nil
	}
	for _, e := range entries {
		if below > 0 && err == nil && e.IsDir() {
			err = unreadable(filepath.Join(dir, e.Name()), below-1)
		}
	}
	return err
}

// inputsOf are the files and directories of the places.
func inputsOf(all []place) []input {
	var inputs []input
	for _, p := range all {
		if p.err != nil {
			inputs = append(inputs, input{name: p.path, err: p.err})
		}
		for _, file := range p.files {
			info, err := os.Stat(file)
			switch {
			case err != nil: // gone meanwhile
			case info.IsDir():
				if format := formats.OfDirectory(file); format != nil {
					inputs = append(inputs, wholeDirectory(file, format))
				}
			default:
				in := fileInput(file, info)
				in.found = true
				inputs = append(inputs, in)
			}
		}
	}
	return inputs
}

// what says in words what is in a place.
func (p *place) what() string {
	if len(p.files) == 1 && p.files[0] == p.path {
		return p.whole
	}
	return counted(len(p.files), "file")
}

// listedPlace is a place as JSON.
type listedPlace struct {
	Program string   `json:"program"`
	Path    string   `json:"path"`
	Files   []string `json:"files"`
	Error   string   `json:"error,omitempty"`
}

// listed are the places where something is, or may be.
func listed(all []place) []listedPlace {
	found := []listedPlace{}
	for _, p := range all {
		l := listedPlace{Program: p.program, Path: p.path, Files: append([]string{}, p.files...)}
		if p.err != nil {
			l.Error = p.err.Error()
		}
		if len(l.Files) > 0 || l.Error != "" {
			found = append(found, l)
		}
	}
	return found
}

func printPlaces(w io.Writer, all []place) error {
	var b, looked strings.Builder
	files := 0
	for i := range all {
		p := &all[i]
		if files += len(p.files); len(p.files) > 0 {
			fmt.Fprintf(&b, "%s: %s in %s\n", p.program, p.what(), inspect.Sanitize(p.path))
		}
		if p.err != nil {
			fmt.Fprintf(&b, "%s: not all of it can be read: %s\n", p.program, inspect.Sanitize(p.err.Error()))
		}
		fmt.Fprintf(&looked, "  %-11s  %s\n", p.program, inspect.Sanitize(p.path))
	}
	switch {
	case files > 0:
		b.WriteString("Import all of it with: agenttrace import --discover --yes\n")
	case b.Len() == 0:
		b.WriteString("nothing found in the usual places\n" + looked.String())
	}
	_, err := io.WriteString(w, b.String())
	return err
}
