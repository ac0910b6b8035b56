package cli

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
)

// gunzip returns what is compressed in r, where that is a format of sessions or a
// database; nil where nothing is compressed, and for telemetry, whose reader does it
// itself. What is damaged ends there, and is counted as damage.
func (im *importer) gunzip(r *bufio.Reader, t *tally) (*bufio.Reader, error) {
	head, _ := r.Peek(otlpfile.SniffSize) // an error shows at the next read
	if !bytes.HasPrefix(head, []byte("\x1f\x8b")) {
		return nil, nil
	}
	if im.format == nil && !holdsSessions(head) {
		return nil, nil
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("read gzip: %w", err)
	}
	damaged := func(err error) {
		im.damaged(t, fmt.Errorf("it is damaged as a gzip file: the rest is left out: %w", err))
	}
	return bufio.NewReaderSize(&intact{r: z, damaged: damaged}, otlpfile.SniffSize), nil
}

// holdsSessions says whether what is compressed begins as sessions do.
func holdsSessions(compressed []byte) bool {
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return false
	}
	head, _ := io.ReadAll(io.LimitReader(z, otlpfile.SniffSize)) // it is cut off
	if bytes.HasPrefix(head, []byte(sqliteMagic)) {
		return true
	}
	f := newHead(head).format()
	return f != nil && f.read == nil
}

// intact reads as far as r is good.
type intact struct {
	r       io.Reader
	damaged func(error)
	ended   bool
}

func (i *intact) Read(p []byte) (int, error) {
	if i.ended {
		return 0, io.EOF
	}
	n, err := i.r.Read(p)
	if err != nil && err != io.EOF {
		i.damaged(err)
		i.ended, err = true, io.EOF
	}
	return n, err
}
