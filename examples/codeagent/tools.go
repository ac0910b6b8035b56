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

	"github.com/agenttrace/agenttrace/agenttrace"
)

// tool is a tool that the model can call.
type tool struct {
	name, description string
	kind              agenttrace.ToolKind
	// properties are the arguments, as the properties of a JSON Schema.
	properties string
	// bind decodes the arguments. It returns the subject that permission patterns are
	// matched against, and a function that makes the call, which must not run before it
	// is permitted.
	bind func(arguments string) (subject string, call func(context.Context) (string, error), err error)
}

// define completes t with a function with typed arguments.
func define[T any](t tool, subject func(T) string, call func(context.Context, T) (string, error)) tool {
	t.bind = func(arguments string) (string, func(context.Context) (string, error), error) {
		var args T
		d := json.NewDecoder(strings.NewReader(arguments))
		d.DisallowUnknownFields()
		if err := d.Decode(&args); err != nil {
			return "", nil, fmt.Errorf("read arguments: %w", err)
		}
		return subject(args), func(ctx context.Context) (string, error) { return call(ctx, args) }, nil
	}
	return t
}

// schema returns the JSON Schema of t's arguments.
func (t tool) schema() json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{` + t.properties + `}}`)
}

// readTools are the tools that change nothing.
func readTools(w *workspace) []tool {
	type file struct {
		Path string
		From int
	}
	type search struct{ Pattern string }
	return []tool{
		define(tool{
			name: "list", description: "List the project's files with their sizes.", kind: agenttrace.ToolSearch,
		},
			func(struct{}) string { return "." },
			func(context.Context, struct{}) (string, error) { return list(w) }),

		define(tool{
			name: "read", description: "Read a file, from a later line if from says so.", kind: agenttrace.ToolRead,
			properties: `"path":{"type":"string"},"from":{"type":"integer","description":"first line, counted from 1"}`,
		},
			func(args file) string { return path.Clean(args.Path) },
			func(_ context.Context, args file) (string, error) { return read(w, args.Path, args.From) }),

		define(tool{
			name: "grep", description: "Find the lines that match a regular expression.", kind: agenttrace.ToolSearch,
			properties: `"pattern":{"type":"string"}`,
		},
			func(args search) string { return args.Pattern },
			func(_ context.Context, args search) (string, error) { return grep(w, args.Pattern) }),
	}
}

// runTool runs programs.
func runTool(w *workspace) tool {
	type command struct{ Command string }
	return define(tool{
		name: "run", description: "Run a program in the project's directory. There is no shell.",
		kind:       agenttrace.ToolExecute,
		properties: `"command":{"type":"string","description":"program and arguments, separated by spaces"}`,
	},
		func(args command) string { return strings.Join(strings.Fields(args.Command), " ") },
		func(ctx context.Context, args command) (string, error) {
			printed, err := w.run(ctx, args.Command, commandLimit)
			if err == nil {
				return printed, nil
			}
			out, clipErr := w.clip(agenttrace.ToolFromContext(ctx).ID(), printed)
			if clipErr != nil {
				out.text = clipErr.Error()
			}
			return "", fmt.Errorf("%w\n%s", err, out.text)
		})
}

// editTool changes files. A change becomes an artifact of the answer, with a reference to
// the call that made it.
func editTool(w *workspace) tool {
	type change struct{ Path, Old, New string }
	return define(tool{
		name: "edit", description: "Replace text in a file. The old text must occur exactly once.",
		kind:       agenttrace.ToolEdit,
		properties: `"path":{"type":"string"},"old":{"type":"string"},"new":{"type":"string"}`,
	},
		func(args change) string { return path.Clean(args.Path) },
		func(ctx context.Context, args change) (string, error) {
			patch, err := edit(w, args.Path, args.Old, args.New)
			if err != nil {
				return "", err
			}
			call := agenttrace.ToolFromContext(ctx)
			file, err := w.save("artifacts", call.ID(), ".patch", patch)
			if err != nil {
				return "", fmt.Errorf("save patch: %w", err)
			}
			agenttrace.TurnFromContext(ctx).Data("artifact", call.ID(), map[string]any{
				"path": file, "mime": "text/x-diff", "caption": "Change of " + args.Path,
				"tool_call_id": call.ID(),
				"source_code":  fmt.Sprintf("edit(%q, %q, %q)", args.Path, args.Old, args.New),
				"content":      patch,
			})
			return patch, nil
		})
}

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

// edit replaces old, which must occur once, by replacement, and returns the change as a
// patch.
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
	change := patch(name, text, after)
	w.patches = append(w.patches, change)
	return change, nil
}

// patch returns a unified diff without context of two versions of a file that differ in
// one place.
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
