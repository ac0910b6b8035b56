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
	dst = append(dst,
		semconv.SessionIDKey.String(t.SessionID),
		semconv.ToolIDKey.String(t.ToolID),
		semconv.ToolCallIDKey.String(t.CallID))
	dst = appendString(dst, semconv.MessageIDKey, t.MessageID)
	dst = appendString(dst, semconv.PartIDKey, t.PartID)
	if t.PartIndex != nil {
		dst = append(dst, semconv.PartIndexKey.Int64(*t.PartIndex))
	}
	dst = appendString(dst, semconv.ToolStateKey, t.State)
	dst = appendString(dst, semconv.GenAIToolCallArgumentsKey, t.Input)
	dst = appendString(dst, semconv.GenAIToolCallResultKey, t.Output)
	dst = appendString(dst, semconv.ErrorKey, t.Error)
	dst = appendString(dst, semconv.ErrorTypeKey, t.ErrorType)
	dst = appendTrue(dst, semconv.ToolDeniedKey, t.Denied)
	dst = appendTrue(dst, semconv.ToolDynamicKey, t.Dynamic)
	dst = appendTrue(dst, semconv.ToolProviderExecutedKey, t.ProviderExecuted)
	dst = appendTrue(dst, semconv.ToolInferredKey, t.Inferred)
	dst = appendString(dst, semconv.PermissionIDKey, t.ApprovalID)
	dst = appendString(dst, semconv.ToolChildSessionIDKey, t.ChildSessionID)
	dst = append(dst, semconv.TruncatedKey.Bool(t.Truncated))
	dst = appendString(dst, semconv.ToolOutputPathKey, t.OutputPath)
	dst = appendInt(dst, semconv.ToolOutputSizeKey, t.OutputSize)
	dst = appendString(dst, semconv.ToolOutputSHA256Key, t.OutputSHA256)
	if t.DurationMS != nil {
		dst = append(dst, semconv.DurationMSKey.Int64(*t.DurationMS))
	}
	dst = appendString(dst, semconv.ToolKindKey, t.ACPKind)
	dst = appendString(dst, semconv.GenAIToolDescriptionKey, t.Description)
	dst = appendString(dst, semconv.GenAIToolTypeKey, t.Type)
	return append(dst,
		semconv.GenAIOperationNameKey.String(semconv.OperationExecuteTool),
		semconv.GenAIToolNameKey.String(t.ToolID),
		semconv.GenAIToolCallIDKey.String(t.CallID))
}

// Set implements [SpanData].
func (t *ToolCall) Set(key string, v Value) (known bool, err error) {
	switch attribute.Key(key) {
	case semconv.SessionIDKey:
		return true, setString(&t.SessionID, v)
	case semconv.SessionIDFloorKey, semconv.GenAIConversationIDKey:
		return true, setStringIfUnset(&t.SessionID, v)
	case semconv.GenAIOperationNameKey:
		return true, nil
	case semconv.ToolIDKey:
		return true, setString(&t.ToolID, v)
	case semconv.GenAIToolNameKey:
		return true, setStringIfUnset(&t.ToolID, v)
	case semconv.ToolCallIDKey:
		return true, setString(&t.CallID, v)
	case semconv.GenAIToolCallIDKey:
		return true, setStringIfUnset(&t.CallID, v)
	case semconv.GenAIToolTypeKey:
		return true, setString(&t.Type, v)
	case semconv.GenAIToolDescriptionKey:
		return true, setString(&t.Description, v)
	case semconv.MessageIDKey:
		return true, setString(&t.MessageID, v)
	case semconv.PartIDKey:
		return true, setString(&t.PartID, v)
	case semconv.PartIndexKey:
		return true, setIntPtr(&t.PartIndex, v)
	case semconv.ToolStateKey:
		return true, setString(&t.State, v)
	case semconv.GenAIToolCallArgumentsKey:
		return true, setString(&t.Input, v)
	case semconv.GenAIToolCallResultKey:
		return true, setString(&t.Output, v)
	case semconv.ErrorKey:
		return true, setString(&t.Error, v)
	case semconv.ErrorTypeKey:
		return true, setString(&t.ErrorType, v)
	case semconv.ToolKindKey:
		return true, setString(&t.ACPKind, v)
	case semconv.ToolDynamicKey:
		return true, setBool(&t.Dynamic, v)
	case semconv.ToolProviderExecutedKey:
		return true, setBool(&t.ProviderExecuted, v)
	case semconv.ToolDeniedKey:
		return true, setBool(&t.Denied, v)
	case semconv.ToolInferredKey:
		return true, setBool(&t.Inferred, v)
	case semconv.PermissionIDKey:
		return true, setString(&t.ApprovalID, v)
	case semconv.ToolChildSessionIDKey:
		return true, setString(&t.ChildSessionID, v)
	case semconv.DurationMSKey:
		return true, setIntPtr(&t.DurationMS, v)
	}
	return t.setTruncated(key, v)
}

// setTruncated decodes an attribute that states how an output was truncated.
func (t *ToolCall) setTruncated(key string, v Value) (known bool, err error) {
	switch attribute.Key(key) {
	case semconv.TruncatedKey:
		return true, setBool(&t.Truncated, v)
	case semconv.ToolOutputPathKey:
		return true, setString(&t.OutputPath, v)
	case semconv.ToolOutputSizeKey:
		return true, setInt(&t.OutputSize, v)
	case semconv.ToolOutputSHA256Key:
		return true, setString(&t.OutputSHA256, v)
	}
	return false, nil
}

// Validate implements [SpanData].
func (t *ToolCall) Validate() error {
	var errs []error
	if t.SessionID == "" {
		errs = append(errs, missing(semconv.SessionIDKey))
	}
	if t.ToolID == "" {
		errs = append(errs, missing(semconv.ToolIDKey))
	}
	if t.CallID == "" {
		errs = append(errs, missing(semconv.ToolCallIDKey))
	}
	if t.MessageID == "" {
		errs = append(errs, missing(semconv.MessageIDKey))
	}
	if t.PartIndex != nil && *t.PartIndex < 0 {
		errs = append(errs, errors.New("agenttrace.part.index is negative"))
	}
	errs = append(errs,
		oneOf(semconv.ToolStateKey, t.State, "input-streaming", "input-available", "approval-requested", "approval-responded",
			"output-available", "output-error", "output-denied"),
		oneOf(semconv.ToolKindKey, t.ACPKind, semconv.ToolKindRead, semconv.ToolKindEdit, semconv.ToolKindDelete,
			semconv.ToolKindMove,
			semconv.ToolKindSearch, semconv.ToolKindExecute, semconv.ToolKindThink, semconv.ToolKindFetch,
			semconv.ToolKindOther))
	return errors.Join(errs...)
}
