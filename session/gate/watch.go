package gate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// Fact is what a rule found. It has ids, names and figures, and nothing of what a session says.
type Fact struct {
	// ID is the same however often the fact is found or delivered.
	ID   string `json:"id"`
	Rule string `json:"rule"`
	// At is when it was found, in Unix milliseconds.
	At        int64  `json:"at"`
	SessionID string `json:"session_id"`
	Agent     string `json:"agent,omitempty"`
	Project   string `json:"project,omitempty"`
	// Turn, Tool and CallID are where it is, if it is about a turn or a call.
	Turn   int    `json:"turn,omitempty"`
	Tool   string `json:"tool,omitempty"`
	CallID string `json:"call_id,omitempty"`

	// Detail says what was found in words, which may be the session's. It is not delivered.
	Detail string `json:"-"`
}

const (
	lookEvery = 500 * time.Millisecond
	// lookFor is how long a look takes at most, except for the session that it is at.
	lookFor = 250 * time.Millisecond
	// lag is how far the clocks of agents may be apart, and history how far a watch that goes on looks back.
	lag, history = 15 * time.Minute, 24 * time.Hour
	// recently is how long after its last update a session is looked at again whenever the store changes: a span that
	// comes late need not change its row.
	recently = time.Minute
)

// Watcher follows a store. Its fields are not changed while it runs.
type Watcher struct {
	Rules *Rules
	Store store.Follower
	// Price estimates costs that no source states; nil estimates none.
	Price store.Price
	// State is the file that remembers the facts, which one watcher uses at a time.
	State string
	// Of selects the sessions that rules are evaluated on; nil is all.
	Of func(id string) bool
	// Spent counts what sessions in other stores took, for budgets; nil is nothing.
	Spent func(context.Context, store.StatsQuery) (tokens int64, costUSD float64, err error)
	// Ending is how long Run may go on when its context has ended: it looks once more, and delivers what is left.
	Ending time.Duration
	// Found is called for each new fact, before it is delivered. Problem is called with what is tried again.
	Found   func(*Rule, Fact)
	Problem func(error)

	outbox   *outbox
	redactor *redact.Redactor
	// sessions are those that may be looked at, by id.
	sessions map[string]*watched
	// changed is when the store was last found to have changed, and stale that rows were not read since. behind is that a
	// look had no time for all sessions.
	changed       time.Time
	stale, behind bool
	last          int64 // when anything was last updated, in Unix milliseconds
}

// Run watches until ctx ends, or returns why it cannot.
func (w *Watcher) Run(ctx context.Context) (err error) {
	if w.redactor, err = redact.New(redact.Config{}); err != nil {
		return err
	}
	if w.outbox, err = openOutbox(w.State, w.Rules); err != nil {
		return err
	}
	w.sessions = make(map[string]*watched)
	w.last = time.Now().UnixMilli()
	if w.outbox.resumed {
		w.last = time.Now().Add(-history).UnixMilli()
	}
	lasting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	wait := w.outbox.deliver(lasting, w.Problem)
	failing := fmt.Sprint(nil)
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	for ctx.Err() == nil {
		problem := w.look(ctx)
		if text := fmt.Sprint(problem); text != failing && ctx.Err() == nil {
			if failing = text; problem != nil {
				w.Problem(problem)
			}
		}
		select {
		case <-ctx.Done():
		case <-ticks.C:
		}
	}
	limit := time.AfterFunc(w.Ending, stop)
	defer limit.Stop()
	for w.behind = w.Ending > 0; w.behind && err == nil && lasting.Err() == nil; {
		err = w.look(lasting)
	}
	w.outbox.end()
	wait()
	if left := w.outbox.end(); left > 0 && w.Ending > 0 {
		err = errors.Join(err, fmt.Errorf("%d facts were not delivered; watch --state %s tries again", left, w.State))
	}
	return errors.Join(err, w.outbox.close())
}

