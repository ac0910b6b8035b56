package transcripts

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// looksCodex reports whether a record with these keys, and the values of those that
// are strings, is one of a Codex rollout.
func looksCodex(keys map[string]string) bool {
	switch keys["type"] {
	case "session_meta", "response_item", "event_msg", "turn_context", "compacted":
		return keys["payload"] == "{"
	}
	return false
}

// Codex reads rollouts of Codex, each of which is one session.
//
//	message of the user         user message
//	message of the developer,
//	what the program adds       system message
//	message of the assistant    text part
//	reasoning                   reasoning part, where it is not encrypted
//	…_call, …_call_output       part tool-<name>
//	token_count                 usage of a model call
//	task_started, task_complete
//	and turn_aborted            the bounds of a turn, its ids, duration and end
//	turn_context                model, mode, and the trace of the turn
//	…_end, item_completed       duration and failure of a tool call; a call that a script made, and the text part
//	                            of a plan, which no other record has
//	compacted                   assistant message with a data-compaction part
//	thread_rolled_back          hides what the user took back
//	base_instructions           system prompt
//
// A program that compacts asks the model for a summary, and records the answer as any
// other before the compaction. The summary and its usage are the compaction's: they
// are not in the turn.
//
// A fork begins with copies of the records of its parent, which its first record names in forked_from_id, or names
// the rollout that has them in history_base. A sub-agent may begin with such copies, too: they are left out.
//
// Lines that cannot be read are reported and left out; report may be nil. An error
// is yielded when reading fails, when nothing in the stream is of Codex, or when no
// record names the session. Where that record is damaged, the name of the file names it.
var Codex = codec.Reading{
	Extensions: []string{".jsonl"}, SniffKeys: looksCodex, Transcript: true,
	Decode: codexLines.stream, DecodeFile: codexLines.file, DecodeText: codexLines, Beside: nothing,
}

var codexLines = lines(func(path string, report func(codec.Problem)) recordReader {
	return &codex{report: report, path: path, named: rolloutID(path)}
})

// nothing is read beside the file.
func nothing(string) []string { return nil }

var rolloutName = regexp.MustCompile(`^rollout-.*-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.jsonl$`)

// rolloutID is the id that the name of a rollout ends with, empty for another name.
func rolloutID(path string) string {
	if m := rolloutName.FindStringSubmatch(filepath.Base(path)); m != nil {
		return m[1]
	}
	return ""
}

// Sessions returns what was read.
func (d *codex) Sessions(string) ([]*codec.Session, error) {
	if d.b == nil {
		return nil, errors.New("read rollout: no record session_meta in it, which names the session")
	}
	return []*codec.Session{d.b.finish()}, nil
}

type codex struct {
	report func(codec.Problem)
	path   string   // "" for a stream
	b      *builder // nil before the session is named
	named  string   // the session by the name of the file, empty where the name has none
	// marked are the messages that have the ids of the task.
	marked map[*rows.Message]bool
	// compaction is the last one while its resulting size is not known.
	compaction *rows.Message
	// inherited reports that what is being read is a copy of what the session above had said when
	// it started this sub-agent.
	inherited bool

	Provider string
	Model    session.Model
	Prompt   string // the digest of the system prompt
	// Total is what was spent so far, as it was reported last, in Spent model calls.
	Total string
	Spent int
	// Open reports that the model call that the last step began is not counted yet.
	Open bool
	// TurnID and TraceID are those of the task that runs.
	TurnID, TraceID string
	// Context is the size of the model's context at the last call, in tokens.
	Context int64
	// Since is when the session began, in Unix milliseconds.
	Since int64
}

