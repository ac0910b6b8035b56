package transcripts

import (
	"bufio"
	"bytes"
	"cmp"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// Claude reads transcripts of Claude Code. It yields the sessions in the order in which they begin: mostly one, and
// those of sub-agents that have records in the same file, with the id of their session and their own as theirs.
//
// The program records much in the user's name: commands that it runs by itself and their output, notifications, and the
// text that a command expands to. All of these are system messages. A command that the model answers is a user message
// with the command as it was typed.
//
// What the user left by going back to an earlier message and writing another in its place is hidden: the message that
// was replaced, and what follows from it alone. Records report what they follow from, but not that the user went back,
// so this is held to be so only of a message that has the same predecessor as a later one of the user's which the
// conversation goes on with. Other branches, such as results of calls that ran beside each other, are visible, as is a
// first message that was replaced: it has no predecessor, and neither has what a program began again.
//
// A fork begins with copies of the records of its parent, each of which names it in forkedFrom. Older versions resumed a
// session under a new id, in a new file that begins with copies which name nobody and have their own ids and times: the
// parent is in the same directory. A session that goes on from a record of another file has the session of that one as
// its parent, too.
//
// Beside the file of a sub-agent, agent-<id>.jsonl, the program keeps agent-<id>.meta.json,
// which names the tool call and the sub-agent that started it.
var Claude = claudeLines.reading(codec.Reading{
	Keys:       []string{"sessionId uuid type=*", "type=summary leafUuid"},
	Extensions: []string{".jsonl"}, Appends: true,
	Beside: func(path string) []string {
		if agentFile(path) != "" {
			return []string{strings.TrimSuffix(path, ".jsonl") + ".meta.json"}
		}
		return nil
	},
})

// agentFile is the sub-agent that the name of a file names, "" for another file.
func agentFile(path string) string {
	name, isLines := strings.CutSuffix(filepath.Base(path), ".jsonl")
	if id, isAgent := strings.CutPrefix(name, "agent-"); isLines && isAgent {
		return id
	}
	return ""
}

var claudeLines decoder = func(from *source, text []byte) (all []*codec.Session) {
	d := readClaude(from, text)
	d.readSidecar()
	for _, s := range d.order {
		s.answered(false)
		if s.sub == "" {
			d.follow(s)
			s.b.About.Forked = s.b.s.Row.ParentID != nil
			s.tree.hide()
			id := s.b.s.Row.ID
			s.b.Title = cmp.Or(d.titles["custom-title "+id], s.summary(d.summaries), d.titles["ai-title "+id])
		}
		all = append(all, s.b.finish())
	}
	return all
}

func readClaude(from *source, text []byte) *claude {
	d := &claude{
		source: from, sessions: make(map[string]*claudeSession), roots: make(map[string]string),
		titles: make(map[string]string), links: make(map[string]string), seen: make(map[string]bool),
	}
	d.origin, d.copied = originOf(from.path, text)
	from.lines(text, d.record)
	return d
}

// claudeMessages are those of the first session of a file that no record names as copies: their ids in their order, and
// their times by id.
type claudeMessages struct {
	session string
	ids     []string
	times   map[string]int64
}

func claudeMessagesOf(text []byte) claudeMessages {
	c := claudeMessages{times: make(map[string]int64)}
	rows.Records(text, func(codec.Problem) {}, func(o rows.Object, _ int) {
		session, id, kind := o.Text("sessionId"), o.Text("uuid"), o.Text("type")
		c.session = cmp.Or(c.session, session)
		if (kind == "user" || kind == "assistant") && session == c.session && id != "" && c.times[id] == 0 &&
			!o.True("isSidechain") && !o.Has("forkedFrom") {
			c.ids, c.times[id] = append(c.ids, id), max(1, milli(o.Text("timestamp")))
		}
	})
	return c
}

// beside is how many messages c has in common with others from the beginning, and when it went on by itself, 0 if it
// did not.
func (c *claudeMessages) beside(others *claudeMessages) (common int, at int64) {
	common = slices.IndexFunc(c.ids, func(id string) bool { return others.times[id] == 0 })
	if common < 0 {
		return len(c.ids), 0
	}
	return common, c.times[c.ids[common]]
}

// originOf finds the session in the same directory of which a file begins with copies, and the last of them. Of two
// with the same beginning the one that went on by itself first, or not at all, is the origin of the other.
func originOf(path string, text []byte) (origin, last string) {
	first, own := firstMessage(path), claudeMessages{}
	most, least := 0, int64(0)
	for _, file := range filesBeside(path) {
		if first == "" || firstMessage(file) != first {
			continue
		}
		if own.ids == nil {
			own = claudeMessagesOf(text)
		}
		text, _ := codec.ReadFile(file)
		other := claudeMessagesOf(text)
		common, at := own.beside(&other)
		_, otherAt := other.beside(&own)
		if cmp.Or(cmp.Compare(at, otherAt), strings.Compare(own.session, other.session)) > 0 &&
			(common > most || common == most && common > 0 && otherAt < least) {
			most, least, origin, last = common, otherAt, other.session, own.ids[common-1]
		}
	}
	return origin, last
}

// filesBeside are the other transcripts in the directory of one. In an unusual directory, none is found.
func filesBeside(path string) []string {
	if path == "" || agentFile(path) != "" {
		return nil
	}
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.jsonl"))
	return slices.DeleteFunc(files, func(file string) bool { return file == path || agentFile(file) != "" })
}

// firstMessages has the id of the first message of each file that was looked at. Records are only added to a file, and
// all others of its directory are looked at for each that is read.
var firstMessages sync.Map

func firstMessage(path string) (id string) {
	const most = 16 << 20 // a message may have some pictures
	if id, known := firstMessages.Load(path); known {
		return id.(string)
	}
	f, err := codec.OpenFile(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewReader(io.LimitReader(f, most)); err == nil && id == ""; {
		var line []byte
		line, err = lines.ReadBytes('\n')
		id = strings.Join(claudeMessagesOf(line).ids, "")
	}
	if err == nil {
		firstMessages.Store(path, id)
	}
	return id
}

type claude struct {
	*source
	sessions map[string]*claudeSession
	order    []*claudeSession
	// links are the records that report nothing of the conversation, with what each of
	// them follows from: hooks run before the first message.
	links map[string]string
	// seen has the session, the type and the id of each record. A program that resumes a session may write records
	// again, with another version, branch or predecessor; the first is where and when it happened.
	seen map[string]bool
	// origin is the session of which the file begins with copies, and copied the last of them: "" after it.
	origin, copied string
	// roots are the first records of the sub-agents' chains, by any of their records.
	roots map[string]string
	// titles are by kind and session: that of the user, that of a model, and that of the summaries.
	titles map[string]string
	// summaries are those of the file. Older versions begin a file with those of other conversations.
	summaries []rows.Object
}

type claudeSession struct {
	b    *builder
	sub  string // the sub-agent, empty for the session itself
	step string // the answer of the model that is being read
	turn string // the program's id of the turn
	// boundary is the compaction whose summary is awaited, nil for none.
	boundary *compacted
	// command is one that the user gave while it is not known who answers it.
	command *claudeCommand
	tree    branches
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

// follow links a session whose first record follows from one of another session: the program went on in another file,
// or in the same one. The other file is in the same directory.
func (d *claude) follow(s *claudeSession) {
	above := s.tree.missing(d.links)
	if above == "" || s.b.s.Row.ParentID != nil || s.continues(d, above) {
		return
	}
	for _, file := range filesBeside(d.path) {
		text, err := codec.ReadFile(file)
		if err == nil && bytes.Contains(text, []byte(`"`+above+`"`)) &&
			s.continues(readClaude(&source{Reporter: rows.Reporter{Report: func(codec.Problem) {}}}, text), above) {
			return
		}
	}
}

// continues links a session to the one of a file that has the record above, if there is one.
func (s *claudeSession) continues(d *claude, above string) bool {
	for _, o := range d.order {
		b := o.tree.byID[above]
		if b == nil || o.sub != "" || o.b.s.Row.ID == s.b.s.Row.ID {
			continue
		}
		s.b.parent(o.b.s.Row.ID)
		for ; b != nil; b = b.before() {
			if b.row != nil && b.row.Row.Role == session.RoleUser {
				s.b.s.Row.ParentMessageID = &b.row.Row.ID
				break
			}
		}
		return true
	}
	return false
}

// readSidecar reads what the program keeps beside the transcript of a sub-agent. Older versions write none.
func (d *claude) readSidecar() {
	id := agentFile(d.path)
	if id == "" || len(d.order) != 1 || d.order[0].sub != id {
		return
	}
	o := rows.Read(string(d.beside("agent-" + id + ".meta.json")))
	d.order[0].b.sidecar(o)
	d.order[0].kind(o.Text("agentType"))
}

// sidecar takes who started a sub-agent from what is beside its transcript.
func (b *builder) sidecar(o rows.Object) {
	b.About.CallID = o.Text("toolUseId")
	if parent := o.Text("parentAgentId"); parent != "" && parent != b.About.SubagentID {
		b.About.ParentSubagentID = parent
		b.parent(b.About.SubagentOf + "-" + parent)
	}
}

// kind sets the kind of the sub-agent.
func (s *claudeSession) kind(name string) {
	if s.sub != "" && name != "" {
		s.b.s.Row.Agent = name
	}
}

func (d *claude) record(o rows.Object) {
	id, message := o.Text("sessionId"), o.Object("message")
	known, kind, uuid := d.sessions[id], o.Text("type"), o.Text("uuid")
	if uuid != "" {
		record := id + " " + kind + " " + uuid
		if d.seen[record] {
			return
		}
		d.seen[record] = true
	}
	if d.copied != "" && o.True("isSidechain") {
		return // a sub-agent of the origin
	}
	defer func() {
		if uuid == d.copied {
			d.copied = ""
		}
	}()
	switch {
	case kind == "summary":
		d.summarize(o)
	case kind == "custom-title":
		d.entitle("custom-title "+id, o.Text("customTitle"), known)
	case kind == "ai-title":
		d.entitle("ai-title "+id, o.Text("aiTitle"), known)
	case kind == "user" || kind == "assistant":
		if message == nil || id == "" {
			d.Problem("has no message or no sessionId: left out")
			return
		}
		d.message(o, message)
	case id == "":
	case kind == "system" && d.system(o), kind == "attachment" && d.attachment(o): // they are of the conversation
	default:
		switch known = d.sessions[id]; {
		case known == nil:
		case kind == "api-request-shape":
			known.shape(o)
		case kind == "permission-mode":
			known.b.mode(o.Text("permissionMode"))
		case kind == "cost-state":
			if usd := rows.USD(o.Get("totalCostUSD")); usd != nil {
				known.b.Cost = usd
				known.changes()
			}
		}
		// One that reports the conversation may follow from it all the same.
		if uuid != "" {
			d.links[uuid] = o.Text("parentUuid")
		}
		if known != nil && !o.True("isSidechain") {
			known.tree.add(o, known.b.At, false, nil)
		}
	}
}

// summarize notes a summary.
func (d *claude) summarize(o rows.Object) {
	d.summaries = append(d.summaries, o)
	for _, s := range d.order {
		d.entitle("summary "+s.b.s.Row.ID, s.summary(d.summaries), s)
	}
}

// entitle notes a title of a session.
func (d *claude) entitle(key, title string, s *claudeSession) {
	if d.titles[key] != title {
		s.changes()
	}
	d.titles[key] = title
}

// summary is the last summary of a conversation that ends with a message of the session.
func (s *claudeSession) summary(all []rows.Object) (text string) {
	for _, o := range all {
		if leaf := o.Text("leafUuid"); leaf == "" || s.tree.byID[leaf] != nil {
			text = o.Text("summary")
		}
	}
	return text
}

// changes makes the session later by a moment where it has a new title or cost, of which the record has no time: else a
// transcript that grew by it alone would be as late as what was imported before.
func (s *claudeSession) changes() {
	if s != nil && s.sub == "" && s.b.At > 0 {
		s.b.see(s.b.At + 1)
	}
}

// message reads a record that holds a message.
func (d *claude) message(o, message rows.Object) {
	s := d.begun(o)
	said := false
	if o.Text("type") == "assistant" {
		s.answered(true)
		s.assistant(o, message)
	} else {
		said = s.user(o, message)
	}
	if s.command == nil || s.b.touched != nil { // else it joins the tree when it is known whose it is
		s.tree.add(o, s.b.At, said, s.b.touched)
	}
}

// session is that of a record.
func (d *claude) session(o rows.Object) *claudeSession {
	id, sub := o.Text("sessionId"), ""
	key := id
	if o.True("isSidechain") {
		uuid := o.Text("uuid")
		root := cmp.Or(d.roots[o.Text("parentUuid")], uuid)
		d.roots[uuid] = root
		if sub = cmp.Or(o.Text("agentId"), root); sub != "" {
			key += "-" + sub
		}
	}
	s := d.sessions[key]
	if s == nil {
		s = &claudeSession{b: newBuilder(d.source, key, "claude-code"), sub: sub, paid: make(map[string]float64),
			tree: branches{byID: make(map[string]*branch)}}
		if sub != "" {
			s.b.parent(id)
			s.b.About.SubagentOf, s.b.About.SubagentID = id, sub
		}
		s.b.workspace(o.Text("cwd"))
		s.b.s.SetMeta("claude_code", o.Texts("version", "gitBranch", "agentId", "slug"))
		d.sessions[key], d.order = s, append(d.order, s)
	}
	from := o.Object("forkedFrom").Text("sessionId")
	if d.copied != "" && sub == "" {
		from = cmp.Or(from, d.origin)
	}
	switch {
	case sub != "":
	case from != "":
		s.b.copies(from)
	case s.b.Fork.Copying:
		s.b.owns()
		s.step = ""
	}
	return s
}

// begun is the session of a record that begins to be read.
func (d *claude) begun(o rows.Object) *claudeSession {
	s := d.session(o)
	s.b.see(milli(o.Text("timestamp")))
	s.b.touched = nil
	return s
}

// system reads what the program notes of the conversation, and reports whether it is a message.
func (d *claude) system(o rows.Object) bool {
	switch o.Text("subtype") {
	case "compact_boundary":
		s := d.begun(o)
		s.answered(false)
		s.compact()
		about := o.Object("compactMetadata")
		kept := about.Object("preservedSegment").Text("headUuid")
		if list := contents(about.Object("preservedMessages").Get("uuids")); len(list) > 0 {
			kept = list[0].Text("text")
		}
		s.boundary = &compacted{auto: about.Text("trigger") != "manual", before: number(about, "preTokens"),
			after: number(about, "postTokens"), durationMS: number(about, "durationMs"), tail: s.tree.messageFrom(kept)}
	case "turn_duration":
		if s := d.sessions[o.Text("sessionId")]; s != nil {
			s.b.took(number(o, "durationMs"))
		}
	case "local_command":
		if text := o.Text("content"); text != "" {
			s := d.begun(o)
			s.answered(false)
			s.tree.add(o, s.b.At, false, s.b.notice(text))
			return true
		}
	}
	return false
}

// attachment reads what the program adds to a request of its own accord, and reports whether it is a message.
func (d *claude) attachment(o rows.Object) bool {
	about := o.Object("attachment")
	switch about.Text("type") {
	case "prompt_snapshot":
		d.session(o).shape(about)
	case "queued_command":
		s := d.begun(o)
		if o.Object("origin") == nil && about.Object("origin") != nil {
			o = append(slices.Clone(o), rows.Field{Key: "origin", Value: about.Get("origin")})
		}
		if about.Has("prompt") {
			s.tree.add(o, s.b.At, s.user(o, rows.Of("content", about.Get("prompt"))), s.b.touched)
			return true
		}
	}
	return false
}

// shape reads what a request consists of beside the conversation.
func (s *claudeSession) shape(o rows.Object) {
	if shape := o.Object("shape"); shape != nil {
		o = shape
	}
	for _, key := range []string{"systemPrompt", "system"} {
		s.b.systemPrompt(joined(contents(o.Get(key)), "\n\n"))
	}
	s.b.toolCatalog(o.Get("tools"))
}

// compact adds the compaction of which no summary came.
func (s *claudeSession) compact() {
	if s.boundary != nil {
		s.b.compaction(*s.boundary)
		s.boundary = nil
	}
}

// user adds a record in the user's name, and reports whether the user wrote it.
func (s *claudeSession) user(o, message rows.Object) bool {
	var parts []rows.Object
	results := false
	for _, block := range contents(message.Get("content")) {
		if block.Text("type") == "tool_result" {
			results = true
			s.result(o, block)
		} else {
			parts = append(parts, partOf(block))
		}
	}
	return len(parts) > 0 && s.said(o, parts) && !results
}

// result adds the outcome of a call, and what the program measured of it.
func (s *claudeSession) result(o, block rows.Object) {
	id, about := block.Text("tool_use_id"), o.Object("toolUseResult")
	if !s.b.result(id, resultOf(block.Get("content")), block.True("is_error")) {
		return
	}
	s.b.lasted(id, max(number(about, "durationMs"), number(about, "totalDurationMs")))
	if agent := about.Text("agentId"); agent != "" {
		of := cmp.Or(o.Object("forkedFrom").Text("sessionId"), o.Text("sessionId"))
		s.b.measure(id, "child_session_id", of+"-"+agent)
	}
	s.permit(id, o, block)
}

// permit notes how it was decided whether a call may run, which a record reports in the words of the program's
// telemetry. Older versions report it in the text of the result only.
func (s *claudeSession) permit(id string, o, block rows.Object) {
	about, kind := o.Object("permissionDecision"), o.Text("toolDenialKind")
	d := store.Decision{Source: about.Text("source"), Action: "allow", Outcome: "allowed"}
	if about.Text("decision") != "accept" {
		d.Reason, _ = rows.Text(resultOf(block.Get("content")))
		if kind == "" && about == nil && block.True("is_error") {
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
	case strings.HasPrefix(text, "The user doesn't want to proceed with this tool use"),
		strings.HasPrefix(text, "The user doesn't want to take this action right now"):
		return "user-rejected"
	case strings.HasPrefix(text, "Permission to use ") && strings.Contains(text, "has been denied"),
		strings.HasPrefix(text, "Claude requested permissions to "):
		return "permission-rule"
	}
	return ""
}

// programTags begin texts that the program writes in the user's name.
var programTags = []string{
	"<local-command-stdout>", "<local-command-stderr>", "<local-command-caveat>", "<bash-input>", "<bash-stdout>",
	"<bash-stderr>", notification, "<teammate-message", "<tick>", "<user-prompt-submit-hook>", "<command-args>",
	"Caveat: The messages below were generated by the user while running local commands",
}

const notification = "<task-notification>"

// said adds text of a record in the user's name, and reports whether the user wrote it.
func (s *claudeSession) said(o rows.Object, parts []rows.Object) bool {
	text := strings.TrimSpace(parts[0].Text("text"))
	if words, _ := session.Words(text); words != "" {
		text = words
	}
	_, own := spoken(parts)
	meta, byProgram, origin := o.True("isMeta"), beginsWith(text, programTags), o.Object("origin").Text("kind")
	isCommand := strings.HasPrefix(text, "<command-name>") || strings.HasPrefix(text, "<command-message>")
	compaction, interrupted := o.True("isCompactSummary"), strings.HasPrefix(text, "[Request interrupted by user")
	byPerson := !meta && own && !byProgram && (origin == "" || origin == "human")
	// The text that a command expands to is for the model, which answers it.
	s.answered(meta && !byProgram && !compaction && !interrupted && !isCommand)
	switch {
	case compaction:
		c := compacted{auto: true}
		if s.boundary != nil {
			c, s.boundary = *s.boundary, nil
		}
		c.summary = parts[0].Text("text")
		s.b.compaction(c)
	case interrupted:
		s.b.ended("abort", "")
		s.b.message(session.RoleSystem, parts...)
		s.step = ""
	case isCommand:
		s.command = &claudeCommand{record: o, at: s.b.At, typed: typedCommand(text), parts: parts}
	case byPerson:
		s.compact()
		s.asked(o, parts)
		return true
	default:
		s.compact()
		m := s.b.message(session.RoleSystem, parts...)
		if s.step = ""; strings.HasPrefix(text, notification) { // which the model answers: a sub-agent is done
			s.turn = o.Text("promptId")
			m.named(o.Text("uuid"), s.turn, "")
		}
	}
	return false
}

// asked adds the user's message, which a record holds.
func (s *claudeSession) asked(o rows.Object, parts []rows.Object) {
	s.step, s.turn = "", o.Text("promptId")
	s.b.message(session.RoleUser, parts...).named(o.Text("uuid"), s.turn, "")
}

// localCommands are answered by the program, never by the model.
var localCommands = []string{
	"/clear", "/compact", "/config", "/context", "/cost", "/doctor", "/exit", "/help", "/hooks", "/login", "/logout",
	"/mcp", "/model", "/permissions", "/quit", "/rename", "/resume", "/status", "/usage", "/vim",
}

// typedCommand is a command as the user typed it, with its arguments.
func typedCommand(text string) string {
	name := strings.TrimSpace(between(text, "<command-name>", "</command-name>"))
	if name != "" && !strings.HasPrefix(name, "/") {
		name = "/" + name
	}
	return strings.TrimSpace(name + " " + strings.TrimSpace(between(text, "<command-args>", "</command-args>")))
}

// answered settles the command that waits: the user's message where the model answers it, and otherwise the program's.
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
		s.b.message(session.RoleSystem, c.parts...)
		s.step = ""
	}
	s.tree.add(c.record, c.at, byModel, s.b.touched)
	s.b.At, s.b.touched = now, touched
}

// assistant adds a record of an answer, of which there may be several.
func (s *claudeSession) assistant(o, message rows.Object) {
	s.compact()
	b, id, blocks := s.b, message.Text("id"), contents(message.Get("content"))
	if len(blocks) > 0 && (s.step != id || b.turn == nil) {
		s.step = id
		b.part(rows.Of("type", "step-start"))
		step := b.turn.newStep(id)
		step.StartedAt, step.ResponseID, step.RequestID = b.At, id, o.Text("requestId")
		if m := b.turn; len(m.Parts()) == 1 { // the turn begins
			m.named("", cmp.Or(o.Text("promptId"), s.turn), "")
			m.AddMeta(rows.NonEmpty("system_prompt_digest", b.Prompt))
			m.AddTrace(rows.NonEmpty("tool_catalog_digest", b.Catalog))
		}
	}
	model, failed := message.Text("model"), o.True("isApiErrorMessage")
	if failed { // the program wrote it, not the model
		text, _ := rows.Text(resultOf(message.Get("content")))
		text = cmp.Or(text, o.Text("error"), "error")
		b.part(rows.DataPart(session.TypeError, rows.Of("text", text)))
		b.ended("error", text)
		blocks = nil
	}
	for _, block := range blocks {
		b.block(block)
	}
	if b.turn == nil {
		return
	}
	s.kind(o.Text("attributionAgent"))
	if model == "<synthetic>" {
		model = ""
	} else if u := message.Object("usage"); u != nil {
		b.turn.stepOf(id).count(modelUse{usage: anthropicCounts.of(u)}, semconv.BasisExclusive)
	}
	if usd := rows.USD(o.Get("costUSD")); usd != nil {
		b.turn.paid(new(*usd - s.paid[id]))
		s.paid[id] = *usd
	}
	b.setModel(session.Model{ProviderID: "anthropic", ModelID: model, Variant: o.Text("effort")})
	if reason := message.Text("stop_reason"); reason != "" && !failed {
		b.turn.SetTrace("stop_reason", reason)
		if step := b.turn.find(id); step != nil {
			step.StopReason = reason
		}
		if slices.Contains([]string{"end_turn", "stop_sequence", "refusal", "max_tokens"}, reason) {
			b.ended("finish", "")
		}
	}
}

// branches are the records of a session by what they follow from. A conversation forks where the user goes back, and
// also where calls run beside each other: each result follows from its own call.
type branches struct {
	order []*branch
	byID  map[string]*branch
}

// branch is a record, and the conversation from its beginning up to it.
type branch struct {
	// above is the record that it follows from, nil for one that is not before it; unknown is the id of that.
	above   *branch
	unknown string
	// said reports that the user wrote it; row is the message that it is reported by, nil
	// for what is no part of the conversation.
	said bool
	row  *message
	at   int64
	left int64 // when the user left it for another, 0 for what stays
}

// add notes a record. A compaction begins again, and names what was before.
func (t *branches) add(o rows.Object, at int64, said bool, row *message) {
	id, above := o.Text("uuid"), cmp.Or(o.Text("parentUuid"), o.Text("logicalParentUuid"))
	if id == "" || t.byID[id] != nil {
		return
	}
	b := &branch{above: t.byID[above], unknown: above, said: said, row: row, at: at}
	t.byID[id], t.order = b, append(t.order, b)
}

// conversation reports whether the record is of the user or the model.
func (b *branch) conversation() bool { return b.row != nil && b.row.Row.Role != session.RoleSystem }

// before is the record of the conversation that b follows from, nil for none.
func (b *branch) before() *branch {
	for b = b.above; b != nil && !b.conversation(); b = b.above {
	}
	return b
}

// messageFrom is the id of the first message of the conversation from a record on, nil if there is none.
func (t *branches) messageFrom(id string) *string {
	first := t.byID[id]
	for i := slices.Index(t.order, first); first != nil && i < len(t.order); i++ {
		if b := t.order[i]; b.conversation() {
			return &b.row.Row.ID
		}
	}
	return nil
}

// missing is the record that the conversation follows from and that the file does not have: the client resumed what was
// not recorded here, which the first answer notes. links are the records that are no part of the conversation.
func (t *branches) missing(links map[string]string) string {
	first := slices.IndexFunc(t.order, (*branch).conversation)
	if first < 0 {
		return ""
	}
	b := t.order[first]
	for b.above != nil {
		b = b.above
	}
	above := b.unknown
	for range links { // the chain of a damaged file may be a circle
		if parent, known := links[above]; known {
			above = parent
		}
	}
	if _, known := links[above]; known || above == "" || t.byID[above] != nil {
		return ""
	}
	for _, b := range t.order {
		if b.conversation() && b.row.Row.Role == session.RoleAssistant {
			b.row.SetTrace("history", session.History{})
			break
		}
	}
	return above
}

// hide hides the messages that the user left.
func (t *branches) hide() {
	path := make(map[*branch]bool) // from the beginning to the record of the conversation that was written last
	for _, b := range slices.Backward(t.order) {
		if b.conversation() {
			for ; b != nil; b = b.above {
				path[b] = true
			}
			break
		}
	}
	// Of the messages with one predecessor, the one that the conversation goes on
	// with, and the times at which others were replaced.
	kept := make(map[*branch]bool)
	replaced := make(map[*branch]int64)
	last := make(map[*branch]*branch) // by predecessor
	for _, b := range t.order {
		if !b.said {
			continue
		}
		if anchor := b.before(); anchor != nil {
			if earlier := last[anchor]; earlier != nil {
				replaced[earlier] = max(1, b.at)
			}
			last[anchor], kept[anchor] = b, kept[anchor] || path[b]
		}
	}
	// Records come after what they follow from, so one pass passes it on. A message is left if all of its records are.
	since := make(map[*message]int64)
	stays := make(map[*message]bool)
	for _, b := range t.order {
		switch {
		case path[b]:
		case b.above != nil && b.above.left > 0:
			b.left = b.above.left
		case replaced[b] > 0 && kept[b.before()]:
			b.left = replaced[b]
		}
		if b.row != nil {
			since[b.row], stays[b.row] = max(since[b.row], b.left), stays[b.row] || b.left == 0
		}
	}
	for m, at := range since {
		if !stays[m] {
			m.hide(at)
		}
	}
}
