package modelhttp

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/internal/modelapi"
)

// registry finds the conversation that a request continues. It looks at what each has that a later request may have
// too, and forgets those that were used longest ago.
//
// Its mutex is never held while anything is recorded.
type registry struct {
	t *Transport

	mu sync.Mutex
	// all has the conversations, the one used longest ago first.
	all   []*conversation
	bytes int64
}

// where returns the conversations of which something is true, in their order. The caller holds mu.
func (g *registry) where(is func(c *conversation) bool) (found []*conversation) {
	for _, c := range g.all {
		if is(c) {
			found = append(found, c)
		}
	}
	return found
}

// touch puts a conversation last. The caller holds mu.
func (g *registry) touch(c *conversation) {
	i := slices.Index(g.all, c)
	copy(g.all[i:], g.all[i+1:])
	g.all[len(g.all)-1] = c
}

// mark is a message of a conversation, and the assistant's last message up to there that is whole.
type mark struct {
	key    digest
	answer string
}

// openCall is a tool call that waits for its result.
type openCall struct {
	id, name, input string
	ctx             context.Context // the call's
	called          bool            // it has a sub-agent
}

const (
	// maxHistory bounds the messages of a conversation that are known, maxResponses the ids of its responses.
	maxHistory, maxResponses = 64, 64
	// maxAge is how long a conversation without an open turn is remembered.
	maxAge = 24 * time.Hour
	// strongID is how long the id of a tool call is that no two conversations share. Some
	// servers number the calls of each answer.
	strongID = 12
)

// begin begins the call that a request makes, or goes on with one whose last attempt failed.
func (g *registry) begin(x *exchange, r *modelapi.Request) *flight {
	l := newLookup(x, r)
	g.mu.Lock()
	if f := g.again(l); f != nil {
		g.mu.Unlock()
		f.resume()
		return f
	}
	m := g.find(l)
	c := m.conv
	now := time.Now()
	f := &flight{conv: c, x: x, request: l.request, side: m.side, scope: l.scope}
	if n := len(l.keys); n > 0 && l.last == n-1 { // the answer goes on with the assistant's message
		f.prefix = &r.Messages[n-1]
	}
	f.asks = l.asks(m.side)
	c.flights++
	c.used, c.seen = now, now
	g.touch(c)
	var held []*flight // which the request supersedes
	if !m.side {
		if m.summary != "" {
			c.summary = ""
		}
		c.ask(l, &m)
		held, c.held = c.held, nil
		for _, f := range held {
			f.superseded = true
		}
	}
	if r.Conversation != "" && len(g.where(l.hasRemote)) == 0 {
		c.remote = r.Conversation
	}
	g.resize(c)
	evicted := g.evict()
	g.await(c)
	g.mu.Unlock()
	for _, e := range evicted {
		e.close(false)
	}
	for _, f := range held {
		f.expire()
	}
	c.begin(f, r, &m)
	return f
}

// hasRemote reports whether a conversation is the one of the provider's that a request names.
func (l *lookup) hasRemote(c *conversation) bool {
	return c.scope == l.scope && c.remote == l.r.Conversation
}

// again returns the call that a request tries again, or goes on with. The caller holds mu.
func (g *registry) again(l *lookup) (found *flight) {
	attempt, invocation := l.x.attempt, l.x.req.Header.Get(awsInvocation)
	first := attempt.isNumbered && attempt.number == 0 // clients do not try again what has begun; loops around them do
	for _, c := range g.all {
		for _, f := range c.held {
			before, now := f.x.req.Context(), l.x.req.Context()
			same := sameContext(before, now) || sameHeader(f.x.req, l.x.req)
			switch {
			case f.token != "":
				if f.token == l.r.Continuation && c.scope == l.scope {
					found = f
				}
			case f.request != l.request, c.external != l.turn || l.declared != "" && c.declared != l.declared,
				first && f.broken == nil, !same && l.declared == "" && (first || otherTrace(before, now) ||
					g.t.o.OnlyNumbered && !attempt.isNumbered),
				f.x.req.Header.Get(awsInvocation) != invocation:
			case found == nil || same:
				found = f
			}
		}
	}
	if found != nil {
		c := found.conv
		c.held = slices.DeleteFunc(c.held, func(f *flight) bool { return f == found })
		found.x = l.x
		found.forget()
		c.flights++
		c.consumed = c.consumed || !found.side
	}
	return found
}

