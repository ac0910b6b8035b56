package dialect

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// read is what a dialect gave of a span or record.
type read struct {
	dialect string
	facts   []fact.Fact
}

func readSpan(s ptrace.Span, scope pcommon.InstrumentationScope, resource pcommon.Resource) read {
	span := NewSpan(s, scope, resource)
	d := OfSpan(&span)
	if d == nil {
		return read{}
	}
	var facts Emitter
	facts.OpenSpan(d, &span, NewKeys(nil))
	d.ReadSpan(&span, &facts)
	return read{d.Name, facts.All}
}

func readRecord(r plog.LogRecord, scope pcommon.InstrumentationScope, resource pcommon.Resource) read {
	record := NewRecord(r, scope, resource)
	d := OfRecord(&record)
	if d == nil {
		return read{}
	}
	var facts Emitter
	facts.OpenRecord(d, &record, NewKeys(nil))
	d.ReadRecord(&record, &facts)
	return read{d.Name, facts.All}
}

// TestDocumentation: what docs/dialects.md has of the table, of the keys and of
// the example is what the code has. Each part is between marks.
func TestDocumentation(t *testing.T) {
	name := filepath.Join("..", "..", "..", "docs", "dialects.md")
	page := testscale.ReadFile(t, name)
	source, err := os.ReadFile("example_dialect_test.go")
	testscale.Must(t, err)
	_, example, _ := strings.Cut(string(source), "// EXAMPLE:\n\n")
	example, _, found := strings.Cut(example, "\n// :EXAMPLE\n")
	if !found {
		t.Fatal("example_dialect_test.go has no part for the documentation")
	}
	want := string(page)
	for _, part := range []struct{ name, text string }{
		{"dialects", dialectList(string(page))},
		{"keys", keyList()},
		{"example", "```go\n" + example + "```\n"},
	} {
		begin, end := "<!-- begin "+part.name+" -->\n", "<!-- end "+part.name+" -->\n"
		head, rest, ok := strings.Cut(want, begin)
		_, tail, closed := strings.Cut(rest, end)
		if !ok || !closed {
			t.Fatalf("%s has no %q and %q", name, begin, end)
		}
		want = head + begin + part.text + end + tail
	}
	if *update {
		testscale.Must(t, os.WriteFile(name, []byte(want), 0o644))
	} else if diff := cmp.Diff(want, string(page)); diff != "" {
		t.Errorf("docs/dialects.md is not what the code has; run go test ./session/ingest/dialect -run "+
			"Documentation -update (-code +page):\n%s",
			diff)
	}
	for i, line := range strings.Split(want, "\n") {
		if n := utf8.RuneCountInString(line); n > 150 {
			t.Errorf("line %d of docs/dialects.md is %d columns wide, the limit is 150", i+1, n)
		}
	}
}

// topics are what a session needs to know from its source, in the order of the page's tables.
var topics = []string{"session id", "turn", "user text", "assistant text", "reasoning", "tool input", "tool output",
	"tool error", "permission", "compaction", "system prompt", "tool catalog", "model", "tokens", "cache tokens",
	"reasoning tokens", "cost", "finish reason", "abort", "title"}

// reports are the tables of docs/dialects.md: where a dialect reports a topic, by dialect and topic.
func reports(t *testing.T) map[string]map[string]string {
	t.Helper()
	page := testscale.ReadFile(t, filepath.Join("..", "..", "..", "docs", "dialects.md"))
	_, text, _ := strings.Cut(string(page), "\n## What each reports\n")
	text, _, _ = strings.Cut(text, "\n### ")
	all := make(map[string]map[string]string)
	var names []string
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch topic := cells[0]; {
		case !strings.HasPrefix(line, "|"), strings.HasPrefix(topic, "-"):
		case topic == "":
			names = cells[1:]
			for _, name := range names {
				all[name] = make(map[string]string)
			}
		default:
			for i, name := range names {
				all[name][topic] = cells[i+1]
			}
		}
	}
	return all
}

// where is what a cell of the tables may have: spans and records, in brackets where a user must ask for them.
var where = regexp.MustCompile(`^(\(?S\)?(\\\*)?)?( ?\(?L\)?(\\\*)?)?$|^\(?L\)?(\\\*)?( \(S\)(\\\*)?)$`)

