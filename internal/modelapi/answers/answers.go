// Package answers writes what the providers of models answer, and what clients ask them, from a script: as documents
// and as streams. It is the counterpart of package modelapi, which reads them.
package answers

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"sync"
	"text/template"

	"github.com/agenttrace/agenttrace/internal/lazy"
)

// API is a provider's API.
type API struct {
	Name string
	// Reasons reports that answers have the reasoning, Errors that results of tools state that the tool failed, IDs
	// that calls have ids, Stop is the reason for which an answer without calls ended.
	Reasons, Errors, IDs bool
	Stop                 string

	// Model is the name of the model that answers where a step has none.
	Model string
	// File has the templates of requests, answers and streams: JSON in which a comma may follow the last element. Each
	// line of a stream is an event, after its name if that is not its type.
	File, Path, StreamPath string
	// Framed streams are binary, as those of AWS. Of a stream of Bytes a frame has an event as base64, of one of Lines a
	// line is an event.
	Framed, Bytes, Lines bool
	// Previous requests have what followed the answer before, and its id. In a stream of AtOnce a chunk has all calls.
	Previous, AtOnce bool
}

// APIs are those of the providers.
var APIs = sync.OnceValue(func() (all []*API) {
	text, err := files.ReadFile("apis/apis.json")
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		panic(err) // a mistake in this package
	}
	return all
})

// Named returns the API of the name.
func Named(name string) *API {
	for _, a := range APIs() {
		if a.Name == name {
			return a
		}
	}
	return nil
}

//go:embed apis
var files embed.FS

// templates are those of each file.
var templates = sync.OnceValue(func() map[string]*template.Template {
	all := make(map[string]*template.Template)
	for _, a := range APIs() {
		all[a.File] = template.Must(template.New("").Funcs(functions).ParseFS(files, "apis/"+a.File+".tmpl"))
	}
	return all
})

var (
	functions = template.FuncMap{
		"halves": halves, "sum": func(a, b int) int { return a + b },
		"minus": func(a int) int { return -a },
		"json":  func(v any) string { return string(encode(v)) },
	}
	lastComma = lazy.Regexp(`,\s*([\]}])`)
)

// execute returns the text of a template without commas that end a list.
func (a *API) execute(name string, data any) []byte {
	var b bytes.Buffer
	if err := templates()[a.File].ExecuteTemplate(&b, name, data); err != nil {
		panic(err) // a mistake in this package
	}
	return lastComma().ReplaceAll(b.Bytes(), []byte("$1"))
}

// Request returns the path and the body of the request for a step.
func (a *API) Request(s *Script, turn, step int, stream bool) (path string, body any) {
	data := struct {
		*Script
		Turns           []Turn
		Stream, Bedrock bool
		Previous        string
	}{Script: s, Turns: s.upTo(turn, step), Stream: stream, Bedrock: a.Framed}
	answers := step
	for _, t := range s.Turns[:turn] {
		answers += len(t.Steps)
	}
	if last := &data.Turns[turn]; a.Previous && answers > 0 {
		data.Previous = fmt.Sprintf("resp_%04d", answers-1)
		if step > 0 {
			*last = Turn{Steps: last.Steps[step-1:]}
		}
		data.Turns = data.Turns[turn:]
	}
	path = a.Path
	if stream && a.StreamPath != "" {
		path = a.StreamPath
	}
	return path, json.RawMessage(a.execute("request", data))
}

// answer is what the templates of answers and streams are about.
type answer struct {
	*Step
	ID     string
	atOnce bool
	counts map[string]int
}

// Next counts from 0.
func (a *answer) Next(what string) (n int) {
	n = a.counts[what]
	a.counts[what]++
	return n
}

// Part is one of the reasoning, half of the text, and the calls.
type Part struct {
	Step
	Last bool
}

// Parts are the parts of the answer, each in a chunk of its own.
func (a *answer) Parts() (parts []Part) {
	if a.Reasoning != "" {
		parts = append(parts, Part{Step: Step{Model: a.Model, Reasoning: a.Reasoning}})
	}
	for _, h := range halves(a.Text) {
		if h != "" {
			parts = append(parts, Part{Step: Step{Model: a.Model, Text: h}})
		}
	}
	for i := range a.Calls {
		if i > 0 && a.atOnce {
			parts[len(parts)-1].Calls = a.Calls
			break
		}
		parts = append(parts, Part{Step: Step{Model: a.Model, Calls: a.Calls[i : i+1]}})
	}
	if len(parts) > 0 {
		parts[len(parts)-1].Last = true
	}
	return parts
}

// Chunks returns the content type of an answer and its bytes, in the pieces that a server would flush.
func (a *API) Chunks(s *Step, id string, stream bool) (contentType string, chunks [][]byte) {
	step := *s
	step.Model = cmp.Or(s.Model, a.Model)
	data := &answer{Step: &step, ID: id, atOnce: a.AtOnce, counts: make(map[string]int)}
	if !stream {
		return "application/json", [][]byte{bytes.TrimSpace(a.execute("answer", data))}
	}
	for line := range bytes.Lines(a.execute("stream", data)) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			chunks = append(chunks, a.event(line))
		}
	}
	if a.Lines {
		return "application/x-ndjson", chunks
	} else if a.Framed {
		return "application/vnd.amazon.eventstream", chunks
	}
	return "text/event-stream; charset=utf-8", chunks
}

