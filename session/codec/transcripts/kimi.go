package transcripts

import (
	"cmp"
	"crypto/md5" //nolint:gosec // the program names directories so
	"encoding/hex"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Kimi reads the file wire.jsonl of a session of Kimi CLI, or of one of its sub-agents: what the program's core sent
// to its interface. Beside it are context.jsonl, from which the system prompt and the summaries of compactions are
// taken, and the title. Nothing names the model.
var Kimi = kimiWire.reading(codec.Reading{
	Keys:       []string{"type=metadata protocol_version=* !created_at", "timestamp message={ !type !direction !uuid"},
	Extensions: []string{".jsonl"},
	Beside:     func(path string) []string { return siblings(path, "context.jsonl", "state.json", "meta.json") },
})

var kimiWire decoder = func(from *source, text []byte) (all []*codec.Session) {
	var d *kimi
	from.lines(text, func(o rows.Object) {
		message := o.Object("message")
		switch {
		case o.Text("type") == "metadata":
			all = []*codec.Session{} // nothing yet
		case message.Text("type") == "":
			from.Problem("is not a record of a message: left out")
		default:
			if d == nil {
				d = newKimi(from, o)
			}
			d.event(secondsOf(o.Get("timestamp")), message)
		}
	})
	if d == nil {
		return all
	}
	d.summaries = slices.Compact(d.summaries) // the model going back repeats one
	for i, m := range d.compactions {
		if at := len(d.summaries) - len(d.compactions) + i; at >= 0 { // one that is missing is the oldest
			m.Last().SetInner("summary", d.summaries[at])
		}
	}
	return d.b.all()
}

// kimi builds the rows of a session.
type kimi struct {
	b    *builder
	step *step
	// begins reports that there is nothing yet of the model call that began: a compaction may come first.
	begins  bool
	beganAt int64
	// call is the id of the last call, and input what is known of its input.
	call, input string
	requests    map[string]string // for approval: the calls
	compaction  compacted         // the next one
	compactions []*message
	summaries   []string
}

func newKimi(from *source, first rows.Object) *kimi {
	b := newBuilder(from, unnamed("kimi", first), "kimi-cli")
	d := &kimi{b: b, requests: make(map[string]string)}
	dir, err := filepath.Abs(filepath.Dir(from.path))
	if filepath.Base(from.path) != "wire.jsonl" || err != nil {
		return d
	}
	share, sub := "../../../", filepath.Dir(dir)
	if b = newBuilder(from, dirOf(from.path), "kimi-cli"); filepath.Base(sub) == "subagents" {
		share, dir = share+"../../", filepath.Dir(sub)
		b = newBuilder(from, valid(filepath.Base(dir)), "kimi-cli").child(b.s.Row.ID, "")
	}
	d.b = b
	for work := range rows.Objects(rows.Read(string(from.beside(share + "kimi.json"))).Get("work_dirs")) {
		sum := md5.Sum([]byte(work.Text("path"))) //nolint:gosec // see above
		if strings.HasSuffix(filepath.Base(filepath.Dir(dir)), hex.EncodeToString(sum[:])) {
			b.workspace(work.Text("path"))
		}
	}
	about, state := rows.Read(string(from.beside("meta.json"))), rows.Read(string(from.beside("state.json")))
	b.Title = cmp.Or(state.Text("custom_title"), about.Text("description"))
	b.model("", about.Object("launch_spec").Text("effective_model"))
	b.archived(secondsOf(state.Get("archived_at")))
	if state.True("plan_mode") {
		b.mode("plan")
	}
	d.readContexts(filepath.Dir(from.path))
	return d
}

// readContexts reads how each of what the model was given begins: a compaction puts the file before away.
func (d *kimi) readContexts(dir string) {
	files, _ := filepath.Glob(filepath.Join(dir, "context_*.jsonl")) // only a wrong pattern is an error
	slices.SortFunc(files, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) // they are counted
	})
	for _, name := range append(files, filepath.Join(dir, "context.jsonl")) {
		text, _ := codec.ReadFile(name) // one that is missing has nothing
		rows.Records(text, func(codec.Problem) {}, func(o rows.Object, _ int) {
			blocks := contents(o.Get("content"))
			switch role := o.Text("role"); {
			case len(blocks) == 0:
			case role == "_system_prompt":
				d.b.systemPrompt(blocks[0].Text("text"))
			case role == session.RoleUser && strings.HasPrefix(blocks[0].Text("text"), "<system>Previous context has"):
				d.summaries = append(d.summaries, joined(blocks[1:], "\n"))
			}
		})
	}
}

