package transcripts

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// LooksClaude says whether a record with these keys, and the values of those that
// are strings, is one of Claude Code that tells of the conversation.
func LooksClaude(keys map[string]string) bool {
	_, session := keys["sessionId"]
	_, uuid := keys["uuid"]
	_, leaf := keys["leafUuid"]
	return session && uuid && keys["type"] != "" || keys["type"] == "summary" && leaf
}

// DecodeClaude reads a transcript of Claude Code. It yields the sessions in the
// order in which they begin: mostly one, and those of sub-agents that are told of
// in the same file, with the id of their session and their own as theirs.
//
//	user, text or image    user message; what the program says for the user too
//	assistant              parts of the turn, and its usage, once for each answer
//	thinking               reasoning part
//	tool_use, tool_result  part tool-<name>
//	compact_boundary       assistant message with a data-compaction part
//	summary, …-title       the title
//
// What the user left by going back to an earlier message and writing another in its
// place is hidden: the message that was replaced, and what follows from it alone.
// Records tell what they follow from, but not that the user went back, so this is
// held to be so only of a message that has the same predecessor as a later one of
// the user's which the conversation goes on with. Other branches, such as results of
// calls that ran beside each other, are visible, as is a first message that was
// replaced: it has no predecessor, and neither has what a program began anew.
//
// Lines that cannot be read are reported and left out; report may be nil. An error
// is yielded when reading fails or nothing in the stream is of Claude Code.
func DecodeClaude(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	if report == nil {
		report = func(codec.Problem) {}
	}
	return func(yield func(*codec.Session, error) bool) {
		d := claude{
			report: report, sessions: make(map[string]*claudeSession), roots: make(map[string]string),
			custom: make(map[string]string), guessed: make(map[string]string),
		}
		if err := lines(r, report, d.record); err != nil {
			yield(nil, err)
			return
		}
		if len(d.order) == 0 {
			yield(nil, errors.New("read transcript: no message of Claude Code in it"))
			return
		}
		for _, s := range d.order {
			if s.sub == "" {
				s.tree.hide()
				id := s.b.s.Row.ID
				s.b.title = cmp.Or(d.custom[id], d.title, d.guessed[id])
			}
			if !yield(s.b.finish(), nil) {
				return
			}
		}
	}
}

type claude struct {
	report   func(codec.Problem)
	sessions map[string]*claudeSession
	order    []*claudeSession
	// roots are the first records of the sub-agents' chains, by any of their records.
	roots map[string]string
	title string // of the file, which is said of no session
	// custom are titles by session that the user gave, guessed that a model did.
	custom, guessed map[string]string
}

type claudeSession struct {
	b     *builder
	sub   string // the sub-agent, empty for the session itself
	step  string // the answer of the model that is being told
	auto  bool
	since int64 // tokens before the compaction whose summary is awaited, -1 for none
	tree  branches
}

func (d *claude) record(o rows.Object, line int) {
	switch o.Text("type") {
	case "summary":
		for _, s := range d.order {
			s.titled(d.title != o.Text("summary"))
		}
		d.title = o.Text("summary")
		return
	case "custom-title":
		d.entitle(d.custom, o.Text("sessionId"), o.Text("customTitle"))
		return
	case "ai-title":
		d.entitle(d.guessed, o.Text("sessionId"), o.Text("aiTitle"))
		return
	case "user", "assistant":
	case "system":
		if o.Text("subtype") == "compact_boundary" && o.Text("sessionId") != "" {
			s := d.session(o)
			s.b.see(o.Text("timestamp"))
			about := o.Object("compactMetadata")
			s.auto, s.since = about.Text("trigger") != "manual", number(about, "preTokens")
		}
		d.link(o)
		return
	default:
		d.link(o)
		return // the state of the program, not of the conversation
	}
	message := o.Object("message")
	if message == nil || o.Text("sessionId") == "" {
		d.report(codec.Problem{Line: line, Reason: "has no message or no sessionId: left out"})
		return
	}
	s := d.session(o)
	s.b.see(o.Text("timestamp"))
	s.b.touched = nil
	said := false
	if o.Text("type") == "assistant" {
		d.assistant(s, message, line)
	} else {
		said = d.user(s, o, message, line)
	}
	s.tree.add(o, s.b.at, said, s.b.touched)
}

// entitle notes a title of a session.
func (d *claude) entitle(titles map[string]string, id, title string) {
	if s := d.sessions[id]; s != nil {
		s.titled(titles[id] != title)
	}
	titles[id] = title
}

// titled makes the session later by a moment where it has a new title, of which the
// record has no time: else a transcript that grew by it alone would be as late as what
// was imported before.
func (s *claudeSession) titled(anew bool) {
	if anew && s.sub == "" && s.b.at > 0 {
		s.b.seeMilli(s.b.at + 1)
	}
}

// link notes a record that tells nothing of the conversation, which one that does may
// follow from all the same.
func (d *claude) link(o rows.Object) {
	if s := d.sessions[o.Text("sessionId")]; s != nil && string(o.Get("isSidechain")) != "true" {
		s.tree.add(o, s.b.at, false, nil)
	}
}

