package transcripts

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// KimiCode reads the file wire.jsonl of an agent of a session of Kimi Code, the successor of Kimi CLI: the changes of
// what the model was given, with a trace of the requests, which has system prompts, tools and models. Each agent of a
// session has a file, and above them is one that names the agents. A fork has the records of its parent before its own.
var KimiCode = decodeKimiCode.reading(codec.Reading{
	Keys:       []string{"type=metadata protocol_version=* created_at"},
	Extensions: []string{".jsonl"}, Appends: true,
	Beside: func(path string) []string { return siblings(path, kimiCodeState) },
})

// kimiCodeState describes a session, from the directory of an agent.
const kimiCodeState = "../../state.json"

var decodeKimiCode decoder = func(from *source, text []byte) []*codec.Session {
	d := new(kimiCode)
	from.lines(text, func(o rows.Object) {
		if d.b == nil {
			d = newKimiCode(from, o)
		}
		d.b.see(moment(o, "time", "created_at"))
		d.record(o)
	})
	return d.b.alone()
}

type kimiCode struct {
	b     *builder
	isSub bool
	// step is the model call that goes on, nil before there is anything of it, and begun when it began.
	step  *step
	begun int64
	// catalogs are the tools of requests, by their hash.
	catalogs map[string]json.RawMessage
	// compaction is the one that goes on.
	compaction compacted
}

func newKimiCode(from *source, first rows.Object) *kimiCode {
	dir := filepath.Dir(filepath.Dir(filepath.Dir(from.path))) // of the session
	state, agent := rows.Read(string(from.beside(kimiCodeState))), dirOf(from.path)
	about := state.Object("agents").Object(agent)
	b := newBuilder(from, unnamed("kimi", first), "kimi-code")
	if id := cmp.Or(state.Text("id"), nameOf(dir)); filepath.Base(from.path) == "wire.jsonl" && id != "." {
		b = newBuilder(from, id, "kimi-code")
	}
	b.workspace(state.Text("cwd"))
	isSub := about.Text("type") == "sub"
	if parent := about.Text("parentAgentId"); isSub {
		b = b.child(agent, "")
		b.s.Row.Agent = cmp.Or(about.Object("labels").Text("profileName"), "kimi-code")
		if parent != "" && parent != "main" {
			b.parent(b.About.SubagentOf + "-" + parent)
		}
	} else {
		b.Title = state.Text("title")
		b.archived(moment(state, "archivedAt"))
		if fork := state.Text("forkedFrom"); fork != "" {
			b.copies(fork)
		}
	}
	return &kimiCode{b: b, isSub: isSub, catalogs: make(map[string]json.RawMessage)}
}

