package sessionexporter

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"go.opentelemetry.io/collector/confmap"
	"go.uber.org/zap"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
)

// TranscriptsConfig configures the import of the files that agents keep of their own sessions. The zero value
// imports none.
type TranscriptsConfig struct {
	// Discover follows the usual places of known agents, of the user that the collector runs as.
	Discover bool `mapstructure:"discover"`
	// Directories are followed, too, with all that is below them.
	Directories []string `mapstructure:"directories"`

	_ struct{} // no unkeyed literals
}

var _ confmap.Validator = (*TranscriptsConfig)(nil)

// Validate implements [confmap.Validator].
func (c *TranscriptsConfig) Validate() error {
	for _, dir := range c.Directories {
		if strings.TrimSpace(dir) == "" || strings.ContainsRune(dir, 0) {
			return errors.New("directories has an entry that names none: name a directory, or remove the entry")
		}
	}
	return nil
}

func (c *TranscriptsConfig) enabled() bool { return c.Discover || len(c.Directories) > 0 }

// follow returns the directories to follow, with the files in them that are to be imported. A
// directory that is not there yet may come.
func (c *TranscriptsConfig) follow() (all []importer.Directory, inputs []importer.Input, err error) {
	for _, dir := range c.Directories {
		path, err := filepath.Abs(dir)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, importer.Directory{Path: path, Levels: importer.AnyLevel})
		for _, in := range importer.Inputs([]string{path}, nil, nil) {
			if in.Err == nil {
				inputs = append(inputs, in)
			}
		}
	}
	if !c.Discover {
		return all, inputs, nil
	}
	places, err := importer.Discover()
	return append(all, importer.Directories(places)...), append(inputs, importer.InputsOf(places)...), err
}

// watchAgain is how long a watch that ended with an error is over.
const watchAgain = time.Minute

// transcripts imports files beside what the exporter ingests, into the same store.
type transcripts struct {
	config   *TranscriptsConfig
	sink     *sink
	store    store.Store
	ingester *ingest.Ingester
	redactor *redact.Redactor // nil where secrets are kept
	cancel   context.CancelFunc
	done     chan struct{}
}

func (t *transcripts) start() {
	var ctx context.Context
	ctx, t.cancel = context.WithCancel(context.Background())
	t.done = make(chan struct{})
	go func() {
		defer close(t.done)
		for ctx.Err() == nil {
			if err := t.watch(ctx); err != nil {
				t.sink.logger.Error("transcripts are not imported for now", zap.Error(err),
					zap.Duration("again_in", watchAgain))
				select {
				case <-time.After(watchAgain):
				case <-ctx.Done():
				}
			}
		}
	}()
}

// stop returns when nothing is imported any more. What changed meanwhile is imported after the next start.
func (t *transcripts) stop() {
	t.cancel()
	<-t.done
}

// watch imports what is there, and what changes, until ctx ends.
func (t *transcripts) watch(ctx context.Context) error {
	warn := func(text string) { t.sink.logger.Warn("transcripts", zap.String("problem", text)) }
	w := importer.Watch{
		Directories: func() ([]importer.Directory, error) {
			all, _, err := t.config.follow()
			return all, err
		},
		Inputs: func() ([]importer.Input, error) {
			_, inputs, err := t.config.follow()
			return inputs, err
		},
		Import: func(ctx context.Context, inputs []importer.Input) error { return t.read(ctx, inputs, warn) },
		Warn:   warn,
	}
	return w.Run(ctx)
}

// read imports files.
func (t *transcripts) read(ctx context.Context, inputs []importer.Input, warn func(string)) (err error) {
	im, err := importer.NewInto(t.store, t.sink.config.location(), t.ingester, importer.Options{
		Redactor: t.redactor, KeepSecrets: t.redactor == nil, Warn: warn,
	})
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, im.Close())
		if rows := im.Summary.Total.Rows; rows > 0 {
			t.sink.telemetry.rowsWritten.Add(ctx, rows)
			t.sink.changed()
		}
	}()
	failed, err := im.Run(ctx, inputs)
	if failed != nil && len(inputs) == 1 { // of several, each was reported
		warn(failed.Error())
	}
	return err
}
