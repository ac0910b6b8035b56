package transcripts

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// looksGoose reports whether a record with these keys, and the values of those that are
// strings, is one of a session file of Goose before its database.
func looksGoose(keys map[string]string) bool {
	_, counted := keys["message_count"]
	_, created := keys["created"]
	return counted && keys["working_dir"] != "" || created && keys["content"] == "[" &&
		(keys["role"] == session.RoleUser || keys["role"] == session.RoleAssistant)
}

// Goose reads the database sessions.db of Goose, which has the usage of each model call,
// or a session file, as versions before 1.10 wrote them: JSON lines, of which the first is
// about the session and the others are messages.
//
//	text, image, document        parts of a message
//	thinking                     reasoning part
//	toolRequest, toolResponse    part tool-<name>
//	toolConfirmationResponse     decision
//	error                        how the turn ended
//	what only the model sees     system message, or a data-compaction part
//
// The content of a session file does not name its session: the name of the file does.
//
// What cannot be read is reported and left out; report may be nil. An error is yielded when
// reading fails, or when nothing is of Goose.
var Goose = codec.Reading{
	Extensions: []string{".db", ".jsonl"}, SniffKeys: looksGoose,
	Tables: []string{"sessions", "messages", "schema_version"}, Transcript: true, Selects: true,
	Decode:     decoder(decodeGooseLines).stream,
	DecodeFile: decoder(decodeGooseLines).or(inDatabase("sessions of Goose", decodeGooseDatabase)),
	Beside:     rows.DatabaseFiles,
}

func decodeGooseLines(path string, text []byte, report func(codec.Problem)) ([]*codec.Session, error) {
	id := nameOf(path)
	var d *goose
	rows.Records(text, report, func(o rows.Object, line int) {
		if !o.Has("role") && !o.Has("working_dir") {
			report(codec.Problem{Line: line, Reason: "is neither a message nor about the session: left out"})
			return
		}
		if d == nil {
			if id == "" {
				id = unnamed("goose", o)
			}
			d = newGoose(id, report)
		}
		if o.Has("role") {
			d.message(o, o.Get("content"), o.Object("metadata"), fmt.Sprintf("line %d", line))
			return
		}
		d.about(o.Text("description"), o.Text("working_dir"))
		d.total = gooseTotal(o)
	})
	if d == nil {
		return nil, errors.New("read session file: nothing in it is of Goose")
	}
	return []*codec.Session{d.finish()}, nil
}

// goose builds the rows of a session.
type goose struct {
	b     *builder
	model session.Model
	total session.Usage // of the whole session, where nothing else is counted
	calls []gooseCall   // in their order
	steps []gooseStep
	open  bool // the last message was part of an answer of the model
	// seen reports that there is a message that the model sees before the next one.
	seen, any bool
}

// gooseCall is a model call. A compaction is not a step.
type gooseCall struct {
	modelUse
	compaction bool
}

type gooseStep struct {
	stepRef
	at int64
}

func newGoose(id string, report func(codec.Problem)) *goose {
	return &goose{b: newBuilder(id, "goose", report)}
}

// about notes what is known of the session.
func (d *goose) about(title, dir string) {
	if d.b.Title = title; title == "New Chat" || title == "CLI Session" || title == "ACP Session" {
		d.b.Title = "" // nobody has named it
	}
	rows.SetText(&d.b.s.Row.WorkspaceRoot, dir)
}

// gooseTotal is what a whole session used.
func gooseTotal(o rows.Object) session.Usage {
	return counts{"accumulated_input_tokens", "accumulated_output_tokens", "", "accumulated_cache_read_tokens",
		"accumulated_cache_write_tokens"}.inclusive(o)
}

// gooseMoment is a time, which is in seconds.
func gooseMoment(n int64) int64 {
	const year5138 = 100_000_000_000
	if n > 0 && n < year5138 {
		n *= 1000
	}
	return min(max(0, n), maxMoment)
}

