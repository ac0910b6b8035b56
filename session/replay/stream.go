package replay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agenttrace/agenttrace/internal/modelapi"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/spans"
)

// Nobody asked for a stream, but some servers and proxies answer with one all the same.

// errCutStream is of a stream of which the end is missing.
var errCutStream = errors.New("the stream ended before the answer did")

// decodes returns what reads a reply that is one JSON document with the member, or a stream of server-sent events of
// the same API. It is given the error that reading ended with. With an error it returns what there was before it.
func decodes(api *modelapi.API, member string) func([]byte, error) (*reply, error) {
	return func(text []byte, err error) (*reply, error) {
		text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")))
		a := &modelapi.Answer{Budget: len(text)}
		decoder := api.Decode(a)
		stream := isStream(text)
		var members map[string]json.RawMessage
		switch {
		case stream:
			err = cmp.Or(decodeEvents(decoder, a, events(text)), err)
			if !a.Ended {
				err = cmp.Or(err, errCutStream)
			}
		case err != nil:
			return nil, err
		case len(text) == 0:
			return nil, errors.New("the reply is empty")
		case !json.Valid(text):
			return nil, fmt.Errorf("the reply is neither JSON nor a stream of events: it begins with %q; "+
				"check that --endpoint is that of the API", head(text))
		default:
			if err := json.Unmarshal(text, &members); err != nil {
				return nil, err
			}
			decoder.Body(text)
			var list []json.RawMessage
			has := json.Unmarshal(members[member], &list) == nil && list != nil && (len(list) > 0 || api != modelapi.Chat)
			switch {
			case a.Err != nil: // with status 200, as some proxies have it
				return nil, a.Err
			case !has:
				return nil, errors.New("it has no " + member)
			}
		}
		out := replyOf(a, api)
		err = cmp.Or(err, a.Err)
		empty := out.empty()
		if stream && empty != nil {
			return nil, cmp.Or(err, empty)
		}
		return out, cmp.Or(err, empty)
	}
}

// decodeEvents decodes the events, until one reports an error or is none.
func decodeEvents(decoder modelapi.Decoder, a *modelapi.Answer, events []json.RawMessage) error {
	for _, event := range events {
		if !json.Valid(event) {
			return fmt.Errorf("an event of the stream is not JSON: it begins with %q", head(event))
		}
		if decoder.Event("", event); a.Err != nil {
			return a.Err
		}
	}
	return nil
}

// replyOf returns what an answer came to. What the provider executed is not part of it.
func replyOf(a *modelapi.Answer, api *modelapi.API) *reply {
	out := &reply{stop: a.Stop, id: a.ID, model: a.Model}
	called := false
	for i, b := range a.Blocks {
		text := b.Content()
		switch {
		case b.Kind == modelapi.Call:
			if !b.Server && (!b.Open || text != "") {
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

// head is how a text begins, for an error.
func head(text []byte) string {
	const long = 60
	r := []rune(string(text[:min(len(text), 4*long)]))
	return string(r[:min(len(r), long)])
}

func isStream(text []byte) bool {
	for _, field := range []string{"data:", "event:", ":", "id:", "retry:"} {
		if bytes.HasPrefix(text, []byte(field)) {
			return true
		}
	}
	return false
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
