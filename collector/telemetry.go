package collector

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configtelemetry"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/service/telemetry"
	"go.opentelemetry.io/contrib/otelconf/v0.3.0"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

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
