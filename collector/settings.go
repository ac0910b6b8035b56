package collector

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/otelcol"

	"github.com/agenttrace/agenttrace/extension/sessionview"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

//go:embed config.yaml
var embedded string

// Environment variables that the embedded configuration heeds. Options and
// flags take precedence.
const (
	EnvStore        = "AGENTTRACE_STORE"
	EnvGRPCEndpoint = "AGENTTRACE_GRPC_ENDPOINT"
	EnvHTTPEndpoint = "AGENTTRACE_HTTP_ENDPOINT"
	EnvViewEndpoint = "AGENTTRACE_VIEW_ENDPOINT"
	EnvOTLPEndpoint = "AGENTTRACE_OTLP_ENDPOINT"
	EnvKeepOTLP     = "AGENTTRACE_KEEP_OTLP"

	envMemory     = "AGENTTRACE_MEMORY_MIB"
	defaultMemory = "512"
)

const (
	defaultGRPC = "localhost:4317"
	defaultHTTP = "localhost:4318"
)

// Settings returns what the collector library needs to run this distribution
// with the configuration that the URIs name, merged in order: a path, or
// "file:…", "env:…", "yaml:…".
func Settings(version string, uris []string) otelcol.CollectorSettings {
	return otelcol.CollectorSettings{
		Factories: Components,
		BuildInfo: component.BuildInfo{Command: "agenttrace", Description: "agenttrace collector", Version: version},
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs: uris, ProviderFactories: providers(), DefaultScheme: "env",
			ConverterFactories: []confmap.ConverterFactory{hostCheckConverter()},
		}},
		ProviderModules: map[string]string{
			"env":  withVersion(core + "confmap/provider/envprovider"),
			"file": withVersion(core + "confmap/provider/fileprovider"),
			"yaml": withVersion(core + "confmap/provider/yamlprovider"),
		},
	}
}

// DefaultStore returns where the store is when nobody says otherwise:
// ${XDG_STATE_HOME:-~/.local/state}/agenttrace/sessions.db.
func DefaultStore() (string, error) {
	dir, err := sessionview.StateDir()
	if err != nil {
		return "", fmt.Errorf("find a place for the session store: %w; name one with --store or %s", err, EnvStore)
	}
	return filepath.Join(dir, "sessions.db"), nil
}

// Options configure the collector. The zero value is ready for use.
type Options struct {
	// Version is shown to users and sent to servers.
	Version string

	// Config names configurations, as [Settings] takes them, to run instead of the
	// embedded one. The fields below belong to the embedded one and must then be
	// empty.
	Config []string

	// Store is the path of the session store, or the URL of a PostgreSQL database; empty
	// means EnvStore or DefaultStore.
	Store string
	// GRPCEndpoint and HTTPEndpoint are where OTLP is accepted, "host:port". The
	// host must be this machine's loopback: nothing authenticates senders.
	// Empty means EnvGRPCEndpoint or localhost:4317, EnvHTTPEndpoint or
	// localhost:4318; [Start] picks free ports instead.
	GRPCEndpoint, HTTPEndpoint string
	// ViewEndpoint is where sessions are served to readers, "host:port" of this machine's
	// loopback. Empty means EnvViewEndpoint or localhost:4320; [Start] picks a free port
	// instead.
	ViewEndpoint string
	// OTLPEndpoint, if set, is where traces are sent besides: "host:port" or
	// "http://host:port" of a server that speaks OTLP over gRPC, such as Jaeger or
	// Tempo, or "https://host:port" for TLS. Empty means EnvOTLPEndpoint.
	OTLPEndpoint string
	// KeepOTLP, if set, is a directory in which all telemetry is kept as it arrived,
	// without the secrets in it: "agenttrace import" builds its sessions again, after
	// an upgrade that reads more of it. Empty means EnvKeepOTLP.
	KeepOTLP string
}

// OptionsError is a mistake in the options, not in what they name.
type OptionsError struct{ Err error }

func (e *OptionsError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *OptionsError) Unwrap() error { return e.Err }

