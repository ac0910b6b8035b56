package transcripts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// looksClaude reports whether a record with these keys, and the values of those that
// are strings, is one of Claude Code that reports the conversation.
func looksClaude(keys map[string]string) bool {
	_, session := keys["sessionId"]
	_, uuid := keys["uuid"]
	_, leaf := keys["leafUuid"]
	return session && uuid && keys["type"] != "" || keys["type"] == "summary" && leaf
}

// Claude reads transcripts of Claude Code. It yields the sessions in the
// order in which they begin: mostly one, and those of sub-agents that have records
// in the same file, with the id of their session and their own as theirs.
//
//	user, text or image    user message
//	queued_command         user message: text typed while the agent worked
//	assistant              parts of the turn, and its usage, once for each answer
//	thinking               reasoning part
//	tool_use, tool_result  part tool-<name>
//	compact_boundary       assistant message with a data-compaction part
//	prompt_snapshot,
//	api-request-shape      system prompt and tool catalog, by digest
//	turn_duration          duration of the turn
//	cost-state, costUSD    cost
//	permission-mode        the mode
//	summary, …-title       the title
//
// The program records much in the user's name: commands that it runs by itself and
// their output, notifications, and the text that a command expands to. All of these
// are system messages. A command that the model answers is a user message with the
// command as it was typed.
//
// What the user left by going back to an earlier message and writing another in its
// place is hidden: the message that was replaced, and what follows from it alone.
// Records report what they follow from, but not that the user went back, so this is
// held to be so only of a message that has the same predecessor as a later one of
// the user's which the conversation goes on with. Other branches, such as results of
// calls that ran beside each other, are visible, as is a first message that was
// replaced: it has no predecessor, and neither has what a program began again.
//
// A fork begins with copies of the records of its parent, each of which names it in forkedFrom. A session that goes on
// from a record of another file has the session of that one as its parent, too.
//
// Lines that cannot be read are reported and left out; report may be nil. An error
// is yielded when reading fails or nothing in the stream is of Claude Code.
//
// Beside the file of a sub-agent, agent-<id>.jsonl, the program keeps agent-<id>.meta.json,
// which names the tool call and the sub-agent that started it.
var Claude = codec.Reading{
	Extensions: []string{".jsonl"}, SniffKeys: looksClaude, Transcript: true,
	Decode: claudeLines.stream, DecodeFile: claudeLines.file, DecodeText: claudeLines, Beside: besideClaude,
}

var claudeLines = lines(func(_ string, report func(codec.Problem)) recordReader { return newClaude(report) })

func newClaude(report func(codec.Problem)) *claude {
	return &claude{
		report: report, bySession: make(map[string]*claudeSession), roots: make(map[string]string),
		custom: make(map[string]string), guessed: make(map[string]string),
		links: make(map[string]string),
	}
}

// Sessions returns what was read of the file at path.
func (d *claude) Sessions(path string) ([]*codec.Session, error) {
	if len(d.order) == 0 {
		return nil, errors.New("read transcript: no message of Claude Code in it")
	}
	d.readSidecar(path)
	var all []*codec.Session
	for _, s := range d.order {
		s.answered(false)
		if s.Sub == "" {
			s.tree.continues(d.links)
			d.follow(s, path)
			s.b.About.Forked = s.b.s.Row.ParentID != nil
			s.tree.hide()
			id := s.b.s.Row.ID
			s.b.Title = cmp.Or(d.custom[id], d.title, d.guessed[id])
		}
		all = append(all, s.b.finish())
	}
	return all, nil
}

