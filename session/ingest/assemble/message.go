package assemble

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// writer writes the parts of one message.
type writer struct {
	store.AssembledMessage
	turn  *turn
	tools []*tool
	// results are the outcomes that later requests tell of.
	results map[string]*fact.Part
	seen    map[string]int // of keys that part ids are made from
	// steps counts the calls that left parts.
	steps int
}

// tellTurn writes the turn's messages.
func (a *assembly) tellTurn(t *turn) {
	user := a.tellUser(t)
	calls := t.findCalls()
	tools := t.findTools()
	calls, lost := t.restore(calls)
	began := t.start
	switch {
	case len(calls) > 0 && len(tools) > 0:
		began = min(calls[0].start, tools[0].start)
	case len(calls) > 0:
		began = calls[0].start
	case len(tools) > 0:
		began = tools[0].start
	case len(t.roots) == 0:
		if user != nil {
			return // nothing but what the user said
		}
	}
	began = max(began, t.start)
	if user != nil {
		// An id of the same instant would not stand behind the user's.
		began = max(began, user.at+instant)
	}
	w := &writer{turn: t, tools: tools, results: t.results(), seen: make(map[string]int)}
	w.ID = spans.DeriveIDNano(spans.PrefixMessage, began, t.session, t.key(), "assistant")
	w.SessionID, w.Role, w.CreatedAt = t.session, session.RoleAssistant, began/1e6
	end := began
	for _, n := range t.nodes {
		if n.Kind != fact.Prompt {
			end = max(end, n.End)
		}
	}
	w.UpdatedAt = end / 1e6
	for i, c := range calls {
		until := int64(1<<63 - 1)
		if i+1 < len(calls) {
			until = calls[i+1].start
		}
		w.tellCall(c, until)
	}
	for _, x := range tools {
		w.tellTool(x, nil)
	}
	w.tellRoots(calls)
	w.MetadataJSON = w.metadata(calls, lost)
	a.messages = append(a.messages, w.AssembledMessage)
	a.decide(w)
	for _, n := range t.nodes {
		if n.Kind == fact.Prompt {
			continue
		}
		n.place(t.session, w.ID, "")
		if user != nil && n.speaksFor(user) {
			n.place(t.session, user.id, "")
		}
	}
	for _, st := range a.seats {
		if st.from.turn == t && st.from.Kind == fact.ToolCall {
			w.mention(st)
		}
	}
}

// instant is the time between two ids that are made from times, in nanoseconds.
const instant = 250

// key identifies the turn in its session.
func (t *turn) key() string {
	if t.id != "" {
		return t.id
	}
	first := t.nodes[0]
	if len(t.roots) > 0 {
		first = t.roots[0]
	}
	return first.TraceID + "/" + first.Source
}

// userMessage is a message of the user that was written.
type userMessage struct {
	id     string
	at     int64
	teller *node // the fact that it was told from
}

func (n *node) speaksFor(u *userMessage) bool { return n == u.teller }

