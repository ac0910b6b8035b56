package modelhttp

import (
	"slices"
	"time"
)

// resize notes how much memory a conversation takes, about. The caller holds mu.
func (g *registry) resize(c *conversation) {
	if c.evicted {
		return
	}
	g.bytes -= c.size
	c.size = int64(2048+160*(len(c.history)+len(c.responses)+len(c.calls))+len(c.head)+len(c.summary)) + c.turnSize
	g.bytes += c.size
}

// evict forgets what was used longest ago until the rest is within bounds. What it returns is to be closed without mu.
func (g *registry) evict() (evicted []*conversation) {
	if len(g.all) <= g.t.o.MaxConversations && g.bytes <= g.t.o.MaxBytes {
		return nil
	}
	return g.forget(func(c *conversation, left int) bool {
		return c.flights == 0 && (left > g.t.o.MaxConversations || g.bytes > g.t.o.MaxBytes)
	})
}

// forget forgets conversations, which it returns. over is given how many there are. The caller holds mu.
func (g *registry) forget(over func(c *conversation, left int) bool) (forgotten []*conversation) {
	left := len(g.all)
	g.all = slices.DeleteFunc(g.all, func(c *conversation) bool {
		if !over(c, left) {
			return false
		}
		left--
		g.bytes -= c.size
		c.evicted = true
		c.history, c.responses, c.calls, c.hop, c.held = nil, nil, nil, nil, nil
		forgotten = append(forgotten, c)
		return true
	})
	return forgotten
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
	g.timer = time.AfterFunc(max(time.Until(at), time.Millisecond), func() { g.sweep(false) })
}

// sweep ends what nobody goes on with, or all that is open.
func (g *registry) sweep(all bool) {
	defer recovered()
	now := time.Now()
	var failed []*flight
	var ended []*conversation
	g.mu.Lock()
	next := now.Add(maxAge)
	later := func(at time.Time) bool { // reports whether it is later than now, and waits for it
		if at.After(now) && at.Before(next) {
			next = at
		}
		return at.After(now)
	}
	forgotten := g.forget(func(c *conversation, _ int) bool {
		c.held = slices.DeleteFunc(c.held, func(f *flight) bool {
			over := all || !later(f.deadline)
			if over {
				failed = append(failed, f)
			}
			return over
		})
		old, idle := c.used.Add(maxAge), c.used.Add(g.t.o.IdleTimeout)
		busy := c.flights > 0 && old.After(now)
		switch {
		case all && c.open, // also if a client has left an answer without closing it
			c.open && !busy && !later(idle):
			c.open = false
			ended = append(ended, c)
		case all || busy || c.open:
		case later(old):
			if idle.Before(now) {
				c.work = nil
			}
		default:
			return true
		}
		return false
	})
	if !all {
		g.timer = nil
		if len(g.all) > 0 {
			g.arm(next)
		}
	}
	g.mu.Unlock()
	for _, f := range failed {
		f.expire()
	}
	for _, c := range append(ended, forgotten...) {
		c.close(all)
	}
}
