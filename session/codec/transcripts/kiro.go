package transcripts

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// kiroKinds are the kinds of records in a session file of Kiro CLI.
var kiroKinds = []string{"Prompt", "AssistantMessage", "ToolResults", "Clear", "Compaction"}

// looksKiro reports whether a record with these keys, and the values of those that are
// strings, is one of a session file of Kiro CLI.
func looksKiro(keys map[string]string) bool {
	return keys["data"] == "{" && slices.Contains(kiroKinds, keys["kind"])
}

// Kiro reads session files of Kiro CLI, which are JSON lines, and the database data.sqlite3, in which
// the program keeps, or kept, the sessions of its classic interface.
//
//	Prompt             user message
//	AssistantMessage   a step: reasoning, text, and tool calls
//	ToolResults        results of calls
//	Compaction         assistant message with a data-compaction part
//
// The content of a session file does not name its session: the name of the file does. Beside
// it Kiro CLI keeps its title, times and usage in another. What cannot be read is reported and
// left out; report may be nil. An error is yielded when reading fails, or when nothing is of Kiro.
var Kiro = codec.Reading{
	Extensions: []string{".jsonl"}, SniffKeys: looksKiro, Tables: []string{"conversations", "state"},
	Transcript: true, Selects: true,
	Decode:     decoder(decodeKiroLines).stream,
	DecodeFile: decoder(decodeKiroLines).or(inDatabase("sessions of Kiro", decodeKiroDatabase)),
	Beside:     besideKiro,
}

func besideKiro(path string) []string {
	return []string{path + "-wal", path + "-journal", strings.TrimSuffix(path, filepath.Ext(path)) + ".json"}
}

const kiroProvider = "kiro"

// kiro builds the rows of a session.
type kiro struct {
	b     *builder
	model string
	// turns are what is known of turns: turn is the place of the one that runs, from 1.
	turns []rows.Object
	turn  int
}

func decodeKiroLines(path string, text []byte, report func(codec.Problem)) ([]*codec.Session, error) {
	id, about := nameOf(path), rows.Object(nil)
	if id != "" {
		about = rows.Read(beside(path, strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))+".json"))
	}
	var d *kiro
	rows.Records(text, report, func(o rows.Object, line int) {
		if !slices.Contains(kiroKinds, o.Text("kind")) || o.Object("data") == nil && o.Text("kind") != "Clear" {
			report(codec.Problem{Line: line, Reason: "is not a record of a known kind with data: left out"})
			return
		}
		if d == nil {
			d = newKiro(cmp.Or(about.Text("session_id"), id, unnamed("kiro", o)), report)
			d.about(about)
		}
		d.record(o.Text("kind"), o.Object("data"), line)
	})
	if d == nil {
		return nil, errors.New("read session file: nothing in it is of Kiro")
	}
	d.count()
	d.b.changed(milli(about.Text("updated_at")))
	return []*codec.Session{d.b.finish()}, nil
}

func newKiro(id string, report func(codec.Problem)) *kiro {
	return &kiro{b: newBuilder(id, "kiro-cli", report)}
}

// about takes what the program keeps beside the session.
func (d *kiro) about(o rows.Object) {
	rows.SetText(&d.b.s.Row.WorkspaceRoot, o.Text("cwd"))
	d.b.parent(o.Text("parent_session_id"))
	d.b.Title = firstLine(o.Text("title"))
	state := o.Object("session_state")
	d.b.s.AddMeta(rows.NonEmpty("kiro", rows.NonEmpty("agent", state.Text("agent_name"))))
	info := state.Object("rts_model_state").Object("model_info")
	d.setModel(cmp.Or(info.Text("model_id"), info.Text("model_name")))
	d.turns = slices.Collect(rows.Objects(state.Object("conversation_metadata").Get("user_turn_metadatas")))
	d.b.seeMilli(milli(o.Text("created_at")))
}

func (d *kiro) setModel(id string) {
	if id != "" {
		d.model = id
		d.b.model(kiroProvider, id)
	}
}

// kiroMoment is a time in seconds, which may have a fraction, 0 if it is not one.
func kiroMoment(v json.RawMessage) int64 {
	var seconds float64
	if json.Unmarshal(v, &seconds) != nil || !(seconds > 0) || seconds > maxMoment/1000 {
		return 0
	}
	return int64(math.Round(seconds * 1000))
}

