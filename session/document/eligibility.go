package document

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
)

// Eligibility reports which turns of a session can be rerun: of which everything that the model was given is known. Its
// JSON is a stable format: keys are added, never renamed.
type Eligibility struct {
	SessionID string `json:"session_id"`
	// Eligible reports that every turn that is not hidden is.
	Eligible bool               `json:"eligible"`
	Turns    []*TurnEligibility `json:"turns"`
}

// TurnEligibility reports whether one turn can be rerun.
type TurnEligibility struct {
	// Turn is [Turn.Number].
	Turn   int  `json:"turn"`
	Hidden bool `json:"hidden,omitempty"`
	// MessageID is the user message that the turn begins with, empty where it is lost.
	MessageID string `json:"message_id,omitempty"`
	// Model is the one that answered, or that was to.
	Model       *session.Model `json:"model,omitempty"`
	Temperature *float64       `json:"temperature,omitempty"`
	// Context counts the messages that the model was given, the user's included.
	Context int `json:"context_messages"`
	// Compacted reports that the context begins with a summary.
	Compacted bool `json:"compacted,omitempty"`
	// Eligible reports that nothing is missing.
	Eligible bool      `json:"eligible"`
	Missing  []Missing `json:"missing,omitempty"`
	// Notes are what a request made from the rows may have otherwise than the one that was sent.
	Notes []string `json:"notes,omitempty"`
}

// What of a request can be missing.
const (
	MissingUserMessage  = "user_message"
	MissingModel        = "model"
	MissingSystemPrompt = "system_prompt"
	MissingToolCatalog  = "tool_catalog"
	MissingToolOutput   = "tool_output"
	MissingFile         = "file"
	MissingContent      = "content" // of a message before
	MissingTurnsGone    = "turns"   // that were counted and never arrived
)

// Missing is something that the model was given and that is not known.
type Missing struct {
	What string `json:"what"`
	// MessageID, PartID and ToolCallID state where, as far as there is a row.
	MessageID  string `json:"message_id,omitempty"`
	PartID     string `json:"part_id,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`
	Why        string `json:"why"`
}

// Eligibility checks every turn in which somebody asks or answers: system messages and
// summaries that are before the first question are no turn to ask again.
func (doc *Document) Eligibility() *Eligibility {
	r := &Eligibility{SessionID: doc.Session.ID, Eligible: true}
	checked := make(map[*Message]*TurnEligibility)
	for _, turn := range doc.Turns {
		if !turn.asked() {
			continue
		}
		t := doc.turnReplay(turn.Number, checked)
		r.Turns = append(r.Turns, t)
		r.Eligible = r.Eligible && (t.Eligible || t.Hidden)
	}
	r.Eligible = r.Eligible && len(r.Turns) > 0
	return r
}

// Context returns what the model was given to answer the turn with the number: a summary, if a compaction had taken
// place, then the messages as they stood then, the turn's user message last. What a rewind hid later was there; what it
// had hidden before was not. It is nil where there is no such turn. The messages are the timeline's own.
func (doc *Document) Context(number int) []*Message {
	t := doc.Turn(number)
	if t == nil {
		return nil
	}
	question := t.Question()
	at := cmp.Or(question, t.Messages[0]).CreatedAt
	var before []*Message
	for turn, m := range doc.Messages() {
		if turn.Number > number || turn == t && m.answers() {
			break // markers between the question and its answer cut the context too
		}
		if m.HiddenAt == nil || *m.HiddenAt > at {
			before = append(before, m)
		}
	}
	return compacted(before, question)
}

// compacted is what the latest compaction leaves of the messages.
func compacted(messages []*Message, question *Message) (context []*Message) {
	tail := 0
	for i, m := range messages {
		if m.Compaction != nil {
			context, tail = []*Message{m}, i+1
		}
	}
	if tail > 0 {
		id := context[0].Compaction.TailStartID
		if i := slices.IndexFunc(messages[:tail-1], func(m *Message) bool { return m.ID == id }); i >= 0 {
			tail = i
		}
	}
	context = append(context, only(messages[tail:], func(m *Message) bool { return m.Compaction == nil })...)
	if question != nil && !slices.Contains(context, question) {
		context = append(context, question) // summarized while it was being asked
	}
	return context
}

// Question is the user message that the turn begins with, nil where it is lost.
func (t *Turn) Question() *Message {
	return find(t.Messages, func(m *Message) bool { return m.Role == session.RoleUser })
}

// answers reports that the message is an answer of the model, and no compaction.
func (m *Message) answers() bool { return m.Role == session.RoleAssistant && m.Compaction == nil }

// asked reports that the turn has a question or an answer.
func (t *Turn) asked() bool {
	return slices.ContainsFunc(t.Messages, func(m *Message) bool { return m.Role == session.RoleUser || m.answers() })
}

