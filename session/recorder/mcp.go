package recorder

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// MCP records the calls of tools that a client makes of a server of the Model Context Protocol, from the messages of a
// [Pipe]: each as a span, by the conventions of OpenTelemetry, when its result comes. A call belongs to the session that
// the client names in its _meta by the id of the model's call or by a trace context, or else to one of the connection.
// It is not safe for concurrent use.
type MCP struct {
	recorder *Recorder
	session  string
	agent    string // what the client calls itself
	open     map[string]mcpCall
	// waiting are the calls that name one of a model's which no session is known to have yet.
	waiting []mcpWaiting
}

type mcpCall struct {
	at     time.Time
	params mcpParams
}

// mcpWaiting is the span of a call, and the id of the model's.
type mcpWaiting struct {
	traces ptrace.Traces
	callID string
}

// maxMCPWaiting bounds how many calls wait.
const maxMCPWaiting = 256

type mcpParams struct {
	Name       string
	Arguments  json.RawMessage
	Meta       map[string]json.RawMessage `json:"_meta"`
	ClientInfo struct{ Name string }
	RequestID  json.RawMessage // of what is canceled
	Reason     string
}

// NewMCP returns a recorder of a connection. session is the id of the session of calls that name none.
func NewMCP(r *Recorder, session string) *MCP {
	return &MCP{recorder: r, session: session, open: make(map[string]mcpCall)}
}

// Record takes messages. Those that are damaged are left out.
func (m *MCP) Record(batch []Message) {
	for _, passed := range single(batch) {
		var message struct {
			ID     json.RawMessage
			Method string
			Params mcpParams
			Result struct {
				Content           json.RawMessage
				StructuredContent json.RawMessage
				IsError           bool
			}
			Error *struct{ Message string }
		}
		if json.Unmarshal(passed.Line, &message) != nil {
			continue
		}
		at, id := passed.At, string(message.ID)
		if passed.FromClient {
			switch message.Method {
			case "initialize":
				m.agent = message.Params.ClientInfo.Name
			case "tools/call":
				if id != "" {
					m.open[id] = mcpCall{at, message.Params}
				}
				var info struct{ Name string } // of a client that does not introduce itself
				if json.Unmarshal(message.Params.Meta["io.modelcontextprotocol/clientInfo"], &info) == nil {
					m.agent = cmp.Or(info.Name, m.agent)
				}
			case "notifications/cancelled":
				why := "canceled by the client"
				if message.Params.Reason != "" {
					why += ": " + message.Params.Reason
				}
				m.fail(string(message.Params.RequestID), at, why)
			}
			continue
		}
		call, ok := m.open[id]
		if !ok || message.Method != "" {
			continue
		}
		delete(m.open, id)
		output, failure := mcpText(message.Result.Content), ""
		if message.Result.StructuredContent != nil {
			output = string(message.Result.StructuredContent)
		}
		if message.Error != nil {
			failure = message.Error.Message
		} else if message.Result.IsError {
			failure = output
		}
		m.span(call, at, output, failure, message.Error != nil || message.Result.IsError)
	}
	m.join(false)
}

func (m *MCP) export(traces ptrace.Traces) {
	_ = m.recorder.export(context.Background(), tracesOf(traces)) // the end reports what is lost
}

// join gives the calls that wait the sessions that have the model's calls. At the end, the others are of the
// connection's.
func (m *MCP) join(end bool) {
	if len(m.waiting) == 0 {
		return
	}
	sessions := m.recorder.sessionsOfCalls(context.Background())
	end = end || len(m.waiting) > maxMCPWaiting
	m.waiting = slices.DeleteFunc(m.waiting, func(w mcpWaiting) bool {
		id, found := sessions[w.callID]
		if !found && !end {
			return false
		}
		span := w.traces.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
		if span.Attributes().PutStr("session.id", cmp.Or(id, m.session)); found {
			span.SetKind(ptrace.SpanKindServer)
		} else {
			m.name(span)
		}
		m.export(w.traces)
		return true
	})
}

// fail ends a call that has no result.
func (m *MCP) fail(id string, at time.Time, why string) {
	if call, ok := m.open[id]; ok {
		delete(m.open, id)
		m.span(call, at, "", why, true)
	}
}

// End records the calls that have no result, when no more messages come.
func (m *MCP) End() {
	for id := range m.open {
		m.fail(id, time.Now(), "the server has not answered")
	}
	m.join(true)
}

