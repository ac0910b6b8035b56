package modelhttp

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/modelapi"
	"github.com/agenttrace/agenttrace/redact"
)

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

// lastUserText returns the index of the last message in which the user writes, or the first.
func lastUserText(messages []modelapi.Message) int {
	for i, m := range slices.Backward(messages) {
		if m.Role == modelapi.User && !hasResults(messages[i:i+1]) {
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
	o := g.t.sessionOptions(l.r)
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
