package cli

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/recorder"
	"github.com/agenttrace/agenttrace/session/replay"
)

const discard = "http://127.0.0.1:9"

// play runs an agent as run does, with the model's answers of a session. Where the agent has none of them left, and at
// any other address, there is no network.
func (p *replayer) play(name string, command []string) error {
	var doc *document.Document
	err := withSession(p.cmd, name, func(ctx context.Context, r document.Reader, id string) (err error) {
		doc, err = r.LoadAll(ctx, id)
		return err
	})
	if err != nil {
		return err
	}
	if p.from != 0 && doc.Turn(p.from) == nil {
		return doc.NoTurn(p.from)
	}
	player := replay.NewPlayer(doc)
	for _, what := range player.Missing() {
		_ = note(p.cmd, "missing: %s\n", document.Sanitize(what))
	}
	_ = note(p.cmd, "missing: the outputs of tools are not replayed: the agent runs its tools itself\n")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: player}
	env := agentEnvironment{address: listener.Addr().String(), of: os.Environ(), added: map[string]string{},
		servers: map[string]string{}}
	env.redirect()
	if p.from != 0 {
		player.From, player.Live = p.from, recorder.Proxy(upstreams(env.servers), recorder.NewTransport())
	} else {
		// What goes elsewhere finds nobody at the discard port.
		for name, value := range map[string]string{"HTTP_PROXY": discard, "HTTPS_PROXY": discard, "ALL_PROXY": discard,
			"NO_PROXY": "127.0.0.1,localhost,::1"} {
			env.added[name], env.added[strings.ToLower(name)] = value, value
		}
	}
	for name, value := range env.added {
		env.of = append(env.of, name+"="+value)
	}
	go func() { _ = server.Serve(listener) }() // until it is closed
	defer server.Close()
	o := runOptions{environ: env.of, noContent: true}
	ended := o.run(p.cmd, command)
	partings, left := player.Partings()
	for _, d := range partings {
		_ = note(p.cmd, "agenttrace: %s\n", document.Line(d.String()))
	}
	if left > 0 {
		_ = note(p.cmd, "agenttrace: the agent ended before %s of the session\n", counted(left, "answer"))
	}
	if len(partings) == 0 && left == 0 {
		_ = note(p.cmd, "agenttrace: the agent did the same as in the session\n")
	}
	for _, id := range o.recorded {
		_ = note(p.cmd, "agenttrace: agenttrace diff %s %s\n", document.Sanitize(doc.Session.ID), document.Sanitize(id))
	}
	if code, ran := errors.AsType[exited](ended); ran && code.code == 0 && (len(partings) > 0 || left > 0) {
		return errFinding
	}
	return ended
}
