// Package mcptrace records the Model Context Protocol: middleware for clients and servers of
// github.com/modelcontextprotocol/go-sdk.
//
//	client.AddSendingMiddleware(mcptrace.Client(mcptrace.Options{}))
//	server.AddReceivingMiddleware(mcptrace.Server(mcptrace.Options{}))
//
// A tools/call in the context of a turn is the tool call that the model requested, with the exact times of its
// execution: the one whose id is in the context ([WithCallID]), or else the one that has the same name and
// arguments and has not begun, such as one that package modelhttp saw in the model's answer. If there is none, it
// is a new one. In the context of a tool call that the agent itself reports, it is part of that.
//
// Every other request, and a tools/call without a turn, is a CLIENT span as the conventions of OpenTelemetry
// describe it. The trace context goes to the server in the members traceparent, tracestate and baggage of _meta
// (SEP-414), where the server's middleware takes it from: a session that a tool of the server begins is then one of
// a sub-agent. See [Options].Foreign for servers and clients of others.
package mcptrace

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
)

// Options configures the middleware. The zero value is ready to use.
type Options struct {
	// TracerProvider has the spans that are not tool calls of a turn; nil means the global one.
	TracerProvider trace.TracerProvider
	// ToolName returns the name by which the model knows a tool of the server; nil means that of the server.
	ToolName func(tool string) string
	// Foreign reports that the other side belongs to somebody else. It gets the trace context only,
	// and not the baggage with the ids of the session and of the user message; of what it sends,
	// the baggage is not read either, with which it could choose the parent of a session.
	Foreign bool
}

const callTool = "tools/call"

type callIDKey struct{}

// WithCallID returns a context in which a tools/call is the tool call of that id in the model's answer.
func WithCallID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, callIDKey{}, id)
}

// Client returns middleware for the requests that a client, or a server, sends.
func Client(o Options) mcp.Middleware {
	tracer := o.tracer()
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if strings.HasPrefix(method, "notifications/") {
				return next(ctx, method, o.inject(ctx, req))
			}
			attrs := attributes(method, req)
			inTool, tool := o.startTool(ctx, method, req)
			switch {
			case tool == nil:
			case tool == agenttrace.ToolFromContext(ctx): // the agent reports it
				return next(ctx, method, o.inject(ctx, req))
			default:
				ctx = inTool
				defer tool.Abort() // a panic
				trace.SpanFromContext(ctx).SetAttributes(attrs...)
				result, err := next(ctx, method, o.inject(ctx, req))
				endTool(tool, result, err)
				return result, err
			}
			ctx, span := tracer.Start(ctx, name(method, attrs), trace.WithSpanKind(trace.SpanKindClient),
				trace.WithAttributes(attrs...))
			defer span.End()
			result, err := next(ctx, method, o.inject(ctx, req))
			fail(span, result, err)
			return result, err
		}
	}
}

// Server returns middleware for the requests that a server, or a client, receives.
func Server(o Options) mcp.Middleware {
	tracer := o.tracer()
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			ambient := trace.SpanContextFromContext(ctx)
			ctx = o.extract(ctx, req)
			if strings.HasPrefix(method, "notifications/") {
				return next(ctx, method, req)
			}
			attrs := attributes(method, req)
			options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attrs...)}
			if ambient.IsValid() && !ambient.Equal(trace.SpanContextFromContext(ctx)) {
				options = append(options, trace.WithLinks(trace.Link{SpanContext: ambient}))
			}
			ctx, span := tracer.Start(ctx, name(method, attrs), options...)
			defer span.End()
			result, err := next(ctx, method, req)
			fail(span, result, err)
			return result, err
		}
	}
}

func (o Options) tracer() trace.Tracer {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	return o.TracerProvider.Tracer("github.com/agenttrace/agenttrace/contrib/mcp")
}

// startTool begins the execution of the tool call that a request is. If the agent reports the
// call itself, it returns that. It returns nil for other requests, and without a turn.
func (o Options) startTool(
	ctx context.Context, method string, req mcp.Request,
) (context.Context, *agenttrace.ToolCall) {
	params, ok := req.GetParams().(*mcp.CallToolParams)
	if !ok || method != callTool || params == nil {
		return ctx, nil
	}
	call := agenttrace.ToolOptions{Name: params.Name, Input: params.Arguments, Dynamic: true}
	if o.ToolName != nil {
		call.Name = o.ToolName(params.Name)
	}
	if outer := agenttrace.ToolFromContext(ctx); outer != nil {
		if outer.Name() != call.Name {
			return ctx, nil // a tool that makes a request
		}
		return ctx, outer
	}
	if call.Input == nil {
		call.Input = json.RawMessage("{}")
	}
	call.ID, _ = ctx.Value(callIDKey{}).(string)
	return agenttrace.StartTool(ctx, call)
}

