package otlp

import (
	"bytes"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
)

// TestWithheldValuesAreNoNullInSpans: a value that no source reports is called withheld in
// the span of its call, and is withheld again in what is read back.
func TestWithheldValuesAreNoNullInSpans(t *testing.T) {
	f, samples := format(t), 0
	for _, sample := range codectest.Corpus() {
		want := 0
		for _, m := range sample.Session.Messages {
			for i := range m.Parts {
				input, output := codec.Withheld(&m.Parts[i])
				for _, withheld := range []bool{input, output} {
					if withheld {
						want++
					}
				}
			}
		}
		if want == 0 {
			continue
		}
		samples++
		var spans bytes.Buffer
		if err := f.Encode(&spans, sample.Session); err != nil {
			t.Fatalf("%s: %v", sample.Name, err)
		}
		if got := strings.Count(spans.String(), codec.WithheldText); got != want {
			t.Errorf("%s: %d values are called withheld, want %d", sample.Name, got, want)
		}
		for back, err := range f.Decode(&spans, nil) {
			if err != nil {
				t.Fatalf("%s: %v", sample.Name, err)
			}
			if got, want := toolData(t, back.Transcript), toolData(t, sample.Session.Transcript); got != want {
				t.Errorf("%s: read back:\n%s\nwant:\n%s", sample.Name, got, want)
			}
		}
	}
	if samples == 0 {
		t.Error("no session of the suite has anything withheld")
	}
}

// toolData is the data of the tool calls of a session, a line each.
func toolData(t *testing.T, s *session.Transcript) string {
	t.Helper()
	var rows bytes.Buffer
	if err := jsonl.Encode(&rows, s); err != nil {
		t.Fatal(err)
	}
	var calls []string
	for line := range strings.Lines(rows.String()) {
		if strings.Contains(line, `toolCallId`) {
			_, data, _ := strings.Cut(line, `"data_json":`)
			data, _, _ = strings.Cut(data, `,"tool_call_id"`)
			calls = append(calls, data)
		}
	}
	return strings.Join(calls, "\n")
}
