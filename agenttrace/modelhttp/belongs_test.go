package modelhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
)

// toolNamed is what a request has that may call one tool.
func toolNamed(name string) object {
	return object{"tools": []any{object{"type": "function", "function": object{"name": name}}}}
}

// callWith answers with a tool call that has the input.
func callWith(id, name string, input object) string {
	return fmt.Sprintf("call: %s %s %s", id, name, jsonOf(input))
}

// TestASubAgentHasItsOwnSession has a tool that runs another agent, with the context of the first one: its session is
// linked to the call, and the first agent's turn goes on afterwards.
func TestASubAgentHasItsOwnSession(t *testing.T) {
	shared, stop := context.WithCancel(t.Context())
	defer stop()
	type test struct {
		ctx    context.Context
		prompt string
		tools  object
		o      modelhttp.Options
	}
	for name, test := range map[string]test{
		"named":         {modelhttp.WithSession(t.Context(), "ses_1"), "look around", toolNamed("read"), modelhttp.Options{}},
		"same context":  {shared, "look around", toolNamed("read"), modelhttp.Options{}},
		"by its prompt": {context.Background(), "search the \"sources\"", toolNamed("read"), modelhttp.Options{}},
		"prompt, no tools": {modelhttp.WithSession(t.Context(), "ses_1"), "search the \"sources\"", nil,
			modelhttp.Options{}},
		"by SessionKey": {t.Context(), "look around", toolNamed("read"),
			modelhttp.Options{SessionKey: func(*http.Request) string { return "ses_1" }}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t, says(callWith("call_0123456789", "task", object{"prompt": "search the \"sources\""}),
				"call: call_9876543210 read", "In a.go.", "It is in a.go."), test.o)
			a.chat(test.ctx, nil, toolNamed("task"), "system: You lead.", "user: where is it?")
			a.chat(test.ctx, nil, test.tools, "system: You search.", "user: "+test.prompt)
			a.chat(test.ctx, nil, test.tools, "system: You search.", "user: "+test.prompt, "call: call_9876543210 read",
				"tool: call_9876543210 text")
			a.chat(test.ctx, nil, toolNamed("task"), "system: You lead.", "user: where is it?", "call: call_0123456789 task",
				"tool: call_0123456789 In a.go.")
			wantTurns(t, a, []string{"where is it?"}, []string{test.prompt})
			task := a.rec.All().ToolCalls("task")
			if len(task) != 1 || task[0].Output != `"In a.go."` {
				t.Fatalf("the calls of task are %+v", task)
			}
			if read := a.rec.All().ToolCalls("read"); len(read) != 1 || read[0].SessionID != task[0].ChildSessionID {
				t.Errorf("the sub-agent's calls are %+v, and its session is %q", read, task[0].ChildSessionID)
			}
			for _, run := range a.rec.Session(task[0].ChildSessionID).Runs() {
				if run.ParentID != task[0].SessionID {
					t.Errorf("the parent is %q, want %q", run.ParentID, task[0].SessionID)
				}
			}
			for _, turn := range a.rec.All().Turns() {
				if turn.EndReason != "finish" || turn.ModelCalls != 2 {
					t.Errorf("a turn ended with %q after %d calls", turn.EndReason, turn.ModelCalls)
				}
			}
		})
	}
}

