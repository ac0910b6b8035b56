package codectest

import (
	"bytes"
	_ "embed" // the answers
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing/iotest"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
)

// check is a part of the suite. run ends with a panic where a rule is broken.
type check struct {
	name    string
	applies func(*Codec) bool
	run     func(*examination)
}

var checks = []check{
	{"sessions", (*Codec).writes, func(x *examination) {
		x.each(func(int) bool { return true }, func(s *codec.Session) { x.session(s, true) })
	}},
	{"streams", (*Codec).both, func(x *examination) {
		x.each(func(i int) bool { return i%3 == 1 && (!x.Slow || i%8 == 1) }, x.streams)
	}},
	{"contrasts", (*Codec).writes, (*examination).contrasts},
	{"losses", func(c *Codec) bool { return len(c.Losses) > 0 && c.stream() }, (*examination).losses},
	{"many", func(c *Codec) bool { return c.Many && c.both() }, (*examination).many},
	{"damage", (*Codec).stream, (*examination).damage},
	{"native", func(c *Codec) bool { return len(c.Native) > 0 && c.reads() }, (*examination).native},
}

// each runs a check of the sessions that are chosen by their places.
func (x *examination) each(chosen func(i int) bool, run func(*codec.Session)) {
	for i, s := range x.sessions {
		if chosen(i) {
			within("session "+s.Name, func() { run(s.Session) })
			x.drop()
		}
	}
}

// session checks what is written of a session and read of that. claims asks that reading states nothing that the
// session does not: no success of a call that failed, no tokens where they are unknown, no end that nobody saw.
func (x *examination) session(s *codec.Session, claims bool) {
	before, first, losses := Text(s), x.write(s), x.Explain(s)
	// The same is written of the same rows, in whatever order they stand.
	within("encode", func() {
		if x.Check != nil {
			end("", x.Check(first.data))
		}
		shuffled := Clone(s)
		slices.Reverse(shuffled.Messages)
		for i := range shuffled.Messages {
			slices.Reverse(shuffled.Messages[i].Parts)
		}
		same("of rows in another order", first.text(), x.write(shuffled).text())
		same("the session was changed", before, Text(s))
	})
	// Each loss is listed once and with a count.
	within("explain", func() {
		seen := make(map[string]bool)
		for _, l := range losses {
			if l.What == "" || l.Count < 1 || seen[l.What] {
				fail("loss %+v says nothing, of nothing, or what was said before", l)
			}
			seen[l.What] = true
		}
	})
	if !x.reads() {
		return
	}
	var one *codec.Session
	// What is encoded is read without a problem and is valid. What Explain does not list comes back as it was: the very
	// rows, or in a format of another program every aspect.
	within("round trip", func() {
		one = x.one(first)
		if v := session.Check(one.Transcript); len(v) > 0 && !x.Rows {
			fail("what was read is invalid: %v", v[0])
		}
		if x.Losses == nil && len(losses) == 0 {
			same("what Explain does not list changed", x.asked(s), x.asked(one))
		}
		for _, l := range codec.Lost(s, one) {
			if x.Losses != nil && !listed(losses, l.What) {
				fail("%d %s are lost, and Explain does not list them", l.Count, l.What)
			}
		}
		if invented := codec.Invented(s, one); claims && invented != nil {
			fail("claims: what was read states what the session does not: %q", invented)
		}
	})
	// What was read is encoded to what is read as the same again, in a format of another program from the second time
	// on. Of a session that loses nothing the encoding is the same, too.
	within("fixed point", func() {
		second := x.write(one)
		if first.text() == second.text() {
			return // the same input gives the same rows
		} else if x.Losses == nil && x.Encode != nil && len(losses) == 0 {
			same("encoded, decoded and encoded", first.text(), second.text())
		}
		two := x.one(second)
		if x.Losses != nil && Diff(one, two) != "" { // such as a time that two rows share only after they were read
			one, two = two, x.reread(two)
		}
		same("read, encoded and read", x.asked(one), x.asked(two))
		same("encoded a third time", x.write(one).text(), x.write(two).text())
	})
}

