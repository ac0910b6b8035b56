package agentdbg

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Decode reads what is in one stream: an events.jsonl, a run.json, or files
// of "agentdbg export", one or more. Events of several runs are sorted out by
// their run_id. The whole stream is held in memory.
//
// Each run is yielded as a session that passes [session.Check]; the caller owns
// it. The sequence can be ranged over once. What cannot be read is reported and
// left out; report may be nil. An error is yielded, last and with a nil session,
// when reading fails or nothing in the stream is of AgentDbg.
func Decode(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return rows.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		return decode(r, report, yield)
	})
}

func decode(r io.Reader, report func(codec.Problem), yield func(*codec.Session) bool) error {
	d := decoder{report: report}
	data, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read run: %w", err)
	}
	runs, err := d.stream(data)
	for i, r := range runs {
		runs[i] = nil // it may be large, and a session is made of it
		if !yield(d.session(r)) {
			break
		}
	}
	return err
}

// DecodeFile reads the runs in path: a data directory (~/.agentdbg, ~/.maida), one
// that holds .agentdbg or .maida, a directory of runs, a run's directory, one of
// its two files, which stands for both, or a file that [Decode] reads. Runs come
// in the order of their names.
//
// A run without run.json, or without events.jsonl, is read as far as it goes. An
// error is yielded when there is no run in path.
func DecodeFile(path string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return rows.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("read runs: %w", err)
		}
		if !info.IsDir() && !slices.Contains(files[:], filepath.Base(path)) {
			f, err := os.Open(path)
			if err != nil {
				return fmt.Errorf("read runs: %w", err)
			}
			defer f.Close()
			if err := decode(f, report, yield); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			return nil
		}
		root := path
		if !info.IsDir() {
			root = filepath.Dir(path)
		}
		found := false
		for _, dir := range runDirs(root) {
			name, err := filepath.Rel(root, dir)
			if err != nil || name == "." {
				name = ""
			}
			d := decoder{report: report, dir: name}
			r, err := d.directory(dir)
			if err != nil {
				d.problem(0, "", err.Error()+": the run was left out")
				continue
			}
			found = true
			if !yield(d.session(r)) {
				break
			}
		}
		if !found {
			const text = "%s: no run in it: want a directory with %s and %s, or %s and %s, or one of such directories"
			return fmt.Errorf(text, path, runFile, eventsFile, metaFile, spansFile)
		}
		return nil
	})
}

