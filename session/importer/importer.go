// Package importer reads telemetry and sessions from files of any format into a store.
//
// [Inputs] finds the files that arguments name, [Discover] those that known agents keep in
// their usual places. An [Importer] reads them, one after the other: it detects the format
// of each, redacts secrets, and stores what it finds. [Summary] counts the result.
package importer

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

// Options configure an [Importer]. The zero value is valid.
type Options struct {
	// Format is that of all inputs. Nil detects the format of each from its content.
	Format *formats.Format
	// KeepSecrets stores everything as it is. Otherwise secrets are redacted, and long values of telemetry truncated.
	KeepSecrets bool
	// Redactor takes secrets out of sessions. Nil is one with the default configuration.
	Redactor *redact.Redactor
	// Invalid imports sessions that violate rules of [session.Check] as well.
	Invalid bool
	// Again reads all inputs, also those that did not change since they were imported.
	Again bool
	// Wanted, if it is set, is asked whether a session is to be stored. A file with one that is not is read again by the
	// next import.
	Wanted func(*store.Imported) bool
	// Budget, if it is set, limits what is read of all inputs, and unpacked.
	Budget *otlpfile.Budget
	// Warn is called with a problem of an input while it is read. Nil ignores them.
	Warn func(text string)
	// Open opens the store. Nil opens or creates the one at the importer's path.
	Open func(ctx context.Context) (store.Service, error)
	// Progress is called before an input is read, while it is, and for each session that was stored. Nil is nobody.
	Progress func(Progress)
}

// Progress is how far an import has come.
type Progress struct {
	// Name is that of the input that is read, and Begun how many were.
	Name  string
	Begun int
	// Read is how many bytes were read of all inputs. Counted reports that those of this one are counted.
	Read    int64
	Counted bool
	// Sessions counts those that were stored.
	Sessions int
}

// Importer reads inputs into a store. It opens the store when it has something to write, so
// that an import of nothing makes none. An Importer is used by one goroutine.
type Importer struct {
	// Summary counts what was read so far.
	Summary Summary
	// progress is how far it has come, and begun the size of the inputs that were begun.
	progress Progress
	begun    int64

	path     string
	options  Options
	store    store.Service
	ingester *ingest.Ingester
	// sessionRedactor redacts whole sessions, and truncates nothing. It is nil if secrets are kept.
	sessionRedactor *redact.Redactor
	// pending is the number of observations that were pending before.
	pending int64
	// sources are what the store remembers of the inputs, by path; later are to be remembered.
	sources map[string]*store.ImportSource
	later   []remembered
	// waiting are sessions that were put and are to be stored, tallies are of the files of those that are not yet.
	waiting      []*store.Imported
	waitingBytes int
	tallies      map[*store.Imported]*Tally
	// puts are the tallies of the sessions that were put, aliases the sessions whose ids others have.
	puts    map[string]*Tally
	aliases []alias
	// unlinked are transcripts that may have forks, and forks those of them that are some.
	unlinked, forks []string
	// reported were put, and telemetry of them came before they were stored.
	reported []*store.Imported
	// shared reports that the store is not closed with the Importer.
	shared bool
}

// New returns an Importer into the store at path, a path or an address.
func New(path string, o Options) (*Importer, error) {
	im := &Importer{path: path, options: o, puts: make(map[string]*Tally), tallies: make(map[*store.Imported]*Tally),
		Summary: Summary{Store: stores.Name(path), Files: []*Tally{}}}
	if o.Warn == nil {
		im.options.Warn = func(string) {}
	}
	if o.Open == nil {
		im.options.Open = func(ctx context.Context) (store.Service, error) {
			return stores.Open(ctx, path, stores.Options{})
		}
	}
	if o.Progress == nil {
		im.options.Progress = func(Progress) {}
	}
	if im.sessionRedactor = o.Redactor; o.KeepSecrets || o.Redactor != nil {
		return im, nil
	}
	var err error
	im.sessionRedactor, err = redact.New(redact.Config{})
	return im, err
}

// NewInto returns an Importer into a store that is open at path, and through its ingester where telemetry reports a
// session, too. Others may write to the store at the same time. Close does not close it.
func NewInto(s store.Store, path string, ingester *ingest.Ingester, o Options) (*Importer, error) {
	im, err := New(path, o)
	if err != nil {
		return nil, err
	}
	im.store, im.ingester, im.shared = s, ingester, true
	return im, nil
}

