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
	"reflect"
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
		x.each(func(int) bool { return true }, func(s *codec.Session) {
			got := x.session(s)
			if got == nil {
				return
			}
			// Reading states nothing that the session does not: no success of a call that failed, no tokens where
			// they are unknown, no end of a turn that nobody saw.
			if invented := codec.Invented(s, got); invented != nil {
				fail("claims: what was read states what the session does not: %q", invented)
			}
		})
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
		if !chosen(i) {
			continue
		}
		if err := try(func() { run(s.Session) }); err != nil {
			fail("session %s: %w\n\n%s", s.Name, err, Text(s.Session))
		}
		x.drop()
	}
}

// session checks what is written of a session and read of that, which it returns.
func (x *examination) session(s *codec.Session) (got *codec.Session) {
	before := Text(s)
	first := x.write(s)
	within("encode", func() { x.encode(s, first) })
	within("explain", func() { x.explain(s) })
	if d := differ(before, Text(s)); d != "" {
		fail("encode: the session was changed: %s", d)
	}
	if x.reads() {
		within("round trip", func() { got = x.roundTrip(s, first) })
		within("fixed point", func() { x.fixedPoint(s, got, first) })
	}
	return got
}

// encode: the same is written of the same rows, in whatever order they stand.
func (x *examination) encode(s *codec.Session, first written) {
	if x.Check != nil {
		end("", x.Check(first.data))
	}
	shuffled := Clone(s)
	slices.Reverse(shuffled.Messages)
	for i := range shuffled.Messages {
		slices.Reverse(shuffled.Messages[i].Parts)
	}
	if d := differ(first.text(), x.write(shuffled).text()); d != "" {
		fail("of rows in another order the encoding is another: %s", d)
	}
}

// explain: the same is listed of the same rows, each loss once and with a count.
func (x *examination) explain(s *codec.Session) {
	losses := x.Explain(s)
	if again := x.Explain(s); !reflect.DeepEqual(losses, again) {
		fail("the losses are %v, and a second time %v", losses, again)
	}
	seen := make(map[string]bool)
	for _, l := range losses {
		if l.What == "" || l.Count < 1 || seen[l.What] {
			fail("loss %+v says nothing, of nothing, or what was said before", l)
		}
		seen[l.What] = true
	}
}

// roundTrip: what is encoded is read without a problem and is valid. What Explain does not list comes back as it was:
// the very rows, or in a format of another program every aspect.
func (x *examination) roundTrip(s *codec.Session, first written) *codec.Session {
	got := x.one(first)
	if v := session.Check(got.Transcript); len(v) > 0 && !x.Rows {
		fail("what was read is invalid: %v", v[0])
	}
	losses := x.Explain(s)
	if x.Losses == nil {
		if d := Diff(x.asked(s), x.asked(got)); d != "" && len(losses) == 0 {
			fail("what Explain does not list changed %s", d)
		}
		return got
	}
	for _, l := range codec.Lost(s, got) {
		if !listed(losses, l.What) {
			fail("%d %s are lost, and Explain does not list them", l.Count, l.What)
		}
	}
	return got
}

// asked is a copy of the session with what the format is asked for.
func (x *examination) asked(s *codec.Session) *codec.Session {
	c := Clone(s)
	x.Ignore(c)
	return c
}

// listed reports whether a loss is one of those listed.
func listed(losses []codec.Loss, what string) bool {
	return slices.ContainsFunc(losses, func(l codec.Loss) bool { return l.What == what })
}

