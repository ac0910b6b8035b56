package replay

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/spans"
)

// aiSDK is what the AI SDK's useChat sends to the route of a chat, and the stream that the route answers with. The
// route has system prompt, tools and model of its own, and runs the tools itself.
var aiSDK = &Format{
	Name: "ai-sdk", Title: "UI messages of the AI SDK, as useChat sends them to a route",
	request: aiRequestOf, reply: aiReply, authorize: bearer,
}

type aiRequest struct {
	ID       string      `json:"id"`
	Messages []UIMessage `json:"messages"`
	Trigger  string      `json:"trigger"`
}

func aiRequestOf(b *Bundle, since []entry) any {
	r := aiRequest{ID: cmp.Or(b.chat, b.SessionID), Messages: append([]UIMessage{}, b.Messages...),
		Trigger: "submit-message"}
	if len(since) > 0 {
		r.Messages = append(r.Messages, aiAnswer(since))
	}
	return r
}

// aiAnswer is what came since as the one message that useChat makes of it and
// sends when a tool of the client has put something out.
func aiAnswer(since []entry) UIMessage {
	m := UIMessage{ID: "answer", Role: session.RoleAssistant, Parts: []json.RawMessage{}}
	for i := range since {
		m.ID = cmp.Or(since[i].id, m.ID)
		for k := range since[i].blocks {
			raw, _ := json.Marshal(partOf(&since[i].blocks[k])) // what came in as JSON goes out as JSON
			m.Parts = append(m.Parts, raw)
		}
	}
	return m
}

// aiChunk is an event of the stream with every field that any kind has.
type aiChunk struct {
	Type       string          `json:"type"`
	ID         string          `json:"id"`
	Delta      string          `json:"delta"`
	ErrorText  string          `json:"errorText"`
	ToolCallID string          `json:"toolCallId"`
	ToolName   string          `json:"toolName"`
	Input      json.RawMessage `json:"input"`
	Output     json.RawMessage `json:"output"`
	Finish     string          `json:"finishReason"`
	MessageID  string          `json:"messageId"`
	Metadata   json.RawMessage `json:"messageMetadata"`
}

// aiStream puts a stream of UI message chunks together.
type aiStream struct {
	reply
	open  map[string]int // blocks that grow, by the id of their chunks
	known bool           // a chunk of a kind that is known has come
}

// aiReply reads a stream. With an error it returns what had come before, if that is anything.
func aiReply(text []byte, readErr error) (*reply, error) {
	s := &aiStream{open: make(map[string]int)}
	err := s.read(events(text))
	switch err = cmp.Or(err, readErr); {
	case err != nil && !slices.ContainsFunc(s.blocks, func(b block) bool { return b.kind != stepBlock }):
		return nil, err
	case err == nil && !s.known:
		return nil, errors.New("it is not a stream of UI message chunks")
	}
	return &s.reply, err
}

func (s *aiStream) read(events []json.RawMessage) error {
	for _, event := range events {
		var c aiChunk
		if err := json.Unmarshal(event, &c); err != nil {
			return fmt.Errorf("an event of the stream is not JSON: %w", err)
		}
		if err := s.take(&c); err != nil {
			return err
		}
	}
	return nil
}

func (s *aiStream) take(c *aiChunk) error {
	s.known = s.known || c.Type != ""
	begin := func(name string, b block) *block {
		s.open[name] = len(s.blocks)
		s.blocks = append(s.blocks, b)
		return &s.blocks[s.open[name]]
	}
	call := func() *block {
		if at, ok := s.open["call "+c.ToolCallID]; ok {
			return &s.blocks[at]
		}
		return begin("call "+c.ToolCallID, block{kind: callBlock, id: c.ToolCallID, input: json.RawMessage("{}")})
	}
	results := func(r result) {
		if at, ok := s.open["call "+c.ToolCallID]; ok {
			s.blocks[at].result = &r
		}
	}
	switch kind, _, _ := strings.Cut(c.Type, "-"); c.Type {
	case "start":
		s.id = c.MessageID
		s.metadata(c.Metadata)
	case "start-step":
		s.blocks = append(s.blocks, block{kind: stepBlock})
	case "text-start":
		begin("text "+c.ID, block{kind: textBlock})
	case "reasoning-start":
		begin("reasoning "+c.ID, block{kind: reasoningBlock})
	case "text-delta", "reasoning-delta":
		at, ok := s.open[kind+" "+c.ID]
		if !ok {
			return fmt.Errorf("the stream goes on with the %s %q, which it has not begun", kind, c.ID)
		}
		s.blocks[at].text += c.Delta
	case "tool-input-start", "tool-input-available", "tool-input-error":
		b := call()
		if b.name = c.ToolName; len(c.Input) > 0 {
			b.input = c.Input
		}
		if c.Type == "tool-input-error" {
			results(result{failed: true, text: c.ErrorText})
		}
	case "tool-output-available":
		if len(c.Output) == 0 { // undefined, as the route sees it
			c.Output = json.RawMessage("null")
		}
		results(result{output: c.Output})
	case "tool-output-error":
		results(result{failed: true, text: c.ErrorText})
	case "tool-output-denied":
		results(result{failed: true, text: callDenied})
	case "abort":
		s.stop = "abort"
	case "finish", "message-metadata":
		s.stop = cmp.Or(c.Finish, s.stop)
		s.metadata(c.Metadata)
	case "error":
		s.stop = "error"
		return errors.New(cmp.Or(c.ErrorText, "the route failed"))
	}
	return nil
}

// metadata reads the usage where the route puts it into the message's metadata as the SDK counts it.
func (s *aiStream) metadata(raw json.RawMessage) {
	for _, usage := range gjson.GetManyBytes(raw, "totalUsage", "usage") {
		count := func(keys ...string) (n int64) {
			for _, key := range keys {
				n = max(n, usage.Get(key).Int())
			}
			return n
		}
		tokens := spans.Tokens{
			Input: count("inputTokens"), Output: count("outputTokens"),
			Reasoning:  count("reasoningTokens", "outputTokenDetails.reasoningTokens"),
			CacheRead:  count("cachedInputTokens", "inputTokenDetails.cacheReadTokens"),
			CacheWrite: count("inputTokenDetails.cacheWriteTokens"),
		}
		if tokens.Input+tokens.Output > 0 {
			s.usage = (*session.Usage)(new(tokens.Disjoint()))
			s.usageRaw, s.basis = json.RawMessage(usage.Raw), semconv.BasisInclusive
			return
		}
	}
}
