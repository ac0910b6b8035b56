package modelhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/baggage"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/spans"
)

// wantTurns checks what was recorded, and what the users asked in each session.
func wantTurns(t *testing.T, a *agent, want ...[]string) {
	t.Helper()
	a.check()
	got := a.turns()
	slices.SortFunc(got, slices.Compare)
	slices.SortFunc(want, slices.Compare)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("turns by session (-want +got):\n%s", diff)
	}
}

// TestTwoUsersWhoSayTheSameStayApart has two conversations that begin alike and get the same
// answer; then each goes on in its own way.
func TestTwoUsersWhoSayTheSameStayApart(t *testing.T) {
	a := newAgent(t, says("Hello!", "Hello!", "One.", "Two."), modelhttp.Options{})
	a.chat(t.Context(), nil, tools, "user: hi")
	a.chat(t.Context(), nil, tools, "user: hi")
	a.chat(t.Context(), nil, tools, "user: hi", "assistant: Hello!", "user: one")
	a.chat(t.Context(), nil, tools, "user: hi", "assistant: Hello!", "user: two")
	wantTurns(t, a, []string{"hi", "one"}, []string{"hi", "two"})
	if m := string(a.rec.All().Turns()[2].Assistant.Metadata); !strings.Contains(m, `"ambiguous":true`) {
		t.Errorf("the turn that may be either's has the metadata %q", m)
	}
}

// TestTenantsNeverJoin has equal conversations with different credentials: the history of
// one is not that of the other, even if it is the only one that is known.
func TestTenantsNeverJoin(t *testing.T) {
	a := newAgent(t, says("Hello!", "Sure.", "call: call_0123456789 ls", "done"), modelhttp.Options{})
	alice := http.Header{"Authorization": {"Bearer alice"}}
	bob := http.Header{"Authorization": {"Bearer bob"}}
	a.chat(t.Context(), alice, tools, "user: hi")
	a.chat(t.Context(), bob, tools, "user: hi", "assistant: Hello!", "user: more")
	a.chat(t.Context(), alice, tools, "user: list")
	a.chat(t.Context(), bob, tools, "user: list", "call: call_0123456789 ls", "tool: call_0123456789 a.go")
	_ = a.transport.Close()
	wantTurns(t, a, []string{"hi"}, []string{"more"}, []string{"list"}, []string{"list"})
}

// TestASystemPromptIsAnotherConversation continues a history under another system prompt.
func TestASystemPromptIsAnotherConversation(t *testing.T) {
	a := newAgent(t, says("Hello!", "Sure."), modelhttp.Options{})
	a.chat(t.Context(), nil, tools, "system: A", "user: hi")
	a.chat(t.Context(), nil, tools, "system: B", "user: hi", "assistant: Hello!", "user: more")
	wantTurns(t, a, []string{"hi"}, []string{"more"})
}

// TestASecondContinuationIsAFork goes on twice after one answer.
func TestASecondContinuationIsAFork(t *testing.T) {
	a := newAgent(t, says("Hello!", "A.", "B.", "C."), modelhttp.Options{})
	a.chat(t.Context(), nil, tools, "user: hi")
	a.chat(t.Context(), nil, tools, "user: hi", "assistant: Hello!", "user: a")
	a.chat(t.Context(), nil, tools, "user: hi", "assistant: Hello!", "user: b")
	a.chat(t.Context(), nil, tools, "user: hi", "assistant: Hello!", "user: b", "assistant: B.", "user: c")
	wantTurns(t, a, []string{"hi", "a"}, []string{"b", "c"})
	forks := a.rec.All().Operations("fork")
	if len(forks) != 1 {
		t.Fatalf("have %d forks, want 1", len(forks))
	}
	first := a.rec.All().Turns()[0]
	if forks[0].ParentID != first.SessionID || forks[0].TargetMessageID != first.Assistant.ID {
		t.Errorf("forked from %s at %s, want %s at %s",
			forks[0].ParentID, forks[0].TargetMessageID, first.SessionID, first.Assistant.ID)
	}
}

