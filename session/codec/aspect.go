package codec

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Aspect is something that a session has and a format may not hold, such as its
// reasoning or the ids of its tool calls. Formats of other programs give rows other ids
// and cut messages elsewhere, so it is by aspects that a session is compared with what
// comes of it in such a format.
type Aspect struct {
	// Name is what a list of losses calls it.
	Name string
	// Claim reports that an entry states what happened: that a call succeeded, that so many
	// tokens were used. Reading a file must never make one up.
	Claim bool

	// One of the four gives the entries: of a session, a message, a part, or a tool call.
	of         func(*content) []string
	message    func(*message) []string
	part, tool func(*part) []string
	// implied are claims that may be made where the session itself reports nothing. An answer
	// with no sign of another end has finished.
	implied func(*content) []string
}

// entries are what a session has of the aspect.
func (a *Aspect) entries(c *content) []string {
	switch {
	case a.message != nil:
		return c.each(a.message)
	case a.part != nil:
		return c.parts(a.part)
	case a.tool != nil:
		return c.tools(a.tool)
	}
	return a.of(c)
}

// Aspects are all that is compared.
var Aspects = []Aspect{
	{Name: "session id", of: func(c *content) []string { return []string{c.row.ID} }},
	{Name: "title", of: func(c *content) []string { return known(strings.TrimSpace(c.row.Title), session.Untitled) }},
	{Name: "agent", of: func(c *content) []string { return known(c.row.Agent) }},
	{Name: "session model", of: func(c *content) []string { return optional(c.row.ModelJSON) }},
	{Name: "mode", of: func(c *content) []string { return optional(c.row.Mode) }},
	{Name: "workspace root", of: func(c *content) []string {
		return known(strings.Join(optional(c.row.WorkspaceRoot), ""))
	}},
	{Name: "workspace id", of: func(c *content) []string { return optional(c.row.WorkspaceID) }},
	{Name: "permission rules", of: func(c *content) []string { return known(c.row.PermissionsJSON, "[]") }},
	{Name: "parent session", of: func(c *content) []string {
		return append(optional(c.row.ParentID), optional(c.row.ParentMessageID)...)
	}},
	{Name: "session times", of: func(c *content) []string {
		return []string{fmt.Sprint(c.row.CreatedAt), fmt.Sprint(c.row.UpdatedAt)}
	}},
	{Name: "archived_at", of: func(c *content) []string { return number(c.row.ArchivedAt) }},
	{Name: "session cost", of: func(c *content) []string { return known(fmt.Sprint(c.row.CostUSD), "0") }},
	{
		Name: "outcome of the run", Claim: true, of: func(c *content) []string { return text(c.trace["outcome"]) },
		implied: func(c *content) []string {
			for i := len(c.messages) - 1; i >= 0; i-- {
				if m := &c.messages[i]; m.row.Role == session.RoleAssistant && m.row.HiddenAt == nil {
					return m.impliedEnd()
				}
			}
			return []string{semconv.EndFinish}
		},
	},
	{Name: "session metadata", of: func(c *content) []string {
		return append(c.meta.except("agenttrace"), c.trace.except("outcome")...)
	}},

	{Name: "ids of messages and parts", message: func(m *message) []string {
		return append([]string{m.row.ID}, m.each(func(p *part) []string { return []string{p.row.ID} })...)
	}},
	{Name: "times of messages and parts", message: func(m *message) []string {
		return append([]string{fmt.Sprint(m.row.CreatedAt, m.row.UpdatedAt)},
			m.each(func(p *part) []string { return []string{fmt.Sprint(p.row.CreatedAt, p.row.UpdatedAt)} })...)
	}},
	{Name: "messages of their own", message: func(m *message) []string { return []string{m.row.Role} }},
	{Name: "messages without parts", message: func(m *message) []string { return when(len(m.parts) == 0, m.row.Role) }},
	{Name: "gaps in the order of parts", message: func(m *message) []string {
		n := len(m.parts)
		return when(n > 0 && m.parts[n-1].row.Index != int64(n-1), m.row.Role)
	}},
	{Name: "messages that a rewind hid", Claim: true, message: func(m *message) []string {
		return when(m.row.HiddenAt != nil, m.row.Role+" "+m.text())
	}},
	{Name: "system messages", message: func(m *message) []string {
		return when(m.row.Role == session.RoleSystem, m.text())
	}},
	{Name: "models of messages", message: func(m *message) []string { return value(m.meta["model"]) }},
	{Name: "agents of messages", message: func(m *message) []string { return text(m.meta["agent"]) }},
	{Name: "tokens", Claim: true, of: (*content).tokens, implied: (*content).visibleTokens},
	{Name: "tokens of each message, by kind", message: (*message).usage},
	{
		Name: "costs of messages", Claim: true, message: func(m *message) []string {
			return value(m.trace["cost_usd"])
		},
		implied: (*content).costsOfAnswers,
	},
	{
		Name: "ends of turns", Claim: true, message: func(m *message) []string { return text(m.trace["end_reason"]) },
		implied: func(c *content) []string {
			return append(c.each((*message).impliedEnd), text(c.trace["outcome"])...)
		},
	},
	{Name: "errors of turns", message: func(m *message) []string { return text(m.trace["error"]) }},
	{Name: "stop reasons", message: func(m *message) []string { return text(m.trace["stop_reason"]) }},
	{Name: "unfinished messages", message: func(m *message) []string {
		return when(string(m.trace["incomplete"]) == "true", m.row.Role)
	}},
	{Name: "turns that wait for approval", Claim: true, message: func(m *message) []string {
		return when(string(m.trace["pending_approval"]) == "true", m.row.Role)
	}},
	{Name: "other metadata of messages", message: func(m *message) []string {
		return append(m.meta.except("agenttrace", "model", "agent", "usage"), m.trace.except(
			"cost_usd", "end_reason", "error", "stop_reason", "incomplete", "pending_approval")...)
	}},

	{Name: "texts", of: (*content).texts},
	{Name: "borders between text parts", part: func(p *part) []string { return when(p.row.Type == "text", p.text()) }},
	{Name: "reasoning", part: func(p *part) []string { return when(p.row.Type == "reasoning", p.text()) }},
	{Name: "files", part: func(p *part) []string {
		if p.row.Type != "file" {
			return nil
		}
		return text(p.data["url"])
	}},
	{Name: "names and media types of files", part: func(p *part) []string {
		return when(p.row.Type == "file", fmt.Sprint(text(p.data["mediaType"]), text(p.data["filename"])))
	}},
	{Name: "sources", part: func(p *part) []string { return when(strings.HasPrefix(p.row.Type, "source-"), p.json()) }},
	{Name: "steps", part: func(p *part) []string { return when(p.row.Type == "step-start", "step") }},
	{Name: "metadata of texts and files", part: func(p *part) []string {
		if p.isTool() || strings.HasPrefix(p.row.Type, "data-") || strings.HasPrefix(p.row.Type, "source-") {
			return nil
		}
		return p.data.except("type", "text", "url", "mediaType", "filename")
	}},
	{Name: "compactions", Claim: true, part: func(p *part) []string {
		return when(p.row.Type == session.TypeCompaction, "compaction")
	}},
	{Name: "summaries of compactions", part: func(p *part) []string { return known(p.compaction().Summary) }},
	{Name: "tails and sizes of compactions", part: func(p *part) []string {
		d := p.compaction()
		return append(optional(d.TailStartID), known(fmt.Sprint(d.SummaryTokens), "0")...)
	}},
	{Name: "marks of content that was withheld or never finished", Claim: true, part: func(p *part) []string {
		return when(p.row.Type == session.TypeWithheld || p.row.Type == session.TypeUnfinished, p.row.Type)
	}},
	{Name: "data parts", part: func(p *part) []string {
		return when(strings.HasPrefix(p.row.Type, "data-") && p.row.Type != session.TypeCompaction, p.json())
	}},

	{Name: "tool calls", tool: func(p *part) []string { return []string{p.toolName()} }},
	{Name: "tool call ids", tool: func(p *part) []string { return text(p.data["toolCallId"]) }},
	{Name: "tool inputs", tool: func(p *part) []string {
		withheld, _ := Withheld(p.row)
		return when(!withheld && p.data["input"] != nil, p.toolName()+" "+canonical(p.data["input"]))
	}},
	{Name: "tool outputs", tool: func(p *part) []string {
		_, withheld := Withheld(p.row)
		return when(!withheld && p.state() == session.StateOutputAvailable,
			p.toolName()+" "+canonical(p.data["output"]))
	}},
	{Name: "tool outputs that are null", Claim: true, tool: func(p *part) []string {
		_, withheld := Withheld(p.row)
		return when(!withheld && p.state() == session.StateOutputAvailable && canonical(p.data["output"]) == "null",
			p.toolName())
	}},
	{Name: "values that the source withholds", Claim: true, tool: func(p *part) []string {
		input, output := Withheld(p.row)
		return append(when(input, p.toolName()+" input"), when(output, p.toolName()+" output")...)
	}},
	{Name: "results of tool calls", Claim: true, tool: func(p *part) []string {
		switch {
		case p.state() == session.StateOutputAvailable:
			return []string{p.toolName() + " succeeded"}
		case p.state() == session.StateOutputError || p.state() == session.StateOutputDenied:
			return []string{p.toolName() + " failed"}
		}
		return nil
	}},
	{Name: "errors of tool calls", tool: func(p *part) []string {
		if p.state() == session.StateOutputDenied {
			return text(p.object("approval")["reason"])
		}
		return text(p.data["errorText"])
	}},
	{Name: "denied tool calls", Claim: true, of: (*content).denials},
	{Name: "states of tool calls without a result", tool: func(p *part) []string {
		return when(session.StateRank(p.state()) < session.StateRank(session.StateOutputAvailable),
			p.toolName()+" "+p.state())
	}},
	{Name: "questions to a human", Claim: true, of: (*content).questions, implied: (*content).shownQuestions},
	{Name: "details of permission decisions", of: func(c *content) []string {
		return list(c.s.Decisions, func(d *store.Decision) []string {
			line, _ := json.Marshal(d) // strings and numbers always have JSON
			return []string{string(line)}
		})
	}},
	{Name: "tags, notes and scores", of: func(c *content) []string {
		return list(c.s.Annotations, func(n *store.Annotation) []string {
			return when(n.DeletedAt == nil, fmt.Sprintf("%s %s %g %s", n.Kind, n.Name, n.Value, n.Comment))
		})
	}},
	{Name: "authors, times and targets of tags, notes and scores", of: func(c *content) []string {
		return list(c.s.Annotations, func(n *store.Annotation) []string { return []string{string(n.AppendJSON(nil))} })
	}},
	{Name: "metadata of tool calls", tool: func(p *part) []string {
		own := append(p.data.except("type", "toolCallId", "toolName", "state", "input", "output", "errorText",
			"toolMetadata"),
			p.object("toolMetadata").except("agenttrace")...)
		return append(append(own, when(p.row.Type == "dynamic-tool", p.row.Type)...),
			p.trace().except("denied", "withheld")...)
	}},
	{Name: "columns of parts", part: func(p *part) []string {
		return append(optional(p.row.ContinuationRunID), when(!p.isTool(), optional(p.row.ToolCallID)...)...)
	}},
	{Name: "system prompts and tool catalogs", of: func(c *content) []string {
		return list(c.s.Blobs, func(b *store.Blob) []string { return []string{string(b.Kind) + " " + b.Body} })
	}},
	{Name: "spans, and what later telemetry needs", of: func(c *content) []string {
		n := len(c.s.SpanRefs) + len(c.s.Traces) + len(c.s.RequestedIndexes)
		if c.s.State != nil {
			n++
		}
		return slices.Repeat([]string{"span"}, n)
	}},
}

