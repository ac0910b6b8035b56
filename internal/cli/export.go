package cli

import (
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
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

func newExport() *cobra.Command {
	var all, force bool
	var format, output string
	cmd := &cobra.Command{
		Use:   "export ID | --all",
		Short: "Write sessions as JSONL, JSON or CSV",
		Long: `Write sessions as JSONL, JSON or CSV.

  jsonl  a line per row, the canonical format; many sessions may follow each other
  json   one session per file, nested
  csv    a line per part, with tokens and cost; the content of parts is left out

Without --output the session goes to standard output. With --all, --output names
a file, or with --format json a directory that gets a file per session.`,
		Example: `  agenttrace export last | jq 'select(.type=="part") | .data.tool_state'
  agenttrace export --all --format csv --output sessions.csv
  agenttrace export --all --format json --output sessions/`,
		ValidArgsFunction: completeSessions,
		Args: func(cmd *cobra.Command, args []string) error {
			if all {
				return exactly(0, "no session with --all")(cmd, args)
			}
			return exactly(1, "one session, or --all")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			e := exporter{format: format, output: output, force: force}
			switch format {
			case "jsonl", "csv":
			case "json":
				if all && (output == "" || output == "-") {
					return usagef("export --all --format json writes a file per session: name a directory with --output")
				}
			default:
				return usagef("unknown format %q: use jsonl, json or csv", format)
			}
			if all {
				return e.exportAll(cmd)
			}
			return withSession(cmd, args[0], func(ctx context.Context, r *sqlite.Reader, id string) error {
				return e.write(cmd, e.output, func(w io.Writer) error {
					t, err := r.Transcript(ctx, id)
					if err != nil {
						return err
					}
					return e.encoder(w)(t)
				})
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "export every session, archived ones and sub-agents' included")
	cmd.Flags().StringVar(&format, "format", "jsonl", "jsonl, json or csv")
	cmd.Flags().StringVarP(&output, "output", "o", "", "`file` or directory to write to instead of standard output")
	cmd.Flags().BoolVar(&force, "force", false, "replace files that exist")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"jsonl", "json", "csv"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

type exporter struct {
	format, output string
	force          bool
}

// encoder returns what writes sessions to w, one after the other.
func (e *exporter) encoder(w io.Writer) func(*session.Transcript) error {
	switch e.format {
	case "json":
		return func(t *session.Transcript) error { return jsonfile.Encode(w, t) }
	case "csv":
		return csvfile.NewEncoder(w).Encode
	}
	return func(t *session.Transcript) error { return jsonl.Encode(w, t) }
}

// write calls fn with standard output or with a file, which appears only when
// it is whole.
func (e *exporter) write(cmd *cobra.Command, path string, fn func(io.Writer) error) error {
	if path == "" || path == "-" {
		if e.format == "csv" {
			return fn(cmd.OutOrStdout())
		}
		return fn(jsonOutput(cmd))
	}
	exists := usagef("write %s: it exists; choose another name or add --force", path)
	if _, err := os.Lstat(path); err == nil && !e.force {
		return exists
	}
	dir := filepath.Dir(path)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return usagef("write %s: there is no directory %s; create it first", path, dir)
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // 0600: prompts are sensitive
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	err = fn(f)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil && !e.force {
		// A link, unlike a rename, does not replace what appeared meanwhile. Where
		// the file system has no links, the look from before must do.
		switch linkErr := os.Link(f.Name(), path); {
		case linkErr == nil:
			return os.Remove(f.Name())
		case errors.Is(linkErr, fs.ErrExist):
			return errors.Join(exists, os.Remove(f.Name()))
		}
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return nil
}

func (e *exporter) exportAll(cmd *cobra.Command) error {
	if e.format == "json" {
		if info, err := os.Stat(e.output); err == nil && !info.IsDir() {
			return usagef("--output must be a directory with --all --format json, and %s is a file; name another", e.output)
		}
	}
	r, err := openStore(cmd)
	if err != nil {
		return err
	}
	defer r.Close()
	// The ids are read first: the store goes on changing, and a listing that is
	// written out slowly would hold back its log.
	var ids []string
	for s, err := range r.Sessions(cmd.Context(), store.SessionQuery{Limit: -1, Children: true, Archived: true}) {
		if err != nil {
			return err
		}
		ids = append(ids, s.ID)
	}
	each := func(encode func(id string, t *session.Transcript) error) error {
		for _, id := range ids {
			t, err := r.Transcript(cmd.Context(), id)
			if errors.Is(err, store.ErrNotFound) {
				continue // deleted meanwhile
			}
			if err == nil {
				err = encode(id, t)
			}
			if err != nil {
				return fmt.Errorf("export session %s: %w", id, err)
			}
		}
		return nil
	}
	if e.format != "json" {
		return e.write(cmd, e.output, func(w io.Writer) error {
			encode := e.encoder(w)
			return each(func(_ string, t *session.Transcript) error { return encode(t) })
		})
	}
	if err := os.MkdirAll(e.output, 0o700); err != nil {
		return fmt.Errorf("create %s: %w", e.output, err)
	}
	return each(func(id string, t *session.Transcript) error {
		return e.write(cmd, filepath.Join(e.output, fileName(id)+".json"), func(w io.Writer) error { return jsonfile.Encode(w, t) })
	})
}

// fileName makes an id, which anyone may have sent, a name within a directory:
// letters, digits, "-" and "_" stand, any other byte is %XX. No two ids have one
// name.
func fileName(id string) string {
	var b strings.Builder
	for _, c := range []byte(id) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
