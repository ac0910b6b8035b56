// Package collector is agenttrace's distribution of the OpenTelemetry Collector: what it is made of ([Components]), the
// configuration it runs without one of the user's, the command ([Command]), and the same collector within a program
// ([Start]).
//
// builder.yaml makes the same distribution with the collector builder, as a start for people who want other components.
package collector

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configtelemetry"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/service/telemetry"
	"go.opentelemetry.io/contrib/otelconf/v0.3.0"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/agenttrace/agenttrace/extension/hostcheckextension"
	"github.com/agenttrace/agenttrace/extension/sessionview"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

// The embedded configuration, and what is added to it. Verbs are where options are.
var (
	//go:embed config.yaml
	embedded string
	//go:embed keep.yaml
	keepYAML string
	//go:embed forward.yaml
	forwardYAML string
)

// Environment variables that the embedded configuration heeds. Options and flags take precedence.
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

// Settings returns what the collector library needs to run this distribution with the configuration that the URIs name,
// merged in order: a path, or "file:…", "env:…", "yaml:…".
func Settings(version string, uris []string) otelcol.CollectorSettings {
	return otelcol.CollectorSettings{
		Factories: Components,
		BuildInfo: component.BuildInfo{Command: "agenttrace", Description: "agenttrace collector", Version: version},
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs: uris, ProviderFactories: providers(), DefaultScheme: "env",
			ConverterFactories: []confmap.ConverterFactory{
				confmap.NewConverterFactory(func(confmap.ConverterSettings) confmap.Converter { return loopbackConverter{} }),
			},
		}},
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

	// Config names configurations, as [Settings] takes them, to run instead of the embedded one. The fields below
	// belong to the embedded one and must then be empty.
	Config []string

	// Store is the path of the session store, or the URL of a PostgreSQL database; empty
	// means EnvStore or DefaultStore.
	Store string
	// GRPCEndpoint and HTTPEndpoint are where OTLP is accepted, "host:port". The host must be this machine's loopback:
	// nothing authenticates senders. Empty means EnvGRPCEndpoint or localhost:4317, EnvHTTPEndpoint or localhost:4318;
	// [Start] picks free ports instead.
	GRPCEndpoint, HTTPEndpoint string
	// ViewEndpoint is where sessions are served to readers, "host:port" of this machine's loopback. Empty means
	// EnvViewEndpoint or localhost:4320; [Start] picks a free port instead.
	ViewEndpoint string
	// OTLPEndpoint, if set, is where traces are sent besides: "host:port" or "http://host:port" of a server that speaks
	// OTLP over gRPC, such as Jaeger or Tempo, or "https://host:port" for TLS. Empty means EnvOTLPEndpoint.
	OTLPEndpoint string
	// KeepOTLP, if set, is a directory in which all telemetry is kept as it arrived, without the secrets in it:
	// "agenttrace import" builds its sessions again, after an upgrade that reads more of it. Empty means EnvKeepOTLP.
	KeepOTLP string
}

// setting is an option of the embedded configuration, as a flag, the environment and a configuration name it.
type setting struct {
	value                           *string
	flag, env, fallback, key, usage string
}

func (o *Options) settings() []setting {
	return []setting{
		{&o.Store, "store", EnvStore, "", "exporters::session::path",
			"`path` of the session store (default ${XDG_STATE_HOME:-~/.local/state}/agenttrace/sessions.db)"},
		{&o.GRPCEndpoint, "grpc-endpoint", EnvGRPCEndpoint, defaultGRPC, "receivers::otlp::protocols::grpc::endpoint",
			"loopback `host:port` to accept OTLP over gRPC on (default " + defaultGRPC + ")"},
		{&o.HTTPEndpoint, "http-endpoint", EnvHTTPEndpoint, defaultHTTP, "receivers::otlp::protocols::http::endpoint",
			"loopback `host:port` to accept OTLP over HTTP on (default " + defaultHTTP + ")"},
		{&o.ViewEndpoint, "view-endpoint", EnvViewEndpoint, sessionview.DefaultEndpoint,
			"extensions::session_view::endpoint",
			"loopback `host:port` to serve sessions to readers on (default " + sessionview.DefaultEndpoint + ")"},
		{&o.OTLPEndpoint, "otlp-endpoint", EnvOTLPEndpoint, "", "exporters::otlp_grpc::endpoint",
			"`host:port` of Jaeger, Tempo or another OTLP server over gRPC to send traces to as well; " +
				"https://host:port for TLS"},
		{&o.KeepOTLP, "keep-otlp", EnvKeepOTLP, "", "exporters::file::path",
			"`directory` to keep all telemetry in, without secrets, " +
				"so that import can rebuild the sessions after an upgrade"},
	}
}

// OptionsError is a mistake in the options, not in what they name.
type OptionsError struct{ Err error }

