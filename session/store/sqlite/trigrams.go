package sqlite

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/bits"
	"slices"

	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// An index of a segment of parts lists for each trigram, three successive bytes of folded text, the parts that have
// it. A part that has all trigrams of a text may have the text; one that lacks a trigram has not. Trigrams are hashed
// into buckets. The file:
//
//	magic
//	offset of each group of buckets, and of the end: uint32
//	checksum of what is before it: CRC-32
//	for each group: for each bucket of it the length of its list, as a varint, and the list; then their checksum
//
// A list has the differences of successive parts as varints, counted from -1, or, where that would be longer, a bit
// for each part. Numbers are little-endian.
const (
	segmentBits  = 12
	segmentParts = 1 << segmentBits

	trigramBuckets = 1 << 16
	bucketsOfGroup = 64
	trigramGroups  = trigramBuckets / bucketsOfGroup

	trigramMagic  = "agttrig1"
	trigramHeader = len(trigramMagic) + 4*(trigramGroups+1)
	bitmapBytes   = segmentParts / 8
)

var errTrigrams = errors.New("the search index is damaged")

func bucketOf(a, b, c byte) uint16 {
	return uint16((uint32(a) | uint32(b)<<8 | uint32(c)<<16) * 0x9E3779B1 >> 16)
}

// trigramBuilder builds the index of a segment. It can be used again.
type trigramBuilder struct {
	lists [trigramBuckets][]byte
	last  [trigramBuckets]uint16 // the last part in the list, from 1; 0 for none
	text  []byte
}

// add adds a part, which has a greater number than all before it, by its JSON.
func (b *trigramBuilder) add(part int, raw []byte) {
	b.text = sqlstore.AppendFoldedJSON(b.text[:0], raw)
	number := uint16(part + 1)
	for i := 2; i < len(b.text); i++ {
		bucket := bucketOf(b.text[i-2], b.text[i-1], b.text[i])
		if last := b.last[bucket]; last != number {
			b.last[bucket] = number
			b.lists[bucket] = binary.AppendUvarint(b.lists[bucket], uint64(number-last))
		}
	}
}

// encode returns the index of the parts that were added, and makes the builder empty.
func (b *trigramBuilder) encode() []byte {
	data := make([]byte, trigramHeader+4, trigramHeader+4+trigramBuckets)
	copy(data, trigramMagic)
	var set partSet
	for group := range trigramGroups {
		start := len(data)
		binary.LittleEndian.PutUint32(data[len(trigramMagic)+4*group:], uint32(start))
		for bucket := group * bucketsOfGroup; bucket < (group+1)*bucketsOfGroup; bucket++ {
			list := b.lists[bucket]
			if len(list) >= bitmapBytes {
				set = partSet{}
				_ = set.addDifferences(list) // they were written here
				list = set.appendTo(list[:0])
			}
			data = append(binary.AppendUvarint(data, uint64(len(list))), list...)
			b.lists[bucket], b.last[bucket] = b.lists[bucket][:0], 0
		}
		data = binary.LittleEndian.AppendUint32(data, crc32.ChecksumIEEE(data[start:]))
	}
	binary.LittleEndian.PutUint32(data[trigramHeader-4:], uint32(len(data)))
	binary.LittleEndian.PutUint32(data[trigramHeader:], crc32.ChecksumIEEE(data[:trigramHeader]))
	return data
}

// partSet has a bit for each part of a segment.
type partSet [segmentParts / 64]uint64

// add adds the parts of a list.
func (s *partSet) add(list []byte) error {
	if len(list) == bitmapBytes {
		for i := range s {
			s[i] |= binary.LittleEndian.Uint64(list[8*i:])
		}
		return nil
	}
	return s.addDifferences(list)
}

func (s *partSet) addDifferences(list []byte) error {
	part := uint64(0)
	for len(list) > 0 {
		delta, n := binary.Uvarint(list)
		if part += delta; n <= 0 || delta == 0 || part > segmentParts {
			return errTrigrams
		}
		s[(part-1)/64] |= 1 << ((part - 1) % 64)
		list = list[n:]
	}
	return nil
}

func (s *partSet) appendTo(data []byte) []byte {
	for _, word := range s {
		data = binary.LittleEndian.AppendUint64(data, word)
	}
	return data
}

// keep removes the parts that are not in the other set, and returns how many are left.
func (s *partSet) keep(other *partSet) (n int) {
	for i := range s {
		s[i] &= other[i]
		n += bits.OnesCount64(s[i])
	}
	return n
}

// trigramQuery are the buckets of the trigrams that a part must have.
type trigramQuery []int

// newTrigramQuery returns the query for parts that have all of some texts. It is empty if they have no trigram.
func newTrigramQuery(texts []string) (q trigramQuery) {
	for _, text := range texts {
		folded := sqlstore.AppendFolded(nil, text)
		for i := 2; i < len(folded); i++ {
			q = append(q, int(bucketOf(folded[i-2], folded[i-1], folded[i])))
		}
	}
	slices.Sort(q)
	return slices.Compact(q)
}

// fewParts is how many parts are read rather than narrowed down further.
const fewParts = 4

// find returns the parts of a segment that may have the texts of the query, the last first.
func (q trigramQuery) find(index io.ReaderAt) ([]int, error) {
	header := make([]byte, trigramHeader+4)
	if _, err := index.ReadAt(header, 0); err != nil || string(header[:len(trigramMagic)]) != trigramMagic ||
		crc32.ChecksumIEEE(header[:trigramHeader]) != binary.LittleEndian.Uint32(header[trigramHeader:]) {
		return nil, errors.Join(errTrigrams, err)
	}
	var found, set partSet
	for i := range found {
		found[i] = ^uint64(0)
	}
	n := segmentParts
	for i := 0; i < len(q) && n > fewParts; i++ {
		group, err := readGroup(index, header, q[i]/bucketsOfGroup)
		if err != nil {
			return nil, err
		}
		list, err := listOf(group, q[i]%bucketsOfGroup)
		if err != nil {
			return nil, err
		}
		set = partSet{}
		if err := set.add(list); err != nil {
			return nil, err
		}
		n = found.keep(&set)
	}
	parts := make([]int, 0, n)
	for part := segmentParts - 1; part >= 0; part-- {
		if found[part/64]&(1<<(part%64)) != 0 {
			parts = append(parts, part)
		}
	}
	return parts, nil
}

// readGroup returns the lists of a group of buckets.
func readGroup(index io.ReaderAt, header []byte, group int) ([]byte, error) {
	offset := func(group int) int64 {
		return int64(binary.LittleEndian.Uint32(header[len(trigramMagic)+4*group:]))
	}
	data := make([]byte, offset(group+1)-offset(group))
	if _, err := index.ReadAt(data, offset(group)); err != nil {
		return nil, errors.Join(errTrigrams, err)
	}
	lists := data[:len(data)-4]
	if crc32.ChecksumIEEE(lists) != binary.LittleEndian.Uint32(data[len(lists):]) {
		return nil, errTrigrams
	}
	return lists, nil
}

// listOf returns the list of a bucket of a group.
func listOf(lists []byte, bucket int) ([]byte, error) {
	for {
		length, n := binary.Uvarint(lists)
		if n <= 0 || length > uint64(len(lists)-n) {
			return nil, errTrigrams
		}
		if bucket == 0 {
			return lists[n : n+int(length)], nil
		}
		bucket--
		lists = lists[n+int(length):]
	}
}
