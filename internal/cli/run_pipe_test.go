package cli_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// acpAgent is an agent of the Agent Client Protocol that does what its prompts say.
func acpAgent() {
	if len(os.Args) > 2 && os.Args[1] == "exit" {
		code, _ := strconv.Atoi(os.Args[2])
		os.Exit(code)
	} else if len(os.Args) > 1 && os.Args[1] != "echo" {
		return
	}
	lines := bufio.NewReader(os.Stdin)
	for line, err := lines.ReadBytes('\n'); err == nil; line, err = lines.ReadBytes('\n') {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				SessionID string
				Prompt    []struct{ Text string }
			}
		}
		if len(os.Args) > 1 {
			os.Stdout.Write(line)
			continue
		}
		_ = json.Unmarshal(line, &m)
		update := func(kind, rest string) {
			fmt.Printf(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":{"sessionUpdate":%q,%s}}}`+
				"\n", m.Params.SessionID, kind, rest)
		}
		result := `{"sessionId":"sess_1"}`
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":1,"agentCapabilities":{},"agentInfo":{"name":"coder","version":"1"}}`
		case "tools/call":
			result = `{"content":[{"type":"text","text":"some notes"}]}`
		case "session/load":
			for _, text := range []string{"fix it", "fail"} {
				update("user_message_chunk", `"content":{"type":"text","text":"`+text+`"}`)
				update("agent_message_chunk", `"content":{"type":"text","text":"done"}`)
			}
		case "session/prompt":
			text, state := m.Params.Prompt[0].Text, "completed"
			switch text {
			case "fail":
				state = "failed"
			case "junk":
				fmt.Println("not JSON")
			}
			call := string(m.ID)
			update("tool_call", `"toolCallId":"call_`+call+`","title":"Run","kind":"execute","rawInput":{"command":"ls"}`)
			if text == "die" {
				p, _ := os.FindProcess(os.Getpid())
				_ = p.Kill()
			}
			update("tool_call_update", `"toolCallId":"call_`+call+`","status":"`+state+`","rawOutput":"out"`)
			update("agent_message_chunk", `"content":{"type":"text","text":"done"}`)
			result = `{"stopReason":"end_turn"}`
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
	}
}

// acpClient runs an agent, sends it the requests on standard input, each after the response to the one before, and
// prints what it gets.
func acpClient() {
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stderr = os.Stderr
	to, _ := cmd.StdinPipe()
	from, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	answers := bufio.NewScanner(from)
	for requests := bufio.NewScanner(os.Stdin); requests.Scan(); {
		fmt.Fprintln(to, requests.Text())
		for answers.Scan() {
			fmt.Println(answers.Text())
			if strings.Contains(answers.Text(), `"id":`) {
				break
			}
		}
	}
	_ = to.Close()
	_ = cmd.Wait()
	os.Exit(max(1, cmd.ProcessState.ExitCode()+1) - 1)
}

// TestRunIsReadWhileItLasts: a session can be read while its agent runs, and when all that knew of it was killed, it
// has what was said by then.
func TestRunIsReadWhileItLasts(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "s.db")
	cmd := exec.CommandContext(t.Context(), "agenttrace", "--store", db, "run", "--acp", "--", "acpagent")
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+dir)
	stdin, err := cmd.StdinPipe()
	testscale.Must(t, err)
	stdout, err := cmd.StdoutPipe()
	testscale.Must(t, err)
	testscale.Must(t, cmd.Start())
	answers := bufio.NewReader(stdout)
	ask := func(n int) {
		fmt.Fprintf(stdin,
			`{"id":%d,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"text":"q%[1]d"}]}}`+"\n", n)
		for range 4 {
			if _, err := answers.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
	}
	turns := func(want string) {
		for { // until the test is over
			out, _ := exec.CommandContext(t.Context(), "agenttrace", "--store", db, "ls", "--json").Output()
			var items []struct{ Turns json.Number }
			if json.Unmarshal(out, &items) == nil && len(items) == 1 && items[0].Turns.String() == want {
				return
			}
		}
	}
	ask(1)
	turns("1")
	ask(2)
	ask(3)
	turns("3")
	testscale.Must(t, cmd.Process.Kill())
	if _, err := answers.ReadString('\n'); err == nil {
		t.Error("the agent goes on")
	}
	_ = cmd.Wait()
	turns("3")
	kept, _ := filepath.Glob(filepath.Join(dir, "agenttrace/runs/*/acp.jsonl"))
	if len(kept) != 1 {
		t.Errorf("%d files are left", len(kept))
	}
	command(t, 0, "--store", db, "import", kept[0])
	turns("3")
}
