package modelclients

import (
	"context"
	"encoding/json"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicbedrock "github.com/anthropics/anthropic-sdk-go/bedrock"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/document"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"
)

func schema(c *console) (s struct {
	Properties map[string]any `json:"properties"`
	Required   []string       `json:"required"`
}) {
	if err := json.Unmarshal([]byte(c.Script.Tools[0].Schema), &s); err != nil {
		c.t.Fatal(err)
	}
	return s
}

func runAnthropic(c *console) {
	options := []anthropicoption.RequestOption{
		anthropicoption.WithAPIKey("key"), anthropicoption.WithBaseURL(c.URL), anthropicoption.WithHTTPClient(c.HTTP),
	}
	if c.middleware != nil {
		options = append(options, anthropicoption.WithMiddleware(c.middleware))
	}
	anthropicAgent(c, anthropic.NewClient(options...))
}

func runAnthropicBedrock(c *console) {
	config := aws.Config{Region: "us-east-1", Credentials: aws.CredentialsProviderFunc(credentials), HTTPClient: c.HTTP}
	options := []anthropicoption.RequestOption{anthropicoption.WithHTTPClient(c.HTTP)}
	if c.middleware != nil {
		options = append(options, anthropicoption.WithMiddleware(c.middleware))
	}
	options = append(options, anthropicbedrock.WithConfig(config), anthropicoption.WithBaseURL(c.URL))
	anthropicAgent(c, anthropic.NewClient(options...))
}

func credentials(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret"}, nil
}

func anthropicAgent(c *console, client anthropic.Client) {
	s := schema(c)
	tool := c.Script.Tools[0]
	params := anthropic.MessageNewParams{
		Model: "claude-x", MaxTokens: 100, System: []anthropic.TextBlockParam{{Text: c.Script.System}},
		Tools: []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{
			Name: tool.Name, Description: anthropic.String(tool.Description),
			InputSchema: anthropic.ToolInputSchemaParam{Properties: s.Properties, Required: s.Required},
		}}},
	}
	ask := func() (*anthropic.Message, error) {
		if !c.Stream {
			return client.Messages.New(c.ctx(), params)
		}
		stream := client.Messages.NewStreaming(c.ctx(), params)
		var message anthropic.Message
		for stream.Next() {
			if err := message.Accumulate(stream.Current()); err != nil {
				return nil, err
			}
		}
		return &message, stream.Err()
	}
	c.turns(func(question string) error {
		params.Messages = append(params.Messages, anthropic.NewUserMessage(anthropic.NewTextBlock(question)))
		for {
			message, err := ask()
			if err != nil {
				return err
			}
			params.Messages = append(params.Messages, message.ToParam())
			var results []anthropic.ContentBlockParamUnion
			for _, block := range message.Content {
				switch b := block.AsAny().(type) {
				case anthropic.TextBlock:
					c.Text(b.Text)
				case anthropic.ToolUseBlock:
					output, failed := c.Call(b.Name, b.Input)
					results = append(results, anthropic.NewToolResultBlock(b.ID, output, failed))
				}
			}
			if len(results) == 0 {
				return nil
			}
			params.Messages = append(params.Messages, anthropic.NewUserMessage(results...))
		}
	})
}

func openaiClient(c *console) openai.Client {
	options := []openaioption.RequestOption{
		openaioption.WithAPIKey("key"), openaioption.WithBaseURL(c.URL + "/v1"), openaioption.WithHTTPClient(c.HTTP),
	}
	if c.middleware != nil {
		options = append(options, openaioption.WithMiddleware(c.middleware))
	}
	return openai.NewClient(options...)
}

func parameters(c *console) (p map[string]any) {
	if err := json.Unmarshal([]byte(c.Script.Tools[0].Schema), &p); err != nil {
		c.t.Fatal(err)
	}
	return p
}

