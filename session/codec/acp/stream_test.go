package acp

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session/codec"
)

const opening = `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}
{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}
{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"q"}]}}
`

// chunk is a line in which the agent says something.
func chunk(text string) string {
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s",`+
			`"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":%q}}}}`, text)
}

// TestStream reads lines as they come: short and very long, after a mark and space, to
// an end without a newline, and names those that are damaged by their number.
func TestStream(t *testing.T) {
	long := strings.Repeat("long ", 40_000)
	text := opening + chunk(long) + "\n\nrubbish\n" + chunk("short ") + "\n" + chunk(long)
	for name, file := range map[string]string{
		"plain": text, "after a mark": "\uFEFF" + text, "carriage returns": strings.ReplaceAll(text, "\n", "\r\n"),
	} {
		for how, r := range map[string]io.Reader{"": strings.NewReader(file),
			"byte by byte": iotest.OneByteReader(strings.NewReader(file))} {
			var problems []string
			var said string
			for s, err := range Decode(r, func(p codec.Problem) { problems = append(problems, p.String()) }) {
				if err != nil {
					t.Fatal(err)
				}
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
	for s, err := range Decode(io.MultiReader(strings.NewReader(text), iotest.ErrReader(io.ErrClosedPipe)), nil) {
		if s != nil || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("an error of the reader: %v, %v", s, err)
		}
	}
}

// TestRetains bounds what is held in memory beside the rows when all messages were
// read: a trace may have hundreds of megabytes.
func TestRetains(t *testing.T) {
	var b strings.Builder
	b.WriteString(opening)
	for i := range 400 {
		b.WriteString(chunk(fmt.Sprint(i, strings.Repeat(" word", 4000))) + "\n")
		b.WriteString(
			`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"plan",` +
				`"entries":[]}}}` + "\n")
	}
	text := b.String() + `{"jsonrpc":"2.0","id":77,"result":{}}` + "\n"
	held := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := held()
	messages, err := readMessages(strings.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := false
	all := decode(messages, func(codec.Problem) { // that of the last message
		ended = true
		if times := (held() - before) / float64(len(text)); times > 1.6 {
			t.Errorf("%.2f times the size of the trace is held, want that of the rows", times)
		}
	})
	if !ended || len(all) != 1 || len(all[0].Messages[1].Parts) != 800 {
		t.Errorf("%d sessions, and the end was met: %v", len(all), ended)
	}
	runtime.KeepAlive(text)
}
