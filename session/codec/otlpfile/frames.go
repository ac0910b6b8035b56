package otlpfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
)

// zstdMagic begins a frame of Zstandard.
const zstdMagic = "\x28\xb5\x2f\xfd"

// markSize is the size of a mark: the length of a frame, and zstdMagic.
const markSize = 4 + len(zstdMagic)

// maxAgain is how many bytes of damaged frames are read again to find the next one, since every byte of a file may
// look like the length of a large frame.
const maxAgain = 1 << 30

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

// readPacked reads frames of Zstandard that are after their lengths. If a frame is damaged, the next one is found
// by its length, or by its mark if the length is damaged as well.
func (d *decoder) readPacked(s *source, layer int) error {
	for !d.stopped {
		at := s.offset
		head, err := s.Peek(markSize)
		if len(head) == 0 {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return d.cut(s, 0, err)
		}
		if !isMark(head) {
			if err := d.resync(s, at, false, nil); err != nil {
				return err
			}
			continue
		}
		n := int64(binary.BigEndian.Uint32(head))
		_ = s.skip(4)
		if d.budget.Spent() {
			return ErrTooLarge
		}
		if n > int64(d.maximum) {
			d.damaged(0, at, d.tooLarge(n))
			if _, _, err := s.toMark(); err != nil {
				return d.cut(s, 0, err)
			}
			continue
		}
		frame, cut := s.fill(nil, int(n))
		if cut != nil && !errors.Is(cut, io.EOF) && !errors.Is(cut, io.ErrUnexpectedEOF) {
			return d.cut(s, 0, cut)
		}
		body, err := d.unpackFrame(frame)
		next, _ := s.Peek(markSize)
		switch {
		case err == nil:
			d.readFrame(body, layer, at)
			if cut != nil {
				d.damaged(0, at, errors.New("the length of the last frame is wrong"))
			}
		case cut == nil && (len(next) == 0 || isMark(next)):
			d.damaged(0, at, fmt.Errorf("%d bytes are damaged and left out: %w", s.offset-at, err))
		default:
			if d.again += len(frame); d.again > maxAgain {
				d.damaged(0, at, errors.New("too much is damaged; the rest is left out"))
				return nil
			}
			s.unread(frame)
			if err := d.resync(s, at, cut != nil, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// unpackFrame returns the content of a frame of Zstandard, which must not be read before its checksum.
func (d *decoder) unpackFrame(frame []byte) (content []byte, err error) {
	if d.zstd == nil {
		const maxWindow = 256 << 20
		d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(uint64(max(d.maximum, maxWindow))))
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
	err := d.read(newSource(d.budget.Reader(bytes.NewReader(content)), len(content)), layer+1)
	d.inFrame = false
	if err != nil {
		d.damaged(0, at, err)
	}
}

// resync reports that what begins at an offset is damaged, and discards everything up to the next mark. Without one,
// the damage may be a frame that was being written when its writer died. If the power failed then, zeros may stand
// for what did not reach the disk.
func (d *decoder) resync(s *source, at int64, cut bool, why error) error {
	found, end, err := s.toMark()
	if err != nil {
		return d.cut(s, 0, err)
	}
	switch n := s.offset - at; {
	case !found && (cut || end < at+int64(markSize)):
		why = ErrCut
	case why == nil:
		why = fmt.Errorf("%d bytes are damaged and left out", n)
	default:
		why = fmt.Errorf("%d bytes are damaged and left out: %w", n, why)
	}
	d.damaged(0, at, why)
	return nil
}

// toMark discards what is before the next mark that is not here. Without a mark it discards everything, and end is
// where only zeros followed.
func (s *source) toMark() (found bool, end int64, err error) {
	for {
		b, err := s.Peek(s.Size())
		if err != nil && !errors.Is(err, io.EOF) {
			return false, 0, err
		}
		if next := bytes.Index(b[min(5, len(b)):], []byte(zstdMagic)); next >= 0 {
			return true, 0, s.skip(int64(next) + 1)
		}
		if rest := bytes.TrimRight(b, "\x00"); len(rest) > 0 {
			end = s.offset + int64(len(rest))
		}
		if err != nil {
			return false, end, s.skip(int64(len(b)))
		}
		if err := s.skip(int64(len(b) - markSize)); err != nil {
			return false, 0, err
		}
	}
}

// unread puts back what was read last.
func (s *source) unread(b []byte) {
	buffered, _ := s.Peek(s.Buffered())
	s.raw = io.MultiReader(bytes.NewReader(slices.Concat(b, buffered)), s.raw)
	s.Reset(s.raw)
	s.offset -= int64(len(b))
}