func (d *kiro) record(kind string, data rows.Object, line int) {
	b := d.b
	switch kind {
	case "Prompt":
		d.count()
		d.turn++
		b.seeMilli(kiroMoment(data.Object("meta").Get("timestamp")))
		var parts []rows.Object
		for _, block := range contents(data.Get("content")) {
			parts = append(parts, kiroPart(block))
		}
		if len(parts) > 0 {
			named(b.message(session.RoleUser, parts), data.Text("message_id"), "", "")
		}
	case "AssistantMessage":
		b.seeMilli(kiroMoment(data.Object("meta").Get("timestamp")))
		d.assistant(data)
	case "ToolResults":
		for _, block := range contents(data.Get("content")) {
			if block.Text("kind") == "toolResult" {
				result := block.Object("data")
				b.outcome(codec.Problem{Line: line}, result.Text("toolUseId"), kiroOutput(result.Get("content")),
					strings.EqualFold(result.Text("status"), "error"))
			}
		}
	case "Compaction":
		b.compaction(compacted{summary: cmp.Or(data.Text("summary"), kiroText(data)), auto: true})
	}
}

// kiroText is the text of a record.
func kiroText(data rows.Object) (text string) {
	for _, block := range contents(data.Get("content")) {
		text += kiroPart(block).Text("text")
	}
	return text
}

func (d *kiro) assistant(data rows.Object) {
	b, calls := d.b, 0
	step := b.step(data.Text("message_id"))
	step.ResponseID = data.Text("message_id")
	if d.model != "" {
		b.model(kiroProvider, d.model)
	}
	for _, block := range contents(data.Get("content")) {
		inner := block.Object("data")
		switch block.Text("kind") {
		case "toolUse":
			calls++
			b.call(inner.Text("name"), inner.Text("toolUseId"), inputOf(inner.Get("input")))
		case "thinking", "reasoning":
			b.text("reasoning", cmp.Or(inner.Text("text"), inner.Text("thinking"), block.Text("data")))
		default:
			if p := kiroPart(block); p.Text("type") != "text" || p.Text("text") != "" {
				b.part(p)
			}
		}
	}
	if calls == 0 {
		b.ended("finish", "")
	}
}

// kiroPart is a block that is not a tool's as a part of ours.
func kiroPart(block rows.Object) rows.Object {
	switch inner := block.Object("data"); block.Text("kind") {
	case "text":
		return rows.TextPart("text", block.Text("data"))
	case "image":
		if format := inner.Text("format"); format != "" {
			source := inner.Object("source")
			data := cmp.Or(source.Text("data"), source.Text("bytes"), source.Text("Bytes"))
			if data != "" {
				return dataFile("image/"+format, data)
			}
		}
	case "": // text that is not in a block
		if block.Has("text") {
			return rows.TextPart("text", block.Text("text"))
		}
	}
	return blockPart(block)
}

// kiroOutput is the output of a tool: the value where it is one.
func kiroOutput(content json.RawMessage) json.RawMessage {
	blocks := rows.Elements(content)
	if len(blocks) != 1 {
		return content
	}
	block, err := rows.Parse(blocks[0])
	if err != nil {
		return content
	}
	for _, key := range []string{"data", "Text", "Json"} {
		if block.Has(key) {
			return block.Get(key)
		}
	}
	return content
}

// count gives the turn that ends what is known of it: the turns are in order, and those
// that name their messages are of these.
func (d *kiro) count() {
	b := d.b
	if b.turn == nil || d.turn == 0 || d.turn > len(d.turns) {
		return
	}
	m, about := b.turn, d.turns[d.turn-1]
	end := cmp.Or(milli(about.Text("end_timestamp")), kiroMoment(about.Get("end_timestamp")))
	if end >= m.Row.CreatedAt && end > 0 {
		b.seeMilli(end)
		m.Touch(end)
		m.SetTrace("duration_ms", end-m.Row.CreatedAt)
	}
	a := b.answer(m)
	last := len(a.Steps) - 1
	u := counts{"input_token_count", "output_token_count", "", "cache_read_input_token_count",
		"cache_write_input_token_count"}.of(about)
	if u.Total() > 0 && last >= 0 { // 0 is what stands for a count that is not known
		b.count(stepRef{m, last}, modelUse{usage: u}, semconv.BasisExclusive)
	}
	if model := about.Text("model"); model != "" && model != "auto" && last >= 0 {
		a.Steps[last].Model = &session.Model{ProviderID: kiroProvider, ModelID: model}
		d.setModel(model)
	}
	credits, known := 0.0, false
	for o := range rows.Objects(about.Get("metering_usage")) {
		if o.Text("unit") == "credit" {
			credits, known = credits+cost(rows.Of("cost", o.Get("value"))), true
		}
	}
	if known {
		m.SetMeta("kiro", rows.Of("credits", credits))
	}
}

