package replay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Nobody asked for a stream, but some servers and proxies answer with one all the same.
// Its events are put together to the document that the same API sends otherwise.

// errCutStream is of a stream of which the end is missing.
var errCutStream = errors.New("the stream ended before the answer did")

// documents returns what reads a reply that is one JSON document, or a stream of server-sent events that join puts
// together to one. join returns with an error what there was before it. decode reads the document.
func documents[T any](join func([]json.RawMessage) (*T, error),
	decode func(*T) (*reply, error)) func(io.Reader) (*reply, error) {
	return func(r io.Reader) (*reply, error) { return readDocument(r, join, decode) }
}

func readDocument[T any](r io.Reader, join func([]json.RawMessage) (*T, error),
	decode func(*T) (*reply, error)) (*reply, error) {
	text, readErr := io.ReadAll(r)
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")))
	if !isStream(text) {
		switch {
		case readErr != nil:
			return nil, readErr
		case len(text) == 0:
			return nil, errors.New("the reply is empty")
		case !json.Valid(text):
			return nil, fmt.Errorf("the reply is neither JSON nor a stream of events: it begins with %q; "+
				"check that --endpoint is that of the API", head(text))
		}
		document := new(T)
		// An error may come with status 200, as some proxies have it.
		if err := cmp.Or(json.Unmarshal(text, document), streamError(text)); err != nil {
			return nil, err
		}
		return decode(document)
	}
	document, err := join(events(text))
	err = cmp.Or(readErr, err)
	if document == nil {
		return nil, cmp.Or(err, errCutStream)
	}
	out, decodeErr := decode(document)
	if decodeErr != nil {
		return nil, cmp.Or(err, decodeErr)
	}
	return out, err
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
func events(text []byte) []json.RawMessage {
	var all []json.RawMessage
	var data []string
	flush := func() {
		if joined := strings.Join(data, "\n"); joined != "" && joined != "[DONE]" {
			all = append(all, json.RawMessage(joined))
		}
		data = data[:0]
	}
	for line := range strings.Lines(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(text))) {
		line = strings.TrimSuffix(line, "\n")
		if value, ok := strings.CutPrefix(line, "data:"); ok {
			if json.Valid([]byte(strings.Join(data, "\n"))) {
				flush() // some servers leave out the empty line
			}
			data = append(data, strings.TrimPrefix(value, " "))
		} else if line == "" {
			flush()
		}
	}
	flush()
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

// decoded yields the events, until one reports an error or is none: then err has it.
func decoded[T any](events []json.RawMessage, err *error) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, event := range events {
			e := new(T)
			if *err = cmp.Or(streamError(event), json.Unmarshal(event, e)); *err != nil || !yield(e) {
				return
			}
		}
	}
}

// joinChat joins the chunks of Chat Completions.
func joinChat(all []json.RawMessage) (*chatCompletion, error) {
	var out chatCompletion
	var m chatMade
	var content strings.Builder
	var err error
	finish, seen := "", false
	for chunk := range decoded[chatCompletion](all, &err) {
		out.ID, out.Model = cmp.Or(chunk.ID, out.ID), cmp.Or(chunk.Model, out.Model)
		if len(chunk.Usage) > 0 && string(chunk.Usage) != "null" {
			out.Usage = chunk.Usage
		}
		for _, c := range chunk.Choices {
			if c.Index != 0 {
				continue
			}
			seen = true
			d := c.Delta
			if d.Content == nil {
				d.Content = c.Message.Content // some send the message as one event
			}
			content.WriteString(contentText(d.Content))
			m.Refusal, m.Reasoning = m.Refusal+d.Refusal, m.Reasoning+d.Reasoning
			m.ReasoningContent += d.ReasoningContent
			for _, piece := range slices.Concat(d.ToolCalls, c.Message.ToolCalls) {
				at := len(m.ToolCalls)
				if piece.Index != nil {
					at = slices.IndexFunc(m.ToolCalls, func(k chatPiece) bool {
						return k.Index != nil && *k.Index == *piece.Index
					})
				} else if piece.ID == "" {
					at--
				}
				if at < 0 || at == len(m.ToolCalls) {
					m.ToolCalls = append(m.ToolCalls, piece)
					continue
				}
				k := &m.ToolCalls[at]
				k.ID, k.Function.Name = cmp.Or(k.ID, piece.ID), k.Function.Name+piece.Function.Name
				k.Function.Arguments += piece.Function.Arguments
			}
			finish = cmp.Or(c.FinishReason, finish)
		}
	}
	if !seen {
		return nil, err
	}
	if err == nil && finish == "" {
		err = errCutStream
	}
	m.Content, _ = json.Marshal(content.String())
	out.Choices = []chatChoice{{FinishReason: finish, Message: m}}
	return &out, err
}

