package cli_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	zombie "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/sqlitefile"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// documentedQueries are the statements of all documentation, by where they stand.
func documentedQueries(t *testing.T) map[string]string {
	t.Helper()
	block := regexp.MustCompile("(?s)```sql\n(.*?)```")
	shell := regexp.MustCompile(`(?m)^\s*sqlite3 \S+ (?:'([^']+)'|"([^"]+)")`)
	found := map[string]string{}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == "node_modules" ||
			strings.HasPrefix(entry.Name(), ".") && len(entry.Name()) > 2):
			return fs.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range slices.Concat(block.FindAllSubmatchIndex(text, -1), shell.FindAllSubmatchIndex(text, -1)) {
			from, to := m[2], m[3]
			if from < 0 {
				from, to = m[4], m[5]
			}
			place := fmt.Sprintf("%s:%d", filepath.ToSlash(path), 1+strings.Count(string(text[:from]), "\n"))
			found[place] = strings.TrimSuffix(strings.TrimSpace(string(text[from:to])), ";")
		}
		return nil
	})
	if err != nil || len(found) < 12 {
		t.Fatalf("%d queries, %v", len(found), err)
	}
	return found
}

// world is what the answers are computed from: the sessions as the store's own reader has
// them, with which no query is asked.
type world struct {
	all   []*codec.Session // in the order of ls
	one   *codec.Session   // whose id stands in queries
	reply string           // and the id of one of its answers
	reads *sqlite.Reader
	t     *testing.T
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// at is a value at a path of keys in JSON, as SQLite prints it.
func at(text string, path ...string) string {
	value := json.RawMessage(text)
	for _, key := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) != nil {
			return ""
		}
		value = object[key]
	}
	var s string
	if len(value) == 0 || string(value) == "null" {
		return ""
	} else if json.Unmarshal(value, &s) == nil {
		return s
	}
	return string(value)
}

func failed(p *session.Part) bool {
	return session.CallFailed(text(p.ToolState), strings.Contains(p.DataJSON, `"denied":true`))
}

// parts calls fn for every part.
func (w *world) parts(fn func(s *codec.Session, p *session.Part)) {
	for _, s := range w.all {
		for i := range s.Messages {
			for j := range s.Messages[i].Parts {
				fn(s, &s.Messages[i].Parts[j])
			}
		}
	}
}

// replies calls fn for every answer of the one session.
func (w *world) replies(fn func(m *session.MessageAndParts)) {
	for i := range w.one.Messages {
		if m := &w.one.Messages[i]; m.Message.Role == session.RoleAssistant {
			fn(m)
		}
	}
}

// failedCalls are the failed calls with their traces, each once.
func (w *world) failedCalls() (rows []string) {
	w.parts(func(s *codec.Session, p *session.Part) {
		if !failed(p) {
			return
		}
		own, ofMessage := "", ""
		for _, l := range s.SpanRefs {
			if l.PartID == p.ID {
				own = max(own, l.TraceID)
			}
			if l.MessageID == p.MessageID {
				ofMessage = max(ofMessage, l.TraceID)
			}
		}
		rows = append(rows, row(s.Session.ID, p.Type, cmp.Or(own, ofMessage), at(p.DataJSON, "errorText")))
	})
	return rows
}

func row(values ...any) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, "|")
}

