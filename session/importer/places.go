package importer

import (
	"cmp"
	_ "embed" // of the places
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
)

// usualPlace is a directory below which a program keeps its sessions.
type usualPlace struct {
	Program string
	// Variable is that of the environment that names another directory, of which the
	// place is the one at Below.
	Variable, Below string
	// Home is the place in the user's home, "" for one that only the variable names. MacOS and Windows are set where
	// the place is another there; they may begin with a directory of Windows, such as %APPDATA%.
	Home, MacOS, Windows string
	// Patterns are those of what to import. The empty one is for the directory as a whole,
	// which is what Whole names. One that begins with EDITOR stands for one of each of the editors.
	Patterns []string
	Whole    string
	// File is the variable that names a file that is elsewhere.
	File string
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

// root is where the place is on an operating system, for a user's home; "" if it is
// nowhere.
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
