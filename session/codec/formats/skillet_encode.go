package formats

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// skilletTurnRows are the messages of a turn of the log: what users said, and then what the assistant did.
type skilletTurnRows struct {
	users, assistants []*session.MessageAndParts
}

// skilletTurnsOf groups messages into turns. Messages of the system and those that a rewind hid are in none.
func skilletTurnsOf(t *session.Transcript) (turns []skilletTurnRows) {
	for i := range t.Messages {
		m := &t.Messages[i]
		if m.Message.HiddenAt != nil || m.Message.Role == session.RoleSystem || skilletIsCompaction(m) {
			continue
		}
		user := m.Message.Role == session.RoleUser
		if n := len(turns); n == 0 || user && len(turns[n-1].assistants) > 0 {
			turns = append(turns, skilletTurnRows{})
		}
		last := &turns[len(turns)-1]
		if user {
			last.users = append(last.users, m)
		} else {
			last.assistants = append(last.assistants, m)
		}
	}
	return turns
}

// skilletIsCompaction reports whether the message is the mark of a compaction, and no turn.
func skilletIsCompaction(m *session.MessageAndParts) bool {
	return len(m.Parts) == 1 && m.Parts[0].Type == session.TypeCompaction
}

// skilletEncode writes the session as a replay log.
func skilletEncode(s *codec.Session) []byte {
	t := s.Sorted()
	d := skilletLogDrafter{s: &t.Session}
	d.native = rows.Read(t.Session.MetadataJSON).Object(skilletMetaKey).Has("session_name")
	for _, turn := range skilletTurnsOf(t) {
		d.turn(turn)
	}
	return d.log
}

type skilletLogDrafter struct {
	log []byte
	s   *session.Session
	// native sessions came from skillet: parts stand for the start and the end of agents, which
	// the log of another session gets for each of its messages.
	native bool

	finished bool // the turn has a final result
	// said is the last text of the turn. A reader joins texts that follow one another, so they
	// are one step, which is waiting while words may follow.
	said    string
	waiting bool
	saidAt  int64
	// open are the calls that have not come back. A result names its tool and agent only, so
	// one is closed before the next of them begins.
	open map[skilletCall]bool
}

// skilletCall is what the log knows of a tool call.
type skilletCall struct{ agent, tool string }

// skilletNoResult is the result of a call that has none, where there must be one.
const skilletNoResult = "[no result]"

func (d *skilletLogDrafter) entry(kind, key string, value any, at int64, more ...any) {
	e := rows.Of(append([]any{"kind", kind, key, value, "timestamp", rows.FormatTime(at)}, more...)...)
	d.log = append(append(d.log, e.JSON()...), '\n')
}

func (d *skilletLogDrafter) step(at int64, fields rows.Object) {
	d.flush()
	d.entry(skilletStepEntry, "stepResult", fields, at)
}

// turn writes a turn. An answer that failed, was interrupted, or did not end has no final result.
func (d *skilletLogDrafter) turn(turn skilletTurnRows) {
	first := slices.Concat(turn.users, turn.assistants)[0]
	d.entry(skilletUserMessage, "userInput", skilletUserInput(turn.users), first.Message.CreatedAt)
	if len(turn.assistants) == 0 {
		return
	}
	d.said, d.open = "", make(map[skilletCall]bool)
	last := turn.assistants[len(turn.assistants)-1]
	meta := session.ParseMessageMetadata([]byte(last.Message.MetadataJSON))
	d.finished = !rows.GoesOn(last) && !meta.Trace.PendingApproval &&
		(meta.Trace.EndReason == "" || meta.Trace.EndReason == semconv.EndFinish)
	for _, m := range turn.assistants {
		d.message(m)
	}
	d.flush()
	if !d.finished {
		return
	}
	text := cmp.Or(strings.TrimSpace(d.said), skilletNoResponse)
	var model []any
	if meta.Model != nil && skilletModelSpec(*meta.Model) != "" {
		model = []any{"model", skilletModelSpec(*meta.Model)}
	}
	d.entry(skilletFinalResult, "finalResult", rows.Of("text", text), last.Message.UpdatedAt, model...)
}

