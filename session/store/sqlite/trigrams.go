package sqlite

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/bits"

	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// The index of a segment of parts is a table of bits: a row for each group of trigrams, three successive bytes of folded
// text, and a column for each part. A part that has a text has the bits of all its trigrams; one without these bits has
// not. The file has the rows in order, each with its checksum. Numbers are little-endian.
const (
	segmentBits  = 12
	segmentParts = 1 << segmentBits

	trigramBits  = 13
	trigramRows  = 1 << trigramBits
	rowBytes     = segmentParts/8 + 4
	trigramBytes = trigramRows * rowBytes

	// fewParts is how many parts are read rather than narrowed down further.
	fewParts = 4
)

var errTrigrams = errors.New("the search index is damaged")

// rowOf returns the row of a trigram.
func rowOf(a, b, c byte) int {
	return int((uint32(a) | uint32(b)<<8 | uint32(c)<<16) * 0x9E3779B1 >> (32 - trigramBits))
}

// partSet has a bit for each part of a segment.
type partSet [segmentParts / 64]uint64

// trigramTable is the index of a segment.
type trigramTable [trigramRows]partSet

// add adds a part by its folded text.
func (t *trigramTable) add(part int, folded []byte) {
	for i := 2; i < len(folded); i++ {
		t[rowOf(folded[i-2], folded[i-1], folded[i])][part/64] |= 1 << (part % 64)
	}
}

// encode returns the file of the table.
func (t *trigramTable) encode() []byte {
	data := make([]byte, 0, trigramBytes)
	for i := range t {
		start := len(data)
		for _, word := range t[i] {
			data = binary.LittleEndian.AppendUint64(data, word)
		}
		data = binary.LittleEndian.AppendUint32(data, crc32.ChecksumIEEE(data[start:]))
	}
	return data
}

// trigramQuery are the rows of the trigrams that a part must have.
type trigramQuery []int

// newTrigramQuery returns the query for parts that have all of some texts. It is empty if they have no trigram.
func newTrigramQuery(texts []string) (q trigramQuery) {
	seen := map[int]bool{}
	for _, text := range texts {
		folded := sqlstore.AppendFolded(nil, text)
		for i := 2; i < len(folded); i++ {
			if row := rowOf(folded[i-2], folded[i-1], folded[i]); !seen[row] {
				seen[row] = true
				q = append(q, row)
			}
		}
	}
	return q
}

// find returns the parts of a segment that may have the texts of the query, the last first.
func (q trigramQuery) find(index io.ReaderAt) (parts []int, _ error) {
	var found partSet
	for i := range found {
		found[i] = ^uint64(0)
	}
	var row [rowBytes]byte
	for i, n := 0, segmentParts; i < len(q) && n > fewParts; i++ {
		if _, err := index.ReadAt(row[:], int64(q[i])*rowBytes); err != nil {
			return nil, errors.Join(errTrigrams, err)
		}
		words, sum := row[:rowBytes-4], row[rowBytes-4:]
		if crc32.ChecksumIEEE(words) != binary.LittleEndian.Uint32(sum) {
			return nil, errTrigrams
		}
		n = 0
		for j := range found {
			found[j] &= binary.LittleEndian.Uint64(words[8*j:])
			n += bits.OnesCount64(found[j])
		}
	}
	for part := segmentParts - 1; part >= 0; part-- {
		if found[part/64]&(1<<(part%64)) != 0 {
			parts = append(parts, part)
		}
	}
	return parts, nil
}