// counting counts what is read of an input.
type counting struct {
	io.Reader
	im *Importer
}

func (c counting) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.im.progress.Read += int64(n)
	c.im.options.Progress(c.im.progress)
	return n, err
}

// errOther is the error of a file in a directory that is of no format. This is not a failure.
var errOther = errors.New("nothing that import knows")

// maxOthers is the number of such files that are named.
const maxOthers = 20

// Run reads the inputs. Its first error reports that some inputs could not be read, or not to
// their end. The second one ended the import: it is an error of the store or of ctx.
func (im *Importer) Run(ctx context.Context, inputs []Input) (failed, err error) {
	// A sub-agent's session is imported after the one that started it.
	ofSubagent := func(in Input) int {
		path := filepath.ToSlash(in.path)
		return strings.Count(path, "/subagents/") + strings.Count(path, "/agent-")
	}
	inputs = slices.Clone(inputs)
	slices.SortStableFunc(inputs, func(a, b Input) int { return ofSubagent(a) - ofSubagent(b) })
	begun := len(im.Summary.Files)
	defer func() {
		all := im.Summary.Files[begun:]
		for _, t := range all {
			im.Summary.Total.Include(t)
		}
		if len(all) == 1 {
			all[0].Pending = im.Summary.Total.Pending
		}
		if stored, ok := errors.AsType[storeError](err); ok {
			failed, err = nil, stored.error
		}
	}()
	if err := im.recall(ctx, inputs); err != nil {
		return nil, err
	}
	failures := 0
	var others []*Tally
	for _, in := range inputs {
		t := &Tally{File: in.Name, input: in}
		im.Summary.Files = append(im.Summary.Files, t)
		err := im.read(ctx, in, t)
		if _, ended := errors.AsType[storeError](err); ended || ctx.Err() != nil {
			return nil, cmp.Or(ctx.Err(), err)
		}
		if err == nil {
			if what := t.empty(); what != "" {
				im.warnf("%s: %s", in.Name, what)
			}
			continue
		}
		if zombiezen.ErrCode(err).ToPrimary() == zombiezen.ResultCorrupt {
			err = fmt.Errorf("the database is damaged: %w; save what can be read with sqlite3 %s .recover",
				err, in.Name)
		}
		if t.Error = err.Error(); errors.Is(err, errOther) {
			others = append(others, t)
			continue
		}
		failures++
		// The text alone: an error of the file must not be taken for one of the store.
		failed = fmt.Errorf("import %s: %s", in.Name, t.Error)
		if len(inputs) > 1 {
			im.warnf("%v", failed)
		}
	}
	if err := cmp.Or(im.rememberAll(ctx), im.countPending(ctx)); err != nil {
		return nil, err
	}
	im.warnOthers(others, im.Summary.Files[begun:])
	switch {
	case len(others) == len(inputs):
		failed = fmt.Errorf("import: %w is in the directory; name the files, or their --format", errOther)
	case len(inputs) > 1 && failures > 0:
		failed = fmt.Errorf("%d of %d files could not be imported, or not to their end", failures, len(inputs))
	}
	return failed, nil
}

// warnOthers names files that are of no format, except for those that were read with another one.
func (im *Importer) warnOthers(others, all []*Tally) {
	read := make(map[string]bool)
	for _, t := range all {
		f := formats.Named(t.Format, nil)
		if len(others) > 0 && f != nil && f.Beside != nil {
			for _, path := range f.Beside(t.input.path) {
				read[path] = true
			}
		}
	}
	others = slices.DeleteFunc(others, func(t *Tally) bool { return read[t.input.path] })
	for _, t := range others[:min(maxOthers, len(others))] {
		im.warnf("%s is left out: %s", t.File, t.Error)
	}
	if more := len(others) - maxOthers; more > 0 {
		im.warnf("%d more files are left out: %v", more, errOther)
	}
}

// Close closes the store. After an import that was interrupted, the store remembers the inputs that were read whole.
func (im *Importer) Close() error {
	if im.store == nil {
		return nil
	}
	err := im.rememberAll(context.Background())
	if stored, ok := errors.AsType[storeError](err); ok {
		err = stored.error
	}
	if !im.shared {
		err = errors.Join(err, im.store.Close())
	}
	return err
}

