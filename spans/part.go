package spans

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Part is a part of a message as a turn carries it: one JSON object.
//
//	{"id":"prt_…","index":0,"type":"text","created_at":1,"updated_at":2,"data":{"type":"text","text":"hi"}}
//
// A part without data is a stub: it stands for a tool call whose own tool.call
// span carries input and output, and says which call and how far it came, so
// that a lost span leaves a visible gap.
type Part struct {
	ID    string `json:"id"`
	Index int64  `json:"index"`
	// Type is the AI SDK part type.
	Type string `json:"type"`
	// ToolCallID and ToolState are those of a tool part.
	ToolCallID string `json:"tool_call_id,omitempty"`
	ToolState  string `json:"tool_state,omitempty"`
	// CreatedAt and UpdatedAt are in Unix milliseconds.
	CreatedAt int64 `json:"created_at"`
	UpdatedAt int64 `json:"updated_at"`
	// Data is the AI SDK part as JSON, nil in a stub.
	Data json.RawMessage `json:"data,omitempty"`
	// Damaged is what was left of a part whose JSON could not be read. It is not
	// encoded.
	Damaged string `json:"-"`
}

// AppendJSON appends the part as JSON. Data must be valid JSON.
func (p *Part) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"id":`...)
	dst = AppendJSONString(dst, p.ID)
	dst = append(dst, `,"index":`...)
	dst = strconv.AppendInt(dst, p.Index, 10)
	dst = append(dst, `,"type":`...)
	dst = AppendJSONString(dst, p.Type)
	if p.ToolCallID != "" {
		dst = append(dst, `,"tool_call_id":`...)
		dst = AppendJSONString(dst, p.ToolCallID)
	}
	if p.ToolState != "" {
		dst = append(dst, `,"tool_state":`...)
		dst = AppendJSONString(dst, p.ToolState)
	}
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

// ParsePart reads what AppendJSON wrote. Where the JSON is cut short it returns
// the fields before the cut, the text in Damaged, and an error.
func ParsePart(s string) (Part, error) {
	var p Part
	err := json.Unmarshal([]byte(s), &p)
	if err == nil {
		if p.ID == "" {
			return Part{Damaged: s}, errors.New("part has no id")
		}
		return p, nil
	}
	p = Part{Damaged: s}
	dec := json.NewDecoder(strings.NewReader(s))
	if t, _ := dec.Token(); t != json.Delim('{') {
		return p, fmt.Errorf("read part: %w", err)
	}
	for {
		key, keyErr := dec.Token()
		name, ok := key.(string)
		if keyErr != nil || !ok {
			return p, fmt.Errorf("read part: %w", err)
		}
		var field any
		switch name {
		case "id":
			field = &p.ID
		case "index":
			field = &p.Index
		case "type":
			field = &p.Type
		case "tool_call_id":
			field = &p.ToolCallID
		case "tool_state":
			field = &p.ToolState
		case "created_at":
			field = &p.CreatedAt
		case "updated_at":
			field = &p.UpdatedAt
		default:
			return p, fmt.Errorf("read part: %w", err)
		}
		if dec.Decode(field) != nil {
			return p, fmt.Errorf("read part: %w", err)
		}
	}
}

// AppendJSONString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD;
// HTML characters stay as they are.
func AppendJSONString(dst []byte, s string) []byte {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
