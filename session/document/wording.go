package document

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
)

// Words put a document into words. The zero value cuts what is long and writes times in UTC.
type Words struct {
	// Full cuts nothing.
	Full bool
	// Zone is that of the times; nil is UTC.
	Zone *time.Location
	// Files are the side files that come with the transcript, by the path that the
	// session has for them: the path to link to.
	Files map[string]string
}

// SessionWords are a session in words: what is named how, what is folded, what is cut. Terminal, Markdown, HTML and
// pages lay them out.
//
// Every string is fit to be shown: control characters, and those that reorder or hide text, are made visible. None is
// escaped for a markup.
type SessionWords struct {
	Title  string
	Head   []Field
	Rules  []string
	Turns  []TurnWords
	Queued []MessageWords
	// Usage is a table: its titles, its rows and their sum, which is the last row. Only the first column is text. It is
	// empty where nothing was counted.
	Usage [][]string
	// Texts are what turns name by their digest.
	Texts []Section
	// Decisions are those that belong to no call.
	Decisions []string
	Children  []Field
	// Files are the side files that the session refers to.
	Files []SideFile
}

// TurnWords are a turn in words.
type TurnWords struct {
	*Turn
	// Missing reports what is missing before the turn, or of it.
	Missing []string
	// Facts are its sums, Notes its annotations.
	Facts, Notes []string
	Messages     []MessageWords
}

// MessageWords are a message in words.
type MessageWords struct {
	*Message
	// Name is its role, or what else it is; Began is when.
	Name, Began string
	// Ended is one word where the message did not just finish.
	Ended string
	Facts []string
	// Summary is that of a compaction, and Compacted how it came about and what it made of the context.
	Summary   string
	Compacted []string
	Blocks    []Block
	Errors    []string
	Doubts    []string
	Links
}

// Links are what pages that lead to each other have of a message or a block besides. They are empty in a file.
type Links struct {
	// ElementID is the id of the element, and Span the address of the span.
	ElementID, Span string
	// Time is when a message began as in ISO 8601, and ErrorIDs are the ids of the elements of its errors.
	Time     string
	ErrorIDs []string
	// Self is the address of the page of a block, and Next that of the next call or answer that
	// failed or was denied if this one did.
	Self, Next string
	// Colored reports that code has colors. Of values, only pages of one part have the time for it.
	Colored bool
	// Long is the head of a text that is too long to be shown as a whole, "" of others.
	Long string
	// Child is the session that a call started, and ChildLink the address of its page.
	Child     *Child
	ChildLink string
}

// Session puts a session into words.
func (w Words) Session(d *Document) SessionWords {
	s := SessionWords{Title: Line(Name(d.Session.Title, d.Session.Opening)), Head: w.Head(d), Usage: usageTable(d),
		Queued: w.Messages(d.Queued), Texts: w.texts(d)}
	for _, r := range d.Session.Rules {
		s.Rules = append(s.Rules, RuleWords(&r))
	}
	for _, t := range d.Turns {
		s.Turns = append(s.Turns, w.Turn(t))
	}
	for _, x := range d.OtherDecisions() {
		text, _ := DecisionText(&x)
		s.Decisions = append(s.Decisions, Line(x.ToolID+": "+text))
	}
	for _, c := range d.Children {
		s.Children = append(s.Children, Field{Line(c.SessionID), c.Words()})
	}
	for c := range d.ToolCalls() {
		f := SideFile{Line(c.OutputPath), w.Files[c.OutputPath]}
		if c.OutputPath != "" && !slices.Contains(s.Files, f) {
			s.Files = append(s.Files, f)
		}
	}
	return s
}

