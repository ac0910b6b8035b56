package modelhttp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/modelapi"
	"github.com/agenttrace/agenttrace/redact"
)

// errTruncated is the error of a stream that ended without stating that the answer had.
var errTruncated = errors.New("the answer's stream ended early")

// answer records a model's answer as it arrives. The text goes on to the session at once; tool
// calls begin when the answer has ended, because then the agent has them.
type answer struct {
	modelapi.Answer
	flight *flight // nil drops the answer
	// served are the calls that the provider executes, by id.
	served map[string]*agenttrace.ToolCall
	// streams have the text of the blocks that are open.
	streams map[*modelapi.Block]*agenttrace.TextStream
	// content is what a later request that has the answer in its history is known by.
	content content
	// head is the beginning of the text, of headSize bytes at most.
	head     []byte
	headSize int
}

// isRecorded reports whether more than the usage is recorded.
func (a *answer) isRecorded() bool { return a.flight != nil && !a.flight.side }

// Text implements [modelapi.Sink].
func (a *answer) Text(b *modelapi.Block, text string) {
	if b.Kind == modelapi.Text && !b.Spoken {
		a.content.addText([]byte(text))
		a.head = append(a.head, text[:min(len(text), a.headSize-len(a.head))]...)
	}
	text = a.Take(text)
	if text == "" || !a.isRecorded() {
		return
	}
	stream := a.streams[b]
	if stream == nil {
		if b.Kind == modelapi.Reasoning {
			stream = a.flight.call.StreamReasoning()
		} else {
			stream = a.flight.call.StreamText()
		}
		a.streams[b] = stream
	}
	_, _ = stream.WriteString(text) // never fails
}

// Closed implements [modelapi.Sink].
func (a *answer) Closed(b *modelapi.Block) {
	if stream := a.streams[b]; stream != nil {
		_ = stream.Close() // never fails
		delete(a.streams, b)
	}
	switch {
	case b.Kind != modelapi.Call:
	case !b.Server:
		a.content.call(b.ID, b.Name)
	case a.isRecorded():
		_, tool := a.flight.turn.StartTool(a.flight.ctx, agenttrace.ToolOptions{
			ID: b.ID, Name: b.Name, Input: b.Input(), ProviderExecuted: true,
		})
		a.served[b.ID] = tool
	}
}

// Output implements [modelapi.Sink].
func (a *answer) Output(id string, output json.RawMessage, failed bool) {
	if tool := a.served[id]; tool != nil {
		endTool(tool, output, failed)
		delete(a.served, id)
	}
}

// File implements [modelapi.Sink].
func (a *answer) File(f modelapi.File) {
	if a.isRecorded() {
		a.flight.turn.Data("file", "", map[string]any{"mediaType": f.MediaType, "size": f.Size})
	}
}

// calls returns the tool calls that the agent is to execute.
func (a *answer) calls() (out []*openCall) {
	for _, b := range a.Blocks {
		if b.Kind == modelapi.Call && !b.Server && !b.Open {
			out = append(out, &openCall{id: b.ID, name: b.Name, input: string(b.Input())})
		}
	}
	return out
}

// result returns what the answer came to, for the span of the call, with the usage of the answer before it was
// interrupted.
func (a *answer) result(earlier *modelapi.Usage) agenttrace.ModelResult {
	r := agenttrace.ModelResult{StopReason: a.Stop, ResponseID: a.ID, ResponseModel: a.Model}
	if a.Usage != nil {
		r.RawUsage, r.CostUSD = a.Usage.Raw, a.Usage.CostUSD
	}
	u := earlier.Add(a.Usage)
	if u == nil {
		return r
	}
	counts := agenttrace.InclusiveUsage{
		Input: u.Input, Output: u.Output, Reasoning: u.Reasoning, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite,
	}
	switch r.Usage = counts; u.Basis {
	case modelapi.GeminiBasis:
		r.Usage = agenttrace.GeminiUsage{
			Prompt: u.Input, Cached: u.CacheRead, ToolUsePrompt: u.ToolPrompt, Candidates: u.Output, Thoughts: u.Reasoning,
		}
	case modelapi.Exclusive:
		r.Usage = agenttrace.ExclusiveUsage(counts)
	}
	return r
}

func endTool(tool *agenttrace.ToolCall, output json.RawMessage, failed bool) {
	var text string
	isText := len(output) > 0 && output[0] == '"' && json.Unmarshal(output, &text) == nil
	switch {
	case !failed && isText:
		tool.EndText(text)
	case !failed:
		tool.EndRaw(output)
	case isText:
		tool.Fail(&modelapi.Error{Kind: "tool_error", Text: text})
	default:
		tool.Fail(&modelapi.Error{Kind: "tool_error", Text: string(output)})
	}
}

