package importer

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/ingest"
)

// Input is a file to import, standard input, or a directory that a program keeps.
type Input struct {
	Name string
	// Size is in bytes, and 0 if it is unknown.
	Size int64
	// Err is the reason why the input cannot be opened.
	Err error

	open func() (io.ReadCloser, error)
	// waits reports that opening or reading it may last for good, as it does with a named pipe.
	waits bool
	// found reports that nobody named the file: it was in a directory.
	found bool
	// path is where the input can be read again; empty for standard input and pipes. format
	// is set for a directory, which is read by its path.
	path   string
	format *formats.Format
}

// Inputs returns the inputs that arguments of a command line name: files, directories, or "-" for stdin. An argument
// that names nothing is an input with an error. format is that of all inputs, or nil.
func Inputs(args []string, stdin io.Reader, format *formats.Format) (all []Input) {
	for _, arg := range args {
		if arg == "-" {
			_, waits := stdin.(*os.File) // such as a pipe
			all = append(all, Input{Name: "standard input", waits: waits,
				open: func() (io.ReadCloser, error) { return io.NopCloser(stdin), nil }})
			continue
		}
		info, err := os.Stat(arg)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = errors.New("no such file")
		case err != nil:
		case !info.IsDir():
			all = append(all, fileInput(arg, info, false))
		case format != nil && format.Layout != nil:
			all = append(all, Input{Name: arg, path: arg, format: format})
		default:
			var files []Input
			if files, err = directory(arg, format == nil); err == nil && len(files) == 0 {
				err = fmt.Errorf("no file in the directory, or below it, ends in %s; name the files", Extensions())
			}
			all = append(all, files...)
		}
		if err != nil {
			all = append(all, Input{Name: arg, Err: err})
		}
	}
	return all
}

// Extensions lists the extensions of all formats for a sentence.
func Extensions() string {
	var all []string
	for _, f := range formats.All {
		for _, e := range f.Extensions {
			if !slices.Contains(all, e) {
				all = append(all, e)
			}
		}
	}
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}

// fileInput returns an input that is no directory. What a user names need not be a file; of what was found all else is
// left out.
func fileInput(path string, info fs.FileInfo, found bool) Input {
	err := codec.CheckFile(info)
	switch {
	case err == nil:
		return Input{Name: path, open: func() (io.ReadCloser, error) { return openWhole(path) },
			path: path, Size: info.Size(), found: found}
	case found:
		err = fmt.Errorf("%w: %w", errOther, err)
	case info.Mode()&fs.ModeSocket == 0:
		err = nil
	}
	return Input{Name: path, Err: err, open: func() (io.ReadCloser, error) { return os.Open(path) }, waits: true,
		found: found}
}

// openWhole opens a file to be read up to its size of now. What is appended while it is read comes
// with the next import: a writer may be faster than its reader.
func openWhole(path string) (io.ReadCloser, error) {
	f, err := codec.OpenFile(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil || info.Size() == 0 { // the system does not know the size of some files
		return f, nil
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, info.Size()), f}, nil
}

// stream reads what may be waited for or go on for good, until ctx ends. What it waits for then is
// left to the end of the process.
func stream(ctx context.Context, open func() (io.ReadCloser, error)) io.ReadCloser {
	r, w := io.Pipe()
	stop := context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	go func() {
		defer stop()
		f, err := open()
		if err == nil {
			_, err = io.Copy(w, f)
			err = errors.Join(err, f.Close())
		}
		w.CloseWithError(err)
	}()
	return r
}

// maxStream is how much of a stream is read for one session, which is held in memory.
const maxStream = 1 << 30

// A bounded stream ends with an error after too much for one session.
type bounded struct {
	io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fmt.Errorf("more than %d MiB for one session: save it in a file that is not compressed, "+
			"and import that", maxStream>>20)
	}
	n, err := b.Reader.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// sessions reads sessions from the stream by decode.
func (b *bounded) sessions(decode iter.Seq2[*codec.Session, error]) iter.Seq2[*codec.Session, error] {
	return func(yield func(*codec.Session, error) bool) {
		for s, err := range decode {
			if b.left = maxStream; !yield(s, err) {
				return
			}
		}
	}
}

// directory lists what is in a directory and below it, in the order of the names: directories that a program laid out,
// where sniff is set, each as a whole, and else the files that have the extension of a format. Hidden directories, and
// links to directories, are passed over.
func directory(root string, sniff bool) ([]Input, error) {
	var all []Input
	// With a separator at its end a link is followed.
	root = strings.TrimRight(root, string(filepath.Separator)) + string(filepath.Separator)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil && path == root {
			return err
		}
		if err != nil {
			all = append(all, Input{Name: path, Err: err})
			return nil
		}
		if !e.IsDir() {
			known := slices.ContainsFunc(formats.All, func(f formats.Format) bool { return f.HasExtension(e.Name()) })
			if info, err := os.Stat(path); known && err == nil && !info.IsDir() {
				all = append(all, fileInput(path, info, true))
			}
			return nil
		}
		if path != root && strings.HasPrefix(e.Name(), ".") {
			return fs.SkipDir
		}
		if sniff {
			if format := formats.OfDirectory(path); format != nil && !mixed(path, format) {
				path, found := filepath.Clean(path), path != root
				all = append(all, Input{Name: path, path: path, format: format, found: found})
				return fs.SkipDir
			}
		}
		return nil
	})
	return all, err
}

