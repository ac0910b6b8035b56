package transcripts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// LooksCodex says whether a record with these keys, and the values of those that
// are strings, is one of a Codex rollout.
func LooksCodex(keys map[string]string) bool {
	switch keys["type"] {
	case "session_meta", "response_item", "event_msg", "turn_context", "compacted":
		return keys["payload"] == "{"
	}
	return false
}

// DecodeCodex reads a rollout of Codex, which is one session.
//
//	message of the user         user message
//	message of the developer,
//	what the program says       system message
//	message of the assistant    text part
//	reasoning                   reasoning part, where it is not encrypted
//	…_call, …_call_output       part tool-<name>
//	token_count                 usage of the turn
//	compacted                   assistant message with a data-compaction part
//
// Lines that cannot be read are reported and left out; report may be nil. An error
// is yielded when reading fails, when nothing in the stream is of Codex, or when no
// record names the session.
func DecodeCodex(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return decodeCodex(r, "", report)
}

// DecodeCodexFile reads the rollout at path, as [DecodeCodex] does. Where the record
// that names the session is damaged, the name of the file names it.
func DecodeCodexFile(path string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return func(yield func(*codec.Session, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield(nil, err)
			return
		}
		defer f.Close()
		decodeCodex(f, rolloutID(path), report)(yield)
	}
}

var rolloutName = regexp.MustCompile(`^rollout-.*-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.jsonl$`)

// rolloutID is the id that the name of a rollout ends with, empty for another name.
func rolloutID(path string) string {
	if m := rolloutName.FindStringSubmatch(filepath.Base(path)); m != nil {
		return m[1]
	}
	return ""
}

func decodeCodex(r io.Reader, named string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	if report == nil {
		report = func(codec.Problem) {}
	}
	return func(yield func(*codec.Session, error) bool) {
		d := codex{report: report, named: named}
		err := lines(r, report, d.record)
		if err == nil && d.b == nil {
			err = errors.New("read rollout: no record session_meta in it, which names the session")
		}
		if err != nil {
			yield(nil, err)
			return
		}
		yield(d.b.finish(), nil)
	}
}

type codex struct {
	report   func(codec.Problem)
	b        *builder // nil before the session is named
	named    string   // the session by the name of the file, empty where it says nothing
	provider string
	model    string
	total    string // what was spent so far, as it was said last
	spent    int
}

func (d *codex) record(o rows.Object, line int) {
	payload := o.Object("payload")
	kind := o.Text("type")
	if payload == nil || kind == "" {
		d.report(codec.Problem{Line: line, Reason: "is no record with a type and a payload: left out"})
		return
	}
	if d.b == nil {
		switch first := kind == "session_meta" && payload.Text("id") != ""; {
		case first:
			d.begin(payload)
		case d.named != "" && LooksCodex(map[string]string{"type": kind, "payload": "{"}):
			d.report(codec.Problem{Line: line, Reason: "stands before the record that names the session: it is named by the file"})
			var meta rows.Object
			meta.Set("id", d.named)
			d.begin(meta)
		default:
			d.report(codec.Problem{Line: line, Reason: "stands before the record that names the session: left out"})
			return
		}
	}
	d.b.see(o.Text("timestamp"))
	switch kind {
	case "turn_context":
		if model := payload.Text("model"); model != "" {
			d.model = model
			d.b.model(d.provider, model)
		}
	case "response_item":
		d.item(payload, line)
	case "event_msg":
		d.event(payload)
	case "compacted":
		d.b.compaction(payload.Text("message"), true, 0)
	}
}

func (d *codex) begin(meta rows.Object) {
	d.b = newBuilder(meta.Text("id"), "codex")
	d.provider = meta.Text("model_provider")
	row := &d.b.s.Row
	if cwd := meta.Text("cwd"); cwd != "" {
		row.WorkspaceRoot = new(cwd)
	}
	source := meta.Object("source").Object("subagent").Object("thread_spawn")
	for _, parent := range []string{meta.Text("parent_thread_id"), source.Text("parent_thread_id")} {
		if parent != "" && parent != row.ID {
			row.ParentID = new(parent)
		}
	}
	own := rows.Object{}
	for _, k := range []string{"cli_version", "originator", "forked_from_id", "git"} {
		if v := meta.Get(k); meta.Has(k) {
			own.Set(k, v)
		}
	}
	d.b.s.SetMeta("codex", own)
}

// part adds a part to the turn and says which model the turn is of.
func (d *codex) part(o rows.Object) {
	d.b.part(o)
	if d.model != "" {
		d.b.model(d.provider, d.model)
	}
}

