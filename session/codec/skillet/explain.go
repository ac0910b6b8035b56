package skillet

import (
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
)

// Explain lists what of the session the replay log loses. What the store has of
// it all the same, when [EncodeFile] writes both, is said in Kept. Of a session
// that is written as the log that it was, nothing is listed.
func Explain(s *codec.Session) []codec.Loss {
	if s.CheckTree() == nil {
		if _, ok := replayLog(s); ok {
			return nil
		}
	}
	const store = "session_items"
	var x losses
	x.add("session columns but agent and model_json", "", 1)
	x.add("permission decisions", "", len(s.Decisions))
	x.add("system prompts and tool catalogs", "", len(s.Blobs))
	t := s.Sorted()
	for _, turn := range turnsOf(t) {
		x.add("messages beside others of their role, which become one", "", max(0, len(turn.users)-1)+max(0, len(turn.assistants)-1))
		if len(turn.users) == 0 {
			x.add("turns that nobody began, which begin with an empty user message", "", 1)
		}
		x.add("tool calls without a result before others of their tool, which get one that says so", "", closed(&t.Session, turn))
	}
	for i := range t.Messages {
		m := &t.Messages[i]
		x.add("ids of messages and parts", "", 1+len(m.Parts))
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
			_, lost := content(partsOf(m))
			x.add("user parts that are neither text nor file", "", lost)
			continue
		}
		x.add("metadata of assistant messages but agent and model", "", 1)
		x.parts(m)
	}
	return x
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
		case p.Type == "reasoning":
			x.add("reasoning parts", store, 1)
		case isTool(p.Type):
			x.add("tool call ids", store, 1)
			switch state := data.Text("state"); {
			case state == session.StateOutputError || state == session.StateOutputDenied:
				x.add("failed and denied tool calls, whose error becomes the result", "", 1)
			case state == session.StateOutputAvailable && !strings.HasPrefix(string(data.Get("output")), `"`):
				x.add("tool outputs that are no text, written as JSON text", "", 1)
			case state == session.StateApprovalRequested || state == session.StateApprovalResponded:
				x.add("approvals", "", 1)
			}
		case !isStep(p.Type, data):
			x.add("parts of type "+p.Type, "", 1)
		}
	}
}

type losses []codec.Loss

func (x *losses) add(what, kept string, n int) { *x = codec.AddLoss(*x, what, kept, n) }
