package storetest

import (
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/price"
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
//
//	file a s1 9 title              a session that may be imported, by its rows
//	+ answer msg_1 2 3 5
//	import a
//	again a                        another time, which changes nothing
//	stored a                       the store has the very rows
//
// A story is told in many ways: see [harness.story]. After a line "in order" each batch is stored when it comes, and
// checks are of what is stored so far. A line "--" begins another story of the rule, on an empty store. Times count from
// epoch, in milliseconds: @40 in JSON, and in what is read. Words with spaces are between backquotes.

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
				h.tell(strings.Split(lines, "\n"))
			}
		}})
	}
	return all
}

// check is what is read of a store, and what it has to be.
type check struct{ read, want string }

// tell makes a story of its lines and examines it.
func (h *harness) tell(lines []string) {
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
	if ordered {
		h.with(func(s Store) {
			for _, step := range steps {
				step(s)
			}
			if valid {
				h.dump(s)
			}
		})
		return
	}
	if files != nil {
		h.importedInAnyOrder(files, elsewhere, func(s Store) {
			for _, c := range checks {
				h.read(s, c)
			}
		})
		return
	}
	for i := range changes {
		if observes {
			changes[i].Assemble = assemble
		}
	}
	h.story(changes, func(s Store) {
		for _, c := range checks {
			h.read(s, c)
		}
	})
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
	return w
}