// Turn puts a turn into words.
func (w Words) Turn(t *Turn) TurnWords {
	words := TurnWords{Turn: t, Missing: t.Gaps(), Facts: phrases.Facts("turn", t), Notes: annotated(t.Annotations),
		Messages: w.Messages(t.Messages)}
	if t.QuestionMissing {
		words.Missing = append(words.Missing, "the question of this turn never arrived")
	}
	for i, text := range t.FailedCompactions {
		words.Messages = append(words.Messages, MessageWords{Name: "Compaction", Ended: string(StateError),
			Message: &Message{ID: fmt.Sprint("compaction-", t.Number, "-", i)}, Errors: []string{Sanitize(text)}})
	}
	return words
}

// Messages puts messages into words.
func (w Words) Messages(all []*Message) (words []MessageWords) {
	for _, m := range all {
		words = append(words, w.message(m))
	}
	return words
}

func (w Words) message(m *Message) MessageWords {
	words := MessageWords{Message: m, Name: Line(m.Role), Began: w.Time(m.CreatedAt),
		Facts: phrases.Facts("message", timed{w, m})}
	if m.State != StateFinished {
		words.Ended = string(m.State)
	}
	if m.Compaction != nil {
		words.Name, words.Compacted, words.Summary = "Compaction", m.Compaction.Words(),
			Sanitize(m.Compaction.Summary)
	}
	for i, p := range m.Parts {
		if i > 0 || p.Kind != KindStep { // that a message begins needs no saying
			words.Blocks = append(words.Blocks, w.Block(p))
		}
		if lines := annotated(p.Annotations); len(lines) > 0 {
			words.Blocks = append(words.Blocks, Block{Kind: BlockProse, Facts: lines})
		}
	}
	for _, text := range m.ModelErrors {
		words.Errors = append(words.Errors, "model call: "+Sanitize(text))
	}
	words.Errors = append(words.Errors, Present(Sanitize(m.Error))...)
	for _, problem := range m.Problems {
		words.Doubts = append(words.Doubts, "problem in the telemetry: "+Line(problem))
	}
	return words
}

// Field is a name and its value.
type Field struct{ Name, Value string }

// Section is a text under a title.
type Section struct {
	Title string
	Text  Text
}

// SideFile is a file that comes with a session. Link is empty where it does not come with the transcript.
type SideFile struct{ Path, Link string }

// Kinds of a Block.
const (
	BlockProse     = "prose"
	BlockReasoning = "reasoning"
	BlockTool      = "tool"
	BlockStep      = "step"
	BlockReference = "reference"
	BlockData      = "data"
)

// Block is a part of a message in words.
type Block struct {
	Kind string
	// Part is what the block shows, nil of a note about the part before.
	Part  *Part
	Title string
	// Subject is what a tool call is about, in a line; empty where nothing names it.
	Subject string
	// Outcome is what became of a tool call, in one word.
	Outcome string
	Facts   []string
	// Text is that of prose and reasoning, as it was written: Markdown, mostly.
	Text      string
	Sections  []Section // of tools and data
	Decisions []string
	// Images are the pictures of a file, or among the output of a tool.
	Images []Media
	// Link is an address that begins with http:// or https://, or a path of a side file.
	Link string
	Links
}

// Text is a text that may have been cut.
type Text struct {
	Body string
	// Cut reports what was left out; empty when nothing was.
	Cut string
}

// What is longer is cut, unless all is wanted.
const (
	maxLines   = 80
	maxBytes   = 8 << 10
	maxSubject = 120
)

// About is what is known of the session besides its sums.
func (w Words) About(s *Session) []Field { return phrases.Fields("about", timed{w, s}) }

// Head are the facts of the session.
func (w Words) Head(d *Document) []Field {
	return append(w.About(&d.Session), phrases.Fields("head", timed{w, d})...)
}

func annotated(all []Annotation) (lines []string) {
	for _, text := range Annotated(all) {
		lines = append(lines, Line(text))
	}
	return lines
}

// Words reports how a compaction came about and what it made of the context.
func (c *Compaction) Words() []string { return phrases.Facts("compaction", c) }