// answers computes what each query must find. The key is a piece of that query and of no
// other. Rows are compared without their order where a query sets none that is complete.
var answers = map[string]func(w *world) []string{
	"SELECT title, total_tokens AS context_tokens": func(w *world) (rows []string) {
		all := slices.Clone(w.all)
		slices.SortFunc(all, func(a, b *codec.Session) int {
			return cmp.Compare(b.Session.UpdatedAt, a.Session.UpdatedAt)
		})
		for _, s := range all[:5] {
			rows = append(rows, row(s.Session.Title, s.Session.Usage().Total()))
		}
		return rows
	},
	"SELECT dialect, kind, count(*) FROM observations": func(w *world) (rows []string) {
		counts := map[string]int{}
		for _, s := range w.all {
			sources, err := w.reads.SpanRefs(w.t.Context(), s.Session.ID)
			if err != nil {
				w.t.Fatal(err)
			}
			for _, l := range sources {
				if l.Dialect != "agenttrace" {
					counts[l.Dialect+"|"+l.Kind]++
				}
			}
		}
		for key, n := range counts {
			rows = append(rows, row(key, n))
		}
		pending, err := w.reads.Pending(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		return append(rows, row("parked", pending))
	},
	"SELECT m.role, p.type, p.tool_state, substr": func(w *world) (rows []string) {
		for i := range w.one.Messages {
			for _, p := range w.one.Messages[i].Parts {
				rows = append(rows, row(w.one.Messages[i].Message.Role, p.Type, text(p.ToolState),
					head(p.DataJSON, 100)))
			}
		}
		return rows
	},
	"unixepoch('now', '-1 day')":  (*world).failedCalls,
	"ORDER BY p.created_at, p.id": (*world).failedCalls,
	"SELECT id, title, agent, total_tokens, datetime": func(w *world) (rows []string) {
		for _, s := range w.all {
			if r := &s.Session; r.ArchivedAt == nil && r.ParentID == nil && len(rows) < 20 {
				rows = append(rows, row(r.ID, r.Title, r.Agent, r.Usage().Total(), date(r.UpdatedAt)))
			}
		}
		return rows
	},
	`SELECT m.role, p."index", p.type, p.tool_state`: func(w *world) (rows []string) {
		for i := range w.one.Messages {
			for _, p := range w.one.Messages[i].Parts {
				if w.one.Messages[i].Message.HiddenAt == nil {
					rows = append(rows, row(w.one.Messages[i].Message.Role, p.Index, p.Type, text(p.ToolState),
						head(p.DataJSON, 200)))
				}
			}
		}
		return rows
	},
	"'$.agenttrace.turn_index') AS turn, json_extract(metadata_json, '$.model.model_id')": func(w *world) (rows []string) {
		w.replies(func(m *session.MessageAndParts) {
			j := m.Message.MetadataJSON
			rows = append(rows, row(at(j, "agenttrace", "turn_index"), at(j, "model", "model_id"),
				at(j, "usage", "input"),
				at(j, "usage", "output"),
				at(j, "usage", "cache_read"), at(j, "agenttrace", "cost_usd")))
		})
		return rows
	},
	"WITH answers AS": func(w *world) (rows []string) {
		for _, s := range w.all {
			used := int64(0)
			counts := false
			for i := range s.Messages {
				m := &s.Messages[i]
				if m.Message.Role == session.RoleAssistant &&
					!(s.Session.ParentID != nil && m.Message.CreatedAt < s.Session.CreatedAt) {
					counts = true
					meta := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON))
					if u := meta.Tokens(m.Message.Role, m.IsMarker()).Used; u != nil {
						used += u.Total()
					}
				}
			}
			if counts {
				rows = append(rows, row(s.Session.ID, used))
			}
		}
		return rows
	},
	"p.digest, p.exact, length(p.body)": func(w *world) (rows []string) {
		w.replies(func(m *session.MessageAndParts) {
			turn, digest := at(m.Message.MetadataJSON, "agenttrace", "turn_index"),
				at(m.Message.MetadataJSON, "system_prompt_digest")
			for _, b := range w.one.Blobs {
				if b.Kind == store.BlobSystemPrompt && b.Digest == digest {
					rows = append(rows, row(turn, digest, 1, len([]rune(b.Body))))
					return
				}
			}
			rows = append(rows, row(turn, "", "", ""))
		})
		return rows
	},
	"count(*) AS failures": func(w *world) (rows []string) {
		count, example := map[string]int{}, map[string]string{}
		w.parts(func(_ *codec.Session, p *session.Part) {
			if failed(p) {
				count[p.Type]++
				example[p.Type] = max(example[p.Type], at(p.DataJSON, "errorText"))
			}
		})
		for kind, n := range count {
			rows = append(rows, row(kind, n, example[kind]))
		}
		return rows
	},
	"AS duration_ms\nFROM chat_parts": func(w *world) (rows []string) {
		type call struct {
			ms  int
			row string
		}
		var calls []call
		w.parts(func(s *codec.Session, p *session.Part) {
			if ms := at(p.DataJSON, "toolMetadata", "agenttrace", "duration_ms"); p.ToolCallID != nil && ms != "" {
				n := 0
				_, _ = fmt.Sscan(ms, &n)
				calls = append(calls, call{n, fmt.Sprint(n)})
			}
		})
		slices.SortFunc(calls, func(a, b call) int { return cmp.Compare(b.ms, a.ms) })
		for _, c := range calls[:10] {
			rows = append(rows, c.row)
		}
		return rows
	},
	"SELECT datetime(decided_at / 1000": func(w *world) (rows []string) {
		for _, d := range w.one.Decisions {
			if d.Action == "ask" || d.Outcome == "denied" {
				waited := ""
				if d.WaitedMS != nil {
					waited = fmt.Sprint(*d.WaitedMS)
				}
				rows = append(rows, row(date(d.DecidedAt), d.ToolID, d.Pattern, d.Action, d.Outcome, d.Reply, waited))
			}
		}
		return rows
	},
	"t.forked_from IS NOT NULL AS is_fork": func(w *world) (rows []string) {
		all := slices.Clone(w.all)
		slices.SortFunc(all, func(a, b *codec.Session) int {
			return cmp.Compare(a.Session.CreatedAt, b.Session.CreatedAt)
		})
		for _, s := range all {
			if r := &s.Session; text(r.ParentID) == w.one.Session.ID {
				fork := 0
				if s.State != nil && s.State.Fork != nil {
					fork = 1
				}
				rows = append(rows, row(r.ID, r.Title, r.Agent, fork))
			}
		}
		return rows
	},
	"SELECT kind, trace_id, span_id": func(w *world) (rows []string) {
		for _, l := range w.one.SpanRefs {
			if l.MessageID == w.reply {
				failed := 0
				if l.Error {
					failed = 1
				}
				rows = append(rows, row(l.Kind, l.TraceID, l.SpanID, (l.EndNano-l.StartNano)/1e6, failed))
			}
		}
		return rows
	},
	"HAVING sum(cache_read) = 0": func(w *world) (rows []string) {
		sums := map[string]session.Usage{}
		for _, s := range w.all {
			key := row(s.Session.Agent, at(text(s.Session.ModelJSON), "provider_id"))
			sums[key] = sums[key].Add(s.Session.Usage())
		}
		for key, u := range sums {
			if u.CacheRead == 0 && u.Input > 0 {
				rows = append(rows, row(key, u.Input, 0))
			}
		}
		return rows
	},
}

