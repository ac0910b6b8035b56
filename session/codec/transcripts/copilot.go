package transcripts

import (
	"cmp"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// looksCopilot reports whether a record with these keys, and the values of those that
// are strings, is an event of GitHub Copilot CLI.
func looksCopilot(keys map[string]string) bool {
	kind := keys["type"]
	return keys["data"] == "{" && keys["timestamp"] != "" && (kind == "session.start" || kind == "session.resume" ||
		kind == "user.message" || strings.HasPrefix(kind, "assistant.") || strings.HasPrefix(kind, "tool.execution_"))
}

// Copilot reads the events of a session of GitHub Copilot CLI, which are JSON lines.
// The session is followed by those of its sub-agents.
//
//	session.start               id, workspace, model
//	system.message              system prompt
//	user.message                user message; what the program adds is a system message
//	assistant.message           a step: reasoning, text, and tool calls
//	tool.execution_complete     result of a call, with its duration
//	permission.completed        decision
//	session.compaction_complete assistant message with a data-compaction part
//	session.usage_record        usage of a model call, in newer versions
//	session.shutdown            usage of each model
//	session.error, abort        how the turn ended
//
// In older versions, an answer reports how many tokens it has; everything else is counted by
// model, and written when the program exits. What was used since the exit before and no step
// reports is then part of the last step of that model.
//
// Lines that cannot be read are reported and left out; report may be nil. An error is
// yielded when reading fails, or when nothing names the session.
//
// Beside the file the program keeps the title of the session. The directory names the session if no event does.
var Copilot = codec.Reading{
	Extensions: []string{".jsonl"}, SniffKeys: looksCopilot, Transcript: true,
	Decode: copilotLines.stream, DecodeFile: copilotLines.file, DecodeText: copilotLines, Beside: besideCopilot,
}

var copilotLines = lines(newCopilot)

// workspaceFile states the title of a session.
const workspaceFile = "workspace.yaml"

func besideCopilot(path string) []string {
	return []string{filepath.Join(filepath.Dir(path), workspaceFile)}
}

// placeOfCopilot returns the session that the place of a file names, and its title.
func placeOfCopilot(path string) (named, title string) {
	if path == "" {
		return "", ""
	}
	named = strings.TrimSuffix(filepath.Base(path), ".jsonl")
	if named == "events" {
		if dir, err := filepath.Abs(filepath.Dir(path)); err == nil {
			named = filepath.Base(dir)
		}
		title = yamlText(beside(path, workspaceFile), "name")
	}
	return strings.ToValidUTF8(named, "\uFFFD"), title
}

// yamlText is the text of a key of a document of plain keys, "" if it is not there, or if
// it has more than a line.
func yamlText(text, key string) string {
	for line := range strings.Lines(text) {
		value, ok := strings.CutPrefix(line, key+":")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		switch {
		case value == "" || strings.ContainsAny(value[:1], "|>&*!"):
			return ""
		case value[0] == '"':
			unquoted, _ := rows.Text(json.RawMessage(value))
			return unquoted
		case value[0] == '\'' && len(value) > 1:
			return strings.ReplaceAll(strings.Trim(value, "'"), "''", "'")
		}
		value, _, _ = strings.Cut(value, " #")
		return strings.TrimSpace(value)
	}
	return ""
}

func newCopilot(path string, report func(codec.Problem)) recordReader {
	named, title := placeOfCopilot(path)
	return &copilot{report: report, named: named, title: title, agents: make(map[string]*copilotAgent),
		began: make(map[string]int64), asked: make(map[string]copilotRequest),
		summaries: make(map[string]session.Usage), used: make(map[string]session.Usage),
		totals: make(map[string]session.Usage)}
}

// Sessions returns what was read.
func (d *copilot) Sessions(string) ([]*codec.Session, error) {
	if d.main == nil {
		return nil, errors.New("read events: none of them names a session of Copilot, as session.start does")
	}
	d.main.b.Title = d.title
	all := make([]*codec.Session, 0, len(d.order))
	for _, a := range d.order {
		all = append(all, a.b.finish())
	}
	return all, nil
}

type copilot struct {
	report func(codec.Problem)
	named  string // by the place of the file, as is the title
	title  string
	main   *copilotAgent // nil before the session is named
	agents map[string]*copilotAgent
	order  []*copilotAgent
	began  map[string]int64 // when calls began
	asked  map[string]copilotRequest
	// segment are the steps since the session was opened, which the next shutdown counts.
	segment []copilotStep
	// summaries are what compactions since then used, by model.
	summaries map[string]session.Usage
	// used are the model calls that were counted and of which there is no message yet, by the id of the response.
	used map[string]session.Usage
	// totals are what the last shutdown counted, by agent and model, of the session that began at totalsOf.
	totals   map[string]session.Usage
	totalsOf int64
}

// copilotAgent is the agent that the user talks to, or a sub-agent.
type copilotAgent struct {
	b     *builder
	id    string // "" for the main one
	model string
	// thought is the reasoning that the next message may repeat.
	thought string
}

// copilotStep is the place of a model call.
type copilotStep struct {
	stepRef
	agent  *copilotAgent
	model  string
	output int64
	// counted is what a record reports of the call, nil without one.
	counted *session.Usage
}

// copilotRequest is a question for a permission.
type copilotRequest struct {
	call, pattern string
	at            int64
}

func (d *copilot) Record(o rows.Object, line int) {
	kind, data := o.Text("type"), o.Object("data")
	if kind == "" || data == nil {
		d.report(codec.Problem{Line: line, Reason: "is not an event with a type and data: left out"})
		return
	}
	if d.main == nil && !d.begin(kind, o, data, line) {
		return
	}
	a := d.agent(o, data)
	at := a.b.see(o.Text("timestamp"))
	d.main.b.s.See(at)
	if strings.HasPrefix(kind, "session.") {
		d.ofSession(a, kind, data, line)
		return
	}
	switch kind {
	case "system.message":
		a.b.Prompt = a.b.blob(store.BlobSystemPrompt, data.Text("content"))
	case "user.message":
		d.user(a, o, data)
	case "assistant.reasoning":
		if a.thought = data.Text("content"); a.thought != "" {
			d.step(a, cmp.Or(data.Text("reasoningId"), o.Text("id")), "", "")
			a.b.text("reasoning", a.thought)
		}
	case "assistant.message":
		d.assistant(a, o, data)
	case "tool.user_requested", "tool.execution_start":
		d.started(a, data)
	case "tool.execution_complete":
		d.completed(a, data, line)
	case "subagent.started":
		d.spawned(a, o, data)
	case "subagent.completed", "subagent.failed":
		if sub := d.agents[data.Text("toolCallId")]; sub != nil && sub != d.main {
			sub.b.see(o.Text("timestamp"))
			if failure := data.Text("error"); failure != "" {
				sub.b.ended("error", failure)
			}
		}
	case "permission.requested", "permission.completed":
		d.permission(a, kind, data)
	case "abort":
		a.b.ended("abort", "")
	}
}

// ofSession takes an event that is of the session, not of the conversation.
func (d *copilot) ofSession(a *copilotAgent, kind string, data rows.Object, line int) {
	switch kind {
	case "session.start", "session.resume":
		d.opened(data)
	case "session.model_change":
		a.model = cmp.Or(data.Text("newModel"), a.model)
		a.b.model(copilotProvider, a.model)
	case "session.mode_changed":
		rows.SetText(&a.b.s.Row.Mode, data.Text("newMode"))
	case "session.compaction_complete":
		d.compaction(a, data)
	case "session.error":
		if a.b.turn == nil {
			a.b.part(errorPart(cmp.Or(data.Text("message"), "error")))
		}
		a.b.ended("error", cmp.Or(data.Text("message"), data.Text("errorType"), "error"))
	case "session.usage_record":
		d.recorded(data.Object("usage"))
	case "session.shutdown":
		d.shutdown(data, line)
	}
}

// recorded notes what a model call used, which is reported before the message of the call or after it.
func (d *copilot) recorded(used rows.Object) {
	id, u := used.Text("apiCallId"), copilotCounts.inclusive(used)
	for i := range d.segment {
		if s := &d.segment[i]; id != "" && s.agent.b.stepAt(s.stepRef).ResponseID == id {
			s.use(u)
			return
		}
	}
	d.used[id] = d.used[id].Add(u)
}

// use notes what a record reports of the call.
func (s *copilotStep) use(u session.Usage) {
	s.counted = &u
	s.agent.b.count(s.stepRef, modelUse{usage: u}, semconv.BasisInclusive)
}

const copilotProvider = "github-copilot"

// begin makes the session of the first event, and reports whether it could.
func (d *copilot) begin(kind string, o, data rows.Object, line int) bool {
	id := d.named
	if kind == "session.start" && data.Text("sessionId") != "" {
		id = data.Text("sessionId")
	} else if id != "" && looksCopilot(map[string]string{"data": "{", "type": kind, "timestamp": o.Text("timestamp")}) {
		d.report(codec.Problem{Line: line,
			Reason: "precedes the event that names the session: it is named by the file"})
	} else {
		d.report(codec.Problem{Line: line, Reason: "precedes the event that names the session: left out"})
		return false
	}
	d.main = &copilotAgent{b: newBuilder(id, "copilot-cli", d.report)}
	d.agents[""], d.order = d.main, append(d.order, d.main)
	return true
}

// opened notes what is known of the session when it is opened, first or again.
func (d *copilot) opened(data rows.Object) {
	d.segment, d.summaries = nil, make(map[string]session.Usage)
	d.main.b.end()
	row := &d.main.b.s.Row
	about := data.Object("context")
	if row.WorkspaceRoot == nil {
		rows.SetText(&row.WorkspaceRoot, about.Text("cwd"))
	}
	d.main.b.parent(data.Text("detachedFromSpawningParentSessionId"))
	if model := data.Text("selectedModel"); model != "" {
		d.main.model = model
		d.main.b.model(copilotProvider, model)
	}
	if d.main.b.s.Meta("copilot_cli") == nil {
		d.main.b.s.SetMeta("copilot_cli", append(data.Texts("copilotVersion", "producer"),
			about.Texts("gitRoot", "branch", "repository")...))
	}
}

// agent is the one that an event is of. Older versions name a sub-agent by the call that
// started it.
func (d *copilot) agent(o, data rows.Object) *copilotAgent {
	id, call := o.Text("agentId"), data.Text("parentToolCallId")
	if strings.HasPrefix(o.Text("type"), "subagent.") {
		return d.main
	}
	if id = cmp.Or(id, call); id == "" {
		return d.main
	}
	return d.sub(id, call)
}

// sub is the sub-agent of an id, or of the call that started it.
func (d *copilot) sub(id, call string) *copilotAgent {
	a := d.agents[id]
	if a == nil {
		a = &copilotAgent{id: id, b: d.main.b.child(id, call)}
		d.agents[id], d.order = a, append(d.order, a)
	}
	if call != "" {
		a.b.About.CallID, d.agents[call] = call, a
		for _, parent := range d.order {
			if parent != a {
				parent.b.measure(call, "child_session_id", a.b.s.Row.ID)
			}
		}
	}
	return a
}

// spawned notes which call started a sub-agent, and what it is.
func (d *copilot) spawned(parent *copilotAgent, o, data rows.Object) {
	call := data.Text("toolCallId")
	id := cmp.Or(o.Text("agentId"), call)
	if id == "" {
		return
	}
	a := d.sub(id, call)
	a.b.see(o.Text("timestamp"))
	if name := data.Text("agentName"); name != "" {
		a.b.s.Row.Agent = name
	}
	if a.b.Title = data.Text("agentDisplayName"); a.b.Title == "" {
		a.b.Title = firstLine(data.Text("agentDescription"))
	}
	if a.model = cmp.Or(data.Text("model"), a.model, parent.model); a.model != "" {
		a.b.model(copilotProvider, a.model)
	}
}

func (d *copilot) user(a *copilotAgent, o, data rows.Object) {
	parts := []rows.Object{rows.TextPart("text", data.Text("content"))}
	if own, around := session.Words(data.Text("transformedContent")); own == strings.TrimSpace(data.Text("content")) {
		for _, text := range around {
			parts = append(parts, contextPart(text))
		}
	}
	for f := range rows.Objects(data.Get("attachments")) {
		parts = append(parts, copilotFile(f))
	}
	named(a.b.message(copilotRole(data), parts), o.Text("id"), data.Text("interactionId"), "")
}

// copilotRole is whose a message is in the user's name.
func copilotRole(data rows.Object) string {
	if by := data.Text("source"); by != "" && by != "user" || data.True("isAutopilotContinuation") {
		return session.RoleSystem
	}
	return session.RoleUser
}

// copilotFile is something that is attached to a message.
func copilotFile(f rows.Object) rows.Object {
	part := blockPart(f)
	switch f.Text("type") {
	case "file", "directory":
		if path := f.Text("path"); path != "" {
			part = fileOf(cmp.Or(f.Text("mimeType"), "application/octet-stream"), "file://"+filepath.ToSlash(path))
		}
	case "blob":
		if f.Has("data") && f.Text("mimeType") != "" {
			part = dataFile(f.Text("mimeType"), f.Text("data"))
		}
	}
	if name := f.Text("displayName"); name != "" && part.Text("type") == "file" {
		part.Set("filename", name)
	}
	return part
}

// step begins a model call, unless it has begun: reasoning may come before the message,
// and a message in several pieces.
func (d *copilot) step(a *copilotAgent, id, response, model string) *copilotStep {
	if last := d.begun(a, response); last != nil {
		of := &a.b.stepAt(last.stepRef).ResponseID
		*of, last.model = cmp.Or(*of, response), cmp.Or(model, last.model)
		return last
	}
	a.b.step(cmp.Or(response, id)).ResponseID = response
	d.segment = append(d.segment, copilotStep{stepRef: a.b.lastStep(), agent: a, model: cmp.Or(model, a.model)})
	return &d.segment[len(d.segment)-1]
}

// begun returns the step that a response is of, nil if it has not begun.
func (d *copilot) begun(a *copilotAgent, response string) *copilotStep {
	n := len(d.segment)
	if n == 0 || a.b.turn == nil {
		return nil
	}
	last := &d.segment[n-1]
	if last.agent != a || last.stepRef != a.b.lastStep() {
		return nil
	}
	if of := a.b.stepAt(last.stepRef).ResponseID; of == "" && last.output == 0 || response != "" && of == response {
		return last
	}
	return nil
}

// responseOf is the id of the response that a message is of.
func responseOf(o, data rows.Object) string {
	return cmp.Or(data.Text("apiCallId"), data.Text("messageId"), o.Text("id"))
}

func (d *copilot) assistant(a *copilotAgent, o, data rows.Object) {
	id := cmp.Or(data.Text("messageId"), o.Text("id"))
	s := d.step(a, id, responseOf(o, data), data.Text("model"))
	step := a.b.stepAt(s.stepRef)
	if step.RequestID = data.Text("requestId"); s.model != "" {
		step.Model = &session.Model{ProviderID: copilotProvider, ModelID: s.model}
	}
	if thought := data.Text("reasoningText"); thought != a.thought {
		a.b.text("reasoning", thought)
	}
	a.thought = ""
	a.b.text("text", data.Text("content"))
	requests := rows.Elements(data.Get("toolRequests"))
	for _, v := range requests {
		if call, err := rows.Parse(v); err == nil && !a.b.called(call.Text("toolCallId")) {
			a.b.call(call.Text("name"), call.Text("toolCallId"), inputOf(call.Get("arguments")))
		}
	}
	named(s.m, "", data.Text("interactionId"), "")
	if a.model = s.model; a.model != "" {
		a.b.model(copilotProvider, a.model)
	}
	if u, ok := d.used[step.ResponseID]; ok {
		delete(d.used, step.ResponseID)
		s.use(u)
	}
	if n := number(data, "outputTokens"); n > s.output && s.counted == nil {
		s.output = n
		a.b.count(s.stepRef, modelUse{usage: session.Usage{Output: n}}, semconv.BasisInclusive)
	}
	if len(requests) == 0 && data.Text("content") != "" {
		a.b.ended("finish", "")
	}
}

// started adds a call that no message requested, such as one of the user.
func (d *copilot) started(a *copilotAgent, data rows.Object) {
	id := data.Text("toolCallId")
	if id == "" {
		return
	}
	if !a.b.called(id) {
		a.b.call(data.Text("toolName"), id, inputOf(data.Get("arguments")))
	}
	d.began[id] = a.b.At
}

func (d *copilot) completed(a *copilotAgent, data rows.Object, line int) {
	id := data.Text("toolCallId")
	failed := string(data.Get("success")) == "false"
	output := data.Get("result")
	if result := data.Object("result"); result != nil && result.Has("content") {
		output = result.Get("content")
	}
	if failure := data.Object("error"); failed && failure.Text("message") != "" {
		output = failure.Get("message")
	} else if failed && data.Has("error") && failure == nil {
		output = data.Get("error")
	}
	if !a.b.outcome(codec.Problem{Line: line}, id, output, failed) {
		return
	}
	if began := d.began[id]; began > 0 && a.b.At >= began {
		a.b.measure(id, "duration_ms", a.b.At-began)
	}
	if code := data.Object("error").Text("code"); code != "" {
		a.b.measure(id, "error_type", code)
		if code == "rejected" || code == "denied" {
			a.b.measure(id, "denied", true)
		}
	}
}

// permission notes how a question was decided.
func (d *copilot) permission(a *copilotAgent, kind string, data rows.Object) {
	id := data.Text("requestId")
	if kind == "permission.requested" {
		asked := data.Object("permissionRequest")
		d.asked[id] = copilotRequest{call: asked.Text("toolCallId"), at: a.b.At,
			pattern: cmp.Or(asked.Text("fullCommandText"), asked.Text("fileName"), asked.Text("path"),
				asked.Text("url"),
				asked.Text("toolName"))}
		return
	}
	asked := d.asked[id]
	result := data.Object("result")
	decision := store.Decision{Action: "ask", Source: "user", Pattern: asked.pattern,
		Reason: cmp.Or(result.Text("feedback"), result.Text("message"), result.Text("reason"))}
	if asked.at > 0 && a.b.At >= asked.at {
		decision.WaitedMS = new(a.b.At - asked.at)
	}
	switch result.Text("kind") {
	case "approved":
		decision.Outcome, decision.Reply = "allowed", "once"
	case "approved-for-session", "approved-for-location":
		decision.Outcome, decision.Reply = "allowed", "always"
	case "denied-interactively-by-user", "cancelled":
		decision.Outcome, decision.Reply = "denied", "reject"
	case "denied-by-rules", "denied-by-content-exclusion-policy", "denied-by-permission-request-hook",
		"denied-no-approval-rule-and-could-not-request-from-user":
		decision.Action, decision.Outcome, decision.Source = "deny", "denied", ""
	default:
		return
	}
	call := cmp.Or(data.Text("toolCallId"), asked.call)
	a.b.decide(call, decision)
	if decision.Outcome == "denied" {
		a.b.measure(call, "denied", true)
	}
}

func (d *copilot) compaction(a *copilotAgent, data rows.Object) {
	if string(data.Get("success")) == "false" {
		return
	}
	c := compacted{summary: data.Text("summaryContent"), auto: data.Text("trigger") != "manual",
		before: number(data, "preCompactionTokens"), after: number(data, "postCompactionTokens")}
	if used := data.Object("compactionTokensUsed"); used != nil {
		c.durationMS = number(used, "duration")
		c.usage = new(camelCounts.inclusive(used))
	}
	m := a.b.compaction(c)
	if model := data.Object("compactionTokensUsed").Text("model"); model != "" {
		m.SetMeta("model", session.Model{ProviderID: copilotProvider, ModelID: model})
		d.summaries[model] = d.summaries[model].Add(*c.usage)
	}
}

// shutdown counts what the steps since the session was opened used.
func (d *copilot) shutdown(data rows.Object, line int) {
	// The counts are those of the session, and begin again only with another one.
	if began := moment(data, "sessionStartTime"); began != d.totalsOf {
		d.totals, d.totalsOf = make(map[string]session.Usage), began
	}
	if mode := data.Text("shutdownType"); mode == "error" {
		d.main.b.ended("error", cmp.Or(data.Text("errorReason"), "error"))
	}
	agents := data.Object("agentMetrics")
	for _, f := range agents {
		id := f.Key
		if id == "main" {
			id = ""
		}
		if a := d.agents[id]; a != nil {
			d.count(a, agents.Object(f.Key).Object("modelMetrics"), line)
		}
	}
	if len(agents) == 0 {
		d.count(nil, data.Object("modelMetrics"), line)
	}
	own := d.main.b.s.Meta("copilot_cli")
	own.Add(data.Only("totalPremiumRequests", "totalNanoAiu"))
	d.main.b.s.SetMeta("copilot_cli", own)
	d.segment, d.summaries = nil, make(map[string]session.Usage)
}

// copilotCounts are those of a shutdown.
var copilotCounts = counts{"inputTokens", "outputTokens", "reasoningTokens", "cacheReadTokens", "cacheWriteTokens"}

// count gives the last step of each model what the steps of an agent, nil for all, do not
// report themselves.
func (d *copilot) count(of *copilotAgent, metrics rows.Object, line int) {
	for _, f := range metrics {
		used := metrics.Object(f.Key).Object("usage")
		key := f.Key
		if of != nil {
			key = of.id + " " + key
		}
		total := copilotCounts.inclusive(used)
		u := without(total, d.totals[key])
		d.totals[key] = total
		if of == nil || of == d.main {
			u = without(u, d.summaries[f.Key])
		}
		for _, s := range d.segment {
			if s.counted != nil && s.model == f.Key && (of == nil || s.agent == of) {
				u = without(u, *s.counted)
			}
		}
		if u.Total() == 0 {
			continue
		}
		var last, any *copilotStep
		known := int64(0) // what the other steps report
		for i := range d.segment {
			s := &d.segment[i]
			if of != nil && s.agent != of {
				continue
			}
			any = s
			if s.counted == nil && (s.model == f.Key || s.model == "") {
				if last != nil {
					known += last.output
				}
				last = s
			}
		}
		if any == nil {
			d.report(codec.Problem{Line: line, Reason: "counts tokens of " + f.Key +
				", which no message is of: left out"})
			continue
		}
		if last == nil { // such as the model that makes titles
			a := any.agent.b.answer(any.m)
			a.Steps = append(a.Steps, session.Step{})
			any.agent.b.count(stepRef{any.m, len(a.Steps) - 1}, modelUse{usage: u,
				model: session.Model{ProviderID: copilotProvider, ModelID: f.Key}}, semconv.BasisInclusive)
			continue
		}
		// The shutdown counts all steps of a model together, and each step reports its own output. Without the
		// difference, the output of all steps but the last would count twice.
		rest := max(0, u.Output+u.Reasoning-known)
		u.Reasoning = min(u.Reasoning, rest)
		u.Output = rest - u.Reasoning
		last.agent.b.count(last.stepRef, modelUse{usage: u}, semconv.BasisInclusive)
	}
}

// without takes from u what another message of the session has used already.
func without(u, of session.Usage) session.Usage {
	return session.Usage{
		Input: max(0, u.Input-of.Input), Output: max(0, u.Output-of.Output),
		Reasoning: max(0, u.Reasoning-of.Reasoning),
		CacheRead: max(0, u.CacheRead-of.CacheRead), CacheWrite: max(0, u.CacheWrite-of.CacheWrite),
	}
}
