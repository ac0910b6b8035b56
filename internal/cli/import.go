package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/inspect"
	"github.com/agenttrace/agenttrace/session/spool"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// importFormat is a kind of file that import reads.
type importFormat struct {
	name, title string
	// extensions are those of the files that are taken of a directory.
	extensions []string
	// sniff says whether a file that begins with head is of the format.
	sniff func(head []byte) bool
	// read hands what is in r to the importer, and to t what becomes of it. Its
	// error ends the file.
	read func(ctx context.Context, im *importer, r io.Reader, t *tally) error
}

// importFormats are tried in their order. What none recognizes is read by the
// first, which says what is wrong with it.
var importFormats = []importFormat{{
	name: "otlp", title: "OTLP in JSON or protobuf, as exporters and the collector's file exporter write it",
	extensions: []string{".json", ".jsonl", ".pb", ".gz", ".zst"},
	sniff:      func(head []byte) bool { return otlpfile.Sniff(head) && !spool.Sniff(head) }, read: importOTLP,
}, {
	name: "spool", title: "what an agent could not send, as package spool keeps it; a whole one by its directory",
	extensions: []string{".pb"},
	sniff:      spool.Sniff, read: importSpool,
}}

func newImport() *cobra.Command {
	var format string
	var asJSON, quiet, secrets bool
	cmd := &cobra.Command{
		Use:   "import [FILE]...",
		Short: "Read telemetry from files into the store",
		Long: `Read telemetry from files into the store, which is made if there is none.

A FILE may be "-" for standard input, which is read too where no file is named
and something is piped in, or a directory, of which the files are read that end
in ` + extensions() + `, in the order of their names, and what is no
telemetry is left out. Formats:

` + formatList() + `
What a file is shows in its content: compressed with gzip or zstd or not, one
body, JSON lines, or frames. Importing a file again changes nothing. Secrets are
taken out, and values of more than 1 MiB cut, as a collector does it; with
--keep-secrets all is stored as it is.

A piece that cannot be read is reported and left out, and the exit code is 1; a
file that cannot be read does not keep the others from being read, and the exit
code is 5.`,
		Example: `  agenttrace import traces.json
  agenttrace import --store old.db exported/ more.jsonl.zst
  kubectl exec collector -- cat /data/otlp.jsonl | agenttrace import`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			path, err := storePath(cmd)
			if err != nil {
				return err
			}
			im := importer{path: path, warn: cmd.ErrOrStderr(), keepSecrets: secrets, summary: importSummary{Store: path, Files: []*tally{}}}
			if format != "" {
				i := slices.IndexFunc(importFormats, func(f importFormat) bool { return f.name == format })
				if i < 0 {
					return usagef("unknown format %q: use %s", format, strings.Join(formatNames(), " or "))
				}
				im.format = &importFormats[i]
			}
			inputs, err := im.inputs(cmd, args)
			if err != nil {
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
	f.StringVar(&format, "format", "", strings.Join(formatNames(), " or ")+", whatever the content looks like")
	f.BoolVar(&asJSON, "json", false, "print a JSON object")
	f.BoolVarP(&quiet, "quiet", "q", false, "show no progress")
	f.BoolVar(&secrets, "keep-secrets", false, "store secrets, and values of any length")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formatNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func formatNames() []string {
	var names []string
	for _, f := range importFormats {
		names = append(names, f.name)
	}
	return names
}

func formatList() string {
	var b strings.Builder
	for _, f := range importFormats {
		fmt.Fprintf(&b, "  %s  %s\n", f.name, f.title)
	}
	return b.String()
}

// extensions lists those of all formats for a sentence.
func extensions() string {
	var all []string
	for _, f := range importFormats {
		for _, e := range f.extensions {
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
}

// errOther is of a file in a directory that is no telemetry, as may well be.
var errOther = errors.New("no telemetry that import knows")

// importer reads inputs into a store, which is opened when there is something to
// write.
type importer struct {
	path     string
	format   *importFormat // nil to go by the content
	warn     io.Writer
	progress *progress // nil for none
	store    *sqlite.Store
	ingester *ingest.Ingester
	// keepSecrets says that everything is stored as it came.
	keepSecrets bool
	// parked is how many observations waited before.
	parked  int64
	summary importSummary
}

// inputs finds what the arguments name.
func (im *importer) inputs(cmd *cobra.Command, args []string) ([]input, error) {
	stdin := input{name: "standard input", open: func() (io.ReadCloser, error) { return io.NopCloser(cmd.InOrStdin()), nil }}
	if len(args) == 0 {
		if f, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(f.Fd()) {
			return nil, usagef("import what? name files, or pipe something in")
		}
		return []input{stdin}, nil
	}
	var all []input
	for _, arg := range args {
		if arg == "-" {
			all = append(all, stdin)
			continue
		}
		info, err := os.Stat(arg)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			all = append(all, input{name: arg, err: errors.New("no such file")})
		case err != nil:
			all = append(all, input{name: arg, err: err})
		case info.IsDir():
			files, err := directory(arg)
			if err == nil && len(files) == 0 {
				err = fmt.Errorf("no file in the directory ends in %s; name the files", extensions())
			}
			if err != nil {
				all = append(all, input{name: arg, err: err})
			}
			all = append(all, files...)
		default:
			all = append(all, fileInput(arg, info))
		}
	}
	return all, nil
}

func fileInput(path string, info fs.FileInfo) input {
	in := input{name: path, open: func() (io.ReadCloser, error) { return os.Open(path) }}
	if info.Mode().IsRegular() {
		in.size = info.Size()
	}
	return in
}

// directory lists the files of a directory that have the extension of a format, in
// the order of their names, and those of a spool.
func directory(path string) ([]input, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []input
	for _, e := range entries {
		ext := strings.ToLower(filepath.Ext(e.Name()))
		known := slices.ContainsFunc(importFormats, func(f importFormat) bool { return slices.Contains(f.extensions, ext) })
		name := filepath.Join(path, e.Name())
		if info, err := os.Stat(name); known && err == nil && info.Mode().IsRegular() {
			in := fileInput(name, info)
			in.found = true
			files = append(files, in)
		}
	}
	spooled, err := spoolFiles(path)
	return append(files, spooled...), err
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
			if t.Spans+t.Records+t.Damaged == 0 {
				im.warnf("%s: there are no spans or log records in it", in.name)
			}
			continue
		}
		t.Error = err.Error()
		if errors.Is(err, errOther) {
			others++
			im.warnf("%s is left out: %v", in.name, err)
			continue
		}
		failures++
		failed = fmt.Errorf("import %s: %w", in.name, err)
		if len(inputs) > 1 {
			im.warnf("%v", failed)
		}
	}
	if err := im.countParked(ctx); err != nil {
		return nil, err
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
	f, err := in.open()
	if err != nil {
		return err
	}
	defer f.Close()
	im.progress.begin(in)
	r := bufio.NewReaderSize(im.progress.reader(f), otlpfile.SniffSize)
	format := im.format
	if format == nil {
		head, _ := r.Peek(otlpfile.SniffSize) // an error shows at the next read
		i := slices.IndexFunc(importFormats, func(f importFormat) bool { return f.sniff(head) })
		if i < 0 && in.found && len(head) > 0 {
			return errOther
		}
		format = &importFormats[max(i, 0)]
	}
	t.Format = format.name
	return format.read(ctx, im, r, t)
}

// warnf says in a line what is wrong with an input.
func (im *importer) warnf(format string, args ...any) {
	text := inspect.Sanitize(fmt.Sprintf(format, args...))
	fmt.Fprintf(im.warn, "agenttrace: %s\n", strings.Join(strings.Fields(text), " "))
}

// damaged reports a piece that was left out. Only the first of a file are shown.
func (im *importer) damaged(t *tally, err error) {
	const most = 20
	t.Damaged++
	switch {
	case t.Damaged <= most:
		t.Damages = append(t.Damages, err.Error())
		im.warnf("%s: %v", t.File, err)
	case t.Damaged == most+1:
		im.warnf("%s: more that is damaged is only counted", t.File)
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
		if o.Redactor, err = redact.New(redact.Config{MaxBytes: 1 << 20}); err != nil {
			return err
		}
	}
	s, err := sqlite.Open(ctx, im.path, sqlite.Options{})
	if err != nil {
		return storeError{err}
	}
	im.store, im.ingester = s, ingest.New(s, o)
	if im.parked, err = s.Parked(ctx); err != nil {
		return storeError{err}
	}
	return nil
}

// countParked says how many of what was read are told by no session in the end.
func (im *importer) countParked(ctx context.Context) error {
	if im.store == nil {
		return nil
	}
	n, err := im.store.Parked(ctx)
	im.summary.Total.Parked = max(0, n-im.parked)
	if len(im.summary.Files) == 1 {
		im.summary.Files[0].Parked = im.summary.Total.Parked
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
		b.t.add(r)
	}
	if b.logs.LogRecordCount() > 0 {
		if err := b.im.open(ctx); err != nil {
			return err
		}
		r, err := b.im.ingester.Logs(ctx, b.logs)
		if err != nil {
			return storeError{err}
		}
		b.t.add(r)
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

// importSummary is what import prints.
type importSummary struct {
	Store string   `json:"store"`
	Files []*tally `json:"files"`
	Total tally    `json:"total"`
}

// tally counts what became of a file.
type tally struct {
	File   string `json:"file,omitempty"`
	Format string `json:"format,omitempty"`
	// Spans and Records were read; Placed and Ignored add up to them. Parked are
	// those of Placed of which no session tells after all was read.
	Spans     int   `json:"spans"`
	Records   int   `json:"records"`
	Placed    int   `json:"placed"`
	Parked    int64 `json:"parked"`
	Ignored   int   `json:"ignored"`
	Malformed int   `json:"malformed"`
	Rows      int64 `json:"rows"`
	Refused   int64 `json:"refused"`
	// Skipped counts bodies of metrics and profiles, Damaged pieces that could not
	// be read, of which Damages are the first.
	Skipped int      `json:"skipped"`
	Damaged int      `json:"damaged"`
	Damages []string `json:"damages,omitempty"`
	// Dialects says which dialects recognized how many.
	Dialects map[string]int `json:"dialects,omitempty"`
	// Sessions are those that were touched.
	Sessions sessionSet `json:"sessions,omitempty"`
	Error    string     `json:"error,omitempty"`
}

// sessionSet is a set of session ids. Its JSON is how many there are.
type sessionSet map[string]struct{}

func (s sessionSet) MarshalJSON() ([]byte, error) { return fmt.Append(nil, len(s)), nil }

// add counts what ingestion reports.
func (t *tally) add(r ingest.Report) {
	t.Spans += r.Spans
	t.Records += r.Records
	t.Placed += r.Placed
	t.Ignored += r.Ignored
	t.Malformed += r.Malformed
	t.Rows += r.Rows
	t.Refused += r.Refused
	t.addDialects(r.Dialects)
	for _, id := range r.Sessions {
		t.addSession(id)
	}
}

func (t *tally) addDialects(counts map[string]int) {
	for name, n := range counts {
		if t.Dialects == nil {
			t.Dialects = map[string]int{}
		}
		t.Dialects[name] += n
	}
}

func (t *tally) addSession(id string) {
	if t.Sessions == nil {
		t.Sessions = sessionSet{}
	}
	t.Sessions[id] = struct{}{}
}

// include adds the counts of a file to those of all.
func (t *tally) include(o *tally) {
	t.Spans += o.Spans
	t.Records += o.Records
	t.Placed += o.Placed
	t.Ignored += o.Ignored
	t.Malformed += o.Malformed
	t.Rows += o.Rows
	t.Refused += o.Refused
	t.Skipped += o.Skipped
	t.Damaged += o.Damaged
	t.addDialects(o.Dialects)
	for id := range o.Sessions {
		t.addSession(id)
	}
}

func (s *importSummary) print(w io.Writer) error {
	var b strings.Builder
	for _, t := range s.Files {
		if t.Error == "" || t.Spans+t.Records+t.Damaged > 0 {
			t.print(&b, t.File)
		}
	}
	if len(s.Files) > 1 {
		s.Total.print(&b, "total")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// print writes what is not 0, for most counts are.
func (t *tally) print(b *strings.Builder, name string) {
	fmt.Fprintf(b, "%s: %s, %s", inspect.Sanitize(name), counted(t.Spans, "span"), counted(t.Records, "log record"))
	for _, c := range []struct {
		n    int64
		what string
	}{
		{int64(t.Placed), "placed"}, {t.Parked, "parked"}, {int64(t.Ignored), "ignored"}, {int64(t.Malformed), "malformed"},
		{t.Refused, "refused"}, {int64(t.Skipped), "skipped"}, {int64(t.Damaged), "damaged"},
	} {
		if c.n > 0 {
			fmt.Fprintf(b, ", %d %s", c.n, c.what)
		}
	}
	if len(t.Sessions) > 0 {
		fmt.Fprintf(b, "; %s", counted(len(t.Sessions), "session"))
	}
	b.WriteByte('\n')
	for i, name := range slices.Sorted(maps.Keys(t.Dialects)) {
		fmt.Fprintf(b, "%s%s %d", []string{"  ", ", "}[min(i, 1)], name, t.Dialects[name])
	}
	if len(t.Dialects) > 0 {
		b.WriteByte('\n')
	}
}

// progress is a line on a terminal that says how far reading has come. What else
// is written there goes through it. A nil progress does nothing.
type progress struct {
	w           io.Writer
	width       int
	total, read int64
	name        string
	drawn       time.Time
	shown       bool
}

func newProgress(w io.Writer, inputs []input) *progress {
	p := &progress{w: w, width: 80}
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(f.Fd()); err == nil && width > 0 {
			p.width = width
		}
	}
	for _, in := range inputs {
		if in.size == 0 && in.err == nil {
			p.total = 0 // nobody knows when standard input ends
			return p
		}
		p.total += in.size
	}
	return p
}

func (p *progress) begin(in input) {
	if p != nil {
		p.name = in.name
	}
}

// reader counts what is read of r.
func (p *progress) reader(r io.Reader) io.Reader {
	if p == nil {
		return r
	}
	return progressReader{p, r}
}

type progressReader struct {
	p *progress
	r io.Reader
}

func (r progressReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	r.p.read += int64(n)
	if now := time.Now(); now.Sub(r.p.drawn) > 100*time.Millisecond {
		r.p.drawn = now
		r.p.draw()
	}
	return n, err
}

func (p *progress) draw() {
	p.shown = true
	fmt.Fprintf(p.w, "\r\x1b[K%s", p.line())
}

// line is the line in the width of the terminal: a bar, how much was read, and of
// what.
func (p *progress) line() string {
	mb := func(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
	text := mb(p.read)
	if p.total > 0 {
		const cells = 20
		done := min(p.read, p.total)
		n := int(done * cells / p.total)
		text = fmt.Sprintf("[%s%s] %3d%% of %s", strings.Repeat("=", n), strings.Repeat(" ", cells-n), done*100/p.total, mb(p.total))
	}
	text += "  " + strings.ReplaceAll(inspect.Sanitize(p.name), "\n", " ")
	if runes := []rune(text); len(runes) >= p.width {
		text = string(runes[:max(p.width-1, 0)])
	}
	return text
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
