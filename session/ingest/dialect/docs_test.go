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
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_dialect_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(source), "// EXAMPLE:\n\n")
	example, _, found := strings.Cut(example, "\n// :EXAMPLE\n")
	if !found {
		t.Fatal("example_dialect_test.go has no part for the documentation")
	}
	want := string(page)
	for _, part := range []struct{ name, text string }{
		{"dialects", dialectList()},
		{"topics", topicTable() + remarkList()},
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
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
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

// form is that of a value of Capabilities: places with remarks, what a user must ask
// for last.
var form = func() *regexp.Regexp {
	const places = `(span|log)( \([^()]+\))?(, log( \([^()]+\))?)?`
	return regexp.MustCompile(`^(opt-in: )?` + places + `(; opt-in: ` + places + `)?$`)
}()

// TestCapabilities: dialects report their capabilities in the same words, and nothing of what
// they do not read.
func TestCapabilities(t *testing.T) {
	names := make(map[string]bool)
	for _, d := range append(slices.Clone(Table), acmeCoder) {
		if d.Name == "" || d.Title == "" || names[d.Name] {
			t.Errorf("%q (%s) has no name or title, or the name of another", d.Name, d.Title)
		}
		names[d.Name] = true
		if (d.Spans == nil) != (d.ReadSpan == nil) || (d.Records == nil) != (d.ReadRecord == nil) {
			t.Errorf("%s recognizes what it does not read, or the other way about", d.Name)
		}
		for topic, where := range d.Capabilities {
			if !slices.Contains(Topics, topic) {
				t.Errorf("%s reports %q, which is no topic", d.Name, topic)
			}
			if !form.MatchString(where) {
				t.Errorf("%s, %s: %q is not of the form %s", d.Name, topic, where, form)
			}
			places := remark.ReplaceAllString(where, "")
			if strings.Contains(places, "span") && d.Spans == nil || strings.Contains(places, "log") &&
				d.Records == nil {
				t.Errorf("%s, %s: %q, which it does not read", d.Name, topic, where)
			}
		}
		for _, topic := range []Topic{TopicSession, TopicTurn, TopicModel, TopicTokens} {
			if d.Capabilities[topic] == "" {
				t.Errorf("%s does not state where it reports the %s", d.Name, topic)
			}
		}
	}
	for i, topic := range Topics {
		if slices.Contains(Topics[:i], topic) {
			t.Errorf("%s is listed twice", topic)
		}
		if !slices.ContainsFunc(Table, func(d Dialect) bool { return d.Capabilities[topic] != "" }) {
			t.Errorf("no dialect reports the topic %s", topic)
		}
	}
}

// TestCapabilitiesAreWhatCapturesReport: what the captures of clients report of a topic, and
// where, their dialect states.
func TestCapabilitiesAreWhatCapturesReport(t *testing.T) {
	bodies, err := filepath.Glob("../testdata/captures/*/*/*.json")
	if err != nil || len(bodies) == 0 {
		t.Fatal("no captures", err)
	}
	for _, name := range bodies {
		body, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if traces, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(body); err == nil {
			for _, rs := range traces.ResourceSpans().All() {
				for _, ss := range rs.ScopeSpans().All() {
					for _, s := range ss.Spans().All() {
						checkCapabilities(t, "span", readSpan(s, ss.Scope(), rs.Resource()))
					}
				}
			}
		}
		if logs, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(body); err == nil {
			for _, rl := range logs.ResourceLogs().All() {
				for _, sl := range rl.ScopeLogs().All() {
					for _, r := range sl.LogRecords().All() {
						checkCapabilities(t, "log", readRecord(r, sl.Scope(), rl.Resource()))
					}
				}
			}
		}
	}
}

func checkCapabilities(t *testing.T, place string, got read) {
	t.Helper()
	i := slices.IndexFunc(Table, func(d Dialect) bool { return d.Name == got.dialect })
	for _, f := range got.facts {
		for topic, reported := range topicsOf(&f) {
			if reported && !strings.Contains(remark.ReplaceAllString(Table[i].Capabilities[topic], ""), place) {
				t.Errorf("%s reports the %s in a %s (%s), and states %q", got.dialect, topic, place, f.Name,
					Table[i].Capabilities[topic])
			}
		}
	}
}

// topicsOf returns the topics that a fact reports.
func topicsOf(f *fact.Fact) map[Topic]bool {
	has := func(parts []fact.Part, kind string) bool {
		return slices.ContainsFunc(parts, func(p fact.Part) bool { return p.Kind == kind })
	}
	reported := map[Topic]bool{
		TopicSession: f.Session != "", TopicTurn: f.Kind == fact.Turn || f.TurnID != "" && f.Kind != fact.Step,
		TopicModel: f.Model != nil && f.Model.ModelID != "", TopicText: has(f.Output, fact.PartText),
		TopicReasoning: has(f.Output, fact.PartReasoning), TopicPermission: f.Decision != nil,
		TopicCompaction: f.Kind == fact.Compaction, TopicPrompt: f.SystemPrompt != "",
		TopicCatalog: f.ToolCatalog != "",
		TopicCost:    f.CostUSD != nil, TopicFinish: f.Finish != "", TopicAbort: f.Aborted,
		TopicTitle: f.SessionAttrs != nil && f.SessionAttrs.Title != "",
	}
	for _, m := range f.Input {
		reported[TopicUser] = reported[TopicUser] || m.Role == "user" && has(m.Parts, fact.PartText)
	}
	if tool := f.Tool; tool != nil {
		reported[TopicToolInput], reported[TopicToolOutput], reported[TopicToolError] = tool.Input != nil,
			tool.Output != nil,
			f.Failed
	}
	if u := f.Usage; u != nil {
		reported[TopicTokens] = true
		reported[TopicCache], reported[TopicThinking] = u.Tokens.CacheRead+u.Tokens.CacheWrite > 0,
			u.Tokens.Reasoning > 0
	}
	return reported
}

func dialectList() string {
	var b strings.Builder
	b.WriteString("| name | client or convention | traces | logs |\n|---|---|---|---|\n")
	yes := func(ok bool) string {
		if ok {
			return "yes"
		}
		return ""
	}
	for _, d := range Table {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, d.Title, yes(d.Spans != nil), yes(d.Records != nil))
	}
	return b.String()
}

