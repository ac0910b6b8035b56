package transcripts

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Zed reads the database threads.db of Zed, which has a row for each thread of its agent: JSON, mostly compressed.
//
// A thread has the usage of the last request after each message of the user, and that of all requests. What the former
// do not have is counted in the first answer. Messages have no times: all have that at which the thread was created.
var Zed = codec.Reading{
	Extensions: []string{".db"}, Tables: []string{"threads"}, Transcript: true, Selects: true,
	ReadPath: inDatabase("threads of Zed", decodeZed), Beside: rows.DatabaseFiles,
}

func decodeZed(db *database) error {
	// The data of all threads may be large: it is read one by one.
	list, err := db.table("SELECT id, updated_at, summary, data_type, length(data) FROM threads " +
		"ORDER BY updated_at, id")
	return cmp.Or(db.each(list, func(row rows.Object) *codec.Session {
		id := row.Text("id")
		if !db.wants(id, row) {
			return nil
		}
		db.Place.Record = "thread " + id
		thread, about, err := zedThread(db, id)
		if err != nil {
			db.Problem("it is left out: %v", err)
			return nil
		}
		d := zed{b: newBuilder(db.source, id, "zed")}
		d.about(about, thread)
		for i, v := range rows.Elements(thread.Get("messages")) {
			d.message(v, i+1)
		}
		d.b.changed(milli(cmp.Or(about.Text("updated_at"), thread.Text("updated_at"))))
		d.count(thread)
		return d.b.finish()
	}), err)
}

// zedThread reads a thread and its row.
func zedThread(db *database, id string) (thread, about rows.Object, err error) {
	const maxSize = 1 << 30 // of a thread that is unpacked
	list, err := db.table("SELECT *, hex(data) AS data FROM threads WHERE id = ?", id)
	if err != nil || len(list) == 0 {
		return nil, nil, cmp.Or(err, errors.New("it is not there"))
	}
	about = list[0]
	data, err := hex.DecodeString(about.Text("data"))
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
	if !thread.Has("messages") {
		return nil, nil, errors.New("its data has no messages")
	}
	return thread, about, nil
}

// zed builds the rows of a thread.
type zed struct {
	b     *builder
	model session.Model
	// asked is the message of the user that the next answers are to; requests are the steps with it.
	asked    string
	requests []zedRequest
}

type zedRequest struct {
	*step
	asked string
}

func (d *zed) about(about, thread rows.Object) {
	d.b.parent(cmp.Or(about.Text("parent_id"), thread.Object("subagent_context").Text("parent_thread_id")))
	if dir, _, _ := strings.Cut(about.Text("folder_paths"), "\n"); filepath.IsAbs(dir) {
		d.b.workspace(dir)
	}
	d.b.mode(thread.Text("profile"))
	model := thread.Object("model")
	d.model = session.Model{ProviderID: model.Text("provider"), ModelID: model.Text("model")}
	d.b.setModel(d.model)
	if title := cmp.Or(about.Text("summary"), thread.Text("title"), thread.Text("summary")); title != "New Thread" {
		d.b.Title = title
	}
	if thread.Has("detailed_summary") {
		d.b.s.SetMeta("zed", thread.Only("detailed_summary"))
	}
	d.b.see(milli(cmp.Or(about.Text("created_at"), about.Text("updated_at"), thread.Text("updated_at"))))
}

func (d *zed) message(v json.RawMessage, n int) {
	if kind, ok := rows.Text(v); ok && kind != "" {
		return // Resume: the turn goes on
	}
	o, err := rows.Parse(v)
	user, agent, summary := o.Object("User"), o.Object("Agent"), o.Object("Compaction")
	switch {
	case err != nil:
		d.b.Problem("message %d is not an object: left out", n)
	case user != nil:
		d.user(user)
	case agent != nil:
		d.agent(agent)
	case summary != nil:
		d.b.compaction(compacted{summary: cmp.Or(summary.Text("summary"), summary.Text("text")), auto: true})
	default:
		d.b.Problem("message %d is of an unknown kind: left out", n)
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
	d.b.message(session.RoleUser, parts...).named(d.asked, "", "")
}

// step begins a model call.
func (d *zed) step() {
	d.requests = append(d.requests, zedRequest{d.b.step(""), d.asked})
	d.b.setModel(d.model)
}

func (d *zed) agent(o rows.Object) {
	b, results := d.b, o.Object("tool_results")
	d.step()
	for block := range rows.Objects(o.Get("content")) {
		thinking, use := block.Object("Thinking"), block.Object("ToolUse")
		switch {
		case block.Has("Text"):
			b.text("text", block.Text("Text"))
		case thinking != nil:
			b.text("reasoning", thinking.Text("text"))
		case use != nil:
			d.call(use, results.Object(use.Text("id")))
		case !block.Has("RedactedThinking"):
			b.part(blockPart(block))
		}
	}
	b.answered()
}

// call adds a tool call with its result, nil if there is none.
func (d *zed) call(use, result rows.Object) {
	id, input := use.Text("id"), use.Get("input")
	if inner := use.Object("input"); len(inner) == 1 && inner[0].Key == "Json" {
		input = inner[0].Value
	}
	if string(use.Get("is_input_complete")) == "false" && use.Text("raw_input") != "" {
		input = use.Get("raw_input")
	}
	d.b.call(use.Text("name"), id, inputOf(input))
	if result == nil {
		return
	}
	output, failed := valueOf(result.Get("content"), "Text", "text"), result.True("is_error")
	d.b.settle(id, output, failed)
	if text, _ := rows.Text(output); failed && strings.HasPrefix(text, "Permission to run tool denied by user") {
		d.b.judged(id, "reject", "")
	}
}

// count gives the last step after each message of the user what it used, and the first what is left.
func (d *zed) count(thread rows.Object) {
	used := thread.Object("request_token_usage")
	for i, r := range d.requests {
		u := anthropicCounts.of(used.Object(r.asked))
		if u.Total() > 0 && (i+1 == len(d.requests) || d.requests[i+1].asked != r.asked) {
			r.count(modelUse{usage: u}, semconv.BasisExclusive)
		}
	}
	d.b.rest(anthropicCounts.of(thread.Object("cumulative_token_usage")), semconv.BasisExclusive)
}
