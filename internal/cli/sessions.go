package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
	"github.com/agenttrace/agenttrace/session/web"
)

// The commands that change sessions: archive, title, fork, rewind, rm, prune and annotate.

// withWriter opens a store that is there for writing and calls fn with it. If a collector holds it, the collector does
// what fn asks for; a store that another process holds is refused, with that process's name.
func withWriter(cmd *cobra.Command, fn func(ctx context.Context, s store.Service) error) error {
	address, path, err := place(cmd)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); address == "" && stores.IsFile(path) && errors.Is(err, fs.ErrNotExist) {
		return noStore(path)
	}
	s, err := openWriter(cmd)
	if err != nil {
		return err
	}
	err = fn(cmd.Context(), s)
	if closeErr := s.Close(); err == nil {
		err = closeErr
	}
	return err
}

// openWriter opens or creates the store, or reaches the collector to ask or that holds it.
func openWriter(cmd *cobra.Command) (store.Service, error) {
	address, path, err := place(cmd)
	if err != nil {
		return nil, err
	}
	if address != "" {
		return dial(cmd, address)
	}
	s, err := stores.Open(cmd.Context(), path, stores.Options{})
	if err == nil {
		return s, nil
	}
	if socket := stores.Socket(path); errors.Is(err, store.ErrLocked) && socket != "" {
		// A process without a server, or that has ended meanwhile, is the error that matters.
		if c, dialErr := web.Dial(cmd.Context(), "unix://"+socket, ""); dialErr == nil {
			return c, nil
		}
	}
	return nil, err
}

