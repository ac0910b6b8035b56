package formats

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// agentdbgDecode reads what is in one stream: an events.jsonl, a spans.jsonl, a run.json, or a file of "agentdbg
// export". Events belong to the runs of their run_id. An error is yielded when nothing in the stream is of AgentDbg.
var agentdbgDecode = rows.Whole("run", func(text []byte, report func(codec.Problem)) (all []*codec.Session, err error) {
	d := &agentdbgReader{report: report}
	d.stream(text)
	if len(d.runs) == 0 {
		err = errors.New("no event and no run in it: want events.jsonl, spans.jsonl, or what their programs export")
	}
	for i, r := range d.runs {
		d.runs[i] = nil // it may be large, and a session is made of it
		all = append(all, agentdbgBuild(r, report))
	}
	return all, err
})

// agentdbgDecodeFile reads the runs in path: a data directory (~/.agentdbg, ~/.maida), one that holds .agentdbg or
// .maida, a directory of runs, a run's directory, one of its two files, which stands for both, or a file that
// [agentdbgDecode] reads. A run without one of its files is read as far as it goes.
func agentdbgDecodeFile(path string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return func(yield func(*codec.Session, error) bool) {
		root := path
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			if root = filepath.Dir(path); !slices.Contains(agentdbgFiles, filepath.Base(path)) {
				f, err := codec.OpenFile(path)
				if err != nil {
					yield(nil, err)
					return
				}
				defer f.Close()
				agentdbgDecode(f, report)(yield)
				return
			}
		} else if err != nil {
			yield(nil, fmt.Errorf("read runs: %w", err))
			return
		}
		agentdbgDirectories(path, root, report)(yield)
	}
}

func agentdbgDirectories(path, root string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return rows.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		found := false
		for _, name := range agentdbgRunDirs(root) {
			d := &agentdbgReader{report: report}
			d.directory(root, name)
			for _, r := range d.runs {
				if found = true; !yield(agentdbgBuild(r, d.located)) {
					return nil
				}
			}
		}
		if !found {
			return fmt.Errorf("%s: no run in it: want a directory with %s and %s, or %s and %s, or one of such directories",
				path, agentdbgFiles[0], agentdbgFiles[1], agentdbgFiles[2], agentdbgFiles[3])
		}
		return nil
	})
}

