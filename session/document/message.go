package document

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/tidwall/gjson"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

func (b *builder) read(row *session.MessageAndParts) *Message {
	r := &row.Message
	m := &Message{ID: r.ID, Role: r.Role, HiddenAt: r.HiddenAt, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
		Calls: b.callsByMessage[r.ID]}
	meta, problems := readMetadata(r.MetadataJSON)
	m.Problems = problems
	trace := &meta.Trace
	m.Model, m.Agent, m.SystemPromptDigest, m.Trigger = meta.Model, meta.Agent, meta.SystemPromptDigest, meta.Trigger
	m.Copied = b.transcript.Session.Copied(r.CreatedAt)
	m.HiddenAt = cmp.Or(m.HiddenAt, meta.HiddenAt)
	m.QueuedAt, m.CanceledAt = meta.QueuedAt, meta.CanceledAt
	m.TurnIndex, m.Temperature, m.UsageBasis = trace.TurnIndex, trace.Temperature, trace.UsageBasis
	m.DurationMS, m.ModelCalls, m.StopReason = trace.DurationMS, trace.ModelCalls, trace.StopReason
	m.steps = trace.Steps
	m.EndReason, m.Error, m.ToolCatalogDigest = trace.EndReason, trace.Error, trace.ToolCatalogDigest
	m.ModelErrors = trace.ModelErrors
	m.Problems = append(m.Problems, trace.Problems...)
	m.incomplete, m.history = trace.Incomplete, trace.History
	switch {
	case r.Role != session.RoleAssistant:
	case trace.Incomplete:
		m.State = StateIncomplete
	case trace.PendingApproval:
		m.State = StateWaiting
	default:
		m.State = ends[trace.EndReason]
	}

	m.Parts = make([]*Part, 0, len(row.Parts))
	step := 0
	for i := range row.Parts {
		p := b.part(&row.Parts[i])
		switch {
		case p.Kind == KindStep:
			// Some sources mark the beginning of every step, some only what is between two.
			if step == 0 && len(m.Parts) > 0 {
				step = 1
			}
			step++
			p.Step = step
		case p.Kind == KindCompaction && m.Compaction == nil:
			m.Compaction = p.compaction
			continue // the message is the marker
		}
		m.Parts = append(m.Parts, p)
	}
	if meta.Compaction && m.Compaction == nil {
		m.Compaction = new(Compaction)
		m.Problems = append(m.Problems, "the summary is missing")
	}
	marker := row.IsMarker()
	tokens := meta.Tokens(r.Role, marker)
	m.Usage, m.CostUSD, m.counted = tokens.Used, tokens.CostUSD, tokens
	if c := m.Compaction; c != nil {
		m.Marker = marker || meta.Compaction
		counts := struct {
			Trace *CompactionCounts `json:"agenttrace"`
		}{&c.CompactionCounts}
		_ = json.Unmarshal([]byte(r.MetadataJSON), &counts) // readMetadata reports what is wrong
		if c.SummaryTokens == 0 && m.Marker {
			c.SummaryTokens = tokens.Context.Input
		}
	}
	return m
}

// metadata is a message's metadata_json as far as it is understood.
type metadata struct {
	session.MessageMetadata
	Trigger    *Trigger `json:"trigger"`
	HiddenAt   *int64   `json:"hidden_at"`
	QueuedAt   *int64   `json:"queued_at"`
	CanceledAt *int64   `json:"queue_canceled_at"`
}

// readMetadata reads each key for itself, so that one of the wrong kind spoils no other.
func readMetadata(text string) (m metadata, problems []string) {
	if jsonv2.Unmarshal([]byte(text), &m) != nil { // three times as fast: an outline reads all messages of a session
		m = metadata{}
		var keys map[string]json.RawMessage
		if text != "" && json.Unmarshal([]byte(text), &keys) != nil {
			return m, []string{"metadata_json is no JSON object"}
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if json.Unmarshal(assemble([]string{key}, []json.RawMessage{keys[key]}), &m) != nil {
				problems = append(problems, "metadata_json."+key+" has the wrong kind")
			}
		}
	}
	if session.Deref(m.Model) == (session.Model{}) {
		m.Model = nil
	}
	return m, problems
}