// resolveAll resolves each name, and each session once.
func resolveAll(ctx context.Context, r store.Reader, names []string) (ids []string, err error) {
	for _, name := range names {
		id, err := r.Resolve(ctx, name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func newArchive() *cobra.Command {
	var undo, asJSON bool
	to := flags{"undo": &undo, "json": &asJSON}
	return described("archive", to, atLeastOne, func(cmd *cobra.Command, args []string) error {
		return withWriter(cmd, func(ctx context.Context, s store.Service) error {
			ids, err := resolveAll(ctx, s, args)
			if err != nil {
				return err
			}
			for _, id := range ids {
				if err := s.Archive(ctx, id, !undo, time.Now()); err != nil {
					return err
				}
			}
			did := "archived"
			if undo {
				did = "taken back from the archive"
			}
			return answer(cmd, asJSON, map[string]any{"archived": !undo, "sessions": ids}, "%s %s\n",
				counted(len(ids), "session"), did)
		})
	})
}

func newTitle() *cobra.Command {
	var asJSON bool
	takes := exactly(2, "a session and a title, in quotes if it has spaces")
	return described("title", flags{"json": &asJSON}, takes, func(cmd *cobra.Command, args []string) error {
		title := strings.ToValidUTF8(strings.TrimSpace(args[1]), "\uFFFD")
		if title == "" {
			return usagef("the title is empty; give one")
		}
		return withWriter(cmd, func(ctx context.Context, s store.Service) error {
			id, err := s.Resolve(ctx, args[0])
			if err == nil {
				err = s.SetTitle(ctx, id, title, time.Now())
			}
			if err != nil {
				return err
			}
			return answer(cmd, asJSON, map[string]any{"session_id": id, "title": title}, "%s is called “%s”\n", id,
				document.Sanitize(title))
		})
	})
}

// spot has the flags that name a place in a session: a message, by the flag with that name, or a turn.
type spot struct {
	flag, message string
	turn          int
}

// place is the place that the flags name, of which one may be given.
func (x *spot) place(cmd *cobra.Command) (p web.Place, err error) {
	message, turn := cmd.Flags().Changed(x.flag), cmd.Flags().Changed("turn")
	if message {
		p.Message = &x.message
	}
	if turn {
		p.Turn = &x.turn
	}
	if message && turn {
		err = usagef("--%s and --turn exclude each other; use one of them", x.flag)
	}
	return p, err
}

// withIdle opens the store for writing and calls fn with the session that name means, unless the session is at work.
func withIdle(cmd *cobra.Command, name string,
	fn func(ctx context.Context, s store.Service, c *web.Conversation) error) error {
	idleTimeout, err := idleTimeout(cmd)
	if err != nil {
		return err
	}
	return withWriter(cmd, func(ctx context.Context, s store.Service) error {
		id, err := s.Resolve(ctx, name)
		if err != nil {
			return err
		}
		c, err := web.AtRest(ctx, document.Reader{Reader: s, IdleTimeout: idleTimeout}, id)
		if err != nil {
			return err
		}
		return fn(ctx, s, c)
	})
}

func newFork() *cobra.Command {
	at, title, asJSON := spot{flag: "at"}, "", false
	to := flags{"at": &at.message, "turn": &at.turn, "title": &title, "json": &asJSON}
	return described("fork", to, exactly(1, "one session"), func(cmd *cobra.Command, args []string) error {
		if title = strings.TrimSpace(title); title == "" && cmd.Flags().Changed("title") {
			return usagef("the title is empty; give one, or omit --title")
		}
		place, err := at.place(cmd)
		if err != nil {
			return err
		}
		return withIdle(cmd, args[0], func(ctx context.Context, s store.Service, c *web.Conversation) error {
			done, err := c.Fork(ctx, s, place, title, time.Now())
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd, done)
			}
			_ = note(cmd, "%s up to turn %d of %s copied\n", counted(done.Messages, "message"), done.Turn,
				document.Sanitize(c.ID))
			_, err = fmt.Fprintln(cmd.OutOrStdout(), done.SessionID)
			return err
		})
	})
}

func newRewind() *cobra.Command {
	at, undo, asJSON := spot{flag: "to"}, false, false
	to := flags{"to": &at.message, "turn": &at.turn, "undo": &undo, "json": &asJSON}
	return described("rewind", to, exactly(1, "one session"), func(cmd *cobra.Command, args []string) error {
		place, err := at.place(cmd)
		switch given := place != (web.Place{}); {
		case err != nil:
			return err
		case undo && given:
			return usagef("--undo takes back the last rewind; leave out --to and --turn")
		case !undo && !given:
			return usagef("rewind does not know where to; " +
				"add --turn with the number of a turn, or --to with a user's message")
		}
		return withIdle(cmd, args[0], func(ctx context.Context, s store.Service, c *web.Conversation) error {
			var done *web.Rewound
			var err error
			if undo {
				done, err = c.Unrewind(ctx, s)
			} else {
				done, err = c.Rewind(ctx, s, place, time.Now())
			}
			if err != nil {
				return err
			}
			return answer(cmd, asJSON, done, "%s", phrases.Text("rewound", done))
		})
	})
}

func newRemove() *cobra.Command {
	var yes, children, asJSON bool
	to := flags{"yes": &yes, "children": &children, "json": &asJSON}
	return described("rm", to, atLeastOne, func(cmd *cobra.Command, args []string) error {
		return reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) error {
			ids, err := resolveAll(ctx, r, args)
			if err == nil && children {
				ids, err = document.Descendants(ctx, r, ids)
			}
			if err != nil {
				return err
			}
			var sessions []session.Session
			for _, id := range ids {
				s, err := r.Session(ctx, id)
				if err != nil {
					return err
				}
				sessions = append(sessions, s)
			}
			return deleteSessions(cmd, sessions, yes, asJSON)
		})
	})
}

