// Package replay asks a model again what it was asked before.
//
//	session ─ New ─► Bundle ─ Encode ─► a provider's request, as a file
//	                   │
//	                   └─ Run ─► Answer ─ Store ─► a fork of the session, to compare
//
// A [Bundle] holds what the model was given at one turn: the messages as they stood
// then, with what compactions and rewinds had left of them, the system prompt, the
// tools, the model and its parameters. Each provider's wire format is a [Format].
//
// Run sends the request and answers the model's tool calls with what the same calls put out when they were recorded: no
// tool is executed. Where the model asks for something else than it did then, the answer ends there.
package replay

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"io"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

// Bundle is what a model was given to answer one turn. Its JSON is a stable format: keys are added, never renamed.
type Bundle struct {
	SessionID string `json:"session_id"`
	// Turn is the number of the turn, counted from 1 as in a timeline, MessageID the user message that it begins with.
	Turn      int    `json:"turn"`
	MessageID string `json:"message_id,omitempty"`

	// Eligible reports that nothing is missing. What is missing is left out of the
	// requests, and the output of a call reports so in its place.
	Eligible bool               `json:"eligible"`
	Missing  []document.Missing `json:"missing,omitempty"`
	Notes    []string           `json:"notes,omitempty"`

	Model        session.Model `json:"model"`
	Parameters   Parameters    `json:"parameters"`
	SystemPrompt string        `json:"system_prompt,omitempty"`
	Tools        []Tool        `json:"tools,omitempty"`

	// Messages are what the model was given, the turn's user message last.
	Messages []UIMessage `json:"messages"`
	// Answer is what it answered.
	Answer []UIMessage `json:"answer,omitempty"`

	turn *document.Turn
	// chat is the id that a route is reported in the place of the session's.
	chat            string
	context, answer []entry
}

// Tool is a tool that the model could call.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// InputSchema is a JSON Schema, nil where it is not known.
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
}

// UIMessage is a message of the AI SDK, its parts as they are stored.
type UIMessage struct {
	ID       string            `json:"id"`
	Role     string            `json:"role"`
	Metadata json.RawMessage   `json:"metadata,omitempty"`
	Parts    []json.RawMessage `json:"parts"`
}

// ForTurn makes the bundle of a turn as [New] does; turn 0 is the last that no rewind hid. A model and an effort that
// are not empty replace those that were recorded.
func ForTurn(doc *document.Document, t *session.Transcript, turn int, model, effort string) (*Bundle, error) {
	if last := doc.LastTurn(); turn == 0 && last != nil {
		turn = last.Number
	}
	b, err := New(doc, t, turn)
	if err != nil {
		return nil, err
	}
	if model != "" {
		b.Model.ModelID, b.Model.Variant = model, ""
	}
	b.Model.Variant = cmp.Or(effort, b.Model.Variant)
	return b, nil
}

// New makes the bundle of the turn with the number from the timeline of a session and
// the transcript that it was built from. The error is of a turn that there is not.
func New(doc *document.Document, t *session.Transcript, number int) (*Bundle, error) {
	verdict := doc.TurnEligibility(number)
	if verdict == nil {
		return nil, doc.NoTurn(number)
	}
	b := &Bundle{
		SessionID: doc.Session.ID, Turn: number, MessageID: verdict.MessageID,
		Eligible: verdict.Eligible, Missing: verdict.Missing, Notes: verdict.Notes, turn: doc.Turn(number),
	}
	if verdict.Model != nil {
		b.Model = *verdict.Model
	}
	if p := doc.Prompt(b.turn.SystemPromptDigest); p != nil {
		b.SystemPrompt = p.Body
	}
	if c := doc.Catalog(b.turn.Tools.CatalogDigest); c != nil {
		for _, tool := range c.Tools {
			b.Tools = append(b.Tools, Tool{tool.Name, tool.Description, tool.InputSchema})
		}
	}
	rows := make(map[string]*session.MessageAndParts, len(t.Messages))
	for i := range t.Messages {
		m := &t.Messages[i]
		rows[m.Message.ID] = m
	}
	ids := make(callIDs)
	for _, m := range doc.Context(number) {
		b.Messages = append(b.Messages, uiMessage(m, rows[m.ID]))
		b.context = append(b.context, entries(m, rows[m.ID], ids)...)
	}
	for _, m := range answered(b.turn) {
		b.Answer = append(b.Answer, uiMessage(m, rows[m.ID]))
		b.answer = append(b.answer, entries(m, rows[m.ID], ids)...)
		b.Parameters = parametersOf(m, rows[m.ID].Message.MetadataJSON)
	}
	return b, nil
}