// follow links a session whose first record follows from one of another session: the program went on in another file,
// or in the same one. The other file is in the same directory.
func (d *claude) follow(s *claudeSession, path string) {
	above := s.tree.missing(d.links)
	if above == "" || s.b.s.Row.ParentID != nil || slices.ContainsFunc(d.order, func(o *claudeSession) bool {
		return s.follows(o, above)
	}) || path == "" {
		return
	}
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.jsonl")) // in an unusual directory, none is found
	for _, file := range files {
		if file == path || strings.HasPrefix(filepath.Base(file), "agent-") {
			continue
		}
		text, err := codec.ReadFile(file)
		if err != nil || !bytes.Contains(text, []byte(`"`+above+`"`)) {
			continue
		}
		other := newClaude(func(codec.Problem) {})
		rows.Records(text, other.report, other.Record)
		if slices.ContainsFunc(other.order, func(o *claudeSession) bool { return s.follows(o, above) }) {
			return
		}
	}
}

// follows links a session to another one, if that has the record above.
func (s *claudeSession) follows(o *claudeSession, above string) bool {
	b := o.tree.byID[above]
	if b == nil || o.Sub != "" || o.b.s.Row.ID == s.b.s.Row.ID {
		return false
	}
	s.b.parent(o.b.s.Row.ID)
	for range o.tree.order { // the chain of a damaged file may be a circle
		if b == nil {
			break
		}
		if b.row != nil && b.row.Row.Role == session.RoleUser {
			s.b.s.Row.ParentMessageID = &b.row.Row.ID
			break
		}
		b = o.tree.before(b)
	}
	return true
}

func besideClaude(path string) []string {
	if name, found := strings.CutSuffix(path, ".jsonl"); found && strings.HasPrefix(filepath.Base(path), "agent-") {
		return []string{name + ".meta.json"}
	}
	return nil
}

// readSidecar reads what the program keeps beside the transcript of a sub-agent, where
// there is such a file and it is of the program.
func (d *claude) readSidecar(path string) {
	name, found := strings.CutSuffix(path, ".jsonl")
	id, named := strings.CutPrefix(filepath.Base(name), "agent-")
	if !found || !named || len(d.order) != 1 || d.order[0].Sub != id {
		return
	}
	f, err := codec.OpenFile(name + ".meta.json")
	if err != nil {
		return // older versions write none
	}
	defer f.Close()
	const maximum = 1 << 20
	text, err := io.ReadAll(io.LimitReader(f, maximum))
	if err != nil {
		return
	}
	o, err := rows.Parse(text)
	if err != nil {
		d.report(codec.Problem{Reason: filepath.Base(f.Name()) + " is not a JSON object: left out"})
		return
	}
	s := d.order[0]
	s.b.About.CallID = o.Text("toolUseId")
	s.setAgent(o.Text("agentType"))
	if parent := o.Text("parentAgentId"); parent != "" && parent != s.Sub {
		s.b.About.ParentSubagentID = parent
		s.b.s.Row.ParentID = new(s.b.About.SubagentOf + "-" + parent)
	}
}

// setAgent sets the kind of the sub-agent.
func (s *claudeSession) setAgent(kind string) {
	if s.Sub != "" && kind != "" {
		s.b.s.Row.Agent = kind
	}
}

type claude struct {
	report    func(codec.Problem)
	bySession map[string]*claudeSession
	order     []*claudeSession
	// links are the records that report nothing of the conversation, with what each of
	// them follows from: hooks run before the first message.
	links map[string]string
	// roots are the first records of the sub-agents' chains, by any of their records.
	roots map[string]string
	title string // of the file, which is reported of no session
	// custom are titles by session that the user gave, guessed that a model did.
	custom, guessed map[string]string
}

type claudeSession struct {
	b    *builder
	Sub  string // the sub-agent, empty for the session itself
	Step string // the answer of the model that is being read
	Turn string // the program's id of the turn
	// Prompt and Catalog are the digests that answers have from here on.
	Prompt, Catalog string
	// boundary is the compaction whose summary is awaited, nil for none.
	boundary *compacted
	// command is one that the user gave while it is not known who answers it.
	command *claudeCommand
	tree    branches
	// shapes are the digests of prompts and catalogs by their JSON, which each request repeats.
	shapes map[string]string
	// paid is what each answer cost, by its id.
	paid map[string]float64
}

