package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

// importing is one run of import.
type importing struct {
	importer.Options
	Format                            string
	JSON, Quiet, Discover, Yes, Watch bool
}

func newImport() *cobra.Command {
	var x importing
	return described("import", &x, nil, func(cmd *cobra.Command, args []string) error {
		address, path, err := place(cmd)
		if err != nil {
			return err
		}
		x.Open = opener(cmd)
		if x.Format != "" {
			if x.Options.Format = formats.Named(x.Format, (*formats.Format).Reads); x.Options.Format == nil {
				return usagef("unknown format %q: use %s", x.Format, either(formats.Names((*formats.Format).Reads)))
			}
		}
		warn := cmd.ErrOrStderr()
		x.Warn = func(text string) { fmt.Fprintf(warn, "agenttrace: %s\n", document.Line(text)) }
		if path = stores.Name(cmp.Or(address, path)); x.Watch {
			return x.follow(cmd, path, args)
		}
		inputs, err := x.inputs(cmd, args)
		if err != nil || inputs == nil {
			return err
		}
		var line *progress
		if !x.Quiet && isTerminal(warn) {
			line = newProgress(warn, inputs)
			x.Progress, warn = line.show, line
		}
		im, err := importer.New(path, x.Options)
		if err != nil {
			return err
		}
		return errors.Join(x.run(cmd, im, inputs, line), im.Close())
	})
}

// importInto imports inputs into a store, at a path or what the options open. failed is why an input could not be read.
func importInto(ctx context.Context, path string, o importer.Options, inputs []importer.Input) (
	sum importer.Summary, failed, err error) {
	im, err := importer.New(path, o)
	if err != nil {
		return sum, nil, err
	}
	failed, err = im.Run(ctx, inputs)
	return im.Summary, failed, errors.Join(err, im.Close())
}

func (x *importing) run(cmd *cobra.Command, im *importer.Importer, inputs []importer.Input, line *progress) error {
	if _, decided := os.LookupEnv("GOGC"); !decided {
		debug.SetGCPercent(200) // what is in use is about one file, and a collection for each costs a seventh of the time
	}
	failed, err := im.Run(cmd.Context(), inputs)
	line.clear()
	if err == nil {
		err = findNotices(cmd.Context(), im)
	}
	if n := len(im.Summary.Total.Sessions); err != nil && n > 0 {
		x.Warn(counted(n, "session") + " stored so far; the same import goes on from there")
	}
	switch {
	case err != nil:
		return err
	case x.JSON:
		err = writeJSON(cmd, &im.Summary)
	default:
		err = printImport(cmd.OutOrStdout(), &im.Summary)
	}
	if err = cmp.Or(err, failed); err == nil && im.Summary.Total.Damaged > 0 {
		err = errFinding
	}
	return err
}

// inputs returns what a command line names: the arguments, standard input, or what is
// discovered. It returns nil after it has listed the latter.
func (x *importing) inputs(cmd *cobra.Command, args []string) ([]importer.Input, error) {
	if x.Discover {
		if len(args) > 0 {
			return nil, usagef("--discover looks in the usual places; leave %q out, or leave out --discover", args[0])
		}
		places, err := importer.Discover()
		if err != nil {
			return nil, err
		}
		if inputs := importer.InputsOf(places); x.Yes && len(inputs) > 0 {
			return inputs, nil
		}
		if x.JSON {
			return nil, writeJSON(cmd, slices.DeleteFunc(append([]importer.Place{}, places...), func(p importer.Place) bool {
				return len(p.Files) == 0 && p.Error == ""
			}))
		}
		_, err = io.WriteString(cmd.OutOrStdout(), phrases.Text("places", places))
		return nil, err
	}
	if len(args) == 0 {
		if f, ok := cmd.InOrStdin().(*os.File); ok && isTerminal(f) {
			return nil, usagef("import what? name files, or pipe something in")
		}
		args = []string{"-"}
	}
	return importer.Inputs(args, cmd.InOrStdin(), x.Options.Format), nil
}