// asked are the rows of the session that the format is asked for.
func (x *examination) asked(s *codec.Session) string {
	c := Clone(s)
	x.Ignore(c)
	return Text(c)
}

// listed reports whether a loss is one of those listed.
func listed(losses []codec.Loss, what string) bool {
	return slices.ContainsFunc(losses, func(l codec.Loss) bool { return l.What == what })
}

var errBroken = errors.New("the disk is gone")

// limitedWriter fails once it has taken so many bytes.
type limitedWriter int

func (l *limitedWriter) Write(b []byte) (int, error) {
	n := min(len(b), int(*l))
	if *l -= limitedWriter(n); n < len(b) {
		return n, errBroken
	}
	return n, nil
}

// streams: the same input gives the same rows and problems, also in small reads, and for a caller that stops early and
// begins again. The errors of a writer and of a reader are returned, wrapped, and that of a reader with no session.
func (x *examination) streams(s *codec.Session) {
	w := x.write(s)
	first := x.read(w)
	for range x.decode(w, nil) {
		break // and nobody listens to problems
	}
	again := x.read(w)
	same("same rows: a second time", first.text(), again.text())
	from := func(r io.Reader) reading {
		return collect(func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] { return x.Decode(r, report) })
	}
	if x.Decode != nil {
		small := from(iotest.OneByteReader(bytes.NewReader(w.data)))
		same("same rows: byte by byte", first.text(), small.text())
	}
	for _, n := range []int{0, 1, len(w.data) / 2, len(w.data) - 1} {
		if x.Encode == nil || n < 0 {
			continue
		}
		if err := x.Encode(new(limitedWriter(n)), s); !errors.Is(err, errBroken) {
			fail("writer fails: after %d bytes: error %v", n, err)
		}
		if x.Decode == nil || x.Slow && n < 2 {
			continue
		}
		if r := from(io.MultiReader(bytes.NewReader(w.data[:n]), iotest.ErrReader(errBroken))); !errors.Is(r.err, errBroken) {
			fail("reader fails: after %d bytes: error %v", n, r.err)
		}
	}
}

// contrastText has answers to a question, in the form of the corpus: two that must not be written alike. What a
// reader takes the first for when it is written as the second would be false. No loss excuses those with "always".
//
//go:embed contrast.txt
var contrastText string

// contrasts: what is withheld, denied, failed or unfinished is not written as what is known, succeeded or ended.
// Where a format has no word for the difference, Explain lists that.
func (x *examination) contrasts() {
	var nulls []int // in what is written of the answers
	for name, text := range sections(contrastText) {
		var answers []*codec.Session
		var texts []string
		contrast := read(name, text)
		for _, answer := range contrast.Messages[1:] {
			h := handmade{Session: contrast.Session, Messages: []message{contrast.Messages[0], answer}}
			s := h.rows()
			w := x.write(s)
			answers, texts = append(answers, s), append(texts, w.text())
			nulls = append(nulls, bytes.Count(w.data, []byte("null")))
		}
		lost, losses := codec.Lost(answers[0], answers[1]), x.Explain(answers[0])
		unlisted := slices.ContainsFunc(lost, func(d codec.Loss) bool {
			return d.What != "ids and times" && !listed(losses, d.What) // of the part that one has
		})
		if texts[0] == texts[1] && (strings.HasPrefix(name, "always: ") || unlisted) {
			fail("contrast %s: both are written as\n%s\nthe losses of the first: %v\nthe differences: %v",
				name, texts[0], losses, lost)
		}
	}
	// The first and the third contrast are of withheld values, which are read as that.
	if unknown, known := nulls[0]+nulls[4], nulls[1]+nulls[5]; !x.reads() && unknown >= max(known, 1) {
		fail("a withheld value is written as null")
	}
}

