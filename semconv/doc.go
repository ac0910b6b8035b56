// Package semconv defines the names, attribute keys and enumerations of everything that agenttrace puts on spans and
// events. CONVENTIONS.md lists them with type, unit and example.
//
// Keys have three origins. Those of group floor (session_id, turn_index, tool_id, …) are prescribed by the agent
// guide and used verbatim. Those of group mirror (gen_ai.*, session.id, user.id, error.type) follow OpenTelemetry and
// its GenAI conventions, so other tools understand the span as well; they are defined here because recent versions of
// the Go semconv packages have no gen_ai.* keys. Where neither has a key, group own defines one below agenttrace.*.
package semconv

// SchemaURL identifies this version of the conventions. The SDK sets it on its tracers and loggers.
const SchemaURL = "https://agenttrace.github.io/schemas/0.1.0"

// ScopeName is the instrumentation scope of everything that the SDK emits.
const ScopeName = "github.com/agenttrace/agenttrace"

// Names of the five span kinds.
const (
	SpanSessionRun         = "session.run"
	SpanSessionTurn        = "session.turn"
	SpanToolCall           = "tool.call"
	SpanCompactionRun      = "compaction.run"
	SpanPermissionEvaluate = "permission.evaluate"
)

// Names of the live events, which the SDK emits as log records.
const (
	// EventSession reports that a run began or its session changed.
	EventSession = "agenttrace.session"
	// EventMessage reports that a message began or changed.
	EventMessage = "agenttrace.message"
	// EventPart reports that a part began, grew or changed its state.
	EventPart = "agenttrace.part"
	// EventStatus reports what the session is doing.
	EventStatus = "agenttrace.status"
	// EventEvaluation reports a score. It is an event of the GenAI conventions, and may also be one of a span.
	EventEvaluation = "gen_ai.evaluation.result"
)

// SpanEventLoopWarning is the name of the event on a session.turn span that reports a loop of repeated calls.
const SpanEventLoopWarning = "loop.warning"

// SpanEventException is the name of the event on a span that a panic ended, as in
// OpenTelemetry's conventions for exceptions.
const SpanEventException = "exception"

// Values of gen_ai.operation.name that the SDK emits.
const (
	OperationInvokeAgent = "invoke_agent"
	OperationExecuteTool = "execute_tool"
	OperationChat        = "chat"
)
