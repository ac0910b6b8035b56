package importer

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
)

// packings are those that any file may have: what it begins with, and what reads it.
var packings = []struct {
	name, magic string
	open        func(io.Reader) (io.Reader, error)
}{
	{"gzip", "\x1f\x8b", func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
	{"zstd", "\x28\xb5\x2f\xfd", func(r io.Reader) (io.Reader, error) {
		// One goroutine's work is done in the reader's own, which nobody has to close.
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxWindow))
	}},
}

// maxWindow is how much memory a packed file may ask for to be unpacked.
const maxWindow = 256 << 20

// decompressed returns what is compressed in r, where that is a format of sessions or a
// database; nil where nothing is compressed, and for telemetry, whose reader does it
// itself. What is damaged ends there, and is counted as damage.
func (im *Importer) decompressed(r *bufio.Reader, t *Tally) (*bufio.Reader, error) {
	head, _ := r.Peek(otlpfile.SniffSize) // an error shows at the next read
	for _, p := range packings {
		if !bytes.HasPrefix(head, []byte(p.magic)) || im.options.Format == nil && !holdsSessions(head, p.open) {
			continue
		}
		z, err := p.open(r)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", p.name, err)
		}
		damaged := func(err error) {
			im.damaged(t, fmt.Errorf("it is damaged as a %s file: the rest is left out: %w", p.name, err))
		}
		unpacked := im.options.Budget.Reader(&intact{r: z, damaged: damaged})
		return bufio.NewReaderSize(unpacked, otlpfile.SniffSize), nil
	}
	return nil, nil
}

// holdsSessions reports whether what is compressed begins as sessions do.
func holdsSessions(compressed []byte, open func(io.Reader) (io.Reader, error)) bool {
	z, err := open(bytes.NewReader(compressed))
	if err != nil {
		return false
	}
	head, _ := io.ReadAll(io.LimitReader(z, otlpfile.SniffSize)) // it is cut off
	if formats.IsDatabase(head) {
		return true
	}
	f := formats.OfText(head)
	return f != nil && !f.Telemetry
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
