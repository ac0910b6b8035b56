package codectest

import (
	"bytes"
	_ "embed" // the answers
	"errors"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing/iotest"

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

// contrastText has answers after a question, in the form of the corpus: two that must not be written alike. What a
// reader takes the first for when it is written as the second would be false. No loss excuses those with "always".
//
//go:embed contrast.txt
var contrastText string

// contrasts: what is withheld, denied, failed or unfinished is not written as what is known, succeeded or ended.
// Where a format has no word for the difference, Explain lists that.
func (x *examination) contrasts() {
	var nulls []int // in what is written of the answers
	for name, rows := range sections(contrastText) {
		var answers []*codec.Session
		var texts []string
		for _, answer := range strings.Split(rows, "assistant ")[1:] {
			b := build("ses_contrast", began)
			b.add(began, session.RoleUser, "{}", said("go"))
			b.rows(name, "assistant "+answer)
			s := b.done()
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
