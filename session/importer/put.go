package importer

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/agenttrace/agenttrace/session/store"
)

// Sessions are stored together, up to so many and about so many bytes: most files are small, and a session may be
// large.
const (
	storedAtOnce = 64
	storedBytes  = 8 << 20
)

// put stores a session with others, when the next flush returns at the latest. The session must not change until then.
// t is the tally of its file.
func (im *Importer) put(ctx context.Context, in *store.Imported, t *Tally) error {
	im.tallies[in], im.puts[in.Session.ID] = t, t
	im.waiting, im.waitingBytes = append(im.waiting, in), im.waitingBytes+in.Size()
	if len(im.waiting) < storedAtOnce && im.waitingBytes < storedBytes {
		return nil
	}
	return im.storeWaiting(ctx)
}

// storeWaiting stores what was put. What telemetry reports, too, is noted to be merged with that.
func (im *Importer) storeWaiting(ctx context.Context) (failed error) {
	waiting := im.waiting
	if im.waiting, im.waitingBytes = nil, 0; len(waiting) == 0 {
		return nil
	}
	im.store.ImportAll(ctx, slices.Values(waiting), func(in *store.Imported, r store.ImportResult, err error) bool {
		switch {
		case errors.Is(err, store.ErrReported):
			im.reported = append(im.reported, in)
		case err != nil:
			failed = cmp.Or(failed, error(storeError{err}))
		default:
			im.imported(in, &r, im.tallies[in])
			delete(im.tallies, in)
		}
		return failed == nil
	})
	return failed
}

// flush returns when everything that was put is stored. A transcript of which there is telemetry is merged with that.
func (im *Importer) flush(ctx context.Context) (err error) {
	for len(im.tallies) > 0 {
		if err == nil {
			err = im.storeWaiting(ctx)
		}
		reported, tallies := im.reported, im.tallies
		im.tallies, im.reported = make(map[*store.Imported]*Tally), nil
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
