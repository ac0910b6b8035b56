// Package codectest is the conformance suite for the formats of sessions.
//
// A format passes when [Run] passes with it, of which [Fuzz] is the open end:
//
//	var format = codectest.Codec{Name: "x", Encode: x.Encode, Decode: x.Decode, Explain: x.Explain, Lossless: true}
//
//	func TestConformance(t *testing.T) { codectest.Run(t, format) }
//	func FuzzDecode(f *testing.F)      { codectest.Fuzz(f, format) }
//
// What a format promises differs, and [Codec] says it; what it does not promise is
// not asked of it, and what it promises is asked in full. The sessions are those of
// [Corpus], made by hand, and those that [Generate] makes; where one of them fails,
// the smallest session that fails in the same way is printed.
package codectest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec"
)

// Codec is a format, and what it promises.
type Codec struct {
	// Name is the format's.
	Name string

	// Encode writes a session to a stream and Decode reads them from one. Either may
	// be nil: a format may be an export only, an import only, or no stream.
	Encode func(w io.Writer, s *codec.Session) error
	Decode func(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error]

	// EncodeFile writes sessions into dir, an empty directory, and more than one only if
	// Many; DecodeFile reads dir. They are used where Encode and Decode are nil.
	EncodeFile func(dir string, all []*codec.Session) error
	DecodeFile func(dir string, report func(codec.Problem)) iter.Seq2[*codec.Session, error]

	// Explain lists what a session would lose. Nil reports that nothing ever is.
	Explain func(s *codec.Session) []codec.Loss
	// Losses are those that Explain may list and that change rows. What it lists with
	// a place where it is kept, and that is not among them, comes back as it was.
	Losses []Loss
	// Listed is the list of losses from which Explain chooses. Each of them must occur.
	Listed codec.Losses
	// Foreign reports that the format is another program's, in which rows get other ids: what
	// comes back is compared by [codec.Aspects]. Keeps, if there is one, is what of a session
	// the format keeps whatever Explain lists.
	Foreign bool
	Keeps   func(s *codec.Session) []string
	// Basic asks no more of the format than what every format promises.
	Basic bool
	// ReadElsewhere reports that another package reads what the format writes.
	ReadElsewhere bool
	// Complete reports that all comes back that a store reports of a session, so that it can be
	// asked again as in the store that it came from: spans, traces, state and claims too.
	// Formats that have other words for these are not asked for them.
	Complete bool
	// Lossless reports that a session which Explain lists no changed rows of comes back
	// in the very bytes that it was written in.
	Lossless bool
	// Many reports that what is written after another session is read as a second one.
	Many bool
	// Unvalidated reports that rows are read as they are: they need not make a valid session.
	Unvalidated bool
	// Completes reports that Encode writes what a native file may lack, so that a session
	// which was read from one has more when it is read again, once.
	Completes bool
	// Damage states what comes of a stream with a damaged line.
	Damage Tolerance

	// Native are files, or for DecodeFile directories, of the programs that the format
	// is of, as patterns for [filepath.Glob].
	Native []string
	// Sessions are examined besides those of the suite.
	Sessions []Sample
	// Rounds is how many sessions are generated; 0 means 40.
	Rounds int
	// Slow reports that decoding takes milliseconds: some rules are asked of fewer sessions.
	Slow bool
	// Fits reports of a session that it can be asked of the format at all. Nil reports that
	// every session can.
	Fits func(s *codec.Session) bool
	// Check, if there is one, judges what is written of the sessions of the suite by
	// rules of the format's own, such as a schema.
	Check func(data []byte) error
}

// Loss is a line of Explain that reports that rows change.
type Loss struct {
	// What is that of the [codec.Loss], or its beginning where the rest names a row.
	What string
	// Blank takes away from a session what the loss is of: what is left must come
	// back, and what is taken away must not, or else nothing was lost.
	Blank func(s *codec.Session)
}

