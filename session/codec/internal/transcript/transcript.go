// Package transcript says in words what a person reads of a session, for the formats
// that are read by people: what stands where, what is folded, what is cut. The formats
// put it into their markup.
//
// Every string is fit to be shown: control characters, and those that reorder or hide
// text, are made visible. None is escaped for a markup.
package transcript

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/printable"
)

// Options say how much is told. The zero value cuts what is long and tells times in
// UTC.
type Options struct {
	// Full cuts nothing.
	Full bool
	// Zone is that of the times; nil is UTC.
	Zone *time.Location
	// Files are the side files that come with the transcript, by the path that the
	// session has for them: the path to link to.
	Files map[string]string
}

// Document is a session.
type Document struct {
	Title string
	// Head are the facts of the session, Rules its permission rules.
	Head  []Field
	Rules []string
	Turns []Turn
	// Queued are messages that no turn has begun with.
	Queued []Message
	// Usage is a table: its titles, its rows and the sums, which are the last row.
	// Only the first column is text. It is empty where nothing was counted.
	Usage [][]string
	// Prompts and Catalogs are what turns name by their digest.
	Prompts, Catalogs []Section
	// Decisions are those that belong to no call.
	Decisions []string
	Children  []Field
	// Files are the side files that the session refers to.
	Files []File
}

// Field is a name and what it says.
type Field struct{ Name, Value string }

// Section is a text under a title.
type Section struct {
	Title string
	Text  Text
}

// File is a side file. Link is empty where it does not come with the transcript.
type File struct{ Path, Link string }

// Turn is a user message and what answers it.
type Turn struct {
	Number  int
	Summary []string
	// Missing says what is missing before the turn, or of it.
	Missing  []string
	Hidden   bool
	Messages []Message
}

// Message is one message.
type Message struct {
	ID   string
	Role string
	Time string
	// State is one word where the message did not just finish; Bad says that it is a
	// failure.
	State      string
	Bad        bool
	Hidden     bool
	Facts      []string
	Compaction *Compaction
	Blocks     []Block
	Errors     []string
	Problems   []string
}

// Compaction is a summary that stands for what was before it.
type Compaction struct {
	Facts   []string
	Summary Text
}

// Kinds of a Block.
const (
	Prose     = "prose"
	Reasoning = "reasoning"
	Tool      = "tool"
	Step      = "step"
	Reference = "reference"
	Data      = "data"
)

// Block is a part of a message.
type Block struct {
	Kind  string
	Title string
	// Subject is what a tool call is about, in a line; empty where nothing says so.
	Subject string
	// Outcome is what became of a tool call, in one word.
	Outcome string
	Facts   []string
	// Text is that of prose and reasoning, as it was written: Markdown, mostly.
	Text      string
	Sections  []Section // of tools and data
	Decisions []string
	// Link is an address that begins with http:// or https://, or a path of a side file.
	Link string
}

// Text is a text that may have been cut.
type Text struct {
	Body string
	// Cut says what was left out; empty when nothing was.
	Cut string
}

// New says in words what the timeline holds. It does not change tl.
func New(tl *document.Document, o Options) *Document {
	w := writer{o: o, tl: tl, files: make(map[string]bool)}
	s := &tl.Session
	d := &Document{Title: line(cmp.Or(s.Title, "Untitled"))}
	add := func(name, value string) {
		if value != "" {
			d.Head = append(d.Head, Field{name, line(value)})
		}
	}
	add("Session", s.ID)
	add("Agent", s.Agent)
	add("Model", modelName(s.Model))
	add("Mode", s.Mode)
	add("Workspace", s.WorkspaceRoot)
	if s.Origin != nil {
		what := "Sub-agent of"
		if s.Origin.Fork {
			what = "Fork of"
		}
		add(what, s.Origin.SessionID)
	}
	add("State", string(s.State))
	add("Error", s.Error)
	add("Began", w.time(s.CreatedAt))
	add("Last change", w.time(s.UpdatedAt))
	add("Turns", turns(&tl.Totals))
	add("Tool calls", calls(&tl.Totals))
	if u := tl.Totals.Usage; u != nil {
		add("Tokens", grouped(u.Total()))
	}
	if tl.Totals.CostUSD != nil {
		add("Cost", dollars(*tl.Totals.CostUSD))
	}
	for i := range s.Rules {
		r := &s.Rules[i]
		d.Rules = append(d.Rules, line(strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Action, r.Permission, r.Pattern))))
	}
	for i := range tl.Turns {
		d.Turns = append(d.Turns, w.turn(&tl.Turns[i]))
	}
	for i := range tl.Queued {
		d.Queued = append(d.Queued, w.message(&tl.Queued[i]))
	}
	d.Usage = usageTable(tl)
	for i := range tl.SystemPrompts {
		p := &tl.SystemPrompts[i]
		d.Prompts = append(d.Prompts, Section{"System prompt of " + numbers(p.Turns), w.resolved(p.Body, p.Resolved)})
	}
	for i := range tl.ToolCatalogs {
		c := &tl.ToolCatalogs[i]
		d.Catalogs = append(d.Catalogs, Section{fmt.Sprintf("Tools of %s (%d)", numbers(c.Turns), len(c.Tools)), w.resolved(pretty([]byte(c.Body)), c.Resolved)})
	}
	for i := range tl.Decisions {
		if x := &tl.Decisions[i]; !w.shown[x.ID] {
			d.Decisions = append(d.Decisions, line(x.ToolID+": "+decision(x)))
		}
	}
	for i := range tl.Children {
		c := &tl.Children[i]
		d.Children = append(d.Children, Field{line(c.SessionID), line(strings.Join(present(c.Title, c.Agent, string(c.State)), " · "))})
	}
	d.Files = w.list
	return d
}

