// STS: this file reads and writes the Session Trace Simple Format, the JSON lines that the Hugging Face Hub shows in
// its trace viewer: a header with the harness, an id and a name, and a line for each message. docs/formats.md lists
// what becomes what.

package formats

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// stsRoleTool is the role of a message with the result of a tool call.
const stsRoleTool = "tool"

// typeToolResult is the type of a part for a result that no call waits for.
const typeToolResult = "data-tool-result"

// stsEncode writes the session as a header and messages.
func stsEncode(s *codec.Session) []byte {
	t := s.Sorted()
	header := rows.Of("type", "session", "harness", cmp.Or(t.Session.Agent, "unknown"), "id", t.Session.ID)
	if title := t.Session.Title; title != session.Untitled {
		header.Add(rows.NonEmpty("name", title))
	}
	out := append(header.JSON(), '\n')
	send := func(role, text string, fields ...any) {
		message := append(rows.Of("role", role, "content", text), rows.NonEmpty(fields...)...)
		out = append(append(out, rows.Of("type", "message", "message", message).JSON()...), '\n')
	}
	prompt := ""                  // the digest of the one in force
	used := make(map[string]bool) // ids of calls, which must differ
	for i := range t.Messages {
		m := &t.Messages[i]
		row := &m.Message
		if row.HiddenAt != nil {
			continue
		}
		digest := session.ParseMessageMetadata([]byte(row.MetadataJSON)).SystemPromptDigest
		if b := rows.Blob(s, store.BlobSystemPrompt, digest); b != nil && digest != prompt {
			prompt = digest
			send(session.RoleSystem, b.Body, "timestamp", max(0, row.CreatedAt))
		}
		if row.Role == session.RoleAssistant && !m.IsMarker() {
			for _, st := range rows.Steps(s, m) {
				stsStep(m, &st, used, send)
			}
			continue
		}
		role, text := row.Role, ""
		if row.Role == session.RoleAssistant {
			role = session.RoleSystem // what the model gets of what came before
		}
		for _, p := range m.Parts {
			c, _ := session.ParseCompaction(p.DataJSON) // of another part it has no summary
			text += cmp.Or(stsTextOf(rows.Data(&p)), c.Summary)
		}
		send(role, text, "timestamp", max(0, row.CreatedAt))
	}
	return out
}

// stsTextOf is the text of a part.
func stsTextOf(data rows.Object) string {
	if data.Text("type") != "text" {
		return ""
	}
	return data.Text("text")
}

// stsStep writes a model call, and the results of the tool calls that it requested.
func stsStep(m *session.MessageAndParts, st *rows.Step, used map[string]bool,
	send func(role, text string, fields ...any)) {
	var text, reasoning string
	var requests []rows.Object
	var results []*rows.Call
	for _, p := range st.Parts {
		data := rows.Data(p)
		text += stsTextOf(data)
		if p.Type == "reasoning" {
			reasoning += data.Text("text")
		} else if c := rows.CallOf(p, data, used); c != nil {
			function := rows.Of("name", c.Name, "arguments", string(c.Input))
			requests = append(requests, rows.Of("id", c.ID, "function", function))
			if c.Result != nil {
				results = append(results, c)
			}
		}
	}
	at := max(0, m.Message.CreatedAt, st.At)
	send(session.RoleAssistant, text, "reasoningContent", reasoning, "model", st.Model.ModelID, "timestamp", at,
		"toolCalls", requests)
	for _, c := range results {
		send(stsRoleTool, c.ShownResult(), "timestamp", max(at, c.At), "toolCallId", c.ID, "isError", c.Failed)
	}
}

