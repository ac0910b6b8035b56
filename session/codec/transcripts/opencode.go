package transcripts

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// Opencode reads the database in which opencode keeps its sessions; each channel of its releases has one. Kilo Code,
// since it is made of opencode, has a database of its own with the same tables. Sessions come in the order of their
// making.
//
// A session that the user reverted, and has not gone on with since, has its messages hidden from there on; where that
// is in the midst of a turn, from the next message on. Ids are opencode's own.
var Opencode = codec.Reading{
	Extensions: []string{".db"}, Tables: []string{"message", "part", "session"}, Transcript: true, Selects: true,
	ReadPath: inDatabase("sessions of opencode", decodeOpencode), Beside: rows.DatabaseFiles,
}

// decodeOpencode yields the sessions of a database. The program changes messages and parts in place.
func decodeOpencode(db *database) error {
	list, listed := db.table("SELECT * FROM session ORDER BY time_created, id")
	return cmp.Or(db.each(list, func(row rows.Object) *codec.Session {
		id := row.Text("id")
		if id == "" || !db.wants(id, row, "SELECT count(*), max(time_updated) FROM message WHERE session_id = ?",
			"SELECT count(*), max(time_updated) FROM part WHERE session_id = ?") {
			return nil
		}
		messages, failed := db.opencodeRecords("message", id, "time_created, id")
		parts, alsoFailed := db.opencodeRecords("part", id, "message_id, id")
		if err := cmp.Or(failed, alsoFailed); err != nil && db.ended() == nil {
			db.problemOf("session "+id, "it is read as far as it is good: %v", err)
		}
		of := make(map[string][]opencodeRecord)
		for _, p := range parts {
			of[p.message] = append(of[p.message], p)
		}
		for i := range messages {
			messages[i].parts = of[messages[i].id]
		}
		messages = session.SortedRows(messages, func(a, b *opencodeRecord) int {
			return cmp.Or(cmp.Compare(a.at(), b.at()), cmp.Compare(a.id, b.id))
		})
		return opencodeSession(db.source, row, messages)
	}), listed)
}

// opencodeRecords reads the messages or parts of a session.
func (db *database) opencodeRecords(what, session, order string) (all []opencodeRecord, err error) {
	list, err := db.table("SELECT * FROM "+what+" WHERE session_id = ? ORDER BY "+order, session)
	for _, row := range list {
		r := opencodeRecord{id: row.Text("id"), message: row.Text("message_id"), created: moment(row, "time_created"),
			updated: moment(row, "time_updated")}
		var bad error
		if r.data, bad = rows.Parse([]byte(row.Text("data"))); bad != nil {
			db.problemOf(what+" "+r.id, "its data is not a JSON object: left out: %v", bad)
			continue
		}
		all = append(all, r)
	}
	return all, err
}

// opencodeRecord is a message with its parts, in the order of their ids, or a part.
type opencodeRecord struct {
	id, message      string // that a part is of
	created, updated int64
	data             rows.Object
	parts            []opencodeRecord
}

// at is when the record's thing was made.
func (r *opencodeRecord) at() int64 {
	return cmp.Or(moment(r.data.Object("time"), "created"), r.created)
}

// opencode builds the rows of a session.
type opencode struct {
	*builder
	ids   map[string]bool     // of rows
	rowOf map[string]*message // by message of opencode
	// asked is the part that asked for the summary that is awaited.
	asked rows.Object
}

