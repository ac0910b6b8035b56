package modelhttp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"

	"github.com/agenttrace/agenttrace/agenttrace"
)

// geminiAPI is generateContent of the Gemini API and of Vertex AI.
var geminiAPI = api{request: geminiRequest, answer: func(a *answer) decoder { return &geminiAnswer{a: a} }}

type geminiPart struct {
	Text    string `json:"text"`
	Thought bool   `json:"thought"`
	Call    *struct {
		ID      string          `json:"id"`
		Name    string          `json:"name"`
		Args    json.RawMessage `json:"args"`
		Partial []geminiArg     `json:"partialArgs"`
		More    bool            `json:"willContinue"`
	} `json:"functionCall"`
	Response *struct {
		ID       string          `json:"id"`
		Name     string          `json:"name"`
		Response json.RawMessage `json:"response"`
		Parts    json.RawMessage `json:"parts"` // files
	} `json:"functionResponse"`
	Inline *struct {
		MimeType    string `json:"mimeType"`
		Data        string `json:"data"`
		DisplayName string `json:"displayName"`
	} `json:"inlineData"`
	File *struct {
		MimeType    string `json:"mimeType"`
		FileURI     string `json:"fileUri"`
		DisplayName string `json:"displayName"`
	} `json:"fileData"`
	Code *struct {
		Language string `json:"language"`
		Code     string `json:"code"`
	} `json:"executableCode"`
	Result *struct {
		Outcome string `json:"outcome"`
		Output  string `json:"output"`
	} `json:"codeExecutionResult"`
	// The call and the response of a tool that Google executes.
	ServerCall *struct {
		ID   string          `json:"id"`
		Type string          `json:"toolType"`
		Args json.RawMessage `json:"args"`
	} `json:"toolCall"`
	ServerResponse *struct {
		ID       string          `json:"id"`
		Response json.RawMessage `json:"response"`
	} `json:"toolResponse"`
}

// geminiArg is a piece of the arguments of a call: the value, or the next part of the text,
// at a path such as $.city.
type geminiArg struct {
	Path   string   `json:"jsonPath"`
	Text   *string  `json:"stringValue"`
	Number *float64 `json:"numberValue"`
	Bool   *bool    `json:"boolValue"`
}

type geminiContent struct {
	Role  string       `json:"role"`
	Parts []geminiPart `json:"parts"`
}

func (c *geminiContent) text() string {
	var texts []string
	for i := range c.Parts {
		if c.Parts[i].Text != "" {
			texts = append(texts, c.Parts[i].Text)
		}
	}
	return strings.Join(texts, "\n\n")
}

func geminiRequest(t *target, body []byte) *request {
	var in struct {
		Contents     []geminiContent `json:"contents"`
		System       geminiContent   `json:"systemInstruction"`
		SystemSnake  geminiContent   `json:"system_instruction"`
		Continuation string          `json:"continuationToken"`
		Tools        []struct {
			Functions []struct {
				Name        string          `json:"name"`
				Description string          `json:"description"`
				Parameters  json.RawMessage `json:"parameters"`
				Schema      json.RawMessage `json:"parametersJsonSchema"`
			} `json:"functionDeclarations"`
		} `json:"tools"`
		Config struct {
			Temperature  *float64        `json:"temperature"`
			Limit        json.RawMessage `json:"maxOutputTokens"`
			Schema       json.RawMessage `json:"responseSchema"`
			JSONSchema   json.RawMessage `json:"responseJsonSchema"`
			Continuation string          `json:"continuationToken"`
			Thinking     struct {
				Level string `json:"thinkingLevel"`
			} `json:"thinkingConfig"`
		} `json:"generationConfig"`
	}
	if unmarshal(body, &in) != nil || len(in.Contents) == 0 {
		return nil
	}
	r := &request{
		model:       agenttrace.Model{Variant: strings.ToLower(in.Config.Thinking.Level)},
		temperature: in.Config.Temperature, system: cmp.Or(in.System.text(), in.SystemSnake.text()),
		continuation: cmp.Or(in.Continuation, in.Config.Continuation), form: in.Config.Schema,
	}
	if r.setLimit(in.Config.Limit); len(r.form) == 0 {
		r.form = in.Config.JSONSchema
	}
	for _, tool := range in.Tools {
		for _, f := range tool.Functions {
			schema := f.Parameters
			if len(schema) == 0 {
				schema = f.Schema
			}
			r.tools = append(r.tools, agenttrace.Tool{Name: f.Name, Description: f.Description, Parameters: schema})
		}
	}
	for i := range in.Contents {
		c := &in.Contents[i]
		r.next()
		from := user
		if c.Role == "model" {
			from = assistant
		}
		for k := range c.Parts {
			geminiItem(r, from, &c.Parts[k])
		}
	}
	return r
}

