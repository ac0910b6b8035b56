package cli

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/web"
)

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

// changes are the annotations to be stored.
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
	set := func(kind, name, comment string, value float64) error {
		_, err := to.Set(store.Annotation{MessageID: message, PartID: part, Kind: kind, Name: name, Value: value,
			Comment: comment, Author: a.author})
		return err
	}
	each(a.tags, func(name string) error { return set(store.AnnotationTag, name, a.comment, 0) })
	each(a.untag, func(name string) error { return to.Untag(message, part, name) })
	each(a.scores, func(text string) error {
		at := max(0, strings.LastIndex(text, "="))
		name, number := text[:at], strings.TrimPrefix(text[at:], "=")
		value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if name == "" || err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
			return usagef("--score %q is not a name and a number; use one such as quality=0.8", text)
		}
		return set(store.AnnotationScore, name, a.comment, value)
	})
	each(a.notes, func(text string) error { return set(store.AnnotationNote, "", text, 0) })
	each(a.remove, to.Remove)
	return to.Changes(), err
}

// listAnnotations prints the annotations of a session that are not undone.
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
