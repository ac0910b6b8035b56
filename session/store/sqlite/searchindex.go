package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// The search index is a directory beside the store. It has a file for each segment of 4,096 parts, by rowid, that is
// full; the parts after the last full segment are few, and are read. Nothing of it is made when parts are written. The
// file of a segment has in its name what identifies the content of the segment, so that it is there or not, and never
// out of date. Files are made by any process that has the time, under another name first, so no lock is needed, and a
// reader of any state of the store uses those that fit that state.

// indexSuffix names the directory of a store's search index.
const indexSuffix = "-search"

// segment is a full segment of parts, and what identifies its content. Triggers give it another random version when a
// part of it changes or is deleted. While it has one version, parts can only be added to it, with the next rowids of
// the table: then another part is the last one. The same holds if the rows are renumbered, by VACUUM or with the
// restored text of a dump, for their order stays.
type segment struct {
	number, version int64
	last            string
}

func (s segment) fileName() string {
	return fmt.Sprintf("%d-%016x-%08x", s.number, uint64(s.version), crc32.ChecksumIEEE([]byte(s.last)))
}

// sealSegments gives a version to the segments that have become full.
const sealSegments = `WITH RECURSIVE full(segment) AS (
 SELECT coalesce((SELECT max(segment) + 1 FROM search_segments), 0) UNION ALL SELECT segment + 1 FROM full
 WHERE segment < (SELECT max(rowid) FROM chat_parts) >> 12)
INSERT INTO search_segments(segment, version) SELECT segment, random() FROM full
 WHERE segment < (SELECT max(rowid) FROM chat_parts) >> 12`

// indexDir returns the directory of the search index.
func (f *file) indexDir() (string, error) {
	real, err := realPath(f.path)
	return real + indexSuffix, err
}

// segments returns the full segments in order, none if the store keeps no versions.
func segments(conn *sqlite.Conn) (full []segment, err error) {
	tables, err := names(conn, "SELECT name FROM sqlite_schema WHERE name = 'search_segments'")
	if err != nil || len(tables) == 0 {
		return nil, err
	}
	stmt := prep(conn, `SELECT segment, version, (SELECT id FROM chat_parts NOT INDEXED
 WHERE rowid >= segment << 12 AND rowid < (segment + 1) << 12 ORDER BY rowid DESC LIMIT 1) FROM search_segments
 ORDER BY segment`)
	err = each(stmt, func() error {
		full = append(full, segment{stmt.ColumnInt64(0), stmt.ColumnInt64(1), stmt.ColumnText(2)})
		return nil
	})
	return full, err
}

// FilterParts implements [sqlstore.PartFilter] by the search index. What is wrong with the index costs time only: the
// parts of a segment without a valid file are read.
func (t *tx) FilterParts(texts []string, since int64, size int, fn func(parts string) error) error {
	query, sets, list, few := newTrigramQuery(texts), map[int64]*partSet{}, []byte(nil), 0
	if len(query) > 0 && t.file != nil {
		dir, err := t.file.indexDir()
		if err != nil {
			return err
		}
		full, err := segments(t.conn)
		if err != nil {
			return err
		}
		for _, s := range full {
			if set := query.findIn(filepath.Join(dir, s.fileName())); set != nil {
				sets[s.number] = set
			}
		}
		last, err := sqlitex.ResultInt64(t.prep(`SELECT coalesce(max(rowid), 0) FROM chat_parts`))
		if err != nil {
			return err
		}
		few = len(full) << segmentBits / 32
		for number := last >> segmentBits; number >= 0 && few > 0; number-- {
			for part := range int64(segmentParts) {
				if sets[number].has(part) {
					list = strconv.AppendInt(append(list, ','), number<<segmentBits+part, 10)
					few--
				}
			}
		}
	}
	// Few parts are sorted. Of many, the index of their times is read, until enough is found.
	ordered := t.prep(`SELECT rowid FROM chat_parts WHERE created_at >= ? ORDER BY created_at DESC, id DESC`, since)
	if few > 0 {
		ordered = t.prep(`SELECT p.rowid FROM json_each(?2) CROSS JOIN chat_parts p ON p.rowid = value
 WHERE created_at >= ?1 ORDER BY created_at DESC, p.id DESC`, since, jsonList(list))
	}
	list = list[:0]
	n := 0
	err := each(ordered, func() error {
		part := ordered.ColumnInt64(0)
		if !sets[part>>segmentBits].has(part & (segmentParts - 1)) {
			return nil
		}
		list = strconv.AppendInt(append(list, ','), part, 10)
		if n++; n%size > 0 {
			return nil
		}
		defer func() { list = list[:0] }()
		return fn(jsonList(list))
	})
	if err == nil && len(list) > 0 {
		err = fn(jsonList(list))
	}
	return err
}

// jsonList is a list of numbers in JSON, of which each follows a comma.
func jsonList(numbers []byte) string { return "[" + strings.TrimPrefix(string(numbers), ",") + "]" }

