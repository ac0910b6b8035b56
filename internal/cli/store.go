package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/session"
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

// storeFlags are those with which another command, in any directory, works on what the command line names.
func storeFlags(cmd *cobra.Command) (words []string) {
	for _, name := range []string{"store", "remote"} {
		if value, _ := cmd.Flags().GetString(name); cmd.Flags().Changed(name) {
			if path, err := filepath.Abs(value); err == nil && stores.IsFile(value) {
				value = path
			}
			words = append(words, "--"+name, value)
		}
	}
	return words
}

// shownFlags are they in a command that is shown, without a password.
func shownFlags(cmd *cobra.Command) (text string) {
	for _, word := range storeFlags(cmd) {
		text += " " + quote(stores.Name(word))
	}
	return text
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

// filters are the flags by which commands select sessions: the same ones everywhere.
type filters struct {
	store.SessionFilter
	Status, Since, Until, Sort string
	Tag, Score                 []string
}

// filterFlags are the flags that select sessions.
var filterFlags = sync.OnceValue(func() *pflag.FlagSet {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	addFlags(f, "(filters)", new(filters))
	return f
})

func (x *filters) read(cmd *cobra.Command) (err error) {
	if x.Status != "" && !slices.Contains(document.Statuses(), x.Status) {
		return usagef("--status %q is unknown; use %s", x.Status, either(document.Statuses()))
	}
	if _, ok := store.ParseSessionSort(x.Sort); !ok {
		return usagef("--sort %q is unknown; use %s", x.Sort, either(store.SessionSorts()))
	}
	x.Tags, x.Scores = x.Tag, nil
	for _, text := range x.Score {
		score, err := store.ParseScoreFilter(text)
		if err != nil {
			return usagef("--score %w", err)
		}
		x.Scores = append(x.Scores, score)
	}
	if first, _, _ := strings.Cut(x.Project, "/"); first == "." || first == ".." {
		if x.Project, err = filepath.Abs(x.Project); err != nil {
			return err
		}
	}
	if x.SessionFilter.Since, err = parseTime("since", x.Since); err != nil {
		return err
	}
	if x.SessionFilter.Until, err = parseTime("until", x.Until); err != nil {
		return err
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		// An empty one, such as of a variable that is not set, would select every session: rm would delete them all.
		switch {
		case filterFlags().Lookup(f.Name) == nil || err != nil:
		case f.Value.String() == "", f.Name == "tag" && slices.Contains(x.Tags, ""):
			err = usagef("--%s is empty; give one, or leave it out", f.Name)
		case f.Value.Type() == "bool" && f.Value.String() == "false":
			err = usagef("--%s=false selects nothing; leave it out", f.Name)
		}
	})
	return err
}

// reading is [reading] with the filters read before.
func (x *filters) reading(cmd *cobra.Command, fn func(ctx context.Context, r document.Reader, p *prices) error) error {
	if err := x.read(cmd); err != nil {
		return err
	}
	return reading(cmd, fn)
}

// everySession asks for sessions of all kinds.
var everySession = store.SessionQuery{Children: true, Archived: true}

// parseTime reads the value of a flag as of [store.ParseTime]. Nothing is the zero time.
func parseTime(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := store.ParseTime(text, time.Now(), time.Local)
	if err != nil {
		return at, usagef("--%s %w", flag, err)
	}
	return at, nil
}

func (x *filters) given(cmd *cobra.Command) (given bool) {
	cmd.Flags().Visit(func(f *pflag.Flag) { given = given || filterFlags().Lookup(f.Name) != nil })
	return given
}

func (x *filters) any() bool { return x.Status != "" || len(x.Set()) > 0 }

func (x *filters) query() store.SessionQuery {
	sort, _ := store.ParseSessionSort(x.Sort)
	return store.SessionQuery{SessionFilter: x.SessionFilter, Sort: sort}
}

// ids are the ids of the sessions that match, archived ones and children included.
func (x *filters) ids(ctx context.Context, r document.Reader) ([]string, error) {
	return r.SelectIDs(ctx, x.SessionFilter, x.Status)
}

// within are the ids of the sessions that match the filters besides --agent, nil if there is no such filter.
func (x *filters) within(ctx context.Context, r document.Reader) ([]string, error) {
	others := *x
	if others.Agent = ""; !others.any() {
		return nil, nil
	}
	return x.ids(ctx, r)
}

// families are those sessions of which the head of the family matches: the one from which parents lead no further
// within the sessions.
func (x *filters) families(ctx context.Context, r document.Reader, sessions []session.Session) ([]session.Session,
	error) {
	ids, err := x.ids(ctx, r)
	if err != nil {
		return nil, err
	}
	matches, heads := make(map[string]bool, len(ids)), store.FamilyHeads(sessions)
	for _, id := range ids {
		matches[id] = true
	}
	return slices.DeleteFunc(sessions, func(s session.Session) bool { return !matches[heads[s.ID]] }), nil
}

// reportNone states that no session matches, and which filter excludes them: without which of them how many would.
func (x *filters) reportNone(cmd *cobra.Command, r document.Reader, q store.SessionQuery) error {
	q.SessionFilter = x.SessionFilter
	all, others, err := r.Exclusions(cmd.Context(), q, x.Status)
	if err != nil {
		return err
	}
	type excluding struct {
		document.Exclusion
		Flag string
	}
	found := struct {
		Excluding   []excluding
		One, Others bool
		Max         int
	}{One: len(all) == 1, Others: others, Max: document.MaxExcluded}
	for _, e := range all {
		flag := "--" + e.Filter
		if e.Value != "" {
			flag += " " + shown(e.Value)
		}
		found.Excluding = append(found.Excluding, excluding{e, flag})
	}
	return note(cmd, "%s", phrases.Text("none matches", found))
}

// shown is a value of a flag as a message has it.
func shown(value string) string {
	value = document.OneLine(value)
	if strings.ContainsAny(value, " '\"") {
		return strconv.Quote(value)
	}
	return value
}
