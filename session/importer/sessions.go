package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
)

// sessions reads what the format finds in the input, from its path where it has
// one and the format wants it. r is the input from its beginning on.
func (im *Importer) sessions(ctx context.Context, f *formats.Format, in Input, r io.Reader, now *store.ImportSource,
	t *Tally) error {
	t.Whole = true
	if now != nil {
		now.Beside, _ = beside(f, now.Path)
	}
	report := func(p codec.Problem) { im.damaged(t, errors.New(p.String())) }
	if f.DecodeText != nil && in.path != "" && now != nil && r != nil {
		text, err := readAll(r, now.Size)
		if err != nil {
			return err
		}
		all, err := f.DecodeText(in.path, text, report)
		if err != nil {
			return err
		}
		noteRead(now, text)
		if err := im.grew(ctx, f, in, now, text, all, t); err != nil {
			return err
		}
		return im.importAll(ctx, f, func(yield func(*codec.Session, error) bool) {
			for _, s := range all {
				if !yield(s, nil) {
					return
				}
			}
		}, now, t)
	}
	if f.DecodeFile == nil || in.path == "" && f.Decode != nil {
		if in.path != "" {
			return im.importAll(ctx, f, f.Decode(r, report), now, t)
		}
		b := &bounded{r, maxStream}
		return im.importAll(ctx, f, b.sessions(f.Decode(b, report)), now, t)
	}
	path := in.path
	if path == "" {
		var err error
		if path, err = copied(r); err != nil {
			return err
		}
		defer os.RemoveAll(filepath.Dir(path))
	}
	var wanted codec.Wanted
	if f.Selects && now != nil {
		var err error
		if t.versions, err = im.versionsOf(ctx, in, now, t); err != nil {
			return err
		}
		forget := report
		report = func(p codec.Problem) { t.versions.forget(t.versions.reading); forget(p) }
		wanted = t.versions.wanted
	}
	im.options.Progress.Uncounted()
	if im.isStore(path) {
		return errors.New("it is the store that is imported into; name another with --store, or another file")
	}
	return im.importAll(ctx, f, f.DecodeFile(ctx, path, wanted, report), now, t)
}

// database reads an SQLite database as what its tables show it to be.
func (im *Importer) database(ctx context.Context, in Input, r io.Reader, now *store.ImportSource, t *Tally) error {
	if in.path == "" {
		path, err := copied(r)
		if err != nil {
			return err
		}
		defer os.RemoveAll(filepath.Dir(path))
		in.path = path
	}
	f, err := formats.OfDatabase(in.path)
	if err == nil && in.found && im.isStore(in.path) {
		err = errors.New("it is the store that is imported into")
	}
	if err != nil && in.found {
		return fmt.Errorf("%w: %w", errOther, err)
	}
	if err != nil {
		return err
	}
	t.Format = f.Name
	return im.sessions(ctx, f, in, r, now, t)
}

// isStore reports whether the path is that of the store.
func (im *Importer) isStore(path string) bool {
	a, err := os.Stat(path)
	if err != nil {
		return false
	}
	b, err := os.Stat(im.path)
	return err == nil && os.SameFile(a, b)
}

// copied writes r to a file in a temporary directory, for formats that read files only.
func copied(r io.Reader) (path string, err error) {
	dir, err := os.MkdirTemp("", "agenttrace-import-")
	if err != nil {
		return "", inTemporary(err)
	}
	path = filepath.Join(dir, "input")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err == nil {
		_, err = io.Copy(f, r)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		_ = os.RemoveAll(dir)
	}
	return path, inTemporary(err)
}

// inTemporary adds the remedy for a temporary file that cannot be written.
func inTemporary(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("write a temporary file: %w; make room in %s, or name another directory with TMPDIR", err,
		os.TempDir())
}

// importAll stores the sessions of an input, the last of them together with what is to be
// remembered of it.
func (im *Importer) importAll(ctx context.Context, f *formats.Format, sessions iter.Seq2[*codec.Session, error],
	now *store.ImportSource, t *Tally) (failed error) {
	next, stop := iter.Pull2(sessions)
	defer stop()
	// joined are transcripts of sessions that the store has from telemetry. They are
	// merged when the transaction that the others share is over.
	var joined []*store.Imported
	// ready is the next session that is to be stored, nil at the end. The store is opened for the first. It is asked
	// for before the one in hand is stored, because the last one is stored together with the source: if the source came
	// first, a crash between the two would lose the session, as the file would count as imported.
	ready := func() *store.Imported {
		for failed == nil {
			s, err, ok := next()
			switch {
			case !ok:
				return nil
			case ctx.Err() != nil:
				failed = ctx.Err()
			case err != nil:
				failed = err
			default:
				t.Redacted += ingest.RedactRows(im.sessionRedactor, s)
				var how fate
				if how, failed = im.wants(ctx, f, s, t); how != fateLeaveOut {
					t.has(s)
				} else if !slices.Contains(t.deleted, s.Session.ID) {
					t.versions.forget(s.Session.ID)
				}
				switch how {
				case fateStore:
					return s
				case fateJoin:
					joined = append(joined, s)
				}
			}
		}
		return nil
	}
	for in := ready(); in != nil; {
		after := ready()
		if after == nil && failed == nil && joined == nil && now != nil && im.complete(now, t) {
			in.Source, t.remembered = now, true
		}
		if err := im.put(ctx, in, t); err != nil {
			return err
		}
		in = after
	}
	if len(joined) > 0 {
		failed = cmp.Or(failed, im.flush(ctx))
	}
	for _, in := range joined {
		if failed == nil {
			failed = im.join(ctx, in, t)
		}
	}
	return failed
}

