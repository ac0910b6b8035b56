package jsonl

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestLineReaderGivesUp(t *testing.T) {
	const maximum = 1000
	for n := 980; n < 1100; n++ {
		l := lineReader{r: bufio.NewReaderSize(strings.NewReader("first\n"+strings.Repeat(" ", n)+"\nlast"), 16),
			maximum: maximum}
		if line, err := l.next(); string(line) != "first" || err != nil {
			t.Fatalf("line 1 = %q, %v", line, err)
		}
		line, err := l.next()
		switch {
		case err == nil && len(line) == n:
			if last, err := l.next(); string(last) != "last" || err != nil || l.n != 3 {
				t.Fatalf("line %d = %q, %v", l.n, last, err)
			}
			if _, err := l.next(); !errors.Is(err, io.EOF) {
				t.Fatalf("at the end: %v", err)
			}
			// A line is refused while it is read, in steps of the buffer.
			if n > maximum+16 {
				t.Fatalf("read a line of %d bytes, the most is %d", n, maximum)
			}
		case err == nil:
			t.Fatalf("line of %d bytes has %d", n, len(line))
		case err.Error() != "longer than 1000 bytes" || n <= maximum:
			t.Fatalf("line of %d bytes: %v", n, err)
		default:
			if last, err := l.next(); string(last) != "last" || err != nil || l.n != 3 {
				t.Fatalf("after a line of %d bytes line %d = %q, %v", n, l.n, last, err)
			}
		}
	}
}
