package replay

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
)

// FuzzReply reads anything as the reply of each provider: nothing panics, and what
// is taken can be asked further with and stored.
func FuzzReply(f *testing.F) {
	for _, w := range wires {
		f.Add(w.reply("Hi", call{"x", `{"cmd":"ls","n":1}`}, call{"", `"ls"`}, call{"x", `null`}))
		f.Add(w.nothing)
	}
	f.Add(
		`{"choices":[{"message":{"tool_calls":[{"function":{"arguments":" \"x\""}},` +
			`{"function":{"arguments":"{"}}]}}],"usage":{"prompt_tokens":-1,"completion_tokens":9}}`)
	f.Add(
		"data: {\"type\":\"tool-output-available\",\"toolCallId\":\"x\"}\n\ndata: {\"type\":\"tool-input-start\"}\n" +
			"data: [DONE]")
	r, err := redact.New(redact.Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b := bundleOf(t, asked)
		for _, format := range Formats() {
			reply, err := format.reply([]byte(text), nil)
			if reply == nil {
				if err == nil {
					t.Fatalf("%s: neither reply nor error", format.Name)
				}
				continue
			}
			a := &Answer{Model: b.Model, Started: time.UnixMilli(epoch), Ended: time.UnixMilli(epoch),
				called: make(callIDs)}
			for call := range callsOf(b.context) {
				a.called.unique(call.id)
			}
			for _, call := range a.take(reply) {
				call.result = &result{output: json.RawMessage(`"out"`)}
			}
			since := []entry{{role: session.RoleAssistant, blocks: reply.blocks}}
			if format != aiSDK {
				checkWire(t, b, since)
			}
			if raw, err := json.Marshal(aiRequestOf(b, since)); err != nil || !json.Valid(raw) {
				t.Fatalf("%s: the next request is no JSON: %v", format.Name, err)
			}
			batch, err := a.Changes(b, &Client{Format: format, Endpoint: "http://localhost/v1", Redactor: r}, "ses_2")
			if err != nil {
				t.Fatalf("%s: %v", format.Name, err)
			}
			for _, p := range batch.Parts {
				if !json.Valid(p.Data) {
					t.Errorf("%s: part %s", format.Name, p.Data)
				}
			}
			if a.Usage != nil && (a.Usage.Input < 0 || a.Usage.Output < 0 || a.Usage.Reasoning < 0 ||
				a.Usage.CacheRead < 0 ||
				a.Usage.CacheWrite < 0) {
				t.Errorf("%s: the usage is %+v", format.Name, a.Usage)
			}
		}
	})
}
