// Package sessionview is the collector extension "session_view": a server of the sessions that the exporter "session"
// stores. Commands of agenttrace ask it to change a session while the collector runs, and read sessions from other
// machines.
//
// It has two listeners: one of HTTP, with the TLS, the authenticator and the limits of confighttp, and a Unix socket
// beside the store, which is for the user alone and which the store's lock file names.
package sessionview

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/extension"
	"go.uber.org/zap"

	"github.com/agenttrace/agenttrace/extension/hostcheckextension"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/price"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
	"github.com/agenttrace/agenttrace/session/web"
)

// AddressPath is where the server, on its Unix socket, too, has the address of its pages as text, with the key of the
// user. It is empty if a browser would be asked for a token, which a user who reaches the socket does not need.
const AddressPath = "/address"

// view is the extension.
type view struct {
	config   *Config
	settings component.TelemetrySettings
	version  string

	servers sync.WaitGroup
	http    *http.Server

	// address is where a browser that has the key shows the sessions, nil if it cannot without a token.
	address func(key string) *url.URL

	mu sync.Mutex
	// served is what the exporter attached, nil while there is nothing. asking counts the requests that use it.
	served *served
	asking sync.WaitGroup
}

// served is a store that is served.
type served struct {
	store   store.Store
	changes *web.Counter
	socket  *socket       // nil without one
	key     string        // of the user, "" where an authenticator decides
	done    chan struct{} // closed when it is served no more
	http.Handler
}

var _ extension.Extension = (*view)(nil)

func (v *view) handler() http.Handler { return guard(&v.config.Allowed, http.HandlerFunc(v.answer)) }

func (v *view) Start(ctx context.Context, host component.Host) (err error) {
	front := &signIn{secure: v.config.Server.TLS.HasValue()}
	handler := v.handler()
	if !v.config.Server.Auth.HasValue() {
		front.key, handler = v.key, keyed(v.key, handler)
	}
	v.http, err = v.config.Server.ToServer(ctx, host.GetExtensions(), v.settings, handler,
		confighttp.WithErrorHandler(refuse))
	if err != nil {
		return err
	}
	l, err := v.config.Server.ToListener(ctx)
	if errors.Is(err, syscall.EADDRINUSE) && v.config.Server.NetAddr.Endpoint == DefaultEndpoint {
		// Nobody has asked for this port: a second collector of the user stores sessions all the same.
		v.settings.Logger.Warn("another program listens where sessions can be viewed; set the endpoint of session_view",
			zap.String("endpoint", DefaultEndpoint))
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen for readers of sessions: %w", err)
	}
	scheme := "http"
	if front.secure {
		scheme = "https"
	}
	if front.key != nil {
		v.address = func(key string) *url.URL { return Address(scheme, l.Addr(), key) }
	}
	front.next = v.http.Handler
	v.http.Handler = guard(&v.config.Allowed, front)
	limit(v.http)
	v.serve(v.http, l)
	return nil
}

// serve accepts connections until the server is closed.
func (v *view) serve(s *http.Server, l net.Listener) {
	v.servers.Go(func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			v.settings.Logger.Error("the server of sessions has stopped", zap.Error(err))
		}
	})
}

// Shutdown implements [component.Component]. The exporter has taken its store away before.
func (v *view) Shutdown(ctx context.Context) error {
	if v.http == nil {
		return nil
	}
	err := v.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, v.http.Close())
	}
	v.servers.Wait()
	return err
}

// Attach makes a store that is open for writing, at a location as of package stores, the one that is served, until
// detach is called: detach returns when no request uses the store any more, after it has cut off those that take longer
// than ctx. Of two stores the first is served.
func (v *view) Attach(location string, s store.Store) (detach func(context.Context)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.served != nil {
		v.settings.Logger.Warn("session_view serves one store; another one is not served",
			zap.String("served", v.served.store.Name()), zap.String("not_served", s.Name()))
		return func(context.Context) {}
	}
	v.served = &served{store: s, changes: web.NewCounter(stores.Follow(location)), done: make(chan struct{})}
	if !v.config.Server.Auth.HasValue() {
		var err error
		if v.served.key, err = Key(location); err != nil {
			v.settings.Logger.Warn("sessions can be viewed through the socket alone", zap.Error(err))
		}
	}
	v.served.Handler = v.pages(s, v.served)
	if !v.config.NoSocket {
		var err error
		if v.served.socket, err = v.listenBeside(s); err != nil {
			v.settings.Logger.Warn("commands on this machine cannot change sessions while the collector runs",
				zap.Error(err))
		}
	}
	return v.detach
}

// pages answers programs below web.Prefix, and browsers elsewhere.
func (v *view) pages(s store.Store, to *served) http.Handler {
	mux := http.NewServeMux()
	backend := web.Backend{Sessions: document.Reader{Reader: s}, Changes: to.changes, Done: to.done,
		Change: func(ctx context.Context, fn func(context.Context, store.Service) error) error { return fn(ctx, s) }}
	if dir, err := StateDir(); err == nil {
		kept := price.NewKept(filepath.Join(dir, "prices"), price.UpdateOptions{UserAgent: "agenttrace/" + v.version})
		backend.Sessions.Price = kept.Rate
		if !v.config.Server.Auth.HasValue() { // then it answers the user of this machine alone
			backend.UpdatePrices = kept.Update
		}
	}
	mux.HandleFunc("GET "+AddressPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if v.address != nil && to.key != "" {
			_, _ = io.WriteString(w, v.address(to.key).String()) // a reader that is gone needs no answer
		}
	})
	signOut := ""
	if v.config.Server.Auth.HasValue() {
		signOut = signOutPath
	}
	mux.Handle("/", web.New(backend, web.Options{Version: v.version, SignOut: signOut, TraceURL: v.config.TraceURL,
		Zone: time.Local}))
	return mux
}

