package transcripts

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// Copilot reads the events of a session of GitHub Copilot CLI, which are JSON lines.
// The session is followed by those of its sub-agents.
//
// In newer versions a record has the usage of each model call. In older ones, an answer reports how many tokens it has;
// everything else is counted by model, and written when the program exits. What was used since the exit before and no
// step reports is then part of the last step of that model.
//
// Beside the file the program keeps the title of the session.
var Copilot = copilotLines.reading(codec.Reading{
	Keys: []string{
		"data={ timestamp=* type=session.start|session.resume|user.message|assistant.*|tool.execution_*"},
	Extensions: []string{".jsonl"}, Appends: true,
	Beside: func(path string) []string { return []string{filepath.Join(filepath.Dir(path), workspaceFile)} },
})

// workspaceFile states the title of a session.
const workspaceFile = "workspace.yaml"

var copilotLines decoder = func(from *source, text []byte) []*codec.Session {
	d := &copilot{source: from, agents: make(map[string]*copilotAgent), began: make(map[string]int64),
		asked: make(map[string]copilotRequest), summaries: make(map[string]session.Usage),
		used: make(map[string]session.Usage), totals: make(map[string]session.Usage)}
	from.lines(text, d.read)
	if d.main == nil {
		return nil
	}
	if nameOf(from.path) == "events" {
		var about struct{ Name string }
		_ = yaml.Unmarshal(from.beside(workspaceFile), &about) // nothing depends on it
		d.main.b.Title = about.Name
	}
	return d.main.b.all()
}

type copilot struct {
	*source
	main   *copilotAgent // nil before the session is named
	agents map[string]*copilotAgent
	order  []*copilotAgent
	began  map[string]int64 // when calls began
	asked  map[string]copilotRequest
	// segment are the steps since the session was opened, which the next shutdown counts.
	segment []*copilotStep
	// summaries are what compactions since then used, by model.
	summaries map[string]session.Usage
	// used are the model calls that were counted and of which there is no message yet, by the id of the response.
	used map[string]session.Usage
	// named reports that messages name the response that they are of.
	named bool
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
	// noticed reports that the agent answers a notice: the interaction is that of the turn before.
	noticed bool
}