// fixedPoint: what was read is encoded to what is read as the same again, in a format of another program from the
// second time on. Of a session that loses nothing the encoding is the same, too.
func (x *examination) fixedPoint(s, one *codec.Session, first written) {
	second := x.write(one)
	d := differ(first.text(), second.text())
	if d == "" {
		return // the same input gives the same rows
	} else if x.Losses == nil && x.Encode != nil && len(x.Explain(s)) == 0 {
		fail("encoded, decoded and encoded it is another: %s", d)
	}
	two := x.one(second)
	if x.Losses != nil && Diff(one, two) != "" { // such as a time that two rows share only after they were read
		one, two = two, x.reread(two)
	}
	if d := Diff(x.asked(one), x.asked(two)); d != "" {
		fail("read, encoded and read it is another %s", d)
	}
	if d := differ(x.write(one).text(), x.write(two).text()); d != "" {
		fail("encoded a third time it is another: %s", d)
	}
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
	same := func(how string, r reading) {
		if d := differ(first.text(), r.text()); d != "" {
			fail("same rows: %s something else was read (-first +second):\n%s", how, d)
		}
	}
	same("a second time", x.read(w))
	from := func(r io.Reader) reading {
		return collect(func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] { return x.Decode(r, report) })
	}
	if x.Decode != nil {
		same("byte by byte", from(iotest.OneByteReader(bytes.NewReader(w.data))))
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
		lost := codec.Lost(answers[0], answers[1])
		losses := x.Explain(answers[0])
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
	byID := r.byID()
	for _, s := range all {
		alone := x.reread(s)
		got := byID[alone.Session.ID]
		if got == nil {
			fail("many: session %s is not there", alone.Session.ID)
		}
		if d := Diff(alone, got); d != "" {
			fail("many: session %s among others is another %s", alone.Session.ID, d)
		}
	}
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
func eachDamage(data []byte, sparse bool, do func(how string, data []byte, noticed bool)) {
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
				do(fmt.Sprintf("line %d, %s", i+1, how.name), slices.Concat(bytes.Join(lines[:i], nil), damaged,
					lines[i][len(text):], bytes.Join(lines[i+1:], nil)), k < 3)
			}
		}
	}
}

// damage: a damaged line costs its own session and no other one, or is an error that names the line. Of a stream that
// is cut off, as by a program that is killed while it writes, what comes before is read, or an error reports the end.
// Nothing changes in silence, and what is read is valid.
func (x *examination) damage() {
	var file []byte
	var ends []int // where each session ends
	var want []*codec.Session
	for place := range 3 {
		if x.Many || place == 0 {
			w := x.write(marked(place))
			file, want = append(file, w.data...), append(want, x.one(w))
			ends = append(ends, len(file))
		}
	}
	victim, from := len(ends)/2, 0
	if victim > 0 {
		from = ends[victim-1]
	}
	eachDamage(file[from:ends[victim]], x.Whole, func(how string, damaged []byte, noticed bool) {
		within(how, func() {
			x.survives(slices.Concat(file[:from], damaged, file[ends[victim]:]), want,
				func(i int) bool { return i != victim }, noticed)
		})
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
			x.survives(file[:cut], want, func(i int) bool { return ends[i] <= cut }, file[cut-1] != '\n' && file[cut] != '\n')
		})
	}
}

// survives checks what is read of a damaged file of sessions, of which some are whole. noticed reports that nobody can
// take it for a whole one.
func (x *examination) survives(data []byte, want []*codec.Session, whole func(i int) bool, noticed bool) {
	r := x.steady(written{data: data})
	got := r.byID()
	changed := len(r.sessions) != len(want)
	for i, w := range want {
		g := got[w.Session.ID]
		same := g != nil && Diff(w, g) == ""
		changed = changed || !same
		if whole(i) && !same && !x.Whole {
			fail("damaged lines: session %s, which is not damaged, is not there, or another; problems %v, error %v",
				w.Session.ID, r.problems, r.err)
		}
	}
	if noticed && changed && len(r.problems) == 0 && r.err == nil {
		fail("damaged lines: what was read changed, and nothing is reported of it")
	}
}

// steady reads w twice and wants the same, sound unless the format takes rows as they are, and text all of it.
func (x *examination) steady(w written) reading {
	r := x.read(w)
	again := x.read(w)
	if r.text() != again.text() {
		fail("a second time something else was read:\n%s\nand then\n%s", r.text(), again.text())
	}
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
			r := x.steady(x.load(path))
			if r.err != nil || len(r.sessions) == 0 {
				fail("%d sessions, error %v", len(r.sessions), r.err)
			}
			x.troubled = len(r.problems) > 0
			for _, s := range r.sessions {
				if x.writes() {
					within("session "+s.Session.ID, func() { x.session(s) })
				}
			}
			eachDamage(x.load(path).data, true, func(how string, data []byte, _ bool) {
				within(how, func() { x.steady(written{data: data}) })
			})
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
			if second := x.write(x.one(first)); !bytes.Equal(first.data, second.data) {
				fail("encoded, decoded and encoded it is another: %s", differ(first.text(), second.text()))
			}
		default:
			x.session(s)
		}
	}
}
