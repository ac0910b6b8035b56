package importer

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed" // of the places
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

// The store remembers each file that was imported, see [store.ImportSource]. A file of which the
// system reports the same as then is not opened again. What depends on more than the file is in
// the Reading of a source, and in what was read beside it.

// readersVersion is part of the Reading of every source. It is to be raised when readers make
// something else of the same file.
const readersVersion = 1

// report is what a source's Report has: the tally without the names of the file and the sessions.
type report struct {
	Tally
	Whole bool `json:"whole,omitempty"`
	// Items are the messages, parts and decisions in the file.
	Items int `json:"items"`
}

// reading returns the Reading of a source of the format. A file of no format may be of one that a
// later version of the program knows.
func (im *Importer) reading(format string) string {
	o := &im.options
	text := fmt.Sprint(readersVersion, o.KeepSecrets, o.Invalid)
	if o.Format != nil {
		text += " format " + o.Format.Name
	}
	if format == "" {
		for i := range formats.All {
			text += " " + formats.All[i].Name
		}
	}
	return text
}

// recall reads what the store remembers of files below the directory that all inputs are in. It makes no store.
func (im *Importer) recall(ctx context.Context, inputs []Input) error {
	var paths []string
	for i := range inputs {
		if path, err := filepath.Abs(inputs[i].path); err == nil && inputs[i].path != "" {
			paths = append(paths, path)
		}
	}
	info, err := os.Stat(im.path)
	if im.options.Again || len(paths) == 0 || stores.IsFile(im.path) && (err != nil || info.Size() == 0) {
		return nil
	}
	if err := im.open(ctx); err != nil {
		return err
	}
	prefix := paths[0]
	for _, path := range paths[1:] {
		for !strings.HasPrefix(path, prefix) {
			prefix = prefix[:len(prefix)-1]
		}
	}
	all, err := im.store.ImportSources(ctx, prefix)
	if err != nil {
		return storeError{err}
	}
	im.sources = make(map[string]*store.ImportSource, len(all))
	for i := range all {
		im.sources[all[i].Path] = &all[i]
	}
	return nil
}

// source returns what the system reports of an input that is to be read, so that what changes meanwhile is read next
// time; nil where the input cannot be read again, such as a pipe.
func (im *Importer) source(in Input) *store.ImportSource {
	path, err := filepath.Abs(in.path)
	info, failed := os.Stat(in.path)
	if in.path == "" || cmp.Or(err, failed) != nil {
		return nil
	}
	s := &store.ImportSource{Path: path}
	if in.format == nil {
		s.Size, s.ModifiedNano = info.Size(), info.ModTime().UnixNano()
		s.Device, s.Inode = identity(info)
	}
	return s
}

// unchanged returns what is remembered of an input of which the system reports the same as
// then; nil if there is nothing. An input that the user names is another if the store lacks a session of it.
func (im *Importer) unchanged(in Input, now *store.ImportSource) *store.ImportSource {
	was := im.sources[now.Path]
	if was == nil || was.Reading != im.reading(was.Format) || was.Device != now.Device || was.Inode != now.Inode ||
		was.Size != now.Size || was.ModifiedNano != now.ModifiedNano {
		return nil
	}
	f := formats.Named(was.Format, nil)
	if f == nil && (was.Format != "" || !in.found) || in.format != nil && in.format != f {
		return nil
	}
	if digest, known := beside(f, now.Path); !known || digest != was.Beside {
		return nil
	}
	if !in.found && len(was.Deleted) > 0 {
		return nil
	}
	if _, err := reportOf(was); err != nil {
		return nil // it was written by another version
	}
	return was
}

// beside returns a digest of what the system reports of the files that the format reads of an
// input besides the file at path; false where nobody knows which.
func beside(f *formats.Format, path string) (digest string, known bool) {
	if f == nil || f.Beside == nil {
		return "", f == nil || f.ReadPath == nil
	}
	return digestOf(f.Beside(path)...)
}

// digestOf returns a digest of what the system reports of files, and of those below directories; false where they
// cannot be read.
func digestOf(roots ...string) (digest string, known bool) {
	h := sha256.New()
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || strings.HasSuffix(path, "-shm") { // which readers write to
				return err
			}
			info, err := os.Stat(path)
			switch {
			case errors.Is(err, fs.ErrNotExist): // gone meanwhile, or a link to nothing
				return nil
			case err == nil && info.Size() > 0: // a log that SQLite creates for a reader is empty
				device, inode := identity(info)
				fmt.Fprintf(h, "%q %d %d %d %d\n", path, device, inode, info.Size(), info.ModTime().UnixNano())
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", false
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), true
}