// answered are the messages that answer a turn: of those that a rewind hid only where there is no other.
func answered(t *document.Turn) []*document.Message {
	all := slices.DeleteFunc(slices.Clone(t.Messages), func(m *document.Message) bool {
		return m.Role != session.RoleAssistant || m.Compaction != nil
	})
	hidden := func(m *document.Message) bool { return m.HiddenAt != nil }
	if visible := slices.DeleteFunc(slices.Clone(all), hidden); len(visible) > 0 {
		return visible
	}
	return all
}

// uiMessage is a message as it is stored, except for the marker of a compaction: that is what it reports to the model.
func uiMessage(m *document.Message, row *session.MessageAndParts) UIMessage {
	ui := UIMessage{ID: m.ID, Role: m.Role, Parts: []json.RawMessage{}}
	if m.Compaction != nil {
		ui.Role = session.RoleUser
		summary, _ := json.Marshal(session.UIPart{Type: "text", Text: &m.Compaction.Summary}) // strings always encode
		ui.Parts = append(ui.Parts, summary)
		return ui
	}
	if meta := json.RawMessage(row.Message.MetadataJSON); json.Valid(meta) {
		ui.Metadata = meta
	}
	for i := range row.Parts {
		if data := json.RawMessage(row.Parts[i].DataJSON); json.Valid(data) {
			ui.Parts = append(ui.Parts, data)
		}
	}
	return ui
}

// Parameters are those of the model's request that a source reported, and nil otherwise.
type Parameters struct {
	Temperature      *float64 `json:"temperature,omitempty"`
	TopP             *float64 `json:"top_p,omitempty"`
	TopK             *float64 `json:"top_k,omitempty"`
	MaxTokens        *int64   `json:"max_tokens,omitempty"`
	FrequencyPenalty *float64 `json:"frequency_penalty,omitempty"`
	PresencePenalty  *float64 `json:"presence_penalty,omitempty"`
	Seed             *int64   `json:"seed,omitempty"`
	Stop             []string `json:"stop,omitempty"`
}

// parameterKeys are the keys under which sources have parameters in the metadata of messages. Of several the first that
// has one counts.
var parameterKeys = map[string][]string{
	"top_p":             {"gen_ai.request.top_p", "ai.settings.topP"},
	"top_k":             {"gen_ai.request.top_k", "ai.settings.topK"},
	"max_tokens":        {"gen_ai.request.max_tokens", "ai.settings.maxOutputTokens", "ai.settings.maxTokens"},
	"frequency_penalty": {"gen_ai.request.frequency_penalty", "ai.settings.frequencyPenalty"},
	"presence_penalty":  {"gen_ai.request.presence_penalty", "ai.settings.presencePenalty"},
	"seed":              {"gen_ai.request.seed", "ai.settings.seed"},
	"stop":              {"gen_ai.request.stop_sequences", "ai.settings.stopSequences"},
}

// parametersOf reads the parameters of the request in a message's metadata. One of another type is left out.
func parametersOf(m *document.Message, metadata string) (p Parameters) {
	var keys map[string]json.RawMessage
	_ = json.Unmarshal([]byte(metadata), &keys) // what is not an object reports nothing
	for name, sources := range parameterKeys {
		for _, key := range sources {
			read, raw := p, strings.Trim(string(keys[key]), `"`) // a number, or one in a text
			if raw != "" && raw != "null" && json.Unmarshal([]byte(`{"`+name+`":`+raw+`}`), &read) == nil {
				p = read
				break
			}
		}
	}
	if p.Temperature = m.Temperature; len(p.Stop) == 0 {
		p.Stop = nil
	}
	return p
}

// BundleName is the name of the bundle itself among those of formats.
const BundleName = "bundle"

// Names are those of all that [Bundle.Encode] writes.
func Names() []string {
	var names []string
	for _, f := range Formats() {
		names = append(names, f.Name)
	}
	return append(names, BundleName)
}

// Encode writes the request that asks for the turn's answer in the format with the name, or the bundle itself, as
// indented JSON.
func (b *Bundle) Encode(w io.Writer, name string) error {
	if name == BundleName {
		return document.EncodeJSON(w, "  ", b)
	}
	return document.EncodeJSON(w, "  ", FormatOf(name).request(b, nil))
}

// entry is a message in the terms of no provider: of the user, a system or the model. What tools put out is at the calls.
type entry struct {
	role   string // that of the row
	id     string // of the reply that it is from; empty for what was recorded
	blocks []block
}

