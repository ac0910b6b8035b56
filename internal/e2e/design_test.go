package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

const module = "github.com/agenttrace/agenttrace/"

// drawing is the part of design.md that lists the packages by layer.
type drawing struct {
	layer  map[string]int      // by path, which ends in "*" for the packages below a directory; 0 is the top
	arrows map[string][]string // imports that are drawn, by importing path
}

// TestPackagesImportWhatDesignDraws checks that every package has a line in design.md and
// imports only packages of lower layers, or those that an arrow leads to.
func TestPackagesImportWhatDesignDraws(t *testing.T) {
	d := readDrawing(t)
	used := make(map[string]bool) // lines and arrows that agree with some package
	for pkg, imports := range listImports(t) {
		line := d.find(pkg)
		if line == "" {
			t.Errorf("%s has no line in design.md", pkg)
			continue
		}
		used[line] = true
		for _, imported := range imports {
			target := d.find(imported)
			switch {
			case target == line && !strings.HasSuffix(line, "*"):
				// Packages below the internal directory of a package share its line.
			case slices.Contains(d.arrows[line], imported):
				used[line+" → "+imported] = true
			case target != "" && d.layer[target] <= d.layer[line]:
				t.Errorf("%s imports %s, which is not in a lower layer of design.md: "+
					"move the code down, or draw the arrow", pkg, imported)
			}
		}
	}
	for line := range d.layer {
		if !used[line] {
			t.Errorf("design.md lists %s, and there is no such package", line)
		}
		for _, target := range d.arrows[line] {
			if !used[line+" → "+target] {
				t.Errorf("design.md draws %s → %s, and there is no such import", line, target)
			}
		}
	}
}

// find returns the path of the package's line, or "". A package in the internal directory
// of another one belongs to the line of that one.
func (d *drawing) find(pkg string) string {
	if _, ok := d.layer[pkg]; ok {
		return pkg
	}
	for dir := pkg; strings.Contains(dir, "/"); {
		dir = dir[:strings.LastIndex(dir, "/")]
		if _, ok := d.layer[dir+"/*"]; ok {
			return dir + "/*"
		}
	}
	owner, _, _ := strings.Cut(pkg, "/internal/")
	if _, ok := d.layer[owner]; ok {
		return owner
	}
	return ""
}

// readDrawing reads the layers. A line of a package begins with its path, which ends in "/"
// or "/*", and may end in "→" and paths. Any other line begins a layer.
func readDrawing(t *testing.T) *drawing {
	t.Helper()
	text := testscale.ReadFile(t, "../../docs/design.md")
	_, part, begins := strings.Cut(string(text), "<!-- begin packages -->\n")
	part, _, ends := strings.Cut(part, "<!-- end packages -->\n")
	if !begins || !ends {
		t.Fatal("design.md has no drawing of the packages")
	}
	d := &drawing{layer: make(map[string]int), arrows: make(map[string][]string)}
	layer := 0
	for line := range strings.Lines(part) {
		text, arrows, _ := strings.Cut(line, "→")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		path := words[0]
		if !strings.HasSuffix(path, "/") && !strings.HasSuffix(path, "/*") {
			layer++
			continue
		}
		path = strings.TrimSuffix(path, "/")
		if _, ok := d.layer[path]; ok {
			t.Errorf("design.md lists %s twice", path)
		}
		d.layer[path] = layer
		for target := range strings.SplitSeq(arrows, ",") {
			if target = strings.TrimSpace(target); target != "" {
				d.arrows[path] = append(d.arrows[path], target)
			}
		}
	}
	return d
}

// listImports returns the imports of each package of the module from the module.
func listImports(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-f", `{{if .GoFiles}}{{.ImportPath}} {{join .Imports " "}}{{end}}`, "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(fmt.Errorf("go list: %w", err))
	}
	imports := make(map[string][]string)
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		pkg := strings.TrimPrefix(words[0], module)
		imports[pkg] = nil
		for _, imported := range words[1:] {
			if path, ok := strings.CutPrefix(imported, module); ok {
				imports[pkg] = append(imports[pkg], path)
			}
		}
	}
	return imports
}
