package codec

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
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

// maxName is how long what a file name has of an id may be, in bytes: file systems take
// 255, and an extension and the suffixes of temporary files come to it. What is as long has
// been cut, so that the digits of an id that was not cut equal no hash of one that was.
const maxName = 160

// FileName makes of an id, which anyone may have sent, the name of a file without its
// extension: one name, not a path, that every file system takes, of at most 200 bytes. No two
// ids have one name, also where upper and lower case are the same.
//
// Letters, digits, "-" and "_" are kept; any other byte is %XX, so names of dots and control characters are none. The
// first byte of a name that Windows keeps for a device is %XX. Where letters are upper case, "~" and hexadecimal digits
// follow, with a bit set for each of them, from the beginning of the name: "Ab" is "Ab~8", and "ab" is "ab". What is
// too long is cut, and "~" and a hash of the id follow. An empty id is "%".
func FileName(id string) string {
	const hexDigits = "0123456789abcdef"
	var name []byte
	var upper []byte // the values of the digits
	first, mixed := reservedName(id), false
	for i := 0; i < len(id) && len(name) < maxName; i++ {
		c := id[i]
		isUpper := c >= 'A' && c <= 'Z'
		plain := isUpper || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_'
		if !plain || first && i == 0 {
			name = fmt.Appendf(name, "%%%02X", c)
			continue
		}
		if isUpper {
			mixed = true
			upper = append(upper, make([]byte, max(0, len(name)/4+1-len(upper)))...)
			upper[len(name)/4] |= 8 >> (len(name) % 4)
		}
		name = append(name, c)
	}
	switch {
	case len(name) >= maxName:
		sum := sha256.Sum256([]byte(id))
		return string(name[:maxName]) + "~" + hex.EncodeToString(sum[:16])
	case mixed:
		name = append(name, '~')
		for _, u := range upper {
			name = append(name, hexDigits[u])
		}
	case len(name) == 0:
		return "%"
	}
	return string(name)
}

// reservedName reports whether Windows takes the name, in any case, for a device.
func reservedName(id string) bool {
	switch id := strings.ToLower(id); {
	case id == "con", id == "prn", id == "aux", id == "nul", id == "conin$", id == "conout$":
		return true
	case len(id) == 4 && (strings.HasPrefix(id, "com") || strings.HasPrefix(id, "lpt")):
		return id[3] >= '0' && id[3] <= '9'
	}
	return false
}