// TestTables: the tables of the page have every dialect and topic, and nothing of what is not read.
func TestTables(t *testing.T) {
	all := reports(t)
	names := make(map[string]bool)
	for _, d := range append(slices.Clone(Table), acmeCoder) {
		if d.Name == "" || names[d.Name] {
			t.Errorf("%q is no name, or the name of another", d.Name)
		}
		names[d.Name] = true
		if (d.Spans == nil) != (d.ReadSpan == nil) || (d.Records == nil) != (d.ReadRecord == nil) {
			t.Errorf("%s recognizes what it does not read, or the other way about", d.Name)
		}
		if d.Name == Generic || d.Name == acmeCoder.Name {
			continue // the former finds whatever there is
		}
		if len(all[d.Name]) != len(topics) {
			t.Errorf("%s has %d topics in docs/dialects.md, want %d", d.Name, len(all[d.Name]), len(topics))
		}
		for _, topic := range topics {
			cell, has := all[d.Name][topic]
			if !has || !where.MatchString(cell) || strings.Contains(cell, "S") && d.Spans == nil ||
				strings.Contains(cell, "L") && d.Records == nil {
				t.Errorf("%s, %s: %q, which is missing, of another form, or not read", d.Name, topic, cell)
			}
		}
		for _, topic := range []string{"session id", "turn", "model", "tokens"} {
			if all[d.Name][topic] == "" {
				t.Errorf("docs/dialects.md does not state where %s reports the %s", d.Name, topic)
			}
		}
	}
}

// TestTablesAreWhatCapturesReport: what the captures of clients report of a topic, and where, the page states.
func TestTablesAreWhatCapturesReport(t *testing.T) {
	all := reports(t)
	bodies, err := filepath.Glob("../testdata/captures/*/*/*.json")
	if err != nil || len(bodies) == 0 {
		t.Fatal("no captures", err)
	}
	for _, name := range bodies {
		body := testscale.ReadFile(t, name)
		if traces, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(body); err == nil {
			for _, rs := range traces.ResourceSpans().All() {
				for _, ss := range rs.ScopeSpans().All() {
					for _, s := range ss.Spans().All() {
						checkReports(t, all, "S", readSpan(s, ss.Scope(), rs.Resource()))
					}
				}
			}
		}
		if logs, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(body); err == nil {
			for _, rl := range logs.ResourceLogs().All() {
				for _, sl := range rl.ScopeLogs().All() {
					for _, r := range sl.LogRecords().All() {
						checkReports(t, all, "L", readRecord(r, sl.Scope(), rl.Resource()))
					}
				}
			}
		}
	}
}

func checkReports(t *testing.T, all map[string]map[string]string, place string, got read) {
	t.Helper()
	for _, f := range got.facts {
		for topic, reported := range topicsOf(&f) {
			if reported && got.dialect != Generic && !strings.Contains(all[got.dialect][topic], place) {
				t.Errorf("%s reports the %s in %s (%s), and the page states %q", got.dialect, topic, place, f.Name,
					all[got.dialect][topic])
			}
		}
	}
}

// topicsOf returns the topics that a fact reports.
func topicsOf(f *fact.Fact) map[string]bool {
	has := func(parts []fact.Part, kind string) bool {
		return slices.ContainsFunc(parts, func(p fact.Part) bool { return p.Kind == kind })
	}
	reported := map[string]bool{
		"session id": f.Session != "", "turn": f.Kind == fact.Turn || f.TurnID != "" && f.Kind != fact.Step,
		"model": f.Model != nil && f.Model.ModelID != "", "assistant text": has(f.Output, fact.PartText),
		"reasoning": has(f.Output, fact.PartReasoning), "permission": f.Decision != nil,
		"compaction": f.Kind == fact.Compaction, "system prompt": f.SystemPrompt != "",
		"tool catalog": f.ToolCatalog != "",
		"cost":         f.CostUSD != nil, "finish reason": f.Finish != "", "abort": f.Aborted,
		"title": f.SessionAttrs != nil && f.SessionAttrs.Title != "",
	}
	for _, m := range f.Input {
		reported["user text"] = reported["user text"] || m.Role == "user" && has(m.Parts, fact.PartText)
	}
	if tool := f.Tool; tool != nil {
		reported["tool input"], reported["tool output"], reported["tool error"] = tool.Input != nil,
			tool.Output != nil,
			f.Failed
	}
	if u := f.Usage; u != nil {
		reported["tokens"] = true
		reported["cache tokens"], reported["reasoning tokens"] = u.Tokens.CacheRead+u.Tokens.CacheWrite > 0,
			u.Tokens.Reasoning > 0
	}
	return reported
}

// dialectList is the list of the page, which alone has what people call a client or convention.
func dialectList(page string) string {
	var b strings.Builder
	b.WriteString("| name | client or convention | traces | logs |\n|---|---|---|---|\n")
	yes := func(ok bool) string {
		if ok {
			return "yes"
		}
		return ""
	}
	for _, d := range Table {
		_, row, _ := strings.Cut(page, "\n| `"+d.Name+"` | ")
		title, _, _ := strings.Cut(row, " |")
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, title, yes(d.Spans != nil), yes(d.Records != nil))
	}
	return b.String()
}

func keyList() string {
	var b strings.Builder
	for i, key := range SessionKeys() {
		fmt.Fprintf(&b, "%d. `%s`\n", i+1, key)
	}
	return b.String()
}