// runDirs returns the directories of runs in root.
func runDirs(root string) []string {
	if isRun(root, files[:]) {
		return []string{root}
	}
	var dirs []string
	for _, sub := range []string{"runs", ".agentdbg/runs", ".maida/runs", "."} {
		entries, err := os.ReadDir(filepath.Join(root, sub))
		if err != nil {
			continue // not there, which is what is asked
		}
		for _, e := range entries {
			if dir := filepath.Join(root, sub, e.Name()); isRun(dir, files[:]) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// files are those of a run, of AgentDbg and of Maida.
var files = [...]string{runFile, eventsFile, metaFile, spansFile}

func isRun(dir string, files []string) bool {
	for _, name := range files {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

type decoder struct {
	report func(codec.Problem)
	dir    string // of the run within the input
	file   string // with the events in it
}

// problem reports. file may be empty, within the run's directory.
func (d *decoder) problem(line int, file, reason string) {
	if d.dir != "" || file != "" {
		file = filepath.ToSlash(filepath.Join(d.dir, file))
	}
	d.report(codec.Problem{File: file, Line: line, Reason: reason})
}

func (d *decoder) directory(dir string) (*run, error) {
	r := &run{}
	runFile, eventsFile := runFile, eventsFile
	if isRun(dir, files[2:]) {
		runFile, eventsFile = metaFile, spansFile
	}
	d.file = eventsFile
	text, err := codec.ReadFile(filepath.Join(dir, runFile))
	if errors.Is(err, fs.ErrNotExist) {
		d.problem(0, runFile, "is missing: the run is read from its events")
	} else if err != nil {
		return nil, err
	} else if o, err := d.parse(text, 0, runFile); err != nil {
		d.problem(0, runFile, "is damaged: the run is read from its events: "+err.Error())
	} else {
		r.meta = o
		if v := o.Text("spec_version"); runFile == metaFile && !strings.HasPrefix(v, "0.2") {
			d.problem(0, runFile, fmt.Sprintf("has spec_version %q, and was read as 0.2", v))
		}
	}
	text, err = codec.ReadFile(filepath.Join(dir, eventsFile))
	if errors.Is(err, fs.ErrNotExist) {
		d.problem(0, eventsFile, "is missing: the run has no events")
	} else if err != nil {
		return nil, err
	}
	r.events = d.lines(text, eventsFile)
	if r.meta == nil && len(r.events) == 0 {
		return nil, fmt.Errorf("neither %s nor %s can be read", runFile, eventsFile)
	}
	r.id = r.identity(filepath.Base(dir))
	return r, nil
}

// identity returns the run's id: what run.json says, the events, or its place.
func (r *run) identity(otherwise string) string {
	if id := cmp.Or(r.meta.Text("run_id"), r.meta.Text("trace_id")); id != "" {
		return id
	}
	for i := range r.events {
		if id := r.events[i].runID; id != "" {
			return id
		}
	}
	return otherwise
}

// lines reads an events.jsonl.
func (d *decoder) lines(text []byte, file string) []event {
	var events []event
	before, n := int64(0), 0
	for line := range bytes.Lines(bytes.TrimPrefix(text, []byte("\uFEFF"))) {
		n++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		all, err := d.parse(line, n, file)
		if err != nil {
			d.problem(n, file, "is not an event: left out: "+err.Error())
			continue
		}
		events = d.add(events, all, n, file, &before)
	}
	return events
}

func (d *decoder) add(events []event, all rows.Object, line int, file string, before *int64) []event {
	if all.Has("span_id") {
		return d.span(events, all, line, file, before)
	}
	e, note, err := newEvent(all, line, *before)
	if err != nil {
		d.problem(line, file, err.Error())
		return events
	}
	if note != "" {
		d.problem(line, file, note)
	}
	*before = e.at
	return append(events, e)
}

// stream reads what is in one file.
func (d *decoder) stream(data []byte) ([]*run, error) {
	first, _, _ := bytes.Cut(bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\uFEFF"))), []byte("\n"))
	quiet := decoder{report: func(codec.Problem) {}}
	if o, err := quiet.parse(first, 0, ""); err == nil && (o.Has("span_id") || !o.Has("events") && !o.Has("counts")) {
		return d.byRun(d.lines(data, ""))
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	if fixed, ok := rows.ReplaceNaN(data, asNull); ok && !json.Valid(data) {
		d.problem(0, "", noteNaN)
		data = fixed
	}
	var runs []*run
	lax := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)} // as Python is
	for dec := jsontext.NewDecoder(bytes.NewBuffer(data), lax...); ; {
		v, err := dec.ReadValue()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if len(runs) == 0 {
				// The first line may be the damaged one of an events.jsonl.
				return d.byRun(d.lines(data, ""))
			}
			line := 1 + bytes.Count(data[:dec.InputOffset()], []byte("\n"))
			d.problem(line, "", "is not JSON: the rest was left out: "+err.Error())
			break
		}
		if r := d.export(v); r != nil {
			runs = append(runs, r)
		}
	}
	if len(runs) == 0 {
		return nil, errNoRun
	}
	return runs, nil
}

const (
	noteNaN  = "NaN and Infinity are not JSON and were read as null"
	noteUTF8 = "bytes that are not UTF-8 were replaced by U+FFFD"
)

func asNull(string) string { return "null" }

// parse reads an object that Python wrote, and reports what had to be replaced.
func (d *decoder) parse(text []byte, line int, file string) (rows.Object, error) {
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
		d.problem(line, file, noteUTF8)
	}
	o, err := rows.Parse(text)
	if err == nil {
		return o, nil
	}
	if fixed, found := rows.ReplaceNaN(text, asNull); found {
		if o, err := rows.Parse(fixed); err == nil {
			d.problem(line, file, noteNaN)
			return o, nil
		}
	}
	return nil, err
}

var errNoRun = errors.New("read run: no event and no run in it: " +
	"want events.jsonl, spans.jsonl, or what their programs export")

// byRun sorts events by the run that they name.
func (d *decoder) byRun(events []event) ([]*run, error) {
	var runs []*run
	places := map[string]*run{}
	for _, e := range events {
		r := places[e.runID]
		if r == nil {
			r = &run{id: e.runID}
			if r.id == "" {
				r.id = uuid("run", e.id, e.typ, rows.FormatTime(e.at), string(e.payload.JSON()))
			}
			places[e.runID] = r
			runs = append(runs, r)
		}
		r.events = append(r.events, e)
	}
	if len(runs) == 0 {
		return nil, errNoRun
	}
	return runs, nil
}

// export reads what agentdbg export writes, or a run.json alone.
func (d *decoder) export(text []byte) *run {
	o, err := d.parse(text, 0, "")
	if err != nil {
		d.problem(0, "", "is not a run: left out: "+err.Error())
		return nil
	}
	r := &run{meta: o.Object("run")}
	if o.Get("events") == nil && o.Get("counts") != nil {
		r.meta = o
		d.problem(0, "", "is a run.json alone: the run has no events")
	}
	before := int64(0)
	for i, v := range rows.Elements(o.Get("events")) {
		all, err := rows.Parse(v)
		if err != nil {
			d.problem(0, "", fmt.Sprintf("events[%d] is not an event: left out: %v", i, err))
			continue
		}
		r.events = d.add(r.events, all, 0, "", &before)
	}
	if r.meta == nil && len(r.events) == 0 {
		d.problem(0, "", "is not a run: left out")
		return nil
	}
	r.id = r.identity(uuid("run", string(text)))
	return r
}

// session makes a session of a run.
func (d *decoder) session(r *run) *codec.Session {
	file := ""
	if d.dir != "" {
		file = d.file
	}
	if len(r.events) == 0 && r.meta.Text("status") != statusRunning {
		d.problem(0, file, "the run has no events")
	}
	return build(r, func(p codec.Problem) { d.problem(p.Line, file, p.Reason) })
}
