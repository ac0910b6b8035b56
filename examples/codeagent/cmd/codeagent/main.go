// Command codeagent runs the example agent and sends its telemetry to the collector on
// localhost:4317, or to that of OTEL_EXPORTER_OTLP_ENDPOINT.
//
//	codeagent [flags] [prompt ...]
//
// OPENAI_API_KEY or OPENAI_BASE_URL selects a real model, OPENAI_MODEL its name. Without them the model is a script.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"go.opentelemetry.io/otel"

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
	dir := flag.String("dir", "", "`directory` of the Go project (default: a scratch copy of a small one)")
	yes := flag.Bool("yes", false, "approve what no rule allows or denies")
	flag.Parse()

	if err := os.Setenv("OTEL_SERVICE_NAME", "codeagent"); err != nil {
		return err
	}
	shutdown, err := setup.Init(ctx)
	if err != nil {
		return err
	}
	// Send the remaining telemetry even if the agent was interrupted.
	defer func() { err = errors.Join(err, shutdown(context.WithoutCancel(ctx))) }()

	config := codeagent.Config{
		LoggerProvider: otel.GetLoggerProvider(), Workspace: *dir, Model: os.Getenv("OPENAI_MODEL"), Progress: os.Stdout,
		BaseURL: os.Getenv("OPENAI_BASE_URL"), APIKey: os.Getenv("OPENAI_API_KEY"),
	}
	if flag.NArg() > 0 {
		config.Prompts = flag.Args()
	}
	if *yes {
		config.Approve = codeagent.ApproveAll
	}
	result, err := codeagent.Run(ctx, config)
	fmt.Printf("\nsession %s, sub-agents %v\ntraces %v\ntests pass: %v\n", result.SessionID, result.ChildSessionIDs,
		result.TraceIDs, result.TestsPass)
	return err
}
