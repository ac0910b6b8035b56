//go:build long && linux

package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

// questions is how many an agent asks that is recorded from outside: so few that the copies of all fit into a pipe.
const questions = 130

// ask is that agent: it prints each answer that it gets.
func ask() error {
	var messages []any
	for n := range questions {
		messages = append(messages, map[string]any{"role": "user", "content": fmt.Sprint("question ", n)})
		body, _ := json.Marshal(map[string]any{"model": "m", "messages": messages})
		var answer struct {
			Choices []struct{ Message struct{ Content string } }
		}
		var err error
		for range 50 { // as any client, after a connection that broke
			var resp *http.Response
			if resp, err = http.Post(os.Getenv("OPENAI_BASE_URL")+"/chat/completions", "application/json",
				strings.NewReader(string(body))); err != nil {
				continue
			}
			if err = errors.Join(json.NewDecoder(resp.Body).Decode(&answer), resp.Body.Close()); err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
		messages = append(messages, map[string]any{"role": "assistant", "content": answer.Choices[0].Message.Content})
		fmt.Println(answer.Choices[0].Message.Content)
	}
	return nil
}

// edit is a client of the Agent Client Protocol that asks as much of the agent that its arguments start, and prints
// each answer. With the argument "agent" it is that agent.
func edit() error {
	lines := bufio.NewScanner(os.Stdin)
	if os.Args[1] == "agent" {
		for n := 0; lines.Scan(); n++ {
			fmt.Printf(`{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk",`+
				`"content":{"type":"text","text":"answer %d"}}}}`+"\n"+`{"id":%[1]d,"result":{"stopReason":"end_turn"}}`+"\n", n)
		}
		return nil
	}
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Env = append(os.Environ(), roleVariable+"=agenttrace")
	to, failed := cmd.StdinPipe()
	from, err := cmd.StdoutPipe()
	if err := errors.Join(failed, err, cmd.Start()); err != nil {
		return err
	}
	lines = bufio.NewScanner(from)
	for n := range questions { // and then it waits for the kill, as its agent does
		fmt.Fprintf(to, `{"id":%d,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text",`+
			`"text":"question %[1]d"}]}}`+"\n", n)
		lines.Scan()
		lines.Scan()
		fmt.Println("answer", n)
	}
	lines.Scan()
	return errors.Join(lines.Err(), cmd.Wait())
}

// TestKilledOutside kills the recorder of an agent that is not instrumented, the agent, the command that started both,
// or the editor that started such a command, at random moments. Only its own death disturbs the agent. What was stored
// by then stays; while the recorder lives, each answer is stored that the agent got; and nothing is stored that nobody
// said.
func TestKilledOutside(t *testing.T) {
	// Of the questions after the moment of the kill a few are answered before it, and the others once it is done.
	var answered int
	var done chan struct{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct{ Messages []struct{ Content string } }
		if json.NewDecoder(r.Body).Decode(&request) != nil {
			return // who sent it was killed
		}
		if len(request.Messages)/2 >= answered {
			<-done
		}
		text := strings.Replace(request.Messages[len(request.Messages)-1].Content, "question", "answer", 1)
		kind, chunks := Named("chat").Chunks(&Step{Text: text, Input: 9, Output: 2}, "r", false)
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(chunks[0])
	}))
	defer server.Close()
	self, err := os.Executable()
	testscale.Must(t, err)
	for n := range max(8, *crashes/5) {
		victim := []string{"recorder", "agent", "command", "editor"}[n%4]
		t.Run(fmt.Sprint(victim, " ", n), func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(n), 11))
			home := t.TempDir()
			db := filepath.Join(home, "s.db")
			// stored are the answers in the store.
			stored := func() (all []string) {
				r, err := stores.OpenReader(t.Context(), db)
				if errors.Is(err, store.ErrNotFound) || err != nil && strings.Contains(err.Error(), "is empty") {
					return nil // it is being made, or was
				} else if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				for _, d := range Read(t, r) {
					for _, line := range Lines(d, false) {
						if text, ok := strings.CutPrefix(line, "assistant text "); ok {
							all = append(all, text)
						}
					}
				}
				return all
			}
			at := 1 + random.IntN(questions-2)
			answered, done = at+random.IntN(3), make(chan struct{})
			run, role := exec.Command(self, "run", "--store", db, "--", "env", roleVariable+"=asker", self), "agenttrace"
			if victim == "editor" {
				role = victim
				run = exec.Command(self, self, "run", "--store", db, "--acp", "--", "env", roleVariable+"=editor", self, "agent")
			}
			run.Env = append(os.Environ(), roleVariable+"="+role, "HOME="+home, "XDG_STATE_HOME=",
				"OPENAI_BASE_URL="+server.URL+"/v1")
			out, err := run.StdoutPipe()
			testscale.Must(t, errors.Join(err, run.Start()))
			var got, before []string
			for lines := bufio.NewReader(out); ; {
				line, err := lines.ReadString('\n')
				if err != nil {
					break
				}
				if got = append(got, strings.TrimSpace(line)); len(got) != at {
					continue
				}
				for range random.IntN(20_000) {
					runtime.Gosched()
				}
				before = stored()
				pid := run.Process.Pid
				if victim == "recorder" || victim == "agent" {
					pid = child(t, pid, map[string]string{"recorder": "run record", "agent": self + "$"}[victim])
				}
				testscale.Must(t, syscall.Kill(pid, syscall.SIGKILL))
				close(done)
			}
			_ = run.Wait()
			if killed := run.ProcessState.Sys().(syscall.WaitStatus).Signaled(); killed != (victim != "recorder") {
				t.Errorf("the command ended so: %v", run.ProcessState)
			}
			if len(got) < questions && (victim == "recorder" || victim == "command") {
				t.Errorf("the agent got %d answers", len(got))
			}
			for victim == "command" || victim == "editor" { // until the recorder has ended, or the test is over
				if left, _ := filepath.Glob(filepath.Join(home, ".local/state/agenttrace/runs/*")); left == nil {
					break
				}
			}
			after := stored()
			t.Logf("killed after %d answers, of which %d were stored; %d are", at, len(before), len(after))
			must := got
			if victim == "recorder" {
				must = before
			}
			for _, answer := range must {
				if !slices.Contains(after, answer) {
					t.Errorf("%s is not stored; killed after %d answers, before which %d were", answer, at, len(before))
				}
			}
			for i, answer := range after {
				if answer != fmt.Sprint("answer ", i) {
					t.Errorf("answer %d is %s", i, answer)
				}
			}
		})
	}
}

// child returns the child of a process that a pattern of its command line finds.
func child(t *testing.T, parent int, pattern string) int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "pgrep", "-P", strconv.Itoa(parent), "-f", pattern).Output()
	pid, failed := strconv.Atoi(strings.TrimSpace(string(out)))
	if err := errors.Join(err, failed); err != nil {
		t.Fatalf("find %s: %v", pattern, err)
	}
	return pid
}
