// Package sessionexporter is an OpenTelemetry Collector exporter that turns traces and logs of agents into sessions in
// a SQLite file. See the README for its options and guarantees.
//
// The exporter only connects the collector to what knows sessions: package
// ingest reads telemetry, package sqlite keeps the rows.
package sessionexporter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/config/configopaque"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

var componentType = component.MustNewType("session")

// NewFactory returns the factory of the exporter, and of the connector.
func NewFactory() Factory {
	return newFactory(stores.Open)
}

type openFunc func(ctx context.Context, location string, o stores.Options) (store.Store, error)

func newFactory(open openFunc) Factory {
	f := &factory{open: open, sinks: make(map[*Config]*sink)}
	return Factory{
		exporter.NewFactory(componentType, createDefaultConfig,
			exporter.WithTraces(f.createTraces, component.StabilityLevelAlpha),
			exporter.WithLogs(f.createLogs, component.StabilityLevelAlpha)),
		connector.NewFactory(componentType, createDefaultConfig,
			connector.WithTracesToTraces(f.connectTraces, component.StabilityLevelAlpha),
			connector.WithLogsToTraces(f.connectLogs, component.StabilityLevelAlpha)),
	}
}

// factory makes the exporters of one component share its store. A store has
// one writer, and the component's traces and logs belong into the same one.
type factory struct {
	open openFunc

	mu    sync.Mutex // guards sinks
	sinks map[*Config]*sink
}

// exporterOf returns an exporter of one signal on the sink that all with its configuration share, and its options.
func (f *factory) exporterOf(config component.Config, set *exporter.Settings) (*sessionExporter,
	[]exporterhelper.Option, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := config.(*Config)
	if c.next == nil && c.Spans != defaultSpans {
		return nil, nil, errors.New("spans is set, and an exporter sends none: configure session below connectors, and " +
			"name it as the receiver of a traces pipeline, or remove the spans block")
	}
	s := f.sinks[c]
	if s == nil {
		telemetry, err := newMetrics(set.TelemetrySettings)
		if err != nil {
			return nil, nil, err
		}
		s = &sink{config: c, open: f.open, logger: set.Logger, telemetry: telemetry,
			settings: set.TelemetrySettings, closed: func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				delete(f.sinks, c)
			}}
		f.sinks[c] = s
	}
	e := &sessionExporter{sink: s}
	if q := c.QueueConfig.Get(); q == nil || q.WaitForResult {
		set.Logger = set.Logger.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return outage{c, s} }))
	}
	return e, []exporterhelper.Option{
		exporterhelper.WithCapabilities(consumer.Capabilities{MutatesData: false}),
		exporterhelper.WithTimeout(c.TimeoutConfig),
		exporterhelper.WithRetry(c.RetryConfig),
		exporterhelper.WithQueue(c.QueueConfig),
		exporterhelper.WithStart(e.start),
		exporterhelper.WithShutdown(e.shutdown),
	}, nil
}

func (f *factory) createTraces(ctx context.Context, set exporter.Settings,
	config component.Config) (exporter.Traces, error) {
	e, options, err := f.exporterOf(config, &set)
	if err != nil {
		return nil, err
	}
	return exporterhelper.NewTraces(ctx, set, config, e.pushTraces, options...)
}

func (f *factory) createLogs(ctx context.Context, set exporter.Settings,
	config component.Config) (exporter.Logs, error) {
	e, options, err := f.exporterOf(config, &set)
	if err != nil {
		return nil, err
	}
	return exporterhelper.NewLogs(ctx, set, config, e.pushLogs, options...)
}

// sessionExporter is the exporter of one signal.
type sessionExporter struct {
	sink    *sink
	host    component.Host
	started atomic.Bool
	// failing reports that the last status reported was an error.
	failing atomic.Bool
}

func (e *sessionExporter) start(ctx context.Context, host component.Host) error {
	e.host = host
	err := e.sink.start(ctx, host)
	e.started.Store(err == nil)
	return err
}

// shutdown may be called without start, and more than once. The queue has been drained before.
func (e *sessionExporter) shutdown(ctx context.Context) error {
	if !e.started.Swap(false) {
		return nil
	}
	return e.sink.stop(ctx)
}

func (e *sessionExporter) pushTraces(ctx context.Context, td ptrace.Traces) error {
	begin := time.Now()
	r, err := e.sink.ingester.Traces(ctx, td)
	e.sink.telemetry.count(ctx, "spans_received", int64(td.SpanCount()))
	return e.pushed(ctx, begin, r, err)
}