// topicTable has a column for each dialect, with S for a span and L for a log
// record, in brackets where a user must ask for it.
func topicTable() string {
	var b strings.Builder
	// The generic reading comes last, and finds whatever there is. A table of all others
	// would be too wide.
	clients := slices.DeleteFunc(slices.Clone(Table), func(d Dialect) bool { return d.Name == generic.Name })
	const columns = 8
	for some := range slices.Chunk(clients, columns) {
		b.WriteString("|")
		for _, d := range some {
			b.WriteString(" | " + d.Name)
		}
		b.WriteString(" |\n|---" + strings.Repeat("|---", len(some)) + "|\n")
		for _, topic := range Topics {
			b.WriteString("| " + string(topic))
			for _, d := range some {
				b.WriteString(" | " + short(d.Capabilities[topic]))
			}
			b.WriteString(" |\n")
		}
		b.WriteString("\n")
	}
	return b.String()
}

var remark = regexp.MustCompile(` \(([^()]+)\)`)

// short is a value of Capabilities in letters.
func short(where string) string {
	var letters []string
	for group := range strings.SplitSeq(remark.ReplaceAllString(where, "*"), "; ") {
		group, asked := strings.CutPrefix(group, "opt-in: ")
		for place := range strings.SplitSeq(group, ", ") {
			place = strings.NewReplacer("span", "S", "log", "L").Replace(place)
			if asked {
				place = "(" + strings.TrimSuffix(place, "*") + ")" + strings.Repeat("*", strings.Count(place, "*"))
			}
			letters = append(letters, place)
		}
	}
	if where == "" {
		return ""
	}
	return strings.ReplaceAll(strings.Join(letters, " "), "*", `\*`)
}

// remarkList has what the table only marks.
func remarkList() string {
	remarked := regexp.MustCompile(`(span|log) \(([^()]+)\)`)
	var b strings.Builder
	for _, d := range Table {
		for _, topic := range Topics {
			for _, m := range remarked.FindAllStringSubmatch(d.Capabilities[topic], -1) {
				fmt.Fprintf(&b, "- `%s`, %s, in the %s: %s\n", d.Name, topic, m[1], m[2])
			}
		}
	}
	return b.String()
}

func keyList() string {
	var b strings.Builder
	for i, key := range SessionKeys {
		fmt.Fprintf(&b, "%d. `%s`\n", i+1, key)
	}
	return b.String()
}
