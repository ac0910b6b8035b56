package recorder

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"

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

// maxWrite is how many bytes of lines are written together.
const maxWrite = 1 << 20

// Record writes messages.
func (t *Trace) Record(batch []Message) {
	var text []byte
	messages := int64(0)
	for i, m := range batch {
		t.Lost, t.pending = t.Lost+m.Lost, t.pending+m.Lost
		if t.pending > 0 {
			text = t.own(text, m.At, "lost", map[string]any{"messages": t.pending})
		}
		if m.Line != nil {
			from := "fromAgent"
			if m.FromClient {
				from = "fromClient"
			}
			text = t.line(text, m.At, from, m.Line)
			messages++
		}
		if len(text) < maxWrite && i < len(batch)-1 && t.pending == 0 {
			continue
		}
		if t.write(text) {
			t.pending = 0
		} else {
			t.Lost, t.pending = t.Lost+messages, t.pending+messages
		}
		text, messages = text[:0], 0
	}
}

// Ended notes how the agent ended.
func (t *Trace) Ended(state *os.ProcessState) {
	t.Record([]Message{{At: time.Now()}}) // what is lost may be noted now
	t.write(t.own(nil, time.Now(), "ended", map[string]any{"code": state.ExitCode(), "how": state.String()}))
}

func (t *Trace) own(text []byte, at time.Time, method string, params map[string]any) []byte {
	message, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": "$/agenttrace/" + method, "params": params})
	if err != nil {
		panic(err) // texts and numbers always have JSON
	}
	return t.line(text, at, "recorder", message)
}

// line appends a line to text. Bytes of a message that are not UTF-8 become U+FFFD.
func (t *Trace) line(text []byte, at time.Time, direction string, message []byte) []byte {
	text = fmt.Appendf(text, `{"ts":"%s","direction":"%s","json":`, at.UTC().Format("2006-01-02T15:04:05.000000Z"),
		direction)
	return append(jsonscan.AppendString(text, string(message)), "}\n"...)
}

// write appends lines to the file, or leaves it as it was.
func (t *Trace) write(text []byte) bool {
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
	const levels = 1000 // more is not looked into
	if !bytes.Contains(line, []byte(`"session/prompt"`)) {
		return line
	}
	text := string(line)
	// members calls yield with the name and the position of each member of the object at i.
	members := func(i int, yield func(key string, i int)) bool {
		if i = jsonscan.Space(text, i); i == len(text) || text[i] != '{' {
			return false
		}
		return jsonscan.Container(text, i, func(key jsonscan.Key, i int) int {
			yield(text[key.From+1:key.To-1], i)
			return jsonscan.Value(text, i, levels)
		}) >= 0
	}
	isPrompt, hasID, params, meta, hasMeta, has := false, false, -1, -1, false, false
	if !members(0, func(key string, i int) {
		switch key {
		case "method":
			isPrompt = len(text) > i+16 && text[i:i+16] == `"session/prompt"`
		case "id":
			hasID = true
		case "params":
			params = i
		}
	}) || !isPrompt || !hasID || params < 0 {
		return line
	}
	if !members(params, func(key string, i int) {
		if key == "_meta" {
			meta, hasMeta = i, true
		}
	}) {
		return line
	}
	if hasMeta && !members(meta, func(key string, _ int) { has = has || key == "traceparent" }) || has {
		return line
	}
	at, added := params+1, `"_meta":{"traceparent":"`+traceparent()+`"}`
	if hasMeta {
		at, added = meta+1, `"traceparent":"`+traceparent()+`"`
	}
	if text[jsonscan.Space(text, at)] != '}' {
		added += ","
	}
	return []byte(text[:at] + added + text[at:])
}
