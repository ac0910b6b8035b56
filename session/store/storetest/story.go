package storetest

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session/store"
)

// The rules that are examined by what goes in and what is read then are in files of text:
//
//	# rewind/hides
//	The rule, in prose.
//
//	user s1 u1 10                  a change, by the functions of changes
//	& assistant s1 a1 11 7         another one, always in the same batch as the one before
//	rewind u1 40
//	| UPDATE chat_sessions …       statements for the engine
//	= visible s1 => u1             what is read then, by the functions of checks
//	= list {"Limit":2} =>
//	  s1                           of several lines
//	! delete s1                    what a user does, by the functions of actions
//
//	file a s1 9 title              a session that may be imported, by its rows
//	+ answer msg_1 2 3 5
//	import a
//	again a                        another time, which changes nothing
//	stored a                       the store has the very rows
//
// A story is built in many ways: see [harness.story]. After a line "in order" each batch is stored when it comes, and
// checks are of what is stored so far. A line "--" begins another story of the rule, on an empty store. Times count
// from epoch, in milliseconds: @40 in JSON, and in what is read. Words with spaces are between backquotes; a
// word in quotes is one of Go. FORK is
// the session that a user forked last.

//go:embed stories/*.txt
var storyFiles embed.FS

// casesOf are the rules of a file.
func casesOf(name string) (all []testCase) {
	text, err := storyFiles.ReadFile(path.Join("stories", name+".txt"))
	if err != nil {
		panic(err)
	}
	for _, text := range strings.Split("\n"+string(text), "\n# ")[1:] {
		name, rest, _ := strings.Cut(text, "\n")
		rule, rest, _ := strings.Cut(rest, "\n\n")
		stories := strings.Split("\n"+rest, "\n--\n")
		all = append(all, testCase{name, strings.ReplaceAll(rule, "\n", " "), func(h *harness) {
			for _, lines := range stories {
				h.run(strings.Split(lines, "\n"))
			}
		}})
	}
	return all
}

// check is what is read of a store, and what it has to be.
type check struct{ read, want string }

// run makes a story of its lines and examines it.
func (h *harness) run(lines []string) {
	h.Helper()
	var changes []store.Batch
	var steps []func(s Store) // in order
	var checks []check
	var files []*store.Imported
	named := make(map[string]*store.Imported)
	ordered, observes, elsewhere, valid := false, false, false, true
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		block := func(prefix string) (text []string) { // of the lines that follow with a prefix
			for ; i+1 < len(lines) && strings.HasPrefix(lines[i+1], prefix); i++ {
				text = append(text, strings.TrimPrefix(lines[i+1], prefix))
			}
			return text
		}
		switch {
		case strings.TrimSpace(line) == "", line == "in any order": // of the files
		case line == "in any order and elsewhere":
			elsewhere = true
		case line == "in order":
			ordered = true
		case strings.HasPrefix(line, "file "):
			a := h.args(line[len("file "):])
			name := a.word()
			named[name] = h.imported(a, block("+ "))
			files = append(files, named[name])
		case strings.HasPrefix(line, "import "), strings.HasPrefix(line, "again "), strings.HasPrefix(line, "stored "):
			verb, name, _ := strings.Cut(line, " ")
			steps = append(steps, func(s Store) { importVerbs[verb](h, s, named[name]) })
		case strings.HasPrefix(line, "| "):
			statements := strings.Join(append([]string{line[2:]}, block("| ")...), "\n")
			steps = append(steps, func(s Store) { h.script(s, statements) })
			valid = false
		case strings.HasPrefix(line, "! "):
			verb, rest, _ := strings.Cut(line[2:], " ")
			steps = append(steps, func(s Store) { h.failed = actions[verb](h, s, h.args(rest)) })
		case strings.HasPrefix(line, "= "):
			read, want, _ := strings.Cut(line[2:], " =>")
			c := check{read, strings.Join(append(words1(want), block("  ")...), "\n")}
			checks = append(checks, c)
			steps = append(steps, func(s Store) { h.read(s, c) })
		default:
			joined, also := strings.CutPrefix(line, "& ")
			made := h.changes(joined)
			observes = observes || strings.HasPrefix(joined, "obs ")
			if also {
				made = []store.Batch{join(append([]store.Batch{changes[len(changes)-1]}, made...)...)}
				changes, steps = changes[:len(changes)-1], steps[:len(steps)-1]
			}
			changes = append(changes, made...)
			steps = append(steps, func(s Store) { h.result = h.apply(s, made...) })
		}
	}
	see := func(s Store) {
		for _, c := range checks {
			h.read(s, c)
		}
	}
	switch {
	case ordered:
		h.with(func(s Store) {
			for i, step := range steps {
				step(s)
				h.countsAfresh(s, i, len(steps))
			}
			if valid {
				h.dump(s)
			}
		})
	case files != nil:
		h.importedInAnyOrder(files, elsewhere, see)
	default:
		for i := range changes {
			if observes {
				changes[i].Assemble = assemble
			}
		}
		h.story(changes, see)
	}
}

