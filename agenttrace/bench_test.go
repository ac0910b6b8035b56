package agenttrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/semconv"
)

// payload is about 3 KB of what tools read and write: code in a JSON string.
var (
	payloadText = strings.Repeat("func add(a, b int) int {\n\treturn a + b // \"sum\" of both\n}\n", 48)
	payloadJSON = func() json.RawMessage {
		b, err := json.Marshal(map[string]any{"path": "/src/add.go", "content": payloadText, "mode": 420,
			"overwrite": true})
		if err != nil {
			panic(err)
		}
		return b
	}()
)

// discard is a span processor that keeps nothing, so that the benchmarks
// measure spans and not exporting.
type discard struct{}

func (discard) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (discard) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (discard) Shutdown(context.Context) error                  { return nil }
func (discard) ForceFlush(context.Context) error                { return nil }

// keepOne remembers the last span, to copy its attributes.
type keepOne struct {
	discard
	last sdktrace.ReadOnlySpan
}

func (k *keepOne) OnEnd(s sdktrace.ReadOnlySpan) { k.last = s }

var benchModel = agenttrace.Model{Provider: "openai", ID: "gpt-5-mini"}

// discardLog is a log processor that keeps nothing.
type discardLog struct{}

func (discardLog) OnEmit(context.Context, *sdklog.Record) error           { return nil }
func (discardLog) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }
func (discardLog) Shutdown(context.Context) error                         { return nil }
func (discardLog) ForceFlush(context.Context) error                       { return nil }

func startTurn(tp trace.TracerProvider) (context.Context, *agenttrace.Run, *agenttrace.Turn) {
	return startTurnWith(agenttrace.Options{TracerProvider: tp})
}

// everything turns on what costs something.
func everything() agenttrace.Options {
	return agenttrace.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(discard{})),
		LoggerProvider: sdklog.NewLoggerProvider(sdklog.WithProcessor(discardLog{})),
		LoopDetection:  &agenttrace.LoopDetection{Arguments: true},
		Limits:         agenttrace.Limits{MaxToolCalls: 1 << 40, MaxDuration: time.Hour}, MaxPartBytes: 1 << 20,
	}
}

func startTurnWith(o agenttrace.Options) (context.Context, *agenttrace.Run, *agenttrace.Turn) {
	ctx := context.Background()
	sess := agenttrace.New(o).NewSession(ctx, agenttrace.SessionOptions{Agent: "bench"})
	ctx, run := sess.StartRun(ctx, agenttrace.RunOptions{Model: benchModel})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
	return ctx, run, turn
}

// BenchmarkToolCall compares a tool call with 3 KB of input and 3 KB of output
// with a bare span of the OpenTelemetry SDK that is given the same attributes:
// without and with redaction, with live events, and with everything on. The bare
// span is
// made from the same input and output, as a program that does without agenttrace must
// make them ("bare-span"), and ready-made ("bare-span-of-ready-strings"). The
// output is text, or JSON that another encoded. With next to no input and
// output, what is left is the cost of keeping a session.
func BenchmarkToolCall(b *testing.B) {
	type payload struct {
		input  json.RawMessage
		text   string
		output json.RawMessage // if text is empty
	}
	for _, size := range []struct {
		name string
		payload
	}{
		{"text", payload{payloadJSON, payloadText, nil}},
		{"json", payload{payloadJSON, "", payloadJSON}},
		{"tiny", payload{json.RawMessage(`{}`), "ok", nil}},
	} {
		p := size.payload
		call := func(ctx context.Context, turn *agenttrace.Turn) {
			_, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_1", Name: "write", RawInput: p.input,
				Kind: agenttrace.ToolEdit})
			if p.text != "" {
				tool.EndText(p.text)
			} else {
				tool.EndRaw(p.output)
			}
		}
		// turnEvery bounds the turn, as real turns are bounded. Its end is part of
		// what is measured: to stop the timer would cost more.
		const turnEvery = 64
		ours := func(b *testing.B, o agenttrace.Options) {
			o.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(discard{}))
			runCtx, run, _ := startTurnWith(o)
			ctx, turn := run.StartTurn(runCtx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%turnEvery == turnEvery-1 {
					turn.End(agenttrace.TurnResult{})
					ctx, turn = run.StartTurn(runCtx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
				}
				call(ctx, turn)
			}
		}
		b.Run(size.name+"/agenttrace-unredacted", func(b *testing.B) {
			ours(b, agenttrace.Options{DisableRedaction: true})
		})
		b.Run(size.name+"/agenttrace", func(b *testing.B) { ours(b, agenttrace.Options{}) })
		b.Run(size.name+"/agenttrace-live-unredacted", func(b *testing.B) {
			ours(b, agenttrace.Options{DisableRedaction: true, LoggerProvider: everything().LoggerProvider})
		})
		b.Run(size.name+"/agenttrace-everything", func(b *testing.B) { ours(b, everything()) })
		bare := func(b *testing.B, encode bool) {
			keep := &keepOne{}
			ctx, _, turn := startTurn(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(keep)))
			call(ctx, turn)
			attrs := keep.last.Attributes()
			tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(discard{})).Tracer("bench")
			ctx, parent := tracer.Start(context.Background(), "session.turn")
			defer parent.End()
			b.ReportAllocs()
			for b.Loop() {
				_, span := tracer.Start(ctx, "tool.call")
				kvs := make([]attribute.KeyValue, 0, len(attrs))
				for _, kv := range attrs {
					switch {
					case encode && kv.Key == semconv.GenAIToolCallArgumentsKey:
						kv = kv.Key.String(string(p.input))
					case encode && kv.Key == semconv.GenAIToolCallResultKey && p.text != "":
						text, err := json.Marshal(p.text)
						if err != nil {
							b.Fatal(err)
						}
						kv = kv.Key.String(string(text))
					case encode && kv.Key == semconv.GenAIToolCallResultKey:
						kv = kv.Key.String(string(p.output))
					}
					kvs = append(kvs, kv)
				}
				span.SetAttributes(kvs...)
				span.End()
			}
		}
		b.Run(size.name+"/bare-span", func(b *testing.B) { bare(b, true) })
		b.Run(size.name+"/bare-span-of-ready-strings", func(b *testing.B) { bare(b, false) })
	}
}

