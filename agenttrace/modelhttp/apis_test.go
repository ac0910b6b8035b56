package modelhttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/internal/e2e"
	"github.com/agenttrace/agenttrace/session/document"
)

// TestAConversationIsTheSameSessionWithEveryAPI has a conversation of two turns, with calls
// at once, a failed one and JSON, with each API, whatever type its server states, and compares what is in the store.
func TestAConversationIsTheSameSessionWithEveryAPI(t *testing.T) {
	script := e2e.Weather
	for _, a := range e2e.APIs {
		for _, kind := range []string{"", "text/plain; charset=utf-8", "application/json", "text/event-stream"} {
			stream := kind != "text/event-stream"
			if kind != "" && strings.HasPrefix(a.Name, "bedrock") { // whose streams are binary
				continue
			}
			t.Run(fmt.Sprintf("%s, streamed %v as %s", a.Name, stream, kind), func(t *testing.T) {
				server := httptest.NewServer(&e2e.Server{API: a, Script: &script, Type: kind})
				defer server.Close()
				docs := stored(t, func(tracer *agenttrace.Tracer) {
					client := &http.Client{Transport: modelhttp.New(tracer, modelhttp.Options{Agent: "weather"})}
					converse(t, client, server.URL, a, &script, stream)
				})
				if len(docs) != 1 {
					t.Fatalf("have %d sessions, want 1", len(docs))
				}
				if diff := cmp.Diff(script.Want(a), e2e.Lines(docs[0], a.IDs)); diff != "" {
					t.Errorf("session (-script +stored):\n%s", diff)
				}
				if d := docs[0]; d.Session.Agent != "weather" || d.Turns[0].State != document.StateFinished {
					t.Errorf("agent %q, state %q", d.Session.Agent, d.Turns[0].State)
				}
			})
		}
	}
}
