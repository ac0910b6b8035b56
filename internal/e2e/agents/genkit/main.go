// Command genkit is a program on Genkit: genkit <OTLP/HTTP endpoint | store>.
//
// It makes scripted runs and prints, as a line of JSON for each request, what
// Genkit itself gave back. When it ends, its spans have been exported, or, where
// a file is named, written into that session store in this very process.
//
// It is a module of its own so that what Genkit requires is nobody else's burden.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/core"
	"github.com/firebase/genkit/go/genkit"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/session/recorder"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: genkit <OTLP/HTTP endpoint | store>")
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

// The lines that are printed, as package agents reads them.
type (
	turn struct {
		Run      string   `json:"run"`
		Session  string   `json:"session"`
		Traces   []string `json:"traces"`
		User     string   `json:"user"`
		System   string   `json:"system"`
		Tools    []string `json:"tools"`
		Steps    []step   `json:"steps"`
		Calls    int      `json:"calls"`
		Failures int      `json:"failures"`
		Usage    *usage   `json:"usage"`
		Finish   string   `json:"finish"`
		Error    string   `json:"error"`
	}
	step struct {
		Reasoning string `json:"reasoning"`
		Text      string `json:"text"`
		Calls     []call `json:"calls"`
	}
	call struct {
		ID     string `json:"id"`
		Name   string `json:"name"`
		Input  any    `json:"input"`
		Output any    `json:"output"`
		Error  string `json:"error"`
	}
	usage struct {
		Input     int `json:"input"`
		Output    int `json:"output"`
		Reasoning int `json:"reasoning"`
		CacheRead int `json:"cache_read"`
	}
)

// answer is what the model is to say: the tokens are disjoint.
type answer struct {
	reasoning, text string
	calls           []*ai.ToolRequest
	usage           usage
	err             error
}

// program is the program while it runs. Genkit runs tools on goroutines.
type program struct {
	g      *genkit.Genkit
	tracer trace.Tracer
	traces *traces

	mu     sync.Mutex
	script []answer
	saw    turn
}

func run(ctx context.Context, to string) (err error) {
	var exporter sdktrace.SpanExporter
	if strings.HasPrefix(to, "http://") {
		exporter, err = otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(to+"/v1/traces"))
	} else {
		var r *recorder.Recorder
		if r, err = recorder.Open(ctx, to, recorder.Options{}); err == nil {
			defer func() { err = errors.Join(err, r.Close(ctx)) }()
			exporter = r.SpanExporter()
		}
	}
	if err != nil {
		return err
	}
	began := new(traces)
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "genkit"))),
		sdktrace.WithSpanProcessor(began), sdktrace.WithBatcher(exporter))
	otel.SetTracerProvider(provider)

	p := &program{g: genkit.Init(ctx), tracer: provider.Tracer("application"), traces: began}
	if err := p.runs(ctx); err != nil {
		return err
	}
	return provider.Shutdown(ctx)
}

type city struct {
	City string `json:"city"`
}

type zone struct {
	Zone string `json:"zone"`
}

type line struct {
	Line string `json:"line"`
}

type forecast struct {
	City    string    `json:"city"`
	Sky     string    `json:"sky"`
	Degrees []float64 `json:"degrees"`
}

// request is a run of the flow.
type request struct {
	name, session, system, user string
	history                     []*ai.Message
	script                      []answer
	stream                      bool
}

