package importer

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/agenttrace/agenttrace/session/store"
)

// A sink stores sessions while others are read. Those of many files share a transaction, for
// most files are small.
type sink struct {
	sessions chan *store.Imported
	done     chan struct{}

	mu     sync.Mutex
	stored []storedSession
	failed error
}

type storedSession struct {
	in     *store.Imported
	result store.ImportResult
	// reported is set for a session that was not stored, because telemetry of it came meanwhile.
	reported bool
}

// put stores a session some time before the next flush, which reports an error of it, at the
// latest. The session must not change until then. t is the tally of its file.
func (im *Importer) put(ctx context.Context, in *store.Imported, t *Tally) error {
	if im.sink == nil {
		im.sink = &sink{sessions: make(chan *store.Imported), done: make(chan struct{})}
		im.tallies = make(map[*store.Imported]*Tally)
		go im.sink.run(ctx, im.store)
	}
	im.tallies[in] = t
	im.puts[in.Session.ID] = t
	im.sink.sessions <- in
	return im.drain()
}

// flush returns when everything that was put is stored.
func (im *Importer) flush(ctx context.Context) error {
	for im.sink != nil {
		close(im.sink.sessions)
		<-im.sink.done
		err := im.drain()
		reported, tallies := im.reported, im.tallies
		im.sink, im.tallies, im.reported = nil, nil, nil
		for _, in := range reported {
			if err == nil {
				err = im.joinReported(ctx, in, tallies[in])
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// joinReported merges a transcript with the telemetry of its session that came meanwhile. Of one that was not read from
// its beginning, the whole is needed.
func (im *Importer) joinReported(ctx context.Context, in *store.Imported, t *Tally) error {
	if in.Grown == nil || !in.Grown.Partly {
		err := im.join(ctx, in, t)
		if err == nil && in.Source != nil && im.complete(in.Source, t) {
			im.later = append(im.later, in.Source)
		}
		return err
	}
	*t = Tally{File: t.File, input: t.input}
	now := im.source(t.input)
	if info, err := os.Stat(t.input.path); err == nil {
		describe(now, info)
	}
	err := im.settleRead(ctx, im.readInput(ctx, t.input, now, t), now, t)
	if _, ended := errors.AsType[storeError](err); err != nil && !ended && ctx.Err() == nil {
		t.Error = err.Error()
		im.warnf("import %s: %v", t.File, err)
		return nil // the next import reads it
	}
	return err
}

// drain counts what was stored meanwhile.
func (im *Importer) drain() error {
	im.sink.mu.Lock()
	stored, failed := im.sink.stored, im.sink.failed
	im.sink.stored = nil
	im.sink.mu.Unlock()
	for i := range stored {
		in := stored[i].in
		if stored[i].reported {
			im.reported = append(im.reported, in)
			continue
		}
		im.imported(in, &stored[i].result, im.tallies[in])
		delete(im.tallies, in)
	}
	if failed != nil {
		return storeError{failed}
	}
	return nil
}

func (s *sink) run(ctx context.Context, into store.Service) {
	defer close(s.done)
	into.ImportAll(ctx, func(yield func(*store.Imported) bool) {
		for in := range s.sessions {
			if !yield(in) {
				return
			}
		}
	}, func(in *store.Imported, r store.ImportResult, err error) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		reported := errors.Is(err, store.ErrReported)
		if err != nil && !reported {
			s.failed = err
			return false
		}
		s.stored = append(s.stored, storedSession{in, r, reported})
		return true
	})
	for range s.sessions { // nobody stores them: put reports why
	}
}
