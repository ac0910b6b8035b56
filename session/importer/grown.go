package importer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/store"
)

// tailSize is how much of the end of what was read shows whether a file only grew.
const tailSize = 4096

// noteRead notes how far a file was read: text is its content from an offset on, with the tail.
func noteRead(s *store.ImportSource, from int64, text []byte) {
	s.ReadTo, s.Tail = from+int64(len(text)), digestOf(tailOf(text))
}

// tailOf returns the end of what was read.
func tailOf(text []byte) []byte { return text[max(0, len(text)-tailSize):] }

func digestOf(tail []byte) string {
	sum := sha256.Sum256(tail)
	return hex.EncodeToString(sum[:16])
}

// readAll reads r, of which the system reported a size. What it returns is valid until it is called again.
func (im *Importer) readAll(r io.Reader, size int64) (text []byte, err error) {
	const most, kept = 1 << 30, 16 << 20 // what is reported may be wrong
	if n := int(min(size, most)) + 512; cap(im.content) < n {
		im.content = make([]byte, 0, n)
	}
	text = im.content[:0]
	defer func() {
		if im.content = text; cap(text) > kept {
			im.content = nil
		}
	}()
	for {
		if len(text) == cap(text) {
			text = append(text, 0)[:len(text)]
		}
		n, err := r.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		if err == io.EOF {
			return text, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read transcript: %w", err)
		}
	}
}

// decoded yields sessions that were read.
func decoded(all []*codec.Session) iter.Seq2[*codec.Session, error] {
	return func(yield func(*codec.Session, error) bool) {
		for _, s := range all {
			if !yield(s, nil) {
				return
			}
		}
	}
}

// grown reads what a file has more than when it was imported: from the checkpoint on if that is
// enough, and otherwise from the beginning. It reports whether the file is one that grew.
func (im *Importer) grown(ctx context.Context, in Input, now *store.ImportSource, t *Tally) (done bool, _ error) {
	was, f, err := im.growing(ctx, in, now)
	if was == nil || err != nil {
		return false, err
	}
	text, err := im.rest(in, was, now)
	if text == nil || err != nil {
		return false, err
	}
	var fresh []codec.Problem
	report := func(p codec.Problem) { fresh = append(fresh, p) }
	from := codec.Checkpoint{Offset: was.Resume, State: was.State}
	g, err := f.Grow(in.path, text, from, int(was.ReadTo-from.Offset), report)
	if errors.Is(err, codec.ErrWhole) {
		from, fresh, was.Resume = codec.Checkpoint{}, nil, 0
		if text, err = im.rest(in, was, now); text == nil || err != nil {
			return false, err
		}
		g, err = f.Grow(in.path, text, from, int(was.ReadTo), report)
	}
	if err != nil {
		return true, err
	}
	now.Resume, now.State = g.Next.Offset, g.Next.State
	if err := im.continueReport(was, g, t); err != nil {
		return false, nil // it was written by another version
	}
	for _, p := range fresh {
		im.damaged(t, errors.New(p.String()))
	}
	for _, before := range g.Before {
		for _, s := range g.Sessions {
			if s.Session.ID == before.Session.ID {
				s.Grown = &store.Grown{Before: before.Transcript, Blobs: before.Blobs, CostUSD: g.CostUSD}
			}
		}
	}
	return true, im.settleRead(ctx, im.importAll(ctx, f, decoded(g.Sessions), now, t), now, t)
}

// growing returns what is remembered of a file that may have grown, with the checkpoint if that
// is to be used, and its format; nil if the file is another.
func (im *Importer) growing(ctx context.Context, in Input, now *store.ImportSource) (*store.ImportSource,
	*formats.Format, error) {
	was := im.sources[now.Path]
	if was == nil || was.Tail == "" || was.Reading != im.reading(was.Format) || was.Device != now.Device ||
		was.Inode != now.Inode || now.Size < was.ReadTo {
		return nil, nil, nil
	}
	f := formats.Named(was.Format, nil)
	if f == nil || f.Grow == nil {
		return nil, nil, nil
	}
	whole, err := im.store.ImportSource(ctx, now.Path)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, storeError{err}
	}
	if now.Beside, _ = beside(f, now.Path); now.Beside != was.Beside && !f.GrowBeside ||
		!im.plain(ctx, whole.Sessions) {
		whole.Resume = 0 // the whole is needed
	}
	return &whole, f, nil
}

// plain reports whether the file has one session, and telemetry reports nothing of it or the one that started it.
func (im *Importer) plain(ctx context.Context, sessions []string) bool {
	if len(sessions) != 1 {
		return false
	}
	row, err := im.store.Session(ctx, sessions[0])
	if err != nil || store.FromTelemetry(&row) || row.ParentID == nil || isFork(&row) {
		return err == nil && !store.FromTelemetry(&row)
	}
	parent, err := im.store.Session(ctx, *row.ParentID)
	return err == nil && !store.FromTelemetry(&parent) || errors.Is(err, store.ErrNotFound)
}

// rest reads a file from the checkpoint on, and describes it anew. It returns nil if what was
// read before is not there as it was.
func (im *Importer) rest(in Input, was, now *store.ImportSource) (text []byte, _ error) {
	f, err := codec.OpenFile(in.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	describe(now, info)
	if now.Device != was.Device || now.Inode != was.Inode || now.Size < was.ReadTo {
		return nil, nil
	}
	from := max(0, min(was.Resume, was.ReadTo-tailSize))
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return nil, err
	}
	if text, err = im.readAll(im.options.Progress.Reader(io.LimitReader(f, now.Size-from)), now.Size-from); err != nil {
		return nil, err
	}
	known := was.ReadTo - from
	if int64(len(text)) < known || digestOf(tailOf(text[:known])) != was.Tail {
		return nil, nil
	}
	noteRead(now, from, text)
	return text[was.Resume-from:], nil
}

// continueReport has the tally go on from what is remembered of the file, except for the line at
// which it ended, which is read again.
func (im *Importer) continueReport(was *store.ImportSource, g *codec.Growth, t *Tally) error {
	r, err := reportOf(was)
	if err != nil {
		return err
	}
	t.Format, t.Whole, t.items = was.Format, true, r.Items
	for _, s := range g.Before {
		t.items -= itemsOf(s)
	}
	t.Unchanged = t.items
	t.Redacted = r.Redacted
	t.Damaged = r.Damaged
	for _, what := range r.Damages {
		if g.Cut > 0 && strings.HasPrefix(what, codec.Problem{Line: g.Cut}.String()) {
			t.Damaged--
			continue
		}
		t.Damages = append(t.Damages, what)
		im.warnf("%s: %s", t.File, what)
	}
	return nil
}
