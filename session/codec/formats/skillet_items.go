package formats

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/spans"
)

// skilletItem is a row of session_items.
type skilletItem struct {
	row  int64 // its id
	at   int64 // created_at, in Unix milliseconds
	text string
}

// Types of items.
const (
	skilletMessageItem    = "message"
	skilletReasoningItem  = "reasoning"
	skilletCallItem       = "function_call"
	skilletResultItem     = "function_call_result"
	skilletCompactionItem = "compaction"
)

// skilletParseItem reads the item_json of a row. A message may lack its type.
func skilletParseItem(i skilletItem) (o rows.Object, typ string, err error) {
	if o, err = rows.Parse([]byte(i.text)); err != nil {
		return nil, "", err
	}
	if typ = o.Text("type"); typ == "" && o.Has("role") {
		typ = skilletMessageItem
	}
	return o, typ, nil
}

type skilletItemDecoder struct {
	file   string
	report func(codec.Problem)

	s     *rows.Session
	m     *rows.Message // the assistant's message that is open
	calls map[string]*rows.Part
	count int // of items
}

// skilletDecodeItems makes a session of the rows of a conversation.
func skilletDecodeItems(key skilletNames, items []skilletItem, file string, report func(codec.Problem)) *codec.Session {
	s := rows.New(key.sessionID(), skilletAgentName)
	d := skilletItemDecoder{file: file, report: report, s: s, calls: make(map[string]*rows.Part)}
	for _, i := range items {
		if !utf8.ValidString(i.text) {
			i.text = strings.ToValidUTF8(i.text, "\uFFFD")
			d.problem(i, "bytes that are not UTF-8 were replaced by U+FFFD")
		}
		o, typ, err := skilletParseItem(i)
		if err != nil {
			d.problem(i, "is not an item: left out: %v", err)
			continue
		}
		d.s.See(i.at)
		d.count++
		d.item(i, o, typ)
	}
	turns := int64(0)
	for _, m := range d.s.Messages() {
		switch m.Row.Role {
		case session.RoleUser:
			turns++
		case session.RoleAssistant:
			m.SetMeta("agenttrace", session.MessageTrace{TurnIndex: new(max(turns-1, 0))})
		}
	}
	skilletFinishSession(d.s, key)
	return d.s.Finish()
}

func (d *skilletItemDecoder) problem(i skilletItem, format string, args ...any) {
	record := fmt.Sprintf("session_items row %d", i.row)
	d.report(codec.Problem{File: d.file, Record: record, Reason: fmt.Sprintf(format, args...)})
}

func (d *skilletItemDecoder) item(i skilletItem, o rows.Object, typ string) {
	role := o.Text("role")
	if typ == skilletMessageItem && (role == session.RoleUser || role == session.RoleSystem) {
		d.m = nil
		m := d.s.Message(role, i.at)
		for _, data := range skilletContentParts(o.Get("content")) {
			m.Part(data, i.at)
		}
		return
	}
	call := d.calls[o.Text("callId")]
	if typ == skilletResultItem && call != nil {
		call.Set(skilletWithResult(call.Data(), skilletItemOutput(o.Get("output"))))
		call.Touch(i.at)
		return
	}
	if d.m == nil {
		d.m = d.s.Message(session.RoleAssistant, i.at)
	}
	d.m.Touch(i.at)
	switch {
	case typ == skilletMessageItem && role == session.RoleAssistant:
		for _, data := range skilletSpoken(o.Get("content")) {
			d.m.Part(data, i.at)
		}
	case typ == skilletReasoningItem:
		d.m.Part(rows.TextPart("reasoning", skilletReasoningText(o)), i.at)
	case typ == skilletCallItem:
		d.call(i, o)
	case typ == skilletCompactionItem:
		empty := json.RawMessage(`{"summary":"","tail_start_id":null,"auto":true,"summary_tokens":0}`)
		d.m.Part(rows.DataPart(session.TypeCompaction, empty), i.at)
	default:
		if typ == skilletResultItem {
			d.problem(i, "result of call %q, which is not above it: kept as data-item", o.Text("callId"))
		}
		d.m.Part(rows.DataPart("data-item", o), i.at)
	}
}