// tellUser writes the user's message, or returns nil when no fact tells of one.
func (a *assembly) tellUser(t *turn) *userMessage {
	var teller *node
	var prompts []*node
	for _, n := range t.nodes {
		if n.Kind == fact.Prompt {
			prompts = append(prompts, n)
		}
	}
	for _, n := range prompts {
		t.asked = append(t.asked, askedBy(n.Fact)...)
	}
	if len(t.asked) > 0 {
		teller = prompts[0]
	}
	for _, kind := range []fact.Kind{fact.Turn, fact.ModelCall} {
		for _, n := range t.nodes {
			if n.Kind != kind || len(t.asked) > 0 {
				continue
			}
			if parts := askedBy(n.Fact); len(parts) > 0 {
				t.asked, teller = parts, n
			}
		}
	}
	withheld := len(t.asked) == 0
	if withheld {
		if len(prompts) == 0 {
			return nil
		}
		teller = prompts[0]
	}
	at := t.start
	if len(prompts) > 0 && len(t.roots) == 0 {
		at = prompts[0].Start
	}
	var m store.AssembledMessage
	m.ID = spans.DeriveIDNano(spans.PrefixMessage, at, t.session, t.key(), "user")
	m.SessionID, m.Role, m.CreatedAt, m.UpdatedAt = t.session, session.RoleUser, at/1e6, at/1e6
	m.MetadataJSON = "{}"
	w := writer{AssembledMessage: m, turn: t, seen: make(map[string]int)}
	for i := range t.asked {
		w.tellPart(&t.asked[i], "asked", at, at)
	}
	if len(w.Parts) == 0 {
		// A message without parts is none to the AI SDK.
		w.add(store.TypeDamaged, "asked", at, at, damaged{Type: store.TypeDamaged, Data: damagedData{"text", "the prompt was not sent"}})
	}
	for _, n := range t.nodes {
		if n.Kind == fact.Turn || n.Kind == fact.ModelCall {
			if n.Model != nil && n.Model.ModelID != "" {
				raw, _ := json.Marshal(struct {
					Model *session.Model `json:"model"`
				}{n.Model})
				w.MetadataJSON = string(raw)
				break
			}
		}
	}
	a.messages = append(a.messages, w.AssembledMessage)
	for _, n := range prompts {
		n.place(t.session, w.ID, "")
	}
	return &userMessage{id: w.ID, at: at, teller: teller}
}

// tellCall writes what a model call said, and the tools that ran before the next.
func (w *writer) tellCall(c *call, until int64) {
	parts := len(w.Parts)
	if w.steps > 0 && (len(c.output) > 0 || w.runs(c.start, until)) {
		w.add("step-start", "step", c.start, c.start, struct {
			Type string `json:"type"`
		}{"step-start"})
	}
	began := len(w.Parts)
	key := "call"
	if c.span != nil {
		key = c.span.TraceID + c.span.Source
	}
	for i := range c.output {
		p := &c.output[i]
		switch p.Kind {
		case fact.PartCall:
			x := take(w.tools, p, c.start)
			if x == nil {
				x = &tool{start: c.start, end: c.end}
			}
			w.tellTool(x, p)
		case fact.PartResult:
			// It is told with its call.
		default:
			w.tellPart(p, key, c.start, max(c.start, c.end))
		}
	}
	for _, x := range w.tools {
		if !x.used && x.start < until && x.start >= c.start {
			w.tellTool(x, nil)
		}
	}
	if len(w.Parts) == began {
		w.Parts = w.Parts[:parts]
	} else {
		w.steps++
	}
	for _, n := range c.nodes {
		if len(w.Parts) > began && n.Kind == fact.Answer {
			n.placed.PartID = w.Parts[began].ID
		}
	}
}

// runs says whether a tool that no call asked for ran in the time.
func (w *writer) runs(from, until int64) bool {
	return slices.ContainsFunc(w.tools, func(x *tool) bool { return !x.used && x.start >= from && x.start < until })
}

// tellRoots writes what only the turn's root tells: the answer, where that of the
// model call was lost or not told.
func (w *writer) tellRoots(calls []*call) {
	var said strings.Builder
	for i := range w.Parts {
		if w.Parts[i].Type == "text" {
			var p struct{ Text string }
			_ = json.Unmarshal([]byte(w.Parts[i].DataJSON), &p)
			said.WriteString(p.Text)
			said.WriteByte('\n')
		}
	}
	all := said.String()
	for _, r := range w.turn.roots {
		for i := range r.Output {
			p := &r.Output[i]
			switch p.Kind {
			case fact.PartText:
				if text := strings.TrimSpace(p.Text); text == "" || strings.Contains(all, text) || strings.TrimSpace(all) != "" && strings.Contains(text, strings.TrimSpace(all)) {
					continue
				}
				all += p.Text
			case fact.PartReasoning:
				if w.has("reasoning") {
					continue
				}
			case fact.PartCall:
				if w.hasCall(p.CallID) || p.CallID == "" {
					continue
				}
				w.tellTool(&tool{start: r.Start, end: r.End}, p)
				continue
			case fact.PartResult:
				continue
			default:
				if len(calls) > 0 {
					continue
				}
			}
			w.tellPart(p, "root"+r.Source, r.End, r.End)
		}
	}
}

