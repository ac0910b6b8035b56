package semconv

// Values of agenttrace.run.operation. Absent means OperationRun.
const (
	// RunOperationRun is a run: the span covers the time in which the agent works.
	RunOperationRun = "run"
	// RunOperationUpdate and the operations below change the session at one moment, without a run.
	RunOperationUpdate    = "update"
	RunOperationFork      = "fork"
	RunOperationRewind    = "rewind"
	RunOperationUnrewind  = "unrewind"
	RunOperationArchive   = "archive"
	RunOperationUnarchive = "unarchive"
)

// Values of agenttrace.run.outcome and agenttrace.turn.end_reason.
const (
	EndFinish = "finish"
	EndAbort  = "abort"
	EndError  = "error"
)

// Values of agenttrace.usage.basis: how the source counted before the buckets were made disjoint.
const (
	// BasisInclusive means that input includes tokens read from and written to the
	// cache, and output includes reasoning.
	BasisInclusive = "inclusive"
	// BasisExclusive means that the source reported five disjoint counts.
	BasisExclusive = "exclusive"
)

// Values of action (permission.evaluate).
const (
	ActionAllow = "allow"
	ActionDeny  = "deny"
	ActionAsk   = "ask"
)

// Values of source (permission.evaluate).
const (
	SourceManifest = "manifest"
	SourceSession  = "session"
	SourceProject  = "project"
)

// Values of agenttrace.permission.outcome.
const (
	OutcomeAllowed = "allowed"
	OutcomeDenied  = "denied"
	OutcomePending = "pending"
)

// Values of agenttrace.permission.reply.
const (
	ReplyOnce   = "once"
	ReplyAlways = "always"
	ReplyReject = "reject"
)

// Values of agenttrace.status: what a session is doing now.
const (
	StatusIdle             = "idle"
	StatusBusy             = "busy"
	StatusRetrying         = "retrying"
	StatusWaitingApproval  = "waiting_on_approval"
	StatusWaitingUserInput = "waiting_on_user_input"
	StatusError            = "error"
)

// Values of agenttrace.message.role that the SDK emits.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// ErrorTypeAborted is the error.type of a turn or call that did not finish because its
// process died or its agent was stopped.
const ErrorTypeAborted = "aborted"

// AbortedByRestart is the error of a turn or tool call that a later process ended, because its own process had died.
// The agent guide prescribes the text, which the model gets as the result of such a call.
const AbortedByRestart = "aborted by host restart"

// ErrorTypePanic is the error.type of a span that a panic ended.
const ErrorTypePanic = "panic"

// Values of agenttrace.tool.kind, those of the Agent Client Protocol.
const (
	ToolKindRead    = "read"
	ToolKindEdit    = "edit"
	ToolKindDelete  = "delete"
	ToolKindMove    = "move"
	ToolKindSearch  = "search"
	ToolKindExecute = "execute"
	ToolKindThink   = "think"
	ToolKindFetch   = "fetch"
	ToolKindOther   = "other"
)
