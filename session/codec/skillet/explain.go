package skillet

import (
	"path/filepath"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Explain lists what of the session the replay log loses. What the store has of
// it all the same, when [EncodeFile] writes both, is said in Kept. Of a session
// that is written as the log that it was, nothing is listed but its id: a log holds
// none, and what reads one makes it of the names that the file has.
func Explain(s *codec.Session) []codec.Loss {
	const store = "session_items"
	var x losses
	x.id(s.Transcript)
	if s.CheckTree() == nil {
		if _, ok := replayLog(s); ok {
			return x
		}
	}
	t := s.Sorted()
	columns := "session columns"
	for _, turn := range turnsOf(t) {
		if len(turn.assistants) > 0 {
			columns = "session columns but agent and model_json"
		}
	}
	x.add(columns, "", 1)
	x.add("permission decisions", "", len(s.Decisions))
	x.add("system prompts and tool catalogs", "", len(s.Blobs))
	for _, turn := range turnsOf(t) {
		x.add("messages beside others of their role, which become one", "", max(0, len(turn.users)-1)+max(0, len(turn.assistants)-1))
		if len(turn.users) == 0 {
			x.add("turns that nobody began, which begin with an empty user message", "", 1)
		}
		if len(turn.assistants) > 0 && len(draftAnswer(&t.Session, turn)) == 0 {
			x.add("incomplete answers that say nothing in the log", "", 1)
		}
		x.add("tool calls without a result before others of their tool, which get one that says so", "", closed(&t.Session, turn))
	}
	for i := range t.Messages {
		m := &t.Messages[i]
		x.add("ids and exact times of messages and parts", "", 1+len(m.Parts))
		switch {
		case m.Message.HiddenAt != nil:
			x.add("messages that a rewind hid", "", 1)
			continue
		case m.Message.Role == session.RoleSystem:
			x.add("system messages", store, 1)
			continue
		case isCompaction(m):
			x.add("compactions", "", 1)
			continue
		case m.Message.Role == session.RoleUser:
			if m.Message.MetadataJSON != "{}" {
				x.add("metadata of user messages", "", 1)
			}
			x.said(partsOf(m))
			continue
		}
		x.add("metadata of assistant messages but agent and model", "", 1)
		if model := metadataOf(m).Model; model != nil && model.Variant != "" {
			x.add("variants of models", "", 1)
		}
		x.parts(m)
	}
	return x
}

// id says whether reading the session gives it its id again, under the names that
// EncodeFile writes it under.
func (x *losses) id(t *session.Transcript) {
	kept := ""
	if k := keyOf(&t.Session, Key{}); k.sessionID() == t.Session.ID && len(turnsOf(t)) > 0 {
		kept = "the path of the log, " + filepath.ToSlash(k.logPath()) + ", and session_items"
	}
	x.add("the id of the session, which readers make of the names that it has", kept, 1)
}

// closed counts the calls of a turn that have no result and must have one.
func closed(s *session.Session, turn turnRows) (n int) {
	open := make(map[call]bool)
	for _, m := range turn.assistants {
		for i := range m.Parts {
			if !isTool(m.Parts[i].Type) {
				continue
			}
			data := object(m.Parts[i].DataJSON)
			c := callOf(data, agentOf(s, m))
			if open[c] {
				n++
			}
			_, done := resultText(data)
			open[c] = !done
		}
	}
	return n
}

// said lists what the content of a user message does not say of its parts.
func (x *losses) said(parts []rows.Object) {
	for i, p := range parts {
		list, lost := content(parts[i : i+1])
		x.add("user parts that are neither text nor file", "", lost)
		if lost > 0 {
			continue
		}
		again := contentParts(raw(list))
		if len(again) == 1 && string(again[0].JSON()) == string(p.JSON()) {
			continue
		}
		switch {
		case p.Text("type") != "file":
			x.add(textFields, "", 1)
		case len(again) == 1 && again[0].Text("type") == "file":
			x.add("names and media types of files", "", 1)
		default:
			x.add("files without a URL, which become other content", "", 1)
		}
	}
}

const textFields = "fields of text parts but their text"

// toolFields are the fields of a tool part that the log tells or other losses
// are about; what is kept for skillet itself is told anew.
var toolFields = []string{"type", "toolName", "toolCallId", "state", "input", "output", "errorText", "approval", "callProviderMetadata"}

func (x *losses) tool(data rows.Object) {
	const store = "session_items"
	x.add("tool call ids", store, 1)
	switch state := data.Text("state"); state {
	case session.StateOutputError, session.StateOutputDenied:
		x.add("failed and denied tool calls, whose error becomes the result", "", 1)
	case session.StateOutputAvailable:
		if _, text := rows.Text(rows.Output(data)); !text {
			x.add("tool outputs that are no text, written as JSON text", "", 1)
		}
	case session.StateInputAvailable:
	default:
		x.add("states of tool calls without a result, which become input-available", "", 1)
	}
	if data.Has("approval") {
		x.add("approvals", "", 1)
	}
	if data.Text("type") == "dynamic-tool" && data.Text("toolName") != "" {
		x.add("dynamic tool calls, which get the type of their tool", "", 1)
	}
	if len(data.Without(toolFields...)) > 0 || len(data.Object("callProviderMetadata").Without(metaKey)) > 0 {
		x.add("metadata of tool calls", "", 1)
	}
}

func (x *losses) parts(m *session.MessageAndParts) {
	const store = "session_items"
	text := false // the part before is one
	for i := range m.Parts {
		p := &m.Parts[i]
		data := object(p.DataJSON)
		before := text
		text = p.Type == "text" || text && !isTool(p.Type) && !isStep(p.Type, data)
		switch {
		case p.Type == "text":
			if before {
				x.add("text parts that follow one another, which become one", store, 1)
			}
			if len(data.Without("type", "text")) > 0 {
				x.add(textFields, "", 1)
			}
		case p.Type == "reasoning":
			x.add("reasoning parts", store, 1)
		case isTool(p.Type):
			x.tool(data)
		case !isStep(p.Type, data):
			x.add("parts of type "+p.Type, "", 1)
		}
	}
}

type losses []codec.Loss

func (x *losses) add(what, kept string, n int) { *x = codec.AddLoss(*x, what, kept, n) }
