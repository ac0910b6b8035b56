package ingest_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store/storetest"
	"github.com/agenttrace/agenttrace/spans"
)

// However much is redacted, omitted and cut, what is stored is a session that every reader takes.
func TestRedactedIsSound(t *testing.T) {
	r, err := redact.New(redact.Config{
		Keys: []string{
			"text", "type", "state", "name", "data", "input", "model", "summary", "usage", "steps", "problems",
			"duration", "size", "cost", "turn", "temperature",
		}, MaxBytes: 100, MaxDepth: 1,
		Omit: redact.Omit{Prompts: true, Reasoning: true, ToolInputs: true, ToolOutputs: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, redactor := range map[string]*redact.Redactor{"nothing": nil, "everything": r} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			in := ingest.New(s, ingest.Options{Redactor: redactor})
			report, err := in.Traces(t.Context(), traces(whole().spans...))
			if err != nil || report.Refused > 0 {
				t.Fatalf("%+v, %v", report, err)
			}
			if touched := report.Redacted + report.Omitted + report.Truncated; touched > 0 != (redactor != nil) {
				t.Errorf("%+v", report)
			}
			for _, id := range report.Sessions {
				transcript := storetest.Transcript(t, s, id)
				for _, v := range session.Check(transcript) {
					t.Errorf("session %s: %v", id, v)
				}
			}
		})
	}
}

// An output of 20 MB is one part that was cut, not a request that is lost.
func TestHugeOutput(t *testing.T) {
	const limit = 1 << 20
	r, err := redact.New(redact.Config{MaxBytes: limit})
	if err != nil {
		t.Fatal(err)
	}
	s := openStore(t)
	scenario := newScenario()
	head := "password=hunter2swordfish "
	output := head + strings.Repeat("all work and no play ", 1_000_000)
	quoted, err := json.Marshal(output)
	if err != nil {
		t.Fatal(err)
	}
	scenario.add(&spans.ToolCall{SessionID: "ses_1", ToolID: "bash", CallID: "call_1",
		MessageID: id(spans.PrefixMessage, 1, 1), PartID: id(spans.PrefixPart, 1, 1),
		State: session.StateOutputAvailable, Input: `{"cmd":"yes"}`, Output: string(quoted)}, 1, 2)
	report, err := ingest.New(s, ingest.Options{Redactor: r}).Traces(t.Context(), traces(scenario.spans...))
	if err != nil || report.Truncated != 1 || report.Redacted != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	transcript := storetest.Transcript(t, s, "ses_1")
	data := []byte(transcript.Messages[0].Parts[0].DataJSON)
	var part struct {
		Output   string
		Metadata struct {
			Agenttrace struct {
				Truncated bool   `json:"truncated"`
				Size      int    `json:"output_size"`
				SHA256    string `json:"output_sha256"`
			} `json:"agenttrace"`
		} `json:"toolMetadata"`
	}
	if err := json.Unmarshal(data, &part); err != nil {
		t.Fatal(err)
	}
	stored := r.Text(output)
	if m := part.Metadata.Agenttrace; !m.Truncated || m.Size != len(stored) || m.SHA256 != digest(stored) {
		t.Errorf("metadata %+v, want the size and digest of %d bytes", m, len(stored))
	}
	if len(part.Output) != limit || !strings.HasPrefix(stored, part.Output[:limit-100]) ||
		!strings.Contains(part.Output[limit-100:], "__TRUNCATED__[") {
		t.Errorf("output of %d bytes: %.60s … %s", len(part.Output), part.Output, part.Output[len(part.Output)-60:])
	}
	if bytes.Contains(data, []byte("hunter2")) {
		t.Error("the head still holds a secret")
	}
}

// A huge output of an agent without the SDK is cut too, and its fact with it.
func TestHugeForeignOutput(t *testing.T) {
	r, err := redact.New(redact.Config{MaxBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	s := openStore(t)
	output := strings.Repeat("all work and no play ", 1000)
	td := ptrace.NewTraces()
	span := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.SetName("execute_tool bash")
	span.SetTraceID(pcommon.TraceID{1})
	span.SetSpanID(pcommon.SpanID{1})
	span.SetStartTimestamp(pcommon.Timestamp(start * 1e6))
	span.SetEndTimestamp(pcommon.Timestamp((start + 1) * 1e6))
	for key, value := range map[string]string{
		"gen_ai.conversation.id": "c_1", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "bash",
		"gen_ai.tool.call.id":        "call_1",
		"gen_ai.tool.call.arguments": `{"cmd":"yes"}`, "gen_ai.tool.call.result": output,
	} {
		span.Attributes().PutStr(key, value)
	}
	report, err := ingest.New(s, ingest.Options{Redactor: r}).Traces(t.Context(), td)
	if err != nil || report.Truncated != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	transcript := storetest.Transcript(t, s, "c_1")
	for _, m := range transcript.Messages {
		for _, p := range m.Parts {
			if p.ToolCallID != nil {
				for _, want := range []string{"__TRUNCATED__[21000 bytes]", `"truncated":true`, `"output_size":21000`,
					`"output_sha256":"` + digest(output) + `"`} {
					if !strings.Contains(p.DataJSON, want) {
						t.Errorf("the part does not have %s: %s", want, p.DataJSON)
					}
				}
				return
			}
		}
	}
	t.Error("there is no tool call")
}
