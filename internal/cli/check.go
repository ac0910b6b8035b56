package cli

import (
	"bufio"
	"bytes"
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

func newCheck() *cobra.Command {
	var rules bool
	cmd := described("check", flags{"rules": &rules}, &cobra.Command{
		ValidArgsFunction: completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			if rules {
				if len(args) > 0 {
					return usagef("--rules lists the rules and checks nothing; leave %q out, or the flag", args[0])
				}
				for _, r := range append(session.Rules(), digestRule) {
					if _, err := fmt.Fprintf(out, "%-16s %s\n", r.Rule, r.Doc); err != nil {
						return err
					}
				}
				for _, r := range session.NoticeRules() {
					if _, err := fmt.Fprintf(out, "%-16s Notice: %s\n", r.Rule, r.Doc); err != nil {
						return err
					}
				}
				return nil
			}
			idleTimeout, err := idleTimeout(cmd)
			if err != nil {
				return err
			}
			c := checker{cmd: cmd, out: out, idleTimeout: idleTimeout}
			address, err := remote(cmd)
			if err != nil {
				return err
			}
			if len(args) == 0 && address != "" {
				if err := c.checkAll(openStore(cmd)); err != nil {
					return err
				}
			} else if len(args) == 0 {
				path, err := storePath(cmd)
				if err != nil {
					return err
				}
				args = []string{path}
			}
			for _, arg := range args {
				if err := c.check(arg); err != nil {
					return err
				}
			}
			summary := counted(c.sessions, "session") + " checked, " + counted(c.violations, "violation")
			if c.notices > 0 {
				summary += ", " + counted(c.notices, "notice")
			}
			fmt.Fprintln(cmd.ErrOrStderr(), summary)
			if c.violations > 0 {
				return errFinding
			}
			return nil
		},
	})
	return cmd
}

func counted(n int, what string) string {
	return document.Plural(n, what, what+"s")
}

type checker struct {
	cmd                  *cobra.Command
	out                  io.Writer
	sessions, violations int
	notices              int
	idleTimeout          time.Duration
}

// check checks what an argument names: a store by its address, or a file if there is one of that name.
func (c *checker) check(arg string) error {
	if arg == "-" {
		return c.checkExport("standard input", c.cmd.InOrStdin())
	}
	if !stores.IsFile(arg) {
		return c.checkAll(stores.OpenReader(c.cmd.Context(), arg))
	}
	f, err := os.Open(arg)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(arg, "./\\"):
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
	case err != nil:
		return noFileError(arg, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return usagef("check %s: it is a directory; name the files in it", arg)
	}
	head := make([]byte, 16)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", arg, err)
	}
	if string(head[:n]) == "SQLite format 3\x00" {
		return readError(arg, c.checkAll(stores.OpenReader(c.cmd.Context(), arg)))
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read %s: %w", arg, err)
	}
	return c.checkExport(arg, f)
}

func noFileError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("check %s: %w: no such file; name a store, an export or a session of the store", path,
			store.ErrNotFound)
	}
	return fmt.Errorf("check %s: %w", path, err)
}

// checkAll checks every session of a store, if it was opened, and closes it.
func (c *checker) checkAll(r store.Reader, err error) error {
	if err != nil {
		return err
	}
	defer r.Close()
	ids, err := document.Reader{Reader: r}.SelectIDs(c.cmd.Context(), store.SessionFilter{}, "")
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := c.checkStored(r, id); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) checkStored(r store.Reader, id string) error {
	t, err := r.Transcript(c.cmd.Context(), id)
	if err != nil {
		return err
	}
	links, err := r.Spans(c.cmd.Context(), id)
	if err != nil {
		return err
	}
	if err := c.report(t, links); err != nil {
		return err
	}
	blobs, err := document.Blobs(c.cmd.Context(), r, t)
	if err != nil {
		return err
	}
	for i := range blobs {
		b := &blobs[i]
		if !b.Exact || document.Names(b) {
			continue // one that arrived damaged, or was redacted, reports so itself
		}
		c.violations++
		altered := fmt.Sprintf("row %s of %s: the text has another digest: it was altered [%s]", b.Digest, b.Kind,
			digestRule.Rule)
		if err := c.print(id, altered); err != nil {
			return err
		}
	}
	return nil
}

// digestRule is the one rule that a session's rows do not show by themselves.
var digestRule = session.RuleDoc{
	Rule: "blob-digest",
	Doc:  "The digest of a system prompt or tool catalog is that of its text, unless it is marked as not exact.",
}

// checkExport reads JSONL, or JSON if the first key of the text is one of the
// nested form.
func (c *checker) checkExport(name string, file io.Reader) error {
	r := bufio.NewReaderSize(file, 64<<10)
	head, _ := r.Peek(512) // a shorter text has less
	d := json.NewDecoder(bytes.NewReader(head))
	open, _ := d.Token()
	if key, _ := d.Token(); open == json.Delim('{') && (key == "session" || key == "messages") {
		s, err := jsonl.DecodeNested(r)
		if err != nil {
			return c.damaged(name, err)
		}
		return c.report(s.Transcript, s.SpanRefs)
	}
	found := false
	newer := func(p codec.Problem) {
		c.notices++
		_ = c.print("notice: "+name, p.String()) // where this fails, so does what comes after it
	}
	for t, err := range jsonl.DecodeKnown(r, newer) {
		found = true
		if err != nil {
			return c.damaged(name, err)
		}
		if err := c.report(t, nil); err != nil {
			return err
		}
	}
	if !found {
		return c.damaged(name, errors.New("no session in it"))
	}
	return nil
}

// damaged reports a file that cannot be read to its end, which is a finding.
func (c *checker) damaged(name string, err error) error {
	c.violations++
	return c.print(name, err.Error())
}

// print prints what is found in a file or a session. Ids are whatever somebody sent.
func (c *checker) print(name, what string) error {
	_, err := fmt.Fprintln(c.out, document.Flat(name+": "+what))
	return err
}

// report checks the rows of a session. links are its spans, as far as they are known.
func (c *checker) report(t *session.Transcript, links []store.SpanRef) error {
	c.sessions++
	for _, v := range session.Check(t) {
		c.violations++
		if err := c.print(t.Session.ID, v.String()); err != nil {
			return err
		}
	}
	for _, n := range document.NoticesOf(t, links, time.Now(), c.idleTimeout) {
		c.notices++
		if _, err := fmt.Fprintln(c.out, noticeLine(t.Session.ID, &n)); err != nil {
			return err
		}
	}
	return nil
}

// noticeLine is what check and import print of a notice.
func noticeLine(sessionID string, n *session.Notice) string {
	return "notice: " + document.Flat(sessionID+": "+n.String())
}