// skilletUserInput is what users said; nothing, where the assistant began.
func skilletUserInput(users []*session.MessageAndParts) json.RawMessage {
	var messages []rows.Object
	for _, m := range users {
		in := skilletInput(skilletPartsOf(m))
		if len(users) == 1 && in[0] == '"' {
			return in
		}
		messages = append(messages, rows.Of("type", skilletMessageItem, "role", session.RoleUser,
			"content", skilletContent(skilletPartsOf(m))))
	}
	if messages == nil {
		return rows.Raw("")
	}
	return rows.Raw(messages)
}

func skilletModelSpec(m session.Model) string {
	if m.ProviderID == "" {
		return m.ModelID
	}
	return m.ProviderID + "/" + m.ModelID
}

func (d *skilletLogDrafter) message(m *session.MessageAndParts) {
	agent := cmp.Or(session.ParseMessageMetadata([]byte(m.Message.MetadataJSON)).Agent, d.s.Agent)
	parts := skilletPartsOf(m)
	framed := d.native || slices.ContainsFunc(m.Parts, func(p session.Part) bool { return p.Type == skilletAgentPart })
	frame := func(typ string, at int64) {
		if !framed {
			d.step(at, rows.Of("type", typ, "agentName", agent))
		}
	}
	frame(skilletAgentStart, m.Message.CreatedAt)
	for i, data := range parts {
		p := &m.Parts[i]
		switch {
		case p.Type == "text" && d.isResult(parts, i):
			d.flush()
			d.said = data.Text("text")
		case p.Type == "text":
			d.say(p.UpdatedAt, data.Text("text"))
		case p.Type == session.TypeWithheld:
			d.say(p.UpdatedAt, codec.WithheldText)
		case session.IsToolType(p.Type):
			d.tool(p, data, agent)
		case skilletIsStep(p.Type, data):
			d.step(p.UpdatedAt, data.Object("data"))
		}
	}
	frame(skilletAgentEnd, m.Message.UpdatedAt)
}

// isResult reports whether the text at i is the final result alone: as a step it would continue the text before it.
func (d *skilletLogDrafter) isResult(parts []rows.Object, i int) bool {
	if !d.native || !d.finished || i == 0 || i != len(parts)-1 || parts[i-1].Text("type") != "text" {
		return false
	}
	text := parts[i].Text("text")
	return text != "" && text == strings.TrimSpace(text) && text != strings.TrimSpace(parts[i-1].Text("text"))
}

func (d *skilletLogDrafter) say(at int64, text string) {
	if !d.waiting {
		d.said = ""
	}
	d.said += text
	d.waiting, d.saidAt = true, at
}

// flush writes the text that is waiting.
func (d *skilletLogDrafter) flush() {
	if d.waiting {
		d.waiting = false
		d.entry(skilletStepEntry, "stepResult", rows.Of("type", skilletTextStep, "text", d.said), d.saidAt)
	}
}

// skilletIsStep reports whether a data part is a step that skillet knows. Any other would stop its replay.
func skilletIsStep(partType string, data rows.Object) bool {
	if partType != skilletAgentPart && partType != skilletHandoffPart {
		return false
	}
	switch data.Object("data").Text("type") {
	case skilletAgentStart, skilletAgentEnd, skilletHandoff:
		return true
	}
	return false
}

func (d *skilletLogDrafter) tool(p *session.Part, data rows.Object, agent string) {
	c := skilletCallOf(data, agent)
	step := func(typ string, at int64, key, value string) {
		d.step(at, rows.Of("type", typ, "agentName", c.agent, "toolName", c.tool, key, value))
	}
	if d.open[c] {
		step(skilletToolEnd, p.CreatedAt, "result", skilletNoResult)
	}
	step(skilletToolStart, p.CreatedAt, "toolArgumentsStr", skilletArgumentsOf(data))
	result, done := skilletResultText(data)
	if done {
		step(skilletToolEnd, p.UpdatedAt, "result", result)
	}
	d.open[c] = !done
}

func skilletCallOf(data rows.Object, agent string) skilletCall {
	if own := data.Object("callProviderMetadata").Object(skilletMetaKey); own.Has("agentName") {
		agent = own.Text("agentName")
	}
	return skilletCall{agent, rows.ToolName(data)}
}

// skilletArgumentsOf is the inverse of parseArguments.
func skilletArgumentsOf(data rows.Object) string {
	input := data.Get("input")
	if s, ok := rows.Text(input); ok && string(skilletParseArguments(s)) == string(input) {
		return s
	}
	return string(input)
}