// Lost lists what of a session is not in what came of it: of each aspect how many
// entries are gone or changed.
func Lost(s, got *Session) (losses []Loss) {
	want, have := contentOf(s), contentOf(got)
	for i := range Aspects {
		a := &Aspects[i]
		before, after := a.entries(want), a.entries(have)
		missing, _ := compare(before, after)
		if missing == nil && len(before) == len(after) && !slices.Equal(before, after) {
			missing = before // in another order
		}
		losses = AddLoss(losses, a.Name, "", len(missing))
	}
	return losses
}

// Invented lists the claims of a session that the one it came from does not make.
func Invented(s, got *Session) (claims []string) {
	want, have := contentOf(s), contentOf(got)
	for i := range Aspects {
		if a := &Aspects[i]; a.Claim {
			stated := a.entries(want)
			if a.implied != nil {
				stated = append(stated, a.implied(want)...)
			}
			_, added := compare(stated, a.entries(have))
			for _, entry := range added {
				claims = append(claims, a.Name+": "+entry)
			}
		}
	}
	return claims
}

// Of returns the losses that concern a session: those whose aspect it has.
func (all Losses) Of(s *Session) (losses []Loss) {
	c := contentOf(s)
	for i := range Aspects {
		a := &Aspects[i]
		if listed := slices.IndexFunc(all, func(l Loss) bool { return l.What == a.Name }); listed >= 0 {
			l := all[listed]
			if l.Count = len(a.entries(c)); l.Count > 0 {
				losses = append(losses, l)
			}
		}
	}
	return losses
}