func newPrune() *cobra.Command {
	var olderThan string
	var archived, dryRun, yes, asJSON bool
	var x filters
	to := flags{"older-than": &olderThan, "archived": &archived, "dry-run": &dryRun, "yes": &yes, "json": &asJSON}
	cmd := described("prune", to, exactly(0, "no arguments"), func(cmd *cobra.Command, _ []string) error {
		if olderThan == "" && !x.given(cmd) {
			return usagef("prune does not know what is old; add --older-than 30d")
		}
		if err := x.read(cmd); err != nil {
			return err
		}
		before := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) // whatever a clock was set to
		for flag, age := range map[string]string{"older-than": olderThan, "since": x.since, "until": x.until} {
			if err := store.AmbiguousAge(age); err != nil {
				return usagef("--%s %w", flag, err)
			}
		}
		if olderThan != "" {
			var err error
			if before, err = store.ParseAge(olderThan, time.Now()); err != nil {
				return usagef("--older-than %w", err)
			}
		}
		return reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) error {
			sessions, err := r.Stale(ctx, before, archived)
			if err == nil && x.any() {
				sessions, err = x.families(ctx, r, sessions)
			}
			if err == nil && olderThan != "" {
				err = note(cmd, "%s, last updated before %s (%s ago)\n", counted(len(sessions), "session"),
					before.Format("2006-01-02 15:04:05 MST"), olderThan)
			}
			switch none := len(sessions) == 0 && !asJSON; {
			case err != nil:
				return err
			case none && x.any():
				return x.reportNone(cmd, r, everySession)
			case none:
				return note(cmd, "no session is older than %s\n", olderThan)
			case !dryRun:
				return deleteSessions(cmd, sessions, yes, asJSON)
			}
			r.IdleTimeout = -1 // they are old
			return listSessions(cmd, r, sessions, nil, asJSON)
		})
	})
	addFilters(cmd, &x)
	return cmd
}

// deleteSessions deletes what was listed, having asked unless yes is said.
func deleteSessions(cmd *cobra.Command, sessions []session.Session, yes, asJSON bool) error {
	deleted := []string{}
	report := func() error {
		return answer(cmd, asJSON, map[string]any{"deleted": deleted}, "%s deleted\n",
			counted(len(deleted), "session"))
	}
	if len(sessions) == 0 {
		return report()
	}
	if !yes {
		if in, ok := cmd.InOrStdin().(*os.File); !ok || !isTerminal(in) || !isTerminal(cmd.ErrOrStderr()) {
			return usagef("%s deletes for good, and there is nobody to ask; add --yes", cmd.Name())
		}
		for i := range sessions {
			if i == 20 && len(sessions) > 21 {
				_ = note(cmd, "  and %d more\n", len(sessions)-i)
				break
			}
			title, _, _ := strings.Cut(strings.TrimSpace(document.Sanitize(sessions[i].Title)), "\n")
			_ = note(cmd, "  %s  %s\n", document.Sanitize(sessions[i].ID), title)
		}
		_ = note(cmd, "delete %s for good? [y/N] ", counted(len(sessions), "session"))
		answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
			_ = note(cmd, "nothing was deleted\n")
			if asJSON {
				return report()
			}
			return nil
		}
	}
	err := withWriter(cmd, func(ctx context.Context, s store.Service) error {
		for i := range sessions {
			if err := s.Delete(ctx, sessions[i].ID); err == nil {
				deleted = append(deleted, sessions[i].ID)
			} else if !errors.Is(err, store.ErrNotFound) { // somebody else did
				return err
			}
		}
		return nil
	})
	if err == nil || len(deleted) > 0 {
		err = errors.Join(err, report())
	}
	return err
}

const envAuthor = "AGENTTRACE_AUTHOR"

func newAnnotate() *cobra.Command {
	var a annotator
	var list, asJSON bool
	return described("annotate", flags{
		"turn": &a.turn, "part": &a.part, "tag": &a.tags, "untag": &a.untag, "score": &a.scores, "note": &a.notes,
		"remove": &a.remove, "comment": &a.comment, "author": &a.author, "list": &list, "json": &asJSON,
	}, exactly(1, "a session"), func(cmd *cobra.Command, args []string) error {
		if err := a.check(cmd, list); err != nil {
			return err
		}
		if list {
			return withSession(cmd, args[0], func(_ context.Context, r document.Reader, id string) error {
				return listAnnotations(cmd, r, id, asJSON)
			})
		}
		return withWriter(cmd, func(ctx context.Context, s store.Service) error {
			id, err := s.Resolve(ctx, args[0])
			if err != nil {
				return err
			}
			changes, err := a.changes(ctx, s, id)
			if err == nil {
				err = s.Annotate(ctx, changes)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return listAnnotations(cmd, s, id, true)
			}
			return note(cmd, "%s has %s changed\n", id, counted(len(changes), "annotation"))
		})
	})
}

// annotator is what the command line asks for.
type annotator struct {
	turn                               int
	part, comment, author              string
	tags, untag, scores, notes, remove []string
}

