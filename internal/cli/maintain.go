package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

// The commands below "store", which work on a store as a whole.

func newStore() *cobra.Command {
	cmd := described("store", nil, onlyCommands, func(cmd *cobra.Command, _ []string) error {
		address, path, err := place(cmd)
		if err == nil {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), cmp.Or(address, stores.Name(path)))
		}
		return err
	})
	cmd.AddCommand(newCheck(), newCollectGarbage(), newBackup(), newMigrate())
	return cmd
}

func newBackup() *cobra.Command {
	var x struct{ JSON bool }
	return described("store backup", &x, exactly(1, "one file"), func(cmd *cobra.Command, args []string) error {
		if _, err := ownStore(cmd); err != nil {
			return err
		}
		r, err := openStore(cmd)
		if err != nil {
			return err
		}
		defer r.Close()
		b, ok := r.(store.Backuper)
		if !ok {
			return usagef("backup copies a store that is a file; copy %s with the tools of its database, such as pg_dump",
				r.Name())
		}
		err = b.Backup(cmd.Context(), args[0])
		if errors.Is(err, fs.ErrExist) {
			return usagef("%s is there already; name another file", args[0])
		}
		if err != nil {
			return unwritten(args[0], err)
		}
		info, err := os.Stat(args[0])
		if err != nil {
			return err
		}
		return answer(cmd, x.JSON, struct {
			Store string `json:"store"`
			Copy  string `json:"copy"`
			Bytes int64  `json:"bytes"`
		}{r.Name(), args[0], info.Size()}, "%s copied to %s\n", r.Name(), args[0])
	})
}

// settled is how long nothing may have happened before prompts that nobody names
// are taken for left over: a turn that has not ended may still name them.
const settled = time.Hour

func newCollectGarbage() *cobra.Command {
	var x struct{ DryRun, Vacuum, JSON bool }
	return described("store gc", &x, noArguments, func(cmd *cobra.Command, _ []string) error {
		return withWriter(cmd, func(ctx context.Context, s store.Service) error {
			file, ok := s.(store.Compacter)
			if _, here := s.(store.Store); x.Vacuum && !here {
				return usagef("--vacuum rewrites the store, which a collector is using; stop it, or leave out --vacuum")
			}
			if x.Vacuum && !ok {
				return usagef("--vacuum rewrites a store that is a file; %s gets its space back without it", s.Name())
			}
			g, err := s.Collect(ctx, time.Now().Add(-settled), x.DryRun)
			if err == nil && x.Vacuum {
				err = file.Compact(ctx)
			}
			if err != nil {
				return err
			}
			if x.JSON {
				return writeJSON(cmd, g)
			}
			return note(cmd, "%s", phrases.Text("collected", struct {
				store.Garbage
				DryRun bool
			}{g, x.DryRun}))
		})
	})
}

func newMigrate() *cobra.Command {
	var x struct{ Distribute, SearchIndex, Print bool }
	return described("store migrate", &x, noArguments, func(cmd *cobra.Command, _ []string) error {
		if x.Print {
			_, err := fmt.Fprint(cmd.OutOrStdout(), stores.MigrationSQL())
			return err
		}
		location, err := ownStore(cmd)
		if err != nil {
			return err
		}
		if x.Distribute && stores.IsFile(location) {
			return usagef("--distribute is for a PostgreSQL database; %s is a file", location)
		}
		err = stores.Migrate(cmd.Context(), location, x.Distribute, x.SearchIndex)
		if errors.Is(err, store.ErrLocked) && x.SearchIndex {
			err = nil // the process that writes the file has brought its tables up to date
		}
		if err == nil && x.SearchIndex {
			err = makeSearchIndex(cmd, location)
		}
		if err != nil {
			return err
		}
		return note(cmd, "the tables of %s are up to date\n", stores.Name(location))
	})
}

