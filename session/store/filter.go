package store

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SessionFilter selects sessions. Each field that is set must match; the zero value selects all.
type SessionFilter struct {
	// Project is the workspace of the session, its root or its id, or that of its parent if it has none.
	Project string
	// Agent is the agent that the session was started with.
	Agent string
	// Model is the model of the session or of one of its messages: the id, or provider/id. Provider likewise.
	Model, Provider string
	// User is the user_id in the session's metadata.
	User string
	// Tags are tags that the session, its turns or its parts have: all of them.
	Tags []string
	// Scores are comparisons of which each must hold for a score of the session, its turns or its parts.
	Scores []ScoreFilter
	// Tool is a tool that was called.
	Tool string
	// Text is in the title or in a message, upper and lower case alike, as [Reader].Search finds it.
	Text string
	// Errors selects sessions with a failed run, turn or tool call, Loops those with a warning about a loop, and
	// Denials those in which a call was not allowed.
	Errors, Loops, Denials bool
	// IDs, if not nil, are the sessions that are selected from.
	IDs []string
	// Since and Until select sessions that were active in that time, which includes Since; zero is unlimited.
	Since, Until time.Time
}

// ScoreFilter compares scores of a name. Op is one of =, !=, <, <=, > and >=; with "" there need only be a score.
type ScoreFilter struct {
	Name, Op string
	Value    float64
}

// scoreOps are the comparisons, those that begin with another before it.
var scoreOps = []string{">=", "<=", "!=", "=", ">", "<"}

// ParseScoreFilter reads a comparison such as quality>=0.8, or a name alone.
func ParseScoreFilter(text string) (f ScoreFilter, _ error) {
	at, op := -1, ""
	for _, o := range scoreOps {
		if i := strings.LastIndex(text, o); i >= 0 && (at < 0 || i+len(o) > at+len(op)) {
			at, op = i, o
		}
	}
	if at < 0 {
		at = len(text)
	}
	f.Name, f.Op = strings.TrimSpace(text[:at]), op
	if f.Name == "" {
		return f, fmt.Errorf("%q has no name of a score; write one such as quality>=0.8", text)
	}
	if op == "" {
		return f, nil
	}
	var err error
	f.Value, err = strconv.ParseFloat(strings.TrimSpace(text[at+len(op):]), 64)
	if err != nil || math.IsNaN(f.Value) || math.IsInf(f.Value, 0) {
		return f, fmt.Errorf("%q compares with no number; write one such as quality>=0.8", text)
	}
	return f, nil
}

func (f ScoreFilter) String() string {
	if f.Op == "" {
		return f.Name
	}
	return f.Name + f.Op + strconv.FormatFloat(f.Value, 'g', -1, 64)
}

// Valid reports whether the operator is one.
func (f ScoreFilter) Valid() bool { return f.Op == "" || slices.Contains(scoreOps, f.Op) }

// SetFilter is a field of a filter that is set: its name and value as front ends write them, and the filter without it.
type SetFilter struct {
	Name, Value string
	Without     SessionFilter
}

// Set returns the fields that are set, one for each tag and score.
func (f SessionFilter) Set() (all []SetFilter) {
	add := func(set bool, name, value string, unset func(*SessionFilter)) {
		if set {
			without := f
			unset(&without)
			all = append(all, SetFilter{name, value, without})
		}
	}
	text := func(name, value string, field func(*SessionFilter) *string) {
		add(value != "", name, value, func(f *SessionFilter) { *field(f) = "" })
	}
	text("project", f.Project, func(f *SessionFilter) *string { return &f.Project })
	text("agent", f.Agent, func(f *SessionFilter) *string { return &f.Agent })
	text("model", f.Model, func(f *SessionFilter) *string { return &f.Model })
	text("provider", f.Provider, func(f *SessionFilter) *string { return &f.Provider })
	text("user", f.User, func(f *SessionFilter) *string { return &f.User })
	for i, tag := range f.Tags {
		add(true, "tag", tag, func(f *SessionFilter) { f.Tags = slices.Delete(slices.Clone(f.Tags), i, i+1) })
	}
	for i, score := range f.Scores {
		add(true, "score", score.String(), func(f *SessionFilter) {
			f.Scores = slices.Delete(slices.Clone(f.Scores), i, i+1)
		})
	}
	text("tool", f.Tool, func(f *SessionFilter) *string { return &f.Tool })
	text("text", f.Text, func(f *SessionFilter) *string { return &f.Text })
	add(f.Errors, "errors", "", func(f *SessionFilter) { f.Errors = false })
	add(f.Loops, "loops", "", func(f *SessionFilter) { f.Loops = false })
	add(f.Denials, "denials", "", func(f *SessionFilter) { f.Denials = false })
	add(!f.Since.IsZero(), "since", f.Since.Format(time.RFC3339), func(f *SessionFilter) { f.Since = time.Time{} })
	add(!f.Until.IsZero(), "until", f.Until.Format(time.RFC3339), func(f *SessionFilter) { f.Until = time.Time{} })
	return all
}

// SessionSort is an order of sessions. Sessions that are equal in it are ordered by their ids, likewise.
type SessionSort string

// Orders of sessions: all descending, except for that by title.
const (
	SortUpdated SessionSort = ""        // by updated_at
	SortCreated SessionSort = "created" // by created_at
	SortTitle   SessionSort = "title"
	SortContext SessionSort = "context" // by the tokens in context
	SortCost    SessionSort = "cost"    // by the cost that sources report

	// Those that follow are by figures of [Spent]. What the messages and calls of a session give is not in its row: what
	// is not kept of it is read first.
	SortTurns    SessionSort = "turns"
	SortErrors   SessionSort = "errors"
	SortTokens   SessionSort = "tokens"   // by the tokens used
	SortDuration SessionSort = "duration" // by the time that answers took; those that state none come last
)

// SessionSorts are all orders by the names that front ends have for them.
func SessionSorts() []string {
	all := []string{"updated"}
	for _, s := range []SessionSort{SortCreated, SortTitle, SortContext, SortCost, SortTurns, SortErrors, SortTokens,
		SortDuration} {
		all = append(all, string(s))
	}
	return all
}

// ParseSessionSort returns the order of a name.
func ParseSessionSort(name string) (SessionSort, bool) {
	if !slices.Contains(SessionSorts(), cmp.Or(name, "updated")) {
		return "", false
	}
	if name == "updated" {
		name = ""
	}
	return SessionSort(name), true
}