func (d *skilletItemDecoder) call(i skilletItem, o rows.Object) {
	id := o.Text("callId")
	if id == "" || d.calls[id] != nil {
		d.problem(i, "call with the callId %q, which names no call or another one: its result cannot be matched", id)
		id = spans.DeriveID("call_", i.at, d.s.Row.ID, strconv.Itoa(d.count))
	}
	data := rows.ToolPart(o.Text("name"), id, session.StateInputAvailable)
	data.Set("input", skilletParseArguments(o.Text("arguments")))
	d.calls[id] = d.m.Part(data, i.at)
}

// skilletSpoken returns the parts of what an assistant's message says.
func skilletSpoken(content json.RawMessage) (parts []rows.Object) {
	if s, ok := rows.Text(content); ok {
		return []rows.Object{rows.TextPart("text", s)}
	}
	for _, v := range rows.Elements(content) {
		if c := rows.Read(string(v)); c.Text("type") == "output_text" {
			parts = append(parts, rows.TextPart("text", c.Text("text")))
		} else {
			parts = append(parts, rows.DataPart(skilletContentPart, v))
		}
	}
	return parts
}

// skilletReasoningText returns what a reasoning item says: its content, or else its raw content.
func skilletReasoningText(o rows.Object) string {
	read := func(list json.RawMessage) string {
		var texts []string
		for c := range rows.Objects(list) {
			texts = append(texts, c.Text("text"))
		}
		return strings.Join(texts, "\n\n")
	}
	return cmp.Or(read(o.Get("content")), read(o.Get("rawContent")))
}

// skilletItemOutput is the output of a call: a text as it is, anything else as JSON.
func skilletItemOutput(output json.RawMessage) json.RawMessage {
	if o, err := rows.Parse(output); err == nil && len(o) == 2 && o.Text("type") == "text" && o[1].Key == "text" {
		return o.Get("text")
	}
	return rows.OrNull(output)
}

// skilletGuide knows from the store what the log leaves out.
type skilletGuide struct {
	items []skilletKnown
	at    int // those before it are used
}

type skilletKnown struct {
	rows.Object
	typ string
}

func (k skilletKnown) isUser() bool {
	return k.typ == skilletMessageItem && k.Text("role") == session.RoleUser
}

func skilletNewGuide(items []skilletItem) (g skilletGuide) {
	for _, i := range items {
		if o, typ, err := skilletParseItem(i); err == nil {
			g.items = append(g.items, skilletKnown{o, typ})
		}
	}
	return g
}

// user moves on to what follows a user message, and reports whether the store
// still has it.
func (g *skilletGuide) user(parts []rows.Object) bool {
	want := string(skilletInput(parts))
	return g.skip(func(k skilletKnown) bool {
		return k.isUser() && string(skilletInput(skilletContentParts(k.Get("content")))) == want
	}, func(skilletKnown) bool { return false }) != nil
}

// skip moves on to what follows the next item that is wanted, if it comes before an end.
func (g *skilletGuide) skip(wanted, end func(skilletKnown) bool) *skilletKnown {
	for i := g.at; i < len(g.items) && !end(g.items[i]); i++ {
		if wanted(g.items[i]) {
			g.at = i + 1
			return &g.items[i]
		}
	}
	return nil
}

// call returns the id of a call, and the reasoning right before it.
func (g *skilletGuide) call(name, arguments string) (id string, thoughts []string) {
	before := g.at
	k := g.skip(func(k skilletKnown) bool {
		return k.typ == skilletCallItem && k.Text("name") == name && k.Text("arguments") == arguments
	}, skilletKnown.isUser)
	if k == nil {
		return "", nil
	}
	return k.Text("callId"), g.thoughts(before)
}

// text returns the reasoning right before the next text.
func (g *skilletGuide) text() []string {
	before := g.at
	message := func(k skilletKnown) bool { return k.typ == skilletMessageItem }
	if g.skip(message, func(k skilletKnown) bool { return k.typ == skilletCallItem || k.isUser() }) == nil {
		return nil
	}
	return g.thoughts(before)
}

// rest returns the reasoning with which a turn ends.
func (g *skilletGuide) rest() []string {
	before, end := g.at, g.at
	for ; end < len(g.items) && g.items[end].typ != skilletMessageItem; end++ {
		if g.items[end].typ == skilletCallItem {
			return nil // what the log knows nothing of is between
		}
	}
	g.at = end
	return g.thoughts(before)
}

