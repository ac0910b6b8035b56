// Package codectest is the conformance suite for the formats of sessions.
//
// A format passes when [Run] passes with it, of which [Fuzz] is the open end:
//
//	var format = codectest.Codec{Encode: x.Encode, Decode: x.Decode, Losses: x.Losses}
//
//	func TestConformance(t *testing.T) { codectest.Run(t, format) }
//	func FuzzDecode(f *testing.F)      { codectest.Fuzz(f, format) }
//
// What a format promises differs, and [Codec] says it; what it does not promise is
// not asked of it, and what it promises is asked in full. The sessions are those of
// [Corpus], made by hand, and those that [Generate] makes, small ones first.
package codectest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec"
)

// Codec is a format, and what it promises.
type Codec struct {
	// Name is for subtests.
	Name string

	// Encode writes a session to a stream and Decode reads them from one. Either may
	// be nil: a format may be an export only, an import only, or no stream.
	Encode func(w io.Writer, s *codec.Session) error
	Decode func(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error]

	// EncodeFile writes sessions into dir, an empty directory, and more than one only if
	// Many; DecodeFile reads dir. They are used where Encode and Decode are nil.
	EncodeFile func(dir string, all []*codec.Session) error
	DecodeFile func(dir string, report func(codec.Problem)) iter.Seq2[*codec.Session, error]

	// Losses are set for a format of another program, in which rows get other ids: what comes back is
	// compared by [codec.Lost], and each loss that is listed must occur. From any other format the
	// very rows come back, in the same bytes, of a session of which Explain lists nothing.
	Losses  codec.Losses
	Explain func(s *codec.Session) []codec.Loss
	// Ignore takes away from a session what the format is not asked for.
	Ignore func(s *codec.Session)
	// Rows reports that rows are read as they are: they need not make a valid session.
	Rows bool
	// Many reports that what is written after another session is read as a second one.
	Many bool
	// Whole reports that a stream is one value: damage to it may cost all of it. From any other
	// stream, the sessions whose lines are not damaged are read whole.
	Whole bool

	// Native are files, or for DecodeFile directories, of the programs that the format
	// is of, as patterns for [filepath.Glob].
	Native []string
	// Slow reports that decoding takes milliseconds: fewer sessions are tried.
	Slow bool
	// Fits reports of a session that it can be asked of the format at all. Nil reports that
	// every session can.
	Fits func(s *codec.Session) bool
	// Check, if there is one, judges what is written of the sessions of the suite by
	// rules of the format's own, such as a schema.
	Check func(data []byte) error
}

// Run examines a format.
func Run(t *testing.T, c Codec) {
	x := newExamination(t, c)
	for _, k := range checks {
		if !k.applies(&c) {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			if err := try(func() error { return k.run(x) }); err != nil {
				t.Fatalf("%v\nthe rule: %s", err, k.rule)
			}
		})
	}
}

// each is a check of every session.
func each(run func(*examination, *codec.Session) error) func(*examination) error {
	return some(func(*examination, int) bool { return true }, run)
}

// few is a check of a few sessions, for reading and writing as such.
func few(run func(*examination, *codec.Session) error) func(*examination) error {
	return some(func(x *examination, i int) bool { return i%3 == 1 && (!x.Slow || i%8 == 1) }, run)
}

// some is a check of the sessions that are chosen by their places.
func some(chosen func(*examination, int) bool, run func(*examination, *codec.Session) error) func(*examination) error {
	return func(x *examination) error {
		for i, s := range x.sessions {
			if !chosen(x, i) {
				continue
			}
			if err := try(func() error { return run(x, s.Session) }); err != nil {
				return fmt.Errorf("session %s: %w\n\n%s", s.Name, err, Text(s.Session))
			}
		}
		return nil
	}
}

// Sample is a session and what it is an example of.
type Sample struct {
	Name    string
	Session *codec.Session
}

// Generated are n sessions of Generate, small ones first. The same call gives the same
// sessions.
func Generated(n int) []Sample {
	all := make([]Sample, n)
	for i := range all {
		all[i] = Sample{fmt.Sprintf("generated %d", i),
			Generate(rand.New(rand.NewPCG(uint64(i), 1)), i%12*(1+i)/(n+1)+min(i, 2))}
	}
	return all
}

// examination is one run of the suite.
type examination struct {
	Codec
	root     string // an empty directory of the suite's
	dirs     int
	sessions []Sample
	natives  []string
	// troubled reports that the input has problems of its own, which are reported again.
	troubled bool
	firsts   map[*codec.Session]firstRead
}

func newExamination(tb testing.TB, c Codec) *examination {
	tb.Helper()
	x := &examination{Codec: c, root: tb.TempDir(), firsts: make(map[*codec.Session]firstRead)}
	rounds := 40
	if x.Slow {
		rounds = 10
	}
	rounds = testscale.Rounds((rounds+3)/4, rounds)
	if x.Fits == nil {
		x.Fits = func(*codec.Session) bool { return true }
	}
	if x.Ignore == nil {
		x.Ignore = func(*codec.Session) {}
	}
	if c.Losses != nil {
		x.Explain = c.Losses.Of
	} else if x.Explain == nil {
		x.Explain = func(*codec.Session) []codec.Loss { return nil }
	}
	x.sessions = slices.DeleteFunc(slices.Concat(Corpus(), Generated(rounds)),
		func(s Sample) bool { return !x.Fits(s.Session) })
	for _, pattern := range c.Native {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			tb.Fatalf("no native file %s: %v", pattern, err)
		}
		x.natives = append(x.natives, files...)
	}
	return x
}

