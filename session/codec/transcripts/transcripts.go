// Package transcripts reads what coding agents keep of their own sessions.
//
//	Claude Code  ~/.claude/projects/<project>/<session>.jsonl
//	Codex        ~/.codex/sessions/<year>/<month>/<day>/rollout-<time>-<session>.jsonl
//	Gemini CLI   ~/.gemini/tmp/<project>/chats/session-<time>-<session>.json or .jsonl
//	opencode     ~/.local/share/opencode/opencode.db, before that the tree storage/ beside it
//	Copilot CLI  ~/.copilot/session-state/<session>/events.jsonl
//	Cursor CLI   ~/.cursor/chats/<project>/<chat>/store.db
//	Cline        ~/.cline/data/sessions/<session>/*.messages.json, before that tasks of an editor
//	OpenHands    ~/.openhands/conversations/<conversation>/events/*.json
//	Kiro CLI     ~/.kiro/sessions/cli/<session>.jsonl, and ~/.local/share/kiro-cli/data.sqlite3
//	Zed          ~/.local/share/zed/threads/threads.db
//	Goose        ~/.local/share/goose/sessions/sessions.db, before that a file per session beside it
//
// None of these formats is specified; all are read as they are found, by what their
// records have in common over the versions. Records that report nothing of the
// conversation are passed over, such as snapshots of files and states of the
// user's interface.
//
// A user's message opens a turn, and what the agent did until the next is one
// assistant message. What is kept only grows, and the ids of rows are the program's
// own, or follow from the session's id and their order: importing again what has
// grown adds to the session. What the user left by going back is hidden where the
// records show it, and keeps its place among the messages.
package transcripts

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// builder makes a session of records in the order in which they come.
type builder struct {
	s      *rows.Session
	report func(codec.Problem)
	// Prompt and Catalog are the digests of what the model is given from here on.
	Prompt, Catalog string
	// About is the program whose transcript it is, and which of its sub-agents.
	About session.TranscriptTrace
	At    int64 // of the record before
	// Model is that of the last call.
	Model session.Model
	// Cost is what the source reports for the whole session.
	Cost  *float64
	Title string // as it was given
	Asked string // what the user asked first
	Fork  forking
	// turn is the assistant message of the turn, nil before the agent answers.
	turn    *rows.Message
	calls   map[string]*rows.Part
	answers map[*rows.Message]*answer
	failed  map[string]bool // the calls that failed, whatever their results report
	touched *rows.Message   // by the record that was read last
}

// forking is where a fork ends that copies the records of its parent, and its own records begin.
type forking struct {
	// Copying reports that the records are copies, so far.
	Copying bool
	// CopiedTo is the time of the last message that is a copy, OwnAt that of the first record that is not, 0 before it.
	CopiedTo, OwnAt int64
}

// answer is what takes more than one record to know of an assistant message.
type answer struct {
	Steps []session.Step
	// BySource finds a step by the id that its records share.
	BySource map[string]int
	Model    session.Model
	Cost     *float64
	End      ending
}

// ending is how a turn ended other than well.
type ending struct{ Reason, Text string }

func newBuilder(id, agent string, report func(codec.Problem)) *builder {
	return &builder{
		s: rows.New(id, agent), report: report, About: session.TranscriptTrace{Transcript: agent},
		calls: make(map[string]*rows.Part), answers: make(map[*rows.Message]*answer),
		failed: make(map[string]bool),
	}
}

// see takes the time of a record; one without a time has that of the one before.
func (b *builder) see(timestamp string) int64 { return b.seeMilli(milli(timestamp)) }

// milli reads a time as Unix milliseconds, 0 if it is not one.
func milli(timestamp string) int64 {
	if t, err := time.Parse(time.RFC3339Nano, timestamp); err == nil {
		return max(0, t.UnixMilli())
	}
	return 0
}

func (b *builder) seeMilli(at int64) int64 {
	if at > 0 {
		b.At = at
	}
	if b.About.Forked && !b.Fork.Copying {
		b.At = max(b.At, b.Fork.CopiedTo+1)
		b.Fork.OwnAt = cmp.Or(b.Fork.OwnAt, b.At)
	}
	if b.At > 0 {
		b.s.See(b.At)
	}
	return b.At
}

