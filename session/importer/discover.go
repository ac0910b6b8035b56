package importer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/agenttrace/agenttrace/session/codec/formats"
)

// Place is where a program usually keeps its sessions, and what was found there.
type Place struct {
	Program, Path string
	// Files are the files to import, or the directory if that is one input.
	Files []string
	// Whole names the content of the directory if it is one input.
	Whole string
	// Err is the reason why not all of the place can be read.
	Err error
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
	{"Claude Code", "CLAUDE_CONFIG_DIR", "", ".claude", []string{"projects/*/*.jsonl", "projects/*/*/subagents/*.jsonl"},
		"", ""},
	{"Codex", "CODEX_HOME", "", ".codex", []string{"sessions/*/*/*/rollout-*.jsonl", "archived_sessions/rollout-*.jsonl"},
		"", ""},
	{"Gemini CLI", "GEMINI_CLI_HOME", ".gemini", ".gemini",
		[]string{"tmp/*/chats/session-*.json", "tmp/*/chats/session-*.jsonl", "tmp/*/chats/*/*.jsonl"}, "", ""},
	{"opencode", "XDG_DATA_HOME", "opencode", ".local/share/opencode", []string{""}, "a directory of sessions",
		"OPENCODE_DB"},
	{"Pi", "PI_CODING_AGENT_DIR", "", ".pi/agent", []string{"sessions/*/*.jsonl"}, "", ""},
	{"AgentDbg", "AGENTDBG_DATA_DIR", "", ".agentdbg", []string{""}, "a directory of runs", ""},
	{"Maida", "MAIDA_DATA_DIR", "", ".maida", []string{""}, "a directory of runs", ""},
}

// Discover looks for the sessions of known agents in their usual places. It returns all
// places; one without sessions has no files.
func Discover() ([]Place, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("find the usual places: %w", err)
	}
	var all []Place
	for _, p := range places {
		root := filepath.Join(home, filepath.FromSlash(p.home))
		if dir := os.Getenv(p.variable); dir != "" {
			root = filepath.Join(dir, p.below)
		}
		found := Place{Program: p.program, Path: root, Whole: p.whole}
		for _, pattern := range p.patterns {
			if pattern == "" {
				if formats.OfDirectory(root) != nil {
					found.Files = append(found.Files, root)
				}
				continue
			}
			files, _ := filepath.Glob(filepath.Join(formats.GlobEscape(root), filepath.FromSlash(pattern)))
			found.Files = append(found.Files, files...)
			// A pattern passes over what it may not look into.
			dir, _, _ := strings.Cut(pattern, "*")
			if found.Err == nil {
				found.Err = unreadable(filepath.Join(root, filepath.FromSlash(dir)),
					strings.Count(pattern, "/")-strings.Count(dir, "/"))
			}
		}
		if found.Err == nil {
			found.Err = unreadable(root, 0)
		}
		if name := os.Getenv(p.file); p.file != "" && name != "" {
			if !filepath.IsAbs(name) {
				name = filepath.Join(root, name)
			}
			if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
				found.Files = append(found.Files, name)
			}
		}
		all = append(all, found)
	}
	return all, nil
}

// unreadable states why a directory, or one as many levels below it, cannot be read; nil
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

// InputsOf returns the files and directories of the places.
func InputsOf(all []Place) []Input {
	var inputs []Input
	for _, p := range all {
		if p.Err != nil {
			inputs = append(inputs, Input{Name: p.Path, Err: p.Err})
		}
		for _, file := range p.Files {
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
