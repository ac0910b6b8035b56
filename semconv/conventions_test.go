package semconv_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/semconv"
)

var update = flag.Bool("update", false, "write CONVENTIONS.md")

const head = `# Conventions

The spans and events that agenttrace emits, and their attributes. The page is generated from package
` + "`semconv`" + ` (` + "`go test ./semconv -update`" + `).

Schema URL: ` + "`" + semconv.SchemaURL + "`" + `. Instrumentation scope: ` + "`" + semconv.ScopeName + "`" + `.

The group of a key is its origin: *floor* keys are those of the agent guide, *mirror* keys those of OpenTelemetry and
its GenAI conventions, and *own* keys are defined by agenttrace. A value of type *JSON string* is JSON text in a
string. Times are Unix milliseconds.
`

var spanDocs = []struct{ name, kind, doc string }{
	{semconv.SpanSessionRun, "INTERNAL", "A run: the time in which an agent works on a session.\n" +
		"With an operation other than run, a change of the session at one moment.\n" +
		"It has a link to the session's previous run."},
	{semconv.SpanSessionTurn, "INTERNAL", "A turn, from a user message to the finished answer.\n" +
		"A turn that waited for a person is two spans with the same index and messages."},
	{"chat {model}", "CLIENT", "A model call: a GenAI inference span. Its counts are included in those of its turn."},
	{semconv.SpanToolCall, "INTERNAL", "A tool call, from its announcement to its end. The turn lists it as a part " +
		"without data;\n" +
		"a call that is still open when its turn ends is listed with its data. If its result comes later,\n" +
		"a second span of the same part has it."},
	{semconv.SpanPermissionEvaluate, "INTERNAL",
		"A decision whether a tool call is allowed; a child of the call's span."},
	{semconv.SpanCompactionRun, "INTERNAL",
		"A compaction: in the model's context, a summary replaces the earlier messages of the session."},
}

const eventHead = `
## Events

A span is exported when it has ended. Work in progress is reported by events: log records of the same scope and schema
URL with an event name, the severity INFO, and the trace and span id of the current run or turn. Each event is a full
snapshot of what it describes, so losing, repeating or reordering events is harmless. Of two events about the same
thing the one with the later timestamp takes precedence; the timestamps of a session's events are unique. The span of a
thing takes precedence over all events about it.
`

var eventDocs = []struct{ name, doc string }{
	{semconv.EventSession, "A run began, or its session changed while the run is open."},
	{semconv.EventMessage, "A message began or its metadata changed.\n" +
		"A user message has its parts, and is sent before the model answers.\n" +
		"An assistant message has none; a session.turn span or events of the parts report them."},
	{semconv.EventPart, "A part of an assistant message began, grew or changed its state.\n" +
		"Growing text has the state streaming in its data.\n" +
		"It is sent at intervals, so its last words may be missing until it is complete."},
	{semconv.EventStatus, "The status of the session changed, or is repeated while a turn or a compaction is open.\n" +
		"If the process dies, the last status stays until the session is resumed, and is no longer repeated."},
}

func table(b *bytes.Buffer, name string) {
	b.WriteString("| key | type | unit | group | meaning | example |\n|---|---|---|---|---|---|\n")
	for _, a := range semconv.Attributes() {
		if slices.Contains(a.Spans, name) {
			fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | `%s` |\n",
				a.Key, a.Type, code(a.Unit), a.Group, cell(a.Doc), cell(a.Example))
		}
	}
}

func conventions() []byte {
	var b bytes.Buffer
	b.WriteString(head)
	for _, s := range spanDocs {
		fmt.Fprintf(&b, "\n## %s\n\nKind %s. %s\n\n", s.name, s.kind, s.doc)
		table(&b, s.name)
	}
	fmt.Fprintf(&b, "\n### %s\n\nAn event on a session.turn span: the agent repeats the same calls.\n\n",
		semconv.SpanEventLoopWarning)
	table(&b, semconv.SpanEventLoopWarning)
	fmt.Fprintf(&b, "\n### %s\n\nAn event on a span that a panic ended.\n\n", semconv.SpanEventException)
	table(&b, semconv.SpanEventException)
	b.WriteString(eventHead)
	for _, e := range eventDocs {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n", e.name, e.doc)
		table(&b, e.name)
	}
	b.WriteString("\n## Values\n\n| key | values | meaning |\n|---|---|---|\n")
	for _, e := range semconv.Enums() {
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", e.Key, strings.Join(e.Values, "`, `"), cell(e.Doc))
	}
	return b.Bytes()
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// cell escapes text for a table cell.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", `\n`).Replace(s)
}