// message adds a message that is not part of a turn's answer, and ends the turn
// before it. One in the user's name that has nothing of the user's is a system message.
func (b *builder) message(role string, parts []rows.Object) *rows.Message {
	b.end()
	if role == session.RoleUser {
		if split, own := spoken(parts); own {
			parts = split
		} else {
			role = session.RoleSystem
		}
	}
	m := b.s.Message(role, b.At)
	for _, p := range parts {
		m.Part(p, m.Row.CreatedAt)
		if text := p.Text("text"); role == session.RoleUser && b.Asked == "" && text != "" {
			b.Asked = text
		}
	}
	b.touched = m
	return m
}

// end ends the turn.
func (b *builder) end() { b.turn = nil }

// parent notes the session that this one is below, unless the id is empty or its own.
func (b *builder) parent(id string) {
	if id != b.s.Row.ID {
		rows.SetText(&b.s.Row.ParentID, id)
	}
}

// copies notes that the next record is a copy of one of the session from which this one was forked.
func (b *builder) copies(parent string) {
	b.parent(parent)
	if b.s.Row.ParentID != nil {
		b.About.Forked, b.Fork = true, forking{Copying: true}
	}
}

// owns notes that the next record is not a copy.
func (b *builder) owns() {
	if b.Fork.Copying {
		b.Fork = forking{CopiedTo: b.s.LastAt()}
		b.end()
	}
}

// text adds a text or reasoning part, unless the text is empty.
func (b *builder) text(kind, text string) {
	if text != "" {
		b.part(rows.TextPart(kind, text))
	}
}

// named notes the ids that the source gives a message; empty ones are left out.
func named(m *rows.Message, source, turn, trace string) {
	m.AddTrace(rows.NonEmpty("source_id", source, "turn_id", turn, "trace_id", trace))
}

// hide hides a message that the user left by going back, at a time.
func hide(m *rows.Message, at int64) {
	if m.Row.HiddenAt == nil {
		m.Row.HiddenAt = new(max(at, m.Row.CreatedAt))
		m.Touch(*m.Row.HiddenAt)
	}
}

// ended notes how the turn ended, unless more of it follows.
func (b *builder) ended(reason, text string) {
	if b.turn != nil {
		b.answer(b.turn).End = ending{reason, text}
	}
}

// answer returns what is known of an assistant message beside its parts.
func (b *builder) answer(m *rows.Message) *answer {
	a := b.answers[m]
	if a == nil {
		a = &answer{BySource: make(map[string]int)}
		b.answers[m] = a
	}
	return a
}

// part adds a part to the turn's assistant message.
func (b *builder) part(data rows.Object) *rows.Part {
	if b.turn == nil {
		b.turn = b.s.Message(session.RoleAssistant, b.At)
	}
	b.turn.Touch(b.At)
	b.touched = b.turn
	if a := b.answers[b.turn]; a != nil {
		a.End = ending{}
	}
	return b.turn.Part(data, b.At)
}

// step begins a model call of the turn. source is what the records of the call
// share, such as the id of the response.
func (b *builder) step(source string) *session.Step {
	b.part(rows.Of("type", "step-start"))
	b.turn.AddMeta(rows.NonEmpty("system_prompt_digest", b.Prompt))
	b.turn.AddTrace(rows.NonEmpty("tool_catalog_digest", b.Catalog))
	a := b.answer(b.turn)
	a.BySource[source] = len(a.Steps)
	a.Steps = append(a.Steps, session.Step{StartedAt: b.At})
	return &a.Steps[len(a.Steps)-1]
}

// call adds a tool call. One without an input has an empty object.
func (b *builder) call(name, id string, input json.RawMessage) *rows.Part {
	if id == "" {
		id = fmt.Sprintf("call_%d", len(b.calls)+1)
	}
	o := rows.ToolPart(cmp.Or(name, "unknown"), id, session.StateInputAvailable)
	o.Set("input", orEmpty(input))
	p := b.part(o)
	b.calls[id] = p
	return p
}

// called reports whether there is a call with the id.
func (b *builder) called(id string) bool { return b.calls[id] != nil }

