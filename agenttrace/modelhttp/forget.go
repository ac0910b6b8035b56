package modelhttp

import (
	"slices"
	"time"
)

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