func (w *writer) has(partType string) bool {
	return slices.ContainsFunc(w.Parts, func(p session.Part) bool { return p.Type == partType })
}

func (w *writer) hasCall(id string) bool {
	return slices.ContainsFunc(w.Parts, func(p session.Part) bool { return p.ToolCallID != nil && *p.ToolCallID == id })
}

// mostProblems bounds the flaws that a message keeps.
const mostProblems = 8

// metadata is what the turn's facts say of its message.
func (w *writer) metadata(calls []*call, lost bool) string {
	t := w.turn
	var m session.MessageMetadata
	trace := &m.Trace
	var steps session.Usage
	var stepped, costs bool
	var cost float64
	var raws []json.RawMessage
	var finish string
	for _, c := range calls {
		if !c.guessed {
			trace.ModelCalls++
		}
		if u := c.usage(); u != nil {
			steps, stepped = steps.Add(u.Tokens), true
			trace.UsageBasis = cmp.Or(u.Basis, trace.UsageBasis)
			if u.Raw != nil {
				raws = append(raws, u.Raw)
			}
		}
		var stated *float64
		for _, n := range c.nodes {
			stated = cmp.Or(stated, n.CostUSD)
		}
		if stated != nil {
			cost, costs = cost+*stated, true
		}
		finish = ""
		for _, n := range c.nodes {
			finish = cmp.Or(finish, n.Finish)
			trace.Temperature = cmp.Or(n.Temperature, trace.Temperature)
			if len(calls) == 1 {
				trace.ResponseID = cmp.Or(trace.ResponseID, n.ResponseID)
			}
			trace.ResponseModel = cmp.Or(n.ResponseModel, trace.ResponseModel)
		}
		if text := c.failed(); text != "" && len(trace.ModelErrors) < mostProblems {
			trace.ModelErrors = append(trace.ModelErrors, text)
		}
	}
	if stepped {
		m.Usage = &steps
	}
	var root *node
	for _, n := range t.nodes {
		if n.Kind == fact.Turn && (root == nil || n.End > root.End) {
			root = n
		}
		if n.Kind == fact.Turn || n.Kind == fact.ModelCall {
			if n.Model != nil && n.Model.ModelID != "" && (m.Model == nil || n.Model.ProviderID != "" || m.Model.ProviderID == "") {
				m.Model = n.Model
			}
			m.Agent = cmp.Or(n.Agent, m.Agent)
			m.SystemPromptDigest = cmp.Or(n.SystemPromptDigest, m.SystemPromptDigest)
			trace.ToolCatalogDigest = cmp.Or(n.ToolCatalogDigest, trace.ToolCatalogDigest)
		}
		for _, p := range n.Problems {
			if len(trace.Problems) < mostProblems && !slices.Contains(trace.Problems, p) {
				trace.Problems = append(trace.Problems, p)
			}
		}
	}
	// The root knows of calls that were lost; where it knows less it counted only
	// some of them.
	if u := t.rootUsage(); u != nil && (m.Usage == nil || u.Tokens.Total() > m.Usage.Total()) {
		tokens := u.Tokens
		m.Usage, trace.UsageBasis, raws = &tokens, u.Basis, nil
		if u.Raw != nil {
			raws = append(raws, u.Raw)
		}
	}
	for _, r := range t.roots {
		if r.CostUSD != nil && !costs {
			cost, costs = *r.CostUSD, true
		}
	}
	switch {
	case len(raws) == 1:
		trace.UsageRaw = raws[0]
	case len(raws) > 1:
		trace.UsageRaw, _ = json.Marshal(raws)
	}
	if costs {
		trace.CostUSD = &cost
	}
	if root != nil {
		finish = cmp.Or(finish, root.Finish)
		duration := (root.End - t.roots[0].Start) / 1e6
		trace.DurationMS = &duration
	} else {
		duration := int64(0)
		for _, n := range t.nodes {
			duration = max(duration, (n.End-t.start)/1e6)
		}
		trace.DurationMS = &duration
	}
	trace.StopReason = fact.FinishReason(finish)
	if trace.StopReason != finish {
		trace.StopReasonRaw = finish
	}
	trace.EndReason, trace.Error = w.ended(root, calls, trace.StopReason)
	trace.Incomplete = lost || root == nil && slices.ContainsFunc(t.nodes, func(n *node) bool { return n.Rooted })
	raw, err := marshal(m)
	if err != nil { // a raw value that is no JSON
		trace.UsageRaw = nil
		raw, _ = marshal(m)
	}
	return string(withExtra(raw, t.nodes))
}

