package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/document"
)

// TestRequestProperties: whatever a session holds, the requests of its turns are such as the providers take.
func TestRequestProperties(t *testing.T) {
	turns := 0
	for seed := range uint64(330) {
		s := codectest.Generate(rand.New(rand.NewPCG(seed, 3)), int(seed%16))
		in := document.Input{Transcript: s.Transcript, Decisions: s.Decisions, Blobs: s.Blobs}
		for n := range len(document.Build(in).Turns) {
			b, err := New(document.Build(in), in.Transcript, n+1)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			turns++
			if !t.Run(fmt.Sprintf("%d-%d", seed, n+1), func(t *testing.T) { checkRequests(t, b) }) {
				return
			}
		}
	}
	if turns < 500 {
		t.Errorf("only %d turns were made", turns)
	}
}

// checkRequests holds the requests of all formats to what providers demand.
func checkRequests(t *testing.T, b *Bundle) {
	t.Helper()
	for _, f := range Formats() {
		var first, second bytes.Buffer
		if err := b.Encode(&first, f.Name); err != nil {
			t.Fatalf("encode %s: %v", f.Name, err)
		}
		if err := b.Encode(&second, f.Name); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("%s is written in two ways, %v", f.Name, err)
		}
		if !json.Valid(first.Bytes()) {
			t.Fatalf("%s is no JSON: %s", f.Name, &first)
		}
	}
	var bundle bytes.Buffer
	if err := b.Encode(&bundle, BundleName); err != nil || !json.Valid(bundle.Bytes()) {
		t.Errorf("the bundle is no JSON: %v", err)
	}
	checkWire(t, b, nil)
	for _, m := range aiRequestOf(b, nil).(aiRequest).Messages {
		if m.ID == "" || m.Parts == nil {
			t.Errorf("ai-sdk: message %+v has no id or no parts", m)
		}
	}
}

// What the checks read of requests.
type (
	chatRequest struct {
		Messages []struct {
			Role, Content any
			ToolCallID    string `json:"tool_call_id"`
			ToolCalls     []struct {
				ID       string
				Function struct{ Arguments string }
			} `json:"tool_calls"`
		}
	}
	responsesRequest struct {
		Input []struct {
			Type, Role        string
			CallID            string `json:"call_id"`
			Arguments, Output *string
			Content           []struct{ Type string }
		}
	}
	anthropicRequest struct {
		MaxTokens int `json:"max_tokens"`
		Messages  []struct {
			Role    string
			Content []struct {
				Type, ID, Name string
				ToolUseID      string `json:"tool_use_id"`
				Input          json.RawMessage
			}
		}
	}
)

// checkWire checks the requests to providers.
func checkWire(t *testing.T, b *Bundle, since []entry) {
	t.Helper()
	checkChat(t, decoded[chatRequest](t, chatRequestOf(b, since)))
	checkResponses(t, decoded[responsesRequest](t, responsesRequestOf(b, since)))
	checkAnthropic(t, decoded[anthropicRequest](t, anthropicRequestOf(b, since)))
}

func decoded[T any](t *testing.T, request any) (r T) {
	t.Helper()
	raw, err := json.Marshal(request)
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	testscale.Must(t, err)
	return r
}

// checkChat: each call is answered by the messages right after it, in order, once.
func checkChat(t *testing.T, r chatRequest) {
	t.Helper()
	var waiting []string
	seen := map[string]bool{}
	for i, m := range r.Messages {
		if m.Role == "tool" {
			if len(waiting) == 0 || waiting[0] != m.ToolCallID {
				t.Fatalf("openai-chat: message %d answers %q, and %q wait", i, m.ToolCallID, waiting)
			}
			waiting = waiting[1:]
			continue
		}
		if len(waiting) > 0 {
			t.Fatalf("openai-chat: message %d comes before the results of %q", i, waiting)
		}
		if m.Content == nil && m.ToolCalls == nil {
			t.Errorf("openai-chat: message %d is empty", i)
		}
		for _, c := range m.ToolCalls {
			if c.ID == "" || seen[c.ID] || !json.Valid([]byte(c.Function.Arguments)) {
				t.Errorf("openai-chat: call %+v has no id of its own, or no JSON", c)
			}
			seen[c.ID] = true
			waiting = append(waiting, c.ID)
		}
	}
	if len(waiting) > 0 {
		t.Errorf("openai-chat: the calls %q have no result", waiting)
	}
}

