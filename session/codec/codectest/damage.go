package codectest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
)

var markPattern = regexp.MustCompile(`mark\d+x\d+y`)

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
	byID := make(map[string]*codec.Session)
	for _, s := range r.sessions {
		byID[s.Session.ID] = s
	}
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
	{"without its last byte", true, func(l []byte) []byte { return l[:max(0, len(l)-1)] }},
	{"replaced by rubbish", true, func(l []byte) []byte { return []byte("rubbish {[\" <") }},
	{"replaced by zero bytes", true, func(l []byte) []byte { return make([]byte, len(l)) }},
	{"an array", true, func(l []byte) []byte { return append(append([]byte("["), l...), ']') }},
	{"a string", true, func(l []byte) []byte { return []byte(`"text"`) }},
	{"null", true, func(l []byte) []byte { return []byte("null") }},
	{"an empty object", true, func(l []byte) []byte { return []byte("{}") }},
	{"invalid UTF-8 within", false, func(l []byte) []byte {
		if i := bytes.LastIndex(l, []byte("mark")); i >= 0 {
			return append(append(bytes.Clone(l[:i]), 0xFF, 0xC3), l[i+2:]...)
		}
		return append(bytes.Clone(l), 0xFF)
	}},
	{"written twice", false, func(l []byte) []byte { return append(append(bytes.Clone(l), '\n'), l...) }},
	{"strings for numbers", false, func(l []byte) []byte {
		return regexp.MustCompile(`:(\d+)`).ReplaceAll(l, []byte(`:"$1"`))
	}},
	{"numbers for strings", false, func(l []byte) []byte {
		return regexp.MustCompile(`:"[^"\\]*"`).ReplaceAll(l, []byte(`:7`))
	}},
	{"nested too deep", false, func(l []byte) []byte {
		return bytes.Replace(l, []byte("{"), []byte(`{"deep":`+strings.Repeat("[", 20_000)+
			strings.Repeat("]", 20_000)+`,`), 1)
	}},
}

// damagedLines damages each line of a session that is between two others.
func (x *examination) damagedLines() error {
	var parts [][]byte // of each session
	var want []*codec.Session
	for place := range 3 {
		if !x.Many && place != 1 {
			continue
		}
		w := x.write(marked(place))
		s := x.one(w)
		parts, want = append(parts, w.data), append(want, s)
	}
	victim := len(parts) / 2
	before, after := bytes.Join(parts[:victim], nil), bytes.Join(parts[victim+1:], nil)
	sparse := x.Damage == Whole // lines are not records, and each proves as much as another
	eachDamage(parts[victim], sparse, func(data []byte, i int, text, damaged []byte, how damage) {
		if len(text) == 0 {
			return // it is no record
		}
		at := bytes.Count(before, []byte("\n")) + i + 1
		noticed := how.noticed && !slices.Contains(x.Ignored, string(damaged))
		within(fmt.Sprintf("line %d, %s, which was:\n%.1000s\n", at, how.name, text), func() error {
			return x.survives(slices.Concat(before, data, after), want, victim, at, text, noticed)
		})
	})
	return nil
}

// eachDamage calls do with copies of a text in which a line is damaged: its index, what it was and what it is. Each
// line has its share of damages, and each damage of lines; if they are sparse, about twelve lines have any.
func eachDamage(data []byte, sparse bool, do func(data []byte, i int, text, damaged []byte, how damage)) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	step := 1
	if sparse {
		step += len(lines) / 12
	}
	for i := 0; i < len(lines); i += step {
		text := bytes.TrimSuffix(lines[i], []byte("\n"))
		for k, how := range damages {
			damaged := how.of(text)
			if !bytes.Equal(damaged, text) && (i/step+k)%4 == 0 {
				do(slices.Concat(bytes.Join(lines[:i], nil), damaged, lines[i][len(text):],
					bytes.Join(lines[i+1:], nil)), i, text, damaged, how)
			}
		}
	}
}

