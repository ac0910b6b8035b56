package sqlstore

import (
	"context"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/session/store"
)

// rebuildAfter is how long after it was stored an observation of a long turn is in its rows, unless rebuilding takes so
// long that there would be time for nothing else.
const rebuildAfter = time.Second

// rebuilder has the turns rebuilt that a store has left unbuilt; see [store.Batch].
type rebuilder struct {
	// working is held while turns are rebuilt, so that who asks for that waits until it is done.
	working sync.Mutex
	mu      sync.Mutex
	// functions has the functions of the last batch, nil until there is one. With the first, it is not known what an
	// earlier process has left.
	functions *store.Batch
	// unbuilt reports that there may be such turns, timer is set while they are to be rebuilt, and pause how long after.
	unbuilt bool
	timer   *time.Timer
	pause   time.Duration
	closed  bool
	running sync.WaitGroup
}

// applied notes what a batch has left.
func (w *Writer) applied(b *store.Batch, unbuilt bool) {
	r := w.rebuilder
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.functions == nil {
		r.functions = &store.Batch{Assemble: b.Assemble, Adopt: b.Adopt, Threads: b.Threads, Defer: true}
		r.pause, unbuilt = rebuildAfter, true
	}
	if unbuilt {
		r.unbuilt = true
		w.rebuildSoon()
	}
}

// rebuildSoon starts the timer. The rebuilder is locked.
func (w *Writer) rebuildSoon() {
	r := w.rebuilder
	if r.timer != nil || r.closed {
		return
	}
	r.timer = time.AfterFunc(r.pause, func() {
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return
		}
		r.running.Add(1)
		r.mu.Unlock()
		defer r.running.Done()
		begin := time.Now()
		_ = w.rebuildOnce(context.Background()) // the marks are still there, and it is tried again
		r.mu.Lock()
		defer r.mu.Unlock()
		r.timer, r.pause = nil, max(rebuildAfter, 4*time.Since(begin))
		if r.unbuilt {
			w.rebuildSoon()
		}
	})
}

// Rebuild builds what long turns lack, and returns when that is committed. Without it, that is done within a second, or
// when the store is closed.
func (w *Writer) Rebuild(ctx context.Context) error {
	for {
		if err := w.rebuildOnce(ctx); err != nil {
			return err
		}
		w.rebuilder.mu.Lock()
		unbuilt := w.rebuilder.unbuilt
		w.rebuilder.mu.Unlock()
		if !unbuilt {
			return nil
		}
	}
}

// rebuildOnce rebuilds the turns of each owner that is marked.
func (w *Writer) rebuildOnce(ctx context.Context) error {
	r := w.rebuilder
	r.working.Lock()
	defer r.working.Unlock()
	r.mu.Lock()
	functions, unbuilt := r.functions, r.unbuilt
	r.unbuilt = false
	r.mu.Unlock()
	for after := ""; unbuilt; {
		u, left, err := w.rebuildOwner(ctx, functions, after)
		if left || err != nil {
			r.mu.Lock()
			r.unbuilt = true
			r.mu.Unlock()
		}
		if u == nil || err != nil {
			return err
		}
		after = u.Owner()
	}
	return nil
}

// rebuildOwner rebuilds the turns of the first owner after another one that is marked, and reports whether it has some
// left. It reads and assembles them outside of the transaction that replaces the rows. If others build some of them
// every time in between, it does so within.
func (w *Writer) rebuildOwner(ctx context.Context, functions *store.Batch, after string) (
	u *store.Unbuilt, left bool, err error) {
	find := func(t store.Tx) (err error) {
		u, err = store.FindUnbuilt(t, functions, after)
		return err
	}
	apply := func(t store.Tx) error {
		b := *functions
		b.Rebuilt = u
		result, err := store.Apply(t, &b)
		left = result.Unbuilt
		return err
	}
	for range 3 {
		if err := w.view(ctx, find); err != nil || u == nil {
			return nil, false, err
		}
		if err := u.Assemble(); err != nil {
			return nil, false, err
		}
		if err := w.Transact(ctx, apply); err != nil || !u.Stale() {
			return u, left, err
		}
	}
	err = w.Transact(ctx, func(t store.Tx) error {
		if err := find(t); err != nil || u == nil {
			return err
		}
		if err := u.Assemble(); err != nil {
			return err
		}
		return apply(t)
	})
	return u, left, err
}

// Finish rebuilds what is left before an engine closes. What cannot be rebuilt now stays marked.
func (w *Writer) Finish() {
	r := w.rebuilder
	r.mu.Lock()
	closed := r.closed
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	r.running.Wait()
	if !closed {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = w.Rebuild(ctx) // the marks are still there
	}
}