// joinResponses finds the response in the last event of Responses; where it is missing,
// the items that were whole before.
func joinResponses(all []json.RawMessage) (*responsesReply, error) {
	var out responsesReply
	var err error
	type event struct {
		Type     string          `json:"type"`
		Response *responsesReply `json:"response"`
		Item     responsesOutput `json:"item"`
	}
	for e := range decoded[event](all, &err) {
		switch e.Type {
		case "response.completed", "response.incomplete", "response.failed":
			return e.Response, nil
		case "response.output_item.done":
			out.Output = append(out.Output, e.Item)
		}
	}
	if out.Output == nil {
		return nil, err
	}
	return &out, cmp.Or(err, errCutStream)
}

// joinAnthropic joins the events of Messages.
func joinAnthropic(all []json.RawMessage) (*anthropicReply, error) {
	var message *anthropicReply
	usage := make(map[string]json.RawMessage)
	blocks := []anthropicBlock{}
	inputs := make(map[int]string) // of calls, by the places of their blocks
	var err error
	ended := false
	type event struct {
		Type    string          `json:"type"`
		Index   int             `json:"index"`
		Message *anthropicReply `json:"message"`
		Block   anthropicBlock  `json:"content_block"`
		Delta   struct {
			Text      string  `json:"text"`
			Thinking  string  `json:"thinking"`
			Signature string  `json:"signature"`
			Input     string  `json:"partial_json"`
			Stop      *string `json:"stop_reason"`
		} `json:"delta"`
		Usage map[string]json.RawMessage `json:"usage"`
	}
	for e := range decoded[event](all, &err) {
		maps.Copy(usage, e.Usage)
		switch e.Type {
		case "message_start":
			if message = e.Message; message != nil {
				_ = json.Unmarshal(message.Usage, &usage) // it is counted where there is one
			}
		case "content_block_start":
			blocks = append(blocks, e.Block)
		case "content_block_delta":
			if e.Index < 0 || e.Index >= len(blocks) {
				break
			}
			b := &blocks[e.Index]
			b.Text, b.Thinking = b.Text+e.Delta.Text, b.Thinking+e.Delta.Thinking
			b.Signature += e.Delta.Signature
			inputs[e.Index] += e.Delta.Input
		case "message_delta":
			if e.Delta.Stop != nil && message != nil {
				message.StopReason = *e.Delta.Stop
			}
		case "message_stop":
			ended = true
		}
	}
	if message == nil {
		return nil, err
	}
	for i, input := range inputs {
		if input != "" {
			blocks[i].Input = argumentsOf(input)
		}
	}
	message.Content = blocks
	message.Usage, _ = json.Marshal(usage)
	if err == nil && !ended {
		err = errCutStream
	}
	return message, err
}

// contentText is the text of a message's content: a text, or a list of parts that have
// one.
func contentText(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		parts = []json.RawMessage{raw}
	}
	for _, part := range parts {
		var p struct {
			Text    json.RawMessage `json:"text"`
			Refusal string          `json:"refusal"`
		}
		var plain string
		switch {
		case json.Unmarshal(part, &plain) == nil:
			s += plain
		case json.Unmarshal(part, &p) == nil:
			var inner struct {
				Value string `json:"value"`
			}
			if json.Unmarshal(p.Text, &plain) != nil && json.Unmarshal(p.Text, &inner) == nil {
				plain = inner.Value
			}
			s += plain + p.Refusal
		}
	}
	return s
}
