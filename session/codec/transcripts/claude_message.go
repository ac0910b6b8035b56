package transcripts

import (
	"cmp"
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// blocks yields those of a message's content that are objects, and reports the others.
func (d *claude) blocks(content []json.RawMessage, line int) iter.Seq[rows.Object] {
	return func(yield func(rows.Object) bool) {
		for _, v := range content {
			block, err := rows.Share(v)
			if err != nil {
				d.report(codec.Problem{Line: line, Reason: "a block of the message is not an object: left out"})
			} else if !yield(block) {
				return
			}
		}
	}
}

// user adds a record in the user's name, and reports whether the user wrote it.
func (d *claude) user(s *claudeSession, o, message rows.Object, line int) bool {
	content := message.Get("content")
	if text, ok := rows.Text(content); ok {
		return d.said(s, o, []rows.Object{rows.TextPart("text", text)})
	}
	var parts []rows.Object
	results := false
	for block := range d.blocks(rows.Elements(content), line) {
		if block.Text("type") == "tool_result" {
			results = true
			d.result(s, o, block, line)
		} else {
			parts = append(parts, partOf(block))
		}
	}
	return len(parts) > 0 && d.said(s, o, parts) && !results
}

// refusals begin the results of calls that a person refused.
var refusals = []string{"The user doesn't want to proceed with this tool use",
	"The user doesn't want to take this action right now"}

// result adds the outcome of a call, and what the program measured of it.
func (d *claude) result(s *claudeSession, o, block rows.Object, line int) {
	id := block.Text("tool_use_id")
	failed := block.True("is_error")
	output := resultOf(block.Get("content"))
	if !s.b.outcome(codec.Problem{Line: line}, id, output, failed) {
		return
	}
	about := o.Object("toolUseResult")
	if ms := max(number(about, "durationMs"), number(about, "totalDurationMs")); ms > 0 {
		s.b.measure(id, "duration_ms", ms)
	}
	if agent := about.Text("agentId"); agent != "" {
		s.b.measure(id, "child_session_id", o.Text("sessionId")+"-"+agent)
	}
	s.permit(id, o, block)
}

// permit notes how it was decided whether a call may run, which a record reports in the words of the program's
// telemetry. Older versions report it in the text of the result only.
func (s *claudeSession) permit(id string, o, block rows.Object) {
	about, kind := o.Object("permissionDecision"), o.Text("toolDenialKind")
	d := store.Decision{Source: about.Text("source"), Action: "allow", Outcome: "allowed"}
	if about.Text("decision") != "accept" {
		if d.Reason, _ = rows.Text(resultOf(block.Get("content"))); kind == "" && about == nil && block.True("is_error") {
			kind = denialKind(d.Reason)
		}
		// A call that was stopped was not denied, and neither was one whose input is wrong.
		if kind == "interrupted" || kind == "cancelled" || d.Source == "invalid_input" ||
			o.True("toolDenialAfterRun") || kind == "" && about.Text("decision") != "reject" {
			return
		}
		s.b.fail(id, true)
		if d.Action, d.Outcome = "deny", "denied"; kind == "user-rejected" {
			d.Source = cmp.Or(d.Source, "user")
		}
	}
	switch d.Source {
	case "user_permanent":
		d.Action, d.Reply = "ask", "always"
	case "user_temporary":
		d.Action, d.Reply = "ask", "once"
	case "user_reject", "user_abort", "user":
		d.Action, d.Reply = "ask", "reject"
	}
	s.b.decide(id, d)
}

// denialKind is what a record would report of a call that was denied with a text, "" for one that was not.
func denialKind(text string) string {
	switch {
	case slices.ContainsFunc(refusals, func(r string) bool { return strings.HasPrefix(text, r) }):
		return "user-rejected"
	case strings.HasPrefix(text, "Permission to use ") && strings.Contains(text, "has been denied"),
		strings.HasPrefix(text, "Claude requested permissions to "):
		return "permission-rule"
	}
	return ""
}

// said adds text of a record in the user's name, and reports whether the user wrote it.
func (d *claude) said(s *claudeSession, o rows.Object, parts []rows.Object) bool {
	text, _ := session.Words(strings.TrimSpace(parts[0].Text("text")))
	_, own := spoken(parts)
	meta := o.True("isMeta")
	switch {
	case o.True("isCompactSummary"):
		s.answered(false)
		c := compacted{auto: true}
		if s.boundary != nil {
			c, s.boundary = *s.boundary, nil
		}
		c.summary = parts[0].Text("text")
		s.b.compaction(c)
		return false
	case strings.HasPrefix(text, "[Request interrupted by user"):
		s.answered(false)
		s.b.ended("abort", "")
		s.b.message(session.RoleSystem, parts)
		s.Step = ""
		return false
	case strings.HasPrefix(text, "<command-name>"), strings.HasPrefix(text, "<command-message>"):
		s.answered(false)
		s.command = &claudeCommand{record: o, at: s.b.At, typed: typedCommand(text), parts: parts}
		return false
	case meta || !own || fromProgram(text) || !fromPerson(o):
		// The text that a command expands to is for the model, which answers it, and so is
		// the notification that a sub-agent in the background is done.
		s.answered(meta && !fromProgram(text))
		s.compact()
		m := s.b.message(session.RoleSystem, parts)
		if s.Step = ""; isNotification(text) {
			s.Turn = o.Text("promptId")
			named(m, o.Text("uuid"), s.Turn, "")
		}
		return false
	}
	s.answered(false)
	s.compact()
	s.asked(o, parts)
	return true
}

// asked adds the user's message, which a record holds.
func (s *claudeSession) asked(o rows.Object, parts []rows.Object) {
	s.Step, s.Turn = "", o.Text("promptId")
	named(s.b.message(session.RoleUser, parts), o.Text("uuid"), s.Turn, "")
}

// programTags begin texts that the program writes in the user's name.
var programTags = []string{
	"<local-command-stdout>", "<local-command-stderr>", "<local-command-caveat>", "<bash-input>", "<bash-stdout>",
	"<bash-stderr>",
	"<task-notification>", "<teammate-message", "<tick>", "<user-prompt-submit-hook>",
	"<command-args>",
	"Caveat: The messages below were generated by the user while running local commands",
}

func fromProgram(text string) bool {
	return slices.ContainsFunc(programTags, func(tag string) bool { return strings.HasPrefix(text, tag) })
}

func isNotification(text string) bool { return strings.HasPrefix(text, "<task-notification>") }

// fromPerson reports whether a record does not name another origin than a person.
func fromPerson(o rows.Object) bool {
	kind := o.Object("origin").Text("kind")
	return kind == "" || kind == "human"
}

// localCommands are answered by the program, never by the model.
var localCommands = []string{
	"/clear", "/compact", "/config", "/context", "/cost", "/doctor", "/exit", "/help", "/hooks", "/login", "/logout",
	"/mcp", "/model",
	"/permissions", "/quit", "/rename", "/resume", "/status", "/usage", "/vim",
}

// typedCommand is a command as the user typed it, with its arguments.
func typedCommand(text string) string {
	name := strings.TrimSpace(between(text, "<command-name>", "</command-name>"))
	if name != "" && !strings.HasPrefix(name, "/") {
		name = "/" + name
	}
	return strings.TrimSpace(name + " " + strings.TrimSpace(between(text, "<command-args>", "</command-args>")))
}

func between(text, from, to string) string {
	_, rest, _ := strings.Cut(text, from)
	inner, _, _ := strings.Cut(rest, to)
	return inner
}

// answered settles the command that waits: the user's message where the model answers
// it, and otherwise the program's.
func (s *claudeSession) answered(byModel bool) {
	c := s.command
	if c == nil {
		return
	}
	s.command = nil
	// The command came before the record that shows who answers it, so its message has its own time. The record that is
	// being read finds its time as it was.
	now, touched := s.b.At, s.b.touched
	s.b.At = c.at
	name, _, _ := strings.Cut(c.typed, " ")
	if byModel = byModel && c.typed != "" && !slices.Contains(localCommands, name); byModel {
		s.asked(c.record, append([]rows.Object{rows.TextPart("text", c.typed)}, c.parts[1:]...))
	} else {
		s.b.message(session.RoleSystem, c.parts)
		s.Step = ""
	}
	s.tree.add(c.record, c.at, byModel, s.b.touched)
	s.b.At, s.b.touched = now, touched
}

// compact adds the compaction of which no summary came.
func (s *claudeSession) compact() {
	if s.boundary != nil {
		s.b.compaction(*s.boundary)
		s.boundary = nil
	}
}

// resultOf is the output of a tool: the text where it is one block of text.
func resultOf(content json.RawMessage) json.RawMessage {
	if blocks := rows.Elements(content); len(blocks) == 1 {
		if block, err := rows.Parse(blocks[0]); err == nil && block.Text("type") == "text" && block.Has("text") {
			return block.Get("text")
		}
	}
	return content
}

func fileOf(mediaType, url string) rows.Object { return rows.FilePart(mediaType, "", url) }

// dataFile is a file of which there is the content in base64, or a URL.
func dataFile(mediaType, data string) rows.Object {
	if scheme, _, ok := strings.Cut(data, ":"); ok && !strings.ContainsAny(scheme, "/+=") {
		return fileOf(mediaType, data)
	}
	return fileOf(mediaType, "data:"+mediaType+";base64,"+data)
}

// partOf is a block of a message as a part of ours: a text, or an image or another file as the APIs of models, the
// AI SDK and programs of their own have them.
func partOf(block rows.Object) rows.Object {
	kind, media := block.Text("type"), cmp.Or(block.Text("mediaType"), block.Text("mimeType"))
	source, inline, file := block.Object("source"), block.Object("inlineData"), block.Object("fileData")
	switch {
	case block.Has("text") && (kind == "text" || kind == ""):
		return rows.TextPart("text", block.Text("text"))
	case source.Text("type") == "base64" && source.Text("media_type") != "":
		return dataFile(source.Text("media_type"), source.Text("data"))
	case source.Text("type") == "url" && kind == "image":
		return fileOf("image/*", source.Text("url"))
	case inline.Text("mimeType") != "":
		return dataFile(inline.Text("mimeType"), inline.Text("data"))
	case file.Text("fileUri") != "":
		return fileOf(cmp.Or(file.Text("mimeType"), "application/octet-stream"), file.Text("fileUri"))
	case kind == "image" && block.Text("image") != "":
		return dataFile(cmp.Or(media, "image/*"), block.Text("image"))
	case (kind == "file" || media != "" && (kind == "image" || kind == "document")) && block.Text("data") != "":
		return dataFile(cmp.Or(media, "application/octet-stream"), block.Text("data"))
	}
	return blockPart(block)
}

// blockPart keeps a block for which there is no part, word for word.
func blockPart(block rows.Object) rows.Object { return rows.DataPart("data-block", block) }

func (d *claude) assistant(s *claudeSession, o, message rows.Object, line int) {
	s.compact()
	blocks := rows.Elements(message.Get("content"))
	if text, ok := rows.Text(message.Get("content")); ok {
		blocks = []json.RawMessage{rows.TextPart("text", text).JSON()}
	}
	id := message.Text("id")
	if len(blocks) > 0 && (s.Step != id || s.b.turn == nil) {
		s.Step = id
		step := s.b.step(id)
		step.ResponseID, step.RequestID = id, o.Text("requestId")
		s.describe(o)
	}
	for block := range d.blocks(blocks, line) {
		switch block.Text("type") {
		case "text":
			s.b.part(rows.TextPart("text", block.Text("text")))
		case "thinking":
			s.b.text("reasoning", block.Text("thinking")) // which is empty if it is encrypted
		case "redacted_thinking":
		case "tool_use":
			s.b.call(block.Text("name"), block.Text("id"), block.Get("input"))
		default:
			s.b.part(blockPart(block))
		}
	}
	if s.b.turn == nil {
		return
	}
	s.setAgent(o.Text("attributionAgent"))
	synthetic := message.Text("model") == "<synthetic>"
	if o.True("isApiErrorMessage") {
		text, _ := rows.Text(resultOf(message.Get("content")))
		s.b.ended("error", cmp.Or(text, o.Text("error"), "error"))
	}
	if u := message.Object("usage"); u != nil && !synthetic {
		s.b.spend(id, anthropicCounts.of(u))
		s.b.turn.SetTrace("usage_basis", "exclusive")
	}
	if usd, ok := usdOf(o.Get("costUSD")); ok {
		s.b.paid(s.b.turn, new(usd-s.paid[id]))
		s.paid[id] = usd
	}
	if model := message.Text("model"); model != "" && !synthetic {
		s.b.setModel(session.Model{ProviderID: "anthropic", ModelID: model, Variant: o.Text("effort")})
	}
	if reason := message.Text("stop_reason"); reason != "" && !o.True("isApiErrorMessage") {
		s.b.turn.SetTrace("stop_reason", reason)
		a := s.b.answer(s.b.turn)
		if i, ok := a.BySource[id]; ok {
			a.Steps[i].StopReason = reason
		}
		if reason == "end_turn" || reason == "stop_sequence" || reason == "refusal" || reason == "max_tokens" {
			s.b.ended("finish", "")
		}
	}
}
