package einotrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/cloudwego/eino-ext/components/model/openai"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/flow/agent"
	"github.com/cloudwego/eino/flow/agent/react"
	"github.com/cloudwego/eino/schema"
	"github.com/eino-contrib/jsonschema"

	einotrace "github.com/agenttrace/agenttrace/contrib/eino"
	"github.com/agenttrace/agenttrace/internal/e2e"
)

func TestConformance(t *testing.T) {
	e2e.Test(t, e2e.Program{API: chat(), Run: weather})
}

// chat is the API of the agent's model. The framework knows that a tool failed.
func chat() *e2e.API {
	api := *e2e.Named("chat")
	api.Errors = true
	return &api
}

// getWeather is the tool.
type getWeather struct{ *e2e.Console }

func (w getWeather) Info(context.Context) (*schema.ToolInfo, error) {
	t := w.Script.Tools[0]
	var parameters jsonschema.Schema
	err := json.Unmarshal([]byte(t.Schema), &parameters)
	return &schema.ToolInfo{
		Name: t.Name, Desc: t.Description, ParamsOneOf: schema.NewParamsOneOfByJSONSchema(&parameters),
	}, err
}

func (w getWeather) InvokableRun(_ context.Context, input string, _ ...tool.Option) (string, error) {
	output, failed := w.Call("get_weather", []byte(input))
	if failed {
		return "", errors.New(output)
	}
	return output, nil
}

// explain gives the model the error of a tool. Around the tool, it leaves the error to the handler.
func explain(next compose.InvokableToolEndpoint) compose.InvokableToolEndpoint {
	return func(ctx context.Context, in *compose.ToolInput) (*compose.ToolOutput, error) {
		out, err := next(ctx, in)
		if err != nil {
			return &compose.ToolOutput{Result: err.Error()}, nil
		}
		return out, nil
	}
}

// hasCalls reads a stream to its end, for this model begins with text.
func hasCalls(_ context.Context, stream *schema.StreamReader[*schema.Message]) (calls bool, err error) {
	defer stream.Close()
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return calls, nil
		}
		if err != nil {
			return false, err
		}
		calls = calls || len(m.ToolCalls) > 0
	}
}

func weather(c *e2e.Console) error {
	ctx := c.Context
	handler := einotrace.New(c.Tracer, einotrace.Options{
		Agent: "weather", SessionID: func(context.Context) string { return "session-1" },
	})
	defer handler.Close()

	model, err := openai.NewChatModel(ctx, &openai.ChatModelConfig{
		APIKey: "key", BaseURL: c.URL + "/v1", Model: "gpt-x", HTTPClient: c.HTTP,
	})
	if err != nil {
		return err
	}
	a, err := react.NewAgent(ctx, &react.AgentConfig{
		ToolCallingModel: model, StreamToolCallChecker: hasCalls,
		ToolsConfig: compose.ToolsNodeConfig{
			Tools:               []tool.BaseTool{getWeather{c}},
			ToolCallMiddlewares: []compose.ToolMiddleware{{Invokable: explain}},
		},
	})
	if err != nil {
		return err
	}
	recorded := agent.WithComposeOptions(compose.WithCallbacks(handler))
	history := []*schema.Message{schema.SystemMessage(c.Script.System)}
	return c.Turns(func(question string) error {
		history = append(history, schema.UserMessage(question))
		var answer *schema.Message
		if !c.Stream {
			answer, err = a.Generate(ctx, history, recorded)
		} else if stream, streamErr := a.Stream(ctx, history, recorded); streamErr != nil {
			err = streamErr
		} else {
			answer, err = schema.ConcatMessageStream(stream)
		}
		history = append(history, answer)
		return err
	})
}
