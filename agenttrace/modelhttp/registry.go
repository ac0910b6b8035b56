package modelhttp

import (
	"container/list"
	"context"
	"crypto/sha256"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
)

// registry finds the conversation that a request continues. It knows conversations by what
// a later request may have of them, and forgets those that were used longest ago.
//
// Its mutex guards the indexes, and is never held while anything is recorded.
type registry struct {
	t *Transport

	mu sync.Mutex
	// used has the conversations, the one used longest ago first.
	used  *list.List
	bytes int64
	// points are the known points of conversations, by the digest of all that is before.
	points map[digest][]*point
	// calls are the conversations that have a tool call, by scope and id.
	calls map[string][]*conversation
	// responses are points by scope and the id of the response, declared conversations by
	// the id of their session, remote by that of the provider's conversation.
	responses map[string][]*point
	declared  map[string][]*conversation
	remote    map[string]*conversation
	turns     map[*agenttrace.Turn]*conversation
	// held are the calls whose last attempt failed, by the digest of the request.
	held map[digest][]*flight
	// hops are the calls that were interrupted, by scope and token.
	hops  map[string]*flight
	timer *time.Timer
	due   time.Time
}

func (g *registry) init(t *Transport) {
	g.t, g.used = t, list.New()
	g.points, g.calls = make(map[digest][]*point), make(map[string][]*conversation)
	g.responses, g.declared = make(map[string][]*point), make(map[string][]*conversation)
	g.remote, g.turns = make(map[string]*conversation), make(map[*agenttrace.Turn]*conversation)
	g.held, g.hops = make(map[digest][]*flight), make(map[string]*flight)
}

// point is a place in a conversation from which a request may go on.
type point struct {
	conv *conversation
	key  digest
	// response is the id by which the provider knows the point, if any.
	response string
	// consumed reports that a request has gone on from here: another one is a fork.
	consumed bool
	// answer is the assistant's last message before the point that is whole.
	answer string
	// asked reports that the point is a request, of which the answer is not part.
	asked bool
}

const (
	// maxPoints bounds the points of a conversation, maxCalls the ids of its tool calls.
	maxPoints, maxCalls = 64, 256
	// maxAge is how long a conversation without an open turn is remembered.
	maxAge = 24 * time.Hour
	// strongID is how long the id of a tool call is that no two conversations share. Some
	// servers number the calls of each answer.
	strongID = 12
)

