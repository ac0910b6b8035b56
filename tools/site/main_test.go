package main

import (
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// TestTheDocumentationHasNoDeadLinks renders the documentation of this repository. No page runs a script.
func TestTheDocumentationHasNoDeadLinks(t *testing.T) {
	dir := t.TempDir()
	n, err := write(os.DirFS("../.."), dir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := fs.Glob(os.DirFS(dir), "docs/*.html")
	if err != nil || n < 30 || len(files) < 10 {
		t.Errorf("%d pages, below docs %v, %v", n, files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(dir + "/" + file)
		if err != nil || strings.Contains(string(text), "<script") {
			t.Errorf("%s: %v, or it has a script", file, err)
		}
	}
}

func TestWhatLeadsNowhereIsNamed(t *testing.T) {
	repo := fstest.MapFS{
		"README.md":    {Data: []byte("# A\n[b](docs/b.md#two-words) [c](docs/c.md) [d](d.go) [up](#a) [none](#none)\n")},
		"docs/b.md":    {Data: []byte("# B\n## Two `words`!\n## Two words\n[x](#two-words-1) [y](../README.md#b)\n")},
		"docs/lost.md": {Data: []byte("# Lost\n")},
		"d.go":         {},
	}
	dir := t.TempDir() + "/site"
	_, err := write(repo, dir)
	if _, made := os.Stat(dir); err == nil || made == nil {
		t.Fatalf("write = %v, and there is a site", err)
	}
	got := strings.Split(err.Error(), "\n")
	for _, want := range []string{"README.md: there is no file docs/c.md", "README.md: README.md has no heading #none",
		"docs/b.md: README.md has no heading #b", "docs/lost.md: no page leads to it"} {
		if len(got) != 4 || !strings.Contains(err.Error(), want) {
			t.Errorf("errors are %q; want %q", got, want)
		}
	}
}