func (e *OptionsError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *OptionsError) Unwrap() error { return e.Err }

// resolve fills in what the environment says, and returns the URIs of the configuration to run.
func (o *Options) resolve() (uris []string, err error) {
	defer func() {
		if err != nil {
			err = &OptionsError{err}
		}
	}()
	if len(o.Config) > 0 {
		var errs []error
		for _, s := range o.settings() {
			if *s.value != "" {
				errs = append(errs, fmt.Errorf("--%s %q cannot be combined with --config: set %s in the file",
					s.flag, *s.value, s.key))
			}
		}
		return o.Config, errors.Join(errs...)
	}
	for _, s := range o.settings() {
		*s.value = cmp.Or(*s.value, os.Getenv(s.env), s.fallback)
	}
	if o.Store == "" {
		if o.Store, err = DefaultStore(); err != nil {
			return nil, err
		}
	}
	for _, s := range o.settings()[1:4] {
		if err := checkLoopback(*s.value); err != nil {
			return nil, fmt.Errorf("--%s: %w", s.flag, err)
		}
	}
	store := map[string]any{"path": o.Store}
	if stores.HasEngine(o.Store) {
		store = map[string]any{"path": "", "dsn": o.Store}
	}
	// The component that has the store is a connector where there is a place to send spans to.
	config, kind := embedded, "exporters"
	if o.OTLPEndpoint != "" {
		kind = "connectors"
		config = strings.Replace(config, "\nexporters:\n", "\nconnectors:\n", 1)
	}
	uris = []string{"yaml:" + config, "yaml:" + literal(map[string]any{
		"receivers": map[string]any{"otlp": map[string]any{"protocols": map[string]any{
			"grpc": map[string]any{"endpoint": o.GRPCEndpoint},
			"http": map[string]any{"endpoint": o.HTTPEndpoint},
		}}},
		"extensions": map[string]any{"session_view": map[string]any{"endpoint": o.ViewEndpoint}},
		kind:         map[string]any{"session": store},
	})}
	if o.OTLPEndpoint != "" {
		forward, err := forwarding(o.OTLPEndpoint)
		if err != nil {
			return nil, fmt.Errorf("--otlp-endpoint: %w", err)
		}
		uris = append(uris, forward)
	}
	if o.KeepOTLP != "" {
		uris = append(uris, fmt.Sprintf("yaml:"+keepYAML, literal(filepath.Join(o.KeepOTLP, keptFile))))
	}
	return uris, nil
}

// keptFile is the file of kept telemetry that is being written.
const keptFile = "otlp-frames.zst"

// prepare makes what a configuration needs before it runs: the file of kept telemetry, private to the user. The file
// exporter would make one that others can read; those that it makes later have the mode of this one.
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

// forwarding is the configuration that sends traces to a second place.
func forwarding(endpoint string) (string, error) {
	secure, address := false, endpoint
	if strings.Contains(endpoint, "://") {
		u, err := url.Parse(endpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" ||
			strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
			return "", fmt.Errorf("%q: use host:port, http://host:port or, for TLS, https://host:port", endpoint)
		}
		secure, address = u.Scheme == "https", u.Host
	}
	if strings.HasPrefix(address, ":") {
		return "", fmt.Errorf("%q has no host: use one like localhost:4317", endpoint)
	} else if err := hostcheckextension.CheckAddress(address); err != nil {
		return "", err
	}
	return fmt.Sprintf("yaml:"+forwardYAML, literal(address), !secure), nil
}

// literal is the YAML of a value that is meant as it is: a dollar sign in it names no variable.
func literal(value any) string {
	b, err := json.Marshal(value)
	if err != nil {
		panic("collector: encode configuration: " + err.Error()) // strings and numbers always encode
	}
	return strings.ReplaceAll(string(b), "$", "$$")
}

// checkLoopback refuses to listen where other machines can reach.
func checkLoopback(endpoint string) error {
	if err := hostcheckextension.CheckAddress(endpoint); err != nil || hostcheckextension.OnLoopback(endpoint) {
		return err
	}
	return fmt.Errorf("listen on %q: other machines may reach it and nothing would authenticate them; "+
		"use localhost, or write a configuration with an authenticator, such as bearertokenauth, "+
		"and name it with --config", endpoint)
}

// hostCheck is the extension that a loopback server is given.
const hostCheck = "host_check"

// loopbackServers are the places in a configuration where an HTTP server is, by type of component, with the endpoint
// that it has when none is configured. They are those whose component calls middlewares: healthcheckextension does not.
var loopbackServers = []struct{ kind, component, path, endpoint string }{
	{"receivers", "otlp", "protocols::http", defaultHTTP},
	{"extensions", "zpages", "", "localhost:55679"},
}

