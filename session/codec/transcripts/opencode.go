package transcripts

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// opencodeRecord is a session, a message or a part with its data. The times are
// those of the database's row, 0 if there is none.
type opencodeRecord struct {
	id               string
	created, updated int64
	data             rows.Object
}

// opencodeSession is a session as it was read, its messages in any order, the parts
// of each in the order of their ids.
type opencodeSession struct {
	info     opencodeRecord
	messages []opencodeRecord
	parts    map[string][]opencodeRecord
}

// at is when the record's thing was made.
func (r *opencodeRecord) at() int64 {
	return cmp.Or(moment(r.data.Object("time"), "created"), min(max(0, r.created), maxMoment))
}

// opencode builds the rows of a session.
type opencode struct {
	b      *builder
	report func(codec.Problem)
	ids    map[string]bool       // of rows
	rowOf  map[string]string     // by message of opencode
	begun  map[*rows.Message]int // the place of a row's first message
	// compaction is the part that asked for the summary that is awaited.
	compaction rows.Object
}

func (s *opencodeSession) decode(report func(codec.Problem)) *codec.Session {
	info := s.info.data
	at := info.Object("time")
	d := opencode{report: report, ids: make(map[string]bool), rowOf: make(map[string]string),
		begun: make(map[*rows.Message]int)}
	slices.SortStableFunc(s.messages, func(a, b opencodeRecord) int {
		return cmp.Or(cmp.Compare(a.at(), b.at()), cmp.Compare(a.id, b.id))
	})

	agent := info.Text("agent")
	for i := range s.messages {
		if agent == "" {
			agent = cmp.Or(s.messages[i].data.Text("agent"), s.messages[i].data.Text("mode"))
		}
	}
	d.b = newBuilder(s.info.id, cmp.Or(agent, "opencode"), report)
	row := &d.b.s.Row
	d.b.parent(info.Text("parentID"))
	rows.SetText(&row.WorkspaceRoot, info.Text("directory"))
	rows.SetText(&row.WorkspaceID, info.Text("workspaceID"))
	if archived := moment(at, "archived"); archived > 0 {
		row.ArchivedAt = new(archived)
	}
	row.PermissionsJSON = opencodeRules(info.Get("permission"))
	if m := info.Object("model"); m.Text("id") != "" {
		d.b.setModel(session.Model{ProviderID: m.Text("providerID"), ModelID: m.Text("id"), Variant: m.Text("variant")})
	}
	d.b.s.SetMeta("opencode", info.Texts("version", "projectID", "slug"))
	d.b.seeMilli(moment(at, "created"))

	hidden := s.reverted(report)
	for i := range s.messages {
		m := &s.messages[i]
		d.b.touched = nil
		d.b.seeMilli(m.at())
		switch role := m.data.Text("role"); {
		case role == session.RoleUser:
			d.user(m, s.parts[m.id])
		case role != session.RoleAssistant:
			report(codec.Problem{Record: "message " + m.id,
				Reason: "is neither the user's nor the assistant's: left out"})
		case m.data.True("summary"):
			d.summary(m, s.parts[m.id])
		default:
			d.assistant(m, s.parts[m.id])
		}
		if d.b.touched == nil {
			continue
		}
		d.rowOf[m.id] = d.b.touched.Row.ID
		if _, known := d.begun[d.b.touched]; !known {
			d.begun[d.b.touched] = i
		}
		if d.begun[d.b.touched] >= hidden {
			hide(d.b.touched, moment(at, "updated"))
		}
	}
	if updated := moment(at, "updated"); updated > 0 {
		d.b.s.See(updated)
	}
	if title := info.Text("title"); !strings.HasPrefix(title, "New session - ") &&
		!strings.HasPrefix(title, "Child session - ") {
		d.b.Title = title
	}
	return d.b.finish()
}