func (p *program) runs(ctx context.Context) error {
	model := genkit.DefineModel(p.g, "scripted/mock-1",
		&ai.ModelOptions{Supports: &ai.ModelSupports{Multiturn: true, Tools: true, SystemRole: true}}, p.answer)
	tools := []ai.ToolRef{
		genkit.DefineTool(p.g, "weather", "the weather of a city", func(_ *ai.ToolContext, in city) (forecast, error) {
			return forecast{in.City, "clear", []float64{12, 17.5}}, nil
		}),
		genkit.DefineTool(p.g, "clock", "the time of a zone", func(_ *ai.ToolContext, in zone) (string, error) {
			err := fmt.Errorf("no zone %s", in.Zone)
			p.fail("clock", err)
			return "", err
		}),
		genkit.DefineTool(p.g, "note", "writes a line down", func(_ *ai.ToolContext, in line) (string, error) {
			return "noted: " + in.Line, nil
		}),
	}
	var asked request // by the flow's caller, who waits for it
	var last *ai.ModelResponse
	generate := func(ctx context.Context, prompt string, chunk ai.ModelStreamCallback) (string, error) {
		options := []ai.GenerateOption{
			ai.WithModel(model), ai.WithTools(tools...),
			ai.WithMessages(append(asked.history, ai.NewUserTextMessage(prompt))...), ai.WithMiddleware(p.watch),
		}
		if asked.system != "" {
			options = append(options, ai.WithSystem(asked.system))
		}
		if chunk != nil {
			options = append(options, ai.WithStreaming(chunk))
		}
		response, err := genkit.Generate(ctx, p.g, options...)
		if err != nil {
			return "", err
		}
		last = response
		return response.Text(), nil
	}
	assistant := genkit.DefineFlow(p.g, "assistant", func(ctx context.Context, prompt string) (string, error) {
		return generate(ctx, prompt, nil)
	})
	streaming := genkit.DefineStreamingFlow(p.g, "streaming-assistant",
		func(ctx context.Context, prompt string, send core.StreamCallback[string]) (string, error) {
			return generate(ctx, prompt, func(ctx context.Context, c *ai.ModelResponseChunk) error {
				for _, part := range c.Content {
					if part.IsText() {
						if err := send(ctx, part.Text); err != nil {
							return err
						}
					}
				}
				return nil
			})
		})

	do := func(r request) error {
		asked, last = r, nil
		p.script, p.saw = r.script, turn{Run: r.name, Session: r.session, User: r.user, System: r.system,
			Tools: []string{"weather", "clock", "note"}, Steps: []step{}}
		if r.session != "" { // Genkit for Go has no sessions: the application's own span names it
			ctx, span := p.tracer.Start(ctx, "POST /chat",
				trace.WithAttributes(attribute.String("session.id", r.session)))
			_, err := assistant.Run(ctx, r.user)
			span.End()
			return p.print(last, err)
		}
		if !r.stream {
			_, err := assistant.Run(ctx, r.user)
			return p.print(last, err)
		}
		var failed error
		var streamed string
		streaming.Stream(ctx, r.user)(func(v *core.StreamingFlowValue[string, string], err error) bool {
			failed = errors.Join(failed, err)
			if v != nil && !v.Done {
				streamed += v.Stream
			}
			return true
		})
		if last != nil && !strings.HasSuffix(streamed, last.Text()) {
			return fmt.Errorf("streamed %q, but the answer is %q", streamed, last.Text())
		}
		return p.print(last, failed)
	}

	twoTools := []answer{
		{text: "Looking both up.", usage: usage{40, 12, 0, 10}, calls: []*ai.ToolRequest{
			{Ref: "call_weather", Name: "weather", Input: map[string]any{"city": "Zürich"}},
			{Ref: "call_note", Name: "note", Input: map[string]any{"line": "Zürich"}},
		}},
		{text: "Clear sky, and noted.", usage: usage{60, 9, 0, 45}},
	}
	threeSteps := []answer{
		{reasoning: "First the weather.", usage: usage{21, 5, 3, 7},
			calls: []*ai.ToolRequest{{Ref: "call_1", Name: "weather", Input: map[string]any{"city": "Oslo"}}}},
		{text: "Now I note it.", usage: usage{11, 8, 0, 28},
			calls: []*ai.ToolRequest{{Ref: "call_2", Name: "note", Input: map[string]any{"line": "Oslo is clear"}}}},
		{reasoning: "Done.", text: "Oslo is clear, and it is noted.", usage: usage{13, 10, 4, 39}},
	}
	const conversation = "genkit/turns"
	greeting := []*ai.Message{ai.NewUserTextMessage("I am Ada."), ai.NewModelTextMessage("Hello, Ada.")}
	for _, r := range []request{
		{name: "text", system: "You answer in one sentence.", user: "Who are you?",
			script: []answer{{text: "A scripted model.", usage: usage{30, 6, 0, 0}}}},
		{name: "stream", user: "Think, then speak.", stream: true,
			script: []answer{{
				reasoning: "What shall I say?", text: "This is what I say: grüezi 👋", usage: usage{20, 7, 5, 8},
			}}},
		{name: "tools", user: "Weather, and note it.", script: twoTools},
		{name: "steps", user: "Note the weather of Oslo.", script: threeSteps},
		{name: "stream-steps", user: "Note the weather of Oslo.", stream: true, script: threeSteps},
		{name: "tool-error", user: "What time is it?", script: []answer{
			{text: "Looking.", usage: usage{9, 4, 0, 0},
				calls: []*ai.ToolRequest{
					{Ref: "call_clock", Name: "clock", Input: map[string]any{"zone": "Mars/Olympus"}},
				}},
		}},
		{name: "error", user: "Fail.", script: []answer{{err: errors.New("the model is overloaded")}}},
		{name: "turns", session: conversation, user: "I am Ada.",
			script: []answer{{text: "Hello, Ada.", usage: usage{10, 4, 0, 0}}}},
		{name: "turns", session: conversation, user: "Who am I?", history: greeting,
			script: []answer{{text: "You are Ada.", usage: usage{6, 4, 0, 10}}}},
	} {
		if err := do(r); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return nil
}

// answer is the model.
func (p *program) answer(ctx context.Context, _ *ai.ModelRequest, send ai.ModelStreamCallback) (*ai.ModelResponse,
	error) {
	if len(p.script) == 0 {
		return nil, errors.New("the script has no more answers")
	}
	a := p.script[0]
	p.script = p.script[1:]
	p.saw.Calls++
	if a.err != nil {
		p.saw.Failures++
		return nil, a.err
	}
	var parts []*ai.Part
	if a.reasoning != "" {
		parts = append(parts, ai.NewReasoningPart(a.reasoning, nil))
	}
	if a.text != "" {
		parts = append(parts, ai.NewTextPart(a.text))
	}
	for _, c := range a.calls {
		parts = append(parts, ai.NewToolRequestPart(c))
	}
	for _, part := range parts {
		if send != nil {
			if err := send(ctx, &ai.ModelResponseChunk{Content: []*ai.Part{part}}); err != nil {
				return nil, err
			}
		}
	}
	u := a.usage
	return &ai.ModelResponse{
		Message:      ai.NewModelMessage(parts...),
		FinishReason: ai.FinishReasonStop,
		Usage: &ai.GenerationUsage{
			InputTokens: u.Input + u.CacheRead, CachedContentTokens: u.CacheRead, OutputTokens: u.Output,
			ThoughtsTokens: u.Reasoning,
			TotalTokens:    u.Input + u.CacheRead + u.Output + u.Reasoning,
		},
	}, nil
}

// watch is what the program sees of each answer: Genkit gives back the last only.
func (p *program) watch(next ai.ModelFunc) ai.ModelFunc {
	return func(ctx context.Context, request *ai.ModelRequest, send ai.ModelStreamCallback) (*ai.ModelResponse, error) {
		p.results(request.Messages)
		response, err := next(ctx, request, send)
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		s := step{Reasoning: response.Reasoning(), Calls: []call{}}
		for _, part := range response.Message.Content {
			switch {
			case part.IsText():
				s.Text += part.Text
			case part.IsToolRequest():
				s.Calls = append(s.Calls, call{ID: part.ToolRequest.Ref, Name: part.ToolRequest.Name,
					Input: part.ToolRequest.Input})
			}
		}
		p.saw.Steps = append(p.saw.Steps, s)
		if p.saw.Usage == nil {
			p.saw.Usage = new(usage)
		}
		u, sum := response.Usage, p.saw.Usage
		sum.Input += u.InputTokens - u.CachedContentTokens
		sum.CacheRead += u.CachedContentTokens
		sum.Output += u.OutputTokens
		sum.Reasoning += u.ThoughtsTokens
		return response, nil
	}
}

// results notes what the tools answered, which the next request reports.
func (p *program) results(messages []*ai.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range messages {
		for _, part := range m.Content {
			if !part.IsToolResponse() {
				continue
			}
			for i := range p.saw.Steps {
				for j := range p.saw.Steps[i].Calls {
					if c := &p.saw.Steps[i].Calls[j]; c.ID == part.ToolResponse.Ref {
						c.Output = part.ToolResponse.Output
					}
				}
			}
		}
	}
}

// fail notes that a tool failed: Genkit then gives up, and gives nothing back.
func (p *program) fail(tool string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.saw.Steps {
		for j := range p.saw.Steps[i].Calls {
			if c := &p.saw.Steps[i].Calls[j]; c.Name == tool {
				c.Error = err.Error()
			}
		}
	}
}

// print prints what was seen of a request that ended with last, or failed.
func (p *program) print(last *ai.ModelResponse, failed error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if failed != nil {
		p.saw.Error = failed.Error()
	} else {
		p.saw.Finish = string(last.FinishReason)
	}
	p.saw.Traces = p.traces.take()
	return json.NewEncoder(os.Stdout).Encode(p.saw)
}

// traces is a span processor that remembers which traces were begun.
type traces struct {
	mu    sync.Mutex
	begun []string
}

func (t *traces) take() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	begun := t.begun
	t.begun = nil
	return begun
}

// OnStart implements [sdktrace.SpanProcessor].
func (t *traces) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	if s.Parent().IsValid() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun = append(t.begun, s.SpanContext().TraceID().String())
}

// OnEnd implements [sdktrace.SpanProcessor].
func (t *traces) OnEnd(sdktrace.ReadOnlySpan) {}

// Shutdown implements [sdktrace.SpanProcessor].
func (t *traces) Shutdown(context.Context) error { return nil }

// ForceFlush implements [sdktrace.SpanProcessor].
func (t *traces) ForceFlush(context.Context) error { return nil }
