package cli

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

func newExport() *cobra.Command {
	var e exporter
	return described("export", &e, func(cmd *cobra.Command, args []string) error {
		e.selects = e.given(cmd)
		switch {
		case e.All && len(args) > 0:
			return exactly(0, "no session with --all")(cmd, args)
		case e.selects && len(args) > 0:
			return usagef("filters and sessions exclude each other; use one of them")
		case len(args) == 0 && !e.selects && !e.All:
			return exactly(1, "a session, --all or a filter")(cmd, args)
		}
		return nil
	}, func(cmd *cobra.Command, args []string) error {
		if e.format = formats.Named(e.Format, (*formats.Format).Written); e.format == nil {
			return usagef("unknown format %q: use %s", e.Format, either(formats.Names((*formats.Format).Written)))
		}
		if err := e.read(cmd); err != nil {
			return err
		}
		e.cmd, e.All = cmd, e.All || e.selects
		if err := e.check(e.All || len(args) > 1); err != nil {
			return err
		}
		return reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) (err error) {
			e.reader, e.source = r, r.Name()
			switch {
			case e.selects:
				e.ids, err = e.filters.ids(ctx, r)
			case e.All:
				e.ids, err = r.SelectIDs(ctx, store.SessionFilter{}, "")
			default:
				e.ids, err = resolveAll(ctx, r, args)
			}
			if err == nil && len(e.ids) == 0 && e.selects {
				return e.reportNone(cmd, r, everySession)
			}
			if err == nil {
				err = e.run()
			}
			return err
		})
	})
}

// exporter is one run of export.
type exporter struct {
	output
	Format, Bundle             string
	All, Explain, Full, Redact bool
	// filters select the sessions if selects is set. redactor takes secrets out of them, nil if they are written as
	// they are stored.
	filters
	selects  bool
	redactor *redact.Redactor

	cmd    *cobra.Command
	reader store.Reader
	ids    []string
	format *formats.Format
	// perSession reports that the output is a directory.
	perSession bool
	// written counts the sessions that were exported, left those that were not. first is
	// the error of the first of them.
	written, left int
	first         error
}

// check finds what on the command line contradicts itself, for one session or several, and makes the redactor if
// secrets are to be taken out.
func (e *exporter) check(several bool) (err error) {
	f := e.format
	if (e.Full || e.Bundle != "") && !f.Text {
		flag := "full"
		if !e.Full {
			flag = "bundle"
		}
		return usagef("--%s is for transcripts, which %s is not; use it with --format %s", flag, f.Name,
			either(formats.Names(func(f *formats.Format) bool { return f.Text })))
	}
	if !e.cmd.Flags().Changed("redact") {
		e.Redact = e.selects
	}
	e.Redact = e.Redact && !e.Explain
	switch {
	case e.Bundle != "" && e.Redact:
		return usagef("--bundle has the outputs of tools as they are; leave out --redact, or add --redact=false")
	case e.Explain || e.Bundle != "":
	case isStandard(e.Output):
		err = e.checkStream(several)
	default:
		err = e.checkFile(several)
	}
	if err == nil && e.Redact {
		e.redactor, err = redact.New(redact.Config{})
	}
	return err
}

func (e *exporter) checkFile(several bool) error {
	info, err := os.Stat(e.Output)
	isDir := err == nil && info.IsDir()
	e.perSession = !e.format.InFile() || isDir || os.IsPathSeparator(e.Output[len(e.Output)-1]) ||
		several && !e.format.Many
	if e.perSession && err == nil && !isDir {
		return usagef("--output must be a directory for --format %s of many sessions, and %s is a file; name another",
			e.format.Name, e.Output)
	}
	return nil
}

// checkStream finds what the format cannot write to a stream.
func (e *exporter) checkStream(several bool) error {
	f := e.format
	switch {
	case !f.InFile(), several && !f.Many:
		return usagef("%s cannot be written to standard output; name a directory with --output", f.Name)
	case f.Stream == nil:
		return usagef("%s cannot be written to standard output; name a file with --output", f.Name)
	case f.Binary && isTerminal(e.cmd.OutOrStdout()):
		return usagef("%s is not text, and standard output is a terminal; name a file with --output", f.Name)
	}
	return nil
}

func (e *exporter) run() error {
	if err := e.some(e.write()); err != nil || e.left == 0 {
		return err
	}
	_ = note(e.cmd, "agenttrace: %s exported, %d left out\n", counted(e.written, "session"), e.left)
	return errFinding
}

// each calls fn with the sessions. Of many, one that cannot be read or written is left out and
// named, and the rest are exported; what fails for all of them, such as a full disk, ends it.
func (e *exporter) each(fn func(*formats.Source) error) error {
	ctx := e.cmd.Context()
	for _, id := range e.ids {
		s, err := e.format.Load(ctx, e.reader, id, formats.LoadOptions{Full: e.Full, Explain: e.Explain})
		if errors.Is(err, store.ErrNotFound) && e.All {
			continue // deleted meanwhile
		}
		if err != nil {
			err = readingError{err}
		} else {
			s.Redact(e.redactor)
			err = fn(s)
		}
		switch {
		case err == nil:
			e.written++
		case len(e.ids) == 1:
			return err
		case ctx.Err() != nil, is[outputError](err), is[*writeError](err), errors.Is(err, syscall.EPIPE):
			return fmt.Errorf("export session %s: %w", id, err) // the next session would fail as this one did
		default:
			e.leave(id, err)
		}
	}
	return nil
}

