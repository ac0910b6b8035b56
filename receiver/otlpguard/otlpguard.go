// Package otlpguard is the collector's OTLP receiver with bounds on what one sender can do to all others:
//
//   - A request with a value that is nested too deep for the decoder's recursion is
//     refused before it is decoded. See package nesting.
//   - A request whose spans and attributes would take far more memory than its bytes
//     is refused, and those that together would take too much wait for each other.
//   - A connection that sends half a request, or nothing, is closed: see the defaults
//     in [NewFactory].
//
// Its type and its configuration are those of the receiver that it wraps, "otlp".
package otlpguard

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"os"
	"reflect"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/config/configgrpc"
	"go.opentelemetry.io/collector/config/configmiddleware"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/extension/extensionmiddleware"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/agenttrace/agenttrace/internal/nesting"
)

// How long a sender may take, unless the configuration sets another time.
const (
	headerTimeout  = 10 * time.Second // for an HTTP header, and for a gRPC handshake
	requestTimeout = 30 * time.Second // for a whole HTTP request
	callTimeout    = time.Minute      // for a gRPC request and its answer
	pingAfter      = 20 * time.Second // of silence on a gRPC connection
	pingTimeout    = 10 * time.Second
	idleTimeout    = 5 * time.Minute // without a gRPC request
)

// NewFactory returns the factory of the receiver.
func NewFactory() receiver.Factory {
	inner := otlpreceiver.NewFactory()
	return receiver.NewFactory(
		inner.Type(),
		defaultConfig,
		receiver.WithTraces(creator(inner.CreateTraces), inner.TracesStability()),
		receiver.WithLogs(creator(inner.CreateLogs), inner.LogsStability()),
		receiver.WithMetrics(creator(inner.CreateMetrics), inner.MetricsStability()),
	)
}

// defaultConfig is the inner receiver's, with timeouts.
func defaultConfig() component.Config {
	c := otlpreceiver.NewFactory().CreateDefaultConfig().(*otlpreceiver.Config)
	http := *c.Protocols.HTTP.GetOrInsertDefault()
	http.ServerConfig.ReadHeaderTimeout = headerTimeout
	http.ServerConfig.ReadTimeout = requestTimeout
	c.Protocols.HTTP = configoptional.Default(http)

	grpc := *c.Protocols.GRPC.GetOrInsertDefault()
	keepalive := configgrpc.NewDefaultKeepaliveServerConfig()
	if set := grpc.Keepalive.Get(); set != nil {
		keepalive = *set
	}
	keepalive.ServerParameters = configoptional.Some(configgrpc.KeepaliveServerParameters{
		MaxConnectionIdle: idleTimeout, Time: pingAfter, Timeout: pingTimeout,
	})
	grpc.Keepalive = configoptional.Some(keepalive)
	c.Protocols.GRPC = configoptional.Default(grpc)
	return c
}

// creator guards the receivers R that create makes, which a consumer Next gets.
func creator[Next any, R component.Component](
	create func(context.Context, receiver.Settings, component.Config, Next) (R, error),
) func(context.Context, receiver.Settings, component.Config, Next) (R, error) {
	return func(ctx context.Context, set receiver.Settings, cfg component.Config, next Next) (r R, err error) {
		c := guarded(cfg)
		inner, err := create(ctx, set, c, next)
		if err != nil {
			return r, err
		}
		return any(guard{inner, c}).(R), nil
	}
}

// middlewareID names the middleware among the host's extensions, where no configuration can name it.
var middlewareID = component.MustNewIDWithName("otlpguard", "receiver")

// guarded puts the middleware last into a configuration, next to the decoder. The receivers of one component share the
// configuration by its address, so it is changed in place.
func guarded(cfg component.Config) *otlpreceiver.Config {
	c := cfg.(*otlpreceiver.Config)
	add := func(all []configmiddleware.Config) []configmiddleware.Config {
		for _, m := range all {
			if m.ID == middlewareID {
				return all
			}
		}
		return append(all, configmiddleware.Config{ID: middlewareID})
	}
	if h := c.Protocols.HTTP.Get(); h != nil {
		h.ServerConfig.Middlewares = add(h.ServerConfig.Middlewares)
	}
	if g := c.Protocols.GRPC.Get(); g != nil {
		g.Middlewares = add(g.Middlewares)
	}
	return c
}

