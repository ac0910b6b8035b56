package agentdbg

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
)

// Options configure what is written. The zero value is AgentDbg's default.
type Options struct {
	// Replace puts a run in the place of one that is there; see [EncodeFile].
	Replace bool

	// LoopWindow and LoopRepetitions are of the loop detector, as loop_window and
	// loop_repetitions in AgentDbg's configuration.
	//
	// LoopWindow is how many events the detector looks at; 0 means
	// DefaultLoopWindow, and less than 4 means 4.
	LoopWindow int
	// LoopRepetitions is how often a pattern repeats to be a loop; 0 means
	// DefaultLoopRepetitions, and less than 2 means 2.
	LoopRepetitions int
}

// Encode writes the session to w as "agentdbg export" does: run.json and the
// events in one JSON object, without a newline at its end. It does not change s.
//
// A session that came from AgentDbg, and that nothing has changed since, is
// written as the run that it was, with the warnings that it had; the options do
// not concern it. Rows that make no tree are refused, see
// [session.Transcript.CheckTree].
func Encode(w io.Writer, s *codec.Session, o Options) error {
	f, err := format(s, o)
	if err != nil {
		return err
	}
	var all rows.Object
	all.Set("spec_version", specVersion)
	all.Set("run", f.meta)
	all.Set("events", f.events)
	if _, err := w.Write(appendIndented(nil, all.JSON())); err != nil {
		return fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return nil
}

// EncodeFile writes the session as a run in a data directory: the two files in
// runs/<run_id>/ of dir, which are made when they are not there. It returns the
// run's directory. A run that is there already is not overwritten, and gives an
// error that is [os.ErrExist], unless o says to replace it: then both files are
// replaced at once, or with an error none, and what else is in the directory stays.
func EncodeFile(dir string, s *codec.Session, o Options) (path string, err error) {
	f, err := format(s, o)
	if err != nil {
		return "", err
	}
	id := f.meta.Text("run_id")
	if !isUUID4(id) {
		return "", fmt.Errorf("write session %s: run_id %q is not a lower-case UUIDv4, as AgentDbg insists", s.Session.ID, id)
	}
	runs := filepath.Join(dir, "runs")
	if err := os.MkdirAll(runs, 0o700); err != nil {
		return "", fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	path = filepath.Join(runs, id)
	if _, err := os.Lstat(path); err == nil && !o.Replace {
		return "", fmt.Errorf("write session %s: %w", s.Session.ID, &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist})
	}
	// AgentDbg lists what stands in runs, so it is written beside that.
	room, err := os.MkdirTemp(dir, "."+id+".*")
	if err != nil {
		return "", fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	defer os.RemoveAll(room)
	if err := f.place(room, path); err != nil {
		return "", fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return path, nil
}

// place writes the run in the directory room, and moves it to path, where it takes
// the place of what is there.
func (f *formatted) place(room, path string) error {
	made, old := filepath.Join(room, "new"), filepath.Join(room, "old")
	var lines []byte
	for _, e := range f.events {
		lines = append(appendLine(lines, e.JSON()), '\n')
	}
	err := errors.Join(
		os.Mkdir(made, 0o700),
		os.WriteFile(filepath.Join(made, eventsFile), lines, 0o600),
		os.WriteFile(filepath.Join(made, runFile), appendIndented(nil, f.meta.JSON()), 0o600))
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return os.Rename(made, path)
	}
	if err == nil {
		err = os.Rename(path, old)
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); name != runFile && name != eventsFile && err == nil {
			err = os.Rename(filepath.Join(old, name), filepath.Join(made, name))
		}
	}
	if err == nil {
		err = os.Rename(made, path)
	}
	if err == nil {
		return nil
	}
	for _, e := range entries {
		if name := e.Name(); name != runFile && name != eventsFile {
			_ = os.Rename(filepath.Join(made, name), filepath.Join(old, name)) // where it was moved
		}
	}
	return errors.Join(err, os.Rename(old, path))
}

// formatted is a run in the order of its files.
type formatted struct {
	meta   rows.Object // run.json
	events []rows.Object
}

func format(s *codec.Session, o Options) (formatted, error) {
	if err := s.CheckTree(); err != nil {
		return formatted{}, fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	if f, ok := replay(s); ok {
		return f, nil
	}
	return draft(s, o), nil
}

// replay returns the run that the session was made of, when it is the same still:
// when reading that run gives this very session.
func replay(s *codec.Session) (formatted, bool) {
	own := metadata(s.Session.MetadataJSON).Object(metaKey)
	if own == nil || len(s.Decisions) > 0 {
		return formatted{}, false
	}
	r := &run{id: s.Session.ID, meta: own.Object("run")}
	var all []rows.Object
	take := func(short rows.Object, m *session.MessageAndParts) bool {
		if short == nil {
			return true
		}
		e, ok := rowShelf(s, r.id, m).expand(short)
		all = append(all, e)
		return ok
	}
	ok := take(own.Object("start"), nil)
	t := s.Sorted()
	for i := range t.Messages {
		m := &t.Messages[i]
		for _, short := range objects(metadata(m.Message.MetadataJSON).Object(metaKey).Get("events")) {
			ok = ok && short != nil && take(short, m)
		}
	}
	if ok = ok && take(own.Object("end"), nil); !ok {
		return formatted{}, false
	}
	before := int64(0)
	for _, o := range all {
		e, _, err := newEvent(o, 0, before)
		if err != nil {
			return formatted{}, false
		}
		before = e.at
		r.events = append(r.events, e)
	}
	again := build(r, func(codec.Problem) {})
	if !equal(again, s) {
		return formatted{}, false
	}
	f := formatted{meta: r.meta, events: all}
	if f.meta == nil {
		f.meta = runMeta(r)
	}
	return f, true
}

// equal says whether s has the rows of t, and no blob that t lacks.
func equal(t, s *codec.Session) bool {
	for _, b := range s.Blobs {
		found := false
		for _, have := range t.Blobs {
			found = found || have == b
		}
		if !found {
			return false
		}
	}
	var have, want bytes.Buffer
	return jsonl.Encode(&have, t.Transcript) == nil && jsonl.Encode(&want, s.Transcript) == nil && bytes.Equal(have.Bytes(), want.Bytes())
}

// rowShelf finds what events left to the rows of a session.
func rowShelf(s *codec.Session, id string, m *session.MessageAndParts) shelf {
	return shelf{
		runID: id,
		part: func(index int64) rows.Object {
			if m == nil {
				return nil
			}
			for i := range m.Parts {
				if m.Parts[i].Index == index {
					return metadata(m.Parts[i].DataJSON)
				}
			}
			return nil
		},
		prompt: func(id string) json.RawMessage {
			for i := range s.Messages {
				if m := &s.Messages[i]; m.Message.ID == id && len(m.Parts) > 0 {
					return promptOf(metadata(m.Parts[0].DataJSON))
				}
			}
			return nil
		},
	}
}

// metadata reads a column that is a JSON object; the empty object when it is none.
func metadata(column string) rows.Object {
	o, err := rows.Parse([]byte(column))
	if err != nil {
		return rows.Object{}
	}
	return o
}

// runMeta makes the run.json of a run that has lost it.
func runMeta(r *run) rows.Object {
	c := counter{name: null}
	for i := range r.events {
		e := &r.events[i]
		c.count(e.typ)
		if i == 0 {
			c.started, c.ended = e.at, e.at
			if e.typ == runStart {
				c.name = orNull(e.payload.Get("run_name"))
			}
		}
		c.ended = max(c.ended, e.at)
	}
	return c.meta(r.id, r.status())
}

// counter counts what run.json says of the events.
type counter struct {
	name                     json.RawMessage
	started, ended           int64
	llm, tool, errors, loops int64
}

func (c *counter) count(typ string) {
	switch typ {
	case llmCall:
		c.llm++
	case toolCall:
		c.tool++
	case errorEvent:
		c.errors++
	case loopWarning:
		c.loops++
	}
}

// meta returns run.json. That of a run that has not ended counts nothing, for
// AgentDbg writes it at the start and then at the end.
func (c *counter) meta(id, status string) rows.Object {
	var o, counts rows.Object
	o.Set("spec_version", specVersion)
	o.Set("run_id", id)
	o.Set("run_name", orNull(c.name))
	o.Set("started_at", formatTime(c.started))
	if status == statusRunning {
		o.Set("ended_at", null)
		o.Set("duration_ms", null)
		*c = counter{}
	} else {
		o.Set("ended_at", formatTime(c.ended))
		o.Set("duration_ms", max(0, c.ended-c.started))
	}
	o.Set("status", status)
	counts.Set("llm_calls", c.llm)
	counts.Set("tool_calls", c.tool)
	counts.Set("errors", c.errors)
	counts.Set("loop_warnings", c.loops)
	o.Set("counts", counts)
	last := o.Get("ended_at")
	o.Set("last_event_ts", last)
	return o
}

// summary returns the summary of RUN_END.
func (c *counter) summary() rows.Object {
	var o rows.Object
	o.Set("llm_calls", c.llm)
	o.Set("tool_calls", c.tool)
	o.Set("errors", c.errors)
	o.Set("duration_ms", max(0, c.ended-c.started))
	return o
}
