package agenttrace

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// LoopDetection finds an agent that repeats itself: the same calls in the same order, several times in a row. The
// rules are those of AgentDbg: among the last Window calls of a run (model calls, tool calls, and data parts named
// "state") the shortest sequence that the last calls repeat Repetitions times. Each cycle is warned of once,
// wherever it is entered. What its user writes is news for the agent: a turn that begins, and a data part named
// "steering", begin the window anew.
//
// A warning is a data-loop-warning part of the answer and an event on the turn's span. An agent that calls one
// tool, again and again with other input, is a loop too unless Arguments is set.
type LoopDetection struct {
	// Window is 12 when it is zero, and at least 4.
	Window int
	// Repetitions is 3 when it is zero, and at least 2.
	Repetitions int
	// Arguments distinguishes tool calls by their input.
	Arguments bool
	// StopOnLoop makes [Turn.Err] return a [*LoopError] from the first warning on.
	StopOnLoop bool
}

// Limits bound a run. What is zero is without bound. From the moment that a
// limit is passed, [Turn.Err] returns a [*LimitError].
type Limits struct {
	MaxModelCalls int
	MaxToolCalls  int
	// MaxEvents bounds model calls, tool calls and data parts together.
	MaxEvents   int
	MaxDuration time.Duration
}

// LoopError reports that the agent goes in circles.
type LoopError struct {
	// Pattern is what repeats: calls, oldest first, joined by " -> ".
	Pattern string
	// Repetitions is how often it was seen in a row, WindowSize how many of the last calls were looked at.
	Repetitions, WindowSize int
	// Evidence names the calls that repeat, oldest first: part ids of tool calls
	// and data, span ids of model calls, "" where nothing is recorded.
	Evidence []string
}

func (e *LoopError) Error() string {
	return fmt.Sprintf("loop detected: %s, %d times in a row", e.Pattern, e.Repetitions)
}

// ErrorType names the class of the error for telemetry.
func (e *LoopError) ErrorType() string { return "loop_detected" }

// LimitError reports that a run has passed one of its [Limits].
type LimitError struct {
	// Limit is the name of the field of Limits.
	Limit string
	// Max and Have are counts; of MaxDuration they are nanoseconds.
	Max, Have int64
}

func (e *LimitError) Error() string {
	if e.Limit == "MaxDuration" {
		return fmt.Sprintf("limit passed: %s is %v, have %v", e.Limit, time.Duration(e.Max), time.Duration(e.Have))
	}
	return fmt.Sprintf("limit passed: %s is %d, have %d", e.Limit, e.Max, e.Have)
}

// ErrorType names the class of the error for telemetry.
func (e *LimitError) ErrorType() string { return "limit_exceeded" }

// Err returns why the run should stop: a [*LoopError] or a [*LimitError], the first one there was. It is nil while
// the run may go on. Nothing stops by itself: ask after each call that begins, and end the turn with [Turn.Fail].
func (r *Run) Err() error {
	if r == nil || r.guard == nil {
		return nil
	}
	return r.guard.check(r.now())
}

// Err is [Run.Err] of the turn's run.
func (t *Turn) Err() error {
	if t == nil {
		return nil
	}
	return t.run.Err()
}

// guard watches what a run does. It works whether or not anything is recorded.
type guard struct {
	loop    *LoopDetection // nil detects nothing
	limits  Limits
	started time.Time

	mu                             sync.Mutex // a leaf; guards what follows
	signatures, ids                []string   // of the last calls
	warned                         []string   // cycles
	modelCalls, toolCalls, entries int
	err                            error
}

// newGuard returns nil when there is nothing to watch for.
func (t *Tracer) newGuard(now time.Time) *guard {
	if t.loop == nil && t.limits == (Limits{}) {
		return nil
	}
	return &guard{loop: t.loop, limits: t.limits, started: now}
}

// Kinds of what a guard counts, as AgentDbg names them.
const (
	guardModelCall = "LLM_CALL"
	guardToolCall  = "TOOL_CALL"
	guardState     = "STATE_UPDATE"
	guardData      = ""
)

