package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/extension/hostcheckextension"
	"github.com/agenttrace/agenttrace/extension/sessionview"
	"github.com/agenttrace/agenttrace/session/api"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/service"
	"github.com/agenttrace/agenttrace/session/store/stores"
	"github.com/agenttrace/agenttrace/session/view"
)

const envTraceURL = "AGENTTRACE_TRACE_URL"

func newView(version string) *cobra.Command {
	var noOpen bool
	var traceURL string
	cmd := &cobra.Command{
		Use:   "view [ID]",
		Short: "Show sessions in a browser",
		Long: `Show sessions in a browser: the list, or the session with the ID.

If a collector holds the store, the browser opens the collector's session_view. Otherwise,
and with --remote, the command serves the pages itself, on a free port of the loopback
interface, until Ctrl-C. Below /api/v1/ of the same address programs read and change
sessions as JSON; /api/v1/openapi.json describes it.

--no-open prints the address and opens no browser. --trace-url is where the pages link
spans to, such as https://jaeger/trace/{trace_id}?uiFind={span_id}; a collector has it in
its configuration.`,
		Example: `  agenttrace view
  agenttrace view last
  agenttrace view --no-open --remote https://collector:4320`,
		ValidArgsFunction: completeSessions,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exactly(1, "at most one session")(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("trace-url") {
				traceURL = os.Getenv(envTraceURL)
			}
			if err := view.CheckTraceURL(traceURL); err != nil {
				return usagef("--trace-url: %w", err)
			}
			r, err := openSessions(cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			path := "/"
			if len(args) > 0 {
				id, err := r.Resolve(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				path = view.Address("s", id)
			}
			if address := collectorPages(cmd); address != "" {
				return openPage(cmd, address+path, noOpen)
			}
			return servePages(cmd, r, version, traceURL, path, noOpen)
		},
	}
	cmd.Flags().BoolVar(&noOpen, "no-open", false, "print the address, and open no browser")
	cmd.Flags().StringVar(&traceURL, "trace-url", "", "`address` of a span, with {trace_id} and {span_id} (default $"+
		envTraceURL+")")
	pricesFlag(cmd)
	return cmd
}

// collectorPages is the address of the pages of the collector that holds the store, or "".
func collectorPages(cmd *cobra.Command) string {
	if address, err := remote(cmd); err != nil || address != "" {
		return ""
	}
	path, err := storePath(cmd)
	if err != nil || stores.Socket(path) == "" {
		return ""
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", stores.Socket(path))
	}}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: 2 * time.Second}
	answer, err := client.Get("http://localhost" + sessionview.AddressPath)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1000))
	u, parseErr := url.Parse(string(text))
	if err != nil || answer.StatusCode != http.StatusOK || parseErr != nil || u.Host == "" {
		return ""
	}
	return string(text)
}

// servePages serves the pages and the API until the command is interrupted.
func servePages(cmd *cobra.Command, r document.Reader, version, traceURL, path string, noOpen bool) error {
	p, err := readPrices(cmd)
	if err != nil {
		return err
	}
	r.Price = p.estimate()
	f, _, err := follow(cmd)
	if err != nil {
		return err
	}
	changes := service.NewCounter(f)
	defer changes.Close()
	backend := service.Backend{Sessions: r, Changes: changes, Done: cmd.Context().Done(), Author: author(),
		Change: func(_ context.Context, fn func(context.Context, service.Service) error) error {
			return withWriter(cmd, fn)
		}}
	mux := http.NewServeMux()
	mux.Handle("/", view.New(backend, view.Options{TraceURL: traceURL, Zone: time.Local}))
	mux.Handle(api.Prefix, api.New(backend, version))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for a browser: %w", err)
	}
	// A page of another origin changes nothing, and learns nothing by the name of its own server.
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute,
		Handler: http.NewCrossOriginProtection().Handler(hostcheckextension.Handler(&hostcheckextension.Config{}, mux))}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	if err := openPage(cmd, "http://"+l.Addr().String()+path, noOpen); err != nil {
		return errors.Join(err, server.Close())
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "Ctrl-C ends it.")
	select {
	case err := <-ended:
		return fmt.Errorf("serve pages: %w", err)
	case <-cmd.Context().Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), time.Second)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close() // who still reads has had the time to
	}
	return nil
}

// openPage prints an address and has the user's browser show it.
func openPage(cmd *cobra.Command, address string, noOpen bool) error {
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), address); err != nil || noOpen {
		return err
	}
	program := []string{"xdg-open"}
	switch runtime.GOOS {
	case "darwin":
		program = []string{"open"}
	case "windows":
		program = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	if err := exec.Command(program[0], append(program[1:], address)...).Start(); err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "no browser could be opened; open the address in one")
	}
	return nil
}