// event returns an event of a stream: a name, which may be missing, and data.
func (a *API) event(line []byte) []byte {
	var typed struct{ Type string }
	at := max(0, bytes.IndexByte(line, '{'))
	name, data := strings.TrimSpace(string(line[:at])), line[at:]
	if name == "" && json.Unmarshal(data, &typed) == nil {
		name = typed.Type
	}
	switch {
	case a.Lines:
		return append(data, '\n')
	case a.Bytes:
		return frame("chunk", encode(map[string][]byte{"bytes": data}))
	case a.Framed:
		return frame(name, data)
	case name != "":
		return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, data)
	}
	return fmt.Appendf(nil, "data: %s\n\n", data)
}

// frame returns a message of AWS's binary event stream.
func frame(event string, payload []byte) []byte {
	var headers []byte
	for _, h := range [...][2]string{
		{":message-type", "event"}, {":event-type", event}, {":content-type", "application/json"},
	} {
		headers = append(headers, byte(len(h[0])))
		headers = append(headers, h[0]...)
		headers = append(headers, 7)
		headers = binary.BigEndian.AppendUint16(headers, uint16(len(h[1])))
		headers = append(headers, h[1]...)
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(16+len(headers)+len(payload)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(headers)))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	b = append(append(b, headers...), payload...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// halves splits a text in two, as a stream would.
func halves(text string) []string {
	r := []rune(text)
	if len(r) < 2 {
		return []string{text}
	}
	return []string{string(r[:len(r)/2]), string(r[len(r)/2:])}
}

func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // a mistake in this package
	}
	return bytes.TrimSpace(b.Bytes())
}

// Script is a conversation: what the user asks, and what the model answers.
type Script struct {
	System string
	Tools  []Tool
	Turns  []Turn
}

// Tool is a tool that the model may call.
type Tool struct{ Name, Description, Schema string }

// Turn is a question and the answers to it, all but the last of which call tools.
type Turn struct {
	User  string
	Steps []Step
}

// Step is one answer of the model.
type Step struct {
	Reasoning, Text string
	Calls           []Call
	Input, Output   int
	// Model is the one that answers, by default the API's. CacheRead and Reasoned are among Input and Output.
	Model               string
	CacheRead, Reasoned int
}

// Call is a tool call with what the tool makes of it.
type Call struct {
	ID, Name, Input, Output string
	Failed                  bool
}

// Steps are those of all turns, in order.
func (s *Script) Steps() (all []*Step) {
	for i := range s.Turns {
		for k := range s.Turns[i].Steps {
			all = append(all, &s.Turns[i].Steps[k])
		}
	}
	return all
}

// Call executes a tool of the script.
func (s *Script) Call(name, input string) (output string, failed bool) {
	var want, have any
	for _, step := range s.Steps() {
		for _, c := range step.Calls {
			if json.Unmarshal([]byte(c.Input), &want) == nil && json.Unmarshal([]byte(input), &have) == nil &&
				c.Name == name && bytes.Equal(encode(want), encode(have)) {
				return c.Output, c.Failed
			}
		}
	}
	return "unknown call", true
}

// Want returns the session that the script makes with an API, in the form of [Lines].
func (s *Script) Want(a *API) []string {
	lines := []string{"system " + s.System}
	for _, t := range s.Tools {
		lines = append(lines, "tool "+t.Name+" "+t.Description)
	}
	for _, t := range s.Turns {
		lines = append(lines, "user text "+t.User)
		in, out := 0, 0
		for i, step := range t.Steps {
			if i > 0 {
				lines = append(lines, "assistant step-start")
			}
			if step.Reasoning != "" && a.Reasons {
				lines = append(lines, "assistant reasoning "+step.Reasoning)
			}
			if step.Text != "" {
				lines = append(lines, "assistant text "+step.Text)
			}
			for _, c := range step.Calls {
				line := fmt.Sprintf("assistant call %s %s", c.Name, c.Input)
				if a.IDs {
					line += " " + c.ID
				}
				if c.Failed && a.Errors {
					line += " error " + c.Output
				} else if json.Valid([]byte(c.Output)) {
					line += " output " + c.Output
				} else {
					line += fmt.Sprintf(" output %q", c.Output)
				}
				lines = append(lines, line)
			}
			in, out = in+step.Input, out+step.Output
		}
		lines = append(lines, fmt.Sprintf("turn %d+%d %s %d calls", in, out, a.Stop, len(t.Steps)))
	}
	return lines
}

// upTo returns the turns before a step of a turn, the steps of the turn before it included.
func (s *Script) upTo(turn, step int) []Turn {
	turns := slices.Clone(s.Turns[:turn+1])
	turns[turn].Steps = turns[turn].Steps[:step]
	return turns
}
