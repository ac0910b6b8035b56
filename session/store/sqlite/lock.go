package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/agenttrace/agenttrace/session/store"
)

// lockSuffix names the lock file beside the database. Whoever holds the lock writes its name into the file; the lock
// itself ends with its process, however that dies.
const lockSuffix = ".lock"

// writerLock is the lock of the one writer of a database. There are two, for a database has more than one name:
//
//   - A file beside the database that a path leads to, with the name of its holder. It is the same one for every path
//     and symbolic link to the database, from any working directory, and through a bind mount of the directory.
//   - The database itself, by device and inode, which a hard link and a bind mount of the
//     file share and the file beside it is not: see lockInode.
type writerLock struct {
	beside *flock.Flock
	inode  *os.File
	owner  string // the line of the file that names the holder
}

// lock takes the writer's lock of the store at path and makes the file where there is none.
func lock(path string) (*writerLock, error) {
	if err := checkRegular(path); err != nil {
		return nil, err
	}
	if err := createFile(path); err != nil {
		return nil, err
	}
	real, err := realPath(path)
	if err != nil {
		return nil, classifyFile(fmt.Errorf("open store %s: %w", path, err))
	}
	l := &writerLock{beside: flock.New(real+lockSuffix, flock.SetPermissions(0o600))}
	got, err := l.beside.TryLock()
	if err != nil {
		return nil, classifyFile(fmt.Errorf("lock store %s: %w", path, err))
	}
	if !got {
		return nil, lockedError(path, holder(real+lockSuffix))
	}
	if err := l.lockFile(path, real); err != nil {
		_ = l.unlock()
		return nil, err
	}
	host, _ := os.Hostname()
	l.owner = fmt.Sprintf("process %d (%s) on %s since %s\n", os.Getpid(), filepath.Base(os.Args[0]), host,
		time.Now().UTC().Format(time.RFC3339))
	// The name is a courtesy to the next one who asks: the lock holds without it.
	_ = os.WriteFile(real+lockSuffix, []byte(l.owner), 0o600)
	return l, nil
}

// lockFile locks the inode of the database.
func (l *writerLock) lockFile(path, real string) error {
	f, err := files.open(real)
	if err != nil {
		return classifyFile(fmt.Errorf("open store %s: %w", path, err))
	}
	if err = checkHeader(path, f); err == nil && !lockInode(f) {
		err = lockedError(path, unknownHolder+", it uses another name of the file")
	}
	if err != nil {
		files.close(f)
		return err
	}
	l.inode = f
	return nil
}

func (l *writerLock) unlock() (err error) {
	if l.inode != nil {
		err = unlockInode(l.inode)
		files.close(l.inode)
		l.inode = nil
	}
	return errors.Join(err, l.beside.Unlock())
}

// release unlocks the store when its writing connection is closed.
func (l *writerLock) release() error {
	err := l.unlock()
	files.connect(-1)
	return err
}

func lockedError(path, owner string) error {
	return fmt.Errorf("open store %s: %w: %s; stop it or use another store", path, store.ErrLocked, owner)
}

const unknownHolder = "its name is not known"

func holder(name string) string {
	b, err := os.ReadFile(name)
	if b, _, _ = bytes.Cut(bytes.TrimSpace(b), []byte("\n")); err != nil || len(b) == 0 {
		return unknownHolder
	}
	return "it is " + string(b)
}

// socketPrefix begins the line of a lock file that names a socket.
const socketPrefix = "socket "

// Advertise has the store's lock file name the Unix socket on which this process changes sessions for others, until the
// store is closed. See [Socket].
func (s *Store) Advertise(socket string) error {
	real, err := realPath(s.Path())
	if err == nil {
		err = os.WriteFile(real+lockSuffix, []byte(s.lock.owner+socketPrefix+socket+"\n"), 0o600)
	}
	if err != nil {
		return classifyFile(fmt.Errorf("name the socket of store %s in its lock file: %w", s.Path(), err))
	}
	return nil
}

// Socket returns the Unix socket on which the process that holds the store at path changes sessions for others, "" if
// it names none.
func Socket(path string) string {
	real, err := realPath(path)
	if err != nil {
		return ""
	}
	b, _ := os.ReadFile(real + lockSuffix)
	for line := range strings.Lines(string(b)) {
		if socket, ok := strings.CutPrefix(line, socketPrefix); ok {
			return strings.TrimSpace(socket)
		}
	}
	return ""
}

// realPath returns the path that symbolic links lead to, the path itself if nothing is there.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	return real, err
}

// createFile makes the database, also where a symbolic link leads to, unless it is there. It is private to the user:
// prompts are sensitive.
func createFile(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return classifyFile(fmt.Errorf("create directory of store %s: %w", path, err))
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return classifyFile(fmt.Errorf("create store %s: %w", path, err))
	}
	files.close(f)
	return nil
}

// checkRegular refuses what is there and no regular file, such as a device.
func checkRegular(path string) error {
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil // what is not there will be made, and what cannot be seen fails when it is opened
	case info.IsDir():
		return fmt.Errorf("open store %s: %w: it is a directory; name a file in it", path, store.ErrNotStore)
	case !info.Mode().IsRegular():
		return fmt.Errorf("open store %s: %w: it is not a regular file; name another", path, store.ErrNotStore)
	}
	return nil
}

// files are the databases that are open besides SQLite's own connections, to look at them and to lock them.
//
// POSIX drops all locks that a process has on a file when the process closes any descriptor of it. SQLite's locks are
// such: closing one here would let another process believe that nobody has the database open, and remove the log that
// our writer is writing. So a file is closed when the process has no connection any more, and is used again until then.
var files openFiles

type openFiles struct {
	mu          sync.Mutex
	connections int
	kept        []*os.File
}

// open opens a file for reading.
func (o *openFiles) open(path string) (*os.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if named, err := os.Stat(path); err == nil {
		for i, f := range o.kept {
			if info, err := f.Stat(); err == nil && os.SameFile(info, named) {
				o.kept = slices.Delete(o.kept, i, i+1)
				return f, nil
			}
		}
	}
	return os.Open(path)
}

// close closes a file, or keeps it for as long as there are connections.
func (o *openFiles) close(f *os.File) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.connections == 0 || runtime.GOOS == "windows" {
		_ = f.Close()
	} else {
		o.kept = append(o.kept, f)
	}
}

// connect counts connections: n more, or less.
func (o *openFiles) connect(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.connections += n; o.connections == 0 {
		for _, f := range o.kept {
			_ = f.Close()
		}
		o.kept = nil
	}
}
