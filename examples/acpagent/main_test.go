package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"
)

// The client gets the log as well as the SDK's responses and updates.
func TestClientGetsTheLog(t *testing.T) {
	in, toAgent := io.Pipe()
	fromAgent, out := io.Pipe()
	go func() {
		serve(in, out)
		out.Close()
	}()
	lines := bufio.NewScanner(fromAgent)
	ask := func(request string, until string) (got []string) {
		t.Helper()
		if _, err := fmt.Fprintln(toAgent, request); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			got = append(got, lines.Text())
			if strings.Contains(lines.Text(), until) {
				return got
			}
		}
		t.Fatalf("the agent ended: %q", got)
		return nil
	}
	ask(
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,`+
			`"clientCapabilities":{"logging":{}}}}`,
		`"id":1`)
	ask(`{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}`, `"id":2`)
	got := strings.Join(
		ask(
			`{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"sess-1",`+
				`"prompt":[{"type":"text","text":"hello"}]}}`, `"id":3`), "\n")
	for _, want := range []string{`"method":"log","params":{"level":"info","message":"asked","sessionId":"sess-1",` +
		`"logger":"agent"`, `"agent_message_chunk"`, `"stopReason":"end_turn"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing from\n%s", want, got)
		}
	}
	toAgent.Close()
}
