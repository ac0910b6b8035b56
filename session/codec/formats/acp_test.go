package formats

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
)

// The same messages in different framings give the same session. What came over stdio is written as it was, and what
// is written of hand-made traces follows the schema.
func TestACPFramingsAgree(t *testing.T) {
	if readFile(t, "testdata/acp/handmade_raw.golden") != readFile(t, "testdata/acp/handmade_zed.golden") {
		t.Error("raw and Zed differ")
	}
	for _, name := range []string{"handmade_raw.ndjson", "handmade_zed.json", "handmade_inspector.jsonl",
		"handmade_conductor.jsons", "inspector_basic-session.jsonl"} {
		all, _ := readText(t, acpDecode, readFile(t, "testdata/acp/"+name))
		text := string(acpEncode(all[0]))
		if err := acpValid(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if losses := codec.Lost(all[0], one(t, acpDecode, text)); losses != nil && name == "handmade_raw.ndjson" {
			t.Errorf("lost %v", losses)
		}
	}
}

// TestACPForeign: what others read of a session that no trace gave.
func TestACPForeign(t *testing.T) {
	codectest.CheckGolden(t, "testdata/acp/foreign.golden.ndjson",
		string(acpEncode(rowsOf(t, "testdata/acp/foreign.rows"))), *update)
}

func FuzzACPDecode(f *testing.F) { fuzz(f, "acp") }

const acpOpening = `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}
{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}
{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"q"}]}}
`

// acpChunk is a line in which the agent says something.
func acpChunk(text string) string {
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s",`+
			`"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":%q}}}}`, text)
}

// TestACPStream reads lines as they come: short and very long, after a mark and space, to
// an end without a newline, and names those that are damaged by their number.
func TestACPStream(t *testing.T) {
	long := strings.Repeat("long ", 40_000)
	text := acpOpening + acpChunk(long) + "\n\nrubbish\n" + acpChunk("short ") + "\n" + acpChunk(long)
	for name, file := range map[string]string{
		"plain": text, "after a mark": "\uFEFF" + text, "carriage returns": strings.ReplaceAll(text, "\n", "\r\n"),
	} {
		for how, r := range map[string]io.Reader{"": strings.NewReader(file),
			"byte by byte": iotest.OneByteReader(strings.NewReader(file))} {
			var problems []string
			var said string
			for s, err := range acpDecode(r, func(p codec.Problem) { problems = append(problems, p.String()) }) {
				testscale.Must(t, err)
				for _, m := range s.Messages[1:] {
					for _, p := range m.Parts {
						said += p.DataJSON
					}
				}
			}
			if want := `{"type":"text","text":"` + long + "short " + long + `"}`; said != want {
				t.Errorf("%s %s: said %d bytes, want %d", name, how, len(said), len(want))
			}
			if d := cmp.Diff([]string{"line 6: not a JSON object: left out"}, problems); d != "" {
				t.Errorf("%s %s: problems (-want +got):\n%s", name, how, d)
			}
		}
	}
}

// What other projects' readers of the protocol make of a trace.

// acpPart is a part with the times of its begin and end.
type acpPart struct {
	data     string
	from, to int64
}

// acpAnswered is what is written of a question and an answer with the parts, which no trace gave.
func acpAnswered(t *testing.T, parts ...acpPart) string {
	t.Helper()
	data := []string{"assistant"}
	for _, p := range parts {
		data = append(data, p.data)
	}
	s := chat([]string{"user", `{"type":"text","text":"go"}`}, data)
	question, answer := &s.Messages[0], &s.Messages[1]
	question.Message.CreatedAt, question.Message.UpdatedAt, s.Session.CreatedAt = 1, 1, 1
	question.Parts[0].CreatedAt, question.Parts[0].UpdatedAt = 1, 1
	answer.Message.CreatedAt, answer.Message.UpdatedAt = 2, 99
	for i, p := range parts {
		answer.Parts[i].CreatedAt, answer.Parts[i].UpdatedAt = p.from, p.to
	}
	return string(acpEncode(s))
}

