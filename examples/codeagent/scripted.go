package codeagent

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// scriptedModel is a server on loopback with the Chat Completions API that answers from
// [script]. It counts tokens as a provider does, from the real size of requests and
// answers: four bytes are a token.
type scriptedModel struct {
	// pace is the delay per few words.
	pace time.Duration

	mu      sync.Mutex
	limited bool // the only 429 has been sent
	// prompts has the previous prompt of each model, as the provider's cache.
	prompts map[string][]string
}

// serve starts the server and returns its base URL. The caller stops it.
func (m *scriptedModel) serve() (baseURL string, stop func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("start scripted model: %w", err)
	}
	m.prompts = make(map[string][]string)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", m.complete)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Serve(l) // returns when stop closes the server
	}()
	return "http://" + l.Addr().String() + "/v1", func() error {
		err := server.Close()
		<-done
		return err
	}, nil
}

func (m *scriptedModel) complete(w http.ResponseWriter, r *http.Request) {
	var req chatRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		answerError(w, http.StatusBadRequest, err.Error())
		return
	}
	c := newConversation(req)
	if m.refuse(c) {
		w.Header().Set("Retry-After-Ms", "20")
		answerError(w, http.StatusTooManyRequests, "Rate limit reached.")
		return
	}
	reply := c.reply()
	if reply.stuck != "" {
		answerError(w, http.StatusUnprocessableEntity, reply.stuck)
		return
	}
	usage := m.count(req, reply)

	w.Header().Set("Content-Type", "text/event-stream")
	events := json.NewEncoder(w)
	chunk := chatChunk{ID: "chatcmpl-" + c.key(), Model: req.Model}
	send := func(choices ...chatChoice) {
		chunk.Choices = append([]chatChoice{}, choices...)
		fmt.Fprint(w, "data: ")
		events.Encode(chunk) // after an error the client is gone, and the next wait returns
		fmt.Fprintln(w)
		http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(m.pace):
		}
	}
	for s := range pieces(reply.reasoning) {
		send(chatChoice{Delta: chatDelta{ReasoningContent: s}})
	}
	for s := range pieces(reply.text) {
		send(chatChoice{Delta: chatDelta{Content: s}})
	}
	for i, call := range reply.calls {
		d := toolCallDelta{Index: i}
		d.ID, d.Type, d.Function.Name = "call_"+c.key()+"_"+strconv.Itoa(i), "function", call.name
		for s := range pieces(call.arguments()) {
			d.Function.Arguments = s
			send(chatChoice{Delta: chatDelta{ToolCalls: []toolCallDelta{d}}})
			d = toolCallDelta{Index: i}
		}
	}
	reason := "stop"
	if len(reply.calls) > 0 {
		reason = "tool_calls"
	}
	send(chatChoice{FinishReason: reason})
	chunk.Usage, _ = json.Marshal(usage) // never fails for numbers
	send()
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// refuse reports whether this request gets the rate limit.
func (m *scriptedModel) refuse(c *conversation) bool {
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

func answerError(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(map[string]apiError{"error": {Message: text}})
}
