package semconv_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
)

func TestEveryAttributeIsDescribed(t *testing.T) {
	names := []string{
		semconv.SpanSessionRun, semconv.SpanSessionTurn, "chat {model}", semconv.SpanToolCall, semconv.SpanCompactionRun,
		semconv.SpanPermissionEvaluate, semconv.SpanEventLoopWarning, semconv.SpanEventException, semconv.EventSession,
		semconv.EventMessage, semconv.EventPart, semconv.EventStatus, semconv.EventEvaluation,
	}
	seen := make(map[string]bool)
	for _, a := range testscale.Attributes() {
		key := string(a.Key)
		if seen[key] {
			t.Errorf("%s is listed twice", key)
		}
		seen[key] = true
		if a.Example == "" || !strings.HasSuffix(a.Doc, ".") || len(a.Spans) == 0 {
			t.Errorf("%s lacks an example, a sentence or its spans: %+v", key, a)
		}
		for _, s := range a.Spans {
			if !slices.Contains(names, s) {
				t.Errorf("%s is listed for the unknown span %q", key, s)
			}
		}
		own := strings.HasPrefix(key, "agenttrace.")
		if own != (a.Group == "own") {
			t.Errorf("%s is in group %s", key, a.Group)
		}
		checkExample(t, a)
	}
}

// TestAnAttributeIsTheSameInEveryTable reads the page, which repeats the row of an attribute for each of its spans.
func TestAnAttributeIsTheSameInEveryTable(t *testing.T) {
	page := testscale.ReadFile(t, "CONVENTIONS.md")
	attributes, _, _ := strings.Cut(string(page), "\n## Values\n")
	if !strings.Contains(attributes, semconv.SchemaURL) || !strings.Contains(attributes, "`"+semconv.ScopeName+"`") {
		t.Error("the page has another schema URL or scope")
	}
	rows := make(map[string]string)
	for line := range strings.Lines(attributes) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		key := strings.Fields(line)[1]
		if have := rows[key]; have != "" && have != line {
			t.Errorf("%s has two rows:\n%s%s", key, have, line)
		}
		if rows[key] = line; strings.Count(line, " | ") != 5 {
			t.Errorf("%s does not have six columns", key)
		}
	}
}

// TestEveryValueIsListed reads the sources, because a value that no table has is missing from the page.
func TestEveryValueIsListed(t *testing.T) {
	var listed []string
	for _, a := range testscale.Attributes() {
		listed = append(listed, a.Values...)
	}
	for name, value := range constantsOf(t, "enums.go") {
		if !slices.Contains(listed, value) && !strings.HasPrefix(name, "ErrorType") && name != "AbortedByRestart" {
			t.Errorf("%s = %q is not among the values of the page", name, value)
		}
	}
}

// constantsOf returns the texts of the constants in a file by their names.
func constantsOf(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	testscale.Must(t, err)
	constants := make(map[string]string)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			value := spec.Values[i]
			if call, ok := value.(*ast.CallExpr); ok { // attribute.Key("…")
				value = call.Args[0]
			}
			text, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			testscale.Must(t, err)
			constants[name.Name] = text
		}
		return true
	})
	return constants
}

func checkExample(t *testing.T, a testscale.Attribute) {
	t.Helper()
	var err error
	switch a.Type {
	case "int":
		_, err = strconv.ParseInt(a.Example, 10, 64)
	case "double":
		_, err = strconv.ParseFloat(a.Example, 64)
	case "boolean":
		_, err = strconv.ParseBool(a.Example)
	}
	if err != nil {
		t.Errorf("the example of %s is no %s: %v", a.Key, a.Type, err)
	}
	if a.Values != nil && !slices.Contains(a.Values, a.Example) {
		t.Errorf("the example of %s is %q, none of %q", a.Key, a.Example, a.Values)
	}
}

// TestEveryKeyConstantIsListed reads the sources, because a key that is not in the table is
// missing from CONVENTIONS.md.
func TestEveryKeyConstantIsListed(t *testing.T) {
	listed := make(map[string]bool)
	for _, a := range testscale.Attributes() {
		listed[string(a.Key)] = true
	}
	constants := constantsOf(t, "keys.go")
	for name, value := range constants {
		if !listed[value] {
			t.Errorf("%s = %q is not in CONVENTIONS.md", name, value)
		}
	}
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
		if !used[name] && name != "ReplayKey" { // package session/ingest uses it
			t.Errorf("semconv.%s is used by no record of package spans", name)
		}
	}
}

// keysUsed returns the key constants of semconv that the sources of a package use.
func keysUsed(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	testscale.Must(t, err)
	used := make(map[string]bool)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		testscale.Must(t, err)
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