func (e *sessionExporter) pushLogs(ctx context.Context, ld plog.Logs) error {
	begin := time.Now()
	r, err := e.sink.ingester.Logs(ctx, ld)
	e.sink.telemetry.count(ctx, "log_records_received", int64(ld.LogRecordCount()))
	return e.pushed(ctx, begin, r, err)
}

// pushed counts what a request did, reports the status, and sorts its error:
// what may pass is returned as it is and tried again, what will not is permanent.
func (e *sessionExporter) pushed(ctx context.Context, begin time.Time, r ingest.Report, err error) error {
	e.sink.telemetry.writeDuration.Record(ctx, time.Since(begin).Seconds())
	switch {
	case err == nil:
		e.sink.unknown.add(r.Unrecognized)
		e.sink.telemetry.add(ctx, &r)
		if e.failing.Load() && e.failing.Swap(false) {
			componentstatus.ReportStatus(e.host, componentstatus.NewEvent(componentstatus.StatusOK))
		}
		if e.sink.outage.Load() && e.sink.outage.Swap(false) {
			e.sink.logger.Warn("The session store is available again.")
		}
		return nil
	case errors.Is(err, store.ErrUnavailable):
		if !e.failing.Swap(true) {
			componentstatus.ReportStatus(e.host, componentstatus.NewRecoverableErrorEvent(err))
		}
		return err // the receiver has the sender try again when the exporter gives up
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, store.ErrClosed):
		// The sender went away, the attempt took too long, or the collector is stopping: none is the fault of the data.
		return err
	default:
		return consumererror.NewPermanent(fmt.Errorf("store request: %w", err))
	}
}

// outage logs the first request that the store did not take, as what it is while senders wait for its answer: the
// helper's lines, two for each request, call the data dropped, which its sender keeps. All else is logged as it is.
type outage struct {
	zapcore.Core
	sink *sink
}

// Check implements [zapcore.Core]. It leaves level and sampling to Write, which knows the error.
func (o outage) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return checked.AddCore(e, o)
}

// Write implements [zapcore.Core].
func (o outage) Write(e zapcore.Entry, fields []zapcore.Field) error {
	for i, f := range fields {
		if err, _ := f.Interface.(error); e.Level >= zapcore.ErrorLevel && errors.Is(err, store.ErrUnavailable) {
			if o.sink.outage.Swap(true) {
				return nil
			}
			e.Message, fields = "The session store is unavailable: senders are asked to try again.", fields[i:i+1]
			break
		}
	}
	o.Core.Check(e, nil).Write(fields...)
	return nil
}

// As a connector, the component stores what it gets as the exporter does, and sends sessions that came as log records
// alone to the traces pipelines that have it as a receiver, as the spans that the SDK would have sent. A span that was
// sent cannot be changed, so a turn is sent when it has ended and its session was quiet for a while.

// SpansConfig configures which spans a connector sends, and when.
type SpansConfig struct {
	// Settle is how long a session must be unchanged before its turns are sent that have ended.
	Settle time.Duration `mapstructure:"settle"`
	// AllSessions sends sessions whose source reports spans, and those that were imported, too.
	AllSessions bool `mapstructure:"all_sessions"`
	// MaxSize is how many bytes the spans of a request may have. A span that is larger is sent alone.
	MaxSize int `mapstructure:"max_size"`
}

var defaultSpans = SpansConfig{Settle: 10 * time.Second, MaxSize: 2 << 20} // a gRPC server takes 4 MiB

// Factory is the factory of the exporter, and of the connector.
type Factory struct {
	exporter.Factory
	connectorFactory
}

type connectorFactory = connector.Factory

// Type implements [component.Factory].
func (Factory) Type() component.Type { return componentType }

// CreateDefaultConfig implements [component.Factory].
func (Factory) CreateDefaultConfig() component.Config { return createDefaultConfig() }

func (f *factory) connectTraces(ctx context.Context, set connector.Settings, config component.Config,
	next consumer.Traces) (connector.Traces, error) {
	return f.createTraces(ctx, connected(config, set, next), config)
}

func (f *factory) connectLogs(ctx context.Context, set connector.Settings, config component.Config,
	next consumer.Traces) (connector.Logs, error) {
	return f.createLogs(ctx, connected(config, set, next), config)
}