// session is that of a record.
func (d *claude) session(o rows.Object) *claudeSession {
	id, sub := o.Text("sessionId"), ""
	if string(o.Get("isSidechain")) == "true" {
		uuid := o.Text("uuid")
		root := d.roots[o.Text("parentUuid")]
		if root == "" {
			root = uuid
		}
		d.roots[uuid] = root
		if sub = o.Text("agentId"); sub == "" {
			sub = root
		}
	}
	key := id
	if sub != "" {
		key += "-" + sub
	}
	s := d.sessions[key]
	if s != nil {
		return s
	}
	s = &claudeSession{b: newBuilder(key, "claude-code"), sub: sub, since: -1}
	row := &s.b.s.Row
	if sub != "" {
		row.ParentID = new(id)
	}
	if cwd := o.Text("cwd"); cwd != "" {
		row.WorkspaceRoot = new(cwd)
	}
	own := rows.Object{}
	for _, k := range []string{"version", "gitBranch", "agentId", "slug"} {
		if v := o.Text(k); v != "" {
			own.Set(k, v)
		}
	}
	s.b.s.SetMeta("claude_code", own)
	d.sessions[key], d.order = s, append(d.order, s)
	return s
}

// blocks yields those of a message's content that are objects, and reports the others.
func (d *claude) blocks(content []json.RawMessage, line int) iter.Seq[rows.Object] {
	return func(yield func(rows.Object) bool) {
		for _, v := range content {
			block, err := rows.Parse(v)
			if err != nil {
				d.report(codec.Problem{Line: line, Reason: "a block of the message is no object: left out"})
			} else if !yield(block) {
				return
			}
		}
	}
}

// user adds what stands in the user's name, and says whether it is the user's own.
func (d *claude) user(s *claudeSession, o, message rows.Object, line int) bool {
	content := message.Get("content")
	if text, ok := rows.Text(content); ok {
		return d.said(s, o, []rows.Object{textPart("text", text)})
	}
	var parts []rows.Object
	results := false
	for block := range d.blocks(rows.Elements(content), line) {
		switch block.Text("type") {
		case "tool_result":
			results = true
			failed := string(block.Get("is_error")) == "true"
			if !s.b.result(block.Text("tool_use_id"), resultOf(block.Get("content")), failed) {
				d.report(codec.Problem{Line: line, Reason: "result of call " + block.Text("tool_use_id") + ", which nobody waits for: left out"})
			}
		case "text":
			parts = append(parts, textPart("text", block.Text("text")))
		case "image", "document":
			parts = append(parts, filePart(block))
		default:
			parts = append(parts, blockPart(block))
		}
	}
	return len(parts) > 0 && d.said(s, o, parts) && !results
}

func (d *claude) said(s *claudeSession, o rows.Object, parts []rows.Object) bool {
	if string(o.Get("isCompactSummary")) == "true" {
		s.b.compaction(parts[0].Text("text"), s.auto || s.since < 0, 0)
		s.since = -1
		return false
	}
	role := session.RoleUser
	if string(o.Get("isMeta")) == "true" {
		role = session.RoleSystem // the program tells the model something
	}
	s.b.message(role, parts)
	s.step = ""
	return role == session.RoleUser && !strings.HasPrefix(parts[0].Text("text"), "[Request interrupted by user")
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

// filePart is an image or a document of the user.
func filePart(block rows.Object) rows.Object {
	source := block.Object("source")
	if source.Text("type") == "base64" && source.Text("media_type") != "" {
		return fileOf(source.Text("media_type"), "data:"+source.Text("media_type")+";base64,"+source.Text("data"))
	}
	if source.Text("type") == "url" && block.Text("type") == "image" {
		return fileOf("image/*", source.Text("url"))
	}
	return blockPart(block)
}

func fileOf(mediaType, url string) rows.Object {
	var o rows.Object
	o.Set("type", "file")
	o.Set("mediaType", mediaType)
	o.Set("url", url)
	return o
}

// blockPart keeps a block for which there is no part, word for word.
func blockPart(block rows.Object) rows.Object {
	var o rows.Object
	o.Set("type", "data-block")
	o.Set("data", block)
	return o
}

func (d *claude) assistant(s *claudeSession, message rows.Object, line int) {
	blocks := rows.Elements(message.Get("content"))
	if text, ok := rows.Text(message.Get("content")); ok {
		blocks = []json.RawMessage{textPart("text", text).JSON()}
	}
	if id := message.Text("id"); len(blocks) > 0 && (s.step != id || s.b.turn == nil) {
		s.step = id
		s.b.part(rows.Object{{Key: "type", Value: json.RawMessage(`"step-start"`)}})
	}
	for block := range d.blocks(blocks, line) {
		switch block.Text("type") {
		case "text":
			s.b.part(textPart("text", block.Text("text")))
		case "thinking":
			s.b.part(textPart("reasoning", block.Text("thinking")))
		case "tool_use":
			input := block.Get("input")
			if input == nil {
				input = json.RawMessage("{}")
			}
			s.b.call(block.Text("name"), block.Text("id"), input)
		default:
			s.b.part(blockPart(block))
		}
	}
	if u := message.Object("usage"); u != nil {
		s.b.spend(message.Text("id"), session.Usage{
			Input: number(u, "input_tokens"), Output: number(u, "output_tokens"),
			CacheRead: number(u, "cache_read_input_tokens"), CacheWrite: number(u, "cache_creation_input_tokens"),
		})
		if s.b.turn != nil {
			s.b.turn.SetTrace("usage_basis", "exclusive")
		}
	}
	if model := message.Text("model"); model != "" && model != "<synthetic>" {
		s.b.model("anthropic", model)
	}
	if reason := message.Text("stop_reason"); reason != "" && s.b.turn != nil {
		s.b.turn.SetTrace("stop_reason", reason)
	}
}