// skilletResultText is the result of a call as a text, which is all that skillet keeps.
func skilletResultText(data rows.Object) (text string, done bool) {
	switch data.Text("state") {
	case session.StateOutputAvailable:
		output := rows.Output(data)
		if s, ok := rows.Text(output); ok {
			return s, true
		}
		return string(output), true
	case session.StateOutputError:
		if data.Object("toolMetadata").Object("agenttrace").True("denied") {
			return skilletDenial(data.Text("errorText")), true
		}
		return skilletFailedText + data.Text("errorText"), true
	case session.StateOutputDenied:
		return skilletDenial(data.Object("approval").Text("reason")), true
	}
	return "", false
}

// skilletDenial is the result of a call that was denied for a reason, if there is one.
func skilletDenial(reason string) string {
	if reason == "" || reason == skilletDeniedText {
		return skilletDeniedText
	}
	return skilletDeniedText + " " + reason
}

// skilletItemsOf returns the session as rows of the store: what the model would be sent.
func skilletItemsOf(t *session.Transcript) (items []skilletItem) {
	t = t.Sorted()
	last := int64(math.MinInt64)
	add := func(at int64, o rows.Object) {
		last = max(last, at) // the rows are read in order of time
		items = append(items, skilletItem{row: int64(len(items) + 1), at: last, text: string(o.JSON())})
	}
	for i := range t.Messages {
		m := &t.Messages[i]
		if m.Message.HiddenAt != nil {
			continue
		}
		parts := skilletPartsOf(m)
		switch role := m.Message.Role; role {
		case session.RoleAssistant:
			for k, data := range parts {
				skilletPartItems(&m.Parts[k], data, add)
			}
		case session.RoleSystem:
			add(m.Message.CreatedAt, rows.Of("role", role, "content", skilletTextOf(parts)))
		default:
			add(m.Message.CreatedAt, rows.Of("role", role, "content", skilletInput(parts)))
		}
	}
	return items
}

// skilletPartItems adds the items of a part of the assistant's.
func skilletPartItems(p *session.Part, data rows.Object, add func(int64, rows.Object)) {
	message := func(content rows.Object) {
		add(p.CreatedAt, rows.Of("type", skilletMessageItem, "role", session.RoleAssistant, "status", "completed",
			"content", []rows.Object{content}))
	}
	inner := data.Object("data")
	switch {
	case p.Type == "text":
		message(rows.Of("type", "output_text", "text", data.Text("text")))
	case p.Type == skilletContentPart && inner != nil:
		message(inner)
	case p.Type == "reasoning":
		text := rows.Of("type", "input_text", "text", data.Text("text"))
		add(p.CreatedAt, rows.Of("type", skilletReasoningItem, "content", []rows.Object{text}))
	case p.Type == "data-item" && inner.Text("type") != "":
		add(p.CreatedAt, inner)
	case session.IsToolType(p.Type):
		id, name := data.Text("toolCallId"), rows.ToolName(data)
		add(p.CreatedAt, rows.Of("type", skilletCallItem, "callId", id, "name", name,
			"arguments", skilletArgumentsOf(data), "status", "completed"))
		if result, done := skilletResultText(data); done {
			output := rows.Of("type", "text", "text", result).JSON()
			if skilletIsContent(data.Get("output")) {
				output = data.Get("output")
			}
			add(p.UpdatedAt, rows.Of("type", skilletResultItem, "callId", id, "name", name, "status", "completed",
				"output", output))
		}
	}
}

// skilletIsContent reports whether a value is a list of content, which the output of a call may be.
func skilletIsContent(v json.RawMessage) bool {
	list := rows.Elements(v)
	return len(list) > 0 && !slices.ContainsFunc(list, func(c json.RawMessage) bool {
		return !strings.HasPrefix(rows.Read(string(c)).Text("type"), "input_")
	})
}

// skilletTextOf is what a message says, for an item that holds no more than a text.
func skilletTextOf(parts []rows.Object) string {
	var texts []string
	for _, data := range parts {
		if data.Text("type") == "text" {
			texts = append(texts, data.Text("text"))
		}
	}
	return strings.Join(texts, "\n\n")
}