func (d *codex) Record(o rows.Object, line int) {
	payload := o.Object("payload")
	kind := o.Text("type")
	if payload == nil || kind == "" {
		d.report(codec.Problem{Line: line, Reason: "is not a record with a type and a payload: left out"})
		return
	}
	if d.b == nil {
		switch first := kind == "session_meta" && payload.Text("id") != ""; {
		case first:
			d.begin(payload)
			d.Since = milli(o.Text("timestamp"))
			if base := payload.Object("history_base"); base != nil && d.b.Fork.Copying {
				d.history(base, 0)
				d.b.owns()
			}
		case d.named != "" && looksCodex(map[string]string{"type": kind, "payload": "{"}):
			d.report(codec.Problem{Line: line,
				Reason: "precedes the record that names the session: it is named by the file"})
			d.begin(rows.Of("id", d.named))
		default:
			d.report(codec.Problem{Line: line, Reason: "precedes the record that names the session: left out"})
			return
		}
	}
	if d.inherits(kind, payload); d.inherited {
		return
	}
	if d.b.Fork.Copying && d.isOwn(kind, payload, milli(o.Text("timestamp"))) {
		d.b.owns()
		d.Open = false
	}
	d.b.see(o.Text("timestamp"))
	switch kind {
	case "turn_context":
		d.settings(payload)
	case "response_item":
		d.item(payload, line)
	case "event_msg":
		d.event(payload)
	case "compacted":
		d.compacted(payload)
	}
	d.mark()
}

// mark gives the turn's messages the ids that the program has for the turn.
func (d *codex) mark() {
	m := d.b.touched
	if m == nil || d.marked[m] || m.Row.Role == session.RoleSystem {
		return
	}
	if d.marked == nil {
		d.marked = make(map[*rows.Message]bool)
	}
	d.marked[m] = true
	named(m, "", d.TurnID, d.TraceID)
	if d.Prompt != "" && m.Row.Role == session.RoleAssistant {
		m.SetMeta("system_prompt_digest", d.Prompt)
	}
}

// inherits notes where the copy of another session begins and ends, which a sub-agent is
// given when it is to know what was reported before. A turn is the sub-agent's own if its id was
// made later than the session's: both begin with the time.
func (d *codex) inherits(kind string, payload rows.Object) {
	id := d.b.s.Row.ID
	begins := beginsTurn(kind, payload)
	switch {
	case d.b.About.Forked:
	case kind == "session_meta" && d.b.s.Row.ParentID != nil && payload.Text("id") != "" && payload.Text("id") != id:
		d.inherited = true
	case d.inherited && begins:
		turn := payload.Text("turn_id")
		d.inherited = isTimed(turn) && isTimed(id) && turn < id
	}
}

func beginsTurn(kind string, payload rows.Object) bool {
	return kind == "event_msg" && (payload.Text("type") == "task_started" || payload.Text("type") == "turn_started")
}

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
	asked := kind == "response_item" && payload.Text("role") == session.RoleUser && !isTimed(d.TurnID)
	return (begins || asked) && (at >= max(d.b.At, d.Since)+pause || d.b.At < d.Since && at >= d.Since)
}

// history reads what a fork has of its parent, where the program wrote no copies but names the rollout that has them,
// and how far. That one may be a fork, too. Without the rollout, the fork has its own records only.
func (d *codex) history(base rows.Object, depth int) {
	const deepest, longest = 100, 1 << 30
	name := "rollout-*-" + base.Text("thread_id") + ".jsonl"
	if d.path == "" || depth > deepest || rolloutID(strings.Replace(name, "*", "", 1)) == "" {
		return
	}
	dir := filepath.Dir(d.path) // of a day, in that of a month, in that of a year
	for _, pattern := range []string{".", "../../../*/*/*"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern, name)) // only a wrong pattern is an error
		if len(found) == 0 {
			continue
		}
		f, err := codec.OpenFile(found[0])
		if err != nil {
			return
		}
		defer f.Close()
		report := d.report
		d.report = func(codec.Problem) {}                                                       // it is reported of that file
		text, _ := io.ReadAll(io.LimitReader(f, min(longest, number(base, "end_byte_offset")))) // as far as it is good
		rows.Records(text, d.report, func(o rows.Object, line int) {
			if o.Text("type") != "session_meta" {
				d.Record(o, line)
			} else if above := o.Object("payload").Object("history_base"); above != nil && line == 1 {
				d.history(above, depth+1)
			}
		})
		d.report, d.compaction = report, nil
		return
	}
}

