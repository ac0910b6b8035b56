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

	"go.opentelemetry.io/otel"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/setup"
	"github.com/agenttrace/agenttrace/examples/codeagent"
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
	endpoint := flag.String("endpoint", "localhost:4317", "OTLP endpoint of the collector, `host:port`, without TLS")
	dir := flag.String("dir", "", "`directory` of the Go project (default: a scratch copy of a small one)")
	model := flag.String("model", os.Getenv("OPENAI_MODEL"), "`name` of the model")
	yes := flag.Bool("yes", false, "approve what no rule allows or denies")
	flag.Parse()

	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + *endpoint, "OTEL_SERVICE_NAME": "codeagent",
		// Often enough for "agenttrace tail" to show text while it is generated.
		"OTEL_BSP_SCHEDULE_DELAY": "1000", "OTEL_BLRP_SCHEDULE_DELAY": "100",
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	shutdown, err := setup.Init(ctx)
	if err != nil {
		return err
	}
	// Send the remaining telemetry even if the agent was interrupted.
	defer func() { err = errors.Join(err, shutdown(context.WithoutCancel(ctx))) }()

	config := codeagent.Config{
		LoggerProvider: otel.GetLoggerProvider(), Workspace: *dir, Model: *model, Progress: os.Stdout,
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
