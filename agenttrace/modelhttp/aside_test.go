package modelhttp_test

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
)

func with(objects ...object) object {
	all := object{}
	for _, o := range objects {
		maps.Copy(all, o)
	}
	return all
}

// TestACallForATitleIsNoTurn asks for one after the end of a turn, as agents do, with a smaller model: the turn's usage has
// that of the call, the session the title, and nothing else.
func TestACallForATitleIsNoTurn(t *testing.T) {
	named := modelhttp.WithSession(t.Context(), "ses_1")
	small := object{"model": "gpt-small"}
	form := object{"response_format": object{"type": "json_schema", "json_schema": object{"name": "t", "schema": object{
		"type": "object", "properties": object{"title": object{"type": "string"}}}}}}
	history := []string{"user: hello main", "assistant: Hello, what is it?"}
	for name, test := range map[string]struct {
		ctx      context.Context
		tools    object // of the conversation
		more     object // of the call
		messages []string
		answer   string
	}{
		"the user's text, named": {named, tools, small, []string{"system: You write titles.", "user: hello main"}, "Greeting"},
		"the user's text, no tools": {named, nil, small,
			[]string{"system: You write titles.", "user: hello main"}, "Greeting"},
		"the user's text, few tokens": {context.Background(), tools, with(small, object{"max_tokens": 32}),
			[]string{"system: You write titles.", "user: hello main"}, "Greeting"},
		"a transcript": {context.Background(), nil, small, []string{
			"user: Write a title for this conversation.\n\nuser: hello main\nassistant: Hello, what is it?"}, "Greeting"},
		"a transcript, named": {named, tools, small, []string{"system: Name the chat.",
			`user: [{"role":"user","content":"hello main"},{"role":"assistant","content":"Hello, what is it?"}]`}, "Greeting"},
		"the history": {context.Background(), tools, small, append([]string{"system: You help."},
			append(history, "user: Generate a short title for this conversation")...), `"Greeting"`},
		"the history, no tools": {context.Background(), nil, small, append([]string{"system: You help."},
			append(history, "user: Generate a short title for this conversation")...), "Greeting\n"},
		"a schema": {context.Background(), nil, with(small, form), append([]string{"system: You help."},
			append(history, "user: What is it about?")...), `{"title":"Greeting"}`},
		"a tool": {named, tools, with(small, toolNamed("set_title")),
			[]string{"system: You name things.", "user: hello main"}, "Greeting"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t, says("Hello, what is it?", test.answer, "Bye."), modelhttp.Options{})
			a.chat(test.ctx, nil, test.tools, "system: You help.", "user: hello main")
			a.chat(test.ctx, nil, test.more, test.messages...)
			a.chat(test.ctx, nil, test.tools, append([]string{"system: You help."}, append(history, "user: bye")...)...)
			wantTurns(t, a, []string{"hello main", "bye"})
			for _, turn := range a.rec.All().Turns() {
				if turn.Model.ModelID != "gpt-x" {
					t.Errorf("a turn has the model %q", turn.Model.ModelID)
				}
			}
			calls := a.rec.All().ModelCalls()
			if len(calls) != 3 || !calls[1].Late || calls[1].MessageID != calls[0].MessageID {
				t.Errorf("have %d calls, the second is %+v", len(calls), calls[1])
			}
			runs := a.rec.All().Runs()
			if title := runs[len(runs)-1].Title; title != "Greeting" {
				t.Errorf("the title is %q", title)
			}
		})
	}
}

// TestACallBesideTheTurnCountsInTheSession stores what a title costs, and the call.
func TestACallBesideTheTurnCountsInTheSession(t *testing.T) {
	docs := stored(t, func(tracer *agenttrace.Tracer) {
		a := newAgent(t, says("Hello!", "Greeting"), modelhttp.Options{})
		tr := modelhttp.New(tracer, modelhttp.Options{Agent: "coder"})
		a.client.Transport = tr
		ctx := modelhttp.WithSession(t.Context(), "ses_1")
		a.chat(ctx, nil, tools, "system: You help.", "user: hello main")
		a.chat(ctx, nil, object{"model": "gpt-small"}, "system: You write titles.", "user: hello main")
		_ = tr.Close()
	})
	if len(docs) != 1 || len(docs[0].Turns) != 1 {
		t.Fatalf("have %d sessions, want 1 with 1 turn", len(docs))
	}
	d := docs[0]
	if d.Session.Title != "Greeting" || d.Session.Model.ModelID != "gpt-x" {
		t.Errorf("the session is called %q and has the model %+v", d.Session.Title, d.Session.Model)
	}
	if n := d.Turns[0].ModelCalls; n != 2 || d.Totals.Usage.Input != 20 || d.Totals.Usage.Output != 4 {
		t.Errorf("%d calls count %+v", n, d.Totals.Usage)
	}
}

