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
	cmd := described("annotate", flags{
		"turn": &a.turn, "part": &a.part, "tag": &a.tags, "untag": &a.untag, "score": &a.scores, "note": &a.notes,
		"remove": &a.remove, "comment": &a.comment, "author": &a.author, "list": &list, "json": &asJSON,
	}, &cobra.Command{
		ValidArgsFunction: completeSessions,
		Args:              exactly(1, "a session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.check(cmd, list); err != nil {
				return err
			}
			report := func(ctx context.Context, r store.Reader, id string) error {
				if !list && !asJSON {
					return nil
				}
				return listAnnotations(cmd, r, id, asJSON)
			}
			if list {
				return withSession(cmd, args[0], report)
			}
			return withWriter(cmd, func(ctx context.Context, s store.Service) error {
				id, err := s.Resolve(ctx, args[0])
				if err != nil {
					return err
				}
				changes, err := a.changes(ctx, s, id, time.Now())
				if err != nil {
					return err
				}
				if err := s.Annotate(ctx, changes); err != nil {
					return err
				}
				if !asJSON {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s has %s changed\n", id, counted(len(changes), "annotation"))
				}
				return report(ctx, s, id)
			})
		},
	})
	return cmd
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
	switch {
	case list && all > 0:
		return usagef("--list changes nothing; leave it out, or the other flags")
	case !list && all == 0:
		return usagef("annotate has nothing to do; add --tag, --score, --note, --untag, --remove or --list")
	case a.comment != "" && sets == 0:
		return usagef("--comment is a remark on tags and scores; use --note for a text of its own")
	case cmd.Flags().Changed("turn") && a.part != "":
		return usagef("--turn and --part exclude each other; use one of them")
	case cmd.Flags().Changed("turn") && a.turn < 1:
		return usagef("--turn is %d; turns are counted from 1", a.turn)
	}
	if a.author == "" {
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
func (a *annotator) changes(ctx context.Context, r store.Reader, id string, now time.Time) ([]store.Annotation, error) {
	message, part, err := web.AnnotationTarget(ctx, r, id, a.turn, a.part)
	if err != nil {
		return nil, err
	}
	to, err := web.NewAnnotator(ctx, r, id, now)
	if err != nil {
		return nil, err
	}
	set := func(kind, name, comment string, value float64) error {
		_, err := to.Set(store.Annotation{MessageID: message, PartID: part, Kind: kind, Name: name, Value: value,
			Comment: comment, Author: a.author})
		return err
	}
	for _, name := range a.tags {
		if err := set(store.AnnotationTag, name, a.comment, 0); err != nil {
			return nil, err
		}
	}
	for _, name := range a.untag {
		if err := to.Untag(message, part, name); err != nil {
			return nil, err
		}
	}
	for _, score := range a.scores {
		name, value, err := parseScore(score)
		if err != nil {
			return nil, err
		}
		if err := set(store.AnnotationScore, name, a.comment, value); err != nil {
			return nil, err
		}
	}
	for _, text := range a.notes {
		if err := set(store.AnnotationNote, "", text, 0); err != nil {
			return nil, err
		}
	}
	for _, id := range a.remove {
		if err := to.Remove(id); err != nil {
			return nil, err
		}
	}
	return to.Changes(), nil
}

// parseScore reads name=number.
func parseScore(text string) (name string, value float64, _ error) {
	at := strings.LastIndex(text, "=")
	if at > 0 {
		var err error
		value, err = strconv.ParseFloat(strings.TrimSpace(text[at+1:]), 64)
		if err == nil && !math.IsNaN(value) && !math.IsInf(value, 0) {
			return text[:at], value, nil
		}
	}
	return "", 0, usagef("--score %q is not a name and a number; use one such as quality=0.8", text)
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
		_, err := fmt.Fprintf(cmd.ErrOrStderr(), "session %s has no annotations\n", id)
		return err
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
