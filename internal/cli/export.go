package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

func newExport() *cobra.Command {
	var e exporter
	var format string
	exportNames := formatNames((*formats.Format).Written)
	cmd := described("export", flags{
		"all": &e.all, "format": &format, "output": &e.out.path, "bundle": &e.bundle, "explain": &e.explain,
		"full": &e.full, "redact": &e.redact, "force": &e.out.force,
	}, &cobra.Command{
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return completeSessions(cmd, nil, typed)
		},
		Args: func(cmd *cobra.Command, args []string) error {
			if e.all && len(args) > 0 {
				return exactly(0, "no session with --all")(cmd, args)
			}
			if e.all && !e.filters.given(cmd) {
				return nil
			}
			if e.selects = e.filters.given(cmd); e.selects && len(args) > 0 {
				return usagef("filters and sessions exclude each other; use one of them")
			}
			if len(args) == 0 && !e.selects {
				return exactly(1, "a session, --all or a filter")(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if e.format = formats.Named(format, (*formats.Format).Written); e.format == nil {
				return usagef("unknown format %q: use %s", format, either(exportNames))
			}
			if err := e.filters.read(cmd); err != nil {
				return err
			}
			e.all = e.all || e.selects
			if err := e.check(cmd, len(args)); err != nil {
				return err
			}
			if err := e.openRedactor(cmd); err != nil {
				return err
			}
			r, err := openSessions(cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			e.out.source = r.Name()
			ids, err := e.sessions(cmd.Context(), r, args)
			if err != nil {
				return err
			}
			if len(ids) == 0 && e.selects {
				return e.filters.reportNone(cmd, r, store.SessionQuery{Children: true, Archived: true})
			}
			return e.run(cmd, r, ids)
		},
	})
	addFilters(cmd, &e.filters)
	complete(cmd, "format", exportNames)
	return cmd
}

// exporter is one run of export.
type exporter struct {
	out                output
	format             *formats.Format
	bundle             string
	all, explain, full bool
	// filters select the sessions if selects is set. redactor takes secrets out of them, nil if they are written as
	// they are stored.
	filters         filters
	selects, redact bool
	redactor        *redact.Redactor
	// perSession reports that the output is a directory.
	perSession bool
	// written counts the sessions that were exported, left those that were not. first is
	// the error of the first of them.
	written, left int
	first         error
	// repaired reports that what the command line says is in the way of each of them.
	repaired bool
}

// check finds what on the command line contradicts itself. named is how many sessions
// it names.
func (e *exporter) check(cmd *cobra.Command, named int) error {
	f := e.format
	stdout := e.toStream()
	several := e.all || named > 1
	if err := e.checkKind(cmd); err != nil || e.explain || e.bundle != "" {
		return err
	}
	if stdout {
		return e.checkStream(cmd, several)
	}
	info, err := os.Stat(e.out.path)
	isDir := err == nil && info.IsDir()
	e.perSession = isDir || os.IsPathSeparator(e.out.path[len(e.out.path)-1]) || several && !f.Many
	if e.perSession && err == nil && !isDir {
		return usagef("--output must be a directory for --format %s of many sessions, and %s is a file; name another",
			f.Name, e.out.path)
	}
	return nil
}

// checkKind finds options that the format does not have or that exclude each other.
func (e *exporter) checkKind(cmd *cobra.Command) error {
	f := e.format
	switch {
	case e.full && !f.Text:
		return usagef("--full is for transcripts, which %s is not; use it with --format %s", f.Name,
			either(formatNames(isText)))
	case e.bundle != "" && !f.Text:
		return usagef("--bundle is for transcripts, which %s is not; use it with --format %s", f.Name,
			either(formatNames(isText)))
	case e.bundle != "" && cmd.Flags().Changed("output"):
		return usagef("--bundle and --output exclude each other; use one of them")
	case e.explain && (e.bundle != "" || cmd.Flags().Changed("output")):
		return usagef("--explain writes nothing; leave out --output and --bundle")
	}
	return nil
}

// checkStream finds what the format cannot write to a stream.
func (e *exporter) checkStream(cmd *cobra.Command, several bool) error {
	f := e.format
	switch {
	case f.Stream == nil && several && !f.Many:
		return usagef("%s cannot be written to standard output, and is a file per session; "+
			"name a directory with --output",
			f.Name)
	case f.Stream == nil:
		return usagef("%s cannot be written to standard output; name a file with --output", f.Name)
	case f.Binary && isTerminal(cmd.OutOrStdout()):
		return usagef("%s is not text, and standard output is a terminal; name a file with --output", f.Name)
	case several && !f.Many:
		return usagef("export --format %s writes a file per session; name a directory with --output", f.Name)
	}
	return nil
}

// toStream reports that the output is standard output or a descriptor that is open.
func (e *exporter) toStream() bool {
	_, open := descriptor(e.out.path)
	return e.out.path == "" || e.out.path == "-" || open
}

// sessions are the ids of those to export, each once.
func (e *exporter) sessions(ctx context.Context, r document.Reader, names []string) (ids []string, err error) {
	switch {
	case e.selects:
		return e.filters.ids(ctx, r)
	case e.all:
		return r.SelectIDs(ctx, store.SessionFilter{}, "")
	}
	return resolveAll(ctx, r, names)
}

// openRedactor makes the redactor, if secrets are to be taken out.
func (e *exporter) openRedactor(cmd *cobra.Command) (err error) {
	if !cmd.Flags().Changed("redact") {
		e.redact = e.selects
	}
	switch {
	case !e.redact || e.explain:
		return nil
	case e.bundle != "":
		return usagef("--bundle has the outputs of tools as they are; leave out --redact, or add --redact=false")
	}
	e.redactor, err = redact.New(redact.Config{})
	return err
}

// run exports the sessions. Of many, one that cannot be read or written is left out and
// named, and the rest are exported; what fails for all of them, such as a full disk, ends it.
func (e *exporter) run(cmd *cobra.Command, r store.Reader, ids []string) error {
	each := func(fn func(*formats.Source) error) error {
		for _, id := range ids {
			s, err := e.format.Load(cmd.Context(), r, id, formats.LoadOptions{Full: e.full, Explain: e.explain})
			if err == nil {
				s.Redact(e.redactor)
			}
			if errors.Is(err, store.ErrNotFound) && e.all {
				continue // deleted meanwhile
			}
			if err == nil {
				err = fn(s)
			} else {
				err = readingError{err}
			}
			switch {
			case err == nil:
				e.written++
			case len(ids) == 1:
				return err
			case endsExport(cmd.Context(), err):
				return fmt.Errorf("export session %s: %w", id, err)
			default:
				e.leave(cmd, id, err)
			}
		}
		return nil
	}
	err := e.writeAll(cmd, ids, each)
	if errors.Is(err, errNone) {
		err = nil
	}
	if err == nil && e.left > 0 {
		if e.written > 0 && e.repaired {
			return fmt.Errorf("%d of %s left out: %w", e.left, counted(e.left+e.written, "session"), e.first)
		}
		if e.written == 0 {
			return fmt.Errorf("none of %s was exported: %w", counted(len(ids), "session"), e.first)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "agenttrace: %s exported, %d left out\n", counted(e.written, "session"), e.left)
		return errFinding
	}
	return err
}

// errNone ends an export that has left out every session, before a file of none is made.
var errNone = errors.New("no session was exported")

// some is err, or errNone.
func (e *exporter) some(err error) error {
	if err == nil && e.written == 0 && e.left > 0 {
		return errNone
	}
	return err
}

// leave reports a session that is not exported.
func (e *exporter) leave(cmd *cobra.Command, id string, err error) {
	e.repaired = is[usageError](err) && (e.left == 0 || e.repaired)
	e.left++
	if e.first == nil {
		e.first = fmt.Errorf("export session %s: %w", shortened(id), err)
	}
	what := strings.Join(strings.Fields(err.Error()), " ")
	fmt.Fprintf(cmd.ErrOrStderr(), "agenttrace: session %s is left out: %s\n", document.Sanitize(shortened(id)),
		document.Sanitize(what))
}

// shortened is an id as a message shows it: whole, unless it is longer than a line.
func shortened(id string) string {
	const maximum = 80
	if len(id) <= maximum {
		return id
	}
	return fmt.Sprintf("%s… (%d bytes)", document.Head(id, maximum), len(id))
}

// outputError is a failure of what all sessions are written to.
type outputError struct{ error }

func (e outputError) Unwrap() error { return e.error }

// endsExport reports whether the next session would fail as this one did.
func endsExport(ctx context.Context, err error) bool {
	writing, isWriting := errors.AsType[*writeError](err)
	return ctx.Err() != nil || is[outputError](err) || errors.Is(err, syscall.EPIPE) || isWriting && writing.lasting
}

// whole makes of a function that writes sessions to what it is given one that writes to w
// only sessions that it has written to their end: of one that fails nothing is left in w.
func whole(w io.Writer, stream func(io.Writer) func(*formats.Source) error) func(*formats.Source) error {
	var b bytes.Buffer
	encode := stream(&b)
	return func(s *formats.Source) error {
		defer b.Reset()
		if err := encode(s); err != nil {
			return err
		}
		if _, err := w.Write(b.Bytes()); err != nil {
			return outputError{err}
		}
		return nil
	}
}

func (e *exporter) writeAll(cmd *cobra.Command, ids []string, each func(func(*formats.Source) error) error) error {
	switch {
	case e.explain:
		return e.explainAll(cmd, each)
	case e.bundle != "":
		return e.writeBundle(cmd, each)
	case e.perSession:
		return e.writeDir(cmd.Context(), each)
	case e.format.Store != nil:
		if e.all {
			slices.Reverse(ids) // what was stored last is found first
		}
		// The store reports what it cannot hold after it has taken the session.
		var left func(id string, err error)
		if len(ids) > 1 {
			left = func(id string, err error) {
				e.written--
				e.leave(cmd, id, err)
			}
		}
		return e.out.database().place(e.out.path, func(path string) error {
			return e.some(e.format.Store(cmd.Context(), path, pulled(each), left))
		})
	case !e.toStream() && e.format.WritesTo(e.out.path):
		return each(func(s *formats.Source) error {
			return e.out.database().place(e.out.path, func(path string) error { return e.format.File(path, s) })
		})
	}
	return e.out.write(cmd, e.out.path, e.format.JSON, func(w io.Writer) error {
		if len(ids) == 1 {
			return each(e.format.Stream(w))
		}
		return e.some(each(whole(w, e.format.Stream)))
	})
}

// pulled are the sessions that each calls its function with.
func pulled(each func(func(*formats.Source) error) error) iter.Seq2[*codec.Session, error] {
	return func(yield func(*codec.Session, error) bool) {
		stopped := errors.New("stopped")
		err := each(func(s *formats.Source) error {
			if !yield(s.Session, nil) {
				return outputError{stopped}
			}
			return nil
		})
		if err != nil && !errors.Is(err, stopped) {
			yield(nil, err)
		}
	}
}

// explainAll lists what the format would lose, and ends with errFinding when it would.
func (e *exporter) explainAll(cmd *cobra.Command, each func(func(*formats.Source) error) error) error {
	out := cmd.OutOrStdout()
	lost := false
	err := each(func(s *formats.Source) error {
		losses := e.format.Explain(s)
		if len(losses) == 0 {
			_, err := fmt.Fprintf(out, "%s: %s holds all of it\n", document.Sanitize(s.Transcript.Session.ID),
				e.format.Name)
			return err
		}
		if _, err := fmt.Fprintf(out, "%s: %s does not hold\n", document.Sanitize(s.Transcript.Session.ID),
			e.format.Name); err != nil {
			return err
		}
		for _, l := range losses {
			how := "lost"
			switch {
			case l.Kept != "":
				how = "kept: " + l.Kept
			case l.Note != "":
				how = "partly lost: " + l.Note
			}
			lost = lost || l.Kept == ""
			if _, err := fmt.Fprintf(out, "  %6d  %s (%s)\n", l.Count, l.What, how); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && lost {
		return errFinding
	}
	return err
}

// writeDir writes a file per session, or what layout the format has.
func (e *exporter) writeDir(ctx context.Context, each func(func(*formats.Source) error) error) error {
	if err := makeDirectory(e.out.path); err != nil {
		return err
	}
	return each(func(s *formats.Source) error {
		if e.format.Dir != nil {
			err := e.format.Dir(e.out.path, s, e.out.force)
			if errors.Is(err, fs.ErrExist) {
				return usagef("%w; choose another directory or add --force", err)
			}
			return unwritten(e.out.path, err)
		}
		path := filepath.Join(e.out.path, codec.FileName(s.Transcript.Session.ID)+e.format.Ext)
		if e.format.WritesTo(path) {
			return e.out.database().place(path, func(temporary string) error {
				return e.format.WriteFile(ctx, temporary, s)
			})
		}
		return e.out.file(ctx, path, e.format.JSON, func(w io.Writer) error { return e.format.Stream(w)(s) })
	})
}

func formatNames(which func(*formats.Format) bool) []string {
	var names []string
	for _, f := range formats.Filter(which) {
		names = append(names, f.Name)
	}
	return names
}

func isText(f *formats.Format) bool { return f.Text }

// either names one of several things.
func either(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

func exportList() string {
	var b strings.Builder
	for _, f := range formats.Filter((*formats.Format).Written) {
		fmt.Fprintf(&b, "  %-10s  %s\n", f.Name, f.Exported)
	}
	return b.String()
}