// resolve fills in what the environment says, and returns the URIs of the
// configuration to run.
func (o *Options) resolve() ([]string, error) {
	uris, err := o.uris()
	if err != nil {
		return nil, &OptionsError{err}
	}
	return uris, nil
}

func (o *Options) uris() ([]string, error) {
	if len(o.Config) > 0 {
		var errs []error
		for _, f := range []struct{ flag, value, key string }{
			{"--store", o.Store, "exporters::session::path"},
			{"--grpc-endpoint", o.GRPCEndpoint, "receivers::otlp::protocols::grpc::endpoint"},
			{"--http-endpoint", o.HTTPEndpoint, "receivers::otlp::protocols::http::endpoint"},
			{"--view-endpoint", o.ViewEndpoint, "extensions::session_view::endpoint"},
			{"--otlp-endpoint", o.OTLPEndpoint, "exporters::otlp_grpc::endpoint"},
			{"--keep-otlp", o.KeepOTLP, "exporters::file::path"},
		} {
			if f.value != "" {
				errs = append(errs, fmt.Errorf("%s %q cannot be combined with --config: set %s in the file",
					f.flag, f.value, f.key))
			}
		}
		return o.Config, errors.Join(errs...)
	}
	o.Store = cmp.Or(o.Store, os.Getenv(EnvStore))
	o.GRPCEndpoint = cmp.Or(o.GRPCEndpoint, os.Getenv(EnvGRPCEndpoint), defaultGRPC)
	o.HTTPEndpoint = cmp.Or(o.HTTPEndpoint, os.Getenv(EnvHTTPEndpoint), defaultHTTP)
	o.ViewEndpoint = cmp.Or(o.ViewEndpoint, os.Getenv(EnvViewEndpoint), sessionview.DefaultEndpoint)
	o.OTLPEndpoint = cmp.Or(o.OTLPEndpoint, os.Getenv(EnvOTLPEndpoint))
	o.KeepOTLP = cmp.Or(o.KeepOTLP, os.Getenv(EnvKeepOTLP))
	if o.Store == "" {
		var err error
		if o.Store, err = DefaultStore(); err != nil {
			return nil, err
		}
	}
	for _, endpoint := range []string{o.GRPCEndpoint, o.HTTPEndpoint, o.ViewEndpoint} {
		if err := checkLoopback(endpoint); err != nil {
			return nil, err
		}
	}
	fragment := map[string]any{
		"receivers": map[string]any{"otlp": map[string]any{"protocols": map[string]any{
			"grpc": map[string]any{"endpoint": o.GRPCEndpoint},
			"http": map[string]any{"endpoint": o.HTTPEndpoint},
		}}},
		"extensions": map[string]any{"session_view": map[string]any{"endpoint": o.ViewEndpoint}},
		"exporters":  map[string]any{"session": map[string]any{"path": o.Store}},
	}
	if stores.HasEngine(o.Store) {
		fragment["exporters"] = map[string]any{"session": map[string]any{"path": "", "dsn": o.Store}}
	}
	uris := []string{"yaml:" + embedded, fragmentURI(fragment)}
	if o.OTLPEndpoint != "" {
		forward, err := forwarding(o.OTLPEndpoint)
		if err != nil {
			return nil, err
		}
		uris = append(uris, forward)
	}
	if o.KeepOTLP != "" {
		uris = append(uris, keeping(o.KeepOTLP))
	}
	return uris, nil
}

// Kept telemetry is in one file, which is put aside when it has this size, in MiB, and
// the oldest of which goes when there are so many.
const (
	keptFile      = "otlp-frames.zst"
	keptMegabytes = 64
	keptFiles     = 200
)