// TurnEligibility checks the turn with the number, and is nil where there is none.
func (doc *Document) TurnEligibility(number int) *TurnEligibility {
	return doc.turnReplay(number, make(map[*Message]*TurnEligibility))
}

// turnReplay keeps its result for each message in checked: every later turn was given
// it too, and a session may be long.
func (doc *Document) turnReplay(number int, checked map[*Message]*TurnEligibility) *TurnEligibility {
	t := doc.Turn(number)
	if t == nil {
		return nil
	}
	r := &TurnEligibility{Turn: number, Hidden: t.Hidden, Model: t.Model, Temperature: t.Temperature}
	context := doc.Context(number)
	r.Context = len(context)
	question := t.Question()
	if question == nil {
		r.miss(Missing{What: MissingUserMessage, Why: "the turn's user message has not arrived"})
	} else {
		r.MessageID = question.ID
		if r.Model == nil {
			r.Model = question.Model
		}
	}
	if r.Model == nil || r.Model.ModelID == "" {
		r.miss(Missing{What: MissingModel, Why: "no source reports the model"})
	}
	r.prompt(doc, t)
	r.tools(doc, t)
	for _, m := range context {
		of := checked[m]
		if of == nil {
			of = new(TurnEligibility)
			of.message(m)
			checked[m] = of
		}
		r.Missing = append(r.Missing, of.Missing...)
		r.Compacted = r.Compacted || of.Compacted
		for _, note := range of.Notes {
			r.note(note)
		}
	}
	r.gaps(doc, context)
	r.Eligible = len(r.Missing) == 0
	return r
}

// miss adds what is missing, nothing if there is no reason why.
func (r *TurnEligibility) miss(m Missing) {
	if m.Why != "" {
		r.Missing = append(r.Missing, m)
	}
}

func (r *TurnEligibility) note(text string) {
	if !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
}

func (r *TurnEligibility) prompt(doc *Document, t *Turn) {
	p, why := doc.Prompt(t.SystemPromptDigest), ""
	switch {
	case t.SystemPromptDigest == "":
		why = "no source reports the system prompt"
	case p == nil:
	case !p.Resolved:
		why = "the text of the system prompt " + Short(p.Digest) + " has not arrived"
	case p.Damaged:
		why = "the system prompt " + Short(p.Digest) + " arrived damaged"
	default:
		r.redacted(p.Body)
	}
	r.miss(Missing{What: MissingSystemPrompt, Why: why})
}

func (r *TurnEligibility) tools(doc *Document, t *Turn) {
	c, why := doc.Catalog(t.Tools.CatalogDigest), ""
	switch {
	case t.Tools.CatalogDigest == "":
		why = "no source reports the tools"
	case c == nil:
	case !c.Resolved:
		why = "the tool catalog " + Short(c.Digest) + " has not arrived"
	case c.Damaged:
		why = "the tool catalog " + Short(c.Digest) + " arrived damaged"
	case len(c.Tools) == 0 && c.Body != "[]" && c.Body != "{}":
		why = "the tool catalog " + Short(c.Digest) + " cannot be read"
	}
	r.miss(Missing{What: MissingToolCatalog, Why: why})
	var bare []string
	for _, tool := range session.Deref(c).Tools {
		if len(tool.InputSchema) == 0 {
			bare = append(bare, OneLine(tool.Name))
		}
	}
	if len(bare) > 0 {
		r.miss(Missing{What: MissingToolCatalog, Why: "the catalog has no input schema of " + strings.Join(bare, ", ")})
	}
}

func (r *TurnEligibility) message(m *Message) {
	if m.Compaction != nil {
		r.Compacted = true
		r.redacted(m.Compaction.Summary)
		r.miss(Missing{What: MissingContent, MessageID: m.ID, Why: loss("of the summary, ", m.Compaction.Summary)})
		r.note("the context begins with the summary of a compaction; how the agent worded it to the model is not known")
		return
	}
	what := MissingContent
	if m.Role == session.RoleUser {
		what = MissingUserMessage
	}
	if m.incomplete {
		r.miss(Missing{What: what, MessageID: m.ID, Why: "the message has not arrived as a whole"})
	}
	if m.Role == session.RoleUser && len(m.Parts) == 0 {
		r.miss(Missing{What: what, MessageID: m.ID, Why: "the message has no parts: its content has not arrived"})
	}
	next := int64(0)
	for _, p := range m.Parts {
		if n := p.Index - next; n > 0 {
			r.miss(Missing{What: what, MessageID: m.ID, Why: Plural(int(n), "part", "parts") +
				" before part " + strconv.FormatInt(p.Index, 10) + " never arrived"})
		}
		next = max(next, p.Index+1)
		at := Missing{What: what, MessageID: m.ID, PartID: p.ID}
		switch {
		case p.Truncated:
			at.Why = "the end of the text was lost on the way"
		case p.Kind == KindData && (p.Type == "data-damaged" || p.unread()):
			at.Why = "the part arrived damaged"
		case p.Type == session.TypeWithheld:
			at.Why = "the content was withheld"
		case p.File != nil && m.Role == session.RoleUser && !p.File.carried():
			at.What, at.Why = MissingFile, fmt.Sprintf("the content of the file %s is not in the store",
				OneLine(p.File.label()))
		case p.Tool != nil:
			r.call(at, p.Tool)
		default:
			at.Why = loss("of the text, ", p.Text)
		}
		r.miss(at)
		r.redacted(p.Text)
	}
}