// connected are the settings of the exporter that a connector is, whose configuration gets what it sends to.
func connected(config component.Config, set connector.Settings, next consumer.Traces) exporter.Settings {
	config.(*Config).next = next
	return exporter.Settings{ID: set.ID, TelemetrySettings: set.TelemetrySettings, BuildInfo: set.BuildInfo}
}

// sender sends what is new in the sessions of a store to the next consumer.
type sender struct {
	config SpansConfig
	store  store.Store
	sink   *sink
	// seen are the sessions of the outbox as they were last looked at.
	seen map[string]*seenSession
	// failing is the last error, which is logged once.
	failing string
}

// seenSession is what is known of a session in the outbox. Times are those of looks, so that the clocks of other
// collectors on a database do not matter.
type seenSession struct {
	touchedAt int64
	since     time.Time
	// open reports that its last turn goes on, mine that this process has kept its request.
	open, mine bool
}

// retryAfter is how long after a failure the next attempt is made, and how long a stop waits for one. patience is how
// long a request is left to another collector on a database, which may be sending it.
const retryAfter, patience = 5 * time.Second, time.Minute

// run sends what is due until ctx ends.
func (s *sender) run(ctx context.Context) {
	pause := max(10*time.Millisecond, min(s.config.Settle/4, time.Second))
	for wait := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if wait = pause; s.look(ctx, s.config.Settle) != nil {
			wait = retryAfter
		}
	}
}

// flush sends what has ended after run has returned, quiet or not. What is not taken in time is sent after the next
// start.
func (s *sender) flush(ctx context.Context) {
	if s != nil {
		ctx, cancel := context.WithTimeout(ctx, retryAfter)
		defer cancel()
		_ = s.look(ctx, 0) // which has logged it
	}
}

// look sends what is due. It ends with the first failure, because that of the next session would be the same.
func (s *sender) look(ctx context.Context, settle time.Duration) error {
	all, err := s.store.Unsent(ctx)
	before, now := s.seen, time.Now()
	s.seen = make(map[string]*seenSession, len(all))
	for i := range all {
		u := &all[i]
		at := before[u.SessionID]
		if at == nil || at.touchedAt != u.TouchedAt {
			at = &seenSession{touchedAt: u.TouchedAt, since: now, mine: at != nil && at.mine}
		}
		if s.seen[u.SessionID] = at; err == nil {
			err = s.session(ctx, u, at, settle)
		}
	}
	switch was := s.failing; {
	case err == nil:
		if s.failing = ""; was != "" {
			s.sink.logger.Info("Sending the spans of sessions succeeded again.")
		}
	case ctx.Err() == nil:
		if s.failing = err.Error(); s.failing != was {
			s.sink.logger.Warn("Sending the spans of sessions failed, will be tried again.", zap.Error(err))
		}
	}
	return err
}

// session sends what is due of a session: the request that is kept, or what is new.
func (s *sender) session(ctx context.Context, u *store.Unsent, at *seenSession, settle time.Duration) (err error) {
	quiet := time.Since(at.since)
	idle := quiet >= document.DefaultIdleTimeout
	switch {
	case u.Request == nil && quiet >= settle && (idle || !at.open):
		err = s.keep(ctx, u, at, idle)
		if errors.Is(err, store.ErrRefused) { // another collector on the database sends it
			return nil
		}
		if err != nil || u.Request == nil {
			return err
		}
		at.mine = true
	case u.Request == nil, !at.mine && s.sink.config.DSN != "" && quiet < patience:
		return nil
	}
	if err := s.send(ctx, u); err != nil {
		return err
	}
	at.mine = false
	return store.RequestTaken(context.WithoutCancel(ctx), s.store, u.SessionID)
}

// keep makes the request of the spans of a session that were not sent yet, and keeps it, if there are any.
func (s *sender) keep(ctx context.Context, u *store.Unsent, at *seenSession, idle bool) error {
	ids, more, err := s.request(ctx, u, at, idle)
	switch {
	case errors.Is(err, store.ErrUnavailable), ctx.Err() != nil:
		return err
	case err != nil && !errors.Is(err, store.ErrNotFound):
		s.sink.logger.Warn("a session cannot be sent as spans: run agenttrace store check on it",
			zap.String("session", u.SessionID), zap.Error(err))
	}
	return store.KeepRequest(ctx, s.store, u, ids, more || at.open)
}

