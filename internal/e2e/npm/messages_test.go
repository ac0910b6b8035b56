//go:build e2e

package npm_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/ingest"
	sqlitestore "github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// transcripts stores the scenario and reads it back.
func transcripts(t *testing.T) []*session.Transcript {
	t.Helper()
	ctx := t.Context()
	s, err := sqlitestore.Open(ctx, filepath.Join(t.TempDir(), "sessions.db"), sqlitestore.Options{})
	testscale.Must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	traces := everyKind()
	report, err := ingest.New(s, ingest.Options{}).Traces(ctx, traces)
	testscale.Must(t, err)
	if report.Accepted != traces.SpanCount() || report.Refused != 0 {
		t.Fatalf("the scenario itself has a problem: %+v", report)
	}
	var all []*session.Transcript
	for _, row := range storetest.Sessions(t, s) {
		all = append(all, storetest.Transcript(t, s, row.ID))
	}
	return all
}

// TestStoredMessages checks that the AI SDK accepts every message in the store, for all
// kinds of parts and for incomplete telemetry.
func TestStoredMessages(t *testing.T) {
	var lines bytes.Buffer
	messages := 0
	kinds := make(map[string]bool)
	for _, transcript := range transcripts(t) {
		for _, v := range session.Check(transcript) {
			t.Errorf("session.Check: %s", v)
		}
		messages += len(transcript.Messages)
		for _, m := range transcript.Messages {
			for _, p := range m.Parts {
				kind := p.Type
				if p.ToolState != nil {
					kind += " " + *p.ToolState
				}
				kinds[kind] = true
			}
		}
		testscale.Must(t, jsonl.Encode(&lines, transcript))
	}
	want := []string{"data-compaction", "data-damaged", "data-error", "data-plan", "data-withheld", "file", "reasoning",
		"source-document", "source-url", "step-start", "text"}
	for _, state := range states[1:] {
		want = append(want, "dynamic-tool "+state, "tool-bash "+state)
	}
	want = append(want, "tool-read output-available")
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(kinds))); diff != "" {
		t.Errorf("kinds of parts (-want +got):\n%s", diff)
	}
	got, err := project(t, "aisdk").Check(t.Context(), "check.mjs", &lines)
	testscale.Must(t, err)
	if diff := cmp.Diff(&report{Passed: messages, Failures: []string{}}, got); diff != "" {
		t.Errorf("report of the AI SDK (-want +got):\n%s", diff)
	}
}

// TestReferenceMessages does so for a session that the guide's reference implementation wrote.
func TestReferenceMessages(t *testing.T) {
	f, err := os.Open(filepath.FromSlash("../../../session/testdata/reference.jsonl"))
	testscale.Must(t, err)
	defer f.Close()
	got, err := project(t, "aisdk").Check(t.Context(), "check.mjs", f)
	testscale.Must(t, err)
	if got.Passed == 0 || got.Failed != 0 {
		t.Errorf("report is %+v, want only passes", got)
	}
}

// TestFlawedMessages checks that a problem is found and reported with its message and
// part, and that session.Check reports what the SDK rejects.
func TestFlawedMessages(t *testing.T) {
	ptr := func(s string) *string { return &s }
	tests := []struct {
		name, role, partType, data string
		state                      *string
		want                       string
		sdkOnly                    bool // session.Check accepts it
	}{
		{name: "type", role: "assistant", partType: "picture", data: `{"type":"picture"}`,
			want: "part prt_1 (picture): "},
		{name: "text", role: "user", partType: "text", data: `{"type":"text"}`, want: "part prt_1 (text): text: "},
		{name: "unknown key", role: "user", partType: "text", data: `{"type":"text","text":"hi","color":"red"}`,
			want: "part prt_1 (text): the AI SDK drops color", sdkOnly: true},
		{name: "output too soon", role: "assistant", partType: "tool-bash",
			data:  `{"type":"tool-bash","toolCallId":"c","state":"input-available","input":{},"output":1}`,
			state: ptr("input-available"), want: "part prt_1 (tool-bash, input-available): output: "},
		{name: "no error text", role: "assistant", partType: "dynamic-tool",
			data:  `{"type":"dynamic-tool","toolName":"x","toolCallId":"c","state":"output-error","input":{}}`,
			state: ptr("output-error"), want: "part prt_1 (dynamic-tool, output-error): errorText: "},
		{name: "denied yet failed", role: "assistant", partType: "tool-bash",
			data: `{"type":"tool-bash","toolCallId":"c","state":"output-error","input":{},"errorText":"e",` +
				`"approval":{"id":"a","approved":false}}`,
			state: ptr("output-error"), want: "part prt_1 (tool-bash, output-error): approval.approved: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			part := session.Part{ID: "prt_1", MessageID: "msg_1", SessionID: "ses_1", Type: tt.partType,
				DataJSON:  tt.data,
				ToolState: tt.state, CreatedAt: start, UpdatedAt: start}
			if tt.state != nil {
				part.ToolCallID = ptr("c")
			}
			transcript := &session.Transcript{
				Session: session.Session{ID: "ses_1", Title: "t", Agent: "a", PermissionsJSON: "[]", MetadataJSON: "{}",
					CreatedAt: start, UpdatedAt: start},
				Messages: []session.MessageAndParts{{
					Message: session.Message{ID: "msg_1", SessionID: "ses_1", Role: tt.role, MetadataJSON: "{}",
						CreatedAt: start,
						UpdatedAt: start},
					Parts: []session.Part{part},
				}},
			}
			if violations := session.Check(transcript); (len(violations) == 0) != tt.sdkOnly {
				t.Errorf("session.Check reports %v", violations)
			}
			var lines bytes.Buffer
			testscale.Must(t, jsonl.Encode(&lines, transcript))
			got, err := project(t, "aisdk").Check(t.Context(), "check.mjs", &lines)
			testscale.Must(t, err)
			if got.Failed != 1 || !strings.HasPrefix(got.Failures[0], "ses_1 msg_1 ("+tt.role+"): "+tt.want) {
				t.Errorf("report is %+v, want one failure with %q", got, tt.want)
			}
		})
	}
}

// TestNotJSONL checks that input that is not canonical JSONL is an error.
func TestNotJSONL(t *testing.T) {
	for _, input := range []string{`{"type":"session"`, `{"type":"line","data":{}}`,
		`{"type":"part","data":{"message_id":"msg_1"}}`} {
		if got, err := project(t, "aisdk").Check(t.Context(), "check.mjs", strings.NewReader(input)); err == nil ||
			!strings.Contains(err.Error(),
				"line 1") {
			t.Errorf("Check(%s) = %+v, %v, want an error with the line", input, got, err)
		}
	}
	got, err := project(t, "aisdk").Check(t.Context(), "check.mjs", strings.NewReader(""))
	if err != nil || got.Passed+got.Failed != 0 {
		t.Errorf("Check of nothing = %+v, %v, want no messages", got, err)
	}
}
