package rows

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/store"
)

// A format of another program often has a place for fields that its programs pass over. There
// an export has what the format has no field for: the rows of the session and its messages,
// without their content. Reading them is all or nothing: see [Embedded].

// EmbedSession returns the session's row, and its decisions, as a format embeds them. What follows
// from the messages is left out.
func EmbedSession(s *codec.Session) Object {
	row := columns(s.Session.AppendJSON(nil))
	o := Of("session", row.Without("id", "prompt_tokens", "completion_tokens", "reasoning_tokens",
		"cache_read", "cache_write", "total_tokens"))
	var decisions []json.RawMessage
	for _, d := range jsonl.SortedDecisions(s.Decisions) {
		decisions = append(decisions, columns(d.AppendJSON(nil)).JSON())
	}
	if decisions != nil {
		o.Set("permission_decisions", decisions)
	}
	return o
}

// EmbedBlobs adds system prompts and catalogs of tools to what a format embeds.
func EmbedBlobs(o *Object, blobs []store.Blob) {
	all := make(map[store.BlobKind][]json.RawMessage)
	for _, b := range jsonl.SortedBlobs(blobs) {
		all[b.Kind] = append(all[b.Kind], b.AppendJSON(nil))
	}
	for _, kind := range []store.BlobKind{store.BlobSystemPrompt, store.BlobToolCatalog} {
		if all[kind] != nil {
			o.Set(string(kind), all[kind])
		}
	}
}

// EmbedMessage returns the message's row as a format embeds it.
func EmbedMessage(m *session.Message) Object {
	return columns(m.AppendJSON(nil)).Without("session_id")
}

// columns are those of a row in canonical JSON that are not null, which is what an absent one is.
func columns(row []byte) (o Object) {
	for _, f := range Read(string(row)) {
		if string(f.Value) != "null" {
			o = append(o, f)
		}
	}
	return o
}

// Restore sets the message's row to one that a format embeds.
func (m *Message) Restore(row Object) error {
	row = row.Without("session_id")
	row.Set("session_id", m.Row.SessionID)
	var restored session.Message
	if err := restored.DecodeJSON(row.JSON()); err != nil {
		return err
	}
	m.Row, m.changed, m.read, m.meta, m.trace = restored, false, "", nil, nil
	return nil
}

// partRow has what a part's row has beside its data: id, index and times.
type partRow struct {
	ID        string  `json:"id"`
	Index     int64   `json:"index"`
	CreatedAt int64   `json:"created_at"`
	UpdatedAt int64   `json:"updated_at"`
	CallID    *string `json:"tool_call_id,omitempty"`
	RunID     *string `json:"continuation_run_id,omitempty"`
}

// EmbedParts adds the rows of parts, in the order in which reading makes parts of them, to what a
// format embeds. Importing the file into the store that it came from then changes nothing.
func EmbedParts(o *Object, parts []*session.Part) {
	var all []partRow
	for _, p := range parts {
		row := partRow{ID: p.ID, Index: p.Index, CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt, RunID: p.ContinuationRunID}
		if !session.IsToolType(p.Type) {
			row.CallID = p.ToolCallID
		}
		all = append(all, row)
	}
	if all != nil {
		o.Set("rows", all)
	}
}

// RestoreParts sets the rows of the parts from the one at place from on to those that a format embeds.
func (m *Message) RestoreParts(from int, embedded Object) error {
	if !embedded.Has("rows") {
		return nil
	}
	var all []partRow
	if err := json.Unmarshal(embedded.Get("rows"), &all); err != nil {
		return err
	}
	if len(all) != len(m.parts)-from {
		return fmt.Errorf("%d rows of %d parts", len(all), len(m.parts)-from)
	}
	for i, row := range all {
		p := &m.parts[from+i].Row
		p.ID, p.Index, p.CreatedAt, p.UpdatedAt, p.ContinuationRunID = row.ID, row.Index, row.CreatedAt, row.UpdatedAt,
			row.RunID
		if !session.IsToolType(p.Type) {
			p.ToolCallID = row.CallID
		}
	}
	return nil
}