// result gives a call its outcome, and reports whether there is one that waits for
// it.
func (b *builder) result(id string, output json.RawMessage, failed bool) bool {
	p := b.calls[id]
	if p == nil || p.Data().Text("state") != session.StateInputAvailable {
		return false
	}
	p.Set(p.Data().Without("state")) // it comes after the input, beside the output
	p.Result(output, failed || b.failed[id])
	p.Touch(b.At)
	b.touched = p.Message()
	return true
}

// outcome is result, with a report of one that no call waits for, which is in a record.
func (b *builder) outcome(record codec.Problem, id string, output json.RawMessage, failed bool) bool {
	done := b.result(id, output, failed)
	if !done {
		record.Reason = "result of call " + id + ", which is not pending: left out"
		b.report(record)
	}
	return done
}

// fail notes that a call failed or was denied, of which there is the result or will be.
func (b *builder) fail(id string, denied bool) {
	p := b.calls[id]
	if p == nil {
		return
	}
	if denied {
		b.measure(id, "denied", true)
	}
	if b.failed[id] = true; p.Data().Text("state") == session.StateOutputAvailable {
		output := p.Data().Get("output")
		p.Set(p.Data().Without("state", "output"))
		p.Result(output, true)
		p.Touch(b.At)
	}
}

// measure notes a key of what the AI SDK's tool part has no field for; see
// [session.ToolTrace].
func (b *builder) measure(id, key string, v any) {
	p := b.calls[id]
	if p == nil {
		return
	}
	o := p.Data()
	o.SetToolTrace(key, v)
	p.Set(o)
}

// refused notes that a person refused a call, for a reason.
func (b *builder) refused(id, reason string) {
	b.fail(id, true)
	b.decide(id, store.Decision{Action: "ask", Source: "user", Outcome: "denied", Reply: "reject", Reason: reason})
}

// denied notes that a call was not allowed by a rule, for a reason.
func (b *builder) denied(id, reason string) {
	b.fail(id, true)
	b.decide(id, store.Decision{Action: "deny", Outcome: "denied", Reason: reason})
}

// compacted is what a source reports of a compaction.
type compacted struct {
	summary string
	auto    bool
	tail    *string // the id of the first message that the model still sees, nil for none
	// before and after are the sizes of the model's context in tokens.
	before, after int64
	durationMS    int64
	// usage is that of the model call that wrote the summary, nil where the source does
	// not report it.
	usage *session.Usage
}

// compaction adds the mark from which the context begins again.
func (b *builder) compaction(c compacted) *rows.Message {
	m := b.message(session.RoleAssistant, []rows.Object{rows.DataPart(session.TypeCompaction, rows.Of(
		"summary", c.summary, "tail_start_id", c.tail, "auto", c.auto, "summary_tokens", c.after))})
	m.SetMeta("compaction", true)
	m.AddMeta(rows.NonEmpty("usage", session.Usage{Input: c.after}))
	trigger := "manual"
	if c.auto {
		trigger = "auto"
	}
	m.SetMeta("agenttrace", rows.NonEmpty("context_tokens_before", c.before, "context_tokens_after", c.after,
		"duration_ms", c.durationMS, "trigger", trigger, "usage", c.usage))
	return m
}

// withdraw removes the turn's last step, which was not part of the turn, and returns
// its usage, nil where it is not known. A message that is empty then goes too.
func (b *builder) withdraw() *session.Usage {
	a := b.answer(b.turn)
	parts := b.turn.Parts()
	from := len(parts) - 1
	for from > 0 && parts[from].Row.Type != "step-start" {
		from--
	}
	var usage *session.Usage
	if n := len(a.Steps); n > 0 {
		usage, a.Steps = a.Steps[n-1].Usage, a.Steps[:n-1]
	}
	if b.turn.Cut(from); len(b.turn.Parts()) == 0 {
		delete(b.answers, b.turn)
		b.end()
	}
	return usage
}

// blob keeps a text under its digest, which it returns.
func (b *builder) blob(kind store.BlobKind, body string) string {
	sum := sha256.Sum256([]byte(body))
	digest := hex.EncodeToString(sum[:])
	if !slices.ContainsFunc(b.s.Blobs, func(o store.Blob) bool { return o.Digest == digest }) {
		b.s.Blobs = append(b.s.Blobs, store.Blob{Kind: kind, Digest: digest, Body: body, Exact: true})
	}
	return digest
}