func (d *kimi) event(at int64, message rows.Object) {
	b, o := d.b, message.Object("payload")
	b.see(at)
	switch message.Text("type") {
	case "TurnBegin", "SteerInput", "BtwBegin": // the last is a question beside the turn
		if parts := partsOf(contents(firstOf(o, "user_input", "question"))...); len(parts) > 0 {
			d.compaction.auto = !strings.HasPrefix(parts[0].Text("text"), "/compact")
			b.message(session.RoleUser, parts...)
		}
	case "BtwEnd":
		b.step("")
		b.text("text", cmp.Or(o.Text("response"), o.Text("error")))
		b.end()
	case "TurnEnd":
		if b.turn != nil && b.turn.End == "" {
			b.ended("finish", "")
		}
	case "ToolResult":
		d.result(o.Text("tool_call_id"), o.Object("return_value"))
	case "CompactionBegin":
		d.compaction.durationMS = -b.At
	case "CompactionEnd":
		d.compaction.durationMS = max(0, d.compaction.durationMS+b.At)
		d.compactions = append(d.compactions, b.compaction(d.compaction))
		d.beganAt = b.At
	case "ApprovalRequest":
		d.requests[o.Text("id")] = o.Text("tool_call_id")
	case "ApprovalResponse", "ApprovalRequestResolved":
		reply := map[string]string{"approve": "once", "approve_for_session": "always", "reject": "reject"}
		b.judged(d.requests[o.Text("request_id")], reply[o.Text("response")], o.Text("feedback"))
	case "SubagentEvent": // the sub-agent has a file of its own
		if id := o.Text("agent_id"); id != "" {
			b.measure(o.Text("parent_tool_call_id"), "child_session_id", b.s.Row.ID+"-"+id)
		}
	case "StepBegin", "StepRetry", "StepInterrupted", "ContentPart", "ToolCall", "ToolCallPart", "StatusUpdate":
		d.answered(message.Text("type"), o)
	}
}

// answered takes what the model does.
func (d *kimi) answered(kind string, o rows.Object) {
	b, usage := d.b, o.Object("token_usage")
	if d.begins && (kind != "StatusUpdate" || usage != nil) {
		d.step, d.begins = b.step(""), false
		d.step.StartedAt = d.beganAt
	}
	switch kind {
	case "StepBegin":
		d.begins, d.beganAt = true, b.At
	case "StepRetry":
		b.part(rows.DataPart(session.TypeError, rows.Of("text", o.Text("error_type"))))
		d.begins, d.beganAt = true, b.At
	case "StepInterrupted":
		b.ended("abort", "")
	case "ContentPart":
		b.add(partsOf(o)...)
	case "ToolCall", "ToolCallPart": // a part of the input of the call before
		d.input += o.Text("arguments_part")
		if call := o.Object("function"); call != nil {
			d.call, d.input = *b.call(call.Text("name"), o.Text("id"), nil).Row.ToolCallID, call.Text("arguments")
		}
		if c := b.calls[d.call]; c != nil && d.input != "" {
			c.SetKey("input", inputOf(rows.Raw(d.input)))
		}
	case "StatusUpdate":
		d.compaction.before = cmp.Or(number(o, "context_tokens"), d.compaction.before)
		if d.step != nil && usage != nil {
			d.step.ResponseID = o.Text("message_id")
			d.step.count(modelUse{usage: counts{"input_other", "output", "", "input_cache_read",
				"input_cache_creation"}.of(usage)}, semconv.BasisExclusive)
			d.step.in.Touch(b.At)
		}
	}
}

func (d *kimi) result(id string, o rows.Object) {
	output, text := resultOf(o.Get("output")), o.Text("message")
	if blocks := contents(output); len(blocks) == 0 || o.True("is_error") {
		output = rows.Raw(strings.TrimSpace(text + "\n" + joined(blocks, "\n")))
	}
	if d.b.result(id, output, o.True("is_error")) && strings.Contains(string(o.Get("display")), `"Hook blocked"`) {
		d.b.denied(id, text)
	}
}
