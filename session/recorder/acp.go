package recorder

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/tidwall/gjson"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// A Trace writes the messages of a [Pipe] into a file, as an inspector of the Agent Client Protocol logs them: a line
// with the time, the direction and the text of each. What the recorder itself has to say is a notification from it:
// how many messages are missing ("$/agenttrace/lost"), and how the agent ended ("$/agenttrace/ended").
//
// A file never has a part of a line for long: what cannot be written, as on a full disk, is lost as whole messages.
type Trace struct {
	// Lost is how many messages are not in the file, and Err why some of them could not be written.
	Lost int64
	Err  error

	file    *os.File
	end     int64 // of what is written whole
	pending int64 // lost, and not yet noted in the file
}

// NewTrace returns a Trace that writes into an empty file.
func NewTrace(file *os.File) *Trace { return &Trace{file: file} }

// Record writes messages.
func (t *Trace) Record(batch []Message) {
	for _, m := range single(batch) {
		t.Lost, t.pending = t.Lost+m.Lost, t.pending+m.Lost
		if t.pending > 0 && t.own(m.At, "lost", map[string]any{"messages": t.pending}) {
			t.pending = 0
		}
		from := "fromAgent"
		if m.FromClient {
			from = "fromClient"
		}
		if m.Line != nil && !t.write(m.At, from, m.Line) {
			t.Lost, t.pending = t.Lost+1, t.pending+1
		}
	}
}

// Ended notes how the agent ended.
func (t *Trace) Ended(state *os.ProcessState) {
	t.Record([]Message{{At: time.Now()}}) // what is lost may be noted now
	t.own(time.Now(), "ended", map[string]any{"code": state.ExitCode(), "how": state.String()})
}

func (t *Trace) own(at time.Time, method string, params map[string]any) bool {
	message, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": "$/agenttrace/" + method, "params": params})
	if err != nil {
		panic(err) // texts and numbers always have JSON
	}
	return t.write(at, "recorder", message)
}

// write appends the line of a message to the file, or leaves that as it was. Bytes that are not UTF-8 become U+FFFD.
func (t *Trace) write(at time.Time, direction string, message []byte) bool {
	text := fmt.Appendf(nil, `{"ts":"%s","direction":"%s","json":`, at.UTC().Format("2006-01-02T15:04:05.000000Z"),
		direction)
	text = append(jsonscan.AppendString(text, string(message)), "}\n"...)
	if _, err := t.file.WriteAt(text, t.end); err != nil {
		t.Err = err
		_ = t.file.Truncate(t.end) // what stays is overwritten
		return false
	}
	t.end += int64(len(text))
	return true
}

// Propagate adds a W3C trace context to the _meta of a session/prompt request, with a text that traceparent returns,
// and changes nothing else of the line. It leaves a request that has one as it is.
func Propagate(line []byte, traceparent func() string) []byte {
	if !bytes.Contains(line, []byte(`"session/prompt"`)) || !json.Valid(line) {
		return line
	}
	method, id := gjson.GetBytes(line, "method"), gjson.GetBytes(line, "id")
	params, meta := gjson.GetBytes(line, "params"), gjson.GetBytes(line, "params._meta")
	if method.Str != "session/prompt" || !id.Exists() || !params.IsObject() ||
		meta.Exists() && (!meta.IsObject() || meta.Get("traceparent").Exists()) {
		return line
	}
	at, added := params.Index+1, `"_meta":{"traceparent":"`+traceparent()+`"}`
	if meta.Exists() {
		at, added = meta.Index+1, `"traceparent":"`+traceparent()+`"`
	}
	if bytes.TrimLeft(line[at:], " \t\r\n")[0] != '}' {
		added += ","
	}
	return slices.Concat(line[:at], []byte(added), line[at:])
}
