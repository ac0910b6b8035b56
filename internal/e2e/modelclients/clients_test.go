// Package modelclients has programs on the providers' own Go clients, unmodified except the
// HTTP client that they are given.
package modelclients

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"

	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/internal/e2e"
	"github.com/agenttrace/agenttrace/session/document"
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
	*e2e.Console
	t testing.TB
	// middleware is used instead of the HTTP client's transport, if it is set.
	middleware func(*http.Request, func(*http.Request) (*http.Response, error)) (*http.Response, error)
	err        error
}

func (c *console) ctx() context.Context { return c.t.Context() }

func newConsole(t testing.TB, script *e2e.Script, url string, stream bool, client *http.Client) *console {
	return &console{t: t, Console: &e2e.Console{Script: script, URL: url, HTTP: client, Stream: stream}}
}

// turns has ask answer the questions of the script.
func (c *console) turns(ask func(question string) error) { c.err = c.Turns(ask) }

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
	t *testing.T
	*e2e.Recording
	*modelhttp.Transport
}

func record(t *testing.T, base http.RoundTripper) *recording {
	t.Helper()
	r := e2e.Record(t)
	return &recording{t, r, modelhttp.New(r.Tracer, modelhttp.Options{Agent: "weather", Base: base})}
}

func (r *recording) documents() []*document.Document {
	r.t.Helper()
	_ = r.Close()
	return r.Documents(r.t)
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
	script := e2e.Weather
	for _, p := range programs {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, streamed %v", p.name, stream), func(t *testing.T) {
				api := e2e.Named(p.api)
				run := func(transport func(http.RoundTripper) http.RoundTripper) (*console, []byte) {
					server := httptest.NewServer(&e2e.Server{API: api, Script: &script})
					defer server.Close()
					base := &http.Transport{}
					defer base.CloseIdleConnections()
					read := &tape{base: transport(base)}
					c := newConsole(t, &script, server.URL, stream, &http.Client{Transport: read})
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
				if diff := cmp.Diff(without.Lines(), with.Lines()); diff != "" {
					t.Errorf("the program printed (-without us +with us):\n%s", diff)
				}
				docs := r.documents()
				if len(docs) != 1 {
					t.Fatalf("have %d sessions, want 1", len(docs))
				}
				if diff := cmp.Diff(with.Lines(), printed(docs[0])); diff != "" {
					t.Errorf("session (-printed +stored):\n%s", diff)
				}
				if diff := cmp.Diff(script.Want(api), e2e.Lines(docs[0], api.IDs)); diff != "" {
					t.Errorf("session (-script +stored):\n%s", diff)
				}
			})
		}
	}
}

// TestClientsThatTryAgainMakeOneCall has a server that fails as often as the client tries again, except once.
func TestClientsThatTryAgainMakeOneCall(t *testing.T) {
	script := e2e.Weather
	for _, p := range programs {
		if p.attempts == 1 {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(&e2e.Server{
				API: e2e.Named(p.api), Script: &script,
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
			c := newConsole(t, &script, server.URL, true, &http.Client{Transport: r})
			p.run(c)
			if c.err != nil {
				t.Fatal(c.err)
			}
			docs := r.documents()
			if len(docs) != 1 || len(docs[0].Turns) != len(script.Turns) {
				t.Fatalf("have %d sessions, want 1 with %d turns", len(docs), len(script.Turns))
			}
			if diff := cmp.Diff(c.Lines(), printed(docs[0])); diff != "" {
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
	script := e2e.Weather
	for _, p := range programs[:4] {
		t.Run(p.name, func(t *testing.T) {
			server := httptest.NewServer(&e2e.Server{API: e2e.Named(p.api), Script: &script})
			defer server.Close()
			r := record(t, nil)
			c := newConsole(t, &script, server.URL, true, http.DefaultClient)
			c.middleware = r.Middleware()
			p.run(c)
			if c.err != nil {
				t.Fatal(c.err)
			}
			docs := r.documents()
			if len(docs) != 1 {
				t.Fatalf("have %d sessions, want 1", len(docs))
			}
			if diff := cmp.Diff(c.Lines(), printed(docs[0])); diff != "" {
				t.Errorf("session (-printed +stored):\n%s", diff)
			}
		})
	}
}

// TestUsageIsCountedOnce has a global tracer provider, with which anthropic-sdk-go emits spans
// of its own that have the usage of the call.
func TestUsageIsCountedOnce(t *testing.T) {
	script := e2e.Weather
	server := httptest.NewServer(&e2e.Server{API: e2e.Named("anthropic"), Script: &script})
	defer server.Close()
	r := record(t, http.DefaultTransport)
	otel.SetTracerProvider(r.Provider)
	c := newConsole(t, &script, server.URL, false, &http.Client{Transport: r})
	runAnthropic(c)
	if c.err != nil {
		t.Fatal(c.err)
	}
	own, ours := 0, 0
	for _, span := range r.Memory.GetSpans() {
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
	if diff := cmp.Diff(script.Want(e2e.Named("anthropic")), e2e.Lines(docs[0], true)); diff != "" {
		t.Errorf("session (-script +stored):\n%s", diff)
	}
}
