package codectest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
)

func (x *examination) many() error {
	var all []*codec.Session
	for i, s := range x.sessions {
		if len(all) < 20 && i%3 != 1 {
			all = append(all, s.Session)
		}
	}
	together := x.write(all...)
	defer x.drop(together)
	r := x.read(together)
	if !r.silent() || len(r.sessions) != len(all) {
		return fmt.Errorf("%d sessions, want %d; problems %v, error %s", len(r.sessions), len(all), r.problems,
			fmt.Sprint(r.err))
	}
	byID := r.byID()
	for _, s := range all {
		alone := x.reread(s)
		got := byID[alone.Session.ID]
		if got == nil {
			return fmt.Errorf("session %s is not there", alone.Session.ID)
		}
		if d := Diff(alone, got); d != "" {
			return fmt.Errorf("session %s among others is another %s", alone.Session.ID, d)
		}
	}
	return nil
}

// damage is a way in which a line comes to be another.
type damage struct {
	name string
	// noticed reports that nobody can take the line for a whole one.
	noticed bool
	of      func(line []byte) []byte
}

var damages = []damage{
	{"cut in half", true, func(l []byte) []byte { return l[:len(l)/2] }},
	{"replaced by rubbish", true, func(l []byte) []byte { return []byte("rubbish {[\" <") }},
	{"a string", true, func(l []byte) []byte { return []byte(`"text"`) }},
	{"an empty object", false, func(l []byte) []byte { return []byte("{}") }},
	{"invalid UTF-8 at its end", false, func(l []byte) []byte { return append(bytes.Clone(l), 0xFF) }},
	{"nested too deep", false, func(l []byte) []byte {
		return bytes.Replace(l, []byte("{"), []byte(`{"deep":`+strings.Repeat("[", 20_000)+
			strings.Repeat("]", 20_000)+`,`), 1)
	}},
}

// eachDamage calls do with copies of a text in which a line is damaged, and with the line's number. Each
// line has its share of damages, and each damage of lines; if they are sparse, about twelve lines have any.
func eachDamage(data []byte, sparse bool, do func(data []byte, line int, how damage)) {
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
				do(slices.Concat(bytes.Join(lines[:i], nil), damaged, lines[i][len(text):],
					bytes.Join(lines[i+1:], nil)), i+1, how)
			}
		}
	}
}

// marked are sessions that are written one after the other, where each ends, and what is read of it.
func (x *examination) marked() (data []byte, ends []int, want []*codec.Session) {
	for place := range 3 {
		if !x.Many && place > 0 {
			break
		}
		w := x.write(marked(place))
		data, want = append(data, w.data...), append(want, x.one(w))
		ends = append(ends, len(data))
	}
	return data, ends, want
}

// damagedLines damages each line of a session that is between two others.
func (x *examination) damagedLines() error {
	data, ends, want := x.marked()
	victim := len(ends) / 2
	from := 0
	if victim > 0 {
		from = ends[victim-1]
	}
	before := bytes.Count(data[:from], []byte("\n"))
	eachDamage(data[from:ends[victim]], x.Whole, func(damaged []byte, line int, how damage) {
		x.survives(fmt.Sprintf("line %d, %s", before+line, how.name), slices.Concat(data[:from], damaged,
			data[ends[victim]:]), want, func(i int) bool { return i != victim }, how.noticed)
	})
	return nil
}

// cutOff ends a file of sessions at many places, as a program does that is killed while it writes.
func (x *examination) cutOff() error {
	file, ends, want := x.marked()
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
		x.survives(fmt.Sprintf("cut off at byte %d of %d", cut, len(file)), file[:cut], want,
			func(i int) bool { return ends[i] <= cut }, file[cut-1] != '\n' && file[cut] != '\n')
	}
	return nil
}

// survives checks what is read of a damaged file of sessions, of which some are whole. noticed reports that nobody can
// take it for a whole one.
func (x *examination) survives(how string, data []byte, want []*codec.Session, whole func(i int) bool, noticed bool) {
	within(how, func() error {
		r := x.steady(written{data: data})
		got := r.byID()
		changed := len(r.sessions) != len(want)
		for i, w := range want {
			g := got[w.Session.ID]
			same := g != nil && Diff(w, g) == ""
			changed = changed || !same
			if whole(i) && !same && !x.Whole {
				return fmt.Errorf("session %s, which is not damaged, is not there, or another; problems %v, error %s",
					w.Session.ID, r.problems, fmt.Sprint(r.err))
			}
		}
		if noticed && changed && r.silent() {
			return errors.New("what was read changed, and nothing is reported of it")
		}
		return nil
	})
}

// byID are the sessions that were read, by their ids.
func (r *reading) byID() map[string]*codec.Session {
	all := make(map[string]*codec.Session)
	for _, s := range r.sessions {
		all[s.Session.ID] = s
	}
	return all
}

// steady reads w twice and wants the same, sound unless the format takes rows as they
// are, and text all of it.
func (x *examination) steady(w written) reading {
	r := x.read(w)
	again := x.read(w)
	if r.text() != again.text() {
		end("", fmt.Errorf("a second time something else was read:\n%s\nand then\n%s", r.text(), again.text()))
	}
	for _, s := range r.sessions {
		for _, v := range session.Check(s.Transcript) {
			if !x.Rows {
				end("", fmt.Errorf("session %s is invalid: %v", s.Session.ID, v))
			}
		}
		end("session "+s.Session.ID+": ", s.CheckTree())
	}
	for _, p := range r.problems {
		if !utf8.ValidString(p.Reason) || len(p.Reason) > 2000 {
			end("", fmt.Errorf("problem %q is no text for a person", p.String()))
		}
	}
	return r
}

// load is the native file at path as the decoder takes it.
func (x *examination) load(path string) written {
	if x.Decode == nil {
		return written{dir: path}
	}
	return written{data: must(os.ReadFile(path))}
}

func (x *examination) native() error {
	x.Check = nil // it is a rule on sessions that were none of the format's
	for _, path := range x.natives {
		within(path, func() error {
			r := x.steady(x.load(path))
			if r.err != nil || len(r.sessions) == 0 {
				return fmt.Errorf("%d sessions, error %s", len(r.sessions), fmt.Sprint(r.err))
			}
			if !x.writes() {
				return nil
			}
			x.troubled = len(r.problems) > 0
			for _, s := range r.sessions {
				within("session "+s.Session.ID, func() error { return x.rewrites(s) })
			}
			return nil
		})
	}
	return nil
}

// rewrites checks what the format makes of a session that was read from a native file.
func (x *examination) rewrites(s *codec.Session) error {
	end("", x.explain(s))
	return cmp.Or(x.encode(s), x.roundTrip(s), x.fixedPoint(s))
}

func (x *examination) damagedNative() error {
	for _, path := range x.natives {
		eachDamage(x.load(path).data, true, func(data []byte, line int, how damage) {
			within(fmt.Sprintf("%s: line %d %s", path, line, how.name), func() error {
				x.steady(written{data: data})
				return nil
			})
		})
	}
	return nil
}
