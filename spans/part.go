package spans

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// Part is a part of a message in a turn's attributes: one JSON object.
//
//	{"id":"prt_…","index":0,"type":"text","created_at":1,"updated_at":2,"data":{"type":"text","text":"hi"}}
//
// A part without data is a stub for a tool call with a tool.call span of its own, which has the input and output.
// The stub identifies the call and its last state, so a lost span leaves a visible gap.
type Part struct {
	ID    string `json:"id"`
	Index int64  `json:"index"`
	// Type is the AI SDK part type.
	Type string `json:"type"`
	// ToolCallID and ToolState belong to a tool part.
	ToolCallID string `json:"tool_call_id,omitempty"`
	ToolState  string `json:"tool_state,omitempty"`
	// ToolName belongs to a dynamic-tool stub, whose type does not contain the name.
	ToolName string `json:"tool_name,omitempty"`
	// CreatedAt and UpdatedAt are in Unix milliseconds.
	CreatedAt int64 `json:"created_at"`
	UpdatedAt int64 `json:"updated_at"`
	// Data is the AI SDK part as JSON, nil in a stub.
	Data json.RawMessage `json:"data,omitempty"`
	// Damaged is what is left of a part with malformed JSON. It is not encoded.
	Damaged string `json:"-"`
}

// AppendJSON appends the part as JSON. Data must be valid JSON.
func (p *Part) AppendJSON(dst []byte) []byte {
	dst = AppendJSONMember(append(dst, '{'), "id", p.ID)
	dst = append(dst, `,"index":`...)
	dst = strconv.AppendInt(dst, p.Index, 10)
	dst = AppendJSONMember(dst, "type", p.Type)
	dst = AppendJSONOptional(dst, "tool_call_id", p.ToolCallID)
	dst = AppendJSONOptional(dst, "tool_state", p.ToolState)
	dst = AppendJSONOptional(dst, "tool_name", p.ToolName)
	dst = append(dst, `,"created_at":`...)
	dst = strconv.AppendInt(dst, p.CreatedAt, 10)
	dst = append(dst, `,"updated_at":`...)
	dst = strconv.AppendInt(dst, p.UpdatedAt, 10)
	if len(p.Data) > 0 {
		dst = append(dst, `,"data":`...)
		dst = append(dst, p.Data...)
	}
	return append(dst, '}')
}

// ParsePart decodes the output of AppendJSON. It does not check that Data, which come last and are most of a part, are
// valid JSON; code that stores them must. For truncated JSON it returns the fields before the cut, the remaining text
// in Damaged, and an error.
func ParsePart(s string) (p Part, err error) {
	rest := s
	// The name of the member cannot be in a text, whose quotes are escaped. A part that was truncated inside its data
	// does not end like a nested object.
	head, data, found := strings.Cut(s, `,"data":`)
	if found && strings.HasPrefix(data, "{") && strings.HasSuffix(data, "}}") {
		rest, p.Data = head+"}", json.RawMessage(data[:len(data)-1])
	}
	if err := json.Unmarshal([]byte(rest), &p); err != nil {
		return headOfPart(s), fmt.Errorf("read part: %w", err)
	}
	if p.ID == "" {
		return Part{Damaged: s}, errors.New("part has no id")
	}
	return p, nil
}

// headOfPart reads the fields before the place where the JSON of a part breaks off.
func headOfPart(s string) Part {
	p := Part{Damaged: s}
	dec := json.NewDecoder(strings.NewReader(s))
	if t, _ := dec.Token(); t != json.Delim('{') {
		return p
	}
	fields := map[string]any{
		"id": &p.ID, "index": &p.Index, "type": &p.Type, "tool_call_id": &p.ToolCallID, "tool_state": &p.ToolState,
		"tool_name":  &p.ToolName,
		"created_at": &p.CreatedAt, "updated_at": &p.UpdatedAt,
	}
	for {
		key, err := dec.Token()
		name, ok := key.(string)
		field := fields[name]
		if err != nil || !ok || field == nil || dec.Decode(field) != nil {
			return p
		}
	}
}

// AppendJSONMember appends a member to an object that has no closing brace yet. name needs no escapes.
func AppendJSONMember(dst []byte, name, value string) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	dst = append(append(append(dst, '"'), name...), '"', ':')
	return jsonscan.AppendString(dst, value)
}

// AppendJSONOptional is AppendJSONMember for a value that is not empty.
func AppendJSONOptional(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return AppendJSONMember(dst, name, value)
}
