package modelhttp

import (
	"sync"
	"time"
)

// flushInterval is how long text is kept before it is added to the session. Live views have it that much later.
const flushInterval = 250 * time.Millisecond

// growing are the answers that keep text. One timer flushes all of them, so it costs little per answer, and nothing
// while none grows.
type growing struct {
	mu      sync.Mutex
	answers []*tap
	timer   *time.Timer
}

func (g *growing) add(b *tap) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.answers = append(g.answers, b); len(g.answers) > 1 {
		return // the timer is set
	}
	if g.timer == nil {
		g.timer = time.AfterFunc(flushInterval, g.flush)
		return
	}
	g.timer.Reset(flushInterval)
}

func (g *growing) flush() {
	g.mu.Lock()
	answers := g.answers
	g.answers = nil
	g.mu.Unlock()
	for _, b := range answers {
		b.flush()
	}
}
