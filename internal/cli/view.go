package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/extension/sessionview"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
	"github.com/agenttrace/agenttrace/session/web"
)

const envTraceURL = "AGENTTRACE_TRACE_URL"

func newView() *cobra.Command {
	var x struct {
		NoOpen   bool
		TraceURL string
		Port     int
	}
	return described("view", &x, between(0, 1, "at most one session"), func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("trace-url") {
			x.TraceURL = os.Getenv(envTraceURL)
		}
		if err := web.CheckTraceURL(x.TraceURL); err != nil {
			return usagef("--trace-url: %w", err)
		}
		if x.Port < 0 || x.Port > math.MaxUint16 {
			return usagef("--port is %d; use a number up to %d, or 0 for any port that is free", x.Port, math.MaxUint16)
		}
		return reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) error {
			path := "/"
			if len(args) > 0 {
				id, err := r.Resolve(ctx, args[0])
				if err != nil {
					return err
				}
				path = web.Address("s", id)
			}
			if u := collectorPages(cmd); u != nil {
				return openPage(cmd, u, path, x.NoOpen)
			}
			return servePages(cmd, r, x.TraceURL, path, x.Port, x.NoOpen)
		})
	})
}

// collectorPages is the address of the pages of the collector that holds the store, with the key of the user, or nil.
func collectorPages(cmd *cobra.Command) *url.URL {
	address, path, err := place(cmd)
	if err != nil || address != "" || stores.Socket(path) == "" {
		return nil
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", stores.Socket(path))
	}}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: 2 * time.Second}
	answer, err := client.Get("http://localhost" + sessionview.AddressPath)
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1000))
	u, parseErr := url.Parse(string(text))
	if err != nil || answer.StatusCode != http.StatusOK || parseErr != nil || u.Host == "" {
		return nil
	}
	return u
}

// servePages serves the pages and the API until the command is interrupted.
func servePages(cmd *cobra.Command, r document.Reader, traceURL, path string, port int, noOpen bool) error {
	f, _, err := follow(cmd)
	if err != nil {
		return err
	}
	changes := web.NewCounter(f)
	defer changes.Close()
	backend := web.Backend{Sessions: r, Changes: changes, Done: cmd.Context().Done(), Author: author(),
		Change: changer(cmd, r)}
	if err := keepPrices(cmd, &backend); err != nil {
		return err
	}
	pages := web.New(backend, web.Options{Version: cmd.Root().Version, TraceURL: traceURL, Zone: time.Local})
	// A store that is asked through a collector has a key of that one; these pages have the user's.
	_, location, err := place(cmd)
	if err != nil {
		return err
	}
	key, err := sessionview.Key(location)
	if err != nil {
		return err
	}
	l, err := listen(cmd, port)
	if err != nil {
		return err
	}
	server := sessionview.NewServer(pages, key)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	if err := openPage(cmd, sessionview.Address("http", l.Addr(), key), path, noOpen); err != nil {
		return errors.Join(err, server.Close())
	}
	_ = note(cmd, "Ctrl-C ends it.\n")
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

// listen opens a port of the loopback interface: the one that is asked for, or any if the default one is taken.
func listen(cmd *cobra.Command, port int) (net.Listener, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	switch taken := errors.Is(err, syscall.EADDRINUSE); {
	case taken && cmd.Flags().Changed("port"):
		return nil, usagef("port %d is taken by another program; name another with --port, or 0 for any that is free", port)
	case taken:
		_ = note(cmd, "port %d is taken by another program; another port serves the pages\n", port)
		return listen(cmd, 0)
	case err != nil:
		return nil, fmt.Errorf("listen for a browser: %w", err)
	}
	return l, nil
}

// changer returns how requests change the store that they read, one after the other so that they do not lock each other
// out.
func changer(cmd *cobra.Command, r document.Reader) func(context.Context,
	func(context.Context, store.Service) error) error {
	var mu sync.Mutex
	return func(ctx context.Context, fn func(context.Context, store.Service) error) error {
		mu.Lock()
		defer mu.Unlock()
		if file, ok := r.Reader.(interface{ InPlace() error }); ok {
			if err := file.InPlace(); err != nil {
				return err
			}
		}
		s, err := openWriter(cmd, false)
		if err != nil {
			return err
		}
		return errors.Join(fn(ctx, s), s.Close())
	}
}

// openPage prints the address of a page and has the user's browser show it. The address has a key. So a browser is
// given that of a file which leads there: others see the arguments of a program.
func openPage(cmd *cobra.Command, server *url.URL, path string, noOpen bool) error {
	u, err := server.Parse(path)
	if err != nil {
		return err
	}
	u.RawQuery = server.RawQuery
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), u); err != nil || noOpen {
		return err
	}
	programs := map[string]string{"darwin": "open", "windows": "rundll32 url.dll,FileProtocolHandler"}
	file, err := leadTo(u)
	if err == nil {
		program := strings.Fields(cmp.Or(programs[runtime.GOOS], "xdg-open"))
		err = exec.Command(program[0], append(program[1:], file)...).Start()
	}
	if err != nil {
		return note(cmd, "no browser could be opened; open the address in one\n")
	}
	return note(cmd, "A browser opens; if it shows no sessions, open the address in it.\n")
}

// leadTo makes a file of the user's alone that leads a browser to an address, and returns the file's address.
func leadTo(u *url.URL) (string, error) {
	dir, err := stateDirectory()
	if err != nil {
		return "", err
	}
	path := filepath.ToSlash(filepath.Join(dir, "open.html"))
	err = output{Force: true}.file(path, false, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, `<!doctype html><meta name="referrer" content="no-referrer">`+
			`<meta http-equiv="refresh" content="0;url=%[1]s"><a href="%[1]s">sessions</a>`, html.EscapeString(u.String()))
		return err
	})
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // which a drive begins
	}
	return (&url.URL{Scheme: "file", Path: path}).String(), err
}
