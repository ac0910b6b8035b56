package codeagent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// scriptedModel answers from a script in the place of a client. It counts tokens as a
// provider does, from the real size of requests and answers: four bytes are a token.
type scriptedModel struct {
	// pace is the delay per few words.
	pace time.Duration
	// retrying is called before the only retry.
	retrying func(err error, wait time.Duration)

	mu      sync.Mutex
	limited bool // the only 429 has been reported
	// prompts has the previous prompt of each model, as the provider's cache.
	prompts map[string][]string
}

// complete implements [completer].
func (m *scriptedModel) complete(
	ctx context.Context, req chatRequest, text, reasoning func(string)) (completion, error,
) {
	c := newConversation(req)
	if m.refuses(c) {
		const wait = 20 * time.Millisecond
		m.retrying(&statusError{code: http.StatusTooManyRequests, message: "Rate limit reached."}, wait)
		if err := pause(ctx, wait); err != nil {
			return completion{}, err
		}
	}
	reply := c.reply()
	if reply.stuck != "" {
		return completion{}, &statusError{code: http.StatusUnprocessableEntity, message: reply.stuck}
	}
	usage := m.count(req, reply)
	done := completion{id: "chatcmpl-" + c.key(), model: req.Model, finishReason: "stop", usage: &usage}
	done.rawUsage, _ = json.Marshal(usage) // never fails for numbers
	done.message = message{Role: "assistant", Content: reply.text}
	for i, call := range reply.calls {
		made := toolCall{ID: "call_" + c.key() + "_" + strconv.Itoa(i), Type: "function"}
		made.Function.Name, made.Function.Arguments = call.name, call.arguments()
		done.message.ToolCalls = append(done.message.ToolCalls, made)
		done.finishReason = "tool_calls"
	}
	for _, part := range []struct {
		text  string
		write func(string)
	}{{reply.reasoning, reasoning}, {reply.text, text}} {
		for s := range pieces(part.text) {
			part.write(s)
			if err := pause(ctx, m.pace); err != nil {
				return completion{}, err
			}
		}
	}
	return done, nil
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("wait for model: %w", context.Cause(ctx))
	case <-time.After(d):
		return nil
	}
}

// refuses reports whether this request gets the rate limit.
func (m *scriptedModel) refuses(c *conversation) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.limited || c.key() != rateLimited {
		return false
	}
	m.limited = true
	return true
}

// count returns the usage that a provider would report. The part of the prompt that it
// has seen before is cached, in blocks of 128 tokens.
func (m *scriptedModel) count(req chatRequest, reply reply) chatUsage {
	tools, _ := json.Marshal(req.Tools)
	messages, _ := json.Marshal(req.Messages)
	prompt := string(tools) + string(messages)

	m.mu.Lock()
	defer m.mu.Unlock()
	seen := 0
	for _, earlier := range m.prompts[req.Model] {
		n := 0
		for n < min(len(earlier), len(prompt)) && earlier[n] == prompt[n] {
			n++
		}
		seen = max(seen, n)
	}
	m.prompts[req.Model] = append(m.prompts[req.Model], prompt)

	said := len(reply.text)
	for _, call := range reply.calls {
		said += len(call.name) + len(call.arguments())
	}
	var u chatUsage
	u.PromptTokens = tokens(len(prompt))
	u.PromptTokensDetails.CachedTokens = int64(seen) / 4 / 128 * 128
	u.CompletionTokensDetails.ReasoningTokens = tokens(len(reply.reasoning))
	u.CompletionTokens = u.CompletionTokensDetails.ReasoningTokens + tokens(said)
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

func tokens(bytes int) int64 { return int64(bytes+3) / 4 }

// pieces yields s in pieces of a few words.
func pieces(s string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for s != "" {
			n := len(s)
			if n > 24 {
				if i := strings.IndexByte(s[16:], ' '); i >= 0 {
					n = 16 + i + 1
				}
			}
			if !yield(s[:n]) {
				return
			}
			s = s[n:]
		}
	}
}
