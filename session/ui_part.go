package session

import (
	"cmp"
	"encoding/json"
	"strings"
)

// UIPart is the UIMessagePart of the AI SDK that [Part.DataJSON] has: the fields of parts of
// every type, in the order in which we write them. Which ones are set follows from Type. A
// pointer is nil, and a raw value has no bytes, if the part has no such field.
//
// Code that changes parts of other writers must keep the fields that UIPart does not have.
type UIPart struct {
	Type string `json:"type"`

	// Text is that of a text or of reasoning.
	Text *string `json:"text,omitempty"`

	// SourceID, URL, Filename and Title describe a source; MediaType, URL and Filename a file.
	SourceID  *string `json:"sourceId,omitempty"`
	MediaType string  `json:"mediaType,omitempty"`
	URL       *string `json:"url,omitempty"`
	Filename  string  `json:"filename,omitempty"`
	Title     string  `json:"title,omitempty"`

	// ToolName is the tool of a dynamic-tool part. [ToolName] returns that of any tool part.
	ToolName   string `json:"toolName,omitempty"`
	ToolCallID string `json:"toolCallId,omitempty"`
	// State is a tool state such as [StateInputAvailable], or streaming or done for a text and
	// for reasoning.
	State string          `json:"state,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
	// RawInput is the input of a failed call if it does not match the tool's schema.
	RawInput         json.RawMessage `json:"rawInput,omitempty"`
	Output           json.RawMessage `json:"output,omitempty"`
	ErrorText        *string         `json:"errorText,omitempty"`
	Approval         *Approval       `json:"approval,omitempty"`
	ProviderExecuted bool            `json:"providerExecuted,omitempty"`

	// Data is that of a data part.
	Data json.RawMessage `json:"data,omitempty"`

	// ProviderMetadata has an object for each provider, and ours under "agenttrace".
	ProviderMetadata map[string]json.RawMessage `json:"providerMetadata,omitempty"`
	ToolMetadata     ToolMetadata               `json:"toolMetadata,omitzero"`
}

// ToolMetadata is the object toolMetadata of a tool part, as far as it is ours.
type ToolMetadata struct {
	Trace ToolTrace `json:"agenttrace"`
}

// Approval is the request to a person to approve a tool call, and the answer.
type Approval struct {
	ID string `json:"id"`
	// Approved is nil until there is an answer.
	Approved *bool  `json:"approved,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// ParseUIPart reads data_json. It accepts the agent guide's error_text in the place of
// errorText. An error is that of encoding/json; after a [json.UnmarshalTypeError], the
// fields of the right type are set.
func ParseUIPart(dataJSON string) (UIPart, error) {
	var p struct {
		UIPart
		GuideErrorText *string `json:"error_text"`
	}
	err := json.Unmarshal([]byte(dataJSON), &p)
	p.ErrorText = cmp.Or(p.ErrorText, p.GuideErrorText)
	return p.UIPart, err
}

// Trace returns our metadata of the part: that of a tool call in toolMetadata, of any other
// part in providerMetadata.
func (p *UIPart) Trace() ToolTrace {
	if IsToolType(p.Type) {
		return p.ToolMetadata.Trace
	}
	var t ToolTrace
	_ = json.Unmarshal(p.ProviderMetadata["agenttrace"], &t) // a value of the wrong type is skipped
	return t
}

// ToolName returns the name of a part's tool: what its type has after "tool-", or toolName,
// which a dynamic-tool part has. It is empty for parts of other types.
func ToolName(partType, toolName string) string {
	if name, ok := strings.CutPrefix(partType, "tool-"); ok {
		return name
	}
	if partType == "dynamic-tool" {
		return toolName
	}
	return ""
}