// note reports a call. The signature is what makes two calls the same, "" for
// what no loop is made of; id is evidence. A loop that is found is returned.
func (g *guard) note(kind, signature, id string, now time.Time) *spans.LoopWarning {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.entries++
	switch kind {
	case guardModelCall:
		g.modelCalls++
	case guardToolCall:
		g.toolCalls++
	}
	g.fail("MaxModelCalls", g.limits.MaxModelCalls, g.modelCalls)
	g.fail("MaxToolCalls", g.limits.MaxToolCalls, g.toolCalls)
	g.fail("MaxEvents", g.limits.MaxEvents, g.entries)
	g.overtime(now)
	if g.loop == nil || signature == "" {
		return nil
	}
	if n := len(g.signatures); n >= g.loop.Window {
		g.signatures, g.ids = slices.Delete(g.signatures, 0, n+1-g.loop.Window),
			slices.Delete(g.ids, 0, n+1-g.loop.Window)
	}
	g.signatures, g.ids = append(g.signatures, signature), append(g.ids, id)
	return g.find()
}

// reset forgets the calls and their loops, because the user has written something.
func (g *guard) reset() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.signatures, g.ids, g.warned = nil, nil, nil
	if _, loop := g.err.(*LoopError); loop { //nolint:errorlint // nothing wraps it
		g.err = nil
	}
}

// find looks for a loop that the last call completes. The caller holds mu.
func (g *guard) find() *spans.LoopWarning {
	n, repetitions := len(g.signatures), g.loop.Repetitions
	for m := 1; m <= n/repetitions; m++ {
		last := g.signatures[n-m*repetitions:]
		if !slices.Equal(last[m:], last[:len(last)-m]) {
			continue
		}
		block := last[:m]
		key := cycle(block)
		if slices.Contains(g.warned, key) {
			return nil
		}
		g.warned = append(g.warned, key)
		w := &spans.LoopWarning{
			Pattern: strings.Join(block, " -> "), Repetitions: int64(repetitions), WindowSize: int64(n),
			Evidence: slices.Clone(g.ids[n-m*repetitions:]),
		}
		if g.loop.StopOnLoop && g.err == nil {
			g.err = &LoopError{Pattern: w.Pattern, Repetitions: repetitions, WindowSize: n, Evidence: w.Evidence}
		}
		return w
	}
	return nil
}

// cycle returns the same text for a block and all its rotations.
func cycle(block []string) string {
	least := block
	for i := 1; i < len(block); i++ {
		if turned := slices.Concat(block[i:], block[:i]); slices.Compare(turned, least) < 0 {
			least = turned
		}
	}
	return strings.Join(least, "\x00")
}

// fail notes that a limit is passed. The caller holds mu.
func (g *guard) fail(limit string, maximum, have int) {
	if maximum > 0 && have > maximum && g.err == nil {
		g.err = &LimitError{limit, int64(maximum), int64(have)}
	}
}

func (g *guard) overtime(now time.Time) {
	if d := now.Sub(g.started); g.limits.MaxDuration > 0 && d >= g.limits.MaxDuration && g.err == nil {
		g.err = &LimitError{"MaxDuration", int64(g.limits.MaxDuration), int64(d)}
	}
}

func (g *guard) check(now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.overtime(now)
	return g.err
}

// note reports a call to the run's guard, and records the loop that it finds. The caller holds no lock.
func (t *Turn) note(kind, signature, id string, now time.Time) {
	w := t.run.guard.note(kind, signature, id, now)
	if w == nil {
		return
	}
	t.run.sess.tracer.metrics.loop(t.run)
	if !t.recording {
		return
	}
	t.run.sess.tracer.addEvent(t.span, now, semconv.SpanEventLoopWarning, w)
	t.addData("a loop warning", "data-loop-warning", func(string) []byte {
		return []byte(`{"type":"data-loop-warning","data":` + encodeJSON(w) + `}`)
	})
}

// noteOnce reports the call to the run's guard as soon as its input is complete. The caller holds no lock.
func (c *ToolCall) noteOnce(now time.Time) {
	g := c.turn.run.guard
	if g == nil {
		return
	}
	c.turn.mu.Lock()
	if c.noted || c.p.State == stateInputStreaming && !c.ended {
		c.turn.mu.Unlock()
		return
	}
	c.noted = true
	signature := guardToolCall + ":" + cmp.Or(c.filter().id(c.p.Name), "UNKNOWN")
	if g.loop != nil && g.loop.Arguments {
		sum := sha256.Sum256([]byte(c.wholeInput()))
		signature += "(" + hex.EncodeToString(sum[:4]) + ")"
	}
	id := cmp.Or(c.partID, c.p.CallID)
	c.turn.mu.Unlock()
	c.turn.note(guardToolCall, signature, id, now)
}