// callIDs are the ids of the calls of a conversation. Providers refuse a request in which two calls have the same.
type callIDs map[string]bool

// unique returns the id, or one made of it if a call has it or it is empty. What
// [anthropicID] makes of two of them is not the same either.
func (ids callIDs) unique(id string) string {
	name := id
	if id == "" {
		id, name = "call", "call_1"
	}
	for n := 2; ids[anthropicID(name)]; n++ {
		name = id + "_" + strconv.Itoa(n)
	}
	ids[anthropicID(name)] = true
	return name
}

// callsOf yields the calls of entries.
func callsOf(all []entry) iter.Seq[*block] {
	return func(yield func(*block) bool) {
		for i := range all {
			for k := range all[i].blocks {
				if b := &all[i].blocks[k]; b.kind == callBlock && !yield(b) {
					return
				}
			}
		}
	}
}

type blockKind int

const (
	textBlock blockKind = iota
	reasoningBlock
	fileBlock
	callBlock
	// stepBlock is before what a further request of the model brought, where one reply reports several.
	stepBlock
)

// block is a piece of an entry. Which fields are set follows from its kind.
type block struct {
	kind blockKind
	text string
	// id, name and input are those of a call, and result what came of it, nil where nothing has.
	id, name string
	input    json.RawMessage
	result   *result
	file     file
	// meta is the providerMetadata, by provider.
	meta map[string]json.RawMessage
}

// result is the output of a call or, if it failed, the error that the model got.
type result struct {
	failed bool
	text   string
	output json.RawMessage
	// trace is what a recorded result reports besides; nil for those of a reply.
	trace *session.ToolTrace
}

// file is a file of a message. Its content is in base 64, empty where it is not in the URL.
type file struct{ name, mediaType, url, content string }

// entries are what a model gets of a message: one entry of a user, and for an answer, one of each of its steps.
func entries(m *document.Message, row *session.MessageAndParts, ids callIDs) []entry {
	if m.Compaction != nil {
		return []entry{{role: session.RoleUser, blocks: []block{{kind: textBlock, text: m.Compaction.Summary}}}}
	}
	raw := make(map[string]string, len(row.Parts))
	for i := range row.Parts {
		raw[row.Parts[i].ID] = row.Parts[i].DataJSON
	}
	var all []entry
	step := entry{role: m.Role}
	flush := func() {
		if len(step.blocks) > 0 {
			all = append(all, step)
		}
		step.blocks = nil
	}
	blank := false  // there is a text, and it is empty
	marked := false // sources that mark no steps show them by what follows a result
	for i := range m.Parts {
		marked = marked || m.Parts[i].Kind == document.KindStep
	}
	for _, p := range m.Parts {
		switch p.Kind {
		case document.KindStep:
			flush()
		case document.KindData: // the model was given what the client put around the user's words
			if text := gjson.GetBytes(p.Data, "text").String(); p.Type == session.TypeContext && text != "" {
				step.blocks = append(step.blocks, block{kind: textBlock, text: text})
			}
		case document.KindText, document.KindReasoning:
			if !marked && slices.ContainsFunc(step.blocks, func(b block) bool { return b.kind == callBlock }) {
				flush()
			}
			if p.Kind == document.KindText && p.Text == "" { // some providers refuse it
				blank = true
				continue
			}
			kind := textBlock
			if p.Kind == document.KindReasoning {
				kind = reasoningBlock
			}
			data, _ := session.ParseUIPart(raw[p.ID]) // what is not an object has no metadata
			step.blocks = append(step.blocks, block{kind: kind, text: p.Text, meta: data.ProviderMetadata})
		case document.KindFile:
			step.blocks = append(step.blocks, block{kind: fileBlock, file: fileOf(p.File)})
		case document.KindTool:
			input := p.Tool.Input
			if len(input) == 0 { // none is known
				input = json.RawMessage("{}")
			}
			step.blocks = append(step.blocks, block{kind: callBlock, id: ids.unique(p.Tool.CallID), name: p.Tool.Name,
				input: input, result: resultOfCall(p.Tool)})
		}
	}
	flush()
	if blank && len(all) == 0 && m.Role == session.RoleUser {
		return []entry{{role: m.Role, blocks: []block{{kind: textBlock}}}}
	}
	return all
}

// objectOf is the input of a call as the object that providers want. Some tools take a
// text or a list: that becomes a member of one.
func objectOf(input json.RawMessage) json.RawMessage {
	switch {
	case input[0] == '{':
		return input
	case string(input) == "null":
		return json.RawMessage("{}")
	}
	raw, err := json.Marshal(map[string]json.RawMessage{"input": input})
	if err != nil {
		return json.RawMessage("{}") // what is not JSON is no input
	}
	return raw
}

