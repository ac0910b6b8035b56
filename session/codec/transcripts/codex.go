package transcripts

import (
	"cmp"
	"encoding/json"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// Codex reads rollouts of Codex, each of which is one session.
//
// A program that compacts asks the model for a summary, and records the answer as any other before the compaction. The
// summary and its usage are the compaction's: they are not in the turn.
//
// A fork begins with copies of the records of its parent, which its first record names in forked_from_id, or names
// the rollout that has them in history_base. A sub-agent may begin with such copies, too: they are left out.
var Codex = codexLines.reading(codec.Reading{
	Keys:       []string{"payload={ type=session_meta|response_item|event_msg|turn_context|compacted"},
	Extensions: []string{".jsonl"}, Appends: true,
})

var codexLines decoder = func(from *source, text []byte) []*codec.Session {
	d := &codex{source: from, marked: make(map[*message]bool)}
	from.lines(text, d.read)
	return d.b.alone()
}

// threadID is the id of a session, which the name of its rollout ends with.
var threadID = lazy.Regexp(`^[0-9a-f-]{36}$`)

type codex struct {
	*source
	b *builder // nil before the session is named
	// marked are the messages that have the ids of the task.
	marked map[*message]bool
	// compaction is the last one while its resulting size is not known.
	compaction *message
	// inherited reports that what is being read is a copy of what the session above had said when
	// it started this sub-agent.
	inherited bool
	provider  string
	model     session.Model
	effort    string // what the session was set to last, where no task states its own
	response  string // the id of the answer that is counted next
	prompt    string // the digest of the system prompt
	// total is what was spent so far, as it was reported last.
	total string
	// last is the step that began last and is not counted, nil for none; what follows is of it while it is open.
	last *step
	open bool
	// turn and trace are the ids of the task that runs.
	turn, trace string
	// context is the size of the model's context at the last call, in tokens.
	context int64
	// since is when the session began, in Unix milliseconds.
	since int64
}

func (d *codex) read(o rows.Object) {
	payload, kind, at := o.Object("payload"), o.Text("type"), milli(o.Text("timestamp"))
	if payload == nil || kind == "" {
		d.Problem("is not a record with a type and a payload: left out")
		return
	}
	if d.b == nil && !d.begin(kind, payload, at) {
		return
	}
	if d.inherits(kind, payload); d.inherited {
		return
	}
	if d.b.Fork.Copying && d.isOwn(kind, payload, at) {
		d.b.owns()
		d.open = false
	}
	d.b.see(at)
	switch kind {
	case "turn_context":
		d.settings(payload)
	case "response_item":
		d.item(payload)
	case "event_msg":
		d.event(payload)
	case "compacted":
		d.compacted(payload)
	case "token_usage_record":
		d.response = payload.Text("response_id")
	}
	// The turn's messages have the ids that the program has for the turn.
	if m := d.b.touched; m != nil && !d.marked[m] && m.Row.Role != session.RoleSystem {
		d.marked[m] = true
		m.named("", d.turn, d.trace)
		if d.prompt != "" && m.Row.Role == session.RoleAssistant {
			m.SetMeta("system_prompt_digest", d.prompt)
		}
	}
}

// begin makes the session of its first record, and reports whether it could.
func (d *codex) begin(kind string, meta rows.Object, at int64) bool {
	id := meta.Text("id")
	if kind != "session_meta" || id == "" {
		d.Problem("precedes the record that names the session: left out")
		return false
	}
	d.b, d.since = newBuilder(d.source, id, "codex"), at
	d.provider = meta.Text("model_provider")
	d.b.workspace(meta.Text("cwd"))
	above, spawned := meta.Text("parent_thread_id"), meta.Object("source").Object("subagent")
	d.b.parent(above)
	d.b.parent(spawned.Object("thread_spawn").Text("parent_thread_id"))
	sub := meta.Object("source").Has("subagent") || meta.Text("thread_source") == "subagent" ||
		meta.Text("thread_source") == "" && above != ""
	if from := meta.Text("forked_from_id"); from != "" && from != id && !sub {
		d.b.copies(from)
	}
	d.b.s.SetMeta("codex", meta.Only("cli_version", "originator", "forked_from_id", "git"))
	if text := meta.Object("base_instructions").Text("text"); text != "" {
		d.prompt = d.b.s.Blob(store.BlobSystemPrompt, text, true)
	}
	if base := meta.Object("history_base"); base != nil && d.b.Fork.Copying {
		d.history(base, 0)
		d.b.owns()
	}
	return true
}

// inherits notes where the copy of another session begins and ends, which a sub-agent is
// given when it is to know what was reported before. A turn is the sub-agent's own if its id was
// made later than the session's: both begin with the time.
func (d *codex) inherits(kind string, payload rows.Object) {
	id := d.b.s.Row.ID
	switch {
	case d.b.About.Forked:
	case kind == "session_meta" && d.b.s.Row.ParentID != nil && payload.Text("id") != "" && payload.Text("id") != id:
		d.inherited = true
	case d.inherited && beginsTurn(kind, payload):
		turn := payload.Text("turn_id")
		d.inherited = isTimed(turn) && isTimed(id) && turn < id
	}
}

func beginsTurn(kind string, payload rows.Object) bool {
	return kind == "event_msg" && (payload.Text("type") == "task_started" || payload.Text("type") == "turn_started")
}

// isTimed reports whether an id is a UUID of version 7.
func isTimed(id string) bool { return len(id) == 36 && id[14] == '7' }

// isOwn reports whether a record is the first of a fork's own. The program writes the copies at once, with the time
// of the fork. They end with the first turn whose id was made later than the session's. Older versions have no such
// ids: there they end where a turn begins a second or more after the record before it.
func (d *codex) isOwn(kind string, payload rows.Object, at int64) bool {
	const pause = 1000
	id, turn := d.b.s.Row.ID, payload.Text("turn_id")
	begins := beginsTurn(kind, payload) || kind == "turn_context"
	if begins && isTimed(turn) && isTimed(id) {
		return turn > id
	}
	asked := kind == "response_item" && payload.Text("role") == session.RoleUser && !isTimed(d.turn)
	return (begins || asked) && (at >= max(d.b.At, d.since)+pause || d.b.At < d.since && at >= d.since)
}

// history reads what a fork has of its parent, where the program wrote no copies but names the rollout that has them,
// and how far. That one may be a fork, too. Without the rollout, the fork has its own records only.
func (d *codex) history(base rows.Object, depth int) {
	const deepest, longest = 100, 1 << 30
	id := base.Text("thread_id")
	if d.path == "" || depth > deepest || !threadID().MatchString(id) {
		return
	}
	name := "rollout-*-" + id + ".jsonl"
	dir := filepath.Dir(d.path) // of a day, in that of a month, in that of a year
	found, _ := filepath.Glob(filepath.Join(dir, name))
	elsewhere, _ := filepath.Glob(filepath.Join(dir, "../../../*/*/*", name)) // only a wrong pattern is an error
	if found = append(found, elsewhere...); len(found) == 0 {
		return
	}
	f, err := codec.OpenFile(found[0])
	if err != nil {
		return
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, min(longest, number(base, "end_byte_offset")))) // as far as it is good
	own := *d.source
	d.Report = func(codec.Problem) {} // it is reported of that file
	d.lines(text, func(o rows.Object) {
		if o.Text("type") != "session_meta" {
			d.read(o)
		} else if above := o.Object("payload").Object("history_base"); above != nil && d.Place.Line == 1 {
			d.history(above, depth+1)
		}
	})
	*d.source, d.compaction = own, nil
}