// unread reports that the part is of a type that a model is given, and that its row could not be read.
func (p *Part) unread() bool {
	return p.Type == "" || p.Type == "text" || p.Type == "reasoning" || p.Type == "file" || session.IsToolType(p.Type)
}

func (r *TurnEligibility) call(at Missing, c *ToolCall) {
	at.What, at.ToolCallID = MissingToolOutput, c.CallID
	switch name := OneLine(c.Name); {
	case c.Stub:
		at.Why = fmt.Sprintf("the span of the call of %s has not arrived", name)
	case c.Withheld:
		at.Why = fmt.Sprintf("the source does not report the output of %s", name)
	case c.Open():
		at.Why = fmt.Sprintf("the call of %s has no result", name)
	default:
		r.redacted(string(c.Input))
		r.redacted(string(c.Output))
		r.redacted(c.Error)
		out := string(c.Output)
		if c.State == session.StateOutputError {
			out = c.Error
		}
		if out == "" && c.State != session.StateOutputDenied {
			at.Why = fmt.Sprintf("what %s put out is not in the store", name)
			r.miss(at)
		}
		at.What, at.Why = MissingContent, loss("of the input of "+name+", ", string(c.Input))
		r.miss(at)
		at.What, at.Why = MissingToolOutput, loss("of what "+name+" put out, ", out)
	}
	r.miss(at)
}

// loss reports what was done to a value, a text or JSON, when it was stored, "" if it is all there.
func loss(of, value string) string {
	switch {
	case redact.Omitted(strings.Trim(value, `"`)):
		return of + "only the size was stored"
	case strings.Contains(value, redact.TruncatedMarker+"["):
		return of + "a part was cut off when it was stored"
	}
	return ""
}

// redacted notes that a text is not as the model saw it.
func (r *TurnEligibility) redacted(text string) {
	if strings.Contains(text, "[redacted:") {
		r.note("secrets were taken out of the context; the model saw them")
	}
}

// gaps finds what never arrived between the messages of the context: whole turns, and
// what the user asked in one of which the answer is there.
func (r *TurnEligibility) gaps(doc *Document, context []*Message) {
	given := make(map[*Message]bool, len(context))
	for _, m := range context {
		given[m] = true
	}
	seen := false
	for _, t := range doc.Turns {
		isGiven := slices.ContainsFunc(t.Messages, func(m *Message) bool { return given[m] })
		if seen || isGiven && !r.Compacted {
			if t.MissingBefore != nil {
				r.miss(Missing{What: MissingTurnsGone, Why: Plural(int(t.MissingBefore.Count), "turn", "turns") +
					" before turn " + strconv.Itoa(t.Number) + " never arrived"})
			}
			if t.Unrecorded != nil {
				r.miss(Missing{What: MissingTurnsGone, Why: t.Unrecorded.Text(t.Number)})
			}
		}
		if t.Number == r.Turn {
			return
		}
		if isGiven && t.QuestionMissing {
			r.miss(Missing{What: MissingUserMessage, Why: "the user message of turn " + strconv.Itoa(t.Number) +
				" has not arrived"})
		}
		seen = seen || isGiven
	}
}

// Text reports how much precedes the turn with the number.
func (u *Unrecorded) Text(number int) string {
	return phrases.Text("unrecorded", struct {
		Of     *Unrecorded
		Number int
	}{u, number})
}

// carried reports that the file's content is in the URL, or where anybody gets it. There
// are no empty files: of those, the content was left out.
func (f *File) carried() bool {
	if f.Size != nil && *f.Size == 0 {
		return false
	}
	return strings.HasPrefix(f.URL, "data:") ||
		strings.HasPrefix(f.URL, "http://") || strings.HasPrefix(f.URL, "https://")
}

func (f *File) label() string { return cmp.Or(f.Name, Head(f.URL, 80), "without a name") }