// Kind is what a part is to its reader.
type Kind string

// Kinds of parts.
const (
	KindText      Kind = "text"
	KindReasoning Kind = "reasoning"
	KindTool      Kind = "tool"
	KindFile      Kind = "file"
	KindSource    Kind = "source"
	// KindStep is the boundary before a further call of the model.
	KindStep       Kind = "step"
	KindCompaction Kind = "compaction"
	// KindData is a data part of the host, or anything else.
	KindData Kind = "data"
)

// Part is one part of a message. Which fields are set follows from Kind.
type Part struct {
	ID    string `json:"id"`
	Index int64  `json:"index"`
	// Type is the AI SDK type as stored.
	Type string `json:"type"`
	Kind Kind   `json:"kind"`

	// Text is that of text and reasoning.
	Text string `json:"text,omitempty"`
	// Streaming reports that more text was to come when the part was last seen.
	Streaming bool `json:"streaming,omitempty"`
	// Truncated reports that the end of the text was lost on the way.
	Truncated bool `json:"truncated,omitempty"`

	Tool   *ToolCall `json:"tool,omitempty"`
	File   *File     `json:"file,omitempty"`
	Source *Source   `json:"source,omitempty"`

	// Step counts the steps of a message from 1.
	Step int `json:"step,omitempty"`

	// Data is the content of a data part, or a part that could not be read.
	Data json.RawMessage `json:"data,omitempty"`

	Annotations []Annotation `json:"annotations,omitempty"`

	CreatedAt int64 `json:"created_at"`
	UpdatedAt int64 `json:"updated_at"`

	compaction *Compaction
}

// File is a file part. A data: URL is not carried along, it may be megabytes; Size is the length of what it holds.
type File struct {
	Name      string `json:"name,omitempty"`
	MediaType string `json:"media_type"`
	URL       string `json:"url,omitempty"`
	Size      *int   `json:"size,omitempty"`
	// Omitted is how many bytes it had that were not stored.
	Omitted int64 `json:"omitted_bytes,omitempty"`

	content string
}

// Content is the data: URL of a file that is in the session, "" of another.
func (f *File) Content() string { return f.content }

// Source is a page or document that the model cites.
type Source struct {
	ID    string `json:"id,omitempty"`
	Title string `json:"title,omitempty"`
	URL   string `json:"url,omitempty"`
	Name  string `json:"name,omitempty"`
}

// ToolCall is a call of a tool.
type ToolCall struct {
	Name   string `json:"name"`
	CallID string `json:"call_id,omitempty"`
	// State is the AI SDK's state; of a stub, the last one that the turn saw.
	State string `json:"state"`

	// Stub reports that the span of the call never came: there is no input and no output because they never arrived.
	Stub bool `json:"stub,omitempty"`

	// Input and Output are JSON, absent when the part has none.
	Input  json.RawMessage `json:"input,omitempty"`
	Output json.RawMessage `json:"output,omitempty"`
	// Error is what the model got when the call failed.
	Error     string `json:"error,omitempty"`
	ErrorType string `json:"error_type,omitempty"`
	// PartialOutput is what a failed call had put out.
	PartialOutput json.RawMessage `json:"partial_output,omitempty"`
	// Withheld reports that the call succeeded, and its source does not report the output,
	// InputWithheld that it does not report the input.
	Withheld      bool `json:"withheld,omitempty"`
	InputWithheld bool `json:"input_withheld,omitempty"`

	// StartedAt is when the execution began, in Unix milliseconds, if that is not when the
	// call was announced. DurationMS is that of the execution.
	StartedAt  int64  `json:"started_at,omitempty"`
	DurationMS *int64 `json:"duration_ms,omitempty"`
	// InferredDuration reports that no source states DurationMS: see [session.ToolTrace].
	InferredDuration bool `json:"-"`
	// ACPKind is what the tool does, in the words of the Agent Client Protocol.
	ACPKind string `json:"acp_kind,omitempty"`
	// Truncated reports that only a part of the output is there, RecordCut that the model had all of it all the same;
	// OutputPath is where the whole is.
	Truncated        bool   `json:"truncated,omitempty"`
	RecordCut        bool   `json:"record_cut,omitempty"`
	OutputPath       string `json:"output_path,omitempty"`
	OutputSize       int64  `json:"output_size,omitempty"`
	OutputSHA256     string `json:"output_sha256,omitempty"`
	Denied           bool   `json:"denied,omitempty"`
	ProviderExecuted bool   `json:"provider_executed,omitempty"`
	Dynamic          bool   `json:"dynamic,omitempty"`
	ChildSessionID   string `json:"child_session_id,omitempty"`

	Approval *session.Approval `json:"approval,omitempty"`
	// Decisions are the permission decisions about this call, in order.
	Decisions []Decision `json:"decisions,omitempty"`
	// ActiveRules are the session's rules that were in force when the call was made, as far as the session still has
	// them: a rule that was taken back later is not in the session's row.
	ActiveRules []session.Rule `json:"active_rules,omitempty"`

	Problems []string `json:"problems,omitempty"`
}