// settings reads how a turn is set up. The policies on approvals and on the sandbox
// together are the session's mode, as in the program's telemetry.
func (d *codex) settings(c rows.Object) {
	d.turn, d.trace = cmp.Or(c.Text("turn_id"), d.turn), cmp.Or(c.Text("trace_id"), d.trace)
	if model := c.Text("model"); model != "" {
		d.model = session.Model{ProviderID: d.provider, ModelID: model, Variant: cmp.Or(c.Text("effort"), d.effort)}
		d.b.setModel(d.model)
	}
	var mode []string
	for _, key := range []string{"approval_policy", "sandbox_policy"} {
		policy := c.Object(key)
		if word := cmp.Or(c.Text(key), policy.Text("type"), policy.Text("mode")); word != "" {
			mode = append(mode, word)
		} else if len(policy) == 1 {
			mode = append(mode, policy[0].Key)
		}
	}
	d.b.mode(strings.Join(mode, ", "))
}

// step begins the next model call, unless the parts of one are being read: a call ends with the record that counts it.
func (d *codex) step() {
	if d.b.turn == nil || !d.open {
		d.last, d.open = d.b.step(""), true
	}
	d.b.setModel(d.model)
}

// part adds a part that the model wrote.
func (d *codex) part(o rows.Object) {
	d.step()
	d.b.part(o)
}

