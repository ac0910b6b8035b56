package cli_test

import (
	"archive/zip"
	"os"

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
	ts.Check(os.CopyFS(ts.MkAbs(args[1]), z))
}