// thoughts returns the reasoning from before up to the current place.
func (g *skilletGuide) thoughts(before int) (texts []string) {
	for _, k := range g.items[before:g.at] {
		if k.typ == skilletReasoningItem {
			if text := skilletReasoningText(k.Object); text != "" {
				texts = append(texts, text)
			}
		}
	}
	return texts
}

const skilletSchema = `
CREATE TABLE IF NOT EXISTS session_items (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	user_id TEXT NOT NULL,
	session_name TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	item_json TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS idx_session ON session_items (user_id, session_name, created_at);
`

// skilletConversation is what the store has of one.
type skilletConversation struct {
	key   skilletNames
	items []skilletItem
}

const skilletSelectItems = `SELECT id, user_id, session_name, created_at, item_json FROM session_items
	ORDER BY user_id, session_name, created_at, id`

// skilletReadStore returns the conversations of the store in order of their names.
func skilletReadStore(path string) (all []skilletConversation, err error) {
	conn, err := rows.OpenDatabase(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	err = sqlitex.ExecuteTransient(conn, skilletSelectItems, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		key := skilletNames{strings.ToValidUTF8(stmt.ColumnText(1), "\uFFFD"),
			strings.ToValidUTF8(stmt.ColumnText(2), "\uFFFD")}
		if len(all) == 0 || all[len(all)-1].key != key {
			all = append(all, skilletConversation{key: key})
		}
		c := &all[len(all)-1]
		c.items = append(c.items, skilletItem{stmt.ColumnInt64(0), stmt.ColumnInt64(3), stmt.ColumnText(4)})
		return nil
	}})
	if err != nil {
		return nil, fmt.Errorf("read session_items of %s: %w", path, err)
	}
	slices.SortStableFunc(all, func(a, b skilletConversation) int {
		return cmp.Or(cmp.Compare(a.key.UserID, b.key.UserID), cmp.Compare(a.key.SessionName, b.key.SessionName))
	})
	return all, nil
}

const (
	skilletCountItems  = `SELECT count(*) FROM session_items WHERE user_id = ? AND session_name = ?`
	skilletDeleteItems = `DELETE FROM session_items WHERE user_id = ? AND session_name = ?`
	skilletInsertItem  = `INSERT INTO session_items (user_id, session_name, created_at, item_json) VALUES (?, ?, ?, ?)`
)

// skilletWriteStore adds a conversation to the store, which is made when it is not there,
// or replaces the one of its names. All of it is written, or nothing, as with an error
// of last, which is called in the end.
func skilletWriteStore(path string, c skilletConversation, replace bool, last func() error) (err error) {
	// SQLite would make a file that others can read. One that is there keeps its mode.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return err
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := sqlitex.ExecuteScript(conn, skilletSchema, nil); err != nil {
		return fmt.Errorf("make session_items in %s: %w", path, err)
	}
	end, err := sqlitex.ImmediateTransaction(conn)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer end(&err)
	key := []any{c.key.UserID, c.key.SessionName}
	if replace {
		if err := sqlitex.Execute(conn, skilletDeleteItems, &sqlitex.ExecOptions{Args: key}); err != nil {
			return fmt.Errorf("write session_items of %s: %w", path, err)
		}
	}
	there := int64(0)
	err = sqlitex.Execute(conn, skilletCountItems, &sqlitex.ExecOptions{
		Args:       key,
		ResultFunc: func(stmt *sqlite.Stmt) error { there = stmt.ColumnInt64(0); return nil },
	})
	switch {
	case err != nil:
		return fmt.Errorf("read session_items of %s: %w", path, err)
	case there > 0:
		return fmt.Errorf("write %s: session %q of user %q: %w", path, c.key.SessionName, c.key.UserID, fs.ErrExist)
	}
	for _, i := range c.items {
		err := sqlitex.Execute(conn, skilletInsertItem, &sqlitex.ExecOptions{Args: append(key[:2:2], i.at, i.text)})
		if err != nil {
			return fmt.Errorf("write session_items of %s: %w", path, err)
		}
	}
	return last()
}