func (d *codex) item(item rows.Object) {
	switch kind, id := item.Text("type"), item.Text("call_id"); {
	case kind == "message":
		d.message(item)
	case kind == "agent_message":
		d.agentMessage(item)
	case kind == "reasoning":
		blocks := append(contents(item.Get("summary")), contents(item.Get("content"))...)
		if text := joined(blocks, "\n\n"); text != "" {
			d.part(rows.TextPart("reasoning", text))
		}
	case strings.HasSuffix(kind, "_output") && id != "":
		output, failed := outputOf(slices.Concat(item.Get("output"), item.Get("tools"))) // one of them
		d.b.result(id, output, failed)
		d.rejected(id, textOf(output))
		d.open = false // what the model answers now, another call answers
	case strings.HasSuffix(kind, "_call"):
		d.call(kind, item)
	case kind == "additional_tools":
		d.b.toolCatalog(item.Get("tools"))
	case kind == "configuration_update":
		d.effort = cmp.Or(item.Object("reasoning").Text("effort"), d.effort)
		d.model.Variant = d.effort
	case kind == "ghost_snapshot" || kind == "compaction" || kind == "compaction_summary":
		// of the program, or encrypted
	default:
		d.part(blockPart(item))
	}
}

func (d *codex) message(item rows.Object) {
	parts := partsOf(contents(item.Get("content"))...)
	switch item.Text("role") {
	case session.RoleAssistant:
		for _, p := range parts {
			d.part(p)
		}
	case session.RoleUser:
		d.b.message(session.RoleUser, parts...)
	default:
		d.b.message(session.RoleSystem, parts...)
	}
}

// agentMessage adds what another agent wrote: the one that started this one gives it its
// task, and gets a message when it is done. What is encrypted is left out.
func (d *codex) agentMessage(item rows.Object) {
	text := strings.TrimSpace(joined(contents(item.Get("content")), "\n"))
	if text == "" {
		return
	}
	header, payload, _ := strings.Cut(text, "\nPayload:")
	if payload = strings.TrimSpace(payload); payload == "" && d.b.Asked == "" {
		d.b.Title = cmp.Or(d.b.Title, between(header, "Task name: ", "\n"))
	}
	if d.open = false; d.b.s.Row.ParentID != nil && strings.HasPrefix(header, "Message Type: NEW_TASK") {
		d.b.message(session.RoleUser, rows.TextPart("text", cmp.Or(payload, text)))
		return
	}
	d.b.notice(text)
}

func (d *codex) call(kind string, item rows.Object) {
	input := firstOf(item, "action", "input")
	if item.Has("arguments") {
		input = rows.Unquoted(item.Get("arguments"))
	}
	d.step()
	id := cmp.Or(item.Text("call_id"), item.Text("id"))
	c := d.b.call(cmp.Or(item.Text("name"), strings.TrimSuffix(kind, "_call")), id, input)
	// What the API's server runs has no call_id and no other record: it is recorded when it is done.
	if item.Text("call_id") == "" && kind != "local_shell_call" && item.Text("status") != "in_progress" {
		id = *c.Row.ToolCallID
		d.b.settle(id, item.Get("result"), item.Text("status") == "failed")
		d.b.measure(id, "withheld", item.Get("result") == nil)
	}
}

// outputOf is what a tool returned. Some versions wrap the text in an object that
// states how it went, or write that object as text; others begin the text with a header.
func outputOf(raw json.RawMessage) (output json.RawMessage, failed bool) {
	o, err := rows.Parse(raw)
	if text, ok := rows.Text(raw); ok {
		o, err = rows.Parse([]byte(text))
	}
	if err != nil {
		return raw, codexFailed(textOf(raw))
	}
	if string(o.Get("success")) == "false" && o.Has("content") {
		return o.Get("content"), true
	}
	if code := o.Object("metadata").Get("exit_code"); o.Has("output") && len(code) > 0 {
		return o.Get("output"), string(code) != "0"
	}
	return raw, false
}

// textOf is the first text of what a tool returned.
func textOf(output json.RawMessage) string {
	if blocks := contents(output); len(blocks) > 0 {
		return blocks[0].Text("text")
	}
	return ""
}

