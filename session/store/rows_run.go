package store

import (
	"errors"
	"fmt"
)

// errRefusedRow is the error of a working set of which the engine refused a row that merging took for accepted. The
// whole is done again, and then the row is refused at once.
var errRefusedRow = errors.New("a row was refused")

// run does something with the rows of an engine, and again without those that the engine refuses.
//
// No step of a merge can do anything about an engine that fails, so none of them returns its error. As in a
// [bufio.Writer], the working set keeps the first one: after it nothing is read or written any more, rows that are not
// known are not there, and run returns it. What a step does return is the refusal of a row, which ends nothing.
func run(tx Tx, do func(*rows)) error {
	r := &rows{tx: tx}
	for {
		r.reset()
		do(r)
		r.ask()
		if !errors.Is(r.err, errRefusedRow) {
			return r.err
		}
		if err := tx.Undo(); err != nil {
			return err
		}
	}
}

// fail ends the merge with an error, unless another one has.
func (r *rows) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// within adds to the error with which f ends the merge what was done, and to which row.
func (r *rows) within(what, id string, f func()) {
	if r.err != nil {
		return
	}
	if f(); r.err != nil {
		r.err = fmt.Errorf("%s %s: %w", what, id, r.err)
	}
}
