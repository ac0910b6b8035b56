//go:build long

package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// TestKilledAgents kills agents at random moments. Other agents resume their sessions from saved states, not always the
// last ones, and are killed too, except the last agent of each scenario.
func TestKilledAgents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.db")
	c, err := collector.Start(t.Context(), collector.Options{Store: path})
	testscale.Must(t, err)
	reader := testscale.Open(t, sqlite.OpenReader, path)
	var sum tally
	for n := 0; sum.kills < *crashes; n++ {
		s := scenario{reader: reader, endpoint: c.Endpoint(), known: newKnown(),
			rand: rand.New(rand.NewPCG(uint64(n), 7)),
			name: fmt.Sprint("s", n), tally: &sum}
		s.play(t)
	}
	if err := c.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if *crashes >= 200 && (sum.orphans == 0 || sum.waits == 0 || sum.interrupted == 0) {
		t.Errorf("the scenarios cover too little: %+v", sum)
	}
	t.Logf("%+v", sum)
}

// tally counts events of the test.
type tally struct {
	kills, interrupted, resumed, orphans, waits, turns int
}

// scenario is a session from its beginning to a regular end, through processes that die.
type scenario struct {
	reader   store.Reader
	endpoint string
	known    *known
	rand     *rand.Rand
	name     string
	tally    *tally
}

func (s *scenario) play(t *testing.T) {
	t.Helper()
	var states []agenttrace.State
	for n, deaths := 0, 1+s.rand.IntN(3); n <= deaths; n++ {
		j := job{
			Endpoint: s.endpoint, Seed: s.rand.Uint64(), Name: fmt.Sprintf("%s.p%d", s.name, n),
			Turns:  1 + s.rand.IntN(2),
			States: states, Answer: s.rand.IntN(2) == 0, Pause: len(states) > 0,
			Batch: time.Duration(1+s.rand.IntN(200)) * time.Millisecond,
		}
		last := n == deaths
		if !last {
			j.Turns = 50
		}
		s.live(t, j, last)
		if !last {
			s.tally.kills++
		}
		s.tally.interrupted += s.known.check(t, s.reader)
		states = s.saved()
	}
}

// live runs an agent until its job is done or it is killed.
func (s *scenario) live(t *testing.T, j job, whole bool) {
	t.Helper()
	p := startAgent(t, j)
	s.known.begins()
	statuses := make(map[string]string)
	lines, cue, done := 1+s.rand.IntN(250), s.rand.IntN(4) == 0, false
	for n := 0; whole || n < lines; n++ {
		l, ok := p.line(t)
		if !ok {
			break
		}
		s.known.read(l)
		if !whole && cue && waits(l) {
			break
		}
		switch l.Kind {
		case lineResumed:
			statuses[l.Session] = l.Text
			s.tally.resumed++
		case linePaused:
			s.known.check(t, s.reader)
			orphans, waits := s.known.checkResumed(t, s.reader, j.States, statuses)
			s.tally.orphans += orphans
			s.tally.waits += waits
			if _, err := io.WriteString(p.in, "\n"); err != nil {
				t.Fatal(err)
			}
		case lineDone:
			done = true
		}
	}
	if !whole {
		<-time.After(time.Duration(s.rand.IntN(2000)) * time.Microsecond) // during an export, or between two
		p.kill(t)
		for {
			l, ok := p.line(t)
			if !ok {
				break
			}
			s.known.read(l)
		}
		_ = p.Wait() // the error reports the kill
		return
	}
	if err := p.Wait(); err != nil || !done {
		t.Fatalf("the agent did not end well: %v", err)
	}
	s.tally.turns += j.Turns
}

// waits reports whether the host has saved a state that waits for a person.
func waits(l line) bool {
	return l.State != nil && slices.ContainsFunc(l.State.Open, func(p agenttrace.PendingTurn) bool {
		return slices.ContainsFunc(p.Tools, func(c agenttrace.PendingTool) bool {
			return c.State == session.StateApprovalRequested
		})
	})
}

// saved returns states of the session and of its sub-agents that the host has: the last
// ones, or some that it saved long before.
func (s *scenario) saved() []agenttrace.State {
	all := s.known.states
	if len(all) == 0 {
		return nil
	}
	if s.rand.IntN(3) == 0 {
		all = all[:1+s.rand.IntN(len(all))]
	}
	newest := make(map[string]agenttrace.State)
	var ids []string
	for _, state := range all {
		if _, seen := newest[state.ID]; !seen {
			ids = append(ids, state.ID)
		}
		newest[state.ID] = state
	}
	var states []agenttrace.State
	for _, id := range ids {
		if state := newest[id]; len(states) == 0 || len(state.Open) > 0 {
			states = append(states, state)
		}
	}
	return states
}