// agentdbgRunDirs returns the directories of runs in root, as paths from there: root itself or those below it.
func agentdbgRunDirs(root string) (dirs []string) {
	for _, place := range []string{".", "runs/*", ".agentdbg/runs/*", ".maida/runs/*", "*"} {
		for _, name := range agentdbgFiles {
			found, _ := fs.Glob(os.DirFS(root), path.Join(place, name)) // the pattern is one
			for _, file := range found {
				dirs = append(dirs, path.Dir(file))
			}
		}
		if place == "." && dirs != nil {
			return []string{""}
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// agentdbgRun is a run as it was read: run.json, nil if there is none, and its events.
type agentdbgRun struct {
	id     string
	meta   rows.Object
	events []agentdbgEvent
}

// agentdbgReader reads files into runs.
type agentdbgReader struct {
	report func(codec.Problem)
	file   string // that is read, within the input
	before int64  // the time of the event before
	runs   []*agentdbgRun
}

func (d *agentdbgReader) located(p codec.Problem) {
	p.File = d.file
	d.report(p)
}

func (d *agentdbgReader) problem(line int, reason string, args ...any) {
	d.located(codec.Problem{Line: line, Reason: fmt.Sprintf(reason, args...)})
}

// directory reads the two files of the run in the directory of a name in root.
func (d *agentdbgReader) directory(root, name string) {
	files := agentdbgFiles[:2]
	for _, file := range agentdbgFiles[2:] {
		if _, err := os.Stat(filepath.Join(root, name, file)); err == nil {
			files = agentdbgFiles[2:]
		}
	}
	for i, file := range files {
		d.file = path.Join(name, file)
		without := []string{"the run is read from its events", "the run has no events"}[i]
		text, err := codec.ReadFile(filepath.Join(root, name, file))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			d.problem(0, "is missing: %s", without)
		case err != nil:
			d.problem(0, "cannot be read: %s: %v", without, err)
		case i == 0:
			if o, err := d.parse(text, 0); err != nil {
				d.problem(0, "is damaged: %s: %v", without, err)
			} else {
				d.record(o, 0)
			}
		default:
			d.lines(text)
		}
	}
	if len(d.runs) == 0 {
		d.file = name
		d.problem(0, "neither %s nor %s can be read: the run was left out", files[0], files[1])
	}
}

// stream reads what is in one file: an object in each line, or in all of them.
func (d *agentdbgReader) stream(text []byte) {
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	first, _, _ := bytes.Cut(bytes.TrimSpace(text), []byte("\n"))
	if _, err := rows.Parse(first); err != nil {
		o, err := d.parse(text, 0)
		if err == nil {
			d.record(o, 0)
			return
		} else if json.Valid(text) {
			d.problem(0, "is not a run: left out: %v", err)
			return
		}
	}
	d.lines(text)
}

func (d *agentdbgReader) lines(text []byte) {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if o, err := d.parse(line, n); err != nil {
			d.problem(n, "is not an event: left out: %v", err)
		} else {
			d.record(o, n)
		}
	}
}

// parse reads an object that Python wrote, and reports what had to be replaced.
func (d *agentdbgReader) parse(text []byte, line int) (rows.Object, error) {
	valid := bytes.ToValidUTF8(text, []byte("\uFFFD"))
	o, found, err := rows.ParsePython(valid, func(string) string { return "null" })
	if found {
		d.problem(line, "NaN and Infinity are not JSON and were read as null")
	}
	if err == nil && !utf8.Valid(text) {
		d.problem(line, "bytes that are not UTF-8 were replaced by U+FFFD")
	}
	return o, err
}

// run returns the run of an id. What has none is of the last one.
func (d *agentdbgReader) run(id string) *agentdbgRun {
	for _, r := range slices.Backward(d.runs) {
		if id == "" || r.id == id {
			return r
		}
	}
	r := &agentdbgRun{id: cmp.Or(id, agentdbgUUID("run"))}
	d.runs = append(d.runs, r)
	return r
}

// record reads an event, a span of Maida's, which may be several events, a run.json, or an export, which has all.
func (d *agentdbgReader) record(o rows.Object, line int) {
	meta, events := o.Object("run"), o.Get("events")
	if o.Has("counts") {
		meta = o
	}
	switch {
	case o.Has("span_id"):
		d.span(o, line)
	case meta != nil || events != nil:
		if meta != nil {
			d.run(cmp.Or(meta.Text("run_id"), meta.Text("trace_id"))).meta = meta
		}
		for i, v := range rows.Elements(events) {
			if e, err := rows.Parse(v); err != nil {
				d.problem(0, "events[%d] is not an event: left out: %v", i, err)
			} else {
				d.record(e, 0)
			}
		}
	default:
		d.event(o, line)
	}
}

func (d *agentdbgReader) add(e agentdbgEvent) {
	r := d.run(e.RunID)
	r.events = append(r.events, e)
}

func (d *agentdbgReader) event(o rows.Object, line int) {
	e := agentdbgEvent{line: line, EventType: o.Text("event_type"), EventID: o.Text("event_id"), RunID: o.Text("run_id"),
		Name: o.Text("name"), Payload: o.Object("payload"), DurationMS: agentdbgTook(o)}
	if e.EventType == "" {
		d.problem(line, "has no event_type: left out")
		return
	}
	e.at = d.time(o, "ts", "event", line)
	if e.Payload == nil && o.Has("payload") {
		e.Payload.Set("value", o.Get("payload")) // as AgentDbg itself writes what is not a dictionary
	}
	if strings.HasPrefix(o.Text("spec_version"), "0.2") {
		e.projected()
	}
	d.add(e)
}

// time reads the time of an event or a span.
func (d *agentdbgReader) time(o rows.Object, key, what string, line int) int64 {
	at, ok := rows.ParseTime(o.Text(key))
	if !ok {
		d.problem(line, "%s is not a time: took that of the %s before it", key, what)
		at = d.before
	}
	d.before = at
	return at
}

// agentdbgTook returns how long the event's call took in milliseconds: its duration_ms or, as AgentDbg's integrations
// write it, that of its meta.<framework>.
func agentdbgTook(o rows.Object) *int64 {
	stated := []json.RawMessage{o.Get("duration_ms")}
	for _, f := range o.Object("meta") {
		stated = append(stated, rows.Read(string(f.Value)).Get("duration_ms"))
	}
	for _, v := range stated {
		const maximum = 1e12 // thirty years: anything above is not a duration
		if ms, err := strconv.ParseFloat(string(v), 64); err == nil && ms >= 0 && ms < maximum {
			return new(int64(ms))
		}
	}
	return nil
}

// agentdbgSaid is a message of a prompt.
type agentdbgSaid struct {
	role  string
	parts []rows.Object
}

// agentdbgReadPrompt returns the messages of a prompt: a text, a list of messages in the manner of OpenAI or LangChain,
// bare or as the "messages" of an object, or a list of texts. Anything else is one message with the prompt as data.
func agentdbgReadPrompt(prompt json.RawMessage) (all []agentdbgSaid) {
	list := prompt
	if _, ok := rows.Text(prompt); ok {
		list = rows.Raw([]json.RawMessage{prompt})
	} else if o, err := rows.Parse(prompt); err == nil {
		list = o.Get("messages")
	}
	asked := func(part rows.Object) { all = append(all, agentdbgSaid{session.RoleUser, []rows.Object{part}}) }
	for _, v := range rows.Elements(list) {
		if s, ok := rows.Text(v); ok {
			asked(rows.TextPart("text", s))
			continue
		}
		o := rows.Read(string(v)) // what is not an object has no role
		role := agentdbgRoles[cmp.Or(o.Text("role"), o.Text("type"))]
		parts := agentdbgContentParts(o.Get("content"))
		switch {
		case role != "" && parts != nil:
			all = append(all, agentdbgSaid{role, parts})
		case role == session.RoleUser:
			asked(rows.DataPart(agentdbgDataPrompt, rows.OrNull(o.Get("content"))))
		}
	}
	if all == nil && prompt != nil && string(prompt) != "null" {
		asked(rows.DataPart(agentdbgDataPrompt, prompt))
	}
	return all
}

// agentdbgRoles are those of OpenAI and the types of LangChain. The message of a tool is left out, because its result is
// an event of its own.
var agentdbgRoles = map[string]string{
	"user": session.RoleUser, "human": session.RoleUser,
	"system": session.RoleSystem, "developer": session.RoleSystem,
	"assistant": session.RoleAssistant, "ai": session.RoleAssistant, "model": session.RoleAssistant,
}

// agentdbgContentParts returns the text, reasoning and file parts of a content: a text, or blocks.
func agentdbgContentParts(content json.RawMessage) (parts []rows.Object) {
	if s, ok := rows.Text(content); ok {
		return []rows.Object{rows.TextPart("text", s)}
	}
	for _, v := range rows.Elements(content) {
		block := rows.Read(string(v)) // what is not an object has no type
		switch typ := block.Text("type"); typ {
		case agentdbgDataPrompt, agentdbgDataResponse:
			parts = append(parts, rows.DataPart(typ, rows.OrNull(block.Get("data"))))
		case "text", "output_text", "input_text":
			parts = append(parts, rows.TextPart("text", block.Text("text")))
		case "reasoning", "thinking":
			parts = append(parts, rows.TextPart("reasoning", cmp.Or(block.Text("text"), block.Text("thinking"))))
		case "file":
			if url := block.Text("url"); url != "" {
				parts = append(parts, rows.FilePart(block.Text("mediaType"), "", url))
			}
		default:
			if s, ok := rows.Text(v); ok {
				parts = append(parts, rows.TextPart("text", s))
			}
		}
	}
	return parts
}

// agentdbgResponseParts returns the parts of a response, in which choices, message and content nest. Of a response in
// no known form there are none.
func agentdbgResponseParts(response json.RawMessage, depth int) []rows.Object {
	const maximum = 4
	parts := agentdbgContentParts(response)
	if parts != nil || response == nil || depth == maximum {
		return parts
	}
	for _, message := range rows.Elements(response) {
		parts = append(parts, agentdbgResponseParts(message, depth+1)...)
	}
	o := rows.Read(string(response))
	if s := cmp.Or(o.Text("reasoning_content"), o.Text("reasoning"), o.Text("thinking")); s != "" {
		parts = append(parts, rows.TextPart("reasoning", s))
	}
	inner := []json.RawMessage{o.Get("content"), o.Get("text"), o.Get("message")}
	if choices := rows.Elements(o.Get("choices")); len(choices) > 0 {
		inner[2] = choices[0]
	}
	for _, v := range inner {
		if said := agentdbgResponseParts(v, depth+1); said != nil {
			return append(parts, said...)
		}
	}
	return parts
}
