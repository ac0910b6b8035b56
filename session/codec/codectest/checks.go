package codectest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
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
	{"fixed point", "What was read is encoded to what is read as the same again; of a session that loses nothing " +
		"the encoding is the same, too.", (*Codec).both, each((*examination).fixedPoint)},
	{"same rows",
		"The same input gives the same rows and problems, also in small reads, and to whoever stops early and begins " +
			"again.", (*Codec).both, few((*examination).sameRows)},
	{"writer fails", "The error of a writer is returned, wrapped.",
		func(c *Codec) bool { return c.Encode != nil }, few((*examination).writerFails)},
	{"reader fails", "The error of a reader is yielded, wrapped, last and with no session.",
		func(c *Codec) bool { return c.Encode != nil && c.Decode != nil }, few((*examination).readerFails)},
	{"contrasts", "What is withheld, denied, failed or unfinished is not written as what is known, succeeded or ended.",
		(*Codec).writes, (*examination).contrasts},
	{"losses", "Each loss that the format lists occurs in a session.",
		func(c *Codec) bool { return len(c.Losses) > 0 && c.Encode != nil && c.Decode != nil }, (*examination).losses},
	{"many", "Sessions that are written one after the other are read as they are each by itself.",
		func(c *Codec) bool { return c.Many && c.both() }, (*examination).many},
	{"damaged lines", "A damaged line costs its own session and no other one, or is an error that names the line; " +
		"nothing changes in silence, and what is read is valid.",
		func(c *Codec) bool { return c.Encode != nil && c.both() }, (*examination).damagedLines},
	{"cut off", "Of a stream that is cut off, what comes before is read, or an error tells of the end.",
		func(c *Codec) bool { return c.Encode != nil && c.both() }, (*examination).cutOff},
	{"native", "Files of the format's own program are read as valid sessions, which are written and read as they are.",
		func(c *Codec) bool { return len(c.Native) > 0 && c.reads() }, (*examination).native},
	{"damaged native", "A file of the format's own program with a damaged line gives valid sessions, and always the " +
		"same.", func(c *Codec) bool { return len(c.Native) > 0 && c.Decode != nil }, (*examination).damagedNative},
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

