package modelhttp

import (
	"context"
	"hash/maphash"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
)

// lookup is what is known of a request before its conversation is found.
type lookup struct {
	x    *exchange
	r    *request
	body bodyKey
	// scope is that of the host and the credential: what is in different scopes never
	// joins. system is that of the scope and the system prompt; seed is where the chain
	// begins: it has the id of the history that the provider keeps, too.
	scope        string
	system, seed digest
	// chain has the digest of the conversation up to each message, inclusive.
	chain []digest
	// last is the index of the last message of the assistant, -1 if there is none.
	last     int
	declared string
	turn     *agenttrace.Turn
	session  *agenttrace.Session // that of a run in the context
}

// bodyKey identifies a request by its scope and all of its body.
type bodyKey struct {
	scope string
	sum   uint64
}

var seed = maphash.MakeSeed()

func newLookup(x *exchange, r *request, data []byte) *lookup {
	l := &lookup{x: x, r: r, last: -1}
	ctx := x.req.Context()
	if l.turn = agenttrace.TurnFromContext(ctx); l.turn == nil {
		if l.session = agenttrace.SessionFromContext(ctx); l.session != nil {
			l.declared = l.session.ID()
		} else {
			l.declared = x.t.declaredSession(x.req)
		}
	}
	scope := digestOf(x.req.URL.Host, "\x00", credential(x.req))
	l.scope = string(scope[:])
	l.system = digestOf(l.scope, r.system)
	if l.seed = l.system; r.previous+r.conversation != "" {
		l.seed = digestOf(string(l.system[:]), r.previous, "\x00", r.conversation)
	}
	l.body = bodyKey{l.scope, maphash.Bytes(seed, data)}
	before := l.seed
	var c content
	for i := range r.messages {
		m := &r.messages[i]
		before = c.afterTexts(before, m.role, x.t.texts.sum(&c, m))
		l.chain = append(l.chain, before)
		if m.role == assistant {
			l.last = i
		}
	}
	return l
}

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
	// parent is the point that the conversation, which is new, forks from.
	parent *point
	// ambiguous reports that several conversations are alike up to here.
	ambiguous bool
	side      bool
}

// find returns the conversation of a request; a new one if it continues none. The caller
// holds mu.
func (g *registry) find(l *lookup) match {
	if l.turn != nil {
		conv := g.turns[l.turn]
		if conv == nil {
			conv = g.add(l)
			conv.external = l.turn
			g.turns[l.turn] = conv
		}
		return match{conv: conv, from: l.last + 1, side: conv.isSide(l)}
	}
	within := g.declared[l.declared] // nil without one
	if l.declared == "" {
		if conv := g.sideOf(l); conv != nil {
			return match{conv: conv, side: true}
		}
	} else if m := g.sideIn(l, within); m.conv != nil {
		return m
	}
	for _, rule := range [...]func(*lookup, []*conversation) match{
		g.byResult, g.byResponse, g.byHistory, g.byKnownCall, g.byPrefix,
	} {
		if m := rule(l, within); m.conv != nil || m.parent != nil {
			return g.forked(l, m)
		}
	}
	for i := len(within) - 1; i >= 0; i-- {
		if within[i].flights == 0 {
			return match{conv: within[i], from: l.last + 1}
		}
	}
	return match{conv: g.add(l), from: l.last + 1}
}

// forked makes a match with a point that is consumed one with a new conversation. Within a
// declared session there are no forks.
func (g *registry) forked(l *lookup, m match) match {
	if m.parent == nil {
		return m
	}
	if l.declared != "" {
		m.conv, m.parent = g.add(l), nil
		return m
	}
	m.conv = g.add(l)
	return m
}

// sideOf returns the conversation whose turn is open in the same context as a call that has
// no tools and another system prompt.
func (g *registry) sideOf(l *lookup) *conversation {
	if l.last >= 0 || len(l.r.tools) > 0 {
		return nil
	}
	for e := g.used.Back(); e != nil; e = e.Prev() {
		c := e.Value.(*conversation)
		if c.scope == l.scope && c.isSide(l) && sameWork(c.work, l.x.req.Context()) {
			return c
		}
		if e == g.used.Front() || g.used.Len() > 1000 {
			break // only few conversations are searched one by one
		}
	}
	return nil
}

func (g *registry) sideIn(l *lookup, within []*conversation) match {
	for _, c := range within {
		if c.isSide(l) {
			return match{conv: c, side: true}
		}
	}
	return match{}
}

// isSide reports whether a request is a call beside the conversation. The registry's mu is
// held.
func (c *conversation) isSide(l *lookup) bool {
	return c.open && l.last < 0 && len(l.r.tools) == 0 && c.hasTools && c.system != l.system
}

// sameWork reports whether two contexts are those of the same piece of work: the same one,
// unless it is one that everybody has, or of the same trace.
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

func sameContext(a, b context.Context) bool {
	return reflect.TypeOf(a).Comparable() && reflect.TypeOf(b).Comparable() && a == b
}

// in reports whether a conversation is among those that a declared session has.
func in(l *lookup, within []*conversation, c *conversation) bool {
	if c.external != nil {
		return false
	}
	return l.declared == "" || slices.Contains(within, c)
}

