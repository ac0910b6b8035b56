package codeagent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/modelapi"
)

// The part of the OpenAI Chat Completions API that an agent needs.

type message struct {
	Role       string     `json:"role"`
	Content    string     `json:"content"`
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type toolCall struct {
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func newToolCall(id, name, arguments string) (c toolCall) {
	c.ID, c.Type, c.Function.Name, c.Function.Arguments = id, "function", name, arguments
	return c
}

type chatRequest struct {
	Model           string          `json:"model"`
	ReasoningEffort string          `json:"reasoning_effort,omitempty"`
	Messages        []message       `json:"messages"`
	Tools           []any           `json:"tools,omitempty"`
	Stream          bool            `json:"stream"`
	StreamOptions   map[string]bool `json:"stream_options"`
}

// completion is a complete answer of the model.
type completion struct {
	id, model, finishReason string
	message                 message
	usage                   *modelapi.Usage // nil if the server did not report any
}

// model answers requests: a [client], or the script. It records text and reasoning while they arrive, unless call is
// nil. After an error the completion has what had arrived; a [retryError] means that the answer has not begun.
type model interface {
	ask(ctx context.Context, req chatRequest, call *agenttrace.ModelCall) (completion, error)
}

// retryError is the error of a server that is busy, broken or unreachable. after is how long it wants to be left alone,
// 0 if it does not say.
type retryError struct {
	error
	after time.Duration
}

const maxAttempts = 4

// complete calls the model. It asks again after a [retryError], when it has called retrying.
func complete(
	ctx context.Context, m model, req chatRequest, call *agenttrace.ModelCall, retrying func(error, time.Duration),
) (completion, error) {
	wait := 250 * time.Millisecond
	for attempt := 1; ; attempt++ {
		done, err := m.ask(ctx, req, call)
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
func (c *client) ask(ctx context.Context, req chatRequest, call *agenttrace.ModelCall) (completion, error) {
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
		return readStream(resp.Body, call)
	}
	head, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // best effort: the status is sufficient
	_, message, _ := modelapi.ErrorOf(head)
	err = refusal(resp.StatusCode, cmp.Or(message, strings.TrimSpace(string(head))))
	if modelapi.Retryable(resp) {
		after, _ := modelapi.RetryAfter(resp.Header, time.Now())
		err = &retryError{err, after}
	}
	return completion{}, err
}

// refusal is the error of an answer with a status other than 200.
func refusal(status int, message string) error {
	return fmt.Errorf("model server answered %d %s: %s", status, http.StatusText(status), message)
}

// readStream builds an answer from server-sent events.
func readStream(r io.Reader, call *agenttrace.ModelCall) (completion, error) {
	const maxAnswer = 16 << 20 // bytes
	done := completion{message: message{Role: "assistant"}}
	streams := make(map[*modelapi.Block]*agenttrace.TextStream)
	answer := modelapi.Answer{Budget: maxAnswer, Sink: listener{call, &done.message.Content, streams}}
	decoder, stream := modelapi.Chat.Decode(&answer), modelapi.StreamOf("text/event-stream", maxAnswer)
	var err error
	for buf, n := make([]byte, 4096), 0; err == nil && answer.Err == nil; {
		n, err = r.Read(buf)
		stream.Feed(buf[:n], decoder.Event)
	}
	stream.End(decoder.Event)
	done.id, done.model, done.finishReason, done.usage = answer.ID, answer.Model, answer.Stop, answer.Usage
	for _, b := range answer.Blocks {
		if b.Kind == modelapi.Call {
			done.message.ToolCalls = append(done.message.ToolCalls, newToolCall(b.ID, b.Name, b.Content()))
		}
	}
	switch {
	case answer.Err != nil:
		return done, fmt.Errorf("model server broke off: %w", answer.Err)
	case err != io.EOF:
		return done, fmt.Errorf("read model stream: %w", err)
	case done.finishReason == "":
		return done, fmt.Errorf("read model stream: %w", io.ErrUnexpectedEOF)
	}
	return done, nil
}

// listener records an answer as it arrives, and keeps its text.
type listener struct {
	call    *agenttrace.ModelCall
	content *string
	streams map[*modelapi.Block]*agenttrace.TextStream
}

func (l listener) Text(b *modelapi.Block, text string) {
	switch {
	case l.streams[b] != nil:
	case b.Kind == modelapi.Reasoning:
		l.streams[b] = l.call.StreamReasoning()
	default:
		l.streams[b] = l.call.StreamText()
	}
	if l.streams[b].WriteString(text); b.Kind == modelapi.Text {
		*l.content += text
	}
}

func (l listener) Closed(b *modelapi.Block)           { l.streams[b].Close() }
func (listener) Output(string, json.RawMessage, bool) {}
func (listener) File(modelapi.File)                   {}