// content identifies a message by its text and its tool calls, so that it is recognized
// when it comes back in the history of a request. Whitespace is left out, because clients
// trim; reasoning and inputs are left out, because they may be dropped.
type content struct {
	texts hash.Hash
	ids   []byte
	// full reports that the message has text or calls.
	full bool
}

// contentOf returns the content of a message of a request.
func contentOf(m *modelapi.Message) *content {
	var c content
	for k := range m.Items {
		switch i := &m.Items[k]; i.Kind {
		case modelapi.Text:
			c.addText([]byte(i.Text))
		case modelapi.Call:
			c.call(i.ID, i.Name)
		case modelapi.Result:
			c.call(">"+i.ID, i.Name)
		case modelapi.FileItem:
			c.call(fmt.Sprint("file ", i.File.Name, i.File.URL, i.File.Size), "")
		}
	}
	return &c
}

// addText adds a text, or the next piece of one.
func (c *content) addText(text []byte) {
	if c.texts == nil {
		c.texts = sha256.New()
	}
	for word := range bytes.FieldsSeq(text) {
		c.texts.Write(word)
		c.full = true
	}
}

// call adds a tool call by its id or, where the API has none, its name.
func (c *content) call(id, name string) {
	c.full = true
	c.ids = append(c.ids, 'c')
	c.ids = append(c.ids, cmp.Or(id, "="+name)...)
	c.ids = append(c.ids, 0)
}

// digest is a hash of a message, or of what distinguishes messages.
type digest [sha256.Size]byte

// digestOf returns the digest of texts that follow each other.
func digestOf(texts ...string) (sum digest) {
	h := sha256.New()
	for _, text := range texts {
		h.Write([]byte(text))
	}
	h.Sum(sum[:0])
	return sum
}

// after returns the digest of a conversation with one more message.
func (c *content) after(before digest, from modelapi.Role) (sum digest) {
	c.addText(nil)
	h := sha256.New()
	h.Write(before[:])
	h.Write([]byte{byte(from)})
	h.Write(c.texts.Sum(nil))
	h.Write(c.ids)
	h.Sum(sum[:0])
	return sum
}

// earlierResults ends the tool calls whose results are before the assistant's last message, because the client sends
// each call of an answer as an answer of its own. Only ids distinguish them from earlier results. The messages of
// earlier turns are left out, and of calls with one id the last counts: some servers number the calls of each answer.
func (c *conversation) earlierResults(messages []modelapi.Message) {
	seen := map[string]bool{}
	for i := len(messages) - 1; i >= 0 && len(c.waiting) > 0; i-- {
		m := &messages[i]
		hasText, hasResult := false, false
		for k := range m.Items {
			it := &m.Items[k]
			switch it.Kind {
			case modelapi.Call:
				seen[it.ID] = true
			case modelapi.Result:
				if hasResult = true; it.ID != "" && !seen[it.ID] {
					c.results([]modelapi.Message{{Role: m.Role, Items: m.Items[k : k+1]}})
				}
			default:
				hasText = true
			}
		}
		if m.Role == modelapi.User && hasText && !hasResult {
			return
		}
	}
}

// userItems returns the texts and files of the user after the assistant's last message.
func userItems(messages []modelapi.Message) (out []modelapi.Item) {
	for _, m := range messages {
		if m.Role == modelapi.Assistant {
			out = nil
			continue
		}
		for _, i := range m.Items {
			if i.Kind == modelapi.Text || i.Kind == modelapi.FileItem {
				out = append(out, i)
			}
		}
	}
	return out
}

// asks reports whether a message is one in which the user writes, rather than one with results of tools.
func asks(m *modelapi.Message) bool {
	return m.Role == modelapi.User && !hasResults([]modelapi.Message{*m})
}

// historyOf counts messages that a request repeats, and the turns that they are of.
func historyOf(messages []modelapi.Message) map[string]int {
	turns, asked := 0, false
	for i := range messages {
		before := asked
		if asked = asks(&messages[i]); asked && !before {
			turns++
		}
	}
	return map[string]int{"messages": len(messages), "turns": turns}
}

// turnStart returns the index of the first message of the turn that a request is of: the one from which on it is new if
// the user writes there, and else the last message in which the user does, or the first.
func turnStart(messages []modelapi.Message, from int) int {
	if from = min(from, len(messages)); len(userItems(messages[from:])) > 0 {
		return from
	}
	for i, m := range slices.Backward(messages) {
		if asks(&m) {
			return i
		}
	}
	return 0
}

