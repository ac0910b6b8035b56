package gate

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"
)

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
	Max map[string]Limit `yaml:"max"`
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
