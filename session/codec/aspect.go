package codec

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Aspects of a session are what it has and a format may not hold, such as its reasoning or what its tools returned.
// Formats of other programs give rows other ids and cut messages elsewhere, so it is by aspects that a session is
// compared with what comes of it in such a format. A list of losses calls them by these names.
const (
	aspectIDs         = "ids and times"
	aspectTitle       = "title"
	aspectAgents      = "agents and models"
	aspectColumns     = "columns of the session"
	aspectBorders     = "borders of messages, steps and texts"
	aspectRewinds     = "rewinds"
	aspectTexts       = "texts"
	aspectReasoning   = "reasoning"
	aspectFiles       = "files and sources"
	aspectCompactions = "compactions"
	aspectTokens      = "tokens"
	aspectUsage       = "tokens and costs of messages"
	aspectEnds        = "ends of turns"
	aspectData        = "data parts"
	aspectCalls       = "tool calls"
	aspectValues      = "tool inputs and outputs"
	aspectPermissions = "permissions"
	aspectAnnotations = "tags, notes and scores"
	aspectBlobs       = "system prompts and tool catalogs"
	aspectMetadata    = "other metadata"
)

// aspects are all that is compared, in order.
var aspects = []string{
	aspectIDs, aspectTitle, aspectAgents, aspectColumns, aspectBorders, aspectRewinds, aspectTexts,
	aspectReasoning, aspectFiles, aspectCompactions, aspectTokens, aspectUsage, aspectEnds, aspectData,
	aspectCalls, aspectValues, aspectPermissions, aspectAnnotations, aspectBlobs, aspectMetadata,
}

// Lost lists what of a session is not in what came of it: of each aspect how many entries are gone or changed.
func Lost(s, got *Session) (losses []Loss) {
	want, have := contentOf(s), contentOf(got)
	for _, aspect := range aspects {
		before, after := want.entries[aspect], have.entries[aspect]
		gone := missing(before, after)
		if gone == nil && len(before) == len(after) && !slices.Equal(before, after) {
			gone = before // in another order
		}
		losses = AddLoss(losses, aspect, "", len(gone))
	}
	return losses
}

// Invented lists the claims of a session that the one it came from does not make.
func Invented(s, got *Session) (claims []string) {
	want, have := contentOf(s), contentOf(got)
	for _, aspect := range aspects {
		for _, entry := range missing(have.claims[aspect], append(want.claims[aspect], want.implied[aspect]...)) {
			claims = append(claims, aspect+": "+entry)
		}
	}
	return claims
}

// Of returns the losses that concern a session: those whose aspect it has.
func (all Losses) Of(s *Session) (losses []Loss) {
	c := contentOf(s)
	for _, aspect := range aspects {
		if listed := slices.IndexFunc(all, func(l Loss) bool { return l.What == aspect }); listed >= 0 {
			l := all[listed]
			if l.Count = len(c.entries[aspect]); l.Count > 0 {
				losses = append(losses, l)
			}
		}
	}
	return losses
}

// missing returns the entries that are not in others, or more often.
func missing(entries, others []string) (gone []string) {
	counts := make(map[string]int)
	for _, entry := range others {
		counts[entry]++
	}
	for _, entry := range entries {
		if counts[entry]--; counts[entry] < 0 {
			gone = append(gone, entry)
		}
	}
	return gone
}

// content is what a session has, by aspect, and what a walk over its rows has found so far.
type content struct {
	// entries are all that it has. claims are entries that state what happened: that a call succeeded,
	// that so many tokens were used. Reading a file must never make one up. implied are claims that may be
	// made where the session itself reports nothing: an answer with no sign of another end has finished.
	entries, claims, implied map[string][]string

	// said are what users and the assistant said, until the other one spoke, and speaker is who spoke last.
	said    []string
	speaker string
	// sums are the costs of the last messages of the assistant, from each one on.
	sums []float64
	// end is how the last answer ended, as far as it reports.
	end []string
	// asked are the parts and calls that a human was asked about by a decision, denied those that
	// decisions denied. tools are the names of the tools of parts and calls, and shown the ids of calls
	// that a part shows a question about.
	asked, denied map[string]bool
	tools         map[string]string
	shown         []string
}

func (c *content) has(aspect string, entries ...string) {
	c.entries[aspect] = append(c.entries[aspect], entries...)
}

func (c *content) claim(aspect string, entries ...string) {
	c.claims[aspect] = append(c.claims[aspect], entries...)
}

func (c *content) imply(aspect string, entries ...string) {
	c.implied[aspect] = append(c.implied[aspect], entries...)
}

