package codec

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// CheckFile returns an error for what is not a regular file, such as a named pipe: it may have no
// end, or have its reader wait for good.
func CheckFile(info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	kinds := map[fs.FileMode]string{fs.ModeDir: "directory", fs.ModeNamedPipe: "named pipe", fs.ModeSocket: "socket"}
	return fmt.Errorf("it is a %s, not a file", cmp.Or(kinds[info.Mode().Type()], "device"))
}

// OpenFile opens a regular file for reading, and nothing else.
func OpenFile(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := CheckFile(info); err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.Open(path)
}

// ReadFile reads a regular file, and nothing else.
func ReadFile(path string) ([]byte, error) {
	f, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
