package sessionexporter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.uber.org/zap"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

// sink is what the exporters of one component share: the store, and what
// follows it. It is open while at least one of them is started.
type sink struct {
	config    *Config
	open      openFunc
	logger    *zap.Logger
	telemetry *metrics

	away   away
	scopes scopes

	made int // exporters that hold the sink; guarded by factory.mu

	mu      sync.Mutex // guards started and the opening and closing of what follows
	started int
	store   sessionStore

	// ingester and files are set before the first start returns and do not
	// change until the last stop.
	ingester *ingest.Ingester
	files    *files // nil when no files are wanted
	// detach takes the store away from those that serve it.
	detach []func(context.Context)
	// retention is nil if all sessions are kept.
	retention *retention
	// transcripts are imported beside, nil if none are.
	transcripts *transcripts
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
	o := stores.Options{Synchronous: s.config.Synchronous, Outbox: s.config.JSONL.HasValue(),
		MaxBytes: s.config.MaxSizeMiB << 20}
	st, err := s.reach(ctx, o)
	if err != nil {
		return err
	}
	if c := s.config.JSONL.Get(); c != nil {
		if s.files, err = newFiles(*c, st, s.logger, s.telemetry); err != nil {
			_ = st.Close() // the error that matters is the first
			return err
		}
		s.files.start()
	}
	if c := s.config.Retention.Get(); c != nil {
		s.retention = newRetention(c, st, s.logger, s.telemetry)
		s.retention.start()
	}
	var keys []string
	if len(s.config.SessionKeys) > 0 {
		keys = s.config.SessionKeys
	}
	s.store = st
	s.scopes.redact = redactor
	s.ingester = ingest.New(st, ingest.Options{SessionKeys: keys, Redactor: redactor})
	if err := s.follow(st); err != nil {
		_ = s.close(ctx) // the error that matters is the first
		return err
	}
	s.started = 1
	s.attach(host)
	return nil
}

// attach gives the store to the extensions that serve one, such as session_view.
func (s *sink) attach(host component.Host) {
	whole, ok := s.store.(store.Store)
	if !ok || host == nil {
		return
	}
	for _, extension := range host.GetExtensions() {
		if server, ok := extension.(interface {
			Attach(location string, s store.Store) (detach func(context.Context))
		}); ok {
			s.detach = append(s.detach, server.Attach(s.config.location(), whole))
		}
	}
}

// follow imports transcripts, if the configuration names any.
func (s *sink) follow(st sessionStore) error {
	c := &s.config.Transcripts
	if !c.enabled() {
		return nil
	}
	whole, ok := st.(store.Store)
	if !ok {
		return errors.New("import transcripts: the store takes no whole sessions")
	}
	s.transcripts = &transcripts{config: c, sink: s, store: whole, ingester: s.ingester}
	if s.config.Redaction.Enabled {
		var err error
		if s.transcripts.redactor, err = redact.New(s.config.Redaction.config()); err != nil {
			return err
		}
	}
	s.transcripts.start()
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
	if s.transcripts != nil {
		s.transcripts.stop()
		s.transcripts = nil
	}
	if s.retention != nil {
		s.retention.stop()
		s.retention = nil
	}
	if s.files != nil {
		s.files.stop(ctx)
		s.files = nil
	}
	for _, detach := range s.detach {
		detach(ctx)
	}
	s.detach = nil
	s.scopes.stop()
	if err := s.store.Close(); err != nil {
		return fmt.Errorf("close session store: %w", err)
	}
	return nil
}

// changed reports that rows were written.
func (s *sink) changed() {
	if s.files != nil {
		s.files.wake()
	}
}

// startTimeout is how long a start waits for the server of a store.
const startTimeout = time.Minute

// reach opens the store. The server of one may start at the same time as the collector.
func (s *sink) reach(ctx context.Context, o stores.Options) (sessionStore, error) {
	for deadline := time.Now().Add(startTimeout); ; {
		st, err := s.open(ctx, s.config.location(), o)
		if err == nil || s.config.DSN == "" || !errors.Is(err, store.ErrUnavailable) || time.Now().After(deadline) {
			return st, err
		}
		s.logger.Warn("waiting for the session store", zap.Error(err))
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		}
	}
}