// request makes the request, and returns the ids of its spans, none if no turn is to be sent. more reports that spans
// are left for another.
func (s *sender) request(ctx context.Context, u *store.Unsent, at *seenSession, idle bool) (ids []string, more bool,
	err error) {
	at.open = false
	if logged, err := s.onlyLogged(ctx, u.SessionID); err != nil || !logged && !s.config.AllSessions {
		return nil, false, err
	}
	sent, err := s.store.SentSpans(ctx, u.SessionID)
	if err != nil {
		return nil, false, err
	}
	whole, err := formats.ReadStored(ctx, s.store, u.SessionID, nil)
	if err != nil {
		return nil, false, err
	}
	var open map[string]bool
	if !idle {
		open = openTurn(whole.Transcript)
		at.open = len(open) > 0
	}
	turns := false
	td, err := formats.TurnSpans(whole, func(name, messageID, spanID string) bool {
		if sent[spanID] || open[messageID] {
			return false
		}
		sent[spanID], turns = true, turns || name != semconv.SpanSessionRun
		return true
	})
	if err != nil || !turns {
		return nil, false, err
	}
	var marshaler ptrace.ProtoMarshaler
	size := 0
	td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().RemoveIf(func(span ptrace.Span) bool {
		size += marshaler.SpanSize(span)
		if size > s.config.MaxSize && len(ids) > 0 && span.Name() != semconv.SpanSessionRun { // which is never alone
			more = true
			return true
		}
		ids = append(ids, span.SpanID().String())
		return false
	})
	u.Request, err = marshaler.MarshalTraces(td)
	return ids, more, err
}

// onlyLogged reports whether log records report the session, and no spans: it was not imported, and is none of the SDK.
func (s *sender) onlyLogged(ctx context.Context, id string) (bool, error) {
	refs, err := s.store.Spans(ctx, id)
	if err != nil || slices.ContainsFunc(refs, func(r store.SpanRef) bool { return !strings.HasPrefix(r.Kind, "log.") }) {
		return false, err
	}
	observed, err := s.store.Observed(ctx, id)
	return observed > 0, err
}

// openTurn returns the messages of the last turn if it may go on.
func openTurn(t *session.Transcript) map[string]bool {
	open, answered := make(map[string]bool), false
	for _, m := range slices.Backward(t.Messages) {
		if m.Message.Role == session.RoleAssistant && !answered {
			if answered = true; ended(&m) {
				return nil
			}
		}
		if open[m.Message.ID] = true; m.Message.Role == session.RoleUser {
			break
		}
	}
	return open
}

// ended reports whether the turn of an answer has ended: its source states so, or something came after all results of
// calls, which a model answers.
func ended(m *session.MessageAndParts) bool {
	trace := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON)).Trace
	if trace.Incomplete || trace.PendingApproval || trace.EndReason != "" {
		return !trace.Incomplete && !trace.PendingApproval
	}
	return !slices.ContainsFunc(m.Parts, func(p session.Part) bool {
		return p.ToolState != nil && (!strings.HasPrefix(*p.ToolState, "output-") || p.UpdatedAt >= m.Message.UpdatedAt)
	})
}

// send sends the request of a session. One that is under way when ctx ends has a little time, so that it is not sent
// again.
func (s *sender) send(ctx context.Context, u *store.Unsent) error {
	td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(u.Request)
	if err != nil {
		return fmt.Errorf("read the request of session %s: %w", u.SessionID, err)
	}
	n := int64(td.SpanCount())
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(retryAfter, cancel) })()
	switch err = s.sink.config.next.ConsumeTraces(sending, td); {
	case consumererror.IsPermanent(err):
		s.sink.telemetry.count(ctx, "spans_refused", n)
		s.sink.logger.Warn("the spans of a session were refused for good",
			zap.String("session", u.SessionID), zap.Error(err))
		return nil
	case err == nil:
		s.sink.telemetry.count(ctx, "spans_sent", n)
	}
	return err
}

const (
	defaultTimeout     = 30 * time.Second
	defaultQueueSize   = 256 << 20 // bytes; larger than the largest message a receiver accepts
	defaultQuietPeriod = 5 * time.Second
)