// join merges a transcript with the telemetry of its session.
func (im *Importer) join(ctx context.Context, in *store.Imported, t *Tally) error {
	r, err := im.ingester.Transcript(ctx, in)
	if err != nil {
		return storeError{err}
	}
	im.options.Progress.Stored()
	t.addSession(in.Session.ID)
	t.Joined++
	t.Rows += r.Rows
	return nil
}

// fate is what becomes of a session that was read.
type fate int

const (
	fateLeaveOut fate = iota
	fateStore
	fateJoin // with what telemetry reports of it
)

// wants states what becomes of a session: one that breaks rules is left out, with what
// is wrong with it.
func (im *Importer) wants(ctx context.Context, f *formats.Format, s *store.Imported, t *Tally) (fate, error) {
	s.Transcript = s.Sorted()
	if err := s.CheckTree(); err != nil {
		im.damaged(t, fmt.Errorf("session %s is left out: %w", s.Session.ID, err))
		return fateLeaveOut, nil
	}
	if broken := violations(s); len(broken) > 0 {
		if !im.options.Invalid {
			im.damaged(t,
				fmt.Errorf("session %s is left out because it breaks rules: %s; "+
					"fix the file, or import it as it is with --invalid",
					s.Session.ID, named(broken)))
			return fateLeaveOut, nil
		}
		im.warnf("%s: session %s breaks rules: %s", t.File, s.Session.ID, named(broken))
	}
	if f.Transcript && !f.Selects { // the ids in a program's database are those of one program
		if err := im.open(ctx); err != nil {
			return fateLeaveOut, err
		}
		if err := im.distinguish(ctx, s, t); err != nil {
			return fateLeaveOut, err
		}
		if err := im.linkForks(ctx, s); err != nil {
			return fateLeaveOut, err
		}
	}
	if t.isDeleted(s) {
		t.deleted = append(t.deleted, s.Session.ID)
		t.Deleted++
		return fateLeaveOut, nil
	}
	if err := im.open(ctx); err != nil {
		return fateLeaveOut, err
	}
	if s.Alone = f.Transcript; f.Transcript {
		ids := []string{s.Session.ID}
		if s.Session.ParentID != nil && !isFork(&s.Session) {
			ids = append(ids, *s.Session.ParentID) // telemetry of a session is of its sub-agents too
		}
		for _, id := range ids {
			row, err := im.store.Session(ctx, id)
			switch {
			case errors.Is(err, store.ErrNotFound):
			case err != nil:
				return fateLeaveOut, storeError{err}
			case store.FromTelemetry(&row):
				return fateJoin, nil
			}
		}
	}
	return fateStore, nil
}

// imported counts what became of a session.
func (im *Importer) imported(in *store.Imported, r *store.ImportResult, t *Tally) {
	if len(r.Refused) > 0 && in.Source != nil {
		defer func() { // the report that came with the session did not know of it
			if im.complete(in.Source, t) {
				im.later = append(im.later, in.Source)
			}
		}()
	}
	im.options.Progress.Stored()
	t.addSession(in.Session.ID)
	if r.Added {
		t.Added++
	}
	t.Messages += r.Messages
	t.Parts += r.Parts
	t.Unchanged += r.Unchanged
	t.Rows += int64(r.Messages + r.Parts + r.Decisions + r.Blobs + r.Annotations)
	if r.Changed {
		t.Rows++
	}
	for _, refusal := range r.Refused {
		t.Refused++
		t.versions.forget(in.Session.ID)
		im.damaged(t, fmt.Errorf("session %s: %s", in.Session.ID, refusal))
	}
}

// violations are those that an import does not repair: tokens are summed again.
func violations(s *store.Imported) []session.Violation {
	return slices.DeleteFunc(session.Check(s.Transcript), func(v session.Violation) bool {
		return v.Rule == "rollup" || v.Rule == "total"
	})
}

// named lists the first of the violations for a sentence.
func named(all []session.Violation) string {
	const maximum = 3
	var b strings.Builder
	for i, v := range all[:min(maximum, len(all))] {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(v.String())
	}
	if more := len(all) - maximum; more > 0 {
		fmt.Fprintf(&b, "; and %d more", more)
	}
	return b.String()
}