// lookup is what is known of a request before its conversation is found.
type lookup struct {
	x *exchange
	r *request
	// body is a digest of the whole request.
	body digest
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
	scope := sha256.Sum256([]byte(x.req.URL.Host + "\x00" + credential(x.req)))
	l.scope = string(scope[:])
	l.system = sha256.Sum256([]byte(l.scope + r.system))
	if l.seed = l.system; r.previous+r.conversation != "" {
		l.seed = sha256.Sum256([]byte(string(l.system[:]) + r.previous + "\x00" + r.conversation))
	}
	l.body = sha256.Sum256(append([]byte(l.scope), data...))
	before := l.seed
	for i := range r.messages {
		m := &r.messages[i]
		var c content
		for k := range m.items {
			c.add(&m.items[k])
		}
		before = c.after(before, m.role)
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
				return match{conv: c, from: l.last + 1, ambiguous: len(alike) > 1 && !sameWork(c.work, l.x.req.Context())}
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
	if c := g.remote[l.scope+l.r.conversation]; l.r.conversation != "" && c != nil && in(l, within, c) && c.flights == 0 {
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

// begin begins the call that a request makes, or goes on with one whose last attempt failed.
func (g *registry) begin(x *exchange, r *request, data []byte) *flight {
	l := newLookup(x, r, data)
	g.mu.Lock()
	if f := g.again(l); f != nil {
		g.mu.Unlock()
		f.resume()
		return f
	}
	m := g.find(l)
	c := m.conv
	now := time.Now()
	f := &flight{conv: c, x: x, body: l.body, side: m.side, before: l.seed, scope: l.scope, chain: l.chain}
	if n := len(l.chain); n > 0 {
		f.before = l.chain[n-1]
		if l.last == n-1 { // the answer goes on with the assistant's message
			f.prefix, f.before = &r.messages[n-1], l.seed
			if n > 1 {
				f.before = l.chain[n-2]
			}
		}
	}
	c.flights++
	c.used, c.seen = now, now
	g.used.MoveToBack(c.elem)
	held := c.held
	if !m.side {
		c.open, c.hasTools, c.system, c.work = true, len(r.tools) > 0, l.system, x.req.Context()
		clear(c.awaited)
		for _, p := range c.points {
			p.consumed = true
		}
		c.held = nil
		if held != nil {
			g.unhold(held)
			held.superseded = true
		}
		if c.hop != "" {
			delete(g.hops, c.hop)
			c.hop = ""
		}
	}
	if r.conversation != "" {
		key := l.scope + r.conversation
		if g.remote[key] == nil {
			g.remote[key] = c
			c.remotes = append(c.remotes, key)
		}
	}
	evicted := g.evict()
	g.arm(now.Add(min(g.t.o.IdleTimeout, maxAge)))
	g.mu.Unlock()
	for _, e := range evicted {
		e.close(false)
	}
	if held != nil && !m.side {
		held.expire()
	}
	c.begin(f, r, &m)
	return f
}

// again returns the call that a request tries again, or goes on with. The caller holds mu.
func (g *registry) again(l *lookup) *flight {
	if key := l.scope + l.r.continuation; l.r.continuation != "" {
		if f := g.hops[key]; f != nil {
			delete(g.hops, key)
			f.x, f.conv.hop = l.x, ""
			f.conv.flights++
			return f
		}
	}
	n, numbered := l.x.attempt()
	invocation := l.x.req.Header.Get(awsInvocation)
	var found *flight
	for _, f := range g.held[l.body] {
		same := sameContext(f.x.req.Context(), l.x.req.Context()) || sameHeader(f.x.req, l.x.req)
		switch {
		case f.conv.external != l.turn || l.declared != "" && f.conv.declared != l.declared:
			continue
		case numbered && n == 0, !numbered && !same && l.declared == "", f.x.req.Header.Get(awsInvocation) != invocation:
			continue
		}
		if found == nil || same {
			found = f
		}
	}
	if found != nil {
		g.unhold(found)
		found.x = l.x
		found.conv.held = nil
		found.conv.flights++
		g.consume(found)
	}
	return found
}

// consume marks where a call goes on from.
func (g *registry) consume(f *flight) {
	for _, p := range f.conv.points {
		p.consumed = true
	}
}

// sameHeader reports whether two requests are copies of each other, as a client makes them
// that sets a deadline for each attempt.
func sameHeader(a, b *http.Request) bool {
	return a.Header != nil && reflect.ValueOf(a.Header).Pointer() == reflect.ValueOf(b.Header).Pointer()
}

// unhold forgets that a call waits to be tried again. The caller holds mu.
func (g *registry) unhold(f *flight) {
	all := slices.DeleteFunc(g.held[f.body], func(o *flight) bool { return o == f })
	if g.held[f.body] = all; len(all) == 0 {
		delete(g.held, f.body)
	}
}

// addPoint adds a point to a conversation. The caller holds mu.
func (g *registry) addPoint(p *point) {
	c := p.conv
	if len(c.points) >= maxPoints {
		g.dropPoint(c.points[0])
		c.points = slices.Delete(c.points, 0, 1)
	}
	c.points = append(c.points, p)
	g.points[p.key] = append(g.points[p.key], p)
	if p.response != "" {
		g.responses[p.response] = append(g.responses[p.response], p)
	}
	g.grow(c, 256+int64(len(p.response)))
}

func (g *registry) dropPoint(p *point) {
	all := slices.DeleteFunc(g.points[p.key], func(o *point) bool { return o == p })
	if g.points[p.key] = all; len(all) == 0 {
		delete(g.points, p.key)
	}
	if p.response != "" {
		all := slices.DeleteFunc(g.responses[p.response], func(o *point) bool { return o == p })
		if g.responses[p.response] = all; len(all) == 0 {
			delete(g.responses, p.response)
		}
	}
	g.grow(p.conv, -256-int64(len(p.response)))
}

// addCall adds the id of a tool call, whose result is awaited. The caller holds mu.
func (g *registry) addCall(c *conversation, id string) {
	if id == "" {
		return
	}
	key := c.scope + id
	if !slices.Contains(g.calls[key], c) {
		g.calls[key] = append(g.calls[key], c)
		c.calls = append(c.calls, key)
		g.grow(c, 64+int64(len(key)))
	}
	if c.awaited == nil {
		c.awaited = make(map[string]bool)
	}
	c.awaited[id] = true
	for len(c.calls) > maxCalls {
		g.dropCall(c, c.calls[0])
		c.calls = slices.Delete(c.calls, 0, 1)
	}
}

func (g *registry) dropCall(c *conversation, key string) {
	all := slices.DeleteFunc(g.calls[key], func(o *conversation) bool { return o == c })
	if g.calls[key] = all; len(all) == 0 {
		delete(g.calls, key)
	}
	g.grow(c, -64-int64(len(key)))
}

func (g *registry) grow(c *conversation, n int64) {
	if c.elem == nil {
		return // it was evicted
	}
	c.size += n
	g.bytes += n
}

// evict forgets what was used longest ago until the rest is within bounds. What it returns
// is to be closed without mu.
func (g *registry) evict() (evicted []*conversation) {
	e := g.used.Front()
	for e != nil && (g.used.Len() > g.t.o.MaxConversations || g.bytes > g.t.o.MaxBytes) {
		c := e.Value.(*conversation)
		e = e.Next()
		if c.flights == 0 {
			evicted = append(evicted, c)
			g.remove(c)
		}
	}
	return evicted
}

// remove forgets a conversation. The caller holds mu.
func (g *registry) remove(c *conversation) {
	for _, p := range c.points {
		g.dropPoint(p)
	}
	for _, key := range c.calls {
		g.dropCall(c, key)
	}
	for _, key := range c.remotes {
		delete(g.remote, key)
	}
	if c.declared != "" {
		all := slices.DeleteFunc(g.declared[c.declared], func(o *conversation) bool { return o == c })
		if g.declared[c.declared] = all; len(all) == 0 {
			delete(g.declared, c.declared)
		}
	}
	if c.external != nil {
		delete(g.turns, c.external)
	}
	if c.held != nil {
		g.unhold(c.held)
	}
	if c.hop != "" {
		delete(g.hops, c.hop)
	}
	c.points, c.calls, c.remotes = nil, nil, nil
	g.used.Remove(c.elem)
	g.bytes -= c.size
	c.elem = nil
}

// arm has sweep run at a time, unless it runs earlier. The caller holds mu.
func (g *registry) arm(at time.Time) {
	if g.timer != nil && !g.due.After(at) {
		return
	}
	if g.timer != nil {
		g.timer.Stop()
	}
	g.due = at
	g.timer = time.AfterFunc(max(time.Until(at), time.Millisecond), g.sweep)
}

// sweep ends what nobody goes on with.
func (g *registry) sweep() {
	defer recovered()
	now := time.Now()
	var failed []*flight
	var idle []*conversation
	g.mu.Lock()
	g.timer = nil
	next := now.Add(maxAge)
	for e := g.used.Front(); e != nil; {
		c := e.Value.(*conversation)
		e = e.Next()
		if f := c.held; f != nil {
			if !f.deadline.After(now) {
				g.unhold(f)
				c.held = nil
				failed = append(failed, f)
			} else if f.deadline.Before(next) {
				next = f.deadline
			}
		}
		if c.flights > 0 && c.used.Add(maxAge).After(now) {
			continue
		}
		end := c.used.Add(maxAge)
		if c.open {
			end = c.used.Add(g.t.o.IdleTimeout)
		}
		switch {
		case end.After(now):
			if end.Before(next) {
				next = end
			}
			if !c.open && c.used.Add(g.t.o.IdleTimeout).Before(now) {
				c.work = nil
			}
		case c.open:
			c.open = false
			idle = append(idle, c)
		default:
			idle = append(idle, c)
			g.remove(c)
		}
	}
	if g.used.Len() > 0 {
		g.arm(next)
	}
	g.mu.Unlock()
	for _, f := range failed {
		f.expire()
	}
	for _, c := range idle {
		c.close(false)
	}
}

// closeAll ends what is open.
func (g *registry) closeAll() {
	g.mu.Lock()
	var held []*flight
	var all []*conversation
	for e := g.used.Front(); e != nil; e = e.Next() {
		c := e.Value.(*conversation)
		if c.held != nil {
			g.unhold(c.held)
			held = append(held, c.held)
			c.held = nil
		}
		if c.open { // also if a client has left an answer without closing it
			c.open = false
			all = append(all, c)
		}
	}
	g.mu.Unlock()
	for _, f := range held {
		f.expire()
	}
	for _, c := range all {
		c.close(true)
	}
}