// mcpText is the text of a result if it is nothing else, or JSON.
func mcpText(content json.RawMessage) string {
	var blocks []struct{ Type, Text string }
	if json.Unmarshal(content, &blocks) == nil && len(blocks) == 1 && blocks[0].Type == "text" {
		return blocks[0].Text
	}
	return string(content)
}

// name has a span name the client as the agent.
func (m *MCP) name(span ptrace.Span) {
	if m.agent != "" {
		span.Attributes().PutStr("gen_ai.agent.name", m.agent)
	}
}

// span records the span of a call. One within a trace is of the server, since the client may report the call itself, and
// so is one that names the call of a model, once a session has that. Any other one is all that there is.
func (m *MCP) span(call mcpCall, end time.Time, output, failure string, failed bool) {
	traces := ptrace.NewTraces()
	spans := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
	spans.Scope().SetName("github.com/agenttrace/agenttrace/session/recorder")
	span := spans.Spans().AppendEmpty()
	var trace [16]byte
	var own, parent [8]byte
	_, _ = rand.Read(trace[:])
	_, _ = rand.Read(own[:])
	attrs, callID, within := span.Attributes(), "", false
	for key, raw := range call.params.Meta {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			continue
		}
		name := strings.ToLower(strings.ReplaceAll(key[strings.LastIndexByte(key, '/')+1:], "_", ""))
		switch parts := strings.Split(text, "-"); {
		case name == "tooluseid" || name == "toolcallid":
			callID = text
		case key == "traceparent" && len(parts) == 4 && len(parts[1]) == 32 && len(parts[2]) == 16:
			_, err := hex.Decode(trace[:], []byte(parts[1]))
			_, parentErr := hex.Decode(parent[:], []byte(parts[2]))
			within = err == nil && parentErr == nil
		}
	}
	span.SetTraceID(trace)
	span.SetSpanID(own)
	span.SetName("tools/call " + call.params.Name)
	span.SetStartTimestamp(pcommon.NewTimestampFromTime(call.at))
	span.SetEndTimestamp(pcommon.NewTimestampFromTime(end))
	attrs.PutStr("mcp.method.name", "tools/call")
	attrs.PutStr("gen_ai.operation.name", "execute_tool")
	attrs.PutStr("gen_ai.tool.name", call.params.Name)
	if call.params.Arguments != nil {
		attrs.PutStr("gen_ai.tool.call.arguments", string(call.params.Arguments))
	}
	if within {
		span.SetParentSpanID(parent)
		span.SetKind(ptrace.SpanKindServer)
	}
	switch {
	case callID != "":
		span.SetKind(ptrace.SpanKindClient)
		attrs.PutStr("gen_ai.tool.call.id", callID)
	case !within:
		span.SetKind(ptrace.SpanKindInternal)
		attrs.PutStr("session.id", m.session)
		m.name(span)
	}
	if failed {
		attrs.PutStr("error.type", "tool_error")
		span.Status().SetCode(ptrace.StatusCodeError)
		span.Status().SetMessage(failure)
	} else {
		attrs.PutStr("gen_ai.tool.call.result", output)
	}
	if callID != "" && !within {
		m.waiting = append(m.waiting, mcpWaiting{traces, callID})
		return
	}
	m.export(traces)
}

// ReplayTools returns a function that answers the messages of a client of the Model Context Protocol that call a tool
// with what a replay has recorded of it. address is the URL where the replay answers. It returns nil for a message that
// the server is to answer. It is safe for concurrent use.
func ReplayTools(address string) func(message []byte) []byte {
	return func(message []byte) []byte {
		var call struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
		}
		if !bytes.Contains(message, []byte("tools/call")) || json.Unmarshal(message, &call) != nil ||
			call.Method != "tools/call" || call.ID == nil {
			return nil
		}
		result, err := AskReplay(address, call.Params)
		if err != nil { // a tool that is not to be executed is not, for that
			why, _ := json.Marshal("agenttrace replay: " + err.Error())
			return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":%s}}`, call.ID, why)
		} else if result == nil {
			return nil
		}
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, call.ID, bytes.TrimSpace(result))
	}
}

// AskReplay returns what a replay at an address answers to the request of a tool or of a shell, nil if that is to go on
// without it.
func AskReplay(address string, params []byte) ([]byte, error) {
	resp, err := http.Post(address, "application/json", bytes.NewReader(params))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return io.ReadAll(resp.Body)
	case http.StatusNoContent:
		return nil, nil
	}
	return nil, fmt.Errorf("%s", resp.Status)
}
