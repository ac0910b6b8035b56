package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/store"
)

// A Watch imports what is in directories, and then what changes there, as the system reports it. Once a minute it looks
// by itself: for directories that were not there, or are on other machines, and for what the system did not report.
type Watch struct {
	// Paths are files, and directories with all that is below them. Discover adds the usual places of known agents.
	Paths    []string
	Discover bool
	// Format is that of all files in Paths; nil detects it.
	Format *formats.Format
	// New returns an importer for all files, and then one for those that changed. Imported is called with what it
	// read, and may be nil. The first error of either ends the watch, unless it is Lasting; a later one that wraps
	// [store.ErrLocked] or [store.ErrUnavailable] is a warning, and the files are read later.
	New      func() (*Importer, error)
	Imported func(*Summary) error
	// Lasting has the watch begin again after an error, and wait for paths that are not there.
	Lasting bool
	// Warn is called with a problem that does not end the watch.
	Warn func(text string)
	// Quiet is how long nothing has to change before what changed is read, by default half a second. Between two
	// imports are four times as much, or twenty times as long as the last one took: a file that grew is read as a whole.
	Quiet time.Duration

	events *fsnotify.Watcher
	// stamps are what the system reported of the inputs when they were imported, by absolute path, and warned has
	// what cannot be read, by text.
	stamps map[string]string
	warned map[string]bool
}

// Run watches until ctx ends, and then returns nil.
func (w *Watch) Run(ctx context.Context) error {
	w.Quiet = cmp.Or(w.Quiet, 500*time.Millisecond)
	for again := 120 * w.Quiet; ; {
		err := w.run(ctx, again)
		if ctx.Err() != nil || err == nil {
			return nil
		}
		if !w.Lasting {
			return err
		}
		w.Warn(fmt.Sprintf("nothing is imported for %v: %v", again, err))
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}

func (w *Watch) run(ctx context.Context, rescan time.Duration) (err error) {
	if w.events, err = fsnotify.NewBufferedWatcher(4096); err != nil {
		return fmt.Errorf("watch directories: %w", err)
	}
	defer w.events.Close()
	w.stamps, w.warned = make(map[string]string), make(map[string]bool)
	look := time.NewTicker(rescan)
	defer look.Stop()
	due := time.NewTimer(0)
	defer due.Stop()
	var begun time.Time // when the last import began, and how long it took
	var took time.Duration
	for first := true; ; {
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.events.Events:
			if e.Op != fsnotify.Chmod && !strings.HasSuffix(e.Name, "-shm") && !e.Has(fsnotify.Remove|fsnotify.Rename) {
				due.Reset(max(w.Quiet, max(4*w.Quiet, 20*took)-time.Since(begun)))
			}
			continue
		case lost := <-w.events.Errors:
			if !errors.Is(lost, fsnotify.ErrEventOverflow) {
				w.Warn(lost.Error())
			}
		case <-look.C:
		case <-due.C:
		}
		begun = time.Now()
		err := w.pass(ctx)
		took = time.Since(begun)
		if (!first || w.Lasting) && (errors.Is(err, store.ErrLocked) || errors.Is(err, store.ErrUnavailable)) {
			w.Warn(err.Error() + "; what changed is imported later")
			due.Reset(40 * w.Quiet)
		} else if err != nil {
			return err
		}
		first = false
	}
}

// pass imports the inputs that changed since the last import: at first, all of them.
func (w *Watch) pass(ctx context.Context) error {
	inputs, err := w.inputs()
	if err != nil {
		return err
	}
	var changed []Input
	stamps := make(map[string]string)
	for _, path := range slices.Sorted(maps.Keys(inputs)) {
		// Before it is read: what changes meanwhile is read next time.
		if now := stampOf(inputs[path], path); now != w.stamps[path] {
			stamps[path] = now
			changed = append(changed, inputs[path])
		}
	}
	if len(changed) == 0 {
		return nil
	}
	im, err := w.New()
	if err != nil {
		return err
	}
	failed, err := im.Run(ctx, changed)
	if failed != nil && len(changed) == 1 { // of several, each was reported
		w.Warn(failed.Error())
	}
	if w.Imported != nil {
		err = errors.Join(err, w.Imported(&im.Summary))
	}
	if err = errors.Join(err, im.Close()); err == nil {
		maps.Copy(w.stamps, stamps)
	}
	return err
}

// inputs returns what is there, by absolute path. Directories are followed before they are read, so that nothing is
// missed between.
func (w *Watch) inputs() (map[string]Input, error) {
	for _, name := range w.Paths {
		if err := w.followPath(name); err != nil {
			return nil, err
		}
	}
	var places []Place
	if w.Discover {
		var err error
		if places, err = Discover(); err != nil {
			return nil, err
		}
	}
	for i := range places {
		for _, pattern := range places[i].patterns {
			fixed, rest, _ := strings.Cut(pattern, "*")
			dir := path.Dir(fixed + "name")
			w.follow(filepath.Join(places[i].Path, filepath.FromSlash(dir)), strings.Count(rest, "/"))
		}
	}
	all := make(map[string]Input)
	for _, in := range append(Inputs(w.Paths, nil, w.Format), InputsOf(places)...) {
		path, err := filepath.Abs(in.path)
		switch {
		case errors.Is(in.Err, errOther) || in.Err != nil && w.Lasting && slices.Contains(w.Paths, in.Name):
		case in.Err != nil:
			w.warnOnce(in.Name + ": " + in.Err.Error())
		case in.path != "" && err == nil:
			in.found = true // what was deleted from the store does not come back by itself
			all[path] = in
			if in.format == nil || in.format.Beside == nil {
				continue
			}
			for _, read := range in.format.Beside(path) {
				w.follow(filepath.Dir(read), 0)
				w.follow(read, anyLevel)
			}
		}
	}
	return all, nil
}

func (w *Watch) warnOnce(text string) {
	if !w.warned[text] {
		w.warned[text] = true
		w.Warn(text)
	}
}

// anyLevel follows directories however deep they are.
const anyLevel = 32

// followPath follows a directory, or that of a file.
func (w *Watch) followPath(name string) error {
	path, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	switch {
	case err != nil && !w.Lasting:
		return err
	case err != nil || info.IsDir(): // what is not there may come
		w.follow(path, anyLevel)
	case !info.Mode().IsRegular():
		return fmt.Errorf("watch %s: %w", name, codec.CheckFile(info))
	default:
		w.follow(filepath.Dir(path), 0)
	}
	return nil
}

// follow has the system report what changes in a directory, and in as many levels below it.
func (w *Watch) follow(dir string, levels int) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return
	}
	if err := w.events.Add(dir); err != nil {
		w.warnOnce(fmt.Sprintf("directories cannot be followed: %v; their files are looked for every minute", err))
		return
	}
	if levels == 0 {
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.warnOnce(err.Error())
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			w.follow(filepath.Join(dir, e.Name()), levels-1)
		}
	}
}

// stampOf returns a digest of what the system reports of an input: of a file with the log beside it that a database
// has, of a directory with all that is read of it. What is beside a file of another kind changes with it, or does not
// matter soon.
func stampOf(in Input, path string) string {
	digest, known := digestOf(path, path+"-wal", path+"-journal")
	if in.format != nil {
		digest, known = beside(in.format, path)
	}
	if !known {
		return time.Now().String() // the importer finds out
	}
	return digest
}
