package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tidwall/gjson"

	"github.com/agenttrace/agenttrace/internal/modelapi"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/spans"
)

// decodes returns what reads a reply that is one JSON document with the member, which has a list. It is given the error
// that reading ended with.
func decodes(api *modelapi.API, member string) func([]byte, error) (*reply, error) {
	return func(text []byte, err error) (*reply, error) {
		text = bytes.TrimSpace(text)
		switch {
		case err != nil:
			return nil, err
		case len(text) == 0:
			return nil, errors.New("the reply is empty")
		case !json.Valid(text):
			return nil, fmt.Errorf("the reply is not JSON: it begins with %q; check that --endpoint is that of the API",
				document.Head(string(text), 60))
		}
		a := &modelapi.Answer{Budget: len(text)}
		api.Decode(a).Body(text)
		list := gjson.GetBytes(text, member)
		switch {
		case a.Err != nil: // with status 200, as some proxies have it
			return nil, a.Err
		case !list.IsArray() || api == modelapi.Chat && len(list.Array()) == 0:
			return nil, errors.New("it has no " + member)
		}
		out := replyOf(a, api)
		return out, out.empty()
	}
}

// replyOf returns what an answer came to. What the provider executed is not part of it.
func replyOf(a *modelapi.Answer, api *modelapi.API) *reply {
	out := &reply{stop: a.Stop, id: a.ID, model: a.Model}
	called := false
	for i, b := range a.Blocks {
		text := b.Content()
		switch {
		case b.Kind == modelapi.Call:
			if !b.Server {
				called = true
				out.blocks = append(out.blocks, block{kind: callBlock, id: b.ID, name: b.Name, input: b.Input()})
			}
		case b.Kind == modelapi.Text && text != "":
			out.blocks = append(out.blocks, block{kind: textBlock, text: text})
		case b.Kind == modelapi.Reasoning && api == modelapi.Anthropic:
			meta, _ := json.Marshal(struct {
				Signature    string `json:"signature,omitempty"`
				RedactedData string `json:"redactedData,omitempty"`
			}{b.Signature, b.Redacted}) // strings always encode
			out.blocks = append(out.blocks, block{kind: reasoningBlock, text: text,
				meta: map[string]json.RawMessage{"anthropic": meta}})
		case b.Kind == modelapi.Reasoning && i > 0 && api == modelapi.Responses && len(out.blocks) > 0 &&
			a.Blocks[i-1].Kind == modelapi.Reasoning && a.Blocks[i-1].SameItem(b):
			out.blocks[len(out.blocks)-1].text += text
		case b.Kind == modelapi.Reasoning && text != "":
			out.blocks = append(out.blocks, block{kind: reasoningBlock, text: text})
		}
	}
	if api == modelapi.Responses && (out.stop == "" || out.stop == "completed") { // which has no other word for it
		if out.stop = "stop"; called {
			out.stop = "tool-calls"
		}
	}
	out.count(a.Usage)
	return out
}

func (r *reply) count(u *modelapi.Usage) {
	if u == nil || u.Input+u.Output+u.Reasoning+u.CacheRead+u.CacheWrite == 0 {
		return
	}
	tokens := spans.Tokens{
		Input: u.Input, Output: u.Output, Reasoning: u.Reasoning, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite,
	}
	if r.usageRaw, r.basis = u.Raw, semconv.BasisExclusive; u.Basis == modelapi.Inclusive {
		tokens, r.basis = tokens.Disjoint(), semconv.BasisInclusive
	}
	r.usage = (*session.Usage)(&tokens)
}

func events(text []byte) (all []json.RawMessage) {
	s := modelapi.StreamOf("text/event-stream", len(text))
	emit := func(_ string, data []byte) {
		if len(data) > 0 && string(data) != "[DONE]" {
			all = append(all, bytes.Clone(data))
		}
	}
	s.Feed(text, emit)
	s.End(emit)
	return all
}