// copilotStep is a model call.
type copilotStep struct {
	*step
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

const copilotProvider = "github-copilot"

func (d *copilot) read(o rows.Object) {
	kind, data := o.Text("type"), o.Object("data")
	if kind == "" || data == nil {
		d.Problem("is not an event with a type and data: left out")
		return
	}
	if d.main == nil && !d.begin(kind, data) {
		return
	}
	a := d.agent(o, data)
	at := a.b.see(milli(o.Text("timestamp")))
	d.main.b.s.See(at)
	if strings.HasPrefix(kind, "session.") {
		d.ofSession(a, kind, data)
		return
	}
	switch kind {
	case "system.message":
		a.b.systemPrompt(data.Text("content"))
	case "user.message":
		d.user(a, o, data)
	case "assistant.reasoning":
		if a.thought = data.Text("content"); a.thought != "" {
			d.step(a, cmp.Or(data.Text("reasoningId"), o.Text("id")), "", "")
			a.b.text("reasoning", a.thought)
		}
	case "assistant.message":
		d.assistant(a, o, data)
	case "system.notification": // which the model answers: a sub-agent is done
		a.noticed = a.b.notice(data.Text("content")) != nil
	case "tool.user_requested", "tool.execution_start":
		d.called(a, data)
	case "tool.execution_complete":
		d.completed(a, data)
	case "subagent.started":
		d.spawned(o, data)
	case "subagent.completed", "subagent.failed":
		if sub := d.agents[data.Text("toolCallId")]; sub != nil && sub != d.main {
			sub.b.see(at)
			if failure := data.Text("error"); failure != "" {
				sub.b.ended("error", failure)
			}
		}
	case "permission.requested":
		asked := data.Object("permissionRequest")
		d.asked[data.Text("requestId")] = copilotRequest{call: asked.Text("toolCallId"), at: at,
			pattern: cmp.Or(asked.Text("fullCommandText"), asked.Text("fileName"), asked.Text("path"),
				asked.Text("url"), asked.Text("toolName"))}
	case "permission.completed":
		d.permission(a, data)
	case "abort":
		a.b.ended("abort", "")
	}
}

// ofSession takes an event that is of the session, not of the conversation.
func (d *copilot) ofSession(a *copilotAgent, kind string, data rows.Object) {
	switch kind {
	case "session.start", "session.resume":
		d.opened(data)
	case "session.model_change":
		a.uses(cmp.Or(data.Text("newModel"), a.model))
	case "session.mode_changed":
		a.b.mode(data.Text("newMode"))
	case "session.compaction_complete":
		d.compaction(a, data)
	case "session.error":
		a.b.fails(cmp.Or(data.Text("message"), data.Text("errorType"), "error"))
	case "session.usage_record":
		d.recorded(data.Object("usage"))
	case "session.shutdown":
		d.shutdown(data)
	}
}

// begin makes the session of the first event, and reports whether it could.
func (d *copilot) begin(kind string, data rows.Object) bool {
	id := data.Text("sessionId")
	if kind != "session.start" || id == "" {
		d.Problem("precedes the event that names the session: left out")
		return false
	}
	d.main = &copilotAgent{b: newBuilder(d.source, id, "copilot-cli")}
	d.agents[""], d.order = d.main, append(d.order, d.main)
	return true
}

// uses notes the model of an agent.
func (a *copilotAgent) uses(model string) {
	a.model = model
	a.b.model(copilotProvider, model)
}

// recorded notes what a model call used, which is reported before the message of the call or after it.
func (d *copilot) recorded(used rows.Object) {
	id, u := used.Text("apiCallId"), camelCounts.inclusive(used)
	for _, s := range d.segment {
		if id != "" && s.ResponseID == id {
			s.use(u)
			return
		}
	}
	d.used[id] = d.used[id].Add(u)
}

// use notes what a record reports of the call.
func (s *copilotStep) use(u session.Usage) {
	s.counted = &u
	s.count(modelUse{usage: u}, semconv.BasisInclusive)
}

// opened notes what is known of the session when it is opened, first or again.
func (d *copilot) opened(data rows.Object) {
	d.segment, d.summaries = nil, make(map[string]session.Usage)
	b, about := d.main.b, data.Object("context")
	b.end()
	if b.s.Row.WorkspaceRoot == nil {
		b.workspace(about.Text("cwd"))
	}
	b.parent(data.Text("detachedFromSpawningParentSessionId"))
	d.main.uses(cmp.Or(data.Text("selectedModel"), d.main.model))
	if b.s.MetaOf("copilot_cli") == nil {
		b.s.SetMeta("copilot_cli", append(data.Texts("copilotVersion", "producer"),
			about.Texts("gitRoot", "branch", "repository")...))
	}
}

// agent is the one that an event is of. Older versions name a sub-agent by the call that started it.
func (d *copilot) agent(o, data rows.Object) *copilotAgent {
	call := data.Text("parentToolCallId")
	id := cmp.Or(o.Text("agentId"), call)
	if strings.HasPrefix(o.Text("type"), "subagent.") || id == "" {
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
func (d *copilot) spawned(o, data rows.Object) {
	call := data.Text("toolCallId")
	id := cmp.Or(o.Text("agentId"), call)
	if id == "" {
		return
	}
	a := d.sub(id, call)
	a.b.see(milli(o.Text("timestamp")))
	if name := data.Text("agentName"); name != "" {
		a.b.s.Row.Agent = name
	}
	a.b.Title = cmp.Or(data.Text("agentDisplayName"), redact.Headline(data.Text("agentDescription")))
	a.uses(cmp.Or(data.Text("model"), a.model, d.main.model))
}

func (d *copilot) user(a *copilotAgent, o, data rows.Object) {
	role := session.RoleUser
	by := data.Text("source")
	asked := a != d.main && strings.HasPrefix(by, "agent-") // by the agent above
	if by != "" && by != "user" && !asked || data.True("isAutopilotContinuation") {
		role = session.RoleSystem
	}
	parts := []rows.Object{rows.TextPart("text", data.Text("content"))}
	if own, around := session.Words(data.Text("transformedContent")); own == strings.TrimSpace(data.Text("content")) {
		for _, text := range around {
			parts = append(parts, contextPart(text))
		}
	}
	for f := range rows.Objects(data.Get("attachments")) {
		media, part := f.Text("mimeType"), blockPart(f)
		switch path := f.Text("path"); f.Text("type") {
		case "file", "directory":
			if path != "" {
				part = fileOf(cmp.Or(media, octets), "file://"+filepath.ToSlash(path))
			}
		case "blob":
			if f.Has("data") && media != "" {
				part = dataFile(media, f.Text("data"))
			}
		}
		if name := f.Text("displayName"); name != "" && part.Text("type") == "file" {
			part.Set("filename", name)
		}
		parts = append(parts, part)
	}
	a.noticed = false
	a.b.message(role, parts...).named(o.Text("id"), data.Text("interactionId"), "")
}

// step begins a model call, unless it has begun: reasoning may come before the message,
// and a message in several pieces.
func (d *copilot) step(a *copilotAgent, id, response, model string) *copilotStep {
	if n := len(d.segment); n > 0 && a.b.turn != nil {
		s := d.segment[n-1]
		isLast := s.agent == a && s.in == a.b.turn && s.step == s.in.Steps[len(s.in.Steps)-1]
		if isLast && (s.ResponseID == "" && s.output == 0 || response != "" && s.ResponseID == response) {
			s.ResponseID, s.model = cmp.Or(s.ResponseID, response), cmp.Or(model, s.model)
			return s
		}
	}
	s := &copilotStep{step: a.b.step(cmp.Or(response, id)), agent: a, model: cmp.Or(model, a.model)}
	s.ResponseID = response
	d.segment = append(d.segment, s)
	return s
}

func (d *copilot) assistant(a *copilotAgent, o, data rows.Object) {
	if d.named = d.named || data.Has("apiCallId"); d.named && !data.Has("apiCallId") && !data.Has("model") &&
		data.Text("content") == "" {
		return // the client itself makes the call, to read what a sub-agent answered
	}
	id := cmp.Or(data.Text("messageId"), o.Text("id"))
	s := d.step(a, id, cmp.Or(data.Text("apiCallId"), id), data.Text("model"))
	s.RequestID = data.Text("requestId")
	s.ran(session.Model{ProviderID: copilotProvider, ModelID: s.model})
	if thought := data.Text("reasoningText"); thought != a.thought {
		a.b.text("reasoning", thought)
	}
	a.thought = ""
	a.b.text("text", data.Text("content"))
	for call := range rows.Objects(data.Get("toolRequests")) {
		if !a.b.called(call.Text("toolCallId")) {
			a.b.call(call.Text("name"), call.Text("toolCallId"), inputOf(call.Get("arguments")))
		}
	}
	if !a.noticed {
		s.in.named("", data.Text("interactionId"), "")
	}
	a.uses(s.model)
	if u, ok := d.used[s.ResponseID]; ok {
		delete(d.used, s.ResponseID)
		s.use(u)
	}
	if n := number(data, "outputTokens"); n > s.output && s.counted == nil {
		s.output = n
		s.count(modelUse{usage: session.Usage{Output: n}}, semconv.BasisInclusive)
	}
	if data.Text("content") != "" {
		a.b.answered()
	}
}

// called adds a call that no message requested, such as one of the user.
func (d *copilot) called(a *copilotAgent, data rows.Object) {
	id := data.Text("toolCallId")
	if id == "" {
		return
	}
	if d.began[id] = a.b.At; !a.b.called(id) {
		a.b.call(data.Text("toolName"), id, inputOf(data.Get("arguments")))
	}
}

func (d *copilot) completed(a *copilotAgent, data rows.Object) {
	id, failed, output := data.Text("toolCallId"), string(data.Get("success")) == "false",
		firstOf(data, "result.content", "result")
	output = withFiles(output, slices.DeleteFunc(contents(firstOf(data, "result.contents")), func(o rows.Object) bool {
		return slices.Contains([]string{"text", "terminal"}, o.Text("type"))
	})...)
	failure := data.Object("error")
	if failed && failure.Text("message") != "" {
		output = failure.Get("message")
	} else if failed && data.Has("error") && failure == nil {
		output = data.Get("error")
	}
	if !a.b.result(id, output, failed) {
		return
	}
	if began := d.began[id]; began > 0 && a.b.At >= began {
		a.b.measure(id, "duration_ms", a.b.At-began)
	}
	code := failure.Text("code")
	a.b.measure(id, "error_type", code)
	a.b.measure(id, "denied", code == "rejected" || code == "denied")
}

// permission notes how a question was decided.
func (d *copilot) permission(a *copilotAgent, data rows.Object) {
	asked, result := d.asked[data.Text("requestId")], data.Object("result")
	decision := store.Decision{Action: "ask", Source: "user", Outcome: "denied", Pattern: asked.pattern,
		Reason: cmp.Or(result.Text("feedback"), result.Text("message"), result.Text("reason"))}
	if asked.at > 0 && a.b.At >= asked.at {
		decision.WaitedMS = new(a.b.At - asked.at)
	}
	switch kind := result.Text("kind"); kind {
	case "approved":
		decision.Outcome, decision.Reply = "allowed", "once"
	case "approved-for-session", "approved-for-location":
		decision.Outcome, decision.Reply = "allowed", "always"
	case "denied-interactively-by-user", "cancelled":
		decision.Reply = "reject"
	default: // by rules, policies or hooks
		if decision.Action, decision.Source = "deny", ""; !strings.HasPrefix(kind, "denied-") {
			return
		}
	}
	call := cmp.Or(data.Text("toolCallId"), asked.call)
	a.b.decide(call, decision)
	a.b.measure(call, "denied", decision.Outcome == "denied")
}

func (d *copilot) compaction(a *copilotAgent, data rows.Object) {
	if string(data.Get("success")) == "false" {
		return
	}
	c := compacted{summary: data.Text("summaryContent"), auto: data.Text("trigger") != "manual",
		before: number(data, "preCompactionTokens"), after: number(data, "postCompactionTokens")}
	if used := data.Object("compactionTokensUsed"); used != nil {
		c.durationMS, c.usage = number(used, "duration"), new(camelCounts.inclusive(used))
		c.model = session.Model{ProviderID: copilotProvider, ModelID: used.Text("model")}
		d.summaries[c.model.ModelID] = d.summaries[c.model.ModelID].Add(*c.usage)
	}
	a.b.compaction(c)
}

// shutdown counts what the steps since the session was opened used.
func (d *copilot) shutdown(data rows.Object) {
	// The counts are those of the session, and begin again only with another one.
	if began := moment(data, "sessionStartTime"); began != d.totalsOf {
		d.totals, d.totalsOf = make(map[string]session.Usage), began
	}
	if data.Text("shutdownType") == "error" {
		d.main.b.ended("error", cmp.Or(data.Text("errorReason"), "error"))
	}
	agents := data.Object("agentMetrics")
	for _, f := range agents {
		id := f.Key
		if id == "main" {
			id = ""
		}
		if a := d.agents[id]; a != nil {
			d.count(a, agents.Object(f.Key).Object("modelMetrics"))
		}
	}
	if len(agents) == 0 {
		d.count(nil, data.Object("modelMetrics"))
	}
	own := d.main.b.s.MetaOf("copilot_cli")
	own.Add(data.Only("totalPremiumRequests", "totalNanoAiu"))
	d.main.b.s.SetMeta("copilot_cli", own)
	d.segment, d.summaries = nil, make(map[string]session.Usage)
}

// count gives the last step of each model what the steps of an agent, nil for all, do not report themselves.
func (d *copilot) count(of *copilotAgent, metrics rows.Object) {
	for _, f := range metrics {
		key := f.Key
		if of != nil {
			key = of.id + " " + key
		}
		total := camelCounts.inclusive(metrics.Object(f.Key).Object("usage"))
		u := without(total, d.totals[key])
		d.totals[key] = total
		if of == nil || of == d.main {
			u = without(u, d.summaries[f.Key])
		}
		var last, any *copilotStep
		known := int64(0) // what the other steps report
		for _, s := range d.segment {
			switch {
			case of != nil && s.agent != of:
				continue
			case s.counted != nil && s.model == f.Key:
				u = without(u, *s.counted)
			case s.counted == nil && (s.model == f.Key || s.model == ""):
				if last != nil {
					known += last.output
				}
				last = s
			}
			any = s
		}
		switch {
		case u.Total() == 0:
		case any == nil:
			d.Problem("counts tokens of %s, which no message is of: left out", f.Key)
		case last == nil: // such as the model that makes titles
			any.in.newStep("").count(modelUse{usage: u,
				model: session.Model{ProviderID: copilotProvider, ModelID: f.Key}}, semconv.BasisInclusive)
		default:
			// The shutdown counts all steps of a model together, and each step reports its own output. Without the
			// difference, the output of all steps but the last would count twice.
			rest := max(0, u.Output+u.Reasoning-known)
			u.Reasoning = min(u.Reasoning, rest)
			u.Output = rest - u.Reasoning
			last.count(modelUse{usage: u}, semconv.BasisInclusive)
		}
	}
}
