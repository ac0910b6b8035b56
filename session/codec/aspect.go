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
// reasoning or what its tools returned. Formats of other programs give rows other ids
// and cut messages elsewhere, so it is by aspects that a session is compared with what
// comes of it in such a format.
type Aspect struct {
	// Name is what a list of losses calls it.
	Name string
	// of returns what a session has of it, an entry for each.
	of func(*content) []string
	// claims are entries that state what happened: that a call succeeded, that so many tokens
	// were used. Reading a file must never make one up. implied are claims that may be made
	// where the session itself reports nothing: an answer with no sign of another end has finished.
	claims, implied func(*content) []string
}

// Aspects are all that is compared.
var Aspects = []Aspect{
	{Name: "ids and times", of: func(c *content) []string {
		return append([]string{c.row.ID, fmt.Sprint(c.row.CreatedAt, c.row.UpdatedAt)}, c.each(func(m *message) []string {
			return append([]string{m.row.ID, fmt.Sprint(m.row.CreatedAt, m.row.UpdatedAt)},
				m.each(func(p *part) []string {
					return append([]string{p.row.ID, fmt.Sprint(p.row.CreatedAt, p.row.UpdatedAt)},
						text(p.data["toolCallId"])...)
				})...)
		})...)
	}},
	{Name: "title", of: func(c *content) []string { return known(strings.TrimSpace(c.row.Title), session.Untitled) }},
	{Name: "agents and models", of: func(c *content) []string {
		return slices.Concat(known(c.row.Agent), optional(c.row.ModelJSON), c.each(func(m *message) []string {
			return append(text(m.meta["agent"]), value(m.meta["model"])...)
		}))
	}},
	{Name: "columns of the session", of: func(c *content) []string {
		return slices.Concat(optional(c.row.Mode), known(strings.Join(optional(c.row.WorkspaceRoot), "")),
			optional(c.row.WorkspaceID), known(c.row.PermissionsJSON, "[]"), optional(c.row.ParentID),
			optional(c.row.ParentMessageID), number(c.row.ArchivedAt), known(fmt.Sprint(c.row.CostUSD), "0"),
			c.meta.except("agenttrace"), c.trace.except("outcome"))
	}},
	{Name: "borders of messages, steps and texts", of: func(c *content) []string {
		return c.each(func(m *message) []string {
			n := len(m.parts)
			entries := append([]string{m.row.Role}, when(n > 0 && m.parts[n-1].row.Index != int64(n-1), "gap")...)
			return append(append(entries, when(n == 0, "empty")...), m.each(func(p *part) []string {
				return when(p.row.Type == "text" || p.row.Type == "step-start", p.row.Type+" "+p.text())
			})...)
		})
	}},
	{Name: "rewinds", of: (*content).hidden, claims: (*content).hidden},
	{Name: "texts", of: func(c *content) []string {
		return append(c.texts(), c.each(func(m *message) []string {
			return when(m.row.Role == session.RoleSystem, m.text())
		})...)
	}},
	{Name: "reasoning", of: func(c *content) []string {
		return c.parts(func(p *part) []string { return when(p.row.Type == "reasoning", p.text()) })
	}},
	{Name: "files and sources", of: func(c *content) []string {
		return c.parts(func(p *part) []string {
			return append(when(strings.HasPrefix(p.row.Type, "source-"), p.json()), when(p.row.Type == "file",
				fmt.Sprint(text(p.data["url"]), text(p.data["mediaType"]), text(p.data["filename"])))...)
		})
	}},
	{Name: "compactions", of: func(c *content) []string {
		return c.parts(func(p *part) []string {
			return when(p.row.Type == session.TypeCompaction, canonical(p.data["data"]))
		})
	}, claims: func(c *content) []string { return c.typed(session.TypeCompaction) }},
	{Name: "tokens", of: (*content).tokens, claims: (*content).tokens, implied: (*content).visibleTokens},
	{
		Name: "tokens and costs of messages", of: func(c *content) []string {
			return c.each(func(m *message) []string { return append(m.usage(), value(m.trace["cost_usd"])...) })
		},
		claims: func(c *content) []string {
			return c.each(func(m *message) []string { return value(m.trace["cost_usd"]) })
		},
		implied: (*content).costsOfAnswers,
	},
	{
		Name: "ends of turns", of: func(c *content) []string {
			return append(text(c.trace["outcome"]), c.each(func(m *message) []string {
				return slices.Concat(text(m.trace["end_reason"]), text(m.trace["error"]), text(m.trace["stop_reason"]),
					when(string(m.trace["incomplete"]) == "true", "incomplete"), m.waits())
			})...)
		},
		claims: func(c *content) []string {
			return append(text(c.trace["outcome"]), c.each(func(m *message) []string {
				return append(text(m.trace["end_reason"]), m.waits()...)
			})...)
		},
		implied: func(c *content) []string { return append(c.each((*message).impliedEnd), c.impliedOutcome()...) },
	},
	{Name: "data parts", of: func(c *content) []string {
		return c.parts(func(p *part) []string {
			return when(strings.HasPrefix(p.row.Type, "data-") && p.row.Type != session.TypeCompaction, p.json())
		})
	}, claims: func(c *content) []string { return c.typed(session.TypeWithheld, session.TypeUnfinished) }},
	{
		Name: "tool calls", of: func(c *content) []string {
			return append(c.denials(), c.tools(func(p *part) []string {
				return []string{strings.Join(slices.Concat([]string{p.toolName(), p.state()}, p.failure()), " ")}
			})...)
		},
		claims: func(c *content) []string {
			return append(c.denials(), c.tools(func(p *part) []string {
				return when(p.ended(), fmt.Sprintf("%s failed %t", p.toolName(), p.state() != session.StateOutputAvailable))
			})...)
		},
	},
	{Name: "tool inputs and outputs", of: func(c *content) []string {
		return c.tools(func(p *part) []string {
			input, output := Withheld(p.row)
			return slices.Concat(when(!input && p.data["input"] != nil, p.toolName()+" "+canonical(p.data["input"])),
				when(!output && p.state() == session.StateOutputAvailable, p.toolName()+" "+canonical(p.data["output"])),
				p.absent())
		})
	}, claims: func(c *content) []string { return c.tools((*part).absent) }},
	{Name: "permissions", of: func(c *content) []string {
		return append(c.questions(), list(c.s.Decisions, func(d *store.Decision) []string {
			line, _ := json.Marshal(d) // strings and numbers always have JSON
			return []string{string(line)}
		})...)
	}, claims: (*content).questions, implied: (*content).shownQuestions},
	{Name: "tags, notes and scores", of: func(c *content) []string {
		return list(c.s.Annotations, func(n *store.Annotation) []string { return []string{string(n.AppendJSON(nil))} })
	}},
	{Name: "system prompts and tool catalogs", of: func(c *content) []string {
		return list(c.s.Blobs, func(b *store.Blob) []string { return []string{string(b.Kind) + " " + b.Body} })
	}},
	{Name: "other metadata", of: func(c *content) []string {
		entries := slices.Repeat([]string{"span"}, len(c.s.SpanRefs)+len(c.s.Traces)+len(c.s.RequestedIndexes))
		if c.s.State != nil {
			entries = append(entries, "state")
		}
		return append(entries, c.each(func(m *message) []string {
			return slices.Concat(m.meta.except("agenttrace", "model", "agent", "usage"), m.trace.except("cost_usd",
				"end_reason", "error", "stop_reason", "incomplete", "pending_approval"), m.each((*part).metadata))
		})...)
	}},
}

