package formats_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
)

// suite is a format as the conformance suite takes it, with what every format promises.
// What one promises besides is in its own package.
func suite(f *formats.Format) codectest.Codec {
	source := func(s *codec.Session) *formats.Source {
		return &formats.Source{Session: s, Full: true, Input: document.Input{
			Transcript: s.Transcript, Decisions: s.Decisions, SpanRefs: s.SpanRefs, Blobs: s.Blobs,
		}}
	}
	c := codectest.Codec{Name: f.Name, Rounds: 6, Slow: true, Basic: true, Complete: f.Complete, Foreign: !f.Complete,
		ReadElsewhere: strings.HasPrefix(f.Name, "otlp-")} // by package ingest
	if f.Explain != nil {
		c.Explain = func(s *codec.Session) []codec.Loss { return f.Explain(source(s)) }
	}
	path := func(dir string) string { return filepath.Join(dir, "file"+f.Ext) }
	switch {
	case f.Stream != nil:
		c.Encode = func(w io.Writer, s *codec.Session) error { return f.Stream(w)(source(s)) }
	case f.Store != nil:
		c.EncodeFile = func(dir string, all []*codec.Session) error {
			return f.Store(context.Background(), path(dir), func(yield func(*codec.Session, error) bool) {
				for _, s := range all {
					if !yield(s, nil) {
						return
					}
				}
			}, nil)
		}
	case f.File != nil:
		c.EncodeFile = func(dir string, all []*codec.Session) error { return f.File(path(dir), source(all[0])) }
	}
	if c.Encode != nil {
		c.Decode = f.Decode
	} else if c.EncodeFile != nil && f.DecodeFile != nil {
		c.DecodeFile = func(dir string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
			return f.DecodeFile(context.Background(), path(dir), nil, report)
		}
	}
	return c
}

// TestEveryFormatKeepsThePromisesOfAll: a format that is listed is tested.
func TestEveryFormatKeepsThePromisesOfAll(t *testing.T) {
	for i := range formats.All {
		f := &formats.All[i]
		t.Run(f.Name, func(t *testing.T) { codectest.Run(t, suite(f)) })
	}
}

// TestEveryFormatIsWhole: what help says that a format can do, it can.
func TestEveryFormatIsWhole(t *testing.T) {
	names := make(map[string]bool)
	for i := range formats.All {
		f := &formats.All[i]
		if names[f.Name] {
			t.Errorf("two formats have the name %s", f.Name)
		}
		names[f.Name] = true
		if writes := f.Stream != nil || f.File != nil || f.Store != nil; writes != f.Written() ||
			writes && (f.Explain == nil || f.Ext == "") {
			t.Errorf("%s is described as %q, but what writes and explains it, and its extension, are not all there",
				f.Name,
				f.Exported)
		}
		reads := f.Decode != nil || f.DecodeFile != nil || f.Telemetry
		if reads != (f.Imported != "") || reads && (f.Extensions == nil || f.SniffText == nil && f.SniffKeys == nil &&
			f.Tables == nil) {
			t.Errorf("%s is described as %q, but what reads and recognizes it, and its extensions, are not all there",
				f.Name,
				f.Imported)
		}
	}
}

// TestEveryPackageIsListed: a package with a reader or a writer of sessions that no format
// uses would be one that nothing tests.
func TestEveryPackageIsListed(t *testing.T) {
	uses := make(map[string]bool) // of what the table names
	table, err := parser.ParseFile(token.NewFileSet(), "formats.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(table, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if pkg, ok := s.X.(*ast.Ident); ok {
				uses[pkg.Name] = true
			}
		}
		return true
	})
	packages, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages {
		if !p.IsDir() || slices.Contains([]string{"codectest", "formats", "internal"}, p.Name()) {
			continue
		}
		files, err := filepath.Glob(filepath.Join("..", p.Name(), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if name := codecIn(t, file); name != "" && !uses[p.Name()] {
				t.Errorf("package %s has %s, and no format of the list uses it", p.Name(), name)
			}
		}
	}
}

// codecIn is the name of an exported function of a file that reads or writes sessions, if
// there is one.
func codecIn(t *testing.T, path string) (found string) {
	if strings.HasSuffix(path, "_test.go") {
		return ""
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil || !f.Name.IsExported() {
			continue
		}
		for _, verb := range []string{"Encode", "Decode", "Write", "Read", "Recover"} {
			if strings.HasPrefix(f.Name.Name, verb) {
				return f.Name.Name
			}
		}
	}
	return ""
}

// The first record that is of a format decides, whatever is quoted or mixed into the file after it,
// and records before it that nothing is known by are passed over.
func TestFirstRecordOfAFormatDecides(t *testing.T) {
	const claude = `{"type":"user","uuid":"u","sessionId":"s","message":{"role":"user","content":"x"}}`
	const protocol = `{"jsonrpc":"2.0","id":1,"method":"session/prompt"}`
	const skillet = `{"kind":"user_message","text":"x"}`
	for text, want := range map[string]string{
		claude + "\n" + protocol + "\n" + skillet:              "claude-code",
		protocol + "\n" + claude:                               "acp",
		`{"x":1}` + "\n{\"damaged\n" + skillet + "\n" + claude: "skillet",
		`{"x":1}`: "",
		`{"session":{"id":"` + strings.Repeat("x", 1000): "json",
	} {
		name := ""
		if f := formats.OfText([]byte(text)); f != nil {
			name = f.Name
		}
		if name != want {
			t.Errorf("%.60s: %q, want %q", text, name, want)
		}
	}
}