// Store returns the store, or nil if nothing was stored.
func (im *Importer) Store() store.Service { return im.store }

func (im *Importer) read(ctx context.Context, in Input, t *Tally) error {
	if in.Err != nil {
		return in.Err
	}
	now := im.source(in)
	if now != nil {
		if was := im.unchanged(in, now); was != nil {
			return im.repeat(was, t)
		}
		if was := im.sources[now.Path]; in.found && was != nil && len(was.Deleted) > 0 {
			t.before = was // what was deleted comes back where the user names the file, or with something new
		}
	}
	im.progress.Name, im.progress.Counted = in.Name, false
	im.progress.Read = max(im.progress.Read, im.begun) // of what is read by its path nothing was counted
	im.progress.Begun, im.begun = im.progress.Begun+1, im.begun+in.Size
	im.options.Progress(im.progress)
	err := im.readAndRemember(ctx, in, now, t)
	if len(im.later) < maxLater {
		return err
	}
	return cmp.Or(im.rememberAll(ctx), err)
}

// readAndRemember reads an input, and has it remembered unless the error is one of reading.
func (im *Importer) readAndRemember(ctx context.Context, in Input, now *store.ImportSource, t *Tally) error {
	err := im.readInput(ctx, in, now, t)
	if other := errors.Is(err, errOther); now != nil && (err == nil || other) {
		if other {
			t.Error = err.Error()
		}
		im.later = append(im.later, remembered{now, t})
	}
	return err
}

// readInput reads an input. now is what is to be remembered of it, nil if nothing is.
func (im *Importer) readInput(ctx context.Context, in Input, now *store.ImportSource, t *Tally) error {
	if in.format != nil {
		t.Format = in.format.Name
		return im.sessions(ctx, in.format, in, nil, now, t)
	}
	var f io.ReadCloser
	if in.waits {
		f = stream(ctx, in.open)
	} else {
		var err error
		if f, err = in.open(); err != nil {
			return err
		}
	}
	defer f.Close()
	im.progress.Counted = true
	r := bufio.NewReaderSize(counting{im.options.Budget.Reader(f), im}, otlpfile.SniffSize)
	z, err := im.decompressed(r, t)
	if err != nil {
		return err
	}
	if z != nil {
		r, in.path = z, "" // the file has other content
	}
	return im.content(ctx, im.options.Format, in, r, now, t)
}

// content reads what is in an input as what it is: of a format, which is nil if it is not known, or a database.
func (im *Importer) content(ctx context.Context, format *formats.Format, in Input, r *bufio.Reader,
	now *store.ImportSource, t *Tally) error {
	text, _ := r.Peek(otlpfile.SniffSize) // the next read reports an error
	isDatabase := format == nil && formats.IsDatabase(text)
	if format == nil && !isDatabase {
		if len(text) < otlpfile.SniffSize && len(bytes.TrimSpace(text)) == 0 {
			return nil
		}
		if format = formats.OfText(text); format == nil && in.found {
			return errOther
		}
		if format == nil {
			t.Format = "otlp" // its reader reports what is wrong with the file
			return unknown(im.telemetry(ctx, r, t))
		}
	}
	if format != nil && format.Telemetry {
		t.Format = format.Name
		return im.telemetry(ctx, r, t)
	}
	if in.path == "" && (isDatabase || !format.Streams()) {
		var err error
		if in.path, err = copied(r); err != nil {
			return err
		}
		defer os.RemoveAll(filepath.Dir(in.path))
	}
	if isDatabase {
		var err error
		if format, err = formats.OfDatabase(in.path); err == nil && in.found && im.isStore(in.path) {
			err = errIsStore
		}
		if err != nil && in.found {
			return fmt.Errorf("%w: %w", errOther, err)
		}
		if err != nil {
			return err
		}
	}
	t.Format = format.Name
	return im.sessions(ctx, format, in, r, now, t)
}

// unknown returns the error of a file of no format, with what it is and what to do. The
// reader of telemetry, which reports err, explains it in terms of telemetry.
func unknown(err error) error {
	if !errors.Is(err, otlpfile.ErrFormat) {
		return err
	}
	what := strings.TrimPrefix(err.Error(), otlpfile.ErrFormat.Error()+": ")
	if !strings.Contains(what, "; ") {
		what += "; see agenttrace help import for the formats that it knows, and --format to name one"
	}
	return fmt.Errorf("%s: %s", errOther.Error(), what)
}

