package agenttrace_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// toolData is what a part and a span both report of a tool call.
type toolData struct {
	State            string
	Input, Output    any
	ErrorText        string
	ProviderExecuted bool
}

// agree fails the test where the last events about something do not report what
// its span reports. It is for recordings in which every part is reported.
func agree(t *testing.T, rec *agenttracetest.Recorder) {
	t.Helper()
	messages := map[string]agenttracetest.Message{}
	for _, m := range rec.Events().Messages() {
		messages[m.ID] = m
	}
	listed := map[string]spans.Part{}
	calls := map[string]*spans.ToolCall{}
	for _, c := range rec.All().ToolCalls() {
		calls[c.PartID] = c
	}
	for _, turn := range rec.All().Turns() {
		if u := turn.User; u.ID != "" {
			want := agenttracetest.Message{ID: u.ID, Role: "user", CreatedAt: u.CreatedAt, Metadata: string(u.Metadata),
				Parts: u.Parts}
			if diff := cmp.Diff(want, messages[u.ID], cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the user's message (-span +events):\n%s", diff)
			}
		}
		if m := messages[turn.Assistant.ID]; m.Role != "assistant" || m.CreatedAt != turn.Assistant.CreatedAt {
			t.Errorf("the answer %s at %d is %+v in events", turn.Assistant.ID, turn.Assistant.CreatedAt, m)
		}
		for _, p := range turn.Assistant.Parts {
			listed[p.ID] = p
		}
	}
	for _, m := range messages {
		if m.Role != "assistant" {
			continue
		}
		for _, got := range m.Parts {
			want, ok := listed[got.ID]
			if !ok {
				t.Errorf("an event reports part %s, which no turn lists: %s", got.ID, got.Data)
				continue
			}
			delete(listed, got.ID)
			if got.UpdatedAt > want.UpdatedAt {
				t.Errorf("part %s was last changed at %d, an event has %d", got.ID, want.UpdatedAt, got.UpdatedAt)
			}
			got.UpdatedAt, want.UpdatedAt, want.ToolName = 0, 0, ""
			if call := calls[got.ID]; want.Data == nil && call != nil {
				compareCall(t, got, call)
				want.Data = got.Data
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("part (-span +event):\n%s\nspan  %s\nevent %s", diff, want.Data, got.Data)
			}
		}
	}
	for id, p := range listed {
		t.Errorf("no event reports part %s: %+v", id, p)
	}

	for _, s := range rec.All().Named(semconv.SpanSessionRun) {
		run := *s.Record.(*spans.Run)
		if run.Operation != "" {
			continue
		}
		var last *spans.Run
		for _, e := range rec.Events().Named(semconv.EventSession) {
			if e.SpanContext.SpanID() == s.SpanContext.SpanID() {
				last = e.Record.Session
			}
		}
		if last == nil {
			t.Errorf("no event reports run %+v", run)
			continue
		}
		run.Operation, run.Outcome, run.Error, run.ErrorType = "update", "", "", ""
		if diff := cmp.Diff(&run, last); diff != "" {
			t.Errorf("session (-span +event):\n%s", diff)
		}
	}
}

// compareCall fails the test where a tool call's part is not what its span reports.
func compareCall(t *testing.T, p spans.Part, call *spans.ToolCall) {
	t.Helper()
	decode := func(s string) any {
		if s == "" {
			return nil
		}
		var v any
		if err := json.Unmarshal([]byte(s), &v); err != nil {
			return s // what was taken on trust: the part has it as text
		}
		return v
	}
	var got toolData
	if err := json.Unmarshal(p.Data, &got); err != nil {
		t.Errorf("part %s: %v", p.ID, err)
		return
	}
	want := toolData{call.State, decode(call.Input), decode(call.Output), call.Error, call.ProviderExecuted}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tool call %s (-span +event):\n%s", call.CallID, diff)
	}
	if p.ToolCallID != call.CallID || p.ToolState != call.State || p.Index != *call.PartIndex {
		t.Errorf("tool call %s: span %+v, event %+v", call.CallID, call, p)
	}
}
