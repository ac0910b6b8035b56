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
