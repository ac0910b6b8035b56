package mcptrace_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	mcptrace "github.com/agenttrace/agenttrace/contrib/mcp"
	"github.com/agenttrace/agenttrace/internal/e2e"
)

// chat is the API of the agent's model. MCP states that a tool failed.
func chat() *e2e.API {
	api := *e2e.Named("chat")
	api.Errors = true
	return &api
}

// connect returns a client's session with a server that has the tools of the script.
func connect(c *e2e.Console) (*mcp.ClientSession, error) {
	options := mcptrace.Options{TracerProvider: c.Provider}
	server := mcp.NewServer(&mcp.Implementation{Name: "weather"}, nil)
	server.AddReceivingMiddleware(mcptrace.Server(options))
	client := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil)
	client.AddSendingMiddleware(mcptrace.Client(options))

	for _, t := range c.Script.Tools {
		tool := &mcp.Tool{Name: t.Name, Description: t.Description, InputSchema: json.RawMessage(t.Schema)}
		server.AddTool(tool, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			output, failed := c.Call(req.Params.Name, req.Params.Arguments)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: output}}, IsError: failed}, nil
		})
	}
	here, there := mcp.NewInMemoryTransports()
	if _, err := server.Connect(c.Context, there, nil); err != nil {
		return nil, err
	}
	return client.Connect(c.Context, here, nil)
}

type (
	message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
		Calls   []call `json:"tool_calls,omitempty"`
		CallID  string `json:"tool_call_id,omitempty"`
	}
	call struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	}
)

func agent(c *e2e.Console) error {
	session, err := connect(c)
	if err != nil {
		return err
	}
	defer session.Close()
	tools, err := session.ListTools(c.Context, &mcp.ListToolsParams{})
	if err != nil {
		return err
	}
	client := &http.Client{Transport: modelhttp.New(c.Tracer, modelhttp.Options{Base: c.HTTP.Transport})}
	history := []message{{Role: "system", Content: c.Script.System}}
	recorded := c.Tracer.NewSession(c.Context, agenttrace.SessionOptions{Agent: "weather"})
	return c.Turns(func(question string) (err error) {
		ctx, run := recorded.StartRun(c.Context, agenttrace.RunOptions{})
		defer run.Done(&err)
		ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: question},
			agenttrace.TurnOptions{SystemPrompt: c.Script.System, Tools: catalog(tools.Tools)})
		defer turn.Done(&err)
		history = append(history, message{Role: "user", Content: question})
		for {
			answer, err := ask(ctx, client, c.URL, history, tools.Tools)
			if err != nil {
				return err
			}
			history = append(history, answer)
			if len(answer.Calls) == 0 {
				return nil
			}
			history = append(history, execute(ctx, session, answer.Calls)...)
		}
	})
}

// execute calls the tools that an answer requests, at the same time.
func execute(ctx context.Context, session *mcp.ClientSession, calls []call) []message {
	results := make([]message, len(calls))
	var all sync.WaitGroup
	for i, call := range calls {
		all.Go(func() {
			results[i] = message{Role: "tool", CallID: call.ID}
			r, err := session.CallTool(ctx, &mcp.CallToolParams{
				Name: call.Function.Name, Arguments: json.RawMessage(call.Function.Arguments),
			})
			if err != nil {
				results[i].Content = err.Error()
				return
			}
			results[i].Content = r.Content[0].(*mcp.TextContent).Text
		})
	}
	all.Wait()
	return results
}

// ask sends the history to the model, which knows nothing of MCP.
func ask(
	ctx context.Context, client *http.Client, url string, history []message, tools []*mcp.Tool,
) (message, error) {
	type m = map[string]any
	var functions []m
	for _, t := range tools {
		functions = append(functions, m{"type": "function", "function": m{
			"name": t.Name, "description": t.Description, "parameters": t.InputSchema,
		}})
	}
	body, err := json.Marshal(m{"model": "gpt-x", "messages": history, "tools": functions})
	if err != nil {
		return message{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return message{}, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return message{}, err
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		return message{}, err
	}
	var answer struct {
		Choices []struct{ Message message }
	}
	err = json.Unmarshal(body, &answer)
	return answer.Choices[0].Message, err
}

func catalog(tools []*mcp.Tool) (all []agenttrace.Tool) {
	for _, t := range tools {
		schema, _ := json.Marshal(t.InputSchema) // it came as JSON
		all = append(all, agenttrace.Tool{Name: t.Name, Description: t.Description, Parameters: schema})
	}
	return all
}
