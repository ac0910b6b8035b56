package replay

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/document"
)

// TestRecordedOutputs: a server's tool is found by the end of its name in the session, by the input and then in order;
// results are as the server gave them, in the forms in which clients keep them.
func TestRecordedOutputs(t *testing.T) {
	call := func(name, input, output string) *document.Part {
		c := &document.ToolCall{Name: name, CallID: name + input, State: "output-available", Input: json.RawMessage(input)}
		if c.Output = json.RawMessage(output); strings.HasPrefix(output, "failed") {
			c.State, c.Output, c.Error = "output-error", nil, output
		}
		return &document.Part{Kind: document.KindTool, Tool: c}
	}
	doc := &document.Document{Turns: []*document.Turn{{Number: 1, Messages: []*document.Message{{Role: "assistant",
		Parts: []*document.Part{
			call("mcp__a__find-it", `{"q": 1, "n": 2}`, `"one"`), call("mcp__a__find-it", `{"q": 3}`, `{"n": 4}`),
			call("a_list", `{}`, `[{"type": "text", "text": "x"}, {"type": "image", "data": "eA==", "mimeType": "image/png"}]`),
			call("a_list", ``, `{"content": [{"type": "text", "text": "y"}], "structuredContent": {"y": 1}}`),
			call("b_list", `{"b": 1}`, `"b"`), call("edit", `{"p": 1}`, "failed to edit"), call("none", `{}`, ""),
		}}}}}}
	const noSuch = `{"content":[{"text":"agenttrace replay has no more calls of this tool","type":"text"}],"isError":true}`
	for _, x := range []struct{ tools, name, input, want, parting string }{
		{"find_it", "find_it", `{"n":2,"q":1}`, `{"content":[{"text":"one","type":"text"}]}`, ""},
		{"mcp__a__find-it", "find-it", `{"q":3}`,
			`{"content":[{"text":"{\"n\": 4}","type":"text"}],"structuredContent":{"n":4}}`, ""},
		{"find-it", "find-it", `{"q":9}`, `{"content":[{"text":"one","type":"text"}]}`,
			`turn 1, step 1: mcp__a__find-it is called with {"q":9} instead of {"n":2,"q":1}`},
		{"find-it", "other", `{}`, "", ""},
		{"all", "other", `{}`, noSuch, "other is called once more, with the input {}"},
		{"find-it", "edit", `{"p":1}`, "", ""},
		{"edit", "edit", `{"p":1}`, `{"content":[{"text":"failed to edit","type":"text"}],"isError":true}`, ""},
		{"a_list", "list", `{"b":1}`, "", ""},
		{"list", "list", `{"b":1}`, `{"content":[{"text":"b","type":"text"}]}`, ""},
		{"a_list", "list", `{}`,
			`{"content":[{"type":"text","text":"x"},{"type":"image","data":"eA==","mimeType":"image/png"}]}`, ""},
		{"list", "list", `{"c":1}`, `{"content":[{"text":"agenttrace replay cannot tell which tool of the session this is",` +
			`"type":"text"}],"isError":true}`, `list may be a_list or b_list, of which no call has the input {"c":1}`},
	} {
		p := NewPlayer(doc)
		testscale.Must(t, p.Tools(x.tools))
		w := httptest.NewRecorder()
		p.ServeTool(w, httptest.NewRequest("POST", "/", strings.NewReader(
			fmt.Sprintf(`{"name":%q,"arguments":%s}`, x.name, x.input))))
		if got := strings.TrimSpace(w.Body.String()); got != x.want {
			t.Errorf("--tools %s, %s %s:\n%s\nwant\n%s", x.tools, x.name, x.input, got, x.want)
		}
		parting := ""
		if found, _ := p.Partings(); len(found) > 0 {
			parting = found[0].String()
		}
		if parting != x.parting {
			t.Errorf("--tools %s, %s %s: %q, want %q", x.tools, x.name, x.input, parting, x.parting)
		}
	}
	p := NewPlayer(doc)
	if err := p.Tools("all"); err != nil || len(p.Missing()) != 6 ||
		p.Missing()[5] != "turn 1: the output of none is not recorded" {
		t.Errorf("%v, missing: %q", err, p.Missing())
	}
	for _, want := range []string{"x", "y"} { // calls with one input, in order
		if got := p.result("list", nil); !strings.Contains(string(got.Content), `"`+want+`"`) {
			t.Errorf("%s, want %s", got.Content, want)
		}
	}
}

