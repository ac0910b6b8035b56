package formats

import (
	"cmp"
	"strings"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// ACPMessage is a message of a trace of the Agent Client Protocol, in whichever framing. Its texts are as they were
// sent.
type ACPMessage struct {
	// At is when it was sent, in Unix milliseconds; 0 if the trace has no times.
	At int64
	// From is client, agent or unknown.
	From string
	// What is the method of a request or notification, the kind of a session/update, or the method that a response is to.
	What string
	// ID is that of a request or response, as JSON, and empty for a notification.
	ID       string
	Response bool
	// TookMS is how long after its request a response came, nil if that is unknown.
	TookMS *int64
	// Text is what it says: the content where the protocol has one, or else JSON.
	Text string
}

// ACPMessages returns the messages of a trace in their order. What is damaged is reported and left out.
func ACPMessages(text []byte, report func(codec.Problem)) (all []ACPMessage, err error) {
	messages, err := acpMessages(text, report)
	d := &acpDecoder{conn: acpNewConnection()}
	for _, m := range messages {
		a := ACPMessage{At: m.at, From: m.from, ID: m.id, What: m.method}
		if m.method != "" {
			if m.id != "" {
				d.conn.pending[[2]string{m.from, m.id}] = &acpExchange{acpMessage: m}
			}
			update := m.params.Object("update")
			a.What = cmp.Or(update.Text("sessionUpdate"), a.What)
			a.Text = acpSays(m.params, m.raw)
		} else {
			a.Response, a.What = true, "response"
			if x := d.answer(m); x != nil {
				a.What = x.method
				a.From = cmp.Or(map[string]string{acpClient: acpAgent, acpAgent: acpClient}[x.from], a.From)
				if x.timed && m.timed && m.at >= x.at {
					a.TookMS = new(m.at - x.at)
				}
			}
			if a.Text = acpSays(rows.Read(string(m.result)), m.result); m.err != nil {
				a.Text = "error " + cmp.Or(rows.Read(string(m.err)).Text("message"), string(m.err))
			}
		}
		all = append(all, a)
	}
	return all, err
}

// acpSays is what the params or the result of a message say, as far as the protocol names it.
func acpSays(o rows.Object, raw []byte) string {
	of := o
	for _, key := range []string{"update", "outcome", "toolCall", "subject"} {
		if inner := o.Object(key); inner != nil {
			of = inner
		}
	}
	if call := of.Object("toolCall"); call != nil {
		of = call
	}
	var said []string
	for _, key := range []string{"toolCallId", "status", "kind", "level", "severity", "stopReason", "outcome", "optionId",
		"state", "currentModeId", "sessionId", "title", "message", "path", "command"} {
		if text := of.Text(key); text != "" && (key != "sessionId" || !o.Has("prompt")) {
			said = append(said, text)
		}
	}
	blocks := rows.Elements(o.Get("prompt"))
	if content := of.Get("content"); content != nil {
		blocks = append(rows.Elements(content), content)
	}
	for _, raw := range blocks {
		block := rows.Read(string(raw))
		if inner := block.Object("content"); inner != nil {
			block = inner
		}
		if text := cmp.Or(block.Text("text"), block.Text("uri"), block.Text("path")); text != "" {
			said = append(said, text)
		}
	}
	for entry := range rows.Objects(of.Get("entries")) {
		said = append(said, "["+entry.Text("status")+"] "+entry.Text("content"))
	}
	if len(said) == 0 || o.Has("protocolVersion") {
		return string(raw)
	}
	return strings.Join(said, " ")
}