// guard is the inner receiver, started on a host that has the middleware.
type guard struct {
	component.Component
	config *otlpreceiver.Config
}

// Start implements [component.Component].
func (g guard) Start(ctx context.Context, host component.Host) error {
	m := middleware{paths: make(map[string]nesting.Signal)}
	if h := g.config.Protocols.HTTP.Get(); h != nil {
		m.paths[string(h.TracesURLPath)] = nesting.SignalTraces
		m.paths[string(h.LogsURLPath)] = nesting.SignalLogs
		m.paths[string(h.MetricsURLPath)] = nesting.SignalMetrics
	}
	return g.Component.Start(ctx, guardHost{host, m})
}

type guardHost struct {
	component.Host
	middleware middleware
}

// GetExtensions implements [component.Host].
func (h guardHost) GetExtensions() map[component.ID]component.Component {
	all := maps.Clone(h.Host.GetExtensions())
	if all == nil {
		all = make(map[component.ID]component.Component, 1)
	}
	all[middlewareID] = h.middleware
	return all
}

// Report implements [componentstatus.Reporter].
func (h guardHost) Report(e *componentstatus.Event) { componentstatus.ReportStatus(h.Host, e) }

// middleware bounds requests before they are decoded.
type middleware struct {
	component.StartFunc
	component.ShutdownFunc

	paths map[string]nesting.Signal // of HTTP
}

var (
	_ extensionmiddleware.HTTPServer = middleware{}
	_ extensionmiddleware.GRPCServer = middleware{}
)

// GetHTTPHandler implements [extensionmiddleware.HTTPServer]. The body that the
// handler sees is decompressed and bounded in size.
func (m middleware) GetHTTPHandler(context.Context) (extensionmiddleware.WrapHTTPHandlerFunc, error) {
	return func(_ context.Context, next http.Handler) (http.Handler, error) {
		mux := http.NewServeMux()
		if _, everything := m.paths["/"]; !everything {
			mux.Handle("/", next)
		}
		for pattern, signal := range m.paths {
			mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
				size := new(request)
				defer size.end()
				bound := nesting.JSON
				switch kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind {
				case "application/x-protobuf":
					bound = func(request []byte, maxDecoded int64) (int64, error) {
						return nesting.Proto(signal, request, maxDecoded)
					}
					fallthrough
				case "application/json":
					r.Body = &body{ReadCloser: r.Body, bound: bound, size: size}
				}
				next.ServeHTTP(w, r)
			})
		}
		return mux, nil
	}, nil
}

// body is a request of HTTP, which is bounded when it has arrived whole: in protobuf, lengths are before what they
// count. It takes twice its size, because its texts are held again when it is decoded.
type body struct {
	io.ReadCloser
	bound func(request []byte, maxDecoded int64) (cost int64, err error)
	size  *request
	whole *bytes.Reader
}

func (b *body) Read(p []byte) (int, error) {
	if b.whole == nil {
		request, err := io.ReadAll(arriving{b.ReadCloser, b.size})
		if err != nil {
			return 0, err
		}
		cost, err := b.bound(request, nesting.MaxDecoded)
		if err == nil {
			err = b.size.grow(cost)
		}
		if err != nil {
			return 0, err
		}
		b.whole = bytes.NewReader(request)
	}
	return b.whole.Read(p)
}

// arriving counts what is read of a request, and turns the end of a sender's time into an answer that has it try again.
type arriving struct {
	io.Reader
	size *request
}

func (a arriving) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if busy := a.size.grow(2 * int64(n)); busy != nil {
		return 0, busy
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = status.Error(codes.Unavailable,
			"the request did not arrive in time: send it again, or raise read_timeout of the receiver")
	}
	return n, err
}

