// Package transcripts reads what coding agents keep of their own sessions.
//
//	Claude Code  ~/.claude/projects/<project>/<session>.jsonl
//	Codex        ~/.codex/sessions/<year>/<month>/<day>/rollout-<time>-<session>.jsonl
//	Gemini CLI   ~/.gemini/tmp/<project>/chats/session-<time>-<session>.json or .jsonl
//	opencode     ~/.local/share/opencode/opencode.db, before that the tree storage/ beside it
//
// None of these formats is specified; all are read as they are found, by what their
// records have in common over the versions. Records that tell nothing of the
// conversation are passed over, such as snapshots of files and states of the
// user's interface.
//
// A user's message opens a turn, and what the agent did until the next is one
// assistant message. What is kept only grows, and the ids of rows are the program's
// own, or follow from the session's id and their order: importing again what has
// grown adds to the session. What the user left by going back is hidden where the
// records tell it, and stays in the place in which it was said.
package transcripts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// lines calls record for each JSON object in r, and reports lines that are none.
func lines(r io.Reader, report func(codec.Problem), record func(o rows.Object, line int)) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read transcript: %w", err)
	}
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if !utf8.Valid(line) {
			line = bytes.ToValidUTF8(line, []byte("\uFFFD"))
			report(codec.Problem{Line: n, Reason: "bytes that are not UTF-8 were replaced by U+FFFD"})
		}
		o, err := rows.Parse(line)
		if err != nil {
			report(codec.Problem{Line: n, Reason: "is not a record: left out: " + err.Error()})
			continue
		}
		record(o, n)
	}
	return nil
}

// builder makes a session of records in the order in which they come.
type builder struct {
	s *rows.Session
	// turn is the assistant message of the turn, nil before the agent says anything.
	turn     *rows.Message
	at       int64 // of the record before
	calls    map[string]*rows.Part
	usage    map[*rows.Message]*spent
	ends     map[*rows.Message]ending
	touched  *rows.Message // by the record that was read last
	title    string        // as it was given
	question string        // what the user asked first
}

// spent is the usage of a message by the calls of the model that it took, and what
// the source says that it cost.
type spent struct {
	order []string
	calls map[string]session.Usage
	cost  *float64
}

// ending is how a turn ended other than well.
type ending struct{ reason, text string }

func newBuilder(id, agent string) *builder {
	return &builder{
		s: rows.New(id, agent), calls: make(map[string]*rows.Part),
		usage: make(map[*rows.Message]*spent), ends: make(map[*rows.Message]ending),
	}
}

// see takes the time of a record; one without a time has that of the one before.
func (b *builder) see(timestamp string) int64 { return b.seeMilli(milli(timestamp)) }

// milli reads a time as Unix milliseconds, 0 where it is none.
func milli(timestamp string) int64 {
	if t, err := time.Parse(time.RFC3339Nano, timestamp); err == nil {
		return max(0, t.UnixMilli())
	}
	return 0
}

func (b *builder) seeMilli(at int64) int64 {
	if at > 0 {
		b.at = at
	}
	if b.at > 0 {
		b.s.See(b.at)
	}
	return b.at
}

// message adds a message that is no turn's, and ends the turn before it.
func (b *builder) message(role string, parts []rows.Object) *rows.Message {
	b.turn = nil
	m := b.s.Message(role, b.at)
	for _, p := range parts {
		m.Part(p, m.Row.CreatedAt)
		if text := p.Text("text"); role == session.RoleUser && b.question == "" && text != "" {
			b.question = text
		}
	}
	b.touched = m
	return m
}

// hide says that the user went back to before the message, at a time.
func hide(m *rows.Message, at int64) {
	if m.Row.HiddenAt == nil {
		m.Row.HiddenAt = new(max(at, m.Row.CreatedAt))
		m.Touch(*m.Row.HiddenAt)
	}
}

// ended notes how the turn ended, unless more of it follows.
func (b *builder) ended(reason, text string) {
	if b.turn != nil {
		b.ends[b.turn] = ending{reason, text}
	}
}

// part adds a part to the turn's assistant message.
func (b *builder) part(data rows.Object) *rows.Part {
	if b.turn == nil {
		b.turn = b.s.Message(session.RoleAssistant, b.at)
	}
	b.turn.Touch(b.at)
	b.touched = b.turn
	delete(b.ends, b.turn)
	return b.turn.Part(data, b.at)
}

func textPart(kind, text string) rows.Object {
	var o rows.Object
	o.Set("type", kind)
	o.Set("text", text)
	return o
}

