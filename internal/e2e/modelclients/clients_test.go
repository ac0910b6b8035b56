// Package modelclients has programs on the providers' own Go clients, unmodified but for the
// HTTP client that they are given.
package modelclients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/internal/e2e/modelserver"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/recorder"
	"github.com/agenttrace/agenttrace/session/store"
)

// program is an agent on a client.
type program struct {
	name, api string
	// attempts is how often the client tries a request that gets a 500.
	attempts int
	run      func(c *console)
}

var programs = []program{
	{"anthropic-sdk-go", "anthropic", 3, runAnthropic},
	{"anthropic-sdk-go on Bedrock", "bedrock invoke", 3, runAnthropicBedrock},
	{"openai-go, chat", "chat", 3, runChat},
	{"openai-go, Responses", "responses by previous_response_id", 3, runResponses},
	{"genai", "gemini", 1, runGenai},
	{"bedrockruntime", "bedrock converse", 3, runBedrock},
}

// console is what a program is run with, and what it prints.
type console struct {
	t      *testing.T
	script *modelserver.Script
	url    string
	http   *http.Client
	// middleware is used instead of the HTTP client's transport, if it is set.
	middleware func(*http.Request, func(*http.Request) (*http.Response, error)) (*http.Response, error)
	stream     bool
	lines      []string
	err        error
}

func (c *console) ctx() context.Context { return c.t.Context() }

// text prints a text of the model.
func (c *console) text(text string) {
	if text != "" {
		c.lines = append(c.lines, "assistant text "+text)
	}
}

// call executes a tool and prints that.
func (c *console) call(name string, input []byte) (output string, failed bool) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, input); err != nil {
		c.t.Errorf("input %q: %v", input, err)
	}
	output, failed = c.script.Call(name, compact.String())
	c.lines = append(c.lines, fmt.Sprintf("assistant call %s %s → %s", name, compact.String(), output))
	return output, failed
}

// turns prints the questions of the script and has ask answer them.
func (c *console) turns(ask func(question string) error) {
	for _, turn := range c.script.Turns {
		c.lines = append(c.lines, "user text "+turn.User)
		if c.err = ask(turn.User); c.err != nil {
			return
		}
	}
}

// printed returns what is in a session in the words of a console.
func printed(d *document.Document) (lines []string) {
	for i := range d.Turns {
		for k := range d.Turns[i].Messages {
			m := d.Turns[i].Messages[k]
			for _, p := range m.Parts {
				switch {
				case p.Tool != nil:
					output := p.Tool.Error
					if output == "" && json.Unmarshal(p.Tool.Output, &output) != nil {
						output = string(p.Tool.Output)
					}
					lines = append(lines, fmt.Sprintf("assistant call %s %s → %s", p.Tool.Name, p.Tool.Input, output))
				case p.Type == "text":
					lines = append(lines, m.Role+" text "+p.Text)
				}
			}
		}
	}
	return lines
}

// recording records what a client's transport does, and gives what is stored.
type recording struct {
	t        *testing.T
	rec      *recorder.Recorder
	provider *sdktrace.TracerProvider
	memory   *tracetest.InMemoryExporter
	*modelhttp.Transport
}

func record(t *testing.T, base http.RoundTripper) *recording {
	t.Helper()
	rec, err := recorder.Open(context.Background(), filepath.Join(t.TempDir(), "sessions.db"), recorder.Options{})
	if err != nil {
		t.Fatal(err)
	}
	memory := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(rec.SpanExporter(), sdktrace.WithBlocking()), sdktrace.WithSyncer(memory))
	tracer := agenttrace.New(agenttrace.Options{TracerProvider: provider})
	return &recording{t, rec, provider, memory, modelhttp.New(tracer, modelhttp.Options{Agent: "weather", Base: base})}
}

func (r *recording) documents() (docs []*document.Document) {
	r.t.Helper()
	ctx := context.Background()
	_ = r.Close()
	if err := errors.Join(r.provider.ForceFlush(ctx), r.rec.ForceFlush(ctx)); err != nil {
		r.t.Fatal(err)
	}
	for row, err := range r.rec.Reader().Sessions(ctx, store.SessionQuery{}) {
		if err != nil {
			r.t.Fatal(err)
		}
		d, err := document.Load(ctx, r.rec.Reader(), row.ID)
		if err != nil {
			r.t.Fatal(err)
		}
		docs = append(docs, d)
	}
	if err := errors.Join(r.provider.Shutdown(ctx), r.rec.Close(ctx)); err != nil {
		r.t.Fatal(err)
	}
	return docs
}

// tape is a transport that keeps the bytes of every answer, as the client reads them.
type tape struct {
	base http.RoundTripper
	mu   sync.Mutex
	got  bytes.Buffer
}

func (t *tape) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(resp.Body, t), resp.Body}
	return resp, nil
}

func (t *tape) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.got.Write(p)
}

