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

// agentdbgRun is a run as it was read: run.json, nil if there is none, and its events.
type agentdbgRun struct {
	id     string
	meta   rows.Object
	events []agentdbgEvent
}

// agentdbgEvent is one event of a run.
type agentdbgEvent struct {
	line           int // from 1, 0 if it is unknown
	typ, id, runID string
	name           string
	at             int64 // Unix milliseconds, of the event before it if it has none
	payload        rows.Object
	tookMS         int64 // how long the call took, 0 if it is unknown
	order          int64 // among the spans of a run; 0 for an event of events.jsonl
	span           bool  // it is one of Maida's
}

// agentdbgDecode reads what is in one stream: an events.jsonl, a spans.jsonl, a run.json, or a file of "agentdbg
// export". Events belong to the runs of their run_id. An error is yielded when nothing in the stream is of AgentDbg.
var agentdbgDecode = rows.Whole("run", agentdbgSessions)

func agentdbgSessions(text []byte, report func(codec.Problem)) (all []*codec.Session, err error) {
	runs := (&agentdbgReader{report: report}).stream(text)
	if len(runs) == 0 {
		err = errors.New("no event and no run in it: want events.jsonl, spans.jsonl, or what their programs export")
	}
	for i, r := range runs {
		runs[i] = nil // it may be large, and a session is made of it
		all = append(all, agentdbgBuild(r, report))
	}
	return all, err
}

// agentdbgFiles are those of a run, of AgentDbg and of Maida.
var agentdbgFiles = []string{agentdbgRunFile, agentdbgEventsFile, agentdbgMetaFile, agentdbgSpansFile}

// agentdbgDecodeFile reads the runs in path: a data directory (~/.agentdbg, ~/.maida), one
// that holds .agentdbg or .maida, a directory of runs, a run's directory, one of
// its two files, which stands for both, or a file that [agentdbgDecode] reads.
//
// A run without run.json, or without events.jsonl, is read as far as it goes. An
// error is yielded when there is no run in path.
func agentdbgDecodeFile(path string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return rows.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("read runs: %w", err)
		}
		root := path
		if !info.IsDir() {
			if root = filepath.Dir(path); !slices.Contains(agentdbgFiles, filepath.Base(path)) {
				text, err := codec.ReadFile(path)
				var all []*codec.Session
				if err == nil {
					all, err = agentdbgSessions(text, report)
				}
				if err != nil {
					return fmt.Errorf("read runs: %s: %w", path, err)
				}
				for _, s := range all {
					if !yield(s) {
						break
					}
				}
				return nil
			}
		}
		found := false
		for _, name := range agentdbgRunDirs(root) {
			d := agentdbgReader{report: report}
			r, err := d.directory(root, name)
			if err != nil {
				d.file = name
				d.problem(0, "%v: the run was left out", err)
				continue
			}
			found = true
			if !yield(agentdbgBuild(r, d.located)) {
				break
			}
		}
		if !found {
			const text = "%s: no run in it: want a directory with %s and %s, or %s and %s, or one of such directories"
			return fmt.Errorf(text, path, agentdbgRunFile, agentdbgEventsFile, agentdbgMetaFile, agentdbgSpansFile)
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

// agentdbgReader reads files into runs of events.
type agentdbgReader struct {
	report func(codec.Problem)
	file   string // that is read, within the input
	before int64  // the time of the event before
}

func (d *agentdbgReader) located(p codec.Problem) {
	p.File = d.file
	d.report(p)
}

func (d *agentdbgReader) problem(line int, reason string, args ...any) {
	d.located(codec.Problem{Line: line, Reason: fmt.Sprintf(reason, args...)})
}

// directory reads the two files of the run in the directory of a name in root.
func (d *agentdbgReader) directory(root, name string) (*agentdbgRun, error) {
	files := agentdbgFiles[:2]
	for _, file := range agentdbgFiles[2:] {
		if _, err := os.Stat(filepath.Join(root, name, file)); err == nil {
			files = agentdbgFiles[2:]
		}
	}
	r := &agentdbgRun{}
	for i, file := range files {
		d.file = path.Join(name, file)
		text, err := codec.ReadFile(filepath.Join(root, name, file))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			d.problem(0, "is missing: %s", []string{"the run is read from its events", "the run has no events"}[i])
		case err != nil:
			return nil, err
		case i > 0:
			d.lines(text, func(o rows.Object, line int) { r.events = append(r.events, d.events(o, line)...) })
		default:
			if r.meta, err = d.parse(text, 0); err != nil {
				d.problem(0, "is damaged: the run is read from its events: %v", err)
			} else if v := r.meta.Text("spec_version"); file == agentdbgMetaFile && !strings.HasPrefix(v, "0.2") {
				d.problem(0, "has spec_version %q, and was read as 0.2", v)
			}
		}
	}
	if r.meta == nil && r.events == nil {
		return nil, fmt.Errorf("neither %s nor %s can be read", files[0], files[1])
	}
	r.identify(filepath.Base(filepath.Join(root, name)))
	return r, nil
}

// identify sets the run's id: what run.json has, the events, or another.
func (r *agentdbgRun) identify(otherwise string) {
	r.id = cmp.Or(r.meta.Text("run_id"), r.meta.Text("trace_id"))
	for i := range r.events {
		r.id = cmp.Or(r.id, r.events[i].runID)
	}
	r.id = cmp.Or(r.id, otherwise)
}

