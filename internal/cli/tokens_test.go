package cli_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// stdoutTokens finds the number of tokens in what a transcript prints.
var stdoutTokens = map[string]*regexp.Regexp{
	"markdown": regexp.MustCompile(`(?m)^\| Tokens \| ([0-9,]+) \|$`),
	"html":     regexp.MustCompile(`<dt>Tokens</dt><dd>([0-9,]+)</dd>`),
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.ReplaceAll(text, ",", ""), 10, 64)
	testscale.Must(t, err)
	return n
}

// TestEveryReaderCountsTheSameTokens compares what the commands and the exports say of the tokens, turns, status and
// notices of each session of many sources: of the demo, of captures of agents, of transcripts and of other formats. One
// figure is computed here, of the rows, by nothing but the definition.
func TestEveryReaderCountsTheSameTokens(t *testing.T) {
	sources := []string{
		"../../session/testdata/reference.jsonl", "../../session/codec/transcripts/testdata/opencode",
		"../../session/codec/transcripts/testdata/gemini",
		"../../session/codec/formats/testdata/jutul/trace.sqlite", "../../session/codec/formats/testdata/agentdbg/data",
		"../../session/codec/formats/testdata/skillet/state",
	}
	captures, err := filepath.Glob("../../session/ingest/testdata/captures/*/*")
	if err != nil || len(captures) < 5 {
		t.Fatalf("%d captures, %v", len(captures), err)
	}
	for i, capture := range captures {
		if info, err := os.Stat(capture); err == nil && info.IsDir() && i%testscale.Rounds(8, 1) == 0 {
			sources = append(sources, capture)
		}
	}
	total := map[string]int64{"claude-code with a compaction": 2253}
	compare := func(name string, fill func(t *testing.T, store string)) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.db")
			fill(t, path)
			got := compareTokens(t, path)
			if want := total[name]; want != 0 && got != want {
				t.Errorf("%d tokens in all, want %d", got, want)
			}
		})
	}
	for _, source := range sources {
		compare(filepath.Base(filepath.Dir(source))+"/"+filepath.Base(source), func(t *testing.T, path string) {
			command(t, 0, "--store", path, "import", source)
		})
	}
	// Two calls of a model, a compaction of 2,694 tokens of context to 2,610, and one more call.
	compare("claude-code with a compaction", func(t *testing.T, path string) {
		command(t, 0, "--store", path, "import", "testdata/claude_compacted.otlp")
	})
	compare("demo, forked and rewound", func(t *testing.T, path string) {
		command(t, 0, "--store", path, "demo")
		command(t, 0, "--store", path, "fork", "last", "--turn", "3")
		command(t, 0, "--store", path, "rewind", "last", "--turn", "2")
	})
	compare("reference, with usage of every shape", func(t *testing.T, path string) {
		newStore(t, path, new(store.Batch))
		testscale.Script(t, path, string(testscale.ReadFile(t, "testdata/usage.sql")))
	})
	total["reference, with usage of every shape"] = 47 + 7 + 73 + 520 + 40 + 8
}

// hiddenTokens are the tokens of messages that a rewind hid.
func hiddenTokens(t *session.Transcript) int64 {
	visible := &session.Transcript{Session: t.Session}
	for _, m := range t.Messages {
		if m.Message.HiddenAt == nil {
			visible.Messages = append(visible.Messages, m)
		}
	}
	return definition(t) - definition(visible)
}

