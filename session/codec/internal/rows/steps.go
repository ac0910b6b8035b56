package rows

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// Reporter reports what is wrong with what is being read, which has a place.
type Reporter struct {
	Report func(codec.Problem)
	Place  codec.Problem
}

// Problem reports that something is wrong at the place.
func (r *Reporter) Problem(format string, args ...any) {
	p := r.Place
	p.Reason = fmt.Sprintf(format, args...)
	r.Report(p)
}

// Valid is text in which U+FFFD replaces bytes that are not UTF-8. That there are some is reported.
func (r *Reporter) Valid(text []byte) []byte {
	if utf8.Valid(text) {
		return text
	}
	r.Problem("bytes that are not UTF-8 were replaced by U+FFFD")
	return bytes.ToValidUTF8(text, []byte("\uFFFD"))
}

// Step is a model call of an assistant message: its parts from one step-start, which is not among them, to the next.
type Step struct {
	Start *session.Part // the step-start, nil for a first step without one
	Parts []*session.Part
	At    int64 // when the first part was made, 0 without parts

	Usage   *session.Usage
	CostUSD *float64
	Model   session.Model
	// StopReason is why the model stopped, empty if that is unknown.
	StopReason string
	// Calls is the number of model calls that no other step is, 0 where Usage is nil.
	Calls int64
}

// Steps returns the steps of a message, at least one. Where the usage of each is not known, that of
// the message is the last one's. A message that a fork copied used nothing itself.
func Steps(s *codec.Session, m *session.MessageAndParts) []Step {
	steps := make([]Step, 1)
	for i := range m.Parts {
		p, last := &m.Parts[i], &steps[len(steps)-1]
		switch starts := p.Type == "step-start"; {
		case !starts:
			last.Parts = append(last.Parts, p)
		case last.Start == nil && len(last.Parts) == 0:
			last.Start = p
		default:
			steps = append(steps, Step{Start: p})
			last = &steps[len(steps)-1]
		}
		last.At = cmp.Or(last.At, p.CreatedAt)
	}
	meta := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON))
	tokens := meta.Tokens(m.Message.Role, m.IsMarker())
	calls := modelCalls(s, m.Message.ID, meta.Trace.Steps)
	if steps[0].Start == nil && len(calls) > 0 && len(calls) == len(steps)-1 { // what comes first is of no call
		calls = append([]session.Step{{}}, calls...)
	}
	var sum session.Usage
	each := len(calls) == len(steps)
	for i := range steps {
		if meta.Model != nil {
			steps[i].Model = *meta.Model
		}
		if !each {
			continue
		}
		if calls[i].Model != nil {
			steps[i].Model = *calls[i].Model
		}
		steps[i].StopReason = calls[i].StopReason
		if calls[i].Usage != nil {
			sum = sum.Add(*calls[i].Usage)
		}
	}
	last := &steps[len(steps)-1]
	if s.Session.Copied(m.Message.CreatedAt) {
		return steps
	}
	last.CostUSD = tokens.CostUSD
	// The usage of each call counts only if it adds up to the message's. Otherwise a call is missing or counted twice,
	// and a reader that sums the steps would get other tokens than the session has.
	switch {
	case tokens.Used == nil:
		return steps
	case each && sum == *tokens.Used && slices.ContainsFunc(calls, func(c session.Step) bool { return c.Usage != nil }):
		for i := range steps {
			if steps[i].Usage = calls[i].Usage; steps[i].Usage != nil {
				last, steps[i].Calls = &steps[i], 1
			}
		}
	default:
		last.Usage = tokens.Used
	}
	last.Calls = max(1, meta.Trace.ModelCalls-int64(len(steps)-1))
	return steps
}

// Blob returns the text of a digest, nil if the session does not have it.
func Blob(s *codec.Session, kind store.BlobKind, digest string) *store.Blob {
	for i := range s.Blobs {
		if b := &s.Blobs[i]; b.Kind == kind && b.Digest == digest {
			return b
		}
	}
	return nil
}

// modelCalls returns what is known of each model call of a message, in their order: those that the source lists, or
// else the spans of calls, except those that failed and used nothing.
func modelCalls(s *codec.Session, messageID string, listed []session.Step) (calls []session.Step) {
	if listed != nil {
		return listed
	}
	var spans []*store.SpanRef
	for i := range s.SpanRefs {
		if r := &s.SpanRefs[i]; r.MessageID == messageID {
			spans = append(spans, r)
		}
	}
	slices.SortFunc(spans, store.CompareSpans)
	for _, r := range spans {
		if call, ok := r.Call(); ok {
			calls = append(calls, call)
		}
	}
	return calls
}

// Call is a tool call for formats in which its result is a text.
type Call struct {
	ID, Name string
	Input    json.RawMessage
	Result   *string // nil without a result
	Failed   bool
	At       int64 // when the part was updated

	output json.RawMessage
}

// Block is a piece of a result: a text, or an image.
type Block struct {
	Text  string
	Image *document.Media
}