// makeSearchIndex makes the search index of a store that is a file. A database has made its own.
func makeSearchIndex(cmd *cobra.Command, location string) error {
	r, err := stores.OpenReader(cmd.Context(), location)
	if err != nil {
		return err
	}
	defer r.Close()
	indexer, ok := r.(store.SearchIndexer)
	if !ok {
		return nil
	}
	return indexer.UpdateSearchIndex(cmd.Context(), func(int, int) bool { return true })
}

func newCheck() *cobra.Command {
	var x struct{ Rules, JSON bool }
	return described("store check", &x, nil, func(cmd *cobra.Command, args []string) error {
		if x.Rules && len(args) > 0 {
			return usagef("--rules lists the rules and checks nothing; leave %q out, or the flag", args[0])
		}
		if x.Rules {
			_, err := io.WriteString(cmd.OutOrStdout(), phrases.Text("rules", [][]session.RuleDoc{
				append(session.Rules(), digestRule), session.NoticeRules()}))
			return err
		}
		idleTimeout, err := idleTimeout(cmd)
		if err != nil {
			return err
		}
		c := checker{cmd: cmd, idleTimeout: idleTimeout, asJSON: x.JSON,
			Violations: []violation{}, Notices: []notice{}}
		if len(args) == 0 {
			if err := c.checkAll(openStore(cmd)); err != nil {
				return err
			}
		}
		for _, arg := range args {
			if err := c.check(arg); err != nil {
				return err
			}
		}
		summary := counted(c.Sessions, "session") + " checked, " + counted(len(c.Violations), "violation")
		if len(c.Notices) > 0 {
			summary += ", " + counted(len(c.Notices), "notice")
		}
		err = answer(cmd, x.JSON, c, "%s\n", summary)
		if err == nil && len(c.Violations) > 0 {
			err = errFinding
		}
		return err
	})
}

// checker collects what it finds. Its JSON is what check prints.
type checker struct {
	cmd         *cobra.Command
	idleTimeout time.Duration
	asJSON      bool

	Sessions   int         `json:"sessions"`
	Violations []violation `json:"violations"`
	Notices    []notice    `json:"notices"`
}

// violation and notice are in a session, or in a file that it is not known which session of.
type (
	violation struct {
		In string `json:"in"`
		session.Violation
	}
	notice struct {
		In string `json:"in"`
		session.Notice
	}
)

// check checks what an argument names: a store by its address, or a file if there is one of that name.
func (c *checker) check(arg string) error {
	if arg == "-" {
		return c.checkExport("standard input", c.cmd.InOrStdin())
	}
	if !stores.IsFile(arg) {
		return c.checkAll(stores.OpenReader(c.cmd.Context(), arg))
	}
	f, err := os.Open(arg)
	switch missing := errors.Is(err, fs.ErrNotExist); {
	case missing && !strings.ContainsAny(arg, "./\\"):
		r, err := openStore(c.cmd)
		if err != nil {
			return err
		}
		defer r.Close()
		id, err := r.Resolve(c.cmd.Context(), arg)
		if err != nil {
			return err
		}
		return c.checkStored(r, id)
	case missing:
		return fmt.Errorf("check %s: %w: no such file; name a store, an export or a session of the store", arg,
			store.ErrNotFound)
	case err != nil:
		return fmt.Errorf("check %s: %w", arg, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return usagef("check %s: it is a directory; name the files in it", arg)
	}
	content := bufio.NewReaderSize(f, 64<<10)
	head, err := content.Peek(16)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", arg, err)
	}
	if string(head) == "SQLite format 3\x00" {
		return readError(arg, c.checkAll(stores.OpenReader(c.cmd.Context(), arg)))
	}
	return c.checkExport(arg, content)
}

// checkAll checks every session of a store, if it was opened, and closes it.
func (c *checker) checkAll(r store.Reader, err error) error {
	if err != nil {
		return err
	}
	defer r.Close()
	ids, err := document.Reader{Reader: r}.SelectIDs(c.cmd.Context(), store.SessionFilter{}, "")
	for _, id := range ids {
		if err == nil {
			err = c.checkStored(r, id)
		}
		if errors.Is(err, store.ErrNotFound) {
			err = nil // it was deleted meanwhile
		}
	}
	return err
}