// Unheld lists what a session has of the aspects that a format does not hold: of all but
// those named.
func Unheld(s *Session, held ...string) (losses []Loss) {
	c := contentOf(s)
	for i := range Aspects {
		if a := &Aspects[i]; !slices.Contains(held, a.Name) {
			losses = AddLoss(losses, a.Name, "", len(a.entries(c)))
		}
	}
	return losses
}

// compare returns the entries that only one of two lists has.
func compare(before, after []string) (missing, added []string) {
	counts := make(map[string]int)
	for _, entry := range after {
		counts[entry]++
	}
	for _, entry := range before {
		if counts[entry]--; counts[entry] < 0 {
			missing = append(missing, entry)
		}
	}
	for _, entry := range after {
		if counts[entry] > 0 {
			counts[entry]--
			added = append(added, entry)
		}
	}
	return missing, added
}

// content is a session with its columns of JSON read.
type content struct {
	s           *Session
	row         *session.Session
	meta, trace object
	messages    []message
}

type message struct {
	row         *session.Message
	meta, trace object
	parts       []part
}

type part struct {
	row  *session.Part
	data object
}

// object is a JSON object; nil for anything else.
type object map[string]json.RawMessage

func parse(data []byte) (o object) {
	_ = json.Unmarshal(data, &o) // what is not an object has no keys
	return o
}