func opencodeSession(from *source, row rows.Object, messages []opencodeRecord) *codec.Session {
	agent, program := row.Text("agent"), "opencode"
	for i := range messages {
		agent = cmp.Or(agent, opencodeAgent(messages[i].data))
	}
	if strings.HasPrefix(filepath.Base(from.path), "kilo") {
		program = "kilo-code"
	}
	d := opencode{newBuilder(from, row.Text("id"), program), make(map[string]bool), make(map[string]*message), nil}
	d.s.Row.Agent = cmp.Or(agent, program)
	d.parent(row.Text("parent_id"))
	d.workspace(row.Text("directory"))
	rows.SetText(&d.s.Row.WorkspaceID, row.Text("workspace_id"))
	d.archived(moment(row, "time_archived"))
	d.s.Row.PermissionsJSON = opencodeRules(json.RawMessage(row.Text("permission")))
	d.setModel(opencodeModel(rows.Read(row.Text("model")), "id"))
	d.s.SetMeta("opencode", rows.NonEmpty("version", row.Text("version"), "projectID", row.Text("project_id")))
	d.see(moment(row, "time_created"))

	hidden, changed := d.reverted(rows.Read(row.Text("revert")), messages), moment(row, "time_updated")
	for i := range messages {
		m, n := &messages[i], len(d.messages)
		d.touched = nil
		d.see(m.at())
		switch role := m.data.Text("role"); {
		case role == session.RoleUser:
			d.user(m)
		case role != session.RoleAssistant:
			from.problemOf("message "+m.id, "is neither the user's nor the assistant's: left out")
		case m.data.True("summary"):
			d.summary(m)
		default:
			d.assistant(m)
		}
		if d.touched != nil {
			d.rowOf[m.id] = d.touched
		}
		if i >= hidden && len(d.messages) > n {
			d.touched.hide(changed)
		}
	}
	d.until(changed)
	if title := row.Text("title"); !strings.HasPrefix(title, "New session - ") &&
		!strings.HasPrefix(title, "Child session - ") {
		d.Title = title
	}
	return d.finish()
}

// opencodeAgent is the agent that a message is of.
func opencodeAgent(o rows.Object) string { return cmp.Or(o.Text("agent"), o.Text("mode")) }

func opencodeModel(o rows.Object, id string) session.Model {
	return session.Model{ProviderID: o.Text("providerID"), ModelID: o.Text(id), Variant: o.Text("variant")}
}

// reverted returns the place of the first message that is hidden.
func (d *opencode) reverted(revert rows.Object, messages []opencodeRecord) int {
	id := revert.Text("messageID")
	i := slices.IndexFunc(messages, func(m opencodeRecord) bool { return m.id == id })
	switch {
	case id == "":
		return len(messages)
	case i < 0:
		d.problemOf("session "+d.s.Row.ID, "it is reverted to message %s, which is not there: nothing is hidden", id)
		return len(messages)
	case revert.Text("partID") != "":
		return i + 1 // the message itself is kept in part
	}
	return i
}

// opencodeRules are the rules that were made for the session.
func opencodeRules(raw json.RawMessage) string {
	rules := make([]session.Rule, 0)
	for o := range rows.Objects(raw) {
		r := session.Rule{Permission: o.Text("permission"), Pattern: o.Text("pattern"), Action: o.Text("action"),
			Source: "session"}
		if r.Permission != "" && slices.Contains([]string{"allow", "deny", "ask"}, r.Action) {
			rules = append(rules, r)
		}
	}
	return string(rows.Raw(rules))
}

// own returns the id where no row has it yet, and otherwise the one that was derived.
func (d *opencode) own(id, derived string) string {
	if id == "" || d.ids[id] {
		id = derived
	}
	d.ids[id] = true
	return id
}

// add adds a message.
func (d *opencode) add(role string, m *opencodeRecord) *message {
	row := d.row(role, m.at())
	row.Row.ID = d.own(m.id, row.Row.ID)
	d.touch(row, m)
	return row
}

// touch notes when the message changed last.
func (d *opencode) touch(row *message, m *opencodeRecord) {
	d.touched = row
	at := max(m.updated, moment(m.data.Object("time"), "completed"))
	row.Touch(at)
	d.until(at)
}

// addPart adds a part to a message.
func (d *opencode) addPart(row *message, p *opencodeRecord, data rows.Object) *rows.Part {
	at, inner := p.data.Object("time"), p.data.Object("state").Object("time")
	start := cmp.Or(moment(at, "start"), moment(at, "created"), moment(inner, "start"), p.created, row.Row.CreatedAt)
	part := row.Part(data, start)
	part.Row.ID = d.own(p.id, part.Row.ID)
	end := max(moment(at, "end"), moment(inner, "end"), p.updated)
	part.Touch(end)
	d.s.See(max(start, end))
	return part
}

func (d *opencode) user(m *opencodeRecord) {
	d.end()
	d.asked = nil
	role := session.RoleSystem
	for i := range m.parts {
		if p := m.parts[i].data; p.Text("type") != "compaction" && (p.Text("type") != "text" || !synthetic(p)) {
			role = session.RoleUser
		}
	}
	var row *message
	for i := range m.parts {
		p := &m.parts[i]
		if p.data.Text("type") == "compaction" {
			d.asked = p.data
			continue
		}
		data := opencodePart(p.data)
		if data == nil {
			continue
		}
		if row == nil {
			row = d.add(role, m)
		}
		d.addPart(row, p, data)
		if d.Asked == "" && !synthetic(p.data) {
			d.Asked = p.data.Text("text")
		}
	}
}