// Blocks are the pieces of a result with files among them, nil of another. A file that is not an image is a text with
// its type and size.
func (c *Call) Blocks() (blocks []Block) {
	shown, media := document.TakeMedia(c.output)
	if len(media) == 0 {
		return nil
	}
	pieces := Elements(shown)
	if list := Elements(Read(string(shown)).Get("content")); len(list) > 0 {
		pieces = list
	} else if len(pieces) == 0 {
		pieces = []json.RawMessage{shown}
	}
	for _, raw := range pieces {
		text, isText := Text(raw)
		block := Block{Text: text}
		if isText && len(media) > 0 && text == media[0].String() {
			if media[0].IsImage() {
				block = Block{Image: &media[0]}
			}
			media = media[1:]
		} else if !isText {
			if block.Text, isText = Text(Read(string(raw)).Get("text")); !isText {
				block.Text = string(raw)
			}
		}
		blocks = append(blocks, block)
	}
	for i := range media { // those inside of another piece, which has their types and sizes
		if media[i].IsImage() {
			blocks = append(blocks, Block{Image: &media[i]})
		}
	}
	return blocks
}

// ShownResult is the result for a format that has nothing but texts: files in it are their types and sizes.
func (c *Call) ShownResult() string {
	blocks := c.Blocks()
	if blocks == nil {
		return *c.Result
	}
	texts := make([]string, len(blocks))
	for i, b := range blocks {
		if texts[i] = b.Text; b.Image != nil {
			texts[i] = b.Image.String()
		}
	}
	return strings.Join(texts, "\n")
}

// CallOf returns the call of a part, nil for another part. Its id is another if that is taken, and then is taken.
func CallOf(p *session.Part, data Object, taken map[string]bool) *Call {
	if p.ToolCallID == nil || !session.IsToolType(p.Type) {
		return nil
	}
	c := &Call{ID: *p.ToolCallID, Name: ToolName(data), Input: Input(p, data), At: p.UpdatedAt}
	for n := 2; taken[c.ID]; n++ {
		c.ID = fmt.Sprintf("%s#%d", *p.ToolCallID, n)
	}
	taken[c.ID] = true
	if c.Input == nil {
		c.Input = json.RawMessage("{}")
	}
	switch data.Text("state") {
	case session.StateOutputAvailable:
		output := OrNull(Output(data))
		text, ok := Text(output)
		if !ok {
			text = string(output)
		}
		c.Result, c.output = &text, output
	case session.StateOutputError:
		c.Result, c.Failed = new(cmp.Or(data.Text("errorText"), data.Text("error_text"))), true
	case session.StateOutputDenied:
		c.Result, c.Failed = new(cmp.Or(data.Object("approval").Text("reason"), "denied")), true
	}
	return c
}

// GoesOn reports whether the end of an answer is not known: it waits for a person, or the source was cut off, or it
// reports no end while a call had not come back.
func GoesOn(m *session.MessageAndParts) bool {
	trace := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON)).Trace
	if trace.Incomplete || trace.EndReason != "" || trace.PendingApproval {
		return trace.Incomplete || trace.EndReason == ""
	}
	return slices.ContainsFunc(m.Parts, func(p session.Part) bool {
		return session.IsToolType(p.Type) && p.ToolState != nil &&
			session.StateRank(*p.ToolState) < session.StateRank(session.StateOutputAvailable) &&
			!Read(p.DataJSON).Object("toolMetadata").Object(traceKey).True("stub")
	})
}

// Arguments are the input for formats that take an object only.
func (c *Call) Arguments() json.RawMessage {
	if c.Input[0] == '{' {
		return c.Input
	}
	return Of("input", c.Input).JSON()
}

// Call adds a tool call that has no result yet.
func (m *Message) Call(id, name string, input json.RawMessage, at int64) *Part {
	data := ToolPart(name, id, session.StateInputAvailable)
	data.Set("input", OrNull(input))
	return m.Part(data, at)
}

// Result gives a tool call its result. That of a call that failed is a text.
func (p *Part) Result(result json.RawMessage, failed bool) {
	data := p.Data()
	result = OrNull(result)
	if failed {
		text, ok := Text(result)
		if !ok {
			text = string(result)
		}
		data.Set("state", session.StateOutputError)
		data.Set("errorText", text)
	} else {
		data.Set("state", session.StateOutputAvailable)
		data.Set("output", result)
	}
	p.Set(data)
}

// Answer is what the model calls of an assistant message report together.
type Answer struct {
	*Message
	Model   session.Model
	Steps   []session.Step
	Calls   int64
	Usage   *session.Usage
	Basis   string // of the usage
	CostUSD *float64
	// Stop, End and Error are the message's stop_reason, end_reason and error.
	Stop, End, Error string
}

// Step adds a model call, with what it cost. Of the zero model nothing is known.
func (a *Answer) Step(step session.Step, model session.Model, cost *float64) {
	if a.Model == (session.Model{}) {
		a.Model = model
	}
	if model != (session.Model{}) && model != a.Model {
		step.Model = &model
	}
	if step.Usage != nil {
		a.Usage = new(session.Deref(a.Usage).Add(*step.Usage))
	}
	AddCost(&a.CostUSD, cost)
	a.Steps, a.Calls = append(a.Steps, step), a.Calls+1
}

// AddCost adds a cost, where it is known, to a sum that may be nil.
func AddCost(sum **float64, cost *float64) {
	if cost != nil {
		*sum = new(store.AddCost(session.Deref(*sum), *cost))
	}
}

// Finish writes the metadata of the message.
func (a *Answer) Finish() {
	a.AddMeta(NonEmpty("model", a.Model, "usage", a.Usage))
	a.AddTrace(NonEmpty("model_calls", max(0, a.Calls), "usage_basis", a.Basis, "steps", a.Steps, "stop_reason", a.Stop,
		"cost_usd", a.CostUSD, "end_reason", a.End, "error", a.Error))
}