func contentOf(s *Session) *content {
	t := s.Sorted()
	c := &content{s: s, row: &t.Session, meta: parse([]byte(t.Session.MetadataJSON))}
	c.trace = parse(c.meta["agenttrace"])
	for i := range t.Messages {
		m := message{row: &t.Messages[i].Message}
		m.meta = parse([]byte(m.row.MetadataJSON))
		m.trace = parse(m.meta["agenttrace"])
		for j := range t.Messages[i].Parts {
			p := &t.Messages[i].Parts[j]
			m.parts = append(m.parts, part{p, parse([]byte(p.DataJSON))})
		}
		c.messages = append(c.messages, m)
	}
	return c
}

func list[T any](all []T, of func(*T) []string) (entries []string) {
	for i := range all {
		entries = append(entries, of(&all[i])...)
	}
	return entries
}

func (c *content) each(of func(*message) []string) []string { return list(c.messages, of) }

func (m *message) each(of func(*part) []string) []string { return list(m.parts, of) }

func (c *content) parts(of func(*part) []string) []string {
	return c.each(func(m *message) []string { return m.each(of) })
}

func (c *content) tools(of func(*part) []string) []string {
	return c.parts(func(p *part) []string {
		if !p.isTool() {
			return nil
		}
		return of(p)
	})
}

