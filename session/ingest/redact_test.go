package ingest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
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
	testscale.Must(t, err)
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

// applied is a writer that keeps what it is given.
type applied struct {
	store.Writer
	batches []*store.Batch
}

func (a *applied) Apply(_ context.Context, b *store.Batch) (store.Result, error) {
	for i := range b.Observations {
		b.Observations[i].Received = 0
	}
	a.batches = append(a.batches, b)
	return store.Result{}, nil
}

// TestNoChecksumConfirmsWhatIsOmitted: of what the configuration omits, no digest is stored either, be it one that the
// source sends, the id of a record, or the stamp of a title; nor the conversation that a program repeats in metadata.
func TestNoChecksumConfirmsWhatIsOmitted(t *testing.T) {
	r, err := redact.New(redact.Config{Omit: redact.Omit{Prompts: true, ToolOutputs: true}})
	testscale.Must(t, err)
	stored := func(prompt string) string {
		w := new(applied)
		in := ingest.New(w, ingest.Options{Redactor: r})
		of := newScenario()
		of.add(&spans.Turn{SessionID: "ses_1", SystemPrompt: prompt, SystemPromptDigest: digest(prompt)}, 1, 2)
		of.add(&spans.ToolCall{SessionID: "ses_1", ToolID: "bash", CallID: "call_1", State: session.StateOutputAvailable,
			Output: `"` + prompt + `"`, OutputSHA256: digest(prompt), OutputSize: 9}, 1, 2)
		_, err := in.Traces(t.Context(), traces(of.spans...))
		testscale.Must(t, err)
		td := ptrace.NewTraces()
		span := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		span.SetTraceID(pcommon.TraceID{1})
		span.SetSpanID(pcommon.SpanID{1})
		span.Attributes().PutStr("openinference.span.kind", "AGENT")
		span.Attributes().PutStr("session.id", "s")
		span.Attributes().PutStr("metadata", `{"memory":[{"role":"user","content":[{"text":"`+prompt+`"}]}]}`)
		_, err = in.Traces(t.Context(), td)
		testscale.Must(t, err)
		ld := plog.NewLogs()
		scope := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty()
		scope.Scope().SetName("com.anthropic.claude_code.events")
		record := scope.LogRecords().AppendEmpty()
		record.SetTimestamp(pcommon.Timestamp(start * 1e6))
		record.Attributes().PutStr("event.name", "user_prompt")
		record.Attributes().PutStr("session.id", "s")
		record.Attributes().PutStr("prompt", prompt)
		report, err := in.Logs(t.Context(), ld)
		if err != nil || report.Omitted == 0 {
			t.Fatalf("%+v, %v", report, err)
		}
		var s session.Session
		s.ID, s.Title = "ses_2", prompt
		imported := &store.Imported{Transcript: &session.Transcript{Session: s}, State: &store.State{
			Stamps: map[string]store.Stamp{"title": {At: 1, Sum: crc32.ChecksumIEEE([]byte(prompt))}}}}
		ingest.RedactRows(r, imported)
		b, err := json.Marshal([]any{w.batches, imported})
		testscale.Must(t, err)
		return string(b)
	}
	if diff := cmp.Diff(stored("rosebud 1"), stored("rosebud 2")); diff != "" {
		t.Errorf("what is stored differs between two prompts:\n%s", diff)
	}
}

// An output of 20 MB is one part that was cut, not a request that is lost.
func TestHugeOutput(t *testing.T) {
	const limit = 1 << 20
	r, err := redact.New(redact.Config{MaxBytes: limit})
	testscale.Must(t, err)
	s := openStore(t)
	scenario := newScenario()
	head := "password=hunter2swordfish "
	output := head + strings.Repeat("all work and no play ", 1_000_000)
	quoted, err := json.Marshal(output)
	testscale.Must(t, err)
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
	testscale.Must(t, json.Unmarshal(data, &part))
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
	testscale.Must(t, err)
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
