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
	"encoding/json"
	"io"
	"slices"
	"strings"

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
	if effort != "" {
		b.Model.Variant = effort
	}
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
		ui.Parts = append(ui.Parts, textPart(m.Compaction.Summary))
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

func textPart(text string) json.RawMessage {
	raw, _ := json.Marshal(session.UIPart{Type: "text", Text: &text}) // strings always encode
	return raw
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
