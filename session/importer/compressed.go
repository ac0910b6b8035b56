package importer

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
)

// decompressed returns what is compressed in r, where that is a format of sessions or a
// database; nil where nothing is compressed, and for telemetry, whose reader does it
// itself. What is damaged ends there, and is counted as damage.
func (im *Importer) decompressed(r *bufio.Reader, t *Tally) (*bufio.Reader, error) {
	head, _ := r.Peek(otlpfile.SniffSize) // an error shows at the next read
	kind := otlpfile.Compression(head)
	if kind == "" || im.options.Format == nil && !holdsSessions(kind, head) {
		return nil, nil
	}
	z, err := otlpfile.Unpack(kind, r)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", kind, err)
	}
	damaged := func(err error) {
		im.damaged(t, fmt.Errorf("it is damaged as a %s file: the rest is left out: %w", kind, err))
	}
	unpacked := im.options.Budget.Reader(&intact{r: z, damaged: damaged})
	return bufio.NewReaderSize(unpacked, otlpfile.SniffSize), nil
}

// holdsSessions reports whether what is compressed begins as sessions do.
func holdsSessions(kind string, compressed []byte) bool {
	z, err := otlpfile.Unpack(kind, bytes.NewReader(compressed))
	if err != nil {
		return false
	}
	head, _ := io.ReadAll(io.LimitReader(z, otlpfile.SniffSize)) // it is cut off
	f := formats.OfText(head)
	return formats.IsDatabase(head) || f != nil && !f.Telemetry
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
