package modelhttp

import (
	"slices"
	"time"
)

// resize notes how much memory a conversation takes, about. The caller holds mu.
func (g *registry) resize(c *conversation) {
	if c.elem == nil {
		return // it was evicted
	}
	g.bytes -= c.size
	c.size = int64(2048+160*(len(c.history)+len(c.responses)+len(c.calls))+len(c.head)+len(c.summary)) + c.turnSize
	g.bytes += c.size
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
	c.history, c.responses, c.calls, c.hop, c.held = nil, nil, nil, nil, nil
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
		c.held = slices.DeleteFunc(c.held, func(f *flight) bool {
			over := !f.deadline.After(now)
			if over {
				failed = append(failed, f)
			} else if f.deadline.Before(next) {
				next = f.deadline
			}
			return over
		})
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
		held, c.held = append(held, c.held...), nil
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
