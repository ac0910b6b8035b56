// Package cli is the command line of agenttrace: a function for each subcommand, and manual.txt with their help.
//
// Rules of the interface. Data goes to standard output, everything else to standard error. What comes from a session is
// never written to a terminal as it is: see [document.Sanitize]. Messages are one line, lower case, without a period;
// an error may have a second line that begins with "hint:" and states what to do. Tables fit the terminal; --json is
// for machines. Nothing but run, proxy, hooks, collect, demo, import, replay --run, edit, fork, rewind, rm, store gc
// and store migrate writes to a store.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	zombiezen "zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/web"
)

// Exit codes.
const (
	exitOK = 0
	// check found a violation, status trouble, import a damaged piece, diff a difference, replay something missing
	exitFinding  = 1
	exitUsage    = 2 // the command line is wrong
	exitNotFound = 3 // no session, or more than one, answers to the name
	exitStore    = 4 // the store cannot be read or written
	exitOther    = 5
	// exitInterrupted is what shells make of Ctrl-C.
	exitInterrupted = 130
)

// endLimit is how long an interrupted command may take to end: it may wait for the reader of a pipe,
// or for its writer. A store that is written meanwhile rolls back what it did not commit.
const endLimit = 2 * time.Second

// Main runs the command line and returns the exit code.
func Main(version string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// A reader that has seen enough is not a failure: without this the process would
	// die of the write to a closed standard output.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot(version, args)
	named, _, _ := root.Find(args)
	defer context.AfterFunc(ctx, func() {
		stop() // a second Ctrl-C does not wait
		// These store what agents did so far, however long that takes.
		if named == nil || !slices.Contains([]string{"collect", "demo", "run", "record", "proxy"}, named.Name()) {
			time.AfterFunc(endLimit, func() { os.Exit(exitInterrupted) })
		}
	})()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return exitOK // the reader of the output has seen enough
	}
	if errors.Is(err, errFinding) {
		return exitFinding
	}
	if agent, ok := errors.AsType[exited](err); ok {
		dieLikeAgent()
		return agent.code
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	if path, pathErr := storePath(cmd); pathErr == nil {
		err = readError(path, err)
	}
	if writing, ok := errors.AsType[*fs.PathError](err); ok && writing.Op == "write" &&
		writing.Path == os.Stdout.Name() {
		err = unwritten("standard output", err)
	}
	code, hint := classify(err)
	what := strings.Join(strings.Fields(err.Error()), " ")
	if i := strings.LastIndex(what, "; "); i >= 0 && (code != exitOther || is[*writeError](err)) {
		what, hint = what[:i], what[i+2:] // the remedy that such errors end with
	}
	if code == exitUsage && hint == "" {
		hint = "see " + cmd.CommandPath() + " --help"
	}
	fmt.Fprintf(stderr, "agenttrace: %s\n", document.Sanitize(what))
	if hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", document.Sanitize(hint))
	}
	return code
}

// errFinding ends a command that has said what it found.
var errFinding = errors.New("violations were found")

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// storeError is a store that is not there, or whose database is damaged, with what to do about it.
type storeError struct {
	error
	hint string
}

func (e storeError) Unwrap() error { return e.error }

const noStoreHint = "run agenttrace demo to make one, or name another with --store or " + envStore

// readError names the store that err comes from if its database is damaged, which shows at any read.
func readError(path string, err error) error {
	if zombiezen.ErrCode(err).ToPrimary() != zombiezen.ResultCorrupt || is[storeError](err) {
		return err
	}
	// The chain may report that it is not a store, as the file of a damaged one may look.
	return storeError{fmt.Errorf("read store %s: the database is damaged: %w", path, zombiezen.ResultCorrupt.ToError()),
		fmt.Sprintf("save what can be read with sqlite3 %s .recover, or restore a backup", path)}
}

func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

func classify(err error) (code int, hint string) {
	problem, isProblem := errors.AsType[*web.Problem](err)
	unusable, isUnusable := errors.AsType[storeError](err)
	switch {
	case is[usageError](err), is[*collector.OptionsError](err), is[*document.NoTurnError](err),
		isProblem && slices.Contains([]string{web.CodeInvalid, web.CodeNotFound, web.CodeBusy, web.CodeHidden,
			web.CodeNotUsers, web.CodeNoRewind}, problem.Code):
		return exitUsage, ""
	case is[*writeError](err): // of a store that is written for somebody else, too
		return exitOther, ""
	case isUnusable:
		return exitStore, unusable.hint
	case errors.Is(err, store.ErrAmbiguous):
		return exitNotFound, "type more of the id"
	case errors.Is(err, store.ErrNotFound):
		return exitNotFound, "agenttrace ls --all lists every session"
	case errors.Is(err, store.ErrLocked), errors.Is(err, store.ErrNotStore), errors.Is(err, store.ErrNewer),
		errors.Is(err, store.ErrOlder), errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrDenied):
		return exitStore, ""
	}
	return exitOther, ""
}

