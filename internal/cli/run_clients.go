package cli

import (
	"cmp"
	"crypto/rand"
	_ "embed" // of the clients
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/extension/sessionview"
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
