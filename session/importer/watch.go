package importer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// A Watch imports what is in directories, and then what changes there, as the system reports it. Nothing is looked at
// while nothing changes, except for directories that are not there yet.
type Watch struct {
	// Paths are files, and directories with all that is below them. Discover adds the usual places of known agents.
	Paths    []string
	Discover bool
	// Format is that of all files in Paths; nil detects it.
	Format *formats.Format
	// New returns an importer for all files, and then one for those that changed. Imported is called with what it
	// read, and may be nil. The first error of either ends the watch; a later one that wraps [store.ErrLocked] or
	// [store.ErrUnavailable] is a warning, and the files are read later.
	New      func() (*Importer, error)
	Imported func(*Summary) error
	// Lasting has the watch begin again after an error, and wait for paths that are not there.
	Lasting bool
	// Warn is called with a problem that does not end the watch.
	Warn func(text string)

	// Quiet is how long nothing has to change before what changed is read, and Least the time
	// between two imports. Missing is after how long directories that were missing are looked
	// for, Rescan after how long everything is. Where they are 0 they have their usual values.
	Quiet, Least, Missing, Rescan time.Duration
}

// directory is one that a [Watch] follows, with so many levels of directories below it.
type directory struct {
	path   string
	levels int
}

// anyLevel follows directories however deep they are.
const anyLevel = 32

// Run watches until ctx ends, and then returns nil.
func (w *Watch) Run(ctx context.Context) error {
	for {
		err := w.run(ctx)
		if ctx.Err() != nil || err == nil {
			return nil
		}
		if !w.Lasting {
			return err
		}
		again := cmp.Or(w.Missing, time.Minute)
		w.Warn(fmt.Sprintf("nothing is imported for %v: %v", again, err))
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}

func (w *Watch) run(ctx context.Context) error {
	events, err := fsnotify.NewBufferedWatcher(4096)
	if err != nil {
		return fmt.Errorf("watch directories: %w", err)
	}
	defer events.Close()
	f := follower{Watch: w, events: events, levels: make(map[string]int), stamps: make(map[string]string),
		warned: make(map[string]bool)}
	f.quiet, f.least = cmp.Or(w.Quiet, 500*time.Millisecond), cmp.Or(w.Least, 2*time.Second)
	f.missing, f.rescan = cmp.Or(w.Missing, time.Minute), cmp.Or(w.Rescan, 15*time.Minute)
	if err := f.pass(ctx); err != nil {
		return err
	}
	return f.follow(ctx)
}

// read imports inputs.
func (w *Watch) read(ctx context.Context, inputs []Input) (err error) {
	im, err := w.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, im.Close()) }()
	failed, err := im.Run(ctx, inputs)
	if failed != nil && len(inputs) == 1 { // of several, each was reported
		w.Warn(failed.Error())
	}
	if w.Imported == nil {
		return err
	}
	return errors.Join(err, w.Imported(&im.Summary))
}

// directories returns those to follow.
func (w *Watch) directories() (all []directory, _ error) {
	for _, name := range w.Paths {
		path, err := filepath.Abs(name)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(path)
		switch {
		case err != nil && !w.Lasting:
			return nil, err
		case err != nil || info.IsDir(): // what is not there may come
			all = append(all, directory{path, anyLevel})
		case !info.Mode().IsRegular():
			return nil, fmt.Errorf("watch %s: %w", name, codec.CheckFile(info))
		default:
			all = append(all, directory{filepath.Dir(path), 0})
		}
	}
	if !w.Discover {
		return all, nil
	}
	places, err := Discover()
	return append(all, directoriesOf(places)...), err
}

// inputs returns what is in the directories.
func (w *Watch) inputs() ([]Input, error) {
	all := Inputs(w.Paths, nil, w.Format)
	if w.Lasting {
		all = slices.DeleteFunc(all, func(in Input) bool { return in.Err != nil && slices.Contains(w.Paths, in.Name) })
	}
	if !w.Discover {
		return all, nil
	}
	places, err := Discover()
	return append(all, InputsOf(places)...), err
}

// follower is a Watch that runs. An event only shows that something changed: then all inputs are looked for, and those
// are imported of which the system reports something else than before.
type follower struct {
	*Watch
	quiet, least, missing, rescan time.Duration

	events *fsnotify.Watcher
	// levels are those of the directories that are followed; roots are where they begin.
	levels map[string]int
	roots  []directory
	// stamps are what the system reported of the inputs when they were imported, by absolute path.
	stamps   map[string]string
	warned   map[string]bool // of what cannot be read, by text
	imported time.Time       // when the last import began
	took     time.Duration   // and how long it took
	full     bool            // whether the limit of the system is reached
}

