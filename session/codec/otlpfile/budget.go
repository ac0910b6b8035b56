package otlpfile

import (
	"bytes"
	"errors"
	"io"
)

// ErrTooLarge is the error of what takes more memory than its [Budget] has.
var ErrTooLarge = errors.New("it is too large to be unpacked and decoded at once")

// Budget limits the memory that files take which somebody else sent: a small one may unpack to any size, and short
// values of JSON take many times their text. Nil is no limit. It is used by one goroutine.
type Budget struct {
	// Left is how many bytes there are still; it is negative when there are none.
	Left int64
}

// valueCost is how many bytes a value of JSON takes beside its text, roughly.
const valueCost = 64

// Reader returns a reader of what r has, which ends with [ErrTooLarge] when the budget is spent.
func (b *Budget) Reader(r io.Reader) io.Reader {
	if b == nil {
		return r
	}
	return &budgeted{r, b}
}

// Spent reports whether more was read than there was.
func (b *Budget) Spent() bool { return b != nil && b.Left < 0 }

type budgeted struct {
	r      io.Reader
	budget *Budget
}

// Read implements [io.Reader].
func (b *budgeted) Read(p []byte) (int, error) {
	if b.budget.Spent() {
		return 0, ErrTooLarge
	}
	n, err := b.r.Read(p)
	values := 0
	for _, before := range []string{",", "[", "{"} {
		values += bytes.Count(p[:n], []byte(before))
	}
	b.budget.Left -= int64(n) + valueCost*int64(values)
	return n, err
}