// texts are what users and the assistant said, until the other one spoke.
func (c *content) texts() (runs []string) {
	role := ""
	for i := range c.messages {
		m := &c.messages[i]
		said := m.text()
		if said == "" || m.row.Role == session.RoleSystem {
			continue
		}
		if m.row.Role != role {
			role = m.row.Role
			runs = append(runs, role+" ")
		}
		runs[len(runs)-1] += said
	}
	return runs
}

// tokens are those that the session used, where one of its messages states some.
func (c *content) tokens() []string {
	used := c.s.Tokens().Used
	if used == nil {
		return nil
	}
	return []string{fmt.Sprintf("%d in, %d out", used.Input+used.CacheRead+used.CacheWrite, used.Output+used.Reasoning)}
}

// visibleTokens are those of the messages that no rewind hid: others a format may leave out.
func (c *content) visibleTokens() []string {
	visible := *c.s.Transcript
	visible.Messages = slices.Clone(visible.Messages)
	visible.Messages = slices.DeleteFunc(visible.Messages, func(m session.MessageAndParts) bool {
		return m.Message.HiddenAt != nil
	})
	return (&content{s: &Session{Transcript: &visible}}).tokens()
}

// costsOfAnswers are those of messages of the assistant that follow each other: a format may have one
// answer for them.
func (c *content) costsOfAnswers() (costs []string) {
	var sums []float64 // of the messages from each one up to here
	for i := range c.messages {
		m := &c.messages[i]
		if m.row.HiddenAt != nil {
			continue
		}
		if m.row.Role != session.RoleAssistant {
			sums = nil
		}
		sums = append(sums, 0)
		meta := session.ParseMessageMetadata([]byte(m.row.MetadataJSON))
		if cost := meta.Trace.CostUSD; cost != nil {
			for j := range sums {
				sums[j] = store.AddCost(sums[j], *cost)
				costs = append(costs, fmt.Sprint(sums[j]))
			}
		}
	}
	return costs
}

// questions are the tool calls that a human was asked about, with the answers.
func (c *content) questions() (asked []string) {
	names := make(map[string]string) // of the calls, by part and by call id
	c.tools(func(p *part) []string {
		names[p.row.ID] = p.toolName()
		if p.row.ToolCallID != nil {
			names[*p.row.ToolCallID] = p.toolName()
		}
		return nil
	})
	answers := map[string]string{"allowed": " allowed", "denied": " denied"}
	about := make(map[string]bool)
	for i := range c.s.Decisions {
		d := &c.s.Decisions[i]
		if d.Action != "ask" {
			continue
		}
		about[d.PartID], about[d.ToolCallID] = true, true
		name, known := names[d.PartID]
		if !known {
			name, known = names[d.ToolCallID]
		}
		if !known {
			name = d.ToolID
		}
		asked = append(asked, name+answers[d.Outcome])
	}
	return append(asked, c.tools(func(p *part) []string {
		approval := p.object("approval")
		if approval == nil || about[p.row.ID] || p.row.ToolCallID != nil && about[*p.row.ToolCallID] {
			return nil
		}
		answer := map[string]string{"true": "allowed", "false": "denied"}[string(approval["approved"])]
		return []string{p.toolName() + answers[answer]}
	})...)
}

// shownQuestions are questions that a part shows, which a format may have a word for
// where it has none for decisions.
func (c *content) shownQuestions() []string {
	return c.parts(func(p *part) []string {
		if approval := p.object("approval"); p.isTool() && approval != nil {
			answers := map[string]string{"true": " allowed", "false": " denied"}
			return []string{p.toolName() + answers[string(approval["approved"])]}
		}
		if p.row.Type != "data-permission" {
			return nil
		}
		var data struct {
			ToolCall struct{ ToolCallID string }
		}
		_ = json.Unmarshal(p.data["data"], &data) // of another shape: about no call
		name := "other"
		c.tools(func(call *part) []string {
			if call.row.ToolCallID != nil && *call.row.ToolCallID == data.ToolCall.ToolCallID {
				name = call.toolName()
			}
			return nil
		})
		return []string{name, name + " allowed", name + " denied"}
	})
}

