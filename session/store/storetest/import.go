package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/store"
)

// RunImport examines how an engine imports sessions. open is as in [Run].
func RunImport(t *testing.T, open func(t *testing.T) Store) {
	runCases(t, harness{open: open}, slices.Concat(casesOf("import"), importCases))
}

func (h *harness) importing(s Store, in *store.Imported) store.ImportResult {
	h.Helper()
	before := encoded(h, in.Transcript)
	r, err := s.Import(context.Background(), in)
	if err != nil {
		h.Fatalf("import: %v", err)
	}
	h.equal("what was imported", encoded(h, in.Transcript), before)
	return r
}

// encoded is a session as canonical lines.
func encoded(t testing.TB, s *session.Transcript) string {
	t.Helper()
	var b strings.Builder
	if err := jsonl.Encode(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// file is a session with the rollups that its messages have.
func file(id string, updated int64, title string, messages ...session.MessageAndParts) *store.Imported {
	t := &session.Transcript{
		Session: session.Session{
			ID: id, Title: title, Agent: "a", PermissionsJSON: "[]", MetadataJSON: ` { "spaced" : true }`,
			CreatedAt: epoch + 1, UpdatedAt: epoch + updated,
		},
		Messages: messages,
	}
	var sum session.Usage
	for i := range messages {
		m := &messages[i].Message
		m.SessionID = id
		for k := range messages[i].Parts {
			p := &messages[i].Parts[k]
			p.SessionID, p.MessageID, p.Index = id, m.ID, int64(k)
		}
		if m.Role == session.RoleAssistant {
			usage, cost := session.UsageOf(m.MetadataJSON)
			sum = sum.Add(usage)
			t.Session.CostUSD += cost
		}
	}
	t.Session.SetUsage(sum)
	return &store.Imported{Transcript: t}
}

// answer is an assistant message that cost as many tokens as quarters of a dollar.
func answer(id string, created, updated, tokens int64, parts ...session.Part) session.MessageAndParts {
	return session.MessageAndParts{Message: session.Message{
		ID: id, Role: session.RoleAssistant, CreatedAt: epoch + created, UpdatedAt: epoch + updated,
		MetadataJSON: fmt.Sprintf(`{"usage":{"input":%d,"output":0,"reasoning":0,"cache_read":0,"cache_write":0},`+
			`"agenttrace":{"cost_usd":%v}}`, tokens, float64(tokens)/4),
	}, Parts: parts}
}

func asked(id string, at int64) session.MessageAndParts {
	return session.MessageAndParts{Message: session.Message{ID: id, Role: session.RoleUser, MetadataJSON: "{}",
		CreatedAt: epoch + at, UpdatedAt: epoch + at}}
}

func words(id string, updated int64, text string) session.Part {
	return session.Part{ID: id, Type: "text", DataJSON: `{"type": "text", "text": "` + text + `"}`,
		CreatedAt: epoch + 1, UpdatedAt: epoch + updated}
}

// imported makes a session to import of rows: see the stories.
func (h *harness) imported(a *args, rows []string) *store.Imported {
	h.Helper()
	id, updated, title := a.word(), a.int(), a.word()
	var messages []session.MessageAndParts
	part := func(p session.Part) {
		m := &messages[len(messages)-1]
		m.Parts = append(m.Parts, p)
	}
	var rest store.Batch
	var columns []func(in *store.Imported)
	for _, row := range rows {
		verb, line, _ := strings.Cut(row, " ")
		a := h.args(line)
		switch verb {
		case "answer":
			messages = append(messages, answer(a.word(), a.int(), a.int(), a.int()))
		case "user":
			messages = append(messages, asked(a.word(), a.int()))
		case "text":
			part(words(a.word(), a.int(), strings.Join(a.left, " ")))
		case "part":
			p := words(a.word(), a.int(), "")
			p.DataJSON = strings.Join(a.left, " ")
			var data struct{ Type, State, ToolCallID string }
			h.check(json.Unmarshal([]byte(p.DataJSON), &data))
			if p.Type = data.Type; session.IsToolType(p.Type) {
				p.ToolCallID, p.ToolState = &data.ToolCallID, &data.State
			}
			part(p)
		case "hidden":
			messages[len(messages)-1].Message.HiddenAt = new(epoch + a.int())
		case "metadata":
			messages[len(messages)-1].Message.MetadataJSON = strings.Join(a.left, " ")
		case "cost":
			cost, err := strconv.ParseFloat(a.word(), 64)
			h.check(err)
			columns = append(columns, func(in *store.Imported) { in.Session.CostUSD = cost })
		case "tokens":
			tokens := a.int()
			columns = append(columns, func(in *store.Imported) { in.Session.SetUsage(session.Usage{Input: tokens}) })
		case "archived":
			at := epoch + a.int()
			columns = append(columns, func(in *store.Imported) { in.Session.ArchivedAt = &at })
		case "trace":
			columns = append(columns, func(in *store.Imported) { in.Traces = a.left })
		default:
			rest = join(append([]store.Batch{rest}, h.changes(row)...)...)
		}
	}
	in := file(id, updated, title, messages...)
	in.Decisions, in.Blobs, in.SpanRefs, in.Annotations = rest.Decisions, rest.Blobs, rest.SpanRefs, rest.Annotations
	if len(rest.Sessions) > 0 {
		in.State = &store.State{Rewinds: rest.Sessions[0].Rewinds}
	}
	for _, set := range columns {
		set(in)
	}
	return in
}

// again imports a session of which the store has all, or later versions.
func (h *harness) again(s Store, in *store.Imported) {
	h.Helper()
	before := h.dump(s)
	h.imports = h.importing(s, in)
	h.equal("changed", h.imports.Changed, false)
	h.equal("rows after another import", h.dump(s), before)
}

// importVerbs are the words that lines of a session to import begin with.
var importVerbs = map[string]func(h *harness, s Store, in *store.Imported){
	"import": func(h *harness, s Store, in *store.Imported) { h.imports = h.importing(s, in) },
	"again":  (*harness).again,
	"stored": func(h *harness, s Store, in *store.Imported) {
		h.equal("rows", encoded(h, Transcript(h, s, in.Session.ID)), encoded(h, in.Transcript))
	},
}

// importedInAnyOrder imports three versions of a session in every order, some again; then see looks at one of the
// stores, which are all the same. elsewhere has the rows be the same when two are merged in another store first.
func (h *harness) importedInAnyOrder(versions []*store.Imported, elsewhere bool, see func(s Store)) {
	h.Helper()
	want := ""
	for order := range permutations([]int{0, 1, 2}) {
		h.with(func(s Store) {
			for _, n := range slices.Concat(order, order[:2]) {
				h.importing(s, versions[n])
			}
			got := h.dump(s)
			again := h.importing(s, versions[order[0]])
			h.equal("annotations the second time", again.Annotations, 0)
			h.equal("rows after the second time", h.dump(s), got)
			if want == "" {
				want = got
				see(s)
			}
			h.equal(fmt.Sprintf("rows in order %v", order), got, want)
			if !elsewhere {
				return
			}
			id := versions[0].Session.ID
			merged := encoded(h, Transcript(h, s, id))
			h.with(func(other Store) {
				h.importing(other, versions[order[1]])
				h.importing(other, versions[order[2]])
				between := &store.Imported{Transcript: Transcript(h, other, id)}
				h.with(func(s Store) {
					h.importing(s, versions[order[0]])
					h.importing(s, between)
					h.equal(fmt.Sprint("rows of ", order[0], " and the others"),
						encoded(h, Transcript(h, s, id)), merged)
					h.dump(s)
				})
			})
		})
	}
}

// importCases are those that no story is.
var importCases = []testCase{
	{"NoTree", "Rows that make no tree are an error, and nothing of them is stored.", with(func(h *harness, s Store) {
		in := file("ses_1", 9, "t", answer("msg_1", 2, 3, 5, words("prt_1", 3, "one")))
		in.Messages[0].Parts[0].MessageID = "msg_2"
		if _, err := s.Import(context.Background(), in); err == nil || !strings.Contains(err.Error(), "ses_1") {
			h.Errorf("error %v", err)
		}
		h.equal("sessions", len(List(h, s, everything)), 0)
	})},
	{"Telemetry", "A session that telemetry made can be exported and imported; what telemetry reports later is " +
		"merged as ever.", func(h *harness) {
		first := []store.Batch{
			ofSession("ses_1", 1, store.SessionChange{Title: reported(1, "first")}),
			user("ses_1", "msg_1", 10), assistant("ses_1", "msg_2", 20, 7),
			parts(textPart("ses_1", "msg_2", "prt_1", 0, 21, "hello")),
		}
		later := []store.Batch{
			assistant("ses_1", "msg_3", 40, 5),
			parts(textPart("ses_1", "msg_3", "prt_2", 0, 41, "again")),
			ofSession("ses_1", 50, store.SessionChange{Title: reported(50, "second")}),
		}
		rows := func(s Store) string { return encoded(h, Transcript(h, s, "ses_1")) }
		var exported *store.Imported
		var want string
		h.with(func(s Store) {
			h.apply(s, first...)
			exported = &store.Imported{Transcript: Transcript(h, s, "ses_1")}
			before := h.dump(s)
			h.equal("result", h.importing(s, exported), store.ImportResult{Unchanged: 5})
			h.equal("rows", h.dump(s), before)
			h.apply(s, later...)
			want = rows(s)
		})
		imported := func(s Store) { h.importing(s, exported) }
		earlier, after := func(s Store) { h.apply(s, first...) }, func(s Store) { h.apply(s, later...) }
		for how, steps := range map[string][]func(Store){
			"import, all": {imported, earlier, after}, "import, later": {imported, after},
			"later, import": {after, imported}, "first, later, import": {earlier, after, imported},
		} {
			h.with(func(s Store) {
				for _, step := range steps {
					step(s)
				}
				h.dump(s)
				h.equal(how, rows(s), want)
			})
		}
	}},
}