// Tolerance is what a decoder makes of a stream in which a line is damaged.
type Tolerance int

const (
	// Strict ends at the damage with an error that names the line.
	Strict Tolerance = iota
	// Tolerant reads on, and reports the line. Other sessions are read whole.
	Tolerant
	// Whole is a format whose stream is one value: damage to it may cost all of it.
	Whole
)

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

// some is a check of the sessions that are chosen by their places. Of one that fails it reports the smallest session
// that fails too.
func some(chosen func(*examination, int) bool, run func(*examination, *codec.Session) error) func(*examination) error {
	return func(x *examination) error {
		for i, s := range x.sessions {
			if !chosen(x, i) {
				continue
			}
			err := try(func() error { return run(x, s.Session) })
			if err == nil {
				continue
			}
			least := Shrink(s.Session, func(smaller *codec.Session) bool {
				return x.Fits(smaller) && try(func() error { return run(x, smaller) }) != nil
			})
			if again := try(func() error { return run(x, least) }); again != nil {
				err = again
			}
			return fmt.Errorf("session %s: %w\n\nthe smallest session found that fails:\n%s", s.Name, err, Text(least))
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
	x.Rounds = cmp.Or(x.Rounds, 40)
	x.Rounds = testscale.Rounds((x.Rounds+3)/4, x.Rounds)
	if x.Fits == nil {
		x.Fits = func(*codec.Session) bool { return true }
	}
	x.sessions = slices.DeleteFunc(slices.Concat(Corpus(), c.Sessions, Generated(x.Rounds)),
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

// wholly reports that all is asked of a format that both writes and reads.
func (c *Codec) wholly() bool { return c.both() && !c.Basic }

// written is what a format made of sessions: a stream, or a directory.
type written struct {
	data []byte
	dir  string
}

// dir makes an empty directory.
func (x *examination) dir() string {
	x.dirs++
	dir := filepath.Join(x.root, fmt.Sprint(x.dirs))
	end("", os.Mkdir(dir, 0o700))
	return dir
}

// drop removes what was written, which tests of many sessions need.
func (x *examination) drop(w written) {
	if w.dir != "" && strings.HasPrefix(w.dir, x.root) {
		_ = os.RemoveAll(w.dir) // the test's own directory is removed in the end anyway
	}
}

// write encodes sessions one after the other.
func (x *examination) write(all ...*codec.Session) (w written) {
	if x.Encode == nil {
		w.dir = x.dir()
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

func (r *reading) report(p codec.Problem) { r.problems = append(r.problems, p) }

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

// sequence decodes w.
func (x *examination) sequence(w written, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	if x.Decode == nil {
		return x.DecodeFile(w.dir, report)
	}
	return x.Decode(strings.NewReader(string(w.data)), report)
}

// read decodes w. A decoder that breaks its contract ends the check.
func (x *examination) read(w written) (r reading) {
	r.collect(x.sequence(w, r.report))
	return r
}

func (r *reading) collect(all iter.Seq2[*codec.Session, error]) {
	for s, err := range all {
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

// ExplainRows is the Explain of a format that holds the rows of a session and nothing
// beside them, and RowLosses are the losses that it lists.
func ExplainRows(s *codec.Session) (losses []codec.Loss) {
	losses = codec.AddLoss(losses, RowLosses[0].What, "", len(s.Decisions))
	losses = codec.AddLoss(losses, RowLosses[1].What, "", len(s.Blobs))
	return codec.AddLoss(losses, RowLosses[2].What, "", len(s.Annotations))
}

// RowLosses are the losses of [ExplainRows].
var RowLosses = []Loss{
	{"permission decisions", func(s *codec.Session) { s.Decisions = nil }},
	{"system prompts and tool catalogs", func(s *codec.Session) { s.Blobs = nil }},
	{"annotations", func(s *codec.Session) { s.Annotations = nil }},
}