// restore sets the session's row and adds the decisions that a format embeds. A decision names
// the call that it is about by its id, and gets the id that the part of that call has now.
func restore(s *codec.Session, embedded Object) error {
	row := embedded.Object("session").Without("id")
	row.Set("id", s.Session.ID)
	usage := s.Session.Usage()
	if err := s.Session.DecodeJSON(row.JSON()); err != nil {
		return err
	}
	s.Session.SetUsage(usage)
	adder := jsonl.NewAdder(s)
	for _, table := range []string{"permission_decisions", string(store.BlobSystemPrompt), string(store.BlobToolCatalog)} {
		for _, raw := range Elements(embedded.Get(table)) {
			if err := adder.Row(strings.TrimSuffix(table, "s"), raw); err != nil {
				return err
			}
		}
	}
	s.Decisions = jsonl.SortedDecisions(s.Decisions)
	parts := make(map[[2]string]string)
	for i := range s.Messages {
		for _, p := range s.Messages[i].Parts {
			if p.ToolCallID != nil {
				parts[[2]string{p.MessageID, *p.ToolCallID}] = p.ID
			}
		}
	}
	for i := range s.Decisions {
		d := &s.Decisions[i]
		if d.PartID != "" {
			d.PartID = parts[[2]string{d.MessageID, d.ToolCallID}]
		}
	}
	return nil
}

// Embedded builds a session of a file that may embed rows: build is told whether to use them, and
// returns them beside the session. Rows that are not valid are as if they were not there, and why
// is the problem. A file of ours that somebody changed is then read like that of another program.
func Embedded(build func(use bool) (s *codec.Session, embedded Object, err error)) (*codec.Session, error) {
	s, embedded, err := build(true)
	if err == nil && embedded.Object("session") != nil {
		err = restore(s, embedded)
	}
	if err == nil {
		err = valid(s)
	}
	if err == nil {
		return s, nil
	}
	s, _, _ = build(false)
	return s, fmt.Errorf("the rows of agenttrace in it are not valid (%w), and are ignored: export the session again", err)
}

func valid(s *codec.Session) error {
	if v := session.Check(s.Transcript); len(v) > 0 {
		return errors.New(v[0].String())
	}
	return s.CheckTree()
}

// Step is a model call of an assistant message: its parts from one step-start to the next.
type Step struct {
	// Started reports that a part of type step-start, which is not among Parts, begins the step.
	Started bool
	Parts   []*session.Part
	Start   *session.Part // the step-start, nil where none does
	At      int64         // when the first part was made, 0 without parts

	Usage   *session.Usage
	CostUSD *float64
	Model   session.Model
	// Calls is the number of model calls that Usage is of, 0 where Usage is nil.
	Calls int64
}

// Steps returns the steps of a message, at least one. Where the usage of each is not known, that of
// the message is the last one's. A message that a fork copied used nothing itself.
func Steps(s *codec.Session, m *session.MessageAndParts) []Step {
	steps := []Step{{}}
	for i := range m.Parts {
		p := &m.Parts[i]
		last := &steps[len(steps)-1]
		switch {
		case p.Type != "step-start":
			last.Parts = append(last.Parts, p)
		case !last.Started && len(last.Parts) == 0:
			last.Started, last.Start = true, p
		default:
			steps = append(steps, Step{Started: true, Start: p})
			last = &steps[len(steps)-1]
		}
		if last.At == 0 {
			last.At = p.CreatedAt
		}
	}
	meta := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON))
	tokens := meta.Tokens(m.Message.Role, m.IsMarker())
	calls := meta.Trace.Steps
	if calls == nil {
		calls = spansOf(s, m.Message.ID)
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
		if each = calls[i].Usage != nil; each {
			sum = sum.Add(*calls[i].Usage)
		}
	}
	last := &steps[len(steps)-1]
	if s.Session.Copied(m.Message.CreatedAt) {
		return steps
	}
	last.CostUSD = tokens.CostUSD
	switch {
	case tokens.Used == nil:
	case each && sum == *tokens.Used:
		for i := range steps {
			steps[i].Usage, steps[i].Calls = calls[i].Usage, 1
		}
	default:
		last.Usage, last.Calls = tokens.Used, max(int64(len(steps)), meta.Trace.ModelCalls)
	}
	return steps
}

// spansOf are the model calls of a message whose usage a span reports, in order.
func spansOf(s *codec.Session, messageID string) (calls []session.Step) {
	for i := range s.SpanRefs {
		if r := &s.SpanRefs[i]; r.MessageID == messageID && r.TurnStats != nil && r.TurnStats.Step &&
			r.TurnStats.Usage != nil {
			calls = append(calls, session.Step{Model: r.TurnStats.Model, Usage: r.TurnStats.Usage, StartedAt: r.StartNano})
		}
	}
	slices.SortStableFunc(calls, func(a, b session.Step) int { return cmp.Compare(a.StartedAt, b.StartedAt) })
	return calls
}

