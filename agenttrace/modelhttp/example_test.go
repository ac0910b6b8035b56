package modelhttp_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
)

// An agent without instrumentation asks a model.
func Example() {
	server := httptest.NewServer(says("They pass."))
	defer server.Close()
	rec := agenttracetest.NewRecorder() // a tracer provider
	tracer := agenttrace.New(agenttrace.Options{TracerProvider: rec})

	client := &http.Client{Transport: modelhttp.New(tracer, modelhttp.Options{Agent: "coder"})}

	resp, err := client.Post(server.URL+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"gpt-5-mini","messages":[{"role":"user","content":"Do the tests pass?"}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)

	turn := rec.All().Turns()[0]
	fmt.Println(turn.StopReason, *turn.Usage.Tokens)
	// Output:
	// stop {10 2 0 0 0}
}