// words1 is the rest of a line, if there is one.
func words1(rest string) []string {
	if rest = strings.TrimSpace(rest); rest == "" {
		return nil
	}
	return []string{rest}
}

// args are the words of a line. Reading one that is not there fails.
type args struct {
	h    *harness
	line string
	left []string
}

func (h *harness) args(line string) *args {
	quoted, word := false, []rune(nil)
	a := &args{h: h, line: line}
	for _, c := range line + " " {
		switch {
		case c == '`':
			quoted = !quoted
		case c != ' ' || quoted:
			word = append(word, c)
		case len(word) > 0:
			a.left, word = append(a.left, string(word)), nil
		}
	}
	return a
}

func (a *args) word() string {
	a.h.Helper()
	if len(a.left) == 0 {
		a.h.Fatalf("%q ends too early", a.line)
	}
	w := a.left[0]
	a.left = a.left[1:]
	if w == "FORK" {
		return a.h.forked
	} else if text, err := strconv.Unquote(w); err == nil {
		return text
	}
	return w
}

// rest are the words that are left.
func (a *args) rest() []string {
	words := a.left
	a.left = nil
	return words
}

// int is a number; "?" is a time that is not known.
func (a *args) int() int64 {
	a.h.Helper()
	w := a.word()
	if w == "?" {
		return -epoch
	}
	n, err := strconv.ParseInt(w, 10, 64)
	a.h.check(err)
	return n
}

// times are of the form 5..9, or one for both; "?" is zero.
func (a *args) times() (from, to int64) {
	from, to = a.span()
	if from == -epoch {
		return 0, 0
	}
	return epoch + from, epoch + to
}

func (a *args) span() (from, to int64) {
	text := a.word()
	if text == "?" {
		return -epoch, -epoch
	}
	first, last, two := strings.Cut(text, "..")
	from, err := strconv.ParseInt(first, 10, 64)
	a.h.check(err)
	if to = from; two {
		to, err = strconv.ParseInt(last, 10, 64)
		a.h.check(err)
	}
	return from, to
}

func (a *args) rank() store.Rank {
	return map[string]store.Rank{"stub": store.RankStub, "live": store.RankLive, "final": store.RankFinal}[a.word()]
}

// json reads the rest of a line into v, which stays if there is none.
func (a *args) json(v any) {
	a.h.Helper()
	if len(a.left) > 0 {
		a.h.check(json.Unmarshal([]byte(absolute(strings.Join(a.left, " "))), v))
		a.left = nil
	}
}

// pairs calls fn with each key and value that is left.
func (a *args) pairs(fn func(key, value string)) {
	for _, pair := range a.left {
		key, value, _ := strings.Cut(pair, "=")
		fn(key, value)
	}
}

// value is a text that was reported at a time, with a rank if it is not final: text@5/live.
func (h *harness) value(text string) *store.Value {
	i := strings.LastIndexByte(text, '@')
	at, rank, _ := strings.Cut(text[i+1:], "/")
	a := h.args(at + " " + cmp.Or(rank, "final"))
	return &store.Value{Text: text[:i], At: nano(a.int()), Rank: a.rank()}
}

var (
	relativeTime = regexp.MustCompile(`@-?\d+`)
	absoluteTime = regexp.MustCompile(`\b\d{13}\b`)
)

func absolute(text string) string {
	return relativeTime.ReplaceAllStringFunc(text, func(at string) string {
		n, _ := strconv.ParseInt(at[1:], 10, 64)
		if strings.Contains(text, `"`+at+`"`) { // a time of Go
			return time.UnixMilli(epoch + n).UTC().Format(time.RFC3339Nano)
		}
		return fmt.Sprint(epoch + n)
	})
}

func relative(text string) string {
	return absoluteTime.ReplaceAllStringFunc(text, func(at string) string {
		n, _ := strconv.ParseInt(at, 10, 64)
		return fmt.Sprintf("@%d", n-epoch)
	})
}
