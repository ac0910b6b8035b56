package replay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/agenttrace/agenttrace/internal/modelapi"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
)

// Nobody asked for a stream, but some servers and proxies answer with one all the same.

// errCutStream is of a stream of which the end is missing.
var errCutStream = errors.New("the stream ended before the answer did")

// decodes returns what reads a reply that is one JSON document with the member, or a stream of server-sent events of
// the same API. With an error it returns what there was before it.
func decodes(api *modelapi.API, member string) func(io.Reader) (*reply, error) {
	return func(r io.Reader) (*reply, error) {
		text, readErr := io.ReadAll(r)
		text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")))
		s := &sink{texts: make(map[*modelapi.Block]*strings.Builder)}
		s.Sink, s.Budget = s, len(text)
		decoder := api.Decode(&s.Answer)
		if isStream(text) {
			err := cmp.Or(decodeEvents(decoder, events(text)), readErr)
			if !s.Ended {
				err = cmp.Or(err, errCutStream)
			}
			out := s.reply(api)
			err = cmp.Or(err, s.Err)
			if empty := out.empty(); empty != nil {
				return nil, cmp.Or(err, empty)
			}
			return out, err
		}
		var members map[string]json.RawMessage
		switch {
		case readErr != nil:
			return nil, readErr
		case len(text) == 0:
			return nil, errors.New("the reply is empty")
		case !json.Valid(text):
			return nil, fmt.Errorf("the reply is neither JSON nor a stream of events: it begins with %q; "+
				"check that --endpoint is that of the API", head(text))
		}
		// An error may come with status 200, as some proxies have it.
		if err := cmp.Or(json.Unmarshal(text, &members), streamError(text)); err != nil {
			return nil, err
		}
		var list []json.RawMessage
		if json.Unmarshal(members[member], &list) != nil || list == nil || len(list) == 0 && api == modelapi.Chat {
			return nil, errors.New("it has no " + member)
		}
		decoder.Body(text)
		if s.Err != nil {
			return nil, s.Err
		}
		out := s.reply(api)
		return out, out.empty()
	}
}

// decodeEvents decodes the events, until one reports an error or is none.
func decodeEvents(decoder modelapi.Decoder, events []json.RawMessage) error {
	for _, event := range events {
		if err := streamError(event); err != nil {
			return err
		}
		var e struct {
			Type string `json:"type"`
		}
		_ = json.Unmarshal(event, &e)             // an event of Chat Completions has none
		if !strings.HasSuffix(e.Type, ".delta") { // of Responses, of which the items that follow are whole
			decoder.Event("", event)
		}
	}
	return nil
}

// sink keeps an answer.
type sink struct {
	modelapi.Answer
	texts map[*modelapi.Block]*strings.Builder
}

// Text implements [modelapi.Sink], as do the methods that follow. What the provider executed is not part of a reply.
func (s *sink) Text(b *modelapi.Block, text string) {
	if s.texts[b] == nil {
		s.texts[b] = new(strings.Builder)
	}
	s.texts[b].WriteString(text)
}

func (s *sink) Closed(*modelapi.Block)               {}
func (s *sink) Output(string, json.RawMessage, bool) {}
func (s *sink) File(modelapi.File)                   {}

// reply returns what the answer came to.
func (s *sink) reply(api *modelapi.API) *reply {
	out := &reply{stop: s.Stop, id: s.ID, model: s.Model}
	called := false
	for i, b := range s.Blocks {
		text := ""
		if written := s.texts[b]; written != nil {
			text = written.String()
		}
		switch {
		case b.Kind == modelapi.Call:
			if input := b.PartialInput(); !b.Server && (!b.Open || input != "") {
				called = true
				out.blocks = append(out.blocks, block{kind: callBlock, id: b.ID, name: b.Name, data: b.Input()})
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
			s.Blocks[i-1].Kind == modelapi.Reasoning && s.Blocks[i-1].SameItem(b):
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
	out.count(s.Usage)
	return out
}

// count sets the usage, if a provider sent any.
func (r *reply) count(u *modelapi.Usage) {
	if u == nil || u.Input+u.Output+u.Reasoning+u.CacheRead+u.CacheWrite == 0 {
		return
	}
	r.usage = &session.Usage{
		Input: u.Input, Output: u.Output, Reasoning: u.Reasoning, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite,
	}
	if r.usageRaw, r.basis = u.Raw, semconv.BasisExclusive; u.Basis == modelapi.Inclusive {
		r.usage = disjoint(u.Input, u.CacheRead, u.CacheWrite, u.Output, u.Reasoning)
		r.basis = semconv.BasisInclusive
	}
}

// head is how a text begins, for an error.
func head(text []byte) string {
	const long = 60
	r := []rune(string(text[:min(len(text), 4*long)]))
	return string(r[:min(len(r), long)])
}

// isStream reports whether a reply is server-sent events.
func isStream(text []byte) bool {
	for _, field := range []string{"data:", "event:", ":", "id:", "retry:"} {
		if bytes.HasPrefix(text, []byte(field)) {
			return true
		}
	}
	return false
}

// events are the data of the events of a stream, without the mark of its end.
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

// streamError is the error that an event reports, nil where it reports none.
func streamError(event json.RawMessage) error {
	var e struct {
		Type    string          `json:"type"`
		Message json.RawMessage `json:"message"` // that of an error is a text
		Error   json.RawMessage `json:"error"`
	}
	if json.Unmarshal(event, &e) != nil {
		return fmt.Errorf("an event of the stream is not JSON: it begins with %q", head(event))
	}
	switch {
	case len(e.Error) > 0 && string(e.Error) != "null":
		return errors.New(messageOf(e.Error))
	case e.Type == "error":
		return errors.New(cmp.Or(plainText(e.Message), "the server reports an error"))
	}
	return nil
}

// messageOf is the message of an error, which may be a text.
func messageOf(raw json.RawMessage) string {
	var e struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(raw, &e)
	return cmp.Or(e.Message, plainText(raw))
}