// watched is a session that may be looked at.
type watched struct {
	row session.Session
	at  time.Time // when it was looked at
	// due is that it was not looked at as it is, and open that something is waited for in it.
	due, open bool
}

// look evaluates the rules on what has changed: on sessions whose row is another one, the newest first, and then, as far
// as there is time, on those of which something may be found all the same, the one first that was looked at least
// recently. So a fact is found soon, however many sessions there are.
func (w *Watcher) look(ctx context.Context) error {
	polled, change, err := w.Store.Poll(ctx)
	if err != nil || polled == nil {
		w.behind = false
		return err
	}
	r := document.Reader{Reader: polled, Price: w.Price, IdleTimeout: -1}
	now := time.Now()
	if change != store.Unchanged {
		w.changed, w.stale = now, true
	}
	if w.stale {
		if err := w.list(ctx, r); err != nil {
			return err
		}
		w.stale = false
	}
	var changed, others []*watched
	for _, s := range w.sessions {
		recent := now.UnixMilli()-s.row.UpdatedAt < recently.Milliseconds()
		if s.due {
			changed = append(changed, s)
		} else if s.open || recent && s.at.Before(w.changed) {
			others = append(others, s)
		}
		w.last = max(w.last, min(s.row.UpdatedAt, now.UnixMilli()))
	}
	slices.SortFunc(changed, func(a, b *watched) int {
		return cmp.Or(cmp.Compare(b.row.UpdatedAt, a.row.UpdatedAt), cmp.Compare(a.row.ID, b.row.ID))
	})
	slices.SortFunc(others, func(a, b *watched) int { return a.at.Compare(b.at) })
	budgets := make(map[string]bool)
	for _, s := range slices.Concat(changed, others) {
		if w.behind = time.Since(now) > lookFor; w.behind {
			return nil
		}
		if err := errors.Join(w.session(ctx, r, s), w.budgets(ctx, r, &s.row, now, budgets)); err != nil {
			return err
		}
		s.due, s.at = false, now
	}
	w.behind = false
	return nil
}

// list reads the rows of sessions that may be looked at. Of those before, it keeps what there was no time for, and those
// in which something is waited for.
func (w *Watcher) list(ctx context.Context, r document.Reader) error {
	rows, err := r.Select(ctx, store.UpdatedSince(time.UnixMilli(w.last).Add(-lag)), "")
	if err != nil {
		return err
	}
	listed := make(map[string]bool, len(rows))
	for i := range rows {
		row := &rows[i]
		if w.Of != nil && !w.Of(row.ID) {
			continue
		}
		s := w.sessions[row.ID]
		if s == nil {
			s = new(watched)
			w.sessions[row.ID] = s
		}
		s.due = s.due || !reflect.DeepEqual(s.row, *row)
		s.row, listed[row.ID] = *row, true
	}
	maps.DeleteFunc(w.sessions, func(id string, s *watched) bool { return !listed[id] && !s.due && !s.open })
	return nil
}

// session evaluates the rules about single sessions.
func (w *Watcher) session(ctx context.Context, r document.Reader, s *watched) error {
	row := &s.row
	doc, err := r.LoadAll(ctx, row.ID)
	if errors.Is(err, store.ErrNotFound) { // it was deleted meanwhile
		s.open = false
		return nil
	} else if err != nil {
		return err
	}
	s.open = doc.Status.State.Waiting() || len(doc.Status.OpenCalls) > 0
	failures := w.Rules.gate.Look(row, doc, nil, nil, nil).Failures
	for i := range w.Rules.Rules {
		rule := &w.Rules.Rules[i]
		var found []Fact
		switch {
		case rule.Waits != 0:
			found = waiting(&doc.Status, time.Now().Add(-rule.Waits).UnixMilli())
		case rule.ErrorRate != nil:
			calls, failed := doc.Totals.ToolCalls, doc.Totals.Failed
			if calls >= cmp.Or(rule.ErrorRate.Calls, 10) && float64(failed) > rule.ErrorRate.Above*float64(calls) {
				found = []Fact{{Detail: fmt.Sprintf("%d of %d calls failed", failed, calls)}}
			}
		case rule.isAssertion():
			if f, failed := failures[rule.assertion]; failed {
				found = []Fact{{Turn: f.Turn, Tool: f.Tool, Detail: f.Detail}}
			}
		}
		for _, f := range found {
			if err := w.found(rule, row, f, row.ID, strconv.Itoa(f.Turn), f.CallID); err != nil {
				return err
			}
		}
	}
	return nil
}

