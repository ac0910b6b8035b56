package otlpfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
)

// zstdMagic begins a frame of Zstandard.
const zstdMagic = "\x28\xb5\x2f\xfd"

// markSize is the size of a mark: the length of a frame, and zstdMagic.
const markSize = 4 + len(zstdMagic)

func isMark(b []byte) bool { return len(b) >= markSize && string(b[4:markSize]) == zstdMagic }

// AppendFrame appends a body to dst as the collector's file exporter writes it with "compression: zstd": its length,
// and a frame of Zstandard. The body is not compressed, which would take longer than to write it. The frame has a
// checksum, so [Read] does not yield a body that changed on the disk.
func AppendFrame(dst, body []byte) []byte {
	const maxBlock = 128 << 10
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0) // the length is set at the end
	dst = append(dst, zstdMagic...)
	dst = append(dst, 0xa4) // RFC 8878, 3.1.1.1.1: a size of four bytes, a single segment, a checksum
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(body)))
	for rest, last := body, uint32(0); last == 0; {
		block := rest[:min(len(rest), maxBlock)]
		if rest = rest[len(block):]; len(rest) == 0 {
			last = 1
		}
		header := uint32(len(block))<<3 | last // of a raw block
		dst = append(dst, byte(header), byte(header>>8), byte(header>>16))
		dst = append(dst, block...)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(xxhash.Sum64(body)))
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// readFrames reads bodies that are after their lengths. If they are packed, as [AppendFrame] does it, and one is
// damaged, the next one is found by its length.
func (d *decoder) readFrames(s *source, layer int, packed bool) error {
	for !d.stopped {
		at := s.offset
		head := s.peek(markSize)
		switch {
		case len(head) < 4, packed && len(head) < markSize:
			return d.end(s, 0)
		case packed && !isMark(head):
			return d.torn(s, at)
		case d.budget.Spent():
			return ErrTooLarge
		}
		n := int64(binary.BigEndian.Uint32(head))
		if n > int64(d.maximum) {
			d.damaged(0, at, d.tooLarge(n))
			s.skip(4 + n)
			continue
		}
		frame := s.peek(4 + int(n))[4:]
		if len(frame) < int(n) {
			return d.end(s, 0)
		}
		body, err := frame, error(nil)
		if packed {
			body, err = d.unpackFrame(frame)
		}
		if err != nil {
			if next := s.peek(4 + int(n) + markSize)[4+n:]; len(next) > 0 && !isMark(next) {
				s.skip(int64(markSize))
				return d.torn(s, at)
			}
			d.damaged(0, at, fmt.Errorf("%d bytes are damaged and left out: %w", 4+n, err))
		}
		s.skip(4 + n) // body stays until the next read
		if err == nil {
			d.readFrame(body, layer, at)
		}
	}
	return nil
}

// torn reports a frame at an offset that has no end. If the power failed while it was written, zeros are in the
// place of what did not reach the disk, from here on.
func (d *decoder) torn(s *source, at int64) error {
	for {
		b := s.peek(64 << 10)
		if len(bytes.Trim(b, "\x00")) > 0 {
			d.damaged(0, at, errors.New("the frame is damaged; the rest is left out"))
			return nil
		}
		if s.skip(int64(len(b))); len(b) == 0 {
			d.damaged(0, at, ErrCut)
			return nil
		}
	}
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

// readFrame reads the content of the frame at an offset.
func (d *decoder) readFrame(content []byte, layer int, at int64) {
	d.frame, d.inFrame = at, true
	err := d.read(&source{r: d.budget.Reader(bytes.NewReader(content))}, layer+1)
	d.inFrame = false
	if err != nil {
		d.damaged(0, at, err)
	}
}