func (c *Codec) writes() bool { return c.Encode != nil || c.EncodeFile != nil }
func (c *Codec) reads() bool  { return c.Decode != nil || c.DecodeFile != nil }
func (c *Codec) both() bool   { return c.writes() && c.reads() }
func (c *Codec) stream() bool { return c.Encode != nil && c.Decode != nil }

// written is what a format made of sessions: a stream, or a directory.
type written struct {
	data []byte
	dir  string
}

// drop removes what was written, which tests of many sessions need.
func (x *examination) drop(w written) {
	if strings.HasPrefix(w.dir, x.root) {
		_ = os.RemoveAll(w.dir) // the test's own directory is removed in the end anyway
	}
}

// write encodes sessions one after the other.
func (x *examination) write(all ...*codec.Session) (w written) {
	if x.Encode == nil {
		x.dirs++
		w.dir = filepath.Join(x.root, fmt.Sprint(x.dirs))
		end("", os.Mkdir(w.dir, 0o700))
		end("encode: ", x.EncodeFile(w.dir, all))
		return w
	}
	var b bytes.Buffer
	for _, s := range all {
		end("encode: ", x.Encode(&b, s))
	}
	w.data = b.Bytes()
	return w
}

// reading is what came of decoding.
type reading struct {
	sessions []*codec.Session
	problems []codec.Problem
	err      error
}

// silent reports that nothing was reported.
func (r *reading) silent() bool { return len(r.problems) == 0 && r.err == nil }

func (r *reading) text() string {
	var b strings.Builder
	for _, s := range r.sessions {
		b.WriteString(Text(s))
	}
	for _, p := range r.problems {
		fmt.Fprintf(&b, "problem %v\n", p)
	}
	if r.err != nil {
		fmt.Fprintf(&b, "error %v\n", r.err)
	}
	return b.String()
}

// decode is the sequence of what is in w.
func (x *examination) decode(w written, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	if x.Decode == nil {
		return x.DecodeFile(w.dir, report)
	}
	return x.Decode(bytes.NewReader(w.data), report)
}

// read decodes w. A decoder that breaks its contract ends the check.
func (x *examination) read(w written) reading {
	return collect(func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] { return x.decode(w, report) })
}

func collect(decode func(report func(codec.Problem)) iter.Seq2[*codec.Session, error]) (r reading) {
	for s, err := range decode(func(p codec.Problem) { r.problems = append(r.problems, p) }) {
		switch {
		case r.err != nil:
			end("something was yielded after the error ", r.err)
		case err != nil && s != nil:
			end("a session was yielded with the error ", err)
		case err == nil && (s == nil || s.Transcript == nil):
			end("", errors.New("no session was yielded, and no error"))
		}
		if r.err = err; err == nil {
			r.sessions = append(r.sessions, s)
		}
	}
	for _, p := range r.problems {
		if p.Reason == "" || p.Line < 0 {
			end("", fmt.Errorf("problem %+v does not state what is wrong, or where", p))
		}
	}
	return r
}

// one reads w, in which there must be one session and no problem.
func (x *examination) one(w written) *codec.Session {
	r := x.read(w)
	err := r.err
	switch {
	case err != nil:
	case len(r.problems) > 0 && !x.troubled:
		err = fmt.Errorf("problem %v", r.problems[0])
	case len(r.sessions) != 1:
		err = fmt.Errorf("%d sessions, want 1", len(r.sessions))
	}
	end("decode what was encoded: ", err)
	return r.sessions[0]
}

// reread writes a session and reads it.
func (x *examination) reread(s *codec.Session) *codec.Session {
	w := x.write(s)
	defer x.drop(w)
	return x.one(w)
}

// firstRead is what was written of a session and read of that, once for all checks.
type firstRead struct {
	w   written
	got *codec.Session
	err error
}

func (x *examination) firstRead(s *codec.Session) firstRead {
	known, ok := x.firsts[s]
	if !ok {
		known.err = try(func() error {
			known.w = x.write(s)
			known.got = x.one(known.w)
			return nil
		})
		x.firsts[s] = known
	}
	return known
}

// first is firstRead of what must be read.
func (x *examination) first(s *codec.Session) (written, *codec.Session) {
	r := x.firstRead(s)
	end("", r.err)
	return r.w, r.got
}

// broken is the panic that ends a check with an error.
type broken struct{ error }

// end ends a check if there is an error.
func end(what string, err error) {
	if err != nil {
		panic(broken{fmt.Errorf("%s%w", what, err)})
	}
}

// within runs a check and adds to its error what was checked.
func within(what string, run func() error) { end(what+": ", try(run)) }

func must[T any](v T, err error) T {
	end("", err)
	return v
}

// try runs a check, and makes an error of a panic.
func try(run func() error) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case broken:
			err = v.error
		default:
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return run()
}