// findIn returns the parts that the file of a segment lists, nil if it cannot be read. A damaged one is removed, so that
// it is made again.
func (q trigramQuery) findIn(name string) *partSet {
	f, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	parts, err := q.find(f)
	if err != nil {
		_ = os.Remove(name)
		return nil
	}
	return parts
}

var _ store.SearchIndexer = (*Reader)(nil)

// UpdateSearchIndex implements [store.SearchIndexer].
func (r *Reader) UpdateSearchIndex(ctx context.Context, more func(done, total int) bool) error {
	err := r.updateIndex(ctx, more)
	if err != nil && ctx.Err() == nil {
		err = classifyFile(fmt.Errorf("update search index of %s: %w", r.path, err))
	}
	return err
}

func (r *Reader) updateIndex(ctx context.Context, more func(done, total int) bool) error {
	full, missing, err := r.cleanIndex(ctx)
	if err != nil || len(missing) == 0 {
		return err
	}
	dir, err := r.indexDir()
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	builder := new(trigramBuilder)
	for i, s := range missing {
		if !more((len(full)-len(missing)+i)*segmentParts, len(full)*segmentParts) {
			break
		}
		if err := r.indexSegment(ctx, builder, s.number, dir); err != nil {
			return err
		}
	}
	// A session may have been deleted while its parts were read.
	_, _, err = r.cleanIndex(ctx)
	return err
}

// indexSegment makes the file of a segment as it is now.
func (r *Reader) indexSegment(ctx context.Context, builder *trigramBuilder, number int64, dir string) error {
	var name string
	var data []byte
	err := r.read(ctx, func(conn *sqlite.Conn) error {
		full, err := segments(conn)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(full, func(s segment) bool { return s.number == number })
		if i < 0 {
			return nil // its parts were deleted
		}
		name = full[i].fileName()
		first := number << segmentBits
		stmt := prep(conn, `SELECT rowid, data_json FROM chat_parts WHERE rowid BETWEEN ? AND ? ORDER BY rowid`, first,
			first+segmentParts-1)
		var raw []byte
		if err := each(stmt, func() error {
			raw = store.Bytes(stmt, 1, raw)
			builder.add(int(stmt.ColumnInt64(0)-first), raw)
			return nil
		}); err != nil {
			builder.encode() // makes it empty
			return err
		}
		data = builder.encode()
		return nil
	})
	if err != nil || data == nil {
		return err
	}
	return session.ReplaceFiles(session.NewFile{Path: filepath.Join(dir, name), Text: data})
}

// cleanIndex removes the files that are of no segment as it is now, and with them what they have of parts that were
// changed or deleted. It returns the full segments, and those without a file.
func (f *file) cleanIndex(ctx context.Context) (full, missing []segment, err error) {
	dir, err := f.indexDir()
	if err != nil {
		return nil, nil, err
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	} else if err != nil {
		return nil, nil, err
	}
	if err := f.read(ctx, func(conn *sqlite.Conn) (err error) {
		full, err = segments(conn)
		return err
	}); err != nil {
		return nil, nil, err
	}
	current := make(map[string]bool, len(full))
	for _, s := range full {
		current[s.fileName()] = true
	}
	there := make(map[string]bool, len(entries))
	for _, entry := range entries {
		name := entry.Name()
		there[name] = true
		info, infoErr := entry.Info()
		if current[name] || strings.HasPrefix(name, session.TemporaryFile) && infoErr == nil &&
			time.Since(info.ModTime()) < time.Hour { // an older one was left behind
			continue
		}
		if removeErr := os.Remove(filepath.Join(dir, name)); removeErr != nil && !errors.Is(removeErr, fs.ErrNotExist) {
			err = removeErr
		}
	}
	for _, s := range full {
		if !there[s.fileName()] {
			missing = append(missing, s)
		}
	}
	return full, missing, err
}

// Delete implements [store.Store]. The text of a session is also in the write-ahead log and in the search index.
func (s *Store) Delete(ctx context.Context, id string) error {
	if err := s.Writer.Delete(ctx, id); err != nil {
		return err
	}
	if conn, err := sqlite.OpenConn(s.path, sqlite.OpenReadWrite); err == nil { // if a query needs the log, it stays
		_ = errors.Join(execute(conn, "PRAGMA wal_checkpoint(TRUNCATE)"), conn.Close())
	}
	if _, _, err := s.cleanIndex(ctx); err != nil {
		return classifyFile(fmt.Errorf("session %s is deleted, but its words are still in the search index %s: %w; "+
			"delete the directory", id, s.path+indexSuffix, err))
	}
	return nil
}

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

// has reports whether a part is in the set; nil has all of them.
func (s *partSet) has(part int64) bool { return s == nil || s[part/64]&(1<<(part%64)) != 0 }

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

// find returns the parts of a segment that may have the texts of the query.
func (q trigramQuery) find(index io.ReaderAt) (*partSet, error) {
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
	return &found, nil
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
