package agenttrace_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	. "github.com/agenttrace/agenttrace/agenttrace"
)

// A secret in an id, a name or a reason does not leave the process either, and what
// belongs together still does.
func TestSecretsInIDsAndNamesStayInTheProcess(t *testing.T) {
	id := func(what string) string { return what + " " + secret }
	model := Model{Provider: id("provider"), ID: id("model"), Variant: id("variant")}
	h := newHarness(t, Options{
		Live:          LiveOptions{MinInterval: -1},
		Rules:         []Rule{rule("*", "", allow, "")},
		LoopDetection: &LoopDetection{Repetitions: 2, Window: 4},
	}, SessionOptions{ID: id("session"), Agent: id("agent"), Title: id("title"),
		WorkspaceID: id("workspace"), WorkspaceRoot: id("/srv"), Mode: id("mode"), UserID: id("user")})
	ctx, run := h.sess.StartRun(context.Background(), RunOptions{Model: model})
	ctx, turn := run.StartTurn(ctx, UserMessage{Text: "hi"},
		TurnOptions{Model: model, Tools: []Tool{{Name: id("tool")}}})
	_, call := turn.StartModelCall(ctx, ModelCallOptions{Model: model})
	call.End(ModelResult{StopReason: id("stop"), ResponseID: id("response"), ResponseModel: id("answered by")}, nil)
	for range 4 {
		_, tool := turn.StartTool(ctx, ToolOptions{ID: id("call"), Name: id("tool"), Input: 1})
		tool.Authorize(ctx, id("subject"))
		tool.EndText("done")
	}
	turn.Data(id("kind"), id("part"), 1)
	h.sess.SetStatus(ctx, Status{State: StatusBusy, Detail: id("detail")})
	turn.End(TurnResult{StopReason: id("stop"), Metadata: map[string]any{id("key"): 1}})
	run.End(nil)
	h.run.End(nil)
	noSecrets(t, h.rec)
	all := h.rec.All()
	sessions := make(map[string]bool)
	for _, tool := range all.ToolCalls("") {
		sessions[tool.SessionID] = true
		if !strings.HasPrefix(tool.ToolID, "tool [redacted:anthropic-key]~") {
			t.Errorf("tool %q", tool.ToolID)
		}
	}
	for _, turn := range all.Turns() {
		sessions[turn.SessionID] = true
	}
	if len(sessions) != 1 {
		t.Errorf("sessions %v", sessions)
	}
}

// What a provider reports of a usage stays JSON when a secret in it is taken out: with the tag of an
// identifier behind it, the collector would drop all of it.
func TestSecretInTheProvidersUsageLeavesJSON(t *testing.T) {
	h := newHarness(t, Options{}, SessionOptions{})
	ctx, turn := h.run.StartTurn(h.ctx, UserMessage{Text: "hi"}, TurnOptions{})
	_, call := turn.StartModelCall(ctx, ModelCallOptions{})
	call.End(ModelResult{RawUsage: json.RawMessage(`{"prompt_tokens":100,"note":"` + secret + `"}`)}, nil)
	turn.End(TurnResult{})
	h.run.End(nil)
	noSecrets(t, h.rec)
	raws := []json.RawMessage{h.rec.All().ModelCalls()[0].Usage.Raw, h.rec.All().Turns()[0].Usage.Raw}
	for _, raw := range raws {
		var usage struct {
			Tokens int    `json:"prompt_tokens"`
			Note   string `json:"note"`
		}
		if err := json.Unmarshal(raw, &usage); err != nil || usage.Tokens != 100 ||
			usage.Note != "[redacted:anthropic-key]" {
			t.Errorf("usage %s: %v", raw, err)
		}
	}
}