// Failed reports whether the call failed: see [session.CallFailed].
func (c *ToolCall) Failed() bool { return session.CallFailed(c.State, c.Denied) }

// Failures counts the failures of the message besides those of its tool calls: see [session.Failures].
func (m *Message) Failures() int {
	if m.Role != session.RoleAssistant {
		return 0
	}
	return session.Failures(m.EndReason, m.ModelErrors)
}

// StepCalls are the model calls of each step of the message, in order, and after those the ones that no step is of. It
// is known which they are if every call began a step, or those that failed were tried again within theirs; otherwise
// each call is taken for one of a step.
func (m *Message) StepCalls() (of [][]ModelCall, known bool) {
	steps, answered := 1, 0
	for _, p := range m.Parts {
		steps = max(steps, p.Step)
	}
	for i := range m.Calls {
		if !m.Calls[i].Failed {
			answered++
		}
	}
	again := len(m.Calls) != steps && answered == steps
	return runsOf(m.Calls, func(before, _ ModelCall) bool { return again && before.Failed }),
		again || len(m.Calls) == steps
}

// Open reports that the call had not ended when it was last seen.
func (c *ToolCall) Open() bool {
	return c.State == "" || session.StateRank(c.State) < session.StateRank(session.StateOutputAvailable) && !c.Denied
}

func (b *builder) part(row *session.Part) *Part {
	p := &Part{ID: row.ID, Index: row.Index, Type: row.Type, CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt}
	d, err := session.ParseUIPart(row.DataJSON)
	if err != nil {
		// A field of the wrong kind leaves the others set; what is no object has none.
		if _, kind := errors.AsType[*json.UnmarshalTypeError](err); !kind ||
			!strings.HasPrefix(strings.TrimSpace(row.DataJSON), "{") {
			p.Kind, p.Data = KindData, quoted(row.DataJSON)
			return p
		}
	}
	switch {
	case row.Type == "text", row.Type == "reasoning":
		p.Kind, p.Text, p.Streaming, p.Truncated = Kind(row.Type), session.Deref(d.Text), d.State == "streaming",
			d.Trace().Truncated
	case row.Type == "step-start":
		p.Kind = KindStep
	case row.Type == "file":
		p.Kind, p.File = KindFile, file(&d)
	case row.Type == "source-url", row.Type == "source-document":
		p.Kind, p.Source = KindSource, &Source{ID: session.Deref(d.SourceID), Title: d.Title, URL: session.Deref(d.URL),
			Name: d.Filename}
	case row.Type == session.TypeCompaction:
		p.Kind = KindCompaction
		c, _ := session.ParseCompaction(row.DataJSON) // an object that reports nothing is an empty summary
		p.compaction = &Compaction{Summary: c.Summary, TailStartID: session.Deref(c.TailStartID), Auto: c.Auto,
			SummaryTokens: c.SummaryTokens}
	case session.IsToolType(row.Type):
		p.Kind, p.Tool = KindTool, b.tool(row, &d)
	default:
		p.Kind, p.Data = KindData, d.Data
		if p.Data == nil {
			p.Data = json.RawMessage(row.DataJSON)
		}
	}
	return p
}