// decodeKiroDatabase yields the conversations of a database. Newer versions have a table
// with a row for each; older ones one with the last of each directory.
func decodeKiroDatabase(ctx context.Context, conn *sqlite.Conn, _ string, wanted codec.Wanted,
	report func(codec.Problem), yield func(*codec.Session) bool) error {
	list, listed := table(conn, "SELECT * FROM conversations_v2 ORDER BY created_at, conversation_id")
	if listed != nil && strings.Contains(listed.Error(), "no such table") {
		listed = nil
	}
	older, err := table(conn, "SELECT * FROM conversations ORDER BY key")
	seen := make(map[string]bool)
	for _, row := range append(list, older...) {
		if err := ctx.Err(); err != nil {
			return err
		}
		s := kiroConversation(row, seen, wanted, report)
		if s != nil && !yield(s) {
			return nil
		}
	}
	return cmp.Or(listed, err)
}

// kiroConversation reads a row, nil for one that is damaged, known, or not wanted.
func kiroConversation(row rows.Object, seen map[string]bool, wanted codec.Wanted,
	report func(codec.Problem)) *codec.Session {
	place := "conversation " + cmp.Or(row.Text("conversation_id"), row.Text("key"))
	o, err := rows.Parse([]byte(row.Text("value")))
	if err != nil {
		report(codec.Problem{Record: place, Reason: "its value is not a JSON object: left out: " + err.Error()})
		return nil
	}
	id := cmp.Or(row.Text("conversation_id"), o.Text("conversation_id"))
	if id == "" || seen[id] {
		return nil
	}
	if seen[id] = true; !wants(wanted, id, row) {
		return nil
	}
	d := newKiro(id, report)
	if dir := row.Text("key"); filepath.IsAbs(dir) {
		d.b.s.Row.WorkspaceRoot = new(dir)
	}
	d.setModel(cmp.Or(o.Object("model_info").Text("model_id"), o.Text("model")))
	d.b.seeMilli(moment(row, "created_at"))
	history := rows.Elements(o.Get("history"))
	if history == nil && o.Has("history") {
		report(codec.Problem{Record: place, Reason: "its history is not a list: left out"})
	}
	for i, v := range history {
		entry, err := rows.Parse(v)
		if err != nil {
			report(codec.Problem{Record: place,
				Reason: fmt.Sprintf("entry %d of its history is not an object: left out", i+1)})
			continue
		}
		if summary := rows.Elements(o.Get("latest_summary")); i == 0 && len(summary) > 0 {
			if text, ok := rows.Text(summary[0]); ok {
				d.b.seeMilli(milli(entry.Object("user").Text("timestamp")))
				d.b.compaction(compacted{summary: text})
			}
		}
		d.entry(entry, place)
	}
	d.b.changed(moment(row, "updated_at"))
	return d.b.finish()
}

// entry adds what the user, or a tool, said, and what the model answered.
func (d *kiro) entry(entry rows.Object, place string) {
	b, user, about := d.b, entry.Object("user"), entry.Object("request_metadata")
	b.seeMilli(milli(user.Text("timestamp")))
	content := user.Object("content")
	for _, f := range content {
		inner := content.Object(f.Key)
		for r := range rows.Objects(inner.Get("tool_use_results")) {
			id := r.Text("tool_use_id")
			b.outcome(codec.Problem{Record: place}, id, kiroOutput(r.Get("content")),
				strings.EqualFold(r.Text("status"), "error"))
			if f.Key == "CancelledToolUses" {
				b.refused(id, "")
			}
		}
		prompt := inner.Text("prompt")
		if prompt == "" {
			continue
		}
		parts := []rows.Object{rows.TextPart("text", prompt)}
		for image := range rows.Objects(user.Get("images")) {
			parts = append(parts, blockPart(image))
		}
		b.message(session.RoleUser, parts)
	}
	b.seeMilli(moment(about, "request_start_timestamp_ms"))
	answer := entry.Object("assistant")
	for _, f := range answer {
		d.answered(answer.Object(f.Key), about)
	}
}

// answered adds a response of the model.
func (d *kiro) answered(o, about rows.Object) {
	b := d.b
	step := b.step(cmp.Or(o.Text("message_id"), about.Text("message_id")))
	step.ResponseID, step.RequestID = o.Text("message_id"), about.Text("request_id")
	if model := about.Text("model_id"); model != "" && model != "auto" {
		step.Model = &session.Model{ProviderID: kiroProvider, ModelID: model}
		d.setModel(model)
	} else if d.model != "" {
		b.model(kiroProvider, d.model)
	}
	b.text("text", o.Text("content"))
	calls := rows.Elements(o.Get("tool_uses"))
	for _, v := range calls {
		if call, err := rows.Parse(v); err == nil {
			b.call(cmp.Or(call.Text("name"), call.Text("orig_name")), call.Text("id"), inputOf(call.Get("args")))
		}
	}
	b.seeMilli(moment(about, "stream_end_timestamp_ms"))
	b.turn.Touch(b.At)
	if len(calls) == 0 {
		b.ended("finish", "")
	}
}