// denials are the calls that were not allowed: those that are output-denied, and failed
// ones that report so, or that a human did not approve.
func (c *content) denials() []string {
	denied := make(map[string]bool)
	for i := range c.s.Decisions {
		if d := &c.s.Decisions[i]; d.Outcome == "denied" {
			denied[d.PartID], denied[d.ToolCallID] = true, true
		}
	}
	return c.tools(func(p *part) []string {
		said := string(p.trace()["denied"]) == "true" || string(p.object("approval")["approved"]) == "false" ||
			denied[p.row.ID] ||
			p.row.ToolCallID != nil && denied[*p.row.ToolCallID]
		return when(p.state() == session.StateOutputDenied || p.state() == session.StateOutputError && said,
			p.toolName())
	})
}

func (m *message) text() string {
	return strings.Join(m.each(func(p *part) []string { return when(p.row.Type == "text", p.text()) }), "")
}

// usage is what the source states that an assistant's message used.
func (m *message) usage() []string {
	if m.row.Role != session.RoleAssistant {
		return nil
	}
	return value(m.meta["usage"])
}

// impliedEnd is how the message ended, as far as it reports. One that is not an answer, or goes on,
// has no end.
func (m *message) impliedEnd() []string {
	if m.row.Role != session.RoleAssistant || string(m.trace["incomplete"]) == "true" {
		return nil
	}
	end := text(m.trace["end_reason"])
	if end == nil && string(m.trace["pending_approval"]) != "true" {
		return []string{semconv.EndFinish}
	}
	return end
}

func (p *part) text() string { return strings.Join(text(p.data["text"]), "") }

func (p *part) json() string { return canonical(json.RawMessage(p.row.DataJSON)) }

func (p *part) object(key string) object { return parse(p.data[key]) }

func (p *part) trace() object { return parse(p.object("toolMetadata")["agenttrace"]) }

func (p *part) isTool() bool { return session.IsToolType(p.row.Type) }

func (p *part) toolName() string {
	return session.ToolName(p.row.Type, strings.Join(text(p.data["toolName"]), ""))
}

func (p *part) state() string {
	if p.row.ToolState == nil {
		return ""
	}
	return *p.row.ToolState
}

func (p *part) compaction() session.CompactionData {
	if p.row.Type != session.TypeCompaction {
		return session.CompactionData{}
	}
	d, _ := session.ParseCompaction(p.row.DataJSON) // unreadable: nothing is known of it
	return d
}

// known is a value that is there: not empty, nor what stands for none.
func known(v string, none ...string) []string { return when(v != "" && !slices.Contains(none, v), v) }

func when(is bool, entries ...string) []string {
	if !is {
		return nil
	}
	return entries
}

func optional(v *string) []string {
	if v == nil {
		return nil
	}
	return []string{*v}
}

func number(v *int64) []string {
	if v == nil {
		return nil
	}
	return []string{fmt.Sprint(*v)}
}

// text is a JSON string that is not empty, value any JSON but null.
func text(raw json.RawMessage) []string {
	var s string
	_ = json.Unmarshal(raw, &s) // another kind reports nothing
	return known(s)
}

func value(raw json.RawMessage) []string { return known(canonical(raw), "null", "{}") }

// except are the keys and values of an object but those named.
func (o object) except(keys ...string) (entries []string) {
	for key, v := range o {
		if !slices.Contains(keys, key) {
			entries = append(entries, key+"="+canonical(v))
		}
	}
	slices.Sort(entries)
	return entries
}

// canonical spells a JSON value in one way.
func canonical(raw json.RawMessage) string {
	v := jsontext.Value(slices.Clone(raw))
	if v.Format(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
		return string(raw)
	}
	return string(v)
}
