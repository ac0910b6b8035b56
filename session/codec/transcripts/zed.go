package transcripts

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Zed reads the database threads.db of Zed, which has a row for each thread of its
// agent: JSON, mostly compressed.
//
//	User              user message
//	Agent             a step: reasoning, text, and tool calls with their results
//	Resume            passed over: the turn goes on
//
// A thread has the usage of the last request after each message of the user, and that of all
// requests. What the former do not have is counted in the first answer. Messages have no
// times: all have that at which the thread was created.
//
// What cannot be read is reported and left out; report may be nil. An error is yielded when
// the file is not such a database.
var Zed = codec.Reading{
	Extensions: []string{".db"}, Tables: []string{"threads"}, Transcript: true, Selects: true,
	DecodeFile: inDatabase("threads of Zed", decodeZed), Beside: rows.DatabaseFiles,
}

func decodeZed(ctx context.Context, conn *sqlite.Conn, _ string, wanted codec.Wanted, report func(codec.Problem),
	yield func(*codec.Session) bool) error {
	// The data of all threads may be large: it is read one by one.
	list, err := table(conn,
		"SELECT id, updated_at, summary, data_type, length(data) FROM threads ORDER BY updated_at, id")
	if err != nil {
		return err
	}
	for _, row := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		id := row.Text("id")
		if !wants(wanted, id, row) {
			continue
		}
		thread, about, err := zedThread(conn, id)
		if err != nil {
			report(codec.Problem{Record: "thread " + id, Reason: "it is left out: " + err.Error()})
			continue
		}
		d := zed{b: newBuilder(id, "zed", report), place: "thread " + id}
		d.about(about, thread)
		d.messages(thread)
		d.b.changed(milli(cmp.Or(about.Text("updated_at"), thread.Text("updated_at"))))
		d.count(thread)
		if !yield(d.b.finish()) {
			return nil
		}
	}
	return nil
}

// zedThread reads a thread and its row without it.
func zedThread(conn *sqlite.Conn, id string) (thread, about rows.Object, err error) {
	const maxSize = 1 << 30 // of a thread that is unpacked
	var data []byte
	err = sqlitex.Execute(conn, "SELECT * FROM threads WHERE id = ?", &sqlitex.ExecOptions{
		Args: []any{id},
		ResultFunc: func(stmt *sqlite.Stmt) error {
			for i := range stmt.ColumnCount() {
				if name := stmt.ColumnName(i); name != "data" {
					about.Set(name, strings.ToValidUTF8(stmt.ColumnText(i), "\uFFFD"))
					continue
				}
				data = make([]byte, stmt.ColumnLen(i))
				stmt.ColumnBytes(i, data)
			}
			return nil
		},
	})
	if err != nil {
		return nil, nil, err
	}
	switch kind := about.Text("data_type"); kind {
	case "zstd":
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxSize))
		if err != nil {
			return nil, nil, err
		}
		defer d.Close()
		if data, err = d.DecodeAll(data, nil); err != nil {
			return nil, nil, fmt.Errorf("unpack its data: %w", err)
		}
	case "json":
	default:
		return nil, nil, fmt.Errorf("its data is of the unknown type %q", kind)
	}
	if thread, err = parse(data); err != nil {
		return nil, nil, fmt.Errorf("its data is not a JSON object: %w", err)
	}
	if rows.Elements(thread.Get("messages")) == nil && !thread.Has("messages") {
		return nil, nil, errors.New("its data has no messages")
	}
	return thread, about, nil
}

// zed builds the rows of a thread.
type zed struct {
	b     *builder
	place string
	model session.Model
	first *rows.Message // of the agent
	// asked is the message of the user that the next answers are to; requests has the place
	// of the last step of each.
	asked    string
	requests []zedRequest
}

type zedRequest struct {
	stepRef
	asked string
}

func (d *zed) about(about, thread rows.Object) {
	row := &d.b.s.Row
	d.b.parent(cmp.Or(about.Text("parent_id"), thread.Object("subagent_context").Text("parent_thread_id")))
	if dir, _, _ := strings.Cut(about.Text("folder_paths"), "\n"); filepath.IsAbs(dir) {
		row.WorkspaceRoot = new(dir)
	}
	rows.SetText(&row.Mode, thread.Text("profile"))
	if model := thread.Object("model"); model.Text("model") != "" {
		d.model = session.Model{ProviderID: model.Text("provider"), ModelID: model.Text("model")}
		d.b.setModel(d.model)
	}
	d.b.Title = cmp.Or(about.Text("summary"), thread.Text("title"), thread.Text("summary"))
	if d.b.Title == "New Thread" {
		d.b.Title = ""
	}
	if thread.Has("detailed_summary") {
		d.b.s.SetMeta("zed", rows.Of("detailed_summary", thread.Get("detailed_summary")))
	}
	d.b.seeMilli(milli(cmp.Or(about.Text("created_at"), about.Text("updated_at"), thread.Text("updated_at"))))
}

func (d *zed) messages(thread rows.Object) {
	for i, v := range rows.Elements(thread.Get("messages")) {
		if kind, ok := rows.Text(v); ok && kind != "" {
			continue // Resume
		}
		o, err := rows.Parse(v)
		if err != nil {
			d.b.report(codec.Problem{Record: d.place,
				Reason: fmt.Sprintf("message %d is not an object: left out", i+1)})
			continue
		}
		switch {
		case o.Object("User") != nil:
			d.user(o.Object("User"))
		case o.Object("Agent") != nil:
			d.agent(o.Object("Agent"))
		case o.Object("Compaction") != nil:
			c := o.Object("Compaction")
			d.b.compaction(compacted{summary: cmp.Or(c.Text("summary"), c.Text("text")), auto: true})
		case o.Has("role"):
			d.older(o)
		default:
			d.b.report(codec.Problem{Record: d.place,
				Reason: fmt.Sprintf("message %d is of an unknown kind: left out", i+1)})
		}
	}
}