// newRoot has the command that args name, or all commands if they name no other than those that list them.
func newRoot(version string, args []string) *cobra.Command {
	root := described("agenttrace", nil, cobra.ArbitraryArgs, func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			if err := browse(cmd); !errors.Is(err, errNoBrowser) {
				return err
			}
			return cmd.Help()
		}
		if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
			return usagef("there is no command %q; did you mean agenttrace %s?", args[0], like[0])
		}
		return usagef("there is no command %q; agenttrace help lists the commands", args[0])
	})
	root.Version, root.SilenceUsage, root.SilenceErrors, root.SuggestionsMinimumDistance = version, true, true, 2
	root.SetFlagErrorFunc(flagError)
	addFlags(root.PersistentFlags(), "(store)", nil)
	_ = root.RegisterFlagCompletionFunc("store", func(*cobra.Command, []string, string) ([]string,
		cobra.ShellCompDirective) {
		return []string{"db"}, cobra.ShellCompDirectiveFilterFileExt
	})
	type command struct {
		group, name string
		make        func() *cobra.Command
	}
	commands := []command{
		{"Read", "ls", newList}, {"Read", "search", newSearch}, {"Read", "show", newShow}, {"Read", "view", newView},
		{"Read", "tail", newTail}, {"Read", "status", newStatus}, {"Read", "diff", newDiff}, {"Read", "stats", newStats},
		{"Read", "acp", newACP},
		{"Run", "run", newRun}, {"Run", "proxy", newProxy}, {"Run", "hooks", newHooks}, {"Run", "demo", newDemo},
		{"Run", "collect", func() *cobra.Command { return newCollect(version) }}, {"Run", "replay", newReplay},
		{"Run", "mcp", newMCP},
		{"Judge", "gate", newGate}, {"Judge", "experiment", newExperiment}, {"Judge", "dataset", newDataset},
		{"Judge", "blame", newBlame}, {"Judge", "watch", newWatch},
		{"Change", "edit", newEdit}, {"Change", "fork", newFork}, {"Change", "rewind", newRewind},
		{"Change", "rm", newRemove},
		{"Move", "import", newImport}, {"Move", "export", newExport}, {"Move", "redact", newRedact},
		{"Store", "store", newStore}, {"Store", "prices", newPrices},
		{"", "version", newVersion},
	}
	// A command starts sooner if it is the only one. Whatever else is asked for, such as help, may list all of them.
	named := firstArgument(root.PersistentFlags(), args)
	one := slices.ContainsFunc(commands, func(c command) bool { return c.name == named })
	for _, c := range commands {
		if c.group != "" && !root.ContainsGroup(c.group) {
			root.AddGroup(&cobra.Group{ID: c.group, Title: c.group + ":"})
		}
		if !one || c.name == named {
			cmd := c.make()
			cmd.GroupID = c.group
			root.AddCommand(cmd)
		}
	}
	helpText := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		var text strings.Builder
		out := cmd.OutOrStdout()
		cmd.SetOut(&text)
		helpText(cmd, args)
		cmd.SetOut(out)
		if cmd == root {
			text.WriteString("\n" + manual("exit-codes").long + "\n")
		}
		_, _ = io.WriteString(out, wrapped(text.String(), min(columns(out, 80), 120)))
	})
	if root.CompletionOptions.DisableDefaultCmd = one; one {
		return root
	}
	root.AddCommand(newMan(), described("exit-codes", nil, nil, nil), described("environment", nil, nil, nil))
	root.InitDefaultCompletionCmd("complete")
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = helpTopic
		case "completion":
			cmd.Args, cmd.RunE = onlyCommands, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			for _, shell := range cmd.Commands() {
				shell.Args = noArguments
			}
		}
	}
	return root
}

// firstArgument is the first of args that is neither a flag that stands before commands nor its value.
func firstArgument(flags *pflag.FlagSet, args []string) string {
	for i := 0; i < len(args); i++ {
		if name, isFlag := strings.CutPrefix(args[i], "--"); isFlag && flags.Lookup(name) != nil {
			i++ // each has a value
		} else if !strings.HasPrefix(args[i], "-") {
			return args[i]
		}
	}
	return ""
}

func helpTopic(cmd *cobra.Command, args []string) error {
	_, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return usagef("there is no help on %q; agenttrace help lists the commands", strings.Join(args, " "))
	}
	return nil
}

// flagError says in the words of the command line what is wrong with a flag.
func flagError(cmd *cobra.Command, err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		kind := invalid.GetFlag().Value.Type()
		want := map[string]string{"int": "a number", "bool": "true or false", "duration": "a duration such as 30s or 5m"}
		err = fmt.Errorf("--%s %q is not %s", invalid.GetFlag().Name, invalid.GetValue(), cmp.Or(want[kind], "a "+kind))
	}
	return usagef("%w; see %s --help", err, cmd.CommandPath())
}

// onlyCommands refuses what is no command below cmd.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s has no command %q; %s --help lists its commands", cmd.Name(), args[0], cmd.CommandPath())
	}
	return nil
}

// exactly counts arguments; another number is a mistake in the command line.
func exactly(n int, what string) cobra.PositionalArgs { return between(n, n, what) }

var noArguments = exactly(0, "no arguments")

func between(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usagef("%s takes %s, not %d; %s --help shows examples", cmd.Name(), what, len(args),
				cmd.CommandPath())
		}
		return nil
	}
}

var atLeastOne = between(1, math.MaxInt, "one session or more")

func newCollect(version string) *cobra.Command {
	c := collector.Command(version)
	for _, cmd := range append(c.Commands(), c) {
		cmd.Args = noArguments
	}
	return c
}

// Version is that of the binary: as the linker set it, else as it was built.
func Version(linked string) string {
	if linked != "" {
		return linked
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v // of a module, or of the commit that it was built from
	}
	return "devel"
}

func newVersion() *cobra.Command {
	var x struct{ JSON bool }
	return described("version", &x, noArguments, func(cmd *cobra.Command, _ []string) error {
		version := cmd.Root().Version
		if x.JSON {
			return writeJSON(cmd, map[string]string{"version": version, "go": runtime.Version(), "os": runtime.GOOS,
				"arch": runtime.GOARCH})
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "agenttrace %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS,
			runtime.GOARCH)
		return err
	})
}
