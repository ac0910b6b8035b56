package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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

// The commands that change sessions: edit, fork, rewind and rm.

// withWriter opens a store that is there for writing and calls fn with it. If a collector holds it, the collector does
// what fn asks for; a store that another process holds is refused, with that process's name.
func withWriter(cmd *cobra.Command, fn func(ctx context.Context, s store.Service) error) error {
	s, err := openWriter(cmd, false)
	if err != nil {
		return err
	}
	return cmp.Or(fn(cmd.Context(), s), s.Close())
}

// openWriter opens the store, or creates it if that is asked for, or reaches the collector to ask or that holds it.
func openWriter(cmd *cobra.Command, create bool) (store.Service, error) {
	address, path, err := place(cmd)
	if err != nil {
		return nil, err
	}
	if address != "" {
		return dial(cmd, address)
	}
	if _, err := os.Stat(path); !create && stores.IsFile(path) && errors.Is(err, fs.ErrNotExist) {
		return nil, noStore(path)
	}
	// A recorder has the store for the moment of a delivery.
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
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
		if !errors.Is(err, store.ErrLocked) || time.Since(begun) > time.Second || cmd.Context().Err() != nil {
			return nil, err
		}
	}
}

// opener is openWriter for what opens the store later, and perhaps more than once.
func opener(cmd *cobra.Command) func(context.Context) (store.Service, error) {
	return func(context.Context) (store.Service, error) { return openWriter(cmd, true) }
}

