package transcripts

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// kiroKinds are the kinds of records in a session file of Kiro CLI.
var kiroKinds = []string{"Prompt", "AssistantMessage", "ToolResults", "Clear", "Compaction"}

// Kiro reads session files of Kiro CLI, which are JSON lines, and the database data.sqlite3, in which
// the program keeps, or kept, the sessions of its classic interface.
//
// The content of a session file does not name its session: the name of the file does. Beside
// it Kiro CLI keeps its title, times and usage in another.
var Kiro = kiroLines.reading(codec.Reading{
	Keys:       []string{"data={ kind=" + strings.Join(kiroKinds, "|")},
	Extensions: []string{".jsonl"}, Tables: []string{"conversations", "state"},
	Selects:  true,
	ReadPath: inDatabase("sessions of Kiro", decodeKiroDatabase),
	Beside: func(path string) []string {
		return []string{path + "-wal", path + "-journal", strings.TrimSuffix(path, filepath.Ext(path)) + ".json"}
	},
})

const kiroProvider = "kiro"

// kiro builds the rows of a session.
type kiro struct {
	b     *builder
	model string
	// turns are what is known of turns: turn is the place of the one that runs, from 1.
	turns []rows.Object
	turn  int
}

func newKiro(from *source, id string) *kiro { return &kiro{b: newBuilder(from, id, "kiro-cli")} }

var kiroLines decoder = func(from *source, text []byte) []*codec.Session {
	id := nameOf(from.path)
	about := rows.Read(string(from.beside(id + ".json")))
	var d *kiro
	from.lines(text, func(o rows.Object) {
		kind, data := o.Text("kind"), o.Object("data")
		if !slices.Contains(kiroKinds, kind) || data == nil && kind != "Clear" {
			from.Problem("is not a record of a known kind with data: left out")
			return
		}
		if d == nil {
			d = newKiro(from, cmp.Or(about.Text("session_id"), id, unnamed("kiro", o)))
			d.about(about)
		}
		d.record(kind, data)
	})
	if d == nil {
		return nil
	}
	d.count()
	d.b.changed(milli(about.Text("updated_at")))
	return d.b.alone()
}

// about takes what the program keeps beside the session.
func (d *kiro) about(o rows.Object) {
	state := o.Object("session_state")
	info := state.Object("rts_model_state").Object("model_info")
	d.b.workspace(o.Text("cwd"))
	d.b.parent(o.Text("parent_session_id"))
	d.b.Title = redact.Headline(o.Text("title"))
	d.b.s.AddMeta(rows.NonEmpty("kiro", rows.NonEmpty("agent", state.Text("agent_name"))))
	d.uses(cmp.Or(info.Text("model_id"), info.Text("model_name")))
	d.turns = slices.Collect(rows.Objects(state.Object("conversation_metadata").Get("user_turn_metadatas")))
	d.b.see(milli(o.Text("created_at")))
}

// uses notes the model, and that a step ran on it if it is known which one it was.
func (d *kiro) uses(model string, steps ...*step) {
	if model == "" || model == "auto" && len(steps) > 0 {
		return
	}
	d.model = model
	d.b.model(kiroProvider, model)
	for _, s := range steps {
		s.ran(d.b.Model)
	}
}

func (d *kiro) record(kind string, data rows.Object) {
	b, id, blocks := d.b, data.Text("message_id"), contents(data.Get("content"))
	switch kind {
	case "Prompt":
		d.count()
		d.turn++
		b.see(secondsOf(data.Object("meta").Get("timestamp")))
		b.message(session.RoleUser, kiroParts(blocks)...).named(id, "", "")
	case "AssistantMessage":
		b.see(secondsOf(data.Object("meta").Get("timestamp")))
		b.response(id)
		b.model(kiroProvider, d.model)
		for _, block := range blocks {
			inner := block.Object("data")
			switch block.Text("kind") {
			case "toolUse":
				b.call(inner.Text("name"), inner.Text("toolUseId"), inputOf(inner.Get("input")))
			case "thinking", "reasoning":
				b.text("reasoning", cmp.Or(inner.Text("text"), inner.Text("thinking"), block.Text("data")))
			default:
				b.add(kiroParts([]rows.Object{block})...)
			}
		}
		b.answered()
	case "ToolResults":
		for _, block := range blocks {
			if block.Text("kind") == "toolResult" {
				d.result(block.Object("data"), "toolUseId")
			}
		}
	case "Compaction":
		b.compaction(compacted{summary: cmp.Or(data.Text("summary"), joined(kiroParts(blocks), "")), auto: true})
	}
}

// result adds the result of a call, which has the id under a key.
func (d *kiro) result(o rows.Object, id string) {
	failed := strings.EqualFold(o.Text("status"), "error")
	d.b.result(o.Text(id), valueOf(o.Get("content"), "data", "Text", "Json"), failed)
}