// Config configures the exporter. Its zero value is not valid: Path or DSN must be set.
type Config struct {
	// TimeoutConfig bounds one attempt to write a request. 0 means no bound.
	TimeoutConfig exporterhelper.TimeoutConfig `mapstructure:",squash"`
	// QueueConfig is on by default, with WaitForResult: the sender's acknowledgement waits for the commit.
	QueueConfig configoptional.Optional[exporterhelper.QueueBatchConfig] `mapstructure:"sending_queue"`
	// RetryConfig is on by default. It gives up after a moment where the sender waits, who is asked to try
	// again, and otherwise never.
	RetryConfig configretry.BackOffConfig `mapstructure:"retry_on_failure"`

	// Path is the SQLite file. It and its directory are created when missing.
	Path string `mapstructure:"path"`
	// DSN is the URL of a PostgreSQL database, in place of Path. What it leaves out is
	// taken from PGHOST, PGUSER, PGPASSWORD, PGPASSFILE, PGSERVICE, …
	DSN configopaque.String `mapstructure:"dsn"`
	// Synchronous is "normal" or "full": whether commits survive only the death of the process or a power failure too.
	Synchronous string `mapstructure:"synchronous"`
	// MaxSizeMiB limits the file in MiB: beyond it requests are refused, to be
	// sent again, as on a full disk. 0 means no limit.
	MaxSizeMiB int64 `mapstructure:"max_size_mib"`
	// SessionKeys are the attribute keys under which the session of a span is looked up when the SDK did not make it,
	// the first that is set winning. Empty means dialect.SessionKeys.
	SessionKeys []string `mapstructure:"session_keys"`
	// Redaction is on by default.
	Redaction RedactionConfig `mapstructure:"redaction"`
	// Truncation limits single values.
	Truncation TruncationConfig `mapstructure:"truncation"`
	// JSONL is off unless its key is present.
	JSONL configoptional.Optional[JSONLConfig] `mapstructure:"jsonl"`
	// Retention is off unless its key is present.
	Retention configoptional.Optional[RetentionConfig] `mapstructure:"retention"`
	// Transcripts are imported into the store, beside the telemetry. None are by default.
	Transcripts TranscriptsConfig `mapstructure:"transcripts"`
	// Watch evaluates rules on the sessions that change. None are by default.
	Watch WatchConfig `mapstructure:"watch"`
	// Spans are what a connector sends.
	Spans SpansConfig `mapstructure:"spans"`
	// next is what a connector sends them to, nil for an exporter.
	next consumer.Traces
}

// JSONLConfig configures the writing of one JSONL file per session.
type JSONLConfig struct {
	// Directory holds the files. It is created when missing.
	Directory string `mapstructure:"directory"`
	// QuietPeriod is how long a session must be unchanged before its file is written.
	QuietPeriod time.Duration `mapstructure:"quiet_period"`
}

// RedactionConfig states what is taken out before anything is stored.
type RedactionConfig struct {
	// Enabled is true by default. Without it nothing below has an effect.
	Enabled bool `mapstructure:"enabled"`
	// Config must not truncate: see [TruncationConfig].
	redact.Config `mapstructure:",squash"`
}

// TruncationConfig limits what is stored of one value: a text, a tool's input or
// output, a prompt, a value of metadata. It is independent of redaction.
type TruncationConfig struct {
	// MaxBytes is the most bytes that a value keeps; 0 is no limit.
	MaxBytes int `mapstructure:"max_bytes"`
	// MaxDepth is how deep JSON may nest; 0 is no limit.
	MaxDepth int `mapstructure:"max_depth"`
}

var _ confmap.Unmarshaler = (*Config)(nil)

func createDefaultConfig() component.Config {
	queue := exporterhelper.NewDefaultQueueConfig()
	queue.WaitForResult = true
	queue.Sizer = exporterhelper.RequestSizerTypeBytes
	queue.QueueSize = defaultQueueSize
	retry := configretry.NewDefaultBackOffConfig()
	// An attempt on a store that is away costs next to nothing. A sender that waits in vain gives up by
	// itself, and holds its connection and its memory until then.
	retry.InitialInterval = 200 * time.Millisecond
	retry.MaxInterval = time.Second
	retry.MaxElapsedTime = 2 * time.Second
	return &Config{
		TimeoutConfig: exporterhelper.TimeoutConfig{Timeout: defaultTimeout},
		QueueConfig:   configoptional.Some(queue),
		RetryConfig:   retry,
		Synchronous:   sqlite.SynchronousNormal,
		Redaction:     RedactionConfig{Enabled: true},
		Truncation:    TruncationConfig{MaxBytes: ingest.DefaultMaxBytes},
		JSONL:         configoptional.Default(JSONLConfig{QuietPeriod: defaultQuietPeriod}),
		Retention:     configoptional.Default(RetentionConfig{Interval: defaultRetentionInterval}),
		Spans:         defaultSpans,
	}
}

