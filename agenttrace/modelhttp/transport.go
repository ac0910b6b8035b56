// Package modelhttp records the model calls of an agent that has no instrumentation of its
// own, where they pass anyway: at its HTTP client.
//
//	client := &http.Client{Transport: modelhttp.New(tracer, modelhttp.Options{Agent: "coder"})}
//
// The tracer needs a tracer provider, as setup.Init of agenttrace/setup sets it. Without one nothing
// is stored, which is reported to otel.Handle once.
//
// Give the client to the provider's library (option.WithHTTPClient of anthropic-sdk-go and openai-go,
// ClientConfig.HTTPClient of genai, Options.HTTPClient of the AWS SDK), or give the first two
// [Transport.Middleware]. The requests of an agent have its whole conversation, and the answers have the rest, so
// that sessions come to have what they have with package agenttrace: turns with their messages, reasoning, tool
// calls with input and output, usage, the model, the system prompt and the tools.
//
// Requests are recognized by their path and body: Anthropic Messages, OpenAI chat
// completions and Responses, Gemini generateContent, Bedrock Converse and InvokeModel, Ollama's chat, each
// also where another cloud or a compatible server offers it. Everything else passes.
//
// A [Transport] changes nothing for the agent: answers are parsed as the agent reads them, with bounded buffers,
// errors stay the same, and a mistake in parsing is reported to otel.Handle and to nobody else. An answer that is
// closed before its end is an aborted call. Attempts of one request are one call. A count that the provider did not
// send is missing, and never zero.
//
// A request belongs to the turn in its context, to the session that [WithSession], the baggage or
// [Options].SessionKey names, or else to the conversation that it continues; a server with many users
// does best to name the session. docs/modelhttp.md has the rules for that, and for what is a turn, a
// sub-agent, a call beside the conversation, and a compaction.
package modelhttp

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
)

// Options configures a [Transport]. The zero value is ready to use.
type Options struct {
	// Agent names the agent; empty means the name of the program.
	Agent string
	// Base sends the requests; nil means [http.DefaultTransport]. A middleware does not use it.
	Base http.RoundTripper
	// SessionKey returns the id of the session that a request belongs to, or "" if it does not know. Nil knows
	// none. See the package documentation for what takes precedence over it.
	SessionKey func(*http.Request) string
	// Session is what new sessions begin with. Its ID and Agent are not used.
	Session agenttrace.SessionOptions

	// Now is the tracer's clock; nil means [time.Now].
	Now func() time.Time

	// MaxConversations and MaxBytes bound what is remembered of conversations, to recognize their next request;
	// what was used longest ago is forgotten. Zero means 10,000 and 64 MiB.
	MaxConversations int
	MaxBytes         int64
	// MaxBodyBytes bounds the size of a request or an answer that is parsed, and of an
	// event in a stream. Zero means 32 MiB. What is larger passes, and is not recorded.
	MaxBodyBytes int
	// Decoders decompress requests and answers of other encodings than gzip and deflate, by their names in
	// Content-Encoding, such as "br" and "zstd". The content of what nobody decompresses is not recorded.
	Decoders map[string]Decoder
	// OnlyNumbered has no attempts be one call but those that the client numbers: another instrumentation, with which
	// the calls are compared, may report each by itself.
	OnlyNumbered bool
	// IdleTimeout is how long a turn waits for the results of its tool calls. Zero means an hour.
	IdleTimeout time.Duration
}

// Transport is an [http.RoundTripper] that records model calls as sessions. Make one per
// process with [New], and share it; it is safe for concurrent use. The zero Transport records nothing.
type Transport struct {
	tracer *agenttrace.Tracer
	o      Options
	reg    registry
	// passed counts the requests that nobody recognizes; paths are theirs, of which so many are reported.
	passed, reported atomic.Int64
	paths            sync.Map
}

// New returns a transport that records with the tracer, which may be nil: then nothing is recorded.
func New(tracer *agenttrace.Tracer, o Options) *Transport {
	o.Agent = cmp.Or(o.Agent, filepath.Base(os.Args[0]))
	o.MaxConversations = positive(o.MaxConversations, 10_000)
	o.MaxBytes = positive(o.MaxBytes, 64<<20)
	o.MaxBodyBytes = positive(o.MaxBodyBytes, 32<<20)
	o.IdleTimeout = positive(o.IdleTimeout, time.Hour)
	if o.Now == nil {
		o.Now = time.Now
	}
	t := &Transport{tracer: tracer, o: o}
	t.reg.t = t
	return t
}

// positive returns n, or else what is usual.
func positive[N ~int | ~int64](n, usual N) N {
	if n > 0 {
		return n
	}
	return usual
}

// Unrecognized returns how many requests with a JSON document were sent to a path that is of none of the APIs of models
// that are known, and were not recorded. Each path is reported to otel.Handle once.
func (t *Transport) Unrecognized() int64 { return t.passed.Load() }

// base is what sends requests.
func (t *Transport) base() http.RoundTripper { return cmp.Or(t.o.Base, http.DefaultTransport) }

// CloseIdleConnections closes those of the base, as [http.Client.CloseIdleConnections] asks.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Close ends the turns that are open: those that wait for results of tools, or for a call to be tried again or to be
// answered. Call it before the tracer provider is shut down. The transport goes on to work. It always returns nil.
func (t *Transport) Close() error {
	t.reg.end()
	return nil
}

type sessionKey struct{}

// WithSession returns a context whose requests belong to the session of the id.
func WithSession(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, sessionKey{}, id)
}

// declaredSession returns the id of the session that a request names, or "".
func (t *Transport) declaredSession(req *http.Request) string {
	ctx := req.Context()
	if id, _ := ctx.Value(sessionKey{}).(string); id != "" {
		return id
	}
	for _, key := range [...]string{"session.id", "gen_ai.conversation.id"} {
		if id := baggage.FromContext(ctx).Member(key).Value(); id != "" {
			return id
		}
	}
	if t.o.SessionKey != nil {
		return t.o.SessionKey(req)
	}
	return ""
}

// recovered keeps a panic of ours from the program that is observed.
func recovered() {
	if p := recover(); p != nil {
		otel.Handle(fmt.Errorf("record a model call: panic: %v", p))
	}
}

// ownSpans is the scope of the spans that anthropic-sdk-go emits of its calls, with usage.
const ownSpans = "com.anthropic.sdk.go"

// countedElsewhere reports whether the context's span is one of a client that emits the usage of its calls itself.
// The method that gives a span's scope is that of the SDK, which we do not import.
func countedElsewhere(ctx context.Context) bool {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return false // most often there is none, and reflection takes microseconds
	}
	scope := reflect.ValueOf(span).MethodByName("InstrumentationScope")
	if !scope.IsValid() || scope.Type().NumIn() != 0 || scope.Type().NumOut() != 1 {
		return false
	}
	return strings.HasPrefix(fmt.Sprintf("%+v", scope.Call(nil)[0]), "{Name:"+ownSpans)
}
