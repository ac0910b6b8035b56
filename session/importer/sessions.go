package importer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
	switch {
	case f.Appends && in.path != "" && now != nil:
		text, err := io.ReadAll(r)
		if err != nil {
			return fmt.Errorf("read %s: %w", f.Noun, err)
		}
		if time.Since(time.Unix(0, now.ModifiedNano)) < writing {
			if whole := wholeLines(text); len(whole) < len(text) {
				text, now.ModifiedNano = whole, 0 // the rest is read the next time
			}
		}
		all, err := f.DecodeText(in.path, text, report)
		if err == nil {
			now.ReadTo, now.Tail = int64(len(text)), tailOf(text)
			err = im.grew(ctx, f, in, now, text, all, t)
		}
		if err != nil {
			return err
		}
		return im.importAll(ctx, f, func(yield func(*codec.Session, error) bool) {
			for len(all) > 0 && yield(all[0], nil) {
				all = all[1:]
			}
		}, t)
	case f.ReadPath == nil && in.path != "":
		return im.importAll(ctx, f, f.DecodeAt(in.path, r, report), t)
	case in.path == "":
		b := &bounded{r, maxStream}
		return im.importAll(ctx, f, b.sessions(f.Decode(b, report)), t)
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
	im.progress.Counted = false
	if im.isStore(in.path) {
		return fmt.Errorf("%w; name another with --store, or another file", errIsStore)
	}
	return im.importAll(ctx, f, f.DecodeFile(ctx, in.path, wanted, report), t)
}

// writing is how long after a file has changed a program may not have written the whole line.
const writing = 5 * time.Second

// wholeLines is a text of several lines without the last one where that is the beginning of JSON.
func wholeLines(text []byte) []byte {
	end := bytes.LastIndexByte(text, '\n') + 1
	if end == 0 || end == len(text) {
		return text
	}
	err := json.NewDecoder(bytes.NewReader(text[end:])).Decode(new(json.RawMessage))
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return text[:end]
	}
	return text
}

// errIsStore is the error of an input that is the store itself.
var errIsStore = errors.New("it is the store that is imported into")

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
	if err == nil {
		var f *os.File
		path = filepath.Join(dir, "input")
		if f, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600); err == nil {
			_, err = io.Copy(f, r)
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		err = fmt.Errorf("write a temporary file: %w; make room in %s, or name another directory with TMPDIR", err,
			os.TempDir())
	}
	return path, err
}

func (im *Importer) importAll(ctx context.Context, f *formats.Format, sessions iter.Seq2[*codec.Session, error],
	t *Tally) error {
	for s, err := range sessions {
		if err = cmp.Or(ctx.Err(), err); err != nil {
			return err
		}
		if im.options.Wanted != nil && !im.options.Wanted(s) {
			t.lost = true
			continue
		}
		t.Redacted += ingest.RedactRows(im.sessionRedactor, s)
		if err := im.continues(ctx, s); err != nil {
			return err
		}
		wanted, err := im.wants(ctx, f, s, t)
		switch {
		case err != nil:
			return err
		case wanted:
			t.has(s)
			err = im.put(ctx, s, t)
		case !slices.Contains(t.deleted, s.Session.ID):
			t.versions.forget(s.Session.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// continues leaves out of a session that goes on in another trace than it began in what the store has of it: its title
// and place, and, if it has messages from before it was loaded, those that were replayed then.
func (im *Importer) continues(ctx context.Context, s *store.Imported) error {
	var meta struct {
		ACP struct {
			Continued bool `json:"continued"`
		} `json:"acp"`
	}
	if json.Unmarshal([]byte(s.Session.MetadataJSON), &meta) != nil || !meta.ACP.Continued {
		return nil
	}
	if err := cmp.Or(im.flush(ctx), im.open(ctx)); err != nil {
		return err
	}
	stored, err := found(im.store.Transcript(ctx, s.Session.ID))
	if err != nil || stored == nil {
		return err
	}
	if s.Session.Title == session.Untitled {
		s.Session.Title = stored.Session.Title
	}
	s.Session.WorkspaceRoot = cmp.Or(s.Session.WorkspaceRoot, stored.Session.WorkspaceRoot)
	replayed := func(m session.MessageAndParts) bool {
		var meta struct {
			Trace struct {
				Replayed bool `json:"replayed"`
			} `json:"agenttrace"`
		}
		return json.Unmarshal([]byte(m.Message.MetadataJSON), &meta) == nil && meta.Trace.Replayed
	}
	i := slices.IndexFunc(s.Messages, replayed)
	if i >= 0 && slices.ContainsFunc(stored.Messages, func(m session.MessageAndParts) bool {
		return m.Message.Role == session.RoleUser && m.Message.CreatedAt < s.Messages[i].Message.CreatedAt
	}) {
		s.Messages = slices.DeleteFunc(s.Messages, replayed)
	}
	return nil
}

// wants reports whether a session is to be stored: one that breaks rules is left out, with what
// is wrong with it, and one that was deleted.
func (im *Importer) wants(ctx context.Context, f *formats.Format, s *store.Imported, t *Tally) (bool, error) {
	s.Transcript = s.Sorted()
	if err := s.CheckTree(); err != nil {
		im.damaged(t, fmt.Errorf("session %s is left out: %w", s.Session.ID, err))
		return false, nil
	}
	if broken := violations(s); len(broken) > 0 {
		if !im.options.Invalid {
			im.damaged(t, fmt.Errorf("session %s is left out because it breaks rules: %s; "+
				"fix the file, or import it as it is with --invalid", s.Session.ID, named(broken)))
			return false, nil
		}
		im.warnf("%s: session %s breaks rules: %s", t.File, s.Session.ID, named(broken))
	}
	if err := im.open(ctx); err != nil {
		return false, err
	}
	if f.Transcript && !f.Selects { // the ids in a program's database are those of one program
		if err := im.distinguish(ctx, s, t); err != nil {
			return false, err
		}
		if err := im.keepLink(ctx, s); err != nil {
			return false, err
		}
		if im.unlinked = append(im.unlinked, s.Session.ID); isFork(&s.Session) {
			im.forks = append(im.forks, s.Session.ID)
		}
	}
	if t.before != nil && slices.Contains(t.before.Deleted, s.Session.ID) &&
		s.Session.UpdatedAt <= t.before.ModifiedNano/1e6 { // it was deleted since its file was read, and is the same
		t.deleted = append(t.deleted, s.Session.ID)
		t.Deleted++
		return false, nil
	}
	s.Alone = f.Transcript
	return true, nil
}

func (im *Importer) stored() {
	im.progress.Sessions++
	im.options.Progress(im.progress)
}

func (im *Importer) imported(in *store.Imported, r *store.ImportResult, t *Tally) {
	im.stored()
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
	var texts []string
	for _, v := range all[:min(maximum, len(all))] {
		texts = append(texts, v.String())
	}
	if more := len(all) - maximum; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

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

// storeWaiting stores what was put. What telemetry reports, too, is noted to be merged with that. What it could not
// store no longer counts among the sessions of its file.
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
	for _, in := range waiting {
		if t := im.tallies[in]; failed != nil && t != nil {
			delete(t.Sessions, in.Session.ID)
		}
	}
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
		for in, t := range tallies {
			t.lost = true
			delete(t.Sessions, in.Session.ID)
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