// TestUsersAskForTitlesAndSummaries has questions that resemble those beside a conversation, and are none.
func TestUsersAskForTitlesAndSummaries(t *testing.T) {
	history := []string{"system: You help.", "user: hello", "assistant: Hello, what is it?"}
	for name, test := range map[string]struct {
		more object
		text string
	}{
		"a title":               {tools, "a title for my book"},
		"a summary":             {tools, "Summarise the conversation"},
		"with another model":    {with(tools, object{"model": "gpt-y"}), "summarise the file a.txt"},
		"with another tool set": {toolNamed("read"), "what is the title of a.txt?"},
		"of a few words":        {with(tools, object{"max_tokens": 50}), "be brief"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t, says("Hello, what is it?", "It is."), modelhttp.Options{})
			a.chat(t.Context(), nil, tools, history[:2]...)
			a.chat(t.Context(), nil, test.more, append(history, "user: "+test.text)...)
			wantTurns(t, a, []string{"hello", test.text})
		})
	}
}

// TestASummaryThatReplacesTheHistoryIsACompaction has the model summarize the conversation, and goes on from that.
func TestASummaryThatReplacesTheHistoryIsACompaction(t *testing.T) {
	const summary = "The user greeted the assistant and asked about the weather in Rome."
	history := []string{"system: You help.", "user: hello main", "assistant: Hello, what is it?", "user: the weather?",
		"assistant: It rains."}
	for name, test := range map[string]struct {
		ctx  context.Context
		ask  []string
		more object
		next []string
	}{
		"asked with the history": {context.Background(), append(history[:5:5], "user: Summarise the conversation so far."),
			object{"model": "gpt-small"}, []string{"system: You help.", "user: Summary of earlier messages: " + summary, "user: and now?"}},
		"asked with a transcript": {context.Background(), []string{"system: You summarise conversations.",
			"user: hello main\nHello, what is it?\nthe weather?\nIt rains."}, object{"max_tokens": 200},
			[]string{"system: You help.\n\n" + summary, "user: and now?"}},
		"asked as a turn, named": {modelhttp.WithSession(t.Context(), "ses_1"),
			append(history[:5:5], "user: Your task is to write a detailed summary of our conversation."), tools,
			[]string{"system: You help.", "user: " + summary + "\n\nand now?"}},
		"and the last messages are kept": {context.Background(),
			append(history[:5:5], "user: Summarise the conversation so far."), object{"model": "gpt-small"},
			[]string{"system: You help.", "user: " + summary, "assistant: OK.", "user: the weather?",
				"assistant: It rains.", "user: and now?"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t, says("Hello, what is it?", "It rains.", summary, "Still.", "Bye."), modelhttp.Options{})
			a.chat(test.ctx, nil, tools, history[:2]...)
			a.chat(test.ctx, nil, tools, history[:4]...)
			a.chat(test.ctx, nil, test.more, test.ask...)
			a.chat(test.ctx, nil, tools, test.next...)
			a.chat(test.ctx, nil, tools, append(test.next[:len(test.next):len(test.next)], "assistant: Still.", "user: bye")...)
			a.check()
			want := []string{"hello main", "the weather?", "and now?", "bye"}
			if strings.Contains(name, "as a turn") {
				want = append(want[:2:2], "Your task is to write a detailed summary of our conversation.", "and now?", "bye")
			}
			wantTurns(t, a, want)
			if all := a.rec.All().Compactions(); len(all) != 1 || all[0].Summary != summary || all[0].SummarizedMessages == 0 {
				t.Errorf("compactions: %+v", all)
			}
		})
	}
}
