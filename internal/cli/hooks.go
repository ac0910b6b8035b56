package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/importer"
)

// hook is a setting by which a client calls a command when something of a session has ended.
type hook struct {
	// Variable names the directory of the file, which is Home below the user's home directory otherwise.
	Variable string `json:"variable"`
	Home     string `json:"home"`
	File     string `json:"file"`
	// Events are the paths of arrays in a file of JSON to which Value is added, with the command in it. A file of TOML
	// has a line of Key instead.
	Events []string `json:"events"`
	Value  string   `json:"value"`
	Key    string   `json:"key"`
	// Version is what a new file needs besides.
	Version string `json:"version"`
}

// hooking is the command hooks.
type hooking struct{ Yes bool }

func newHooks() *cobra.Command {
	var h hooking
	one := exactly(1, "one client")
	cmd := described("hooks", nil, onlyCommands, func(cmd *cobra.Command, _ []string) error { return cmd.Help() })
	for _, name := range []string{"install", "remove"} {
		cmd.AddCommand(described("hooks "+name, &h, one, func(cmd *cobra.Command, args []string) error {
			return h.change(cmd, args[0], name == "install")
		}))
	}
	cmd.AddCommand(described("hooks status", nil, between(0, 1, "one client or none"), h.status))
	cmd.AddCommand(&cobra.Command{Use: "report", Hidden: true, RunE: reportHook})
	return cmd
}

// hookedClients are the clients that have hooks, or the one of a name, which must have them.
func hookedClients(names ...string) (all []*client, err error) {
	var known []string
	for i := range knownClients().Clients {
		c := &knownClients().Clients[i]
		if c.Hook == nil {
			continue
		}
		known = append(known, c.Commands[0])
		if len(names) == 0 || c.Commands[0] == names[0] || strings.EqualFold(c.Name, names[0]) {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return nil, usagef("no hooks of %q are known; use %s", names[0], either(known))
	}
	return all, nil
}

// path is the file of the client's settings.
func (h *hook) path() (string, error) {
	if dir := os.Getenv(h.Variable); h.Variable != "" && dir != "" {
		return filepath.Join(dir, h.File), nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, h.Home, h.File), err
}

// command is what the client is to call. A store that is not the usual one is named.
func (c *client) command(cmd *cobra.Command) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	words := []string{self, "hooks", "report", c.Commands[0]}
	if f := cmd.Flags().Lookup("store"); f != nil && f.Changed {
		path, err := filepath.Abs(f.Value.String())
		if err != nil {
			return nil, err
		}
		words = append(words, "--store", path)
	}
	return words, nil
}

// isReport reports whether a setting is one of ours, wherever the program was when it was made.
func isReport(text, client string) bool {
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,\"'[]{}:\n\t=", r) })
	for i := range words {
		if i >= 2 && words[i] == client && words[i-1] == "report" && words[i-2] == "hooks" {
			return true
		}
	}
	return false
}

// with returns the settings with the hook, or without it.
func (h *hook) with(text []byte, client string, words []string, install bool) ([]byte, error) {
	if h.Key != "" {
		return h.withLine(text, client, words, install)
	}
	before, found := text, false
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
		if h.Version != "" {
			text = []byte("{\n  \"version\": " + h.Version + "\n}\n")
		}
	}
	if !gjson.ValidBytes(text) {
		return nil, errors.New("it is not JSON; mend it first")
	}
	var quoted []string
	for _, word := range words {
		quoted = append(quoted, quote(word))
	}
	call, _ := json.Marshal(strings.Join(quoted, " "))
	var err error
	for _, event := range h.Events {
		list := gjson.GetBytes(text, event)
		if list.Exists() && list.Type != gjson.Null && !list.IsArray() {
			return nil, fmt.Errorf("%s is not a list; mend it first", event)
		}
		var kept []string
		for _, element := range list.Array() {
			if isReport(element.Raw, client) {
				found = true
			} else {
				kept = append(kept, element.Raw)
			}
		}
		if install {
			kept = append(kept, strings.ReplaceAll(h.Value, "COMMAND", string(call)))
		}
		if err != nil {
			return nil, err
		} else if len(kept) > 0 {
			text, err = sjson.SetRawBytes(text, event, []byte("["+strings.Join(kept, ",")+"]"))
		} else {
			text, err = sjson.DeleteBytes(text, event)
		}
	}
	if !install && !found {
		return before, nil // nor is it formatted
	}
	if parent, _, _ := strings.Cut(h.Events[0], "."); err == nil && !install &&
		len(gjson.GetBytes(text, parent).Map()) == 0 {
		text, err = sjson.DeleteBytes(text, parent)
	}
	var out bytes.Buffer
	if err == nil {
		err = json.Indent(&out, bytes.TrimSpace(text), "", "  ")
	}
	out.WriteByte('\n')
	return out.Bytes(), err
}

