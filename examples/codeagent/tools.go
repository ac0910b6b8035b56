package codeagent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
)

// tool is something the model can ask for.
type tool struct {
	name, description string
	kind              string          // semconv.ToolKind…
	parameters        json.RawMessage // JSON Schema
	subject           string          // the argument that permission patterns are matched with
	writes            bool            // not offered in plan mode
	call              func(ctx context.Context, a *agent, c toolCall) (string, error)
}

// define makes a tool of a function with typed arguments. Every argument is a
// field of T; schema describes them, "name: type, …" as JSON Schema properties.
func define[T any](t tool, properties string, call func(ctx context.Context, a *agent, c toolCall, args T) (string, error)) tool {
	t.parameters = json.RawMessage(`{"type":"object","properties":{` + properties + `}}`)
	t.call = func(ctx context.Context, a *agent, c toolCall) (string, error) {
		var args T
		d := json.NewDecoder(strings.NewReader(c.Function.Arguments))
		d.DisallowUnknownFields()
		if err := d.Decode(&args); err != nil {
			return "", fmt.Errorf("read arguments of %s: %w", t.name, err)
		}
		return call(ctx, a, c, args)
	}
	return t
}

var (
	listTool = define(tool{name: "list", description: "List the project's files.", kind: semconv.ToolKindSearch},
		``,
		func(_ context.Context, a *agent, _ toolCall, _ struct{}) (string, error) { return list(a.ws) })

	readTool = define(tool{name: "read", description: "Read a file. Give from to begin at a later line, counted from 1.", kind: semconv.ToolKindRead, subject: "path"},
		`"path":{"type":"string"},"from":{"type":"integer"}`,
		func(_ context.Context, a *agent, _ toolCall, args struct {
			Path string
			From int
		}) (string, error) {
			return read(a.ws, args.Path, args.From)
		})

	grepTool = define(tool{name: "grep", description: "Find the lines that match a regular expression.", kind: semconv.ToolKindSearch, subject: "pattern"},
		`"pattern":{"type":"string"}`,
		func(_ context.Context, a *agent, _ toolCall, args struct{ Pattern string }) (string, error) {
			return grep(a.ws, args.Pattern)
		})

	editTool = define(tool{name: "edit", description: "Replace text in a file. The old text must occur exactly once.", kind: semconv.ToolKindEdit, subject: "path", writes: true},
		`"path":{"type":"string"},"old":{"type":"string"},"new":{"type":"string"}`,
		func(_ context.Context, a *agent, c toolCall, args struct{ Path, Old, New string }) (string, error) {
			patch, err := edit(a.ws, args.Path, args.Old, args.New)
			if err == nil {
				a.patched(c, patch)
			}
			return patch, err
		})

	runTool = define(tool{name: "run", description: "Run a program in the project's directory. There is no shell.", kind: semconv.ToolKindExecute, subject: "command"},
		`"command":{"type":"string","description":"program and arguments, separated by spaces"}`,
		func(ctx context.Context, a *agent, _ toolCall, args struct{ Command string }) (string, error) {
			out, err := a.ws.run(ctx, args.Command)
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, out)
			}
			return out, err
		})
)

func list(w *workspace) (string, error) {
	var b strings.Builder
	err := w.walk(func(name string, d fs.DirEntry) error {
		info, err := d.Info()
		if err == nil {
			fmt.Fprintf(&b, "%6d %s\n", info.Size(), name)
		}
		return err
	})
	return b.String(), err
}

func read(w *workspace, name string, from int) (string, error) {
	content, err := w.root.ReadFile(path.Clean(name))
	if err != nil {
		return "", err
	}
	for ; from > 1; from-- {
		_, rest, found := bytes.Cut(content, []byte("\n"))
		if !found {
			return "", fmt.Errorf("%s ends before that line", name)
		}
		content = rest
	}
	return string(content), nil
}

func grep(w *workspace, pattern string) (string, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = w.walk(func(name string, _ fs.DirEntry) error {
		content, err := w.root.ReadFile(name)
		if err != nil || bytes.IndexByte(content, 0) >= 0 {
			return err
		}
		n := 0
		for line := range strings.Lines(string(content)) {
			if n++; re.MatchString(line) {
				fmt.Fprintf(&b, "%s:%d: %s\n", name, n, strings.TrimRight(line, "\r\n"))
			}
		}
		return nil
	})
	if err == nil && b.Len() == 0 {
		return "no line matches\n", nil
	}
	return b.String(), err
}

// edit replaces old, which must occur once, by replacement and returns the
// change as a patch.
func edit(w *workspace, name, old, replacement string) (string, error) {
	w.editing.Lock()
	defer w.editing.Unlock()
	name = path.Clean(name)
	info, err := w.root.Stat(name)
	if err != nil {
		return "", err
	}
	content, err := w.root.ReadFile(name)
	if err != nil {
		return "", err
	}
	text := string(content)
	if old == "" {
		return "", errors.New("old text is empty")
	}
	switch n := strings.Count(text, old); n {
	case 0:
		return "", fmt.Errorf("old text does not occur in %s: read the file and copy it exactly", name)
	case 1:
	default:
		return "", fmt.Errorf("old text occurs %d times in %s: give more of its surroundings", n, name)
	}
	at := strings.Index(text, old)
	after := text[:at] + replacement + text[at+len(old):]
	if err := w.root.WriteFile(name, []byte(after), info.Mode()); err != nil {
		return "", err
	}
	return patch(name, text, after), nil
}

// patch is the difference between two versions of a file that differ in one
// place, as a unified diff without context.
func patch(name, before, after string) string {
	a, b := lines(before), lines(after)
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	a, b = a[n:], b[n:]
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	var s strings.Builder
	fmt.Fprintf(&s, "--- a/%[1]s\n+++ b/%[1]s\n@@ -%[2]d,%[3]d +%[2]d,%[4]d @@\n", name, n+1, len(a), len(b))
	for _, line := range a {
		s.WriteString("-" + line)
	}
	for _, line := range b {
		s.WriteString("+" + line)
	}
	return s.String()
}

func lines(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			line += "\n\\ No newline at end of file\n"
		}
		all = append(all, line)
	}
	return all
}
