package modelhttp

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/internal/modelapi"
)

// This file has the rules by which a request belongs to a conversation: [registry.find] goes through them in order.
// Who may see whom is decided first: what is in different scopes never joins, and a name (a turn of the agent, or a
// session's id) holds together what has it and keeps out the rest.

// lookup is what is known of a request before its conversation is found.
type lookup struct {
	x *exchange
	r *modelapi.Request
	// request is the digest of what it asks for, of which attempts do not differ.
	request digest
	// scope is the digest of the host and the credential.
	scope digest
	// system and tools are digests of the system prompt without what changes with time, and of the tools' names.
	system, tools digest
	// keys are the digests of the messages, one by one.
	keys []digest
	// last is the index of the last message of the assistant, -1 if there is none.
	last     int
	declared string
	turn     *agenttrace.Turn
	session  *agenttrace.Session // that of a run in the context
	// text has the letters of what the request begins with, and purposes what it asks for, once somebody wants to know.
	text     string
	purposes *purposes
}

func newLookup(x *exchange, r *modelapi.Request) *lookup {
	l := &lookup{x: x, r: r, last: -1}
	ctx := x.req.Context()
	if l.turn = agenttrace.TurnFromContext(ctx); l.turn == nil {
		if l.session = agenttrace.SessionFromContext(ctx); l.session != nil {
			l.declared = l.session.ID()
		} else {
			l.declared = x.t.declaredSession(x.req)
		}
	}
	l.scope = digestOf(x.req.URL.Host, "\x00", credential(x.req))
	l.system = digestOfSystem(r.System)
	var names []string
	for _, t := range r.Tools {
		names = append(names, t.Name, "\x00")
	}
	l.tools = digestOf(names...)
	whole := []string{string(l.scope[:]), string(l.system[:]), string(l.tools[:]),
		strings.Join([]string{r.Model, string(r.Form), r.Previous, r.Conversation, r.Continuation}, "\x00")}
	for i := range r.Messages {
		m := &r.Messages[i]
		l.keys = append(l.keys, contentOf(m).after(l.scope, m.Role))
		whole = append(whole, string(l.keys[i][:]))
		if m.Role == modelapi.Assistant {
			l.last = i
		}
	}
	l.request = digestOf(whole...)
	return l
}

// digestOfSystem returns the digest of a system prompt without words with a digit and the names of days, months and
// halves of a day: what is left is the same at another time.
func digestOfSystem(prompt string) digest {
	words := strings.FieldsFunc(prompt, func(r rune) bool {
		return unicode.IsSpace(r) || strings.ContainsRune(",.:;()[]/-", r)
	})
	return digestOf(strings.Join(slices.DeleteFunc(words, func(w string) bool {
		return strings.ContainsAny(w, "0123456789") || len(w) <= len("wednesday") && timeWord().MatchString(w)
	}), " "))
}

var timeWord = lazy.Regexp(`^(?i)(mon|tues?|wed(nes)?|thu(rs)?|fri|sat(ur)?|sun)(day)?$|` +
	`^(jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|` +
	`aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?|dec(ember)?)$|` +
	`^([ap]m|utc|gmt|z)$`)

// credential returns what a request is authorized with. Of AWS's signature, which is new
// with every request, it is the key.
func credential(req *http.Request) string {
	var b strings.Builder
	for _, name := range [...]string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Openai-Organization"} {
		v := req.Header.Get(name)
		if _, rest, ok := strings.Cut(v, "Credential="); ok && strings.HasPrefix(v, "AWS4-") {
			v, _, _ = strings.Cut(rest, "/")
		}
		b.WriteString(v)
		b.WriteByte(0)
	}
	b.WriteString(req.URL.Query().Get("key"))
	return b.String()
}

// match is the conversation that a request continues.
type match struct {
	conv *conversation
	// from is the first message that the conversation does not have.
	from int
	// The conversation has at messages where the request has upto; matched of them, before there, are the same. They
	// are 0 if the conversation was not found so.
	at, upto, matched int
	// parent is what the conversation, which is new, forks from, parentAnswer the assistant's last message before there
	// that is whole.
	parent       *conversation
	parentAnswer string
	// ambiguous reports that several conversations are alike up to here.
	ambiguous bool
	// side reports a call beside the conversation.
	side bool
	// summary is the text by which the request replaces the history, of that many messages.
	summary    string
	summarized int
}

