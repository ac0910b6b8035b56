package codectest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing/iotest"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
)

// check is a rule, in prose, which is printed when it is broken.
type check struct {
	name, rule string
	applies    func(*Codec) bool
	run        func(*examination) error
}

var checks = []check{
	{"encode", "Encode gives the same for the same rows, in whatever order they stand, and does not change them.",
		(*Codec).writes, some(func(x *examination, i int) bool { return !x.Slow || i%3 == 1 }, (*examination).encode)},
	{"explain",
		"Explain says the same of the same rows, names each loss once with a count, and does not change the session.",
		(*Codec).writes, each((*examination).explain)},
	{"round trip",
		"What is encoded is read without a problem and is valid; what Explain does not list comes back as it was, " +
			"and an aspect that differs is listed.", (*Codec).both, each((*examination).roundTrip)},
	{"claims",
		"Reading states nothing that the session does not: no success of a call that failed, no tokens where they " +
			"are unknown, no end of a turn that nobody saw.", (*Codec).both, each((*examination).claims)},
	{"fixed point", "What was read is encoded to what is read as the same again, in a format of another program from " +
		"the second time on; of a session that loses nothing the encoding is the same, too.", (*Codec).both,
		each((*examination).fixedPoint)},
	{"same rows",
		"The same input gives the same rows and problems, also in small reads, and for a caller that stops early " +
			"and begins again.", (*Codec).both, few((*examination).sameRows)},
	{"writer fails", "The error of a writer is returned, wrapped.",
		func(c *Codec) bool { return c.Encode != nil }, few((*examination).writerFails)},
	{"reader fails", "The error of a reader is yielded, wrapped, last and with no session.",
		(*Codec).stream, few((*examination).readerFails)},
	{"contrasts", "What is withheld, denied, failed or unfinished is not written as what is known, succeeded or ended.",
		(*Codec).writes, (*examination).contrasts},
	{"losses", "Each loss that the format lists occurs in a session.",
		func(c *Codec) bool { return len(c.Losses) > 0 && c.stream() }, (*examination).losses},
	{"many", "Sessions that are written one after the other are read as they are each by itself.",
		func(c *Codec) bool { return c.Many && c.both() }, (*examination).many},
	{"damaged lines", "A damaged line costs its own session and no other one, or is an error that names the line; " +
		"nothing changes in silence, and what is read is valid.", (*Codec).stream, (*examination).damagedLines},
	{"cut off", "Of a stream that is cut off, what comes before is read, or an error reports the end.",
		(*Codec).stream, (*examination).cutOff},
	{"native", "Files of the format's own program are read as valid sessions, which are written and read as they are.",
		func(c *Codec) bool { return len(c.Native) > 0 && c.reads() }, (*examination).native},
	{"damaged native", "A file of the format's own program with a damaged line gives valid sessions, and always the " +
		"same.", func(c *Codec) bool { return len(c.Native) > 0 && c.Decode != nil }, (*examination).damagedNative},
}

func (x *examination) encode(s *codec.Session) error {
	before := Text(s)
	first := x.write(s)
	defer x.drop(first)
	if d := differ(before, Text(s)); d != "" {
		return fmt.Errorf("the session was changed: %s", d)
	}
	if x.Check != nil {
		end("", x.Check(first.data))
	}
	shuffled := Clone(s)
	slices.Reverse(shuffled.Messages)
	for i := range shuffled.Messages {
		slices.Reverse(shuffled.Messages[i].Parts)
	}
	again := map[string]*codec.Session{"a second time": s, "of rows in another order": shuffled}
	if x.Slow {
		delete(again, "a second time") // the other says it, too
	}
	for name, s := range again {
		second := x.write(s)
		err := sameOutput(first, second)
		x.drop(second)
		if err != nil {
			return fmt.Errorf("%s the encoding is another: %w", name, err)
		}
	}
	return nil
}

func (x *examination) explain(s *codec.Session) error {
	before := Text(s)
	losses := x.Explain(s)
	if d := differ(before, Text(s)); d != "" {
		return fmt.Errorf("the session was changed: %s", d)
	}
	if d := gocmp.Diff(losses, x.Explain(s)); d != "" {
		return fmt.Errorf("a second time it says (-first +second):\n%s", d)
	}
	seen := make(map[string]bool)
	for _, l := range losses {
		if l.What == "" || l.Count < 1 || seen[l.What] {
			return fmt.Errorf("loss %+v says nothing, of nothing, or what was said before", l)
		}
		seen[l.What] = true
	}
	return nil
}