// kiroParts are the parts of blocks that are not a tool's, which may also be texts without a block.
func kiroParts(blocks []rows.Object) (parts []rows.Object) {
	for _, block := range blocks {
		inner := block.Object("data")
		media, _ := rows.Text(firstOf(inner, "source.data", "source.bytes", "source.Bytes"))
		switch kind := block.Text("kind"); {
		case kind == "text":
			parts = append(parts, partsOf(rows.TextPart("text", block.Text("data")))...)
		case kind == "image" && inner.Text("format") != "" && media != "":
			parts = append(parts, dataFile("image/"+inner.Text("format"), media))
		default:
			parts = append(parts, partsOf(block)...)
		}
	}
	return parts
}

var kiroCounts = counts{"input_token_count", "output_token_count", "", "cache_read_input_token_count",
	"cache_write_input_token_count"}

// count gives the turn that ends what is known of it: the turns are in order, and those
// that name their messages are of these.
func (d *kiro) count() {
	m := d.b.turn
	if m == nil || d.turn == 0 || d.turn > len(d.turns) {
		return
	}
	about := d.turns[d.turn-1]
	end := cmp.Or(milli(about.Text("end_timestamp")), secondsOf(about.Get("end_timestamp")))
	if end >= m.Row.CreatedAt && end > 0 {
		d.b.see(end)
		m.Touch(end)
		m.SetTrace("duration_ms", end-m.Row.CreatedAt)
	}
	if n := len(m.Steps); n > 0 {
		last := m.Steps[n-1]
		if u := kiroCounts.of(about); u.Total() > 0 { // 0 is what stands for a count that is not known
			last.count(modelUse{usage: u}, semconv.BasisExclusive)
		}
		d.uses(about.Text("model"), last)
	}
	var credits *float64
	for o := range rows.Objects(about.Get("metering_usage")) {
		if o.Text("unit") == "credit" {
			rows.AddCost(&credits, rows.USD(o.Get("value")))
		}
	}
	if credits != nil {
		m.SetMeta("kiro", rows.Of("credits", *credits))
	}
}

// decodeKiroDatabase yields the conversations of a database, of which each has a row.
func decodeKiroDatabase(db *database) error {
	list, listed := db.table("SELECT * FROM conversations_v2 ORDER BY created_at, conversation_id")
	return cmp.Or(db.each(list, func(row rows.Object) *codec.Session { return kiroConversation(db, row) }), listed)
}

// kiroConversation reads a row, nil for one that is damaged or not wanted.
func kiroConversation(db *database, row rows.Object) *codec.Session {
	id := row.Text("conversation_id")
	db.Place.Record = "conversation " + id
	o, err := rows.Parse([]byte(row.Text("value")))
	if err != nil {
		db.Problem("its value is not a JSON object: left out: %v", err)
		return nil
	}
	if id == "" || !db.wants(id, row) {
		return nil
	}
	d := newKiro(db.source, id)
	if dir := row.Text("key"); filepath.IsAbs(dir) {
		d.b.workspace(dir)
	}
	d.uses(cmp.Or(o.Object("model_info").Text("model_id"), o.Text("model")))
	d.b.see(moment(row, "created_at"))
	summary := contents(o.Get("latest_summary"))
	for entry := range rows.Objects(o.Get("history")) {
		d.b.see(milli(entry.Object("user").Text("timestamp")))
		if len(summary) > 0 {
			d.b.compaction(compacted{summary: summary[0].Text("text")})
			summary = nil
		}
		d.entry(entry)
	}
	d.b.changed(moment(row, "updated_at"))
	return d.b.finish()
}

// entry adds what the user, or a tool, said, and what the model answered.
func (d *kiro) entry(entry rows.Object) {
	b, user, about := d.b, entry.Object("user"), entry.Object("request_metadata")
	content := user.Object("content")
	for _, f := range content {
		inner := content.Object(f.Key)
		for r := range rows.Objects(inner.Get("tool_use_results")) {
			if d.result(r, "tool_use_id"); f.Key == "CancelledToolUses" {
				b.judged(r.Text("tool_use_id"), "reject", "")
			}
		}
		if prompt := inner.Text("prompt"); prompt != "" {
			parts := []rows.Object{rows.TextPart("text", prompt)}
			for image := range rows.Objects(user.Get("images")) {
				parts = append(parts, blockPart(image))
			}
			b.message(session.RoleUser, parts...)
		}
	}
	b.see(moment(about, "request_start_timestamp_ms"))
	answer := entry.Object("assistant")
	for _, f := range answer {
		d.answered(answer.Object(f.Key), about)
	}
}

// answered adds a response of the model.
func (d *kiro) answered(o, about rows.Object) {
	b := d.b
	step := b.response(o.Text("message_id"))
	step.RequestID = about.Text("request_id")
	b.model(kiroProvider, d.model)
	d.uses(about.Text("model_id"), step)
	b.text("text", o.Text("content"))
	for call := range rows.Objects(o.Get("tool_uses")) {
		b.call(cmp.Or(call.Text("name"), call.Text("orig_name")), call.Text("id"), inputOf(call.Get("args")))
	}
	b.see(moment(about, "stream_end_timestamp_ms"))
	b.turn.Touch(b.At)
	b.answered()
}