// message adds a message. Those of the user have the results of tools, too.
func (d *goose) message(o rows.Object, content json.RawMessage, visible rows.Object, place string) {
	b := d.b
	b.seeMilli(gooseMoment(moment(o, "created")))
	b.touched = nil
	hiddenFrom := func(who string) bool { return string(visible.Get(who)) == "false" }
	forModel := hiddenFrom("userVisible") && !hiddenFrom("agentVisible")
	defer func() {
		d.seen = d.seen || !hiddenFrom("agentVisible")
		d.any = true
	}()
	var parts []rows.Object
	for _, v := range rows.Elements(content) {
		block, err := rows.Parse(v)
		if err != nil {
			d.b.report(codec.Problem{Record: place, Reason: "a part of the message is not an object: left out"})
			continue
		}
		if d.exchange(block, place) {
			continue
		}
		switch p := goosePart(block); {
		case p == nil:
		case o.Text("role") == session.RoleAssistant && !forModel: // it may be before a call or after it
			d.step()
			b.part(p)
		default:
			parts = append(parts, p)
		}
	}
	text := ""
	for _, p := range parts {
		text += p.Text("text")
	}
	switch role := o.Text("role"); {
	case len(parts) == 0:
	case forModel && d.any && !d.seen && text != "":
		d.compaction(text)
	case forModel:
		d.open = false
		b.message(session.RoleSystem, parts)
	case role == session.RoleUser:
		d.open = false
		b.message(session.RoleUser, parts)
	default:
		d.b.report(codec.Problem{Record: place, Reason: "is neither the user's nor the assistant's: left out"})
	}
	if id := o.Text("id"); id != "" && b.touched != nil && b.touched.Row.Role != session.RoleAssistant {
		named(b.touched, id, "", "")
	}
}

// exchange takes a block that is of a tool call or reports how a turn ended, and reports
// whether it was one.
func (d *goose) exchange(block rows.Object, place string) bool {
	b := d.b
	switch block.Text("type") {
	case "toolRequest":
		d.step()
		call := block.Object("toolCall")
		value := call.Object("value")
		b.call(cmp.Or(value.Text("name"), "unknown"), block.Text("id"), inputOf(value.Get("arguments")))
		if failure := call.Text("error"); value == nil && failure != "" {
			b.result(block.Text("id"), rows.Raw(failure), true)
		}
	case "toolResponse":
		d.open = false
		d.result(block, place)
	case "thinking", "reasoning":
		if text := cmp.Or(block.Text("thinking"), block.Text("text")); text != "" {
			d.step()
			b.part(rows.TextPart("reasoning", text))
		}
	case "error":
		if b.turn == nil {
			b.part(errorPart(cmp.Or(block.Text("message"), "error")))
		}
		b.ended("error", cmp.Or(block.Text("message"), block.Text("kind"), "error"))
	case "toolConfirmationRequest", "redactedThinking", "conversationCompacted":
	case "actionRequired":
		if data := block.Object("data"); data.Text("actionType") == "toolConfirmationResponse" {
			d.confirmed(data.Text("id"), data.Text("permission"))
		}
	case "systemNotification":
		if kind := block.Text("notificationType"); kind == "inlineMessage" || kind == "creditsExhausted" {
			d.open = false
			b.message(session.RoleSystem, []rows.Object{rows.TextPart("text", block.Text("msg"))})
		}
	default:
		return false
	}
	return true
}

// confirmed notes the answer of the user to a question for a permission.
func (d *goose) confirmed(call, permission string) {
	permission = strings.ToLower(strings.ReplaceAll(permission, "_", ""))
	if !strings.Contains(permission, "allow") {
		d.b.refused(call, "")
		return
	}
	reply := "once"
	if strings.Contains(permission, "always") {
		reply = "always"
	}
	d.b.decide(call, store.Decision{Action: "ask", Source: "user", Outcome: "allowed", Reply: reply})
}

// goosePart is content that is not a tool's as a part of ours, nil for what is empty.
func goosePart(block rows.Object) rows.Object {
	if block.Text("type") == "text" && block.Text("text") == "" {
		return nil
	}
	part := partOf(block)
	if part.Text("type") == "file" {
		part.Add(rows.NonEmpty("filename", block.Text("name")))
	}
	return part
}