// some is err, or the error of an export that has left out every session, of which no file is made.
func (e *exporter) some(err error) error {
	if err == nil && e.written == 0 && e.left > 0 {
		return readingError{fmt.Errorf("none of %s was exported: %w", counted(len(e.ids), "session"), e.first)}
	}
	return err
}

func (e *exporter) leave(id string, err error) {
	e.left++
	if e.first == nil {
		e.first = fmt.Errorf("export session %s: %w", id, err)
	}
	what := strings.Join(strings.Fields(err.Error()), " ")
	_ = note(e.cmd, "agenttrace: session %s is left out: %s\n", document.Sanitize(id), document.Sanitize(what))
}

// outputError is a failure of what all sessions are written to.
type outputError struct{ error }

func (e outputError) Unwrap() error { return e.error }

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

func (e *exporter) write() error {
	switch {
	case e.Explain:
		return e.explainAll()
	case e.Bundle != "":
		return e.writeBundle()
	case e.perSession:
		return e.writeDir()
	case e.format.Store != nil:
		return e.writeStore()
	case !isStandard(e.Output) && e.format.WritesTo(e.Output):
		return e.each(func(s *formats.Source) error {
			return e.place(e.Output, true, func(path string) error { return e.format.File(path, s) })
		})
	}
	return e.output.write(e.cmd, e.Output, e.format.JSON, func(w io.Writer) error {
		if len(e.ids) == 1 {
			return e.each(e.format.Stream(w))
		}
		return e.some(e.each(whole(w, e.format.Stream)))
	})
}

func (e *exporter) writeStore() error {
	if e.All {
		slices.Reverse(e.ids) // what was stored last is found first
	}
	// The store reports what it cannot hold after it has taken the session.
	var left func(id string, err error)
	if len(e.ids) > 1 {
		left = func(id string, err error) {
			e.written--
			e.leave(id, err)
		}
	}
	stopped := errors.New("stopped")
	sessions := func(yield func(*codec.Session, error) bool) {
		err := e.each(func(s *formats.Source) error {
			if !yield(s.Session, nil) {
				return outputError{stopped}
			}
			return nil
		})
		if err != nil && !errors.Is(err, stopped) {
			yield(nil, err)
		}
	}
	return e.place(e.Output, true, func(path string) error {
		return e.some(e.format.Store(e.cmd.Context(), path, sessions, left))
	})
}

// explainAll lists what the format would lose, and ends with errFinding when it would.
func (e *exporter) explainAll() error {
	lost := false
	err := e.each(func(s *formats.Source) error {
		losses := e.format.Explain(s)
		lost = lost || slices.ContainsFunc(losses, func(l codec.Loss) bool { return l.Kept == "" })
		_, err := io.WriteString(e.cmd.OutOrStdout(), phrases.Text("losses", struct {
			*formats.Source
			Format string
			Losses []codec.Loss
		}{s, e.format.Name, losses}))
		return err
	})
	if err == nil && lost {
		return errFinding
	}
	return err
}

// writeDir writes a file per session, or what layout the format has.
func (e *exporter) writeDir() error {
	if err := makeDirectory(e.Output); err != nil {
		return err
	}
	ctx := e.cmd.Context()
	return e.each(func(s *formats.Source) error {
		if e.format.Dir != nil {
			err := e.format.Dir(e.Output, s, e.Force)
			if errors.Is(err, fs.ErrExist) {
				return usagef("%w; choose another directory or add --force", err)
			}
			return unwritten(e.Output, err)
		}
		path := filepath.Join(e.Output, codec.FileName(s.Transcript.Session.ID)+e.format.Ext)
		if e.format.WritesTo(path) {
			return e.place(path, true, func(temporary string) error {
				return e.format.WriteFile(ctx, temporary, s)
			})
		}
		return e.file(path, e.format.JSON, func(w io.Writer) error { return e.format.Stream(w)(s) })
	})
}

// A path in a session is what some telemetry reported, and a bundle is made to be sent. So a
// file goes into it only when it is what the agent reported that it is: its SHA-256 stands
// with the path. A path that leads to somebody's keys leads nowhere then.

// maxSideFile is the greatest side file that is bundled.
const maxSideFile = 256 << 20