// patientOpener is an opener that waits, until the context ends, for a store that others hold for a moment.
func patientOpener(cmd *cobra.Command) func(context.Context) (store.Service, error) {
	return func(ctx context.Context) (store.Service, error) {
		const pause = 100 * time.Millisecond
		for {
			s, err := openWriter(cmd, true)
			if !errors.Is(err, store.ErrLocked) {
				return s, err
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return nil, err
			}
		}
	}
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

// placeOf is the place in a session that the flags name: a message, by the flag of a name, or a turn.
func placeOf(cmd *cobra.Command, flag string, message *string, turn *int) (p web.Place) {
	if cmd.Flags().Changed(flag) {
		p.Message = message
	}
	if cmd.Flags().Changed("turn") {
		p.Turn = turn
	}
	return p
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
	var x struct {
		At, Title string
		Turn      int
		JSON      bool
	}
	return described("fork", &x, exactly(1, "one session"), func(cmd *cobra.Command, args []string) error {
		if x.Title = strings.TrimSpace(x.Title); x.Title == "" && cmd.Flags().Changed("title") {
			return usagef("the title is empty; give one, or omit --title")
		}
		return withIdle(cmd, args[0], func(ctx context.Context, s store.Service, c *web.Conversation) error {
			done, err := c.Fork(ctx, s, placeOf(cmd, "at", &x.At, &x.Turn), x.Title, time.Now())
			if err != nil {
				return err
			}
			if x.JSON {
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
	var x struct {
		To         string
		Turn       int
		Undo, JSON bool
	}
	return described("rewind", &x, exactly(1, "one session"), func(cmd *cobra.Command, args []string) error {
		place := placeOf(cmd, "to", &x.To, &x.Turn)
		if !x.Undo && place == (web.Place{}) {
			return usagef("rewind does not know where to; " +
				"add --turn with the number of a turn, or --to with a user's message")
		}
		return withIdle(cmd, args[0], func(ctx context.Context, s store.Service, c *web.Conversation) error {
			var done *web.Rewound
			var err error
			if x.Undo {
				done, err = c.Unrewind(ctx, s)
			} else {
				done, err = c.Rewind(ctx, s, place, time.Now())
			}
			if err != nil {
				return err
			}
			return answer(cmd, x.JSON, done, "%s", phrases.Text("rewound", done))
		})
	})
}

func newRemove() *cobra.Command {
	var x struct {
		filters
		OlderThan                             string
		Children, Archived, DryRun, Yes, JSON bool
	}
	return described("rm", &x, nil, func(cmd *cobra.Command, args []string) error {
		selects := x.OlderThan != "" || x.given(cmd)
		switch {
		case len(args) == 0 && !selects:
			return usagef("rm does not know what to delete; name sessions, or add --older-than 30d or another filter")
		case len(args) > 0 && (selects || x.Archived):
			return usagef("filters and sessions exclude each other; use one of them")
		case selects && x.Children:
			return usagef("--children is for sessions that are named; leave it out: filters select those of a session, too")
		}
		before := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) // whatever a clock was set to
		for flag, age := range map[string]string{"older-than": x.OlderThan, "since": x.Since, "until": x.Until} {
			if err := store.AmbiguousAge(age); err != nil {
				return usagef("--%s %w", flag, err)
			}
		}
		if x.OlderThan != "" {
			var err error
			if before, err = store.ParseAge(x.OlderThan, time.Now()); err != nil {
				return usagef("--older-than %w", err)
			}
		}
		return x.reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) error {
			var sessions []session.Session
			var err error
			if !selects {
				sessions, err = named(ctx, r, args, x.Children)
			} else if sessions, err = store.Stale(r.Sessions(ctx, store.UpdatedSince(time.Time{})), before,
				x.Archived); err == nil && x.any() {
				sessions, err = x.families(ctx, r, sessions)
			}
			if err == nil && x.OlderThan != "" {
				err = note(cmd, "%s, last updated before %s (%s ago)\n", counted(len(sessions), "session"),
					before.Format("2006-01-02 15:04:05 MST"), x.OlderThan)
			}
			switch none := len(sessions) == 0 && !x.JSON; {
			case err != nil:
				return err
			case none && x.any():
				return x.reportNone(cmd, r, everySession)
			case none:
				return note(cmd, "no session is older than %s\n", x.OlderThan)
			case !x.DryRun:
				return deleteSessions(ctx, cmd, r, sessions, x.Yes, x.JSON)
			}
			return listSessions(cmd, r, sessions, new(prices), x.JSON)
		})
	})
}

// named are the sessions that the names mean, with children those that came of them, too.
func named(ctx context.Context, r store.Reader, names []string, children bool) (sessions []session.Session, err error) {
	ids, err := resolveAll(ctx, r, names)
	if err == nil && children {
		ids, err = document.Descendants(ctx, r, ids)
	}
	for _, id := range ids {
		if err == nil {
			var s session.Session
			s, err = r.Session(ctx, id)
			sessions = append(sessions, s)
		}
	}
	return sessions, err
}

// deleteSessions deletes what was listed, having asked unless yes is said.
func deleteSessions(ctx context.Context, cmd *cobra.Command, r store.Reader, sessions []session.Session,
	yes, asJSON bool) error {
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
		if err := document.Entitle(ctx, r, sessions); err != nil {
			return err
		}
		for i := range sessions {
			if i == 20 && len(sessions) > 21 {
				_ = note(cmd, "  and %d more\n", len(sessions)-i)
				break
			}
			_ = note(cmd, "  %s  %s\n", document.Sanitize(sessions[i].ID), document.OneLine(sessions[i].Title))
		}
		_ = note(cmd, "delete %s for good? [y/N] ", counted(len(sessions), "session"))
		answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
			return report()
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

func newEdit() *cobra.Command {
	var e editor
	return described("edit", &e, atLeastOne, func(cmd *cobra.Command, args []string) error {
		if err := e.check(cmd); err != nil {
			return err
		}
		if e.List {
			return reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) error {
				ids, err := resolveAll(ctx, r, args)
				if err != nil {
					return err
				}
				return listAnnotations(cmd, r, ids, e.JSON)
			})
		}
		return withWriter(cmd, func(ctx context.Context, s store.Service) error {
			ids, err := resolveAll(ctx, s, args)
			if err != nil {
				return err
			}
			annotations := make([][]store.Annotation, len(ids))
			for i, id := range ids { // nothing is changed unless everything can be
				if annotations[i], err = e.annotations(ctx, s, id); err != nil {
					return err
				}
			}
			for i, id := range ids {
				done, err := e.change(ctx, s, id, annotations[i])
				if err == nil && !e.JSON {
					err = note(cmd, "%s: %s\n", document.Sanitize(id), done)
				}
				if err != nil {
					return err
				}
			}
			if e.JSON {
				return listAnnotations(cmd, s, ids, true)
			}
			return nil
		})
	})
}

// editor is what the command line asks for.
type editor struct {
	Title                           string
	Archive, Unarchive, List, JSON  bool
	Turn                            int
	turn                            *int // nil if it is not given
	Part, Comment, Author           string
	Tag, Untag, Score, Note, Remove []string
}

// check finds what on the command line contradicts itself.
func (e *editor) check(cmd *cobra.Command) error {
	e.turn = placeOf(cmd, "part", &e.Part, &e.Turn).Turn
	sets := len(e.Tag) + len(e.Score)
	given := cmd.Flags().Changed
	e.Title = strings.ToValidUTF8(strings.TrimSpace(e.Title), "\uFFFD")
	all := sets + len(e.Untag) + len(e.Note) + len(e.Remove)
	changes := all > 0 || e.Title != "" || e.Archive || e.Unarchive
	switch {
	case e.Title == "" && given("title"):
		return usagef("the title is empty; give one")
	case len(e.Title) > store.MaxAnnotation:
		return usagef("the title is too long; give at most %d bytes", store.MaxAnnotation)
	case !e.List && !changes:
		return usagef("edit has nothing to do; add --title, --archive, --unarchive, --tag, --untag, --score, --note, " +
			"--remove or --list")
	case e.Comment != "" && sets == 0:
		return usagef("--comment is a remark on tags and scores; use --note for a text of its own")
	case (given("turn") || e.Part != "") && sets+len(e.Untag)+len(e.Note) == 0:
		return usagef("--turn and --part are of tags, scores and notes; add one, or leave them out")
	case e.Author == "":
		e.Author = author()
	}
	return nil
}

// change changes a session and returns what was done.
func (e *editor) change(ctx context.Context, s store.Service, id string, annotations []store.Annotation) (string,
	error) {
	var done []string
	var err error
	if e.Title != "" {
		done, err = append(done, "called “"+document.Sanitize(e.Title)+"”"), s.SetTitle(ctx, id, e.Title, time.Now())
	}
	if err == nil && (e.Archive || e.Unarchive) {
		what := "archived"
		if e.Unarchive {
			what = "taken back from the archive"
		}
		done, err = append(done, what), s.Archive(ctx, id, !e.Unarchive, time.Now())
	}
	if err == nil && len(annotations) > 0 {
		done, err = append(done, counted(len(annotations), "annotation")+" changed"), s.Annotate(ctx, annotations)
	}
	return strings.Join(done, ", "), err
}

// author is who annotates, unless the command line says so: empty if nobody knows.
func author() string {
	name := os.Getenv(envAuthor)
	if u, err := user.Current(); name == "" && err == nil {
		name = u.Username
	}
	return name
}

func (e *editor) annotations(ctx context.Context, r store.Reader, id string) ([]store.Annotation, error) {
	message, part, err := web.AnnotationTarget(ctx, r, id, e.turn, e.Part)
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
		n.MessageID, n.PartID, n.Author = message, part, e.Author
		_, err := to.Set(n)
		return err
	}
	each(e.Tag, func(name string) error {
		return set(store.Annotation{Kind: store.AnnotationTag, Name: name, Comment: e.Comment})
	})
	each(e.Untag, func(name string) error { return to.Untag(message, part, name) })
	each(e.Score, func(text string) error {
		at := max(0, strings.LastIndex(text, "="))
		given := strings.TrimSpace(strings.TrimPrefix(text[at:], "="))
		n := store.Annotation{Kind: store.AnnotationScore, Name: text[:at], Comment: e.Comment, Label: given}
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
	each(e.Note, func(text string) error { return set(store.Annotation{Kind: store.AnnotationNote, Comment: text}) })
	each(e.Remove, to.Remove)
	return to.Changes(), err
}

// listAnnotations prints the annotations of sessions, or as JSON also what else edit changes.
func listAnnotations(cmd *cobra.Command, r store.Reader, ids []string, asJSON bool) error {
	type edited struct {
		SessionID   string                `json:"session_id"`
		Title       string                `json:"title"`
		Archived    bool                  `json:"archived"`
		Annotations []document.Annotation `json:"annotations"`
	}
	var all []edited
	for _, id := range ids {
		t, err := r.Transcript(cmd.Context(), id)
		if err != nil {
			return err
		}
		stored, err := r.Annotations(cmd.Context(), id)
		if err != nil {
			return err
		}
		annotations := document.AnnotationsOf(stored)
		all = append(all, edited{id, t.Session.Title, t.Session.ArchivedAt != nil, annotations})
		if asJSON {
			continue
		}
		if len(annotations) == 0 {
			err = note(cmd, "session %s has no annotations\n", document.Sanitize(id))
		} else {
			_, err = io.WriteString(cmd.OutOrStdout(), phrases.Text("annotations", struct {
				All   []document.Annotation
				Turns map[string]int
			}{annotations, document.TurnNumbers(t)}))
		}
		if err != nil {
			return err
		}
	}
	if asJSON {
		return writeJSON(cmd, all)
	}
	return nil
}
