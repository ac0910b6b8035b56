package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/codec/formats"
)

// inputs finds what the arguments name.
func (im *importer) inputs(cmd *cobra.Command, args []string) ([]input, error) {
	stdin := input{name: "standard input", open: func() (io.ReadCloser, error) { return io.NopCloser(cmd.InOrStdin()), nil }}
	if len(args) == 0 {
		if f, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(f.Fd()) {
			return nil, usagef("import what? name files, or pipe something in")
		}
		return []input{stdin}, nil
	}
	var all []input
	for _, arg := range args {
		if arg == "-" {
			all = append(all, stdin)
			continue
		}
		info, err := os.Stat(arg)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			all = append(all, input{name: arg, err: errors.New("no such file")})
		case err != nil:
			all = append(all, input{name: arg, err: err})
		case info.IsDir():
			if im.format != nil && im.format.DecodeFile != nil && im.format.Layout != nil {
				all = append(all, wholeDirectory(arg, im.format))
				continue
			}
			files, err := directory(arg, im.format == nil)
			if err == nil && len(files) == 0 {
				err = fmt.Errorf("no file in the directory, or below it, ends in %s; name the files", extensions())
			}
			if err != nil {
				all = append(all, input{name: arg, err: err})
			}
			all = append(all, files...)
		default:
			all = append(all, fileInput(arg, info))
		}
	}
	return all, nil
}

func fileInput(path string, info fs.FileInfo) input {
	in := input{name: path, open: func() (io.ReadCloser, error) { return os.Open(path) }}
	if info.Mode().IsRegular() {
		in.path, in.size = path, info.Size()
	}
	return in
}

// directory lists what is in a directory and below it, in the order of the names:
// directories that a program laid out, where sniff is set, each as a whole, and else
// the files that have the extension of a format, and those of a spool. Hidden
// directories, and links to directories, are passed over.
func directory(root string, sniff bool) ([]input, error) {
	var all []input
	spool := make(map[string]bool)
	root = strings.TrimRight(root, string(filepath.Separator)) + string(filepath.Separator) // so that a link is followed
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil && path == root {
			return err
		}
		if err != nil {
			all = append(all, input{name: path, err: err})
			return nil
		}
		if !e.IsDir() {
			ext := strings.ToLower(filepath.Ext(e.Name()))
			known := slices.ContainsFunc(formats.All, func(f formats.Format) bool { return slices.Contains(f.Extensions, ext) })
			if info, err := os.Stat(path); known && err == nil && info.Mode().IsRegular() && !spool[path] {
				in := fileInput(path, info)
				in.found = true
				all = append(all, in)
			}
			return nil
		}
		if path != root && strings.HasPrefix(e.Name(), ".") {
			return fs.SkipDir
		}
		if sniff {
			if format := formats.OfDirectory(path); format != nil && !mixed(path, format) {
				all = append(all, wholeDirectory(filepath.Clean(path), format))
				return fs.SkipDir
			}
		}
		spooled, err := spoolFiles(path)
		if err != nil && path == root {
			return err
		}
		for _, in := range spooled {
			if !spool[in.name] {
				all, spool[in.name] = append(all, in), true
			}
		}
		return nil
	})
	return all, err
}

// mixed says whether a directory that looks like one of the format has, beside what
// the format reads of it, files of others, which would be lost with it as a whole.
func mixed(path string, f *formats.Format) bool {
	other := func(dir string) bool {
		entries, _ := os.ReadDir(dir) // what cannot be read shows when it is
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
			if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") {
				return false
			}
			of := formats.OfFile(filepath.Join(dir, e.Name()))
			return of != nil && of != f
		})
	}
	entries, _ := os.ReadDir(path)
	return other(path) || slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			return false
		}
		below := filepath.Join(path, e.Name())
		of := formats.OfDirectory(below)
		return of != nil && of != f || of == nil && other(below)
	})
}
