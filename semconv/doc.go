// Package semconv names everything that agenttrace puts on spans and events:
// their names, attribute keys and the values of enumerations, each with its type,
// unit and an example in [Attributes] and [Enums]. CONVENTIONS.md is the same table for
// reading, written from this package.
//
// Keys come from three places. The floor (session_id, turn_index, tool_id, …)
// stands in the debugging contract of the agent guide and is kept verbatim.
// The mirror (gen_ai.*, session.id, user.id, error.type) follows the
// OpenTelemetry GenAI conventions, so that every other tool understands the
// span too; its keys are spelled here because the Go semconv packages no longer
// carry gen_ai.*. What neither has is ours, under agenttrace.*.
package semconv

// SchemaURL identifies this version of the conventions. Tracers and loggers
// of the SDK carry it.
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

// Names of the events that the SDK emits as log records while things go on.
const (
	// EventSession: a session began or its row changed.
	EventSession = "agenttrace.session"
	// EventMessage: a message began or changed.
	EventMessage = "agenttrace.message"
	// EventPart: a part began, grew or changed its state.
	EventPart = "agenttrace.part"
	// EventStatus: what the session is doing changed.
	EventStatus = "agenttrace.status"
)

// SpanEventLoopWarning is the name of the event on a session.turn span that says
// that the agent goes in circles.
const SpanEventLoopWarning = "loop.warning"

// SpanEventException is the name of the event on a span that a panic ended, as
// OpenTelemetry's conventions for exceptions have it.
const SpanEventException = "exception"

// Values of gen_ai.operation.name that the SDK emits.
const (
	OperationInvokeAgent = "invoke_agent"
	OperationExecuteTool = "execute_tool"
	OperationChat        = "chat"
)