func acpToolPart(id, state, rest string, from, to int64) acpPart {
	return acpPart{`{"type":"tool-bash","toolCallId":"` + id + `","state":"` + state + `",` + rest + `}`, from, to}
}

// acpOrder returns what happens to calls and files, in the order of the trace.
func acpOrder(trace string) (all []string) {
	for line := range strings.Lines(trace) {
		for _, step := range []struct{ sign, word string }{
			{`"sessionUpdate":"tool_call",`, "begin"}, {`"status":"completed"`, "end"}, {`"status":"failed"`, "end"},
			{`"method":"fs/read_text_file"`, "file"}, {`"agent_message_chunk"`, "text"},
		} {
			if strings.Contains(line, step.sign) {
				word := step.word
				for _, id := range []string{"c1", "c2"} {
					if strings.Contains(line, `"toolCallId":"`+id+`"`) {
						word += " " + id
					}
				}
				all = append(all, word)
				break
			}
		}
	}
	return all
}

// A reader follows what a call does while it is open: an editor would show a file
// that is read after its tool is done as the work of nobody.
func TestACPCallsEndAfterTheirWork(t *testing.T) {
	text := acpPart{`{"type":"text","text":"done"}`, 20, 20}
	tests := []struct {
		name, trace string
		want        []string
	}{
		{
			"calls one after another",
			acpAnswered(t, acpToolPart("c1", "output-available", `"input":{},"output":1`, 3, 4),
				acpToolPart("c2", "output-available", `"input":{},"output":1`, 5, 6), text),
			[]string{"begin c1", "end c1", "begin c2", "end c2", "text"},
		},
		{
			"a text that came meanwhile",
			acpAnswered(t, acpToolPart("c1", "output-available", `"input":{},"output":1`, 3, 30), text),
			[]string{"begin c1", "end c1", "text"},
		},
		{"a file, without times", string(acpEncode(one(t, acpDecode, `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}
{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"c1","title":"t"}}}
{"jsonrpc":"2.0","id":"f","method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a"}}
{"jsonrpc":"2.0","id":"f","result":{"content":"x"}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"completed"}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"ok"}}}}
`))), []string{"begin c1", "file", "end c1", "text"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, acpOrder(tt.trace)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A question is about the call that it was asked for, also if another call has the same id.
func TestACPQuestionAboutACallWithTheIDOfAnother(t *testing.T) {
	got := one(t, acpDecode, acpAnswered(t, acpToolPart("c1", "output-available", `"input":{},"output":1`, 3, 4),
		acpToolPart("c1", "output-available", `"input":{},"output":2,"approval":{"id":"a","approved":true}`, 5, 6)))
	var asked []bool
	for _, p := range got.Messages[len(got.Messages)-1].Parts {
		if p.ToolCallID != nil {
			asked = append(asked, strings.Contains(p.DataJSON, `"approved":true`))
		}
	}
	if diff := cmp.Diff([]bool{false, true}, asked); diff != "" {
		t.Errorf("calls that were asked about (-want +got):\n%s", diff)
	}
}

// acpSchema has the rules of the protocol's published schema, version 1.
var acpSchema = schemaOf("testdata/schemas/acp.json")

// acpValid checks a trace of version 1: every message by the schema, and that responses answer requests.
func acpValid(trace string) (broken error) {
	requests := make(map[any]any)
	for line := range strings.Lines(trace) {
		var message map[string]any
		if err := json.Unmarshal([]byte(strings.ReplaceAll(line, "1e400", "1e300")), &message); err != nil {
			return err // any but of a number of the suite that no float64 holds
		}
		method, id := message["method"], message["id"]
		of, open := requests[id]
		switch {
		case method == nil && !open:
			broken = errors.Join(broken, fmt.Errorf("answers no request: %.300s", line))
		case method == nil:
			message["of"] = of
			delete(requests, id)
		case id != nil && open:
			broken = errors.Join(broken, fmt.Errorf("id %v is open: %.300s", id, line))
		case id != nil:
			requests[id] = method
		}
		if err := acpSchema(message); err != nil {
			broken = errors.Join(broken, fmt.Errorf("%w: %.300s", err, line))
		}
	}
	return broken
}
