package transcripts

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Windsurf reads a transcript that Windsurf's Cascade, now in Devin Desktop, writes for hooks: a line for each step,
// with what is known of it under its type. The name of the file is the id. There are no times, tokens, models or ids
// of calls. What Cascade keeps itself is encrypted.
var Windsurf = windsurfLines.reading(codec.Reading{
	Keys: []string{"status type=user_input user_input={", "status type=planner_response planner_response={",
		"status type=run_command run_command={", "status type=code_action code_action={"},
	Extensions: []string{".jsonl"},
})

var windsurfLines decoder = func(from *source, text []byte) []*codec.Session {
	d := windsurf{}
	from.lines(text, func(o rows.Object) {
		kind := o.Text("type")
		data := o.Object(kind)
		if kind == "" || !o.Has("status") {
			from.Problem("is not a step with a type and a status: left out")
			return
		}
		if d.b == nil {
			d.b = newBuilder(from, cmp.Or(nameOf(from.path), unnamed("windsurf", o)), "windsurf")
		}
		d.step(kind, o.Text("status"), data)
	})
	return d.b.alone()
}

type windsurf struct {
	b     *builder
	calls int
}

func (d *windsurf) step(kind, status string, data rows.Object) {
	switch b := d.b; kind {
	case "user_input":
		b.message(session.RoleUser, partsOf(rows.TextPart("text", data.Text("user_response")))...)
	case "planner_response":
		b.step("")
		b.text("reasoning", data.Text("thinking"))
		b.text("text", data.Text("response"))
		b.ended("finish", "")
	default:
		d.call(kind, status, data)
	}
}

// windsurfOutput are the keys of what came of a step; all else is what went in.
var windsurfOutput = []string{"output", "content", "result", "results", "total_results", "exit_code", "error",
	"user_rejected", "acknowledgement_type"}

// call adds a step that is a tool's, which has ended unless it waits or runs.
func (d *windsurf) call(kind, status string, data rows.Object) {
	b := d.b
	d.calls++
	id := fmt.Sprintf("step_%d", d.calls)
	b.call(kind, id, data.Without(windsurfOutput...).JSON())
	output := data.Only(windsurfOutput...).Without("user_rejected", "acknowledgement_type")
	shown, code := output.Without("exit_code", "total_results"), string(output.Get("exit_code"))
	rejected := data.True("user_rejected") || strings.HasSuffix(data.Text("acknowledgement_type"), "_REJECT")
	value := output.JSON()
	switch {
	case status == "pending" || status == "running" || status == "in_progress":
		return
	case len(shown) == 1 && (code == "" || code == "0"):
		value = shown[0].Value
	case len(output) == 0 && (status != "done" || rejected):
		value = rows.Raw(status)
	case len(output) == 0:
		value = rows.Raw(nil)
	}
	b.settle(id, value, status != "done" || rejected || code != "" && code != "0")
	if rejected {
		b.judged(id, "reject", "")
	} else if strings.HasSuffix(data.Text("acknowledgement_type"), "_ACCEPT") {
		b.judged(id, "once", "")
	}
}
