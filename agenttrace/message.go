package agenttrace

import (
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/spans"
)

// UserMessage is what begins a turn.
type UserMessage struct {
	// ID is the message's identity if the host has one already; empty means a new "msg_…".
	ID string
	// Text is the first part, when it is not empty; Parts follow it.
	Text  string
	Parts []Part
	// Trigger states what sent the message when no human did.
	Trigger *Trigger
	// Metadata is stored with the message as JSON.
	Metadata map[string]any
}

// Trigger is the envelope of a message that no human typed. Its names are those of the agent guide.
type Trigger struct {
	// Source is schedule, webhook, api, self-schedule or mcp-event.
	Source string
	// FiredAt is stored in Unix milliseconds.
	FiredAt    time.Time
	ScheduleID string
	DeliveryID string
	// Headers are stored, except for what is redacted: see [Options].Redact.
	Headers     map[string]string
	AuthSubject string
}

// MarshalJSON encodes the trigger under the guide's names.
func (t Trigger) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Source      string            `json:"source"`
		FiredAt     int64             `json:"fired_at"`
		ScheduleID  string            `json:"schedule_id,omitempty"`
		DeliveryID  string            `json:"delivery_id,omitempty"`
		Headers     map[string]string `json:"headers,omitempty"`
		AuthSubject string            `json:"auth_subject,omitempty"`
	}{t.Source, t.FiredAt.UnixMilli(), t.ScheduleID, t.DeliveryID, t.Headers, t.AuthSubject})
}

// Part is a part of a user message: an AI SDK part. Make it with [TextPart], [FilePart] or [DataPart].
type Part struct {
	kind string
	// data encodes the part as it may be sent.
	data func(f *filter, kind redact.Content) []byte
}

// Type returns the AI SDK part type.
func (p Part) Type() string { return p.kind }

// TextPart returns a part of text.
func TextPart(text string) Part {
	return Part{"text", func(f *filter, kind redact.Content) []byte { return textData("text", f.content(kind, text)) }}
}

// File is a file that a message carries.
type File struct {
	// MediaType is an IANA media type, such as image/png.
	MediaType string
	// URL is where the file is; Bytes, when URL is empty, is the file itself and travels as a data URL.
	URL      string
	Bytes    []byte
	Filename string
}

// FilePart returns a part that is a file.
func FilePart(f File) Part {
	if f.URL == "" {
		f.URL = "data:" + f.MediaType + ";base64," + base64.StdEncoding.EncodeToString(f.Bytes)
	}
	f.Bytes = nil
	return Part{"file", f.data}
}

func (f File) data(clean *filter, kind redact.Content) []byte {
	f.URL = clean.text(kind, "", f.URL)
	b := []byte(`{"type":"file"`)
	b = spans.AppendJSONMember(b, "mediaType", clean.id(f.MediaType))
	b = spans.AppendJSONMember(b, "url", f.URL)
	b = spans.AppendJSONOptional(b, "filename", clean.text(redact.Other, "", f.Filename))
	return append(b, '}')
}

// DataPart returns a part of the host's own kind: its type is "data-" and name.
// id may be empty. A value that JSON cannot hold becomes its text.
func DataPart(name, id string, value any) Part {
	kind, encoded := "data-"+validUTF8(name), encodeJSON(value)
	return Part{kind, func(f *filter, content redact.Content) []byte {
		b := spans.AppendJSONMember([]byte{'{'}, "type", f.id(kind))
		b = spans.AppendJSONOptional(b, "id", f.id(id))
		b = append(b, `,"data":`...)
		b = append(b, f.json(content, "", encoded)...)
		return append(b, '}')
	}}
}

// SourceURL is a page that an answer rests on.
type SourceURL struct {
	// ID names the source; empty means the part's own id.
	ID         string
	URL, Title string
}

// SourceDocument is a document that an answer rests on.
type SourceDocument struct {
	// ID names the source; empty means the part's own id.
	ID                         string
	MediaType, Title, Filename string
}

// textData returns a text or reasoning part.
func textData(kind, text string) []byte {
	b := append(make([]byte, 0, len(text)+len(text)/8+64), '{')
	b = spans.AppendJSONMember(spans.AppendJSONMember(b, "type", kind), "text", text)
	return append(b, '}')
}