// losses: each loss that the format lists occurs, in a session of the suite or a generated one.
func (x *examination) losses() {
	missing := make(map[string]bool)
	for _, l := range x.Losses {
		if missing[l.What] {
			fail("%q is listed twice", l.What)
		}
		missing[l.What] = true
	}
	for i := 0; len(missing) > 0; i++ {
		var s *codec.Session
		switch random := i - len(x.sessions); {
		case random < 0:
			s = x.sessions[i].Session
		case random < 2000:
			s = Generate(rand.New(rand.NewPCG(uint64(random), 2)), 1+random%8)
		default:
			fail("losses: these are listed, and never occur: %q", slices.Sorted(maps.Keys(missing)))
		}
		if x.Fits(s) {
			for _, l := range codec.Lost(s, x.reread(s)) {
				delete(missing, l.What)
			}
		}
	}
}

// many: sessions that are written one after the other are read as they are each by itself.
func (x *examination) many() {
	var all []*codec.Session
	for i, s := range x.sessions {
		if len(all) < 20 && i%3 != 1 {
			all = append(all, s.Session)
		}
	}
	r := x.read(x.write(all...))
	if r.err != nil || len(r.problems) > 0 || len(r.sessions) != len(all) {
		fail("many: %d sessions, want %d; problems %v, error %v", len(r.sessions), len(all), r.problems, r.err)
	}
	for i, s := range all {
		all[i] = x.reread(s)
	}
	x.finds(r, all, func(int) bool { return true })
}

// finds checks that those of the sessions that are whole are among what was read, and reports whether all are.
func (x *examination) finds(r reading, want []*codec.Session, whole func(i int) bool) (all bool) {
	got := make(map[string]*codec.Session)
	for _, s := range r.sessions {
		got[s.Session.ID] = s
	}
	all = len(r.sessions) == len(want)
	for i, w := range want {
		g := got[w.Session.ID]
		is := g != nil && Diff(w, g) == ""
		if all = all && is; whole(i) && !is {
			fail("session %s is not there, or another among others; problems %v, error %v", w.Session.ID,
				r.problems, r.err)
		}
	}
	return all
}

// damages are ways in which a line comes to be another. The first three nobody can take for a whole one.
var damages = []struct {
	name string
	of   func(line []byte) []byte
}{
	{"cut in half", func(l []byte) []byte { return l[:len(l)/2] }},
	{"replaced by rubbish", func([]byte) []byte { return []byte("rubbish {[\" <") }},
	{"a string", func([]byte) []byte { return []byte(`"text"`) }},
	{"an empty object", func([]byte) []byte { return []byte("{}") }},
	{"invalid UTF-8 at its end", func(l []byte) []byte { return append(bytes.Clone(l), 0xFF) }},
	{"nested too deep", func(l []byte) []byte {
		return bytes.Replace(l, []byte("{"), []byte(`{"deep":`+strings.Repeat("[", 20_000)+
			strings.Repeat("]", 20_000)+`,`), 1)
	}},
}

// eachDamage calls do with copies of a text in which a line is damaged. Each line has its share of damages, and each
// damage of lines; if they are sparse, about twelve lines have any.
func eachDamage(data []byte, sparse bool, do func(data []byte, noticed bool)) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	step := 1
	if sparse {
		step += len(lines) / 12
	}
	for i := 0; i < len(lines); i += step {
		text := bytes.TrimSuffix(lines[i], []byte("\n"))
		for k, how := range damages {
			damaged := how.of(text)
			if len(text) > 0 && !bytes.Equal(damaged, text) && (i/step+k)%3 == 0 {
				within(fmt.Sprintf("line %d, %s", i+1, how.name), func() {
					do(slices.Concat(bytes.Join(lines[:i], nil), damaged, lines[i][len(text):],
						bytes.Join(lines[i+1:], nil)), k < 3)
				})
			}
		}
	}
}