// roundTrip compares what came back with what Explain reports of it: rows are the same, or in a format of
// another program, every aspect that is not what it was is listed.
func (x *examination) roundTrip(s *codec.Session) error {
	_, got := x.first(s)
	if v := session.Check(got.Transcript); len(v) > 0 && !x.Rows {
		return fmt.Errorf("what was read is invalid: %v", v[0])
	}
	losses := x.Explain(s)
	if x.Losses == nil {
		if d := Diff(x.asked(s), x.asked(got)); d != "" && len(losses) == 0 {
			return fmt.Errorf("what Explain does not list changed %s", d)
		}
		return nil
	}
	for _, l := range codec.Lost(s, got) {
		if !listed(losses, l.What) {
			return fmt.Errorf("%d %s are lost, and Explain does not list them", l.Count, l.What)
		}
	}
	return nil
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

// claims compares what was read of the sessions that c writes with what they state.
func (x *examination) claims(s *codec.Session) error {
	r := x.firstRead(s)
	if r.w.dir == "" && len(r.w.data) == 0 {
		return nil // there is nothing of the session that the format has
	}
	end("", r.err)
	if invented := codec.Invented(s, r.got); invented != nil {
		return fmt.Errorf("what was read states what the session does not: %q", invented)
	}
	return nil
}

// losses looks for a session in which each of the format's losses occurs, among those of
// the suite and then among generated ones.
func (x *examination) losses() error {
	missing := make(map[string]bool)
	for _, l := range x.Losses {
		if missing[l.What] {
			return fmt.Errorf("%q is listed twice", l.What)
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
			return fmt.Errorf("these are listed as lost, and never are: %q", slices.Sorted(maps.Keys(missing)))
		}
		if !x.Fits(s) {
			continue
		}
		for _, l := range codec.Lost(s, x.reread(s)) {
			delete(missing, l.What)
		}
	}
	return nil
}

func (x *examination) fixedPoint(s *codec.Session) error {
	first, one := x.first(s)
	second := x.write(one)
	defer x.drop(second)
	switch err := sameOutput(first, second); {
	case err == nil:
		return nil // the same input gives the same rows
	case x.Losses == nil && x.Encode != nil && len(x.Explain(s)) == 0:
		return fmt.Errorf("encoded, decoded and encoded it is another: %w", err)
	}
	two := x.one(second)
	if x.Losses != nil && Diff(one, two) != "" { // such as a time that two rows share only after they were read
		one, two = two, x.reread(two)
	}
	if d := Diff(x.asked(one), x.asked(two)); d != "" {
		return fmt.Errorf("read, encoded and read it is another %s", d)
	}
	third, fourth := x.write(one), x.write(two)
	defer x.drop(third)
	defer x.drop(fourth)
	if err := sameOutput(third, fourth); err != nil {
		return fmt.Errorf("encoded a third time it is another: %w", err)
	}
	return nil
}

func (x *examination) sameRows(s *codec.Session) error {
	w, _ := x.first(s)
	first := x.read(w)
	for range x.decode(w, nil) {
		break // and nobody listens to problems
	}
	again := map[string]reading{"a second time": x.read(w)}
	if x.Decode != nil {
		again["byte by byte"] = collect(func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
			return x.Decode(iotest.OneByteReader(bytes.NewReader(w.data)), report)
		})
	}
	for how, r := range again {
		if d := differ(first.text(), r.text()); d != "" {
			return fmt.Errorf("%s something else was read (-first +second):\n%s", how, d)
		}
	}
	return nil
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

// places are those of a stream at which something is made to fail.
func places(size int) []int {
	all := []int{0, 1, size / 3, size / 2, size - 1}
	all = slices.DeleteFunc(all, func(n int) bool { return n < 0 || n >= size })
	slices.Sort(all)
	return slices.Compact(all)
}

// fails wants the error of what fails after n bytes of a stream.
func fails(what string, n int, err error) error {
	if errors.Is(err, errBroken) {
		return nil
	}
	return fmt.Errorf("a %s that fails after %d bytes: error %q, want %q", what, n, fmt.Sprint(err), errBroken.Error())
}

func (x *examination) writerFails(s *codec.Session) error {
	for _, n := range places(len(x.write(s).data)) {
		end("", fails("writer", n, x.Encode(new(limitedWriter(n)), s)))
	}
	return nil
}

func (x *examination) readerFails(s *codec.Session) error {
	data := x.write(s).data
	at := places(len(data))
	if x.Slow {
		at = at[len(at)/2:][:1]
	}
	for _, n := range at {
		r := collect(func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
			return x.Decode(io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(errBroken)), report)
		})
		end("", fails("reader", n, r.err))
	}
	return nil
}
