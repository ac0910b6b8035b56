// Jutul: these files read and write the trace database of jutul-agent: one session in a SQLite file, trace.sqlite,
// whose table events holds what happened as rows of a time, a kind and a JSON payload, in order of id.
// docs/formats.md lists what becomes what.

package formats

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/spans"
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

// jutulDecodeFile reads the trace at path, which may be a session's directory with a [jutulFileName] in it. It yields
// one session, as a trace holds one, and does not write to the file, which jutul-agent may be writing meanwhile.
// Where the file is damaged, the events before the damage are read and the rest is reported.
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
	const insert = "INSERT INTO events (id, timestamp, kind, payload_json) VALUES (?, ?, ?, ?)"
	for _, e := range events {
		if err == nil {
			options := sqlitex.ExecOptions{Args: []any{e.id, e.timestamp, e.kind, e.payload}}
			err = sqlitex.Execute(conn, insert, &options)
		}
	}
	return err
}

// jutulEncode returns the events of the session.
func jutulEncode(s *codec.Session) []jutulEvent {
	t := s.Sorted()
	row := &t.Session
	own := rows.Read(row.MetadataJSON).Object("jutul")
	e := &jutulEncoder{s: s, foreign: own == nil, calls: make(map[string]int)}
	named := false
	for o := range rows.Objects(own.Get("session_events")) {
		kind, payload := o.Text("kind"), o.Object("payload")
		if at, ok := rows.Milli(o.Get("at")); ok && jutulIsLifecycle(kind) && payload != nil {
			named = named || payload.Text("session_id") == row.ID
			e.later(at, kind, payload)
		}
	}
	if !named {
		e.emit(row.CreatedAt, jutulKindStart, rows.Of("session_id", row.ID, "simulator", nil))
	}
	if e.foreign {
		if row.Title != session.Untitled {
			e.emit(row.CreatedAt, jutulKindTitle, rows.Of("session_id", row.ID, "title", row.Title))
		}
		e.decisions()
	}
	for i := range t.Messages {
		e.message(t, i)
	}
	e.flush(math.MaxInt64)
	return e.events
}

// jutulEncoder writes events in the order of the rows. What has a time but no row of
// its own waits until its time has come.
type jutulEncoder struct {
	s       *codec.Session
	foreign bool // the session never was a trace
	events  []jutulEvent
	last    int64
	waiting []jutulWaiting // in order of at
	// calls counts the calls by their ids, which must be different in a trace.
	calls map[string]int
}

type jutulWaiting struct {
	at      int64
	kind    string
	payload rows.Object
}

// emit adds an event. Readers take events in order, so none is earlier than the one before.
func (e *jutulEncoder) emit(at int64, kind string, payload rows.Object) {
	e.last = max(at, e.last)
	e.events = append(e.events, jutulEvent{id: int64(len(e.events) + 1), timestamp: jutulFormatTime(e.last), kind: kind,
		payload: string(payload.JSON())})
}

// row emits an event that stands for a row.
func (e *jutulEncoder) row(at int64, kind string, payload rows.Object) {
	e.flush(at)
	e.emit(at, kind, payload)
}

// later keeps an event until its time, after those of the same time.
func (e *jutulEncoder) later(at int64, kind string, payload rows.Object) {
	e.waiting = append(e.waiting, jutulWaiting{at, kind, payload})
	slices.SortStableFunc(e.waiting, func(a, b jutulWaiting) int { return cmp.Compare(a.at, b.at) })
}

// flush emits what waited for a time up to at.
func (e *jutulEncoder) flush(at int64) {
	for len(e.waiting) > 0 && e.waiting[0].at <= at {
		e.emit(e.waiting[0].at, e.waiting[0].kind, e.waiting[0].payload)
		e.waiting = e.waiting[1:]
	}
}

// decisions writes those of a person as requests and responses.
func (e *jutulEncoder) decisions() {
	for i := range e.s.Decisions {
		o := &e.s.Decisions[i]
		if o.Action != "ask" {
			continue // nobody was asked
		}
		asked := o.DecidedAt
		if o.WaitedMS != nil {
			asked -= *o.WaitedMS
		}
		request := rows.Of("name", o.ToolID, "args", rows.Object{})
		for j := range e.s.Messages {
			for _, p := range e.s.Messages[j].Parts {
				if o.PartID != p.ID && (o.ToolCallID == "" || p.ToolCallID == nil || *p.ToolCallID != o.ToolCallID) {
					continue
				}
				data := rows.Read(p.DataJSON)
				request.Add(rows.NonEmpty("name", rows.ToolName(data), "args", data.Get("input")))
			}
		}
		// A reader knows by the prefix that a request is ours.
		id := spans.PrefixPermission + strings.TrimPrefix(o.ID, spans.PrefixPermission)
		e.later(asked, jutulKindRequest, rows.Of("interrupt_id", id, "value",
			rows.Of("action_requests", []rows.Object{request})))
		if typ := map[string]string{"allowed": "approve", "denied": "reject"}[o.Outcome]; typ != "" {
			answer := append(rows.Of("type", typ), rows.NonEmpty("message", o.Reason)...)
			e.later(o.DecidedAt, jutulKindResponse, rows.Of("interrupt_id", id, "payload",
				rows.Of("decisions", []rows.Object{answer})))
		}
	}
}