// checkResponses: each call has one result, which comes before anybody else speaks.
func checkResponses(t *testing.T, r responsesRequest) {
	t.Helper()
	waiting, seen := map[string]bool{}, map[string]bool{}
	for i, item := range r.Input {
		switch item.Type {
		case "function_call":
			if item.CallID == "" || seen[item.CallID] || !json.Valid([]byte(*item.Arguments)) {
				t.Errorf("openai-responses: call %+v has no id of its own, or no JSON", item)
			}
			waiting[item.CallID], seen[item.CallID] = true, true
		case "function_call_output":
			if !waiting[item.CallID] || item.Output == nil {
				t.Errorf("openai-responses: item %d is a result of %q, which does not wait for one", i, item.CallID)
			}
			delete(waiting, item.CallID)
		default:
			if len(waiting) > 0 && item.Role != session.RoleAssistant {
				t.Errorf("openai-responses: item %d comes before the results of %v", i, waiting)
			}
			for _, c := range item.Content {
				if assistant := item.Role == session.RoleAssistant; assistant != (c.Type == "output_text") {
					t.Errorf("openai-responses: %s has %s", item.Role, c.Type)
				}
			}
		}
	}
	if len(waiting) > 0 {
		t.Errorf("openai-responses: the calls %v have no result", waiting)
	}
}

// checkAnthropic: roles alternate and begin with the user; the calls of a message
// stand at its end or before thinking, and the next message begins with their results.
func checkAnthropic(t *testing.T, r anthropicRequest) {
	t.Helper()
	if r.MaxTokens < 1 {
		t.Errorf("anthropic: max_tokens is %d", r.MaxTokens)
	}
	var waiting []string
	seen := map[string]bool{}
	for i, m := range r.Messages {
		want := session.RoleUser
		if i%2 == 1 {
			want = session.RoleAssistant
		}
		if m.Role != want || len(m.Content) == 0 {
			t.Fatalf("anthropic: message %d is of %s with %d blocks, want of %s", i, m.Role, len(m.Content), want)
		}
		calls := false
		for k, c := range m.Content {
			if len(waiting) > 0 && (c.Type != "tool_result" || c.ToolUseID != waiting[0]) {
				t.Fatalf("anthropic: block %d of message %d is %s %s, and %q wait", k, i, c.Type, c.ToolUseID, waiting)
			}
			switch c.Type {
			case "tool_result":
				if len(waiting) == 0 {
					t.Fatalf("anthropic: block %d of message %d is a result that nothing waits for", k, i)
				}
				waiting = waiting[1:]
			case "tool_use":
				if seen[c.ID] || c.ID == "" || anthropicID(c.ID) != c.ID || len(c.Input) == 0 || c.Input[0] != '{' {
					t.Errorf("anthropic: call %s of %s has no id of its own, or no object: %s", c.ID, c.Name, c.Input)
				}
				seen[c.ID], calls = true, true
			case "thinking", "redacted_thinking":
				calls = false
			case "text":
				if calls {
					t.Errorf("anthropic: text follows a call in message %d", i)
				}
			}
		}
		for _, c := range m.Content {
			if c.Type == "tool_use" {
				waiting = append(waiting, c.ID)
			}
		}
	}
	if len(waiting) > 0 {
		t.Errorf("anthropic: the calls %q have no result", waiting)
	}
}
