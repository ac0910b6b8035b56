package cli

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/replay"
	"github.com/agenttrace/agenttrace/session/store"
)

// What a shell is offered comes from the store, which is opened for reading. It is nothing if there is no store.

// completed is how many sessions, the newest ones, are looked at for what they have.
const completed = 100

// completions are what a shell is offered for flags of all commands, by the names of these.
var completions = map[string]cobra.CompletionFunc{
	"after": func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return completeSessions(cmd, nil, typed)
	},
	"agent":   completeValues(func(s *document.Item) []string { return []string{s.Agent} }),
	"model":   completeValues(func(s *document.Item) []string { return []string{session.Deref(s.Model).ModelID} }),
	"project": completeValues(func(s *document.Item) []string { return []string{s.WorkspaceRoot} }),
	"tag":     completeValues(tagsOf), "untag": completeValues(tagsOf), "turn": completeTurns,
	"by": oneOf(store.StatsKeys()), "sort": oneOf(store.SessionSorts()), "status": oneOf(document.Statuses()),
	"format": func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		return oneOf(map[string][]string{
			"diff": diffFormats, "export": formats.Names((*formats.Format).Written),
			"import": formats.Names((*formats.Format).Reads), "replay": replay.Names(),
		}[cmd.Name()])(cmd, args, typed)
	},
}

func oneOf(values []string) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

func tagsOf(s *document.Item) (tags []string) {
	for i := range s.Annotations {
		if n := &s.Annotations[i]; n.Kind == store.AnnotationTag {
			tags = append(tags, n.Name)
		}
	}
	return tags
}

// completing calls fn with the store, from which nothing is offered if it cannot be read.
func completing(cmd *cobra.Command, fn func(ctx context.Context, r document.Reader) ([]string, error)) []string {
	r, err := openStore(cmd)
	if err != nil {
		return nil
	}
	defer r.Close()
	values, _ := fn(cmd.Context(), document.Reader{Reader: r})
	return values
}

// completeValues offers what sessions have, each once and sorted.
func completeValues(of func(*document.Item) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		values := completing(cmd, func(ctx context.Context, r document.Reader) (values []string, err error) {
			q := everySession
			q.Limit = completed
			rows, err := r.Select(ctx, q, "")
			if err != nil {
				return nil, err
			}
			items, _, err := r.Briefly(ctx, rows)
			for i := range items {
				for _, v := range of(&items[i]) {
					if v != "" && v == document.OneLine(v) && strings.HasPrefix(v, typed) {
						values = append(values, v)
					}
				}
			}
			return values, err
		})
		slices.Sort(values)
		return slices.Compact(values), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeTurns offers the numbers of the turns of the session that is named, with what the user asked.
func completeTurns(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	turns := completing(cmd, func(ctx context.Context, r document.Reader) (turns []string, err error) {
		if len(args) == 0 {
			return nil, nil
		}
		id, err := r.Resolve(ctx, args[0])
		if err != nil {
			return nil, err
		}
		doc, err := r.LoadAll(ctx, id)
		if err != nil {
			return nil, err
		}
		for _, t := range doc.Turns {
			if number := strconv.Itoa(t.Number); strings.HasPrefix(number, typed) {
				turns = append(turns, cobra.CompletionWithDesc(number, document.OneLine(t.UserText())))
			}
		}
		return turns, nil
	})
	return turns, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// completeSessions offers the newest sessions' ids to the shell, of all sessions once something is typed.
func completeSessions(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	takes := map[string]int{"diff": 2, "check": math.MaxInt, "edit": math.MaxInt, "export": math.MaxInt, "rm": math.MaxInt}
	switch {
	case cmd.Name() == "show" && len(args) == 1:
		return completeTurns(cmd, args, typed)
	case len(args) >= max(takes[cmd.Name()], 1):
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := completing(cmd, func(ctx context.Context, r document.Reader) (names []string, err error) {
		if strings.HasPrefix("last", typed) {
			names = append(names, cobra.CompletionWithDesc("last", "the newest session"))
		}
		q := everySession
		q.Limit = completed
		if typed != "" {
			q.Limit = -1
		}
		for s, err := range r.Sessions(ctx, q) {
			if err != nil {
				return names, err
			}
			// What ls prints for an id has not the prefix that every session has.
			name := s.ID
			if bare, ours := strings.CutPrefix(s.ID, "ses_"); ours && typed != "" && strings.HasPrefix(bare, typed) {
				name = bare
			}
			if strings.HasPrefix(name, typed) {
				names = append(names, cobra.CompletionWithDesc(document.Sanitize(name), document.Flat(s.Title)))
			}
		}
		return names, nil
	})
	if cmd.Name() == "check" { // it takes files too
		return names, cobra.ShellCompDirectiveDefault
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
