package cli

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	Status, Since, Until, Sort string
	Tag, Score                 []string
}

// filterFlags are the flags that select sessions.
var filterFlags = sync.OnceValue(func() *pflag.FlagSet {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	addFlags(f, "(filters)", new(filters))
	return f
})

func (x *filters) read(cmd *cobra.Command) (err error) {
	if x.Status != "" && !slices.Contains(document.Statuses(), x.Status) {
		return usagef("--status %q is unknown; use %s", x.Status, either(document.Statuses()))
	}
	if _, ok := store.ParseSessionSort(x.Sort); !ok {
		return usagef("--sort %q is unknown; use %s", x.Sort, either(store.SessionSorts()))
	}
	x.Tags, x.Scores = x.Tag, nil
	for _, text := range x.Score {
		score, err := store.ParseScoreFilter(text)
		if err != nil {
			return usagef("--score %w", err)
		}
		x.Scores = append(x.Scores, score)
	}
	if first, _, _ := strings.Cut(x.Project, "/"); first == "." || first == ".." {
		if x.Project, err = filepath.Abs(x.Project); err != nil {
			return err
		}
	}
	if x.SessionFilter.Since, err = parseTime("since", x.Since); err != nil {
		return err
	}
	if x.SessionFilter.Until, err = parseTime("until", x.Until); err != nil {
		return err
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		// An empty one, such as of a variable that is not set, would select every session: rm would delete them all.
		switch {
		case filterFlags().Lookup(f.Name) == nil || err != nil:
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

func (x *filters) given(cmd *cobra.Command) (given bool) {
	cmd.Flags().Visit(func(f *pflag.Flag) { given = given || filterFlags().Lookup(f.Name) != nil })
	return given
}

func (x *filters) any() bool { return x.Status != "" || len(x.Set()) > 0 }

func (x *filters) query() store.SessionQuery {
	sort, _ := store.ParseSessionSort(x.Sort)
	return store.SessionQuery{SessionFilter: x.SessionFilter, Sort: sort}
}

// ids are the ids of the sessions that match, archived ones and children included.
func (x *filters) ids(ctx context.Context, r document.Reader) ([]string, error) {
	return r.SelectIDs(ctx, x.SessionFilter, x.Status)
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
	all, others, err := r.Exclusions(cmd.Context(), q, x.Status)
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