// Words are the agent, the state and the title of a session that left another one, and what it used. A run that
// finished may be one that waits for a human.
func (c *Child) Words() string { return Join(phrases.Facts("child", c)...) }

// RuleWords are a rule in words.
func RuleWords(r *session.Rule) string { return phrases.Text("rule", r) }

// OutcomeWords are what became of a call, "" if it succeeded.
func (c *ToolCall) OutcomeWords() string { return phrases.Text("outcome", c) }

// CutWords report that a part of the output is missing, for whom, and where the whole is; "" if neither is known.
func (c *ToolCall) CutWords() string { return phrases.Text("cut", c) }

func usageTable(d *Document) [][]string {
	if tot := &d.Totals; tot.Usage == nil && tot.CopiedUsage == nil && tot.CostUSD == nil {
		return nil
	}
	table := [][]string{append(append([]string{"Turn"}, UsageTitles...), "Cost")}
	rows, sums := d.UsageRows()
	slices.Reverse(sums)
	for i, r := range append(rows, sums...) {
		if r.Number > 0 {
			r.Label = strconv.Itoa(r.Number) + " " + r.Label
		}
		if r.Usage != nil || r.CostUSD != nil || i == len(rows)+len(sums)-1 {
			table = append(table, append(append([]string{Line(r.Label)}, UsageCells(r.Usage)...),
				Cost(r.CostUSD, nil)))
		}
	}
	return table
}

// UsageTitles are the titles of UsageCells.
var UsageTitles = []string{"Input", "Output", "Reasoning", "Cache read", "Cache write", "Total"}

// UsageCells are the cells of the kinds of tokens and of their sum.
func UsageCells(u *session.Usage) []string {
	cells := make([]string, 6)
	if u != nil {
		for i, n := range Buckets(u) {
			cells[i] = Count(n)
		}
	}
	return cells
}

func (w Words) texts(d *Document) (all []Section) {
	add := func(title, body string, known bool) {
		text := Text{Cut: "the text never arrived"}
		if known {
			text = w.clip(Sanitize(body))
		}
		all = append(all, Section{title, text})
	}
	for _, p := range d.SystemPrompts {
		add("System prompt of "+Turns(p.Turns), p.Body, p.Resolved)
	}
	for _, c := range d.ToolCatalogs {
		add(fmt.Sprintf("Tools of %s (%d)", Turns(c.Turns), len(c.Tools)), Pretty([]byte(c.Body)), c.Resolved)
	}
	return all
}

// Block is a part in words.
func (w Words) Block(p *Part) Block {
	b := w.block(p)
	b.Part = p
	return b
}

func (w Words) block(p *Part) Block {
	switch p.Kind {
	case KindText, KindReasoning:
		b := Block{Kind: BlockProse, Text: Sanitize(p.Text)}
		if p.Kind == KindReasoning {
			b.Kind, b.Title = BlockReasoning, "Reasoning"
		}
		if p.Truncated {
			b.Facts = append(b.Facts, "the end was lost on the way")
		}
		if p.Streaming {
			b.Facts = append(b.Facts, "more was to come")
		}
		return b
	case KindTool:
		return w.Call(p.Tool)
	case KindStep:
		return Block{Kind: BlockStep, Title: fmt.Sprintf("Step %d", p.Step)}
	case KindFile:
		f := p.File
		address := f.URL
		if f.Size != nil { // what it holds is in the session
			address = ""
		}
		b := reference(cmp.Or(f.Name, address, "unnamed"), address, phrases.Facts("file", f)...)
		if m, ok := MediaOf(f.Content()); ok && m.IsImage() {
			b.Images = []Media{m}
		}
		return b
	case KindSource:
		src := p.Source
		title := cmp.Or(src.Title, src.Name, src.URL, "Source")
		name := src.Name
		if name == title {
			name = ""
		}
		return reference(title, src.URL, name, src.ID)
	}
	switch p.Type {
	case session.TypeError, session.TypeWithheld, session.TypeUnfinished:
		if why := gjson.GetBytes(p.Data, "text").String(); why != "" {
			return Block{Kind: BlockProse, Facts: []string{Line(why)}}
		}
	}
	return Block{Kind: BlockData, Title: Line(p.Type), Sections: []Section{{"Data", w.clip(Pretty(p.Data))}}}
}

