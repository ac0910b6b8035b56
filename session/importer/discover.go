package importer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/agenttrace/agenttrace/session/codec/formats"
)

// Place is where a program usually keeps its sessions, and what was found there.
type Place struct {
	Program string `json:"program"`
	Path    string `json:"path"`
	// Files are the files to import, or the directory if that is one input.
	Files []string `json:"files"`
	// Whole names the content of the directory if it is one input.
	Whole string `json:"-"`
	// Error is the reason why not all of the place can be read.
	Error string `json:"error,omitempty"`

	patterns []string
}

// Discover looks for the sessions of known agents in their usual places. It returns all
// places; one without sessions has no files.
func Discover() ([]Place, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("find the usual places: %w", err)
	}
	var all []Place
	seen := make(map[string]bool)
	for _, p := range places() {
		for _, root := range p.roots(home) {
			found := p.find(root)
			found.Files = slices.DeleteFunc(found.Files, func(file string) bool {
				was := seen[file]
				seen[file] = true
				return was
			})
			all = append(all, found)
		}
	}
	return all, nil
}

// find looks for the sessions in a place.
func (p *usualPlace) find(root string) Place {
	found := Place{Program: p.Program, Path: root, Whole: p.Whole, patterns: p.Patterns, Files: []string{}}
	var failed error
	for _, pattern := range p.Patterns {
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
		if failed == nil {
			failed = unreadable(filepath.Join(root, filepath.FromSlash(dir)),
				strings.Count(pattern, "/")-strings.Count(dir, "/"))
		}
	}
	if failed == nil {
		failed = unreadable(root, 0)
	}
	if failed != nil {
		found.Error = failed.Error()
	}
	if name := os.Getenv(p.File); p.File != "" && name != "" {
		if !filepath.IsAbs(name) {
			name = filepath.Join(root, name)
		}
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			found.Files = append(found.Files, name)
		}
	}
	return found
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
		if p.Error != "" {
			inputs = append(inputs, Input{Name: p.Path, Err: errors.New(p.Error)})
		}
		for _, file := range p.Files {
			info, err := os.Stat(file)
			switch {
			case err != nil: // gone meanwhile
			case info.IsDir():
				if format := formats.OfDirectory(file); format != nil {
					inputs = append(inputs, Input{Name: file, path: file, format: format, info: info, found: true})
				}
			default:
				inputs = append(inputs, fileInput(file, info, true))
			}
		}
	}
	return inputs
}
