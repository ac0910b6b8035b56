package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/agenttrace/agenttrace/session/inspect"
)

// place is where a program keeps its sessions, and what is there.
type place struct {
	program, path string
	files         []string
	whole         string // what the directory is, where it is the one file
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

// discovered finds what programs keep in the usual places.
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
				if sniffDirectory(root) != nil {
					found.files = append(found.files, root)
				}
				continue
			}
			files, _ := filepath.Glob(filepath.Join(globEscape(root), filepath.FromSlash(pattern)))
			found.files = append(found.files, files...)
		}
		if name := os.Getenv(p.file); p.file != "" && name != "" {
			if !filepath.IsAbs(name) {
				name = filepath.Join(root, name)
			}
			if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
				found.files = append(found.files, name)
			}
		}
		if len(found.files) > 0 {
			all = append(all, found)
		}
	}
	return all, nil
}

// inputsOf are the files and directories of the places.
func inputsOf(all []place) []input {
	var inputs []input
	for _, p := range all {
		for _, file := range p.files {
			info, err := os.Stat(file)
			switch {
			case err != nil: // gone meanwhile
			case info.IsDir():
				if format := sniffDirectory(file); format != nil {
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

func printPlaces(w io.Writer, all []place) error {
	var b strings.Builder
	for _, p := range all {
		what := counted(len(p.files), "file")
		if len(p.files) == 1 && p.files[0] == p.path {
			what = p.whole
		}
		fmt.Fprintf(&b, "%s: %s in %s\n", p.program, what, inspect.Sanitize(p.path))
	}
	if len(all) == 0 {
		b.WriteString("nothing found in the usual places\n")
	} else {
		b.WriteString("Import all of it with: agenttrace import --discover --yes\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
