package cli

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// filters are the flags by which commands select sessions: the same ones everywhere.
type filters struct {
	store.SessionFilter
	status        string
	scores        []string
	since, until  string
	sort, project string
}

func (x *filters) flags() flags {
	return flags{
		"project": &x.project, "agent": &x.Agent, "model": &x.Model, "provider": &x.Provider, "status": &x.status,
		"user": &x.User, "tag": &x.Tags, "score": &x.scores, "tool": &x.Tool, "text": &x.Text, "errors": &x.Errors,
		"loops": &x.Loops, "denials": &x.Denials, "since": &x.since, "until": &x.until,
	}
}

// addFilters adds the flags, except for --since of a command that has one of its own.
func addFilters(cmd *cobra.Command, x *filters) {
	x.flags().of("(filters)", cmd.Flags())
	complete(cmd, "status", document.Statuses())
}

func complete(cmd *cobra.Command, flag string, values []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

func (x *filters) read(cmd *cobra.Command) (err error) {
	if x.status != "" && !slices.Contains(document.Statuses(), x.status) {
		return usagef("--status %q is unknown; use %s", x.status, either(document.Statuses()))
	}
	if _, ok := store.ParseSessionSort(x.sort); !ok {
		return usagef("--sort %q is unknown; use %s", x.sort, either(store.SessionSorts()))
	}
	x.Scores = nil
	for _, text := range x.scores {
		score, err := store.ParseScoreFilter(text)
		if err != nil {
			return usagef("--score %w", err)
		}
		x.Scores = append(x.Scores, score)
	}
	if x.Project = x.project; x.project == "." || strings.HasPrefix(x.project, "./") ||
		strings.HasPrefix(x.project, "../") || x.project == ".." {
		if x.Project, err = filepath.Abs(x.project); err != nil {
			return err
		}
	}
	if x.Since, err = parseTime("since", x.since); err != nil {
		return err
	}
	if x.Until, err = parseTime("until", x.until); err != nil {
		return err
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		// An empty one, such as of a variable that is not set, would select every session: rm would delete them all.
		switch _, filter := x.flags()[f.Name]; {
		case !filter || err != nil:
		case f.Value.String() == "", f.Name == "tag" && slices.Contains(x.Tags, ""):
			err = usagef("--%s is empty; give one, or leave it out", f.Name)
		case f.Value.Type() == "bool" && f.Value.String() == "false":
			err = usagef("--%s=false selects nothing; leave it out", f.Name)
		}
	})
	return err
}

// reading is [reading] with the filters read before.
func (x *filters) reading(cmd *cobra.Command, fn func(ctx context.Context, r document.Reader, p *prices) error) error {
	if err := x.read(cmd); err != nil {
		return err
	}
	return reading(cmd, fn)
}

// everySession asks for sessions of all kinds.
var everySession = store.SessionQuery{Children: true, Archived: true}

// parseTime reads the value of a flag as of [store.ParseTime]. Nothing is the zero time.
func parseTime(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := store.ParseTime(text, time.Now(), time.Local)
	if err != nil {
		return at, usagef("--%s %w", flag, err)
	}
	return at, nil
}

func (x *filters) given(cmd *cobra.Command) bool {
	for name := range x.flags() {
		if cmd.Flags().Changed(name) {
			return true
		}
	}
	return false
}

func (x *filters) any() bool { return x.status != "" || len(x.Set()) > 0 }

func (x *filters) query() store.SessionQuery {
	sort, _ := store.ParseSessionSort(x.sort)
	return store.SessionQuery{SessionFilter: x.SessionFilter, Sort: sort}
}

// ids are the ids of the sessions that match, archived ones and children included.
func (x *filters) ids(ctx context.Context, r document.Reader) ([]string, error) {
	return r.SelectIDs(ctx, x.SessionFilter, x.status)
}

// within are the ids of the sessions that match the filters besides --agent, nil if there is no such filter.
func (x *filters) within(ctx context.Context, r document.Reader) ([]string, error) {
	others := *x
	if others.Agent = ""; !others.any() {
		return nil, nil
	}
	return x.ids(ctx, r)
}

// families are those sessions of which the head of the family matches: the one from which parents lead no further
// within the sessions.
func (x *filters) families(ctx context.Context, r document.Reader, sessions []session.Session) ([]session.Session,
	error) {
	ids, err := x.ids(ctx, r)
	if err != nil {
		return nil, err
	}
	matches, heads := make(map[string]bool, len(ids)), store.FamilyHeads(sessions)
	for _, id := range ids {
		matches[id] = true
	}
	return slices.DeleteFunc(sessions, func(s session.Session) bool { return !matches[heads[s.ID]] }), nil
}

// reportNone states that no session matches, and which filter excludes them: without which of them how many would.
func (x *filters) reportNone(cmd *cobra.Command, r document.Reader, q store.SessionQuery) error {
	q.SessionFilter = x.SessionFilter
	all, others, err := r.Exclusions(cmd.Context(), q, x.status)
	if err != nil {
		return err
	}
	type excluding struct {
		document.Exclusion
		Flag string
	}
	found := struct {
		Excluding   []excluding
		One, Others bool
		Max         int
	}{One: len(all) == 1, Others: others, Max: document.MaxExcluded}
	for _, e := range all {
		flag := "--" + e.Filter
		if e.Value != "" {
			flag += " " + shown(e.Value)
		}
		found.Excluding = append(found.Excluding, excluding{e, flag})
	}
	return note(cmd, "%s", phrases.Text("none matches", found))
}

// shown is a value of a flag as a message has it.
func shown(value string) string {
	value = document.OneLine(value)
	if strings.ContainsAny(value, " '\"") {
		return cmp.Or(strconv.Quote(value), `""`)
	}
	return value
}
