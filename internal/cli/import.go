package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	zombiezen "zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/inspect"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// telemetryReaders read the formats that hold telemetry. Their error ends the file.
var telemetryReaders = map[string]func(ctx context.Context, im *importer, r io.Reader, t *tally) error{
	"otlp": importOTLP, "spool": importSpool,
}

func imported(f *formats.Format) bool { return f.Imported != "" }

func newImport() *cobra.Command {
	var format string
	var asJSON, quiet, secrets, invalid, discover, yes bool
	cmd := &cobra.Command{
		Use:   "import [FILE]...",
		Short: "Read telemetry and sessions from files into the store",
		Long: `Read telemetry and sessions from files into the store, which is made if there
is none.

A FILE may be "-" for standard input, which is read too where no file is named
and something is piped in, or a directory: one that an agent's program keeps is
read as a whole, and of any other, and the directories below it that are not
hidden, the files are read that end in
` + extensions() + `,
in the order of their names, and what is none of these formats is left out:

` + formatList() + `
The format is detected from the content. A file may be compressed with gzip or zstd;
telemetry may be one body, JSON lines, or frames. Importing a file again changes
nothing. Secrets are taken out of everything before it is stored, ids and names
included, and of telemetry values of more than 1 MiB are cut, as a collector does
it; with --keep-secrets all is stored as it is.

Values of sessions are stored whole. Where the store has a session, the two are
merged: of each message and part the later version stands, and what
only one of them has stays. A session that breaks a rule of "agenttrace check"
is left out; --unsound says which rules, and imports it. A transcript that a
program keeps is merged with what the program's telemetry reports of the session,
whichever comes first. With --discover no FILE is named: what agents keep in the
usual places is listed, and with --yes imported.

A piece that cannot be read is reported and left out, and the exit code is 1; a
file that cannot be read does not keep the others from being read, and the exit
code is 5.`,
		Example: `  agenttrace import traces.json
  agenttrace import --store old.db exported/ more.jsonl.zst
  agenttrace import ~/.agentdbg other-machine.db
  kubectl exec collector -- cat /data/otlp.jsonl | agenttrace import`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			path, err := storePath(cmd)
			if err != nil {
				return err
			}
			im := importer{path: path, warn: cmd.ErrOrStderr(), keepSecrets: secrets, invalid: invalid, summary: importSummary{Store: path, Files: []*tally{}}}
			if !secrets {
				if im.sessionRedactor, err = redact.New(redact.Config{}); err != nil {
					return err
				}
			}
			if format != "" {
				if im.format = formats.Named(format, imported); im.format == nil {
					return usagef("unknown format %q: use %s", format, either(formatNames(imported)))
				}
			}
			var inputs []input
			if yes && !discover {
				return usagef("--yes is for what --discover lists; add --discover, or leave out --yes")
			}
			if discover {
				var places []place
				if places, err = discovered(args); err != nil {
					return err
				}
				inputs = inputsOf(places)
				if !yes || len(inputs) == 0 {
					if asJSON {
						return writeJSON(cmd, listed(places))
					}
					return printPlaces(cmd.OutOrStdout(), places)
				}
			} else if inputs, err = im.inputs(cmd, args); err != nil {
				return err
			}
			if !quiet && isTerminal(cmd.ErrOrStderr()) {
				im.progress = newProgress(cmd.ErrOrStderr(), inputs)
				im.warn = im.progress
			}
			defer func() { err = errors.Join(err, im.close()) }()
			failed, err := im.run(cmd.Context(), inputs)
			im.progress.clear()
			if err != nil {
				if n := len(im.summary.Total.Sessions); n > 0 {
					im.warnf("%s stored so far; the same import goes on from there", counted(n, "session"))
				}
				return err
			}
			if asJSON {
				err = writeJSON(cmd, &im.summary)
			} else {
				err = im.summary.print(cmd.OutOrStdout())
			}
			if err == nil {
				err = failed
			}
			if err == nil && im.summary.Total.Damaged > 0 {
				return errFinding
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&format, "format", "", either(formatNames(imported))+", instead of detecting the format")
	f.BoolVar(&asJSON, "json", false, "print a JSON object")
	f.BoolVarP(&quiet, "quiet", "q", false, "show no progress")
	f.BoolVar(&secrets, "keep-secrets", false, "do not remove secrets or truncate long values")
	f.BoolVar(&invalid, "unsound", false, "import sessions that violate rules as well")
	f.BoolVar(&discover, "discover", false, "list session files of known agents in their usual places")
	f.BoolVar(&yes, "yes", false, "import what --discover lists")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formatNames(imported), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func formatList() string {
	var b strings.Builder
	for _, f := range formats.Filter(imported) {
		fmt.Fprintf(&b, "  %-11s  %s\n", f.Name, f.Imported)
	}
	return b.String()
}

// extensions lists those of all formats for a sentence.
func extensions() string {
	var all []string
	for _, f := range formats.All {
		for _, e := range f.Extensions {
			if !slices.Contains(all, e) {
				all = append(all, e)
			}
		}
	}
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}

// input is a file to read, or standard input.
type input struct {
	name string
	size int64 // 0 where it is unknown
	open func() (io.ReadCloser, error)
	err  error // why it cannot be opened
	// found says that nobody named the file: it was in a directory.
	found bool
	// path is where it can be read again, empty for standard input and pipes. format
	// is set for a directory.
	path   string
	format *formats.Format
}

// errOther is of a file in a directory that is of no format, as may well be.
var errOther = errors.New("nothing that import knows")

// maxOthers is how many of those are named.
const maxOthers = 20

// importer reads inputs into a store, which is opened when there is something to
// write.
type importer struct {
	path     string
	format   *formats.Format // nil to go by the content
	warn     io.Writer
	progress *progress // nil for none
	store    *sqlite.Store
	ingester *ingest.Ingester
	// keepSecrets says that everything is stored as it came.
	keepSecrets bool
	// sessionRedactor takes secrets out of whole sessions, of which it cuts nothing. It
	// is nil where secrets are kept.
	sessionRedactor *redact.Redactor
	// unsound says that sessions are imported too that break rules.
	invalid bool
	// pending is how many observations waited before.
	pending int64
	summary importSummary
}

// run reads the inputs. The first error says that some could not be read, the
// second ends everything: that of the store, or that the user did.
func (im *importer) run(ctx context.Context, inputs []input) (failed, err error) {
	failures, others := 0, 0
	for _, in := range inputs {
		t := &tally{File: in.name}
		im.summary.Files = append(im.summary.Files, t)
		err := im.read(ctx, in, t)
		im.summary.Total.include(t)
		var stored storeError
		if errors.As(err, &stored) {
			return nil, stored.error
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err == nil {
			switch {
			case t.Spans+t.Records+t.Damaged+t.Joined+len(t.Sessions) > 0:
			case t.Whole:
				im.warnf("%s: there is no session in it", in.name)
			case t.Format == "":
				im.warnf("%s: there is nothing in it", in.name)
			default:
				im.warnf("%s: there are no spans or log records in it", in.name)
			}
			continue
		}
		if zombiezen.ErrCode(err).ToPrimary() == zombiezen.ResultCorrupt {
			err = fmt.Errorf("the database is damaged: %w; save what can be read with sqlite3 %s .recover", err, in.name)
		}
		t.Error = err.Error()
		if errors.Is(err, errOther) {
			if others++; others <= maxOthers {
				im.warnf("%s is left out: %v", in.name, err)
			}
			continue
		}
		failures++
		// What is wrong with a file is not wrong with the store, whatever its kind.
		failed = fmt.Errorf("import %s: %s", in.name, err.Error())
		if len(inputs) > 1 {
			im.warnf("%v", failed)
		}
	}
	if err := im.countPending(ctx); err != nil {
		return nil, err
	}
	if err := im.findNotices(ctx); err != nil {
		return nil, err
	}
	if others > maxOthers {
		im.warnf("%d more files are left out: %v", others-maxOthers, errOther)
	}
	switch {
	case others == len(inputs):
		failed = fmt.Errorf("import: %w is in the directory; name the files, or their --format", errOther)
	case len(inputs) > 1 && failures > 0:
		failed = fmt.Errorf("%d of %d files could not be imported, or not to their end", failures, len(inputs))
	}
	return failed, nil
}

func (im *importer) read(ctx context.Context, in input, t *tally) error {
	if in.err != nil {
		return in.err
	}
	im.progress.begin(in)
	if in.format != nil {
		t.Format = in.format.Name
		return im.sessions(ctx, in.format, in, nil, t)
	}
	f, err := in.open()
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(im.progress.reader(f), otlpfile.SniffSize)
	format := im.format
	if format == nil || !format.Telemetry {
		z, err := im.unpacked(r, t)
		if err != nil {
			return err
		}
		if z != nil {
			r, in.path = z, "" // the file itself is another thing
		}
	}
	if format == nil {
		text, _ := r.Peek(otlpfile.SniffSize) // an error shows at the next read
		if formats.IsDatabase(text) {
			return im.database(ctx, in, r, t)
		}
		if len(text) < otlpfile.SniffSize && len(bytes.TrimSpace(text)) == 0 {
			return nil
		}
		if format = formats.OfText(text); format == nil && in.found {
			return errOther
		}
		if format == nil {
			t.Format = "otlp" // whose reader says what is wrong with the file
			return unknown(importOTLP(ctx, im, r, t), text)
		}
	}
	t.Format = format.Name
	if format.Telemetry {
		return telemetryReaders[format.Name](ctx, im, r, t)
	}
	return im.sessions(ctx, format, in, r, t)
}

// unknown says of a file that no format claims what it is and what to do, which the
// reader of telemetry says in terms of telemetry.
func unknown(err error, head []byte) error {
	if !errors.Is(err, otlpfile.ErrFormat) {
		return err
	}
	what, remedy, _ := strings.Cut(strings.TrimPrefix(err.Error(), otlpfile.ErrFormat.Error()+": "), "; ")
	switch {
	case len(head) > 262 && string(head[257:262]) == "ustar":
		what, remedy = "it is a tar archive", "unpack it first"
	case strings.Contains(what, "resourceSpans"):
		what = "it is JSON of another kind"
	}
	if remedy == "" || strings.Contains(remedy, "OTLP exporter") && !strings.Contains(what, "Zipkin") {
		remedy = "see agenttrace help import for the formats that it knows, and --format to name one"
	}
	return fmt.Errorf("%s: %s; %s", errOther.Error(), what, remedy)
}

// warnf says in a line what is wrong with an input.
func (im *importer) warnf(format string, args ...any) {
	text := inspect.Sanitize(fmt.Sprintf(format, args...))
	fmt.Fprintf(im.warn, "agenttrace: %s\n", strings.Join(strings.Fields(text), " "))
}

// damaged reports a piece that was left out. Only the first of a file are shown.
func (im *importer) damaged(t *tally, err error) {
	const maximum = 20
	t.Damaged++
	switch {
	case t.Damaged <= maximum:
		// A reader of files may name the one that it was given itself.
		what, own := strings.CutPrefix(err.Error(), t.File+":")
		if own && what != "" && what[0] >= '0' && what[0] <= '9' {
			what = "line " + what
		}
		t.Damages = append(t.Damages, what)
		im.warnf("%s: %s", t.File, what)
	case t.Damaged == maximum+1:
		im.warnf("%s: more that is damaged is only counted", t.File)
	}
}

// ingested counts what became of a delivery, and says of the first of a file's spans
// and records that had a problem which.
func (im *importer) ingested(t *tally, r ingest.Report) {
	const maximum = 20
	before := t.Malformed
	t.add(r)
	for _, problem := range r.Problems[:min(len(r.Problems), maximum-len(t.Problems))] {
		t.Problems = append(t.Problems, problem)
		im.warnf("%s: malformed %s", t.File, problem)
	}
	if t.Malformed > maximum && before <= maximum {
		im.warnf("%s: more that is malformed is only counted", t.File)
	}
}

// storeError is an error of the store, which ends everything.
type storeError struct{ error }

func (e storeError) Unwrap() error { return e.error }

// open opens the store unless it is open.
func (im *importer) open(ctx context.Context) error {
	if im.store != nil {
		return nil
	}
	var o ingest.Options
	if !im.keepSecrets {
		var err error
		if o.Redactor, err = redact.New(redact.Config{MaxBytes: ingest.DefaultMaxBytes}); err != nil {
			return err
		}
	}
	s, err := sqlite.Open(ctx, im.path, sqlite.Options{})
	if err != nil {
		return storeError{err}
	}
	im.store, im.ingester = s, ingest.New(s, o)
	if im.pending, err = s.Pending(ctx); err != nil {
		return storeError{err}
	}
	return nil
}

// findNotices lists what is doubtful in the sessions of which telemetry was read.
func (im *importer) findNotices(ctx context.Context) error {
	if im.store == nil || im.summary.Total.Accepted == 0 {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(im.summary.Total.Sessions)) {
		t, err := im.store.Transcript(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			continue // its telemetry has moved to another
		} else if err != nil {
			return storeError{err}
		}
		links, err := im.store.Spans(ctx, id)
		if err != nil {
			return storeError{err}
		}
		for _, n := range noticesOf(t, links, inspect.DefaultIdleTimeout) {
			im.summary.Notices = append(im.summary.Notices, noticeLine(id, &n))
		}
	}
	return nil
}

// countPending says how many of what was read are built by no session in the end.
func (im *importer) countPending(ctx context.Context) error {
	if im.store == nil {
		return nil
	}
	n, err := im.store.Pending(ctx)
	im.summary.Total.Pending = max(0, n-im.pending)
	if len(im.summary.Files) == 1 {
		im.summary.Files[0].Pending = im.summary.Total.Pending
	}
	return err
}

func (im *importer) close() error {
	if im.store == nil {
		return nil
	}
	return im.store.Close()
}

// batch gathers small bodies: each delivery is a transaction.
type batch struct {
	im     *importer
	t      *tally
	traces ptrace.Traces
	logs   plog.Logs
	from   int64
}

const (
	batchItems = 2000
	batchBytes = 8 << 20
)

// add takes what is in the body, and delivers when there is enough.
func (b *batch) add(ctx context.Context, body otlpfile.Body) error {
	body.Traces.ResourceSpans().MoveAndAppendTo(b.traces.ResourceSpans())
	body.Logs.ResourceLogs().MoveAndAppendTo(b.logs.ResourceLogs())
	if b.traces.SpanCount()+b.logs.LogRecordCount() < batchItems && body.Offset-b.from < batchBytes {
		return nil
	}
	b.from = body.Offset
	return b.deliver(ctx)
}

func (b *batch) deliver(ctx context.Context) error {
	if b.traces.SpanCount() > 0 {
		if err := b.im.open(ctx); err != nil {
			return err
		}
		r, err := b.im.ingester.Traces(ctx, b.traces)
		if err != nil {
			return storeError{err}
		}
		b.im.ingested(b.t, r)
	}
	if b.logs.LogRecordCount() > 0 {
		if err := b.im.open(ctx); err != nil {
			return err
		}
		r, err := b.im.ingester.Logs(ctx, b.logs)
		if err != nil {
			return storeError{err}
		}
		b.im.ingested(b.t, r)
	}
	b.traces, b.logs = ptrace.NewTraces(), plog.NewLogs()
	return nil
}

func importOTLP(ctx context.Context, im *importer, r io.Reader, t *tally) error {
	b := batch{im: im, t: t, traces: ptrace.NewTraces(), logs: plog.NewLogs()}
	var failed error
	for body, err := range otlpfile.Read(r, otlpfile.Options{}) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if damaged, ok := errors.AsType[*otlpfile.DamagedError](err); ok {
			im.damaged(t, damaged)
			continue
		}
		if err != nil {
			failed = err
			break
		}
		if body.Skipped != "" {
			t.Skipped++
		}
		if err := b.add(ctx, body); err != nil {
			return err
		}
	}
	return cmp.Or(b.deliver(ctx), failed)
}