// common returns how many of the conversation's messages before the place at, from the last one on, are the last ones
// of keys.
func (c *conversation) common(at int, keys []digest) (n int) {
	for at -= c.base; n < at && n < len(keys) && c.history[at-1-n].key == keys[len(keys)-1-n]; {
		n++
	}
	return n
}

// spotOf returns the last place with the longest tail of keys.
func (c *conversation) spotOf(keys []digest) spot {
	best := spot{conv: c}
	for at := c.base + len(c.history); at > c.base; at-- {
		if n := c.common(at, keys); n > best.matched {
			best.at, best.matched = at, n
		}
	}
	return best
}

// asked returns how many messages of a request, the i-th and those after it, are those that the conversation ends with
// and has no answer to.
func (c *conversation) asked(l *lookup, i int) (n int) {
	for at := c.done - c.base; at+n < len(c.history) && i+n < len(l.keys) && c.history[at+n].key == l.keys[i+n]; {
		n++
	}
	return n
}

// answerAt returns the assistant's last message before a place that is whole.
func (c *conversation) answerAt(at int) string {
	if at <= c.base {
		return ""
	}
	return c.history[at-1-c.base].answer
}

// ask has a conversation go on with a request: its history is what the request has, after what it had before that if
// the request continues it in the middle. The caller holds the registry's mu.
func (c *conversation) ask(l *lookup, m *match) {
	keys := l.keys
	c.open, c.consumed, c.awaited, c.work = true, true, nil, l.x.req.Context()
	c.setup = l.setup(c)
	c.askedHead = lettersOf(l.lastText(), maxHead)
	if l.last >= 0 && l.last == len(keys)-1 {
		keys = keys[:l.last] // the answer goes on with this message
	}
	var next []mark
	base, first := 0, m.at-m.upto // where the conversation has the request's first message
	aligned := m.matched > 0 && spot{conv: c, at: m.at, matched: m.matched}.all(m.upto)
	switch {
	case l.last < 0: // it repeats nothing
		base, first, aligned = c.base, c.done, false
		next = slices.Clone(c.history[:c.done-c.base])
	case aligned && first >= c.base:
		base = c.base
		next = slices.Clone(c.history[:first-c.base])
	case aligned:
		base = max(0, first)
	default:
		first = 0
	}
	for i, key := range keys {
		n := mark{key: key}
		if at := first + i; aligned && at >= c.base && at < c.done {
			n.answer = c.history[at-c.base].answer
		} else if len(next) > 0 {
			n.answer = next[len(next)-1].answer
		}
		next = append(next, n)
	}
	done := base + len(next) - len(keys) + min(l.last+1, len(keys))
	c.setHistory(base, next)
	c.done = done
}

// setHistory replaces the known messages.
func (c *conversation) setHistory(base int, next []mark) {
	c.history = lastOf(next, maxHistory)
	c.base = base + max(0, len(next)-maxHistory)
}

// response is the id of one, and how many messages the conversation had with it.
type response struct {
	id string
	at int
}

// add adds a conversation, which a tool call began or, most often, none did. The caller holds mu.
func (g *registry) add(l *lookup, caller *openCall) *conversation {
	c := &conversation{t: g.t, scope: l.scope, declared: l.declared, owner: l.turn, caller: caller}
	if l.declared != "" && caller == nil { // or its session is another one
		c.session = g.sessionOf(l)
	}
	g.all = append(g.all, c)
	return c
}

// sessionOf returns the session that a request names. The caller holds mu.
func (g *registry) sessionOf(l *lookup) *agenttrace.Session {
	for _, c := range g.all {
		if c.declared == l.declared && c.caller == nil {
			return c.session
		}
	}
	if l.session != nil {
		return l.session
	}
	o := g.t.sessionOptions(l.r.Messages) // it may have them from another process
	o.ID = l.declared
	return g.t.tracer.NewSession(context.Background(), o)
}

// firstPrompt returns the first line that the user has written. Clients put what they add, such as the time, in
// elements before that: it counts only if there is nothing else.
func firstPrompt(messages []modelapi.Message) string {
	added := ""
	for _, m := range messages {
		for _, i := range m.Items {
			if m.Role != modelapi.User || i.Kind != modelapi.Text {
				continue
			}
			text := strings.TrimSpace(i.Text)
			for strings.HasPrefix(text, "<") {
				tag, rest, ok := strings.Cut(text[1:], ">")
				name, _, _ := strings.Cut(tag, " ")
				inner, after, closed := strings.Cut(rest, "</"+name+">")
				if !ok || !closed || name == "" {
					break
				}
				added = cmp.Or(added, strings.TrimSpace(inner))
				text = strings.TrimSpace(after)
			}
			if text != "" {
				return redact.Headline(text)
			}
		}
	}
	return redact.Headline(added)
}