func geminiItem(r *request, from role, p *geminiPart) {
	switch {
	case p.Call != nil:
		args := p.Call.Args
		if len(args) == 0 {
			args = json.RawMessage("{}")
		}
		r.add(from, item{kind: callItem, id: p.Call.ID, name: p.Call.Name, value: args})
	case p.Response != nil:
		out, failed := geminiOutput(p.Response.Response)
		if len(p.Response.Parts) > 0 {
			out, _ = json.Marshal(map[string]json.RawMessage{"output": orObject(out), "parts": p.Response.Parts})
		}
		r.add(from, item{kind: resultItem, id: p.Response.ID, name: p.Response.Name, value: out, failed: failed})
	case p.Inline != nil:
		r.add(from, item{kind: fileItem, file: inline(p.Inline.MimeType, p.Inline.DisplayName, p.Inline.Data)})
	case p.File != nil:
		r.add(from, item{kind: fileItem, file: file{
			mediaType: p.File.MimeType, name: p.File.DisplayName, url: p.File.FileURI,
		}})
	case !p.Thought:
		r.addText(from, p.Text)
	}
}

// geminiOutput returns the output in the response of a function. By convention an object
// with the one member "error" is an error, one with "output" or "result" is an output.
func geminiOutput(raw json.RawMessage) (out json.RawMessage, failed bool) {
	var members map[string]json.RawMessage
	if unmarshal(raw, &members) != nil {
		return raw, false
	}
	unwrap := func(v json.RawMessage) json.RawMessage {
		if text, ok := stringOr(v, nil); ok {
			return output(text)
		}
		return v
	}
	if e, ok := members["error"]; ok && string(e) != "null" && members["output"] == nil {
		if len(members) == 1 {
			return unwrap(e), true
		}
		return raw, true
	}
	for _, name := range [...]string{"output", "result"} {
		if v, ok := members[name]; ok && len(members) == 1 {
			return unwrap(v), false
		}
	}
	return raw, false
}

type geminiAnswer struct {
	a *answer
	// partial is the call whose arguments arrive in pieces, args what came of them.
	partial *block
	args    map[string]any
	// code counts the pieces of code that Google executed.
	code int
}

type geminiChunk struct {
	Candidates []struct {
		Index        int           `json:"index"`
		Content      geminiContent `json:"content"`
		Finish       string        `json:"finishReason"`
		Continuation string        `json:"continuationToken"`
	} `json:"candidates"`
	Usage    counts `json:"usageMetadata"`
	Model    string `json:"modelVersion"`
	ID       string `json:"responseId"`
	Feedback struct {
		Blocked string `json:"blockReason"`
	} `json:"promptFeedback"`
	Error json.RawMessage `json:"error"`
}

// body takes one response, or a list of them, which is a stream without server-sent events.
func (d *geminiAnswer) body(data []byte) {
	var list []json.RawMessage
	if unmarshal(data, &list) == nil {
		for _, raw := range list {
			d.event("", raw)
		}
	} else {
		d.event("", data)
	}
	d.a.closeAll()
}

// settle implements [settler].
func (d *geminiAnswer) settle(data []byte) {
	var c geminiChunk
	if unmarshal(data, &c) == nil {
		d.usage(c.Usage.RawMessage)
	}
}

func (d *geminiAnswer) event(_ string, data []byte) {
	var c geminiChunk
	if d.a.unmarshal(data, &c) != nil {
		return
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		d.a.fail(openAIError(c.Error))
	}
	d.a.id, d.a.model = cmp.Or(c.ID, d.a.id), cmp.Or(c.Model, d.a.model)
	for i := range c.Candidates {
		candidate := &c.Candidates[i]
		if candidate.Index != 0 {
			d.other(candidate.Index, &candidate.Content)
			continue
		}
		for k := range candidate.Content.Parts {
			d.part(&candidate.Content.Parts[k])
		}
		if candidate.Finish != "" && candidate.Finish != "FINISH_REASON_UNSPECIFIED" {
			d.a.stop, d.a.ended = candidate.Finish, true
			d.a.continuation = candidate.Continuation
			d.a.paused = candidate.Continuation != ""
			d.a.closeAll()
		}
	}
	if c.Feedback.Blocked != "" {
		d.a.stop, d.a.ended = c.Feedback.Blocked, true
	}
	d.usage(c.Usage.RawMessage)
}