// damage: a damaged line costs its own session and no other one, or is an error that names the line. Of a stream that
// is cut off, as by a program that is killed while it writes, what comes before is read, or an error reports the end.
// Nothing changes in silence, and what is read is valid.
func (x *examination) damage() {
	var file []byte
	ends := []int{0} // where each session ends
	var want []*codec.Session
	for place := range 3 {
		if x.Many || place == 0 {
			w := x.write(marked(place))
			file, want = append(file, w.data...), append(want, x.one(w))
			ends = append(ends, len(file))
		}
	}
	victim := len(want) / 2
	from, to := ends[victim], ends[victim+1]
	eachDamage(file[from:to], x.Whole, func(damaged []byte, noticed bool) {
		x.survives(slices.Concat(file[:from], damaged, file[to:]), want, func(i int) bool { return i != victim },
			noticed)
	})
	cuts := 60
	if x.Slow {
		cuts = 15
	}
	for k := range cuts {
		cut := 1 + k*(len(file)-2)/cuts
		if k%3 == 0 { // before, in and after a line's end
			if n := bytes.IndexByte(file[cut:], '\n'); n >= 0 {
				cut += n + k/3%2
			}
		}
		within(fmt.Sprintf("cut off at byte %d of %d", cut, len(file)), func() {
			x.survives(file[:cut], want, func(i int) bool { return ends[i+1] <= cut }, file[cut-1] != '\n' && file[cut] != '\n')
		})
	}
}

// survives checks what is read of a damaged file of sessions, of which some are whole. noticed reports that nobody can
// take it for a whole one.
func (x *examination) survives(data []byte, want []*codec.Session, whole func(i int) bool, noticed bool) {
	r := x.steady(written{data: data})
	all := x.finds(r, want, func(i int) bool { return whole(i) && !x.Whole })
	if noticed && !all && len(r.problems) == 0 && r.err == nil {
		fail("damaged lines: what was read changed, and nothing is reported of it")
	}
}

// steady reads w twice and wants the same, sound unless the format takes rows as they are, and text all of it.
func (x *examination) steady(w written) reading {
	r, again := x.read(w), x.read(w)
	same("a second time", r.text(), again.text())
	for _, s := range r.sessions {
		if v := session.Check(s.Transcript); len(v) > 0 && !x.Rows {
			fail("session %s is invalid: %v", s.Session.ID, v[0])
		}
		end("session "+s.Session.ID+": ", s.CheckTree())
	}
	for _, p := range r.problems {
		if !utf8.ValidString(p.Reason) || len(p.Reason) > 2000 {
			fail("problem %q is no text for a person", p.String())
		}
	}
	return r
}

// native: files of the format's own program are read as valid sessions, which are written and read as they are. With a
// damaged line they give valid sessions, and always the same.
func (x *examination) native() {
	x.Check = nil // it is a rule on sessions that were none of the format's
	for _, path := range x.natives {
		within("native "+path, func() {
			w := x.load(path)
			r := x.steady(w)
			if r.err != nil || len(r.sessions) == 0 {
				fail("%d sessions, error %v", len(r.sessions), r.err)
			}
			x.troubled = len(r.problems) > 0
			for _, s := range r.sessions {
				if x.writes() {
					within("session "+s.Session.ID, func() { x.session(s, false) })
				}
			}
			eachDamage(w.data, true, func(data []byte, _ bool) { x.steady(written{data: data}) })
		})
	}
}

// fed reads what may be anything, and writes what comes of it.
func (x *examination) fed(data []byte) {
	r := x.steady(written{data: data})
	x.Check, x.troubled = nil, len(r.problems) > 0
	for _, s := range r.sessions {
		switch {
		case x.Encode == nil || !x.Fits(s):
		case x.Rows && len(session.Check(s.Transcript)) > 0: // it is only to be written as what is written the same
			first := x.write(s)
			same("encoded, decoded and encoded", first.text(), x.write(x.one(first)).text())
		default:
			x.session(s, false)
		}
	}
}
