package sessionexporter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/gate"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

// sink is what the exporters of one component share: the store, and what runs beside ingest on it. It is open while
// at least one of them is started.
type sink struct {
	config    *Config
	open      openFunc
	logger    *zap.Logger
	telemetry *metrics
	settings  component.TelemetrySettings
	closed    func() // called after the last stop

	unknown unknownScopes
	// outage is set from a request that the store did not take, of which its sender was informed, to one that it did.
	outage atomic.Bool

	mu      sync.Mutex // guards started, and is held while the sink is opened and closed
	started int

	// The fields below are set before the first start returns.
	store    store.Store
	ingester *ingest.Ingester
	files    *jsonl.Directory // nil when no files are wanted
	sender   *sender          // nil for an exporter
	usage    metric.Registration
	// running are the goroutines beside ingest, which cancel ends; detach takes the store away from those that serve it.
	running sync.WaitGroup
	cancel  context.CancelFunc
	detach  []func(context.Context)
}

func (s *sink) start(ctx context.Context, host component.Host) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started > 0 {
		s.started++
		return nil
	}
	redactor, err := s.config.redactor()
	if err != nil {
		return err // Validate has reported so before
	}
	if s.store, err = s.reach(ctx); err != nil {
		return err
	}
	s.unknown = unknownScopes{logger: s.logger, redact: redactor, all: make(map[ingest.Scope]ingest.ScopeCounts)}
	s.ingester = ingest.New(s.store, ingest.Options{SessionKeys: s.config.SessionKeys, Redactor: redactor})
	if err := s.ingester.Resume(ctx); err != nil {
		s.logger.Warn("what an earlier process left is built with the next spans", zap.Error(err))
	}
	var running context.Context
	running, s.cancel = context.WithCancel(context.Background())
	s.usage, err = reportUsage(ctx, s.settings, s.store)
	if err := errors.Join(err, s.writeFiles(running), s.importTranscripts(running), s.watch(running)); err != nil {
		_ = s.close(ctx) // the error that matters is the first
		return err
	}
	s.retain(running)
	if s.config.next != nil {
		s.sender = &sender{config: s.config.Spans, store: s.store, sink: s}
		s.running.Go(func() { s.sender.run(running) })
	}
	s.started = 1
	s.attach(host)
	return nil
}

// startTimeout is how long a start waits for the server of a store.
const startTimeout = time.Minute