func (c *checker) checkStored(r store.Reader, id string) error {
	in, err := document.Reader{Reader: r}.Collect(c.cmd.Context(), id)
	if err == nil {
		err = c.report(in)
	}
	for i := range in.Blobs {
		b := &in.Blobs[i]
		if err != nil || !b.Exact || document.Names(b) {
			continue // one that arrived damaged, or was redacted, reports so itself
		}
		err = c.violation(id, session.Violation{Rule: digestRule.Rule, Where: fmt.Sprintf("row %s of %s", b.Digest, b.Kind),
			Detail: "the text has another digest: it was altered"})
	}
	return err
}

// digestRule is the one rule that a session's rows do not show by themselves.
var digestRule = session.RuleDoc{
	Rule: "blob-digest",
	Doc:  "The digest of a system prompt or tool catalog is that of its text, unless it is marked as not exact.",
}

// checkExport reads JSONL, or JSON if the first key of the text is one of the
// nested form. That a file cannot be read to its end is a finding.
func (c *checker) checkExport(name string, file io.Reader) error {
	r := bufio.NewReaderSize(file, 64<<10)
	head, _ := r.Peek(512) // a shorter text has less
	d := json.NewDecoder(bytes.NewReader(head))
	open, _ := d.Token()
	if key, _ := d.Token(); open == json.Delim('{') && (key == "session" || key == "messages") {
		var invalid error
		s, err := jsonl.DecodeNested(r, func(p codec.Problem) { invalid = errors.New(p.String()) })
		if err = cmp.Or(err, invalid); err != nil {
			return c.violation(name, session.Violation{Detail: err.Error()})
		}
		return c.report(document.Input{Transcript: s.Transcript, SpanRefs: s.SpanRefs})
	}
	found := false
	newer := func(p codec.Problem) {
		_ = c.notice(name, session.Notice{Detail: p.String()}) // where this fails, so does what comes after it
	}
	for t, err := range jsonl.Decode(r, newer) {
		found = true
		if err != nil {
			return c.violation(name, session.Violation{Detail: err.Error()})
		}
		if err := c.report(document.Input{Transcript: t}); err != nil {
			return err
		}
	}
	if !found {
		return c.violation(name, session.Violation{Detail: "no session in it"})
	}
	return nil
}

func (c *checker) violation(name string, v session.Violation) error {
	c.Violations = append(c.Violations, violation{name, v})
	what := v.Detail
	if v.Rule != "" {
		what = v.String()
	}
	return c.print(document.Flat(name + ": " + what)) // ids are whatever somebody sent
}

func (c *checker) notice(name string, n session.Notice) error {
	c.Notices = append(c.Notices, notice{name, n})
	if n.Rule == "" {
		return c.print("notice: " + document.Flat(name+": "+n.Detail))
	}
	return c.print(noticeLine(name, &n))
}

func (c *checker) print(line string) error {
	if c.asJSON {
		return nil
	}
	_, err := fmt.Fprintln(c.cmd.OutOrStdout(), line)
	return err
}

// report checks a session, as far as it is known.
func (c *checker) report(in document.Input) error {
	c.Sessions++
	id := in.Transcript.Session.ID
	in.Now, in.IdleTimeout = time.Now(), c.idleTimeout
	for _, v := range session.Check(in.Transcript) {
		if err := c.violation(id, v); err != nil {
			return err
		}
	}
	for _, n := range document.NoticesOf(in) {
		if err := c.notice(id, n); err != nil {
			return err
		}
	}
	return nil
}

// noticeLine is what check and import print of a notice.
func noticeLine(sessionID string, n *session.Notice) string {
	return "notice: " + document.Flat(sessionID+": "+n.String())
}