// compareTokens checks that all readers of a store agree, and returns the tokens of all sessions.
func compareTokens(t *testing.T, path string) (all int64) {
	t.Helper()
	at := func(args ...string) string { return command(t, 0, append([]string{"--store", path}, args...)...) }
	list := decode[[]struct {
		ID      string            `json:"id"`
		Total   int64             `json:"total_tokens"`
		Usage   session.Usage     `json:"usage"`
		Context int64             `json:"context_tokens"`
		Status  document.Activity `json:"status"`
		Notices int               `json:"notices"`
	}](t, at("ls", "--all", "--json"))
	if len(list) == 0 {
		t.Fatal("no sessions")
	}
	r := testscale.Open(t, sqlite.OpenReader, path)
	documented, turns, copied := documentedTokens(t, path), 0, false
	for _, s := range list {
		rows := storetest.Transcript(t, r, s.ID)
		want := definition(rows)
		all += want
		equal := func(reader string, got int64) {
			t.Helper()
			if got != want {
				t.Errorf("session %s: %s has %d tokens, the messages %d", s.ID, reader, got, want)
			}
		}
		equal("ls", s.Total)
		equal("ls by bucket", s.Usage.Total())
		if got := rows.Session.TotalTokens; s.Context != got {
			t.Errorf("session %s: ls has %d tokens in context, the row %d", s.ID, s.Context, got)
		}
		shown := decode[struct {
			Turns []struct {
				Usage    session.Usage `json:"usage"`
				Messages []struct {
					Usage  session.Usage `json:"usage"`
					Copied bool          `json:"copied"`
				} `json:"messages"`
			} `json:"turns"`
			Totals struct {
				Turns int
				Usage session.Usage `json:"usage"`
			} `json:"totals"`
			Status  document.Status
			Notices []any
		}](t, at("show", s.ID, "--json"))
		turns += shown.Totals.Turns
		copied = copied || rows.Session.ParentID != nil || hiddenTokens(rows) > 0
		code := 0
		if s.Status.Trouble() {
			code = 1
		}
		status := decode[document.Status](t, command(t, code, "--store", path, "status", s.ID, "--json"))
		if shown.Status.State != s.Status || status.State != s.Status || s.Notices != len(shown.Notices) {
			t.Errorf("session %s: ls reports %q and %d notices, show %q and %d, status %q", s.ID, s.Status, s.Notices,
				shown.Status.State, len(shown.Notices), status.State)
		}
		equal("show", shown.Totals.Usage.Total())
		var messages int64
		for _, turn := range shown.Turns {
			for _, m := range turn.Messages {
				if !m.Copied {
					messages += m.Usage.Total()
				}
			}
		}
		equal("show by message", messages)
		equal("csv", csvTokens(t, at("export", s.ID, "--format", "csv")))
		for format, pattern := range stdoutTokens {
			found := pattern.FindStringSubmatch(at("export", s.ID, "--format", format))
			if found == nil {
				if want != 0 {
					t.Errorf("session %s: %s has no tokens", s.ID, format)
				}
				continue
			}
			equal(format, number(t, found[1]))
		}
		exported := decode[session.Transcript](t, at("export", s.ID, "--format", "json"))
		if used := exported.Tokens().Used; used != nil || want != 0 {
			equal("json", used.Total())
		}
		invalid := slices.ContainsFunc(session.Check(rows), func(v session.Violation) bool {
			return v.Rule == "usage" || v.Rule == "metadata"
		})
		if !invalid {
			equal("the query of FORMAT.md", documented[s.ID])
		}
		difference := decode[struct {
			A struct {
				Usage session.Usage `json:"usage"`
			} `json:"a"`
		}](t, at("diff", s.ID, s.ID, "--json"))
		equal("diff", difference.A.Usage.Total())
	}
	for _, by := range []string{"", "day", "model", "agent"} {
		args := []string{"stats", "--json"}
		if by != "" {
			args = append(args, "--by", by)
		}
		stats := decode[struct {
			Total struct {
				Turns  int
				Tokens int64 `json:"total_tokens"`
			} `json:"total"`
			Groups []struct {
				Tokens int64 `json:"total_tokens"`
			} `json:"groups"`
		}](t, at(args...))
		sum := int64(0)
		for _, g := range stats.Groups {
			sum += g.Tokens
		}
		if stats.Total.Turns != turns && !copied {
			t.Errorf("stats by %q count %d turns, show %d", by, stats.Total.Turns, turns)
		}
		if stats.Total.Tokens != all || by != "" && sum != all {
			t.Errorf("stats by %q has %d tokens, its groups %d, the sessions %d", by, stats.Total.Tokens, sum, all)
		}
	}
	if got := csvTokens(t, at("export", "--all", "--format", "csv")); got != all {
		t.Errorf("csv of all sessions has %d tokens, the sessions %d", got, all)
	}
	return all
}

// documentedTokens runs the query that FORMAT.md has for the tokens of each session.
func documentedTokens(t *testing.T, path string) map[string]int64 {
	t.Helper()
	format := testscale.ReadFile(t, "../../session/store/sqlite/FORMAT.md")
	_, query, found := strings.Cut(string(format), "The tokens that each session used in all:\n\n```sql\n")
	query, _, ended := strings.Cut(query, "```")
	if !found || !ended {
		t.Fatal("FORMAT.md has no query for the tokens of sessions")
	}
	tokens := map[string]int64{}
	for _, row := range testscale.Query(t, path, strings.TrimSuffix(strings.TrimSpace(query), ";")) {
		id, n, _ := strings.Cut(row, "|")
		tokens[id] = number(t, n)
	}
	return tokens
}

func csvTokens(t *testing.T, text string) (sum int64) {
	t.Helper()
	table, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	testscale.Must(t, err)
	for at, name := range table[0] {
		for _, row := range table[1:] {
			if name == "total" && row[at] != "" {
				sum += number(t, row[at])
			}
		}
	}
	return sum
}

// definition counts the tokens that a session used from its rows: of the assistant's messages that are no copies,
// hidden or not, the five buckets; of a compaction, what its own call used.
func definition(rows *session.Transcript) (sum int64) {
	buckets := func(raw json.RawMessage, keys ...string) (sum int64) {
		var o map[string]json.RawMessage
		_ = json.Unmarshal(raw, &o)
		for _, key := range keys {
			if n, err := strconv.ParseInt(string(bytes.TrimSpace(o[key])), 10, 64); err == nil && n > 0 {
				sum += n
			}
		}
		return sum
	}
	five := []string{"input", "output", "reasoning", "cache_read", "cache_write"}
	for i := range rows.Messages {
		m := &rows.Messages[i]
		if m.Message.Role != "assistant" || rows.Session.ParentID != nil &&
			m.Message.CreatedAt < rows.Session.CreatedAt {
			continue
		}
		var metadata struct {
			Usage      json.RawMessage `json:"usage"`
			Compaction bool            `json:"compaction"`
			Trace      json.RawMessage `json:"agenttrace"`
		}
		_ = json.Unmarshal([]byte(m.Message.MetadataJSON), &metadata)
		marked := len(m.Parts) > 0
		for _, p := range m.Parts {
			marked = marked && p.Type == "data-compaction"
		}
		switch {
		case !metadata.Compaction && !marked, buckets(metadata.Usage, five[1:]...) > 0:
			sum += buckets(metadata.Usage, five...)
		default:
			var trace struct {
				Usage json.RawMessage `json:"usage"`
			}
			_ = json.Unmarshal(metadata.Trace, &trace)
			sum += buckets(trace.Usage, five...)
			if trace.Usage == nil {
				sum += buckets(metadata.Trace, "input_tokens", "output_tokens")
			}
		}
	}
	return sum
}
