package codeagent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/agenttrace/agenttrace/agenttrace"
)

// tool is a tool that the model can call.
type tool struct {
	name, description string
	kind              agenttrace.ToolKind
	// properties are the arguments, as the properties of a JSON Schema.
	properties string
	// subject returns what permission patterns are matched against.
	subject func(arguments) string
	// call makes a call, which must not run before it is permitted.
	call func(context.Context, arguments) (string, error)
}

// arguments are those of all tools.
type arguments struct {
	Path, Pattern, Command, Old, New, Question string
	From                                       int
}

// read decodes the arguments of a call.
func (a *arguments) read(text string) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(a); err != nil {
		return fmt.Errorf("read arguments: %w", err)
	}
	return nil
}

// path is the subject of tools that work on a file, or on the whole project.
func (a arguments) path() string { return path.Clean(a.Path) }

// schema returns the JSON Schema of t's arguments.
func (t tool) schema() json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{` + t.properties + `}}`)
}

// readTools are the tools that change nothing.
func readTools(w *workspace) []tool {
	return []tool{
		{
			name: "list", description: "List the project's files with their sizes.", kind: agenttrace.ToolSearch,
			subject: arguments.path, call: func(context.Context, arguments) (string, error) { return list(w) },
		}, {
			name: "read", description: "Read a file, from a later line if from says so.", kind: agenttrace.ToolRead,
			properties: `"path":{"type":"string"},"from":{"type":"integer","description":"first line, counted from 1"}`,
			subject:    arguments.path,
			call:       func(_ context.Context, a arguments) (string, error) { return read(w, a.Path, a.From) },
		}, {
			name: "grep", description: "Find the lines that match a regular expression.", kind: agenttrace.ToolSearch,
			properties: `"pattern":{"type":"string"}`,
			subject:    func(a arguments) string { return a.Pattern },
			call:       func(_ context.Context, a arguments) (string, error) { return grep(w, a.Pattern) },
		},
	}
}

// runTool runs programs.
func runTool(w *workspace) tool {
	return tool{
		name: "run", description: "Run a program in the project's directory. There is no shell.",
		kind:       agenttrace.ToolExecute,
		properties: `"command":{"type":"string","description":"program and arguments, separated by spaces"}`,
		subject:    func(a arguments) string { return strings.Join(strings.Fields(a.Command), " ") },
		call: func(ctx context.Context, a arguments) (string, error) {
			printed, err := w.run(ctx, a.Command)
			if err == nil {
				return printed, nil
			}
			text, _, clipErr := w.clip(agenttrace.ToolFromContext(ctx).ID(), printed)
			if clipErr != nil {
				text = clipErr.Error()
			}
			return "", fmt.Errorf("%w\n%s", err, text)
		},
	}
}

// editTool changes files. A change becomes an artifact of the answer, with a reference to the call that made it.
func editTool(w *workspace) tool {
	return tool{
		name: "edit", description: "Replace text in a file. The old text must occur exactly once.",
		kind:       agenttrace.ToolEdit,
		properties: `"path":{"type":"string"},"old":{"type":"string"},"new":{"type":"string"}`,
		subject:    arguments.path,
		call: func(ctx context.Context, a arguments) (string, error) {
			patch, err := edit(w, a.Path, a.Old, a.New)
			if err != nil {
				return "", err
			}
			call := agenttrace.ToolFromContext(ctx)
			file, err := w.save("artifacts", call.ID(), ".patch", patch)
			if err != nil {
				return "", fmt.Errorf("save patch: %w", err)
			}
			agenttrace.TurnFromContext(ctx).Data("artifact", call.ID(), map[string]any{
				"path": file, "mime": "text/x-diff", "caption": "Change of " + a.Path, "tool_call_id": call.ID(),
				"source_code": fmt.Sprintf("edit(%q, %q, %q)", a.Path, a.Old, a.New), "content": patch,
			})
			return patch, nil
		},
	}
}

func list(w *workspace) (string, error) {
	var b strings.Builder
	err := w.walk(func(name string, content []byte) { fmt.Fprintf(&b, "%6d %s\n", len(content), name) })
	return b.String(), err
}

func read(w *workspace, name string, from int) (string, error) {
	content, err := w.root.ReadFile(path.Clean(name))
	if err != nil {
		return "", err
	}
	lines := strings.SplitAfter(string(content), "\n")
	if from > len(lines) {
		return "", fmt.Errorf("%s ends before that line", name)
	}
	return strings.Join(lines[max(0, from-1):], ""), nil
}

func grep(w *workspace, pattern string) (string, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = w.walk(func(name string, content []byte) {
		if bytes.IndexByte(content, 0) >= 0 {
			return // no text
		}
		n := 0
		for line := range strings.Lines(string(content)) {
			if n++; re.MatchString(line) {
				fmt.Fprintf(&b, "%s:%d: %s\n", name, n, strings.TrimRight(line, "\r\n"))
			}
		}
	})
	if err == nil && b.Len() == 0 {
		return "no line matches\n", nil
	}
	return b.String(), err
}

// edit replaces old, which must occur once, by replacement, and returns the change as a patch.
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
	switch n := strings.Count(string(content), old); {
	case old == "":
		return "", errors.New("old text is empty")
	case n == 0:
		return "", fmt.Errorf("old text does not occur in %s: read the file and copy it exactly", name)
	case n > 1:
		return "", fmt.Errorf("old text occurs %d times in %s: give more of its surroundings", n, name)
	}
	after := bytes.Replace(content, []byte(old), []byte(replacement), 1)
	if err := w.root.WriteFile(name, after, info.Mode()); err != nil {
		return "", err
	}
	change := string(diff.Diff("a/"+name, content, "b/"+name, after))
	w.patches = append(w.patches, change)
	return change, nil
}