func reportOf(was *store.ImportSource) (r report, err error) {
	if err = json.Unmarshal([]byte(was.Report), &r); err != nil {
		err = fmt.Errorf("read what is remembered of %s: %w; import it with --again", was.Path, err)
	}
	return r, err
}

// repeat states of an input that was not read what is remembered of it.
func (im *Importer) repeat(was *store.ImportSource, t *Tally) error {
	r, err := reportOf(was)
	if err != nil {
		return err
	}
	file, in := t.File, t.input
	*t = r.Tally
	t.File, t.input, t.Whole, t.Same = file, in, r.Whole, true
	t.Unchanged, t.Added, t.Messages, t.Parts, t.Rows = r.Items, 0, 0, 0, 0
	t.Deleted = len(was.Deleted)
	for _, id := range was.Sessions {
		if !slices.Contains(was.Deleted, id) {
			t.addSession(id)
		}
	}
	if len(t.Sessions) == 0 {
		t.Unchanged = 0 // the store has nothing of it
	}
	if t.Format == "" && t.Error != "" {
		t.Error = ""
		return errOther
	}
	for _, what := range t.Damages {
		im.warnf("%s: %s", t.File, what)
	}
	if t.Damaged > maxNamed {
		im.warnf("%s: more that is damaged is only counted", t.File)
	}
	for _, problem := range t.Problems {
		im.warnf("%s: malformed %s", t.File, problem)
	}
	return nil
}

// remembered is an input that was read, and what was made of it.
type remembered struct {
	source *store.ImportSource
	tally  *Tally
}

// maxLater is how many inputs are remembered together.
const maxLater = 100

// rememberAll has the store remember the inputs that were read, after it has stored what was in them: a crash between
// has them read again.
func (im *Importer) rememberAll(ctx context.Context) error {
	failed := im.flush(ctx)
	if failed == nil && len(im.unlinked) > 0 {
		failed = im.linkForks(ctx)
	}
	var all []*store.ImportSource
	for _, r := range im.later {
		if im.store != nil && !r.tally.lost && im.complete(ctx, r.source, r.tally) {
			all = append(all, r.source)
		}
	}
	if len(all) > 0 {
		if err := im.store.RecordSources(ctx, all...); ctx.Err() != nil {
			return cmp.Or(failed, ctx.Err()) // Close has them remembered
		} else if err != nil {
			failed = cmp.Or(failed, error(storeError{err}))
		}
	}
	im.later = nil
	return failed
}

// complete completes what is to be remembered of an input with what was made of it, and reports
// whether it is to be remembered.
func (im *Importer) complete(ctx context.Context, s *store.ImportSource, t *Tally) bool {
	digest, known := beside(formats.Named(t.Format, nil), s.Path)
	if !known || s.Beside != digest || im.isStore(s.Path) {
		return false
	}
	r := report{Tally: *t, Whole: t.Whole, Items: t.items}
	r.File, r.Sessions = "", nil
	text, err := json.Marshal(&r)
	s.Format, s.Reading, s.Beside, s.Report = t.Format, im.reading(t.Format), digest, string(text)
	s.ReadTo = cmp.Or(s.ReadTo, s.Size)
	s.Sessions = slices.Clone(t.deleted)
	for id := range t.Sessions {
		// A session that telemetry was first attributed to may be gone: its trace moved to another one. If it were
		// remembered, it would count as deleted by the user, and the file would never be the same again.
		if !t.Whole {
			if _, err := im.store.Session(ctx, id); errors.Is(err, store.ErrNotFound) {
				continue
			}
		}
		s.Sessions = append(s.Sessions, id)
	}
	slices.Sort(s.Sessions)
	if err == nil && t.versions != nil {
		s.State, err = json.Marshal(t.versions.now)
	}
	ingest.RedactSource(im.sessionRedactor, s)
	return err == nil
}

// versions are those of the sessions of a database: of one that changed, the sessions are read that did. They are the
// state of its source.
type versions struct {
	was, now map[string]sessionVersion
	t        *Tally
	// deleted are the sessions that the store lacks; they are read again if the database was named.
	deleted []string
	named   bool
	// reading is the session that is being read.
	reading string
}

