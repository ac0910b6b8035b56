package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// disk is where a writer's files are, with faults.
type disk struct {
	room  int64 // bytes that may be written yet; negative is any number
	full  error // the error when there is no more
	sync  error
	open  error
	syncs int
}

func (d *disk) file(name string, flag int) (file, error) {
	if d.open != nil {
		return nil, d.open
	}
	f, err := openFile(name, flag)
	return &diskFile{f, d}, err
}

type diskFile struct {
	file
	d *disk
}

func (f *diskFile) Write(b []byte) (int, error) {
	if f.d.room >= 0 && int64(len(b)) > f.d.room {
		n, err := f.file.Write(b[:f.d.room]) // a part gets there, as on a real one
		f.d.room = 0
		return n, errors.Join(err, f.d.full)
	}
	if f.d.room >= 0 {
		f.d.room -= int64(len(b))
	}
	return f.file.Write(b)
}

func (f *diskFile) Sync() error {
	f.d.syncs++
	return f.d.sync // the test does not pull the plug
}

// TestDiskFails fills the disk at every byte of the third export; then there is room again.
func TestDiskFails(t *testing.T) {
	starts := offsets(t, fileBytes(t, "a", "b", "c"))
	for _, full := range []error{syscall.ENOSPC, syscall.EIO} {
		for n := starts[2]; n < starts[3]; n += 7 {
			root := t.TempDir()
			e := open(t, root, Options{})
			d := &disk{room: int64(n), full: full}
			e.writer.open = d.file
			export(t, e, "a")
			export(t, e, "b")
			err := e.SpanExporter().ExportSpans(t.Context(), spansOf("c"))
			var l *LostError
			if !errors.As(err, &l) || l.Spans != 1 || !errors.Is(err, full) {
				t.Fatalf("export on a full disk: %v", err)
			}
			if err := e.ForceFlush(t.Context()); !errors.As(err, &l) || l.Spans != 1 || l.Records != 0 ||
				!errors.Is(err, full) {
				t.Fatalf("flush: %v", err)
			}
			if err := e.ForceFlush(t.Context()); err != nil {
				t.Fatalf("what was reported is reported again: %v", err)
			}
			d.room = -1
			export(t, e, "d")
			die(t, e)
			if names, damages := spooled(t, root); sorted(names) != "a b d" || len(damages) != 0 {
				t.Fatalf("%v, %d bytes: %q, %v", full, n, names, damages)
			}
		}
	}
}

// TestCannotBegin: a file that cannot be made is reported, and the next export makes another.
func TestCannotBegin(t *testing.T) {
	root := t.TempDir()
	e := open(t, root, Options{})
	d := &disk{room: -1, open: syscall.EMFILE}
	e.writer.open = d.file
	if err := e.SpanExporter().ExportSpans(t.Context(), spansOf("a")); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("no file: %v", err)
	}
	d.open = nil
	export(t, e, "b")
	if names, damages := spooled(t, root); sorted(names) != "b" || len(damages) != 0 {
		t.Errorf("spooled %q, %v", names, damages)
	}
	if s := e.Stats(); s.Lost.Spans != 1 || s.Spooled.Spans != 1 {
		t.Errorf("stats %+v", s)
	}
}

// TestSync syncs before each export returns; one that cannot be synced is not acknowledged, and not there.
func TestSync(t *testing.T) {
	root := t.TempDir()
	e := open(t, root, Options{})
	d := &disk{room: -1}
	e.writer.open = d.file
	export(t, e, "a")
	export(t, e, "b")
	if d.syncs != 2 {
		t.Errorf("%d syncs of 2 exports", d.syncs)
	}
	d.sync = syscall.EIO
	var l *LostError
	if err := e.SpanExporter().ExportSpans(t.Context(), spansOf("c")); !errors.As(err, &l) || l.Spans != 1 ||
		!errors.Is(err, syscall.EIO) {
		t.Errorf("export that is not synced: %v", err)
	}
	d.sync = nil
	export(t, e, "d")
	if names, damages := spooled(t, root); sorted(names) != "a b d" || len(damages) != 0 {
		t.Errorf("spooled %q, %v", names, damages)
	}
}

// TestPrivate: prompts are for nobody else.
func TestPrivate(t *testing.T) {
	root := filepath.Join(t.TempDir(), "state", "spool")
	e := open(t, root, Options{})
	export(t, e, "a")
	err := filepath.Walk(filepath.Dir(root), func(path string, info os.FileInfo, err error) error {
		if want := map[bool]os.FileMode{true: 0o700, false: 0o600}[info.IsDir()]; err != nil ||
			info.Mode().Perm() != want {
			t.Errorf("%s is %v, %v", path, info.Mode(), err)
		}
		return nil
	})
	testscale.Must(t, err)
}

// TestBound drops the oldest, of this process and of others, and reports how much.
func TestBound(t *testing.T) {
	root := t.TempDir()
	o := Options{MaxTotalBytes: 8000}
	dead := open(t, root, o)
	for _, name := range numbered("dead", 8) {
		export(t, dead, name)
	}
	die(t, dead)
	e := open(t, root, o)
	errorsSince()
	for _, name := range numbered("r", 60) {
		export(t, e, name)
		files, err := Files(root)
		testscale.Must(t, err)
		var size int64
		for _, path := range files {
			info, err := os.Stat(path)
			testscale.Must(t, err)
			size += info.Size()
		}
		if size > 8000 {
			t.Fatalf("the spool has %d bytes", size)
		}
	}
	names, damages := spooled(t, root)
	if len(damages) != 0 || strings.Contains(strings.Join(names, " "), "dead") {
		t.Errorf("%q, %v", names, damages)
	}
	kept := int64(len(names))
	if !slices.Contains(names, "r059") || kept < 10 {
		t.Errorf("the newest are not kept: %q", names)
	}
	s := e.Stats()
	if s.Dropped.Spans != 68-kept || s.Spooled.Spans != 60 {
		t.Errorf("%d of 68 are kept: %+v", kept, s)
	}
	const full = "is full at 8000 bytes: dropped the oldest"
	if errs := errorsSince(); len(errs) == 0 || !strings.Contains(errs[0].Error(), full) {
		t.Errorf("reported %v", errs)
	}
	var l *LostError
	if err := e.ForceFlush(t.Context()); !errors.As(err, &l) || l.Dropped.Spans != s.Dropped.Spans || l.Spans != 0 ||
		!strings.Contains(err.Error(), fmt.Sprintf("%d spans and 0 log records were dropped", s.Dropped.Spans)) {
		t.Errorf("flush: %v", err)
	}
	if err := e.ForceFlush(t.Context()); err != nil {
		t.Errorf("what was reported is reported again: %v", err)
	}
}