func runChat(c *console) {
	client := openaiClient(c)
	tool := c.Script.Tools[0]
	params := openai.ChatCompletionNewParams{
		Model: "gpt-x", Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(c.Script.System)},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
			Name: tool.Name, Description: openai.String(tool.Description), Parameters: parameters(c),
		})},
	}
	ask := func() (*openai.ChatCompletion, error) {
		if !c.Stream {
			return client.Chat.Completions.New(c.ctx(), params)
		}
		params.StreamOptions.IncludeUsage = openai.Bool(true)
		stream := client.Chat.Completions.NewStreaming(c.ctx(), params)
		var all openai.ChatCompletionAccumulator
		for stream.Next() {
			all.AddChunk(stream.Current())
		}
		return &all.ChatCompletion, stream.Err()
	}
	c.turns(func(question string) error {
		params.Messages = append(params.Messages, openai.UserMessage(question))
		for {
			completion, err := ask()
			if err != nil {
				return err
			}
			message := completion.Choices[0].Message
			c.Text(message.Content)
			params.Messages = append(params.Messages, message.ToParam())
			for _, call := range message.ToolCalls {
				output, _ := c.Call(call.Function.Name, []byte(call.Function.Arguments))
				params.Messages = append(params.Messages, openai.ToolMessage(output, call.ID))
			}
			if len(message.ToolCalls) == 0 {
				return nil
			}
		}
	})
}

func runResponses(c *console) {
	client := openaiClient(c)
	tool := c.Script.Tools[0]
	params := responses.ResponseNewParams{
		Model: "gpt-x", Instructions: openai.String(c.Script.System),
		Tools: []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{
			Name: tool.Name, Description: openai.String(tool.Description), Parameters: parameters(c),
		}}},
	}
	ask := func() (*responses.Response, error) {
		if !c.Stream {
			return client.Responses.New(c.ctx(), params)
		}
		stream := client.Responses.NewStreaming(c.ctx(), params)
		var last responses.Response
		for stream.Next() {
			if event := stream.Current(); event.Type == "response.completed" {
				last = event.Response
			}
		}
		return &last, stream.Err()
	}
	c.turns(func(question string) error {
		params.Input = responses.ResponseNewParamsInputUnion{OfString: openai.String(question)}
		for {
			response, err := ask()
			if err != nil {
				return err
			}
			c.Text(response.OutputText())
			params.PreviousResponseID = openai.String(response.ID)
			var results responses.ResponseInputParam
			for _, item := range response.Output {
				if call := item.AsFunctionCall(); item.Type == "function_call" {
					output, _ := c.Call(call.Name, []byte(call.Arguments))
					result := responses.ResponseInputItemParamOfFunctionCallOutput(output)
					result.OfFunctionCallOutput.CallID = openai.String(call.CallID)
					results = append(results, result)
				}
			}
			if len(results) == 0 {
				return nil
			}
			params.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: results}
		}
	})
}

func runGenai(c *console) {
	client, err := genai.NewClient(c.ctx(), &genai.ClientConfig{
		APIKey: "key", Backend: genai.BackendGeminiAPI, HTTPClient: c.HTTP,
		HTTPOptions: genai.HTTPOptions{BaseURL: c.URL},
	})
	if err != nil {
		c.err = err
		return
	}
	tool := c.Script.Tools[0]
	chat, err := client.Chats.Create(c.ctx(), "gemini-x", &genai.GenerateContentConfig{
		SystemInstruction: genai.NewContentFromText(c.Script.System, genai.RoleUser),
		Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{
			Name: tool.Name, Description: tool.Description, ParametersJsonSchema: parameters(c),
		}}}},
	}, nil)
	if err != nil {
		c.err = err
		return
	}
	ask := func(parts []genai.Part) (text string, calls []*genai.FunctionCall, err error) {
		take := func(r *genai.GenerateContentResponse) {
			for _, part := range r.Candidates[0].Content.Parts {
				switch {
				case part.FunctionCall != nil:
					calls = append(calls, part.FunctionCall)
				case !part.Thought:
					text += part.Text
				}
			}
		}
		if !c.Stream {
			r, err := chat.SendMessage(c.ctx(), parts...)
			if err == nil {
				take(r)
			}
			return text, calls, err
		}
		for r, err := range chat.SendMessageStream(c.ctx(), parts...) {
			if err != nil {
				return "", nil, err
			}
			take(r)
		}
		return text, calls, nil
	}
	c.turns(func(question string) error {
		parts := []genai.Part{{Text: question}}
		for {
			text, calls, err := ask(parts)
			if err != nil {
				return err
			}
			c.Text(text)
			if parts = nil; len(calls) == 0 {
				return nil
			}
			for _, call := range calls {
				input, err := json.Marshal(call.Args)
				if err != nil {
					return err
				}
				output, failed := c.Call(call.Name, input)
				key := "output"
				if failed {
					key = "error"
				}
				parts = append(parts, *genai.NewPartFromFunctionResponse(call.Name, map[string]any{key: output}))
			}
		}
	})
}