func (a *args) int() int64 {
	a.h.Helper()
	n, err := strconv.ParseInt(a.word(), 10, 64)
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

func one(change func(h *harness, a *args) store.Batch) func(*harness, *args) []store.Batch {
	return func(h *harness, a *args) []store.Batch { return []store.Batch{change(h, a)} }
}

// changes are the words that lines of changes begin with. Arguments in capitals are needed.
var changes map[string]func(h *harness, a *args) []store.Batch

func init() {
	changes = map[string]func(h *harness, a *args) []store.Batch{
		"base":    func(*harness, *args) []store.Batch { return base() },
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
			return parts(textPart(a.word(), a.word(), a.word(), a.int(), a.int(), strings.Join(a.left, " ")))
		}),
		// part SESSION MESSAGE ID INDEX TIME RANK {data}
		"part": one(func(h *harness, a *args) store.Batch {
			c := textPart(a.word(), a.word(), a.word(), a.int(), a.int(), "")
			c.Rank, c.Data = a.rank(), json.RawMessage(strings.Join(a.left, " "))
			var data struct{ Type, State, ToolCallID string }
			h.check(json.Unmarshal(c.Data, &data))
			c.Type, c.ToolState, c.ToolCallID = data.Type, data.State, data.ToolCallID
			return parts(c)
		}),
		// call TIME RANK STATE key=value: of the call p1 of the message m1 of the session s1
		"call": one(func(_ *harness, a *args) store.Batch {
			at, rank, state := a.int(), a.rank(), a.word()
			var data []any
			a.pairs(func(key, value string) { data = append(data, key, json.RawMessage(value)) })
			return parts(toolPart("s1", "m1", "p1", 0, at, rank, state, data...))
		}),
		// span SESSION MESSAGE ID TIMES {SpanRef}
		"span": one(func(_ *harness, a *args) store.Batch {
			l := turn(a.word(), a.word(), a.word(), 0, store.TurnStats{})
			from, to := a.span()
			if l.StartNano, l.EndNano = nano(from), nano(to); l.MessageID == "-" {
				l.MessageID, l.TurnStats = "", nil
			}
			a.json(&l)
			return link(l)
		}),
		// compaction SESSION ID TIME TAIL TOKENS: "-" is no tail
		"compaction": one(func(_ *harness, a *args) store.Batch {
			return compaction(a.word(), a.word(), a.int(), strings.TrimPrefix(a.word(), "-"), a.int())
		}),
		// undated ID TIME TAIL TOKENS: a compaction of s1 of which the time is not known, and its time
		"undated": func(_ *harness, a *args) []store.Batch {
			return undated("s1", a.word(), a.int(), a.word(), a.int())
		},
		// rewind TO TIME undone: of s1
		"rewind": one(func(_ *harness, a *args) store.Batch { return rewind(a.word(), a.int(), len(a.left) > 0) }),
		// fork ID FROM MESSAGE TIME
		"fork": one(func(_ *harness, a *args) store.Batch { return fork(a.word(), a.word(), a.word(), a.int()) }),
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
		// annotation KIND NAME TIME {Annotation}: "-" is no name
		"annotation": one(func(_ *harness, a *args) store.Batch {
			kind, name := a.word(), strings.TrimPrefix(a.word(), "-")
			at := a.int()
			return annotated(annotation(kind, name, at, func(n *store.Annotation) { a.json(n) }))
		}),
		// conversation TRACE SESSION TURNS
		"conversation": func(_ *harness, a *args) []store.Batch {
			return conversation(a.word(), a.word(), int(a.int()))
		},
		// scattered SEED OWNERS EACH VERSIONS traced
		"scattered": func(_ *harness, a *args) []store.Batch {
			return scattered(uint64(a.int()), int(a.int()), int(a.int()), int(a.int()), len(a.left) > 0)
		},
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

// observation is one: TRACE SOURCE TIMES, {script}, and words: opens of=session/rank below=span asks=calls orphan=call.
// A trace "-" is none.
func (h *harness) observation(a *args) store.Batch {
	trace, source := strings.TrimPrefix(a.word(), "-"), a.word()
	from, to := a.span()
	var s script
	if n := len(a.left); n > 0 && strings.HasPrefix(a.left[n-1], "{") {
		h.check(json.Unmarshal([]byte(a.left[n-1]), &s))
		a.left = a.left[:n-1]
	}
	return observed(trace, source, from, to, s, func(o *store.Observation) {
		a.pairs(func(key, value string) {
			switch key {
			case "opens":
				o.Opens = true
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
			default:
				h.Fatalf("unknown word %q", key)
			}
		})
	})
}

// read compares what is read with what it has to be.
func (h *harness) read(s Store, c check) {
	h.Helper()
	verb, rest, _ := strings.Cut(c.read, " ")
	read, ok := checks[verb]
	if !ok {
		h.Fatalf("unknown check %q", c.read)
	}
	got := relative(read(h, s, h.args(rest)))
	h.equal(c.read, strings.Split(strings.ReplaceAll(got+"\n", " \n", "\n"), "\n"), strings.Split(c.want+"\n", "\n"))
}

// columns are some columns of a row.
func (h *harness) columns(row []byte, names []string) string {
	h.Helper()
	var all map[string]any
	d := json.NewDecoder(strings.NewReader(string(row)))
	d.UseNumber()
	h.check(d.Decode(&all))
	var values []string
	for _, name := range names {
		v, ok := all[name]
		if !ok {
			h.Fatalf("no column %s in %s", name, row)
		}
		if v == nil {
			v = "null"
		}
		values = append(values, fmt.Sprint(v))
	}
	return strings.Join(values, ", ")
}

func lines[T any](h *harness, all []T, err error, line func(*T) string) string {
	h.Helper()
	h.check(err)
	var text []string
	for i := range all {
		text = append(text, line(&all[i]))
	}
	return strings.Join(text, "\n")
}

// failure is what an error is called.
func (h *harness) failure(err error) string {
	h.Helper()
	switch {
	case errors.Is(err, store.ErrNotFound):
		return "not found"
	case errors.Is(err, store.ErrAmbiguous):
		return "ambiguous"
	}
	h.check(err)
	return ""
}

// hits are what a search finds. Every mark is around what was searched for.
func (h *harness) hits(s Store, a *args, line func(*store.Hit) string) string {
	h.Helper()
	var q store.SearchQuery
	a.json(&q)
	var found []string
	for hit, err := range s.Search(h.Context(), q) {
		if err != nil {
			_, reason, _ := strings.Cut(err.Error(), `", `)
			return reason
		}
		found = append(found, line(&hit))
		for _, m := range hit.Marks {
			if got := hit.Context[m[0]:m[1]]; !q.Regexp && len([]rune(got)) != len([]rune(q.Text)) {
				h.Errorf("%q: a mark is %q", q.Text, got)
			}
		}
	}
	return strings.Join(found, ", ")
}

// priceOf has prices of three models. Of small, only an unknown number of requests is charged as short ones.
func priceOf(m session.Model) *price.Rate {
	return map[string]*price.Rate{
		"small": {Base: [5]float64{1, 1, 1, 1, 1}, Tiers: []price.Tier{{Above: -1, Rates: [5]float64{9, 9, 9, 9, 9}}}},
		"dear":  {Base: [5]float64{10}}, "cheap": {Base: [5]float64{1}},
	}[m.ModelID]
}

// unpriced are the models without a price.
func unpriced(models []string) string {
	if models == nil {
		return ""
	}
	return fmt.Sprintf("\nunpriced: %q", models)
}

var importVerbs = map[string]func(h *harness, s Store, in *store.Imported){
	"import": func(h *harness, s Store, in *store.Imported) { h.imports = h.importing(s, in) },
	"again":  (*harness).again,
	"stored": func(h *harness, s Store, in *store.Imported) {
		h.equal("rows", encoded(h, h.transcript(s, in.Session.ID)), encoded(h, in.Transcript))
	},
}

// checks are the words that checks begin with.
var checks map[string]func(h *harness, s Store, a *args) string

func init() {
	checks = map[string]func(h *harness, s Store, a *args) string{
		"ids": func(h *harness, s Store, _ *args) string { return strings.Join(h.ids(s), " ") },
		// Of each session its tokens and what its visible messages contain.
		"sessions": func(h *harness, s Store, _ *args) string {
			return lines(h, h.ids(s), nil, func(id *string) string {
				t := h.transcript(s, *id)
				return fmt.Sprintf("%s %d: %s", *id, t.Session.TotalTokens, strings.Join(texts(t), ", "))
			})
		},
		"count":   func(h *harness, s Store, _ *args) string { return fmt.Sprint(len(h.ids(s))) },
		"refused": func(h *harness, _ Store, _ *args) string { return fmt.Sprint(h.result.Refused) },
		"pending": func(h *harness, _ Store, _ *args) string { return fmt.Sprint(h.result.Pending) },
		"imported": func(h *harness, _ Store, a *args) string {
			raw, err := json.Marshal(h.imports)
			h.check(err)
			return h.columns(raw, a.left)
		},
		"unstored": func(h *harness, _ Store, _ *args) string {
			var where []string
			for _, refusal := range h.imports.Refused {
				where = append(where, refusal.Where)
			}
			return strings.Join(where, ", ")
		},
		"tokens": func(h *harness, s Store, a *args) string {
			return fmt.Sprint(h.transcript(s, a.word()).Session.TotalTokens)
		},
		"visible": func(h *harness, s Store, a *args) string {
			return strings.Join(visible(h.transcript(s, a.word())), " ")
		},
		"messages": func(h *harness, s Store, a *args) string {
			return lines(h, h.transcript(s, a.word()).Messages, nil, func(m *session.MessageAndParts) string {
				return m.Message.ID + ": " + strings.Join(layout(*m), " ")
			})
		},
		"row": func(h *harness, s Store, a *args) string {
			row := h.transcript(s, a.word()).Session
			return h.columns(row.AppendJSON(nil), a.left)
		},
		"message": func(h *harness, s Store, a *args) string {
			m := h.message(h.transcript(s, a.word()), a.word()).Message
			return h.columns(m.AppendJSON(nil), a.left)
		},
		"part": func(h *harness, s Store, a *args) string {
			m := h.message(h.transcript(s, a.word()), a.word())
			i, _ := strconv.Atoi(a.word())
			return h.columns(m.Parts[i].AppendJSON(nil), a.left)
		},
		"decisions": func(h *harness, s Store, a *args) string {
			all, err := s.Decisions(h.Context(), a.word())
			return lines(h, all, err, func(d *store.Decision) string { raw, _ := json.Marshal(d); return string(raw) })
		},
		"annotations": func(h *harness, s Store, a *args) string { return strings.Join(h.shown(s, a.word()), "\n") },
		"targets": func(h *harness, s Store, a *args) string {
			all, err := s.Annotations(h.Context(), a.word())
			return lines(h, all, err, func(n *store.Annotation) string {
				id := n.ID
				if n.Identify(); n.ID != id {
					return "it has not the id of its target"
				}
				return fmt.Sprintf("%s %s on %q", n.Kind, n.Name, n.MessageID)
			})
		},
		"spans": func(h *harness, s Store, a *args) string {
			all, err := s.SpanRefs(h.Context(), a.word())
			return lines(h, all, err, func(l *store.SpanRef) string {
				stats, _ := json.Marshal(l.TurnStats)
				return fmt.Sprintf("%s %s %q %q %s %s %d..%d %t %s", l.TraceID, l.SpanID, l.ParentSpanID, l.MessageID,
					l.Kind, l.Dialect, l.StartNano/1e6, l.EndNano/1e6, l.Error, stats)
			})
		},
		"prompt": func(h *harness, s Store, a *args) string {
			b, err := s.Blob(h.Context(), store.BlobSystemPrompt, a.word())
			h.check(err)
			return fmt.Sprint(b.Body, " ", b.Exact)
		},
		"resolve": func(h *harness, s Store, a *args) string {
			id, err := s.Resolve(h.Context(), a.word())
			return cmp.Or(id, h.failure(err))
		},
		"windows": func(h *harness, s Store, a *args) string { return strings.Join(h.windows(s, a.word()), " ") },
		// The sessions of a SessionQuery.
		"list": func(h *harness, s Store, a *args) string {
			var q store.SessionQuery
			a.json(&q)
			for _, err := range s.Sessions(h.Context(), q) {
				if err != nil {
					return "error"
				}
			}
			return strings.Join(ids(h.sessions(s, q)), " ")
		},
		// The same in pages of two, each by a cursor.
		"pages": func(h *harness, s Store, a *args) string {
			var q store.SessionQuery
			a.json(&q)
			q.Limit = 2
			var all []string
			for page := h.sessions(s, q); len(page) > 0; page = h.sessions(s, q) {
				all = append(all, ids(page)...)
				last := page[len(page)-1]
				q.Before = &store.Cursor{UpdatedAt: last.UpdatedAt, ID: last.ID}
			}
			return strings.Join(all, " ")
		},
		// The sessions of a SessionFilter, or of a filter of scores. Stats count as many.
		"filter": func(h *harness, s Store, a *args) string {
			q := everything
			if text := strings.Join(a.left, " "); strings.HasPrefix(text, "{") {
				a.json(&q.SessionFilter)
			} else {
				f, err := store.ParseScoreFilter(text)
				h.check(err)
				q.Scores = []store.ScoreFilter{f}
			}
			all := ids(h.sessions(s, q))
			stats, err := s.Stats(h.Context(), store.StatsQuery{Sessions: q.SessionFilter})
			h.check(err)
			h.equal("sessions counted: "+a.line, stats.Total.Sessions, int64(len(all)))
			return strings.Join(all, " ")
		},
		// The hits of a SearchQuery: part, field and count of each, or all that hits have.
		"search": func(h *harness, s Store, a *args) string {
			return h.hits(s, a, func(hit *store.Hit) string {
				return fmt.Sprintf("%s %s %d", cmp.Or(hit.PartID, "-"), hit.Field, hit.Matches)
			})
		},
		"hits": func(h *harness, s Store, a *args) string {
			return h.hits(s, a, func(hit *store.Hit) string {
				return fmt.Sprintf("%s %s %s %s %s %s %s %s %d %q %v %d", hit.SessionID, hit.Title, hit.Agent,
					hit.MessageID, cmp.Or(hit.Role, "-"), hit.PartID, hit.Type, hit.Field, hit.Matches, hit.Context,
					hit.Marks, hit.CreatedAt)
			})
		},
		// The stats of a StatsQuery: the total and the groups, or these columns of them.
		"stats": func(h *harness, s Store, a *args) string {
			var q store.StatsQuery
			h.check(json.Unmarshal([]byte(absolute(a.word())), &q))
			q.Price = priceOf
			stats, err := s.Stats(h.Context(), q)
			return lines(h, slices.Concat([]store.StatsGroup{stats.Total}, stats.Groups), err,
				func(g *store.StatsGroup) string {
					raw, _ := json.Marshal(g)
					if len(a.left) > 0 {
						return g.Key + ": " + h.columns(raw, a.left)
					}
					return string(raw)
				}) + unpriced(stats.UnpricedModels)
		},
		// What each of some sessions used.
		"spent": func(h *harness, s Store, a *args) string {
			spent, err := s.Spent(h.Context(), a.left, priceOf)
			return lines(h, a.left, err, func(id *string) string {
				of, ok := spent[*id]
				raw, _ := json.Marshal(of)
				return fmt.Sprint(*id, " ", ok, " ", string(raw))
			})
		},
		"notices": func(h *harness, s Store, a *args) string {
			some, err := s.MayHaveNotices(h.Context(), a.left)
			h.check(err)
			return strings.Join(slices.Sorted(maps.Keys(some)), " ")
		},
		"since": func(h *harness, s Store, a *args) string {
			some, err := s.SessionsSince(h.Context(), epoch+a.int())
			h.check(err)
			return fmt.Sprint(len(some))
		},
		// What an ExcerptQuery of a session reads: messages with their parts; decisions; spans; the count of calls.
		"excerpt": func(h *harness, s Store, a *args) string {
			id := a.word()
			var q store.ExcerptQuery
			a.json(&q)
			e, err := s.Excerpt(h.Context(), id, q)
			if err != nil {
				return h.failure(err)
			}
			var text strings.Builder
			for _, m := range e.Messages {
				text.WriteString(m.Message.ID)
				for _, p := range m.Parts {
					text.WriteString("+" + p.ID)
				}
				text.WriteString(" ")
			}
			for _, d := range e.Decisions {
				text.WriteString(d.ID + " ")
			}
			for _, l := range e.Spans {
				text.WriteString(l.SpanID + " ")
			}
			return text.String() + fmt.Sprint(e.ToolCalls)
		},
		// The sessions that are stale before a time, archived ones alone if that is the second word.
		"stale": func(h *harness, s Store, a *args) string {
			all, err := s.Stale(h.Context(), time.UnixMilli(a.int()), len(a.left) > 0)
			h.check(err)
			return strings.Join(ids(all), " ")
		},
	}
}
