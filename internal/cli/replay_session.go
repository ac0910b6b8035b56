package cli

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/replay"
)

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
	env := agentEnvironment{of: os.Environ()}
	upstreams := map[string]*url.URL{}
	var set []string
	for _, s := range knownClients().Servers {
		u, err := parseServer(cmp.Or(env.value(s.Variable), s.URL))
		if err != nil {
			continue
		}
		upstreams[s.Name] = &url.URL{Scheme: u.Scheme, Host: u.Host}
		set = append(set, s.Variable+"=http://"+listener.Addr().String()+"/"+s.Name+u.EscapedPath())
	}
	if p.from != 0 {
		player.From, player.Live = p.from, &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			name, rest, _ := strings.Cut(strings.TrimPrefix(r.Out.URL.Path, "/"), "/")
			if u := upstreams[name]; u != nil {
				r.Out.URL.Path, r.Out.URL.RawPath = "/"+rest, ""
				r.SetURL(u)
			}
		}}
	} else {
		// What goes elsewhere finds nobody at the discard port.
		for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
			set = append(set, name+"=http://127.0.0.1:9", strings.ToLower(name)+"=http://127.0.0.1:9")
		}
		set = append(set, "NO_PROXY=127.0.0.1,localhost,::1", "no_proxy=127.0.0.1,localhost,::1")
	}
	go func() { _ = server.Serve(listener) }() // until it is closed
	defer server.Close()
	o := runOptions{environ: slices.Concat(os.Environ(), set), noContent: true}
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