func (x *examination) encode(s *codec.Session) error {
	before := Text(s)
	first := x.write(s)
	defer x.drop(first)
	if after := Text(s); after != before {
		return fmt.Errorf("the session was changed: %s", gocmp.Diff(before, after))
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

// sameOutput states where two outputs differ.
func sameOutput(a, b written) error {
	if a.dir == "" {
		if !bytes.Equal(a.data, b.data) {
			return fmt.Errorf("(-first +second):\n%s", gocmp.Diff(strings.Split(string(a.data), "\n"),
				strings.Split(string(b.data), "\n")))
		}
		return nil
	}
	x := must(files(a.dir))
	y := must(files(b.dir))
	for name, text := range x {
		if other, ok := y[name]; !ok || other != text {
			return fmt.Errorf("file %s differs, or is missing", name)
		}
	}
	if len(x) != len(y) {
		return fmt.Errorf("%d files, and then %d", len(x), len(y))
	}
	return nil
}

// files are those below dir, by path, with what is in them. Databases are reported by
// their rows, for the engine keeps a journal.
func files(dir string) (map[string]string, error) {
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || strings.HasSuffix(path, "-wal") || strings.HasSuffix(path, "-shm") {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && bytes.HasPrefix(text, []byte(databaseMagic)) {
			all[name], err = dump(path)
			return err
		}
		all[name] = string(text)
		return err
	})
	return all, err
}

func (x *examination) explain(s *codec.Session) error {
	before := Text(s)
	losses := x.Explain(s)
	if after := Text(s); after != before {
		return fmt.Errorf("the session was changed: %s", gocmp.Diff(before, after))
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

// firstRead encodes s and reads it, once for all checks.
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

type firstRead struct {
	w   written
	got *codec.Session
	err error
}

func (x *examination) roundTrip(s *codec.Session) error {
	_, got := x.first(s)
	if v := session.Check(got.Transcript); len(v) > 0 && !x.Rows {
		return fmt.Errorf("what was read is invalid: %v", v[0])
	}
	return x.honest(s, got)
}

// asked is a copy of the session with what the format is asked for.
func (x *examination) asked(s *codec.Session) *codec.Session {
	c := Clone(s)
	x.Ignore(c)
	return c
}

// honest compares what came back with what Explain reports of it: rows are the same, or in a format of
// another program, every aspect that is not what it was is listed.
func (x *examination) honest(want, got *codec.Session) error {
	losses := x.Explain(want)
	if x.Losses == nil {
		if d := Diff(x.asked(want), x.asked(got)); d != "" && len(losses) == 0 {
			return fmt.Errorf("what Explain does not list changed %s", d)
		}
		return nil
	}
	for _, l := range codec.Lost(want, got) {
		if !listed(losses, l.What) {
			return fmt.Errorf("%d %s are lost, and Explain does not list them", l.Count, l.What)
		}
	}
	return nil
}

// listed reports whether a loss is one of those listed.
func listed(losses []codec.Loss, what string) bool {
	return slices.ContainsFunc(losses, func(l codec.Loss) bool { return l.What == what })
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
		return fmt.Errorf("encoded, decoded and encoded it is another %w", err)
	}
	two := x.one(second)
	if d := Diff(x.asked(one), x.asked(two)); d != "" {
		return fmt.Errorf("read, encoded and read it is another %s", d)
	}
	third := x.write(two)
	defer x.drop(third)
	if err := sameOutput(second, third); err != nil {
		return fmt.Errorf("encoded a third time it is another %w", err)
	}
	return nil
}

func (x *examination) sameRows(s *codec.Session) error {
	w, _ := x.first(s)
	first := x.read(w)
	for range x.sequence(w, nil) {
		break // and nobody listens to problems
	}
	second := x.read(w)
	if d := gocmp.Diff(first.text(), second.text()); d != "" {
		return fmt.Errorf("a second time something else was read (-first +second):\n%s", d)
	}
	if x.Decode == nil {
		return nil
	}
	var small reading
	small.collect(x.Decode(iotest.OneByteReader(bytes.NewReader(w.data)), small.report))
	if d := gocmp.Diff(first.text(), small.text()); d != "" {
		return fmt.Errorf("byte by byte something else was read (-whole +bytes):\n%s", d)
	}
	return nil
}

var errBroken = errors.New("the disk is gone")

// limitedWriter fails once it has taken so many bytes.
type limitedWriter int

func (l *limitedWriter) Write(b []byte) (int, error) {
	if len(b) > int(*l) {
		n := int(*l)
		*l = 0
		return n, errBroken
	}
	*l -= limitedWriter(len(b))
	return len(b), nil
}

// places are those of a stream at which something is made to fail.
func places(size int) []int {
	all := []int{0, 1, size / 3, size / 2, size - 1}
	all = slices.DeleteFunc(all, func(n int) bool { return n < 0 || n >= size })
	slices.Sort(all)
	return slices.Compact(all)
}

func (x *examination) writerFails(s *codec.Session) error {
	w := x.write(s)
	for _, n := range places(len(w.data)) {
		limit := limitedWriter(n)
		if err := x.Encode(&limit, s); !errors.Is(err, errBroken) {
			return fmt.Errorf("a writer that fails after %d of %d bytes: error %q, want %q", n, len(w.data),
				fmt.Sprint(err), errBroken.Error())
		}
	}
	return nil
}

func (x *examination) readerFails(s *codec.Session) error {
	w := x.write(s)
	at := places(len(w.data))
	if x.Slow {
		at = at[len(at)/2:][:1]
	}
	for _, n := range at {
		var r reading
		r.collect(x.Decode(io.MultiReader(bytes.NewReader(w.data[:n]), iotest.ErrReader(errBroken)), r.report))
		if !errors.Is(r.err, errBroken) {
			return fmt.Errorf("a reader that fails after %d of %d bytes: error %q, want %q", n, len(w.data),
				fmt.Sprint(r.err), errBroken.Error())
		}
	}
	return nil
}
