package modelhttp

import (
	"container/list"
	"context"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/modelapi"
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
	// known are the conversations that have a message, by its digest, once for each time that they have it.
	known map[digest][]*conversation
	// summaries are the conversations of which a summary was made lately.
	summaries []*conversation
	// calls are the conversations that have a tool call, by scope and id.
	calls map[string][]*conversation
	// responses are points by scope and the id of the response, declared conversations by
	// the id of their session, remote by that of the provider's conversation.
	responses map[string][]*point
	declared  map[string][]*conversation
	remote    map[string]*conversation
	turns     map[*agenttrace.Turn][]*conversation
	// held are the calls whose last attempt failed, by the digest of the request.
	held map[bodyKey][]*flight
	// hops are the calls that were interrupted, by scope and token.
	hops  map[string]*flight
	timer *time.Timer
	due   time.Time
}

func (g *registry) init(t *Transport) {
	g.t, g.used = t, list.New()
	g.known, g.calls = make(map[digest][]*conversation), make(map[string][]*conversation)
	g.responses, g.declared = make(map[string][]*point), make(map[string][]*conversation)
	g.remote, g.turns = make(map[string]*conversation), make(map[*agenttrace.Turn][]*conversation)
	g.held, g.hops = make(map[bodyKey][]*flight), make(map[string]*flight)
}

// point is a place in a conversation, at as many messages, that a request may go on from.
type point struct {
	conv *conversation
	at   int
	// answer is the assistant's last message before the point that is whole.
	answer string
}

func (p *point) of() *conversation {
	if p == nil {
		return nil
	}
	return p.conv
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
	// maxHistory bounds the messages of a conversation that are known, maxCalls the ids of its tool calls, and
	// maxSummaries the conversations with a summary.
	maxHistory, maxCalls, maxSummaries = 64, 256, 256
	// maxAge is how long a conversation without an open turn is remembered.
	maxAge = 24 * time.Hour
	// strongID is how long the id of a tool call is that no two conversations share. Some
	// servers number the calls of each answer.
	strongID = 12
)

// begin begins the call that a request makes, or goes on with one whose last attempt failed.
func (g *registry) begin(x *exchange, r *modelapi.Request, data []byte) *flight {
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
	f := &flight{conv: c, x: x, body: l.body, side: m.side, scope: l.scope, begin: l.begin}
	if n := len(l.keys); n > 0 && l.last == n-1 { // the answer goes on with the assistant's message
		f.prefix = &r.Messages[n-1]
	}
	f.asks = l.asks(m.side)
	c.flights++
	c.used, c.seen = now, now
	g.used.MoveToBack(c.elem)
	held := c.held
	if !m.side {
		if m.summary != "" {
			g.grow(c, -int64(len(c.summary)))
			c.summary = ""
		}
		g.ask(l, &m)
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
	if r.Conversation != "" {
		key := l.scope + r.Conversation
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
	if key := l.scope + l.r.Continuation; l.r.Continuation != "" {
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
		case numbered && n == 0, !numbered && !same && l.declared == "",
			f.x.req.Header.Get(awsInvocation) != invocation:
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
		found.conv.consumed = found.conv.consumed || !found.side
	}
	return found
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
