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
	for e := g.used.Front(); e != nil; {
		c := e.Value.(*conversation)
		e = e.Next()
		c.held = slices.DeleteFunc(c.held, func(f *flight) bool {
			over := all || !f.deadline.After(now)
			if over {
				failed = append(failed, f)
			} else if f.deadline.Before(next) {
				next = f.deadline
			}
			return over
		})
		busy, idle := c.flights > 0 && c.used.Add(maxAge).After(now), c.used.Add(g.t.o.IdleTimeout)
		end := c.used.Add(maxAge)
		if c.open {
			end = idle
		}
		switch {
		case all && c.open, // also if a client has left an answer without closing it
			c.open && !busy && !end.After(now):
			c.open = false
			ended = append(ended, c)
		case all || busy:
		case end.After(now):
			if end.Before(next) {
				next = end
			}
			if !c.open && idle.Before(now) {
				c.work = nil
			}
		default:
			ended = append(ended, c)
			g.remove(c)
		}
	}
	if !all {
		g.timer = nil
		if g.used.Len() > 0 {
			g.arm(next)
		}
	}
	g.mu.Unlock()
	for _, f := range failed {
		f.expire()
	}
	for _, c := range ended {
		c.close(all)
	}
}