// codexHeader is a line of the header that commands and scripts have before their output.
var codexHeader = lazy.Regexp(`^(?:Command|Chunk ID|Wall time|Original token count|Total output lines):? ?|` +
	`^Script completed$|^(?:Process exited with code|Exit code:) (-?\d+)$|^(Script failed|aborted by user.*)$`)

// codexErrors begin the results of calls that the program could not make.
var codexErrors = []string{"exec_command failed for ", "write_stdin failed: ", "apply_patch verification failed",
	"failed to parse function arguments", "unsupported call: ", "execution error: ", "tool call error: ",
	"aborted by user", "exec command rejected by user", "patch rejected by user", "rejected by user",
	"user rejected MCP tool call", "user cancelled MCP tool call"}

// codexFailed reports whether the text that a tool returned is of a call that failed.
func codexFailed(text string) bool {
	for line := range strings.Lines(text) {
		m := codexHeader().FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			break
		}
		if m[1] != "" && m[1] != "0" || m[2] != "" {
			return true
		}
	}
	return beginsWith(text, codexErrors)
}

func beginsWith(text string, any []string) bool {
	return slices.ContainsFunc(any, func(begin string) bool { return strings.HasPrefix(text, begin) })
}

// rejected notes that a person or a policy did not let a call run, if the text that it returned reports so.
func (d *codex) rejected(id, text string) {
	switch {
	case !codexFailed(text):
	case strings.Contains(text, "rejected by user") || strings.HasPrefix(text, "user "):
		d.b.judged(id, "reject", text)
	case strings.HasPrefix(text, "exec_command failed for ") && strings.Contains(text, "Rejected("):
		d.b.denied(id, text)
	}
}

func (d *codex) event(e rows.Object) {
	switch kind := e.Text("type"); kind {
	case "token_count":
		d.tokens(e.Object("info"))
	case "task_started", "turn_started":
		d.b.end()
		d.open = false
		d.turn, d.trace = e.Text("turn_id"), e.Text("trace_id")
	case "turn_aborted":
		d.b.ended("abort", "")
		d.took(e)
	case "task_complete", "turn_complete":
		if failed := e.Object("error"); failed != nil {
			d.fails(cmp.Or(failed.Text("message"), "error"))
		} else if d.b.turn != nil && d.b.turn.End != "error" {
			d.b.ended("finish", "")
		}
		d.took(e)
	case "error":
		// A message that came at the wrong moment, or what could not be taken back, does not end the turn.
		about := e.Text("codex_error_info")
		if o := e.Object("codex_error_info"); len(o) > 0 {
			about = o[0].Key
		}
		if about != "active_turn_not_steerable" && about != "thread_rollback_failed" {
			d.fails(e.Text("message"))
			d.took(e)
		}
	case "thread_rolled_back":
		d.b.undo(number(e, "num_turns"))
		d.open = false
	case "thread_name_updated":
		d.b.Title = cmp.Or(e.Text("thread_name"), d.b.Title)
	case "item_completed":
		d.completed(e.Object("item"))
	case "collab_agent_spawn_end":
		d.b.measure(e.Text("call_id"), "child_session_id", e.Text("new_thread_id"))
	case "exec_command_end", "mcp_tool_call_end", "patch_apply_end", "dynamic_tool_call_response":
		if id := e.Text("call_id"); d.b.called(id) {
			d.outcome(id, e)
		}
	}
}

// fails ends a turn of the user's.
func (d *codex) fails(text string) {
	if d.b.turn != nil || d.b.isAsked() {
		d.b.fails(text)
	}
}

func (d *codex) took(e rows.Object) { d.b.took(number(e, "duration_ms")) }

// codexItems are the calls that have a record of their end. A script that the model writes makes such calls, of which
// there is no other record.
var codexItems = map[string]struct{ name, input, output string }{
	"CommandExecution": {"exec_command", "command", "aggregated_output"},
	"McpToolCall":      {"mcp", "arguments", "result"},
	"DynamicToolCall":  {"dynamic", "arguments", "content_items"},
	"FileChange":       {"apply_patch", "changes", "stdout"},
}