// isTimed reports whether an id is a UUID of version 7.
func isTimed(id string) bool { return len(id) == 36 && id[14] == '7' }

func (d *codex) begin(meta rows.Object) {
	d.b = newBuilder(meta.Text("id"), "codex", d.report)
	d.Provider = meta.Text("model_provider")
	rows.SetText(&d.b.s.Row.WorkspaceRoot, meta.Text("cwd"))
	sub := meta.Object("source").Has("subagent") || meta.Text("thread_source") == "subagent" ||
		meta.Text("thread_source") == "" && meta.Text("parent_thread_id") != ""
	d.b.parent(meta.Text("parent_thread_id"))
	d.b.parent(meta.Object("source").Object("subagent").Object("thread_spawn").Text("parent_thread_id"))
	if from := meta.Text("forked_from_id"); from != "" && from != d.b.s.Row.ID && !sub {
		d.b.copies(from)
	}
	d.b.s.SetMeta("codex", meta.Only("cli_version", "originator", "forked_from_id", "git"))
	if text := meta.Object("base_instructions").Text("text"); text != "" {
		d.Prompt = d.b.blob(store.BlobSystemPrompt, text)
	}
}

// settings reads how a turn is set up. The policies on approvals and on the sandbox
// together are the session's mode, as in the program's telemetry.
func (d *codex) settings(c rows.Object) {
	d.TurnID = cmp.Or(c.Text("turn_id"), d.TurnID)
	d.TraceID = cmp.Or(c.Text("trace_id"), d.TraceID)
	if model := c.Text("model"); model != "" {
		d.Model = session.Model{ProviderID: d.Provider, ModelID: model, Variant: c.Text("effort")}
		d.b.setModel(d.Model)
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
	if len(mode) > 0 {
		d.b.s.Row.Mode = new(strings.Join(mode, ", "))
	}
}

// part adds a part that the model wrote.
func (d *codex) part(o rows.Object) {
	d.step()
	d.b.part(o)
}

// step begins the next model call, unless the parts of one are being read: a call ends
// with the record that counts it.
func (d *codex) step() {
	if d.b.turn == nil || !d.Open {
		d.b.step(d.callName())
		d.Open = true
	}
	if d.Model.ModelID != "" {
		d.b.setModel(d.Model)
	}
}

// callName names the model call that is being read.
func (d *codex) callName() string { return strconv.Itoa(d.Spent) }

func (d *codex) item(item rows.Object, line int) {
	kind := item.Text("type")
	switch {
	case kind == "message":
		d.message(item)
	case kind == "agent_message":
		d.agentMessage(item)
	case kind == "reasoning":
		var words []string
		for _, key := range []string{"summary", "content"} {
			for block := range rows.Objects(item.Get(key)) {
				if block.Text("text") != "" {
					words = append(words, block.Text("text"))
				}
			}
		}
		if len(words) > 0 {
			d.part(rows.TextPart("reasoning", strings.Join(words, "\n\n")))
		}
	case strings.HasSuffix(kind, "_output") && item.Text("call_id") != "":
		id := item.Text("call_id")
		output, failed := outputOf(slices.Concat(item.Get("output"), item.Get("tools"))) // one of them
		d.b.outcome(codec.Problem{Line: line}, id, output, failed)
		d.rejected(id, textOf(output))
		d.Open = false // what the model answers now, another call answers
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
	for block := range rows.Objects(item.Get("content")) {
		switch url := block.Text("image_url"); {
		case block.Text("type") == "input_image" && url != "":
			mediaType, _, found := strings.Cut(strings.TrimPrefix(url, "data:"), ";")
			if !found || !strings.HasPrefix(url, "data:") {
				mediaType = "image/*"
			}
			parts = append(parts, fileOf(mediaType, url))
		case block.Has("text"):
			parts = append(parts, rows.TextPart("text", block.Text("text")))
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
	case role == session.RoleUser:
		d.b.message(session.RoleUser, parts)
	default:
		d.b.message(session.RoleSystem, parts)
	}
}

// agentMessage adds what another agent wrote: the one that started this one gives it its
// task, and gets a message when it is done. What is encrypted is left out.
func (d *codex) agentMessage(item rows.Object) {
	var words []string
	for block := range rows.Objects(item.Get("content")) {
		if block.Text("text") != "" {
			words = append(words, block.Text("text"))
		}
	}
	text := strings.TrimSpace(strings.Join(words, "\n"))
	if text == "" {
		return
	}
	header, payload, _ := strings.Cut(text, "\nPayload:")
	if payload = strings.TrimSpace(payload); payload == "" && d.b.Asked == "" {
		d.b.Title = cmp.Or(d.b.Title, between(header, "Task name: ", "\n"))
	}
	if d.Open = false; d.b.s.Row.ParentID != nil && strings.HasPrefix(header, "Message Type: NEW_TASK") {
		d.b.message(session.RoleUser, []rows.Object{rows.TextPart("text", cmp.Or(payload, text))})
		return
	}
	d.b.message(session.RoleSystem, []rows.Object{rows.TextPart("text", text)})
}

func (d *codex) call(kind string, item rows.Object) {
	name, input := item.Text("name"), item.Get("input")
	switch {
	case item.Has("arguments"):
		input = rows.Unquoted(item.Get("arguments"))
	case item.Has("action"):
		input = item.Get("action")
	}
	d.step()
	id := cmp.Or(item.Text("call_id"), item.Text("id"))
	id = *d.b.call(cmp.Or(name, strings.TrimSuffix(kind, "_call")), id, input).Row.ToolCallID
	// What the API's server runs has no call_id and no other record: it is recorded when it is done.
	if item.Text("call_id") == "" && kind != "local_shell_call" && item.Text("status") != "in_progress" {
		if d.b.result(id, item.Get("result"), item.Text("status") == "failed"); item.Get("result") == nil {
			d.b.measure(id, "withheld", true)
		}
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
	text, ok := rows.Text(output)
	if blocks := rows.Elements(output); !ok && len(blocks) > 0 {
		block, _ := rows.Parse(blocks[0])
		text = block.Text("text")
	}
	return text
}

// codexHeader is a line of the header that commands and scripts have before their output.
var codexHeader = regexp.MustCompile(`^(?:Command|Chunk ID|Wall time|Original token count|Total output lines):? ?|` +
	`^Script completed$|^(?:Process exited with code|Exit code:) (-?\d+)$|^(Script failed|aborted by user.*)$`)

// codexErrors begin the results of calls that the program could not make.
var codexErrors = []string{"exec_command failed for ", "write_stdin failed: ", "apply_patch verification failed",
	"failed to parse function arguments", "unsupported call: ", "execution error: ", "tool call error: ",
	"aborted by user", "exec command rejected by user", "patch rejected by user", "rejected by user",
	"user rejected MCP tool call", "user cancelled MCP tool call"}

// codexFailed reports whether the text that a tool returned is of a call that failed.
func codexFailed(text string) bool {
	for line := range strings.Lines(text) {
		m := codexHeader.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			break
		}
		if m[1] != "" && m[1] != "0" || m[2] != "" {
			return true
		}
	}
	return slices.ContainsFunc(codexErrors, func(e string) bool { return strings.HasPrefix(text, e) })
}

// rejected notes that a person or a policy did not let a call run, if the text that it returned reports so.
func (d *codex) rejected(id, text string) {
	switch {
	case !codexFailed(text):
	case strings.Contains(text, "rejected by user") || strings.HasPrefix(text, "user "):
		d.b.refused(id, text)
	case strings.HasPrefix(text, "exec_command failed for ") && strings.Contains(text, "Rejected("):
		d.b.denied(id, text)
	}
}

// codexItems are the calls that have a record of their end. A script that the model writes makes such calls, of which
// there is no other record.
var codexItems = map[string]struct{ name, input, output string }{
	"CommandExecution": {"exec_command", "command", "aggregated_output"},
	"McpToolCall":      {"mcp", "arguments", "result"},
	"DynamicToolCall":  {"dynamic", "arguments", "content_items"},
	"FileChange":       {"apply_patch", "changes", "stdout"},
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
		d.b.result(id, e.Get(kind.output), false)
	}
	if ms, ok := durationMS(e.Get("duration")); ok {
		d.b.measure(id, "duration_ms", ms)
	}
	status, code := e.Text("status"), string(e.Get("exit_code"))
	result := e.Object("result")
	switch {
	case status == "declined":
		d.b.fail(id, true)
	case status == "failed", code != "" && code != "0" && code != "null", string(e.Get("success")) == "false",
		result.Has("Err"), result.True("isError"), result.Object("Ok").True("isError"),
		result.Object("Ok").True("is_error"):
		d.b.fail(id, false)
	}
}

func (d *codex) event(e rows.Object) {
	switch kind := e.Text("type"); kind {
	case "token_count":
		d.tokens(e.Object("info"))
	case "task_started", "turn_started":
		d.b.end()
		d.Open = false
		d.TurnID, d.TraceID = e.Text("turn_id"), e.Text("trace_id")
	case "turn_aborted":
		d.end("abort", "", e)
	case "task_complete", "turn_complete":
		switch failed := e.Object("error"); {
		case failed != nil:
			d.end("error", cmp.Or(failed.Text("message"), "error"), e)
		case d.b.turn == nil || d.b.answer(d.b.turn).End.Reason != "error":
			d.end("finish", "", e)
		default:
			d.duration(e)
		}
	case "error":
		if d.affectsTurn(e) {
			d.end("error", e.Text("message"), e)
		}
	case "thread_rolled_back":
		d.rollBack(number(e, "num_turns"))
	case "thread_name_updated":
		d.b.Title = cmp.Or(e.Text("thread_name"), d.b.Title)
	case "item_completed":
		d.completed(e.Object("item"))
	case "collab_agent_spawn_end":
		d.started(e.Text("call_id"), e.Text("new_thread_id"))
	case "exec_command_end", "mcp_tool_call_end", "patch_apply_end", "dynamic_tool_call_response":
		if id := e.Text("call_id"); d.b.called(id) {
			d.outcome(id, e)
		}
	}
}

// affectsTurn reports whether an error ends the turn: a message that came at the wrong
// moment, or something that could not be taken back, does not.
func (d *codex) affectsTurn(e rows.Object) bool {
	kind := e.Text("codex_error_info")
	if o := e.Object("codex_error_info"); len(o) > 0 {
		kind = o[0].Key
	}
	return kind != "active_turn_not_steerable" && kind != "thread_rollback_failed"
}

// end notes how the turn ended. A turn that failed before the model answered has an
// answer that holds the error.
func (d *codex) end(reason, text string, e rows.Object) {
	if n := len(d.b.s.Messages()); reason == "error" && d.b.turn == nil && n > 0 &&
		d.b.s.Messages()[n-1].Row.Role == session.RoleUser {
		d.b.part(errorPart(text))
	}
	d.b.ended(reason, text)
	d.duration(e)
}

func (d *codex) duration(e rows.Object) {
	if ms := number(e, "duration_ms"); ms > 0 && d.b.turn != nil {
		d.b.turn.SetTrace("duration_ms", ms)
	}
}

// tokens reads what was spent. The record is repeated when nothing was spent, and
// after a compaction it holds an estimate of the context's size.
func (d *codex) tokens(info rows.Object) {
	last, total := info.Object("last_token_usage"), string(info.Get("total_token_usage"))
	if last == nil {
		return
	}
	size := number(last, "total_tokens")
	usage := codexUsage(last)
	if usage == (session.Usage{}) {
		if d.compaction != nil && size > 0 {
			d.compaction.SetTrace("context_tokens_after", size)
			d.compaction.SetMeta("usage", session.Usage{Input: size})
			d.compaction.Last().SetInner("summary_tokens", size)
			d.compaction = nil
		}
		return
	}
	if total == d.Total {
		return
	}
	d.Total, d.compaction = total, nil
	d.Context = size
	if d.b.turn == nil && d.b.touched != nil && d.b.touched.Row.Role != session.RoleAssistant {
		return // its answer was left out
	}
	d.b.spend(d.callName(), usage)
	d.Spent++
	d.Open = false
	if d.b.turn != nil {
		d.b.turn.SetTrace("usage_basis", "inclusive")
	}
}

// codexUsage reads counts of which the input includes what was cached, and the output
// the reasoning, whatever a server reports: no more of it was cached than there was.
func codexUsage(o rows.Object) session.Usage {
	input, output := number(o, "input_tokens"), number(o, "output_tokens")
	cached := min(input, number(o, "cached_input_tokens"))
	written := min(input-cached, number(o, "cache_write_input_tokens"))
	reasoning := min(output, number(o, "reasoning_output_tokens"))
	return session.Usage{Input: input - cached - written, Output: output - reasoning, CacheRead: cached,
		CacheWrite: written, Reasoning: reasoning}
}

// compacted adds a compaction, and takes the answer that is its summary out of the
// turn. A program that has the server compact keeps no summary that can be read.
func (d *codex) compacted(payload rows.Object) {
	c := compacted{summary: payload.Text("message"), auto: true, before: d.Context}
	if d.b.turn != nil {
		if text := d.b.turn.Last(); text != nil && text.Row.Type == "text" && c.summary != "" &&
			strings.HasSuffix(strings.TrimSpace(c.summary), strings.TrimSpace(text.Data().Text("text"))) {
			c.usage = d.b.withdraw()
		}
	}
	// A task of its own is what the user asked for; within a turn, the program decided.
	n := len(d.b.s.Messages())
	c.auto = d.b.turn != nil || n > 0 && d.b.s.Messages()[n-1].Row.Role == session.RoleUser
	d.compaction = d.b.compaction(c)
	d.Open = false
}

// completed reads an item that no other record has.
func (d *codex) completed(item rows.Object) {
	switch kind := item.Text("type"); kind {
	case "CommandExecution", "McpToolCall", "DynamicToolCall", "FileChange":
		d.outcome(item.Text("id"), item)
	case "Plan":
		if item.Text("text") != "" {
			d.part(rows.TextPart("text", item.Text("text")))
		}
	case "CollabAgentToolCall":
		threads := rows.Elements(item.Get("receiver_thread_ids"))
		if item.Text("tool") == "spawn_agent" && len(threads) == 1 {
			thread, _ := rows.Text(threads[0])
			d.started(item.Text("id"), thread)
		}
	case "SubAgentActivity":
		if item.Text("kind") == "started" {
			d.started(item.Text("id"), item.Text("agent_thread_id"))
		}
	}
}

// started notes the thread of the sub-agent that a call started.
func (d *codex) started(call, thread string) {
	if thread != "" {
		d.b.measure(call, "child_session_id", thread)
	}
}

// rollBack hides what the last turns said.
func (d *codex) rollBack(turns int64) {
	all := d.b.s.Messages()
	for i := len(all) - 1; i >= 0 && turns > 0; i-- {
		if all[i].Row.HiddenAt != nil || all[i].Row.Role == session.RoleSystem {
			continue
		}
		hide(all[i], d.b.At)
		if all[i].Row.Role == session.RoleUser {
			turns--
		}
	}
	d.b.end()
	d.Open = false
}

// durationMS reads a duration, which some versions write as an object and others as
// a text such as 1.5s.
func durationMS(raw json.RawMessage) (int64, bool) {
	if text, ok := rows.Text(raw); ok {
		d, err := time.ParseDuration(text)
		return d.Milliseconds(), err == nil && d >= 0
	}
	o, err := rows.Parse(raw)
	if err != nil || !o.Has("secs") {
		return 0, false
	}
	return number(o, "secs")*1000 + number(o, "nanos")/1e6, true
}
