package transcripts

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Goose reads the database sessions.db of Goose, which has the usage of each model call. Session files, as versions
// before 1.10 wrote them, Goose itself took into its database.
var Goose = codec.Reading{
	Extensions: []string{".db"}, Tables: []string{"sessions", "messages", "schema_version"}, Transcript: true,
	Selects: true, ReadPath: inDatabase("sessions of Goose", decodeGooseDatabase), Beside: rows.DatabaseFiles,
}

// goose builds the rows of a session.
type goose struct {
	b     *builder
	model session.Model
	total session.Usage // of the whole session, where nothing else is counted
	calls []gooseCall   // in their order
	steps []*step
	open  bool // the last message was part of an answer of the model
	// seen reports that there is a message that the model sees before the next one.
	seen, any bool
}

// gooseCall is a model call. A compaction is not a step.
type gooseCall struct {
	modelUse
	compaction bool
}

// message adds a message. Those of the user have the results of tools, too.
func (d *goose) message(o rows.Object, content json.RawMessage) {
	b, role, visible := d.b, o.Text("role"), rows.Read(o.Text("metadata_json"))
	b.see(instant(o, "created_timestamp"))
	b.touched = nil
	toModel, toUser := string(visible.Get("agentVisible")) != "false", string(visible.Get("userVisible")) != "false"
	forModel := toModel && !toUser
	var parts []rows.Object
	for _, block := range contents(content) {
		part := partOf(block)
		switch {
		case d.exchange(block), part.Text("type") == "text" && part.Text("text") == "":
			continue
		case part.Text("type") == "file":
			part.Add(rows.NonEmpty("filename", block.Text("name")))
		}
		if role == session.RoleAssistant && !forModel { // it may be before a call or after it
			d.step()
			b.part(part)
		} else {
			parts = append(parts, part)
		}
	}
	switch text := joined(parts, ""); {
	case len(parts) == 0:
	case forModel && d.any && !d.seen && text != "":
		d.compaction(text)
	case forModel:
		d.open = false
		b.message(session.RoleSystem, parts...)
	case role == session.RoleUser:
		d.open = false
		b.message(session.RoleUser, parts...)
	default:
		b.Problem("is neither the user's nor the assistant's: left out")
	}
	if id := o.Text("message_id"); id != "" && b.touched != nil && b.touched.Row.Role != session.RoleAssistant {
		b.touched.named(id, "", "")
	}
	d.seen, d.any = d.seen || toModel, true
}

// exchange takes a block that is of a tool call or reports how a turn ended, and reports whether it was one.
func (d *goose) exchange(block rows.Object) bool {
	b, id := d.b, block.Text("id")
	switch block.Text("type") {
	case "toolRequest":
		d.step()
		request := block.Object("toolCall")
		value := request.Object("value")
		b.call(value.Text("name"), id, inputOf(value.Get("arguments")))
		if failure := request.Text("error"); value == nil && failure != "" {
			b.settle(id, rows.Raw(failure), true)
		}
	case "toolResponse":
		d.open = false
		result := block.Object("toolResult")
		output, failed, value := result.Get("value"), result.Text("status") == "error", result.Object("value")
		if value.Has("content") {
			output, failed = value.Get("content"), failed || value.True("isError")
		}
		if failed && output == nil {
			output = result.Get("error")
		}
		b.result(id, resultOf(forTheModel(output)), failed)
	case "thinking", "reasoning":
		if text := cmp.Or(block.Text("thinking"), block.Text("text")); text != "" {
			d.step()
			b.text("reasoning", text)
		}
	case "error":
		b.fails(cmp.Or(block.Text("message"), block.Text("kind"), "error"))
	case "toolConfirmationRequest", "redactedThinking", "conversationCompacted":
	case "actionRequired":
		if data := block.Object("data"); data.Text("actionType") == "toolConfirmationResponse" {
			d.confirmed(data.Text("id"), data.Text("permission"))
		}
	case "systemNotification":
		if kind := block.Text("notificationType"); kind == "inlineMessage" || kind == "creditsExhausted" {
			d.open = false
			b.notice(block.Text("msg"))
		}
	default:
		return false
	}
	return true
}

// confirmed notes the answer of the user to a question for a permission.
func (d *goose) confirmed(call, permission string) {
	switch allowed := strings.Contains(strings.ToLower(permission), "allow"); {
	case !allowed:
		d.b.judged(call, "reject", "")
	case strings.Contains(strings.ToLower(permission), "always"):
		d.b.judged(call, "always", "")
	default:
		d.b.judged(call, "once", "")
	}
}

