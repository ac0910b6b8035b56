package codeagent

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The part of the OpenAI Chat Completions API that an agent needs.

type message struct {
	Role       string     `json:"role"`
	Content    string     `json:"content"`
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type toolCall struct {
	// Index is the place of a fragment's call among those of a stream.
	Index    int    `json:"index,omitempty"`
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type chatRequest struct {
	Model           string          `json:"model"`
	ReasoningEffort string          `json:"reasoning_effort,omitempty"`
	Messages        []message       `json:"messages"`
	Tools           []any           `json:"tools,omitempty"`
	Stream          bool            `json:"stream"`
	StreamOptions   map[string]bool `json:"stream_options"`
}

// chatUsage counts inclusively: prompt tokens include cached tokens, completion tokens include reasoning tokens.
type chatUsage struct {
	PromptTokens        int64 `json:"prompt_tokens"`
	CompletionTokens    int64 `json:"completion_tokens"`
	PromptTokensDetails struct {
		CachedTokens int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionTokensDetails struct {
		ReasoningTokens int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// chatChunk is one event of the stream.
type chatChunk struct {
	ID      string       `json:"id"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	// Usage is a [chatUsage] and any other counts of the provider.
	Usage json.RawMessage `json:"usage,omitempty"`
	Error *apiError       `json:"error,omitempty"`
}

type chatChoice struct {
	Delta struct {
		message
		// Servers use one of these names for reasoning.
		ReasoningContent string `json:"reasoning_content"`
		Reasoning        string `json:"reasoning"`
	} `json:"delta"`
	FinishReason string `json:"finish_reason"`
}

type apiError struct{ Message string }

// completion is a complete answer of the model.
type completion struct {
	id, model, finishReason string
	message                 message
	// usage is nil if the server did not report any; rawUsage is its report.
	usage    *chatUsage
	rawUsage json.RawMessage
}

// model answers requests: a [client], or the script. It passes text and reasoning on while they arrive. After an error
// the completion has what had arrived; a [retryError] means that the answer has not begun.
type model interface {
	ask(ctx context.Context, req chatRequest, text, reasoning func(string)) (completion, error)
}

// retryError is the error of a server that is busy, broken or unreachable. after is how long it wants to be left alone,
// 0 if it does not say.
type retryError struct {
	error
	after time.Duration
}

func (e *retryError) Unwrap() error { return e.error }

const maxAttempts = 4

// complete calls the model. It asks again after a [retryError], when it has called retrying.
func complete(
	ctx context.Context, m model, req chatRequest, text, reasoning func(string), retrying func(error, time.Duration),
) (completion, error) {
	wait := 250 * time.Millisecond
	for attempt := 1; ; attempt++ {
		done, err := m.ask(ctx, req, text, reasoning)
		failed, again := errors.AsType[*retryError](err)
		switch {
		case again && ctx.Err() != nil:
			return done, fmt.Errorf("call model: %w", context.Cause(ctx))
		case !again || attempt == maxAttempts:
			return done, err
		}
		retryIn := cmp.Or(failed.after, wait)
		retrying(err, retryIn)
		if err := pause(ctx, retryIn); err != nil {
			return done, err
		}
		wait *= 2
	}
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

// client calls a model. Only the field baseURL is required.
type client struct {
	baseURL, apiKey string
	http            http.Client
}

// ask implements [model].
func (c *client) ask(ctx context.Context, req chatRequest, text, reasoning func(string)) (completion, error) {
	req.Stream, req.StreamOptions = true, map[string]bool{"include_usage": true}
	body, err := json.Marshal(req)
	if err != nil {
		return completion{}, fmt.Errorf("encode request: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.baseURL, "/")+"/chat/completions",
		bytes.NewReader(body))
	if err != nil {
		return completion{}, fmt.Errorf("make request: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	if c.apiKey != "" {
		r.Header.Set("Authorization", "Bearer "+c.apiKey)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return completion{}, &retryError{error: fmt.Errorf("call model: %w", err)}
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return readStream(resp.Body, text, reasoning)
	}
	head, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // best effort: the status is sufficient
	var answer struct{ Error apiError }
	_ = json.Unmarshal(head, &answer) // or it is not JSON
	err = refusal(resp.StatusCode, cmp.Or(answer.Error.Message, strings.TrimSpace(string(head))))
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
		ms, _ := strconv.Atoi(resp.Header.Get("Retry-After-Ms")) // without a number it is 0
		s, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		err = &retryError{err, cmp.Or(time.Duration(ms)*time.Millisecond, time.Duration(s)*time.Second)}
	}
	return completion{}, err
}

// refusal is the error of an answer with a status other than 200.
func refusal(status int, message string) error {
	return fmt.Errorf("model server answered %d %s: %s", status, http.StatusText(status), message)
}

// readStream builds an answer from server-sent events.
func readStream(r io.Reader, text, reasoning func(string)) (completion, error) {
	done := completion{message: message{Role: "assistant"}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok || string(data) == "[DONE]" {
			continue
		}
		var chunk chatChunk
		if err := json.Unmarshal(data, &chunk); err != nil {
			return done, fmt.Errorf("decode model stream: %w", err)
		}
		if chunk.Error != nil {
			return done, fmt.Errorf("model server broke off: %s", chunk.Error.Message)
		}
		done.id, done.model = cmp.Or(chunk.ID, done.id), cmp.Or(chunk.Model, done.model)
		if len(chunk.Usage) > 0 && string(chunk.Usage) != "null" {
			done.usage, done.rawUsage = new(chatUsage), chunk.Usage
			if err := json.Unmarshal(chunk.Usage, done.usage); err != nil {
				return done, fmt.Errorf("decode usage: %w", err)
			}
		}
		for _, choice := range chunk.Choices {
			done.finishReason = cmp.Or(choice.FinishReason, done.finishReason)
			if s := cmp.Or(choice.Delta.ReasoningContent, choice.Delta.Reasoning); s != "" {
				reasoning(s)
			}
			if s := choice.Delta.Content; s != "" {
				done.message.Content += s
				text(s)
			}
			for _, fragment := range choice.Delta.ToolCalls {
				if err := done.message.grow(fragment); err != nil {
					return done, err
				}
			}
		}
	}
	if err := lines.Err(); err != nil {
		return done, fmt.Errorf("read model stream: %w", err)
	}
	if done.finishReason == "" {
		return done, fmt.Errorf("read model stream: %w", io.ErrUnexpectedEOF)
	}
	return done, nil
}

// grow adds a fragment of a tool call: the first one has id and name, all of them a piece of the arguments.
func (m *message) grow(d toolCall) error {
	switch {
	case d.Index == len(m.ToolCalls):
		m.ToolCalls = append(m.ToolCalls, toolCall{Type: "function"})
	case d.Index < 0 || d.Index > len(m.ToolCalls):
		return fmt.Errorf("decode model stream: tool call %d follows %d others", d.Index, len(m.ToolCalls))
	}
	call := &m.ToolCalls[d.Index]
	call.ID = cmp.Or(d.ID, call.ID)
	call.Function.Name = cmp.Or(d.Function.Name, call.Function.Name)
	call.Function.Arguments += d.Function.Arguments
	return nil
}
