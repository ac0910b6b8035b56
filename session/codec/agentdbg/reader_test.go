package agentdbg_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/agentdbg"
)

// Maida sorts a run's events by time before it compares runs. Then too a run
// begins with its start, a model's call stands before the tools that it asked for,
// and what those gave before the next.
func TestEventsSortedByTimeStayInOrder(t *testing.T) {
	call, done := [2]string{"call_1", "call_2"}, session.StateOutputAvailable
	parts := []session.Part{
		{Type: "text", DataJSON: `{"type":"text","text":"a"}`, CreatedAt: 10, UpdatedAt: 10},
		{Type: "tool-slow", ToolCallID: &call[0], ToolState: &done,
			DataJSON:  `{"type":"tool-slow","toolCallId":"call_1","state":"output-available","input":{},"output":1}`,
			CreatedAt: 20, UpdatedAt: 90},
		{Type: "tool-fast", ToolCallID: &call[1], ToolState: &done,
			DataJSON:  `{"type":"tool-fast","toolCallId":"call_2","state":"output-available","input":{},"output":1}`,
			CreatedAt: 21, UpdatedAt: 30},
		// Its time is before that of what it follows, as where clocks differ.
		{Type: "text", DataJSON: `{"type":"text","text":"b"}`, CreatedAt: 22, UpdatedAt: 22},
		{Type: "data-state", DataJSON: `{"type":"data-state","data":{"state":1}}`, CreatedAt: 5, UpdatedAt: 5},
	}
	for i := range parts {
		p := &parts[i]
		p.ID, p.MessageID, p.SessionID, p.Index = fmt.Sprintf("prt_%d", i), "msg_1", "ses_1", int64(i)
	}
	s := &codec.Session{Transcript: &session.Transcript{
		// It was made, so it says, after its messages.
		Session: session.Session{ID: "ses_1", Title: "T", Agent: "a", PermissionsJSON: "[]", MetadataJSON: "{}",
			CreatedAt: 8,
			UpdatedAt: 50},
		Messages: []session.MessageAndParts{
			{Message: session.Message{ID: "msg_1", SessionID: "ses_1", Role: "assistant", MetadataJSON: "{}",
				CreatedAt: 2,
				UpdatedAt: 95}, Parts: parts},
			{Message: session.Message{ID: "msg_2", SessionID: "ses_1", Role: "user", MetadataJSON: "{}", CreatedAt: 3,
				UpdatedAt: 3}, Parts: []session.Part{
				{ID: "prt_9", MessageID: "msg_2", SessionID: "ses_1", Type: "text",
					DataJSON:  `{"type":"text","text":"q"}`,
					CreatedAt: 3, UpdatedAt: 3},
			}},
		},
	}}
	var b bytes.Buffer
	if err := agentdbg.Encode(&b, s); err != nil {
		t.Fatal(err)
	}
	type event struct {
		Type string `json:"event_type"`
		TS   string
		Name string
	}
	var run struct {
		Run struct {
			EndedAt    string `json:"ended_at"`
			DurationMS int64  `json:"duration_ms"`
		}
		Events []event
	}
	if err := json.Unmarshal(b.Bytes(), &run); err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(run.Events, func(a, b event) int { return bytes.Compare([]byte(a.TS), []byte(b.TS)) })
	var got []string
	for _, e := range run.Events {
		got = append(got, e.TS[len("1970-01-01T00:00:"):]+" "+e.Type+" "+e.Name)
	}
	want := []string{
		"00.008Z RUN_START T", "00.010Z LLM_CALL unknown", "00.030Z TOOL_CALL fast", "00.090Z TOOL_CALL slow",
		"00.090Z LLM_CALL unknown", "00.090Z STATE_UPDATE state", "00.090Z STATE_UPDATE state",
		"00.090Z ERROR Unfinished", "00.090Z RUN_END run_end",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if run.Run.EndedAt != "1970-01-01T00:00:00.090Z" || run.Run.DurationMS != 82 {
		t.Errorf("run is %+v, want its end at its last event", run.Run)
	}
}
