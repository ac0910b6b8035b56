package modelhttp

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"hash"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/modelapi"
)

// errTruncated is the error of a stream that ended without stating that the answer had.
var errTruncated = errors.New("the answer's stream ended early")

// answer records a model's answer as it arrives. The text goes on to the session at once; tool
// calls begin when the answer has ended, because then the agent has them.
type answer struct {
	modelapi.Answer
	flight *flight // nil drops the answer
	// served are the calls that the provider executes, by id.
	served map[string]*agenttrace.ToolCall
	// streams have the text of the blocks that are open.
	streams map[*modelapi.Block]*agenttrace.TextStream
	// content is what a later request that has the answer in its history is known by.
	content content
	// head is the beginning of the text, of headSize bytes at most.
	head     []byte
	headSize int
}

// isRecorded reports whether more than the usage is recorded.
func (a *answer) isRecorded() bool { return a.flight != nil && !a.flight.side }

// Text implements [modelapi.Sink].
func (a *answer) Text(b *modelapi.Block, text string) {
	if b.Kind == modelapi.Text {
		a.content.addText([]byte(text))
		a.head = append(a.head, text[:min(len(text), a.headSize-len(a.head))]...)
	}
	text = a.Take(text)
	if text == "" || !a.isRecorded() {
		return
	}
	stream := a.streams[b]
	if stream == nil {
		if b.Kind == modelapi.Reasoning {
			stream = a.flight.call.StreamReasoning()
		} else {
			stream = a.flight.call.StreamText()
		}
		a.streams[b] = stream
	}
	_, _ = stream.WriteString(text) // never fails
}

// Closed implements [modelapi.Sink].
func (a *answer) Closed(b *modelapi.Block) {
	if stream := a.streams[b]; stream != nil {
		_ = stream.Close() // never fails
		delete(a.streams, b)
	}
	switch {
	case b.Kind != modelapi.Call:
	case !b.Server:
		a.content.call(b.ID, b.Name)
	case a.isRecorded():
		_, tool := a.flight.turn.StartTool(a.flight.ctx, agenttrace.ToolOptions{
			ID: b.ID, Name: b.Name, Input: b.Input(), ProviderExecuted: true,
		})
		a.served[b.ID] = tool
	}
}

// Output implements [modelapi.Sink].
func (a *answer) Output(id string, output json.RawMessage, failed bool) {
	if tool := a.served[id]; tool != nil {
		endTool(tool, output, failed)
		delete(a.served, id)
	}
}

// File implements [modelapi.Sink].
func (a *answer) File(f modelapi.File) {
	if a.isRecorded() {
		a.flight.turn.Data("file", "", map[string]any{"mediaType": f.MediaType, "size": f.Size})
	}
}

// calls returns the tool calls that the agent is to execute.
func (a *answer) calls() (out []*openCall) {
	for _, b := range a.Blocks {
		if b.Kind == modelapi.Call && !b.Server && !b.Open {
			out = append(out, &openCall{id: b.ID, name: b.Name, input: string(b.Input())})
		}
	}
	return out
}

// result returns what the answer came to, for the span of the call, with the usage of the answer before it was
// interrupted.
func (a *answer) result(earlier *modelapi.Usage) agenttrace.ModelResult {
	r := agenttrace.ModelResult{StopReason: a.Stop, ResponseID: a.ID, ResponseModel: a.Model}
	if a.Usage != nil {
		r.RawUsage = a.Usage.Raw
	}
	u := earlier.Add(a.Usage)
	if u == nil {
		return r
	}
	counts := agenttrace.InclusiveUsage{
		Input: u.Input, Output: u.Output, Reasoning: u.Reasoning, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite,
	}
	switch r.Usage = counts; u.Basis {
	case modelapi.GeminiBasis:
		r.Usage = agenttrace.GeminiUsage{
			Prompt: u.Input, Cached: u.CacheRead, ToolUsePrompt: u.ToolPrompt, Candidates: u.Output, Thoughts: u.Reasoning,
		}
	case modelapi.Exclusive:
		r.Usage = agenttrace.ExclusiveUsage(counts)
	}
	return r
}

// toolError is the error that a tool returned, as the model reads it.
type toolError string

func (e toolError) Error() string     { return string(e) }
func (e toolError) ErrorType() string { return "tool_error" }

func endTool(tool *agenttrace.ToolCall, output json.RawMessage, failed bool) {
	var text string
	isText := len(output) > 0 && output[0] == '"' && json.Unmarshal(output, &text) == nil
	switch {
	case !failed && isText:
		tool.EndText(text)
	case !failed:
		tool.EndRaw(output)
	case isText:
		tool.Fail(toolError(text))
	default:
		tool.Fail(toolError(output))
	}
}

// content identifies a message by its text and its tool calls, so that it is recognized
// when it comes back in the history of a request. Whitespace is left out, because clients
// trim; reasoning and inputs are left out, because they may be dropped.
type content struct {
	texts hash.Hash
	ids   []byte
	// full reports that the message has text or calls.
	full bool
}

// contentOf returns the content of a message of a request.
func contentOf(m *modelapi.Message) *content {
	var c content
	for k := range m.Items {
		switch i := &m.Items[k]; i.Kind {
		case modelapi.Text:
			c.addText([]byte(i.Text))
		case modelapi.Call:
			c.call(i.ID, i.Name)
		case modelapi.Result:
			c.call(">"+i.ID, i.Name)
		case modelapi.FileItem:
			c.call("file "+i.File.Name+i.File.URL, "")
		}
	}
	return &c
}

// addText adds a text, or the next piece of one.
func (c *content) addText(text []byte) {
	if c.texts == nil {
		c.texts = sha256.New()
	}
	for word := range bytes.FieldsSeq(text) {
		c.texts.Write(word)
		c.full = true
	}
}

// call adds a tool call by its id or, where the API has none, its name.
func (c *content) call(id, name string) {
	c.full = true
	c.ids = append(c.ids, 'c')
	c.ids = append(c.ids, cmp.Or(id, "="+name)...)
	c.ids = append(c.ids, 0)
}

// digest is a hash of a message, or of what distinguishes messages.
type digest [sha256.Size]byte

// digestOf returns the digest of texts that follow each other.
func digestOf(texts ...string) (sum digest) {
	h := sha256.New()
	for _, text := range texts {
		h.Write([]byte(text))
	}
	h.Sum(sum[:0])
	return sum
}

// after returns the digest of a conversation with one more message.
func (c *content) after(before digest, from modelapi.Role) (sum digest) {
	c.addText(nil)
	h := sha256.New()
	h.Write(before[:])
	h.Write([]byte{byte(from)})
	h.Write(c.texts.Sum(nil))
	h.Write(c.ids)
	h.Sum(sum[:0])
	return sum
}
