package otlpfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// zstdMagic begins a frame of Zstandard.
const zstdMagic = "\x28\xb5\x2f\xfd"

// markSize is the size of the length of a frame, and of zstdMagic.
const markSize = 4 + len(zstdMagic)

// Frame returns a body as the collector's file exporter writes it with "compression: zstd": its length, and a frame of
// Zstandard with a checksum, so [Read] does not yield a body that changed on the disk.
func Frame(body []byte) []byte {
	z, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest)) // no bad option
	frame := z.EncodeAll(body, make([]byte, 4, len(body)/2+64))
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// readFrames reads bodies that are after their lengths. If the first is packed, all are.
func (d *decoder) readFrames(s *source, layer int) error {
	isPacked := func(head []byte) bool { return bytes.HasSuffix(head, []byte(zstdMagic)) }
	packed := isPacked(s.peek(markSize))
	for !d.stopped {
		at, head := s.offset, s.peek(markSize)
		switch {
		case len(head) < 4, packed && len(head) < markSize:
			return d.end(s, 0)
		case packed && !isPacked(head):
			d.damaged(0, at, errors.New("the frame is damaged; the rest is left out"))
			return nil
		case d.budget.Spent():
			return ErrTooLarge
		}
		n := int64(binary.BigEndian.Uint32(head))
		if n > int64(d.maximum) {
			d.damaged(0, at, d.tooLarge(n))
			s.skip(4 + n)
			continue
		}
		body, err := s.peek(4 + int(n))[4:], error(nil)
		if len(body) < int(n) {
			return d.end(s, 0)
		}
		s.skip(4 + n) // body stays until the next read
		if packed {
			body, err = d.unpackFrame(body)
		}
		if err != nil {
			d.damaged(0, at, fmt.Errorf("%d bytes are damaged and left out: %w", 4+n, err))
			continue
		}
		d.frame, d.inFrame = at, true
		err = d.read(&source{r: d.budget.Reader(bytes.NewReader(body))}, layer+1)
		if d.inFrame = false; err != nil {
			d.damaged(0, at, err)
		}
	}
	return nil
}

// unpackFrame returns the content of a frame of Zstandard, which must not be read before its checksum.
func (d *decoder) unpackFrame(frame []byte) (content []byte, err error) {
	if d.zstd == nil {
		d.zstd, err = newZstd(nil, zstd.WithDecoderMaxMemory(uint64(max(d.maximum, maxWindow))))
		if err != nil {
			return nil, err
		}
	}
	content, err = d.zstd.DecodeAll(frame, nil)
	switch {
	case len(content) > d.maximum || errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return nil, d.tooLarge(0)
	case err != nil:
		return nil, &unpackError{"zstd", err}
	}
	return content, nil
}