// GetGRPCServerOptions implements [extensionmiddleware.GRPCServer].
func (middleware) GetGRPCServerOptions(context.Context) ([]grpc.ServerOption, error) {
	decoded := new(pending)
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto"), decoded}),
		grpc.UnaryInterceptor(decoded.intercept), // before those that are chained, such as an authenticator's
		grpc.ConnectionTimeout(headerTimeout),
		grpc.InTapHandle(func(ctx context.Context, _ *tap.Info) (context.Context, error) {
			// The call's end cancels ctx, and with it the timeout. A client may take the
			// rest of its time to send the second half of a request: then the read ends.
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			context.AfterFunc(ctx, cancel)
			return ctx, nil
		}),
	}, nil
}

// codec bounds requests before the codec that pdata registers decodes them.
type codec struct {
	encoding.CodecV2
	decoded *pending
}

// signals by the names of their requests, whose types are internal to pdata.
var signals = map[string]nesting.Signal{
	"ExportTraceServiceRequest":   nesting.SignalTraces,
	"ExportLogsServiceRequest":    nesting.SignalLogs,
	"ExportMetricsServiceRequest": nesting.SignalMetrics,
}

// Unmarshal implements [encoding.CodecV2].
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	signal, known := signals[reflect.TypeOf(v).Elem().Name()]
	if !known {
		return c.CodecV2.Unmarshal(data, v)
	}
	size := new(request)
	err := c.bounded(signal, data, v, size)
	if err != nil && size.refused == nil {
		size.end()
		return err
	}
	if size.refused != nil || size.taken > 0 {
		c.decoded.Store(v, size) // the interceptor answers one that is refused, whose message is empty
	}
	return nil
}

// bounded decodes a request whose memory is within the budget.
func (c codec) bounded(signal nesting.Signal, data mem.BufferSlice, v any, size *request) error {
	if err := size.grow(2 * int64(data.Len())); err != nil {
		return err
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	cost, err := nesting.Proto(signal, whole.ReadOnlyData(), nesting.MaxDecoded)
	if err != nil {
		return err
	}
	if err := size.grow(cost); err != nil {
		return err
	}
	return c.CodecV2.Unmarshal(mem.BufferSlice{whole}, v)
}

const (
	// maxInFlight is how much memory, in bytes, all requests that are being received and handled may take together.
	maxInFlight = 256 << 20
	// unmeasured is how much of a request does not count: nearly all of them are
	// smaller, and none of those waits for another.
	unmeasured = 1 << 20
	// maxWait is how long a request waits for the memory that others have.
	maxWait = 5 * time.Second
)

// errBusy has a sender try again.
var errBusy = status.Error(codes.Unavailable, "other large requests are being handled: send it again")

// inFlight is the memory of all requests of this process together. A request of 64 MiB is harmless; a dozen at once
// would take gigabytes before the memory limiter sees the first.
var inFlight = semaphore.NewWeighted(maxInFlight)

// request is one request's part of it.
type request struct {
	size, taken int64
	refused     error
}

// grow counts n more bytes of the request. It waits for other requests to end, and fails with errBusy.
func (r *request) grow(n int64) error {
	r.size += n
	// The largest request that is accepted fits, if it is alone.
	want := min(r.size-unmeasured, maxInFlight) - r.taken
	if want <= 0 || r.refused != nil {
		return r.refused
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxWait)
	defer cancel()
	if inFlight.Acquire(ctx, want) != nil {
		r.refused = errBusy
		return errBusy
	}
	r.taken += want
	return nil
}

// end gives back what the request has taken.
func (r *request) end() {
	inFlight.Release(r.taken)
	r.taken = 0
}

// pending has the requests of gRPC calls by their messages: a codec knows the message that it decodes and not the call.
type pending struct{ sync.Map }

// intercept is the first to get a message that was decoded. It answers a call whose message was not: the error of a
// codec would have the sender drop it.
func (p *pending) intercept(ctx context.Context, message any, _ *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	if r, ok := p.LoadAndDelete(message); ok {
		r := r.(*request)
		defer r.end()
		if r.refused != nil {
			return nil, r.refused
		}
	}
	return handler(ctx, message)
}
