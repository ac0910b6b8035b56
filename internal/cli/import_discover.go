package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/printable"
)

// contentOf states what is in a place.
func contentOf(p *importer.Place) string {
	if len(p.Files) == 1 && p.Files[0] == p.Path {
		return p.Whole
	}
	return counted(len(p.Files), "file")
}

// listedPlace is a place as JSON.
type listedPlace struct {
	Program string   `json:"program"`
	Path    string   `json:"path"`
	Files   []string `json:"files"`
	Error   string   `json:"error,omitempty"`
}

// listed are the places where something is, or may be.
func listed(all []importer.Place) []listedPlace {
	found := []listedPlace{}
	for _, p := range all {
		l := listedPlace{Program: p.Program, Path: p.Path, Files: append([]string{}, p.Files...)}
		if p.Err != nil {
			l.Error = p.Err.Error()
		}
		if len(l.Files) > 0 || l.Error != "" {
			found = append(found, l)
		}
	}
	return found
}

func printPlaces(w io.Writer, all []importer.Place) error {
	var b, looked strings.Builder
	files := 0
	for i := range all {
		p := &all[i]
		if files += len(p.Files); len(p.Files) > 0 {
			fmt.Fprintf(&b, "%s: %s in %s\n", p.Program, contentOf(p), printable.Sanitize(p.Path))
		}
		if p.Err != nil {
			fmt.Fprintf(&b, "%s: not all of it can be read: %s\n", p.Program, printable.Sanitize(p.Err.Error()))
		}
		fmt.Fprintf(&looked, "  %-11s  %s\n", p.Program, printable.Sanitize(p.Path))
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
