package postgres

import (
	"context"
	"iter"

	"github.com/agenttrace/agenttrace/session/store"
)

// importsAtOnce is how many sessions are imported at the same time: the server works on one while another is read.
const importsAtOnce = 4

// ImportAll implements [store.Store]. Each session is a transaction; a few are under way at a time.
func (s *Store) ImportAll(ctx context.Context, sessions iter.Seq[*store.Imported],
	done func(*store.Imported, store.ImportResult, error) bool) {
	type result struct {
		in     *store.Imported
		result store.ImportResult
		err    error
	}
	var waiting []chan result
	more := true
	settle := func() {
		r := <-waiting[0]
		waiting = append(waiting[:0], waiting[1:]...)
		more = done(r.in, r.result, r.err) && more
	}
	for in := range sessions {
		c := make(chan result, 1)
		go func() {
			r, err := s.Import(ctx, in)
			c <- result{in, r, err}
		}()
		if waiting = append(waiting, c); len(waiting) == importsAtOnce {
			settle()
		}
		if !more {
			break
		}
	}
	for len(waiting) > 0 {
		settle()
	}
}
