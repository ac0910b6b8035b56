package spans

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
)

// ToolCall is a tool.call span: a tool call with its input and output.
type ToolCall struct {
	SessionID string
	ToolID    string
	CallID    string
	Type      string
	// Description is the tool's description, as the model got it.
	Description string

	MessageID string
	PartID    string
	// PartIndex is the index of the part in its message; nil if not reported.
	PartIndex *int64

	// State is the last state that the call reached, one of the AI SDK's.
	State string
	// Input and Output are JSON text, or empty. They are kept as they arrived, even if a
	// limit truncated them.
	Input, Output string
	// Error is the text that the model got for a failed call.
	Error     string
	ErrorType string

	// ACPKind is the kind of tool, with the values of the Agent Client Protocol.
	ACPKind          string
	Dynamic          bool
	ProviderExecuted bool
	Denied           bool
	// Inferred reports that the call itself was not observed: it lasts from the end of the
	// answer that requested it to the request with its result.
	Inferred bool

	// Truncated reports that the output was truncated. OutputSize (in bytes) and
	// OutputSHA256 describe the whole output, OutputPath is where it is.
	Truncated    bool
	OutputPath   string
	OutputSize   int64
	OutputSHA256 string

	// ApprovalID is the permission decision that the call waits for or waited for.
	ApprovalID string

	// ChildSessionID is the session of a sub-agent that the call started.
	ChildSessionID string

	DurationMS *int64
}

// Kind returns tool.call.
func (t *ToolCall) Kind() string { return semconv.SpanToolCall }

// Append implements [SpanData]. The most important attributes come first, as in a [Turn].
func (t *ToolCall) Append(dst []attribute.KeyValue) []attribute.KeyValue {
	return toolCallTable.append(t, dst)
}

// Set implements [SpanData].
func (t *ToolCall) Set(key string, val Value) (known bool, err error) {
	return toolCallTable.set(t, key, val)
}

// Validate implements [SpanData].
func (t *ToolCall) Validate() error {
	var negative error
	if t.PartIndex != nil && *t.PartIndex < 0 {
		negative = errors.New("agenttrace.part.index is negative")
	}
	return toolCallTable.validate(t, negative)
}

var toolCallTable = newTable(func(t *builder, c *ToolCall) {
	t.session(&c.SessionID, semconv.SessionIDFloorKey, semconv.GenAIConversationIDKey)
	t.add(semconv.ToolIDKey, &c.ToolID, always, required)
	t.add(semconv.ToolCallIDKey, &c.CallID, always, required)
	t.add(semconv.MessageIDKey, &c.MessageID, required)
	t.add(semconv.PartIDKey, &c.PartID)
	t.add(semconv.PartIndexKey, &c.PartIndex)
	t.add(semconv.ToolStateKey, &c.State, enum)
	t.add(semconv.GenAIToolCallArgumentsKey, &c.Input)
	t.add(semconv.GenAIToolCallResultKey, &c.Output)
	t.add(semconv.ErrorKey, &c.Error)
	t.add(semconv.ErrorTypeKey, &c.ErrorType)
	t.add(semconv.ToolDeniedKey, &c.Denied)
	t.add(semconv.ToolDynamicKey, &c.Dynamic)
	t.add(semconv.ToolProviderExecutedKey, &c.ProviderExecuted)
	t.add(semconv.ToolInferredKey, &c.Inferred)
	t.add(semconv.PermissionIDKey, &c.ApprovalID)
	t.add(semconv.ToolChildSessionIDKey, &c.ChildSessionID)
	t.add(semconv.TruncatedKey, &c.Truncated, always)
	t.add(semconv.ToolOutputPathKey, &c.OutputPath)
	t.add(semconv.ToolOutputSizeKey, &c.OutputSize)
	t.add(semconv.ToolOutputSHA256Key, &c.OutputSHA256)
	t.add(semconv.DurationMSKey, &c.DurationMS)
	t.add(semconv.ToolKindKey, &c.ACPKind, enum)
	t.add(semconv.GenAIToolDescriptionKey, &c.Description)
	t.add(semconv.GenAIToolTypeKey, &c.Type)
	t.constant(semconv.GenAIOperationNameKey.String(semconv.OperationExecuteTool))
	t.add(semconv.GenAIToolNameKey, &c.ToolID, alias, always)
	t.add(semconv.GenAIToolCallIDKey, &c.CallID, alias, always)
})
