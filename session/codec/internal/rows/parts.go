package rows

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
)

// MaxTime is the end of the year 9999 in Unix milliseconds, the last that most programs can read.
const MaxTime = 253402300799999

// Milli reads a number of Unix milliseconds.
func Milli(raw json.RawMessage) (at int64, ok bool) {
	at, err := strconv.ParseInt(string(raw), 10, 64)
	return at, err == nil && at >= 0 && at <= MaxTime
}

// Count reads a number of tokens. It takes none of which a sum could overflow.
func Count(raw json.RawMessage) (n int64, ok bool) {
	const maximum = 1 << 54
	n, err := strconv.ParseInt(strings.TrimSuffix(string(raw), ".0"), 10, 64) // Python may write a float
	return n, err == nil && n >= 0 && n <= maximum
}

// FormatTime writes a time in Unix milliseconds as JavaScript's toISOString does.
func FormatTime(milli int64) string {
	return time.UnixMilli(milli).UTC().Format("2006-01-02T15:04:05.000Z")
}

// ParseTime reads a time with a zone, in Unix milliseconds.
func ParseTime(s string) (milli int64, ok bool) {
	t, err := time.Parse(time.RFC3339Nano, s)
	return t.UnixMilli(), err == nil
}

// OrNull returns the value, or null where there is none.
func OrNull(v json.RawMessage) json.RawMessage {
	if v == nil {
		return json.RawMessage("null")
	}
	return v
}

// Data is the data of a part, of a text that is withheld the text that reports it.
func Data(p *session.Part) Object {
	if p.Type == session.TypeWithheld {
		return TextPart("text", codec.WithheldText)
	}
	return Read(p.DataJSON)
}

// TextPart is the data of a text or reasoning part.
func TextPart(partType, text string) Object { return Of("type", partType, "text", text) }

// DataPart is the data of a data part.
func DataPart(partType string, data any) Object { return Of("type", partType, "data", data) }

// FilePart is the data of a file part.
func FilePart(mediaType, filename, url string) Object {
	return slices.Concat(Of("type", "file", "mediaType", mediaType), NonEmpty("filename", filename), Of("url", url))
}

// ToolPart begins the data of a tool part. A tool without a name is dynamic.
func ToolPart(name, callID, state string) Object {
	if name == "" {
		return Of("type", "dynamic-tool", "toolName", name, "toolCallId", callID, "state", state)
	}
	return Of("type", "tool-"+name, "toolCallId", callID, "state", state)
}

// ToolName returns the name of the tool that a tool part calls.
func ToolName(data Object) string {
	return session.ToolName(data.Text("type"), data.Text("toolName"))
}