// follow imports what arguments of the command line name, or what known agents keep, and
// what changes there, until the command is interrupted. Then it prints what it did.
func (x *importing) follow(cmd *cobra.Command, path string, args []string) error {
	if slices.Contains(args, "-") {
		return usagef("--watch is for files and directories; leave \"-\" out, or leave out --watch")
	}
	total := importer.Summary{Store: path, Files: []*importer.Tally{}}
	show := func(text string) error {
		if x.JSON {
			return nil
		}
		_, err := io.WriteString(cmd.OutOrStdout(), text)
		return err
	}
	w := importer.Watch{Paths: args, Discover: len(args) == 0, Format: x.Options.Format, Warn: x.Warn,
		New: func() (*importer.Importer, error) {
			im, err := importer.New(path, x.Options)
			x.Again = false // that was for what is there in the beginning
			return im, err
		},
		Imported: func(s *importer.Summary) error {
			text := ""
			for _, t := range s.Files {
				if t.Same {
					continue
				}
				if total.Total.Include(t); t.Error == "" {
					text += tallied(t, t.File)
				}
			}
			return show(text)
		},
	}
	if !x.JSON {
		_ = note(cmd, "agenttrace: importing into %s what changes; interrupt to end\n", path)
	}
	err := w.Run(cmd.Context())
	if x.JSON {
		return errors.Join(err, writeJSON(cmd, &total))
	}
	return errors.Join(err, show(tallied(&total.Total, "total")))
}

// findNotices adds the notices on the sessions whose telemetry was read to the summary, which counts those that are there.
func findNotices(ctx context.Context, im *importer.Importer) error {
	s := im.Store()
	if s == nil || im.Summary.Total.Accepted == 0 {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(im.Summary.Total.Sessions)) {
		in, err := document.Reader{Reader: s}.Collect(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			delete(im.Summary.Total.Sessions, id) // its telemetry has moved to another session
			continue
		} else if err != nil {
			return err
		}
		for _, n := range document.NoticesOf(in) {
			im.Summary.Notices = append(im.Summary.Notices, noticeLine(id, &n))
		}
	}
	return nil
}

func printImport(w io.Writer, s *importer.Summary) error {
	text := ""
	for _, t := range s.Files {
		if t.Error == "" || t.Spans+t.Records+t.Damaged+t.Joined+t.Deleted+len(t.Sessions) > 0 {
			text += tallied(t, t.File)
		}
	}
	if len(s.Files) > 1 {
		text += tallied(&s.Total, "total")
	}
	const maximum = 20
	for _, line := range s.Notices[:min(maximum, len(s.Notices))] {
		text += line + "\n"
	}
	if more := len(s.Notices) - maximum; more > 0 {
		text += counted(more, "notice") + " more; agenttrace store check lists them\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

// tallied states what was read of an input. Counts that are 0 are left out, for most are.
func tallied(t *importer.Tally, name string) string {
	return document.Sanitize(name) + ": " + strings.Join(phrases.Facts("tally", t), ", ") +
		phrases.Text("tally besides", t)
}

// progress is a line on a terminal that states how far reading has come. What else is written there goes through it.
type progress struct {
	w     io.Writer
	width int
	total int64 // the sizes of all inputs, 0 where one is not known
	drawn time.Time
	shown bool
}

func newProgress(w io.Writer, inputs []importer.Input) *progress {
	p := &progress{w: w, width: columns(w, 80)}
	for _, in := range inputs {
		if in.Size == 0 && in.Err == nil {
			p.total = 0 // nobody knows when standard input ends
			return p
		}
		p.total += in.Size
	}
	return p
}

// show draws the line unless it was just drawn.
func (p *progress) show(at importer.Progress) {
	if now := time.Now(); now.Sub(p.drawn) > 100*time.Millisecond {
		p.drawn, p.shown = now, true
		fmt.Fprintf(p.w, "\r\x1b[K%s", p.line(at))
	}
}

// line is the line in the width of the terminal: a bar, how much was read, and of what.
func (p *progress) line(at importer.Progress) string {
	text := fmt.Sprintf("%.1f MB", float64(at.Read)/1e6)
	if p.total > 0 {
		const cells = 20
		done := min(at.Read, p.total)
		text = fmt.Sprintf("[%-*s] %3d%% of %.1f MB", cells, strings.Repeat("=", int(done*cells/p.total)),
			done*100/p.total, float64(p.total)/1e6)
	}
	if !at.Counted {
		text = "reading"
	}
	if at.Sessions > 0 {
		text += "  " + counted(at.Sessions, "session")
	}
	text += "  " + document.Flat(at.Name)
	return ansi.Truncate(text, max(p.width-1, 0), "")
}

func (p *progress) clear() {
	if p != nil && p.shown {
		p.shown = false
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// Write writes a message where the line was.
func (p *progress) Write(b []byte) (int, error) {
	p.clear()
	return p.w.Write(b)
}
