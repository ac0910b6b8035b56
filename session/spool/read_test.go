package spool

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
)

// offsets are where the records of a sound file begin, the header first, and its
// end.
func offsets(t testing.TB, b []byte) []int {
	t.Helper()
	all := []int{0}
	for at := 0; at < len(b); {
		f, ok := parse(b[at:])
		if !ok {
			t.Fatalf("no record at byte %d", at)
		}
		at += f.size()
		all = append(all, at)
	}
	return all
}

// TestFormat pins the bytes that FORMAT.md describes.
func TestFormat(t *testing.T) {
	got := appendFrame(nil, frame{kind: kindHeader, id: fileID{1, 2, 3, 4, 5, 6, 7, 8}, body: headerBody})
	got = appendFrame(got, frame{kind: kindTraces, id: fileID{1, 2, 3, 4, 5, 6, 7, 8}, seq: 1, items: 2, body: []byte{0x0a, 0x00}})
	const want = "0000004c" + "0a321a30" + "68747470733a2f2f6769746875622e636f6d2f6167656e7474726163652f6167656e7474726163652f73706f6f6c2f31" +
		"fa0315" + "00" + "0102030405060708" + "00000000" + "00000000" + "CHECKSUM" +
		"0000001a" + "0a00" + "fa0315" + "01" + "0102030405060708" + "00000001" + "00000002" + "CHECKSUM"
	parts := strings.Split(want, "CHECKSUM")
	have := hex.EncodeToString(got)
	have = have[:len(parts[0])] + "CHECKSUM" + have[len(parts[0])+8:]
	have = have[:len(have)-8] + "CHECKSUM"
	if have != want {
		t.Errorf("bytes\n%s\nwant\n%s", have, want)
	}
	if !Sniff(got) || Sniff(got[:40]) || Sniff(bytes.Repeat([]byte{0}, 200)) {
		t.Error("Sniff does not know a spool file from others")
	}
}

// TestOTLP: a reader of the collector's files reads a spool file.
func TestOTLP(t *testing.T) {
	b := fileBytes(t, "a", "b", "c")
	if !otlpfile.Sniff(b) {
		t.Error("it does not look like OTLP")
	}
	var names []string
	for body, err := range otlpfile.Read(bytes.NewReader(b), otlpfile.Options{}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, namesOf(body.Traces, body.Logs)...)
	}
	if d := cmp.Diff([]string{"a", "b", "c"}, names); d != "" {
		t.Errorf("records (-want +got):\n%s", d)
	}
}