// claudeCommand is a slash command of the user.
type claudeCommand struct {
	record rows.Object
	at     int64
	typed  string
	parts  []rows.Object
}

func (d *claude) Record(o rows.Object, line int) {
	kind := o.Text("type")
	switch kind {
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
	default:
		d.state(kind, o, line)
		return
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
	if kind == "assistant" {
		s.answered(true)
		d.assistant(s, o, message, line)
	} else {
		said = d.user(s, o, message, line)
	}
	if s.command != nil && s.b.touched == nil {
		return // it joins the tree when it is known whose it is
	}
	s.tree.add(o, s.b.At, said, s.b.touched)
}

// state reads a record that is not a message.
func (d *claude) state(kind string, o rows.Object, line int) {
	if o.Text("sessionId") == "" {
		return
	}
	known := d.bySession[o.Text("sessionId")]
	switch kind {
	case "system":
		d.system(o)
		return
	case "attachment":
		d.attachment(o, line)
		return
	case "api-request-shape":
		d.shape(known, o)
	case "cost-state":
		if usd, ok := usdOf(o.Get("totalCostUSD")); ok && known != nil {
			known.b.Cost = &usd
			known.titled(true)
		}
	case "permission-mode":
		if known != nil {
			rows.SetText(&known.b.s.Row.Mode, o.Text("permissionMode"))
		}
	}
	d.link(o)
}

// system reads what the program notes of the conversation.
func (d *claude) system(o rows.Object) {
	switch o.Text("subtype") {
	case "compact_boundary":
		s := d.session(o)
		s.b.see(o.Text("timestamp"))
		s.answered(false)
		s.compact()
		about := o.Object("compactMetadata")
		s.boundary = &compacted{
			auto: about.Text("trigger") != "manual", before: number(about, "preTokens"),
			after:      number(about, "postTokens"),
			durationMS: number(about, "durationMs"),
		}
		kept := about.Object("preservedSegment").Text("headUuid")
		if uuid, ok := rows.Text(firstOf(about.Object("preservedMessages").Get("uuids"))); ok {
			kept = uuid
		}
		s.boundary.tail = s.tree.messageFrom(kept)
	case "turn_duration":
		if s := d.bySession[o.Text("sessionId")]; s != nil && s.b.turn != nil && number(o, "durationMs") > 0 {
			s.b.turn.SetTrace("duration_ms", number(o, "durationMs"))
		}
	case "local_command":
		if text := o.Text("content"); text != "" {
			s := d.session(o)
			s.b.see(o.Text("timestamp"))
			s.answered(false)
			s.b.message(session.RoleSystem, []rows.Object{rows.TextPart("text", text)})
			s.tree.add(o, s.b.At, false, s.b.touched)
			return
		}
	}
	d.link(o)
}

// attachment reads what the program adds to a request of its own accord.
func (d *claude) attachment(o rows.Object, line int) {
	about := o.Object("attachment")
	switch about.Text("type") {
	case "prompt_snapshot":
		d.shape(d.session(o), about)
	case "queued_command":
		s := d.session(o)
		s.b.see(o.Text("timestamp"))
		s.b.touched = nil
		if o.Object("origin") == nil && about.Object("origin") != nil {
			o = append(slices.Clone(o), rows.Field{Key: "origin", Value: about.Get("origin")})
		}
		if about.Has("prompt") {
			said := d.user(s, o, rows.Of("content", about.Get("prompt")), line)
			s.tree.add(o, s.b.At, said, s.b.touched)
			return
		}
	}
	d.link(o)
}

// shape reads what a request consists of beside the conversation.
func (d *claude) shape(s *claudeSession, o rows.Object) {
	if s == nil {
		return
	}
	if shape := o.Object("shape"); shape != nil {
		o = shape
	}
	for _, key := range []string{"systemPrompt", "system"} {
		raw := o.Get(key)
		if digest, known := s.shapes[string(raw)]; known {
			s.Prompt = digest
		} else if text := promptOf(raw); text != "" {
			s.Prompt = s.b.blob(store.BlobSystemPrompt, text)
			s.shapes[string(raw)] = s.Prompt
		}
	}
	tools := o.Get("tools")
	if digest, known := s.shapes[string(tools)]; known {
		s.Catalog = digest
	} else if len(rows.Elements(tools)) > 0 {
		s.Catalog = s.b.blob(store.BlobToolCatalog, string(tools))
		s.shapes[string(tools)] = s.Catalog
	}
}

// promptOf is the text of a system prompt: one text, or a list of texts or of blocks.
func promptOf(raw json.RawMessage) string {
	if text, ok := rows.Text(raw); ok {
		return text
	}
	var all []string
	for _, block := range contents(raw) {
		if text := block.Text("text"); text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, "\n\n")
}

// usdOf reads an amount of money.
func usdOf(raw json.RawMessage) (float64, bool) {
	usd, err := json.Number(raw).Float64()
	return usd, err == nil && usd >= 0 && usd < 1e9
}

// entitle notes a title of a session.
func (d *claude) entitle(titles map[string]string, id, title string) {
	if s := d.bySession[id]; s != nil {
		s.titled(titles[id] != title)
	}
	titles[id] = title
}

// titled makes the session later by a moment where it has a new title, of which the
// record has no time: else a transcript that grew by it alone would be as late as what
// was imported before.
func (s *claudeSession) titled(anew bool) {
	if anew && s.Sub == "" && s.b.At > 0 {
		s.b.seeMilli(s.b.At + 1)
	}
}

// link notes a record that reports nothing of the conversation, which one that does may
// follow from all the same.
func (d *claude) link(o rows.Object) {
	if id := o.Text("uuid"); id != "" {
		d.links[id] = o.Text("parentUuid")
	}
	if s := d.bySession[o.Text("sessionId")]; s != nil && string(o.Get("isSidechain")) != "true" {
		s.tree.add(o, s.b.At, false, nil)
	}
}

// session is that of a record.
func (d *claude) session(o rows.Object) *claudeSession {
	id, sub := o.Text("sessionId"), ""
	if o.True("isSidechain") {
		uuid := o.Text("uuid")
		root := cmp.Or(d.roots[o.Text("parentUuid")], uuid)
		d.roots[uuid] = root
		sub = cmp.Or(o.Text("agentId"), root)
	}
	key := id
	if sub != "" {
		key += "-" + sub
	}
	s := d.bySession[key]
	if s != nil {
		s.origin(o)
		return s
	}
	s = &claudeSession{b: newBuilder(key, "claude-code", d.report), Sub: sub,
		paid: make(map[string]float64), shapes: make(map[string]string)}
	row := &s.b.s.Row
	if sub != "" {
		row.ParentID = new(id)
		s.b.About.SubagentOf, s.b.About.SubagentID = id, sub
	}
	rows.SetText(&row.WorkspaceRoot, o.Text("cwd"))
	s.b.s.SetMeta("claude_code", o.Texts("version", "gitBranch", "agentId", "slug"))
	d.bySession[key], d.order = s, append(d.order, s)
	s.origin(o)
	return s
}

// origin notes whether a record is a copy of one of another session.
func (s *claudeSession) origin(o rows.Object) {
	switch from := o.Object("forkedFrom").Text("sessionId"); {
	case s.Sub != "":
	case from != "":
		s.b.copies(from)
	case s.b.Fork.Copying:
		s.b.owns()
		s.Step = ""
	}
}

// describe notes on a turn that begins what it was asked with.
func (s *claudeSession) describe(o rows.Object) {
	m := s.b.turn
	if len(m.Parts()) > 1 {
		return
	}
	named(m, "", cmp.Or(o.Text("promptId"), s.Turn), "")
	m.AddMeta(rows.NonEmpty("system_prompt_digest", s.Prompt))
	m.AddTrace(rows.NonEmpty("tool_catalog_digest", s.Catalog))
}