// forTheModel leaves out what of a tool's output only the user sees.
func forTheModel(output json.RawMessage) json.RawMessage {
	var all []json.RawMessage
	for _, v := range rows.Elements(output) {
		block, _ := rows.Parse(v)
		if string(block.Object("annotations").Get("audience")) != `["user"]` {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return output
	}
	return rows.Raw(all)
}

// step begins a model call, unless the last message was part of one.
func (d *goose) step() {
	if d.open && d.b.turn != nil {
		return
	}
	d.open = true
	d.steps = append(d.steps, d.b.step(""))
	d.b.setModel(d.model)
}

// compaction adds a summary that replaces all messages before it, which the model no longer sees.
func (d *goose) compaction(summary string) {
	d.open = false
	c := compacted{summary: summary, auto: true}
	// The call that made the summary is not a step. Left in the list, it would shift the usage of each step to
	// the one before it.
	if i := slices.IndexFunc(d.calls, func(call gooseCall) bool { return call.compaction }); i >= 0 {
		call := d.calls[i]
		c.usage, c.after, c.model, c.cost = &call.usage, call.usage.Output, cmp.Or(call.model, d.model), call.cost
		d.calls = slices.Delete(d.calls, i, i+1)
	}
	d.b.compaction(c)
}

// finish gives the steps what they used. A call is counted when it has ended: unless each
// step has its call, it is of the last step that had begun by then.
func (d *goose) finish() *codec.Session {
	for i, call := range d.calls {
		if len(d.steps) == 0 {
			break
		}
		if len(d.steps) != len(d.calls) {
			for i = len(d.steps) - 1; i > 0 && d.steps[i].StartedAt > call.at; i-- {
			}
		}
		call.usage = call.usage.Add(d.steps[i].used())
		d.steps[i].count(call.modelUse, semconv.BasisInclusive)
	}
	if len(d.calls) == 0 { // nothing else is counted
		d.b.rest(d.total, semconv.BasisInclusive)
	}
	return d.b.finish()
}

// decodeGooseDatabase yields the sessions of a database. The program writes messages that change anew.
func decodeGooseDatabase(db *database) error {
	list, listed := db.table("SELECT * FROM sessions ORDER BY created_at, id")
	return cmp.Or(db.each(list, func(row rows.Object) *codec.Session {
		if !db.wants(row.Text("id"), row,
			"SELECT count(*), max(id), max(created_timestamp) FROM messages WHERE session_id = ?",
			"SELECT count(*), max(id) FROM usage_ledger WHERE session_id = ?") {
			return nil
		}
		return gooseSession(db, row)
	}), listed)
}

func gooseSession(db *database, row rows.Object) *codec.Session {
	id := row.Text("id")
	d := &goose{b: newBuilder(db.source, id, "goose")}
	b, title := d.b, cmp.Or(row.Text("name"), row.Text("description"))
	if title != "New Chat" && title != "CLI Session" && title != "ACP Session" { // nobody has named it
		b.Title = title
	}
	b.workspace(row.Text("working_dir"))
	d.total = counts{"accumulated_input_tokens", "accumulated_output_tokens", "", "accumulated_cache_read_tokens",
		"accumulated_cache_write_tokens"}.inclusive(row)
	b.parent(row.Text("parent_session_id"))
	b.mode(row.Text("goose_mode"))
	b.archived(milli(row.Text("archived_at")))
	config := rows.Read(row.Text("model_config_json"))
	if model := config.Text("model_name"); model != "" {
		d.model = session.Model{ProviderID: row.Text("provider_name"), ModelID: model}
		b.setModel(d.model)
	}
	b.s.AddMeta(rows.NonEmpty("goose", row.Texts("session_type", "schedule_id", "project_id")))
	b.see(milli(row.Text("created_at")))

	ledger, uncounted := db.table("SELECT * FROM usage_ledger WHERE session_id = ? ORDER BY id", id)
	for _, o := range ledger {
		d.calls = append(d.calls, d.callOf(o))
	}
	messages, unread := db.table("SELECT * FROM messages WHERE session_id = ? ORDER BY created_timestamp, id", id)
	db.Place.Record = "session " + id
	for _, err := range []error{uncounted, unread} {
		if err != nil {
			db.Problem("it is read as far as it is good: %v", err)
		}
	}
	for _, o := range messages {
		db.Place.Record = "message " + cmp.Or(o.Text("message_id"), string(o.Get("id")))
		if content := db.content(o, "content_json"); content != nil {
			d.message(o, content)
		}
	}
	if updated := milli(row.Text("updated_at")); updated > 0 {
		b.s.See(updated)
		b.At = max(b.At, updated)
	}
	return d.finish()
}

// callOf returns the call of a row.
func (d *goose) callOf(o rows.Object) gooseCall {
	c := gooseCall{compaction: number(o, "is_compaction") != 0}
	c.at, c.cost = instant(o, "created_timestamp"), rows.USD(o.Get("cost"))
	c.usage = counts{"input_tokens", "output_tokens", "", "cache_read_tokens", "cache_write_tokens"}.inclusive(o)
	if model := o.Text("model"); model != "" {
		c.model = session.Model{ProviderID: d.model.ProviderID, ModelID: model}
	}
	return c
}