// TestAWebSocketIsRefused: clients of the Responses API fall back to HTTP then.
func TestAWebSocketIsRefused(t *testing.T) {
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/v1/responses", nil)
	r.Header.Set("Upgrade", "websocket")
	if NewPlayer(&document.Document{}).ServeHTTP(w, r); w.Code != http.StatusUpgradeRequired {
		t.Errorf("the status is %d", w.Code)
	}
}

// TestCommandsInShells: a shell executes the client's script with what the session has in the place of the command, in the
// forms in which clients write both; another script stays.
func TestCommandsInShells(t *testing.T) {
	const failed = "failed"
	for _, x := range []struct {
		input, output, script, want string
		code                        int
	}{
		{`{"command":"ls -l"}`, `"it's\n%s\n"`, "ls -l", "it's\n%s\n", 0},
		{`{"command":"ls -l"}`, `"a"`, "echo als -l; (ls -lx)", "", -1},
		{`{"command":"ls "}`, failed, "true && ls || (echo $?; exit 7)", failed + "1\n", 7},
		{`{"command":["bash","-o","pipefail","-lc","false"]}`, failed, "false", failed, 1},
		{`{"cmd":"false"}`, `"Exit code: 3\nWall time: 0.1 seconds\nOutput:\na\n"`, "false", "a\n", 3},
		{`{"command":"false"}`, `"<untrusted_context>\nOutput: a\nExit Code: 4\nProcess Group PGID: 9\n</untrusted_context>"`,
			"(\nfalse\n)\nc=$?\necho; exit $c", "a\n", 4},
		{`{"command":"false"}`, `"a\n\nCommand exited with code 5"`, "false", "a", 5},
		{`{"command":"echo 'b  c'"}`, `"a"`, `eval 'echo '"'"'b  c'"'"'' < /dev/null && echo`, "a\n", 0},
		{`{"command":"echo 'b' \"$HOME\""}`, `"a"`, `sh -c "echo 'b' \"\$HOME\""`, "a", 0},
	} {
		c := &document.ToolCall{Name: "bash", CallID: "1", State: "output-available", Input: json.RawMessage(x.input),
			Output: json.RawMessage(x.output)}
		if x.output == failed {
			c.State, c.Output, c.Error = "output-error", nil, failed
		}
		p := NewPlayer(&document.Document{Turns: []*document.Turn{{Number: 1, Messages: []*document.Message{{
			Role: "assistant", Parts: []*document.Part{{Kind: document.KindTool, Tool: c}}}}}}})
		p.Shells = t.TempDir()
		testscale.Must(t, p.Tools("bash"))
		if early, err := p.script(x.script); early != "" || err != nil {
			t.Errorf("before the model made the call: %q, %v", early, err)
		}
		p.next = 1
		script, err := p.script(x.script)
		partings, _ := p.Partings()
		if err != nil || (script == "") != (x.code < 0) || (len(partings) > 0) != (x.code < 0) {
			t.Errorf("%s: %q, %v, %v", x.script, script, err, partings)
		}
		if script == "" {
			continue
		}
		cmd := exec.Command("bash", "-c", script)
		out, _ := cmd.Output()
		if string(out) != x.want || cmd.ProcessState.ExitCode() != x.code {
			t.Errorf("%s: %q with the exit code %d, want %q with %d", script, out, cmd.ProcessState.ExitCode(), x.want, x.code)
		}
	}
}
