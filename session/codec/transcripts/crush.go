package transcripts

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// Crush reads the database crush.db, which Crush has for each project. A session has its cost, with that of its
// sub-agents, and the tokens of its last model call: what earlier calls used is not kept.
var Crush = codec.Reading{
	Extensions: []string{".db"}, Tables: []string{"sessions", "messages", "files", "goose_db_version"}, Transcript: true,
	Selects: true, ReadPath: inDatabase("sessions of Crush", decodeCrush), Beside: rows.DatabaseFiles,
}

func decodeCrush(db *database) error {
	list, listed := db.table("SELECT * FROM sessions ORDER BY created_at, id")
	all := make(map[string]rows.Object)
	for _, row := range list {
		all[row.Text("id")] = row
	}
	return cmp.Or(db.each(list, func(row rows.Object) *codec.Session {
		id := row.Text("id")
		// Older versions have one without messages for the call that makes the title.
		if id == "title-"+row.Text("parent_session_id") || !db.wants(id, row,
			"SELECT count(*), max(updated_at), sum(length(parts)) FROM messages WHERE session_id = ?",
			"SELECT id, cost FROM sessions WHERE parent_session_id = ? ORDER BY id") {
			return nil
		}
		return crushSession(db, row, all)
	}), listed)
}

func crushSession(db *database, row rows.Object, all map[string]rows.Object) *codec.Session {
	id := row.Text("id")
	d := &crush{b: newBuilder(db.source, id, "crush"), row: row, all: all}
	b := d.b
	unnamed := []string{"New Session", "Untitled Session", "New Agent Session", "Fetch Analysis"}
	if title := row.Text("title"); !slices.Contains(unnamed, title) {
		b.Title = title
	}
	if dir, err := filepath.Abs(filepath.Dir(db.path)); err == nil && filepath.Base(dir) == ".crush" {
		b.workspace(valid(filepath.Dir(dir)))
	}
	if parent := row.Text("parent_session_id"); parent != "" {
		b.parent(parent)
		b.About.SubagentOf, b.About.SubagentID, b.About.CallID = parent, id, id[strings.LastIndex(id, "$")+1:]
	}
	b.see(instant(row, "created_at"))
	messages, unread := db.table("SELECT * FROM messages WHERE session_id = ? ORDER BY created_at, rowid", id)
	if unread != nil {
		db.problemOf("session "+id, "it is read as far as it is good: %v", unread)
	}
	for _, o := range messages {
		db.Place.Record = "message " + o.Text("id")
		if content := db.content(o, "parts"); content != nil {
			d.message(o, content)
		}
	}
	b.changed(instant(row, "updated_at")) // the count of tokens goes from one answer to the next
	usage := counts{input: "prompt_tokens", output: "completion_tokens"}.of(row)
	if d.last != nil && usage.Total() > 0 {
		d.last.count(modelUse{usage: usage}, semconv.BasisInclusive)
	}
	if usd := rows.USD(row.Get("cost")); usd != nil && *usd > 0 {
		b.Cost = new(max(0, store.AddCost(*usd, -d.delegated)))
	}
	return b.finish()
}

// crush builds the rows of a session.
type crush struct {
	b   *builder
	row rows.Object
	all map[string]rows.Object // sessions
	// last is the last model call that was counted, nil after a compaction.
	last *step
	// answer is the id of the last answer, and finished when it was complete.
	answer   string
	finished int64
	// delegated is what those sub-agents cost whose cost the program added.
	delegated float64
}

func (d *crush) message(o rows.Object, content json.RawMessage) {
	d.b.see(instant(o, "created_at"))
	switch role := o.Text("role"); {
	case number(o, "is_summary_message") != 0:
		d.summary(o, content)
	case role == session.RoleAssistant:
		d.answered(o, content)
	case role == "tool":
		for block := range rows.Objects(content) {
			if block.Text("type") == "tool_result" {
				d.result(block.Object("data"))
			}
		}
	case role == session.RoleUser || role == session.RoleSystem:
		d.asked(role, o.Text("id"), content)
	default:
		d.b.Problem("its role is unknown: left out")
	}
}

// asked adds what the user wrote, or ran. After a compaction within a turn, the program repeats what was asked.
func (d *crush) asked(role, id string, content json.RawMessage) {
	const resumed = "The previous session was interrupted because it got too long, the initial user request was: `"
	var parts []rows.Object
	ran := true
	for block := range rows.Objects(content) {
		if p := crushPart(block); p != nil {
			ran = ran && p.Text("type") == "data-shell-command"
			parts = append(parts, p)
		}
	}
	if len(parts) > 0 && (ran || strings.HasPrefix(parts[0].Text("text"), resumed)) {
		role = session.RoleSystem
	}
	d.b.message(role, parts...).named(id, "", "")
}