func (d *goose) result(block rows.Object, place string) {
	id, result := block.Text("id"), block.Object("toolResult")
	output, failed := result.Get("value"), result.Text("status") == "error"
	if value := result.Object("value"); value != nil && value.Has("content") {
		output, failed = value.Get("content"), failed || value.True("isError")
	}
	if failure := result.Get("error"); failed && output == nil {
		output = failure
	}
	d.b.outcome(codec.Problem{Record: place}, id, resultOf(forTheModel(output)), failed)
}

// forTheModel leaves out what of a tool's output only the user sees.
func forTheModel(output json.RawMessage) json.RawMessage {
	var all []json.RawMessage
	for _, v := range rows.Elements(output) {
		block, _ := rows.Parse(v)
		audience := rows.Elements(block.Object("annotations").Get("audience"))
		if len(audience) == 1 && string(audience[0]) == `"user"` {
			continue
		}
		all = append(all, v)
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
	d.b.step(fmt.Sprint(len(d.steps)))
	d.b.setModel(d.model)
	d.steps = append(d.steps, gooseStep{d.b.lastStep(), d.b.At})
}

// compaction adds a summary that replaces all messages before it, which the model no
// longer sees.
func (d *goose) compaction(summary string) {
	d.open = false
	c := compacted{summary: summary, auto: true}
	for i, call := range d.calls {
		if call.compaction {
			c.usage, c.after = &call.usage, call.usage.Output
			// The call made the summary, and is not a step. Left in the list, it would shift the usage of each step to
			// the one before it.
			d.calls = append(d.calls[:i:i], d.calls[i+1:]...)
			m := d.b.compaction(c)
			m.SetMeta("model", cmp.Or(call.model, d.model))
			d.b.paid(m, call.cost)
			return
		}
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
			for i = len(d.steps) - 1; i > 0 && d.steps[i].at > call.at; i-- {
			}
		}
		step := d.steps[i].stepRef
		call.usage = call.usage.Add(usageOf(d.b.stepAt(step)))
		d.b.count(step, call.modelUse, semconv.BasisInclusive)
	}
	if len(d.calls) == 0 && len(d.steps) > 0 && d.total.Total() > 0 {
		// Nothing else is counted. The first answer stays the first when the session grows.
		first := d.steps[0]
		d.b.count(first.stepRef, modelUse{usage: d.total}, semconv.BasisInclusive)
		first.m.Touch(d.b.At)
	}
	return d.b.finish()
}

// decodeGooseDatabase yields the sessions of a database.
func decodeGooseDatabase(ctx context.Context, conn *sqlite.Conn, _ string, wanted codec.Wanted,
	report func(codec.Problem), yield func(*codec.Session) bool) error {
	list, listed := table(conn, "SELECT * FROM sessions ORDER BY created_at, id")
	if len(list) == 0 && listed != nil {
		return listed
	}
	for _, row := range list {
		if wanted != nil && !wants(wanted, row.Text("id"), row, gooseCounts(conn, row.Text("id"))...) {
			continue
		}
		s := gooseSession(conn, row, report)
		if err := ctx.Err(); err != nil {
			return err
		}
		if !yield(s) {
			return nil
		}
	}
	return listed
}

// gooseCounts are what a session has in other tables. The program writes messages that change anew.
func gooseCounts(conn *sqlite.Conn, id string) (all []rows.Object) {
	for _, query := range []string{
		"SELECT count(*), max(id), max(created_timestamp) FROM messages WHERE session_id = ?",
		"SELECT count(*), max(id) FROM usage_ledger WHERE session_id = ?",
	} {
		counts, _ := table(conn, query, id) // what cannot be read is reported with the session
		all = append(all, counts...)
	}
	return all
}

