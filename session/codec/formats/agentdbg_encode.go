package formats

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// agentdbgEncode writes the session to w as "agentdbg export" does: run.json and the
// events in one JSON object, without a newline at its end. It does not change s.
// Rows that make no tree are refused, see [session.Transcript.CheckTree].
func agentdbgEncode(w io.Writer, s *codec.Session) error {
	f, err := agentdbgFormat(s, false)
	if err != nil {
		return err
	}
	all := rows.Of("spec_version", agentdbgSpecVersion, "run", f.meta, "events", f.events)
	if _, err := w.Write(agentdbgIndented.Append(nil, all.JSON())); err != nil {
		return fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return nil
}

// agentdbgEncodeFile writes the session as a run in a data directory: the two files in
// runs/<run_id>/ of dir, which are made when they are not there. It returns the
// run's directory. A run that is there already gives an error that is [os.ErrExist],
// unless replace is set: then both files are replaced, or with an error none, and
// what else is in the directory stays.
func agentdbgEncodeFile(dir string, s *codec.Session, replace bool) (path string, err error) {
	return agentdbgWriteRun(dir, s, replace, false)
}

func agentdbgWriteRun(dir string, s *codec.Session, replace, maida bool) (path string, err error) {
	f, err := agentdbgFormat(s, maida)
	if err != nil {
		return "", err
	}
	if path, err = f.write(dir, replace); err != nil {
		return "", fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return path, nil
}

// write writes the run in a data directory, and returns its own.
func (f *agentdbgFormatted) write(dir string, replace bool) (path string, err error) {
	path = filepath.Join(dir, "runs", f.id)
	_, absent := os.Lstat(path)
	if absent == nil && !replace {
		return "", &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	runFile, eventsFile, meta := agentdbgRunFile, agentdbgEventsFile, f.meta
	if f.maida {
		runFile, eventsFile, meta = agentdbgMetaFile, agentdbgSpansFile, f.maidaMeta()
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", err
	}
	err = rows.ReplaceFiles(rows.File{Path: filepath.Join(path, eventsFile), Text: f.lines()},
		rows.File{Path: filepath.Join(path, runFile), Text: agentdbgIndented.Append(nil, meta.JSON())})
	if err != nil && absent != nil {
		_ = os.RemoveAll(path) // a run without one of its files
	}
	return path, err
}

var agentdbgIndented = rows.Python{Indent: true}

// agentdbgFormatted is a run in the order of its files.
type agentdbgFormatted struct {
	id     string
	meta   rows.Object // run.json
	events []agentdbgEventJSON
	maida  bool // it is written as Maida has it
}

// lines are those of events.jsonl, or of spans.jsonl.
func (f *agentdbgFormatted) lines() (lines []byte) {
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

func agentdbgFormat(s *codec.Session, maida bool) (agentdbgFormatted, error) {
	if err := s.CheckTree(); err != nil {
		return agentdbgFormatted{}, fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return agentdbgDraft(s, maida), nil
}

// agentdbgCounts are those of the events of a run.
type agentdbgCounts struct {
	LLMCalls     int64 `json:"llm_calls"`
	ToolCalls    int64 `json:"tool_calls"`
	Errors       int64 `json:"errors"`
	LoopWarnings int64 `json:"loop_warnings"`
}

func (c *agentdbgCounts) add(typ string) {
	switch typ {
	case agentdbgLlmCall:
		c.LLMCalls++
	case agentdbgToolCall:
		c.ToolCalls++
	case agentdbgErrorEvent:
		c.Errors++
	case agentdbgLoopWarning:
		c.LoopWarnings++
	}
}

// agentdbgEventJSON is a line of events.jsonl.
type agentdbgEventJSON struct {
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
