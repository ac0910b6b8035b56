package importer

import (
	"cmp"
	_ "embed" // of the places
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/agenttrace/agenttrace/session/codec/formats"
)

// Place is where a program usually keeps its sessions, and what was found there.
type Place struct {
	Program string `json:"program"`
	Path    string `json:"path"`
	// Files are the files and directories to import.
	Files []string `json:"files"`
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

func (p *usualPlace) find(root string) Place {
	found := Place{Program: p.Program, Path: root, patterns: p.Patterns, Files: []string{}}
	_, failed := glob(root, "")
	for _, pattern := range p.Patterns {
		files, err := glob(root, pattern)
		found.Files, failed = append(found.Files, files...), cmp.Or(failed, err)
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

// glob is [filepath.Glob] below a directory, with the first error of one that is there and cannot be read.
func glob(dir, pattern string) (files []string, failed error) {
	first, rest, deeper := strings.Cut(pattern, "/")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return nil, err
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if ok, _ := path.Match(first, e.Name()); ok && deeper { // the patterns are right
			more, err := glob(name, rest)
			files, failed = append(files, more...), cmp.Or(failed, err)
		} else if ok {
			files = append(files, name)
		}
	}
	return files, failed
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
					inputs = append(inputs, Input{Name: file, path: file, format: format, found: true})
				}
			default:
				inputs = append(inputs, fileInput(file, info, true))
			}
		}
	}
	return inputs
}

// usualPlace is a directory below which a program keeps its sessions.
type usualPlace struct {
	Program string
	// Variable is that of the environment that names another directory, of which the place is the one at Below.
	Variable, Below string
	// Home is the place in the user's home, "" for one that only the variable names. MacOS and Windows are set where
	// the place is another there; they may begin with a directory of Windows, such as %APPDATA%.
	Home, MacOS, Windows string
	// Patterns are those of what to import. One that begins with EDITOR stands for one of each of the editors.
	Patterns []string
	// File is the variable that names a file that is elsewhere.
	File string
	// List is a JSON file in the place, with the key of an array and that in each of its objects, which names a place of
	// a project.
	List string
	// Project is a place below the working directory, or below one above it in the same repository.
	Project string
}

// editors are the directories of VS Code, and of what is made of it.
var editors = []string{"Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf"}

//go:embed places.json
var placesJSON []byte

var places = sync.OnceValue(func() (all []usualPlace) {
	if err := json.Unmarshal(placesJSON, &all); err != nil {
		panic(err) // a mistake in the file
	}
	for i := range all {
		var patterns []string
		for _, pattern := range all[i].Patterns {
			rest, inEditors := strings.CutPrefix(pattern, "EDITOR/")
			if !inEditors {
				patterns = append(patterns, pattern)
				continue
			}
			for _, editor := range editors {
				patterns = append(patterns, editor+"/User/"+rest)
			}
		}
		all[i].Patterns = patterns
	}
	return all
})

// roots are the place of the user, those that it lists, and that of the project in the working directory.
func (p *usualPlace) roots(home string) (all []string) {
	root := p.root(runtime.GOOS, home, os.Getenv)
	if root != "" {
		all = append(all, root)
	}
	if keys := strings.Fields(p.List); root != "" && len(keys) == 3 {
		var list map[string]json.RawMessage
		var projects []map[string]any
		text, _ := os.ReadFile(filepath.Join(root, keys[0])) // one that is missing or damaged lists nothing
		_ = json.Unmarshal(text, &list)
		_ = json.Unmarshal(list[keys[1]], &projects)
		for _, project := range projects {
			if dir, _ := project[keys[2]].(string); filepath.IsAbs(dir) && !slices.Contains(all, filepath.Clean(dir)) {
				all = append(all, filepath.Clean(dir))
			}
		}
	}
	if dir := p.projectRoot(); dir != "" && !slices.Contains(all, dir) {
		all = append(all, dir)
	}
	return all
}

// projectRoot is the place of the project, which need not be there; "" for programs that keep nothing in projects.
func (p *usualPlace) projectRoot() string {
	working, err := os.Getwd()
	if p.Project == "" || err != nil {
		return ""
	}
	has := func(dir, name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	for dir := working; ; dir = filepath.Dir(dir) {
		place := filepath.Join(dir, filepath.FromSlash(p.Project))
		if slices.ContainsFunc(p.Patterns, func(pattern string) bool { return has(place, pattern) }) {
			return place
		}
		if has(dir, ".git") || dir == filepath.Dir(dir) {
			return filepath.Join(working, filepath.FromSlash(p.Project))
		}
	}
}

// root is where the place is on an operating system, for a user's home; "" if it is nowhere.
func (p *usualPlace) root(system, home string, env func(string) string) string {
	path := map[string]string{"darwin": p.MacOS, "windows": p.Windows}[system]
	// The directories of XDG are of systems that have no others.
	if dir := env(p.Variable); dir != "" && (path == "" || !strings.HasPrefix(p.Variable, "XDG_")) {
		return filepath.Join(dir, filepath.FromSlash(p.Below))
	}
	if path = cmp.Or(path, p.Home); path == "" {
		return ""
	}
	for variable, usual := range map[string]string{"APPDATA": "AppData/Roaming", "LOCALAPPDATA": "AppData/Local"} {
		if rest, ok := strings.CutPrefix(path, "%"+variable+"%"); ok {
			dir := cmp.Or(env(variable), filepath.Join(home, filepath.FromSlash(usual)))
			return filepath.Join(dir, filepath.FromSlash(rest))
		}
	}
	return filepath.Join(home, filepath.FromSlash(path))
}
