package sessionview

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/agenttrace/agenttrace/session/store"
)

// socket is the server on a Unix socket.
type socket struct {
	server *http.Server
	path   string
}

// advertiser is a store whose lock names a socket.
type advertiser interface {
	Path() string
	Advertise(socket string) error
}

// listenBeside serves on a socket beside the file of a store, and has the store's lock name it. A store that is no
// file has none.
func (v *view) listenBeside(s store.Store) (*socket, error) {
	file, ok := s.(advertiser)
	if !ok {
		return nil, nil
	}
	path, err := socketPath(file.Path())
	if err != nil {
		return nil, err
	}
	l, err := listenPrivately(path)
	if err != nil {
		return nil, err
	}
	if err := file.Advertise(path); err != nil {
		l.Close()
		return nil, err
	}
	server := &http.Server{Handler: http.MaxBytesHandler(v.handler(), v.config.Server.MaxRequestBodySize)}
	limit(server)
	v.serve(server, l)
	return &socket{server, path}, nil
}

// maxSocketPath is the length of a path that fits in sun_path everywhere.
const maxSocketPath = 103

// socketPath is where the socket of a store is: beside it, or where the path would be too long, in a directory of the
// user's for temporary files.
func socketPath(store string) (string, error) {
	path, err := filepath.Abs(store + ".sock")
	if err != nil || len(path) <= maxSocketPath {
		return path, err
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("agenttrace-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() || !private(info) {
		return "", fmt.Errorf("%s is not a directory of the user's alone; remove it, or set TMPDIR", dir)
	}
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(dir, hex.EncodeToString(sum[:8])+".sock"), nil
}

// listenPrivately listens on a socket that only the user can connect to. The socket gets its name when its mode is
// set, in the place of one that a collector left which has died: the caller holds the store.
func listenPrivately(path string) (net.Listener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".sock")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	temporary := filepath.Join(dir, "s")
	if len(temporary) > maxSocketPath { // which a store with a short name has
		temporary = path
		_ = os.Remove(path)
	}
	l, err := net.Listen("unix", temporary)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err = os.Chmod(temporary, 0o600); err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// close stops the server and removes the socket.
func (s *socket) close(ctx context.Context) {
	if s == nil {
		return
	}
	_ = os.Remove(s.path)
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close() // who still reads has had the time to
	}
}
