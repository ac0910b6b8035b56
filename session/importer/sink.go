package importer

import (
	"context"
	"sync"

	"github.com/agenttrace/agenttrace/session/service"
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
	im.sink.sessions <- in
	return im.drain()
}

// flush returns when everything that was put is stored.
func (im *Importer) flush() error {
	if im.sink == nil {
		return nil
	}
	close(im.sink.sessions)
	<-im.sink.done
	err := im.drain()
	im.sink, im.tallies = nil, nil
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
		im.imported(in, &stored[i].result, im.tallies[in])
		delete(im.tallies, in)
	}
	if failed != nil {
		return storeError{failed}
	}
	return nil
}

func (s *sink) run(ctx context.Context, into service.Service) {
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
		if err != nil {
			s.failed = err
			return false
		}
		s.stored = append(s.stored, storedSession{in, r})
		return true
	})
	for range s.sessions { // nobody stores them: put reports why
	}
}