// errorPart is what an answer consists of that failed before the model said
// anything: a message has at least one part.
func errorPart(text string) rows.Object {
	return rows.DataPart(session.TypeError, rows.Of("text", text))
}

// spend notes the usage of a model call; what is reported last of a call counts.
func (b *builder) spend(call string, u session.Usage) {
	if b.turn == nil {
		return
	}
	a := b.answer(b.turn)
	i, known := a.BySource[call]
	if !known {
		i = len(a.Steps)
		a.BySource[call] = i
		a.Steps = append(a.Steps, session.Step{})
	}
	a.Steps[i].Usage = &u
}

// paid adds what the source reports that a part of the message cost, nil for nothing.
func (b *builder) paid(m *rows.Message, usd *float64) { rows.AddCost(&b.answer(m).Cost, usd) }

// model notes the model of the turn, which is the session's too.
func (b *builder) model(provider, id string) {
	b.setModel(session.Model{ProviderID: provider, ModelID: id})
}

func (b *builder) setModel(m session.Model) {
	b.Model = m
	if b.turn != nil {
		b.answer(b.turn).Model = m
	}
}

// finish writes what takes more than one record to know.
func (b *builder) finish() *codec.Session {
	b.s.SetMeta("agenttrace", b.About)
	if b.Model != (session.Model{}) {
		b.s.Row.ModelJSON = new(string(rows.Raw(b.Model)))
	}
	for _, m := range b.s.Messages() {
		if a := b.answers[m]; a != nil {
			b.finishAnswer(m, a)
		}
	}
	if b.Cost != nil {
		b.s.Row.CostUSD = max(b.s.Row.CostUSD, *b.Cost)
	}
	b.s.Row.Title = cmp.Or(b.Title, firstLine(b.Asked), b.s.Row.Title)
	b.owns() // a fork without a record of its own begins after the copies
	s := b.s.Finish()
	if row := &s.Session; b.Fork != (forking{}) {
		row.CreatedAt = max(b.Fork.OwnAt, b.Fork.CopiedTo+1)
		row.UpdatedAt = max(row.UpdatedAt, row.CreatedAt)
	}
	return s
}

func (b *builder) finishAnswer(m *rows.Message, a *answer) {
	made := rows.Answer{Message: m, Model: a.Model, CostUSD: a.Cost, End: a.End.Reason, Error: a.End.Text}
	for _, s := range a.Steps {
		if s.Model != nil && *s.Model == a.Model {
			s.Model = nil
		}
		made.Step(s, session.Model{}, nil)
	}
	made.Finish()
	if a.Cost != nil {
		b.s.Row.CostUSD = store.AddCost(b.s.Row.CostUSD, *a.Cost)
	}
}

// anthropicCounts are those of the API, each of which stands for itself.
var anthropicCounts = counts{input: "input_tokens", output: "output_tokens", read: "cache_read_input_tokens",
	write: "cache_creation_input_tokens"}

// firstLine is a title of a text: its first line, cut at a length that a list
// shows.
func firstLine(text string) string {
	const maxRunes = 80
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if r := []rune(strings.TrimSpace(line)); len(r) > maxRunes {
		return string(r[:maxRunes-1]) + "…"
	}
	return strings.TrimSpace(line)
}

// maxCount bounds a count, so that no sum of counts overflows.
const maxCount = 1 << 40

// number reads a count, 0 if it is not one.
func number(o rows.Object, key string) int64 {
	return bounded(o.Get(key), maxCount)
}

// maxMoment is a time that none is after, in Unix milliseconds.
const maxMoment = 1 << 47

// moment reads a time in Unix milliseconds, 0 if it is not one.
func moment(o rows.Object, key string) int64 {
	return bounded(o.Get(key), maxMoment)
}

func bounded(raw json.RawMessage, maximum int64) int64 {
	n, err := json.Number(raw).Int64()
	if err != nil || n > maximum {
		return 0
	}
	return max(0, n)
}