// Unmarshal implements [confmap.Unmarshaler]. A queue on disk acknowledges when
// it holds the request, so waiting for the commit is off with it unless asked
// for, which the queue then refuses. What was acknowledged is retried until it is stored.
func (c *Config) Unmarshal(conf *confmap.Conf) error {
	if err := conf.Unmarshal(c); err != nil {
		return err
	}
	if q := c.QueueConfig.Get(); q != nil && q.StorageID != nil && !conf.IsSet("sending_queue::wait_for_result") {
		q.WaitForResult = false
	}
	if q := c.QueueConfig.Get(); q != nil && !q.WaitForResult && !conf.IsSet("retry_on_failure::max_elapsed_time") {
		c.RetryConfig.MaxElapsedTime = 0
	}
	return nil
}

// problems are what is wrong with a configuration.
type problems []error

// when adds a problem where there is one.
func (p *problems) when(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// Validate implements [confmap.Validator].
func (c *Config) Validate() error {
	p := problems{c.validateLocation()}
	p.when(strings.ContainsRune(c.Path, 0), "path %q holds a NUL byte: name a file", c.Path)
	p.when(c.Synchronous != sqlite.SynchronousNormal && c.Synchronous != sqlite.SynchronousFull,
		"synchronous is %q: use %q or %q", c.Synchronous, sqlite.SynchronousNormal, sqlite.SynchronousFull)
	p.when(c.MaxSizeMiB < 0 || c.MaxSizeMiB > 1<<40,
		"max_size_mib is %d: use a number of MiB, or 0 for no limit", c.MaxSizeMiB)
	p.when(c.TimeoutConfig.Timeout < time.Millisecond && c.TimeoutConfig.Timeout != 0,
		"timeout is %v: use a duration with a unit such as 30s, or 0s for no limit", c.TimeoutConfig.Timeout)
	p.when(c.Spans.Settle < time.Millisecond, "spans::settle is %v: use a positive duration such as 10s", c.Spans.Settle)
	p.when(c.Spans.MaxSize <= 0, "spans::max_size is %d: use a positive number of bytes such as 2097152", c.Spans.MaxSize)
	if q := c.QueueConfig.Get(); q != nil && q.StorageID != nil {
		p.when(!c.RetryConfig.Enabled, "retry_on_failure::enabled is false with sending_queue::storage %q: the queue "+
			"forgets on shutdown what was not retried; enable retries or remove the storage", q.StorageID)
	}
	p.when(c.Watch.Rules != "" && c.Watch.State == "" && c.Path == "",
		"watch::state is not set beside dsn: name a file that remembers what the rules found")
	return errors.Join(p...)
}

func (c *Config) validateLocation() error {
	path := strings.TrimSpace(c.Path) != ""
	switch scheme, _, _ := strings.Cut(string(c.DSN), "://"); {
	case c.DSN == "" && !path:
		return errors.New("path is empty: name the file of the session store, such as " +
			"/var/lib/agenttrace/sessions.db," +
			" or set dsn to a PostgreSQL database")
	case c.DSN == "":
		return nil
	case path:
		return errors.New("path and dsn are both set: a session store is a file or a database; remove one")
	case !stores.HasEngine(string(c.DSN)):
		// The rest may be a password.
		return fmt.Errorf("dsn begins with %.12q: use postgres://user@host:5432/database", scheme)
	case c.MaxSizeMiB != 0:
		return errors.New("max_size_mib limits a file: remove it, and limit the database on its server")
	}
	return nil
}

// location is where the store is.
func (c *Config) location() string { return cmp.Or(string(c.DSN), c.Path) }

// redactor returns what does what both sections say; nil when that is nothing.
func (c *Config) redactor() (*redact.Redactor, error) {
	if !c.Redaction.Enabled && c.Truncation.MaxBytes == 0 && c.Truncation.MaxDepth == 0 {
		return nil, nil
	}
	rc := redact.Config{DisableKeys: true, DisablePatterns: true}
	if c.Redaction.Enabled {
		rc = c.Redaction.Config
	}
	rc.MaxBytes, rc.MaxDepth = c.Truncation.MaxBytes, c.Truncation.MaxDepth
	return redact.New(rc)
}

// Validate implements [confmap.Validator].
func (c *RedactionConfig) Validate() error {
	if c.MaxBytes != 0 || c.MaxDepth != 0 {
		return errors.New("max_bytes and max_depth are set: set them in the truncation block")
	}
	if !c.Enabled && (len(c.Keys) > 0 || len(c.AllowKeys) > 0 || len(c.DisableRules) > 0 || c.Omit != redact.Omit{}) {
		return errors.New("enabled is false, and what else is set has no effect: set it to true, or remove the rest")
	}
	_, err := redact.New(c.Config)
	return err
}

// Validate implements [confmap.Validator].
func (c *TruncationConfig) Validate() error {
	_, err := redact.New(redact.Config{MaxBytes: c.MaxBytes, MaxDepth: c.MaxDepth})
	return err
}

// Validate implements [confmap.Validator].
func (c *JSONLConfig) Validate() error {
	var p problems
	p.when(strings.TrimSpace(c.Directory) == "",
		"directory is empty: name the directory for the session files, or remove the jsonl block")
	p.when(c.QuietPeriod < time.Millisecond, "quiet_period is %v: use a positive duration such as 5s", c.QuietPeriod)
	return errors.Join(p...)
}

// RetentionConfig configures which sessions are deleted.
type RetentionConfig struct {
	// MaxAge is how long after its last update a session is kept; 0 is no limit.
	MaxAge Age `mapstructure:"max_age"`
	// MaxSize is how much room sessions may take in the file or the tables of the database; 0 is no limit.
	MaxSize Size `mapstructure:"max_size"`
	// KeepTagged keeps sessions with a tag.
	KeepTagged bool `mapstructure:"keep_tagged"`
	// Interval is how often sessions are looked at.
	Interval time.Duration `mapstructure:"interval"`
}

const defaultRetentionInterval = 10 * time.Minute

// Age is a duration that may be written as an age, such as 30d or 6mo: see [store.ParseAge].
type Age time.Duration

// UnmarshalText implements [encoding.TextUnmarshaler]. Months are as long as the last ones.
func (a *Age) UnmarshalText(text []byte) error {
	now := time.Now()
	at, err := store.ParseAge(string(text), now)
	if err := errors.Join(store.AmbiguousAge(string(text)), err); err != nil {
		return err
	}
	*a = Age(now.Sub(at))
	return nil
}

// Size is a number of bytes that may be written with a unit, such as 10GiB.
type Size int64

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Size) UnmarshalText(text []byte) error {
	n, err := humanize.ParseBytes(string(text))
	if err != nil || n >= 1<<62 {
		return fmt.Errorf("%q is not a size: use one such as 10GiB or 500MB", text)
	}
	*s = Size(n)
	return nil
}