func (v *view) detach(ctx context.Context) {
	v.mu.Lock()
	was := v.served
	v.served = nil
	v.mu.Unlock()
	close(was.done)
	was.socket.close(ctx)
	done := make(chan struct{})
	go func() {
		v.asking.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	if err := was.changes.Close(); err != nil {
		v.settings.Logger.Warn("close the store's follower", zap.Error(err))
	}
}

// key is the key of the user, "" while there is no store.
func (v *view) key() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.served == nil {
		return ""
	}
	return v.served.key
}

// errNone is the answer while no store is attached, or where there is no key.
var errNone = fmt.Errorf("%w: the collector has not opened its store yet, is closing it, or has no key for its pages; "+
	"try again, or see its log", store.ErrUnavailable)

// answer answers a request with the store, which is not closed under it.
func (v *view) answer(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	s := v.served
	if s == nil {
		v.mu.Unlock()
		web.WriteProblem(w, errNone)
		return
	}
	v.asking.Add(1)
	v.mu.Unlock()
	defer v.asking.Done()
	s.ServeHTTP(w, r)
}

// DefaultEndpoint is where the extension listens by default.
const DefaultEndpoint = "localhost:4320"

// Config configures the extension.
type Config struct {
	// Server is not embedded: Config would have its method Unmarshal, which reads nothing else.
	Server confighttp.ServerConfig `mapstructure:",squash"`

	// Allowed has the names that clients may call the server by, besides those of this machine, and the pages that may
	// read: those of its origins, and of those that the server's cors allows.
	Allowed hostcheckextension.Config `mapstructure:",squash"`

	// NoSocket leaves out the Unix socket beside the store. Then commands of agenttrace cannot change sessions while
	// the collector runs unless they are given its address.
	NoSocket bool `mapstructure:"no_socket"`

	// TraceURL is where the pages link spans to, with {trace_id} and {span_id} in it, such as
	// https://jaeger.example/trace/{trace_id}?uiFind={span_id}. Without it spans have no links.
	TraceURL string `mapstructure:"trace_url"`

	_ struct{} // no unkeyed literals
}

var _ component.Config = (*Config)(nil)

func createDefaultConfig() component.Config {
	server := confighttp.NewDefaultServerConfig()
	server.NetAddr.Endpoint = DefaultEndpoint
	server.ReadHeaderTimeout = headerTimeout
	server.MaxRequestBodySize = 256 << 20 // a session that is imported is one request
	return &Config{Server: server}
}

// Validate implements the collector's check of configurations.
func (c *Config) Validate() error {
	if err := c.Allowed.Validate(); err != nil {
		return err
	}
	if err := web.CheckTraceURL(c.TraceURL); err != nil {
		return fmt.Errorf("trace_url: %w", err)
	}
	if _, _, err := net.SplitHostPort(c.Server.NetAddr.Endpoint); err != nil {
		return fmt.Errorf("endpoint: %q is not host:port, such as %s", c.Server.NetAddr.Endpoint, DefaultEndpoint)
	}
	if hostcheckextension.OnLoopback(c.Server.NetAddr.Endpoint) || c.Server.Auth.HasValue() {
		return nil
	}
	return fmt.Errorf(`endpoint: %q is reached from other machines, `+
		`and anyone who reaches it could read every session; `+
		`listen on localhost, or configure an authenticator, such as
extensions:
  bearertokenauth: {filename: /etc/agenttrace/token}
  session_view:
    endpoint: %q
    auth: {authenticator: bearertokenauth}
service:
  extensions: [bearertokenauth, session_view]`, c.Server.NetAddr.Endpoint, c.Server.NetAddr.Endpoint)
}

// share has pages of the origins of either setting both let in and allowed to read, with a token in the header.
func (c *Config) share() {
	if !c.Server.CORS.HasValue() && len(c.Allowed.AllowedOrigins) == 0 {
		return
	}
	cors := c.Server.CORS.GetOrInsertDefault()
	cors.AllowedOrigins = slices.Concat(cors.AllowedOrigins, c.Allowed.AllowedOrigins)
	c.Allowed.AllowedOrigins = cors.AllowedOrigins
	cors.AllowedHeaders = slices.Concat(cors.AllowedHeaders, []string{"Accept", "Authorization", "Content-Type",
		"If-None-Match", "Last-Event-ID", "X-Requested-With"})
}

var componentType = component.MustNewType("session_view")

// NewFactory returns the factory of the extension.
func NewFactory() extension.Factory {
	return extension.NewFactory(componentType, createDefaultConfig,
		func(_ context.Context, set extension.Settings, c component.Config) (extension.Extension, error) {
			config := *c.(*Config)
			config.share()
			return &view{config: &config, settings: set.TelemetrySettings, version: set.BuildInfo.Version}, nil
		}, component.StabilityLevelAlpha)
}

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
	s.ReadHeaderTimeout = cmp.Or(s.ReadHeaderTimeout, headerTimeout)
	s.IdleTimeout = cmp.Or(s.IdleTimeout, time.Minute)
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