// BenchmarkTurn is a turn of ten parts: a reasoning, four tool calls of 3 KB, a
// text, and the steps between.
func BenchmarkTurn(b *testing.B) {
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(discard{}))
	ctx, run, _ := startTurn(tp)
	prompt := strings.Repeat("You are a careful engineer. ", 700)
	b.ReportAllocs()
	for b.Loop() {
		ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: payloadText[:500]},
			agenttrace.TurnOptions{SystemPrompt: prompt})
		for i := range 4 {
			_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
			if i == 0 {
				call.Reasoning(payloadText[:1024])
				call.Text("ok")
			}
			call.End(agenttrace.ModelResult{StopReason: "tool_use",
				Usage: agenttrace.InclusiveUsage{Input: 1000, Output: 100}},
				nil)
			_, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_1", Name: "write", RawInput: payloadJSON})
			tool.EndText(payloadText)
		}
		turn.Text(payloadText[:1024])
		turn.End(agenttrace.TurnResult{StopReason: "end_turn"})
	}
}

func off() trace.TracerProvider { return noop.NewTracerProvider() }

// offCalls are what an agent calls in a turn, by name.
func offCalls(ctx context.Context, run *agenttrace.Run) map[string]func() {
	input, output := payloadJSON, payloadText
	usage := agenttrace.InclusiveUsage{Input: int64(len(input)), Output: int64(len(output))}
	failure := errors.New("exit status 1")
	_, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: output}, agenttrace.TurnOptions{})
	return map[string]func(){
		"turn": func() {
			_, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: output},
				agenttrace.TurnOptions{SystemPrompt: output})
			turn.End(agenttrace.TurnResult{StopReason: "end_turn"})
		},
		"model-call": func() {
			_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
			call.Reasoning(output)
			call.Text(output)
			call.End(agenttrace.ModelResult{StopReason: "stop", Usage: usage}, nil)
		},
		"stream": func() {
			s := turn.StreamText()
			s.WriteString(output)
			s.Close()
		},
		"tool-call": func() {
			_, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_1", Name: "bash", RawInput: input})
			tool.EndText(output)
		},
		"tool-call-from-context": func() {
			_, tool := agenttrace.StartTool(ctx, agenttrace.ToolOptions{ID: "call_1", Name: "bash", RawInput: input})
			tool.InputDelta(output)
			tool.EndRaw(input)
		},
		"failed-tool-call": func() {
			_, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_1", Name: "bash", RawInput: input})
			tool.Fail(failure)
		},
		"authorize": func() {
			_, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_1", Name: "bash", RawInput: input})
			if tool.Authorize(ctx, "ls").Allowed() {
				panic("allowed without a rule")
			}
		},
		"compaction": func() {
			_, c := run.StartCompaction(ctx, agenttrace.CompactionOptions{Auto: true})
			c.End(agenttrace.CompactionResult{Summary: output, Usage: usage})
		},
		"source": func() { turn.SourceURL(agenttrace.SourceURL{URL: output}) },
	}
}

func TestOffAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates; measured without it")
		return
	}
	ctx, run, _ := startTurn(off())
	for name, call := range offCalls(ctx, run) {
		if n := testing.AllocsPerRun(100, call); n != 0 {
			t.Errorf("%s: %v allocations with tracing off, want none", name, n)
		}
	}
}