func (im *Importer) warnf(format string, args ...any) { im.options.Warn(fmt.Sprintf(format, args...)) }

// maxNamed is the number of problems of one kind that are named for each file. More are counted.
const maxNamed = 20

// damaged reports a piece that was left out.
func (im *Importer) damaged(t *Tally, err error) {
	t.Damaged++
	switch {
	case t.Damaged <= maxNamed:
		// A reader may begin with the name of the file that it was given.
		what, own := strings.CutPrefix(err.Error(), t.File+":")
		if own && what != "" && what[0] >= '0' && what[0] <= '9' {
			what = "line " + what
		}
		t.Damages = append(t.Damages, what)
		im.warnf("%s: %s", t.File, what)
	case t.Damaged == maxNamed+1:
		im.warnf("%s: more that is damaged is only counted", t.File)
	}
}

// storeError is an error of the store, which ends the import.
type storeError struct{ error }

func (e storeError) Unwrap() error { return e.error }

// found is what the store has, the zero value where it has nothing.
func found[T any](v T, err error) (T, error) {
	if errors.Is(err, store.ErrNotFound) {
		return v, nil
	}
	if err != nil {
		err = storeError{err}
	}
	return v, err
}

func (im *Importer) open(ctx context.Context) error {
	if im.store != nil {
		return nil
	}
	var o ingest.Options
	if !im.options.KeepSecrets {
		var err error
		if o.Redactor, err = redact.New(redact.Config{MaxBytes: ingest.DefaultMaxBytes}); err != nil {
			return err
		}
	}
	s, err := im.options.Open(ctx)
	if err != nil {
		return storeError{err}
	}
	im.store, im.ingester = s, ingest.New(s, o)
	if im.pending, err = s.Pending(ctx); err != nil {
		return storeError{err}
	}
	return nil
}

// countPending counts the observations of this import that are part of no session at its end.
func (im *Importer) countPending(ctx context.Context) error {
	if im.store == nil || im.shared { // those of others count there
		return nil
	}
	n, err := im.store.Pending(ctx)
	im.Summary.Total.Pending = max(0, n-im.pending)
	return err
}

// Summary is what import prints.
type Summary struct {
	Store string   `json:"store"`
	Files []*Tally `json:"files"`
	Total Tally    `json:"total"`
	// Notices are what is doubtful in sessions that telemetry was read of.
	Notices []string `json:"notices,omitempty"`
}

// Tally counts what became of a file.
type Tally struct {
	File   string `json:"file,omitempty"`
	Format string `json:"format,omitempty"`
	// Spans and Records were read; they are Accepted, Ignored, or among Refused. Pending are
	// those of Accepted that no session has after all was read.
	Spans     int   `json:"spans"`
	Records   int   `json:"records"`
	Accepted  int   `json:"accepted"`
	Pending   int64 `json:"pending"`
	Ignored   int   `json:"ignored"`
	Malformed int   `json:"malformed"`
	Rows      int64 `json:"rows"`
	Refused   int64 `json:"refused"`
	// Whole reports that the file holds sessions and no telemetry. Of its rows Messages
	// and Parts were added or replaced, and Unchanged are messages, parts and
	// decisions that the store had. Added are sessions that it did not have.
	Whole     bool `json:"-"`
	Added     int  `json:"sessions_added"`
	Messages  int  `json:"messages"`
	Parts     int  `json:"parts"`
	Unchanged int  `json:"unchanged"`
	// Joined are transcripts that were merged with what telemetry reports of their sessions.
	Joined int `json:"joined"`
	// Same reports that the file did not change since it was imported, and was not read: the
	// counts are those of that time.
	Same bool `json:"same,omitempty"`
	// Deleted counts sessions of the file that were deleted from the store and are left out.
	Deleted int `json:"deleted,omitempty"`
	// Redacted counts values that a secret was taken out of.
	Redacted int `json:"redacted"`
	// Skipped counts bodies of metrics and profiles, Damaged pieces that could not
	// be read, of which Damages are the first.
	Skipped int      `json:"skipped"`
	Damaged int      `json:"damaged"`
	Damages []string `json:"damages,omitempty"`
	// Problems state what was wrong with the first of those that were Malformed.
	Problems []string `json:"problems,omitempty"`
	// Dialects states which dialects recognized how many.
	Dialects map[string]int `json:"dialects,omitempty"`
	// Unrecognized counts what no dialect of a client knows, by the scope that made it.
	Unrecognized []ScopeTally `json:"unrecognized,omitempty"`
	// Sessions are those that were touched.
	Sessions SessionSet `json:"sessions,omitempty"`
	Error    string     `json:"error,omitempty"`

	items int // the messages, parts and decisions in the file
	// lost reports that not all of its sessions were stored, such as when the import was interrupted.
	lost bool
	// before is what was remembered of the file if sessions of it were deleted, and are to be left out: deleted are
	// those that were.
	input   Input
	before  *store.ImportSource
	deleted []string
	// versions are those of the sessions of a database, nil for another file.
	versions *versions
}