// loopbackConverter gives each HTTP server that listens on loopback the extension host_check, unless the configuration
// does: what is reachable from this machine only is reachable from every page in its browser. It adds the extension
// where it is not configured; one that is keeps what it reports. Servers that listen elsewhere are left alone.
type loopbackConverter struct{}

// Convert implements [confmap.Converter].
func (loopbackConverter) Convert(_ context.Context, conf *confmap.Conf) error {
	checked := false
	for _, s := range loopbackServers {
		components, _ := conf.Get(s.kind).(map[string]any)
		for id := range components {
			name, _, _ := strings.Cut(id, "/")
			at := s.kind + "::" + id
			if s.path != "" {
				at += "::" + s.path
			}
			if name != s.component || !conf.IsSet(at) {
				continue
			}
			server, _ := conf.Get(at).(map[string]any)
			endpoint, _ := server["endpoint"].(string)
			if !hostcheckextension.OnLoopback(cmp.Or(endpoint, s.endpoint)) {
				continue
			}
			middlewares, _ := server["middlewares"].([]any)
			if !slices.ContainsFunc(middlewares, isHostCheck) {
				list := append([]any{map[string]any{"id": hostCheck}}, middlewares...)
				if err := conf.Merge(nested(at+"::middlewares", list)); err != nil {
					return err
				}
				checked = true
			}
		}
	}
	if !checked {
		return nil
	}
	if err := conf.Merge(nested("extensions::"+hostCheck, map[string]any{})); err != nil {
		return err
	}
	started, _ := conf.Get("service::extensions").([]any)
	if !slices.Contains(started, any(hostCheck)) {
		return conf.Merge(nested("service::extensions", append([]any{hostCheck}, started...)))
	}
	return nil
}

func isHostCheck(middleware any) bool {
	m, _ := middleware.(map[string]any)
	id, _ := m["id"].(string)
	name, _, _ := strings.Cut(id, "/")
	return name == hostCheck
}

// nested is a configuration with one value.
func nested(path string, value any) *confmap.Conf {
	keys := strings.Split(path, confmap.KeyDelimiter)
	for _, key := range slices.Backward(keys) {
		value = map[string]any{key: value}
	}
	return confmap.NewFromStringMap(value.(map[string]any))
}

// telemetryConfig is the section service::telemetry: what the collector reports of itself. Its keys are a subset of
// those of the Collector's own otelconftelemetry, with the same meaning. That package also detects cloud resources and
// so links Kubernetes' client and the detectors of three clouds, a tenth of the program; spans and OTLP logs of the
// collector itself are left out with it.
type telemetryConfig struct {
	Logs    telemetryLogs    `mapstructure:"logs"`
	Metrics telemetryMetrics `mapstructure:"metrics"`

	// Resource has attributes of the collector, beside service.name, service.version
	// and service.instance.id. A null value leaves out one of these.
	Resource map[string]*string `mapstructure:"resource,omitempty"`
}

// telemetryLogs configures the logger; see [zap.Config].
type telemetryLogs struct {
	Level             zapcore.Level      `mapstructure:"level"`
	Development       bool               `mapstructure:"development,omitempty"`
	Encoding          string             `mapstructure:"encoding"` // console or json
	DisableCaller     bool               `mapstructure:"disable_caller,omitempty"`
	DisableStacktrace bool               `mapstructure:"disable_stacktrace,omitempty"`
	OutputPaths       []string           `mapstructure:"output_paths"`
	ErrorOutputPaths  []string           `mapstructure:"error_output_paths"`
	InitialFields     map[string]any     `mapstructure:"initial_fields,omitempty"`
	Sampling          *telemetrySampling `mapstructure:"sampling"`
}

// telemetrySampling lets the first Initial equal messages of each Tick pass, and then
// every message whose number is a multiple of Thereafter.
type telemetrySampling struct {
	Enabled    bool          `mapstructure:"enabled"`
	Tick       time.Duration `mapstructure:"tick"`
	Initial    int           `mapstructure:"initial"`
	Thereafter int           `mapstructure:"thereafter"`
}

type telemetryMetrics struct {
	Level                  configtelemetry.Level `mapstructure:"level"`
	otelconf.MeterProvider `mapstructure:",squash"`
}

// Unmarshal gives a Prometheus endpoint that the configuration names the same metric
// names as the default one: a list of readers replaces the default as a whole.
func (c *telemetryMetrics) Unmarshal(conf *confmap.Conf) error {
	if err := conf.Unmarshal(c); err != nil {
		return err
	}
	for _, r := range c.Readers {
		if r.Pull != nil && r.Pull.Exporter.Prometheus != nil {
			p := r.Pull.Exporter.Prometheus
			for _, without := range []**bool{&p.WithoutScopeInfo, &p.WithoutUnits, &p.WithoutTypeSuffix} {
				if *without == nil {
					*without = new(true)
				}
			}
		}
	}
	return nil
}