// withLine does it for a file of TOML, where the key comes before the first table.
func (h *hook) withLine(text []byte, client string, words []string, install bool) ([]byte, error) {
	var kept []string
	table := false
	for line := range strings.Lines(string(text)) {
		key, _, _ := strings.Cut(line, "=")
		table = table || strings.HasPrefix(strings.TrimSpace(line), "[")
		switch {
		case table || strings.TrimSpace(key) != h.Key:
		case isReport(line, client):
			continue
		case install:
			return nil, fmt.Errorf("it has %s already, of which there can be one; remove it first: %s", h.Key,
				strings.TrimSpace(line))
		}
		kept = append(kept, line)
	}
	if install {
		list, _ := json.Marshal(words)
		kept = append([]string{h.Key + " = " + string(list) + "\n"}, kept...)
	}
	return []byte(strings.Join(kept, "")), nil
}

// change writes the settings of a client with the hook or without it, after it has shown what changes.
func (h *hooking) change(cmd *cobra.Command, name string, install bool) error {
	clients, err := hookedClients(name)
	if err != nil {
		return err
	}
	c := clients[0]
	path, err := c.Hook.path()
	if err != nil {
		return err
	}
	words, err := c.command(cmd)
	if err != nil {
		return err
	}
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	after, err := c.Hook.with(before, c.Commands[0], words, install)
	if err != nil {
		return fmt.Errorf("change %s: %w", path, err)
	}
	rows := document.DiffTexts(string(before), string(after))
	if !slices.ContainsFunc(rows, func(r document.DiffRow) bool { return !r.Same }) {
		return note(cmd, "%s has nothing to change\n", path)
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "--- %s\n+++ %[1]s\n", document.Sanitize(path))
	for _, row := range rows {
		if row.Same {
			fmt.Fprintf(out, " %s\n", line(row.A))
			continue
		}
		if row.A != nil {
			fmt.Fprintf(out, "-%s\n", line(row.A))
		}
		if row.B != nil {
			fmt.Fprintf(out, "+%s\n", line(row.B))
		}
	}
	if !h.Yes {
		return note(cmd, "nothing is written yet; add --yes to write it\n")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	// A client that reads it meanwhile has the old one or the new one.
	err = output{Force: true}.file(path, false, func(w io.Writer) error {
		_, err := w.Write(after)
		return err
	})
	return cmp.Or(err, os.Chmod(path, mode))
}

// line is a line of a diff.
func line(pieces []document.Piece) string {
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(p.Text)
	}
	return document.Sanitize(b.String())
}

// status prints which clients have the hook.
func (h *hooking) status(cmd *cobra.Command, args []string) error {
	clients, err := hookedClients(args...)
	if err != nil {
		return err
	}
	rows := [][]string{{"CLIENT", "STATE", "FILE"}}
	for _, c := range clients {
		path, err := c.Hook.path()
		if err != nil {
			return err
		}
		state := "not installed"
		if text, _ := os.ReadFile(path); isReport(string(text), c.Commands[0]) {
			state = "installed"
		}
		rows = append(rows, []string{c.Commands[0], state, document.Line(path)})
	}
	return printTable(cmd, rows)
}

// reportHook is what a hook calls: it imports what the client keeps of the session that it names, or all of the
// client's that changed lately. A client must not notice that it failed.
func reportHook(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	clients, err := hookedClients(args[0])
	if err != nil {
		return err
	}
	var about struct {
		Path string `json:"transcript_path"`
	}
	if f, ok := cmd.InOrStdin().(*os.File); !ok || !isTerminal(f) {
		text, _ := io.ReadAll(io.LimitReader(cmd.InOrStdin(), 1<<20))
		_ = json.Unmarshal(text, &about) // a client that names none has its place
	}
	inputs := importer.Inputs([]string{about.Path}, nil, nil)
	if about.Path == "" {
		const lately = time.Hour
		if inputs, err = changedIn(clients[0].Place, time.Now().Add(-lately)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), finishLimit)
	defer cancel()
	if _, _, err := importInto(ctx, "", importer.Options{Open: patientOpener(cmd)}, inputs); err != nil {
		_ = note(cmd, "agenttrace: %v\n", err)
	}
	return nil
}

// changedIn are the files in the place of a program, or in all if it is "", that changed since a time.
func changedIn(program string, since time.Time) (all []importer.Input, err error) {
	places, err := importer.Discover()
	if err != nil {
		return nil, err
	}
	for _, p := range places {
		if program != "" && p.Program != program {
			continue
		}
		for _, in := range importer.InputsOf([]importer.Place{p}) {
			if in.ChangedSince(since) {
				all = append(all, in)
			}
		}
	}
	return all, nil
}
