package session

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// TemporaryFile begins the names of files that are being written, in the directory of their places.
const TemporaryFile = ".new-"

// NewFile is a file to be written.
type NewFile struct {
	Path string
	Text []byte
}

// ReplaceFiles puts files in their places, private to the user. All are on the disk before the first of them takes its place, so that a disk that
// is full leaves what was there.
func ReplaceFiles(files ...NewFile) error {
	var written []string
	defer func() {
		for _, name := range written { // those that took their place have another name
			_ = os.Remove(name)
		}
	}()
	for _, f := range files {
		temporary, err := os.CreateTemp(filepath.Dir(f.Path), TemporaryFile+"*") // mode 0600
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

// PlaceFile gives a file that is whole its name. The error for one that is taken is fs.ErrExist.
func PlaceFile(temporary, path string) error {
	// Unlike Rename, Link fails where another has taken the name meanwhile.
	err := os.Link(temporary, path)
	if errors.Is(err, fs.ErrExist) {
		return fs.ErrExist
	} else if err != nil {
		err = os.Rename(temporary, path) // a file system without links
	}
	return err
}
