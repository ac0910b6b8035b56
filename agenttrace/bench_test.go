package agenttrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	. "github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/semconv"
)

var benchModel = Model{Provider: "openai", ID: "gpt-5-mini"}

// payload is about 3 KB of what tools read and write: code in a JSON string.
var (
	payloadText    = strings.Repeat("func add(a, b int) int {\n\treturn a + b // \"sum\" of both\n}\n", 48)
	payloadJSON, _ = json.Marshal(map[string]any{"path": "/src/add.go", "content": payloadText, "overwrite": true})
)

// startTurn starts a turn in a session of a tracer with the options.
func startTurn(ctx context.Context, o Options) (context.Context, *Run, *Turn) {
	ctx, run := New(o).NewSession(ctx, SessionOptions{Agent: "coder"}).StartRun(ctx, RunOptions{Model: benchModel})
	ctx, turn := run.StartTurn(ctx, UserMessage{Text: "go"}, TurnOptions{})
	return ctx, run, turn
}

// BenchmarkToolCall compares a tool call with 3 KB of input and 3 KB of output, and one with next to nothing, with a
// bare span of the OpenTelemetry SDK that has the same attributes. Nothing is exported.
func BenchmarkToolCall(b *testing.B) {
	for name, payload := range map[string]struct {
		input json.RawMessage
		text  string
	}{"text": {payloadJSON, payloadText}, "tiny": {json.RawMessage(`{}`), "ok"}} {
		call := func(ctx context.Context, turn *Turn) {
			_, tool := turn.StartTool(ctx,
				ToolOptions{ID: "call_1", Name: "write", RawInput: payload.input, Kind: ToolEdit})
			tool.EndText(payload.text)
		}
		b.Run(name+"/agenttrace", func(b *testing.B) {
			ctx, run, turn := startTurn(b.Context(), Options{TracerProvider: sdktrace.NewTracerProvider()})
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%64 == 63 { // real turns are bounded, too
					turn.End(TurnResult{})
					_, turn = run.StartTurn(ctx, UserMessage{Text: "go"}, TurnOptions{})
				}
				call(ctx, turn)
			}
		})
		b.Run(name+"/bare-span", func(b *testing.B) {
			spans := tracetest.NewSpanRecorder()
			ctx, _, turn := startTurn(b.Context(), Options{
				TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))})
			call(ctx, turn)
			attrs := spans.Ended()[0].Attributes()
			tracer := sdktrace.NewTracerProvider().Tracer("bench")
			ctx, parent := tracer.Start(b.Context(), "session.turn")
			defer parent.End()
			b.ReportAllocs()
			for b.Loop() {
				_, span := tracer.Start(ctx, "tool.call")
				kvs := slices.Clone(attrs)
				for i, kv := range kvs { // as a program without agenttrace must make them
					switch kv.Key {
					case semconv.GenAIToolCallArgumentsKey:
						kvs[i] = kv.Key.String(string(payload.input))
					case semconv.GenAIToolCallResultKey:
						text, _ := json.Marshal(payload.text)
						kvs[i] = kv.Key.String(string(text))
					}
				}
				span.SetAttributes(kvs...)
				span.End()
			}
		})
	}
}

func off() trace.TracerProvider { return noop.NewTracerProvider() }

func TestOffAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates; measured without it")
		return
	}
	usage, failure := InclusiveUsage{Input: 1, Output: 2}, errors.New("exit status 1")
	ctx, run, turn := startTurn(t.Context(), Options{TracerProvider: off()})
	tool := func() *ToolCall {
		_, tool := turn.StartTool(ctx, ToolOptions{ID: "call_1", Name: "bash", RawInput: payloadJSON})
		return tool
	}
	for name, call := range map[string]func(){
		"turn": func() {
			_, turn := run.StartTurn(ctx, UserMessage{Text: payloadText}, TurnOptions{SystemPrompt: payloadText})
			turn.End(TurnResult{StopReason: "end_turn"})
		},
		"model call": func() {
			_, call := turn.StartModelCall(ctx, ModelCallOptions{})
			call.Reasoning(payloadText)
			call.Text(payloadText)
			call.End(ModelResult{StopReason: "stop", Usage: usage}, nil)
		},
		"stream": func() {
			s := turn.StreamText()
			s.WriteString(payloadText)
			s.Close()
		},
		"tool call": func() { tool().EndText(payloadText) },
		"tool call from context": func() {
			_, tool := StartTool(ctx, ToolOptions{ID: "call_1", Name: "bash", RawInput: payloadJSON})
			tool.InputDelta(payloadText)
			tool.EndRaw(payloadJSON)
		},
		"failed tool call": func() { tool().Fail(failure) },
		"authorize":        func() { tool().Authorize(ctx, "ls") },
		"compaction": func() {
			_, c := run.StartCompaction(ctx, CompactionOptions{Auto: true})
			c.End(CompactionResult{Summary: payloadText, Usage: usage})
		},
		"source": func() { turn.SourceURL(SourceURL{URL: payloadText}) },
	} {
		if n := testing.AllocsPerRun(100, call); n != 0 {
			t.Errorf("%s: %v allocations with tracing off, want none", name, n)
		}
	}
}