// TestAForkInTheMiddleOfATurnHasTheWholeTurn answers one call with two results.
func TestAForkInTheMiddleOfATurnHasTheWholeTurn(t *testing.T) {
	a := newAgent(t, says("Hello!", "call: call_0123456789 ls", "A.", "B."), modelhttp.Options{})
	history := []string{"user: hi", "assistant: Hello!", "user: list", "call: call_0123456789 ls"}
	a.chat(t.Context(), nil, tools, history[:1]...)
	a.chat(t.Context(), nil, tools, history[:3]...)
	a.chat(t.Context(), nil, tools, append(history, "tool: call_0123456789 a.go")...)
	a.chat(t.Context(), nil, tools, append(history, "tool: call_0123456789 b.go")...)
	wantTurns(t, a, []string{"hi", "list"}, []string{"list"})
	var outputs []string
	for _, c := range a.rec.All().ToolCalls("ls") {
		outputs = append(outputs, c.Output)
	}
	if diff := cmp.Diff([]string{`"a.go"`, `"b.go"`}, outputs); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
}

// failing answers with a status so many times, and then as next does.
func failing(times, status int, next http.HandlerFunc, begun ...string) http.HandlerFunc {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		times--
		fail := times >= 0
		mu.Unlock()
		if fail {
			_, _ = io.Copy(io.Discard, r.Body)
			if status == http.StatusOK { // a connection that breaks, perhaps in an answer
				for _, delta := range begun {
					w.Header().Set("Content-Type", "text/event-stream")
					fmt.Fprintf(w, `data: {"id":"chatcmpl-0","choices":[{"delta":%s}]}`+"\n\n", delta)
					_ = http.NewResponseController(w).Flush()
				}
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"error":{"type":"overloaded_error","message":"come back later"}}`)
			return
		}
		next(w, r)
	}
}

// TestAttemptsOfARequestAreOneCall repeats a request that failed, or whose answer broke off, with and without headers
// that number the attempts, in the first and in the second step of a turn. What broke off after a call of a tool is a
// call of its own, because the agent may have executed that.
func TestAttemptsOfARequestAreOneCall(t *testing.T) {
	call := `{"tool_calls":[{"index":0,"id":"call_9876543210","function":{"name":"ls","arguments":"{}"}}]},"finish_reason":"x"`
	for name, test := range map[string]struct {
		status  int
		begun   []string
		headers [3]http.Header
		calls   int
	}{
		"no header":       {status: 500, calls: 2},
		"no answer":       {status: 200, calls: 2},
		"a broken stream": {status: 200, begun: []string{`{"content":"Hel"}`}, calls: 2},
		"a broken call":   {status: 200, begun: []string{strings.TrimSuffix(call, "}")}, calls: 4},
		"a loop around Stainless": {status: 200, begun: []string{`{"role":"assistant"}`}, headers: [3]http.Header{
			{"X-Stainless-Retry-Count": {"0"}}, {"X-Stainless-Retry-Count": {"0"}}, {"X-Stainless-Retry-Count": {"0"}}}, calls: 2},
		"Stainless": {500, nil, [3]http.Header{{"X-Stainless-Retry-Count": {"0"}}, {"X-Stainless-Retry-Count": {"1"}},
			{"X-Stainless-Retry-Count": {"2"}}}, 2},
		"AWS": {500, nil, [3]http.Header{
			{"Amz-Sdk-Invocation-Id": {"i"}, "Amz-Sdk-Request": {"attempt=1; max=3"}},
			{"Amz-Sdk-Invocation-Id": {"i"}, "Amz-Sdk-Request": {"attempt=2; max=3"}},
			{"Amz-Sdk-Invocation-Id": {"i"}, "Amz-Sdk-Request": {"attempt=3; max=3"}},
		}, 2},
	} {
		for step, messages := range [][]string{{"user: hi"},
			{"user: hi", "call: call_0123456789 ls", "tool: call_0123456789 a.go"}} {
			t.Run(fmt.Sprint(name, step), func(t *testing.T) {
				next := says([]string{"call: call_0123456789 ls", "Hello!", "Yes."}[1-step:]...)
				serve := next
				a := newAgent(t, func(w http.ResponseWriter, r *http.Request) { serve(w, r) }, modelhttp.Options{})
				if step > 0 {
					a.chat(t.Context(), nil, tools, messages[0])
				}
				serve = failing(2, test.status, next, test.begun...)
				for i, h := range test.headers {
					ctx, cancel := t.Context(), func() {}
					if test.status == 500 {
						ctx, cancel = context.WithCancel(ctx) // clients, and loops around them, limit each attempt
					}
					more := object{"tools": tools["tools"], "max_tokens": 9 - i}
					if status, _, err := a.try(ctx, h, more, messages...); (err == nil && status == 200) != (i == 2) {
						t.Fatalf("attempt %d: %d %v", i, status, err)
					}
					cancel()
				}
				a.chat(t.Context(), nil, tools, append(messages, "assistant: Hello!", "user: more")...)
				wantTurns(t, a, []string{"hi", "more"})
				said := 0 // what broke off is replaced
				for _, p := range a.rec.All().Turns()[0].Assistant.Parts {
					said += strings.Count(string(p.Data), "Hel")
				}
				if calls := a.rec.All().ModelCalls(); said != 1 || len(calls) != test.calls+step || test.calls == 2 && calls[step].Error != "" {
					t.Errorf("have %d calls, want %d: %+v", len(calls), test.calls+step, calls)
				}
			})
		}
	}
}

// TestAnAnswerMadeInTheBackgroundIsThatOfItsRequest: the client asks for it until it is there, or cancels it.
func TestAnAnswerMadeInTheBackgroundIsThatOfItsRequest(t *testing.T) {
	const done = `{"id":"resp_1","status":"completed","model":"m","output":[{"type":"message","content":[{"type":` +
		`"output_text","text":"Done."}]}],"usage":{"input_tokens":4,"output_tokens":2}}`
	event := "data: {\"type\":\"response.completed\",\"response\":" + done + "}\n\n"
	canceled := `{"id":"resp_1","status":"cancelled","model":"m","output":[]}`
	for name, last := range map[string]struct{ method, path, answer, text string }{
		"a document": {http.MethodGet, "", done, "Done."}, "a stream": {http.MethodGet, "?stream=true", event, "Done."},
		"canceled": {http.MethodPost, "/cancel", canceled, ""}, "never": {},
	} {
		t.Run(name, func(t *testing.T) {
			waits := func(status string) string { return `{"id":"resp_1","status":"` + status + `","model":"m","output":[]}` }
			answers := []string{waits("queued"), waits("in_progress"), "", last.answer}
			a := newAgent(t, func(w http.ResponseWriter, r *http.Request) {
				next := answers[0]
				if answers = answers[1:]; next == "" {
					w.WriteHeader(http.StatusBadGateway)
				}
				_, _ = io.WriteString(w, next)
			}, modelhttp.Options{})
			get := func(method, path string) {
				req, err := http.NewRequestWithContext(t.Context(), method, a.url+"/v1/responses/resp_1"+path, nil)
				testscale.Must(t, err)
				resp, err := a.client.Do(req)
				testscale.Must(t, err)
				_, err = io.Copy(io.Discard, resp.Body)
				testscale.Must(t, errors.Join(err, resp.Body.Close()))
			}
			_, _, err := post(t.Context(), a.client, a.url+"/v1/responses", object{"model": "m", "input": "hi", "background": true}, nil)
			testscale.Must(t, err)
			get(http.MethodGet, "")
			get(http.MethodGet, "")
			if last.method != "" {
				get(last.method, last.path)
			}
			testscale.Must(t, a.transport.Close())
			a.check()
			wantTurns(t, a, []string{"hi"})
			text := ""
			for _, p := range a.rec.All().Turns()[0].Assistant.Parts {
				text += string(p.Data)
			}
			if calls := a.rec.All().ModelCalls(); len(calls) != 1 || calls[0].Error != "" || !strings.Contains(text, last.text) ||
				(calls[0].Usage.Tokens != nil) != (last.text != "") {
				t.Errorf("%s: %+v", text, calls)
			}
		})
	}
}

// TestAFailedTurnEndsWhenItFailed waits for another attempt that does not come. The request that then comes from
// another loop around the client goes on with the session.
func TestAFailedTurnEndsWhenItFailed(t *testing.T) {
	a := newAgent(t, failing(1, 429, says("Hello!")), modelhttp.Options{})
	start := time.Now()
	number := http.Header{"X-Stainless-Retry-Count": {"0"}}
	if _, _, err := a.try(t.Context(), number, tools, "user: hi"); err != nil {
		t.Fatal(err)
	}
	failed := time.Since(start).Milliseconds() + 1
	time.Sleep(50 * time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a.chat(ctx, number, tools, "user: hi")
	wantTurns(t, a, []string{"hi", "hi"})
	if turn := a.rec.All().Turns()[0]; *turn.DurationMS > failed || turn.ErrorType != "overloaded_error" {
		t.Errorf("the turn took %d ms and failed with %s; it failed after %d ms", *turn.DurationMS, turn.ErrorType, failed)
	}
}

// TestACallThatFailsForGoodFailsItsTurn has an error that no client tries again, and the
// last of the attempts that one makes. The conversation then goes on.
func TestACallThatFailsForGoodFailsItsTurn(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		header http.Header
	}{
		"bad request":  {400, nil},
		"last attempt": {529, http.Header{"X-Stainless-Retry-Count": {"2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			first := true
			handler := says("Hello!", "Yes.")
			failed := failing(1, test.status, handler)
			a := newAgent(t, func(w http.ResponseWriter, r *http.Request) {
				if first {
					first = false
					handler(w, r)
					return
				}
				failed(w, r)
			}, modelhttp.Options{})
			a.chat(t.Context(), nil, tools, "user: hi")
			history := []string{"user: hi", "assistant: Hello!", "user: more"}
			if _, _, err := a.try(t.Context(), test.header, tools, history...); err != nil {
				t.Fatal(err)
			}
			a.check()
			a.chat(t.Context(), nil, tools, append(history, "user: still there?")...)
			wantTurns(t, a, []string{"hi", "more", "still there?"})
			turn := a.rec.All().Turns()[1]
			if !strings.HasSuffix(turn.Error, "come back later") || turn.ErrorType != "overloaded_error" ||
				turn.EndReason != "error" {
				t.Errorf("turn ended with %s: %s, %s", turn.EndReason, turn.Error, turn.ErrorType)
			}
		})
	}
}

// TestTextBesideAResultIsSteering sends text of the user with the result of a tool.
func TestTextBesideAResultIsSteering(t *testing.T) {
	a := newAgent(t, says("call: call_0123456789 ls", "Fine."), modelhttp.Options{})
	a.chat(t.Context(), nil, tools, "user: list")
	a.chat(t.Context(), nil, tools,
		"user: list", "call: call_0123456789 ls", "tool: call_0123456789 a.go", "user: but be brief")
	wantTurns(t, a, []string{"list"})
	parts := a.rec.All().Turns()[0].Assistant.Parts
	if !slices.ContainsFunc(parts, func(p spans.Part) bool {
		return p.Type == "data-steering" && strings.Contains(string(p.Data), "but be brief")
	}) {
		t.Errorf("the text of the user is not in the turn: %+v", parts)
	}
}

// TestAForcedToolHasNoResult asks for structured output: the next text of the user ends the
// turn.
func TestAForcedToolHasNoResult(t *testing.T) {
	a := newAgent(t, says("call: call_0123456789 answer", "Fine."), modelhttp.Options{})
	a.chat(t.Context(), nil, tools, "user: extract")
	a.chat(t.Context(), nil, tools, "user: extract", "call: call_0123456789 answer", "user: thanks")
	wantTurns(t, a, []string{"extract", "thanks"})
	if c := a.rec.All().ToolCalls()[0]; c.State != "input-available" || !c.Inferred {
		t.Errorf("the call is %+v", c)
	}
}

// TestASideCallIsASpanOnly asks for a title while a turn is open.
func TestASideCallIsASpanOnly(t *testing.T) {
	for name, options := range map[string]modelhttp.Options{
		"same context": {},
		"declared":     {SessionKey: func(*http.Request) string { return "ses_1" }},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t, says("call: call_0123456789 ls", "A title", "Fine."), options)
			a.chat(t.Context(), nil, tools, "system: You list.", "user: list")
			a.chat(t.Context(), nil, nil, "system: You name conversations.", "user: list")
			a.chat(t.Context(), nil, tools,
				"system: You list.", "user: list", "call: call_0123456789 ls", "tool: call_0123456789 a.go")
			wantTurns(t, a, []string{"list"})
			turn := a.rec.All().Turns()[0]
			for _, p := range turn.Assistant.Parts {
				if strings.Contains(string(p.Data), "A title") {
					t.Errorf("the answer has the title: %s", p.Data)
				}
			}
			if n := len(a.rec.All().ModelCalls()); n != 3 || turn.Usage.Tokens.Total() != 36 {
				t.Errorf("have %d calls, %+v, want 3 that count 36", n, *turn.Usage.Tokens)
			}
		})
	}
}

// TestASessionThatIsNamedIsOne names it in each way.
func TestASessionThatIsNamedIsOne(t *testing.T) {
	member, err := baggage.NewMember("session.id", "ses_mine")
	testscale.Must(t, err)
	bag, err := baggage.New(member)
	testscale.Must(t, err)
	key := func(r *http.Request) string { return r.Header.Get("X-Session") }
	for name, test := range map[string]struct {
		ctx    context.Context
		header http.Header
	}{
		"WithSession": {modelhttp.WithSession(t.Context(), "ses_mine"), nil},
		"baggage":     {baggage.ContextWithBaggage(t.Context(), bag), nil},
		"SessionKey":  {t.Context(), http.Header{"X-Session": {"ses_mine"}}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t, says("A.", "B."), modelhttp.Options{SessionKey: key})
			a.chat(test.ctx, test.header, tools, "user: a")
			a.chat(test.ctx, test.header, tools, "user: b") // without the history
			wantTurns(t, a, []string{"a", "b"})
			if got := a.rec.Sessions(); len(got) != 1 || got[0] != "ses_mine" {
				t.Errorf("sessions %q", got)
			}
		})
	}
}

// TestATurnOfTheAgentHasTheCallsAndTools has an agent with a turn of its own, which reports
// one of its tools itself.
func TestATurnOfTheAgentHasTheCallsAndTools(t *testing.T) {
	a := newAgent(t, says("call: call_0123456789 ls", "Fine.", "manual"), modelhttp.Options{})
	tracer := agenttrace.New(agenttrace.Options{TracerProvider: a.rec})
	sess := tracer.NewSession(t.Context(), agenttrace.SessionOptions{Agent: "own"})
	ctx, run := sess.StartRun(t.Context(), agenttrace.RunOptions{})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "list them"}, agenttrace.TurnOptions{})
	a.chat(ctx, nil, tools, "user: list")
	_, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_0123456789", Name: "ls"})
	tool.EndText("a.go")
	a.chat(ctx, nil, tools, "user: list", "call: call_0123456789 ls", "tool: call_0123456789 a.go")
	callCtx, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
	a.chat(callCtx, nil, tools, "user: by hand")
	call.End(agenttrace.ModelResult{StopReason: "stop"}, nil)
	turn.End(agenttrace.TurnResult{})
	run.End(nil)
	wantTurns(t, a, []string{"list them"})
	if n := len(a.rec.All().ModelCalls()); n != 3 {
		t.Errorf("have %d calls, want 3: what the agent reports itself is not reported again", n)
	}
	if c := a.rec.All().ToolCalls(); len(c) != 1 || c[0].Inferred || c[0].Output != `"a.go"` {
		t.Errorf("calls: %+v", c)
	}
}

// TestMiddlewareAndTransportCountOnce has both.
func TestMiddlewareAndTransportCountOnce(t *testing.T) {
	a := newAgent(t, says("A."), modelhttp.Options{})
	send := a.client.Transport.RoundTrip
	a.client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		return a.transport.Middleware()(r, send)
	})
	a.chat(t.Context(), nil, tools, "user: a")
	a.check()
	if n := len(a.rec.All().ModelCalls()); n != 1 {
		t.Errorf("have %d calls, want 1", n)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestWhatIsRememberedIsBounded has more conversations than are remembered: their turns end.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	answers := make([]string, 40)
	for i := range answers {
		answers[i] = "call: call_0123456789 ls"
	}
	for name, o := range map[string]modelhttp.Options{
		"by count": {MaxConversations: 3}, "by bytes": {MaxBytes: 10_000}, "by age": {IdleTimeout: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t, says(answers...), o)
			for i := range answers {
				a.chat(t.Context(), nil, tools, "user: "+strings.Repeat("x", i))
			}
			for deadline := time.Now().Add(10 * time.Second); name == "by age" && len(a.rec.Open()) > 0 &&
				time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			if name != "by age" && len(a.rec.Open()) > 60 {
				t.Errorf("%d spans are open", len(a.rec.Open()))
			}
			_ = a.transport.Close()
			a.check()
			turns := a.rec.All().Turns()
			if len(turns) != len(answers) || !strings.Contains(string(turns[0].Assistant.Metadata), `"unfinished":true`) {
				t.Errorf("have %d turns; the first has the metadata %s", len(turns), turns[0].Assistant.Metadata)
			}
		})
	}
}

// TestManyConversationsAtOnce runs conversations at the same time: the race detector and
// the sessions see whether one gets into another.
func TestManyConversationsAtOnce(t *testing.T) {
	a := newAgent(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, name, _ := strings.Cut(string(body), "I am ")
		name = name[:6]
		switch strings.Count(string(body), `"role"`) {
		case 1:
			completion(w, "call: call_of_"+name+"_0 ls")
		default:
			completion(w, "Hello "+name)
		}
	}, modelhttp.Options{})
	var wg sync.WaitGroup
	const users = 16
	for i := range users {
		wg.Go(func() {
			name := "user" + string(rune('a'+i/4)) + string(rune('a'+i%4))
			id := "call_of_" + name + "_0"
			history := []string{
				"user: I am " + name, "call: " + id + " ls", "tool: " + id + " a.go", "assistant: Hello " + name,
				"user: bye " + name,
			}
			for _, n := range []int{1, 3, 5} {
				a.chat(t.Context(), nil, tools, history[:n]...)
			}
		})
	}
	wg.Wait()
	a.check()
	got := a.turns()
	if len(got) != users {
		t.Errorf("have %d sessions, want %d", len(got), users)
	}
	for _, texts := range got {
		if len(texts) != 2 || "bye "+strings.TrimPrefix(texts[0], "I am ") != texts[1] {
			t.Errorf("a session has the turns %q", texts)
		}
	}
}

// TestAProgramWithoutAProviderIsToldOnceThatNothingIsStored uses the transport as a program that calls nothing else.
func TestAProgramWithoutAProviderIsToldOnceThatNothingIsStored(t *testing.T) {
	var handled []string
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { handled = append(handled, err.Error()) }))
	defer otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	server := httptest.NewServer(says("One.", "Two.", "Three.", "Four."))
	defer server.Close()
	ask := func(o agenttrace.Options) {
		base := &http.Transport{}
		defer base.CloseIdleConnections()
		client := &http.Client{Transport: modelhttp.New(agenttrace.New(o), modelhttp.Options{Base: base})}
		for range 2 {
			if status, _, err := post(t.Context(), client, server.URL+"/v1/chat/completions", object{
				"model": "gpt-x", "messages": []any{object{"role": "user", "content": "hi"}},
			}, nil); err != nil || status != http.StatusOK {
				t.Fatal(status, err)
			}
		}
	}
	ask(agenttrace.Options{})
	if len(handled) != 1 || !strings.Contains(handled[0], "setup.Init") {
		t.Errorf("reported: %q", handled)
	}
	handled = nil
	t.Setenv("OTEL_SDK_DISABLED", "true")
	ask(agenttrace.Options{})
	if len(handled) > 0 {
		t.Errorf("nothing is to be stored, and reported: %q", handled)
	}
}

func TestZeroTransportSends(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	client := http.Client{Transport: new(modelhttp.Transport)}
	resp, err := client.Post(server.URL+"/v1/messages", "application/json", strings.NewReader("{}"))
	if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusNotFound {
		t.Error(resp, err)
	}
}
