package formats

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
)

// stsRead decodes a trace, and fails the test if its session is invalid.
func stsRead(tb testing.TB, trace string) (s *codec.Session, problems []string, failed error) {
	tb.Helper()
	for got, err := range stsDecode(strings.NewReader(trace),
		func(p codec.Problem) { problems = append(problems, p.String()) }) {
		if err != nil {
			return nil, problems, err
		}
		for _, v := range session.Check(got.Transcript) {
			tb.Errorf("invalid: %v", v)
		}
		s = got
	}
	return s, problems, nil
}

// TestSTSATraceOfAnotherHarness reads a trace as the documentation of the Hub describes it, and writes
// it as the viewer wants it.
func TestSTSATraceOfAnotherHarness(t *testing.T) {
	data, err := os.ReadFile("testdata/sts/llama.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	s, problems, err := stsRead(t, string(data))
	if err != nil {
		t.Fatal(err)
	}
	codectest.CheckGolden(t, "testdata/sts/llama.golden", codectest.Golden(t, problems, s), *update)
	var b bytes.Buffer
	if err := stsEncode(&b, s); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"type":"session","harness":"llama.app","id":"b1a2c3","name":"Implementing a new API"}`,
		`{"type":"message","message":{"role":"system","content":"You are helpful.","timestamp":1795198540000}}`,
		`{"type":"message","message":{"role":"user","content":"what time is it?","timestamp":1795198540000}}`,
		`{"type":"message","message":{"role":"assistant","content":"","reasoningContent":"I need a clock.",` +
			`"model":"gemma-3",` +
			`"timestamp":1795198541000,"toolCalls":[{"id":"t1","function":{"name":"get_time",` +
			`"arguments":"{\"zone\":\"UTC\"}"}},` +
			`{"id":"t2","function":{"name":"get_date","arguments":"\"not json\""}}]}}`,
		`{"type":"message","message":{"role":"tool","content":"2026-07-01T15:00:00Z","timestamp":1795198542000,` +
			`"toolCallId":"t1"}}`,
		`{"type":"message","message":{"role":"assistant","content":"it is 15:00 UTC","model":"gemma-3",` +
			`"timestamp":1795198543000}}`,
		"",
	}
	if d := cmp.Diff(want, strings.Split(b.String(), "\n")); d != "" {
		t.Errorf("written again (-want +got):\n%s", d)
	}
}

// TestSTSWhatIsWrongIsNamed: a line that cannot be read is named, with what was wanted.
func TestSTSWhatIsWrongIsNamed(t *testing.T) {
	const header, message = `{"type":"session","harness":"h","id":"s"}` + "\n",
		`{"type":"message","message":{"role":"user","content":"go"}}` + "\n"
	for _, tt := range []struct{ trace, want string }{
		{"", "it is empty"},
		{message, `line 1: is not a header: want {"type":"session"`},
		{"{\n" + header, "line 1: is not a header"},
		{header + "{\n" + message, "line 2: is not a message, and is left out"},
		{header + strings.Replace(message, "user", "robot", 1),
			`line 2: message.role is "robot", want user, assistant, system or tool`},
		{header + strings.Replace(message, `"go"`, "7", 1), "line 2: message.content is 7, want a text"},
		{header + strings.Replace(message, `"go"`, `"go","timestamp":"noon"`, 1),
			`line 2: message.timestamp is "noon", want milliseconds`},
		{header + strings.Replace(message, `"user"`, `"assistant","toolCalls":[{"id":"c"}]`, 1),
			"line 2: message.toolCalls[0] has no function"},
		{header + strings.Replace(message, `"user"`, `"tool","toolCallId":"c"`, 1),
			`line 2: message.toolCallId is "c", which no call before has`},
	} {
		_, problems, err := stsRead(t, tt.trace)
		if got := fmt.Sprint(problems, err); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %s", tt.trace, got, tt.want)
		}
	}
}
