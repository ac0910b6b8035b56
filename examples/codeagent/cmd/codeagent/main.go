// Command codeagent runs the example agent and sends its telemetry to a
// collector over OTLP.
//
//	codeagent [flags] [prompt ...]
//
// OPENAI_API_KEY or OPENAI_BASE_URL selects a real model, OPENAI_MODEL its name. Without
// them the model is a script.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/examples/codeagent"
	"github.com/agenttrace/agenttrace/session/otlpbatch"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "codeagent:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	endpoint := flag.String("endpoint", "localhost:4317",
		"OTLP gRPC endpoint of the collector, `host:port`, without TLS")
	dir := flag.String("dir", "", "`directory` of the Go project (default: a scratch copy of a small one)")
	model := flag.String("model", os.Getenv("OPENAI_MODEL"), "`name` of the model")
	yes := flag.Bool("yes", false, "approve what no rule allows or denies")
	flag.Parse()

	resource := resource.NewSchemaless(attribute.String("service.name", "codeagent"))
	spans, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(*endpoint), otlptracegrpc.WithInsecure())
	if err != nil {
		return fmt.Errorf("connect to collector: %w", err)
	}
	tp := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(otlpbatch.Spans(spans), sdktrace.WithBatchTimeout(time.Second)),
		sdktrace.WithResource(resource))
	events, err := otlploggrpc.New(ctx, otlploggrpc.WithEndpoint(*endpoint), otlploggrpc.WithInsecure())
	if err != nil {
		return fmt.Errorf("connect to collector: %w", err)
	}
	// Export often enough for "agenttrace tail" to show text while it is generated.
	lp := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewBatchProcessor(otlpbatch.Logs(events),
		sdklog.WithExportInterval(100*time.Millisecond))), sdklog.WithResource(resource))
	defer func() {
		// Send the remaining telemetry even if the agent was interrupted.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if sendErr := errors.Join(tp.Shutdown(ctx), lp.Shutdown(ctx)); sendErr != nil {
			err = errors.Join(err, fmt.Errorf("send telemetry to %s, is a collector there? %w", *endpoint, sendErr))
		}
	}()

	config := codeagent.Config{
		TracerProvider: tp, LoggerProvider: lp, Workspace: *dir, Model: *model, Progress: os.Stdout,
		BaseURL: os.Getenv("OPENAI_BASE_URL"), APIKey: os.Getenv("OPENAI_API_KEY"),
	}
	if flag.NArg() > 0 {
		config.Prompts = flag.Args()
	}
	if *yes {
		config.Approve = func(context.Context, agenttrace.Question) (agenttrace.Answer, error) {
			return agenttrace.Answer{Reply: agenttrace.ReplyOnce}, nil
		}
	}
	result, err := codeagent.Run(ctx, config)
	fmt.Printf("\nsession %s\n", result.SessionID)
	if len(result.ChildSessionIDs) > 0 {
		fmt.Printf("sub-agents %s\n", strings.Join(result.ChildSessionIDs, " "))
	}
	fmt.Printf("trace %s\ntests pass: %v\n", strings.Join(result.TraceIDs, " "), result.TestsPass)
	return err
}