// file keeps the name of a file and what is known of its content.
func file(d *session.UIPart) *File {
	f := &File{Name: d.Filename, MediaType: d.MediaType, URL: session.Deref(d.URL)}
	switch head, _, ok := strings.Cut(f.URL, ","); {
	case f.URL == "":
		f.Omitted = d.Trace().Size
	case !ok || !strings.HasPrefix(head, "data:"):
	case strings.Contains(f.URL, redact.TruncatedMarker+"["):
		f.URL, f.Omitted = head+",…", d.Trace().Size*3/4 // that of the address
	default:
		f.Size, f.content, f.URL = new(session.DataURLSize(f.URL)), f.URL, head+",…"
	}
	return f
}

func (b *builder) tool(row *session.Part, d *session.UIPart) *ToolCall {
	x := &d.ToolMetadata.Trace
	c := &ToolCall{
		Name: session.ToolName(row.Type, d.ToolName), CallID: cmp.Or(d.ToolCallID, session.Deref(row.ToolCallID)),
		State: cmp.Or(d.State, session.Deref(row.ToolState)),
		Stub:  x.Stub, Input: d.Input, Output: d.Output, Error: session.Deref(d.ErrorText),
		ErrorType: x.ErrorType, StartedAt: x.StartedAt, DurationMS: x.DurationMS, InferredDuration: x.Inferred,
		ACPKind:   x.Kind,
		Truncated: x.Truncated, OutputPath: x.OutputPath, OutputSize: x.OutputSize, OutputSHA256: x.OutputSHA256,
		ProviderExecuted: d.ProviderExecuted, Dynamic: row.Type == "dynamic-tool", ChildSessionID: x.ChildSessionID,
		Approval: d.Approval, Problems: x.Problems,
	}
	if c.Input == nil {
		c.Input = d.RawInput
	}
	if x.Stub {
		c.State = cmp.Or(x.State, c.State)
	}
	c.Denied = session.CallDenied(c.State, x.Denied)
	c.PartialOutput = partialOutput(d)
	if c.Withheld = x.Withheld; c.Withheld {
		c.Output = nil // the null that is in its place
	}
	if c.InputWithheld = x.InputWithheld; c.InputWithheld {
		c.Input = nil
	}
	c.envelope()
	c.Decisions = append(c.Decisions, b.decisionsByPart[row.ID]...)
	if c.CallID != "" {
		c.Decisions = append(c.Decisions, b.decisionsByCall[c.CallID]...)
	}
	at := row.CreatedAt
	l := b.spansByPart[row.ID]
	if l != nil {
		at = max(at, l.StartNano/1e6)
	}
	// An agent that cuts an output for the model states where the whole is, or states it by the SDK.
	c.RecordCut = c.Truncated && c.OutputPath == "" && (l != nil && l.Dialect != store.DialectSDK ||
		strings.Contains(string(d.Output)+c.Error+x.PartialOutput, redact.TruncatedMarker+"["))
	for _, rule := range b.doc.Session.Rules {
		if rule.AddedAt <= at {
			c.ActiveRules = append(c.ActiveRules, rule)
		}
	}
	return c
}

func partialOutput(d *session.UIPart) json.RawMessage {
	switch text := d.ToolMetadata.Trace.PartialOutput; {
	case json.Valid([]byte(text)):
		return json.RawMessage(text)
	case text != "":
		return quoted(text)
	}
	return nil
}

// envelope reads what the guide's result envelope reports of a call, where the
// output is one: {type:"output", data, metadata:{duration_ms, truncated, output_path}}.
func (c *ToolCall) envelope() {
	if kind := gjson.GetBytes(c.Output, "type").String(); kind != "output" && kind != "error" {
		return
	}
	of := gjson.GetBytes(c.Output, "metadata")
	if ms := of.Get("duration_ms"); c.DurationMS == nil && ms.Type == gjson.Number {
		c.DurationMS = new(ms.Int())
	}
	c.Truncated = c.Truncated || of.Get("truncated").Bool()
	c.OutputPath = cmp.Or(c.OutputPath, of.Get("output_path").String())
}

