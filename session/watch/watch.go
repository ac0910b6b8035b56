package watch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"time"

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
}

const (
	interval = 500 * time.Millisecond
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
	// Found is called for each new fact. Problem is called with what is tried again.
	Found   func(Fact)
	Problem func(error)

	outbox *outbox
	// seen are the rows of sessions that were looked at, and open those in which something is waited for.
	seen map[string]session.Session
	open map[string]bool
	last int64 // when anything was last updated, in Unix milliseconds
}

// Run watches until ctx ends, or returns why it cannot.
func (w *Watcher) Run(ctx context.Context) (err error) {
	if w.outbox, err = openOutbox(w.State); err != nil {
		return err
	}
	w.seen, w.open = make(map[string]session.Session), make(map[string]bool)
	w.last = time.Now().UnixMilli()
	if w.outbox.resumed {
		w.last = time.Now().Add(-history).UnixMilli()
	}
	delivered := make(chan struct{})
	go func() {
		defer close(delivered)
		w.outbox.deliver(ctx, w.Rules, w.Problem)
	}()
	failing := ""
	for ticks := time.NewTicker(interval); err == nil; {
		problem := w.look(ctx)
		if text := errorText(problem); text != failing && ctx.Err() == nil {
			if failing = text; problem != nil {
				w.Problem(problem)
			}
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
			ticks.Stop()
		case <-ticks.C:
		}
	}
	<-delivered
	return w.outbox.close()
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// look evaluates the rules on what has changed.
func (w *Watcher) look(ctx context.Context) error {
	polled, change, err := w.Store.Poll(ctx)
	if err != nil || polled == nil {
		return err
	}
	r := document.Reader{Reader: polled, Price: w.Price, IdleTimeout: -1}
	if change == store.Unchanged {
		for id := range w.open {
			if row, there := w.seen[id]; there {
				if err := w.session(ctx, r, &row); err != nil {
					return err
				}
			}
		}
		return nil
	}
	rows, err := r.SessionsSince(ctx, w.last-lag.Milliseconds())
	if err != nil {
		return err
	}
	now := time.Now()
	seen := make(map[string]session.Session, len(rows))
	budgets := make(map[string]bool)
	for i := range rows {
		row := &rows[i]
		before, known := w.seen[row.ID]
		if !known || now.UnixMilli()-row.UpdatedAt < recently.Milliseconds() || !reflect.DeepEqual(before, *row) {
			if err := errors.Join(w.session(ctx, r, row), w.budgets(ctx, r, row, now, budgets)); err != nil {
				return err
			}
		}
		seen[row.ID] = *row
		w.last = max(w.last, min(row.UpdatedAt, now.UnixMilli()))
	}
	for id := range w.open {
		if row, there := w.seen[id]; there && seen[id].ID == "" {
			seen[id] = row
		}
	}
	w.seen = seen
	return nil
}

// session evaluates the rules about single sessions.
func (w *Watcher) session(ctx context.Context, r document.Reader, row *session.Session) error {
	doc, err := r.LoadAll(ctx, row.ID)
	if errors.Is(err, store.ErrNotFound) { // it was deleted meanwhile
		delete(w.open, row.ID)
		return nil
	} else if err != nil {
		return err
	}
	delete(w.open, row.ID)
	if doc.Status.State.Waiting() || len(doc.Status.OpenCalls) > 0 {
		w.open[row.ID] = true
	}
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
				found = []Fact{{}}
			}
		case rule.isAssertion():
			if f, failed := failures[rule.assertion]; failed {
				found = []Fact{{Turn: f.Turn, Tool: f.Tool}}
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
			found = append(found, Fact{Tool: c.Tool, CallID: c.CallID})
		}
	}
	if len(st.OpenCalls) == 0 && st.State.Waiting() && st.Since != 0 && st.Since < before {
		found = append(found, Fact{CallID: cmp.Or(st.ToolCallID, strconv.FormatInt(st.Since, 10))})
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
			var metadata struct {
				User string `json:"user_id"`
			}
			_ = json.Unmarshal([]byte(row.MetadataJSON), &metadata) // what is no object names none
			of, q.Sessions.User = metadata.User, metadata.User
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
		cost := stats.Total.CostUSD + session.Deref(stats.Total.EstimatedCostUSD)
		if b.Tokens > 0 && stats.Total.TotalTokens > b.Tokens || b.CostUSD > 0 && cost > b.CostUSD {
			if err := w.found(rule, row, Fact{}, day.Format(time.DateOnly), of); err != nil {
				return err
			}
		}
	}
	return nil
}

// found keeps a fact for delivery, unless it is known. about tells it from others of the rule.
func (w *Watcher) found(rule *Rule, row *session.Session, f Fact, about ...string) error {
	h := sha256.New()
	_ = json.NewEncoder(h).Encode(append([]string{rule.Name}, about...)) // strings can be encoded
	f.ID, f.Rule, f.At = hex.EncodeToString(h.Sum(nil)[:16]), rule.Name, time.Now().UnixMilli()
	f.SessionID, f.Agent, f.Project = row.ID, row.Agent, session.Deref(row.WorkspaceRoot)
	added, err := w.outbox.add(f)
	if added {
		w.Found(f)
	}
	return err
}
