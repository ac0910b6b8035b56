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
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
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
	_, _ = w.outbox.end()
	wait()
	left, failed := w.outbox.end()
	if err = errors.Join(err, failed); left > 0 && w.Ending > 0 {
		err = errors.Join(err, fmt.Errorf("%d facts were not delivered; watch --state %s tries again", left, w.State))
	}
	return errors.Join(err, w.outbox.conn.Close())
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

// Rules is a file of rules, and what is done about what they find.
type Rules struct {
	Version int      `yaml:"version"`
	Rules   []Rule   `yaml:"rules"`
	Webhook *Webhook `yaml:"webhook"`
	// Command is a program and its arguments. It gets the fact as JSON on standard input.
	Command []string `yaml:"command"`
	// Stop states how an agent is stopped.
	Stop Stop `yaml:"stop"`

	// gate has the assertions of those rules that are some, in their order.
	gate Gate
}

// Stop is how an agent is stopped: Grace is how long it has to end by itself, 10 s by default.
type Stop struct {
	Grace time.Duration `yaml:"grace"`
}

// Actions are what is done about a fact. Whoever runs a [Watcher] logs, counts and stops; the Watcher does the others.
const (
	ActionLog     = "log"
	ActionMetric  = "metric"
	ActionWebhook = "webhook"
	ActionCommand = "command"
	ActionStop    = "stop"
)

var actions = []string{ActionLog, ActionMetric, ActionWebhook, ActionCommand, ActionStop}

// Rule states one thing that shall not be: exactly one of the fields from Max on is set.
type Rule struct {
	Name string `yaml:"name"`
	// Actions are those of the rule: all but stop by default.
	Actions []string `yaml:"actions"`
	// Max bounds figures of a session, by the names that [Figures] lists.
	Max Limits `yaml:"max"`
	// Budget bounds what several sessions take together on a day.
	Budget *Budget `yaml:"budget"`
	// Loops, Secrets and Denied: there is none, if it is "none". See [Assertion].
	Loops   string `yaml:"loops"`
	Secrets string `yaml:"secrets"`
	Denied  string `yaml:"denied"`
	// NotCalled: a tool is never called so.
	NotCalled *CallMatch `yaml:"not_called"`
	// Waits is the longest that a call may be open, or an approval or an answer may be waited for.
	Waits time.Duration `yaml:"waits"`
	// ErrorRate bounds the share of a session's calls of tools that failed.
	ErrorRate *ErrorRate `yaml:"error_rate"`

	assertion int // the index in the gate, of a rule that is an assertion
}

// isAssertion reports whether a gate evaluates the rule.
func (r *Rule) isAssertion() bool { return r.Budget == nil && r.ErrorRate == nil && r.Waits == 0 }

// Budget is what sessions may take together on a day of UTC.
type Budget struct {
	// Per is user, project or day: what the sessions have in common, besides the day.
	Per string `yaml:"per"`
	// Tokens and CostUSD are the most that they may take; 0 is any.
	Tokens  int64   `yaml:"tokens"`
	CostUSD float64 `yaml:"cost_usd"`
}

// ErrorRate is a share, below 1, and from how many calls on it counts: 10 by default.
type ErrorRate struct {
	Above float64 `yaml:"above"`
	Calls int     `yaml:"calls"`
}

// Webhook is where facts are posted to, as JSON.
type Webhook struct {
	URL string `yaml:"url"`
	// SecretEnv names the variable of the environment with the secret that signs requests; none are signed without.
	SecretEnv string `yaml:"secret_env"`

	secret []byte
}

// WatchSuffix is what the name of a store's file is followed by in that of its watch's state.
const WatchSuffix = ".watch"