// Call is a tool call as formats have it that know of an object as input, of a text as result, and at
// most whether that is an error. Extra has what else there is, for a place that they pass over.
type Call struct {
	ID    string
	Name  json.RawMessage
	Input json.RawMessage
	// Result is nil where there is none. Reading, it may be any JSON.
	Result json.RawMessage
	Failed bool
	At     int64 // when the part was updated
	Extra  Object
}

// Keys of [Call.Extra], and of the part's data that it has under extraPart.
const (
	extraPart    = "part"
	inputMissing = "input_missing"
	inputWrapped = "input_wrapped"
	outputJSON   = "output_json"
)

// CallOf returns the call of a part. Its id is another if that is taken.
func CallOf(p *session.Part, data Object, taken func(id string) bool) Call {
	c := Call{ID: *p.ToolCallID, At: p.UpdatedAt, Name: Raw(ToolName(data))}
	rest := data.Without("toolCallId", "input", "output", "errorText", "error_text", "state")
	if p.Type == "dynamic-tool" {
		c.Name = textOr(data.Get("toolName"))
		rest = rest.Without("toolName")
	} else {
		rest = rest.Without("type")
	}
	for n := 2; taken(c.ID); n++ {
		c.ID = fmt.Sprintf("%s#%d", *p.ToolCallID, n)
	}
	if c.ID != *p.ToolCallID {
		rest.Set("toolCallId", *p.ToolCallID)
	}
	if input := data.Object("input"); input != nil {
		c.Input = data.Get("input")
	} else {
		how, wrapped := inputWrapped, Object{}
		if data.Get("input") == nil {
			how = inputMissing
		}
		c.Extra.Set(how, true)
		if input := Input(p, data); input != nil {
			wrapped.Set("input", input)
		}
		c.Input = wrapped.JSON()
	}
	state := data.Text("state")
	switch state {
	case session.StateOutputAvailable:
		if c.Result = OrNull(Output(data)); c.Result[0] != '"' {
			c.Extra.Set(outputJSON, true)
			c.Result = Raw(string(c.Result))
		}
	case session.StateOutputError, session.StateOutputDenied:
		c.Failed = true
		c.Result = textOr(data.Get("errorText"), data.Get("error_text"), data.Object("approval").Get("reason"))
	}
	if state != session.StateOutputAvailable && state != session.StateInputAvailable {
		rest.Set("state", state)
	}
	if len(rest) > 0 {
		c.Extra.Set(extraPart, rest)
	}
	return c
}

// textOr returns the first value that is a JSON string, or the empty one.
func textOr(values ...json.RawMessage) json.RawMessage {
	for _, v := range values {
		if _, ok := Text(v); ok {
			return v
		}
	}
	return json.RawMessage(`""`)
}

// Data returns the data of the call's part.
func (c *Call) Data() Object {
	rest := c.Extra.Object(extraPart)
	state := session.StateInputAvailable
	switch {
	case c.Result != nil && c.Failed:
		state = session.StateOutputError
	case c.Result != nil:
		state = session.StateOutputAvailable
	}
	if state = cmp.Or(rest.Text("state"), state); c.Result == nil &&
		session.StateRank(state) >= session.StateRank(session.StateOutputAvailable) {
		state = session.StateInputAvailable // the result is lost, or comes later
	}
	name, _ := Text(c.Name)
	data := ToolPart(name, c.ID, state)
	if rest.Text("type") == "dynamic-tool" {
		data = Of("type", "dynamic-tool", "toolName", c.Name, "toolCallId", c.ID, "state", state)
	}
	input := OrNull(c.Input)
	if c.Extra.Has(inputWrapped) {
		input = OrNull(Read(string(c.Input)).Get("input"))
	}
	if !c.Extra.Has(inputMissing) {
		data.Set("input", input)
	}
	switch text, _ := Text(c.Result); state {
	case session.StateOutputAvailable:
		output := OrNull(c.Result)
		if value, err := Value([]byte(text)); err == nil && c.Extra.Has(outputJSON) {
			output = value
		}
		data.Set("output", output)
	case session.StateOutputError:
		data.Set("errorText", c.Result)
		if _, ok := Text(c.Result); !ok {
			data.Set("errorText", string(c.Result))
		}
	}
	for _, f := range rest.Without("type", "state") {
		data.Set(f.Key, f.Value)
	}
	return data
}
