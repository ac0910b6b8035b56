package codec

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/agenttrace/agenttrace/internal/lazy"
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

// plainID matches the ids that are names of files as they are, and notPlain what no name has.
var plainID, notPlain = lazy.Regexp("^[a-z0-9_-]{1,160}$"), lazy.Regexp("[^A-Za-z0-9_-]")

// devices match the names that Windows keeps for devices.
var devices = lazy.Regexp("^(con|prn|aux|nul|com[0-9]|lpt[0-9])$")

// FileName makes of an id, which anyone may have sent, the name of a file without its extension: one name, not a path,
// that every file system takes, of at most 200 bytes. No two ids have one name, also where upper and lower case are the
// same: of an id that is not lower-case letters, digits, "-" and "_", it has what a name can have, "~" and a hash.
func FileName(id string) string {
	if plainID().MatchString(id) && !devices().MatchString(id) {
		return id
	}
	const maximum = 160 // file systems take 255 bytes, with an extension and the suffixes of temporary files
	sum := sha256.Sum256([]byte(id))
	return fmt.Sprintf("%s~%x", notPlain().ReplaceAllString(id[:min(len(id), maximum)], "_"), sum[:8])
}