// rootUsage is what the turn's roots counted. One that stands below another that
// counts is part of that one's.
func (t *turn) rootUsage() *fact.Usage {
	var sum *fact.Usage
	for _, r := range t.roots {
		if r.Usage == nil || slices.ContainsFunc(t.roots, func(o *node) bool { return o != r && o.Usage != nil && r.below(o) }) {
			continue
		}
		if sum == nil {
			u := *r.Usage
			sum = &u
			continue
		}
		sum.Tokens = sum.Tokens.Add(r.Usage.Tokens)
		both, err := json.Marshal([]json.RawMessage{soundJSON(sum.Raw, "null"), soundJSON(r.Usage.Raw, "null")})
		if err == nil {
			sum.Raw = both
		}
	}
	return sum
}

// ended says how the turn ended and by what error. What no source reports is not
// guessed.
func (w *writer) ended(root *node, calls []*call, stop string) (reason, text string) {
	aborted := slices.ContainsFunc(w.turn.nodes, func(n *node) bool { return n.Aborted && (n.Kind == fact.Turn || n.Kind == fact.ModelCall) })
	var last *call
	if len(calls) > 0 {
		last = calls[len(calls)-1]
	}
	switch {
	case aborted || stop == "abort":
		return "abort", ""
	case stop == "error":
		reason = "error"
	case stop != "" && (root != nil || stop != "tool-calls"):
		return "finish", ""
	case last != nil && last.failed() != "":
		reason = "error"
	case root != nil && root.Failed:
		reason = "error"
	default:
		return "", ""
	}
	if last != nil {
		text = last.failed()
	}
	if root != nil && root.Failed {
		text = cmp.Or(text, root.Error, root.ErrorType)
	}
	return reason, text
}

// withExtra adds the keys that no column has.
func withExtra(metadata []byte, nodes []*node) []byte {
	var have map[string]json.RawMessage
	if json.Unmarshal(metadata, &have) != nil {
		return metadata
	}
	for _, n := range nodes {
		var extra map[string]json.RawMessage
		if n.Kind != fact.Turn && n.Kind != fact.ModelCall || len(n.Extra) == 0 || json.Unmarshal(n.Extra, &extra) != nil {
			continue
		}
		keys := make([]string, 0, len(extra))
		for key := range extra {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			if _, taken := have[key]; taken || key == "usage" || key == "model" || key == "agent" || key == "agenttrace" || key == "system_prompt_digest" || key == "compaction" {
				continue
			}
			have[key] = extra[key]
			name := spans.AppendJSONString(nil, key)
			metadata = metadata[:len(metadata)-1]
			if len(metadata) > 1 {
				metadata = append(metadata, ',')
			}
			metadata = append(append(append(append(metadata, name...), ':'), extra[key]...), '}')
		}
	}
	return metadata
}

// id makes the id of a part.
func (w *writer) id(key string, at int64) string {
	w.seen[key]++
	return spans.DeriveIDNano(spans.PrefixPart, at, w.ID, key, strconv.Itoa(w.seen[key]))
}

// add writes a part. Times are Unix nanoseconds.
func (w *writer) add(partType, key string, from, to int64, data any) *session.Part {
	raw, err := marshal(data)
	if err != nil {
		raw, _ = marshal(damaged{Type: store.TypeDamaged, Data: damagedData{partType, err.Error()}})
		partType = store.TypeDamaged
	}
	w.Parts = append(w.Parts, session.Part{
		ID: w.id(key, from), MessageID: w.ID, SessionID: w.SessionID, Index: int64(len(w.Parts)), Type: partType, DataJSON: string(raw),
		CreatedAt: from / 1e6, UpdatedAt: max(from, to) / 1e6,
	})
	return &w.Parts[len(w.Parts)-1]
}