// Validate refuses metrics that nobody could read.
func (c *telemetryConfig) Validate() error {
	if c.Metrics.Level != configtelemetry.LevelNone && len(c.Metrics.Readers) == 0 {
		return errors.New("metrics::readers is empty: name a reader, or set metrics::level to none")
	}
	return nil
}

func telemetryFactory() telemetry.Factory {
	return telemetry.NewFactory(defaultTelemetry,
		telemetry.WithCreateResource(telemetryResource),
		telemetry.WithCreateLogger(telemetryLogger),
		telemetry.WithCreateMeterProvider(telemetryMeterProvider))
}

func defaultTelemetry() component.Config {
	c := &telemetryConfig{Logs: telemetryLogs{Level: zapcore.InfoLevel, Encoding: "console",
		OutputPaths: []string{"stderr"}, ErrorOutputPaths: []string{"stderr"},
		Sampling: &telemetrySampling{Enabled: true, Tick: 10 * time.Second, Initial: 10, Thereafter: 100}}}
	c.Metrics.Level = configtelemetry.LevelNormal
	c.Metrics.Readers = []otelconf.MetricReader{{Pull: &otelconf.PullMetricReader{
		Exporter: otelconf.PullMetricExporter{Prometheus: &otelconf.Prometheus{
			Host: new("localhost"), Port: new(8888),
			WithoutScopeInfo: new(true), WithoutUnits: new(true), WithoutTypeSuffix: new(true),
		}},
	}}}
	return c
}

func telemetryResource(_ context.Context, set telemetry.Settings, config component.Config) (
	pcommon.Resource, string, error) {
	r := pcommon.NewResource()
	r.Attributes().PutStr("service.name", set.BuildInfo.Command)
	r.Attributes().PutStr("service.version", set.BuildInfo.Version)
	r.Attributes().PutStr("service.instance.id", uuid.NewString())
	for key, value := range config.(*telemetryConfig).Resource {
		if value == nil {
			r.Attributes().Remove(key)
		} else {
			r.Attributes().PutStr(key, *value)
		}
	}
	return r, set.SchemaURL, nil
}

func telemetryLogger(_ context.Context, set telemetry.LoggerSettings, config component.Config) (
	*zap.Logger, component.ShutdownFunc, error) {
	c := config.(*telemetryConfig).Logs
	encoder := zap.NewProductionEncoderConfig()
	encoder.EncodeTime = zapcore.ISO8601TimeEncoder
	build := zap.Config.Build
	if set.BuildZapLogger != nil {
		build = set.BuildZapLogger
	}
	logger, err := build(zap.Config{
		Level: zap.NewAtomicLevelAt(c.Level), Development: c.Development, Encoding: c.Encoding, EncoderConfig: encoder,
		OutputPaths: c.OutputPaths, ErrorOutputPaths: c.ErrorOutputPaths, InitialFields: c.InitialFields,
		DisableCaller: c.DisableCaller, DisableStacktrace: c.DisableStacktrace,
	})
	if err != nil {
		return nil, nil, err
	}
	if set.Resource != nil {
		var fields []zap.Field
		for key, value := range set.Resource.Attributes().All() {
			fields = append(fields, zap.String(key, value.AsString()))
		}
		logger = logger.With(zap.Dict("resource", fields...))
	}
	if s := c.Sampling; s != nil && s.Enabled {
		logger = logger.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
			return zapcore.NewSamplerWithOptions(core, s.Tick, s.Initial, s.Thereafter)
		}))
	}
	return logger, func(context.Context) error { return nil }, nil
}

// noMetrics is a provider of metrics that nobody reads.
type noMetrics struct{ noopmetric.MeterProvider }

// Shutdown does nothing.
func (noMetrics) Shutdown(context.Context) error { return nil }

func telemetryMeterProvider(ctx context.Context, set telemetry.MeterSettings, config component.Config) (
	telemetry.MeterProvider, error) {
	c := config.(*telemetryConfig).Metrics
	if c.Level == configtelemetry.LevelNone {
		return noMetrics{}, nil
	}
	if c.Views == nil && set.DefaultViews != nil {
		c.Views = set.DefaultViews(c.Level)
	}
	resource := &otelconf.Resource{}
	for key, value := range set.Resource.Attributes().All() {
		resource.Attributes = append(resource.Attributes, otelconf.AttributeNameValue{Name: key, Value: value.AsRaw()})
	}
	sdk, err := otelconf.NewSDK(otelconf.WithContext(ctx), otelconf.WithOpenTelemetryConfiguration(
		otelconf.OpenTelemetryConfiguration{Resource: resource, MeterProvider: &c.MeterProvider}))
	if err != nil {
		return nil, err
	}
	return sdk.MeterProvider().(telemetry.MeterProvider), nil
}