// ScopeTally counts the spans and records of an instrumentation scope that no dialect
// knows. Read are those that the generic reading found something of a session in.
type ScopeTally struct {
	Scope   string `json:"scope"`
	Version string `json:"version,omitempty"`
	Spans   int    `json:"spans"`
	Records int    `json:"records"`
	Read    int    `json:"read"`
}

// addScope adds the counts of a scope, in order of name and version.
func (t *Tally) addScope(o ScopeTally) {
	i, known := slices.BinarySearchFunc(t.Unrecognized, o, func(a, b ScopeTally) int {
		return cmp.Or(strings.Compare(a.Scope, b.Scope), strings.Compare(a.Version, b.Version))
	})
	if !known {
		t.Unrecognized = slices.Insert(t.Unrecognized, i, o)
		return
	}
	s := &t.Unrecognized[i]
	s.Spans, s.Records, s.Read = s.Spans+o.Spans, s.Records+o.Records, s.Read+o.Read
}

// SessionSet is a set of session ids. Its JSON is how many there are.
type SessionSet map[string]struct{}

// MarshalJSON writes the number of sessions.
func (s SessionSet) MarshalJSON() ([]byte, error) { return fmt.Append(nil, len(s)), nil }

func (t *Tally) add(r ingest.Report) {
	t.Include(&Tally{
		Spans: r.Spans, Records: r.Records, Accepted: r.Accepted, Ignored: r.Ignored, Malformed: r.Malformed,
		Rows: r.Rows, Refused: r.Refused, Redacted: r.Redacted, Dialects: r.Dialects,
	})
	for scope, c := range r.Unrecognized {
		t.addScope(ScopeTally{scope.Name, scope.Version, c.Spans, c.Records, c.Read})
	}
	for _, id := range r.Sessions {
		t.addSession(id)
	}
}

func (t *Tally) addSession(id string) {
	if t.Sessions == nil {
		t.Sessions = SessionSet{}
	}
	t.Sessions[id] = struct{}{}
}

func (t *Tally) has(s *store.Imported) {
	t.addSession(s.Session.ID)
	n := itemsOf(s)
	t.items += n
	t.versions.has(s.Session.ID, n)
}

func itemsOf(s *store.Imported) int {
	n := len(s.Decisions) + len(s.Messages)
	for i := range s.Messages {
		n += len(s.Messages[i].Parts)
	}
	return n
}

// Include adds the counts of a file to those of all.
func (t *Tally) Include(o *Tally) {
	sum, one := reflect.ValueOf(t).Elem(), reflect.ValueOf(o).Elem()
	for i := range sum.NumField() {
		if n := sum.Field(i); n.CanInt() && n.CanSet() {
			n.SetInt(n.Int() + one.Field(i).Int())
		}
	}
	t.Whole = t.Whole || o.Whole
	if t.Dialects == nil && len(o.Dialects) > 0 {
		t.Dialects = map[string]int{}
	}
	for name, n := range o.Dialects {
		t.Dialects[name] += n
	}
	for _, scope := range o.Unrecognized {
		t.addScope(scope)
	}
	for id := range o.Sessions {
		t.addSession(id)
	}
}

// empty states why an input without an error gave nothing, or "" if it gave something.
func (t *Tally) empty() string {
	switch {
	case t.Spans+t.Records+t.Damaged+t.Joined+t.Deleted+len(t.Sessions) > 0:
		return ""
	case t.Whole:
		return "there is no session in it"
	case t.Format == "":
		return "there is nothing in it"
	}
	return "there are no spans or log records in it"
}