// ReadRules reads the rules in a file. The error names the file, the line and what is possible there.
func ReadRules(path string) (*Rules, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w; name a file of rules, as docs/watch.md describes", err)
	}
	r, err := parseRules(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// parseRules reads rules. The error names the line and what is possible there.
func parseRules(content []byte) (*Rules, error) {
	r := &Rules{Stop: Stop{Grace: defaultGrace}}
	if err := decode(content, r, &r.Version, Rule{}, Budget{}, ErrorRate{}, Webhook{}, Stop{}, CallMatch{}); err != nil {
		return nil, err
	}
	if len(r.Rules) == 0 {
		return nil, errors.New("it has no rules; add one below rules")
	}
	names := make([]string, 0, len(r.Rules))
	for i := range r.Rules {
		rule := &r.Rules[i]
		if rule.Name == "" || slices.Contains(names, rule.Name) {
			return nil, fmt.Errorf("line %d: name is %q; give each rule a name of its own", lineOf(content, "rules", i),
				rule.Name)
		}
		names = append(names, rule.Name)
		err := errors.Join(rule.check(), r.checkActions(rule))
		if err == nil && rule.isAssertion() {
			a := Assertion{Max: rule.Max, Loops: rule.Loops, Secrets: rule.Secrets, Denied: rule.Denied,
				NotCalled: rule.NotCalled, goesOn: true}
			err = a.check()
			rule.assertion, r.gate.Assertions = len(r.gate.Assertions), append(r.gate.Assertions, a)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: rule %q: %w", lineOf(content, "rules", i), rule.Name, err)
		}
	}
	if r.Stop.Grace < 0 {
		return nil, fmt.Errorf("stop: grace is %v; use a duration such as 10s", r.Stop.Grace)
	}
	if w := r.Webhook; w != nil {
		if u, err := url.Parse(w.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("webhook: url is %q; use an address such as https://example.com/hook", w.URL)
		}
		if w.secret = []byte(os.Getenv(w.SecretEnv)); w.SecretEnv != "" && len(w.secret) == 0 {
			return nil, fmt.Errorf("webhook: the variable %s is not set; set it to the secret, or remove secret_env",
				w.SecretEnv)
		}
	}
	return r, nil
}

const defaultGrace = 10 * time.Second

// Does reports whether an action is one of the rule.
func (r *Rule) Does(action string) bool {
	return r.Actions == nil && action != ActionStop || slices.Contains(r.Actions, action)
}

func (r *Rules) checkActions(rule *Rule) error {
	if rule.Actions != nil && len(rule.Actions) == 0 {
		return errors.New("actions is empty; use " + strings.Join(actions, ", ") + ", or remove it")
	}
	for _, name := range rule.Actions {
		switch {
		case !slices.Contains(actions, name):
			return fmt.Errorf("actions has %q; use %s", name, strings.Join(actions, ", "))
		case name == ActionWebhook && r.Webhook == nil, name == ActionCommand && len(r.Command) == 0:
			return fmt.Errorf("actions has %s, which the file does not describe; add %s beside rules", name, name)
		}
	}
	return nil
}

// ways are how facts of a rule are delivered; those of one that is not in the file any more by all ways.
func (r *Rules) ways(name string) (ways []string) {
	i := slices.IndexFunc(r.Rules, func(rule Rule) bool { return rule.Name == name })
	if r.Webhook != nil && (i < 0 || r.Rules[i].Does(ActionWebhook)) {
		ways = append(ways, ActionWebhook)
	}
	if len(r.Command) > 0 && (i < 0 || r.Rules[i].Does(ActionCommand)) {
		ways = append(ways, ActionCommand)
	}
	return ways
}

func (r *Rule) check() error {
	const first = 2 // the keys before state nothing
	if n := len(stated(r, first)); n != 1 {
		return fmt.Errorf("it states %d things; use one of %s", n,
			strings.Join(keysOf(reflect.TypeFor[Rule]())[first:], ", "))
	}
	switch b, e := r.Budget, r.ErrorRate; {
	case b != nil && !slices.Contains([]string{"user", "project", "day"}, b.Per):
		return fmt.Errorf("per is %q; use user, project or day, and max for one session", b.Per)
	case b != nil && (b.Tokens < 0 || b.CostUSD < 0 || b.Tokens == 0 && b.CostUSD == 0):
		return errors.New("budget has no limit; use tokens or cost_usd above 0")
	case e != nil && (e.Above < 0 || e.Above >= 1 || e.Calls < 0):
		return fmt.Errorf("error_rate is above %v of %d calls; use a share such as 0.5, and a number of calls", e.Above,
			e.Calls)
	case r.Waits < 0:
		return fmt.Errorf("waits is %v; use a duration such as 10m", r.Waits)
	}
	return nil
}
