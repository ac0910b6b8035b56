package storetest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
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
	testscale.Must(t, jsonl.Encode(&b, s))
	return b.String()
}

// imported makes a session to import of rows, with the rollups that its messages have: see the stories.
func (h *harness) imported(a *args, rows []string) *store.Imported {
	h.Helper()
	row := session.Session{ID: a.word(), UpdatedAt: epoch + a.int(), Title: a.word(), Agent: "a", PermissionsJSON: "[]",
		MetadataJSON: ` { "spaced" : true }`, CreatedAt: epoch + 1}
	in := &store.Imported{Transcript: &session.Transcript{Session: row}}
	message := func() *session.MessageAndParts { return &in.Messages[len(in.Messages)-1] }
	add := func(role string, a *args) {
		in.Messages = append(in.Messages, session.MessageAndParts{Message: session.Message{ID: a.word(), SessionID: row.ID,
			Role: role, CreatedAt: epoch + a.int(), MetadataJSON: "{}"}})
		message().Message.UpdatedAt = message().Message.CreatedAt
	}
	part := func(id string, updated int64, data string) {
		m := message()
		p := session.Part{ID: id, DataJSON: data, CreatedAt: epoch + 1, UpdatedAt: epoch + updated, SessionID: row.ID,
			MessageID: m.Message.ID, Index: int64(len(m.Parts))}
		var of struct{ Type, State, ToolCallID string }
		h.check(json.Unmarshal([]byte(data), &of))
		if p.Type = of.Type; session.IsToolType(p.Type) {
			p.ToolCallID, p.ToolState = &of.ToolCallID, &of.State
		}
		m.Parts = append(m.Parts, p)
	}
	var rest store.Batch
	var cost *float64
	var tokens *session.Usage
	for _, row := range rows {
		verb, line, _ := strings.Cut(row, " ")
		a := h.args(line)
		switch verb {
		case "answer": // which cost as many tokens as quarters of a dollar
			add(session.RoleAssistant, a)
			m := &message().Message
			m.UpdatedAt = epoch + a.int()
			n := a.int()
			m.MetadataJSON = fmt.Sprintf(`{"usage":{"input":%d,"output":0,"reasoning":0,"cache_read":0,"cache_write":0},`+
				`"agenttrace":{"cost_usd":%v}}`, n, float64(n)/4)
		case "user":
			add(session.RoleUser, a)
		case "text":
			part(a.word(), a.int(), `{"type": "text", "text": "`+strings.Join(a.left, " ")+`"}`)
		case "part":
			part(a.word(), a.int(), strings.Join(a.left, " "))
		case "hidden":
			message().Message.HiddenAt = new(epoch + a.int())
		case "metadata":
			message().Message.MetadataJSON = strings.Join(a.left, " ")
		case "cost":
			usd, err := strconv.ParseFloat(a.word(), 64)
			h.check(err)
			cost = &usd
		case "tokens":
			tokens = &session.Usage{Input: a.int()}
		case "archived":
			in.Session.ArchivedAt = new(epoch + a.int())
		case "trace":
			in.Traces = a.left
		default:
			rest = join(rest, h.lines(row))
		}
	}
	var usage session.Usage
	for i := range in.Messages {
		if m := &in.Messages[i].Message; m.Role == session.RoleAssistant {
			used, usd := session.UsageOf(m.MetadataJSON)
			usage = usage.Add(used)
			in.Session.CostUSD += usd
		}
	}
	in.Session.SetUsage(*cmp.Or(tokens, &usage))
	in.Session.CostUSD = *cmp.Or(cost, &in.Session.CostUSD)
	in.Decisions, in.Blobs, in.SpanRefs, in.Annotations = rest.Decisions, rest.Blobs, rest.SpanRefs, rest.Annotations
	if len(rest.Sessions) > 0 {
		in.State = &store.State{Rewinds: rest.Sessions[0].Rewinds}
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
		in := h.imported(h.args("ses_1 9 t"), []string{"answer msg_1 2 3 5", "text prt_1 3 one"})
		in.Messages[0].Parts[0].MessageID = "msg_2"
		if _, err := s.Import(context.Background(), in); err == nil || !strings.Contains(err.Error(), "ses_1") {
			h.Errorf("error %v", err)
		}
		h.equal("sessions", len(List(h, s, everything)), 0)
	})},
}