// completed reads an item that no other record has.
func (d *codex) completed(item rows.Object) {
	switch kind, id := item.Text("type"), item.Text("id"); kind {
	case "CommandExecution", "McpToolCall", "DynamicToolCall", "FileChange":
		d.outcome(id, item)
	case "Plan":
		if item.Text("text") != "" {
			d.part(rows.TextPart("text", item.Text("text")))
		}
	case "CollabAgentToolCall":
		threads := rows.Elements(item.Get("receiver_thread_ids"))
		if item.Text("tool") == "spawn_agent" && len(threads) == 1 {
			thread, _ := rows.Text(threads[0])
			d.b.measure(id, "child_session_id", thread)
		}
	case "SubAgentActivity":
		if item.Text("kind") == "started" {
			d.b.measure(id, "child_session_id", item.Text("agent_thread_id"))
		}
	}
}

// outcome notes how a call went by the record of its end, which comes before the result or after it.
func (d *codex) outcome(id string, e rows.Object) {
	kind, known := codexItems[e.Text("type")]
	if known && d.b.turn != nil && id != "" && !d.b.called(id) && !strings.HasPrefix(e.Text("source"), "user") {
		input := e.Get(kind.input)
		if input != nil && input[0] != '{' {
			input = rows.Of(kind.input, input).JSON()
		}
		d.b.call(cmp.Or(e.Text("tool"), kind.name), id, input)
		d.b.settle(id, e.Get(kind.output), false)
	}
	if ms, ok := durationMS(e.Get("duration")); ok {
		d.b.measure(id, "duration_ms", ms)
	}
	status, code := e.Text("status"), string(e.Get("exit_code"))
	result := e.Object("result")
	switch done := result.Object("Ok"); {
	case status == "declined":
		d.b.fail(id, true)
	case status == "failed", code != "" && code != "0" && code != "null", string(e.Get("success")) == "false",
		result.Has("Err"), result.True("isError"), done.True("isError"), done.True("is_error"):
		d.b.fail(id, false)
	}
}

// durationMS reads a duration, which some versions write as an object and others as a text such as 1.5s.
func durationMS(raw json.RawMessage) (int64, bool) {
	if text, ok := rows.Text(raw); ok {
		d, err := time.ParseDuration(text)
		return d.Milliseconds(), err == nil && d >= 0
	}
	o, err := rows.Parse(raw)
	return number(o, "secs")*1000 + number(o, "nanos")/1e6, err == nil && o.Has("secs")
}

var codexCounts = counts{"input_tokens", "output_tokens", "reasoning_output_tokens", "cached_input_tokens",
	"cache_write_input_tokens"}

// tokens reads what was spent. The record is repeated when nothing was spent, and
// after a compaction it holds an estimate of the context's size.
func (d *codex) tokens(info rows.Object) {
	last, total := info.Object("last_token_usage"), string(info.Get("total_token_usage"))
	if last == nil {
		return
	}
	size, usage := number(last, "total_tokens"), codexCounts.capped(last)
	if usage == (session.Usage{}) {
		if d.compaction != nil && size > 0 {
			d.compaction.SetTrace("context_tokens_after", size)
			d.compaction.SetMeta("usage", session.Usage{Input: size})
			d.compaction.Last().SetInner("summary_tokens", size)
			d.compaction = nil
		}
		return
	}
	if total == d.total {
		return
	}
	d.total, d.compaction, d.context = total, nil, size
	turn := d.b.turn
	if turn == nil && d.b.touched != nil && d.b.touched.Row.Role != session.RoleAssistant {
		return // its answer was left out
	}
	if d.open = false; turn == nil {
		return
	}
	if d.last == nil || d.last.in != turn {
		d.last = turn.newStep("")
	}
	d.last.count(modelUse{usage: usage}, semconv.BasisInclusive)
	d.last.ResponseID, d.response = d.response, ""
	d.last = nil
}

// compacted adds a compaction, and takes the answer that is its summary out of the
// turn. A program that has the server compact keeps no summary that can be read.
func (d *codex) compacted(payload rows.Object) {
	c := compacted{summary: payload.Text("message"), before: d.context}
	if d.b.turn != nil {
		if text := d.b.turn.Last(); text != nil && text.Row.Type == "text" && c.summary != "" &&
			strings.HasSuffix(strings.TrimSpace(c.summary), strings.TrimSpace(text.Data().Text("text"))) {
			c.usage = d.b.withdraw()
		}
	}
	// A task of its own is what the user asked for; within a turn, the program decided.
	c.auto = d.b.turn != nil || d.b.isAsked()
	d.compaction = d.b.compaction(c)
	d.last, d.open = nil, false
}
