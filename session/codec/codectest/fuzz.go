package codectest

import (
	"bytes"
	"cmp"
	"errors"
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
)

// Fuzz feeds a format's decoder with anything. What is read must be the same twice,
// sound unless the format takes rows as they are, and must keep every promise of a
// sound session when it is written. The seeds are what the format makes of the
// sessions of the suite, its native files, and more.
func Fuzz(f *testing.F, c Codec, more ...string) {
	if c.Decode == nil {
		f.Fatal("a format without Decode has nothing to feed")
	}
	x := newExamination(f, c)
	if c.Encode != nil {
		for i, s := range x.sessions {
			if i%3 != 0 {
				continue // Run has tried them all
			}
			if err := try(func() error { f.Add(x.write(s.Session).data); return nil }); err != nil {
				f.Fatalf("session %s: %v", s.Name, err)
			}
		}
	}
	for _, path := range x.natives {
		f.Add(x.load(path).data)
	}
	for _, text := range more {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := try(func() error { return x.fed(data) }); err != nil {
			t.Fatal(err)
		}
	})
}

// fed reads what may be anything, and writes what comes of it.
func (x *examination) fed(data []byte) error {
	r := x.steady(written{data: data})
	x.troubled = len(r.problems) > 0
	for _, s := range r.sessions {
		if x.Encode == nil || !x.Fits(s) {
			continue
		}
		if x.Rows && len(session.Check(s.Transcript)) > 0 {
			// It is only to be written as something that is written the same.
			end("", x.rewritten(s))
			continue
		}
		end("", cmp.Or(x.roundTrip(s), x.fixedPoint(s)))
		delete(x.firsts, s)
		end("", x.explain(s))
	}
	return nil
}

func (x *examination) rewritten(s *codec.Session) error {
	first := x.write(s)
	r := x.read(first)
	if r.err != nil || len(r.sessions) != 1 {
		return errors.Join(errors.New("what was written is not read"), r.err)
	}
	second := x.write(r.sessions[0])
	if !bytes.Equal(first.data, second.data) {
		return sameOutput(first, second)
	}
	return nil
}
