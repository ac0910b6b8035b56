package cli

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel"

	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/extension/hostcheckextension"
	"github.com/agenttrace/agenttrace/session/recorder"
)

// Headers of the proxy's own. They are not passed on.
const (
	sessionHeader = "X-Agenttrace-Session"
	tokenHeader   = "X-Agenttrace-Token"
	envProxyToken = "AGENTTRACE_PROXY_TOKEN"
)

// proxying is the command proxy.
type proxying struct {
	Listen, Agent, MCP string
	Upstream           []string

	token   string
	servers map[string]string
}

func newProxy() *cobra.Command {
	var p proxying
	return described("proxy", &p, noArguments, func(cmd *cobra.Command, _ []string) error {
		if err := p.check(); err != nil {
			return err
		}
		return p.run(cmd)
	})
}

// check reads the flags.
func (p *proxying) check() error {
	switch {
	case p.MCP != "": // its path is the client's
		if u, err := url.Parse(p.MCP); err == nil {
			u.Path, u.RawPath = "", ""
			p.Upstream = []string{u.String()}
		}
	case len(p.Upstream) == 0:
		return usagef("--upstream names the server of models to pass requests on to, such as https://api.openai.com")
	}
	p.servers = make(map[string]string)
	for _, text := range p.Upstream {
		name, address, named := strings.Cut(text, "=")
		if !named || strings.Contains(name, "/") {
			name, address = "", text
		}
		if _, err := parseServer(address); err != nil {
			return usagef("--upstream %s: %w", text, err)
		}
		if _, twice := p.servers[name]; twice || len(p.Upstream) > 1 && name == "" {
			return usagef("--upstream %s: name each of several servers, as in --upstream openai=https://api.openai.com", text)
		}
		p.servers[name] = address
	}
	if err := hostcheckextension.CheckAddress(p.Listen); err != nil {
		return usagef("--listen: %w", err)
	}
	p.token = os.Getenv(envProxyToken)
	if p.token == "" && !hostcheckextension.OnLoopback(p.Listen) {
		return usagef("--listen %s can be reached from other machines, whose requests would be sent and recorded; "+
			"set %s to a secret, which clients send in the header %s, or listen on localhost", p.Listen, envProxyToken,
			tokenHeader)
	}
	return nil
}

func (p *proxying) run(cmd *cobra.Command) error {
	listener, err := net.Listen("tcp", p.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w; choose another port with --listen", err)
	}
	rec, err := shareStore(cmd)
	if err != nil {
		return err
	}
	var noted sync.Map // each text is noted once, not at each of its attempts
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if waits, ok := errors.AsType[*recorder.NotStoredError](err); ok && unlessWaiting(err) == nil {
			err = fmt.Errorf("what is recorded waits for the store: %w", waits.Err)
		}
		if _, isNoted := noted.Swap(err.Error(), true); !isNoted {
			_ = note(cmd, "agenttrace: %v\n", err)
		}
	}))
	ctx := cmd.Context()
	cmd.SetContext(context.WithoutCancel(ctx)) // what was recorded is stored after the signal
	base := recorder.NewTransport()
	observer := observeCalls(rec, modelhttp.Options{Agent: p.Agent,
		SessionKey: func(r *http.Request) string { return r.Header.Get(sessionHeader) }})
	var transport http.RoundTripper
	var ended func()
	if p.MCP == "" {
		tee, err := observer.tee(stripped{base})
		if err != nil {
			return err
		}
		transport, ended = tee, func() { _ = tee.Close() }
	} else {
		mcp := recorder.NewMCPTransport(stripped{base}, rec, func() string { return "mcp-" + newRunID() })
		if address := replayAddress(); address != "" {
			mcp.Answer = recorder.ReplayTools(address)
		}
		transport, ended = mcp, mcp.Close
	}
	passFirst()
	server := newServer(p.handler(recorder.Proxy(upstreams(p.servers), transport)))
	server.ReadHeaderTimeout = time.Minute
	context.AfterFunc(ctx, func() { _ = server.Close() })
	for name, address := range p.servers {
		_ = note(cmd, "passing http://%s/%s on to %s\n", listener.Addr(), name, address)
	}
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	ended()
	end, cancel := context.WithTimeout(cmd.Context(), finishLimit)
	defer cancel()
	return errors.Join(unlessWaiting(observer.end(end)), rec.Close(end))
}

// handler checks the token, and takes the id of a session out of a path that begins with session/ID. Without a token it
// is for this machine.
func (p *proxying) handler(next http.Handler) http.Handler {
	if p.token == "" {
		next = forThisMachine(next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := r.Header.Get(tokenHeader)
		if p.token != "" && subtle.ConstantTimeCompare([]byte(given), []byte(p.token)) != 1 {
			http.Error(w, "the header "+tokenHeader+" must have the token of this proxy", http.StatusUnauthorized)
			return
		}
		if rest, ok := strings.CutPrefix(r.URL.EscapedPath(), "/session/"); ok {
			id, path, _ := strings.Cut(rest, "/")
			if name, err := url.PathUnescape(id); err == nil {
				r.Header.Set(sessionHeader, name)
			}
			r.URL.RawPath = "/" + path
			r.URL.Path, _ = url.PathUnescape(r.URL.RawPath)
		}
		next.ServeHTTP(w, r)
	})
}

// stripped sends requests without the headers that are the proxy's own.
type stripped struct{ base http.RoundTripper }

func (s stripped) RoundTrip(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.Header.Del(sessionHeader)
	out.Header.Del(tokenHeader)
	return s.base.RoundTrip(out)
}
