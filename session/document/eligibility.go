package document

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
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
		r.Model = cmp.Or(r.Model, question.Model)
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

// NoticesOf returns what is doubtful in the session of in. Its Now and IdleTimeout decide whether it is still at work:
// see [StatusOf].
func NoticesOf(in Input) []session.Notice {
	doc := Build(in)
	doc.FindNotices(in)
	return doc.Notices
}

// FindNotices sets Notices to what is doubtful in the session of in, which the timeline was built from: what
// [session.Notices] finds in its rows, with the turn and the span, and the spans that no message came of. It is not
// doubtful that a turn has not ended which the session is still at work on.
func (doc *Document) FindNotices(in Input) {
	last := 0
	if t := doc.LastTurn(); t != nil {
		last = t.Number
	}
	found := session.Notices(in.Transcript)
	found = append(found, unattributed(in.SpanRefs)...)
	found = append(found, doc.unrecorded()...)
	found = append(found, doc.misplaced(in)...)
	found = append(found, twins(in)...)
	turns, calls := make(map[string]int), make(map[string]*ToolCall)
	for t, m := range doc.Messages() {
		turns[m.ID] = t.Number
		for p, c := range m.ToolCalls() {
			calls[p.ID] = c
		}
	}
	for i := range found {
		n := &found[i]
		n.Turn = cmp.Or(n.Turn, turns[n.MessageID])
		if n.SpanID != "" {
			continue // there may be as many of them as spans
		}
		if l := reporter(in.SpanRefs, n); l != nil {
			n.TraceID, n.SpanID, n.SpanKind = l.TraceID, l.SpanID, l.Kind
			if c := calls[l.PartID]; c != nil && n.PartID == "" {
				n.PartID, n.ToolCallID, n.Tool = l.PartID, c.CallID, c.Name
			}
		}
	}
	doc.Notices = slices.DeleteFunc(found, func(n session.Notice) bool {
		return n.Rule == "whole" && n.Turn == last && doc.Status.atWork()
	})
	doc.Quality = qualityOf(&in.Transcript.Session, in.Missing, doc.Status.State)
}

// qualityOf is the quality of a session of which so much is missing. What still goes on is not missing.
func qualityOf(row *session.Session, missing map[string]int64, does Activity) *session.Quality {
	if missing == nil {
		return nil
	}
	q := &session.Quality{Missing: maps.Clone(missing)}
	if does == ActivityBusy || does == ActivityRetrying || does.Waiting() {
		delete(q.Missing, "ends")
		delete(q.Missing, "results")
	}
	trace := gjson.Get(row.MetadataJSON, "agenttrace")
	dialect := trace.Get("dialect").String()
	// A session whose id is that of its trace has no key that names it.
	if dialect != "" && dialect != store.DialectSDK && trace.Get("session_key").String() == "" && row.ParentID == nil {
		q.Inferred = append(q.Inferred, "session")
	}
	if dialect == ReadingGeneric {
		q.Inferred = append(q.Inferred, "reading")
	}
	q.Complete = len(q.Missing) == 0
	return q
}

// reporter returns the span that a notice is about: the one that its detail names, that
// of its part, the one above all others of its message; nil where there is none.
func reporter(links []store.SpanRef, n *session.Notice) *store.SpanRef {
	var best *store.SpanRef
	rank := 0
	for i := range links {
		l := &links[i]
		r := 0
		switch {
		case l.SpanID == "":
		case strings.Contains(n.Detail, l.SpanID):
			r = 4
		case l.PartID != "" && l.PartID == n.PartID:
			r = 3
		case n.MessageID == "" || l.MessageID != n.MessageID:
		case l.Kind == "session.turn":
			r = 2
		default:
			r = 1
		}
		if r > rank {
			best, rank = l, r
		}
	}
	return best
}

// unattributed finds the spans of turns, model calls and tool calls that other agents
// reported and that no message came of.
func unattributed(links []store.SpanRef) []session.Notice {
	var found []session.Notice
	kinds := map[string]string{"session.turn": "turn", "chat": "model call", "tool.call": "tool call"}
	for i := range links {
		l := &links[i]
		if what := kinds[l.Kind]; what != "" && l.MessageID == "" && l.Dialect != store.DialectSDK && l.SpanID != "" {
			found = append(found, spanNotice("attributed", l, "the %s of span %s belongs to no message", what, l.SpanID))
		}
	}
	return found
}

// spanNotice is a notice about a span.
func spanNotice(rule string, l *store.SpanRef, format string, args ...any) session.Notice {
	n := session.NewNotice(rule, fmt.Sprintf(format, args...))
	n.TraceID, n.SpanID, n.SpanKind = l.TraceID, l.SpanID, l.Kind
	return n
}