// byResult finds the conversation that waits for one of the results.
func (g *registry) byResult(l *lookup, within []*conversation) match {
	for i := len(l.r.messages) - 1; i > l.last; i-- {
		for _, it := range l.r.messages[i].items {
			if it.kind != resultItem || it.id == "" {
				continue
			}
			var found, alike []*conversation
			for _, c := range g.calls[l.scope+it.id] {
				if !c.awaited[it.id] || !in(l, within, c) {
					continue
				}
				found = append(found, c)
				if p := c.latest; p != nil && (l.last >= 0 && p.key == l.chain[l.last] ||
					l.r.previous != "" && p.response == l.scope+l.r.previous) {
					alike = append(alike, c)
				}
			}
			switch {
			case len(alike) > 0:
				c := prefer(l, alike)
				ambiguous := len(alike) > 1 && !sameWork(c.work, l.x.req.Context())
				return match{conv: c, from: l.last + 1, ambiguous: ambiguous}
			case len(found) == 1 && (len(it.id) >= strongID || l.declared != "" || l.last < 0):
				return match{conv: found[0], from: l.last + 1}
			}
		}
	}
	return match{}
}

// prefer returns the conversation that is at work in the request's context, or the one that
// has waited longest.
func prefer(l *lookup, all []*conversation) *conversation {
	best := all[0]
	for _, c := range all {
		if sameWork(c.work, l.x.req.Context()) {
			return c
		}
		if c.seen.Before(best.seen) {
			best = c
		}
	}
	return best
}

// byResponse finds the conversation by the ids of the provider.
func (g *registry) byResponse(l *lookup, within []*conversation) match {
	if l.r.previous != "" {
		if m := g.oneOf(l, within, g.responses[l.scope+l.r.previous], 0); m.conv != nil || m.parent != nil {
			return m
		}
	}
	if c := g.remote[l.scope+l.r.conversation]; l.r.conversation != "" &&
		c != nil && in(l, within, c) && c.flights == 0 {
		return match{conv: c, from: l.last + 1}
	}
	return match{}
}

// byHistory finds the conversation whose last answer is the last one of the request, and of
// which a later request may have failed.
func (g *registry) byHistory(l *lookup, within []*conversation) match {
	if l.last < 0 {
		return match{}
	}
	for i := len(l.chain) - 1; i > l.last; i-- {
		if m := g.at(l, within, i); m.conv != nil {
			return m
		}
	}
	return g.at(l, within, l.last)
}

// at finds a point at a message of the request.
func (g *registry) at(l *lookup, within []*conversation, i int) match {
	return g.oneOf(l, within, g.points[l.chain[i]], i+1)
}

// isFree reports whether a request may go on from the point without being a fork. It may
// from the last request, if it has another answer to that than we know.
func (p *point) isFree(edited bool) bool {
	if p.asked && p.consumed {
		return edited && p == p.conv.lastAsked && p.conv.latest != nil && !p.conv.latest.consumed
	}
	return !p.consumed
}

// oneOf chooses among points that look the same. from is the first message after them.
func (g *registry) oneOf(l *lookup, within []*conversation, points []*point, from int) match {
	var free, consumed []*point
	for _, p := range points {
		switch {
		case !in(l, within, p.conv):
		case p.isFree(from <= l.last):
			free = append(free, p)
		default:
			consumed = append(consumed, p)
		}
	}
	if len(free) == 0 {
		if len(consumed) == 0 {
			return match{}
		}
		return match{parent: consumed[len(consumed)-1], from: from}
	}
	convs := make([]*conversation, len(free))
	for k, p := range free {
		convs[k] = p.conv
	}
	c := prefer(l, convs)
	return match{conv: c, from: from, ambiguous: len(free) > 1 && !sameWork(c.work, l.x.req.Context())}
}

// byKnownCall finds the conversation of a history that was edited or compacted, by the tool
// calls that are left in it.
func (g *registry) byKnownCall(l *lookup, within []*conversation) match {
	for i := len(l.r.messages) - 1; i >= 0; i-- {
		for _, it := range l.r.messages[i].items {
			if (it.kind != callItem && it.kind != resultItem) || len(it.id) < strongID {
				continue
			}
			all := g.calls[l.scope+it.id]
			if len(all) == 1 && in(l, within, all[0]) && all[0].flights == 0 {
				return match{conv: all[0], from: l.last + 1}
			}
		}
	}
	return match{}
}

// byPrefix finds the conversation by the longest part of the history that is known. A part
// without an answer says little, for many conversations begin alike: there the request must
// come from the same piece of work.
func (g *registry) byPrefix(l *lookup, within []*conversation) match {
	answered := slices.IndexFunc(l.r.messages, func(m message) bool { return m.role == assistant })
	for i := len(l.chain) - 1; i >= 0; i-- {
		m := g.at(l, within, i)
		conv := m.conv
		if m.parent != nil {
			conv = m.parent.conv
		}
		if conv == nil {
			continue
		}
		if l.declared != "" || answered >= 0 && answered <= i || sameWork(conv.work, l.x.req.Context()) {
			return m
		}
	}
	return match{}
}

// add adds a conversation.
func (g *registry) add(l *lookup) *conversation {
	c := &conversation{t: g.t, scope: l.scope, declared: l.declared, size: 2048}
	c.elem = g.used.PushBack(c)
	g.bytes += c.size
	if l.declared != "" {
		if others := g.declared[l.declared]; len(others) > 0 {
			c.session = others[0].session
		} else {
			c.session = l.session
		}
		if c.session == nil {
			o := g.t.o.Session
			o.ID, o.Agent = l.declared, g.t.o.Agent
			c.session = g.t.tracer.NewSession(context.Background(), o)
		}
		g.declared[l.declared] = append(g.declared[l.declared], c)
	}
	return c
}