// sessionVersion is a version of a session, with the number of its messages, parts and decisions.
type sessionVersion struct {
	Version string `json:"version"`
	Items   int    `json:"items"`
}

// versionsOf returns the versions of the sessions of an input, with those that it had when it was read before.
func (im *Importer) versionsOf(ctx context.Context, in Input, now *store.ImportSource, t *Tally) (*versions, error) {
	v := &versions{now: make(map[string]sessionVersion), t: t, named: !in.found}
	was := im.sources[now.Path]
	if was == nil || was.Format != t.Format || was.Reading != im.reading(was.Format) {
		return v, nil
	}
	whole, err := found(im.store.ImportSource(ctx, now.Path))
	if json.Unmarshal(whole.State, &v.was) != nil {
		v.was = nil
		return v, err // all is read
	}
	v.deleted = whole.Deleted
	return v, err
}

// wanted implements [codec.Wanted].
func (v *versions) wanted(id, version string) bool {
	v.reading = id
	was, known := v.was[id]
	deleted := slices.Contains(v.deleted, id)
	if !known || was.Version != version || deleted && v.named {
		v.now[id] = sessionVersion{Version: version}
		return true
	}
	v.now[id] = was
	if deleted {
		v.t.Deleted++
		v.t.deleted = append(v.t.deleted, id)
		return false
	}
	v.t.addSession(id)
	v.t.items += was.Items
	v.t.Unchanged += was.Items
	return false
}

// has notes how much there is in a session that was read.
func (v *versions) has(id string, items int) {
	if v == nil {
		return
	}
	if s, ok := v.now[id]; ok {
		s.Items = items
		v.now[id] = s
	}
}

// forget has a session read again next time.
func (v *versions) forget(id string) {
	if v != nil {
		delete(v.now, id)
	}
}

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
	row, err := found(im.store.Session(ctx, id))
	if err != nil || row.ID == "" || store.FromTelemetry(&row) || isFork(&row) || isFork(&s.Session) {
		return false, err
	}
	parent, err := found(im.store.Session(ctx, session.Deref(row.ParentID)))
	return !store.FromTelemetry(&parent), err
}

// Place is where a program usually keeps its sessions, and what was found there.
type Place struct {
	Program string `json:"program"`
	Path    string `json:"path"`
	// Files are the files and directories to import.
	Files []string `json:"files"`
	// Error is the reason why not all of the place can be read.
	Error string `json:"error,omitempty"`

	patterns []string
}

// Discover looks for the sessions of known agents in their usual places. It returns all
// places; one without sessions has no files.
func Discover() ([]Place, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("find the usual places: %w", err)
	}
	var all []Place
	seen := make(map[string]bool)
	for _, p := range places() {
		for _, root := range p.roots(home) {
			found := p.find(root)
			found.Files = slices.DeleteFunc(found.Files, func(file string) bool {
				was := seen[file]
				seen[file] = true
				return was
			})
			all = append(all, found)
		}
	}
	return all, nil
}

func (p *usualPlace) find(root string) Place {
	found := Place{Program: p.Program, Path: root, patterns: p.Patterns, Files: []string{}}
	_, failed := glob(root, "")
	for _, pattern := range p.Patterns {
		files, err := glob(root, pattern)
		found.Files, failed = append(found.Files, files...), cmp.Or(failed, err)
	}
	if failed != nil {
		found.Error = failed.Error()
	}
	if name := os.Getenv(p.File); p.File != "" && name != "" {
		if !filepath.IsAbs(name) {
			name = filepath.Join(root, name)
		}
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			found.Files = append(found.Files, name)
		}
	}
	return found
}

// glob is [filepath.Glob] below a directory, with the first error of one that is there and cannot be read.
func glob(dir, pattern string) (files []string, failed error) {
	first, rest, deeper := strings.Cut(pattern, "/")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return nil, err
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if ok, _ := path.Match(first, e.Name()); ok && deeper { // the patterns are right
			more, err := glob(name, rest)
			files, failed = append(files, more...), cmp.Or(failed, err)
		} else if ok {
			files = append(files, name)
		}
	}
	return files, failed
}

// InputsOf returns the files and directories of the places.
func InputsOf(all []Place) []Input {
	var inputs []Input
	for _, p := range all {
		if p.Error != "" {
			inputs = append(inputs, Input{Name: p.Path, Err: errors.New(p.Error)})
		}
		for _, file := range p.Files {
			info, err := os.Stat(file)
			switch {
			case err != nil: // gone meanwhile
			case info.IsDir():
				if format := formats.OfDirectory(file); format != nil {
					inputs = append(inputs, Input{Name: file, path: file, format: format, found: true})
				}
			default:
				inputs = append(inputs, fileInput(file, info, true))
			}
		}
	}
	return inputs
}