func (d *zed) user(o rows.Object) {
	var parts []rows.Object
	for block := range rows.Objects(o.Get("content")) {
		mention, image := block.Object("Mention"), block.Object("Image")
		switch {
		case block.Has("Text"):
			parts = append(parts, rows.TextPart("text", block.Text("Text")))
		case image.Text("source") != "":
			parts = append(parts, dataFile("image/png", image.Text("source")))
		case mention != nil:
			parts = append(parts, rows.DataPart("data-mention", mention))
		default:
			parts = append(parts, blockPart(block))
		}
	}
	d.asked = o.Text("id")
	if len(parts) > 0 {
		named(d.b.message(session.RoleUser, parts), d.asked, "", "")
	}
}

// step begins a model call.
func (d *zed) step() {
	b := d.b
	b.step(fmt.Sprint(len(d.requests)))
	if d.model.ModelID != "" {
		b.setModel(d.model)
	}
	if d.first == nil {
		d.first = b.turn
	}
	d.requests = append(d.requests, zedRequest{b.lastStep(), d.asked})
}

func (d *zed) agent(o rows.Object) {
	b, calls := d.b, 0
	results := o.Object("tool_results")
	d.step()
	for block := range rows.Objects(o.Get("content")) {
		thinking, use := block.Object("Thinking"), block.Object("ToolUse")
		switch {
		case block.Has("Text"):
			b.text("text", block.Text("Text"))
		case thinking != nil:
			b.text("reasoning", thinking.Text("text"))
		case use != nil:
			calls++
			d.call(use, results.Object(use.Text("id")))
		case block.Has("RedactedThinking"):
		default:
			b.part(blockPart(block))
		}
	}
	if calls == 0 {
		b.ended("finish", "")
	}
}

// call adds a tool call with its result, nil if there is none.
func (d *zed) call(use, result rows.Object) {
	b, id := d.b, use.Text("id")
	input := use.Get("input")
	if inner := use.Object("input"); len(inner) == 1 && inner[0].Key == "Json" {
		input = inner[0].Value
	}
	if string(use.Get("is_input_complete")) == "false" && use.Text("raw_input") != "" {
		input = use.Get("raw_input")
	}
	b.call(use.Text("name"), id, inputOf(input))
	if result == nil {
		return
	}
	failed := result.True("is_error")
	output := zedOutput(result.Get("content"))
	b.result(id, output, failed)
	if text, _ := rows.Text(output); failed && strings.HasPrefix(text, "Permission to run tool denied by user") {
		b.refused(id, "")
	}
}

// zedOutput is the output of a tool: the text where it is one.
func zedOutput(content json.RawMessage) json.RawMessage {
	all := rows.Elements(content)
	if len(all) == 0 {
		all = []json.RawMessage{content}
	}
	if len(all) == 1 {
		if _, ok := rows.Text(all[0]); ok {
			return all[0]
		}
		if block, err := rows.Parse(all[0]); err == nil {
			for _, key := range []string{"Text", "text"} {
				if block.Has(key) {
					return block.Get(key)
				}
			}
		}
	}
	return content
}

// older adds a message of a version before 0.3.
func (d *zed) older(o rows.Object) {
	var parts []rows.Object
	for block := range rows.Objects(o.Get("segments")) {
		switch kind := block.Text("type"); kind {
		case "text":
			parts = append(parts, rows.TextPart("text", block.Text("text")))
		case "thinking":
			parts = append(parts, rows.TextPart("reasoning", block.Text("text")))
		}
	}
	if o.Text("role") != session.RoleAssistant {
		if context := o.Text("context"); context != "" {
			parts = append(parts, rows.TextPart("text", context))
		}
		if role := o.Text("role"); len(parts) > 0 && (role == session.RoleUser || role == session.RoleSystem) {
			d.b.message(role, parts)
		}
		return
	}
	d.step()
	for _, p := range parts {
		d.b.part(p)
	}
	results := make(map[string]rows.Object)
	for r := range rows.Objects(o.Get("tool_results")) {
		results[r.Text("tool_use_id")] = r
	}
	for use := range rows.Objects(o.Get("tool_uses")) {
		d.call(use, results[use.Text("id")])
	}
}

// count gives the last step after each message of the user what it used, and the first
// what is left.
func (d *zed) count(thread rows.Object) {
	if d.first == nil {
		return
	}
	used, left := thread.Object("request_token_usage"), anthropicCounts.of(thread.Object("cumulative_token_usage"))
	for i, r := range d.requests {
		u := anthropicCounts.of(used.Object(r.asked))
		if u.Total() == 0 || i+1 < len(d.requests) && d.requests[i+1].asked == r.asked {
			continue
		}
		left = without(left, u)
		d.b.count(r.stepRef, modelUse{usage: u}, semconv.BasisExclusive)
	}
	if left.Total() > 0 {
		first := stepRef{d.first, 0}
		left = left.Add(usageOf(d.b.stepAt(first)))
		d.b.count(first, modelUse{usage: left}, semconv.BasisExclusive)
	}
}
