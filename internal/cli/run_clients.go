package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	_ "embed" // of the clients
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

	"github.com/agenttrace/agenttrace/extension/sessionview"
	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/importer"
)

// envRun names the run that the process is of. Agents that the agent starts have it, too.
const envRun = "AGENTTRACE_RUN"

// client is a program that reports what it does if its environment, or an argument, asks for that.
type client struct {
	Name string `json:"name"`
	// Commands are its names as a command, and as an npm package without its scope.
	Commands []string `json:"commands"`
	// Place is where it keeps its sessions, by the name that import --discover prints.
	Place string `json:"place"`
	// Telemetry are variables that have it send telemetry, Content those that have what is said in it.
	Telemetry map[string]string `json:"telemetry"`
	Content   map[string]string `json:"content"`
	// Arguments are put before its own.
	Arguments        []string `json:"arguments"`
	ContentArguments []string `json:"content_arguments"`
	// Hook is how it reports that something has ended, nil where it does not.
	Hook *hook `json:"hook"`
	// Source documents the variables.
	Source string `json:"source"`
}

// modelServer is a variable that names a server of models, and the server where it is not set, "" for none.
type modelServer struct{ Name, Variable, URL string }

//go:embed clients.json
var clientsJSON []byte

// knownClients are the clients, the first of which stands for all programs, and the servers of models.
var knownClients = sync.OnceValue(func() (all struct {
	Servers []modelServer
	Clients []client
}) {
	if err := json.Unmarshal(clientsJSON, &all); err != nil {
		panic(err) // a mistake in the file
	}
	return all
})

// programOf is the place in a command of the program that it starts: the first or, where a runtime starts it, the
// script, the module or the package, which is the first that is no option and no word of the runtime's.
func programOf(args []string) int {
	runtimes := []string{"node", "bun", "bunx", "npx", "pnpm", "uvx", "uv", "pipx", "deno", "env", "python", "python3",
		"go", "ruby", "java", "tsx"}
	words := []string{"run", "x", "dlx", "exec", "tool"}
	if len(args) == 0 || !slices.Contains(runtimes, strings.TrimSuffix(filepath.Base(args[0]), ".exe")) {
		return 0
	}
	for i, arg := range args[1:] {
		if !strings.HasPrefix(arg, "-") && !slices.Contains(words, arg) && !strings.Contains(arg, "=") {
			return i + 1
		}
	}
	return 0
}

// clientOf is the client that a program is, nil for one that is not known: by its name or that of its package.
func clientOf(program string) *client {
	for _, word := range slices.Backward(strings.Split(filepath.ToSlash(program), "/")) {
		word, _, _ = strings.Cut(strings.TrimSuffix(word, ".exe"), "@")
		for k := range knownClients().Clients {
			if c := &knownClients().Clients[k]; slices.Contains(c.Commands, word) {
				return c
			}
		}
	}
	return nil
}

// agentEnvironment is the environment of an agent that is recorded.
type agentEnvironment struct {
	address, run     string
	telemetry        string // the address for that
	content, proxied bool
	client           *client
	own              map[string]string // what it is made of

	// all is the whole environment, added what is in it because of the run, by name.
	all       []string
	added     map[string]string
	arguments []string
	servers   map[string]string
}

// environment is the environment in entries as a process has them. Of two of a name the last counts.
func environment(entries []string) map[string]string {
	all := make(map[string]string, len(entries))
	for _, entry := range entries {
		if name, value, ok := strings.Cut(entry, "="); ok {
			all[name] = value
		}
	}
	return all
}

// redirect has requests to servers of models go to the address, each below the server's name.
func (e *agentEnvironment) redirect() {
	for _, s := range knownClients().Servers {
		if s.Name == "" { // Ollama's, of which not all clients know a path
			given := cmp.Or(e.own[s.Variable], s.URL)
			e.servers[""], e.added[s.Variable] = ollamaServer(given), e.address
			if strings.Contains(given, "://") { // else what reads it adds that
				e.added[s.Variable] = "http://" + e.address
			}
			continue
		}
		u, err := parseServer(cmp.Or(e.own[s.Variable], s.URL))
		if err != nil || e.isSigned(u) {
			continue
		}
		own := *u // with the user and the query, which clients make something of
		own.Scheme, own.Host, own.Path, own.RawPath = "http", e.address, "/"+s.Name+u.Path, "/"+s.Name+u.EscapedPath()
		e.added[s.Variable] = own.String()
		e.servers[s.Name] = u.Scheme + "://" + u.Host
	}
}

// ollamaServer returns the base URL of the server that OLLAMA_HOST names, also by what it listens on, or not in whole.
func ollamaServer(value string) string {
	m := ollamaHost().FindStringSubmatch(value)
	scheme, host, port := m[1], m[2], m[3]
	if scheme == "" {
		scheme, port = "http://", cmp.Or(port, ":11434")
	}
	if slices.Contains([]string{"", "0.0.0.0", "[::]", "::"}, host) {
		host = "127.0.0.1"
	}
	return scheme + host + port + m[4]
}

var ollamaHost = lazy.Regexp(`^[ "']*(\w+://)?(\[[^]]*\]|::|[^:/ "']*)(:\d+)?(.*?)[/ "']*$`)

// isSigned reports whether requests to a server are signed for its name: at another one's address they would be
// refused.
func (e *agentEnvironment) isSigned(u *url.URL) bool {
	host := u.Hostname()
	return (strings.HasSuffix(host, ".amazonaws.com") || strings.HasSuffix(host, ".amazonaws.com.cn")) &&
		e.own["AWS_BEARER_TOKEN_BEDROCK"] == ""
}