func (d *geminiAnswer) part(p *geminiPart) {
	switch {
	case p.Call != nil:
		d.call(p)
	case p.Code != nil:
		d.code++
		b := d.a.next(callBlock)
		b.id, b.name, b.server = "code_"+string(rune('0'+d.code%10)), "code_execution", true
		b.input = quote(p.Code.Code)
		d.a.close(b)
	case p.Result != nil:
		d.a.served("code_"+string(rune('0'+d.code%10)), output(p.Result.Output),
			p.Result.Outcome != "" && p.Result.Outcome != "OUTCOME_OK")
	case p.ServerCall != nil:
		b := d.a.next(callBlock)
		b.id, b.name, b.server = p.ServerCall.ID, strings.ToLower(p.ServerCall.Type), true
		b.input = p.ServerCall.Args
		d.a.close(b)
	case p.ServerResponse != nil:
		out, failed := geminiOutput(p.ServerResponse.Response)
		d.a.served(p.ServerResponse.ID, out, failed)
	case p.Inline != nil:
		if d.a.to.turn != nil && !d.a.to.side {
			f := inline(p.Inline.MimeType, p.Inline.DisplayName, p.Inline.Data)
			d.a.effects++
			d.a.to.turn.Data("file", "", map[string]any{"mediaType": f.mediaType, "size": f.size})
		}
	case p.Thought && p.Text != "":
		d.a.text(d.a.next(reasoningBlock), []byte(p.Text))
	case p.Text != "":
		d.a.text(d.a.next(textBlock), []byte(p.Text))
	}
}

// call takes a call, which comes as a whole, or with its arguments in pieces.
func (d *geminiAnswer) call(p *geminiPart) {
	b := d.partial
	if b == nil {
		b = d.a.next(callBlock)
		b.id, b.name, b.input = p.Call.ID, p.Call.Name, d.a.take(p.Call.Args)
		d.args = nil
	}
	for _, arg := range p.Call.Partial {
		if d.args == nil {
			d.args = make(map[string]any)
		}
		setArg(d.args, arg, d.a)
	}
	if p.Call.More {
		d.partial = b
		return
	}
	d.partial = nil
	if d.args != nil {
		if encoded, err := json.Marshal(d.args); err == nil {
			b.input = encoded
		}
	}
	d.a.close(b)
}

// setArg puts a piece of an argument into the object at its path.
func setArg(object map[string]any, arg geminiArg, a *answer) {
	path := strings.Split(strings.TrimPrefix(strings.TrimPrefix(arg.Path, "$"), "."), ".")
	for len(path) > 1 {
		inner, ok := object[path[0]].(map[string]any)
		if !ok {
			inner = make(map[string]any)
			object[path[0]] = inner
		}
		object, path = inner, path[1:]
	}
	switch name := path[0]; {
	case arg.Text != nil:
		before, _ := object[name].(string)
		object[name] = before + string(a.take([]byte(*arg.Text)))
	case arg.Number != nil:
		object[name] = *arg.Number
	case arg.Bool != nil:
		object[name] = *arg.Bool
	}
}

func (d *geminiAnswer) other(index int, content *geminiContent) {
	c := d.a.choice(index)
	for i := range content.Parts {
		p := &content.Parts[i]
		if p.Call != nil && c != nil {
			c.content.call(p.Call.ID, p.Call.Name)
		} else if !p.Thought {
			c.write(d.a, p.Text)
		}
	}
}

func (d *geminiAnswer) usage(raw json.RawMessage) {
	var u struct {
		Prompt     *int64 `json:"promptTokenCount"`
		Cached     int64  `json:"cachedContentTokenCount"`
		ToolPrompt int64  `json:"toolUsePromptTokenCount"`
		Candidates int64  `json:"candidatesTokenCount"`
		Thoughts   int64  `json:"thoughtsTokenCount"`
	}
	if len(raw) == 0 || unmarshal(raw, &u) != nil || u.Prompt == nil {
		return
	}
	d.a.rawUsage = bytes.Clone(raw)
	d.a.usage = agenttrace.GeminiUsage{
		Prompt: *u.Prompt, Cached: u.Cached, ToolUsePrompt: u.ToolPrompt,
		Candidates: u.Candidates, Thoughts: u.Thoughts,
	}
}
