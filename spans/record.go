// Package spans defines one type per kind of span, with the span's attributes as fields.
// Code that emits spans and code that reads them share these types.
//
// [Append] encodes a value as OpenTelemetry attributes. [Set] decodes one attribute, so a reader iterates once over
// the attributes of a span, in whatever library they are. The method Validate reports what is missing or
// contradictory, and Kind returns the name of the span. Decoding an encoded value gives the same value.
//
// Decoding is lenient, because one invalid attribute does not make the others invalid:
// Set reports a value of the wrong type and leaves its field unset.
//
// Values are not safe for concurrent use.
package spans

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/semconv"
)

// SpanData is one decoded span.
type SpanData interface {
	// Kind is the span's name, or "chat" for a model call.
	Kind() string
	// visit goes over the attributes, the most important ones first.
	visit(c *coder)
	// Validate returns the joined errors about missing or contradictory values, or nil.
	Validate() error
}

// KindModelCall is the Kind of a [ModelCall], whose span is named "chat {model}".
const KindModelCall = semconv.OperationChat

// New returns an empty record for a span name, or nil if the name is none of the five. A
// model call cannot be recognized by its name; use [ModelCall].
func New(spanName string) SpanData {
	switch spanName {
	case semconv.SpanSessionRun:
		return new(Run)
	case semconv.SpanSessionTurn:
		return new(Turn)
	case semconv.SpanToolCall:
		return new(ToolCall)
	case semconv.SpanCompactionRun:
		return new(Compaction)
	case semconv.SpanPermissionEvaluate:
		return new(Permission)
	}
	return nil
}

// Decode sets every attribute on r and returns the joined errors of those that do not fit.
func Decode(r SpanData, attrs []attribute.KeyValue) error {
	var errs []error
	for _, kv := range attrs {
		if _, err := Set(r, string(kv.Key), AttributeValue(kv.Value)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", kv.Key, err))
		}
	}
	return errors.Join(errs...)
}

// Model identifies a model.
type Model struct {
	ProviderID, ModelID, Variant string
}

func (m *Model) visit(c *coder) {
	c.text(semconv.GenAIProviderNameKey, &m.ProviderID)
	c.text(semconv.GenAIRequestModelKey, &m.ModelID)
	c.text(semconv.ModelVariantKey, &m.Variant)
}

// setJSON stores JSON text whose first character is open ('{', '[' or, for any value, 0).
// It reports other text and does not store it.
func setJSON(dst *json.RawMessage, v Value, open byte) error {
	if v.Type() != attribute.STRING {
		return v.wrongType("JSON string")
	}
	raw := json.RawMessage(v.AsString())
	if !json.Valid(raw) {
		return errors.New("invalid JSON")
	}
	if first := bytes.TrimLeft(raw, " \t\r\n")[0]; open != 0 && first != open {
		return fmt.Errorf("want JSON that begins with %q, have %q", open, first)
	}
	*dst = raw
	return nil
}

// missing reports a value that is empty.
func missing(key attribute.Key, have string) error {
	if have != "" {
		return nil
	}
	return fmt.Errorf("%s is missing", key)
}

// oneOf reports a value that is neither empty nor in the list.
func oneOf(key attribute.Key, have string, allowed ...string) error {
	if have == "" || slices.Contains(allowed, have) {
		return nil
	}
	return fmt.Errorf("%s: invalid value %q", key, have)
}

// Prefixes of ids.
const (
	PrefixSession    = "ses_"
	PrefixMessage    = "msg_"
	PrefixPart       = "prt_"
	PrefixPermission = "per_"
)

const (
	base62    = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	hexDigits = "0123456789abcdef"
	idLength  = 4 + 12 + 14
)

// lastStamp is the stamp of the last id that NewID returned.
var lastStamp atomic.Uint64

// NewID returns a new id: the prefix, a 12-digit hexadecimal stamp of the time and a counter, and 14 random base-62
// characters. Ids of one process sort in the order in which they were created, until the stamp wraps: it is the low
// 48 bits of milliseconds * 4096, which wrap every 795 days. Order rows by (created_at, id).
//
// NewID is safe for concurrent use.
func NewID(prefix string, now time.Time) string {
	stamp := uint64(now.UnixMilli()) << 12
	for {
		last := lastStamp.Load()
		next := max(stamp, last+1)
		if lastStamp.CompareAndSwap(last, next) {
			return formatID(prefix, next, rand.Uint64(), rand.Uint64())
		}
	}
}

// DeriveID returns an id for something without one: from its time, in Unix milliseconds,
// and a hash of the parts that identify it. It is deterministic.
func DeriveID(prefix string, atMilli int64, parts ...string) string {
	return derive(prefix, uint64(atMilli)<<12, parts)
}

// TraceSession returns the session id of a trace without a session key. A trace id is
// random already, and leads back to the trace.
func TraceSession(traceID string) string { return PrefixSession + traceID }

// DeriveIDNano is DeriveID for a time in Unix nanoseconds: ids of times at least a
// quarter of a microsecond apart sort in the order of their times.
func DeriveIDNano(prefix string, atNano int64, parts ...string) string {
	milli := uint64(atNano) / 1e6
	return derive(prefix, milli<<12|(uint64(atNano)-milli*1e6)<<12/1e6, parts)
}

func derive(prefix string, stamp uint64, parts []string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	sum := h.Sum(nil)
	return formatID(prefix, stamp, binary.BigEndian.Uint64(sum), binary.BigEndian.Uint64(sum[8:]))
}

func formatID(prefix string, stamp, r1, r2 uint64) string {
	b := make([]byte, 0, idLength)
	b = append(b, prefix...)
	for shift := 44; shift >= 0; shift -= 4 {
		b = append(b, hexDigits[stamp>>shift&15])
	}
	for range 7 {
		b = append(b, base62[r1%62], base62[r2%62])
		r1 /= 62
		r2 /= 62
	}
	return string(b)
}

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
