package modelhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
)

// TestASessionIsCalledByItsFirstText stores what its user asked first, without what a client puts before it, and without
// what a request repeats of a conversation that began elsewhere: of that, it has how much it is.
func TestASessionIsCalledByItsFirstText(t *testing.T) {
	docs := stored(t, func(tracer *agenttrace.Tracer) {
		a := newAgent(t, says("A.", "B.", "C.", "D.", "E."), modelhttp.Options{})
		tr := modelhttp.New(tracer, modelhttp.Options{Agent: "coder"})
		a.client.Transport = tr
		a.chat(t.Context(), nil, tools, "system: Help.", "user: <now zone=\"UTC\">Monday</now>\n\n fix the test \nplease")
		a.chat(t.Context(), nil, tools, "user: <question>"+strings.Repeat("long ", 20)+"</question>")
		named := modelhttp.WithSession(t.Context(), "ses_1")
		a.chat(named, nil, tools, "user: first")
		a.chat(named, nil, tools, "user: first", "assistant: C.", "system: Be quick.", "user: second")
		a.chat(t.Context(), nil, tools, "system: Help.", "user: old", "call: call_0123456789 ls",
			"tool: call_0123456789 a.go", "assistant: Old.", "user: new")
		_ = tr.Close()
	})
	var titles []string
	for _, d := range docs {
		titles = append(titles, d.Session.Title)
		if p := d.SystemPrompts; d.Session.Title == "first" && (len(p) != 1 || p[0].Body != "Be quick.") {
			t.Errorf("the system said %+v, want Be quick.", p)
		}
		if diff := cmp.Diff(map[string]*document.Unrecorded{"new": {Messages: 4, Turns: 1}}[d.Session.Title],
			d.Turns[0].Unrecorded); diff != "" {
			t.Errorf("of %s is not recorded (-want +got):\n%s", d.Session.Title, diff)
		}
	}
	slices.Sort(titles)
	if want := []string{"first", "fix the test", strings.Repeat("long ", 15) + "long…", "new"}; !slices.Equal(titles, want) {
		t.Errorf("the sessions are called %q, want %q", titles, want)
	}
}

// TestASessionIsNotCalledByATextThatIsOmitted omits prompts.
func TestASessionIsNotCalledByATextThatIsOmitted(t *testing.T) {
	r, err := redact.New(redact.Config{Omit: redact.Omit{Prompts: true}})
	testscale.Must(t, err)
	a := newAgent(t, says("A."), modelhttp.Options{})
	tr := modelhttp.New(agenttrace.New(agenttrace.Options{TracerProvider: a.rec, Redact: r}), modelhttp.Options{Agent: "coder"})
	a.client.Transport = tr
	a.chat(t.Context(), nil, tools, "user: my secret plan")
	for _, run := range a.rec.All().Runs() {
		if run.Title+run.FirstPrompt != "" {
			t.Errorf("the run has %q and %q", run.Title, run.FirstPrompt)
		}
	}
}

// TestTheInstructionsOfAChainAreThoseOfItsTurn sends them with the first of two requests only.
func TestTheInstructionsOfAChainAreThoseOfItsTurn(t *testing.T) {
	n := 0
	a := newAgent(t, func(w http.ResponseWriter, r *http.Request) {
		n++
		output := object{"type": "message", "role": "assistant", "content": []any{object{"type": "output_text", "text": "Done."}}}
		if n == 1 {
			output = object{"type": "function_call", "call_id": "call_0123456789", "name": "ls", "arguments": "{}"}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(jsonOf(object{"id": fmt.Sprintf("resp_%d", n), "status": "completed", "output": []any{output}})))
	}, modelhttp.Options{})
	tool := []any{object{"type": "function", "name": "ls"}}
	for _, body := range []object{
		{"input": "list", "instructions": "You list.", "tools": tool},
		{"input": []any{object{"type": "function_call_output", "call_id": "call_0123456789", "output": "a"}},
			"previous_response_id": "resp_1"},
		{"input": "more", "previous_response_id": "resp_2"},
	} {
		body["model"] = "gpt-x"
		if status, got, err := post(t.Context(), a.client, a.url+"/v1/responses", body, nil); status != http.StatusOK {
			t.Fatalf("%d %s %v", status, got, err)
		}
	}
	wantTurns(t, a, []string{"list", "more"})
	turns := a.rec.All().Turns()
	if turns[0].SystemPrompt != "You list." || len(turns[0].ToolCatalog) == 0 {
		t.Errorf("the turn has the prompt %q and the tools %s", turns[0].SystemPrompt, turns[0].ToolCatalog)
	}
	if turns[1].SystemPromptDigest != "" {
		t.Error("a request without instructions has some: the provider does not keep them")
	}
}

// TestAttemptsThatFailedAreInTheSession has two, as clients make them, before the one that succeeds.
func TestAttemptsThatFailedAreInTheSession(t *testing.T) {
	docs := stored(t, func(tracer *agenttrace.Tracer) {
		a := newAgent(t, failing(2, http.StatusTooManyRequests, says("Hello!")), modelhttp.Options{})
		tr := modelhttp.New(tracer, modelhttp.Options{Agent: "coder"})
		a.client.Transport = tr
		for range 3 {
			if _, _, err := a.try(t.Context(), nil, tools, "user: hi"); err != nil {
				t.Fatal(err)
			}
		}
		_ = tr.Close()
	})
	if len(docs) != 1 || len(docs[0].Turns) != 1 {
		t.Fatalf("have %d sessions, want 1 with 1 turn", len(docs))
	}
	turn := docs[0].Turns[0]
	failed := turn.Messages[len(turn.Messages)-1].ModelErrors
	if turn.ModelCalls != 1 || len(failed) != 2 {
		t.Fatalf("%d calls have the errors %q", turn.ModelCalls, failed)
	}
	var shown strings.Builder
	testscale.Must(t, render.Document(&shown, docs[0], render.Options{Width: 200}))
	for _, text := range failed {
		if !strings.Contains(shown.String(), text) {
			t.Errorf("show prints\n%s", &shown)
		}
		if !strings.HasPrefix(text, "429 Too Many Requests: come back later, tried again after ") {
			t.Errorf("an attempt has the error %q", text)
		}
	}
}

// TestAPathThatNobodyKnowsIsReportedOnce sends documents to it.
func TestAPathThatNobodyKnowsIsReportedOnce(t *testing.T) {
	var mu sync.Mutex
	var reported []string
	before := otel.GetErrorHandler()
	defer otel.SetErrorHandler(before)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, err.Error())
	}))
	a := newAgent(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, modelhttp.Options{})
	for _, path := range []string{"/v2/chat?key=secret", "/v2/chat?key=other", "/v1/embeddings", "/v2/generate"} {
		header := http.Header{"Content-Type": {"application/json"}}
		if _, _, err := post(context.Background(), a.client, a.url+path, object{"a": 1}, header); err != nil {
			t.Fatal(err)
		}
	}
	if n := a.transport.Unrecognized(); n != 3 {
		t.Errorf("counted %d requests, want 3", n)
	}
	host := strings.TrimPrefix(a.url, "http://")
	if len(reported) != 2 || !strings.Contains(reported[0], host+"/v2/chat:") || strings.Contains(reported[0], "secret") {
		t.Errorf("reported %q", reported)
	}
}