// unrecorded finds the turns whose requests repeat more than the session has. What a
// sub-agent was given of the conversation is in its parent's session.
func (doc *Document) unrecorded() []session.Notice {
	if o := doc.Session.Origin; o != nil && !o.Fork {
		return nil
	}
	var found []session.Notice
	for _, t := range doc.Turns {
		if t.Unrecorded != nil {
			n := session.NewNotice("history", t.Unrecorded.Text(t.Number))
			n.Turn = t.Number
			for k := range t.Messages {
				if t.Messages[k].history != nil {
					n.MessageID = t.Messages[k].ID
				}
			}
			found = append(found, n)
		}
	}
	return found
}

// misplaced finds what other agents reported of messages that are not there, turns without a prompt among turns that
// have one, and messages that two turns are in: each has an outermost span in a trace of its own, and was over before
// the other began. A call that waited for an approval, or for the client to execute it, goes on in a second one.
func (doc *Document) misplaced(in Input) (found []session.Notice) {
	there := make(map[string]bool)
	asked := 0
	for t, m := range doc.Messages() {
		there[m.ID] = true
		if m.Role == session.RoleUser && m == t.Messages[0] {
			asked++
		}
	}
	for _, m := range doc.Queued {
		there[m.ID] = true
	}
	messages := make(map[string]*session.MessageAndParts)
	for i := range in.Transcript.Messages {
		m := &in.Transcript.Messages[i]
		there[m.Message.ID], messages[m.Message.ID] = true, m
	}
	lost, root := make(map[string]bool), make(map[string]*store.SpanRef)
	telemetry := false
	for i := range in.SpanRefs {
		l := &in.SpanRefs[i]
		if l.Dialect == store.DialectSDK {
			continue
		}
		telemetry = true
		if id := l.MessageID; id != "" && !there[id] && !lost[id] {
			lost[id] = true
			found = append(found, spanNotice("attributed", l, "the message %s of span %s is not there", id, l.SpanID))
		}
		if l.Kind != "session.turn" || l.ParentSpanID != "" || l.MessageID == "" {
			continue
		}
		if first := root[l.MessageID]; first != nil && first.TraceID != l.TraceID && first.EndNano <= l.StartNano &&
			!waited(messages[l.MessageID], l.StartNano/1e6) &&
			!slices.ContainsFunc(in.Decisions, func(d store.Decision) bool { return d.MessageID == l.MessageID }) {
			n := spanNotice("turns", l, "the message has two turns, each with an outermost span of its own")
			n.MessageID = l.MessageID
			found = append(found, n)
		}
		root[l.MessageID] = l
	}
	if !telemetry || asked == 0 || doc.Session.Origin != nil {
		return found
	}
	for _, t := range doc.Turns {
		if m := t.unasked(); m != nil {
			n := session.NewNotice("turns", "an answer has no prompt, and other turns have one")
			n.MessageID = m.ID
			found = append(found, n)
		}
	}
	return found
}

// waited reports whether the last of a message, before the step that begins at a time or later, is a tool call that has
// a result: the step may go on from there.
func waited(m *session.MessageAndParts, at int64) (waited bool) {
	for i := 0; m != nil && i < len(m.Parts); i++ {
		p := &m.Parts[i]
		if p.CreatedAt >= at && p.ToolCallID == nil {
			break
		}
		if p.Type != "step-start" {
			waited = p.ToolCallID != nil && !session.IsOpenCall(p)
		}
	}
	return waited
}

// unasked is the turn's last answer, neither hidden nor a compaction, that follows another or nothing. What a program
// writes, such as that a sub-agent has finished, the model may answer without a prompt of the user's.
func (t *Turn) unasked() (found *Message) {
	answered := true
	for _, m := range t.Messages {
		isAnswer := m.Role == session.RoleAssistant && m.HiddenAt == nil && m.Compaction == nil
		if isAnswer && answered {
			found = m
		}
		answered = isAnswer || answered && m.Role == session.RoleAssistant
	}
	return found
}

// twins finds children that no tool call names and that used what one did which is named, at the same time.
func twins(in Input) (found []session.Notice) {
	for i := range in.Children {
		c := &in.Children[i]
		if c.TotalTokens == 0 || mentions(in.Transcript, c.ID) {
			continue
		}
		for k := range in.Children {
			if o := &in.Children[k]; o.ID != c.ID && o.Usage() == c.Usage() && o.CreatedAt <= c.UpdatedAt &&
				c.CreatedAt <= o.UpdatedAt && (mentions(in.Transcript, o.ID) || o.ID < c.ID) {
				found = append(found, session.NewNotice("once", fmt.Sprintf("the children %s and %s used the same at the "+
					"same time, and no tool call names the first", c.ID, o.ID)))
				break
			}
		}
	}
	return found
}