// TestSubAgentsAtOnceHaveTheCallsThatBeganThem starts two from one answer, the second one first.
func TestSubAgentsAtOnceHaveTheCallsThatBeganThem(t *testing.T) {
	ctx := modelhttp.WithSession(t.Context(), "ses_1")
	a := newAgent(t, func(w http.ResponseWriter, r *http.Request) {
		switch text := bodyOf(r); {
		case strings.Contains(text, "You search"):
			completion(w, "found")
		case strings.Contains(text, "call_0123456789"):
			completion(w, "done")
		default:
			completions(w, callWith("call_0123456789", "task", object{"prompt": "search for apples"}),
				callWith("call_9876543210", "task", object{"prompt": "search for pears"}))
		}
	}, modelhttp.Options{})
	a.chat(ctx, nil, toolNamed("task"), "system: You lead.", "user: search")
	a.chat(ctx, nil, toolNamed("read"), "system: You search.", "user: search for pears")
	a.chat(ctx, nil, toolNamed("read"), "system: You search.", "user: search for apples")
	a.chat(ctx, nil, toolNamed("task"), "system: You lead.", "user: search",
		"call: call_0123456789 task", "call: call_9876543210 task",
		"tool: call_0123456789 found", "tool: call_9876543210 found")
	a.check()
	for _, c := range a.rec.All().ToolCalls("task") {
		turns := a.rec.Session(c.ChildSessionID).Turns()
		if len(turns) != 1 || !strings.Contains(c.Input, strings.Split(string(turns[0].User.Parts[0].Data), `"`)[7]) {
			t.Errorf("the call %s began %+v", c.Input, turns)
		}
	}
	wantTurns(t, a, []string{"search"}, []string{"search for apples"}, []string{"search for pears"})
}

// TestASubAgentInATurnOfTheAgent has a turn that the agent reports itself.
func TestASubAgentInATurnOfTheAgent(t *testing.T) {
	a := newAgent(t, says("call: call_0123456789 task", "In a.go.", "Done."), modelhttp.Options{})
	sess := agenttrace.New(agenttrace.Options{TracerProvider: a.rec}).NewSession(t.Context(), agenttrace.SessionOptions{Agent: "own"})
	ctx, run := sess.StartRun(t.Context(), agenttrace.RunOptions{})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "where?"}, agenttrace.TurnOptions{})
	a.chat(ctx, nil, toolNamed("task"), "system: You lead.", "user: where?")
	toolCtx, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_0123456789", Name: "task"})
	a.chat(toolCtx, nil, toolNamed("read"), "system: You search.", "user: look around")
	tool.EndText("In a.go.")
	a.chat(ctx, nil, toolNamed("task"), "system: You lead.", "user: where?", "call: call_0123456789 task",
		"tool: call_0123456789 In a.go.")
	turn.End(agenttrace.TurnResult{})
	run.End(nil)
	wantTurns(t, a, []string{"where?"}, []string{"look around"})
	for _, turn := range a.rec.Session(sess.ID()).Turns() {
		if turn.SystemPrompt != "You lead." || !strings.Contains(turn.ToolCatalog, "task") {
			t.Errorf("the turn has the prompt %q and the tools %s", turn.SystemPrompt, turn.ToolCatalog)
		}
	}
	if c := a.rec.All().ToolCalls("task"); len(c) != 1 || c[0].ChildSessionID == "" {
		t.Errorf("the calls are %+v", c)
	}
}

// dialog returns the messages of a conversation up to its n-th question.
func dialog(who string, n int) (messages []string) {
	for i := range n {
		if messages = append(messages, fmt.Sprintf("user: %s asks %d", who, i)); i < n-1 {
			messages = append(messages, fmt.Sprintf("assistant: answer %d to %s", i, who))
		}
	}
	return messages
}

