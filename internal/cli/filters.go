package cli

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

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

// filtersHelp is the part of a command's help that describes the flags.
const filtersHelp = `Filters select sessions, and each of them must match. --project is a workspace, its
directory or its id, or that of the parent session; "." is the current directory.
--model and --provider match the session's model and those of its messages. --status is
one of ` + `idle, busy, retrying, waiting_on_approval, waiting_on_user_input, interrupted,
finished, aborted and error. --tag, --score and --text look at the session, its turns and
its parts. --errors selects sessions with a failed run, turn, model call or tool call,
--loops those with a warning about a loop, --denials those in which a rule or a person
refused a call. A time is as 15:04 or 2026-11-20T15:04:05Z, or a duration before now:
30min, 12h, 7d, 2w, 6mo (months), 1y.`

// addFilters adds the flags. since describes the flag --since, "" for a command that has one of its own.
func addFilters(cmd *cobra.Command, x *filters) {
	f := cmd.Flags()
	f.StringVar(&x.project, "project", "", "only sessions of this `workspace`")
	f.StringVar(&x.Agent, "agent", "", "only sessions of this `agent`")
	f.StringVar(&x.Model, "model", "", "only sessions with this `model`, or provider/model")
	f.StringVar(&x.Provider, "provider", "", "only sessions with a model of this `provider`")
	f.StringVar(&x.status, "status", "", "only sessions with this `status`")
	f.StringVar(&x.User, "user", "", "only sessions of this `user`")
	f.StringArrayVar(&x.Tags, "tag", nil, "only sessions with this `tag`; may be repeated")
	f.StringArrayVar(&x.scores, "score", nil, "only sessions with such a `score`, as 'quality>=0.8'; may be repeated")
	f.StringVar(&x.Tool, "tool", "", "only sessions that called this `tool`")
	f.StringVar(&x.Text, "text", "", "only sessions with this `text` in the title or a message")
	f.BoolVar(&x.Errors, "errors", false, "only sessions with an error")
	f.BoolVar(&x.Loops, "loops", false, "only sessions with a loop")
	f.BoolVar(&x.Denials, "denials", false, "only sessions with a denied call")
	if f.Lookup("since") == nil {
		f.StringVar(&x.since, "since", "",
			"only sessions active since this `time`, or a duration before now such as 12h or 7d")
	}
	f.StringVar(&x.until, "until", "", "only sessions active before this `time`, or a duration before now")
	_ = cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(document.Statuses(),
		cobra.ShellCompDirectiveNoFileComp))
}

// addSort adds the flag --sort.
func addSort(cmd *cobra.Command, x *filters) {
	cmd.Flags().StringVar(&x.sort, "sort", "updated", "order: "+strings.Join(store.SessionSorts(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(store.SessionSorts(),
		cobra.ShellCompDirectiveNoFileComp))
}

// read reads the values of the flags.
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
	for flag, empty := range map[string]bool{"tag": slices.Contains(x.Tags, ""), "text": x.Text == "",
		"tool": x.Tool == ""} {
		if empty && cmd.Flags().Changed(flag) {
			return usagef("--%s is empty; give a %s", flag, flag)
		}
	}
	return nil
}

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

// given reports whether a flag of a filter is on the command line.
func (x *filters) given(cmd *cobra.Command) bool {
	return slices.ContainsFunc(filterFlags, func(name string) bool { return cmd.Flags().Changed(name) })
}

var filterFlags = []string{"project", "agent", "model", "provider", "status", "user", "tag", "score", "tool", "text",
	"errors", "loops", "denials", "since", "until"}

// any reports whether a filter is set.
func (x *filters) any() bool { return x.status != "" || len(x.Set()) > 0 }

// query is a query for the sessions that match.
func (x *filters) query() store.SessionQuery {
	sort, _ := store.ParseSessionSort(x.sort)
	return store.SessionQuery{SessionFilter: x.SessionFilter, Sort: sort}
}

// ids are the ids of the sessions that match, archived ones and children included.
func (x *filters) ids(ctx context.Context, r document.Reader) ([]string, error) {
	return r.SelectIDs(ctx, x.SessionFilter, x.status)
}

// within are the ids of the sessions that match the filters besides --agent, nil if there is no such filter.
func (x *filters) within(ctx context.Context, r document.Reader) (map[string]bool, error) {
	others := *x
	if others.Agent = ""; !others.any() {
		return nil, nil
	}
	ids, err := x.ids(ctx, r)
	within := make(map[string]bool, len(ids))
	for _, id := range ids {
		within[id] = true
	}
	return within, err
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
	var flags []string
	var reasons strings.Builder
	for _, e := range all {
		flag := "--" + e.Filter
		if e.Value != "" {
			flag += " " + shown(e.Value)
		}
		flags = append(flags, flag)
		if e.Without == 0 {
			continue
		}
		if len(all) == 1 {
			flag = "it"
		}
		more := ""
		if e.Without == document.MaxExcluded {
			more = " or more"
		}
		fmt.Fprintf(&reasons, "; without %s %d%s would", flag, e.Without, more)
	}
	if others {
		reasons.WriteString("; archived sessions and sub-agents do: add --all")
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "no session matches %s%s\n", strings.Join(flags, " "), &reasons)
	return err
}

// shown is a value of a flag as a message has it.
func shown(value string) string {
	value = document.OneLine(value)
	if strings.ContainsAny(value, " '\"") {
		return cmp.Or(strconv.Quote(value), `""`)
	}
	return value
}
