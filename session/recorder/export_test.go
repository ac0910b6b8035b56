package recorder

import "time"

// SetClock has a Tee take times from a clock.
func SetClock(t *Tee, now func() time.Time) { t.now = now }

// Messages are those that are found in what comes in pieces of a size.
func Messages(stream []byte, size int) (all []string) {
	f := frames{message: func(m []byte) { all = append(all, string(m)) }}
	for len(stream) > 0 {
		n := min(size, len(stream))
		f.add(stream[:n])
		stream = stream[n:]
	}
	return all
}