// find returns the conversation of a request; a new one if it continues none. The caller holds mu.
func (g *registry) find(l *lookup) match {
	within := g.named(l)
	if len(l.keys) > 0 && !l.hasHistory() && !hasResults(l.r.Messages[l.last+1:]) {
		if m := g.calledBy(l, within); m.conv != nil {
			return m
		}
		if c := g.aside(l, within); c != nil {
			return match{conv: c, side: true}
		}
	}
	var m match
	for _, rule := range [...]func(*lookup, []*conversation) match{
		g.byBrokenCall, g.byResult, g.byResponseID, g.byHistory, g.bySummary,
	} {
		if m = rule(l, within); m.conv != nil || m.parent != nil || m.ambiguous {
			break
		}
	}
	if c := cmp.Or(m.conv, m.parent); c != nil && l.hasHistory() && c.isAside(l, true) {
		return match{conv: c, from: m.from, side: true}
	}
	switch {
	case m.conv != nil:
		if m.conv.summary != "" && l.beginsWith(m.conv.summary) {
			m.summary, m.summarized = m.conv.summary, max(0, m.conv.done-m.matched)
		}
		return m
	case m.parent != nil && l.declared != "": // in a named session there are no forks
		m.parent = nil
	case m.parent == nil && len(within) > 0:
		for _, c := range slices.Backward(within) {
			if c.caller == nil && (c.external != nil || c.flights == 0) {
				return match{conv: c, from: l.last + 1, side: c.external != nil && c.isAside(l, true)}
			}
		}
	}
	m.conv, m.from = g.add(l, nil), cmp.Or(m.from, l.last+1)
	return m
}

// named returns the conversations that have the name that the request has. A turn of the agent's own has one that its
// calls are added to.
func (g *registry) named(l *lookup) []*conversation {
	switch {
	case l.turn == nil && l.declared == "":
		return nil
	case l.turn == nil:
		return g.where(func(c *conversation) bool { return c.declared == l.declared })
	}
	all := g.where(func(c *conversation) bool { return c.owner == l.turn })
	if len(all) == 0 {
		all = append(all, g.add(l, nil))
		all[0].external = l.turn
	}
	return all
}

// sees reports whether a request may belong to a conversation by what it has.
func (l *lookup) sees(within []*conversation, c *conversation) bool {
	return c.external == nil && (l.declared == "" && l.turn == nil || slices.Contains(within, c))
}

// known returns the conversations of which something is true that a request of the same host and credential names by an
// id or a text. The caller holds mu.
func (g *registry) known(l *lookup, within []*conversation, is func(c *conversation) bool) []*conversation {
	return g.where(func(c *conversation) bool { return c.scope == l.scope && l.sees(within, c) && is(c) })
}

// isNear reports whether a request comes from the same piece of work as the conversation: it has the same name, the
// same context, unless that is one that everybody has, or the same trace.
func (l *lookup) isNear(within []*conversation, c *conversation) bool {
	return slices.Contains(within, c) || sameWork(c.work, l.x.req.Context())
}

func sameWork(a, b context.Context) bool {
	if a == nil || b == nil {
		return false
	}
	if sameContext(a, b) && a != context.Background() && a != context.TODO() {
		return true
	}
	x, y := trace.SpanContextFromContext(a), trace.SpanContextFromContext(b)
	return x.HasTraceID() && x.TraceID() == y.TraceID()
}

// otherTrace reports whether two pieces of work have traces of their own. Those of attempts are the same, though each
// may have a deadline, and so a context, of its own.
func otherTrace(a, b context.Context) bool {
	x, y := trace.SpanContextFromContext(a), trace.SpanContextFromContext(b)
	return x.HasTraceID() && y.HasTraceID() && x.TraceID() != y.TraceID()
}

func sameContext(a, b context.Context) bool {
	return reflect.TypeOf(a).Comparable() && reflect.TypeOf(b).Comparable() && a == b
}

// recent returns the conversations that a request with nothing of a conversation's history may be about, the most
// recent first: those with its name or, without one, those used last.
func (g *registry) recent(l *lookup, within []*conversation) iter.Seq2[int, *conversation] {
	if l.declared == "" && l.turn == nil {
		const maxRecent = 1000 // they are looked at one by one
		within = slices.DeleteFunc(slices.Clone(g.all[max(0, len(g.all)-maxRecent):]), func(c *conversation) bool {
			return c.external != nil
		})
	}
	return slices.Backward(within)
}

// calledBy finds the tool call that waits and whose sub-agent begins with the request. The call's input has the text
// of the request, or the request comes from the same piece of work with another system prompt and with tools.
// Without tools that is a call beside the conversation.
func (g *registry) calledBy(l *lookup, within []*conversation) (m match) {
	prompt := l.prompt()
	for _, c := range g.recent(l, within) {
		near := l.isNear(within, c)
		if !c.open || !near && c.scope != l.scope {
			continue
		}
		var call *openCall
		for _, o := range c.awaited {
			if prompt != "" && strings.Contains(o.input, prompt) {
				call = o
				break
			}
			if near && l.system != c.setup.system && len(l.r.Tools) > 0 && (call == nil || call.called && !o.called) {
				call = o
			}
		}
		if call != nil {
			call.called = true
			if l.turn != nil && l.session == nil && agenttrace.ToolFromContext(l.x.req.Context()) != nil {
				call.ctx = l.x.req.Context() // the agent's own call is the sub-agent's
			}
			return match{conv: g.add(l, call)}
		}
	}
	return m
}

