package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
	"github.com/agenttrace/agenttrace/session/web"
)

const envStore = collector.EnvStore

// storePath is where the store is, a path or an address: as --store says, as the
// environment says, or in the usual place.
func storePath(cmd *cobra.Command) (string, error) {
	path, _ := cmd.Flags().GetString("store")
	if path != "" {
		return path, nil
	}
	if cmd.Flags().Changed("store") {
		return "", usagef("--store is empty; name a file, or leave the flag out")
	}
	if path := os.Getenv(envStore); path != "" {
		return path, nil
	}
	return collector.DefaultStore()
}

// Environment variables of a collector that is asked instead of a store.
const (
	envRemote    = "AGENTTRACE_REMOTE"
	envToken     = "AGENTTRACE_TOKEN"
	envTokenFile = "AGENTTRACE_TOKEN_FILE"
)

// remote is the address of the collector to ask, "" if the store is opened here. A --store on the command line takes
// precedence over the environment.
func remote(cmd *cobra.Command) (string, error) {
	address, _ := cmd.Flags().GetString("remote")
	switch {
	case cmd.Flags().Changed("remote") && cmd.Flags().Changed("store"):
		return "", usagef("--remote and --store exclude each other; use one of them")
	case cmd.Flags().Changed("remote") && address == "":
		return "", usagef("--remote is empty; name the address of a collector, or leave the flag out")
	case cmd.Flags().Changed("store"):
		return "", nil
	}
	return cmp.Or(address, os.Getenv(envRemote)), nil
}

// token is what the collector wants to see, "" if nothing is configured.
func token() (string, error) {
	path := os.Getenv(envTokenFile)
	if path == "" {
		return os.Getenv(envToken), nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", usagef("read the token: %w; name another file with %s", err, envTokenFile)
	}
	return strings.TrimSpace(string(b)), nil
}

func dial(cmd *cobra.Command, address string) (store.Service, error) {
	token, err := token()
	if err != nil {
		return nil, err
	}
	c, err := web.Dial(cmd.Context(), address, token)
	if invalid, ok := errors.AsType[*web.Problem](err); ok && invalid.Code == web.CodeInvalid {
		return nil, usagef("%w", err)
	}
	return c, err
}

// place is the address of the collector to ask or, if that is "", where the store is.
func place(cmd *cobra.Command) (address, path string, err error) {
	if address, err = remote(cmd); err == nil && address == "" {
		path, err = storePath(cmd)
	}
	return address, path, err
}

// ownStore is where the store is, for a command that works on it itself.
func ownStore(cmd *cobra.Command) (string, error) {
	address, path, err := place(cmd)
	if address != "" {
		return "", usagef("%s works on a store itself, not through the collector at %s; name the store with --store",
			cmd.Name(), address)
	}
	return path, err
}

// follow follows the store, or the one of the collector to ask, and returns its name.
func follow(cmd *cobra.Command) (f store.Follower, name string, err error) {
	address, path, err := place(cmd)
	if err != nil {
		return nil, "", err
	}
	if address != "" {
		token, err := token()
		return web.Follow(address, token), address, err
	}
	return stores.Follow(path), stores.Name(path), nil
}

func openStore(cmd *cobra.Command) (store.Reader, error) {
	address, path, err := place(cmd)
	if err != nil {
		return nil, err
	}
	if address != "" {
		return dial(cmd, address)
	}
	r, err := stores.OpenReader(cmd.Context(), path)
	if errors.Is(err, store.ErrNotFound) {
		return nil, noStore(path)
	}
	return r, err
}

func noStore(path string) error {
	return storeError{fmt.Errorf("there is no session store at %s", stores.Name(path)), noStoreHint}
}

// reading opens the store for a command that shows what sessions are doing and calls fn with it, and with the prices
// that the command estimates costs with.
func reading(cmd *cobra.Command, fn func(ctx context.Context, r document.Reader, p *prices) error) error {
	r, p, err := newReader(cmd)
	if err == nil {
		r.Reader, err = openStore(cmd)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	return fn(cmd.Context(), r, p)
}

// newReader is a reader without a store, and the prices that it estimates costs with.
func newReader(cmd *cobra.Command) (r document.Reader, p *prices, err error) {
	if p, err = readPrices(cmd); err != nil {
		return r, nil, err
	}
	r.Price = p.Price
	r.IdleTimeout, err = idleTimeout(cmd)
	return r, p, err
}

// withSession is reading with the session that name means.
func withSession(cmd *cobra.Command, name string,
	fn func(ctx context.Context, r document.Reader, id string) error) error {
	return reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) error {
		id, err := r.Resolve(ctx, name)
		if err != nil {
			return err
		}
		return fn(ctx, r, id)
	})
}

const envIdleTimeout = "AGENTTRACE_IDLE_TIMEOUT"

// idleTimeout is how long a busy session may go without an update before it counts as interrupted: as --idle-timeout
// says, where the command has that flag, or the environment, or by default.
func idleTimeout(cmd *cobra.Command) (time.Duration, error) {
	if f := cmd.Flags().Lookup("idle-timeout"); f != nil && f.Changed {
		d, err := cmd.Flags().GetDuration("idle-timeout")
		if err == nil && d <= 0 {
			return 0, usagef("--idle-timeout is %s; use a duration above 0, such as 10m", d)
		}
		return d, err
	}
	text := os.Getenv(envIdleTimeout)
	if text == "" {
		return document.DefaultIdleTimeout, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, usagef("%s is %q; use a duration above 0, such as 10m", envIdleTimeout, text)
	}
	return d, nil
}