// noResult is where the output of a call is not known, for providers take no call without one.
const noResult = "[the output of this call was not recorded]"

// What a model gets of a call that failed where no source reports how.
const (
	callFailed = "the call failed"
	callDenied = "the call was denied"
)

func resultOfCall(c *document.ToolCall) *result {
	r := &result{trace: &session.ToolTrace{
		Kind: c.ACPKind, Denied: c.Denied, Truncated: c.Truncated, OutputPath: c.OutputPath, OutputSize: c.OutputSize,
		OutputSHA256: c.OutputSHA256, ErrorType: c.ErrorType,
	}}
	switch {
	case c.State == session.StateOutputError || c.Denied:
		otherwise := callFailed
		if c.Denied {
			otherwise = callDenied
		}
		// Some agents report a refusal as of an output.
		r.failed, r.text = true, cmp.Or(c.Error, session.Deref(c.Approval).Reason, plainText(c.Output), otherwise)
	case c.Open() || c.Withheld || c.Stub || len(c.Output) == 0:
		r.failed, r.text = true, noResult
	default:
		r.output = c.Output
	}
	return r
}

// String is what a model reads of a result: a text as it is, any other value as JSON.
func (r *result) String() string {
	if r.failed {
		return r.text
	}
	return plainText(r.output)
}

// plainText is a value as text: a string as it is, any other as compact JSON.
func plainText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil && len(raw) > 0 && raw[0] == '"' {
		return s
	}
	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil {
		return string(raw)
	}
	return compact.String()
}

// fileOf is a file with the whole of its URL, which a timeline does not carry along.
// The content of a data: URL becomes base 64, as providers want it.
func fileOf(f *document.File) file {
	x := file{name: f.Name, mediaType: f.MediaType, url: cmp.Or(f.Content(), f.URL)}
	rest, ok := strings.CutPrefix(x.url, "data:")
	head, body, comma := strings.Cut(rest, ",")
	if !ok || !comma {
		return x
	}
	head, encoded := strings.CutSuffix(head, ";base64")
	mediaType, _, _ := strings.Cut(head, ";")
	x.mediaType = cmp.Or(x.mediaType, mediaType, "text/plain") // which is what a data: URL means without one
	if !encoded {
		text, err := url.PathUnescape(body)
		if err != nil {
			text = body // no escapes after all
		}
		body = base64.StdEncoding.EncodeToString([]byte(text))
	}
	x.content = body
	if body != "" {
		x.url = "data:" + x.mediaType + ";base64," + body
	}
	return x
}

func (f *file) text() (string, bool) {
	base, _, _ := strings.Cut(f.mediaType, ";")
	switch {
	case f.content == "":
		return "", false
	case strings.HasPrefix(base, "text/"), base == "application/json", base == "application/xml",
		base == "application/yaml":
		b, err := base64.StdEncoding.DecodeString(f.content)
		return string(b), err == nil && utf8.Valid(b)
	}
	return "", false
}

// filename is the name of the file, which OpenAI wants where the content is sent.
func (f *file) filename() string {
	switch {
	case f.name != "":
		return f.name
	case f.pdf():
		return "file.pdf"
	}
	return "file"
}

func (f *file) remote() bool {
	return strings.HasPrefix(f.url, "https://") || strings.HasPrefix(f.url, "http://")
}

func (f *file) image() bool { return strings.HasPrefix(f.mediaType, "image/") }

// recording reports that the file is one of sound or moving pictures.
func (f *file) recording() bool {
	return strings.HasPrefix(f.mediaType, "audio/") || strings.HasPrefix(f.mediaType, "video/")
}

func (f *file) pdf() bool { return f.mediaType == "application/pdf" }

// placeholder informs the model of a file whose content is not there, or that the provider does not take.
func (f *file) placeholder() string {
	name := cmp.Or(f.name, f.mediaType)
	if f.remote() {
		name = f.url
	}
	if f.content == "" && !f.remote() {
		return "[the file " + name + " was not recorded]"
	}
	return "[the file " + name + " cannot be sent]"
}

// textOf is all text of the blocks. A provider may have given it in several pieces,
// for citations are between them, so nothing is put there.
func textOf(blocks []block) string {
	var text strings.Builder
	for i := range blocks {
		if blocks[i].kind == textBlock {
			text.WriteString(blocks[i].text)
		}
	}
	return text.String()
}
