package web

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/agenttrace/agenttrace/session/store"
)

// Counter counts the changes of a store, for clients that follow it. It looks for them when it is asked. It is safe for
// concurrent use.
type Counter struct {
	mu       sync.Mutex
	follower store.Follower
	epoch    uint64
	n        uint64
}

// NewCounter returns a Counter of what a Follower watches. The Counter closes it.
func NewCounter(f store.Follower) *Counter { return &Counter{follower: f, epoch: rand.Uint64()} }

// Position is how often the store has changed at least, since the Counter was made: a part that is the Counter's, and
// the count.
type Position struct {
	Epoch uint64 `json:"epoch,string"`
	Count uint64 `json:"count,string"`
}

// Position looks whether the store has changed since it was asked last.
func (c *Counter) Position(ctx context.Context) (Position, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch _, change, err := c.follower.Poll(ctx); {
	case err != nil:
		return Position{}, fmt.Errorf("look for changes: %w", err)
	case change != store.Unchanged:
		c.n++
	}
	return Position{c.epoch, c.n}, nil
}

// Close closes the Follower.
func (c *Counter) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.follower.Close()
}
