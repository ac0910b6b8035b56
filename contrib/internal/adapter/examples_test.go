package adapter_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestExamplesOfAdaptersCanBeCopied checks that they import nothing that other modules cannot.
func TestExamplesOfAdaptersCanBeCopied(t *testing.T) {
	files, err := filepath.Glob("../../*/example_test.go")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d examples: %v", len(files), err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range parsed.Imports {
			if strings.Contains(i.Path.Value, "/internal/") {
				t.Errorf("%s imports %s", file, i.Path.Value)
			}
		}
	}
}