type writer struct {
	o     Options
	tl    *document.Document
	files map[string]bool
	list  []File
	shown map[string]bool // decisions that stand with their call
}

func (w *writer) turn(t *document.Turn) Turn {
	out := Turn{Number: t.Number, Hidden: t.Hidden}
	if m := t.MissingBefore; m != nil {
		out.Missing = append(out.Missing, counted(int(m.Count), "turn")+" before this one never arrived")
	}
	if t.QuestionMissing {
		out.Missing = append(out.Missing, "the question of this turn never arrived")
	}
	out.Summary = present(modelName(t.Model), tokens(t.Usage), duration(t.DurationMS))
	if t.CostUSD != nil {
		out.Summary = append(out.Summary, dollars(*t.CostUSD))
	}
	if t.Hidden {
		out.Summary = append(out.Summary, "rewound")
	}
	for i := range out.Summary {
		out.Summary[i] = line(out.Summary[i])
	}
	for i := range t.Messages {
		out.Messages = append(out.Messages, w.message(&t.Messages[i]))
	}
	return out
}

func (w *writer) message(m *document.Message) Message {
	out := Message{ID: line(m.ID), Role: line(m.Role), Time: w.time(m.CreatedAt), Hidden: m.HiddenAt != nil}
	switch m.State {
	case document.StateUnknown, document.StateFinished:
	default:
		out.State, out.Bad = string(m.State), m.State == document.StateError || m.State == document.StateAborted
	}
	if m.Trigger != nil {
		out.Facts = append(out.Facts, line("triggered by "+m.Trigger.Source))
	}
	if m.CanceledAt != nil {
		out.Facts = append(out.Facts, "canceled before its turn")
	}
	if m.HiddenAt != nil {
		out.Facts = append(out.Facts, "hidden by a rewind at "+w.time(*m.HiddenAt))
	}
	if c := m.Compaction; c != nil {
		out.Compaction = w.compaction(c)
	}
	for i := range m.Parts {
		if i == 0 && m.Parts[i].Kind == document.KindStep {
			continue // that a message begins needs no saying
		}
		out.Blocks = append(out.Blocks, w.block(&m.Parts[i]))
	}
	for _, text := range m.ModelErrors {
		out.Errors = append(out.Errors, "model call: "+printable.Sanitize(text))
	}
	if m.Error != "" {
		out.Errors = append(out.Errors, printable.Sanitize(m.Error))
	}
	for _, p := range m.Problems {
		out.Problems = append(out.Problems, printable.Sanitize(p))
	}
	return out
}

func (w *writer) compaction(c *document.Compaction) *Compaction {
	how := "compacted by its user"
	if c.Auto {
		how = "compacted by the agent"
	}
	facts := []string{how}
	if c.SummarizedMessages > 0 {
		facts = append(facts, counted(int(c.SummarizedMessages), "message"))
	}
	if c.SummaryTokens > 0 {
		facts = append(facts, grouped(c.SummaryTokens)+" tokens of summary")
	}
	if c.TailStartID != "" {
		facts = append(facts, line("kept from "+c.TailStartID))
	}
	return &Compaction{Facts: append(facts, present(duration(c.DurationMS))...), Summary: Text{Body: printable.Sanitize(c.Summary)}}
}

