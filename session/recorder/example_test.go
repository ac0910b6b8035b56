package recorder_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/session/recorder"
)

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	rec, err := recorder.Open(ctx, filepath.Join(dir, "sessions.db"), recorder.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(rec.SpanExporter()))

	tracer := agenttrace.New(agenttrace.Options{TracerProvider: provider})
	sess := tracer.NewSession(ctx, agenttrace.SessionOptions{ID: "ses_1", Agent: "coder", Title: "Fix the test"})
	ctx, run := sess.StartRun(ctx, agenttrace.RunOptions{})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "do the tests pass?"}, agenttrace.TurnOptions{})
	_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
	call.Text("They do.")
	call.End(agenttrace.ModelResult{}, nil)
	turn.End(agenttrace.TurnResult{})
	run.End(nil)

	err = errors.Join(provider.ForceFlush(ctx), rec.ForceFlush(ctx))
	stored, readErr := rec.Reader().Transcript(ctx, "ses_1")
	if err = errors.Join(err, readErr); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(stored.Session.Title, len(stored.Messages), "messages")
	fmt.Println(errors.Join(provider.Shutdown(ctx), rec.Close(ctx)))
	// Output:
	// Fix the test 2 messages
	// <nil>
}