// state adds entries that are claims.
func (c *content) state(aspect string, entries ...string) {
	c.has(aspect, entries...)
	c.claim(aspect, entries...)
}

func contentOf(s *Session) *content {
	c := &content{
		entries: make(map[string][]string), claims: make(map[string][]string), implied: make(map[string][]string),
		end: []string{semconv.EndFinish}, asked: make(map[string]bool), denied: make(map[string]bool),
		tools: make(map[string]string),
	}
	for i := range s.Decisions {
		d := &s.Decisions[i]
		if d.Action == "ask" {
			c.asked[d.PartID], c.asked[d.ToolCallID] = true, true
		}
		if d.Outcome == "denied" {
			c.denied[d.PartID], c.denied[d.ToolCallID] = true, true
		}
	}
	t := s.Sorted()
	row := &t.Session
	meta := parse([]byte(row.MetadataJSON))
	trace := parse(meta["agenttrace"])
	outcome := text(trace["outcome"])
	c.has(aspectIDs, row.ID, fmt.Sprint(row.CreatedAt, row.UpdatedAt))
	c.has(aspectTitle, known(strings.TrimSpace(row.Title), session.Untitled)...)
	c.has(aspectAgents, append(known(row.Agent), optional(row.ModelJSON)...)...)
	c.has(aspectColumns, slices.Concat(optional(row.Mode), known(strings.Join(optional(row.WorkspaceRoot), "")),
		optional(row.WorkspaceID), known(row.PermissionsJSON, "[]"), optional(row.ParentID),
		optional(row.ParentMessageID), optional(row.ArchivedAt), known(fmt.Sprint(row.CostUSD), "0"),
		meta.except("agenttrace"), trace.except("outcome"))...)
	c.state(aspectTokens, tokens(s)...)
	c.imply(aspectTokens, tokens(visible(s))...)
	c.state(aspectEnds, outcome...)
	c.has(aspectMetadata, slices.Repeat([]string{"span"}, len(s.SpanRefs)+len(s.Traces)+len(s.RequestedIndexes))...)
	c.has(aspectMetadata, when(s.State != nil, "state")...)
	for i := range t.Messages {
		c.message(&t.Messages[i], outcome)
	}
	c.has(aspectTexts, c.said...)
	c.imply(aspectEnds, c.end...)
	c.permissions(s.Decisions)
	for i := range s.Annotations {
		c.has(aspectAnnotations, string(s.Annotations[i].AppendJSON(nil)))
	}
	for i := range s.Blobs {
		c.has(aspectBlobs, string(s.Blobs[i].Kind)+" "+s.Blobs[i].Body)
	}
	return c
}

// message adds a message and its parts.
func (c *content) message(m *session.MessageAndParts, outcome []string) {
	row := &m.Message
	meta := parse([]byte(row.MetadataJSON))
	trace := parse(meta["agenttrace"])
	n := len(m.Parts)
	c.has(aspectIDs, row.ID, fmt.Sprint(row.CreatedAt, row.UpdatedAt))
	c.has(aspectAgents, append(text(meta["agent"]), value(meta["model"])...)...)
	c.has(aspectBorders, row.Role)
	c.has(aspectBorders, when(n > 0 && m.Parts[n-1].Index != int64(n-1), "gap")...)
	c.has(aspectBorders, when(n == 0, "empty")...)
	c.has(aspectMetadata, meta.except("agenttrace", "model", "agent", "usage")...)
	c.has(aspectMetadata, trace.except("cost_usd", "end_reason", "error", "stop_reason", "incomplete",
		"pending_approval")...)
	var words strings.Builder
	for i := range m.Parts {
		words.WriteString(c.part(&m.Parts[i]))
	}

	switch said := words.String(); {
	case row.Role == session.RoleSystem:
		c.has(aspectTexts, said)
	case said == "":
	case row.Role != c.speaker:
		c.speaker = row.Role
		c.said = append(c.said, row.Role+" "+said)
	default:
		c.said[len(c.said)-1] += said
	}
	if row.HiddenAt != nil {
		c.has(aspectRewinds, row.Role+" "+words.String())
		c.claim(aspectRewinds, row.Role) // a format may have one message for several
	}

	if row.Role == session.RoleAssistant {
		c.has(aspectUsage, value(meta["usage"])...)
	}
	c.state(aspectUsage, value(trace["cost_usd"])...)
	c.cost(row)

	incomplete, waits := string(trace["incomplete"]) == "true", string(trace["pending_approval"]) == "true"
	ended := append(text(trace["end_reason"]), when(waits, "waits")...)
	c.state(aspectEnds, ended...)
	c.has(aspectEnds, text(trace["error"])...)
	c.has(aspectEnds, append(text(trace["stop_reason"]), when(incomplete, "incomplete")...)...)
	if row.Role == session.RoleAssistant {
		// One that goes on has no end, and one that reports none has finished.
		var implied []string
		if !incomplete {
			implied = text(trace["end_reason"])
			if implied == nil && !waits {
				implied = []string{semconv.EndFinish}
			}
		}
		c.imply(aspectEnds, implied...)
		if row.HiddenAt == nil {
			c.end = append(implied, outcome...)
		}
	}
}

