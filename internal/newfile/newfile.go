// Package newfile puts files in their places whole, private to the user.
package newfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Temporary begins the names of files that are being written, in the directory of their places.
const Temporary = ".new-"

// File is a file to be written.
type File struct {
	Path string
	Text []byte
}

// Replace puts files in their places. All are on the disk before the first of them takes its place, so that a disk that
// is full leaves what was there.
func Replace(files ...File) error {
	var written []string
	defer func() {
		for _, name := range written { // those that took their place have another name
			_ = os.Remove(name)
		}
	}()
	for _, f := range files {
		temporary, err := os.CreateTemp(filepath.Dir(f.Path), Temporary+"*") // mode 0600
		if err != nil {
			return err
		}
		written = append(written, temporary.Name())
		if _, err = temporary.Write(f.Text); err == nil {
			err = temporary.Sync()
		}
		if err = errors.Join(err, temporary.Close()); err != nil {
			return err
		}
	}
	for i, f := range files {
		if err := os.Rename(written[i], f.Path); err != nil {
			return err
		}
	}
	return nil
}

// Place gives a file that is whole its name. The error for one that is taken is fs.ErrExist.
func Place(temporary, path string) error {
	// Unlike Rename, Link fails where another has taken the name meanwhile.
	err := os.Link(temporary, path)
	if errors.Is(err, fs.ErrExist) {
		return fs.ErrExist
	} else if err != nil {
		err = os.Rename(temporary, path) // a file system without links
	}
	return err
}