// endTool ends a tool call with its result: the text or the structured content that the model gets.
func endTool(tool *agenttrace.ToolCall, result mcp.Result, err error) {
	r, _ := result.(*mcp.CallToolResult)
	switch {
	case err != nil:
		tool.Fail(err)
	case r == nil:
		tool.End(nil)
	case r.IsError:
		tool.Fail(toolError(text(r)))
	case r.StructuredContent != nil:
		tool.End(r.StructuredContent)
	default:
		tool.End([]byte(text(r)))
	}
}

// text returns the content of a result: the text if it is nothing else, or JSON.
func text(r *mcp.CallToolResult) string {
	if len(r.Content) == 1 {
		if t, ok := r.Content[0].(*mcp.TextContent); ok {
			return t.Text
		}
	}
	data, err := json.Marshal(r.Content)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// toolError is the text of a tool that failed.
type toolError string

func (e toolError) Error() string     { return string(e) }
func (e toolError) ErrorType() string { return "tool_error" }

// attributes are those of the conventions for a request.
func attributes(method string, req mcp.Request) []attribute.KeyValue {
	attrs := []attribute.KeyValue{attribute.String("mcp.method.name", method)}
	if s := req.GetSession(); s != nil && s.ID() != "" {
		attrs = append(attrs, attribute.String("mcp.session.id", s.ID()))
	}
	switch p := req.GetParams().(type) {
	case *mcp.CallToolParams:
		attrs = append(attrs, toolName(p.Name)...)
	case *mcp.CallToolParamsRaw:
		attrs = append(attrs, toolName(p.Name)...)
	case *mcp.GetPromptParams:
		attrs = append(attrs, attribute.String("gen_ai.prompt.name", p.Name))
	case *mcp.ReadResourceParams:
		attrs = append(attrs, attribute.String("mcp.resource.uri", p.URI))
	}
	return attrs
}

func toolName(name string) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", "execute_tool"), attribute.String("gen_ai.tool.name", name),
	}
}

// name returns the name of a request's span.
func name(method string, attrs []attribute.KeyValue) string {
	for _, kv := range attrs {
		if kv.Key == "gen_ai.tool.name" || kv.Key == "gen_ai.prompt.name" {
			return method + " " + kv.Value.AsString()
		}
	}
	return method
}

// fail records that a request failed, by the protocol or by its tool.
func fail(span trace.Span, result mcp.Result, err error) {
	var protocol *jsonrpc.Error
	switch r, _ := result.(*mcp.CallToolResult); {
	case errors.As(err, &protocol):
		code := strconv.FormatInt(protocol.Code, 10)
		span.SetAttributes(attribute.String("rpc.response.status_code", code), attribute.String("error.type", code))
		span.SetStatus(codes.Error, err.Error())
	case err != nil:
		span.SetAttributes(attribute.String("error.type", "_OTHER"))
		span.SetStatus(codes.Error, err.Error())
	case r != nil && r.IsError:
		span.SetAttributes(attribute.String("error.type", toolError("").ErrorType()))
		span.SetStatus(codes.Error, text(r))
	}
}

// inject returns the request with the trace context in its _meta. The caller's params stay as
// they are: they may be used for several requests.
func (o Options) inject(ctx context.Context, req mcp.Request) mcp.Request {
	if isNil(req.GetParams()) {
		return req
	}
	params := clone(req.GetParams())
	meta := maps.Clone(params.GetMeta())
	if meta == nil {
		meta = make(map[string]any)
	}
	if o.Foreign {
		propagation.TraceContext{}.Inject(ctx, agenttrace.Meta(meta))
	} else {
		agenttrace.Inject(ctx, agenttrace.Meta(meta))
	}
	params.SetMeta(meta)
	// The type of a request has that of its params as a parameter.
	out := clone(req)
	reflect.ValueOf(out).Elem().FieldByName("Params").Set(reflect.ValueOf(params))
	return out
}

// clone returns a shallow copy of what v points to.
func clone[T any](v T) T {
	from := reflect.ValueOf(v)
	to := reflect.New(from.Type().Elem())
	to.Elem().Set(from.Elem())
	return to.Interface().(T)
}

// isNil reports whether a request has no params, which may be a pointer that is nil.
func isNil(params mcp.Params) bool {
	v := reflect.ValueOf(params)
	return v.Kind() != reflect.Pointer || v.IsNil()
}

// extract returns ctx with the trace context in a request's _meta, if there is one.
func (o Options) extract(ctx context.Context, req mcp.Request) context.Context {
	if isNil(req.GetParams()) {
		return ctx
	}
	meta := agenttrace.Meta(req.GetParams().GetMeta())
	if o.Foreign {
		return propagation.TraceContext{}.Extract(ctx, meta)
	}
	return agenttrace.Extract(ctx, meta)
}