// cost implies the sums of the costs of messages of the assistant that follow each other: a format may
// have one answer for them.
func (c *content) cost(row *session.Message) {
	cost := session.ParseMessageMetadata([]byte(row.MetadataJSON)).Trace.CostUSD
	if row.HiddenAt != nil {
		if cost != nil {
			c.imply(aspectUsage, fmt.Sprint(store.AddCost(0, *cost))) // a format may round it
		}
		return
	}
	if row.Role != session.RoleAssistant {
		c.sums = nil
	}
	c.sums = append(c.sums, 0)
	if cost != nil {
		for i := range c.sums {
			c.sums[i] = store.AddCost(c.sums[i], *cost)
			c.imply(aspectUsage, fmt.Sprint(c.sums[i]))
		}
	}
}

// part adds a part, and returns its text if it is one.
func (c *content) part(row *session.Part) (said string) {
	data := parse([]byte(row.DataJSON))
	words := strings.Join(text(data["text"]), "")
	c.has(aspectIDs, row.ID, fmt.Sprint(row.CreatedAt, row.UpdatedAt))
	c.has(aspectIDs, text(data["toolCallId"])...)
	c.has(aspectMetadata, optional(row.ContinuationRunID)...)
	if session.IsToolType(row.Type) {
		c.tool(row, data)
		return ""
	}
	c.has(aspectMetadata, optional(row.ToolCallID)...)
	whole := canonical(json.RawMessage(row.DataJSON))
	switch {
	case row.Type == session.TypeCompaction:
		c.has(aspectCompactions, canonical(data["data"]))
		c.claim(aspectCompactions, row.Type)
		return ""
	case strings.HasPrefix(row.Type, "data-"):
		c.has(aspectData, whole)
		if row.Type == session.TypeWithheld || row.Type == session.TypeUnfinished {
			c.claim(aspectData, row.Type)
		}
		if row.Type == "data-permission" {
			var question struct {
				ToolCall struct{ ToolCallID string }
			}
			_ = json.Unmarshal(data["data"], &question) // of another shape: about no call
			c.shown = append(c.shown, question.ToolCall.ToolCallID)
		}
		return ""
	case strings.HasPrefix(row.Type, "source-"):
		c.has(aspectFiles, whole)
		return ""
	case row.Type == "file":
		c.has(aspectFiles, fmt.Sprint(text(data["url"]), text(data["mediaType"]), text(data["filename"])))
	case row.Type == "reasoning":
		c.has(aspectReasoning, words)
	case row.Type == "step-start":
		c.has(aspectBorders, row.Type+" "+words)
	case row.Type == "text":
		c.has(aspectBorders, row.Type+" "+words)
		said = words
	}
	c.has(aspectMetadata, data.except("type", "text", "url", "mediaType", "filename")...)
	return said
}