// prompt returns the user's text as the input of a tool has it, "" if it is so short that any may have it.
func (l *lookup) prompt() string {
	text := strings.TrimSpace(l.lastText())
	if len(text) < 8 {
		return ""
	}
	quoted := string(modelapi.Quote(text))
	return quoted[1 : len(quoted)-1]
}

// lastText returns the user's text after the last answer.
func (l *lookup) lastText() string {
	var b strings.Builder
	for _, i := range userItems(l.r.Messages) {
		if i.Kind == modelapi.Text {
			b.WriteString(i.Text)
		}
	}
	return b.String()
}

func (l *lookup) hasHistory() bool { return l.last >= 0 || l.isChained() }

func hasResults(messages []modelapi.Message) bool {
	return slices.ContainsFunc(messages, func(m modelapi.Message) bool {
		return slices.ContainsFunc(m.Items, func(i modelapi.Item) bool { return i.Kind == modelapi.Result })
	})
}

// byResult finds the conversation that waits for one of the results.
func (g *registry) byResult(l *lookup, within []*conversation) match {
	for i := len(l.r.Messages) - 1; i > l.last; i-- {
		for _, it := range l.r.Messages[i].Items {
			if it.Kind != modelapi.Result || it.ID == "" {
				continue
			}
			var found []spot
			isCall := func(o *openCall) bool { return o.id == it.ID }
			for _, c := range g.known(l, within, func(c *conversation) bool { return slices.ContainsFunc(c.awaited, isCall) }) {
				s := spot{conv: c, at: c.done}
				if l.last >= 0 {
					s.matched = c.common(c.done, l.keys[:l.last+1])
				}
				known := len(it.ID) >= strongID || l.declared != "" || l.follows(c)
				if known || s.all(l.last+1) {
					found = append(found, s)
				}
			}
			if len(found) > 0 {
				return g.best(l, found)
			}
		}
	}
	return match{}
}

// byBrokenCall finds the conversation whose answer broke off after calls of tools, and that is asked again for it.
func (g *registry) byBrokenCall(l *lookup, within []*conversation) match {
	for _, c := range g.known(l, within, func(c *conversation) bool { return c.open && c.flights == 0 }) {
		if c.failed == l.request && len(c.awaited) > 0 && sameContext(c.work, l.x.req.Context()) {
			return match{conv: c, from: len(l.keys)}
		}
	}
	return match{}
}

// follows reports whether a request names the last response of a conversation.
func (l *lookup) follows(c *conversation) bool {
	n := len(c.responses)
	return l.r.Previous != "" && n > 0 && c.scope == l.scope && c.responses[n-1].id == l.r.Previous
}

// byResponseID finds the conversation by the ids of the provider.
func (g *registry) byResponseID(l *lookup, within []*conversation) match {
	if l.r.Previous != "" {
		var found []spot
		g.known(l, within, func(c *conversation) bool {
			i := slices.IndexFunc(c.responses, func(r response) bool { return r.id == l.r.Previous })
			if i >= 0 {
				found = append(found, spot{conv: c, at: c.responses[i].at})
			}
			return i >= 0
		})
		if len(found) > 0 {
			return g.best(l, found)
		}
	}
	if l.r.Conversation != "" {
		all := g.known(l, within, func(c *conversation) bool { return l.hasRemote(c) && c.flights == 0 })
		if len(all) > 0 {
			return match{conv: all[0], from: l.last + 1}
		}
	}
	return match{}
}

// spot is a place in a conversation that a request may go on from.
type spot struct {
	conv *conversation
	// at is how many messages of the conversation are before it. matched is how many of the last ones of them the
	// request has, too, up to its last answer.
	at, matched int
	// edited reports that the request has that last answer in other words.
	edited bool
}