// lines calls record for the objects in lines.
func (d *agentdbgReader) lines(text []byte, record func(o rows.Object, line int)) {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if o, err := d.parse(line, n); err != nil {
			d.problem(n, "is not an event: left out: %v", err)
		} else {
			record(o, n)
		}
	}
}

// stream reads what is in one file: an object in each line, or in all of them.
func (d *agentdbgReader) stream(text []byte) (runs []*agentdbgRun) {
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	byID := make(map[string]*agentdbgRun)
	record := func(o rows.Object, line int) {
		if !o.Has("span_id") && (o.Get("run") != nil || o.Get("events") != nil || o.Has("counts")) {
			if r := d.export(o); r != nil {
				runs = append(runs, r)
			}
			return
		}
		for _, e := range d.events(o, line) {
			r := byID[e.runID]
			if r == nil {
				r = &agentdbgRun{id: cmp.Or(e.runID, agentdbgUUID("run", e.id, e.typ, string(e.payload.JSON())))}
				byID[e.runID], runs = r, append(runs, r)
			}
			r.events = append(r.events, e)
		}
	}
	first, _, _ := bytes.Cut(bytes.TrimSpace(text), []byte("\n"))
	if _, err := rows.Parse(first); err != nil {
		o, err := d.parse(text, 0)
		if err == nil {
			record(o, 0)
			return runs
		} else if json.Valid(text) {
			d.problem(0, "is not a run: left out: %v", err)
			return nil
		}
	}
	d.lines(text, record)
	return runs
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

// export reads what agentdbg export writes, or a run.json alone.
func (d *agentdbgReader) export(o rows.Object) *agentdbgRun {
	r := &agentdbgRun{meta: o.Object("run")}
	if o.Get("events") == nil && o.Has("counts") {
		r.meta = o
		d.problem(0, "is a run.json alone: the run has no events")
	}
	d.before = 0
	for i, v := range rows.Elements(o.Get("events")) {
		if e, err := rows.Parse(v); err != nil {
			d.problem(0, "events[%d] is not an event: left out: %v", i, err)
		} else {
			r.events = append(r.events, d.events(e, 0)...)
		}
	}
	if r.meta == nil && r.events == nil {
		d.problem(0, "is not a run: left out")
		return nil
	}
	r.identify(agentdbgUUID("run", string(o.JSON())))
	return r
}

// events reads an event, or a span of Maida's, which may be several.
func (d *agentdbgReader) events(o rows.Object, line int) []agentdbgEvent {
	if o.Has("span_id") {
		return d.span(o, line)
	}
	e := agentdbgEvent{line: line, typ: o.Text("event_type"), id: o.Text("event_id"), runID: o.Text("run_id"),
		name: o.Text("name"), payload: o.Object("payload"), tookMS: agentdbgTook(o)}
	if e.typ == "" {
		d.problem(line, "has no event_type: left out")
		return nil
	}
	e.at = d.time(o, "ts", "event", line)
	if e.payload == nil {
		e.payload = rows.Object{}
		if o.Has("payload") {
			e.payload.Set("value", o.Get("payload")) // as AgentDbg itself writes what is not a dictionary
		}
	}
	if strings.HasPrefix(o.Text("spec_version"), "0.2") {
		e.projected()
	}
	return []agentdbgEvent{e}
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

// agentdbgTook returns how long the event's call took in milliseconds: its duration_ms or, as
// AgentDbg's integrations write it, that of its meta.<framework>.
func agentdbgTook(o rows.Object) int64 {
	stated := []json.RawMessage{o.Get("duration_ms")}
	for _, f := range o.Object("meta") {
		stated = append(stated, rows.Read(string(f.Value)).Get("duration_ms"))
	}
	for _, v := range stated {
		const maximum = 1e12 // thirty years: anything above is not a duration
		if ms, err := strconv.ParseFloat(string(v), 64); err == nil && ms >= 0 && ms < maximum {
			return int64(ms)
		}
	}
	return 0
}

// agentdbgSaid is a message of a prompt.
type agentdbgSaid struct {
	role  string
	parts []rows.Object
}

// text joins the texts of the message.
func (s agentdbgSaid) text() string {
	var texts []string
	for _, p := range s.parts {
		if p.Text("type") == "text" {
			texts = append(texts, p.Text("text"))
		}
	}
	return strings.Join(texts, "\n")
}

func (s agentdbgSaid) equal(other agentdbgSaid) bool {
	same := func(a, b rows.Object) bool { return string(a.JSON()) == string(b.JSON()) }
	return slices.EqualFunc(s.parts, other.parts, same)
}

// agentdbgReadPrompt returns the messages of a prompt: a text, a list of messages in the manner of
// OpenAI or LangChain, bare or as the "messages" of an object, or a list of texts.
// Anything else is one message with the prompt as data.
func agentdbgReadPrompt(prompt json.RawMessage) (all []agentdbgSaid) {
	asked := func(part rows.Object) { all = append(all, agentdbgSaid{session.RoleUser, []rows.Object{part}}) }
	list := prompt
	if s, ok := rows.Text(prompt); ok {
		asked(rows.TextPart("text", s))
	} else if o, err := rows.Parse(prompt); err == nil {
		list = o.Get("messages")
	}
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

// agentdbgRoles are those of OpenAI and the types of LangChain. The message of a tool is left out,
// because its result is an event of its own.
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
		if s, ok := rows.Text(v); ok {
			parts = append(parts, rows.TextPart("text", s))
			continue
		}
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
