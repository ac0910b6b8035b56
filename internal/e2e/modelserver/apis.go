package modelserver

import (
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"maps"
	"net/url"
)

type m = map[string]any

type list = []any

// APIs are those of the providers.
var APIs = []*API{
	{
		Name: "anthropic", Reasons: true, Errors: true, IDs: true, Stop: [2]string{"end_turn", "tool_use"},
		Request: func(s *Script, turn, step int, stream bool) (string, any) {
			return "/v1/messages", anthropicBody(s, turn, step, stream, m{"model": "claude-x"})
		},
		Answer: anthropicAnswer,
	},
	{
		Name: "chat", Reasons: true, IDs: true, Stop: [2]string{"stop", "tool_calls"},
		Request: chatBody, Answer: chatAnswer,
	},
	{
		Name: "responses", Reasons: true, IDs: true, Stop: [2]string{"completed", "completed"},
		Request: responsesBody(false), Answer: responsesAnswer,
	},
	{
		Name: "responses by previous_response_id", Reasons: true, IDs: true, Stop: [2]string{"completed", "completed"},
		Request: responsesBody(true), Answer: responsesAnswer,
	},
	{
		Name: "gemini", Reasons: true, Errors: true, Stop: [2]string{"STOP", "STOP"},
		Request: geminiBody, Answer: geminiAnswer(false),
	},
	{
		Name: "gemini with calls in one chunk", Reasons: true, Errors: true, Stop: [2]string{"STOP", "STOP"},
		Request: geminiBody, Answer: geminiAnswer(true),
	},
	{
		Name: "bedrock converse", Reasons: true, Errors: true, IDs: true, Stop: [2]string{"end_turn", "tool_use"},
		Request: converseBody, Answer: converseAnswer,
	},
	{
		Name: "bedrock invoke", Reasons: true, Errors: true, IDs: true, Stop: [2]string{"end_turn", "tool_use"},
		Request: func(s *Script, turn, step int, stream bool) (string, any) {
			path := "/model/" + url.PathEscape("arn:aws:bedrock:us-east-1:1:inference-profile/claude-x") + "/invoke"
			if stream {
				path += "-with-response-stream"
			}
			return path, anthropicBody(s, turn, step, false, m{"anthropic_version": "bedrock-2023-05-31"})
		},
		Answer: anthropicAnswer,
	},
}