// byHistory finds the conversation with the longest tail of messages that is in the request, up to its last answer. If
// nobody knows that answer, the one before it counts, and so on, if all that is before is known.
func (g *registry) byHistory(l *lookup, within []*conversation) match {
	if l.last < 0 {
		return g.byQuestion(l, within)
	}
	index := make(map[digest]int, len(l.keys)) // of the last message that is so
	for i, key := range l.keys {
		index[key] = i
	}
	known := make([][]*conversation, len(l.keys)) // that have the message
	for _, c := range g.all {
		for k := range c.history {
			i, has := index[c.history[k].key]
			if has && l.sees(within, c) && !slices.Contains(known[i], c) {
				known[i] = append(known[i], c)
			}
		}
	}
	for i := l.last; i >= 0; i-- {
		if l.r.Messages[i].Role != modelapi.Assistant {
			continue
		}
		var found []spot
		add := func(s spot) {
			if (i == l.last || s.all(i+1)) && s.isSure(l, i) {
				found = append(found, s)
			}
		}
		for _, c := range known[index[l.keys[i]]] {
			add(c.spotOf(l.keys[:i+1]))
		}
		if len(found) == 0 && i > 0 {
			for _, c := range known[index[l.keys[i-1]]] {
				if n := c.common(c.done-1, l.keys[:i]); n > 0 && !c.consumed && len(c.head) > 0 {
					add(spot{conv: c, at: c.done, matched: n + 1, edited: true})
				}
			}
		}
		if len(found) > 0 {
			m := g.best(l, found)
			if m.from, m.upto = i+1, i+1; m.conv != nil && i == l.last {
				m.from += m.conv.asked(l, i+1)
			}
			return m
		}
	}
	return match{}
}

// byQuestion finds the conversation that has no answer yet, because its request failed. Many conversations begin
// alike: the request must come from the same piece of work, or be the same in all and come soon, from a program that
// tries again by itself.
func (g *registry) byQuestion(l *lookup, within []*conversation) match {
	if len(l.keys) == 0 {
		return match{}
	}
	for _, c := range g.all {
		n := len(c.history)
		again := c.failed == l.request && time.Since(c.used) < time.Minute
		if c.done == 0 && !c.consumed && n > 0 && c.asked(l, 0) == n && l.sees(within, c) &&
			(again || l.isNear(within, c)) {
			return match{conv: c, from: n}
		}
	}
	return match{}
}

// all reports whether the tail is all of the first n messages of a request, or all that is remembered of those of the
// conversation.
func (s spot) all(n int) bool {
	return s.matched == n || s.conv.base > 0 && s.matched == s.at-s.conv.base
}

// isSure reports whether a tail that ends with the i-th message is enough to go by: two users of one program have
// the same system prompt, and the same greeting for an answer. The conversation may have another system prompt, or
// the request a history that was edited, if the tail is such that no two conversations share it.
func (s spot) isSure(l *lookup, i int) bool {
	const longText = 48
	same, all := s.conv.setup.system == l.system, s.all(i+1)
	size := 0
	for _, it := range l.r.Messages[i].Items {
		if size += len(it.Text); it.Kind == modelapi.Call && len(it.ID) >= strongID {
			size += longText
		}
	}
	many := s.matched >= 4
	switch {
	case s.edited:
		return all && (many || same && s.conv.resembles(l, i))
	case all:
		return same || many || size >= longText
	}
	return many || same && size >= longText
}

// best chooses among places: the longest tail, one where nothing has gone on yet, the same system prompt, the same
// piece of work. Of conversations that are alike from their beginning it takes the one that has waited longest.
// Where they differ before the tail, which one it is cannot be known, and it takes none.
func (g *registry) best(l *lookup, found []spot) match {
	rank := func(s spot) (r [4]int) {
		r[0] = s.matched
		for i, ok := range [...]bool{s.isFree(), s.conv.setup.system == l.system, sameWork(s.conv.work, l.x.req.Context())} {
			if ok {
				r[i+1] = 1
			}
		}
		return r
	}
	top, alike := found[0], 1
	for _, s := range found[1:] {
		x, y := rank(s), rank(top)
		switch order := slices.Compare(x[:], y[:]); {
		case order > 0:
			top, alike = s, 1
		case order == 0 && s.conv != top.conv:
			alike++
			if s.conv.seen.Before(top.conv.seen) {
				top = s
			}
		}
	}
	m := match{conv: top.conv, from: l.last + 1, at: top.at, upto: l.last + 1, matched: top.matched}
	if alike > 1 {
		m.ambiguous = !sameWork(top.conv.work, l.x.req.Context())
		if top.matched > 0 && top.at > top.matched && m.ambiguous {
			return match{ambiguous: true}
		}
	}
	if !top.isFree() {
		m.conv, m.parent, m.parentAnswer = nil, top.conv, top.conv.answerAt(top.at)
	}
	return m
}

// isFree reports whether a request may go on from the place without being a fork.
func (s spot) isFree() bool { return s.at == s.conv.done && !s.conv.consumed }

// bySummary finds the conversation whose history the request replaces by the summary that was made of it.
func (g *registry) bySummary(l *lookup, within []*conversation) (m match) {
	all := g.known(l, within, func(c *conversation) bool {
		return c.summary != "" && c.flights == 0 && l.beginsWith(c.summary)
	})
	if n := len(all); n > 0 {
		m = match{conv: all[n-1], from: l.last + 1}
	}
	return m
}