// waiting are the calls that are open, and the approval or answer that is waited for, since before a time.
func waiting(st *document.Status, before int64) (found []Fact) {
	for _, c := range st.OpenCalls {
		if c.UpdatedAt < before {
			found = append(found, Fact{Tool: c.Tool, CallID: c.CallID, Detail: "a call of " + c.Tool + " is open"})
		}
	}
	if len(st.OpenCalls) == 0 && st.State.Waiting() && st.Since != 0 && st.Since < before {
		found = append(found, Fact{CallID: cmp.Or(st.ToolCallID, strconv.FormatInt(st.Since, 10)),
			Detail: "an approval or answer is waited for"})
	}
	return found
}

// budgets evaluates the rules about what sessions take together, for those that one session is among. done has what was
// evaluated for another session already.
func (w *Watcher) budgets(ctx context.Context, r document.Reader, row *session.Session, now time.Time,
	done map[string]bool) error {
	day := now.UTC().Truncate(24 * time.Hour)
	for i := range w.Rules.Rules {
		rule := &w.Rules.Rules[i]
		b := rule.Budget
		if b == nil {
			continue
		}
		q := store.StatsQuery{Since: day, Price: w.Price, Sessions: store.SessionFilter{Since: day}}
		of := ""
		switch b.Per {
		case "user":
			of = gjson.Get(row.MetadataJSON, "user_id").String()
			q.Sessions.User = of
		case "project":
			of, q.Sessions.Project = session.Deref(row.WorkspaceRoot), session.Deref(row.WorkspaceRoot)
		}
		key := rule.Name + "\x00" + of
		if done[key] || of == "" && b.Per != "day" {
			continue
		}
		done[key] = true
		stats, err := r.Stats(ctx, q)
		if err != nil {
			return err
		}
		tokens, cost := stats.Total.TotalTokens, stats.Total.CostUSD+session.Deref(stats.Total.EstimatedCostUSD)
		if w.Spent != nil {
			t, c, err := w.Spent(ctx, q)
			if err != nil {
				return err
			}
			tokens, cost = tokens+t, cost+c
		}
		if b.Tokens > 0 && tokens > b.Tokens || b.CostUSD > 0 && cost > b.CostUSD {
			detail := fmt.Sprintf("the %s took %d tokens and %s today", b.Per, tokens, document.Cost(&cost, nil))
			if err := w.found(rule, row, Fact{Detail: detail}, day.Format(time.DateOnly), of); err != nil {
				return err
			}
		}
	}
	return nil
}

// found keeps a fact for delivery, unless it is known. about distinguishes it from others of the rule.
func (w *Watcher) found(rule *Rule, row *session.Session, f Fact, about ...string) error {
	h := sha256.New()
	_ = json.NewEncoder(h).Encode(append([]string{rule.Name}, about...)) // strings can be encoded
	f.ID, f.Rule, f.At = hex.EncodeToString(h.Sum(nil)[:16]), rule.Name, time.Now().UnixMilli()
	f.SessionID, f.Agent, f.Project = row.ID, row.Agent, session.Deref(row.WorkspaceRoot)
	for _, name := range []*string{&f.SessionID, &f.Agent, &f.Project, &f.Tool, &f.CallID} {
		*name = w.redactor.Text(*name) // a store may have been filled without
	}
	added, err := w.outbox.add(f)
	if added {
		w.Found(rule, f)
	}
	return err
}
