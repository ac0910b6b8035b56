package transcripts

import (
	"cmp"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Amp reads a thread of Amp, T-<id>.json: one object, which the program writes again as a whole. Prompts and the ends
// of answers have times. Messages that the user edited or took back are not kept.
var Amp = decodeAmp.reading(codec.Reading{
	Keys:       []string{"id=T-* created messages=["},
	Extensions: []string{".json"},
})

var decodeAmp decoder = func(from *source, text []byte) []*codec.Session {
	thread, all := from.list(text, "messages")
	id := cmp.Or(thread.Text("id"), nameOf(from.path))
	if !strings.HasPrefix(id, "T-") || len(all) == 0 && !thread.Has("created") {
		return nil
	}
	d := amp{b: newBuilder(from, id, "amp"), ended: make(map[string]string)}
	copies := d.about(thread)
	for i, m := range all {
		from.Place.Line = m.line
		if i == copies && copies > 0 {
			d.b.owns()
			d.b.see(moment(thread, "created"))
		}
		d.message(m.Object)
	}
	return d.b.alone()
}

type amp struct {
	b *builder
	// ended are when model calls ended, by the ids of their messages: older versions have it in the ledger only.
	ended map[string]string
}

// about takes what is known of the thread, and returns how many of the messages are copies of its parent's.
func (d *amp) about(thread rows.Object) (copies int) {
	b, env := d.b, thread.Object("env").Object("initial")
	b.Title = thread.Text("title")
	b.mode(thread.Text("agentMode"))
	credits := 0.0
	for event := range rows.Objects(thread.Object("usageLedger").Get("events")) {
		if spent := rows.USD(event.Get("credits")); spent != nil {
			credits += *spent
		}
		if event.Text("operationType") == "inference" {
			d.ended[string(event.Get("toMessageId"))] = event.Text("timestamp")
		}
	}
	b.s.AddMeta(rows.NonEmpty("amp", rows.NonEmpty("credits", credits)))
	for tree := range rows.Objects(env.Get("trees")) {
		if uri := tree.Text("uri"); strings.HasPrefix(uri, "file:") && b.s.Row.WorkspaceRoot == nil {
			b.workspace(uriPath(uri))
		}
	}
	if parent := thread.Text("mainThreadID"); parent != "" {
		b.parent(parent)
		b.About.SubagentOf, b.About.SubagentID = parent, b.s.Row.ID
	}
	for r := range rows.Objects(thread.Get("relationships")) {
		switch parent := r.Text("threadID"); {
		case r.Text("role") != "child":
		case r.Text("type") == "fork" && r.Has("messageIndex"):
			b.copies(parent)
			return int(number(r, "messageIndex")) + 1
		case b.s.Row.ParentID == nil:
			b.parent(parent)
		}
	}
	b.see(moment(thread, "created"))
	return 0
}

func (d *amp) message(o rows.Object) {
	b, blocks := d.b, contents(o.Get("content"))
	switch role := o.Text("role"); role {
	case session.RoleUser:
		b.see(moment(o.Object("meta"), "sentAt"))
		var parts []rows.Object
		for _, block := range blocks {
			if block.Text("type") == "tool_result" {
				d.result(block)
			} else {
				parts = append(parts, partsOf(block)...)
			}
		}
		if files := o.Object("fileMentions").Get("files"); len(parts) > 0 && len(rows.Elements(files)) > 0 {
			parts = append(parts, rows.DataPart("data-file-mentions", files))
		}
		if o.Object("source").Text("type") == "course-correction" { // another model wrote it
			role = session.RoleSystem
		}
		b.message(role, parts...)
	case session.RoleAssistant:
		d.answered(o, blocks)
	case "info":
		d.info(blocks)
	default:
		b.Problem("is neither the user's nor the assistant's: left out")
	}
}

// answered adds a model call. One that has nothing yet is left out.
func (d *amp) answered(o rows.Object, blocks []rows.Object) {
	b, state, usage := d.b, o.Object("state"), o.Object("usage")
	if len(blocks) == 0 && usage == nil && state.Text("type") == "streaming" {
		return
	}
	step := b.step("")
	b.model("", usage.Text("model"))
	b.see(milli(cmp.Or(usage.Text("timestamp"), d.ended[string(o.Get("messageId"))])))
	for _, block := range blocks {
		b.block(block)
	}
	if usage != nil {
		step.count(modelUse{usage: ampUsage(usage)}, semconv.BasisExclusive)
		step.in.Touch(b.At)
	}
	step.StopReason = state.Text("stopReason")
	switch state.Text("type") {
	case "complete":
		if step.StopReason != "tool_use" {
			b.ended("finish", "")
		}
	case "cancelled":
		b.ended("abort", "")
	case "error":
		b.fails(cmp.Or(state.Object("error").Text("message"), "error"))
	}
}

// ampUsage reads counts that each stand for themselves. Of models that have no price for what is written to the cache,
// all input that was not in it is counted so.
func ampUsage(o rows.Object) session.Usage {
	u := counts{"inputTokens", "outputTokens", "", "cacheReadInputTokens", "cacheCreationInputTokens"}.of(o)
	if u.Input == 0 && !strings.HasPrefix(o.Text("model"), "claude") {
		u.Input, u.CacheWrite = u.CacheWrite, 0
	}
	return u
}

// info adds what is neither the user's nor the model's, such as a command that the user ran.
func (d *amp) info(blocks []rows.Object) {
	var parts []rows.Object
	for _, block := range blocks {
		if summary := block.Object("summary"); summary.Text("type") == "message" {
			d.b.compaction(compacted{summary: summary.Text("summary")})
		} else {
			parts = append(parts, partsOf(block)...)
		}
	}
	d.b.message(session.RoleSystem, parts...)
}

// result takes how a call went, as far as it has ended.
func (d *amp) result(block rows.Object) {
	b, id, run := d.b, block.Text("toolUseID"), block.Object("run")
	b.measure(id, "child_session_id", run.Object("progress").Text("threadID"))
	if block.Object("userInput").True("accepted") {
		b.judged(id, "once", "")
	}
	reason := run.Text("reason")
	switch run.Text("status") {
	case "done":
		b.result(id, rows.OrNull(resultOf(run.Get("result"))), false)
	case "error":
		b.result(id, rows.Raw(run.Object("error").Text("message")), true)
	case "rejected-by-user":
		b.result(id, rows.Raw(reason), true)
		b.judged(id, "reject", reason)
	case "cancelled":
		b.result(id, rows.Raw(cmp.Or(run.Object("progress").Text("output"), reason, "cancelled")), true)
	}
}