// Validate implements [confmap.Validator].
func (c *RetentionConfig) Validate() error {
	var p problems
	p.when(c.MaxAge == 0 && c.MaxSize == 0,
		"neither max_age nor max_size is set: set one, or remove the retention block")
	p.when(c.MaxAge < 0 || c.MaxAge > 0 && time.Duration(c.MaxAge) < time.Minute,
		"max_age is %v: use a minute or more, such as 30d", time.Duration(c.MaxAge))
	p.when(c.MaxSize < 0 || c.MaxSize > 0 && c.MaxSize < 1<<20, "max_size is %d bytes: use 1MiB or more", c.MaxSize)
	p.when(c.Interval < time.Second, "interval is %v: use a second or more, such as 10m", c.Interval)
	return errors.Join(p...)
}

// TranscriptsConfig configures the import of the files that agents keep of their own sessions. The zero value
// imports none.
type TranscriptsConfig struct {
	// Discover follows the usual places of known agents, of the user that the collector runs as.
	Discover bool `mapstructure:"discover"`
	// Directories are followed, too, with all that is below them.
	Directories []string `mapstructure:"directories"`
}

func (c *TranscriptsConfig) enabled() bool { return c.Discover || len(c.Directories) > 0 }

// WatchConfig configures rules on sessions. Rules is their file; State remembers what they found, and is
// needed beside a DSN.
type WatchConfig struct {
	Rules string `mapstructure:"rules"`
	State string `mapstructure:"state"`
}