// prepare makes what a configuration needs before it runs: the file of kept telemetry,
// private to the user. The file exporter would make one that others can read; those
// that it makes later have the mode of this one.
func (o *Options) prepare() error {
	if o.KeepOTLP == "" {
		return nil
	}
	if err := os.MkdirAll(o.KeepOTLP, 0o700); err != nil {
		return fmt.Errorf("create directory for kept telemetry: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(o.KeepOTLP, keptFile), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("create file for kept telemetry: %w; name another directory with --keep-otlp", err)
	}
	return f.Close()
}

// keeping is the configuration that keeps telemetry in files that import reads: bodies
// of both signals in JSON, each compressed with Zstandard after its length, without the
// secrets in them. They are written once a second and when the collector stops.
func keeping(directory string) string {
	pipeline := map[string]any{
		"receivers":  []string{"otlp"},
		"processors": []string{"memory_limiter", "agent_redaction/keep"},
		"exporters":  []string{"file/keep"},
	}
	return fragmentURI(map[string]any{
		"exporters": map[string]any{"file/keep": map[string]any{
			"path":        filepath.Join(directory, keptFile),
			"compression": "zstd",
			"rotation":    map[string]any{"max_megabytes": keptMegabytes, "max_backups": keptFiles},
		}},
		"processors": map[string]any{"agent_redaction/keep": map[string]any{}},
		"service":    map[string]any{"pipelines": map[string]any{"traces/keep": pipeline, "logs/keep": pipeline}},
	})
}

const (
	// maxForwardedRequest is below the 4 MiB that a receiver takes unless it is told
	// otherwise: what is larger is refused for good. An exporter drops a span that is
	// larger by itself, so that spans are cut before.
	maxForwardedRequest = 3 << 20
	maxForwardedSpan    = 5 << 19
)

// forwarding is the configuration that sends traces to a second place, without the
// secrets in them. What is there does not hold up the session store: it has a queue
// of its own, and gives up after a while. The session store redacts by itself, and
// gets what arrived.
func forwarding(endpoint string) (string, error) {
	secure := false
	address := endpoint
	if strings.Contains(endpoint, "://") {
		u, err := url.Parse(endpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" ||
			strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
			return "", fmt.Errorf("OTLP endpoint %q: use host:port, http://host:port or, for TLS, https://host:port",
				endpoint)
		}
		secure, address = u.Scheme == "https", u.Host
	}
	if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
		return "", fmt.Errorf("OTLP endpoint %q has no host or no port: use one like localhost:4317", endpoint)
	}
	return fragmentURI(map[string]any{
		"exporters": map[string]any{"otlp_grpc": map[string]any{
			"endpoint": address,
			"tls":      map[string]any{"insecure": !secure},
			"sending_queue": map[string]any{
				"sizer": "bytes", "queue_size": 128 << 20,
				// It splits, and waits for nothing.
				"batch": map[string]any{"sizer": "bytes", "min_size": 0, "max_size": maxForwardedRequest},
			},
			"retry_on_failure": map[string]any{"max_elapsed_time": "1m"},
		}},
		"processors": map[string]any{"agent_redaction": map[string]any{"max_span_bytes": maxForwardedSpan}},
		"service": map[string]any{"pipelines": map[string]any{"traces/forward": map[string]any{
			"receivers":  []string{"otlp"},
			"processors": []string{"memory_limiter", "agent_redaction"},
			"exporters":  []string{"otlp_grpc"},
		}}},
	}), nil
}

// fragmentURI makes a configuration of values that are meant as they are: a
// dollar sign in them names no variable.
func fragmentURI(values map[string]any) string {
	b, err := json.Marshal(values)
	if err != nil {
		panic("collector: encode configuration: " + err.Error()) // strings and numbers always encode
	}
	return "yaml:" + strings.ReplaceAll(string(b), "$", "$$")
}

// checkLoopback refuses to listen where other machines can reach.
func checkLoopback(endpoint string) error {
	if _, port, err := net.SplitHostPort(endpoint); err != nil || port == "" {
		return fmt.Errorf("listen on %q: that is not host:port, such as %s", endpoint, defaultGRPC)
	}
	if onLoopback(endpoint) {
		return nil
	}
	return fmt.Errorf("listen on %q: other machines may reach it and nothing would authenticate them; "+
		"use localhost, or write a configuration with an authenticator, such as bearertokenauth, "+
		"and name it with --config", endpoint)
}