// TestDocumentedQueries: every query that documentation has gives the right answer, on a
// store of the example agent's sessions and of other agents'. A query that is added to the
// documentation needs an answer here.
func TestDocumentedQueries(t *testing.T) {
	path := manyAgents(t)
	plain := store.Batch{ // an agent that caches nothing
		Sessions: []store.SessionChange{{ID: "plain", Start: epoch, End: epoch, Agent: &store.Value{Text: "plain"},
			Model: &store.Value{Text: `{"provider_id":"openai"}`}}},
		Messages: []store.MessageChange{{ID: "plain-1", SessionID: "plain", Role: session.RoleAssistant,
			CreatedAt: epoch,
			UpdatedAt: epoch, Rank: store.RankFinal,
			Metadata: []byte(`{"usage":{"input":7,"output":1,"reasoning":0,"cache_read":0,"cache_write":0}}`)}},
	}
	if err := makeStore(path, &plain); err != nil {
		t.Fatal(err)
	}
	r, err := sqlite.OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w := &world{reads: r, t: t}
	for _, id := range sessionsOf(t, path) {
		s, err := sqlitefile.Read(t.Context(), r, id, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.all = append(w.all, s)
		// The one session has had its calls denied, was forked, and was compacted.
		if len(s.Decisions) > 5 && (w.one == nil || len(s.Decisions) > len(w.one.Decisions)) {
			w.one = s
		}
	}
	w.replies(func(m *session.MessageAndParts) { w.reply = cmp.Or(w.reply, m.Message.ID) })
	place := strings.NewReplacer("ses_1", w.one.Session.ID, "ses_…", w.one.Session.ID, "assistant-1", w.reply,
		"'now', '-1 day'", "'2020-01-01'")
	conn, err := zombie.OpenConn(path, zombie.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	used := map[string]bool{}
	for where, query := range documentedQueries(t) {
		var known string
		for piece := range answers {
			if strings.Contains(query, piece) {
				if known != "" {
					t.Fatalf("%s: %q and %q are both in it", where, known, piece)
				}
				known = piece
			}
		}
		if known == "" {
			t.Errorf("%s: no answer is known to\n%s", where, query)
			continue
		}
		used[known] = true
		var got []string
		err := sqlitex.ExecuteTransient(conn, place.Replace(query),
			&sqlitex.ExecOptions{ResultFunc: func(stmt *zombie.Stmt) error {
				var values []any
				for i := range stmt.ColumnCount() {
					values = append(values, stmt.ColumnText(i))
				}
				if strings.HasPrefix(known, "AS duration_ms") {
					values = values[2:] // calls that took as long may be others
				}
				got = append(got, row(values...))
				return nil
			}})
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		if strings.Contains(known, "FROM observations") { // those without a kind are of no session
			pending := 0
			got = slices.DeleteFunc(got, func(r string) bool {
				_, n, ok := strings.Cut(r, "||")
				count, _ := strconv.Atoi(n)
				pending += count
				return ok
			})
			got = append(got, row("parked", pending))
		}
		want := answers[known](w)
		if !strings.Contains(query, "created_at, ") && !strings.Contains(query, "LIMIT") ||
			strings.Contains(known, "p.created_at") {
			slices.Sort(want)
			slices.Sort(got)
		}
		if len(want) == 0 {
			t.Errorf("%s: the store has nothing that it could find", where)
		}
		if d := gocmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", where, d)
		}
	}
	for piece := range answers {
		if !used[piece] {
			t.Errorf("no documented query has %q", piece)
		}
	}

	// Sessions of every agent whose spans were taken have spans, and each span once.
	dialects := map[string]bool{}
	for _, s := range w.all {
		seen := map[string]bool{}
		for _, l := range s.SpanRefs {
			key := l.TraceID + l.SpanID
			if seen[key] {
				t.Errorf("session %s has span %s twice", s.Session.ID, l.SpanID)
			}
			seen[key] = true
			if l.MessageID != "" {
				dialects[l.Dialect] = true
			}
		}
	}
	for _, want := range []string{"agenttrace", "claude-code", "codex", "gemini-cli", "opencode", "ai-sdk", "gen-ai",
		"openinference"} {
		if !dialects[want] {
			t.Errorf("no message has a span of %s", want)
		}
	}
}

func head(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n])
	}
	return s
}

func date(milli int64) string { return time.UnixMilli(milli).UTC().Format(time.DateTime) }
