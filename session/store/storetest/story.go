package storetest

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/internal/testscale"
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
			lines := append([]string{strings.TrimSpace(want)}, block("  ")...)
			c := check{read, strings.TrimPrefix(strings.Join(lines, "\n"), "\n")}
			checks = append(checks, c)
			steps = append(steps, func(s Store) { h.read(s, c) })
		default:
			joined, also := strings.CutPrefix(line, "& ")
			made := h.changes(joined)
			observes = observes || slices.ContainsFunc(made, func(b store.Batch) bool { return b.Assemble != nil })
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

// times are of the form 5..9, or one for both, in Unix milliseconds; "?" is zero.
func (a *args) times() (from, to int64) {
	a.h.Helper()
	first, last, _ := strings.Cut(a.word(), "..")
	b := a.h.args(first + " " + cmp.Or(last, first))
	return epoch + b.int(), epoch + b.int()
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

// changes are what a line reports.
func (h *harness) changes(line string) []store.Batch {
	h.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	change, ok := changes[verb]
	if !ok {
		h.Fatalf("unknown change %q", line)
	}
	return change(h, h.args(rest))
}

// lines are the changes of several lines, in one batch.
func (h *harness) lines(lines ...string) (all store.Batch) {
	h.Helper()
	for _, line := range lines {
		all = join(append([]store.Batch{all}, h.changes(line)...)...)
	}
	return all
}

func one(change func(h *harness, a *args) store.Batch) func(*harness, *args) []store.Batch {
	return func(h *harness, a *args) []store.Batch { return []store.Batch{change(h, a)} }
}

// changes are the words that lines of changes begin with. Arguments in capitals are needed.
var changes map[string]func(h *harness, a *args) []store.Batch

func init() {
	changes = map[string]func(h *harness, a *args) []store.Batch{
		// Three turns of s1 that count 1, 10 and 100 tokens.
		"base": func(h *harness, _ *args) (all []store.Batch) {
			for _, line := range []string{"user s1 u1 10", "assistant s1 a1 11 1", "user s1 u2 20",
				"assistant s1 a2 21 10", "user s1 u3 30", "assistant s1 a3 31 100"} {
				all = append(all, h.changes(line)...)
			}
			return all
		},
		"session": one((*harness).sessionChange),
		"obs":     one((*harness).observation),
		// user SESSION ID TIME
		"user": one(func(_ *harness, a *args) store.Batch { return user(a.word(), a.word(), a.int()) }),
		// assistant SESSION ID TIME TOKENS {TurnStats}
		"assistant": one(func(_ *harness, a *args) store.Batch {
			b := assistant(a.word(), a.word(), a.int(), a.int())
			a.json(b.SpanRefs[0].TurnStats)
			return b
		}),
		// message SESSION ID TIMES ROLE RANK {metadata}
		"message": one(func(_ *harness, a *args) store.Batch {
			c := store.MessageChange{SessionID: a.word(), ID: a.word()}
			c.CreatedAt, c.UpdatedAt = a.times()
			if c.Role, c.Rank = a.word(), a.rank(); c.Role == "-" {
				c.Role = ""
			}
			c.Metadata = json.RawMessage(strings.Join(a.left, " "))
			return store.Batch{Messages: []store.MessageChange{c}}
		}),
		// text SESSION MESSAGE ID INDEX TIME TEXT
		"text": one(func(_ *harness, a *args) store.Batch {
			return partsOf(textPart(a.word(), a.word(), a.word(), a.int(), a.int(), strings.Join(a.left, " ")))
		}),
		// part SESSION MESSAGE ID INDEX TIME RANK {data}
		"part": one(func(h *harness, a *args) store.Batch {
			c := textPart(a.word(), a.word(), a.word(), a.int(), a.int(), "")
			c.Rank, c.Data = a.rank(), json.RawMessage(strings.Join(a.left, " "))
			var data struct{ Type, State, ToolCallID string }
			h.check(json.Unmarshal(c.Data, &data))
			c.Type, c.ToolState, c.ToolCallID = data.Type, data.State, data.ToolCallID
			return partsOf(c)
		}),
		// call TIME RANK STATE key=value: of the call p1 of the message m1 of the session s1
		"call": one(func(_ *harness, a *args) store.Batch {
			c := textPart("s1", "m1", "p1", 0, a.int(), "")
			c.Type, c.ToolCallID, c.Rank, c.ToolState = "tool-bash", "call-p1", a.rank(), a.word()
			data := []any{"type", c.Type, "toolCallId", c.ToolCallID, "state", c.ToolState}
			a.pairs(func(key, value string) { data = append(data, key, json.RawMessage(value)) })
			if mark := [...]string{"stub", "live", ""}[c.Rank]; mark != "" {
				data = append(data, "toolMetadata", map[string]any{"agenttrace": map[string]any{mark: true}})
			}
			c.Data = object(data...)
			return partsOf(c)
		}),
		// span SESSION MESSAGE ID TIMES {SpanRef}
		"span": one(func(_ *harness, a *args) store.Batch {
			l := turn(a.word(), a.word(), a.word(), 0, store.TurnStats{})
			from, to := a.times()
			if l.StartNano, l.EndNano = from*1e6, to*1e6; l.MessageID == "-" {
				l.MessageID, l.TurnStats = "", nil
			}
			a.json(&l)
			return store.Batch{SpanRefs: []store.SpanRef{l}}
		}),
		// compaction SESSION ID TIME TAIL TOKENS: "-" is no tail
		"compaction": one(func(_ *harness, a *args) store.Batch {
			return compaction(a.word(), a.word(), a.int(), strings.TrimPrefix(a.word(), "-"), a.int())
		}),
		// rewind TO TIME undone: of s1
		"rewind": one(func(_ *harness, a *args) store.Batch {
			r := store.Rewind{To: a.word(), At: epoch + a.int(), Undone: len(a.left) > 0}
			return ofSession("s1", 1, store.SessionChange{Rewinds: []store.Rewind{r}})
		}),
		// fork ID FROM MESSAGE TIME: a copy of another up to a message
		"fork": one(func(_ *harness, a *args) store.Batch {
			id, from, message, at := a.word(), a.word(), a.word(), a.int()
			return ofSession(id, at, store.SessionChange{ParentID: reported(at, from), ParentMessageID: reported(at, message),
				Fork: &store.Fork{From: from, Message: message, At: epoch + at}})
		}),
		// decision SESSION ID TIME OUTCOME
		"decision": one(func(_ *harness, a *args) store.Batch {
			d := store.Decision{SessionID: a.word(), ID: a.word(), DecidedAt: epoch + a.int(), Outcome: a.word(),
				ToolID: "bash", Action: "ask"}
			a.json(&d)
			return store.Batch{Decisions: []store.Decision{d}}
		}),
		// prompt DIGEST BODY exact
		"prompt": one(func(_ *harness, a *args) store.Batch {
			b := store.Blob{Kind: store.BlobSystemPrompt, Digest: a.word(), Body: a.word(), Exact: len(a.left) > 0}
			return store.Batch{Blobs: []store.Blob{b}}
		}),
		"catalog": one(func(_ *harness, a *args) store.Batch {
			return store.Batch{Blobs: []store.Blob{{Kind: store.BlobToolCatalog, Digest: a.word(), Body: "[]"}}}
		}),
		// annotation KIND NAME TIME {Annotation}: "-" is no name
		"annotation": one(func(_ *harness, a *args) store.Batch {
			kind, name := a.word(), strings.TrimPrefix(a.word(), "-")
			at := a.int()
			n := annotation(kind, name, at)
			a.json(&n)
			n.Identify()
			return store.Batch{Annotations: []store.Annotation{n}}
		}),
		"anything": func(h *harness, _ *args) (all []store.Batch) {
			for world := range testscale.Rounds(6, 15) {
				all = append(all, h.anything(rand.New(rand.NewPCG(uint64(world), 5)), fmt.Sprint("w", world, "-"))...)
			}
			return all
		},
		"conversation": (*harness).conversation,
		"scattered":    (*harness).scattered,
	}
}

// sessionChange reports of a session: ID TIMES column=value@time fork=session/message@time
func (h *harness) sessionChange(a *args) store.Batch {
	c := store.SessionChange{ID: a.word()}
	c.Start, c.End = a.times()
	columns := map[string]**store.Value{"title": &c.Title, "mode": &c.Mode, "workspace": &c.WorkspaceID,
		"root": &c.WorkspaceRoot, "model": &c.Model, "permissions": &c.Permissions, "agent": &c.Agent,
		"parent": &c.ParentID, "parent_message": &c.ParentMessageID, "archived": &c.Archived}
	a.pairs(func(key, value string) {
		v := h.value(value)
		if column, ok := columns[key]; ok {
			*column = v
		} else if key == "fork" {
			from, message, _ := strings.Cut(v.Text, "/")
			c.Fork = &store.Fork{From: from, Message: message, At: v.At / 1e6}
		} else {
			c.Metadata = map[string]store.Value{key: *v}
		}
	})
	return store.Batch{Sessions: []store.SessionChange{c}}
}

// observation is one: TRACE SOURCE TIMES, words, and a script: opens of=session/rank below=span asks=calls orphan=call
// evaluates=response/span/session. A trace "-" is none.
func (h *harness) observation(a *args) store.Batch {
	o := store.Observation{TraceID: strings.TrimPrefix(a.word(), "-"), Source: a.word(), Dialect: "storetest",
		Data: json.RawMessage("{}")}
	from, to := a.times()
	if o.SpanID, o.Start, o.End = o.Source, from*1e6, to*1e6; o.TraceID != "" {
		o.Own = "own-" + o.TraceID
	}
	if n := len(a.left); n > 0 && strings.HasPrefix(a.left[n-1], "{") {
		o.Data, a.left = json.RawMessage(a.left[n-1]), a.left[:n-1]
	}
	a.pairs(func(key, value string) {
		switch key {
		case "opens":
			o.Opens = store.Opens
		case "of":
			id, rank, _ := strings.Cut(value, "/")
			o.Session = id
			o.Rank, _ = strconv.Atoi(rank)
		case "below":
			o.ParentSpanID = value
		case "asks":
			o.Calls = strings.Split(value, ",")
		case "orphan":
			o.Call = value
		case "evaluates": // RESPONSE/SPAN/SESSION, of which some are empty
			about := strings.Split(value, "/")
			o.Evaluates(about[0], o.TraceID, about[1], about[2])
		default:
			h.Fatalf("unknown word %q", key)
		}
	})
	return store.Batch{Observations: []store.Observation{o}, Assemble: assemble}
}

// actions are the words of what a user does in a story that is in order.
var actions = map[string]func(h *harness, s Store, a *args) error{
	// title ID TITLE TIME
	"title": func(h *harness, s Store, a *args) error {
		return s.SetTitle(h.Context(), a.word(), a.word(), time.UnixMilli(epoch+a.int()))
	},
	// archive ID TIME back
	"archive": func(h *harness, s Store, a *args) error {
		return s.Archive(h.Context(), a.word(), len(a.left) < 2, time.UnixMilli(epoch+a.int()))
	},
	// fork FROM MESSAGE TIME TITLE {metadata}: "-" is no message, and the usual title
	"fork": func(h *harness, s Store, a *args) (err error) {
		o := store.ForkOptions{From: a.word(), Message: strings.TrimPrefix(a.word(), "-"),
			Now: time.UnixMilli(epoch + a.int()), Title: strings.TrimPrefix(a.word(), "-")}
		a.json(&o.Metadata)
		id, err := s.Fork(h.Context(), o)
		if err == nil {
			h.forked = id
		}
		return err
	},
	// rewind ID TO TIME
	"rewind": func(h *harness, s Store, a *args) (err error) {
		h.rewound, err = s.Rewind(h.Context(), a.word(), a.word(), time.UnixMilli(epoch+a.int()))
		return err
	},
	"unrewind": func(h *harness, s Store, a *args) (err error) {
		h.rewound, err = s.Unrewind(h.Context(), a.word())
		return err
	},
	"delete": func(h *harness, s Store, a *args) error { return s.Delete(h.Context(), a.word()) },
	// annotate {Annotation}: a tag of s1, and one with what is otherwise in the other
	"annotate": func(h *harness, s Store, a *args) error {
		good := annotation("tag", "good", 20)
		good.Identify()
		other := good
		a.json(&other)
		return s.Annotate(h.Context(), []store.Annotation{good, other})
	},
	// source PATH SESSION…: a file that the sessions were imported from
	"source": func(h *harness, s Store, a *args) error {
		return s.RecordSources(h.Context(), &store.ImportSource{Path: a.word(), Reading: "1", State: []byte("state"),
			Report: "{}", Sessions: a.rest()})
	},
	"keep": func(h *harness, s Store, _ *args) error {
		h.kept = h.dump(s)
		return nil
	},
	// export ID rows: these alone, without the telemetry that they were made of
	"export": func(h *harness, s Store, a *args) error {
		h.exported = &store.Imported{Transcript: Transcript(h, s, a.word())}
		if len(a.left) > 0 {
			return nil
		}
		return s.Origin(h.Context(), h.exported)
	},
	"restore": func(h *harness, s Store, _ *args) (err error) {
		h.imports, err = s.Import(h.Context(), h.exported)
		return err
	},
}