// parseCatalog reads a tool catalog, in the shapes in which they are sent: a list of {name} or {function:{name}} or
// {functionDeclarations:[…]} or {tools:[…]}, a namespace, or names, or an object by name.
func parseCatalog(body string) (tools []Tool) {
	if !gjson.Valid(body) {
		return nil
	}
	catalog := gjson.Parse(body)
	catalog.ForEach(func(key, e gjson.Result) bool {
		name, function := e.Get("name").String(), e.Get("function")
		switch several := append(e.Get("functionDeclarations").Array(), e.Get("tools").Array()...); {
		case catalog.IsObject():
			tools = append(tools, toolOf(key.String(), e))
		case e.Type == gjson.String:
			tools = append(tools, toolOf(e.String(), e))
		case len(several) > 0:
			for _, e := range several {
				tools = append(tools, toolOf(e.Get("name").String(), e))
			}
		case name == "" && function.Get("name").String() != "":
			t := toolOf(function.Get("name").String(), function)
			t.Description = cmp.Or(t.Description, e.Get("description").String())
			tools = append(tools, t)
		default:
			tools = append(tools, toolOf(cmp.Or(name, e.Get("id").String(), e.Get("type").String()), e))
		}
		return true
	})
	return slices.DeleteFunc(tools, func(t Tool) bool { return t.Name == "" })
}

func toolOf(name string, e gjson.Result) Tool {
	t := Tool{Name: name, Description: e.Get("description").String()}
	for _, key := range []string{"inputSchema", "input_schema", "parametersJsonSchema", "parameters"} {
		if schema := e.Get(key); schema.IsObject() {
			if wrapped := schema.Get("jsonSchema"); wrapped.IsObject() { // as the AI SDK's jsonSchema() prints
				schema = wrapped
			}
			t.InputSchema = json.RawMessage(schema.Raw)
			break
		}
	}
	return t
}

// Annotation is a tag, a note or a score. Its texts are as they are stored.
type Annotation struct {
	ID string `json:"id"`
	// Kind is tag, note or score; Name is that of a tag or a score, Value that of a score, and Label one's or that of a
	// tag which makes the target a case: see package gate.
	Kind  string   `json:"kind"`
	Name  string   `json:"name,omitempty"`
	Value *float64 `json:"value,omitempty"`
	Label string   `json:"label,omitempty"`
	// Comment is the text of a note, or a remark on a tag or a score.
	Comment string `json:"comment,omitempty"`
	Author  string `json:"author,omitempty"`
	// MessageID and PartID are what it was made of. An annotation that is shown at the session and has them has lost
	// its target.
	MessageID string `json:"message_id,omitempty"`
	PartID    string `json:"part_id,omitempty"`
	// CreatedAt and UpdatedAt are in Unix milliseconds.
	CreatedAt int64 `json:"created_at"`
	UpdatedAt int64 `json:"updated_at"`
}

// AnnotationOf is what readers see of a row of annotations.
func AnnotationOf(n *store.Annotation) Annotation {
	a := Annotation{
		ID: n.ID, Kind: n.Kind, Name: n.Name, Comment: n.Comment, Author: n.Author,
		MessageID: n.MessageID, PartID: n.PartID, CreatedAt: n.CreatedAt, UpdatedAt: n.UpdatedAt, Label: n.Label,
	}
	if n.Kind == store.AnnotationScore {
		a.Value = n.Value
	}
	return a
}

// AnnotationsBySession are the annotations of rows that are not undone, by their sessions.
func AnnotationsBySession(rows []store.Annotation) map[string][]Annotation {
	all := make(map[string][]Annotation)
	for i := range rows {
		if n := &rows[i]; n.DeletedAt == nil {
			all[n.SessionID] = append(all[n.SessionID], AnnotationOf(n))
		}
	}
	return all
}