// reverted returns the place of the first message that is hidden.
func (s *opencodeSession) reverted(report func(codec.Problem)) int {
	revert := s.info.data.Object("revert")
	id := revert.Text("messageID")
	if id == "" {
		return len(s.messages)
	}
	i := slices.IndexFunc(s.messages, func(m opencodeRecord) bool { return m.id == id })
	switch {
	case i < 0:
		report(codec.Problem{Record: "session " + s.info.id,
			Reason: "it is reverted to message " + id + ", which is not there: nothing is hidden"})
		return len(s.messages)
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

// row adds a message.
func (d *opencode) row(role string, m *opencodeRecord) *rows.Message {
	row := d.b.s.Message(role, m.at())
	row.Row.ID = d.own(m.id, row.Row.ID)
	d.touch(row, m)
	return row
}

// touch notes when the message changed last.
func (d *opencode) touch(row *rows.Message, m *opencodeRecord) {
	d.b.touched = row
	at := max(min(m.updated, maxMoment), moment(m.data.Object("time"), "completed"))
	row.Touch(at)
	if at > 0 {
		d.b.s.See(at)
	}
}

// part adds a part to a message.
func (d *opencode) part(row *rows.Message, p *opencodeRecord, data rows.Object) *rows.Part {
	at, inner := p.data.Object("time"), p.data.Object("state").Object("time")
	start := cmp.Or(moment(at, "start"), moment(at, "created"), moment(inner, "start"),
		min(max(0, p.created), maxMoment), row.Row.CreatedAt)
	part := row.Part(data, start)
	part.Row.ID = d.own(p.id, part.Row.ID)
	end := max(moment(at, "end"), moment(inner, "end"), min(p.updated, maxMoment))
	part.Touch(end)
	d.b.s.See(max(start, end))
	return part
}

func (d *opencode) user(m *opencodeRecord, parts []opencodeRecord) {
	d.b.turn, d.compaction = nil, nil
	var row *rows.Message
	role := session.RoleSystem
	for i := range parts {
		if p := parts[i].data; p.Text("type") != "text" && p.Text("type") != "compaction" || p.Text("type") == "text" &&
			!synthetic(p) {
			role = session.RoleUser
		}
	}
	for i := range parts {
		p := &parts[i]
		if p.data.Text("type") == "compaction" {
			d.compaction = p.data
			continue
		}
		data := opencodePart(p.data)
		if data == nil {
			continue
		}
		if row == nil {
			row = d.row(role, m)
		}
		d.part(row, p, data)
		if text := p.data.Text("text"); d.b.Asked == "" && text != "" && !synthetic(p.data) {
			d.b.Asked = text
		}
	}
}

// synthetic reports whether the program wrote a text in the user's name.
func synthetic(p rows.Object) bool { return p.True("synthetic") }

// opencodePart is a part that is not a tool's as one of ours, nil for what reports nothing
// of the conversation.
func opencodePart(p rows.Object) rows.Object {
	var o rows.Object
	switch kind := p.Text("type"); kind {
	case "text":
		o = rows.TextPart("text", p.Text("text"))
		if synthetic(p) {
			o.Set("providerMetadata", map[string]any{"opencode": map[string]any{"synthetic": true}})
		}
	case "reasoning":
		o = rows.TextPart("reasoning", p.Text("text"))
	case "file":
		o = fileOf(cmp.Or(p.Text("mime"), "application/octet-stream"), p.Text("url"))
		o.Add(p.Texts("filename"))
	case "step-start":
		o = rows.Of("type", kind)
	case "snapshot", "step-finish", "retry", "compaction", "":
		return nil // a state of the files, or reported elsewhere
	default:
		o = rows.DataPart("data-"+kind, p.Without("id", "messageID", "sessionID", "type"))
	}
	return o
}

func (d *opencode) assistant(m *opencodeRecord, parts []opencodeRecord) {
	b := d.b
	if b.turn == nil {
		b.turn = d.row(session.RoleAssistant, m)
	}
	row := b.turn
	d.touch(row, m)
	b.answer(row).End = ending{}
	steps := 0
	for i := range parts {
		p := &parts[i]
		switch p.data.Text("type") {
		case "tool":
			d.tool(row, p)
			continue
		case "step-finish":
			if tokens := p.data.Object("tokens"); tokens != nil {
				steps++
				b.spend(cmp.Or(p.id, m.id), opencodeUsage(tokens))
			}
			continue
		case "retry":
			d.retry(row, p.data)
			continue
		}
		if data := opencodePart(p.data); data != nil {
			d.part(row, p, data)
		}
	}
	// What the message says itself is of its last step, in older versions.
	if tokens := m.data.Object("tokens"); steps == 0 && opencodeUsage(tokens).Total() > 0 {
		b.spend(m.id, opencodeUsage(tokens))
		steps++
	}
	if steps > 0 {
		row.SetTrace("usage_basis", "exclusive")
	}
	if usd := cost(m.data); usd > 0 || steps > 0 {
		b.paid(row, &usd)
	}
	if model := m.data.Text("modelID"); model != "" {
		b.setModel(session.Model{ProviderID: m.data.Text("providerID"), ModelID: model,
			Variant: m.data.Text("variant")})
	}
	if mode := cmp.Or(m.data.Text("agent"), m.data.Text("mode")); mode != "" {
		row.SetMeta("agent", mode)
		b.s.Row.Mode = new(mode)
	}
	row.AddTrace(rows.NonEmpty("stop_reason", m.data.Text("finish")))
	switch failed := m.data.Object("error"); {
	case failed.Text("name") == "MessageAbortedError":
		b.ended("abort", "")
	case failed != nil:
		b.ended("error", cmp.Or(failed.Object("data").Text("message"), failed.Text("name"), "error"))
	case m.data.Text("finish") != "" && m.data.Text("finish") != "tool-calls" && m.data.Object("time").Has("completed"):
		b.ended("finish", "")
	}
}

// opencodeUsage reads counts that each stand for themselves. Where a total is stated
// that has the reasoning in the output, as some versions count for some providers, it
// is taken out.
func opencodeUsage(tokens rows.Object) session.Usage {
	cache := tokens.Object("cache")
	u := session.Usage{
		Input: number(tokens, "input"), Output: number(tokens, "output"), Reasoning: number(tokens, "reasoning"),
		CacheRead: number(cache, "read"), CacheWrite: number(cache, "write"),
	}
	if total := number(tokens, "total"); u.Reasoning > 0 && u.Output >= u.Reasoning && total == u.Total()-u.Reasoning {
		u.Output -= u.Reasoning
	}
	return u
}

// cost is what is said to have been paid, in dollars.
func cost(o rows.Object) float64 {
	var usd float64
	if json.Unmarshal(o.Get("cost"), &usd) != nil || !(usd > 0) || usd > math.MaxInt32 {
		return 0
	}
	return usd
}

func (d *opencode) retry(row *rows.Message, p rows.Object) {
	const maximum = 5
	failed := p.Object("error")
	text := cmp.Or(failed.Object("data").Text("message"), failed.Text("message"), failed.Text("name"), "error")
	var all []string
	_ = json.Unmarshal(row.Meta("agenttrace").Get("model_errors"), &all) // written below
	if all = append(all, text); len(all) > maximum {
		all = all[len(all)-maximum:]
	}
	row.SetTrace("model_errors", all)
}

// summary adds the answer to a compaction, unless it failed: then the session is as
// it was.
func (d *opencode) summary(m *opencodeRecord, parts []opencodeRecord) {
	d.b.turn = nil
	asked := d.compaction
	d.compaction = nil
	var text strings.Builder
	var first *opencodeRecord
	for i := range parts {
		if p := &parts[i]; p.data.Text("type") == "text" {
			first = cmp.Or(first, p)
			text.WriteString(p.data.Text("text"))
		}
	}
	if m.data.Object("error") != nil || text.Len() == 0 {
		return
	}
	tokens := opencodeUsage(m.data.Object("tokens"))
	var tail *string
	rows.SetText(&tail, d.rowOf[asked.Text("tail_start_id")])
	row := d.row(session.RoleAssistant, m)
	d.part(row, first, rows.DataPart(session.TypeCompaction, rows.Of("summary", text.String(), "tail_start_id", tail,
		"auto", asked.True("auto"), "summary_tokens", tokens.Output)))
	row.SetMeta("compaction", true)
	if model := m.data.Text("modelID"); model != "" {
		row.SetMeta("model", session.Model{ProviderID: m.data.Text("providerID"), ModelID: model})
	}
	// The context goes on with the summary; what it took to make it is no part of it.
	row.SetMeta("usage", session.Usage{Input: tokens.Output})
	row.SetTrace("usage", tokens)
	if usd := cost(m.data); usd > 0 {
		d.b.paid(row, &usd)
	}
}