func (w *writer) block(p *document.Part) Block {
	switch p.Kind {
	case document.KindText, document.KindReasoning:
		b := Block{Kind: Prose, Text: printable.Sanitize(p.Text)}
		if p.Kind == document.KindReasoning {
			b.Kind, b.Title = Reasoning, "Reasoning"
		}
		if p.Truncated {
			b.Facts = append(b.Facts, "the end was lost on the way")
		}
		if p.Streaming {
			b.Facts = append(b.Facts, "more was to come")
		}
		return b
	case document.KindTool:
		return w.tool(p.Tool)
	case document.KindStep:
		return Block{Kind: Step, Title: fmt.Sprintf("Step %d", p.Step)}
	case document.KindFile:
		f := p.File
		b := Block{Kind: Reference, Title: line(cmp.Or(f.Name, "File")), Facts: present(line(f.MediaType))}
		if f.Size != nil {
			b.Facts = append(b.Facts, bytesOf(int64(*f.Size)))
		}
		b.Link = webLink(f.URL)
		if b.Link == "" {
			b.Facts = append(b.Facts, present(line(f.URL))...)
		}
		return b
	case document.KindSource:
		s := p.Source
		b := Block{Kind: Reference, Title: line(cmp.Or(s.Title, s.Name, s.URL, "Source")), Link: webLink(s.URL)}
		if b.Link == "" {
			b.Facts = present(line(s.URL))
		}
		return b
	}
	switch p.Type {
	case session.TypeError, session.TypeWithheld, session.TypeUnfinished:
		var why session.Absence
		if json.Unmarshal(p.Data, &why) == nil && why.Text != "" {
			return Block{Kind: Prose, Facts: []string{line(why.Text)}}
		}
	}
	return Block{Kind: Data, Title: line(p.Type), Sections: []Section{{"Data", w.clip(pretty(p.Data))}}}
}

func (w *writer) tool(c *document.ToolCall) Block {
	b := Block{Kind: Tool, Title: line(cmp.Or(c.Name, "unnamed tool")), Subject: short(c.Subject()), Outcome: c.Outcome()}
	b.Facts = present(duration(c.DurationMS), line(c.ACPKind))
	if c.Outcome() == document.OutcomeOpen || c.Stub {
		b.Facts = append(b.Facts, present(line(c.State))...)
	}
	if c.ProviderExecuted {
		b.Facts = append(b.Facts, "run by the provider")
	}
	if c.ChildSessionID != "" {
		b.Facts = append(b.Facts, line("started "+c.ChildSessionID))
	}
	if c.Stub {
		b.Facts = append(b.Facts, "its input and output never arrived")
	}
	section := func(title, body string) {
		if body != "" {
			b.Sections = append(b.Sections, Section{title, w.clip(body)})
		}
	}
	switch input := pretty(c.Input); {
	case (input == "" || c.InputWithheld) && session.StateRank(c.State) >= session.StateRank(session.StateOutputAvailable):
		section("Input", codec.WithheldText)
	default:
		section("Input", input)
	}
	if c.Withheld {
		section("Output", codec.WithheldText)
	} else {
		section("Output", output(c.Output))
	}
	section("Error", printable.Sanitize(strings.Join(present(c.Error), "")))
	section("Output before the error", output(c.PartialOutput))
	if c.Truncated || c.OutputPath != "" {
		note := "the model saw a part of the output"
		if c.OutputSize > 0 {
			note += ", the whole is " + bytesOf(c.OutputSize)
		}
		b.Facts = append(b.Facts, note)
	}
	if c.OutputPath != "" {
		b.Facts = append(b.Facts, line("whole output in "+c.OutputPath))
		b.Link = w.o.Files[c.OutputPath]
		if !w.files[c.OutputPath] {
			w.files[c.OutputPath] = true
			w.list = append(w.list, File{line(c.OutputPath), b.Link})
		}
	}
	for i := range c.Decisions {
		d := &c.Decisions[i]
		if w.shown == nil {
			w.shown = make(map[string]bool)
		}
		w.shown[d.ID] = true
		b.Decisions = append(b.Decisions, line(decision(d)))
	}
	if c.Approval != nil && c.Approval.Approved != nil && len(c.Decisions) == 0 {
		word := "denied"
		if *c.Approval.Approved {
			word = "approved"
		}
		b.Decisions = append(b.Decisions, line(strings.Join(present(word, c.Approval.Reason), ": ")))
	}
	for _, p := range c.Problems {
		b.Facts = append(b.Facts, line("problem: "+p))
	}
	return b
}

// decision tells what a rule said, what a human said to it, and what came of it.
func decision(d *document.Decision) string {
	text := strings.Join(present(d.Action, d.Pattern), " ")
	if d.Source != "" {
		text += " (" + d.Source + ")"
	}
	if d.Reply != "" {
		text += ", human said " + d.Reply
		if d.WaitedMS != nil {
			text += " after " + duration(d.WaitedMS)
		}
	}
	return strings.Join(present(strings.Join(present(text, d.Outcome), " → "), d.Reason), ": ")
}

// pretty is JSON as a person reads it: indented, a string as it is. What is no JSON
// stays.
func pretty(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	var text string
	if raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
		return printable.Sanitize(text)
	}
	v := jsontext.Value(bytes.Clone(raw))
	if v.Format(jsontext.WithIndent("  "), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
		return printable.Sanitize(string(raw))
	}
	return printable.Sanitize(string(v))
}

// output is the output of a tool: an empty one is told.
func output(raw []byte) string {
	if text := pretty(raw); text != "" || len(raw) == 0 {
		return text
	}
	return "(empty)"
}

func modelName(m *session.Model) string {
	if m == nil {
		return ""
	}
	return strings.Join(present(m.ProviderID, m.ModelID, m.Variant), "/")
}