// AnnotationsOf are the annotations of rows that are not undone.
func AnnotationsOf(rows []store.Annotation) []Annotation {
	all := []Annotation{}
	for i := range rows {
		if rows[i].DeletedAt == nil {
			all = append(all, AnnotationOf(&rows[i]))
		}
	}
	return all
}

// Short is a tag's name, a score as name=value, name=label or name=value label, or the text of a note.
func (a *Annotation) Short() string {
	switch {
	case a.Kind == store.AnnotationNote:
		return a.Comment
	case a.Value != nil:
		return strings.TrimSpace(a.Name + "=" + strconv.FormatFloat(*a.Value, 'g', -1, 64) + " " + a.Label)
	case a.Label != "":
		return a.Name + "=" + a.Label
	}
	return a.Name
}

// Text is the annotation in a line: Short, the remark and the author.
func (a *Annotation) Text() string { return phrases.Text("annotation", a) }

// Annotated returns the texts of annotations in words: the tags together, then a line for each score and note. The
// texts are not sanitized.
func Annotated(all []Annotation) (lines []string) {
	var tags []string
	for i := range all {
		if a := &all[i]; a.Kind == store.AnnotationTag {
			tags = append(tags, a.Text())
		} else {
			lines = append(lines, a.Kind+": "+a.Text())
		}
	}
	if len(tags) > 0 {
		lines = slices.Insert(lines, 0, "tags: "+strings.Join(tags, ", "))
	}
	return lines
}

// AnnotationPlaces are annotations by what they are shown at.
type AnnotationPlaces struct {
	Session []Annotation
	// Messages are by id, and have those of the messages' parts that are gone. Parts are by id.
	Messages, Parts map[string][]Annotation
}

// PlaceAnnotations returns where the annotations are shown that are not undone: at their part, or else at their
// message, or else at the session, depending on what of it is there.
func PlaceAnnotations(t *session.Transcript, all []store.Annotation) AnnotationPlaces {
	places := AnnotationPlaces{Messages: make(map[string][]Annotation), Parts: make(map[string][]Annotation)}
	if len(all) == 0 {
		return places
	}
	messages, parts := make(map[string]bool), make(map[string]bool)
	for i := range t.Messages {
		messages[t.Messages[i].Message.ID] = true
		for j := range t.Messages[i].Parts {
			parts[t.Messages[i].Parts[j].ID] = true
		}
	}
	all = inOrder(all)
	for i := range all {
		n := &all[i]
		switch a := AnnotationOf(n); {
		case n.DeletedAt != nil:
		case n.PartID != "" && parts[n.PartID]:
			places.Parts[n.PartID] = append(places.Parts[n.PartID], a)
		case n.MessageID != "" && messages[n.MessageID]:
			places.Messages[n.MessageID] = append(places.Messages[n.MessageID], a)
		default:
			places.Session = append(places.Session, a)
		}
	}
	return places
}

// inOrder returns the annotations as readers see them: scores, tags and notes, each by name, then time. Ids depend on
// the id of the session, so they decide only between annotations that are alike in all of that.
func inOrder(all []store.Annotation) []store.Annotation {
	kinds := []store.AnnotationKind{store.AnnotationScore, store.AnnotationTag, store.AnnotationNote}
	return session.SortedRows(all, func(a, b *store.Annotation) int {
		return cmp.Or(cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)),
			strings.Compare(a.Name, b.Name), store.CompareAnnotations(a, b))
	})
}

// annotate puts annotations at the session, the turns and the parts. Those of a queued message are the session's.
func (b *builder) annotate() {
	places := PlaceAnnotations(b.transcript, b.in.Annotations)
	b.doc.Session.Annotations = places.Session
	take := func(m *Message, of *[]Annotation) {
		*of = append(*of, places.Messages[m.ID]...)
		for _, p := range m.Parts {
			p.Annotations = places.Parts[p.ID]
		}
	}
	for t, m := range b.doc.Messages() {
		take(m, &t.Annotations)
	}
	for _, m := range b.doc.Queued {
		take(m, &b.doc.Session.Annotations)
	}
}
