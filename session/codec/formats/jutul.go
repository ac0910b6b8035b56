// Jutul: these files read and write the trace database of jutul-agent: one session in a SQLite file, trace.sqlite, whose
// table events holds what happened as rows of a time, a kind and a JSON payload, in order of id. docs/formats.md lists
// what becomes what.

package formats

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Kinds of events that are more than a part with their name. An event without a kind has the last one.
const (
	jutulKindStart, jutulKindResume                       = "session_start", "session_resume"
	jutulKindTitle, jutulKindEnd                          = "session_title", "session_end"
	jutulKindUser, jutulKindAssistant, jutulKindReasoning = "message_user", "message_assistant", "message_reasoning"
	jutulKindUsage, jutulKindCall, jutulKindResult        = "model_usage", "tool_call", "tool_result"
	jutulKindRequest, jutulKindResponse                   = "hitl_request", "hitl_response"
	jutulKindCompaction, jutulKindNone                    = "context_compaction", "jutul_event"
)

// jutulIsLifecycle reports whether events of a kind are those of the session's life.
func jutulIsLifecycle(kind string) bool {
	return slices.Contains([]string{jutulKindStart, jutulKindResume, jutulKindTitle, jutulKindEnd}, kind)
}

// jutulAgentName is the agent of a session.
const jutulAgentName = "jutul-agent"

// jutulEvent is a row of the table.
type jutulEvent struct {
	id        int64
	timestamp string
	kind      string
	payload   string
}

// jutulTimeLayout is that of Python's datetime.isoformat in UTC, which leaves the fraction out when it is zero.
const jutulTimeLayout = "2006-01-02T15:04:05.000000-07:00"

func jutulFormatTime(milli int64) string {
	s := time.UnixMilli(min(max(milli, 0), rows.MaxTime)).UTC().Format(jutulTimeLayout)
	return strings.Replace(s, ".000000", "", 1)
}

// jutulParsePayload reads a payload. Python writes numbers that JSON does not have; they become strings, which
// Python's float reads as the same numbers. odd reports whether there were some.
func jutulParsePayload(text string) (o rows.Object, odd bool, err error) {
	return rows.ParsePython([]byte(text), strconv.Quote)
}

// jutulFileName is what jutul-agent calls the trace in a session's directory.
const jutulFileName = "trace.sqlite"

const jutulSchema = `
CREATE TABLE events (
	id           INTEGER PRIMARY KEY AUTOINCREMENT,
	timestamp    TEXT NOT NULL,
	kind         TEXT NOT NULL,
	payload_json TEXT NOT NULL
);
CREATE INDEX events_kind_idx ON events (kind);`

// jutulDecodeFile reads the trace at path, which may be a session's directory with a [jutulFileName] in it. It yields one
// session, as a trace holds one, and does not write to the file, which jutul-agent may be writing meanwhile. Where the
// file is damaged, the events before the damage are read and the rest is reported.
func jutulDecodeFile(path string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return rows.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("open trace: %w", err)
		}
		file := path
		if info.IsDir() {
			file = filepath.Join(path, jutulFileName)
		}
		events, err := jutulReadEvents(file)
		switch {
		case err != nil && len(events) == 0:
			return fmt.Errorf("read trace %s: %w", file, err)
		case err != nil:
			report(codec.Problem{Record: fmt.Sprintf("event %d", events[len(events)-1].id),
				Reason: fmt.Sprintf("the last that could be read: %v", err)})
		}
		yield(jutulDecode(events, report))
		return nil
	})
}

// jutulReadEvents returns the events up to the error, if there is one.
func jutulReadEvents(file string) (events []jutulEvent, err error) {
	conn, err := rows.OpenDatabase(file)
	if err != nil {
		return nil, err
	}
	err = sqlitex.ExecuteTransient(conn, "SELECT id, timestamp, kind, payload_json FROM events ORDER BY id",
		&sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
			e := jutulEvent{row.ColumnInt64(0), row.ColumnText(1), row.ColumnText(2), row.ColumnText(3)}
			events = append(events, e)
			return nil
		}})
	return events, errors.Join(err, conn.Close())
}

// jutulEncodeFile writes the session as a trace to path, which must not exist. The file is there whole or not at all.
// Like jutul-agent's own it is in WAL mode, so a reader must be able to write in its directory.
func jutulEncodeFile(path string, s *codec.Session) error {
	err := s.CheckTree()
	if err == nil {
		err = rows.CreateDatabase(path, func(temporary string) error { return jutulWriteEvents(temporary, jutulEncode(s)) })
	}
	if err != nil {
		return fmt.Errorf("write session %s to %s: %w", s.Session.ID, path, err)
	}
	return nil
}

func jutulWriteEvents(path string, events []jutulEvent) (err error) {
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate, sqlite.OpenWAL)
	if err != nil {
		return err
	}
	// Closing the last connection moves the WAL into the file.
	defer func() { err = errors.Join(err, conn.Close()) }()
	defer sqlitex.Save(conn)(&err)
	if err := sqlitex.ExecuteScript(conn, jutulSchema, nil); err != nil {
		return err
	}
	for _, e := range events {
		err := sqlitex.Execute(conn, "INSERT INTO events (id, timestamp, kind, payload_json) VALUES (?, ?, ?, ?)",
			&sqlitex.ExecOptions{Args: []any{e.id, e.timestamp, e.kind, e.payload}})
		if err != nil {
			return err
		}
	}
	return nil
}
