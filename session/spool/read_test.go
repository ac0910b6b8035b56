package spool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
)

// markSize is how much of a request marks where it begins: its length, and the magic number of Zstandard.
const markSize = 8

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

// TestTorn cuts a file at every byte, and fills what was cut off with zeros.
func TestTorn(t *testing.T) {
	names := []string{"a", "b", "c"}
	b := fileBytes(t, names...)
	starts := offsets(t, b)
	for n := range b {
		whole := 0
		for whole+1 < len(starts) && starts[whole+1] <= n {
			whole++
		}
		for _, zeros := range []int{0, 1, 4, len(b) - n, 1 << 17} {
			if zeros > 0 && bytes.Equal(b[n:min(n+zeros, len(b))], make([]byte, min(zeros, len(b)-n))) {
				continue // it is as it was
			}
			got, damages := read(bytes.NewReader(append(bytes.Clone(b[:n]), make([]byte, zeros)...)))
			if want := names[:whole]; !slices.Equal(got, want) {
				t.Fatalf("cut at byte %d, %d zeros: %q, want %q", n, zeros, got, want)
			}
			if n == starts[whole] && zeros == 0 {
				if len(damages) != 0 {
					t.Fatalf("cut between records at byte %d: %v", n, damages)
				}
				continue
			}
			var e *otlpfile.DamagedError
			if len(damages) != 1 || !errors.As(damages[0], &e) || e.Offset != int64(starts[whole]) {
				t.Fatalf("cut at byte %d, %d zeros: %v", n, zeros, damages)
			}
			// Without its content, a record is as one that was written whole and changed.
			if complete := n+zeros >= starts[whole+1] &&
				n >= starts[whole]+markSize; errors.Is(e, otlpfile.ErrCut) == complete {
				t.Fatalf("cut at byte %d, %d zeros: %v", n, zeros, e)
			}
		}
	}
}

// TestFlips changes every byte of a file: the record that it is in is missed and
// reported, every other is read.
func TestFlips(t *testing.T) {
	names := []string{"a", "b", "c"}
	b := fileBytes(t, names...)
	starts := offsets(t, b)
	for i := range b {
		for bit := range 8 {
			changed := bytes.Clone(b)
			changed[i] ^= 1 << bit
			hit := 0
			for starts[hit+1] <= i {
				hit++
			}
			want := slices.Delete(slices.Clone(names), hit, hit+1)
			if length := binary.BigEndian.Uint32(changed[starts[2]:]); hit == 2 &&
				length > uint32(len(b)-starts[2]-4) &&
				length < otlpfile.DefaultMaxBody {
				want = names // the last one is all that follows its length
			}
			got, damages := read(bytes.NewReader(changed))
			if i == starts[hit]+markSize && len(damages) == 0 && slices.Equal(got, names) {
				continue // the bit is unused (RFC 8878, 3.1.1.1.1), or another layout with the same content
			}
			if !slices.Equal(got, want) {
				t.Fatalf("bit %d of byte %d: %q, want %q; %v", bit, i, got, want, damages)
			}
			var e *otlpfile.DamagedError
			if len(damages) != 1 || !errors.As(damages[0], &e) || e.Offset != int64(starts[hit]) ||
				errors.Is(e, otlpfile.ErrCut) {
				t.Fatalf("bit %d of byte %d: %v", bit, i, damages)
			}
		}
	}
}

// TestNested: the telemetry of an agent that reads spool files is no spool file,
// whatever becomes of the record that it is in.
func TestNested(t *testing.T) {
	inner := fileBytes(t, "inner 1", "inner 2")
	b := otlpfile.AppendFrame(nil, append([]byte{0x0a, 0x80, 0x08}, inner...))
	b[markSize+10] ^= 1
	got, damages := read(bytes.NewReader(append(b, fileBytes(t, "outer")...)))
	if d := cmp.Diff([]string{"outer"}, got); d != "" || len(damages) != 1 {
		t.Errorf("records (-want +got):\n%s%v", d, damages)
	}
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
		if how%5 == 0 {
			for i, name := range names {
				if starts[i] >= to && !slices.Contains(got, name) {
					t.Fatalf("records %q; %q is whole behind byte %d", got, name, to)
				}
			}
		}
	})
}