// usualPlace is a directory below which a program keeps its sessions.
type usualPlace struct {
	Program string
	// Variable is that of the environment that names another directory, of which the place is the one at Below.
	Variable, Below string
	// Home is the place in the user's home, "" for one that only the variable names. MacOS and Windows are set where
	// the place is another there; they may begin with a directory of Windows, such as %APPDATA%.
	Home, MacOS, Windows string
	// Patterns are those of what to import. One that begins with EDITOR stands for one of each of the editors.
	Patterns []string
	// File is the variable that names a file that is elsewhere.
	File string
	// List is a JSON file in the place, with the key of an array and that in each of its objects, which names a place of
	// a project.
	List string
	// Project is a place below the working directory, or below one above it in the same repository.
	Project string
}

// editors are the directories of VS Code, and of what is made of it.
var editors = []string{"Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf"}

//go:embed places.json
var placesJSON []byte

var places = sync.OnceValue(func() (all []usualPlace) {
	if err := json.Unmarshal(placesJSON, &all); err != nil {
		panic(err) // a mistake in the file
	}
	for i := range all {
		var patterns []string
		for _, pattern := range all[i].Patterns {
			rest, inEditors := strings.CutPrefix(pattern, "EDITOR/")
			if !inEditors {
				patterns = append(patterns, pattern)
				continue
			}
			for _, editor := range editors {
				patterns = append(patterns, editor+"/User/"+rest)
			}
		}
		all[i].Patterns = patterns
	}
	return all
})

// roots are the place of the user, those that it lists, and that of the project in the working directory.
func (p *usualPlace) roots(home string) (all []string) {
	root := p.root(runtime.GOOS, home, os.Getenv)
	if root != "" {
		all = append(all, root)
	}
	if keys := strings.Fields(p.List); root != "" && len(keys) == 3 {
		var list map[string]json.RawMessage
		var projects []map[string]any
		text, _ := os.ReadFile(filepath.Join(root, keys[0])) // one that is missing or damaged lists nothing
		_ = json.Unmarshal(text, &list)
		_ = json.Unmarshal(list[keys[1]], &projects)
		for _, project := range projects {
			if dir, _ := project[keys[2]].(string); filepath.IsAbs(dir) && !slices.Contains(all, filepath.Clean(dir)) {
				all = append(all, filepath.Clean(dir))
			}
		}
	}
	if dir := p.projectRoot(); dir != "" && !slices.Contains(all, dir) {
		all = append(all, dir)
	}
	return all
}

// projectRoot is the place of the project, which need not be there; "" for programs that keep nothing in projects.
func (p *usualPlace) projectRoot() string {
	working, err := os.Getwd()
	if p.Project == "" || err != nil {
		return ""
	}
	has := func(dir, name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	for dir := working; ; dir = filepath.Dir(dir) {
		place := filepath.Join(dir, filepath.FromSlash(p.Project))
		if slices.ContainsFunc(p.Patterns, func(pattern string) bool { return has(place, pattern) }) {
			return place
		}
		if has(dir, ".git") || dir == filepath.Dir(dir) {
			return filepath.Join(working, filepath.FromSlash(p.Project))
		}
	}
}

// root is where the place is on an operating system, for a user's home; "" if it is nowhere.
func (p *usualPlace) root(system, home string, env func(string) string) string {
	path := map[string]string{"darwin": p.MacOS, "windows": p.Windows}[system]
	// The directories of XDG are of systems that have no others.
	if dir := env(p.Variable); dir != "" && (path == "" || !strings.HasPrefix(p.Variable, "XDG_")) {
		return filepath.Join(dir, filepath.FromSlash(p.Below))
	}
	if path = cmp.Or(path, p.Home); path == "" {
		return ""
	}
	for variable, usual := range map[string]string{"APPDATA": "AppData/Roaming", "LOCALAPPDATA": "AppData/Local"} {
		if rest, ok := strings.CutPrefix(path, "%"+variable+"%"); ok {
			dir := cmp.Or(env(variable), filepath.Join(home, filepath.FromSlash(usual)))
			return filepath.Join(dir, filepath.FromSlash(rest))
		}
	}
	return filepath.Join(home, filepath.FromSlash(path))
}