func TestConventionsPageIsCurrent(t *testing.T) {
	want := conventions()
	if *update {
		if err := os.WriteFile("CONVENTIONS.md", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("CONVENTIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("CONVENTIONS.md differs from the package; run go test ./semconv -update (-package +page):\n%s", diff)
	}
}

func TestEveryAttributeIsDescribed(t *testing.T) {
	names := map[string]bool{semconv.SpanEventLoopWarning: true, semconv.SpanEventException: true}
	for _, s := range spanDocs {
		names[s.name] = true
	}
	for _, e := range eventDocs {
		names[e.name] = true
	}
	seen := make(map[string]bool)
	for _, a := range semconv.Attributes() {
		key := string(a.Key)
		if seen[key] {
			t.Errorf("%s is listed twice", key)
		}
		seen[key] = true
		if a.Example == "" || !strings.HasSuffix(a.Doc, ".") || len(a.Spans) == 0 {
			t.Errorf("%s lacks an example, a sentence or its spans: %+v", key, a)
		}
		for _, s := range a.Spans {
			if !names[s] {
				t.Errorf("%s is listed for the unknown span %q", key, s)
			}
		}
		own := strings.HasPrefix(key, "agenttrace.")
		if own != (a.Group == semconv.Own) {
			t.Errorf("%s is in group %s", key, a.Group)
		}
		checkExample(t, a)
	}
	for _, e := range semconv.Enums() {
		if !seen[e.Key] {
			t.Errorf("values of %s are listed, the key is not", e.Key)
		}
	}
}

func checkExample(t *testing.T, a semconv.Attribute) {
	t.Helper()
	var err error
	switch a.Type {
	case semconv.Int:
		_, err = strconv.ParseInt(a.Example, 10, 64)
	case semconv.Double:
		_, err = strconv.ParseFloat(a.Example, 64)
	case semconv.Bool:
		_, err = strconv.ParseBool(a.Example)
	}
	if err != nil {
		t.Errorf("the example of %s is no %s: %v", a.Key, a.Type, err)
	}
	for _, e := range semconv.Enums() {
		if e.Key == string(a.Key) && !slices.Contains(e.Values, a.Example) {
			t.Errorf("the example of %s is %q, none of %q", a.Key, a.Example, e.Values)
		}
	}
}

// TestEveryKeyConstantIsListed reads the sources, because a key that is not in the table is
// missing from CONVENTIONS.md.
func TestEveryKeyConstantIsListed(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "keys.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]bool)
	for _, a := range semconv.Attributes() {
		listed[string(a.Key)] = true
	}
	constants := make(map[string]string) // value by name
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			call, ok := spec.Values[i].(*ast.CallExpr)
			if !ok {
				t.Errorf("%s is not an attribute.Key", name)
				continue
			}
			value, err := strconv.Unquote(call.Args[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			constants[name.Name] = value
			if !listed[value] {
				t.Errorf("%s = %q is not in Attributes", name, value)
			}
		}
		return true
	})
	if len(constants) != len(listed) {
		t.Errorf("%d constants, %d keys listed", len(constants), len(listed))
	}

	used := keysUsed(t, filepath.Join("..", "spans"))
	for name := range used {
		if _, ok := constants[name]; !ok {
			t.Errorf("package spans uses semconv.%s, which keys.go does not define", name)
		}
	}
	for name := range constants {
		if !used[name] && name != "ReplayKey" { // package session/ingest/replay uses it
			t.Errorf("semconv.%s is used by no record of package spans", name)
		}
	}
}

// keysUsed returns the key constants of semconv that the sources of a package use.
func keysUsed(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && strings.HasSuffix(sel.Sel.Name, "Key") {
				if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "semconv" {
					used[sel.Sel.Name] = true
				}
			}
			return true
		})
	}
	return used
}
