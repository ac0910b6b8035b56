package modelhttp_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/internal/e2e"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/recorder"
)

// stored runs an agent with a tracer and returns the sessions that are then in the store,
// by id.
func stored(t *testing.T, agent func(tracer *agenttrace.Tracer)) []*document.Document {
	t.Helper()
	ctx := context.Background()
	rec, err := recorder.Open(ctx, filepath.Join(t.TempDir(), "sessions.db"), recorder.Options{})
	testscale.Must(t, err)
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(rec.SpanExporter(), sdktrace.WithBlocking()))
	agent(agenttrace.New(agenttrace.Options{TracerProvider: provider}))
	testscale.Must(t, errors.Join(provider.Shutdown(ctx), rec.ForceFlush(ctx)))
	defer rec.Close(ctx)
	return e2e.Read(t, rec.Reader())
}

// post sends a JSON body and returns what came back.
func post(ctx context.Context, client *http.Client, url string, body any, header http.Header) (int, []byte, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return 0, nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return resp.StatusCode, got, err
}

// converse has a client ask what the script has, step by step.
func converse(t *testing.T, client *http.Client, base string, a *e2e.API, s *e2e.Script, stream bool) {
	t.Helper()
	for turn := range s.Turns {
		for step := range s.Turns[turn].Steps {
			path, body := a.Request(s, turn, step, stream)
			status, answer, err := post(t.Context(), client, base+path, body, nil)
			if err != nil || status != http.StatusOK {
				t.Fatalf("turn %d, step %d: %d %s %v", turn, step, status, answer, err)
			}
		}
	}
}

// agent is a program without a client: it posts to a server, through a transport.
type agent struct {
	t         *testing.T
	rec       *agenttracetest.Recorder
	transport *modelhttp.Transport
	client    *http.Client
	url       string
}

func newAgent(t *testing.T, handler http.HandlerFunc, o modelhttp.Options) *agent {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	rec := agenttracetest.NewRecorder()
	if o.Agent == "" {
		o.Agent = "coder"
	}
	if o.Base == nil {
		base := &http.Transport{}
		t.Cleanup(base.CloseIdleConnections)
		o.Base = base
	}
	tr := modelhttp.New(agenttrace.New(agenttrace.Options{TracerProvider: rec}), o)
	return &agent{t, rec, tr, &http.Client{Transport: tr}, server.URL}
}

// check fails the test if a span was left open or does not hold together.
func (a *agent) check() {
	a.t.Helper()
	if err := a.rec.Err(); err != nil {
		a.t.Error(err)
	}
	if open := a.rec.Open(); len(open) > 0 {
		a.t.Errorf("spans left open: %q", open)
	}
}

// ask sends a request without having read its answer.
func (a *agent) ask(ctx context.Context, path string, body io.Reader) *http.Response {
	a.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+path, body)
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.client.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// send sends a request and returns the body of its answer.
func (a *agent) send(ctx context.Context, path string, body io.Reader) string {
	a.t.Helper()
	resp := a.ask(ctx, path, body)
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Error(err)
	}
	return string(got)
}

// question is a chat completion that asks "hi".
const question = `{"model":"gpt-x","messages":[{"role":"user","content":"hi"}]}`

type object = map[string]any

// chat sends a chat completion with the messages, written as "role: text".
func (a *agent) chat(ctx context.Context, header http.Header, more object, messages ...string) string {
	a.t.Helper()
	status, got, err := a.try(ctx, header, more, messages...)
	if err != nil || status != http.StatusOK {
		a.t.Fatalf("%d %s %v", status, got, err)
	}
	return got
}

func (a *agent) try(ctx context.Context, header http.Header, more object, messages ...string) (int, string, error) {
	list := []any{}
	for _, m := range messages {
		role, text, _ := strings.Cut(m, ": ")
		switch role {
		case "call":
			id, name, _ := strings.Cut(text, " ")
			list = append(list, object{"role": "assistant", "content": nil, "tool_calls": []any{
				object{"id": id, "type": "function", "function": object{"name": name, "arguments": "{}"}},
			}})
		case "tool":
			id, out, _ := strings.Cut(text, " ")
			list = append(list, object{"role": "tool", "tool_call_id": id, "content": out})
		default:
			list = append(list, object{"role": role, "content": text})
		}
	}
	body := object{"model": "gpt-x", "messages": list}
	for k, v := range more {
		body[k] = v
	}
	status, got, err := post(ctx, a.client, a.url+"/v1/chat/completions", body, header)
	return status, string(got), err
}

// completion answers with a text or, if it is "call: ID NAME INPUT", a tool call.
func completion(w http.ResponseWriter, text string) { completions(w, text) }

// completions answers with several tool calls.
func completions(w http.ResponseWriter, texts ...string) {
	message, finish, calls := object{"role": "assistant", "content": texts[0]}, "stop", []any{}
	for _, text := range texts {
		if rest, ok := strings.CutPrefix(text, "call: "); ok {
			id, rest, _ := strings.Cut(rest, " ")
			name, input, _ := strings.Cut(rest, " ")
			calls = append(calls, object{
				"id": id, "type": "function", "function": object{"name": name, "arguments": cmp.Or(input, "{}")},
			})
			message, finish = object{"role": "assistant", "content": nil, "tool_calls": calls}, "tool_calls"
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object{
		"id": "chatcmpl-1", "model": "gpt-x-1",
		"choices": []any{object{"index": 0, "message": message, "finish_reason": finish}},
		"usage":   object{"prompt_tokens": 10, "completion_tokens": 2},
	})
}

func bodyOf(r *http.Request) string {
	body, _ := io.ReadAll(r.Body)
	return string(body)
}

func jsonOf(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// says answers each request with the next text.
func says(texts ...string) http.HandlerFunc {
	next := make(chan string, len(texts))
	for _, text := range texts {
		next <- text
	}
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case text := <-next:
			completion(w, text)
		default:
			http.Error(w, "nothing left to say", http.StatusTeapot)
		}
	}
}

// tools is what a request has that is no side call.
var tools = object{"tools": []any{object{"type": "function", "function": object{"name": "ls"}}}}

// turns returns the texts of the users' messages by session, in the order of the sessions.
func (a *agent) turns() (all [][]string) {
	for _, id := range a.rec.Sessions() {
		var texts []string
		for _, turn := range a.rec.Session(id).Turns() {
			text := ""
			for _, p := range turn.User.Parts {
				var d struct{ Text string }
				if json.Unmarshal(p.Data, &d) == nil {
					text += d.Text
				}
			}
			texts = append(texts, text)
		}
		all = append(all, texts)
	}
	return all
}