// check finds what on the command line contradicts itself.
func (a *annotator) check(cmd *cobra.Command, list bool) error {
	sets := len(a.tags) + len(a.scores)
	all := sets + len(a.untag) + len(a.notes) + len(a.remove)
	turn := cmd.Flags().Changed("turn")
	switch {
	case list && all > 0:
		return usagef("--list changes nothing; leave it out, or the other flags")
	case !list && all == 0:
		return usagef("annotate has nothing to do; add --tag, --score, --note, --untag, --remove or --list")
	case a.comment != "" && sets == 0:
		return usagef("--comment is a remark on tags and scores; use --note for a text of its own")
	case turn && a.part != "":
		return usagef("--turn and --part exclude each other; use one of them")
	case turn && a.turn < 1:
		return usagef("--turn is %d; turns are counted from 1", a.turn)
	case a.author == "":
		a.author = author()
	}
	return nil
}

// author is who annotates, unless the command line says so: empty if nobody knows.
func author() string {
	if name := os.Getenv(envAuthor); name != "" {
		return name
	}
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}

func (a *annotator) changes(ctx context.Context, r store.Reader, id string) ([]store.Annotation, error) {
	message, part, err := web.AnnotationTarget(ctx, r, id, a.turn, a.part)
	if err != nil {
		return nil, err
	}
	to, err := web.NewAnnotator(ctx, r, id, time.Now())
	// each calls do with the values of a flag until one is an error.
	each := func(values []string, do func(value string) error) {
		for _, value := range values {
			if err == nil {
				err = do(value)
			}
		}
	}
	set := func(n store.Annotation) error {
		n.MessageID, n.PartID, n.Author = message, part, a.author
		_, err := to.Set(n)
		return err
	}
	each(a.tags, func(name string) error {
		return set(store.Annotation{Kind: store.AnnotationTag, Name: name, Comment: a.comment})
	})
	each(a.untag, func(name string) error { return to.Untag(message, part, name) })
	each(a.scores, func(text string) error {
		at := max(0, strings.LastIndex(text, "="))
		given := strings.TrimSpace(strings.TrimPrefix(text[at:], "="))
		n := store.Annotation{Kind: store.AnnotationScore, Name: text[:at], Comment: a.comment, Label: given}
		number, label, _ := strings.Cut(given, " ")
		value, err := strconv.ParseFloat(number, 64)
		if n.Name == "" || given == "" || errors.Is(err, strconv.ErrRange) || math.IsNaN(value) || math.IsInf(value, 0) {
			return usagef("--score %q is not a name and a number, or a word; use one such as quality=0.8 or review=pass", text)
		}
		if err == nil {
			n.Value, n.Label = &value, strings.TrimSpace(label)
		}
		return set(n)
	})
	each(a.notes, func(text string) error { return set(store.Annotation{Kind: store.AnnotationNote, Comment: text}) })
	each(a.remove, to.Remove)
	return to.Changes(), err
}

func listAnnotations(cmd *cobra.Command, r store.Reader, id string, asJSON bool) error {
	stored, err := r.Annotations(cmd.Context(), id)
	if err != nil {
		return err
	}
	all := document.AnnotationsOf(stored)
	if asJSON {
		return writeJSON(cmd, all)
	}
	if len(all) == 0 {
		return note(cmd, "session %s has no annotations\n", id)
	}
	turns := map[string]int{}
	if slices.ContainsFunc(all, func(n document.Annotation) bool { return n.MessageID != "" }) {
		t, err := r.Transcript(cmd.Context(), id)
		if err != nil {
			return err
		}
		turns = document.TurnNumbers(t)
	}
	for i := range all {
		n := &all[i]
		target := "session"
		switch turn := turns[n.MessageID]; {
		case n.MessageID == "":
		case turn == 0:
			target = "session (its message is gone)"
		case n.PartID != "":
			target = fmt.Sprintf("turn %d, part %s", turn, n.PartID)
		default:
			target = fmt.Sprintf("turn %d", turn)
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s  %s  %-5s  %s\n", document.Sanitize(n.ID),
			document.OneLine(target), n.Kind, document.OneLine(cmp.Or(n.Text(), "(empty)")))
		if err != nil {
			return err
		}
	}
	return nil
}
