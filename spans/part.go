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
// A part without data is a stub for a tool call with a tool.call span of its own, which
// has the input and output. The stub identifies the call and its last state, so a lost
// span leaves a visible gap.
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

// ParsePart decodes the output of AppendJSON. It does not check that Data is valid JSON;
// code that stores it must. For truncated JSON it returns the fields before the cut, the
// remaining text in Damaged, and an error.
func ParsePart(s string) (Part, error) {
	if p, ok := scanPart(s); ok {
		return p, nil
	}
	var p Part
	err := json.Unmarshal([]byte(s), &p)
	if err == nil {
		if p.ID == "" {
			return Part{Damaged: s}, errors.New("part has no id")
		}
		return p, nil
	}
	return headOfPart(s), fmt.Errorf("read part: %w", err)
}

// scanPart is ParsePart for a part as AppendJSON writes it. It does not look at the data, which come last and are most
// of a part. The name of that member cannot be in a text, whose quotes are escaped.
func scanPart(s string) (p Part, ok bool) {
	head, data, found := strings.Cut(s, `,"data":`)
	if found {
		// A part that was truncated inside its data does not end like a nested object.
		if !strings.HasPrefix(data, "{") || !strings.HasSuffix(data, "}}") {
			return p, false
		}
		head, p.Data = head+"}", json.RawMessage(data[:len(data)-1])
	}
	texts := map[string]*string{
		"id": &p.ID, "type": &p.Type, "tool_call_id": &p.ToolCallID, "tool_state": &p.ToolState, "tool_name": &p.ToolName,
	}
	numbers := map[string]*int64{"index": &p.Index, "created_at": &p.CreatedAt, "updated_at": &p.UpdatedAt}
	known := true
	whole := jsonscan.Object([]byte(head), 1, func(name string, value json.RawMessage) {
		text, number, fits := texts[name], numbers[name], false
		switch {
		case text != nil:
			*text, fits = jsonscan.Unquote(value)
		case number != nil:
			n, err := strconv.ParseInt(string(value), 10, 64)
			*number, fits = n, err == nil
		}
		known = known && fits
	})
	return p, whole && known && p.ID != ""
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
