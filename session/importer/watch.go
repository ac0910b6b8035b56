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
	f := follower{Watch: w, events: events, levels: make(map[string]int), changed: make(map[string]bool),
		ignored: make(map[string]bool)}
	f.quiet, f.least = cmp.Or(w.Quiet, 500*time.Millisecond), cmp.Or(w.Least, 2*time.Second)
	f.missing, f.rescan = cmp.Or(w.Missing, time.Minute), cmp.Or(w.Rescan, 15*time.Minute)
	if err := f.scan(ctx); err != nil {
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

// follower is a Watch that runs.
type follower struct {
	*Watch
	quiet, least, missing, rescan time.Duration

	events *fsnotify.Watcher
	// levels are those of the directories that are followed; roots are where they begin.
	levels map[string]int
	roots  []directory
	inputs map[string]Input // by absolute path
	// wholes are the inputs that are directories, or that have files beside them, by the paths
	// that they are read of.
	wholes map[string]Input
	// changed are the paths that changed since the last import, ignored those of no input.
	changed, ignored map[string]bool
	imported         time.Time     // when the last import began
	took             time.Duration // and how long it took
	full             bool          // whether events were lost, or the limit of the system is reached
}

// scan follows all directories and imports all inputs.
func (f *follower) scan(ctx context.Context) error {
	f.changed, f.full = make(map[string]bool), false
	clear(f.ignored)
	// Directories are followed before they are read, so that nothing is missed between.
	if err := f.look(); err != nil {
		return err
	}
	all := make([]Input, 0, len(f.inputs))
	for _, path := range slices.Sorted(maps.Keys(f.inputs)) {
		all = append(all, f.inputs[path])
	}
	f.imported = time.Now()
	if len(all) == 0 {
		return nil
	}
	return f.read(ctx, all)
}

// look looks for inputs, and follows their directories.
func (f *follower) look() error {
	roots, err := f.directories()
	if err != nil {
		return err
	}
	f.roots = roots
	f.followRoots()
	inputs, err := f.Watch.inputs()
	if err != nil {
		return err
	}
	f.inputs, f.wholes = make(map[string]Input, len(inputs)), make(map[string]Input)
	for _, in := range inputs {
		if errors.Is(in.Err, errOther) {
			continue
		}
		if in.Err != nil {
			f.Warn(in.Name + ": " + in.Err.Error())
			continue
		}
		path, err := filepath.Abs(in.path)
		if in.path == "" || err != nil {
			continue
		}
		in.found = true // what was deleted from the store does not come back by itself
		f.inputs[path] = in
		for _, read := range partsOfInput(in, path) {
			f.wholes[read] = in
			if in.format != nil {
				f.followTree(filepath.Dir(read), 0)
				f.followTree(read, anyLevel)
			}
		}
	}
	return nil
}

// partsOfInput lists what is read of an input besides the file at its path.
func partsOfInput(in Input, path string) []string {
	if in.format != nil && in.format.Beside != nil {
		return in.format.Beside(path)
	}
	if strings.HasSuffix(path, ".jsonl") || strings.HasSuffix(path, ".json") {
		return nil // what is beside one of them changes with it, or does not matter soon
	}
	return []string{path + "-wal", path + "-journal"}
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
			f.Warn(fmt.Sprintf("%s cannot be followed: %v; its files are looked for every %s", path, err, f.rescan))
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
		f.Warn(err.Error())
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
	wait := func() {
		// A file that grew is read as a whole: a large one is read less often, so that it takes a 20th of a processor.
		due.Reset(max(f.quiet, max(f.least, 20*f.took)-time.Since(f.imported)))
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case e := <-f.events.Events:
			if f.note(e) {
				wait()
			}
			continue
		case lost := <-f.events.Errors:
			if !errors.Is(lost, fsnotify.ErrEventOverflow) {
				f.Warn(lost.Error())
			}
			err = f.scan(ctx)
		case <-rescan.C:
			err = f.scan(ctx)
		case <-missing.C:
			before := len(f.levels)
			if f.followRoots(); len(f.levels) > before {
				err = f.scan(ctx)
			}
		case <-due.C:
			err = f.pass(ctx)
		}
		if errors.Is(err, store.ErrLocked) || errors.Is(err, store.ErrUnavailable) {
			f.Warn(err.Error() + "; what changed is imported later")
			f.imported, err = time.Now(), nil
			due.Reset(10 * f.least)
		}
		if err != nil {
			return err
		}
	}
}

// note notes an event, and reports whether something may have to be imported.
func (f *follower) note(e fsnotify.Event) bool {
	path := e.Name
	if e.Op == fsnotify.Chmod || f.ignored[path] || strings.HasSuffix(path, "-shm") {
		return false
	}
	if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
		delete(f.levels, path) // what is gone loses nothing
		return false
	}
	if _, known := f.inputs[path]; !known && e.Has(fsnotify.Create) {
		if levels, followed := f.levels[filepath.Dir(path)]; followed && levels > 0 {
			f.followTree(path, levels-1)
		}
	}
	f.changed[path] = true
	return true
}

// pass imports what changed since the last import.
func (f *follower) pass(ctx context.Context) error {
	inputs, unknown := f.affected()
	if len(unknown) > 0 {
		before := f.inputs
		if err := f.look(); err != nil {
			return err
		}
		for path, in := range f.inputs {
			if _, known := before[path]; !known {
				inputs[path] = in
			}
		}
		for _, path := range unknown {
			if info, err := os.Stat(path); f.inputs[path].path == "" && err == nil && !info.IsDir() {
				f.ignored[path] = true
			}
		}
	}
	f.imported = time.Now()
	if len(inputs) == 0 {
		clear(f.changed)
		return nil
	}
	var all []Input
	for _, path := range slices.Sorted(maps.Keys(inputs)) {
		in := inputs[path]
		if info, err := os.Stat(path); err == nil {
			in.info, in.Size = info, info.Size()
			all = append(all, in)
		}
	}
	err := f.read(ctx, all)
	f.took = time.Since(f.imported)
	if err == nil {
		clear(f.changed)
	}
	return err
}

// affected returns the inputs that changed, and the paths of no input that is known.
func (f *follower) affected() (inputs map[string]Input, unknown []string) {
	inputs = make(map[string]Input)
	for path := range f.changed {
		if in, known := f.inputs[path]; known {
			inputs[path] = in
			continue
		}
		found := false
		for at := path; !found && at != filepath.Dir(at); at = filepath.Dir(at) {
			var whole Input
			if whole, found = f.wholes[at]; found {
				if abs, err := filepath.Abs(whole.path); err == nil {
					inputs[abs] = whole
				}
			}
		}
		if !found {
			unknown = append(unknown, path)
		}
	}
	return inputs, unknown
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
