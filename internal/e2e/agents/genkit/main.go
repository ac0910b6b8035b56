// Command genkit is a program on Genkit: genkit <OTLP/HTTP endpoint | store>.
//
// It makes scripted runs and prints, as a line of JSON for each request, what Genkit itself gave back. When it ends,
// its spans have been exported, or, where a file is named, written into that session store in this very process.
//
// It is a module of its own so that what Genkit requires is nobody else's burden.
package main

import (
	"context"
	_ "embed" // of the script
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

// A turn is printed as a line, as package agents reads it.
type (
	turn struct {
		Run, Session    string
		Traces          []string
		User, System    string
		Tools           []string
		Steps           []step
		Calls, Failures int
		Usage           *usage
		Finish, Error   string
	}
	step struct {
		Reasoning, Text string
		Calls           []call
	}
	call struct {
		ID, Name      string
		Input, Output any
		Error         string
	}
	usage struct {
		Input, Output, Reasoning int
		CacheRead                int `json:"cache_read"`
	}
)

// request is a run of the flow. History has what the user and the model said before.
type request struct {
	Run, Session, System, User string
	History                    []string
	Script                     []answer
	Stream                     bool
}

// answer is what the model is to say: the tokens are disjoint.
type answer struct {
	Reasoning, Text, Error string
	Calls                  []*ai.ToolRequest
	Usage                  usage
}

//go:embed script.json
var script []byte

// program is the program while it runs. Genkit runs tools on goroutines.
type program struct {
	g      *genkit.Genkit
	tracer trace.Tracer

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
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "genkit"))))
	otel.SetTracerProvider(provider)

	p := &program{g: genkit.Init(ctx), tracer: provider.Tracer("application")}
	if err := p.runs(ctx); err != nil {
		return err
	}
	return provider.Shutdown(ctx)
}

// define defines a tool of the program, which notes what it came to: of a call that fails Genkit gives nothing back.
func (p *program) define(name, description string, do func(in map[string]string) (any, error)) ai.ToolRef {
	return genkit.DefineTool(p.g, name, description, func(_ *ai.ToolContext, in map[string]string) (any, error) {
		out, err := do(in)
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, s := range p.saw.Steps {
			for i := range s.Calls {
				if c := &s.Calls[i]; c.Name == name && err != nil {
					c.Error = err.Error()
				} else if c.Name == name {
					c.Output = out
				}
			}
		}
		return out, err
	})
}

func (p *program) runs(ctx context.Context) error {
	model := genkit.DefineModel(p.g, "scripted/mock-1",
		&ai.ModelOptions{Supports: &ai.ModelSupports{Multiturn: true, Tools: true, SystemRole: true}}, p.answer)
	tools := []ai.ToolRef{
		p.define("weather", "the weather of a city", func(in map[string]string) (any, error) {
			return map[string]any{"city": in["city"], "degrees": []float64{12, 17.5}, "sky": "clear"}, nil
		}),
		p.define("clock", "the time of a zone", func(in map[string]string) (any, error) {
			return nil, fmt.Errorf("no zone %s", in["zone"])
		}),
		p.define("note", "writes a line down", func(in map[string]string) (any, error) { return "noted: " + in["line"], nil }),
	}
	generate := func(ctx context.Context, r request, chunk ai.ModelStreamCallback) (string, error) {
		p.saw.Traces = []string{trace.SpanContextFromContext(ctx).TraceID().String()}
		var messages []*ai.Message
		for i, text := range append(r.History, r.User) {
			said := []func(string) *ai.Message{ai.NewUserTextMessage, ai.NewModelTextMessage}
			messages = append(messages, said[i%2](text))
		}
		options := []ai.GenerateOption{
			ai.WithModel(model), ai.WithTools(tools...), ai.WithMessages(messages...), ai.WithMiddleware(p.watch),
		}
		if r.System != "" {
			options = append(options, ai.WithSystem(r.System))
		}
		if chunk != nil {
			options = append(options, ai.WithStreaming(chunk))
		}
		response, err := genkit.Generate(ctx, p.g, options...)
		if err != nil {
			return "", err
		}
		p.saw.Finish = string(response.FinishReason)
		return response.Text(), nil
	}
	var asked request // by the flow's caller, who waits for it
	assistant := genkit.DefineFlow(p.g, "assistant", func(ctx context.Context, _ string) (string, error) {
		return generate(ctx, asked, nil)
	})
	streaming := genkit.DefineStreamingFlow(p.g, "streaming-assistant",
		func(ctx context.Context, _ string, send core.StreamCallback[string]) (string, error) {
			return generate(ctx, asked, func(ctx context.Context, c *ai.ModelResponseChunk) error {
				return send(ctx, c.Text())
			})
		})

	do := func(ctx context.Context, r request) error {
		asked = r
		p.script, p.saw = r.Script, turn{Run: r.Run, Session: r.Session, User: r.User, System: r.System,
			Tools: []string{"weather", "clock", "note"}, Steps: []step{}}
		if r.Session != "" { // Genkit for Go has no sessions: the application's own span names it
			var span trace.Span
			ctx, span = p.tracer.Start(ctx, "POST /chat", trace.WithAttributes(attribute.String("session.id", r.Session)))
			defer span.End()
		}
		var failed error
		var streamed, whole string
		if !r.Stream {
			_, failed = assistant.Run(ctx, r.User)
		} else {
			streaming.Stream(ctx, r.User)(func(v *core.StreamingFlowValue[string, string], err error) bool {
				if failed = errors.Join(failed, err); v != nil && v.Done {
					whole = v.Output
				} else if v != nil {
					streamed += v.Stream
				}
				return true
			})
		}
		if failed != nil {
			p.saw.Error = failed.Error()
		} else if !strings.HasSuffix(streamed, whole) {
			return fmt.Errorf("streamed %q, but the answer is %q", streamed, whole)
		}
		return json.NewEncoder(os.Stdout).Encode(p.saw)
	}

	var requests []request
	if err := json.Unmarshal(script, &requests); err != nil {
		return err
	}
	for _, r := range requests {
		if err := do(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", r.Run, err)
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
	if a.Error != "" {
		p.saw.Failures++
		return nil, errors.New(a.Error)
	}
	var parts []*ai.Part
	if a.Reasoning != "" {
		parts = append(parts, ai.NewReasoningPart(a.Reasoning, nil))
	}
	if a.Text != "" {
		parts = append(parts, ai.NewTextPart(a.Text))
	}
	for _, c := range a.Calls {
		parts = append(parts, ai.NewToolRequestPart(c))
	}
	for _, part := range parts {
		if send != nil {
			if err := send(ctx, &ai.ModelResponseChunk{Content: []*ai.Part{part}}); err != nil {
				return nil, err
			}
		}
	}
	u := a.Usage
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
