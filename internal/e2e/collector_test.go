//go:build long

package e2e

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/spool"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// TestKilledCollector kills the collector, and one of the agents, while agents with a spool work, and restarts it.
// Everything that the collector or the spool acknowledged is in the store in the end.
func TestKilledCollector(t *testing.T) {
	dir := t.TempDir()
	path, root := filepath.Join(dir, "sessions.db"), filepath.Join(dir, "spool")
	grpcAt, httpAt := testscale.MustAddress(), testscale.MustAddress()
	var c *process
	up := func() { c = startCollector(t, path, grpcAt, httpAt) }
	down := func() { c.kill(t); _ = c.Wait() }
	k := newKnown()
	hear := func(p *process, lines int) {
		t.Helper()
		for range lines {
			l, ok := p.line(t)
			if !ok {
				t.Fatal("the agent ended too early")
			}
			k.read(l)
		}
	}
	j := job{Endpoint: grpcAt, Seed: 1, Name: "first", Turns: 100, Batch: 30 * time.Millisecond, Spool: root}

	// The collector dies, and then the agent.
	up()
	agent := startAgent(t, j)
	k.begins()
	hear(agent, 150)
	down()
	hear(agent, 150)
	agent.kill(t)
	for l, ok := agent.line(t); ok; l, ok = agent.line(t) {
		k.read(l)
	}
	_ = agent.Wait() // the error reports the kill

	// The next agent resumes its session and also sends its spool. The collector dies twice more.
	up()
	j.Name, j.Seed, j.Turns, j.States = "second", 2, 8, k.states[len(k.states)-1:]
	agent = startAgent(t, j)
	k.begins()
	hear(agent, 100)
	down()
	hear(agent, 50)
	up()
	down()
	hear(agent, 50)
	up()
	done := false
	for l, ok := agent.line(t); ok; l, ok = agent.line(t) {
		k.read(l)
		done = done || l.Kind == lineDone
	}
	if err := agent.Wait(); err != nil || !done {
		t.Fatalf("the agent did not end well: %v", err)
	}
	if report, err := spool.Drain(t.Context(), root, spool.Sink{}); err != nil || report.Kept.Spans+
		report.Kept.Records > 0 || len(report.Damages) > 0 {
		t.Errorf("left in the spool: %+v, %v", report, err)
	}
	down() // everything acknowledged is stored

	r := testscale.Open(t, sqlite.OpenReader, path)
	k.check(t, r)
}
