package importer

import (
	"cmp"
	"context"
	"errors"

	"github.com/agenttrace/agenttrace/session/store"
)

// A sink stores sessions while others are read. Those of many files share a transaction, for
// most files are small.
type sink struct {
	sessions chan *store.Imported
	results  chan stored
}

// stored is what became of a session. If telemetry of it came meanwhile, the error is [store.ErrReported].
type stored struct {
	in     *store.Imported
	result store.ImportResult
	err    error
}

func newSink(ctx context.Context, into store.Service) *sink {
	s := &sink{make(chan *store.Imported), make(chan stored, 64)}
	go func() {
		defer close(s.results)
		into.ImportAll(ctx, func(yield func(*store.Imported) bool) {
			for in := range s.sessions {
				if !yield(in) {
					return
				}
			}
		}, func(in *store.Imported, r store.ImportResult, err error) bool {
			s.results <- stored{in, r, err}
			return err == nil || errors.Is(err, store.ErrReported)
		})
		for range s.sessions { // nobody stores them: put reports why
		}
	}()
	return s
}

// put stores a session some time before the next flush, which reports an error of it, at the
// latest. The session must not change until then. t is the tally of its file.
func (im *Importer) put(ctx context.Context, in *store.Imported, t *Tally) error {
	if im.sink == nil {
		im.sink, im.tallies = newSink(ctx, im.store), make(map[*store.Imported]*Tally)
	}
	im.tallies[in], im.puts[in.Session.ID] = t, t
	for {
		select {
		case im.sink.sessions <- in:
			return nil
		case r := <-im.sink.results:
			if err := im.settle(r); err != nil {
				return err
			}
		}
	}
}

// settle counts what became of a session.
func (im *Importer) settle(r stored) error {
	switch {
	case errors.Is(r.err, store.ErrReported):
		im.reported = append(im.reported, r.in)
	case r.err != nil:
		return storeError{r.err}
	default:
		im.imported(r.in, &r.result, im.tallies[r.in])
		delete(im.tallies, r.in)
	}
	return nil
}

// flush returns when everything that was put is stored. A transcript of which there is telemetry is merged with that.
func (im *Importer) flush(ctx context.Context) (err error) {
	for im.sink != nil {
		close(im.sink.sessions)
		for r := range im.sink.results {
			err = cmp.Or(err, im.settle(r))
		}
		reported, tallies := im.reported, im.tallies
		im.sink, im.tallies, im.reported = nil, nil, nil
		for _, in := range reported {
			if err == nil {
				err = im.join(ctx, in, tallies[in])
			}
			if err == nil {
				delete(tallies, in)
			}
		}
		for _, t := range tallies {
			t.lost = true
		}
	}
	return err
}

// join merges a transcript with the telemetry of its session. Of one that was not read from its beginning, the whole is
// read.
func (im *Importer) join(ctx context.Context, in *store.Imported, t *Tally) error {
	if in.Grown != nil && in.Grown.Partly {
		*t = Tally{File: t.File, input: t.input}
		err := im.readAndRemember(ctx, t.input, im.source(t.input), t)
		if _, ended := errors.AsType[storeError](err); err != nil && !ended && ctx.Err() == nil {
			t.Error, t.lost = err.Error(), true // the next import reads it
			im.warnf("import %s: %v", t.File, err)
			return nil
		}
		return err
	}
	r, err := im.ingester.Transcript(ctx, in)
	if err != nil {
		return storeError{err}
	}
	im.stored()
	t.addSession(in.Session.ID)
	t.Joined++
	t.Rows += r.Rows
	return nil
}
