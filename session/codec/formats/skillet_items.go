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
	d.calls[id] = d.m.Call(id, o.Text("name"), skilletParseArguments(o.Text("arguments")), i.at)
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
	items []skilletKnown // and one without a type that is the end
	at    int            // those before it are used
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
	g.items = append(g.items, skilletKnown{})
	return g
}

// take moves on to what follows the next item that is wanted, if it comes before an end, and returns the item and the
// reasoning before it.
func (g *skilletGuide) take(wanted, end func(skilletKnown) bool) (found *skilletKnown, thoughts []string) {
	for i := g.at; i < len(g.items) && !end(g.items[i]); i++ {
		k := &g.items[i]
		if wanted(*k) {
			g.at = i + 1
			return k, thoughts
		}
		if text := skilletReasoningText(k.Object); k.typ == skilletReasoningItem && text != "" {
			thoughts = append(thoughts, text)
		}
	}
	return nil, nil
}

// user moves on to what follows a user message, and reports whether the store still has it.
func (g *skilletGuide) user(parts []rows.Object) bool {
	want := string(skilletInput(parts))
	found, _ := g.take(func(k skilletKnown) bool {
		return k.isUser() && string(skilletInput(skilletContentParts(k.Get("content")))) == want
	}, func(skilletKnown) bool { return false })
	return found != nil
}

// call returns the id of a call, and the reasoning before it.
func (g *skilletGuide) call(name, arguments string) (id string, thoughts []string) {
	k, thoughts := g.take(func(k skilletKnown) bool {
		return k.typ == skilletCallItem && k.Text("name") == name && k.Text("arguments") == arguments
	}, skilletKnown.isUser)
	if k != nil {
		id = k.Text("callId")
	}
	return id, thoughts
}

// text returns the reasoning before the next text.
func (g *skilletGuide) text() []string {
	_, thoughts := g.take(func(k skilletKnown) bool { return k.typ == skilletMessageItem },
		func(k skilletKnown) bool { return k.typ == skilletCallItem || k.isUser() })
	return thoughts
}

// rest returns the reasoning with which a turn ends: what the log knows nothing of is not between.
func (g *skilletGuide) rest() []string {
	found, thoughts := g.take(func(k skilletKnown) bool { return k.typ == skilletMessageItem || k.Object == nil },
		func(k skilletKnown) bool { return k.typ == skilletCallItem })
	if found != nil {
		g.at-- // it is of the next turn
	}
	return thoughts
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

// skilletReadStore returns the conversations of the store in order of their names.
func skilletReadStore(path string) (all []skilletConversation, err error) {
	conn, err := rows.OpenDatabase(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	const query = `SELECT id, user_id, session_name, created_at, item_json FROM session_items
		ORDER BY user_id, session_name, created_at, id`
	err = sqlitex.ExecuteTransient(conn, query, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
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

// skilletWriteStore adds a conversation to the store, which is made when it is not there, or replaces the one of its
// names. All of it is written, or nothing, as with an error of last, which is called in the end.
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
	there := false
	found := func(*sqlite.Stmt) error { there = true; return nil }
	execute := func(query string, args ...any) {
		if err != nil {
			return
		}
		args = append([]any{c.key.UserID, c.key.SessionName}, args...)
		if err = sqlitex.Execute(conn, query, &sqlitex.ExecOptions{Args: args, ResultFunc: found}); err != nil {
			err = fmt.Errorf("write session_items of %s: %w", path, err)
		}
	}
	if err = sqlitex.ExecuteScript(conn, skilletSchema, nil); err != nil {
		return fmt.Errorf("make session_items in %s: %w", path, err)
	}
	end, err := sqlitex.ImmediateTransaction(conn)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer end(&err)
	if replace {
		execute(`DELETE FROM session_items WHERE user_id = ? AND session_name = ?`)
	}
	execute(`SELECT 1 FROM session_items WHERE user_id = ? AND session_name = ? LIMIT 1`)
	if there {
		return fmt.Errorf("write %s: session %q of user %q: %w", path, c.key.SessionName, c.key.UserID, fs.ErrExist)
	}
	for _, i := range c.items {
		execute(`INSERT INTO session_items (user_id, session_name, created_at, item_json) VALUES (?, ?, ?, ?)`,
			i.at, i.text)
	}
	if err != nil {
		return err
	}
	return last()
}