// synthetic reports whether the program wrote a text in the user's name.
func synthetic(p rows.Object) bool { return p.True("synthetic") }

// opencodePart is a part that is not a tool's as one of ours, nil for what reports nothing of the conversation.
func opencodePart(p rows.Object) rows.Object {
	switch kind := p.Text("type"); kind {
	case "text":
		o := rows.TextPart("text", p.Text("text"))
		if synthetic(p) {
			o.Set("providerMetadata", map[string]any{"opencode": map[string]any{"synthetic": true}})
		}
		return o
	case "reasoning":
		return rows.TextPart("reasoning", p.Text("text"))
	case "file":
		return append(fileOf(cmp.Or(p.Text("mime"), octets), p.Text("url")), p.Texts("filename")...)
	case "step-start":
		return rows.Of("type", kind)
	case "snapshot", "step-finish", "retry", "compaction", "":
		return nil // a state of the files, or reported elsewhere
	default:
		return rows.DataPart("data-"+kind, p.Without("id", "messageID", "sessionID", "type"))
	}
}

func (d *opencode) assistant(m *opencodeRecord) {
	if d.turn == nil {
		d.turn = d.add(session.RoleAssistant, m)
	}
	row, about := d.turn, m.data
	d.touch(row, m)
	d.ended("", "")
	counted := 0
	count := func(tokens rows.Object) {
		row.newStep("").Usage = new(opencodeUsage(tokens))
		counted++
	}
	for i := range m.parts {
		p := &m.parts[i]
		switch tokens := p.data.Object("tokens"); p.data.Text("type") {
		case "tool":
			d.tool(row, p)
		case "step-finish":
			if tokens != nil {
				count(tokens)
			}
		case "retry":
			failed := p.data.Object("error")
			row.Failed(cmp.Or(failed.Object("data").Text("message"), failed.Text("message"), failed.Text("name"), "error"))
		default:
			if data := opencodePart(p.data); data != nil {
				d.addPart(row, p, data)
			}
		}
	}
	// What the message says itself is of its last step, in older versions.
	if tokens := about.Object("tokens"); counted == 0 && opencodeUsage(tokens).Total() > 0 {
		count(tokens)
	}
	if counted > 0 {
		row.SetTrace("usage_basis", semconv.BasisExclusive)
	}
	if usd := rows.USD(about.Get("cost")); counted > 0 || usd != nil && *usd > 0 {
		row.paid(cmp.Or(usd, new(float64)))
	}
	d.setModel(opencodeModel(about, "modelID"))
	if agent := opencodeAgent(about); agent != "" {
		row.SetMeta("agent", agent)
		d.mode(agent)
	}
	finish, failed := about.Text("finish"), about.Object("error")
	row.AddTrace(rows.NonEmpty("stop_reason", finish))
	switch {
	case failed.Text("name") == "MessageAbortedError":
		d.ended("abort", "")
	case failed != nil:
		text := cmp.Or(failed.Object("data").Text("message"), failed.Text("name"), "error")
		if len(row.Parts()) == 0 { // a message has at least one part
			row.Part(rows.DataPart(session.TypeError, rows.Of("text", text)), m.at())
		}
		d.ended("error", text)
	case finish != "" && finish != "tool-calls" && about.Object("time").Has("completed"):
		d.ended("finish", "")
	}
}

// opencodeUsage reads counts that each stand for themselves. Where a total is stated that has the reasoning in the
// output, as some versions count for some providers, it is taken out.
func opencodeUsage(tokens rows.Object) session.Usage {
	u := counts{"input", "output", "reasoning", "cache.read", "cache.write"}.of(tokens)
	if total := number(tokens, "total"); u.Reasoning > 0 && u.Output >= u.Reasoning && total == u.Total()-u.Reasoning {
		u.Output -= u.Reasoning
	}
	return u
}

