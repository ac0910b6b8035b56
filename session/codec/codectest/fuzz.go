package codectest

import (
	"bytes"
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
	c.Rounds = 12
	x := newExamination(f, c)
	if c.Encode != nil {
		for i, s := range x.sessions {
			if i%3 != 0 {
				continue // Run has tried them all
			}
			if c.Fits != nil && !c.Fits(s.Session) {
				continue
			}
			w, err := x.write(s.Session)
			if err != nil {
				f.Fatalf("session %s: %v", s.Name, err)
			}
			f.Add(w.data)
		}
	}
	for _, path := range x.natives {
		w, err := x.load(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(w.data)
	}
	for _, text := range more {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := x.tryWhole(func(x *examination) error { return x.fed(data) }); err != nil {
			t.Fatal(err)
		}
	})
}

// fed reads what may be anything, and writes what comes of it.
func (x *examination) fed(data []byte) error {
	r, err := x.steady(written{data: data})
	if err != nil {
		return err
	}
	x.troubled = len(r.problems) > 0
	for _, s := range r.sessions {
		if x.Encode == nil || x.Fits != nil && !x.Fits(s) {
			continue
		}
		if x.Completes {
			w, err := x.write(s)
			if err != nil {
				return err
			}
			if s, err = x.one(w); err != nil {
				return err
			}
		}
		if x.Unvalidated && len(session.Check(s.Transcript)) > 0 {
			// It is only to be written as something that is written the same.
			if err := x.rewritten(s); err != nil {
				return err
			}
			continue
		}
		for _, run := range []func(*examination, *codec.Session) error{(*examination).roundTrip, (*examination).fixedPoint} {
			if err := run(x, s); err != nil {
				return err
			}
		}
		delete(x.firsts, s)
		if x.Explain != nil {
			if err := x.explain(s); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *examination) rewritten(s *codec.Session) error {
	first, err := x.write(s)
	if err != nil {
		return err
	}
	r, err := x.read(first)
	if err != nil || r.err != nil || len(r.sessions) != 1 {
		return errors.Join(errors.New("what was written is not read"), err, r.err)
	}
	second, err := x.write(r.sessions[0])
	if err != nil {
		return err
	}
	if !bytes.Equal(first.data, second.data) {
		return sameOutput(first, second)
	}
	return nil
}
