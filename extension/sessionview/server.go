package sessionview

import (
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/extension/hostcheckextension"
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

// changed is told of the states of connections.
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
