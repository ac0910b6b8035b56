package spool

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// offsets are where the requests of an undamaged file begin, and its end.
func offsets(t testing.TB, b []byte) []int {
	t.Helper()
	all := []int{0}
	for at := 0; at < len(b); {
		at += 4 + int(binary.BigEndian.Uint32(b[at:]))
		all = append(all, at)
	}
	return all
}

// FuzzDamage damages a file: what is whole before the first change is read, in
// order, and nothing is read that was not written.
func FuzzDamage(f *testing.F) {
	names := numbered("r", 8)
	b := fileBytes(f, names...)
	starts := offsets(f, b)
	f.Add(uint64(1), uint16(100), uint16(1), uint8(0))
	f.Add(uint64(2), uint16(500), uint16(64), uint8(1))
	f.Add(uint64(3), uint16(900), uint16(2000), uint8(2))
	f.Add(uint64(4), uint16(0), uint16(9), uint8(3))
	f.Add(uint64(5), uint16(300), uint16(90), uint8(4))
	f.Fuzz(func(t *testing.T, seed uint64, at, n uint16, how uint8) {
		r := rand.New(rand.NewPCG(seed, 1))
		from := int(at) % len(b)
		to := min(from+int(n), len(b))
		noise := make([]byte, n)
		for i := range noise {
			noise[i] = []byte{0, 0x0a, 0xfa, 3, byte(r.Uint32())}[r.IntN(5)]
		}
		var damaged []byte
		switch how % 5 {
		case 0: // overwritten
			damaged = slices.Concat(b[:from], noise[:to-from], b[to:])
		case 1: // cut out
			damaged = slices.Concat(b[:from], b[to:])
		case 2: // put in
			damaged = slices.Concat(b[:from], noise, b[from:])
		case 3: // a part of the file put in, as where blocks are mixed up
			other := r.IntN(len(b))
			damaged = slices.Concat(b[:from], b[other:min(other+int(n), len(b))], b[from:])
		case 4: // cut off, and zeros
			damaged = append(bytes.Clone(b[:from]), make([]byte, n)...)
		}
		got, _ := read(bytes.NewReader(damaged))
		whole := 0
		for whole+1 < len(starts) && starts[whole+1] <= from {
			whole++
		}
		if want := names[:whole]; len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Fatalf("records %q; %q are whole before byte %d", got, want, from)
		}
		if how%5 != 3 && (!slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got)) {
			t.Fatalf("records %q are not in order, once each", got)
		}
		for _, name := range got {
			if !slices.Contains(names, name) {
				t.Fatalf("nobody wrote %q", name)
			}
		}
	})
}