// survives reads a file whose session in the middle has a damaged line.
func (x *examination) survives(file []byte, want []*codec.Session, victim, at int, line []byte, noticed bool) error {
	r := x.steady(written{data: file})
	changed := must(x.othersAreWhole(r, want, victim, line))
	if changed && r.silent() && noticed {
		return errors.New("what was read changed, and nothing is said of it")
	}
	head := x.Head != nil && x.Head(line)
	switch {
	case !noticed || !changed:
		return nil
	case x.Damage == Strict && (r.err == nil || !strings.Contains(r.err.Error(), fmt.Sprintf("line %d", at))):
		return fmt.Errorf("error %w does not name line %d", r.err, at)
	case x.Damage != Tolerant || head:
		return nil
	case r.err != nil:
		return fmt.Errorf("it ends the reading: %w", r.err)
	case !named(r.problems, at):
		return fmt.Errorf("problems %v do not name line %d", r.problems, at)
	}
	// What is on other lines is there.
	lost, after := marks(string(line)), ""
	for _, s := range r.sessions {
		after += Text(s)
	}
	kept := marks(after)
	for m := range marks(Text(want[victim])) {
		if !lost[m] && !kept[m] {
			return fmt.Errorf("%s, which stands on another line, is lost; problems %v", m, r.problems)
		}
	}
	return nil
}

// byID are the sessions that were read, by their ids.
func (r *reading) byID() map[string]*codec.Session {
	all := make(map[string]*codec.Session)
	for _, s := range r.sessions {
		all[s.Session.ID] = s
	}
	return all
}

// othersAreWhole reports whether what was read of a file is another than what was wanted, which
// only that of the session with the damaged line may be, and what the damage may cost.
func (x *examination) othersAreWhole(r reading, want []*codec.Session, victim int,
	line []byte) (changed bool, err error) {
	got := r.byID()
	changed = len(r.sessions) != len(want)
	for i, w := range want {
		g := got[w.Session.ID]
		same := g != nil && Diff(w, g) == ""
		changed = changed || !same
		if i == victim || same || x.Damage == Whole || x.Damage == Strict &&
			(i > victim || x.Head != nil && x.Head(line)) {
			continue
		}
		if g == nil {
			return changed, fmt.Errorf("session %s, which is not damaged, is not there; problems %v, error %s",
				w.Session.ID, r.problems, fmt.Sprint(r.err))
		}
		return changed, fmt.Errorf("session %s, which is not damaged, is another %s", w.Session.ID, Diff(w, g))
	}
	return changed, nil
}

