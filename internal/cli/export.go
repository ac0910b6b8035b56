package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/csvfile"
	"github.com/agenttrace/agenttrace/session/codec/jsonfile"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/store"
)

// format is a way to write sessions down.
type format struct {
	name, doc string
	// encoder returns what writes sessions to w, one after the other.
	encoder func(w io.Writer) func(*session.Transcript) error
	// single says that a file holds one session.
	single bool
}

var formats = []format{
	{"jsonl", "one row per line, canonical and loss-free", func(w io.Writer) func(*session.Transcript) error {
		return func(t *session.Transcript) error { return jsonl.Encode(w, t) }
	}, false},
	{"json", "one session per file, canonical and loss-free", func(w io.Writer) func(*session.Transcript) error {
		return func(t *session.Transcript) error { return jsonfile.Encode(w, t) }
	}, true},
	{"csv", "a table with a row per part, for token and cost histograms; without texts", func(w io.Writer) func(*session.Transcript) error {
		return csvfile.NewEncoder(w).Encode
	}, false},
}

func formatNames() string {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

func formatByName(name string) (*format, error) {
	for i := range formats {
		if formats[i].name == name {
			return &formats[i], nil
		}
	}
	return nil, usageError("there is no format "+quote(name), "use one of "+formatNames())
}

func (p *program) export() *cobra.Command {
	var all, force bool
	var name, output string
	long := `Write sessions in an exchange format, to stdout or with -o to a file. A file is
complete or not there: it gets its name when it is written, and nothing is
overwritten without --force. Where -o is a directory, each session becomes a
file in it, named by its id.

Formats:
`
	for _, f := range formats {
		long += fmt.Sprintf("  %-6s %s\n", f.name, f.doc)
	}
	c := &cobra.Command{
		Use:   "export ID | --all",
		Short: "Write sessions as JSON lines, JSON or CSV",
		Long:  strings.TrimSuffix(long, "\n"),
		Example: `  agenttrace export last | jq 'select(.type=="part") | .data.tool_state'
  agenttrace export last --format json -o session.json
  agenttrace export --all --format json -o sessions/
  agenttrace export --all --format csv > tokens.csv`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case all && len(args) > 0:
				return usageError("--all and a session contradict each other", "use one of them")
			case !all && len(args) != 1:
				return usageError("export takes one session, or --all", "agenttrace export last writes the latest one")
			}
			return nil
		},
		ValidArgsFunction: p.completeIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := formatByName(name)
			if err != nil {
				return err
			}
			if all && f.single && output == "" {
				return usageError("a "+f.name+" file holds one session", "name a directory with -o, or use --format jsonl")
			}
			return p.with(cmd.Context(), func(r store.Reader) error {
				x := exporter{ctx: cmd.Context(), reader: r, format: f, force: force}
				if all {
					for s, err := range r.Sessions(cmd.Context(), store.SessionQuery{Children: true, Archived: true, Limit: -1}) {
						if err != nil {
							return err
						}
						x.ids = append(x.ids, s.ID)
					}
				} else {
					id, err := r.Resolve(cmd.Context(), args[0])
					if err != nil {
						return err
					}
					x.ids = []string{id}
				}
				return p.write(&x, output, all)
			})
		},
	}
	fl := c.Flags()
	fl.BoolVar(&all, "all", false, "every session, the archived and the children too")
	fl.StringVarP(&name, "format", "f", "jsonl", "`format`: "+formatNames())
	fl.StringVarP(&output, "output", "o", "", "`file` or directory to write to instead of stdout")
	fl.BoolVar(&force, "force", false, "overwrite files")
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(strings.Split(formatNames(), ", "), cobra.ShellCompDirectiveNoFileComp))
	return c
}

// exporter writes sessions of a store.
type exporter struct {
	ctx    context.Context
	reader store.Reader
	format *format
	ids    []string
	force  bool
}

func (p *program) write(x *exporter, output string, all bool) error {
	if output == "" || output == "-" {
		w := p.stdout
		if x.format.name != "csv" {
			w = p.rows()
		}
		return x.encode(w, x.ids)
	}
	info, err := os.Stat(output)
	isDir := err == nil && info.IsDir()
	if !isDir && (all && x.format.single || strings.HasSuffix(output, string(filepath.Separator))) {
		if err == nil {
			return &failure{fmt.Errorf("write sessions to %s: it is not a directory", output), ExitOther, "name a directory with -o"}
		}
		if err := os.MkdirAll(output, 0o700); err != nil {
			return fmt.Errorf("create directory for sessions: %w", err)
		}
		isDir = true
	}
	if !isDir {
		if err := x.file(output, x.ids); err != nil {
			return err
		}
		fmt.Fprintf(p.stderr, "wrote %s\n", output)
		return nil
	}
	for _, id := range x.ids {
		path := filepath.Join(output, fileName(id)+"."+x.format.name)
		if err := x.file(path, []string{id}); err != nil {
			return err
		}
	}
	fmt.Fprintf(p.stderr, "wrote %d %s to %s\n", len(x.ids), map[bool]string{true: "file", false: "files"}[len(x.ids) == 1], output)
	return nil
}

func (x *exporter) encode(w io.Writer, ids []string) error {
	b := bufio.NewWriterSize(w, 64<<10)
	encode := x.format.encoder(b)
	for _, id := range ids {
		t, err := x.reader.Transcript(x.ctx, id)
		if errors.Is(err, store.ErrNotFound) && len(ids) > 1 {
			continue // it was deleted since the list was made
		}
		if err != nil {
			return err
		}
		if err := encode(t); err != nil {
			return err
		}
	}
	return b.Flush()
}

// file writes sessions to a file that others see complete or not at all.
func (x *exporter) file(path string, ids []string) (err error) {
	exists := &failure{fmt.Errorf("write %s: %w", path, fs.ErrExist), ExitOther, "use --force to overwrite it"}
	if _, err := os.Lstat(path); err == nil && !x.force {
		return exists
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // 0600: sessions are private
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err := x.encode(f, ids); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if !x.force {
		// A link, unlike a rename, does not replace what appeared meanwhile. Not
		// every file system has links.
		err := os.Link(f.Name(), path)
		if err == nil {
			return os.Remove(f.Name())
		}
		if errors.Is(err, fs.ErrExist) {
			return exists
		}
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// fileName makes a file's name of an id, which anyone may have chosen: letters,
// digits, "_", "-" and inner dots stand, any other byte becomes %XX.
func fileName(id string) string {
	var b strings.Builder
	for i := 0; i < len(id); i++ {
		c := id[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