// summary adds the answer to a compaction, unless it failed: then the session is as it was.
func (d *opencode) summary(m *opencodeRecord) {
	d.end()
	asked := d.asked
	d.asked = nil
	parts := slices.DeleteFunc(m.parts, func(p opencodeRecord) bool { return p.data.Text("type") != "text" })
	text := ""
	for i := range parts {
		text += parts[i].data.Text("text")
	}
	if m.data.Object("error") != nil || text == "" {
		return
	}
	tokens := opencodeUsage(m.data.Object("tokens"))
	c := compacted{summary: text, auto: asked.True("auto"), after: tokens.Output}
	if tail := d.rowOf[asked.Text("tail_start_id")]; tail != nil {
		c.tail = &tail.Row.ID
	}
	row := d.add(session.RoleAssistant, m)
	d.addPart(row, &parts[0], c.part())
	row.SetMeta("compaction", true)
	if model := opencodeModel(m.data, "modelID"); model.ModelID != "" {
		model.Variant = ""
		row.SetMeta("model", model)
	}
	// The context goes on with the summary; what it took to make it is no part of it.
	row.SetMeta("usage", session.Usage{Input: tokens.Output})
	row.SetTrace("usage", tokens)
	if usd := rows.USD(m.data.Get("cost")); usd != nil && *usd > 0 {
		row.paid(usd)
	}
}

// How opencode reports to the model that a call was refused.
const (
	deniedByRule = "The user has specified a rule which prevents you from using this specific tool call"
	rejected     = "The user rejected permission to use this specific tool call"
	withFeedback = " with the following feedback: "
)

// tool adds a call, and how it was decided on where it was refused: of what was allowed nothing is kept.
func (d *opencode) tool(row *message, p *opencodeRecord) {
	state := p.data.Object("state")
	id, failure := cmp.Or(p.data.Text("callID"), p.id), state.Text("error")
	o := rows.ToolPart(cmp.Or(p.data.Text("tool"), "unknown"), id, session.StateInputAvailable)
	o.Set("input", orEmpty(state.Get("input")))
	o.Add(state.Texts("title"))
	var refused *store.Decision
	switch state.Text("status") {
	case "pending":
		o.Set("state", session.StateInputStreaming)
	case "completed":
		o.Set("state", session.StateOutputAvailable)
		o.Set("output", opencodeOutput(state))
	case "error":
		if refused = refusal(failure); refused != nil {
			o.Set("state", session.StateOutputDenied)
			o.Set("approval", map[string]any{"id": id, "approved": false, "reason": cmp.Or(refused.Reason, failure)})
		} else {
			o.Set("state", session.StateOutputError)
			o.Set("errorText", cmp.Or(failure, "error"))
		}
	}
	if trace := rows.Raw(opencodeTrace(state, refused != nil)); string(trace) != "{}" {
		o.Set("toolMetadata", rows.Of("agenttrace", trace))
	}
	part := d.addPart(row, p, o)
	if refused != nil {
		refused.DecidedAt = cmp.Or(moment(state.Object("time"), "end"), part.Row.CreatedAt)
		refused.ID = spans.DeriveID(spans.PrefixPermission, refused.DecidedAt, d.s.Row.ID, part.Row.ID, "refused")
		d.calls[id] = &call{Part: part, in: row}
		d.decide(id, *refused)
	}
}

// refusal is how a call was refused, nil for one that failed.
func refusal(failure string) *store.Decision {
	switch {
	case strings.Contains(failure, deniedByRule):
		return &store.Decision{Action: "deny", Outcome: "denied", Reason: failure}
	case strings.Contains(failure, rejected):
		_, feedback, _ := strings.Cut(failure, withFeedback)
		return &store.Decision{Action: "ask", Outcome: "denied", Reply: "reject", Reason: feedback}
	}
	return nil
}

// opencodeOutput is the text that a tool returned, with the files that it added.
func opencodeOutput(state rows.Object) json.RawMessage {
	output := rows.OrNull(state.Get("output"))
	var files []rows.Object
	for o := range rows.Objects(state.Get("attachments")) {
		files = append(files, o.Without("id", "messageID", "sessionID"))
	}
	if len(files) == 0 {
		return output
	}
	return rows.Of("text", output, "attachments", files).JSON()
}

// opencodeTrace is what is known of a call besides what went in and came out.
func opencodeTrace(state rows.Object, denied bool) session.ToolTrace {
	at, about := state.Object("time"), state.Object("metadata")
	t := session.ToolTrace{
		Denied: denied, ChildSessionID: about.Text("sessionId"),
		Truncated: about.True("truncated"), OutputPath: about.Text("outputPath"),
	}
	if start, end := moment(at, "start"), moment(at, "end"); start > 0 && end >= start && !denied {
		t.DurationMS = new(end - start)
	}
	if state.Text("status") == "error" && !denied {
		t.PartialOutput = about.Text("output")
	}
	return t
}
