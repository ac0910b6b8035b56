package store

import (
	"errors"
	"fmt"
	"iter"
)

// errRefusedRow is returned where the engine refused a row that merging took for accepted. The whole is done again,
// and then the row is refused at once.
var errRefusedRow = errors.New("a row was refused")

// failure is the panic that ends a merge whose engine fails. No step of a merge can do anything about that, so none of
// them has an error to return: [run] returns it. What a step does return is the refusal of a row, which ends nothing.
type failure struct{ error }

// fail ends the merge with an error.
func fail(err error) { panic(failure{err}) }

// catch returns the error with which f ended the merge.
func catch(f func()) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case failure:
			err = v.error
		default:
			panic(v)
		}
	}()
	f()
	return nil
}

// within adds to the error with which f ends the merge what was done, and to which row.
func within(what, id string, f func()) {
	if err := catch(f); err != nil {
		fail(fmt.Errorf("%s %s: %w", what, id, err))
	}
}

// run does something with the rows of an engine, and again without those that the engine refuses.
func run(tx Tx, do func(*rows)) error {
	r := &rows{tx: tx}
	for {
		r.reset()
		err := catch(func() {
			do(r)
			r.do()
		})
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
	resume func() ([]Query, bool)
	park   func([]Query) bool
	err    error
}

// errStopped ends units that wait when another has failed.
var errStopped = errors.New("stopped")

// inStep does n things side by side: each until it has to ask the engine, then the next. What all of them asked is
// answered in one round trip. So n chains of queries cost as many as the longest. They must not depend on one
// another, because what one changes another sees, or not.
func (r *rows) inStep(n int, do func(i int)) {
	if n == 1 || r.unit != nil {
		for i := range n {
			do(i)
		}
		return
	}
	running := make([]*unit, n)
	for i := range running {
		u := new(unit)
		running[i] = u
		resume, stop := iter.Pull(func(yield func([]Query) bool) {
			u.park = yield
			u.err = catch(func() { do(i) })
		})
		defer stop()
		u.resume = resume
	}
	for len(running) > 0 {
		waiting, asked := running[:0], []Query(nil)
		for _, u := range running {
			r.unit = u
			queries, waits := u.resume()
			r.unit = nil
			if u.err != nil {
				fail(u.err)
			}
			if waits {
				waiting, asked = append(waiting, u), append(asked, queries...)
			}
		}
		if running = waiting; len(asked) > 0 {
			r.do(asked...)
		}
	}
}

// ask has queries answered.
func (r *rows) ask(queries ...Query) {
	switch {
	case len(queries) == 0:
	case r.unit == nil:
		r.do(queries...)
	case !r.unit.park(queries):
		fail(errStopped)
	}
}
