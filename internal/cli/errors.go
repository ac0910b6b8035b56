package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/inspect"
	"github.com/agenttrace/agenttrace/session/store"
)

// Exit statuses.
const (
	ExitOK = 0
	// ExitFinding: the command did its work and found something, such as a
	// violation.
	ExitFinding = 1
	ExitUsage   = 2
	// ExitNotFound: no session, or more than one, has the name.
	ExitNotFound = 3
	// ExitUnreadable: a store or file cannot be opened or read.
	ExitUnreadable = 4
	ExitOther      = 5
	// ExitInterrupted is what shells make of Ctrl-C.
	ExitInterrupted = 130
)

func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit status means",
		Long: `What the exit status means.

    0  all is well
    1  a finding: "check" found violations
    2  the command line is wrong
    3  the session was not found, or its name fits more than one
    4  the store or a file cannot be opened or read, or another writer holds it
    5  anything else
  130  interrupted`,
	}
}

// failure is an error with what only the command knows: the exit status and a
// remedy.
type failure struct {
	err  error
	code int
	hint string
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func usageError(what, hint string) error {
	return &failure{errors.New(what), ExitUsage, hint}
}

// errFinding ends a command that has said what it found.
var errFinding = errors.New("something was found")

// storeError is an error of opening or reading a store.
func storeError(err error) error {
	f := &failure{err: err, code: ExitUnreadable}
	if errors.Is(err, store.ErrNotFound) {
		f.hint = "agenttrace demo makes a session, agenttrace collect receives them; --store names another file"
	}
	return f
}

// report tells the user of an error and returns the exit status.
func (p *program) report(ctx context.Context, err error) int {
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return ExitOK // whoever reads our output has seen enough
	}
	if errors.Is(err, errFinding) {
		return ExitFinding
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return ExitInterrupted
	}
	code, hint := ExitOther, ""
	f, isFailure := errors.AsType[*failure](err)
	switch {
	case isFailure:
		code, hint = f.code, f.hint
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrAmbiguous):
		code = ExitNotFound
	case errors.Is(err, store.ErrLocked), errors.Is(err, store.ErrNotStore), errors.Is(err, store.ErrNewer), errors.Is(err, store.ErrUnavailable):
		code = ExitUnreadable
	}
	what := strings.Join(strings.Fields(err.Error()), " ")
	if hint == "" && (code == ExitUnreadable || code == ExitNotFound) {
		// The errors of a store end with what can be done about them.
		if before, after, ok := cutLast(what, "; "); ok {
			what, hint = before, after
		}
	}
	switch {
	case hint != "":
	case errors.Is(err, store.ErrAmbiguous):
		hint = "give more of the id"
	case errors.Is(err, store.ErrNotFound):
		hint = "agenttrace ls --all --children --archived lists every session"
	}
	fmt.Fprintf(p.stderr, "agenttrace: %s\n", inspect.Sanitize(what))
	if hint != "" {
		fmt.Fprintf(p.stderr, "hint: %s\n", inspect.Sanitize(hint))
	}
	return code
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// arguments makes a usage error of what check has to say.
func arguments(check cobra.PositionalArgs, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check == nil || check(cmd, args) == nil {
			return nil
		}
		return usageError(what, cmd.CommandPath()+" --help shows examples")
	}
}

func quote(s string) string { return strconv.Quote(s) }
