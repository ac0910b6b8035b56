package modelhttp

import (
	"container/list"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
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
	// known are the conversations by what a later request may have of them: the digest of a message, or what keyOf
	// returns of a name. Each is in a list once.
	known map[digest][]*conversation
	// held are the calls whose last attempt failed, by the digest of the request.
	held  map[bodyKey][]*flight
	timer *time.Timer
	due   time.Time
}

func (g *registry) init(t *Transport) {
	g.t, g.used = t, list.New()
	g.known, g.held = make(map[digest][]*conversation), make(map[bodyKey][]*flight)
}

// Kinds of names by which a conversation is known: of a session, of a turn of the agent's own, and in a scope of a tool
// call, of a response, of the provider's conversation, and of an answer that was interrupted.
const byName, byTurn, byCall, byResponse, byRemote, byHop = "name", "turn", "call", "response", "remote", "hop"

func keyOf(kind string, names ...string) digest {
	return digestOf(kind, "\x00", strings.Join(names, "\x00"))
}

func turnKey(t *agenttrace.Turn) digest { return keyOf(byTurn, fmt.Sprintf("%p", t)) }

// keySize is about what a key takes.
const keySize = 160

// know has a conversation found by a key, which it may have several times. The caller holds mu.
func (g *registry) know(c *conversation, key digest) {
	if c.keys[key]++; c.keys[key] == 1 {
		g.known[key] = append(g.known[key], c)
	}
	g.grow(c, keySize)
}

// forget takes back what know did once.
func (g *registry) forget(c *conversation, key digest) {
	if c.keys[key] == 0 {
		return
	}
	g.grow(c, -keySize)
	if c.keys[key]--; c.keys[key] > 0 {
		return
	}
	delete(c.keys, key)
	all := slices.DeleteFunc(g.known[key], func(o *conversation) bool { return o == c })
	if g.known[key] = all; len(all) == 0 {
		delete(g.known, key)
	}
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
	// maxHistory bounds the messages of a conversation that are known, maxCalls and maxResponses the ids of its tool
	// calls and responses.
	maxHistory, maxCalls, maxResponses = 64, 256, 64
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
		if c.hop != nil {
			g.forget(c, c.hopKey)
			c.hop = nil
		}
	}
	if r.Conversation != "" {
		if key := keyOf(byRemote, l.scope, r.Conversation); g.known[key] == nil {
			g.know(c, key)
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
	if l.r.Continuation != "" {
		for _, c := range g.known[keyOf(byHop, l.scope, l.r.Continuation)] {
			f := c.hop
			g.forget(c, c.hopKey)
			f.x, c.hop = l.x, nil
			c.flights++
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