func runBedrock(c *console) {
	client := bedrockruntime.New(bedrockruntime.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(c.URL), HTTPClient: c.HTTP,
		Credentials: aws.CredentialsProviderFunc(credentials),
	})
	tool := c.Script.Tools[0]
	model := aws.String("arn:aws:bedrock:us-east-1:123456789012:inference-profile/nova-x")
	system := []types.SystemContentBlock{&types.SystemContentBlockMemberText{Value: c.Script.System}}
	tools := &types.ToolConfiguration{Tools: []types.Tool{&types.ToolMemberToolSpec{Value: types.ToolSpecification{
		Name: aws.String(tool.Name), Description: aws.String(tool.Description),
		InputSchema: &types.ToolInputSchemaMemberJson{Value: document.NewLazyDocument(parameters(c))},
	}}}}
	var messages []types.Message
	ask := func() (types.Message, error) {
		if c.Stream {
			out, err := client.ConverseStream(c.ctx(), &bedrockruntime.ConverseStreamInput{
				ModelId: model, Messages: messages, System: system, ToolConfig: tools,
			})
			if err != nil {
				return types.Message{}, err
			}
			return collect(out.GetStream())
		}
		out, err := client.Converse(c.ctx(), &bedrockruntime.ConverseInput{
			ModelId: model, Messages: messages, System: system, ToolConfig: tools,
		})
		if err != nil {
			return types.Message{}, err
		}
		return out.Output.(*types.ConverseOutputMemberMessage).Value, nil
	}
	c.turns(func(question string) error {
		messages = append(messages, types.Message{
			Role:    types.ConversationRoleUser,
			Content: []types.ContentBlock{&types.ContentBlockMemberText{Value: question}},
		})
		for {
			message, err := ask()
			if err != nil {
				return err
			}
			messages = append(messages, message)
			var results []types.ContentBlock
			for _, block := range message.Content {
				switch b := block.(type) {
				case *types.ContentBlockMemberText:
					c.Text(b.Value)
				case *types.ContentBlockMemberToolUse:
					input, err := b.Value.Input.MarshalSmithyDocument()
					if err != nil {
						return err
					}
					output, failed := c.Call(*b.Value.Name, input)
					status := types.ToolResultStatusSuccess
					if failed {
						status = types.ToolResultStatusError
					}
					results = append(results, &types.ContentBlockMemberToolResult{Value: types.ToolResultBlock{
						ToolUseId: b.Value.ToolUseId, Status: status,
						Content: []types.ToolResultContentBlock{&types.ToolResultContentBlockMemberText{Value: output}},
					}})
				}
			}
			if len(results) == 0 {
				return nil
			}
			messages = append(messages, types.Message{Role: types.ConversationRoleUser, Content: results})
		}
	})
}

// collect puts the message of a stream together.
func collect(stream *bedrockruntime.ConverseStreamEventStream) (types.Message, error) {
	defer stream.Close()
	message := types.Message{Role: types.ConversationRoleAssistant}
	var text, input string
	var use types.ToolUseBlock
	for event := range stream.Events() {
		switch e := event.(type) {
		case *types.ConverseStreamOutputMemberContentBlockStart:
			if start, ok := e.Value.Start.(*types.ContentBlockStartMemberToolUse); ok {
				use = types.ToolUseBlock{ToolUseId: start.Value.ToolUseId, Name: start.Value.Name}
			}
		case *types.ConverseStreamOutputMemberContentBlockDelta:
			switch d := e.Value.Delta.(type) {
			case *types.ContentBlockDeltaMemberText:
				text += d.Value
			case *types.ContentBlockDeltaMemberToolUse:
				input += *d.Value.Input
			}
		case *types.ConverseStreamOutputMemberContentBlockStop:
			switch {
			case use.Name != nil:
				var value map[string]any
				if err := json.Unmarshal([]byte(input), &value); err != nil {
					return message, err
				}
				use.Input = document.NewLazyDocument(value)
				message.Content = append(message.Content, &types.ContentBlockMemberToolUse{Value: use})
			case text != "":
				message.Content = append(message.Content, &types.ContentBlockMemberText{Value: text})
			}
			text, input, use = "", "", types.ToolUseBlock{}
		}
	}
	return message, stream.Err()
}