// Named returns the API of the name.
func Named(name string) *API {
	for _, a := range APIs {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// each returns a list of elements as an API has them.
func each[T any](all []T, as func(T) any) list {
	out := list{}
	for _, e := range all {
		out = append(out, as(e))
	}
	return out
}

// blocks returns what a step consists of as an API has it. Without the function for reasoning, that is
// left out.
func (s *Step) blocks(reasoning, text func(string) any, call func(Call) any) list {
	out := list{}
	if s.Reasoning != "" && reasoning != nil {
		out = append(out, reasoning(s.Reasoning))
	}
	if s.Text != "" {
		out = append(out, text(s.Text))
	}
	return append(out, each(s.Calls, call)...)
}

// deltas returns the two halves of a text, as a stream has them.
func deltas(text string, as func(half string) m) (all []m) {
	for _, h := range halves(text) {
		all = append(all, as(h))
	}
	return all
}

// under returns an object with a text below a key.
func under(key string) func(text string) any { return func(text string) any { return m{key: text} } }

func stop(a [2]string, s *Step) string {
	if len(s.Calls) > 0 {
		return a[1]
	}
	return a[0]
}

func anthropicBody(s *Script, turn, step int, stream bool, more m) any {
	messages := list{}
	for _, t := range s.upTo(turn, step) {
		messages = append(messages, m{"role": "user", "content": t.User})
		for i, step := range t.Steps {
			results := each(step.Calls, func(c Call) any {
				return m{
					"type": "tool_result", "tool_use_id": c.ID, "is_error": c.Failed,
					"content": list{m{"type": "text", "text": c.Output}},
				}
			})
			messages = append(messages, m{"role": "assistant", "content": anthropicContent(&step)})
			if len(results) > 0 && i < len(t.Steps) {
				messages = append(messages, m{"role": "user", "content": results})
			}
		}
	}
	body := m{"system": list{m{"type": "text", "text": s.System}}, "max_tokens": 100, "messages": messages}
	body["tools"] = each(s.Tools, func(t Tool) any {
		return m{"name": t.Name, "description": t.Description, "input_schema": json.RawMessage(t.Schema)}
	})
	if stream {
		body["stream"] = true
	}
	maps.Copy(body, more)
	return body
}

func anthropicContent(s *Step) list {
	thinking := func(text string) any { return m{"type": "thinking", "thinking": text, "signature": "sig"} }
	return s.blocks(thinking, func(text string) any { return m{"type": "text", "text": text} }, func(c Call) any {
		return m{"type": "tool_use", "id": c.ID, "name": c.Name, "input": json.RawMessage(c.Input)}
	})
}

func anthropicAnswer(w *Writer, s *Step, id string) {
	reason := stop([2]string{"end_turn", "tool_use"}, s)
	head := m{"id": id, "type": "message", "role": "assistant", "model": "claude-x-1", "content": list{}}
	usage := m{"input_tokens": s.Input - 30, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 0,
		"output_tokens": 1}
	if !w.stream {
		usage["output_tokens"] = s.Output
		head["content"], head["stop_reason"], head["usage"] = anthropicContent(s), reason, usage
		w.body(head)
		return
	}
	send := func(kind string, v m) {
		v["type"] = kind
		if w.frames {
			w.event("chunk", m{"bytes": encode(v)})
			return
		}
		w.event(kind, v)
	}
	head["usage"] = usage
	send("message_start", m{"message": head})
	send("ping", m{})
	index := 0
	block := func(start m, deltas ...m) {
		send("content_block_start", m{"index": index, "content_block": start})
		for _, d := range deltas {
			send("content_block_delta", m{"index": index, "delta": d})
		}
		send("content_block_stop", m{"index": index})
		index++
	}
	if s.Reasoning != "" {
		block(m{"type": "thinking", "thinking": "", "signature": ""}, append(
			deltas(s.Reasoning, func(h string) m { return m{"type": "thinking_delta", "thinking": h} }),
			m{"type": "signature_delta", "signature": "sig"})...)
	}
	if s.Text != "" {
		block(m{"type": "text", "text": ""},
			deltas(s.Text, func(h string) m { return m{"type": "text_delta", "text": h} })...)
	}
	for _, c := range s.Calls {
		input := func(h string) m { return m{"type": "input_json_delta", "partial_json": h} }
		block(m{"type": "tool_use", "id": c.ID, "name": c.Name, "input": m{}},
			append([]m{input("")}, deltas(c.Input, input)...)...)
	}
	send("message_delta", m{"delta": m{"stop_reason": reason, "stop_sequence": nil},
		"usage": m{"output_tokens": s.Output}})
	send("message_stop", m{})
}

func chatBody(s *Script, turn, step int, stream bool) (string, any) {
	messages := list{m{"role": "system", "content": s.System}}
	for _, t := range s.upTo(turn, step) {
		messages = append(messages, m{"role": "user", "content": t.User})
		for _, step := range t.Steps {
			message := m{"role": "assistant", "content": step.Text}
			if len(step.Calls) > 0 {
				message["tool_calls"] = chatCalls(step.Calls)
			}
			messages = append(messages, message)
			for _, c := range step.Calls {
				messages = append(messages, m{"role": "tool", "tool_call_id": c.ID, "content": c.Output})
			}
		}
	}
	tools := each(s.Tools, func(t Tool) any {
		return m{"type": "function", "function": m{
			"name": t.Name, "description": t.Description, "parameters": json.RawMessage(t.Schema),
		}}
	})
	body := m{"model": "gpt-x", "messages": messages, "tools": tools}
	if stream {
		body["stream"], body["stream_options"] = true, m{"include_usage": true}
	}
	return "/v1/chat/completions", body
}

func chatCalls(calls []Call) list {
	return each(calls, func(c Call) any {
		return m{"id": c.ID, "type": "function", "function": m{"name": c.Name, "arguments": c.Input}}
	})
}

func chatAnswer(w *Writer, s *Step, id string) {
	reason := stop([2]string{"stop", "tool_calls"}, s)
	usage := m{
		"prompt_tokens": s.Input, "completion_tokens": s.Output, "total_tokens": s.Input + s.Output,
		"prompt_tokens_details": m{"cached_tokens": 30}, "completion_tokens_details": m{"reasoning_tokens": 2},
	}
	if !w.stream {
		message := m{"role": "assistant", "content": s.Text, "refusal": nil}
		if s.Reasoning != "" {
			message["reasoning_content"] = s.Reasoning
		}
		if len(s.Calls) > 0 {
			message["tool_calls"] = chatCalls(s.Calls)
		}
		w.body(m{
			"id": id, "object": "chat.completion", "created": 1, "model": "gpt-x-1", "usage": usage,
			"choices": list{m{"index": 0, "message": message, "finish_reason": reason}},
		})
		return
	}
	send := func(delta m, finish any) {
		w.event("", m{
			"id": id, "object": "chat.completion.chunk", "created": 1, "model": "gpt-x-1", "usage": nil,
			"choices": list{m{"index": 0, "delta": delta, "finish_reason": finish}},
		})
	}
	send(m{"role": "assistant", "content": ""}, nil)
	if s.Reasoning != "" {
		for _, h := range halves(s.Reasoning) {
			send(m{"reasoning_content": h}, nil)
		}
	}
	for _, h := range halves(s.Text) {
		send(m{"content": h}, nil)
	}
	for i, c := range s.Calls {
		send(m{"tool_calls": list{m{
			"index": i, "id": c.ID, "type": "function", "function": m{"name": c.Name, "arguments": ""},
		}}}, nil)
		for _, h := range halves(c.Input) {
			send(m{"tool_calls": list{m{"index": i, "function": m{"arguments": h}}}}, nil)
		}
	}
	send(m{}, reason)
	w.event("", m{
		"id": id, "object": "chat.completion.chunk", "created": 1, "model": "gpt-x-1", "choices": list{},
		"usage": usage,
	})
	w.done()
}

func responsesBody(previous bool) func(s *Script, turn, step int, stream bool) (string, any) {
	return func(s *Script, turn, step int, stream bool) (string, any) {
		input := list{}
		answers := 0
		for _, t := range s.upTo(turn, step) {
			input = append(input, m{"role": "user", "content": t.User})
			for _, step := range t.Steps {
				answers++
				if previous {
					input = list{}
				} else if step.Text != "" {
					input = append(input, m{"type": "message", "role": "assistant", "content": list{
						m{"type": "output_text", "text": step.Text},
					}})
				}
				for _, c := range step.Calls {
					if !previous {
						input = append(input, m{
							"type": "function_call", "call_id": c.ID, "name": c.Name, "arguments": c.Input,
						})
					}
				}
				input = append(input, each(step.Calls, func(c Call) any {
					return m{"type": "function_call_output", "call_id": c.ID, "output": c.Output}
				})...)
			}
		}
		tools := each(s.Tools, func(t Tool) any {
			return m{
				"type": "function", "name": t.Name, "description": t.Description,
				"parameters": json.RawMessage(t.Schema),
			}
		})
		body := m{"model": "gpt-x", "instructions": s.System, "input": input, "tools": tools}
		if previous && answers > 0 {
			body["previous_response_id"] = "resp_000" + string(rune('0'+answers-1))
		}
		if stream {
			body["stream"] = true
		}
		return "/v1/responses", body
	}
}

func responsesAnswer(w *Writer, s *Step, id string) {
	items := s.blocks(func(text string) any {
		return m{"type": "reasoning", "id": "rs_" + id, "summary": list{m{"type": "summary_text", "text": text}}}
	}, func(text string) any {
		return m{
			"type": "message", "id": "msg_" + id, "role": "assistant", "status": "completed",
			"content": list{m{"type": "output_text", "text": text, "annotations": list{}}},
		}
	}, func(c Call) any {
		return m{
			"type": "function_call", "id": "fc_" + c.ID, "call_id": c.ID, "name": c.Name, "arguments": c.Input,
			"status": "completed",
		}
	})
	response := m{
		"id": id, "object": "response", "created_at": 1, "status": "completed", "model": "gpt-x-1", "output": items,
		"error": nil, "incomplete_details": nil, "usage": m{
			"input_tokens": s.Input, "output_tokens": s.Output, "total_tokens": s.Input + s.Output,
			"input_tokens_details": m{"cached_tokens": 30}, "output_tokens_details": m{"reasoning_tokens": 2},
		},
	}
	if !w.stream {
		w.body(response)
		return
	}
	n := 0
	send := func(kind string, v m) {
		v["type"], v["sequence_number"] = kind, n
		n++
		w.event(kind, v)
	}
	send("response.created", m{"response": m{"id": id, "status": "in_progress", "output": list{}}})
	for i, item := range items {
		item := item.(m)
		send("response.output_item.added", m{"output_index": i, "item": m{
			"type": item["type"], "id": item["id"], "call_id": item["call_id"], "name": item["name"], "arguments": "",
		}})
		switch item["type"] {
		case "reasoning":
			for _, h := range halves(s.Reasoning) {
				send("response.reasoning_summary_text.delta", m{"output_index": i, "summary_index": 0, "delta": h})
			}
		case "message":
			for _, h := range halves(s.Text) {
				send("response.output_text.delta", m{"output_index": i, "content_index": 0, "delta": h})
			}
		case "function_call":
			for _, h := range halves(item["arguments"].(string)) {
				send("response.function_call_arguments.delta", m{"output_index": i, "delta": h})
			}
		}
		send("response.output_item.done", m{"output_index": i, "item": item})
	}
	send("response.completed", m{"response": response})
}

func geminiBody(s *Script, turn, step int, stream bool) (string, any) {
	contents := list{}
	for _, t := range s.upTo(turn, step) {
		contents = append(contents, m{"role": "user", "parts": list{m{"text": t.User}}})
		for _, step := range t.Steps {
			results := each(step.Calls, func(c Call) any {
				response := m{"output": c.Output}
				if c.Failed {
					response = m{"error": c.Output}
				}
				return m{"functionResponse": m{"name": c.Name, "response": response}}
			})
			contents = append(contents, m{"role": "model", "parts": step.blocks(nil, under("text"), geminiCall)})
			if len(results) > 0 {
				contents = append(contents, m{"role": "user", "parts": results})
			}
		}
	}
	functions := each(s.Tools, func(t Tool) any {
		return m{"name": t.Name, "description": t.Description, "parametersJsonSchema": json.RawMessage(t.Schema)}
	})
	path := "/v1beta/models/gemini-x:generateContent"
	if stream {
		path = "/v1beta/models/gemini-x:streamGenerateContent?alt=sse"
	}
	return path, m{
		"contents": contents, "systemInstruction": m{"parts": list{m{"text": s.System}}},
		"tools": list{m{"functionDeclarations": functions}},
	}
}

func geminiCall(c Call) any {
	return m{"functionCall": m{"name": c.Name, "args": json.RawMessage(c.Input)}}
}

// geminiAnswer returns a function that writes answers. A chunk has all tool calls, or one.
func geminiAnswer(callsAtOnce bool) func(w *Writer, s *Step, id string) {
	return func(w *Writer, s *Step, id string) { writeGemini(w, s, id, callsAtOnce) }
}

func writeGemini(w *Writer, s *Step, id string, callsAtOnce bool) {
	parts := list{}
	if s.Reasoning != "" {
		parts = append(parts, m{"text": s.Reasoning, "thought": true})
	}
	for _, h := range halves(s.Text) {
		if h != "" {
			parts = append(parts, m{"text": h})
		}
	}
	parts = append(parts, each(s.Calls, geminiCall)...)
	usage := m{
		"promptTokenCount": s.Input, "cachedContentTokenCount": 30, "candidatesTokenCount": s.Output - 2,
		"thoughtsTokenCount": 2, "totalTokenCount": s.Input + s.Output,
	}
	chunk := func(parts list, finish any) m {
		candidate := m{"index": 0, "content": m{"role": "model", "parts": parts}}
		if finish != nil {
			candidate["finishReason"] = finish
		}
		return m{"candidates": list{candidate}, "usageMetadata": usage, "modelVersion": "gemini-x-1", "responseId": id}
	}
	if !w.stream {
		w.body(chunk(parts, "STOP"))
		return
	}
	chunks := each(parts, func(p any) any { return list{p} })
	if n := len(parts) - len(s.Calls); callsAtOnce && len(s.Calls) > 0 {
		chunks = append(chunks[:n:n], list(parts[n:]))
	}
	for i, c := range chunks {
		var finish any
		if i == len(chunks)-1 {
			finish = "STOP"
		}
		w.event("", chunk(c.(list), finish))
	}
}

func converseBody(s *Script, turn, step int, stream bool) (string, any) {
	messages := list{}
	for _, t := range s.upTo(turn, step) {
		messages = append(messages, m{"role": "user", "content": list{m{"text": t.User}}})
		for _, step := range t.Steps {
			results := each(step.Calls, func(c Call) any {
				status := "success"
				if c.Failed {
					status = "error"
				}
				return m{"toolResult": m{"toolUseId": c.ID, "status": status, "content": list{m{"text": c.Output}}}}
			})
			messages = append(messages, m{
				"role": "assistant", "content": step.blocks(nil, under("text"), converseCall),
			})
			if len(results) > 0 {
				messages = append(messages, m{"role": "user", "content": results})
			}
		}
	}
	tools := each(s.Tools, func(t Tool) any {
		return m{"toolSpec": m{
			"name": t.Name, "description": t.Description, "inputSchema": m{"json": json.RawMessage(t.Schema)},
		}}
	})
	path := "/model/amazon.nova-x%3A0/converse"
	if stream {
		path += "-stream"
	}
	return path, m{"messages": messages, "system": list{m{"text": s.System}}, "toolConfig": m{"tools": tools}}
}

func converseCall(c Call) any {
	return m{"toolUse": m{"toolUseId": c.ID, "name": c.Name, "input": json.RawMessage(c.Input)}}
}

func converseAnswer(w *Writer, s *Step, _ string) {
	reason := stop([2]string{"end_turn", "tool_use"}, s)
	usage := m{
		"inputTokens": s.Input - 30, "outputTokens": s.Output, "totalTokens": s.Input + s.Output,
		"cacheReadInputTokens": 30, "cacheWriteInputTokens": 0,
	}
	if !w.stream {
		content := s.blocks(func(text string) any {
			return m{"reasoningContent": m{"reasoningText": m{"text": text, "signature": "sig"}}}
		}, under("text"), converseCall)
		w.body(m{
			"output": m{"message": m{"role": "assistant", "content": content}}, "stopReason": reason, "usage": usage,
			"metrics": m{"latencyMs": 1},
		})
		return
	}
	w.event("messageStart", m{"role": "assistant"})
	index := 0
	block := func(start any, deltas ...m) {
		if start != nil {
			w.event("contentBlockStart", m{"contentBlockIndex": index, "start": start})
		}
		for _, d := range deltas {
			w.event("contentBlockDelta", m{"contentBlockIndex": index, "delta": d})
		}
		w.event("contentBlockStop", m{"contentBlockIndex": index})
		index++
	}
	if s.Reasoning != "" {
		block(nil, deltas(s.Reasoning, func(h string) m { return m{"reasoningContent": m{"text": h}} })...)
	}
	if s.Text != "" {
		block(nil, deltas(s.Text, func(h string) m { return m{"text": h} })...)
	}
	for _, c := range s.Calls {
		block(m{"toolUse": m{"toolUseId": c.ID, "name": c.Name}},
			deltas(c.Input, func(h string) m { return m{"toolUse": m{"input": h}} })...)
	}
	w.event("messageStop", m{"stopReason": reason})
	w.event("metadata", m{"usage": usage, "metrics": m{"latencyMs": 1}})
}

// frame returns a message of AWS's binary event stream.
func frame(event string, payload []byte) []byte {
	var headers []byte
	for _, h := range [...][2]string{
		{":message-type", "event"}, {":event-type", event}, {":content-type", "application/json"},
	} {
		headers = append(headers, byte(len(h[0])))
		headers = append(headers, h[0]...)
		headers = append(headers, 7)
		headers = binary.BigEndian.AppendUint16(headers, uint16(len(h[1])))
		headers = append(headers, h[1]...)
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(16+len(headers)+len(payload)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(headers)))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	b = append(append(b, headers...), payload...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}