func (d *kimiCode) record(o rows.Object) {
	b := d.b
	switch o.Text("type") {
	case "forked":
		b.owns()
	case "profile.bind", "config.update":
		b.systemPrompt(o.Text("systemPrompt"))
	case "permission.set_mode":
		b.mode(o.Text("mode"))
	case "context.append_message":
		d.message(o.Object("message"))
	case "context.append_loop_event":
		d.event(o.Object("event"))
	case "context.undo":
		b.undo(number(o, "count"))
	case "llm.tools_snapshot":
		d.catalogs[o.Text("hash")] = o.Get("tools")
	case "llm.request":
		b.systemPrompt(o.Text("systemPrompt"))
		b.toolCatalog(d.catalogs[o.Text("toolsHash")])
		if model := (session.Model{ProviderID: o.Text("provider"), ModelID: o.Text("model")}); o.Text("kind") == "loop" {
			d.open().ran(model)
			b.setModel(model)
		} else {
			d.compaction.model = model
		}
	case "usage.record": // that of other requests is at the end of a step, too
		if used := kimiCodeCounts.of(o.Object("usage")); d.compaction.model.ModelID != "" {
			d.compaction.usage = &used
		}
	case "full_compaction.begin":
		d.compaction = compacted{auto: o.Text("source") == "auto", durationMS: -b.At}
	case "context.clear", "context.apply_compaction":
		c := d.compaction
		c.summary = cmp.Or(joined(contents(firstOf(o, "summary.content", "summary")), "\n"), o.Text("contextSummary"))
		c.before, c.after = number(o, "tokensBefore"), number(o, "tokensAfter")
		if c.durationMS < 0 {
			c.durationMS += b.At
		}
		b.compaction(c)
		d.compaction, d.step = compacted{}, nil
	case "subagent.spawned":
		b.measure(o.Text("parentToolCallId"), "child_session_id", b.s.Row.ID+"-"+o.Text("subagentId"))
	case "permission.record_approval_result":
		result := o.Object("result")
		reply := map[string]string{"approved": "once", "approved session": "always", "rejected": "reject"}
		decision := strings.TrimSpace(result.Text("decision") + " " + result.Text("scope"))
		b.judged(o.Text("toolCallId"), cmp.Or(reply[decision], reply[result.Text("decision")]), result.Text("feedback"))
	case "turn.ended":
		b.took(number(o, "durationMs"))
		switch reason := o.Text("reason"); reason {
		case "completed":
			b.ended("finish", "")
		case "cancelled":
			b.ended("abort", "")
		default:
			b.fails(cmp.Or(o.Object("error").Text("message"), reason))
		}
		d.step = nil
	}
}

// message adds what somebody but the model wrote. What the program adds in a turn is beside the answer.
func (d *kimiCode) message(o rows.Object) {
	b, parts := d.b, partsOf(contents(o.Get("content"))...)
	switch kind := firstOf(o, "origin.kind"); {
	case o.Text("role") == "tool":
		b.result(o.Text("toolCallId"), resultOf(o.Get("content")), o.True("isError"))
	case string(kind) == `"compaction_summary"`: // it is the compaction's
	case o.Text("role") == session.RoleAssistant:
		d.step, d.begun = nil, b.At
		d.open()
		b.add(parts...)
		for call := range rows.Objects(o.Get("toolCalls")) {
			b.call(call.Text("name"), call.Text("id"), inputOf(call.Get("arguments")))
		}
	case strings.Contains(`"user" "skill_activation" "plugin_command" "shell_command"`, string(kind)),
		d.isSub && len(b.messages) == 0:
		b.message(session.RoleUser, parts...).named(o.Text("id"), "", "")
	case b.turn == nil:
		b.message(session.RoleSystem, parts...)
	default:
		for _, p := range parts {
			b.part(contextPart(p.Text("text")))
		}
	}
}

// open is the model call that goes on.
func (d *kimiCode) open() *step {
	if d.step == nil {
		d.step = d.b.step("")
		d.step.StartedAt = cmp.Or(d.begun, d.b.At)
	}
	return d.step
}

// event takes what a model call did.
func (d *kimiCode) event(o rows.Object) {
	b, id := d.b, o.Text("toolCallId")
	switch o.Text("type") {
	case "step.begin":
		d.step, d.begun = nil, b.At
	case "content.part":
		d.open()
		b.add(partsOf(o.Object("part"))...)
	case "tool.call":
		d.open()
		b.call(o.Text("name"), id, inputOf(o.Get("args")))
	case "tool.result":
		result := o.Object("result")
		if b.result(id, resultOf(result.Get("output")), result.True("isError")) {
			b.lasted(id, number(result, "durationMs"))
		}
		if text := result.Text("output"); strings.Contains(text, "was denied by permission rule.") {
			b.denied(id, text)
		}
	case "step.end":
		s := d.open()
		s.ResponseID, s.StopReason = o.Text("messageId"), o.Text("finishReason")
		if used := o.Object("usage"); used != nil {
			s.count(modelUse{usage: kimiCodeCounts.of(used)}, semconv.BasisExclusive)
		}
		d.step = nil
	}
}

// kimiCodeCounts are the counts of a request.
var kimiCodeCounts = counts{"inputOther", "output", "", "inputCacheRead", "inputCacheCreation"}