// message writes what a message says. A trace has no word for what the system says.
func (e *jutulEncoder) message(t *session.Transcript, i int) {
	m := &t.Messages[i]
	if m.Message.Role == session.RoleSystem {
		return
	}
	counted := false
	for j := range m.Parts {
		counted = counted || m.Parts[j].Type == "data-"+jutulKindUsage
		e.part(t, i, &m.Parts[j])
	}
	meta := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON))
	u := meta.Tokens(m.Message.Role, m.IsMarker()).Used
	if counted || u == nil || t.Session.Copied(m.Message.CreatedAt) {
		return
	}
	input, output := u.Input+u.CacheRead+u.CacheWrite, u.Output+u.Reasoning // as LangChain counts
	e.row(m.Message.UpdatedAt, jutulKindUsage, rows.Of(
		"input_tokens", input, "output_tokens", output, "total_tokens", input+output,
		"input_token_details", rows.Of("cache_read", u.CacheRead, "cache_creation", u.CacheWrite),
		"output_token_details", rows.Of("reasoning", u.Reasoning)))
}

func (e *jutulEncoder) part(t *session.Transcript, i int, p *session.Part) {
	if p.Type == "step-start" {
		return // it reports nothing that jutul could show
	}
	data := rows.Data(p)
	kind, payload := jutulPartEvent(t, i, p, data)
	// Readers of jutul read the payloads of their own kinds as if these could have nothing else, and index arguments.
	if own := slices.Contains(jutulOwnKinds, kind); own && e.foreign && strings.HasPrefix(p.Type, "data-") &&
		kind != jutulKindCompaction {
		kind = p.Type
	}
	c := rows.CallOf(p, data, make(map[string]bool))
	called := c != nil && c.Name != ""
	if called {
		if e.calls[c.ID]++; e.calls[c.ID] > 1 {
			c.ID = fmt.Sprintf("%s#%d", c.ID, e.calls[c.ID])
		}
		kind, payload = jutulKindCall, rows.Of("id", c.ID, "name", c.Name, "args", c.Arguments())
	}
	e.row(p.CreatedAt, kind, payload)
	if called && c.Result != nil {
		status := "success"
		if c.Failed {
			status = "error"
		}
		e.later(p.UpdatedAt, jutulKindResult,
			rows.Of("tool_call_id", c.ID, "name", c.Name, "content", *c.Result, "status", status))
	}
}

// jutulOwnKinds are the kinds of events that jutul itself writes.
var jutulOwnKinds = []string{
	jutulKindStart, jutulKindResume, jutulKindTitle, jutulKindEnd, jutulKindUser, jutulKindAssistant,
	jutulKindReasoning, jutulKindUsage, jutulKindCall, jutulKindResult,
	jutulKindRequest, jutulKindResponse, jutulKindCompaction, "artifact", "attempt", "upload", "ui", "ui_event",
	"eval_target", "eval_result",
}

// jutulPartEvent returns what stands for the part in the trace.
func jutulPartEvent(t *session.Transcript, i int, p *session.Part, data rows.Object) (kind string, payload rows.Object) {
	inner := data.Object("data")
	switch typ := data.Text("type"); {
	case typ == "text" || typ == "reasoning":
		if kind = jutulKindAssistant; p.Type == "reasoning" {
			kind = jutulKindReasoning
		} else if t.Messages[i].Message.Role == session.RoleUser {
			kind = jutulKindUser
		}
		return kind, rows.Of("content", data.Text("text"))
	case p.Type == session.TypeCompaction && inner.Object("jutul") != nil:
		return jutulKindCompaction, inner.Object("jutul")
	case p.Type == session.TypeCompaction:
		return jutulKindCompaction, jutulCompactionPayload(t, i, p)
	case strings.HasPrefix(p.Type, "data-"):
		if inner == nil {
			inner = append(rows.Object{}, rows.NonEmpty("data", data.Get("data"))...)
		}
		return strings.TrimPrefix(p.Type, "data-"), inner
	}
	return p.Type, data.Without("type") // such as a call without a name: no reader takes it for a call
}

// jutulCompactionPayload counts the messages that a compaction summed up, in the words of all versions of jutul-agent.
func jutulCompactionPayload(t *session.Transcript, i int, p *session.Part) rows.Object {
	c, _ := session.ParseCompaction(p.DataJSON) // unreadable: nothing is known of it
	before, kept := 0, 0
	for k := range i {
		m := &t.Messages[k].Message
		if m.HiddenAt != nil {
			continue
		}
		if before++; kept > 0 || c.TailStartID != nil && m.ID == *c.TailStartID {
			kept++
		}
	}
	return append(rows.Of("summarized", before-kept, "kept", kept, "offloaded", false, "manual", !c.Auto,
		"messages_before", before, "messages_after", kept+1), rows.NonEmpty("summary", c.Summary)...)
}
