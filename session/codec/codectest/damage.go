package codectest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
)

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