// TestUnmodifiedClientsHaveSessions runs a program on each client: what is stored is what
// the program printed, what the script has, and what the client reads without us.
func TestUnmodifiedClientsHaveSessions(t *testing.T) {
	script := modelserver.Weather
	for _, p := range programs {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, streamed %v", p.name, stream), func(t *testing.T) {
				api := modelserver.Named(p.api)
				run := func(transport func(http.RoundTripper) http.RoundTripper) (*console, []byte) {
					server := httptest.NewServer(&modelserver.Server{API: api, Script: &script})
					defer server.Close()
					base := &http.Transport{}
					defer base.CloseIdleConnections()
					read := &tape{base: transport(base)}
					c := &console{t: t, script: &script, url: server.URL, stream: stream, http: &http.Client{Transport: read}}
					p.run(c)
					if c.err != nil {
						t.Fatal(c.err)
					}
					return c, read.got.Bytes()
				}
				var r *recording
				with, bytesWith := run(func(base http.RoundTripper) http.RoundTripper {
					r = record(t, base)
					return r
				})
				without, bytesWithout := run(func(base http.RoundTripper) http.RoundTripper { return base })
				if !bytes.Equal(bytesWith, bytesWithout) || len(bytesWith) == 0 {
					t.Errorf("the client read %d bytes with us and %d without", len(bytesWith), len(bytesWithout))
				}
				if diff := cmp.Diff(without.lines, with.lines); diff != "" {
					t.Errorf("the program printed (-without us +with us):\n%s", diff)
				}
				docs := r.documents()
				if len(docs) != 1 {
					t.Fatalf("have %d sessions, want 1", len(docs))
				}
				if diff := cmp.Diff(with.lines, printed(docs[0])); diff != "" {
					t.Errorf("session (-printed +stored):\n%s", diff)
				}
				if diff := cmp.Diff(script.Want(api), modelserver.Lines(docs[0], api.IDs)); diff != "" {
					t.Errorf("session (-script +stored):\n%s", diff)
				}
			})
		}
	}
}

// TestClientsThatTryAgainMakeOneCall has a server that fails as often as the client tries
// again, but for once.
func TestClientsThatTryAgainMakeOneCall(t *testing.T) {
	script := modelserver.Weather
	for _, p := range programs {
		if p.attempts == 1 {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(&modelserver.Server{
				API: modelserver.Named(p.api), Script: &script,
				Fail: func(w http.ResponseWriter, _ *http.Request, attempt int) bool {
					if attempt < p.attempts-1 {
						w.Header().Set("Retry-After-Ms", "1")
						http.Error(w, `{"error":{"message":"busy"}}`, http.StatusInternalServerError)
						return true
					}
					return false
				},
			})
			defer server.Close()
			r := record(t, http.DefaultTransport)
			c := &console{t: t, script: &script, url: server.URL, stream: true, http: &http.Client{Transport: r}}
			p.run(c)
			if c.err != nil {
				t.Fatal(c.err)
			}
			docs := r.documents()
			if len(docs) != 1 || len(docs[0].Turns) != len(script.Turns) {
				t.Fatalf("have %d sessions, want 1 with %d turns", len(docs), len(script.Turns))
			}
			if diff := cmp.Diff(c.lines, printed(docs[0])); diff != "" {
				t.Errorf("session (-printed +stored):\n%s", diff)
			}
			if n := docs[0].Turns[0].ModelCalls; n != 2 {
				t.Errorf("the first turn has %d calls, want 2", n)
			}
		})
	}
}

// TestMiddlewareOfClients gives the clients that take one the middleware.
func TestMiddlewareOfClients(t *testing.T) {
	script := modelserver.Weather
	for _, p := range programs[:4] {
		t.Run(p.name, func(t *testing.T) {
			server := httptest.NewServer(&modelserver.Server{API: modelserver.Named(p.api), Script: &script})
			defer server.Close()
			r := record(t, nil)
			c := &console{t: t, script: &script, url: server.URL, stream: true, http: http.DefaultClient,
				middleware: r.Middleware()}
			p.run(c)
			if c.err != nil {
				t.Fatal(c.err)
			}
			docs := r.documents()
			if len(docs) != 1 {
				t.Fatalf("have %d sessions, want 1", len(docs))
			}
			if diff := cmp.Diff(c.lines, printed(docs[0])); diff != "" {
				t.Errorf("session (-printed +stored):\n%s", diff)
			}
		})
	}
}

// TestUsageIsCountedOnce has a global tracer provider, with which anthropic-sdk-go emits spans
// of its own that have the usage of the call.
func TestUsageIsCountedOnce(t *testing.T) {
	script := modelserver.Weather
	server := httptest.NewServer(&modelserver.Server{API: modelserver.Named("anthropic"), Script: &script})
	defer server.Close()
	r := record(t, http.DefaultTransport)
	otel.SetTracerProvider(r.provider)
	c := &console{t: t, script: &script, url: server.URL, http: &http.Client{Transport: r}}
	runAnthropic(c)
	if c.err != nil {
		t.Fatal(c.err)
	}
	own, ours := 0, 0
	for _, span := range r.memory.GetSpans() {
		for _, kv := range span.Attributes {
			if kv.Key == "gen_ai.usage.input_tokens" && span.Name != "session.turn" {
				if span.InstrumentationScope.Name == "com.anthropic.sdk.go" {
					own++
				} else {
					ours++
				}
			}
		}
	}
	if own != 4 || ours != 0 {
		t.Errorf("%d spans of the client and %d of ours have the usage, want 4 and 0", own, ours)
	}
	docs := r.documents()
	if len(docs) != 1 {
		t.Fatalf("have %d sessions, want 1", len(docs))
	}
	if diff := cmp.Diff(script.Want(modelserver.Named("anthropic")), modelserver.Lines(docs[0], true)); diff != "" {
		t.Errorf("session (-script +stored):\n%s", diff)
	}
}
