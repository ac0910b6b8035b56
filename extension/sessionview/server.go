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
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/extension/hostcheckextension"
	"github.com/agenttrace/agenttrace/session/store"
)

// NewServer returns a server of pages and an API on loopback, for requests that have the key of the user.
func NewServer(pages http.Handler, key string) *http.Server {
	get := func() string { return key }
	s := &http.Server{WriteTimeout: time.Minute, Handler: guard(&hostcheckextension.Config{},
		&signIn{next: keyed(get, pages), key: get})}
	limit(s)
	return s
}

// guard keeps pages of other origins out: they change nothing, and learn nothing by the name of their own server.
func guard(allowed *hostcheckextension.Config, next http.Handler) http.Handler {
	return http.NewCrossOriginProtection().Handler(hostcheckextension.Handler(allowed, next))
}

const (
	headerTimeout = 10 * time.Second
	// maxHeader is the size in bytes of the header of a request.
	maxHeader = 64 << 10
	// maxConnections is how many connections a server has. Of more, the one that has waited longest without a request
	// is closed: who opens many and sends nothing keeps nobody out.
	maxConnections = 1000
)

// limit bounds what clients that are slow, or many, take of a server.
func limit(s *http.Server) {
	if s.ReadHeaderTimeout == 0 {
		s.ReadHeaderTimeout = headerTimeout
	}
	if s.IdleTimeout == 0 {
		s.IdleTimeout = time.Minute
	}
	s.MaxHeaderBytes = maxHeader
	c := &connections{waiting: make(map[net.Conn]time.Time)}
	s.ConnState = c.changed
	next := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		// The server waits for the rest of a body that nobody has read.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(headerTimeout))
	})
}

// connections are those of a server.
type connections struct {
	mu   sync.Mutex
	open int
	// waiting are those without a request, since when.
	waiting map[net.Conn]time.Time
}

// changed notes the state of a connection.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open++
		c.waiting[conn] = time.Now()
	case http.StateIdle:
		c.waiting[conn] = time.Now()
	case http.StateActive:
		delete(c.waiting, conn)
	case http.StateClosed, http.StateHijacked:
		c.open--
		delete(c.waiting, conn)
	}
	if state != http.StateNew || c.open <= maxConnections {
		return
	}
	oldest := conn
	for other, since := range c.waiting {
		if since.Before(c.waiting[oldest]) {
			oldest = other
		}
	}
	delete(c.waiting, oldest)
	oldest.Close() // its state changes to closed when that is noticed
}

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

func (s *socket) close(ctx context.Context) {
	if s == nil {
		return
	}
	_ = os.Remove(s.path)
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close() // who still reads has had the time to
	}
}