// crushPart is a part of a message that is not of a call as a part of ours, nil for one without content.
func crushPart(block rows.Object) rows.Object {
	data := block.Object("data")
	switch kind := block.Text("type"); {
	case kind == "finish" || kind == "text" && data.Text("text") == "":
		return nil
	case kind == "text":
		return partOf(data)
	case kind == "image_url":
		return urlFile("image/*", data.Text("url"))
	case kind == "binary" && data.Text("Data") != "":
		file := dataFile(cmp.Or(data.Text("MIMEType"), octets), data.Text("Data"))
		file.Add(rows.NonEmpty("filename", data.Text("Path")))
		return file
	case kind == "shell_command":
		return rows.DataPart("data-shell-command", data)
	}
	return blockPart(block)
}

// answered adds a model call. One that has nothing yet is left out.
func (d *crush) answered(o rows.Object, content json.RawMessage) {
	if string(content) == "[]" {
		return
	}
	b, step, finish := d.b, d.b.step(""), rows.Object(nil)
	d.answer = o.Text("id")
	b.model(o.Text("provider"), o.Text("model"))
	for block := range rows.Objects(content) {
		data := block.Object("data")
		switch block.Text("type") {
		case "reasoning":
			b.text("reasoning", data.Text("thinking"))
		case "tool_call":
			call := b.call(data.Text("name"), data.Text("id"), inputOf(rows.Raw(cmp.Or(data.Text("input"), "{}"))))
			b.measure(*call.Row.ToolCallID, "child_session_id", d.child(*call.Row.ToolCallID).Text("id"))
		case "finish":
			finish = data
		default:
			if p := crushPart(block); p != nil {
				b.part(p)
			}
		}
	}
	d.finished = b.see(instant(finish, "time"))
	b.turn.Touch(b.At)
	switch reason := finish.Text("reason"); reason {
	case "": // it goes on
	case "error":
		b.fails(strings.TrimSuffix(cmp.Or(finish.Text("message"), "error")+": "+finish.Text("details"), ": "))
	case "canceled":
		b.ended("abort", "")
	default:
		d.last, step.StopReason = step, reason
		if reason != "tool_use" && reason != "unknown" {
			b.ended("finish", "")
		}
	}
}

// child is the session of a sub-agent that a call started, nil for none. Its id is made of those of the answer and of
// the call.
func (d *crush) child(call string) rows.Object { return d.all[d.answer+"$$"+call] }

func (d *crush) result(data rows.Object) {
	id, text, failed := data.Text("tool_call_id"), data.Text("content"), data.True("is_error")
	output := rows.Raw(text)
	if media := data.Text("mime_type"); data.Text("data") != "" {
		kind, _, _ := strings.Cut(media, "/")
		output = withFiles(output, rows.Of("type", kind, "data", data.Get("data"), "mimeType", media))
	}
	if !d.b.result(id, output, failed) {
		return
	}
	by, reason, _ := strings.Cut(text, " by hook. Reason: ")
	if failed && strings.HasPrefix(strings.ToLower(text), "user denied permission") {
		d.b.judged(id, "reject", "")
	} else if failed && (by == "Tool call blocked" || by == "Turn halted") {
		d.b.denied(id, reason)
	}
	// The cost of a sub-agent that failed is not added to that of the session.
	usd := rows.USD(d.child(id).Get("cost"))
	if usd != nil && (!failed || strings.HasPrefix(text, "Sub-agent completed")) {
		d.delegated += *usd
	}
}

// summary adds a compaction, unless it failed. One that follows an answer at once is the program's own doing.
func (d *crush) summary(o rows.Object, content json.RawMessage) {
	text, failed := "", false
	for block := range rows.Objects(content) {
		data := block.Object("data")
		text, failed = text+data.Text("text"), failed || data.Text("reason") == "error"
	}
	if failed || text == "" {
		return
	}
	c := compacted{summary: text, auto: d.b.At <= d.finished+1000}
	if d.row.Text("summary_message_id") == o.Text("id") && number(d.row, "prompt_tokens") == 0 {
		c.after = number(d.row, "completion_tokens")
	}
	c.model = session.Model{ProviderID: o.Text("provider"), ModelID: o.Text("model")}
	d.b.compaction(c)
	d.last = nil
}
