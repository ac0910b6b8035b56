// Command example asks four models on the clients of their providers, and prints what is recorded
// of it. Its code has nothing of agenttrace but the tracer provider.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"go.opentelemetry.io/otel"
	"google.golang.org/genai"

	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, urls []string) error {
	if len(urls) != 4 {
		return errors.New("usage: example ANTHROPIC OPENAI GEMINI BEDROCK, which are the addresses of servers")
	}
	spans := agenttracetest.NewRecorder()
	otel.SetTracerProvider(spans)
	err := errors.Join(
		askAnthropic(ctx, urls[0]), askOpenAI(ctx, urls[1]), askGemini(ctx, urls[2]), askBedrock(ctx, urls[3]))
	for _, turn := range spans.All().Turns() {
		fmt.Printf("%s %s %s, %d+%d tokens\n", turn.User.Parts[0].Data, turn.Assistant.Parts[0].Data, turn.StopReason,
			turn.Usage.Tokens.Input+turn.Usage.Tokens.CacheRead, turn.Usage.Tokens.Output+turn.Usage.Tokens.Reasoning)
	}
	return err
}

const question = "Are you there?"

func askAnthropic(ctx context.Context, url string) error {
	client := anthropic.NewClient(anthropicoption.WithAPIKey("key"), anthropicoption.WithBaseURL(url))
	_, err := client.Messages.New(ctx, anthropic.MessageNewParams{
		Model: "claude-x", MaxTokens: 100,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(question))},
	})
	return err
}

func askOpenAI(ctx context.Context, url string) error {
	options := []openaioption.RequestOption{openaioption.WithAPIKey("key"), openaioption.WithBaseURL(url + "/v1")}
	client := openai.NewClient(options...)
	_, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model: "gpt-x", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)},
	})
	return err
}

func askGemini(ctx context.Context, url string) error {
	client, err := genai.NewClient(ctx, &genai.ClientConfig{
		APIKey: "key", Backend: genai.BackendGeminiAPI, HTTPOptions: genai.HTTPOptions{BaseURL: url},
	})
	if err != nil {
		return err
	}
	_, err = client.Models.GenerateContent(ctx, "gemini-x", genai.Text(question), nil)
	return err
}

func askBedrock(ctx context.Context, url string) error {
	client := bedrockruntime.NewFromConfig(aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(url),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret"}, nil
		}),
	})
	_, err := client.Converse(ctx, &bedrockruntime.ConverseInput{
		ModelId: aws.String("nova-x"),
		Messages: []types.Message{{
			Role:    types.ConversationRoleUser,
			Content: []types.ContentBlock{&types.ContentBlockMemberText{Value: question}},
		}},
	})
	return err
}
