package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/recorder"
	"github.com/agenttrace/agenttrace/session/replay"
)

// envReplay is the URL where a replay answers calls of tools. Who does not know it cannot ask.
const envReplay = "AGENTTRACE_REPLAY"

const discard = "http://127.0.0.1:9"

// play runs an agent as run does, with the model's answers of a session. Where the agent has none of them left, and at
// any other address, there is no network: by TCP it can connect to this process and to the run's only, where the kernel
// has that.
func (p *replayer) play(name string, command []string) error {
	var doc *document.Document
	err := withSession(p.cmd, name, func(ctx context.Context, r document.Reader, id string) (err error) {
		doc, err = r.LoadAll(ctx, id)
		return err
	})
	if err != nil {
		return err
	}
	if p.From != 0 && doc.Turn(p.From) == nil {
		return doc.NoTurn(p.From)
	}
	player := replay.NewPlayer(doc)
	player.From = p.From
	tools := strings.FieldsFunc(strings.Join(p.Tools, ","), func(r rune) bool { return r == ',' })
	if err := player.Tools(tools...); err != nil {
		return usagef("--tools: %w", err)
	}
	for _, what := range player.Missing() {
		_ = note(p.cmd, "missing: %s\n", document.Sanitize(what))
	}
	if len(tools) == 0 {
		_ = note(p.cmd, "missing: the outputs of tools are not replayed: the agent runs its tools itself\n")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	path := "/tools/" + rand.Text()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path {
			player.ServeTool(w, r)
		} else {
			player.ServeHTTP(w, r)
		}
	})}
	env := agentEnvironment{address: listener.Addr().String(), of: os.Environ(), added: map[string]string{},
		servers: map[string]string{}}
	env.redirect()
	if len(tools) > 0 {
		env.added[envReplay] = "http://" + env.address + path
		if player.Shells, err = os.MkdirTemp("", "agenttrace-replay-"); err != nil {
			return err
		}
		defer os.RemoveAll(player.Shells)
		if err := env.shells(player.Shells); err != nil {
			return err
		}
	}
	o := runOptions{NoContent: true}
	if p.From != 0 {
		player.Live = recorder.Proxy(upstreams(env.servers), recorder.NewTransport())
	} else {
		o.connects = p.closeNetwork(&env, listener.Addr().(*net.TCPAddr).Port)
	}
	go func() { _ = server.Serve(listener) }() // until it is closed
	defer server.Close()
	o.environ = env.merged()
	ended := o.run(p.cmd, command)
	same := p.reportPartings(player)
	for _, id := range o.recorded {
		_ = note(p.cmd, "agenttrace: agenttrace diff %s %s\n", document.Sanitize(doc.Session.ID), document.Sanitize(id))
	}
	if code, ran := errors.AsType[exited](ended); ran && code.code == 0 && !same {
		return errFinding
	}
	return ended
}

// closeNetwork has what goes elsewhere find nobody at the discard port, and returns the ports that the kernel shall let
// the agent connect to, beside that of the run; nil are all.
func (p *replayer) closeNetwork(env *agentEnvironment, port int) []int {
	for name, value := range map[string]string{"HTTP_PROXY": discard, "HTTPS_PROXY": discard, "ALL_PROXY": discard,
		"NO_PROXY": "127.0.0.1,localhost,::1"} {
		env.added[name], env.added[strings.ToLower(name)] = value, value
	}
	if p.Local {
		_ = note(p.cmd, "missing: with --local, programs that heed no proxy variables have the network\n")
		return nil
	} else if err := canEnclose(); err != nil {
		_ = note(p.cmd, "missing: the kernel cannot close the network: %v; programs that heed no proxy variables have it\n",
			err)
		return nil
	}
	return []int{port}
}

// reportPartings prints what the agent did otherwise than in the session, and reports whether that is nothing.
func (p *replayer) reportPartings(player *replay.Player) (same bool) {
	partings, left := player.Partings()
	for _, d := range partings {
		_ = note(p.cmd, "agenttrace: %s\n", document.Line(d.String()))
	}
	if left > 0 {
		_ = note(p.cmd, "agenttrace: the agent ended before %s of the session\n", counted(left, "answer"))
	}
	if same = len(partings) == 0 && left == 0; same {
		_ = note(p.cmd, "agenttrace: the agent did the same as in the session\n")
	}
	return same
}
