package spool

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// The format is described in FORMAT.md. A record is
//
//	length   4 bytes, of body and trailer
//	body     OTLP in protobuf
//	trailer  24 bytes: an unknown field of the body, to whoever does not know it
const (
	lengthSize  = 4
	trailerSize = 24
	// tag is that of field 63 in protobuf, of bytes, of which there are 21.
	tag0, tag1, tag2 = 0xfa, 0x03, trailerSize - 3

	// MaxRecord is the size of the largest record, in bytes.
	MaxRecord = 64 << 20
)

// kind says what a record holds.
type kind byte

const (
	kindHeader kind = iota
	kindTraces
	kindLogs
)

// magic is the schema URL of the resource in the first record of a file.
const magic = "https://github.com/agenttrace/agenttrace/spool/1"

// headerBody is a body with one resource, which has a schema and no spans.
var headerBody = append([]byte{0x0a, byte(len(magic) + 2), 0x1a, byte(len(magic))}, magic...)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fileID tells the records of a file from those of any other.
type fileID [8]byte

// frame is a record as it is in a file.
type frame struct {
	kind  kind
	id    fileID
	seq   uint32 // from 0, the header's
	items uint32
	body  []byte
}

// appendFrame appends the record to dst.
func appendFrame(dst []byte, f frame) []byte {
	from := len(dst)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(f.body)+trailerSize))
	dst = append(dst, f.body...)
	dst = append(dst, tag0, tag1, tag2, byte(f.kind))
	dst = append(dst, f.id[:]...)
	dst = binary.BigEndian.AppendUint32(dst, f.seq)
	dst = binary.BigEndian.AppendUint32(dst, f.items)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

// size is how many bytes the record has in a file.
func (f frame) size() int { return lengthSize + len(f.body) + trailerSize }

// plausible says whether b may begin a record, by its first bytes.
func plausible(b []byte) bool {
	if len(b) < lengthSize+1 {
		return false
	}
	n := binary.BigEndian.Uint32(b)
	return n > trailerSize && n <= MaxRecord && b[lengthSize] == 0x0a
}

// parse returns the record that b begins with, which plausible took for one and
// which is there to its end.
func parse(b []byte) (frame, bool) {
	end := lengthSize + int(binary.BigEndian.Uint32(b))
	t := b[end-trailerSize : end]
	if t[0] != tag0 || t[1] != tag1 || t[2] != tag2 || t[3] > byte(kindLogs) {
		return frame{}, false
	}
	if crc32.Checksum(b[:end-4], castagnoli) != binary.BigEndian.Uint32(t[20:]) {
		return frame{}, false
	}
	f := frame{kind: kind(t[3]), seq: binary.BigEndian.Uint32(t[12:]), items: binary.BigEndian.Uint32(t[16:]), body: b[lengthSize : end-trailerSize]}
	copy(f.id[:], t[4:12])
	return f, true
}

// Sniff says whether a file that begins with head is a spool file, by its first
// record.
func Sniff(head []byte) bool {
	return len(head) >= lengthSize+len(headerBody)+trailerSize && bytes.HasPrefix(head[lengthSize:], headerBody) &&
		bytes.HasPrefix(head[lengthSize+len(headerBody):], []byte{tag0, tag1, tag2, byte(kindHeader)})
}