func gooseSession(conn *sqlite.Conn, row rows.Object, report func(codec.Problem)) *codec.Session {
	id := row.Text("id")
	d := newGoose(id, report)
	d.about(cmp.Or(row.Text("name"), row.Text("description")), row.Text("working_dir"))
	d.total = gooseTotal(row)
	d.b.parent(row.Text("parent_session_id"))
	rows.SetText(&d.b.s.Row.Mode, row.Text("goose_mode"))
	if at := sqlTime(row.Text("archived_at")); at > 0 {
		d.b.s.Row.ArchivedAt = new(at)
	}
	config := rows.Read(row.Text("model_config_json"))
	if model := config.Text("model_name"); model != "" {
		d.model = session.Model{ProviderID: row.Text("provider_name"), ModelID: model}
		d.b.setModel(d.model)
	}
	d.b.s.SetMeta("goose", row.Texts("session_type", "schedule_id", "project_id"))
	d.b.seeMilli(sqlTime(row.Text("created_at")))

	partly := func(err error) {
		if err != nil {
			report(codec.Problem{Record: "session " + id, Reason: "it is read as far as it is good: " + err.Error()})
		}
	}
	ledger, err := table(conn, "SELECT * FROM usage_ledger WHERE session_id = ? ORDER BY id", id)
	if err != nil && !strings.Contains(err.Error(), "no such table") { // older versions count sessions only
		partly(err)
	}
	for _, o := range ledger {
		d.calls = append(d.calls, d.callOf(o))
	}
	messages, err := table(conn, "SELECT * FROM messages WHERE session_id = ? ORDER BY created_timestamp, id", id)
	partly(err)
	for _, o := range messages {
		place := "message " + cmp.Or(o.Text("message_id"), string(o.Get("id")))
		content, err := rows.Value([]byte(o.Text("content_json")))
		if err != nil || len(content) == 0 || content[0] != '[' {
			report(codec.Problem{Record: place, Reason: "its content is not a JSON array: left out"})
			continue
		}
		about := rows.Of("id", o.Text("message_id"), "role", o.Text("role"), "created", moment(o, "created_timestamp"))
		d.message(about, content, rows.Read(o.Text("metadata_json")), place)
	}
	if updated := sqlTime(row.Text("updated_at")); updated > 0 {
		d.b.s.See(updated)
		d.b.At = max(d.b.At, updated)
	}
	return d.finish()
}

// callOf returns the call of a row.
func (d *goose) callOf(o rows.Object) gooseCall {
	c := gooseCall{compaction: number(o, "is_compaction") != 0}
	c.at = gooseMoment(moment(o, "created_timestamp"))
	c.usage = counts{"input_tokens", "output_tokens", "", "cache_read_tokens", "cache_write_tokens"}.inclusive(o)
	if model := o.Text("model"); model != "" {
		c.model = session.Model{ProviderID: d.model.ProviderID, ModelID: model}
	}
	if o.Has("cost") {
		c.cost = new(cost(o))
	}
	return c
}

// table returns the rows of a query as objects of their columns, as far as they can be
// read. Columns have been added over time, and nothing binds a program to their types.
func table(conn *sqlite.Conn, query string, args ...any) (all []rows.Object, err error) {
	err = sqlitex.Execute(conn, query, &sqlitex.ExecOptions{
		Args: args,
		ResultFunc: func(stmt *sqlite.Stmt) error {
			var o rows.Object
			for i := range stmt.ColumnCount() {
				switch name := stmt.ColumnName(i); stmt.ColumnType(i) {
				case sqlite.TypeInteger:
					o.Set(name, stmt.ColumnInt64(i))
				case sqlite.TypeFloat:
					if f := stmt.ColumnFloat(i); !math.IsNaN(f) && !math.IsInf(f, 0) {
						o.Set(name, f)
					}
				case sqlite.TypeText, sqlite.TypeBlob:
					o.Set(name, strings.ToValidUTF8(stmt.ColumnText(i), "\uFFFD"))
				}
			}
			all = append(all, o)
			return nil
		},
	})
	return all, err
}

// sqlTime reads a time as SQLite and programs write it, 0 if it is not one.
func sqlTime(text string) int64 {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", time.DateTime,
		"2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			return max(0, t.UnixMilli())
		}
	}
	return 0
}