// TestTorn cuts a file at every byte, and fills what was cut off with zeros.
func TestTorn(t *testing.T) {
	names := []string{"a", "b", "c"}
	b := fileBytes(t, names...)
	starts := offsets(t, b)
	for n := range b {
		whole := 0 // records, the header among them
		for whole+1 < len(starts) && starts[whole+1] <= n {
			whole++
		}
		for _, zeros := range []int{0, 1, 4, len(b) - n, 1 << 17} {
			if zeros > 0 && bytes.Equal(b[n:min(n+zeros, len(b))], make([]byte, min(zeros, len(b)-n))) {
				continue // it is as it was
			}
			got, damages := read(bytes.NewReader(append(bytes.Clone(b[:n]), make([]byte, zeros)...)))
			if want := names[:max(0, whole-1)]; !slices.Equal(got, want) {
				t.Fatalf("cut at byte %d, %d zeros: %q, want %q", n, zeros, got, want)
			}
			if n == starts[whole] && zeros == 0 {
				if len(damages) != 0 {
					t.Fatalf("cut between records at byte %d: %v", n, damages)
				}
				continue
			}
			var e *DamagedError
			if len(damages) != 1 || !errors.As(damages[0], &e) || e.Offset != int64(starts[whole]) || e.Length != int64(n+zeros-starts[whole]) {
				t.Fatalf("cut at byte %d, %d zeros: %v", n, zeros, damages)
			}
			// Without its content, a record is as one that was written whole and changed.
			if complete := n+zeros >= starts[whole+1] && n >= starts[whole]+lengthSize+1; e.Tail == complete {
				t.Fatalf("cut at byte %d, %d zeros: tail is %v", n, zeros, e.Tail)
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
			want := slices.Clone(names)
			if hit > 0 {
				want = slices.Delete(want, hit-1, hit)
			}
			got, damages := read(bytes.NewReader(changed))
			if !slices.Equal(got, want) {
				t.Fatalf("bit %d of byte %d: %q, want %q; %v", bit, i, got, want, damages)
			}
			var e *DamagedError
			if len(damages) != 1 || !errors.As(damages[0], &e) || e.Offset != int64(starts[hit]) || e.Length != int64(starts[hit+1]-starts[hit]) {
				t.Fatalf("bit %d of byte %d: %v", bit, i, damages)
			}
			if last := hit == len(names); e.Missing != map[bool]int{true: 1}[hit > 0 && !last] || e.Tail {
				t.Fatalf("bit %d of byte %d in record %d: %+v", bit, i, hit, e)
			}
		}
	}
}

// TestNested: the telemetry of an agent that reads spool files is no spool file,
// whatever becomes of the record that it is in.
func TestNested(t *testing.T) {
	inner := fileBytes(t, "inner 1", "inner 2")
	id := newID()
	body := append([]byte{0x0a, 0x80, 0x08}, inner...)
	b := appendFrame(nil, frame{kind: kindHeader, id: id, body: headerBody})
	at := len(b)
	b = appendFrame(b, frame{kind: kindTraces, id: id, seq: 1, items: 1, body: body})
	outer := fileBytes(t, "outer")
	f, _ := parse(outer[offsets(t, outer)[1]:])
	b = appendFrame(b, frame{kind: kindTraces, id: id, seq: 2, items: 1, body: f.body})
	b[at+lengthSize+1] ^= 1
	got, damages := read(bytes.NewReader(b))
	if d := cmp.Diff([]string{"outer"}, got); d != "" || len(damages) != 1 {
		t.Errorf("records (-want +got):\n%s%v", d, damages)
	}
}

// TestRepeated: a record that is in a file twice, as when blocks are mixed up, is
// one; one that is gone without a trace is missed.
func TestRepeated(t *testing.T) {
	b := fileBytes(t, "a", "b", "c")
	s := offsets(t, b)
	twice := slices.Concat(b[:s[2]], b[s[1]:])
	got, damages := read(bytes.NewReader(twice))
	if d := cmp.Diff([]string{"a", "b", "c"}, got); d != "" || len(damages) != 1 {
		t.Errorf("a twice (-want +got):\n%s%v", d, damages)
	}
	got, damages = read(bytes.NewReader(slices.Concat(b[:s[1]], b[s[2]:])))
	var e *DamagedError
	if d := cmp.Diff([]string{"b", "c"}, got); d != "" || len(damages) != 1 || !errors.As(damages[0], &e) || e.Missing != 1 {
		t.Errorf("without a (-want +got):\n%s%v", d, damages)
	}
}

func TestReadErrors(t *testing.T) {
	b := fileBytes(t, "a", "b", "c")
	cut := errors.New("input/output error")
	got, damages := read(io.MultiReader(bytes.NewReader(b[:len(b)-3]), iotest.ErrReader(cut)))
	if !slices.Equal(got, []string{"a", "b"}) || len(damages) != 1 || !errors.Is(damages[0], cut) {
		t.Errorf("with an error of the file: %q, %v", got, damages)
	}
	got, damages = read(iotest.OneByteReader(bytes.NewReader(b)))
	if !slices.Equal(got, []string{"a", "b", "c"}) || len(damages) != 0 {
		t.Errorf("byte by byte: %q, %v", got, damages)
	}
	newer := bytes.Replace(headerBody, []byte("spool/1"), []byte("spool/2"), 1)
	got, damages = read(bytes.NewReader(appendFrame(nil, frame{kind: kindHeader, body: newer})))
	if len(got) != 0 || len(damages) != 1 || !errors.Is(damages[0], ErrNewer) {
		t.Errorf("of a later version: %q, %v", got, damages)
	}
	if got, damages = read(bytes.NewReader(nil)); len(got)+len(damages) != 0 {
		t.Errorf("of nothing: %q, %v", got, damages)
	}
	bad := appendFrame(slices.Clone(b[:offsets(t, b)[1]]), frame{kind: kindTraces, id: fileID(b[offsets(t, b)[1]-20:]), seq: 1, body: []byte{0x0a, 0x7f}})
	if got, damages = read(bytes.NewReader(bad)); len(got) != 0 || len(damages) != 1 || !strings.Contains(damages[0].Error(), "decode record") {
		t.Errorf("of a body that is none: %q, %v", got, damages)
	}
	for range Read(bytes.NewReader(b)) {
		break // nothing may be yielded after
	}
}

// FuzzRead: whatever the bytes are, reading ends, and its pieces do not overlap.
func FuzzRead(f *testing.F) {
	b := fileBytes(f, "a", "b")
	f.Add(b)
	f.Add(b[:len(b)-7])
	f.Add(append(make([]byte, 300), b...))
	f.Add(bytes.Repeat([]byte{0, 0, 0, 0x19, 0x0a}, 60))
	f.Fuzz(func(t *testing.T, b []byte) {
		var end int64
		for fr, err := range frames(bytes.NewReader(b)) {
			from, size := fr.offset, int64(fr.size())
			if err != nil {
				var e *DamagedError
				if !errors.As(err, &e) {
					if !errors.Is(err, ErrNewer) {
						t.Fatal(err)
					}
					return
				}
				from, size = e.Offset, e.Length
			}
			if from < end || from+size > int64(len(b)) {
				t.Fatalf("piece of %d bytes at %d, after %d of %d", size, from, end, len(b))
			}
			end = from + size
			if err == nil {
				if again := appendFrame(nil, fr.frame); !bytes.Equal(again, b[from:end]) {
					t.Fatalf("record at byte %d is not what is there", from)
				}
				_, _ = fr.decode()
			}
		}
	})
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
		if want := names[:max(0, whole-1)]; len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Fatalf("records %q; %q are whole before byte %d", got, want, from)
		}
		if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Fatalf("records %q are not in order, once each", got)
		}
		for _, name := range got {
			if !slices.Contains(names, name) {
				t.Fatalf("nobody wrote %q", name)
			}
		}
		if how%5 == 0 {
			for i, name := range names {
				if starts[i+1] >= to && !slices.Contains(got, name) {
					t.Fatalf("records %q; %q is whole behind byte %d", got, name, to)
				}
			}
		}
	})
}