func (d *codex) item(item rows.Object, line int) {
	kind := item.Text("type")
	switch {
	case kind == "message":
		d.message(item)
	case kind == "reasoning":
		var words []string
		for _, key := range []string{"summary", "content"} {
			for _, v := range rows.Elements(item.Get(key)) {
				if block, err := rows.Parse(v); err == nil && block.Text("text") != "" {
					words = append(words, block.Text("text"))
				}
			}
		}
		if len(words) > 0 {
			d.part(textPart("reasoning", strings.Join(words, "\n\n")))
		}
	case strings.HasSuffix(kind, "_call_output"):
		output, failed := outputOf(item.Get("output"))
		if !d.b.result(item.Text("call_id"), output, failed) {
			d.report(codec.Problem{Line: line, Reason: "result of call " + item.Text("call_id") + ", which nobody waits for: left out"})
		}
	case strings.HasSuffix(kind, "_call"):
		d.call(kind, item)
	case kind == "ghost_snapshot" || kind == "compaction" || kind == "compaction_summary":
		// of the program, or encrypted
	default:
		d.part(blockPart(item))
	}
}

func (d *codex) message(item rows.Object) {
	var parts []rows.Object
	for _, v := range rows.Elements(item.Get("content")) {
		block, err := rows.Parse(v)
		if err != nil {
			continue
		}
		switch url := block.Text("image_url"); {
		case block.Text("type") == "input_image" && url != "":
			mediaType, _, found := strings.Cut(strings.TrimPrefix(url, "data:"), ";")
			if !found || !strings.HasPrefix(url, "data:") {
				mediaType = "image/*"
			}
			parts = append(parts, fileOf(mediaType, url))
		case block.Has("text"):
			parts = append(parts, textPart("text", block.Text("text")))
		default:
			parts = append(parts, blockPart(block))
		}
	}
	role := item.Text("role")
	switch {
	case len(parts) == 0:
	case role == session.RoleAssistant:
		for _, p := range parts {
			d.part(p)
		}
	case role == session.RoleUser && !injected(parts[0].Text("text")):
		d.b.message(session.RoleUser, parts)
	default:
		d.b.message(session.RoleSystem, parts)
	}
}

// injected says whether a text in the user's name is one that the program writes.
func injected(text string) bool {
	text = strings.TrimSpace(text)
	for _, start := range []string{"<environment_context>", "<user_instructions>", "<permissions instructions>", "<turn_aborted>", "<skill>", "# AGENTS.md instructions"} {
		if strings.HasPrefix(text, start) {
			return true
		}
	}
	return false
}

func (d *codex) call(kind string, item rows.Object) {
	name, input := item.Text("name"), item.Get("input")
	switch {
	case item.Has("arguments"):
		input = item.Get("arguments")
		if text, ok := rows.Text(input); ok {
			if value, err := rows.Value([]byte(text)); err == nil {
				input = value
			}
		}
	case item.Has("action"):
		input = item.Get("action")
	}
	if name == "" {
		name = strings.TrimSuffix(kind, "_call")
	}
	if input == nil {
		input = json.RawMessage("{}")
	}
	d.b.call(name, item.Text("call_id"), input)
	if d.model != "" {
		d.b.model(d.provider, d.model)
	}
}

// outputOf is what a tool returned. Some versions wrap the text in an object that
// says how it went, or write that object as text.
func outputOf(raw json.RawMessage) (output json.RawMessage, failed bool) {
	o, err := rows.Parse(raw)
	if text, ok := rows.Text(raw); ok {
		o, err = rows.Parse([]byte(text))
	}
	if err != nil {
		return raw, false
	}
	if string(o.Get("success")) == "false" && o.Has("content") {
		return o.Get("content"), true
	}
	if code := o.Object("metadata").Get("exit_code"); o.Has("output") && len(code) > 0 {
		return o.Get("output"), string(code) != "0"
	}
	return raw, false
}

func (d *codex) event(e rows.Object) {
	switch e.Text("type") {
	case "token_count":
		info := e.Object("info")
		last, total := info.Object("last_token_usage"), string(info.Get("total_token_usage"))
		if last == nil || total == d.total {
			return // it is said again when nothing was spent
		}
		d.total = total
		d.spent++
		cached, reasoning := number(last, "cached_input_tokens"), number(last, "reasoning_output_tokens")
		d.b.spend(fmt.Sprint(d.spent), session.Usage{
			Input: max(0, number(last, "input_tokens")-cached), Output: max(0, number(last, "output_tokens")-reasoning),
			CacheRead: cached, Reasoning: reasoning,
		})
		if d.b.turn != nil {
			d.b.turn.SetTrace("usage_basis", "inclusive")
		}
	case "turn_aborted":
		if d.b.turn != nil {
			d.b.turn.SetTrace("end_reason", "abort")
		}
	case "task_complete":
		if d.b.turn != nil {
			d.b.turn.SetTrace("end_reason", "finish")
		}
	}
}