// fill sets the environment, the arguments and the servers. What the user has set stays, except that requests to
// servers of models go through the proxy.
func (e *agentEnvironment) fill() {
	e.added, e.servers = map[string]string{envRun: e.run}, make(map[string]string)
	if e.proxied {
		e.redirect()
	}
	known := []*client{&knownClients().Clients[0]}
	if e.client != nil {
		known = append(known, e.client)
	}
	for _, c := range known {
		e.switches(c.Telemetry)
		e.arguments = append(e.arguments, e.filled(c.Arguments)...)
		if e.content {
			e.switches(c.Content)
			e.arguments = append(e.arguments, e.filled(c.ContentArguments)...)
		}
	}
	if e.own["OTEL_EXPORTER_OTLP_ENDPOINT"] != "" {
		delete(e.added, "OTEL_EXPORTER_OTLP_PROTOCOL") // it belongs to the user's own
	}
	e.added["OTEL_RESOURCE_ATTRIBUTES"] = appended(e.own["OTEL_RESOURCE_ATTRIBUTES"], "agenttrace.run.id="+e.run)
	e.loopback()
	e.all = e.merged()
}

// merged is the environment with what was added.
func (e *agentEnvironment) merged() (entries []string) {
	all := maps.Clone(e.own)
	maps.Copy(all, e.added)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		entries = append(entries, name+"="+all[name])
	}
	return entries
}

// loopback has a client that sends everything through a proxy of the user's send to this machine directly.
func (e *agentEnvironment) loopback() {
	proxies := []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"}
	if !slices.ContainsFunc(proxies, func(name string) bool { return e.own[name] != "" }) {
		return
	}
	for name, other := range map[string]string{"NO_PROXY": "no_proxy", "no_proxy": "NO_PROXY"} {
		// A client takes one of them, also one that the user has not set. Many know "*" only alone.
		if direct := cmp.Or(e.own[name], e.own[other]); direct != "*" {
			e.added[name] = appended(direct, "127.0.0.1")
		}
	}
}

// appended adds an element to a list with commas.
func appended(list, element string) string { return strings.TrimPrefix(list+","+element, ",") }

// switches sets variables that the user has not set.
func (e *agentEnvironment) switches(variables map[string]string) {
	for name, value := range variables {
		if e.own[name] == "" {
			e.added[name] = strings.ReplaceAll(value, "{otlp}", "http://"+e.telemetry)
		}
	}
}

// filled are arguments with addresses in them. An option whose server is not the proxy's is left out.
func (e *agentEnvironment) filled(arguments []string) (all []string) {
	for pair := range slices.Chunk(arguments, 2) {
		text := strings.ReplaceAll(strings.Join(pair, "\x00"), "{otlp}", "http://"+e.telemetry)
		if strings.Contains(text, "{openai}") {
			// Without these the user may be signed in, and has another server then.
			if !e.proxied || e.own["CODEX_API_KEY"]+e.own["OPENAI_BASE_URL"] == "" {
				continue
			}
			text = strings.ReplaceAll(text, "{openai}", e.added["OPENAI_BASE_URL"])
		}
		all = append(all, strings.Split(text, "\x00")...)
	}
	return all
}

// print prints what the agent gets in addition, as lines for a shell.
func (e *agentEnvironment) print(w io.Writer, args []string) error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(e.added)) {
		fmt.Fprintf(&b, "export %s=%s\n", name, quote(e.added[name]))
	}
	if len(args) > 0 && len(e.arguments) > 0 {
		fmt.Fprintf(&b, "# %s", strings.Join(args[:programOf(args)+1], " "))
		for _, arg := range e.arguments {
			b.WriteString(" " + quote(arg))
		}
		b.WriteString("\n")
	}
	for _, c := range []*client{&knownClients().Clients[0], e.client} {
		if c != nil {
			fmt.Fprintf(&b, "# %s: %s\n", c.Name, c.Source)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// parseServer parses the base URL of a server.
func parseServer(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err == nil && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		err = fmt.Errorf("%q is no address of a server; write it as https://host/path", address)
	}
	return u, err
}

// newRunID returns an id that sorts by time.
func newRunID() string {
	return time.Now().UTC().Format("20060102-150405-") + strings.ToLower(rand.Text()[:6])
}

// stateDirectory makes the directory of the user's for what programs keep.
func stateDirectory() (string, error) {
	dir, err := sessionview.StateDir()
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	return dir, err
}

// runDirectory makes the directory of a run's files. A full disk is no reason not to run the agent.
func runDirectory(id string) (string, error) {
	dir, err := stateDirectory()
	if err != nil {
		return os.MkdirTemp("", "agenttrace-run-")
	}
	dir = filepath.Join(dir, "runs", id)
	_ = os.MkdirAll(dir, 0o700)
	return dir, nil
}

// silent is for servers whose errors are nobody's.
var silent = log.New(io.Discard, "", 0)

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

// isReport reports whether a setting is one of ours, wherever the program was when it was made.
func isReport(text, client string) bool {
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,\"'[]{}:\n\t=", r) })
	return strings.Contains(" "+strings.Join(words, " ")+" ", " hooks report "+client+" ")
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
	self, err := os.Executable()
	if err != nil {
		return err
	}
	words := append([]string{self, "hooks", "report", c.Commands[0]}, storeFlags(cmd)...)
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
			fmt.Fprintf(out, " %s\n", document.Sanitize(document.Joined(row.A)))
			continue
		}
		if row.A != nil {
			fmt.Fprintf(out, "-%s\n", document.Sanitize(document.Joined(row.A)))
		}
		if row.B != nil {
			fmt.Fprintf(out, "+%s\n", document.Sanitize(document.Joined(row.B)))
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