// stsSession reads a session. A line that is not a message is reported and left out. A file without a header is an
// error.
func stsSession(_ string, text []byte, report func(codec.Problem)) ([]*codec.Session, error) {
	d := stsDecoder{Reporter: rows.Reporter{Report: report}, calls: make(map[string]*rows.Part)}
	lines := slices.Collect(rows.Lines(text, report))
	for _, l := range lines {
		if at, ok := rows.Milli(l.Object.Object("message").Get("timestamp")); ok && d.at == 0 {
			d.at = at // what comes before and has no time has the first
		}
	}
	for _, l := range lines {
		d.Place.Line = l.N
		message := l.Object.Object("message")
		switch {
		case d.s == nil && (l.Err != nil || l.Object.Text("type") != "session" || l.Object.Text("id") == ""):
			return nil, fmt.Errorf(`line %d: is not a header: want {"type":"session","harness":…,"id":…} first`, l.N)
		case d.s == nil:
			d.s = rows.New(l.Object.Text("id"), cmp.Or(l.Object.Text("harness"), "unknown"))
			d.s.Row.Title = cmp.Or(l.Object.Text("name"), d.s.Row.Title)
		case l.Err != nil || l.Object.Text("type") != "message" || message == nil:
			d.Problem(`is not a message, and is left out: want {"type":"message","message":{…}}`)
		default:
			d.message(message)
		}
	}
	if d.s == nil {
		return nil, errors.New("it is empty: want a header and messages")
	}
	return []*codec.Session{d.s.Finish()}, nil
}

type stsDecoder struct {
	rows.Reporter
	s     *rows.Session
	turn  *rows.Message // of the assistant
	calls map[string]*rows.Part
	at    int64
}

func (d *stsDecoder) message(message rows.Object) {
	if raw := message.Get("timestamp"); raw != nil {
		if at, ok := rows.Milli(raw); ok {
			d.at = at
		} else {
			d.Problem("message.timestamp is %.40s, want milliseconds since 1970: it is that of the line before", raw)
		}
	}
	if d.at > 0 {
		d.s.See(d.at)
	}
	content, ok := rows.Text(message.Get("content"))
	if !ok && message.Has("content") {
		d.Problem("message.content is %.40s, want a text: it is left out", message.Get("content"))
	}
	role := message.Text("role")
	switch role {
	case session.RoleUser, session.RoleSystem:
		d.turn = d.s.Message(role, d.at)
	case session.RoleAssistant, stsRoleTool:
		a, _ := d.s.Answer(d.at)
		d.turn = a.Message
	default:
		d.Problem("message.role is %.40s, want user, assistant, system or tool: the message is left out",
			rows.OrNull(message.Get("role")))
		return
	}
	if role == stsRoleTool {
		d.result(message, content)
		return
	}
	if role == session.RoleAssistant {
		d.turn.AddMeta(rows.NonEmpty("model", session.Model{ModelID: message.Text("model")}))
		d.turn.Part(rows.Of("type", "step-start"), d.at)
		if text := message.Text("reasoningContent"); text != "" {
			d.turn.Part(rows.TextPart("reasoning", text), d.at)
		}
	}
	if content != "" {
		d.turn.Part(rows.TextPart("text", content), d.at)
	}
	if role == session.RoleAssistant {
		d.requests(rows.Elements(message.Get("toolCalls")))
	}
}

// requests adds the calls that the assistant requests.
func (d *stsDecoder) requests(calls []json.RawMessage) {
	for i, raw := range calls {
		call := rows.Read(string(raw))
		function := call.Object("function")
		if function == nil {
			d.Problem("message.toolCalls[%d] has no function, and is left out", i)
			continue
		}
		arguments := rows.Unquoted(function.Get("arguments")) // some write the object itself
		d.calls[call.Text("id")] = d.turn.Call(call.Text("id"), function.Text("name"), arguments, d.at)
	}
}

// result gives a call its result.
func (d *stsDecoder) result(message rows.Object, content string) {
	id := message.Text("toolCallId")
	p := d.calls[id]
	if p == nil {
		d.Problem("message.toolCallId is %.60q, which no call before has: the result is kept without a call", id)
		d.turn.Part(rows.DataPart(typeToolResult, rows.Of("toolCallId", id, "content", content)), d.at)
		return
	}
	delete(d.calls, id)
	p.Result(rows.Raw(content), message.True("isError"))
	p.Touch(d.at)
}
