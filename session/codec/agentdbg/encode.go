package agentdbg

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Encode writes the session to w as "agentdbg export" does: run.json and the
// events in one JSON object, without a newline at its end. It does not change s.
// Rows that make no tree are refused, see [session.Transcript.CheckTree].
func Encode(w io.Writer, s *codec.Session) error {
	f, err := format(s, false)
	if err != nil {
		return err
	}
	all := rows.Of("spec_version", specVersion, "run", f.meta, "events", f.events)
	if _, err := w.Write(indented.Append(nil, all.JSON())); err != nil {
		return fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return nil
}

// EncodeFile writes the session as a run in a data directory: the two files in
// runs/<run_id>/ of dir, which are made when they are not there. It returns the
// run's directory. A run that is there already gives an error that is [os.ErrExist],
// unless replace is set: then both files are replaced at once, or with an error none,
// and what else is in the directory stays.
func EncodeFile(dir string, s *codec.Session, replace bool) (path string, err error) {
	return encodeFile(dir, s, replace, false)
}

func encodeFile(dir string, s *codec.Session, replace, maida bool) (path string, err error) {
	f, err := format(s, maida)
	if err != nil {
		return "", err
	}
	if path, err = f.write(dir, replace); err != nil {
		return "", fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return path, nil
}

// write writes the run in a data directory, and returns its own.
func (f *formatted) write(dir string, replace bool) (path string, err error) {
	runs := filepath.Join(dir, "runs")
	if err := os.MkdirAll(runs, 0o700); err != nil {
		return "", err
	}
	path = filepath.Join(runs, f.id)
	if _, err := os.Lstat(path); err == nil && !replace {
		return "", &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	// AgentDbg lists what is in runs, so it is written beside that.
	scratch, err := os.MkdirTemp(dir, "."+f.id+".*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	return path, f.place(scratch, path)
}

// place writes the run in the directory scratch, and moves it to path, where it takes
// the place of what is there.
func (f *formatted) place(scratch, path string) error {
	made, old := filepath.Join(scratch, "new"), filepath.Join(scratch, "old")
	runFile, eventsFile, meta := runFile, eventsFile, f.meta
	if f.maida {
		runFile, eventsFile, meta = metaFile, spansFile, f.maidaMeta()
	}
	err := errors.Join(
		os.Mkdir(made, 0o700),
		os.WriteFile(filepath.Join(made, eventsFile), f.lines(), 0o600),
		os.WriteFile(filepath.Join(made, runFile), indented.Append(nil, meta.JSON()), 0o600))
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

var indented = rows.Python{Indent: true}

// formatted is a run in the order of its files.
type formatted struct {
	id     string
	meta   rows.Object // run.json
	events []eventJSON
	maida  bool // it is written as Maida has it
}

// lines are those of events.jsonl, or of spans.jsonl.
func (f *formatted) lines() (lines []byte) {
	if f.maida {
		for _, span := range f.spans() {
			lines = append(rows.Python{}.Append(lines, span.JSON()), '\n')
		}
		return lines
	}
	for _, e := range f.events {
		lines = append(rows.Python{}.Append(lines, rows.Raw(e)), '\n')
	}
	return lines
}

func format(s *codec.Session, maida bool) (formatted, error) {
	if err := s.CheckTree(); err != nil {
		return formatted{}, fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return draft(s, maida), nil
}

// counts are those of the events of a run.
type counts struct {
	LLMCalls     int64 `json:"llm_calls"`
	ToolCalls    int64 `json:"tool_calls"`
	Errors       int64 `json:"errors"`
	LoopWarnings int64 `json:"loop_warnings"`
}

func (c *counts) add(typ string) {
	switch typ {
	case llmCall:
		c.LLMCalls++
	case toolCall:
		c.ToolCalls++
	case errorEvent:
		c.Errors++
	case loopWarning:
		c.LoopWarnings++
	}
}

// eventJSON is a line of events.jsonl.
type eventJSON struct {
	SpecVersion string      `json:"spec_version"`
	EventID     string      `json:"event_id"`
	RunID       string      `json:"run_id"`
	ParentID    *string     `json:"parent_id"`
	EventType   string      `json:"event_type"`
	TS          string      `json:"ts"`
	DurationMS  *int64      `json:"duration_ms"`
	Name        string      `json:"name"`
	Payload     rows.Object `json:"payload"`
	Meta        struct{}    `json:"meta"`

	at int64 // TS
}
