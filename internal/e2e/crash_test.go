//go:build long

package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/internal/cli"
	"github.com/agenttrace/agenttrace/internal/testscale"
)

var crashes = flag.Int("crashes", 40, "how many agents TestKilledAgents kills")

// The test binary is also the agent and the collector: see TestMain. An agent prints, on a pipe that outlives it, what
// it is about to send, what was acknowledged, the model's output before it is recorded, and the states that it saves.
// The tests derive what the store may and must contain from this output alone:
//
//	go test -tags long ./internal/e2e -crashes 500

// roleVariable selects the role of the test binary in another process.
const roleVariable = "AGENTTRACE_CRASH_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "agent":
		if err := runAgent(); err != nil {
			fmt.Fprintln(os.Stderr, "agent:", err)
			os.Exit(1)
		}
		return
	case "asker":
		if err := ask(); err != nil {
			fmt.Fprintln(os.Stderr, "asker:", err)
			os.Exit(1)
		}
		return
	case "editor":
		if err := edit(); err != nil {
			fmt.Fprintln(os.Stderr, "editor:", err)
			os.Exit(1)
		}
		return
	case "agenttrace":
		os.Exit(cli.Main("test", os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	case "collector":
		if err := collector.Command("test").Execute(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	for _, name := range []string{collector.EnvStore, collector.EnvGRPCEndpoint, collector.EnvHTTPEndpoint,
		collector.EnvOTLPEndpoint} {
		os.Unsetenv(name)
	}
	// An agent that disconnects is expected here.
	os.Setenv("AGENTTRACE_LOG_LEVEL", "fatal")
	goleak.VerifyTestMain(m)
}

// process is this binary in another role.
type process struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T, role string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	testscale.Must(t, err)
	p := &process{Cmd: exec.Command(self, args...)}
	p.Env = append(os.Environ(), roleVariable+"="+role)
	in, err := p.StdinPipe()
	testscale.Must(t, err)
	var out io.ReadCloser
	if role == "collector" {
		out, err = p.StderrPipe() // it reports here that it is ready
	} else {
		p.Stderr = os.Stderr
		out, err = p.StdoutPipe()
	}
	testscale.Must(t, err)
	testscale.Must(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill() }) // for tests that fail before they do
	p.in, p.out = in, bufio.NewReader(out)
	return p
}

// startAgent starts an agent with a job.
func startAgent(t *testing.T, j job) *process {
	t.Helper()
	p := start(t, "agent")
	text, err := json.Marshal(j)
	testscale.Must(t, err)
	if _, err := p.in.Write(append(text, '\n')); err != nil {
		t.Fatal(err)
	}
	return p
}

// startCollector starts a collector and returns when it accepts telemetry.
func startCollector(t *testing.T, path, grpcAt, httpAt string) *process {
	t.Helper()
	p := start(t, "collector", "--store", path, "--grpc-endpoint", grpcAt, "--http-endpoint", httpAt)
	if line, err := p.out.ReadString('\n'); err != nil {
		t.Fatalf("the collector did not start: %q, %v, %v", line, err, p.Wait())
	}
	return p
}

// line returns the next line of the agent's output; false at the end. A line that the
// kill interrupted is ignored.
func (p *process) line(t *testing.T) (l line, ok bool) {
	t.Helper()
	text, err := p.out.ReadBytes('\n')
	if err != nil {
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		return l, false
	}
	if err := json.Unmarshal(text, &l); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if l.Kind == lineTrouble {
		t.Fatalf("the agent: %s", l.Text)
	}
	return l, true
}

// kill kills the process, as the kernel does when it runs out of memory.
func (p *process) kill(t *testing.T) {
	t.Helper()
	testscale.Must(t, p.Process.Kill())
}