// TestAConversationWithAnotherHistoryIsOneSession has clients that change what was said before.
func TestAConversationWithAnotherHistoryIsOneSession(t *testing.T) {
	system := func(i int, messages ...string) []string { return append([]string{"system: You help."}, messages...) }
	edit := func(messages []string, with func(string) string) []string {
		messages = slices.Clone(messages)
		for i, m := range messages {
			if rest, ok := strings.CutPrefix(m, "assistant: "); ok {
				messages[i] = "assistant: " + with(rest)
			}
		}
		return messages
	}
	for name, sent := range map[string]func(i int, all []string) []string{
		"cut to four": func(i int, all []string) []string { return system(i, all[max(0, len(all)-5):]...) },
		"cut to two":  func(i int, all []string) []string { return system(i, all[max(0, len(all)-3):]...) },
		"cut to one":  func(i int, all []string) []string { return system(i, all[max(0, len(all)-2):]...) },
		"the first one is kept": func(i int, all []string) []string {
			if len(all) > 5 {
				all = append([]string{all[0]}, all[len(all)-5:]...)
			}
			return system(i, all...)
		},
		"the time in the system prompt": func(i int, all []string) []string {
			return append([]string{fmt.Sprintf("system: You help. It is Monday, 2026-11-2%d 1%d:00:07 UTC.", i, i)}, all...)
		},
		"cut, and the time": func(i int, all []string) []string {
			return append([]string{fmt.Sprintf("system: It is 1%d:00 PM.", i)}, all[max(0, len(all)-5):]...)
		},
		"answers in capitals": func(i int, all []string) []string { return system(i, edit(all, strings.ToUpper)...) },
		"answers with a note": func(i int, all []string) []string {
			return system(i, edit(all, func(s string) string { return s + " (checked)" })...)
		},
		"answers cut": func(i int, all []string) []string {
			return system(i, edit(all, func(s string) string { return s[:len(s)-3] })...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 6
			a := newAgent(t, answers, modelhttp.Options{})
			for i := range n {
				for _, who := range []string{"anna", "otto"} {
					a.chat(context.Background(), nil, nil, sent(i, dialog(who, i+1))...)
				}
			}
			a.check()
			var want [2][]string
			for k, who := range []string{"anna", "otto"} {
				for i := range n {
					want[k] = append(want[k], fmt.Sprintf("%s asks %d", who, i))
				}
			}
			wantTurns(t, a, want[0], want[1])
		})
	}
}

// answers answers the last question that [dialog] asks.
func answers(w http.ResponseWriter, r *http.Request) {
	body := bodyOf(r)
	at := strings.LastIndex(body, " asks ")
	completion(w, fmt.Sprintf("answer %s to %s", body[at+6:at+7], body[strings.LastIndexByte(body[:at], '"')+1:at]))
}

// TestUsersWithTheSameSystemPromptStayApart has what one user's conversation has in common with that of another, which is
// not known.
func TestUsersWithTheSameSystemPromptStayApart(t *testing.T) {
	for name, second := range map[string][]string{
		"same question":        {"user: hi", "assistant: Good day to you.", "user: two"},
		"same answer":          {"user: good morning", "assistant: Hello!", "user: two"},
		"cut, same short tail": {"user: a", "assistant: b", "user: hi", "assistant: Hello!", "user: two"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t, says("Hello!", "Two."), modelhttp.Options{})
			a.chat(context.Background(), nil, nil, "system: You help.", "user: hi")
			a.chat(context.Background(), nil, nil, append([]string{"system: You help."}, second...)...)
			wantTurns(t, a, []string{"hi"}, []string{"two"})
		})
	}
}

// TestACutHistoryThatTwoHaveIsOfNeither has two conversations that end alike.
func TestACutHistoryThatTwoHaveIsOfNeither(t *testing.T) {
	a := newAgent(t, says("A.", "B.", "Welcome!", "Welcome!", "C."), modelhttp.Options{})
	a.chat(context.Background(), nil, nil, "user: a")
	a.chat(context.Background(), nil, nil, "user: b")
	a.chat(context.Background(), nil, nil, "user: a", "assistant: A.", "user: thanks")
	a.chat(context.Background(), nil, nil, "user: b", "assistant: B.", "user: thanks")
	a.chat(context.Background(), nil, nil, "user: thanks", "assistant: Welcome!", "user: c")
	wantTurns(t, a, []string{"a", "thanks"}, []string{"b", "thanks"}, []string{"c"})
	if m := string(a.rec.All().Turns()[4].Assistant.Metadata); !strings.Contains(m, `"ambiguous":true`) {
		t.Errorf("the turn that may be either's has the metadata %q", m)
	}
}