// reference is a link where a browser may be sent to the address, and else has it as a fact.
func reference(title, url string, facts ...string) Block {
	b := Block{Kind: BlockReference, Title: Line(title), Link: url}
	lower := strings.ToLower(url)
	if !strings.HasPrefix(lower, "http://") && !strings.HasPrefix(lower, "https://") || Line(url) != url {
		b.Link = ""
		if url != title {
			facts = append([]string{url}, facts...)
		}
	}
	for _, f := range facts {
		b.Facts = append(b.Facts, Present(Line(f))...)
	}
	return b
}

// Call is a tool call in words.
func (w Words) Call(c *ToolCall) Block {
	b := Block{Kind: BlockTool, Title: Line(cmp.Or(c.Name, Unnamed)), Outcome: c.Outcome(), Link: w.Files[c.OutputPath],
		Facts: phrases.Facts("call", c), Subject: ansi.Truncate(OneLine(c.Subject()), maxSubject, "…")}
	section := func(title, body string) {
		if body != "" {
			b.Sections = append(b.Sections, Section{title, w.clip(body)})
		}
	}
	input, out := Pretty(c.Input), output(c.Output)
	if (input == "" || c.InputWithheld) &&
		session.StateRank(c.State) >= session.StateRank(session.StateOutputAvailable) {
		input = codec.WithheldText
	}
	if c.Withheld {
		out = codec.WithheldText
	}
	section("Input", input)
	section("Output", out)
	b.Images = pictures(c.Output, c.PartialOutput)
	section("Error", Sanitize(c.Error))
	section("Output before the error", output(c.PartialOutput))
	for i := range c.Decisions {
		text, _ := DecisionText(&c.Decisions[i])
		b.Decisions = append(b.Decisions, Line(text))
	}
	if text := ApprovalText(c.Approval); text != "" && len(c.Decisions) == 0 {
		b.Decisions = append(b.Decisions, Line(text))
	}
	return b
}

func (w Words) clip(s string) Text {
	if w.Full {
		return Text{Body: s}
	}
	head := Head(s, maxBytes)
	if lines := strings.SplitN(head, "\n", maxLines+1); len(lines) > maxLines {
		head = strings.Join(lines[:maxLines], "\n")
	}
	if len(s)-len(head) <= len(s)/8 {
		return Text{Body: s} // the end is no longer than what would replace it
	}
	return Text{Body: head, Cut: fmt.Sprintf("%s of %s are left out; a full export has them",
		Bytes(int64(len(s)-len(head))), Bytes(int64(len(s))))}
}

// Time is a time of Unix milliseconds, "" if it is not known.
func (w Words) Time(milli int64) string {
	if !session.Credible(milli) {
		return ""
	}
	return time.UnixMilli(milli).In(cmp.Or(w.Zone, time.UTC)).Format("2006-01-02 15:04:05 MST")
}

// Pretty is JSON as a person reads it: indented, a string as it is. What is no JSON
// stays. In the place of a file is its type and size.
func Pretty(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	raw, _ = TakeMedia(raw)
	var text string
	if raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
		return Sanitize(text)
	}
	v := jsontext.Value(bytes.Clone(raw))
	if v.Format(jsontext.WithIndent("  "), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
		return Sanitize(string(raw))
	}
	return Sanitize(string(v))
}

// output is the output of a tool: an empty one is "(empty)".
func output(raw []byte) string {
	if text := Pretty(raw); text != "" || len(raw) == 0 {
		return text
	}
	return "(empty)"
}