func named(problems []codec.Problem, line int) bool {
	for _, p := range problems {
		if p.Line == line {
			return true
		}
	}
	return false
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
			if !x.Unvalidated {
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

// cutOff ends a file of sessions at many places.
func (x *examination) cutOff() error {
	var file []byte
	var ends []int
	for place := range 3 {
		if !x.Many && place > 0 {
			break
		}
		w := x.write(marked(place))
		file = append(file, w.data...)
		ends = append(ends, len(file))
	}
	whole := x.read(written{data: file})
	if len(whole.sessions) != len(ends) {
		return fmt.Errorf("%d sessions, want %d", len(whole.sessions), len(ends))
	}
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
		within(fmt.Sprintf("cut off at byte %d of %d", cut, len(file)), func() error {
			r := x.steady(written{data: file[:cut]})
			if inLine := file[cut-1] != '\n' && file[cut] != '\n'; inLine && r.silent() {
				return errors.New("it is cut off in a line, and nothing is reported of it")
			}
			return x.beforeCut(file[:cut], ends, whole.sessions, r)
		})
	}
	return nil
}

// beforeCut wants the sessions that end before the end of a file that was cut off.
func (x *examination) beforeCut(file []byte, ends []int, whole []*codec.Session, r reading) error {
	got := r.byID()
	for i, end := range ends {
		want := whole[i]
		if end > len(file) || x.Damage == Whole && len(ends) == 1 {
			return nil
		}
		if got[want.Session.ID] == nil {
			// A first line that is cut off does not show where what is before it ends.
			inHead := x.Damage == Strict && !bytes.Contains(file[end:], []byte("\n"))
			if x.Damage != Whole && !inHead {
				return fmt.Errorf("session %d, which is whole, is not there", i)
			}
			return nil
		}
		if d := Diff(want, got[want.Session.ID]); d != "" {
			return fmt.Errorf("session %d, which is whole, is another %s", i, d)
		}
	}
	return nil
}

// damagedRows damages one cell after the other of what EncodeFile wrote.
func (x *examination) damagedRows() error {
	var all []*codec.Session
	for place := range 3 {
		if x.Many || place == 1 {
			all = append(all, marked(place))
		}
	}
	w := x.write(all...)
	defer x.drop(w)
	r := x.read(w)
	if !r.silent() {
		return fmt.Errorf("%v, %s", r.problems, fmt.Sprint(r.err))
	}
	d := spoiler{examination: x, want: r.sessions}
	d.name = database(w.dir)
	d.path = filepath.Join(w.dir, d.name)
	d.whole = must(os.ReadFile(d.path))
	for _, t := range x.Tables {
		d.table(t)
	}
	for _, n := range []int{len(d.whole) / 2, len(d.whole) - 512, 100} {
		how := fmt.Sprintf("cut off at byte %d of %d", n, len(d.whole))
		d.examine(how, "", func(path string) error { return os.Truncate(path, int64(n)) })
	}
	return nil
}

// spoiler damages copies of a database.
type spoiler struct {
	*examination
	name, path string
	whole      []byte
	want       []*codec.Session
}

// examine damages a copy, and reads it. owner is the session that the damage is of, empty
// where it is of all.
func (d *spoiler) examine(how, owner string, spoil func(path string) error) {
	dir := d.dir()
	defer d.drop(written{dir: dir})
	copied := filepath.Join(dir, d.name)
	end("", os.WriteFile(copied, d.whole, 0o600))
	if spoil(copied) != nil {
		return // the table refuses the value, so nobody finds it there
	}
	within(how, func() error {
		r := d.steady(written{dir: dir})
		got := r.byID()
		for _, s := range d.want {
			if g := got[s.Session.ID]; owner != "" && owner != s.Session.ID && (g == nil || Diff(s, g) != "") {
				return fmt.Errorf("the row is of session %s: session %s is not there, or another; problems %v, error "+
					"%s", owner, s.Session.ID, r.problems, fmt.Sprint(r.err))
			}
		}
		if len(r.sessions) < len(d.want) && r.silent() {
			return errors.New("a session is not there, and nothing is reported of it")
		}
		return nil
	})
}

// table damages each cell of a table, with one damage after the other.
func (d *spoiler) table(t Table) {
	var ids, owners []string
	end("", query(d.path, `SELECT rowid, * FROM "`+t.Name+`"`, func(stmt *sqlite.Stmt) {
		owner := ""
		for i := range stmt.ColumnCount() {
			if n := stmt.ColumnName(i); n == "session_id" || n == "id" && t.Name == "chat_sessions" {
				owner = stmt.ColumnText(i)
			}
		}
		ids, owners = append(ids, stmt.ColumnText(0)), append(owners, owner)
	}))
	if len(ids) == 0 {
		end("", fmt.Errorf("table %s is empty", t.Name))
	}
	values := []any{"rubbish {[\" <", `[]`, `{`, 7, []byte("\xff\xfe\x00"), nil, "", `{"type":7,"id":[]}`}
	for row := range min(len(ids), 8) {
		row = row * len(ids) / min(len(ids), 8)
		for k, column := range t.Columns {
			for n := range 2 {
				value := values[(row+3*k+n*5)%len(values)]
				how := fmt.Sprintf("%s of row %s of %s is %q", column, ids[row], t.Name, fmt.Sprint(value))
				statement := fmt.Sprintf(`UPDATE "%s" SET "%s" = ? WHERE rowid = ?`, t.Name, column)
				d.examine(how, owners[row], func(path string) error {
					return query(path, statement, nil, value, ids[row])
				})
			}
		}
	}
}

// database finds the one below dir.
func database(dir string) (name string) {
	for name := range must(files(dir)) {
		if raw, err := os.ReadFile(filepath.Join(dir, name)); err == nil &&
			bytes.HasPrefix(raw, []byte(databaseMagic)) {
			return name
		}
	}
	end("", errors.New("EncodeFile wrote no database"))
	return ""
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
	if x.Completes {
		s = x.reread(s)
	}
	if x.Explain != nil {
		end("", x.explain(s))
	}
	return cmp.Or(x.encode(s), x.roundTrip(s), x.fixedPoint(s))
}

func (x *examination) damagedNative() error {
	for _, path := range x.natives {
		eachDamage(x.load(path).data, true, func(data []byte, i int, _, _ []byte, how damage) {
			within(fmt.Sprintf("%s: line %d %s", path, i+1, how.name), func() error {
				x.steady(written{data: data})
				return nil
			})
		})
	}
	return nil
}
