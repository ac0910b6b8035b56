package service

import (
	"context"
	"errors"
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

// remoteFollower is a [store.Follower] of the store behind a server.
type remoteFollower struct {
	address, token string
	client         *Client
	at             Position
}

// Follow returns a Follower of the store behind the server at an address, which need not answer yet: see [Dial].
func Follow(address, token string) store.Follower {
	return &remoteFollower{address: address, token: token}
}

// Poll implements [store.Follower].
func (f *remoteFollower) Poll(ctx context.Context) (store.Reader, store.Change, error) {
	if f.client == nil {
		c, err := Dial(ctx, f.address, f.token)
		if errors.Is(err, store.ErrUnavailable) {
			return nil, store.Unchanged, nil
		}
		if err != nil {
			return nil, store.Unchanged, err
		}
		f.client = c
		f.at = Position{}
	}
	at, err := call(ctx, f.client, callPosition, none{})
	before := f.at
	switch {
	case errors.Is(err, store.ErrUnavailable):
		change := store.Gone
		if before == (Position{}) {
			change = store.Unchanged // it was never there
		}
		return nil, change, f.Close()
	case err != nil:
		return f.client, store.Unchanged, err
	}
	f.at = at
	switch {
	case at == before:
		return f.client, store.Unchanged, nil
	case at.Epoch == before.Epoch:
		return f.client, store.Changed, nil
	}
	return f.client, store.Opened, nil
}

// Close implements [store.Follower].
func (f *remoteFollower) Close() error {
	if f.client == nil {
		return nil
	}
	c := f.client
	f.client = nil
	return c.Close()
}