// call adds a tool call.
func (b *builder) call(name, id string, input any) *rows.Part {
	var o rows.Object
	if name == "" {
		name = "unknown"
	}
	if id == "" {
		id = fmt.Sprintf("call_%d", len(b.calls)+1)
	}
	o.Set("type", "tool-"+name)
	o.Set("toolCallId", id)
	o.Set("state", session.StateInputAvailable)
	o.Set("input", input)
	p := b.part(o)
	b.calls[id] = p
	return p
}

// result gives a call its outcome, and reports whether there is one that waits for
// it.
func (b *builder) result(id string, output json.RawMessage, failed bool) bool {
	p := b.calls[id]
	if p == nil || p.Data().Text("state") != session.StateInputAvailable {
		return false
	}
	o := p.Data().Without("state")
	if len(output) == 0 {
		output = json.RawMessage("null")
	}
	if failed {
		text, ok := rows.Text(output)
		if !ok {
			text = string(output)
		}
		o.Set("state", session.StateOutputError)
		o.Set("errorText", text)
	} else {
		o.Set("state", session.StateOutputAvailable)
		o.Set("output", output)
	}
	p.Set(o)
	p.Touch(b.at)
	p.Message().Touch(b.at)
	b.touched = p.Message()
	return true
}

// compaction adds the mark from which the context begins anew.
func (b *builder) compaction(summary string, auto bool, tokens int64) {
	var inner, o rows.Object
	inner.Set("summary", summary)
	inner.Set("tail_start_id", nil)
	inner.Set("auto", auto)
	inner.Set("summary_tokens", max(0, tokens))
	o.Set("type", session.TypeCompaction)
	o.Set("data", inner)
	b.message(session.RoleAssistant, []rows.Object{o})
}

// spend notes the usage of a call of the model; what is told last of a call
// stands.
func (b *builder) spend(call string, u session.Usage) {
	if b.turn == nil {
		return
	}
	s := b.spent(b.turn)
	if _, known := s.calls[call]; !known {
		s.order = append(s.order, call)
	}
	s.calls[call] = u
}

func (b *builder) spent(m *rows.Message) *spent {
	s := b.usage[m]
	if s == nil {
		s = &spent{calls: make(map[string]session.Usage)}
		b.usage[m] = s
	}
	return s
}

// paid adds what the source says that a part of the message cost.
func (b *builder) paid(m *rows.Message, usd float64) {
	s := b.spent(m)
	if s.cost == nil {
		s.cost = new(float64)
	}
	*s.cost = store.AddCost(*s.cost, usd)
}

// model notes the model of the turn, which is the session's too.
func (b *builder) model(provider, id string) {
	b.setModel(session.Model{ProviderID: provider, ModelID: id})
}

func (b *builder) setModel(m session.Model) {
	if text, err := rows.Marshal(m); err == nil {
		b.s.Row.ModelJSON = new(string(text))
	}
	if b.turn != nil {
		b.turn.SetMeta("model", m)
	}
}

// finish writes what takes more than one record to know.
func (b *builder) finish() *codec.Session {
	for _, m := range b.s.Messages() {
		s := b.usage[m]
		if s == nil {
			continue
		}
		var sum session.Usage
		for _, call := range s.order {
			sum = sum.Add(s.calls[call])
		}
		if len(s.order) > 0 {
			m.SetMeta("usage", sum)
			m.SetTrace("model_calls", len(s.order))
		}
		if s.cost != nil {
			m.SetTrace("cost_usd", *s.cost)
			b.s.Row.CostUSD = store.AddCost(b.s.Row.CostUSD, *s.cost)
		}
	}
	for _, m := range b.s.Messages() {
		if end, ok := b.ends[m]; ok {
			m.SetTrace("end_reason", end.reason)
			if end.text != "" {
				m.SetTrace("error", end.text)
			}
		}
	}
	if b.title == "" {
		b.title = firstLine(b.question)
	}
	if b.title != "" {
		b.s.Row.Title = b.title
	}
	return b.s.Finish()
}

// firstLine is a title of a text: its first line, cut at a length that a list
// shows.
func firstLine(text string) string {
	const most = 80
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if r := []rune(strings.TrimSpace(line)); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return strings.TrimSpace(line)
}

// maxCount bounds a count, so that no sum of counts overflows.
const maxCount = 1 << 40

// number reads a count, 0 where it is none.
func number(o rows.Object, key string) int64 {
	return bounded(o.Get(key), maxCount)
}

// maxMoment is a time that none is after, in Unix milliseconds.
const maxMoment = 1 << 47

// moment reads a time in Unix milliseconds, 0 where it is none.
func moment(o rows.Object, key string) int64 {
	return bounded(o.Get(key), maxMoment)
}

func bounded(raw json.RawMessage, most int64) int64 {
	n, err := json.Number(raw).Int64()
	if err != nil || n > most {
		return 0
	}
	return max(0, n)
}