func (e *exporter) writeBundle() error {
	var missing []string
	err := e.output.write(e.cmd, e.Bundle, e.format.JSON, func(w io.Writer) error {
		z := zip.NewWriter(w)
		packed := make(map[string]string) // by SHA-256, the name in the zip
		err := e.each(func(s *formats.Source) error {
			s.Files = make(map[string]string)
			seen := make(map[string]bool)
			for c := range document.Build(s.Input).ToolCalls() {
				path, sum := c.OutputPath, strings.ToLower(c.OutputSHA256)
				if path == "" || seen[path] {
					continue
				}
				seen[path] = true
				name, ok := packed[sum]
				if !ok {
					content, err := sideFile(c, session.Deref(s.Transcript.Session.WorkspaceRoot))
					if err != nil {
						missing = append(missing, fmt.Sprintf("%s: %v", s.Transcript.Session.ID, err))
						continue
					}
					name = "files/" + sum[:16] + "-" + codec.FileName(
						strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))) + plainExt().FindString(path)
					if err := pack(z, name, content); err != nil {
						return err
					}
					packed[sum] = name
				}
				s.Files[path] = name
			}
			var page bytes.Buffer
			if err := e.format.Stream(&page)(s); err != nil {
				return err // before it has an entry
			}
			return pack(z, codec.FileName(s.Transcript.Session.ID)+e.format.Ext, page.Bytes())
		})
		if err = e.some(err); err == nil && len(missing) > 0 {
			err = pack(z, "missing.txt", []byte(document.Sanitize(strings.Join(missing, "\n"))+"\n"))
		}
		return errors.Join(err, z.Close())
	})
	if err != nil {
		return err
	}
	for _, m := range missing {
		_ = note(e.cmd, "agenttrace: left out: %s\n", document.Line(m))
	}
	return nil
}

func pack(z *zip.Writer, name string, content []byte) error {
	w, err := z.Create(name)
	if err == nil {
		_, err = w.Write(content)
	}
	if err != nil {
		return outputError{err}
	}
	return nil
}

// plainExt is the extension of a path, if it is a plain one.
var plainExt = lazy.Regexp(`\.[a-zA-Z0-9]{1,9}$`)

// sideFile returns the file of an output, which is looked for below the workspace where its path says no more, if it is
// the one that was meant.
func sideFile(c *document.ToolCall, root string) ([]byte, error) {
	path := c.OutputPath
	if !filepath.IsAbs(path) {
		path = filepath.Join(root, path)
	}
	if len(c.OutputSHA256) != hex.EncodedLen(sha256.Size) {
		return nil, fmt.Errorf("%s: the session has no SHA-256 of it", path)
	}
	f, err := codec.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxSideFile+1))
	switch sum := sha256.Sum256(content); {
	case err != nil:
		return nil, err
	case len(content) > maxSideFile:
		return nil, fmt.Errorf("%s: it is larger than 256 MiB", path)
	case hex.EncodeToString(sum[:]) != strings.ToLower(c.OutputSHA256):
		return nil, fmt.Errorf("%s: its SHA-256 differs from the one in the session", path)
	}
	return content, nil
}

func newRedact() *cobra.Command {
	var x struct{ Explain bool }
	return described("redact", &x, between(0, 1, "one file"),
		func(cmd *cobra.Command, args []string) error {
			var text []byte
			var err error
			if len(args) == 0 || args[0] == "-" {
				text, err = io.ReadAll(cmd.InOrStdin())
			} else {
				text, err = os.ReadFile(args[0])
			}
			if err != nil {
				return usagef("read text: %w", err)
			}
			r, err := redact.New(redact.Config{})
			if err != nil {
				return err
			}
			if !x.Explain {
				_, err = io.WriteString(cmd.OutOrStdout(), r.Text(string(text)))
				return err
			}
			return printCandidates(cmd, r, string(text))
		})
}

func printCandidates(cmd *cobra.Command, r *redact.Redactor, text string) error {
	rows := [][]string{{"AT", "VERDICT", "SCORE", "LABEL", "KIND", "WHY"}}
	for _, x := range r.Explain(text) {
		verdict, before := "-", text[:x.Start]
		if x.Secret {
			verdict = "secret"
		}
		var reasons []string
		if x.Rule != "" {
			reasons = append(reasons, "rule "+x.Rule)
		}
		slices.SortStableFunc(x.Features, func(a, b redact.Feature) int {
			return max(b.Weight, -b.Weight) - max(a.Weight, -a.Weight)
		})
		const most = 6 // those that count for most are enough to see why
		for _, f := range x.Features[:min(most, len(x.Features))] {
			reasons = append(reasons, fmt.Sprintf("%s %+d", f.Name, f.Weight))
		}
		if n := len(x.Features) - most; n > 0 {
			reasons = append(reasons, fmt.Sprintf("%d more", n))
		}
		// A label is a name of the text, where other secrets may be.
		label := r.Text(document.Line(x.Label))
		at := fmt.Sprintf("%d:%d", strings.Count(before, "\n")+1, x.Start-strings.LastIndexByte(before, '\n'))
		rows = append(rows, []string{at, verdict, fmt.Sprintf("%+d", x.Score), cmp.Or(label, "-"), cmp.Or(x.Kind, "-"),
			strings.Join(reasons, ", ")})
	}
	return printTable(cmd, rows)
}