// Lost lists what of a session is not in what came of it: of each aspect how many
// entries are gone or changed.
func Lost(s, got *Session) (losses []Loss) {
	want, have := contentOf(s), contentOf(got)
	for i := range Aspects {
		a := &Aspects[i]
		before, after := a.of(want), a.of(have)
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
		if a := &Aspects[i]; a.claims != nil {
			stated := a.claims(want)
			if a.implied != nil {
				stated = append(stated, a.implied(want)...)
			}
			_, added := compare(stated, a.claims(have))
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
			if l.Count = len(a.of(c)); l.Count > 0 {
				losses = append(losses, l)
			}
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

// hidden are the messages that a rewind hid.
func (c *content) hidden() []string {
	return c.each(func(m *message) []string { return when(m.row.HiddenAt != nil, m.row.Role+" "+m.text()) })
}

// typed are the parts of some types.
func (c *content) typed(types ...string) []string {
	return c.parts(func(p *part) []string { return when(slices.Contains(types, p.row.Type), p.row.Type) })
}

// impliedOutcome is how the run ended, as far as its last answer reports.
func (c *content) impliedOutcome() []string {
	for i := len(c.messages) - 1; i >= 0; i-- {
		if m := &c.messages[i]; m.row.Role == session.RoleAssistant && m.row.HiddenAt == nil {
			return append(m.impliedEnd(), text(c.trace["outcome"])...)
		}
	}
	return []string{semconv.EndFinish}
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

// waits reports that the turn waits for a person.
func (m *message) waits() []string {
	return when(string(m.trace["pending_approval"]) == "true", "waits")
}

// ended reports that a call has a result.
func (p *part) ended() bool {
	return session.StateRank(p.state()) >= session.StateRank(session.StateOutputAvailable)
}

// failure is the error of a call, or the reason of its denial.
func (p *part) failure() []string {
	if p.state() == session.StateOutputDenied {
		return text(p.object("approval")["reason"])
	}
	return text(p.data["errorText"])
}

// absent are an input and an output that the source withholds, and an output that is null.
func (p *part) absent() []string {
	input, output := Withheld(p.row)
	null := !output && p.state() == session.StateOutputAvailable && canonical(p.data["output"]) == "null"
	return slices.Concat(when(input, p.toolName()+" input"), when(output, p.toolName()+" output"),
		when(null, p.toolName()+" null"))
}

// metadata is what the part has beside its content, and its columns.
func (p *part) metadata() []string {
	columns := append(optional(p.row.ContinuationRunID), when(!p.isTool(), optional(p.row.ToolCallID)...)...)
	switch {
	case p.isTool():
		own := append(p.data.except("type", "toolCallId", "toolName", "state", "input", "output", "errorText", "approval",
			"toolMetadata"), p.object("toolMetadata").except("agenttrace")...)
		own = append(own, p.trace().except("denied", "withheld", "input_withheld")...)
		return slices.Concat(columns, own, when(p.row.Type == "dynamic-tool", p.row.Type))
	case strings.HasPrefix(p.row.Type, "data-"), strings.HasPrefix(p.row.Type, "source-"):
		return columns
	}
	return append(columns, p.data.except("type", "text", "url", "mediaType", "filename")...)
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
