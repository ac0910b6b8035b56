package cli_test

import (
	"archive/zip"
	"io"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"
)

// unzip is the command "unzip FILE DIR" of the scripts.
func unzip(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: unzip FILE DIR")
	}
	z, err := zip.OpenReader(ts.MkAbs(args[0]))
	ts.Check(err)
	defer z.Close()
	for _, f := range z.File {
		if !filepath.IsLocal(f.Name) {
			ts.Fatalf("%s leads out of the zip", f.Name)
		}
		path := filepath.Join(ts.MkAbs(args[1]), f.Name)
		ts.Check(os.MkdirAll(filepath.Dir(path), 0o700))
		r, err := f.Open()
		ts.Check(err)
		content, err := io.ReadAll(r)
		ts.Check(err)
		ts.Check(r.Close())
		ts.Check(os.WriteFile(path, content, 0o600))
	}
}
