package importer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/store"
)

// A file that grew is read as a whole, twice: up to where it ended when it was imported, and to its end now. Of the
// sessions only the messages are imported that differ between the two, and the store takes back what the file gave
// then and gives no more. No state of a reader is kept, so nothing can differ from a first import. Reading is cheap
// beside redacting and storing, which are done for what is new only.

// tailSize is how much of the end of what was read shows whether a file only grew.
const tailSize = 4096

// tailOf returns a digest of the end of what was read.
func tailOf(text []byte) string {
	sum := sha256.Sum256(text[max(0, len(text)-tailSize):])
	return hex.EncodeToString(sum[:16])
}

// readAll reads r, of which the system reported a size, which may be wrong.
func readAll(r io.Reader, size int64) ([]byte, error) {
	text := bytes.NewBuffer(make([]byte, 0, min(size, 1<<30)+bytes.MinRead))
	if _, err := text.ReadFrom(r); err != nil {
		return nil, fmt.Errorf("read transcript: %w", err)
	}
	return text.Bytes(), nil
}

// grew notes in the sessions of a file, of which text is the content, what it gave when it was imported, if it only
// grew since.
func (im *Importer) grew(ctx context.Context, f *formats.Format, in Input, now *store.ImportSource, text []byte,
	sessions []*codec.Session, t *Tally) error {
	was := im.sources[now.Path]
	if was == nil || was.Tail == "" || was.Format != f.Name || was.Reading != im.reading(f.Name) ||
		was.Device != now.Device || was.Inode != now.Inode || int64(len(text)) < was.ReadTo ||
		tailOf(text[:was.ReadTo]) != was.Tail {
		return nil
	}
	before, err := f.DecodeText(in.path, text[:was.ReadTo], func(codec.Problem) {})
	if err != nil {
		return nil //nolint:nilerr // there was no session then
	}
	r, err := reportOf(was)
	if err != nil {
		return nil //nolint:nilerr // it was written by another version
	}
	// Redaction knows a title that a user's message begins with by the messages.
	partly := now.Beside == was.Beside && (im.sessionRedactor == nil || !im.sessionRedactor.Omits(redact.Prompt))
	for _, s := range sessions {
		i := slices.IndexFunc(before, func(b *codec.Session) bool { return b.Session.ID == s.Session.ID })
		if i < 0 {
			continue
		}
		plain, err := im.plain(ctx, was, s)
		if err != nil {
			return err
		}
		all := itemsOf(s)
		if s.GrewFrom(before[i], partly && plain); s.Grown.Partly {
			same := all - itemsOf(s)
			t.items, t.Unchanged, t.Redacted = t.items+same, t.Unchanged+same, r.Redacted
		}
	}
	return nil
}

// plain reports whether a session can be imported without its first messages: whether the store has it, it is not a
// fork, and telemetry reports nothing of it or the one that started it.
func (im *Importer) plain(ctx context.Context, was *store.ImportSource, s *codec.Session) (bool, error) {
	id := s.Session.ID
	if to := im.alias(was, "", id); to != "" {
		id = to
	}
	row, err := im.store.Session(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	} else if err != nil {
		return false, storeError{err}
	}
	if store.FromTelemetry(&row) || isFork(&row) || isFork(&s.Session) {
		return false, nil
	}
	if row.ParentID == nil {
		return true, nil
	}
	parent, err := im.store.Session(ctx, *row.ParentID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return false, storeError{err}
	}
	return err != nil || !store.FromTelemetry(&parent), nil
}