// pass imports the inputs that changed since the last import: at first, all of them.
func (f *follower) pass(ctx context.Context) error {
	f.imported = time.Now()
	defer func() { f.took = time.Since(f.imported) }()
	inputs, err := f.look()
	if err != nil {
		return err
	}
	var changed []Input
	stamps := make(map[string]string)
	for _, path := range slices.Sorted(maps.Keys(inputs)) {
		in := inputs[path]
		// Before it is read: what changes meanwhile is read next time.
		if now := stampOf(in, path); now != f.stamps[path] {
			stamps[path] = now
			changed = append(changed, in)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	if err := f.read(ctx, changed); err != nil {
		return err
	}
	maps.Copy(f.stamps, stamps)
	return nil
}

// stampOf returns a digest of what the system reports of an input: of a file with the log beside it that a database has,
// of a directory with all that is read of it. What is beside a file of another kind changes with it, or does not matter
// soon.
func stampOf(in Input, path string) string {
	if in.format != nil {
		digest, known := beside(in.format, path)
		if !known {
			return time.Now().String() // the importer finds out
		}
		return "directory " + digest
	}
	h := sha256.New()
	for _, part := range []string{path, path + "-wal", path + "-journal"} {
		if err := noteFile(h, part); err != nil {
			fmt.Fprintln(h, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// look looks for inputs, by absolute path, and follows their directories. These are followed before they are read, so
// that nothing is missed between.
func (f *follower) look() (map[string]Input, error) {
	roots, err := f.directories()
	if err != nil {
		return nil, err
	}
	f.roots, f.full = roots, false
	f.followRoots()
	inputs, err := f.inputs()
	if err != nil {
		return nil, err
	}
	all := make(map[string]Input, len(inputs))
	for _, in := range inputs {
		if errors.Is(in.Err, errOther) {
			continue
		}
		if in.Err != nil {
			f.warnOnce(in.Name + ": " + in.Err.Error())
			continue
		}
		path, err := filepath.Abs(in.path)
		if in.path == "" || err != nil {
			continue
		}
		in.found = true // what was deleted from the store does not come back by itself
		all[path] = in
		if in.format != nil && in.format.Beside != nil {
			for _, read := range in.format.Beside(path) {
				f.followTree(filepath.Dir(read), 0)
				f.followTree(read, anyLevel)
			}
		}
	}
	return all, nil
}

func (f *follower) warnOnce(text string) {
	if !f.warned[text] {
		f.warned[text] = true
		f.Warn(text)
	}
}

func (f *follower) followRoots() {
	for _, d := range f.roots {
		f.followTree(d.path, d.levels)
	}
}

// followTree follows a directory and as many levels below it. One that is not there is looked for
// again.
func (f *follower) followTree(path string, levels int) {
	if have, known := f.levels[path]; known && have >= levels {
		return
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return
	}
	if err := f.events.Add(path); err != nil {
		if !f.full {
			f.warnOnce(fmt.Sprintf("%s cannot be followed: %v; its files are looked for every %s", path, err, f.rescan))
		}
		f.full = true
		return
	}
	f.levels[path] = levels
	if levels == 0 {
		return
	}
	entries, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.warnOnce(err.Error())
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			f.followTree(filepath.Join(path, e.Name()), levels-1)
		}
	}
}

// follow imports what changes.
func (f *follower) follow(ctx context.Context) error {
	missing, rescan := time.NewTicker(f.missing), time.NewTicker(f.rescan)
	defer missing.Stop()
	defer rescan.Stop()
	due := time.NewTimer(time.Hour)
	due.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-f.events.Events:
			if f.note(e) {
				// A file that grew is read as a whole: a large one is read less often, so that it takes a 20th of a processor.
				due.Reset(max(f.quiet, max(f.least, 20*f.took)-time.Since(f.imported)))
			}
			continue
		case lost := <-f.events.Errors:
			if !errors.Is(lost, fsnotify.ErrEventOverflow) {
				f.Warn(lost.Error())
			}
		case <-rescan.C:
		case <-missing.C:
			before := len(f.levels)
			if f.followRoots(); len(f.levels) == before {
				continue
			}
		case <-due.C:
		}
		err := f.pass(ctx)
		if errors.Is(err, store.ErrLocked) || errors.Is(err, store.ErrUnavailable) {
			f.Warn(err.Error() + "; what changed is imported later")
			due.Reset(10 * f.least)
		} else if err != nil {
			return err
		}
	}
}

// note notes an event, and reports whether something may have to be imported.
func (f *follower) note(e fsnotify.Event) bool {
	if e.Op == fsnotify.Chmod || strings.HasSuffix(e.Name, "-shm") {
		return false
	}
	if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
		delete(f.levels, e.Name) // what is gone loses nothing
		return false
	}
	if levels := f.levels[filepath.Dir(e.Name)]; levels > 0 && e.Has(fsnotify.Create) {
		f.followTree(e.Name, levels-1)
	}
	return true
}

// directoriesOf returns those in which files of the places are, or will be.
func directoriesOf(all []Place) (found []directory) {
	for i := range all {
		p := &all[i]
		for _, pattern := range p.patterns {
			fixed, rest, _ := strings.Cut(pattern, "*")
			dir := path.Dir(fixed + "name")
			if abs, err := filepath.Abs(filepath.Join(p.Path, filepath.FromSlash(dir))); err == nil {
				found = append(found, directory{abs, strings.Count(rest, "/")})
			}
		}
	}
	return found
}
