package store

import (
	"errors"
	"iter"
)

// errRefusedRow is returned where the engine refused a row that merging took for accepted. The whole is done again,
// and then the row is refused at once.
var errRefusedRow = errors.New("a row was refused")

// run does something with the rows of an engine, and again without those that the engine refuses.
func run(tx Tx, do func(*rows) error) error {
	r := &rows{tx: tx}
	for {
		r.reset()
		err := do(r)
		if err == nil {
			err = r.do()
		}
		if !errors.Is(err, errRefusedRow) {
			return err
		}
		if err := tx.Undo(); err != nil {
			return err
		}
	}
}

// unit is one of several that wait for their queries together.
type unit struct {
	resume func() (struct{}, bool)
	park   func(struct{}) bool
	err    error
}

// errStopped ends units that wait when another has failed.
var errStopped = errors.New("stopped")

// inStep does n things side by side: each until it has to ask the engine, then the next. What all of them asked is
// answered in one round trip. So n chains of queries cost as many as the longest. They must not depend on one
// another, because what one changes another sees, or not.
func (r *rows) inStep(n int, do func(i int) error) error {
	if n == 1 || r.unit != nil {
		for i := range n {
			if err := do(i); err != nil {
				return err
			}
		}
		return nil
	}
	running := make([]*unit, n)
	for i := range running {
		u := new(unit)
		running[i] = u
		resume, stop := iter.Pull(func(yield func(struct{}) bool) {
			u.park = yield
			u.err = do(i)
		})
		defer stop()
		u.resume = resume
	}
	for len(running) > 0 {
		waiting := running[:0]
		for _, u := range running {
			r.unit = u
			_, waits := u.resume()
			r.unit = nil
			if u.err != nil {
				return u.err
			}
			if waits {
				waiting = append(waiting, u)
			}
		}
		running = waiting
		if queries := r.asked; len(queries) > 0 {
			r.asked = nil
			if err := r.do(queries...); err != nil {
				return err
			}
		}
	}
	return nil
}

// ask has queries answered.
func (r *rows) ask(queries ...Query) error {
	switch {
	case len(queries) == 0:
	case r.unit == nil:
		return r.do(queries...)
	default:
		r.asked = append(r.asked, queries...)
		if !r.unit.park(struct{}{}) {
			return errStopped
		}
	}
	return nil
}