// tool adds a tool call.
func (c *content) tool(row *session.Part, data object) {
	name, state, id := session.ToolName(row.Type, strings.Join(text(data["toolName"]), "")), "", ""
	if row.ToolState != nil {
		state = *row.ToolState
	}
	c.tools[row.ID] = name
	if row.ToolCallID != nil {
		id = *row.ToolCallID
		c.tools[id] = name
	}
	about := func(decisions map[string]bool) bool {
		return decisions[row.ID] || row.ToolCallID != nil && decisions[id]
	}
	approval, metadata := parse(data["approval"]), parse(data["toolMetadata"])
	trace := parse(metadata["agenttrace"])
	answer := answers[string(approval["approved"])]
	failure := text(data["errorText"]) // or the reason of a denial
	if state == session.StateOutputDenied {
		failure = text(approval["reason"])
	}
	returned := state == session.StateOutputAvailable

	// Not allowed are the calls that are output-denied, and failed ones that report so, or that a human
	// did not approve.
	said := string(trace["denied"]) == "true" || string(approval["approved"]) == "false" ||
		about(c.denied)
	if state == session.StateOutputDenied || state == session.StateOutputError && said {
		c.state(aspectCalls, name)
	}
	c.has(aspectCalls, strings.Join(append([]string{name, state}, failure...), " "))
	if session.StateRank(state) >= session.StateRank(session.StateOutputAvailable) {
		c.claim(aspectCalls, fmt.Sprintf("%s failed %t", name, !returned))
	}

	input, output := Withheld(row)
	c.has(aspectValues, when(!input && data["input"] != nil, name+" "+canonical(data["input"]))...)
	c.has(aspectValues, when(!output && returned, name+" "+canonical(data["output"]))...)
	c.state(aspectValues, when(input, name+" input")...)
	c.state(aspectValues, when(output, name+" output")...)
	c.state(aspectValues, when(!output && returned && canonical(data["output"]) == "null", name+" null")...)

	if approval != nil {
		c.imply(aspectPermissions, name+answer)
		if !about(c.asked) {
			c.state(aspectPermissions, name+answer)
		}
	}
	c.has(aspectMetadata, data.except("type", "toolCallId", "toolName", "state", "input", "output", "errorText",
		"approval", "toolMetadata")...)
	c.has(aspectMetadata, metadata.except("agenttrace")...)
	c.has(aspectMetadata, trace.except("denied", "withheld", "input_withheld")...)
	c.has(aspectMetadata, when(row.Type == "dynamic-tool", row.Type)...)
}

// answers are what approved states of a question, and the outcome of a decision.
var answers = map[string]string{"true": " allowed", "false": " denied", "allowed": " allowed", "denied": " denied"}

// permissions adds decisions, and the questions that a human was asked with their answers. A question that
// a part shows may be all that a format has of a decision.
func (c *content) permissions(decisions []store.Decision) {
	for i := range decisions {
		d := &decisions[i]
		line, _ := json.Marshal(d) // strings and numbers always have JSON
		c.has(aspectPermissions, string(line))
		if d.Action != "ask" {
			continue
		}
		name, isKnown := c.tools[d.PartID]
		if !isKnown {
			name, isKnown = c.tools[d.ToolCallID]
		}
		if !isKnown {
			name = d.ToolID
		}
		c.state(aspectPermissions, name+answers[d.Outcome])
	}
	for _, call := range c.shown {
		name, isKnown := c.tools[call]
		if !isKnown {
			name = "other"
		}
		c.imply(aspectPermissions, name, name+" allowed", name+" denied")
	}
}

// tokens are those that the session used, where one of its messages states some.
func tokens(s *Session) []string {
	used := s.Tokens().Used
	if used == nil {
		return nil
	}
	return []string{fmt.Sprintf("%d in, %d out", used.Input+used.CacheRead+used.CacheWrite, used.Output+used.Reasoning)}
}

// visible is the session without the messages that a rewind hid: a format may leave those out.
func visible(s *Session) *Session {
	t := *s.Transcript
	t.Messages = slices.DeleteFunc(slices.Clone(t.Messages), func(m session.MessageAndParts) bool {
		return m.Message.HiddenAt != nil
	})
	return &Session{Transcript: &t}
}

// object is a JSON object; nil for anything else.
type object map[string]json.RawMessage

func parse(data []byte) (o object) {
	_ = json.Unmarshal(data, &o) // what is not an object has no keys
	return o
}

// known is a value that is there: not empty, nor what stands for none.
func known(v string, none ...string) []string { return when(v != "" && !slices.Contains(none, v), v) }

func when(is bool, entries ...string) []string {
	if !is {
		return nil
	}
	return entries
}

func optional[T any](v *T) []string {
	if v == nil {
		return nil
	}
	return []string{fmt.Sprint(*v)}
}

// text is a JSON string that is not empty, value any JSON but null.
func text(raw json.RawMessage) []string {
	var s string
	_ = json.Unmarshal(raw, &s) // another kind reports nothing
	return known(s)
}

func value(raw json.RawMessage) []string { return known(canonical(raw), "null", "{}") }

// except are the keys and values of an object but those named.
func (o object) except(keys ...string) (entries []string) {
	for key, v := range o {
		if !slices.Contains(keys, key) {
			entries = append(entries, key+"="+canonical(v))
		}
	}
	slices.Sort(entries)
	return entries
}

// canonical spells a JSON value in one way.
func canonical(raw json.RawMessage) string {
	v := jsontext.Value(slices.Clone(raw))
	if v.Format(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
		return string(raw)
	}
	return string(v)
}
