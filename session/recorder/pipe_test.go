package recorder

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// FuzzPipe: whatever comes in whatever pieces goes on as it came, and is recorded line by line.
func FuzzPipe(f *testing.F) {
	for _, s := range []string{"", "a", "a\n", "a\r\nb", "\n\n{}\n \n", "\xff\x00\n" + strings.Repeat("x", 70_000) + "\ny"} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, in []byte, rewritten bool) {
		for _, src := range []io.Reader{bytes.NewReader(in), iotest.OneByteReader(bytes.NewReader(in)),
			iotest.DataErrReader(bytes.NewReader(in))} {
			var out bytes.Buffer
			var lines [][]byte
			q := NewQueue(func(all []Message) {
				for _, m := range all {
					lines = append(lines, m.Line)
				}
			})
			p := Pipe{Queue: q}
			if rewritten {
				p.Rewrite = func(line []byte) []byte { return line }
			}
			p.copy(&out, src, true)
			q.Close()
			if !bytes.Equal(out.Bytes(), in) {
				t.Fatalf("%q became %q", in, out.Bytes())
			}
			var want [][]byte
			for line := range bytes.SplitSeq(in, []byte("\n")) {
				if len(bytes.TrimSpace(line)) > 0 {
					want = append(want, line)
				}
			}
			if d := cmp.Diff(want, lines); d != "" {
				t.Fatalf("%q is recorded as (-want +got):\n%s", in, d)
			}
		}
	})
}

// FuzzPropagate: a prompt gets a trace context and is else as it was; all other lines are as they were.
func FuzzPropagate(f *testing.F) {
	const added = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, s := range []string{`{"id":1,"method":"session/prompt","params":{}}`,
		`{"id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"session/prompt"}]}}`,
		`{"method" : "session/prompt", "params" : { "_meta" : { } , "x":1}, "id":"a" }` + "\r\n",
		`{"id":1,"method":"session/prompt","params":{"_meta":{"a":1}}}`,
		`{"id":1,"method":"session/prompt","params":{"_meta":{"traceparent":"x"}}}`,
		`{"id":1,"method":"session/prompt","params":{"_meta":null}}`, `{"method":"session/prompt","params":{}}`,
		`{"id":1,"method":"session/new","params":{"x":"session/prompt"}}`, `"session/prompt"`, `{"session/prompt"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		got := Propagate(line, func() string { return added })
		if bytes.Equal(got, line) {
			return
		}
		if plain := bytes.Replace(got, []byte(`"traceparent":"`+added+`"`), nil, 1); len(line) > len(plain) ||
			!json.Valid(got) || !json.Valid(line) {
			t.Fatalf("%q became %q", line, got)
		}
		var m struct {
			Method string
			Params struct {
				Meta map[string]any `json:"_meta"`
			}
		}
		if err := json.Unmarshal(got, &m); err != nil || m.Params.Meta["traceparent"] != added {
			t.Fatalf("%q became %q: %v", line, got, err)
		}
	})
}

// TestTraceLosesWholeMessages: what cannot be written is missing as a whole, and what follows has its number.
func TestTraceLosesWholeMessages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "acp.jsonl")
	file, err := os.Create(path)
	testscale.Must(t, err)
	defer file.Close()
	closed, err := os.Open(path) // which cannot be written to
	testscale.Must(t, err)
	defer closed.Close()
	said := func(text string) []Message { return []Message{{FromClient: true, Line: []byte(text)}} }
	trace := NewTrace(file)
	trace.Record(said("{}"))
	trace.file = closed
	trace.Record(append(said("1"), said("2")...))
	trace.file = file
	trace.Record([]Message{{Line: []byte("<3>"), Lost: 4}})
	trace.Record([]Message{{Lost: 1}})
	const ts = `{"ts":"0001-01-01T00:00:00.000000Z","direction":`
	lost := func(n string) string {
		return ts + `"recorder","json":"{\"jsonrpc\":\"2.0\",\"method\":\"$/agenttrace/lost\",\"params\":{\"messages\":` + n +
			`}}"}` + "\n"
	}
	got, err := os.ReadFile(path)
	want := ts + `"fromClient","json":"{}"}` + "\n" + lost("6") + ts + `"fromAgent","json":"<3>"}` + "\n" + lost("1")
	if d := cmp.Diff(want, string(got)); d != "" || err != nil || trace.Lost != 7 || trace.Err == nil {
		t.Errorf("%v, %d lost by %v (-want +got):\n%s", err, trace.Lost, trace.Err, d)
	}
}

// TestQueueDropsWhatIsTooMuch: nothing waits for a recording that hangs, and one message of any size is kept.
func TestQueueDropsWhatIsTooMuch(t *testing.T) {
	begun, on := make(chan bool, 3), make(chan bool)
	var got []Message
	q := NewQueue(func(all []Message) {
		begun <- true
		<-on
		got = append(got, all...)
	})
	line := make([]byte, DefaultMaxPendingBytes+1)
	q.put(Message{Line: line[:1]})
	<-begun
	for _, n := range []int{len(line), 1, 2} {
		q.put(Message{Line: line[:n]})
	}
	q.put(Message{})
	close(on)
	q.Close()
	var sizes []int64
	for _, m := range got {
		sizes = append(sizes, int64(len(m.Line)), m.Lost)
	}
	if d := cmp.Diff([]int64{1, 0, int64(len(line)), 0, 0, 3}, sizes); d != "" {
		t.Errorf("sizes, and how many are lost (-want +got):\n%s", d)
	}
}