// mixed reports whether a directory that looks like one of the format has, beside what
// the format reads of it, files of others, which would be lost with it as a whole.
func mixed(path string, f *formats.Format) bool {
	other := func(dir string) bool {
		entries, _ := os.ReadDir(dir) // what cannot be read shows when it is
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
			if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") {
				return false
			}
			of := formats.OfFile(filepath.Join(dir, e.Name()))
			return of != nil && of != f
		})
	}
	entries, _ := os.ReadDir(path)
	return other(path) || slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			return false
		}
		below := filepath.Join(path, e.Name())
		of := formats.OfDirectory(below)
		return of != nil && of != f || of == nil && other(below)
	})
}

// decompressed returns what is compressed in r, nil where nothing is. What is damaged ends there, and is counted as
// damage.
func (im *Importer) decompressed(r *bufio.Reader, t *Tally) (*bufio.Reader, error) {
	head, _ := r.Peek(16) // an error shows at the next read
	kind := otlpfile.Compression(head)
	if kind == "" {
		return nil, nil
	}
	z, err := otlpfile.Unpack(kind, r)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", kind, err)
	}
	damaged := func(err error) {
		im.damaged(t, fmt.Errorf("it is damaged as a %s file: the rest is left out: %w", kind, err))
	}
	unpacked := im.options.Budget.Reader(&intact{r: z, damaged: damaged})
	return bufio.NewReaderSize(unpacked, otlpfile.SniffSize), nil
}

// intact reads as far as what is compressed in r is good.
type intact struct {
	r       io.Reader
	damaged func(error)
	ended   bool
}

func (i *intact) Read(p []byte) (int, error) {
	if i.ended {
		return 0, io.EOF
	}
	n, err := i.r.Read(p)
	_, failed := errors.AsType[*fs.PathError](err)
	if err != nil && err != io.EOF && !failed && !errors.Is(err, otlpfile.ErrTooLarge) {
		i.damaged(err)
		i.ended, err = true, io.EOF
	}
	return n, err
}

// ChangedSince reports whether the file, or anything in the directory, was modified at a time or later.
func (in *Input) ChangedSince(at time.Time) bool {
	changed := false
	_ = filepath.WalkDir(in.path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // what cannot be looked at is another's
		}
		if info, err := d.Info(); err == nil && !d.IsDir() && !info.ModTime().Before(at) {
			changed = true
			return filepath.SkipAll
		}
		return nil
	})
	return changed
}

func (im *Importer) telemetry(ctx context.Context, r io.Reader, t *Tally) error {
	b := batch{im: im, t: t, traces: ptrace.NewTraces(), logs: plog.NewLogs()}
	var failed error
	for body, err := range otlpfile.Read(r, otlpfile.Options{Budget: im.options.Budget}) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if damaged, ok := errors.AsType[*otlpfile.DamagedError](err); ok {
			im.damaged(t, damaged)
			continue
		}
		if err != nil {
			failed = err
			break
		}
		if body.Skipped != "" {
			t.Skipped++
		}
		if err := b.add(ctx, body); err != nil {
			return err
		}
	}
	return cmp.Or(b.deliver(ctx), failed)
}

// batch collects small bodies, because each delivery is a transaction.
type batch struct {
	im     *Importer
	t      *Tally
	traces ptrace.Traces
	logs   plog.Logs
	from   int64
}

const (
	batchItems = 2000
	batchBytes = 8 << 20
)

// add takes the content of the body, and delivers the batch if it is large enough.
func (b *batch) add(ctx context.Context, body otlpfile.Body) error {
	body.Traces.ResourceSpans().MoveAndAppendTo(b.traces.ResourceSpans())
	body.Logs.ResourceLogs().MoveAndAppendTo(b.logs.ResourceLogs())
	if b.traces.SpanCount()+b.logs.LogRecordCount() < batchItems && body.Offset-b.from < batchBytes {
		return nil
	}
	b.from = body.Offset
	return b.deliver(ctx)
}

func (b *batch) deliver(ctx context.Context) error {
	if b.traces.SpanCount()+b.logs.LogRecordCount() == 0 {
		return nil
	}
	if err := cmp.Or(b.im.flush(ctx), b.im.open(ctx)); err != nil {
		return err
	}
	spans, err := b.im.ingester.Traces(ctx, b.traces)
	if err == nil {
		b.im.ingested(b.t, spans)
		var records ingest.Report
		records, err = b.im.ingester.Logs(ctx, b.logs)
		b.im.ingested(b.t, records)
	}
	if err != nil {
		return storeError{err}
	}
	b.traces, b.logs = ptrace.NewTraces(), plog.NewLogs()
	return nil
}

// ingested counts the result of a delivery, and names the first spans and records of a file that are malformed or
// refused.
func (im *Importer) ingested(t *Tally, r ingest.Report) {
	before := t.Malformed
	t.add(r)
	for _, problem := range r.Problems[:min(len(r.Problems), maxNamed-len(t.Problems))] {
		t.Problems = append(t.Problems, problem)
		im.warnf("%s: malformed %s", t.File, problem)
	}
	for _, reason := range r.Refusals {
		im.damaged(t, errors.New(reason))
	}
	if t.Malformed > maxNamed && before <= maxNamed {
		im.warnf("%s: more that is malformed is only counted", t.File)
	}
}
