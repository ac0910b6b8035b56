package agentdbg

import (
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
)

// Explain lists what of the session AgentDbg has no terms for. All of it travels
// in the events' meta, so reading the run gives the same session again; AgentDbg
// and its viewer show the meta and make nothing of it.
//
// Of a session that is written as the run that it was, nothing is listed.
func Explain(s *codec.Session) []codec.Loss {
	if s.CheckTree() == nil {
		if _, ok := replay(s); ok {
			return nil
		}
	}
	const (
		inStart  = "meta.agenttrace of RUN_START"
		inEvents = "meta.agenttrace"
	)
	var x losses
	x.add("session columns but title, workspace_root and times", inStart, 1)
	x.add("permission decisions", inStart, len(s.Decisions))
	x.add("system prompts and tool catalogs", inStart, len(s.Blobs))
	for i := range s.Messages {
		m := &s.Messages[i]
		x.add("messages and their ids", inEvents, 1)
		if m.Message.HiddenAt != nil {
			x.add("hidden_at of messages that a rewind hid, whose events are written like any other", inEvents, 1)
		}
		if meta := messageMetadata(&m.Message); meta.Usage != nil && m.Message.Role == session.RoleAssistant {
			x.add("usage in five buckets, written as prompt and completion tokens", inEvents, 1)
		}
		if trace := messageMetadata(&m.Message).Trace; trace.EndReason == semconv.EndAbort {
			x.add("interrupted turns, written as errors", inEvents, 1)
		}
		for j := range m.Parts {
			x.part(&m.Parts[j])
		}
	}
	return x
}

type losses []codec.Loss

func (x *losses) add(what, kept string, n int) { *x = codec.AddLoss(*x, what, kept, n) }

func (x *losses) part(p *session.Part) {
	if input, output := codec.Withheld(p); input || output {
		x.add("values of tool calls that are withheld, written as a text that says so", "meta.agenttrace", 1)
	}
	switch {
	case p.Type == "reasoning":
		x.add("reasoning parts", "response.content of LLM_CALL", 1)
	case p.Type == "file" || strings.HasPrefix(p.Type, "source-"):
		x.add("file and source parts", "prompt and response of LLM_CALL", 1)
	case p.Type == dataTypes[loopWarning]:
		x.add("data-loop-warning parts, for warnings are computed anew", "meta.agenttrace", 1)
	case strings.HasPrefix(p.Type, "data-") && p.Type != dataTypes[errorEvent]:
		x.add("data parts", "state of STATE_UPDATE", 1)
	case p.ToolState != nil:
		switch *p.ToolState {
		case session.StateOutputAvailable, session.StateOutputError:
		case session.StateOutputDenied:
			x.add("denied tool calls, written as errors", "meta.agenttrace", 1)
		default:
			x.add("tool calls without a result, written as errors", "meta.agenttrace", 1)
		}
	}
}