// reach opens the store. The server of one may start at the same time as the collector.
func (s *sink) reach(ctx context.Context) (store.Store, error) {
	o := stores.Options{Synchronous: s.config.Synchronous, Outbox: s.config.JSONL.HasValue(),
		SpanOutbox: s.config.next != nil, MaxBytes: s.config.MaxSizeMiB << 20}
	waiting := "" // the error that was logged last
	for deadline := time.Now().Add(startTimeout); ; {
		st, err := s.open(ctx, s.config.location(), o)
		if err == nil || s.config.DSN == "" || !errors.Is(err, store.ErrUnavailable) || time.Now().After(deadline) {
			return st, err
		}
		if err.Error() != waiting {
			waiting = err.Error()
			s.logger.Warn("waiting for the session store", zap.Error(err))
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

// attach gives the store to the extensions that serve one, such as session_view.
func (s *sink) attach(host component.Host) {
	if host == nil {
		return
	}
	for _, extension := range host.GetExtensions() {
		if server, ok := extension.(interface {
			Attach(location string, s store.Store) (detach func(context.Context))
		}); ok {
			s.detach = append(s.detach, server.Attach(s.config.location(), s.store))
		}
	}
}

// retain deletes the sessions that the configuration does not keep.
func (s *sink) retain(ctx context.Context) {
	c := s.config.Retention.Get()
	if c == nil {
		return
	}
	rules := store.Retention{MaxAge: time.Duration(c.MaxAge), MaxSize: int64(c.MaxSize), KeepTagged: c.KeepTagged}
	s.running.Go(func() { rules.Run(ctx, s.store, c.Interval, s.retained) })
}

// retained counts and logs what a look of the retention came to.
func (s *sink) retained(deleted []session.Session, err error) {
	if n := len(deleted); n > 0 {
		s.telemetry.count(context.Background(), "retention_deleted", int64(n))
		s.logger.Info("deleted sessions that the configured retention does not keep", zap.Int("sessions", n))
	}
	if err != nil {
		s.telemetry.count(context.Background(), "retention_failures", 1)
		s.logger.Warn("cannot apply the retention; it is tried again",
			zap.Duration("after", s.config.Retention.Get().Interval), zap.Error(err))
	}
}

// writeFiles keeps a file per session.
func (s *sink) writeFiles(ctx context.Context) (err error) {
	c := s.config.JSONL.Get()
	if c == nil {
		return nil
	}
	s.files, err = jsonl.NewDirectory(c.Directory, c.QuietPeriod, s.store, s.readSession, s.wroteFile)
	if err == nil {
		s.running.Go(func() { s.files.Run(ctx) })
	}
	return err
}

func (s *sink) readSession(ctx context.Context, id string) (*codec.Session, error) {
	var damaged error
	whole, err := formats.ReadStored(ctx, s.store, id, func(p codec.Problem) {
		damaged = errors.Join(damaged, errors.New(p.String()))
	})
	return whole, errors.Join(err, damaged)
}

// wroteFile counts files, and logs each failure once, and once that it is over.
func (s *sink) wroteFile(r jsonl.Result) {
	if r.Err != nil {
		s.telemetry.count(context.Background(), "jsonl_failures", 1)
	} else if r.Written {
		s.telemetry.count(context.Background(), "jsonl_files", 1)
	}
	// The collector samples what it logs by the message: each session has its own.
	subject := "session files"
	if r.ID != "" {
		subject = fmt.Sprintf("the file of session %.80q", r.ID)
	}
	switch {
	case !r.News:
	case r.Err == nil:
		s.logger.Info("Writing "+subject+" succeeded again.", zap.String("file", r.File))
	default:
		s.logger.Warn("Writing "+subject+" failed, will be tried again.",
			zap.String("file", r.File), zap.Error(r.Err), zap.String("remedy", jsonl.Remedy))
	}
}

// importTranscripts follows the files that the configuration names, and imports them into the store.
func (s *sink) importTranscripts(ctx context.Context) (err error) {
	c := &s.config.Transcripts
	if !c.enabled() {
		return nil
	}
	warn := func(text string) { s.logger.Warn("transcripts", zap.String("problem", text)) }
	o := importer.Options{KeepSecrets: !s.config.Redaction.Enabled, Warn: warn}
	if s.config.Redaction.Enabled {
		if o.Redactor, err = redact.New(s.config.Redaction.Config); err != nil {
			return err
		}
	}
	w := importer.Watch{Paths: c.Directories, Discover: c.Discover, Lasting: true, Warn: warn,
		New: func() (*importer.Importer, error) {
			return importer.NewInto(s.store, s.config.location(), s.ingester, o)
		},
		Imported: func(sum *importer.Summary) error {
			if rows := sum.Total.Rows; rows > 0 {
				s.telemetry.count(ctx, "rows_written", rows)
			}
			return nil
		},
	}
	s.running.Go(func() { _ = w.Run(ctx) }) // a lasting watch returns no error
	return nil
}

// watch evaluates rules on the sessions that change.
func (s *sink) watch(ctx context.Context) error {
	c := &s.config.Watch
	if c.Rules == "" {
		return nil
	}
	rules, err := gate.ReadRules(c.Rules)
	if err != nil {
		return fmt.Errorf("watch::rules: %w", err)
	}
	problem := func(err error) { s.logger.Warn("watch", zap.Error(err)) }
	w := gate.Watcher{Rules: rules, Store: stores.Follow(s.config.location()), Problem: problem,
		State: cmp.Or(c.State, s.config.Path+gate.WatchSuffix),
		Found: func(rule *gate.Rule, f gate.Fact) {
			if rule.Does(gate.ActionMetric) {
				s.telemetry.count(ctx, "watch_facts", 1)
			}
			if !rule.Does(gate.ActionLog) {
				return
			}
			s.logger.Warn("a rule of the watch found something", zap.String("rule", f.Rule), zap.String("fact", f.ID),
				zap.String("session", f.SessionID), zap.Int("turn", f.Turn), zap.String("tool", f.Tool))
		}}
	s.running.Go(func() {
		if err := errors.Join(w.Run(ctx), w.Store.Close()); err != nil {
			problem(err)
		}
	})
	return nil
}

// stop closes the store when the last exporter stops. Files that could not be
// written before ctx ends are written after the next start.
func (s *sink) stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started--; s.started > 0 {
		return nil
	}
	return s.close(ctx)
}

func (s *sink) close(ctx context.Context) error {
	s.cancel()
	s.running.Wait()
	if s.usage != nil {
		_ = s.usage.Unregister() // fails never
	}
	s.files.Flush(ctx)
	s.sender.flush(ctx)
	for _, detach := range s.detach {
		detach(ctx)
	}
	s.files, s.sender, s.usage, s.detach = nil, nil, nil, nil
	s.unknown.logAll()
	s.closed()
	if err := s.store.Close(); err != nil {
		return fmt.Errorf("close session store: %w", err)
	}
	return nil
}
