package codeagent

import (
	"context"
	_ "embed" // of the script
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/internal/modelapi"
)

//go:embed script.json
var scriptJSON []byte

// conversation is what the user and the model say.
type conversation struct {
	Prompts []string
	Scenes  map[string]scene
}

// script is the conversation of the demo.
var script = sync.OnceValue(func() (c conversation) {
	if err := json.Unmarshal(scriptJSON, &c); err != nil {
		panic(err) // a mistake in the script
	}
	return c
})

// scene is what the model answers to a prompt.
type scene struct {
	Prompt string
	// Limited reports that the first request is refused once, as one too many.
	Limited bool
	Steps   []reply
}

// reply is the output of the model: reasoning, text and tool calls.
type reply struct {
	// Expect has a pattern for the output of each call of the step before. Without a match, the step did
	// not happen as the script expects it: Otherwise is what should have happened.
	Expect    []string
	Otherwise string

	Reasoning, Text string
	Calls           []struct {
		Name string
		Args map[string]any
	}
}

func (r reply) toolCalls(key string) (calls []toolCall) {
	for i, call := range r.Calls {
		arguments, _ := json.Marshal(call.Args) // never fails for what was JSON
		calls = append(calls, newToolCall(fmt.Sprintf("call_%s_%d", key, i), call.Name, string(arguments)))
	}
	return calls
}

// demoPrompts are the user messages of the demo. Those that begin with a slash are commands for the agent.
func demoPrompts(model string) (prompts []string) {
	for _, p := range script().Prompts {
		if model == defaultModel || !strings.HasPrefix(p, "/model") {
			prompts = append(prompts, p)
		}
	}
	return prompts
}

// patched is a line of the patch that repairs the project.
var patched = lazy.Regexp(`(?m)^\+.*len\(\[\]rune\(word\)\)`)

// replyTo finds the scene of a conversation and the step in it, which key identifies. It reads the output of the
// tools before it continues. The error is why the script cannot go on.
func replyTo(messages []message) (name, key string, r reply, err error) {
	name = "other"
	step := 0 // answers since the last user message
	changed := false
	for _, m := range messages {
		changed = changed || patched().MatchString(m.Content)
		switch m.Role {
		case "assistant":
			step++
		case "user":
			name, step = "other", 0
			for n, s := range script().Scenes {
				if s.Prompt == m.Content {
					name = n
				}
			}
		}
	}
	switch system := messages[0].Content; {
	case system == summaryPrompt && changed:
		name = "summary of the change"
	case system == summaryPrompt:
		name = "summary"
	case system == reviewPrompt:
		name = "review"
	}
	steps := script().Scenes[name].Steps
	key = fmt.Sprintf("%s_%d", name, step)
	if step >= len(steps) {
		return name, key, script().Scenes["other"].Steps[0], nil
	}
	r = steps[step]
	for i, pattern := range r.Expect {
		result := messages[len(messages)-len(steps[step-1].Calls)+i].Content
		if !regexp.MustCompile(pattern).MatchString(result) {
			got := strings.Join(strings.Fields(result), " ")
			return name, key, r, refusal(http.StatusUnprocessableEntity,
				fmt.Sprintf("the script of the demo cannot go on: %s: got %.300q", r.Otherwise, got))
		}
	}
	return name, key, r, nil
}

// scriptedModel answers from the script in the place of a client.
type scriptedModel struct {
	// pace is the delay per few words.
	pace time.Duration
	// limit has the only 429 reported once.
	limit sync.Once

	mu    sync.Mutex
	asked map[string]int64 // tokens of the last prompt, by model
}

// ask implements [model].
func (m *scriptedModel) ask(ctx context.Context, req chatRequest, call *agenttrace.ModelCall) (completion, error) {
	name, key, r, err := replyTo(req.Messages)
	if script().Scenes[name].Limited {
		m.limit.Do(func() {
			err = &retryError{refusal(http.StatusTooManyRequests, "Rate limit reached."), 20 * time.Millisecond}
		})
	}
	if err != nil {
		return completion{}, err
	}
	done := completion{id: "chatcmpl-" + key, model: req.Model, finishReason: "stop", usage: m.count(req, r)}
	done.message = message{Role: "assistant", Content: r.Text, ToolCalls: r.toolCalls(key)}
	if len(r.Calls) > 0 {
		done.finishReason = "tool_calls"
	}
	for i, text := range []string{r.Reasoning, r.Text} {
		var stream *agenttrace.TextStream
		for k, piece := range pieces().FindAllString(text, -1) {
			if k == 0 {
				stream = []func() *agenttrace.TextStream{call.StreamReasoning, call.StreamText}[i]()
			}
			stream.WriteString(piece)
			if err := pause(ctx, m.pace); err != nil {
				return completion{}, err
			}
		}
		stream.Close()
	}
	return done, nil
}

// pieces are pieces of a few words.
var pieces = lazy.Regexp(`(?s).{16,}? |.+$`)

// count returns the usage that a provider would report: four bytes of requests and answers are a token, and as much as
// the model was asked last is cached, in blocks of 128 tokens.
func (m *scriptedModel) count(req chatRequest, r reply) *modelapi.Usage {
	tokens := func(v any) int64 {
		b, _ := json.Marshal(v) // never fails for texts
		return int64(len(b)+3) / 4
	}
	u := modelapi.Usage{Input: tokens(req.Tools) + tokens(req.Messages), Reasoning: tokens(r.Reasoning)}
	u.Output = u.Reasoning + tokens(r.Text) + tokens(r.Calls)
	m.mu.Lock()
	defer m.mu.Unlock()
	u.CacheRead = min(u.Input, m.asked[req.Model]) / 128 * 128
	m.asked[req.Model] = u.Input
	u.Raw = fmt.Appendf(nil, `{"prompt_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d},`+
		`"completion_tokens_details":{"reasoning_tokens":%d}}`, u.Input, u.Output, u.CacheRead, u.Reasoning)
	return &u
}
