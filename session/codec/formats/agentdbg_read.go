package formats

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// agentdbgDecode reads what is in one stream: an events.jsonl, a run.json, or files
// of "agentdbg export", one or more. Events of several runs are sorted out by
// their run_id. The whole stream is held in memory.
//
// Each run is yielded as a session that passes [session.Check]; the caller owns
// it. The sequence can be ranged over once. What cannot be read is reported and
// left out; report may be nil. An error is yielded, last and with a nil session,
// when reading fails or nothing in the stream is of AgentDbg.
func agentdbgDecode(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return rows.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		return agentdbgDecodeRuns(r, report, yield)
	})
}

func agentdbgDecodeRuns(r io.Reader, report func(codec.Problem), yield func(*codec.Session) bool) error {
	d := agentdbgDecoder{report: report}
	data, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read run: %w", err)
	}
	runs, err := d.stream(data)
	for i, r := range runs {
		runs[i] = nil // it may be large, and a session is made of it
		if !yield(d.session(r)) {
			break
		}
	}
	return err
}

// agentdbgDecodeFile reads the runs in path: a data directory (~/.agentdbg, ~/.maida), one
// that holds .agentdbg or .maida, a directory of runs, a run's directory, one of
// its two files, which stands for both, or a file that [agentdbgDecode] reads. Runs come
// in the order of their names.
//
// A run without run.json, or without events.jsonl, is read as far as it goes. An
// error is yielded when there is no run in path.
func agentdbgDecodeFile(path string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return rows.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("read runs: %w", err)
		}
		if !info.IsDir() && !slices.Contains(agentdbgFiles[:], filepath.Base(path)) {
			f, err := os.Open(path)
			if err != nil {
				return fmt.Errorf("read runs: %w", err)
			}
			defer f.Close()
			if err := agentdbgDecodeRuns(f, report, yield); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			return nil
		}
		root := path
		if !info.IsDir() {
			root = filepath.Dir(path)
		}
		found := false
		for _, dir := range agentdbgRunDirs(root) {
			name, err := filepath.Rel(root, dir)
			if err != nil || name == "." {
				name = ""
			}
			d := agentdbgDecoder{report: report, dir: name}
			r, err := d.directory(dir)
			if err != nil {
				d.problem(0, "", err.Error()+": the run was left out")
				continue
			}
			found = true
			if !yield(d.session(r)) {
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

// agentdbgRunDirs returns the directories of runs in root.
func agentdbgRunDirs(root string) []string {
	if agentdbgIsRun(root, agentdbgFiles[:]) {
		return []string{root}
	}
	var dirs []string
	for _, sub := range []string{"runs", ".agentdbg/runs", ".maida/runs", "."} {
		entries, err := os.ReadDir(filepath.Join(root, sub))
		if err != nil {
			continue // not there, which is what is asked
		}
		for _, e := range entries {
			if dir := filepath.Join(root, sub, e.Name()); agentdbgIsRun(dir, agentdbgFiles[:]) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// agentdbgFiles are those of a run, of AgentDbg and of Maida.
var agentdbgFiles = [...]string{agentdbgRunFile, agentdbgEventsFile, agentdbgMetaFile, agentdbgSpansFile}

func agentdbgIsRun(dir string, files []string) bool {
	for _, name := range files {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

type agentdbgDecoder struct {
	report func(codec.Problem)
	dir    string // of the run within the input
	file   string // with the events in it
}

// problem reports. file may be empty, within the run's directory.
func (d *agentdbgDecoder) problem(line int, file, reason string) {
	if d.dir != "" || file != "" {
		file = filepath.ToSlash(filepath.Join(d.dir, file))
	}
	d.report(codec.Problem{File: file, Line: line, Reason: reason})
}

func (d *agentdbgDecoder) directory(dir string) (*agentdbgRun, error) {
	r := &agentdbgRun{}
	runFile, eventsFile := agentdbgRunFile, agentdbgEventsFile
	if agentdbgIsRun(dir, agentdbgFiles[2:]) {
		runFile, eventsFile = agentdbgMetaFile, agentdbgSpansFile
	}
	d.file = eventsFile
	text, err := codec.ReadFile(filepath.Join(dir, runFile))
	if errors.Is(err, fs.ErrNotExist) {
		d.problem(0, runFile, "is missing: the run is read from its events")
	} else if err != nil {
		return nil, err
	} else if o, err := d.parse(text, 0, runFile); err != nil {
		d.problem(0, runFile, "is damaged: the run is read from its events: "+err.Error())
	} else {
		r.meta = o
		if v := o.Text("spec_version"); runFile == agentdbgMetaFile && !strings.HasPrefix(v, "0.2") {
			d.problem(0, runFile, fmt.Sprintf("has spec_version %q, and was read as 0.2", v))
		}
	}
	text, err = codec.ReadFile(filepath.Join(dir, eventsFile))
	if errors.Is(err, fs.ErrNotExist) {
		d.problem(0, eventsFile, "is missing: the run has no events")
	} else if err != nil {
		return nil, err
	}
	r.events = d.lines(text, eventsFile)
	if r.meta == nil && len(r.events) == 0 {
		return nil, fmt.Errorf("neither %s nor %s can be read", runFile, eventsFile)
	}
	r.id = r.identity(filepath.Base(dir))
	return r, nil
}

// identity returns the run's id: what run.json says, the events, or its place.
func (r *agentdbgRun) identity(otherwise string) string {
	if id := cmp.Or(r.meta.Text("run_id"), r.meta.Text("trace_id")); id != "" {
		return id
	}
	for i := range r.events {
		if id := r.events[i].runID; id != "" {
			return id
		}
	}
	return otherwise
}

// lines reads an events.jsonl.
func (d *agentdbgDecoder) lines(text []byte, file string) []agentdbgEvent {
	var events []agentdbgEvent
	before, n := int64(0), 0
	for line := range bytes.Lines(bytes.TrimPrefix(text, []byte("\uFEFF"))) {
		n++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		all, err := d.parse(line, n, file)
		if err != nil {
			d.problem(n, file, "is not an event: left out: "+err.Error())
			continue
		}
		events = d.add(events, all, n, file, &before)
	}
	return events
}

func (d *agentdbgDecoder) add(
	events []agentdbgEvent, all rows.Object, line int, file string, before *int64,
) []agentdbgEvent {
	if all.Has("span_id") {
		return d.span(events, all, line, file, before)
	}
	e, note, err := agentdbgNewEvent(all, line, *before)
	if err != nil {
		d.problem(line, file, err.Error())
		return events
	}
	if note != "" {
		d.problem(line, file, note)
	}
	*before = e.at
	return append(events, e)
}

// stream reads what is in one file.
func (d *agentdbgDecoder) stream(data []byte) ([]*agentdbgRun, error) {
	first, _, _ := bytes.Cut(bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\uFEFF"))), []byte("\n"))
	quiet := agentdbgDecoder{report: func(codec.Problem) {}}
	if o, err := quiet.parse(first, 0, ""); err == nil && (o.Has("span_id") || !o.Has("events") && !o.Has("counts")) {
		return d.byRun(d.lines(data, ""))
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	if fixed, ok := rows.ReplaceNaN(data, agentdbgAsNull); ok && !json.Valid(data) {
		d.problem(0, "", agentdbgNoteNaN)
		data = fixed
	}
	var runs []*agentdbgRun
	lax := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)} // as Python is
	for dec := jsontext.NewDecoder(bytes.NewBuffer(data), lax...); ; {
		v, err := dec.ReadValue()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if len(runs) == 0 {
				// The first line may be the damaged one of an events.jsonl.
				return d.byRun(d.lines(data, ""))
			}
			line := 1 + bytes.Count(data[:dec.InputOffset()], []byte("\n"))
			d.problem(line, "", "is not JSON: the rest was left out: "+err.Error())
			break
		}
		if r := d.export(v); r != nil {
			runs = append(runs, r)
		}
	}
	if len(runs) == 0 {
		return nil, errNoAgentdbgRun
	}
	return runs, nil
}

const (
	agentdbgNoteNaN  = "NaN and Infinity are not JSON and were read as null"
	agentdbgNoteUTF8 = "bytes that are not UTF-8 were replaced by U+FFFD"
)

func agentdbgAsNull(string) string { return "null" }

// parse reads an object that Python wrote, and reports what had to be replaced.
func (d *agentdbgDecoder) parse(text []byte, line int, file string) (rows.Object, error) {
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
		d.problem(line, file, agentdbgNoteUTF8)
	}
	o, err := rows.Parse(text)
	if err == nil {
		return o, nil
	}
	if fixed, found := rows.ReplaceNaN(text, agentdbgAsNull); found {
		if o, err := rows.Parse(fixed); err == nil {
			d.problem(line, file, agentdbgNoteNaN)
			return o, nil
		}
	}
	return nil, err
}

var errNoAgentdbgRun = errors.New("read run: no event and no run in it: " +
	"want events.jsonl, spans.jsonl, or what their programs export")

// byRun sorts events by the run that they name.
func (d *agentdbgDecoder) byRun(events []agentdbgEvent) ([]*agentdbgRun, error) {
	var runs []*agentdbgRun
	places := map[string]*agentdbgRun{}
	for _, e := range events {
		r := places[e.runID]
		if r == nil {
			r = &agentdbgRun{id: e.runID}
			if r.id == "" {
				r.id = agentdbgUUID("run", e.id, e.typ, rows.FormatTime(e.at), string(e.payload.JSON()))
			}
			places[e.runID] = r
			runs = append(runs, r)
		}
		r.events = append(r.events, e)
	}
	if len(runs) == 0 {
		return nil, errNoAgentdbgRun
	}
	return runs, nil
}

// export reads what agentdbg export writes, or a run.json alone.
func (d *agentdbgDecoder) export(text []byte) *agentdbgRun {
	o, err := d.parse(text, 0, "")
	if err != nil {
		d.problem(0, "", "is not a run: left out: "+err.Error())
		return nil
	}
	r := &agentdbgRun{meta: o.Object("run")}
	if o.Get("events") == nil && o.Get("counts") != nil {
		r.meta = o
		d.problem(0, "", "is a run.json alone: the run has no events")
	}
	before := int64(0)
	for i, v := range rows.Elements(o.Get("events")) {
		all, err := rows.Parse(v)
		if err != nil {
			d.problem(0, "", fmt.Sprintf("events[%d] is not an event: left out: %v", i, err))
			continue
		}
		r.events = d.add(r.events, all, 0, "", &before)
	}
	if r.meta == nil && len(r.events) == 0 {
		d.problem(0, "", "is not a run: left out")
		return nil
	}
	r.id = r.identity(agentdbgUUID("run", string(text)))
	return r
}

// session makes a session of a run.
func (d *agentdbgDecoder) session(r *agentdbgRun) *codec.Session {
	file := ""
	if d.dir != "" {
		file = d.file
	}
	if len(r.events) == 0 && r.meta.Text("status") != agentdbgStatusRunning {
		d.problem(0, file, "the run has no events")
	}
	return agentdbgBuild(r, func(p codec.Problem) { d.problem(p.Line, file, p.Reason) })
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

// agentdbgNewEvent reads an event. before is the time of the one before it.
func agentdbgNewEvent(all rows.Object, line int, before int64) (e agentdbgEvent, note string, err error) {
	e = agentdbgEvent{
		line: line, typ: all.Text("event_type"), id: all.Text("event_id"),
		runID: all.Text("run_id"), name: all.Text("name"),
	}
	if e.typ == "" {
		return e, "", errors.New("has no event_type: left out")
	}
	at, ok := rows.ParseTime(all.Text("ts"))
	if e.at = at; !ok {
		e.at, note = before, "ts is not a time: took that of the event before it"
	}
	if e.payload = all.Object("payload"); e.payload == nil {
		e.payload = rows.Object{}
		if all.Has("payload") {
			e.payload.Set("value", all.Get("payload")) // as AgentDbg itself writes what is not a dictionary
		}
	}
	e.tookMS = agentdbgTook(all)
	if strings.HasPrefix(all.Text("spec_version"), "0.2") {
		e.projected()
	}
	return e, note, nil
}

// agentdbgTook returns how long the event's call took in milliseconds: its duration_ms or, as
// AgentDbg's integrations write it, that of its meta.<framework>.
func agentdbgTook(all rows.Object) int64 {
	values := []json.RawMessage{all.Get("duration_ms")}
	meta := all.Object("meta")
	for _, f := range meta {
		values = append(values, meta.Object(f.Key).Get("duration_ms"))
	}
	for _, v := range values {
		const maximum = 1e12 // thirty years: anything above is not a duration
		var ms float64
		if json.Unmarshal(v, &ms) == nil && string(v) != "null" && ms >= 0 && ms < maximum {
			return int64(ms)
		}
	}
	return 0
}

// agentdbgDataType is the type of the data part for events of a type: LOOP_WARNING is
// data-loop-warning. A type that 0.1 does not have gets a name of its own, so that it is
// never taken for a part with another meaning.
func agentdbgDataType(typ string) string {
	if t, ok := agentdbgDataTypes[typ]; ok {
		return t
	}
	return "data-event-" + agentdbgNotWord.ReplaceAllString(strings.ToLower(typ), "-")
}

var agentdbgNotWord = regexp.MustCompile("[^a-z0-9]")

// agentdbgStatePart returns the data part that a STATE_UPDATE has as its state, or nil. A part
// with a meaning of its own, such as a compaction, is not read from a state.
func agentdbgStatePart(payload rows.Object) rows.Object {
	part := payload.Object("state")
	typ := part.Text("type")
	switch typ {
	case session.TypeCompaction, session.TypeWithheld, session.TypeUnfinished, "data-":
		return nil
	}
	_, named := rows.Text(part.Get("id"))
	if !strings.HasPrefix(typ, "data-") || part.Get("data") == nil || part.Get("id") != nil && !named ||
		len(part.Without("type", "id", "data")) > 0 || payload.Has("diff") {
		return nil
	}
	return part
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
	if prompt == nil || string(prompt) == "null" {
		return nil
	}
	if s, ok := rows.Text(prompt); ok {
		return []agentdbgSaid{{session.RoleUser, []rows.Object{rows.TextPart("text", s)}}}
	}
	list := prompt
	if o, err := rows.Parse(prompt); err == nil {
		list = o.Get("messages")
	}
	for _, v := range rows.Elements(list) {
		if s, ok := rows.Text(v); ok {
			all = append(all, agentdbgSaid{session.RoleUser, []rows.Object{rows.TextPart("text", s)}})
			continue
		}
		o, _ := rows.Parse(v) // what is not an object has no role
		role := agentdbgRoles[cmp.Or(o.Text("role"), o.Text("type"))]
		parts := agentdbgContentParts(o.Get("content"))
		if s, ok := rows.Text(o.Get("content")); ok {
			parts = []rows.Object{rows.TextPart("text", s)}
		}
		if parts == nil && role == session.RoleUser {
			parts = []rows.Object{rows.DataPart(agentdbgDataPrompt, rows.OrNull(o.Get("content")))}
		}
		if role != "" && parts != nil {
			all = append(all, agentdbgSaid{role, parts})
		}
	}
	if all == nil {
		return []agentdbgSaid{{session.RoleUser, []rows.Object{rows.DataPart(agentdbgDataPrompt, prompt)}}}
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

// Types of the parts for a message of a prompt, and for a response, in no known form.
const (
	agentdbgDataPrompt   = "data-prompt"
	agentdbgDataResponse = "data-response"
)

// agentdbgContentParts returns the text, reasoning and file parts of content blocks.
func agentdbgContentParts(content json.RawMessage) (parts []rows.Object) {
	for _, v := range rows.Elements(content) {
		if s, ok := rows.Text(v); ok {
			parts = append(parts, rows.TextPart("text", s))
			continue
		}
		block, _ := rows.Parse(v) // what is not an object has no type
		switch block.Text("type") {
		case agentdbgDataPrompt, agentdbgDataResponse:
			parts = append(parts, rows.DataPart(block.Text("type"), rows.OrNull(block.Get("data"))))
		case "text", "output_text", "input_text":
			parts = append(parts, rows.TextPart("text", block.Text("text")))
		case "reasoning", "thinking":
			parts = append(parts, rows.TextPart("reasoning", cmp.Or(block.Text("text"), block.Text("thinking"))))
		case "file":
			if url := block.Text("url"); url != "" {
				parts = append(parts, rows.Of("type", "file", "mediaType", block.Text("mediaType"), "url", url))
			}
		}
	}
	return parts
}

// agentdbgResponseParts returns the parts of a response. A response in no known form is a data
// part.
func agentdbgResponseParts(response json.RawMessage) []rows.Object {
	if response == nil || string(response) == "null" {
		return nil
	}
	if parts := agentdbgKnownResponse(response, 0); parts != nil {
		return parts
	}
	return []rows.Object{rows.DataPart(agentdbgDataResponse, response)}
}

func agentdbgKnownResponse(response json.RawMessage, depth int) []rows.Object {
	const maximum = 4 // that choices, message and content nest
	if s, ok := rows.Text(response); ok {
		return []rows.Object{rows.TextPart("text", s)}
	}
	if parts := agentdbgContentParts(response); parts != nil || depth == maximum {
		return parts
	}
	var parts []rows.Object
	for _, message := range rows.Elements(response) {
		parts = append(parts, agentdbgKnownResponse(message, depth+1)...)
	}
	o, err := rows.Parse(response)
	if err != nil {
		return parts
	}
	if s := cmp.Or(o.Text("reasoning_content"), o.Text("reasoning"), o.Text("thinking")); s != "" {
		parts = append(parts, rows.TextPart("reasoning", s))
	}
	for _, key := range []string{"content", "text"} {
		if inner := agentdbgKnownResponse(o.Get(key), depth+1); inner != nil {
			return append(parts, inner...)
		}
	}
	inner := o.Get("message")
	if choices := rows.Elements(o.Get("choices")); len(choices) > 0 {
		inner = choices[0]
	}
	if inner != nil {
		parts = append(parts, agentdbgKnownResponse(inner, depth+1)...)
	}
	return parts
}

// agentdbgOverlap returns how many of a prompt's user messages are known: the longest beginning of
// asked that is an end of known. So neither a prompt that repeats the whole history nor
// one that lost its start repeats a message.
func agentdbgOverlap(known, asked []agentdbgSaid) int {
	for n := min(len(known), len(asked)); n > 0; n-- {
		if slices.EqualFunc(known[len(known)-n:], asked[:n], agentdbgSaid.equal) {
			return n
		}
	}
	return 0
}
