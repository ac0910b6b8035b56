package storetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/store"
)

// RunImport examines how an engine imports sessions. open is as in [Run].
func RunImport(t *testing.T, open func(t *testing.T) Store) {
	runCases(t, open, importCases)
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

func encoded(h *harness, t *session.Transcript) string {
	var b bytes.Buffer
	h.check(jsonl.Encode(&b, t))
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

func words(id string, updated int64, text string) session.Part {
	return session.Part{ID: id, Type: "text", DataJSON: `{"type": "text", "text": "` + text + `"}`,
		CreatedAt: epoch + 1, UpdatedAt: epoch + updated}
}

// importedInAnyOrder imports three versions of a session in every order, some again; then see looks at one of the
// stores, which are all the same.
func (h *harness) importedInAnyOrder(versions []*store.Imported, see func(s Store)) {
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
		})
	}
}

var importCases = []testCase{
	{"AsGiven", "The rows of a session that the store does not have are stored byte for byte.",
		with(func(h *harness, s Store) {
			in := file("ses_1", 9, "t", answer("msg_1", 2, 3, 5, words("prt_1", 3, "one"), words("prt_2", 3, "two")))
			in.Session.CostUSD = 0.12345678901234 // a row may know more than its messages
			in.Decisions = []store.Decision{{ID: "dec_1", SessionID: "ses_1", ToolID: "bash", Action: "ask",
				Outcome: "allowed", DecidedAt: epoch + 2}}
			in.Blobs = []store.Blob{{Kind: store.BlobSystemPrompt, Digest: "d", Body: "b", Exact: true}}
			r := h.importing(s, in)
			h.equal("result", r, store.ImportResult{Added: true, Changed: true, Messages: 1, Parts: 2, Decisions: 1,
				Blobs: 1})
			h.equal("rows", encoded(h, h.transcript(s, "ses_1")), encoded(h, in.Transcript))
			before := h.dump(s)
			r = h.importing(s, in)
			h.equal("result of the second time", r, store.ImportResult{Unchanged: 5})
			h.equal("all rows after the second time", h.dump(s), before)
		})},
	{"AnyOrder", "Versions of a session leave the same rows in whatever order, and however often, they are imported.",
		func(h *harness) {
			versions := []*store.Imported{
				file("ses_1", 9, "nine", answer("msg_1", 2, 3, 5, words("prt_1", 3, "one"), words("prt_2", 3, "two")),
					answer("msg_2", 4, 4, 1)),
				// Later, and another part is first.
				file("ses_1", 10, "ten", answer("msg_1", 2, 5, 7, words("prt_3", 5, "zero"),
					words("prt_1", 5, "one and more"))),
				// As late, with other words; and a message that the others do not know.
				file("ses_1", 10, "also ten", answer("msg_1", 2, 5, 6, words("prt_1", 5, "one and less")),
					answer("msg_3", 6, 6, 100, words("prt_4", 6, "x"))),
			}
			versions[2].Session.CostUSD += 8
			h.importedInAnyOrder(versions, func(s Store) {
				t := h.transcript(s, "ses_1")
				h.equal("title", t.Session.Title, "ten")
				h.equal("tokens", t.Session.TotalTokens, int64(7+1+100))
				h.equal("cost", t.Session.CostUSD, (7.0+1+100)/4)
				h.equal("messages", visible(t), []string{"msg_1", "msg_2", "msg_3"})
				h.equal("parts", layout(t.Messages[0]), []string{"0:prt_3", "1:prt_1", "2:prt_2"})
			})
		}},
	{"MergedRows", "Whatever versions of rows of one time contain, they merge in any order, however often, and by " +
		"way of another store, to the same rows.", func(h *harness) {
		tool := func(state, data string) session.Part {
			return session.Part{ID: "prt_2", Type: "tool-bash", ToolCallID: new("call_1"), ToolState: &state,
				CreatedAt: epoch + 1, UpdatedAt: epoch + 3,
				DataJSON: `{"type":"tool-bash","toolCallId":"call_1","state":"` + state + `","input":{}` + data + `}`}
		}
		version := func(updated int64, title string, archived, hidden *int64, metadata string, text session.Part,
			call session.Part) *store.Imported {
			in := file("ses_1", updated, title, session.MessageAndParts{
				Message: session.Message{ID: "msg_1", Role: session.RoleUser, MetadataJSON: "{}", CreatedAt: epoch + 1,
					UpdatedAt: epoch + 1},
			}, answer("msg_2", 2, 3, 5, text, call))
			in.Session.ArchivedAt, in.Messages[1].Message.HiddenAt = archived, hidden
			if metadata != "" {
				in.Messages[1].Message.MetadataJSON = metadata
				in.Session.SetUsage(session.Usage{})
				in.Session.CostUSD = 0
			}
			if hidden != nil {
				in.Session.SetUsage(session.Usage{})
			}
			return in
		}
		at := func(ms int64) *int64 { return new(epoch + ms) }
		versions := []*store.Imported{
			// Rewound and archived, and the call was asked for.
			version(9, session.Untitled, at(40), at(30), "", words("prt_1", 3, "one"),
				tool(session.StateApprovalRequested, `,"approval":{"id":"zzzzzzzzzzzzzzzzzzzzzzzz"}`)),
			// Named, seen, further: the call has its result, though it takes less room.
			version(9, "Aa", nil, nil, "", words("prt_1", 3, "one "),
				tool(session.StateOutputAvailable, `,"output":1`)),
			// Named later than it was archived elsewhere; and incomplete, which is the longer.
			version(90, "Zz", at(20), nil, `{"agenttrace":{"incomplete":true,"problems":[`+
				`"zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"]}}`,
				words("prt_1", 2, "of before"), tool(session.StateInputAvailable,
					`,"title":"zzzzzzzzzzzzzzzzzzzzzzzz"`)),
		}
		want := ""
		same := func(how string, s Store) {
			got := encoded(h, h.transcript(s, "ses_1"))
			if want == "" {
				want = got
				t := h.transcript(s, "ses_1")
				h.equal("title", t.Session.Title, "Zz")
				h.equal("archived", t.Session.ArchivedAt, at(40))
				h.equal("hidden", t.Messages[1].Message.HiddenAt, at(30))
				h.equal("metadata", t.Messages[1].Message.MetadataJSON, versions[0].Messages[1].Message.MetadataJSON)
				h.equal("text", t.Messages[1].Parts[0].DataJSON, versions[1].Messages[1].Parts[0].DataJSON)
				h.equal("state", t.Messages[1].Parts[1].ToolState, new(session.StateOutputAvailable))
				h.equal("tokens", t.Session.TotalTokens, int64(0))
			}
			h.equal("rows "+how, got, want)
			h.dump(s)
		}
		for order := range permutations([]int{0, 1, 2}) {
			h.with(func(s Store) {
				for _, n := range slices.Concat(order, order[:2]) {
					h.importing(s, versions[n])
				}
				same(fmt.Sprintf("in order %v", order), s)
			})
			h.with(func(other Store) {
				h.importing(other, versions[order[1]])
				h.importing(other, versions[order[2]])
				between := &store.Imported{Transcript: h.transcript(other, "ses_1")}
				h.with(func(s Store) {
					h.importing(s, versions[order[0]])
					h.importing(s, between)
					same(fmt.Sprintf("of %d and the others, merged elsewhere", order[0]), s)
				})
			})
		}
	}},
	{"Archive", "What was archived stays so whatever else is reported of the session, unless it was taken out of the " +
		"archive after that.", func(h *harness) {
		archived := func(at int64, text string) store.Batch {
			return ofSession("ses_1", at, store.SessionChange{Archived: reported(at, text)})
		}
		row := func(s Store) *int64 { return h.transcript(s, "ses_1").Session.ArchivedAt }
		in := file("ses_1", 9, "t", answer("msg_1", 2, 3, 5))
		in.Session.ArchivedAt = new(int64(epoch + 40))
		h.with(func(s Store) {
			h.importing(s, file("ses_1", 9, "later title", answer("msg_1", 2, 3, 5)))
			h.importing(s, in)
			h.equal("archived", row(s), new(int64(epoch+40)))
			h.importing(s, file("ses_1", 99, "another", answer("msg_1", 2, 3, 5)))
			h.equal("archived, and reported later", row(s), new(int64(epoch+40)))
			h.apply(s, archived(50, "0"))
			h.equal("taken out", row(s), (*int64)(nil))
			h.importing(s, in)
			h.equal("taken out after what the import reports", row(s), (*int64)(nil))
			in.Session.ArchivedAt = new(int64(epoch + 60))
			h.importing(s, in)
			h.equal("archived again", row(s), new(int64(epoch+60)))
		})
	}},
	{"Stays", "What the store has and the import has not, or has in an older version, stays.",
		with(func(h *harness, s Store) {
			h.importing(s, file("ses_1", 9, "new",
				answer("msg_1", 2, 8, 5, words("prt_1", 8, "new"), words("prt_2", 3, "two")), answer("msg_2", 4, 4, 1)))
			before := h.dump(s)
			r := h.importing(s, file("ses_1", 8, "old", answer("msg_1", 2, 7, 4, words("prt_1", 7, "old"))))
			h.equal("result", r, store.ImportResult{Unchanged: 2})
			h.equal("rows", h.dump(s), before)
		})},
	{"Refused", "A message of another session is refused with its parts, and a part of another message.",
		with(func(h *harness, s Store) {
			h.importing(s, file("ses_1", 9, "t", answer("msg_1", 2, 3, 5, words("prt_1", 3, "one"))))
			before := encoded(h, h.transcript(s, "ses_1"))
			in := file("ses_2", 9, "t", answer("msg_1", 2, 9, 6, words("prt_2", 9, "two")),
				answer("msg_2", 3, 9, 7, words("prt_1", 9, "three")), answer("msg_3", 3, 9, 8))
			in.Decisions = []store.Decision{{ID: "dec_1", SessionID: "ses_1", ToolID: "bash", Action: "ask",
				DecidedAt: epoch}}
			r := h.importing(s, in)
			var where []string
			for _, refusal := range r.Refused {
				where = append(where, refusal.Where)
			}
			h.equal("refused", where, []string{"message msg_1", "part prt_1", "decision dec_1"})
			h.equal("the other session", encoded(h, h.transcript(s, "ses_1")), before)
			h.equal("the rest", visible(h.transcript(s, "ses_2")), []string{"msg_2", "msg_3"})
			h.equal("tokens", h.transcript(s, "ses_2").Session.TotalTokens, int64(15))
			h.equal("cost", h.transcript(s, "ses_2").Session.CostUSD, 15.0/4)
			h.dump(s)
			again := h.importing(s, in)
			h.equal("changed the second time", []any{again.Changed, again.Messages, again.Parts}, []any{false, 0, 0})
		})},
	{"Origin", "The spans and rewinds that come with a session count as those that telemetry reports: once each, " +
		"whichever is first, for what arrives late too.", func(h *harness) {
		in := file("ses_1", 9, "t", answer("msg_2", 20, 21, 5, words("prt_1", 21, "one")))
		in.Messages = slices.Insert(in.Messages, 0, session.MessageAndParts{Message: session.Message{
			ID: "msg_1", SessionID: "ses_1", Role: session.RoleUser, MetadataJSON: "{}", CreatedAt: epoch + 10,
			UpdatedAt: epoch + 10,
		}})
		first := turn("ses_1", "msg_2", "span_1", 20,
			store.TurnStats{Usage: &session.Usage{Input: 5}, Trace: session.MessageTrace{PendingApproval: true}})
		in.SpanRefs, in.Traces = []store.SpanRef{first}, []string{"0123456789abcdef0123456789abcdef"}
		later := link(turn("ses_1", "msg_2", "span_2", 30, store.TurnStats{Usage: &session.Usage{Input: 7}}))
		h.with(func(s Store) {
			h.equal("spans", h.importing(s, in).SpanRefs, 1)
			before := h.dump(s)
			r := h.importing(s, in)
			h.equal("the second time", []any{r.Changed, r.SpanRefs, len(r.Refused)}, []any{false, 0, 0})
			h.equal("rows after the second time", h.dump(s), before)
			h.apply(s, later)
			h.apply(s, link(first))
			h.equal("tokens", h.transcript(s, "ses_1").Session.TotalTokens, int64(12))
			h.equal("trace", h.resolve(s, "0123456789abcdef"), "ses_1")

			in.State = &store.State{Rewinds: []store.Rewind{{To: "msg_1", At: epoch + 50}}}
			h.importing(s, in)
			h.equal("seen", visible(h.transcript(s, "ses_1")), []string{"msg_1"})
			h.apply(s, assistant("ses_1", "msg_3", 40, 1))
			h.equal("seen of what came late", visible(h.transcript(s, "ses_1")), []string{"msg_1"})
			in.SpanRefs[0].SessionID = "ses_2"
			h.equal("refused", len(h.importing(s, in).Refused), 1)
		})
	}},
	{"NoTree", "Rows that make no tree are an error, and nothing of them is stored.", with(func(h *harness, s Store) {
		in := file("ses_1", 9, "t", answer("msg_1", 2, 3, 5, words("prt_1", 3, "one")))
		in.Messages[0].Parts[0].MessageID = "msg_2"
		if _, err := s.Import(context.Background(), in); err == nil || !strings.Contains(err.Error(), "ses_1") {
			h.Errorf("error %v", err)
		}
		h.equal("sessions", len(h.sessions(s, everything)), 0)
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
		rows := func(s Store) string { return encoded(h, h.transcript(s, "ses_1")) }
		var exported *store.Imported
		var want string
		h.with(func(s Store) {
			h.apply(s, first...)
			exported = &store.Imported{Transcript: h.transcript(s, "ses_1")}
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
	{"Compaction", "Tokens count from where the latest compaction puts it, also when telemetry goes on.",
		with(func(h *harness, s Store) {
			in := file("ses_1", 30, "t", answer("msg_1", 1, 1, 100), answer("msg_2", 2, 2, 10),
				answer("msg_3", 3, 3, 1, session.Part{
					ID: "prt_c", Type: session.TypeCompaction, CreatedAt: epoch + 3, UpdatedAt: epoch + 3,
					DataJSON: `{"type":"data-compaction",` +
						`"data":{"summary":"s","tail_start_id":"msg_2","auto":true,"summary_tokens":1}}`,
				}))
			in.Session.SetUsage(session.Usage{Input: 11})
			h.importing(s, in)
			h.equal("rows", encoded(h, h.transcript(s, "ses_1")), encoded(h, in.Transcript))
			h.apply(s, assistant("ses_1", "msg_4", 40, 5))
			h.equal("tokens", h.transcript(s, "ses_1").Session.TotalTokens, int64(16))
			h.importing(s, in)
			h.equal("tokens", h.transcript(s, "ses_1").Session.TotalTokens, int64(16))
			h.dump(s)
		})},
	{"Rewind", "An import shows no message that a rewind of telemetry hides.", with(func(h *harness, s Store) {
		in := file("ses_1", 30, "t", session.MessageAndParts{Message: session.Message{
			ID: "msg_1", Role: session.RoleUser, MetadataJSON: "{}", CreatedAt: epoch + 1, UpdatedAt: epoch + 1,
		}}, answer("msg_2", 2, 2, 10))
		h.apply(s, ofSession("ses_1", 50, store.SessionChange{Rewinds: []store.Rewind{{To: "msg_1", At: epoch + 45}}}))
		h.importing(s, in)
		h.equal("visible", visible(h.transcript(s, "ses_1")), []string{"msg_1"})
		before := h.dump(s)
		r := h.importing(s, in)
		h.equal("the second time", []any{r.Changed, r.Messages, h.dump(s)}, []any{false, 0, before})
	})},
}