// poll returns the exchange of a request for an answer that the model makes in the background, and goes on with its
// call; nil for another request.
func (g *registry) poll(req *http.Request) *exchange {
	if req.URL == nil {
		return nil
	}
	id := modelapi.BackgroundOf(req.URL.Path)
	if id == "" {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.all {
		i := slices.IndexFunc(c.held, func(f *flight) bool { return f.token == id && f.x.req.URL.Host == req.URL.Host })
		if i < 0 {
			continue
		}
		f := c.held[i]
		c.held = slices.Delete(c.held, i, i+1)
		f.x, f.token = &exchange{t: g.t, target: f.x.target, req: req, flight: f, polled: id}, ""
		c.flights++
		return f.x
	}
	return nil
}

// sameHeader reports whether two requests are copies of each other, as a client makes them
// that sets a deadline for each attempt.
func sameHeader(a, b *http.Request) bool {
	return a.Header != nil && reflect.ValueOf(a.Header).Pointer() == reflect.ValueOf(b.Header).Pointer()
}

// resize notes how much memory a conversation takes, about. The caller holds mu.
func (g *registry) resize(c *conversation) {
	if c.evicted {
		return
	}
	g.bytes -= c.size
	c.size = int64(2048+160*(len(c.history)+len(c.responses))+len(c.head)+len(c.summary)) + c.turnSize
	g.bytes += c.size
}

// evict forgets what is older than maxAge, and what was used longest ago until the rest is within bounds. What it
// returns is to be closed without mu.
func (g *registry) evict() (evicted []*conversation) {
	over := func(left int) bool { return left > g.t.o.MaxConversations || g.bytes > g.t.o.MaxBytes }
	old := time.Now().Add(-maxAge)
	if !over(len(g.all)) && !g.all[0].used.Before(old) {
		return nil
	}
	left := len(g.all)
	g.all = slices.DeleteFunc(g.all, func(c *conversation) bool {
		if !c.used.Before(old) && (c.flights > 0 || !over(left)) {
			return false
		}
		left--
		g.bytes -= c.size
		c.evicted = true
		c.history, c.responses, c.held = nil, nil, nil
		evicted = append(evicted, c)
		return true
	})
	return evicted
}

// await ends the turn of a conversation when nothing goes on with it for IdleTimeout. The caller holds mu.
func (g *registry) await(c *conversation) {
	if c.idle != nil {
		c.idle.Reset(g.t.o.IdleTimeout)
		return
	}
	c.idle = time.AfterFunc(g.t.o.IdleTimeout, func() {
		defer recovered()
		g.mu.Lock()
		isIdle := c.open && c.flights == 0 // else the end of the answer resets the timer
		c.open = c.open && !isIdle
		g.mu.Unlock()
		if isIdle {
			c.close(false)
		}
	})
}

// end ends all that is open, also if a client has left an answer without closing it.
func (g *registry) end() {
	defer recovered()
	var failed []*flight
	var open []*conversation
	g.mu.Lock()
	for _, c := range g.all {
		if c.idle != nil {
			c.idle.Stop()
		}
		if c.open {
			open = append(open, c)
		}
		failed = append(failed, c.held...)
		c.held, c.open = nil, false
	}
	g.mu.Unlock()
	for _, f := range failed {
		f.expire()
	}
	for _, c := range open {
		c.close(true)
	}
}
